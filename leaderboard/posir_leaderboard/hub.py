"""The Hub as submissions need it: what a repository contains, its pull requests, and one commit, all by huggingface_hub."""

import hashlib
import logging
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import responses
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import CommitInfo, CommitOperationAdd, HfApi, get_token, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.hf_api import RepoFile

from posir_leaderboard.entries import PINS
from posir_tasks.display.wording import sanitized
from posir_tasks.errors import PosirError

MAIN = "main"
#: HTTP statuses after which a retry may help: timeout, a concurrent commit, too early, too many requests.
RETRYABLE_STATUSES = frozenset({408, 409, 412, 425, 429})
#: Raised if a connection fails or the response is not the Hub's. The HTTP library's errors differ between versions of
#: huggingface_hub (requests, httpx, httpx2); they are Python's OSError or the base of huggingface_hub's own.
CONNECTION_ERRORS: tuple[type[Exception], ...] = (
    OSError,
    ValueError,
    LookupError,
    *(base for base in HfHubHTTPError.__mro__ if base.__name__ == "HTTPError" and issubclass(base, Exception)),
)
#: The Hub's own rate limit, such as `"api";r=0;t=55`: no requests remaining, 55 seconds to wait.
RATE_LIMIT = re.compile(r"\br\s*=\s*0\s*;\s*t\s*=\s*(\d+)")
ADVICE = {
    401: "You are not logged in: run `hf auth login`, or set HF_TOKEN, with a token that has write access.",
    403: "Your token lacks permission: a pull request needs write access, and --direct membership of the repository.",
    404: "There is no such repository, or your token has no access to it: check the name, or run `hf auth login`.",
    413: "The files exceed the Hub's limit for one commit.",
}


class HubError(PosirError):
    """The Hub refuses a request. Says what to do."""


