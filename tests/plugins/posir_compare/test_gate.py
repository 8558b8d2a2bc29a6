"""Tests for gates: limits on changes and scores, with simultaneous intervals."""

import errno
import json
import shutil
from dataclasses import replace
from unittest.mock import Mock
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.special import stdtrit

import posir
from posir_compare import gate as gates
from posir_compare.comparison import ModelComparison, compare_pairs
from posir_compare.gate import LIMITED_METRICS, GateVerdict, parse_limit
from posir_significance.findings import Metric, Quantity
from posir_significance.scores import SCORES
from posir_tasks.base.errors import PosirError
from posir_tasks.values.estimates import Difference
from posir_tasks.values.judgments import METRICS
from tests.support.cli import call_posir
from tests.support.comparison import DOMAINS, draw_evidence, pair_runs, write_run
from tests.support.results import describe_run

PASSES, FAILS, UNDECIDED = GateVerdict
EVEN, FALLING = (0.5, 0.5, 0.5), (0.9, 0.5, 0.3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write runs of a baseline, of the same model, and of a model that finds almost nothing."""
    output = tmp_path_factory.mktemp("gate")
    write_run(output / "base", "org/a", 1, hit_rates=EVEN)
    write_run(output / "same", "org/a", 1, hit_rates=EVEN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "tests.support.comparison.draw_ranks",
            lambda count, seed: np.arange(count) % 7 + 3 + seed % 2,
        )
        write_run(output / "worse", "org/b", 1, hit_rates=FALLING)
    return output


@pytest.fixture(scope="module")
def comparison(folder):
    return compare_pairs(pair_runs(folder / "base", folder / "worse"))


def invoke(*arguments):
    return call_posir(["compare", *map(str, arguments)])


def check(comparison, limits, lengths=("all",), **options):
    return gates.check_limits(comparison.rows, limits, lengths, gaps=comparison.gaps, **options)


def build_comparison_with_interval(comparison, metric, low, high):
    """Replace the changes over all lengths by a change with a fixed interval for every level."""
    change = Difference((low + high) / 2, (low, high), compute_interval=lambda _: (low, high))
    rows = [
        replace(row, estimate=change)
        for row in comparison.rows
        if row.metric is metric and row.subject.length == "all"
    ]
    return ModelComparison(tuple(rows), ())


@pytest.mark.parametrize(
    ("low", "high", "verdict", "strict_verdict"),
    [
        (0.06, 0.1, FAILS, FAILS),
        (0.04, 0.1, PASSES, FAILS),
        (-0.1, 0.04, PASSES, PASSES),
        (0.05, 0.06, PASSES, FAILS),
    ],
)
def test_limits_fail_if_the_whole_interval_is_beyond_them(
    comparison, low, high, verdict, strict_verdict
):
    above = build_comparison_with_interval(comparison, Metric.POSITION_EFFECT, low, high)
    assert check(above, ["position_effect > 5"]).verdict is verdict
    assert check(above, ["position_effect > 5"], strict=True).verdict is strict_verdict
    below = build_comparison_with_interval(comparison, Metric.POSITION_EFFECT, -high, -low)
    assert check(below, ["position_effect < -5"]).verdict is verdict
    assert check(below, ["position_effect < -5"], strict=True).verdict is strict_verdict


def test_limits_are_in_points():
    assert parse_limit("ndcg_at_10<-1").value == -0.01
    assert parse_limit(" position_effect > +.5 ").value == 0.005
    assert parse_limit("position_effect_in_window > 10").value == 0.1


def test_limited_metrics_are_declared_scores():
    assert LIMITED_METRICS.keys() <= {*METRICS, *(score.key for score in SCORES)}


def test_the_level_depends_on_the_number_of_tests(comparison):
    """Intervals are Student intervals of the corrected level, which is at least 95%."""
    (row,) = (
        row
        for row in comparison.rows
        if row.metric is Metric.NDCG_AT_10 and row.subject.length == "all"
    )
    alone = check(comparison, ["ndcg_at_10 < -1", "ndcg_at_10 > 1"])
    assert alone.level == pytest.approx(0.95)
    assert {limit.change.interval for limit in alone.limits} == {
        row.estimate.compute_interval(0.95)
    }
    lengths = ["all", "Q1", "Q2", "Q3", "Q4"]
    gate = check(comparison, ["ndcg_at_10 < -1", "position_effect > 10"], lengths)
    assert gate.level == pytest.approx(1 - 2 * 0.05 / 10)
    assert check(
        comparison, ["ndcg_at_10 < -1", "ndcg_at_10 < -2"], lengths
    ).level == pytest.approx(1 - 2 * 0.05 / 5)
    (wide,) = (
        limit.change
        for limit in gate.limits
        if limit.length == "all" and limit.metric is Metric.NDCG_AT_10
    )
    degrees = 1 / sum((size / 500) ** 2 for size in [5] * 100) - 1
    ratio = stdtrit(degrees, 1 - 0.005) / stdtrit(degrees, 0.975)
    assert wide.high - wide.low == pytest.approx(
        ratio * float(np.diff(row.estimate.compute_interval(0.95))[0])
    )
    narrow, wider = (
        tested.limits[-1].change
        for tested in (check(comparison, ["position_effect > 10"], ["Q4"]), gate)
    )
    assert wider.low < narrow.low < narrow.high < wider.high


def test_equal_models_pass_and_worse_models_fail(
    folder,
):
    limits = ("--fail-if", "ndcg_at_10 < -1", "--fail-if", "position_effect > 5")
    same = invoke(folder / "base", folder / "same", *limits, "--strict")
    assert (same.exit_code, same.stdout.startswith("The gate passes · ")) == (0, True)
    worse = invoke(folder / "base", folder / "worse", *limits)
    assert (worse.exit_code, worse.stdout.startswith("The gate fails · org/b against org/a")) == (
        1,
        True,
    )
    comparison = posir.compare([folder / "base", folder / "worse"])
    assert comparison.check(["ndcg_at_10 < -1"]).verdict is FAILS
    assert (
        comparison.check(["ndcg_at_10 < -99"], lengths=["all", "Q4"], strict=True).verdict is PASSES
    )
    with pytest.raises(PosirError, match="There is no limit"):
        comparison.check([])


def test_limits_on_scores_need_no_baseline(folder, tmp_path):
    """Intervals are Wilson and Student intervals of the corrected level."""
    (row,) = (row for row in posir.report(folder / "base").rows if row.length == "all")
    alone = posir.report(
        folder / "base", fail_if="position_effect > 50", junit=tmp_path / "gate.xml"
    )
    effect = row.findings[Quantity.POSITION_EFFECT].estimate
    assert (alone.exit_status, alone.level) == (0, 0.95)
    assert alone.limits[0].b.interval == pytest.approx(effect.interval)
    assert ElementTree.parse(tmp_path / "gate.xml").getroot().get("name") == "posir report"
    limits = [
        "ndcg_at_10 < 99",
        "position_effect > 30",
        "position_effect < -30",
        "position_effect_in_window > 50",
    ]
    gate = posir.read_results(folder / "base").check(limits)
    assert gate.level == pytest.approx(1 - 2 * 0.05 / 4)
    assert [limit.verdict for limit in gate.limits] == [FAILS, PASSES, PASSES, PASSES]
    ndcg, thirds, _, within = (limit.b for limit in gate.limits)
    group = row.load_group()
    ratio = stdtrit(group.ndcg.degrees, 1 - 0.0125) / np.sqrt(group.ndcg.trials)
    for end in ndcg.interval:
        assert abs(ndcg.value - end) == pytest.approx(ratio * np.sqrt(end * (1 - end)), abs=1e-7)
    assert thirds.interval == group.whole.effect.compute_interval(0.975)
    assert within.low < effect.low <= effect.high < within.high
    strict = call_posir(
        ["report", str(folder / "base"), "--fail-if", "position_effect > -3", "--strict"],
    )
    assert (strict.exit_code, strict.stdout.splitlines()[0]) == (1, "The gate fails · org/a")


def test_few_documents_and_missing_subsets_are_inconclusive(folder, tmp_path):
    write_run(tmp_path / "few", "org/c", 3, domains={"game": draw_evidence(40, 1)})
    write_run(
        tmp_path / "part",
        "org/c",
        3,
        position_run=describe_run("r") | {"missing_subsets": ["news"]},
    )
    for path, reason in (
        ("few", "8 documents are too few"),
        ("part", "no results of news"),
        ("none", "no such folder"),
    ):
        gate = posir.report(tmp_path / path, fail_if="ndcg_at_10 < 1")
        assert (gate.verdict, gate.exit_status) == (UNDECIDED, 2), path
        assert reason in gate.limits[0].reason
    with pytest.raises(PosirError, match="--fail-if"):
        posir.report(folder / "base", strict=True)
    with pytest.raises(PosirError, match="--bins"):
        posir.report(folder / "base", fail_if="position_effect > 1", bins=True)


def test_incomplete_comparisons_are_inconclusive(folder, tmp_path):
    limit = ("--fail-if", "ndcg_at_10 < -1")
    few = {"game": draw_evidence(40, 1)}
    for name, options in {
        "few": {"domains": few},
        "few-too": {"domains": few},
        "part": {"domains": {"game": DOMAINS["game"]}},
        "other": {"position_run": describe_run("r", queries="q1")},
        "known": {"position_run": describe_run("r", queries="q0")},
    }.items():
        write_run(tmp_path / name, "org/c", 3, **options)
    shutil.copytree(folder / "base", tmp_path / "both")
    write_run(tmp_path / "both", "org/a", 1, task="PosIR-German")
    for arguments, reason in (
        (
            (tmp_path / "few", tmp_path / "few-too"),
            "8 documents are too few, at least 10 are needed",
        ),
        ((folder / "base", tmp_path / "part"), "not compared: sports"),
        ((tmp_path / "known", tmp_path / "other"), "skipped subsets whose data differ (queries"),
        ((folder / "base", tmp_path / "nowhere"), "no such folder"),
        (("--results", folder / "base", "org/a", "org/z"), "no results of a model 'org/z'"),
        ((tmp_path / "both", folder / "same"), "has no results on this task"),
        (
            (folder / "base", folder / "same", folder / "worse"),
            "one model against one baseline; found: ",
        ),
    ):
        result = invoke(*arguments, *limit, "--format", "json")
        gate = json.loads(result.stdout)
        assert (result.exit_code, gate["verdict"]) == (2, UNDECIDED), reason
        assert any(reason in limit["reason"] for limit in gate["limits"]), gate
    assert (
        invoke(tmp_path / "both", folder / "same", *limit, "--task", "PosIR-English").exit_code == 0
    )


def test_undefined_changes_are_inconclusive(comparison):
    rows = (replace(row, estimate=None) for row in comparison.rows)
    undefined = ModelComparison(tuple(rows), ())
    assert check(undefined, ["position_effect > 10"]).verdict is UNDECIDED
    assert (
        check(comparison, ["position_effect > 10"], ["Q9"]).limits[0].reason
        == "there are no questions of this length"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fail-if", "ndcg_at_10 = 5"], "Invalid limit 'ndcg_at_10 = 5'."),
        (
            ["--fail-if", "ndcg < -1"],
            "unknown metric ndcg. Choose from ndcg_at_10, position_effect,",
        ),
        (["--fail-if", "position_effect > 10", "--junit", "FOLDER"], "is a folder"),
        (["--strict"], "Add --fail-if"),
    ],
)
def test_invalid_options_exit_with_status_2(folder, arguments, message):
    given = [str(folder) if argument == "FOLDER" else argument for argument in arguments]
    result = invoke(folder / "base", folder / "same", *given)
    assert result.exit_code == 2
    assert message in " ".join(line.strip(" │") for line in result.stderr.splitlines())


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("posir_compare.api.compare_pairs", KeyError("lost"), "KeyError: 'lost'"),
        (
            "posir_compare.runs.collect_runs",
            TypeError("of a plugin"),
            "TypeError: of a plugin",
        ),
    ],
)
def test_crashes_are_inconclusive(folder, tmp_path, monkeypatch, name, error, message):
    monkeypatch.setattr(name, Mock(side_effect=error))
    limit = ("--fail-if", "ndcg_at_10 < -1", "--format", "json", "--junit", tmp_path / "gate.xml")
    result = invoke(folder / "base", folder / "worse", *limit)
    gate = json.loads(result.stdout)
    assert (result.exit_code, gate["verdict"], gate["limits"][0]["reason"]) == (
        2,
        UNDECIDED,
        message,
    )
    assert ElementTree.parse(tmp_path / "gate.xml").getroot().get("errors") == "1"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("torn"),
        PosirError("no table"),
        OSError(errno.ENOSPC, "full"),
        BrokenPipeError(errno.EPIPE, "closed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_failed_output_is_inconclusive(folder, monkeypatch, error):
    monkeypatch.setattr("posir_tasks.command.options.print_result", Mock(side_effect=error))
    # If the disk is full, the command redirects the real standard output.
    monkeypatch.setattr("os.dup2", Mock())
    assert invoke(folder / "base", folder / "worse", "--fail-if", "ndcg_at_10 < -1").exit_code == 2


def test_junit_contains_a_case_for_each_limit(folder, tmp_path):
    file = tmp_path / "reports" / "gate.xml"
    limits = ("--fail-if", "ndcg_at_10 < -1", "--fail-if", "ndcg_at_10 < -99", "--junit", file)
    assert invoke(folder / "base", folder / "worse", *limits).exit_code == 1
    suite = ElementTree.parse(file).getroot()
    assert [suite.get(name) for name in ("tests", "failures", "errors")] == ["2", "1", "0"]
    failed, passed = suite
    message = failed.find("failure").get("message")
    assert (failed.get("name"), message) == (
        "ndcg_at_10 < -1, all",
        "the whole interval is beyond the limit",
    )
    assert [child.tag for child in passed] == ["system-out"]
    invoke(folder / "base", tmp_path / "nowhere", *limits)
    assert ElementTree.parse(file).getroot().get("errors") == "2"
