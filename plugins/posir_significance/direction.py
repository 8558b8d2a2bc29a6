"""The direction of a position effect: toward the beginning or the end, or between the middle and the ends."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from posir_tasks.estimates import Estimate


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
