"""Read Parquet files in batches, within limits.

With run-length or dictionary encoding, a file of a few kilobytes can contain millions of rows, or a
long text in each row. Both are checked before values are expanded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
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
    compute_unpacked_limit,
    describe_bytes,
)

#: Maximum number of rows per batch. Each row may contain a long document.
BATCH_ROWS = 64
#: Maximum size in bytes of a column in a batch.
BATCH_BYTES = 2**28
#: Ratio of the limit for values, in all columns and lists, to the limit for rows.
VALUES_PER_ROW = 20
#: Maximum number of columns, including nested ones.
MAX_COLUMNS = 10_000
#: Storage type of text, and encodings that do not expand.
TEXT = "BYTE_ARRAY"
PLAIN_ENCODINGS = frozenset({"PLAIN", "RLE", "BIT_PACKED", "DELTA_LENGTH_BYTE_ARRAY"})
#: Type code of a dictionary page, and number of bytes to read of a page header.
DICTIONARY_PAGE = 2
HEADER_BYTES = 24


def iterate_batches(file: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield batches of a Parquet file with the given columns, by default all.

    Raises:
        LimitError: The file has too many rows, columns, values or bytes of text.
        OSError: The file cannot be opened or is not a regular file.
        pa.ArrowException: The file is damaged.
    """
    check_readable(file)
    size = file.stat().st_size
    limit = compute_unpacked_limit(size)
    rows = BATCH_ROWS
    # Columns of text in lists. They are read as dictionaries and expanded after a length check.
    dictionaries: set[str] = set()
    with pq.ParquetFile(file) as parquet, file.open("rb") as content:
        schema = parquet.schema_arrow
        chunks = _list_chunks(file, size, parquet.metadata)
        levels = {column.path: column.max_repetition_level for column in parquet.schema}
        for chunk in chunks:
            if chunk.physical_type != TEXT or PLAIN_ENCODINGS.issuperset(chunk.encodings):
                continue
            longest = max(_find_longest(content, chunk), 1)
            if chunk.path_in_schema not in levels:
                raise pa.ArrowInvalid(
                    f"its row groups have an unknown column {chunk.path_in_schema!r}"
                )
            if not levels[chunk.path_in_schema]:
                rows = min(rows, max(BATCH_BYTES // longest, 1))
            elif chunk.num_values * longest > limit:
                dictionaries.add(chunk.path_in_schema)
    total_bytes = 0
    with pq.ParquetFile(file, read_dictionary=sorted(dictionaries)) as parquet:
        for batch in parquet.iter_batches(rows, columns=columns):
            total_bytes += sum(map(_measure_values, batch.columns))
            if total_bytes > limit:
                raise MAX_BYTES.make_error(file, f"unpacks to more than {describe_bytes(limit)}")
            if dictionaries:
                batch = batch.cast(pa.schema([schema.field(name) for name in batch.schema.names]))
            yield batch


def _list_chunks(
    file: Path, size: int, metadata: pq.FileMetaData
) -> Sequence[pq.ColumnChunkMetaData]:
    """List the column chunks of all row groups. Raise LimitError if there are too many values."""
    check_rows(file, metadata.num_rows, size)
    columns = metadata.num_columns
    if columns > MAX_COLUMNS:
        raise LimitError(file, f"has {columns:,} columns; the limit is {MAX_COLUMNS:,}")
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    chunks = [group.column(index) for group in groups for index in range(columns)]
    value_count = sum(chunk.num_values for chunk in chunks)
    limit = VALUES_PER_ROW * max(MAX_ROWS.read(), size)
    if value_count > limit:
        raise MAX_ROWS.make_error(file, f"has {value_count:,} values; the limit is {limit:,}")
    return chunks


def _find_longest(content: BinaryIO, column: pq.ColumnChunkMetaData) -> int:
    """Read the unpacked size of a column's dictionary, or of the column if it has no dictionary."""
    offsets = (column.dictionary_page_offset, column.data_page_offset)
    content.seek(min(offset for offset in offsets if offset))
    header = content.read(HEADER_BYTES)
    is_delta = "DELTA_BYTE_ARRAY" in column.encodings
    try:
        kind, remainder = _read_field(header)
        size, _ = _read_field(remainder)
    except IndexError:
        return int(column.total_uncompressed_size)
    return size if kind == DICTIONARY_PAGE and not is_delta else int(column.total_uncompressed_size)


def _read_field(header: bytes) -> tuple[int, bytes]:
    """Parse a number in Thrift's compact protocol. Return the number and the remaining bytes."""
    value = 0
    # The first byte is the type of the field.
    for index in count(1):
        value |= (header[index] & 0x7F) << 7 * (index - 1)
        if not header[index] & 0x80:
            break
    return value >> 1, header[index + 1 :]


def _measure_values(array: pa.Array) -> int:
    """Compute the size in bytes of values after expansion."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        lengths = pc.binary_length(array.dictionary).take(array.indices)
        return int(pc.sum(lengths).as_py() or 0)
    if pa.types.is_struct(kind):
        return sum(map(_measure_values, array.flatten()))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _measure_values(array.flatten())
    return int(array.nbytes)
