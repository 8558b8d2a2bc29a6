"""Records: the scores of one model on one task, computed from its profiles, and what is known of
the model.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from posir_leaderboard.board.ranks import MeanByCluster, means_by_cluster
from posir_leaderboard.entries import (
    FIRST_DATE,
    Entry,
    EntryError,
    EntryProblem,
    future_problems,
    origin_problems,
    read_entry,
)
from posir_published.rows import START_TO_END_UNWEIGHTED
from posir_report.columns import ANSWER, FURTHER, known_columns
from posir_report.summary import (
    UNDECLARED,
    VERDICT_COLUMNS,
    ReportRow,
    TaskSummary,
    build_length_row,
    build_rows,
    summarize,
)
from posir_report.tables import describe_places, truncation_notes
from posir_significance.advice import build_commands
from posir_significance.analysis import analyze, estimate_bins
from posir_significance.cells import EQUAL_BINS, MERGED_BINS, is_sparse
from posir_significance.decision import DEFAULT_MARGINS
from posir_significance.findings import State
from posir_significance.messages.board import (
    BOARD_UNRANKED,
    count_task_states,
    describe_several_places,
)
from posir_significance.messages.verdicts import iterate_answer, label_state
from posir_significance.observations import Observations
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import drop_organization
from posir_tasks.data.repository import LOCAL
from posir_tasks.display.strip import draw_glyph
from posir_tasks.display.tables import format_csv
from posir_tasks.models.protocols import list_differences
from posir_tasks.models.references import model_origin
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.result_schema import average_vectors, identify_data, round_floats
from posir_tasks.values.schemes import ALL_LENGTHS, Axes
from posir_tasks.values.scores import ScoreInfo, flatten, prefix_scores

#: Columns of the cells of a curve.
CELL = ("queries", "ndcg_at_10", "ndcg_at_10_low", "ndcg_at_10_high")
#: Latest date that can be written in years of four digits.
LAST_DATE = 253_402_300_799
#: Columns that the table is drawn and ranked by, whatever score they are.
DRAWN = ("score", "score_low", "score_high", "states", "state_label", "parts", "code")
#: Scores that the page names; every other one is `scores.KEY` there, so that no key is that of a
#: field.
NAMED = (*ANSWER, *FURTHER, "ndcg_at_10_as_published", START_TO_END_UNWEIGHTED.key)
#: The origin of a submitted result: the maintainers of the board have the same nDCG@10, or the
#: submitter's run alone.
REPRODUCED = "reproduced"
AS_SUBMITTED = "as submitted"

Columns = dict[str, list[Any]]

#: Kinds of model that visitors filter by: mteb's `model_type`, and BM25 by its name.
BM25 = "BM25"
UNKNOWN = "Unknown"
KINDS = {
    "dense": "Dense",
    "sparse": "Sparse",
    "late-interaction": "Late interaction",
    "cross-encoder": "Cross-encoder",
}
#: Longest license and longest address that are shown.
MAX_TEXT = 300
Count = Annotated[int, Field(gt=0, lt=2**53)]


class Metadata(BaseModel):
    """The fields of mteb's `model_meta.json` that are shown; None if missing or invalid."""

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
    """Why a result is not ranked."""

    NOT_PINNED = "not_pinned"
    """The data of a submitted result have no pin."""
    OTHER_CONTENT = "other_content"
    """Its data have the revision of a pin, but not its content."""
    PAPERS_DATA = "papers_data"
    """A published result, next to results on other data."""
    PROTOCOL = "protocol"
    """It was run with the protocol of a paper."""
    OTHER_MEAN = "other_mean"
    """A published row of a length, which has another mean than the others."""


@dataclass(frozen=True)
class Exclusion:
    """The reason why a result is not ranked."""

    reason: Unranked
    name: str = ""
    """The revision of the pin, or the paper."""

    @property
    def label(self) -> str:
        """The reason as the page shows it."""
        return BOARD_UNRANKED[self.reason].format(self.name)


