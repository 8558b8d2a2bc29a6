"""Intervals of differences: in nDCG@10 from the two models' own intervals, in PSI from their possible true values.

Methods chosen by coverage; a thinned version of the simulation is in the tests, its figures are in docs/compare.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from posir_psi import psi
from posir_significance.group_means import SEED, Floats, GroupMeans, Integers, compute_group_means
from posir_significance.intervals import ALPHA, TAILS, Interval
from posir_significance.true_score_model import MARGIN, PosteriorDraws, draw_true_scores

#: Least and greatest share of 0 among a model's possible PSI where it cannot be told from noise. With less than a half,
#: intervals of differences from a model without any effect hold the true one in as few as 88 of 100; more than the greatest
#: would move the high end.
ZEROS = (0.5, 0.95)


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float


def ndcg_difference_interval(a: Estimate, b: Estimate, correlation: float) -> Interval:
    """Return the interval of b - a, made of the intervals of a and b.

    Square-and-add: the distances from the values to the ends of their intervals are taken as errors, on each side by
    themselves, and add as errors do (Newcombe 1998, Statistics in Medicine 17, 873-890, method 10; with correlation: 17,
    2635-2650, method 10; in general: Zou & Donner 2008, Statistics in Medicine 27, 1693-1702). It keeps what makes the two
    intervals good: it stays within [-1, 1] and has a width where all queries score the same.

    Args:
        a: In [0, 1].
        b: In [0, 1].
        correlation: Of the two values; 0 where unknown, which makes the interval too wide rather than too narrow as long as
            queries that are hard for one model are hard for the other.
    """

    def error(one: float, other: float) -> float:
        return float(np.sqrt(max(one**2 + other**2 - 2 * correlation * one * other, 0.0)))

    difference = b.value - a.value
    return difference - error(b.value - b.low, a.high - a.value), difference + error(b.high - b.value, a.value - a.low)


def possible_psi(possible: PosteriorDraws, p_value: float) -> Floats:
    """Return possible values of a model's true PSI, ascending; shape (draws,).

    Their ends are the interval of `posir_significance.intervals.psi_interval`: draws of true scores, the lower half
    reflected where that is lower, and a share of 0 where PSI cannot be told from noise. The share is the p-value, as a
    distribution of confidence has it (Schweder & Hjort 2016, Confidence, Likelihood, Probability, chapter 3).

    Args:
        possible: Draws of the true scores of the position bins.
        p_value: Of PSI against its noise floor, in (0, 1].
    """
    drawn = psi(possible.scores)
    reflected = np.sort(np.maximum(0, 2 * psi(possible.means) - drawn))
    drawn.sort()
    half = len(drawn) // 2
    drawn[:half] = np.minimum(drawn[:half], reflected[:half])
    if p_value >= ALPHA:
        drawn[: int(np.clip(p_value, *ZEROS) * len(drawn))] = 0
    drawn.sort()
    return drawn


def psi_differences(a: Integers, b: Integers, p_values: tuple[float, float], correlation: float, draws: int) -> Floats:
    """Return possible values of the difference in true PSI, b - a; shape (draws,).

    The observed difference is one of two upward-biased ranges, and the bias differs where the models' levels do: two models
    without any effect of position, at nDCG@10 of 0.9 and 0.5, differ by 0.2 in observed PSI with 2,000 queries. So what is
    subtracted are possible true values (`possible_psi`). Which goes with which is taken from how the noise of the two
    observed PSI goes together (the ranks of PSI after noise; Clark et al. 2004, Journal of Hydrometeorology 5, 243-262):
    not at all where the correlation is 0.

    Args:
        a: Queries of a per position bin and rank column, shape (P, 12); at least two bins filled and one with a gain.
        b: Those of b.
        p_values: Of the PSI of a and of b against their noise floors, in (0, 1].
        correlation: Of the models' nDCG@10 over the queries of a bin.
        draws: Number of draws.
    """
    rng = np.random.default_rng([SEED, draws])
    noise = rng.standard_normal((2, draws, int((a.sum(axis=-1) > 0).sum())))
    noise[1] = correlation * noise[0] + np.sqrt(1 - correlation**2) * noise[1]
    values = []
    for counts, p_value, errors in zip((a, b), p_values, noise, strict=True):
        bins = compute_group_means(counts)
        possible = draw_true_scores(bins, draws)
        order = psi(noisy(bins, possible.means.mean(axis=0), errors)).argsort().argsort()
        values.append(possible_psi(possible, p_value)[order])
    difference: Floats = values[1] - values[0]
    return difference


def noisy(bins: GroupMeans, expected: Floats, errors: Floats) -> Floats:
    """Return scores of the filled bins as they would be observed, in [0, 1].

    Args:
        bins: Position bins.
        expected: Their true scores, shape (bins,).
        errors: Standard normal, shape (draws, bins).
    """
    queries = bins.queries[bins.queries > 0]
    level = np.clip(expected, MARGIN, 1 - MARGIN)
    return np.clip(expected + errors * np.sqrt(bins.dispersion * level * (1 - level) / queries), 0, 1)


def possible_interval(values: Floats) -> Interval:
    """Return the 95 % interval of possible values."""
    low, high = np.quantile(values, TAILS)
    return float(low), float(high)


def possible_p_value(values: Floats) -> float:
    """Return the two-sided p-value of 0 among possible values: below 0.05 where their 95 % interval does not hold it.

    2 (1 + #{values on the rarer side of 0}) / (draws + 1), at most 1; a value of 0 is on both sides.
    """
    rarer = min(int((values >= 0).sum()), int((values <= 0).sum()))
    return min(1.0, 2 * (1 + rarer) / (len(values) + 1))
