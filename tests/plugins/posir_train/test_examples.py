"""Read, split, compose and write training data."""

from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.datasets.opening import open_data
from posir_tasks.text.tokenizer import EstimatedTokenizer
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.schemes import RelativePositions
from posir_train.composing import (
    build_mosaic_composer,
    compose_examples,
    compose_moved,
    compose_needles,
    compose_window,
    select_first_questions,
)
from posir_train.examples import (
    Example,
    TrainingDocument,
    build_targets,
    merge_articles,
    merge_corpora,
    read_examples,
    split_by_article,
    tokenize_examples,
    write_examples,
)
from posir_train.settings import (
    ComposeSettings,
    Position,
    PositionWeights,
    find_position,
    open_dataset,
)
from tests.plugins.posir_train.texts import build_examples, write_squad
from tests.support.datasets import posir_tables, write_domain


def test_squad_json_keeps_articles(tmp_path):
    data = build_examples()
    examples = read_examples(open_dataset(str(write_squad(tmp_path / "made.json", data))))
    result, expected = (
        [(item.question, item.start, item.evidence) for item in source.examples]
        for source in (examples, data)
    )
    assert (result, examples.articles) == (expected, data.articles)


def test_merged_corpora_have_distinct_ids(tmp_path):
    for domain in ("sports", "game"):
        write_domain(tmp_path / "data", posir_tables(), domain=domain)
    examples = read_examples(open_dataset(str(tmp_path / "data")))
    assert {example.document.corpus for example in examples.examples} == {
        "eng-Latn/sports",
        "eng-Latn/game",
    }
    assert all(example.evidence.strip() for example in examples.examples)
    merged = merge_corpora(examples)
    assert len({example.id for example in merged.examples}) == len(examples.examples)
    assert len({example.document.corpus for example in merged.examples}) == 1


def test_data_without_answers_or_spans_raises(posir_folder, tmp_path):
    file = tmp_path / "empty.json"
    file.write_text(
        '{"data": [{"paragraphs": [{"context": "A text.", "qas": [{"question": "What?", '
        '"answers": []}]}]}]}'
    )
    with pytest.raises(DataError, match=r"evidence.* posir train"):
        read_examples(open_dataset(str(file)))
    dataset = open_data(str(posir_folder))
    data = dataset.subsets[0].read()
    no_spans = np.array([], np.int64)
    data = replace(data, evidence=replace(data.evidence, starts=no_spans, ends=no_spans))
    with pytest.raises(PosirError, match="no evidence spans"):
        read_examples(replace(dataset, subsets=(replace(dataset.subsets[0], read=lambda: data),)))


def test_split_by_article():
    data = build_examples(articles=10)
    training, held_out = split_by_article(data, 0.3, seed=1)
    assert len(held_out.articles) == 3
    assert not {*held_out.articles} & {*training.articles}
    assert {*held_out.examples, *training.examples} == {*data.examples}
    assert (training, held_out) == split_by_article(data, 0.3, seed=1)
    assert held_out.articles != split_by_article(data, 0.3, seed=2)[1].articles
    for articles, share in ((1, 0.5), (3, 0.5), (10, 0.0), (10, 1.0)):
        with pytest.raises(PosirError, match=r"need at least 2 articles each"):
            split_by_article(build_examples(articles=articles), share, seed=1)


def test_articles_with_a_common_text_are_merged():
    data = build_examples(articles=3)
    first, second = data.documents[:2]
    copy = replace(first, id="copy", article=second.article)
    merged = merge_articles([*data.examples, Example("q", "What?", copy, 0, 3)])
    assert len({example.document.article for example in merged}) == 2


PASSAGE = (
    "Beside the river stood a mill of gray stone. It was built in 1821 by a miller from the "
    "coast. Nobody lives there."
)


