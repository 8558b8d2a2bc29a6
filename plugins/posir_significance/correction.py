"""Correction of p-values that are read together, and the documents that can move a test."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from posir_significance.observations import Floats, Integers, Observations
from posir_significance.position_effect import Stratum


def name_test(length: str, queries: int | None, total: int | None) -> str:
    """Return the name of the test of a length: a bucket that has all queries is tested as `all`."""
    return "all" if queries is not None and queries == total else length


def correct_p_values(p_values: Sequence[float | None], families: Sequence[Hashable]) -> list[float | None]:
    """Return p-values corrected by Holm's method within the family that each belongs to; None stays, and takes no share."""
    corrected = list(p_values)
    tests = [(family, place, p_value) for place, (family, p_value) in enumerate(zip(families, p_values, strict=True))]
    for family in dict.fromkeys(families):
        known = {place: p_value for own, place, p_value in tests if own == family and p_value is not None}
        for place, p_value in zip(known, holm(list(known.values())), strict=True):
            corrected[place] = p_value
    return corrected


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm-corrected p-values (Holm 1979, Scandinavian Journal of Statistics 6, 65-70).

    The correction controls the family-wise error rate under any dependence. The tests of a family are dependent: length
    buckets are parts of `all`, and pairs share models. The method of Benjamini and Hochberg, which SciPy has, controls the
    false discovery rate instead, which suits screening but not a table whose rows are read one by one. Values are in [0, 1].

    Returns:
        As many, each at least as large as given and at most 1.
    """
    given = np.asarray(p_values, np.float64)
    order = np.argsort(given)
    adjusted = np.empty_like(given)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(given[order] * np.arange(len(given), 0, -1)))
    return list(map(float, adjusted))


def count_informative(observations: Observations, held_fixed: Stratum) -> int:
    """Return how many documents (articles, where known) can move the test of the position effect.

    A document can if both gains and position bins differ within its stratum: equal gains say nothing about position.
    """
    strata = observations.documents if held_fixed is Stratum.DOCUMENT else observations.subsets_and_lengths
    _, stratum = np.unique(strata[observations.query], return_inverse=True)
    varied = _vary(observations.gains[observations.query], stratum) & _vary(observations.position.astype(np.float64), stratum)
    return len(np.unique(observations.clusters[observations.query][varied[stratum]]))


def _vary(values: Floats, groups: Integers) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    low, high = np.full(len(groups), np.inf), np.full(len(groups), -np.inf)
    np.minimum.at(low, groups, values)
    np.maximum.at(high, groups, values)
    return high > low
