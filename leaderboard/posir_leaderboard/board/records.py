"""Records: the scores of one model on one task, computed from its profiles, for the leaderboard."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posir_leaderboard.board.models import BoardModel, read_board_model
from posir_leaderboard.board.ranks import MeanByCluster, means_by_cluster
from posir_leaderboard.entries import FIRST_DATE, Entry
from posir_psi.scores import none_if_nan
from posir_report.cells import ProfileCell, build_cells, build_curve_cells, pool_curve_cells
from posir_report.summary import (
    DECISION_COLUMNS,
    UNDECLARED,
    ReportRow,
    TaskSummary,
    build_bin_rows,
    build_rows,
    is_sparse,
    summarize,
)
from posir_report.tables import known_columns, not_read_notes
from posir_significance.analysis import analyze
from posir_significance.sentences import iterate_answer, label_state
from posir_tasks.display.tables import format_csv
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.result_schema import identify_data
from posir_tasks.results import rounded
from posir_tasks.schemes import ALL_LENGTHS, Axes
from posir_tasks.scores import ALL, Estimate, ResultValues, ScoreInfo, flatten, prefix_scores
from posir_tasks.sources.repository import LOCAL

#: Columns of the cells of a curve.
CELL = ("queries", "ndcg_at_10", "ndcg_at_10_low", "ndcg_at_10_high", "null_low", "null_high")

#: Latest date that can be written in years of four digits.
LAST_DATE = 253_402_300_799

#: Columns that the table is drawn and ranked by, whatever score they are.
DRAWN = ("score", "score_low", "score_high", "best_psi", "curve_tasks", "states", "state_label", "parts")
#: Scores that the page names; every other one is `scores.KEY` there, so that no key is that of a field.
NAMED = ("queries", "ndcg_at_10", "start_to_end", "psi", "psi_as_published", "psi_chance")
#: The state of a published row: the papers give neither what a model reads nor the documents of its queries.
NOT_PUBLISHED = "not published"

Columns = dict[str, list[Any]]


@dataclass(frozen=True, kw_only=True)
class BoardRow(ReportRow):
    """A row of a report as plain JSON: with what its decision says in place of the decision."""

    states: tuple[str, ...] = (NOT_PUBLISHED,)
    """State of the bias within what is read: of the task, or each that a task of an average has, the most frequent first."""
    state_label: str = NOT_PUBLISHED
    """The state in words; of an average, in how many of its tasks each is."""
    decided: Mapping[str, str | float | int | None] = field(default_factory=dict)
    """The columns of the decision; empty if there is none."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """The answer: a sentence for each of its five parts, by title; empty without a decision."""
    curve_tasks: int | None = None
    """Number of the tasks of an average whose curves are known, if those of some are not; None otherwise."""

    @property
    def score(self) -> Estimate | None:
        """nDCG@10, in a length bucket averaged as in the papers, so that own and published results compare."""
        return self.ndcg_at_10 if self.length == ALL else self.ndcg_at_10_as_published

    @classmethod
    def of_report(cls, row: ReportRow) -> BoardRow:
        """Return a row of a report without its decision, in the words of `posir report`."""
        decision = row.decision
        return cls(
            model=row.model,
            task=row.task,
            revision=row.revision,
            scores=dict(row.scores),
            length=row.length,
            subsets=row.subsets,
            missing_subsets=row.missing_subsets,
            states=(decision.state.value,) if decision else (NOT_PUBLISHED,),
            state_label=label_state(decision) if decision else NOT_PUBLISHED,
            decided=row.decision_columns() if decision else {},
            parts=dict(iterate_answer(decision)) if decision else {},
        )


class Standing(StrEnum):
    """The origin of the run of a submitted result."""

    REPRODUCED = "reproduced"
    """The maintainers of the board, too, with the same nDCG@10."""
    AS_SUBMITTED = "as submitted"
    """The submitter alone."""


@dataclass(frozen=True)
class BoardRecord:
    """One model on one task."""

    model: BoardModel
    task: str
    rows: tuple[BoardRow, ...]
    """All lengths, then each length bucket."""
    detail: Mapping[str, Any]
    """Further contents of the model's own page: plain JSON, numbers rounded as mteb rounds scores."""
    document_ranks: Mapping[str, Any] | None = None
    """JSON of the axes and of the ranks by document of all subsets; None if published."""
    standing: str = ""
    """`Standing` of a submitted result; empty of one's own and of published ones."""
    mark: str = ""
    """The reason why it is not ranked among the others, such as `other data`; empty if it is. Set when a board is built."""

    @cached_property
    def means(self) -> dict[str, MeanByCluster]:
        """nDCG@10 by cluster at each length where there is one, to compare models on the same queries."""
        if self.document_ranks is None:
            return {}
        axes = Axes.from_json(self.document_ranks["axes"])
        means = means_by_cluster(DocumentRanks.from_json(self.document_ranks["ranks"], axes))
        return {row.length: mean for row, mean in zip(self.rows, means, strict=True) if mean}

    @property
    def rows_by_length(self) -> dict[str, BoardRow]:
        """The rows by length."""
        return {row.length: row for row in self.rows}

    @property
    def local(self) -> bool:
        """Whether its data are of a local folder, which need not be those of other results of the task."""
        return str(self.detail["data_revision"]).startswith(LOCAL)

    @property
    def data(self) -> str:
        """Digest of the content of its data: equal for results on the same data; empty if published."""
        return str(self.detail["data"])

    @property
    def partial(self) -> str:
        """Number of the task's subsets that have results, such as `2 of 32 subsets`; empty if all have."""
        row = self.rows[0]
        return f"{row.subsets} of {row.subsets + row.missing_subsets} subsets" if row.missing_subsets else ""


