"""What two models are compared on: the subsets that both have, and where ranks were kept, the same queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from posir_compare.model_runs import Pair
from posir_significance.group_means import Integers
from posir_tasks.errors import PosirError
from posir_tasks.profile import RANKS, PositionProfile, pool, rank_columns
from posir_tasks.query_ranks import QueryRanks, ranks_path, read_ranks
from posir_tasks.results import SubsetResult


@dataclass(frozen=True, eq=False)
class Joint:
    """Queries counted by their rank columns under both models."""

    cells: Integers
    """Memberships per cell, column under a and column under b, shape (L, P, 12, 12)."""
    totals: Integers
    """Distinct queries per length bucket, shape (L, 12, 12)."""

    def __add__(self, other: Joint) -> Joint:
        return Joint(self.cells + other.cells, self.totals + other.totals)


@dataclass(frozen=True, eq=False)
class Match:
    """Two models' results on the same queries."""

    a: PositionProfile
    b: PositionProfile
    joint: Joint | None
    """None where ranks were not kept: which query had which is not known then."""
    subsets: tuple[str, ...]
    notes: tuple[str, ...]
    """What was left out, and why queries could not be paired."""


class UnpairedError(Exception):
    """Queries cannot be paired; the text says why."""


def match(pair: Pair, ranks: Path | None) -> Match:
    """Return what two contestants have in common on a task.

    Args:
        pair: Of contestants.
        ranks: The folder of kept ranks; None to compare profiles alone.

    Raises:
        PosirError: They have no queries in common.
    """
    a, b = pair.a.of_task(pair.task), pair.b.of_task(pair.task)
    where = f"{pair.a.label} and {pair.b.label} on {pair.task}"
    both = [subset for subset in a if subset in b]
    same = tuple(subset for subset in both if _same_queries(a[subset].profile, b[subset].profile))
    if not same:
        raise PosirError(
            f"{where}: "
            + ("they were run on different data or with other position bins" if both else "they have no subset in common")
            + ". Compared are results on the same queries only; run both models again on the same data."
        )
    alone, other = sorted(a.keys() ^ b.keys()), sorted(set(both) - set(same))
    notes = []
    if alone:
        notes.append(f"{where}: only one of them has the subsets {', '.join(alone)}; they are left out.")
    if other:
        notes.append(f"{where}: not the same queries in the subsets {', '.join(other)}; they are left out.")
    joint = None
    if ranks:
        try:
            joint = _joint({s: a[s] for s in same}, {s: b[s] for s in same}, ranks)
        except UnpairedError as reason:
            notes.append(f"{where}: compared without pairing. {reason}")
    return Match(pool(a[s].profile for s in same), pool(b[s].profile for s in same), joint, same, tuple(notes))


def _same_queries(a: PositionProfile, b: PositionProfile) -> bool:
    """Return whether two profiles have the same cells and the same number of queries in each."""
    return (
        (a.scheme, a.lengths, a.positions) == (b.scheme, b.lengths, b.positions)
        and np.array_equal(a.counts.sum(axis=-1), b.counts.sum(axis=-1))
        and np.array_equal(a.totals.sum(axis=-1), b.totals.sum(axis=-1))
    )


def _joint(a: Mapping[str, SubsetResult], b: Mapping[str, SubsetResult], folder: Path) -> Joint:
    first, second = _kept(a, folder), _kept(b, folder)
    joints = [_joint_of_subset(subset, first, second) for subset in a]
    return sum(joints[1:], start=joints[0])


def _kept(results: Mapping[str, SubsetResult], folder: Path) -> QueryRanks:
    """Return the kept ranks of one model's results.

    Raises:
        UnpairedError: They are missing, or are not those that the results were made of.
    """
    one = next(iter(results.values()))
    file = ranks_path(folder, one.model, one.revision, one.task)
    if not file.exists():
        raise UnpairedError(f"{file}: no ranks were kept; `mteb run --prediction-folder {folder}` keeps them.")
    try:
        kept = read_ranks(file)
    except PosirError as error:
        raise UnpairedError(str(error)) from error
    for subset, result in results.items():
        if subset not in kept.subsets:
            raise UnpairedError(f"{file}: it has no ranks of the subset '{subset}'.")
        if kept.profile(subset) != result.profile:
            raise UnpairedError(f"{file}: the ranks of the subset '{subset}' are not those of the result {result.file}.")
    return kept


def _joint_of_subset(subset: str, a: QueryRanks, b: QueryRanks) -> Joint:
    """Count one subset's queries by their ranks under both models.

    Raises:
        UnpairedError: The two have other queries.
    """
    first, second = (
        one.of_subset(subset).with_columns(pl.Series("column", rank_columns(one.of_subset(subset)["rank"].to_numpy())))
        for one in (a, b)
    )
    rows = first.join(second, on="query_id", suffix="_b")
    if (
        not len(rows) == len(first) == len(second)
        or not rows.select(
            ((pl.col("length") == pl.col("length_b")) & (pl.col("positions") == pl.col("positions_b"))).all()
        ).item()
    ):
        raise UnpairedError(f"The two models' ranks of the subset '{subset}' are not of the same queries and evidence.")
    cells = rows.explode("positions").drop_nulls("positions")
    counts = np.zeros((len(a.of.lengths), len(a.of.positions), len(RANKS), len(RANKS)), np.int64)
    np.add.at(counts, tuple(cells[name].to_numpy() for name in ("length", "positions", "column", "column_b")), 1)
    totals = np.zeros((len(a.of.lengths), len(RANKS), len(RANKS)), np.int64)
    np.add.at(totals, tuple(rows[name].to_numpy() for name in ("length", "column", "column_b")), 1)
    return Joint(counts, totals)
