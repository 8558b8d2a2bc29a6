"""The cells of a profile for charts: each with its score and null band."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np

from posir_report.summary import ReportRow, TaskSummary
from posir_significance.analysis import analyze, estimate_bins, estimate_chance_band
from posir_significance.observations import Floats, Integers, Observations
from posir_tasks.display.numbers import draw_sparkline
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.profile import NDCG_AT_10, PositionProfile, mean_gain
from posir_tasks.schemes import ALL_LENGTHS, Axes
from posir_tasks.scores import Estimate, Interval, ResultValues, flatten

#: Model, revision, task and length of a row.
RowKey = tuple[str, str, str, str]


def row_key(row: ReportRow) -> RowKey:
    """Return what identifies a row of a report."""
    return row.model, row.revision, row.task, row.length


def sparklines(summaries: Iterable[TaskSummary]) -> Mapping[RowKey, str]:
    """Return the curve of every row of a report, from the start of documents to their end."""
    cells = {}
    for summary in summaries:
        lengths = summary.profile.lengths if len(summary.profile.lengths) > 1 else ()
        profiles = {"all": summary.profile} | {name: summary.profile.of_length(index) for index, name in enumerate(lengths)}
        for length, profile in profiles.items():
            cells[summary.model, summary.revision, summary.task, length] = draw_profile(profile)
    return cells


def draw_profile(profile: PositionProfile) -> str:
    """Return nDCG@10 over position on an axis from 0 to 1; twenty equal bins are merged into five if one has few queries."""
    counts = profile.counts.sum(axis=0)
    if is_sparse(profile.axes, counts.sum(axis=1)):
        counts = counts.reshape(MERGED_BINS, EQUAL_BINS // MERGED_BINS, -1).sum(axis=1)
    return draw_sparkline(mean_gain(counts, NDCG_AT_10))


#: Cells with fewer queries are marked: at nDCG@10 near 0.5 their 95 % interval is wider than 0.16.
FEW = 100
#: Bins of a curve are merged if one has fewer queries: the 95 % interval of its mean is up to 0.36 wide.
MIN_QUERIES = 30
#: Number of equal bins that may be merged, and into how many.
EQUAL_BINS, MERGED_BINS = 20, 5


@dataclass(frozen=True)
class ProfileCell:
    """The queries of one position bin in one length bucket. None where undefined or unknown."""

    length: str
    """Title of the length bucket."""
    position: str
    start: float
    """Start, middle and end of the bin as shares of all bins; of the document, if bins are equal shares of it."""
    middle: float
    end: float
    queries: int
    few: bool
    """Whether there are fewer than FEW queries."""
    ndcg_at_10: Estimate | None
    """Mean over the queries, in [0, 1]."""
    null_band: Interval | None
    """95 % of the means over samples of documents, if position has no effect."""

    def columns(self) -> dict[str, Any]:
        """Return the row of a chart: the estimate as three columns, as everywhere, and the ends of the null band as two."""
        fields = {name: value for name, value in vars(self).items() if name != "null_band"}
        low, high = self.null_band or (None, None)
        return fields | flatten("ndcg_at_10", self.ndcg_at_10) | {"null_low": low, "null_high": high}


@dataclass(frozen=True, eq=False)
class Bucket:
    """The statistics of the position bins of one length bucket."""

    means: Sequence[Estimate | None]
    null_band: Floats
    """Shape (2, P)."""


def build_cells(summary: TaskSummary) -> list[ProfileCell]:
    """Return the cells of a profile by length bucket, with intervals and null bands."""
    profile = summary.profile
    titles = profile.axes.length_titles
    analysis, observations = analyze(summary.ranks), Observations.from_ranks(summary.ranks)
    buckets = [
        Bucket(estimate_bins(observations.select(observations.lengths == index)), group.null_band)
        for index, group in enumerate(analysis.lengths or [analysis.overall])
    ]
    queries = profile.counts.sum(axis=2)
    return [
        cell
        for index, length in enumerate(titles)
        for cell in _build_bucket(length, profile.positions, queries[index], buckets[index])
    ]


def build_curve_cells(summary: TaskSummary) -> list[ProfileCell]:
    """Return the cells of curves by length bucket: empty buckets are left out, sparse bins merged."""
    profile = summary.profile
    observations = Observations.from_ranks(summary.ranks)
    pooled: list[ProfileCell] = []
    for index, (length, bucket) in enumerate(groupby(build_cells(summary), key=lambda cell: cell.length)):
        cells, queries = list(bucket), profile.counts[index].sum(axis=1)
        if not queries.any():
            continue
        if is_sparse(profile.axes, queries):
            cells = _merge_bins(profile.positions, observations.select(observations.lengths == index), length)
        pooled += cells
    return pooled


def pool_curve_cells(summaries: Sequence[TaskSummary]) -> list[list[ProfileCell]]:
    """Return the cells of the curve over all lengths of each model on a task; sparse bins of one are merged in all."""
    sparse = any(is_sparse(summary.profile.axes, summary.profile.counts.sum(axis=(0, 2))) for summary in summaries)
    return [pool_lengths(summary.ranks, merged=sparse) for summary in summaries]


def pool_lengths(ranks: DocumentRanks, *, merged: bool) -> list[ProfileCell]:
    """Return the cells of the curve of ranks over all lengths; with `merged`, of five merged bins."""
    profile, observations = ranks.profile, Observations.from_ranks(ranks)
    if merged:
        return _merge_bins(profile.positions, observations, ALL_LENGTHS)
    return _build_bucket(ALL_LENGTHS, profile.positions, profile.counts.sum(axis=(0, 2)), _estimate_bucket(observations))


def find_beyond(values: ResultValues, cell: ProfileCell) -> float | None:
    """Return the share of the evidence of a cell, in [0, 1], that ends beyond the model's window; None if it is unknown.

    Args:
        values: The values that the cell is of.
        cell: Of any bins, merged ones included, of one length bucket or of all.
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


def is_sparse(axes: Axes, queries: Integers) -> bool:
    """Return whether the twenty equal bins of a curve are merged into five: one has fewer than MIN_QUERIES queries.

    Args:
        axes: Axes of the profile.
        queries: Number of queries in each bin, shape (P,).
    """
    return axes.equal_bins and len(queries) == EQUAL_BINS and bool(queries.min() < MIN_QUERIES)


def _merge_bins(names: Sequence[str], observations: Observations, length: str) -> list[ProfileCell]:
    """Return the cells of five merged bins; a query in two bins of one is counted once."""
    size = EQUAL_BINS // MERGED_BINS
    pairs = np.unique(np.stack([observations.query, observations.position // size]), axis=1)
    merged = replace(observations, query=pairs[0], position=pairs[1], bins=MERGED_BINS)
    queries = np.bincount(merged.position, minlength=MERGED_BINS)
    merged_names = [f"{names[first]} to {names[first + size - 1]}" for first in range(0, EQUAL_BINS, size)]
    return _build_bucket(length, merged_names, queries, _estimate_bucket(merged))


def _estimate_bucket(observations: Observations) -> Bucket:
    return Bucket(estimate_bins(observations), estimate_chance_band(observations))


def _build_bucket(length: str, names: Sequence[str], queries: Integers, bucket: Bucket) -> list[ProfileCell]:
    """Return the cells of one length bucket."""
    total = len(names)
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
            zip(names, queries.tolist(), bucket.means, bucket.null_band.T.tolist(), strict=True)
        )
    ]
