"""Encode columns of small numbers as text."""

from __future__ import annotations

import base64
import zlib

import numpy as np

from posir_tasks.base.arrays import Integers
from posir_tasks.base.caching import cache_recent
from posir_tasks.base.limits import MAX_ROWS

#: Maximum number of bytes of a packed number.
MAX_VARINT = 5
#: Number of cached columns, and number of values or characters up to which there may be more:
#: models with the same queries share all columns but their ranks.
CACHED_COLUMNS, CACHED_VALUES = 32, 2_000_000


def pack_column(column: Integers) -> str:
    """Encode a column as deflated varints in base 85, or as its length if all numbers are 1."""
    return _pack(column.astype(np.int64).tobytes())


@cache_recent(CACHED_COLUMNS, CACHED_VALUES, len)
def _pack(content: bytes) -> str:
    numbers = np.frombuffer(content, np.int64)
    if (numbers == 1).all():
        return str(len(numbers))
    raw = bytearray()
    for number in numbers.tolist():
        while number > 127:
            raw.append(number & 127 | 128)
            number >>= 7
        raw.append(number)
    return "z" + base64.b85encode(zlib.compress(raw, 9)).decode()


def unpack_column(text: str, max_size: int) -> Integers:
    """Decode the output of `pack_column`; raise ValueError if it is malformed or has more than
    `max_size` numbers.
    """
    # The result that sets `max_size` may be malicious.
    return _unpack(text, min(max_size, MAX_ROWS.read())).copy()


@cache_recent(CACHED_COLUMNS, CACHED_VALUES, len)
def _unpack(text: str, max_size: int) -> Integers:
    if not text.startswith("z"):
        size = int(text)
        if not 0 <= size <= max_size:
            raise ValueError(f"a column has {size:,} numbers, more than the {max_size:,} queries")
        return np.ones(size, np.int64)
    inflater = zlib.decompressobj()
    try:
        # A limit of 0 would mean no limit.
        raw = inflater.decompress(base64.b85decode(text[1:]), max(1, MAX_VARINT * max_size))
    except zlib.error as error:
        raise ValueError(f"a column cannot be unpacked ({error})") from error
    if inflater.unconsumed_tail or not inflater.eof:
        raise ValueError(
            f"a column is incomplete, or has more numbers than the {max_size:,} queries"
        )
    values = np.frombuffer(raw, np.uint8).astype(np.int64)
    is_end = values < 128
    if not is_end[-1:].all():
        raise ValueError("a column is incomplete")
    ends = np.flatnonzero(is_end)
    if len(ends) > max_size:
        raise ValueError(f"a column has {len(ends):,} numbers, more than the {max_size:,} queries")
    if is_end.all():
        return values
    starts = np.append(0, ends[:-1] + 1)
    lengths = ends - starts + 1
    if lengths.max() > MAX_VARINT:
        raise ValueError("a column contains a number that is too large")
    shifts = 7 * (np.arange(len(values)) - np.repeat(starts, lengths))
    column: Integers = np.add.reduceat((values & 127) << shifts, starts)
    return column
