"""Input to the statistics: gain, position bins, document and article of every query."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from posir_tasks.base.arrays import Booleans, make_empty_column
from posir_tasks.base.arrays import Floats as Floats
from posir_tasks.base.arrays import Integers as Integers
from posir_tasks.values.document_ranks import PLACE_WEIGHT, DocumentRanks
from posir_tasks.values.evidence import TWELFTHS
from posir_tasks.values.read_part import UNKNOWN, ReadKind, ReadPart
from posir_tasks.values.schemes import compute_bin_midpoints

#: Columns of `Observations` with shape (n,).
QUERY_COLUMNS = ("gains", "lengths", "clusters", "thirds", "twelfths", "weights")


@dataclass(frozen=True, eq=False)
class Observations:
    """Gains of n queries and their m memberships in position bins; a query on a boundary has two.

    Queries in different clusters are independent. Queries about a document share its difficulty.
    """

    gains: Floats
    """nDCG@10 of each query in [0, 1], shape (n,)."""
    lengths: Integers
    """Length bucket of each query's document, shape (n,)."""
    clusters: Integers
    """Article of each query, or its document if unknown, shape (n,)."""
    query: Integers
    """Query of each membership, an index into the columns above, shape (m,)."""
    position: Integers
    """Position bin of each membership, shape (m,)."""
    bins: int
    """Number of position bins."""
    thirds: Integers = field(default_factory=make_empty_column)
    """Third of the document with the evidence, 0 to 2, shape (n,); shape (0,) if only bins are
    known.
    """
    twelfths: Integers = field(default_factory=make_empty_column)
    """Twelfth of the window, 0 to 11, or an `Unread` code, shape (n,); shape (0,) if unknown."""
    weights: Floats = field(default_factory=lambda: np.zeros(0))
    """Weight of each row, 1/k if its query has k evidence spans, shape (n,); shape (0,) if each row
    is a query.
    """
    read: ReadPart = UNKNOWN
    """The window."""

    @property
    def document_thirds(self) -> Integers:
        """Third of the document with the evidence, or with the middle of its bins, shape (n,)."""
        if len(self.thirds) or not len(self.query):
            return self.thirds
        sums = np.bincount(self.query, compute_bin_midpoints(self.bins)[self.position])
        middle = sums / np.bincount(self.query)
        # The subtraction puts all middles on a boundary on the same side.
        thirds: Integers = np.floor(3 * middle - 1e-9).astype(np.int64)
        return thirds

    @property
    def unread_share(self) -> float | None:
        """Share of the queries with truncated evidence; None if unknown."""
        if self.read.kind is ReadKind.ALL:
            return 0.0
        if self.read.kind is ReadKind.UNKNOWN or not len(self.twelfths):
            return None
        return float(np.average(self.twelfths >= TWELFTHS, weights=self.shares))

    @property
    def shares(self) -> Floats | None:
        """Row weights that sum to 1; None if all are equal."""
        return self.weights / self.weights.sum() if len(self.weights) else None

    @property
    def row_weights(self) -> Floats:
        """Weight of each row, 1 if rows are queries, shape (n,)."""
        return self.weights if len(self.weights) else np.ones(len(self.gains))

    def select(self, mask: Booleans) -> Observations:
        """Select queries with a mask of shape (n,)."""
        rows = np.cumsum(mask) - 1
        members = mask[self.query]
        columns = {}
        for name in QUERY_COLUMNS:
            column = getattr(self, name)
            if len(column):
                columns[name] = column[mask]
        return replace(
            self,
            **columns,
            query=rows[self.query[members]],
            position=self.position[members],
        )

    def merge_bins(self, size: int) -> Observations:
        """Merge every `size` consecutive bins; a query in several of them counts once."""
        bins = self.bins // size
        query, position = np.divmod(np.unique(self.query * bins + self.position // size), bins)
        return replace(self, query=query, position=position, bins=bins)

    @classmethod
    def from_ranks(cls, ranks: DocumentRanks, read: ReadPart = UNKNOWN) -> Observations:
        """Build the observations of ranks by document."""
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
    """Subtract gains, b - a, for the same queries in the same order."""
    return replace(a, gains=b.gains - a.gains)
