"""Test a new leaderboard over HTTP: repository, submission, review, pins, site and Space."""

import json
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import mteb
import pytest

from posir_leaderboard.board import build, comparable
from posir_leaderboard.board.comparable import KNOWN_PINS, format_pins
from tests.support.board import contents
from tests.support.commands import BIN, CLEAN, run, run_process
from tests.support.damage import Ended, call_posir
from tests.support.guessing import MODEL, REVISION, write_guesses
from tests.support.hub import Failure, Hub, Store, serve_all

RESULTS, SPACE = "org/results", "org/board"
TOKEN = "hf_thisIsNoRealTokenButMustNotBeSeen"
README = {"README.md": b"# Results"}


@pytest.fixture
def hub(tmp_path, monkeypatch, no_published_results) -> Iterator[Hub]:  # noqa: ARG001
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.utils._http.time, "sleep", [].append)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("POSIR_CACHE", str(tmp_path / "cache"))
    with serve_all(Store(MODEL, kind="models", commits=[REVISION])) as running:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", running.url)
        template = f"{running.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield running


def add_store(hub: Hub, **files: bytes) -> Store:
    store = Store(
        RESULTS,
        main={path.replace("_json", ".json"): content for path, content in files.items()} | README,
    )
    hub.repositories["datasets", RESULTS] = store
    return store


def add_result(store: Store, folder: Path) -> None:
    """Merge a submission of one model into a repository."""
    of_model = write_guesses(folder, [mteb.get_task("PosIR-Mini")])
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in of_model.iterdir()
        if path.suffix == ".json"
    }
    store.merge(store.propose("results", "", files))


def build_board(tmp_path: Path, *options: str) -> Ended:
    return call_posir(
        "leaderboard", "build", "--results", RESULTS, "--output", tmp_path / "site", *options
    )


def read_models(site: Path) -> list[str]:
    """Return the ranked models in the table of PosIR-Mini."""
    files = {
        path.relative_to(site).as_posix(): path.read_bytes()
        for path in site.rglob("*")
        if path.is_file()
    }
    data = contents(files)
    views = [
        value
        for name, value in data.items()
        if name.startswith("views/") and value["name"] == "PosIR-Mini"
    ]
    names = data["board"]["models"]["name"]
    return [
        names[place]
        for view in views
        for place, partial, mark in zip(
            view["models"], view["partial"], view["columns"]["other_data"], strict=True
        )
        if not (partial or mark)
    ]


@pytest.mark.slow
def test_from_an_empty_hub_to_a_space(tmp_path):
    """Run each step as a user would, in a separate process or a fork."""
    write_guesses(tmp_path, [mteb.get_task("PosIR-Mini")])
    with serve_all(Store(MODEL, kind="models", commits=[REVISION])) as hub:
        environment = {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path / "home"),
            "HF_HUB_OFFLINE": "0",
            "HF_TOKEN": TOKEN,
        }
        environment |= {"POSIR_CACHE": str(tmp_path / "cache")}

        def call(line: str, status: int = 0) -> str:
            program, *rest = shlex.split(line)
            if program == "posir":
                done = run(program, *rest, **environment)
            else:
                done = run_process(BIN / program, *rest, env=CLEAN | environment, cwd=tmp_path)
            said = done.stdout + done.stderr
            assert done.returncode == status, said
            assert "Traceback" not in said
            assert TOKEN not in said
            return said

        results, review, site = (
            shlex.quote(str(tmp_path / name)) for name in ("results", "review", "site")
        )
        build_line = f"posir leaderboard build --results {RESULTS} --output {site}"
        missing = call(build_line, status=1)
        create = re.search(r"hf repos create .*", missing)
        assert create is not None
        call(create[0])
        store = hub.repositories["datasets", RESULTS]
        assert f"posir submit results --repo {RESULTS}" in call(build_line)
        assert "pull request #1" in call(f"posir submit {results} --repo {RESULTS}")
        # The pull request is not merged yet.
        assert "has no results" in call(build_line)
        assert read_models(tmp_path / "site") == []
        call(f"hf download {RESULTS} --repo-type dataset --revision refs/pr/1 --local-dir {review}")
        assert "results: 1, models: 1, problems: 0" in call(f"posir submit {review} --dry-run")
        call(f"hf discussions merge {RESULTS} 1 --type dataset --yes")
        assert store.pulls[0].status == "merged"
        call(f"posir leaderboard pin PosIR-Mini --results {RESULTS}")
        assert store.main["pins.json"].decode() == format_pins(KNOWN_PINS)
        assert " 1 result," in call(f"{build_line} --strict")
        assert read_models(tmp_path / "site") == [MODEL]
        call(f"posir leaderboard push --space {SPACE} --site {site}")
        pushed = hub.repositories["spaces", SPACE].main
        assert pushed["index.html"] == (tmp_path / "site" / "index.html").read_bytes()
        # Repeating all steps sends nothing twice.
        commits = list(store.commits)
        call(f"posir leaderboard pin PosIR-Mini --results {RESULTS}")
        call(f"posir submit {results} --repo {RESULTS}")
        call(f"posir leaderboard push --space {SPACE} --site {site}")
        assert (store.commits, len(store.pulls)) == (commits, 1)


