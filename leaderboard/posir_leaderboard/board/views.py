"""Views: the table of one task, or of a benchmark's average, as columns that a browser parses
quickly; and which there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from posir_leaderboard.board.ranks import (
    METRICS,
    PairedDifferences,
    average_differences,
    paired_differences,
    rank_ranges,
)
from posir_leaderboard.board.records import (
    CELL,
    BoardRecord,
    BoardRow,
    Columns,
    board_columns,
    row_columns,
)
from posir_psi.scores import none_if_nan
from posir_published.rows import START_TO_END_UNWEIGHTED, find_query_count
from posir_significance.decision import DEFAULT_MARGINS
from posir_significance.findings import ChangeState, GroupFindings, Quantity, State
from posir_significance.messages import (
    count_states,
    count_truncating,
    describe_models,
    label_state,
    name_change,
)
from posir_tasks.base.digests import digest
from posir_tasks.display.numbers import format_count, format_percent, format_points
from posir_tasks.display.strip import Strip, draw_glyph
from posir_tasks.values.result_schema import rounded
from posir_tasks.values.schemes import RelativePositions
from posir_tasks.values.scores import ALL, Estimate, Unit

if TYPE_CHECKING:
    from mteb.benchmarks.benchmark import Benchmark

#: Most models whose paired differences a site contains: they are of every two.
MOST_PAIRED = 40
#: Most ranked models of which the headline describes the findings.
MAX_DESCRIBED = 3
SIZES = {"B": 10**9, "M": 10**6, "K": 1000}
#: The reason why a published row is not ranked among those of one's own, at a length where they
#: have other means.
OTHER_MEAN = "mean over positions"
#: States that are no verdict.
UNDECIDED = {State.INCONCLUSIVE, State.NOT_TESTED}
#: Dimension of groups whose tasks are different datasets.
DATASET = "Dataset"
#: The changes of nDCG@10 in words, by state.
CHANGES = {state.value: name_change(state, DEFAULT_MARGINS.ndcg_at_10) for state in ChangeState} | {
    "": None
}


@dataclass(frozen=True)
class Group:
    """Tasks that a visitor chooses from: a benchmark, by language, language pair or dataset."""

    name: str
    """Name of the benchmark, if it is one."""
    dimension: str
    """The property in which its tasks differ: language, language pair, dataset."""
    description: str
    labels: Mapping[str, str]
    """The label of each task."""
    averaged_tasks: tuple[str, ...] = ()
    """The tasks in the average."""


def builtin_groups(tasks: Collection[str] = ()) -> list[Group]:
    """Return PosIR's benchmarks, with those of the tasks that are of further languages, and
    PosIR-Mini; imports mteb.
    """
    from posir_tasks.tasks.catalog import build_benchmarks, find_language_task
    from posir_tasks.tasks.nano import NANO, NanoTask
    from posir_tasks.tasks.posir import CROSS_LINGUAL, MONOLINGUAL, PosIRMini
    from posir_tasks.tasks.posq import POSQ_TASKS

    posir, cross_lingual, nano, posq = build_benchmarks()
    others = [task for name in sorted(tasks) if (task := find_language_task(name))]
    of_posir = dict.fromkeys(
        [*MONOLINGUAL.values(), *CROSS_LINGUAL.values(), *NANO.values(), *others]
    )
    samples = {
        task.metadata.name: task.language.name for task in of_posir if issubclass(task, NanoTask)
    }
    names = {
        task.metadata.name: (task.language.name, task.corpus_language.name) for task in of_posir
    }
    languages = {
        name: language
        for name, (language, corpus) in names.items()
        if language == corpus and name not in samples
    }
    pairs = {name: " → ".join(pair) for name, pair in names.items() if len({*pair}) > 1}
    datasets = {task.metadata.name: task.metadata.name for task in POSQ_TASKS}
    mini = PosIRMini.metadata
    return [
        _group(posir, "Language", languages),
        _group(cross_lingual, "Language pair", pairs),
        _group(nano, "Language", samples),
        _group(posq, DATASET, datasets),
        Group(mini.name, DATASET, str(mini.description), {mini.name: mini.name}),
    ]


def _group(benchmark: Benchmark, dimension: str, labels: Mapping[str, str]) -> Group:
    averaged = {task.metadata.name for task in benchmark.tasks}
    return Group(
        benchmark.name,
        dimension,
        str(benchmark.description),
        labels,
        tuple(filter(averaged.__contains__, labels)),
    )


def add_other_tasks(groups: Iterable[Group], tasks: Iterable[str]) -> list[Group]:
    """Return groups, and one more if there are tasks that are in none of them."""
    groups = list(groups)
    others = {
        task: task for task in sorted(set(tasks).difference(*(group.labels for group in groups)))
    }
    description = "Tasks that belong to no benchmark of the papers."
    return [*groups, Group("Other tasks", "Task", description, others)] if others else groups


def add_data_tables(groups: Iterable[Group], records: Iterable[BoardRecord]) -> list[Group]:
    """Return groups in which a task is followed by those of its results on other data, which
    `separate_data` names apart.
    """
    others: dict[str, set[str]] = {}
    for record in records:
        if record.base_task:
            others.setdefault(record.base_task, set()).add(record.task)
    extended = []
    for group in groups:
        labels: dict[str, str] = {}
        for task, label in group.labels.items():
            labels[task] = label
            labels |= {
                other: f"{label}{other.removeprefix(task)}"
                for other in sorted(others.get(task, ()))
            }
        extended.append(replace(group, labels=labels))
    return extended


@dataclass(frozen=True)
class View:
    """A table of models, as it is offered to visitors."""

    name: str
    rows: tuple[BoardRecord, ...]
    label: str = ""
    average: bool = False
    averaged: bool = False
    independent: bool = False
    """Whether the tasks of an average have different data; languages have translations of the same
    queries.
    """

    @property
    def id(self) -> str:
        """Name of its file, a hash, so that a task's name cannot choose it."""
        return digest("average" if self.average else "task", self.name, size=6).hex()

    @property
    def lengths(self) -> list[str]:
        """Names of the lengths, all of them together first."""
        return list(
            dict.fromkeys(length for record in self.rows for length in record.rows_by_length)
        ) or [ALL]

    @property
    def opening_length(self) -> str:
        """Name of the length that is shown first: the first with a verdict, of own results all;
        else the longest documents.
        """
        return next(filter(self.has_verdict, self.lengths), self.lengths[0 if self.own else -1])

    @property
    def own(self) -> bool:
        """Whether a result that is not published has scores."""
        return any(record.rows and not record.model.published for record in self.rows)

    @property
    def opening_order(self) -> tuple[bool, bool, bool]:
        """Sort key of what opens first: a view with a verdict, with own results, of one task."""
        return not any(map(self.has_verdict, self.lengths)), not self.own, self.average

    def has_verdict(self, length: str) -> bool:
        """Return whether it can be said of any result how it is biased at a length."""
        states = {
            state
            for record in self.rows
            if (row := record.rows_by_length.get(length))
            for state in row.states
        }
        return not states <= UNDECIDED

    def to_json(self, indices: Mapping[str, int]) -> dict[str, Any]:
        """Return the view as columns, one entry per model, given each model id's index in the list
        of all models.

        It opens on the longest documents. Of other lengths it has nDCG@10 only; the page loads
        their columns when needed.
        """
        results = [result for record in self.rows for result in record.results]
        revisions = Counter(str(result.detail["data_revision"]) for result in results)
        dated = [result for result in results if result.detail.get("date")]
        # The papers give some numbers of queries only approximately.
        approximate = (counted := find_query_count(self.name)) is not None and not counted.exact
        newest = max(
            dated,
            key=lambda result: (result.detail["date"], result.task, result.model.id),
            default=None,
        )
        return {
            "models": [indices[record.model.id] for record in self.rows],
            "partial": [record.partial for record in self.rows],
            "standing": [record.standing for record in self.rows],
            "approximate": [approximate and record.model.published for record in self.rows],
            "name": self.name,
            "lengths": self.lengths,
            "opening": self.opening_length,
            "columns": self.columns(self.opening_length),
            "scores": {
                length: [record.read_score("score", length) for record in self.rows]
                for length in self.lengths
            },
            # The papers name none.
            "revisions": {
                revision: number for revision, number in sorted(revisions.items()) if revision
            },
            "about": [describe_result(record) for record in self.rows],
            "newest": newest
            and {
                "model": indices[newest.model.id],
                "task": newest.task,
                "date": newest.detail["date"],
            },
        }

    def columns(self, length: str) -> Columns:
        """Return the columns of one length, with rank ranges and, for each model, how many ranked
        ones it is paired with.

        `changes` has a letter for each model of the view, with which the name of the change from it
        to the row's begins.
        """
        scored = [record.rows_by_length.get(length) for record in self.rows]
        rows = self.ranked_rows(length)
        differences = self.differences(length)
        values = [row.score.value if row and row.score else None for row in rows]
        ends = [row.score.interval if row and row.score else None for row in rows]
        letters = np.where(differences.paired, differences.states().astype("U1"), "-")
        return {
            **row_columns(scored),
            "other_data": [
                record.mark or (OTHER_MEAN if record.comparable and row and not ranked else "")
                for record, row, ranked in zip(self.rows, scored, rows, strict=True)
            ],
            "strip": self.strips(length),
            "changes": [None if {*line} == {"-"} else "".join(line) for line in letters.tolist()],
            "rank": list(rank_ranges(values, ends, differences=differences)),
            "paired": (differences.paired & [interval is not None for interval in ends])
            .sum(axis=1)
            .tolist(),
            "where": self.describe_documents(length),
            **self.write_headline(length, differences),
        }

    def strips(self, length: str) -> list[Any]:
        """Return the picture of the answer of each record at a length, None where its positions are
        unknown.
        """
        strips = ((record, read_strip(record, length)) for record in self.rows)
        return [
            record.find_detail("strips", length) or (strip and draw_glyph(strip))
            for record, strip in strips
        ]

    def ranked_rows(self, length: str) -> list[BoardRow | None]:
        """Return the row of each record that is ranked at a length, None of others.

        In a length bucket the papers have the mean over positions alone, which is not ranked among
        means over queries.
        """
        rows = [
            record.rows_by_length.get(length) if record.comparable else None for record in self.rows
        ]
        over_queries = any(row and row.ndcg_at_10 for row in rows)
        return [row if row and (row.ndcg_at_10 or not over_queries) else None for row in rows]

    @property
    def data(self) -> str:
        """Name of the data: that of the task, unless all that is ranked is on a local folder's
        data.
        """
        own = [record for record in self.rows if record.comparable and not record.model.published]
        if any(record.base_task for record in own):
            return self.name
        local = {
            str(result.detail["data_revision"])
            for record in own
            for result in record.results
            if result.local
        }
        if not own or not all(result.local for record in own for result in record.results):
            return self.name
        digest_of_one = local.pop().partition("-")[2][:8] if len(local) == 1 else ""
        return f"{self.name} data, local" + (f": {digest_of_one}" if digest_of_one else "")

    def describe_documents(self, length: str) -> str:
        """Return which documents a length has, in words."""
        if length == ALL or len(self.lengths) == 1:
            return f"on {self.data}"
        questions, _, language = self.label.rpartition(" → ")
        what = (
            "documents" if self.average or language in ("", self.name) else f"{language} documents"
        )
        ends = {self.lengths[1]: f"short {what}", self.lengths[-1]: f"long {what}"}
        titles = dict(
            zip(
                RelativePositions().axes.lengths,
                RelativePositions().axes.length_titles,
                strict=True,
            )
        )
        asked = f"for {questions} questions " if questions else ""
        return (
            f"{asked}in "
            f"{ends.get(length) or f'{what} of ' + titles.get(length, length).split(': ')[-1]}"
        )

    def write_headline(self, length: str, differences: PairedDifferences) -> dict[str, list[str]]:
        """Return which models find evidence best, and below it what is known of the first: parts,
        each second one a name.
        """
        rows, names = self.ranked_rows(length), [record.model.short_name for record in self.rows]
        scores = {place: row.score for place, row in enumerate(rows) if row and row.score}
        if not scores:
            return {
                "headline": [
                    "No result here is ranked: all are partial, or on data that are not pinned."
                ],
                "lead": [],
            }
        first, *others = sorted(scores, key=lambda place: -scores[place].value)
        ahead, paired = differences.states()[first] == ChangeState.BETTER, differences.paired[first]
        low = scores[first].low
        ties = [
            at
            for at in others
            if (not ahead[at] if paired[at] else low is not None and low <= (scores[at].high or 0))
        ]
        where, best = (
            f"{self.describe_documents(length)}: nDCG@10",
            format_percent(scores[first].value),
        )
        counted = f"Of {len(scores)} models, " if self.own and others else ""
        verb = "finds evidence best" if paired[others[:1]].all() else "scores highest"
        headline = [counted, names[first], f" {verb} {where} {best}"]
        if ties:
            said = (
                f" cannot be told apart {where} {format_percent(scores[ties[-1]].value)} to {best}"
            )
            headline[2:] = (
                [f" and {len(ties)} others{said}"] if ties[1:] else [" and ", names[ties[0]], said]
            )
        lead = [""]
        if others:
            second, end = others[0], ""
            gap = (
                differences.values[first, second]
                if paired[second]
                else scores[first].value - scores[second].value
            )
            if paired[second]:
                half = differences.half_widths()[first, second]
                ends = ",\xa0".join(
                    format_points(min(max(end, -1), 1)) for end in (gap - half, gap + half)
                )
                same = differences.states()[first, second] == ChangeState.EQUIVALENT
                end = f" [{ends}]" + (f" ({CHANGES[ChangeState.EQUIVALENT]})" if same else "")
            elif not (self.rows[first].model.published or self.rows[second].model.published):
                end = " (no interval: other queries or few documents)"
            lead += [
                names[first],
                f" is {format_percent(gap)} points ahead of ",
                names[second],
                f"{end}. ",
            ]
        group_findings = {
            at: findings for at in scores if (row := rows[at]) and (findings := row.findings)
        }
        if group_findings and len(scores) <= MAX_DESCRIBED:
            # The lead continues the sentence about the best, whose name it begins with.
            joins = bool(others) and not ties
            ahead = (
                [f",{lead[2].removeprefix(' is')}", *lead[3:]]
                if joins
                else [f". {lead[0]}", *lead[1:]]
            )
            lead = [*headline[:-1], headline[-1] + ahead[0], *ahead[1:]]
            headline = [
                *describe_models([(names[at], findings) for at, findings in group_findings.items()])
            ]
            return {"headline": headline, "lead": lead}
        if group_findings:
            lead[-1] += self._count_findings(group_findings.values())
        if not self.own:
            *parts, last = describe_ends([(names[at], rows[at]) for at in scores])
            lead = [*parts, last + lead[0], *lead[1:]]
        if not any(self.strips(length)) and any(any(self.strips(other)) for other in self.lengths):
            lead[-1] += (
                f"Curves are published by length: choose {self.lengths[1]} to {self.lengths[-1]}. "
            )
        return {"headline": headline, "lead": lead}

    def _count_findings(self, groups: Iterable[GroupFindings]) -> str:
        """Return how many of one's own results truncate evidence, and how many have each state, as
        sentences.
        """
        results = list(groups)
        truncating = sum(bool(findings.value(Quantity.UNREAD_SHARE)) for findings in results)
        states = Counter(label_state(findings) for findings in results)
        return f"{count_truncating(truncating, len(results))}. {count_states(states)} "

    def differences(self, length: str) -> PairedDifferences:
        """Return the differences of nDCG@10 between models on the same queries, at one length."""
        tasks = max((len(record.results) for record in self.rows if record.comparable), default=1)
        by_task = [
            paired_differences(
                [
                    record.results[task].means.get(length) if record.comparable else None
                    for record in self.rows
                ]
            )
            for task in range(tasks)
        ]
        differences = average_differences(by_task, power=2 if self.independent else 1)
        results = [
            result for record in self.rows for result in record.results if result.document_ranks
        ]
        buckets = (
            sum(bool(row.queries) for row in result.rows if row.length != ALL) for result in results
        )
        return replace(
            differences, comparisons=METRICS * (1 if length == ALL else max(buckets, default=1))
        )

    def differences_json(self, indices: Mapping[str, int]) -> dict[str, Any] | None:
        """Return the paired differences between the best models on the same queries, at each
        length; None if there are none.
        """
        differences = {length: self.differences(length) for length in self.lengths}
        overall = [record.read_score("score", ALL) or 0 for record in self.rows]
        best = sorted(range(len(overall)), key=lambda place: -overall[place])
        best = [
            place
            for place in best
            if any(difference.paired[place].any() for difference in differences.values())
        ]
        if not (best := best[:MOST_PAIRED]):
            return None
        block = np.ix_(best, best)
        columns = {
            length: {
                "value": _lists(difference.values[block]),
                "half": _lists(difference.half_widths()[block]),
                "state": [
                    [CHANGES[state] for state in line]
                    for line in difference.states()[block].tolist()
                ],
                "comparisons": difference.comparisons,
            }
            for length, difference in differences.items()
        }
        return {
            "models": [indices[self.rows[place].model.id] for place in best],
            "lengths": columns,
        }


