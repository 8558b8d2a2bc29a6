"""Statistics of a result, declared as scores."""

from __future__ import annotations

from collections.abc import Callable

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
POSIR = "Zeng et al. 2026, arXiv 2601.08363"
POSQ = "Zeng et al. 2025, arXiv 2505.13950"


def _analyze(group: QueryGroup) -> GroupAnalysis:
    """Return the analysis of all queries of a result, or of those of a length bucket."""
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
    """Return value and interval alone, of an estimate that may know more."""
    return Estimate(estimate.value, estimate.interval) if estimate else None


def _detectable(name: str) -> Callable[[QueryGroup], ScoreValue]:
    def compute(group: QueryGroup) -> ScoreValue:
        analysis = _analyze(group)
        detectable = detectable_effect(analysis.effect, len(group.counts)) if analysis.effect and analysis.test else None
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


#: Key, title, unit and description of what `fit_trend` returns.
TRENDS = (
    (
        "slope",
        "Slope",
        Unit.POINTS,
        "Change of nDCG@10 from the start of the document to its end, by a line through the position bins.",
    ),
    ("slope_p_value", "p of slope", Unit.P_VALUE, "p-value of the slope over bins, and of Pearson's correlation."),
    ("r_squared", "R2", Unit.NUMBER, "Share of the variance of the position bins' scores that the line explains."),
    ("pearson", "Pearson", Unit.NUMBER, "Linear correlation of position and the score of the position bin."),
    ("spearman", "Spearman", Unit.NUMBER, "Rank correlation of position and the score of the position bin."),
    ("spearman_p_value", "p of Spearman", Unit.P_VALUE, "p-value of the rank correlation over bins."),
    ("kendall", "Kendall", Unit.NUMBER, "Rank correlation (tau-b) of position and the score of the position bin."),
    ("kendall_p_value", "p of Kendall", Unit.P_VALUE, "p-value of Kendall's rank correlation over bins."),
)
#: In the order of the columns that show them; those with `column=False` are shown on request.
SCORES = (
    Score(
        "ndcg_at_10",
        "nDCG@10",
        "Mean over queries, with its 95 % interval for new documents.",
        unit=Unit.PERCENT,
        better=Better.HIGHER,
        citation=POSQ,
        interval=True,
        compute=_mean_ndcg,
        by_position=True,
    ),
    Score(
        "start_to_end",
        "Start to end",
        "nDCG@10 of the first third of the document minus that of the last, compared within documents; where most have one "
        "question, within subset and length. Intervals of lengths hold together.",
        unit=Unit.POINTS,
        better=Better.NEAR_ZERO,
        interval=True,
        compute=_contrast(lambda group: _decide(group).start_to_end),
    ),
    Score(
        "start_to_end_plain",
        "Start to end (plain)",
        "Mean nDCG@10 of the questions in the first third of documents minus that in the last. Nothing is held fixed.",
        unit=Unit.POINTS,
        column=False,
        compute=lambda group: _decide(group).start_to_end_plain,
    ),
    Score(
        "bias_within_read",
        "Bias within what is read",
        "nDCG@10 of the first third of what the model reads minus that of the last, over evidence that it reads, compared as "
        "start to end.",
        unit=Unit.POINTS,
        better=Better.NEAR_ZERO,
        column=False,
        interval=True,
        compute=_contrast(lambda group: _decide(group).bias_within_read),
    ),
    Score(
        "not_read",
        "Not read",
        "Share of the questions whose evidence the model does not read, or not all of it.",
        unit=Unit.PERCENT,
        better=Better.LOWER,
        column=False,
        compute=lambda group: _decide(group).not_read,
    ),
    Score(
        "not_read_difference",
        "Read minus not read",
        "nDCG@10 of the questions whose evidence the model reads minus that of the others, compared as start to end.",
        unit=Unit.POINTS,
        column=False,
        interval=True,
        compute=_contrast(lambda group: _decide(group).not_read_difference),
    ),
    Score(
        "state",
        "State",
        "Bias within what the model reads: to the start, to the end, none larger than 5 points, or it cannot be said. It "
        "follows from the interval alone.",
        unit=Unit.TEXT,
        column=False,
        compute=lambda group: _decide(group).state.value if group.queries else None,
    ),
    Score(
        "psi",
        "PSI",
        "1 - worst / best position bin, estimated: the posterior median of the true PSI with its 95 % interval.",
        unit=Unit.INDEX,
        better=Better.LOWER,
        citation=POSQ,
        interval=True,
        compute=lambda group: _analyze(group).psi,
    ),
    Score(
        "psi_chance",
        "PSI by chance",
        "PSI as published that chance alone gives: its mean and the central 90 %. No document is held fixed in either.",
        unit=Unit.INDEX,
        interval=True,
        compute=lambda group: _analyze(group).psi_chance,
    ),
    Score(
        "p_value",
        "Any effect (p)",
        "p-value of any effect of position in the document, unread parts included; not corrected. No state follows from it.",
        unit=Unit.P_VALUE,
        column=False,
        compute=lambda group: test.p_value if (test := _analyze(group).test) else None,
    ),
    Score(
        "ndcg_at_10_as_published",
        "nDCG@10 (as published)",
        "Unweighted mean of the non-empty position bins of a length bucket, as the authors' code reports it.",
        unit=Unit.PERCENT,
        better=Better.HIGHER,
        citation=POSIR,
        column=False,
        interval=True,
        # Over all lengths the papers report the mean over queries.
        compute=lambda group: None if group.length is None else _plain(_analyze(group).ndcg_as_published),
    ),
    Score(
        "documents",
        "Documents",
        "Number of documents that the queries are about.",
        unit=Unit.COUNT,
        column=False,
        compute=lambda group: _decide(group).documents,
    ),
    Score(
        "informative_documents",
        "Informative documents",
        "Documents (articles, where known) that can move the test of the position effect.",
        unit=Unit.COUNT,
        column=False,
        compute=lambda group: _analyze(group).informative,
    ),
    Score(
        "design_effect",
        "Design effect",
        "Variance of nDCG@10 as a multiple of that of as many independent queries.",
        column=False,
        compute=lambda group: mean.design_effect if (mean := _analyze(group).ndcg) else None,
    ),
    Score(
        "held_fixed",
        "Held fixed",
        "Stratum within which the position effect is estimated: the document, or the length bucket.",
        unit=Unit.TEXT,
        column=False,
        compute=lambda group: effect.stratum.value if (effect := _analyze(group).effect) else None,
    ),
    Score(
        "start_to_middle",
        "Start to middle",
        "nDCG@10 of the first third of the document minus that of the middle one.",
        unit=Unit.POINTS,
        column=False,
        interval=True,
        compute=_contrast(lambda group: _analyze(group).position.start_to_middle),
    ),
    Score(
        "middle_to_end",
        "Middle to end",
        "nDCG@10 of the middle third of the document minus that of the last.",
        unit=Unit.POINTS,
        column=False,
        interval=True,
        compute=_contrast(lambda group: _analyze(group).position.middle_to_end),
    ),
    Score(
        "middle_to_ends",
        "Middle to ends",
        "nDCG@10 of the middle third of the document minus the mean of the other two.",
        unit=Unit.POINTS,
        column=False,
        interval=True,
        compute=_contrast(lambda group: _analyze(group).position.middle_to_ends),
    ),
    Score(
        "detectable_start_to_end",
        "Detectable",
        "The smallest linear decline from start to end that data like these show with 80 % power at p < 0.05.",
        unit=Unit.POINTS,
        column=False,
        compute=_detectable("start_to_end"),
    ),
    Score(
        "detectable_psi",
        "Detectable PSI",
        "PSI of the smallest linear decline that data like these show with 80 % power at p < 0.05.",
        unit=Unit.INDEX,
        column=False,
        compute=_detectable("psi"),
    ),
    *(
        Score(key, title, description, unit=unit, citation=POSIR, column=False, compute=_trend(key))
        for key, title, unit, description in TRENDS
    ),
)
