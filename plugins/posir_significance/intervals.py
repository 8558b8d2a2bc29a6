"""95 % intervals of mean nDCG@10 that hold for new documents; `benchmarks/interval_coverage.py` measures their coverage."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

from posir_significance.observations import Floats, Integers

#: Quantiles that bound a central 95 % interval.
TAILS = (0.025, 0.975)
#: Standard normal quantile of a two-sided 95 % interval.
Z = float(ndtri(TAILS[1]))
#: Significance level.
ALPHA = 0.05
#: Bernoulli trials that a query counts for at most; graded gains vary less than Bernoulli trials.
MAX_TRIALS = 2.0

Interval = tuple[float, float]


@dataclass(frozen=True)
class MeanEstimate:
    """A mean nDCG@10 and how far it varies between samples of documents."""

    mean: float
    """In [0, 1]."""
    standard_error: float
    """Of the mean, for new clusters; above 0."""
    interval: Interval | None
    """95 % interval; None with fewer than two clusters."""
    design_effect: float
    """Variance of the mean as a multiple of that of as many independent queries."""


def estimate_mean(
    gains: Floats, clusters: Integers, weights: Floats | None = None, strata: Integers | None = None
) -> MeanEstimate | None:
    """Estimate a mean over queries of which those of one cluster are not independent; None without queries.

    Squared standard error D / (D - 1) sum (sum w (g - m))^2, the inner sum over the queries of each of D clusters
    (linearization: Cochran 1977, Sampling Techniques, section 6.3). The interval is Wilson's score interval with as many
    Bernoulli trials as give that error, and a t quantile with N^2 / sum N_c^2 - 1 degrees of freedom.

    Args:
        gains: nDCG@10 of each query, shape (n,).
        clusters: Article or document of each query, from 0, shape (n,).
        weights: Of each query, shape (n,), summing to 1; by default 1 / n.
        strata: Group of each query, from 0, shape (n,), if the mean is one of group means with fixed weights.
    """
    count = len(gains)
    if not count:
        return None
    shares = np.full(count, 1 / count) if weights is None else weights
    mean = float(np.clip(shares @ gains, 0, 1))
    centres = mean if strata is None else (np.bincount(strata, weights=gains) / np.maximum(np.bincount(strata), 1))[strata]
    residuals, squares = shares * (gains - centres), float(shares @ shares)
    # One pseudo-query of maximal variance keeps the error positive where all queries score the same.
    level = (count * mean + 0.5) / (count + 1)
    pseudo = level * (1 - level) * float(shares.max()) ** 2
    single = float(residuals @ residuals) + pseudo
    sizes = np.bincount(clusters, weights=shares)
    used = int((sizes > 0).sum())
    if used < 2:
        return MeanEstimate(mean, single**0.5, None, 1.0)
    sums = np.bincount(clusters, weights=residuals)
    variance = used / (used - 1) * float(sums @ sums) + pseudo
    trials = min(level * (1 - level) / variance, MAX_TRIALS / squares)
    quantile = float(stdtrit(max(1 / float(sizes @ sizes) - 1, 1.0), TAILS[1]))
    return MeanEstimate(mean, variance**0.5, wilson_interval(mean, trials, quantile), variance / single)


def wilson_interval(mean: float, trials: float, quantile: float = Z) -> Interval:
    """Return Wilson's score interval of a mean in [0, 1]: the true means that a test does not reject.

    Wilson 1927, Journal of the American Statistical Association 22, 209-212. It stays within [0, 1] and has a positive width
    even where all queries score the same.

    Args:
        mean: In [0, 1].
        trials: Effective number of Bernoulli trials, above 0.
        quantile: Two-sided 95 % quantile of the standardized mean.
    """
    square = quantile**2 / trials
    centre = (mean + square / 2) / (1 + square)
    half = np.sqrt(square * mean * (1 - mean) + square**2 / 4) / (1 + square)
    # A mean of 0 or 1 is an end of its interval; rounding errors must not push the end past it.
    return float(np.clip(centre - half, 0, mean)), float(np.clip(centre + half, mean, 1))
