"""The null distribution of PSI: what PSI shows if position has no effect, with the same queries in the same bins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.stats import random_table

from posir_psi import psi
from posir_significance.group_means import SEED, Floats, Integers
from posir_significance.intervals import TAILS
from posir_tasks.profile import NDCG_AT_10, PositionProfile

DRAWS = 2000
#: Tables drawn at once: few enough to stay in the processor's cache.
BATCH = 200
#: Values of PSI that differ by less are equal up to rounding errors of their sums.
TOLERANCE = 1e-9
#: Profiles whose null distribution is cached: about 20 MB with four length buckets.
CACHED_PROFILES = 256


@dataclass(frozen=True, eq=False)
class NullDistribution:
    """PSI and mean nDCG@10 of P position bins over random permutations of the ranks."""

    psi: Floats
    """Shape (draws,); NaN where no query has a gain."""
    band: Floats
    """Low and high ends of the central 95 % of each bin's mean nDCG@10, shape (2, P); NaN where a bin is empty.

    Pointwise: of 20 bins without a position effect, one lies outside on average.
    """


@dataclass(frozen=True, eq=False)
class PermutationNull:
    """The null distributions of one profile; in all of them, ranks are permuted within length buckets."""

    overall: NullDistribution
    """Of the position bins over all lengths."""
    lengths: tuple[NullDistribution, ...]
    """Of the position bins of each length bucket."""


@dataclass(frozen=True)
class NullSummary:
    """An observed PSI and its null distribution."""

    mean: float
    """Mean PSI if position has no effect, in [0, 1]."""
    p95: float
    """95th percentile of PSI if position has no effect, in [0, 1]."""
    p_value: float
    """Probability of a PSI at least as large as the observed one if position has no effect, in (0, 1]."""
    corrected: float | None
    """(psi - mean) / (1 - mean): 0 where PSI is what chance gives, at most 1; None where chance alone gives 1."""


@lru_cache(maxsize=CACHED_PROFILES)
def permutation_null(profile: PositionProfile) -> PermutationNull:
    """Return the null distributions of a profile, cached: scores, null bands and leaderboard records all need them."""
    gains, queries = permute_gains(profile.counts), profile.counts.sum(axis=-1)
    return PermutationNull(
        overall=_null_distribution(gains.sum(axis=1), queries.sum(axis=0)),
        lengths=tuple(_null_distribution(gains[:, index], bucket) for index, bucket in enumerate(queries)),
    )


def _null_distribution(gains: Floats, queries: Integers) -> NullDistribution:
    ends = np.quantile(gains, TAILS, axis=0)
    band: Floats = np.where(queries > 0, ends / np.maximum(queries, 1), np.nan)
    return NullDistribution(null_psi(gains, queries), band)


def permute_gains(counts: Integers, draws: int = DRAWS, seed: int = SEED) -> Floats:
    """Return the sum of nDCG@10 of each cell after random permutations of the ranks within each length bucket.

    Every length bucket keeps its ranks and every cell its number of queries, so length cannot be mistaken for position.
    Draws random tables with given margins (Patefield 1981, Applied Statistics 30, AS 159), which is the permutation
    distribution of the ranks (Good 2005, Permutation, Parametric and Bootstrap Tests of Hypotheses, chapter 3).

    Args:
        counts: Queries per length bucket, position bin and rank column, shape (L, P, 12).
        draws: Number of permutations.
        seed: Of the random numbers; every length bucket has its own stream, which depends on its index alone.

    Returns:
        Shape (draws, L, P).
    """
    gains = np.zeros((draws, *counts.shape[:2]))
    for index, bucket in enumerate(counts):
        # SFC64 draws small tables in two assign_thirds of the time that NumPy's default generator takes.
        rng = np.random.Generator(np.random.SFC64([seed, index]))
        gains[:, index] = _permute_bucket(bucket, draws, rng)
    return gains


def _permute_bucket(bucket: Integers, draws: int, rng: np.random.Generator) -> Floats:
    """Return the permuted sums of nDCG@10 of one length bucket, shape (draws, P)."""
    scored = NDCG_AT_10 > 0
    # Ranks without gain are interchangeable, and a smaller table is drawn faster.
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
    """Return PSI of each permutation.

    Args:
        gains: Permuted sums of nDCG@10 of each position bin, shape (draws, P).
        queries: Queries of each position bin, shape (P,).

    Returns:
        Shape (draws,); NaN where no query has a gain.
    """
    filled = queries > 0
    return psi(gains[:, filled] / queries[filled])


def summarize_null(observed: float, null: Floats) -> NullSummary | None:
    """Compare an observed PSI with its null distribution; None where PSI is undefined.

    The p-value counts the observed table among the permutations, (1 + #{null >= observed}) / (draws + 1), so it is never 0
    (Phipson & Smyth 2010, arXiv 1603.05766).

    Args:
        observed: PSI, NaN where undefined.
        null: PSI of each permutation, shape (draws,).
    """
    if np.isnan(observed):
        return None
    mean = float(null.mean())
    extreme = int((null >= observed - TOLERANCE).sum())
    corrected = (observed - mean) / (1 - mean) if mean < 1 - TOLERANCE else None
    return NullSummary(mean, float(np.quantile(null, 0.95)), (1 + extreme) / (len(null) + 1), corrected)
