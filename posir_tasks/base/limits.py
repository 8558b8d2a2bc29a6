"""Limits on the memory and time that untrusted input can use.

Work is bounded by a limit or proportional to the size on disk: large files are read, but small
files that expand too much are rejected. Errors name the environment variable that raises the limit.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from posir_tasks.base.errors import InputError, PosirError

#: Maximum ratio of unpacked to compressed size. Text has a ratio of 10, tables of zeros 50.
MAX_EXPANSION = 100
#: Ratio of the size limit of a file to that of a line (a document) or of a server response.
FILE_LINE_RATIO = 4
#: Ratio of the row limit of a file to the page limit of a PDF.
ROW_PAGE_RATIO = 1_000
#: Minimum average size in bytes of JSON values, if there are more values than the row limit.
BYTES_PER_VALUE = 8
#: Time limit for a document in seconds per MiB.
SECONDS_PER_MIB = 10
MIB = 2**20


class LimitError(InputError):
    """Untrusted input exceeds a limit. The message names the variable that raises it."""


@dataclass(frozen=True)
class ReadLimit:
    """A limit that can be set with an environment variable."""

    variable: str
    default: int

    def read(self) -> int:
        """Read the limit; raise PosirError if the variable is not a positive integer."""
        text = os.environ.get(self.variable, "").strip()
        if not text:
            return self.default
        if not (text.isascii() and text.isdecimal() and len(text) < 19 and int(text) > 0):
            raise PosirError(
                f"Invalid {self.variable} '{text}'. Set it to a positive integer, or unset it."
            )
        return int(text)

    def make_error(self, name: object, problem: str) -> LimitError:
        """Build the error for a source that exceeds the limit, with advice to raise it."""
        return LimitError(name, f"{problem}. Set {self.variable} to a larger number to read it")


#: Maximum size of a file or document in bytes, after decompression.
MAX_BYTES = ReadLimit("POSIR_MAX_BYTES", 2**30)
#: Maximum number of rows of a file. A file with more bytes may have a row per byte.
MAX_ROWS = ReadLimit("POSIR_MAX_ROWS", 10_000_000)
#: Maximum number of files and folders in a folder, at any depth.
MAX_FILES = ReadLimit("POSIR_MAX_FILES", 1_000_000)
#: Minimum time limit for a document in seconds.
MAX_SECONDS = ReadLimit("POSIR_MAX_SECONDS", 60)


def read_line_limit() -> int:
    """Return the maximum size of a line or server response in bytes."""
    return max(1, MAX_BYTES.read() // FILE_LINE_RATIO)


def read_page_limit() -> int:
    """Return the maximum number of pages of a PDF."""
    return max(1, MAX_ROWS.read() // ROW_PAGE_RATIO)


def compute_unpacked_limit(size: int) -> int:
    """Return the maximum decompressed size of a file of `size` bytes."""
    return max(read_line_limit(), MAX_EXPANSION * size)


def check_size(name: object, size: int, max_bytes: int | None = None) -> None:
    """Raise LimitError if a source is larger than `max_bytes`, by default `POSIR_MAX_BYTES`."""
    limit = MAX_BYTES.read() if max_bytes is None else max_bytes
    if size > limit:
        problem = f"is larger than {describe_bytes(limit)}, the limit"
        raise (
            MAX_BYTES.make_error(name, problem) if max_bytes is None else LimitError(name, problem)
        )


def check_rows(name: object, rows: int, size: int) -> None:
    """Raise LimitError if a file has more rows than its `size` in bytes and than `MAX_ROWS`."""
    limit = max(MAX_ROWS.read(), size)
    if rows > limit:
        raise MAX_ROWS.make_error(name, f"has {rows:,} rows; the limit is {limit:,}")


def check_values(name: object, content: str | bytes) -> None:
    """Raise LimitError if JSON has too many values, which need far more memory than text."""
    limit = max(MAX_ROWS.read(), len(content) // BYTES_PER_VALUE)
    # A value takes at least one byte.
    if len(content) <= limit:
        return
    marks = (",", "[", "{") if isinstance(content, str) else (b",", b"[", b"{")
    value_count = sum(map(content.count, marks))  # type: ignore[arg-type]
    if value_count > limit:
        raise MAX_ROWS.make_error(name, f"has about {value_count:,} values; the limit is {limit:,}")


def describe_bytes(size: int) -> str:
    """Format a number of bytes: `1,024 MiB`."""
    return f"{size / MIB:,.4g} MiB" if size >= MIB else f"{size:,} bytes"


class _ReadTimeoutError(BaseException):
    """Reading a document took too long. A BaseException bypasses handlers for damaged files."""


def _can_interrupt() -> bool:
    is_main = threading.current_thread() is threading.main_thread()
    # Do not replace a caller's alarm.
    return is_main and signal.getitimer(signal.ITIMER_REAL)[0] == 0


@contextmanager
def limit_seconds(name: object, size: int = 0) -> Iterator[None]:
    """Raise LimitError if reading a document of `size` bytes takes too long.

    Only the main thread can be interrupted. In other threads, the error is raised at the end.
    """
    seconds = max(MAX_SECONDS.read(), size * SECONDS_PER_MIB // MIB)
    limit_error = MAX_SECONDS.make_error(name, f"cannot be read within {seconds:,} seconds")
    if not _can_interrupt():
        start = time.monotonic()
        yield
        if time.monotonic() - start > seconds:
            raise limit_error
        return

    def expire(*_: object) -> None:
        raise _ReadTimeoutError

    previous_handler = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _ReadTimeoutError:
        raise limit_error from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous_handler)
