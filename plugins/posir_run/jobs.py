"""Jobs, their distribution over workers, and the evaluation jobs of a run."""

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

#: Maximum number of attempts per job. A job whose worker crashes is retried, since the job may not
#: be the cause.
ATTEMPTS = 3
#: Seconds between checks for new machines.
POLL_SECONDS = 10.0


class Job(Protocol):
    """Work for one model. Jobs are hashable and can be pickled."""

    @property
    def model(self) -> ModelReference:
        """The model that the worker loads."""

    @property
    def corpus(self) -> str:
        """Name of the encoded texts. Workers prefer jobs with the same name, since they may have
        cached the embeddings.
        """

    def run(self, model: MTEBModels, encode_kwargs: EncodeKwargs) -> Any:
        """Run the job with the loaded model."""


@dataclass(frozen=True)
class JobOutcome:
    """The return value of a job, or the reason why it failed."""

    value: Any = None
    failure: str = ""
    """Reason of a failure; empty on success."""
    restart_worker: bool = False
    """If true, the process is unusable, for example after a CUDA error."""
    warnings: tuple[str, ...] = ()
    """Warnings from the worker since its previous job."""


class Worker(Protocol):
    """A process that runs one job at a time. If one of its futures raises, the worker is
    unusable.
    """

    started: Future[Any]

    def submit(self, job: Job) -> Future[JobOutcome]:
        """Run a job in the process."""

    def stop(self) -> None:
        """Stop the process immediately, even during a job."""


class Engine(Protocol):
    """Starts workers."""

    def locations(self) -> Sequence[Hashable]:
        """List the locations where workers can run or already run; equal values mean the same
        location.
        """

    def start(self, location: Hashable) -> Worker:
        """Start a worker at a location."""

    def close(self) -> None:
        """Release the engine's resources."""


@dataclass
class WorkerSlot:
    """A location with a worker."""

    worker: Worker
    current: Future[Any]
    job: Job | None = None
    """The current job; None while the worker starts."""


class Dispatcher:
    """Distributes jobs over the workers of an engine, and retries the jobs of crashed workers."""

    def __init__(self, jobs: Sequence[Job], engine: Engine) -> None:
        self._pending = list(jobs)
        self._engine = engine
        self._slots: dict[Hashable, WorkerSlot] = {}
        self._unusable: dict[Hashable, str] = {}
        self._crashes: Counter[Job] = Counter()

    def outcomes(self) -> Generator[tuple[Job, JobOutcome], None, None]:
        """Yield each job with its outcome as it completes. Closing the generator stops the workers.

        Raises:
            PosirError: No worker can be started.
        """
        try:
            while self._pending or any(slot.job for slot in self._slots.values()):
                self._start_workers()
                current = [slot.current for slot in self._slots.values()]
                done, _ = wait(current, POLL_SECONDS, FIRST_COMPLETED)
                for location, slot in list(self._slots.items()):
                    if slot.current in done:
                        yield from self._advance(location, slot)
        finally:
            for slot in self._slots.values():
                slot.worker.stop()
            self._engine.close()

    def _start_workers(self) -> None:
        for location in self._engine.locations():
            is_taken = location in self._slots or location in self._unusable
            starting = sum(slot.job is None for slot in self._slots.values())
            if not is_taken and starting < len(self._pending):
                worker = self._engine.start(location)
                self._slots[location] = WorkerSlot(worker, worker.started)
        if self._unusable and not self._slots:
            raise PosirError(f"no worker can be started. {next(reversed(self._unusable.values()))}")
        if not self._slots:
            logger.warning("No workers available; waiting for one")
            time.sleep(POLL_SECONDS)

    def _advance(self, location: Hashable, slot: WorkerSlot) -> Iterator[tuple[Job, JobOutcome]]:
        try:
            outcome = slot.current.result()
        except Exception as error:
            self._slots.pop(location).worker.stop()
            # Ray wraps the errors of its workers.
            reason = summarize_error(getattr(error, "cause", None) or error)
            if slot.job is None:
                self._unusable[location] = f"{location}: {reason}"
                logger.warning("%s", self._unusable[location])
                return
            self._crashes[slot.job] += 1
            if self._crashes[slot.job] < ATTEMPTS:
                logger.warning("%s: its worker crashed (%s); trying again", slot.job, reason)
                self._pending.insert(0, slot.job)
                return
            problem = f"its worker crashed {ATTEMPTS} times, perhaps out of memory ({reason})"
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
            slot.current = slot.worker.submit(slot.job)

    def _take_job(self, previous: Job | None) -> Job:
        """Take the pending job that costs a worker least.

        Loading a model takes minutes, and encoding a corpus takes hours. So a worker keeps its
        model, then its corpus, whose embeddings may be cached on its machine; otherwise it takes
        the corpus and the model that the fewest other workers use.
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


@dataclass(frozen=True)
class EvaluationJob:
    """The evaluation of one model on one subset of a task."""

    model: ModelReference
    task: str
    subset: str
    corpus: str = field(compare=False)
    """Name of the searched corpus; tasks may share a corpus."""

    def __str__(self) -> str:
        return f"{self.model.name} · {self.task} · {self.subset}"

    def run(self, model: MTEBModels, encode_kwargs: EncodeKwargs) -> tuple[TaskResult, Record]:
        """Evaluate the subset. Return the result and the model's metadata, without its loader,
        which may not be picklable.
        """
        result = evaluate_subset(model, self, encode_kwargs)
        return result, model.mteb_model_meta.model_dump(exclude={"loader"})


def evaluate_subset(
    model: MTEBModels, job: EvaluationJob, encode_kwargs: EncodeKwargs
) -> TaskResult:
    """Evaluate one subset of a task like `mteb.evaluate`.

    The task keeps all of its subsets: a filtered task would record the other subsets as missing
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

    def jobs(self) -> list[EvaluationJob]:
        """List all jobs by model, task and subset."""
        subsets = [(task, subset) for task in self.tasks for subset in task.hf_subsets]
        return [
            EvaluationJob(model, task.metadata.name, subset, corpus_name(task, subset))
            for model in self.models
            for task, subset in subsets
        ]


