"""Saving results: mteb's own files, written whole, and beside what other processes save into the same folder.

mteb opens a result, `model_meta.json` and `run_settings.jsonl` in place, so a process that dies at that moment leaves half a
file, and of two runs into one folder the later one drops what the earlier has finished. Here mteb writes into a folder of its
own, and its files are put in place one by one, in turn with other processes.
"""

from __future__ import annotations

import copy
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_tasks.files import atomic_write, explain_disk_full, folder_lock, remove_stale_parts

if TYPE_CHECKING:
    from mteb.cache import ResultCache
    from mteb.models import ModelMeta
    from mteb.results import TaskResult

logger = logging.getLogger(__name__)

#: What mteb merges into and does not write anew.
MERGED_FILE = "run_settings.jsonl"

#: What mteb raises for a file that is no result of its own.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)

#: When this process began, in seconds since the epoch.
_began = time.time()
#: Result files as this process left them: inode and time of change.
_left: dict[Path, tuple[int, int]] = {}


def add_result(
    cache: ResultCache,
    result: TaskResult,
    model: ModelMeta,
    *,
    order: Sequence[str],
    encode_kwargs: Mapping[str, Any] | None = None,
) -> None:
    """Save a result as mteb does, beside the other subsets that its file holds; safe from any process at any time.

    For results that are computed apart, such as subset by subset on several machines. A subset that the file holds already
    is replaced, and so are results of another revision of the data, as mteb does. Times add up.

    Args:
        cache: Folder of results.
        result: Subsets of a task.
        model: Metadata of the loaded model.
        order: All of the task's subsets, in the order that they have in the file.
        encode_kwargs: As in `mteb.evaluate`.

    Raises:
        PosirError: There is no room.
    """
    file = cache.get_task_result_path(result.task_name, model)
    save = unwrap(type(cache).save_to_cache)
    with folder_lock(file.parent), _saved_beside(cache, file) as (beside, saved):
        save(beside, result, model, encode_kwargs=encode_kwargs)
        whole = merged(file, result)
        for scores in whole.scores.values():
            scores.sort(key=lambda score: order.index(score["hf_subset"]) if score["hf_subset"] in order else len(order))
        whole.to_disk(saved)


def make_save_atomic(save: Callable[..., None]) -> Callable[..., None]:
    """Return mteb's `ResultCache.save_to_cache` made safe.

    What another process has saved into the file since this one saw it is kept. What stood there before is not, unless the
    result holds it: mteb has loaded it under `only-missing`, and under `always` it is to go.
    """

    @wraps(save)
    def save_to_cache(
        cache: ResultCache,
        task_result: TaskResult,
        model_name: str | ModelMeta,
        model_revision: str | None = None,
        **settings: Any,
    ) -> None:
        file = cache.get_task_result_path(task_result.task_name, model_name, model_revision)
        with folder_lock(file.parent), _saved_beside(cache, file) as (beside, saved):
            save(beside, task_result, model_name, model_revision, **settings)
            if _changed_by_others(file):
                with_others(file, task_result).to_disk(saved)

    return save_to_cache


def tolerate_damage(load: Callable[..., TaskResult | None]) -> Callable[..., TaskResult | None]:
    """Return mteb's `ResultCache.load_task_result` made to take a result that cannot be read for one that is not there."""

    @wraps(load)
    def load_task_result(
        cache: ResultCache, task_name: str, model_name: str | ModelMeta, *args: Any, **kwargs: Any
    ) -> TaskResult | None:
        try:
            return load(cache, task_name, model_name, *args, **kwargs)
        except UNREADABLE as error:
            logger.warning(
                "%s, %s: the result cannot be read (%s), as after a run that was killed while it wrote. It is run anew and the "
                "file replaced.",
                cache.cache_path,
                task_name,
                _short(error),
            )
            return None

    return load_task_result


def with_others(file: Path, result: TaskResult) -> TaskResult:
    """Return a result with the other subsets of the result in a file.

    Times and emissions are those of `result`, which may have been saved into the file before.
    """
    return merged(file, result).model_copy(
        update={name: getattr(result, name) for name in ("evaluation_time", "evaluation_phases", "kg_co2_emissions", "date")}
    )


def merged(file: Path, result: TaskResult) -> TaskResult:
    """Return a result merged into the one in a file, if mteb's own rules allow it; otherwise the result."""
    if not file.exists():
        return result
    try:
        return type(result).from_disk(file).merge(result)
    except UNREADABLE as error:
        logger.warning("%s is replaced (%s)", file, _short(error))
        return result


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _changed_by_others(file: Path) -> bool:
    if not file.exists():
        return False
    if file.absolute() in _left:
        return _left[file.absolute()] != _state(file)
    return file.stat().st_mtime >= _began


def _state(file: Path) -> tuple[int, int]:
    return file.stat().st_ino, file.stat().st_mtime_ns


@contextmanager
def _saved_beside(cache: ResultCache, file: Path) -> Iterator[tuple[ResultCache, Path]]:
    """Give a cache that saves into a folder beside, and the result there; its files are put in place, the result last."""
    with explain_disk_full(file), tempfile.TemporaryDirectory(prefix="posir-") as folder:
        beside, saved = copy.copy(cache), Path(folder) / file.name
        beside.get_task_result_path = lambda *_, **__: saved  # type: ignore[method-assign]
        if (file.parent / MERGED_FILE).exists():
            shutil.copyfile(file.parent / MERGED_FILE, saved.parent / MERGED_FILE)
        yield beside, saved
        remove_stale_parts(file.parent)
        for made in sorted(saved.parent.iterdir(), key=lambda path: path == saved):
            with atomic_write(file.parent / made.name) as part:
                shutil.copyfile(made, part)
    _left[file.absolute()] = _state(file)