def score_entry(entry: Entry) -> BoardRecord:
    """Score an entry: pooled over its subsets, as `posir report` does, and each subset by itself."""
    (summary,) = summarize(entry.subsets)
    model = read_board_model(entry.model, entry.revision, entry.meta)
    ranks = {"axes": summary.ranks.axes.to_json(), "ranks": summary.ranks.to_json()}
    rows = tuple(map(BoardRow.of_report, build_rows(summary)))
    return BoardRecord(model, entry.task, rows, build_detail(summary, entry), ranks)


def build_detail(summary: TaskSummary, entry: Entry) -> dict[str, Any]:
    """Return what the model's own page shows of a task besides the rows."""
    axes = summary.profile.axes
    titles = axes.length_titles
    panels = [cell_columns([cell for cell in build_cells(summary) if cell.length == length]) for length in titles]
    several = entry.subsets if len(entry.subsets) > 1 else ()
    subsets = [BoardRow.of_report(build_rows(summarize([subset])[0])[0]) for subset in several]
    panels = [pooled_columns(summary), *panels] if len(titles) > 1 else panels
    detail = {
        "window_ends": window_ends(summary.values),
        "lengths": [ALL_LENGTHS, *titles] if len(titles) > 1 else list(titles),
        "positions": list(axes.positions),
        "position_title": axes.position_title,
        "relative": axes.equal_bins,
        "panels": panels,
        "curves": merge_panels(summary),
        "subsets": {"name": [subset.subset for subset in entry.subsets], **row_columns(subsets)} if subsets else None,
        "data_revision": summary.data_revision,
        "data": identify_data(summary.data),
        "date": read_date(entry.date),
        "notes": list(not_read_notes([summary.model], [summary])),
    }
    return dict(rounded(detail))


def read_date(seconds: object) -> str | None:
    """Return the day that a result file states, such as 2026-11-22; None if it is missing or cannot be one of a result."""
    if not isinstance(seconds, int | float) or not FIRST_DATE <= seconds <= LAST_DATE:
        return None
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


def window_ends(values: ResultValues) -> list[float | None]:
    """Return the share of the document from which on most evidence is beyond the window: over all lengths, then by length.

    None if that is nowhere, or if the window or the lengths of the documents are unknown.
    """
    counts, within = (profile.counts.sum(axis=2) for profile in (values.profile, values.read_profile or values.profile))
    buckets = [(within.sum(axis=0), counts.sum(axis=0)), *(zip(within, counts, strict=True) if len(counts) > 1 else ())]
    return [_first_share(2 * inside < every) for inside, every in buckets]


def _first_share(beyond: NDArray[np.bool_]) -> float | None:
    return int(beyond.argmax()) / len(beyond) if beyond.any() else None


def cell_columns(cells: Sequence[ProfileCell]) -> Columns:
    """Return cells as columns, which take less space than objects."""
    rows = [cell.columns() for cell in cells]
    return {name: [row.get(name) for row in rows] for name in CELL}


