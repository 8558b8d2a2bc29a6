"""Group results into runs, the results of one model in one folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import drop_organization, shorten_name
from posir_tasks.models.command_reference import CommandReference
from posir_tasks.results import JudgedResult, StoredResult, SubsetResult, unify_names
from posir_tasks.values.profile import pool
from posir_tasks.values.read_part import UNKNOWN, ReadPart


@dataclass(frozen=True)
class ModelRun:
    """The results of a model with one revision and setting, which mteb saves in one folder."""

    label: str
    """The model's full name, with the folder if the name is ambiguous."""
    results: tuple[StoredResult, ...]

    @property
    def tasks(self) -> set[str]:
        """Names of the tasks with results."""
        return {result.task for result in self.results}

    def get_position_results(self, task: str) -> dict[str, SubsetResult]:
        """Return the results by position on a task, by subset."""
        return {
            result.subset: result
            for result in self.results
            if result.task == task and isinstance(result, SubsetResult)
        }

    def get_judged_results(self, task: str) -> dict[str, JudgedResult]:
        """Return the results on all judged queries of a task, by subset."""
        return {
            result.subset: result
            for result in self.results
            if result.task == task and isinstance(result, JudgedResult)
        }

    def find_read_part(self, task: str) -> ReadPart:
        """Return the window of the model, pooled over the subsets of a task."""
        windows = [result.values.read for result in self.get_position_results(task).values()]
        return pool(windows) if windows else UNKNOWN

    def find_reference(self, task: str) -> CommandReference:
        """Return the command arguments for the model on a task."""
        return next(result.reference for result in self.results if result.task == task)


def collect_runs(sources: Sequence[Sequence[StoredResult]]) -> list[ModelRun]:
    """Group results into runs, ordered by source, then by model name."""
    unified_results = iter(unify_names([result for source in sources for result in source]))
    runs: dict[Path, tuple[StoredResult, ...]] = {}
    for source in sources:
        results = [next(unified_results) for _ in source]
        results.sort(key=lambda result: (result.model, str(result.file.parent)))
        for parent, group in groupby(results, key=lambda result: result.file.parent):
            # Ignore folders that were already read.
            runs.setdefault(parent.resolve(), tuple(group))
    names = Counter(run_results[0].model for run_results in runs.values())
    model_runs = []
    for run_results in runs.values():
        first = run_results[0]
        label = f"{first.model} ({first.file.parent})" if names[first.model] > 1 else first.model
        model_runs.append(ModelRun(label, run_results))
    return model_runs


def find_by_name(runs: Sequence[ModelRun], name: str) -> list[ModelRun]:
    """Find the runs of a model by its full name, or the part after the slash."""
    matches = []
    for run in runs:
        model = run.results[0].model.casefold()
        if name.casefold() in (model, drop_organization(model), shorten_name(model)):
            matches.append(run)
    models = sorted({run.results[0].model for run in matches or runs})
    if not matches:
        raise PosirError(
            f"There are no results of a model '{name}'. Use one of these names: "
            f"{', '.join(models)}."
        )
    if len(models) > 1:
        raise PosirError(f"'{name}' matches {' and '.join(models)}. Give the full name.")
    return matches


def choose_baseline(runs: Sequence[ModelRun], name: str) -> ModelRun:
    """Find the baseline by label, full name, or the part of the name after the slash."""
    matches = [run for run in runs if run.label == name] or find_by_name(runs, name)
    if len(matches) > 1:
        labels = " and ".join(repr(run.label) for run in matches)
        raise PosirError(f"--baseline {name} matches {labels}. Give one of these.")
    return matches[0]
