"""Checks of data, column by column: every problem names file, field, rows and count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from polars._typing import PolarsDataType

from posir_tasks.display.wording import pluralize
from posir_tasks.errors import DataError, summarize_error

#: How many of a problem's rows are named.
MAX_EXAMPLES = 5


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with a file."""

    file: str
    field: str | None
    """None where it concerns the whole file."""
    what: str
    """What is wrong and what is allowed."""
    count: int = 1
    """Number of rows it concerns, where it concerns rows."""
    rows: tuple[int, ...] = ()
    """The first of these rows, counted from 0."""
    examples: tuple[str, ...] = ()
    """What these rows hold."""

    def __str__(self) -> str:
        rows = ""
        if self.rows:
            named = ", ".join(
                f"{row} ({example})" if example else str(row)
                for row, example in zip(self.rows, self.examples or ("",) * len(self.rows), strict=True)
            )
            rows = f"; {pluralize(self.count, 'row')}, first: {named}"
        field = f" field '{self.field}':" if self.field else ""
        return f"{self.file}:{field} {self.what}{rows}"


class ProblemsError(DataError):
    """Data is refused; `problems` has all that is wrong with it."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def raise_problems(problems: Iterable[Problem]) -> None:
    """Raise one error for all problems, if there are any.

    Raises:
        ProblemsError: There is a problem.
    """
    error = ProblemsError(problems)
    if error.problems:
        raise error


def read_columns(file: Path, columns: Mapping[str, PolarsDataType]) -> pl.DataFrame:
    """Read columns of a parquet file, each as the type wanted.

    Raises:
        ProblemsError: The file is corrupt, a column is missing or of another kind.
    """
    frame, problems = read_valid_columns(file, columns)
    raise_problems(problems)
    return frame


def read_valid_columns(file: Path, columns: Mapping[str, PolarsDataType]) -> tuple[pl.DataFrame, list[Problem]]:
    """Read those columns of a parquet file that are of the kind wanted, each as the type wanted.

    Returns:
        The columns, and everything that is wrong with the file or the other columns.
    """
    try:
        present, names = read_column_types(file, columns), _schema(file).names
        fitting = [name for name, kind in present.items() if _is_compatible(kind, columns[name])]
        frame = _read(file, fitting)
    except ProblemsError as error:
        return pl.DataFrame(), list(error.problems)
    problems = [
        Problem(str(file), name, f"is {present[name]}, must be {wanted}.")
        if name in present
        else Problem(str(file), name, f"missing column; the file has {', '.join(names) or 'none'}.")
        for name, wanted in columns.items()
        if name not in fitting
    ]
    beyond = [problem for name in fitting for problem in _beyond_problems(frame[name], columns[name], str(file))]
    frame = frame.drop([problem.field for problem in beyond if problem.field])
    return frame.cast({name: columns[name] for name in frame.columns}), problems + beyond


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Name the parquet file that cannot be read."""
    try:
        yield
    except (pa.ArrowException, pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError) as error:
        raise ProblemsError([Problem(str(file), None, f"not a readable parquet file ({summarize_error(error)}).")]) from error


def read_column_types(file: Path, wanted: Iterable[str]) -> dict[str, PolarsDataType]:
    """Return the types of those columns of a parquet file that are wanted and there.

    Raises:
        ProblemsError: The file is corrupt, or two columns share a name.
    """
    schema = _schema(file)
    with _naming(file):
        twice = [name for name in wanted if schema.names.count(name) > 1]
        raise_problems(Problem(str(file), name, "is the name of several columns; keep one of them.") for name in twice)
        return dict(_frame(schema.empty_table(), [name for name in wanted if name in schema.names]).schema)


def _schema(file: Path) -> pa.Schema:
    with _naming(file):
        schema = pq.read_schema(file)
        # Names are decoded when they are asked for.
        return schema if schema.names else pa.schema([])


def _read(file: Path, columns: list[str]) -> pl.DataFrame:
    # Arrow's reader ends a corrupt file with an error, where that of polars may end the process for want of memory.
    with _naming(file), pq.ParquetFile(file) as parquet:
        return _frame(parquet.read(columns), columns)


def _frame(table: pa.Table, columns: list[str]) -> pl.DataFrame:
    table = table.select(columns)
    table.validate(full=True)
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _beyond_problems(column: pl.Series, wanted: PolarsDataType, file: str) -> list[Problem]:
    """Return a problem if any number of a column does not fit the type wanted."""
    try:
        column.cast(wanted)
    except pl.exceptions.InvalidOperationError:
        fit = column.cast(wanted, strict=False).to_list()
        values = column.to_list()
        rows = [row for row, (value, kept) in enumerate(zip(values, fit, strict=True)) if value != kept]
        examples = tuple(_short(values[row]) for row in rows[:MAX_EXAMPLES])
        return [Problem(file, column.name, f"does not fit {wanted}", len(rows), tuple(rows[:MAX_EXAMPLES]), examples)]
    return []


def _is_compatible(present: PolarsDataType, wanted: PolarsDataType) -> bool:
    """Whether every value of one type is one of another: an integer of any size, a list or array of such, a number, a text."""
    if isinstance(wanted, pl.Struct):
        fields = {field.name: field.dtype for field in present.fields} if isinstance(present, pl.Struct) else {}
        return all(field.name in fields and _is_compatible(fields[field.name], field.dtype) for field in wanted.fields)
    if isinstance(wanted, pl.List):
        return isinstance(present, pl.List | pl.Array) and _is_compatible(present.inner, wanted.inner)
    if wanted == pl.Int64:
        return present.is_integer()
    if wanted == pl.Float64:
        return present.is_numeric()
    return present == wanted


def check_rows(frame: pl.DataFrame, condition: pl.Expr, *, file: str, field: str, what: str) -> list[Problem]:
    """Return a problem if the condition holds for any row; a condition that is null counts as true.

    Where the frame lacks a column of the condition, that lack is a problem already and there is nothing to be said of rows.
    """
    if not {field, *condition.meta.root_names()} <= set(frame.columns):
        return []
    bad = frame.with_row_index("row").filter(condition.fill_null(True))
    if bad.is_empty():
        return []
    head = bad.head(MAX_EXAMPLES)
    examples = tuple(_short(value) for value in head[field].to_list())
    return [Problem(file, field, what, bad.height, tuple(head["row"].to_list()), examples)]


def check_texts(frame: pl.DataFrame, field: str, file: str) -> list[Problem]:
    """Return a problem if any text is missing, empty or blank."""
    return check_rows(
        frame, pl.col(field).str.strip_chars() == "", file=file, field=field, what="is empty; every text must have content"
    )


def check_ids(frame: pl.DataFrame, field: str, file: str) -> list[Problem]:
    """Return problems if ids are missing or not unique."""
    given = pl.col(field).is_not_null() & (pl.col(field) != "")
    return [
        *check_rows(frame, ~given, file=file, field=field, what="is empty; every row needs an id"),
        *check_rows(
            frame, given & pl.col(field).is_duplicated(), file=file, field=field, what="is a duplicate; ids must be unique"
        ),
    ]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