@dataclass(frozen=True)
class BoardModel:
    """A model in one revision, or a model of a paper. None if unknown."""

    name: str
    """Full name, such as `Qwen/Qwen3-Embedding-0.6B`; for a paper's model, as printed."""
    revision: str
    """Empty for a paper's model."""
    published: bool = False
    paper: str = ""
    """The paper with whose protocol it was run; empty for mteb's settings."""
    kind: str = UNKNOWN
    parameters: int | None = None
    """0 for BM25."""
    window: int | None = None
    """Most tokens of a text that it reads."""
    dimensions: int | None = None
    """Dimensions of an embedding; the largest number, if there is a choice."""
    open_weights: bool | None = None
    license: str | None = None
    reference: str | None = None
    """Address that starts with https://."""

    @property
    def key(self) -> tuple[str, str]:
        """Name and revision, by which it is looked up."""
        return self.name, self.revision

    @property
    def label(self) -> str:
        """The name, with the paper whose protocol it was run with."""
        return f"{self.name} (protocol {self.paper})" if self.paper else self.name

    @property
    def origin(self) -> str | None:
        """`local` or `endpoint` for a model that visitors cannot run; such results are not
        submitted.
        """
        return None if self.published else model_origin(self.name)

    @property
    def short_name(self) -> str:
        """The name without its organization or folder."""
        return drop_organization(self.label)

    @property
    def id(self) -> str:
        """Identifier in files and links: twelve hexadecimal digits of a hash, so that a name cannot
        choose it.

        The Hub's names differ in more than case, and the papers write one name in several cases.
        """
        kind = "published" if self.published else "result"
        return digest(kind, self.label.casefold(), self.revision, size=6).hex()


def read_board_model(
    name: str, revision: str, meta: Mapping[str, Any], *, published: bool = False
) -> BoardModel:
    """Return a model, perhaps published in a paper only, as mteb's `model_meta.json` describes
    it.
    """
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
    """A row of a report as plain JSON, or the average of such rows over tasks."""

    task_states: tuple[State, ...] = ()
    """State of each task of an average; empty of one task."""

    @property
    def states(self) -> tuple[State, ...]:
        """The states of the bias within the window, the most frequent of an average first; a
        published row is not tested.
        """
        if self.findings is not None:
            return (self.findings.state,)
        counts = Counter(self.task_states or [State.NOT_TESTED])
        return tuple(state for state, _ in counts.most_common())

    @property
    def state_label(self) -> str:
        """The state in words; of an average, in how many of its tasks each is."""
        if self.findings is not None:
            return label_state(self.findings)
        margin = DEFAULT_MARGINS.position_effect
        return count_task_states(self.task_states or self.states, margin)

    def verdict_columns(self) -> dict[str, Any]:
        """Return the columns of the verdict, as of a row of a report; a published row is not
        tested.
        """
        state = self.states[0] if len(self.states) == 1 else None
        return {**super().verdict_columns(), "state": state}

    @cached_property
    def cells(self) -> dict[str, Any]:
        """The columns of `row_columns`; numbers are rounded. Several views show the same row."""
        cells: dict[str, Any] = {}
        for column in board_columns():
            cells |= flatten(page_key(column), self.scores.get(column.key))
        cells |= self.verdict_columns() | flatten("score", self.score)
        cells |= {"states": list(self.states), "state_label": self.state_label}
        cells |= {"parts": [], "code": ""}
        if self.findings is not None:
            # nDCG@10 and the position effect are columns of their own.
            cells["parts"] = list(iterate_answer(self.findings, self.task))[2:]
            cells["code"] = "\n".join(build_commands(self.findings, self.reference))
        rounded: dict[str, Any] = round_floats(cells)
        return rounded

    @property
    def score(self) -> Estimate | None:
        """nDCG@10, the mean over queries; of a published row in a length bucket that over
        positions, the only one it has.
        """
        return self.ndcg_at_10 or self.ndcg_at_10_as_published

    @property
    def difference(self) -> Estimate | None:
        """Start minus end as the data lie; of a published row that of unweighted thirds, if it has
        no other.
        """
        return self.start_minus_end or self.estimate(START_TO_END_UNWEIGHTED.key)

    @classmethod
    def of_report(cls, row: ReportRow) -> BoardRow:
        """Return a row of a report as plain JSON, with the reference that others can use."""
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
            reference=row.reference.for_others(),
        )


