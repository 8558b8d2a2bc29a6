"""Rows of files in any format. Errors name the file, location and field."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posir_tasks.base.errors import DataError, summarize_error
from posir_tasks.base.files import (
    GZIP_ERRORS,
    find_files,
    open_decompressed,
    read_decompressed,
    split_suffix,
)
from posir_tasks.base.limits import LimitError
from posir_tasks.base.progress import track_lines
from posir_tasks.base.untrusted import InputError, decode, find_encoding, parse_json, read_json
from posir_tasks.data.checks import iterate_rows, read_column_types
from posir_tasks.data.formats.documents import NOT_UTF8, describe_bad_byte
from posir_tasks.data.formats.passages import Items, SkippedItem

#: Names of JSON types for messages.
TYPE_NAMES = {str: "a string", int: "an integer", bool: "true or false", list: "a list"}
#: Number of bytes to read to recognize a JSON list.
LIST_BYTES = 2**10
#: Replaces the suffix of a folder.
FOLDER = "/"
PARQUET = (".parquet",)


class FieldError(ValueError):
    """A field is missing, or its value has the wrong type."""


class UnrecognizedError(DataError):
    """The reader does not recognize the layout of a file."""


@dataclass(frozen=True)
class Row:
    """An object in a file. Types are strict: a boolean is not an integer.

    Fields are addressed by path, such as `document/title`. `|` separates alternatives: the first
    one with a non-null value is used. Without a value or a default, FieldError is raised.
    """

    fields: Mapping[str, Any]
    location: str = ""
    """Path of the object in the file, for messages."""

    @classmethod
    def parse(cls, value: object, location: str = "") -> Row:
        """Build a row from a value; raise FieldError if the value is not an object."""
        if not isinstance(value, dict):
            where = f"'{location}' " if location else ""
            raise FieldError(f"{where}must be an object, not {_name_type(value)}")
        return cls(value, location)

    def get(self, names: str, kind: type, default: object = None) -> Any:
        """Return a value of the type `kind`, a key of `TYPE_NAMES`; raise FieldError otherwise."""
        name, value = self._find(names)
        if value is None and default is not None:
            return default
        return self._check_type(name, value, kind)

    def get_text(self, names: str, default: str | None = None) -> str:
        """Return a string without lone surrogates."""
        value = str(self.get(names, str, default))
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise self._make_error(names, str(error)) from error
        return value

    def get_id(self, names: str, default: str | None = None) -> str:
        """Return an id. Integers are converted to strings."""
        _, value = self._find(names)
        if type(value) is int:
            return str(value)
        name = self.get_text(names, default)
        if "\0" in name:
            problem = "contains a null character, which ends an id in some libraries; remove it"
            raise self._make_error(names, problem)
        return name

    def get_integer(self, names: str) -> int:
        """Return an integer. Whole floats and strings of digits are converted."""
        name, value = self._find(names)
        is_whole = isinstance(value, float) and value.is_integer()
        is_digits = isinstance(value, str) and value.strip().removeprefix("-").isdecimal()
        return int(value if is_whole or is_digits else self._check_type(name, value, int))

    def get_span(self, name: str) -> tuple[int, int]:
        """Return a list of two integers, start and end."""
        match self.get(name, list):
            case [int(start), int(end)] if type(start) is type(end) is int:
                return start, end
        raise self._make_error(name, "must be two integers, start and end")

    def get_texts(self, names: str) -> list[str]:
        """Return a list of strings."""
        values = self.get(names, list)
        for number, item in enumerate(values):
            self._check_type(f"{self._find(names)[0]}[{number}]", item, str)
        return [*values]

    def get_rows(self, names: str) -> list[Row]:
        """Return a list of objects. An object of equally long lists is converted."""
        name, value = self._find(names)
        path = self._join_path(name)
        if isinstance(value, dict):
            if value and all(isinstance(item, dict) for item in value.values()):
                # pandas writes each column as an object with row numbers as keys.
                value = {name: [*item.values()] for name, item in value.items()}
            sizes = {len(item) if isinstance(item, list) else -1 for item in value.values()}
            if len(sizes) > 1 or -1 in sizes:
                raise FieldError(f"'{path}' is not an object of equally long lists")
            cells = zip(*value.values(), strict=True)
            value = [dict(zip(value, row, strict=True)) for row in cells]
        items = self._check_type(name, value, list)
        return [Row.parse(item, f"{path}[{number}]") for number, item in enumerate(items)]

    def has(self, names: str) -> bool:
        """Return True if a field has a non-null value."""
        return self._find(names)[1] is not None

    def _find(self, names: str) -> tuple[str, Any]:
        """Return the first name with a non-null value, and the value; else a name and None."""
        if names in self.fields:
            return names, self.fields[names]
        alternatives = names.split("|")
        for name in alternatives:
            value: Any = self.fields
            for key in name.split("/"):
                value = value.get(key) if isinstance(value, Mapping) else None
            if value is not None:
                return name, value
        return alternatives[0], None

    def _check_type(self, name: str, value: Any, kind: type) -> Any:
        if type(value) is kind:
            return value
        path = self._join_path(name)
        if value is None:
            raise FieldError(f"'{path}' is missing")
        raise FieldError(f"'{path}' must be {TYPE_NAMES[kind]}, not {_name_type(value)}")

    def _make_error(self, names: str, problem: str) -> FieldError:
        name, _ = self._find(names)
        return FieldError(f"'{self._join_path(name)}' is not valid: {problem}")

    def _join_path(self, name: str) -> str:
        path = name.replace("/", ".")
        return f"{self.location}.{path}" if self.location else path


def _name_type(value: object) -> str:
    return "null" if value is None else type(value).__name__


def read_lines(file: Path, where: str) -> Iterator[tuple[int, str | SkippedItem]]:
    """Yield the nonblank lines with their 1-based numbers. An undecodable line is yielded as
    skipped. `where` is the prefix of its name.

    Raises:
        OSError: The file cannot be read; `GZIP_ERRORS` for an incomplete compressed file.
    """
    with open_decompressed(file) as raw:
        is_wide = find_encoding(raw.read(4)) == "utf-16"
    if is_wide:
        lines = enumerate(decode(read_decompressed(file)).split("\n"), start=1)
        yield from ((number, line) for number, line in lines if line.strip())
        return
    offset = 0
    for number, raw_line in enumerate(track_lines(file), start=1):
        try:
            line = raw_line.decode("utf-8-sig" if number == 1 else "utf-8")
            if line.strip():
                yield number, line
        except UnicodeDecodeError as error:
            detail = describe_bad_byte(error, offset)
            source = where.rpartition(":")[0]
            yield number, SkippedItem(f"{where}{number}", NOT_UTF8, detail, source)
        offset += len(raw_line)


@contextmanager
def convert_errors(file: Path | str, location: str, expected: str) -> Iterator[None]:
    """Convert any error to a DataError that names file, location and expected format."""
    where = f"{file}: {location}" if location else f"{file}"
    try:
        yield
    except LimitError:
        raise
    except (OSError, *GZIP_ERRORS) as error:
        problem = getattr(error, "strerror", None) or summarize_error(error)
        raise DataError(f"{where}: cannot be read ({problem}).") from error
    except (InputError, ValueError, RecursionError) as error:
        problem = error.problem if isinstance(error, InputError) else str(error)
        if isinstance(error, UnicodeDecodeError):
            problem += "; convert the file to UTF-8, for example with `iconv`"
        raise DataError(f"{where}: {problem}. Expected: {expected}.") from error


def choose_split(where: object, split: str | None, available: Iterable[str], default: str) -> str:
    """Return the selected or default split; raise DataError if it is not available."""
    names = sorted({*available})
    name = default if split is None else split
    if name not in names:
        choices = ", ".join(names) or "none"
        raise DataError(
            f"{where}: no split '{name}'. Available splits: {choices}; choose one with --split."
        )
    return name


def read_rows(file: Path, expected: str) -> Iterator[tuple[str, Row | SkippedItem]]:
    """Yield location and row for each row of a JSON Lines, JSON list or Parquet file.

    Raises:
        DataError: A row is not an object, or the file cannot be read.
    """
    if split_suffix(file)[1] in PARQUET:
        for number, fields in enumerate(iterate_rows(file)):
            yield f"row {number}", Row(fields)
        return
    with convert_errors(file, "", expected):
        if read_head(file, LIST_BYTES).lstrip().startswith("["):
            for number, value in enumerate(read_json(file)):
                yield f"[{number}]", Row.parse(value, f"[{number}]")
            return
        for number, line in read_lines(file, f"{file}: line "):
            location = f"line {number}"
            if isinstance(line, SkippedItem):
                yield location, line
                continue
            with convert_errors(file, location, expected):
                row = Row.parse(parse_json(line, file))
            yield location, row


def list_files(folder: Path) -> list[Path]:
    """List the visible files below a folder in sorted order."""
    return [
        file
        for file in find_files(folder, "")
        if not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]


def read_parquet_rows(folder: Path, pattern: str) -> Iterator[Row]:
    """Yield the rows of all Parquet files that match a pattern; raise DataError on failure."""
    for file in sorted(folder.glob(pattern)):
        for number, fields in enumerate(iterate_rows(file)):
            yield Row(fields, f"{file.name}[{number}]")


def read_head(file: Path, size: int) -> str:
    """Decode the first `size` bytes of a file, without the byte-order mark."""
    with open_decompressed(file) as content:
        head = content.read(size)
    return head.decode(find_encoding(head[:4]), "replace").removeprefix("\ufeff")


def load_values(file: Path) -> object:
    """Parse a JSON file, or a JSON Lines file into a list."""
    content = decode(read_decompressed(file))
    try:
        return parse_json(content, file)
    except InputError as problem:
        values = []
        for line in filter(str.strip, content.split("\n")):
            try:
                values.append(parse_json(line, file))
            except InputError as error:
                raise error if values else problem  # noqa: B904
        if not values:
            raise
        return values


def read_items(file: Path, expected: str, read: Callable[[Row, str], Items]) -> Items:
    """Apply `read` to each row and its location, and yield all items. Undecodable lines are yielded
    as skipped. A malformed row raises DataError.
    """
    for location, row in read_rows(file, expected):
        if isinstance(row, SkippedItem):
            yield row
        else:
            with convert_errors(file, location, expected):
                yield from read(row, location)


def has_fields(file: Path, *groups: str) -> bool:
    """Return True if the first row or the Parquet columns contain all fields of a group."""
    try:
        if split_suffix(file)[1] in PARQUET:
            names = set(read_column_types(file))
        else:
            rows = (row for _, row in read_rows(file, "") if isinstance(row, Row))
            names = set(next(rows, Row({})).fields)
    except (DataError, OSError, UnicodeDecodeError, *GZIP_ERRORS):
        # Reading the rows will raise the error.
        return False
    return any(names.issuperset(group.split()) for group in groups)
