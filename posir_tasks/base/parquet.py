"""Reading Parquet in parts, within limits.

A file of a few kilobytes can stand for millions of rows, or for a long text in each of them, since
columns have runs and dictionaries. Both are checked before values are written out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
#: Maximum number of bytes of a column that are written out at a time.
BATCH_BYTES = 2**28
#: A file may have this many values for each row of the limit, of all columns and in lists.
VALUES_PER_ROW = 20
#: Maximum number of columns, those in lists and objects included.
MAX_COLUMNS = 10_000
#: How text is stored, and encodings in which a value takes no more bytes in the file than in
#: memory.
TEXT = "BYTE_ARRAY"
PLAIN = frozenset({"PLAIN", "RLE", "BIT_PACKED", "DELTA_LENGTH_BYTE_ARRAY"})
#: Type of a page with a dictionary, and bytes that the sizes of a page are in.
DICTIONARY_PAGE = 2
HEADER_BYTES = 24


def iterate_batches(file: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield all columns of a Parquet file, or some, a few rows at a time.

    Raises:
        LimitError: It has too many rows, columns or values, or texts that are too long together.
        OSError: It cannot be opened, or is no file. pa.ArrowException: It is damaged.
    """
    check_readable(file)
    size = file_size(file)
    limit = max_unpacked(size)
    rows = BATCH_ROWS
    # Texts in lists are read by their dictionaries, and written out once their length is known.
    dictionaries: set[str] = set()
    with pq.ParquetFile(file) as parquet, file.open("rb") as content:
        schema = parquet.schema_arrow
        chunks = _check_size(file, size, parquet.metadata)
        levels = {column.path: column.max_repetition_level for column in parquet.schema}
        for chunk in chunks:
            if chunk.physical_type != TEXT or PLAIN.issuperset(chunk.encodings):
                continue
            longest = max(_find_longest(content, chunk), 1)
            if chunk.path_in_schema not in levels:
                raise pa.ArrowInvalid(f"its groups of rows have a column {chunk.path_in_schema!r}")
            if not levels[chunk.path_in_schema]:
                rows = min(rows, max(BATCH_BYTES // longest, 1))
            elif chunk.num_values * longest > limit:
                dictionaries.add(chunk.path_in_schema)
    unpacked = 0
    with pq.ParquetFile(file, read_dictionary=sorted(dictionaries)) as parquet:
        for batch in parquet.iter_batches(rows, columns=columns):
            unpacked += sum(map(_measure, batch.columns))
            if unpacked > limit:
                raise MAX_BYTES.refuse(file, f"unpacks to more than {describe_bytes(limit)}")
            if dictionaries:
                batch = batch.cast(pa.schema([schema.field(name) for name in batch.schema.names]))
            yield batch


def _check_size(
    file: Path, size: int, metadata: pq.FileMetaData
) -> Sequence[pq.ColumnChunkMetaData]:
    """List the columns of each group of rows; raise LimitError if there are too many values."""
    check_rows(file, metadata.num_rows, size)
    number = metadata.num_columns
    if number > MAX_COLUMNS:
        raise LimitError(file, f"has {number:,} columns, and at most {MAX_COLUMNS:,} are read")
    groups = [metadata.row_group(place) for place in range(metadata.num_row_groups)]
    chunks = [group.column(place) for group in groups for place in range(number)]
    values = sum(chunk.num_values for chunk in chunks)
    limit = VALUES_PER_ROW * max(MAX_ROWS.read(), size)
    if values > limit:
        raise MAX_ROWS.refuse(file, f"has {values:,} values, and at most {limit:,} are read")
    return chunks


def _find_longest(content: BinaryIO, column: pq.ColumnChunkMetaData) -> int:
    """Read the bytes of the dictionary of a column, unpacked; of the whole column if it does not
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
    """Read the first number of a page's header in Thrift's compact protocol, and what follows
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


def _measure(array: pa.Array) -> int:
    """Measure the bytes of values when texts are written out."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        lengths = pc.binary_length(array.dictionary).take(array.indices)
        return int(pc.sum(lengths).as_py() or 0)
    if pa.types.is_struct(kind):
        return sum(map(_measure, array.flatten()))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        return _measure(array.flatten())
    return int(array.nbytes)
