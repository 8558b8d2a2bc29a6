"""Quotation marks between tabs, which some files use as CSV does and others, such as MS MARCO's,
have as characters of a text.

The content decides. Cells are literal if every line has as many as the headings, except in a file
whose quotation marks all enclose cells and which shows that they do: one is doubled within a cell,
or all cells of a column are enclosed. If lines differ in their number of cells, or there is one
column, the rules of CSV hold, by which a cell in quotation marks may have tabs and line ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TypeAlias

#: The line that a row ends at, from 1, and its cells.
Row: TypeAlias = tuple[int, list[str]]

QUOTE = '"'
TAB = "\t"
#: An id that ends with a number.
NUMBERED = re.compile(r"(\D*)(\d{1,18})")
#: Rows from which a column whose cells are all enclosed shows that a file encloses cells.
MIN_ENCLOSED = 2
#: What a cell is enclosed for, besides line ends and tabs.
NEEDS_MARKS = re.compile(r'["\r]')
LINE_END = re.compile(r"\r\n|\r|\n")


def split_literally(text: str, delimiter: str) -> list[Row]:
    """Split each line that is not blank into cells, quotation marks included."""
    mark = "\n" if "\n" in text else "\r"
    lines = enumerate(text.split(mark), start=1)
    rows = ((number, line.removesuffix("\r").split(delimiter)) for number, line in lines)
    return [(number, cells) for number, cells in rows if any(map(str.strip, cells))]


def is_regular(rows: Sequence[Row]) -> bool:
    """Tell whether each row has as many cells as the first, empty ones at its end apart."""
    width = len(rows[0][1]) if rows else 0
    return all(len(cells) >= width and not any(map(str.strip, cells[width:])) for _, cells in rows)


def remove_marks(rows: Sequence[Row]) -> Sequence[Row]:
    """Remove the quotation marks around cells if a file encloses cells."""
    marked = [cell for _, cells in rows for cell in cells if QUOTE in cell]
    if not marked or not all(map(_is_enclosed, marked)):
        return rows
    needs_marks = any(NEEDS_MARKS.search(cell[1:-1]) for cell in marked)
    if not needs_marks and not _has_enclosed_column(rows):
        return rows
    return [(number, [_remove_marks(cell) for cell in cells]) for number, cells in rows]


def find_swallowed_row(text: str, rows: Sequence[Row], delimiter: str) -> int | None:
    """Find the line of a quotation mark that joins lines which look like rows of their own; None
    if there is none.
    """
    lines = list[str]()
    width = len(rows[0][1]) if rows else 0
    for end, cells in rows:
        breaks = sum(len(LINE_END.findall(cell)) for cell in cells)
        if not breaks:
            continue
        lines = lines or LINE_END.split(text)
        joined = [line.split(delimiter) for line in lines[end - breaks - 1 : end]]
        if _count_up(joined) or (delimiter == TAB and _are_as_wide(joined, width)):
            return end - breaks
    return None


def _count_up(rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether the first cells of rows are the ids of one and the next: `d3`, `d4`, `d5`."""
    ids = [NUMBERED.fullmatch(cells[0]) for cells in rows if len(cells) > 1]
    numbers = [int(name[2]) for name in ids if name]
    prefixes = {name[1] for name in ids if name}
    is_complete = len(numbers) == len(rows) and len(prefixes) == 1
    return is_complete and numbers == [*range(numbers[0], numbers[0] + len(numbers))]


def _are_as_wide(rows: Sequence[Sequence[str]], width: int) -> bool:
    """Tell whether the first of joined rows, and half of the others, have as many cells as there
    are headings.
    """
    others = [len(cells) == width for cells in rows[1:]]
    return len(rows[0]) == width and 2 * sum(others) >= len(others)


def _is_enclosed(cell: str) -> bool:
    is_between = len(cell) > 1 and cell.startswith(QUOTE) and cell.endswith(QUOTE)
    return is_between and QUOTE not in cell[1:-1].replace(QUOTE * 2, "")


def _has_enclosed_column(rows: Sequence[Row]) -> bool:
    """Tell whether the first line has enclosed headings alone, or all cells of a column below it
    are enclosed.
    """
    if all(map(_is_enclosed, rows[0][1])):
        return True
    return any(
        _are_enclosed(column)
        for column in zip_longest(*(cells for _, cells in rows[1:]), fillvalue="")
    )


def _are_enclosed(column: Iterable[str]) -> bool:
    stated = [cell for cell in column if cell]
    return len(stated) >= MIN_ENCLOSED and all(map(_is_enclosed, stated))


def _remove_marks(cell: str) -> str:
    return cell[1:-1].replace(QUOTE * 2, QUOTE) if QUOTE in cell else cell