@pytest.mark.parametrize(
    ("text", "is_answered"),
    [
        (PASSAGE[20:100], True),
        (PASSAGE[: PASSAGE.index("21")], True),
        (PASSAGE[PASSAGE.index("821") :], True),
        (PASSAGE[: PASSAGE.index("1821")], False),
        (PASSAGE[PASSAGE.index("1821") + 4 :], False),
        ("In 1821 a bridge was built.", False),
        (PASSAGE.replace("1821", "1900"), False),
    ],
)
def test_is_answered_by(text, is_answered):
    start = PASSAGE.index("1821")
    example = Example("q", "When?", TrainingDocument("d", PASSAGE, "c", "a"), start, start + 4)
    assert example.is_answered_by(text) == is_answered


TOKENIZER = EstimatedTokenizer()
MOSAICS = ComposeSettings(kind="mosaics", tokens=90, groups=4, seed=1)


@pytest.fixture(scope="module")
def sources():
    return tokenize_examples(build_examples(articles=8, questions=10, sentences=60), TOKENIZER)


@pytest.mark.parametrize("kind", ["windows", "mosaics"])
def test_evidence_is_at_every_position_with_correct_spans(sources, kind):
    composer = (
        partial(compose_window, tokens=90)
        if kind == "windows"
        else build_mosaic_composer(sources, MOSAICS)
    )
    corpora, skip_counts = compose_examples(sources, composer, seed=1)
    originals = {source.example.id: source.example for source in sources}
    assert len(corpora[0]) + skip_counts.total() == len(sources)
    assert len(corpora[0]) > 20
    for examples in corpora:
        counts = Counter(example.position for example in examples)
        assert max(counts.values()) - min(counts[position] for position in Position) <= 1
        assert all(example.evidence == originals[example.id].evidence for example in examples)
        lengths = [
            len(tokens)
            for tokens in TOKENIZER.find_tokens([example.document.text for example in examples])
        ]
        assert max(lengths) <= 90 + 3
    positions = [{examples[row].position for examples in corpora} for row in range(len(corpora[0]))]
    assert all(position == set(Position) for position in positions)


