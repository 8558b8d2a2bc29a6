"""Position-aware tasks and benchmarks: built-in, in additional languages, and from plugins.

This module does not import mteb.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.private_names import TASKS_REGISTRY, find_mteb_folder
from posir_tasks.base.wording import suggest_name
from posir_tasks.data.repository import is_hub_name
from posir_tasks.plugin_api import Plugins, get_plugins

if TYPE_CHECKING:
    from mteb.benchmarks.benchmark import Benchmark

    from posir_tasks.data.declared import DeclaredTask
    from posir_tasks.data.repository import HubRepository
    from posir_tasks.tasks.base import PositionTask
    from posir_tasks.tasks.posir import PosirTask
    from posir_tasks.text.languages import Language

logger = logging.getLogger(__name__)

#: Prefix of the names of PosIR's tasks.
PREFIX = "PosIR-"
#: Advice on the accepted kinds of data.
SUPPORTED_DATA = (
    "Give a task, which `posir tasks` lists, a dataset on the Hub (owner/name), or a file or "
    "folder, in the formats of "
    "`posir inspect --help` for texts and `posir import --help` for questions."
)
#: Plugin name and task class, by task name.
PluginTasks: TypeAlias = "dict[str, tuple[str, type[PositionTask]]]"


def builtin_task_classes() -> tuple[type[PositionTask], ...]:
    """Import and return the built-in task classes."""
    from posir_tasks.tasks.nano import NANO
    from posir_tasks.tasks.posir import CROSS_LINGUAL, MONOLINGUAL, PosIRMini
    from posir_tasks.tasks.posq import POSQ_TASKS
    from posir_tasks.tasks.published import PUBLISHED_TASKS

    return (
        *MONOLINGUAL.values(),
        *CROSS_LINGUAL.values(),
        *POSQ_TASKS,
        PosIRMini,
        *NANO.values(),
        *PUBLISHED_TASKS,
    )


def load_builtin_tasks() -> dict[str, type[PositionTask]]:
    """Return the built-in task classes by name."""
    return {task.metadata.name: task for task in builtin_task_classes()}


def read_language(name: str) -> Language | None:
    """Return the language in a task name such as `PosIR-German`, or None."""
    if not name.startswith(PREFIX):
        return None
    from posir_tasks.data.declared import NANO_SUFFIX
    from posir_tasks.text.languages import PIVOT, find_language

    language = name.removeprefix(PREFIX).removesuffix(NANO_SUFFIX).removesuffix(f"-{PIVOT.name}")
    return find_language(language, lambda: [*list_languages(), *collect_plugin_languages()[0]])


def find_language_task(name: str) -> type[PosirTask] | None:
    """Return the task `PosIR-<Language>`, also with `-English` or `-Nano`, or None."""
    language = read_language(name)
    if language is None:
        return None
    from posir_tasks.data.declared import NANO_SUFFIX
    from posir_tasks.tasks.nano import build_nano_task
    from posir_tasks.tasks.posir import build_posir_task
    from posir_tasks.text.languages import PIVOT

    corpus_language = PIVOT if name.endswith(f"-{PIVOT.name}") else language
    full = build_posir_task(language, corpus_language)
    task = build_nano_task(language) if name.endswith(NANO_SUFFIX) else full
    return task if task.metadata.name == name else None


def find_task(name: str) -> type[PositionTask] | None:
    """Find a task of posir by name, in any language, or return None. Plugins are not searched."""
    return load_builtin_tasks().get(name) or find_language_task(name)


def name_larger_task(name: str) -> str:
    """Name the next larger task, such as PosIR-English-Nano for PosIR-Mini; empty if none."""
    if not name.startswith(PREFIX) and "-PosQ" not in name:
        return ""
    stem, _, size = name.rpartition("-")
    return {"Mini": f"{stem}-English-Nano", "Nano": stem, "Tiny": stem}.get(size, "")


def require_task(name: str) -> type[PositionTask]:
    """Find a task of posir or a plugin by name. Raise PosirError if it does not exist."""
    task = find_task(name) or collect_plugin_tasks().get(name)
    if task is None:
        raise PosirError(f"{name}: no task with evidence positions. `posir tasks` lists them.")
    return task


def raise_if_missing(data: str) -> None:
    """Raise PosirError, with the most similar name, unless `data` is a file, folder or task, or may
    be a dataset on the Hub.

    mteb's task names are searched in its source code, since importing mteb takes seconds.
    """
    path = Path(data).expanduser()
    if path.is_dir() and not any(path.iterdir()):
        raise PosirError(f"{data} has no files.{describe_hidden_task(data)}\n{SUPPORTED_DATA}")
    if path.exists() or is_hub_name(data):
        return
    tasks = [] if "/" in data or path.suffix else [task.name for task in declare_tasks()]
    if tasks and (data in tasks or read_language(data) or _is_mteb_task(data)):
        return
    kinds = "file, folder or task" if tasks else "file or folder"
    files = [entry.name for entry in path.parent.glob("*")]
    advice = suggest_name(path.name, [*files, *tasks])
    raise PosirError(f"{data}: no such {kinds}.{advice}\n{SUPPORTED_DATA}")


def _is_mteb_task(name: str) -> bool:
    if "mteb" in sys.modules:
        return name in TASKS_REGISTRY.resolve()
    return any(
        f'"{name}"' in module.read_text(encoding="utf-8")
        for module in find_mteb_folder().glob("tasks/**/*.py")
    )


def describe_hidden_task(name: str) -> str:
    """Return a warning if a file or folder hides the task of this name; empty if not."""
    hides = any(task.name == name for task in declare_tasks())
    return " It hides the task of this name: rename it, or run in another folder." if hides else ""


def find_language_tasks() -> dict[str, type[PosirTask]]:
    """Return the tasks in additional languages by name. The data or a plugin adds a language."""
    return {
        declaration.name: task
        for declaration in declare_language_tasks()
        if (task := find_language_task(declaration.name))
    }


def declare_language_tasks() -> list[DeclaredTask]:
    """Declare the tasks in additional languages. A task with the English corpus is only declared if
    that corpus has one of the language's domains, or if a plugin adds the language.
    """
    from posir_tasks.data.declared import declare_nano, declare_posir
    from posir_tasks.text.languages import PIVOT, name_languages

    tasks: list[DeclaredTask] = []
    domains = list_languages()
    plugin_codes, _ = collect_plugin_languages()
    english = domains.get(PIVOT.code, frozenset())
    for language in name_languages([*domains, *plugin_codes]):
        tasks.append(declare_posir(language, language))
        if language.code in plugin_codes or english & domains[language.code]:
            tasks.append(declare_posir(language, PIVOT))
        tasks.append(declare_nano(language))
    return tasks


def declare_tasks() -> list[DeclaredTask]:
    """Declare all tasks: built-in, in additional languages, and from plugins. This imports mteb
    only if a plugin adds tasks.
    """
    from posir_tasks.data.declared import BUILTIN, DeclaredTask

    tasks = [*BUILTIN, *declare_language_tasks()]
    for task in collect_plugin_tasks().values():
        metadata = task.metadata
        dataset = metadata.dataset
        tasks.append(
            DeclaredTask(metadata.name, dataset["path"], dataset["revision"], metadata.eval_langs)
        )
    return tasks


def list_languages() -> dict[str, frozenset[str]]:
    """Return the domains in the data by language code; empty if the data cannot be reached."""
    from posir_tasks.data.declared import REPO_ID, REVISION
    from posir_tasks.data.repository import HubRepository, open_repository

    repository = open_repository(REPO_ID, REVISION)
    paths = (
        _list_hub_paths(repository)
        if isinstance(repository, HubRepository)
        else repository.list_paths()
    )
    domains: dict[str, set[str]] = {}
    for path in paths:
        match path.split("/"):
            case [language, domain, "queries.parquet"] if not domain.startswith("."):
                domains.setdefault(language, set()).add(domain)
    return {language: frozenset(names) for language, names in domains.items()}


@cache
def _list_hub_paths(repository: HubRepository) -> list[str]:
    try:
        return repository.list_paths()
    except PosirError as error:
        logger.info("languages on the Hub are not listed: %s", error)
        return []


@cache
def collect_plugin_languages() -> tuple[list[str], list[str]]:
    """Return the language codes that plugins add, and the problems. Log each problem once."""
    from posir_tasks.text.languages import check_code

    codes = []
    problems = []
    for plugin, caller in get_plugins().iterate_callers("posir_languages"):
        try:
            for plugin_codes in caller():
                for code in plugin_codes:
                    check_code(code)
                    codes.append(code)
        except Exception as error:
            problems.append(f"plugin '{plugin}': posir_languages: {summarize_error(error)}")
            logger.warning("posir %s", problems[-1])
    return codes, problems


@cache
def collect_plugin_tasks() -> dict[str, type[PositionTask]]:
    """Return the plugins' valid task classes by name. Log each problem once."""
    tasks, problems = check_plugin_tasks()
    for problem in problems:
        logger.warning("posir %s", problem)
    return {name: task for name, (_, task) in tasks.items()}


