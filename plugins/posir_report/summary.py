"""Rows of results: a task's subsets are pooled by adding their values, and the sums are scored."""

from __future__ import annotations

from collections import ChainMap, Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any, Self, TypeVar

import numpy as np

from posir_published.rows import (
    CROSS_LINGUAL,
    MONOLINGUAL,
    NOTABLE_BIAS,
    TWO_DATASETS,
    describe_notable,
    find_notable_bias,
)
from posir_significance.analysis import GroupAnalysis, analyze_places, load_group
from posir_significance.decision import (
    DEFAULT_MARGINS,
    Margins,
    decide_group,
    decide_places,
)
from posir_significance.findings import GroupFindings, Quantity
from posir_significance.messages.verdicts import describe_group
from posir_significance.strips import build_strip
from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import drop_organizations
from posir_tasks.data.repository import LOCAL, combine_revisions
from posir_tasks.display.numbers import MISSING, draw_sparkline
from posir_tasks.display.strip import Strip, sketch_strip
from posir_tasks.models.command_reference import NO_REFERENCE, CommandReference
from posir_tasks.plugin_api import score_result
from posir_tasks.results import StoredResult, SubsetResult
from posir_tasks.text.languages import LANGUAGES
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.place_ranks import PLACES
from posir_tasks.values.profile import PositionProfile, pool
from posir_tasks.values.result_schema import SubsetData, share_data
from posir_tasks.values.scores import (
    ALL,
    GroupScores,
    ResultScores,
    ResultValues,
    ScoreValue,
    flatten,
    prefix_scores,
)


def partial_suffix(subsets: int, missing: int) -> str:
    """Return what follows the name of a task of which subsets are missing: ` (partial: 2 of 32
    subsets)`; else nothing.
    """
    return f" (partial: {subsets} of {subsets + missing} subsets)" if missing else ""


def full_labels(runs: Iterable[Any]) -> list[str]:
    """Return a label for each result or row: its model, and the revision if there are several of
    the model.
    """
    listed = list(runs)
    revisions = defaultdict(set)
    for run in listed:
        revisions[run.model].add(run.revision)
    return [
        f"{run.model} @ {run.revision[:12]}" if len(revisions[run.model]) > 1 else run.model
        for run in listed
    ]


def short_labels(runs: Iterable[Any]) -> list[str]:
    """Return the full label of each run without the model's organization, unless two models differ
    in it alone.
    """
    return drop_organizations(full_labels(runs))


Value = TypeVar("Value")
Summary = TypeVar("Summary", bound="RunSummary")
#: Maximum number of results with a sentence each.
MAX_SENTENCES = 6
#: Columns of the verdict, next to those of the scores that it is about.
VERDICT_COLUMNS = (
    "state",
    "reason",
    "margin",
    "level",
    "questions_needed",
    "documents_needed",
    "answer",
)
#: Columns of the subsets of a row.
COUNTS = ("subsets", "missing_subsets")
#: Columns that are not scores. (`state` is a score, at the default margin.)
UNDECLARED = VERDICT_COLUMNS[1:]


@dataclass(frozen=True)
class RunSummary:
    """The results of one model on one task."""

    model: str
    """Full name, followed by the settings of the run in parentheses if they are not the model's
    defaults.
    """
    revision: str
    task: str
    """Its name; followed by its data in parentheses if other models have results on other data of
    the name.
    """
    subsets: tuple[str, ...]
    missing: tuple[str, ...]
    """Subsets of the task without a result."""
    data_revision: str
    """Revision of the dataset; several, separated by commas, if the subsets have different ones."""
    data: SubsetData = field(default_factory=dict, kw_only=True)
    """The data of each subset."""

    @property
    def full_task(self) -> str:
        """The task; a subclass adds the part of it."""
        return self.task


@dataclass(frozen=True)
class TaskSummary(RunSummary):
    """One model on one task, all its subsets pooled."""

    values: ResultValues
    """The sums of the subsets' values."""
    scores: ResultScores
    margins: Margins = DEFAULT_MARGINS
    """The smallest differences that matter."""
    reference: CommandReference = NO_REFERENCE
    """The names of the model and the task in commands."""

    @property
    def findings(self) -> GroupFindings:
        """The findings over all lengths."""
        return decide_group(self.values, 0, self.margins.position_effect)

    @cached_property
    def place_findings(self) -> GroupFindings | None:
        """The findings on the queries with several places of evidence; None if there are none."""
        return decide_places(self.values, self.margins.position_effect)

    @property
    def profile(self) -> PositionProfile:
        """The pooled position profile."""
        return self.values.profile

    @property
    def ranks(self) -> DocumentRanks:
        """The pooled ranks by document."""
        return self.values.ranks


