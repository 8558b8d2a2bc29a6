"""Groups of queries, their mean nDCG@10 and how far it varies by chance: what the statistics of this package start from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from posir_tasks.profile import NDCG_AT_10

#: Seed of all draws: the same profile gives the same numbers.
SEED = 20260108

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sample:
    """Groups of queries, such as position bins; all arrays have the shape (..., groups)."""

    queries: Floats
    """Number of queries of each group."""
    means: Floats
    """Mean nDCG@10 of each group in [0, 1]; 0 where it is empty."""
    level: float
    """Mean nDCG@10 of all queries and of one more that scores 0.5: in (0, 1) even where all queries score the same."""
    dispersion: float
    """Variance of a query's nDCG@10 as a share of mean * (1 - mean), the most it can be; in (0, 1]."""

    def shrunken(self) -> Floats:
        """Return each group's mean with one more query at the common level: in (0, 1) in every group."""
        return (self.queries * self.means + self.level) / (self.queries + 1)

    def variances(self, expected: Floats) -> Floats:
        """Return the sampling variance of each group's mean; infinite where the group is empty.

        Args:
            expected: True means in (0, 1), shape (..., groups).
        """
        with np.errstate(divide="ignore"):
            variances: Floats = self.dispersion * expected * (1 - expected) / self.queries
        return variances


def sample(counts: Integers) -> Sample:
    """Return queries, means and dispersion of groups of queries.

    A gain in [0, 1] with the mean m has at most the variance m (1 - m); that of nDCG@10 is taken to be the same share of it
    in all groups (quasi-binomial variance: McCullagh & Nelder 1989, Generalized Linear Models, section 4.5). Estimated by
    itself it would be 0 in a small group whose queries all have rank 1. For the same reason one query at its most variable
    is added to the estimate of the share.

    Args:
        counts: Queries per rank column, shape (..., groups, 12).
    """
    queries = counts.sum(axis=-1).astype(np.float64)
    gains = counts @ NDCG_AT_10
    means = gains / np.maximum(queries, 1)
    level = float((gains.sum() + 0.5) / (queries.sum() + 1))
    extra = level * (1 - level)
    squares = (counts @ NDCG_AT_10**2 - gains * means).sum() + extra
    most = (np.maximum(queries - 1, 0) * means * (1 - means)).sum() + extra
    return Sample(queries, means, level, float(min(1.0, squares / most)))
