"""Means over queries with 95% intervals for new documents.

A test simulates the coverage of the intervals. Import this module inside functions, since importing
SciPy is slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from posir_tasks.base.arrays import Booleans, Floats, Integers
from posir_tasks.base.caching import cache_recent
from posir_tasks.values.estimates import Estimate, Interval

#: Quantiles of a central 95% interval.
TAILS = (0.025, 0.975)
#: Standard normal quantile of a two-sided 95% interval.
Z = float(ndtri(TAILS[1]))
#: Significance level.
ALPHA = 0.05
#: Confidence level of intervals.
LEVEL = 0.95
#: Maximum Bernoulli trials per query, since graded gains vary less than a Bernoulli trial.
MAX_TRIALS = 2.0
#: Share and effective number of the rarer outcome (failure or success) up to which the predicted
#: variance replaces the measured one. Above twice these limits, only the measured one is used.
#: Chosen by the coverage of intervals, like `PSEUDO_CLUSTERS` (docs/measured.md).
MAX_RARE_SHARE = 0.1
MAX_RARE_EVENTS = 5
#: Number of pseudo-clusters with equal queries in the predicted variance.
PSEUDO_CLUSTERS = 0.4
#: Lower bound of divisors.
TINY = 1e-12
#: Maximum number of cells if empty cells are kept. Removing them takes a sort.
MAX_CELLS = 2**14
#: Number of cached joint designs, and number of queries up to which there may be more.
CACHED_DESIGNS, CACHED_QUERIES = 8, 1_000_000


@dataclass(frozen=True)
class MeanEstimate(Estimate):
    """A mean nDCG@10 in [0, 1] with its variation over samples of documents."""

    standard_error: float = 0.0
    """Standard error of the mean over new clusters; positive."""
    design_effect: float = 1.0
    """Variance of the mean relative to independent queries."""
    degrees: float = 0.0
    """Degrees of freedom of the standard error; 0 without an interval (fewer than two clusters)."""
    trials: float = 0.0
    """Number of Bernoulli trials with the same variance; 0 without an interval."""

    def compute_interval(self, level: float) -> Interval:
        """Compute the interval at a level in (0, 1). The estimate must have a 95% interval."""
        quantile = float(stdtrit(self.degrees, (1 + level) / 2))
        return compute_wilson_interval(self.value, self.trials, quantile)


def estimate_mean(
    gains: Floats,
    clusters: Integers,
    weights: Floats | None = None,
    strata: Integers | None = None,
    max_trials: float = MAX_TRIALS,
) -> MeanEstimate | None:
    """Estimate the mean of queries that are dependent within clusters. Return None without queries.

    The squared standard error is D / (D - 1) sum (sum w (g - m))^2, with the inner sum over the
    queries of each of D clusters (linearization: Cochran 1977, Sampling Techniques, section 6.3).
    For means near 0 and 1, `_predict_variance` is its lower bound. The interval is Wilson's score
    interval for the number of Bernoulli trials with the same error and for a t quantile with N^2 /
    sum N_c^2 - 1 degrees of freedom.

    Args:
        gains: nDCG@10 of each query, shape (n,).
        clusters: Article or document of each query, from 0, shape (n,).
        weights: Weight of each query, shape (n,), with sum 1; defaults to 1 / n.
        strata: Stratum of each query, from 0, shape (n,), if the mean is a weighted mean of stratum
            means.
        max_trials: Maximum number of Bernoulli trials per query.
    """
    if not len(gains):
        return None
    return estimate_means(gains, build_design(clusters, weights, strata=strata), max_trials)[0]


def estimate_means(
    gains: Floats, design: MeanDesign, max_trials: float = MAX_TRIALS
) -> list[MeanEstimate | None]:
    """Estimate the mean of each group of a design as `estimate_mean` does; None without queries."""
    linearization = linearize(gains, design)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.minimum(np.maximum(linearization.means, 0.0), 1.0)
        expected_variances = np.maximum(
            _predict_variance(gains, design, linearization), linearization.variances
        )
        rarer = np.minimum(means, 1 - means) + 0.5 / design.counts
        evidence = np.maximum(
            rarer / MAX_RARE_SHARE,
            rarer * linearization.bounds / expected_variances / MAX_RARE_EVENTS,
        )
        blend = np.minimum(np.maximum(2 - evidence, 0.0), 1.0)
        widened_variances = linearization.variances + blend * (
            expected_variances - linearization.variances
        )
        limits = max_trials / design.squared_shares
        trials = np.minimum(linearization.bounds / widened_variances, limits)
        design_effects = linearization.variances / linearization.independent_variances
        lows, highs = compute_wilson_bounds(means, trials, design.quantiles)
        errors = np.where(design.degrees, widened_variances, linearization.independent_variances)
    intervals = zip(lows.tolist(), highs.tolist(), strict=True)
    columns = (means, errors, design_effects, design.degrees, trials, design.counts)
    estimates: list[MeanEstimate | None] = []
    for interval, row in zip(intervals, np.stack(columns, axis=1).tolist(), strict=True):
        mean, variance, design_effect, degrees, trial_count, queries = row
        if not queries:
            estimates.append(None)
        elif not degrees:
            estimates.append(MeanEstimate(mean, None, variance**0.5))
        else:
            estimate = MeanEstimate(
                mean, interval, variance**0.5, design_effect, degrees, trial_count
            )
            estimates.append(estimate)
    return estimates


def estimate_jointly(
    gains: Sequence[Floats], designs: Sequence[MeanDesign]
) -> list[list[MeanEstimate | None]]:
    """Estimate the means of each of several designs as `estimate_means` does, but together."""
    if not designs:
        return []
    means = iter(estimate_means(np.concatenate(gains), join_designs(tuple(designs))))
    return [list(islice(means, design.size)) for design in designs]


@dataclass(frozen=True, eq=False)
class MeanDesign:
    """What means of G groups of n queries need besides gains, equal for all models of a task."""

    clusters: Integers
    """Cluster of each query, shape (n,)."""
    shares: Floats
    """Weight of each query, with sum 1 in each group, shape (n,)."""
    groups: Integers
    """Group of each query, shape (n,)."""
    strata: Integers | None
    """Stratum of each query, shape (n,); None without strata."""
    counts: Integers
    """Number of queries, shape (G,)."""
    cells: Integers
    """Cell of each query, shape (n,). A cell is a cluster within a group."""
    cell_groups: Integers
    """Group of each cell, shape (cells,)."""
    sizes: Floats
    """Weight of each cell, shape (cells,)."""

    @property
    def size(self) -> int:
        """Number of groups."""
        return len(self.counts)

    @cached_property
    def cluster_counts(self) -> Floats:
        """Number of clusters, shape (G,)."""
        return _sum_by_group(self.cell_groups, self.sizes > 0, self.size)

    @cached_property
    def squared_weights(self) -> Floats:
        """Sum of the squared weights of clusters, shape (G,)."""
        return _sum_by_group(self.cell_groups, self.sizes**2, self.size)

    @cached_property
    def squared_shares(self) -> Floats:
        """Sum of the squared weights of queries, shape (G,)."""
        return _sum_by_group(self.groups, self.shares**2, self.size)

    @cached_property
    def largest_shares(self) -> Floats:
        """Largest weight of a query, shape (G,)."""
        largest = np.zeros(self.size)
        np.maximum.at(largest, self.groups, self.shares)
        return largest

    @cached_property
    def degrees(self) -> Floats:
        """Degrees of freedom of the variance for new clusters, shape (G,); 0 with fewer than two
        clusters.
        """
        degrees = np.maximum(1 / np.maximum(self.squared_weights, TINY) - 1, 1.0)
        return np.where(self.cluster_counts > 1, degrees, 0.0)

    @cached_property
    def quantiles(self) -> Floats:
        """Quantile of Student's t for a 95% interval, shape (G,); NaN without clusters."""
        quantiles: Floats = stdtrit(self.degrees, (1 + LEVEL) / 2)
        return quantiles

    @cached_property
    def stratum_counts(self) -> Integers:
        """Number of queries of each stratum, at least 1."""
        assert self.strata is not None
        return np.maximum(np.bincount(self.strata), 1)