@dataclass(frozen=True, kw_only=True)
class ReportRow:
    """A line of a report: a model on a task, at all lengths, in a length bucket, or in a position
    bin.

    Scores that reports rely on have typed access; None if undefined or unknown.
    """

    model: str
    task: str
    revision: str = ""
    """Revision of the model; empty for published results."""
    length: str = ALL
    """`all`, or the length bucket."""
    length_title: str = ""
    """The length bucket with its bounds: `Q1 up to 512`."""
    position: str | None = None
    """The position bin; None for all positions."""
    scores: GroupScores = field(default_factory=dict)
    """Scores by key."""
    findings: GroupFindings | None = None
    """The findings of the row; None for a position bin and for published results."""
    load_group: Callable[[], GroupAnalysis] | None = field(default=None, repr=False, compare=False)
    """Returns the analysis that the findings follow from."""
    reference: CommandReference = NO_REFERENCE
    """The names of the model and the task in commands."""
    subsets: int = 0
    missing_subsets: int = 0
    published_curve: tuple[float, ...] = ()
    """nDCG@10 of each position bin of a published row; NaN where unknown."""

    @property
    def sketch(self) -> str:
        """The picture of the answer as a line of text, which a published row has of its position
        bins.
        """
        if self.strip:
            return sketch_strip(self.strip)
        return draw_sparkline(self.published_curve) or MISSING

    @cached_property
    def strip(self) -> Strip | None:
        """The picture of the findings, named by the model; None without any."""
        if self.findings is None or self.load_group is None:
            return None
        return build_strip(self.findings, self.load_group(), self.model)

    def identity(self) -> dict[str, str]:
        """Return the columns that say what the row is about."""
        position = {} if self.position is None else {"position": self.position}
        return {
            "model": self.model,
            "revision": self.revision,
            "task": self.task,
            "length": self.length,
            **position,
        }

    def score_columns(self, keys: Container[str] | None = None) -> dict[str, Any]:
        """List the scores as columns, those with these keys if given; an estimate has three.

        A score whose key another column has is `scores.KEY`.
        """
        cells: dict[str, Any] = {}
        for key, value in self.scores.items():
            if keys is None or key in keys:
                cells |= flatten(key, value)
        return prefix_scores(cells, (*self.identity(), *COUNTS, *UNDECLARED))

    def verdict_columns(self) -> dict[str, Any]:
        """Return the columns of the verdict, of what it follows from, and of its sentences; None
        without findings.
        """
        if self.findings is None:
            return dict.fromkeys(VERDICT_COLUMNS)
        values = self.findings.to_json() | {"answer": describe_group(self.findings)}
        return {name: values[name] for name in VERDICT_COLUMNS}

    def columns(self) -> dict[str, Any]:
        """Return the row as the columns of CSV and charts; an estimate has three."""
        columns = self.identity() | self.score_columns()
        if self.position is None:
            columns |= self.verdict_columns()
            columns |= {"subsets": self.subsets, "missing_subsets": self.missing_subsets}
        return columns

    def with_scores(self, **changed: ScoreValue) -> Self:
        """Return the row with other values of some scores."""
        return replace(self, scores=ChainMap(changed, self.scores))  # type: ignore[arg-type]

    def estimate(self, key: str) -> Estimate | None:
        """Return a score that has an interval, or at least may have one."""
        value = self.scores.get(key)
        if isinstance(value, int | float):
            return Estimate(value)
        return value if isinstance(value, Estimate) else None

    def get(self, key: str, kind: type[Value]) -> Value | None:
        """Return a score of a type."""
        value = self.scores.get(key)
        return value if isinstance(value, kind) else None

    @property
    def queries(self) -> int | None:
        """Number of queries."""
        return self.get("queries", int)

    @property
    def ndcg_at_10(self) -> Estimate | None:
        """Mean over queries, in [0, 1]."""
        return self.estimate("ndcg_at_10")

    @property
    def ndcg_at_10_as_published(self) -> Estimate | None:
        """Unweighted mean of the position bins, as papers report length buckets."""
        return self.estimate("ndcg_at_10_as_published")

    @property
    def position_effect(self) -> Estimate | None:
        """Evidence in the first third of its document minus the same evidence in the last, in
        nDCG@10.
        """
        return self.estimate("position_effect")

    @property
    def start_minus_end(self) -> Estimate | None:
        """First third of documents minus the last as the data lie, in nDCG@10: a description."""
        return self.estimate("start_minus_end")

    @property
    def psi_as_published(self) -> float | None:
        """Observed PSI."""
        return self.get("psi_as_published", float)


