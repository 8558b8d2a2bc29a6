"""Position schemes: how evidence becomes a length bucket and a position bin.

A scheme may put a query in several bins (SQuAD-PosQ's buckets share their boundaries) or in none.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from posir_tasks.evidence import Evidence, Integers


@dataclass(frozen=True)
class Cells:
    """Which query lies in which cell: three aligned columns of shape (m,), one row per membership."""

    query: Integers
    """Index into the evidence."""
    length: Integers
    """Index of the length bucket."""
    position: Integers
    """Index of the position bin."""


class PositionScheme(Protocol):
    """How evidence becomes cells of a profile with the shape (length buckets, position bins)."""

    @property
    def name(self) -> str:
        """Unique name, stored in every profile; profiles of different schemes do not add."""

    @property
    def lengths(self) -> tuple[str, ...]:
        """Names of the length buckets, from short to long."""

    @property
    def positions(self) -> tuple[str, ...]:
        """Names of the position bins, from first to last."""

    def length_of(self, evidence: Evidence) -> Integers:
        """Return the index of each query's length bucket, shape (n,)."""

    def cells(self, evidence: Evidence) -> Cells:
        """Return the cells in which each query is counted."""


@dataclass(frozen=True)
class RelativePositions:
    """PosIR (Zeng et al. 2026, arXiv 2601.08363): equal bins of the evidence's midpoint, by length of the document.

    position = (start + end) / 2 / characters, clipped to [0, 1]; bins are right-closed, the first closed on both sides
    (as `pandas.cut(..., include_lowest=True)`). Length buckets are right-closed intervals of tokens.
    """

    bins: int = 20
    token_bounds: tuple[int, ...] = (512, 1024, 1536)

    @property
    def name(self) -> str:
        """Unique name of the scheme."""
        return f"relative-{self.bins}x" + "-".join(map(str, self.token_bounds))

    @property
    def lengths(self) -> tuple[str, ...]:
        """Q1 (shortest) to Qn."""
        return tuple(f"Q{k}" for k in range(1, len(self.token_bounds) + 2))

    @property
    def positions(self) -> tuple[str, ...]:
        """The intervals of relative position."""
        edges = np.linspace(0, 1, self.bins + 1)
        return tuple(f"{'[' if k == 0 else '('}{low:.2f}, {high:.2f}]" for k, (low, high) in enumerate(pairwise(edges)))

    def length_of(self, evidence: Evidence) -> Integers:
        """Return the index of each query's length bucket, shape (n,)."""
        return np.searchsorted(self.token_bounds, evidence.tokens, side="left").astype(np.int64)

    def cells(self, evidence: Evidence) -> Cells:
        """Return one cell per query."""
        midpoint = np.clip((evidence.starts + evidence.ends) / 2 / evidence.characters, 0.0, 1.0)
        edges = np.linspace(0, 1, self.bins + 1)
        position = np.maximum(np.searchsorted(edges, midpoint, side="left") - 1, 0)
        return Cells(np.arange(len(evidence)), self.length_of(evidence), position.astype(np.int64))


@dataclass(frozen=True)
class AbsolutePositions:
    """SQuAD-PosQ (Zeng et al. 2025, arXiv 2505.13950): buckets of the evidence's first character.

    Buckets are closed at both ends, as in the authors' code, so a start on a shared boundary counts in two of them.
    """

    buckets: tuple[tuple[int, int], ...] = ((0, 100), (100, 200), (200, 300), (300, 400), (400, 500), (500, 3120))
    lengths: tuple[str, ...] = ("all",)

    @property
    def name(self) -> str:
        """Unique name of the scheme."""
        return "absolute-" + "-".join(self.positions)

    @property
    def positions(self) -> tuple[str, ...]:
        """The buckets as the papers write them: 0-100."""
        return tuple(f"{low}-{high}" for low, high in self.buckets)

    def length_of(self, evidence: Evidence) -> Integers:
        """Return zeros: all lengths are one bucket, shape (n,)."""
        return np.zeros(len(evidence), np.int64)

    def cells(self, evidence: Evidence) -> Cells:
        """Return a cell for each bucket that holds the query's start; none if no bucket does."""
        low, high = np.array(self.buckets).T
        query, position = np.nonzero((evidence.starts[:, None] >= low) & (evidence.starts[:, None] <= high))
        return Cells(query, np.zeros(len(query), np.int64), position)


@dataclass(frozen=True)
class LabelledPositions:
    """FineWeb-PosQ (Zeng et al. 2025, arXiv 2505.13950): the third of the passage that the label names.

    A label counts in every position it contains, since an earlier release of the data had two labels on some rows.
    """

    positions: tuple[str, ...] = ("beginning", "middle", "end")
    lengths: tuple[str, ...] = ("all",)

    @property
    def name(self) -> str:
        """Unique name of the scheme."""
        return "label-" + "-".join(self.positions)

    def length_of(self, evidence: Evidence) -> Integers:
        """Return zeros: all lengths are one bucket, shape (n,)."""
        return np.zeros(len(evidence), np.int64)

    def cells(self, evidence: Evidence) -> Cells:
        """Return a cell for each position that the query's label contains."""
        contains = np.array([[name in label for name in self.positions] for label in evidence.labels], dtype=bool)
        query, position = np.nonzero(contains.reshape(len(evidence), len(self.positions)))
        return Cells(query, np.zeros(len(query), np.int64), position)
