"""The cells of a profile for charts: each with its score, interval and null band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posir_psi.scores import none_if_nan
from posir_report.summary import TaskSummary
from posir_significance.analysis import analyse, estimate_bins, list_observations
from posir_significance.intervals import MeanEstimate
from posir_significance.observations import Floats
from posir_tasks.profile import PositionProfile

#: Cells with fewer queries are marked: at nDCG@10 near 0.5 their 95 % interval is wider than 0.16.
FEW = 100


@dataclass(frozen=True)
class Cell:
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
    ndcg_at_10: float | None
    """Mean over the queries, in [0, 1]."""
    low: float | None
    """95 % interval of the mean."""
    high: float | None
    null_low: float | None
    """95 % of the means if position has no effect: ranks permuted among the bins of the length bucket."""
    null_high: float | None


@dataclass(frozen=True, eq=False)
class Bucket:
    """What the statistics say of the position bins of one length bucket."""

    means: Sequence[MeanEstimate | None]
    null_band: Floats
    """Shape (2, P)."""


def build_cells(summary: TaskSummary) -> list[Cell]:
    """Return the cells of a profile by length bucket; with intervals and null bands if significance was scored."""
    profile = summary.profile
    buckets: Sequence[Bucket | None] = [None] * len(profile.lengths)
    if "psi_significance" in summary.scores:
        analysis, observations = analyse(profile, summary.ranks), list_observations(profile, summary.ranks)
        buckets = [
            Bucket(estimate_bins(observations.select(observations.lengths == index)), group.null_band)
            for index, group in enumerate(analysis.lengths or [analysis.overall])
        ]
    return [
        cell
        for index, length in enumerate(profile.axes.length_titles)
        for cell in _build_bucket(length, profile, index, buckets[index])
    ]


def _build_bucket(length: str, profile: PositionProfile, index: int, bucket: Bucket | None) -> list[Cell]:
    """Return the cells of one length bucket."""
    counts, total = profile.counts[index], len(profile.positions)
    queries, means = counts.sum(axis=1), profile.by_cell()[index]
    band = bucket.null_band if bucket else np.full((2, total), np.nan)
    cells = []
    for place, position in enumerate(profile.positions):
        mean = bucket.means[place] if bucket else None
        low, high = (mean.interval if mean else None) or (None, None)
        cells.append(
            Cell(
                length=length,
                position=position,
                start=place / total,
                middle=(place + 0.5) / total,
                end=(place + 1) / total,
                queries=int(queries[place]),
                few=bool(queries[place] < FEW),
                ndcg_at_10=none_if_nan(means[place]),
                low=low,
                high=high,
                null_low=none_if_nan(band[0, place]),
                null_high=none_if_nan(band[1, place]),
            )
        )
    return cells
