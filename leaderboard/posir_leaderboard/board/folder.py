"""A site as files in a folder."""

from pathlib import Path

from posir_tasks.display.progress import progress
from posir_tasks.errors import PosirError
from posir_tasks.files import atomic_write

#: Content of every file by its path.
Site = dict[str, bytes]
#: The file that identifies a folder as a site.
INDEX = "data/board.js"
#: Folders of a site. Other files in them belong to an earlier site and are removed.
FOLDERS = ("data", "js", "lib")


def write_site(site: Site, folder: Path) -> int:
    """Write the files of a site that differ from those in a folder, and remove files of an earlier site.

    Returns:
        The number of files that were written or removed.

    Raises:
        PosirError: The folder contains something other than an earlier site.
    """
    check_output_folder(folder)
    changed = [path for path, body in site.items() if not (folder / path).is_file() or (folder / path).read_bytes() != body]
    # The page last: until then the earlier one works, except for data that it loads later.
    for path in progress(sorted(changed, key=lambda path: path == "index.html"), "Writing"):
        with atomic_write(folder / path) as part:
            part.write_bytes(site[path])
    stale = [file for name in FOLDERS for file in (folder / name).rglob("*") if file.is_file()]
    stale = [file for file in stale if file.relative_to(folder).as_posix() not in site]
    for file in stale:
        file.unlink()
    return len(changed) + len(stale)


def check_output_folder(folder: Path) -> None:
    """Raise PosirError if a folder is a file, or contains something other than an earlier site."""
    if folder.exists() and not folder.is_dir():
        raise PosirError(f"{folder}: a file, not a folder. --output takes a folder for the site.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / INDEX).is_file():
        raise PosirError(f"{folder}: contains something other than a leaderboard. Give an empty or new folder as --output.")


def check_site(folder: Path) -> None:
    """Raise PosirError if a folder contains no site."""
    if not (folder / INDEX).is_file():
        raise PosirError(f"{folder}: no leaderboard. Build it: posir leaderboard build --results results --output {folder}")