@cache
def check_plugin_tasks() -> tuple[PluginTasks, list[str]]:
    """Return the valid tasks of the installed plugins, and the problems with other tasks."""
    if not list(get_plugins().iterate_callers("posir_task_classes")):
        return {}, []
    from mteb import AbsTask
    from mteb import tasks as mteb_tasks

    classes = [
        task
        for task in vars(mteb_tasks).values()
        if isinstance(task, type) and issubclass(task, AbsTask)
    ]
    classes += builtin_task_classes()
    owners = {task.metadata.name: task.__module__ for task in classes}
    return collect_tasks(get_plugins(), owners)


def collect_tasks(plugins: Plugins, owners: dict[str, str]) -> tuple[PluginTasks, list[str]]:
    """Return the plugins' valid tasks by name, and a message for each invalid task.

    The keys of `owners` are the names of existing tasks, its values their modules.
    """
    owners = dict(owners)
    tasks: PluginTasks = {}
    problems = []
    for plugin, caller in plugins.iterate_callers("posir_task_classes"):
        try:
            results = caller()
            if not results:
                raise TypeError("posir_task_classes must return a list of task classes")
            classes = [task for result in results for task in result]
        except Exception as error:
            problems.append(
                f"plugin '{plugin}' could not provide its tasks: {type(error).__name__}: {error}"
            )
            continue
        for task in classes:
            problem = _find_problem(task, owners)
            if problem:
                problems.append(f"plugin '{plugin}': {problem}")
            else:
                name = task.metadata.name
                tasks[name] = (plugin, task)
                owners[name] = f"plugin '{plugin}'"
    return tasks, problems


