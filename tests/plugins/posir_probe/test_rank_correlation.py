"""Spearman's correlation over models and families, against SciPy and simulations."""

from itertools import permutations
from math import asin, pi

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata, spearmanr

from posir_probe.correlation import (
    count_needed,
    describe_needed,
    estimate_family_rho,
    estimate_rho,
    find_interval,
    jackknife_interval,
    permutation_p_value,
    permute_families,
)


def draw_models(rng, families, variants, rho, within):
    """Two values of each model, correlated by rho, of which a share `within` of the variance is the family's."""
    covariance = [[1, rho], [rho, 1]]
    shared = np.repeat(rng.multivariate_normal([0, 0], covariance, families), variants, axis=0)
    own = rng.multivariate_normal([0, 0], covariance, families * variants)
    return (np.sqrt(within) * shared + np.sqrt(1 - within) * own).T


def test_rho_and_p_value_of_independent_models_are_those_of_scipy():
    rng = np.random.default_rng(1)
    x, y = draw_models(rng, 14, 1, 0.5, 0)
    rho, p_value = estimate_family_rho(x, y, list("abcdefghijklmn"))
    assert rho.value == pytest.approx(pd.Series(x).corr(pd.Series(y), method="spearman"))
    assert p_value == pytest.approx(spearmanr(x, y).pvalue, abs=0.02)
    assert estimate_rho(x, y)[1] == spearmanr(x, y).pvalue
    assert rho.interval == find_interval(rho.value, 14)
    assert estimate_family_rho(x[:2], y[:2], ["a", "b"]) == (None, None)
    assert estimate_family_rho(np.ones(9), y[:9], list("abcdefghi")) == (None, None)


def test_p_value_of_a_few_models_is_that_of_all_their_orders():
    x, y = draw_models(np.random.default_rng(6), 7, 1, 0.6, 0)
    orders = np.array(list(permutations(rankdata(y) - 4)))
    statistics = np.abs(orders @ (rankdata(x) - 4))
    exact = np.mean(statistics >= statistics[0] - 1e-9)
    assert permutation_p_value(x, y, np.arange(7)) == pytest.approx(exact, abs=0.02)


def test_permutations_keep_families_together():
    orders = permute_families((0, 0, 1, 1, 1, 2))
    assert np.array_equal(np.sort(orders, axis=1), np.tile(np.arange(6), (len(orders), 1)))
    labels = np.array([0, 0, 1, 1, 1, 2])[orders]
    assert (np.diff(labels, axis=1) != 0).sum(axis=1).max() == 2
    assert len(np.unique(orders, axis=0)) == 6 * 2 * 6


def test_jackknife_by_hand():
    rng = np.random.default_rng(3)
    families = np.repeat(np.arange(6), [3, 1, 2, 3, 3, 2])
    x = rng.normal(size=14)
    y = x + rng.normal(size=14)
    z_values = []
    for family in range(6):
        kept = families != family
        z_values.append(np.arctanh(np.corrcoef(rankdata(x[kept]), rankdata(y[kept]))[0, 1]))
    half = 2.570582 * np.sqrt(5 / 6 * np.sum((np.array(z_values) - np.mean(z_values)) ** 2))
    z = np.arctanh(np.corrcoef(rankdata(x), rankdata(y))[0, 1])
    assert jackknife_interval(x, y, families) == pytest.approx((np.tanh(z - half), np.tanh(z + half)))
    assert jackknife_interval(x, y, families // 2) is None
    assert jackknife_interval(x, x, families) is None


def test_families_are_tested_at_their_level_and_their_interval_holds():
    rng = np.random.default_rng(4)
    families = np.repeat(np.arange(12), 3)
    rejected, naive, held = [], [], []
    for _ in range(100):
        x, y = draw_models(rng, 12, 3, 0, 0.8)
        rejected.append(permutation_p_value(x, y, families) < 0.05)
        naive.append(spearmanr(x, y).pvalue < 0.05)
        low, high = jackknife_interval(x, y, families)
        held.append(low <= 0 <= high)
    assert np.mean(rejected) <= 0.10
    assert np.mean(naive) > 0.12
    assert np.mean(held) >= 0.90


@pytest.mark.parametrize("rho", [0.4, 0.7])
def test_as_many_models_as_are_said_to_be_needed_have_the_power(rho):
    needed = count_needed(rho)
    rng = np.random.default_rng(5)
    excludes = []
    for _ in range(400):
        # Pearson's correlation of normal values whose rank correlation is rho.
        x, y = draw_models(rng, needed, 1, 2 * np.sin(pi * rho / 6), 0)
        low, high = find_interval(estimate_rho(x, y)[0].value, needed)
        excludes.append(not low <= 0 <= high)
    assert 6 / pi * asin(np.sin(pi * rho / 6)) == pytest.approx(rho)
    assert np.mean(excludes) == pytest.approx(0.80, abs=0.07)


def test_numbers_of_models_in_words():
    assert count_needed(0.0) is None
    assert describe_needed(None) == "over 10,000"
    assert describe_needed(count_needed(0.5)) == "about 33"
    assert count_needed(1.0) == count_needed(-1.0) == 5
