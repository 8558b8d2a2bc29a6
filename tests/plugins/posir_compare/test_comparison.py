"""Tests for the rows of a comparison and their states."""

from dataclasses import replace

import numpy as np
import pytest

from posir_compare.comparison import compare_pair, compare_pairs
from posir_compare.pairing import find_common_results
from posir_significance.findings import ChangeState, Metric, Reason
from posir_tasks.plugin_api import score_result
from posir_tasks.values.scores import serialize_scores
from tests.support.comparison import draw_evidence, only_pair, pair_runs, write_run

EVEN, FALLING = (0.5, 0.5, 0.5), (0.8, 0.6, 0.4)


@pytest.fixture
def folder(tmp_path):
    for model, seed, hit_rates in (("org/a", 1, EVEN), ("org/b", 5, FALLING)):
        write_run(tmp_path, model, seed, hit_rates=hit_rates)
    return tmp_path


def test_intervals_of_lengths_are_simultaneous(tmp_path):
    """The data has documents in Q1, Q2 and Q4, so three lengths are corrected together."""
    tokens = np.repeat([*[2000] * 20, 100, 100, 600], 5)
    evidence = replace(draw_evidence(115, 3), tokens=tokens)
    for model, seed in (("org/a", 1), ("org/b", 2)):
        write_run(tmp_path, model, seed, domains={"sports": evidence})
    rows = [
        row for row in compare_pairs(pair_runs(tmp_path)).rows if row.metric is Metric.NDCG_AT_10
    ]
    assert [row.subject.length for row in rows] == ["all", "Q1", "Q2", "Q4"]
    levels = [1 - 0.05 / 3, *[1 - 0.05 / 9] * 3]
    assert [row.level for row in rows] == pytest.approx(levels)
    (alone,) = (
        row
        for row in compare_pairs(pair_runs(tmp_path), ["Q4"]).rows
        if row.metric is Metric.NDCG_AT_10
    )
    assert alone.level == pytest.approx(1 - 0.05 / 3)
    assert alone.estimate.low > rows[-1].estimate.low


def test_states_follow_from_intervals(folder):
    for row in compare_pair(only_pair(folder), find_common_results(only_pair(folder))):
        for value, low, high in (
            (row.a.value, row.a.low, row.a.high),
            (row.b.value, row.b.low, row.b.high),
            (row.estimate.value, row.estimate.low, row.estimate.high),
        ):
            assert low <= value <= high
        excludes_zero = row.estimate.low > 0 or row.estimate.high < 0
        assert excludes_zero or row.state not in (ChangeState.BETTER, ChangeState.WORSE)


def test_rows_contain_the_scores_of_the_models(folder):
    common = find_common_results(only_pair(folder))
    scored = score_result(common.b)
    scores = {
        name: serialize_scores(group, scored.declarations) for name, group in scored.groups.items()
    }
    rows = compare_pair(only_pair(folder), common)
    assert {row.metric for row in rows} == {
        Metric.NDCG_AT_10,
        Metric.POSITION_EFFECT,
        Metric.POSITION_EFFECT_IN_WINDOW,
    }
    for row in rows:
        assert row.b.value == scores[row.subject.length.lower()][row.metric.key]
        assert row.subject.queries == scores[row.subject.length.lower()]["queries"]


def test_a_model_does_not_differ_from_itself(tmp_path):
    write_run(tmp_path, "org/a", 1, hit_rates=FALLING)
    write_run(tmp_path, "org/b", 1, hit_rates=FALLING)
    for row in compare_pair(only_pair(tmp_path), find_common_results(only_pair(tmp_path))):
        assert row.estimate.value == pytest.approx(0, abs=1e-12)
        assert row.state not in (ChangeState.BETTER, ChangeState.WORSE)
        assert row.estimate.high < 0.02


def test_pairing_narrows_the_interval_of_similar_models(tmp_path):
    write_run(tmp_path, "org/a", 1)
    write_run(tmp_path, "org/b", 1)
    write_run(tmp_path / "old", "org/b", 1, by_document=False)
    unpaired, paired = (
        compare_pair(pair, find_common_results(pair))[0] for pair in pair_runs(tmp_path)
    )
    assert (paired.subject.method, unpaired.subject.method) == ("paired by query", "unpaired")
    assert paired.estimate.high < 0.5 * unpaired.estimate.high


def test_one_folder_and_two_folders_give_the_same_rows(tmp_path):
    for model, seed, hit_rates in (("org/a", 1, EVEN), ("org/b", 5, FALLING)):
        write_run(tmp_path / "both", model, seed, hit_rates=hit_rates)
        write_run(tmp_path / model[-1], model, seed, hit_rates=hit_rates)
    first, second = (
        compare_pairs(pair_runs(*f))
        for f in ([tmp_path / "both"], [tmp_path / "a", tmp_path / "b"])
    )
    assert (first.rows, first.notes, first.gaps) == (second.rows, second.notes, second.gaps)
    assert [
        row.subject.length for row in first.rows if row.metric is Metric.POSITION_EFFECT_IN_WINDOW
    ] == [
        "all",
        "Q1",
        "Q2",
        "Q3",
        "Q4",
    ]
    assert {row.subject.method for row in first.rows} == {"paired by query"}
    reversed_comparison = compare_pairs(pair_runs(tmp_path / "b", tmp_path / "a"))
    assert [row.estimate.value for row in reversed_comparison.rows] == pytest.approx(
        [-row.estimate.value for row in first.rows]
    )
    opposite = {ChangeState.BETTER: ChangeState.WORSE, ChangeState.WORSE: ChangeState.BETTER}
    states = [row.state for row in first.rows]
    assert [row.state for row in reversed_comparison.rows] == [
        opposite.get(state, state) for state in states
    ]


def test_models_that_find_nothing_do_not_differ(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "tests.support.comparison.draw_ranks", lambda queries, _: np.zeros(queries, np.int64)
    )
    for model in ("org/a", "org/b"):
        write_run(tmp_path, model, 1, hit_rates=(0, 0, 0))
    for row in compare_pair(only_pair(tmp_path), find_common_results(only_pair(tmp_path))):
        assert row.estimate.value == 0
        assert row.state not in (ChangeState.BETTER, ChangeState.WORSE)


def test_effects_need_rotated_versions_of_both_models(tmp_path):
    write_run(tmp_path, "org/a", 1, hit_rates=EVEN)
    write_run(tmp_path, "org/b", 5)
    for row in compare_pair(only_pair(tmp_path), find_common_results(only_pair(tmp_path))):
        if row.metric is not Metric.NDCG_AT_10:
            assert (row.state, row.reason) == (
                ChangeState.NOT_TESTED,
                Reason.NOT_STORED,
            )
            assert row.estimate is None
