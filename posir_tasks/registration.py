"""What is added to mteb: tasks, benchmarks, and bare model names. Called by the start-up hook, module by module."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from types import ModuleType
from typing import Any


def task_classes() -> tuple[type[Any], ...]:
    """Return PosIR's task classes."""
    from posir_tasks.tasks.mini import PosIRMini
    from posir_tasks.tasks.posir import CROSS_LINGUAL, MONOLINGUAL
    from posir_tasks.tasks.posq import POSQ_TASKS

    return (*MONOLINGUAL.values(), *CROSS_LINGUAL.values(), *POSQ_TASKS, PosIRMini)


def add_tasks(module: ModuleType) -> None:
    """Add the task classes to `mteb.tasks`, and to the registry if mteb has made it already.

    Args:
        module: `mteb.tasks`.
    """
    classes = task_classes()
    for task in classes:
        setattr(module, task.__name__, task)
    registry = sys.modules.get("mteb.get_tasks")
    if registry is not None and hasattr(registry, "_TASKS_REGISTRY"):
        registry._TASKS_REGISTRY.update({task.metadata.name: task for task in classes})
        registry.TASK_LIST = (*registry.TASK_LIST, *classes)  # type: ignore[attr-defined]


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


def add_bare_model_names(module: ModuleType) -> None:
    """Let mteb's model registry find `org/name` under `name`, where only one model has that name.

    Args:
        module: `mteb.models.model_implementations`.
    """
    registry = BareNames(module.MODEL_REGISTRY)
    for name in ("mteb.models.model_implementations", "mteb.models.get_model_meta", "mteb.cache.result_cache"):
        if name in sys.modules:
            setattr(sys.modules[name], "MODEL_REGISTRY", registry)  # noqa: B010


class BareNames(dict[str, Any]):
    """A registry whose keys are also found by the part after the slash; what it holds and yields is unchanged."""

    def __init__(self, registry: Mapping[str, Any]) -> None:
        super().__init__(registry)
        names = [key.split("/")[-1] for key in registry]
        unique = {name for name, count in Counter(names).items() if count == 1}
        self._full = {name: key for name, key in zip(names, registry, strict=True) if name in unique}

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self._full

    def __missing__(self, key: str) -> Any:
        return self[self._full[key]]
