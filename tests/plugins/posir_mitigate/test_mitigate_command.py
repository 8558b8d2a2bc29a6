"""`posir mitigate` on a small folder with a tiny model: the table, resuming, and what is
refused.
"""

import csv
import io
import json
from types import SimpleNamespace

import pytest

from posir_mitigate.api import build_table, describe_changes, flatten_outcome, format_ratio
from posir_mitigate.trials import MitigationOutcome, measure_seconds, open_task
from posir_significance.decision import CHANGE_LEVEL, Change, MetricChange, decide
from posir_significance.findings import ChangeState, Reason, State
from posir_tasks.base.errors import PosirError
from posir_tasks.values.scores import Difference, Estimate
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
def test_methods_are_compared_with_the_plain_model_and_what_is_done_is_not_done_again(
    model, data, tmp_path, monkeypatch
):
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
    # Times are those of encoding.
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
def test_a_mistake_is_said_in_a_sentence(model, data, tmp_path, method, message):
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


def test_a_folder_without_data_that_hides_a_task_is_named(model, tmp_path, monkeypatch):
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


def outcome(method, ndcg=None, state=ChangeState.BETTER):
    """An outcome whose change in nDCG@10 has a state, and of which the rest is inconclusive."""

    def score(value):
        return Estimate(value, (value - 0.1, value + 0.1))

    change = None
    if ndcg is not None:
        difference = ndcg - 0.5
        half = 0.05 * CHANGE_LEVEL
        value = Difference(difference, (difference - half, difference + half))
        open_change = MetricChange(ChangeState.INCONCLUSIVE, Reason.WIDE_INTERVAL, 0.05, None)
        change = Change(90, MetricChange(state, None, 0.02, value), open_change, open_change)
    findings = decide(build_group(reason=Reason.NOT_STORED))
    return MitigationOutcome(
        method, 90, score(ndcg or 0.5), score(0.2), findings, change, 2.5, 4.0, 2.0, "a vector"
    )


def test_changes_are_named_by_their_state_with_the_interval_that_it_follows_from():
    three = outcome("three", 0.5, ChangeState.EQUIVALENT)
    outcomes = [
        outcome("plain"),
        outcome("one", 0.7),
        outcome("two", 0.4, ChangeState.WORSE),
        three,
        outcome("four", 0.6),
    ]
    sentences = list(describe_changes(outcomes))
    assert (
        sentences[0]
        == "nDCG@10: better with one, four; worse with two; equivalent within 2 points with three."
    )
    assert [sentence.partition(":")[2] for sentence in sentences[1:]] == [
        " inconclusive with one, two, three, four."
    ]
    rows = build_table(outcomes).rows
    scores = ("50.0 [40.0, 60.0]", "–", "+20.0 [+10.0, +30.0]", "–")
    assert rows[0] == ("plain", *scores, "not tested", "2.5", "x 2.00")
    assert rows[1][2] == "better: +20.0 [+15.1, +24.9]"
    assert rows[1][4] == "inconclusive"
    flat = flatten_outcome(outcomes[1])
    assert (flat["ndcg_at_10_change"], flat["ndcg_at_10_difference"].value) == (
        ChangeState.BETTER,
        pytest.approx(0.2),
    )
    assert (flat["state"], flat["reason"]) == (State.NOT_TESTED, Reason.NOT_STORED)
    parts = [part.headings for part in build_table(outcomes).divided(80)]
    assert [part for part in parts if "Change" in part[1:2]] == [], (
        "no change is parted from its score"
    )
    # A ratio of times is never shown as 0.
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
def test_time_is_of_encoding_and_searching_in_whatever_phases(tmp_path, phases, seconds):
    file = tmp_path / "result.json"
    named = [{"name": name, "start": start, "end": end} for name, start, end in phases]
    file.write_text(json.dumps({"evaluation_phases": named}))
    run = SimpleNamespace(by_subset=lambda task: {task: SimpleNamespace(file=file)})
    assert measure_seconds(run, "PosIR-Mini") == seconds
