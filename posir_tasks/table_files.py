"""Reading files of tables with polars.

The readers of polars take `[`, `*` and `?` in a path for a pattern, which a folder such as `beir[1]` does not match. Here every
path is literal, so no other module calls them.
"""

from contextlib import suppress
from io import BytesIO
from itertools import islice
from pathlib import Path

import polars as pl

from posir_tasks.files import iterate_lines, open_decompressed, read_decompressed
from posir_tasks.gate import GateError, check_columns, parse_json
from posir_tasks.limits import MAX_BYTES, MAX_ROWS, describe_bytes


def read_delimited(file: Path) -> pl.DataFrame:
    """Read comma-, semicolon- or tab-separated values, perhaps compressed, below a line of headings; every value is text."""
    content = read_decompressed(file)
    heading = content[: content.find(b"\n")]
    separator = max(",;\t", key=lambda mark: heading.count(mark.encode()))
    check_columns(heading.count(separator.encode()) + 1, file)
    return pl.read_csv(BytesIO(content), separator=separator, infer_schema_length=0)


def read_json_rows(file: Path, limit: int | None = None) -> pl.DataFrame:
    """Read JSON objects, one per line or in a list, which may be compressed; of lines, at most a number, for their columns."""
    with open_decompressed(file) as opened:
        is_list = opened.read(1) == b"["
    content = read_decompressed(file) if is_list or limit is None else _read_first_lines(file, limit)
    _check_keys(content, file, is_list=is_list)
    read = pl.read_json if is_list else pl.read_ndjson
    return read(BytesIO(content), infer_schema_length=None)


def _read_first_lines(file: Path, number: int) -> bytes:
    lines, left = list[bytes](), MAX_BYTES.read()
    with open_decompressed(file) as opened:
        for line in islice(iterate_lines(opened, file), number):
            left -= len(line)
            if left < 0:
                raise MAX_BYTES.refuse(file, f"has {number:,} lines of more than {describe_bytes(MAX_BYTES.read())}")
            lines.append(line)
    return b"".join(lines)


def _check_keys(content: bytes, file: Path, *, is_list: bool) -> None:
    """Raise LimitError if a table of all keys of all rows has too many cells: a row may have keys that no other has."""
    keys, rows = set[str](), 0
    parts = [content] if is_list else content.splitlines()
    for part in parts:
        # JSON that cannot be read is an error of polars, which says where.
        with suppress(GateError):
            value = parse_json(part, file)
            _collect_keys(value, keys)
            rows += len(value) if is_list else 1
    limit = max(MAX_ROWS.read(), len(content))
    if rows * len(keys) > limit:
        problem = f"has {rows:,} rows and {len(keys):,} different keys, and at most {limit:,} cells are read"
        raise MAX_ROWS.refuse(file, problem)


def _collect_keys(value: object, keys: set[str]) -> None:
    """Add the keys of a JSON value at any depth."""
    rest = [value]
    while rest:
        part = rest.pop()
        if isinstance(part, dict):
            keys.update(part)
            rest += part.values()
        elif isinstance(part, list):
            rest += part
