"""Save mteb results atomically, even if several processes share a folder.

mteb overwrites results, `model_meta.json` and `run_settings.jsonl` in place. A killed process may
leave an incomplete file, and if two runs share a folder, the later run drops the subsets of the
earlier one. Here, mteb writes into a temporary folder, and its files are then moved under a lock.
Only results of posir's tasks are saved this way; mteb saves all other results.

Results on other data are never lost: before a subset is replaced, the file is backed up next to the
new one. Results on local data never replace results on the Hub's data.
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
    explain_disk_full,
    find_free_name,
    lock_folder,
    remove_stale_parts,
    write_atomically,
    write_text,
)
from posir_tasks.base.private_names import TASKS_REGISTRY, fall_back
from posir_tasks.base.public import Function
from posir_tasks.base.records import Fields, Record
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

#: File to which mteb appends rows.
APPENDED_FILE = "run_settings.jsonl"

#: Prefix of temporary folders.
PREFIX = ".posir-"
#: Result fields that mteb sums over subsets, and the date.
SUMMED_FIELDS = ("evaluation_time", "evaluation_phases", "kg_co2_emissions", "date")

#: Inode and modification time in nanoseconds.
FileState = tuple[int, int]
#: Errors that mteb raises for invalid result files.
INVALID_RESULT_ERRORS = (ValueError, KeyError, TypeError, AttributeError)
#: Reason for rejecting results on local data, and advice.
ORIGIN_ADVICE = (
    "has results on the Hub's data, which results on local data must not replace. Give "
    f"another --output-folder for this data, or unset {DATA_VARIABLE}."
)
#: Saved subsets, and their data compared with the current data.
States = Mapping[str, DataState]


@dataclass
class ResultSaver:
    """Saves results, and detects changes by other processes since this object was created."""

    start_time: float = field(default_factory=time.time)
    """Seconds since the epoch."""
    _saved_states: dict[Path, FileState] = field(default_factory=dict)
    """State of each result file at the last save."""
    used_files: dict[Path, None] = field(default_factory=dict)
    """Files of position-aware tasks that mteb has saved or loaded, in order."""
    _corpora: dict[tuple[str, str | None], Record] = field(default_factory=dict)
    """Unsaved token counts by task and model."""

    def add(
        self,
        cache: ResultCache,
        result: TaskResult,
        model: ModelMeta,
        *,
        order: Sequence[str],
        encode_kwargs: Fields | None = None,
    ) -> None:
        """Merge a partial result into its file, for example from one of several machines.

        Subsets in the result replace those in the file. Evaluation times are added. Several
        processes may call this method at the same time.

        Args:
            cache: Results folder.
            result: Some subsets of a task.
            model: Metadata of the loaded model.
            order: All subsets of the task in the order of the file.
            encode_kwargs: As in `mteb.evaluate`.

        Raises:
            PosirError: The disk is full. Or the file has results on the Hub's data, and the new
                result is on local data; it is then saved next to the file.
        """
        file = cache.get_task_result_path(result.task_name, model)
        save = unwrap(type(cache).save_to_cache)
        with self._redirect(cache, file) as (temporary_cache, result_file):
            merged_result = _merge_into_file(file, result, {DataState.SAME, DataState.ABSENT})
            save(temporary_cache, result, model, encode_kwargs=encode_kwargs)
            indices = {subset: index for index, subset in enumerate(order)}
            for scores in merged_result.scores.values():
                scores.sort(key=lambda score: indices.get(score["hf_subset"], len(indices)))
            merged_result.to_disk(result_file)

    def make_safe(self, save: Function) -> Function:
        """Wrap mteb's `ResultCache.save_to_cache`.

        Subsets are preserved if another process has saved them since this object was created, or if
        they are missing in the current data. Earlier subsets are left to mteb: with `only-missing`
        the new result contains them, and with `always` they are overwritten.
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
            if not any(task_result.scores.values()):  # no data
                return
            with self._redirect(cache, file) as (temporary_cache, result_file):
                kept_states = {DataState.ABSENT}
                if self._has_changed(file):
                    kept_states.add(DataState.SAME)
                merged_result = _merge_into_file(file, task_result, kept_states)
                save(temporary_cache, task_result, model_name, model_revision, **settings)
                # Restore the times that mteb has summed, since merging may count some twice.
                merged_result.model_copy(
                    update={name: getattr(task_result, name) for name in SUMMED_FIELDS}
                ).to_disk(result_file)
            self.used_files[file] = None

        return save_to_cache

    def _has_changed(self, file: Path) -> bool:
        """Return True if another process has written the file since this object was created."""
        if not file.exists():
            return False
        saved_state = self._saved_states.get(file.absolute())
        if saved_state is None:
            return file.stat().st_mtime >= self.start_time
        return _get_file_state(file) != saved_state

    def count_corpora(
        self, task: AbsTaskRetrieval, model: MTEBModels, split: str, subsets: Iterable[str]
    ) -> None:
        """Count the corpus tokens that a model reads, to save them with the result."""
        from posir_tasks.data.data import to_frame
        from posir_tasks.search.input_window import count_corpus, find_corpus_read_part
        from posir_tasks.tasks.retrieval_task import RetrievalTask

        if isinstance(task, RetrievalTask) or task.metadata.modalities != ["text"]:
            return
        entries = self._corpora.setdefault((task.metadata.name, model.mteb_model_meta.name), {})
        for subset in subsets:
            corpus = task.dataset[subset][split]["corpus"]
            read = find_corpus_read_part(model, task.metadata, subset, corpus)
            scheme = RelativePositions()
            tokens = count_corpus(model, task.metadata, subset, scheme, to_frame(corpus), read)
            entries[f"{split}, {subset}"] = CorpusRead(read, tokens).to_json()

    def _save_corpora(self, file: Path, task: str, model: str | None) -> None:
        """Save the token counts of a task next to its result."""
        entries = self._corpora.pop((task, model), {})
        if not entries:
            return
        counts_file = file.with_suffix(TOKENS_READ_SUFFIX)
        try:
            with lock_folder(file.parent):
                earlier_entries = read_json(counts_file) if counts_file.exists() else {}
                write_text(counts_file, json.dumps({**earlier_entries, **entries}, indent=2))
        except Exception as error:
            logger.warning("%s: cannot be saved (%s)", counts_file, summarize_error(error))

    @contextmanager
    def _redirect(self, cache: ResultCache, file: Path) -> Iterator[tuple[ResultCache, Path]]:
        """Lock the folder of a result. Yield a cache that saves into a temporary folder, and the
        temporary path. Then move the files into place, the result last.
        """
        with (
            lock_folder(file.parent),
            explain_disk_full(file),
            tempfile.TemporaryDirectory(
                dir=file.parent, prefix=PREFIX, suffix=PART_SUFFIX
            ) as folder,
        ):
            remove_stale_parts(file.parent)
            # Readers ignore the file, since its suffix is not `.json`.
            temporary_cache = copy.copy(cache)
            result_file = Path(folder) / (file.name + PART_SUFFIX)
            temporary_cache.get_task_result_path = lambda *_, **__: result_file  # type: ignore[method-assign]
            appended_file = file.parent / APPENDED_FILE
            if appended_file.exists():
                shutil.copy(appended_file, folder)
            yield temporary_cache, result_file
            for new_file in sorted(Path(folder).iterdir(), key=lambda path: path == result_file):
                name = new_file.name.removesuffix(PART_SUFFIX)
                with write_atomically(file.parent / name) as part:
                    shutil.copyfile(new_file, part)
        self._saved_states[file.absolute()] = _get_file_state(file)


