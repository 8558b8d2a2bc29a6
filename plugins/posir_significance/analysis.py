"""Everything that the statistics say of a result, computed once per result: scores, charts and the leaderboard share it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from posir_psi.scores import psi
from posir_significance.clusters import SEED
from posir_significance.correction import count_informative
from posir_significance.effect_test import EffectTest, draw_true_effects, run_effect_test
from posir_significance.intervals import ALPHA, TAILS, MeanEstimate, Z, estimate_mean, student_difference
from posir_significance.observations import Floats, Integers, Observations
from posir_significance.position_effect import PositionEffect, Stratum, estimate_effect, pseudoinverse, refine_covariance
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.estimates import Difference, Estimate
from posir_tasks.thirds import MIDDLE_TO_ENDS, START_TO_END, assign_thirds, bin_midpoints, contrast_thirds

#: Results whose analysis is cached.
CACHED_RESULTS = 256
#: Scores are clipped to (0, 1], where PSI is defined.
SMALLEST_SCORE = 1e-6


@dataclass(frozen=True, eq=False)
class GroupAnalysis:
    """Statistics of a group of queries: all of a result, or one length bucket. None where undefined."""

    queries: int
    documents: int
    """Documents (articles, where known)."""
    informative: int
    """Those that can move the test of the position effect."""
    ndcg: MeanEstimate | None
    """Mean over queries."""
    ndcg_as_published: MeanEstimate | None
    """Unweighted mean of the non-empty bins, as papers report length buckets."""
    null_band: Floats
    """Low and high ends of 95 % of each bin's score if position has no effect, shape (2, P); NaN where empty."""
    effect: PositionEffect | None
    test: EffectTest | None
    psi: Estimate | None
    """Posterior median of the true PSI."""
    psi_draws: Floats | None
    """Draws of the true PSI from its posterior, shape (draws,)."""
    variances: Floats | None
    """Variance of the gains in each of the B non-empty bins, up to a constant factor, shape (B,)."""
    start_to_end: Estimate | None
    """First third minus last third of the document, in nDCG@10, with the stratum held fixed."""
    start_to_middle: Estimate | None
    """First third minus the middle one."""
    middle_to_end: Estimate | None
    """Middle third minus the last one."""
    middle_to_ends: Estimate | None
    """Middle third minus the mean of the other two."""


@dataclass(frozen=True, eq=False)
class Analysis:
    """The analysis of a result."""

    overall: GroupAnalysis
    lengths: tuple[GroupAnalysis, ...]
    """Analysis of each length bucket; empty if there is only one."""

    @property
    def groups(self) -> tuple[GroupAnalysis, ...]:
        """All queries, then each length bucket."""
        return (self.overall, *self.lengths)


@lru_cache(maxsize=CACHED_RESULTS)
def analyze(ranks: DocumentRanks) -> Analysis:
    """Analyze a result, given its ranks by document."""
    observations = Observations.from_ranks(ranks)
    lengths = range(len(ranks.axes.lengths)) if len(ranks.axes.lengths) > 1 else ()
    buckets = tuple(analyze_group(observations.select(observations.lengths == index)) for index in lengths)
    return Analysis(analyze_group(observations), buckets)


def analyze_group(observations: Observations) -> GroupAnalysis:
    """Analyze a group of queries."""
    effect = estimate_effect(observations)
    test = (
        run_effect_test(effect, observations.bins, observations=observations) if effect and observations.gains.any() else None
    )
    variances = None
    if effect and test:
        scores = np.clip(effect.level + test.expected, 0, 1)
        variances = gain_variances(scores, effect.weights * len(observations.position))
        effect = refine_covariance(observations, effect, variances, test.expected, [test.expected])
    mean = estimate_mean(observations.gains, observations.clusters)
    draws = _draw_psi(effect, mean, observations.bins) if effect and test and mean else None
    return GroupAnalysis(
        queries=len(observations.gains),
        documents=len(np.unique(observations.clusters)),
        informative=count_informative(observations, select_strata(observations, effect)) if effect else 0,
        ndcg=mean,
        ndcg_as_published=_estimate_bucket_mean(observations),
        null_band=null_band(effect, observations.bins),
        effect=effect,
        test=test,
        psi=_estimate_psi(*draws, test, effect, observations.bins) if draws and test and effect else None,
        psi_draws=draws[0] if draws else None,
        variances=variances,
        start_to_end=estimate_start_to_end(effect, observations.bins) if effect else None,
        start_to_middle=_estimate_contrast(effect, observations.bins, (1.0, -1.0, 0.0)) if effect else None,
        middle_to_end=_estimate_contrast(effect, observations.bins, (0.0, 1.0, -1.0)) if effect else None,
        middle_to_ends=_estimate_contrast(effect, observations.bins, MIDDLE_TO_ENDS) if effect else None,
    )


def select_strata(observations: Observations, effect: PositionEffect) -> Integers:
    """Return the number of each query's stratum, which is held fixed when an effect is estimated, shape (n,)."""
    return observations.documents if effect.stratum is Stratum.DOCUMENT else observations.subsets_and_lengths


def gain_variances(scores: Floats, counts: Floats) -> Floats:
    """Return how much gains vary in each bin, up to a constant: like Bernoulli trials, of which one more is counted.

    Args:
        scores: Expected score of each bin, in [0, 1], shape (B,).
        counts: Its queries, shape (B,).
    """
    means = (scores * counts + 0.5) / (counts + 1)
    return means * (1 - means)


