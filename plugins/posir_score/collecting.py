"""Collect runs from retrievers: concurrent searches with retries, and a journal of all answers."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import threading
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

from posir_score.alignment import (
    AlignmentRules,
    SubsetQueries,
    describe_empty_run,
    describe_unknown_documents,
)
from posir_score.hits import AnswerError, Hit, OrderChoice, RawHit, read_hits
from posir_score.orders import OrderCheck, has_gap, sort_hits
from posir_score.ranking_builder import HitsByQuery, Run
from posir_score.retriever_objects import describe_call
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError, check_schema, summarize_error
from posir_tasks.base.files import check_writable, explain_disk_full, write_atomically
from posir_tasks.base.progress import Advance, track
from posir_tasks.base.untrusted import InputError, parse_json
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.models.references import to_file_name

logger = logging.getLogger(__name__)

#: Maximum number of failed queries if all queries are required; also of warnings about failures.
MAX_FAILURES = 10
#: Maximum number of failed queries before the first answer if failures are allowed.
MAX_FAILURES_AT_START = 20
#: Errors in the retriever's code, which are not retried.
PROGRAMMING_ERRORS = (TypeError, AttributeError, NameError, SystemExit)
#: Number of queries after which a run stops if scores contradict the order of the hits or no
#: document is in the corpus.
FIRST_QUERIES = 10
#: Size in bytes of the digest that replaces a chunk's text in the journal.
TEXT_BYTES = 16
#: Schema version of the journal.
SCHEMA = 1
#: Ids of documents or chunks, best first; pairs of id and score; scores by id; or the response of a
#: search system.
Hits: TypeAlias = Iterable[Any] | Mapping[str, Any]


class Retriever(Protocol):
    """A search function, method or object with `__call__`, synchronous or asynchronous.

    An optional parameter `subset` receives the name of the subset to search, such as a domain.
    """

    def __call__(self, query: str, k: int) -> Hits | Awaitable[Hits]:
        """Return at most `k` documents or chunks, best first. Higher scores are better."""


@dataclass(frozen=True)
class CollectionSettings:
    """How to query a retriever, how to read its hits, and where to save the journal."""

    k: int = 100
    concurrency: int = 8
    retries: int = 3
    timeout: float = 60.0
    order: OrderChoice = None
    document_field: str | None = None
    folder: Path = Path("results")
    max_time: float | None = None
    """Time limit of the run in seconds."""
    backoff: float = 0.5
    """Seconds before the first retry. The delay doubles with each retry, up to 8 seconds."""


class RetrieverAnswer(BaseModel):
    """The hits of a query, in the order of the retriever."""

    subset: str
    query: str
    hits: list[Hit]


class Journal:
    """A file with the answers of an unfinished run, one per line.

    Each answer is written before the worker's next search. Damaged lines are skipped. A lock
    prevents other processes from writing to the file.
    """

    def __init__(self, file: Path) -> None:
        """Open or create the file.

        Raises:
            PosirError: The file cannot be opened, is used by another process, or was written by a
                newer posir.
        """
        self.file = file
        check_writable(file.parent)
        self._lock = FileLock(file.parent / f".{file.name}.lock", timeout=0)
        try:
            self._lock.acquire()
        except Timeout:
            raise PosirError(
                f"{file}: another process is querying the same retriever. Wait until it ends, or "
                "give this run another --name or --output."
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
                answers = pluralize(len(self.answers), "answer")
                logger.warning(
                    "%s contains %s from an interrupted run; delete the file to repeat all queries",
                    file,
                    answers,
                )
            self._text_keys: set[str] = set()
            # Rewrite the file, since its last line may be incomplete.
            with write_atomically(file) as part, part.open("w", encoding="utf-8") as stream:
                stream.write(f"{json.dumps({'schema_version': SCHEMA})}\n")
                for answer in self.answers.values():
                    stream.writelines(self._to_lines(answer))
            self._stream: TextIO = file.open("a", encoding="utf-8")
        except BaseException:
            self._unlock()
            raise

    def _read(self) -> Iterator[RetrieverAnswer]:
        """Yield the answers of the file, and warn about damaged lines."""
        if not self.file.exists():
            return
        if not self.file.is_file():
            raise PosirError(f"{self.file}: is not a file. Move it, or choose another --output.")
        header, *lines = self.file.read_bytes().split(b"\n")
        try:
            schema = parse_json(header, self.file)["schema_version"]
            check_schema(schema, SCHEMA, f"{self.file}: this journal")
        except (InputError, KeyError, TypeError, IndexError) as error:
            raise PosirError(
                f"{self.file}: is not a journal of answers, or is damaged. Move it elsewhere and "
                "run the command again."
            ) from error
        damaged_lines = 0
        texts: dict[str | None, str | None] = {None: None}
        for line in filter(None, lines):
            try:
                content = parse_json(line, self.file)
                if isinstance(content, dict) and isinstance(text := content.get("text"), str):
                    texts[digest(text, size=TEXT_BYTES).hex()] = text
                    continue
                answer = RetrieverAnswer.model_validate(content)
                yield answer.model_copy(
                    update={"hits": [hit._replace(text=texts[hit.text]) for hit in answer.hits]}
                )
            except (InputError, ValidationError, KeyError):
                damaged_lines += 1
        if damaged_lines:
            subject = pluralize(damaged_lines, "line is", "lines are")
            logger.warning("%s: %s damaged; these queries are repeated", self.file, subject)

    def _to_lines(self, answer: RetrieverAnswer) -> Iterator[str]:
        """Yield the lines of an answer. The text of each chunk is written once."""
        hits = []
        for hit in answer.hits:
            key = None if hit.text is None else digest(hit.text, size=TEXT_BYTES).hex()
            if key is not None and key not in self._text_keys:
                self._text_keys.add(key)
                yield f"{json.dumps({'text': hit.text})}\n"
            hits.append(hit._replace(text=key))
        yield f"{answer.model_copy(update={'hits': hits}).model_dump_json()}\n"

    def add(self, answer: RetrieverAnswer) -> None:
        """Add an answer and write it to the file."""
        with explain_disk_full(self.file):
            self._stream.writelines(self._to_lines(answer))
            self._stream.flush()
        self.answers[answer.subset, answer.query] = answer

    def remove(self) -> None:
        """Delete the file. The next run then repeats all queries."""
        self._stream.close()
        self.file.unlink(missing_ok=True)

    def _unlock(self) -> None:
        if self._lock.is_locked:
            Path(self._lock.lock_file).unlink(missing_ok=True)
            self._lock.release()

    def close(self) -> None:
        """Close and unlock the file."""
        self._stream.close()
        self._unlock()


@dataclass(frozen=True)
class PendingQuery:
    """A query for the retriever. Its answer has the same subset and id."""

    subset: str
    id: str
    text: str


class QueryAnswers:
    """A retriever's answers, and the errors of failed queries."""

    def __init__(
        self,
        journal: Journal,
        settings: CollectionSettings,
        rules: AlignmentRules,
        corpora: Mapping[str, Collection[str]],
    ) -> None:
        """Start with the answers in a journal. `corpora` contains the document ids by subset."""
        self.journal = journal
        self.settings = settings
        self.rules = rules
        self.corpora = corpora
        self.order = OrderCheck(settings.order)
        self.failure_reasons: dict[PendingQuery, str] = {}
        self.is_new = not journal.answers
        self.unknown_hits: list[list[str]] = []
        self.has_corpus_documents = False
        self.retriever_description = ""
        """Description of the calls and the hit format; empty before the first hit."""
        self.problem = ""
        """Reason why ids cannot be matched to documents; empty if they can."""
        # An interrupted run may have used a different --order.
        journal.answers = {
            key: answer
            for key, answer in journal.answers.items()
            if not has_gap(answer.hits, settings.order)
        }
        for answer in journal.answers.values():
            self._check_answer(answer)

    def _check_answer(self, answer: RetrieverAnswer) -> None:
        self.order.add(answer.query, answer.hits)
        if not answer.hits or (self.has_corpus_documents and not self.rules.document_names):
            return
        corpus = self.corpora[answer.subset]
        try:
            flags = [self.rules.resolve(hit.document, corpus) in corpus for hit in answer.hits]
        except PosirError as error:
            # If raised here, the error would be wrapped in an ExceptionGroup.
            self.problem = str(error)
            return
        if not self.has_corpus_documents:
            self.has_corpus_documents = any(flags)
            self.unknown_hits.append([hit.document for hit in answer.hits])

    @property
    def should_stop(self) -> bool:
        """True if the run cannot be scored, or too many queries failed."""
        if self.problem:
            return True
        if self.order.queries >= FIRST_QUERIES and self.order.describe_problem():
            return True
        if not self.has_corpus_documents and len(self.unknown_hits) >= FIRST_QUERIES:
            return True
        if self.rules.requires_all:
            return len(self.failure_reasons) >= MAX_FAILURES
        return len(self.failure_reasons) >= MAX_FAILURES_AT_START and not self.journal.answers

    def ask(
        self,
        search: Retriever,
        name: str,
        queries: Sequence[PendingQuery],
        *,
        passes_subset: bool = False,
    ) -> None:
        """Search all unanswered queries concurrently, and save each answer."""
        settings = self.settings
        pending_queries = [
            query for query in queries if (query.subset, query.id) not in self.journal.answers
        ]
        call = f"{name}: {describe_call(search)}, k = {settings.k}"

        def on_first_hit(hit: RawHit) -> None:
            self.retriever_description = (
                self.retriever_description or f"{call}; hits: {hit.describe()}."
            )

        workers = [
            _QueryWorker(search, settings, on_first_hit, passes_subset)
            for _ in range(min(settings.concurrency, len(pending_queries)))
        ]
        try:
            with track(f"Asking {name}", len(pending_queries)) as advance:
                _run_until_complete(partial(self._ask_all, workers, pending_queries, advance))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"interrupted: {len(self.journal.answers):,} of "
                f"{pluralize(len(queries), 'answer')} are saved in {self.journal.file}; run the "
                "same command to continue"
            ) from None

    async def _ask_all(
        self, workers: Iterable[_QueryWorker], queries: Iterable[PendingQuery], advance: Advance
    ) -> None:
        query_iterator = iter(queries)
        # Answers from an interrupted run do not show that the retriever works now.
        old_answers = len(self.journal.answers) if self.rules.requires_all else 0

        async def run_worker(worker: _QueryWorker) -> None:
            for query in query_iterator:
                if self.should_stop:
                    break
                try:
                    hits = await worker.ask(
                        query, is_answering=lambda: len(self.journal.answers) > old_answers
                    )
                    answer = RetrieverAnswer(subset=query.subset, query=query.id, hits=hits)
                    self.journal.add(answer)
                    self._check_answer(answer)
                except AnswerError as error:
                    self.failure_reasons[query] = str(error)
                    if isinstance(error, HangError):
                        break
                advance()

        try:
            async with asyncio.timeout(self.settings.max_time), asyncio.TaskGroup() as group:
                for worker in workers:
                    group.create_task(run_worker(worker))
        except TimeoutError:
            logger.warning(
                "time is up: %s answered",
                pluralize(len(self.journal.answers), "query is", "queries are"),
            )
        finally:
            for worker in workers:
                worker.stop()

    def check(self, name: str, queries: int) -> None:
        """Check the answers of a retriever, and warn about failed queries.

        Raises:
            PosirError: The answers cannot be scored.
        """
        answers = self.journal.answers
        progress = (
            f"{len(answers):,} of {pluralize(queries, 'query', 'queries')} are answered and saved "
            f"in {self.journal.file}"
        )
        if self.problem:
            # The saved answers contain wrong ids.
            self.journal.remove()
            raise PosirError(f"{name}: {self.problem}")
        if self.unknown_hits and not self.has_corpus_documents and self.is_new:
            # The saved answers are useless once the retriever is fixed.
            self.journal.remove()
            raise PosirError(
                describe_unknown_documents(
                    name, [*chain(*self.unknown_hits)], next(iter(self.corpora.values()))
                )
            )
        if problem := self.order.describe_problem():
            raise PosirError(f"{name}: {problem} {progress}.")
        if guess := self.order.describe_guess():
            logger.warning("%s: %s", name, guess)
        failures = len(self.failure_reasons)
        if failures and (self.rules.requires_all or not answers):
            query, reason = next(iter(self.failure_reasons.items()))
            first = f"{name}: query {sanitize(query.id)}: {reason} ({failures:,} failed)."
            if not self.rules.requires_all:
                raise PosirError(f"{first} No query has an answer. Fix the retriever.")
            raise PosirError(
                f"{first} {progress}; run the same command to continue. --missing zero scores "
                "failed queries as 0."
            )
        if answers and not any(answer.hits for answer in answers.values()):
            # The saved answers are useless once the index contains the documents.
            self.journal.remove()
            raise PosirError(describe_empty_run(name, len(answers)))
        for query, reason in list(self.failure_reasons.items())[:MAX_FAILURES]:
            logger.warning("query %s: %s; scored as 0", sanitize(query.id), reason)
        if failures > 1:
            logger.warning(
                "%s of %s queries failed and are scored as 0", f"{failures:,}", f"{queries:,}"
            )


