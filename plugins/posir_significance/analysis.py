"""Everything that the statistics say of a result, computed when it is asked for: scores, charts and
the board share it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from posir_psi.scores import compute_psi
from posir_significance.controlled import THIRDS, ControlledTest
from posir_significance.findings import Reason
from posir_significance.observations import Floats, Integers, Observations
from posir_significance.regression import symmetric_root
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.evidence import TWELFTHS
from posir_tasks.values.judgments import CLUSTER, DOCUMENT
from posir_tasks.values.means import LEVEL, MeanEstimate, Z, estimate_mean
from posir_tasks.values.rotation_ranks import Window
from posir_tasks.values.scores import ResultValues

#: Results whose analysis is cached.
CACHED_RESULTS = 256
#: Draws of the published PSI under the null.
NULL_DRAWS = 999
#: Ends of the central 90% of draws under the null.
CHANCE_QUANTILES = (0.05, 0.95)
#: Bins of a picture are merged if one has fewer queries: the 95% interval of its mean is up to 0.36
#: wide.
MIN_QUERIES = 30
#: Seed of all draws: the same result gives the same numbers.
SEED = 20260108
#: Most clusters whose signs are drawn. With more, the sums are over so many that they are about
#: normal.
MAX_CLUSTERS = 1500


@dataclass(frozen=True, eq=False)
class GroupAnalysis:
    """Statistics of a group of queries: all of a result, or one length bucket. None where
    undefined.

    Each is computed when it is asked for.
    """

    observations: Observations
    """The queries."""
    not_tested: Reason | None = None
    """The reason why there are no rotated versions; None if there are."""
    whole: ControlledTest | None = None
    """Test W of the group; None without rotated versions."""
    within: ControlledTest | None = None
    """Test R of the group; None without rotated versions, or if the window is unknown or differs
    between subsets.
    """
    versions: tuple[object, ...] = ()
    """Digests of the questions and versions of test W: equal if two models can be compared row by
    row.
    """
    window_versions: tuple[object, ...] = ()
    """The same of test R."""
    sample_size: int = 0
    """Documents of each length in the sample of the rotated versions; 0 without."""

    @property
    def queries(self) -> int:
        """Number of queries."""
        return (
            round(self.observations.weights.sum())
            if self.has_places
            else len(self.observations.gains)
        )

    @property
    def has_places(self) -> bool:
        """Whether each query has several places of evidence; PSI is then undefined."""
        return bool(len(self.observations.weights))

    @property
    def counted(self) -> str:
        """The noun of what is independent: queries with several places make one cluster of their
        documents.
        """
        return CLUSTER if self.has_places else DOCUMENT

    @cached_property
    def documents(self) -> int:
        """Number of documents (articles, where known), or of their clusters."""
        return len(np.unique(self.observations.clusters))

    @cached_property
    def ndcg(self) -> MeanEstimate | None:
        """Mean over queries."""
        return estimate_mean(
            self.observations.gains, self.observations.clusters, self.observations.shares
        )

    @cached_property
    def ndcg_as_published(self) -> MeanEstimate | None:
        """Unweighted mean of the non-empty bins, as papers report length buckets."""
        query = self.observations.query
        position = self.observations.position
        counts = np.bincount(position, minlength=self.observations.bins)
        weights = 1 / ((counts > 0).sum() * counts[position]) if len(position) else np.zeros(0)
        return estimate_mean(
            self.observations.gains[query], self.observations.clusters[query], weights, position
        )

    @cached_property
    def null_band(self) -> Floats:
        """Low and high ends of 95% of each bin's score if position has no effect, shape (2, P); NaN
        where empty.
        """
        return estimate_chance_band(self.observations)

    @cached_property
    def start_minus_end(self) -> Estimate | None:
        """Mean over queries of the first third of documents minus that of the last, as the data
        lie: a description.
        """
        return estimate_start_minus_end(self.observations)

    @cached_property
    def _chance(self) -> ChanceScores | None:
        return None if self.has_places else ChanceScores.from_observations(self.observations)

    @property
    def psi_as_published(self) -> float | None:
        """The observed 1 - worst / best position bin, to which chance adds."""
        return float(compute_psi(self._chance.scores)) if self._chance else None

    @cached_property
    def psi_by_chance(self) -> Estimate | None:
        """Published PSI if position has no effect: mean, and ends of the central 90% of its
        draws.
        """
        return (
            self._chance.estimate_psi() if self._chance and len(self._chance.filled) > 1 else None
        )


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
def analyze(values: ResultValues) -> Analysis:
    """Analyze a result."""
    observations = Observations.from_ranks(values.ranks, values.read)
    lengths = range(len(values.ranks.axes.lengths)) if len(values.ranks.axes.lengths) > 1 else ()
    buckets = tuple(
        _analyze_group(values, observations.select(observations.lengths == index), index)
        for index in lengths
    )
    return Analysis(_analyze_group(values, observations, None), buckets)


def analyze_places(values: ResultValues) -> GroupAnalysis | None:
    """Analyze the queries with several places of evidence, each place at 1/n; None if there are
    none.
    """
    places = values.places
    if places is None or not len(places.columns.ranks):
        return None
    return GroupAnalysis(Observations.from_ranks(places, values.read))


def _analyze_group(
    values: ResultValues, observations: Observations, length: int | None
) -> GroupAnalysis:
    rotations = values.rotations
    if rotations is None:
        return GroupAnalysis(observations, Reason.NOT_STORED)
    if not rotations.covers(values.ranks) or rotations.is_partly_tested:
        return GroupAnalysis(observations, Reason.PARTLY_STORED)
    if rotations.untested is not None:
        return GroupAnalysis(observations, Reason(rotations.untested.value))
    tested = GroupAnalysis(
        observations,
        whole=ControlledTest.from_ranks(values.ranks, rotations, window=False, length=length),
        versions=rotations.digests(window=False),
        sample_size=rotations.sample_size,
    )
    if rotations.window is Window.UNKNOWN:
        return tested
    within = ControlledTest.from_ranks(values.ranks, rotations, window=True, length=length)
    return replace(tested, within=within, window_versions=rotations.digests(window=True))


def estimate_start_minus_end(observations: Observations) -> Estimate | None:
    """Estimate the mean gain of the first third of documents minus that of the last, over queries.

    With u_c the sum over cluster c of the deviations of gains from the mean of their third, divided
    by the queries of that third, minus the same of the last third: SE^2 = C / (C - 1) sum u_c^2,
    with a t quantile of C - 1 degrees of freedom. A query in several thirds counts in each with its
    share.
    """
    shares = _share_thirds(observations)
    totals = shares.sum(axis=0)
    if not totals[0] or not totals[-1]:
        return None
    means = shares.T @ observations.gains / np.maximum(totals, TINY)
    deviations = (observations.gains[:, None] - means) * shares / np.maximum(totals, TINY)
    _, cluster = np.unique(observations.clusters, return_inverse=True)
    sums = np.bincount(cluster, deviations[:, 0] - deviations[:, -1])
    value = float(means[0] - means[-1])
    count = len(sums)
    if count < 2:
        return Estimate(value)
    error = float(np.sqrt(count / (count - 1) * (sums @ sums)))
    half = float(stdtrit(count - 1, (1 + LEVEL) / 2)) * error
    return Estimate(value, (max(value - half, -1.0), min(value + half, 1.0)))


#: A count that is 0 is replaced by this, so that nothing is divided by 0.
TINY = 1e-12


def _share_thirds(observations: Observations) -> Floats:
    """Return the weight of each query in each third of its document, shape (n, 3)."""
    weights = (
        observations.weights if len(observations.weights) else np.ones(len(observations.gains))
    )
    shares = np.zeros((len(observations.gains), THIRDS))
    if observations.bins == THIRDS:
        memberships = np.bincount(observations.query, minlength=len(shares))
        np.add.at(
            shares, (observations.query, observations.position), 1 / memberships[observations.query]
        )
    elif len(shares):
        shares[np.arange(len(shares)), observations.document_thirds] = 1.0
    return shares * weights[:, None]


@dataclass(frozen=True, eq=False)
class ClusterSums:
    """Contributions of clusters to B estimates; their outer products sum to the covariance of the
    estimates.
    """

    rows: Floats
    """Contribution of each cluster, shape (C, B); with more than `MAX_CLUSTERS`, a root of the
    covariance, shape (B, B).
    """
    summed: bool
    """Whether the rows are a root of the covariance instead of clusters."""

    @classmethod
    def from_clusters(cls, rows: Floats) -> ClusterSums:
        """Return the contributions of clusters, shape (C, B), summed up if there are many."""
        return (
            cls(symmetric_root(rows.T @ rows), summed=True)
            if len(rows) > MAX_CLUSTERS
            else cls(rows, summed=False)
        )

    def draw(self, draws: int) -> Floats:
        """Draw estimates of no effect, shape (draws, B): every cluster's contribution with a random
        sign.

        The wild cluster bootstrap with the effect restricted to 0 (Cameron, Gelbach & Miller 2008,
        Review of Economics and Statistics 90, 414-427). Sums over many clusters are normal.
        """
        if self.summed:
            return _draw_normals(draws, len(self.rows)) @ self.rows
        drawn: Floats = (
            _draw_signs(draws)[:, : len(self.rows)] @ self.rows.astype(np.float32)
        ).astype(np.float64)
        return drawn


@cache
def _draw_signs(draws: int) -> NDArray[np.float32]:
    """Return a sign of every cluster of two results, shape (draws, 2 * MAX_CLUSTERS)."""
    signs = np.random.default_rng(SEED).integers(0, 2, (draws, 2 * MAX_CLUSTERS), np.int8)
    return signs.astype(np.float32) * 2 - 1


@cache
def _draw_normals(draws: int, columns: int) -> Floats:
    """Draw standard normal numbers, the same for the same shape (draws, columns)."""
    return np.random.default_rng(SEED).standard_normal((draws, columns))


@dataclass(frozen=True, eq=False)
class ChanceScores:
    """Scores of the position bins if position has no effect; no document is held fixed, as in the
    published PSI.

    A bin's score differs from the mean gain by the deviations of its queries, and those of a
    cluster have a random sign.
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
        query = observations.query
        position = observations.position
        filled, column, counts = np.unique(position, return_inverse=True, return_counts=True)
        cluster = np.unique(observations.clusters[query], return_inverse=True)[1]
        gains = observations.gains[query]
        level = float(gains.mean())
        size = len(filled)
        deviations = (gains - level) / counts[column]
        rows = np.bincount(cluster * size + column, deviations, (cluster.max() + 1) * size).astype(
            np.float64
        )
        scores = np.bincount(column, gains) / counts
        return cls(
            scores,
            filled,
            observations.bins,
            level,
            ClusterSums.from_clusters(rows.reshape(-1, size)),
        )

    @property
    def band(self) -> Floats:
        """Low and high ends of 95% of each bin's score, shape (2, P); NaN where empty.

        Pointwise: of 20 bins without a position effect, one lies outside on average.
        """
        band = np.full((2, self.bins), np.nan)
        errors = Z * np.sqrt((self.clusters.rows**2).sum(axis=0))
        band[:, self.filled] = np.clip([self.level - errors, self.level + errors], 0, 1)
        return band

    def estimate_psi(self) -> Estimate:
        """Return the mean of the published PSI, and the ends of the central 90% of its draws."""
        drawn = compute_psi(np.clip(self.level + self.clusters.draw(NULL_DRAWS), 0, 1))
        drawn = drawn[~np.isnan(drawn)]
        (low, high) = np.quantile(drawn, CHANCE_QUANTILES).tolist()
        mean = float(drawn.mean())
        return Estimate(mean, (min(low, mean), max(high, mean)))