class RetryableError(Exception):
    """The Hub did not respond, or asks to retry later: it is unknown whether the request was carried out."""

    def __init__(self, message: str, retry_after: float | None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds that the Hub asks to wait; None if it does not say."""


@dataclass(frozen=True)
class TargetRepository:
    """A repository on the Hub."""

    kind: Literal["dataset", "model"]
    name: str
    """`owner/name`."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class PullRequest:
    """An open pull request."""

    number: int
    title: str
    url: str

    def __str__(self) -> str:
        return f"pull request #{self.number}, {self.url}"

    @property
    def revision(self) -> str:
        """Git reference of its files."""
        return f"refs/pr/{self.number}"


@dataclass(frozen=True)
class Commit:
    """Files to add to a repository in one commit."""

    repository: TargetRepository
    files: Mapping[str, bytes]
    """Content by path in the repository."""
    summary: str
    description: str

    @property
    def title(self) -> str:
        """The summary with a digest of the files, by which an identical commit is recognized."""
        digest = hashlib.sha256()
        for path, content in sorted(self.files.items()):
            digest.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\0".encode())
        return f"{self.summary} [posir {digest.hexdigest()[:12]}]"


@dataclass(frozen=True)
class TokenFilter:
    """Keeps a token out of messages, which may repeat what a server echoes. Also a filter for `logging`."""

    token: str | None = field(repr=False)

    def redact(self, text: str) -> str:
        """Return a text with the token replaced."""
        return text.replace(self.token, "***") if self.token else text

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact a log record."""
        record.msg, record.args = self.redact(record.getMessage()), ()
        return True


class HuggingFaceHub:
    """The Hub, with address and token as huggingface_hub finds them. Methods raise `HubError` and `RetryableError`."""

    def __init__(self) -> None:
        self._token = TokenFilter(get_token())
        self._api = HfApi(library_name="posir")
        for handler in logging.getLogger("huggingface_hub").handlers:
            handler.addFilter(self._token)

    def head(self, repository: TargetRepository) -> str:
        """Return the hash of the main branch's latest commit."""
        with self._hub_errors(repository):
            return str(self._api.repo_info(repository.name, repo_type=repository.kind, revision=MAIN).sha)

    def contains(self, commit: Commit, revision: str) -> bool:
        """Return whether a revision has every file of a commit, with the same content."""
        repository, paths = commit.repository, list(commit.files)
        with self._hub_errors(repository):
            infos = self._api.get_paths_info(repository.name, paths, revision=revision, repo_type=repository.kind)
        hashes = {file.path: file.lfs.sha256 if file.lfs else file.blob_id for file in infos if isinstance(file, RepoFile)}
        return all(hashes.get(path) in content_hashes(content) for path, content in commit.files.items())

    def open_pull_requests(self, repository: TargetRepository) -> list[PullRequest]:
        """Return the open pull requests of a repository."""
        with self._hub_errors(repository):
            discussions = self._api.get_repo_discussions(
                repository.name, repo_type=repository.kind, discussion_type="pull_request", discussion_status="open"
            )
            return [PullRequest(discussion.num, discussion.title, discussion.url) for discussion in discussions]

    def push(self, commit: Commit, parent: str) -> str:
        """Commit to the main branch if its latest commit is still `parent`; return the commit's address."""
        return str(self._create_commit(commit, parent_commit=parent).commit_url)

    def create_pull_request(self, commit: Commit) -> PullRequest | None:
        """Open a pull request with one commit; None if the main branch already contains all of it."""
        info = self._create_commit(commit, create_pr=True)
        return PullRequest(info.pr_num, commit.title, info.pr_url) if info.pr_num and info.pr_url else None

    def _create_commit(self, commit: Commit, **options: Any) -> CommitInfo:
        token = self._token.token
        if token and any(token.encode() in content for content in commit.files.values()):
            raise HubError(f"{commit.repository}: a file contains your token; nothing was sent. Remove it from the results.")
        # An operation cannot be reused after an attempt, even a failed one.
        operations = [CommitOperationAdd(path, content) for path, content in commit.files.items()]
        with self._hub_errors(commit.repository):
            info: CommitInfo = self._api.create_commit(
                commit.repository.name,
                operations,
                commit_message=commit.title,
                commit_description=commit.description,
                repo_type=commit.repository.kind,
                **options,
            )
        return info

    def close_pull_request(self, repository: TargetRepository, number: int, comment: str) -> None:
        """Close one of your own pull requests."""
        with self._hub_errors(repository):
            self._api.change_discussion_status(repository.name, number, "closed", comment=comment, repo_type=repository.kind)

    def url(self, repository: TargetRepository) -> str:
        """Return the address of a repository."""
        return f"{self._api.endpoint}/{'datasets/' if repository.kind == 'dataset' else ''}{repository.name}"

    @contextmanager
    def _hub_errors(self, repository: TargetRepository) -> Iterator[None]:
        """Translate huggingface_hub's errors.

        Raises:
            HubError: The Hub refuses the request, or huggingface_hub does not send it.
            RetryableError: There is no response, or one that asks to retry later.
        """
        try:
            yield
        except HfHubHTTPError as error:
            status = error.response.status_code
            message = f"HTTP {status}: {self._clean(error.server_message or responses.get(status, ''))}"
            if status in RETRYABLE_STATUSES or status >= 500:
                raise RetryableError(message, retry_delay(error.response.headers)) from None
            raise HubError(f"{repository}: {message}. {ADVICE.get(status, '')}".rstrip()) from None
        except (OfflineModeIsEnabled, HFValidationError) as error:
            raise HubError(f"{repository}: {self._clean(str(error))}") from None
        except CONNECTION_ERRORS as error:
            raise RetryableError(f"{type(error).__name__}: {self._clean(str(error))}", None) from None

    def _clean(self, text: str) -> str:
        return sanitized(self._token.redact(text), 300)


def content_hashes(content: bytes) -> tuple[str, str]:
    """Return the hashes by which the Hub identifies a file: git's blob hash and, for large files, SHA-256."""
    blob = b"blob %d\0%b" % (len(content), content)
    return hashlib.sha1(blob, usedforsecurity=False).hexdigest(), hashlib.sha256(content).hexdigest()


def retry_delay(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait that a response asks for: its Retry-After (RFC 9110, 10.2.3), or the Hub's rate limit."""
    after = headers.get("retry-after", "").strip()
    if after.isdecimal():
        return float(after)
    try:
        return max((parsedate_to_datetime(after) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError):  # not a date, or one without a time zone
        limit = RATE_LIMIT.search(headers.get("ratelimit", ""))
        return float(limit[1]) if limit else None


#: Name of a dataset repository.
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
#: Files that are downloaded from one.
FILES = ("results/**/*.json", "reproduced/**/*.json", PINS)


def is_repository(results: str) -> bool:
    """Return whether results name a dataset repository: there is no such folder, and the name is valid."""
    return not Path(results).exists() and REPOSITORY.fullmatch(results) is not None


@contextmanager
def open_results(results: str, patterns: Sequence[str] = FILES) -> Iterator[Path]:
    """Yield a folder of results, or a temporary copy of the files of a dataset repository on the Hub.

    Raises:
        PosirError: It is neither, or the repository cannot be read.
    """
    if not is_repository(results):
        if not Path(results).is_dir():
            raise PosirError(f"{results}: no such folder. Give the --output-folder of `mteb run`, or ORG/NAME on the Hub.")
        yield Path(results)
        return
    with tempfile.TemporaryDirectory() as folder:
        # Files in the Hub's cache are links, which are refused in untrusted results; so they are copied.
        snapshot = download(results, patterns)
        yield Path(shutil.copytree(snapshot, Path(folder) / "results"))


def download(repository: str, patterns: Sequence[str]) -> str:
    """Download a dataset repository's results to the Hub's cache; return their folder; raise PosirError on failure."""
    try:
        return snapshot_download(repository, repo_type="dataset", allow_patterns=list(patterns))
    except (OSError, HfHubHTTPError) as error:
        raise PosirError(
            f"{repository}: no such folder, and no dataset repository of the Hub that can be read ({type(error).__name__}). "
            "Give the --output-folder of `mteb run`, or ORG/NAME; for a private repository, log in with `hf auth login`."
        ) from error
