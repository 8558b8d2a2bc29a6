"""The gate: the one reader each of JSON, CSV and YAML that comes from outside, as a file, a
download or an answer.

Parsers are lenient in ways that turn a damaged file into other numbers: of a repeated key the last
wins, a row that was cut lacks its last cells, `1e999` is infinite. Here these are errors, as is all
that could take the memory or the stack of the process. Every reader raises `GateError` and nothing
else.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from posir_tasks.base.errors import DataError
from posir_tasks.base.files import GZIP_ERRORS, read_decompressed
from posir_tasks.base.limits import MAX_BYTES, LimitError, check_values, describe_bytes
from posir_tasks.base.quotation import (
    TAB,
    Row,
    find_swallowed_row,
    is_regular,
    remove_marks,
    split_literally,
)
from posir_tasks.base.wording import sanitize

if TYPE_CHECKING:
    import yaml

#: Most bytes of a YAML file, which is read slowly, and of which settings need a few thousand.
MAX_YAML_BYTES = 2**20
#: Deepest nesting of lists and objects. The deepest format that is read, a result of mteb, has 8.
MAX_DEPTH = 64
#: Integers are smaller; ids of 64 bits are the longest in use.
MAX_INTEGER = 2**64
#: Most characters of a number in YAML, which is read in time that grows with their square.
MAX_DIGITS = 400
#: Most columns of a table of delimited cells.
MAX_COLUMNS = 10_000
#: Most characters of a cell of a table, which may hold a document.
MAX_CELL = 2**24
#: Most values of a YAML file after its aliases are replaced by what they stand for.
MAX_YAML_VALUES = 100_000
#: Tags of numbers in YAML.
NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

Value = TypeVar("Value", bound=Hashable)


class GateError(DataError):
    """Something from outside cannot be read, or could be read in more than one way. The message
    names source and place.
    """

    def __init__(self, name: object, problem: str) -> None:
        """Make the message `name: problem`."""
        super().__init__(f"{name}: {problem}")
        self.problem = problem

    is_not_finite: bool = False
    """Whether a number is NaN or infinite, and all else is as it should be."""


def parse_json(
    data: str | bytes, name: object, *, max_bytes: int | None = None, nan_prefix: str | None = None
) -> Any:
    """Parse a JSON document.

    Args:
        data: The document; bytes are UTF-8, or UTF-16 with a byte-order mark.
        name: The source, for messages: a file, a line of it, an address.
        max_bytes: Most bytes, or characters, that it may have; by default those of
            `POSIR_MAX_BYTES`.
        nan_prefix: Keys with this prefix may be NaN, as mteb writes its `nauc_` scores; None for no
            keys.

    Raises:
        GateError: It is too large or too deep, not such text, not JSON; an object repeats a key; a
            number is NaN, infinite or an integer beyond 64 bits.
    """
    check_size(len(data), name, max_bytes)
    try:
        check_values(name, data)
    except LimitError as error:
        raise GateError(name, error.problem) from error
    with _explain_json_errors(name):
        value = _DECODER.decode(
            decode(data) if isinstance(data, bytes) else data.removeprefix("\ufeff")
        )
    _check_values(value, name, nan_prefix)
    return value


def parse_json_at(text: str, start: int, name: object) -> tuple[Any, int]:
    """Parse a JSON document within a text and where it ends; see `parse_json`."""
    with _explain_json_errors(name):
        value, end = _DECODER.raw_decode(text, start)
    _check_values(value, name, None)
    return value, end


@contextmanager
def _explain_json_errors(name: object) -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise GateError(name, f"is nested more than {MAX_DEPTH} deep") from None
    except ValueError as error:
        reason = f"{type(error).__name__}: {sanitize(str(error), 200)}"
        raise GateError(name, f"is not readable JSON in UTF-8 ({reason})") from error


def read_json(file: Path, *, max_bytes: int | None = None, nan_prefix: str | None = None) -> Any:
    """Read a file of JSON, which may be compressed; see `parse_json`."""
    return parse_json(read_bytes(file, max_bytes), file, max_bytes=max_bytes, nan_prefix=nan_prefix)


def parse_table(
    data: str | bytes, name: object, *, delimiter: str = ","
) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Parse a table of delimited cells: its headings, and for each row the line that it ends at
    and its cells.

    Lines without any cell are left out, and empty cells to the right of the last heading are cut
    off: spreadsheets write both. Cells are read by the rules of CSV, or between tabs as
    `posir_tasks.base.quotation` explains.

    Raises:
        GateError: It is not UTF-8 or too large, holds a zero byte, repeats a heading, leaves a
            quotation open, or a row has more or fewer cells than there are headings.
    """
    check_size(len(data), name)
    try:
        text = decode(data) if isinstance(data, bytes) else data.removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise GateError(name, f"is not UTF-8 ({error})") from error
    if "\0" in text:
        raise GateError(
            name,
            f"line {text.count(chr(10), 0, text.index(chr(0))) + 1}: holds a zero byte, so it is "
            "no table",
        )
    lines = _read_rows(text, name, delimiter)
    headings = [heading.strip() for heading in lines[0][1]] if lines else []
    check_columns(len(headings), name)
    require_distinct(headings, name)
    rows = []
    for number, cells in lines[1:]:
        while len(cells) > len(headings) and not cells[-1].strip():
            cells.pop()
        if len(cells) != len(headings):
            shown = sanitize(", ".join(headings))
            raise GateError(
                name,
                f"line {number}: has {len(cells)} cells; the headings are {len(headings)}: {shown}",
            )
        rows.append((number, cells))
    return headings, rows


