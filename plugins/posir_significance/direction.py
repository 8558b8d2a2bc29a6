"""The direction of a position effect: towards the beginning or the end, or between the middle and the ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import linregress, spearmanr

from posir_significance.group_means import Floats, Integers, compute_group_means
from posir_significance.intervals import Interval, Z
from posir_significance.true_score_model import bin_midpoints
from posir_tasks.profile import NDCG_AT_10, mean_gain

#: Weights of the first, middle and last third.
FIRST_MINUS_LAST: Floats = np.array([1.0, 0.0, -1.0])
#: Both ends have the same weight whatever their numbers of queries, so that a linear trend is not a dip.
MIDDLE_MINUS_ENDS: Floats = np.array([-0.5, 1.0, -0.5])


@dataclass(frozen=True)
class Contrast:
    """A difference in nDCG@10 between thirds of the document."""

    difference: float
    """In [-1, 1]."""
    standard_error: float
    """Above 0."""

    @property
    def interval(self) -> Interval:
        """The 95 % interval of the difference, within [-1, 1]."""
        return max(-1.0, self.difference - Z * self.standard_error), min(1.0, self.difference + Z * self.standard_error)

    @property
    def significant_z(self) -> float:
        """The z-statistic, difference / standard error; 0 where the interval includes 0."""
        z = self.difference / self.standard_error
        return z if abs(z) > Z else 0.0


@dataclass(frozen=True)
class Trend:
    """Linear and rank relation of the scores of the position bins, all with the same weight, to position."""

    slope: float | None
    """Change of nDCG@10 from the start of the document to its end; None with fewer than two non-empty bins."""
    slope_p_value: float | None
    """None with fewer than three non-empty bins, or where all score the same."""
    spearman: float | None
    """Rank correlation in [-1, 1]; None with fewer than two non-empty bins or where all score the same."""
    spearman_p_value: float | None
    """None with fewer than three non-empty bins, or where all score the same."""


def assign_thirds(bins: int) -> Integers:
    """Return the third of the document that contains each bin's midpoint: 0, 1 or 2, shape (P,).

    Two bins are a first and a last third.
    """
    middle = bin_midpoints(bins)
    return (middle > 1 / 3).astype(np.int64) + (middle > 2 / 3)


def estimate_contrast(counts: Integers, weights: Floats) -> Contrast | None:
    """Estimate a difference between thirds, stratified by length bucket; None if no bucket has queries in all its thirds.

    A third's score is the mean over its queries. The differences of the length buckets are averaged with the weights of
    Mantel and Haenszel (Rothman, Greenland & Lash 2008, Modern Epidemiology, chapter 15), so that length does not confound
    position: long documents may be harder and have their evidence elsewhere.

    Args:
        counts: Queries per length bucket, position bin and rank column, shape (L, P, 12).
        weights: Of the first, middle and last third, shape (3,).
    """
    dispersion = compute_group_means(counts).dispersion
    third = assign_thirds(counts.shape[1])
    thirds = compute_group_means(np.stack([counts[:, third == index].sum(axis=1) for index in range(3)], axis=1))
    used = weights != 0
    usable = (thirds.queries[:, used] > 0).all(axis=1)
    if not usable.any():
        return None
    shrunken = thirds.shrunken_means()
    variances = dispersion * shrunken * (1 - shrunken)
    factors = weights[used] ** 2 / thirds.queries[usable][:, used]
    strata = 1 / factors.sum(axis=1)
    strata /= strata.sum()
    differences = thirds.means[usable] @ weights
    squared_errors = (factors * variances[usable][:, used]).sum(axis=1)
    return Contrast(float(strata @ differences), float(np.sqrt(strata**2 @ squared_errors)))


def classify_direction(first_minus_last: Contrast | None, middle_minus_ends: Contrast | None) -> str | None:
    """Return primacy, recency, middle dip, middle peak or none; None if neither contrast is defined.

    A contrast is significant if its interval excludes 0; if both are, the one with the larger absolute z-statistic decides.
    If position has no effect, one of the two is significant in about one profile of ten.
    """
    if first_minus_last is None and middle_minus_ends is None:
        return None
    ends = first_minus_last.significant_z if first_minus_last else 0.0
    middle = middle_minus_ends.significant_z if middle_minus_ends else 0.0
    if ends == middle == 0:
        return "none"
    if abs(ends) >= abs(middle):
        return "primacy" if ends > 0 else "recency"
    return "middle peak" if middle > 0 else "middle dip"


def fit_trend(counts: Integers) -> Trend:
    """Return slope and rank correlation of the scores of the non-empty bins over their midpoints in [0, 1].

    The same regression as in the authors' analysis of PosIR (Zeng et al. 2026, arXiv 2601.08363): `scipy.stats.linregress`
    and `scipy.stats.spearmanr`.

    Args:
        counts: Queries per position bin and rank column, shape (P, 12).
    """
    # Rounded, so that scores which differ only by the order of summation are ties.
    scores = mean_gain(counts, NDCG_AT_10).round(12)
    filled = ~np.isnan(scores)
    scores, middle = scores[filled], bin_midpoints(len(counts))[filled]
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
