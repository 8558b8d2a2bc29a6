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
        write_run(output / "results", model, seed, ranks_folder=output / "ranks")
    return output


def invoke(*arguments):
    return CliRunner().invoke(build_app(), ["compare", *map(str, arguments)])


def test_every_format(folder):
    options = ("--results", folder / "results", "a", "org/b", "--ranks", folder / "ranks")
    pairs = build_pairs(select_by_name(read_model_runs([folder / "results"]), ["a", "org/b"]))
    rows = compare(pairs, folder / "ranks").rows
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


def test_psi_is_shown_with_its_interval_null_distribution_and_ndcg(folder):
    found = json.loads(invoke(folder / "results", "--format", "json").stdout)["comparisons"]
    assert [row["metric"] for row in found[:2]] == ["nDCG@10", "PSI"]
    for row in found[1::2]:
        assert all(
            row[f"{one}_{field}"] is not None for one in "ab" for field in ("low", "high", "psi_null_mean", "psi_null_p95")
        )
        assert row["queries"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Nothing to compare. Use"),
        (["nowhere"], "nowhere: no such folder"),
        (["--results", "nowhere"], "nowhere: no such folder"),
        (["--results", "RESULTS", "c"], "no results of a model 'c'. Use one of these names: org/a, org/b, other/b"),
        (["--results", "RESULTS", "b", "a"], "org/b and other/b"),
        (["--results", "RESULTS", "a"], "needs two models; found: org/a"),
        (["RESULTS", "--ranks", "nowhere"], "nowhere: no such folder. Give the --prediction-folder"),
    ],
)
def test_mistakes(folder, arguments, message):
    done = invoke(*(str(folder / "results") if one == "RESULTS" else one for one in arguments))
    assert isinstance(done.exception, PosirError)
    assert message in str(done.exception)


def test_notes_go_to_the_error_stream(folder):
    done = invoke("--results", folder / "results", "a", "org/b", "--ranks", folder, "--format", "json")
    assert "note: org/a and org/b on PosIR-English: compared without pairing." in done.stderr
    assert len(json.loads(done.stdout)["notes"]) == 1
