"""A site as files in a folder."""

import gzip
import mimetypes
import re
from dataclasses import dataclass
from functools import lru_cache, partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, TypeAlias
from urllib.parse import unquote

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete

from posir_leaderboard.board.manifest import (
    MANIFEST,
    Manifest,
    has_link,
    is_site_path,
    parse_manifest,
    read_manifest,
)
from posir_leaderboard.submission import HuggingFaceHub, RetryableError
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import atomic_write, find_free_name, follow_links, is_unfinished
from posir_tasks.base.progress import progress

#: Content of every file by its path.
Site: TypeAlias = dict[str, bytes]
#: The file that identifies a folder as a site.
INDEX = "data/board.js"
#: The largest number of files that a message names.
MAX_NAMES = 3


@dataclass(frozen=True)
class SiteChange:
    """The changes to a folder that a site was written into."""

    number: int
    """Files that were written or removed."""
    kept: tuple[str, ...]
    """Files of an earlier site that someone has changed since: where each is now."""


def write_site(site: Site, folder: Path) -> SiteChange:
    """Write the files of a site that differ from those in a folder, and remove files of an earlier
    site.

    Only files that the manifest of the folder lists are replaced or removed. One that was changed
    since posir wrote it is kept: under its name, or under the name `NAME.replaced` if the site has
    another file there.

    Raises:
        PosirError: The folder has something else, at a path of the site or everywhere.
    """
    check_output_folder(folder)
    folder = follow_links(folder)
    earlier = read_manifest(folder)
    changed = [path for path in site if _read_file(folder, path) != site[path]]
    _check_paths(site, folder, earlier)
    kept = [_set_aside(folder, path) for path in changed if _is_changed(folder, path, earlier)]
    present = Manifest.of_site(site)
    # First, so that a killed run leaves no file that the next one takes for somebody else's.
    if changed or earlier != present:
        (earlier | present).write(folder)
    # The page last: until then the earlier one works, except for data that it loads later.
    for path in progress(sorted(changed, key=lambda path: path == "index.html"), "Writing"):
        with atomic_write(folder / path) as part:
            part.write_bytes(site[path])
    removed = 0
    for path in earlier.digests.keys() - site.keys():
        file = folder / path
        if _is_changed(folder, path, earlier):
            kept.append(str(file))
        elif file.exists():
            file.unlink()
            removed += 1
    if earlier != present:
        present.write(folder)
    return SiteChange(len(changed) + removed, tuple(sorted(kept)))


def _read_file(folder: Path, path: str) -> bytes | None:
    """Return the content of a file of a folder; None if there is none, or a link leads to it."""
    file = folder / path
    if has_link(folder, path) or not file.is_file():
        return None
    return file.read_bytes()


def _is_changed(folder: Path, path: str, manifest: Manifest) -> bool:
    """Return whether there is a file with another content than posir wrote."""
    content = _read_file(folder, path)
    is_ours = content is not None and manifest.has_content(path, content)
    return (folder / path).exists() and not is_ours


def _check_paths(site: Site, folder: Path, earlier: Manifest) -> None:
    """Raise PosirError if somebody else's file, folder or link is at a path of a site."""
    foreign = []
    for path, body in site.items():
        file = folder / path
        content = _read_file(folder, path)
        is_ours = content == body or (path in earlier.digests and content is not None)
        if has_link(folder, path) or (file.exists() and not is_ours):
            foreign.append(str(file))
    if foreign:
        more = ", ..." if len(foreign) > MAX_NAMES else ""
        raise PosirError(
            f"{', '.join(foreign[:MAX_NAMES])}{more}: not written by `posir leaderboard build`, "
            "or a link. Move it elsewhere, or give another folder as --output."
        )


def _set_aside(folder: Path, path: str) -> str:
    """Rename a file, and return where it is."""
    file = folder / path
    return str(file.rename(find_free_name(file, "replaced")))


def check_output_folder(folder: Path) -> None:
    """Raise PosirError if a folder is a file, or contains something other than an earlier site."""
    if folder.exists() and not folder.is_dir():
        raise PosirError(f"{folder}: a file, not a folder. --output takes a folder for the site.")
    if read_manifest(folder).digests:
        return
    others = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    if any(not is_unfinished(path) for path in others):
        raise PosirError(
            f"{folder}: contains something other than a leaderboard. Give an empty or new folder "
            "as --output."
        )


def _check_site(folder: Path) -> None:
    if not (folder / INDEX).is_file():
        raise PosirError(
            f"{folder}: no leaderboard. Build it: posir leaderboard build --results results "
            f"--output {folder}"
        )


