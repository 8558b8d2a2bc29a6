"""A fake Hub: the part of the Hugging Face Hub's HTTP interface that reads and changes
repositories.

It can be made to fail: `hub.failures.append(Failure("commit", status=503))`.
"""

import base64
import hashlib
import json
import re
import socket
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support import embedding_server

API = re.compile(
    r"/api/(?P<kind>datasets|models|spaces)/(?P<repo>[^/]+/[^/]+)(?:/(?P<operation>[^/]+)(?:/(?P<rest>.+))?)?"
)
FILE = re.compile(
    r"/(?:(?P<kind>datasets|spaces)/)?(?P<repo>[^/]+/[^/]+)/(?P<operation>resolve)/(?P<rest>.+)"
)
#: Discussions per page.
PAGE = 2


@dataclass
class Folder:
    """A read-only dataset repository."""

    repo_id: str
    root: Path
    commit: str
    branches: tuple[str, ...] = ("main",)
    url: str = ""
    revisions: list[str] = field(default_factory=list)
    kind: str = "datasets"

    def head(self, revision):
        self.revisions.append(revision)
        return self.commit if revision in (self.commit, *self.branches) else None

    def files(self, revision="main"):  # noqa: ARG002
        paths = sorted(path for path in self.root.rglob("*") if path.is_file())
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in paths}


@dataclass
class Pull:
    number: int
    title: str
    description: str
    files: dict[str, bytes]
    changed: tuple[str, ...]
    status: str = "open"

    @property
    def revision(self) -> str:
        return f"refs/pr/{self.number}"

    @property
    def commit(self) -> str:
        return git_hash(self.revision.encode())


@dataclass
class Store:
    """A repository that can be changed."""

    repo_id: str
    kind: str = "datasets"
    main: dict[str, bytes] = field(default_factory=dict)
    commits: list[str] = field(default_factory=lambda: ["0" * 40])
    pulls: list[Pull] = field(default_factory=list)

    def head(self, revision):
        if revision in ("main", *self.commits):
            return self.commits[-1]
        pull = self.pull(revision)
        return pull.commit if pull else None

    def files(self, revision="main"):
        pull = self.pull(revision)
        return pull.files if pull else self.main

    def pull(self, revision):
        return next((pull for pull in self.pulls if revision in (pull.revision, pull.commit)), None)

    def merge(self, pull: Pull) -> None:
        self.change({path: pull.files[path] for path in pull.changed})
        pull.status = "merged"

    def change(self, files: Mapping[str, bytes], deleted: Collection[str] = ()) -> str:
        self.main = {
            path: content for path, content in self.main.items() if path not in deleted
        } | dict(files)
        self.commits.append(git_hash(repr((len(self.commits), sorted(files))).encode()))
        return self.commits[-1]

    def propose(self, title: str, description: str, files: Mapping[str, bytes]) -> Pull:
        pull = Pull(len(self.pulls) + 1, title, description, self.main | dict(files), tuple(files))
        self.pulls.append(pull)
        return pull


@dataclass
class Failure:
    """How requests of one operation (commit, preupload, discussions, paths-info, ...) fail."""

    operation: str
    status: int | None = None
    """Respond with this status; the body echoes the client's Authorization header."""
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: Literal["before", "after", "halfway", "late"] | None = None
    """Close the connection before the operation, after it, within the response, or defer it to the
    next such request.
    """
    times: int = 1
    meeting: Callable[[], object] = lambda: None
    """Called first, such as a barrier's `wait`."""


@dataclass
class Hub:
    repositories: dict[tuple[str, str], Any]
    url: str = ""
    failures: list[Failure] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)
    late: deque[Callable[[], object]] = field(default_factory=deque)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def failure(self, operation: str) -> Failure | None:
        with self.lock:
            for failure in self.failures:
                if failure.operation == operation and failure.times > 0:
                    failure.times -= 1
                    return failure
        return None

    def count(self, operation: str) -> int:
        return sum(asked == operation for _, asked in self.requests)


@dataclass(frozen=True)
class Answer:
    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def as_json(value: object, status: int = 200, **headers: str) -> Answer:
    return Answer(
        json.dumps(value).encode(), status, {"Content-Type": "application/json", **headers}
    )


