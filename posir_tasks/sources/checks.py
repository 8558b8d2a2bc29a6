"""Checks of data, column by column: every problem names file, field, rows and count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from polars._typing import PolarsDataType

from posir_tasks.errors import DataError

#: How many of a problem's rows are named.
EXAMPLES = 5


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with a file."""

    file: str
    field: str
    what: str
    """What is wrong and what is allowed."""
    count: int = 1
    """Number of rows it concerns."""
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
            rows = f"; {self.count} row{'s' if self.count > 1 else ''}, first: {named}"
        return f"{self.file}: field '{self.field}': {self.what}{rows}"


def refuse(problems: Iterable[Problem]) -> None:
    """Raise one error for all problems, if there are any.

    Raises:
        DataError: There is a problem.
    """
    lines = [str(problem) for problem in problems]
    if lines:
        raise DataError("\n".join(lines))


def read_columns(file: Path, columns: Mapping[str, PolarsDataType]) -> pl.DataFrame:
    """Read columns of a parquet file, each as the type wanted.

    Raises:
        DataError: The file is corrupt, a column is missing or of another kind.
    """
    try:
        present = pl.read_parquet_schema(file)
        missing = [name for name in columns if name not in present]
        if missing:
            raise DataError(f"{file}: missing column(s) {', '.join(missing)}; the file has {', '.join(present)}.")
        frame = pl.read_parquet(file, columns=list(columns))
    except DataError:
        raise
    except (pl.exceptions.PolarsError, OSError, RuntimeError) as error:
        raise DataError(f"{file}: not a readable parquet file ({str(error).splitlines()[0]}).") from error
    unfit = [
        f"{file}: field '{name}': is {present[name]}, must be {wanted}."
        for name, wanted in columns.items()
        if not is_kind_of(present[name], wanted)
    ]
    if unfit:
        raise DataError("\n".join(unfit))
    return frame.cast(dict(columns))  # type: ignore[arg-type]


def is_kind_of(present: PolarsDataType, wanted: PolarsDataType) -> bool:
    """Whether every value of one type is one of another: an integer of any size, a list or array of such, a number, a text."""
    if isinstance(wanted, pl.Struct):
        fields = {field.name: field.dtype for field in present.fields} if isinstance(present, pl.Struct) else {}
        return all(field.name in fields and is_kind_of(fields[field.name], field.dtype) for field in wanted.fields)
    if isinstance(wanted, pl.List):
        return isinstance(present, pl.List | pl.Array) and is_kind_of(present.inner, wanted.inner)
    if wanted == pl.Int64:
        return present.is_integer()
    if wanted == pl.Float64:
        return present.is_numeric()
    return present == wanted


def rows_where(frame: pl.DataFrame, condition: pl.Expr, *, file: str, field: str, what: str) -> list[Problem]:
    """Return a problem if the condition holds for any row; a condition that is null counts as true."""
    bad = frame.with_row_index("row").filter(condition.fill_null(True))
    if bad.is_empty():
        return []
    head = bad.head(EXAMPLES)
    examples = tuple(_short(value) for value in head[field].to_list())
    return [Problem(file, field, what, bad.height, tuple(head["row"].to_list()), examples)]


def text_problems(frame: pl.DataFrame, field: str, file: str) -> list[Problem]:
    """Return a problem if any text is missing, empty or blank."""
    return rows_where(
        frame, pl.col(field).str.strip_chars() == "", file=file, field=field, what="is empty; every text must have content"
    )


def id_problems(frame: pl.DataFrame, field: str, file: str) -> list[Problem]:
    """Return problems if ids are missing or not unique."""
    return rows_where(frame, pl.col(field) == "", file=file, field=field, what="is empty; every row needs an id") or rows_where(
        frame, pl.col(field).is_duplicated(), file=file, field=field, what="is a duplicate; ids must be unique"
    )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