#: Never another address: to show a leaderboard to others, push it.
HOST = "127.0.0.1"
#: Media types of a site's files, independent of the machine's own table.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}


#: An escape that is cut off or has other characters than hexadecimal digits.
CUT_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def find_file(folder: Path, target: str) -> Path | HTTPStatus:
    """Return the file of a site that a request names, such as `/js/core.js?v=1`: a regular file in
    the folder, neither hidden nor a link.

    Returns:
        400 if the request is malformed, 404 if there is no such file. A folder is none, except `/`,
        which is its index.html.
    """
    encoded = re.split(r"[?#]", target, maxsplit=1)[0]
    try:
        path = unquote(encoded, errors="strict")
    except UnicodeDecodeError:
        return HTTPStatus.BAD_REQUEST
    if not path.startswith("/") or CUT_ESCAPE.search(encoded) or not path.isprintable():
        return HTTPStatus.BAD_REQUEST
    name = path[1:] or "index.html"
    is_hidden = any(part.startswith(".") for part in name.split("/"))
    if is_hidden or not is_site_path(name) or has_link(folder, name):
        return HTTPStatus.NOT_FOUND
    file = folder / name
    return file if file.is_file() else HTTPStatus.NOT_FOUND


class SiteHandler(SimpleHTTPRequestHandler):
    """Serves files of one folder, compressed if the browser accepts it."""

    extensions_map = {**mimetypes.types_map, **TYPES}  # noqa: RUF012
    protocol_version = "HTTP/1.1"

    def send_head(self) -> BytesIO | BinaryIO | None:
        """Send the headers, and return the body."""
        try:
            file = find_file(Path(self.directory), self.path)
        except OSError:  # such as a name that is too long
            file = HTTPStatus.NOT_FOUND
        if isinstance(file, HTTPStatus):
            self.send_error(file)
            return None
        self._file = file
        if "gzip" not in self.headers.get("Accept-Encoding", "") or file.suffix not in TYPES:
            return super().send_head()
        body = _compress_file(file, file.stat().st_mtime_ns)
        self.send_response(200)
        self.send_header("Content-Type", TYPES[file.suffix])
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-cache")
        self.end_headers()
        return BytesIO(body)

    def translate_path(self, path: str) -> str:  # noqa: ARG002
        """Return the file that was found for the request."""
        return str(self._file)

    def refuse_method(self) -> None:
        """Answer a request that would change something."""
        self.close_connection = True
        self.send_response(HTTPStatus.METHOD_NOT_ALLOWED)
        self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Length", "0")
        self.send_header("Connection", "close")
        self.end_headers()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = refuse_method  # noqa: N815

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
        raise PosirError(
            f"Port {port} of {HOST} is not available ({error.strerror}). Give another --port, or 0."
        ) from error


def push_site(folder: Path, space: str) -> CommitInfo:
    """Upload a site to a static Space `ORG/NAME`, created if missing, in one commit of the changed
    files.

    Only files that posir wrote are uploaded, and of those in the Space only files that its manifest
    lists are removed.
    """
    _check_site(folder)
    manifest = read_manifest(folder)
    if not manifest.digests:
        raise PosirError(
            f"{folder}: has no {MANIFEST}, the list of its files. Build the leaderboard again, in "
            "an empty folder."
        )
    names = [path for path in sorted({*manifest.digests, MANIFEST}) if not has_link(folder, path)]
    files = {path: folder / path for path in names if (folder / path).is_file()}
    hub = HuggingFaceHub()
    try:
        with hub.translate_errors(f"space {space}"):
            hub.api.create_repo(space, repo_type="space", space_sdk="static", exist_ok=True)
            listed = set(hub.api.list_repo_files(space, repo_type="space"))
            earlier = _read_remote_manifest(hub, space) if MANIFEST in listed else Manifest()
            # Not `upload_folder`, which makes several commits of a large folder; visitors would see
            # an inconsistent page.
            added = [CommitOperationAdd(path, file) for path, file in files.items()]
            stale = sorted((earlier.digests.keys() & listed) - files.keys())
            return hub.api.create_commit(
                space,
                [*added, *(CommitOperationDelete(path) for path in stale)],
                commit_message="Update the leaderboard",
                repo_type="space",
            )
    except RetryableError as error:
        raise PosirError(f"{space}: {error}. Repeating the command is safe.") from None


def _read_remote_manifest(hub: HuggingFaceHub, space: str) -> Manifest:
    file = hub.api.hf_hub_download(space, MANIFEST, repo_type="space")
    return parse_manifest(Path(file).read_bytes(), f"space {space}: {MANIFEST}")
