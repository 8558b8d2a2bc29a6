"""Groups of tasks that a visitor chooses from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from posir_leaderboard.board.records import BoardRecord


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
    PosIR-Mini; imports mteb.
    """
    from posir_tasks.tasks.catalog import build_benchmarks, find_language_task
    from posir_tasks.tasks.nano import NANO, NanoTask
    from posir_tasks.tasks.posir import CROSS_LINGUAL, MONOLINGUAL, PosIRMini
    from posir_tasks.tasks.posq import POSQ_TASKS

    others = [task for name in sorted(tasks) if (task := find_language_task(name))]
    languages: dict[str, str] = {}
    pairs: dict[str, str] = {}
    samples: dict[str, str] = {}
    for task in (*MONOLINGUAL.values(), *CROSS_LINGUAL.values(), *NANO.values(), *others):
        name = task.metadata.name
        language = task.language.name
        if issubclass(task, NanoTask):
            samples[name] = language
        elif task.corpus_language.name == language:
            languages[name] = language
        else:
            pairs[name] = f"{language} → {task.corpus_language.name}"
    datasets = {task.metadata.name: task.metadata.name for task in POSQ_TASKS}
    dimensions = (Dimension.LANGUAGE, Dimension.PAIR, Dimension.LANGUAGE, Dimension.DATASET)
    labels = (languages, pairs, samples, datasets)
    groups = []
    for benchmark, dimension, of_task in zip(build_benchmarks(), dimensions, labels, strict=True):
        members = {task.metadata.name for task in benchmark.tasks}
        averaged = tuple(name for name in of_task if name in members)
        description = str(benchmark.description)
        groups.append(Group(benchmark.name, dimension, description, of_task, averaged))
    mini = PosIRMini.metadata
    label = {mini.name: mini.name}
    return [*groups, Group(mini.name, Dimension.DATASET, str(mini.description), label)]


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
