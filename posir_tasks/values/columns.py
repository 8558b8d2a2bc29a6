"""Columns of small numbers as text."""

from __future__ import annotations

import base64
import zlib

import numpy as np

from posir_tasks.base.arrays import Integers
from posir_tasks.base.limits import MAX_ROWS

#: Maximum number of bytes of a packed number.
MAX_VARINT = 5


def pack_column(column: Integers) -> str:
    """Return small numbers as text: varints, deflated, in base 85. All ones, or nothing, is the
    number of ones.
    """
    if (column == 1).all():
        return str(len(column))
    raw = bytearray()
    for number in column.tolist():
        while number > 127:
            raw.append(number & 127 | 128)
            number >>= 7
        raw.append(number)
    return "z" + base64.b85encode(zlib.compress(raw, 9)).decode()


def unpack_column(text: str, most: int) -> Integers:
    """Return at most `most` numbers that `pack_column` packed; raise ValueError if there are more,
    or it is not that form.
    """
    # The result itself says how many queries it has.
    most = min(most, MAX_ROWS.read())
    if not text.startswith("z"):
        size = int(text)
        if not 0 <= size <= most:
            raise ValueError(f"a column of {size:,} numbers, where {most:,} queries are left")
        return np.ones(size, np.int64)
    inflater = zlib.decompressobj()
    try:
        # With 0, all would be unpacked.
        raw = inflater.decompress(base64.b85decode(text[1:]), max(1, MAX_VARINT * most))
    except zlib.error as error:
        raise ValueError(f"a column cannot be unpacked ({error})") from error
    if inflater.unconsumed_tail or not inflater.eof:
        raise ValueError(
            f"a column is incomplete, or has more numbers than the {most:,} queries that are left"
        )
    values = np.frombuffer(raw, np.uint8).astype(np.int64)
    ends = np.flatnonzero(values < 128)
    if len(values) and (not len(ends) or ends[-1] != len(values) - 1):
        raise ValueError("a column is incomplete")
    if len(ends) > most:
        raise ValueError(f"a column of {len(ends):,} numbers, where {most:,} queries are left")
    if len(ends) == len(values):
        return values
    group = np.concatenate([[0], np.cumsum(values < 128)[:-1]])
    starts = np.concatenate([[0], ends[:-1] + 1])
    shifts = 7 * (np.arange(len(values)) - starts[group])
    if shifts.max() > 28:
        raise ValueError("a number of a column is too large")
    return np.bincount(group, weights=(values & 127) << shifts).astype(np.int64)
