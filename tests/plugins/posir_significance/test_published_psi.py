"""Test position bins and the samples of PSI by chance against pandas."""

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from posir_significance.observations import Observations
from posir_significance.published_psi import BLOCK_BINS, estimate_psi, score_bins
from posir_tasks.values.layouts import QueryLayout


def test_deviations_of_clusters_from_the_mean_equal_those_of_pandas():
    rng = np.random.default_rng(5)
    # Bins 3 and 7 are empty, and every third query is in two bins.
    first = rng.choice([0, 1, 2, 4, 5, 6], 90)
    rows = np.concatenate([np.arange(90), np.arange(0, 90, 3)])
    position = np.concatenate([first, np.full(30, 8)])
    clusters = rng.integers(0, 40, 90) * 2
    gains = rng.random(90)
    layout = QueryLayout(np.zeros(90, np.int64), clusters, rows, position, 9)
    bins = score_bins(Observations(gains, layout))
    frame = pd.DataFrame({"cluster": clusters[rows], "bin": position, "gain": gains[rows]})
    means = frame.groupby("bin")["gain"].mean()
    shares = (frame["gain"] - frame["gain"].mean()) / frame.groupby("bin")["gain"].transform("size")
    expected = shares.groupby([frame["cluster"], frame["bin"]]).sum().unstack(fill_value=0)
    assert bins.indices.tolist() == list(means.index)
    assert bins.scores == pytest.approx(means.to_numpy())
    assert bins.deviations == pytest.approx(expected.to_numpy())


def build_observations(rng, queries, *, bins=5, success=0.5, weight=None):
    """Build random gains, two queries per cluster. A weight marks several evidence spans."""
    rows = np.arange(queries)
    layout = QueryLayout(
        np.zeros(queries, np.int64),
        rows // 2,
        rows,
        rng.integers(0, bins, queries),
        bins,
        weights=np.full(queries if weight else 0, weight, float),
    )
    return Observations((rng.random(queries) < success).astype(float), layout)


def summarize_with_pandas(observations):
    """Compute PSI and PSI by chance of one group from its samples."""
    bins = score_bins(observations)
    samples = pd.DataFrame(bins.sample_null()).clip(0, 1)
    psi = (1 - samples.min(axis=1) / samples.max(axis=1).replace(0, np.nan)).dropna()
    return 1 - bins.scores.min() / bins.scores.max(), psi.mean(), *psi.quantile([0.05, 0.95])


def test_psi_of_many_groups_equals_that_of_each_group():
    rng = np.random.default_rng(7)
    groups = [
        build_observations(rng, queries, bins=bins, success=success)
        for queries in (4, 12, 80, 300)
        for bins in (2, 5, 20)
        for success in (0.1, 0.5, 0.95)
    ]
    assert len(groups) > 2 * BLOCK_BINS // 20
    estimates = estimate_psi(groups)
    missing = set()
    for group, estimate in zip(groups, estimates, strict=True):
        (alone,) = estimate_psi([group])
        assert alone == estimate
        if not group.gains.any():
            assert estimate == (None, None)
            continue
        if estimate.by_chance is None:
            assert len(score_bins(group).indices) == 1
            continue
        psi, mean, low, high = summarize_with_pandas(group)
        missing.add(bool((score_bins(group).sample_null().max(axis=1) <= 0).any()))
        assert estimate.observed.value == pytest.approx(psi)
        assert estimate.by_chance.value == pytest.approx(mean)
        expected_interval = (min(low, mean), max(high, mean))
        assert estimate.by_chance.interval == pytest.approx(expected_interval)
    # With and without samples whose best bin is 0.
    assert missing == {True, False}


def test_psi_is_undefined_without_gains_or_with_several_evidence_spans():
    rng = np.random.default_rng(8)
    groups = [
        build_observations(rng, 30, success=0.0),
        build_observations(rng, 30, weight=0.5),
        build_observations(rng, 30),
    ]
    assert [estimate.observed is None for estimate in estimate_psi(groups)] == [True, True, False]
    assert [estimate.by_chance is None for estimate in estimate_psi(groups)] == [True, True, False]


@pytest.mark.parametrize("queries", [1400, 4000])
def test_psi_does_not_depend_on_the_number_of_threads(queries):
    groups = [build_observations(np.random.default_rng(6), queries, bins=20)]
    estimates = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            estimates.append(estimate_psi(groups))
    assert estimates[0] == estimates[1]