def require_distinct(columns: Iterable[object], name: object) -> None:
    """Raise GateError if a table has two columns of one name, of which a reader would take either;
    several may have none.
    """
    repeated = find_repeated(str(column) for column in columns if column not in (None, ""))
    if repeated is not None:
        raise GateError(
            name, f"the column '{sanitize(str(repeated))}' occurs twice; keep one of them"
        )


def read_heading(content: bytes) -> bytes:
    """Read the first line of a table that is not blank."""
    first = re.search(rb"[^\r\n]+", content)
    return first[0] if first else b""


def read_csv_rows(file: Path, columns: Sequence[str], expected: str) -> list[dict[str, str]]:
    """Read the given columns of a CSV file, stripped, by row; cells are separated by commas or
    semicolons.

    Args:
        file: The file, in UTF-8.
        columns: Columns that it must have; others are left out.
        expected: What the file must be, for the message, such as `a file with the columns
            model,score`.

    Raises:
        GateError: The file cannot be read, or lacks a column.
    """
    try:
        content = read_bytes(file)
        heading = read_heading(content)
        delimiter = ";" if heading.count(b";") >= max(1, len(columns) - 1) else ","
        headings, rows = parse_table(content, file, delimiter=delimiter)
        missing = [column for column in columns if column not in headings]
        if missing:
            raise GateError(file, f"no column {', '.join(missing)}")
    except GateError as error:
        raise GateError(file, f"{error.problem}. Expected {expected}.") from error
    places = [headings.index(column) for column in columns]
    return [
        {column: cells[place].strip() for column, place in zip(columns, places, strict=True)}
        for _, cells in rows
    ]


def parse_yaml(data: str | bytes, name: object) -> Any:
    """Parse a YAML document of plain values.

    Raises:
        GateError: It is too large or too deep, not UTF-8, not YAML; a mapping repeats a key; its
            aliases stand for too much or for themselves; a number is NaN, infinite or an integer
            beyond 64 bits.
    """
    # Takes longer to import than all else that a command needs to start.
    import yaml

    check_size(len(data), name, MAX_YAML_BYTES)
    try:
        # The loader in C takes a tenth of the time; not every build of PyYAML has it.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(
            decode(data) if isinstance(data, bytes) else data
        )
        node: yaml.Node | None = loader.get_single_node()
        _count_nodes(node, {}, name)
        value = None if node is None else loader.construct_document(node)
    except RecursionError:
        raise GateError(name, f"is nested more than {MAX_DEPTH} deep") from None
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, AttributeError) as error:
        raise GateError(
            name, f"is not readable YAML in UTF-8 ({sanitize(' '.join(str(error).split()), 300)})"
        ) from error
    _check_values(value, name, None)
    return value


def read_yaml(file: Path) -> Any:
    """Read a YAML file; see `parse_yaml`."""
    return parse_yaml(read_bytes(file, MAX_YAML_BYTES), file)


def read_bytes(file: Path, max_bytes: int | None = None) -> bytes:
    """Read a file, decompressed if it ends in `.gz`; raise GateError if damaged, unreadable or of
    more than `max_bytes`.
    """
    try:
        return read_decompressed(file, max_bytes)
    except FileNotFoundError:
        raise GateError(file, "no such file") from None
    except LimitError as error:
        raise GateError(file, error.problem) from error
    except (OSError, *GZIP_ERRORS) as error:
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise GateError(file, f"cannot be read ({sanitize(reason, 200)})") from error


def check_size(size: int, name: object, max_bytes: int | None = None) -> None:
    """Raise GateError if a source has more bytes than are read, by default those of
    `POSIR_MAX_BYTES`.
    """
    limit = MAX_BYTES.read() if max_bytes is None else max_bytes
    if size > limit:
        problem = f"is larger than {describe_bytes(limit)}, the most that is read"
        raise GateError(
            name, MAX_BYTES.refuse(name, problem).problem if max_bytes is None else problem
        )


def check_columns(columns: int, name: object) -> None:
    """Raise GateError if a table has more columns than are read."""
    if columns > MAX_COLUMNS:
        raise GateError(name, f"has {columns:,} columns, and at most {MAX_COLUMNS:,} are read")


def find_repeated(values: Iterable[Value]) -> Value | None:
    """Find the first value that occurred before; None if all differ."""
    seen = set[Value]()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


def find_encoding(content: bytes) -> str:
    """Find the encoding that a byte-order mark states, else UTF-8."""
    return next(
        (encoding for mark, encoding in BYTE_ORDER_MARKS.items() if content.startswith(mark)),
        "utf-8",
    )