def describe_ends(rows: Sequence[tuple[str, BoardRow | None]]) -> list[str]:
    """Return the largest start minus end in either direction, in parts of which each second one is
    a name.

    Left out are rows whose interval includes 0.
    """
    shown = [(name, row.difference) for name, row in rows if row and row.difference]
    clear = [
        (name, difference.value) for name, difference in shown if not _includes_zero(difference)
    ]
    high = max(clear, key=itemgetter(1), default=("", 0.0))
    low = min(clear, key=itemgetter(1), default=("", 0.0))
    points = [(high, "higher")] if high[1] > 0 else []
    points += [(low, "lower")] if low[1] < 0 else []
    parts = [""]
    for (name, value), word in points:
        than = f", {format_percent(abs(value))} {word} with "
        if len(parts) == 1:
            than = (
                f"Evidence at the start scores {format_percent(abs(value))} points {word} than at "
                "the end with "
            )
        parts[-1] += than
        parts += [name, ""]
    return [*parts[:-1], f"{parts[-1]}. "] if points else parts


def _includes_zero(estimate: Estimate) -> bool:
    return estimate.interval is not None and estimate.interval[0] <= 0 <= estimate.interval[1]


def describe_result(record: BoardRecord) -> str:
    """Return what is known of a model and its result: kind, size, window, license, vectors of a
    document if several, date.
    """
    model, window = record.model, record.model.window or 0
    vectors = record.detail.get("vectors") or 1
    size = next((size for size in ("B", "M", "K") if (model.parameters or 0) >= SIZES[size]), "")
    known = (
        model.kind,
        size and f"{float(f'{(model.parameters or 0) / SIZES[size]:.2g}'):g}{size}",
        window and f"{format_count(window) if window % 1024 else f'{window // 1024}k'} tokens",
        "own license" if (model.license or "").startswith("http") else model.license,
        vectors != 1 and f"{vectors:.3g} vectors a document",
        record.detail.get("several_places")
        and f"{format_count(record.detail['several_places'])} queries with several places apart",
        record.detail.get("date"),
    )
    return " · ".join(str(part) for part in known if part)


