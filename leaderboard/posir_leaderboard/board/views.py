"""Build views: the tables of tasks and of benchmarks' averages, as JSON columns."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from posir_leaderboard.board.averages import average_records
from posir_leaderboard.board.groups import Dimension, Group
from posir_leaderboard.board.ranks import (
    METRIC_COUNT,
    Floats,
    PairedDifferences,
    average_differences,
    compute_paired_differences,
    compute_rank_ranges,
)
from posir_leaderboard.board.records import (
    BIN_COLUMNS,
    BoardRecord,
    BoardRow,
    Columns,
    Exclusion,
    Unranked,
    build_row_columns,
)
from posir_psi.scores import replace_nan
from posir_published.rows import find_query_count
from posir_significance.decision import DEFAULT_MARGINS
from posir_significance.findings import ChangeState, Quantity, State
from posir_significance.messages.board import (
    HEADINGS,
    LENGTH_PHRASES,
    describe_best,
    describe_ends,
    describe_lead,
)
from posir_significance.messages.verdicts import (
    count_states,
    count_truncating,
    describe_models,
    label_state,
)
from posir_tasks.base.digests import digest
from posir_tasks.base.records import Record
from posir_tasks.data.repository import LOCAL
from posir_tasks.display.numbers import format_count
from posir_tasks.display.position_charts import PositionChart, draw_glyph
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.result_schema import round_floats
from posir_tasks.values.schemes import RelativePositions
from posir_tasks.values.scores import ALL

#: Maximum number of models per view with pairwise differences on the site.
MAX_PAIRED = 40
#: Maximum number of ranked models for a heading that describes the findings on each.
MAX_DESCRIBED = 3
SIZE_UNITS = {"B": 10**9, "M": 10**6, "K": 1000}
#: States without a verdict.
UNDECIDED_STATES = {State.INCONCLUSIVE, State.NOT_TESTED}
#: Marks both ends of a name in a heading; the page isolates the names from the other text.
NAME_MARK = "\0"
#: Differences between the models of a view, by length.
Differences = Mapping[str, PairedDifferences]
#: Scores by the model's index in a view.
Scores = Mapping[int, Estimate]


@dataclass(frozen=True)
class View:
    """A table of models that a visitor can choose."""

    name: str
    rows: tuple[BoardRecord, ...]
    label: str = ""
    dimension: str = ""
    """The `Dimension` that distinguishes the views of a group."""
    is_average: bool = False
    """True for an average over tasks."""
    is_averaged: bool = False
    """True for a task in the average of its group."""
    power: int = 1
    """2 if the tasks of an average have independent errors, else 1."""

    @property
    def id(self) -> str:
        """Name of the view's file, hashed so that a task's name cannot choose it."""
        return digest("average" if self.is_average else "task", self.name, size=6).hex()

    @cached_property
    def lengths(self) -> list[str]:
        """Names of the lengths, `ALL` first."""
        lengths = dict.fromkeys(row.length for record in self.rows for row in record.rows)
        return list(lengths) or [ALL]

    @cached_property
    def initial_length(self) -> str:
        """Name of the length to show first: the first length with a verdict.

        Without verdicts, this is `ALL` or, if all results are published, the longest documents.
        """
        for length in self.lengths:
            if any(
                row and not UNDECIDED_STATES.issuperset(row.states)
                for row in self.get_rows_at(length)
            ):
                return length
        return self.lengths[0 if self.has_evaluations else -1]

    @property
    def has_evaluations(self) -> bool:
        """True if a result with scores was evaluated with posir."""
        return any(record.rows and not record.model.published for record in self.rows)

    @property
    def initial_order(self) -> tuple[bool, bool, bool]:
        """Sort key of views: verdicts first, then evaluations, then single tasks."""
        states = {state for record in self.rows for row in record.rows for state in row.states}
        return states <= UNDECIDED_STATES, not self.has_evaluations, self.is_average

    def get_rows_at(self, length: str) -> list[BoardRow | None]:
        """Return the row of each record at a length."""
        return [record.rows_by_length.get(length) for record in self.rows]

    def to_json(self, indices: Mapping[str, int], differences: Differences) -> Record:
        """Return the view as columns with an entry per model.

        Only the initial length has all columns; the page loads those of other lengths when needed.

        Args:
            indices: Index of each model's id in the list of all models.
            differences: As `compute_differences` returns them.
        """
        results = [result for record in self.rows for result in record.results]
        revisions = Counter(result.data_revision for result in results if result.data_revision)
        count, is_exact = find_query_count(self.name)
        dates = [
            {"model": indices[result.model.id], "task": result.task, "date": result.detail["date"]}
            for result in results
            if result.detail.get("date")
        ]
        newest = max(dates, key=lambda row: (row["date"], row["task"]), default=None)
        return {
            "models": [indices[record.model.id] for record in self.rows],
            "partial": [record.partial for record in self.rows],
            "standing": [record.standing for record in self.rows],
            "approximate": count is not None and not is_exact,
            "name": self.name,
            "lengths": self.lengths,
            "opening": self.initial_length,
            "columns": self.build_columns(self.initial_length, differences),
            "scores": {
                length: [row.cells["score"] if row else None for row in self.get_rows_at(length)]
                for length in self.lengths
            },
            "revisions": dict(sorted(revisions.items())),
            "about": [describe_result(record) for record in self.rows],
            "newest": newest,
        }

    def build_columns(self, length: str, differences: Differences) -> Columns:
        """Build the columns of one length.

        `paired` counts the ranked models with the same queries. `changes` has a letter per model of
        the view: the initial of the `ChangeState` from that model to the row's model.
        """
        rows = self.get_rows_at(length)
        ranked_rows = self.get_ranked_rows(length)
        scores = [row.score if row else None for row in ranked_rows]
        length_differences = differences[length]
        has_interval = [bool(score and score.interval) for score in scores]
        heading, lead = self.write_heading(length, length_differences)
        labels = []
        glyphs = []
        for record, row, rank in zip(self.rows, rows, ranked_rows, strict=True):
            exclusion = record.exclusion
            if record.comparable and row and not rank:
                exclusion = Exclusion(Unranked.OTHER_MEAN)
            labels.append(exclusion.label if exclusion else "")
            glyph = record.find_detail("strips", length)
            if not glyph and (chart := read_position_chart(record, length, ("",))):
                glyph = draw_glyph(chart)
            glyphs.append(glyph)
        return {
            **build_row_columns(rows),
            "other_data": labels,
            "strip": glyphs,
            "changes": [
                None if set(letters) <= {"-"} else letters for letters in length_differences.letters
            ],
            "rank": list(compute_rank_ranges(scores, length_differences)),
            "paired": (length_differences.paired & has_interval).sum(axis=1).tolist(),
            "where": self.describe_documents(length),
            "headline": heading.split(NAME_MARK),
            "lead": lead.split(NAME_MARK),
        }

    def get_ranked_rows(self, length: str) -> list[BoardRow | None]:
        """Return the ranked row of each record at a length, or None.

        In length buckets, papers give only means over positions, which are not ranked together with
        means over queries.
        """
        pairs = zip(self.rows, self.get_rows_at(length), strict=True)
        rows = [row if record.comparable else None for record, row in pairs]
        means = [row if row and row.ndcg_at_10 else None for row in rows]
        return means if any(means) else rows

    @property
    def data(self) -> str:
        """Name of the data: the task's, unless every ranked result uses local data."""
        ranked_records = [
            record for record in self.rows if record.comparable and not record.model.published
        ]
        results = [result for record in ranked_records for result in record.results]
        if not results or any(record.base_task or not record.local for record in results):
            return self.name
        revisions = {result.data_revision for result in results}
        name = f"{self.name} data, local"
        if len(revisions) > 1:
            return name
        return f"{name}: {revisions.pop().removeprefix(LOCAL)[1:9]}"

    def describe_documents(self, length: str) -> str:
        """Describe the documents of a length: `in long German documents`."""
        if length == ALL or len(self.lengths) == 1:
            return f"on {self.data}"
        is_named = self.dimension in (Dimension.LANGUAGE, Dimension.PAIR)
        documents = f"{self.label} documents" if is_named else "documents"
        short, long, between = LENGTH_PHRASES
        if length == self.lengths[1]:
            return short.format(documents=documents)
        if length == self.lengths[-1]:
            return long.format(documents=documents)
        if bounds := list_length_bounds().get(length):
            length = f"{bounds[0]:,} to {bounds[1]:,} tokens"
        return between.format(documents=documents, length=length)

    def write_heading(self, length: str, differences: PairedDifferences) -> tuple[str, str]:
        """Write the heading about the best models and the lead below it, with a `NAME_MARK` at both
        ends of each name.
        """
        names = [
            NAME_MARK + record.model.short_name.replace(NAME_MARK, "") + NAME_MARK
            for record in self.rows
        ]
        ranked_rows = self.get_ranked_rows(length)
        scores = {index: row.score for index, row in enumerate(ranked_rows) if row and row.score}
        if not scores:
            return HEADINGS["unranked"], ""
        first, *runners_up = sorted(scores, key=lambda index: -scores[index].value)
        ties = [index for index in runners_up if _is_tied(first, index, scores, differences)]
        best = [first, *ties]
        heading = describe_best(
            [names[index] for index in best],
            scores[best[-1]],
            scores[first],
            self.describe_documents(length),
            paired=not runners_up or bool(differences.paired[first, runners_up[0]]),
        )
        if self.has_evaluations and runners_up:
            heading = HEADINGS["models"].format(models=f"{len(scores)} models") + heading
        lead = ""
        if runners_up:
            second = runners_up[0]
            gap, state = differences.read_change(first, second)
            lead = describe_lead(
                names[first],
                names[second],
                gap or Estimate(scores[first].value - scores[second].value),
                state,
                published=self.rows[first].model.published or self.rows[second].model.published,
                margin=DEFAULT_MARGINS.ndcg_at_10,
            )
        rows = [
            (name, row) for name, row in zip(names, ranked_rows, strict=True) if row and row.score
        ]
        if not self.has_evaluations:
            ends = [(name, row.difference) for name, row in rows if row.difference]
            return heading, describe_ends(ends) + lead
        findings = [(name, row.findings) for name, row in rows if row.findings]
        if findings and len(scores) <= MAX_DESCRIBED:
            return "".join(describe_models(findings)), f"{heading}. {lead}"
        if findings:
            results = [group for _, group in findings]
            truncating = sum(bool(group.get_value(Quantity.UNREAD_SHARE)) for group in results)
            lead += f"{count_truncating(truncating, len(results))}. "
            lead += count_states(Counter(map(label_state, results)))
        return heading, lead

    def compute_differences(self) -> Differences:
        """Compare nDCG@10 between models on the same queries at each length."""
        tasks = max((len(record.results) for record in self.rows if record.comparable), default=1)
        buckets = [
            sum(bool(row.queries) for row in result.rows if row.length != ALL)
            for record in self.rows
            for result in record.results
            if result.document_ranks
        ]
        differences = {}
        for length in self.lengths:
            by_task = (self._compare_task(task, length) for task in range(tasks))
            average = average_differences(by_task, power=self.power)
            comparisons = METRIC_COUNT if length == ALL else METRIC_COUNT * max(buckets, default=1)
            differences[length] = replace(average, comparisons=comparisons)
        return differences

    def _compare_task(self, task: int, length: str) -> PairedDifferences:
        """Compare the models on one of the tasks of an average, or on the only task."""
        return compute_paired_differences(
            [
                record.results[task].means.get(length) if record.comparable else None
                for record in self.rows
            ]
        )

    def build_differences(
        self, indices: Mapping[str, int], differences: Differences
    ) -> Record | None:
        """Build the differences between the best `MAX_PAIRED` models at each length, as JSON.

        Return None if no two models have the same queries.
        """
        is_paired = np.any([group.paired.any(axis=1) for group in differences.values()], axis=0)
        paired_models = np.flatnonzero(is_paired).tolist()
        best = sorted(paired_models, key=lambda index: -self._get_overall_score(index))[:MAX_PAIRED]
        if not best:
            return None
        block = np.ix_(best, best)
        columns = {
            length: {
                "value": _to_lists(difference.values[block]),
                "half": _to_lists(difference.half_widths[block]),
                "state": difference.states[block].tolist(),
                "comparisons": difference.comparisons,
            }
            for length, difference in differences.items()
        }
        models = [indices[self.rows[index].model.id] for index in best]
        return {"models": models, "lengths": columns}

    def _get_overall_score(self, index: int) -> float:
        row = self.rows[index].rows_by_length.get(ALL)
        return row.score.value if row and row.score else 0.0


