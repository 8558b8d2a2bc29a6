"""Evaluation jobs of a run, and a dispatcher that distributes jobs over workers."""

from __future__ import annotations

import datetime
import logging
import time
from collections import Counter
from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.records import Record
from posir_tasks.data.repository import LOCAL
from posir_tasks.models.references import ModelReference, get_portable_reference
from posir_tasks.models.registry import find_model

if TYPE_CHECKING:
    from mteb.cache import ResultCache
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels
    from mteb.results import TaskResult
    from mteb.types import EncodeKwargs

    from posir_tasks.tasks.base import PositionTask

logger = logging.getLogger(__name__)

#: Maximum number of attempts per job. A job is retried if its worker crashes, since the job may not
#: be the cause.
MAX_ATTEMPTS = 3
#: Seconds between checks for new machines.
POLL_SECONDS = 10.0


class Job(Protocol):
    """A unit of work that needs one model. Jobs are hashable and can be pickled."""

    @property
    def model(self) -> ModelReference:
        """The model that the worker loads."""

    @property
    def corpus(self) -> str:
        """Name of the encoded corpus. A worker prefers jobs with its previous corpus, whose
        embeddings it may have cached.
        """

    def run(self, model: MTEBModels, encode_kwargs: EncodeKwargs) -> Any:
        """Run the job with the loaded model."""


@dataclass(frozen=True)
class JobOutcome:
    """The return value of a job, or the reason why it failed."""

    value: Any = None
    failure: str = ""
    """Why the job failed; empty on success."""
    restart_worker: bool = False
    """Whether the process may be unusable, for example after a CUDA error."""
    warnings: tuple[str, ...] = ()
    """The worker's warnings since its previous job."""


class Worker(Protocol):
    """A process that runs one job at a time. It is unusable once one of its futures raises."""

    started: Future[Any]

    def submit(self, job: Job) -> Future[JobOutcome]:
        """Start a job in the process."""

    def stop(self) -> None:
        """Stop the process immediately, even during a job."""


class Engine(Protocol):
    """Starts workers."""

    def list_locations(self) -> Sequence[Hashable]:
        """List all worker locations, free or in use. Locations compare equal across calls."""

    def start(self, location: Hashable) -> Worker:
        """Start a worker at a location."""

    def close(self) -> None:
        """Release the engine's resources."""


@dataclass
class WorkerSlot:
    """A worker and its current job."""

    worker: Worker
    future: Future[Any]
    job: Job | None = None
    """The current job; None while the worker starts."""


