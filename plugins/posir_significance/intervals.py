"""95 % intervals of nDCG@10 and PSI; the methods are chosen by the coverage that `benchmarks/coverage.py` measures."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from posir_psi import psi
from posir_significance.group_means import Floats, Integers, Sample, sample
from posir_significance.true_score_model import true_scores

#: Probabilities below and above a two-sided 95 % interval.
TAILS = (0.025, 0.975)
#: Standard normal quantile of such an interval.
Z = float(ndtri(TAILS[1]))
#: A p-value from here on means that PSI cannot be told from noise.
ALPHA = 0.05

Interval = tuple[float, float]


def score_interval(mean: Floats, units: Floats) -> tuple[Floats, Floats]:
    """Return the score interval of a mean in [0, 1]: the true means from which the observed one is at most Z errors away.

    Wilson 1927, Journal of the American Statistical Association 22, 209-212, with as many coins as vary like the mean. It
    stays within [0, 1], and has a width where all queries score the same.

    Args:
        mean: In [0, 1], any shape.
        units: Number of coins whose mean has the same variance, above 0, the same shape.

    Returns:
        Low and high ends, the shape of `mean`.
    """
    square = Z**2 / units
    centre = (mean + square / 2) / (1 + square)
    half = np.sqrt(square * mean * (1 - mean) + square**2 / 4) / (1 + square)
    # Where the mean is 0 or 1 it is an end of the interval, which rounding must not move past it.
    return np.clip(centre - half, 0, mean), np.clip(centre + half, mean, 1)


def ndcg_intervals(groups: Sample) -> list[Interval | None]:
    """Return the interval of each group's mean nDCG@10; None where the group is empty.

    Args:
        groups: Groups in one dimension.
    """
    filled = groups.queries > 0
    low, high = score_interval(groups.means, np.where(filled, groups.queries, 1) / groups.dispersion)
    return [(float(a), float(b)) if some else None for a, b, some in zip(low, high, filled, strict=True)]


def bucket_interval(bins: Sample) -> Interval | None:
    """Return the interval of nDCG@10(Qk), the unweighted mean of the non-empty bins; None if all are empty.

    Every bin counts alike, so bins of few queries make the interval wide.
    """
    filled = bins.queries > 0
    if not filled.any():
        return None
    expected = bins.shrunken()
    level = expected[filled].mean()
    variance = bins.variances(expected)[filled].sum() / filled.sum() ** 2
    low, high = score_interval(bins.means[filled].mean(), level * (1 - level) / variance)
    return float(low), float(high)


def psi_interval(counts: Integers, p_value: float) -> Interval | None:
    """Return the interval of PSI of the true scores of the position bins; None unless two bins have queries and one a gain.

    The observed PSI lies above the true one, since it takes the best and the worst of scores that scatter; so the interval
    need not hold it. It holds 95 % of the PSI of possible true scores (`shapes.true_scores`). Those drawn from curves
    scatter again around their centre, which adds to the range once more: the low end allows for that by reflection at the
    centre, as the basic bootstrap does (Davison & Hinkley 1997, Bootstrap Methods and their Application, 5.2). It is 0
    wherever the p-value says that PSI cannot be told from noise.

    Args:
        counts: Queries per position bin and rank column, shape (P, 12).
        p_value: Of PSI against its noise floor, in (0, 1].
    """
    bins = sample(counts)
    if (bins.queries > 0).sum() < 2 or not bins.means.any():
        return None
    possible = true_scores(bins)
    drawn = psi(possible.scores)
    low, high = np.quantile(drawn, TAILS)
    reflected = np.quantile(2 * psi(possible.centres) - drawn, TAILS[0])
    return (0.0 if p_value >= ALPHA else float(max(0.0, min(low, reflected))), float(high))
