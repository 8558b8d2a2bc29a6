"""Tests for `posir compare`: formats, notes and errors."""

import csv
import io
import json

import pytest

from posir_compare.comparison import compare_pairs, to_record
from posir_compare.pairing import build_pairs
from posir_compare.runs import find_by_name
from posir_significance.messages.verdicts import format_difference
from posir_tasks.base.errors import PosirError
from posir_tasks.display.export import to_json
from tests.support.cli import call_posir
from tests.support.comparison import read_model_runs, write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    output = tmp_path_factory.mktemp("output")
    for model, seed in (("org/a", 1), ("org/b", 5), ("other/b", 9)):
        write_run(output / "results", model, seed, hit_rates=(0.5, 0.5, 0.5 - seed / 30))
    return output


def invoke(*arguments):
    return call_posir(["compare", *map(str, arguments)])


def test_all_formats_contain_the_same_comparison(folder):
    options = ("--results", folder / "results", "a", "org/b")
    all_runs = read_model_runs([folder / "results"])
    runs = [run for name in ("a", "org/b") for run in find_by_name(all_runs, name)]
    rows = compare_pairs(build_pairs(runs, runs[0])).rows
    comparisons = json.loads(invoke(*options, "--format", "json").stdout)["comparisons"]
    assert comparisons == json.loads(to_json([to_record(row) for row in rows]))
    table = list(csv.DictReader(io.StringIO(invoke(*options, "--format", "csv").stdout)))
    assert [float(line["difference"]) for line in table] == [row.estimate.value for row in rows]
    assert {line["method"] for line in table} == {"paired by query"}
    latex = invoke(*options, "--latex").stdout
    assert latex == invoke(*options, "--format", "latex").stdout
    markdown = invoke(*options, "--full", "--format", "markdown").stdout
    assert format_difference(rows[0]) in markdown
    lines = [
        line.strip("| ").split(" | ")
        for line in markdown[markdown.index("| Task") :].splitlines()
        if line.count("|") > 1
    ]
    assert len({len(line) for line in lines}) == 1
    first = dict(zip(lines[0], lines[2], strict=True))
    assert (first["Baseline"], first["Model"], first["Method"]) == (
        "org/a",
        "org/b",
        "paired by query",
    )
    assert first["Difference"].split()[0] == f"{rows[0].estimate.value * 100:+.1f}"
    printed = invoke(*options)
    assert printed.exit_code == 0
    assert "Change from org/a · PosIR-English, " in printed.stdout
    assert max(len(line) for line in printed.stdout.splitlines() if ". " not in line) <= 120
    assert "Effect within the window (best: 0)" in printed.stdout
    assert "note: the baseline" not in printed.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Nothing to compare. Use"),
        (["nowhere"], "nowhere: no such folder"),
        (["--results", "nowhere"], "nowhere: no such folder"),
        (
            ["--results", "RESULTS", "c"],
            "no results of a model 'c'. Use one of these names: org/a, org/b, other/b",
        ),
        (["--results", "RESULTS", "b", "a"], "org/b and other/b"),
        (["--results", "RESULTS", "a"], "needs two models; found: org/a"),
        (["RESULTS", "--baseline", "c"], "no results of a model 'c'"),
        (
            ["RESULTS", "--lengths", "Q5"],
            "--lengths Q5: no queries of this length. Choose from all, Q1, Q2, Q3, Q4.",
        ),
    ],
)
def test_invalid_arguments_raise(folder, arguments, message):
    result = invoke(
        *(str(folder / "results") if argument == "RESULTS" else argument for argument in arguments)
    )
    assert isinstance(result.exception, PosirError)
    assert message in str(result.exception)


def test_notes_are_printed_to_stderr(folder, tmp_path):
    write_run(tmp_path, "org/old", 1, by_document=False)
    result = invoke(folder / "results", tmp_path, "--format", "json")
    assert "note: org/a and org/old on PosIR-English: compared without pairing." in result.stderr
    assert len(json.loads(result.stdout)["notes"]) == 1


def test_all_models_are_compared_with_the_given_baseline(folder):
    result = invoke(folder / "results")
    assert (
        "note: the baseline is org/a, the first model; choose another with --baseline."
        in result.stderr
    )
    chart_lines, table_lines = (
        block.splitlines()
        for block in result.stdout.split("\n\n")
        if block.startswith(("org/a", "nDCG@10\n"))
    )
    assert [line.split()[0] for line in chart_lines[:-1]] == ["org/a", "org/b", "other/b"]
    assert [line.split()[0] for line in table_lines] == ["nDCG@10", "org/a", "org/b", "other/b"]
    values = json.loads(
        invoke(folder / "results", "--baseline", "other/b", "--format", "json").stdout
    )
    assert values["baseline"] == "other/b"
    assert {(row["baseline"], row["model"]) for row in values["comparisons"]} == {
        ("other/b", "org/a"),
        ("other/b", "org/b"),
    }
    named_models = json.loads(
        invoke(
            "--results", folder / "results", "a", "--baseline", "org/b", "--format", "json"
        ).stdout
    )
    assert {(row["baseline"], row["model"]) for row in named_models["comparisons"]} == {
        ("org/b", "org/a")
    }


def test_only_the_given_lengths_are_compared(folder):
    options = ("--results", folder / "results", "a", "org/b", "--format", "json")
    all_rows, selected_rows = (
        json.loads(invoke(*options, *length_options).stdout)["comparisons"]
        for length_options in ((), ("--lengths", "ALL", "--lengths", "q4"))
    )
    assert {row["length"] for row in all_rows} == {"all", "Q1", "Q2", "Q3", "Q4"}
    assert {row["length"] for row in selected_rows} == {"all", "Q4"}
    for row in selected_rows:
        (other,) = [
            item
            for item in all_rows
            if (item["length"], item["metric"]) == (row["length"], row["metric"])
        ]
        assert row["difference"] == other["difference"]
        assert row["level"] <= other["level"]
