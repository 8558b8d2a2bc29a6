"""Test submission over HTTP, with huggingface_hub's client and a Hub that simulates failures."""

import json
import os
import shutil
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from functools import partial
from pathlib import Path

import huggingface_hub
import mteb
import pytest

from posir_leaderboard.entries import Entry
from posir_leaderboard.submission import (
    MAX_ATTEMPTS,
    MAX_WAIT,
    Commit,
    HubError,
    HuggingFaceHub,
    build_submission,
    upload,
)
from posir_tasks.base.errors import PosirError
from posir_tasks.models.connection import read_retry_after
from tests.support.cli import call_posir
from tests.support.commands import run
from tests.support.guessing import MODEL, REVISION, write_guesses
from tests.support.hub import Failure, Store, serve_all
from tests.support.results import write_result

TOKEN = "hf_thisIsNoRealTokenButMustNotBeSeen"
LEADERBOARD = "my-org/posir-results"
FILES = {
    "results/org__model/rev1/model_meta.json": b"{}",
    "results/org__model/rev1/PosIR-Mini.json": b'{"scores": 1}',
}


@pytest.fixture(autouse=True)
def _online(monkeypatch):
    """Connect huggingface_hub to the local server, with a token and without waiting."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(huggingface_hub.utils._http.time, "sleep", [].append)


@pytest.fixture
def hub(monkeypatch):
    model = Store(MODEL, kind="models", commits=[REVISION])
    with serve_all(Store(LEADERBOARD, main={"README.md": b"# Results"}), model) as running:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", running.url)
        yield running


@pytest.fixture
def store(hub):
    return hub.repositories["datasets", LEADERBOARD]


def build_test_commit(files=FILES, summary="org/model: PosIR results, 1 task"):
    return Commit("dataset", LEADERBOARD, files, summary, "Results")


by_pull_request, by_commit = HuggingFaceHub, partial(HuggingFaceHub, direct=True)
UPLOADERS = pytest.mark.parametrize(
    "uploader", [by_pull_request, by_commit], ids=["pull request", "commit"]
)


def list_arrived_files(store):
    added = [{path: pull.files[path] for path in pull.changed} for pull in store.pulls]
    if len(store.commits) > 1:
        added.append({path: content for path, content in store.main.items() if path != "README.md"})
    return added


# A single commit


def test_submission_is_one_commit_in_one_pull_request(tmp_path, hub, store):
    for task in ("PosIR-English", "PosIR-German"):
        file = write_result(tmp_path, {}, task=task, model="org/model", revision="rev1")
        file.write_text(
            file.read_text().replace(
                '"test": []', '"test": [{"hf_subset": "a", "position_profile": 1}]'
            )
        )
    entries = [read_task_entry(tmp_path, task) for task in ("PosIR-English", "PosIR-German")]
    outcome = upload(build_submission(entries, LEADERBOARD), by_pull_request())
    (pull,) = store.pulls
    assert outcome.sent
    assert outcome.location == f"pull request #1, {hub.url}/datasets/{LEADERBOARD}/discussions/1"
    assert hub.count("commit") == 1
    folder = "results/org__model/rev1"
    assert pull.changed == tuple(
        f"{folder}/{name}"
        for name in ("model_meta.json", "PosIR-English.json", "PosIR-German.json")
    )
    for path in pull.changed:
        assert pull.files[path] == (tmp_path / path).read_bytes()
    assert pull.title.startswith("org/model: PosIR results, 2 tasks [posir ")
    assert "- PosIR-German" in pull.description
    assert store.commits == ["0" * 40]


def test_submission_contains_no_local_folder_or_server(tmp_path):
    task = "PosIR-English"
    file = write_result(tmp_path, {}, task=task, model="org/model", revision="rev1")
    run = {
        "schema": 1,
        "reference": {"model": "/home/me/model", "variables": {"POSIR_DATA": "/home/me"}},
    }
    file.write_text(
        file.read_text().replace('"test": []', f'"test": [{json.dumps({"position_run": run})}]')
    )
    sent = build_submission([read_task_entry(tmp_path, task)], LEADERBOARD).files
    assert not any(b"/home/me" in content for content in sent.values())
    (result,) = (
        json.loads(content) for path, content in sent.items() if path.endswith(f"{task}.json")
    )
    assert result["scores"]["test"] == [{"position_run": {"schema": 1}}]


def read_task_entry(folder, task):
    """Return an entry with names only, for code that ignores scores."""
    file = folder / "results" / "org__model" / "rev1" / f"{task}.json"
    return Entry("org/model", "rev1", task, file, (), {}, {})


def test_only_new_files_are_sent_after_a_merge(hub, store):
    upload(build_test_commit(), by_pull_request())
    store.merge(store.pulls[0])
    for uploader in (by_pull_request(), by_commit()):
        outcome = upload(build_test_commit(), uploader)
        assert (outcome.sent, outcome.location) == (
            False,
            f"the main branch of {hub.url}/datasets/{LEADERBOARD}",
        )
    assert (len(store.pulls), len(store.commits)) == (1, 2)
    (_, result) = FILES
    assert upload(build_test_commit(FILES | {result: b'{"scores": 2}'}), by_pull_request()).sent
    assert store.pulls[1].changed == (result,)
    assert store.pulls[0].title != store.pulls[1].title


def test_identical_open_pull_request_is_found(store):
    store.propose(
        build_test_commit().title,
        "",
        {"results/org__model/rev1/PosIR-Mini.json": b"something else"},
    )
    assert upload(build_test_commit(), by_pull_request()).sent
    for number in range(7):
        store.propose(f"Another {number}", "", {})
    assert upload(build_test_commit(), by_pull_request()).location.startswith("pull request #2,")
    store.pulls[1].status = "closed"
    assert upload(build_test_commit(), by_pull_request()).sent


# Lost responses, and a busy Hub

TROUBLE = {
    **{f"HTTP {status}": {"status": status} for status in (408, 412, 503, 504)},
    "dropped before": {"drop": "before"},
    "dropped after": {"drop": "after"},
    "dropped halfway": {"drop": "halfway"},
}


@UPLOADERS
@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE)
@pytest.mark.parametrize("operation", ["commit", "paths-info", "preupload", "discussions"])
def test_after_an_error_files_are_sent_once(hub, store, uploader, trouble, operation):
    hub.failures.append(Failure(operation, **trouble))
    waits = []
    outcome = upload(build_test_commit(), uploader(), sleep=waits.append)
    assert outcome.sent
    assert list_arrived_files(store) == [FILES]
    if operation == "commit":
        after = [asked for _, asked in hub.requests][
            [asked for _, asked in hub.requests].index("commit") + 1 :
        ]
        assert after[0] == "paths-info"
        arrived_at_once = trouble.get("drop") in ("after", "halfway")
        assert hub.count("commit") == (1 if arrived_at_once else 2)
        assert waits == ([] if arrived_at_once else [2.0])


@UPLOADERS
@pytest.mark.parametrize(
    ("operation", "trouble"),
    [
        ("commit", {"status": 503}),
        ("commit", {"drop": "before"}),
        ("paths-info", {"drop": "before"}),
    ],
)
def test_upload_succeeds_within_five_attempts(hub, store, uploader, operation, trouble):
    hub.failures.append(Failure(operation, times=100, **trouble))
    waits, reports = [], []
    with pytest.raises(HubError, match="gave up after attempt 5 of 5") as failed:
        upload(build_test_commit(), uploader(), sleep=waits.append, report=reports.append)
    assert "Run the same command later" in str(failed.value)
    assert hub.count("commit") == (MAX_ATTEMPTS if operation == "commit" else 0)
    assert waits == [2, 4, 8, 16]
    assert len(reports) == 4
    assert list_arrived_files(store) == []


@pytest.mark.parametrize(
    ("status", "headers", "wait"),
    [
        (429, {"Retry-After": "7"}, 7),
        (503, {"Retry-After": "0"}, 0),
        (429, {"Retry-After": "soon"}, 2),
        (503, {"Retry-After": "-3"}, 2),
    ],
)
def test_wait_follows_the_hub(hub, status, headers, wait):
    hub.failures.append(Failure("commit", status=status, headers=headers))
    waits = []
    assert upload(build_test_commit(), by_pull_request(), sleep=waits.append).sent
    assert waits == [wait]


def test_retry_after_may_be_a_date():
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert read_retry_after({"retry-after": date}) == pytest.approx(90, abs=5)
    assert read_retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert read_retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 -0000"}) is None


def test_long_requested_wait_is_an_error(hub, store):
    hub.failures.append(
        Failure("commit", status=429, headers={"Retry-After": str(int(MAX_WAIT) + 1)})
    )
    with pytest.raises(HubError, match=r"after attempt 1 of 5 .*asks to wait 601 seconds"):
        upload(build_test_commit(), by_pull_request(), sleep=pytest.fail)
    assert list_arrived_files(store) == []


# Concurrent and late commits


def test_late_commit_leaves_one_open_pull_request(hub, store):
    """The response is lost; the second attempt later finds the pull request of the first."""
    hub.failures.append(Failure("commit", drop="late"))
    outcome = upload(build_test_commit(), by_pull_request(), sleep=[].append)
    assert [pull.status for pull in store.pulls] == ["open", "closed"]
    assert outcome.location.startswith("pull request #1,")


def send_at_once(hub, *sends):
    hub.failures.append(Failure("commit", times=2, meeting=threading.Barrier(2, timeout=30).wait))
    with ThreadPoolExecutor() as pool:
        return [future.result() for future in [pool.submit(send) for send in sends]]


def test_two_equal_submissions_leave_one_open_pull_request(hub, store):
    """Both find nothing and send: the Hub opens two pull requests, and the later one is closed."""
    outcomes = send_at_once(hub, *[lambda: upload(build_test_commit(), by_pull_request())] * 2)
    assert [pull.status for pull in store.pulls] == ["open", "closed"]
    assert {outcome.location for outcome in outcomes} == {
        f"pull request #1, {hub.url}/datasets/{LEADERBOARD}/discussions/1"
    }


def test_two_equal_concurrent_commits_are_one(hub, store):
    outcomes = send_at_once(
        hub, *[lambda: upload(build_test_commit(), by_commit(), sleep=[].append)] * 2
    )
    assert len(store.commits) == hub.count("commit") == 2
    # The second got HTTP 412 for a stale parent, and then found its files on the Hub.
    assert all(
        "commit" in outcome.location or "main branch" in outcome.location for outcome in outcomes
    )


@UPLOADERS
def test_two_concurrent_models_both_arrive(hub, store, uploader):
    other = {path.replace("org__model", "org__other"): content for path, content in FILES.items()}
    both = (build_test_commit(), build_test_commit(other, "org/other: PosIR results"))
    outcomes = send_at_once(
        hub, *[lambda commit=commit: upload(commit, uploader(), sleep=[].append) for commit in both]
    )
    assert [outcome.sent for outcome in outcomes] == [True, True]
    if uploader is by_pull_request:
        assert sorted(map(sorted, list_arrived_files(store))) == [sorted(FILES), sorted(other)]
    else:
        assert (store.main, len(store.commits)) == (
            {"README.md": b"# Results", **FILES, **other},
            3,
        )


@UPLOADERS
def test_run_after_ctrl_c_sends_once(hub, store, uploader):
    hub.failures.append(
        Failure("commit", drop="before", meeting=lambda: os.kill(os.getpid(), signal.SIGINT))
    )
    with pytest.raises(KeyboardInterrupt):
        upload(build_test_commit(), uploader(), sleep=[].append)
    assert list_arrived_files(store) == []
    assert upload(build_test_commit(), uploader()).sent
    assert list_arrived_files(store) == [FILES]


# Rejections, and the token


@pytest.mark.parametrize(
    ("status", "advice", "operation", "uploader"),
    [
        (401, "hf auth login", "paths-info", by_pull_request),
        (403, "write access", "commit", by_commit),
        (403, "write access", "commit", by_pull_request),
        (404, "check the name", "paths-info", by_commit),
        (400, "HTTP 400", "commit", by_pull_request),
        (413, "exceed", "commit", by_pull_request),
    ],
)
def test_rejection_names_the_next_step_and_is_not_retried(
    hub, store, uploader, status, advice, operation
):
    hub.failures.append(Failure(operation, status=status, times=100))
    with pytest.raises(HubError, match=advice) as refused:
        upload(build_test_commit(), uploader(), sleep=pytest.fail)
    assert str(refused.value).startswith(f"dataset {LEADERBOARD}: HTTP {status}: ")
    assert "asked with Bearer ***" in str(refused.value)
    assert hub.count(operation) == 1
    assert list_arrived_files(store) == []


@pytest.mark.usefixtures("hub")
def test_missing_repository_and_offline_mode_are_reported(monkeypatch):
    for name, word in (("my-org/typo", "check the name"), ("a/b/c", "a/b/c")):
        with pytest.raises(HubError, match=rf"dataset {name}.*{word}"):
            upload(Commit("dataset", name, FILES, "x", ""), by_pull_request())
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="HF_HUB_OFFLINE"):
        upload(build_test_commit(), by_pull_request(), sleep=pytest.fail)


def test_file_with_the_token_is_not_sent(store):
    leaking = FILES | {
        "results/org__model/rev1/model_meta.json": f'{{"loader_kwargs": {{"token": "{TOKEN}"}}}}'.encode()  # noqa: E501
    }
    with pytest.raises(HubError, match="a file contains your token") as refused:
        upload(build_test_commit(leaking), by_pull_request())
    assert TOKEN not in str(refused.value)
    assert list_arrived_files(store) == []


@pytest.mark.parametrize("name", ["posir-results", "/posir-results", "a/b/c", "my org/results"])
def test_two_models_need_two_submissions(tmp_path, name):
    first, second = (
        read_task_entry(tmp_path / "a", "PosIR-Mini"),
        read_task_entry(tmp_path / "b", "PosIR-Mini"),
    )
    with pytest.raises(PosirError, match="contains one model and revision") as refused:
        build_submission([first, second], LEADERBOARD)
    assert str(second.file.parent) in str(refused.value)
    with pytest.raises(PosirError, match=f"repository '{name}'.*owner/name"):
        build_submission([first], name)


# The command


@pytest.fixture(scope="session")
def results(tmp_path_factory) -> Path:
    output = tmp_path_factory.mktemp("submitted")
    write_guesses(output, [mteb.get_task("PosIR-Mini")])
    return output


def posir(*arguments):
    return call_posir(list(map(str, arguments)))


PATHS = [
    "results/org__guessing/" + "f" * 40 + "/" + name
    for name in ("model_meta.json", "PosIR-Mini.json")
]


def test_dry_run_shows_the_files(hub, store, results):
    shown = posir("submit", results, "--repo", LEADERBOARD, "--dry-run")
    assert shown.exit_code == 0, shown.output
    assert {operation for _, operation in hub.requests} <= {"", "revision"}, (
        "only the model is looked up"
    )
    sent = posir("submit", results, "--repo", LEADERBOARD)
    assert sent.exit_code == 0, sent.output
    (pull,) = store.pulls
    assert (
        f"dataset {LEADERBOARD}, one commit in one pull request: {pull.title}"
        in shown.stdout.splitlines()
    )
    for path, line in zip(PATHS, shown.stdout.splitlines()[1:], strict=True):
        assert line == f"  {path}  {len(pull.files[path]):,} bytes"
    assert list(pull.changed) == PATHS
    assert (
        f"sent 2 files: pull request #1, {hub.url}/datasets/{LEADERBOARD}/discussions/1"
        in sent.stdout
    )
    again = posir("submit", results, "--repo", LEADERBOARD)
    assert again.exit_code == 0
    assert "nothing was sent, the files are already there: pull request #1" in again.stdout


def test_direct_commits(store, results):
    shown = posir("submit", results, "--repo", LEADERBOARD, "--direct", "--dry-run")
    assert "one commit to the main branch" in shown.stdout
    sent = posir("submit", results, "--repo", LEADERBOARD, "--direct")
    assert (sent.exit_code, store.pulls) == (0, [])
    assert sorted(store.main) == ["README.md", *sorted(PATHS)]


def write_edited(results, tmp_path, content=None):
    """Copy results with one score edited, or with other content; return folder, file, old score."""
    copy = Path(shutil.copytree(results, tmp_path / "edited"))
    (file,) = copy.rglob("PosIR-Mini.json")
    data = json.loads(file.read_text())
    scores = data["scores"]["test"][0]
    before, scores["ndcg_at_10"] = scores["ndcg_at_10"], 0.9
    file.write_text(json.dumps(data) if content is None else content)
    return copy, file, before


def test_edited_score_is_rejected_before_sending(hub, results, tmp_path):
    good = posir("submit", results, "--dry-run")
    assert (good.exit_code, good.stdout) == (0, "")
    copy, file, before = write_edited(results, tmp_path)
    for more in ((), ("--dry-run",), ("--direct",)):
        refused = posir("submit", copy, "--repo", LEADERBOARD, *more)
        assert refused.exit_code == 1
        assert isinstance(refused.exception, PosirError) is (more != ("--dry-run",))
        said = f"{refused.exception}{refused.stdout}"
        assert (
            f"{file}: subset 'default': field 'ndcg_at_10': is 0.9 in the file; the profile gives "
            f"{before:.6f}" in said
        )
    assert hub.count("commit") == hub.count("preupload") == 0
    both = posir("submit", results, copy, "--format", "json", "--dry-run")
    assert both.exit_code == 1
    (problem,) = json.loads(both.stdout)
    assert (problem["file"], problem["subset"], problem["field"]) == (
        str(file),
        "default",
        "ndcg_at_10",
    )


def test_folders_count_once_and_experiments_are_skipped(results, tmp_path):
    copy = Path(shutil.copytree(results, tmp_path / "copy"))
    (file,) = copy.rglob("PosIR-Mini.json")
    alone = tmp_path / "alone" / file.parents[1].name
    for folder in (file.parent, alone):
        shutil.copytree(results, tmp_path / "other", dirs_exist_ok=True)
        (made,) = (tmp_path / "other").rglob("PosIR-Mini.json")
        shutil.copytree(made.parent, folder / "experiments" / "dim_64")
    checked = posir("submit", copy, copy / "results", copy, "--dry-run")
    assert checked.exit_code == 0, checked.output
    assert "results: 1, models: 1, problems: 0" in checked.stderr
    assert f"skipped: 1 result, first {copy}/results/" in checked.stderr
    assert "(in `experiments`) cannot be submitted" in checked.stderr
    shown = posir("submit", copy, "--repo", LEADERBOARD, "--dry-run")
    assert [line.split()[0] for line in shown.stdout.splitlines()[1:]] == PATHS
    refused = posir("submit", alone, "--dry-run")
    assert refused.exit_code == 1
    assert "(in `experiments`) cannot be submitted" in str(refused.exception)


def test_unreadable_file_is_reported_without_results(results, tmp_path):
    copy, file, _ = write_edited(results, tmp_path, "{")
    unread = posir("submit", copy, "--dry-run")
    (tmp_path / "empty").mkdir()
    nothing = posir("submit", tmp_path / "empty", "--dry-run")
    assert (unread.exit_code, f"{file}: is not readable JSON" in unread.stdout) == (1, True)
    assert (nothing.exit_code, "no result with" in str(nothing.exception)) == (1, True)


def test_token_is_never_printed(hub, results, tmp_path):
    """Run the command against a Hub that echoes requests in bodies and headers."""
    echo = {
        "X-Error-Message": f"You sent Bearer {TOKEN}",
        "X-HF-Warning": f"token; this is {TOKEN}",
        "Retry-After": "0",
    }
    hub.failures += [
        Failure("commit", status=503, headers=echo),
        Failure("commit", status=403, headers=echo),
    ]
    done = run(
        "posir",
        "submit",
        str(results),
        "--repo",
        LEADERBOARD,
        HF_ENDPOINT=hub.url,
        HF_HUB_OFFLINE="0",
        HF_TOKEN=TOKEN,
        HF_HOME=str(tmp_path / "home"),
        HF_DEBUG="1",
    )
    assert done.returncode == 1
    assert "attempt 2 of 5 in 0 seconds" in done.stderr
    assert "this is ***" in done.stderr
    assert f"error: dataset {LEADERBOARD}: HTTP 403: " in done.stderr
    assert "You sent Bearer ***" in done.stderr
    assert "curl -X POST" in done.stderr, "requests are logged, too"
    assert TOKEN not in done.stdout + done.stderr
    written = [
        path for folder in (results, tmp_path) for path in folder.rglob("*") if path.is_file()
    ]
    assert written
    assert not any(TOKEN.encode() in path.read_bytes() for path in written)
