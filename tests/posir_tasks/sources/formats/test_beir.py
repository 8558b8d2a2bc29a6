"""BEIR folders with spans: ids are kept, spans are read from every documented field, and ambiguous ones are skipped."""

import json
import re

import polars as pl
import pytest

from posir_tasks.errors import DataError
from posir_tasks.sources.formats.folders import read_beir
from posir_tasks.sources.formats.passages import ReadOptions
from posir_tasks.sources.questions import collect_questions
from tests.support.datasets import imported, read_back

TEXT = "Zoë 👩‍🚀 flew in 1999."
START = TEXT.index("1999")
CORPUS = [{"_id": "d1", "title": "", "text": TEXT}, {"_id": "d2", "text": "Nobody asks."}]
QUERY = {"_id": "q1", "text": "When?"}
HEADER = ("query-id", "corpus-id", "score")
WITH_SPAN = (*HEADER, "start", "end")


def write_beir(folder, *, corpus=CORPUS, queries=(QUERY,), qrels=(WITH_SPAN, ("q1", "d1", 1, START, START + 4)), split="test"):
    """Write a folder as BEIR lays it out; the qrels as rows, the header among them."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, records in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "qrels" / f"{split}.tsv").write_text("".join("\t".join(map(str, row)) + "\n" for row in qrels))
    return folder


def import_beir(tmp_path, split="test", **files):
    folder = write_beir(tmp_path / "beir", split=split, **files)
    return imported(read_beir(folder, ReadOptions(split=split)), tmp_path / "out")


STATED = {
    "columns of the qrels": {},
    "columns in another order": {"qrels": [WITH_SPAN[::-1], (START + 4, START, 1, "d1", "q1")]},
    "field of the query": {"queries": [QUERY | {"pos_char_span": [START, START + 4]}], "qrels": [HEADER, ("q1", "d1", 1)]},
    "metadata of the query": {
        "queries": [QUERY | {"metadata": {"pos_char_span": [START, START + 4], "answer": "1999"}}],
        "qrels": [HEADER, ("q1", "d1", 1)],
    },
    "the answer alone": {"queries": [QUERY | {"answer": "1999"}], "qrels": [HEADER, ("q1", "d1", 1)]},
    "twice alike": {"queries": [QUERY | {"pos_char_span": [START, START + 4]}]},
    "several rows alike": {"qrels": [WITH_SPAN, *[("q1", "d1", 1, START, START + 4)] * 2, ("q1", "d2", 0, "", "")]},
    "empty metadata": {"queries": [QUERY | {"metadata": {}}]},
}


@pytest.mark.parametrize("case", STATED)
def test_a_span_is_read_from_every_documented_field(tmp_path, case):
    imported = import_beir(tmp_path, **STATED[case])
    assert imported.skipped == []
    assert read_back(tmp_path / "out") == [("When?", TEXT, "1999")]
    folder = tmp_path / "out/eng-Latn/sports"
    assert pl.read_parquet(folder / "corpus.parquet").rows() == [("d1", TEXT), ("d2", "Nobody asks.")]
    assert pl.read_parquet(folder / "qrels/test.parquet").rows() == [("q1", "d1", 1)]


def test_a_title_is_that_of_the_article_and_no_part_of_the_text(tmp_path):
    imported = import_beir(tmp_path, corpus=[{"_id": "d1", "title": "Zoë", "text": TEXT}])
    assert imported.titles == {"d1": "Zoë"}
    folder = tmp_path / "out/eng-Latn/sports"
    assert pl.read_parquet(folder / "corpus.parquet").rows() == [("d1", TEXT)]
    assert pl.read_parquet(folder / "queries.parquet")["pos_title"].to_list() == ["Zoë"]
    assert read_back(tmp_path / "out") == [("When?", TEXT, "1999")]


def test_another_split_can_be_read(tmp_path):
    write_beir(tmp_path / "beir", qrels=[HEADER])
    import_beir(tmp_path, split="dev")
    assert len(read_back(tmp_path / "out")) == 1
    with pytest.raises(DataError, match=r"train\.tsv: missing\. Available splits: dev, test; choose one with --split"):
        imported(read_beir(tmp_path / "beir", ReadOptions(split="train")), tmp_path / "none")


SECOND = {"_id": "q2", "text": "Who?"}
UNUSABLE = {
    "no relevant document": ([SECOND], [], "has no relevant document in"),
    "judged not relevant": ([SECOND], [("q2", "d1", 0, 0, 3)], "has no relevant document in"),
    "two relevant documents": ([SECOND], [("q2", "d1", 1, 0, 3), ("q2", "d2", 1, 0, 3)], "has 2 relevant documents in"),
    "two spans": ([SECOND], [("q2", "d1", 1, 0, 3), ("q2", "d1", 1, 4, 6)], "several answers or spans"),
    "spans that differ": ([SECOND | {"pos_char_span": [0, 2]}], [("q2", "d1", 1, 0, 3)], "several answers or spans"),
    "document unknown": ([SECOND], [("q2", "d9", 1, 0, 3)], "its relevant document 'd9' is not in corpus.jsonl"),
    "text unknown": ([], [("q2", "d1", 1, 0, 3)], "its text is not in queries.jsonl"),
    "no span": ([SECOND], [("q2", "d1", 1, "", "")], "neither the text of its answer nor both start and end"),
    "start alone": ([SECOND], [("q2", "d1", 1, 3, "")], "neither its end nor its text"),
    "span of one": ([SECOND | {"pos_char_span": [3]}], [("q2", "d1", 1, "", "")], "'pos_char_span' is not valid"),
    "span of texts": ([SECOND | {"pos_char_span": ["3", "4"]}], [("q2", "d1", 1, "", "")], "'pos_char_span[0]' must be"),
    "span beyond": ([SECOND], [("q2", "d1", 1, 3, 99)], "its span 3 to 99 is not within its document"),
    "answer elsewhere": ([SECOND | {"answer": "flew"}], [("q2", "d1", 1, 0, 4)], "'flew' is not at character 0"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_an_unusable_query_is_skipped_and_named(tmp_path, case):
    queries, rows, reason = UNUSABLE[case]
    imported = import_beir(tmp_path, queries=[QUERY, *queries], qrels=[WITH_SPAN, ("q1", "d1", 1, START, START + 4), *rows])
    (skipped,) = imported.skipped
    assert skipped.name == "q2"
    assert reason in skipped.detail
    assert read_back(tmp_path / "out") == [("When?", TEXT, "1999")]


REFUSED = {
    "no header": ({"qrels": [("q1", "d1", 1, START, START + 4)]}, "test.tsv: missing column(s) query-id, corpus-id, score"),
    "no qrels": ({"qrels": []}, "test.tsv: not a readable file of tab-separated values"),
    "too many fields": ({"qrels": [HEADER, ("q1", "d1", 1, 2)]}, "test.tsv: not a readable file"),
    "score is a text": ({"qrels": [HEADER, ("q1", "d1", "yes")]}, "test.tsv: field 'score': must be a number; 1 row, first: 0"),
    "score is NaN": ({"qrels": [HEADER, ("q1", "d1", "NaN")]}, "test.tsv: field 'score': must be a number"),
    "no score": ({"qrels": [HEADER, ("q1", "d1", "")]}, "test.tsv: field 'score': is missing"),
    "start is no integer": ({"qrels": [WITH_SPAN, ("q1", "d1", 1, 1.5, 4)]}, "test.tsv: field 'start': must be an integer"),
    "start is huge": ({"qrels": [WITH_SPAN, ("q1", "d1", 1, 2**70, 4)]}, "test.tsv: field 'start': must be an integer"),
    "document without id": ({"corpus": [{"text": "a"}]}, "corpus.jsonl: line 1: '_id' is missing"),
    "document twice": ({"corpus": [*CORPUS, {"_id": "d1", "text": "b"}]}, "corpus.jsonl: line 3: another document"),
    "query without text": ({"queries": [{"_id": "q1"}]}, "queries.jsonl: line 1: 'text' is missing"),
    "query twice": ({"queries": [QUERY, QUERY | {"text": "Since when?"}]}, "queries.jsonl: question q1: another question"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_invalid_file_is_named_and_nothing_written(tmp_path, case):
    files, message = REFUSED[case]
    with pytest.raises(DataError, match=re.escape(message)):
        import_beir(tmp_path, **files)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl"])
def test_a_missing_file_is_named(tmp_path, name):
    (write_beir(tmp_path / "beir") / name).unlink()
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'beir' / name}: cannot be read (No such file")):
        imported(read_beir(tmp_path / "beir", ReadOptions()), tmp_path / "out")


def test_evidence_of_scifact_is_read_by_the_numbers_of_its_sentences(tmp_path):
    text = "The mill stood by the river. It burned in 1901. Nobody knew why. It was built again."
    queries = [
        {"_id": "1", "text": "Did the mill burn?", "metadata": {"d": [{"sentences": [1, 2], "label": "SUPPORT"}]}},
        {"_id": "2", "text": "Was it rebuilt?", "metadata": {"d": [{"sentences": [3], "label": "SUPPORT"}]}},
        {"_id": "3", "text": "Is it told at both ends?", "metadata": {"d": [{"sentences": [0]}, {"sentences": [3]}]}},
        {"_id": "4", "text": "Is there a ninth sentence?", "metadata": {"d": [{"sentences": [9]}]}},
        {"_id": "5", "text": "Is it stated?", "metadata": {}},
    ]
    qrels = [HEADER, *((query["_id"], "d", 1) for query in queries)]
    write_beir(tmp_path, corpus=[{"_id": "d", "text": text}], queries=queries, qrels=qrels)
    questions = collect_questions(read_beir(tmp_path, ReadOptions()), "scifact", repair=False)
    assert {name: span.of(text) for name, (*_, span) in questions.questions.items()} == {
        "1": "It burned in 1901. Nobody knew why.",
        "2": "It was built again.",
        "3": "The mill stood by the river.",
        "3#2": "It was built again.",
        "5": "",
    }
    assert {name: skipped.detail for name, skipped in questions.unsuited.items()} == {
        "3": "states several answers or spans, which differ",
        "3#2": "states several answers or spans, which differ",
        "5": "states neither the text of its answer nor both start and end",
    }
    assert [(skip.name, skip.detail) for skip in questions.skipped] == [("4", "names sentence 9 of its document, which has 4")]
