"""Position profiles: additive counts of ranks by document length and evidence position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, TypeVar

import numpy as np

from posir_tasks.base.arrays import Floats, Integers
from posir_tasks.base.errors import ProfileError, check_schema, summarize_error
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.result_schema import SCHEMA
from posir_tasks.values.schemes import Axes, PositionScheme

#: Maximum count, more than the queries of any corpus.
MAX_COUNT = 10**12
#: Each rank up to this depth has its own column.
DEPTH = 10
#: Columns of a profile: ranks 1 to 10, ranks 11 to 100, and misses.
RANKS = (*map(str, range(1, DEPTH + 1)), f"{DEPTH + 1}-100", "miss")
#: nDCG@10 of each column: 1 / log2(1 + rank) for a single relevant document, 0 below rank 10
#: (Järvelin & Kekäläinen 2002).
NDCG_AT_10: Floats = np.append(1 / np.log2(1 + np.arange(1, DEPTH + 1)), [0.0, 0.0])
#: MRR@10 of each column: 1 / rank, 0 below rank 10.
MRR_AT_10: Floats = np.append(1 / np.arange(1, DEPTH + 1), [0.0, 0.0])
#: Number of columns within each depth of recall, a selection of the authors' depths (5, 10, 20, 50,
#: 100).
RECALL_COLUMNS = {5: 5, 10: 10, 100: 11}
Addable = TypeVar("Addable")


def pool(values: Iterable[Addable]) -> Addable:
    """Add one or more additive values; raise ProfileError if their schemes differ."""
    return reduce(add, values)


@contextmanager
def validate_json(
    data: object, newest: int, subject: str = "", *, field: str = ""
) -> Iterator[None]:
    """Check the schema version of JSON and convert errors in the body to ProfileErrors.

    Messages name `subject`, or by default the field of a result. Raises NewerSchemaError if the
    version is above `newest`.
    """
    subject = subject or f"field '{field}'"
    if not isinstance(data, Mapping) or not isinstance(data.get("schema"), int):
        raise ProfileError(
            f"The {subject} must be a JSON object with an integer field 'schema'.", field
        )
    check_schema(data["schema"], newest, f"The {subject}")
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ProfileError(f"The {subject} is damaged ({summarize_error(error)})", field) from error


def format_counts(row: Integers) -> str:
    """Join counts with spaces, which keeps JSON files short."""
    return " ".join(map(str, row.tolist()))


def map_ranks_to_columns(ranks: Integers) -> Integers:
    """Map each rank to its column in `RANKS`, shape (n,). Rank 0 is a miss."""
    is_miss = (ranks < 1) | (ranks > 100)
    return np.where(is_miss, len(RANKS) - 1, np.minimum(ranks, DEPTH + 1) - 1)


def build_recall_gains(depth: int) -> Floats:
    """Return recall at a depth of `RECALL_COLUMNS` for each column of `RANKS`, shape (12,)."""
    gain: Floats = (np.arange(len(RANKS)) < RECALL_COLUMNS[depth]).astype(np.float64)
    return gain


def average_gains(counts: Integers | Floats, gains: Floats) -> Floats:
    """Average gains, shape (12,), weighted by counts, shape (..., 12); NaN if a sum is 0."""
    queries = counts.sum(axis=-1)
    with np.errstate(invalid="ignore"):
        means: Floats = np.where(queries > 0, counts @ gains / np.maximum(queries, 1), np.nan)
    return means


@dataclass(frozen=True, eq=False)
class PositionProfile:
    """Counts of ranks by document length and evidence position.

    Profiles of the same scheme are additive: `a + b` pools domains, languages or shards.
    """

    axes: Axes
    """L length buckets and P position bins."""
    counts: Integers
    """Number of queries per cell and column of `RANKS`, shape (L, P, 12). A query on a boundary is
    in two cells.
    """
    totals: Integers
    """Number of distinct queries per length bucket and column, shape (L, 12)."""

    def __post_init__(self) -> None:
        lengths = len(self.axes.lengths)
        positions = len(self.axes.positions)
        shapes = ((lengths, positions, len(RANKS)), (lengths, len(RANKS)))
        for array, shape in zip((self.counts, self.totals), shapes, strict=True):
            if array.shape != shape:
                raise ValueError(
                    f"an array has the shape {array.shape}, but {lengths} length buckets and "
                    f"{positions} position bins require {shape}."
                )
            if array.min(initial=0) < 0 or array.max(initial=0) > MAX_COUNT:
                raise ValueError(f"a count is not between 0 and {MAX_COUNT:,}.")

    @classmethod
    def from_ranks(
        cls, scheme: PositionScheme, evidence: Evidence, ranks: Integers | None = None
    ) -> PositionProfile:
        """Count the ranks of n relevant documents in the cells of a scheme.

        `ranks` start at 1 and are 0 for a miss, shape (n,). Without `ranks`, all are misses, which
        is enough for `queries_by_cell` and `queries_by_length`.
        """
        axes = scheme.axes
        cells = scheme.cells(evidence)
        if ranks is None:
            ranks = np.zeros(len(evidence), np.int64)
        columns = map_ranks_to_columns(ranks)
        lengths = len(axes.lengths)
        counts = np.zeros((lengths, len(axes.positions), len(RANKS)), np.int64)
        np.add.at(counts, (cells.length, cells.position, columns[cells.query]), 1)
        totals = np.zeros((lengths, len(RANKS)), np.int64)
        np.add.at(totals, (scheme.length_buckets(evidence), columns), 1)
        return cls(axes, counts, totals)

    def __add__(self, other: PositionProfile) -> PositionProfile:
        self.axes.check_same(other.axes)
        return PositionProfile(self.axes, self.counts + other.counts, self.totals + other.totals)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PositionProfile) and self._key == other._key

    def has_same_queries(self, other: PositionProfile) -> bool:
        """Return True if the numbers of queries per length and cell are equal."""
        return (
            self.axes == other.axes
            and np.array_equal(self.queries_by_cell, other.queries_by_cell)
            and np.array_equal(self.queries_by_length, other.queries_by_length)
        )

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Axes, bytes, bytes]:
        counts = self.counts.astype(np.int64).tobytes()
        return self.axes, counts, self.totals.astype(np.int64).tobytes()

    @property
    def queries(self) -> int:
        """Number of distinct queries."""
        return int(self.totals.sum())

    @property
    def queries_by_cell(self) -> Integers:
        """Number of queries per cell, shape (L, P)."""
        queries: Integers = self.counts.sum(axis=-1)
        return queries

    @property
    def queries_by_length(self) -> Integers:
        """Number of distinct queries per length bucket, shape (L,)."""
        queries: Integers = self.totals.sum(axis=-1)
        return queries

    @property
    def lengths(self) -> tuple[str, ...]:
        """Names of the L length buckets."""
        return self.axes.lengths

    @property
    def positions(self) -> tuple[str, ...]:
        """Names of the P position bins."""
        return self.axes.positions

    def score(self, gains: Floats = NDCG_AT_10) -> float:
        """Return the mean gain of all distinct queries, in [0, 1]; NaN without queries."""
        return float(average_gains(self.totals.sum(axis=0), gains))

    def by_position(self, gains: Floats = NDCG_AT_10) -> Floats:
        """Return the mean gain of each position bin over all lengths, shape (P,); NaN for empty
        bins.
        """
        return average_gains(self.counts.sum(axis=0), gains)

    def select_length(self, index: int) -> PositionProfile:
        """Return the profile of one length bucket."""
        rows = slice(index, index + 1)
        return PositionProfile(self.axes.select_length(index), self.counts[rows], self.totals[rows])

    def to_json(self) -> dict[str, Any]:
        """Return the profile as plain JSON."""
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
        """Read the output of `to_json`.
        Raises:
            ProfileError: The JSON is damaged.
            NewerSchemaError: A newer version of posir wrote it.
        """
        with validate_json(data, SCHEMA, "position profile"):
            counts = np.array(
                [[row.split() for row in bucket] for bucket in data["counts"]], np.int64
            )
            totals = np.array([row.split() for row in data["totals"]], np.int64)
            profile = cls(Axes.from_json(data["axes"]), counts, totals)
        if data.get("queries") != profile.queries:
            raise ProfileError(
                f"The position profile has {profile.queries} queries, but its field 'queries' is "
                f"{data.get('queries')}."
            )
        return profile
