"""Test the upload of a leaderboard to a Space, over HTTP with the real client."""

import base64
import json
from collections.abc import Iterator

import huggingface_hub
import pytest

from posir_leaderboard.board.folder import push_site, write_site
from posir_leaderboard.board.manifest import MANIFEST
from posir_leaderboard.board.site import render_site
from posir_tasks.base.errors import PosirError
from tests.support.board import GROUPS, NO_LIBRARIES, fake_model, fake_record
from tests.support.damage import call_posir
from tests.support.embedding_server import serve
from tests.support.hub import Failure, Handler, Hub, Store, as_json

TOKEN = "hf_secretsecretsecret"
SPACE = ("spaces", "org/board")


class SpaceHandler(Handler):
    """A handler that also creates repositories and deletes files in a commit."""

    def do_POST(self):  # noqa: N802
        if self.path not in ("/api/repos/create", "/api/validate-yaml"):
            return super().do_POST()
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("create"):
            self.hub.requests.append(("POST", f"create {body['type']} {body['sdk']}"))
            return self.reply(as_json({"url": f"{self.hub.url}/spaces/org/board"}))
        return self.reply(as_json({"errors": [], "warnings": []}))

    def commit(self, repository, create_pr, parent, body):
        lines = [json.loads(line) for line in body.splitlines()]
        gone = {line["value"]["path"] for line in lines if line["key"] == "deletedFile"}
        sent = {
            line["value"]["path"]: base64.b64decode(line["value"]["content"])
            for line in lines
            if line["key"] == "file"
        }
        self.hub.sent.append((sent, gone))
        repository.main = {
            path: content for path, content in repository.main.items() if path not in gone
        }
        kept = b"\n".join(
            line for line in body.splitlines() if json.loads(line)["key"] != "deletedFile"
        )
        return super().commit(repository, create_pr, parent, kept)


@pytest.fixture
def hub() -> Iterator[Hub]:
    running = Hub({})
    running.sent = []
    with serve(type("HandlerOfSpaces", (SpaceHandler,), {"hub": running})) as running.url:
        yield running


def test_changes_are_one_commit(hub, tmp_path, monkeypatch):
    earlier, later = (
        render_site([fake_record(fake_model(number), "PosIR-English", 0)], GROUPS, NO_LIBRARIES)
        for number in (0, 1)
    )
    write_site(earlier, tmp_path / "earlier")
    manifest = {MANIFEST: (tmp_path / "earlier" / MANIFEST).read_bytes()}
    # Foreign files, two of them in folders of the site.
    others = {".gitattributes": b"", "app.py": b"1", "data/thesis.tex": b"2", "js/own.js": b"3"}
    before = earlier | manifest | others
    store = hub.repositories[SPACE] = Store("org/board", "spaces", before)
    write_site(later, tmp_path / "site")
    pushed = later | {MANIFEST: (tmp_path / "site" / MANIFEST).read_bytes()}
    (tmp_path / "site" / ".env").write_text("SECRET=1")
    (tmp_path / "site" / "js" / "link.js").symlink_to(tmp_path / "site" / ".env")

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
    template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.failures.append(Failure("commit", status=403))
    with pytest.raises(PosirError, match="HTTP 403") as refused:
        push_site(tmp_path / "site", "org/board")
    assert store.main == before

    done = call_posir("leaderboard", "push", "--space", "org/board", "--site", tmp_path / "site")
    assert done.status == 0, done.said
    assert ("POST", "create space static") in hub.requests
    assert store.main == pushed | others
    assert b"\nsdk: static\n" in store.main["README.md"]
    ((sent, gone),) = hub.sent
    assert set(sent) == {path for path, body in pushed.items() if before.get(path) != body}
    assert gone == earlier.keys() - later.keys()

    push_site(tmp_path / "site", "org/board")
    assert len(hub.sent) == 1
    assert TOKEN not in f"{refused.value}{done.everything}"
