"""Records: the scores of one model on one task, computed from its profiles, and what is known of
the model.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, cached_property
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from posir_leaderboard.board.ranks import MeanByCluster, means_by_cluster
from posir_leaderboard.entries import FIRST_DATE, Entry
from posir_published.rows import START_TO_END_UNWEIGHTED
from posir_report.cells import ProfileCell, build_cells, build_curve_cells, pool_curve_cells
from posir_report.columns import ANSWER, FURTHER, known_columns
from posir_report.summary import (
    UNDECLARED,
    VERDICT_COLUMNS,
    ReportRow,
    TaskSummary,
    build_bin_rows,
    build_rows,
    is_sparse,
    summarize,
)
from posir_report.tables import describe_places, truncation_notes
from posir_significance.advice import build_commands
from posir_significance.decision import DEFAULT_MARGINS
from posir_significance.findings import State
from posir_significance.messages import iterate_answer, label_state, name_state
from posir_tasks.base.digests import digest
from posir_tasks.base.wording import pluralize
from posir_tasks.data.repository import LOCAL
from posir_tasks.display.numbers import format_count, format_estimate, format_percent, format_points
from posir_tasks.display.strip import draw_glyph
from posir_tasks.display.tables import format_csv
from posir_tasks.models.protocols import list_differences
from posir_tasks.models.references import model_origin
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.result_schema import average_vectors, identify_data, rounded
from posir_tasks.values.schemes import ALL_LENGTHS, Axes
from posir_tasks.values.scores import Estimate, ScoreInfo, flatten, prefix_scores

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
REPRODUCED, AS_SUBMITTED = "reproduced", "as submitted"

Columns = dict[str, list[Any]]

#: Kinds of model that visitors filter by: mteb's `model_type`, and BM25 by its name.
BM25, UNKNOWN = "BM25", "Unknown"
KINDS = {
    "dense": "Dense",
    "sparse": "Sparse",
    "late-interaction": "Late interaction",
    "cross-encoder": "Cross-encoder",
}
#: Longest license and longest address that are shown.
MAX_TEXT = 300


def _none_if_invalid(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        return None


T = TypeVar("T")
#: None if invalid: a submitter's metadata is not trusted.
Known = Annotated[T | None, WrapValidator(_none_if_invalid)]
#: mteb writes some counts as floats.
Count = Annotated[
    int,
    BeforeValidator(
        lambda value: int(value) if isinstance(value, float) and value.is_integer() else value
    ),
    Field(gt=0, lt=2**53),
]


class Metadata(BaseModel):
    """The fields of mteb's `model_meta.json` that are shown; None if missing or invalid."""

    model_config = ConfigDict(strict=True)

    model_type: Known[list[Any]] = None
    n_parameters: Known[Count] = None
    max_tokens: Known[Count] = None
    embed_dim: Known[Count | list[Known[Count]]] = None
    open_weights: Known[bool] = None
    license: Known[Annotated[str, Field(min_length=1)]] = None
    reference: Known[
        Annotated[str, Field(max_length=MAX_TEXT, pattern=r"^https://[^\s<>\"'\\^`{|}\x00-\x20]+$")]
    ] = None


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
    def origin(self) -> str | None:
        """`local` or `endpoint` for a model that visitors cannot run; such results are not
        submitted.
        """
        return None if self.published else model_origin(self.name)

    @property
    def short_name(self) -> str:
        """The name without its organization or folder."""
        return self.name.split("/")[-1] or self.name

    @property
    def id(self) -> str:
        """Identifier in files and links: twelve hexadecimal digits of a hash, so that a name cannot
        choose it.

        The Hub's names differ in more than case, and the papers write one name in several cases.
        """
        return digest(
            "published" if self.published else "result", self.name.casefold(), self.revision, size=6
        ).hex()


