"""Records of files from outside: lines, TREC qrels, JSON objects, rows of Parquet, and errors that
name the place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from reprlib import repr as short_repr
from typing import Annotated, ClassVar, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

from posir_tasks.base.errors import DataError, summarize_error
from posir_tasks.base.files import (
    GZIP_ERRORS,
    iterate_lines,
    open_decompressed,
    read_decompressed,
    split_suffix,
)
from posir_tasks.base.progress import track_reading
from posir_tasks.base.untrusted import GateError, decode, find_encoding, parse_json
from posir_tasks.base.wording import sanitized
from posir_tasks.data.checks import iterate_rows, read_column_types
from posir_tasks.data.formats.documents import NOT_UTF8, describe_bad_byte
from posir_tasks.data.formats.passages import SkippedText
from posir_tasks.data.grades import CollectedGrades, collect_grades, read_grade

#: A line of TREC qrels, and how many decide whether a file has them.
QRELS_LINE, QRELS_LINES = re.compile(rb"\s*\S+\s+\S+\s+\S+\s+[+-]?[\d.]+([eE][+-]?\d+)?\s*"), 20
#: A line that lacks its grade, and the name of a file that is meant to have qrels.
QRELS_WITHOUT_GRADE, QRELS_NAME = (
    re.compile(rb"\s*\S+\s+Q?0\s+\S+\s*"),
    re.compile(r"qrels?($|[^a-z])", re.IGNORECASE),
)
QRELS_CELLS, FORMS_OF_OTHERS = (
    4,
    (".json", ".jsonl", ".ndjson", ".parquet", ".csv", ".tsv", ".md", ".html", ".pdf"),
)
QRELS_FORM, COMMENT = "query, iteration, document and grade, a number", b"#"


def read_lines(file: Path, where: str) -> Iterator[tuple[int, str | SkippedText]]:
    """Yield number from 1 and text of each line that is not blank; if it cannot be decoded, the
    byte is named instead.

    Raises:
        OSError: The file cannot be read. `GZIP_ERRORS`: It is not a complete compressed file.
    """
    with open_decompressed(file) as raw:
        is_wide = find_encoding(raw.read(4)) == "utf-16"
    if is_wide:
        lines = enumerate(decode(read_decompressed(file)).split("\n"), start=1)
        yield from ((number, line) for number, line in lines if line.strip())
        return
    offset = 0
    for number, raw_line in enumerate(track_reading(file), start=1):
        try:
            line = raw_line.decode("utf-8-sig" if number == 1 else "utf-8")
            if line.strip():
                yield number, line
        except UnicodeDecodeError as error:
            yield (
                number,
                SkippedText(
                    f"{where}{number}",
                    NOT_UTF8,
                    describe_bad_byte(error, offset),
                    where.rpartition(":")[0],
                ),
            )
        offset += len(raw_line)


def _check_id(text: str) -> str:
    if "\0" in text:
        raise ValueError("has a null character, at which libraries end an id; remove it")
    return text


#: A lone surrogate, which JSON can escape, is refused.
Text = Annotated[str, AfterValidator(lambda text: text.encode().decode())]
#: An id is a string or an integer, which becomes a string.
Id = Annotated[
    Text,
    AfterValidator(_check_id),
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
]


class StrictRecord(BaseModel):
    """A JSON object. Types are strict: a boolean is no integer, an integer no string."""

    model_config = ConfigDict(strict=True)

    expected: ClassVar[str] = ""
    """The format of the file, for errors."""


AnyRecord = TypeVar("AnyRecord", bound=StrictRecord)


def validate(model: type[AnyRecord], value: object, place: str = "") -> AnyRecord:
    """Check the shape of a JSON value at a place of a file; raise ValueError with the first wrong
    field and what is allowed.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    keys = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in first["loc"])
    path = f"{place}{keys}".removeprefix(".")
    field, message = f"'{path}' " if path else "", first["msg"].partition(" or instance of ")[0]
    if first["type"] == "missing":
        raise ValueError(f"{field}is missing")
    if first["type"].endswith("_type"):
        given = "null" if first["input"] is None else type(first["input"]).__name__
        raise ValueError(f"{field}{message.replace('Input should be', 'must be')}, not {given}")
    raise ValueError(f"{field}is not valid: {message.removeprefix('Value error, ')}")


@contextmanager
def error_context(file: Path | str, place: str, expected: str) -> Iterator[None]:
    """Turn an error about a place in a file into a DataError that names the place and the expected
    format.
    """
    where = f"{file}: {place}: " if place else f"{file}: "
    try:
        yield
    except GateError as error:
        raise DataError(f"{where}{error.problem}. Expected: {expected}.") from error
    except GZIP_ERRORS as error:
        raise DataError(f"{where}not a complete gzip file ({summarize_error(error)}).") from error
    except OSError as error:
        raise DataError(f"{where}cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}{error}; convert the file to UTF-8, for example by `iconv`. Expected: "
            f"{expected}."
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}{error}. Expected: {expected}.") from error


