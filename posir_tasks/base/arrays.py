"""NumPy array types."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Booleans: TypeAlias = NDArray[np.bool_]


def empty_integers() -> Integers:
    """Return an empty column, shape (0,), for absent data."""
    return np.zeros(0, np.int64)
