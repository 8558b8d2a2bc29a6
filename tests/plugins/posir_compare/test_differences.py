"""Intervals of differences: worked examples, and coverage in simulations with known true differences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posir_compare.differences import (
    Estimate,
    draw_psi_differences,
    ndcg_difference_interval,
    posterior_interval,
    posterior_p_value,
    posterior_psi,
)
from posir_compare.permutation import pooled_correlation
from posir_psi import psi
from posir_significance.group_means import compute_group_means
from posir_significance.intervals import ndcg_intervals, psi_interval
from posir_significance.true_score_model import draw_true_scores
from posir_tasks.profile import NDCG_AT_10
from tests.support.comparison import FLAT, SLOPE, STEP, draw_joint_counts
from tests.support.simulation import psi_p_value


def test_square_and_add_is_newcombes_worked_example():
    # Newcombe 1998, Statistics in Medicine 17, 873-890, table II, example (a), method 10: 56/70 against 48/80.
    first, second = Estimate(48 / 80, 0.4904, 0.7004), Estimate(56 / 70, 0.6916, 0.8774)
    assert ndcg_difference_interval(first, second, 0.0) == pytest.approx((0.0524, 0.3339), abs=2e-3)


@given(st.lists(st.floats(0, 1), min_size=6, max_size=6), st.floats(-1, 1))
def test_interval_of_a_difference_is_antisymmetric_and_contains_the_observed_one(values, correlation):
    a, b = (Estimate(value, low, high) for low, value, high in (sorted(values[:3]), sorted(values[3:])))
    low, high = ndcg_difference_interval(a, b, correlation)
    assert low <= b.value - a.value <= high
    assert ndcg_difference_interval(b, a, correlation) == pytest.approx((-high, -low))


def psi_difference_draws(joint, paired):
    """The draws of `compare_pair`, but fewer."""
    a, b = joint.sum(axis=2), joint.sum(axis=1)
    p_values = psi_p_value(a, 100), psi_p_value(b, 100)
    return draw_psi_differences(a, b, p_values, pooled_correlation(joint) if paired else 0.0, 500)


def estimate(joint, axis):
    counts = joint.sum(axis=(0, axis))
    ((low, high),) = ndcg_intervals(compute_group_means(counts[None]))
    return Estimate(float(counts @ NDCG_AT_10) / counts.sum(), low, high)


@pytest.mark.parametrize(
    ("a", "b"),
    [(SLOPE, SLOPE), pytest.param(FLAT, SLOPE, marks=pytest.mark.slow), (STEP, SLOPE - 0.1)],
    ids=["same", "flat and slope", "step and slope"],
)
@pytest.mark.parametrize("paired", [True, False])
def test_intervals_cover_the_truth(a, b, paired):
    found = []
    for seed in range(200):
        joint = draw_joint_counts(a, b, 3000, seed, 0.6 if paired else 0.0)
        correlation = pooled_correlation(joint.sum(axis=0, keepdims=True)) if paired else 0.0
        ndcg = ndcg_difference_interval(estimate(joint, 2), estimate(joint, 1), correlation)
        low, high = posterior_interval(psi_difference_draws(joint, paired))
        found.append([ndcg[0] <= (b - a).mean() <= ndcg[1], low <= psi(b) - psi(a) <= high])
    shares = np.mean(found, axis=0)
    assert 0.92 <= shares[0] <= 0.98
    assert shares[1] >= 0.9


@pytest.mark.parametrize("paired", [True, False])
def test_a_difference_in_level_is_not_taken_for_one_in_psi(paired):
    found, observed = [], []
    for seed in range(200):
        joint = draw_joint_counts(np.full(20, 0.85), np.full(20, 0.45), 2000, seed, 0.6 if paired else 0.0)
        found.append(posterior_p_value(psi_difference_draws(joint, paired)) < 0.05)
        observed.append(psi(compute_group_means(joint.sum(axis=1)).means) - psi(compute_group_means(joint.sum(axis=2)).means))
    assert np.mean(observed) > 0.15
    assert np.mean(found) <= 0.07


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.2, 0.5]))
def test_posterior_psi_has_the_interval_of_the_model(seed, fall):
    counts = draw_joint_counts(np.linspace(0.7, 0.7 - fall, 8), FLAT[:8], 600, seed).sum(axis=2)
    p_value = psi_p_value(counts, 100)
    values = posterior_psi(draw_true_scores(compute_group_means(counts)), p_value)
    low, high = psi_interval(counts, p_value)
    ends = posterior_interval(values)
    assert ends == pytest.approx((low, high), abs=0.01)


def test_interval_and_p_value_of_psi_agree():
    for values in (np.linspace(-0.1, 0.9, 1000), np.linspace(-0.02, 0.9, 1000), np.linspace(-0.9, 0.01, 1000)):
        low, high = posterior_interval(values)
        assert (posterior_p_value(values) < 0.05) == (low > 0 or high < 0)
    assert posterior_p_value(np.zeros(10)) == 1
