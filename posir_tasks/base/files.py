"""Find files, read them with transparent gzip (`a.json.gz` is read like `a.json`), write them
atomically, and lock folders.
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
    check_rows,
    check_size,
    compute_unpacked_limit,
    describe_bytes,
    limit_seconds,
    read_line_limit,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

logger = logging.getLogger(__name__)

#: Error codes for a full disk, an exceeded quota and a file at the maximum size.
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: Suffix of unfinished files and folders, unique to posir.
PART_SUFFIX = ".posir-part"
#: Name of an unfinished file or folder, with eight random characters from `tempfile`.
PART_NAME = re.compile(rf"\..*[a-z0-9_]{{8}}{re.escape(PART_SUFFIX)}", re.DOTALL)
#: Number of characters of a file name to repeat in the name of its unfinished version. File systems
#: allow 255 bytes.
MAX_PART_STEM = 40
#: Maximum number of links to follow, as in Linux.
MAX_LINKS = 40
#: Linux folder with the open files of a process.
DESCRIPTORS = re.compile(r"/proc/(\d+)(?:/task/\d+)?/fd")
#: Seconds to wait until another process reads from a FIFO or an open file.
READER_TIMEOUT = 60.0
#: Age in seconds at which the process that writes an unfinished file is assumed to be dead.
STALE_AFTER = 1_800
#: Name of the lock file in a folder.
LOCK_FILE = ".posir.lock"
#: Seconds to wait for a lock, far longer than any write.
LOCK_TIMEOUT = 120.0
#: Environment variable with posir's cache folder. Defaults to `posir` in the user's cache folder.
CACHE_VARIABLE = "POSIR_CACHE"


def get_cache_folder() -> Path:
    """Return posir's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "posir")
    return Path(os.environ.get(CACHE_VARIABLE) or default).expanduser()


def find_files(folder: Path, suffix: str | tuple[str, ...]) -> list[Path]:
    """Find all files below a folder with any of the suffixes, and sort them.

    Links to folders are followed, but each folder is visited only once, if possible not through a
    link. Unreadable folders are skipped.

    Raises:
        LimitError: There are more files and folders than `POSIR_MAX_FILES`.
    """
    entries = (entry for entry in _walk(folder) if entry.name.endswith(suffix))
    return sorted(entry for entry in entries if entry.is_file())


def _walk(folder: Path) -> Iterator[Path]:
    """Yield all entries below a folder except folders. Follow links to folders last."""
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
                raise MAX_FILES.make_error(folder, f"has more than {limit:,} files and folders")
            if not entry.is_dir():
                yield entry
            elif entry.is_symlink():
                links.append(entry)
            else:
                folders.append(entry)


def _identify(folder: Path) -> tuple[int, int]:
    """Return a key that is equal for all paths of a folder."""
    status = folder.stat()
    return status.st_dev, status.st_ino


def follow_links(path: Path) -> Path:
    """Resolve all links in a path, which may not exist yet. Links to open files, such as
    `/dev/stdout`, are not resolved.

    Raises:
        PosirError: The links form a loop, or the path contains a zero byte.
    """
    if "\0" in str(path):
        raise PosirError(f"{path}: the path contains a zero byte. Choose another path.")
    target = path
    for _ in range(MAX_LINKS):
        target = Path(os.path.realpath(target.parent)) / target.name
        if DESCRIPTORS.fullmatch(str(target.parent)) or not os.path.islink(target):  # noqa: PTH114
            return target
        target = target.parent / target.readlink()
    raise PosirError(f"{path}: is a link that leads back to itself. Remove it or choose another.")


def make_folder(folder: Path) -> None:
    """Create a folder unless it exists. If the path is a dangling link, create its target."""
    follow_links(folder).mkdir(parents=True, exist_ok=True)