def build_design(
    clusters: Integers,
    shares: Floats | None = None,
    groups: Integers | None = None,
    size: int = 1,
    strata: Integers | None = None,
) -> MeanDesign:
    """Build the design of the means of `size` groups of queries, or of all queries without groups.

    Columns have shape (n,). Without `shares`, all n queries have the weight 1 / n.
    """
    if shares is None:
        shares = np.full(len(clusters), 1 / max(len(clusters), 1))
    if groups is None:
        groups = np.zeros(len(clusters), np.int64)
    width = int(clusters.max(initial=0)) + 1
    cells = groups * width + clusters
    keys = np.arange(size * width)
    if len(keys) > MAX_CELLS:
        keys, cells = np.unique(cells, return_inverse=True)
    return MeanDesign(
        clusters,
        shares,
        groups,
        strata,
        counts=np.bincount(groups, minlength=size),
        cells=cells,
        cell_groups=keys // width,
        sizes=_sum_by_group(cells, shares, len(keys)),
    )


@cache_recent(CACHED_DESIGNS, CACHED_QUERIES, lambda design: len(design.clusters))
def join_designs(designs: tuple[MeanDesign, ...]) -> MeanDesign:
    """Join one or more designs, all with strata or all without, to a design of all their groups."""
    if len(designs) == 1:
        return designs[0]
    group_counts = [design.size for design in designs]
    cell_counts = [len(design.sizes) for design in designs]
    strata = [design.strata for design in designs if design.strata is not None]
    stratum_counts = [len(design.stratum_counts) for design in designs if strata]
    return MeanDesign(
        clusters=np.concatenate([design.clusters for design in designs]),
        shares=np.concatenate([design.shares for design in designs]),
        groups=_join([design.groups for design in designs], group_counts),
        strata=_join(strata, stratum_counts) if strata else None,
        counts=np.concatenate([design.counts for design in designs]),
        cells=_join([design.cells for design in designs], cell_counts),
        cell_groups=_join([design.cell_groups for design in designs], group_counts),
        sizes=np.concatenate([design.sizes for design in designs]),
    )


