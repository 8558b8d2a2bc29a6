"""Everything that the statistics say of a result, computed when it is asked for: scores, charts and the board share it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from scipy.special import ndtri

from posir_psi.scores import compute_psi
from posir_significance import position_effect
from posir_significance.effect_test import NULL_DRAWS, EffectTest, draw_true_effects, run_effect_test
from posir_significance.intervals import LEVEL, MeanEstimate, Z, estimate_mean
from posir_significance.observations import Floats, Integers, Observations
from posir_significance.regression import PositionContrasts
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.evidence import TWELFTHS
from posir_tasks.judgments import CLUSTER, DOCUMENT
from posir_tasks.read_part import UNKNOWN, ReadPart
from posir_tasks.schemes import MIDDLE_TO_ENDS, START_TO_END, assign_thirds, bin_midpoints, contrast_thirds
from posir_tasks.scores import Estimate

#: Results whose analysis is cached.
CACHED_RESULTS = 256
#: Level of the test of any effect of position: a second statement beside that on bias.
SHAPE_ALPHA = 0.01
#: Ends of the central 90 % of draws under the null.
CHANCE_QUANTILES = (0.05, 0.95)
#: Bins of a picture are merged if one has fewer queries: the 95 % interval of its mean is up to 0.36 wide.
MIN_QUERIES = 30
#: Scores are clipped to (0, 1], where PSI is defined.
SMALLEST_SCORE = 1e-6


@dataclass(frozen=True, eq=False)
class GroupAnalysis:
    """Statistics of a group of queries: all of a result, or one length bucket. None where undefined.

    Each is computed when it is asked for.
    """

    observations: Observations
    """The queries."""

    @property
    def queries(self) -> int:
        """Number of queries."""
        return round(self.observations.weights.sum()) if self.has_places else len(self.observations.gains)

    @property
    def has_places(self) -> bool:
        """Whether each query has several places of evidence; PSI and the test of any effect of position are then undefined."""
        return bool(len(self.observations.weights))

    @property
    def counted(self) -> str:
        """The noun of what is independent: queries with several places make one cluster of their documents."""
        return CLUSTER if self.has_places else DOCUMENT

    @cached_property
    def documents(self) -> int:
        """Number of documents (articles, where known), or of their clusters."""
        return len(np.unique(self.observations.clusters))

    @cached_property
    def informative(self) -> int:
        """Number of documents (articles, where known) that can move the test of the position effect.

        A document can if both gains and position bins differ within its stratum: equal gains say nothing about position.
        """
        if not self.effect:
            return 0
        observations, query = self.observations, self.observations.query
        by_document = self.effect.stratum is position_effect.Stratum.DOCUMENT
        strata = (observations.documents if by_document else observations.subsets_and_lengths)[query]
        varied = np.ones(len(query), bool)
        for values in (observations.gains[query], observations.position):
            pairs = np.unique(np.stack([strata, values]), axis=1)[0].astype(np.int64)
            varied &= np.bincount(pairs)[strata] > 1
        return len(np.unique(observations.clusters[query][varied]))

    @cached_property
    def position(self) -> PositionContrasts:
        """Differences between thirds of the document and of what is read, and between what is read and what is not."""
        return PositionContrasts(self.observations)

    @cached_property
    def ndcg(self) -> MeanEstimate | None:
        """Mean over queries."""
        return estimate_mean(self.observations.gains, self.observations.clusters, self.observations.shares)

    @cached_property
    def ndcg_as_published(self) -> MeanEstimate | None:
        """Unweighted mean of the non-empty bins, as papers report length buckets."""
        query, position = self.observations.query, self.observations.position
        counts = np.bincount(position, minlength=self.observations.bins)
        weights = 1 / ((counts > 0).sum() * counts[position]) if len(position) else np.zeros(0)
        return estimate_mean(self.observations.gains[query], self.observations.clusters[query], weights, position)

    @cached_property
    def null_band(self) -> Floats:
        """Low and high ends of 95 % of each bin's score if position has no effect, shape (2, P); NaN where empty."""
        return estimate_chance_band(self.observations)

    @cached_property
    def _effect_and_test(self) -> tuple[position_effect.PositionEffect | None, EffectTest | None]:
        if self.has_places:
            return None, None
        observations, effect = self.observations, position_effect.estimate_effect(self.observations)
        if not effect or not observations.gains.any():
            return effect, None
        test = run_effect_test(effect, observations)
        counts = effect.weights * len(observations.position)
        # Gains vary in each bin, up to a constant, like Bernoulli trials, of which one more is counted.
        means = (np.clip(effect.level + test.expected, 0, 1) * counts + 0.5) / (counts + 1)
        return position_effect.refine_covariance(
            observations, effect, means * (1 - means), test.expected, [test.expected]
        ), test

    @property
    def effect(self) -> position_effect.PositionEffect | None:
        """The effect of each bin, with its covariance for new documents."""
        return self._effect_and_test[0]

    @property
    def test(self) -> EffectTest | None:
        """The test of any effect of position in the document."""
        return self._effect_and_test[1]

    @cached_property
    def p_value_within_read(self) -> float | None:
        """P-value of any effect of position over what is read; None with too few documents, or if what is read is unknown."""
        if self.has_places:
            return None
        if not self.observations.not_read:
            return self.test.p_value if self.test and self.observations.not_read == 0 else None
        within = self.observations.select_read()
        twelfths = replace(within, query=np.arange(len(within.gains)), position=within.twelfths, bins=TWELFTHS)
        effect = position_effect.estimate_effect(twelfths) if within.gains.any() else None
        return run_effect_test(effect, twelfths).p_value if effect else None

    @cached_property
    def _psi_draws(self) -> tuple[Floats, Floats] | None:
        """Draws of the true PSI from its posterior, and around each draw's posterior mean; shape (draws,) each."""
        effect, mean = self.effect, self.ndcg
        if not (effect and self.test and mean):
            return None
        effects, centers = draw_true_effects(effect)
        explained = effect.level_slope @ effect.covariance @ effect.level_slope
        error = max(mean.standard_error**2 - float(explained), 0.0) ** 0.5
        levels = effect.level + error * np.random.default_rng(position_effect.SEED + 1).standard_normal(len(effects))
        levels += (effects - effect.effects) @ effect.level_slope
        drawn = compute_psi(np.clip(levels[:, None] + effects, SMALLEST_SCORE, 1))
        return drawn, compute_psi(np.clip(effect.level + centers, SMALLEST_SCORE, 1))

    @property
    def psi_draws(self) -> Floats | None:
        """Draws of the true PSI from its posterior, shape (draws,)."""
        return self._psi_draws[0] if self._psi_draws else None

    @cached_property
    def psi(self) -> Estimate | None:
        """PSI with its 95 % interval."""
        return self.psi_at(LEVEL)

    def psi_at(self, level: float) -> Estimate | None:
        """Return the median of the posterior of the true PSI, with an interval of a level that nothing beside it contradicts.

        Low end: PSI = (max - min) / max is at least max - min, and that is at least start to end, so it is never below the
        interval of start to end. Above that, if any effect of position is shown (p < 0.01), it is the low end of the posterior.
        Draws from Gaussian processes vary again around their posterior mean, which adds to the range: the low end allows for
        that by reflection at the posterior mean, as the basic bootstrap does (Davison & Hinkley 1997, Bootstrap Methods and
        their Application, 5.2).

        High end: at least the largest PSI of a first or a last bin or two that the data do not exclude. The prior favors small
        effects, which data that say little cannot correct, so if no effect is shown, lines, parabolas and single bins count,
        too.
        """
        if not self._psi_draws or not self.effect or not self.test:
            return None
        drawn, centered = self._psi_draws
        median, (low, high) = float(np.median(drawn)), np.quantile(drawn, ((1 - level) / 2, (1 + level) / 2)).tolist()
        shown = self.test.p_value is not None and self.test.p_value < SHAPE_ALPHA
        reflected = float(np.quantile(2 * centered - drawn, (1 - level) / 2))
        start_to_end = self.position.start_to_end
        ends = start_to_end.interval_at(level) if start_to_end and start_to_end.interval_at else (0.0, 0.0)
        low = max(min(low, reflected) if shown else 0.0, ends[0], -ends[1], 0.0)
        value = max(median, low)
        largest = _largest_psi_not_excluded(self.effect, self.position, level, every=not shown)
        return Estimate(value, (low, max(high, largest, value)))

    @cached_property
    def _chance(self) -> ChanceScores | None:
        return None if self.has_places else ChanceScores.from_observations(self.observations)

    @property
    def psi_as_published(self) -> float | None:
        """The observed 1 - worst / best position bin, to which chance adds."""
        return float(compute_psi(self._chance.scores)) if self._chance else None

    @cached_property
    def psi_chance(self) -> Estimate | None:
        """Observed PSI if position has no effect: mean, and ends of the central 90 % of its draws."""
        return self._chance.estimate_psi() if self._chance and len(self._chance.filled) > 1 else None


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
    buckets = tuple(GroupAnalysis(observations.select(observations.lengths == index)) for index in lengths)
    return Analysis(GroupAnalysis(observations), buckets)


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
    clusters: position_effect.ClusterSums
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
        return cls(scores, filled, observations.bins, level, position_effect.ClusterSums.from_clusters(rows.reshape(-1, size)))

    @property
    def band(self) -> Floats:
        """Low and high ends of 95 % of each bin's score, shape (2, P); NaN where empty.

        Pointwise: of 20 bins without a position effect, one lies outside on average.
        """
        band = np.full((2, self.bins), np.nan)
        errors = Z * np.sqrt((self.clusters.rows**2).sum(axis=0))
        band[:, self.filled] = np.clip([self.level - errors, self.level + errors], 0, 1)
        return band

    def estimate_psi(self) -> Estimate:
        """Return the mean of the published PSI, and the ends of the central 90 % of its draws."""
        drawn = compute_psi(np.clip(self.level + self.clusters.draw(NULL_DRAWS), 0, 1))
        drawn = drawn[~np.isnan(drawn)]
        (low, high), mean = np.quantile(drawn, CHANCE_QUANTILES).tolist(), float(drawn.mean())
        return Estimate(mean, (min(low, mean), max(high, mean)))