def read_board_model(
    name: str, revision: str, meta: Mapping[str, Any], *, published: bool = False
) -> BoardModel:
    """Return a model, perhaps published in a paper only, as mteb's `model_meta.json` describes
    it.
    """
    given = Metadata.model_validate(meta)
    kinds = [
        KINDS[kind] for kind in given.model_type or () if isinstance(kind, str) and kind in KINDS
    ]
    dimensions = given.embed_dim if isinstance(given.embed_dim, list) else [given.embed_dim]
    return BoardModel(
        name=name,
        revision=revision,
        published=published,
        kind=BM25 if "bm25" in name.lower() else next(iter(kinds), UNKNOWN),
        parameters=0 if "bm25" in name.lower() else given.n_parameters,
        window=given.max_tokens,
        dimensions=max(filter(None, dimensions), default=None),
        open_weights=given.open_weights,
        license=given.license[:MAX_TEXT] if given.license else None,
        reference=given.reference,
    )


@dataclass(frozen=True, kw_only=True)
class BoardRow(ReportRow):
    """A row of a report as plain JSON, or the average of such rows over tasks."""

    task_states: tuple[tuple[State, str], ...] = ()
    """State of each task of an average, with its label; empty of one task."""

    @property
    def states(self) -> tuple[State, ...]:
        """The states of the bias within the window, the most frequent of an average first; a
        published row is not tested.
        """
        if self.findings is not None:
            return (self.findings.state,)
        counts = Counter(state for state, _ in self.task_states)
        return tuple(state for state, _ in counts.most_common()) or (State.NOT_TESTED,)

    @property
    def state_label(self) -> str:
        """The state in words; of an average, in how many of its tasks each is."""
        if self.findings is not None:
            return label_state(self.findings)
        if {*self.states} == {State.NOT_TESTED}:
            return name_state(State.NOT_TESTED, DEFAULT_MARGINS.position_effect)
        counts = Counter(label for _, label in self.task_states).most_common()
        return (
            ", ".join(f"{label} in {times}" for label, times in counts)
            + f" of {len(self.task_states)}"
        )

    @property
    def parts(self) -> dict[str, str]:
        """The answer: a sentence for each of its five parts, by title; empty without findings."""
        return dict(iterate_answer(self.findings, self.task)) if self.findings else {}

    @property
    def code(self) -> str:
        """The commands of the next steps, a line each."""
        return "\n".join(build_commands(self.findings, self.reference)) if self.findings else ""

    def verdict_columns(self) -> dict[str, Any]:
        """Return the columns of the verdict, as of a row of a report; a published row is not
        tested.
        """
        state = self.states[0] if len(self.states) == 1 else None
        return {**super().verdict_columns(), "state": state}

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

    @property
    def effect_words(self) -> list[str]:
        """The position effect and the state in words; of a published row start minus end."""
        name, shown = "Position effect", self.position_effect
        if shown is None:
            name, shown = "Start minus end", self.difference
        words = [f"{name} {format_estimate(shown, format_points)}"] if shown else []
        return words + (
            [f"Bias within the window: {self.state_label}"]
            if self.findings or self.task_states
            else []
        )

    @classmethod
    def of_report(cls, row: ReportRow) -> BoardRow:
        """Return a row of a report as plain JSON, with the reference that others can use."""
        kept = {
            name: getattr(row, name) for name in ("model", "task", "revision", "length", "findings")
        }
        return cls(**kept, scores=dict(row.scores), reference=row.reference.for_others())


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
    mark: str = ""
    """The reason why it is not ranked, such as `data not pinned`; empty if it is. Set when a board
    is built.
    """
    base_task: str = ""
    """The name without the data of a task that is named by its data; empty of others. Set when a
    board is built.
    """
    members: tuple[BoardRecord, ...] = ()

    @property
    def comparable(self) -> bool:
        """Whether it is ranked among the others."""
        return not self.partial and not self.mark

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

    def read_score(self, name: str, length: str) -> float | None:
        """Return the value of a score at a length, rounded; None without one."""
        estimate: Estimate | None = getattr(self.rows_by_length.get(length), name, None)
        return rounded(estimate.value) if estimate else None

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
        model = replace(model, name=f"{model.name} (protocol {entry.paper})", paper=entry.paper)
    ranks = {"axes": summary.ranks.axes.to_json(), "ranks": summary.ranks.to_json()}
    reported = build_rows(summary)
    rows = tuple(map(BoardRow.of_report, reported))
    read, missing = len(summary.subsets), len(summary.missing)
    partial = f"{read} of {read + missing} subsets" if missing else ""
    return BoardRecord(
        model, entry.task, rows, _build_detail(summary, reported, entry), ranks, partial
    )


