"""A run: what is missing in a folder of results is evaluated and saved there, unit by unit."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from posir_run.dispatch import Dispatch, Engine
from posir_run.jobs import Done, EvaluationJob, Outcome, Work
from posir_run.worker import Settings
from posir_tasks.host.result_saving import add_result

if TYPE_CHECKING:
    from mteb.cache import ResultCache
    from mteb.models import ModelMeta

    from posir_tasks.tasks.base import PositionTask


def missing_units(work: Work, cache: ResultCache) -> list[EvaluationJob]:
    """Return the units that a folder of results lacks, by mteb's own rules; the tasks learn which subsets their data has.

    Raises:
        DataError: A task has no data.
    """
    for task in work.tasks:
        task.load_data()
    missing = {
        (model, task.metadata.name): missing_subsets(task, meta, cache)
        for model, meta in work.models.items()
        for task in work.tasks
    }
    return [unit for unit in work.units() if unit.subset in missing[unit.model, unit.task]]


def missing_subsets(task: PositionTask, meta: ModelMeta, cache: ResultCache) -> set[str]:
    """Return the subsets of a task that a model's results lack; all, if those stem from another revision of the data."""
    found = cache.load_task_result(task.metadata.name, meta)
    if found is None or not found.is_mergeable(task):
        return set(task.hf_subsets)
    return {subset for subsets in found.get_missing_evaluations(task).values() for subset in subsets}


def run_and_save(
    units: Sequence[EvaluationJob], engine: Engine, work: Work, cache: ResultCache, settings: Settings
) -> Generator[Outcome, None, None]:
    """Yield the outcome of each unit as it comes; a result is saved before it is yielded. Closed early, it stops the workers.

    Raises:
        PosirError: No worker can be started, or there is no room for a result.
    """
    orders = {task.metadata.name: task.hf_subsets for task in work.tasks}
    with closing(Dispatch(units, engine).outcomes()) as outcomes:
        for outcome in outcomes:
            if isinstance(outcome, Done):
                unit = outcome.unit
                loaded = work.models[unit.model].model_copy(update=outcome.loaded)
                add_result(cache, outcome.result, loaded, order=orders[unit.task], encode_kwargs=settings.encode_kwargs)
            yield outcome
