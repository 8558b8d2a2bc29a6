"""Groups of tasks that a visitor chooses from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from posir_leaderboard.board.records import BoardRecord
from posir_tasks.data.declared import (
    BENCHMARKS,
    BUILTIN,
    MINI,
    MINI_DESCRIPTION,
    POSQ_DATASETS,
    declare_nano,
    declare_posir,
)
from posir_tasks.tasks.catalog import read_language
from posir_tasks.text.languages import LANGUAGES, PIVOT


class Dimension(StrEnum):
    """The property in which the tasks of a group differ."""

    LANGUAGE = "Language"
    PAIR = "Language pair"
    DATASET = "Dataset"
    TASK = "Task"


@dataclass(frozen=True)
class Group:
    """Tasks that a visitor chooses from: a benchmark, by language, language pair or dataset."""

    name: str
    """Name of the benchmark, if it is one."""
    dimension: str
    """A `Dimension`."""
    description: str
    labels: Mapping[str, str]
    """The label of each task."""
    averaged_tasks: tuple[str, ...] = ()
    """The tasks in the average."""

    @property
    def power(self) -> int:
        """2 if the errors of its tasks are independent; 1 for translations of the same queries."""
        return 2 if self.dimension == Dimension.DATASET else 1


def builtin_groups(tasks: Collection[str] = ()) -> list[Group]:
    """Return PosIR's benchmarks, with those of the tasks that are of further languages, and
    PosIR-Mini.
    """
    others = [language for name in sorted(tasks) if (language := read_language(name))]
    languages: dict[str, str] = {}
    pairs: dict[str, str] = {}
    samples: dict[str, str] = {}
    for language in dict.fromkeys((*LANGUAGES, *others)):
        of_language = [
            (languages, declare_posir(language, language), language.name),
            (samples, declare_nano(language), language.name),
        ]
        if language != PIVOT:
            label = f"{language.name} → {PIVOT.name}"
            of_language.append((pairs, declare_posir(language, PIVOT), label))
        for labels, task, label in of_language:
            if task in BUILTIN or task.name in tasks:
                labels[task.name] = label
    datasets = {task.name: task.name for task in POSQ_DATASETS}
    dimensions = (Dimension.LANGUAGE, Dimension.PAIR, Dimension.LANGUAGE, Dimension.DATASET)
    groups = []
    for benchmark, dimension, labels in zip(
        BENCHMARKS, dimensions, (languages, pairs, samples, datasets), strict=True
    ):
        members = {task.name for task in BUILTIN if task.benchmark == benchmark.name}
        averaged = tuple(name for name in labels if name in members)
        groups.append(Group(benchmark.name, dimension, benchmark.description, labels, averaged))
    mini = Group(MINI.name, Dimension.DATASET, MINI_DESCRIPTION, {MINI.name: MINI.name})
    return [*groups, mini]


def add_other_tasks(groups: Iterable[Group], tasks: Iterable[str]) -> list[Group]:
    """Return groups, and one more if there are tasks that are in none of them."""
    groups = list(groups)
    others = set(tasks).difference(*(group.labels for group in groups))
    if not others:
        return groups
    description = "Tasks that belong to no benchmark of the papers."
    labels = {task: task for task in sorted(others)}
    return [*groups, Group("Other tasks", Dimension.TASK, description, labels)]


def add_data_tables(groups: Iterable[Group], records: Iterable[BoardRecord]) -> list[Group]:
    """Return groups in which a task is followed by its results on other data, which `separate_data`
    names apart.
    """
    tables = sorted({(record.base_task, record.task, record.data_name) for record in records})
    extended = []
    for group in groups:
        labels: dict[str, str] = {}
        for task, label in group.labels.items():
            labels[task] = label
            for base_task, table, data in tables:
                if base_task == task:
                    labels[table] = f"{label} (data {data})"
        extended.append(replace(group, labels=labels))
    return extended