def collect_run(
    search: Retriever,
    name: str,
    subsets: Sequence[SubsetQueries],
    rules: AlignmentRules,
    settings: CollectionSettings,
) -> tuple[Run, Journal]:
    """Search every judged query that has a text and no answer yet.

    Returns:
        The run, and the journal to remove once the result is saved.
    """
    try:
        accepts_subset = "subset" in inspect.signature(search).parameters
    except (TypeError, ValueError):
        accepts_subset = False
    if len(subsets) > 1 and not accepts_subset:
        raise PosirError(
            f"the data has {len(subsets)} subsets with different documents. Give the retriever a "
            "parameter `subset` that selects them, or score one subset."
        )
    queries = [
        PendingQuery(subset.name, query, text)
        for subset in subsets
        for query, text in subset.judgments.queries.items()
    ]
    key = digest(*(subset.digest for subset in subsets), settings.k, settings.document_field).hex()
    file = settings.folder / f"{to_file_name(name)}-{key}.unfinished.jsonl"
    with closing(Journal(file)) as journal:
        corpora = {subset.name: subset.documents for subset in subsets}
        answers = QueryAnswers(journal, settings, rules, corpora)
        answers.ask(search, name, queries, passes_subset=accepts_subset)
        answers.check(name, len(queries))
    by_subset: dict[str, HitsByQuery] = {subset.name: {} for subset in subsets}
    for answer in journal.answers.values():
        hits = sort_hits(answer.hits, settings.order)
        # Lists were limited to k hits when they were read.
        if not any(hit.rank for hit in hits):
            hits = hits[: settings.k]
        by_subset[answer.subset][answer.query] = hits
    hit_counts = [len(answer.hits) for answer in journal.answers.values()] or [0]
    run = Run(
        name,
        by_subset=by_subset,
        requested_hits=settings.k,
        hit_range=(min(hit_counts), max(hit_counts)),
        retriever_description=answers.retriever_description,
    )
    return run, journal


