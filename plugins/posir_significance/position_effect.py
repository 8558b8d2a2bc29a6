"""The effect of position on nDCG@10, with the document held fixed where documents have several questions.

Questions of one document share its difficulty. If harder documents have their evidence at other positions, a comparison over
all questions mistakes difficulty for position. Within a document both cancel: the effect is estimated from differences
between the questions of one document (fixed effects: Wooldridge 2010, Econometric Analysis of Cross Section and Panel Data,
chapter 10). Where documents have one question each, the subset and the length bucket are held fixed instead.

Only clusters of documents (articles, or documents) are taken as independent. Questions about one document share its difficulty,
and neighboring ones even more, so nothing is assumed of the covariance within a cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from posir_significance.observations import Floats, Integers, Observations

#: Seed of all draws: the same result gives the same numbers.
SEED = 20260108
#: Most clusters whose signs are drawn. With more, the sums are over so many that they are about normal.
MAX_CLUSTERS = 1500
#: Eigenvalues below this share of the largest are rounding errors.
TOLERANCE = 1e-9
#: Largest share of one cluster in the information that its contribution is corrected for.
MAX_LEVERAGE = 0.9
#: The document is held fixed if at least this share of the queries are in documents with several of them.
SHARED_QUERIES = 0.5


class Stratum(StrEnum):
    """The unit that is held fixed when the effect of position is estimated."""

    DOCUMENT = "document"
    LENGTH = "length"
    SUBSET_AND_LENGTH = "subset and length"


#: Fewest independent documents on either side of a comparison, if the document is held fixed, and else: gains are nearly 0 or
#: 1, so that means over few documents vary by steps.
FEWEST_DOCUMENTS, FEWEST_DOCUMENTS_BY_LENGTH = 10, 30


def fewest_documents(held_fixed: Stratum) -> int:
    """Return how many independent documents a test of position needs, on either side of what it compares."""
    return FEWEST_DOCUMENTS if held_fixed is Stratum.DOCUMENT else FEWEST_DOCUMENTS_BY_LENGTH


@dataclass(frozen=True, eq=False)
class PositionEffect:
    """Scores of the B non-empty position bins with the stratum held fixed, and how they vary between samples of clusters."""

    stratum: Stratum
    bins: int
    """Number of all bins, P."""
    filled: Integers
    """The non-empty bins among all of them, shape (B,)."""
    weights: Floats
    """Share of the memberships in each bin, shape (B,)."""
    level: float
    """Mean nDCG@10 over memberships, in [0, 1], or mean difference in [-1, 1]."""
    effects: Floats
    """Difference of each bin from the level; their weighted mean is 0. Shape (B,)."""
    null_covariance: Floats
    """Covariance of the effects if there are none, shape (B, B)."""
    covariance: Floats
    """Covariance of the estimated effects, shape (B, B)."""
    null_clusters: ClusterSums
    """Contributions of the clusters to the effects; they sum to the effects."""
    count: int
    """Clusters with information on the effect: with queries of several bins in a stratum."""
    level_slope: Floats
    """Regression of the error of the level on those of the effects: hard documents may lose more points, shape (B,)."""
    degrees: float
    """Degrees of freedom of a contrast's variance: the effective number of these clusters minus 1, at least 1."""


def estimate_effect(observations: Observations) -> PositionEffect | None:
    """Estimate the effect of position; None unless two bins that share a stratum have queries.

    With n_s and b_s the counts and sums of gains of stratum s by bin, N_s and S_s its totals: A = sum diag(n_s) - n_s
    n_s'/N_s, b = sum b_s - n_s S_s/N_s, effects A+ b. b is a sum over clusters of documents, which are independent: its
    covariance is that of the clusters' contributions, shrunk toward C = sum v_s (diag(n_s) - n_s n_s'/N_s), the covariance
    under permutation within strata with v_s the variance of gains in the stratum. Gains are in [0, 1], or differences of two
    models' gains in [-1, 1].
    """
    filled = np.flatnonzero(np.bincount(observations.position, minlength=observations.bins))
    if len(filled) < 2:
        return None
    rows = _list_rows(observations, filled)
    strata, stratum = _within(rows, rows.documents), Stratum.DOCUMENT
    shared = (np.bincount(rows.documents)[rows.documents] > 1).mean()
    if strata.rank < len(filled) - 1 or shared < SHARED_QUERIES:
        several = len(np.unique(observations.subsets)) > 1
        strata, stratum = _within(rows, rows.lengths), Stratum.SUBSET_AND_LENGTH if several else Stratum.LENGTH
        if not strata.rank:
            return None
    totals = strata.counts.sum(axis=0)
    weights, sums = totals / totals.sum(), strata.contributions(rows.gains)
    effects = strata.inverse @ sums.sum(axis=0)
    meat = shrink_covariance(sums, strata.meat(np.ones(len(filled)))) + strata.pseudo
    covariance, leverage = strata.inverse @ meat @ strata.inverse, strata.leverage
    return PositionEffect(
        stratum=stratum,
        bins=observations.bins,
        filled=filled,
        weights=weights,
        level=float(rows.gains.mean()),
        effects=effects - weights @ effects,
        null_covariance=covariance,
        covariance=covariance,
        null_clusters=ClusterSums.from_clusters(sums @ strata.inverse),
        level_slope=np.zeros(len(filled)),
        count=int((leverage > TOLERANCE).sum()),
        degrees=max(1 / float(leverage @ leverage) - 1, 1.0),
    )