def _lists(values: Any) -> list[Any]:
    lists: list[Any] = rounded([[none_if_nan(value) for value in row] for row in values])
    return lists


def read_strip(record: BoardRecord, length: str, *words: str) -> Strip | None:
    """Return nDCG@10 by position bins of whole documents, with words next to it; None if it is
    unknown.
    """
    panel = record.find_detail("curves", length) or record.find_detail("panels", length)
    if not panel:
        return None
    cells = zip(
        *(panel[name] for name in ("ndcg_at_10", "ndcg_at_10_low", "ndcg_at_10_high")), strict=True
    )
    parts = tuple(
        None if mean is None else Estimate(mean, None if low is None else (low, high))
        for mean, low, high in cells
    )
    return Strip(record.model.short_name, words or ("By position in whole documents",), parts)


def build_views(group: Group, records: Sequence[BoardRecord]) -> Iterator[View]:
    """Yield the views of a group that contain any model, the average first."""
    views = [build_average_view(group, records)]
    views += [
        build_task_view(task, records, label, averaged=task in group.averaged_tasks)
        for task, label in group.labels.items()
    ]
    return (view for view in views if view.rows)


def build_task_view(
    task: str, records: Iterable[BoardRecord], label: str = "", *, averaged: bool = False
) -> View:
    """Return the view of a task."""
    return View(
        task, tuple(record for record in records if record.task == task), label, averaged=averaged
    )


