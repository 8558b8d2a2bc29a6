"""BEIR and Chroma's chunking evaluation are read with all documented fields and evidence spans."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import posir
from posir_score.evidence_spans import read_evidence_data
from posir_tasks.base.errors import DataError
from posir_tasks.data.data import Judgments
from posir_tasks.data.formats.collections import read_beir
from posir_tasks.data.formats.passages import Cause, ReadOptions
from posir_tasks.data.posir import read_domain
from posir_tasks.data.questions import collect_questions
from posir_tasks.data.repository import LocalRepository
from posir_tasks.datasets.opening import open_data
from posir_tasks.values.evidence import Place
from tests.support.datasets import imported, read_back

TEXT = "Zoë 👩‍🚀 flew in 1999."
START = TEXT.index("1999")
CORPUS = [{"_id": "d1", "title": "", "text": TEXT}, {"_id": "d2", "text": "Nobody asks."}]
QUERY, SECOND = {"_id": "q1", "text": "When?"}, {"_id": "q2", "text": "Who?"}
HEADER = ("query-id", "corpus-id", "score")
WITH_SPAN = (*HEADER, "start", "end")
FIRST_ROW = ("q1", "d1", 1, START, START + 4)
WITHOUT_SPAN = [HEADER, ("q1", "d1", 1)]


def write_beir(
    folder, *, corpus=CORPUS, queries=(QUERY,), qrels=(WITH_SPAN, FIRST_ROW), split="test"
):
    """Write a BEIR folder. `qrels` are rows including the header."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, records in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text(
            "".join(json.dumps(record) + "\n" for record in records)
        )
    (folder / "qrels" / f"{split}.tsv").write_text(
        "".join("\t".join(map(str, row)) + "\n" for row in qrels)
    )
    return folder


def import_beir(tmp_path, split="test", **files):
    folder = write_beir(tmp_path / "beir", split=split, **files)
    return imported(read_beir(folder, ReadOptions(split=split)), tmp_path / "out")


SPAN_FIELDS = {
    "columns of the qrels": {},
    "columns in another order": {"qrels": [WITH_SPAN[::-1], FIRST_ROW[::-1]]},
    "field of the query": {
        "queries": [QUERY | {"pos_char_span": [START, START + 4]}],
        "qrels": WITHOUT_SPAN,
    },
    "metadata of the query": {
        "queries": [QUERY | {"metadata": {"pos_char_span": [START, START + 4], "answer": "1999"}}],
        "qrels": WITHOUT_SPAN,
    },
    "the answer alone": {"queries": [QUERY | {"answer": "1999"}], "qrels": WITHOUT_SPAN},
    "twice alike": {"queries": [QUERY | {"pos_char_span": [START, START + 4]}]},
    "several rows alike": {"qrels": [WITH_SPAN, FIRST_ROW, FIRST_ROW, ("q1", "d2", 0, "", "")]},
    "empty metadata": {"queries": [QUERY | {"metadata": {}}]},
    "a title": {"corpus": [CORPUS[0] | {"title": "Zoë"}, CORPUS[1]]},
}


@pytest.mark.parametrize("case", SPAN_FIELDS)
def test_spans_are_read_from_all_documented_fields(tmp_path, case):
    result = import_beir(tmp_path, **SPAN_FIELDS[case])
    assert result.skipped == []
    assert read_back(tmp_path / "out") == [("When?", TEXT, "1999")]
    folder = tmp_path / "out/eng-Latn/sports"
    assert pl.read_parquet(folder / "corpus.parquet").rows() == [
        ("d1", TEXT),
        ("d2", "Nobody asks."),
    ]
    assert pl.read_parquet(folder / "qrels/test.parquet").rows() == [("q1", "d1", 1)]
    titles = pl.read_parquet(folder / "queries.parquet").to_dict(as_series=False).get("pos_title")
    assert (result.titles, titles) == (
        ({"d1": "Zoë"}, ["Zoë"]) if case == "a title" else ({}, None)
    )


def test_other_splits_can_be_read(tmp_path):
    write_beir(tmp_path / "beir", qrels=[HEADER])
    import_beir(tmp_path, split="dev")
    assert len(read_back(tmp_path / "out")) == 1
    with pytest.raises(
        DataError,
        match=r"no split 'train'\. Available splits: dev, test; choose one with --split",
    ):
        imported(read_beir(tmp_path / "beir", ReadOptions(split="train")), tmp_path / "none")