def _find_problem(task: Any, owners: Mapping[str, str]) -> str | None:
    from mteb.abstasks.task_metadata import TaskMetadata

    from posir_tasks.data.task_metadata import check_name_and_languages
    from posir_tasks.tasks.base import PositionTask
    from posir_tasks.values.result_schema import SPLIT

    if not (isinstance(task, type) and issubclass(task, PositionTask)):
        return f"{task!r} is not a task class; a task is a subclass of posir_tasks.PositionTask"
    where = f"task {task.__module__}.{task.__qualname__}"
    missing = []
    if not isinstance(getattr(task, "metadata", None), TaskMetadata):
        missing.append("`metadata`, a TaskMetadata of mteb")
    scheme = getattr(task, "scheme", None)
    attributes = ("axes", "length_buckets", "cells")
    if isinstance(scheme, type) or not all(hasattr(scheme, name) for name in attributes):
        missing.append("`scheme`, an object such as RelativePositions()")
    missing += [f"`{name}`" for name in sorted(task.__abstractmethods__)]
    if missing:
        return f"{where} lacks {', '.join(missing)}"
    name = task.metadata.name
    if name in owners:
        return f"{where}: the name '{name}' is taken by {owners[name]}; choose another"
    if list(task.metadata.eval_splits) != [SPLIT]:
        return (
            f"{where}: its metadata has eval_splits={task.metadata.eval_splits}; position-aware "
            f"tasks have ['{SPLIT}']"
        )
    try:
        check_name_and_languages(task.metadata)
        task()
    except Exception as error:
        return f"{where} cannot be created: {type(error).__name__}: {error}"
    return None


def build_benchmarks() -> list[Benchmark]:
    """Build mteb's benchmarks from the built-in tasks. Tasks without data are skipped."""
    from mteb.benchmarks.benchmark import Benchmark
    from mteb.get_tasks import get_tasks

    from posir_tasks.data.declared import BENCHMARKS, BUILTIN
    from posir_tasks.tasks.base import BenchmarkTasks, PositionTask

    benchmarks = []
    for declaration in BENCHMARKS:
        name = declaration.name
        instances = get_tasks([task.name for task in BUILTIN if task.benchmark == name])
        group = BenchmarkTasks(name, [task for task in instances if isinstance(task, PositionTask)])
        for task in group.tasks:
            task.benchmark = group
        benchmarks.append(
            Benchmark(
                name,
                tasks=instances,
                description=declaration.description,
                reference=f"https://arxiv.org/abs/{declaration.arxiv}",
                citation=declaration.citation,
            )
        )
    return benchmarks
