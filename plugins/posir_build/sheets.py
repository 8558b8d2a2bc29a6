"""Writing of sheets that people fill in: CSV files that spreadsheets open and save."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from posir_tasks.files import atomic_write

#: Cells that begin with one of these are formulas to a spreadsheet; an apostrophe makes them text.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def write_sheet_rows(file: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Write a sheet; the last columns, for which a row has no cell, are left empty.

    Raises:
        PosirError: The file cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([*map(_as_text, row), *("" for _ in columns[len(row) :])])
    with atomic_write(file) as part:
        # With a byte-order mark, or spreadsheets take UTF-8 for something else.
        part.write_text(text.getvalue(), encoding="utf-8-sig", newline="")


def _as_text(cell: str) -> str:
    return f"'{cell}" if cell.startswith(FORMULA) else cell