LOCATED_SPAN, UNKNOWN_SPAN = (
    ("q2", "d1", 1, 0, 3),
    "has several places of evidence, one of which is unknown",
)
UNUSABLE_QUERIES = {
    "no relevant document": ([SECOND], [], "has no relevant document in"),
    "judged not relevant": ([SECOND], [("q2", "d1", 0, 0, 3)], "has no relevant document in"),
    "document unknown": (
        [SECOND],
        [("q2", "d9", 1, 0, 3)],
        "its relevant document 'd9' is not in corpus.jsonl",
    ),
    "text unknown": ([], [("q2", "d1", 1, 0, 3)], "its text is not in the data"),
    "no span": (
        [SECOND],
        [("q2", "d1", 1, "", "")],
        "neither an answer text nor both start and end",
    ),
    "span of one": (
        [SECOND | {"pos_char_span": [3]}],
        [("q2", "d1", 1, "", "")],
        "'pos_char_span' is not valid",
    ),
    "a place not in the corpus": ([SECOND], [LOCATED_SPAN, ("q2", "d9", 1, 0, 3)], UNKNOWN_SPAN),
    "a place not in its document": (
        [SECOND],
        [LOCATED_SPAN, ("q2", "d2", 1, 0, 300)],
        UNKNOWN_SPAN,
    ),
    "a place without a span": ([SECOND], [LOCATED_SPAN, ("q2", "d2", 1, "", "")], UNKNOWN_SPAN),
}


@pytest.mark.parametrize("case", UNUSABLE_QUERIES)
def test_unusable_queries_are_skipped_and_named(tmp_path, case):
    queries, rows, reason = UNUSABLE_QUERIES[case]
    result = import_beir(tmp_path, queries=[QUERY, *queries], qrels=[WITH_SPAN, FIRST_ROW, *rows])
    details = [skipped.detail for skipped in result.skipped if reason in skipped.detail]
    assert len(details) == 1 or reason == UNKNOWN_SPAN
    assert {skipped.name.partition("#")[0] for skipped in result.skipped} == {"q2"}
    assert read_back(tmp_path / "out") == [("When?", TEXT, "1999")]
    assert not (tmp_path / "out/eng-Latn/sports/places.parquet").exists()


INVALID_FILES = {
    "no header": ({"qrels": [FIRST_ROW]}, "test.tsv: missing column(s) query-id, corpus-id, score"),
    "no qrels": (
        {"qrels": []},
        "test.tsv: missing column(s) query-id, corpus-id, score; the file has none",
    ),
    "too many fields": ({"qrels": [HEADER, ("q1", "d1", 1, 2)]}, "test.tsv: line 2: has 4 cells"),
    "score is a text": (
        {"qrels": [HEADER, ("q1", "d1", "yes")]},
        "test.tsv: field 'score': must be a number, such as 1",
    ),
    "no score": ({"qrels": [HEADER, ("q1", "d1", "")]}, "test.tsv: field 'score': is missing"),
    "start is no integer": (
        {"qrels": [WITH_SPAN, ("q1", "d1", 1, 1.5, 4)]},
        "test.tsv: field 'start': must be an integer",
    ),
    "document without id": ({"corpus": [{"text": "a"}]}, "corpus.jsonl: line 1: '_id' is missing"),
    "document twice": (
        {"corpus": [*CORPUS, {"_id": "d1", "text": "b"}]},
        "corpus.jsonl: line 3: another document",
    ),
    "query without text": (
        {"queries": [{"_id": "q1"}]},
        "queries.jsonl: line 1: 'text' is missing",
    ),
    "query twice": (
        {"queries": [QUERY, QUERY | {"text": "Since when?"}]},
        "queries.jsonl: question q1: another question",
    ),
}


@pytest.mark.parametrize("case", INVALID_FILES)
def test_invalid_files_are_named_and_nothing_is_written(tmp_path, case):
    files, message = INVALID_FILES[case]
    with pytest.raises(DataError, match=re.escape(message)):
        import_beir(tmp_path, **files)
    assert not (tmp_path / "out").exists()


MULTI_SPAN_QUERIES = {
    "two documents": (
        [("q2", "d1", 3, 0, 3), ("q2", "d2", 1, 0, 6)],
        [("d1", "Zoë", 3), ("d2", "Nobody", 1)],
    ),
    "two spans": (
        [("q2", "d1", 1, 8, 12), ("q2", "d1", 2, 0, 3)],
        [("d1", "Zoë", 2), ("d1", "flew", 2)],
    ),
    "spans that overlap": (
        [("q2", "d1", 1, 0, 3), ("q2", "d1", 1, 1, 6), ("q2", "d1", 1, 8, 12)],
        None,
    ),
}


