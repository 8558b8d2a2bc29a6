"""Texts of tables: JSON Lines, Parquet and CSV with a text per row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from posir_tasks.base.errors import DataError
from posir_tasks.base.limits import LimitError
from posir_tasks.base.table_files import read_delimited
from posir_tasks.base.untrusted import GateError, parse_json
from posir_tasks.base.wording import sanitized
from posir_tasks.data.checks import read_column_types, read_table
from posir_tasks.data.formats.passages import Item, Passage, ReadOptions, SkippedText
from posir_tasks.data.formats.records import read_lines

#: Columns that may hold the text, in order of preference.
TEXT_COLUMNS = ("text", "content", "contents", "body", "document", "passage")
ID_COLUMNS = ("_id", "id")


def read_csv_texts(file: Path, options: ReadOptions) -> Iterator[Item]:
    """Yield the text of every row of a table of values between separators."""
    frame = read_delimited(file)
    # A column of numbers has no text.
    numbers = frame.cast(pl.Float64, strict=False)
    columns = {
        name: numbers[name].null_count() > frame[name].null_count() for name in frame.columns
    }
    yield from _read_table(columns, frame.iter_rows(named=True), options.name(file), options)


def read_parquet_texts(file: Path, options: ReadOptions) -> Iterator[Item]:
    """Yield the text of every row of a Parquet file."""
    name = options.name(file)
    try:
        columns = {key: kind == pl.String for key, kind in read_column_types(file).items()}
        names = {find_text_column(columns, options), *_list_id_columns(options)}
        frame = read_table(file, [key for key in columns if key in names])
    except LimitError:
        raise
    except DataError as error:
        yield SkippedText(name, "not Parquet", str(error), name)
        return
    yield from _read_table(columns, frame.iter_rows(named=True), name, options)


def _read_table(
    columns: Mapping[str, bool], rows: Iterable[dict[str, Any]], name: str, options: ReadOptions
) -> Iterator[Item]:
    column = find_text_column(columns, options)
    if column is None:
        yield _miss_text(name, name, columns)
        return
    chosen = replace(options, column=column)
    for number, row in enumerate(rows, start=1):
        filled = row | {column: row[column] or ""}
        yield read_text_row(filled, name, f"row {number}", f"{name}:{number}", chosen)


def read_line_texts(file: Path, options: ReadOptions) -> Iterator[Item]:
    """Yield the text of every line of JSON Lines."""
    name = options.name(file)
    for number, line in read_lines(file, f"{name}:"):
        if isinstance(line, SkippedText):
            yield line
            continue
        place = f"{name}:{number}"
        try:
            row = parse_json(line, place)
        except GateError as error:
            yield SkippedText(place, "not a JSON object", error.problem, name)
            continue
        yield read_text_row(row, name, f"line {number}", place, options)


def read_text_row(row: object, file: str, where: str, name: str, options: ReadOptions) -> Item:
    """Return the text of a row at a place of a file, or why it has none; `name` is that of the
    row.
    """
    if not isinstance(row, Mapping):
        return SkippedText(name, "not a JSON object", file=file)
    textual = {key: isinstance(value, str) for key, value in row.items()}
    column = find_text_column(textual, options)
    if column is None:
        return _miss_text(name, file, row)
    ids = (row.get(key) for key in _list_id_columns(options))
    identifier = next((value for value in ids if value not in (None, "")), None)
    if not isinstance(identifier, str | int | None):
        return SkippedText(name, "with an id that is neither text nor an integer", file=file)
    text = str(row[column]).encode("utf-8", "replace").decode()
    if not text.strip():
        return SkippedText(name, "empty", file=file)
    return Passage(file, where, text, id=None if identifier is None else str(identifier))


def _miss_text(name: str, file: str, columns: Iterable[object]) -> SkippedText:
    listed = sanitized(", ".join(map(str, columns)), 300)
    detail = f"it has {listed}; name one with --column, or text_field in `posir build`"
    return SkippedText(name, "without a text column", detail, file)


def _list_id_columns(options: ReadOptions) -> tuple[str, ...]:
    return (options.id_column,) if options.id_column else ID_COLUMNS


def find_text_column(columns: Mapping[str, bool], options: ReadOptions) -> str | None:
    """Return the column with the text, given which columns hold text; None if there is none or it
    is not clear.
    """
    ids = _list_id_columns(options)
    textual = [name for name, is_text in columns.items() if is_text and name not in ids]
    if options.column is not None:
        return options.column if options.column in textual else None
    for name in TEXT_COLUMNS:
        if name in textual:
            return name
    return textual[0] if len(textual) == 1 else None
