"""Compare a user's table with the published results."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from posir_published.rows import SCORE_COLUMNS, list_published_rows
from posir_tasks.base.errors import DataError
from posir_tasks.base.untrusted import read_csv_rows

CHECKED_COLUMNS = ("task", "model", "length", *SCORE_COLUMNS)


class CheckState(StrEnum):
    """Outcome of comparing a value with the published value."""

    EQUAL = "equal"
    """Equal after rounding to the decimals of the user's value."""
    DIFFERENT = "different"
    MISSING = "missing"
    """Missing from the user's table."""
    NEW = "new"
    """Not published."""


@dataclass(frozen=True)
class CheckedValue:
    """A value in a user's table and the published value; missing values are None."""

    task: str
    model: str
    length: str
    score: str
    """`ndcg_at_10` or `psi_as_published`."""
    given: float | None
    published: float | None
    state: CheckState
    source: str
    """Source of the published value; empty if there is none."""


def check_published(file: Path) -> list[CheckedValue]:
    """Compare the scores of a CSV file with the published rows of its tasks.

    Raises:
        DataError: The file cannot be read, one of `CHECKED_COLUMNS` is missing, or a score is
            invalid.
    """
    expected = f"a file with the columns {','.join(CHECKED_COLUMNS)}"
    cells: dict[tuple[str, str, str, str], str] = {}
    for number, row in enumerate(read_csv_rows(file, CHECKED_COLUMNS, expected), 2):
        for score in SCORE_COLUMNS:
            if row[score]:
                _check_number(row[score], file, number, score)
                cells[row["task"], row["model"], row["length"], score] = row[score]
    published_values = {}
    for task in dict.fromkeys(key[0] for key in cells):
        for published_row in list_published_rows(task):
            for score in SCORE_COLUMNS:
                key = (task, published_row.model, published_row.length, score)
                published_values[key] = (getattr(published_row, score), published_row.source)
    values = []
    for key in {**published_values, **cells}:
        text = cells.get(key)
        expected_value, source = published_values.get(key, (None, ""))
        value = None if text is None else float(text)
        values.append(
            CheckedValue(*key, value, expected_value, _compare(text, expected_value), source)
        )
    return values


def _compare(text: str | None, published: float | None) -> CheckState:
    """Compare a cell with the published value after rounding to the cell's decimals."""
    if text is None:
        return CheckState.MISSING
    if published is None:
        return CheckState.NEW
    decimals = len(text.partition(".")[2])
    is_equal = round(published, decimals) == round(float(text), decimals)
    return CheckState.EQUAL if is_equal else CheckState.DIFFERENT


def _check_number(text: str, file: Path, number: int, field: str) -> None:
    """Raise DataError unless a cell is a score in [0, 1] in plain decimals."""
    if not re.fullmatch(r"(0(\.\d+)?|1(\.0+)?)", text):
        raise DataError(
            f"{file}: row {number}: field '{field}': {text!r} is not a score in [0, 1]. Divide "
            "percentages by 100, and write decimals with a point."
        )
