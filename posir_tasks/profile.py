"""The position profile: the rank of the one relevant document, counted per cell. Everything else follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posir_tasks.cells import CellCounts, format_counts, parse_counts, reading_json
from posir_tasks.errors import ProfileError
from posir_tasks.evidence import Evidence, Integers
from posir_tasks.result_schema import SCHEMA
from posir_tasks.schemes import Axes, PositionScheme

#: Deepest rank that is counted apart; deeper ones are counted together.
DEPTH = 10
#: Columns of a profile: ranks 1 to 10, ranks 11 to 100, not among the first 100.
RANKS = (*map(str, range(1, DEPTH + 1)), f"{DEPTH + 1}-100", "miss")

Gains = NDArray[np.float64]
#: nDCG@10 of each column: with one relevant document 1 / log2(1 + rank), 0 below rank 10 (Järvelin & Kekäläinen 2002).
NDCG_AT_10: Gains = np.append(1 / np.log2(1 + np.arange(1, DEPTH + 1)), [0.0, 0.0])
#: MRR@10 of each column: 1 / rank, 0 below rank 10.
MRR_AT_10: Gains = np.append(1 / np.arange(1, DEPTH + 1), [0.0, 0.0])


def rank_columns(ranks: Integers) -> Integers:
    """Return the column of each rank, of which 0 means that the document was not found; shape (n,)."""
    missed = (ranks < 1) | (ranks > 100)
    return np.where(missed, len(RANKS) - 1, np.minimum(ranks, DEPTH + 1) - 1)


def mean_gain(counts: NDArray[np.int64] | NDArray[np.float64], gains: Gains) -> NDArray[np.float64]:
    """Return the mean gain (...) of counts (..., ranks) by the gain of each rank (ranks,); NaN without queries."""
    queries = counts.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        means: NDArray[np.float64] = np.where(queries > 0, counts @ gains / np.maximum(queries, 1), np.nan)
    return means


@dataclass(frozen=True, eq=False)
class PositionProfile(CellCounts):
    """Ranks of the relevant document, counted by length of the document and position of the evidence in it.

    Profiles of one scheme add: domains, languages or shards of a benchmark are pooled by `a + b`. With the 12 rank columns
    `RANKS`, counts have the shape (L, P, 12) and totals (L, 12).
    """

    COLUMNS = (len(RANKS),)

    @classmethod
    def from_ranks(cls, scheme: PositionScheme, evidence: Evidence, ranks: Integers) -> PositionProfile:
        """Count the ranks of n queries' relevant documents (from 1; 0 if not found) in the cells of a scheme; shape (n,)."""
        axes, columns, cells = scheme.axes, rank_columns(ranks), scheme.cells(evidence)
        counts = np.zeros((len(axes.lengths), len(axes.positions), len(RANKS)), np.int64)
        np.add.at(counts, (cells.length, cells.position, columns[cells.query]), 1)
        totals = np.zeros((len(axes.lengths), len(RANKS)), np.int64)
        np.add.at(totals, (scheme.length_buckets(evidence), columns), 1)
        return cls(axes, counts, totals)

    @property
    def lengths(self) -> tuple[str, ...]:
        """Names of the L length buckets."""
        return self.axes.lengths

    @property
    def positions(self) -> tuple[str, ...]:
        """Names of the P position bins."""
        return self.axes.positions

    def cell_counts(self) -> CellCounts:
        """Return the numbers of queries, whatever their ranks."""
        return CellCounts(self.axes, self.counts.sum(axis=-1), self.totals.sum(axis=-1))

    def score(self, gains: Gains = NDCG_AT_10) -> float:
        """Return the mean gain over all distinct queries, in [0, 1]; NaN without queries."""
        return float(mean_gain(self.totals.sum(axis=0), gains))

    def by_position(self, gains: Gains = NDCG_AT_10) -> NDArray[np.float64]:
        """Return the mean gain of each position bin over all lengths, shape (P,); NaN where empty."""
        return mean_gain(self.counts.sum(axis=0), gains)

    def of_length(self, index: int) -> PositionProfile:
        """Return the profile of one length bucket alone."""
        rows = slice(index, index + 1)
        return PositionProfile(self.axes.select_length(index), self.counts[rows], self.totals[rows])

    def to_json(self) -> dict[str, Any]:
        """Return the profile as plain JSON: a cell is one string of counts, so that a file stays readable and small."""
        return {
            "schema": SCHEMA,
            "axes": self.axes.to_json(),
            "ranks": " ".join(RANKS),
            "queries": self.queries,
            "totals": [format_counts(row) for row in self.totals],
            "counts": [[format_counts(row) for row in bucket] for bucket in self.counts],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> PositionProfile:
        """Read a profile; raise ProfileError if it is damaged, NewerSchemaError if a newer version of posir wrote it."""
        with reading_json(data, SCHEMA, "position profile"):
            counts = np.array([[parse_counts(row) for row in bucket] for bucket in data["counts"]], np.int64)
            totals = np.array([parse_counts(row) for row in data["totals"]], np.int64)
            profile = cls(Axes.from_json(data["axes"]), counts, totals)
        if data.get("queries") != profile.queries:
            raise ProfileError(f"The position profile states {data.get('queries')} queries but counts {profile.queries}.")
        return profile
