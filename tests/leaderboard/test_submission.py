"""Submission over real HTTP: the real huggingface_hub client against a small Hub that fails on
request.
"""

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
    """Let huggingface_hub speak to the local server, with a token from one of its usual places,
    without waiting.
    """
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


def submission(files=FILES, summary="org/model: PosIR results, 1 task"):
    return Commit("dataset", LEADERBOARD, files, summary, "Results")


by_pull_request, by_commit = HuggingFaceHub, partial(HuggingFaceHub, direct=True)
UPLOADERS = pytest.mark.parametrize(
    "uploader", [by_pull_request, by_commit], ids=["pull request", "commit"]
)


def arrived(store):
    added = [{path: pull.files[path] for path in pull.changed} for pull in store.pulls]
    if len(store.commits) > 1:
        added.append({path: content for path, content in store.main.items() if path != "README.md"})
    return added


# One commit, once


def test_a_submission_is_one_commit_in_one_pull_request(tmp_path, hub, store):
    for task in ("PosIR-English", "PosIR-German"):
        file = write_result(tmp_path, {}, task=task, model="org/model", revision="rev1")
        file.write_text(
            file.read_text().replace(
                '"test": []', '"test": [{"hf_subset": "a", "position_profile": 1}]'
            )
        )
    entries = [entry_of(tmp_path, task) for task in ("PosIR-English", "PosIR-German")]
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


def test_a_submission_names_no_folder_or_server_of_its_sender(tmp_path):
    task = "PosIR-English"
    file = write_result(tmp_path, {}, task=task, model="org/model", revision="rev1")
    run = {
        "schema": 1,
        "reference": {"model": "/home/me/model", "variables": {"POSIR_DATA": "/home/me"}},
    }
    file.write_text(
        file.read_text().replace('"test": []', f'"test": [{json.dumps({"position_run": run})}]')
    )
    sent = build_submission([entry_of(tmp_path, task)], LEADERBOARD).files
    assert not any(b"/home/me" in content for content in sent.values())
    (result,) = (
        json.loads(content) for path, content in sent.items() if path.endswith(f"{task}.json")
    )
    assert result["scores"]["test"] == [{"position_run": {"schema": 1}}]


def entry_of(folder, task):
    """Return an entry without anything but names, for what does not look into scores."""
    file = folder / "results" / "org__model" / "rev1" / f"{task}.json"
    return Entry("org/model", "rev1", task, file, (), {}, {})


def test_sending_after_the_merge_sends_nothing_but_what_is_new(hub, store):
    upload(submission(), by_pull_request())
    store.merge(store.pulls[0])
    for uploader in (by_pull_request(), by_commit()):
        outcome = upload(submission(), uploader)
        assert (outcome.sent, outcome.location) == (
            False,
            f"the main branch of {hub.url}/datasets/{LEADERBOARD}",
        )
    assert (len(store.pulls), len(store.commits)) == (1, 2)
    (_, result) = FILES
    assert upload(submission(FILES | {result: b'{"scores": 2}'}), by_pull_request()).sent
    assert store.pulls[1].changed == (result,)
    assert store.pulls[0].title != store.pulls[1].title


def test_an_open_pull_request_with_the_same_files_is_found(store):
    store.propose(
        submission().title, "", {"results/org__model/rev1/PosIR-Mini.json": b"something else"}
    )
    assert upload(submission(), by_pull_request()).sent
    for number in range(7):
        store.propose(f"Another {number}", "", {})
    assert upload(submission(), by_pull_request()).location.startswith("pull request #2,")
    store.pulls[1].status = "closed"
    assert upload(submission(), by_pull_request()).sent


# Lost answers, and a Hub that is busy

TROUBLE = {
    **{f"HTTP {status}": {"status": status} for status in (408, 412, 503, 504)},
    "dropped before": {"drop": "before"},
    "dropped after": {"drop": "after"},
    "dropped halfway": {"drop": "halfway"},
}


