"""`posir mitigate` on a small folder with a tiny model: table, resuming and errors."""

import csv
import io
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from posir_mitigate.api import build_table, format_ratio, present_trials
from posir_mitigate.trials import Trial, measure_seconds, open_task
from posir_significance.decision import decide
from posir_significance.findings import (
    CHANGE_LEVEL,
    ChangeRow,
    ChangeState,
    Metric,
    Quantity,
    Reason,
    State,
)
from posir_significance.messages.comparisons import format_change
from posir_tasks.base.errors import PosirError
from posir_tasks.values.estimates import Difference, Estimate
from tests.support.cli import call_posir, invoke
from tests.support.datasets import posir_tables, write_domain
from tests.support.models import write_tiny_model
from tests.support.rotations import build_group

METHODS = (
    "--method",
    "chunks(8)",
    "--method",
    "chunks(sentences,mean)",
    "--method",
    "chunks(1000)",
)


@pytest.fixture
def model(tmp_path):
    return str(write_tiny_model(tmp_path / "tiny"))


@pytest.fixture
def data(tmp_path):
    write_domain(tmp_path / "bells", posir_tables())
    return tmp_path / "bells"


@pytest.mark.slow
def test_methods_are_compared_and_results_are_reused(model, data, tmp_path, monkeypatch):
    monkeypatch.setenv("POSIR_EMBEDDINGS", str(tmp_path / "cache"))
    arguments = ("mitigate", *map(str, (model, data, *METHODS, "--output", tmp_path / "results")))
    first = call_posir([*arguments, "--format", "json"])
    assert "not tried: local/tiny: chunks of 1000 tokens exceed" in first.stderr
    values = json.loads(first.stdout)
    plain, chunks, mean = values["outcomes"]
    names = ["plain", "chunks(8,4,max,tokens)", "chunks(4,2,mean,sentences)"]
    assert [outcome["method"] for outcome in (plain, chunks, mean)] == names
    assert (plain["time_ratio"], plain["vectors_per_document"], mean["vectors_per_document"]) == (
        1,
        1,
        1,
    )
    assert min(chunks["vectors_per_document"] - 1, chunks["seconds"]) > 0
    low, high = chunks["ndcg_at_10_interval"]
    assert low <= chunks["ndcg_at_10"] <= high
    assert (plain["ndcg_at_10_change"], chunks["ndcg_at_10_change"]) == (
        None,
        ChangeState.INCONCLUSIVE,
    )
    # The embedding cache is off, so times include encoding.
    assert not (tmp_path / "cache").exists()
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "results").rglob("bells.json")}
    assert len(files) == 3
    rows = list(csv.DictReader(io.StringIO(invoke(*arguments, "--format", "csv"))))
    assert {file: file.stat().st_mtime_ns for file in files} == files
    assert float(rows[1]["ndcg_at_10"]) == chunks["ndcg_at_10"]
    table = invoke(*arguments)
    assert "chunks(8,4,max,tokens)" in table
    assert "inconclusive" in table


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("chnks", "mean chunks"),
        ("chunks(8", r"'chunks\(8': not a method"),
        ("chunks(1000)", "no method works .* local/tiny"),
    ],
)
def test_mistakes_are_reported(model, data, tmp_path, method, message):
    with pytest.raises(PosirError, match=message):
        invoke("mitigate", model, data, "--method", method, "--output", tmp_path / "results")


def test_a_folder_of_several_languages_is_one_task(data):
    write_domain(data, posir_tables(), language="deu-Latn")
    task = open_task(str(data))
    assert {name.partition("@")[0] for name in task.hf_subsets} == {
        "deu-Latn-sports",
        "eng-Latn-sports",
    }
    with pytest.raises(PosirError, match="NoTask"):
        open_task("NoTask")


