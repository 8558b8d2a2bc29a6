"""Giving units to workers: who gets which, and what happens when a worker dies. The same on one machine and on many."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Generator, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any, Protocol

from posir_run.jobs import EvaluationJob, Failed, Outcome
from posir_tasks.errors import PosirError, summarize_error

logger = logging.getLogger(__name__)

#: How often a unit is begun before it is given up: a worker may die of the unit (memory) or of something else.
ATTEMPTS = 3
#: Seconds after which new machines are looked for.
POLL_SECONDS = 10.0


class Worker(Protocol):
    """A process that evaluates units, one at a time. A future's exception means that it is of no more use."""

    def ready(self) -> Future[Any]:
        """Return what is done when the process can work."""

    def submit(self, unit: EvaluationJob) -> Future[Outcome]:
        """Have it evaluate a unit."""

    def stop(self) -> None:
        """End it at once, whatever it does."""


class Engine(Protocol):
    """Where workers come from."""

    def places(self) -> Sequence[Hashable]:
        """Return where there is room for a worker now; a place that had one before is the same place."""

    def start(self, place: Hashable) -> Worker:
        """Start a worker in a place."""

    def close(self) -> None:
        """Give back what the engine holds."""


@dataclass
class WorkerSlot:
    """A place with a worker in it, which always has something to do."""

    worker: Worker
    doing: Future[Any]
    unit: EvaluationJob | None = None
    """What it evaluates; None while it starts."""


class Dispatch:
    """One run of units over the workers of an engine."""

    def __init__(self, units: Sequence[EvaluationJob], engine: Engine) -> None:
        self._left = list(units)
        self._engine = engine
        self._posts: dict[Hashable, WorkerSlot] = {}
        self._shut: dict[Hashable, str] = {}
        self._deaths: Counter[EvaluationJob] = Counter()

    def outcomes(self) -> Generator[Outcome, None, None]:
        """Yield an outcome for every unit, as they come. Closed early, it stops the workers.

        Raises:
            PosirError: No worker can be started anywhere.
        """
        try:
            while self._left or any(post.unit for post in self._posts.values()):
                self._take_posts()
                done, _ = wait([post.doing for post in self._posts.values()], POLL_SECONDS, FIRST_COMPLETED)
                for place, post in list(self._posts.items()):
                    if post.doing in done:
                        yield from self._next(place, post)
        finally:
            for post in self._posts.values():
                post.worker.stop()
            self._engine.close()

    def _take_posts(self) -> None:
        places = self._engine.places()
        for place in places:
            starting = sum(post.unit is None for post in self._posts.values())
            if place not in self._posts and place not in self._shut and starting < len(self._left):
                worker = self._engine.start(place)
                self._posts[place] = WorkerSlot(worker, worker.ready())
        if self._shut and not self._posts:
            raise PosirError(f"no worker can be started. {next(reversed(self._shut.values()))}")
        if not self._posts:
            logger.warning("There is no machine to work on; waiting for one")
            time.sleep(POLL_SECONDS)

    def _next(self, place: Hashable, post: WorkerSlot) -> Iterator[Outcome]:
        try:
            outcome = post.doing.result()
        except Exception as error:
            self._leave(place)
            yield from self._after_death(place, post.unit, error)
            return
        if isinstance(outcome, Outcome):
            yield outcome
        if not self._left or (isinstance(outcome, Failed) and outcome.fresh):
            self._leave(place)
        else:
            post.unit = self._choose(post.unit)
            post.doing = post.worker.submit(post.unit)

    def _leave(self, place: Hashable) -> None:
        self._posts.pop(place).worker.stop()

    def _after_death(self, place: Hashable, unit: EvaluationJob | None, error: Exception) -> Iterator[Outcome]:
        if unit is None:
            # Ray has the error of a worker in one of its own.
            self._shut[place] = f"{place}: {summarize_error(getattr(error, 'cause', None) or error)}"
            logger.warning("%s", self._shut[place])
            return
        self._deaths[unit] += 1
        if self._deaths[unit] < ATTEMPTS:
            logger.warning("%s: its worker died (%s); it is done again", unit, summarize_error(error))
            self._left.insert(0, unit)
        else:
            yield Failed(
                unit, f"its worker died {ATTEMPTS} times, perhaps for want of memory ({summarize_error(error)})", fresh=True
            )

    def _choose(self, last: EvaluationJob | None) -> EvaluationJob:
        """Take the unit that suits a worker best.

        Loading a model takes minutes and encoding a corpus hours, so a worker keeps to its model and its corpus, whose
        embeddings its machine may have stored, and otherwise goes where the fewest are.
        """
        begun = [post.unit for post in self._posts.values() if post.unit]
        models = Counter(unit.model for unit in begun)
        corpora = Counter((unit.model, unit.corpus) for unit in begun)

        def burden(unit: EvaluationJob) -> tuple[bool, bool, int, int]:
            new_model = last is None or unit.model != last.model
            new_corpus = new_model or last is None or unit.corpus != last.corpus
            return new_model, new_corpus, corpora[unit.model, unit.corpus], models[unit.model]

        chosen = min(self._left, key=burden)
        self._left.remove(chosen)
        return chosen