class Dispatcher:
    """Distributes jobs over the workers of an engine, and retries the jobs of crashed workers."""

    def __init__(self, jobs: Sequence[Job], engine: Engine) -> None:
        self._pending = list(jobs)
        self._engine = engine
        self._slots: dict[Hashable, WorkerSlot] = {}
        self._start_errors: dict[Hashable, str] = {}
        self._crash_counts: Counter[Job] = Counter()

    def run(self) -> Generator[tuple[Job, JobOutcome], None, None]:
        """Run the jobs. Yield each job with its outcome as it completes.

        Closing the generator stops the workers.

        Raises:
            PosirError: No worker can be started.
        """
        try:
            while self._pending or any(slot.job for slot in self._slots.values()):
                self._start_workers()
                futures = [slot.future for slot in self._slots.values()]
                done, _ = wait(futures, POLL_SECONDS, FIRST_COMPLETED)
                for location, slot in list(self._slots.items()):
                    if slot.future in done:
                        yield from self._handle_completion(location, slot)
        finally:
            for slot in self._slots.values():
                slot.worker.stop()
            self._engine.close()

    def _start_workers(self) -> None:
        for location in self._engine.list_locations():
            is_free = location not in self._slots and location not in self._start_errors
            starting = sum(slot.job is None for slot in self._slots.values())
            if is_free and starting < len(self._pending):
                worker = self._engine.start(location)
                self._slots[location] = WorkerSlot(worker, worker.started)
        if self._start_errors and not self._slots:
            last_error = next(reversed(self._start_errors.values()))
            raise PosirError(f"no worker can be started. {last_error}")
        if not self._slots:
            logger.warning("No workers available; waiting for one")
            time.sleep(POLL_SECONDS)

    def _handle_completion(
        self, location: Hashable, slot: WorkerSlot
    ) -> Iterator[tuple[Job, JobOutcome]]:
        try:
            outcome = slot.future.result()
        except Exception as error:
            self._slots.pop(location).worker.stop()
            # Ray wraps the errors of its workers.
            reason = summarize_error(getattr(error, "cause", None) or error)
            if slot.job is None:
                self._start_errors[location] = f"{location}: {reason}"
                logger.warning("%s", self._start_errors[location])
                return
            self._crash_counts[slot.job] += 1
            if self._crash_counts[slot.job] < MAX_ATTEMPTS:
                logger.warning("%s: its worker crashed (%s); trying again", slot.job, reason)
                self._pending.insert(0, slot.job)
                return
            problem = f"its worker crashed {MAX_ATTEMPTS} times, perhaps out of memory ({reason})"
            yield slot.job, JobOutcome(failure=problem)
            return
        restart = False
        if slot.job:
            yield slot.job, outcome
            restart = outcome.restart_worker
        if restart or not self._pending:
            self._slots.pop(location).worker.stop()
        else:
            slot.job = self._take_job(slot.job)
            slot.future = slot.worker.submit(slot.job)

    def _take_job(self, previous: Job | None) -> Job:
        """Remove and return the pending job with the lowest switching cost after `previous`.

        Loading a model takes minutes, and encoding a corpus takes hours. A worker thus prefers jobs
        with its current model, then jobs with its current corpus, whose embeddings may be cached on
        its machine. Ties go to the corpus and the model that the fewest other workers use.
        """
        running_jobs = [slot.job for slot in self._slots.values() if slot.job]
        models = Counter(job.model for job in running_jobs)
        corpora = Counter((job.model, job.corpus) for job in running_jobs)

        def get_cost(job: Job) -> tuple[bool, bool, int, int]:
            new_model = previous is None or job.model != previous.model
            new_corpus = new_model or previous is None or job.corpus != previous.corpus
            return new_model, new_corpus, corpora[job.model, job.corpus], models[job.model]

        best = min(self._pending, key=get_cost)
        self._pending.remove(best)
        return best


@dataclass(frozen=True)
class EvaluationJob:
    """The evaluation of one model on one subset of a task."""

    model: ModelReference
    task: str
    subset: str
    corpus: str = field(compare=False)
    """Name of the corpus to search. Tasks may share a corpus."""

    def __str__(self) -> str:
        return f"{self.model.name} · {self.task} · {self.subset}"

    def run(self, model: MTEBModels, encode_kwargs: EncodeKwargs) -> tuple[TaskResult, Record]:
        """Evaluate the subset. Return the result and the model's metadata.

        The metadata excludes the loader, which may not be picklable.
        """
        result = evaluate_subset(model, self, encode_kwargs)
        return result, model.mteb_model_meta.model_dump(exclude={"loader"})


def evaluate_subset(
    model: MTEBModels, job: EvaluationJob, encode_kwargs: EncodeKwargs
) -> TaskResult:
    """Evaluate one subset of a task as `mteb.evaluate` does.

    The task is not filtered to the subset, since mteb would record the other subsets as missing
    from the data.
    """
    import mteb
    from mteb.results import TaskResult
    from mteb.timing import TimingStack

    task = mteb.get_task(job.task)
    timer = TimingStack()
    start = time.monotonic()
    scores: Record = {
        split: task.evaluate(model, split, [job.subset], encode_kwargs=encode_kwargs, timer=timer)
        for split in task.eval_splits
    }
    return TaskResult.from_task_results(
        task,
        scores,
        evaluation_time=time.monotonic() - start,
        date=datetime.datetime.now(tz=datetime.UTC),
        evaluation_phases=timer.phases,
    )


@dataclass(frozen=True)
class Workload:
    """Models and the tasks to evaluate them on."""

    tasks: Sequence[PositionTask]
    models: Mapping[ModelReference, ModelMeta]

    def list_jobs(self) -> list[EvaluationJob]:
        """List all jobs, ordered by model, task and subset."""
        subsets = [(task, subset) for task in self.tasks for subset in task.hf_subsets]
        return [
            EvaluationJob(model, task.metadata.name, subset, name_corpus(task, subset))
            for model in self.models
            for task, subset in subsets
        ]


