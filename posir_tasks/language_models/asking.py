"""Send concurrent requests to a language model, with saved answers and a budget."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track
from posir_tasks.language_models.call_log import CallLog, Completion, Usage
from posir_tasks.language_models.chat_client import (
    AnswerFault,
    AnswerT,
    ChatClient,
    ChatRequest,
    PromptTemplate,
    RejectedError,
    UnusableAnswerError,
    parse_answer,
)
from posir_tasks.language_models.settings import LanguageModelSettings, compute_cost
from posir_tasks.models.connection import submit

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Assumed number of tokens per answer before the first answer.
ASSUMED_OUTPUT_TOKENS = 500
#: Number of rejected requests that ends the run if the prompt has no answers yet: a single document
#: is then not the cause.
MAX_REJECTIONS = 5
#: Seconds between checks of the budget while requests are in flight.
BUDGET_CHECK_SECONDS = 0.05
#: Message after Ctrl-C.
STOP_MESSAGE = (
    "Stopping after the requests in flight; their answers are saved. Run the same command to "
    "continue. Press Ctrl-C again to stop at once."
)
#: Seconds between checks of the main thread for signals such as Ctrl-C.
SIGNAL_CHECK_SECONDS = 0.2


@dataclass(frozen=True)
class Reply(Generic[AnswerT]):
    """A language model's reply to one prompt: an answer or the reason why there is none."""

    model: str
    """Model named in the response, by default the requested model."""
    prompt: str
    """Name and version of the prompt."""
    answer: AnswerT | None
    """None if there is no usable answer."""
    fault: str = ""
    """An `AnswerFault` or the caller's reason; empty with an answer."""
    detail: str = ""


class BudgetError(PosirError):
    """The budget is exhausted."""


