"""Data frames, CSV and JSON of records."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from posir_tasks.base.records import Fields, Record
from posir_tasks.base.secrets import redact_collected
from posir_tasks.base.wording import escape_controls
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.scores import flatten, serialize_estimate

if TYPE_CHECKING:
    import polars as pl

#: A cell that spreadsheets run as a formula: it begins with an operator, possibly full-width, or
#: with white space, which spreadsheets trim. Signed numbers do not match.
FORMULA = re.compile(
    r"(?![-+](?:\d*\.)?\d+(?:[eE][-+]?\d+)?$)[=+@\t\r\n\-\uff1d\uff0b\uff20\uff0d]"
)


def build_frame(records: Iterable[Any]) -> pl.DataFrame:
    """Build a data frame from dataclasses or mappings, unrounded. Estimates become three columns,
    missing fields null.
    """
    # Importing polars takes longer than printing a table.
    import polars as pl

    rows: list[Record] = []
    for record in records:
        row: Record = {}
        for key, value in _get_fields(record).items():
            row |= flatten(key, value)
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def to_csv(records: Iterable[Any]) -> str:
    """Convert dataclasses or mappings to CSV with the columns of `build_frame`."""
    frame = build_frame(records)
    return format_csv(frame.columns, frame.iter_rows(), "\n") if frame.columns else "\n"


#: Types of cells that CSV shows as they are, except NaN.
PLAIN_CELLS = frozenset({float, int, type(None)})


def format_csv(headings: Iterable[str], rows: Iterable[Iterable[Any]], end: str = "\r\n") -> str:
    """Format headings and rows as CSV that is safe to open in a spreadsheet.

    Cells that spreadsheets run as formulas are prefixed with an apostrophe, and control characters
    are escaped. Numbers are not rounded. None becomes an empty cell, booleans `true` and `false`.
    """
    # Names of models and tasks repeat.
    escape = lru_cache(_escape_csv)

    def format_cell(cell: Any) -> Any:
        if isinstance(cell, str):
            return escape(cell)
        if isinstance(cell, bool):
            return str(cell).lower()
        return "NaN" if cell != cell else cell

    text = io.StringIO()
    writer = csv.writer(text, lineterminator=end)
    writer.writerows(
        # Most cells are numbers, which need no call.
        [cell if type(cell) in PLAIN_CELLS and cell == cell else format_cell(cell) for cell in row]
        for row in (headings, *rows)
    )
    return text.getvalue()


def _escape_csv(cell: str) -> str:
    return f"'{escape_controls(cell)}" if FORMULA.match(cell) else escape_controls(cell)


def to_json(document: object) -> str:
    """Convert a value, which may contain dataclasses, to indented, unrounded JSON. An estimate `x`
    becomes `x` and `x_interval`.
    """
    return redact_collected(json.dumps(_to_plain_json(document), indent=2)).replace(
        "\x7f", "\\u007f"
    )


def _get_fields(value: Any) -> Fields:
    """Return the fields of a dataclass or the items of a mapping."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return cast("Fields", value)


def _to_plain_json(value: Any) -> Any:
    if isinstance(value, Mapping) or (is_dataclass(value) and not isinstance(value, type)):
        plain: Record = {}
        for key, field in _get_fields(value).items():
            if isinstance(field, Estimate):
                plain |= serialize_estimate(key, field)
            else:
                plain[key] = _to_plain_json(field)
        return plain
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return [_to_plain_json(item) for item in value] if is_list else value