def _build_detail(summary: TaskSummary, rows: Sequence[ReportRow], entry: Entry) -> dict[str, Any]:
    """Return what the model's own page shows of a task besides the rows."""
    strips = [row.build_strip(summary.model) for row in rows]
    axes = summary.profile.axes
    titles = axes.length_titles
    cells = build_cells(summary)
    panels = [_cell_columns(cells, length) for length in titles]
    several = entry.subsets if len(entry.subsets) > 1 else ()
    subsets = [BoardRow.of_report(build_rows(summarize([subset])[0])[0]) for subset in several]
    panels = [_pool_cells(summary), *panels] if len(titles) > 1 else panels
    places = describe_places(summary)
    detail = {
        "strips": [strip and draw_glyph(strip) for strip in strips],
        "lengths": [ALL_LENGTHS, *titles] if len(titles) > 1 else list(titles),
        "positions": list(axes.positions),
        "position_title": axes.position_title,
        "relative": axes.equal_bins,
        "panels": panels,
        "curves": merge_panels(summary),
        "subsets": {"name": [subset.subset for subset in entry.subsets], **row_columns(subsets)}
        if subsets
        else None,
        "data_revision": summary.data_revision,
        "data": identify_data(summary.data),
        "date": read_date(entry.data.get("date")),
        "vectors": average_vectors(subset.run for subset in entry.subsets),
        "several_places": places and places["queries"],
        "notes": [
            *([_write_place_note(places)] if places else []),
            *truncation_notes([summary.model], [summary]),
            *list_differences([(entry.task, entry.model)] if entry.paper is None else []),
        ],
    }
    return dict(rounded(detail))


def _write_place_note(places: Mapping[str, Any]) -> str:
    """Return in a sentence what is known of queries with several places of evidence, which no other
    number here is of.
    """
    left_out = (
        f"; {format_count(places['left_out'])} more have too many places"
        if places["left_out"]
        else ""
    )
    return (
        f"{pluralize(places['queries'], 'query', 'queries')} with several places of evidence are "
        "in no other number here: "
        "each place with the rank of its own document and the weight 1/n, nDCG@10 is "
        f"{format_percent(places['ndcg_at_10'])}, "
        f"start minus end {format_points(places['start_minus_end'])}{left_out}."
    )


def read_date(seconds: object) -> str | None:
    """Return the day that a result file states, such as 2026-11-22; None if it is missing or cannot
    be one of a result.
    """
    if not isinstance(seconds, int | float) or not FIRST_DATE <= seconds <= LAST_DATE:
        return None
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def _pool_cells(summary: TaskSummary) -> Columns:
    """Return the columns of the bins over all lengths."""
    cells = [row.score_columns() for row in build_bin_rows(summary)]
    return {name: [cell.get(name) for cell in cells] for name in CELL}


def _cell_columns(cells: Iterable[ProfileCell], length: str | None = None) -> Columns:
    rows = [cell.columns() for cell in cells if length in (None, cell.length)]
    return {name: [row.get(name) for row in rows] for name in CELL}