def refine_covariance(
    observations: Observations, effect: PositionEffect, variances: Floats, expected: Floats, shapes: Sequence[Floats]
) -> PositionEffect:
    """Return the effect with its covariance for new clusters where position does have an effect.

    Three things differ from the null. Clusters contribute what is left after the expected effects, which is corrected for
    their leverage (as in the jackknife: Bell & McCaffrey 2002, Survey Methodology 28, 169-181). Gains near 0 or 1 vary less,
    so they vary less in some bins than in others. And position matters more in some clusters than in others: as in a
    regression with random slopes, a shape x adds t sum A_c x x' A_c over clusters c, where A_c is the cluster's part of A and
    t the variance of slopes. It is chosen so that x' Cov(b) x is the sum of squared x'u_c (cluster-robust: Arellano 1987,
    Oxford Bulletin of Economics and Statistics 49, 431-434), u_c the cluster's contribution, or 0. Of the B bins, shape (B,)
    each: `variances` of the gains, up to a constant, above 0; `expected` effects; and `shapes`, effects whose size may differ
    between clusters, to which the linear trend is added.
    """
    rows = _list_rows(observations, effect.filled)
    strata = _within(rows, rows.documents if effect.stratum is Stratum.DOCUMENT else rows.lengths)
    residuals = strata.contributions(rows.gains - expected[rows.bins]) / (1 - strata.leverage)[:, None]
    target = scale_to(residuals, strata.meat(variances)) + strata.pseudo
    for shape in (*shapes, effect.filled - effect.weights @ effect.filled):
        parts = strata.contributions(shape[rows.bins])
        amounts = parts @ shape
        excess = max(float(((residuals @ shape) ** 2).sum() - shape @ target @ shape), 0.0)
        target += excess / max(float(amounts @ amounts), TOLERANCE**2) * (parts.T @ parts)
    meat = shrink_covariance(residuals, target) + strata.pseudo
    covariance = strata.inverse @ meat @ strata.inverse
    levels = np.bincount(rows.clusters, weights=rows.gains - rows.gains.mean()) / len(rows.gains)
    variance = float(expected @ meat @ expected)
    slope = levels @ residuals @ expected / variance if variance > 0 else 0.0
    return replace(
        effect,
        covariance=covariance,
        level_slope=strata.information @ expected * slope,
    )


def permute_gains(observations: Observations, effect: PositionEffect, draws: int, rng: np.random.Generator) -> Floats | None:
    """Return effects after random permutations of the gains within strata, shape (draws, B).

    None unless every query is in one bin and shares its cluster with no other: else gains are not exchangeable.
    """
    shared = np.bincount(observations.clusters).max() > 1
    if shared or len(observations.query) != len(observations.gains):
        return None
    rows = _list_rows(observations, effect.filled)
    strata = _within(rows, rows.lengths)
    sizes = strata.counts.sum(axis=1).astype(np.int64)
    effects = np.zeros((draws, rows.count))
    # A stratum with equal gains contributes nothing.
    varied = np.flatnonzero(strata.squares > TOLERANCE)
    order = np.argsort(strata.stratum, kind="stable")
    starts = np.cumsum(sizes) - sizes
    for size in np.unique(sizes[varied]):
        members = order[starts[varied[sizes[varied] == size]][:, None] + np.arange(size)]
        shape = (draws, *members.shape)
        gains = rng.permuted(np.broadcast_to(rows.gains[members], shape), axis=2).reshape(draws, -1)
        design = np.eye(rows.count)[rows.bins[members]]
        centered = (design - design.mean(axis=1, keepdims=True)).reshape(-1, rows.count)
        effects += gains @ (centered @ strata.inverse)
    return effects - (effects @ effect.weights)[:, None]


@dataclass(frozen=True, eq=False)
class _Rows:
    """Memberships in one row each, shape (m,); bins count the B non-empty ones."""

    gains: Floats
    bins: Integers
    documents: Integers
    clusters: Integers
    """Numbered from 0 without gaps."""
    lengths: Integers
    """Number of the subset and length bucket."""
    count: int


