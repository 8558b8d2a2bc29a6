"""The Hub as submissions need it: what is there, what is proposed, and one commit. Everything else is huggingface_hub's."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import responses
from typing import Any, Literal, Protocol

from huggingface_hub import CommitInfo, CommitOperationAdd, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled
from huggingface_hub.hf_api import RepoFile

from posir_leaderboard.entries import sanitized
from posir_tasks.errors import PosirError

MAIN = "main"
#: HTTP statuses after which trying again may help: time out, a commit in between, too early, too many requests.
COME_BACK = frozenset({408, 409, 412, 425, 429})
#: What is raised when a connection fails or its answer is none of the Hub's. The HTTP library's errors differ between versions
#: of huggingface_hub (requests, httpx, httpx2); they are Python's OSError or the base of huggingface_hub's own.
LOST: tuple[type[Exception], ...] = (
    OSError,
    ValueError,
    LookupError,
    *(base for base in HfHubHTTPError.__mro__ if base.__name__ == "HTTPError" and issubclass(base, Exception)),
)
#: The Hub's own rate limit, such as `"api";r=0;t=55`: none remaining, 55 seconds to wait.
RATE_LIMIT = re.compile(r"\br\s*=\s*0\s*;\s*t\s*=\s*(\d+)")
ADVICE = {
    401: "The Hub does not know who asks: log in with `hf auth login`, or set HF_TOKEN, to a token with write access.",
    403: "Your token may not do this: a pull request needs a token with write access, and --direct a member of the repository.",
    404: "There is no such repository, or your token may not see it: check the name, or `hf auth login`.",
    413: "It is more than the Hub takes in one commit.",
}


class HubError(PosirError):
    """The Hub refuses. Says what to do."""


class UnsettledError(Exception):
    """The Hub gave no answer, or said to come back later: whether anything was done is not known."""

    def __init__(self, what: str, wait: float | None) -> None:
        super().__init__(what)
        self.wait = wait
        """Seconds that the Hub asks to wait; None if it says nothing."""


@dataclass(frozen=True)
class Repository:
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

    @property
    def revision(self) -> str:
        """Where its files are."""
        return f"refs/pr/{self.number}"


@dataclass(frozen=True)
class Change:
    """Files for a repository: one commit."""

    repository: Repository
    files: Mapping[str, bytes]
    """Content by path in the repository."""
    summary: str
    description: str

    @property
    def title(self) -> str:
        """The summary with a mark of the files' content, by which an equal change is found again."""
        digest = hashlib.sha256()
        for path, content in sorted(self.files.items()):
            digest.update(f"{path}\0{hashlib.sha256(content).hexdigest()}\0".encode())
        return f"{self.summary} [posir {digest.hexdigest()[:12]}]"


class Hub(Protocol):
    """What submissions need of the Hub. Every method may raise `HubError` and `UnsettledError`."""

    def head(self, repository: Repository) -> str:
        """Return the commit of the main branch."""

    def holds(self, change: Change, revision: str) -> bool:
        """Whether a revision has every file of a change, with the same content."""

    def open_pull_requests(self, repository: Repository) -> list[PullRequest]:
        """Return the open pull requests."""

    def commit(self, change: Change, parent: str) -> str:
        """Commit to the main branch, if its commit is still `parent`; return the commit's address."""

    def propose(self, change: Change) -> PullRequest | None:
        """Open a pull request with one commit; None if the main branch has all of it."""

    def close(self, repository: Repository, number: int, comment: str) -> None:
        """Close a pull request of one's own."""

    def page(self, repository: Repository) -> str:
        """Return the repository's address."""


@dataclass(frozen=True)
class Secret:
    """A token, kept out of what is said; a server may echo it. Also a filter for `logging`."""

    token: str | None = field(repr=False)

    def taken_out(self, text: str) -> str:
        """Return a text without it."""
        return text.replace(self.token, "***") if self.token else text

    def within(self, content: bytes) -> bool:
        """Whether a file's content has it."""
        return bool(self.token) and str(self.token).encode() in content

    def filter(self, record: logging.LogRecord) -> bool:
        """Take it out of what is logged."""
        record.msg, record.args = self.taken_out(record.getMessage()), ()
        return True


