"""`posir compare`: formats, notes and mistakes."""

import csv
import io
import json
from dataclasses import asdict

import pytest
from typer.testing import CliRunner

from posir_compare.comparison import compare
from posir_compare.model_runs import build_pairs, read_model_runs, select_by_name
from posir_tasks.command.app import build_app
from posir_tasks.errors import PosirError
from tests.support.comparison import write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    output = tmp_path_factory.mktemp("output")
    for model, seed in (("org/a", 1), ("org/b", 5), ("other/b", 9)):
        write_run(output / "results", model, seed)
    return output


def invoke(*arguments):
    return CliRunner().invoke(build_app(), ["compare", *map(str, arguments)])


def test_every_format(folder):
    options = ("--results", folder / "results", "a", "org/b")
    pairs = build_pairs(select_by_name(read_model_runs([folder / "results"]), ["a", "org/b"]))
    rows = compare(pairs).rows
    found = json.loads(invoke(*options, "--format", "json").stdout)["comparisons"]
    assert found == json.loads(json.dumps([*map(asdict, rows)]))
    table = list(csv.DictReader(io.StringIO(invoke(*options, "--format", "csv").stdout)))
    assert [float(line["difference"]) for line in table] == [row.difference for row in rows]
    assert {line["method"] for line in table} == {"paired by query"}
    lines = [line.strip("| ").split(" | ") for line in invoke(*options, "--format", "markdown").stdout.splitlines()]
    assert len({len(line) for line in lines}) == 1
    first = dict(zip(lines[0], lines[2], strict=True))
    assert (first["Model A"], first["Model B"], first["Method"]) == ("org/a", "org/b", "paired by query")
    assert first["B - A"].split()[0] == f"{rows[0].difference * 100:+.1f}"
    printed = invoke(*options)
    assert printed.exit_code == 0
    assert "PosIR-English · paired by query" in printed.stdout
    assert "Holm-corrected" in " ".join(printed.stdout.split())


def test_every_metric_is_shown_with_intervals_of_both_models(folder):
    found = json.loads(invoke(folder / "results", "--format", "json").stdout)["comparisons"]
    assert [row["metric"] for row in found[:3]] == ["nDCG@10", "start to end", "PSI"]
    for row in found:
        assert all(row[f"{one}_{end}"] is not None for one in "ab" for end in ("low", "high"))
        assert row["queries"] > 0
        assert not any("null" in key for key in row)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Nothing to compare. Use"),
        (["nowhere"], "nowhere: no such folder"),
        (["--results", "nowhere"], "nowhere: no such folder"),
        (["--results", "RESULTS", "c"], "no results of a model 'c'. Use one of these names: org/a, org/b, other/b"),
        (["--results", "RESULTS", "b", "a"], "org/b and other/b"),
        (["--results", "RESULTS", "a"], "needs two models; found: org/a"),
    ],
)
def test_mistakes(folder, arguments, message):
    done = invoke(*(str(folder / "results") if one == "RESULTS" else one for one in arguments))
    assert isinstance(done.exception, PosirError)
    assert message in str(done.exception)


def test_notes_go_to_the_error_stream(folder, tmp_path):
    write_run(tmp_path, "org/old", 1, by_document=False)
    done = invoke(folder / "results", tmp_path, "--format", "json")
    assert "note: org/a and org/old on PosIR-English: compared without pairing." in done.stderr
    assert len(json.loads(done.stdout)["notes"]) == 3
