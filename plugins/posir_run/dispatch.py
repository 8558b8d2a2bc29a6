"""Distributing jobs over workers, on one machine or many: who gets which job, and what happens when a worker crashes."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Generator, Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from posir_run.jobs import Completed, EvaluationJob, Failed, Job, JobOutcome, Workload
from posir_run.worker import Settings
from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.host.result_saving import process_saver
from posir_tasks.sources.repository import LOCAL

if TYPE_CHECKING:
    from mteb.cache import ResultCache
    from mteb.models import ModelMeta

    from posir_tasks.tasks.base import PositionTask

logger = logging.getLogger(__name__)

#: How often a job is started before it is given up: a worker may crash because of the job (memory) or for another reason.
ATTEMPTS = 3
#: Seconds between checks for new machines.
POLL_SECONDS = 10.0


class Worker(Protocol):
    """A process that does one job at a time. If one of its futures raises, the worker is unusable."""

    def ready(self) -> Future[Any]:
        """Return a future that completes when the process can do jobs."""

    def submit(self, job: Job) -> Future[JobOutcome]:
        """Do a job in the process."""

    def stop(self) -> None:
        """End the process at once, whatever it is doing."""


class Engine(Protocol):
    """Starts workers."""

    def locations(self) -> Sequence[Hashable]:
        """Return where workers can run now, those already running included; equal values mean the same location."""

    def start(self, location: Hashable) -> Worker:
        """Start a worker at a location."""

    def close(self) -> None:
        """Release everything that the engine holds."""


@dataclass
class WorkerSlot:
    """A location with a worker, which is starting or doing a job."""

    worker: Worker
    current: Future[Any]
    job: Job | None = None
    """The job that it does; None while it starts."""


class Dispatcher:
    """One run of jobs on the workers of an engine."""

    def __init__(self, jobs: Sequence[Job], engine: Engine) -> None:
        self._pending = list(jobs)
        self._engine = engine
        self._slots: dict[Hashable, WorkerSlot] = {}
        self._unusable: dict[Hashable, str] = {}
        self._crashes: Counter[Job] = Counter()

    def outcomes(self) -> Generator[JobOutcome, None, None]:
        """Yield an outcome for every job, as they come. Closing the generator stops the workers.

        Raises:
            PosirError: No worker can be started anywhere.
        """
        try:
            while self._pending or any(slot.job for slot in self._slots.values()):
                self._start_workers()
                done, _ = wait([slot.current for slot in self._slots.values()], POLL_SECONDS, FIRST_COMPLETED)
                for location, slot in list(self._slots.items()):
                    if slot.current in done:
                        yield from self._advance(location, slot)
        finally:
            for slot in self._slots.values():
                slot.worker.stop()
            self._engine.close()

    def _start_workers(self) -> None:
        for location in self._engine.locations():
            starting = sum(slot.job is None for slot in self._slots.values())
            if location not in self._slots and location not in self._unusable and starting < len(self._pending):
                worker = self._engine.start(location)
                self._slots[location] = WorkerSlot(worker, worker.ready())
        if self._unusable and not self._slots:
            raise PosirError(f"no worker can be started. {next(reversed(self._unusable.values()))}")
        if not self._slots:
            logger.warning("No workers available; waiting for one")
            time.sleep(POLL_SECONDS)

    def _advance(self, location: Hashable, slot: WorkerSlot) -> Iterator[JobOutcome]:
        try:
            outcome = slot.current.result()
        except Exception as error:
            self._stop_worker(location)
            yield from self._handle_crash(location, slot.job, error)
            return
        if isinstance(outcome, JobOutcome):
            yield outcome
        if not self._pending or (isinstance(outcome, Failed) and outcome.restart_worker):
            self._stop_worker(location)
        else:
            slot.job = self._take_job(slot.job)
            slot.current = slot.worker.submit(slot.job)

    def _stop_worker(self, location: Hashable) -> None:
        self._slots.pop(location).worker.stop()

    def _handle_crash(self, location: Hashable, job: Job | None, error: Exception) -> Iterator[JobOutcome]:
        if job is None:
            # Ray wraps the error of a worker in one of its own.
            self._unusable[location] = f"{location}: {summarize_error(getattr(error, 'cause', None) or error)}"
            logger.warning("%s", self._unusable[location])
            return
        self._crashes[job] += 1
        if self._crashes[job] < ATTEMPTS:
            logger.warning("%s: its worker crashed (%s); trying again", job, summarize_error(error))
            self._pending.insert(0, job)
        else:
            reason = f"its worker crashed {ATTEMPTS} times, perhaps out of memory ({summarize_error(error)})"
            yield Failed(job, reason, restart_worker=True)

    def _take_job(self, previous: Job | None) -> Job:
        """Take the pending job that suits a worker best.

        Loading a model takes minutes and encoding a corpus hours. So a worker stays with its model and its corpus, whose
        embeddings its machine may have cached, and otherwise takes those that the fewest other workers have.
        """
        running = [slot.job for slot in self._slots.values() if slot.job]
        models = Counter(job.model for job in running)
        corpora = Counter((job.model, job.corpus) for job in running)

        def cost(job: Job) -> tuple[bool, bool, int, int]:
            new_model = previous is None or job.model != previous.model
            new_corpus = new_model or previous is None or job.corpus != previous.corpus
            return new_model, new_corpus, corpora[job.model, job.corpus], models[job.model]

        best = min(self._pending, key=cost)
        self._pending.remove(best)
        return best


def find_missing_jobs(workload: Workload, cache: ResultCache) -> list[EvaluationJob]:
    """Return the jobs without a result in a folder, by mteb's own rules; restricts each task to the subsets in its data.

    Raises:
        DataError: A task has no data.
    """
    for task in workload.tasks:
        task.load_data()
    missing = {
        (model, task.metadata.name): find_missing_subsets(task, meta, cache)
        for model, meta in workload.models.items()
        for task in workload.tasks
    }
    return [job for job in workload.jobs() if job.subset in missing[job.model, job.task]]


def find_missing_subsets(task: PositionTask, meta: ModelMeta, cache: ResultCache) -> set[str]:
    """Return the subsets of a task without a result of a model; all of them if the data's revision has changed."""
    result = cache.load_task_result(task.metadata.name, meta)
    # Of local data, the cache has compared the revisions subset by subset.
    if result is None or not (result.dataset_revision == LOCAL or result.is_mergeable(task)):
        return set(task.hf_subsets)
    return {subset for subsets in result.get_missing_evaluations(task).values() for subset in subsets}


def run_and_save(
    jobs: Sequence[EvaluationJob], engine: Engine, workload: Workload, cache: ResultCache, settings: Settings
) -> Generator[JobOutcome, None, None]:
    """Yield the outcome of each job as it comes, with its result saved before. Closing the generator stops the workers.

    Raises:
        PosirError: No worker can be started, or the disk is full.
    """
    subset_order = {task.metadata.name: task.hf_subsets for task in workload.tasks}
    with closing(Dispatcher(jobs, engine).outcomes()) as outcomes:
        for outcome in outcomes:
            if isinstance(outcome, Completed):
                job = outcome.job
                meta = workload.models[job.model].model_copy(update=outcome.model_meta)
                process_saver().add(
                    cache, outcome.result, meta, order=subset_order[job.task], encode_kwargs=settings.encode_kwargs
                )
            yield outcome
