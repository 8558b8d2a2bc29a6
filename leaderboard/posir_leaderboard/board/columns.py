"""The board's columns of scores: what plugins declare, those of other packages included."""

from functools import cache

from posir_report.columns import known_columns
from posir_tasks.scores import ScoreInfo

#: Scores that reports hide unless asked for, but that the page shows beside others or in its files.
BESIDE = (
    "ndcg_at_10_as_published",
    "start_to_end_unweighted",
    "p_value",
    "design_effect",
    "held_fixed",
    "detectable_start_to_end",
    "detectable_psi",
)


@cache
def board_columns() -> tuple[ScoreInfo, ...]:
    """Return the scores that the page has: those of a report's tables, and `BESIDE`."""
    return tuple(column for column in known_columns() if column.column or column.key in BESIDE)


def column_names(column: ScoreInfo) -> tuple[str, ...]:
    """Return the names of a score's columns; one with an interval has three, as in `posir_tasks.scores.flatten`."""
    return (column.key, f"{column.key}_low", f"{column.key}_high") if column.interval else (column.key,)
