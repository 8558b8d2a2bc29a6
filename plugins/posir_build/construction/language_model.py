"""Asking a language model many things at once: what is answered already is read, the rest is sent within the budget."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from pydantic import BaseModel

from posir_build.construction.answers import UnusableAnswerError, parse_answer
from posir_build.construction.call_log import CallLog, Completion
from posir_build.construction.chat_client import ChatClient, ChatRequest, RejectedError
from posir_build.construction.prompts import Prompt
from posir_build.construction.settings import LanguageModelSettings, Prices
from posir_build.construction.stage_progress import stage_progress
from posir_tasks.errors import PosirError
from posir_tasks.tokens import estimate_tokens

AnswerT = TypeVar("AnswerT", bound=BaseModel)
AnswerC = TypeVar("AnswerC", bound=BaseModel, contravariant=True)
Item = TypeVar("Item")
Result = TypeVar("Result")

#: Tokens that an answer is assumed to have before there is one.
FIRST_OUTPUT_TOKENS = 500
#: Refused requests after which the run ends if a prompt has no answer yet: then it is not about single documents.
MAX_REJECTED = 5


@dataclass(frozen=True)
class Reply(Generic[AnswerT]):
    """What became of a question to a language model."""

    model: str
    prompt: str
    """Name and version."""
    answer: AnswerT | None
    """None if it cannot be used."""
    problem: str = ""
    """Why not."""


class Check(Protocol[AnswerC]):
    """Checks an answer."""

    def __call__(self, number: int, answer: AnswerC) -> None:
        """Raise UnusableAnswerError if the answer to the `number`-th values cannot be used."""


def accept_all(number: int, answer: BaseModel) -> None:
    """Accept every answer."""


class Values(Protocol):
    """Values of a prompt's placeholders, once for each time it is asked."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Mapping[str, str]]: ...


@dataclass(frozen=True)
class BuiltValues(Generic[Item]):
    """Values that are built when they are sent: together they may be many copies of each document."""

    items: Sequence[Item]
    build: Callable[[Item], Mapping[str, str]]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Mapping[str, str]]:
        return map(self.build, self.items)


class LanguageModel(Protocol):
    """Answers prompts."""

    @property
    def name(self) -> str:
        """The model, as its servers call it."""

    def ask(
        self, prompt: Prompt[AnswerT], values: Values, description: str, check: Check[AnswerT] = accept_all
    ) -> list[Reply[AnswerT]]:
        """Return the reply to a prompt for each mapping of placeholders to values.

        An answer that cannot be read, or fails the check, is asked for again.

        Raises:
            PosirError: No server answers, or the budget is spent.
        """


class BudgetError(PosirError):
    """The budget of a build is spent."""


def compute_cost(prices: Prices, input_tokens: float, output_tokens: float) -> float:
    """Return what tokens cost, in the currency of the prices."""
    return (input_tokens * prices.input + output_tokens * prices.output) / 1e6


class Budget:
    """What calls have cost, and may cost; used by several threads."""

    def __init__(self, limit: float | None, prices: Prices, log: CallLog, model: str) -> None:
        used = [usage for (name, _), usage in log.usage().items() if name == model]
        self._limit, self._prices = limit, prices
        self._calls = sum(one.calls for one in used)
        self._output_tokens = sum(one.output_tokens for one in used)
        self._spent = compute_cost(prices, sum(one.input_tokens for one in used), self._output_tokens)
        self._reserved, self._in_flight = 0.0, 0
        self._settled = threading.Condition()

    def reserve(self, request: ChatRequest) -> float:
        """Reserve what a request is expected to cost, and return it.

        Raises:
            BudgetError: What is left of the budget does not cover it once the calls in flight are answered.
        """
        input_tokens = sum(estimate_tokens(content) for _, content in request.messages)
        with self._settled:
            while True:
                output_tokens = self._output_tokens / self._calls if self._calls else FIRST_OUTPUT_TOKENS
                expected = compute_cost(self._prices, input_tokens, output_tokens)
                if self._limit is None or self._spent + self._reserved + expected <= self._limit:
                    self._reserved += expected
                    self._in_flight += 1
                    return expected
                if not self._in_flight:
                    raise BudgetError(
                        f"the budget of {self._limit:g} is spent: {self._calls:,} calls cost {self._spent:.4g}, and the next "
                        f"one is expected to cost {expected:.2g}. All answers are saved; raise llm.budget and run again to "
                        "continue."
                    )
                self._settled.wait()

    def settle(self, reserved: float, completion: Completion | None) -> None:
        """Replace a reservation by the tokens that the server counted."""
        with self._settled:
            self._reserved -= reserved
            self._in_flight -= 1
            self._settled.notify_all()
            if completion:
                self._calls += 1
                self._output_tokens += completion.output_tokens
                self._spent += compute_cost(self._prices, completion.input_tokens, completion.output_tokens)


