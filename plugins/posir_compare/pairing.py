"""Pairs of runs, and their results on the same queries."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from posir_compare.runs import ModelRun
from posir_tasks.base.errors import PosirError
from posir_tasks.data.repository import combine_revisions
from posir_tasks.results import JudgedResult, SubsetResult
from posir_tasks.values.judgments import JudgedScores
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
        if not any(pair.b is run for pair in pairs):
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
    other_data = {
        subset: parts
        for subset, result in a.items()
        if subset in b and (parts := result.data.differing_parts(b[subset].data))
    }
    same = tuple(
        subset
        for subset, result in a.items()
        if subset in b
        and subset not in other_data
        and result.profile.same_queries(b[subset].profile)
    )
    skipped = list(_describe_skipped(a, b, same, other_data))
    if not same:
        raise PosirError(
            f"{pair}: {'; '.join(skipped)}. Only results on the same queries can be compared; run "
            "both models again on the same data."
        )
    notes = [f"{pair}: {reason}." for reason in skipped]
    first = pool(a[subset].values for subset in same)
    second = pool(b[subset].values for subset in same)
    common = CommonResults(first, second, same, ())
    if not common.are_paired:
        notes.append(
            f"{pair}: compared without pairing. The two results are on different queries or "
            "documents."
        )
    return replace(common, notes=tuple(notes))


def _describe_skipped(
    a: Mapping[str, SubsetResult],
    b: Mapping[str, SubsetResult],
    same: Sequence[str],
    other_data: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    """Yield which subsets of two results are not compared, and why, given those on the same and on
    other data.
    """
    both = a.keys() & b.keys()
    only_one = sorted(a.keys() ^ b.keys())
    if not both:
        yield "they have no subset in common"
    elif only_one:
        yield f"skipped subsets that only one of them has: {', '.join(only_one)}"
    if other_data:
        files = " and ".join(_name_file(results, other_data) for results in (a, b))
        parts = " and ".join(dict.fromkeys(chain.from_iterable(other_data.values())))
        names = ", ".join(sorted(other_data))
        yield f"skipped subsets whose data differ ({parts}): {names} in {files}"
    if different := sorted(both - {*same} - other_data.keys()):
        yield f"skipped subsets whose queries or position bins differ: {', '.join(different)}"


def _name_file(results: Mapping[str, SubsetResult], subsets: Mapping[str, Sequence[str]]) -> str:
    revision = combine_revisions(results[subset].data.revision for subset in subsets)
    return f"{results[min(subsets)].file} (data revision {revision})"


@dataclass(frozen=True)
class CommonJudged:
    """Two models' metrics on the same judged queries."""

    a: JudgedScores
    b: JudgedScores
    subsets: int
    notes: tuple[str, ...]


def find_common_judged(pair: Pair) -> CommonJudged:
    """Return the metrics of two runs on all judged queries of a task, pooled over the subsets that
    both have with the same judgments.

    Raises:
        PosirError: They have no such subset.
    """
    a = pair.a.judged(pair.task)
    b = pair.b.judged(pair.task)
    same = [subset for subset in a if subset in b and _have_same_data(a[subset], b[subset])]
    if not same:
        differ = "corpus, judgments or clusters differ"
        reason = differ if a.keys() & b.keys() else "they have no subset in common"
        raise PosirError(
            f"{pair}, judged queries: {reason}. Score both runs on the same data, with the same "
            "--clusters."
        )
    notes = []
    if left_out := sorted((a.keys() | b.keys()) - {*same}):
        names = ", ".join(left_out)
        notes.append(
            f"{pair}, judged queries: skipped subsets that only one has, or whose data differ: "
            f"{names}."
        )
    first = pool(a[subset].values for subset in same)
    second = pool(b[subset].values for subset in same)
    return CommonJudged(first, second, len(same), tuple(notes))


def _have_same_data(a: JudgedResult, b: JudgedResult) -> bool:
    same_digests = a.values.digests == b.values.digests
    return same_digests and not a.data.differing_parts(b.data)
