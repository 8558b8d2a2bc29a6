"""A local server for a site: reachable from this machine only, compressing files as the Hub does."""

import gzip
import mimetypes
from functools import lru_cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from posir_leaderboard.board.folder import check_site
from posir_tasks.errors import PosirError

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
        body = read_compressed(file, file.stat().st_mtime_ns)
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
def read_compressed(file: Path, changed: int) -> bytes:  # noqa: ARG001
    """Return a file's compressed content, cached until its modification time `changed` differs."""
    return gzip.compress(file.read_bytes(), mtime=0)


def create_server(folder: Path, port: int) -> ThreadingHTTPServer:
    """Return a server for a site, not yet started; port 0 is any free one.

    Raises:
        PosirError: There is no site, or the port is taken.
    """
    check_site(folder)
    try:
        return ThreadingHTTPServer((HOST, port), partial(SiteHandler, directory=str(folder)))
    except OSError as error:
        raise PosirError(f"Port {port} of {HOST} is not available ({error.strerror}). Give another --port, or 0.") from error