@pytest.mark.parametrize("case", MULTI_SPAN_QUERIES)
def test_queries_with_several_spans_are_imported(tmp_path, case):
    rows, expected = MULTI_SPAN_QUERIES[case]
    result = import_beir(tmp_path, queries=[QUERY, SECOND], qrels=[WITH_SPAN, FIRST_ROW, *rows])
    # A document gets the highest grade of its rows. Other grades are counted.
    assert [item.name for item in result.skipped] == ["query q2, document d1"] * (
        case == "two spans"
    )
    folder = tmp_path / "out/eng-Latn/sports"
    assert pl.read_parquet(folder / "queries.parquet")["_id"].to_list() == ["q1"]
    places = pl.read_parquet(folder / "places.parquet")
    spans = zip(places["corpus-id"], places["pos_char_span"], places["score"], strict=True)
    texts = {"d1": TEXT, "d2": "Nobody asks."}
    stored = sorted((name, texts[name][start:end], grade) for name, (start, end), grade in spans)
    # Overlapping spans are merged.
    assert stored == (expected or [("d1", TEXT[:6], 1), ("d1", "flew", 1)])
    assert set(places["query-id"]) == {"q2"}
    assert not posir.validate(folder).rows
    data = read_domain(LocalRepository(tmp_path / "out"), "eng-Latn", "eng-Latn", "sports")
    assert {place.query for place in data.places.values()} == {"q2"}
    grades = {
        name: max(grade for other, _, grade in stored if other == name) for name, _, _ in stored
    }
    assert Judgments.from_positions(data).grades == {"q1": {"d1": 1}, "q2": grades}
    # Reading the imported data again yields the same spans.
    reread = collect_questions(open_data(folder).subsets[0].read_passages(), "sports", repair=False)
    assert (reread.questions, reread.places) == (result.questions, result.places)


def test_overlapping_spans_become_one(tmp_path):
    result = import_beir(
        tmp_path, queries=[SECOND], qrels=[WITH_SPAN, ("q2", "d1", 1, 0, 3), ("q2", "d1", 1, 1, 6)]
    )
    assert (read_back(tmp_path / "out"), result.places) == ([("Who?", TEXT, TEXT[:6])], {})


INVALID_SPANS = {
    "query-id": (pl.lit("q1"), "is an id in"),
    "text": (pl.Series(["Who?", "Whose?"]), "differs between the places"),
    "score": (pl.Series([1, 2]), "differs between the places"),
    "pos_char_span": (pl.Series([[0, 3], [5, 300]]), "is outside its document"),
    "corpus-id": (pl.Series(["d1", "d9"]), "is not in"),
}


@pytest.mark.parametrize("field", INVALID_SPANS)
def test_invalid_spans_are_rejected(tmp_path, field):
    import_beir(
        tmp_path,
        queries=[QUERY, SECOND],
        qrels=[WITH_SPAN, FIRST_ROW, *MULTI_SPAN_QUERIES["two spans"][0]],
    )
    values, message = INVALID_SPANS[field]
    file = tmp_path / "out/eng-Latn/sports/places.parquet"
    pl.read_parquet(file).with_columns(values.alias(field)).write_parquet(file)
    problems = posir.validate(tmp_path / "out").rows
    assert any(problem["field"] == field and message in problem["message"] for problem in problems)
    with pytest.raises(DataError, match=re.escape(f"{file}: field '{field}'")):
        read_back(tmp_path / "out")


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl"])
def test_missing_files_are_named(tmp_path, name):
    (write_beir(tmp_path / "beir") / name).unlink()
    with pytest.raises(
        DataError, match=re.escape(f"{tmp_path / 'beir' / name}: cannot be read (No such file")
    ):
        imported(read_beir(tmp_path / "beir", ReadOptions()), tmp_path / "out")


