"""What a visitor chooses from: benchmarks, and in each its tasks by language, language pair or dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mteb.benchmarks.benchmark import Benchmark


@dataclass(frozen=True)
class Choice:
    """A task in a group."""

    task: str
    label: str
    averaged: bool
    """Whether it is one of the benchmark's own tasks, over which it averages."""


@dataclass(frozen=True)
class Group:
    """Tasks that are chosen from together."""

    name: str
    """Of the benchmark, where it is one."""
    choose: str
    """What is chosen in it: language, language pair, dataset."""
    about: str
    choices: tuple[Choice, ...]

    @property
    def averaged(self) -> tuple[str, ...]:
        """Tasks of the average."""
        return tuple(choice.task for choice in self.choices if choice.averaged)


def known_groups() -> list[Group]:
    """Return PosIR's benchmarks and the small set; imports mteb."""
    from posir_tasks.languages import PIVOT
    from posir_tasks.tasks.benchmarks import build_benchmarks
    from posir_tasks.tasks.mini import PosIRMini
    from posir_tasks.tasks.posir import CROSS_LINGUAL, MONOLINGUAL
    from posir_tasks.tasks.posq import POSQ_TASKS

    posir, cross_lingual, posq = build_benchmarks()
    languages = {task.metadata.name: language.name for language, task in MONOLINGUAL.items()}
    pairs = {task.metadata.name: f"{language.name} → {PIVOT.name}" for language, task in CROSS_LINGUAL.items()}
    datasets = {task.metadata.name: task.metadata.name for task in POSQ_TASKS}
    mini = PosIRMini.metadata
    only = (Choice(mini.name, mini.name, averaged=False),)
    return [
        _group(posir, "Language", languages),
        _group(cross_lingual, "Language pair", pairs),
        _group(posq, "Dataset", datasets),
        Group(mini.name, "Dataset", str(mini.description), only),
    ]


def _group(benchmark: Benchmark, choose: str, labels: Mapping[str, str]) -> Group:
    averaged = {task.metadata.name for task in benchmark.tasks}
    choices = tuple(Choice(task, label, averaged=task in averaged) for task, label in labels.items())
    return Group(benchmark.name, choose, str(benchmark.description), choices)


def with_others(groups: Iterable[Group], tasks: Iterable[str]) -> list[Group]:
    """Return groups with one more for those tasks that are in none of them, if there are any."""
    groups = list(groups)
    known = {choice.task for group in groups for choice in group.choices}
    others = tuple(Choice(task, task, averaged=False) for task in sorted(set(tasks) - known))
    about = "Tasks that belong to no benchmark of the papers."
    return [*groups, Group("Other tasks", "Task", about, others)] if others else groups
