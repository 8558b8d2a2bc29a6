"""The test of a difference in nDCG@10: what it is when the two models exchange their ranks at random."""

from __future__ import annotations

import numpy as np

from posir_compare.pairing import Joint, Match
from posir_significance.group_means import SEED, Floats, Integers
from posir_significance.permutation_null import TOLERANCE
from posir_tasks.profile import NDCG_AT_10

#: By how much nDCG@10 of a query differs between the models, for each two rank columns (the smaller one first).
FIRST, SECOND = np.triu_indices(len(NDCG_AT_10), k=1)
STEPS: Floats = NDCG_AT_10[FIRST] - NDCG_AT_10[SECOND]


def swapped(joint: Integers, draws: int, rng: np.random.Generator) -> Floats:
    """Return sums of differences in nDCG@10 after each query's two ranks were swapped, or not, by the toss of a coin.

    The paired permutation test (Good 2005, Permutation, Parametric and Bootstrap Tests of Hypotheses, chapter 3; for
    retrieval: Smucker, Allan & Carterette 2007, CIKM). Queries of one cell that differ by the same two rank columns are
    tossed together, so that it takes no longer with more queries.

    Args:
        joint: Queries per group and rank columns under both models, shape (groups, 12, 12).
        draws: Number of draws.
        rng: Source of randomness.

    Returns:
        Shape (draws, groups).
    """
    tossed = joint[:, FIRST, SECOND] + joint[:, SECOND, FIRST]
    sums = np.zeros((draws, len(joint)))
    for group, queries in enumerate(tossed):
        some = np.flatnonzero((queries > 0) & (STEPS > 0))
        sums[:, group] = (2 * rng.binomial(queries[some], 0.5, size=(draws, len(some))) - queries[some]) @ STEPS[some]
    return sums


def dealt(a: Integers, b: Integers, draws: int, rng: np.random.Generator) -> Floats:
    """Return sums of differences in nDCG@10, b - a, after the ranks of both models were mixed and dealt out to them again.

    The unpaired permutation test, within groups: how many of each rank go to a is multivariate hypergeometric.

    Args:
        a: Queries of a per group and rank column, shape (groups, 12).
        b: Those of b; as many in each group.
        draws: Number of draws.
        rng: Source of randomness.

    Returns:
        Shape (draws, groups).
    """
    sums = np.zeros((draws, len(a)))
    for group, (mixed, queries) in enumerate(zip(a + b, a.sum(axis=1), strict=True)):
        ranks = np.flatnonzero(mixed)
        to_a = rng.multivariate_hypergeometric(mixed[ranks], queries, size=draws, method="marginals")
        sums[:, group] = (mixed[ranks] - 2 * to_a) @ NDCG_AT_10[ranks]
    return sums


def exchanged_differences(match: Match, draws: int) -> dict[str, Floats]:
    """Return differences in nDCG@10 after exchange: of all queries, and of each length bucket's mean over its bins.

    A query that lies in two bins is exchanged once for `all`.

    Args:
        match: The two models' results.
        draws: Number of draws.

    Returns:
        By `all` and the name of the length bucket; shape (draws,) each.
    """
    rng = np.random.default_rng([SEED, draws])
    lengths, bins, _ = match.a.counts.shape
    shared = not np.array_equal(match.a.counts.sum(axis=1), match.a.totals)
    cells = _exchanged(match, draws, rng).reshape(draws, lengths, bins)
    sums = _exchanged_totals(match, draws, rng) if shared else cells.sum(axis=(1, 2))
    differences = {"all": sums / max(match.a.queries, 1)}
    # The one bucket of a scheme without length buckets is called `all`, too.
    if lengths > 1:
        for index, name in enumerate(match.a.lengths):
            queries = match.a.counts[index].sum(axis=1)
            filled = queries > 0
            differences[name] = (cells[:, index, filled] / queries[filled]).sum(axis=1) / max(filled.sum(), 1)
    return differences


def _exchanged(match: Match, draws: int, rng: np.random.Generator) -> Floats:
    """Return exchanged sums of every cell, shape (draws, L * P)."""
    if match.joint:
        return swapped(match.joint.cells.reshape(-1, *match.joint.cells.shape[2:]), draws, rng)
    a, b = (one.counts.reshape(-1, len(NDCG_AT_10)) for one in (match.a, match.b))
    return dealt(a, b, draws, rng)


def _exchanged_totals(match: Match, draws: int, rng: np.random.Generator) -> Floats:
    """Return exchanged sums over all distinct queries, shape (draws,)."""
    sums = swapped(match.joint.totals, draws, rng) if match.joint else dealt(match.a.totals, match.b.totals, draws, rng)
    totals: Floats = sums.sum(axis=1)
    return totals


def exchange_p_value(observed: float, exchanged: Floats) -> float:
    """Return the two-sided p-value: the share of exchanges with a difference at least as large, the observed one included.

    (1 + #{|exchanged| >= |observed|}) / (draws + 1), and so never 0 (Phipson & Smyth 2010, arXiv 1603.05766).

    Args:
        observed: Difference b - a.
        exchanged: Differences after exchange, shape (draws,).
    """
    return float((1 + (np.abs(exchanged) >= abs(observed) - TOLERANCE).sum()) / (len(exchanged) + 1))


def correlation(joint: Integers) -> float:
    """Return the correlation of the models' nDCG@10 over the queries of a group, pooled over the groups; in [-1, 1].

    0 where all queries of each group score the same under one of the models.

    Args:
        joint: Queries per group and rank columns under both models, shape (groups, 12, 12).
    """
    queries = np.maximum(joint.sum(axis=(1, 2)), 1)
    ranks = joint.sum(axis=2), joint.sum(axis=1)
    sums = [one @ NDCG_AT_10 for one in ranks]
    squares = [(one @ NDCG_AT_10**2 - total**2 / queries).sum() for one, total in zip(ranks, sums, strict=True)]
    products = (NDCG_AT_10 @ joint @ NDCG_AT_10 - sums[0] * sums[1] / queries).sum()
    if min(squares) < TOLERANCE:
        return 0.0
    return float(np.clip(products / np.sqrt(squares[0] * squares[1]), -1, 1))


def match_correlation(joint: Joint | None, length: int | None) -> float:
    """Return the correlation over queries of one position bin within a length bucket, or of all lengths; 0 if not paired."""
    if joint is None:
        return 0.0
    return correlation(joint.cells.sum(axis=0) if length is None else joint.cells[length])
