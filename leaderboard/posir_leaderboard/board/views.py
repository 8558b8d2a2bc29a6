"""Views: the table of one task, or of a benchmark's average, as columns that a browser parses quickly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import hypot
from typing import Any

import numpy as np

from posir_leaderboard.board.comparable import select_comparable, select_same_revision
from posir_leaderboard.board.curves import NO_CURVES, Curves, average_curves
from posir_leaderboard.board.groups import Group
from posir_leaderboard.board.models import BoardModel
from posir_leaderboard.board.published import average_published
from posir_leaderboard.board.ranks import (
    Floats,
    MeanByCluster,
    PairedDifferences,
    average_differences,
    paired_differences,
    rank_ranges,
)
from posir_leaderboard.board.records import NOT_PUBLISHED, BoardRecord, BoardRow, Columns, board_columns, row_columns
from posir_psi.scores import none_if_nan
from posir_published.rows import LANGUAGE_QUERIES, START_TO_END_UNWEIGHTED, TASK_QUERIES, QueryCount, find_curve
from posir_significance.decision import ChangeState, MetricChange
from posir_significance.sentences import label_change
from posir_tasks.results import rounded
from posir_tasks.scores import ALL, Estimate, Unit

#: Most models whose paired differences a site contains: they are of every two.
MOST_PAIRED = 40
#: Columns of sparklines.
SPARKLINE = ("curve", "null_band", "window_end")


@dataclass(frozen=True)
class TableRow:
    """One model in a view."""

    model: BoardModel
    scored: Mapping[str, BoardRow]
    """Scores by length; empty if the model lacks a task of the average."""
    partial: str
    """Number of the subsets or tasks that have results; empty if all have. A partial result is unranked."""
    means: tuple[Mapping[str, MeanByCluster], ...] = ()
    """nDCG@10 by cluster and length of each task, in the order of the tasks; empty if unknown."""
    curves: Curves = NO_CURVES
    other_data: str = ""
    """Mark of a result that is not on the data that is ranked; empty if it is. A marked result is unranked."""
    records: tuple[BoardRecord, ...] = ()
    """The model's result on each task."""

    @property
    def standing(self) -> str:
        """`Standing` of its results: `as submitted` unless all are reproduced."""
        return min((record.standing for record in self.records), default="")

    @property
    def comparable(self) -> bool:
        """Whether it is ranked among the others."""
        return not self.partial and not self.other_data


