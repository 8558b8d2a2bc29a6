"""Read tables, and check them by column. Problems name file, field, rows and row count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short_repr
from typing import Any, TypeAlias

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from polars._typing import PolarsDataType

from posir_tasks.base.errors import DataError, summarize_error
from posir_tasks.base.files import GZIP_ERRORS, check_readable, split_suffix
from posir_tasks.base.limits import LimitError
from posir_tasks.base.parquet import iterate_batches
from posir_tasks.base.table_files import read_json_rows
from posir_tasks.base.untrusted import InputError, require_distinct
from posir_tasks.base.wording import pluralize

#: Suffixes of JSON files.
JSON = (".json", ".jsonl")
#: Number of JSON lines to read to find the columns.
SCHEMA_LINES = 1_000
#: Column types by name.
Schema: TypeAlias = Mapping[str, PolarsDataType]
NO_COLUMNS: Schema = {}
UNREADABLE = (
    pa.ArrowException,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    OSError,
    ValueError,
)
#: Maximum number of rows to list in a problem.
MAX_EXAMPLES = 5
#: Key of tolerated documents without text.
DOCUMENTS_WITHOUT_TEXT = "documents_without_text"


@dataclass(frozen=True)
class DataProblem:
    """A problem in a file."""

    file: str
    field: str | None
    """None if the problem concerns the whole file."""
    message: str
    count: int = 1
    """Number of affected rows; 1 if the problem does not concern rows."""
    rows: tuple[int, ...] = ()
    """0-based indices of the first affected rows."""
    examples: tuple[str, ...] = ()

    def __str__(self) -> str:
        field = f" field '{self.field}':" if self.field else ""
        text = f"{self.file}:{field} {self.message}"
        if not self.rows:
            return text
        pairs = zip(self.rows, self.examples, strict=True)
        examples = ", ".join(f"{row} ({example})" for row, example in pairs)
        return f"{text}; {pluralize(self.count, 'row')}, first: {examples}"


class ProblemsError(DataError):
    """The data is invalid. `problems` lists all errors."""

    def __init__(self, problems: Iterable[DataProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))

    def __reduce__(self) -> tuple[type[DataError], tuple[tuple[DataProblem, ...]]]:
        """Pickle the problems, not only the message."""
        return type(self), (self.problems,)


def raise_problems(problems: Iterable[DataProblem]) -> None:
    """Raise a ProblemsError if there is any problem."""
    if errors := [*problems]:
        raise ProblemsError(errors)


@dataclass(frozen=True)
class ToleratedRows:
    """Rows that violate a rule without stopping a task."""

    key: str
    """Key of the count in results, such as `documents_without_text`."""
    count: int
    sentence: str


def count_tolerated(tolerated: Iterable[ToleratedRows]) -> dict[str, int]:
    """Count the tolerated rows by key, sorted by key."""
    counts = Counter[str]()
    for rows in tolerated:
        counts[rows.key] += rows.count
    return dict(sorted(counts.items()))


@dataclass(frozen=True)
class Rule:
    """A rule for table rows. Validation reports violations; a task counts them and warns."""

    field: str
    invalid: pl.Expr
    """True or null for rows that violate the rule."""
    message: str
    key: str
    """Key of the tolerated rows in results."""
    description: str
    """Follows the number of rows in messages: `documents have no text`."""
    outcome: str = ""
    """What a task does with the rows; if empty, it omits them."""
    excluded: pl.Expr | None = None
    """True for rows that a task omits and counts; by default all rows that violate the rule."""
    is_problem: bool = True
    """If false, `posir validate` only warns about the rows."""


def build_id_rules(field: str, nouns: str) -> tuple[Rule, ...]:
    """Build the rules for document or query ids. A task keeps the first row with each id."""
    column = pl.col(field)
    present = column.is_not_null() & (column != "")
    return (
        Rule(
            field,
            ~present,
            "is empty; every row needs an id",
            f"{nouns}_without_id",
            f"{nouns} have no id",
        ),
        Rule(
            field,
            present & column.is_duplicated(),
            "is a duplicate; ids must be unique",
            f"{nouns}_with_repeated_id",
            f"{nouns} repeat an earlier id",
            excluded=present & ~column.is_first_distinct(),
        ),
        Rule(
            field,
            column.str.contains("\0", literal=True).fill_null(False),
            "contains a null character, which ends an id in some libraries; remove it",
            f"{nouns}_with_invalid_id",
            f"{nouns} have an id with a null character",
        ),
    )


def build_text_rule(field: str, nouns: str, *, keep: bool) -> Rule:
    """Build the rule for nonblank texts. If `keep`, a task keeps blank texts."""
    return Rule(
        field,
        pl.col(field).str.strip_chars() == "",
        "is empty; every text must have content",
        f"{nouns}_without_text",
        f"{nouns} have no text",
        "kept" if keep else "",
        is_problem=not keep,
    )


@dataclass(frozen=True)
class CheckedTable:
    """A table and its file."""

    file: str
    frame: pl.DataFrame

    def check(self, rules: Iterable[Rule]) -> list[DataProblem]:
        """Return a problem for each violated rule."""
        problems = []
        for rule in self._list_applicable(rules):
            problems += self.check_rows(rule.invalid, rule.field, rule.message)
        return problems

    def _list_applicable(self, rules: Iterable[Rule]) -> list[Rule]:
        present = {*self.frame.columns}
        return [
            rule
            for rule in rules
            if present.issuperset([rule.field, *rule.invalid.meta.root_names()])
        ]

    def tolerate(self, rules: Iterable[Rule]) -> tuple[CheckedTable, list[ToleratedRows]]:
        """Remove the unusable rows. Also return the tolerated rows, each counted once."""
        frame = self.frame
        tolerated = []
        for rule in self._list_applicable(rules):
            condition = rule.invalid if rule.excluded is None else rule.excluded
            is_excluded = frame.select(condition.fill_null(True)).to_series()
            count = int(is_excluded.sum())
            if not count:
                continue
            outcome = rule.outcome or "left out"
            sentence = f"{count:,} of {frame.height:,} {rule.description}: {outcome}"
            tolerated.append(ToleratedRows(rule.key, count, sentence))
            if not rule.outcome:
                frame = frame.filter(~is_excluded)
        return CheckedTable(self.file, frame), tolerated

    def check_rows(self, invalid: pl.Expr, field: str, message: str) -> list[DataProblem]:
        """Return a problem if `invalid` is true or null for any row."""
        rows = self.frame.with_row_index("row").filter(invalid.fill_null(True))
        if rows.is_empty():
            return []
        head = rows.head(MAX_EXAMPLES)
        examples = tuple(map(short_repr, head[field].to_list()))
        return [DataProblem(self.file, field, message, rows.height, tuple(head["row"]), examples)]


def read_columns(file: Path, columns: Schema, optional: Schema = NO_COLUMNS) -> pl.DataFrame:
    """Read and cast columns of a Parquet or JSON file; raise ProblemsError if a required column is
    missing or a column cannot be cast.
    """
    frame, problems = read_valid_columns(file, columns, optional)
    raise_problems(problems)
    return frame


def read_valid_columns(
    file: Path, columns: Schema, optional: Schema = NO_COLUMNS
) -> tuple[pl.DataFrame, list[DataProblem]]:
    """Read and cast the valid columns. Also return the problems of the other columns."""
    try:
        names = _read_schema(file).names
        present_optional = {name: dtype for name, dtype in optional.items() if name in names}
        required_columns = {**columns, **present_optional}
        present = read_column_types(file, required_columns)
        fitting = [
            name for name, dtype in present.items() if _is_compatible(dtype, required_columns[name])
        ]
        frame = read_table(file, fitting)
    except ProblemsError as error:
        return pl.DataFrame(), list(error.problems)
    problems = []
    for name, dtype in required_columns.items():
        if name not in fitting:
            message = f"missing column; the file has {', '.join(names) or 'none'}."
            if name in present:
                message = f"is {present[name]}, must be {dtype}."
            problems.append(DataProblem(str(file), name, message))
    for name in fitting:
        column = frame[name]
        try:
            frame = frame.with_columns(column.cast(required_columns[name]))
        except pl.exceptions.InvalidOperationError:
            restored = column.cast(required_columns[name], strict=False).cast(column.dtype)
            has_changed = pl.lit(column.ne_missing(restored))
            table = CheckedTable(str(file), frame)
            problems += table.check_rows(
                has_changed, name, f"does not fit {required_columns[name]}"
            )
            frame = frame.drop(name)
    return frame, problems


def _is_parquet(file: Path) -> bool:
    return split_suffix(file)[1] not in JSON


@contextmanager
def _convert_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except LimitError:
        raise
    except InputError as error:
        raise ProblemsError([DataProblem(str(file), None, f"{error.problem}.")]) from error
    except (*UNREADABLE, *GZIP_ERRORS) as error:
        kind = "parquet" if _is_parquet(file) else "JSON"
        message = f"not a readable {kind} file ({summarize_error(error)})."
        raise ProblemsError([DataProblem(str(file), None, message)]) from error


def read_column_types(
    file: Path, columns: Iterable[str] | None = None
) -> dict[str, PolarsDataType]:
    """Return the types of the present `columns`, or of all columns.

    Raises:
        ProblemsError: The file is corrupt, or a column name is not unique.
    """
    schema = _read_schema(file)
    with _convert_errors(file):
        occurrences = Counter(schema.names)
        names = [*occurrences] if columns is None else [*columns]
        message = "several columns have this name; keep one of them."
        raise_problems(
            DataProblem(str(file), name, message) for name in names if occurrences[name] > 1
        )
        present = [name for name in names if name in occurrences]
        return dict(_to_polars(schema.empty_table(), present).schema)


def _read_schema(file: Path) -> pa.Schema:
    with _convert_errors(file):
        check_readable(file)
        if _is_parquet(file):
            schema = pq.read_schema(file)
        else:
            schema = read_json_rows(file, SCHEMA_LINES).to_arrow().schema
        # Arrow decodes the names on access, which may fail.
        return schema if schema.names else pa.schema([])


def read_table(file: Path, columns: list[str]) -> pl.DataFrame:
    """Read columns without casting; raise ProblemsError if the file is corrupt."""
    with _convert_errors(file):
        if not _is_parquet(file):
            return read_json_rows(file).select(columns)
        # For corrupt files, Arrow raises an error, but polars may panic or exhaust memory.
        batches = list(iterate_batches(file, columns))
        table = pa.Table.from_batches(batches) if batches else _read_schema(file).empty_table()
        return _to_polars(table, columns)


def iterate_rows(file: Path) -> Iterator[dict[str, Any]]:
    """Stream the rows of a Parquet file; raise ProblemsError if it is corrupt."""
    with _convert_errors(file):
        check_readable(file)
        require_distinct(pq.read_schema(file).names, file)
        for batch in iterate_batches(file):
            yield from batch.to_pylist()


def _to_polars(table: pa.Table, columns: list[str]) -> pl.DataFrame:
    table = table.select(columns)
    # polars panics if metadata is not UTF-8.
    schema = pa.schema([field.remove_metadata() for field in table.schema])
    table = pa.Table.from_arrays(table.columns, schema=schema)
    table.validate(full=True)
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    # Operations on many small batches would take several times as long.
    return frame.rechunk()


def _is_compatible(present: PolarsDataType, required_type: PolarsDataType) -> bool:
    """Return True if a column type can be cast to the required type without losing its meaning."""
    if isinstance(required_type, pl.Struct) and isinstance(present, pl.Struct):
        types = present.to_schema()
        return all(
            _is_compatible(types.get(name, pl.Null()), dtype)
            for name, dtype in required_type.to_schema().items()
        )
    if isinstance(required_type, pl.List) and isinstance(present, pl.List | pl.Array):
        return _is_compatible(present.inner, required_type.inner)
    if required_type == pl.Int64:
        return present.is_integer()
    return present.is_numeric() if required_type == pl.Float64 else present == required_type