def estimate_bins(observations: Observations) -> list[MeanEstimate | None]:
    """Return mean nDCG@10 of each position bin; None where it is empty."""
    weights = (
        observations.weights if len(observations.weights) else np.ones(len(observations.gains))
    )
    queries = (
        observations.query[observations.position == position]
        for position in range(observations.bins)
    )
    return [
        estimate_mean(
            observations.gains[rows],
            observations.clusters[rows],
            weights[rows] / max(weights[rows].sum(), 1e-9),
        )
        for rows in queries
    ]


def estimate_parts(observations: Observations) -> list[MeanEstimate | None]:
    """Return mean nDCG@10 in equal parts of what is read, or of the document if that is unknown; at
    least three.

    As many parts as leave MIN_QUERIES queries in each: twelve, six, four or three; of position bins
    likewise.
    """
    if len(observations.twelfths):
        read = observations.select_read()
        observations = replace(
            read, query=np.arange(len(read.gains)), position=read.twelfths, bins=TWELFTHS
        )
    bins = observations.bins
    sizes = [size for size in range(1, max(bins // 3, 1) + 1) if bins % size == 0]
    merged = [observations.merge_bins(size) for size in sizes]
    fewest = (np.bincount(parts.position, minlength=parts.bins).min() for parts in merged)
    return estimate_bins(
        next(
            (parts for parts, few in zip(merged, fewest, strict=True) if few >= MIN_QUERIES),
            merged[-1],
        )
    )


def estimate_chance_band(observations: Observations) -> Floats:
    """Return the low and high ends of 95% of each bin's score if position has no effect, shape (2,
    P); NaN where empty.
    """
    chance = ChanceScores.from_observations(observations)
    return chance.band if chance else np.full((2, observations.bins), np.nan)
