"""Statistics of a result as scores, declared in `scores.csv`."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from importlib.resources import files
from typing import Any

import numpy as np
from scipy.special import ndtr, stdtr

from posir_psi.scores import compute_psi, replace_nan
from posir_significance.analysis import GroupAnalysis, average_thirds, load_group
from posir_significance.decision import decide_group
from posir_significance.findings import GroupFindings, Quantity
from posir_significance.observations import Floats, Integers
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.profile import NDCG_AT_10, RECALL_COLUMNS, average_gains, build_recall_gains
from posir_tasks.values.schemes import compute_bin_midpoints
from posir_tasks.values.scores import (
    Direction,
    QueryGroup,
    Score,
    ScoreValue,
    Unit,
)

#: Minimum number of bins for the p-value of a trend; SciPy's p-value of three points may be 0.
MIN_BINS = 5
#: Maximum number of scores for an exact p-value of Kendall's tau, as in SciPy.
MAX_EXACT = 33
#: Keeps the t statistic of a perfect correlation finite, as in SciPy.
TINY = 1e-20


def _analyze(group: QueryGroup) -> GroupAnalysis:
    return load_group(group.values, 0 if group.length is None else group.length + 1)


def _decide(group: QueryGroup) -> GroupFindings:
    return decide_group(group.values, 0 if group.length is None else group.length + 1)


def _average_ndcg(group: QueryGroup) -> Estimate | None:
    if group.position is not None:
        return group.estimate(NDCG_AT_10)
    return _decide(group)[Quantity.NDCG_AT_10].estimate


def _average_ndcg_as_published(group: QueryGroup) -> Estimate | None:
    # Over all lengths, papers report the mean over queries.
    mean = None if group.length is None else _analyze(group).ndcg_as_published
    return Estimate(mean.value, mean.interval) if mean else None


def _compute_design_effect(group: QueryGroup) -> float | None:
    mean = _analyze(group).ndcg
    return mean.design_effect if mean else None


def _compute_psi_of_thirds(group: QueryGroup) -> float | None:
    means = average_thirds(_analyze(group).observations)
    return replace_nan(float(compute_psi(means)))


def _get_trend(key: str, group: QueryGroup) -> float | None:
    cache = group.values.cache.setdefault("trends", {})
    if group.length not in cache:
        cache[group.length] = fit_trend(group.counts)
    value: float | None = cache[group.length].get(key)
    return value


def fit_trend(counts: Integers) -> dict[str, float]:
    """Compute slope and correlations of the scores of non-empty bins over midpoints in [0, 1].

    Reproduces the authors' analysis of PosIR (Zeng et al. 2026, arXiv 2601.08363). All bins have
    the same weight. At least two non-empty bins are needed, for p-values five. If all bins have
    equal scores, only the slope is defined.

    Args:
        counts: Queries per position bin and rank column, shape (P, 12).

    Returns:
        Defined values by name in `TRENDS`.
    """
    # Rounding makes scores equal that differ only in the order of summation.
    scores = average_gains(counts, NDCG_AT_10).round(12)
    is_defined = ~np.isnan(scores)
    scores = scores[is_defined]
    midpoints = compute_bin_midpoints(len(counts))[is_defined]
    if len(scores) < 2 or np.ptp(scores) == 0:
        return {"slope": 0.0} if len(scores) > 1 else {}
    slope, pearson, slope_p_value = fit_line(midpoints, scores)
    is_higher = scores[:, None] > scores
    ties = (scores[:, None] == scores).sum(axis=1)
    ranks = is_higher.sum(axis=1) + (ties + 1) / 2
    _, spearman, spearman_p_value = fit_line(np.arange(len(scores)), ranks)
    kendall, kendall_p_value = correlate_orders(int(np.triu(is_higher).sum()), ties)
    values = {"slope": slope, "r_squared": pearson**2, "pearson": pearson}
    values |= {"spearman": spearman, "kendall": kendall}
    if len(scores) >= MIN_BINS:
        values |= {
            "slope_p_value": slope_p_value,
            "spearman_p_value": spearman_p_value,
            "kendall_p_value": kendall_p_value,
        }
    return values


def fit_line(x: Floats | Integers, y: Floats) -> tuple[float, float, float]:
    """Fit a line; return its slope, Pearson's correlation, and the correlation's p-value.

    The p-value uses Student's t with n - 2 degrees of freedom. SciPy's functions give the same
    values, but are a hundred times slower for few points.
    """
    x = x - x.mean()
    y = y - y.mean()
    product = float(x @ y)
    slope = product / float(x @ x)
    correlation = min(max(product / float(x @ x * (y @ y)) ** 0.5, -1.0), 1.0)
    degrees = len(x) - 2
    t = correlation * (degrees / ((1 - correlation + TINY) * (1 + correlation + TINY))) ** 0.5
    return slope, correlation, float(2 * stdtr(degrees, -abs(t)))


def correlate_orders(inversions: int, ties: Integers) -> tuple[float, float]:
    """Compute Kendall's tau-b of n distinct positions and n scores, and its two-sided p-value.

    `scipy.stats.kendalltau` gives the same values, but takes 0.4 ms. The p-value is exact for up to
    33 scores without ties, and else from the normal approximation (Kendall 1970, Rank Correlation
    Methods).

    Args:
        inversions: Number of pairs whose first score is higher.
        ties: Number of scores equal to each score, itself included, shape (n,).
    """
    n = len(ties)
    pairs = n * (n - 1) // 2
    tied_pairs = int((ties - 1).sum()) // 2
    difference = pairs - tied_pairs - 2 * inversions
    tau = difference / np.sqrt(pairs) / np.sqrt(pairs - tied_pairs)
    tau = min(max(float(tau), -1.0), 1.0)
    rarer = min(inversions, pairs - inversions)
    if not tied_pairs and (n <= MAX_EXACT or rarer <= 1):
        return tau, compute_inversion_p_value(n, rarer)
    squares = int(((ties - 1) * (2 * ties + 5)).sum())
    variance = (n * (n - 1.0) * (2 * n + 5) - squares) / 18
    return tau, float(2 * ndtr(-abs(difference / np.sqrt(variance))))


@lru_cache(maxsize=4096)
def compute_inversion_p_value(n: int, inversions: int) -> float:
    """Compute twice the share of the orders of n values with at most this number of inversions,
    which is at most half of the number of pairs.
    """
    if 4 * inversions == n * (n - 1):
        return 1.0
    if inversions <= 1:
        return 2.0 / math.factorial(n - inversions)
    orders = np.zeros(inversions + 1)
    orders[:2] = 1.0
    for size in range(3, n + 1):
        orders = np.cumsum(orders)
        if size <= inversions:
            orders[size:] -= orders[: inversions + 1 - size]
    return min(float(2.0 * np.sum(orders) / math.factorial(n)), 1.0)


#: Keys of the result of `fit_trend`.
TRENDS = (
    "slope",
    "slope_p_value",
    "r_squared",
    "pearson",
    "spearman",
    "spearman_p_value",
    "kendall",
    "kendall_p_value",
)
#: Cut-off of each recall key.
RECALLS = {f"recall_at_{depth}": depth for depth in RECALL_COLUMNS}
#: Functions for the scores that are not estimates of a `Quantity`.
COMPUTE: dict[str, Callable[[QueryGroup], ScoreValue]] = {
    "ndcg_at_10": _average_ndcg,
    "unread_share": lambda group: _decide(group).get_value(Quantity.UNREAD_SHARE),
    "state": lambda group: _decide(group).state.value if group.queries else None,
    "ndcg_at_10_as_published": _average_ndcg_as_published,
    "psi_of_thirds": _compute_psi_of_thirds,
    "documents": lambda group: _decide(group).documents,
    "tested_questions": lambda group: _decide(group).tested_questions,
    "design_effect": _compute_design_effect,
    **{key: partial(_get_trend, key) for key in TRENDS},
}


def _choose_function(key: str) -> Callable[[QueryGroup], ScoreValue]:
    if key in COMPUTE:
        return COMPUTE[key]
    if key in RECALLS:
        gain = build_recall_gains(RECALLS[key])
        return lambda group: group.estimate(gain)
    quantity = Quantity(key)
    return lambda group: _decide(group)[quantity].estimate


def _read_scores() -> Iterator[Score]:
    text = (files("posir_significance") / "scores.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        fields: dict[str, Any] = dict(row)
        for name in ("column", "interval", "by_position"):
            fields[name] = bool(row[name])
        fields |= {"unit": Unit(row["unit"]), "better": Direction(row["better"])}
        yield Score(**fields, compute=_choose_function(row["key"]))


#: All scores in the order of table columns.
SCORES = tuple(_read_scores())
