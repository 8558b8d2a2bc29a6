"""Statistics of a result, declared as scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtr

from posir_significance.analysis import CACHED_RESULTS, GroupAnalysis, analyze, estimate_bins
from posir_significance.api import detectable_effect
from posir_significance.decision import Decision, decide_all
from posir_significance.observations import Floats, Integers, Observations
from posir_significance.regression import Contrast, PositionContrasts
from posir_tasks.profile import NDCG_AT_10, mean_gain
from posir_tasks.schemes import bin_midpoints
from posir_tasks.scores import Better, Estimate, QueryGroup, ResultValues, Score, ScoreValue, Unit

#: Bins that a p-value of slope or correlation needs; SciPy's is 0 for a perfect correlation of three.
MIN_BINS = 5
#: Most pairs without ties for which the p-value of Kendall's tau is exact: above, it is that of a normal approximation.
EXACT_PAIRS = 33


POSIR = "Zeng et al. 2026, arXiv 2601.08363"
POSQ = "Zeng et al. 2025, arXiv 2505.13950"


def analyze_queries(group: QueryGroup) -> GroupAnalysis:
    """Return the analysis of all queries of a result, or of those of a length bucket."""
    analysis = analyze(group.values.ranks, group.values.read)
    return analysis.overall if group.length is None else analysis.lengths[group.length]


@lru_cache(maxsize=CACHED_RESULTS)
def decide_result(values: ResultValues) -> tuple[Decision, ...]:
    """Return the decision on all queries of a result, then those on each length bucket if there are several."""
    return decide_all(analyze(values.ranks, values.read))


def _decide(group: QueryGroup) -> Decision:
    return decide_result(group.values)[0 if group.length is None else group.length + 1]


def _contrast(read: Callable[[PositionContrasts], Contrast | None]) -> Callable[[QueryGroup], ScoreValue]:
    """Return how a difference between positions is computed, with its interval at the level of the group."""

    def compute(group: QueryGroup) -> ScoreValue:
        contrast = read(analyze_queries(group).position)
        return Estimate(contrast.value, _decide(group).interval(contrast)) if contrast else None

    return compute


def _mean_ndcg(group: QueryGroup) -> ScoreValue:
    if group.position is not None:
        return _plain(_bin_means(group.values)[group.position])
    return _plain(analyze_queries(group).ndcg)


def _published_ndcg(group: QueryGroup) -> ScoreValue:
    # Over all lengths the papers report the mean over queries.
    return None if group.length is None else _plain(analyze_queries(group).ndcg_as_published)


@lru_cache(maxsize=CACHED_RESULTS)
def _bin_means(values: ResultValues) -> list[Estimate | None]:
    return list(estimate_bins(Observations.from_ranks(values.ranks)))


def _plain(estimate: Estimate | None) -> Estimate | None:
    """Return value and interval alone, of an estimate that may know more."""
    return Estimate(estimate.value, estimate.interval) if estimate else None


def _of_analysis(read: Callable[[GroupAnalysis], Estimate | None]) -> Callable[[QueryGroup], ScoreValue]:
    """Return how a score is computed that is an estimate of the analysis."""
    return lambda group: _plain(read(analyze_queries(group)))


def _p_value(group: QueryGroup) -> ScoreValue:
    test = analyze_queries(group).test
    return test.p_value if test else None


def _design_effect(group: QueryGroup) -> ScoreValue:
    mean = analyze_queries(group).ndcg
    return mean.design_effect if mean else None


def _held_fixed(group: QueryGroup) -> ScoreValue:
    effect = analyze_queries(group).effect
    return effect.stratum.value if effect else None


def _detectable(name: str) -> Callable[[QueryGroup], ScoreValue]:
    def compute(group: QueryGroup) -> ScoreValue:
        analysis = analyze_queries(group)
        detectable = detectable_effect(analysis.effect, len(group.counts)) if analysis.effect and analysis.test else None
        return float(getattr(detectable, name)) if detectable else None

    return compute


@lru_cache(maxsize=CACHED_RESULTS)
def _fit_group(group: QueryGroup) -> Trend:
    return fit_trend(group.counts)


def _trend(read: Callable[[Trend], float | None]) -> Callable[[QueryGroup], ScoreValue]:
    return lambda group: read(_fit_group(group))


@dataclass(frozen=True)
class Trend:
    """Linear and rank relation of the scores of the position bins, all with the same weight, to position.

    Everything is None with fewer than two non-empty bins, all but the slope where all bins score the same, and p-values with
    fewer than five non-empty bins.
    """

    slope: float | None = None
    """Change of nDCG@10 from the start of the document to its end."""
    r_squared: float | None = None
    """Share of the variance of the bins' scores that the line explains, in [0, 1]."""
    pearson: float | None = None
    """Linear correlation in [-1, 1]; its p-value is that of the slope."""
    spearman: float | None = None
    """Rank correlation in [-1, 1]."""
    kendall: float | None = None
    """Rank correlation in [-1, 1]: tau-b."""
    slope_p_value: float | None = None
    spearman_p_value: float | None = None
    kendall_p_value: float | None = None


