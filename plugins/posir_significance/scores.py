"""Statistics of a result, declared as scores: `scores.csv` says what each is."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any

import numpy as np

from posir_significance.analysis import GroupAnalysis, analyze, estimate_bins
from posir_significance.api import detectable_effect
from posir_significance.decision import Decision, decide_result
from posir_significance.observations import Integers, Observations
from posir_significance.regression import Contrast
from posir_tasks.profile import NDCG_AT_10, mean_gain
from posir_tasks.schemes import bin_midpoints
from posir_tasks.scores import Better, Estimate, QueryGroup, Score, ScoreValue, Unit

#: Bins that a p-value of slope or correlation needs; SciPy's is 0 for a perfect correlation of three.
MIN_BINS = 5


def _analyze(group: QueryGroup) -> GroupAnalysis:
    return analyze(group.values.ranks, group.values.read).groups[_place(group)]


def _decide(group: QueryGroup) -> Decision:
    return decide_result(group.values)[_place(group)]


def _place(group: QueryGroup) -> int:
    return 0 if group.length is None else group.length + 1


def _contrast(read: Callable[[QueryGroup], Contrast | None]) -> Callable[[QueryGroup], ScoreValue]:
    """Return how a difference between positions is computed, with its interval at the level of the group."""

    def compute(group: QueryGroup) -> ScoreValue:
        contrast = read(group)
        return Estimate(contrast.value, _decide(group).interval(contrast)) if contrast else None

    return compute


def _mean_ndcg(group: QueryGroup) -> ScoreValue:
    if group.position is None:
        return _plain(_decide(group).ndcg_at_10)
    computed = group.values.computed
    if "bins" not in computed:
        computed["bins"] = list(map(_plain, estimate_bins(Observations.from_ranks(group.values.ranks))))
    mean: Estimate | None = computed["bins"][group.position]
    return mean


def _plain(estimate: Estimate | None) -> Estimate | None:
    return Estimate(estimate.value, estimate.interval) if estimate else None


def _detectable(name: str) -> Callable[[QueryGroup], ScoreValue]:
    def compute(group: QueryGroup) -> ScoreValue:
        analysis = _analyze(group)
        detectable = detectable_effect(analysis.effect) if analysis.effect and analysis.test else None
        return float(getattr(detectable, name)) if detectable else None

    return compute


def _trend(key: str) -> Callable[[QueryGroup], ScoreValue]:
    def compute(group: QueryGroup) -> ScoreValue:
        computed = group.values.computed.setdefault("trends", {})
        if group.length not in computed:
            computed[group.length] = fit_trend(group.counts)
        value: float | None = computed[group.length].get(key)
        return value

    return compute


def fit_trend(counts: Integers) -> dict[str, float]:
    """Return slope and correlations of the scores of the non-empty bins over their midpoints in [0, 1].

    The same as in the authors' analysis of PosIR (Zeng et al. 2026, arXiv 2601.08363). All bins have the same weight. Nothing
    is defined with fewer than two non-empty bins, only the slope where all bins score the same, p-values with at least five.

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
    scores, middle = scores[filled], bin_midpoints(len(counts))[filled]
    if len(scores) < 2 or np.ptp(scores) == 0:
        return {"slope": 0.0} if len(scores) > 1 else {}
    line, ranks, pairs = linregress(middle, scores), spearmanr(middle, scores), kendalltau(middle, scores)
    values = {"slope": line.slope, "r_squared": line.rvalue**2, "pearson": line.rvalue}
    values |= {"spearman": ranks.statistic, "kendall": pairs.statistic}
    if len(scores) >= MIN_BINS:
        values |= {"slope_p_value": line.pvalue, "spearman_p_value": ranks.pvalue, "kendall_p_value": pairs.pvalue}
    return {key: float(value) for key, value in values.items()}


#: Keys of what `fit_trend` returns.
TRENDS = (
    *("slope", "slope_p_value", "r_squared", "pearson"),
    *("spearman", "spearman_p_value", "kendall", "kendall_p_value"),
)
#: How each score of `scores.csv` is computed.
COMPUTE: dict[str, Callable[[QueryGroup], ScoreValue]] = {
    "ndcg_at_10": _mean_ndcg,
    "start_to_end": _contrast(lambda group: _decide(group).start_to_end),
    "start_to_end_plain": lambda group: _decide(group).start_to_end_plain,
    "bias_within_read": _contrast(lambda group: _decide(group).bias_within_read),
    "not_read": lambda group: _decide(group).not_read,
    "not_read_difference": _contrast(lambda group: _decide(group).not_read_difference),
    "state": lambda group: _decide(group).state.value if group.queries else None,
    "psi": lambda group: _analyze(group).psi,
    "psi_chance": lambda group: _analyze(group).psi_chance,
    "p_value": lambda group: test.p_value if (test := _analyze(group).test) else None,
    # Over all lengths the papers report the mean over queries.
    "ndcg_at_10_as_published": lambda group: None if group.length is None else _plain(_analyze(group).ndcg_as_published),
    "documents": lambda group: _decide(group).documents,
    "informative_documents": lambda group: _analyze(group).informative,
    "design_effect": lambda group: mean.design_effect if (mean := _analyze(group).ndcg) else None,
    "held_fixed": lambda group: effect.stratum.value if (effect := _analyze(group).effect) else None,
    "start_to_middle": _contrast(lambda group: _analyze(group).position.start_to_middle),
    "middle_to_end": _contrast(lambda group: _analyze(group).position.middle_to_end),
    "middle_to_ends": _contrast(lambda group: _analyze(group).position.middle_to_ends),
    "detectable_start_to_end": _detectable("start_to_end"),
    "detectable_psi": _detectable("psi"),
    **{key: _trend(key) for key in TRENDS},
}


def _read_scores() -> Iterator[Score]:
    text = (files("posir_significance") / "scores.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        declared: dict[str, Any] = row | {name: bool(row[name]) for name in ("column", "interval", "by_position")}
        declared |= {"unit": Unit(row["unit"]), "better": Better(row["better"])}
        yield Score(**declared, compute=COMPUTE[row["key"]])


#: In the order of the columns that show them; those without `column` are shown on request.
SCORES = tuple(_read_scores())
