"""The columns of a report: the declared scores, and those that a report computes itself."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from posir_published.rows import NOTABLE_BIAS, START_TO_END_UNWEIGHTED
from posir_report.summary import ReportRow
from posir_tasks.base.errors import UsageError
from posir_tasks.base.wording import suggest_name
from posir_tasks.plugin_api import declared_scores
from posir_tasks.values.profile import RECALL_COLUMNS
from posir_tasks.values.scores import ScoreInfo

#: Columns that a report computes from several rows.
REPORT_COLUMNS = (START_TO_END_UNWEIGHTED, NOTABLE_BIAS)
#: Keys of the columns of the answer: how well, the position effect, what is truncated, the state
#: within the window.
ANSWER = (
    "queries",
    "ndcg_at_10",
    "position_effect",
    "unread_share",
    "position_effect_in_window",
    "state",
)
#: Keys of the columns that `--full` adds.
FURTHER = (
    *("documents", "tested_questions", "truncation_loss", "controlled_psi"),
    *("start_minus_end", "psi_as_published", "psi_by_chance"),
)
#: Keys of the columns that `--recall` shows.
RECALL = ("queries", *(f"recall_at_{depth}" for depth in RECALL_COLUMNS))
#: Keys of scores that are shown with published results.
PUBLISHED = ("ndcg_at_10_as_published", "start_to_end_unweighted")


def known_columns() -> list[ScoreInfo]:
    """List every column that a report can show: first the answer, last those of the report."""
    declared = {score.key: score for score in declared_scores()}
    first = [key for key in (*ANSWER, *FURTHER) if key in declared]
    keys = dict.fromkeys([*first, *declared])
    return [*(declared[key] for key in keys), *REPORT_COLUMNS]


def default_columns(*, full: bool = False) -> list[ScoreInfo]:
    """List the columns that are shown unless others are chosen, those of further packages too."""
    keys = (*ANSWER, *(FURTHER if full else ()))
    added = added_columns()
    return [column for column in known_columns() if column.key in keys or column in added]


def added_columns() -> list[ScoreInfo]:
    """List the columns that further packages declare, which the report's own texts do not
    explain.
    """
    explained = {*ANSWER, *FURTHER, *(column.key for column in REPORT_COLUMNS)}
    return [column for column in known_columns() if column.column and column.key not in explained]


def choose_columns(keys: Sequence[str], *, full: bool = False) -> list[ScoreInfo]:
    """Look up columns by key, in this order; without keys, the default ones.

    Raises:
        PosirError: There is no such column.
    """
    known = {column.key: column for column in known_columns()}
    for key in keys:
        if key not in known:
            usual = ", ".join(column.key for column in default_columns())
            near = suggest_name(key, known)
            raise UsageError(
                f"--columns {key}: no such column.{near} Usual ones: {usual}. All: `posir report "
                "--columns help`."
            )
    return [known[key] for key in keys] if keys else default_columns(full=full)


def bin_columns() -> list[ScoreInfo]:
    """List the scores of position bins that are shown by default."""
    return [score for score in declared_scores() if score.by_position and score.column]


def add_published_columns(
    columns: Sequence[ScoreInfo], rows: Sequence[ReportRow]
) -> list[ScoreInfo]:
    """Add the scores that only published rows have."""
    shown = list(columns)
    for column in known_columns():
        has_value = any(row.scores.get(column.key) is not None for row in rows)
        if column.key in PUBLISHED and has_value and column not in shown:
            shown.append(column)
    return shown


def select_columns(row: ReportRow, columns: Iterable[ScoreInfo]) -> dict[str, Any]:
    """Build a record of what a row is about and its scores in some columns, unformatted."""
    return row.identity() | row.score_columns({column.key for column in columns})
