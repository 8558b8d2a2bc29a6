"""Board records: one model's scores on one task."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, cached_property, partial
from itertools import compress
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from posir_leaderboard.board.ranks import MeanByCluster, average_by_cluster
from posir_leaderboard.entries import (
    MIN_DATE,
    Entry,
    EntryError,
    EntryProblem,
    find_future_problems,
    find_origin_problems,
    read_entry,
)
from posir_published.rows import START_TO_END_UNWEIGHTED
from posir_report.columns import FULL_KEYS, MAIN_KEYS, list_score_columns
from posir_report.summary import (
    NON_SCORE_COLUMNS,
    VERDICT_COLUMNS,
    ReportRow,
    TaskSummary,
    build_length_row,
    build_rows,
    summarize,
)
from posir_report.tables import describe_spans, write_truncation_notes
from posir_significance.advice import build_commands
from posir_significance.analysis import analyze
from posir_significance.cells import EQUAL_BINS, MERGED_BINS, is_sparse
from posir_significance.decision import DEFAULT_MARGINS
from posir_significance.findings import State
from posir_significance.group_means import GroupMeans, Means
from posir_significance.messages.board import (
    UNRANKED_REASONS,
    count_task_states,
    describe_several_spans,
)
from posir_significance.messages.verdicts import iterate_answer, label_state
from posir_significance.observations import Observations
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.base.records import Record
from posir_tasks.base.wording import drop_organization
from posir_tasks.data.repository import LOCAL
from posir_tasks.display.export import format_csv
from posir_tasks.display.position_charts import draw_glyph
from posir_tasks.models.protocols import list_differences
from posir_tasks.models.references import find_origin
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.result_schema import average_vectors, identify_data, round_floats
from posir_tasks.values.schemes import ALL_LENGTHS, Axes
from posir_tasks.values.scores import ResultBatch, ScoreInfo, flatten, prefix_scores

#: Columns of the position bins of a curve.
BIN_COLUMNS = ("queries", "ndcg_at_10", "ndcg_at_10_low", "ndcg_at_10_high")
#: The last second of the year 9999.
MAX_DATE = 253_402_300_799
#: Columns of the table that are not declared scores.
TABLE_COLUMNS = ("score", "score_low", "score_high", "states", "state_label", "parts", "code")
#: Scores that are fields of the page's data. Other scores are `scores.KEY`, so that a plugin's key
#: cannot clash with a field.
NAMED_SCORES = (*MAIN_KEYS, *FULL_KEYS, "ndcg_at_10_as_published", START_TO_END_UNWEIGHTED.key)
#: Values of `BoardRecord.standing`: does the maintainers' own run confirm the submitted nDCG@10?
REPRODUCED = "reproduced"
AS_SUBMITTED = "as submitted"

Columns = dict[str, list[Any]]
Outcome = TypeVar("Outcome")

#: Kinds of models for the page's filter: mteb's `model_type`, and BM25 by its name.
BM25 = "BM25"
UNKNOWN = "Unknown"
KINDS = {
    "dense": "Dense",
    "sparse": "Sparse",
    "late-interaction": "Late interaction",
    "cross-encoder": "Cross-encoder",
}
#: Maximum length of a license and of an address.
MAX_TEXT = 300
Count = Annotated[int, Field(gt=0, lt=2**53)]


class Metadata(BaseModel):
    """The fields of mteb's `model_meta.json` that the page shows; None if missing or invalid."""

    model_type: list[Any] | None = None
    n_parameters: Count | None = None
    max_tokens: Count | None = None
    embed_dim: Count | list[Count] | None = None
    open_weights: Annotated[bool, Field(strict=True)] | None = None
    license: Annotated[str, Field(min_length=1)] | None = None
    reference: (
        Annotated[str, Field(max_length=MAX_TEXT, pattern=r"^https://[^\s<>\"'\\^`{|}\x00-\x20]+$")]
        | None
    ) = None

    @field_validator("*", mode="wrap")
    @classmethod
    def _ignore_invalid(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(value)
        except ValidationError:
            return None


class Unranked(StrEnum):
    """Reasons for not ranking a result."""

    NOT_PINNED = "not_pinned"
    """The data of a submitted result have no pin."""
    OTHER_CONTENT = "other_content"
    """The data have the pinned revision, but different content."""
    PAPERS_DATA = "papers_data"
    """A published result in a table of results on local data."""
    PROTOCOL = "protocol"
    """The model was run with the protocol of a paper."""
    OTHER_MEAN = "other_mean"
    """A published mean over positions, in a table of means over queries."""


@dataclass(frozen=True)
class Exclusion:
    """The reason why a result is not ranked."""

    reason: Unranked
    name: str = ""
    """The pinned revision, or the paper."""

    @property
    def label(self) -> str:
        """The reason as text."""
        return UNRANKED_REASONS[self.reason].format(self.name)


@dataclass(frozen=True)
class BoardModel:
    """A revision of a model, or a model of a paper. Unknown properties are None."""

    name: str
    """Full name, such as `Qwen/Qwen3-Embedding-0.6B`; for a paper's model, as printed."""
    revision: str
    """Empty for a paper's model."""
    published: bool = False
    paper: str = ""
    """The paper whose protocol the run used; empty if mteb's settings were used."""
    kind: str = UNKNOWN
    parameters: int | None = None
    """0 for BM25."""
    window: int | None = None
    """Maximum number of input tokens."""
    dimensions: int | None = None
    """Dimensions of an embedding; the largest number if there are several."""
    open_weights: bool | None = None
    license: str | None = None
    reference: str | None = None
    """Address that starts with https://."""

    @property
    def key(self) -> tuple[str, str]:
        """Name and revision."""
        return self.name, self.revision

    @property
    def label(self) -> str:
        """The name, with the paper of the protocol."""
        return f"{self.name} (protocol {self.paper})" if self.paper else self.name

    @property
    def origin(self) -> str | None:
        """`local` or `endpoint` for a model that visitors cannot run, else None."""
        return None if self.published else find_origin(self.name)

    @property
    def short_name(self) -> str:
        """The name without its organization or folder."""
        return drop_organization(self.label)

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits for file names and links, hashed so that a submitter cannot
        choose them.

        Case is ignored, since the papers vary the case of names.
        """
        kind = "published" if self.published else "result"
        return digest(kind, self.label.casefold(), self.revision, size=6).hex()


def read_board_model(
    name: str, revision: str, meta: Mapping[str, Any], *, published: bool = False
) -> BoardModel:
    """Build a model from the content of mteb's `model_meta.json`."""
    fields = Metadata.model_validate(meta)
    is_bm25 = "bm25" in name.lower()
    types = [kind for kind in fields.model_type or () if isinstance(kind, str) and kind in KINDS]
    kind = KINDS[types[0]] if types else UNKNOWN
    dimensions = fields.embed_dim if isinstance(fields.embed_dim, list) else [fields.embed_dim]
    return BoardModel(
        name=name,
        revision=revision,
        published=published,
        kind=BM25 if is_bm25 else kind,
        parameters=0 if is_bm25 else fields.n_parameters,
        window=fields.max_tokens,
        dimensions=max(filter(None, dimensions), default=None),
        open_weights=fields.open_weights,
        license=fields.license[:MAX_TEXT] if fields.license else None,
        reference=fields.reference,
    )


@dataclass(frozen=True, kw_only=True)
class BoardRow(ReportRow):
    """A report row that can be stored as JSON, or an average of rows over tasks."""

    task_states: tuple[State, ...] = ()
    """The state of each task of an average; empty for one task."""

    @cached_property
    def states(self) -> tuple[State, ...]:
        """The states of the bias within the window, most frequent first."""
        if self.findings is not None:
            return (self.findings.state,)
        counts = Counter(self.task_states or [State.NOT_TESTED])
        return tuple(state for state, _ in counts.most_common())

    @property
    def state_label(self) -> str:
        """The label of the state; for an average, the number of tasks in each state."""
        if self.findings is not None:
            return label_state(self.findings)
        margin = DEFAULT_MARGINS.position_effect
        return count_task_states(self.task_states or self.states, margin)

    @cached_property
    def verdict_columns(self) -> Record:
        """The report's verdict columns; the state is None if tasks differ."""
        state = self.states[0] if len(self.states) == 1 else None
        return {**super().verdict_columns, "state": state}

    @cached_property
    def cells(self) -> dict[str, Any]:
        """The rounded cells of `build_row_columns`; cached, since several views show the row."""
        cells: dict[str, Any] = {}
        for column in list_board_columns():
            cells |= flatten(get_page_key(column), self.scores.get(column.key))
        cells |= self.verdict_columns | flatten("score", self.score)
        cells |= {"states": list(self.states), "state_label": self.state_label}
        cells |= {"parts": [], "code": ""}
        if self.findings is not None:
            # The first two sections, nDCG@10 and the position effect, have columns.
            cells["parts"] = list(iterate_answer(self.findings, self.task))[2:]
            cells["code"] = "\n".join(build_commands(self.findings, self.reference))
        rounded: dict[str, Any] = round_floats(cells)
        return rounded

    @property
    def score(self) -> Estimate | None:
        """Mean nDCG@10 over queries, or over positions if only that mean is published."""
        return self.ndcg_at_10 or self.ndcg_at_10_as_published

    @property
    def difference(self) -> Estimate | None:
        """Start minus end; from unweighted thirds if only these are published."""
        return self.start_minus_end or self.get_estimate(START_TO_END_UNWEIGHTED.key)

    @classmethod
    def from_report(cls, row: ReportRow) -> BoardRow:
        """Compute all values of a report row, and remove local paths from its commands."""
        findings = row.findings
        if findings:
            findings = replace(findings, findings=dict(findings.findings))
        return cls(
            model=row.model,
            task=row.task,
            revision=row.revision,
            length=row.length,
            findings=findings,
            scores=dict(row.scores),
            reference=row.reference.public,
        )


@dataclass(frozen=True)
class BoardRecord:
    """One model's results on a task, or their average over the tasks of a benchmark."""

    model: BoardModel
    task: str
    rows: tuple[BoardRow, ...]
    """A row over all lengths and per length bucket; empty if an averaged task has no result."""
    detail: Mapping[str, Any]
    """The other content of the model's page as JSON, rounded like mteb's scores."""
    document_ranks: Mapping[str, Any] | None = None
    """The axes and the ranks by document as JSON; None for published results and averages."""
    partial: str = ""
    """How many subsets or tasks have results, such as `2 of 32 subsets`; empty if all have."""
    standing: str = ""
    """`REPRODUCED` or `AS_SUBMITTED` for a submitted result, else empty."""
    exclusion: Exclusion | None = None
    """Why the record is not ranked, or None. Set when a board is built."""
    base_task: str = ""
    """The original task of a result that is in a separate table, since its data differ. Set when a
    board is built.
    """
    data_name: str = ""
    """The name of the separate table's data."""
    members: tuple[BoardRecord, ...] = ()
    """The averaged records, one per task."""

    @property
    def comparable(self) -> bool:
        """True if the record is ranked."""
        return not self.partial and self.exclusion is None

    @property
    def results(self) -> tuple[BoardRecord, ...]:
        """The members of an average, or only the record itself."""
        return self.members or (self,)

    @cached_property
    def means(self) -> dict[str, MeanByCluster]:
        """nDCG@10 by cluster at each length, which compares models on the same queries."""
        if self.document_ranks is None:
            return {}
        axes = Axes.from_json(self.document_ranks["axes"])
        means = average_by_cluster(DocumentRanks.from_json(self.document_ranks["ranks"], axes))
        return {row.length: mean for row, mean in zip(self.rows, means, strict=True) if mean}

    @cached_property
    def rows_by_length(self) -> dict[str, BoardRow]:
        """The rows by length."""
        return {row.length: row for row in self.rows}

    def find_detail(self, name: str, length: str) -> Any:
        """Find the value for a length in a list of `detail`, such as `panels`, or return None."""
        values = zip(self.rows_by_length, self.detail.get(name) or (), strict=False)
        return dict(values).get(length)

    @property
    def local(self) -> bool:
        """True if the data come from a local folder."""
        return self.data_revision.startswith(LOCAL)

    @property
    def data_revision(self) -> str:
        """Revision of the data, or the revisions of all subsets separated by commas; empty if
        published.
        """
        return str(self.detail["data_revision"])

    @property
    def data(self) -> str:
        """Digest of the data's content; empty if published."""
        return str(self.detail["data"])


def score_files(files: Sequence[Path], submitted: bool) -> list[BoardRecord | EntryProblem | None]:
    """Score result files together, which is faster for small results.

    Return the record or problem of each file, or None for a task without positions.
    """
    tasks = [_catch_problem(file, partial(_read_task, file, submitted)) for file in files]
    scored = [task for task in tasks if isinstance(task, BoardTask)]
    results = [task.summary.values for task in scored]
    subsets = [
        subset.values for task in scored if task.has_subsets for subset in task.entry.subsets
    ]
    for batch in (results, subsets):
        ResultBatch.join(batch)
    outcomes = [
        _catch_problem(file, partial(score_task, task)) if isinstance(task, BoardTask) else task
        for file, task in zip(files, tasks, strict=True)
    ]
    # Reference cycles would keep all estimates in memory until garbage is collected.
    analyze.cache_clear()
    for values in (*results, *subsets):
        values.cache.clear()
    return outcomes


def _catch_problem(file: Path, compute: Callable[[], Outcome]) -> Outcome | EntryProblem:
    try:
        return compute()
    except EntryError as error:
        return error.problem
    except PosirError as error:
        return EntryProblem(str(file), str(error))


@dataclass(frozen=True)
class BoardTask:
    """A result file and its pooled subsets, as in `posir report`."""

    entry: Entry
    summary: TaskSummary

    @property
    def has_subsets(self) -> bool:
        """True if each subset has a row on the model's page."""
        return len(self.entry.subsets) > 1


def _read_task(file: Path, submitted: bool) -> BoardTask | EntryProblem | None:
    entry = read_entry(file)
    if entry is None:
        return None
    problems = find_origin_problems(entry) if submitted else find_future_problems(entry)
    problem = next(problems, None)
    if problem:
        return problem
    return pool_subsets(entry)


def pool_subsets(entry: Entry) -> BoardTask:
    """Pool the subsets of an entry."""
    (summary,) = summarize(entry.subsets)
    return BoardTask(entry, summary)


def score_task(task: BoardTask) -> BoardRecord:
    """Score the pooled subsets of an entry, and each subset."""
    entry = task.entry
    summary = task.summary
    model = read_board_model(entry.model, entry.revision, entry.meta)
    if entry.paper is not None:
        model = replace(model, paper=entry.paper)
    rows = build_rows(summary)
    subsets = len(summary.subsets)
    coverage = f"{subsets} of {subsets + len(summary.missing)} subsets" if summary.missing else ""
    return BoardRecord(
        model,
        entry.task,
        tuple(map(BoardRow.from_report, rows)),
        dict(round_floats(_build_detail(task, rows))),
        {"axes": summary.ranks.axes.to_json(), "ranks": summary.ranks.to_json()},
        coverage,
    )


def _build_detail(task: BoardTask, rows: Sequence[ReportRow]) -> dict[str, Any]:
    entry = task.entry
    summary = task.summary
    strips = [row.position_chart for row in rows]
    axes = summary.profile.axes
    lengths = list(axes.length_titles)
    if len(lengths) > 1:
        lengths.insert(0, ALL_LENGTHS)
    groups = analyze(summary.values).groups
    several_places = describe_spans(summary)
    notes = [describe_several_spans(several_places)] if several_places else []
    notes += write_truncation_notes([summary.model], [summary])
    if entry.paper is None:
        notes += list_differences([(entry.task, entry.model)])
    subsets = None
    if task.has_subsets:
        subset_rows = [
            BoardRow.from_report(build_length_row(summarize([subset])[0], 0))
            for subset in entry.subsets
        ]
        names = [subset.subset for subset in entry.subsets]
        subsets = {"name": names, **build_row_columns(subset_rows)}
    return {
        "strips": [strip and draw_glyph(strip) for strip in strips],
        "lengths": lengths,
        "positions": list(axes.positions),
        "position_title": axes.position_title,
        "relative": axes.equal_bins,
        "panels": [_tabulate_bins(group.observations, group.ndcg_by_bin) for group in groups],
        "curves": _tabulate_merged_bins([group.observations for group in groups], axes),
        "subsets": subsets,
        "data_revision": summary.data_revision,
        "data": identify_data(summary.data),
        "date": read_date(entry.data.get("date")),
        "vectors": average_vectors(subset.run for subset in entry.subsets),
        "several_places": several_places and several_places["queries"],
        "notes": notes,
    }


def read_date(seconds: object) -> str | None:
    """Convert a time to its date, such as 2026-11-22; None if it is missing or implausible."""
    if not isinstance(seconds, int | float) or not MIN_DATE <= seconds <= MAX_DATE:
        return None
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _tabulate_bins(group: Observations, means: Means) -> Columns:
    """Build `BIN_COLUMNS` of a group from the mean of each bin."""
    intervals = [(mean and mean.interval) or (None, None) for mean in means]
    columns = (
        group.layout.bin_counts.tolist(),
        [mean.value if mean else None for mean in means],
        [low for low, _ in intervals],
        [high for _, high in intervals],
    )
    return dict(zip(BIN_COLUMNS, columns, strict=True))


def _tabulate_merged_bins(groups: Sequence[Observations], axes: Axes) -> list[Columns | None]:
    """Merge the bins of each group with sparse bins from twenty to five, as in the report; None for
    the other groups.
    """
    is_merged = [
        group.layout.bin_counts.any() and is_sparse(axes, group.layout.bin_counts)
        for group in groups
    ]
    size = EQUAL_BINS // MERGED_BINS
    merged = [group.merge_bins(size) for group in compress(groups, is_merged)]
    tables = map(_tabulate_bins, merged, GroupMeans(tuple(merged)).by_bin)
    return [next(tables) if merge else None for merge in is_merged]


def build_row_columns(rows: Sequence[BoardRow | None]) -> Columns:
    """Build the declared scores, verdicts and `TABLE_COLUMNS` of rows; None for missing rows."""
    cells = [row.cells if row else {} for row in rows]
    scores = [
        name
        for column in list_board_columns()
        for name in list_column_names(column, get_page_key(column))
    ]
    return {
        name: [row.get(name) for row in cells]
        for name in dict.fromkeys((*scores, *VERDICT_COLUMNS, *TABLE_COLUMNS))
    }


def get_page_key(column: ScoreInfo) -> str:
    """Return the name of a score in the page's data."""
    return column.key if column.key in NAMED_SCORES else f"scores.{column.key}"


#: Columns that identify a line of the CSV files.
RUN_COLUMNS = ("model", "revision", "published", "task", "data_revision", "length")


def write_scores_csv(records: Iterable[BoardRecord]) -> bytes:
    """Write every declared score of every model, task and length as gzipped CSV."""
    other_columns = (*RUN_COLUMNS, *NON_SCORE_COLUMNS)
    score_columns = [
        name for column in list_score_columns() for name in list_column_names(column, column.key)
    ]
    names = (*prefix_scores(dict.fromkeys(score_columns), other_columns), *NON_SCORE_COLUMNS)
    lines = []
    for record in records:
        for row in record.rows:
            cells = prefix_scores(row.flatten_scores(), other_columns) | row.verdict_columns
            lines.append((*_build_run_cells(record, row.length), *map(cells.get, names)))
    return _compress((*RUN_COLUMNS, *names), lines)


def write_positions_csv(records: Iterable[BoardRecord]) -> bytes:
    """Write the position bins of every model, task and length as gzipped CSV."""
    lines = []
    for record in records:
        for length in record.rows_by_length:
            if panel := record.find_detail("panels", length):
                bins = zip(record.detail["positions"], *map(panel.get, BIN_COLUMNS), strict=True)
                lines += [(*_build_run_cells(record, length), *cells) for cells in bins]
    return _compress((*RUN_COLUMNS, "position", *BIN_COLUMNS), lines)


def _build_run_cells(record: BoardRecord, length: str) -> tuple[Any, ...]:
    model = record.model
    return (model.label, model.revision, model.published, record.task, record.data_revision, length)


def _compress(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> bytes:
    return gzip.compress(format_csv(header, lines).encode(), compresslevel=4, mtime=0)


@cache
def list_board_columns() -> tuple[ScoreInfo, ...]:
    """List the scores on the page: `NAMED_SCORES` and default columns of tables."""
    columns = list_score_columns()
    return tuple(column for column in columns if column.column or column.key in NAMED_SCORES)


def list_column_names(column: ScoreInfo, key: str) -> tuple[str, ...]:
    """List the names of a score's columns, as in `posir_tasks.values.scores.flatten`."""
    if not column.interval:
        return (key,)
    return key, f"{key}_low", f"{key}_high"
