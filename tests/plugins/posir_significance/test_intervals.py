"""Intervals of nDCG@10 and PSI: their coverage in simulations with known true scores."""

import numpy as np
import pytest
from posir_significance.group_means import compute_group_means

from posir_psi import psi
from posir_significance.intervals import Z, bucket_interval, ndcg_intervals, psi_interval, wilson_interval
from posir_significance.true_score_model import draw_true_scores
from posir_tasks.profile import RANKS
from tests.support.simulation import draw_counts, psi_p_value


def test_ends_of_the_wilson_interval_are_z_standard_errors_from_the_mean():
    mean, sizes = np.array([0.2, 0.9, 0.0, 1.0]), np.array([40.0, 10.0, 25.0, 25.0])
    for end in wilson_interval(mean, sizes):
        np.testing.assert_allclose(np.abs(mean - end), Z * np.sqrt(end * (1 - end) / sizes), atol=1e-7)


def test_dispersion_is_1_where_gains_are_0_or_1():
    counts = np.zeros((2, len(RANKS)), np.int64)
    counts[:, 0], counts[:, -1] = [400, 200], [100, 300]
    assert compute_group_means(counts).dispersion == pytest.approx(1, abs=0.01)
    np.testing.assert_allclose(
        compute_group_means(counts).sampling_variances(np.array([0.8, 0.4])), [0.16 / 500, 0.24 / 500], rtol=0.01
    )


@pytest.mark.parametrize(
    ("means", "queries"),
    [
        pytest.param(np.linspace(0.6, 0.4, 20), 2000, marks=pytest.mark.slow),
        (np.where(np.arange(20) < 12, 0.85, 0.5), 500),
        (np.array([0.8, 0.5, 0.75]), 500),
    ],
    ids=["slope", "step", "dip"],
)
def test_intervals_cover_the_truth(means, queries):
    covered = []
    for seed in range(300):
        counts = draw_counts(means, queries, seed)
        p_value = psi_p_value(counts, draws=200)
        low, high = psi_interval(counts, p_value)
        overall = ndcg_intervals(compute_group_means(counts.sum(axis=0, keepdims=True)))[0]
        mean_of_bins = bucket_interval(compute_group_means(counts))
        bins = ndcg_intervals(compute_group_means(counts))
        covered.append(
            [
                low <= psi(means) <= high,
                overall[0] <= means.mean() <= overall[1],
                mean_of_bins[0] <= means.mean() <= mean_of_bins[1],
                np.mean([bin[0] <= mean <= bin[1] for bin, mean in zip(bins, means, strict=True)]),
            ]
        )
    shares = np.mean(covered, axis=0)
    assert (shares >= 0.92).all(), shares
    assert (shares <= 0.99).all(), shares


@pytest.mark.parametrize("queries", [500, *(pytest.param(more, marks=pytest.mark.slow) for more in (2000, 42_000))])
def test_intervals_cover_a_clear_decline(queries):
    means, covered = np.linspace(0.8, 0.3, 20), []
    for seed in range(500):
        counts = draw_counts(means, queries, seed)
        low, high = psi_interval(counts, psi_p_value(counts, draws=200))
        (overall,) = ndcg_intervals(compute_group_means(counts.sum(axis=0, keepdims=True)))
        covered.append([low <= psi(means) <= high, overall[0] <= means.mean() <= overall[1]])
    shares = np.mean(covered, axis=0)
    assert (shares >= 0.92).all(), shares
    assert (shares <= 0.98).all(), shares


def test_true_scores_vary_less_than_observed_ones_without_a_position_effect():
    counts = draw_counts(np.full(20, 0.5), 1000, 1)
    posterior = draw_true_scores(compute_group_means(counts))
    assert posterior.scores.shape == posterior.means.shape == (1000, 20)
    assert np.median(psi(posterior.scores)) < float(psi(compute_group_means(counts).means)) / 2


def test_interval_excludes_0_only_where_psi_is_significant():
    counts = draw_counts(np.linspace(0.8, 0.3, 20), 2000, 1)
    assert psi_interval(counts, 0.049)[0] > 0
    assert psi_interval(counts, 0.05)[0] == 0
