"""A small Hub: as much of the Hugging Face Hub's HTTP interface as reading a dataset repository takes."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

LISTING = re.compile(r"/api/datasets/(?P<repo>[^/]+/[^/]+)/(?P<what>tree|revision)/(?P<revision>[^/?]+)")
FILE = re.compile(r"/datasets/(?P<repo>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>[^?]+)")


@dataclass
class Hub:
    """One repository in one folder, at a commit."""

    repo_id: str
    root: Path
    commit: str
    branches: tuple[str, ...] = ("main",)
    url: str = ""
    revisions: list[str] = field(default_factory=list)
    """The revisions that were asked for, one per request."""

    def files(self) -> dict[str, Path]:
        return {path.relative_to(self.root).as_posix(): path for path in sorted(self.root.rglob("*")) if path.is_file()}


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_HEAD(self):
        self.answer(with_body=False)

    def do_GET(self):
        self.answer(with_body=True)

    def answer(self, with_body):
        asked = LISTING.match(self.path) or FILE.match(self.path)
        if asked is None or asked["repo"] != self.hub.repo_id:
            self.reply(404, b"", with_body, {"X-Error-Code": "RepoNotFound"})
            return
        self.hub.revisions.append(asked["revision"])
        if asked["revision"] not in (self.hub.commit, *self.hub.branches):
            self.reply(404, b"", with_body, {"X-Error-Code": "RevisionNotFound"})
        elif asked.re is LISTING:
            self.reply(200, json.dumps(self.listing(asked["what"])).encode(), with_body, {"Content-Type": "application/json"})
        elif asked["path"] in self.hub.files():
            self.reply(200, self.hub.files()[asked["path"]].read_bytes(), with_body, {})
        else:
            self.reply(404, b"", with_body, {"X-Error-Code": "EntryNotFound"})

    def listing(self, what):
        files = self.hub.files()
        if what == "revision":
            return {"id": self.hub.repo_id, "sha": self.hub.commit, "siblings": [{"rfilename": path} for path in files]}
        return [
            {"type": "file", "path": path, "size": file.stat().st_size, "oid": digest(file.read_bytes())}
            for path, file in files.items()
        ]

    def reply(self, status, body, with_body, headers):
        self.send_response(status)
        headers = {"Content-Length": str(len(body)), "ETag": f'"{digest(body)}"', "X-Repo-Commit": self.hub.commit} | headers
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *args):
        pass


def digest(body: bytes) -> str:
    return hashlib.sha1(body).hexdigest()


@contextmanager
def serve(repo_id: str, root: Path, commit: str) -> Iterator[Hub]:
    """Serve a folder as a dataset repository on a free local port."""
    hub = Hub(repo_id, root, commit)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("HandlerOfHub", (Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
