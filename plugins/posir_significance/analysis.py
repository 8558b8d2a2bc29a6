"""Everything that the statistics say of a result, computed once per result: scores, charts and the leaderboard share it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from posir_psi.scores import psi
from posir_significance.correction import count_informative
from posir_significance.effect_test import NULL_DRAWS, EffectTest, draw_true_effects, run_effect_test
from posir_significance.intervals import TAILS, MeanEstimate, Z, estimate_mean
from posir_significance.observations import Floats, Integers, Observations
from posir_significance.position_effect import (
    SEED,
    ClusterSums,
    PositionEffect,
    Stratum,
    estimate_effect,
    pseudoinverse,
    refine_covariance,
)
from posir_significance.regression import PositionContrasts, contrast_positions
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.evidence import TWELFTHS
from posir_tasks.read_part import UNKNOWN, ReadPart
from posir_tasks.schemes import MIDDLE_TO_ENDS, START_TO_END, assign_thirds, bin_midpoints, contrast_thirds
from posir_tasks.scores import Estimate

#: Results whose analysis is cached.
CACHED_RESULTS = 256
#: Level of the test of any effect of position: a second statement beside that on bias.
SHAPE_ALPHA = 0.01
#: Ends of the central 90 % of draws under the null.
CHANCE_QUANTILES = (0.05, 0.95)
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
    position: PositionContrasts
    """Differences between thirds of the document and of what is read, and between what is read and what is not."""
    observations: Observations
    """The queries."""
    p_value_within_read: float | None
    """P-value of any effect of position over what is read; None with too few documents, or if what is read is unknown."""
    psi_as_published: float | None
    """The observed 1 - worst / best position bin, to which chance adds."""
    psi_chance: Estimate | None
    """That PSI if position has no effect: mean, and ends of the central 90 % of its draws."""


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
def analyze(ranks: DocumentRanks, read: ReadPart = UNKNOWN) -> Analysis:
    """Analyze a result, given its ranks by document and what the model reads of a document."""
    observations = Observations.from_ranks(ranks, read)
    lengths = range(len(ranks.axes.lengths)) if len(ranks.axes.lengths) > 1 else ()
    buckets = tuple(analyze_group(observations.select(observations.lengths == index)) for index in lengths)
    return Analysis(analyze_group(observations), buckets)


def analyze_group(observations: Observations) -> GroupAnalysis:
    """Analyze a group of queries."""
    position, effect = contrast_positions(observations), estimate_effect(observations)
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
    chance = ChanceScores.from_observations(observations)
    return GroupAnalysis(
        queries=len(observations.gains),
        documents=len(np.unique(observations.clusters)),
        informative=count_informative(observations, select_strata(observations, effect)) if effect else 0,
        ndcg=mean,
        ndcg_as_published=_estimate_bucket_mean(observations),
        null_band=estimate_chance_band(observations),
        effect=effect,
        test=test,
        psi=_estimate_psi(*draws, test, effect, position) if draws and test and effect else None,
        psi_draws=draws[0] if draws else None,
        variances=variances,
        position=position,
        observations=observations,
        p_value_within_read=_test_within_read(observations, test),
        psi_as_published=chance.psi if chance else None,
        psi_chance=chance.estimate_psi() if chance and len(chance.filled) > 1 else None,
    )


def _test_within_read(observations: Observations, test: EffectTest | None) -> float | None:
    """Return the p-value of any effect of position over the twelfths of what is read; over the bins if all is read."""
    if not observations.not_read:
        return test.p_value if test and observations.not_read == 0 else None
    within = observations.select_read()
    rows = np.arange(len(within.gains))
    twelfths = replace(within, query=rows, position=within.twelfths, bins=TWELFTHS)
    effect = estimate_effect(twelfths) if within.gains.any() else None
    return run_effect_test(effect, TWELFTHS, observations=twelfths).p_value if effect else None


@dataclass(frozen=True, eq=False)
class ChanceScores:
    """Scores of the position bins if position has no effect; no document is held fixed, as in the published PSI.

    A bin's score differs from the mean gain by the deviations of its queries, and those of a cluster have a random sign.
    """

    scores: Floats
    """Observed score of each of the B non-empty bins, shape (B,)."""
    filled: Integers
    """The non-empty bins, shape (B,)."""
    bins: int
    """Number of all bins."""
    level: float
    """Mean gain."""
    clusters: ClusterSums
    """Contribution of each cluster to the scores of the bins."""

    @classmethod
    def from_observations(cls, observations: Observations) -> ChanceScores | None:
        """Return the scores under the null; None without a positive gain."""
        if not observations.gains.any():
            return None
        query, position = observations.query, observations.position
        filled, column, counts = np.unique(position, return_inverse=True, return_counts=True)
        cluster = np.unique(observations.clusters[query], return_inverse=True)[1]
        gains = observations.gains[query]
        level, size = float(gains.mean()), len(filled)
        deviations = (gains - level) / counts[column]
        rows = np.bincount(cluster * size + column, deviations, (cluster.max() + 1) * size).astype(np.float64)
        scores = np.bincount(column, gains) / counts
        return cls(scores, filled, observations.bins, level, ClusterSums.from_clusters(rows.reshape(-1, size)))

    @property
    def psi(self) -> float:
        """The observed PSI, as it is published."""
        return float(psi(self.scores))

    @property
    def band(self) -> Floats:
        """Low and high ends of 95 % of each bin's score, shape (2, P); NaN where empty.

        Pointwise: of 20 bins without a position effect, one lies outside on average.
        """
        band = np.full((2, self.bins), np.nan)
        errors = Z * np.sqrt((self.clusters.rows**2).sum(axis=0))
        band[:, self.filled] = np.clip([self.level - errors, self.level + errors], 0, 1)
        return band

    def draw_psi(self) -> Floats:
        """Draw the published PSI, shape (draws,)."""
        drawn = psi(np.clip(self.level + self.clusters.draw(NULL_DRAWS), 0, 1))
        return drawn[~np.isnan(drawn)]

    def estimate_psi(self) -> Estimate:
        """Return the mean of the published PSI, and the ends of the central 90 % of its draws."""
        drawn = self.draw_psi()
        (low, high), mean = np.quantile(drawn, CHANCE_QUANTILES).tolist(), float(drawn.mean())
        return Estimate(mean, (min(low, mean), max(high, mean)))


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


def estimate_chance_band(observations: Observations) -> Floats:
    """Return the low and high ends of 95 % of each bin's score if position has no effect, shape (2, P); NaN where empty."""
    chance = ChanceScores.from_observations(observations)
    return chance.band if chance else np.full((2, observations.bins), np.nan)


