"""Rank ranges: the possible ranks of models whose scores are uncertain."""

from collections.abc import Sequence

import numpy as np

Range = tuple[int, int]


def rank_ranges(
    scores: Sequence[float | None], intervals: Sequence[tuple[float, float] | None], *, low_is_first: bool = False
) -> list[Range | None]:
    """Return the possible ranks of each score: from 1 + those significantly before it to all but those significantly after.

    One score is significantly before another if their intervals are disjoint: the rule of Klein, Wright & Wieczorek 2020,
    Journal of the Royal Statistical Society C 69, 589-606, who give it for intervals of a joint level. With 95 % intervals of
    similar width, two models of equal true score are separated in 0.6 % of comparisons if their errors are independent, and
    less often if both answered the same queries. A score without an interval is never separated from others.

    Args:
        scores: None if missing: unranked, and not counted in the ranks of others.
        intervals: Low and high end for each score; None if unknown, which gives no range.
        low_is_first: Whether the lowest score has rank 1.
    """
    ranked = np.array([score is not None for score in scores], bool)
    known = ranked & np.array([interval is not None for interval in intervals], bool)
    ends = np.array([interval or (np.nan, np.nan) for interval in intervals], float).reshape(-1, 2)
    low, high = (-ends[:, 1], -ends[:, 0]) if low_is_first else (ends[:, 0], ends[:, 1])
    compared = known[:, None] & known
    before = (compared & (low > high[:, None])).sum(axis=1)
    after = (compared & (high < low[:, None])).sum(axis=1)
    last = int(ranked.sum()) - after
    return [(int(first) + 1, int(final)) if some else None for first, final, some in zip(before, last, known, strict=True)]