def test_scifact_evidence_is_read_from_sentence_numbers(tmp_path):
    text = "The mill stood by the river. It burned in 1901. Nobody knew why. It was built again."
    annotations = {"1": [[1, 2]], "2": [[3]], "3": [[0], [3]], "4": [[9]], "5": []}
    queries = [
        {
            "_id": name,
            "text": f"{name}?",
            "metadata": {"d": [{"sentences": row, "label": "SUPPORT"} for row in rows]},
        }
        for name, rows in annotations.items()
    ]
    qrels = [HEADER, *((name, "d", 1) for name in annotations)]
    write_beir(tmp_path, corpus=[{"_id": "d", "text": text}], queries=queries, qrels=qrels)
    questions = collect_questions(read_beir(tmp_path, ReadOptions()), "scifact", repair=False)
    assert {name: span.slice(text) for name, (*_, span) in questions.questions.items()} == {
        "1": "It burned in 1901. Nobody knew why.",
        "2": "It was built again.",
        "3": "The mill stood by the river.",
        "3#2": "It was built again.",
        "5": "",
    }
    assert questions.places == {"3": Place("3"), "3#2": Place("3")}
    details = {name: skipped.detail for name, skipped in questions.unpositioned.items()}
    assert details == {"5": Cause.NO_POSITION}
    assert [(item.name, item.detail) for item in questions.skipped] == [
        ("4", "refers to sentence 9 of its document, which has 4")
    ]


# Chroma's chunking evaluation.

TEXTS = {
    "bells": "The bell was cast in 1770. It fell in 1804. Nobody rang it.",
    "towers": "The tower burned down twice.",
}


def build_excerpt(corpus: str, content: str) -> dict[str, Any]:
    start = TEXTS[corpus].index(content)
    return {"content": content, "start_index": start, "end_index": start + len(content)}


QUESTIONS = [
    (
        "When was it cast, and when did it fall?",
        [build_excerpt("bells", "1770"), build_excerpt("bells", "1804")],
        "bells",
    ),
    ("How often did the tower burn?", [build_excerpt("towers", "twice")], "towers"),
]


def write_chunking_folder(
    folder: Path, questions: Any = QUESTIONS, name: str = "questions.csv"
) -> Path:
    (folder / "corpora").mkdir(parents=True, exist_ok=True)
    for corpus, text in TEXTS.items():
        (folder / "corpora" / f"{corpus}.md").write_text(text)
    with (folder / name).open("w", newline="") as file:
        rows = [
            (text, references if isinstance(references, str) else json.dumps(references), corpus)
            for text, references, corpus in questions
        ]
        csv.writer(file).writerows([("question", "references", "corpus_id"), *rows])
    return folder


@pytest.mark.parametrize("name", ["questions.csv", "questions_df.csv"])
def test_all_excerpts_are_read(tmp_path: Path, name: str):
    opened = open_data(write_chunking_folder(tmp_path, name=name))
    data = read_evidence_data(opened)
    assert data.documents == TEXTS
    (_, first), (_, second) = data.questions
    assert [excerpt.span.slice(TEXTS["bells"]) for excerpt in first] == ["1770", "1804"]
    assert [excerpt.span.slice(TEXTS["towers"]) for excerpt in second] == ["twice"]
    assert (data.clusters.tolist(), data.skipped) == ([0, 1], 0)
    # Position data contains only questions with a single excerpt.
    (subset,) = opened.select_questions("the test").subsets
    assert subset.read().queries["text"][:] == ["How often did the tower burn?"]
    assert subset.judgments.grades == {"q1": {"bells": 1}, "q2": {"towers": 1}}


def test_questions_without_located_excerpts_are_skipped(tmp_path: Path):
    wrong_excerpt = {"content": "1805", "start_index": 38, "end_index": 42}
    questions = [
        *QUESTIONS,
        ("When?", [wrong_excerpt], "bells"),
        ("Where?", [wrong_excerpt], "absent"),
        ("Why?", [], "bells"),
    ]
    data = read_evidence_data(open_data(write_chunking_folder(tmp_path, questions)))
    assert (len(data.questions), data.skipped) == (2, 3)


@pytest.mark.parametrize(
    ("references", "message"),
    [
        ("{", "question 1: "),
        ('[{"content": "1770"}]', "question 1: 'references[0].start_index' is missing"),
        ("3", "question 1: 'references' must be a list"),
    ],
)
def test_invalid_references_cause_one_message(tmp_path: Path, references: str, message: str):
    with pytest.raises(DataError) as error:
        read_evidence_data(
            open_data(write_chunking_folder(tmp_path, [("When?", references, "bells")]))
        )
    assert message in str(error.value)
    assert "as in Chroma's chunking evaluation" in str(error.value)