def _run_until_complete(start: Callable[[], Any]) -> None:
    """Run a coroutine until it completes, even inside a running event loop, as in a notebook."""
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
    """A daemon thread that runs one call at a time. A daemon thread does not block exit."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        threading.Thread(target=self._run_calls, daemon=True).start()

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._calls.put((future, function))
        return future

    def stop(self) -> None:
        self._calls.put(None)

    def _run_calls(self) -> None:
        while (call := self._calls.get()) is not None:
            future, function = call
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function())
                except BaseException as error:
                    future.set_exception(error)


class HangError(AnswerError):
    """The retriever answered no query within the timeout."""


@dataclass
class _QueryWorker:
    """Searches one query at a time. Synchronous calls share a thread until a call hangs."""

    search: Callable[..., Any]
    settings: CollectionSettings
    on_first_hit: Callable[[RawHit], object]
    passes_subset: bool
    """If true, each call passes the name of the subset."""
    thread: _SearchThread | None = None

    async def ask(self, query: PendingQuery, is_answering: Callable[[], bool]) -> list[Hit]:
        """Search a query. After a timeout, the search is retried only if `is_answering()` is true.

        Raises:
            AnswerError: All attempts failed, or one failed with a programming error.
        """
        reason = ""
        settings = self.settings
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

    async def _call(self, query: PendingQuery) -> list[Hit]:
        self.thread = self.thread or _SearchThread()
        subset = {"subset": query.subset} if self.passes_subset else {}
        settings = self.settings
        search = partial(self.search, query.text, settings.k, **subset)
        answer = await asyncio.wrap_future(self.thread.submit(search))
        if inspect.isawaitable(answer):
            answer = await answer
        read = partial(
            read_hits,
            answer,
            settings.k,
            settings.document_field,
            settings.order,
            self.on_first_hit,
        )
        # A lazy iterator may search forever, so it is consumed in the thread, under the time limit.
        return await asyncio.wrap_future(self.thread.submit(read))

    def stop(self) -> None:
        """Abandon the thread, which ends after its current call."""
        if self.thread is not None:
            self.thread.stop()
            self.thread = None
