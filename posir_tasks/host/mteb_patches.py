"""What is added to mteb: tasks, benchmarks, and bare model names. Called by the start-up hook, module by module."""

from __future__ import annotations

import logging
import re
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from types import ModuleType
from typing import Any

from posir_tasks.host.failures import record_failure
from posir_tasks.models import ModelRegistry
from posir_tasks.tasks.catalogue import builtin_tasks, plugin_tasks

logger = logging.getLogger(__name__)


def add_tasks(module: ModuleType) -> None:
    """Let mteb find PosIR's tasks and those of plugins; they are made when a name is asked for that mteb does not know.

    Args:
        module: `mteb.get_tasks`.
    """
    before = module._TASKS_REGISTRY
    # A chain writes to its first mapping alone.
    registry = Registry(before, LazyTasks(builtin_tasks), LazyTasks(plugin_tasks))  # type: ignore[arg-type]
    of_mteb: list[Any] = [loaded for name, loaded in sys.modules.items() if name.startswith("mteb.")]
    for holder in of_mteb:
        if getattr(holder, "_TASKS_REGISTRY", None) is before:
            holder._TASKS_REGISTRY = registry
        if hasattr(holder, "TASK_LIST"):
            holder.TASK_LIST = TaskList(registry)


def add_benchmarks(module: ModuleType) -> None:
    """Add the benchmarks to `mteb.benchmarks.benchmarks`, which mteb reads when it is first asked for one.

    Args:
        module: `mteb.benchmarks.benchmarks`.
    """
    from mteb.benchmarks import get_benchmark

    from posir_tasks.tasks.benchmarks import benchmarks

    for benchmark in benchmarks():
        setattr(module, re.sub(r"\W+", "_", benchmark.name).upper().strip("_"), benchmark)
    sys.modules[get_benchmark.__module__]._build_registry.cache_clear()


def add_model_references(module: ModuleType) -> None:
    """Let mteb resolve every reference to a model that `posir_tasks.models` knows, such as a name without its organisation.

    Args:
        module: `mteb.models.model_implementations`.
    """
    registry = ModelRegistry(module.MODEL_REGISTRY)
    for name in ("mteb.models.model_implementations", "mteb.models.get_model_meta", "mteb.cache.result_cache"):
        if name in sys.modules:
            setattr(sys.modules[name], "MODEL_REGISTRY", registry)  # noqa: B010


def make_saving_atomic(module: ModuleType) -> None:
    """Let mteb save results whole and in turn with other processes.

    Args:
        module: `mteb.cache.result_cache`.
    """
    from posir_tasks.host.result_saving import make_save_atomic, tolerate_damage

    cache = module.ResultCache
    cache.save_to_cache, cache.load_task_result = make_save_atomic(cache.save_to_cache), tolerate_damage(cache.load_task_result)


class LazyTasks(Mapping[str, type[Any]]):
    """Task classes by name, made at the first question; if that fails, it is told and there are none."""

    def __init__(self, make: Callable[[], dict[str, type[Any]]]) -> None:
        self._make = make
        self._made: dict[str, type[Any]] | None = None

    @property
    def _tasks(self) -> dict[str, type[Any]]:
        if self._made is None:
            # Making them may ask mteb for tasks, which must not begin it anew.
            self._made = {}
            try:
                self._made = self._make()
            except Exception as error:
                record_failure(self._make.__name__, error)
        return self._made

    def __getitem__(self, name: str) -> type[Any]:
        return self._tasks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)


class Registry(ChainMap[str, type[Any]]):
    """mteb's registry, then others; the first that knows a name has it. New names go to mteb's own."""

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(chain.from_iterable(self.maps)))


class TaskList(Sequence[type[Any]]):
    """The classes of a registry as `mteb.get_tasks.TASK_LIST`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[type[Any]]:
        return iter(self._registry.values())

    def __len__(self) -> int:
        return len(self._registry)
