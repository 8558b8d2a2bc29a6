"""All position-aware tasks: the built-in ones and those of plugins. Importing this module does not import mteb."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING

from posir_tasks.plugin_api.manager import loaded_plugins

if TYPE_CHECKING:
    from posir_tasks.tasks.base import PositionTask
    from posir_tasks.tasks.from_plugins import PluginTasks

logger = logging.getLogger(__name__)


def builtin_task_classes() -> tuple[type[PositionTask], ...]:
    """Return the built-in task classes."""
    from posir_tasks.tasks.mini import PosIRMini
    from posir_tasks.tasks.posir import CROSS_LINGUAL, MONOLINGUAL
    from posir_tasks.tasks.posq import POSQ_TASKS

    return (*MONOLINGUAL.values(), *CROSS_LINGUAL.values(), *POSQ_TASKS, PosIRMini)


def builtin_tasks() -> dict[str, type[PositionTask]]:
    """Return the built-in task classes by name."""
    return {task.metadata.name: task for task in builtin_task_classes()}


@cache
def checked_plugin_tasks() -> PluginTasks:
    """Collect the tasks of the installed plugins, and why tasks were refused, once per process."""
    from mteb import AbsTask
    from mteb import tasks as mteb_tasks

    from posir_tasks.tasks.from_plugins import collect_tasks

    of_mteb = [task for task in vars(mteb_tasks).values() if isinstance(task, type) and issubclass(task, AbsTask)]
    taken = {task.metadata.name: task.__module__ for task in (*of_mteb, *builtin_task_classes())}
    return collect_tasks(loaded_plugins(), taken)


@cache
def plugin_tasks() -> dict[str, type[PositionTask]]:
    """Return the usable task classes of plugins by name, and warn about each refused one, once per process."""
    found = checked_plugin_tasks()
    for problem in found.problems:
        logger.warning("posir %s", problem)
    return {name: added.task for name, added in found.tasks.items()}
