"""Views: the table of one task, or of a benchmark's average, as columns that a browser reads quickly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from posir_leaderboard.board.averages import average
from posir_leaderboard.board.groups import Group
from posir_leaderboard.board.models import Model
from posir_leaderboard.board.ranks import rank_ranges
from posir_leaderboard.board.records import Columns, Line, Record, row_columns
from posir_published.queries import LANGUAGE_QUERIES, TASK_QUERIES, QueryCount


@dataclass(frozen=True)
class Standing:
    """One model in a view."""

    model: Model
    lines: Mapping[str, Line]
    """By length; empty where the model lacks a task of the average."""
    part: str
    """How much of it there is; empty where it is the whole. A part has no rank."""


@dataclass(frozen=True)
class View:
    """A table of models."""

    name: str
    """Of the task or benchmark."""
    standings: tuple[Standing, ...]

    def to_json(self, places: Mapping[str, int]) -> dict[str, Any]:
        """Return the view as columns, one entry a model.

        Args:
            places: Index of each model's id in the list of all models.
        """
        lengths = list(dict.fromkeys(length for one in self.standings for length in one.lines))
        return {
            "models": [places[one.model.id] for one in self.standings],
            "part": [one.part for one in self.standings],
            "about": [is_about(one.model, self.name) for one in self.standings],
            "lengths": {length: self.at(length) for length in lengths or ["all"]},
        }

    def at(self, length: str) -> Columns:
        """Return the columns of one length, with rank ranges."""
        lines = [one.lines.get(length) for one in self.standings]
        ranked = [None if one.part else line for one, line in zip(self.standings, lines, strict=True)]
        return {
            **row_columns(lines),
            "rank": ranges(ranked, "ndcg_at_10", low_is_first=False),
            "psi_rank": ranges(ranked, "psi", low_is_first=True),
        }


def ranges(lines: Sequence[Line | None], field: str, *, low_is_first: bool) -> list[Any]:
    """Return the rank range of each line by a score, from its interval."""
    scores = [getattr(line.row, field) if line else None for line in lines]
    ends = [(getattr(line.row, f"{field}_low"), getattr(line.row, f"{field}_high")) if line else (None, None) for line in lines]
    intervals = [None if low is None or high is None else (low, high) for low, high in ends]
    return list(rank_ranges(scores, intervals, low_is_first=low_is_first))


def is_about(model: Model, name: str) -> bool:
    """Say whether a paper's number of queries is not exact."""
    queries = papers_queries(name) if model.published else None
    return queries is not None and not queries.exact


def papers_queries(name: str) -> QueryCount | None:
    """Return how many queries a paper says that a task or benchmark has; None where it is the sum of its tasks'."""
    return TASK_QUERIES.get(name, LANGUAGE_QUERIES if name.startswith("PosIR-") else None)


def task_view(task: str, records: Sequence[Record]) -> View:
    """Return the view of a task."""
    return View(task, tuple(Standing(one.model, one.lines, one.part) for one in records if one.task == task))


def average_view(group: Group, records: Sequence[Record]) -> View:
    """Return the view of a benchmark's average, with the models that have any of its tasks."""
    by_model: dict[str, list[Record]] = {}
    for record in records:
        if record.task in group.averaged:
            by_model.setdefault(record.model.id, []).append(record)
    return View(group.name, tuple(_averaged(group, own) for own in by_model.values()))


def _averaged(group: Group, records: Sequence[Record]) -> Standing:
    model, tasks = records[0].model, len(group.averaged)
    whole = [record for record in records if not record.part]
    if len(whole) < tasks:
        return Standing(model, {}, f"{len(whole)} of {tasks} tasks")
    lengths = [length for length in whole[0].lines if all(length in record.lines for record in whole)]
    lines = {length: average([one.lines[length] for one in whole], group.name) for length in lengths}
    papers = papers_queries(group.name) if model.published else None
    if papers and "all" in lines:
        # The papers give the sum exactly, and of most languages only the average.
        lines["all"] = replace(lines["all"], row=replace(lines["all"].row, queries=papers.number))
    return Standing(model, lines, "")