def fit_trend(counts: Integers) -> Trend:
    """Return slope and correlations of the scores of the non-empty bins over their midpoints in [0, 1].

    The same as in the authors' analysis of PosIR (Zeng et al. 2026, arXiv 2601.08363), which takes them from `linregress`,
    `spearmanr` and `kendalltau` of SciPy.

    Args:
        counts: Queries per position bin and rank column, shape (P, 12).
    """
    # Rounded, so that scores which differ only by the order of summation are ties.
    scores = mean_gain(counts, NDCG_AT_10).round(12)
    filled = ~np.isnan(scores)
    scores, middle = scores[filled], bin_midpoints(len(counts))[filled]
    if len(scores) < 2:
        return Trend()
    if np.ptp(scores) == 0:
        return Trend(slope=0.0)
    line, ranks, pairs = pearson(middle, scores), spearman(middle, scores), kendall(middle, scores)
    testable = len(scores) >= MIN_BINS
    return Trend(
        slope=line.value * float(scores.std() / middle.std()),
        r_squared=line.value**2,
        pearson=line.value,
        spearman=ranks.value,
        kendall=pairs.value,
        slope_p_value=line.p_value if testable else None,
        spearman_p_value=ranks.p_value if testable else None,
        kendall_p_value=pairs.p_value if testable else None,
    )


@dataclass(frozen=True)
class Correlation:
    """A correlation and its two-sided p-value."""

    value: float
    """The coefficient, in [-1, 1]."""
    p_value: float


def pearson(x: Floats, y: Floats) -> Correlation:
    """Return the linear correlation of two arrays, shape (N,) with N > 1; its p-value is that of the slope of the line.

    The p-value is that of Student's t with N - 2 degrees of freedom. It is meaningless for N = 2.
    """
    x_deviation, y_deviation = x - x.mean(), y - y.mean()
    r = float(x_deviation @ y_deviation / np.sqrt((x_deviation @ x_deviation) * (y_deviation @ y_deviation)))
    r, freedom = min(1.0, max(-1.0, r)), len(x) - 2
    t = np.inf if abs(r) == 1 else abs(r) * np.sqrt(freedom / (1 - r**2))
    return Correlation(r, float(2 * stdtr(max(freedom, 1), -t)))


def spearman(x: Floats, y: Floats) -> Correlation:
    """Return the rank correlation of two arrays, shape (N,) with N > 1: Pearson's of the ranks, ties with their mean rank."""
    return pearson(rank(x), rank(y))


