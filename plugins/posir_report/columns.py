"""The columns of a report: the declared scores, and what a report adds to them when rows are read together."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

from posir_published.curves import START_TO_END_UNWEIGHTED
from posir_published.notable import NOTABLE_BIAS
from posir_report.summary import ReportRow, ScoredRow
from posir_significance.verdict import Verdict, describe_verdict
from posir_tasks.display.numbers import format_percent, format_psi, format_score
from posir_tasks.errors import PosirError
from posir_tasks.plugin_api.scoring import declared_scores
from posir_tasks.scores import ScoreInfo, Unit

P_CORRECTED = ScoreInfo(
    "p_corrected",
    "p",
    "p-value of any effect of position, corrected for the rows of the model on the task (Holm).",
    unit=Unit.P_VALUE,
)
VERDICT = ScoreInfo(
    "verdict",
    "Position bias",
    "Direction of a significant effect, or truncation where the model's window explains it. Detectable: the smallest linear "
    "decline from start to end, in points and as PSI, that data like these show with 80 % power at p < 0.05.",
    unit=Unit.TEXT,
)
#: Columns that a report computes from several rows.
REPORT_COLUMNS = (P_CORRECTED, VERDICT, START_TO_END_UNWEIGHTED, NOTABLE_BIAS)
#: Keys of the columns that come first.
FIRST = ("queries", "ndcg_at_10", "start_to_end", "psi", "psi_as_published", "psi_null")
#: Units whose columns are aligned to the right; estimates are long, and read better from the left.
NUMBERS = (Unit.COUNT, Unit.P_VALUE)


def known_columns() -> list[ScoreInfo]:
    """Return every column that a report can show, those of `FIRST` first and those of the report last."""
    declared = declared_scores()
    first = [score for key in FIRST for score in declared if score.key == key]
    return [*first, *(score for score in declared if score.key not in FIRST), *REPORT_COLUMNS]


def default_columns() -> list[ScoreInfo]:
    """Return the columns that a report shows by itself."""
    return [column for column in known_columns() if column.column]


def added_columns() -> list[ScoreInfo]:
    """Return the columns that a report shows because a further package declares them: those that its texts do not explain."""
    explained = {*FIRST, *(column.key for column in REPORT_COLUMNS)}
    return [column for column in default_columns() if column.key not in explained]


def choose_columns(keys: Sequence[str]) -> list[ScoreInfo]:
    """Return the columns with these keys, in their order; the default ones if there is none.

    Raises:
        PosirError: There is no such column.
    """
    known = {column.key: column for column in known_columns()}
    for key in keys:
        if key not in known:
            close = get_close_matches(key, known)
            hint = f"did you mean {close[0]}? " if close else ""
            raise PosirError(f"--columns {key}: no such column; {hint}Choose from {', '.join(known)}.")
    return [known[key] for key in keys] if keys else default_columns()


#: Scores of published results, by the key of the score that they stand beside.
PUBLISHED = {"ndcg_at_10": "ndcg_at_10_as_published", "start_to_end": "start_to_end_unweighted"}


def with_published_scores(columns: Sequence[ScoreInfo], rows: Sequence[ReportRow]) -> list[ScoreInfo]:
    """Return columns with those scores of published results that some rows have, beside the like of one's own."""
    known = {column.key: column for column in known_columns()}
    shown = list(columns)
    for own, published in PUBLISHED.items():
        if published in known and known[published] not in shown and any(row.scores.get(published) is not None for row in rows):
            shown.insert(next((place for place, column in enumerate(shown, start=1) if column.key == own), 0), known[published])
    return shown


def select_columns(row: ReportRow, columns: Iterable[ScoreInfo]) -> dict[str, Any]:
    """Return what a row is about and the cells of some columns, unformatted."""
    cells, keys = row.columns(), {column.key for column in columns}
    chosen = {name: cell for name, cell in cells.items() if name in keys or name.removesuffix("_low") in keys}
    chosen |= {name: cell for name, cell in cells.items() if name.removesuffix("_high") in keys}
    return {**row.identity(), "length": row.length, **{name: cell for name, cell in cells.items() if name in chosen}}


def format_cell(row: ScoredRow, column: ScoreInfo) -> str:
    """Return the text of a row in a column."""
    if isinstance(row, ReportRow) and column is P_CORRECTED:
        return format_score(column.unit, row.p_corrected)
    if isinstance(row, ReportRow) and column is VERDICT:
        return describe_bias(row)
    return format_score(column.unit, row.scores.get(column.key))


def describe_bias(row: ReportRow) -> str:
    """Return the verdict; if it is not significant, with the smallest effect that would probably have been."""
    words = describe_verdict(row, row.verdict)
    if row.verdict is not Verdict.NOT_SIGNIFICANT:
        return words
    points, psi = row.get("detectable_start_to_end", float), row.get("detectable_psi", float)
    if points is None:
        return f"{words} (no linear effect detectable)"
    return f"{words} (detectable: {format_percent(points)} points, PSI {format_psi(psi)})"


def build_legend(columns: Iterable[ScoreInfo]) -> str:
    """Return what the columns mean, a sentence each."""
    return " ".join(f"{column.title}: {_continue_sentence(column.description)}" for column in columns)


def _continue_sentence(text: str) -> str:
    """Return a sentence as it stands after a colon: with a small letter, unless its first word is an acronym."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
