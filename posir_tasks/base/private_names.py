"""The private names of mteb that posir uses.

Names are resolved lazily, so a missing name only affects the features that use it. `posir doctor`
lists missing names. Each name has a contract test in
`tests/posir_tasks/base/test_private_names.py`. If a patch fails, the failure is recorded and mteb
keeps working.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeVar

from posir_tasks.base.errors import PosirError


def find_mteb_folder() -> Path:
    """Find mteb's package folder without importing mteb, which takes seconds."""
    return Path(str(getattr(find_spec("mteb"), "origin", ""))).parent


@dataclass(frozen=True)
class PrivateName:
    """A private name of mteb."""

    path: str
    """`module:object`, or `module:class().attribute` for attributes set by the constructor."""
    contract: str
    """Behavior that posir relies on."""
    used_by: str
    """Features that need the name."""

    def resolve(self) -> Any:
        """Import the object; raise PosirError if it does not exist in the installed mteb."""
        owner, _, attribute = self.path.partition("().")
        try:
            value = resolve_name(owner)
            return getattr(value(), attribute) if attribute else value
        except (ImportError, AttributeError) as error:
            raise PosirError(
                f"mteb {version('mteb')} has no {self.path}. Not available without it: "
                f"{self.used_by}. Install compatible versions: pip install 'mteb>=2.26.24,<3', and "
                "the newest posir"
            ) from error

    def is_missing(self) -> bool:
        """Return True if the name does not exist in the installed mteb."""
        try:
            self.resolve()
        except PosirError:
            return True
        return False

    def read(self, instance: object) -> Any:
        """Read the attribute from an instance; raise PosirError if the name is missing."""
        self.resolve()
        return getattr(instance, self.path.rpartition(".")[2])


TASKS_REGISTRY = PrivateName(
    "mteb.get_tasks:_TASKS_REGISTRY",
    "A mapping from task names to task classes, which `mteb.get_task` and the command line read "
    "through this name.",
    "tasks by name (`mteb run -t`, `mteb.get_task`, `PositionTask.from_folder`), and safe saving "
    "of their results",
)
TASK_LIST = PrivateName(
    "mteb.get_tasks:TASK_LIST",
    "The iterable of task classes that `mteb.get_tasks` filters.",
    "posir's tasks in `mteb.get_tasks` and `mteb available-tasks`",
)
BENCHMARK_REGISTRY = PrivateName(
    "mteb.benchmarks.get_benchmark:_build_registry",
    "An `lru_cache` of the benchmarks in `mteb.benchmarks.benchmarks`; after `cache_clear` it "
    "reads them again.",
    "posir's benchmarks, if posir_tasks is imported after mteb has looked up a benchmark",
)
MODEL_REGISTRY = PrivateName(
    "mteb.models.model_implementations:MODEL_REGISTRY",
    "A dict from full model names to metadata, which mteb reads with `in` and `[]` through this "
    "name.",
    "references to models other than their full name, such as `-m Qwen3-Embedding-0.6B`",
)
RESOLVE_LOADER = PrivateName(
    "mteb.models.model_meta:ModelMeta._resolve_loader",
    "Returns mteb's loader class, the model type and the modalities, given a model's name and the "
    "contents of its settings files.",
    "models in local folders, such as `-m ./my-model`",
)
EVALUATE_SUBSET = PrivateName(
    "mteb.abstasks.retrieval:AbsTaskRetrieval._evaluate_subset",
    "`evaluate` calls it once per subset and stores the output in the result.",
    "evaluating any of posir's tasks",
)
CREATE_DATALOADER = PrivateName(
    "mteb._create_dataloaders:create_dataloader",
    "Yields the batches of texts that mteb gives to a model's `encode`.",
    "dense models",
)
BM25_TOKENIZER = PrivateName(
    "mteb.models.model_implementations.bm25:BM25Search()._tokenizer",
    "After `index`, its `transform` tokenizes texts as `search` does.",
    "the BM25 first stage of rerankers, and BM25 on all cores (mteb's own search is used instead)",
)

PRIVATE_NAMES: tuple[PrivateName, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, PrivateName)
)

T = TypeVar("T")

#: Newest version of mteb that was tested with posir.
NEWEST_TESTED = "2.26.24"
#: Failed patches of mteb in this process, with reasons.
failures: list[str] = []


def record_failure(patch: str, error: Exception) -> None:
    """Record a failed patch, and print the first one on standard error."""
    if not failures:
        print(
            f"posir: {patch} failed for mteb {get_mteb_version()} ({type(error).__name__}: "
            f"{error}). mteb works without it. Run `posir doctor`, install compatible versions "
            "(`pip install 'mteb>=2.26.24,<3'` and the newest posir), or silence this with "
            "POSIR_AUTOLOAD=0.",
            file=sys.stderr,
        )
    if (failure := f"{patch}: {type(error).__name__}: {error}") not in failures:
        failures.append(failure)


def fall_back(patch: str, function: Callable[..., T], *arguments: Any, otherwise: T) -> T:
    """Call a function for a patch. If it raises, record the error and return `otherwise`, except
    for a PosirError, which propagates.
    """
    try:
        return function(*arguments)
    except PosirError:
        raise
    except Exception as error:  # any change in mteb may cause an error
        record_failure(patch, error)
        return otherwise


def get_mteb_version(otherwise: str = "(of an unknown version)") -> str:
    """Return the version of the installed mteb, or `otherwise` if mteb is not installed."""
    try:
        return version("mteb")
    except PackageNotFoundError:
        return otherwise


def warn_untested_mteb() -> str | None:
    """Return a warning if the installed mteb is newer than `NEWEST_TESTED`, else None."""
    from packaging.version import Version

    installed = get_mteb_version(NEWEST_TESTED)
    if Version(installed) > Version(NEWEST_TESTED):
        return (
            f"mteb {installed} is newer than {NEWEST_TESTED}, the newest that posir was "
            "tested with. If anything fails, run `posir doctor` and install the newest posir."
        )
    return None
