"""Tests for `posir validate`: it reports exactly the data that the loader rejects."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

import posir
from posir_tasks.base.errors import DataError
from posir_tasks.data.formats.passages import Cause
from posir_tasks.data.posir import read_domain
from posir_tasks.data.repository import LocalRepository
from tests.support.cli import call_posir
from tests.support.datasets import (
    FILES,
    POSIR_FOLDER,
    posir_tables,
    write_beir_folder,
    write_domain,
)


def validate(folder, *options):
    return call_posir(["validate", str(folder), *options], catch_exceptions=False)


def validate_as_json(folder):
    result = validate(folder, "--format", "json")
    values = json.loads(result.stdout)
    assert result.exit_code == bool(values["problems"])
    return values


def select_problems(result, **expected):
    """List file name, field and message of the problems with the given values."""
    return [
        (
            problem["file"].split("/", maxsplit=1)[-1].rsplit("/", 1)[-1],
            problem["field"],
            problem["message"],
        )
        for problem in result["problems"]
        if expected.items() <= problem.items()
    ]


def test_valid_folders_have_no_problems(posir_folder):
    result = validate(posir_folder)
    assert (result.exit_code, result.stdout) == (
        0,
        f"{posir_folder}: 1 language, 1 domain checked: no problem\n",
    )
    document = validate_as_json(posir_folder)
    assert {row["count"] for row in document.pop("audit")} == {0}
    assert document == {
        "folder": str(posir_folder),
        "checked": [{"language": "eng-Latn", "corpus_language": "eng-Latn", "domain": "sports"}],
        "problems": [],
        "warnings": [],
    }


def test_all_problems_of_all_domains_are_reported(posir_folder):
    """Unreadable, missing and incomplete files do not hide problems of other files."""
    tables = posir_tables()
    write_domain(posir_folder, tables, domain="game")
    (posir_folder / "eng-Latn/game/corpus.parquet").write_bytes(b"PAR1")
    (posir_folder / "eng-Latn/game/qrels/test.parquet").unlink()
    spans = pl.Series([[3, 3], [0, 3], [9, 2], [14, 33]])
    tables["queries"].with_columns(pos_char_span=spans).drop("text").write_parquet(
        posir_folder / "eng-Latn/game/queries.parquet"
    )
    tables["corpus"].with_columns(pl.lit("same").alias("_id")).write_parquet(
        posir_folder / "eng-Latn/sports/corpus.parquet"
    )
    report = validate_as_json(posir_folder)
    problems = select_problems(report, domain="game")
    assert [
        (file, field, re.split("; | \\(|\\. ", message)[0]) for file, field, message in problems
    ] == [
        ("corpus.parquet", None, "not a readable parquet file"),
        ("queries.parquet", "text", "missing column"),
        ("test.parquet", None, "missing"),
        ("queries.parquet", "pos_char_span", "is empty"),
        ("queries.parquet", "pos_char_span", "is reversed"),
    ]
    assert select_problems(report, domain="sports") == [
        ("corpus.parquet", "_id", "is a duplicate; ids must be unique"),
        (
            "test.parquet",
            "corpus-id",
            f"is not in {posir_folder / 'eng-Latn/sports/corpus.parquet'}",
        ),
    ]
    duplicates = next(problem for problem in report["problems"] if problem["field"] == "_id")
    assert (duplicates["count"], duplicates["rows"], duplicates["examples"]) == (
        4,
        [0, 1, 2, 3],
        ["'same'"] * 4,
    )
    text = validate(posir_folder)
    assert text.exit_code == 1
    assert text.stdout.startswith("eng-Latn/game:\n  ")
    assert (
        text.stdout.splitlines()[-1] == f"{posir_folder}: 1 language, 2 domains checked: 7 problems"
    )
    assert (
        "field 'pos_char_span': is reversed; end must be after start; 1 row, first: 2 ([9, 2])"
        in text.stdout
    )


def test_reported_rows_are_row_numbers_of_the_file(tmp_path):
    """Rows with grade 0 and repeated rows are also counted."""
    tables = posir_tables()
    repeated = pl.DataFrame(
        {"query-id": ["q0", "q0"], "corpus-id": ["doc_3", "doc_3"], "score": [0, 0]}
    )
    wrong = tables["qrels"].with_columns(pl.col("corpus-id").str.replace("doc_2", "doc_9"))
    write_domain(tmp_path, tables | {"qrels": pl.concat([repeated, wrong])})
    (problem,) = validate_as_json(tmp_path)["problems"]
    assert (problem["field"], problem["rows"], problem["examples"]) == (
        "corpus-id",
        [5],
        ["'doc_9'"],
    )


def test_problems_with_the_english_corpus_are_reported_once(
    posir_folder,
):
    german = posir_tables()
    write_domain(posir_folder, german, language="deu-Latn")
    write_domain(posir_folder, german, language="deu-Latn", domain="game")
    report = validate_as_json(posir_folder)
    checked = [" ".join(subset.values()).replace("-Latn", "") for subset in report["checked"]]
    assert checked == ["deu deu game", "deu deu sports", "eng eng sports", "deu eng sports"]
    assert not report["problems"]
    english = posir_folder / "eng-Latn/sports/corpus.parquet"
    blank = pl.col("text").str.replace("^Nothing.*$", "")
    posir_tables()["corpus"].with_columns(
        blank, pl.col("_id").str.replace("doc_2", "doc_7")
    ).write_parquet(english)
    german["queries"].with_columns(pos_token_length=0).write_parquet(
        posir_folder / "deu-Latn/sports/queries.parquet"
    )
    report = validate_as_json(posir_folder)
    assert select_problems(report, language="deu-Latn", corpus_language="deu-Latn") == [
        ("queries.parquet", "pos_token_length", "must be at least 1 and at most 2,147,483,647")
    ]
    ((file, field, message),) = select_problems(
        report, language="deu-Latn", corpus_language="eng-Latn"
    )
    assert (file, field, message.split(". A cross")[0]) == (
        "test.parquet",
        "corpus-id",
        f"is not in {english}",
    )
    assert [field for _, field, _ in select_problems(report, language="eng-Latn")] == ["corpus-id"]
    # A run keeps documents without text, and uses only the valid judgments.
    domain_warnings = [
        warning for warning in report["warnings"] if warning.startswith("eng-Latn/sports: 1 of 4 ")
    ]
    assert [
        ("no text" in warning, "not in the corpus" in warning) for warning in domain_warnings
    ] == [
        (True, False),
        (False, True),
        (False, False),
    ]
    assert "deu-Latn-eng-Latn/sports:\n" in validate(posir_folder).stdout
    with pytest.raises(DataError, match="no query can be evaluated"):
        read_domain(LocalRepository(posir_folder), "deu-Latn", "eng-Latn", "sports")


def test_english_lengths_for_translations_are_a_warning(
    posir_folder,
):
    german = posir_tables()
    german["corpus"] = german["corpus"].with_columns(
        pl.concat_str(pl.col("text"), pl.lit(" und noch etwas"))
    )
    write_domain(posir_folder, german, language="deu-Latn")
    report = validate_as_json(posir_folder)
    assert not select_problems(report, language="deu-Latn", corpus_language="deu-Latn")
    (warning,) = [warning for warning in report["warnings"] if "pos_char_length" in warning]
    assert warning.startswith(
        "deu-Latn/sports: 4 of 4 queries have the pos_char_length of the English document"
    )
    wrong = german["queries"].with_columns(
        pos_char_length=pl.Series([*german["queries"]["pos_char_length"][:3], 1000])
    )
    wrong.write_parquet(posir_folder / "deu-Latn/sports/queries.parquet")
    ((_, field, message),) = select_problems(
        validate_as_json(posir_folder), language="deu-Latn", corpus_language="deu-Latn"
    )
    assert (field, message.startswith("is not the length in characters")) == (
        "pos_char_length",
        True,
    )


def test_unknown_languages_and_domains_are_warnings(tmp_path):
    root = tmp_path / POSIR_FOLDER
    write_domain(root, posir_tables(), language="eng-latn", domain="sprots")
    report = validate_as_json(root)
    language, domain = report["warnings"]
    assert re.match(
        "language eng-latn: .* 'latn'; did you mean eng-Latn\\?.* No task reads the folder",
        language,
    )
    assert domain.startswith("domain sprots: not one of PosIR's 31. Did you mean sports?")
    result = validate(root)
    assert result.exit_code == 0
    assert result.stdout.count("warning: ") == 2


@pytest.mark.parametrize("name", FILES.values())
def test_missing_files_of_a_domain_are_reported(tmp_path, name):
    folder = write_domain(tmp_path, posir_tables())
    for other in set(FILES.values()) - {name}:
        (folder / other).unlink()
    missing = {problem["file"] for problem in validate_as_json(tmp_path)["problems"]}
    assert missing == {str(folder / other) for other in set(FILES.values()) - {name}}


def test_any_data_is_audited_and_findings_fail_with_strict(tmp_path):
    corpus = [
        {"_id": "d1", "text": "The mill burned down."},
        {"_id": "d2", "text": "The mill  burned down."},
        {"_id": "d3", "text": "Who lit it?"},
    ]
    texts = {"q1": "When?", "q2": "when", "q3": "When?", "q4": "Who lit it?"}
    queries = [{"_id": name, "text": text} for name, text in texts.items()]
    rows = [
        ("q1", "d1", 1),
        ("q1", "d3", -1),
        ("q2", "gone", 0.5),
        ("q3", "d2", 0),
        ("q4", "d3", 2),
    ]
    folder = write_beir_folder(tmp_path / "beir", corpus, queries, rows)
    audited = posir.validate(folder)
    assert audited.exit_status == 0
    found = {row["finding"]: (row["count"], row["first"]) for row in audited.rows if row["count"]}
    assert found == {
        "Relevant documents missing from the corpus": (1, "gone of query q2"),
        "Queries whose relevant documents are all missing": (1, "q2"),
        "Queries without a relevant document": (1, "q3"),
        "Fractional grades": (1, "gone of query q2"),
        "Grades below 0": (1, "d3 of query q1"),
        "Queries with the text of an earlier query": (1, "q3"),
        "Queries whose text is a document": (1, "q4"),
        "Relevant documents with the text of another document": (1, "d1"),
        f"Question left out: {Cause.NO_DOCUMENT}": (1, "q2"),
        f"Question left out: {Cause.NOT_RELEVANT}": (1, "q3"),
    }
    assert json.loads(validate(folder, "--format", "json").stdout)["audit"] == [*audited.rows]
    assert posir.validate(folder, strict=True).exit_status == 1
    clean = write_beir_folder(tmp_path / "clean", corpus[1:], queries[:1], [("q1", "d3", 1)])
    assert posir.validate(clean, strict=True).exit_status == 0


def count_findings(data: Path) -> dict[str, int]:
    """Return the audit's counts by finding."""
    return {row["finding"]: row["count"] for row in posir.validate(data).rows if row["count"]}


