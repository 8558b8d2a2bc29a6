"""Mean nDCG@10 of groups of queries and its sampling variance: the statistics of this package start from these."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posir_tasks.profile import NDCG_AT_10

#: Seed of all random draws, so that the same profile gives the same numbers.
SEED = 20260108

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class GroupMeans:
    """Groups of queries, such as position bins; all arrays have the shape (..., groups)."""

    queries: Floats
    """Number of queries of each group."""
    means: Floats
    """Mean nDCG@10 of each group in [0, 1]; 0 where it is empty."""
    level: float
    """Mean nDCG@10 over all queries and one pseudo-query that scores 0.5: in (0, 1) even where all queries score the same."""
    dispersion: float
    """Variance of a query's nDCG@10 as a share of its maximum, mean * (1 - mean); in (0, 1]."""

    def shrunken_means(self) -> Floats:
        """Return each group's mean with one pseudo-query at the common level, which is in (0, 1) for every group."""
        return (self.queries * self.means + self.level) / (self.queries + 1)

    def sampling_variances(self, true_means: Floats) -> Floats:
        """Return the sampling variance of each group's mean; infinite where the group is empty.

        Args:
            true_means: In (0, 1), shape (..., groups).
        """
        with np.errstate(divide="ignore"):
            variances: Floats = self.dispersion * true_means * (1 - true_means) / self.queries
        return variances


def compute_group_means(counts: Integers) -> GroupMeans:
    """Return the number of queries, mean nDCG@10 and common dispersion of groups of queries.

    A variable in [0, 1] with mean m has a variance of at most m (1 - m). The variance of nDCG@10 is modelled as the same
    share of it in all groups (quasi-binomial variance: McCullagh & Nelder 1989, Generalized Linear Models, section 4.5). A
    variance estimated per group would be 0 in a small group whose queries all have rank 1. For the same reason, one
    pseudo-query of maximal variance is added to the estimate of the dispersion.

    Args:
        counts: Queries per rank column, shape (..., groups, 12).
    """
    queries = counts.sum(axis=-1).astype(np.float64)
    gains = counts @ NDCG_AT_10
    means = gains / np.maximum(queries, 1)
    level = float((gains.sum() + 0.5) / (queries.sum() + 1))
    pseudo = level * (1 - level)
    squares = (counts @ NDCG_AT_10**2 - gains * means).sum() + pseudo
    maximum = (np.maximum(queries - 1, 0) * means * (1 - means)).sum() + pseudo
    return GroupMeans(queries, means, level, float(min(1.0, squares / maximum)))
