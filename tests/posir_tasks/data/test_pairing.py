"""Documents with the same id in two languages are checked by ids, shared tokens and lengths."""

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from posir_tasks.base.errors import DataError
from posir_tasks.data.formats.passages import Answer, Passage, PassageQuestion
from posir_tasks.data.formats.question_rows import read_squad_json
from posir_tasks.data.pairing import PairAgreement, correlate_lengths, match_texts
from posir_tasks.data.posir import SubsetKey, inspect_domain, read_domain
from posir_tasks.data.repository import HubRepository, LocalRepository
from tests.support.datasets import POSIR_FOLDER, imported, posir_tables, write_domain

GERMAN, ENGLISH = "deu-Latn", "eng-Latn"
NAMES = ("Ada", "Boris", "Carlotta", "Dmitri", "Edwina", "Fjodor", "Gwendolyn", "Horatio")
XQUAD = {"de": "deu-Latn", "zh": "cmn-Hans", "ar": "ara-Arab", "es": "spa-Latn", "ru": "rus-Cyrl"}
SLOW_CODES = [pytest.param(code, marks=pytest.mark.slow) for code in ("es", "ru")]


def build_passages(language, names=NAMES):
    """Build a passage for each name, with the same question ids in both languages."""
    texts = {
        ENGLISH: "In {year} {name} built a mill by the river.",
        GERMAN: "Am Fluss baute {name} {year} eine Mühle.",
    }
    passages = []
    for name in names:
        number = NAMES.index(name)
        text = texts[language].format(name=name, year=1900 + number)
        question = PassageQuestion("file", name, f"When? {name}", (Answer(str(1900 + number)),))
        passages.append(Passage("file", name, text, [question], question_ids=[f"q{number}"]))
    return passages


def number_documents(passages, first=0):
    return [replace(passage, id=f"d{row}") for row, passage in enumerate(passages, first)]


def inspect_pair(root, language=GERMAN):
    return inspect_domain(LocalRepository(root), SubsetKey(language, ENGLISH, "sports"))


def test_question_ids_pair_documents_despite_a_missing_document(tmp_path):
    imported(build_passages(ENGLISH), tmp_path)
    imported(build_passages(GERMAN)[1:], tmp_path, language=GERMAN)
    data = read_domain(LocalRepository(tmp_path), GERMAN, ENGLISH, "sports")
    assert data.evidence.document_ids == [f"sports_q{number}" for number in range(1, 8)]
    assert data.warnings == ("deu-Latn-eng-Latn/sports: 7 documents in deu-Latn, 8 in eng-Latn",)


def test_languages_are_not_paired_without_ids(tmp_path):
    for language in (ENGLISH, GERMAN):
        imported(
            [replace(passage, question_ids=()) for passage in build_passages(language)],
            tmp_path,
            language=language,
        )
    with pytest.raises(
        DataError,
        match=r"(?s)no query can be evaluated.*8 of 8 judgments.*needs the same document ids",
    ):
        read_domain(LocalRepository(tmp_path), GERMAN, ENGLISH, "sports")
    assert len(read_domain(LocalRepository(tmp_path), GERMAN, GERMAN, "sports").evidence) == 8


def test_numbered_ids_are_accepted_only_for_translations(tmp_path):
    imported(number_documents(build_passages(ENGLISH)), tmp_path)
    imported(number_documents(build_passages(GERMAN)), tmp_path, language=GERMAN)
    assert not inspect_pair(tmp_path)[0]
    imported(number_documents(build_passages(GERMAN)[1:]), tmp_path / "shifted", language=GERMAN)
    imported(number_documents(build_passages(ENGLISH)), tmp_path / "shifted")
    (problem,) = inspect_pair(tmp_path / "shifted")[0]
    assert problem.file.endswith("deu-Latn/sports/qrels/test.parquet")
    assert (
        "for 0 of 6 documents, the document with the same id shares the most numbers and names"
        in problem.message
    )


