"""Atomic saving of results in mteb's own files, safe while other processes save into the
same folder.

mteb overwrites a result, `model_meta.json` and `run_settings.jsonl` in place: a process that is
killed while it writes leaves an incomplete file, and of two runs into one folder, the later one
drops the subsets that the earlier one has saved. Here mteb writes into a temporary folder next to
them, and its files are moved into place one by one, under a lock. Only results of posir's tasks are
saved and loaded this way; for all others, mteb's own methods are called.

A result that was computed on other data is never lost: a subset is replaced only by one on other
data of the same name, and the file before is kept next to the new one. Results of the Hub's data
are never replaced by those of local data.
"""

from __future__ import annotations

import copy
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, wraps
from inspect import unwrap
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_tasks.base.errors import PosirError, hide_tracebacks, summarize_error
from posir_tasks.base.files import (
    PART_SUFFIX,
    atomic_write,
    explain_disk_full,
    find_free_name,
    folder_lock,
    remove_stale_parts,
    write_text,
)
from posir_tasks.base.private_names import TASKS_REGISTRY, step_aside
from posir_tasks.base.untrusted import read_json
from posir_tasks.data.repository import DATA_VARIABLE, LOCAL, DataState
from posir_tasks.values.result_schema import (
    REVISION_KEY,
    ROTATIONS_KEY,
    RUN_KEY,
    TOKENS_READ_SUFFIX,
)
from posir_tasks.values.rotation_ranks import read_sample_size
from posir_tasks.values.schemes import RelativePositions
from posir_tasks.values.tokens_read import CorpusRead

if TYPE_CHECKING:
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.cache import ResultCache
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels
    from mteb.results import TaskResult


logger = logging.getLogger(__name__)

#: The file to which mteb adds rows instead of writing it anew.
APPENDED_FILE = "run_settings.jsonl"

#: Prefix of the temporary folders.
PREFIX = ".posir-"
#: Fields of a result that are sums over its subsets, or of its last one.
TOTALS = ("evaluation_time", "evaluation_phases", "kg_co2_emissions", "date")

#: Inode and time of modification, in nanoseconds.
FileState = tuple[int, int]
#: What mteb raises for a file that is not a result.
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
#: Why a run on local data is refused.
ORIGIN_ADVICE = (
    "holds results of the Hub's data, which those of local data neither replace nor join. Give "
    f"another --output-folder for this data, or unset {DATA_VARIABLE}."
)
#: How the data of each saved subset relates to the present data.
States = Mapping[str, DataState]


