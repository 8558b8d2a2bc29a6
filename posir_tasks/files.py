"""Finding files, reading compressed ones, writing them atomically, and a lock for each folder that several processes write to.

Data files may be compressed: `a.json.gz` is read as `a.json` is.
"""

import errno
import gzip
import logging
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedIOBase
from pathlib import Path

from filelock import FileLock

from posir_tasks.errors import PosirError

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

    A link to a folder that contains it is not: it has no new files. A folder that cannot be read has none.
    """
    return sorted(_walk(folder, suffix, frozenset(folder.resolve().parents)))


def _walk(folder: Path, suffix: str | tuple[str, ...], above: frozenset[Path]) -> Iterator[Path]:
    real = folder.resolve()
    if real in above or not os.access(folder, os.R_OK | os.X_OK):
        return
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir():
            yield from _walk(entry, suffix, above | {real})
        elif entry.name.endswith(suffix) and entry.is_file():
            yield entry


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
#: Suffixes that say a format. Any other is part of the name, as in `input.InexpC2.gz` or `qrels.test`.
FORMATS = frozenset({
    ".csv", ".htm", ".html", ".json", ".jsonl", ".lz4", ".markdown", ".md", ".ndjson", ".parq", ".parquet", ".pdf", ".qrel",
    ".qrels", ".rst", ".run", ".text", ".trec", ".tsv", ".txt", ".xhtml",
})  # fmt: skip
#: What reading raises if a file is damaged, cut off or not compressed at all.
GZIP_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)


def is_compressed(file: Path) -> bool:
    """Return whether the name says that the file is compressed."""
    return file.suffix.lower() == SUFFIX


def split_suffix(file: Path) -> tuple[str, str]:
    """Return the name of a data file and its suffix in lower case: `a` and `.json` of `a.json` and `a.json.gz`.

    A suffix that says no format is part of the name, too.
    """
    plain = Path(file.stem) if is_compressed(file) else Path(file.name)
    suffix = plain.suffix.lower()
    return plain.stem if suffix in FORMATS else plain.name, suffix


def find_compressed(file: Path) -> Path:
    """Return the compressed file if only that exists, and the file itself otherwise."""
    compressed = file.with_name(file.name + SUFFIX)
    return compressed if compressed.is_file() and not file.is_file() else file


def open_decompressed(file: Path) -> BufferedIOBase:
    """Open a data file, decompressed; raise OSError if it cannot be opened. Reading also raises `GZIP_ERRORS`."""
    return gzip.open(file) if is_compressed(file) else file.open("rb")


def read_decompressed(file: Path) -> bytes:
    """Return the decompressed content of a data file; raise OSError or `GZIP_ERRORS` if it cannot be read."""
    with open_decompressed(file) as opened:
        return opened.read()
