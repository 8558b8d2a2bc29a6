"""Correction of p-values that are read together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np


def correct_p_values(
    p_values: Sequence[float | None], families: Sequence[Hashable]
) -> list[float | None]:
    """Return p-values corrected by Holm's method within the family that each belongs to; None
    stays, and takes no share.
    """
    corrected = list(p_values)
    for family in set(families):
        members = {
            index: p_value
            for index, (other, p_value) in enumerate(zip(families, p_values, strict=True))
            if other == family and p_value is not None
        }
        for index, p_value in zip(members, holm(list(members.values())), strict=True):
            corrected[index] = p_value
    return corrected


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm-corrected p-values (Holm 1979, Scandinavian Journal of Statistics 6, 65-70).

    The correction controls the family-wise error rate under any dependence. The tests of a family
    are dependent: length buckets are parts of `all`, and pairs share models. The method of
    Benjamini and Hochberg, which SciPy has, controls the false discovery rate instead, which suits
    screening but not a table whose rows are read one by one. Values are in [0, 1].

    Returns:
        As many, each at least as large as given and at most 1.
    """
    values = np.asarray(p_values, np.float64)
    order = np.argsort(values)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(
        1, np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    )
    return list(map(float, adjusted))
