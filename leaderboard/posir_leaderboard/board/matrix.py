"""Matrices: the scores of models by task, by domain of a task, or by length of the documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from posir_leaderboard.board.records import BoardRecord
from posir_tasks.scores import ALL

#: Scores of a matrix.
SCORES = ("score", "start_to_end")


def task_matrix(
    dimension: str, labels: Mapping[str, str], records: Sequence[BoardRecord], indices: Mapping[str, int]
) -> dict[str, Any] | None:
    """Return models by the tasks with results, at each length; None if there are none. Other results are None.

    Partial records, and those with a mark, are left out. `indices` are places of models' ids in the list of all models.
    """
    known = {(record.model.id, record.task): record for record in records if record.comparable}
    labels = {task: label for task, label in labels.items() if any(task == other for _, other in known)}
    models = [identity for identity in indices if any((identity, task) in known for task in labels)]
    lengths = dict.fromkeys(length for record in known.values() for length in record.rows_by_length)
    lines = [[known.get((model, task)) for task in labels] for model in models]
    columns = {
        length: {name: [[record and record.read_score(name, length) for record in line] for line in lines] for name in SCORES}
        for length in lengths
    }
    places = [indices[model] for model in models]
    return {"by": dimension.lower(), "columns": [*labels.values()], "models": places, "lengths": columns} if places else None


def domain_matrix(task: str, records: Sequence[BoardRecord], indices: Mapping[str, int]) -> dict[str, Any] | None:
    """Return models by the subsets of a task at all lengths; None if no result on the same data has several subsets.

    Partial results count if they name the same revision of the data as a comparable one.
    """
    of_task = [record for record in records if record.task == task]
    comparable = [record for record in of_task if record.comparable]
    revisions = {record.detail["data_revision"] for record in comparable}
    comparable += [record for record in of_task if record.partial and record.detail["data_revision"] in revisions]
    by_model = [(indices[record.model.id], record.detail["subsets"]) for record in comparable if record.detail["subsets"]]
    names = sorted({name for _, subsets in by_model for name in subsets["name"]})
    known = {name: [dict(zip(subsets["name"], subsets[name], strict=True)) for _, subsets in by_model] for name in SCORES}
    cells = {name: [[scores.get(domain) for domain in names] for scores in of_models] for name, of_models in known.items()}
    places = [index for index, _ in by_model]
    return {"by": "domain", "columns": names, "models": places, "lengths": {ALL: cells}} if places else None


def length_matrix(records: Sequence[BoardRecord], lengths: Sequence[str], indices: Mapping[str, int]) -> dict[str, Any] | None:
    """Return models by the lengths of a task or an average; None if there is but one."""
    rows = [record for record in records if record.rows and record.comparable]
    if len(lengths) < 2 or not rows:
        return None
    cells = {name: [[record.read_score(name, length) for length in lengths] for record in rows] for name in SCORES}
    places = [indices[record.model.id] for record in rows]
    return {"by": "length", "columns": lengths, "models": places, "lengths": {ALL: cells}}
