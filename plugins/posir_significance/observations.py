"""Input to the statistics: gains of queries, and their documents and position bins."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from posir_tasks.base.arrays import Booleans, make_empty_column
from posir_tasks.base.arrays import Floats as Floats
from posir_tasks.base.arrays import Integers as Integers
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.evidence import TWELFTHS
from posir_tasks.values.layouts import QueryLayout
from posir_tasks.values.read_part import UNKNOWN, ReadKind, ReadPart


@dataclass(frozen=True, eq=False)
class Observations:
    """Gains of n queries on a layout."""

    gains: Floats
    """nDCG@10 of each query in [0, 1], shape (n,)."""
    layout: QueryLayout
    """Documents and position bins of the queries."""
    twelfths: Integers = field(default_factory=make_empty_column)
    """Twelfth of the window, 0 to 11, or an `Unread` code, shape (n,); shape (0,) if unknown."""
    read: ReadPart = UNKNOWN
    """The window."""

    @property
    def has_window(self) -> bool:
        """True if positions within the window are known, and if there are queries."""
        return len(self.twelfths) > 0

    @property
    def unread_share(self) -> float | None:
        """Share of the queries with truncated evidence; None if unknown."""
        if self.read.kind is ReadKind.ALL:
            return 0.0
        if self.read.kind is ReadKind.UNKNOWN or not self.has_window:
            return None
        return float(np.average(self.twelfths >= TWELFTHS, weights=self.layout.shares))

    def select(self, mask: Booleans) -> Observations:
        """Select queries with a mask of shape (n,)."""
        twelfths = self.twelfths[mask] if self.has_window else self.twelfths
        layout = self.layout.select(mask)
        return replace(self, gains=self.gains[mask], layout=layout, twelfths=twelfths)

    def merge_bins(self, size: int) -> Observations:
        """Merge every `size` consecutive bins; a query in several of them counts once."""
        return replace(self, layout=self.layout.merge_bins(size))

    @classmethod
    def from_ranks(cls, ranks: DocumentRanks, read: ReadPart = UNKNOWN) -> Observations:
        """Build the observations of ranks by document."""
        return cls(ranks.columns.gains, ranks.layout, ranks.columns.twelfths, read)


def subtract_observations(a: Observations, b: Observations) -> Observations:
    """Subtract gains, b - a, for the same queries in the same order."""
    return replace(a, gains=b.gains - a.gains)
