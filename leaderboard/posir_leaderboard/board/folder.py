"""A site as files in a folder."""

import mimetypes
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, TypeAlias
from urllib.parse import unquote, urlsplit

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete

from posir_leaderboard.board.manifest import (
    MANIFEST,
    Manifest,
    has_link,
    hash_content,
    is_site_path,
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
    earlier = _read_folder_manifest(folder)
    changed = [path for path, body in site.items() if _read_file(folder, path) != body]
    edited = [folder / path for path in changed if _is_edited(folder, path, earlier)]
    kept = [file.rename(find_free_name(file, "replaced")) for file in edited]
    written = Manifest(files={path: [hash_content(body)] for path, body in site.items()})
    # First, so that a killed run leaves no file that the next one takes for somebody else's.
    if changed or earlier != written:
        (earlier | written).write(folder)
    # The page last: until then the earlier one works, except for data that it loads later.
    for path in progress(sorted(changed, key=lambda path: path == "index.html"), "Writing"):
        with atomic_write(folder / path) as part:
            part.write_bytes(site[path])
    removed = 0
    for path in earlier.files.keys() - site.keys():
        file = folder / path
        content = _read_file(folder, path)
        if content is not None and earlier.has_content(path, content):
            file.unlink()
            removed += 1
        elif file.exists():
            kept.append(file)
    if earlier != written:
        written.write(folder)
    return SiteChange(len(changed) + removed, tuple(sorted(map(str, kept))))


def _read_file(folder: Path, path: str) -> bytes | None:
    """Return the content of a file of a folder; None if there is none, or a link leads to it."""
    file = folder / path
    if has_link(folder, path) or not file.is_file():
        return None
    return file.read_bytes()


def _read_folder_manifest(folder: Path) -> Manifest:
    """Return the manifest of a folder, an empty one if there is none."""
    file = folder / MANIFEST
    if not file.is_file() or has_link(folder, MANIFEST):
        return Manifest()
    return read_manifest(file, file)


def _is_edited(folder: Path, path: str, earlier: Manifest) -> bool:
    """Return whether a file of an earlier site has another content than posir wrote; raise
    PosirError if it is no such file, but exists.
    """
    file = folder / path
    content = _read_file(folder, path)
    if content is None and not file.exists() and not has_link(folder, path):
        return False
    if content is None or path not in earlier.files:
        raise PosirError(
            f"{file}: not written by `posir leaderboard build`, or a link. Move it elsewhere, or "
            "give another folder as --output."
        )
    return not earlier.has_content(path, content)


def check_output_folder(folder: Path) -> None:
    """Raise PosirError if a folder is a file, or contains something other than an earlier site."""
    if folder.exists() and not folder.is_dir():
        raise PosirError(f"{folder}: a file, not a folder. --output takes a folder for the site.")
    if _read_folder_manifest(folder).files:
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


class SiteHandler(SimpleHTTPRequestHandler):
    """Serves the files of one folder that are neither hidden nor links; never a folder, except `/`,
    which is its index.html.
    """

    # The machine's own table may name other types for scripts.
    extensions_map = {**mimetypes.types_map, ".js": "text/javascript"}  # noqa: RUF012
    protocol_version = "HTTP/1.1"

    def send_head(self) -> BytesIO | BinaryIO | None:
        """Send the headers, and return the body."""
        name = unquote(urlsplit(self.path).path)[1:] or "index.html"
        folder = Path(self.directory)
        try:
            is_hidden = name.startswith(".") or "/." in name
            if is_site_path(name) and not is_hidden and _is_served(folder, name):
                return super().send_head()
        except OSError:  # such as a name that is too long
            pass
        self.send_error(HTTPStatus.NOT_FOUND)
        return None

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the command has printed the address."""


def _is_served(folder: Path, name: str) -> bool:
    return (folder / name).is_file() and not has_link(folder, name)


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
    manifest = _read_folder_manifest(folder)
    if not manifest.files:
        raise PosirError(
            f"{folder}: has no {MANIFEST}, the list of its files. Build the leaderboard again, in "
            "an empty folder."
        )
    paths = [path for path in sorted({*manifest.files, MANIFEST}) if _is_served(folder, path)]
    hub = HuggingFaceHub()
    try:
        with hub.translate_errors(f"space {space}"):
            hub.api.create_repo(space, repo_type="space", space_sdk="static", exist_ok=True)
            listed = set(hub.api.list_repo_files(space, repo_type="space"))
            earlier = Manifest()
            if MANIFEST in listed:
                copy = hub.api.hf_hub_download(space, MANIFEST, repo_type="space")
                earlier = read_manifest(Path(copy), f"space {space}: {MANIFEST}")
            # Not `upload_folder`, which makes several commits of a large folder; visitors would see
            # an inconsistent page.
            added = [CommitOperationAdd(path, folder / path) for path in paths]
            stale = sorted((earlier.files.keys() & listed).difference(paths))
            return hub.api.create_commit(
                space,
                [*added, *map(CommitOperationDelete, stale)],
                commit_message="Update the leaderboard",
                repo_type="space",
            )
    except RetryableError as error:
        raise PosirError(f"{space}: {error}. Repeating the command is safe.") from None
