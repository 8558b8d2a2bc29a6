"""An upper bound of PSI under the null for published results, of which only bucket means and numbers of queries are known."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posir_psi.scores import psi

DRAWS = 2000
SEED = 20260113


@dataclass(frozen=True)
class NullBound:
    """Upper bounds of PSI if position has no effect."""

    mean: float
    """Bound of the mean PSI, in [0, 1]."""
    p95: float
    """Bound of the 95th percentile of PSI, in [0, 1]."""


def bound_null_psi(score: float, queries: Sequence[int]) -> NullBound:
    """Return upper bounds of PSI under the null for a given mean score and numbers of queries.

    The variance of the score over queries is not published. For a given mean in [0, 1] it is largest if every query scores 0
    or 1, so buckets of such queries are simulated with binomial distributions. Scores of 0 and 1 dominate all others of the
    same mean in convex order (Shaked & Shanthikumar 2007, Stochastic Orders, 3.A), and best minus worst bucket is a convex
    function, so its mean is an upper bound; the bounds of PSI and of the percentile hold to normal approximation. A published
    PSI above the bound is significant; one below it may or may not be.

    Args:
        score: Mean score over all queries, in (0, 1].
        queries: Queries of each bucket, all above 0, shape (B,).
    """
    rng = np.random.default_rng(SEED)
    null = psi(rng.binomial(queries, score, (DRAWS, len(queries))) / np.asarray(queries))
    return NullBound(float(null.mean()), float(np.quantile(null, 0.95)))