@contextmanager
def write_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path and move its content to `path` at the end.

    If `path` is a link, its target is replaced. A replaced file keeps its mode and, if possible,
    its owner. Devices, FIFOs and open files such as `/dev/stdout` are written in place.

    Raises:
        PosirError: The path is a folder, write-protected or not writable; the disk is full; or no
            process reads from the FIFO.
    """
    target = follow_links(path)
    with explain_disk_full(path):
        with explain_unwritable(path):
            status = _check_target(path, target)
        if _is_open_file(target) or (status and not stat.S_ISREG(status.st_mode)):
            with tempfile.TemporaryDirectory() as folder:
                temporary = Path(folder) / f"file{PART_SUFFIX}"
                temporary.touch()
                yield temporary
                with explain_unwritable(path):
                    _write_in_place(temporary, target)
            return
        with explain_unwritable(path.parent):
            if not target.parent.is_dir():
                target.parent.mkdir(parents=True, exist_ok=True)
            prefix = f".{target.name[:MAX_PART_STEM]}."
            handle, name = tempfile.mkstemp(dir=target.parent, prefix=prefix, suffix=PART_SUFFIX)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            _copy_permissions(status, temporary)
            _flush(temporary)
            with explain_unwritable(path):
                _replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _check_target(path: Path, target: Path) -> os.stat_result | None:
    """Return the status of a file to replace, or None if it does not exist. Raise PosirError if it
    must not be replaced.
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
    # `access` is always true for root.
    if not os.access(target, os.W_OK) or not status.st_mode & 0o222:
        raise PosirError(
            f"{path}: is write-protected. Allow writing with `chmod u+w`, or choose another file."
        )
    return status


def _is_open_file(target: Path) -> bool:
    return bool(DESCRIPTORS.fullmatch(str(target.parent)))


def _copy_permissions(status: os.stat_result | None, file: Path) -> None:
    """Copy mode and owner of the replaced file, or set the default mode of a new file."""
    if status is None:
        mask = os.umask(0)
        os.umask(mask)
        file.chmod(0o666 & ~mask)
        return
    for user, group in ((status.st_uid, -1), (-1, status.st_gid)):
        # Only root may change the owner.
        with suppress(OSError):
            os.chown(file, user, group)
    file.chmod(stat.S_IMODE(status.st_mode))


def _flush(file: Path) -> None:
    """Flush a file to the disk, since a file renamed just before a power failure may be empty."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(source: Path, target: Path) -> None:
    """Replace a file. A file that is a mount point, as in containers, is overwritten instead."""
    try:
        source.replace(target)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        shutil.copyfile(source, target)
        source.unlink()


def _write_in_place(source: Path, target: Path) -> None:
    """Copy a file to a device, a FIFO or an open file.

    Raises:
        OSError: The target is not writable.
        TimeoutError: No process reads from the target.
    """
    descriptor = _open_in_place(target)
    try:
        remaining = memoryview(source.read_bytes())
        while remaining:
            _, writable, _ = select.select([], [descriptor], [], READER_TIMEOUT)
            if not writable:
                raise _build_timeout()
            remaining = remaining[os.write(descriptor, remaining) :]
    finally:
        os.close(descriptor)


def _build_timeout() -> TimeoutError:
    reason = f"nothing read from it for {READER_TIMEOUT:.0f} seconds"
    return TimeoutError(errno.ETIMEDOUT, reason)


def _open_in_place(target: Path) -> int:
    """Open a device, a FIFO or an open file for writing, and return the descriptor."""
    process = DESCRIPTORS.fullmatch(str(target.parent))
    if process and int(process[1]) == os.getpid() and target.name.isdecimal():
        # Reopening the file would overwrite earlier output.
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
                raise _build_timeout() from error
        time.sleep(0.05)


def write_text(path: Path, text: str) -> None:
    """Write a file in UTF-8 atomically."""
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def explain_unwritable(path: Path) -> Iterator[None]:
    """Convert OSErrors to PosirErrors, except those of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        raise PosirError(
            f"Cannot write {path}: {error.strerror}. Choose another file or folder."
        ) from error


def check_writable(folder: Path) -> None:
    """Create a folder unless it exists; raise PosirError if it is not writable."""
    with explain_disk_full(folder), explain_unwritable(folder):
        make_folder(folder)
        tempfile.TemporaryFile(dir=folder).close()