def decode(content: bytes) -> str:
    """Return bytes as text; raise UnicodeDecodeError if they are neither UTF-8 nor UTF-16 with a
    byte-order mark.
    """
    return content.decode(find_encoding(content))


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        repeated = find_repeated(key for key, _ in pairs)
        raise ValueError(f"the key '{sanitize(repeated)}' occurs twice in one object")
    return members


_DECODER = json.JSONDecoder(object_pairs_hook=_build_object)


def _check_values(value: object, name: object, nan_prefix: str | None) -> None:
    """Raise GateError for a value that is nested too deeply or a number that is not allowed."""
    level: list[Any] = [[value]]
    # Most documents have no such value, which is seen without the path of each.
    for _ in range(MAX_DEPTH):
        items = [
            item
            for part in level
            for item in (part.values() if type(part) is dict else part)
            if type(item) is not str
        ]
        numbers = [item for item in items if type(item) is int or type(item) is float]
        # Neither a NaN nor an infinite number is between.
        if not all(-MAX_INTEGER <= number <= MAX_INTEGER for number in numbers):
            break
        level = [item for item in items if type(item) is list or type(item) is dict]
        if not level:
            return
    _refuse_values(value, name, nan_prefix)


def _refuse_values(
    value: object, name: object, nan_prefix: str | None, path: tuple[object, ...] = ()
) -> None:
    items: Iterable[tuple[object, object]] = ((path[-1] if path else "", value),)
    if isinstance(value, dict | list):
        if len(path) > MAX_DEPTH:
            raise GateError(name, f"is nested more than {MAX_DEPTH} deep")
        items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if type(item) is str or item is None:
            continue
        if isinstance(item, float):
            if not math.isfinite(item) and not (
                math.isnan(item) and nan_prefix and str(key).startswith(nan_prefix)
            ):
                error = GateError(
                    name, f"{_format_path(path, key)}is {item}; numbers must be finite"
                )
                error.is_not_finite = True
                raise error
        elif isinstance(item, dict | list):
            _refuse_values(item, name, nan_prefix, (*path, key))
        elif isinstance(item, int) and abs(item) > MAX_INTEGER:
            raise GateError(name, f"{_format_path(path, key)}an integer beyond 64 bits")


def _format_path(path: tuple[object, ...], key: object) -> str:
    return f"field '{sanitize('.'.join(map(str, (*path, key))), 200)}': "


def _read_rows(text: str, name: object, delimiter: str) -> Sequence[Row]:
    """Read the rows of a table that are not blank; between tabs, by its content."""
    if delimiter == TAB:
        literal = split_literally(text, delimiter)
        if is_regular(literal) and len(literal[0][1] if literal else ()) != 1:
            return remove_marks(literal)
        try:
            rows = _split_cells(text, name, delimiter)
        except GateError:
            # The first line with another number of cells is the cause that a user can find.
            return literal
        if not is_regular(rows):
            return literal
    else:
        rows = _split_cells(text, name, delimiter)
    if (line := find_swallowed_row(text, rows, delimiter)) is not None:
        raise GateError(
            name,
            f"line {line}: a quotation mark opens here and closes in a later line, and the lines "
            "between them look like rows; "
            "double each quotation mark within a text, or save the table as Parquet or JSON Lines",
        )
    return rows


def _split_cells(text: str, name: object, delimiter: str) -> list[Row]:
    """Split the rows of a table that are not blank, by the rules of CSV."""
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
        raise GateError(name, f"line {begin}: is not readable as a table ({error})") from error
    finally:
        csv.field_size_limit(limit)
    return rows


def _count_nodes(
    node: yaml.Node | None, counts: dict[int, int | None], name: object, depth: int = 0
) -> int:
    """Count how many values a YAML node has, with those behind aliases; `counts` has None for one
    that is being counted.
    """
    if depth > MAX_DEPTH:
        raise GateError(name, f"is nested more than {MAX_DEPTH} deep")
    if id(node) in counts:
        number = counts[id(node)]
        if number is None:
            raise GateError(name, "an alias stands for something that contains it")
        return number
    if node is not None and node.tag in NUMBER_TAGS and len(node.value) > MAX_DIGITS:
        raise GateError(name, f"line {node.start_mark.line + 1}: has a number beyond 64 bits")
    counts[id(node)] = None
    items: list[Any] = getattr(node, "value", [])
    children: list[yaml.Node] = []
    if node is not None and node.id == "sequence":
        children = items
    elif node is not None and node.id == "mapping":
        repeated = find_repeated((key.tag, key.value) for key, _ in items if key.id == "scalar")
        if repeated is not None:
            raise GateError(
                name,
                f"line {node.start_mark.line + 1}: the key '{sanitize(repeated[1])}' occurs "
                "twice in one mapping",
            )
        children = [part for pair in items for part in pair]
    number = 1 + sum(_count_nodes(child, counts, name, depth + 1) for child in children)
    if number > MAX_YAML_VALUES:
        raise GateError(
            name, f"has more than {MAX_YAML_VALUES:,} values once its aliases are replaced"
        )
    counts[id(node)] = number
    return number