def _estimate_bucket_mean(observations: Observations) -> MeanEstimate | None:
    query, position = observations.query, observations.position
    counts = np.bincount(position, minlength=observations.bins)
    weights = 1 / ((counts > 0).sum() * counts[position]) if len(position) else np.zeros(0)
    return estimate_mean(observations.gains[query], observations.clusters[query], weights, position)


def estimate_bins(observations: Observations) -> list[MeanEstimate | None]:
    """Return mean nDCG@10 of each position bin; None where it is empty."""
    queries = (observations.query[observations.position == position] for position in range(observations.bins))
    return [estimate_mean(observations.gains[rows], observations.clusters[rows]) for rows in queries]


def null_band(effect: PositionEffect | None, bins: int) -> Floats:
    """Return the low and high ends of 95 % of each bin's score if position has no effect, shape (2, P); NaN where empty.

    Pointwise: of 20 bins without a position effect, one lies outside on average.
    """
    band = np.full((2, bins), np.nan)
    if effect:
        errors = Z * np.sqrt(np.diag(effect.null_covariance))
        band[:, effect.filled] = np.clip([effect.level - errors, effect.level + errors], 0, 1)
    return band


def _draw_psi(effect: PositionEffect, mean: MeanEstimate, bins: int) -> tuple[Floats, Floats]:
    """Draw true PSI from its posterior, and around each draw's posterior mean; shape (draws,) each."""
    draws = draw_true_effects(effect, bins)
    explained = effect.level_slope @ effect.covariance @ effect.level_slope
    error = max(mean.standard_error**2 - float(explained), 0.0) ** 0.5
    levels = effect.level + error * np.random.default_rng(SEED + 1).standard_normal(len(draws.effects))
    levels += (draws.effects - effect.effects) @ effect.level_slope
    drawn = psi(np.clip(levels[:, None] + draws.effects, SMALLEST_SCORE, 1))
    return drawn, psi(np.clip(effect.level + draws.means, SMALLEST_SCORE, 1))


def _estimate_psi(drawn: Floats, centered: Floats, test: EffectTest, effect: PositionEffect, bins: int) -> Estimate:
    """Estimate the true PSI by the median of its posterior.

    Draws from Gaussian processes vary again around their posterior mean, which adds to the range: the low end allows for that
    by reflection at the posterior mean, as the basic bootstrap does (Davison & Hinkley 1997, Bootstrap Methods and their
    Application, 5.2). If the position effect is not significant, the low end is 0, and the high end is at least the largest PSI
    of a line or a parabola that the data do not exclude: the prior favors small effects, which data that say little cannot
    correct.
    """
    median, (low, high) = float(np.median(drawn)), np.quantile(drawn, TAILS)
    if test.p_value is None or test.p_value >= ALPHA:
        return Estimate(median, (0.0, max(float(high), _largest_psi_not_excluded(effect, bins))))
    reflected = np.quantile(2 * centered - drawn, TAILS[0])
    return Estimate(median, (float(max(0.0, min(low, reflected))), float(high)))


def _largest_psi_not_excluded(effect: PositionEffect, bins: int) -> float:
    """Return the largest PSI of a line or a parabola that the 95 % intervals of the effect do not exclude.

    The intervals are those of a linear trend with the shrunk covariance, of start to end, which fixes a line, and of middle to
    ends, which fixes a parabola. The last two are by clusters, and wider where few clusters vary.
    """
    middle = bin_midpoints(bins)[effect.filled]
    line, parabola = (curve - effect.weights @ curve for curve in (middle, (middle - 0.5) ** 2))
    weighted = line @ pseudoinverse(effect.covariance)[0]
    information = max(float(weighted @ line), SMALLEST_SCORE)
    slope = weighted @ effect.effects / information
    curves = [np.copysign(abs(slope) + Z / np.sqrt(information), slope) * line]
    for curve, weights in ((line, START_TO_END), (parabola, MIDDLE_TO_ENDS)):
        contrast, difference = _contrast_thirds(effect, bins, weights), _estimate_contrast(effect, bins, weights)
        if contrast is not None and difference and difference.interval:
            curves += [end / (contrast @ curve) * curve for end in difference.interval]
    return max(float(psi(np.clip(effect.level + curve, SMALLEST_SCORE, 1))) for curve in curves)


def estimate_start_to_end(effect: PositionEffect, bins: int, limit: float = 1.0) -> Difference | None:
    """Estimate first minus last third of the document; None if one of them has no queries, or is not compared with the other.

    Args:
        effect: The effect on a score, or on the difference of two models' scores.
        bins: Number of all bins.
        limit: Largest possible difference between thirds: 1 of a score, 2 of a difference.
    """
    return _estimate_contrast(effect, bins, START_TO_END, limit)


def _estimate_contrast(
    effect: PositionEffect, bins: int, weights: tuple[float, float, float], limit: float = 1.0
) -> Difference | None:
    """Estimate a difference between thirds; None as in `_contrast_thirds`."""
    contrast = _contrast_thirds(effect, bins, weights)
    if contrast is None:
        return None
    # Within few documents, least squares can leave what is possible.
    value = float(np.clip(contrast @ effect.effects, -limit, limit))
    return student_difference(value, effect.standard_error(contrast), effect.degrees, limit)


def _contrast_thirds(effect: PositionEffect, bins: int, weights: tuple[float, float, float]) -> Floats | None:
    """Return a contrast of thirds over the B non-empty bins, shape (B,); a third's score is the mean over its queries.

    None if a third that it weights is empty, or if not all bins are compared with each other.
    """
    return contrast_thirds(assign_thirds(bins)[effect.filled], effect.weights, weights) if effect.connected else None
