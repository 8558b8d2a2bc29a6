"""Parse untrusted JSON, CSV and YAML strictly: files, downloads and server responses.

Standard parsers silently turn damaged files into wrong numbers: the last of repeated keys wins, the
last cells of a truncated row are missing, `1e999` is infinite. These functions raise `InputError`
instead. They also raise it for input that would exhaust memory or the stack.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from posir_tasks.base.errors import InputError as InputError
from posir_tasks.base.files import GZIP_ERRORS, read_decompressed
from posir_tasks.base.limits import check_size, check_values
from posir_tasks.base.quotation import (
    TAB,
    Row,
    find_swallowed_row,
    is_regular,
    remove_marks,
    split_literally,
)
from posir_tasks.base.records import Record
from posir_tasks.base.wording import sanitize

if TYPE_CHECKING:
    import yaml

#: Maximum size of a YAML file in bytes. Parsing is slow, and settings take a few thousand bytes.
MAX_YAML_BYTES = 2**20
#: Maximum nesting of lists and objects. The deepest format, mteb's results, has 8 levels.
MAX_DEPTH = 64
#: Maximum absolute value of integers. Ids have at most 64 bits.
MAX_INTEGER = 2**64
#: Maximum length of a number in YAML, since parsing takes quadratic time.
MAX_DIGITS = 400
#: Maximum number of columns of a table.
MAX_COLUMNS = 10_000
#: Maximum length of a table cell in characters. A cell may contain a document.
MAX_CELL = 2**24
#: Maximum number of values in a YAML file after aliases are expanded.
MAX_YAML_VALUES = 100_000
NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

Value = TypeVar("Value", bound=Hashable)


def parse_json(
    data: str | bytes, name: object, *, max_bytes: int | None = None, nan_prefix: str | None = None
) -> Any:
    """Parse a JSON document.

    Args:
        data: The document. Bytes are UTF-8, or UTF-16 with a byte-order mark.
        name: The source, for messages: a file, a line, a URL.
        max_bytes: Maximum number of bytes or characters; defaults to `POSIR_MAX_BYTES`.
        nan_prefix: Prefix of keys whose values may be NaN, such as mteb's `nauc_` scores.

    Raises:
        InputError: The document is too large, nested too deeply, not JSON or in another encoding;
            an object repeats a key; a number is NaN, infinite or an integer beyond 64 bits.
    """
    check_size(name, len(data), max_bytes)
    check_values(name, data)
    with _explain_json_errors(name):
        value = _DECODER.decode(
            decode(data) if isinstance(data, bytes) else data.removeprefix("\ufeff")
        )
    _check_values(value, name, nan_prefix)
    return value


def parse_json_at(text: str, start: int, name: object) -> tuple[Any, int]:
    """Parse a JSON document within a text like `parse_json`. Return the value and its end index."""
    with _explain_json_errors(name):
        value, end = _DECODER.raw_decode(text, start)
    _check_values(value, name, None)
    return value, end


@contextmanager
def _explain_json_errors(name: object) -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise InputError(name, f"is nested more than {MAX_DEPTH} deep") from None
    except ValueError as error:
        reason = f"{type(error).__name__}: {sanitize(str(error), 200)}"
        raise InputError(name, f"is not readable JSON in UTF-8 ({reason})") from error


def read_json(file: Path, *, max_bytes: int | None = None, nan_prefix: str | None = None) -> Any:
    """Read a JSON file, possibly compressed; see `parse_json`."""
    return parse_json(read_bytes(file, max_bytes), file, max_bytes=max_bytes, nan_prefix=nan_prefix)


def parse_table(
    data: str | bytes, name: object, *, delimiter: str = ","
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Parse a table of delimited cells into headings and rows.

    Blank lines and empty cells to the right of the last heading, which spreadsheets write, are
    removed. Quotation marks follow CSV rules, or `posir_tasks.base.quotation` in tab-separated
    tables.

    Returns:
        The headings, and the number of the last line and the cells of each row.

    Raises:
        InputError: The table is too large, is not UTF-8, contains a zero byte, repeats a heading,
            or has an unclosed quotation mark or a row with more or fewer cells than headings.
    """
    check_size(name, len(data))
    try:
        text = decode(data) if isinstance(data, bytes) else data.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise InputError(name, f"is not UTF-8 ({error})") from error
    if "\0" in text:
        line = text.partition("\0")[0].count("\n") + 1
        raise InputError(name, f"line {line}: contains a zero byte, so it is not a text table")
    lines = _read_rows(text, name, delimiter)
    headings = [heading.strip() for heading in lines[0][1]] if lines else []
    check_columns(len(headings), name)
    require_distinct(headings, name)
    rows = []
    for number, cells in lines[1:]:
        while len(cells) > len(headings) and not cells[-1].strip():
            cells.pop()
        if len(cells) != len(headings):
            names = sanitize(", ".join(headings))
            raise InputError(
                name,
                f"line {number}: has {len(cells)} cells; the headings are {len(headings)}: {names}",
            )
        rows.append((number, cells))
    return headings, rows