def build_average_view(group: Group, records: Sequence[BoardRecord]) -> View:
    """Return the view of a benchmark's average, with the models that have any of its tasks."""
    by_model: dict[str, list[BoardRecord]] = {}
    for record in records:
        if record.task in group.averaged_tasks:
            by_model.setdefault(record.model.id, []).append(record)
    averages = [_average_records(group, of_model) for of_model in by_model.values()]
    if not any(
        record.rows and record.comparable and not record.model.published for record in averages
    ):
        # Nothing of one's own has an average that published ones could be mistaken for comparable
        # with.
        averages = [
            replace(record, mark="") if record.model.published else record for record in averages
        ]
    label = f"Average of {len(group.averaged_tasks)} {group.dimension.lower()}s"
    return View(
        group.name, tuple(averages), label, average=True, independent=group.dimension == DATASET
    )


def _average_records(group: Group, records: Sequence[BoardRecord]) -> BoardRecord:
    """Return the average of a model's results on the tasks of a group; without rows if it lacks
    one.
    """
    model, tasks = records[0].model, len(group.averaged_tasks)
    records = sorted(records, key=lambda record: group.averaged_tasks.index(record.task))
    average = BoardRecord(
        model,
        group.name,
        (),
        {},
        standing=min(record.standing for record in records),
        mark=max(record.mark for record in records),
        members=tuple(records),
    )
    complete = [record.rows_by_length for record in records if not record.partial]
    if len(complete) < tasks:
        return replace(average, partial=f"{len(complete)} of {tasks} tasks")
    power = 2 if group.dimension == DATASET else 1
    rows = {
        length: average_rows([of_task[length] for of_task in complete], group.name, power)
        for length in complete[0]
        if all(length in of_task for of_task in complete)
    }
    if not model.published:
        return replace(
            average, rows=tuple(rows.values()), detail=average_detail(records, list(rows))
        )
    if (queries := find_query_count(group.name)) and ALL in rows:
        # The papers give the exact sum, but only the average for most languages.
        rows[ALL] = rows[ALL].with_scores(queries=queries.number)
    # Curves could be read of other languages for each model, so they have no average.
    unread = {START_TO_END_UNWEIGHTED.key: None} if power == 1 else {}
    return replace(average, rows=tuple(row.with_scores(**unread) for row in rows.values()))


