"""Means over queries with 95% intervals that hold for new documents.

A test measures the coverage of the intervals by simulation. SciPy takes long to import, so
this module is imported where a mean is estimated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri, stdtrit

from posir_tasks.base.arrays import Floats, Integers
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
    mean, bound, single, variance, degrees = linearize(gains, clusters, shares, strata)
    mean = min(max(mean, 0.0), 1.0)
    if not degrees:
        return MeanEstimate(mean, None, single**0.5)
    expected = max(_expect_variance(gains, clusters, shares, bound), variance)
    rarer = min(mean, 1 - mean) + 0.5 / len(gains)
    known = max(rarer / RARE, rarer * bound / expected / FEW_EVENTS)
    widened = variance + min(max(2 - known, 0.0), 1.0) * (expected - variance)
    trials = min(bound / widened, max_trials / float(shares @ shares))
    estimate = MeanEstimate(mean, None, widened**0.5, variance / single, degrees, trials)
    return replace(estimate, interval=estimate.interval_at(LEVEL))


def linearize(
    values: Floats, clusters: Integers, shares: Floats, strata: Integers | None = None
) -> tuple[float, float, float, float, float]:
    """Return a mean, and four properties of it.

    The largest variance of a single query, that of the Bernoulli distribution with the mean of
    absolute values; the variance of the mean if queries are independent, and for new clusters;
    degrees of freedom of that, 0 with fewer than two clusters.
    """
    count, mean = len(values), float(shares @ values)
    centers = (
        mean
        if strata is None
        else (np.bincount(strata, weights=values) / np.maximum(np.bincount(strata), 1))[strata]
    )
    residuals = shares * (values - centers)
    # One pseudo-query of maximal variance keeps the error positive where all queries score the
    # same.
    level = (count * float(shares @ np.abs(values)) + 0.5) / (count + 1)
    bound = level * (1 - level)
    pseudo = bound * float(shares.max()) ** 2
    single = float(residuals @ residuals) + pseudo
    sizes = np.bincount(clusters, weights=shares)
    used = int((sizes > 0).sum())
    if used < 2:
        return mean, bound, single, single, 0.0
    sums = np.bincount(clusters, weights=residuals)
    variance = used / (used - 1) * float(sums @ sums) + pseudo
    return mean, bound, single, variance, max(1 / float(sizes @ sizes) - 1, 1.0)


def _expect_variance(gains: Floats, clusters: Integers, shares: Floats, bound: float) -> float:
    """Return the variance of a mean if queries of all clusters are as alike as those of the
    clusters with the rarer outcome.

    Near 0 or 1 a few clusters have all failures, or all successes; if they are small, large ones
    seem to have no variance. How alike queries are is the part of a cluster that fails with a
    query; where nothing fails it is 1, and a cluster one trial.
    """
    sizes = np.bincount(clusters, weights=shares)
    rarer = np.bincount(clusters, weights=shares * (1 - gains if shares @ gains >= 0.5 else gains))
    number = np.count_nonzero(rarer)
    alike = float(rarer @ rarer) / float(sizes @ rarer) if number else 1.0
    return (
        bound
        * float(sizes @ sizes)
        * (number * alike + ALIKE_DOCUMENTS)
        / (number + ALIKE_DOCUMENTS)
    )


def wilson_interval(mean: float, trials: float, quantile: float = Z) -> Interval:
    """Return Wilson's score interval of a mean in [0, 1]: the true means that a test does not
    reject.

    Wilson 1927, Journal of the American Statistical Association 22, 209-212. It stays within [0, 1]
    and has a positive width even where all queries score the same. `quantile` is the two-sided one
    of the standardized mean, `trials` the effective number of Bernoulli trials, above 0.
    """
    square = quantile**2 / trials
    center = (mean + square / 2) / (1 + square)
    half = np.sqrt(square * mean * (1 - mean) + square**2 / 4) / (1 + square)
    # A mean of 0 or 1 is an end of its interval; rounding errors must not push the end past it.
    return float(np.clip(center - half, 0, mean)), float(np.clip(center + half, mean, 1))
