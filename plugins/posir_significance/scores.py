"""Statistics of a result as scores, declared in `scores.csv`."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from typing import Any

import numpy as np
from scipy.special import stdtr

from posir_psi.scores import compute_psi, replace_nan
from posir_significance.analysis import GroupAnalysis, average_thirds, load_group
from posir_significance.decision import decide_group
from posir_significance.findings import GroupFindings, Quantity
from posir_significance.observations import Floats, Integers
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.profile import NDCG_AT_10, RECALL_COLUMNS, average_gains, build_recall_gains
from posir_tasks.values.schemes import compute_bin_midpoints
from posir_tasks.values.scores import Direction, QueryGroup, Score, ScoreValue, Unit

#: Minimum number of bins for the p-value of a trend; SciPy's p-value of three points may be 0.
MIN_BINS = 5
#: Keeps the t statistic of a perfect correlation finite, as in SciPy.
TINY = 1e-20


def _analyze(group: QueryGroup) -> GroupAnalysis:
    return load_group(group.values, 0 if group.length is None else group.length + 1)


def _decide(group: QueryGroup) -> GroupFindings:
    return decide_group(group.values, 0 if group.length is None else group.length + 1)


def _mean_ndcg(group: QueryGroup) -> Estimate | None:
    if group.position is not None:
        return group.estimate(NDCG_AT_10)
    return _decide(group)[Quantity.NDCG_AT_10].estimate


def _mean_ndcg_as_published(group: QueryGroup) -> Estimate | None:
    # Papers report the mean over queries for all lengths.
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
    the same weight. Two non-empty bins are needed, and five for p-values. If all bins have equal
    scores, only the slope is defined.

    Args:
        counts: Queries per position bin and rank column, shape (P, 12).

    Returns:
        Defined values by name in `TRENDS`.
    """
    # A slow import, unused by the table of a report.
    from scipy.stats import kendalltau, rankdata

    # Rounding ties scores that differ only by the order of summation.
    scores = average_gains(counts, NDCG_AT_10).round(12)
    is_defined = ~np.isnan(scores)
    scores = scores[is_defined]
    middle = compute_bin_midpoints(len(counts))[is_defined]
    if len(scores) < 2 or np.ptp(scores) == 0:
        return {"slope": 0.0} if len(scores) > 1 else {}
    slope, pearson, slope_p_value = fit_line(middle, scores)
    _, spearman, spearman_p_value = fit_line(np.arange(len(scores)), rankdata(scores))
    pairs = kendalltau(middle, scores)
    values = {"slope": slope, "r_squared": pearson**2, "pearson": pearson}
    values |= {"spearman": spearman, "kendall": float(pairs.statistic)}
    if len(scores) >= MIN_BINS:
        values |= {
            "slope_p_value": slope_p_value,
            "spearman_p_value": spearman_p_value,
            "kendall_p_value": float(pairs.pvalue),
        }
    return values


def fit_line(x: Floats | Integers, y: Floats) -> tuple[float, float, float]:
    """Return slope, Pearson's correlation and its p-value by Student's t with n - 2 degrees of
    freedom.

    Equal to SciPy's functions, which take a hundred times as long for few values.
    """
    x = x - x.mean()
    y = y - y.mean()
    product = float(x @ y)
    slope = product / float(x @ x)
    correlation = min(max(product / float(x @ x * (y @ y)) ** 0.5, -1.0), 1.0)
    degrees = len(x) - 2
    t = correlation * (degrees / ((1 - correlation + TINY) * (1 + correlation + TINY))) ** 0.5
    return slope, correlation, float(2 * stdtr(degrees, -abs(t)))


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
    "ndcg_at_10": _mean_ndcg,
    "unread_share": lambda group: _decide(group).value(Quantity.UNREAD_SHARE),
    "state": lambda group: _decide(group).state.value if group.queries else None,
    "ndcg_at_10_as_published": _mean_ndcg_as_published,
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