def name_corpus(task: PositionTask, subset: str) -> str:
    """Return the name of a subset's corpus. Tasks that share a corpus get the same name."""
    languages = task.metadata.hf_subsets_to_langscripts[subset]
    return f"{task.metadata.dataset['path']}/{languages[-1]}/{subset}"


def find_workload(
    tasks: Sequence[str],
    benchmarks: Sequence[str],
    models: Sequence[str],
    revision: str | None = None,
) -> Workload:
    """Find tasks and models by name, and remove duplicates.

    Raises:
        PosirError: No task is given, a name is unknown, or a revision is given for several models.
    """
    if not (tasks or benchmarks):
        raise PosirError(
            "no task given. Use -t for tasks or -b for benchmarks; `posir tasks` lists them."
        )
    if revision and len(models) > 1:
        raise PosirError(
            f"--revision {revision}: applies to one model only. Omit it, or give one model."
        )
    metas = [find_model(ModelReference(name, revision)) for name in models]
    return Workload(
        find_tasks(tasks, benchmarks),
        {ModelReference(get_portable_reference(meta), revision): meta for meta in metas},
    )


def find_tasks(names: Sequence[str], benchmarks: Sequence[str]) -> list[PositionTask]:
    """Find tasks by name and the tasks of benchmarks, and remove duplicates.

    Raises:
        PosirError: A name is unknown, a task has no evidence positions, or a benchmark has no data.
    """
    import mteb

    from posir_tasks.tasks.base import PositionTask

    all_names = [*names]
    with explain_unknown_task():
        # mteb would build all benchmarks even for an empty list.
        for benchmark in mteb.get_benchmarks(list(benchmarks)) if benchmarks else ():
            for task in benchmark.tasks:
                if isinstance(task, PositionTask):
                    # Warns once about missing tasks; raises if the benchmark has no data at all.
                    if task.benchmark is not None:
                        task.benchmark.check_data()
                    if not task.has_data():
                        continue
                all_names.append(task.metadata.name)
        tasks = [mteb.get_task(name) for name in dict.fromkeys(all_names)]
    other_names = [task.metadata.name for task in tasks if not isinstance(task, PositionTask)]
    if other_names:
        raise PosirError(
            f"no evidence positions in {', '.join(other_names)}. Evaluate such tasks with `mteb "
            "run`."
        )
    return [task for task in tasks if isinstance(task, PositionTask)]


@contextmanager
def explain_unknown_task() -> Iterator[None]:
    """Convert mteb's KeyError for an unknown name to PosirError."""
    try:
        yield
    except KeyError as error:
        # Some of mteb's messages start with the exception name.
        message = str(error.args[0]).removeprefix("KeyError: ")
        raise PosirError(f"{message} `posir tasks` lists the tasks.") from error


def find_missing_jobs(workload: Workload, cache: ResultCache) -> list[EvaluationJob]:
    """List the jobs that have no valid result in the cache, as defined by mteb."""
    for task in workload.tasks:
        # This removes subsets that the data does not contain.
        task.load_data()
    missing_subsets = {
        (model, task.metadata.name): find_missing_subsets(task, meta, cache)
        for model, meta in workload.models.items()
        for task in workload.tasks
    }
    return [
        job for job in workload.list_jobs() if job.subset in missing_subsets[job.model, job.task]
    ]


def find_missing_subsets(task: PositionTask, meta: ModelMeta, cache: ResultCache) -> set[str]:
    """Return the task's subsets that have no result for a model.

    If the data revision has changed, all subsets are missing.
    """
    result = cache.load_task_result(task.metadata.name, meta)
    # For local data, the cache has already compared the subset revisions.
    if result is None or not (result.dataset_revision == LOCAL or result.is_mergeable(task)):
        return set(task.hf_subsets)
    return {
        subset for subsets in result.get_missing_evaluations(task).values() for subset in subsets
    }