def _list_rows(observations: Observations, filled: Integers) -> _Rows:
    query = observations.query
    return _Rows(
        gains=observations.gains[query],
        bins=np.searchsorted(filled, observations.position),
        documents=observations.documents[query],
        clusters=np.unique(observations.clusters[query], return_inverse=True)[1],
        lengths=observations.subsets_and_lengths[query],
        count=len(filled),
    )


@dataclass(frozen=True, eq=False)
class _Strata:
    """Sums over the strata of a grouping."""

    rows: _Rows
    stratum: Integers
    """Stratum of each membership, numbered from 0 without gaps, shape (m,)."""
    counts: Floats
    """Memberships by stratum and bin, shape (S, B)."""
    information: Floats
    """A, shape (B, B)."""
    inverse: Floats
    """Its pseudoinverse."""
    rank: int
    squares: Floats
    """Sum of squared deviations from the stratum's mean, shape (S,)."""
    extra: float
    """Sum of squares of one pseudo-query of maximal variance, which keeps variances positive where all gains are equal."""

    @cached_property
    def sizes(self) -> Floats:
        """Memberships of each stratum, shape (S,)."""
        sizes: Floats = self.counts.sum(axis=1)
        return sizes

    @cached_property
    def pseudo(self) -> Floats:
        """Covariance of b that the pseudo-query adds, shape (B, B)."""
        return self.extra / max(float((self.sizes - 1).sum()), 1.0) * self.information

    def contributions(self, values: Floats) -> Floats:
        """Return what each cluster adds to b if the memberships have these values, shape (C, B).

        Values are gains, residuals, or those of a curve in the memberships' bins, shape (m,).
        """
        rows, stratum = self.rows, self.stratum
        centered = values - (np.bincount(stratum, weights=values) / self.sizes)[stratum]
        clusters = int(rows.clusters.max()) + 1
        sums = np.bincount(rows.clusters * rows.count + rows.bins, weights=centered, minlength=clusters * rows.count)
        contributions: Floats = sums.reshape(clusters, rows.count).astype(np.float64)
        pair, strata, starts = self._pairs
        if len(strata) > len(self.sizes):
            shares = np.bincount(pair, weights=centered) / self.sizes[strata]
            contributions -= np.add.reduceat(self.counts[strata] * shares[:, None], starts)
        return contributions

    @cached_property
    def _pairs(self) -> tuple[Integers, Integers, Integers]:
        """Pair of a cluster and a stratum of each membership; the stratum of each pair; the first pair of each cluster.

        There is one pair a stratum if strata are nested in clusters.
        """
        clusters, size = self.rows.clusters, len(self.sizes)
        pairs, pair = np.unique(clusters * size + self.stratum, return_inverse=True)
        return pair, pairs % size, np.searchsorted(pairs // size, np.arange(clusters.max() + 1))

    @cached_property
    def leverage(self) -> Floats:
        """Share of each cluster in the information on the effects, on average over their directions, shape (C,)."""
        rows, shares = self.rows, self.counts / self.sizes[:, None]
        crossed = shares @ self.inverse
        own = np.diag(self.inverse)[rows.bins] - 2 * crossed[self.stratum, rows.bins]
        own += (crossed * shares).sum(axis=1)[self.stratum]
        leverage: Floats = np.minimum(np.bincount(rows.clusters, weights=own) / max(self.rank, 1), MAX_LEVERAGE)
        return leverage

    def meat(self, weights: Floats) -> Floats:
        """Return the covariance of b, shape (B, B): C with equal weights, and more of it in bins with larger ones.

        A gain in bin p varies with v_s w_p; the sum of squares within strata that this expects is scaled to the observed one.
        The weights w are above 0, shape (B,).
        """
        sizes = self.sizes
        variances = self.squares / np.maximum(sizes - 1, 1)
        pairs = self.counts.T @ (self.counts * (variances / sizes)[:, None])
        centers = self.counts.T @ (self.counts * (variances * (self.counts @ weights) / sizes**2)[:, None])
        spread = np.diag(weights * (variances @ self.counts)) - weights[:, None] * pairs - pairs * weights + centers
        expected = float(weights @ ((variances * (1 - 1 / sizes)) @ self.counts))
        meat: Floats = spread * (self.squares.sum() / expected if expected else 1.0) + self.pseudo
        return meat


def _within(rows: _Rows, strata: Integers) -> _Strata:
    _, stratum = np.unique(strata, return_inverse=True)
    cells, shape = stratum * rows.count + rows.bins, (stratum.max() + 1, rows.count)
    counts = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
    sizes, totals = counts.sum(axis=1), np.bincount(stratum, weights=rows.gains)
    squares = np.maximum(np.bincount(stratum, weights=rows.gains**2) - totals**2 / sizes, 0)
    information = np.diag(counts.sum(axis=0)) - counts.T @ (counts / sizes[:, None])
    inverse, rank = pseudoinverse(information)
    # Absolute values: the gains may be differences between two models, in [-1, 1].
    level = (np.abs(rows.gains).sum() + 0.5) / (sizes.sum() + 1)
    return _Strata(rows, stratum, counts, information, inverse, rank, squares, level * (1 - level))


def pseudoinverse(matrix: Floats) -> tuple[Floats, int]:
    """Return the Moore-Penrose inverse of a symmetric positive semidefinite matrix, and its rank."""
    values, vectors = np.linalg.eigh(matrix)
    used = values > TOLERANCE * max(values.max(), TOLERANCE)
    inverse: Floats = (vectors[:, used] / values[used]) @ vectors[:, used].T
    return inverse, int(used.sum())


@dataclass(frozen=True, eq=False)
class ClusterSums:
    """Contributions of clusters to B estimates; their outer products sum to the covariance of the estimates."""

    rows: Floats
    """Contribution of each cluster, shape (C, B); with more than `MAX_CLUSTERS`, a root of the covariance, shape (B, B)."""
    summed: bool
    """Whether the rows are a root of the covariance instead of clusters."""

    @classmethod
    def from_clusters(cls, rows: Floats) -> ClusterSums:
        """Return the contributions of clusters, shape (C, B), summed up if there are many."""
        return cls(symmetric_root(rows.T @ rows), summed=True) if len(rows) > MAX_CLUSTERS else cls(rows, summed=False)

    def draw(self, draws: int) -> Floats:
        """Draw estimates of no effect, shape (draws, B): every cluster's contribution with a random sign.

        The wild cluster bootstrap with the effect restricted to 0 (Cameron, Gelbach & Miller 2008, Review of Economics and
        Statistics 90, 414-427). Sums over many clusters are normal.
        """
        if self.summed:
            return draw_normals(draws, len(self.rows)) @ self.rows
        drawn: Floats = (_draw_signs(draws)[:, : len(self.rows)] @ self.rows.astype(np.float32)).astype(np.float64)
        return drawn


@cache
def _draw_signs(draws: int) -> NDArray[np.float32]:
    """Return a sign of every cluster of two results, shape (draws, 2 * MAX_CLUSTERS)."""
    signs = np.random.default_rng(SEED).integers(0, 2, (draws, 2 * MAX_CLUSTERS), np.int8)
    return signs.astype(np.float32) * 2 - 1


@cache
def draw_normals(draws: int, columns: int) -> Floats:
    """Draw standard normal numbers, the same for the same shape (draws, columns)."""
    return np.random.default_rng(SEED).standard_normal((draws, columns))


def symmetric_root(matrix: Floats) -> Floats:
    """Return the symmetric root of a positive semidefinite matrix, shape (B, B).

    It is the only one that does not depend on which eigenvectors the linear algebra library returns.
    """
    values, vectors = np.linalg.eigh(matrix)
    root: Floats = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return root


def scale_to(sums: Floats, target: Floats) -> Floats:
    """Return the multiple of a target, shape (B, B), with the total variance of sums over clusters, shape (C, B)."""
    white, _ = _whiten(sums, target)
    scaled: Floats = float((white**2).sum()) / white.shape[1] * target
    return scaled


def shrink_covariance(sums: Floats, target: Floats) -> Floats:
    """Return the covariance of a sum over clusters, between the sum of outer products and a multiple of a target.

    With many clusters it is the cluster-robust covariance, with few about the multiple of the target that has the same total
    variance. The weight is that of Ledoit & Wolf (2004, Journal of Multivariate Analysis 88, 365-411), in coordinates in
    which the target is the identity.

    Args:
        sums: What each cluster adds to the sum, shape (C, B).
        target: Positive semidefinite, shape (B, B); the sums lie in its range.

    Returns:
        Shape (B, B).
    """
    white, back = _whiten(sums, target)
    robust, identity = white.T @ white, np.eye(white.shape[1])
    multiple = float(np.trace(robust)) / white.shape[1]
    distance = ((robust - multiple * identity) ** 2).sum()
    error = max(float((white**2).sum(axis=1) @ (white**2).sum(axis=1)) - (robust**2).sum() / len(sums), 0.0)
    weight = min(error / distance, 1.0) if distance > 0 else 1.0
    shrunk: Floats = back @ (weight * multiple * identity + (1 - weight) * robust) @ back.T
    return shrunk


def _whiten(sums: Floats, target: Floats) -> tuple[Floats, Floats]:
    """Return sums in coordinates in which the target is the identity, shape (C, rank), and the way back, shape (B, rank)."""
    values, vectors = np.linalg.eigh(target)
    used = values > TOLERANCE * values.max()
    scale = np.sqrt(values[used])
    return sums @ (vectors[:, used] / scale), vectors[:, used] * scale
