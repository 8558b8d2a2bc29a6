"""Means over queries with 95% intervals for new documents.

A test measures the coverage of the intervals by simulation. Import this module inside functions,
since it imports SciPy, which is slow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from posir_tasks.base.arrays import Booleans, Floats, Integers
from posir_tasks.values.estimates import Estimate, Interval

#: Quantiles of a central 95% interval.
TAILS = (0.025, 0.975)
#: Standard normal quantile of a two-sided 95% interval.
Z = float(ndtri(TAILS[1]))
#: Significance level, and level of intervals.
ALPHA, LEVEL = 0.05, 0.95
#: Maximum Bernoulli trials per query, since graded gains vary less than a Bernoulli trial.
MAX_TRIALS = 2.0
#: Limits for the rarer outcome (failures or successes): its share and effective number, and the
#: number of pseudo-clusters with equal queries. The expected variance is blended in below twice the
#: first two limits. Chosen by the coverage of intervals (docs/measured.md).
RARE, FEW_EVENTS, ALIKE_DOCUMENTS = 0.1, 5, 0.4
#: Replaces zero sums in divisions.
TINY = 1e-12
#: Maximum number of cells that are indexed densely; sorting that many is slower than keeping empty
#: cells.
MAX_CELLS = 2**14


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

    def interval_at(self, level: float) -> Interval:
        """Return the interval at a level in (0, 1); requires an interval at 95%."""
        quantile = float(stdtrit(self.degrees, (1 + level) / 2))
        return compute_wilson_interval(self.value, self.trials, quantile)


def estimate_mean(
    gains: Floats,
    clusters: Integers,
    weights: Floats | None = None,
    strata: Integers | None = None,
    max_trials: float = MAX_TRIALS,
) -> MeanEstimate | None:
    """Estimate a mean over queries that depend on each other within clusters; None without queries.

    The squared standard error is D / (D - 1) sum (sum w (g - m))^2, with the inner sum over the
    queries of each of D clusters (linearization: Cochran 1977, Sampling Techniques, section 6.3).
    Near 0 and 1 it is at least `_expect_variance`. The interval is Wilson's score interval for the
    number of Bernoulli trials with this error, and a t quantile with N^2 / sum N_c^2 - 1 degrees of
    freedom.

    Args:
        gains: nDCG@10 of each query, shape (n,).
        clusters: Article or document of each query, from 0, shape (n,).
        weights: Weight of each query, shape (n,), with sum 1; by default 1 / n.
        strata: Group of each query, from 0, shape (n,), for a mean of group means with fixed
            weights.
        max_trials: Maximum Bernoulli trials per query.
    """
    if not len(gains):
        return None
    shares = np.full(len(gains), 1 / len(gains)) if weights is None else weights
    groups = np.zeros(len(gains), np.int64)
    return estimate_means(gains, clusters, shares, groups, 1, strata, max_trials)[0]


def estimate_means(
    gains: Floats,
    clusters: Integers,
    shares: Floats,
    groups: Integers,
    size: int,
    strata: Integers | None = None,
    max_trials: float = MAX_TRIALS,
) -> list[MeanEstimate | None]:
    """Estimate the mean of `size` groups of queries; see `estimate_mean`.

    `groups` contains the group of each query, and `shares` its weight, which sums to 1 per group;
    shape (n,).
    """
    lines = linearize(gains, clusters, shares, strata, groups, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.minimum(np.maximum(lines.means, 0.0), 1.0)
        expected_variances = np.maximum(
            _expect_variance(gains, shares, groups, lines), lines.variances
        )
        rarer = np.minimum(means, 1 - means) + 0.5 / lines.counts
        evidence = np.maximum(rarer / RARE, rarer * lines.bounds / expected_variances / FEW_EVENTS)
        blend = np.minimum(np.maximum(2 - evidence, 0.0), 1.0)
        widened_variances = lines.variances + blend * (expected_variances - lines.variances)
        limits = max_trials / _add(groups, shares**2, size)
        trials = np.minimum(lines.bounds / widened_variances, limits)
        designs = lines.variances / lines.singles
        quantiles = stdtrit(lines.degrees, (1 + LEVEL) / 2)
        lows, highs = bound_wilson(means, trials, quantiles)
    estimates: list[MeanEstimate | None] = [None] * size
    for group in np.flatnonzero(lines.counts).tolist():
        mean = float(means[group])
        if not lines.degrees[group]:
            estimates[group] = MeanEstimate(mean, None, float(lines.singles[group]) ** 0.5)
            continue
        estimates[group] = MeanEstimate(
            mean,
            (float(lows[group]), float(highs[group])),
            float(widened_variances[group]) ** 0.5,
            float(designs[group]),
            float(lines.degrees[group]),
            float(trials[group]),
        )
    return estimates


class Linearization(NamedTuple):
    """The means of G groups of queries and their variances, each of shape (G,)."""

    means: Floats
    counts: Integers
    """Number of queries."""
    bounds: Floats
    """Maximum variance of a single query: Bernoulli with the mean of absolute values."""
    singles: Floats
    """Variance of the mean for independent queries."""
    variances: Floats
    """Variance of the mean for new clusters."""
    degrees: Floats
    """Degrees of freedom of `variances`; 0 with fewer than two clusters."""
    squares: Floats
    """Sum of the squared weights of clusters."""
    cells: Integers
    """Cell of each query, shape (n,). A cell is a cluster within a group."""
    owners: Integers
    """Group of each cell, shape (cells,)."""
    sizes: Floats
    """Weight of each cell, shape (cells,)."""


def linearize(
    values: Floats,
    clusters: Integers,
    shares: Floats,
    strata: Integers | None = None,
    groups: Integers | None = None,
    size: int = 1,
) -> Linearization:
    """Compute the means of groups of queries, by default of all queries, with their variances."""
    if groups is None:
        groups = np.zeros(len(values), np.int64)
    counts = np.bincount(groups, minlength=size)
    means = _add(groups, shares * values, size)
    centers = means[groups]
    if strata is not None:
        stratum_means = np.bincount(strata, values) / np.maximum(np.bincount(strata), 1)
        centers = stratum_means[strata]
    residuals = shares * (values - centers)
    # A pseudo-query of maximal variance keeps the error positive if all scores are equal.
    levels = (counts * _add(groups, shares * np.abs(values), size) + 0.5) / (counts + 1)
    bounds = levels * (1 - levels)
    largest = np.zeros(size)
    np.maximum.at(largest, groups, shares)
    pseudo = bounds * largest**2
    singles = _add(groups, residuals**2, size) + pseudo
    width = int(clusters.max(initial=0)) + 1
    cells = groups * width + clusters
    keys = np.arange(size * width)
    if len(keys) > MAX_CELLS:
        keys, cells = np.unique(cells, return_inverse=True)
    owners = keys // width
    sizes = _add(cells, shares, len(keys))
    sums = _add(cells, residuals, len(keys))
    cluster_counts = _add(owners, sizes > 0, size)
    has_clusters = cluster_counts > 1
    factors = cluster_counts / np.maximum(cluster_counts - 1, 1)
    variances = np.where(has_clusters, factors * _add(owners, sums**2, size) + pseudo, singles)
    squares = _add(owners, sizes**2, size)
    degrees = np.where(has_clusters, np.maximum(1 / np.maximum(squares, TINY) - 1, 1.0), 0.0)
    return Linearization(
        means, counts, bounds, singles, variances, degrees, squares, cells, owners, sizes
    )


def _add(groups: Integers, values: Floats | Booleans, size: int) -> Floats:
    """Sum values by group, shape (size,)."""
    sums: Floats = np.bincount(groups, values, size).astype(np.float64, copy=False)
    return sums


def _expect_variance(
    gains: Floats, shares: Floats, groups: Integers, lines: Linearization
) -> Floats:
    """Compute the variance of means if all clusters are as homogeneous as those with the rarer
    outcome.

    Near 0 or 1 a few clusters have all failures, or all successes; if these clusters are small,
    large clusters seem to have no variance. Homogeneity is the share of a cluster that fails
    together with a query. Without failures it is 1, and a cluster counts as one trial.
    """
    outcomes = np.where(lines.means[groups] >= 0.5, 1 - gains, gains)
    rarer = _add(lines.cells, shares * outcomes, len(lines.sizes))
    size = len(lines.means)
    numbers = _add(lines.owners, rarer != 0, size)
    squares = _add(lines.owners, rarer**2, size)
    products = _add(lines.owners, lines.sizes * rarer, size)
    alike = np.where(numbers, squares / products, 1.0)
    share: Floats = (numbers * alike + ALIKE_DOCUMENTS) / (numbers + ALIKE_DOCUMENTS)
    return lines.bounds * lines.squares * share


def compute_wilson_interval(mean: float, trials: float, quantile: float = Z) -> Interval:
    """Compute Wilson's score interval for a mean in [0, 1]: the means that a score test does not
    reject.

    Wilson 1927, Journal of the American Statistical Association 22, 209-212. The interval stays
    within [0, 1] and has a positive width even if all scores are equal.

    Args:
        mean: The mean.
        trials: Effective number of Bernoulli trials, above 0.
        quantile: Two-sided quantile of the standardized mean.
    """
    low, high = bound_wilson(mean, trials, quantile)
    return float(low), float(high)


def bound_wilson(
    means: Floats | float, trials: Floats | float, quantiles: Floats | float
) -> tuple[Floats, Floats]:
    """Compute the lower and upper ends of Wilson's score intervals."""
    squares = quantiles**2 / trials
    centers = (means + squares / 2) / (1 + squares)
    halves = np.sqrt(squares * means * (1 - means) + squares**2 / 4) / (1 + squares)
    # The interval contains the mean despite rounding errors.
    lows = np.minimum(np.maximum(centers - halves, 0.0), means)
    return lows, np.minimum(np.maximum(centers + halves, means), 1.0)