@dataclass
class ResultSaver:
    """Saves results, and knows which of them other processes have changed in its lifetime."""

    started: float = field(default_factory=time.time)
    """Seconds since the epoch."""
    _saved: dict[Path, FileState] = field(default_factory=dict)
    """Result files as this object last saved them."""
    used: dict[Path, None] = field(default_factory=dict)
    """Files of position-aware tasks that mteb has saved or loaded, in this order."""
    _corpora: dict[tuple[str, str | None], dict[str, Any]] = field(default_factory=dict)
    """Entries of the file with `TOKENS_READ_SUFFIX` of a task and a model that are not saved
    yet.
    """

    def add(
        self,
        cache: ResultCache,
        result: TaskResult,
        model: ModelMeta,
        *,
        order: Sequence[str],
        encode_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Save a result as mteb does, and keep the other subsets in its file; safe from any process
        at any time.

        For results that are computed separately, such as subset by subset on several machines.
        Subsets that are already in the file are replaced. Times add up.

        Args:
            cache: Folder of results.
            result: Some subsets of a task.
            model: Metadata of the loaded model.
            order: All subsets of the task, in their order in the file.
            encode_kwargs: As in `mteb.evaluate`.

        Raises:
            PosirError: There is not enough disk space, or the file holds results of the Hub's data
                and this one is on local data; it is then saved next to the file.
        """
        file = cache.get_task_result_path(result.task_name, model)
        save = unwrap(type(cache).save_to_cache)
        with folder_lock(file.parent), self._redirect(cache, file) as (redirected, saved):
            merged = _merge_into_file(file, result, {DataState.SAME, DataState.ABSENT})
            save(redirected, result, model, encode_kwargs=encode_kwargs)
            places = {subset: place for place, subset in enumerate(order)}
            for scores in merged.scores.values():
                scores.sort(key=lambda score: places.get(score["hf_subset"], len(places)))
            merged.to_disk(saved)

    def make_safe(self, save: Callable[..., None]) -> Callable[..., None]:
        """Wrap mteb's `ResultCache.save_to_cache`.

        Subsets that another process has saved in the lifetime of this object are kept, and so are
        those that the present data does not have. Earlier ones are kept only if the result contains
        them: under `only-missing` mteb has loaded them, and under `always` they are to be
        overwritten.
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
            if not is_position_task(task_result.task_name):
                save(cache, task_result, model_name, model_revision, **settings)
                name = model_name if isinstance(model_name, str) else model_name.name
                self._save_corpora(file, task_result.task_name, name)
                return
            if not any(task_result.scores.values()):  # all of its data is missing
                return
            with folder_lock(file.parent), self._redirect(cache, file) as (redirected, saved):
                ours = self._saved.get(file.absolute())
                changed = file.exists() and (
                    file.stat().st_mtime >= self.started
                    if ours is None
                    else _file_state(file) != ours
                )
                keep = {DataState.ABSENT, *([DataState.SAME] if changed else [])}
                merged = _merge_into_file(file, task_result, keep)
                save(redirected, task_result, model_name, model_revision, **settings)
                # mteb has added up the times, which the file may have from an earlier saving of
                # this result.
                merged.model_copy(
                    update={name: getattr(task_result, name) for name in TOTALS}
                ).to_disk(saved)
            self.used[file] = None

        return save_to_cache

    def count_corpora(
        self, task: AbsTaskRetrieval, model: MTEBModels, split: str, subsets: Iterable[str]
    ) -> None:
        """Count what a model reads of the texts of a task without positions, to be saved next to
        its result.
        """
        from posir_tasks.search.input_window import count_corpus, find_read_part_of
        from posir_tasks.tasks.retrieval_task import RetrievalTask

        if isinstance(task, RetrievalTask) or task.metadata.modalities != ["text"]:
            return
        counted = self._corpora.setdefault((task.metadata.name, model.mteb_model_meta.name), {})
        for subset in subsets:
            corpus = task.dataset[subset][split]["corpus"]
            read = find_read_part_of(model, task.metadata, subset, corpus)
            tokens = count_corpus(model, task.metadata, subset, RelativePositions(), corpus, read)
            counted[f"{split}, {subset}"] = CorpusRead(read, tokens).to_json()

    def _save_corpora(self, file: Path, task: str, model: str | None) -> None:
        """Add what is read of the corpora of a task to the file next to its result."""
        if not (counted := self._corpora.pop((task, model), {})):
            return
        beside = file.with_suffix(TOKENS_READ_SUFFIX)
        try:
            with folder_lock(file.parent):
                saved = read_json(beside) if beside.exists() else {}
                write_text(beside, json.dumps({**saved, **counted}, indent=2))
        except Exception as error:
            logger.warning("%s: cannot be saved (%s)", beside, summarize_error(error))

    @contextmanager
    def _redirect(self, cache: ResultCache, file: Path) -> Iterator[tuple[ResultCache, Path]]:
        """Yield a cache that saves into a folder next to a result, and the path there; then move
        the files, the result last.
        """
        remove_stale_parts(file.parent)
        with (
            explain_disk_full(file),
            tempfile.TemporaryDirectory(
                dir=file.parent, prefix=PREFIX, suffix=PART_SUFFIX
            ) as folder,
        ):
            # Its name has no `.json` at the end, so that nobody takes it for a result.
            redirected = copy.copy(cache)
            saved = Path(folder) / (file.name + PART_SUFFIX)
            redirected.get_task_result_path = lambda *_, **__: saved  # type: ignore[method-assign]
            if (file.parent / APPENDED_FILE).exists():
                shutil.copyfile(file.parent / APPENDED_FILE, saved.parent / APPENDED_FILE)
            yield redirected, saved
            for written in sorted(saved.parent.iterdir(), key=lambda path: path == saved):
                with atomic_write(file if written == saved else file.parent / written.name) as part:
                    shutil.copyfile(written, part)
        self._saved[file.absolute()] = _file_state(file)


@cache
def process_saver() -> ResultSaver:
    """Return the saver of this process, created when mteb is patched or at the first call."""
    return ResultSaver()


def tolerate_damage(load: Callable[..., TaskResult | None]) -> Callable[..., TaskResult | None]:
    """Wrap mteb's `ResultCache.load_task_result`, which then returns None for a damaged result of a
    position-aware task.

    Only subsets of the present data are in what it returns, so that mteb evaluates the others. If
    they are of the Hub's data and the present data is local and other data, it raises PosirError.
    """

    @wraps(load)
    def load_task_result(
        cache: ResultCache,
        task_name: str,
        model_name: str | ModelMeta,
        model_revision: str | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> TaskResult | None:
        try:
            loaded = load(cache, task_name, model_name, model_revision, *args, **kwargs)
        except UNREADABLE as error:
            if not is_position_task(task_name):
                raise
            logger.warning(
                "%s, %s: the result cannot be read (%s); a run may have been killed while it "
                "wrote. It is evaluated again and the file is replaced.",
                cache.cache_path,
                task_name,
                summarize_error(error),
            )
            return None
        if loaded is None or not is_position_task(task_name):
            return loaded
        hide_tracebacks()
        file = cache.get_task_result_path(task_name, model_name, model_revision)
        process_saver().used[file] = None
        return _select_present(file, loaded)

    return load_task_result


def is_position_task(name: str) -> bool:
    """Return whether mteb finds a task of posir, of a plugin or from `PositionTask.from_folder` by
    this name.
    """
    return step_aside("make_saving_safe", _find_position_task, name, otherwise=False)


def _find_position_task(name: str) -> bool:
    from posir_tasks.tasks.retrieval_task import RetrievalTask

    return not TASKS_REGISTRY.is_missing() and issubclass(
        TASKS_REGISTRY.resolve().get(name, object), RetrievalTask
    )


def _file_state(file: Path) -> FileState:
    return file.stat().st_ino, file.stat().st_mtime_ns


def _select_present(file: Path, saved: TaskResult) -> TaskResult:
    """Return a saved result with its subsets of the present data, under the task's present revision
    if any data is local.

    mteb compares revisions of the complete data, but of local data a subset may be up to date while
    another one is not.

    Raises:
        PosirError: It is on the Hub's data, the present data is local, and a run would replace or
            mix them.
    """
    task = TASKS_REGISTRY.resolve()[saved.task_name]()
    states = _compare_subsets(saved)
    if _mixes_origins(saved, states, task.metadata.revision):
        raise PosirError(f"{file}: {ORIGIN_ADVICE}")
    changed = sorted(name for name, state in states.items() if state is DataState.CHANGED)
    if changed:
        logger.warning(
            "%s: the data has changed since the results for %s", saved.task_name, ", ".join(changed)
        )
    present = _select_subsets(saved, states, {DataState.SAME}, task.metadata.revision)
    if not read_sample_size():
        return present
    # A run that asks for rotated versions is not finished without them.
    return _filter_subsets(present, lambda subset: ROTATIONS_KEY in subset)


def _filter_subsets(
    result: TaskResult, keep: Callable[[Mapping[str, Any]], bool], **changes: Any
) -> TaskResult:
    """Return a result with some of its subsets, and other changes."""
    scores = {}
    for split, subsets in result.scores.items():
        if kept := [dict(subset) for subset in subsets if keep(subset)]:
            scores[split] = kept
    return result.model_copy(update={"scores": scores, **changes})


def _merge_into_file(file: Path, result: TaskResult, keep: Collection[DataState]) -> TaskResult:
    """Return a result merged with those subsets in its file whose data has one of these states.

    If results on other data are replaced, a copy of the file is kept next to it and named in a
    warning.

    Raises:
        PosirError: The file has results of the Hub's data, and the new one is on local data; it is
            then saved next to the file.
    """
    if not file.exists():
        return result
    try:
        saved = type(result).from_disk(file)
    except UNREADABLE as error:
        logger.warning("%s is replaced (%s)", file, summarize_error(error))
        return result
    states = _compare_subsets(saved)
    if _mixes_origins(saved, states, result.dataset_revision):
        refused = find_free_name(file, "refused")
        with atomic_write(refused) as part:
            result.to_disk(part)
        raise PosirError(f"{file}: {ORIGIN_ADVICE} The result is saved as {refused.name}.")
    kept = _select_subsets(saved, states, keep, result.dataset_revision)
    if not kept.is_mergeable(result):
        set_aside(file, saved.task_name, states)
        return result
    if replaced := [name for name, state in states.items() if state is DataState.CHANGED]:
        set_aside(file, saved.task_name, replaced)
    return kept.merge(result)


def _compare_subsets(saved: TaskResult) -> dict[str, DataState]:
    task = TASKS_REGISTRY.resolve()[saved.task_name]()
    return {
        subset["hf_subset"]: task.compare_data(subset["hf_subset"], subset.get(RUN_KEY, {}))
        for subset in _subsets(saved)
    }


def _mixes_origins(saved: TaskResult, states: States, revision: str) -> bool:
    """Return whether a saved result is of the Hub's data, and data of this revision is local and
    not seen to be the same.

    It is the same if it has some of the saved subsets, with the same content, and none with another
    content.
    """
    if not revision.startswith(LOCAL):
        return False
    hub = set()
    for subset in _subsets(saved):
        read = subset.get(RUN_KEY, {}).get(REVISION_KEY, saved.dataset_revision)
        if not str(read).startswith(LOCAL):
            hub.add(states[subset["hf_subset"]])
    return bool(hub) and (DataState.SAME not in hub or DataState.CHANGED in hub)


def _select_subsets(
    saved: TaskResult, states: States, keep: Collection[DataState], revision: str
) -> TaskResult:
    """Return a saved result with the subsets whose data has one of these states; of local data,
    under this revision.
    """
    is_local = saved.dataset_revision.startswith(LOCAL) or revision.startswith(LOCAL)
    return _filter_subsets(
        saved,
        lambda subset: states[subset["hf_subset"]] in keep,
        dataset_revision=revision if is_local else saved.dataset_revision,
    )


def set_aside(file: Path, task_name: str, subsets: Iterable[str]) -> None:
    """Keep a copy of a file before the results for some of its subsets are replaced, and say so."""
    replaced = find_free_name(file, "replaced")
    with atomic_write(replaced) as part:
        shutil.copyfile(file, part)
    logger.warning(
        "%s: results for %s are replaced, which were computed on other data; the file before is "
        "kept as %s",
        task_name,
        ", ".join(sorted(subsets)),
        replaced,
    )


def _subsets(saved: TaskResult) -> Iterable[Mapping[str, Any]]:
    return chain.from_iterable(saved.scores.values())