@dataclass(frozen=True)
class View:
    """A table of models."""

    name: str
    """Name of the task or benchmark."""
    rows: tuple[TableRow, ...]
    independent: bool = False
    """Whether the tasks of an average are independent."""

    @property
    def lengths(self) -> list[str]:
        """Names of the lengths, all of them together first."""
        return list(dict.fromkeys(length for row in self.rows for length in row.scored)) or ["all"]

    @property
    def opening_length(self) -> str:
        """Name of the length that is shown first: the longest documents."""
        return self.lengths[-1]

    @property
    def own(self) -> bool:
        """Whether a result that is not published has scores."""
        return any(row.scored and not row.model.published for row in self.rows)

    def to_json(self, indices: Mapping[str, int]) -> dict[str, Any]:
        """Return the view as columns, one entry per model, given each model id's index in the list of all models.

        It opens on the longest documents. Of other lengths it has nDCG@10 only; the page loads their columns when needed.
        """
        return {
            "models": [indices[row.model.id] for row in self.rows],
            "partial": [row.partial for row in self.rows],
            "other_data": [row.other_data for row in self.rows],
            "standing": [row.standing for row in self.rows],
            "approximate": [has_approximate_queries(row.model, self.name) for row in self.rows],
            "lengths": self.lengths,
            "opening": self.opening_length,
            "columns": self.columns(self.opening_length),
            "scores": {length: self._scores(length) for length in self.lengths},
            "revisions": self._revisions(),
            "newest": self._newest(indices),
        }

    def columns(self, length: str) -> Columns:
        """Return the columns of one length, with rank ranges and, for each model, how many ranked ones it is paired with."""
        scored = [row.scored.get(length) for row in self.rows]
        rows = [
            scored_row if scored_row and row.comparable else None for row, scored_row in zip(self.rows, scored, strict=True)
        ]
        differences, sparklines = self.differences(length), [row.curves.sparkline(length) for row in self.rows]
        scores = [row.score if row else None for row in rows]
        ranked = np.array([score is not None and score.interval is not None for score in scores], bool)
        psi = [row.best_psi if row else None for row in rows]
        psi_intervals = intervals_of([row.psi if row else None for row in rows])
        return {
            **row_columns(scored),
            **{name: [sparkline[name] for sparkline in sparklines] for name in SPARKLINE},
            "equivalent": self._equivalent(scores, differences),
            "rank": list(rank_ranges(values_of(scores), intervals_of(scores), differences=differences)),
            "psi_rank": list(rank_ranges(psi, psi_intervals, low_is_first=True)),
            "paired": (differences.paired & ranked).sum(axis=1).tolist(),
        }

    def _equivalent(self, scores: Sequence[Estimate | None], differences: PairedDifferences) -> list[str | None]:
        """Return for each row that it is equivalent to the best one, in words; None if that is not so, or not known."""
        best = int(np.argmax([score.value if score else -1.0 for score in scores])) if scores else 0
        changes = [differences.change(place, best) for place in range(len(scores))]
        equivalent = (change is not None and change.state is ChangeState.EQUIVALENT for change in changes)
        return [_label(change) if same else None for change, same in zip(changes, equivalent, strict=True)]

    def _revisions(self) -> dict[str, int]:
        """Return the number of results on each revision of the data; the papers name none."""
        revisions = (str(record.detail["data_revision"]) for row in self.rows for record in row.records)
        return dict(sorted(Counter(revision for revision in revisions if revision).items()))

    def _newest(self, indices: Mapping[str, int]) -> dict[str, Any] | None:
        """Return model, task and date of the newest result, as its file states it; None if no date is known."""
        dated = [record for row in self.rows for record in row.records if record.detail.get("date")]
        if not dated:
            return None
        newest = max(dated, key=lambda record: (record.detail["date"], record.task, record.model.id))
        return {"model": indices[newest.model.id], "task": newest.task, "date": newest.detail["date"]}

    def _scores(self, length: str) -> list[float | None]:
        scored = [row.scored.get(length) for row in self.rows]
        values: list[float | None] = rounded(values_of([row.score if row else None for row in scored]))
        return values

    def differences(self, length: str) -> PairedDifferences:
        """Return the differences of nDCG@10 between models on the same queries, at one length."""
        tasks = max((len(row.means) for row in self.rows), default=0) or 1
        by_task = [
            paired_differences([row.means[task].get(length) if row.means and row.comparable else None for row in self.rows])
            for task in range(tasks)
        ]
        return average_differences(by_task, power=2 if self.independent else 1)

    def differences_json(self, indices: Mapping[str, int]) -> dict[str, Any] | None:
        """Return the paired differences between the best models on the same queries, at each length; None if there are none."""
        differences = {length: self.differences(length) for length in self.lengths}
        best = sorted(range(len(self.rows)), key=lambda place: -self._score(place))
        best = [place for place in best if any(difference.paired[place].any() for difference in differences.values())][
            :MOST_PAIRED
        ]
        if not best:
            return None
        block = np.ix_(best, best)
        columns = {
            length: {
                "value": _lists(difference.values[block]),
                "half": _lists(difference.half_widths()[block]),
                "state": [[_label(difference.change(row, column)) for column in best] for row in best],
            }
            for length, difference in differences.items()
        }
        return {"models": [indices[self.rows[place].model.id] for place in best], "lengths": columns}

    def _score(self, place: int) -> float:
        scored = self.rows[place].scored.get("all")
        return scored.score.value if scored and scored.score else 0.0


def _lists(values: Floats) -> list[Any]:
    lists: list[Any] = rounded([[none_if_nan(value) for value in row] for row in values])
    return lists


def _label(change: MetricChange | None) -> str | None:
    return label_change(change) if change else None


def values_of(estimates: Sequence[Estimate | None]) -> list[float | None]:
    """Return the values of estimates."""
    return [estimate.value if estimate else None for estimate in estimates]


def intervals_of(estimates: Sequence[Estimate | None]) -> list[tuple[float, float] | None]:
    """Return the intervals of estimates; None if unknown."""
    return [estimate.interval if estimate else None for estimate in estimates]


def has_approximate_queries(model: BoardModel, name: str) -> bool:
    """Return whether a paper gives the number of queries only approximately."""
    queries = published_queries(name) if model.published else None
    return queries is not None and not queries.exact


def published_queries(name: str) -> QueryCount | None:
    """Return the number of queries of a task or benchmark in its paper; None if it is the sum over tasks."""
    return TASK_QUERIES.get(name, LANGUAGE_QUERIES if name.startswith("PosIR-") else None)


def build_task_view(task: str, records: Sequence[BoardRecord]) -> View:
    """Return the view of a task."""
    of_task = [record for record in records if record.task == task]
    rows = (
        TableRow(
            record.model,
            record.rows_by_length,
            record.partial,
            (record.means,),
            Curves.of_record(record),
            record.mark,
            (record,),
        )
        for record in of_task
    )
    return View(task, tuple(rows))


def build_average_view(group: Group, records: Sequence[BoardRecord]) -> View:
    """Return the view of a benchmark's average, with the models that have any of its tasks."""
    by_model: dict[str, list[BoardRecord]] = {}
    for record in records:
        if record.task in group.averaged_tasks:
            by_model.setdefault(record.model.id, []).append(record)
    rows = [_average_row(group, of_model) for of_model in by_model.values()]
    if not any(row.scored and row.comparable and not row.model.published for row in rows):
        # Nothing of one's own has an average that published ones could be mistaken for comparable with.
        rows = [replace(row, other_data="") if row.model.published else row for row in rows]
    return View(group.name, tuple(rows), group.independent)


def _whole(records: Sequence[BoardRecord]) -> list[BoardRecord]:
    return [record for record in records if not record.partial]