@UPLOADERS
@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE)
@pytest.mark.parametrize("operation", ["commit", "paths-info", "preupload", "discussions"])
def test_after_an_error_it_searches_first_and_sends_once(hub, store, uploader, trouble, operation):
    hub.failures.append(Failure(operation, **trouble))
    waits = []
    outcome = upload(submission(), uploader(), sleep=waits.append)
    assert outcome.sent
    assert arrived(store) == [FILES]
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
def test_five_attempts_are_enough(hub, store, uploader, operation, trouble):
    hub.failures.append(Failure(operation, times=100, **trouble))
    waits, reports = [], []
    with pytest.raises(HubError, match="gave up after attempt 5 of 5") as failed:
        upload(submission(), uploader(), sleep=waits.append, report=reports.append)
    assert "Run the same command later" in str(failed.value)
    assert hub.count("commit") == (MAX_ATTEMPTS if operation == "commit" else 0)
    assert waits == [2, 4, 8, 16]
    assert len(reports) == 4
    assert arrived(store) == []


@pytest.mark.parametrize(
    ("status", "headers", "wait"),
    [
        (429, {"Retry-After": "7"}, 7),
        (503, {"Retry-After": "0"}, 0),
        (429, {"Retry-After": "soon"}, 2),
        (503, {"Retry-After": "-3"}, 2),
    ],
)
def test_it_waits_as_long_as_the_hub_asks(hub, status, headers, wait):
    hub.failures.append(Failure("commit", status=status, headers=headers))
    waits = []
    assert upload(submission(), by_pull_request(), sleep=waits.append).sent
    assert waits == [wait]


def test_retry_after_may_be_a_date():
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)
    assert read_retry_after({"retry-after": date}) == pytest.approx(90, abs=5)
    assert read_retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) == 0
    assert read_retry_after({"retry-after": "Wed, 21 Oct 2015 07:28:00 -0000"}) is None


def test_a_hub_that_asks_for_hours_is_left_for_later(hub, store):
    hub.failures.append(
        Failure("commit", status=429, headers={"Retry-After": str(int(MAX_WAIT) + 1)})
    )
    with pytest.raises(HubError, match=r"after attempt 1 of 5 .*asks to wait 601 seconds"):
        upload(submission(), by_pull_request(), sleep=pytest.fail)
    assert arrived(store) == []


# Two at once, and late arrivals


def test_a_commit_that_arrives_late_leaves_one_open_pull_request(hub, store):
    """The answer is lost, nothing is there yet; the second attempt meets the first one's pull
    request.
    """
    hub.failures.append(Failure("commit", drop="late"))
    outcome = upload(submission(), by_pull_request(), sleep=[].append)
    assert [pull.status for pull in store.pulls] == ["open", "closed"]
    assert outcome.location.startswith("pull request #1,")


def at_once(hub, *sends):
    hub.failures.append(Failure("commit", times=2, meeting=threading.Barrier(2, timeout=30).wait))
    with ThreadPoolExecutor() as pool:
        return [future.result() for future in [pool.submit(send) for send in sends]]


def test_two_equal_submissions_leave_one_open_pull_request(hub, store):
    """Both have looked and found nothing when both send: the Hub opens two, and the later submitter
    closes its own.
    """
    outcomes = at_once(hub, *[lambda: upload(submission(), by_pull_request())] * 2)
    assert [pull.status for pull in store.pulls] == ["open", "closed"]
    assert {outcome.location for outcome in outcomes} == {
        f"pull request #1, {hub.url}/datasets/{LEADERBOARD}/discussions/1"
    }


def test_two_equal_commits_at_once_are_one(hub, store):
    outcomes = at_once(hub, *[lambda: upload(submission(), by_commit(), sleep=[].append)] * 2)
    assert len(store.commits) == hub.count("commit") == 2
    # The second met a stale parent (412), looked, and found its files there.
    assert all(
        "commit" in outcome.location or "main branch" in outcome.location for outcome in outcomes
    )


@UPLOADERS
def test_two_models_at_once_both_arrive(hub, store, uploader):
    other = {path.replace("org__model", "org__other"): content for path, content in FILES.items()}
    both = (submission(), submission(other, "org/other: PosIR results"))
    outcomes = at_once(
        hub, *[lambda commit=commit: upload(commit, uploader(), sleep=[].append) for commit in both]
    )
    assert [outcome.sent for outcome in outcomes] == [True, True]
    if uploader is by_pull_request:
        assert sorted(map(sorted, arrived(store))) == [sorted(FILES), sorted(other)]
    else:
        assert (store.main, len(store.commits)) == (
            {"README.md": b"# Results", **FILES, **other},
            3,
        )