@pytest.mark.parametrize("literal", [False, True])
def test_needles_are_at_ten_positions_for_every_length(sources, literal):
    lengths = (60, 240, 480)
    settings = ComposeSettings(kind="needles", lengths=lengths, literal=literal, seed=1)
    corpora, skip_counts = compose_needles(sources, settings, "eng-Latn", TOKENIZER)
    originals = {source.example.id: source.example for source in sources}
    assert len(corpora[0]) + skip_counts.total() == len(sources)
    assert len(corpora[0]) > 20
    for length, examples in zip(lengths, corpora, strict=True):
        sizes = TOKENIZER.count_all([item.document.text for item in examples])
        assert length - 30 < min(sizes) <= max(sizes) <= length
        assert [item.id for item in examples] == [item.id for item in corpora[0]]
        positions = []
        for item in examples:
            original = originals[item.id]
            assert item.evidence == original.evidence
            assert item.document.text.count(item.evidence) == 1
            assert (item.question == original.question) is not literal
            needle = item.question if literal else item.evidence
            if literal:
                needles = {other.question for other in examples}
                assert [text for text in needles if text in item.document.text] == [needle]
            start = item.document.text.index(needle)
            positions.append(start / (len(item.document.text) - len(needle)))
        # Needles are only inserted between sentences, which have about 15 tokens.
        expected = np.arange(len(positions)) % 10 / 9
        assert np.abs(np.array(positions) - expected).max() < 20 / length + 0.05
    long_text = corpora[2][0].document.text
    short_text = corpora[0][0].document.text
    assert long_text.startswith(short_text[: len(short_text) // 2])


def test_windows_are_cut_from_their_documents(sources):
    corpora, _ = compose_examples(sources, partial(compose_window, tokens=90), seed=1)
    originals = {source.example.id: source.example for source in sources}
    for item in corpora[0]:
        original = originals[item.id]
        text = original.document.text
        start = text.index(item.document.text)
        assert text[start - 1 : start] in ("", " ")
        assert item.start + start == original.start
        assert item.document.article == original.document.article


def test_moved_evidence_differs_only_in_position(sources):
    selection = select_first_questions(sources)
    corpora, _ = compose_examples(selection, partial(compose_moved, language="eng-Latn"), seed=1)
    assert len(corpora[0]) == len({source.example.document for source in sources}) == len(selection)
    for versions in zip(*corpora, strict=True):
        assert {example.position for example in versions} == set(Position)
        assert len({example.evidence for example in versions}) == 1
        assert len({tuple(sorted(example.document.text.split())) for example in versions}) == 1


def test_mosaics_use_passages_from_one_group(sources):
    composer = build_mosaic_composer(sources, MOSAICS)
    corpora, _ = compose_examples(sources, composer, seed=1)
    for item in corpora[0]:
        group_articles = [
            article
            for article, group in composer.keywords["groups"].items()
            if group == item.document.article
        ]
        texts = " ".join(
            source.example.document.text
            for source in sources
            if source.example.document.article in group_articles
        )
        assert all(passage in texts for passage in item.document.text.split("\n\n"))


def test_positions_are_sampled_by_weight(sources):
    (examples,), _ = compose_examples(sources, partial(compose_window, tokens=90), 1, (0, 0, 1))
    assert {example.position for example in examples} == {Position.END}
    assert (
        examples
        == compose_examples(sources, partial(compose_window, tokens=90), 1, (0, 0, 1))[0][0]
    )
    short_sources = tokenize_examples(build_examples(sentences=6), TOKENIZER)
    compose = partial(compose_window, tokens=500)
    corpora, skip_counts = compose_examples(short_sources, compose, 1, (1, 1, 1))
    assert (corpora, [*skip_counts.values()]) == ([[]], [len(short_sources)])


def test_composed_domains_round_trip(sources, tmp_path):
    corpora, _ = compose_examples(sources, partial(compose_window, tokens=90), seed=1)
    for target, examples in zip(
        build_targets("eng-Latn", "facts", tmp_path, (1, 2, 3)), corpora, strict=True
    ):
        write_examples(examples, (), target, TOKENIZER)
    expected = {
        (f"eng-Latn/facts_{number}", item.id): item
        for number, items in enumerate(corpora, 1)
        for item in items
    }
    result = read_examples(open_dataset(str(tmp_path))).examples
    assert len(result) == len(expected)
    for example in result:
        original = expected[example.document.corpus, example.id]
        assert (example.evidence, example.position) == (original.evidence, original.position)
        assert example.document.article == original.document.article
    with pytest.raises(PosirError, match="already exists"):
        build_targets("eng-Latn", "facts", tmp_path, (1, 2, 3))


def test_positions_match_posir_bins():
    spans = [
        (start, start + size) for start in range(30) for size in (1, 2, 5) if start + size <= 30
    ]
    columns = np.array([(*span, 30, 8) for span in spans]).T
    evidence = Evidence([str(row) for row in range(len(spans))], ["d"] * len(spans), *columns)
    assert RelativePositions(len(Position)).cells(evidence).position.tolist() == [
        find_position(*span, 30) for span in spans
    ]


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("begin", (1, 0, 0)),
        ("uniform", (1 / 3,) * 3),
        ("2,1,1", (0.5, 0.25, 0.25)),
        ("1,0,3", (0.25, 0, 0.75)),
    ],
)
def test_parse_weights(text, shares):
    weights = PositionWeights.parse(text)
    assert (weights.shares, len(weights.positions)) == (
        pytest.approx(shares),
        sum(share > 0 for share in shares),
    )


def test_invalid_weights_raise():
    for text in ("front", "1,2", "0,0,0", "1,-1,1", "nan,1,1", "inf,1,1"):
        with pytest.raises(ValueError, match="uniform"):
            PositionWeights.parse(text)
