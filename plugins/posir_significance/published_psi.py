"""The published PSI, and the PSI that chance alone would give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from posir_psi.scores import compute_psi
from posir_significance.observations import Floats, Integers, Observations
from posir_significance.regression import compute_symmetric_root
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.means import Z

#: Number of null samples of the published PSI.
NULL_SAMPLES = 999
#: Quantiles of the central 90% of the null samples.
CHANCE_QUANTILES = (0.05, 0.95)
#: Seed for all random samples.
SEED = 20260108
#: Maximum number of clusters for random signs. Sums over more clusters are approximately normal.
MAX_CLUSTERS = 1500
#: Maximum number of bins whose samples are evaluated together, unless a group has more: 2.6 MB.
BLOCK_BINS = 320


class PublishedPsi(NamedTuple):
    """PSI as published, 1 - worst / best bin, and PSI by chance; None if undefined."""

    observed: Estimate | None = None
    by_chance: Estimate | None = None
    """The mean of the null samples, with their central 90% as the interval."""


@dataclass(frozen=True, eq=False)
class BinScores:
    """Mean gains of the B non-empty position bins, and their variation without a position effect.

    As in the published PSI, different bins contain different documents.
    """

    indices: Integers
    """Indices of the non-empty bins, shape (B,)."""
    scores: Floats
    """Observed scores, shape (B,)."""
    level: float
    """Mean gain."""
    deviations: Floats
    """Contribution of each cluster to the scores, shape (C, B). The sum of outer products is the
    covariance of the scores.
    """

    def sample_null(self) -> Floats:
        """Sample scores without a position effect by randomly flipping the signs of the clusters'
        contributions, shape (NULL_SAMPLES, B).

        This is the wild cluster bootstrap with the effect restricted to 0 (Cameron, Gelbach &
        Miller 2008, Review of Economics and Statistics 90, 414-427).
        """
        clusters, bins = self.deviations.shape
        if clusters > MAX_CLUSTERS:
            root = compute_symmetric_root(self.deviations.T @ self.deviations)
            return self.level + _sample_normals(bins) @ root
        sums = _sample_signs()[:, :clusters] @ self.deviations.astype(np.float32)
        return self.level + sums.astype(np.float64)


def score_bins(observations: Observations) -> BinScores | None:
    """Score the non-empty position bins; None if all gains are 0."""
    if not observations.gains.any():
        return None
    cells = observations.layout.bin_cells
    gains = observations.gains[observations.layout.query]
    level = float(gains.mean())
    size = len(cells.bins)
    deviations = (gains - level) / cells.counts[cells.columns]
    rows = np.bincount(cells.cells, deviations, cells.clusters * size).astype(np.float64)
    scores = np.bincount(cells.columns, gains) / cells.counts
    return BinScores(cells.bins, scores, level, rows.reshape(-1, size))


@cache
def _find_thread_pools() -> ThreadpoolController:
    return ThreadpoolController()


@cache
def _sample_signs() -> NDArray[np.float32]:
    """Sample signs of clusters, shape (NULL_SAMPLES, 2 * MAX_CLUSTERS)."""
    signs = np.random.default_rng(SEED).integers(0, 2, (NULL_SAMPLES, 2 * MAX_CLUSTERS), np.int8)
    return signs.astype(np.float32) * 2 - 1


@cache
def _sample_normals(bins: int) -> Floats:
    """Sample standard normal values, shape (NULL_SAMPLES, bins)."""
    return np.random.default_rng(SEED).standard_normal((NULL_SAMPLES, bins))


def estimate_psi(groups: Sequence[Observations]) -> list[PublishedPsi]:
    """Estimate the PSI of each group together, since a call takes longer than its arithmetic. It is
    undefined if queries have several evidence spans.
    """
    most_bins = max((group.layout.bins for group in groups), default=1)
    size = max(BLOCK_BINS // most_bins, 1)
    estimates: list[PublishedPsi] = []
    for start in range(0, len(groups), size):
        estimates += _estimate_block(groups[start : start + size], most_bins)
    return estimates


def _estimate_block(groups: Sequence[Observations], most_bins: int) -> list[PublishedPsi]:
    estimates = [PublishedPsi()] * len(groups)
    sampled: list[int] = []
    # Minima and maxima over the bins are faster if the samples of a bin are adjacent. Bins that a
    # group lacks are NaN.
    samples = np.full((len(groups), most_bins, NULL_SAMPLES), np.nan)
    # A second thread takes longer to wait than to compute, and rounds sums differently.
    with _find_thread_pools().limit(limits=1, user_api="blas"):
        for index, group in enumerate(groups):
            bins = None if len(group.layout.weights) else score_bins(group)
            if bins is None:
                continue
            estimates[index] = PublishedPsi(Estimate(float(compute_psi(bins.scores))))
            size = len(bins.indices)
            if size > 1:
                samples[len(sampled), :size] = bins.sample_null().T
                sampled.append(index)
    np.clip(samples, 0, 1, out=samples)
    values = compute_psi(np.moveaxis(samples[: len(sampled)], 1, -1))
    for index, by_chance in zip(sampled, _summarize_samples(values), strict=True):
        estimates[index] = estimates[index]._replace(by_chance=by_chance)
    return estimates


def _summarize_samples(values: Floats) -> list[Estimate]:
    """Summarize samples of PSI, shape (groups, samples); NaN counts as missing."""
    summary = np.vstack([np.quantile(values, CHANCE_QUANTILES, axis=1), values.mean(axis=1)])
    for index in np.flatnonzero(np.isnan(summary[-1])):
        defined = values[index, ~np.isnan(values[index])]
        summary[:, index] = [*np.quantile(defined, CHANCE_QUANTILES), defined.mean()]
    return [
        Estimate(mean, (min(low, mean), max(high, mean))) for low, high, mean in summary.T.tolist()
    ]


def estimate_chance_band(observations: Observations) -> Floats:
    """Estimate the central 95% of each bin's score without a position effect: lower and upper ends,
    shape (2, P), NaN for empty bins.

    The band is pointwise: without a position effect, 1 in 20 bins falls outside on average.
    """
    band = np.full((2, observations.layout.bins), np.nan)
    bins = score_bins(observations)
    if bins:
        errors = Z * np.sqrt((bins.deviations**2).sum(axis=0))
        band[:, bins.indices] = np.clip([bins.level - errors, bins.level + errors], 0, 1)
    return band
