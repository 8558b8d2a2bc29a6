"""Position schemes: length buckets and position bins of evidence, their titles, and thirds.

A query may be in several bins (SQuAD-PosQ's buckets share boundaries) or in none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from pydantic import TypeAdapter

from posir_tasks.base.arrays import Floats, Integers
from posir_tasks.base.errors import ProfileError
from posir_tasks.values.evidence import POSITIONS, Evidence


@dataclass(frozen=True)
class Axes:
    """The length buckets and position bins of a scheme. Titles are ignored in comparisons."""

    scheme: str
    """Unique name of the `PositionScheme`. Values of different schemes cannot be added."""
    lengths: tuple[str, ...]
    """Names of the L length buckets, from short to long."""
    positions: tuple[str, ...]
    """Names of the P position bins, in document order."""
    position_title: str = field(default="Position of the evidence", compare=False)
    """Title of the position axis, with its unit."""
    length_titles: tuple[str, ...] = field(default=(), compare=False)
    """Titles of the length buckets, such as `Q2: 513 to 1,024 tokens`; by default the names."""
    equal_bins: bool = field(default=False, compare=False)
    """Whether position bins are equal shares of the document length."""

    def __post_init__(self) -> None:
        if not self.length_titles:
            object.__setattr__(self, "length_titles", self.lengths)
        if len(self.length_titles) != len(self.lengths):
            raise ValueError(
                f"there are {len(self.length_titles)} titles for {len(self.lengths)} length buckets"
            )

    def check_same(self, other: Axes) -> None:
        """Raise ProfileError if values on the two axes cannot be added."""
        if self.scheme != other.scheme:
            raise ProfileError(
                f"Values of the schemes '{self.scheme}' and '{other.scheme}' cannot be added. Pool "
                "results of one benchmark."
            )
        if self != other:
            raise ProfileError(
                f"Values of the length buckets {self.lengths} and {other.lengths} cannot be added."
            )

    def select_length(self, index: int) -> Axes:
        """Return the axes with only one length bucket."""
        rows = slice(index, index + 1)
        return replace(self, lengths=self.lengths[rows], length_titles=self.length_titles[rows])

    def to_json(self) -> dict[str, Any]:
        """Return the axes as plain JSON."""
        data: dict[str, Any] = AXES.dump_python(self, mode="json")
        return data

    @classmethod
    def from_json(cls, data: object) -> Axes:
        """Read the output of `to_json`; raise ValueError if a field is missing or invalid."""
        return AXES.validate_python(data)


AXES = TypeAdapter(Axes)


#: Maximum number of position bins of a scheme.
MAX_BINS = 1000
#: Title of a length bucket for documents of any length.
ALL_LENGTHS = "All lengths"


@dataclass(frozen=True)
class QueryCells:
    """Pairs of a query and a cell, as three aligned columns of shape (m,)."""

    query: Integers
    """Index into the evidence."""
    length: Integers
    """Index of the length bucket."""
    position: Integers
    """Index of the position bin."""


class PositionScheme(Protocol):
    """Assigns queries to the cells of a profile: a length bucket and a position bin each."""

    @property
    def axes(self) -> Axes:
        """The axes, stored in every profile."""

    def length_buckets(self, evidence: Evidence) -> Integers:
        """Return the index of each query's length bucket, shape (n,). Defaults to 0."""
        return np.zeros(len(evidence), np.int64)

    def cells(self, evidence: Evidence) -> QueryCells:
        """Return the cells of each query."""


@dataclass(frozen=True)
class RelativePositions:
    """PosIR (Zeng et al. 2026, arXiv 2601.08363): equal bins of the evidence midpoint, and document
    length buckets.

    The midpoint is (start + end) / 2 / characters, clipped to [0, 1]. Bins are right-closed, and
    the first bin includes 0, as in `pandas.cut(..., include_lowest=True)`. Length buckets Q1 to Qn
    are right-closed intervals of tokens.
    """

    bins: int = 20
    token_bounds: tuple[int, ...] = (512, 1024, 1536)

    @cached_property
    def axes(self) -> Axes:
        """Length buckets in tokens, and intervals of the relative position."""
        edges = np.linspace(0, 1, self.bins + 1)
        intervals = [f"({low:.2f}, {high:.2f}]" for low, high in pairwise(edges)]
        intervals[0] = intervals[0].replace("(", "[")
        return Axes(
            scheme=f"relative-{self.bins}x" + "-".join(map(str, self.token_bounds)),
            lengths=tuple(f"Q{k}" for k in range(1, len(self.token_bounds) + 2)),
            positions=tuple(intervals),
            position_title="Position of the evidence (0: start of the document, 1: end)",
            length_titles=_format_length_titles(self.token_bounds),
            equal_bins=True,
        )

    def length_buckets(self, evidence: Evidence) -> Integers:
        """Return the index of each query's length bucket, shape (n,)."""
        return np.searchsorted(self.token_bounds, evidence.tokens, side="left").astype(np.int64)

    def cells(self, evidence: Evidence) -> QueryCells:
        """Return the cell of each query."""
        middles = (evidence.starts + evidence.ends) / 2
        midpoint = np.clip(middles / evidence.characters, 0.0, 1.0)
        edges = np.linspace(0, 1, self.bins + 1)
        position = np.maximum(np.searchsorted(edges, midpoint, side="left") - 1, 0)
        lengths = self.length_buckets(evidence)
        return QueryCells(np.arange(len(evidence)), lengths, position.astype(np.int64))


