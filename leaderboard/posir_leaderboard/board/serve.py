"""A local server for a site: this machine alone, compressed as the Hub serves it."""

from __future__ import annotations

import gzip
import mimetypes
from functools import lru_cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from posir_leaderboard.board.folder import check_site
from posir_tasks.errors import PosirError

#: Never another: whoever wants others to see a board pushes it.
HOST = "127.0.0.1"
#: Types of a site's files, whatever the machine's own table of types says.
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


class SiteHandler(SimpleHTTPRequestHandler):
    """Serves files of one folder, compressed where the browser takes that."""

    extensions_map = {**mimetypes.types_map, **TYPES}  # noqa: RUF012
    protocol_version = "HTTP/1.1"

    def send_head(self) -> BytesIO | BinaryIO | None:
        """Answer with the headers, and return the body."""
        file = Path(self.translate_path(self.path))
        file = file / "index.html" if file.is_dir() else file
        if "gzip" not in self.headers.get("Accept-Encoding", "") or file.suffix not in TYPES or not file.is_file():
            return super().send_head()
        body = compressed(file, file.stat().st_mtime_ns)
        self.send_response(200)
        self.send_header("Content-Type", TYPES[file.suffix])
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-cache")
        self.end_headers()
        return BytesIO(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the command has said where the site is."""


@lru_cache(maxsize=64)
def compressed(file: Path, changed: int) -> bytes:  # noqa: ARG001
    """Return a file's content compressed; `changed` is when it was last written."""
    return gzip.compress(file.read_bytes(), mtime=0)


def server_of(folder: Path, port: int) -> ThreadingHTTPServer:
    """Return a server of a site, which does not serve yet.

    Args:
        folder: Of the site.
        port: 0 for any free one.

    Raises:
        PosirError: There is no site, or the port is taken.
    """
    check_site(folder)
    try:
        return ThreadingHTTPServer((HOST, port), partial(SiteHandler, directory=str(folder)))
    except OSError as error:
        raise PosirError(f"Port {port} of {HOST} cannot be had ({error.strerror}). Give another --port, or 0.") from error
