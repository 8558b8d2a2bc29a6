"""Intervals of differences: in nDCG@10 from the two models' intervals, in PSI from posterior draws of the true values.

`benchmarks/compare_coverage.py` measures their coverage; docs/compare.md has its results.
"""

from dataclasses import dataclass

import numpy as np

from posir_psi import psi
from posir_significance.group_means import SEED, Floats, GroupMeans, Integers, compute_group_means
from posir_significance.intervals import ALPHA, TAILS, Interval
from posir_significance.true_score_model import MARGIN, PosteriorDraws, draw_true_scores

#: Bounds of the probability of a true PSI of 0 for a model whose PSI is not significant. With less than a half, intervals of
#: differences from a model without any position effect have a coverage of as little as 0.88. More than the maximum would
#: move the high end.
PROBABILITY_OF_ZERO = (0.5, 0.95)


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float


def ndcg_difference_interval(a: Estimate, b: Estimate, correlation: float) -> Interval:
    """Return the interval of b - a, from the intervals of a and b.

    Square-and-add: on each side, the distances from the values to the ends of their intervals are combined like standard
    errors (Newcombe 1998, Statistics in Medicine 17, 873-890, method 10; with correlation: 17, 2635-2650, method 10; in
    general: Zou & Donner 2008, Statistics in Medicine 27, 1693-1702). It keeps the good properties of the two intervals: it
    stays within [-1, 1] and has a positive width where all queries score the same.

    Args:
        a: In [0, 1].
        b: In [0, 1].
        correlation: Of the two values; 0 if unknown, which is conservative if queries that are hard for one model are hard
            for the other.
    """

    def combine(one: float, other: float) -> float:
        return float(np.sqrt(max(one**2 + other**2 - 2 * correlation * one * other, 0.0)))

    difference = b.value - a.value
    return difference - combine(b.value - b.low, a.high - a.value), difference + combine(b.high - b.value, a.value - a.low)


def posterior_psi(posterior: PosteriorDraws, p_value: float) -> Floats:
    """Return draws of a model's true PSI in ascending order; shape (draws,).

    Their central 95 % is the interval of `posir_significance.intervals.psi_interval`: PSI of the posterior draws, with the
    lower half reflected at the posterior mean where that is lower, and a point mass at 0 if PSI is not significant. Its
    probability is the p-value, as in a confidence distribution (Schweder & Hjort 2016, Confidence, Likelihood, Probability,
    chapter 3).

    Args:
        posterior: Draws of the true scores of the position bins.
        p_value: Of PSI under its null distribution, in (0, 1].
    """
    drawn = psi(posterior.scores)
    reflected = np.sort(np.maximum(0, 2 * psi(posterior.means) - drawn))
    drawn.sort()
    half = len(drawn) // 2
    drawn[:half] = np.minimum(drawn[:half], reflected[:half])
    if p_value >= ALPHA:
        drawn[: int(np.clip(p_value, *PROBABILITY_OF_ZERO) * len(drawn))] = 0
    drawn.sort()
    return drawn


def draw_psi_differences(a: Integers, b: Integers, p_values: tuple[float, float], correlation: float, draws: int) -> Floats:
    """Return draws of the difference in true PSI, b - a; shape (draws,).

    An observed PSI is biased upwards, and the bias depends on the model's level: two models without any position effect, with
    nDCG@10 of 0.9 and 0.5, differ by 0.2 in observed PSI with 2,000 queries. So draws of the true values are subtracted
    (`posterior_psi`). They are paired by the ranks of simulated observed PSI, whose sampling errors have the given
    correlation (the Schaake shuffle: Clark et al. 2004, Journal of Hydrometeorology 5, 243-262).

    Args:
        a: Queries of a per position bin and rank column, shape (P, 12); at least two non-empty bins and one with a gain.
        b: Those of b.
        p_values: Of the PSI of a and of b under their null distributions, in (0, 1].
        correlation: Of the models' nDCG@10 over the queries of a bin.
        draws: Number of draws.
    """
    rng = np.random.default_rng([SEED, draws])
    normal = rng.standard_normal((2, draws, int((a.sum(axis=-1) > 0).sum())))
    normal[1] = correlation * normal[0] + np.sqrt(1 - correlation**2) * normal[1]
    values = []
    for counts, p_value, errors in zip((a, b), p_values, normal, strict=True):
        bins = compute_group_means(counts)
        posterior = draw_true_scores(bins, draws)
        order = psi(simulate_observed(bins, posterior.means.mean(axis=0), errors)).argsort().argsort()
        values.append(posterior_psi(posterior, p_value)[order])
    difference: Floats = values[1] - values[0]
    return difference


def simulate_observed(bins: GroupMeans, true_means: Floats, errors: Floats) -> Floats:
    """Return simulated observed scores of the non-empty bins, in [0, 1]: true scores plus sampling error.

    Args:
        bins: Position bins.
        true_means: True scores of the non-empty bins, shape (bins,).
        errors: Standard normal, shape (draws, bins).
    """
    queries = bins.queries[bins.queries > 0]
    level = np.clip(true_means, MARGIN, 1 - MARGIN)
    return np.clip(true_means + errors * np.sqrt(bins.dispersion * level * (1 - level) / queries), 0, 1)


def posterior_interval(values: Floats) -> Interval:
    """Return the central 95 % of posterior draws."""
    low, high = np.quantile(values, TAILS)
    return float(low), float(high)


def posterior_p_value(values: Floats) -> float:
    """Return twice the posterior probability of the less probable sign: below 0.05 where the 95 % interval excludes 0.

    2 (1 + #{draws of the rarer sign}) / (draws + 1), at most 1; a draw of 0 counts for both signs.
    """
    rarer = min(int((values >= 0).sum()), int((values <= 0).sum()))
    return min(1.0, 2 * (1 + rarer) / (len(values) + 1))
