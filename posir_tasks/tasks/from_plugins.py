"""Tasks that plugins add: asked for, looked at, and refused by name where they would not run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mteb.abstasks.task_metadata import TaskMetadata

from posir_tasks.plugin_api.manager import Plugins
from posir_tasks.tasks.base import PositionTask
from posir_tasks.tasks.metadata import SPLIT, check_name_and_languages

#: What a position scheme must have.
SCHEME = ("axes", "length_buckets", "cells")


@dataclass(frozen=True)
class PluginTask:
    """A task of a plugin."""

    plugin: str
    task: type[PositionTask]


@dataclass(frozen=True)
class PluginTasks:
    """The tasks of all plugins."""

    tasks: dict[str, PluginTask]
    """By the task's name."""
    problems: tuple[str, ...]
    """What was refused: plugin, task and why."""


def find_tasks(plugins: Plugins, taken: dict[str, str]) -> PluginTasks:
    """Ask plugins for their tasks, in order of the plugins' names; the first task of a name stays.

    Args:
        plugins: To be asked.
        taken: Names that are in use, and who uses them.
    """
    tasks: dict[str, PluginTask] = {}
    problems = []
    for plugin, caller in plugins.callers("posir_task_classes"):
        try:
            given = classes_in(caller())
        except Exception as error:
            problems.append(f"plugin '{plugin}' could not give its tasks: {type(error).__name__}: {error}")
            continue
        for task in given:
            users = taken | {name: f"plugin '{known.plugin}'" for name, known in tasks.items()}
            problem = problem_of(task, users)
            if problem:
                problems.append(f"plugin '{plugin}': {problem}")
            else:
                tasks[task.metadata.name] = PluginTask(plugin, task)
    return PluginTasks(tasks, tuple(problems))


def classes_in(answers: list[Any]) -> list[Any]:
    """Return what one plugin gave.

    Raises:
        TypeError: It gave no list.
    """
    if not answers or any(isinstance(answer, str | type) for answer in answers):
        raise TypeError("posir_task_classes must return a list of task classes")
    return [task for answer in answers for task in answer]


def problem_of(task: Any, taken: dict[str, str]) -> str | None:
    """Return why a task cannot be used, None if it can."""
    if not (isinstance(task, type) and issubclass(task, PositionTask)):
        return f"{task!r} is not a task class; a task is a subclass of posir_tasks.PositionTask"
    where = f"task {task.__module__}.{task.__qualname__}"
    lacks = lacking(task)
    if lacks:
        return f"{where} lacks {', '.join(lacks)}"
    name = task.metadata.name
    if name in taken:
        return f"{where}: the name '{name}' is taken by {taken[name]}, which keeps it; choose another"
    if list(task.metadata.eval_splits) != [SPLIT]:
        return f"{where}: its metadata has eval_splits={task.metadata.eval_splits}; position-aware tasks have ['{SPLIT}']"
    try:
        check_name_and_languages(task.metadata)
        task()
    except Exception as error:
        return f"{where} cannot be made: {type(error).__name__}: {error}"
    return None


def lacking(task: type[PositionTask]) -> list[str]:
    """Return what a task class must have and has not."""
    scheme = getattr(task, "scheme", None)
    has_scheme = not isinstance(scheme, type) and all(hasattr(scheme, part) for part in SCHEME)
    has_metadata = isinstance(getattr(task, "metadata", None), TaskMetadata)
    return [
        *([] if has_metadata else ["`metadata`, a TaskMetadata of mteb"]),
        *([] if has_scheme else ["`scheme`, an object such as RelativePositions()"]),
        *(f"`{name}`" for name in sorted(task.__abstractmethods__)),
    ]
