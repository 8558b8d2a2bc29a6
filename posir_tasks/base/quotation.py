"""Decide if quotation marks in tab-separated files enclose cells, as in CSV, or are literal, as in
MS MARCO.

If every line has as many cells as there are headings, quotation marks are literal, unless they all
enclose cells and there is proof: a doubled mark within a cell, or a column in which all cells are
enclosed. If the number of cells varies, or there is only one column, CSV rules apply, and enclosed
cells may contain tabs and line breaks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from typing import TypeAlias

#: Number of the last line of a row, from 1, and the row's cells.
Row: TypeAlias = tuple[int, list[str]]
Rows: TypeAlias = Sequence[Row]

QUOTE = '"'
TAB = "\t"
#: An id that ends in a number.
NUMBERED = re.compile(r"(\D*)(\d{1,18})")
#: Minimum number of cells in a column that counts as enclosed.
MIN_ENCLOSED = 2
LINE_END = re.compile(r"\r\n|\r|\n")
#: Matches a cell between quotation marks in which all other marks are doubled.
match_enclosed = re.compile(r'"(?:[^"]|"")*"').fullmatch


def split_literally(text: str, delimiter: str) -> list[Row]:
    """Split lines into cells, keep quotation marks, and skip blank lines."""
    mark = "\n" if "\n" in text else "\r"
    lines = enumerate(text.split(mark), start=1)
    rows = ((number, line.removesuffix("\r").split(delimiter)) for number, line in lines)
    return [(number, cells) for number, cells in rows if any(map(str.strip, cells))]


def is_regular(rows: Rows) -> bool:
    """Return True if all rows have as many cells as the first, except empty cells at the end."""
    width = len(rows[0][1]) if rows else 0
    return all(len(cells) >= width and not any(map(str.strip, cells[width:])) for _, cells in rows)


def remove_marks(rows: Rows) -> Rows:
    """Remove the quotation marks around cells, unless they are literal."""
    quoted_cells = [cell for _, cells in rows for cell in cells if QUOTE in cell]
    if not quoted_cells or not all(map(match_enclosed, quoted_cells)):
        return rows
    # Cells contain no line breaks or tabs, which also need marks.
    needs_marks = any(set('"\r') & set(cell[1:-1]) for cell in quoted_cells)
    if not needs_marks and not _has_enclosed_column(rows):
        return rows
    return [(number, [_remove_marks(cell) for cell in cells]) for number, cells in rows]


def find_swallowed_row(text: str, rows: Rows, delimiter: str) -> int | None:
    """Find the first line of a cell that seems to contain rows, because of a stray quotation mark.
    Return None if there is no such cell.
    """
    lines = list[str]()
    width = len(rows[0][1]) if rows else 0
    for end, cells in rows:
        breaks = sum(len(LINE_END.findall(cell)) for cell in cells)
        if not breaks:
            continue
        lines = lines or LINE_END.split(text)
        candidates = [line.split(delimiter) for line in lines[end - breaks - 1 : end]]
        if _has_consecutive_ids(candidates) or (delimiter == TAB and _has_width(candidates, width)):
            return end - breaks
    return None


def _has_consecutive_ids(rows: Sequence[Sequence[str]]) -> bool:
    """Return True if the first cells are consecutive ids: `d3`, `d4`, `d5`."""
    ids = [NUMBERED.fullmatch(cells[0]) for cells in rows if len(cells) > 1]
    numbers = [int(name[2]) for name in ids if name]
    prefixes = {name[1] for name in ids if name}
    is_complete = len(numbers) == len(rows) and len(prefixes) == 1
    return is_complete and numbers == [*range(numbers[0], numbers[0] + len(numbers))]


def _has_width(rows: Sequence[Sequence[str]], width: int) -> bool:
    """Return True if the first row and at least half of the other rows have `width` cells."""
    matches = [len(cells) == width for cells in rows]
    return matches[0] and 2 * sum(matches[1:]) >= len(matches) - 1


def _has_enclosed_column(rows: Rows) -> bool:
    """Return True if all headings or all non-empty cells of a column are enclosed."""
    if all(map(match_enclosed, rows[0][1])):
        return True
    for column in zip_longest(*(cells for _, cells in rows[1:]), fillvalue=""):
        cells = list(filter(None, column))
        if len(cells) >= MIN_ENCLOSED and all(map(match_enclosed, cells)):
            return True
    return False


def _remove_marks(cell: str) -> str:
    return cell[1:-1].replace(QUOTE * 2, QUOTE) if QUOTE in cell else cell