def _to_lists(values: Floats) -> list[Any]:
    lists: list[Any] = round_floats([[replace_nan(value) for value in row] for row in values])
    return lists


def _is_tied(first: int, other: int, scores: Scores, differences: PairedDifferences) -> bool:
    if differences.paired[first, other]:
        return differences.read_change(first, other)[1] is not ChangeState.BETTER
    low = scores[first].low
    return low is not None and low <= (scores[other].high or 0)


def list_length_bounds() -> dict[str, tuple[int, int | None]]:
    """List the minimum and maximum number of tokens of PosIR's length buckets."""
    scheme = RelativePositions()
    lows = (1, *(bound + 1 for bound in scheme.token_bounds))
    ends = zip(lows, (*scheme.token_bounds, None), strict=True)
    return dict(zip(scheme.axes.lengths, ends, strict=True))


def describe_result(record: BoardRecord) -> list[str]:
    """List facts about a model and its result, such as kind, size, window and date."""
    model = record.model
    vectors = record.detail.get("vectors") or 1
    several_places = record.detail.get("several_places")
    window = model.window
    tokens = window and (format_count(window) if window % 1024 else f"{window // 1024}k")
    facts = (
        model.kind,
        shorten_size(model.parameters or 0),
        tokens and f"{tokens} tokens",
        "own license" if (model.license or "").startswith("http") else model.license,
        f"{vectors:.3g} vectors per document" if vectors != 1 else "",
        f"{format_count(several_places)} queries with several evidence spans scored separately"
        if several_places
        else "",
        record.detail.get("date"),
    )
    return [str(fact) for fact in facts if fact]


