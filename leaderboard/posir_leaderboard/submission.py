"""Submit a model's results to the Hub: one commit in one pull request, safe to repeat."""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import responses
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import CommitInfo, CommitOperationAdd, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import filter_repo_objects, yaml_dump  # type: ignore[attr-defined]

from posir_leaderboard.entries import Entry
from posir_tasks.base.errors import PosirError
from posir_tasks.base.logs import sanitize_log
from posir_tasks.base.secrets import add_secret
from posir_tasks.base.untrusted import read_json
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.data.repository import check_repository_name
from posir_tasks.models.connection import read_retry_after
from posir_tasks.results import META_FILE, NAN_PREFIX
from posir_tasks.tasks.catalog import find_task
from posir_tasks.values.profile import pool
from posir_tasks.values.result_schema import REFERENCE_KEY, RUN_KEY, round_floats

MAX_ATTEMPTS = 5
#: Seconds before the second attempt, doubled for each further attempt unless the Hub sets a time.
FIRST_WAIT = 2.0
#: Maximum wait in seconds; if the Hub asks for more, the command fails.
MAX_WAIT = 600.0
MAIN = "main"
#: Format string with number and address.
PULL_REQUEST = "pull request #%d, %s"
#: HTTP statuses for a repository that does not exist or that the token cannot access.
UNKNOWN_STATUSES = frozenset({401, 404})
#: HTTP statuses worth a retry: timeout, concurrent commit, too early, too many requests.
RETRYABLE_STATUSES = frozenset({408, 409, 412, 425, 429})
#: Errors of rejected requests, failed connections and responses from other servers. Depending on
#: its version, huggingface_hub uses requests, httpx or httpx2, whose errors derive from OSError or
#: share a base class with HfHubHTTPError.
REQUEST_ERRORS: tuple[type[Exception], ...] = (
    HfHubHTTPError,
    OSError,
    ValueError,
    LookupError,
    *(
        base
        for base in HfHubHTTPError.__mro__
        if base.__name__ == "HTTPError" and issubclass(base, Exception)
    ),
)
#: Next step by HTTP status.
ADVICE_BY_STATUS = {
    401: "There is no such repository, or it is private: check the name, or run `hf auth login` "
    "(or set HF_TOKEN) with a token that has write access.",
    403: "Your token lacks permission: reading needs access, a pull request write access, and "
    "--direct membership of the repository. Ask its owner, or log in with `hf auth login`.",
    404: "There is no such repository, or your token has no access to it: check the name, or run "
    "`hf auth login`.",
    413: "The files exceed the Hub's limit for one commit.",
}
#: Format string for the command that creates a results repository.
CREATE_COMMAND = " A new leaderboard starts with: hf repos create %s --type dataset"


class HubError(PosirError):
    """The Hub rejected a request; the message names the next step."""


