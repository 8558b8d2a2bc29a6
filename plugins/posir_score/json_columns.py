"""Parse regular JSON Lines of a run into columns.

polars reads JSON less strictly than `parse_json`: it converts types, accepts repeated fields, long
integers and objects over several lines, and replaces some lone surrogates. Only lines that match a
pattern, for which both parsers give the same values, are read with polars.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping, Sequence

import polars as pl

from posir_score.columns import COLUMN_TYPES, RunColumns
from posir_score.hits import MAX_RANK_DIGITS
from posir_score.ranking_builder import list_kinds
from posir_tasks.base.table_files import parse_objects
from posir_tasks.base.untrusted import InputError, parse_json

SPACE = r"[ \t\r]*"
#: An integer that fits into 64 bits and has at most `MAX_RANK_DIGITS` digits.
INTEGER = f"(?:0|-?[1-9][0-9]{{0,{MAX_RANK_DIGITS - 1}}})"
FLOAT = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)"
NUMBER = f"(?:{INTEGER}|{FLOAT})"
CHARACTER = r'[^"\\\x00-\x1f]|\\["\\/bfnrt]'
STRING = rf'"(?:{CHARACTER}|\\u[0-9a-fA-F]{{4}})*"'
#: A string without escaped surrogates.
ID = rf'"(?:{CHARACTER}|\\u(?:[dD][0-7]|[0-9a-cA-CeEfF][0-9a-fA-F])[0-9a-fA-F]{{2}})*"'
SCALAR = f"(?:{STRING}|{NUMBER}|true|false|null)"
#: Patterns by kind of value.
PATTERNS = {"score": NUMBER, "rank": INTEGER}
#: Ids that `read_id` accepts.
VALID_ID = r"^[^\x00]+$"


def parse_json_lines(content: bytes) -> RunColumns | None:
    """Parse JSON Lines. Return None unless all lines have the fields of the first line, in the same
    order and of the same types, with scalar values, integer ranks and finite scores.
    """
    content = content.removeprefix(codecs.BOM_UTF8)
    if content.endswith((b"\n\n", b"\r\n")):
        content = content.rstrip(b"\r\n")
    first_line, _, _ = content.partition(b"\n")
    try:
        fields = parse_json(first_line, "line 1")
    except InputError:
        return None
    kinds = list_kinds([*fields]) if isinstance(fields, dict) else []
    if not kinds:
        return None
    names = {kind: name for name, kind in zip(fields, kinds, strict=True) if kind in COLUMN_TYPES}
    types = {name: _choose_type(kind, fields[name]) for kind, name in names.items()}
    lines = parse_objects(content, types, _build_pattern(fields, kinds))
    if lines is None:
        return None
    lines = lines.select(pl.col(name).alias(kind) for kind, name in names.items())
    ids = pl.col("query", "document").cast(pl.String).cast(pl.Categorical)
    return RunColumns.from_lines(lines.with_columns(ids), VALID_ID)


def _choose_type(kind: str, first: object) -> type[pl.DataType]:
    """Return the type of a field, given the first value."""
    if kind == "score":
        return pl.Float64
    return pl.String if isinstance(first, str) else pl.Int64


def _build_pattern(fields: Mapping[str, object], kinds: Sequence[str]) -> str:
    """Build the pattern of lines with the same fields as the first line."""
    members = []
    for (name, value), kind in zip(fields.items(), kinds, strict=True):
        pattern = PATTERNS.get(kind, SCALAR)
        if kind in ("query", "document"):
            pattern = ID if isinstance(value, str) else INTEGER
        members.append(f"{pl.escape_regex(json.dumps(name))}{SPACE}:{SPACE}{pattern}")
    separator = f"{SPACE},{SPACE}"
    return rf"^{SPACE}\{{{SPACE}{separator.join(members)}{SPACE}\}}{SPACE}$"
