"""The choices of a visitor: benchmarks, and the tasks of each by language, language pair or dataset."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mteb.benchmarks.benchmark import Benchmark


#: Dimension of groups whose tasks are different datasets.
DATASET = "Dataset"


@dataclass(frozen=True)
class TaskChoice:
    """A task in a group."""

    task: str
    label: str
    averaged: bool
    """Whether it is part of the benchmark's average."""


@dataclass(frozen=True)
class Group:
    """Tasks that are offered together."""

    name: str
    """Name of the benchmark, if it is one."""
    dimension: str
    """The property in which its tasks differ: language, language pair, dataset."""
    description: str
    choices: tuple[TaskChoice, ...]

    @property
    def independent(self) -> bool:
        """Whether the tasks have different data; languages have translations of the same queries."""
        return self.dimension == DATASET

    @property
    def averaged_tasks(self) -> tuple[str, ...]:
        """Names of the tasks in the average."""
        return tuple(choice.task for choice in self.choices if choice.averaged)


def builtin_groups(tasks: Collection[str] = ()) -> list[Group]:
    """Return PosIR's benchmarks, with those of the tasks that are of further languages, and PosIR-Mini; imports mteb."""
    from posir_tasks.tasks.catalog import build_benchmarks, find_language_task
    from posir_tasks.tasks.posir import CROSS_LINGUAL, MONOLINGUAL, PosIRMini
    from posir_tasks.tasks.posq import POSQ_TASKS

    posir, cross_lingual, posq = build_benchmarks()
    others = [task for name in sorted(tasks) if (task := find_language_task(name))]
    of_posir = dict.fromkeys([*MONOLINGUAL.values(), *CROSS_LINGUAL.values(), *others])
    names = {task.metadata.name: (task.language.name, task.corpus_language.name) for task in of_posir}
    languages = {name: language for name, (language, corpus) in names.items() if language == corpus}
    pairs = {name: " → ".join(pair) for name, pair in names.items() if len({*pair}) > 1}
    datasets = {task.metadata.name: task.metadata.name for task in POSQ_TASKS}
    mini = PosIRMini.metadata
    only = (TaskChoice(mini.name, mini.name, averaged=False),)
    return [
        _group(posir, "Language", languages),
        _group(cross_lingual, "Language pair", pairs),
        _group(posq, DATASET, datasets),
        Group(mini.name, DATASET, str(mini.description), only),
    ]


def _group(benchmark: Benchmark, dimension: str, labels: Mapping[str, str]) -> Group:
    averaged = {task.metadata.name for task in benchmark.tasks}
    choices = tuple(TaskChoice(task, label, averaged=task in averaged) for task, label in labels.items())
    return Group(benchmark.name, dimension, str(benchmark.description), choices)


def add_other_tasks(groups: Iterable[Group], tasks: Iterable[str]) -> list[Group]:
    """Return groups, and one more if there are tasks that are in none of them."""
    groups = list(groups)
    known = {choice.task for group in groups for choice in group.choices}
    others = tuple(TaskChoice(task, task, averaged=False) for task in sorted(set(tasks) - known))
    description = "Tasks that belong to no benchmark of the papers."
    return [*groups, Group("Other tasks", "Task", description, others)] if others else groups
