"""The cells of a profile for charts, with scores and null bands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from posir_significance.analysis import analyze
from posir_significance.group_means import MIN_QUERIES, GroupMeans
from posir_significance.observations import Observations
from posir_significance.published_psi import estimate_chance_band
from posir_tasks.base.arrays import Integers
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.estimates import Estimate, Interval
from posir_tasks.values.schemes import ALL_LENGTHS, Axes
from posir_tasks.values.scores import ResultValues, flatten

#: Charts mark cells with fewer queries; their 95% interval is wider than 0.16 at nDCG@10 = 0.5.
MIN_CELL_QUERIES = 100
#: Number of bins before and after merging.
EQUAL_BINS, MERGED_BINS = 20, 5


def is_sparse(axes: Axes, queries: Integers) -> bool:
    """Return True if there are twenty equal bins and any has fewer than `MIN_QUERIES` queries.

    `queries` is the number of queries per bin, shape (P,).
    """
    return axes.equal_bins and len(queries) == EQUAL_BINS and bool(queries.min() < MIN_QUERIES)


@dataclass(frozen=True)
class ProfileCell:
    """nDCG@10 in a position bin and a length bucket; None if undefined."""

    length: str
    """Title of the length bucket."""
    position: str
    start: float
    """Start, middle and end of the bin as fractions of the axis (of the document, for equal bins).
    """
    middle: float
    end: float
    queries: int
    few: bool
    """True for fewer than `MIN_CELL_QUERIES` queries."""
    ndcg_at_10: Estimate | None
    """Mean over the queries, in [0, 1]."""
    null_band: Interval | None
    """Central 95% of the mean over samples of documents, without a position effect."""

    def to_record(self) -> dict[str, Any]:
        """Return a chart row, with a column for each end of the interval and the null band."""
        low, high = self.null_band or (None, None)
        row = vars(self) | flatten("ndcg_at_10", self.ndcg_at_10)
        del row["null_band"]
        return row | {"null_low": low, "null_high": high}


def build_cells(values: ResultValues) -> list[ProfileCell]:
    """Build the cells of a profile by length bucket, with intervals and null bands."""
    return list(chain.from_iterable(_build_buckets(values, merged=False)))


def build_curve_cells(values: ResultValues) -> list[ProfileCell]:
    """Build the cells of curves by length bucket, without empty buckets and with merged sparse
    bins.
    """
    buckets = _build_buckets(values, merged=True)
    return [cell for cells in buckets if any(cell.queries for cell in cells) for cell in cells]


def _build_buckets(values: ResultValues, *, merged: bool) -> Iterator[list[ProfileCell]]:
    axes = values.profile.axes
    analysis = analyze(values)
    groups = [group.observations for group in analysis.lengths or [analysis.overall]]
    buckets = zip(axes.length_titles, groups, values.profile.counts, strict=True)
    for title, observations, counts in buckets:
        sparse = merged and is_sparse(axes, counts.sum(axis=1))
        yield _build_bucket(title, axes.positions, observations, merged=sparse)


def pool_curve_cells(results: Sequence[ResultValues]) -> list[list[ProfileCell]]:
    """Build the curve over all lengths of each model on a task. Bins that are sparse in any result
    are merged in all.
    """
    profiles = [values.profile for values in results]
    merged = any(is_sparse(profile.axes, profile.counts.sum(axis=(0, 2))) for profile in profiles)
    return [pool_lengths(values.ranks, merged=merged) for values in results]


def pool_lengths(ranks: DocumentRanks, *, merged: bool) -> list[ProfileCell]:
    """Build the curve of ranks over all lengths, in five bins if `merged`."""
    observations = Observations.from_ranks(ranks)
    return _build_bucket(ALL_LENGTHS, ranks.axes.positions, observations, merged=merged)


def compute_truncated_share(values: ResultValues, cell: ProfileCell) -> float | None:
    """Compute the share of truncated evidence in a cell, in [0, 1]; None if it is unknown.

    The cell may contain merged bins, and one length bucket or all of them.
    """
    profile = values.profile
    read = values.read_profile
    if read is None or not cell.queries:
        return None
    bins = len(profile.positions)
    positions = slice(round(cell.start * bins), round(cell.end * bins))
    titles = profile.axes.length_titles
    lengths = slice(None) if cell.length == ALL_LENGTHS else titles.index(cell.length)
    total = profile.counts[lengths, positions].sum()
    return float(1 - read.counts[lengths, positions].sum() / total) if total else None


def _build_bucket(
    length: str, names: Sequence[str], observations: Observations, *, merged: bool
) -> list[ProfileCell]:
    if merged:
        size = EQUAL_BINS // MERGED_BINS
        observations = observations.merge_bins(size)
        starts = range(0, EQUAL_BINS, size)
        names = [f"{names[start]} to {names[start + size - 1]}" for start in starts]
    total = len(names)
    counts = np.bincount(observations.layout.position, minlength=total).tolist()
    (means,) = GroupMeans((observations,)).by_bin
    bands = estimate_chance_band(observations).T.tolist()
    return [
        ProfileCell(
            length=length,
            position=name,
            start=index / total,
            middle=(index + 0.5) / total,
            end=(index + 1) / total,
            queries=counts[index],
            few=counts[index] < MIN_CELL_QUERIES,
            ndcg_at_10=means[index],
            null_band=None if np.isnan(bands[index][0]) else tuple(bands[index]),
        )
        for index, name in enumerate(names)
    ]
