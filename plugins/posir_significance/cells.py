"""The cells of a profile for charts: each with its score and null band."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posir_significance.analysis import (
    MIN_QUERIES,
    analyze,
    estimate_bins,
    estimate_chance_band,
)
from posir_significance.observations import Observations
from posir_tasks.base.arrays import Integers
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.estimates import Estimate, Interval
from posir_tasks.values.schemes import ALL_LENGTHS, Axes
from posir_tasks.values.scores import ResultValues, flatten

#: Cells with fewer queries are marked: at nDCG@10 near 0.5 their 95% interval is wider than 0.16.
FEW = 100
#: Number of equal bins that may be merged, and into how many.
EQUAL_BINS, MERGED_BINS = 20, 5


def is_sparse(axes: Axes, queries: Integers) -> bool:
    """Return whether the twenty equal bins of a curve are merged into five: one has fewer than
    MIN_QUERIES queries.

    `queries` are those of each bin, shape (P,).
    """
    return axes.equal_bins and len(queries) == EQUAL_BINS and bool(queries.min() < MIN_QUERIES)


@dataclass(frozen=True)
class ProfileCell:
    """The queries of one position bin in one length bucket. None where undefined or unknown."""

    length: str
    """Title of the length bucket."""
    position: str
    start: float
    """Start, middle and end of the bin as shares of all bins; of the document, if bins are equal
    shares of it.
    """
    middle: float
    end: float
    queries: int
    few: bool
    """Whether there are fewer than FEW queries."""
    ndcg_at_10: Estimate | None
    """Mean over the queries, in [0, 1]."""
    null_band: Interval | None
    """95% of the means over samples of documents, if position has no effect."""

    def columns(self) -> dict[str, Any]:
        """Return the row of a chart: the estimate as three columns, as everywhere, and the ends of
        the null band as two.
        """
        fields = {name: value for name, value in vars(self).items() if name != "null_band"}
        low, high = self.null_band or (None, None)
        return (
            fields | flatten("ndcg_at_10", self.ndcg_at_10) | {"null_low": low, "null_high": high}
        )


def build_cells(values: ResultValues) -> list[ProfileCell]:
    """Return the cells of a profile by length bucket, with intervals and null bands."""
    return [cell for cells in _iterate_buckets(values, merged=False) for cell in cells]


def build_curve_cells(values: ResultValues) -> list[ProfileCell]:
    """Return the cells of curves by length bucket: empty buckets are left out, sparse bins
    merged.
    """
    return [
        cell
        for cells in _iterate_buckets(values, merged=True)
        if any(cell.queries for cell in cells)
        for cell in cells
    ]


def _iterate_buckets(values: ResultValues, *, merged: bool) -> Iterator[list[ProfileCell]]:
    axes = values.profile.axes
    analysis = analyze(values)
    groups = [group.observations for group in analysis.lengths or [analysis.overall]]
    for title, observations, counts in zip(
        axes.length_titles, groups, values.profile.counts, strict=True
    ):
        sparse = merged and is_sparse(axes, counts.sum(axis=1))
        yield _build_bucket(title, axes.positions, observations, merged=sparse)


def pool_curve_cells(results: Sequence[ResultValues]) -> list[list[ProfileCell]]:
    """Return the cells of the curve over all lengths of each model on a task; sparse bins of one
    are merged in all.
    """
    sparse = any(
        is_sparse(values.profile.axes, values.profile.counts.sum(axis=(0, 2))) for values in results
    )
    return [pool_lengths(values.ranks, merged=sparse) for values in results]


def pool_lengths(ranks: DocumentRanks, *, merged: bool) -> list[ProfileCell]:
    """Return the cells of the curve of ranks over all lengths; with `merged`, of five merged
    bins.
    """
    return _build_bucket(
        ALL_LENGTHS, ranks.axes.positions, Observations.from_ranks(ranks), merged=merged
    )


def find_beyond(values: ResultValues, cell: ProfileCell) -> float | None:
    """Return the share of the evidence of a cell, in [0, 1], that ends beyond the model's window;
    None if it is unknown.

    The cell is of any bins, merged ones included, of one length bucket or of all.
    """
    profile, read = values.profile, values.read_profile
    if read is None or not cell.queries:
        return None
    bins = len(profile.positions)
    places = slice(round(cell.start * bins), round(cell.end * bins))
    titles = profile.axes.length_titles
    lengths = slice(None) if cell.length == ALL_LENGTHS else titles.index(cell.length)
    total, within = (counted.counts[lengths, places].sum() for counted in (profile, read))
    return float(1 - within / total) if total else None


def _build_bucket(
    length: str, names: Sequence[str], observations: Observations, *, merged: bool
) -> list[ProfileCell]:
    """Return the cells of one length bucket, or of all lengths; a query in two bins of a merged one
    is counted once.
    """
    if merged:
        size = EQUAL_BINS // MERGED_BINS
        observations = observations.merge_bins(size)
        names = [
            f"{names[first]} to {names[first + size - 1]}" for first in range(0, EQUAL_BINS, size)
        ]
    total, counts = len(names), np.bincount(observations.position, minlength=len(names))
    ends = estimate_chance_band(observations).T.tolist()
    return [
        ProfileCell(
            length=length,
            position=position,
            start=place / total,
            middle=(place + 0.5) / total,
            end=(place + 1) / total,
            queries=count,
            few=count < FEW,
            ndcg_at_10=mean,
            null_band=None if np.isnan(low) else (low, high),
        )
        for place, (position, count, mean, (low, high)) in enumerate(
            zip(names, counts.tolist(), estimate_bins(observations), ends, strict=True)
        )
    ]
