"""Rare garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: Number of new objects that trigger a garbage collection.
GARBAGE_THRESHOLD = 100_000


@contextmanager
def collect_rarely() -> Iterator[None]:
    """Collect garbage rarely in this context.

    Importing libraries and reading data creates many small, long-lived objects. With Python's
    default threshold, garbage collection takes a fifth of the time and frees almost nothing.
    """
    thresholds = gc.get_threshold()
    if 0 < thresholds[0] < GARBAGE_THRESHOLD:
        gc.set_threshold(GARBAGE_THRESHOLD, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
