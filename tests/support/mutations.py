"""Random changes to the files of a domain in the PosIR layout, as Hypothesis strategies."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from tests.support.datasets import FILES, posir_tables

FIELDS = [(name, column) for name, table in posir_tables().items() for column in table.columns]
#: Fields whose cells are mutated; spans and judgments, which have the most rules, are drawn more
#: often.
CELL_FIELDS = [
    *FIELDS,
    *[("queries", "pos_char_span")] * 5,
    ("qrels", "score"),
    ("qrels", "corpus-id"),
]
INTEGERS = [0, -1, 1, 7, 10**6, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, None]
#: Values for a cell of a column: of its type, or of a type that a mistake could produce.
CELLS: dict[str, list[Any]] = {
    "_id": ["", " ", "q0", "d0", "d1", None],
    "text": ["", " \n", "\u3000", None, "é", "e\u0301", "x" * 5_000, "\x00"],
    "pos_char_span": [
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
        [None, 3],
        [3, None],
        None,
        [2**62, 2**62 + 5],
        [0, 2**31],
        [0, 2**63 - 1],
        [0, 2**63],
        [2**64 - 2, 2**64 - 1],
    ],
    "pos_char_length": INTEGERS,
    "pos_token_length": INTEGERS,
    "query-id": ["", "q0", "q9", None],
    "corpus-id": ["", "d0", "d4", "d9", None],
    "score": [0, 1, 2, -1, None, float("nan"), float("inf"), 0.5, 1e-300],
}
#: Values for all cells of a column.
COLUMNS = [
    *(
        None,
        "",
        "1",
        1,
        -1,
        2**63 - 1,
        1.0,
        1.5,
        float("nan"),
        True,
        b"\xff\xfe",
        Decimal("1.5"),
        [1, 2],
        ["a"],
        [],
    ),
    *([[1, 2]], {"start": 1, "end": 2}, [1.0, 2.0], pd.Timestamp("2020-01-01")),
]
TYPES = [
    *(
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.uint8(),
        pa.uint32(),
        pa.uint64(),
        pa.float32(),
        pa.float64(),
        pa.string(),
    ),
    *(
        pa.large_string(),
        pa.binary(),
        pa.bool_(),
        pa.decimal128(20, 0),
        pa.list_(pa.int32(), 2),
        pa.large_list(pa.int64()),
    ),
    *(
        pa.list_(pa.uint64()),
        pa.list_(pa.float64()),
        pa.list_(pa.int8()),
        pa.dictionary(pa.int32(), pa.string()),
    ),
]


@dataclass(frozen=True)
class Mutation:
    """A change of one file; does nothing if an earlier change has made it impossible."""

    name: str
    what: str
    change: Callable[[Path], object] = field(repr=False)

    def __call__(self, folder: Path) -> None:
        with suppress(
            OSError, pa.ArrowException, KeyError, ValueError, TypeError, ZeroDivisionError
        ):
            self.change(folder / FILES[self.name])


def change_table(name: str, what: str, change: Callable[[pa.Table], pa.Table]) -> Mutation:
    return Mutation(
        name, what, lambda file: pq.write_table(change(pq.ParquetFile(file).read()), file)
    )


def swap_files(names: list[str], folder: Path) -> None:
    """Permute the contents of the files."""
    contents = [
        (folder / file).read_bytes() if (folder / file).is_file() else b""
        for file in FILES.values()
    ]
    for name, content in zip(names, contents, strict=True):
        if not (folder / FILES[name]).is_dir():
            (folder / FILES[name]).write_bytes(content)


def with_column(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


def as_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return values as the type of their column, or else as the first type that represents them."""
    for dtype in (kind, pa.uint64(), pa.list_(pa.uint64()), pa.float64()):
        try:
            return pa.array(values, dtype)
        except (pa.ArrowException, OverflowError):
            continue
    return pa.array([str(value) for value in values])


@st.composite
def cells(draw: st.DrawFn) -> Mutation:
    name, column = draw(st.sampled_from(CELL_FIELDS))
    row, value = draw(st.integers(0, 6)), draw(st.sampled_from(CELLS[column]))

    def change(table: pa.Table) -> pa.Table:
        values = table[column].to_pylist()
        values[row % len(values)] = value
        return with_column(table, column, as_array(values, table[column].type))

    return change_table(name, f"{column}[{row}] = {str(value)[:40]!r}", change)


@st.composite
def columns(draw: st.DrawFn) -> Mutation:
    name, column = draw(st.sampled_from(FIELDS))
    value, new = draw(st.sampled_from(COLUMNS)), draw(st.booleans())

    def change(table: pa.Table) -> pa.Table:
        values = pa.array([value] * table.num_rows)
        return table.append_column("more", values) if new else with_column(table, column, values)

    return change_table(name, f"{'more' if new else column} = {value!r}", change)


