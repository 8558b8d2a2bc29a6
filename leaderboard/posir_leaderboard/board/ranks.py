"""Rank ranges: what may be said of an order whose scores are uncertain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Range = tuple[int, int]


def rank_ranges(
    scores: Sequence[float | None], intervals: Sequence[tuple[float, float] | None], *, low_is_first: bool = False
) -> list[Range | None]:
    """Return the ranks that each score may have: 1 + those certainly before it, up to all but those certainly after it.

    One score is certainly before another where their intervals have no point in common: the rule of Klein, Wright &
    Wieczorek 2020, Journal of the Royal Statistical Society C 69, 589-606, who give it for intervals of a joint level. With
    95 % intervals of like width, two models of the same true score are told apart in 0.6 % of comparisons where their errors
    are independent, and more seldom where both answered the same queries. A score without an interval is told apart from
    no other.

    Args:
        scores: None where there is none; such a one has no rank and takes none.
        intervals: Low and high end for each score, None where unknown; those have no range.
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
