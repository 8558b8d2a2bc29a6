"""The runs of models in folders of results."""

from __future__ import annotations

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
    """A model's results in one folder of mteb's: one model, one revision, one setting."""

    label: str
    """The model's full name, with the folder if several runs have the same name."""
    results: tuple[StoredResult, ...]

    @property
    def tasks(self) -> set[str]:
        """Names of the tasks with results."""
        return {result.task for result in self.results}

    def by_subset(self, task: str) -> dict[str, SubsetResult]:
        """Return the results by position on a task by subset."""
        return {
            result.subset: result
            for result in self.results
            if result.task == task and isinstance(result, SubsetResult)
        }

    def judged(self, task: str) -> dict[str, JudgedResult]:
        """Return the results on all judged queries of a task by subset."""
        return {
            result.subset: result
            for result in self.results
            if result.task == task and isinstance(result, JudgedResult)
        }

    def find_read(self, task: str) -> ReadPart:
        """Return the part of a document that the model reads, over the subsets of a task."""
        parts = [result.values.read for result in self.by_subset(task).values()]
        return pool(parts) if parts else UNKNOWN

    def find_reference(self, task: str) -> CommandReference:
        """Return the names of the model and a task in commands."""
        return next(result.reference for result in self.results if result.task == task)


def collect_runs(sources: Sequence[Sequence[StoredResult]]) -> list[ModelRun]:
    """Group results into runs, ordered by source, then by model name."""
    named = iter(unify_names([result for source in sources for result in source]))
    runs: dict[Path, tuple[StoredResult, ...]] = {}
    for source in sources:
        unified = [next(named) for _ in source]
        unified.sort(key=lambda result: (result.model, str(result.file.parent)))
        for parent, group in groupby(unified, key=lambda result: result.file.parent):
            # A folder that is given twice, or is inside another one, is read once.
            runs.setdefault(parent.resolve(), tuple(group))
    names = [results[0].model for results in runs.values()]
    labeled = []
    for name, results in zip(names, runs.values(), strict=True):
        label = name if names.count(name) == 1 else f"{name} ({results[0].file.parent})"
        labeled.append(ModelRun(label, results))
    return labeled


def find_by_name(runs: Sequence[ModelRun], name: str) -> list[ModelRun]:
    """Return the runs of a model by its full name, or the part after the slash."""
    wanted = name.casefold()
    named = []
    for run in runs:
        model = run.results[0].model.casefold()
        if wanted in (model, drop_organization(model), shorten_name(model)):
            named.append(run)
    models = sorted({run.results[0].model for run in named or runs})
    if not named:
        raise PosirError(
            f"There are no results of a model '{name}'. Use one of these names: "
            f"{', '.join(models)}."
        )
    if len(models) > 1:
        raise PosirError(f"'{name}' matches {' and '.join(models)}. Give the full name.")
    return named


def choose_baseline(runs: Sequence[ModelRun], name: str) -> ModelRun:
    """Return the run that the others are compared with.

    The name is the full one, or the part after the slash; or the label, if several runs have that
    name.
    """
    named = [run for run in runs if run.label == name] or find_by_name(runs, name)
    if len(named) > 1:
        raise PosirError(
            f"--baseline {name} matches {' and '.join(repr(run.label) for run in named)}. Give "
            "one of these."
        )
    return named[0]
