"""Test intervals of mean nDCG@10 and its differences against SciPy, and their coverage."""

import numpy as np
import pytest
from scipy import stats

from posir_significance.intervals import estimate_difference, subtract_means
from posir_tasks.values.means import Z, compute_wilson_interval, estimate_mean


def test_wilson_interval_ends_are_z_errors_from_the_mean():
    for mean, trials in [(0.2, 40.0), (0.9, 10.0), (0.0, 25.0), (1.0, 25.0)]:
        for end in compute_wilson_interval(mean, trials):
            assert abs(mean - end) == pytest.approx(Z * np.sqrt(end * (1 - end) / trials), abs=1e-7)


def test_error_of_independent_queries_is_the_error_of_their_mean():
    gains = np.random.default_rng(1).random(400)
    mean = estimate_mean(gains, np.arange(400))
    assert mean.value == pytest.approx(gains.mean())
    assert mean.standard_error == pytest.approx(stats.sem(gains), rel=0.01)
    assert mean.design_effect == pytest.approx(1, abs=0.01)


def test_equal_queries_of_a_cluster_count_as_one():
    gains = np.random.default_rng(2).random(200)
    once, repeated = (
        estimate_mean(gains, np.arange(200)),
        estimate_mean(np.repeat(gains, 5), np.repeat(np.arange(200), 5)),
    )
    assert repeated.standard_error == pytest.approx(once.standard_error, rel=0.01)
    assert repeated.design_effect == pytest.approx(5, rel=0.02)


def test_error_of_a_mean_of_group_means():
    rng = np.random.default_rng(3)
    sizes = (50, 150)
    strata = np.repeat([0, 1], sizes)
    gains = np.concatenate([rng.random(50) / 2, 0.5 + rng.random(150) / 2])
    mean = estimate_mean(gains, np.arange(200), 0.5 / np.array(sizes)[strata], strata)
    errors = [stats.sem(gains[strata == group]) for group in (0, 1)]
    assert mean.value == pytest.approx((gains[:50].mean() + gains[50:].mean()) / 2)
    assert mean.standard_error == pytest.approx(np.hypot(*errors) / 2, rel=0.1)


def test_documents_count_as_trials_near_1_unless_queries_are_equal():
    documents = np.repeat(np.arange(100), 3)
    # Clopper and Pearson's interval for 100 successes in 100 documents.
    assert 0.95 < estimate_mean(np.ones(300), documents).interval[0] < 0.025 ** (1 / 100)
    failed = (np.isin(np.arange(300), failures) for failures in ([0, 1, 2], [0, 3, 6]))
    trials = [
        estimate_mean(1.0 - failures, documents, max_trials=np.inf).trials for failures in failed
    ]
    assert 95 < trials[0] < 105 < 200 < trials[1] < 300
    # Two thirds of the queries are about ten documents, on which no query failed.
    assert (
        estimate_mean(
            np.repeat([1.0, 0.0], [287, 3]), np.repeat(np.arange(100), [20] * 10 + [1] * 90)
        ).trials
        < 100
    )


@pytest.mark.parametrize(
    ("documents", "questions", "icc"), [(1_500, 1, 0.0), (300, 5, 0.4), (100, 15, 0.2)]
)
def test_intervals_cover_new_documents(documents, questions, icc):
    covered = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        # Beta-binomial: documents differ in difficulty; `icc` correlates two of their questions.
        strength = (1 - icc) / max(icc, 1e-9)
        levels = (
            rng.beta(0.8 * strength, 0.2 * strength, documents) if icc else np.full(documents, 0.8)
        )
        gains = (rng.random((documents, questions)) < levels[:, None]).astype(float).ravel()
        low, high = estimate_mean(gains, np.repeat(np.arange(documents), questions)).interval
        covered.append(low <= 0.8 <= high)
    assert 0.91 <= np.mean(covered) <= 0.98


def sample_differences(queries, seed=1):
    return np.random.default_rng(seed).choice(
        [-1.0, -0.5, 0.0, 0.5, 1.0], queries, p=[0.05, 0.15, 0.5, 0.15, 0.15]
    )


def test_single_query_clusters_match_the_one_sample_t_test():
    values = sample_differences(400)
    difference, theirs = estimate_difference(values, np.arange(400)), stats.ttest_1samp(values, 0)
    assert difference.value == pytest.approx(values.mean())
    assert difference.p_value == pytest.approx(theirs.pvalue, rel=0.03)
    assert difference.interval == pytest.approx(tuple(theirs.confidence_interval()), abs=3e-4)


def test_unpaired_clusters_match_welchs_test():
    a, b = (np.abs(sample_differences(size, seed)) for size, seed in ((300, 1), (150, 2)))
    means = subtract_means(*(estimate_mean(value, np.arange(len(value))) for value in (a, b)))
    theirs = stats.ttest_ind(b, a, equal_var=False)
    assert means.p_value == pytest.approx(theirs.pvalue, rel=0.03)


def test_equal_models_have_a_wide_interval_and_p_1():
    difference = estimate_difference(np.zeros(100), np.arange(100) // 4)
    assert difference.p_value == 1
    assert 0 < difference.interval[1] < 0.02


def test_one_document_has_no_interval():
    assert {
        estimate_difference(sample_differences(size), np.zeros(size, np.int64)) for size in (0, 20)
    } == {None}
    mean = estimate_mean(np.array([0.5, 1.0]), np.zeros(2, np.int64))
    assert (
        mean.interval
        is subtract_means(mean, mean)
        is estimate_mean(np.zeros(0), np.zeros(0, int))
        is None
    )
