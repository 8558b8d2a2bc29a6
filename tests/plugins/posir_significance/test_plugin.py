"""Test the declared scores: fields, ranges and edge cases."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import kendalltau, linregress, spearmanr

from posir_significance.findings import State
from posir_significance.scores import SCORES, correlate_orders, fit_trend
from posir_tasks.values.profile import NDCG_AT_10, RANKS, average_gains
from tests.support.results import score_groups
from tests.support.simulation import build_profile, draw_counts

#: Scores that need rotated versions, which these profiles do not have.
TESTED = (
    "position_effect",
    "position_effect_in_window",
    "truncation_loss",
    "controlled_psi",
    "middle_minus_ends",
)
#: Scores that only need queries.
COUNTS = {"queries": 0, "documents": 0, "tested_questions": 0}


@pytest.fixture(scope="module")
def profile():
    return build_profile(
        *(draw_counts(np.linspace(0.8 - 0.1 * k, 0.4, 20), 400, k) for k in range(4))
    )


def test_every_group_has_every_score_as_json(profile):
    scores = score_groups(profile)
    assert list(scores) == ["all", "q1", "q2", "q3", "q4"]
    keys = {score.key for score in SCORES}
    for entry in scores.values():
        assert keys <= {name.removesuffix("_interval") for name in entry}
    json.dumps(scores, allow_nan=False)


def test_every_score_is_described_in_a_sentence_and_has_a_title():
    for score in SCORES:
        assert score.title
        assert re.fullmatch(r"[A-Z0-9pnf].*\.", score.description), score.key


def test_means_match_pandas(profile):
    gains = pd.DataFrame(
        [
            {"length": f"q{length + 1}", "position": position, "gain": gain, "count": int(count)}
            for length, position, rank in np.ndindex(profile.counts.shape)
            if (count := profile.counts[length, position, rank])
            for gain in [NDCG_AT_10[rank]]
        ]
    )
    rows = gains.loc[gains.index.repeat(gains["count"])]
    scores = score_groups(profile)
    assert scores["all"]["ndcg_at_10"] == pytest.approx(rows.gain.mean())
    for name, group in rows.groupby("length"):
        by_position = group.groupby("position").gain.mean()
        assert scores[name]["ndcg_at_10"] == pytest.approx(group.gain.mean())
        assert scores[name]["ndcg_at_10_as_published"] == pytest.approx(by_position.mean())
        assert scores[name]["psi_as_published"] == pytest.approx(
            1 - by_position.min() / by_position.max()
        )
        assert scores[name]["queries"] == len(group)
        # The thirds contain the midpoints of 7, 6 and 7 of the 20 bins.
        thirds = pd.cut(group.position, [-1, 6, 12, 19], labels=False)
        by_third = group.groupby(thirds).gain.mean()
        assert scores[name]["psi_of_thirds"] == pytest.approx(1 - by_third.min() / by_third.max())


def test_equal_profiles_give_equal_scores(profile):
    assert score_groups(profile) == score_groups(replace(profile, counts=profile.counts.copy()))


def test_empty_profile():
    for entry in score_groups(build_profile(np.zeros((3, 12)), np.zeros((3, 12)))).values():
        assert entry == dict.fromkeys(entry) | COUNTS


def test_extreme_profiles():
    counts = np.zeros((3, 3, 12))
    counts[0, :, -1] = counts[1, :, 0] = 50
    counts[2, 0] = 3
    missed, first, single = (score_groups(build_profile(bucket))["all"] for bucket in counts)
    alone = score_groups(build_profile(counts[2, :1]))["all"]
    assert (missed["ndcg_at_10"], missed["psi_as_published"]) == (0, None)
    assert missed["ndcg_at_10_interval"][1] > 0
    assert all(entry[name] is None for entry in (missed, single, alone) for name in TESTED)
    assert first["psi_as_published"] == 0
    assert first["state"] == State.NOT_TESTED
    assert first["ndcg_at_10_interval"][0] < 1
    assert single["psi_as_published"] == alone["psi_as_published"] == 0


@settings(deadline=None, max_examples=60)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 7)).flatmap(
        lambda shape: arrays(
            np.int64, (*shape, len(RANKS)), elements=st.sampled_from([0, 0, 0, 1, 2, 30])
        )
    )
)
def test_every_profile_gets_json_scores_within_their_ranges(counts):
    scores = score_groups(build_profile(*counts))
    json.dumps(scores, allow_nan=False)
    for entry in scores.values():
        for interval in (entry["psi_by_chance_interval"], entry["ndcg_at_10_interval"]):
            assert interval is None or 0 <= interval[0] <= interval[1] <= 1
        if entry["ndcg_at_10_interval"] is not None:
            assert (
                entry["ndcg_at_10_interval"][0]
                <= entry["ndcg_at_10"]
                <= entry["ndcg_at_10_interval"][1]
            )
        if entry["start_minus_end_interval"] is not None:
            low, high = entry["start_minus_end_interval"]
            assert -1 <= low <= entry["start_minus_end"] <= high <= 1


def test_trends_are_computed_from_bin_scores():
    counts = np.random.default_rng(1).integers(1, 30, (20, 12))
    places, scores = (np.arange(20) + 0.5) / 20, average_gains(counts, NDCG_AT_10)
    trend, ranks = fit_trend(counts), pd.Series(scores).rank()
    signs = np.sign(np.subtract.outer(places, places) * np.subtract.outer(scores, scores))
    assert trend["slope"] == pytest.approx(np.polyfit(places, scores, 1)[0])
    assert trend["pearson"] == pytest.approx(np.corrcoef(places, scores)[0, 1])
    assert trend["r_squared"] == pytest.approx(trend["pearson"] ** 2)
    assert trend["spearman"] == pytest.approx(np.corrcoef(places, ranks)[0, 1])
    assert trend["kendall"] == pytest.approx(signs.sum() / (20 * 19))
    assert {key for key in trend if key.endswith("p_value")} == {
        "slope_p_value",
        "spearman_p_value",
        "kendall_p_value",
    }
    assert not any(key.endswith("p_value") for key in fit_trend(counts[:4]))
    assert (fit_trend(np.ones((5, 12), int)), fit_trend(counts[:1])) == ({"slope": 0.0}, {})


@given(
    st.one_of(
        st.permutations(range(20)),
        st.permutations(range(40)),
        st.lists(st.integers(0, 6), min_size=2, max_size=40),
    )
)
@example([*range(40)])
@example([1, 0, *range(2, 40)])
@example([1, 0])
def test_kendalls_tau_equals_scipys(scores):
    assume(len(set(scores)) > 1)
    values = np.array(scores)
    ties = (values[:, None] == values).sum(axis=1)
    inversions = int(np.triu(values[:, None] > values).sum())
    expected = kendalltau(np.arange(len(values)), values)
    assert correlate_orders(inversions, ties) == (expected.statistic, expected.pvalue)


@given(st.lists(st.sampled_from([None, 0, 1, 4, 11]), min_size=2, max_size=20))
def test_trends_with_empty_bins_and_ties_match_scipy(ranks):
    counts = np.zeros((len(ranks), 12), int)
    for place, rank in enumerate(ranks):
        if rank is not None:
            counts[place, rank] = 3
    filled = np.array([rank is not None for rank in ranks])
    places = ((np.arange(len(ranks)) + 0.5) / len(ranks))[filled]
    scores = average_gains(counts, NDCG_AT_10)[filled]
    assume(len(set(scores)) > 1)
    trend = fit_trend(counts)
    line = linregress(places, scores)
    order = spearmanr(places, scores)
    assert trend["slope"] == pytest.approx(line.slope)
    assert trend["pearson"] == pytest.approx(line.rvalue)
    assert trend["spearman"] == pytest.approx(order.statistic)
    if len(scores) >= 5:
        assert trend["slope_p_value"] == pytest.approx(line.pvalue, abs=1e-9)
        assert trend["spearman_p_value"] == pytest.approx(order.pvalue, abs=1e-9)