@UPLOADERS
def test_ctrl_c_leaves_nothing_and_the_next_run_sends_once(hub, store, uploader):
    hub.failures.append(
        Failure("commit", drop="before", meeting=lambda: os.kill(os.getpid(), signal.SIGINT))
    )
    with pytest.raises(KeyboardInterrupt):
        upload(submission(), uploader(), sleep=[].append)
    assert arrived(store) == []
    assert upload(submission(), uploader()).sent
    assert arrived(store) == [FILES]


# Refusals, and the token


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
def test_a_refusal_says_what_to_do_and_is_not_repeated(
    hub, store, uploader, status, advice, operation
):
    hub.failures.append(Failure(operation, status=status, times=100))
    with pytest.raises(HubError, match=advice) as refused:
        upload(submission(), uploader(), sleep=pytest.fail)
    assert str(refused.value).startswith(f"dataset {LEADERBOARD}: HTTP {status}: ")
    assert "asked with Bearer ***" in str(refused.value)
    assert hub.count(operation) == 1
    assert arrived(store) == []


@pytest.mark.usefixtures("hub")
def test_a_missing_repository_and_offline_mode_are_named(monkeypatch):
    for name, word in (("my-org/typo", "check the name"), ("a/b/c", "a/b/c")):
        with pytest.raises(HubError, match=rf"dataset {name}.*{word}"):
            upload(Commit("dataset", name, FILES, "x", ""), by_pull_request())
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="HF_HUB_OFFLINE"):
        upload(submission(), by_pull_request(), sleep=pytest.fail)


def test_a_file_with_the_token_in_it_is_not_sent(store):
    leaking = FILES | {
        "results/org__model/rev1/model_meta.json": f'{{"loader_kwargs": {{"token": "{TOKEN}"}}}}'.encode()  # noqa: E501
    }
    with pytest.raises(HubError, match="a file contains your token") as refused:
        upload(submission(leaking), by_pull_request())
    assert TOKEN not in str(refused.value)
    assert arrived(store) == []


@pytest.mark.parametrize("name", ["posir-results", "/posir-results", "a/b/c", "my org/results"])
def test_results_of_two_models_are_two_submissions(tmp_path, name):
    first, second = entry_of(tmp_path / "a", "PosIR-Mini"), entry_of(tmp_path / "b", "PosIR-Mini")
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


def test_a_dry_run_shows_what_would_be_sent(hub, store, results):
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


def edited(results, tmp_path, content=None):
    """Return a copy of results with one score edited, or with other content; its file; and the
    score before.
    """
    copy = Path(shutil.copytree(results, tmp_path / "edited"))
    (file,) = copy.rglob("PosIR-Mini.json")
    data = json.loads(file.read_text())
    scores = data["scores"]["test"][0]
    before, scores["ndcg_at_10"] = scores["ndcg_at_10"], 0.9
    file.write_text(json.dumps(data) if content is None else content)
    return copy, file, before


def test_an_edited_score_is_refused_before_sending(hub, results, tmp_path):
    good = posir("submit", results, "--dry-run")
    assert (good.exit_code, good.stdout) == (0, "")
    copy, file, before = edited(results, tmp_path)
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


def test_a_folder_counts_once_and_experiments_are_skipped(results, tmp_path):
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


def test_an_unreadable_file_is_named_and_no_result_fails(results, tmp_path):
    copy, file, _ = edited(results, tmp_path, "{")
    unread = posir("submit", copy, "--dry-run")
    (tmp_path / "empty").mkdir()
    nothing = posir("submit", tmp_path / "empty", "--dry-run")
    assert (unread.exit_code, f"{file}: is not readable JSON" in unread.stdout) == (1, True)
    assert (nothing.exit_code, "no result with" in str(nothing.exception)) == (1, True)


def test_the_token_is_printed_nowhere(hub, results, tmp_path):
    """The real command, against a Hub that says back whatever it was asked with, in bodies and
    headers.
    """
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
