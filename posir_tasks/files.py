"""Finding files, reading compressed ones, writing them atomically, and a lock for each folder that several processes write to.

Data files may be compressed: `a.json.gz` is read as `a.json` is.
"""

from __future__ import annotations

import errno
import gzip
import logging
import os
import shutil
import stat
import tempfile
import time
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedIOBase, BufferedReader, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from posir_tasks.errors import PosirError
from posir_tasks.limits import (
    MAX_BYTES,
    MAX_FILES,
    LimitError,
    check_rows,
    describe_bytes,
    file_size,
    limit_seconds,
    max_line,
    max_unpacked,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

logger = logging.getLogger(__name__)

#: Errors of a full disk, an exhausted quota, or a file at its size limit.
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: Suffix of unfinished files and folders.
PART_SUFFIX = ".part"
#: Age in seconds from which an unfinished file is assumed to belong to a dead process.
STALE_AFTER = 1_800
#: Name of the lock file in a folder.
LOCK_FILE = ".posir.lock"
#: Seconds to wait for a lock: far longer than any write takes.
LOCK_TIMEOUT = 120.0
#: Environment variable with the folder of posir's cache; by default `posir` in the user's cache folder.
CACHE_VARIABLE = "POSIR_CACHE"


def cache_folder() -> Path:
    """Return posir's cache folder."""
    configured = os.environ.get(CACHE_VARIABLE)
    if configured:
        return Path(configured).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "posir"


def find_files(folder: Path, suffix: str | tuple[str, ...]) -> list[Path]:
    """Return the files below a folder whose names end with a suffix (or one of several), sorted; links to folders are followed.

    Each folder is visited once, by its own path if it has one below the folder. A folder that cannot be read has no files.

    Raises:
        LimitError: There are more files and folders than `POSIR_MAX_FILES`.
    """
    return sorted(entry for entry in _walk(folder) if entry.name.endswith(suffix) and entry.is_file())


def _walk(folder: Path) -> Iterator[Path]:
    """Yield what is in a folder and below, except folders; links to folders are followed after all else."""
    limit, count = MAX_FILES.read(), 0
    visited = {_identify(parent) for parent in folder.resolve().parents}
    folders, links = deque([folder]), deque[Path]()
    while folders or links:
        parent = folders.popleft() if folders else links.popleft()
        if not parent.is_dir() or not os.access(parent, os.R_OK | os.X_OK) or _identify(parent) in visited:
            continue
        visited.add(_identify(parent))
        for entry in sorted(parent.iterdir()):
            count += 1
            if count > limit:
                raise MAX_FILES.refuse(folder, f"has more than {limit:,} files and folders")
            if not entry.is_dir():
                yield entry
            elif entry.is_symlink():
                links.append(entry)
            else:
                folders.append(entry)


def _identify(folder: Path) -> tuple[int, int]:
    """Return what is the same for all paths of a folder."""
    status = folder.stat()
    return status.st_dev, status.st_ino


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a path beside a file that replaces it at the end; raise PosirError if the disk is full or it is not writable."""
    with explain_disk_full(path):
        with explain_unwritable(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART_SUFFIX)
        os.close(handle)
        beside = Path(name)
        try:
            yield beside
            mask = os.umask(0)
            os.umask(mask)
            beside.chmod(0o666 & ~mask)
            # Without this, a file renamed just before a power failure may be empty.
            with beside.open("rb+") as written:
                os.fsync(written.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a file in UTF-8, whole or not at all."""
    with atomic_write(path) as beside:
        beside.write_text(text, encoding="utf-8")


@contextmanager
def explain_unwritable(folder: Path) -> Iterator[None]:
    """Turn errors about a folder other than a full disk into a PosirError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        raise PosirError(f"{folder}: cannot be written to ({error.strerror}). Choose a writable folder.") from error


def check_writable(folder: Path) -> None:
    """Create a folder if there is none; raise PosirError if files cannot be written there."""
    with explain_disk_full(folder), explain_unwritable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()


@contextmanager
def explain_disk_full(path: Path) -> Iterator[None]:
    """Turn the system's error about a full disk into a PosirError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise PosirError(
                f"{path}: not enough disk space ({os.strerror(error.errno)}). Finished results are safe. Free some space and "
                "run the same command again."
            ) from error
        raise


