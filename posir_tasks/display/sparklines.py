"""A curve as a line of text."""

from collections.abc import Iterable
from math import isnan

#: Heights of an eighth of the axis each, from 0 to 1, and what an unknown score shows.
HEIGHTS, EMPTY = "▁▂▃▄▅▆▇█", "·"


def draw_sparkline(scores: Iterable[float]) -> str:
    """Return scores in [0, 1] on an axis from 0 to 1, a character for each; NaN where unknown."""
    return "".join(EMPTY if isnan(score) else HEIGHTS[min(int(score * len(HEIGHTS)), len(HEIGHTS) - 1)] for score in scores)
