"""Submission: a model's results as one commit in one pull request, sent once however often the command is repeated."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from huggingface_hub.utils import yaml_dump  # type: ignore[attr-defined]

from posir_leaderboard.entries import Entry
from posir_leaderboard.hub import MAIN, Commit, HubError, HuggingFaceHub, PullRequest, RetryableError, TargetRepository
from posir_tasks.cells import pool
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import PosirError
from posir_tasks.results import META_FILE, rounded
from posir_tasks.sources.repository import check_repository_name
from posir_tasks.tasks.catalog import find_task

#: Most attempts to send a commit.
ATTEMPTS = 5
#: Seconds before the second attempt if the Hub names none; doubled before each further one.
FIRST_WAIT = 2.0
#: Longest wait, in seconds; if the Hub asks for more, the command stops.
LONGEST_WAIT = 600.0


def build_submission(entries: Sequence[Entry], repository: str) -> Commit:
    """Return the commit that adds one model's entries to a leaderboard's dataset repository, in mteb's own layout.

    Raises:
        PosirError: They are in the folders of several models or revisions.
    """
    check_repository_name(repository)
    folders = sorted({str(entry.file.parent) for entry in entries})
    if len(folders) > 1:
        raise PosirError("A pull request contains one model and revision. Name one of these folders:\n" + "\n".join(folders))
    first = entries[0]
    files = [first.file.with_name(META_FILE), *(entry.file for entry in sorted(entries, key=lambda entry: entry.task))]
    tasks = "\n".join(f"- {file.stem}" for file in files[1:])
    return Commit(
        TargetRepository("dataset", repository),
        {path_in_repository(first, file.name): file.read_bytes() for file in files},
        f"{first.model}: PosIR results, {pluralize(len(entries), 'task')}",
        f"Results of `{first.model}`, revision `{first.revision}`:\n\n{tasks}\n\n"
        "Sent by `posir submit`, which recomputed every score from its profile; with `--dry-run` it does the same.",
    )


def path_in_repository(entry: Entry, name: str) -> str:
    """Return the path in the repository of a file beside an entry, in mteb's layout."""
    return f"results/{entry.file.parent.parent.name}/{entry.revision}/{name}"


@dataclass(frozen=True)
class UploadResult:
    """Outcome of an upload: the location of a commit's files."""

    sent: bool
    """Whether this run sent the files; otherwise they were there already."""
    location: str
    """A pull request or commit, with its address."""


class Uploader(Protocol):
    """A way for a commit to get into a repository. Its `str()` describes it to the user."""

    def find(self, commit: Commit) -> UploadResult | None:
        """Return where the files of a commit are; None if they are not in the repository yet."""

    def send(self, commit: Commit) -> UploadResult:
        """Send a commit."""


@dataclass(frozen=True)
class CommitUploader:
    """Commits to the main branch, for members of the repository."""

    hub: HuggingFaceHub

    def __str__(self) -> str:
        return "one commit to the main branch"

    def find(self, commit: Commit) -> UploadResult | None:
        """Search the main branch."""
        if self.hub.contains(commit, MAIN):
            return UploadResult(False, f"the main branch of {self.hub.url(commit.repository)}")
        return None

    def send(self, commit: Commit) -> UploadResult:
        """Commit; after a concurrent commit the Hub refuses, which is retried."""
        return UploadResult(True, f"commit {self.hub.push(commit, parent=self.hub.head(commit.repository))}")


@dataclass(frozen=True)
class PullRequestUploader:
    """Opens a pull request with one commit.

    The Hub cannot open a pull request on the condition that no identical one exists. If two are opened at the same moment, by
    two submitters or by one whose first attempt arrives late, the submitter of the later one closes it.
    """

    hub: HuggingFaceHub

    def __str__(self) -> str:
        return "one commit in one pull request"

    def find(self, commit: Commit) -> UploadResult | None:
        """Search the main branch, and the open pull requests for one with the same files."""
        merged = CommitUploader(self.hub).find(commit)
        if merged:
            return merged
        oldest = self._oldest(commit)
        return UploadResult(False, str(oldest)) if oldest else None

    def send(self, commit: Commit) -> UploadResult:
        """Open a pull request, and close it if there is an older one with the same files."""
        created = self.hub.create_pull_request(commit)
        if created is None:
            return UploadResult(False, f"the main branch of {self.hub.url(commit.repository)}")
        oldest = self._oldest(commit) or created
        if oldest.number >= created.number:
            return UploadResult(True, str(created))
        comment = f"The same as #{oldest.number}, which was opened first."
        self.hub.close_pull_request(commit.repository, created.number, comment)
        return UploadResult(False, str(oldest))

    def _oldest(self, commit: Commit) -> PullRequest | None:
        # A title is easily copied, a commit's content is not.
        same = [
            request
            for request in self.hub.open_pull_requests(commit.repository)
            if request.title == commit.title and self.hub.contains(commit, request.revision)
        ]
        return min(same, key=lambda request: request.number, default=None)


