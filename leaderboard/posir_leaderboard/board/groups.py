"""Groups of tasks on the page."""

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
    """The property that distinguishes the tasks of a group."""

    LANGUAGE = "Language"
    PAIR = "Language pair"
    DATASET = "Dataset"
    TASK = "Task"


@dataclass(frozen=True)
class Group:
    """Tasks that a visitor chooses from, such as the languages of a benchmark."""

    name: str
    """The benchmark, if the group is one."""
    dimension: str
    """A `Dimension`."""
    description: str
    labels: Mapping[str, str]
    """The label of each task."""
    averaged_tasks: tuple[str, ...] = ()
    """The tasks in the average."""

    @property
    def power(self) -> int:
        """2 if the tasks have independent errors, 1 for translations of the same queries."""
        return 2 if self.dimension == Dimension.DATASET else 1


def builtin_groups(tasks: Collection[str] = ()) -> list[Group]:
    """Return PosIR's benchmarks, extended by tasks in other languages, and PosIR-Mini."""
    added_languages = [language for name in sorted(tasks) if (language := read_language(name))]
    languages: dict[str, str] = {}
    pairs: dict[str, str] = {}
    samples: dict[str, str] = {}
    for language in dict.fromkeys((*LANGUAGES, *added_languages)):
        choices = [
            (languages, declare_posir(language, language), language.name),
            (samples, declare_nano(language), language.name),
        ]
        if language != PIVOT:
            label = f"{language.name} → {PIVOT.name}"
            choices.append((pairs, declare_posir(language, PIVOT), label))
        for labels, task, label in choices:
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
    """Append a group for the tasks that belong to no other group."""
    groups = list(groups)
    other_tasks = set(tasks).difference(*(group.labels for group in groups))
    if not other_tasks:
        return groups
    description = "Tasks that belong to no benchmark of the papers."
    labels = {task: task for task in sorted(other_tasks)}
    return [*groups, Group("Other tasks", Dimension.TASK, description, labels)]


def add_data_tables(groups: Iterable[Group], records: Iterable[BoardRecord]) -> list[Group]:
    """Insert the tables for results on other data, named by `separate_data`, after their task."""
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
