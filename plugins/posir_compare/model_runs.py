"""The models that are compared: the runs in the given folders, and the pairs of runs that have a task in common."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from posir_tasks.errors import PosirError
from posir_tasks.results import SubsetResult, read_results


@dataclass(frozen=True)
class ModelRun:
    """A model's results in one folder of mteb's: one model, one revision, one setting."""

    label: str
    """The model's full name, with the folder if several runs have the same name."""
    results: tuple[SubsetResult, ...]

    def by_subset(self, task: str) -> dict[str, SubsetResult]:
        """Return the results on a task by subset."""
        return {result.subset: result for result in self.results if result.task == task}


@dataclass(frozen=True)
class Pair:
    """Two runs with results on the same task: `b` is compared with the baseline `a`."""

    a: ModelRun
    b: ModelRun
    task: str


def read_model_runs(folders: Sequence[Path]) -> list[ModelRun]:
    """Read every run in the folders, ordered by folder, then by model name.

    Raises:
        PosirError: A folder does not exist or has no result.
    """
    return collect_runs([read_results(folder) for folder in folders])


def collect_runs(sources: Sequence[Sequence[SubsetResult]]) -> list[ModelRun]:
    """Return the runs that results are of, ordered by source, then by model name."""
    runs: dict[Path, tuple[SubsetResult, ...]] = {}
    for source in sources:
        ordered = sorted(source, key=lambda result: (result.model, str(result.file.parent)))
        for parent, results in groupby(ordered, key=lambda result: result.file.parent):
            # A folder that is given twice, or is inside another one, is read once.
            runs.setdefault(parent.resolve(), tuple(results))
    names = [results[0].model for results in runs.values()]
    return [
        ModelRun(name if names.count(name) == 1 else f"{name} ({results[0].file.parent})", results)
        for name, results in zip(names, runs.values(), strict=True)
    ]


def select_by_name(runs: Sequence[ModelRun], names: Sequence[str]) -> list[ModelRun]:
    """Return the runs of the named models, in the order of the names.

    Args:
        runs: The runs to select from.
        names: Full names of models, or the part after the slash.

    Raises:
        PosirError: A name matches no model, or several.
    """
    return [run for name in names for run in _find_by_name(runs, name)]


def _find_by_name(runs: Sequence[ModelRun], name: str) -> list[ModelRun]:
    named = [run for run in runs if name in (run.results[0].model, run.results[0].model.partition("/")[2])]
    models = {run.results[0].model for run in named}
    if not named:
        known = ", ".join(sorted({run.results[0].model for run in runs}))
        raise PosirError(f"There are no results of a model '{name}'. Use one of these names: {known}.")
    if len(models) > 1:
        raise PosirError(f"'{name}' matches {' and '.join(sorted(models))}. Give the full name.")
    return named


def choose_baseline(runs: Sequence[ModelRun], name: str | None) -> ModelRun:
    """Return the run that the others are compared with: the named one, or the first.

    Args:
        runs: In the order of the folders or names that were given; those of one folder by name.
        name: Full name of the model, or the part after the slash; or its label, if several runs have that name.

    Raises:
        PosirError: The name matches no run, or several.
    """
    if name is None:
        return runs[0]
    named = [run for run in runs if run.label == name] or _find_by_name(runs, name)
    if len(named) > 1:
        raise PosirError(f"--baseline {name} matches {' and '.join(repr(run.label) for run in named)}. Give one of these.")
    return named[0]


def select_tasks(runs: Sequence[ModelRun], tasks: Sequence[str]) -> list[ModelRun]:
    """Return runs with their results of the named tasks alone; all results if no task is named.

    Raises:
        PosirError: No run has results of a task.
    """
    known = sorted({result.task for run in runs for result in run.results})
    unknown = [task for task in tasks if task not in known]
    if unknown:
        raise PosirError(f"--task {unknown[0]}: there are no results of such a task. Choose from {', '.join(known)}.")
    return [replace(run, results=tuple(result for result in run.results if not tasks or result.task in tasks)) for run in runs]


def build_pairs(runs: Sequence[ModelRun], baseline: ModelRun) -> list[Pair]:
    """Return every other run with the baseline, on every task that both have results of, ordered by task.

    Raises:
        PosirError: There is no such pair.
    """
    tasks = sorted({result.task for result in baseline.results})
    pairs = [Pair(baseline, run, task) for task in tasks for run in runs if run is not baseline and run.by_subset(task)]
    if not pairs:
        listed = "; ".join(f"{run.label}: {', '.join(sorted({r.task for r in run.results}))}" for run in runs)
        raise PosirError(
            f"There is nothing to compare: no other model has results on a task of {baseline.label}. Found: {listed}. Run a "
            "second model on one of these tasks with `mteb run`, choose another --baseline, or give a folder that has results."
        )
    return pairs
