"""Who is compared: the models in the given folders, and the pairs of them that have a task in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from pathlib import Path

from posir_tasks.errors import PosirError
from posir_tasks.results import SubsetResult, read_results


@dataclass(frozen=True)
class Contestant:
    """A model's results in one folder of mteb's: one model, one revision, one setting."""

    label: str
    """The model's full name; with the folder where several contestants have the same name."""
    results: tuple[SubsetResult, ...]

    def of_task(self, task: str) -> dict[str, SubsetResult]:
        """Return the results on a task by subset."""
        return {result.subset: result for result in self.results if result.task == task}


@dataclass(frozen=True)
class Pair:
    """Two contestants on a task that both have results of: `b` is compared with `a`."""

    a: Contestant
    b: Contestant
    task: str


def contestants_of(folders: Sequence[Path]) -> list[Contestant]:
    """Return every model of the folders, in the order of the folders and then of the models' names.

    Raises:
        PosirError: A folder does not exist or has no result.
    """
    runs: dict[Path, tuple[SubsetResult, ...]] = {}
    for folder in folders:
        ordered = sorted(read_results(folder), key=lambda result: (result.model, str(result.file.parent)))
        for parent, results in groupby(ordered, key=lambda result: result.file.parent):
            # A folder that is given twice, or lies in another one, is one set of contestants.
            runs.setdefault(parent.resolve(), tuple(results))
    names = [results[0].model for results in runs.values()]
    return [
        Contestant(name if names.count(name) == 1 else f"{name} ({results[0].file.parent})", results)
        for name, results in zip(names, runs.values(), strict=True)
    ]


def named(contestants: Sequence[Contestant], names: Sequence[str]) -> list[Contestant]:
    """Return the contestants of these names, in this order.

    Args:
        contestants: Those there are.
        names: Full names of models, or the part after the slash.

    Raises:
        PosirError: A name is nobody's, or several models'.
    """
    return [contestant for name in names for contestant in _of_name(contestants, name)]


def _of_name(contestants: Sequence[Contestant], name: str) -> list[Contestant]:
    found = [one for one in contestants if name in (one.results[0].model, one.results[0].model.partition("/")[2])]
    models = {one.results[0].model for one in found}
    if not found:
        known = ", ".join(sorted({one.results[0].model for one in contestants}))
        raise PosirError(f"There are no results of a model '{name}'. Those there are: {known}. Give one of these names.")
    if len(models) > 1:
        raise PosirError(f"'{name}' can be {' or '.join(sorted(models))}. Give the full name.")
    return found


def pairs_of(contestants: Sequence[Contestant]) -> list[Pair]:
    """Return every two contestants on every task that both have, the one that stands first as `a`.

    Raises:
        PosirError: There is no such pair.
    """
    pairs = [
        Pair(a, b, task)
        for a, b in combinations(contestants, 2)
        for task in sorted({result.task for result in a.results} & {result.task for result in b.results})
    ]
    if not pairs:
        found = "; ".join(f"{one.label}: {', '.join(sorted({r.task for r in one.results}))}" for one in contestants)
        raise PosirError(
            f"There is nothing to compare: no two models have results on the same task. Found: {found}. Run a second model "
            "on one of these tasks with `mteb run`, or give a folder that has one."
        )
    return pairs
