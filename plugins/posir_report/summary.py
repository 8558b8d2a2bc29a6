"""Pool the subsets of each result by adding their values, and score the sums as rows."""

from __future__ import annotations

from collections import ChainMap, Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from typing import Any, Self, TypeAlias, TypeVar

import numpy as np

from posir_published.rows import (
    CROSS_LINGUAL,
    MONOLINGUAL,
    NOTABLE_BIAS,
    NOTABLE_BIAS_TASKS,
    find_notable_bias,
    format_notable,
)
from posir_significance.analysis import GroupAnalysis, analyze_spans, load_group
from posir_significance.decision import (
    DEFAULT_MARGINS,
    Margins,
    decide_group,
    decide_spans,
)
from posir_significance.findings import GroupFindings, Quantity
from posir_significance.messages.verdicts import describe_group
from posir_significance.position_charts import build_position_chart
from posir_tasks.base.errors import PosirError
from posir_tasks.base.records import Record
from posir_tasks.base.wording import drop_organizations
from posir_tasks.data.repository import LOCAL, combine_revisions
from posir_tasks.display.numbers import MISSING, draw_sparkline
from posir_tasks.display.position_charts import PositionChart, sketch_chart
from posir_tasks.models.command_reference import NO_REFERENCE, CommandReference
from posir_tasks.plugin_api import score_result
from posir_tasks.results import StoredResult, SubsetResult
from posir_tasks.text.languages import LANGUAGES
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.place_ranks import SEVERAL_SPANS
from posir_tasks.values.profile import PositionProfile, pool
from posir_tasks.values.result_schema import SubsetData, has_same_data
from posir_tasks.values.scores import (
    ALL,
    GroupScores,
    ResultScores,
    ResultValues,
    ScoreValue,
    flatten,
    prefix_scores,
)


def format_partial_suffix(subsets: int, missing: int) -> str:
    """Return ` (partial: 2 of 32 subsets)` for the name of a task, or nothing if complete."""
    return f" (partial: {subsets} of {subsets + missing} subsets)" if missing else ""


def build_labels(runs: Iterable[Any]) -> list[str]:
    """Label each result or row with its model, and the revision if the model has several."""
    runs = list(runs)
    revisions = defaultdict(set)
    for run in runs:
        revisions[run.model].add(run.revision)
    return [
        f"{run.model} @ {run.revision[:12]}" if len(revisions[run.model]) > 1 else run.model
        for run in runs
    ]


def build_short_labels(runs: Iterable[Any]) -> list[str]:
    """Label each result or row without the model's organization, unless this is ambiguous."""
    return drop_organizations(build_labels(runs))


Summary = TypeVar("Summary", bound="RunSummary")
#: Model, revision and task.
Run: TypeAlias = tuple[str, str, str]
#: Maximum number of results with a sentence each; if there are more, states are counted.
MAX_SENTENCES = 6
#: Columns of the verdict.
VERDICT_COLUMNS = (
    "state",
    "reason",
    "margin",
    "level",
    "questions_needed",
    "documents_needed",
    "answer",
)
#: Columns with subset counts.
COUNT_COLUMNS = ("subsets", "missing_subsets")
#: Columns of the verdict that are not scores. (`state` is a score, at the default margin.)
NON_SCORE_COLUMNS = VERDICT_COLUMNS[1:]


@dataclass(frozen=True)
class RunSummary:
    """One model's results on one task."""

    model: str
    """Full name, with settings in parentheses if they are not the model's defaults."""
    revision: str
    task: str
    """Name of the task, with the data in parentheses if other models have other data."""
    subsets: tuple[str, ...]
    missing: tuple[str, ...]
    """Subsets of the task without a result."""
    data_revision: str
    """Revision of the dataset, or the revisions of all subsets separated by commas."""
    data: SubsetData = field(default_factory=dict, kw_only=True)
    """The data of each subset."""

    @property
    def full_task(self) -> str:
        """The task; a subclass adds the subset."""
        return self.task