def merge_panels(summary: TaskSummary) -> list[Columns | None]:
    """Return the columns of five merged bins for each panel with a sparse bin, merged as in the
    report; None for the others.
    """
    axes, counts = summary.profile.axes, summary.profile.counts.sum(axis=2)
    sparse = [bool(queries.any()) and is_sparse(axes, queries) for queries in counts]
    cells = build_curve_cells(summary) if any(sparse) else ()
    titles = zip(axes.length_titles, sparse, strict=True)
    by_length = [_cell_columns(cells, length) if merged else None for length, merged in titles]
    if len(counts) == 1:
        return by_length
    return [
        _cell_columns(pool_curve_cells([summary])[0])
        if is_sparse(axes, counts.sum(axis=0))
        else None,
        *by_length,
    ]


def row_columns(scored: Sequence[BoardRow | None]) -> Columns:
    """Return rows as columns, named by their scores' keys; None where there is no row.

    Next to the declared scores are the verdict and what the table is drawn and ranked by, `score`
    with its interval among it.
    """
    cells = [_cells(row) if row else {} for row in scored]
    scores = [name for column in board_columns() for name in column_names(column, page_key(column))]
    return {
        name: rounded([row.get(name) for row in cells])
        for name in dict.fromkeys((*scores, *VERDICT_COLUMNS, *DRAWN))
    }


def _cells(row: BoardRow) -> dict[str, Any]:
    drawn = {name: getattr(row, name) for name in ("state_label", "parts", "code")}
    scores = {
        name: cell
        for column in board_columns()
        for name, cell in flatten(page_key(column), row.scores.get(column.key)).items()
    }
    return {
        **scores,
        **row.verdict_columns(),
        **drawn,
        "states": list(row.states),
        **flatten("score", row.score),
    }


def page_key(column: ScoreInfo) -> str:
    """Return the name of a score on the page."""
    return column.key if column.key in NAMED else f"scores.{column.key}"


#: What names a line.
RUN = ("model", "revision", "published", "task", "data_revision", "length")


def scores_csv(records: Iterable[BoardRecord]) -> bytes:
    """Return every declared score of every model, task and length."""
    taken = (*RUN, *UNDECLARED)
    names = prefix_scores(
        {name: None for column in known_columns() for name in column_names(column, column.key)},
        taken,
    )
    names |= dict.fromkeys(UNDECLARED)
    rows = ((record, row) for record in records for row in record.rows)
    cells = (
        (
            _run(record, row.length),
            {**prefix_scores(row.score_columns(), taken), **row.verdict_columns()},
        )
        for record, row in rows
    )
    return _compressed((*RUN, *names), ((*run, *map(columns.get, names)) for run, columns in cells))


def positions_csv(records: Iterable[BoardRecord]) -> bytes:
    """Return nDCG@10, its interval and the queries of every position bin of every model, task and
    length.
    """
    lines = (
        (*_run(record, row.length), position, *(panel[name][place] for name in CELL))
        for record in records
        for row, panel in zip(record.rows, record.detail["panels"], strict=False)
        if panel
        for place, position in enumerate(record.detail["positions"])
    )
    return _compressed((*RUN, "position", *CELL), lines)


def _run(record: BoardRecord, length: str) -> tuple[Any, ...]:
    model = record.model
    return (
        model.name,
        model.revision,
        model.published,
        record.task,
        record.detail["data_revision"],
        length,
    )


def _compressed(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> bytes:
    return gzip.compress(format_csv(header, lines).encode(), compresslevel=6, mtime=0)


@cache
def board_columns() -> tuple[ScoreInfo, ...]:
    """Return the scores that the page has: those that it names, and those that tables show."""
    return tuple(column for column in known_columns() if column.column or column.key in NAMED)


def column_names(column: ScoreInfo, key: str) -> tuple[str, ...]:
    """Return the names of a score's columns under a key; one with an interval has three, as in
    `posir_tasks.values.scores.flatten`.
    """
    return (key, f"{key}_low", f"{key}_high") if column.interval else (key,)
