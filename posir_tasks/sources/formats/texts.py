"""Readers of texts without questions (text files, JSON Lines, Parquet with a column of text), and decoding of any text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from posir_tasks.compressed_files import open_decompressed, read_decompressed
from posir_tasks.display.progress import track_reading
from posir_tasks.gate import GateError, decode, find_encoding, parse_json
from posir_tasks.sources.formats.passages import Passage, ReadOptions, SkippedText
from posir_tasks.table_files import scan_parquet

#: Bytes of a file in which a zero byte marks it as binary.
BINARY_BYTES = 8192
NOT_UTF8 = "not UTF-8"


def is_binary(content: bytes) -> bool:
    """Return whether the beginning of a file has a zero byte and is not UTF-16."""
    return find_encoding(content) != "utf-16" and b"\0" in content[:BINARY_BYTES]


def describe_bad_byte(error: UnicodeDecodeError, offset: int = 0) -> str:
    """Return what is not UTF-8: `byte 0xf6 at 17`, counted from 0 in the file, of which `offset` bytes come before."""
    return f"byte 0x{error.object[error.start]:02x} at {offset + error.start:,}"


def read_lines(file: Path) -> Iterator[tuple[int, str | UnicodeDecodeError, int]]:
    """Yield the number from 1, the text or what is wrong with it, and the first byte of each line of a file.

    A line that cannot be decoded does not keep the others from being read.

    Raises:
        OSError: The file cannot be read. `GZIP_ERRORS`: It is not a complete compressed file.
    """
    with open_decompressed(file) as raw:
        is_wide = find_encoding(raw.read(4)) == "utf-16"
    if is_wide:
        yield from ((number, line, 0) for number, line in enumerate(decode(read_decompressed(file)).split("\n"), start=1))
        return
    offset = 0
    for number, line in enumerate(track_reading(file), start=1):
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8"), offset
        except UnicodeDecodeError as error:
            yield number, error, offset
        offset += len(line)


#: Columns that may hold the text, in order of preference.
TEXT_COLUMNS = ("text", "content", "contents", "body", "document", "passage")
ID_COLUMNS = ("_id", "id")
PLAIN_TEXT, JSON_LINES, PARQUET = (".txt", ".md", ".markdown", ".text"), (".jsonl", ".ndjson", ".json"), (".parquet",)


def read_text_file(file: Path, name: str, options: ReadOptions) -> Iterator[Passage | SkippedText]:  # noqa: ARG001
    """Yield the text of a file, or why it has none; its id is its name without the suffix."""
    content = read_decompressed(file)
    if is_binary(content):
        yield SkippedText(name, "binary")
        return
    try:
        text = decode(content)
    except UnicodeDecodeError as error:
        yield SkippedText(name, NOT_UTF8, describe_bad_byte(error))
        return
    yield Passage(name, "", text, id=Path(name).with_suffix("").as_posix()) if text.strip() else SkippedText(name, "empty")


def read_text_lines(file: Path, name: str, options: ReadOptions) -> Iterator[Passage | SkippedText]:
    """Yield the text of every line of JSON Lines, or why it has none."""
    for number, line, offset in read_lines(file):
        place = f"{name}:{number}"
        if isinstance(line, UnicodeDecodeError):
            yield SkippedText(place, NOT_UTF8, describe_bad_byte(line, offset))
        elif line.strip():
            try:
                row = parse_json(line, place)
            except GateError:
                row = None
            yield read_text_row(row, name, f"line {number}", place, options)


def read_text_rows(file: Path, name: str, options: ReadOptions) -> Iterator[Passage | SkippedText]:
    """Yield the text of every row of a Parquet file, or why it has none."""
    try:
        table = scan_parquet(file)
        schema = table.collect_schema()
        field = find_text_column({key: kind == pl.String for key, kind in schema.items()}, options)
        if field is None:
            yield SkippedText(
                name,
                "without a text column",
                f"it has {', '.join(schema)}; name one with --column, or text_field in `posir build`",
            )
            return
        identifiers = [key for key in _id_columns(options) if key in schema]
        frame = table.select(*identifiers, field).collect()
    except (OSError, pl.exceptions.PolarsError):
        yield SkippedText(name, "not Parquet")
        return
    for number, row in enumerate(frame.iter_rows(named=True), start=1):
        yield read_text_row(row, name, f"row {number}", f"{name}:{number}", options)


def read_text_row(row: object, file: str, where: str, name: str, options: ReadOptions) -> Passage | SkippedText:
    """Return the text of a row, or why it has none.

    Args:
        row: Values by column.
        file: Name of the file, for messages.
        where: Place of the row in the file.
        name: File and number of the row.
        options: Columns of text and id.
    """
    if not isinstance(row, Mapping):
        return SkippedText(name, "not a JSON object")
    field = find_text_column({key: isinstance(value, str) for key, value in row.items()}, options)
    if field is None:
        return SkippedText(
            name,
            "without a text column",
            f"it has {', '.join(map(str, row))}; name one with --column, or text_field in `posir build`",
        )
    identifier = next((row[key] for key in _id_columns(options) if row.get(key) not in (None, "")), None)
    if not isinstance(identifier, str | int | None):
        return SkippedText(name, "with an id that is neither text nor an integer")
    text = str(row[field]).encode("utf-8", "replace").decode()
    own = None if identifier is None else str(identifier)
    return Passage(file, where, text, id=own) if text.strip() else SkippedText(name, "empty")


def _id_columns(options: ReadOptions) -> tuple[str, ...]:
    return (options.id_column,) if options.id_column else ID_COLUMNS


def find_text_column(columns: Mapping[str, bool], options: ReadOptions) -> str | None:
    """Return the column with the text; None if there is none or it is not clear.

    Args:
        columns: Names, and whether the column holds text.
        options: The column that the user names.
    """
    textual = [name for name, is_text in columns.items() if is_text and name not in _id_columns(options)]
    if options.column is not None:
        return options.column if options.column in textual else None
    preferred = [name for name in TEXT_COLUMNS if name in textual]
    return preferred[0] if preferred else textual[0] if len(textual) == 1 else None