@dataclass(frozen=True)
class TaskSummary(RunSummary):
    """One model's results on one task, pooled over all subsets."""

    values: ResultValues
    """The sums of the subsets' values."""
    scores: ResultScores
    margins: Margins = DEFAULT_MARGINS
    """The smallest differences that matter."""
    reference: CommandReference = NO_REFERENCE
    """Names of the model and the task for commands."""

    @property
    def findings(self) -> GroupFindings:
        """The findings over all lengths."""
        return decide_group(self.values, 0, self.margins.position_effect)

    @cached_property
    def span_findings(self) -> GroupFindings | None:
        """The findings on queries with several evidence spans, or None."""
        return decide_spans(self.values, self.margins.position_effect)

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
    """A model's scores on a task over all lengths, in a length bucket, or in a position bin.

    Properties give typed access to common scores, which are None if undefined or unknown.
    """

    model: str
    task: str
    revision: str = ""
    """Revision of the model; empty for published results."""
    length: str = ALL
    """`all`, or the length bucket."""
    length_title: str = ""
    """The length bucket with its bounds, such as `Q1 up to 512`."""
    position: str | None = None
    """The position bin; None for all positions."""
    scores: GroupScores = field(default_factory=dict)
    """Scores by key."""
    findings: GroupFindings | None = None
    """None for a position bin and for published results."""
    load_group: Callable[[], GroupAnalysis] | None = field(default=None, repr=False, compare=False)
    """Loads the analysis behind the findings."""
    reference: CommandReference = NO_REFERENCE
    """Names of the model and the task for commands."""
    subsets: int = 0
    missing_subsets: int = 0
    published_curve: tuple[float, ...] = ()
    """nDCG@10 of each position bin of a published row; NaN if unknown."""

    @property
    def sketch(self) -> str:
        """A one-line text chart of the findings or the published position bins."""
        if self.position_chart:
            return sketch_chart(self.position_chart)
        return draw_sparkline(self.published_curve) or MISSING

    @cached_property
    def position_chart(self) -> PositionChart | None:
        """The position chart of the findings, or None if there are none."""
        if self.findings is None or self.load_group is None:
            return None
        return build_position_chart(self.findings, self.load_group(), self.model)

    @property
    def identity(self) -> Record:
        """The columns that identify the row."""
        position = {} if self.position is None else {"position": self.position}
        return {
            "model": self.model,
            "revision": self.revision,
            "task": self.task,
            "length": self.length,
            **position,
        }

    def flatten_scores(self, keys: Container[str] | None = None) -> Record:
        """Return the scores as columns. An estimate has three columns.

        A score whose key is the name of another column becomes `scores.KEY`.

        Args:
            keys: Keys of the scores; by default all.
        """
        cells: Record = {}
        for key, value in self.scores.items():
            if keys is None or key in keys:
                cells |= flatten(key, value)
        return prefix_scores(cells, (*self.identity, *COUNT_COLUMNS, *NON_SCORE_COLUMNS))

    @cached_property
    def verdict_columns(self) -> Record:
        """The `VERDICT_COLUMNS`; all None without findings."""
        if self.findings is None:
            return dict.fromkeys(VERDICT_COLUMNS)
        values = self.findings.to_json() | {"answer": describe_group(self.findings)}
        return {name: values[name] for name in VERDICT_COLUMNS}

    def to_record(self) -> Record:
        """Return the columns for CSV and charts. An estimate has three columns."""
        columns = self.identity | self.flatten_scores()
        if self.position is None:
            columns |= self.verdict_columns
            columns |= {"subsets": self.subsets, "missing_subsets": self.missing_subsets}
        return columns

    def with_scores(self, **scores: ScoreValue) -> Self:
        """Replace or add scores."""
        return replace(self, scores=ChainMap(scores, self.scores))  # type: ignore[arg-type]

    def get_estimate(self, key: str) -> Estimate | None:
        """Return a numeric score as an estimate, or None."""
        value = self.scores.get(key)
        if isinstance(value, int | float):
            return Estimate(value)
        return value if isinstance(value, Estimate) else None

    @property
    def queries(self) -> int | None:
        """Number of queries."""
        queries = self.scores.get("queries")
        return queries if isinstance(queries, int) else None

    @property
    def ndcg_at_10(self) -> Estimate | None:
        """Mean over queries, in [0, 1]."""
        return self.get_estimate("ndcg_at_10")

    @property
    def ndcg_at_10_as_published(self) -> Estimate | None:
        """Unweighted mean of the position bins, as in the papers' length buckets."""
        return self.get_estimate("ndcg_at_10_as_published")

    @property
    def position_effect(self) -> Estimate | None:
        """Position effect, in nDCG@10."""
        return self.get_estimate("position_effect")

    @property
    def start_minus_end(self) -> Estimate | None:
        """Difference between early and late evidence in the data, in nDCG@10."""
        return self.get_estimate("start_minus_end")