class HuggingFaceHub:
    """The Hub through huggingface_hub, with address and token from its usual places."""

    def __init__(self) -> None:
        self._secret = Secret(get_token())
        self._api = HfApi(library_name="posir")
        for handler in logging.getLogger("huggingface_hub").handlers:
            handler.addFilter(self._secret)

    def head(self, repository: Repository) -> str:
        """Return the commit of the main branch."""
        with self._asking(repository):
            return str(self._api.repo_info(repository.name, repo_type=repository.kind, revision=MAIN).sha)

    def holds(self, change: Change, revision: str) -> bool:
        """Whether a revision has every file of a change, with the same content."""
        repository, paths = change.repository, list(change.files)
        with self._asking(repository):
            found = self._api.get_paths_info(repository.name, paths, revision=revision, repo_type=repository.kind)
        there = {file.path: file.lfs.sha256 if file.lfs else file.blob_id for file in found if isinstance(file, RepoFile)}
        return all(there.get(path) in identities(content) for path, content in change.files.items())

    def open_pull_requests(self, repository: Repository) -> list[PullRequest]:
        """Return the open pull requests."""
        with self._asking(repository):
            discussions = self._api.get_repo_discussions(
                repository.name, repo_type=repository.kind, discussion_type="pull_request", discussion_status="open"
            )
            return [PullRequest(one.num, one.title, one.url) for one in discussions]

    def commit(self, change: Change, parent: str) -> str:
        """Commit to the main branch, if its commit is still `parent`; return the commit's address."""
        return str(self._create_commit(change, parent_commit=parent).commit_url)

    def propose(self, change: Change) -> PullRequest | None:
        """Open a pull request with one commit; None if the main branch has all of it."""
        made = self._create_commit(change, create_pr=True)
        return PullRequest(made.pr_num, change.title, made.pr_url) if made.pr_num and made.pr_url else None

    def _create_commit(self, change: Change, **how: Any) -> CommitInfo:
        if any(self._secret.within(content) for content in change.files.values()):
            raise HubError(f"{change.repository}: a file holds your token; nothing was sent. Take it out of the results.")
        # An operation cannot be used a second time, whatever became of the first.
        operations = [CommitOperationAdd(path, content) for path, content in change.files.items()]
        with self._asking(change.repository):
            made: CommitInfo = self._api.create_commit(
                change.repository.name,
                operations,
                commit_message=change.title,
                commit_description=change.description,
                repo_type=change.repository.kind,
                **how,
            )
        return made

    def close(self, repository: Repository, number: int, comment: str) -> None:
        """Close a pull request of one's own."""
        with self._asking(repository):
            self._api.change_discussion_status(repository.name, number, "closed", comment=comment, repo_type=repository.kind)

    def page(self, repository: Repository) -> str:
        """Return the repository's address."""
        return f"{self._api.endpoint}/{'datasets/' if repository.kind == 'dataset' else ''}{repository.name}"

    @contextmanager
    def _asking(self, repository: Repository) -> Iterator[None]:
        """Turn huggingface_hub's errors into ours.

        Raises:
            HubError: The Hub refuses, or is not asked at all.
            UnsettledError: There is no answer, or one that says to come back later.
        """
        try:
            yield
        except HfHubHTTPError as error:
            status = error.response.status_code
            said = f"HTTP {status}: {self._clean(error.server_message or responses.get(status, ''))}"
            if status in COME_BACK or status >= 500:
                raise UnsettledError(said, wanted_wait(error.response.headers)) from None
            raise HubError(f"{repository}: {said}. {ADVICE.get(status, '')}".rstrip()) from None
        except (OfflineModeIsEnabled, HFValidationError) as error:
            raise HubError(f"{repository}: {self._clean(str(error))}") from None
        except LOST as error:
            raise UnsettledError(f"{type(error).__name__}: {self._clean(str(error))}", None) from None

    def _clean(self, text: str) -> str:
        return sanitized(self._secret.taken_out(text), 300)


def identities(content: bytes) -> tuple[str, str]:
    """Return by what the Hub knows a file's content: git's hash of it, and for large files SHA-256."""
    blob = b"blob %d\0%b" % (len(content), content)
    return hashlib.sha1(blob, usedforsecurity=False).hexdigest(), hashlib.sha256(content).hexdigest()


def wanted_wait(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds an answer asks to wait: its Retry-After (RFC 9110, 10.2.3), or else the Hub's rate limit."""
    after = headers.get("retry-after", "").strip()
    if after.isdecimal():
        return float(after)
    try:
        return max((parsedate_to_datetime(after) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError):  # no date, or one without a time zone
        limit = RATE_LIMIT.search(headers.get("ratelimit", ""))
        return float(limit[1]) if limit else None
