from dataclasses import replace

import numpy as np
import pytest

from posir_tasks.errors import DataError, PosirError
from posir_tasks.sources.opening import open_data
from posir_train.examples import Example, TrainingDocument, merge_articles, pool_corpora, read_examples, split_by_article
from posir_train.settings import open_dataset
from tests.plugins.posir_train.texts import build_examples, write_squad
from tests.support.datasets import posir_tables, write_domain


def test_squad_json_is_read_with_its_articles(tmp_path):
    data = build_examples()
    examples = read_examples(open_dataset(str(write_squad(tmp_path / "made.json", data))))
    assert [(example.question, example.start, example.evidence) for example in examples.examples] == [
        (example.question, example.start, example.evidence) for example in data.examples
    ]
    assert examples.articles == data.articles


def test_a_folder_is_read(posir_folder):
    examples = read_examples(open_dataset(str(posir_folder)))
    assert examples.examples
    assert all(example.evidence.strip() and example.document.corpus == "eng-Latn/sports" for example in examples.examples)


def test_corpora_are_pooled_with_distinct_ids(tmp_path):
    for domain in ("sports", "game"):
        write_domain(tmp_path / "data", posir_tables(), domain=domain)
    data = pool_corpora(read_examples(open_dataset(str(tmp_path / "data"))))
    assert len({example.id for example in data.examples}) == len(data.examples)
    assert len({example.document.corpus for example in data.examples}) == 1


def test_data_without_answers_or_spans_is_refused(posir_folder, tmp_path):
    file = tmp_path / "empty.json"
    file.write_text('{"data": [{"paragraphs": [{"context": "A text.", "qas": [{"question": "What?", "answers": []}]}]}]}')
    with pytest.raises(DataError, match=r"evidence.* posir train"):
        read_examples(open_dataset(str(file)))
    dataset = open_data(str(posir_folder))
    data, none = dataset.subsets[0].read(), np.array([], np.int64)
    labeled = replace(data, evidence=replace(data.evidence, starts=none, ends=none))
    with pytest.raises(PosirError, match=r"evidence .*missing.*span"):
        read_examples(replace(dataset, subsets=(replace(dataset.subsets[0], read=lambda: labeled),)))


def test_no_article_is_in_both_parts():
    data = build_examples(articles=10)
    split = training, held_out = split_by_article(data, 0.3, seed=1)
    assert len(held_out.articles) == 3
    assert not {*held_out.articles} & {*training.articles}
    assert {*held_out.examples, *training.examples} == {*data.examples}
    assert split == split_by_article(data, 0.3, seed=1)
    assert held_out.articles != split_by_article(data, 0.3, seed=2)[1].articles


def test_articles_with_the_same_text_are_one():
    data = build_examples(articles=3)
    first, second = data.documents[:2]
    copy = replace(first, id="copy", article=second.article)
    merged = merge_articles([*data.examples, Example("q", "What?", copy, 0, 3)])
    assert len({example.document.article for example in merged}) == 2


@pytest.mark.parametrize(("articles", "share"), [(1, 0.5), (3, 0.5), (10, 0.0), (10, 1.0)])
def test_too_few_articles_are_refused(articles, share):
    with pytest.raises(PosirError, match=r"both need at least 2"):
        split_by_article(build_examples(articles=articles), share, seed=1)


PASSAGE = "Beside the river stood a mill of gray stone. It was built in 1821 by a miller from the coast. Nobody lives there."


@pytest.mark.parametrize(
    ("other", "answered"),
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
def test_a_text_answers_a_question_if_it_has_its_passage_or_a_part(other, answered):
    start = PASSAGE.index("1821")
    example = Example("q", "When?", TrainingDocument("d", PASSAGE, "c", "a"), start, start + 4)
    assert example.is_answered_by(other) == answered
