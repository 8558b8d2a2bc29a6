"""What statistics need of queries besides their ranks, computed once for all models of a task."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from posir_tasks.base.arrays import Booleans, Floats, Integers, freeze_arrays, make_empty_column
from posir_tasks.base.caching import cache_recent
from posir_tasks.values.schemes import compute_bin_midpoints

if TYPE_CHECKING:
    from posir_tasks.values.means import MeanDesign

#: Number of thirds of a document.
THIRDS = 3
#: Number of cached selections, such as the lengths, windows and merged bins of a few tasks, and
#: number of queries up to which there may be more.
CACHED_SELECTIONS, CACHED_QUERIES = 64, 1_000_000


@dataclass(frozen=True, eq=False)
class BinCells:
    """Cells of the m memberships in the B non-empty bins. A cell is a cluster within a bin."""

    bins: Integers
    """Indices of the non-empty bins, shape (B,)."""
    counts: Integers
    """Number of memberships of each non-empty bin, shape (B,)."""
    columns: Integers
    """Number of each membership's bin among the non-empty bins, shape (m,)."""
    cells: Integers
    """Number of each membership's cell, cluster * B + column, shape (m,)."""
    clusters: int
    """Number of clusters with memberships."""


@dataclass(frozen=True, eq=False)
class QueryLayout:
    """Documents and position bins of n queries, with m memberships in bins. A query on a boundary
    has two memberships.

    Queries in different clusters are independent. Queries about a document share its difficulty.
    """

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
    weights: Floats = field(default_factory=lambda: np.zeros(0))
    """Weight of each row, 1/k if its query has k evidence spans, shape (n,); shape (0,) if each row
    is a query.
    """

    @cached_property
    def document_thirds(self) -> Integers:
        """Third of the document with the evidence, or with the middle of its bins, shape (n,)."""
        if len(self.thirds) or not len(self.query):
            return self.thirds
        sums = np.bincount(self.query, compute_bin_midpoints(self.bins)[self.position])
        middle = sums / np.bincount(self.query)
        # The subtraction puts all middles on a boundary on the same side.
        thirds: Integers = np.floor(3 * middle - 1e-9).astype(np.int64)
        return thirds

    @cached_property
    def third_weights(self) -> Floats:
        """Weight of each query in each third of its document, shape (n, 3)."""
        query = self.query
        shares = np.zeros((len(self.clusters), THIRDS))
        if self.bins == THIRDS:
            memberships = np.bincount(query, minlength=len(shares))
            np.add.at(shares, (query, self.position), 1 / memberships[query])
        elif len(shares):
            shares[np.arange(len(shares)), self.document_thirds] = 1.0
        return shares * self.row_weights[:, None]

    @cached_property
    def shares(self) -> Floats | None:
        """Row weights that sum to 1; None if all are equal."""
        return self.weights / self.weights.sum() if len(self.weights) else None

    @cached_property
    def row_weights(self) -> Floats:
        """Weight of each row, 1 if rows are queries, shape (n,)."""
        return self.weights if len(self.weights) else np.ones(len(self.clusters))

    @cached_property
    def cluster_numbers(self) -> Integers:
        """Number of each query's cluster among the C clusters of the layout, from 0, shape (n,)."""
        return np.unique(self.clusters, return_inverse=True)[1]

    @cached_property
    def bin_counts(self) -> Integers:
        """Number of memberships of each bin, shape (bins,)."""
        return np.bincount(self.position, minlength=self.bins)

    @cached_property
    def bin_cells(self) -> BinCells:
        """The cells of the memberships in non-empty bins."""
        bins = np.flatnonzero(self.bin_counts)
        columns = np.searchsorted(bins, self.position)
        clusters, cluster = np.unique(self.clusters[self.query], return_inverse=True)
        cells = cluster * len(bins) + columns
        return BinCells(bins, self.bin_counts[bins], columns, cells, len(clusters))

    @cached_property
    def mean_design(self) -> MeanDesign:
        """The design of the mean over queries."""
        # Importing SciPy is slow.
        from posir_tasks.values.means import build_design

        return build_design(self.clusters, self.shares)

    @cached_property
    def bin_design(self) -> MeanDesign:
        """The design of the mean of each bin, over memberships."""
        from posir_tasks.values.means import build_design

        weights = self.row_weights[self.query]
        totals = np.bincount(self.position, weights, self.bins)
        shares = weights / totals[self.position]
        return build_design(self.clusters[self.query], shares, self.position, self.bins)

    @cached_property
    def mean_of_bins_design(self) -> MeanDesign:
        """The design of the unweighted mean of non-empty bins, over memberships."""
        from posir_tasks.values.means import build_design

        counts = self.bin_counts
        shares = 1 / ((counts > 0).sum() * counts[self.position])
        return build_design(self.clusters[self.query], shares, strata=self.position)

    def select(self, queries: Booleans) -> QueryLayout:
        """Select queries, a mask of shape (n,); cached."""
        return _select(self, queries.tobytes())

    def merge_bins(self, size: int) -> QueryLayout:
        """Merge every `size` consecutive bins; a query in several of them counts once; cached."""
        return _merge_bins(self, size)

    def replace_bins(self, position: Integers, bins: int) -> QueryLayout:
        """Replace the bins of the queries by one other bin each, shape (n,); cached."""
        return _replace_bins(self, position.astype(np.int64).tobytes(), bins)


@cache_recent(CACHED_SELECTIONS, CACHED_QUERIES, lambda layout: len(layout.clusters))
def _select(layout: QueryLayout, mask: bytes) -> QueryLayout:
    queries = np.frombuffer(mask, np.bool_)
    rows = np.cumsum(queries) - 1
    members = queries[layout.query]
    selection = replace(
        layout,
        lengths=layout.lengths[queries],
        clusters=layout.clusters[queries],
        query=rows[layout.query[members]],
        position=layout.position[members],
        thirds=layout.thirds[queries] if len(layout.thirds) else layout.thirds,
        weights=layout.weights[queries] if len(layout.weights) else layout.weights,
    )
    return freeze_arrays(selection)


@cache_recent(CACHED_SELECTIONS, CACHED_QUERIES, lambda layout: len(layout.clusters))
def _merge_bins(layout: QueryLayout, size: int) -> QueryLayout:
    bins = layout.bins // size
    query, position = np.divmod(np.unique(layout.query * bins + layout.position // size), bins)
    return freeze_arrays(replace(layout, query=query, position=position, bins=bins))


@cache_recent(CACHED_SELECTIONS, CACHED_QUERIES, lambda layout: len(layout.clusters))
def _replace_bins(layout: QueryLayout, position: bytes, bins: int) -> QueryLayout:
    rows = np.arange(len(layout.clusters))
    bin_of_query = np.frombuffer(position, np.int64)
    return freeze_arrays(replace(layout, query=rows, position=bin_of_query, bins=bins))
