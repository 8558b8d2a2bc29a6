"""The position profile: the rank of the one relevant document, counted per cell. Everything else follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posir_tasks.errors import ProfileError
from posir_tasks.evidence import Evidence, Integers
from posir_tasks.schemes import PositionScheme

#: Version of the JSON form. A reader refuses a newer one.
SCHEMA = 1
#: Ranks that are told apart; deeper ones are counted together.
DEPTH = 10
#: Columns of a profile: ranks 1 to 10, ranks 11 to 100, not among the first 100.
RANKS = (*map(str, range(1, DEPTH + 1)), f"{DEPTH + 1}-100", "miss")

Gains = NDArray[np.float64]
#: nDCG@10 of each column: with one relevant document 1 / log2(1 + rank), 0 below rank 10 (Järvelin & Kekäläinen 2002).
NDCG_AT_10: Gains = np.append(1 / np.log2(1 + np.arange(1, DEPTH + 1)), [0.0, 0.0])
#: MRR@10 of each column: 1 / rank, 0 below rank 10.
MRR_AT_10: Gains = np.append(1 / np.arange(1, DEPTH + 1), [0.0, 0.0])


def recall_gains(k: int) -> Gains:
    """Return recall@k of each column: 1 where the rank is at most `k`.

    Args:
        k: 1 to 10, or 100; other cut-offs cannot be told from a profile.
    """
    if k not in (*range(1, DEPTH + 1), 100):
        raise ProfileError(f"recall@{k} cannot be told from a profile: k is 1 to {DEPTH}, or 100.")
    return (np.arange(len(RANKS)) < (len(RANKS) - 1 if k == 100 else k)).astype(np.float64)


def rank_columns(ranks: Integers) -> Integers:
    """Return the column of each rank.

    Args:
        ranks: Ranks from 1, 0 where the document was not found, shape (n,).
    """
    missed = (ranks < 1) | (ranks > 100)
    return np.where(missed, len(RANKS) - 1, np.minimum(ranks, DEPTH + 1) - 1)


def mean_gain(counts: NDArray[np.int64] | NDArray[np.float64], gains: Gains) -> NDArray[np.float64]:
    """Return the mean gain of each row of counts.

    Args:
        counts: Shape (..., ranks).
        gains: Gain of each rank column, shape (ranks,).

    Returns:
        Shape (...), NaN where a row counts no query.
    """
    queries = counts.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        means: NDArray[np.float64] = np.where(queries > 0, counts @ gains / np.maximum(queries, 1), np.nan)
    return means


@dataclass(frozen=True, eq=False)
class PositionProfile:
    """Ranks of the relevant document, counted by length of the document and position of the evidence in it.

    Profiles of one scheme add: domains, languages or shards of a benchmark are pooled by `a + b`.
    """

    scheme: str
    """Name of the `PositionScheme` that made the cells."""
    lengths: tuple[str, ...]
    """Names of the L length buckets."""
    positions: tuple[str, ...]
    """Names of the P position bins."""
    counts: Integers
    """Memberships per cell and rank column, shape (L, P, 12); a query on a shared boundary counts in two cells."""
    totals: Integers
    """Distinct queries per length bucket and rank column, shape (L, 12)."""

    def __post_init__(self) -> None:
        expected = (len(self.lengths), len(self.positions), len(RANKS))
        if self.counts.shape != expected or self.totals.shape != (expected[0], expected[2]):
            raise ProfileError(
                f"The profile's counts have the shape {self.counts.shape} and its totals {self.totals.shape}; its "
                f"{expected[0]} length buckets, {expected[1]} position bins and {expected[2]} ranks need {expected} and "
                f"{(expected[0], expected[2])}."
            )
        if self.counts.min(initial=0) < 0 or self.totals.min(initial=0) < 0:
            raise ProfileError("The profile has a negative count; counts are numbers of queries.")

    @classmethod
    def from_ranks(cls, scheme: PositionScheme, evidence: Evidence, ranks: Integers) -> PositionProfile:
        """Count ranks into the cells of a scheme.

        Args:
            scheme: Says in which cells each query lies.
            evidence: Of n queries.
            ranks: Rank of the relevant document of each query, from 1; 0 where it is not among the results. Shape (n,).
        """
        columns = rank_columns(ranks)
        cells = scheme.cells(evidence)
        counts = np.zeros((len(scheme.lengths), len(scheme.positions), len(RANKS)), np.int64)
        np.add.at(counts, (cells.length, cells.position, columns[cells.query]), 1)
        totals = np.zeros((len(scheme.lengths), len(RANKS)), np.int64)
        np.add.at(totals, (scheme.length_of(evidence), columns), 1)
        return cls(scheme.name, scheme.lengths, scheme.positions, counts, totals)

    def __add__(self, other: PositionProfile) -> PositionProfile:
        """Pool two profiles.

        Raises:
            ProfileError: The profiles are of different schemes.
        """
        if not isinstance(other, PositionProfile):
            return NotImplemented
        if self.scheme != other.scheme:
            raise ProfileError(
                f"Profiles of the schemes '{self.scheme}' and '{other.scheme}' do not add; pool results of one benchmark."
            )
        if (self.lengths, self.positions) != (other.lengths, other.positions):
            raise ProfileError(f"Profiles of the length buckets {self.lengths} and {other.lengths} do not add.")
        return PositionProfile(
            self.scheme, self.lengths, self.positions, self.counts + other.counts, self.totals + other.totals
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PositionProfile)
            and (self.scheme, self.lengths, self.positions) == (other.scheme, other.lengths, other.positions)
            and np.array_equal(self.counts, other.counts)
            and np.array_equal(self.totals, other.totals)
        )

    def __hash__(self) -> int:
        return hash((self.scheme, self.counts.tobytes(), self.totals.tobytes()))

    @property
    def queries(self) -> int:
        """Number of distinct queries."""
        return int(self.totals.sum())

    def score(self, gains: Gains = NDCG_AT_10) -> float:
        """Return the mean gain over all distinct queries, in [0, 1]; NaN without queries."""
        return float(mean_gain(self.totals.sum(axis=0), gains))

    def by_position(self, gains: Gains = NDCG_AT_10) -> NDArray[np.float64]:
        """Return the mean gain of each position bin over all lengths, shape (P,); NaN where empty."""
        return mean_gain(self.counts.sum(axis=0), gains)

    def by_cell(self, gains: Gains = NDCG_AT_10) -> NDArray[np.float64]:
        """Return the mean gain of each cell, shape (L, P); NaN where empty."""
        return mean_gain(self.counts, gains)

    def of_length(self, index: int) -> PositionProfile:
        """Return the profile of one length bucket alone."""
        one = slice(index, index + 1)
        return PositionProfile(self.scheme, self.lengths[one], self.positions, self.counts[one], self.totals[one])

    def to_json(self) -> dict[str, Any]:
        """Return the profile as plain JSON: a cell is one string of counts, so that a file stays readable and small."""
        return {
            "schema": SCHEMA,
            "scheme": self.scheme,
            "lengths": list(self.lengths),
            "positions": list(self.positions),
            "ranks": " ".join(RANKS),
            "queries": self.queries,
            "totals": [_row(row) for row in self.totals],
            "counts": [[_row(row) for row in bucket] for bucket in self.counts],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PositionProfile:
        """Read a profile back.

        Raises:
            ProfileError: The form is newer than this program, or damaged.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("schema"), int):
            raise ProfileError("A position profile is a JSON object with an integer field 'schema'.")
        if data["schema"] > SCHEMA:
            raise ProfileError(
                f"This profile has schema {data['schema']}; this version of posir reads up to {SCHEMA}. Update it: "
                "pip install -U posir"
            )
        try:
            profile = cls(
                scheme=str(data["scheme"]),
                lengths=tuple(map(str, data["lengths"])),
                positions=tuple(map(str, data["positions"])),
                counts=np.array([[_cells(row) for row in bucket] for bucket in data["counts"]], np.int64),
                totals=np.array([_cells(row) for row in data["totals"]], np.int64),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ProfileError(f"The position profile is damaged: {type(error).__name__}: {error}") from error
        if data.get("queries") != profile.queries:
            raise ProfileError(f"The profile says {data.get('queries')} queries but counts {profile.queries}.")
        return profile


def pool(profiles: Iterable[PositionProfile]) -> PositionProfile:
    """Add one or more profiles.

    Raises:
        ProfileError: The profiles are of different schemes.
        TypeError: There is none.
    """
    return reduce(add, profiles)


def _row(counts: Integers) -> str:
    return " ".join(map(str, counts.tolist()))


def _cells(row: str) -> list[int]:
    return [int(count) for count in row.split()]
