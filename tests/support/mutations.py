"""Random changes to the files of a domain in the PosIR layout, as Hypothesis strategies."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from tests.support.datasets import FILES, posir_tables

FIELDS = [(name, column) for name, table in posir_tables().items() for column in table.columns]
#: Fields with the values of a cell; spans and judgements, of which most can go wrong, come up more often.
CELL_FIELDS = [*FIELDS, *[("queries", "pos_char_span")] * 5, ("qrels", "score"), ("qrels", "corpus-id")]
INTEGERS = [0, -1, 1, 7, 10**6, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, None]
#: Values that a cell of a column may be changed to: of its kind, or as near to it as a mistake is.
CELLS: dict[str, list[Any]] = {
    "_id": ["", " ", "q0", "d0", "d1", None],
    "text": ["", " \n", "\u3000", None, "é", "e\u0301", "x" * 5_000, "\x00"],
    "pos_char_span": [
        *(
            [],
            [1],
            [1, 2, 3],
            [2, 1],
            [1, 1],
            [5, 5],
            [9, 9],
            [0, 1],
            [0, 31],
            [0, 32],
            [7, 33],
            [0, 52],
            [40, 53],
            [-1, 2],
            [-5, 1],
        ),
        *([None, 3], [3, None], None, [2**62, 2**62 + 5], [0, 2**31], [0, 2**63 - 1], [0, 2**63], [2**64 - 2, 2**64 - 1]),
    ],
    "pos_char_length": INTEGERS,
    "pos_token_length": INTEGERS,
    "query-id": ["", "q0", "q9", None],
    "corpus-id": ["", "d0", "d4", "d9", None],
    "score": [0, 1, 2, -1, None, float("nan"), float("inf"), 0.5, 1e-300],
}
#: Values that a whole column may be changed to.
COLUMNS = [
    *(None, "", "1", 1, -1, 2**63 - 1, 1.0, 1.5, float("nan"), True, b"\xff\xfe", Decimal("1.5"), [1, 2], ["a"], []),
    *([[1, 2]], {"start": 1, "end": 2}, [1.0, 2.0], pd.Timestamp("2020-01-01")),
]
TYPES = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64(), pa.string()),
    *(pa.large_string(), pa.binary(), pa.bool_(), pa.decimal128(20, 0), pa.list_(pa.int32(), 2), pa.large_list(pa.int64())),
    *(pa.list_(pa.uint64()), pa.list_(pa.float64()), pa.list_(pa.int8()), pa.dictionary(pa.int32(), pa.string())),
]


@dataclass(frozen=True)
class OfTable:
    """A change of one table; where an earlier change has left nothing to change, it does nothing."""

    name: str
    what: str
    change: Callable[[pa.Table], pa.Table] = field(repr=False)

    def __call__(self, folder: Path) -> None:
        file = folder / FILES[self.name]
        try:
            changed = self.change(pq.ParquetFile(file).read())
        except (OSError, pa.ArrowException, KeyError, ValueError, TypeError, ZeroDivisionError):
            return
        pq.write_table(changed, file)


@dataclass(frozen=True)
class OfFile:
    """A change of one file's bytes."""

    name: str
    what: str
    change: Callable[[Path], object] = field(repr=False)

    def __call__(self, folder: Path) -> None:
        file = folder / FILES[self.name]
        if file.is_file():
            try:
                self.change(file)
            except (OSError, pa.ArrowException, ValueError):
                return


@dataclass(frozen=True)
class Swap:
    """A change of the files' names."""

    names: list[str]

    def __call__(self, folder: Path) -> None:
        files = [folder / FILES[name] for name in FILES]
        contents = [file.read_bytes() if file.is_file() else b"" for file in files]
        for name, content in zip(self.names, contents, strict=True):
            if not (folder / FILES[name]).is_dir():
                (folder / FILES[name]).write_bytes(content)


def with_column(table: pa.Table, name: str, column: Any) -> pa.Table:
    """Return the table with a column replaced.

    Raises:
        KeyError: There is no such column.
    """
    if name not in table.column_names:
        raise KeyError(name)
    return table.set_column(table.column_names.index(name), name, column)


