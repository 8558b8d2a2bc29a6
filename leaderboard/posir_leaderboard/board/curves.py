"""Curves of nDCG@10 over position, as columns of bins: averaged over tasks, and reduced to sparklines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posir_leaderboard.board.records import CELL, BoardRecord, Columns
from posir_report.summary import EQUAL_BINS, MERGED_BINS, MIN_QUERIES


@dataclass(frozen=True)
class Curves:
    """The curves of a model on a task or on a benchmark's average."""

    panels: Mapping[str, Columns]
    """Columns `CELL` by length."""
    window_ends: Mapping[str, float | None]
    """Share of the document from which on most evidence is beyond the model's window, by length; None if nowhere."""
    detail: Mapping[str, Any]
    """The titles of the axes, as on the model's own page."""

    @classmethod
    def of_record(cls, record: BoardRecord) -> Curves:
        """Return the curves of a record; empty if its positions are unknown."""
        lengths, detail = [row.length for row in record.rows], record.detail
        panels, ends = detail["panels"], detail.get("window_ends") or [None] * len(lengths)
        known = {length: panel for length, panel in zip(lengths, panels, strict=False) if panel}
        return cls(known, dict(zip(lengths, ends, strict=False)), detail)

    def sparkline(self, length: str) -> dict[str, Any]:
        """Return the columns of a sparkline: scores and null band in thousandths, and the end of the window."""
        panel = self.panels.get(length)
        if panel is None:
            return {"curve": None, "null_band": None, "window_end": None}
        merged = merge_sparse_bins(panel)
        band = None if None in merged["null_low"] else [*merged["null_low"], *merged["null_high"]]
        return {
            "curve": _thousandths(merged["ndcg_at_10"]),
            "null_band": band and _thousandths(band),
            "window_end": self.window_ends.get(length),
        }

    def to_detail(self, lengths: Sequence[str]) -> dict[str, Any]:
        """Return what a model's page needs to draw an average like a task: a panel for each length, None where unknown."""
        titles = ("lengths", "positions", "position_title", "relative")
        panels = [self.panels.get(length) for length in lengths]
        merged = [merge_sparse_bins(panel) if panel else None for panel in panels]
        curves = [None if curve is panel else curve for curve, panel in zip(merged, panels, strict=True)]
        return {name: self.detail[name] for name in titles} | {"panels": panels, "curves": curves}


NO_CURVES = Curves({}, {}, {})


def average_curves(tasks: Sequence[Curves]) -> Curves:
    """Return the unweighted means over tasks; ends of intervals and null bands too, as if their errors were fully correlated.

    Empty unless all tasks have the same positions.
    """
    if not tasks or len({tuple(task.detail.get("positions", ())) for task in tasks}) > 1:
        return NO_CURVES
    lengths = [length for length in tasks[0].panels if all(length in task.panels for task in tasks)]
    panels = {length: _average_panels([task.panels[length] for task in tasks]) for length in lengths}
    ends = {length: [task.window_ends.get(length) for task in tasks] for length in lengths}
    known = {length: [end for end in bounds if end is not None] for length, bounds in ends.items()}
    means = {length: sum(bounds) / len(bounds) if len(bounds) == len(tasks) else None for length, bounds in known.items()}
    return Curves(panels, means, tasks[0].detail)


def _average_panels(panels: Sequence[Columns]) -> Columns:
    columns: Columns = {name: _column_means([panel[name] for panel in panels]) for name in CELL}
    return columns | {"queries": [sum(counts) for counts in zip(*(panel["queries"] for panel in panels), strict=True)]}


def _column_means(columns: Sequence[Sequence[float | None]]) -> list[float | None]:
    return [None if None in values else round(float(np.mean(values)), 6) for values in zip(*columns, strict=True)]


def merge_sparse_bins(panel: Columns) -> Columns:
    """Return twenty equal bins as five if one of them has fewer than `MIN_QUERIES` queries, otherwise the bins as they are.

    Published bins, whose numbers of queries are unknown, stay as they are.

    Scores are weighted by queries, and so are the ends of their intervals, as if the errors of the bins were fully correlated.
    The null band around its center shrinks as the error of a mean of independent bins does.
    """
    if None in panel["queries"]:
        return panel
    queries = np.array(panel["queries"], np.float64)
    if len(queries) != EQUAL_BINS or queries.min() >= MIN_QUERIES:
        return panel
    shape = (MERGED_BINS, EQUAL_BINS // MERGED_BINS)
    weights = queries.reshape(shape)
    totals = weights.sum(axis=1)
    scores, lowest, highest, low, high = (
        np.array([np.nan if value is None else value for value in panel[name]], np.float64).reshape(shape) for name in CELL[1:]
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        center = np.nansum(weights * (low + high) / 2, axis=1) / totals
        half = np.sqrt(np.nansum((weights * (high - low) / 2) ** 2, axis=1)) / totals
        means, below, above = (np.nansum(weights * values, axis=1) / totals for values in (scores, lowest, highest))
    known = not np.isnan(np.where(weights > 0, low, 0.0)).any()
    unknown = [None] * MERGED_BINS
    return {
        "queries": totals.astype(int).tolist(),
        "ndcg_at_10": _finite(means),
        "ndcg_at_10_low": _finite(below),
        "ndcg_at_10_high": _finite(above),
        "null_low": _finite(center - half) if known else unknown,
        "null_high": _finite(center + half) if known else unknown,
    }


def _finite(values: Any) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _thousandths(values: Sequence[float | None]) -> list[int | None]:
    return [None if value is None else round(1000 * value) for value in values]
