"""Write, serve and upload a site."""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias
from urllib.parse import unquote, urlsplit

from posir_leaderboard.board.manifest import (
    MANIFEST,
    Manifest,
    has_link,
    hash_content,
    is_site_path,
    read_manifest,
)
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import find_free_name, follow_links, is_unfinished, write_atomically
from posir_tasks.base.progress import track_items

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo

#: Content of every file by path.
Site: TypeAlias = dict[str, bytes]
#: The data file of the page; a folder with this file is a site.
BOARD_FILE = "data/board.js"


@dataclass(frozen=True)
class SiteChange:
    """The effect of writing a site to a folder."""

    changed_files: int
    """Number of files that were written or removed."""
    kept_files: Sequence[str]
    """New paths of edited files of the earlier site."""


def write_site(site: Site, folder: Path) -> SiteChange:
    """Write the changed files of a site and remove stale files of an earlier site.

    Only files in the folder's manifest are replaced or removed. Edited files are kept, under the
    name `NAME.replaced` if the site needs the name.

    Raises:
        PosirError: The folder has files that posir did not write.
    """
    check_output_folder(folder)
    folder = follow_links(folder)
    earlier = _read_folder_manifest(folder)
    changed_paths = [path for path, body in site.items() if _read_file(folder, path) != body]
    edited_files = [folder / path for path in changed_paths if _is_edited(folder, path, earlier)]
    kept_files = [file.rename(find_free_name(file, "replaced")) for file in edited_files]
    manifest = Manifest(files={path: [hash_content(body)] for path, body in site.items()})
    # Write the manifest first: if this run is killed, the next run recognizes the files.
    if changed_paths or earlier != manifest:
        (earlier | manifest).write(folder)
    # Write the page last: until then, the earlier page mostly works.
    for path in track_items(
        sorted(changed_paths, key=lambda path: path == "index.html"), "Writing"
    ):
        with write_atomically(folder / path) as temporary:
            temporary.write_bytes(site[path])
    removed_count = 0
    for path in earlier.files.keys() - site.keys():
        file = folder / path
        content = _read_file(folder, path)
        if content is not None and earlier.has_content(path, content):
            file.unlink()
            removed_count += 1
        elif file.exists():
            kept_files.append(file)
    if earlier != manifest:
        manifest.write(folder)
    return SiteChange(len(changed_paths) + removed_count, sorted(map(str, kept_files)))


def _read_file(folder: Path, path: str) -> bytes | None:
    """Read a file; None if it is missing or behind a link."""
    file = folder / path
    if has_link(folder, path) or not file.is_file():
        return None
    return file.read_bytes()


def _read_folder_manifest(folder: Path) -> Manifest:
    file = folder / MANIFEST
    if not file.is_file() or has_link(folder, MANIFEST):
        return Manifest()
    return read_manifest(file, file)


def _is_edited(folder: Path, path: str, earlier: Manifest) -> bool:
    """Return True for an edited file of an earlier site; raise PosirError for a foreign file."""
    file = folder / path
    content = _read_file(folder, path)
    if not file.exists() and not has_link(folder, path):
        return False
    if content is None or path not in earlier.files:
        raise PosirError(
            f"{file} is a link, or was not written by `posir leaderboard build`. Move it "
            "elsewhere, or choose another --output folder."
        )
    return not earlier.has_content(path, content)


def check_output_folder(folder: Path) -> None:
    """Raise PosirError unless a folder is new, empty or an earlier site."""
    if folder.exists() and not folder.is_dir():
        raise PosirError(f"{folder} is a file. Use --output with a folder.")
    if _read_folder_manifest(folder).files:
        return
    files = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    if not all(map(is_unfinished, files)):
        raise PosirError(
            f"{folder} contains something other than a leaderboard. Use --output with an empty "
            "or new folder."
        )


def _check_site(folder: Path) -> None:
    if not (folder / BOARD_FILE).is_file():
        raise PosirError(
            f"{folder} is not a leaderboard. Build one: posir leaderboard build --results results "
            f"--output {folder}"
        )


#: Only this machine can connect. To show a leaderboard to others, push it.
HOST = "127.0.0.1"


class SiteHandler(SimpleHTTPRequestHandler):
    """Request handler that serves one folder without hidden files, links or listings."""

    # The machine's own table may contain another type for scripts.
    extensions_map = {**mimetypes.types_map, ".js": "text/javascript"}  # noqa: RUF012
    protocol_version = "HTTP/1.1"

    def send_head(self) -> BytesIO | BinaryIO | None:
        """Send the headers, and return the body."""
        name = unquote(urlsplit(self.path).path)[1:] or "index.html"
        is_hidden = name.startswith(".") or "/." in name
        with suppress(OSError):  # for example if the name is too long
            if is_site_path(name) and not is_hidden and _is_served(Path(self.directory), name):
                return super().send_head()
        self.send_error(HTTPStatus.NOT_FOUND)
        return None

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def _is_served(folder: Path, name: str) -> bool:
    return (folder / name).is_file() and not has_link(folder, name)


def create_server(folder: Path, port: int) -> ThreadingHTTPServer:
    """Create a server for a site, but do not start it; port 0 selects a free port."""
    _check_site(folder)
    try:
        return ThreadingHTTPServer((HOST, port), partial(SiteHandler, directory=str(folder)))
    except OSError as error:
        raise PosirError(
            f"Port {port} of {HOST} is not available ({error.strerror}). Use another --port, or "
            "--port 0."
        ) from error


def push_site(folder: Path, space: str) -> CommitInfo:
    """Upload a site to a static Space `ORG/NAME`, created if missing, in one commit.

    Only files that posir wrote are uploaded or removed, according to the manifests.
    """
    # The Hub's client is slow to import.
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    from posir_leaderboard.submission import HuggingFaceHub, RetryableError

    _check_site(folder)
    manifest = _read_folder_manifest(folder)
    if not manifest.files:
        raise PosirError(
            f"{folder} has no {MANIFEST}, the list of its files. Build the leaderboard again, in "
            "an empty folder."
        )
    paths = [path for path in sorted({*manifest.files, MANIFEST}) if _is_served(folder, path)]
    hub = HuggingFaceHub()
    try:
        with hub.translate_errors("space", space):
            hub.api.create_repo(space, repo_type="space", space_sdk="static", exist_ok=True)
            remote_paths = set(hub.api.list_repo_files(space, repo_type="space"))
            stale = set[str]()
            if MANIFEST in remote_paths:
                copy = hub.api.hf_hub_download(space, MANIFEST, repo_type="space")
                earlier = read_manifest(Path(copy), f"space {space}: {MANIFEST}")
                stale = (earlier.files.keys() & remote_paths).difference(paths)
            # `upload_folder` splits a large folder into several commits, between which the page
            # would be inconsistent.
            additions = [CommitOperationAdd(path, folder / path) for path in paths]
            return hub.api.create_commit(
                space,
                [*additions, *map(CommitOperationDelete, sorted(stale))],
                commit_message="Update the leaderboard",
                repo_type="space",
            )
    except RetryableError as error:
        raise PosirError(f"{space}: {error}. Repeating the command is safe.") from None
