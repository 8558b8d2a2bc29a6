"""A record: what the board knows of one model on one task, scored from its profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from posir_leaderboard.board.models import Model, read_model
from posir_leaderboard.entries import Entry
from posir_psi.scores import none_if_nan
from posir_report.cells import Cell, cells_of
from posir_report.summary import Row, TaskSummary, build_bin_rows, build_rows, summarise
from posir_report.tables import describe_bias, truncation_notes
from posir_significance.permutation_null import permutation_null
from posir_tasks.results import rounded
from posir_tasks.schemes import ALL_LENGTHS

#: What is kept of a cell of the curves.
CELL = ("queries", "ndcg_at_10", "low", "high", "null_low", "null_high")
#: What is kept of a row, named as `posir report --csv` names it.
ROW = (
    "queries",
    "ndcg_at_10",
    "ndcg_at_10_low",
    "ndcg_at_10_high",
    "psi",
    "psi_low",
    "psi_high",
    "psi_null_mean",
    "psi_null_p95",
    "p_value",
)

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Line:
    """A row, and what is said of the bias."""

    row: Row
    bias: str

    @classmethod
    def of_task(cls, row: Row) -> Line:
        """Return the row of a task, whose p-value says whether there is a bias."""
        return cls(row, describe_bias(row))


@dataclass(frozen=True)
class Record:
    """One model on one task."""

    model: Model
    task: str
    rows: tuple[Row, ...]
    """All lengths, then each length bucket."""
    detail: Mapping[str, Any]
    """What the model's own page shows besides: plain JSON, numbers rounded as mteb rounds scores."""

    @property
    def lines(self) -> dict[str, Line]:
        """The rows by length."""
        return {row.length: Line.of_task(row) for row in self.rows}

    @property
    def part(self) -> str:
        """How much of the task there is; empty where it is the whole."""
        row = self.rows[0]
        return f"{row.subsets} of {row.subsets + row.missing_subsets} subsets" if row.missing_subsets else ""

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Record:
        """Read a record back.

        Raises:
            TypeError: It is of another form.
        """
        rows = tuple(Row(**row) for row in data["rows"])
        return cls(Model(**data["model"]), data["task"], rows, data["detail"])


def record_of(entry: Entry) -> Record:
    """Score an entry: pooled over its subsets, as `posir report` does, and each subset by itself."""
    (summary,) = summarise(entry.subsets)
    return Record(
        read_model(entry.model, entry.revision, entry.meta), entry.task, tuple(build_rows(summary)), detail_of(summary, entry)
    )


def detail_of(summary: TaskSummary, entry: Entry) -> dict[str, Any]:
    """Return what the model's own page shows of a task besides the rows."""
    panels = [all_lengths(summary), *by_length(summary)] if len(summary.profile.lengths) > 1 else by_length(summary)
    axes = summary.profile.axes
    subsets = [Line.of_task(build_rows(summarise([one])[0])[0]) for one in entry.subsets] if len(entry.subsets) > 1 else []
    detail = {
        "lengths": [ALL_LENGTHS, *axes.length_titles] if len(axes.lengths) > 1 else list(axes.length_titles),
        "positions": list(axes.positions),
        "position_title": axes.position_title,
        "relative": axes.equal_bins,
        "panels": [cell_columns(cells) for cells in panels],
        "subsets": {"name": [one.subset for one in entry.subsets], **row_columns(subsets)} if subsets else None,
        "data_revision": summary.data_revision,
        "notes": list(truncation_notes([summary.model], [summary])),
    }
    return dict(rounded(detail))


def by_length(summary: TaskSummary) -> list[list[Cell]]:
    """Return the cells of each length bucket."""
    cells = cells_of(summary)
    return [[cell for cell in cells if cell.length == title] for title in summary.profile.axes.length_titles]


def all_lengths(summary: TaskSummary) -> list[Cell]:
    """Return the cells of all lengths together; in their noise, ranks are exchanged within each length bucket."""
    low, high = permutation_null(summary.profile).overall.band
    template = cells_of(summary)[: len(summary.profile.positions)]
    return [
        replace(
            cell,
            length=ALL_LENGTHS,
            queries=row.queries,
            ndcg_at_10=row.ndcg_at_10,
            low=row.ndcg_at_10_low,
            high=row.ndcg_at_10_high,
            null_low=none_if_nan(low[place]),
            null_high=none_if_nan(high[place]),
        )
        for place, (cell, row) in enumerate(zip(template, build_bin_rows(summary), strict=True))
    ]


def cell_columns(cells: Sequence[Cell]) -> Columns:
    """Return cells as columns, which take less room than objects."""
    return {name: [getattr(cell, name) for cell in cells] for name in CELL}


def row_columns(lines: Sequence[Line | None]) -> Columns:
    """Return lines as columns; None where there is no line."""
    columns: Columns = {name: rounded([getattr(line.row, name) if line else None for line in lines]) for name in ROW}
    return columns | {"bias": [line.bias if line else None for line in lines]}
