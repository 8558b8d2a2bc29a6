"""The public function of this package: `posir.published`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from posir_published.curves import PositionCurve, published_curves
from posir_published.rows import PublishedBin, PublishedRow, published_bins, published_rows, published_tasks
from posir_published.tables import (
    BINS_NOTE,
    CURVES_BRIEF,
    CURVES_NOTE,
    POSQ_NOTE,
    ROWS_BRIEF,
    ROWS_NOTE,
    bins_table,
    curves_table,
    rows_table,
)
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.sections import DisplaySection
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError


@dataclass(frozen=True, repr=False)
class PublishedResults(Presentable):
    """The papers' results on some tasks: scores, or with `bins` nDCG@10 over position."""

    tasks: tuple[str, ...]
    rows: tuple[PublishedRow, ...] | tuple[PublishedBin, ...]
    """A row for each model, task and length; or for each position bin of them."""

    @property
    def title(self) -> str:
        """Subject in a few words."""
        return f"Published results of {pluralize(len({row.model for row in self.rows}), 'model')}"

    def legend(self) -> tuple[str, ...]:
        """Return how to read the numbers."""
        return (ROWS_BRIEF,) if self._scores else (CURVES_BRIEF,) if self._curves else (BINS_NOTE,)

    def explanation(self) -> tuple[str, ...]:
        """Return what every column means, and where it is from."""
        if self._scores:
            bounded = any(row.psi_null_mean_at_most is not None for row in self._scores)
            return (ROWS_NOTE, *([POSQ_NOTE] * bounded))
        return (CURVES_NOTE, BINS_NOTE) if self._curves else ()

    @cached_property
    def _scores(self) -> list[PublishedRow]:
        return [row for row in self.rows if isinstance(row, PublishedRow)]

    @cached_property
    def _curves(self) -> list[PositionCurve]:
        """The curves of PosIR; none beside scores."""
        return [] if self._scores else [curve for task in self.tasks for curve in published_curves(task)]

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the table of scores; or a line for each curve of PosIR, and one for each position bucket of PosQ."""
        if self._scores:
            return (DisplaySection(tables=(rows_table(self._scores),)),)
        buckets = [row for row in self.rows if isinstance(row, PublishedBin) and row.length == "all"]
        tables = [*([curves_table(self._curves)] if self._curves else []), *([bins_table(buckets)] if buckets else [])]
        return (DisplaySection(tables=tuple(tables)),)

    def records(self) -> tuple[PublishedRow, ...] | tuple[PublishedBin, ...]:
        """Return the rows."""
        return self.rows


def published(tasks: str | Iterable[str] | None = None, *, lengths: bool = False, bins: bool = False) -> PublishedResults:
    """Get the results that the papers report; they ship with posir, so nothing is downloaded.

    Args:
        tasks: A task or benchmark, or several; None for all.
        lengths: Whether to include the length buckets Q1 to Q4 of PosIR.
        bins: Whether to give nDCG@10 over position instead: of PosIR the curves by length that could be read precisely from the
            authors' figures (arXiv 2601.08363), of PosQ the position buckets (arXiv 2505.13950).

    Returns:
        Scores in [0, 1], without intervals, which the papers do not give. Every row names its source; a curve that was read
        from a figure also the errors of the reading.

    Raises:
        PosirError: Nothing is published on one of the tasks; or with `bins`, no positions are.

    Examples:
        >>> import posir
        >>> results = posir.published("PosIR-English")
        >>> results.rows[0].model, round(results.rows[0].ndcg_at_10, 3)
        ('llama-embed-nemotron-8b', 0.735)
        >>> curves = posir.published("PosIR-English", bins=True)
        >>> curves.to_polars().filter(model="NV-Embed-v2", length="Q4")["ndcg_at_10"].len()
        20
    """
    names = _select_tasks([tasks] if isinstance(tasks, str) else tasks)
    if bins:
        return PublishedResults(names, tuple(_read_bins(names)))
    rows = (row for name in names for row in published_rows(name) if lengths or row.length == "all")
    return PublishedResults(names, tuple(rows))


def _select_tasks(tasks: Iterable[str] | None) -> tuple[str, ...]:
    known = published_tasks()
    chosen = tuple(dict.fromkeys(known if tasks is None else tasks))
    for name in chosen:
        if name not in known:
            raise PosirError(
                f"There are no published results for a task '{name}'. Tasks with published results: {', '.join(known)}."
            )
    return chosen


def _read_bins(tasks: Iterable[str]) -> list[PublishedBin]:
    rows = [row for name in tasks for row in published_bins(name)]
    if not rows:
        raise PosirError(
            f"No position bins are published on {', '.join(tasks)}, but on PosIR, SQuAD-PosQ, FineWeb-PosQ and, for rerankers, "
            "their Tiny samples."
        )
    return rows
