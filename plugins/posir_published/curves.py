"""The published curves of nDCG@10 over position, and start to end of those whose bins have no known numbers of queries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from posir_published.scores import LENGTHS, POSIR_FIGURES_SOURCE, PosirBins, read_posir_bins
from posir_tasks.schemes import RelativePositions
from posir_tasks.scores import Better, ScoreInfo, Unit
from posir_tasks.thirds import START_TO_END, assign_thirds, contrast_thirds

#: Names of the macro averages, which are those of the benchmarks.
MONOLINGUAL, CROSS_LINGUAL = "PosIR", "PosIR(cross-lingual)"

START_TO_END_UNWEIGHTED = ScoreInfo(
    "start_to_end_unweighted",
    "Start to end (unweighted)",
    "nDCG@10 of evidence in the first third of documents minus that in the last: unweighted means of position bins, as the "
    "papers publish no numbers of queries for them. Positive if the beginning is found better.",
    unit=Unit.POINTS,
    better=Better.NEAR_ZERO,
    column=False,
)


@dataclass(frozen=True)
class PositionCurve:
    """nDCG@10 over position of one model on one task of PosIR, or on average over its tasks, in one length bucket."""

    model: str
    """Name as printed, without organization."""
    task: str
    length: str
    """`Q1` to `Q4`."""
    positions: tuple[str, ...]
    ndcg_at_10: tuple[float, ...]
    """Mean of each bin in [0, 1], shape (20,)."""
    mean_error: float
    """Mean of these values minus the published nDCG@10; for an average, the mean of those of its tasks."""
    psi_error: float
    """PSI of these values minus the published one; likewise."""
    tasks: int
    """Number of tasks that it is the mean of: those whose curves could be read precisely."""
    source: str = POSIR_FIGURES_SOURCE

    @property
    def thirds(self) -> tuple[float, float, float]:
        """Means of the bins in the first, the middle and the last third of documents, each in [0, 1]."""
        return self._weigh((1.0, 0.0, 0.0)), self._weigh((0.0, 1.0, 0.0)), self._weigh((0.0, 0.0, 1.0))

    @property
    def start_to_end_unweighted(self) -> float:
        """First third minus the last, in [-1, 1]."""
        return self._weigh(START_TO_END)

    def _weigh(self, weights: tuple[float, float, float]) -> float:
        bins = len(self.ndcg_at_10)
        contrast = contrast_thirds(assign_thirds(bins), np.ones(bins), weights)
        assert contrast is not None
        return float(contrast @ self.ndcg_at_10)


@cache
def read_curves() -> tuple[PositionCurve, ...]:
    """Return every published curve of PosIR: of the averages over tasks, then of the tasks."""
    bins = read_posir_bins()
    monolingual = [row for row in bins if row.query_language == row.corpus_language]
    cross_lingual = [row for row in bins if row.query_language != row.corpus_language]
    return (
        *_average(monolingual, MONOLINGUAL),
        *_average(cross_lingual, CROSS_LINGUAL),
        *(_build_curve(row.task, [row]) for row in bins),
    )


def published_curves(task: str) -> list[PositionCurve]:
    """Return the published curves of a task or benchmark by model and length; empty except for PosIR."""
    curves = [curve for curve in read_curves() if curve.task == task]
    return sorted(curves, key=lambda curve: (curve.model.casefold(), LENGTHS.index(curve.length)))


def find_curve(task: str, model: str, length: str) -> PositionCurve | None:
    """Return the published curve of a model on a task at a length; None if none could be read precisely."""
    return _curves_by_key().get((task, model, length))


@cache
def _curves_by_key() -> dict[tuple[str, str, str], PositionCurve]:
    return {(curve.task, curve.model, curve.length): curve for curve in read_curves()}


def _average(rows: Iterable[PosirBins], name: str) -> list[PositionCurve]:
    """Return the unweighted mean of the curves of each model and length over the tasks that have one."""
    groups: dict[tuple[str, str], list[PosirBins]] = {}
    for row in rows:
        groups.setdefault((row.model, row.length), []).append(row)
    return [_build_curve(name, group) for group in groups.values()]


def _build_curve(task: str, rows: list[PosirBins]) -> PositionCurve:
    return PositionCurve(
        model=rows[0].model,
        task=task,
        length=rows[0].length,
        positions=RelativePositions().axes.positions,
        ndcg_at_10=tuple(np.mean([row.ndcg_at_10 for row in rows], axis=0).tolist()),
        mean_error=float(np.mean([row.mean_error for row in rows])),
        psi_error=float(np.mean([row.psi_error for row in rows])),
        tasks=len(rows),
    )
