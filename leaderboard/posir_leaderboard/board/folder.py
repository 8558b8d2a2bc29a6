"""A site as files in a folder."""

import gzip
import mimetypes
from functools import lru_cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete

from posir_leaderboard.submission import HuggingFaceHub, RetryableError
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


def _check_site(folder: Path) -> None:
    if not (folder / INDEX).is_file():
        raise PosirError(f"{folder}: no leaderboard. Build it: posir leaderboard build --results results --output {folder}")


#: Never another address: to show a leaderboard to others, push it.
HOST = "127.0.0.1"
#: Media types of a site's files, independent of the machine's own table.
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


class SiteHandler(SimpleHTTPRequestHandler):
    """Serves files of one folder, compressed if the browser accepts it."""

    extensions_map = {**mimetypes.types_map, **TYPES}  # noqa: RUF012
    protocol_version = "HTTP/1.1"

    def send_head(self) -> BytesIO | BinaryIO | None:
        """Send the headers, and return the body."""
        file = Path(self.translate_path(self.path))
        file = file / "index.html" if file.is_dir() else file
        if "gzip" not in self.headers.get("Accept-Encoding", "") or file.suffix not in TYPES or not file.is_file():
            return super().send_head()
        body = _compress_file(file, file.stat().st_mtime_ns)
        self.send_response(200)
        self.send_header("Content-Type", TYPES[file.suffix])
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-cache")
        self.end_headers()
        return BytesIO(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the command has printed the address."""


@lru_cache(maxsize=64)
def _compress_file(file: Path, changed: int) -> bytes:  # noqa: ARG001
    return gzip.compress(file.read_bytes(), mtime=0)


def create_server(folder: Path, port: int) -> ThreadingHTTPServer:
    """Return a server for a site, not yet started; port 0 is any free one."""
    _check_site(folder)
    try:
        return ThreadingHTTPServer((HOST, port), partial(SiteHandler, directory=str(folder)))
    except OSError as error:
        raise PosirError(f"Port {port} of {HOST} is not available ({error.strerror}). Give another --port, or 0.") from error


def push_site(folder: Path, space: str) -> CommitInfo:
    """Upload a site to a static Space `ORG/NAME`, created if missing, in one commit of the changed files."""
    _check_site(folder)
    hub = HuggingFaceHub()
    try:
        with hub.translate_errors(f"space {space}"):
            hub.api.create_repo(space, repo_type="space", space_sdk="static", exist_ok=True)
            files = {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*")) if file.is_file()}
            earlier = set(hub.api.list_repo_files(space, repo_type="space")) - files.keys() - {".gitattributes"}
            # Not `upload_folder`, which makes several commits of a large folder; visitors would see an inconsistent page.
            added = [CommitOperationAdd(path, file) for path, file in files.items()]
            gone = [CommitOperationDelete(path) for path in sorted(earlier)]
            message = "Update the leaderboard"
            return hub.api.create_commit(space, [*added, *gone], commit_message=message, repo_type="space")
    except RetryableError as error:
        raise PosirError(f"{space}: {error}. Repeating the command is safe.") from None
