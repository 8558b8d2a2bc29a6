"""Finding files, reading compressed ones, writing them atomically, and a lock for each folder that
several processes write to.

Data files may be compressed: `a.json.gz` is read as `a.json` is.
"""

from __future__ import annotations

import errno
import gzip
import logging
import os
import re
import select
import shutil
import stat
import sys
import tempfile
import time
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedIOBase, BufferedReader, RawIOBase
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock

from posir_tasks.base.errors import PosirError
from posir_tasks.base.limits import (
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
#: Suffix of unfinished files and folders. No other program uses it.
PART_SUFFIX = ".posir-part"
#: Name of an unfinished file or folder: a prefix, eight random characters of `tempfile` and the
#: suffix.
PART_NAME = re.compile(rf"\..*[a-z0-9_]{{8}}{re.escape(PART_SUFFIX)}", re.DOTALL)
#: Characters of a file's name in the name of its unfinished file: file systems allow 255 bytes.
PART_STEM = 40
#: The largest number of links that a path may lead through, as in Linux.
MAX_LINKS = 40
#: The folder in which Linux shows the open files of a process.
DESCRIPTORS = re.compile(r"/proc/(\d+)(?:/task/\d+)?/fd")
#: Seconds to wait until the other end of a FIFO or of an open file takes data.
READER_TIMEOUT = 60.0
#: Age in seconds from which an unfinished file is assumed to belong to a dead process.
STALE_AFTER = 1_800
#: Name of the lock file in a folder.
LOCK_FILE = ".posir.lock"
#: Seconds to wait for a lock: far longer than any write takes.
LOCK_TIMEOUT = 120.0
#: Environment variable with the folder of posir's cache; by default `posir` in the user's cache
#: folder.
CACHE_VARIABLE = "POSIR_CACHE"


def cache_folder() -> Path:
    """Return posir's cache folder."""
    configured = os.environ.get(CACHE_VARIABLE)
    if configured:
        return Path(configured).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "posir"


def find_files(folder: Path, suffix: str | tuple[str, ...]) -> list[Path]:
    """Find the files below a folder whose names end with a suffix (or one of several), sorted;
    links to folders are followed.

    Each folder is visited once, by its own path if it has one below the folder. A folder that
    cannot be read has no files.

    Raises:
        LimitError: There are more files and folders than `POSIR_MAX_FILES`.
    """
    entries = (entry for entry in _walk(folder) if entry.name.endswith(suffix))
    return sorted(entry for entry in entries if entry.is_file())


def _walk(folder: Path) -> Iterator[Path]:
    """Yield what is in a folder and below, except folders; links to folders are followed after all
    else.
    """
    limit = MAX_FILES.read()
    count = 0
    visited = {_identify(parent) for parent in folder.resolve().parents if parent.is_dir()}
    folders = deque([folder])
    links = deque[Path]()
    while folders or links:
        parent = folders.popleft() if folders else links.popleft()
        is_readable = parent.is_dir() and os.access(parent, os.R_OK | os.X_OK)
        if not is_readable or _identify(parent) in visited:
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
    """Return the key of a folder, the same for all its paths."""
    status = folder.stat()
    return status.st_dev, status.st_ino


def follow_links(path: Path) -> Path:
    """Resolve the links of a path, the last part included; nothing needs to exist there.

    Links to open files, such as `/dev/stdout`, are kept.

    Raises:
        PosirError: The links form a loop, or the path has a zero byte.
    """
    if "\0" in str(path):
        raise PosirError(f"{path}: the path has a zero byte. Choose another one.")
    target = path
    for _ in range(MAX_LINKS):
        target = Path(os.path.realpath(target.parent)) / target.name
        if DESCRIPTORS.fullmatch(str(target.parent)) or not os.path.islink(target):  # noqa: PTH114
            return target
        target = target.parent / target.readlink()
    raise PosirError(
        f"{path}: a link that leads back to itself. Remove it, or choose another path."
    )


def make_folder(folder: Path) -> None:
    """Create a folder if there is none; a link to nothing gets the folder that it names."""
    follow_links(folder).mkdir(parents=True, exist_ok=True)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a path to write to, and replace a file with what was written there at the end.

    A link stays, and its target is replaced. A replaced file keeps its mode and, where the system
    allows it, its owner. A device, a FIFO and an open file such as `/dev/stdout` are written to in
    place.

    Raises:
        PosirError: The file is a folder, write-protected or not writable; the disk is full; nothing
            reads the FIFO.
    """
    target = follow_links(path)
    with explain_disk_full(path):
        with explain_unwritable(path):
            status = _check_target(path, target)
        if _is_open_file(target) or (status and not stat.S_ISREG(status.st_mode)):
            with tempfile.TemporaryDirectory() as folder:
                beside = Path(folder) / f"file{PART_SUFFIX}"
                beside.touch()
                yield beside
                with explain_unwritable(path):
                    _write_in_place(beside, target)
            return
        with explain_unwritable(path.parent):
            target.parent.mkdir(parents=True, exist_ok=True)
            prefix = f".{target.name[:PART_STEM]}."
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=prefix, suffix=PART_SUFFIX)
        os.close(handle)
        beside = Path(name)
        try:
            yield beside
            _copy_permissions(status, beside)
            # Without this, a file renamed just before a power failure may be empty.
            with beside.open("rb") as written:
                os.fsync(written.fileno())
            with explain_unwritable(path):
                _replace(beside, target)
        finally:
            beside.unlink(missing_ok=True)


def _check_target(path: Path, target: Path) -> os.stat_result | None:
    """Find the state of a file to write, None if there is none; raise PosirError if posir must not
    write there.
    """
    try:
        status = target.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if _is_open_file(target):
        return status
    if stat.S_ISDIR(status.st_mode):
        raise PosirError(f"{path}: is a folder. Name a file, such as {path / 'NAME'}.")
    if stat.S_ISBLK(status.st_mode):
        raise PosirError(
            f"{path}: is a disk (block device), which posir does not overwrite. Name a file."
        )
    # The system lets root write to a file that nobody may write to.
    if not os.access(target, os.W_OK) or not status.st_mode & 0o222:
        raise PosirError(
            f"{path}: is write-protected. Allow writing with `chmod u+w`, or choose another file."
        )
    return status


def _is_open_file(target: Path) -> bool:
    return bool(DESCRIPTORS.fullmatch(str(target.parent)))


def _copy_permissions(status: os.stat_result | None, file: Path) -> None:
    """Give a file mode and owner of the file that it replaces, or the mode of a new file."""
    if status is None:
        mask = os.umask(0)
        os.umask(mask)
        file.chmod(0o666 & ~mask)
        return
    for user, group in ((status.st_uid, -1), (-1, status.st_gid)):
        # Only root may give a file to another user.
        with suppress(OSError):
            os.chown(file, user, group)
    file.chmod(stat.S_IMODE(status.st_mode))


def _replace(source: Path, target: Path) -> None:
    """Move a file in the place of another one; a file that is mounted by itself, as in containers,
    gets the content.
    """
    try:
        source.replace(target)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        shutil.copyfile(source, target)


def _write_in_place(source: Path, target: Path) -> None:
    """Write the content of a file to a device, a FIFO or an open file.

    Raises:
        OSError: It cannot be written to; TimeoutError if nothing reads what is written.
    """
    descriptor = _open_in_place(target)
    try:
        rest = memoryview(source.read_bytes())
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        while rest:
            if not poll.poll(READER_TIMEOUT * 1_000):
                raise _no_reader()
            rest = rest[os.write(descriptor, rest) :]
    finally:
        os.close(descriptor)


def _no_reader() -> TimeoutError:
    reason = f"nothing read from it for {READER_TIMEOUT:.0f} seconds"
    return TimeoutError(errno.ETIMEDOUT, reason)


def _open_in_place(target: Path) -> int:
    """Return a descriptor to write to a device, a FIFO or an open file; the caller closes it."""
    process = DESCRIPTORS.fullmatch(str(target.parent))
    if process and int(process[1]) == os.getpid() and target.name.isdecimal():
        # A file that is opened anew would be written from its start, over what the process has
        # printed.
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        return os.dup(int(target.name))
    is_fifo = target.is_fifo()
    deadline = time.monotonic() + READER_TIMEOUT
    while True:
        try:
            return os.open(target, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_APPEND)
        except OSError as error:
            if error.errno != errno.ENXIO or not is_fifo:
                raise
            if time.monotonic() > deadline:
                raise _no_reader() from error
        time.sleep(0.05)


def write_text(path: Path, text: str) -> None:
    """Write a file in UTF-8, whole or not at all."""
    with atomic_write(path) as beside:
        beside.write_text(text, encoding="utf-8")


@contextmanager
def explain_unwritable(path: Path) -> Iterator[None]:
    """Turn errors about a file or folder other than a full disk into a PosirError that says what to
    do.
    """
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        raise PosirError(
            f"{path}: cannot be written to ({error.strerror}). Choose another file or folder."
        ) from error


def check_writable(folder: Path) -> None:
    """Create a folder if there is none; raise PosirError if files cannot be written there."""
    with explain_disk_full(folder), explain_unwritable(folder):
        make_folder(folder)
        tempfile.TemporaryFile(dir=folder).close()


@contextmanager
def explain_disk_full(path: Path) -> Iterator[None]:
    """Turn the system's error about a full disk into a PosirError that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise PosirError(
                f"{path}: not enough disk space ({os.strerror(error.errno)}). Finished results "
                "are safe. Free some space and run the same command again."
            ) from error
        raise


