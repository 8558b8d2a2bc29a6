"""Jobs and their outcomes, and the evaluation jobs that a run consists of."""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from posir_tasks.errors import PosirError
from posir_tasks.models.references import ModelReference, portable_name
from posir_tasks.models.registry import find_model

if TYPE_CHECKING:
    from mteb import AbsTask
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels
    from mteb.results import TaskResult
    from mteb.types import EncodeKwargs

    from posir_tasks.tasks.base import PositionTask


class Job(Protocol):
    """The work of a worker on one model. It is hashable, and can be sent to another machine."""

    @property
    def model(self) -> ModelReference:
        """The model, which the worker loads."""

    @property
    def corpus(self) -> str:
        """Name of the texts that are encoded; a worker prefers jobs with the same name, whose embeddings it may have."""

    def run(self, model: MTEBModels, encode_kwargs: EncodeKwargs) -> JobOutcome:
        """Do the job with the loaded model."""


@dataclass(frozen=True)
class JobOutcome:
    """The outcome of a job."""

    job: Job
    warnings: tuple[str, ...] = field(default=(), kw_only=True)
    """Warnings of its worker since the job before."""


@dataclass(frozen=True)
class EvaluationJob:
    """One subset of one task, to be evaluated with one model."""

    model: ModelReference
    task: str
    subset: str
    corpus: str = field(compare=False)
    """Name of the corpus that is searched; equal for tasks that share it."""

    def __str__(self) -> str:
        return f"{self.model.name} · {self.task} · {self.subset}"

    def run(self, model: MTEBModels, encode_kwargs: EncodeKwargs) -> Completed:
        """Evaluate the subset."""
        result = evaluate_subset(model, self, encode_kwargs)
        return Completed(self, result, model.mteb_model_meta.model_dump(exclude={"loader"}))


@dataclass(frozen=True)
class Completed(JobOutcome):
    """An evaluation job with its result."""

    job: EvaluationJob
    result: TaskResult
    """Result of this subset alone."""
    model_meta: dict[str, Any]
    """The fields of the loaded model's metadata without its loader, which cannot always be pickled."""


@dataclass(frozen=True)
class Failed(JobOutcome):
    """A job that ended with an error."""

    reason: str
    restart_worker: bool
    """Whether the worker needs a new process: after a CUDA error, for example, the old one is unusable."""


@dataclass(frozen=True)
class RunRequest:
    """The models and tasks that a user asks for, by name."""

    tasks: Sequence[str]
    benchmarks: Sequence[str]
    models: Sequence[str]
    revision: str | None = None
    """Revision of the model, if there is only one."""


@dataclass(frozen=True)
class Workload:
    """Tasks, and the models to evaluate on them."""

    tasks: Sequence[PositionTask]
    models: Mapping[ModelReference, ModelMeta]

    def jobs(self) -> list[EvaluationJob]:
        """Return all jobs, model by model and task by task."""
        return [
            EvaluationJob(model, task.metadata.name, subset, corpus_name(task, subset))
            for model in self.models
            for task in self.tasks
            for subset in task.hf_subsets
        ]


def corpus_name(task: PositionTask, subset: str) -> str:
    """Return a name of the corpus that a subset's queries search; it is equal for tasks that share the corpus."""
    languages = task.metadata.hf_subsets_to_langscripts[subset]
    return f"{task.metadata.dataset['path']}/{languages[-1]}/{subset}"


def resolve_request(request: RunRequest) -> Workload:
    """Find the requested tasks and models, without duplicates.

    Raises:
        PosirError: A task, benchmark or model does not exist, no task was requested, or one revision was given for
            several models.
    """
    if not (request.tasks or request.benchmarks):
        raise PosirError("no task is given. Name tasks with -t or benchmarks with -b; `posir tasks` lists them.")
    if request.revision and len(request.models) > 1:
        raise PosirError(f"--revision {request.revision}: applies to one model only. Omit it, or give one model.")
    metas = [find_model(ModelReference(name, request.revision)) for name in request.models]
    models = {ModelReference(portable_name(meta), request.revision): meta for meta in metas}
    return Workload(find_tasks(request.tasks, request.benchmarks), models)


def find_tasks(names: Sequence[str], benchmarks: Sequence[str]) -> list[PositionTask]:
    """Return the named tasks and the tasks of the named benchmarks, without duplicates.

    Raises:
        PosirError: A task or benchmark does not exist, has no evidence positions, or there is no data of a benchmark.
    """
    import mteb

    from posir_tasks.tasks.base import PositionTask

    try:
        members = [task for benchmark in mteb.get_benchmarks(list(benchmarks)) for task in benchmark.tasks]
        requested = [*names, *(task.metadata.name for task in members if _is_available(task))]
        tasks = [mteb.get_task(name) for name in dict.fromkeys(requested)]
    except KeyError as error:
        raise PosirError(f"{str(error.args[0]).removeprefix('KeyError: ')} `posir tasks` lists the tasks.") from error
    unsupported = [task.metadata.name for task in tasks if not isinstance(task, PositionTask)]
    if unsupported:
        raise PosirError(f"no evidence positions in {', '.join(unsupported)}. Evaluate such tasks with `mteb run`.")
    return [task for task in tasks if isinstance(task, PositionTask)]


def _is_available(member: AbsTask) -> bool:
    """Return whether there is data for a task of a benchmark; the benchmark's tasks without data are named in one warning.

    Raises:
        DataError: There is none for any task of the benchmark, or the data cannot be reached.
    """
    from posir_tasks.tasks.base import PositionTask

    if not isinstance(member, PositionTask):
        return True
    if member.benchmark is not None:
        member.benchmark.check_data()
    return member.has_data()


def evaluate_subset(model: MTEBModels, job: EvaluationJob, encode_kwargs: EncodeKwargs) -> TaskResult:
    """Evaluate one subset of a task in the same way as `mteb.evaluate`.

    The task keeps all of its subsets: a task filtered to one would record the others as missing from the data.
    """
    import mteb
    from mteb.results import TaskResult
    from mteb.timing import TimingStack

    task = mteb.get_task(job.task)
    timer, started = TimingStack(), time.monotonic()
    scores: dict[str, Any] = {
        split: task.evaluate(model, split, [job.subset], encode_kwargs=encode_kwargs, timer=timer) for split in task.eval_splits
    }
    return TaskResult.from_task_results(
        task,
        scores,
        evaluation_time=time.monotonic() - started,
        date=datetime.datetime.now(tz=datetime.UTC),
        evaluation_phases=timer.phases,
    )
