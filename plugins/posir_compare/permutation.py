"""Permutation tests of a difference in nDCG@10, and the correlation of two models' scores over queries."""

from __future__ import annotations

import numpy as np
from posir_significance.group_means import SEED, Floats, Integers
from posir_significance.permutation_null import TOLERANCE

from posir_compare.pairing import CommonResults, JointCounts
from posir_tasks.profile import NDCG_AT_10

#: All pairs of different rank columns (the smaller one first), and the difference in nDCG@10 between the two.
FIRST, SECOND = np.triu_indices(len(NDCG_AT_10), k=1)
STEPS: Floats = NDCG_AT_10[FIRST] - NDCG_AT_10[SECOND]


def paired_permutation(joint: Integers, draws: int, rng: np.random.Generator) -> Floats:
    """Return sums of differences in nDCG@10 after swapping each query's two ranks with probability 1/2.

    The paired permutation test (Good 2005, Permutation, Parametric and Bootstrap Tests of Hypotheses, chapter 3; for
    retrieval: Smucker, Allan & Carterette 2007, CIKM). How many of the queries of a cell with the same two rank columns are
    swapped is one binomial draw, so the time does not grow with the number of queries.

    Args:
        joint: Queries per group and rank columns under both models, shape (groups, 12, 12).
        draws: Number of permutations.
        rng: Random generator.

    Returns:
        Shape (draws, groups).
    """
    swappable = joint[:, FIRST, SECOND] + joint[:, SECOND, FIRST]
    sums = np.zeros((draws, len(joint)))
    for group, queries in enumerate(swappable):
        some = np.flatnonzero((queries > 0) & (STEPS > 0))
        sums[:, group] = (2 * rng.binomial(queries[some], 0.5, size=(draws, len(some))) - queries[some]) @ STEPS[some]
    return sums


def unpaired_permutation(a: Integers, b: Integers, draws: int, rng: np.random.Generator) -> Floats:
    """Return sums of differences in nDCG@10, b - a, after permuting the ranks of both models within each group.

    The two-sample permutation test: how often a gets each rank is multivariate hypergeometric.

    Args:
        a: Queries of a per group and rank column, shape (groups, 12).
        b: Those of b; as many in each group.
        draws: Number of permutations.
        rng: Random generator.

    Returns:
        Shape (draws, groups).
    """
    sums = np.zeros((draws, len(a)))
    for group, (pooled, queries) in enumerate(zip(a + b, a.sum(axis=1), strict=True)):
        ranks = np.flatnonzero(pooled)
        to_a = rng.multivariate_hypergeometric(pooled[ranks], queries, size=draws, method="marginals")
        sums[:, group] = (pooled[ranks] - 2 * to_a) @ NDCG_AT_10[ranks]
    return sums


def permute_differences(common: CommonResults, draws: int) -> dict[str, Floats]:
    """Return the null distribution of differences in nDCG@10: of all queries, and of each length bucket's mean over its bins.

    For `all`, a query that is in two bins is permuted once.

    Args:
        common: The two models' results.
        draws: Number of permutations.

    Returns:
        By `all` and the name of the length bucket; shape (draws,) each.
    """
    rng = np.random.default_rng([SEED, draws])
    a, b, joint = common.a, common.b, common.joint
    lengths, bins, _ = a.counts.shape
    cells = _permute(joint.cells if joint else None, a.counts, b.counts, draws, rng).reshape(draws, lengths, bins)
    sums = cells.sum(axis=(1, 2))
    # Where bins overlap, cells count some queries twice.
    if not np.array_equal(a.counts.sum(axis=1), a.totals):
        sums = _permute(joint.totals if joint else None, a.totals, b.totals, draws, rng).sum(axis=1)
    differences = {"all": sums / max(a.queries, 1)}
    # A scheme without length buckets has one bucket that is named `all`, too.
    if lengths > 1:
        for index, name in enumerate(a.lengths):
            queries = a.counts[index].sum(axis=1)
            filled = queries > 0
            differences[name] = (cells[:, index, filled] / queries[filled]).sum(axis=1) / max(filled.sum(), 1)
    return differences


def _permute(joint: Integers | None, a: Integers, b: Integers, draws: int, rng: np.random.Generator) -> Floats:
    """Return permuted sums over all groups, paired if the joint counts are known; shape (draws, groups)."""
    columns = len(NDCG_AT_10)
    if joint is not None:
        return paired_permutation(joint.reshape(-1, columns, columns), draws, rng)
    return unpaired_permutation(a.reshape(-1, columns), b.reshape(-1, columns), draws, rng)


def permutation_p_value(observed: float, null: Floats) -> float:
    """Return the two-sided p-value of a difference, the observed one counted among the permutations.

    (1 + #{|null| >= |observed|}) / (draws + 1), so it is never 0 (Phipson & Smyth 2010, arXiv 1603.05766).

    Args:
        observed: Difference b - a.
        null: Differences after permutation, shape (draws,).
    """
    return float((1 + (np.abs(null) >= abs(observed) - TOLERANCE).sum()) / (len(null) + 1))


def pooled_correlation(joint: Integers) -> float:
    """Return the within-group correlation of the models' nDCG@10 over queries, pooled over the groups; in [-1, 1].

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


def bin_correlation(joint: JointCounts | None, length: int | None) -> float:
    """Return the correlation within the position bins of a length bucket, or of all lengths together; 0 if unpaired."""
    if joint is None:
        return 0.0
    return pooled_correlation(joint.cells.sum(axis=0) if length is None else joint.cells[length])
