"""Averages of a model's results over the tasks of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from posir_leaderboard.board.groups import Group
from posir_leaderboard.board.records import (
    BIN_COLUMNS,
    BoardRecord,
    BoardRow,
    Columns,
    list_board_columns,
)
from posir_psi.scores import replace_nan
from posir_published.rows import START_TO_END_UNWEIGHTED, find_query_count
from posir_tasks.base.records import Record
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.result_schema import round_floats
from posir_tasks.values.scores import ALL, Unit

#: Units of scores that can be averaged over tasks.
AVERAGED_UNITS = (Unit.PERCENT, Unit.POINTS, Unit.INDEX, Unit.NUMBER)
#: Fields of `BoardRecord.detail` that describe its curves.
CURVE_FIELDS = ("lengths", "positions", "position_title", "relative")


def average_records(group: Group, records: Sequence[BoardRecord]) -> BoardRecord:
    """Average a model's results on the tasks of a group; no rows if a task is missing."""
    tasks = group.averaged_tasks
    members = tuple(sorted(records, key=lambda record: tasks.index(record.task)))
    average = BoardRecord(
        members[0].model,
        group.name,
        (),
        {},
        standing=min(record.standing for record in members),
        exclusion=next((record.exclusion for record in members if record.exclusion), None),
        members=members,
    )
    row_maps = [record.rows_by_length for record in members if not record.partial]
    if len(row_maps) < len(tasks):
        return replace(average, partial=f"{len(row_maps)} of {len(tasks)} tasks")
    shared_lengths = set(row_maps[0]).intersection(*row_maps)
    lengths = [length for length in row_maps[0] if length in shared_lengths]
    rows = []
    for length in lengths:
        row = average_rows(
            [rows_by_length[length] for rows_by_length in row_maps], group.name, group.power
        )
        if average.model.published and length == ALL:
            # The papers report exact totals, but only averages for most languages.
            queries, _ = find_query_count(group.name)
            row = row.with_scores(queries=queries or row.queries)
        if average.model.published and group.power == 1:
            # Published curves cover different languages for each model.
            row = row.with_scores(**{START_TO_END_UNWEIGHTED.key: None})
        rows.append(row)
    detail = {} if average.model.published else average_detail(members, lengths)
    return replace(average, rows=tuple(rows), detail=detail)


def average_detail(tasks: Sequence[BoardRecord], lengths: Sequence[str]) -> Record:
    """Average the tasks' curves and interval ends, unweighted, as if errors were fully correlated.

    The result is empty unless all tasks have the same positions.
    """
    first = tasks[0].detail
    if any(task.detail["positions"] != first["positions"] for task in tasks):
        return {}
    detail: Record = {name: first[name] for name in CURVE_FIELDS}
    for name in ("panels", "curves"):
        detail[name] = [_average_panels(tasks, name, length) for length in lengths]
    return detail if any(detail["panels"]) else {}


def _average_panels(tasks: Sequence[BoardRecord], name: str, length: str) -> Columns | None:
    panels = [task.find_detail(name, length) for task in tasks]
    average: Columns = {}
    for name in BIN_COLUMNS:
        values = np.array([panel[name] for panel in panels if panel], float)
        if len(values) < len(panels):
            return None
        if name == "queries":
            average[name] = values.sum(axis=0).astype(int).tolist()
        else:
            average[name] = round_floats([replace_nan(mean) for mean in values.mean(axis=0)])
    return average


def average_rows(rows: Sequence[BoardRow], name: str, power: int = 1) -> BoardRow:
    """Compute unweighted means of the board's scores over tasks, as papers average languages.

    Args:
        rows: One model at one length on each task. Only scores that all tasks have are averaged.
        name: Name of the average.
        power: Power of the sum that combines the half-widths of intervals: 2 (in quadrature) for
            tasks on different data, 1 for fully correlated errors, such as in translations of the
            same queries.
    """
    first = rows[0]
    queries = [row.queries for row in rows if row.queries is not None]
    scores: Record = {"queries": sum(queries) if len(queries) == len(rows) else None}
    for column in list_board_columns():
        if column.unit in AVERAGED_UNITS:
            estimates = [estimate for row in rows if (estimate := row.get_estimate(column.key))]
            is_complete = len(estimates) == len(rows)
            scores[column.key] = _average(estimates, power) if is_complete else None
    return BoardRow(
        model=first.model,
        task=name,
        length=first.length,
        revision=first.revision,
        scores=scores,
        task_states=tuple(row.states[0] for row in rows if row.findings),
    )


def _average(estimates: Sequence[Estimate], power: int) -> Estimate | float:
    values = np.array([estimate.value for estimate in estimates])
    mean = float(values.mean())
    intervals = [estimate.interval for estimate in estimates if estimate.interval]
    if len(intervals) < len(estimates):
        return mean
    errors = np.abs(np.array(intervals) - values[:, None])
    half_widths = (errors**power).sum(axis=0) ** (1 / power) / len(values)
    return Estimate(mean, (mean - float(half_widths[0]), mean + float(half_widths[1])))
