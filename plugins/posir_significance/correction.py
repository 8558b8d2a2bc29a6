"""Correction of p-values for multiple tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence

import numpy as np


def correct_p_values(
    p_values: Sequence[float | None], families: Sequence[Hashable]
) -> list[float | None]:
    """Correct p-values by Holm's method within families.

    A p-value of None stays None and does not count as a test.
    """
    corrected_p_values = list(p_values)
    p_values_by_family = defaultdict[Hashable, dict[int, float]](dict)
    for index, (family, p_value) in enumerate(zip(families, p_values, strict=True)):
        if p_value is not None:
            p_values_by_family[family][index] = p_value
    for family_values in p_values_by_family.values():
        family_corrected = correct_by_holm([*family_values.values()])
        for index, p_value in zip(family_values, family_corrected, strict=True):
            corrected_p_values[index] = p_value
    return corrected_p_values


def correct_by_holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values in [0, 1] by Holm 1979, Scandinavian Journal of Statistics 6, 65-70.

    Holm's method controls the family-wise error rate under any dependence. Tests in a family are
    dependent: length buckets are parts of `all`, and pairs share models. Benjamini and Hochberg's
    method in SciPy controls the false discovery rate, which suits screening but not tables of
    single statements.

    Returns:
        Corrected p-values in the same order, at most 1.
    """
    values = np.asarray(p_values, np.float64)
    order = np.argsort(values)
    scaled = values[order] * np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(scaled))
    corrected: list[float] = adjusted.tolist()
    return corrected