@dataclass(frozen=True)
class BoardRecord:
    """One model on one task, or on average over those of a benchmark."""

    model: BoardModel
    task: str
    rows: tuple[BoardRow, ...]
    """All lengths, then each length bucket; empty if the model lacks a task of the average."""
    detail: Mapping[str, Any]
    """Further contents of the model's own page: plain JSON, numbers rounded as mteb rounds
    scores.
    """
    document_ranks: Mapping[str, Any] | None = None
    """JSON of the axes and of the ranks by document of all subsets; None if published, or of an
    average.
    """
    partial: str = ""
    """Number of the subsets or tasks that have results, such as `2 of 32 subsets`; empty if all
    have.
    """
    standing: str = ""
    """The origin of a submitted result; empty of one's own and of published ones."""
    exclusion: Exclusion | None = None
    """The reason why it is not ranked; None if it is. Set when a board is built."""
    base_task: str = ""
    """The name without the data of a task that is named by its data; empty of others. Set when a
    board is built.
    """
    data_name: str = ""
    """The name of these data."""
    members: tuple[BoardRecord, ...] = ()

    @property
    def comparable(self) -> bool:
        """Whether it is ranked among the others."""
        return not self.partial and self.exclusion is None

    @property
    def results(self) -> tuple[BoardRecord, ...]:
        """The results that it consists of: itself, or those of an average."""
        return self.members or (self,)

    @cached_property
    def means(self) -> dict[str, MeanByCluster]:
        """nDCG@10 by cluster at each length where there is one, to compare models on the same
        queries.
        """
        if self.document_ranks is None:
            return {}
        axes = Axes.from_json(self.document_ranks["axes"])
        means = means_by_cluster(DocumentRanks.from_json(self.document_ranks["ranks"], axes))
        return {row.length: mean for row, mean in zip(self.rows, means, strict=True) if mean}

    @cached_property
    def rows_by_length(self) -> dict[str, BoardRow]:
        """The rows by length."""
        return {row.length: row for row in self.rows}

    def find_detail(self, name: str, length: str) -> Any:
        """Return the value of a length in a list of the detail, such as `panels`; None if
        unknown.
        """
        values = zip(self.rows_by_length, self.detail.get(name) or (), strict=False)
        return dict(values).get(length)

    @property
    def local(self) -> bool:
        """Whether its data are of a local folder, which need not be those of other results of the
        task.
        """
        return self.data_revision.startswith(LOCAL)

    @property
    def data_revision(self) -> str:
        """Revision of its data; several, separated by commas, if its subsets have different ones;
        empty if published.
        """
        return str(self.detail["data_revision"])

    @property
    def data(self) -> str:
        """Digest of the content of its data; empty if published."""
        return str(self.detail["data"])


def score_entry(entry: Entry) -> BoardRecord:
    """Score an entry: pooled over its subsets, as `posir report` does, and each subset by
    itself.
    """
    (summary,) = summarize(entry.subsets)
    model = read_board_model(entry.model, entry.revision, entry.meta)
    if entry.paper is not None:
        model = replace(model, paper=entry.paper)
    rows = build_rows(summary)
    subsets = len(summary.subsets)
    partial = f"{subsets} of {subsets + len(summary.missing)} subsets" if summary.missing else ""
    return BoardRecord(
        model,
        entry.task,
        tuple(map(BoardRow.of_report, rows)),
        dict(round_floats(_build_detail(summary, rows, entry))),
        {"axes": summary.ranks.axes.to_json(), "ranks": summary.ranks.to_json()},
        partial,
    )


def score_file(file: Path, submitted: bool) -> BoardRecord | EntryProblem | None:
    """Return the record of a result file, or its problem; None if it is of a task without
    positions.
    """
    try:
        entry = read_entry(file)
        if entry is None:
            return None
        problems = origin_problems(entry) if submitted else future_problems(entry)
        return next(problems, None) or score_entry(entry)
    except EntryError as error:
        return error.problem
    except PosirError as error:
        return EntryProblem(str(file), str(error))


def _build_detail(summary: TaskSummary, rows: Sequence[ReportRow], entry: Entry) -> dict[str, Any]:
    """Build the contents of the model's own page on a task, apart from the rows."""
    strips = [row.strip for row in rows]
    axes = summary.profile.axes
    lengths = list(axes.length_titles)
    if len(lengths) > 1:
        lengths.insert(0, ALL_LENGTHS)
    groups = [group.observations for group in analyze(summary.values).groups]
    places = describe_places(summary)
    notes = [describe_several_places(places)] if places else []
    notes += truncation_notes([summary.model], [summary])
    if entry.paper is None:
        notes += list_differences([(entry.task, entry.model)])
    subsets = None
    if len(entry.subsets) > 1:
        scored = [build_length_row(summarize([subset])[0], 0) for subset in entry.subsets]
        names = [subset.subset for subset in entry.subsets]
        subsets = {"name": names, **row_columns(list(map(BoardRow.of_report, scored)))}
    return {
        "strips": [strip and draw_glyph(strip) for strip in strips],
        "lengths": lengths,
        "positions": list(axes.positions),
        "position_title": axes.position_title,
        "relative": axes.equal_bins,
        "panels": [_describe_bins(group) for group in groups],
        "curves": [_describe_merged_bins(group, axes) for group in groups],
        "subsets": subsets,
        "data_revision": summary.data_revision,
        "data": identify_data(summary.data),
        "date": read_date(entry.data.get("date")),
        "vectors": average_vectors(subset.run for subset in entry.subsets),
        "several_places": places and places["queries"],
        "notes": notes,
    }


