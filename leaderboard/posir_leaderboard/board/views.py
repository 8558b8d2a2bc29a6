"""Views: the table of one task, or of a benchmark's average, as columns that a browser parses quickly."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from posir_leaderboard.board.averages import average_rows
from posir_leaderboard.board.groups import Group
from posir_leaderboard.board.models import Model
from posir_leaderboard.board.ranks import rank_ranges
from posir_leaderboard.board.records import Columns, Record, ScoredRow, row_columns
from posir_published.queries import LANGUAGE_QUERIES, TASK_QUERIES, QueryCount


@dataclass(frozen=True)
class TableRow:
    """One model in a view."""

    model: Model
    scored: Mapping[str, ScoredRow]
    """By length; empty if the model lacks a task of the average."""
    partial: str
    """How many of the subsets or tasks there are; empty if all. A partial result is unranked."""


@dataclass(frozen=True)
class View:
    """A table of models."""

    name: str
    """Name of the task or benchmark."""
    rows: tuple[TableRow, ...]

    def to_json(self, indices: Mapping[str, int]) -> dict[str, Any]:
        """Return the view as columns, one entry per model, given each model id's index in the list of all models."""
        lengths = list(dict.fromkeys(length for row in self.rows for length in row.scored))
        return {
            "models": [indices[row.model.id] for row in self.rows],
            "partial": [row.partial for row in self.rows],
            "approximate": [has_approximate_queries(row.model, self.name) for row in self.rows],
            "lengths": {length: self.columns(length) for length in lengths or ["all"]},
        }

    def columns(self, length: str) -> Columns:
        """Return the columns of one length, with rank ranges."""
        scored = [row.scored.get(length) for row in self.rows]
        ranked = [None if row.partial else one for row, one in zip(self.rows, scored, strict=True)]
        return {
            **row_columns(scored),
            "rank": ranges(ranked, "ndcg_at_10", low_is_first=False),
            "psi_rank": ranges(ranked, "psi", low_is_first=True),
        }


def ranges(scored: Sequence[ScoredRow | None], field: str, *, low_is_first: bool) -> list[Any]:
    """Return the rank range of each row by a score and its interval."""
    rows = [one.row if one else None for one in scored]
    ends = [(getattr(row, f"{field}_low", None), getattr(row, f"{field}_high", None)) for row in rows]
    intervals = [None if low is None or high is None else (low, high) for low, high in ends]
    return list(rank_ranges([getattr(row, field, None) for row in rows], intervals, low_is_first=low_is_first))


def has_approximate_queries(model: Model, name: str) -> bool:
    """Return whether a paper gives the number of queries only approximately."""
    queries = published_queries(name) if model.published else None
    return queries is not None and not queries.exact


def published_queries(name: str) -> QueryCount | None:
    """Return the number of queries of a task or benchmark in its paper; None if it is the sum over tasks."""
    return TASK_QUERIES.get(name, LANGUAGE_QUERIES if name.startswith("PosIR-") else None)


def build_task_view(task: str, records: Sequence[Record]) -> View:
    """Return the view of a task."""
    return View(task, tuple(TableRow(one.model, one.rows_by_length, one.partial) for one in records if one.task == task))


def build_average_view(group: Group, records: Sequence[Record]) -> View:
    """Return the view of a benchmark's average, with the models that have any of its tasks."""
    by_model: dict[str, list[Record]] = {}
    for record in records:
        if record.task in group.averaged_tasks:
            by_model.setdefault(record.model.id, []).append(record)
    return View(group.name, tuple(_average_row(group, of_model) for of_model in by_model.values()))


def _average_row(group: Group, records: Sequence[Record]) -> TableRow:
    model, tasks = records[0].model, len(group.averaged_tasks)
    complete = [record.rows_by_length for record in records if not record.partial]
    if len(complete) < tasks:
        return TableRow(model, {}, f"{len(complete)} of {tasks} tasks")
    lengths = [length for length in complete[0] if all(length in rows for rows in complete)]
    scored = {length: average_rows([rows[length] for rows in complete], group.name) for length in lengths}
    queries = published_queries(group.name) if model.published else None
    if queries and "all" in scored:
        # The papers give the exact sum, but only the average for most languages.
        scored["all"] = replace(scored["all"], row=replace(scored["all"].row, queries=queries.number))
    return TableRow(model, scored, "")