def require_distinct(columns: Iterable[object], name: object) -> None:
    """Raise InputError if two columns have the same name. Unnamed columns are allowed."""
    duplicate = find_repeated(str(column) for column in columns if column not in (None, ""))
    if duplicate is not None:
        raise InputError(
            name, f"the column '{sanitize(str(duplicate))}' occurs twice; remove one of them"
        )


def read_heading(content: bytes) -> bytes:
    """Return the first non-blank line of a table."""
    first = re.search(rb"[^\r\n]+", content)
    return first[0] if first else b""


def read_csv_rows(file: Path, columns: Sequence[str], expected: str) -> list[dict[str, str]]:
    """Read columns of a CSV file as stripped strings. The delimiter is a comma or a semicolon.

    Args:
        file: The file, in UTF-8.
        columns: Required columns. Other columns are ignored.
        expected: Description of the file for the message, such as `a file with the columns
            model,score`.

    Returns:
        The rows, as cells by column.

    Raises:
        InputError: The file cannot be read, or a column is missing.
    """
    try:
        content = read_bytes(file)
        heading = read_heading(content)
        delimiter = ";" if heading.count(b";") >= max(1, len(columns) - 1) else ","
        headings, rows = parse_table(content, file, delimiter=delimiter)
        missing_columns = [column for column in columns if column not in headings]
        if missing_columns:
            raise InputError(file, f"no column {', '.join(missing_columns)}")
    except InputError as error:
        raise InputError(file, f"{error.problem}. Expected {expected}.") from error
    indices = {column: headings.index(column) for column in columns}
    return [
        {column: cells[index].strip() for column, index in indices.items()} for _, cells in rows
    ]


def parse_yaml(data: str | bytes, name: object) -> Any:
    """Parse a YAML document of plain values.

    Raises:
        InputError: The document is too large, nested too deeply, not UTF-8 or not YAML; a mapping
            repeats a key; aliases are recursive or expand too much; a number is NaN, infinite or an
            integer beyond 64 bits.
    """
    # The import is slow.
    import yaml

    check_size(name, len(data), MAX_YAML_BYTES)
    try:
        # The C loader is ten times as fast, but some builds of PyYAML do not include it.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(
            decode(data) if isinstance(data, bytes) else data
        )
        node: yaml.Node | None = loader.get_single_node()
        _check_nodes(node, name)
        value = None if node is None else loader.construct_document(node)
    except RecursionError:
        raise InputError(name, f"is nested more than {MAX_DEPTH} deep") from None
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, AttributeError) as error:
        raise InputError(
            name, f"is not readable YAML in UTF-8 ({sanitize(' '.join(str(error).split()), 300)})"
        ) from error
    _check_values(value, name, None)
    return value


def read_yaml(file: Path) -> Any:
    """Read a YAML file; see `parse_yaml`."""
    return parse_yaml(read_bytes(file, MAX_YAML_BYTES), file)


def read_bytes(file: Path, max_bytes: int | None = None) -> bytes:
    """Read a file, and decompress it if the name ends in `.gz`. Raise InputError if it is damaged,
    unreadable or larger than `max_bytes`.
    """
    try:
        return read_decompressed(file, max_bytes)
    except FileNotFoundError:
        raise InputError(file, "no such file") from None
    except (OSError, *GZIP_ERRORS) as error:
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise InputError(file, f"cannot be read ({sanitize(reason, 200)})") from error


def check_columns(column_count: int, name: object) -> None:
    """Raise InputError if a table has too many columns."""
    if column_count > MAX_COLUMNS:
        raise InputError(name, f"has {column_count:,} columns; the limit is {MAX_COLUMNS:,}")


def find_repeated(values: Iterable[Value]) -> Value | None:
    """Find the first value that occurs a second time, or return None."""
    earlier = set[Value]()
    for value in values:
        if value in earlier:
            return value
        earlier.add(value)
    return None


def find_encoding(content: bytes) -> str:
    """Return the encoding of the byte-order mark, or UTF-8 without a mark."""
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if content.startswith(mark):
            return encoding
    return "utf-8"


def decode(content: bytes) -> str:
    """Decode UTF-8, or UTF-16 with a byte-order mark. Raise UnicodeDecodeError for other bytes."""
    return content.decode(find_encoding(content))


def _build_object(pairs: list[tuple[str, Any]]) -> Record:
    members = dict(pairs)
    if len(members) < len(pairs):
        duplicate = find_repeated(key for key, _ in pairs)
        raise ValueError(f"the key '{sanitize(duplicate)}' occurs twice in one object")
    return members