def rank(values: Floats) -> NDArray[np.float64]:
    """Return the rank of each value from 1, shape (N,); equal values have their mean rank."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return ranks


def kendall(x: Floats, y: Floats) -> Correlation:
    """Return Kendall's tau-b of two arrays, shape (N,) with N > 1; the values of `x` are all different.

    The p-value is exact for few pairs without ties, else that of the normal approximation with the variance under ties
    (Kendall 1970, Rank Correlation Methods, section 4 and 5).
    """
    size, pairs = len(x), len(x) * (len(x) - 1) // 2
    balance = int(np.triu(np.sign(x[:, None] - x) * np.sign(y[:, None] - y)).sum())
    ties = np.unique(y, return_counts=True)[1]
    tied = int((ties * (ties - 1) // 2).sum())
    tau = balance / np.sqrt(pairs * (pairs - tied))
    discordant = (pairs - tied - balance) // 2
    if not tied and (size <= EXACT_PAIRS or min(discordant, pairs - discordant) <= 1):
        return Correlation(float(tau), exact_p_value(size, discordant))
    variance = (size * (size - 1) * (2 * size + 5) - (ties * (ties - 1) * (2 * ties + 5)).sum()) / 18
    return Correlation(float(tau), float(2 * ndtr(-abs(balance) / np.sqrt(variance))))


def exact_p_value(size: int, inversions: int) -> float:
    """Return the probability that a random order of `size` items is at least as far from even as one with these inversions."""
    shares = np.ones(1)
    for items in range(2, size + 1):
        shares = np.convolve(shares, np.full(items, 1 / items))
    return min(1.0, float(2 * shares[: min(inversions, len(shares) - 1 - inversions) + 1].sum()))


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
        compute=_contrast(lambda position: position.start_to_end),
    ),
    Score(
        "start_to_end_plain",
        "Start to end (plain)",
        "Mean nDCG@10 of the questions in the first third of documents minus that in the last. Nothing is held fixed.",
        unit=Unit.POINTS,
        column=False,
        compute=lambda group: analyze_queries(group).position.start_to_end_plain,
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
        compute=_contrast(lambda position: position.bias_within_read),
    ),
    Score(
        "not_read",
        "Not read",
        "Share of the questions whose evidence the model does not read, or not all of it.",
        unit=Unit.PERCENT,
        better=Better.LOWER,
        column=False,
        compute=lambda group: analyze_queries(group).position.not_read,
    ),
    Score(
        "not_read_difference",
        "Read minus not read",
        "nDCG@10 of the questions whose evidence the model reads minus that of the others, compared as start to end.",
        unit=Unit.POINTS,
        column=False,
        interval=True,
        compute=_contrast(lambda position: position.not_read_difference),
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
        compute=_of_analysis(lambda analysis: analysis.psi),
    ),
    Score(
        "psi_chance",
        "PSI by chance",
        "PSI as published that chance alone gives: its mean and the central 90 %. No document is held fixed in either.",
        unit=Unit.INDEX,
        interval=True,
        compute=_of_analysis(lambda analysis: analysis.psi_chance),
    ),
    Score(
        "p_value",
        "Any effect (p)",
        "p-value of any effect of position in the document, unread parts included; not corrected. No state follows from it.",
        unit=Unit.P_VALUE,
        column=False,
        compute=_p_value,
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
        compute=_published_ndcg,
    ),
    Score(
        "documents",
        "Documents",
        "Number of documents that the queries are about.",
        unit=Unit.COUNT,
        column=False,
        compute=lambda group: analyze_queries(group).documents,
    ),
    Score(
        "informative_documents",
        "Informative documents",
        "Documents (articles, where known) that can move the test of the position effect.",
        unit=Unit.COUNT,
        column=False,
        compute=lambda group: analyze_queries(group).informative,
    ),
    Score(
        "design_effect",
        "Design effect",
        "Variance of nDCG@10 as a multiple of that of as many independent queries.",
        column=False,
        compute=_design_effect,
    ),
    Score(
        "held_fixed",
        "Held fixed",
        "Stratum within which the position effect is estimated: the document, or the length bucket.",
        unit=Unit.TEXT,
        column=False,
        compute=_held_fixed,
    ),
    Score(
        "start_to_middle",
        "Start to middle",
        "nDCG@10 of the first third of the document minus that of the middle one.",
        unit=Unit.POINTS,
        column=False,
        interval=True,
        compute=_contrast(lambda position: position.start_to_middle),
    ),
    Score(
        "middle_to_end",
        "Middle to end",
        "nDCG@10 of the middle third of the document minus that of the last.",
        unit=Unit.POINTS,
        column=False,
        interval=True,
        compute=_contrast(lambda position: position.middle_to_end),
    ),
    Score(
        "middle_to_ends",
        "Middle to ends",
        "nDCG@10 of the middle third of the document minus the mean of the other two.",
        unit=Unit.POINTS,
        column=False,
        interval=True,
        compute=_contrast(lambda position: position.middle_to_ends),
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
    Score(
        "slope",
        "Slope",
        "Change of nDCG@10 from the start of the document to its end, by a line through the position bins.",
        unit=Unit.POINTS,
        citation=POSIR,
        column=False,
        compute=_trend(lambda trend: trend.slope),
    ),
    Score(
        "slope_p_value",
        "p of slope",
        "p-value of the slope over bins, and of Pearson's correlation.",
        unit=Unit.P_VALUE,
        citation=POSIR,
        column=False,
        compute=_trend(lambda trend: trend.slope_p_value),
    ),
    Score(
        "r_squared",
        "R2",
        "Share of the variance of the position bins' scores that the line explains.",
        citation=POSIR,
        column=False,
        compute=_trend(lambda trend: trend.r_squared),
    ),
    Score(
        "pearson",
        "Pearson",
        "Linear correlation of position and the score of the position bin.",
        citation=POSIR,
        column=False,
        compute=_trend(lambda trend: trend.pearson),
    ),
    Score(
        "spearman",
        "Spearman",
        "Rank correlation of position and the score of the position bin.",
        citation=POSIR,
        column=False,
        compute=_trend(lambda trend: trend.spearman),
    ),
    Score(
        "spearman_p_value",
        "p of Spearman",
        "p-value of the rank correlation over bins.",
        unit=Unit.P_VALUE,
        citation=POSIR,
        column=False,
        compute=_trend(lambda trend: trend.spearman_p_value),
    ),
    Score(
        "kendall",
        "Kendall",
        "Rank correlation (tau-b) of position and the score of the position bin.",
        citation=POSIR,
        column=False,
        compute=_trend(lambda trend: trend.kendall),
    ),
    Score(
        "kendall_p_value",
        "p of Kendall",
        "p-value of Kendall's rank correlation over bins.",
        unit=Unit.P_VALUE,
        citation=POSIR,
        column=False,
        compute=_trend(lambda trend: trend.kendall_p_value),
    ),
)
