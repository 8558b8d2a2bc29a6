"""All position-aware tasks: built-in, of other languages, and of plugins. Importing this module does not import mteb."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from posir_tasks.errors import PosirError, summarize_error
from posir_tasks.plugin_api.manager import loaded_plugins

if TYPE_CHECKING:
    from posir_tasks.sources.repository import HubRepository
    from posir_tasks.tasks.base import PositionTask
    from posir_tasks.tasks.from_plugins import PluginTasks
    from posir_tasks.tasks.posir import PosirTask

logger = logging.getLogger(__name__)

#: Of the names of tasks of the PosIR layout.
PREFIX = "PosIR-"


def builtin_task_classes() -> tuple[type[PositionTask], ...]:
    """Return the built-in task classes."""
    from posir_tasks.tasks.mini import PosIRMini
    from posir_tasks.tasks.posir import CROSS_LINGUAL, MONOLINGUAL
    from posir_tasks.tasks.posq import POSQ_TASKS

    return (*MONOLINGUAL.values(), *CROSS_LINGUAL.values(), *POSQ_TASKS, PosIRMini)


def builtin_tasks() -> dict[str, type[PositionTask]]:
    """Return the built-in task classes by name."""
    return {task.metadata.name: task for task in builtin_task_classes()}


def find_language_task(name: str) -> type[PosirTask] | None:
    """Return the task `PosIR-<Language>` or `PosIR-<Language>-English` of any language; None if the name is no such name."""
    if not name.startswith(PREFIX):
        return None
    from posir_tasks.languages import PIVOT, find_language
    from posir_tasks.tasks.posir import build_posir_task

    language_name = name.removeprefix(PREFIX).removesuffix(f"-{PIVOT.name}")
    language = find_language(language_name, list_languages)
    if language is None:
        return None
    task = build_posir_task(language, PIVOT if name.endswith(f"-{PIVOT.name}") else language)
    return task if task.metadata.name == name else None


def find_task(name: str) -> type[PositionTask] | None:
    """Return a task of posir by its name, of any language; None if there is none. Tasks of plugins are not found."""
    return builtin_tasks().get(name) or find_language_task(name)


def language_tasks() -> dict[str, type[PosirTask]]:
    """Return the task classes of the languages that the papers lack and the data or a plugin has, by name.

    The data is the local folder, or the dataset's listing on the Hub; if that cannot be reached, it has none.
    """
    from posir_tasks.languages import PIVOT, name_languages
    from posir_tasks.tasks.posir import build_posir_task

    domains = list_languages()
    english = domains.get(PIVOT.code, frozenset())
    tasks, plugin_codes = [], plugin_languages().codes
    for language in name_languages([*domains, *plugin_codes]):
        tasks.append(build_posir_task(language, language))
        if language.code in plugin_codes or english & domains[language.code]:
            tasks.append(build_posir_task(language, PIVOT))
    return {task.metadata.name: task for task in tasks}


def list_languages() -> dict[str, frozenset[str]]:
    """Return the domains in the data by the code of their language; none if the data cannot be reached."""
    from posir_tasks.sources.posir import REPO_ID, REVISION
    from posir_tasks.sources.repository import HubRepository, open_repository

    repository = open_repository(REPO_ID, REVISION)
    paths = _hub_paths(repository) if isinstance(repository, HubRepository) else repository.paths()
    domains: dict[str, set[str]] = {}
    for path in paths:
        match path.split("/"):
            case [language, domain, "queries.parquet"] if not domain.startswith("."):
                domains.setdefault(language, set()).add(domain)
    return {language: frozenset(names) for language, names in domains.items()}


@cache
def _hub_paths(repository: HubRepository) -> list[str]:
    try:
        return repository.paths()
    except PosirError as error:
        logger.info("languages on the Hub are not listed: %s", error)
        return []


@dataclass(frozen=True)
class PluginLanguages:
    """Languages that plugins name."""

    codes: tuple[str, ...]
    problems: tuple[str, ...]
    """Messages that name the plugin and the reason for each refused code or failed hook."""


@cache
def plugin_languages() -> PluginLanguages:
    """Collect the languages that the installed plugins name, and warn about each refused one, once per process."""
    from posir_tasks.languages import check_code

    codes, problems = [], []
    for plugin, caller in loaded_plugins().callers("posir_languages"):
        try:
            for code in [code for answer in caller() for code in answer]:
                check_code(code)
                codes.append(code)
        except Exception as error:
            problems.append(f"plugin '{plugin}': posir_languages: {summarize_error(error)}")
            logger.warning("posir %s", problems[-1])
    return PluginLanguages(tuple(codes), tuple(problems))


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
    checked = checked_plugin_tasks()
    for problem in checked.problems:
        logger.warning("posir %s", problem)
    return {name: added.task for name, added in checked.tasks.items()}
