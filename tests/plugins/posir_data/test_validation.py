"""`posir validate`: it reports exactly what the loader refuses, for all domains at once."""

import json
import re

import polars as pl
import pytest

from posir_tasks.base.errors import DataError
from posir_tasks.data.posir import read_domain
from posir_tasks.data.repository import LocalRepository
from tests.support.cli import call_posir
from tests.support.datasets import FILES, POSIR_FOLDER, posir_tables, write_domain


def validate(folder, *options):
    return call_posir(["validate", str(folder), *options], catch_exceptions=False)


def validated(folder):
    done = validate(folder, "--format", "json")
    values = json.loads(done.stdout)
    assert done.exit_code == bool(values["problems"])
    return values


def select_problems(result, **expected):
    """The problems with these values, as (file's name, field, message)."""
    return [
        (
            problem["file"].split("/", maxsplit=1)[-1].rsplit("/", 1)[-1],
            problem["field"],
            problem["message"],
        )
        for problem in result["problems"]
        if expected.items() <= problem.items()
    ]


def test_a_valid_folder_has_no_problem(posir_folder):
    done = validate(posir_folder)
    assert (done.exit_code, done.stdout) == (
        0,
        f"{posir_folder}: 1 language, 1 domain checked: no problem\n",
    )
    assert validated(posir_folder) == {
        "folder": str(posir_folder),
        "checked": [{"language": "eng-Latn", "corpus_language": "eng-Latn", "domain": "sports"}],
        "problems": [],
        "warnings": [],
    }


def test_every_problem_of_every_domain_is_named_at_once(posir_folder):
    """Unreadable, missing and incomplete files do not hide what is wrong with the others."""
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
    report = validated(posir_folder)
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


def test_rows_are_those_of_the_file(tmp_path):
    """Judgments of 0 and repeated ones count as rows."""
    tables = posir_tables()
    more = pl.DataFrame(
        {"query-id": ["q0", "q0"], "corpus-id": ["doc_3", "doc_3"], "score": [0, 0]}
    )
    wrong = tables["qrels"].with_columns(pl.col("corpus-id").str.replace("doc_2", "doc_9"))
    write_domain(tmp_path, tables | {"qrels": pl.concat([more, wrong])})
    (problem,) = validated(tmp_path)["problems"]
    assert (problem["field"], problem["rows"], problem["examples"]) == (
        "corpus-id",
        [5],
        ["'doc_9'"],
    )


def test_a_problem_against_the_english_corpus_is_named_once(
    posir_folder,
):
    german = posir_tables()
    write_domain(posir_folder, german, language="deu-Latn")
    write_domain(posir_folder, german, language="deu-Latn", domain="game")
    report = validated(posir_folder)
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
    report = validated(posir_folder)
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
    # A run keeps a document without text, and goes on with the judgments that it can use.
    doubts = [
        warning for warning in report["warnings"] if warning.startswith("eng-Latn/sports: 1 of 4 ")
    ]
    assert [("no text" in doubt, "not in the corpus" in doubt) for doubt in doubts] == [
        (True, False),
        (False, True),
        (False, False),
    ]
    assert "deu-Latn-eng-Latn/sports:\n" in validate(posir_folder).stdout
    with pytest.raises(DataError, match="no query can be evaluated"):
        read_domain(LocalRepository(posir_folder), "deu-Latn", "eng-Latn", "sports")


def test_english_lengths_beside_translations_are_a_warning(
    posir_folder,
):
    german = posir_tables()
    german["corpus"] = german["corpus"].with_columns(
        pl.concat_str(pl.col("text"), pl.lit(" und noch etwas"))
    )
    write_domain(posir_folder, german, language="deu-Latn")
    report = validated(posir_folder)
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
        validated(posir_folder), language="deu-Latn", corpus_language="deu-Latn"
    )
    assert (field, message.startswith("is not the length in characters")) == (
        "pos_char_length",
        True,
    )


def test_languages_and_domains_unknown_to_posir_are_warnings(tmp_path):
    root = tmp_path / POSIR_FOLDER
    write_domain(root, posir_tables(), language="eng-latn", domain="sprots")
    report = validated(root)
    language, domain = report["warnings"]
    assert re.match(
        "language eng-latn: .* 'latn'; did you mean eng-Latn\\?.* No task reads the folder",
        language,
    )
    assert domain.startswith("domain sprots: not one of PosIR's 31. Did you mean sports?")
    done = validate(root)
    assert done.exit_code == 0
    assert done.stdout.count("warning: ") == 2


@pytest.mark.parametrize("name", FILES.values())
def test_one_file_of_a_domain_is_enough_to_miss_the_others(tmp_path, name):
    folder = write_domain(tmp_path, posir_tables())
    for other in set(FILES.values()) - {name}:
        (folder / other).unlink()
    missing = {problem["file"] for problem in validated(tmp_path)["problems"]}
    assert missing == {str(folder / other) for other in set(FILES.values()) - {name}}