@pytest.mark.parametrize("with_result", [False, True])
def test_repository_without_pins_is_pinned_and_built(hub, tmp_path, monkeypatch, with_result):
    monkeypatch.setattr(build, "KNOWN_PINS", {})
    monkeypatch.setattr(comparable, "KNOWN_PINS", {})
    store = add_store(hub)
    if with_result:
        add_result(store, tmp_path / "made")
    built = build_board(tmp_path)
    assert built.status == 0, built.said
    assert read_models(tmp_path / "site") == []
    if with_result:
        (command,) = re.findall(r"posir (leaderboard pin .*)", built.said)
        assert call_posir(*shlex.split(command)).status == 0
        assert build_board(tmp_path, "--strict").status == 0
        assert read_models(tmp_path / "site") == [MODEL]
    else:
        assert call_posir("leaderboard", "pin", "PosIR-Mini", "--results", RESULTS).status == 0
    assert store.main["pins.json"].decode() == format_pins(KNOWN_PINS)


COMMANDS = pytest.mark.parametrize(
    "command", [("build", "--output", "site"), ("pin", "PosIR-Mini")]
)


@COMMANDS
@pytest.mark.parametrize(
    "content", [b"{", b"[]", b'{"PosIR-Mini": {"revision": "1"}}', b'{"a": 1, "a": 2}', b"\xff\xfe"]
)
def test_message_on_damaged_pins_names_the_repository(hub, tmp_path, monkeypatch, content, command):
    monkeypatch.chdir(tmp_path)
    store = add_store(hub, pins_json=content)
    done = call_posir("leaderboard", *command, "--results", RESULTS)
    assert done.status == 1
    assert f"Cannot read pins.json of dataset {RESULTS}: " in done.said
    assert f"hf repos delete-files {RESULTS} pins.json --type dataset" in done.said
    assert f"posir leaderboard pin TASK --results {RESULTS}" in done.said
    assert tempfile.gettempdir() not in done.said
    assert store.main["pins.json"] == content


def test_printed_command_removes_damaged_pins(hub):
    store = add_store(hub, pins_json=b"{")
    (removal,) = re.findall(
        r"hf (repos delete-files .*)",
        call_posir("leaderboard", "pin", "PosIR-Mini", "--results", RESULTS).said,
    )
    environment = CLEAN | {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_TOKEN": TOKEN}
    removed = run_process(BIN / "hf", *shlex.split(removal), env=environment)
    assert (removed.returncode, "pins.json" in store.main) == (0, False), removed.stderr
    assert call_posir("leaderboard", "pin", "PosIR-Mini", "--results", RESULTS).status == 0
    assert json.loads(store.main["pins.json"])


def test_message_on_damaged_pins_names_the_folder(tmp_path):
    folder = tmp_path / "my results"
    folder.mkdir()
    (folder / "pins.json").write_text("{")
    done = call_posir("leaderboard", "pin", "PosIR-Mini", "--results", folder)
    (removal,) = re.findall(r"^rm (.*)$", done.said, re.MULTILINE)
    assert (done.status, shlex.split(removal)) == (1, [str(folder / "pins.json")])


@pytest.mark.parametrize("operation", ["revision", "tree"])
@pytest.mark.parametrize("status", [401, 403, 404, 429, 503])
@COMMANDS
def test_unreadable_repository_is_reported(hub, tmp_path, monkeypatch, command, status, operation):
    monkeypatch.chdir(tmp_path)
    store = add_store(hub, pins_json=format_pins(KNOWN_PINS).encode())
    hub.failures.append(Failure(operation, status=status, times=100))
    done = call_posir("leaderboard", *command, "--results", RESULTS)
    assert done.status == 1
    assert RESULTS in done.said
    assert f"HTTP {status}" in done.said
    assert TOKEN not in done.everything
    assert len(store.commits) == 1
    assert not (tmp_path / "site").exists()


def test_no_earlier_copy_is_used_without_the_hub(hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    add_store(hub, pins_json=format_pins(KNOWN_PINS).encode())
    assert build_board(tmp_path).status == 0
    hub.failures.append(Failure("revision", drop="before", times=100))
    done = build_board(tmp_path)
    assert done.status == 1
    assert "did not answer" in done.said


def test_concurrently_committed_pins_are_kept(hub, monkeypatch):
    store = add_store(hub)
    compute = comparable.compute_pin

    def pin_concurrently(task: str) -> comparable.Pin:
        store.change(
            {"pins.json": b'{"PosIR-English": {"revision": "main", "digest": "0123456789abcdef"}}'}
        )
        return compute(task)

    monkeypatch.setattr(comparable, "compute_pin", pin_concurrently)
    done = call_posir("leaderboard", "pin", "PosIR-Mini", "--results", RESULTS)
    assert done.status == 1
    assert "has changed since the content was read" in done.said
    assert list(json.loads(store.main["pins.json"])) == ["PosIR-English"]
    monkeypatch.setattr(comparable, "compute_pin", compute)
    assert call_posir("leaderboard", "pin", "PosIR-Mini", "--results", RESULTS).status == 0
    assert list(json.loads(store.main["pins.json"])) == ["PosIR-English", "PosIR-Mini"]


def test_message_on_unusable_results_names_the_repository(hub, tmp_path):
    store = add_store(hub)
    add_result(store, tmp_path / "made")
    (path,) = (path for path in store.main if path.endswith("PosIR-Mini.json"))
    store.change({path: b"{"})
    done = build_board(tmp_path)
    assert done.status == 0
    assert f"excluded: {RESULTS}: {path}" in done.said


@pytest.mark.parametrize("status", [401, 403])
def test_forbidden_space_is_reported(hub, tmp_path, status):
    add_store(hub)
    assert build_board(tmp_path).status == 0
    hub.failures.append(Failure("create", status=status, times=9))
    done = call_posir("leaderboard", "push", "--space", SPACE, "--site", tmp_path / "site")
    assert (done.status, f"HTTP {status}" in done.said) == (1, True)
    assert ("spaces", SPACE) not in hub.repositories