def test_a_folder_with_a_task_name_is_reported(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "PosIR-Mini"
    folder.mkdir()
    for _ in range(2):
        with pytest.raises(
            PosirError,
            match=r"PosIR-Mini.* has no .*\. It hides the task of this name: rename it, or run in",
        ):
            invoke("mitigate", model, "PosIR-Mini")
        (folder / "notes.txt").write_text("A result, not data.")


def build_trial(method, ndcg=None, state=ChangeState.BETTER):
    """Build a trial with a given state of nDCG@10 and an inconclusive position effect."""
    findings = decide(build_group(reason=Reason.NOT_STORED))
    scores = {Quantity.NDCG_AT_10: ndcg or 0.5, Quantity.POSITION_EFFECT: 0.2}
    estimates = {
        quantity: replace(findings[quantity], estimate=Estimate(value, (value - 0.1, value + 0.1)))
        for quantity, value in scores.items()
    }
    findings = replace(findings, findings={**findings.findings, **estimates})
    changes = {}
    if ndcg is not None:
        difference = ndcg - 0.5
        half = 0.05 * CHANGE_LEVEL
        value = Difference(difference, (difference - half, difference + half))
        rows = (
            ChangeRow(Metric.NDCG_AT_10, state, 0.02, value),
            ChangeRow(
                Metric.POSITION_EFFECT,
                ChangeState.INCONCLUSIVE,
                0.05,
                reason=Reason.WIDE_INTERVAL,
            ),
        )
        changes = {row.metric: row for row in rows}
    return Trial(method, findings, 2.5, 4.0, 2.0, "a server", changes)


def test_the_table_has_states_and_intervals_of_changes():
    trials = [
        build_trial("plain"),
        build_trial("one", 0.7),
        build_trial("two", 0.4, ChangeState.WORSE),
        build_trial("three", 0.5, ChangeState.EQUIVALENT),
    ]
    output = present_trials("tiny", trials, ["no"])
    rows = output.tables[0].rows
    scores = ("50.0 [40.0, 60.0]", "–", "+20.0 [+10.0, +30.0]", "–")
    assert rows[0] == ("plain", *scores, "not tested", "2.5", "x 2.00")
    assert rows[1][2] == format_change(trials[1].changes[Metric.NDCG_AT_10])
    row = output.rows[1]
    assert (row["ndcg_at_10_change"], row["ndcg_at_10_difference"].value) == (
        ChangeState.BETTER,
        pytest.approx(0.2),
    )
    assert (row["state"], row["reason"]) == (State.NOT_TESTED, Reason.NOT_STORED)
    assert len(output.warnings) == 1
    parts = [part.headings for part in build_table(trials).split(80)]
    assert [part for part in parts if "Change" in part[1:2]] == [], (
        "no change is parted from its score"
    )


def test_a_time_ratio_is_never_shown_as_0():
    assert list(map(format_ratio, (None, 0.001, 0.28, 1234.5))) == [
        "–",
        "x <0.01",
        "x 0.28",
        "x 1,234.50",
    ]


@pytest.mark.parametrize(
    ("phases", "seconds"),
    [
        ([("Encoding queries", 0, 2), ("Searching corpus", 2, 10), ("Scoring", 10, 30)], 10),
        (
            [
                ("Encoding corpus", 0, 0),
                ("Encoding queries and documents", 1, 71),
                ("Counting tokens", 71, 80),
            ],
            70,
        ),
        (
            [
                ("Encoding queries and documents", 0, 10),
                ("Encoding queries", 1, 3),
                ("Searching corpus", 3, 9),
            ],
            10,
        ),
        ([], 0),
    ],
    ids=["one vector", "chunks, searched in one phase", "phases within a phase", "none"],
)
def test_time_includes_encoding_and_searching(tmp_path, phases, seconds):
    file = tmp_path / "result.json"
    phase_records = [{"name": name, "start": start, "end": end} for name, start, end in phases]
    file.write_text(json.dumps({"evaluation_phases": phase_records}))
    run = SimpleNamespace(get_position_results=lambda task: {task: SimpleNamespace(file=file)})
    assert measure_seconds(run, "PosIR-Mini") == seconds
