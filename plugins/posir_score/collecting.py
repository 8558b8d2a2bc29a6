"""Runs of a retriever: every query is asked for, several at a time, with retries, and each answer is kept."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, TypeAlias

from posir_score.alignment import Missing, SubsetQueries
from posir_score.journal import Answer, Journal
from posir_score.run_files import Rankings, Run
from posir_tasks.digests import digest
from posir_tasks.display.progress import Advance, track
from posir_tasks.display.wording import pluralize, sanitized
from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.models.names import legible_name

logger = logging.getLogger(__name__)

#: Failed queries after which a run stops that needs all of them; further ones are not named.
MAX_FAILURES = 10
#: Failed queries after which a run stops that may lack some, if no query has an answer.
MAX_FAILURES_AT_START = 20
#: Errors of a retriever's code, which another attempt meets again.
PROGRAMMING_ERRORS = (TypeError, AttributeError, NameError)
#: Longest wait before another attempt, in seconds.
MAX_BACKOFF = 8.0
#: Hits whose scores all rise are taken for distances.
MIN_RISING = 10
#: Ids of documents or chunks, best first, or pairs of id and score, or scores by id.
Hits: TypeAlias = Iterable[str] | Iterable[tuple[str, float]] | Mapping[str, float]


class Retriever(Protocol):
    """Anything that searches: a function, a method, or an object with `__call__`; synchronous or not.

    If it has a parameter `subset`, it is given the name of the subset, such as a domain, whose documents it shall search.
    """

    def __call__(self, query: str, k: int) -> Hits | Awaitable[Hits]:
        """Return the best `k` documents or chunks for a query, best first; a higher score is better."""


@dataclass(frozen=True)
class CollectionSettings:
    """Limits of the requests to a retriever."""

    k: int = 100
    """Documents, or chunks, per query."""
    concurrency: int = 8
    """Queries that are searched at the same time."""
    retries: int = 3
    """Further attempts for a query whose search raises or takes too long."""
    timeout: float = 60.0
    """Seconds that a search may take."""
    backoff: float = 0.5
    """Seconds before the second attempt; each further wait is twice as long."""


@dataclass(frozen=True)
class AskedQuery:
    """A query of the data."""

    subset: str
    id: str
    text: str


class AnswerError(Exception):
    """A query has no ranking: the retriever failed in all attempts, or returned something else."""


@dataclass
class Failures:
    """The queries that a retriever did not answer, with the reasons."""

    missing: Missing
    """The treatment of these queries."""
    answered: int = 0
    """Queries that it did answer."""
    reasons: dict[AskedQuery, str] = field(default_factory=dict)

    @property
    def are_too_many(self) -> bool:
        """Whether the run should stop: for their number only if they are refused, otherwise if nothing else came first."""
        if self.missing is Missing.ERROR:
            return len(self.reasons) >= MAX_FAILURES
        return len(self.reasons) >= MAX_FAILURES_AT_START and not self.answered


def collect_run(
    search: Retriever,
    name: str,
    subsets: Collection[SubsetQueries],
    missing: Missing,
    settings: CollectionSettings,
    folder: Path,
) -> tuple[Run, Journal]:
    """Ask a retriever for every judged query that has a text.

    Args:
        search: The retriever.
        name: Its name.
        subsets: The queries and documents.
        missing: What becomes of queries that it does not answer.
        settings: How it is asked.
        folder: Folder of the journal, from which an interrupted run goes on.

    Returns:
        The run, and the journal, to be removed when its result is saved.

    Raises:
        PosirError: A query has no answer after all attempts, or one that is no ranking, and that is refused; none of the
            first queries has an answer; or every query returned nothing. All answers that have documents are kept.
    """
    queries = [AskedQuery(subset.name, query, text) for subset in subsets for query, text in subset.judgments.queries.items()]
    retriever = BoundRetriever.bind(search, subsets)
    key = digest(*(subset.digest for subset in subsets), settings.k).hex()
    journal = Journal(folder / f"{legible_name(name)}-{key}.unfinished.jsonl")
    with journal:
        pending = [query for query in queries if (query.subset, query.id) not in journal.answers]
        if len(pending) < len(queries):
            done = f"{len(queries) - len(pending):,} of {len(queries):,} queries"
            logger.warning("%s of an interrupted run are answered in %s; delete it to ask for all again", done, journal.file)
        with track(f"Asking {name}", len(pending)) as advance:
            failures = Failures(missing, len(journal.answers))
            run_to_end(partial(_ask_all, retriever, pending, journal, settings, advance, failures))
        if failures.reasons and (missing is Missing.ERROR or not failures.answered):
            raise PosirError(_describe_failures(name, failures, len(queries), journal.file))
        if journal.answers and not any(answer.hits for answer in journal.answers.values()):
            # A later run asks anew, since these answers are of no use.
            journal.remove()
            raise PosirError(
                f"{name}: {pluralize(failures.answered, 'query', 'queries')} returned nothing, and no query returned a "
                "document. Check that the retriever's index holds the corpus."
            )
        _warn_of_failures(failures, len(queries))
    by_subset: dict[str, Rankings] = {subset.name: {} for subset in subsets}
    for answer in journal.answers.values():
        by_subset[answer.subset][answer.query] = answer.hits
    return Run(name, by_subset=by_subset, duplicates=sum(answer.duplicates for answer in journal.answers.values())), journal


def _warn_of_failures(failures: Failures, queries: int) -> None:
    for query, reason in list(failures.reasons.items())[:MAX_FAILURES]:
        logger.warning("query %s: %s; it is scored 0", sanitized(query.id), reason)
    if len(failures.reasons) > 1:
        logger.warning("%s of %s queries failed and are scored 0", f"{len(failures.reasons):,}", f"{queries:,}")


def _describe_failures(name: str, failures: Failures, queries: int, file: Path) -> str:
    query, reason = next(iter(failures.reasons.items()))
    failed = len(failures.reasons)
    first = f"{name}: query {sanitized(query.id)}: {reason}"
    if failures.missing is Missing.ZERO:
        all_failed = f"all {failed} queries" if failed > 1 else "the only query"
        return f"{first} ({all_failed} that were asked for failed, so nothing can be scored). Mend the retriever."
    answered = f"{failures.answered:,} of {pluralize(queries, 'query', 'queries')}"
    return (
        f"{first}{f' ({failed} queries failed)' if failed > 1 else ''}. {answered} {'is' if failures.answered == 1 else 'are'} "
        f"answered and kept in {file}; the same command goes on from there. --missing zero scores queries that fail as 0."
    )


@dataclass(frozen=True)
class BoundRetriever:
    """A retriever, and how it is called."""

    search: Callable[..., Any]
    takes_subset: bool
    is_asynchronous: bool
    """Whether it is a coroutine function, which runs in the event loop and not in a thread."""

    @classmethod
    def bind(cls, search: Retriever, subsets: Collection[SubsetQueries]) -> BoundRetriever:
        """Find out how to call a retriever; raise PosirError if it cannot tell the subsets of the data apart."""
        try:
            takes_subset = "subset" in inspect.signature(search).parameters
        except (TypeError, ValueError):
            takes_subset = False
        if len(subsets) > 1 and not takes_subset:
            raise PosirError(
                f"the data has {len(subsets)} subsets, each with documents of its own. Give the retriever a parameter `subset` "
                "that selects them, or score one subset."
            )
        is_asynchronous = inspect.iscoroutinefunction(search) or inspect.iscoroutinefunction(type(search).__call__)
        return cls(search, takes_subset, is_asynchronous)

    def ask(self, query: AskedQuery, k: int) -> Any:
        """Call the retriever."""
        return self.search(query.text, k, **({"subset": query.subset} if self.takes_subset else {}))


def run_to_end(start: Callable[[], Any]) -> None:
    """Run a coroutine to its end, also where an event loop runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(start())
        return
    thread = SearchThread()
    try:
        thread.submit(lambda: asyncio.run(start())).result()
    finally:
        thread.stop()