def summarize(
    results: Iterable[SubsetResult], margins: Margins = DEFAULT_MARGINS
) -> list[TaskSummary]:
    """Pool the subsets of each model and task, ordered by model, revision and task, with tasks
    named apart by their data.

    Raises:
        PosirError: A subset would count twice.
    """
    summaries = []
    for run, group in groupby(sorted(results, key=identify_run), key=identify_run):
        listed = list(group)
        model, _, task = run
        subsets = list_subsets(model, task, listed)
        missing = {name for result in listed for name in result.run.get("missing_subsets", ())}
        values = pool(result.values for result in listed)
        summary = TaskSummary(
            *run,
            subsets,
            tuple(sorted(missing - {*subsets})),
            combine_revisions(result.data.revision for result in listed),
            values,
            score_result(values),
            margins,
            listed[0].reference,
            data={result.subset: result.data for result in listed},
        )
        summaries.append(summary)
    return name_tasks_by_data(summaries)


def identify_run(result: StoredResult) -> tuple[str, str, str]:
    """Return model, revision and task; a run with other settings is another model."""
    settings = f" ({result.experiment})" if result.experiment else ""
    return result.model + settings, result.revision, result.task


def list_subsets(model: str, task: str, results: Sequence[StoredResult]) -> tuple[str, ...]:
    """Return the subsets that results are of; raise PosirError if one would count twice."""
    subsets = tuple(result.subset for result in results)
    duplicates = [subset for subset, times in Counter(subsets).items() if times > 1]
    if duplicates:
        files = sorted({str(result.file) for result in results if result.subset in duplicates})
        raise PosirError(
            f"{model} on {task}: the subset '{duplicates[0]}' has several results, which would "
            f"count twice: {', '.join(files)}. Report one of the folders at a time, or remove "
            "one of the results."
        )
    return subsets


def name_tasks_by_data(summaries: Sequence[Summary]) -> list[Summary]:
    """Return summaries in which tasks have names of their own if results are on different data of
    one name.

    Everything that puts models side by side does so by task, so results on different data are never
    in one table, chart or ranking. If one of the data is on the Hub, it keeps the task's name.
    """
    groups: dict[str, list[list[int]]] = {}
    # The first of a group has the most of its data.
    for place in sorted(range(len(summaries)), key=lambda place: -len(summaries[place].data)):
        summary = summaries[place]
        of_task = groups.setdefault(summary.full_task, [])
        for group in of_task:
            if _have_same_data(summary, summaries[group[0]]):
                group.append(place)
                break
        else:
            of_task.append([place])
    named = list(summaries)
    for of_task in groups.values():
        revisions = [summaries[group[0]].data_revision for group in of_task]
        from_hub = [revision for revision in revisions if not revision.startswith(LOCAL)]
        for number, (group, revision) in enumerate(zip(of_task, revisions, strict=True), start=1):
            if len(of_task) > 1 and from_hub != [revision]:
                is_shared = revisions.count(revision) > 1
                data = f"{revision}, content {number}" if is_shared else revision
                for place in group:
                    task = f"{summaries[place].task} (data {data})"
                    named[place] = replace(summaries[place], task=task)
    return named


def _have_same_data(own: RunSummary, other: RunSummary) -> bool:
    """Tell whether results are on the same data; a part of the data belongs to it if it is marked
    as partial.
    """
    is_whole = own.data.keys() == other.data.keys() or own.missing or other.missing
    return bool(is_whole) and share_data(own.data, other.data)


def build_row(summary: TaskSummary, **fields: Any) -> ReportRow:
    """Return a row of a model on a task with some fields."""
    return replace(
        ReportRow(
            model=summary.model,
            task=summary.task,
            revision=summary.revision,
            reference=summary.reference,
            subsets=len(summary.subsets),
            missing_subsets=len(summary.missing),
        ),
        **fields,
    )


def build_rows(summary: TaskSummary) -> list[ReportRow]:
    """Return the row of all lengths, then one per length bucket, each with its findings."""
    lengths = len(summary.profile.lengths)
    indices = range(1 + lengths if lengths > 1 else 1)
    return [build_length_row(summary, index) for index in indices]


