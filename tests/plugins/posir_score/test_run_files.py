"""Runs in every format, and what is said of rows that are none."""

import gzip
import json
import re
import string
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_score.run_files import Rankings, read_run, read_run_file
from posir_tasks.errors import DataError, PosirError

IDS = st.text(string.ascii_letters + string.digits + "#:/._-", min_size=1, max_size=8)
SCORES = st.floats(-1e6, 1e6, width=32)
RANKINGS = st.dictionaries(IDS, st.dictionaries(IDS, SCORES, min_size=1, max_size=4), min_size=1, max_size=4)

EXAMPLE: Rankings = {"q1": {"d1": 0.5, "d2": 0.25}, "q2": {"d9": 1.5}}


def to_rows(rankings: Rankings) -> list[tuple[str, str, float]]:
    return [(query, document, score) for query, scores in rankings.items() for document, score in scores.items()]


def write(file: Path, rankings: Rankings) -> Path:
    rows = to_rows(rankings)
    match file.suffix:
        case ".trec":
            file.write_text("".join(f"{query} Q0 {document} 1 {score!r} tag\n" for query, document, score in rows))
        case ".gz":
            lines = "".join(f"{query}\tQ0\t{document}\t1\t{score!r}\ttag\n" for query, document, score in rows)
            file.write_bytes(gzip.compress(lines.encode()))
        case ".json":
            file.write_text(json.dumps(rankings))
        case ".jsonl":
            file.write_text("".join(json.dumps({"qid": a, "docid": b, "score": c}) + "\n" for a, b, c in rows))
        case ".csv":
            file.write_text("query_id,doc_id,score\n" + "".join(f"{a},{b},{c!r}\n" for a, b, c in rows))
        case ".parquet":
            pl.DataFrame(rows, ["q_id", "doc_id", "score"], orient="row").write_parquet(file)
    return file


@pytest.mark.parametrize("name", ["a.trec", "a.trec.gz", "a.json", "a.jsonl", "a.csv", "a.parquet"])
def test_every_format_is_read(name: str, tmp_path: Path):
    run = read_run_file(write(tmp_path / name, EXAMPLE))
    assert (run.name, run.rankings, run.duplicates) == ("a", EXAMPLE, 0)


@given(rankings=RANKINGS, suffix=st.sampled_from([".trec", ".json", ".jsonl", ".csv", ".parquet"]))
def test_what_is_written_is_read(rankings: Rankings, suffix: str, tmp_path_factory: pytest.TempPathFactory):
    assert read_run_file(write(tmp_path_factory.getbasetemp() / f"run{suffix}", rankings)).rankings == rankings


def test_a_list_of_documents_is_a_ranking(tmp_path: Path):
    (tmp_path / "a.json").write_text('{"q": ["d3", "d1"], "r": []}')
    assert read_run_file(tmp_path / "a.json").rankings == {"q": {"d1": 1, "d3": 2}, "r": {}}


def test_predictions_of_mteb_name_subset_and_model(tmp_path: Path):
    predictions = {"mteb_model_meta": {"model_name": "a/b", "revision": "1"}, "part": {"test": EXAMPLE}}
    for task in ("Mine", "Other"):
        (tmp_path / f"{task}_predictions.json").write_text(json.dumps(predictions))
    run = read_run(tmp_path, "Mine")
    assert (run.name, run.by_subset, run.rankings) == ("b", {"part": EXAMPLE}, {})
    with pytest.raises(PosirError, match="has predictions for Mine, Other and none for Third"):
        read_run(tmp_path, "Third")


def test_the_files_of_a_folder_are_parts_of_one_run(tmp_path: Path):
    folder = tmp_path / "system"
    folder.mkdir()
    write(folder / "a.trec", {"q1": {"d1": 1.0}})
    write(folder / "b.json", {"q1": {"d1": 3.0, "d2": 2.0}, "q2": {"d1": 1.0}})
    run = read_run(folder, "any")
    assert (run.name, run.rankings, run.duplicates) == ("system", {"q1": {"d1": 3.0, "d2": 2.0}, "q2": {"d1": 1.0}}, 1)


def test_rows_that_repeat_a_document_are_counted_and_the_highest_score_counts(tmp_path: Path):
    (tmp_path / "a.trec").write_text("q Q0 d 1 2.0 t\nq Q0 d 2 5.0 t\nq Q0 d 3 1.0 t\n")
    run = read_run_file(tmp_path / "a.trec")
    assert (run.rankings, run.duplicates) == ({"q": {"d": 5.0}}, 2)


@pytest.mark.parametrize(("scores", "misranked"), [([3, 2, 2, 1], 0), ([1, 2, 3, 4], 1), ([1, 1, 1, 1], 0)])
def test_ranks_that_contradict_the_scores_are_counted_and_ties_do_not(scores: list[int], misranked: int, tmp_path: Path):
    lines = [f"q Q0 d{rank} {rank} {score} t" for rank, score in enumerate(scores, start=1)]
    (tmp_path / "a.trec").write_text("\n".join(lines))
    assert read_run_file(tmp_path / "a.trec").misranked == misranked


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.trec",
            "q Q0 d 1 2.0 t\nq Q0 e 2 nan t\nq Q0 f 3 inf t",
            "field 'score' must be finite: 2 rows, first line 2 ('nan')",
        ),
        ("a.trec", "q Q0 d 1 high t", "field 'score' must be a number: 1 row, first line 1 ('high')"),
        ("a.trec", "q Q0 d 1 2.0", "line 1: has 5 columns; a TREC run has 6"),
        (
            "a.csv",
            "query_id,doc_id,score\nq,,1\n",
            "field 'document id' must be a text that is not empty, or an integer: 1 row",
        ),
        ("a.csv", "query_id,text,score\nq,d,1\n", "no column of the document; the file has query_id, text, score"),
        ("a.jsonl", '{"qid": true, "docid": "d", "score": 1}', "field 'query id' must be a text"),
        ("a.jsonl", "{", "cannot be read"),
        ("a.json", '{"q": {"d": NaN}}', "field 'score' must be finite: 1 row, first query q ('nan')"),
        ("a.json", '{"q": 1}', "query 'q': must have an object of documents and scores, or a list"),
        ("a.json", "{}", "has no rankings"),
        ("a.trec", "", "has no ranked document"),
        ("a.lz4", "", "Save it with `run.save('a.parquet')`"),
        ("a.parquet", "no", "cannot be read as Parquet"),
    ],
)
def test_what_is_no_run_is_refused_with_file_row_and_field(name: str, content: str, message: str, tmp_path: Path):
    (tmp_path / name).write_text(content)
    with pytest.raises(PosirError, match=f"^{re.escape(str(tmp_path / name))}: .*{re.escape(message)}"):
        read_run_file(tmp_path / name)


@given(
    content=st.binary(max_size=60), suffix=st.sampled_from([".trec", ".json", ".jsonl", ".csv", ".tsv", ".parquet", ".trec.gz"])
)
def test_any_bytes_are_a_run_or_refused(content: bytes, suffix: str, tmp_path_factory: pytest.TempPathFactory):
    file = tmp_path_factory.getbasetemp() / f"bytes{suffix}"
    file.write_bytes(content)
    with suppress(DataError):
        assert read_run_file(file).rankings