class LanguageModel:
    """A language model behind one or more endpoints, with saved answers and a budget."""

    def __init__(
        self,
        settings: LanguageModelSettings,
        log: CallLog,
        prompts: Mapping[str, PromptTemplate[Any]] | None = None,
    ) -> None:
        """Connect a model. `prompts` replaces the default prompts by name."""
        self.name = settings.model
        self._prompts = prompts or {}
        self._settings = settings
        self._client = ChatClient(settings)
        self._log = log
        self._usage = sum(
            (usage for (model, _), usage in log.load_usage().items() if model == self.name),
            Usage(),
        )
        self._reserved_cost = 0.0
        self._in_flight = 0
        self._answered_prompts: set[str] = set()
        self._rejections: list[str] = []

    def describe_answers(self) -> str:
        """Summarize the answers: number, tokens, and reasons why answers were unusable."""
        return f"{self.name}: {self._log.describe_answers()}."

    def ask(
        self,
        prompt: PromptTemplate[AnswerT],
        items: Sequence[Item],
        build: Callable[[Item], Mapping[str, str]],
        description: str,
        check: Callable[[Item, AnswerT], object] | None = None,
    ) -> list[tuple[Item, Reply[AnswerT]]]:
        """Send a prompt about each item, with several requests in flight. Return each item with its
        reply.

        `build` returns the placeholder values of an item. It is called just before sending, since
        the values may contain many copies of each document. A request is repeated if the answer
        cannot be parsed or `check` raises UnusableAnswerError.

        Raises:
            PosirError: No server responds, all requests are rejected, or the budget is exhausted.
        """
        prompt = self._prompts.get(prompt.name, prompt)
        stop = threading.Event()
        in_flight = min(self._settings.in_flight, len(items))

        async def ask_about(item: Item) -> Reply[AnswerT]:
            reply = await self._ask_about(prompt, item, build(item), check)
            advance()
            return reply

        with track(description, len(items)) as advance:
            replies = run_in_thread(map_concurrently(ask_about, items, in_flight, stop), stop)
        if replies and all(reply.fault == AnswerFault.REJECTED for reply in replies):
            raise PosirError(f"{self.name}: {self._rejections[-1]}")
        return list(zip(items, replies, strict=True))

    async def _ask_about(
        self,
        prompt: PromptTemplate[AnswerT],
        item: Item,
        values: Mapping[str, str],
        check: Callable[[Item, AnswerT], object] | None,
    ) -> Reply[AnswerT]:
        reply = Reply[AnswerT](self.name, prompt.id, None)
        for attempt in range(self._settings.attempts):
            request = prompt.build_request(values, attempt, self._settings)
            try:
                completion = self._log.find(request.key) or await self._complete(request)
                usage = Usage(1, completion.input_tokens, completion.output_tokens)
                self._log.usage_by_key[request.key] = usage
                answer = parse_answer(completion, prompt.answer, is_bare=prompt.is_bare)
                if check:
                    check(item, answer)
                return Reply(completion.served or self.name, prompt.id, answer)
            except UnusableAnswerError as error:
                self._log.faults[request.key] = error.fault
                reply = replace(reply, fault=error.fault, detail=error.detail)
            except RejectedError:
                return replace(reply, fault=AnswerFault.REJECTED)
        return reply

    async def _complete(self, request: ChatRequest) -> Completion:
        reservation = await self._reserve(request)
        try:
            completion = await self._client.complete(request)
        except RejectedError as error:
            self._rejections.append(str(error))
            has_answers = request.prompt in self._answered_prompts
            if not has_answers and len(self._rejections) >= MAX_REJECTIONS:
                raise PosirError(f"{self.name}: {error}") from None
            raise
        finally:
            self._reserved_cost -= reservation
            self._in_flight -= 1
        self._log.add(request.key, self.name, request.prompt, completion)
        self._answered_prompts.add(request.prompt)
        self._usage += Usage(1, completion.input_tokens, completion.output_tokens)
        return completion

    async def _reserve(self, request: ChatRequest) -> float:
        """Reserve the expected cost of a request and return it. Wait while requests in flight may
        leave enough budget.

        Raises:
            BudgetError: The remaining budget is too small.
        """
        budget = self._settings.budget
        prices = self._settings.prices
        while True:
            usage = self._usage
            output = usage.output_tokens / usage.calls if usage.calls else ASSUMED_OUTPUT_TOKENS
            cost = compute_cost(prices, request.input_tokens, output)
            spent = compute_cost(prices, usage.input_tokens, usage.output_tokens)
            if budget is None or spent + self._reserved_cost + cost <= budget:
                self._reserved_cost += cost
                self._in_flight += 1
                return cost
            if not self._in_flight:
                raise BudgetError(
                    f"the budget of {budget:g} {prices.currency} is exhausted: {usage.calls:,} "
                    f"calls cost {spent:.4g}, and the next call is expected to cost {cost:.2g}. "
                    "All answers are saved; raise llm.budget and run again to continue."
                )
            await asyncio.sleep(BUDGET_CHECK_SECONDS)


async def map_concurrently(
    function: Callable[[Item], Awaitable[Result]],
    items: Iterable[Item],
    max_concurrency: int,
    stop: threading.Event,
) -> list[Result]:
    """Apply a function to items concurrently and return the results in item order. After an error
    or `stop`, no more calls are started.
    """
    queue = enumerate(items)
    results: dict[int, Result] = {}
    errors: list[Exception] = []

    async def run_worker() -> None:
        for index, item in queue:
            try:
                results[index] = await function(item)
            except Exception as error:
                errors.append(error)
            if errors or stop.is_set():
                return

    await asyncio.gather(*(run_worker() for _ in range(max_concurrency)))
    if errors:
        # Other errors, such as a wrong key, are more informative than an exceeded budget.
        raise min(errors, key=lambda error: isinstance(error, BudgetError))
    return [results[index] for index in sorted(results)]


def run_in_thread(coroutine: Coroutine[Any, Any, Result], stop: threading.Event) -> Result:
    """Run a coroutine in another thread. After Ctrl-C, set `stop` and wait for the coroutine before
    raising KeyboardInterrupt; a second Ctrl-C raises it at once.
    """
    future = submit(coroutine)

    def join() -> None:
        # Wait in short steps: a signal delivered to another thread does not interrupt a wait.
        while wait([future], SIGNAL_CHECK_SECONDS).not_done:
            pass

    # Garbage collection of imported modules would take a tenth of the run time.
    gc.freeze()
    try:
        join()
    except KeyboardInterrupt:
        stop.set()
        print(STOP_MESSAGE, file=sys.stderr)
        join()
        raise
    finally:
        gc.unfreeze()
    return future.result()