def read_records(
    file: Path, model: type[AnyRecord]
) -> Iterator[tuple[str, AnyRecord | SkippedText]]:
    """Yield place and record of each line of JSON Lines that is not blank, or row of Parquet; raise
    DataError if wrong.
    """
    if split_suffix(file)[1] == ".parquet":
        for number, row in enumerate(iterate_rows(file)):
            with error_context(file, f"row {number}", model.expected):
                record = validate(model, row)
            yield f"row {number}", record
        return
    with error_context(file, "", model.expected):
        for number, line in read_lines(file, f"{file}: line "):
            place = f"line {number}"
            if isinstance(line, SkippedText):
                yield place, line
                continue
            with error_context(file, place, model.expected):
                record = validate(model, parse_json(line, file))
            yield place, record


def has_fields(file: Path, *groups: frozenset[str]) -> bool:
    """Return whether the first row of a file of JSON Lines, or the columns of one of Parquet,
    include a group of names.
    """
    try:
        if split_suffix(file)[1] == ".parquet":
            names = read_column_types(file).keys()
        else:
            first = next((line for _, line in read_lines(file, "") if isinstance(line, str)), "")
            row = parse_json(first, file)
            names = row.keys() if isinstance(row, dict) else {}.keys()
    except (DataError, OSError, UnicodeDecodeError, *GZIP_ERRORS):
        # It is told where its rows are read.
        return False
    return any(group <= names for group in groups)


def list_rows(value: object) -> object:
    """Return the rows of an object of columns, as the Hub has lists of objects; anything else as it
    is.
    """
    if not isinstance(value, dict):
        return value
    if any(not isinstance(column, list) for column in value.values()):
        raise ValueError("is neither a list of objects nor an object of lists")
    return [dict(zip(value, row, strict=True)) for row in zip(*value.values(), strict=True)]


def split_lines(file: Path, columns: int, separator: str | None = None) -> Iterator[list[str]]:
    """Yield the cells of each line of topics or qrels; raise DataError if a line has another number
    of them.
    """
    with error_context(file, "", f"lines of {columns} cells"):
        for number, line in read_lines(file, f"{file.name}:"):
            if isinstance(line, SkippedText):
                raise DataError(f"{file}: line {number}: {line.reason} ({line.detail}).")
            cells = line.strip().split(separator)
            if len(cells) != columns:
                shown = sanitized(line.strip())
                raise DataError(
                    f"{file}: line {number}: has {len(cells)} cells ({shown}); expected {columns}."
                )
            yield cells


def is_qrels(file: Path) -> bool:
    """Return whether a file is meant to be TREC qrels, by most of its first lines or by its name;
    see `check_qrels`.
    """
    with error_context(file, "", "lines of text"), open_decompressed(file) as content:
        lines = [line for line in islice(iterate_lines(content, file), QRELS_LINES) if line.strip()]
    rows = [
        line for line in lines if QRELS_LINE.fullmatch(line) or QRELS_WITHOUT_GRADE.fullmatch(line)
    ]
    others = [line for line in lines if line not in rows and not line.startswith(COMMENT)]
    if rows and len(rows) > len(others):
        return True
    return split_suffix(file)[1] not in FORMS_OF_OTHERS and QRELS_NAME.search(file.name) is not None


def check_qrels(file: Path) -> None:
    """Raise DataError with the line if a file of TREC qrels has no judgment, or a line that is
    none.
    """
    number = 0
    with error_context(file, "", QRELS_FORM):
        for number, line in read_lines(file, f"{file.name}:"):
            if isinstance(line, SkippedText):
                raise DataError(f"{file}: line {number}: {line.reason} ({line.detail}).")
            if QRELS_LINE.fullmatch(line.encode()):
                continue
            shown = sanitized(line.strip())
            if line.startswith(COMMENT.decode()):
                raise DataError(
                    f"{file}: line {number}: is a comment ({shown}), which qrels do not have. "
                    "Remove it."
                )
            cells = (
                f"has {len(line.split())} cells"
                if len(line.split()) != QRELS_CELLS
                else "has no number as its grade"
            )
            raise DataError(f"{file}: line {number}: {cells} ({shown}). Expected: {QRELS_FORM}.")
    if not number:
        raise DataError(f"{file}: has no judgment. Expected lines of {QRELS_FORM}.")


def read_qrels(*files: Path) -> CollectedGrades:
    """Read the grades of TREC qrels; raise DataError if a grade is not a number."""
    return collect_grades(row for file in files for row in _read_qrels_rows(file))


def _read_qrels_rows(file: Path) -> Iterator[tuple[str, str, float]]:
    for query, _, document, stated in split_lines(file, 4):
        try:
            grade = read_grade(stated)
        except ValueError as error:
            place = f"{file}: query {query}, document {document}"
            raise DataError(f"{place}: grade {short_repr(stated)} {error}. Correct it.") from error
        yield query, document, grade
