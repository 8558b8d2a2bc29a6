"""Submission: a model's results as one commit in one pull request, sent once however often one tries."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from posir_leaderboard.entries import Entry
from posir_leaderboard.hub import MAIN, Change, Hub, HubError, PullRequest, Repository, UnsettledError
from posir_tasks.display.wording import counted
from posir_tasks.errors import PosirError
from posir_tasks.results import META_FILE

#: How often a commit is tried.
ATTEMPTS = 5
#: Seconds before the second try where the Hub names none; doubled before each further one.
FIRST_WAIT = 2.0
#: Longest wait, in seconds; a Hub that asks for more is left for later.
LONGEST_WAIT = 600.0


def submission_of(entries: Sequence[Entry], repository: str) -> Change:
    """Return the change that adds a model's results to a leaderboard's repository, in mteb's own layout.

    Args:
        entries: Of one model and revision; at least one.
        repository: `owner/name` of a dataset.

    Raises:
        PosirError: They lie in the folders of several models or revisions.
    """
    folders = sorted({str(entry.file.parent) for entry in entries})
    if len(folders) > 1:
        raise PosirError(
            "One pull request is of one model and revision. Name the folder of one of these:\n" + "\n".join(folders)
        )
    first = entries[0]
    files = [first.file.with_name(META_FILE), *(entry.file for entry in sorted(entries, key=lambda entry: entry.task))]
    tasks = "\n".join(f"- {file.stem}" for file in files[1:])
    return Change(
        Repository("dataset", repository),
        {path_in_repository(first, file.name): file.read_bytes() for file in files},
        f"{first.model}: PosIR results, {counted(len(entries), 'task')}",
        f"Results of `{first.model}`, revision `{first.revision}`:\n\n{tasks}\n\n"
        "Sent by `posir submit`, which computed every score again from its profile; `posir check-results` does the same.",
    )


def path_in_repository(entry: Entry, name: str) -> str:
    """Return the path of a file beside an entry, as mteb lays results out."""
    return f"results/{entry.file.parent.parent.name}/{entry.revision}/{name}"


@dataclass(frozen=True)
class Outcome:
    """What became of a change."""

    sent: bool
    """Whether this run sent it; if not, it was there."""
    where: str
    """A pull request or commit, with its address."""


class Way(Protocol):
    """How a change gets to a repository."""

    def __str__(self) -> str:
        """Return it in words."""

    def find(self, change: Change) -> Outcome | None:
        """Return where a change is, None where it is nowhere yet."""

    def send(self, change: Change) -> Outcome:
        """Send it."""


@dataclass(frozen=True)
class ByCommit:
    """A commit to the main branch, for those who may."""

    hub: Hub

    def __str__(self) -> str:
        return "one commit to the main branch"

    def find(self, change: Change) -> Outcome | None:
        """Look into the main branch."""
        if self.hub.holds(change, MAIN):
            return Outcome(False, f"the main branch of {self.hub.page(change.repository)}")
        return None

    def send(self, change: Change) -> Outcome:
        """Commit; if another commit came in between, the Hub refuses and one looks again."""
        return Outcome(True, f"commit {self.hub.commit(change, parent=self.hub.head(change.repository))}")


@dataclass(frozen=True)
class ByPullRequest:
    """One commit in a pull request.

    The Hub cannot be told to open a pull request only if there is none like it. So of two that were opened at the same
    moment, by two submitters or by one whose first attempt arrived late, the later is closed by the one who opened it.
    """

    hub: Hub

    def __str__(self) -> str:
        return "one commit in one pull request"

    def find(self, change: Change) -> Outcome | None:
        """Look into the main branch, and for an open pull request with the same files."""
        merged = ByCommit(self.hub).find(change)
        if merged:
            return merged
        oldest = self._oldest(change)
        return _of(oldest, sent=False) if oldest else None

    def send(self, change: Change) -> Outcome:
        """Open a pull request, and close it again if there is an older one of the same files."""
        mine = self.hub.propose(change)
        if mine is None:
            return Outcome(False, f"the main branch of {self.hub.page(change.repository)}")
        oldest = self._oldest(change) or mine
        if oldest.number >= mine.number:
            return _of(mine, sent=True)
        self.hub.close(change.repository, mine.number, f"The same as #{oldest.number}, which came first.")
        return _of(oldest, sent=False)

    def _oldest(self, change: Change) -> PullRequest | None:
        alike = (one for one in self.hub.open_pull_requests(change.repository) if one.title == change.title)
        # A title is easily copied, a commit's content is not.
        same = [one for one in alike if self.hub.holds(change, one.revision)]
        return min(same, key=lambda one: one.number, default=None)


def _of(pull_request: PullRequest, *, sent: bool) -> Outcome:
    return Outcome(sent, f"pull request #{pull_request.number}, {pull_request.url}")


def send(
    change: Change, way: Way, *, sleep: Callable[[float], None] = time.sleep, tell: Callable[[str], None] = lambda _: None
) -> Outcome:
    """Send a change unless it is there; after a lost answer look for it before trying again, five times at most.

    Args:
        change: What to send.
        way: How.
        sleep: Waits some seconds.
        tell: Is told why one waits.

    Raises:
        HubError: The Hub refuses, or five attempts failed.
    """
    tried = False
    for attempt in range(1, ATTEMPTS + 1):
        try:
            found = way.find(change)
            if found:
                return replace(found, sent=tried)
            tried = True
            return way.send(change)
        except UnsettledError as error:
            failure = error
        found = _find_if_it_answers(way, change)
        if found:
            return replace(found, sent=tried)
        wait = FIRST_WAIT * 2 ** (attempt - 1) if failure.wait is None else failure.wait
        if attempt == ATTEMPTS or wait > LONGEST_WAIT:
            break
        tell(f"{change.repository}: {failure}; attempt {attempt + 1} of {ATTEMPTS} in {wait:.0f} seconds")
        sleep(wait)
    asked = f"; the Hub asks to wait {failure.wait:.0f} seconds" if failure.wait else ""
    raise HubError(
        f"{change.repository}: given up after attempt {attempt} of {ATTEMPTS} ({failure}{asked}). Nothing of it is there. "
        "Run the same command later: it looks before it sends, so nothing is sent twice."
    )


def _find_if_it_answers(way: Way, change: Change) -> Outcome | None:
    try:
        return way.find(change)
    except UnsettledError:
        return None