def estimate_bins(observations: Observations) -> list[MeanEstimate | None]:
    """Return mean nDCG@10 of each position bin; None where it is empty."""
    weights = observations.weights if len(observations.weights) else np.ones(len(observations.gains))
    queries = (observations.query[observations.position == position] for position in range(observations.bins))
    return [
        estimate_mean(observations.gains[rows], observations.clusters[rows], weights[rows] / max(weights[rows].sum(), 1e-9))
        for rows in queries
    ]


def estimate_parts(observations: Observations) -> list[MeanEstimate | None]:
    """Return mean nDCG@10 in equal parts of what is read, or of the document if that is unknown; at least three.

    As many parts as leave MIN_QUERIES queries in each: twelve, six, four or three; of position bins likewise.
    """
    if len(observations.twelfths):
        read = observations.select_read()
        observations = replace(read, query=np.arange(len(read.gains)), position=read.twelfths, bins=TWELFTHS)
    bins = observations.bins
    sizes = [size for size in range(1, max(bins // 3, 1) + 1) if bins % size == 0]
    merged = [observations.merge_bins(size) for size in sizes]
    fewest = (np.bincount(parts.position, minlength=parts.bins).min() for parts in merged)
    return estimate_bins(next((parts for parts, few in zip(merged, fewest, strict=True) if few >= MIN_QUERIES), merged[-1]))


def estimate_chance_band(observations: Observations) -> Floats:
    """Return the low and high ends of 95 % of each bin's score if position has no effect, shape (2, P); NaN where empty."""
    chance = ChanceScores.from_observations(observations)
    return chance.band if chance else np.full((2, observations.bins), np.nan)


def _largest_psi_not_excluded(
    effect: position_effect.PositionEffect, position: PositionContrasts, level: float, *, every: bool
) -> float:
    """Return the largest PSI of simple curves over the bins that intervals of the effect, of a level, do not exclude.

    The curves are the first and the last bin or two. Each is fitted with the shrunk covariance of the effects, and its size
    taken at the ends of its interval. Start to end fixes a line, too, and middle to ends a parabola; these two are by
    clusters, and wider where few clusters vary. With `every`, lines, parabolas and each single bin count, too.
    """
    size, precision = len(effect.filled), position_effect.pseudoinverse(effect.covariance)[0]
    errors = float(ndtri((1 + level) / 2))
    line = bin_midpoints(effect.bins)[effect.filled]
    parabola, index = (line - 0.5) ** 2, np.arange(size)
    shapes = [index < 1, index >= size - 1, index < 2, index >= size - 2, *((line, parabola, *np.eye(size)) if every else ())]
    curves = []
    for shape in shapes:
        curve = shape - effect.weights @ shape
        information = float(curve @ precision @ curve)
        if information > SMALLEST_SCORE:
            amount, error = float(curve @ precision @ effect.effects) / information, errors / information**0.5
            curves += [(amount - error) * curve, (amount + error) * curve]
    pairs = (line, START_TO_END, position.start_to_end), (parabola, MIDDLE_TO_ENDS, position.middle_to_ends)
    for shape, weights, contrast in pairs if every else ():
        thirds = contrast_thirds(assign_thirds(effect.bins)[effect.filled], effect.weights, weights)
        if thirds is not None and contrast and contrast.interval_at and abs(thirds @ shape) > SMALLEST_SCORE:
            curve = (shape - effect.weights @ shape) / (thirds @ shape)
            curves += [end * curve for end in contrast.interval_at(level)]
    return float(compute_psi(np.clip(effect.level + np.array([*curves, np.zeros(size)]), SMALLEST_SCORE, 1)).max())
