"""Test position bins and the samples of PSI by chance against pandas."""

import numpy as np
import pandas as pd
import pytest
from threadpoolctl import threadpool_limits

from posir_significance.analysis import BinScores, score_bins
from posir_significance.observations import Observations
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


@pytest.mark.parametrize("clusters", [700, 1400])
def test_samples_do_not_depend_on_the_number_of_threads(clusters):
    deviations = np.random.default_rng(6).normal(size=(clusters, 20))
    bins = BinScores(np.arange(20), np.zeros(20), 0.5, deviations)
    samples = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            samples.append(bins.sample_null())
    np.testing.assert_array_equal(*samples)
