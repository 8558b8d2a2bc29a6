"""Statistics of a result, declared as scores: `scores.csv` says what each is."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from typing import Any

import numpy as np

from posir_significance.analysis import GroupAnalysis, analyze
from posir_significance.decision import decide_result
from posir_significance.findings import GroupFindings, Quantity
from posir_significance.observations import Integers
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.profile import NDCG_AT_10, RECALL_COLUMNS, mean_gain, recall_gain
from posir_tasks.values.schemes import bin_midpoints
from posir_tasks.values.scores import Better, QueryGroup, Score, ScoreValue, Unit

#: Bins that a p-value of slope or correlation needs; SciPy's is 0 for a perfect correlation of
#: three.
MIN_BINS = 5


def _analyze(group: QueryGroup) -> GroupAnalysis:
    return analyze(group.values).groups[0 if group.length is None else group.length + 1]


def _decide(group: QueryGroup) -> GroupFindings:
    return decide_result(group.values)[0 if group.length is None else group.length + 1]


def _mean_ndcg(group: QueryGroup) -> Estimate | None:
    if group.position is not None:
        return group.estimate(NDCG_AT_10)
    return _decide(group)[Quantity.NDCG_AT_10].estimate


def _mean_ndcg_as_published(group: QueryGroup) -> Estimate | None:
    # Over all lengths the papers report the mean over queries.
    mean = None if group.length is None else _analyze(group).ndcg_as_published
    return Estimate(mean.value, mean.interval) if mean else None


def _read_trend(key: str, group: QueryGroup) -> float | None:
    computed = group.values.computed.setdefault("trends", {})
    if group.length not in computed:
        computed[group.length] = fit_trend(group.counts)
    value: float | None = computed[group.length].get(key)
    return value


def fit_trend(counts: Integers) -> dict[str, float]:
    """Return slope and correlations of the scores of the non-empty bins over their midpoints in [0,
    1].

    The same as in the authors' analysis of PosIR (Zeng et al. 2026, arXiv 2601.08363). All bins
    have the same weight. Nothing is defined with fewer than two non-empty bins, only the slope
    where all bins score the same, p-values with at least five.

    Args:
        counts: Queries per position bin and rank column, shape (P, 12).

    Returns:
        The values of `TRENDS` that are defined.
    """
    # Takes long to import, and the table of a report does not need it.
    from scipy.stats import kendalltau, linregress, spearmanr

    # Rounded, so that scores which differ only by the order of summation are ties.
    scores = mean_gain(counts, NDCG_AT_10).round(12)
    filled = ~np.isnan(scores)
    scores = scores[filled]
    middle = bin_midpoints(len(counts))[filled]
    if len(scores) < 2 or np.ptp(scores) == 0:
        return {"slope": 0.0} if len(scores) > 1 else {}
    line = linregress(middle, scores)
    ranks = spearmanr(middle, scores)
    pairs = kendalltau(middle, scores)
    values = {"slope": line.slope, "r_squared": line.rvalue**2, "pearson": line.rvalue}
    values |= {"spearman": ranks.statistic, "kendall": pairs.statistic}
    if len(scores) >= MIN_BINS:
        values |= {
            "slope_p_value": line.pvalue,
            "spearman_p_value": ranks.pvalue,
            "kendall_p_value": pairs.pvalue,
        }
    return {key: float(value) for key, value in values.items()}


#: Keys of what `fit_trend` returns.
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
#: Depths of recall by key.
RECALLS = {f"recall_at_{depth}": depth for depth in RECALL_COLUMNS}
#: How scores of `scores.csv` are computed that are not the estimate of a `Quantity`.
COMPUTE: dict[str, Callable[[QueryGroup], ScoreValue]] = {
    "ndcg_at_10": _mean_ndcg,
    "unread_share": lambda group: _decide(group).value(Quantity.UNREAD_SHARE),
    "state": lambda group: _decide(group).state.value if group.queries else None,
    "ndcg_at_10_as_published": _mean_ndcg_as_published,
    "documents": lambda group: _decide(group).documents,
    "tested_questions": lambda group: _decide(group).tested_questions,
    "design_effect": lambda group: mean.design_effect if (mean := _analyze(group).ndcg) else None,
    **{key: partial(_read_trend, key) for key in TRENDS},
}


def _find_compute(key: str) -> Callable[[QueryGroup], ScoreValue]:
    if key in COMPUTE:
        return COMPUTE[key]
    if key in RECALLS:
        gain = recall_gain(RECALLS[key])
        return lambda group: group.estimate(gain)
    quantity = Quantity(key)
    return lambda group: _decide(group)[quantity].estimate


def _read_scores() -> Iterator[Score]:
    text = (files("posir_significance") / "scores.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        declared: dict[str, Any] = row | {
            name: bool(row[name]) for name in ("column", "interval", "by_position")
        }
        declared |= {"unit": Unit(row["unit"]), "better": Better(row["better"])}
        yield Score(**declared, compute=_find_compute(row["key"]))


#: In the order of the columns that show them; those without `column` are shown on request.
SCORES = tuple(_read_scores())
