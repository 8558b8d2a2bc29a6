"""Asking a language model many things at once: what is answered already is read, the rest is sent
within the budget.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track
from posir_tasks.language_models.call_log import CallLog, Completion
from posir_tasks.language_models.chat_client import (
    ChatClient,
    ChatRequest,
    PromptTemplate,
    RejectedError,
    UnusableAnswerError,
    parse_answer,
)
from posir_tasks.language_models.settings import LanguageModelSettings, compute_cost

AnswerT = TypeVar("AnswerT", bound=BaseModel)
Item = TypeVar("Item")
Result = TypeVar("Result")

#: Tokens that an answer is assumed to have before there is one.
FIRST_OUTPUT_TOKENS = 500
#: Refused requests after which the run ends if a prompt has no answer yet: then it is not about
#: single documents.
MAX_REJECTED = 5
#: The problem of an answer that the server did not give.
REFUSED = "the server refused the request"
#: How often a request looks whether the budget has room for it, once those in flight have been
#: counted.
BUDGET_SECONDS = 0.05
#: What Ctrl-C prints.
STOPPING = (
    "Stopping: the answers to requests in flight are waited for and saved. The same command "
    "continues. Ctrl-C again stops at "
    "once."
)
#: How often the main thread looks for a signal such as Ctrl-C.
SIGNAL_SECONDS = 0.2


@dataclass(frozen=True)
class Reply(Generic[AnswerT]):
    """The outcome of a question to a language model."""

    model: str
    """The model that the server names in its answer; the one that was asked for if it names
    none.
    """
    prompt: str
    """Name and version."""
    answer: AnswerT | None
    """None if it cannot be used."""
    problem: str = ""
    """The reason why there is no answer."""


class BudgetError(PosirError):
    """The budget of a build is spent."""


class LanguageModel:
    """A language model behind endpoints, with a log of its answers and the cost of its calls so
    far.
    """

    def __init__(self, settings: LanguageModelSettings, log: CallLog) -> None:
        self.name, self._settings, self._log = settings.model, settings, log
        used = [usage for (name, _), usage in log.usage().items() if name == settings.model]
        self._calls, self._output_tokens = (
            sum(usage.calls for usage in used),
            sum(usage.output_tokens for usage in used),
        )
        self._spent = compute_cost(
            settings.prices, sum(usage.input_tokens for usage in used), self._output_tokens
        )
        self._reserved, self._in_flight = 0.0, 0
        self._answered: set[str] = set()
        self._rejected, self._refusal = 0, ""

    def ask(
        self,
        prompt: PromptTemplate[AnswerT],
        items: Sequence[Item],
        build: Callable[[Item], Mapping[str, str]],
        description: str,
        check: Callable[[Item, AnswerT], None] | None = None,
    ) -> list[Reply[AnswerT]]:
        """Return the reply to a prompt about each item; several are asked at a time.

        The values of placeholders are built when they are sent: together they may be many copies of
        each document. An answer that cannot be read, or for which the check raises
        UnusableAnswerError, is asked for again. PosirError is raised if no server answers, or the
        budget is spent.
        """
        stop = threading.Event()
        with track(description, len(items)) as advance:

            async def ask_all() -> list[Reply[AnswerT]]:
                async with aclosing(ChatClient(self._settings)) as client:

                    async def reply(item: Item) -> Reply[AnswerT]:
                        answered = await self._reply(
                            client, prompt, build(item), partial(check, item) if check else None
                        )
                        advance()
                        return answered

                    return await map_in_flight(
                        reply, items, min(self._settings.in_flight, len(items)), stop
                    )

            replies = run_in_thread(ask_all(), stop)
        if replies and self._refusal and all(reply.problem == REFUSED for reply in replies):
            raise PosirError(f"{self.name}: {self._refusal}")
        return replies

    async def _reply(
        self,
        client: ChatClient,
        prompt: PromptTemplate[AnswerT],
        values: Mapping[str, str],
        check: Callable[[AnswerT], None] | None,
    ) -> Reply[AnswerT]:
        problem = ""
        for attempt in range(self._settings.attempts):
            request = prompt.build_request(values, attempt, self._settings)
            try:
                completion = self._log.find(request.key) or await self._complete(client, request)
                answer = parse_answer(completion, prompt.answer)
                if check:
                    check(answer)
                return Reply(completion.served or self.name, prompt.id, answer)
            except UnusableAnswerError as error:
                problem = str(error)
            except RejectedError:
                problem = REFUSED
                break
        return Reply(self.name, prompt.id, None, problem)

    async def _complete(self, client: ChatClient, request: ChatRequest) -> Completion:
        reserved, prices = await self._reserve(request), self._settings.prices
        try:
            completion = await client.complete(request)
            self._log.add(request.key, self.name, request.prompt, completion)
            self._answered.add(request.prompt)
            self._calls += 1
            self._output_tokens += completion.output_tokens
            self._spent += compute_cost(prices, completion.input_tokens, completion.output_tokens)
            return completion
        except RejectedError as error:
            self._rejected, self._refusal = self._rejected + 1, str(error)
            if request.prompt not in self._answered and self._rejected >= MAX_REJECTED:
                raise PosirError(f"{self.name}: {error}") from None
            raise
        finally:
            self._reserved -= reserved
            self._in_flight -= 1

    async def _reserve(self, request: ChatRequest) -> float:
        """Reserve what a request is expected to cost, and return it; raise BudgetError if the
        budget does not cover it.
        """
        limit, prices = self._settings.budget, self._settings.prices
        while True:
            output_tokens = (
                self._output_tokens / self._calls if self._calls else FIRST_OUTPUT_TOKENS
            )
            expected = compute_cost(prices, request.input_tokens, output_tokens)
            if limit is None or self._spent + self._reserved + expected <= limit:
                self._reserved += expected
                self._in_flight += 1
                return expected
            if not self._in_flight:
                raise BudgetError(
                    f"the budget of {limit:g} {prices.currency} is spent: {self._calls:,} calls "
                    f"cost {self._spent:.4g}, and "
                    f"the next one is expected to cost {expected:.2g}. All answers are saved; "
                    "raise llm.budget and run again "
                    "to continue."
                )
            await asyncio.sleep(BUDGET_SECONDS)


async def map_in_flight(
    function: Callable[[Item], Awaitable[Result]],
    items: Iterable[Item],
    in_flight: int,
    stop: threading.Event,
) -> list[Result]:
    """Return results in the order of the items, several in flight; after an error or `stop`, only
    those begun are finished.
    """
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
    """Return the result of a coroutine in another thread; Ctrl-C sets `stop` and waits, a second
    one ends the program.
    """
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(asyncio.run(work))
        except BaseException as error:
            future.set_exception(error)

    def join() -> None:
        # In short steps: without a limit, Ctrl-C may not end the wait, since the signal can reach
        # another thread.
        while wait([future], SIGNAL_SECONDS).not_done:
            pass

    # What is imported by now stays. Without it, the garbage collector takes a tenth of the time of
    # many requests.
    gc.freeze()
    threading.Thread(target=run, daemon=True).start()
    try:
        join()
    except KeyboardInterrupt:
        stop.set()
        print(STOPPING, file=sys.stderr)
        join()
        raise
    finally:
        gc.unfreeze()
    return future.result()