@contextmanager
def explain_disk_full(path: Path) -> Iterator[None]:
    """Convert OSErrors of a full disk to PosirErrors."""
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
    """Find an unused path next to a file: `a.json.SUFFIX`, then `a.json.SUFFIX-2`."""
    path = file.with_name(f"{file.name}.{suffix}")
    for number in count(2):
        if not os.path.lexists(path):
            break
        path = file.with_name(f"{file.name}.{suffix}-{number}")
    return path


def is_unfinished(path: Path) -> bool:
    """Return True if the name is that of an unfinished file or folder of posir."""
    return bool(PART_NAME.fullmatch(path.name)) and not path.is_symlink()


def remove_stale_parts(folder: Path) -> None:
    """Remove unfinished files and folders that are older than `STALE_AFTER`."""
    for part in folder.glob(f".*{PART_SUFFIX}"):
        with suppress(OSError):
            if part.lstat().st_mtime < time.time() - STALE_AFTER:
                _remove_part(part)


def remove_all_parts(folder: Path) -> None:
    """Remove unfinished files and folders at any depth. No other process may write there."""
    for part in list(folder.rglob(f".*{PART_SUFFIX}")):
        _remove_part(part)


def remove_parts_of(target: Path) -> None:
    """Remove unfinished versions of a file or folder. No other process may write it."""
    name = re.escape(target.name[:MAX_PART_STEM])
    pattern = re.compile(rf"\.{name}\.[a-z0-9_]{{8}}{re.escape(PART_SUFFIX)}", re.DOTALL)
    for part in list(target.parent.glob(f".*{PART_SUFFIX}")):
        if pattern.fullmatch(part.name):
            _remove_part(part)


def _remove_part(part: Path) -> None:
    # Another user may own the file, and another process may remove it first.
    with suppress(OSError):
        if not is_unfinished(part):
            return
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink()


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder for this process, also on network drives. Warn if it cannot be locked."""
    make_folder(folder)
    lock = FileLock(folder / LOCK_FILE, timeout=LOCK_TIMEOUT)
    try:
        lock.acquire()
    except OSError as error:
        logger.warning(
            "Cannot lock %s (%s). Do not run two commands that write there at the same time.",
            folder,
            error,
        )
    try:
        yield
    finally:
        lock.release()


@contextmanager
def update_atomically(file: Path) -> Iterator[Path]:
    """Yield a folder with a copy of a file, to be edited in place, and replace the file at the end.

    Links, modes and errors are handled as in `write_atomically`, but devices and FIFOs are errors.
    """
    target = follow_links(file)
    with explain_unwritable(file):
        status = _check_target(file, target)
    if status and not stat.S_ISREG(status.st_mode):
        raise PosirError(f"{file}: is a device or a FIFO. Name a file that can be changed.")
    with lock_folder(target.parent), write_atomically(file) as temporary:
        remove_stale_parts(target.parent)
        prefix = f".{target.name[:MAX_PART_STEM]}."
        with tempfile.TemporaryDirectory(
            dir=target.parent, prefix=prefix, suffix=PART_SUFFIX
        ) as folder:
            copy = Path(folder) / file.name
            if target.is_file():
                shutil.copyfile(target, copy)
            yield copy.parent
            shutil.copyfile(copy, temporary)


SUFFIX = ".gz"
#: Suffixes of file formats. Other suffixes are part of the name, as in `input.InexpC2.gz` and
#: `qrels.test`.
FORMATS = {
    *(".csv", ".htm", ".html", ".json", ".jsonl", ".lz4", ".markdown", ".md", ".ndjson", ".parq"),
    *(".parquet", ".pdf", ".qrel", ".qrels", ".rst", ".run", ".text", ".trec", ".tsv", ".txt"),
    ".xhtml",
}
#: Compression formats that are not supported, by the first bytes of a file. gzip is supported in
#: files whose names end in `.gz`.
COMPRESSION_FORMATS = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"\x04\x22\x4d\x18": "lz4",
}
#: Exceptions of `gzip` for damaged, truncated and uncompressed files.
GZIP_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)


def is_compressed(file: Path) -> bool:
    """Return True if the file name ends in `.gz`."""
    return file.suffix.lower() == SUFFIX


def split_suffix(file: Path) -> tuple[str, str]:
    """Split a file name into stem and lower-case suffix: `a.json.gz` into `a` and `.json`.

    A suffix that is not in `FORMATS` also stays in the stem.
    """
    plain = Path(file.stem) if is_compressed(file) else Path(file.name)
    suffix = plain.suffix.lower()
    return plain.stem if suffix in FORMATS else plain.name, suffix


def find_compressed(file: Path) -> Path:
    """Return the file, or its `.gz` version if only that exists."""
    compressed_file = file.with_name(file.name + SUFFIX)
    return compressed_file if compressed_file.is_file() and not file.is_file() else file


def check_readable(file: Path) -> None:
    """Raise OSError for devices, pipes and sockets. Their content may be endless, or readable only
    once.
    """
    if file.is_file() or file.is_dir():
        return
    # `stat` raises FileNotFoundError.
    mode = file.stat().st_mode
    kinds = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}
    kind = kinds.get(stat.S_IFMT(mode), "device")
    raise OSError(errno.EINVAL, f"it is a {kind}; save its content in a file and give that file")


def open_decompressed(file: Path) -> BufferedReader:
    """Open a file and decompress it if necessary. Reading may raise `GZIP_ERRORS`, or LimitError if
    the unpacked content is too large.

    Raises:
        OSError: The file cannot be opened or is not a regular file.
    """
    check_readable(file)
    return BufferedReader(_UnpackedFile(file)) if is_compressed(file) else file.open("rb")


class _UnpackedFile(RawIOBase):
    """The decompressed content of a file. Reading beyond the limit raises LimitError."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._limit = compute_unpacked_limit(file.stat().st_size)
        self._position = 0
        self._content = gzip.open(file)  # noqa: SIM115 (closed with this file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        size = self._content.readinto(buffer)
        self._position += size
        if self._position > self._limit:
            raise MAX_BYTES.make_error(
                self._file, f"unpacks to more than {describe_bytes(self._limit)}"
            )
        return size

    def close(self) -> None:
        if not self.closed:
            self._content.close()
        super().close()


