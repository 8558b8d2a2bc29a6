"""NumPy array types."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Booleans: TypeAlias = NDArray[np.bool_]


def make_empty_column() -> Integers:
    """Return a column for missing data, shape (0,)."""
    return np.zeros(0, np.int64)
