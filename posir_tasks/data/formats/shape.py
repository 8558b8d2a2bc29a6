"""Find the field or column names of a file at any depth, and its first record."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import polars as pl

from posir_tasks.base.errors import DataError
from posir_tasks.base.files import GZIP_ERRORS, split_suffix
from posir_tasks.base.table_files import read_delimited, read_headings
from posir_tasks.base.wording import sanitize
from posir_tasks.data.checks import iterate_rows, read_column_types
from posir_tasks.data.formats.records import PARQUET, read_head

JSON_LINES = (".jsonl", ".ndjson", ".json")
TABLES = (".csv", ".tsv")
#: Maximum number of bytes to scan for fields.
MAX_HEAD_BYTES = 2**18
#: Maximum number of characters of a record in a message.
MAX_RECORD_CHARACTERS = 300
#: Suffix of a field name whose value must be an object or a list.
NESTED = "/"
#: A possibly truncated string with the colon and opening bracket after it, if any; or a bracket.
TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)(?:"|\\?\Z)(?:\s*(:)\s*([\[{]?))?|[\[\]{}]', re.DOTALL)

#: Field names, outer fields first. Values are True for objects and lists.
Shape: TypeAlias = Mapping[str, bool]


def list_fields(file: Path) -> Shape:
    """Return the fields at the start of JSON, or the columns of a table; empty on failure."""
    with suppress(OSError):
        state = file.stat()
        return _list_fields(file, state.st_size, state.st_mtime_ns)
    return {}


@lru_cache(maxsize=64)
def _list_fields(file: Path, size: int, modified: int) -> Shape:  # noqa: ARG001
    suffix = split_suffix(file)[1]
    shape = {}
    # Reading the rows will raise the error.
    with suppress(DataError, OSError, UnicodeDecodeError, *GZIP_ERRORS):
        if suffix in PARQUET:
            columns = read_column_types(file)
            shape = {name: kind.is_nested() for name, kind in columns.items()}
            for kind in columns.values():
                _add_fields(shape, kind)
        elif suffix in TABLES:
            shape = dict.fromkeys(read_headings(read_head(file, MAX_HEAD_BYTES), file), False)
        elif suffix in JSON_LINES:
            shape = _scan_json(read_head(file, MAX_HEAD_BYTES))
    return MappingProxyType(shape)


def _add_fields(shape: dict[str, bool], kind: Any) -> None:
    if isinstance(kind, pl.List | pl.Array):
        _add_fields(shape, kind.inner)
    elif isinstance(kind, pl.Struct):
        for field in kind.fields:
            shape.setdefault(field.name, field.dtype.is_nested())
            _add_fields(shape, field.dtype)


def _scan_json(text: str) -> dict[str, bool]:
    """Return the keys of possibly truncated JSON, sorted by depth."""
    depths: dict[str, int] = {}
    is_nested: dict[str, bool] = {}
    depth = 0
    for match in TOKEN.finditer(text):
        string, colon, bracket = match.groups()
        if string is None:
            depth += 1 if match[0] in "[{" else -1
            continue
        if colon:
            depths[string] = min(depth, depths.get(string, depth))
            is_nested[string] = bool(bracket) or is_nested.get(string, False)
        depth += bool(bracket)
    return {name: is_nested[name] for name in sorted(depths, key=depths.__getitem__)}


def matches_signature(shape: Shape, signature: str) -> bool:
    """Return True if a file has all fields of any layout in a signature."""
    names = {*shape} | {name + NESTED for name, is_nested in shape.items() if is_nested}
    return any(names.issuperset(group.split()) for group in signature.split("|"))


def read_first_record(file: Path) -> str:
    """Return the first row or line of a file, shortened; "" if the file is unreadable."""
    suffix = split_suffix(file)[1]
    with suppress(DataError, OSError, UnicodeDecodeError, *GZIP_ERRORS):
        if suffix in PARQUET:
            return sanitize(next(iterate_rows(file), {}), MAX_RECORD_CHARACTERS)
        if suffix in TABLES:
            row = next(islice(read_delimited(file).iter_rows(named=True), 1), {})
            return sanitize(row, MAX_RECORD_CHARACTERS)
        lines = read_head(file, MAX_HEAD_BYTES).split("\n")
        first = next((line for line in lines if line.strip()), "").strip()
        if suffix in JSON_LINES and len(first) < 2:  # only a bracket
            first = " ".join(map(str.strip, lines))
        return sanitize(first, MAX_RECORD_CHARACTERS)
    return ""
