"""What two models are compared on: the subsets that both have and, if per-query ranks were saved, the same queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from posir_compare.model_runs import Pair
from posir_significance.group_means import Integers
from posir_tasks.cells import pool
from posir_tasks.errors import PosirError
from posir_tasks.profile import RANKS, PositionProfile, rank_columns
from posir_tasks.query_ranks import QueryRanks, query_ranks_path, read_query_ranks
from posir_tasks.results import SubsetResult


@dataclass(frozen=True, eq=False)
class JointCounts:
    """Queries counted by their rank columns under both models."""

    cells: Integers
    """Memberships per cell, column under a and column under b, shape (L, P, 12, 12)."""
    totals: Integers
    """Distinct queries per length bucket, shape (L, 12, 12)."""

    def __add__(self, other: JointCounts) -> JointCounts:
        return JointCounts(self.cells + other.cells, self.totals + other.totals)


@dataclass(frozen=True, eq=False)
class CommonResults:
    """Two models' results on the same queries."""

    a: PositionProfile
    b: PositionProfile
    joint: JointCounts | None
    """None without per-query ranks: the two ranks of a query are then unknown."""
    subsets: tuple[str, ...]
    notes: tuple[str, ...]
    """Which subsets were skipped, and why queries could not be paired."""


class UnpairedError(Exception):
    """Queries cannot be paired; the message says why."""


def find_common_results(pair: Pair, ranks: Path | None) -> CommonResults:
    """Return the results of two runs on the queries of a task that both have.

    Args:
        pair: Two runs on a task.
        ranks: The folder of per-query ranks; None to compare profiles alone.

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
    joint = None
    if ranks:
        try:
            joint = _count_jointly({s: a[s] for s in same}, {s: b[s] for s in same}, ranks)
        except UnpairedError as reason:
            notes.append(f"{where}: compared without pairing. {reason}")
    return CommonResults(pool(a[s].profile for s in same), pool(b[s].profile for s in same), joint, same, tuple(notes))


def _count_jointly(a: Mapping[str, SubsetResult], b: Mapping[str, SubsetResult], folder: Path) -> JointCounts:
    first, second = _read_ranks(a, folder), _read_ranks(b, folder)
    counts = [_count_subset(subset, first, second) for subset in a]
    return sum(counts[1:], start=counts[0])


def _read_ranks(results: Mapping[str, SubsetResult], folder: Path) -> QueryRanks:
    """Read the per-query ranks of one model's results.

    Raises:
        UnpairedError: They are missing, or do not reproduce the results.
    """
    one = next(iter(results.values()))
    file = query_ranks_path(folder, one.model, one.revision, one.task, one.experiment)
    if not file.exists():
        raise UnpairedError(
            f"{file} does not exist. `mteb run --prediction-folder {folder} --overwrite-strategy always` evaluates the model "
            "again and saves per-query ranks; without the second option mteb skips results that exist."
        )
    try:
        ranks = read_query_ranks(file)
    except PosirError as error:
        raise UnpairedError(str(error)) from error
    for subset, result in results.items():
        if subset not in ranks.subsets:
            raise UnpairedError(f"{file} has no ranks of the subset '{subset}'.")
        if ranks.profile(subset) != result.profile:
            raise UnpairedError(f"{file}: the ranks of the subset '{subset}' do not match the result {result.file}.")
    return ranks


def _count_subset(subset: str, a: QueryRanks, b: QueryRanks) -> JointCounts:
    """Count the queries of one subset by their ranks under both models.

    Raises:
        UnpairedError: The two have different queries.
    """
    first, second = (
        one.select_subset(subset).with_columns(pl.Series("column", rank_columns(one.select_subset(subset)["rank"].to_numpy())))
        for one in (a, b)
    )
    rows = first.join(second, on="query_id", suffix="_b")
    if (
        not len(rows) == len(first) == len(second)
        or not rows.select(
            ((pl.col("length") == pl.col("length_b")) & (pl.col("positions") == pl.col("positions_b"))).all()
        ).item()
    ):
        raise UnpairedError(f"The two models' ranks of the subset '{subset}' differ in their queries or evidence.")
    cells = rows.explode("positions").drop_nulls("positions")
    axes = a.header.axes
    counts = np.zeros((len(axes.lengths), len(axes.positions), len(RANKS), len(RANKS)), np.int64)
    np.add.at(counts, tuple(cells[name].to_numpy() for name in ("length", "positions", "column", "column_b")), 1)
    totals = np.zeros((len(axes.lengths), len(RANKS), len(RANKS)), np.int64)
    np.add.at(totals, tuple(rows[name].to_numpy() for name in ("length", "column", "column_b")), 1)
    return JointCounts(counts, totals)
