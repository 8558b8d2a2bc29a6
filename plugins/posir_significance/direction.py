"""The direction of a position effect: toward the beginning or the end, or between the middle and the ends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from posir_significance.observations import Integers
from posir_significance.trend_correlations import kendall, pearson, spearman
from posir_tasks.estimates import Estimate
from posir_tasks.profile import NDCG_AT_10, mean_gain
from posir_tasks.thirds import bin_midpoints

#: Bins that a p-value of slope or correlation needs; SciPy's is 0 for a perfect correlation of three.
MIN_BINS = 5


@dataclass(frozen=True)
class Trend:
    """Linear and rank relation of the scores of the position bins, all with the same weight, to position.

    Everything is None with fewer than two non-empty bins, all but the slope where all bins score the same, and p-values with
    fewer than five non-empty bins.
    """

    slope: float | None = None
    """Change of nDCG@10 from the start of the document to its end."""
    r_squared: float | None = None
    """Share of the variance of the bins' scores that the line explains, in [0, 1]."""
    pearson: float | None = None
    """Linear correlation in [-1, 1]; its p-value is that of the slope."""
    spearman: float | None = None
    """Rank correlation in [-1, 1]."""
    kendall: float | None = None
    """Rank correlation in [-1, 1]: tau-b."""
    slope_p_value: float | None = None
    spearman_p_value: float | None = None
    kendall_p_value: float | None = None


class Direction(StrEnum):
    """The direction of a position effect: the positions at which evidence is found better or worse."""

    PRIMACY = "primacy"
    """Better at the start than at the end."""
    RECENCY = "recency"
    """Better at the end than at the start."""
    MIDDLE_DIP = "middle dip"
    """Worse in the middle than at both ends."""
    MIDDLE_PEAK = "middle peak"
    """Better in the middle than at both ends."""
    UNCLEAR = "no clear direction"


class Contrasts(Protocol):
    """Scores of a group of queries, such as a row of a report."""

    def estimate(self, key: str) -> Estimate | None:
        """Return a score with its interval; None if undefined or unknown."""


def classify_direction(contrasts: Contrasts) -> Direction:
    """Return the direction that the contrasts between thirds of the document have, whatever the p-value of the effect.

    A dip or a peak needs a middle third that differs from both others in the same direction, by their intervals. Otherwise the
    difference between the first and the last third decides; it is unclear if its interval includes 0.

    Args:
        contrasts: Has `start_to_middle`, `middle_to_end` and `start_to_end`.
    """
    first, second, ends = map(find_sign, map(contrasts.estimate, ("start_to_middle", "middle_to_end", "start_to_end")))
    if first * second < 0:
        return Direction.MIDDLE_DIP if first > 0 else Direction.MIDDLE_PEAK
    return Direction.PRIMACY if ends > 0 else Direction.RECENCY if ends < 0 else Direction.UNCLEAR


def find_sign(contrast: Estimate | None) -> int:
    """Return 1 or -1 if the interval of a contrast lies above or below 0, else 0."""
    low, high = (contrast.interval if contrast else None) or (0.0, 0.0)
    return int(low > 0) - int(high < 0)


def fit_trend(counts: Integers) -> Trend:
    """Return slope and correlations of the scores of the non-empty bins over their midpoints in [0, 1].

    The same as in the authors' analysis of PosIR (Zeng et al. 2026, arXiv 2601.08363), which takes them from `linregress`,
    `spearmanr` and `kendalltau` of SciPy.

    Args:
        counts: Queries per position bin and rank column, shape (P, 12).
    """
    # Rounded, so that scores which differ only by the order of summation are ties.
    scores = mean_gain(counts, NDCG_AT_10).round(12)
    filled = ~np.isnan(scores)
    scores, middle = scores[filled], bin_midpoints(len(counts))[filled]
    if len(scores) < 2:
        return Trend()
    if np.ptp(scores) == 0:
        return Trend(slope=0.0)
    line, ranks, pairs = pearson(middle, scores), spearman(middle, scores), kendall(middle, scores)
    testable = len(scores) >= MIN_BINS
    return Trend(
        slope=line.value * float(scores.std() / middle.std()),
        r_squared=line.value**2,
        pearson=line.value,
        spearman=ranks.value,
        kendall=pairs.value,
        slope_p_value=line.p_value if testable else None,
        spearman_p_value=ranks.p_value if testable else None,
        kendall_p_value=pairs.p_value if testable else None,
    )
