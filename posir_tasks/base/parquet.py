"""Reading Parquet in parts, within limits.

A file of a few kilobytes can stand for millions of rows, or for a long text in each of them, since
columns have runs and dictionaries. Both are checked before values are written out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from posir_tasks.base.files import check_readable
from posir_tasks.base.limits import (
    MAX_BYTES,
    MAX_ROWS,
    LimitError,
    check_rows,
    describe_bytes,
    file_size,
    max_unpacked,
)

#: Rows that are read at a time, each of which may have a long document.
BATCH_ROWS = 64
#: Most bytes of a column that are written out at a time.
BATCH_BYTES = 2**28
#: A file may have this many values for each row of the limit, of all columns and in lists.
VALUES_PER_ROW = 20
#: Most columns, those in lists and objects included.
MAX_COLUMNS = 10_000
#: How text is stored, and encodings in which a value takes no more bytes in the file than in
#: memory.
TEXT = "BYTE_ARRAY"
PLAIN = frozenset({"PLAIN", "RLE", "BIT_PACKED", "DELTA_LENGTH_BYTE_ARRAY"})
#: Type of a page with a dictionary, and bytes that the sizes of a page are in.
DICTIONARY_PAGE = 2
HEADER_BYTES = 24


@dataclass(frozen=True)
class _TextColumn:
    """The values of one column in one group of rows."""

    path: str
    in_lists: bool
    values: int
    longest: int
    """Most bytes of a value that occurs in several rows and once in the file."""


def check_parquet(file: Path) -> int:
    """Return how many rows of a Parquet file may be read at a time.

    Raises:
        LimitError: It has too many rows, columns or values, or texts that are too long together.
        OSError: It cannot be opened, or is no file. pa.ArrowException: It is damaged.
    """
    check_readable(file)
    size = file_size(file)
    with pq.ParquetFile(file) as parquet:
        check_rows(file, parquet.metadata.num_rows, size)
        if parquet.metadata.num_columns > MAX_COLUMNS:
            raise LimitError(
                file,
                f"has {parquet.metadata.num_columns:,} columns, and at most {MAX_COLUMNS:,} are "
                "read",
            )
        values = _count_values(parquet)
        limit = VALUES_PER_ROW * max(MAX_ROWS.read(), size)
        if values > limit:
            raise MAX_ROWS.refuse(file, f"has {values:,} values, and at most {limit:,} are read")
        columns = list(_find_dictionaries(file, parquet))
    suspects = {
        column.path
        for column in columns
        if column.in_lists and column.values * column.longest > max_unpacked(size)
    }
    if suspects:
        _check_lists(file, sorted(suspects))
    longest = max((column.longest for column in columns if not column.in_lists), default=0)
    return BATCH_ROWS if longest == 0 else min(max(BATCH_BYTES // longest, 1), BATCH_ROWS)


def iterate_batches(file: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield all columns of a Parquet file, or some, a few rows at a time; raise as
    `check_parquet`.
    """
    rows = check_parquet(file)
    unpacked = 0
    limit = max_unpacked(file_size(file))
    with pq.ParquetFile(file) as parquet:
        for batch in parquet.iter_batches(rows, columns=columns):
            unpacked += batch.nbytes
            if unpacked > limit:
                raise _refuse_bytes(file, limit)
            yield batch


def _refuse_bytes(file: Path, limit: int) -> LimitError:
    return MAX_BYTES.refuse(file, f"unpacks to more than {describe_bytes(limit)}")


def _count_values(parquet: pq.ParquetFile) -> int:
    metadata = parquet.metadata
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    return sum(
        group.column(place).num_values for group in groups for place in range(metadata.num_columns)
    )


def _find_dictionaries(file: Path, parquet: pq.ParquetFile) -> Iterator[_TextColumn]:
    """Yield the columns of text whose values may take more bytes in memory than in the file."""
    metadata = parquet.metadata
    schema = parquet.schema
    texts = [
        place for place in range(metadata.num_columns) if schema.column(place).physical_type == TEXT
    ]
    with file.open("rb") as content:
        for number in range(metadata.num_row_groups):
            for place in texts:
                column = metadata.row_group(number).column(place)
                if not PLAIN.issuperset(column.encodings):
                    longest = _find_longest(content, column)
                    in_lists = schema.column(place).max_repetition_level > 0
                    yield _TextColumn(
                        schema.column(place).path, in_lists, column.num_values, longest
                    )


def _find_longest(content: BinaryIO, column: pq.ColumnChunkMetaData) -> int:
    """Return the bytes of the dictionary of a column, unpacked; of the whole column if it does not
    begin with one.
    """
    offsets = (column.dictionary_page_offset, column.data_page_offset)
    content.seek(min(offset for offset in offsets if offset))
    header = content.read(HEADER_BYTES)
    is_delta = "DELTA_BYTE_ARRAY" in column.encodings
    try:
        kind, rest = _read_field(header)
        size, _ = _read_field(rest)
    except IndexError:
        return int(column.total_uncompressed_size)
    return size if kind == DICTIONARY_PAGE and not is_delta else int(column.total_uncompressed_size)


def _read_field(header: bytes) -> tuple[int, bytes]:
    """Return the first number of a page's header in Thrift's compact protocol, and what follows
    it.
    """
    value = 0
    place = 1
    shift = 0
    while header[place] & 0x80:
        value |= (header[place] & 0x7F) << shift
        place += 1
        shift += 7
    value |= header[place] << shift
    return value >> 1, header[place + 1 :]


def _check_lists(file: Path, paths: list[str]) -> None:
    """Raise LimitError if the texts in lists take too many bytes; they are read by their
    dictionaries.
    """
    unpacked = 0
    limit = max_unpacked(file_size(file))
    names = sorted({path.partition(".")[0] for path in paths})
    with pq.ParquetFile(file, read_dictionary=paths) as parquet:
        for batch in parquet.iter_batches(columns=names):
            unpacked += sum(map(_measure, batch.columns))
            if unpacked > limit:
                raise _refuse_bytes(file, limit)


def _measure(array: pa.Array) -> int:
    """Return the bytes of values when texts are written out."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        lengths = pc.binary_length(array.dictionary).take(array.indices)
        return int(pc.sum(lengths).as_py() or 0)
    if pa.types.is_struct(kind):
        return sum(map(_measure, array.flatten()))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _measure(array.flatten())
    return int(array.nbytes)
