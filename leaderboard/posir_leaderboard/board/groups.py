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
    """The name of a benchmark, or of another group."""
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


def list_builtin_groups(tasks: Collection[str] = ()) -> list[Group]:
    """List PosIR's benchmarks and PosIR-Mini; `tasks` in other languages are added."""
    benchmarks = {task.name: task.benchmark for task in BUILTIN}
    added_languages = map(read_language, sorted(tasks))
    languages = dict.fromkeys(filter(None, (*LANGUAGES, *added_languages)))
    # In the order of `BENCHMARKS`.
    choices = (
        (Dimension.LANGUAGE, {declare_posir(each, each).name: each.name for each in languages}),
        (
            Dimension.PAIR,
            {
                declare_posir(each, PIVOT).name: f"{each.name} → {PIVOT.name}"
                for each in languages
                if each != PIVOT
            },
        ),
        (Dimension.LANGUAGE, {declare_nano(each).name: each.name for each in languages}),
        (Dimension.DATASET, {task.name: task.name for task in POSQ_DATASETS}),
    )
    groups = []
    for benchmark, (dimension, names) in zip(BENCHMARKS, choices, strict=True):
        labels = {
            name: label for name, label in names.items() if name in benchmarks or name in tasks
        }
        averaged = tuple(name for name in labels if benchmarks.get(name) == benchmark.name)
        groups.append(Group(benchmark.name, dimension, benchmark.description, labels, averaged))
    mini = Group(MINI.name, Dimension.DATASET, MINI_DESCRIPTION, {MINI.name: MINI.name})
    return [*groups, mini]


def add_other_tasks(groups: Iterable[Group], tasks: Iterable[str]) -> list[Group]:
    """Append a group with the tasks that are in no other group."""
    groups = list(groups)
    other_tasks = sorted(set(tasks).difference(*(group.labels for group in groups)))
    if other_tasks:
        description = "Tasks that belong to no benchmark of the papers."
        labels = dict(zip(other_tasks, other_tasks, strict=True))
        groups.append(Group("Other tasks", Dimension.TASK, description, labels))
    return groups


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
