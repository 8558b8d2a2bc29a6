"""Correlations of a few paired values with p-values, as `pearsonr`, `spearmanr` and `kendalltau` of SciPy compute them.

`scipy.stats` takes longer to import than everything else that `posir report` does. A test compares both.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtr

from posir_significance.observations import Floats

#: Most pairs without ties for which the p-value of Kendall's tau is exact: above, it is that of a normal approximation.
EXACT_PAIRS = 33


@dataclass(frozen=True)
class Correlation:
    """A correlation and its two-sided p-value."""

    value: float
    """The coefficient, in [-1, 1]."""
    p_value: float


def pearson(x: Floats, y: Floats) -> Correlation:
    """Return the linear correlation of two arrays, shape (N,) with N > 1; its p-value is that of the slope of the line.

    The p-value is that of Student's t with N - 2 degrees of freedom. It is meaningless for N = 2.
    """
    x_deviation, y_deviation = x - x.mean(), y - y.mean()
    r = float(x_deviation @ y_deviation / np.sqrt((x_deviation @ x_deviation) * (y_deviation @ y_deviation)))
    r, freedom = min(1.0, max(-1.0, r)), len(x) - 2
    t = np.inf if abs(r) == 1 else abs(r) * np.sqrt(freedom / (1 - r**2))
    return Correlation(r, float(2 * stdtr(max(freedom, 1), -t)))


def spearman(x: Floats, y: Floats) -> Correlation:
    """Return the rank correlation of two arrays, shape (N,) with N > 1: Pearson's of the ranks, ties with their mean rank."""
    return pearson(rank(x), rank(y))


def rank(values: Floats) -> NDArray[np.float64]:
    """Return the rank of each value from 1, shape (N,); equal values have their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return ranks


def kendall(x: Floats, y: Floats) -> Correlation:
    """Return Kendall's tau-b of two arrays, shape (N,) with N > 1; the values of `x` are all different.

    The p-value is exact for few pairs without ties, else that of the normal approximation with the variance under ties
    (Kendall 1970, Rank Correlation Methods, section 4 and 5).
    """
    size, pairs = len(x), len(x) * (len(x) - 1) // 2
    balance = int(np.triu(np.sign(x[:, None] - x) * np.sign(y[:, None] - y)).sum())
    ties = np.unique(y, return_counts=True)[1]
    tied = int((ties * (ties - 1) // 2).sum())
    tau = balance / np.sqrt(pairs * (pairs - tied))
    discordant = (pairs - tied - balance) // 2
    if not tied and (size <= EXACT_PAIRS or min(discordant, pairs - discordant) <= 1):
        return Correlation(float(tau), exact_p_value(size, discordant))
    variance = (size * (size - 1) * (2 * size + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()) / 18
    return Correlation(float(tau), float(2 * ndtr(-abs(balance) / np.sqrt(variance))))


def exact_p_value(size: int, inversions: int) -> float:
    """Return the probability that a random order of `size` items is at least as far from even as one with these inversions."""
    shares = np.ones(1)
    for items in range(2, size + 1):
        shares = np.convolve(shares, np.full(items, 1 / items))
    return min(1.0, float(2 * shares[: min(inversions, len(shares) - 1 - inversions) + 1].sum()))
