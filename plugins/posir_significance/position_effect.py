"""The effect of position on nDCG@10, with the document held fixed where documents have several questions.

Questions of one document share its difficulty. If harder documents have their evidence at other positions, a comparison over
all questions mistakes difficulty for position. Within a document both cancel: the effect is estimated from differences
between the questions of one document (fixed effects: Wooldridge 2010, Econometric Analysis of Cross Section and Panel Data,
chapter 10). Where documents have one question each, the length bucket is held fixed instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from posir_significance.observations import Floats, Integers, Observations

#: Eigenvalues below this share of the largest are rounding errors.
TOLERANCE = 1e-9
#: The document is held fixed if at least this share of the queries are in documents with several of them.
SHARED_QUERIES = 0.5


class Stratum(StrEnum):
    """What is held fixed when the effect of position is estimated."""

    DOCUMENT = "document"
    LENGTH = "length"


@dataclass(frozen=True, eq=False)
class PositionEffect:
    """Scores of the B non-empty position bins with the stratum held fixed, and how they vary by chance."""

    stratum: Stratum
    filled: Integers
    """The non-empty bins among all of them, shape (B,)."""
    weights: Floats
    """Share of the memberships in each bin, shape (B,)."""
    level: float
    """Mean nDCG@10 over memberships, in [0, 1], or mean difference in [-1, 1]."""
    effects: Floats
    """Difference of each bin from the level; their weighted mean is 0. Shape (B,)."""
    null_covariance: Floats
    """Covariance of the effects under permutation of the gains within strata, shape (B, B)."""
    covariance: Floats
    """Covariance of the estimated effects, shape (B, B)."""

    @property
    def scores(self) -> Floats:
        """nDCG@10 of each bin with the stratum held fixed, shape (B,); may leave [0, 1]."""
        return self.level + self.effects


def estimate_effect(observations: Observations) -> PositionEffect | None:
    """Estimate the effect of position; None unless two bins that share a stratum have queries.

    With n_s and b_s the counts and sums of gains of stratum s by bin, N_s and S_s its totals: A = sum diag(n_s) - n_s n_s'/N_s,
    b = sum b_s - n_s S_s/N_s, effects A+ b. Under permutation within strata their covariance is exactly A+ C A+ with
    C = sum v_s (diag(n_s) - n_s n_s'/N_s), v_s the variance of gains in the stratum.

    Args:
        observations: Gains of a model in [0, 1], or differences of two models' gains in [-1, 1].
    """
    filled = np.flatnonzero(np.bincount(observations.position, minlength=observations.bins))
    if len(filled) < 2:
        return None
    rows = _list_rows(observations, filled)
    by_document = _within(rows, rows.documents)
    sizes = np.bincount(rows.documents)
    if by_document.rank == len(filled) - 1 and (sizes[rows.documents] > 1).mean() >= SHARED_QUERIES:
        return _effect(Stratum.DOCUMENT, filled, rows, by_document)
    by_length = _within(rows, rows.lengths)
    return _effect(Stratum.LENGTH, filled, rows, by_length) if by_length.rank else None


def estimate_covariance(
    observations: Observations, effect: PositionEffect, variances: Floats, shapes: Sequence[Floats]
) -> Floats:
    """Return the covariance of estimated effects, for new documents, where position does have an effect; shape (B, B).

    Two things differ from the null. Gains near 0 or 1 vary less, so they vary less in some bins than in others. And position
    matters more in some documents than in others: as in a regression with random slopes, an effect x adds
    t A+ (sum A_d x x' A_d) A+ over documents d, where A_d is the document's part of A and t the variance of slopes. It is
    chosen so that x'A Cov A x is the sum of squared x'A_d r over documents (cluster-robust: Arellano 1987, Oxford Bulletin of
    Economics and Statistics 49, 431-434), r the residuals, or 0.

    Args:
        observations: What the effect was estimated from.
        effect: Of the B non-empty bins.
        variances: Of the gains of each, up to a constant, above 0, shape (B,).
        shapes: Expected effects whose size may differ between documents, shape (B,) each.
    """
    rows = _list_rows(observations, effect.filled)
    strata = _within(rows, rows.documents if effect.stratum is Stratum.DOCUMENT else rows.lengths)
    meat = strata.residual_share() * _meat(effect.stratum, rows, strata, variances)
    if effect.stratum is Stratum.DOCUMENT:
        for shape in shapes:
            meat += _random_slopes(rows, strata, shape, meat)
    covariance: Floats = strata.inverse @ meat @ strata.inverse
    return covariance


def permute_gains(observations: Observations, effect: PositionEffect, draws: int, rng: np.random.Generator) -> Floats | None:
    """Return effects after random permutations of the gains within strata, shape (draws, B).

    None where the gains are not exchangeable within strata, or queries are in two bins: if the length is held fixed, and
    some documents have several queries.
    """
    strata = observations.documents if effect.stratum is Stratum.DOCUMENT else observations.lengths
    shared = effect.stratum is Stratum.LENGTH and np.bincount(observations.documents).max() > 1
    if shared or len(observations.query) != len(observations.gains):
        return None
    rows = _list_rows(observations, effect.filled)
    found = _within(rows, strata)
    _, stratum = np.unique(strata, return_inverse=True)
    sizes = np.bincount(stratum)
    effects = np.zeros((draws, rows.count))
    # A stratum with equal gains contributes nothing.
    varied = np.flatnonzero(found.squares > TOLERANCE)
    order = np.argsort(stratum, kind="stable")
    starts = np.cumsum(sizes) - sizes
    for size in np.unique(sizes[varied]):
        members = order[starts[varied[sizes[varied] == size]][:, None] + np.arange(size)]
        shape = (draws, *members.shape)
        gains = rng.permuted(np.broadcast_to(rows.gains[members], shape), axis=2).reshape(draws, -1)
        design = np.eye(rows.count)[rows.bins[members]]
        centred = (design - design.mean(axis=1, keepdims=True)).reshape(-1, rows.count)
        effects += gains @ (centred @ found.inverse)
    return effects - (effects @ effect.weights)[:, None]


def _random_slopes(rows: _Rows, strata: _Strata, shape: Floats, meat: Floats) -> Floats:
    """Return what the variance between documents in the size of an effect adds to the covariance of b, shape (B, B)."""
    _, document = np.unique(rows.documents, return_inverse=True)
    sizes = strata.counts.sum(axis=1)
    centred = shape[rows.bins] - (strata.counts @ shape / sizes)[document]
    residuals = rows.gains - strata.effects[rows.bins]
    residuals -= (np.bincount(document, weights=residuals) / sizes)[document]
    free = (sizes - 1).sum()
    squares = (np.bincount(document, weights=centred * residuals) ** 2).sum() * free / max(free - strata.rank, 1.0)
    parts = strata.counts * (shape - (strata.counts @ shape / sizes)[:, None])
    amounts = parts @ shape
    excess = max(float(squares - shape @ meat @ shape), 0.0) / max(float(amounts @ amounts), TOLERANCE**2)
    slopes: Floats = excess * (parts.T @ parts)
    return slopes


@dataclass(frozen=True, eq=False)
class _Rows:
    """Memberships in one row each, shape (m,); bins count the B non-empty ones."""

    gains: Floats
    bins: Integers
    documents: Integers
    lengths: Integers
    count: int


def _list_rows(observations: Observations, filled: Integers) -> _Rows:
    query = observations.query
    return _Rows(
        gains=observations.gains[query],
        bins=np.searchsorted(filled, observations.position),
        documents=observations.documents[query],
        lengths=observations.lengths[query],
        count=len(filled),
    )


@dataclass(frozen=True, eq=False)
class _Strata:
    """Sums over the strata of a grouping."""

    counts: Floats
    """Memberships by stratum and bin, shape (S, B)."""
    information: Floats
    """A, shape (B, B)."""
    inverse: Floats
    """Its pseudoinverse."""
    rank: int
    effects: Floats
    """A+ b, shape (B,)."""
    explained: float
    """b' A+ b: the part of the sum of squares within strata that the effects explain."""
    squares: Floats
    """Sum of squared deviations from the stratum's mean, shape (S,)."""
    extra: float
    """Sum of squares of one pseudo-query of maximal variance, which keeps variances positive where all gains are equal."""

    def meat(self, weights: Floats) -> Floats:
        """Return the covariance of b, shape (B, B): C with equal weights, and more of it in bins with larger ones.

        A gain in bin p varies with v_s w_p; the sum of squares within strata that this expects is scaled to the observed one.

        Args:
            weights: w, above 0, shape (B,).
        """
        sizes = self.counts.sum(axis=1)
        variances = self.squares / np.maximum(sizes - 1, 1)
        pairs = self.counts.T @ (self.counts * (variances / sizes)[:, None])
        centres = self.counts.T @ (self.counts * (variances * (self.counts @ weights) / sizes**2)[:, None])
        spread = np.diag(weights * (variances @ self.counts)) - weights[:, None] * pairs - pairs * weights + centres
        expected = float(weights @ ((variances * (1 - 1 / sizes)) @ self.counts))
        pseudo = self.extra / max((sizes - 1).sum(), 1.0) * self.information
        meat: Floats = spread * (self.squares.sum() / expected if expected else 1.0) + pseudo
        return meat

    def residual_share(self) -> float:
        """Return the residual variance as a share of the variance under the null, corrected for degrees of freedom."""
        total, free = self.squares.sum() + self.extra, (self.counts.sum(axis=1) - 1).sum()
        return float((total - self.explained) / total * free / max(free - self.rank, 1.0))


def _within(rows: _Rows, strata: Integers) -> _Strata:
    _, stratum = np.unique(strata, return_inverse=True)
    cells, shape = stratum * rows.count + rows.bins, (stratum.max() + 1, rows.count)
    counts = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
    sums = np.bincount(cells, weights=rows.gains, minlength=shape[0] * shape[1]).reshape(shape)
    sizes, totals = counts.sum(axis=1), sums.sum(axis=1)
    squares = np.maximum(np.bincount(stratum, weights=rows.gains**2) - totals**2 / sizes, 0)
    information = np.diag(counts.sum(axis=0)) - counts.T @ (counts / sizes[:, None])
    deviations = sums.sum(axis=0) - counts.T @ (totals / sizes)
    inverse, rank = pseudoinverse(information)
    effects = inverse @ deviations
    # Absolute values: the gains may be differences between two models, in [-1, 1].
    level = (np.abs(rows.gains).sum() + 0.5) / (sizes.sum() + 1)
    return _Strata(counts, information, inverse, rank, effects, float(deviations @ effects), squares, level * (1 - level))


def _shared_variance(rows: _Rows, strata: _Strata) -> Floats:
    """Return what the covariance within documents adds to the covariance of b when lengths are held fixed, shape (B, B).

    The covariance of two gains of one document is estimated from residuals r and their sums R by document,
    (sum R^2 - sum r^2) / sum(N^2 - N), at least 0.
    """
    sizes = np.bincount(rows.documents).astype(np.float64)
    pairs = (sizes**2 - sizes).sum()
    if pairs == 0:
        return np.zeros_like(strata.information)
    _, length = np.unique(rows.lengths, return_inverse=True)
    shares = strata.counts / strata.counts.sum(axis=1, keepdims=True)
    residuals = rows.gains - strata.effects[rows.bins]
    residuals -= (np.bincount(length, weights=residuals) / np.bincount(length))[length]
    sums = np.bincount(rows.documents, weights=residuals)
    covariance = max(((sums**2).sum() - (residuals**2).sum()) / pairs, 0.0)
    design = np.zeros((len(sizes), rows.count))
    np.add.at(design, (rows.documents, rows.bins), 1.0)
    bucket = np.zeros(len(sizes), np.int64)
    bucket[rows.documents] = length
    design -= sizes[:, None] * shares[bucket]
    # The diagonal of every document's block is part of the variance of single gains already.
    shared: Floats = covariance * (design.T @ design - strata.information)
    return shared


def _meat(stratum: Stratum, rows: _Rows, strata: _Strata, variances: Floats) -> Floats:
    """Return the covariance of b, shape (B, B)."""
    meat = strata.meat(variances)
    return meat + _shared_variance(rows, strata) if stratum is Stratum.LENGTH else meat


def _effect(stratum: Stratum, filled: Integers, rows: _Rows, strata: _Strata) -> PositionEffect:
    totals = strata.counts.sum(axis=0)
    weights = totals / totals.sum()
    null = strata.inverse @ _meat(stratum, rows, strata, np.ones(len(filled))) @ strata.inverse
    return PositionEffect(
        stratum=stratum,
        filled=filled,
        weights=weights,
        level=float(rows.gains.mean()),
        effects=strata.effects - weights @ strata.effects,
        null_covariance=null,
        covariance=strata.residual_share() * null,
    )


def pseudoinverse(matrix: Floats) -> tuple[Floats, int]:
    """Return the Moore-Penrose inverse of a symmetric positive semidefinite matrix, and its rank."""
    values, vectors = np.linalg.eigh(matrix)
    used = values > TOLERANCE * max(values.max(), TOLERANCE)
    inverse: Floats = (vectors[:, used] / values[used]) @ vectors[:, used].T
    return inverse, int(used.sum())