def _draw_psi(effect: PositionEffect, mean: MeanEstimate, bins: int) -> tuple[Floats, Floats]:
    """Draw true PSI from its posterior, and around each draw's posterior mean; shape (draws,) each."""
    draws = draw_true_effects(effect, bins)
    explained = effect.level_slope @ effect.covariance @ effect.level_slope
    error = max(mean.standard_error**2 - float(explained), 0.0) ** 0.5
    levels = effect.level + error * np.random.default_rng(SEED + 1).standard_normal(len(draws.effects))
    levels += (draws.effects - effect.effects) @ effect.level_slope
    drawn = psi(np.clip(levels[:, None] + draws.effects, SMALLEST_SCORE, 1))
    return drawn, psi(np.clip(effect.level + draws.means, SMALLEST_SCORE, 1))


def _estimate_psi(
    drawn: Floats, centered: Floats, test: EffectTest, effect: PositionEffect, position: PositionContrasts
) -> Estimate:
    """Estimate the true PSI by the median of its posterior, with an interval that nothing beside it contradicts.

    Low end: PSI = (max - min) / max is at least max - min, and that is at least start to end, so it is never below the interval
    of start to end. Above that, if any effect of position is shown (p < 0.01), it is the low end of the posterior. Draws from
    Gaussian processes vary again around their posterior mean, which adds to the range: the low end allows for that by
    reflection at the posterior mean, as the basic bootstrap does (Davison & Hinkley 1997, Bootstrap Methods and their
    Application, 5.2).

    High end: at least the largest PSI of a first or a last bin or two that the data do not exclude. The prior favors small
    effects, which data that say little cannot correct, so if no effect is shown, lines, parabolas and single bins count, too.
    """
    median, (low, high) = float(np.median(drawn)), np.quantile(drawn, TAILS).tolist()
    shown = test.p_value is not None and test.p_value < SHAPE_ALPHA
    reflected = float(np.quantile(2 * centered - drawn, TAILS[0]))
    start_to_end = position.start_to_end
    ends = start_to_end.interval if start_to_end and start_to_end.interval else (0.0, 0.0)
    low = max(min(low, reflected) if shown else 0.0, ends[0], -ends[1], 0.0)
    value = max(median, low)
    largest = _largest_psi_not_excluded(effect, position, every=not shown)
    return Estimate(value, (low, max(high, largest, value)))


def _largest_psi_not_excluded(effect: PositionEffect, position: PositionContrasts, *, every: bool) -> float:
    """Return the largest PSI of simple curves over the bins that 95 % intervals of the effect do not exclude.

    The curves are the first and the last bin or two. Each is fitted with the shrunk covariance of the effects, and its size
    taken at the ends of its interval. Start to end fixes a line, too, and middle to ends a parabola; these two are by clusters,
    and wider where few clusters vary.

    Args:
        effect: The effect of position on B bins.
        position: Start to end, and middle to ends.
        every: Whether lines, parabolas and each single bin count.
    """
    size, precision = len(effect.filled), pseudoinverse(effect.covariance)[0]
    line = bin_midpoints(effect.bins)[effect.filled]
    parabola, index = (line - 0.5) ** 2, np.arange(size)
    shapes = [index < 1, index >= size - 1, index < 2, index >= size - 2, *((line, parabola, *np.eye(size)) if every else ())]
    curves = []
    for shape in shapes:
        curve = shape - effect.weights @ shape
        information = float(curve @ precision @ curve)
        if information > SMALLEST_SCORE:
            amount, error = float(curve @ precision @ effect.effects) / information, Z / information**0.5
            curves += [(amount - error) * curve, (amount + error) * curve]
    pairs = (line, START_TO_END, position.start_to_end), (parabola, MIDDLE_TO_ENDS, position.middle_to_ends)
    for shape, weights, contrast in pairs if every else ():
        thirds = contrast_thirds(assign_thirds(effect.bins)[effect.filled], effect.weights, weights)
        if thirds is not None and contrast and contrast.interval and abs(thirds @ shape) > SMALLEST_SCORE:
            curve = (shape - effect.weights @ shape) / (thirds @ shape)
            curves += [end * curve for end in contrast.interval]
    return float(psi(np.clip(effect.level + np.array([*curves, np.zeros(size)]), SMALLEST_SCORE, 1)).max())
