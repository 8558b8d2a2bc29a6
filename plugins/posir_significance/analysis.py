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
from posir_tasks.values.means import LEVEL, MeanEstimate, Z, estimate_mean, estimate_means
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
#: A count that is 0 is replaced by this, so that nothing is divided by 0.
TINY = 1e-12


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

    @property
    def queries(self) -> int:
        """Number of queries."""
        return round(float(self.observations.row_weights.sum()))

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
        observations = self.observations
        return estimate_mean(observations.gains, observations.clusters, observations.shares)

    @cached_property
    def ndcg_as_published(self) -> MeanEstimate | None:
        """Unweighted mean of the non-empty bins, as papers report length buckets."""
        observations = self.observations
        query = observations.query
        position = observations.position
        counts = np.bincount(position, minlength=observations.bins)
        weights = 1 / ((counts > 0).sum() * counts[position])
        gains = observations.gains[query]
        return estimate_mean(gains, observations.clusters[query], weights, position)

    @cached_property
    def start_minus_end(self) -> Estimate | None:
        """Mean over queries of the first third of documents minus that of the last, as the data
        lie: a description.
        """
        return estimate_start_minus_end(self.observations)

    @cached_property
    def published_psi(self) -> tuple[Estimate | None, Estimate | None]:
        """PSI as published, and what chance alone gives with these queries."""
        return (None, None) if self.has_places else estimate_psi(self.observations)


@dataclass(frozen=True, eq=False)
class Analysis:
    """The analysis of a result."""

    values: ResultValues

    @cached_property
    def overall(self) -> GroupAnalysis:
        """The analysis of all queries."""
        observations = Observations.from_ranks(self.values.ranks, self.values.read)
        return _analyze_group(self.values, observations, None)

    @cached_property
    def lengths(self) -> tuple[GroupAnalysis, ...]:
        """Analysis of each length bucket; empty if there is only one."""
        observations = self.overall.observations
        lengths = len(self.values.ranks.axes.lengths)
        buckets = []
        for index in range(lengths if lengths > 1 else 0):
            bucket = observations.select(observations.lengths == index)
            buckets.append(_analyze_group(self.values, bucket, index))
        return tuple(buckets)

    @property
    def groups(self) -> tuple[GroupAnalysis, ...]:
        """All queries, then each length bucket."""
        return (self.overall, *self.lengths)


@lru_cache(maxsize=CACHED_RESULTS)
def analyze(values: ResultValues) -> Analysis:
    """Analyze a result, whose groups are analyzed when they are asked for."""
    return Analysis(values)


def load_group(values: ResultValues, index: int) -> GroupAnalysis:
    """Analyze all queries of a result (index 0), or a length bucket (from 1)."""
    analysis = analyze(values)
    return analysis.lengths[index - 1] if index else analysis.overall


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
    totals = np.maximum(totals, TINY)
    means = shares.T @ observations.gains / totals
    deviations = (observations.gains[:, None] - means) * shares / totals
    _, cluster = np.unique(observations.clusters, return_inverse=True)
    sums = np.bincount(cluster, deviations[:, 0] - deviations[:, -1])
    value = float(means[0] - means[-1])
    count = len(sums)
    if count < 2:
        return Estimate(value)
    error = float(np.sqrt(count / (count - 1) * (sums @ sums)))
    half = float(stdtrit(count - 1, (1 + LEVEL) / 2)) * error
    return Estimate(value, (max(value - half, -1.0), min(value + half, 1.0)))


def average_thirds(observations: Observations) -> Floats:
    """Average the gains of each third of documents as `estimate_start_minus_end` does, shape (3,);
    NaN without queries.
    """
    shares = _share_thirds(observations)
    totals = shares.sum(axis=0)
    sums = shares.T @ observations.gains
    means: Floats = np.divide(sums, totals, out=np.full(THIRDS, np.nan), where=totals > 0)
    return means


def _share_thirds(observations: Observations) -> Floats:
    """Return the weight of each query in each third of its document, shape (n, 3)."""
    query = observations.query
    shares = np.zeros((len(observations.gains), THIRDS))
    if observations.bins == THIRDS:
        memberships = np.bincount(query, minlength=len(shares))
        np.add.at(shares, (query, observations.position), 1 / memberships[query])
    elif len(shares):
        shares[np.arange(len(shares)), observations.document_thirds] = 1.0
    return shares * observations.row_weights[:, None]