class LoggedLanguageModel:
    """A language model behind endpoints, with the log of a build."""

    def __init__(self, settings: LanguageModelSettings, log: CallLog) -> None:
        self.name = settings.model
        self._settings = settings
        self._log = log
        self._client = ChatClient(settings)
        self._budget = Budget(settings.budget, settings.prices, log, settings.model)
        self._answered: set[str] = set()
        self._rejected = 0

    def ask(
        self, prompt: Prompt[AnswerT], values: Values, description: str, check: Check[AnswerT] = accept_all
    ) -> list[Reply[AnswerT]]:
        """Return the reply to a prompt for each mapping of placeholders to values; several are asked at a time."""
        with stage_progress(description, len(values)) as advance:

            def reply(numbered: tuple[int, Mapping[str, str]]) -> Reply[AnswerT]:
                number, one = numbered
                answered = self._reply(prompt, one, partial(check, number))
                advance()
                return answered

            return map_in_threads(reply, enumerate(values), min(self._settings.in_flight, len(values)))

    def _reply(self, prompt: Prompt[AnswerT], values: Mapping[str, str], check: Callable[[AnswerT], None]) -> Reply[AnswerT]:
        problem = ""
        for attempt in range(self._settings.attempts):
            request = prompt.build_request(values, attempt, self._settings)
            try:
                completion = self._log.find(request.key) or self._complete(request)
                answer = parse_answer(completion, prompt.answer)
                check(answer)
                return Reply(self.name, prompt.id, answer)
            except UnusableAnswerError as error:
                problem = str(error)
            except RejectedError:
                problem = "the server refused the request"
                break
        return Reply(self.name, prompt.id, None, problem)

    def _complete(self, request: ChatRequest) -> Completion:
        reserved, completion = self._budget.reserve(request), None
        try:
            completion = self._client.complete(request)
            self._log.add(request.key, self.name, request.prompt, completion)
            self._answered.add(request.prompt)
        except RejectedError as error:
            self._rejected += 1
            if request.prompt not in self._answered and self._rejected >= MAX_REJECTED:
                raise PosirError(f"{self.name}: {error}") from None
            raise
        finally:
            self._budget.settle(reserved, completion)
        return completion


def map_in_threads(function: Callable[[Item], Result], items: Iterable[Item], threads: int) -> list[Result]:
    """Return the results of a function in the order of the items.

    After an error, or Ctrl-C, no further item is begun, and those begun are finished: what they cost is not lost. A second
    Ctrl-C ends the program at once.
    """
    pending, results, errors = enumerate(items), dict[int, Result](), list[BaseException]()
    lock, stop = threading.Lock(), threading.Event()

    def work() -> None:
        while not stop.is_set():
            with lock:
                item = next(pending, None)
            if item is None:
                return
            try:
                results[item[0]] = function(item[1])
            except BaseException as error:
                errors.append(error)
                stop.set()

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except KeyboardInterrupt:
        stop.set()
        for worker in workers:
            worker.join()
        raise
    if errors:
        # A wrong key is more to the point than the budget that other threads ran into.
        raise min(errors, key=lambda error: isinstance(error, BudgetError))
    return [results[index] for index in range(len(results))]