def shorten_size(parameters: int) -> str:
    """Format a number of parameters with two digits, such as `7.6B`; empty below 1,000."""
    for unit, size in SIZE_UNITS.items():
        if parameters >= size:
            number = float(f"{parameters / size:.2g}")
            return f"{number:g}{unit}"
    return ""


def read_position_chart(
    record: BoardRecord, length: str, caption: Sequence[str]
) -> PositionChart | None:
    """Build a captioned chart of nDCG@10 by position; None if it is unknown."""
    panel = record.find_detail("curves", length) or record.find_detail("panels", length)
    if not panel:
        return None
    estimates = [
        None if mean is None else Estimate(mean, None if low is None else (low, high))
        for mean, low, high in zip(*map(panel.get, BIN_COLUMNS[1:]), strict=True)
    ]
    return PositionChart(record.model.short_name, tuple(caption), tuple(estimates))


def build_views(group: Group, records: Sequence[BoardRecord]) -> Iterator[View]:
    """Yield the view of a group's average, then those of its tasks; omit views without models."""
    average = build_average_view(group, records)
    if average.rows:
        yield average
    for task, label in group.labels.items():
        view = build_task_view(task, records, label)
        if view.rows:
            is_averaged = task in group.averaged_tasks
            yield replace(view, dimension=group.dimension, is_averaged=is_averaged)


def find_initial_view(views: Iterable[View]) -> View:
    """Return the view to open first."""
    return min(views, key=lambda view: view.initial_order)


def build_task_view(task: str, records: Iterable[BoardRecord], label: str = "") -> View:
    """Build the view of a task."""
    return View(task, tuple(record for record in records if record.task == task), label)


def build_average_view(group: Group, records: Sequence[BoardRecord]) -> View:
    """Build the view of a benchmark's average, with every model that has a result on a task."""
    by_model = defaultdict[str, list[BoardRecord]](list)
    for record in records:
        if record.task in group.averaged_tasks:
            by_model[record.model.id].append(record)
    averages = [average_records(group, results) for results in by_model.values()]
    is_compared = any(
        record.rows and record.comparable and not record.model.published for record in averages
    )
    if not is_compared:
        # Without ranked evaluations, published results are ranked among themselves.
        averages = [
            replace(record, exclusion=None) if record.model.published else record
            for record in averages
        ]
    label = f"Average of {len(group.averaged_tasks)} {group.dimension.lower()}s"
    return View(group.name, tuple(averages), label, is_average=True, power=group.power)