@st.composite
def types(draw: st.DrawFn) -> Mutation:
    name, column = draw(st.sampled_from(FIELDS))
    kind = draw(st.sampled_from(TYPES))
    return change_table(
        name,
        f"{column} as {kind}",
        lambda table: with_column(table, column, table[column].combine_chunks().cast(kind)),
    )


@st.composite
def names(draw: st.DrawFn) -> Mutation:
    """Columns renamed, exchanged, dropped or reversed."""
    name, column = draw(st.sampled_from(FIELDS))
    other, how = draw(st.sampled_from(FIELDS))[1], draw(st.integers(0, 3))
    new_names = {column: other} if how == 0 else {column: other, other: column}

    def change(table: pa.Table) -> pa.Table:
        if how < 2:
            return table.rename_columns(
                [new_names.get(present, present) for present in table.column_names]
            )
        return table.drop_columns([column]) if how == 2 else table.select(table.column_names[::-1])

    return change_table(
        name, f"{('rename', 'exchange', 'drop', 'reverse')[how]} {column}, {other}", change
    )


@st.composite
def rows(draw: st.DrawFn) -> Mutation:
    """Rows shuffled, repeated, or removed."""
    name = draw(st.sampled_from([*FILES]))
    chosen = draw(st.permutations(range(7)) | st.lists(st.integers(0, 6), max_size=9))
    return change_table(
        name,
        f"rows {chosen}",
        lambda table: table.take([row for row in chosen if row < table.num_rows]),
    )


@st.composite
def judgments(draw: st.DrawFn) -> Mutation:
    """An additional judgment of a pair of query and document."""
    query, document = (
        draw(st.sampled_from(["q0", "q3", "q9"])),
        draw(st.sampled_from(["d0", "d1", "d4", "d9"])),
    )
    score = draw(st.sampled_from([0, 1, 1, -1]))

    def change(table: pa.Table) -> pa.Table:
        more = [{"query-id": query, "corpus-id": document, "score": score}]
        return pa.concat_tables([table, pa.Table.from_pylist(more, schema=table.schema)])

    return change_table("qrels", f"{query}, {document}: {score}", change)


def _as_json(file: Path) -> None:
    file.write_text(
        json.dumps(pq.ParquetFile(file).read().to_pylist(), default=str), encoding="utf-16"
    )


def _as_csv(file: Path) -> None:
    pd.DataFrame(pq.ParquetFile(file).read().to_pylist()).to_csv(file, index=False)


def _as_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


@st.composite
def contents(draw: st.DrawFn) -> Mutation:
    name, how = (
        draw(st.sampled_from([*FILES])),
        draw(st.sampled_from(["cut", "bytes", "before", "after", "flip"])),
    )
    part, new = draw(st.floats(0, 1)), draw(st.binary(max_size=40))

    def change(file: Path) -> None:
        old = file.read_bytes()
        at = int(part * len(old))
        changed = {"cut": old[:at], "bytes": new, "before": new + old, "after": old + new}
        changed["flip"] = old[:at] + new + old[at + len(new) :]
        file.write_bytes(changed[how])

    return Mutation(name, f"{how} {part} {new!r}", change)


@st.composite
def formats(draw: st.DrawFn) -> Mutation:
    """The same content in another file format, or in a parquet file with other options."""
    name, other = (
        draw(st.sampled_from([*FILES])),
        draw(st.sampled_from([Path.unlink, _as_csv, _as_json, _as_folder, None])),
    )
    codecs = [{"compression": codec} for codec in ("gzip", "zstd", "brotli", "lz4", "none")]
    layouts = [
        {"row_group_size": 2},
        {"data_page_version": "2.0"},
        {"use_dictionary": False},
        {"version": "1.0"},
    ]
    options = draw(st.sampled_from([*codecs, *layouts]))
    if other is not None:
        return Mutation(name, other.__name__, other)
    return Mutation(
        name,
        str(options),
        lambda file: pq.write_table(pq.ParquetFile(file).read(), file, **options),
    )


SWAPS = st.permutations([*FILES]).map(lambda names: partial(swap_files, names))
#: One to three consecutive changes of the folder of a domain.
MUTATIONS = st.lists(
    st.one_of(
        *[cells()] * 5,
        judgments(),
        columns(),
        types(),
        names(),
        rows(),
        contents(),
        formats(),
        SWAPS,
    ),
    min_size=1,
    max_size=3,
)
