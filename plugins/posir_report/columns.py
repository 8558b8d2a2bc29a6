"""The columns of a report: declared scores, and scores that the report computes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress

from posir_published.rows import NOTABLE_BIAS, START_TO_END_UNWEIGHTED
from posir_report.summary import ReportRow
from posir_tasks.base.errors import UsageError
from posir_tasks.base.records import Record
from posir_tasks.base.wording import suggest_name
from posir_tasks.plugin_api import list_plugin_scores
from posir_tasks.values.profile import RECALL_COLUMNS
from posir_tasks.values.scores import ScoreInfo

#: Scores that a report computes.
REPORT_COLUMNS = (START_TO_END_UNWEIGHTED, NOTABLE_BIAS)
#: Keys of the main scores.
MAIN_KEYS = (
    "queries",
    "ndcg_at_10",
    "position_effect",
    "unread_share",
    "position_effect_in_window",
    "state",
)
#: Keys that `--full` adds.
FULL_KEYS = (
    "documents",
    "tested_questions",
    "truncation_loss",
    "controlled_psi",
    "start_minus_end",
    "psi_as_published",
    "psi_by_chance",
)
#: Keys of `--recall`.
RECALL_KEYS = ("queries", *(f"recall_at_{depth}" for depth in RECALL_COLUMNS))
#: Keys that `--published` adds.
PUBLISHED_KEYS = ("ndcg_at_10_as_published", "start_to_end_unweighted")


def list_score_columns() -> list[ScoreInfo]:
    """List every column of reports: main scores, other declared scores, `REPORT_COLUMNS`."""
    declared = {key: score for key, (_, score) in list_plugin_scores().items()}
    keys = dict.fromkeys((*MAIN_KEYS, *FULL_KEYS, *declared))
    return [*(declared[key] for key in keys if key in declared), *REPORT_COLUMNS]


def list_default_columns(*, full: bool = False) -> list[ScoreInfo]:
    """List the default columns, including those of other packages."""
    keys = (*MAIN_KEYS, *(FULL_KEYS if full else ()))
    added = list_added_columns()
    return [column for column in list_score_columns() if column.key in keys or column in added]


def list_added_columns() -> list[ScoreInfo]:
    """List the columns that other packages declare."""
    builtin = {*MAIN_KEYS, *FULL_KEYS, *(column.key for column in REPORT_COLUMNS)}
    return [
        column for column in list_score_columns() if column.column and column.key not in builtin
    ]


def choose_columns(keys: Sequence[str], *, full: bool = False) -> list[ScoreInfo]:
    """Look up columns by key; without keys, return the default columns.

    Raises:
        PosirError: A key is unknown.
    """
    known = {column.key: column for column in list_score_columns()}
    for key in keys:
        if key not in known:
            defaults = ", ".join(column.key for column in list_default_columns())
            suggestion = suggest_name(key, known)
            raise UsageError(
                f"--columns {key}: no such column.{suggestion} Default columns: {defaults}. For "
                "all columns: `posir report --columns help`."
            )
    return [known[key] for key in keys] if keys else list_default_columns(full=full)


def list_bin_columns() -> list[ScoreInfo]:
    """List the default scores of position bins."""
    return [
        score for _, score in list_plugin_scores().values() if score.by_position and score.column
    ]


def add_published_columns(
    columns: Sequence[ScoreInfo], rows: Sequence[ReportRow]
) -> list[ScoreInfo]:
    """Add the `PUBLISHED_KEYS` columns that have a value."""
    missing = [
        column
        for column in list_score_columns()
        if column.key in PUBLISHED_KEYS and column not in columns
    ]
    has_value = [any(row.scores.get(column.key) is not None for row in rows) for column in missing]
    return [*columns, *compress(missing, has_value)]


def select_columns(row: ReportRow, columns: Iterable[ScoreInfo]) -> Record:
    """Return a row's identity and its unformatted scores in the given columns."""
    return row.identity | row.flatten_scores({column.key for column in columns})