@cache
def get_result_saver() -> ResultSaver:
    """Return the saver of the current process."""
    return ResultSaver()


def skip_corrupt(load: Function) -> Function:
    """Wrap mteb's `ResultCache.load_task_result` to return None for corrupt results of
    position-aware tasks.

    Subsets on other data are removed from results, so that mteb evaluates them again. PosirError is
    raised if a result is on the Hub's data and the current data is different local data.
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
            result: TaskResult | None = load(
                cache, task_name, model_name, model_revision, *args, **kwargs
            )
        except INVALID_RESULT_ERRORS as error:
            if not is_position_task(task_name):
                raise
            logger.warning(
                "%s, %s: the result cannot be read (%s), perhaps because a run was killed. The "
                "task is evaluated again and the file is replaced.",
                cache.cache_path,
                task_name,
                summarize_error(error),
            )
            return None
        if result is None or not is_position_task(task_name):
            return result
        hide_tracebacks()
        file = cache.get_task_result_path(task_name, model_name, model_revision)
        get_result_saver().used_files[file] = None
        return _select_current(file, result)

    return load_task_result


def is_position_task(name: str) -> bool:
    """Return True if a registered task with this name is position-aware."""
    return fall_back("make_saving_safe", _find_position_task, name, otherwise=False)


def _find_position_task(name: str) -> bool:
    from posir_tasks.tasks.retrieval_task import RetrievalTask

    return not TASKS_REGISTRY.is_missing() and issubclass(
        TASKS_REGISTRY.resolve().get(name, object), RetrievalTask
    )


def _get_file_state(file: Path) -> FileState:
    return file.stat().st_ino, file.stat().st_mtime_ns


def _select_current(file: Path, result: TaskResult) -> TaskResult:
    """Select the subsets of a saved result that were computed on the current data.

    With local data, the result gets the task's current revision. mteb compares revisions of the
    complete data, although some of its subsets may be unchanged.

    Raises:
        PosirError: The result is on the Hub's data, and results on the current local data would
            replace it.
    """
    task = TASKS_REGISTRY.resolve()[result.task_name]()
    states = _compare_subsets(result)
    if _has_mixed_origins(result, states, task.metadata.revision):
        raise PosirError(f"{file}: {ORIGIN_ADVICE}")
    changed_subsets = sorted(name for name, state in states.items() if state is DataState.CHANGED)
    if changed_subsets:
        logger.warning(
            "%s: the data has changed since the results for %s were saved",
            result.task_name,
            ", ".join(changed_subsets),
        )
    current = _select_subsets(result, states, {DataState.SAME}, task.metadata.revision)
    if not read_sample_size():
        return current
    # Results without rotated versions are incomplete if this run needs them.
    return _filter_subsets(current, lambda subset: ROTATIONS_KEY in subset)


def _filter_subsets(
    result: TaskResult, keep: Callable[[Fields], bool], **changes: Any
) -> TaskResult:
    """Copy a result with some of its subsets and with changed fields."""
    scores = {}
    for split, subsets in result.scores.items():
        kept_subsets = [dict(subset) for subset in subsets if keep(subset)]
        if kept_subsets:
            scores[split] = kept_subsets
    return result.model_copy(update={"scores": scores, **changes})


def _merge_into_file(file: Path, result: TaskResult, keep: Collection[DataState]) -> TaskResult:
    """Merge a result with the subsets in its file whose data has one of the states to keep.

    Before results on other data are replaced, the file is backed up with a warning.

    Raises:
        PosirError: The file has results on the Hub's data, and the result is on local data. It is
            then saved next to the file.
    """
    if not file.exists():
        return result
    try:
        earlier_result = type(result).from_disk(file)
    except INVALID_RESULT_ERRORS as error:
        logger.warning("%s is replaced (%s)", file, summarize_error(error))
        return result
    states = _compare_subsets(earlier_result)
    if _has_mixed_origins(earlier_result, states, result.dataset_revision):
        other_file = find_free_name(file, "refused")
        with write_atomically(other_file) as part:
            result.to_disk(part)
        raise PosirError(f"{file}: {ORIGIN_ADVICE} The result is saved as {other_file.name}.")
    earlier = _select_subsets(earlier_result, states, keep, result.dataset_revision)
    if not earlier.is_mergeable(result):
        back_up_result(file, earlier_result.task_name, states)
        return result
    changed_subsets = [name for name, state in states.items() if state is DataState.CHANGED]
    if changed_subsets:
        back_up_result(file, earlier_result.task_name, changed_subsets)
    return earlier.merge(result)


def _compare_subsets(result: TaskResult) -> dict[str, DataState]:
    task = TASKS_REGISTRY.resolve()[result.task_name]()
    return {
        subset["hf_subset"]: task.compare_data(subset["hf_subset"], subset.get(RUN_KEY, {}))
        for subset in _iterate_subsets(result)
    }


def _has_mixed_origins(result: TaskResult, states: States, revision: str) -> bool:
    """Return True if a saved result is on the Hub's data and the revision is different local data.

    Local data is the same if at least one saved subset has the same content and no subset has
    different content.
    """
    if not revision.startswith(LOCAL):
        return False
    hub_states = set()
    for subset in _iterate_subsets(result):
        subset_revision = subset.get(RUN_KEY, {}).get(REVISION_KEY, result.dataset_revision)
        if not str(subset_revision).startswith(LOCAL):
            hub_states.add(states[subset["hf_subset"]])
    if not hub_states:
        return False
    return DataState.SAME not in hub_states or DataState.CHANGED in hub_states


def _select_subsets(
    result: TaskResult, states: States, keep: Collection[DataState], revision: str
) -> TaskResult:
    """Select the subsets of a saved result whose data has one of the states to keep. With local
    data, the result gets the revision.
    """
    is_local = result.dataset_revision.startswith(LOCAL) or revision.startswith(LOCAL)
    return _filter_subsets(
        result,
        lambda subset: states[subset["hf_subset"]] in keep,
        dataset_revision=revision if is_local else result.dataset_revision,
    )


def back_up_result(file: Path, task_name: str, subsets: Iterable[str]) -> None:
    """Back up a file with a warning, before results for some of its subsets are replaced."""
    backup = find_free_name(file, "replaced")
    with write_atomically(backup) as part:
        shutil.copyfile(file, part)
    logger.warning(
        "%s: results for %s were computed on other data and are replaced; the previous file is "
        "kept as %s",
        task_name,
        ", ".join(sorted(subsets)),
        backup,
    )


def _iterate_subsets(result: TaskResult) -> Iterable[Fields]:
    return chain.from_iterable(result.scores.values())