def fitting(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return values as their column's type, or else as one that holds them."""
    for wanted in (kind, pa.uint64(), pa.list_(pa.uint64()), pa.float64()):
        try:
            return pa.array(values, wanted)
        except (pa.ArrowException, OverflowError):
            continue
    return pa.array([str(value) for value in values])


@st.composite
def cells(draw: st.DrawFn) -> OfTable:
    name, column = draw(st.sampled_from(CELL_FIELDS))
    row, value = draw(st.integers(0, 6)), draw(st.sampled_from(CELLS[column]))

    def change(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        values[row % len(values)] = value
        return with_column(table, column, fitting(values, table[column].type))

    return OfTable(name, f"{column}[{row}] = {str(value)[:40]!r}", change)


@st.composite
def columns(draw: st.DrawFn) -> OfTable:
    name, column = draw(st.sampled_from(FIELDS))
    value, new = draw(st.sampled_from(COLUMNS)), draw(st.booleans())

    def change(table: pa.Table) -> pa.Table:
        values = pa.array([value] * table.num_rows)
        return table.append_column("more", values) if new else with_column(table, column, values)

    return OfTable(name, f"{'more' if new else column} = {value!r}", change)


@st.composite
def types(draw: st.DrawFn) -> OfTable:
    name, column = draw(st.sampled_from(FIELDS))
    kind = draw(st.sampled_from(TYPES))
    return OfTable(
        name, f"{column} as {kind}", lambda table: with_column(table, column, table[column].combine_chunks().cast(kind))
    )


@st.composite
def names(draw: st.DrawFn) -> OfTable:
    """Columns renamed, exchanged, dropped or in another order."""
    name, column = draw(st.sampled_from(FIELDS))
    other, how = draw(st.sampled_from(FIELDS))[1], draw(st.integers(0, 3))
    new_names = {column: other} if how == 0 else {column: other, other: column}

    def change(table: pa.Table) -> pa.Table:
        if how < 2:
            return table.rename_columns([new_names.get(present, present) for present in table.column_names])
        return table.drop_columns([column]) if how == 2 else table.select(table.column_names[::-1])

    return OfTable(name, f"{('rename', 'exchange', 'drop', 'reverse')[how]} {column}, {other}", change)


@st.composite
def rows(draw: st.DrawFn) -> OfTable:
    """Rows shuffled, repeated, or left out."""
    name = draw(st.sampled_from([*FILES]))
    chosen = draw(st.permutations(range(7)) | st.lists(st.integers(0, 6), max_size=9))
    return OfTable(name, f"rows {chosen}", lambda table: table.take([row for row in chosen if row < table.num_rows]))


@st.composite
def judgements(draw: st.DrawFn) -> OfTable:
    """A pair of query and document more, judged in some way."""
    query, document = draw(st.sampled_from(["q0", "q3", "q9"])), draw(st.sampled_from(["d0", "d1", "d4", "d9"]))
    score = draw(st.sampled_from([0, 1, 1, -1]))

    def change(table: pa.Table) -> pa.Table:
        more = [{"query-id": query, "corpus-id": document, "score": score}]
        return pa.concat_tables([table, pa.Table.from_pylist(more, schema=table.schema)])

    return OfTable("qrels", f"{query}, {document}: {score}", change)


def _as_json(file: Path) -> None:
    file.write_text(json.dumps(pq.ParquetFile(file).read().to_pylist(), default=str), encoding="utf-16")


def _as_csv(file: Path) -> None:
    pd.DataFrame(pq.ParquetFile(file).read().to_pylist()).to_csv(file, index=False)


def _as_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@st.composite
def contents(draw: st.DrawFn) -> OfFile:
    name, how = draw(st.sampled_from([*FILES])), draw(st.sampled_from(["cut", "bytes", "before", "after", "flip"]))
    part, new = draw(st.floats(0, 1)), draw(st.binary(max_size=40))

    def change(file: Path) -> None:
        old = file.read_bytes()
        at = int(part * len(old))
        changed = {"cut": old[:at], "bytes": new, "before": new + old, "after": old + new}
        changed["flip"] = old[:at] + new + old[at + len(new) :]
        file.write_bytes(changed[how])

    return OfFile(name, f"{how} {part} {new!r}", change)


@st.composite
def formats(draw: st.DrawFn) -> OfFile:
    """The same content in another kind of file, or in a parquet file that is written otherwise."""
    name, other = draw(st.sampled_from([*FILES])), draw(st.sampled_from([Path.unlink, _as_csv, _as_json, _as_folder, None]))
    options = draw(
        st.sampled_from(
            [
                *({"compression": codec} for codec in ("gzip", "zstd", "brotli", "lz4", "none")),
                *({"row_group_size": 2}, {"data_page_version": "2.0"}, {"use_dictionary": False}, {"version": "1.0"}),
            ]
        )
    )
    if other is not None:
        return OfFile(name, other.__name__, other)
    return OfFile(name, str(options), lambda file: pq.write_table(pq.ParquetFile(file).read(), file, **options))


SWAPS = st.builds(Swap, st.permutations([*FILES]))
#: One to three changes of a domain's folder, to be made one after the other.
MUTATIONS = st.lists(
    st.one_of(*[cells()] * 5, judgements(), columns(), types(), names(), rows(), contents(), formats(), SWAPS),
    min_size=1,
    max_size=3,
)