_DECODER = json.JSONDecoder(object_pairs_hook=_build_object)


def _check_values(value: object, name: object, nan_prefix: str | None) -> None:
    """Raise InputError if values are nested too deeply or a number is invalid."""
    level: list[Any] = [[value]]
    # Check level by level, which is fast. Only invalid documents are searched for the path.
    for _ in range(MAX_DEPTH):
        items = [
            item
            for container in level
            for item in (container.values() if type(container) is dict else container)
            if type(item) is not str
        ]
        numbers = [item for item in items if type(item) is int or type(item) is float]
        # The comparison is false for NaN and infinity.
        if not all(-MAX_INTEGER <= number <= MAX_INTEGER for number in numbers):
            break
        level = [item for item in items if type(item) is list or type(item) is dict]
        if not level:
            return
    _raise_for_invalid_value(value, name, nan_prefix)


def _raise_for_invalid_value(
    value: object, name: object, nan_prefix: str | None, path: tuple[object, ...] = ()
) -> None:
    field = str(path[-1]) if path else ""
    problem = ""
    items: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict | list):
        if len(path) > MAX_DEPTH:
            raise InputError(name, f"is nested more than {MAX_DEPTH} deep")
        items = value.items() if isinstance(value, dict) else enumerate(value)
    elif isinstance(value, float) and not math.isfinite(value):
        if not (math.isnan(value) and nan_prefix and field.startswith(nan_prefix)):
            problem = f"is {value}; numbers must be finite"
    elif isinstance(value, int) and abs(value) > MAX_INTEGER:
        problem = "an integer beyond 64 bits"
    if problem:
        location = sanitize(".".join(map(str, path)), 200)
        error = InputError(name, f"field '{location}': {problem}")
        error.is_not_finite = isinstance(value, float)
        raise error
    for key, item in items:
        _raise_for_invalid_value(item, name, nan_prefix, (*path, key))


def _read_rows(text: str, name: object, delimiter: str) -> Sequence[Row]:
    """Split a table into non-blank rows. In tab-separated tables, the content decides if quotation
    marks are literal.
    """
    if delimiter == TAB:
        literal = split_literally(text, delimiter)
        if is_regular(literal) and len(literal[0][1] if literal else ()) != 1:
            return remove_marks(literal)
        try:
            rows = _split_cells(text, name, delimiter)
        except InputError:
            # The caller reports the first line with the wrong number of cells.
            return literal
        if not is_regular(rows):
            return literal
    else:
        rows = _split_cells(text, name, delimiter)
    if (line := find_swallowed_row(text, rows, delimiter)) is not None:
        raise InputError(
            name,
            f"line {line}: a quotation mark opens here and closes in a later line, but the lines "
            "between look like rows; double each quotation mark within a cell, or save the table "
            "as Parquet or JSON Lines",
        )
    return rows


def _split_cells(text: str, name: object, delimiter: str) -> list[Row]:
    """Split a table into non-blank rows by CSV rules."""
    limit = csv.field_size_limit(MAX_CELL)
    rows = list[Row]()
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    begin = 1
    try:
        for cells in reader:
            begin = reader.line_num + 1
            if any(map(str.strip, cells)):
                rows.append((reader.line_num, cells))
    except csv.Error as error:
        raise InputError(name, f"line {begin}: is not readable as a table ({error})") from error
    finally:
        csv.field_size_limit(limit)
    return rows


def _check_nodes(root: yaml.Node | None, name: object) -> None:
    """Raise InputError if YAML is nested too deeply, has too many values after aliases are
    expanded, repeats a key or contains a long number.
    """
    nodes = [(root, 0)] if root else []
    count = 0
    while nodes:
        node, depth = nodes.pop()
        count += 1
        if depth > MAX_DEPTH:
            raise InputError(name, f"is nested more than {MAX_DEPTH} deep")
        if count > MAX_YAML_VALUES:
            raise InputError(
                name, f"has more than {MAX_YAML_VALUES:,} values after aliases are expanded"
            )
        line = f"line {node.start_mark.line + 1}"
        children: Iterable[yaml.Node] = ()
        if node.id == "sequence":
            children = node.value
        elif node.id == "mapping":
            keys = [(key.tag, key.value) for key, _ in node.value if key.id == "scalar"]
            duplicate = find_repeated(keys)
            if duplicate is not None:
                key = sanitize(duplicate[1])
                raise InputError(name, f"{line}: the key '{key}' occurs twice in one mapping")
            children = chain.from_iterable(node.value)
        elif node.tag in NUMBER_TAGS and len(node.value) > MAX_DIGITS:
            raise InputError(name, f"{line}: has a number beyond 64 bits")
        nodes += [(child, depth + 1) for child in children]
