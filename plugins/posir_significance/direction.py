"""Which way scores lean over positions: towards the beginning, towards the end, away from the middle or towards it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import linregress, spearmanr

from posir_significance.group_means import Floats, Integers, sample
from posir_significance.intervals import Interval, Z
from posir_significance.true_score_model import midpoints
from posir_tasks.profile import NDCG_AT_10, mean_gain

#: Weights of the first, middle and last third.
FIRST_MINUS_LAST: Floats = np.array([1.0, 0.0, -1.0])
#: Ends weigh the same whatever their numbers of queries, so that a straight trend is no dip.
MIDDLE_MINUS_ENDS: Floats = np.array([-0.5, 1.0, -0.5])


@dataclass(frozen=True)
class Contrast:
    """A difference between thirds of the document, in nDCG@10, with its standard error."""

    difference: float
    """In [-1, 1]."""
    error: float
    """Above 0."""

    @property
    def interval(self) -> Interval:
        """The 95 % interval of the difference, within [-1, 1]."""
        return max(-1.0, self.difference - Z * self.error), min(1.0, self.difference + Z * self.error)

    @property
    def strength(self) -> float:
        """The difference in standard errors; 0 where the interval includes 0."""
        strength = self.difference / self.error
        return strength if abs(strength) > Z else 0.0


@dataclass(frozen=True)
class Trend:
    """How the scores of the position bins, each counted alike, go with position."""

    slope: float | None
    """Change of nDCG@10 from the start of the document to its end; None with fewer than two non-empty bins."""
    slope_p_value: float | None
    """None with fewer than three non-empty bins, or where all score the same."""
    spearman: float | None
    """Rank correlation in [-1, 1]; None with fewer than two non-empty bins or where all score the same."""
    spearman_p_value: float | None
    """None with fewer than three non-empty bins, or where all score the same."""


def thirds(bins: int) -> Integers:
    """Return the third of the document in which each bin's middle lies: 0, 1 or 2, shape (P,).

    Two bins are a first and a last third.
    """
    middle = midpoints(bins)
    return (middle > 1 / 3).astype(np.int64) + (middle > 2 / 3)


def contrast(counts: Integers, weights: Floats) -> Contrast | None:
    """Return a difference between thirds, within length buckets; None where no bucket has queries in all of its thirds.

    A third's score is the mean over its queries. The differences of the length buckets are averaged by their precision
    (weights of Mantel and Haenszel: Rothman, Greenland & Lash 2008, Modern Epidemiology, chapter 15), so that length
    cannot pose as position: long documents may be harder and have their evidence elsewhere.

    Args:
        counts: Queries per length bucket, position bin and rank column, shape (L, P, 12).
        weights: Of the first, middle and last third, shape (3,).
    """
    dispersion = sample(counts).dispersion
    third = thirds(counts.shape[1])
    parts = sample(np.stack([counts[:, third == index].sum(axis=1) for index in range(3)], axis=1))
    used = weights != 0
    usable = (parts.queries[:, used] > 0).all(axis=1)
    if not usable.any():
        return None
    expected = parts.shrunken()
    variances = dispersion * expected * (1 - expected)
    shares = weights[used] ** 2 / parts.queries[usable][:, used]
    precisions = 1 / shares.sum(axis=1)
    precisions /= precisions.sum()
    differences = parts.means[usable] @ weights
    errors = (shares * variances[usable][:, used]).sum(axis=1)
    return Contrast(float(precisions @ differences), float(np.sqrt(precisions**2 @ errors)))


def verdict(first_minus_last: Contrast | None, middle_minus_ends: Contrast | None) -> str | None:
    """Return primacy, recency, middle dip, middle peak or none; None where neither contrast is defined.

    A contrast speaks where its interval excludes 0; where both do, the one farther from 0 in standard errors. With no
    effect of position one of the two does so in about one profile of ten.
    """
    if first_minus_last is None and middle_minus_ends is None:
        return None
    ends = first_minus_last.strength if first_minus_last else 0.0
    middle = middle_minus_ends.strength if middle_minus_ends else 0.0
    if ends == middle == 0:
        return "none"
    if abs(ends) >= abs(middle):
        return "primacy" if ends > 0 else "recency"
    return "middle peak" if middle > 0 else "middle dip"


def trend(counts: Integers) -> Trend:
    """Return slope and rank correlation of bin scores over bin middles in [0, 1], empty bins skipped.

    As the authors' analysis of PosIR (Zeng et al. 2026, arXiv 2601.08363) computes its regression: `scipy.stats.linregress`
    and `scipy.stats.spearmanr`.

    Args:
        counts: Queries per position bin and rank column, shape (P, 12).
    """
    # What differs by less was summed in another order, and is a tie.
    scores = mean_gain(counts, NDCG_AT_10).round(12)
    filled = ~np.isnan(scores)
    scores, middle = scores[filled], midpoints(len(counts))[filled]
    if len(scores) < 2:
        return Trend(None, None, None, None)
    line, varied = linregress(middle, scores), bool(np.ptp(scores) > 0)
    ranks = spearmanr(middle, scores) if varied else None
    testable = varied and len(scores) > 2
    return Trend(
        slope=float(line.slope),
        slope_p_value=float(line.pvalue) if testable else None,
        spearman=float(ranks.statistic) if ranks else None,
        spearman_p_value=float(ranks.pvalue) if ranks and testable else None,
    )
