"""The observations that statistics start from: the gain, position bins, document and article of
every query.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from posir_tasks.base.arrays import Booleans, empty_integers
from posir_tasks.base.arrays import Floats as Floats
from posir_tasks.base.arrays import Integers as Integers
from posir_tasks.values.document_ranks import PLACE_WEIGHT, DocumentRanks
from posir_tasks.values.evidence import TWELFTHS
from posir_tasks.values.read_part import UNKNOWN, ReadKind, ReadPart
from posir_tasks.values.schemes import bin_midpoints

#: Columns of `Observations` with a value for each query.
QUERY_COLUMNS = ("gains", "lengths", "clusters", "thirds", "twelfths", "weights")


@dataclass(frozen=True, eq=False)
class Observations:
    """Gains of n queries and their m memberships in position bins; a query on a shared boundary has
    two memberships.

    Queries of different clusters are independent; those of one document share its difficulty.
    """

    gains: Floats
    """nDCG@10 of each query in [0, 1], shape (n,)."""
    lengths: Integers
    """Length bucket of each query's document, shape (n,)."""
    clusters: Integers
    """Article of each query where one is known, else its document, shape (n,)."""
    query: Integers
    """Query of each membership, an index into the columns above, shape (m,)."""
    position: Integers
    """Position bin of each membership, shape (m,)."""
    bins: int
    """Number of position bins."""
    thirds: Integers = field(default_factory=empty_integers)
    """Third of the document that has each query's evidence: 0, 1 or 2, shape (n,); (0,) if only its
    bins are known.
    """
    twelfths: Integers = field(default_factory=empty_integers)
    """Twelfth of what the model reads, 0 to 11, or `posir_tasks.values.evidence.Unread`, shape
    (n,); (0,) if unknown.
    """
    weights: Floats = field(default_factory=lambda: np.zeros(0))
    """1/n of each of the n places of a query, shape (n,); (0,) if rows are queries."""
    read: ReadPart = UNKNOWN
    """The part of a document that the model reads."""

    @property
    def document_thirds(self) -> Integers:
        """Third of the document that has each query's evidence, shape (n,); if unknown, that of the
        middle of its bins.
        """
        if len(self.thirds) or not len(self.query):
            return self.thirds
        sums = np.bincount(self.query, bin_midpoints(self.bins)[self.position])
        middle = sums / np.bincount(self.query)
        # Rounded, so that the middle of two bins on a boundary is always on the same side.
        thirds: Integers = np.floor(3 * middle - 1e-9).astype(np.int64)
        return thirds

    @property
    def unread_share(self) -> float | None:
        """Share of the queries whose evidence is truncated, wholly or in part; None if unknown."""
        if self.read.kind is ReadKind.ALL:
            return 0.0
        if self.read.kind is ReadKind.UNKNOWN or not len(self.twelfths):
            return None
        return float(np.average(self.twelfths >= TWELFTHS, weights=self.shares))

    @property
    def shares(self) -> Floats | None:
        """Weight of each row, summing to 1; None if all are equal."""
        return self.weights / self.weights.sum() if len(self.weights) else None

    @property
    def row_weights(self) -> Floats:
        """Weight of each row, 1 if rows are queries, shape (n,)."""
        return self.weights if len(self.weights) else np.ones(len(self.gains))

    def select(self, queries: Booleans) -> Observations:
        """Return the observations of these queries alone. `queries` is a mask of shape (n,)."""
        rows = np.cumsum(queries) - 1
        members = queries[self.query]
        selected = {}
        for name in QUERY_COLUMNS:
            column = getattr(self, name)
            if len(column):
                selected[name] = column[queries]
        return replace(
            self, **selected, query=rows[self.query[members]], position=self.position[members]
        )

    def merge_bins(self, size: int) -> Observations:
        """Return the observations in bins of `size` consecutive ones; a query in two of them is
        counted once.
        """
        bins = self.bins // size
        query, position = np.divmod(np.unique(self.query * bins + self.position // size), bins)
        return replace(self, query=query, position=position, bins=bins)

    @classmethod
    def from_ranks(cls, ranks: DocumentRanks, read: ReadPart = UNKNOWN) -> Observations:
        """Return the observations of ranks by document, of a model that reads this part of
        documents.
        """
        columns = ranks.columns
        query, position = ranks.memberships
        return cls(
            gains=columns.gains,
            lengths=ranks.cell_lengths[columns.cells],
            clusters=columns.clusters,
            query=query,
            position=position,
            bins=len(ranks.axes.positions),
            thirds=columns.thirds,
            twelfths=columns.twelfths,
            weights=columns.weights / PLACE_WEIGHT,
            read=read,
        )


def subtract_observations(a: Observations, b: Observations) -> Observations:
    """Return the differences in gain, b - a, of the same queries in the same order."""
    return replace(a, gains=b.gains - a.gains)