def write_faulty_folder(folder: Path, seed: int) -> tuple[Path, dict[str, int]]:
    """Write a BEIR folder with all kinds of faults, and count the faults with pandas."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 25, (90, 2))
    texts = pd.Series([f"The {one}  bell, {other}." for one, other in words])
    corpus = pd.DataFrame({"_id": [f"d{n}" for n in range(60)], "text": texts[:60]})
    questions = [*texts[:30], *rng.choice([f"What rings {n}?" for n in range(60)], 90)]
    queries = pd.DataFrame({"_id": [f"q{n}" for n in range(120)], "text": questions})
    pairs = pd.DataFrame(
        {
            "query": [f"q{n}" for n in rng.integers(0, 130, 300)],
            "document": [f"d{n}" for n in rng.integers(0, 75, 300)],
            "grade": rng.choice([-1, 0, 0.5, 1, 2], 300),
        }
    )
    # Repeat pairs with the same grade and with another grade.
    pairs = pd.concat([pairs, pairs[:5], pairs[5:9].assign(grade=2)])
    write_beir_folder(
        folder,
        corpus.to_dict("records"),
        queries.to_dict("records"),
        list(pairs.itertuples(index=False, name=None)),
    )
    grades = pairs.groupby(["query", "document"])["grade"].agg(["max", "nunique"]).reset_index()
    relevant = grades[grades["max"] > 0]
    missing = relevant[~relevant["document"].isin(corpus["_id"])]
    found = relevant["document"].isin(corpus["_id"]).groupby(relevant["query"]).any()
    judged = queries[queries["_id"].isin(grades["query"])]
    folded = corpus["text"].str.split().str.join(" ")
    copied = corpus[folded.duplicated(keep=False)]["_id"]
    by_query = grades.groupby("query")["max"].max()
    expected = {
        "Relevant documents missing from the corpus": len(missing),
        "Queries whose relevant documents are all missing": int((~found).sum()),
        "Pairs with different grades": int((grades["nunique"] > 1).sum()),
        "Queries without a relevant document": int((by_query <= 0).sum()),
        "Fractional grades": int((grades["max"] % 1 != 0).sum()),
        "Grades below 0": int((grades["max"] < 0).sum()),
        "Queries whose text is a document": int(
            judged["text"].str.split().str.join(" ").isin(folded).sum()
        ),
        "Relevant documents with the text of another document": int(
            copied.isin(relevant["document"]).sum()
        ),
    }
    expected["Queries with the text of an earlier query"] = int(
        judged["text"].str.split().str.join(" ").duplicated().sum()
    )
    has_text = relevant["query"].isin(queries["_id"])
    no_text = relevant[~has_text]["query"].nunique()
    not_relevant = (~queries["_id"].isin(relevant["query"])).sum()
    lost = {
        Cause.NOT_RELEVANT: int(not_relevant),
        Cause.NO_TEXT: no_text,
        Cause.NO_DOCUMENT: missing[missing["query"].isin(queries["_id"])]["query"].nunique(),
    }
    return folder, expected | {f"Question left out: {cause}": n for cause, n in lost.items()}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_audit_counts_equal_pandas(tmp_path, seed):
    folder, expected = write_faulty_folder(tmp_path / "beir", seed)
    found = count_findings(folder)
    assert {name: found.get(name, 0) for name in expected} == expected
    assert min(expected.values()) > 0
    run = {f"q{number}": {"d0": 1.0} for number in range(120)}
    shown = posir.score(run, data=folder, missing="zero", output=tmp_path / "results")
    text = " ".join(str(shown).split())
    for name in ("Grades below 0", "Pairs with different grades"):
        assert re.search(rf"\b{expected[name]} of the (grades|query-document pairs)", text)


def test_moved_and_unverified_spans_are_counted(tmp_path):
    text = "The bell was cast in copper. It rings at noon."
    rows = [
        {"id": "1", "context": text, "question": "Of what?", "answer": "copper", "start": 21},
        {"id": "2", "context": text, "question": "When?", "answer": "noon", "start": 42},
        {"id": "3", "context": text, "question": "What was cast?", "start": 4, "end": 8},
        {"id": "4", "context": text, "question": "Who?", "answer": "nobody", "start": 4},
        {"id": "5", "context": text, "question": "Why?", "answers": []},
    ]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = count_findings(file)
    assert found == {
        "Misplaced answers that were moved to their only match": 1,
        "Spans that no answer text verifies": 1,
        f"Question left out: {Cause.ELSEWHERE}": 1,
        f"Question left out: {Cause.UNANSWERABLE}": 1,
    }


@pytest.mark.parametrize(
    "name",
    [
        "xquad.zh.json",
        pytest.param("covidqa.json", marks=pytest.mark.slow),
        pytest.param("jaquad/dev", marks=pytest.mark.slow),
    ],
)
def test_audit_counts_of_real_data_equal_pandas(squad_data, name):
    path = squad_data / name
    rows = [
        (question["question"], paragraph["context"], answer["text"], answer["answer_start"])
        for file in ([path] if path.is_file() else sorted(path.glob("*.json")))
        for article in json.loads(file.read_text())["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
        for answer in question["answers"][:1]
    ]
    questions = pd.DataFrame(rows, columns=["question", "context", "answer", "start"])
    is_there = [
        row.context[row.start : row.start + len(row.answer)] == row.answer
        for row in questions.itertuples()
    ]
    expected = {
        "Queries with the text of an earlier query": int(
            questions["question"].str.split().str.join(" ").duplicated().sum()
        ),
        "Misplaced answers that were moved to their only match": is_there.count(False),
    }
    assert count_findings(path) == {label: count for label, count in expected.items() if count}
