"""Records of text files: JSON values of the kind wanted, and errors that name file and place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from posir_tasks.display.progress import open_text
from posir_tasks.errors import DataError

Value = TypeVar("Value", dict[str, Any], list[Any], str, int)
Record: TypeAlias = dict[str, Any]

KINDS = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


@contextmanager
def naming(file: Path, place: str, wanted: str) -> Iterator[None]:
    """Turn what goes wrong with a place in a file into an error that names it and says what is wanted.

    Raises:
        DataError: The file cannot be read, or is not what is wanted.
    """
    where = f"{file}: {place}: " if place else f"{file}: "
    try:
        yield
    except OSError as error:
        raise DataError(f"{where}cannot be read ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}{error}. Wanted: {wanted}.") from error


def json_lines(file: Path, wanted: str) -> Iterator[tuple[str, Record]]:
    """Yield place and object of each line of a JSON Lines file; blank lines are passed over.

    Raises:
        DataError: The file cannot be read, or a line is no JSON object.
    """
    with naming(file, "", wanted), open_text(file, f"Reading {file.name}") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            place = f"line {number}"
            with naming(file, place, wanted):
                record = as_kind(json.loads(line), dict)
            yield place, record


def member(record: object, name: str, kind: type[Value]) -> Value:
    """Return a member of a JSON object.

    Raises:
        ValueError: It is missing or of another kind, or a text with a lone surrogate, which is no character.
    """
    value = optional(record, name, kind)
    if value is None:
        raise ValueError(f"lacks '{name}'")
    return value


def optional(record: object, name: str, kind: type[Value]) -> Value | None:
    """Return a member of a JSON object, None where it is missing or null.

    Raises:
        ValueError: It is of another kind, or a text with a lone surrogate.
    """
    value = as_kind(record, dict).get(name)
    if value is None:
        return None
    try:
        return as_kind(value, kind)
    except ValueError as error:
        raise ValueError(f"'{name}' {error}") from None


def identity(record: object, name: str) -> str | None:
    """Return an id, a text or an integer, as text; None where it is missing or null.

    Raises:
        ValueError: It is of another kind, or a text with a lone surrogate.
    """
    value = as_kind(record, dict).get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return optional(record, name, str)


def as_kind(value: object, kind: type[Value]) -> Value:
    """Return a JSON value that must be of a kind.

    Raises:
        ValueError: It is of another kind, or a text with a lone surrogate.
    """
    if type(value) is not kind:
        raise ValueError(f"must be {KINDS[kind]} and is {KINDS[type(value)]}")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            half = ascii(value[error.start])
            raise ValueError(f"has half a surrogate pair, {half}, at character {error.start}, which is no character") from None
    return value