def read_date(seconds: object) -> str | None:
    """Return the day that a result file states, such as 2026-11-22; None if it is missing or cannot
    be one of a result.
    """
    if not isinstance(seconds, int | float) or not FIRST_DATE <= seconds <= LAST_DATE:
        return None
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _describe_bins(observations: Observations) -> Columns:
    """Return the `CELL` columns of the position bins."""
    counts = np.bincount(observations.position, minlength=observations.bins).tolist()
    columns: Columns = {name: [] for name in CELL}
    for queries, mean in zip(counts, estimate_bins(observations), strict=True):
        low, high = (mean and mean.interval) or (None, None)
        cell = (queries, mean.value if mean else None, low, high)
        for column, value in zip(columns.values(), cell, strict=True):
            column.append(value)
    return columns


def _describe_merged_bins(observations: Observations, axes: Axes) -> Columns | None:
    """Return the columns of five merged bins if a bin is sparse, as in the report."""
    counts = np.bincount(observations.position, minlength=observations.bins)
    if not counts.any() or not is_sparse(axes, counts):
        return None
    return _describe_bins(observations.merge_bins(EQUAL_BINS // MERGED_BINS))


def row_columns(scored: Sequence[BoardRow | None]) -> Columns:
    """Return rows as columns, named by their scores' keys; None where there is no row.

    Next to the declared scores are the verdict and what the table is drawn and ranked by, `score`
    with its interval among it.
    """
    cells = [row.cells if row else {} for row in scored]
    scores = [name for column in board_columns() for name in column_names(column, page_key(column))]
    return {
        name: [row.get(name) for row in cells]
        for name in dict.fromkeys((*scores, *VERDICT_COLUMNS, *DRAWN))
    }


def page_key(column: ScoreInfo) -> str:
    """Return the name of a score on the page."""
    return column.key if column.key in NAMED else f"scores.{column.key}"


#: What names a line.
RUN = ("model", "revision", "published", "task", "data_revision", "length")


def scores_csv(records: Iterable[BoardRecord]) -> bytes:
    """Return every declared score of every model, task and length, compressed."""
    taken = (*RUN, *UNDECLARED)
    declared = [name for column in known_columns() for name in column_names(column, column.key)]
    names = (*prefix_scores(dict.fromkeys(declared), taken), *UNDECLARED)
    lines = []
    for record in records:
        for row in record.rows:
            cells = prefix_scores(row.score_columns(), taken) | row.verdict_columns()
            lines.append((*_run(record, row.length), *map(cells.get, names)))
    return _compress((*RUN, *names), lines)


def positions_csv(records: Iterable[BoardRecord]) -> bytes:
    """Return nDCG@10, its interval and the queries of every position bin of every model, task and
    length, compressed.
    """
    lines = []
    for record in records:
        for length in record.rows_by_length:
            if panel := record.find_detail("panels", length):
                bins = zip(record.detail["positions"], *map(panel.get, CELL), strict=True)
                lines += [(*_run(record, length), *cells) for cells in bins]
    return _compress((*RUN, "position", *CELL), lines)


def _run(record: BoardRecord, length: str) -> tuple[Any, ...]:
    model = record.model
    return (model.label, model.revision, model.published, record.task, record.data_revision, length)


def _compress(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> bytes:
    return gzip.compress(format_csv(header, lines).encode(), compresslevel=6, mtime=0)


@cache
def board_columns() -> tuple[ScoreInfo, ...]:
    """Return the scores that the page has: those that it names, and those that tables show."""
    return tuple(column for column in known_columns() if column.column or column.key in NAMED)


def column_names(column: ScoreInfo, key: str) -> tuple[str, ...]:
    """Return the names of a score's columns under a key; one with an interval has three, as in
    `posir_tasks.values.scores.flatten`.
    """
    if not column.interval:
        return (key,)
    return key, f"{key}_low", f"{key}_high"
