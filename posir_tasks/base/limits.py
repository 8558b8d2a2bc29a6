"""The limits of what is read from outside, so that no input can take the memory or the time of the
process.

Work is bounded by a limit, or in proportion to the size of the file on disk: large data is read
however large it is, and a small file that unpacks to much is not. An environment variable raises
each limit, and the error names it.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from posir_tasks.base.errors import DataError, PosirError

#: A compressed file may be unpacked to this multiple of its size. Text is compressed to a tenth,
#: tables of zeros to a fiftieth.
MAX_EXPANSION = 100
#: A line, which is a document, and an answer of a server may have this part of the bytes of a file.
LINE_PART = 4
#: A PDF may have this part of the rows of a file as pages.
PAGE_PART = 1_000
#: Fewest bytes of a value of JSON, on average, in a document with more values than the limit of
#: rows.
BYTES_PER_VALUE = 8
#: Seconds that a document may take for each MiB.
SECONDS_PER_MIB = 10
MIB = 2**20


class LimitError(DataError):
    """Something from outside exceeds a limit. The message names the source and the variable that
    raises the limit.
    """

    def __init__(self, name: object, problem: str) -> None:
        """Make the message `name: problem`."""
        super().__init__(f"{name}: {problem}")
        self.problem = problem


@dataclass(frozen=True)
class ReadLimit:
    """A limit that an environment variable sets."""

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

    def refuse(self, name: object, problem: str) -> LimitError:
        """Build the error about a source, with how to raise the limit."""
        return LimitError(name, f"{problem}. Set {self.variable} to a larger number to read it")


#: Bytes of a file or a document that is read at once, decompressed.
MAX_BYTES = ReadLimit("POSIR_MAX_BYTES", 2**30)
#: Rows of a file of fewer bytes.
MAX_ROWS = ReadLimit("POSIR_MAX_ROWS", 10_000_000)
#: Files and folders below a folder.
MAX_FILES = ReadLimit("POSIR_MAX_FILES", 1_000_000)
#: Seconds in which a document is read.
MAX_SECONDS = ReadLimit("POSIR_MAX_SECONDS", 60)


def max_line() -> int:
    """Return the most bytes of a line, or of an answer of a server."""
    return max(1, MAX_BYTES.read() // LINE_PART)


def max_pages() -> int:
    """Return the most pages of a PDF."""
    return max(1, MAX_ROWS.read() // PAGE_PART)


def max_unpacked(size: int) -> int:
    """Return the most bytes that a compressed file of a size may have, decompressed."""
    return max(max_line(), MAX_EXPANSION * size)


def check_rows(name: object, rows: int, size: int) -> None:
    """Raise LimitError if a file of `size` bytes has more rows than the limit and than bytes."""
    limit = max(MAX_ROWS.read(), size)
    if rows > limit:
        raise MAX_ROWS.refuse(name, f"has {rows:,} rows, and at most {limit:,} are read")


def check_values(name: object, content: str | bytes) -> None:
    """Raise LimitError if a JSON document, whose values take far more memory than text, has too
    many of them.
    """
    limit = max(MAX_ROWS.read(), len(content) // BYTES_PER_VALUE)
    # A document of fewer bytes has fewer values.
    if len(content) <= limit:
        return
    marks = (",", "[", "{") if isinstance(content, str) else (b",", b"[", b"{")
    values = sum(map(content.count, marks))  # type: ignore[arg-type]
    if values > limit:
        raise MAX_ROWS.refuse(name, f"has about {values:,} values, and at most {limit:,} are read")


def describe_bytes(size: int) -> str:
    """Describe a number of bytes as text, such as `1,024 MiB`."""
    return f"{size / MIB:,.4g} MiB" if size >= MIB else f"{size:,} bytes"


def file_size(file: Path) -> int:
    """Return the bytes of a file on disk; raise OSError if there is none."""
    return file.stat().st_size


class _ExpiredError(BaseException):
    """The time of a document is over. No library takes it for a damaged file."""


def _can_interrupt() -> bool:
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        return False
    # The alarm of a caller stays.
    return signal.getitimer(signal.ITIMER_REAL)[0] == 0


@contextmanager
def limit_seconds(name: object, size: int = 0) -> Iterator[None]:
    """Raise LimitError if reading a document of `size` bytes takes too long.

    In threads other than the main one, where nothing can be interrupted, the time is measured at
    the end.
    """
    seconds = max(MAX_SECONDS.read(), size * SECONDS_PER_MIB // MIB)
    refused = MAX_SECONDS.refuse(name, f"cannot be read within {seconds:,} seconds")
    if not _can_interrupt():
        start = time.monotonic()
        yield
        if time.monotonic() - start > seconds:
            raise refused
        return

    def expire(*_: object) -> None:
        raise _ExpiredError

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except _ExpiredError:
        raise refused from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