def summarize(
    results: Iterable[SubsetResult], margins: Margins = DEFAULT_MARGINS
) -> list[TaskSummary]:
    """Pool the subsets of each model and task, sorted by model, revision and task.

    Raises:
        PosirError: A subset has several results.
    """
    summaries = []
    for run, group in groupby(sorted(results, key=identify_run), key=identify_run):
        run_results = list(group)
        model, _, task = run
        subsets = list_subsets(model, task, run_results)
        missing = set[str]()
        for result in run_results:
            missing.update(result.run.get("missing_subsets", ()))
        values = pool(result.values for result in run_results)
        summary = TaskSummary(
            *run,
            subsets,
            tuple(sorted(missing - {*subsets})),
            combine_revisions(result.data.revision for result in run_results),
            values,
            score_result(values),
            margins,
            run_results[0].reference,
            data={result.subset: result.data for result in run_results},
        )
        summaries.append(summary)
    return name_tasks_by_data(summaries)


def identify_run(result: StoredResult) -> Run:
    """Return model, revision and task; the model's name includes non-default settings."""
    settings = f" ({result.experiment})" if result.experiment else ""
    return result.model + settings, result.revision, result.task


def list_subsets(model: str, task: str, results: Sequence[StoredResult]) -> tuple[str, ...]:
    """Return the subsets of results; raise PosirError if a subset has several results."""
    subsets = tuple(result.subset for result in results)
    duplicates = [subset for subset, times in Counter(subsets).items() if times > 1]
    if duplicates:
        files = sorted({str(result.file) for result in results if result.subset in duplicates})
        raise PosirError(
            f"{model} on {task}: the subset '{duplicates[0]}' has several results: "
            f"{', '.join(files)}. Report one of the folders at a time, or remove one of the "
            "results."
        )
    return subsets


def name_tasks_by_data(summaries: Sequence[Summary]) -> list[Summary]:
    """Add the data to a task's name if its results are on different data.

    Tables, charts and rankings group results by task name, so they never mix data. If only one
    version of the data is on the Hub, it keeps the task's name.
    """
    # Sorted, so that the summary with the most subsets represents its data.
    firsts = defaultdict[str, list[Summary]](list)
    for summary in sorted(summaries, key=lambda summary: -len(summary.data)):
        others = firsts[summary.full_task]
        if not any(_have_same_data(summary, other) for other in others):
            others.append(summary)
    renamed = []
    for summary in summaries:
        others = firsts[summary.full_task]
        index = [_have_same_data(summary, other) for other in others].index(True)
        revisions = [other.data_revision for other in others]
        revision = revisions[index]
        from_hub = [revision for revision in revisions if not revision.startswith(LOCAL)]
        if len(others) == 1 or from_hub == [revision]:
            renamed.append(summary)
            continue
        if revisions.count(revision) > 1:
            revision += f", content {index + 1}"
        renamed.append(replace(summary, task=f"{summary.task} (data {revision})"))
    return renamed


def _have_same_data(first: RunSummary, second: RunSummary) -> bool:
    """Return True if shared subsets have the same data; sets of subsets may differ only if one
    result is partial.
    """
    is_partial = bool(first.missing or second.missing)
    has_same_subsets = is_partial or first.data.keys() == second.data.keys()
    return has_same_subsets and has_same_data(first.data, second.data)


def build_row(summary: TaskSummary, **fields: Any) -> ReportRow:
    """Build a row for a model on a task, with additional fields."""
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
    """Build the row over all lengths, then a row per length bucket."""
    length_count = len(summary.profile.lengths)
    indices = range(1 + length_count if length_count > 1 else 1)
    return [build_length_row(summary, index) for index in indices]