def build_length_row(summary: TaskSummary, index: int) -> ReportRow:
    """Return the row of all lengths (index 0), or of a length bucket (from 1)."""
    profile = summary.profile
    length = profile.lengths[index - 1] if index else ALL
    title = profile.axes.length_titles[index - 1] if index else ""
    findings = decide_group(summary.values, index, summary.margins.position_effect)
    row = build_row(
        summary,
        length=length,
        length_title=title.replace(":", "").removesuffix(" tokens"),
        scores=summary.scores[length.lower()],
        findings=findings if profile.queries else None,
        load_group=partial(load_group, summary.values, index),
    )
    # The declared state is that of the default margin.
    changed = row.findings is not None and summary.margins != DEFAULT_MARGINS
    return row.with_scores(state=findings.state.value) if changed else row


def build_place_row(summary: TaskSummary) -> ReportRow | None:
    """Return the row of the queries with several places of evidence, as a task of its own; None if
    there are none.
    """
    findings = summary.place_findings
    places = analyze_places(summary.values)
    if findings is None or places is None:
        return None
    shown = (Quantity.NDCG_AT_10, Quantity.START_MINUS_END)
    scores: GroupScores = {
        "queries": findings.questions,
        "unread_share": findings.value(Quantity.UNREAD_SHARE),
        "state": findings.state.value,
        **{quantity.value: findings[quantity].estimate for quantity in shown},
    }
    return build_row(
        summary,
        task=f"{summary.task}{PLACES}",
        scores=scores,
        findings=findings,
        load_group=lambda: places,
    )


def mark_notable_bias(rows: Iterable[ReportRow]) -> list[ReportRow]:
    """Return rows that say whether the bias of the model is notable, from its PSI on both datasets
    of PosQ.
    """
    listed = list(rows)
    psi: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in listed:
        value = row.psi_as_published
        if row.length == ALL and row.task in TWO_DATASETS and value is not None:
            psi[row.model, row.revision][row.task] = value
    marked = []
    for row in listed:
        mark = find_notable_bias(psi[row.model, row.revision]).get(row.task)
        marked.append(row.with_scores(**{NOTABLE_BIAS.key: describe_notable(mark)}))
    return marked


#: Tasks over which PosIR averages, by the name of the average, which is that of its published rows.
AVERAGED_TASKS = {
    MONOLINGUAL: frozenset(f"PosIR-{language.name}" for language in LANGUAGES),
    CROSS_LINGUAL: frozenset(
        f"PosIR-{language.name}-English"
        for language in LANGUAGES
        if language.cross_lingual_in_paper
    ),
}


def average_languages(rows: Iterable[ReportRow]) -> list[ReportRow]:
    """Return the unweighted means over the languages of PosIR, as its Tables 2 and 3 have them
    (arXiv 2601.08363).

    They are of the published readings, for each model and length, and only where all languages of
    the paper have a result.
    """
    groups: defaultdict[tuple[str, str, str, str], dict[str, ReportRow]] = defaultdict(dict)
    for row in rows:
        for name, tasks in AVERAGED_TASKS.items():
            if row.task in tasks and row.position is None:
                groups[row.model, row.revision, name, row.length][row.task] = row
    averages = []
    for (model, revision, name, length), by_task in groups.items():
        means: GroupScores = {}
        for key in ("ndcg_at_10", "ndcg_at_10_as_published", "psi_as_published"):
            estimates = [row.estimate(key) for row in by_task.values()]
            values = [estimate.value for estimate in estimates if estimate]
            if len(values) == len(AVERAGED_TASKS[name]):
                means = {**means, key: Estimate(float(np.mean(values)))}
        if means:
            averages.append(
                ReportRow(model=model, task=name, length=length, revision=revision, scores=means)
            )
    return averages


def build_bin_rows(summary: TaskSummary) -> list[ReportRow]:
    """Return one row per position bin, over all lengths."""
    return [
        build_row(summary, scores=scores, position=position)
        for position, scores in zip(summary.profile.positions, summary.scores.bins, strict=True)
    ]


def order_value(row: ReportRow) -> float:
    """Return nDCG@10, or 0 if it is undefined."""
    return row.ndcg_at_10.value if row.ndcg_at_10 else 0.0


def list_overall(rows: Iterable[ReportRow]) -> list[ReportRow]:
    """Return the rows of all lengths by task, best nDCG@10 first."""
    return sorted(
        (row for row in rows if row.length == ALL), key=lambda row: (row.task, -order_value(row))
    )
