"""The noise floor: what PSI shows under no position effect, with the same queries in the same bins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import random_table

from posir_psi import psi
from posir_significance.group_means import SEED, Floats, Integers
from posir_tasks.profile import NDCG_AT_10

DRAWS = 2000
#: Tables drawn at once: few enough to stay in the processor's cache.
BATCH = 200
#: Values of PSI this close are one value that was summed in another order.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class NullSummary:
    """An observed PSI against those of exchanged ranks."""

    mean: float
    """Mean PSI under no position effect, in [0, 1]."""
    p95: float
    """95th percentile of PSI under no position effect, in [0, 1]."""
    p_value: float
    """Share of PSI under no effect that is at least the observed one, the observed one counted among them; in (0, 1]."""
    corrected: float | None
    """(psi - mean) / (1 - mean): 0 where PSI is what chance gives, 1 at most; None where chance alone gives 1."""


def permuted_gains(counts: Integers, draws: int = DRAWS, seed: int = SEED) -> Floats:
    """Return the sums of nDCG@10 of each cell after exchange of ranks among the position bins of a length bucket.

    Every length bucket keeps its ranks and every cell its number of queries, so that length cannot pose as position:
    random tables with given margins (Patefield 1981, Applied Statistics 30, AS 159), the permutation distribution of the
    ranks (Good 2005, Permutation, Parametric and Bootstrap Tests of Hypotheses, chapter 3).

    Args:
        counts: Queries per length bucket, position bin and rank column, shape (L, P, 12).
        draws: Number of exchanges.
        seed: Of the random numbers; every length bucket has its own stream, which depends on its index alone.

    Returns:
        Shape (draws, L, P).
    """
    gains = np.zeros((draws, *counts.shape[:2]))
    for index, bucket in enumerate(counts):
        # SFC64 draws small tables in two thirds of the time that NumPy's default generator takes.
        rng = np.random.Generator(np.random.SFC64([seed, index]))
        gains[:, index] = _exchange(bucket, draws, rng)
    return gains


def _exchange(bucket: Integers, draws: int, rng: np.random.Generator) -> Floats:
    """Return exchanged sums of nDCG@10 of one length bucket, shape (draws, P)."""
    scored = NDCG_AT_10 > 0
    # Ranks without gain need not be told apart, and a smaller table is drawn sooner.
    columns = np.append(bucket[:, scored].sum(axis=0), bucket[:, ~scored].sum())
    bins, ranks = np.flatnonzero(bucket.sum(axis=1)), np.flatnonzero(columns)
    gains = np.tile(bucket @ NDCG_AT_10, (draws, 1))
    # With one bin or one rank the given table is the only one; SciPy 1.17 then returns tables with other margins.
    if min(len(bins), len(ranks)) < 2:
        return gains
    tables = random_table(bucket.sum(axis=1)[bins], columns[ranks], seed=rng)
    gain = np.append(NDCG_AT_10[scored], 0.0)[ranks]
    for start in range(0, draws, BATCH):
        stop = min(start + BATCH, draws)
        # As floats: NumPy multiplies integers several times more slowly.
        gains[start:stop, bins] = tables.rvs(stop - start).astype(np.float64) @ gain
    return gains


def null_psi(gains: Floats, queries: Integers) -> Floats:
    """Return PSI of exchanged ranks.

    Args:
        gains: Sums of nDCG@10 of each position bin, shape (draws, P).
        queries: Queries of each position bin, shape (P,).

    Returns:
        Shape (draws,); NaN where no query has a gain.
    """
    filled = queries > 0
    return psi(gains[:, filled] / queries[filled])


def null_summary(observed: float, null: Floats) -> NullSummary | None:
    """Return the noise floor of an observed PSI; None where PSI is undefined.

    The p-value counts the observed table among the exchanged ones, (1 + #{null >= observed}) / (draws + 1), and so is never
    0 (Phipson & Smyth 2010, arXiv 1603.05766).

    Args:
        observed: PSI, NaN where undefined.
        null: PSI of exchanged ranks, shape (draws,).
    """
    if np.isnan(observed):
        return None
    mean = float(null.mean())
    reached = int((null >= observed - TOLERANCE).sum())
    corrected = (observed - mean) / (1 - mean) if mean < 1 - TOLERANCE else None
    return NullSummary(mean, float(np.quantile(null, 0.95)), (1 + reached) / (len(null) + 1), corrected)
