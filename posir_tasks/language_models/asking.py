"""Asking a language model many things at once: what is answered already is read, the rest is sent within the budget."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from posir_tasks.display.progress import track
from posir_tasks.errors import PosirError
from posir_tasks.files import cache_folder
from posir_tasks.language_models.call_log import CallLog, Completion
from posir_tasks.language_models.chat_client import (
    ChatClient,
    ChatRequest,
    PromptTemplate,
    RejectedError,
    UnusableAnswerError,
    parse_answer,
)
from posir_tasks.language_models.settings import LanguageModelSettings, Prices, compute_cost
from posir_tasks.read_part import estimate_tokens
from posir_tasks.settings_file import load_settings

AnswerT = TypeVar("AnswerT", bound=BaseModel)
Item = TypeVar("Item")
Result = TypeVar("Result")

#: Tokens that an answer is assumed to have before there is one.
FIRST_OUTPUT_TOKENS = 500
#: Refused requests after which the run ends if a prompt has no answer yet: then it is not about single documents.
MAX_REJECTED = 5
#: The problem of an answer that the server did not give.
REFUSED = "the server refused the request"
#: How often a request looks whether the budget has room for it, once those in flight have been counted.
BUDGET_SECONDS = 0.05
#: What Ctrl-C prints.
STOPPING = (
    "Stopping: the answers to requests in flight are waited for and saved. The same command continues. Ctrl-C again stops at "
    "once."
)
#: How often the main thread looks for a signal such as Ctrl-C.
SIGNAL_SECONDS = 0.2


@dataclass(frozen=True)
class Reply(Generic[AnswerT]):
    """The outcome of a question to a language model."""

    model: str
    """The model that the server names in its answer; the one that was asked for if it names none."""
    prompt: str
    """Name and version."""
    answer: AnswerT | None
    """None if it cannot be used."""
    problem: str = ""
    """The reason why there is no answer."""


def accept_all(number: int, answer: BaseModel) -> None:
    """Accept every answer; other checks raise UnusableAnswerError for one to the `number`-th values that cannot be used."""


@dataclass(frozen=True)
class BuiltValues(Generic[Item]):
    """Values that are built when they are sent: together they may be many copies of each document."""

    items: Sequence[Item]
    build: Callable[[Item], Mapping[str, str]]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Mapping[str, str]]:
        return map(self.build, self.items)


class BudgetError(PosirError):
    """The budget of a build is spent."""


class Budget:
    """The cost of the calls so far, and its limit."""

    def __init__(self, limit: float | None, prices: Prices, log: CallLog, model: str) -> None:
        used = [usage for (name, _), usage in log.usage().items() if name == model]
        self._limit, self._prices = limit, prices
        self._calls = sum(usage.calls for usage in used)
        self._output_tokens = sum(usage.output_tokens for usage in used)
        self._spent = compute_cost(prices, sum(usage.input_tokens for usage in used), self._output_tokens)
        self._reserved, self._in_flight = 0.0, 0

    async def reserve(self, request: ChatRequest) -> float:
        """Reserve what a request is expected to cost, and return it; raise BudgetError if the budget does not cover it."""
        input_tokens = sum(estimate_tokens(content) for _, content in request.messages)
        while True:
            output_tokens = self._output_tokens / self._calls if self._calls else FIRST_OUTPUT_TOKENS
            expected = compute_cost(self._prices, input_tokens, output_tokens)
            if self._limit is None or self._spent + self._reserved + expected <= self._limit:
                self._reserved += expected
                self._in_flight += 1
                return expected
            if not self._in_flight:
                raise BudgetError(
                    f"the budget of {self._limit:g} {self._prices.currency} is spent: {self._calls:,} calls cost "
                    f"{self._spent:.4g}, and the next one is expected to cost {expected:.2g}. All answers are saved; raise "
                    "llm.budget and run again to continue."
                )
            await asyncio.sleep(BUDGET_SECONDS)

    def settle(self, reserved: float, completion: Completion | None) -> None:
        """Replace a reservation by the tokens that the server counted."""
        self._reserved -= reserved
        self._in_flight -= 1
        if completion:
            self._calls += 1
            self._output_tokens += completion.output_tokens
            self._spent += compute_cost(self._prices, completion.input_tokens, completion.output_tokens)


class LanguageModel:
    """A language model behind endpoints, with a log of its answers."""

    def __init__(self, settings: LanguageModelSettings, log: CallLog) -> None:
        self.name, self._settings, self._log = settings.model, settings, log
        self._budget = Budget(settings.budget, settings.prices, log, settings.model)
        self._answered: set[str] = set()
        self._rejected, self._refusal = 0, ""

    def ask(
        self,
        prompt: PromptTemplate[AnswerT],
        values: BuiltValues[Any] | Sequence[Mapping[str, str]],
        description: str,
        check: Callable[[int, AnswerT], None] = accept_all,
    ) -> list[Reply[AnswerT]]:
        """Return the reply to a prompt for each mapping of placeholders to values; several are asked at a time.

        An answer that cannot be read, or fails the check, is asked for again. PosirError is raised if no server answers, or the
        budget is spent.
        """
        stop = threading.Event()
        with track(description, len(values)) as advance:

            async def ask_all() -> list[Reply[AnswerT]]:
                async with aclosing(ChatClient(self._settings)) as client:

                    async def reply(numbered: tuple[int, Mapping[str, str]]) -> Reply[AnswerT]:
                        number, row_values = numbered
                        answered = await self._reply(client, prompt, row_values, partial(check, number))
                        advance()
                        return answered

                    in_flight = min(self._settings.in_flight, len(values))
                    return await map_in_flight(reply, enumerate(values), in_flight, stop)

            replies = run_in_thread(ask_all(), stop)
        if replies and self._refusal and all(reply.problem == REFUSED for reply in replies):
            raise PosirError(f"{self.name}: {self._refusal}")
        return replies

    async def _reply(
        self, client: ChatClient, prompt: PromptTemplate[AnswerT], values: Mapping[str, str], check: Callable[[AnswerT], None]
    ) -> Reply[AnswerT]:
        problem = ""
        for attempt in range(self._settings.attempts):
            request = prompt.build_request(values, attempt, self._settings)
            try:
                completion = self._log.find(request.key) or await self._complete(client, request)
                answer = parse_answer(completion, prompt.answer)
                check(answer)
                return Reply(completion.served or self.name, prompt.id, answer)
            except UnusableAnswerError as error:
                problem = str(error)
            except RejectedError:
                problem = REFUSED
                break
        return Reply(self.name, prompt.id, None, problem)

    async def _complete(self, client: ChatClient, request: ChatRequest) -> Completion:
        reserved, completion = await self._budget.reserve(request), None
        try:
            completion = await client.complete(request)
            self._log.add(request.key, self.name, request.prompt, completion)
            self._answered.add(request.prompt)
        except RejectedError as error:
            self._rejected, self._refusal = self._rejected + 1, str(error)
            if request.prompt not in self._answered and self._rejected >= MAX_REJECTED:
                raise PosirError(f"{self.name}: {error}") from None
            raise
        finally:
            self._budget.settle(reserved, completion)
        return completion


def open_language_model(reference: str, cache: str, attempts: int) -> LanguageModel:
    """Return a language model, `MODEL` or `MODEL@ADDRESS`, with the settings of `llm` in `posir build`, or raise PosirError.

    Its answers are saved in a subfolder of posir's cache folder, `cache`, and are not asked for again. It is asked `attempts`
    times until its answer can be read.
    """
    model, _, address = reference.partition("@http")
    endpoints = {"endpoints": [f"http{address}"]} if address else {}
    try:
        settings = load_settings(LanguageModelSettings, None, {"model": model, "attempts": attempts, **endpoints})
    except PosirError as error:
        raise PosirError(
            f"--llm {reference}: {error}. Write MODEL, or MODEL@ADDRESS such as name@http://localhost:8000/v1."
        ) from None
    return LanguageModel(settings, CallLog(cache_folder() / cache / "calls.sqlite"))


async def map_in_flight(
    function: Callable[[Item], Awaitable[Result]], items: Iterable[Item], in_flight: int, stop: threading.Event
) -> list[Result]:
    """Return results in the order of the items, several in flight; after an error or `stop`, only those begun are finished."""
    pending, results, errors = enumerate(items), dict[int, Result](), list[Exception]()

    async def work() -> None:
        for index, item in pending:
            try:
                results[index] = await function(item)
            except Exception as error:
                errors.append(error)
            if errors or stop.is_set():
                return

    await asyncio.gather(*(work() for _ in range(in_flight)))
    if errors:
        # A wrong key is more to the point than the budget that other requests ran into.
        raise min(errors, key=lambda error: isinstance(error, BudgetError))
    return [results[index] for index in sorted(results)]


def run_in_thread(work: Coroutine[Any, Any, Result], stop: threading.Event) -> Result:
    """Return the result of a coroutine in another thread; Ctrl-C sets `stop` and waits, a second one ends the program."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(asyncio.run(work))
        except BaseException as error:
            future.set_exception(error)

    # What is imported by now stays. Without it, the garbage collector takes a tenth of the time of many requests.
    gc.freeze()
    threading.Thread(target=run, daemon=True).start()
    try:
        _wait_for(future)
    except KeyboardInterrupt:
        stop.set()
        print(STOPPING, file=sys.stderr)
        _wait_for(future)
        raise
    finally:
        gc.unfreeze()
    return future.result()


def _wait_for(future: Future[Any]) -> None:
    """Wait in short steps: without a limit, Ctrl-C may not end the wait, since the signal can reach another thread."""
    while wait([future], SIGNAL_SECONDS).not_done:
        pass