@dataclass(frozen=True, eq=False)
class BinScores:
    """Mean gains of the B non-empty position bins, and how they vary if position has no effect; no
    document is held fixed, as in the published PSI.

    A bin's score differs from the mean gain by the deviations of its queries.
    """

    filled: Integers
    """The non-empty bins, shape (B,)."""
    scores: Floats
    """Observed score of each, shape (B,)."""
    level: float
    """Mean gain."""
    deviations: Floats
    """Contribution of each cluster to the scores, shape (C, B); their outer products sum to the
    covariance of the scores.
    """

    def draw(self) -> Floats:
        """Draw scores of no effect, shape (NULL_DRAWS, B): every cluster's contribution with a
        random sign.

        The wild cluster bootstrap with the effect restricted to 0 (Cameron, Gelbach & Miller 2008,
        Review of Economics and Statistics 90, 414-427). Sums over many clusters are normal.
        """
        clusters, bins = self.deviations.shape
        if clusters > MAX_CLUSTERS:
            root = symmetric_root(self.deviations.T @ self.deviations)
            return self.level + _draw_normals(bins) @ root
        drawn = _draw_signs()[:, :clusters] @ self.deviations.astype(np.float32)
        scores: Floats = self.level + drawn.astype(np.float64)
        return scores


def score_bins(observations: Observations) -> BinScores | None:
    """Score the non-empty position bins; None without a positive gain."""
    if not observations.gains.any():
        return None
    query = observations.query
    filled, column, counts = np.unique(
        observations.position, return_inverse=True, return_counts=True
    )
    _, cluster = np.unique(observations.clusters[query], return_inverse=True)
    gains = observations.gains[query]
    level = float(gains.mean())
    size = len(filled)
    deviations = (gains - level) / counts[column]
    cells = (cluster.max() + 1) * size
    rows = np.bincount(cluster * size + column, deviations, cells).astype(np.float64)
    return BinScores(filled, np.bincount(column, gains) / counts, level, rows.reshape(-1, size))


@cache
def _draw_signs() -> NDArray[np.float32]:
    """Draw a sign of every cluster, shape (NULL_DRAWS, 2 * MAX_CLUSTERS)."""
    signs = np.random.default_rng(SEED).integers(0, 2, (NULL_DRAWS, 2 * MAX_CLUSTERS), np.int8)
    return signs.astype(np.float32) * 2 - 1


@cache
def _draw_normals(bins: int) -> Floats:
    """Draw standard normal numbers, shape (NULL_DRAWS, bins)."""
    return np.random.default_rng(SEED).standard_normal((NULL_DRAWS, bins))


def estimate_psi(observations: Observations) -> tuple[Estimate | None, Estimate | None]:
    """Return PSI as published, 1 - worst / best bin, and what chance alone gives: the mean, and the
    ends of the central 90% of its draws; None where undefined.
    """
    scored = score_bins(observations)
    if scored is None:
        return None, None
    psi = Estimate(float(compute_psi(scored.scores)))
    if len(scored.filled) < 2:
        return psi, None
    drawn = compute_psi(np.clip(scored.draw(), 0, 1))
    drawn = drawn[~np.isnan(drawn)]
    low, high = np.quantile(drawn, CHANCE_QUANTILES).tolist()
    mean = float(drawn.mean())
    return psi, Estimate(mean, (min(low, mean), max(high, mean)))


def estimate_chance_band(observations: Observations) -> Floats:
    """Return the low and high ends of 95% of each bin's score if position has no effect, shape (2,
    P); NaN where empty.

    Pointwise: of 20 bins without a position effect, one lies outside on average.
    """
    band = np.full((2, observations.bins), np.nan)
    scored = score_bins(observations)
    if scored:
        errors = Z * np.sqrt((scored.deviations**2).sum(axis=0))
        band[:, scored.filled] = np.clip([scored.level - errors, scored.level + errors], 0, 1)
    return band


def estimate_bins(observations: Observations) -> list[MeanEstimate | None]:
    """Return mean nDCG@10 of each position bin; None where it is empty."""
    rows = observations.query
    position = observations.position
    weights = observations.row_weights[rows]
    totals = np.bincount(position, weights, observations.bins)
    shares = weights / totals[position]
    gains = observations.gains[rows]
    return estimate_means(gains, observations.clusters[rows], shares, position, observations.bins)


def estimate_parts(observations: Observations) -> list[MeanEstimate | None]:
    """Return mean nDCG@10 in equal parts of what is read, or of the document if that is unknown; at
    least three.

    As many parts as leave MIN_QUERIES queries in each: twelve, six, four or three; of position bins
    likewise.
    """
    if len(observations.twelfths):
        read = observations.select(observations.twelfths < TWELFTHS)
        rows = np.arange(len(read.gains))
        observations = replace(read, query=rows, position=read.twelfths, bins=TWELFTHS)
    merged = observations
    for size in range(1, max(observations.bins // 3, 1) + 1):
        if observations.bins % size == 0:
            merged = observations.merge_bins(size)
            if np.bincount(merged.position, minlength=merged.bins).min() >= MIN_QUERIES:
                break
    return estimate_bins(merged)
