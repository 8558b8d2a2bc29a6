"""Reading files of tables with polars.

The readers of polars take `[`, `*` and `?` in a path for a pattern, which a folder such as
`beir[1]` does not match. Here every path is literal, so no other module calls them.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from itertools import islice
from pathlib import Path

import polars as pl

from posir_tasks.base.files import iterate_lines, open_decompressed, read_decompressed, split_suffix
from posir_tasks.base.limits import MAX_BYTES, MAX_ROWS, describe_bytes
from posir_tasks.base.untrusted import (
    GateError,
    parse_json,
    parse_table,
    read_bytes,
    read_heading,
    require_distinct,
)
from posir_tasks.base.wording import sanitize

#: Columns of a table without headings, those on the right first.
UNNAMED = ("id", "text")
#: Most characters of a heading with a blank.
MAX_HEADING = 64


def read_delimited(file: Path) -> pl.DataFrame:
    """Read comma-, semicolon- or tab-separated values, perhaps compressed; every value is text, an
    empty one null.

    A first line that has a text or a number instead of a heading is a row, as in the collection of
    MS MARCO, whose columns are id and text.

    Raises:
        GateError: See `parse_table`; or there are no headings and more than two columns.
    """
    content = read_bytes(file)
    headings, rows = parse_table(
        content, file, delimiter=_find_delimiter(file, read_heading(content))
    )
    cells = [values for _, values in rows]
    if _is_row(headings):
        cells = [headings, *cells]
        if len(headings) > len(UNNAMED):
            shown = sanitize(", ".join(headings))
            raise GateError(
                file, f"line 1: is a row ({shown}); write the names of the columns above it"
            )
        headings = [*UNNAMED[-len(headings) :]]
    names = [heading or f"column {number}" for number, heading in enumerate(headings, start=1)]
    require_distinct(names, file)
    columns = {name: [row[place] or None for row in cells] for place, name in enumerate(names)}
    return pl.DataFrame(columns, schema=dict.fromkeys(names, pl.String))


def parse_columns(
    content: bytes, types: Mapping[str, type[pl.DataType]], separator: str
) -> pl.DataFrame | None:
    """Read lines without headings and quotations; None unless each has a value of the type in every
    column.
    """
    try:
        frame = pl.read_csv(
            content,
            has_header=False,
            schema=dict(types),
            separator=separator,
            quote_char=None,
        )
    except pl.exceptions.PolarsError:
        return None
    is_complete = len(frame) > 0 and not any(column.null_count() for column in frame)
    return frame if is_complete else None


def read_headings(beginning: str, file: Path) -> list[str]:
    """Read the headings of a table from the beginning of its file; none if its first line is a
    row.
    """
    heading = read_heading(beginning.removeprefix("\ufeff").encode())
    headings, _ = parse_table(heading, file, delimiter=_find_delimiter(file, heading))
    return [] if _is_row(headings) else headings


def _find_delimiter(file: Path, heading: bytes) -> str:
    """Find the delimiter of a table; the name of a file decides about tabs."""
    if split_suffix(file)[1] == ".tsv" and (b"\t" in heading or not set(b",;") & set(heading)):
        return "\t"
    return max(",;\t", key=lambda mark: heading.count(mark.encode()))


def _is_row(headings: Sequence[str]) -> bool:
    """Tell whether what is instead of headings cannot be: it begins with an id, or has a
    sentence.
    """
    is_numbered = (
        bool(headings)
        and headings[0].isdecimal()
        and not all(heading.isdecimal() for heading in headings)
    )
    return is_numbered or any(len(heading) > MAX_HEADING and " " in heading for heading in headings)


def read_json_rows(file: Path, limit: int | None = None) -> pl.DataFrame:
    """Read JSON objects, one per line or in a list, which may be compressed; of lines, at most a
    number, for their columns.
    """
    with open_decompressed(file) as opened:
        is_list = opened.read(1) == b"["
    content = (
        read_decompressed(file) if is_list or limit is None else _read_first_lines(file, limit)
    )
    _check_keys(content, file, is_list=is_list)
    if is_list:
        frame = pl.read_json(BytesIO(content), infer_schema_length=None)
        parse_json(content, file)
        return frame
    frame = pl.read_ndjson(BytesIO(content), infer_schema_length=None)
    # Of two fields of one name, polars takes the first and says nothing.
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            parse_json(line, f"{file}: line {number}")
    return frame


def _read_first_lines(file: Path, number: int) -> bytes:
    lines = list[bytes]()
    left = MAX_BYTES.read()
    with open_decompressed(file) as opened:
        for line in islice(iterate_lines(opened, file), number):
            left -= len(line)
            if left < 0:
                raise MAX_BYTES.refuse(
                    file, f"has {number:,} lines of more than {describe_bytes(MAX_BYTES.read())}"
                )
            lines.append(line)
    return b"".join(lines)


def _check_keys(content: bytes, file: Path, *, is_list: bool) -> None:
    """Raise LimitError if a table of all keys of all rows has too many cells: a row may have keys
    that no other has.
    """
    keys = set[str]()
    rows = 0
    parts = [content] if is_list else content.splitlines()
    for part in parts:
        # JSON that cannot be read is an error of polars, which says where.
        with suppress(GateError):
            value = parse_json(part, file)
            rows += len(value) if is_list else 1
            # Keys at any depth.
            rest = [value]
            while rest:
                inner = rest.pop()
                if isinstance(inner, dict):
                    keys.update(inner)
                    rest += inner.values()
                elif isinstance(inner, list):
                    rest += inner
    limit = max(MAX_ROWS.read(), len(content))
    if rows * len(keys) > limit:
        problem = (
            f"has {rows:,} rows and {len(keys):,} different keys, and at most {limit:,} cells are "
            "read"
        )
        raise MAX_ROWS.refuse(file, problem)