def average_detail(tasks: Sequence[BoardRecord], lengths: Sequence[str]) -> dict[str, Any]:
    """Return the curves of an average: unweighted means over tasks, of ends of intervals, too.

    The ends are those of fully correlated errors. Empty unless all tasks have the same positions.
    """
    if len({tuple(task.detail["positions"]) for task in tasks}) > 1:
        return {}
    panels, curves = (
        [_average_panels([task.find_detail(name, length) for task in tasks]) for length in lengths]
        for name in ("panels", "curves")
    )
    if not any(panels):
        return {}
    return {
        **{
            name: tasks[0].detail[name]
            for name in ("lengths", "positions", "position_title", "relative")
        },
        "panels": panels,
        "curves": curves,
    }


def _average_panels(panels: Sequence[Columns | None]) -> Columns | None:
    known = [panel for panel in panels if panel]
    if len(known) < len(panels):
        return None
    columns = {name: zip(*(panel[name] for panel in known), strict=True) for name in CELL}
    means = {
        name: [None if None in values else round(float(np.mean(values)), 6) for values in bins]
        for name, bins in columns.items()
    }
    return means | {
        "queries": [
            sum(counts) for counts in zip(*(panel["queries"] for panel in known), strict=True)
        ]
    }


def average_rows(rows: Sequence[BoardRow], name: str, power: int = 1) -> BoardRow:
    """Return the unweighted mean over tasks of the board's scores, as the papers average over
    languages.

    The distances to the ends of the intervals are combined: `power` is 2 for tasks on different
    data, whose errors add in quadrature; 1 for fully correlated ones, such as translations of the
    same queries. A value that a task lacks is None in the average. The rows are of one model at one
    length.
    """
    queries = [row.queries for row in rows if row.queries is not None]
    # The mean over tasks of others means nothing.
    units = (Unit.PERCENT, Unit.POINTS, Unit.INDEX, Unit.NUMBER)
    keys = [column.key for column in board_columns() if column.unit in units]
    return BoardRow(
        model=rows[0].model,
        task=name,
        length=rows[0].length,
        revision=rows[0].revision,
        scores={
            "queries": sum(queries) if len(queries) == len(rows) else None,
            **{key: _average([row.estimate(key) for row in rows], power) for key in keys},
        },
        task_states=tuple((row.states[0], row.state_label) for row in rows if row.findings),
    )


def _average(estimates: Sequence[Estimate | None], power: int) -> Estimate | float | None:
    known = [estimate for estimate in estimates if estimate is not None]
    if len(known) < len(estimates):
        return None
    mean = sum(estimate.value for estimate in known) / len(known)
    intervals = [estimate.interval for estimate in known if estimate.interval]
    if len(intervals) < len(known):
        return mean
    errors = [
        (value - low, high - value)
        for (low, high), value in zip(intervals, (e.value for e in known), strict=True)
    ]
    below, above = (
        sum(error**power for error in side) ** (1 / power) / len(known)
        for side in zip(*errors, strict=True)
    )
    return Estimate(mean, (mean - below, mean + above))