def find_free_name(file: Path, suffix: str) -> Path:
    """Find a free path next to a file: its name and a suffix, numbered from the second one on."""
    for number in count(1):
        ending = suffix if number == 1 else f"{suffix}-{number}"
        path = file.with_name(f"{file.name}.{ending}")
        if not os.path.lexists(path):
            return path
    raise AssertionError


def is_unfinished(path: Path) -> bool:
    """Tell whether a file or folder is an unfinished one of posir, by its name."""
    return bool(PART_NAME.fullmatch(path.name)) and not path.is_symlink()


def remove_stale_parts(folder: Path) -> None:
    """Remove the unfinished files and folders, at least half an hour old, of killed processes."""
    for part in folder.glob(f".*{PART_SUFFIX}"):
        # It may belong to another user, or be gone by now.
        with suppress(OSError):
            if not is_unfinished(part) or part.stat().st_mtime >= time.time() - STALE_AFTER:
                continue
            if part.is_dir():
                shutil.rmtree(part)
            else:
                part.unlink()


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes, on any machine, while this one lives; where locking
    fails, warn and continue.
    """
    make_folder(folder)
    lock = FileLock(folder / LOCK_FILE, timeout=LOCK_TIMEOUT)
    try:
        lock.acquire()
    except OSError as error:
        logger.warning(
            "%s: cannot be locked (%s); do not run two commands that write there at the same time",
            folder,
            error,
        )
    try:
        yield
    finally:
        lock.release()


@contextmanager
def atomic_update(file: Path) -> Iterator[Path]:
    """Yield a folder with a copy of a file, which replaces it at the end, for code that changes it
    in place.

    Links, modes and errors are those of `atomic_write`; a device or a FIFO is an error.
    """
    target = follow_links(file)
    with explain_unwritable(file):
        status = _check_target(file, target)
    if status and not stat.S_ISREG(status.st_mode):
        raise PosirError(f"{file}: is a device or a FIFO. Name a file that can be changed.")
    with folder_lock(target.parent), atomic_write(file) as written:
        remove_stale_parts(target.parent)
        prefix = f".{target.name[:PART_STEM]}."
        with tempfile.TemporaryDirectory(
            dir=target.parent, prefix=prefix, suffix=PART_SUFFIX
        ) as beside:
            copy = Path(beside) / file.name
            if target.is_file():
                shutil.copyfile(target, copy)
            yield copy.parent
            shutil.copyfile(copy, written)


SUFFIX = ".gz"
#: Suffixes that say a format. Any other is part of the name, as in `input.InexpC2.gz` or
#: `qrels.test`.
FORMATS = frozenset(
    [
        ".csv",
        ".htm",
        ".html",
        ".json",
        ".jsonl",
        ".lz4",
        ".markdown",
        ".md",
        ".ndjson",
        ".parq",
        ".parquet",
        ".pdf",
        ".qrel",
        ".qrels",
        ".rst",
        ".run",
        ".text",
        ".trec",
        ".tsv",
        ".txt",
        ".xhtml",
    ]
)
#: What reading raises if a file is damaged, cut off or not compressed at all.
GZIP_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)


def is_compressed(file: Path) -> bool:
    """Tell whether the name says that the file is compressed."""
    return file.suffix.lower() == SUFFIX


def split_suffix(file: Path) -> tuple[str, str]:
    """Split the name of a data file and its suffix in lower case: `a` and `.json` of `a.json` and
    `a.json.gz`.

    A suffix that says no format is part of the name, too.
    """
    plain = Path(file.stem) if is_compressed(file) else Path(file.name)
    suffix = plain.suffix.lower()
    return plain.stem if suffix in FORMATS else plain.name, suffix


def find_compressed(file: Path) -> Path:
    """Find the compressed file if only that exists, and the file itself otherwise."""
    compressed = file.with_name(file.name + SUFFIX)
    return compressed if compressed.is_file() and not file.is_file() else file


def check_readable(file: Path) -> None:
    """Raise OSError if a file is a device or a pipe: reading it may never end, and a second time
    gives other content.
    """
    mode = file.stat().st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return
    kind = "a device"
    if stat.S_ISFIFO(mode):
        kind = "a pipe"
    elif stat.S_ISSOCK(mode):
        kind = "a socket"
    raise OSError(errno.EINVAL, f"it is {kind}; save its content in a file and give that")


def _is_anonymous_pipe(file: Path) -> bool:
    """Tell whether a path is a pipe between two processes, such as that of `command | posir` or
    of `<(command)`.
    """
    return stat.S_ISFIFO(file.stat().st_mode) and not os.path.lexists(os.path.realpath(file))


def open_decompressed(file: Path) -> BufferedReader:
    """Open a data file, decompressed; reading raises `GZIP_ERRORS` as well, and LimitError if it
    unpacks to too much.

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
            raise MAX_BYTES.refuse(
                self._file, f"unpacks to more than {describe_bytes(self._limit)}"
            )
        return size

    def close(self) -> None:
        if not self.closed:
            self._content.close()
        super().close()


def iterate_lines(content: BufferedIOBase, name: object) -> Iterator[bytes]:
    """Yield the lines of an open file; raise LimitError if one is too long."""
    limit = max_line()
    number = 0
    while line := content.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise MAX_BYTES.refuse(name, f"line {number} is longer than {describe_bytes(limit)}")
        yield line


def read_decompressed(file: Path, max_bytes: int | None = None) -> bytes:
    """Read the decompressed content of a data file.

    Args:
        file: The file.
        max_bytes: Most bytes that it may have; by default those of `POSIR_MAX_BYTES`.

    Raises:
        OSError: It cannot be read, or is no file. `GZIP_ERRORS`: It is damaged. LimitError: It is
            too large, or a pipe between processes that does not end in time.
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
