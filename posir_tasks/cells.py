"""Values per length bucket and position bin: counts and moments. Values over the same axes add, as profiles do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import add
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from posir_tasks.errors import ProfileError, check_schema, summarize_error
from posir_tasks.evidence import Evidence, Integers
from posir_tasks.schemes import Axes, PositionScheme

#: Version of the JSON form of counts and of moments. A reader refuses a newer one.
SCHEMA = 1
#: Largest count; no corpus has as many queries.
MAX_COUNT = 10**12

Floats = NDArray[np.float64]


class CellValue(Protocol):
    """A frozen dataclass of axes and arrays."""

    @property
    def axes(self) -> Axes:
        """The axes of the arrays."""


Value = TypeVar("Value", bound=CellValue)
Addable = TypeVar("Addable")


def add_values(left: Value, right: Value) -> Value:
    """Add two values of one class, array by array; raise ProfileError if their axes differ."""
    if type(left) is not type(right):
        return NotImplemented  # type: ignore[no-any-return]
    left.axes.check_same(right.axes)
    sums: Value = replace(left, **{name: getattr(left, name) + getattr(right, name) for name in _array_names(left)})  # type: ignore[type-var]
    return sums


def equal_values(left: CellValue, right: object) -> bool:
    """Return whether two values have one class, the same axes and the same arrays."""
    return (
        type(left) is type(right)
        and left.axes == right.axes
        and all(np.array_equal(getattr(left, name), getattr(right, name)) for name in _array_names(left))
    )


def _array_names(value: CellValue) -> list[str]:
    return [field.name for field in fields(value) if field.name != "axes"]  # type: ignore[arg-type]


def pool(values: Iterable[Addable]) -> Addable:
    """Add one or more profiles or other values that add; raise ProfileError if their schemes differ."""
    return reduce(add, values)


def check_shapes(axes: Axes, per_cell: Iterable[NDArray[Any]], per_length: Iterable[NDArray[Any]], *columns: int) -> None:
    """Raise ValueError unless arrays fit L length buckets and P position bins: (L, P, *columns) per cell, (L, *columns)."""
    lengths, positions = len(axes.lengths), len(axes.positions)
    for arrays, expected in ((per_cell, (lengths, positions, *columns)), (per_length, (lengths, *columns))):
        for array in arrays:
            if array.shape != expected:
                raise ValueError(
                    f"an array has the shape {array.shape}; {lengths} length buckets and {positions} position bins need "
                    f"{expected}."
                )


def check_counts(*counts: Integers) -> None:
    """Raise ValueError if a count is negative, or so large that sums overflow."""
    if any(array.min(initial=0) < 0 or array.max(initial=0) > MAX_COUNT for array in counts):
        raise ValueError(f"a count is not between 0 and {MAX_COUNT:,}; counts are numbers of queries.")


@contextmanager
def reading_json(data: object, newest: int, what: str) -> Iterator[None]:
    """Check the schema version of JSON, which messages call `what`, and explain errors while it is read.

    Raises:
        ProfileError: The JSON is damaged.
        NewerSchemaError: A newer version of posir wrote it.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("schema"), int):
        raise ProfileError(f"The {what} must be a JSON object with an integer field 'schema'.")
    check_schema(data["schema"], newest, f"The {what}")
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ProfileError(f"The {what} is damaged: {summarize_error(error)}") from error


def format_counts(row: Integers) -> str:
    """Return a row of counts as one string, which keeps a JSON file readable and small."""
    return " ".join(map(str, row.tolist()))


def parse_counts(text: str) -> list[int]:
    """Return the counts in a string of `format_counts`."""
    return [int(count) for count in text.split()]


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Queries counted per cell."""

    axes: Axes
    counts: Integers
    """Queries of each cell, shape (L, P); a query on a shared boundary counts in two cells."""
    totals: Integers
    """Distinct queries of each length bucket, shape (L,)."""

    def __post_init__(self) -> None:
        check_shapes(self.axes, [self.counts], [self.totals])
        check_counts(self.counts, self.totals)

    @classmethod
    def from_evidence(cls, scheme: PositionScheme, evidence: Evidence) -> CellCounts:
        """Count queries in the cells of a scheme."""
        axes, cells = scheme.axes, scheme.cells(evidence)
        counts = np.zeros((len(axes.lengths), len(axes.positions)), np.int64)
        np.add.at(counts, (cells.length, cells.position), 1)
        return cls(axes, counts, np.bincount(scheme.length_buckets(evidence), minlength=len(axes.lengths)))

    def __add__(self, other: CellCounts) -> CellCounts:
        return add_values(self, other)

    def __eq__(self, other: object) -> bool:
        return equal_values(self, other)

    @property
    def queries(self) -> int:
        """Number of distinct queries."""
        return int(self.totals.sum())

    def to_json(self) -> dict[str, Any]:
        """Return the counts as plain JSON."""
        return {
            "schema": SCHEMA,
            "axes": self.axes.to_json(),
            "totals": format_counts(self.totals),
            "counts": [format_counts(row) for row in self.counts],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CellCounts:
        """Read counts.

        Raises:
            ProfileError: The JSON is damaged.
            NewerSchemaError: A newer version of posir wrote it.
        """
        with reading_json(data, SCHEMA, "cell counts"):
            counts = np.array([parse_counts(row) for row in data["counts"]], np.int64)
            return cls(Axes.from_json(data["axes"]), counts, np.array(parse_counts(data["totals"]), np.int64))