def upload(
    commit: Commit,
    uploader: Uploader,
    *,
    sleep: Callable[[float], None] = time.sleep,
    report: Callable[[str], None] = lambda _: None,
) -> UploadResult:
    """Send a commit unless its files are there; after a lost response, search for them before retrying, at most five times.

    `report` receives the reason for each wait.

    Raises:
        HubError: The Hub refuses, or five attempts failed.
    """
    tried = False
    for attempt in range(1, ATTEMPTS + 1):
        try:
            previous = uploader.find(commit)
            if previous:
                return replace(previous, sent=tried)
            tried = True
            return uploader.send(commit)
        except RetryableError as error:
            failure = error
        pull_request = _find_if_available(uploader, commit)
        if pull_request:
            return replace(pull_request, sent=tried)
        wait = FIRST_WAIT * 2 ** (attempt - 1) if failure.retry_after is None else failure.retry_after
        if attempt == ATTEMPTS or wait > LONGEST_WAIT:
            break
        report(f"{commit.repository}: {failure}; attempt {attempt + 1} of {ATTEMPTS} in {wait:.0f} seconds")
        sleep(wait)
    requested = f"; the Hub asks to wait {failure.retry_after:.0f} seconds" if failure.retry_after else ""
    raise HubError(
        f"{commit.repository}: gave up after attempt {attempt} of {ATTEMPTS} ({failure}{requested}). The files are not there. "
        "Run the same command later: it searches before it sends, so nothing is sent twice."
    )


def _find_if_available(uploader: Uploader, commit: Commit) -> UploadResult | None:
    try:
        return uploader.find(commit)
    except RetryableError:
        return None


def build_eval_results(entries: Sequence[Entry], page: str) -> Commit:
    """Return the commit that adds nDCG@10 of one model's valid entries to its own repository, a file per task.

    Raises:
        PosirError: No entry is on a dataset of the Hub.
    """
    datasets = {entry.task: task.metadata.dataset for entry in entries if (task := find_task(entry.task))}
    on_hub = [entry for entry in entries if not datasets[entry.task]["revision"].isdigit()]
    if not on_hub:
        raise PosirError("--eval-results: none of the results is on a dataset of the Hub, which the Hub's format requires.")
    files = {
        f".eval_results/{entry.task.lower()}.yaml": to_yaml(entry, datasets[entry.task]["path"], page).encode()
        for entry in on_hub
    }
    summary = f"PosIR: nDCG@10 on {pluralize(len(files), 'task')}"
    description = f"nDCG@10 of revision `{entries[0].revision}`. The full results, with position bias: {page}"
    return Commit(TargetRepository("model", entries[0].model), files, summary, description)


def to_yaml(entry: Entry, dataset: str, page: str) -> str:
    """Return mean nDCG@10 over all queries, in [0, 1], in the Hub's format; PosirError if huggingface_hub lacks it."""
    try:
        from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml
    except ImportError as error:
        raise PosirError("--eval-results needs a newer huggingface_hub: pip install -U huggingface_hub") from error
    profile = pool(result.profile for result in entry.subsets)
    revisions = {str(result.run["data_revision"]) for result in entry.subsets}
    result = EvalResultEntry(
        dataset_id=dataset,
        task_id=entry.task,
        value=rounded(profile.score()),
        dataset_revision=revisions.pop() if len(revisions) == 1 else None,
        source_url=f"{page}/blob/main/{path_in_repository(entry, entry.file.name)}",
        source_name="PosIR, with position bias",
        notes=f"nDCG@10 over {profile.queries:,} queries",
    )
    return str(yaml_dump(eval_result_entries_to_yaml([result])))
