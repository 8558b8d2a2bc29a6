"""Correction of p-values for the number of tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm-corrected p-values (Holm 1979, Scandinavian Journal of Statistics 6, 65-70).

    The correction controls the family-wise error rate under any dependence. The tests of a report are dependent: length
    buckets are parts of `all`, and pairs share models. The method of Benjamini and Hochberg, which SciPy has, controls the
    false discovery rate instead, which suits screening but not a table whose rows are read one by one.

    Args:
        p_values: In [0, 1].

    Returns:
        As many, each at least as large as given and at most 1.
    """
    given = np.asarray(p_values, np.float64)
    order = np.argsort(given)
    adjusted = np.empty_like(given)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1)))
    return list(map(float, adjusted))