def pooled_columns(summary: TaskSummary) -> Columns:
    """Return the columns of the bins over all lengths; their null band permutes ranks within each length bucket."""
    rows, band = build_bin_rows(summary), analyze(summary.ranks).overall.null_band
    cells = [row.score_columns() for row in rows]
    columns = {name: [cell.get(name) for cell in cells] for name in CELL[:-2]}
    return columns | {name: list(map(none_if_nan, ends)) for name, ends in zip(CELL[-2:], band, strict=True)}


def merge_panels(summary: TaskSummary) -> list[Columns | None]:
    """Return the columns of five merged bins for each panel with a sparse bin, merged as in the report; None for the others."""
    axes, counts = summary.profile.axes, summary.profile.counts.sum(axis=2)
    by_length: list[Columns | None] = [None] * len(counts)
    sparse = [bool(queries.any()) and is_sparse(axes, queries) for queries in counts]
    if any(sparse):
        cells = build_curve_cells(summary)
        by_length = [
            cell_columns([cell for cell in cells if cell.length == length]) if merged else None
            for length, merged in zip(axes.length_titles, sparse, strict=True)
        ]
    if len(counts) == 1:
        return by_length
    pooled = cell_columns(pool_curve_cells([summary])[0]) if is_sparse(axes, counts.sum(axis=0)) else None
    return [pooled, *by_length]


def row_columns(scored: Sequence[BoardRow | None]) -> Columns:
    """Return rows as columns, named by their scores' keys; None where there is no row.

    Beside the declared scores is what the table is drawn and ranked by, `score` with its interval and `best_psi` among it.
    """
    cells = [_cells(row) if row else {} for row in scored]
    scores = [
        page_key(column) + end for column in board_columns() for end in (("", "_low", "_high") if column.interval else ("",))
    ]
    return {name: rounded([row.get(name) for row in cells]) for name in dict.fromkeys((*scores, *DECISION_COLUMNS, *DRAWN))}


def _cells(row: BoardRow) -> dict[str, Any]:
    drawn = {name: getattr(row, name) for name in ("best_psi", "curve_tasks", "state_label", "parts")}
    scores = {
        name: cell for column in board_columns() for name, cell in flatten(page_key(column), row.scores.get(column.key)).items()
    }
    return {**scores, **row.decided, **drawn, "states": list(row.states), **flatten("score", row.score)}


def page_key(column: ScoreInfo) -> str:
    """Return the name of a score on the page."""
    return column.key if column.key in (*NAMED, *BESIDE) else f"scores.{column.key}"


#: What names a line.
RUN = ("model", "revision", "published", "task", "data_revision", "length")


def scores_csv(records: Iterable[BoardRecord]) -> bytes:
    """Return every declared score of every model, task and length."""
    taken = (*RUN, *UNDECLARED)
    names = prefix_scores({name: None for column in known_columns() for name in column_names(column, column.key)}, taken)
    names |= dict.fromkeys(UNDECLARED)
    rows = ((record, row) for record in records for row in record.rows)
    cells = ((_run(record, row.length), {**prefix_scores(row.score_columns(), taken), **row.decided}) for record, row in rows)
    return _compressed((*RUN, *names), ((*run, *map(columns.get, names)) for run, columns in cells))


def positions_csv(records: Iterable[BoardRecord]) -> bytes:
    """Return nDCG@10, its interval, the null band and the queries of every position bin of every model, task and length."""
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
    return (model.name, model.revision, model.published, record.task, record.detail["data_revision"], length)


def _compressed(header: Sequence[str], lines: Iterable[Sequence[Any]]) -> bytes:
    return gzip.compress(format_csv(header, lines).encode(), compresslevel=6, mtime=0)


#: Scores that reports hide unless asked for, but that the page shows beside others or in its files.
BESIDE = (
    "ndcg_at_10_as_published",
    "bias_within_read",
    "not_read",
    "not_read_difference",
    "state",
    "start_to_end_unweighted",
    "p_value",
    "design_effect",
    "held_fixed",
)


@cache
def board_columns() -> tuple[ScoreInfo, ...]:
    """Return the scores that the page has: those of a report's tables, and `BESIDE`."""
    return tuple(column for column in known_columns() if column.column or column.key in BESIDE)


def column_names(column: ScoreInfo, key: str) -> tuple[str, ...]:
    """Return the names of a score's columns under a key; one with an interval has three, as in `posir_tasks.scores.flatten`."""
    return (key, f"{key}_low", f"{key}_high") if column.interval else (key,)