def build_length_row(summary: TaskSummary, index: int) -> ReportRow:
    """Build the row over all lengths (index 0) or for a length bucket (from 1)."""
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
    # The declared score is the state at the default margin.
    if row.findings is None or summary.margins == DEFAULT_MARGINS:
        return row
    return row.with_scores(state=findings.state.value)


def build_span_row(summary: TaskSummary) -> ReportRow | None:
    """Build a row for queries with several evidence spans, named like a separate task.

    Return None if there are no such queries.
    """
    findings = summary.span_findings
    places = analyze_spans(summary.values)
    if findings is None or places is None:
        return None
    quantities = (Quantity.NDCG_AT_10, Quantity.START_MINUS_END)
    scores: GroupScores = {
        "queries": findings.questions,
        "unread_share": findings.get_value(Quantity.UNREAD_SHARE),
        "state": findings.state.value,
        **{quantity.value: findings[quantity].estimate for quantity in quantities},
    }
    return build_row(
        summary,
        task=f"{summary.task}{SEVERAL_SPANS}",
        scores=scores,
        findings=findings,
        load_group=lambda: places,
    )


def mark_notable_bias(rows: Iterable[ReportRow]) -> list[ReportRow]:
    """Add the score `notable_bias`, which follows from a model's PSI on both PosQ datasets."""
    rows = list(rows)
    psi: defaultdict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in rows:
        estimate = row.get_estimate("psi_as_published")
        if row.length == ALL and row.task in NOTABLE_BIAS_TASKS and estimate:
            psi[row.model, row.revision][row.task] = estimate.value
    marked_rows = []
    for row in rows:
        bias = find_notable_bias(psi[row.model, row.revision]).get(row.task)
        marked_rows.append(row.with_scores(**{NOTABLE_BIAS.key: format_notable(bias)}))
    return marked_rows


#: PosIR's tasks in each average, by the average's published name.
AVERAGED_TASKS = {
    MONOLINGUAL: frozenset(f"PosIR-{language.name}" for language in LANGUAGES),
    CROSS_LINGUAL: frozenset(
        f"PosIR-{language.name}-English"
        for language in LANGUAGES
        if language.cross_lingual_in_paper
    ),
}


def average_languages(rows: Iterable[ReportRow]) -> list[ReportRow]:
    """Compute unweighted means over PosIR's languages, as in its Tables 2 and 3 (arXiv 2601.08363).

    The mean of a model at a length needs a result in every language of the paper.
    """
    groups: defaultdict[tuple[str, str, str, str], dict[str, ReportRow]] = defaultdict(dict)
    for row in rows:
        for name, tasks in AVERAGED_TASKS.items():
            if row.task in tasks and row.position is None:
                groups[row.model, row.revision, name, row.length][row.task] = row
    averages = []
    for (model, revision, name, length), by_task in groups.items():
        means: dict[str, ScoreValue] = {}
        for key in ("ndcg_at_10", "ndcg_at_10_as_published", "psi_as_published"):
            estimates = [row.get_estimate(key) for row in by_task.values()]
            values = [estimate.value for estimate in estimates if estimate]
            if len(values) == len(AVERAGED_TASKS[name]):
                means[key] = Estimate(float(np.mean(values)))
        if means:
            averages.append(
                ReportRow(model=model, task=name, length=length, revision=revision, scores=means)
            )
    return averages


def build_bin_rows(summary: TaskSummary) -> list[ReportRow]:
    """Build a row per position bin, over all lengths."""
    return [
        build_row(summary, scores=scores, position=position)
        for position, scores in zip(summary.profile.positions, summary.scores.bins, strict=True)
    ]


def get_ndcg(row: ReportRow) -> float:
    """Return nDCG@10, or 0 if undefined."""
    return row.ndcg_at_10.value if row.ndcg_at_10 else 0.0


def list_overall(rows: Iterable[ReportRow]) -> list[ReportRow]:
    """Return the rows over all lengths, sorted by task and descending nDCG@10."""
    overall = (row for row in rows if row.length == ALL)
    return sorted(overall, key=lambda row: (row.task, -get_ndcg(row)))
