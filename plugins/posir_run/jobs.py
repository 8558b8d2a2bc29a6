"""What there is to run: units, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from posir_tasks.errors import PosirError
from posir_tasks.models import ModelReference, find_model

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.results import TaskResult

    from posir_tasks.tasks.base import PositionTask


@dataclass(frozen=True)
class EvaluationJob:
    """One subset of one task, to be evaluated with one model."""

    model: ModelReference
    task: str
    subset: str
    corpus: str = field(compare=False)
    """Name of the documents that are searched; equal for tasks that search the same ones."""

    def __str__(self) -> str:
        return f"{self.model.name} · {self.task} · {self.subset}"


@dataclass(frozen=True)
class Done:
    """A unit's result."""

    unit: EvaluationJob
    result: TaskResult
    """With this one subset."""
    loaded: dict[str, Any]
    """The fields of the loaded model's metadata, except its loader, which not every model's lets itself be sent."""


@dataclass(frozen=True)
class Failed:
    """A unit without a result."""

    unit: EvaluationJob
    why: str
    fresh: bool
    """Whether the worker is to be replaced by a fresh process: after a CUDA error nothing works in the old one."""


Outcome = Done | Failed


@dataclass(frozen=True)
class RunRequest:
    """What a user asked for, by name."""

    tasks: Sequence[str]
    benchmarks: Sequence[str]
    models: Sequence[str]
    revision: str | None = None
    """Of the model; only where there is one."""


@dataclass(frozen=True)
class Work:
    """Tasks to be evaluated with models."""

    tasks: Sequence[PositionTask]
    models: Mapping[ModelReference, ModelMeta]

    def units(self) -> list[EvaluationJob]:
        """Return every unit, model by model and task by task."""
        return [
            EvaluationJob(model, task.metadata.name, subset, corpus_of(task, subset))
            for model in self.models
            for task in self.tasks
            for subset in task.hf_subsets
        ]


def corpus_of(task: PositionTask, subset: str) -> str:
    """Return a name of the documents that a subset's queries are searched in, equal for tasks that share them."""
    languages = task.metadata.hf_subsets_to_langscripts[subset]
    return f"{task.metadata.dataset['path']}/{languages[-1]}/{subset}"


def find(asked: RunRequest) -> Work:
    """Find tasks and models, each once.

    Raises:
        PosirError: There is no such task, benchmark or model, or no task was asked for.
    """
    if not (asked.tasks or asked.benchmarks):
        raise PosirError("no task is given. Name tasks with -t or benchmarks with -b; `posir tasks` lists them.")
    if asked.revision and len(asked.models) > 1:
        raise PosirError(f"--model-revision {asked.revision}: is of one model. Leave it out, or give one model.")
    metas = [find_model(ModelReference(name, asked.revision)) for name in asked.models]
    models = {ModelReference(str(meta.name), asked.revision): meta for meta in metas}
    return Work(find_tasks(asked.tasks, asked.benchmarks), models)


def find_tasks(names: Sequence[str], benchmarks: Sequence[str]) -> list[PositionTask]:
    """Return the tasks of these names and of these benchmarks, each once.

    Raises:
        PosirError: There is no such task or benchmark, or it has no evidence positions.
    """
    import mteb

    from posir_tasks.tasks.base import PositionTask

    try:
        of_benchmarks = [task for benchmark in mteb.get_benchmarks(list(benchmarks)) for task in benchmark.tasks]
        wanted = [*names, *(task.metadata.name for task in of_benchmarks)]
        tasks = [mteb.get_task(name) for name in dict.fromkeys(wanted)]
    except KeyError as error:
        raise PosirError(f"{str(error.args[0]).removeprefix('KeyError: ')} `posir tasks` lists the tasks.") from error
    strangers = [task.metadata.name for task in tasks if not isinstance(task, PositionTask)]
    if strangers:
        raise PosirError(f"no evidence positions in {', '.join(strangers)}. Run what is mteb's own with `mteb run`.")
    return [task for task in tasks if isinstance(task, PositionTask)]