class RetryableError(Exception):
    """The Hub did not respond, or asks to retry later; the request may have succeeded."""

    def __init__(self, message: str, retry_after: float | None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds to wait according to the Hub, or None."""


@dataclass(frozen=True)
class Commit:
    """A commit that adds files to a repository."""

    kind: Literal["dataset", "model"]
    name: str
    """Name of the repository, `owner/name`."""
    files: Mapping[str, bytes]
    """Content by path in the repository."""
    summary: str
    description: str
    parent: str | None = None
    """If given, a direct commit fails unless this is the latest commit of the repository."""

    @property
    def repository(self) -> str:
        """Kind and name of the repository for messages."""
        return f"{self.kind} {self.name}"

    @property
    def title(self) -> str:
        """The summary with a digest of the files, by which an identical commit is found."""
        digest = hashlib.sha256()
        for path, content in sorted(self.files.items()):
            digest.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\0".encode())
        return f"{self.summary} [posir {digest.hexdigest()[:12]}]"


@dataclass(frozen=True)
class UploadResult:
    """The outcome of an upload."""

    sent: bool
    """True if this run sent the files, False if the repository already had them."""
    location: str
    """The pull request or commit with the files, and its address."""

    def describe(self, commit: Commit) -> str:
        """Describe the outcome for a commit."""
        outcome = "nothing was sent, the files are already there"
        if self.sent:
            outcome = f"sent {pluralize(len(commit.files), 'file')}"
        return f"{commit.repository}: {outcome}: {self.location}"


class HuggingFaceHub:
    """The Hub, with the address and token of huggingface_hub.

    Methods raise `HubError` and `RetryableError`. Commits go into a pull request or, with `direct`,
    to the main branch. The Hub does not prevent identical pull requests. If two are opened at the
    same time, for example by a repeated attempt, the later one is closed.
    """

    def __init__(self, *, direct: bool = False) -> None:
        self.direct = direct
        self._token = get_token()
        add_secret(self._token)
        self.api = HfApi(library_name="posir")
        sanitize_log("huggingface_hub")

    def find(self, commit: Commit) -> str | None:
        """Find the main branch or open pull request that contains a commit's files."""
        if self._contains(commit, MAIN):
            return f"the main branch of {self.build_url(commit)}"
        oldest = None if self.direct else self._find_oldest(commit)
        return PULL_REQUEST % oldest if oldest else None

    def send(self, commit: Commit) -> UploadResult:
        """Send a commit. A direct commit raises `RetryableError` after a concurrent commit."""
        if self.direct:
            with self.translate_errors(commit.kind, commit.name):
                head = self.api.repo_info(commit.name, repo_type=commit.kind, revision=MAIN).sha
            if commit.parent not in (None, head):
                raise HubError(
                    f"{commit.repository} has changed since the content was read. Run the same "
                    "command again."
                )
            info = self._create_commit(commit, parent_commit=head)
            return UploadResult(True, f"commit {info.commit_url}")
        info = self._create_commit(commit, create_pr=True)
        if not (info.pr_num and info.pr_url):  # the main branch already has all files
            return UploadResult(False, f"the main branch of {self.build_url(commit)}")
        request = (info.pr_num, info.pr_url)
        oldest = min(self._find_oldest(commit) or request, request)
        if oldest != request:
            comment = f"The same as #{oldest[0]}, which was opened first."
            with self.translate_errors(commit.kind, commit.name):
                self.api.change_discussion_status(
                    commit.name, request[0], "closed", comment=comment, repo_type=commit.kind
                )
        return UploadResult(oldest == request, PULL_REQUEST % oldest)

    def _contains(self, commit: Commit, revision: str) -> bool:
        with self.translate_errors(commit.kind, commit.name):
            infos = self.api.get_paths_info(
                commit.name, list(commit.files), revision=revision, repo_type=commit.kind
            )
        hashes = {
            file.path: file.lfs.sha256 if file.lfs else file.blob_id
            for file in infos
            if isinstance(file, RepoFile)
        }
        return all(
            hashes.get(path) in _hash_content(content) for path, content in commit.files.items()
        )

    def _find_oldest(self, commit: Commit) -> tuple[int, str] | None:
        """Find the oldest open pull request with a commit's title and files: number, address."""
        with self.translate_errors(commit.kind, commit.name):
            requests = list(
                self.api.get_repo_discussions(
                    commit.name,
                    repo_type=commit.kind,
                    discussion_type="pull_request",
                    discussion_status="open",
                )
            )
        identical = [
            (request.num, str(request.url))
            for request in requests
            if request.title == commit.title and self._contains(commit, f"refs/pr/{request.num}")
        ]
        return min(identical, default=None)

    def _create_commit(self, commit: Commit, **options: Any) -> CommitInfo:
        if self._token and self._token.encode() in b"".join(commit.files.values()):
            raise HubError(
                f"{commit.repository}: a file contains your token; nothing was sent. Remove the "
                "token from the results."
            )
        # Operations cannot be reused, even after a failure.
        operations = [CommitOperationAdd(path, content) for path, content in commit.files.items()]
        with self.translate_errors(commit.kind, commit.name):
            info: CommitInfo = self.api.create_commit(
                commit.name,
                operations,
                commit_message=commit.title,
                commit_description=commit.description,
                repo_type=commit.kind,
                **options,
            )
        return info

    def build_url(self, commit: Commit) -> str:
        """Build the address of a commit's repository."""
        folder = "datasets/" if commit.kind == "dataset" else ""
        return f"{self.api.endpoint}/{folder}{commit.name}"

    @contextmanager
    def translate_errors(self, kind: str, name: str) -> Iterator[None]:
        """Translate huggingface_hub's errors about a repository of a kind, such as `dataset`.

        Raises:
            HubError: The Hub rejected the request, or huggingface_hub did not send it.
            RetryableError: The Hub did not respond, or asks to retry later.
        """
        try:
            yield
        except (OfflineModeIsEnabled, HFValidationError) as error:
            raise HubError(f"{kind} {name}: {sanitize(error, 300)}") from None
        except REQUEST_ERRORS as error:
            # A download error stores the response in its cause.
            response_error = error if isinstance(error, HfHubHTTPError) else error.__cause__
            if not isinstance(response_error, HfHubHTTPError):
                message = f"{type(error).__name__}: {sanitize(error, 300)}"
                raise RetryableError(message, None) from None
            status = response_error.response.status_code
            reason = sanitize(response_error.server_message or responses.get(status, ""), 300)
            message = f"HTTP {status}: {reason}"
            if status in RETRYABLE_STATUSES or status >= 500:
                wait = read_retry_after(response_error.response.headers)
                raise RetryableError(message, wait) from None
            advice = ADVICE_BY_STATUS.get(status, "")
            if kind == "dataset" and status in UNKNOWN_STATUSES:
                advice += CREATE_COMMAND % name
            raise HubError(f"{kind} {name}: {message}. {advice}".rstrip()) from None


def _hash_content(content: bytes) -> tuple[str, str]:
    blob = b"blob %d\0%b" % (len(content), content)
    blob_id = hashlib.sha1(blob, usedforsecurity=False).hexdigest()
    return blob_id, hashlib.sha256(content).hexdigest()


def copy_repository(name: str, patterns: list[str], folder: Path) -> str | None:
    """Copy files of a dataset repository into a folder, and return its commit; None if it has none.

    Args:
        name: Name of the repository.
        patterns: Patterns of the files to copy.
        folder: The existing folder.

    Raises:
        PosirError: The repository does not exist, or the Hub does not answer.
    """
    hub = HuggingFaceHub()
    try:
        with hub.translate_errors("dataset", name):
            head = hub.api.dataset_info(name, revision=MAIN)
            files = [file.rfilename for file in head.siblings or ()]
            # huggingface_hub creates no snapshot without files.
            if head.sha is None or not any(filter_repo_objects(files, allow_patterns=patterns)):
                return head.sha
            snapshot = hub.api.snapshot_download(
                name, repo_type="dataset", revision=head.sha, allow_patterns=patterns
            )
    except RetryableError as error:
        raise HubError(
            f"dataset {name}: the Hub did not answer ({error}). Run the same command later."
        ) from None
    # The Hub's cache consists of links, which are not allowed in untrusted results.
    shutil.copytree(str(snapshot), folder, dirs_exist_ok=True)
    return head.sha


def build_submission(entries: Sequence[Entry], repository: str) -> Commit:
    """Build the commit that adds one model's entries to a dataset repository, in mteb's layout."""
    check_repository_name(repository)
    folders = sorted({str(entry.file.parent) for entry in entries})
    if len(folders) > 1:
        message = "A pull request contains one model and revision. Give one of these folders:"
        raise PosirError("\n".join([message, *folders]))
    first = entries[0]
    files = sorted(entry.file for entry in entries)
    tasks = "\n".join(f"- {file.stem}" for file in files)
    return Commit(
        "dataset",
        repository,
        {
            _build_repository_path(first, file.name): _read_public_content(file)
            for file in (first.file.with_name(META_FILE), *files)
        },
        f"{first.model}: PosIR results, {pluralize(len(entries), 'task')}",
        f"Results of `{first.model}`, revision `{first.revision}`:\n\n{tasks}\n\n"
        "Sent by `posir submit`, which recomputed every score from its profile; with `--dry-run` "
        "it does the same.",
    )


def _read_public_content(file: Path) -> bytes:
    """Read a file, without the names of local folders and servers."""
    content = file.read_bytes()
    if file.name == META_FILE or f'"{REFERENCE_KEY}"'.encode() not in content:
        return content
    result = read_json(file, nan_prefix=NAN_PREFIX)
    for entries in result["scores"].values():
        for scores in entries:
            scores.get(RUN_KEY, {}).pop(REFERENCE_KEY, None)
    return json.dumps(result, indent=2).encode()


def _build_repository_path(entry: Entry, name: str) -> str:
    # `MODEL/REVISION`, followed by `experiments/PROTOCOL` for a protocol.
    depth = 3 if entry.paper is None else 5
    return "/".join(["results", *entry.file.parts[-depth:-1], name])


def upload(
    commit: Commit,
    hub: HuggingFaceHub,
    *,
    sleep: Callable[[float], None] = time.sleep,
    report: Callable[[str], None] = lambda _: None,
) -> UploadResult:
    """Send a commit unless its files are on the Hub; retry at most `MAX_ATTEMPTS` times.

    Args:
        commit: The commit.
        hub: The Hub.
        sleep: Waits for a number of seconds.
        report: Receives the reason for each wait.

    Raises:
        HubError: The Hub rejected the commit, or all attempts failed.
    """
    was_sent = False
    for attempt in range(1, MAX_ATTEMPTS + 1):
        try:
            if location := hub.find(commit):
                return UploadResult(was_sent, location)
            was_sent = True
            return hub.send(commit)
        except RetryableError as error:
            failure = error
        # The commit may have arrived although its response was lost.
        with suppress(RetryableError):
            if location := hub.find(commit):
                return UploadResult(was_sent, location)
        wait = failure.retry_after
        if wait is None:
            wait = FIRST_WAIT * 2 ** (attempt - 1)
        if attempt == MAX_ATTEMPTS or wait > MAX_WAIT:
            break
        next_attempt = f"attempt {attempt + 1} of {MAX_ATTEMPTS} in {wait:.0f} seconds"
        report(f"{commit.repository}: {failure}; {next_attempt}")
        sleep(wait)
    reason = str(failure)
    if failure.retry_after:
        reason += f"; the Hub asks to wait {failure.retry_after:.0f} seconds"
    raise HubError(
        f"{commit.repository}: gave up after attempt {attempt} of {MAX_ATTEMPTS} ({reason}). The "
        "files are not on the Hub. Run the same command later; it never sends files twice."
    )


def build_eval_results(entries: Sequence[Entry], page: str) -> Commit:
    """Build the commit that adds mean nDCG@10 to a model's repository, in the Hub's format.

    Args:
        entries: Valid entries of one model; each task gets a file.
        page: Address of the full results.

    Raises:
        PosirError: huggingface_hub is too old, or no task has a dataset on the Hub.
    """
    try:
        from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml
    except ImportError as error:
        raise PosirError(
            "--eval-results needs a newer huggingface_hub: pip install -U huggingface_hub"
        ) from error
    files = {}
    for entry in entries:
        task = find_task(entry.task)
        # The revision of packaged data is a number.
        if task is None or task.metadata.dataset["revision"].isdigit():
            continue
        profile = pool(result.profile for result in entry.subsets)
        revisions = {str(result.run["data_revision"]) for result in entry.subsets}
        result = EvalResultEntry(
            dataset_id=task.metadata.dataset["path"],
            task_id=entry.task,
            value=round_floats(profile.score()),
            dataset_revision=revisions.pop() if len(revisions) == 1 else None,
            source_url=f"{page}/blob/main/{_build_repository_path(entry, entry.file.name)}",
            source_name="PosIR, with position bias",
            notes=f"nDCG@10 over {profile.queries:,} queries",
        )
        content = str(yaml_dump(eval_result_entries_to_yaml([result])))
        files[f".eval_results/{entry.task.lower()}.yaml"] = content.encode()
    if not files:
        raise PosirError(
            "--eval-results needs results on a dataset of the Hub, and there are none. Omit the "
            "option."
        )
    first = entries[0]
    return Commit(
        "model",
        first.model,
        files,
        f"PosIR: nDCG@10 on {pluralize(len(files), 'task')}",
        f"nDCG@10 of revision `{first.revision}`. The full results, with position bias: {page}",
    )
