"""Rare garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock

#: Number of new objects that trigger a garbage collection.
GARBAGE_THRESHOLD = 100_000


@dataclass
class _State:
    """The contexts of this process, which may overlap in several threads."""

    contexts: int = 0
    thresholds: tuple[int, int, int] = (0, 0, 0)
    """The thresholds before the first context."""
    lock: Lock = field(default_factory=Lock)


_state = _State()


@contextmanager
def collect_rarely() -> Iterator[None]:
    """Collect garbage rarely in this context.

    Importing libraries and reading data creates many small, long-lived objects. With Python's
    default threshold, garbage collection takes a fifth of the time and frees almost nothing.
    """
    with _state.lock:
        if not _state.contexts:
            _state.thresholds = gc.get_threshold()
            if 0 < _state.thresholds[0] < GARBAGE_THRESHOLD:
                gc.set_threshold(GARBAGE_THRESHOLD, *_state.thresholds[1:])
        _state.contexts += 1
    try:
        yield
    finally:
        with _state.lock:
            _state.contexts -= 1
            if not _state.contexts:
                gc.set_threshold(*_state.thresholds)