@pytest.mark.parametrize("code", ["de", "zh", "ar", *SLOW_CODES])
def test_xquad_is_paired_by_questions_and_rejected_by_order(squad_data, tmp_path, code):
    """The first paragraph is missing in one language but not in English."""
    language = XQUAD[code]
    english, other = (
        list(read_squad_json(squad_data / f"xquad.{value}.json")) for value in ("en", code)
    )
    imported(english, tmp_path)
    imported(other[1:], tmp_path, language=language)
    problems, warnings = inspect_pair(tmp_path, language)
    (warning,) = warnings
    assert (problems, warning.split(": ")[1]) == (
        [],
        f"239 documents in {language}, 240 in eng-Latn",
    )
    data = read_domain(LocalRepository(tmp_path), language, ENGLISH, "sports")
    text = dict(zip(data.corpus["id"], data.corpus["text"], strict=True))
    texts_by_question = {
        question.name: passage.text for passage in english for question in passage.questions
    }
    questions = [question.name for passage in other[1:] for question in passage.questions]
    assert [text[name] for name in data.evidence.document_ids] == [
        texts_by_question[name] for name in questions
    ]
    imported(number_documents(english), tmp_path / "by order")
    imported(number_documents(other[1:]), tmp_path / "by order", language=language)
    (problem,) = inspect_pair(tmp_path / "by order", language)[0]
    assert "the lengths have a correlation of 0.2" in problem.message


def test_a_partial_shift_causes_a_warning_with_its_range(squad_data, tmp_path):
    english, german = (
        list(read_squad_json(squad_data / f"xquad.{name}.json")) for name in ("en", "de")
    )
    imported(number_documents(english), tmp_path)
    imported(
        [*number_documents(german[:200]), *number_documents(german[200:-1], 201)],
        tmp_path,
        language=GERMAN,
    )
    problems, warnings = inspect_pair(tmp_path)
    assert problems == []
    assert "consecutive documents, from d20" in warnings[1]
    assert "may not be translations of the documents with the same id; for 1" in warnings[1]


def test_lengths_decide_without_texts(tmp_path):
    """On the Hub, the corpus of the queries' language is not downloaded."""
    rng = np.random.default_rng(0)
    texts = {
        f"doc_{row}": "x " * int(length) for row, length in enumerate(rng.integers(20, 400, 60))
    }
    tables = posir_tables(texts, {f"q{row}": ("?", name, "x") for row, name in enumerate(texts)})
    write_domain(tmp_path, tables)
    for order in (range(60), rng.permutation(60)):
        # Translations are a tenth longer.
        lengths = (tables["queries"]["pos_char_length"].gather(order) * 1.1).cast(pl.Int64)
        queries = tables["queries"].with_columns(lengths.alias("pos_char_length"))
        write_domain(tmp_path, {"queries": queries, "qrels": tables["qrels"]}, language=GERMAN)
        messages = [problem.message for problem in inspect_pair(tmp_path)[0]]
        assert bool(messages) != isinstance(order, range)
    assert re.search(r"same id in .* lengths have a correlation of", messages[0])


def test_no_additional_files_are_read_from_the_hub(tmp_path, monkeypatch):
    root = tmp_path / POSIR_FOLDER
    for language in (ENGLISH, GERMAN):
        write_domain(root, posir_tables(), language=language)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    fetched = []
    monkeypatch.setattr(HubRepository, "fetch", lambda _, path: fetched.append(path) or root / path)
    monkeypatch.setattr(
        HubRepository,
        "list_paths",
        lambda *_: [str(path.relative_to(root)) for path in root.rglob("*.parquet")],
    )
    assert inspect_domain(
        HubRepository("org/data", "main"), SubsetKey(GERMAN, ENGLISH, "sports")
    ) == ([], [])
    assert sorted(fetched) == sorted(SubsetKey(GERMAN, ENGLISH, "sports").files)


def test_shared_tokens_are_names_and_numbers_in_any_digits():
    texts = ["فولاد ۱۳۷۱", "NFL的308分", "Nguyễn 1954", "und die der"]
    others = ["Steel, 1371.", "In the NFL, 308 points.", "Nguyen, 1954", "nothing"]
    assert match_texts(texts, others) == [True, True, True, None]
    assert match_texts(texts[:3], ["308 points", "1371", "1954"]) == [False, False, True]


def test_few_or_equal_lengths_are_inconclusive():
    rng = np.random.default_rng(0)
    lengths = rng.integers(100, 1_000, 40)
    assert correlate_lengths(lengths, lengths * 2) == pytest.approx(1, abs=1e-3)
    assert correlate_lengths(lengths[:20], lengths[:20]) is None
    assert correlate_lengths(np.full(40, 500), lengths) is None
    assert not PairAgreement((), None, 40).is_mispaired
    assert PairAgreement((), 0.0, 240).is_mispaired
    assert not PairAgreement((), 0.0, 31).is_mispaired
    assert not PairAgreement((("d", False),) * 5, None, 5).is_mispaired