def iterate_lines(content: BufferedIOBase, name: object) -> Iterator[bytes]:
    """Yield the lines of an open file; raise LimitError if a line is too long."""
    limit = read_line_limit()
    for number in count(1):
        line = content.readline(limit + 1)
        if not line:
            return
        if len(line) > limit:
            raise MAX_BYTES.make_error(
                name, f"line {number} is longer than {describe_bytes(limit)}"
            )
        yield line


def _check_compression(content: bytes) -> None:
    for beginning, name in COMPRESSION_FORMATS.items():
        if content.startswith(beginning):
            advice = "end its name in .gz" if name == "gzip" else "decompress it, or use gzip"
            raise OSError(errno.EINVAL, f"it is compressed with {name}; {advice}")


def read_decompressed(file: Path, max_bytes: int | None = None) -> bytes:
    """Read a file and decompress it if necessary.

    Args:
        file: The file, or a pipe between processes.
        max_bytes: Maximum size of the content; defaults to `POSIR_MAX_BYTES`.

    Raises:
        OSError: The file cannot be read, is not a regular file, or has an unsupported compression.
        GZIP_ERRORS: The file is damaged.
        LimitError: The file is too large, or the pipe is not closed in time.
    """
    limit = MAX_BYTES.read() if max_bytes is None else max_bytes
    # `command | posir` or `<(command)`.
    if file.is_fifo() and not os.path.lexists(os.path.realpath(file)):
        with limit_seconds(file), file.open("rb") as pipe:
            content = pipe.read(limit + 1)
    else:
        with open_decompressed(file) as stream:
            content = stream.read(limit + 1)
    check_size(file, len(content), max_bytes)
    _check_compression(content)
    if is_compressed(file):
        check_rows(file, content.count(b"\n"), file.stat().st_size)
    return content
