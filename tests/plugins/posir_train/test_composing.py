from collections import Counter

import pytest

from posir_tasks.errors import PosirError
from posir_tasks.sources.posir import Target
from posir_tasks.text.tokenizer import EstimatedTokenizer
from posir_train.examples import (
    WindowComposer,
    build_mosaic_composer,
    compose_examples,
    list_targets,
    read_examples,
    tokenize_examples,
    write_examples,
)
from posir_train.settings import Position, open_dataset
from tests.plugins.posir_train.texts import build_examples

TOKENS = EstimatedTokenizer()


@pytest.fixture(scope="module")
def sources():
    return tokenize_examples(build_examples(articles=8, questions=10, sentences=60), TOKENS)


def test_estimated_tokens_cover_the_words():
    (tokens,) = TOKENS.find_tokens(["a longer word"])
    assert tokens.tolist() == [[0, 1], [2, 8], [2, 8], [9, 13]]


@pytest.mark.parametrize("kind", ["windows", "mosaics"])
def test_evidence_is_at_each_position_and_spans_are_true(sources, kind):
    composer = WindowComposer(90) if kind == "windows" else build_mosaic_composer(sources, 90, 2, seed=1)
    corpora, skipped = compose_examples(sources, composer, seed=1)
    original = {source.example.id: source.example for source in sources}
    assert len(corpora[0]) + skipped.total() == len(sources)
    assert len(corpora[0]) > 20
    for examples in corpora:
        counts = Counter(example.position for example in examples)
        assert max(counts.values()) - min(counts[position] for position in Position) <= 1
        assert all(example.evidence == original[example.id].evidence for example in examples)
        lengths = [len(tokens) for tokens in TOKENS.find_tokens([example.document.text for example in examples])]
        assert max(lengths) <= 90 + 3
    positions = [{examples[row].position for examples in corpora} for row in range(len(corpora[0]))]
    assert all(position == set(Position) for position in positions)


def test_windows_are_parts_of_their_documents(sources):
    corpora, _ = compose_examples(sources, WindowComposer(90), seed=1)
    original = {source.example.id: source.example for source in sources}
    for item in corpora[0]:
        text = original[item.id].document.text
        start = text.index(item.document.text)
        assert text[start - 1 : start] in ("", " ")
        assert item.start + start == original[item.id].start
        assert item.document.article == original[item.id].document.article


def test_mosaics_have_passages_of_their_own_group_only(sources):
    composer = build_mosaic_composer(sources, 90, 4, seed=1)
    corpora, _ = compose_examples(sources, composer, seed=1)
    for item in corpora[0]:
        members = [article for article, group in composer.groups.items() if group == item.document.article]
        texts = " ".join(source.example.document.text for source in sources if source.example.document.article in members)
        assert all(part in texts for part in item.document.text.split("\n\n"))


def test_positions_are_drawn_by_weight(sources):
    (examples,), _ = compose_examples(sources, WindowComposer(90), 1, (0, 0, 1))
    assert {example.position for example in examples} == {Position.END}
    assert examples == compose_examples(sources, WindowComposer(90), 1, (0, 0, 1))[0][0]


def test_too_short_documents_are_skipped_with_a_reason():
    short = tokenize_examples(build_examples(sentences=6), TOKENS)
    reason = "no window with the answer in the third"
    assert compose_examples(short, WindowComposer(500), 1, (1, 1, 1)) == ([[]], {reason: len(short)})


def test_composed_domains_are_valid_and_read_back(sources, tmp_path):
    corpora, _ = compose_examples(sources, WindowComposer(90), seed=1)
    for target, examples in zip(list_targets("eng-Latn", "facts", tmp_path, 3), corpora, strict=True):
        write_examples(examples, (), target, TOKENS)
    result = read_examples(open_dataset(str(tmp_path)))
    written = {
        (f"eng-Latn/facts_{number}", example.id): example for number, examples in enumerate(corpora, 1) for example in examples
    }
    assert len(result.examples) == len(written)
    for example in result.examples:
        own, other = (
            (item.evidence, item.position, item.document.article)
            for item in (example, written[example.document.corpus, example.id])
        )
        assert own == other


def test_an_existing_domain_is_refused(tmp_path):
    Target("eng-Latn", "facts", tmp_path).folder.mkdir(parents=True)
    with pytest.raises(PosirError, match="already exists"):
        list_targets("eng-Latn", "facts", tmp_path, 1)
