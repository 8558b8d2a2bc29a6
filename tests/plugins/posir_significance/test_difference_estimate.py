"""Differences of mean nDCG@10 against SciPy."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_ind

from posir_significance.intervals import estimate_difference, estimate_mean, subtract_means


def draw_differences(queries, seed=1):
    return np.random.default_rng(seed).choice([-1.0, -0.5, 0.0, 0.5, 1.0], queries, p=[0.05, 0.15, 0.5, 0.15, 0.15])


def test_single_query_clusters_give_the_one_sample_t_test():
    values = draw_differences(400)
    difference, theirs = estimate_difference(values, np.arange(400)), ttest_1samp(values, 0)
    assert difference.value == pytest.approx(values.mean())
    assert difference.p_value == pytest.approx(theirs.pvalue, rel=0.03)
    assert difference.interval == pytest.approx(tuple(theirs.confidence_interval()), abs=3e-4)


def test_equal_clusters_give_the_t_test_of_their_means():
    values = np.repeat(draw_differences(80), 5)
    difference, theirs = estimate_difference(values, np.repeat(np.arange(80), 5)), ttest_1samp(values[::5], 0)
    assert difference.p_value == pytest.approx(theirs.pvalue, rel=0.02)


def test_unpaired_clusters_give_welchs_test():
    a, b = (np.abs(draw_differences(size, seed)) for size, seed in ((300, 1), (150, 2)))
    means = subtract_means(*(estimate_mean(value, np.arange(len(value))) for value in (a, b)))
    theirs = ttest_ind(b, a, equal_var=False)
    assert means.p_value == pytest.approx(theirs.pvalue, rel=0.03)


def test_equal_models_have_an_interval_of_positive_width_and_p_1():
    difference = estimate_difference(np.zeros(100), np.arange(100) // 4)
    assert difference.p_value == 1
    assert 0 < difference.interval[1] < 0.02


def test_one_document_has_no_interval():
    assert estimate_difference(draw_differences(20), np.zeros(20, np.int64)) is None
    assert estimate_difference(np.zeros(0), np.zeros(0, np.int64)) is None
    mean = estimate_mean(np.array([0.5, 1.0]), np.zeros(2, np.int64))
    assert subtract_means(mean, mean) is None
