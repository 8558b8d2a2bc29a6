"""95 % intervals of nDCG@10 and PSI; `benchmarks/interval_coverage.py` measures their coverage."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from posir_psi import psi
from posir_significance.group_means import Floats, GroupMeans, Integers, compute_group_means
from posir_significance.true_score_model import draw_true_scores

#: Quantiles that bound a central 95 % interval.
TAILS = (0.025, 0.975)
#: Standard normal quantile of a two-sided 95 % interval.
Z = float(ndtri(TAILS[1]))
#: Significance level.
ALPHA = 0.05

Interval = tuple[float, float]


def wilson_interval(mean: Floats, sizes: Floats) -> tuple[Floats, Floats]:
    """Return Wilson's score interval of a mean in [0, 1]: the true means that a z-test does not reject.

    Wilson 1927, Journal of the American Statistical Association 22, 209-212. It stays within [0, 1] and has a positive width
    even where all queries score the same.

    Args:
        mean: In [0, 1], any shape.
        sizes: Effective sample sizes: numbers of Bernoulli trials whose mean has the same variance, above 0, the same shape.

    Returns:
        Low and high ends, the shape of `mean`.
    """
    square = Z**2 / sizes
    centre = (mean + square / 2) / (1 + square)
    half = np.sqrt(square * mean * (1 - mean) + square**2 / 4) / (1 + square)
    # A mean of 0 or 1 is an end of its interval; rounding errors must not push the end past it.
    return np.clip(centre - half, 0, mean), np.clip(centre + half, mean, 1)


def ndcg_intervals(groups: GroupMeans) -> list[Interval | None]:
    """Return the interval of each group's mean nDCG@10; None where the group is empty.

    Args:
        groups: One-dimensional.
    """
    filled = groups.queries > 0
    low, high = wilson_interval(groups.means, np.where(filled, groups.queries, 1) / groups.dispersion)
    return [(float(a), float(b)) if some else None for a, b, some in zip(low, high, filled, strict=True)]


def bucket_interval(bins: GroupMeans) -> Interval | None:
    """Return the interval of nDCG@10(Qk), the unweighted mean of the non-empty bins; None if all are empty.

    All bins have the same weight, so bins with few queries make the interval wide.
    """
    filled = bins.queries > 0
    if not filled.any():
        return None
    shrunken = bins.shrunken_means()
    level = shrunken[filled].mean()
    variance = bins.sampling_variances(shrunken)[filled].sum() / filled.sum() ** 2
    low, high = wilson_interval(bins.means[filled].mean(), level * (1 - level) / variance)
    return float(low), float(high)


def psi_interval(counts: Integers, p_value: float) -> Interval | None:
    """Return the interval of the true PSI; None unless at least two bins have queries and one of them a gain.

    The observed PSI is biased upwards, since it is the range of scores with sampling error, so the interval may exclude it.
    The interval is the central 95 % of PSI over posterior draws of the true scores (`draw_true_scores`). Draws from Gaussian
    processes scatter around the posterior mean, which widens their range a second time. The low end corrects for that by
    reflection at the posterior mean, as the basic bootstrap does (Davison & Hinkley 1997, Bootstrap Methods and their
    Application, section 5.2). It is 0 wherever PSI is not significant.

    Args:
        counts: Queries per position bin and rank column, shape (P, 12).
        p_value: Of PSI under its null distribution, in (0, 1].
    """
    bins = compute_group_means(counts)
    if (bins.queries > 0).sum() < 2 or not bins.means.any():
        return None
    posterior = draw_true_scores(bins)
    drawn = psi(posterior.scores)
    low, high = np.quantile(drawn, TAILS)
    reflected = np.quantile(2 * psi(posterior.means) - drawn, TAILS[0])
    return (0.0 if p_value >= ALPHA else float(max(0.0, min(low, reflected))), float(high))
