"""Pair runs, and find their results on the same queries."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from posir_compare.runs import ModelRun
from posir_tasks.base.errors import PosirError
from posir_tasks.results import SubsetResult
from posir_tasks.values.profile import pool
from posir_tasks.values.scores import ResultValues

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pair:
    """A baseline `a` and a run `b` with results on the same task."""

    a: ModelRun
    b: ModelRun
    task: str

    def __str__(self) -> str:
        return f"{self.a.label} and {self.b.label} on {self.task}"


def build_pairs(runs: Sequence[ModelRun], baseline: ModelRun) -> list[Pair]:
    """Pair all runs with the baseline on each common task, sorted by task.

    Raises:
        PosirError: There are no common tasks.
    """
    models = [run for run in runs if run is not baseline]
    pairs = [
        Pair(baseline, run, task)
        for task in sorted(baseline.tasks)
        for run in models
        if task in run.tasks
    ]
    if not pairs:
        results = "; ".join(f"{run.label}: {', '.join(sorted(run.tasks))}" for run in runs)
        raise PosirError(
            "There is nothing to compare: no other model has results on a task of "
            f"{baseline.label}. Found: {results}. Run a second model on one of these tasks with "
            "`mteb run`, choose another --baseline, or give a folder that contains results."
        )
    for run in models:
        if baseline.tasks.isdisjoint(run.tasks):
            logger.warning(
                "%s is not compared: %s has no results of its tasks", run.label, baseline.label
            )
    return pairs


@dataclass(frozen=True, eq=False)
class CommonResults:
    """The results of two models on the same queries."""

    a: ResultValues
    b: ResultValues
    subsets: Sequence[str]
    notes: Sequence[str]
    """Notes about skipped subsets and unpaired results."""

    @property
    def are_paired(self) -> bool:
        """True if both have the same queries in the same order."""
        return self.a.ranks.has_same_queries(self.b.ranks)


def find_common_results(pair: Pair) -> CommonResults:
    """Find the results of two runs on the same queries of a task.

    Raises:
        PosirError: The runs have no common queries.
    """
    a = pair.a.get_position_results(pair.task)
    b = pair.b.get_position_results(pair.task)
    common_subsets = []
    skipped_subsets = defaultdict[str, list[str]](list)
    for subset in sorted(a.keys() ^ b.keys()):
        skipped_subsets["that only one of them has"].append(subset)
    for subset in sorted(a.keys() & b.keys()):
        if parts := a[subset].data.find_differences(b[subset].data):
            files = f"{_name_file(a[subset])} and {_name_file(b[subset])}"
            skipped_subsets[f"whose data differ ({' and '.join(parts)}) in {files}"].append(subset)
        elif a[subset].profile.has_same_queries(b[subset].profile):
            common_subsets.append(subset)
        else:
            skipped_subsets["whose queries or position bins differ"].append(subset)
    reasons = [
        f"skipped subsets {reason}: {', '.join(names)}" for reason, names in skipped_subsets.items()
    ]
    if not common_subsets:
        raise PosirError(
            f"{pair}: {'; '.join(reasons)}. Only results on the same queries can be compared; run "
            "both models again on the same data."
        )
    first = pool(a[subset].values for subset in common_subsets)
    second = pool(b[subset].values for subset in common_subsets)
    notes = [f"{pair}: {reason}." for reason in reasons]
    if not first.ranks.has_same_queries(second.ranks):
        notes.append(
            f"{pair}: compared without pairing. The two results are on different queries or "
            "documents."
        )
    return CommonResults(first, second, common_subsets, notes)


def _name_file(result: SubsetResult) -> str:
    return f"{result.file} (data revision {result.data.revision})"