def remove_stale_parts(folder: Path, prefix: str = ".") -> None:
    """Remove the unfinished files and folders, at least half an hour old, that killed processes left behind."""
    for part in folder.glob(f"{prefix}*{PART_SUFFIX}"):
        # It may belong to another user, or be gone by now.
        with suppress(OSError):
            if part.stat().st_mtime < time.time() - STALE_AFTER:
                if part.is_dir():
                    shutil.rmtree(part)
                else:
                    part.unlink()


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes, on any machine, while this one lives; where locking fails, warn and continue."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK_FILE, timeout=LOCK_TIMEOUT)
    try:
        lock.acquire()
    except OSError as error:
        logger.warning("%s: cannot be locked (%s); do not run two commands that write there at the same time", folder, error)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def atomic_update(file: Path) -> Iterator[Path]:
    """Yield a folder with a copy of a file, which replaces it at the end, for code that can only change a file in place."""
    with folder_lock(file.parent), explain_disk_full(file):
        remove_stale_parts(file.parent)
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.", suffix=PART_SUFFIX) as beside:
            copy = Path(beside) / file.name
            if file.exists():
                shutil.copyfile(file, copy)
            yield copy.parent
            copy.replace(file)


SUFFIX = ".gz"
#: What reading raises if a file is damaged, cut off or not compressed at all.
GZIP_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)


def is_compressed(file: Path) -> bool:
    """Return whether the name says that the file is compressed."""
    return file.suffix.lower() == SUFFIX


def split_suffix(file: Path) -> tuple[str, str]:
    """Return the name of a data file and the suffix of its format in lower case: `a` and `.json` of both files above."""
    plain = Path(file.stem) if is_compressed(file) else file
    return plain.stem, plain.suffix.lower()


def find_compressed(file: Path) -> Path:
    """Return the compressed file if only that exists, and the file itself otherwise."""
    compressed = file.with_name(file.name + SUFFIX)
    return compressed if compressed.is_file() and not file.is_file() else file


def check_readable(file: Path) -> None:
    """Raise OSError if a file is a device or a pipe: reading it may never end, and a second time gives other content."""
    mode = file.stat().st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return
    kind = "a pipe" if stat.S_ISFIFO(mode) else "a socket" if stat.S_ISSOCK(mode) else "a device"
    raise OSError(errno.EINVAL, f"it is {kind}; save its content in a file and give that")


def _is_anonymous_pipe(file: Path) -> bool:
    """Return whether a path is a pipe between two processes, such as that of `command | posir` or of `<(command)`."""
    return stat.S_ISFIFO(file.stat().st_mode) and not os.path.lexists(os.path.realpath(file))


def open_decompressed(file: Path) -> BufferedReader:
    """Open a data file, decompressed; reading raises `GZIP_ERRORS` as well, and LimitError if it unpacks to too much.

    Raises:
        OSError: It cannot be opened, or is no file.
    """
    check_readable(file)
    return BufferedReader(_UnpackedFile(file)) if is_compressed(file) else file.open("rb")


class _UnpackedFile(RawIOBase):
    """The decompressed content of a file, up to a limit."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._limit = max_unpacked(file_size(file))
        self._read = 0
        self._content = gzip.open(file)  # noqa: SIM115 (closed with this file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        size = self._content.readinto(buffer)
        self._read += size
        if self._read > self._limit:
            raise MAX_BYTES.refuse(self._file, f"unpacks to more than {describe_bytes(self._limit)}")
        return size

    def close(self) -> None:
        if not self.closed:
            self._content.close()
        super().close()


def iterate_lines(content: BufferedIOBase, name: object) -> Iterator[bytes]:
    """Yield the lines of an open file; raise LimitError if one is too long."""
    limit, number = max_line(), 0
    while line := content.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise MAX_BYTES.refuse(name, f"line {number} is longer than {describe_bytes(limit)}")
        yield line


def read_decompressed(file: Path, max_bytes: int | None = None) -> bytes:
    """Return the decompressed content of a data file.

    Args:
        file: The file.
        max_bytes: Most bytes that it may have; by default those of `POSIR_MAX_BYTES`.

    Raises:
        OSError: It cannot be read, or is no file. `GZIP_ERRORS`: It is damaged. LimitError: It is too large, or a pipe between
            processes that does not end in time.
    """
    limit = MAX_BYTES.read() if max_bytes is None else max_bytes
    if _is_anonymous_pipe(file):
        with limit_seconds(file), file.open("rb") as pipe:
            content = pipe.read(limit + 1)
    else:
        with open_decompressed(file) as opened:
            content = opened.read(limit + 1)
    if len(content) > limit:
        problem = f"is larger than {describe_bytes(limit)}, the most that is read"
        raise MAX_BYTES.refuse(file, problem) if max_bytes is None else LimitError(file, problem)
    if is_compressed(file):
        check_rows(file, content.count(b"\n"), file_size(file))
    return content