def corpus_name(task: PositionTask, subset: str) -> str:
    """Name the corpus of a subset; tasks that share a corpus get the same name."""
    languages = task.metadata.hf_subsets_to_langscripts[subset]
    return f"{task.metadata.dataset['path']}/{languages[-1]}/{subset}"


def find_workload(
    tasks: Sequence[str],
    benchmarks: Sequence[str],
    models: Sequence[str],
    revision: str | None = None,
) -> Workload:
    """Find tasks and models by name, without duplicates.

    Raises:
        PosirError: No task is given, a name is unknown, or a revision is given for several models.
    """
    if not (tasks or benchmarks):
        raise PosirError(
            "no task is given. Give tasks with -t or benchmarks with -b; `posir tasks` lists them."
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
    """Find the distinct tasks with the given names or in the given benchmarks.

    Raises:
        PosirError: A name is unknown, a task has no evidence positions, or a benchmark has no data.
    """
    import mteb

    from posir_tasks.tasks.base import PositionTask

    all_names = [*names]
    with explain_unknown_task():
        # mteb would build all benchmarks even for an empty list.
        for benchmark in mteb.get_benchmarks(list(benchmarks)) if benchmarks else ():
            for member in benchmark.tasks:
                if isinstance(member, PositionTask):
                    # Warns once about tasks without data; raises if no task has data.
                    if member.benchmark is not None:
                        member.benchmark.check_data()
                    if not member.has_data():
                        continue
                all_names.append(member.metadata.name)
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
    """Convert mteb's error for an unknown name to PosirError."""
    try:
        yield
    except KeyError as error:
        # Some messages of mteb start with the name of the exception.
        message = str(error.args[0]).removeprefix("KeyError: ")
        raise PosirError(f"{message} `posir tasks` lists the tasks.") from error


def find_missing_jobs(workload: Workload, cache: ResultCache) -> list[EvaluationJob]:
    """List the jobs without a result in a folder, by mteb's rules; also restrict each task to the
    subsets in its data.
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
    """Return the subsets of a task without a result for a model; all subsets if the data's revision
    has changed.
    """
    result = cache.load_task_result(task.metadata.name, meta)
    # For local data, the cache has already compared the revisions of the subsets.
    if result is None or not (result.dataset_revision == LOCAL or result.is_mergeable(task)):
        return set(task.hf_subsets)
    return {
        subset for subsets in result.get_missing_evaluations(task).values() for subset in subsets
    }