def _join(columns: Sequence[Integers], sizes: Sequence[int]) -> Integers:
    """Join columns of numbers, each below the column's size, and keep the numbers apart."""
    firsts = np.cumsum([0, *sizes]).tolist()
    shifted = [column + first for column, first in zip(columns, firsts, strict=False)]
    return np.concatenate(shifted)


class Linearization(NamedTuple):
    """Means and variances of the groups of a design, each of shape (G,)."""

    means: Floats
    bounds: Floats
    """Maximum variance of one query: that of a Bernoulli trial with the mean absolute value."""
    independent_variances: Floats
    """Variance of the mean for independent queries."""
    variances: Floats
    """Variance of the mean for new clusters."""


def linearize(values: Floats, design: MeanDesign) -> Linearization:
    """Compute means and variances of groups of queries."""
    groups = design.groups
    shares = design.shares
    size = design.size
    means = _sum_by_group(groups, shares * values, size)
    centers = means[groups]
    if design.strata is not None:
        stratum_means = np.bincount(design.strata, values) / design.stratum_counts
        centers = stratum_means[design.strata]
    residuals = shares * (values - centers)
    # A pseudo-query with maximum variance keeps the error positive if all scores are equal.
    absolute = _sum_by_group(groups, shares * np.abs(values), size)
    levels = (design.counts * absolute + 0.5) / (design.counts + 1)
    bounds = levels * (1 - levels)
    pseudo = bounds * design.largest_shares**2
    independent_variances = _sum_by_group(groups, residuals**2, size) + pseudo
    sums = _sum_by_group(design.cells, residuals, len(design.sizes))
    cluster_counts = design.cluster_counts
    factors = cluster_counts / np.maximum(cluster_counts - 1, 1)
    variances = np.where(
        cluster_counts > 1,
        factors * _sum_by_group(design.cell_groups, sums**2, size) + pseudo,
        independent_variances,
    )
    return Linearization(means, bounds, independent_variances, variances)


def _sum_by_group(groups: Integers, values: Floats | Booleans, size: int) -> Floats:
    """Sum values by group, shape (size,)."""
    sums: Floats = np.bincount(groups, values, size).astype(np.float64, copy=False)
    return sums


def _predict_variance(gains: Floats, design: MeanDesign, linearization: Linearization) -> Floats:
    """Predict the variance of means, assuming that all clusters are as homogeneous as those with
    the rarer outcome.

    If a mean is near 0 or 1, a few clusters contain all failures or all successes. If these
    clusters are small, large clusters appear to have no variance. Homogeneity is the share of a
    cluster that fails if one of its queries fails. Without failures it is 1, so each cluster counts
    as one trial.
    """
    is_success_common = linearization.means >= 0.5
    outcomes = np.where(is_success_common[design.groups], 1 - gains, gains)
    rarer = _sum_by_group(design.cells, design.shares * outcomes, len(design.sizes))
    size = design.size
    rare_clusters = _sum_by_group(design.cell_groups, rarer != 0, size)
    squares = _sum_by_group(design.cell_groups, rarer**2, size)
    products = _sum_by_group(design.cell_groups, design.sizes * rarer, size)
    homogeneity = np.where(rare_clusters, squares / products, 1.0)
    smoothed_homogeneity: Floats = (rare_clusters * homogeneity + PSEUDO_CLUSTERS) / (
        rare_clusters + PSEUDO_CLUSTERS
    )
    return linearization.bounds * design.squared_weights * smoothed_homogeneity


def compute_wilson_interval(mean: float, trials: float, quantile: float = Z) -> Interval:
    """Compute Wilson's score interval for a mean in [0, 1].

    Wilson 1927, Journal of the American Statistical Association 22, 209-212. The interval stays
    within [0, 1], and its width is positive even if all scores are equal.

    Args:
        mean: The mean.
        trials: Effective number of Bernoulli trials, above 0.
        quantile: Two-sided quantile of the standardized mean.
    """
    low, high = compute_wilson_bounds(mean, trials, quantile)
    return float(low), float(high)


def compute_wilson_bounds(
    means: Floats | float, trials: Floats | float, quantiles: Floats | float
) -> tuple[Floats, Floats]:
    """Compute the lower and upper bounds of Wilson's score intervals."""
    squares = quantiles**2 / trials
    centers = (means + squares / 2) / (1 + squares)
    half_widths = np.sqrt(squares * means * (1 - means) + squares**2 / 4) / (1 + squares)
    # Rounding errors must not exclude the mean.
    lows = np.minimum(np.maximum(centers - half_widths, 0.0), means)
    return lows, np.minimum(np.maximum(centers + half_widths, means), 1.0)
