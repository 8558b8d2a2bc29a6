"""Readers for JSON Lines, Parquet and CSV files with a text per row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import polars as pl

from posir_tasks.base.table_files import read_delimited
from posir_tasks.base.untrusted import InputError, parse_json
from posir_tasks.base.wording import sanitize
from posir_tasks.data.checks import read_column_types, read_table
from posir_tasks.data.formats.passages import (
    Item,
    Items,
    Passage,
    ReadOptions,
    SkippedItem,
    read_text,
)
from posir_tasks.data.formats.records import read_lines

#: Text columns in order of preference.
TEXT_COLUMNS = ("text", "content", "contents", "body", "document", "passage")
ID_COLUMNS = ("_id", "id")


def read_csv_texts(file: Path, options: ReadOptions) -> Items:
    """Yield the text of each row in a CSV or TSV file."""
    frame = read_delimited(file)
    # A column of numbers is not a text column.
    numeric = frame.cast(pl.Float64, strict=False)
    text_columns = [
        name for name in frame.columns if numeric[name].null_count() > frame[name].null_count()
    ]
    yield from _read_frame(frame, frame.columns, text_columns, options.name(file), options)


def read_parquet_texts(file: Path, options: ReadOptions) -> Items:
    """Yield the text of each row in a Parquet file."""
    types = read_column_types(file)
    text_columns = [column for column, kind in types.items() if kind == pl.String]
    names = {find_text_column(text_columns, options), *_list_id_columns(options)}
    frame = read_table(file, [column for column in types if column in names])
    yield from _read_frame(frame, types, text_columns, options.name(file), options)


def _read_frame(
    frame: pl.DataFrame,
    columns: Iterable[str],
    text_columns: list[str],
    name: str,
    options: ReadOptions,
) -> Items:
    column = find_text_column(text_columns, options)
    if column is None:
        yield _skip_without_text(name, name, columns)
        return
    row_options = replace(options, column=column)
    rows = frame.with_columns(pl.col(column).fill_null("")).iter_rows(named=True)
    for number, row in enumerate(rows, start=1):
        yield read_text_row(row, name, f"row {number}", f"{name}:{number}", row_options)


def read_line_texts(file: Path, options: ReadOptions) -> Items:
    """Yield the text of each line in a JSON Lines file."""
    name = options.name(file)
    for number, line in read_lines(file, f"{name}:"):
        if isinstance(line, SkippedItem):
            yield line
            continue
        location = f"{name}:{number}"
        try:
            row = parse_json(line, location)
        except InputError as error:
            yield SkippedItem(location, "not a JSON object", error.problem, name)
            continue
        yield read_text_row(row, name, f"line {number}", location, options)


def read_text_row(row: object, file: str, location: str, name: str, options: ReadOptions) -> Item:
    """Return the text of a row as a document, or a skipped item.

    Args:
        row: An object. Other values are skipped.
        file: Name of the file.
        location: Location of the row in the file.
        name: Name of the row for messages.
        options: The text and id columns.
    """
    if not isinstance(row, Mapping):
        return SkippedItem(name, "not a JSON object", file=file)
    text_columns = [key for key, value in row.items() if isinstance(value, str)]
    column = find_text_column(text_columns, options)
    if column is None:
        return _skip_without_text(name, file, row)
    ids = (row.get(key) for key in _list_id_columns(options))
    identifier = next((value for value in ids if value not in (None, "")), None)
    if not isinstance(identifier, str | int | None):
        return SkippedItem(name, "with an id that is neither text nor an integer", file=file)
    text = str(row[column]).encode("utf-8", "replace").decode()
    item = read_text(file, location, text, name)
    if isinstance(item, Passage):
        return replace(item, id=None if identifier is None else str(identifier))
    return item


def _skip_without_text(name: str, file: str, columns: Iterable[object]) -> SkippedItem:
    names = sanitize(", ".join(map(str, columns)), 300)
    detail = f"it has {names}; choose one with --column, or text_field in `posir build`"
    return SkippedItem(name, "without a text column", detail, file)


def _list_id_columns(options: ReadOptions) -> tuple[str, ...]:
    return (options.id_column,) if options.id_column else ID_COLUMNS


def find_text_column(text_columns: Iterable[str], options: ReadOptions) -> str | None:
    """Choose the text column among the string columns; None if it is missing or ambiguous."""
    ids = _list_id_columns(options)
    columns = [name for name in text_columns if name not in ids]
    if options.column is None and len(columns) == 1:
        return columns[0]
    names = TEXT_COLUMNS if options.column is None else [options.column]
    return next((name for name in names if name in columns), None)
