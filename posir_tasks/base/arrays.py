"""NumPy array types."""

from dataclasses import fields
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Columns = TypeVar("Columns", bound="DataclassInstance")
Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Booleans: TypeAlias = NDArray[np.bool_]


def make_empty_column() -> Integers:
    """Return a column for missing data, shape (0,)."""
    return np.zeros(0, np.int64)


def freeze_arrays(columns: Columns) -> Columns:
    """Make the arrays of a dataclass read-only, since several results share them."""
    for field in fields(columns):
        value = getattr(columns, field.name)
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return columns
