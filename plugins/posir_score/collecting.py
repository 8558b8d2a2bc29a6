"""Runs of a retriever: every query is asked for, several at a time, with retries, and each answer
is kept.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, TextIO, TypeAlias

from filelock import FileLock, Timeout
from pydantic import BaseModel, ValidationError

from posir_score.alignment import AlignmentRules, SubsetQueries, describe_empty, describe_foreign
from posir_score.hits import AnswerError, Hit, Order, StatedHit, read_hits
from posir_score.orders import OrderCheck, has_gap, sort_hits
from posir_score.retriever_objects import describe_call
from posir_score.run_files import HitsByQuery, Run
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError, check_schema, summarize_error
from posir_tasks.base.files import atomic_write, check_writable, explain_disk_full
from posir_tasks.base.progress import Advance, track
from posir_tasks.base.untrusted import GateError, parse_json
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.models.references import legible_name

logger = logging.getLogger(__name__)

#: Failed queries after which a run stops that needs all of them; further ones are not named.
MAX_FAILURES = 10
#: Failed queries after which a run stops that may lack some, if no query has an answer.
MAX_FAILURES_AT_START = 20
#: Errors of a retriever's code, which another attempt meets again; it may end the process, too.
PROGRAMMING_ERRORS = (TypeError, AttributeError, NameError, SystemExit)
#: Queries after which a run stops whose scores contradict the order of the hits, or that has no
#: document of the corpus.
FIRST_QUERIES = 10
#: Bytes of the digest that a text of a chunk has in the journal.
TEXT_BYTES = 16
#: Schema version of the journal. A newer one is refused.
SCHEMA = 1
#: Ids of documents or chunks, best first, or pairs of id and score, or scores by id, or what a
#: system returns.
Hits: TypeAlias = Iterable[Any] | Mapping[str, Any]


class Retriever(Protocol):
    """Anything that searches: a function, a method, or an object with `__call__`; synchronous or
    not.

    If it has a parameter `subset`, it is given the name of the subset, such as a domain, whose
    documents it shall search.
    """

    def __call__(self, query: str, k: int) -> Hits | Awaitable[Hits]:
        """Search the best `k` documents or chunks for a query, best first; a higher score is
        better.
        """


@dataclass(frozen=True)
class CollectionSettings:
    """Limits of the requests to a retriever, what its order follows from, and the folder of its
    answers.
    """

    k: int = 100
    concurrency: int = 8
    retries: int = 3
    timeout: float = 60.0
    order: Order | None = None
    document_field: str | None = None
    folder: Path = Path("results")
    max_time: float | None = None
    """Seconds after which no answer is waited for."""
    backoff: float = 0.5
    """Seconds before the second attempt; each further wait is twice as long."""


class Answer(BaseModel):
    """The answer of a retriever to a query, as it gave it."""

    subset: str
    query: str
    hits: list[Hit]


class Journal:
    """The answered queries of an unfinished run, one a line: each is on disk before the next is
    asked for.

    A damaged line costs only its own answer. One process at a time writes to it.
    """

    def __init__(self, file: Path) -> None:
        """Open or create the file; raise PosirError if it cannot be, another process has it, or a
        newer posir wrote it.
        """
        self.file = file
        check_writable(file.parent)
        self._lock = FileLock(file.parent / f".{file.name}.lock", timeout=0)
        try:
            self._lock.acquire()
        except Timeout:
            raise PosirError(
                f"{file}: another process asks the same retriever at this moment. Wait for its "
                "end, or give this run another --name or --output."
            ) from None
        except OSError as error:
            logger.warning(
                "%s: cannot be locked (%s); do not run the same command twice at the same time",
                file,
                error,
            )
        try:
            self.answers = {(answer.subset, answer.query): answer for answer in self._read()}
            if self.answers:
                known = pluralize(len(self.answers), "answer")
                logger.warning(
                    "%s has %s of an interrupted run; delete it to ask for all again", file, known
                )
            self._written: set[str] = set()
            # The rows are written anew, since a new line must not follow an incomplete one.
            with atomic_write(file) as part, part.open("w", encoding="utf-8") as opened:
                opened.write(f"{json.dumps({'schema_version': SCHEMA})}\n")
                for answer in self.answers.values():
                    opened.writelines(self._to_lines(answer))
            self._opened: TextIO = file.open("a", encoding="utf-8")
        except BaseException:
            self._unlock()
            raise

    def _read(self) -> Iterator[Answer]:
        """Yield the answers of the file; damaged lines are counted and reported."""
        if not self.file.exists():
            return
        if not self.file.is_file():
            raise PosirError(f"{self.file}: is not a file. Move it, or choose another --output.")
        header, *lines = self.file.read_bytes().split(b"\n")
        try:
            schema = parse_json(header, self.file)["schema_version"]
            check_schema(schema, SCHEMA, f"{self.file}: this journal")
        except (GateError, KeyError, TypeError, IndexError) as error:
            raise PosirError(
                f"{self.file}: is not a journal of answers, or is damaged. It is kept; move it "
                "elsewhere, and run again."
            ) from error
        damaged = 0
        texts: dict[str | None, str | None] = {None: None}
        for line in filter(None, lines):
            try:
                content = parse_json(line, self.file)
                if isinstance(content, dict) and isinstance(text := content.get("text"), str):
                    texts[digest(text, size=TEXT_BYTES).hex()] = text
                    continue
                answer = Answer.model_validate(content)
                yield answer.model_copy(
                    update={"hits": [hit._replace(text=texts[hit.text]) for hit in answer.hits]}
                )
            except (GateError, ValidationError, KeyError):
                damaged += 1
        if damaged:
            lines_are = pluralize(damaged, "line is", "lines are")
            logger.warning(
                "%s: %s damaged; these queries are asked for again", self.file, lines_are
            )

    def _to_lines(self, answer: Answer) -> Iterator[str]:
        """Yield the lines of an answer; the text of a chunk that many queries retrieve is written
        once.
        """
        hits = []
        for hit in answer.hits:
            key = None if hit.text is None else digest(hit.text, size=TEXT_BYTES).hex()
            if key is not None and key not in self._written:
                self._written.add(key)
                yield f"{json.dumps({'text': hit.text})}\n"
            hits.append(hit._replace(text=key))
        yield f"{answer.model_copy(update={'hits': hits}).model_dump_json()}\n"

    def add(self, answer: Answer) -> None:
        """Add an answer, which a kill of the process right after it cannot lose."""
        with explain_disk_full(self.file):
            self._opened.writelines(self._to_lines(answer))
            self._opened.flush()
        self.answers[answer.subset, answer.query] = answer

    def remove(self) -> None:
        """Delete the file: all queries are answered, and a later run asks anew."""
        self._opened.close()
        self.file.unlink(missing_ok=True)

    def _unlock(self) -> None:
        if self._lock.is_locked:
            Path(self._lock.lock_file).unlink(missing_ok=True)
            self._lock.release()

    def close(self) -> None:
        """Close the file, for this process or another to go on with."""
        self._opened.close()
        self._unlock()


@dataclass(frozen=True)
class AskedQuery:
    """A query to ask for; id and subset identify its answer."""

    subset: str
    id: str
    text: str


class QueryAnswers:
    """The answers to all queries, and the queries that a retriever did not answer, with the
    reasons.
    """

    def __init__(
        self,
        journal: Journal,
        settings: CollectionSettings,
        rules: AlignmentRules,
        corpora: Mapping[str, Collection[str]],
    ) -> None:
        """Begin with the answers of a journal; the ids of documents are given by subset."""
        self.journal = journal
        self.settings = settings
        self.rules = rules
        self.corpora = corpora
        self.order = OrderCheck(settings.order)
        self._deadline = None if settings.max_time is None else time.monotonic() + settings.max_time
        self.reasons: dict[AskedQuery, str] = {}
        self.is_new = not journal.answers
        self.foreign: list[list[str]] = []
        self.has_documents = False
        self.reading = ""
        """How the retriever is asked and its hits are read; empty before its first hit."""
        self.problem = ""
        """The reason why ids of hits cannot be matched to documents; empty if they can."""
        # Hits without a score are kept if ranks decide; if scores do, their queries are asked for
        # again.
        journal.answers = {
            key: answer
            for key, answer in journal.answers.items()
            if not has_gap(answer.hits, settings.order)
        }
        for answer in journal.answers.values():
            self._check_answer(answer)

    def _check_answer(self, answer: Answer) -> None:
        """Compare an answer with the order of its hits, and its ids with those of the corpus until
        one is known.
        """
        if self.order:
            self.order.add(answer.query, answer.hits)
        if not answer.hits or (self.has_documents and not self.rules.names):
            return
        corpus = self.corpora[answer.subset]
        try:
            are_known = [self.rules.resolve(hit.document, corpus) in corpus for hit in answer.hits]
        except PosirError as error:
            # Raised here, it would be one of a group of errors.
            self.problem = str(error)
            return
        if not self.has_documents:
            self.has_documents = any(are_known)
            self.foreign.append([hit.document for hit in answer.hits])

    @property
    def should_stop(self) -> bool:
        """Whether too many queries failed: for their number only if they are refused, else if
        nothing else came first.
        """
        if self.problem:
            return True
        if self.order.queries >= FIRST_QUERIES and self.order.describe_problem():
            return True
        if not self.has_documents and len(self.foreign) >= FIRST_QUERIES:
            return True
        if self.rules.needs_all:
            return len(self.reasons) >= MAX_FAILURES
        return len(self.reasons) >= MAX_FAILURES_AT_START and not self.journal.answers

    def ask(
        self,
        search: Retriever,
        name: str,
        queries: Sequence[AskedQuery],
        *,
        with_subset: bool = False,
    ) -> None:
        """Ask for the queries that have no answer yet, several at a time, and keep each answer."""
        settings = self.settings
        pending = [
            query for query in queries if (query.subset, query.id) not in self.journal.answers
        ]
        asked = f"{name}: {describe_call(search)}, k = {settings.k}"

        def show_first(hit: StatedHit) -> None:
            self.reading = self.reading or f"{asked}; hits: {hit.describe()}."

        workers = [
            _QueryWorker(search, settings, show_first, with_subset=with_subset)
            for _ in range(min(settings.concurrency, len(pending)))
        ]
        try:
            with track(f"Asking {name}", len(pending)) as advance:
                _run_to_end(partial(self._ask_all, workers, pending, advance))
        except KeyboardInterrupt:
            kept = (
                f"{len(self.journal.answers):,} of {pluralize(len(queries), 'answer')} are kept "
                f"in {self.journal.file}"
            )
            raise KeyboardInterrupt(
                f"interrupted: {kept}; the same command goes on from there"
            ) from None

    async def _ask_all(
        self, workers: Iterable[_QueryWorker], queries: Iterable[AskedQuery], advance: Advance
    ) -> None:
        remaining = iter(queries)
        # What an interrupted run has does not say that the retriever answers now.
        known = len(self.journal.answers) if self.rules.needs_all else 0

        async def work(worker: _QueryWorker) -> None:
            for query in remaining:
                if self.should_stop:
                    break
                try:
                    hits = await worker.ask(
                        query, is_answering=lambda: len(self.journal.answers) > known
                    )
                    answer = Answer(subset=query.subset, query=query.id, hits=hits)
                    self.journal.add(answer)
                    self._check_answer(answer)
                except AnswerError as error:
                    self.reasons[query] = str(error)
                    if isinstance(error, HangError):
                        break
                advance()

        left = None if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)
        try:
            async with asyncio.timeout(left), asyncio.TaskGroup() as group:
                for worker in workers:
                    group.create_task(work(worker))
        except TimeoutError:
            logger.warning(
                "time is up: %s answered",
                pluralize(len(self.journal.answers), "query is", "queries are"),
            )
        finally:
            for worker in workers:
                worker.stop()

    def check(self, name: str, queries: int) -> None:
        """Raise PosirError if the answers of a retriever, given its name, cannot be scored; else
        warn of what failed.
        """
        answers = self.journal.answers
        kept = f"answered and kept in {self.journal.file}"
        answered = f"{len(answers):,} of {pluralize(queries, 'query', 'queries')}"
        if self.problem:
            # The answers are of no use once the ids are mended.
            self.journal.remove()
            raise PosirError(f"{name}: {self.problem}")
        if self.foreign and not self.has_documents and self.is_new:
            # They are of no use once the retriever is mended, and these queries are asked for
            # again.
            self.journal.remove()
            raise PosirError(
                describe_foreign(name, [*chain(*self.foreign)], next(iter(self.corpora.values())))
            )
        if problem := self.order.describe_problem():
            raise PosirError(f"{name}: {problem} {answered} are {kept}.")
        if guess := self.order.describe_guess():
            logger.warning("%s: %s", name, guess)
        failed = len(self.reasons)
        if failed and (self.rules.needs_all or not answers):
            query, reason = next(iter(self.reasons.items()))
            first = f"{name}: query {sanitize(query.id)}: {reason} ({failed:,} failed)."
            if not self.rules.needs_all:
                raise PosirError(f"{first} No query has an answer. Mend the retriever.")
            raise PosirError(
                f"{first} {answered} are {kept}; the same command goes on from there. --missing "
                "zero scores queries that fail as 0."
            )
        if answers and not any(answer.hits for answer in answers.values()):
            # A later run asks anew, since these answers are of no use.
            self.journal.remove()
            raise PosirError(describe_empty(name, len(answers)))
        for query, reason in list(self.reasons.items())[:MAX_FAILURES]:
            logger.warning("query %s: %s; it is scored 0", sanitize(query.id), reason)
        if failed > 1:
            logger.warning(
                "%s of %s queries failed and are scored 0", f"{failed:,}", f"{queries:,}"
            )


def collect_run(
    search: Retriever,
    name: str,
    subsets: Sequence[SubsetQueries],
    rules: AlignmentRules,
    settings: CollectionSettings,
) -> tuple[Run, Journal]:
    """Ask for every judged query that has a text and no answer yet; return the run, and its
    journal, to be removed later.
    """
    try:
        takes_subset = "subset" in inspect.signature(search).parameters
    except (TypeError, ValueError):
        takes_subset = False
    if len(subsets) > 1 and not takes_subset:
        raise PosirError(
            f"the data has {len(subsets)} subsets, each with documents of its own. Give the "
            "retriever a parameter `subset` that selects them, or score one subset."
        )
    queries = [
        AskedQuery(subset.name, query, text)
        for subset in subsets
        for query, text in subset.judgments.queries.items()
    ]
    key = digest(*(subset.digest for subset in subsets), settings.k, settings.document_field).hex()
    with closing(
        Journal(settings.folder / f"{legible_name(name)}-{key}.unfinished.jsonl")
    ) as journal:
        answers = QueryAnswers(
            journal, settings, rules, {subset.name: subset.documents for subset in subsets}
        )
        answers.ask(search, name, queries, with_subset=takes_subset)
        answers.check(name, len(queries))
    by_subset: dict[str, HitsByQuery] = {subset.name: {} for subset in subsets}
    for answer in journal.answers.values():
        ranked = sort_hits(answer.hits, settings.order)
        # What has an order was cut when it was read.
        by_subset[answer.subset][answer.query] = (
            ranked if any(hit.rank for hit in ranked) else ranked[: settings.k]
        )
    numbers = [len(answer.hits) for answer in journal.answers.values()] or [0]
    run = Run(
        name,
        by_subset=by_subset,
        asked=settings.k,
        returned=(min(numbers), max(numbers)),
        reading=answers.reading,
    )
    return run, journal


def _run_to_end(start: Callable[[], Any]) -> None:
    """Run a coroutine to its end, also where an event loop runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(start())
        return
    thread = _SearchThread()
    try:
        thread.submit(lambda: asyncio.run(start())).result()
    finally:
        thread.stop()


