"""What two models are compared on: the subsets that both have, paired query by query if their ranks by document allow it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from posir_compare.model_runs import Pair
from posir_significance.observations import Observations
from posir_tasks.cells import pool
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.errors import PosirError
from posir_tasks.profile import PositionProfile
from posir_tasks.results import SubsetResult


class PooledResult(NamedTuple):
    """A model's result over all subsets."""

    profile: PositionProfile
    ranks: DocumentRanks | None
    """None if they are unknown for a subset."""


@dataclass(frozen=True, eq=False)
class CommonResults:
    """Two models' results on the same queries."""

    a: PooledResult
    b: PooledResult
    subsets: tuple[str, ...]
    notes: tuple[str, ...]
    """Which subsets were skipped, and why queries could not be paired."""

    @cached_property
    def paired(self) -> tuple[Observations, Observations] | None:
        """The gains of both models on the same queries in the same order; None if the queries cannot be paired."""
        if self.a.ranks is None or self.b.ranks is None or not self.a.ranks.same_queries(self.b.ranks):
            return None
        return Observations.from_ranks(self.a.ranks), Observations.from_ranks(self.b.ranks)


def find_common_results(pair: Pair) -> CommonResults:
    """Return the results of two runs on the queries of a task that both have.

    Args:
        pair: Two runs on a task.

    Raises:
        PosirError: They have no queries in common.
    """
    a, b = pair.a.by_subset(pair.task), pair.b.by_subset(pair.task)
    where = f"{pair.a.label} and {pair.b.label} on {pair.task}"
    both = [subset for subset in a if subset in b]
    same = tuple(subset for subset in both if a[subset].profile.cell_counts() == b[subset].profile.cell_counts())
    if not same:
        raise PosirError(
            f"{where}: "
            + ("they were run on different data or with other position bins" if both else "they have no subset in common")
            + ". Only results on the same queries can be compared; run both models again on the same data."
        )
    only_one, different = sorted(a.keys() ^ b.keys()), sorted(set(both) - set(same))
    notes = []
    if only_one:
        notes.append(f"{where}: skipped subsets that only one of them has: {', '.join(only_one)}.")
    if different:
        notes.append(f"{where}: skipped subsets whose queries differ: {', '.join(different)}.")
    found = CommonResults(_pool(a, same), _pool(b, same), same, ())
    without = [run.label for run, result in ((pair.a, found.a), (pair.b, found.b)) if result.ranks is None]
    if without:
        notes.append(
            f"{where}: compared without pairing. Results of {' and '.join(without)} have no ranks by document, so intervals "
            "assume independent questions; run the model again."
        )
    elif found.paired is None:
        notes.append(f"{where}: compared without pairing. The two results are on different queries or documents.")
    return CommonResults(found.a, found.b, same, tuple(notes))


def _pool(results: Mapping[str, SubsetResult], subsets: Sequence[str]) -> PooledResult:
    ranks = [one for subset in subsets if (one := results[subset].ranks)]
    return PooledResult(
        pool(results[subset].profile for subset in subsets), pool(ranks) if len(ranks) == len(subsets) else None
    )
