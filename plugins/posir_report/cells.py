"""What the figures show of a profile: every cell with its score, its interval and its noise band."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from posir_psi.scores import none_if_nan
from posir_report.summary import TaskSummary
from posir_significance.group_means import Floats, compute_group_means
from posir_significance.intervals import Interval, ndcg_intervals
from posir_significance.permutation_null import permutation_null
from posir_tasks.profile import PositionProfile

#: Cells of fewer queries are marked: at nDCG@10 near 0.5 their 95 % interval is wider than 0.16.
FEW = 100


@dataclass(frozen=True)
class Cell:
    """The queries of one position bin in one length bucket. None where undefined or unknown."""

    length: str
    """The length bucket in words."""
    position: str
    start: float
    """Where the bin starts, its middle and its end, as shares of all bins; of the document, where bins are equal shares."""
    middle: float
    end: float
    queries: int
    few: bool
    """Whether there are fewer than FEW queries."""
    ndcg_at_10: float | None
    """Mean over the queries, in [0, 1]."""
    low: float | None
    """95 % interval of the mean."""
    high: float | None
    null_low: float | None
    """What 95 of 100 means lie within when position has no effect: ranks exchanged among the bins of the length bucket."""
    null_high: float | None


def cells_of(summary: TaskSummary) -> list[Cell]:
    """Return the cells of a profile, length bucket by length bucket; intervals and noise where significance was scored."""
    profile = summary.profile
    if "psi_significance" in summary.scores:
        noise = [null.band for null in permutation_null(profile).lengths]
        intervals = [ndcg_intervals(compute_group_means(bucket)) for bucket in profile.counts]
    else:
        noise = [np.full((2, len(profile.positions)), np.nan)] * len(profile.lengths)
        intervals = [[None] * len(profile.positions)] * len(profile.lengths)
    return [
        cell
        for index, length in enumerate(lengths_in_words(profile))
        for cell in _bucket(length, profile, index, intervals[index], noise[index])
    ]


def _bucket(length: str, profile: PositionProfile, index: int, intervals: list[Interval | None], noise: Floats) -> list[Cell]:
    """Return the cells of one length bucket; `noise` has the shape (2, P)."""
    counts, total = profile.counts[index], len(profile.positions)
    queries, means = counts.sum(axis=1), profile.by_cell()[index]
    return [
        Cell(
            length=length,
            position=position,
            start=place / total,
            middle=(place + 0.5) / total,
            end=(place + 1) / total,
            queries=int(queries[place]),
            few=bool(queries[place] < FEW),
            ndcg_at_10=none_if_nan(means[place]),
            low=interval[0] if interval else None,
            high=interval[1] if interval else None,
            null_low=none_if_nan(noise[0, place]),
            null_high=none_if_nan(noise[1, place]),
        )
        for place, (position, interval) in enumerate(zip(profile.positions, intervals, strict=True))
    ]


def lengths_in_words(profile: PositionProfile) -> tuple[str, ...]:
    """Return the length buckets as a reader wants them: `Q2: 513 to 1,024 tokens`."""
    if len(profile.lengths) == 1:
        return ("All lengths",)
    bounds = token_bounds(profile)
    if len(bounds) != len(profile.lengths) - 1:
        return profile.lengths
    first, last = f"up to {bounds[0]:,} tokens", f"over {bounds[-1]:,} tokens"
    between = (f"{low + 1:,} to {high:,} tokens" for low, high in pairwise(bounds))
    return tuple(f"{name}: {words}" for name, words in zip(profile.lengths, (first, *between, last), strict=True))


def token_bounds(profile: PositionProfile) -> tuple[int, ...]:
    """Return the last length of each length bucket but the longest, in tokens, as the scheme's name has them."""
    found = re.fullmatch(r"relative-\d+x(\d+(?:-\d+)*)", profile.scheme)
    return tuple(map(int, found[1].split("-"))) if found else ()


def equal_bins(profile: PositionProfile) -> bool:
    """Say whether the position bins are equal shares of a document's length."""
    return profile.scheme.startswith("relative-")
