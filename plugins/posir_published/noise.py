"""What can be said of the noise in a published PSI of which only bucket means and numbers of queries are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from posir_psi import psi

DRAWS = 2000
SEED = 20260113


@dataclass(frozen=True)
class NullBound:
    """At most this PSI would show under no position effect."""

    mean: float
    """Of the mean PSI, in [0, 1]."""
    p95: float
    """Of the 95th percentile of PSI, in [0, 1]."""


def null_bound(score: float, queries: Sequence[int]) -> NullBound:
    """Return what PSI shows at most under no position effect, with a mean score and numbers of queries.

    How much the score varies from query to query is not published. With a given mean in [0, 1] it varies most where every
    query scores 0 or 1; the buckets drawn here are of such queries, from binomial distributions. Scores of 0 and 1 exceed
    all others of their mean in convex order (Shaked & Shanthikumar 2007, Stochastic Orders, 3.A), and best minus worst
    bucket is a convex function, so its mean is a bound; that of PSI and the percentile are so to normal approximation.
    A published PSI above the bound stands out from noise; one below it may or may not.

    Args:
        score: Mean score over all queries, in (0, 1].
        queries: Queries of each bucket, all above 0, shape (B,).
    """
    rng = np.random.default_rng(SEED)
    null = psi(rng.binomial(queries, score, (DRAWS, len(queries))) / np.asarray(queries))
    return NullBound(float(null.mean()), float(np.quantile(null, 0.95)))
