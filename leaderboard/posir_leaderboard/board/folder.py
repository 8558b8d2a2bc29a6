"""A site as files in a folder."""

from __future__ import annotations

from pathlib import Path

from posir_tasks.display.progress import progress
from posir_tasks.errors import PosirError
from posir_tasks.files import atomic_write

#: Content of every file by its path.
Site = dict[str, bytes]
#: The file by which a folder is known to hold a site.
INDEX = "data/board.js"
#: Folders of a site. What else lies in them is of an earlier one, and removed.
FOLDERS = ("data", "js", "lib")


def write_site(site: Site, folder: Path) -> int:
    """Write a site, file by file where it differs from what is there, and remove what is not of it.

    Returns:
        The number of files that were written or removed.

    Raises:
        PosirError: The folder holds something else than an earlier site.
    """
    check_folder(folder)
    changed = [path for path, body in site.items() if not _is(folder / path, body)]
    # The page last: until then the earlier one is whole, but for data that it asks for later.
    for path in progress(sorted(changed, key=lambda path: path == "index.html"), "Writing"):
        with atomic_write(folder / path) as part:
            part.write_bytes(site[path])
    stale = [file for name in FOLDERS for file in (folder / name).rglob("*") if file.is_file()]
    stale = [file for file in stale if file.relative_to(folder).as_posix() not in site]
    for file in stale:
        file.unlink()
    return len(changed) + len(stale)


def _is(file: Path, body: bytes) -> bool:
    return file.is_file() and file.stat().st_size == len(body) and file.read_bytes() == body


def check_folder(folder: Path) -> None:
    """Check that a folder may be written to.

    Raises:
        PosirError: It is a file, or holds something else than an earlier site.
    """
    if folder.exists() and not folder.is_dir():
        raise PosirError(f"{folder}: a file, not a folder. --output takes a folder for the site.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / INDEX).is_file():
        raise PosirError(f"{folder}: holds something else than a board. Give an empty or new folder as --output.")


def check_site(folder: Path) -> None:
    """Check that a folder holds a site.

    Raises:
        PosirError: It does not.
    """
    if not (folder / INDEX).is_file():
        raise PosirError(f"{folder}: no board. Make one with `posir leaderboard build --results results --output {folder}`.")