def _average_row(group: Group, records: Sequence[BoardRecord]) -> TableRow:
    model, tasks = records[0].model, len(group.averaged_tasks)
    order = group.averaged_tasks.index
    whole = sorted(_whole(records), key=lambda record: order(record.task))
    complete = [record.rows_by_length for record in whole]
    other_data = max(record.mark for record in records)
    if len(complete) < tasks:
        return TableRow(model, {}, f"{len(complete)} of {tasks} tasks", other_data=other_data, records=tuple(records))
    lengths = [length for length in complete[0] if all(length in rows for rows in complete)]
    combine = independent_error if group.independent else correlated_error
    scored = {length: average_rows([rows[length] for rows in complete], group.name, combine) for length in lengths}
    queries = published_queries(group.name) if model.published else None
    if queries and "all" in scored:
        # The papers give the exact sum, but only the average for most languages.
        scored["all"] = scored["all"].with_scores(queries=queries.number)
    if model.published:
        curves = average_published(group.name, complete[0][lengths[0]].model, lengths)
        scored = {length: _add_published_effect(group, row) for length, row in scored.items()}
    else:
        curves = average_curves([Curves.of_record(record) for record in whole])
    return TableRow(model, scored, "", tuple(record.means for record in whole), curves, other_data, tuple(records))


def _add_published_effect(group: Group, row: BoardRow) -> BoardRow:
    """Return the average of a published model with start to end of the tasks whose curves are known, and their number."""
    curve = find_curve(group.name, row.model, row.length)
    if curve is None:
        return row
    row = row.with_scores(**{START_TO_END_UNWEIGHTED.key: curve.start_to_end_unweighted})
    return replace(row, curve_tasks=curve.tasks if curve.tasks < len(group.averaged_tasks) else None)


#: Units of scores whose mean over tasks means something.
AVERAGED_UNITS = (Unit.PERCENT, Unit.POINTS, Unit.INDEX, Unit.NUMBER)
#: Scores of one task alone: what its data could show, and how they were sampled.
OF_ONE_TASK = ("design_effect",)

#: From the errors of k tasks to that of their mean.
CombineErrors = Callable[[Sequence[float]], float]


def independent_error(errors: Sequence[float]) -> float:
    """Return the error of the mean of tasks on different data: errors add in quadrature."""
    return hypot(*errors) / len(errors)


def correlated_error(errors: Sequence[float]) -> float:
    """Return the largest possible error of the mean: tasks are fully correlated, such as translations of the same queries."""
    return sum(errors) / len(errors)


def averaged_keys() -> list[str]:
    """Return the keys of the board's scores that are averaged over tasks."""
    return [column.key for column in board_columns() if column.unit in AVERAGED_UNITS and column.key not in OF_ONE_TASK]


def average_rows(rows: Sequence[BoardRow], name: str, combine: CombineErrors = correlated_error) -> BoardRow:
    """Return the unweighted mean over tasks of the board's scores, as the papers average over languages.

    The average of PSI with an interval is that of the tasks' posterior medians; the distances from them to the ends of the
    intervals are combined. A value that a task lacks is None in the average.

    Args:
        rows: One model on every task of the benchmark, at one length.
        name: Name of the benchmark.
        combine: Whether the tasks are independent.
    """
    queries = [row.queries for row in rows if row.queries is not None]
    states = Counter(state for row in rows for state in row.states)
    return BoardRow(
        model=rows[0].model,
        task=name,
        length=rows[0].length,
        revision=rows[0].revision,
        subsets=len(rows),
        scores={
            "queries": sum(queries) if len(queries) == len(rows) else None,
            **{key: _average([row.estimate(key) for row in rows], combine) for key in averaged_keys()},
        },
        states=tuple(state for state, _ in states.most_common()),
        state_label=count_labels([row.state_label for row in rows]),
        decided={"level": rows[0].decided.get("level")},
    )


def _average(estimates: Sequence[Estimate | None], combine: CombineErrors) -> Estimate | float | None:
    """Return the mean of estimates, with an interval if all have one; None if one is unknown."""
    known = [estimate for estimate in estimates if estimate is not None]
    if len(known) < len(estimates):
        return None
    mean = sum(estimate.value for estimate in known) / len(known)
    ends = [(estimate.value, *estimate.interval) for estimate in known if estimate.interval]
    if len(ends) < len(known):
        return mean
    below, above = combine([value - low for value, low, _ in ends]), combine([high - value for value, _, high in ends])
    return Estimate(mean, (mean - below, mean + above))


def count_labels(labels: Sequence[str]) -> str:
    """Return in how many tasks of a model the bias has each state: `biased to the start in 9, cannot be said in 1 of 10`.

    States of opposite sign are never summed, and those of the tasks' own tables never contradicted.
    """
    counts = Counter(labels).most_common()
    if len(counts) == 1 and labels[0] == NOT_PUBLISHED:
        return NOT_PUBLISHED
    return ", ".join(f"{label} in {times}" for label, times in counts) + f" of {len(labels)}"


#: Scores in the cells.
SCORES: Mapping[str, Callable[[BoardRow], Estimate | None]] = {
    "score": lambda row: row.score,
    "start_to_end": lambda row: row.start_to_end,
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
