"""Pairs of runs, and their results on the same queries."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from posir_compare.runs import ModelRun
from posir_tasks.base.errors import PosirError
from posir_tasks.data.repository import combine_revisions
from posir_tasks.results import SubsetResult
from posir_tasks.values.profile import pool
from posir_tasks.values.scores import ResultValues

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pair:
    """Two runs with results on the same task: `b` is compared with the baseline `a`."""

    a: ModelRun
    b: ModelRun
    task: str

    def __str__(self) -> str:
        return f"{self.a.label} and {self.b.label} on {self.task}"


def build_pairs(runs: Sequence[ModelRun], baseline: ModelRun) -> list[Pair]:
    """Pair every other run with the baseline, on every task that both have results of, ordered by
    task.

    Raises:
        PosirError: There is no such pair.
    """
    others = [run for run in runs if run is not baseline]
    pairs = [
        Pair(baseline, run, task)
        for task in sorted(baseline.tasks)
        for run in others
        if task in run.tasks
    ]
    if not pairs:
        listed = "; ".join(f"{run.label}: {', '.join(sorted(run.tasks))}" for run in runs)
        raise PosirError(
            "There is nothing to compare: no other model has results on a task of "
            f"{baseline.label}. Found: {listed}. Run a second model on one of these tasks with "
            "`mteb run`, choose another --baseline, or give a folder that has results."
        )
    for run in others:
        if baseline.tasks.isdisjoint(run.tasks):
            logger.warning(
                "%s is not compared: %s has no results of its tasks", run.label, baseline.label
            )
    return pairs


@dataclass(frozen=True, eq=False)
class CommonResults:
    """Two models' results on the same queries."""

    a: ResultValues
    b: ResultValues
    subsets: tuple[str, ...]
    notes: tuple[str, ...]
    """Notes on subsets that were skipped, such as those on different data, and why queries could
    not be paired.
    """

    @property
    def are_paired(self) -> bool:
        """Whether both are on the same queries in the same order."""
        return self.a.ranks.same_queries(self.b.ranks)


def find_common_results(pair: Pair) -> CommonResults:
    """Return the results of two runs on the queries of a task that both have.

    Raises:
        PosirError: They have no queries in common.
    """
    a = pair.a.by_subset(pair.task)
    b = pair.b.by_subset(pair.task)
    same = []
    other_queries = []
    other_data = []
    differing: dict[str, None] = {}
    for subset in sorted(a.keys() & b.keys()):
        parts = a[subset].data.differing_parts(b[subset].data)
        if parts:
            other_data.append(subset)
            differing |= dict.fromkeys(parts)
        elif a[subset].profile.same_queries(b[subset].profile):
            same.append(subset)
        else:
            other_queries.append(subset)
    skipped = []
    if a.keys().isdisjoint(b):
        skipped.append("they have no subset in common")
    elif only_one := sorted(a.keys() ^ b.keys()):
        skipped.append(f"skipped subsets that only one of them has: {', '.join(only_one)}")
    if other_data:
        files = " and ".join(_name_file(results, other_data) for results in (a, b))
        skipped.append(
            f"skipped subsets whose data differ ({' and '.join(differing)}): "
            f"{', '.join(other_data)} in {files}"
        )
    if other_queries:
        names = ", ".join(other_queries)
        skipped.append(f"skipped subsets whose queries or position bins differ: {names}")
    if not same:
        raise PosirError(
            f"{pair}: {'; '.join(skipped)}. Only results on the same queries can be compared; run "
            "both models again on the same data."
        )
    first = pool(a[subset].values for subset in same)
    second = pool(b[subset].values for subset in same)
    notes = [f"{pair}: {reason}." for reason in skipped]
    if not first.ranks.same_queries(second.ranks):
        notes.append(
            f"{pair}: compared without pairing. The two results are on different queries or "
            "documents."
        )
    return CommonResults(first, second, tuple(same), tuple(notes))


def _name_file(results: Mapping[str, SubsetResult], subsets: Collection[str]) -> str:
    revision = combine_revisions(results[subset].data.revision for subset in subsets)
    return f"{results[min(subsets)].file} (data revision {revision})"


def find_common_judged(pair: Pair) -> tuple[str, ...]:
    """Return the subsets of a task that both runs have with the same judgments; empty without
    judged queries, or without such a subset.
    """
    a = pair.a.judged(pair.task)
    b = pair.b.judged(pair.task)
    same = []
    for subset in sorted(a.keys() & b.keys()):
        same_digests = a[subset].values.digests == b[subset].values.digests
        if same_digests and not a[subset].data.differing_parts(b[subset].data):
            same.append(subset)
    return tuple(same)