@lru_cache
def find_scheme(name: str) -> PositionScheme | None:
    """Find a built-in scheme by the name of its axes; None for other schemes."""
    numbers = [int(number) for number in re.findall(r"\d{1,9}", name)]
    schemes: list[PositionScheme] = []
    if name.startswith("relative-") and numbers and 0 < numbers[0] <= MAX_BINS:
        schemes.append(RelativePositions(numbers[0], tuple(numbers[1:])))
    elif name.startswith("absolute-"):
        schemes.append(AbsolutePositions(tuple(zip(numbers[::2], numbers[1::2], strict=False))))
    elif name.startswith("label-"):
        schemes.append(LabeledPositions(tuple(name.split("-")[1:])))
    return next((scheme for scheme in schemes if scheme.axes.scheme == name), None)


def _format_length_titles(bounds: tuple[int, ...]) -> tuple[str, ...]:
    if not bounds:
        return (ALL_LENGTHS,)
    titles = [f"up to {bounds[0]:,} tokens"]
    titles += [f"{low + 1:,} to {high:,} tokens" for low, high in pairwise(bounds)]
    titles.append(f"over {bounds[-1]:,} tokens")
    return tuple(f"Q{number}: {title}" for number, title in enumerate(titles, start=1))


@dataclass(frozen=True)
class AbsolutePositions(PositionScheme):
    """SQuAD-PosQ (Zeng et al. 2025, arXiv 2505.13950): buckets of the evidence's first character.

    As in the authors' code, buckets are closed on both sides, so a boundary belongs to two buckets.
    """

    buckets: tuple[tuple[int, int], ...] = (
        (0, 100),
        (100, 200),
        (200, 300),
        (300, 400),
        (400, 500),
        (500, 3120),
    )

    @property
    def axes(self) -> Axes:
        """A single length bucket, and positions in the papers' notation: 0-100."""
        positions = tuple(f"{low}-{high}" for low, high in self.buckets)
        return _build_axes(
            "absolute",
            positions,
            "First character of the evidence, counted from the start of the passage",
        )

    def cells(self, evidence: Evidence) -> QueryCells:
        """Return a cell for each bucket that contains the first character of the evidence."""
        low, high = np.array(self.buckets).T
        starts = evidence.starts[:, None]
        query, position = np.nonzero((starts >= low) & (starts <= high))
        return QueryCells(query, np.zeros(len(query), np.int64), position)


@dataclass(frozen=True)
class LabeledPositions(PositionScheme):
    """FineWeb-PosQ (Zeng et al. 2025, arXiv 2505.13950): labeled thirds of the passage.

    A label counts for each position that it names, since an earlier release had two in some rows.
    """

    positions: tuple[str, ...] = POSITIONS

    @property
    def axes(self) -> Axes:
        """A single length bucket, and the labels."""
        return _build_axes(
            "label", self.positions, "Part of the passage that contains the evidence"
        )

    def cells(self, evidence: Evidence) -> QueryCells:
        """Return a cell for each position that a query's label names."""
        contains = [name in label for label in evidence.labels for name in self.positions]
        shape = (len(evidence), len(self.positions))
        query, position = np.nonzero(np.array(contains, dtype=bool).reshape(shape))
        return QueryCells(query, np.zeros(len(query), np.int64), position)


def _build_axes(kind: str, positions: tuple[str, ...], title: str) -> Axes:
    return Axes(f"{kind}-{'-'.join(positions)}", ("all",), positions, title, (ALL_LENGTHS,))


def compute_bin_midpoints(bins: int) -> Floats:
    """Return the midpoints of P equal bins of [0, 1], shape (P,)."""
    return (np.arange(bins) + 0.5) / bins


def assign_thirds(bins: int) -> Integers:
    """Return the third of the document that contains each bin's midpoint, 0 to 2, shape (P,)."""
    midpoints = compute_bin_midpoints(bins)
    thirds: Integers = (midpoints > 1 / 3).astype(np.int64) + (midpoints > 2 / 3)
    return thirds


def compute_thirds_contrast(bin_weights: Floats) -> Floats | None:
    """Return the coefficients of P bin scores, shape (P,), in the score of the first third minus
    the score of the last third. Return None if either third has no weight.

    `bin_weights` are the weights of equal bins within their third, such as query counts, shape
    (P,).
    """
    thirds = assign_thirds(len(bin_weights))
    first = np.where(thirds == 0, bin_weights, 0.0)
    last = np.where(thirds == 2, bin_weights, 0.0)
    if not first.any() or not last.any():
        return None
    contrast: Floats = first / first.sum() - last / last.sum()
    return contrast
