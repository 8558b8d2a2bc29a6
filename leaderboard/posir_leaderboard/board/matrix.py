"""Matrices: models by the tasks of a benchmark, and models by the domains of a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from posir_leaderboard.board.comparable import select_comparable, select_same_revision
from posir_leaderboard.board.records import BoardRecord, BoardRow, Columns
from posir_leaderboard.board.views import View
from posir_tasks.estimates import Estimate
from posir_tasks.results import rounded
from posir_tasks.scores import ALL

#: Scores in the cells.
SCORES: Mapping[str, Callable[[BoardRow], Estimate | None]] = {
    "score": lambda scored: scored.score,
    "start_to_end": lambda scored: scored.row.start_to_end,
}


def task_matrix(
    dimension: str, labels: Mapping[str, str], records: Sequence[BoardRecord], indices: Mapping[str, int]
) -> dict[str, Any] | None:
    """Return models by the tasks with results, at each length; None if there are none. Other results are None.

    Args:
        dimension: What the tasks differ in, such as `Language`.
        labels: Label of each task by its name, in order.
        records: Of any tasks; partial ones, and those on other data, are left out.
        indices: Index of each model's id in the list of all models.
    """
    rows = {(record.model.id, record.task): record.rows_by_length for record in select_comparable(records)}
    known = {task for _, task in rows}
    labels = {task: label for task, label in labels.items() if task in known}
    models = [identity for identity in indices if any((identity, task) in rows for task in labels)]
    lengths = dict.fromkeys(length for of_task in rows.values() for length in of_task)
    columns = {
        length: {
            name: [[_score(rows.get((model, task), {}).get(length), name) for task in labels] for model in models]
            for name in SCORES
        }
        for length in lengths
    }
    return _matrix(dimension.lower(), list(labels.values()), [indices[model] for model in models], columns) if models else None


def domain_matrix(task: str, records: Sequence[BoardRecord], indices: Mapping[str, int]) -> dict[str, Any] | None:
    """Return models by the subsets of a task at all lengths; None if no result on the same data has several subsets."""
    of_task = select_same_revision(record for record in records if record.task == task)
    by_model = [(indices[record.model.id], record.detail["subsets"]) for record in of_task if record.detail["subsets"]]
    names = sorted({name for _, subsets in by_model for name in subsets["name"]})
    cells = {name: [_by_name(names, subsets, name) for _, subsets in by_model] for name in SCORES}
    return _matrix("domain", names, [index for index, _ in by_model], {"all": cells}) if by_model else None


def length_matrix(view: View, indices: Mapping[str, int]) -> dict[str, Any] | None:
    """Return models by document length, for a task without domains; None if it has one length alone."""
    rows, lengths = [row for row in view.rows if row.scored and row.comparable], view.lengths
    if len(lengths) < 2 or not rows:
        return None
    cells = {name: [[_score(row.scored.get(length), name) for length in lengths] for row in rows] for name in SCORES}
    return _matrix("length", lengths, [indices[row.model.id] for row in rows], {ALL: cells})


def _matrix(by: str, columns: Sequence[str], models: Sequence[int], lengths: Mapping[str, Columns]) -> dict[str, Any]:
    return {"by": by, "columns": list(columns), "models": list(models), "lengths": dict(lengths)}


def _score(row: BoardRow | None, name: str) -> Any:
    estimate = SCORES[name](row) if row else None
    return rounded(estimate.value) if estimate else None


def _by_name(names: Sequence[str], subsets: Mapping[str, Sequence[Any]], score: str) -> list[Any]:
    known = dict(zip(subsets["name"], subsets[score], strict=True))
    return [known.get(name) for name in names]
