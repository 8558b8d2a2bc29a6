"""Types of NumPy arrays."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Booleans: TypeAlias = NDArray[np.bool_]


def empty_integers() -> Integers:
    """Return a column that the data does not have, shape (0,)."""
    return np.zeros(0, np.int64)