class SearchThread:
    """A thread for one call at a time. It is a daemon, so that a search that hangs does not keep the process from ending."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Call a function in the thread."""
        future: Future[Any] = Future()
        self._calls.put((future, function))
        return future

    def stop(self) -> None:
        """End the thread after its present call."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)


class QueryWorker:
    """Asks for one query at a time; calls that are not asynchronous are made in one thread, until one hangs."""

    def __init__(self, retriever: BoundRetriever, settings: CollectionSettings) -> None:
        self._retriever = retriever
        self._settings = settings
        self._thread: SearchThread | None = None

    async def ask(self, query: AskedQuery) -> Any:
        """Return what the retriever returns, after several attempts if need be; raise AnswerError if all fail.

        An error of its code is not followed by another attempt.
        """
        reason, settings = "", self._settings
        for attempt in range(settings.retries + 1):
            if attempt:
                await asyncio.sleep(min(settings.backoff * 2 ** (attempt - 1), MAX_BACKOFF))
            try:
                async with asyncio.timeout(settings.timeout) as limit:
                    return await self._call(partial(self._retriever.ask, query, settings.k))
            except Exception as error:
                reason = f"the retriever raised {sanitized(summarize_error(error), 200)}"
                if limit.expired():
                    self.stop()
                    reason = f"no answer within {settings.timeout:g} seconds"
                elif isinstance(error, PROGRAMMING_ERRORS):
                    raise AnswerError(reason) from error
        raise AnswerError(f"{reason}, in {settings.retries + 1} attempts" if settings.retries else reason)

    async def _call(self, ask: Callable[[], Any]) -> Any:
        if self._retriever.is_asynchronous:
            return await ask()
        self._thread = self._thread or SearchThread()
        answer = await asyncio.wrap_future(self._thread.submit(ask))
        return await answer if inspect.isawaitable(answer) else answer

    def stop(self) -> None:
        """Give the thread up; it ends when its call does."""
        if self._thread is not None:
            self._thread.stop()
            self._thread = None


async def _ask_all(
    retriever: BoundRetriever,
    queries: Sequence[AskedQuery],
    journal: Journal,
    settings: CollectionSettings,
    advance: Advance,
    failures: Failures,
) -> None:
    """Ask for all queries, as many at a time as the settings say, and keep each answer; failures are added."""
    remaining = iter(queries)

    async def work() -> None:
        worker = QueryWorker(retriever, settings)
        for query in remaining:
            if failures.are_too_many:
                break
            try:
                ranked = read_hits(await worker.ask(query))
                hits = dict(list(ranked.scores.items())[: settings.k])
                journal.add(Answer(subset=query.subset, query=query.id, hits=hits, duplicates=ranked.duplicates))
                failures.answered += 1
            except AnswerError as error:
                failures.reasons[query] = str(error)
            advance()
        worker.stop()

    async with asyncio.TaskGroup() as group:
        for _ in range(min(settings.concurrency, len(queries))):
            group.create_task(work())


@dataclass(frozen=True)
class RankedHits:
    """The ranking that a retriever returned for a query."""

    scores: dict[str, float]
    """A score by id, best first."""
    duplicates: int
    """Hits that repeat an id."""


def read_hits(answer: object) -> RankedHits:
    """Return what a retriever returned as scores by id, best first; ids alone get the scores n, n - 1, ..., 1.

    Of an id that occurs several times, the highest score counts.

    Raises:
        AnswerError: It is something else, a score is not finite, or the scores rise, as distances do.
    """
    if isinstance(answer, Mapping):
        answer = list(answer.items())
    if isinstance(answer, str | bytes) or not isinstance(answer, Iterable):
        raise AnswerError(f"the retriever returned {type(answer).__name__}; it must return a list of ids or of (id, score)")
    hits = list(answer)
    scores: dict[str, float] = {}
    for place, hit in enumerate(hits, start=1):
        name, score = hit if isinstance(hit, tuple | list) and len(hit) == 2 else (hit, len(hits) - place + 1)
        if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
            raise AnswerError(f"hit {place} is {sanitized(hit)}; it must be an id or (id, score)")
        try:
            value = float(score)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise AnswerError(
                f"hit {place}, {sanitized(str(name))}, has the score {sanitized(str(score))}; it must be a finite number"
            )
        scores[str(name)] = max(value, scores.get(str(name), value))
    values = list(scores.values())
    if len(values) >= MIN_RISING and values[0] < values[-1] and all(a <= b for a, b in pairwise(values)):
        raise AnswerError(
            f"the scores rise from the first hit to the last, {values[0]:g} to {values[-1]:g}. If they are distances, return "
            "ids alone or negative distances; the best hit comes first"
        )
    return RankedHits(dict(sorted(scores.items(), key=lambda item: -item[1])), len(hits) - len(scores))
