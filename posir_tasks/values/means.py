"""Means over queries with 95% intervals that hold for new documents.

A test measures the coverage of the intervals by simulation. SciPy takes long to import, so
this module is imported where a mean is estimated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri, stdtrit

from posir_tasks.base.arrays import Booleans, Floats, Integers
from posir_tasks.values.estimates import Estimate, Interval

#: Quantiles that bound a central 95% interval.
TAILS = (0.025, 0.975)
#: Standard normal quantile of a two-sided 95% interval.
Z = float(ndtri(TAILS[1]))
#: Significance level, and that of the intervals.
ALPHA, LEVEL = 0.05, 0.95
#: Bernoulli trials that a query counts for at most; graded gains vary less than Bernoulli trials.
MAX_TRIALS = 2.0
#: Share of failures, or of successes if these are rarer, and effective number of them. Above
#: either, and from twice as many on alone, clusters say how alike their queries are; below, so many
#: with queries all alike are added. Chosen by the coverage of intervals (docs/measured.md).
RARE, FEW_EVENTS, ALIKE_DOCUMENTS = 0.1, 5, 0.4
#: Replaces a sum of 0, so that nothing is divided by 0.
TINY = 1e-12
#: Cells of groups and clusters up to which those without queries are kept: sorting takes longer.
MAX_CELLS = 2**14


@dataclass(frozen=True)
class MeanEstimate(Estimate):
    """A mean nDCG@10 in [0, 1] and how far it varies between samples of documents."""

    standard_error: float = 0.0
    """Standard error of the mean over new clusters; positive."""
    design_effect: float = 1.0
    """Observed variance of the mean as a multiple of that of as many independent queries."""
    degrees: float = 0.0
    """Degrees of freedom of the standard error; 0 with fewer than two clusters, where there is no
    interval.
    """
    trials: float = 0.0
    """Bernoulli trials that vary as much; 0 where there is no interval."""

    def interval_at(self, level: float) -> Interval:
        """Return the interval of a level in (0, 1); there is one where there is one at 95%."""
        return wilson_interval(
            self.value, self.trials, float(stdtrit(self.degrees, (1 + level) / 2))
        )


def estimate_mean(
    gains: Floats,
    clusters: Integers,
    weights: Floats | None = None,
    strata: Integers | None = None,
    max_trials: float = MAX_TRIALS,
) -> MeanEstimate | None:
    """Estimate a mean over queries of which those of one cluster are not independent; None without
    queries.

    Squared standard error D / (D - 1) sum (sum w (g - m))^2, the inner sum over the queries of each
    of D clusters (linearization: Cochran 1977, Sampling Techniques, section 6.3), and near 0 or 1
    at least that of `_expect_variance`. The interval is Wilson's score interval with as many
    Bernoulli trials as give that error, and a t quantile with N^2 / sum N_c^2 - 1 degrees of
    freedom.

    Args:
        gains: nDCG@10 of each query, shape (n,).
        clusters: Article or document of each query, from 0, shape (n,).
        weights: Of each query, shape (n,), summing to 1; by default 1 / n.
        strata: Group of each query, from 0, shape (n,), if the mean is one of group means with
            fixed weights.
        max_trials: Bernoulli trials that a query counts for at most.
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
    """Estimate the mean of each of `size` groups of queries as `estimate_mean` does.

    `groups` is the group of each query, shape (n,); `shares` are weights that sum to 1 in a group.
    """
    lines = linearize(gains, clusters, shares, strata, groups, size)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.minimum(np.maximum(lines.means, 0.0), 1.0)
        expected = np.maximum(_expect_variance(gains, shares, groups, lines), lines.variances)
        rarer = np.minimum(means, 1 - means) + 0.5 / lines.counts
        known = np.maximum(rarer / RARE, rarer * lines.bounds / expected / FEW_EVENTS)
        missing = expected - lines.variances
        widened = lines.variances + np.minimum(np.maximum(2 - known, 0.0), 1.0) * missing
        limits = max_trials / _add(groups, shares**2, size)
        trials = np.minimum(lines.bounds / widened, limits)
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
            float(widened[group]) ** 0.5,
            float(designs[group]),
            float(lines.degrees[group]),
            float(trials[group]),
        )
    return estimates


class Linearization(NamedTuple):
    """The means of G groups of queries, and their properties, each of shape (G,)."""

    means: Floats
    counts: Integers
    """Number of queries."""
    bounds: Floats
    """The largest variance of a single query, that of the Bernoulli distribution with the mean of
    absolute values.
    """
    singles: Floats
    """Variance of the mean if queries are independent."""
    variances: Floats
    """Variance of the mean for new clusters."""
    degrees: Floats
    """Degrees of freedom of that; 0 with fewer than two clusters."""
    squares: Floats
    """Sum of the squared weights of the clusters."""
    cells: Integers
    """Cell of each query, shape (n,): a cluster in a group."""
    owners: Integers
    """Group of each of the cells, shape (cells,)."""
    sizes: Floats
    """Weight of each of the cells, shape (cells,)."""


def linearize(
    values: Floats,
    clusters: Integers,
    shares: Floats,
    strata: Integers | None = None,
    groups: Integers | None = None,
    size: int = 1,
) -> Linearization:
    """Return the means of groups of queries, by default of one of all, with their variances."""
    if groups is None:
        groups = np.zeros(len(values), np.int64)
    counts = np.bincount(groups, minlength=size)
    means = _add(groups, shares * values, size)
    centers = means[groups]
    if strata is not None:
        of_strata = np.bincount(strata, values) / np.maximum(np.bincount(strata), 1)
        centers = of_strata[strata]
    residuals = shares * (values - centers)
    # One pseudo-query of maximal variance keeps the error positive where all queries score the
    # same.
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
    used = _add(owners, sizes > 0, size)
    has_clusters = used > 1
    factors = used / np.maximum(used - 1, 1)
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
    """Return the variance of means if queries of all clusters are as alike as those of the clusters
    with the rarer outcome.

    Near 0 or 1 a few clusters have all failures, or all successes; if they are small, large ones
    seem to have no variance. How alike queries are is the part of a cluster that fails with a
    query; where nothing fails it is 1, and a cluster one trial.
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


def wilson_interval(mean: float, trials: float, quantile: float = Z) -> Interval:
    """Return Wilson's score interval of a mean in [0, 1]: the true means that a test does not
    reject.

    Wilson 1927, Journal of the American Statistical Association 22, 209-212. It stays within [0, 1]
    and has a positive width even where all queries score the same. `quantile` is the two-sided one
    of the standardized mean, `trials` the effective number of Bernoulli trials, above 0.
    """
    low, high = bound_wilson(mean, trials, quantile)
    return float(low), float(high)


def bound_wilson(
    means: Floats | float, trials: Floats | float, quantiles: Floats | float
) -> tuple[Floats, Floats]:
    """Return the lower and the upper ends of Wilson's score intervals of means."""
    squares = quantiles**2 / trials
    centers = (means + squares / 2) / (1 + squares)
    halves = np.sqrt(squares * means * (1 - means) + squares**2 / 4) / (1 + squares)
    # A mean of 0 or 1 is an end of its interval; rounding errors must not push the end past it.
    lows = np.minimum(np.maximum(centers - halves, 0.0), means)
    return lows, np.minimum(np.maximum(centers + halves, means), 1.0)
