"""Files that are written whole or not at all, and folders that one process at a time changes."""

import errno
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from posir_tasks.errors import PosirError

logger = logging.getLogger(__name__)

#: The disk, the user's share of it, or the file is at its limit.
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: End of the name of what is being written.
PART = ".part"
#: Age in seconds at which an unfinished file is one of a dead process.
FORGOTTEN = 86_400
#: Name of the file in a folder by which processes take turns.
LOCK_FILE = ".posir.lock"
#: Seconds after which a process goes on without its turn: far longer than any writing takes.
PATIENCE = 120.0


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Give a path beside the wanted one to write to, and rename it at the end; after an error nothing is left of it.

    Raises:
        PosirError: There is no room for it, or its folder cannot be written to.
    """
    with explain_disk_full(path):
        beside = _new_file_beside(path)
        try:
            yield beside
            beside.chmod(0o666 & ~_umask())
            # Renamed before its bytes are on the disk, a file may be there and empty after a power failure.
            with beside.open("rb+") as written:
                os.fsync(written.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


def _new_file_beside(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise
        raise PosirError(f"{path.parent}: cannot be written to ({error.strerror}). Name a folder that can be.") from error
    os.close(handle)
    return Path(name)


@contextmanager
def explain_disk_full(path: Path) -> Iterator[None]:
    """Turn the system's error where there is no room for a file into one that says what to do.

    Raises:
        PosirError: There is no room.
    """
    try:
        yield
    except OSError as error:
        if error.errno in NO_ROOM:
            raise PosirError(
                f"{path}: there is no room for it ({os.strerror(error.errno)}). What was finished before is kept. Make "
                "room and run the same command again."
            ) from error
        raise


def remove_stale_parts(folder: Path) -> None:
    """Remove from a folder what killed processes have left unfinished; what is a day old is being written by nobody."""
    for part in folder.glob(f".*{PART}"):
        # It may be another user's, or gone by now.
        with suppress(OSError):
            if part.stat().st_mtime < time.time() - FORGOTTEN:
                if part.is_dir():
                    shutil.rmtree(part)
                else:
                    part.unlink()


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Let one process at a time change the files of a folder, on whichever machine; a dead process's turn is over.

    Where no turn is to be had (the file system has no locks, another process is stopped in its turn) that is told and done
    without: what is written here was computed for hours.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK_FILE, timeout=PATIENCE)
    try:
        lock.acquire()
    except OSError as error:
        logger.warning("%s: cannot be locked (%s); do not let two runs write there at the same time", folder, error)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def atomic_update(file: Path) -> Iterator[Path]:
    """Give a folder with a copy of a file, and put the copy in its place at the end; processes take turns.

    For code that changes a file in place where it finds it.
    """
    with folder_lock(file.parent), explain_disk_full(file):
        remove_stale_parts(file.parent)
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.", suffix=PART) as beside:
            copy = Path(beside) / file.name
            if file.exists():
                shutil.copyfile(file, copy)
            yield copy.parent
            copy.replace(file)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