class _SearchThread:
    """A thread for one call at a time. It is a daemon, so that a search that hangs does not keep
    the process from ending.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        threading.Thread(target=self._work, daemon=True).start()

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._calls.put((future, function))
        return future

    def stop(self) -> None:
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)


class HangError(AnswerError):
    """A retriever has not answered any query in the time of a search."""


class _QueryWorker:
    """Asks for one query at a time; calls that are not asynchronous are made in one thread, until
    one hangs.
    """

    def __init__(
        self,
        search: Retriever,
        settings: CollectionSettings,
        show_first: Callable[[StatedHit], object],
        *,
        with_subset: bool,
    ) -> None:
        """Prepare calls; `with_subset` says whether the retriever takes the name of a subset."""
        self._search: Callable[..., Any] = search
        self._settings = settings
        self._show_first = show_first
        self._with_subset = with_subset
        # A coroutine function runs in the event loop and not in a thread.
        self._is_asynchronous = inspect.iscoroutinefunction(search) or inspect.iscoroutinefunction(
            type(search).__call__
        )
        self._thread: _SearchThread | None = None

    async def ask(self, query: AskedQuery, is_answering: Callable[[], bool]) -> list[Hit]:
        """Ask for the hits of a query; raise AnswerError if all attempts fail, or the first
        by an error of its code.

        A search that takes too long is repeated only if the retriever has answered another query.
        """
        reason = ""
        settings = self._settings
        for attempt in range(settings.retries + 1):
            if attempt:
                await asyncio.sleep(min(settings.backoff * 2 ** (attempt - 1), 8.0))
            try:
                async with asyncio.timeout(settings.timeout) as limit:
                    return await self._call(query)
            except AnswerError:
                raise
            except PosirError as error:
                raise AnswerError(str(error)) from error
            except (Exception, SystemExit) as error:
                reason = f"the retriever raised {sanitize(summarize_error(error), 200)}"
                if limit.expired():
                    self.stop()
                    reason = f"no answer within {settings.timeout:g} seconds"
                    if not is_answering():
                        raise HangError(
                            f"{reason}, and none to any other query (--timeout)"
                        ) from error
                elif isinstance(error, PROGRAMMING_ERRORS):
                    raise AnswerError(reason) from error
        raise AnswerError(
            f"{reason}, in {settings.retries + 1} attempts" if settings.retries else reason
        )

    async def _call(self, query: AskedQuery) -> list[Hit]:
        self._thread = self._thread or _SearchThread()
        subset = {"subset": query.subset} if self._with_subset else {}
        search = partial(self._search, query.text, self._settings.k, **subset)
        answer = (
            search()
            if self._is_asynchronous
            else await asyncio.wrap_future(self._thread.submit(search))
        )
        answer = await answer if inspect.isawaitable(answer) else answer
        # An iterator searches while it is read, perhaps for ever: in the thread, the time limit
        # holds for it, too.
        return await asyncio.wrap_future(
            self._thread.submit(
                partial(
                    read_hits,
                    answer,
                    self._settings.k,
                    self._settings.document_field,
                    self._settings.order,
                    self._show_first,
                )
            )
        )

    def stop(self) -> None:
        """Give the thread up; it ends when its call does."""
        if self._thread is not None:
            self._thread.stop()
            self._thread = None
