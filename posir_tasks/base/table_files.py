"""Read table files with polars.

polars interprets `[`, `*` and `?` in paths as patterns, which fails for folders such as `beir[1]`.
These functions take paths literally. Other modules must not call polars' readers.
"""

from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from posir_tasks.base.files import iterate_lines, open_decompressed, read_decompressed, split_suffix
from posir_tasks.base.limits import MAX_BYTES, MAX_ROWS, describe_bytes
from posir_tasks.base.untrusted import (
    InputError,
    parse_json,
    parse_table,
    read_bytes,
    read_heading,
    require_distinct,
)
from posir_tasks.base.wording import sanitize

#: Column names of a table without headings. A single column gets the last name.
DEFAULT_COLUMNS = ("id", "text")
#: Maximum length of a heading with spaces.
MAX_HEADING = 64


def read_delimited(file: Path) -> pl.DataFrame:
    """Read comma-, semicolon- or tab-separated values, possibly compressed, as strings or null.

    A first line with an id or a sentence counts as a row of the columns id and text, as in the
    collection of MS MARCO.

    Raises:
        InputError: `parse_table` raises it, or a table without headings has more than two columns.
    """
    content = read_bytes(file)
    delimiter = _find_delimiter(file, read_heading(content))
    headings, numbered_rows = parse_table(content, file, delimiter=delimiter)
    rows = [cells for _, cells in numbered_rows]
    if _is_row(headings):
        rows = [headings, *rows]
        if len(headings) > len(DEFAULT_COLUMNS):
            first = sanitize(", ".join(headings))
            raise InputError(
                file, f"line 1: is a row ({first}); add a line with column names above it"
            )
        headings = [*DEFAULT_COLUMNS[-len(headings) :]]
    names = [heading or f"column {number}" for number, heading in enumerate(headings, start=1)]
    require_distinct(names, file)
    columns = {name: [row[index] or None for row in rows] for index, name in enumerate(names)}
    return pl.DataFrame(columns, schema=dict.fromkeys(names, pl.String))


def parse_columns(
    content: bytes, types: Mapping[str, type[pl.DataType]], separator: str
) -> pl.DataFrame | None:
    """Parse lines without headings and quotation marks. Return None unless each value has the type
    of its column.
    """
    if content.startswith(BOM_UTF8):
        # polars would remove the mark, which belongs to the first cell.
        return None
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


def parse_objects(
    content: bytes, types: Mapping[str, type[pl.DataType]], pattern: str
) -> pl.DataFrame | None:
    """Parse the fields in `types` of JSON Lines. Return None unless each line matches `pattern`.

    The pattern must exclude lines that polars reads differently from `parse_json`: polars converts
    types, and accepts repeated fields and some lone surrogates.
    """
    try:
        # JSON does not contain this separator.
        lines = parse_columns(content, {"line": pl.String}, "\x1f")
        if lines is None or not lines["line"].str.contains(pattern).all():
            return None
        return pl.read_ndjson(content, schema=dict(types))
    except pl.exceptions.PolarsError:
        return None


def read_headings(beginning: str, file: Path) -> list[str]:
    """Read headings from the beginning of a table file. Return [] if the first line is a row."""
    heading = read_heading(beginning.removeprefix("\ufeff").encode())
    headings, _ = parse_table(heading, file, delimiter=_find_delimiter(file, heading))
    return [] if _is_row(headings) else headings


def _find_delimiter(file: Path, heading: bytes) -> str:
    """Detect the delimiter of a table from its headings and its file suffix."""
    if split_suffix(file)[1] == ".tsv" and (b"\t" in heading or not set(b",;") & set(heading)):
        return "\t"
    return max(",;\t", key=lambda mark: heading.count(mark.encode()))


def _is_row(headings: Sequence[str]) -> bool:
    """Return True if the first line is a row: it begins with an id or contains a sentence."""
    is_numbered = (
        bool(headings)
        and headings[0].isdecimal()
        and not all(heading.isdecimal() for heading in headings)
    )
    return is_numbered or any(len(heading) > MAX_HEADING and " " in heading for heading in headings)


def read_json_rows(file: Path, limit: int | None = None) -> pl.DataFrame:
    """Read JSON objects from a list, or from up to `limit` lines, of a possibly compressed file."""
    with open_decompressed(file) as stream:
        is_list = stream.read(1) == b"["
    if is_list:
        content = read_decompressed(file)
        _check_keys([parse_json(content, file)], len(content), file)
        return pl.read_json(BytesIO(content), infer_schema_length=None)
    content = read_decompressed(file) if limit is None else _read_first_lines(file, limit)
    lines = enumerate(content.splitlines(), start=1)
    # `parse_json` rejects repeated fields, which polars accepts.
    rows = (parse_json(line, f"{file}: line {number}") for number, line in lines if line.strip())
    _check_keys(rows, len(content), file)
    return pl.read_ndjson(BytesIO(content), infer_schema_length=None)


def _read_first_lines(file: Path, limit: int) -> bytes:
    lines = list[bytes]()
    remaining = MAX_BYTES.read()
    with open_decompressed(file) as stream:
        for line in islice(iterate_lines(stream, file), limit):
            remaining -= len(line)
            if remaining < 0:
                raise MAX_BYTES.make_error(
                    file,
                    f"its first {limit:,} lines exceed {describe_bytes(MAX_BYTES.read())}",
                )
            lines.append(line)
    return b"".join(lines)


def _check_keys(values: Iterable[Any], size: int, file: Path) -> None:
    """Raise LimitError if a table with a row per object and a column per key, at any depth, would
    have too many cells.
    """
    keys = set[str]()
    rows = 0
    for value in values:
        rows += len(value) if isinstance(value, list) else 1
        stack = [value]
        while stack:
            item = stack.pop()
            if isinstance(item, dict):
                keys.update(item)
                stack += item.values()
            elif isinstance(item, list):
                stack += item
    limit = max(MAX_ROWS.read(), size)
    if rows * len(keys) > limit:
        problem = (
            f"has {rows:,} rows and {len(keys):,} different keys; the limit is {limit:,} cells"
        )
        raise MAX_ROWS.make_error(file, problem)
