"""Counts per length bucket and position bin, which add over the same axes, and the JSON form of such values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from posir_tasks.errors import ProfileError, check_schema, summarize_error
from posir_tasks.evidence import Evidence, Integers
from posir_tasks.schemes import Axes, PositionScheme

#: Largest count; no corpus has as many queries.
MAX_COUNT = 10**12

Floats = NDArray[np.float64]
Addable = TypeVar("Addable")


def pool(values: Iterable[Addable]) -> Addable:
    """Add one or more profiles or other values that add; raise ProfileError if their schemes differ."""
    return reduce(add, values)


def check_counts(axes: Axes, per_cell: Iterable[Integers], per_length: Iterable[Integers], *columns: int) -> None:
    """Raise ValueError for counts below 0, too large, or not of shape (L, P, *columns) per cell or (L, *columns) per length."""
    lengths, positions = len(axes.lengths), len(axes.positions)
    for arrays, expected in ((per_cell, (lengths, positions, *columns)), (per_length, (lengths, *columns))):
        for array in arrays:
            if array.shape != expected:
                raise ValueError(
                    f"an array has the shape {array.shape}; {lengths} length buckets and {positions} position bins need "
                    f"{expected}."
                )
            if array.min(initial=0) < 0 or array.max(initial=0) > MAX_COUNT:
                raise ValueError(f"a count is not between 0 and {MAX_COUNT:,}; counts are numbers of queries.")


@contextmanager
def reading_json(data: object, newest: int, what: str) -> Iterator[None]:
    """Check the schema of JSON, called `what`, and explain errors of reading it: ProfileError, NewerSchemaError."""
    if not isinstance(data, Mapping) or not isinstance(data.get("schema"), int):
        raise ProfileError(f"The {what} must be a JSON object with an integer field 'schema'.")
    check_schema(data["schema"], newest, f"The {what}")
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ProfileError(f"The {what}: damaged ({summarize_error(error)})") from error


def format_counts(row: Integers) -> str:
    """Return a row of counts as one string, which keeps a JSON file readable and small."""
    return " ".join(map(str, row.tolist()))


def parse_counts(text: str) -> list[int]:
    """Return the counts in a string of `format_counts`."""
    return [int(count) for count in text.split()]


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Queries counted per cell. Values of one class over the same axes add."""

    COLUMNS: ClassVar[tuple[int, ...]] = ()
    """Shape of the counts of a cell."""

    axes: Axes
    """The L length buckets and P position bins."""
    counts: Integers
    """Queries of each cell, shape (L, P, *COLUMNS); a query on a shared boundary counts in two cells."""
    totals: Integers
    """Distinct queries of each length bucket, shape (L, *COLUMNS)."""

    def __post_init__(self) -> None:
        check_counts(self.axes, [self.counts], [self.totals], *self.COLUMNS)

    @staticmethod
    def from_evidence(scheme: PositionScheme, evidence: Evidence) -> CellCounts:
        """Count queries in the cells of a scheme."""
        axes, cells = scheme.axes, scheme.cells(evidence)
        counts = np.zeros((len(axes.lengths), len(axes.positions)), np.int64)
        np.add.at(counts, (cells.length, cells.position), 1)
        return CellCounts(axes, counts, np.bincount(scheme.length_buckets(evidence), minlength=len(axes.lengths)))

    def __add__(self, other: Self) -> Self:
        if type(self) is not type(other):
            return NotImplemented
        self.axes.check_same(other.axes)
        return replace(self, counts=self.counts + other.counts, totals=self.totals + other.totals)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, CellCounts)
            and type(self) is type(other)
            and self.axes == other.axes
            and np.array_equal(self.counts, other.counts)
            and np.array_equal(self.totals, other.totals)
        )

    def __hash__(self) -> int:
        return hash((self.axes, self.counts.tobytes(), self.totals.tobytes()))

    @property
    def queries(self) -> int:
        """Number of distinct queries."""
        return int(self.totals.sum())