def missing(what: str) -> Answer:
    return Answer(status=404, headers={"X-Error-Code": f"{what}NotFound"})


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        asked = API.fullmatch(parts.path) or FILE.fullmatch(parts.path)
        operation = asked["operation"] or "revision" if asked else ""
        if parts.path == "/api/validate-yaml":
            return self.reply(as_json({"errors": [], "warnings": []}))
        if parts.path == "/api/repos/create":
            operation = "create"
        self.hub.requests.append((self.command, operation))
        failure = self.hub.failure(operation) or Failure(operation)
        failure.meeting()
        repository = (
            self.hub.repositories.get((asked["kind"] or "models", asked["repo"])) if asked else None
        )

        def act():
            with self.hub.lock:
                if operation == "create":
                    return self.create(json.loads(body))
                return self.answer(
                    repository,
                    operation,
                    unquote(asked["rest"] or "main"),
                    parse_qs(parts.query),
                    body,
                )

        if failure.status:
            echo = {"error": f"asked with {self.headers.get('Authorization')}"}
            self.reply(as_json(echo, failure.status, **failure.headers))
        elif failure.drop == "before":
            self.cut()
        elif failure.drop == "late":
            self.hub.late.append(act)
            self.cut()
        else:
            while operation == "commit" and self.hub.late:
                self.hub.late.popleft()()
            answer = act() if repository or operation == "create" else missing("Repo")
            if failure.drop == "after":
                self.cut()
            else:
                self.reply(answer, halfway=failure.drop == "halfway")

        return None

    do_GET = do_HEAD = do_POST  # noqa: N815

    def create(self, wanted):
        kind = f"{wanted['type']}s"
        name = f"{wanted['organization']}/{wanted['name']}"
        page = {"url": f"{self.hub.url}/{kind}/{name}"}
        if (kind, name) in self.hub.repositories:
            return as_json({"error": "You already created this repo", **page}, 409)
        self.hub.repositories[kind, name] = Store(name, kind, {".gitattributes": b""})
        return as_json(page)

    def answer(self, repository, operation, rest, query, body):
        if operation == "discussions":
            return self.discuss(repository, rest, query, body)
        revision, _, path = re.fullmatch(r"(refs/pr/\d+|[^/]+)(/?)(.*)", rest).groups()
        commit = repository.head(revision)
        if commit is None:
            return missing("Revision")
        files = repository.files(revision)
        if operation == "resolve":
            if path not in files:
                return missing("Entry")
            return Answer(
                files[path], headers={"X-Repo-Commit": commit, "ETag": f'"{git_hash(files[path])}"'}
            )
        if operation == "revision":
            siblings = [{"rfilename": path} for path in files]
            return as_json({"id": repository.repo_id, "sha": commit, "siblings": siblings})
        if operation == "tree":
            return as_json([file_info(path, content) for path, content in files.items()])
        if operation == "paths-info":
            paths = parse_qs(body.decode())["paths"]
            return as_json([file_info(path, files[path]) for path in paths if path in files])
        if operation == "preupload":
            asked = [file["path"] for file in json.loads(body)["files"]]
            oids = {path: {"oid": git_hash(files[path])} if path in files else {} for path in asked}
            same = {"uploadMode": "regular", "shouldIgnore": False}
            return as_json({"files": [{"path": path, **same, **oid} for path, oid in oids.items()]})
        if operation == "commit":
            return self.commit(repository, bool(query.get("create_pr")), commit, body)
        raise AssertionError(operation)

    def commit(self, repository, create_pr, parent, body):
        lines = [json.loads(line) for line in body.splitlines()]
        header = lines[0]["value"]
        values = [line["value"] for line in lines[1:] if line["key"] == "file"]
        files = {value["path"]: base64.b64decode(value["content"]) for value in values}
        deleted = {line["value"]["path"] for line in lines[1:] if line["key"] == "deletedFile"}
        page = f"{self.hub.url}/{'' if repository.kind == 'models' else repository.kind + '/'}{repository.repo_id}"  # noqa: E501
        if create_pr:
            pull = repository.propose(header["summary"], header["description"], files)
            oid, where = pull.commit, {"pullRequestUrl": f"{page}/discussions/{pull.number}"}
        elif header.get("parentCommit", parent) != parent:
            return Answer(
                b'{"error": "A commit has happened since. Please refresh and try again."}', 412
            )
        else:
            oid, where = repository.change(files, deleted), {}
        return as_json({"commitUrl": f"{page}/commit/{oid}", "commitOid": oid, **where})

    def discuss(self, repository, rest, query, body):
        if rest == "main":
            statuses = {"all": None, "open": ("open", "draft"), "closed": ("closed", "merged")}[
                query.get("status", ["all"])[0]
            ]
            shown = [
                pull
                for pull in reversed(repository.pulls)
                if statuses is None or pull.status in statuses
            ]
            start = int(query["p"][0]) * PAGE
            rows = [discussion(repository, pull) for pull in shown[start : start + PAGE]]
            return as_json({"discussions": rows, "count": len(shown), "start": start})
        number, operation = rest.split("/")
        pull = repository.pulls[int(number) - 1]
        if operation == "merge":
            repository.merge(pull)
            return as_json({})
        assert operation == "status"
        pull.status = json.loads(body)["status"]
        data = {"status": pull.status}
        event = {
            "id": "1",
            "type": "status-change",
            "createdAt": NOW,
            "author": {"name": "me"},
            "data": data,
        }
        return as_json({"newStatus": event})

    def reply(self, answer, *, halfway=False):
        self.send_response(answer.status)
        for name, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[: len(answer.body) // 2] if halfway else answer.body)

    def cut(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *args):
        pass


NOW = "2026-01-01T00:00:00.000Z"


def discussion(repository: Any, pull: Pull) -> dict[str, object]:
    repo = {"name": repository.repo_id, "type": repository.kind.removesuffix("s")}
    made = {"author": {"name": "me"}, "createdAt": NOW, "repo": repo, "isPullRequest": True}
    return {"title": pull.title, "num": pull.number, "status": pull.status, **made}


def file_info(path: str, content: bytes) -> dict[str, object]:
    return {"type": "file", "path": path, "size": len(content), "oid": git_hash(content)}


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def serve_all(*repositories: Any) -> Iterator[Hub]:
    hub = Hub({(repository.kind, repository.repo_id): repository for repository in repositories})
    with embedding_server.serve(type("HandlerOfHub", (Handler,), {"hub": hub})) as hub.url:
        yield hub


@contextmanager
def serve(repo_id: str, root: Path, commit: str) -> Iterator[Folder]:
    """Serve a folder as a dataset repository on a free local port."""
    folder = Folder(repo_id, root, commit)
    with serve_all(folder) as hub:
        folder.url = hub.url
        yield folder
