"""The direction of the position effect on constructed profiles."""

import numpy as np
import pytest

from posir_report.summary import TaskSummary, build_rows
from posir_significance.analysis import analyze
from posir_significance.scores import fit_trend
from posir_significance.verdict import Verdict
from posir_tasks.plugin_api.scoring import score_result
from posir_tasks.profile import NDCG_AT_10, RANKS
from posir_tasks.scores import ResultValues
from posir_tasks.thirds import assign_thirds, bin_midpoints
from tests.support.scores import score_groups
from tests.support.simulation import build_profile, draw_counts, rank_distributions, separate_documents


def expected_counts(means, queries):
    """Counts (P, 12) that have almost exactly the given means, `queries` in each bin."""
    return np.round(rank_distributions(means) * queries).astype(np.int64)


@pytest.mark.parametrize("bins", [2, 3, 6, 20])
@pytest.mark.parametrize(
    ("curve", "verdict"),
    [
        (lambda x: 0.7 - 0.4 * x, "primacy"),
        (lambda x: 0.3 + 0.4 * x, "recency"),
        (lambda x: np.where(np.abs(x - 0.5) < 0.17, 0.3, 0.7), "middle dip"),
        (lambda x: np.where(np.abs(x - 0.5) < 0.17, 0.7, 0.3), "middle peak"),
        (lambda x: np.where(x < 0.34, 0.7, 0.3), "primacy"),
        (lambda x: np.where(x < 0.67, 0.3, 0.7), "recency"),
        (lambda x: np.full(len(x), 0.5), None),
    ],
)
def test_verdicts(bins, curve, verdict):
    row = judged(build_profile(expected_counts(curve(bin_midpoints(bins)), 2000 // bins)))
    middle = bins == 2 and verdict and "middle" in verdict
    assert row.verdict == (Verdict.NOT_SIGNIFICANT if middle else verdict or Verdict.NOT_SIGNIFICANT)


def judged(profile):
    """Return the row of all lengths of a report of a profile."""
    values = ResultValues(separate_documents(profile))
    return build_rows(TaskSummary("model", "1", "task", (), (), "", values, score_result(values)))[0]


def test_a_linear_trend_with_most_queries_early_is_not_a_dip():
    counts = np.concatenate(
        [expected_counts([mean], queries) for mean, queries in zip([0.7, 0.5, 0.3], [4000, 900, 600], strict=True)]
    )
    low, high = score_groups(build_profile(counts))["all"]["middle_to_ends_interval"]
    assert low < 0 < high


def test_length_does_not_confound_position():
    short = np.concatenate([expected_counts([0.8], 900), expected_counts([0.8], 500), expected_counts([0.8], 100)])
    long = np.concatenate([expected_counts([0.3], 100), expected_counts([0.3], 500), expected_counts([0.3], 900)])
    row = judged(build_profile(short, long))
    assert row.verdict is Verdict.NOT_SIGNIFICANT
    assert row.start_to_end.value == pytest.approx(0, abs=0.01)
    assert row.p_value > 0.05
    assert row.psi_as_published > 0.3


def test_contrast_of_one_length_is_the_difference_of_the_thirds():
    counts = draw_counts(np.linspace(0.8, 0.4, 6), 900, 2)
    gains, queries = counts @ NDCG_AT_10, counts.sum(axis=1)
    by_hand = gains[:2].sum() / queries[:2].sum() - gains[4:].sum() / queries[4:].sum()
    start_to_end = analyze(separate_documents(build_profile(counts))).overall.position.start_to_end
    assert start_to_end.value == pytest.approx(by_hand)
    assert start_to_end.interval[0] < by_hand < start_to_end.interval[1]


def test_thirds():
    assert assign_thirds(2).tolist() == [0, 2]
    assert assign_thirds(3).tolist() == [0, 1, 2]
    assert assign_thirds(6).tolist() == [0, 0, 1, 1, 2, 2]
    assert np.bincount(assign_thirds(20)).tolist() == [7, 6, 7]


def test_trend_of_a_straight_line():
    counts = np.zeros((6, len(RANKS)), np.int64)
    counts[:, 0], counts[:, -1] = [90, 80, 0, 60, 50, 40], [10, 20, 0, 40, 50, 60]
    trend = fit_trend(counts)
    assert trend.slope == pytest.approx(-0.6)
    assert trend.spearman == pytest.approx(-1)
    assert trend.slope_p_value < 1e-6
    counts[1:] = 0
    assert fit_trend(counts).slope is None


def test_correlations_are_those_of_their_definitions():
    shares = np.array([0.5, 0.8, 0.6, 0.6, 0.3, 0.4])
    counts = np.zeros((6, len(RANKS)), np.int64)
    counts[:, 0], counts[:, -1] = (100 * shares).round(), (100 * (1 - shares)).round()
    trend = fit_trend(counts)
    places = (np.arange(6) + 0.5) / 6
    deviations = places - places.mean(), shares - shares.mean()
    r = deviations[0] @ deviations[1] / np.sqrt((deviations[0] @ deviations[0]) * (deviations[1] @ deviations[1]))
    assert (trend.pearson, trend.r_squared) == (pytest.approx(r), pytest.approx(r**2))
    # Tau-b: the one tied pair is in the denominator once.
    signs = [np.sign(shares[b] - shares[a]) for a in range(6) for b in range(a + 1, 6)]
    assert trend.kendall == pytest.approx(sum(signs) / np.sqrt(15 * np.count_nonzero(signs)))
    assert 0.05 < trend.kendall_p_value < 0.3
    counts[:, 0] = counts[:, -1] = 50
    flat = fit_trend(counts)
    assert (flat.slope, flat.r_squared, flat.pearson, flat.kendall, flat.kendall_p_value) == (0, None, None, None, None)


def test_three_bins_in_order_have_no_p_value():
    """SciPy's is 0 for a rank correlation of 1, which three bins have by chance in one of three cases."""
    trend = fit_trend(expected_counts([0.7, 0.5, 0.3], 100))
    assert trend.spearman == pytest.approx(-1)
    assert trend.spearman_p_value is None
