"""A user's table next to the published one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from posir_published.rows import SCORE_COLUMNS, published_rows
from posir_tasks.base.errors import DataError
from posir_tasks.base.untrusted import read_csv_rows

CHECKED_COLUMNS = ("task", "model", "length", *SCORE_COLUMNS)


class CheckState(StrEnum):
    """How a value of a user's table compares with the published one."""

    EQUAL = "equal"
    """To the decimals of the given value."""
    DIFFERENT = "different"
    MISSING = "missing"
    """From the given table."""
    NEW = "new"


@dataclass(frozen=True)
class CheckedValue:
    """A value of a user's table next to the published one; None where one of them has none."""

    task: str
    model: str
    length: str
    score: str
    """`ndcg_at_10` or `psi_as_published`."""
    given: float | None
    published: float | None
    state: CheckState
    source: str
    """Of the published value; empty for a new one."""


def check_published(file: Path) -> list[CheckedValue]:
    """Compare a CSV file with `CHECKED_COLUMNS` with the published rows of its tasks, one value a
    row; raise PosirError if it cannot be read.
    """
    expected = f"a file with the columns {','.join(CHECKED_COLUMNS)}"
    given: dict[tuple[str, str, str, str], str] = {}
    for number, row in enumerate(read_csv_rows(file, CHECKED_COLUMNS, expected), 2):
        for score in SCORE_COLUMNS:
            if row[score]:
                key = (row["task"], row["model"], row["length"], score)
                given[key] = row[score]
                _read_number(row[score], file, number, score)
    published = {}
    for task in dict.fromkeys(key[0] for key in given):
        for published_row in published_rows(task):
            for score in SCORE_COLUMNS:
                place = (task, published_row.model, published_row.length, score)
                published[place] = published_row
    checked = []
    for key in {**published, **given}:
        text = given.get(key)
        value = None if text is None else float(text)
        found = published.get(key)
        ours = None if found is None else float(getattr(found, key[3]))
        state = CheckState.MISSING if value is None else CheckState.NEW
        if text is not None and value is not None and ours is not None:
            decimals = len(text.partition(".")[2])
            is_equal = round(ours, decimals) == round(value, decimals)
            state = CheckState.EQUAL if is_equal else CheckState.DIFFERENT
        source = found.source if found else ""
        checked.append(CheckedValue(*key, value, ours, state, source))
    return checked


def _read_number(text: str, file: Path, number: int, field: str) -> None:
    """Raise DataError unless a cell is a score in [0, 1], in plain decimals."""
    if not re.fullmatch(r"(0(\.\d+)?|1(\.0+)?)", text):
        raise DataError(
            f"{file}: row {number}: field '{field}': {text!r} is not a score in [0, 1]. Divide "
            "percentages by 100, and write decimals with a point."
        )
