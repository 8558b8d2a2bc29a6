"""Simulate the error rates of comparisons of two equal systems with judgments.

The logarithm of a rank is the sum of the difficulties of cluster, query and system. Both systems
have the same distribution, so all changes are due to chance.

Usage: OMP_NUM_THREADS=1 python benchmarks/simulate_judgments.py [DRAWS]
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from posir_significance.changes import compare_judged
from posir_significance.findings import JUDGED_METRICS, ChangeRow, ChangeState
from posir_tasks.values.estimates import Difference
from posir_tasks.values.judgments import METRICS, JudgedScores
from posir_tasks.values.means import estimate_mean

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
#: Sizes of clusters by name of the setting.
SETTINGS = {
    "50 topics": np.ones(50, np.int64),
    "300 topics": np.ones(300, np.int64),
    "100 clusters of 3": np.full(100, 3),
    "40 clusters of 15": np.full(40, 15),
    "60 clusters of 1 to 20": np.rint(np.geomspace(1, 20, 60)).astype(np.int64),
}
RELEVANT = (1, 4)
DECIDED = (ChangeState.BETTER, ChangeState.WORSE)


def draw_difficulty(sizes: Integers, rng: np.random.Generator) -> Floats:
    """Draw the difficulty of each query. Part of it is shared within clusters."""
    shared: Floats = np.repeat(rng.normal(size=len(sizes)), sizes)
    return shared + rng.normal(size=int(sizes.sum()))


def draw_ranks(difficulty: Floats, relevant: int, rng: np.random.Generator) -> Integers:
    """Draw the sorted ranks of each query's relevant documents, shape (queries, relevant)."""
    system = rng.normal(size=len(difficulty))
    noise = rng.normal(size=(len(difficulty), relevant))
    logs = 1.5 + (difficulty + system)[:, None] + noise
    ranks = np.sort(np.maximum(1, np.floor(np.exp(logs))), axis=1).astype(np.int64)
    # Two documents cannot share a rank.
    for column in range(1, relevant):
        ranks[:, column] = np.maximum(ranks[:, column], ranks[:, column - 1] + 1)
    return ranks


def score_queries(ranks: Integers) -> dict[str, Floats]:
    """Compute the metrics of each query from their definitions."""
    relevant = ranks.shape[1]
    ideal = (1 / np.log2(np.arange(relevant) + 2)).sum()
    gains = np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0).sum(axis=1) / ideal
    precisions = np.where(ranks <= 100, np.arange(1, relevant + 1) / ranks, 0)
    return {
        "ndcg_at_10": gains,
        "mrr_at_10": np.where(ranks[:, 0] <= 10, 1 / ranks[:, 0], 0.0),
        "recall_at_10": (ranks <= 10).mean(axis=1),
        "recall_at_100": (ranks <= 100).mean(axis=1),
        "map_at_100": precisions.sum(axis=1) / relevant,
    }


def find_true_means(relevant: int) -> dict[str, float]:
    """Compute the mean of each metric in a large population."""
    rng = np.random.default_rng(5)
    sizes = np.ones(2_000_000, np.int64)
    scores = score_queries(draw_ranks(draw_difficulty(sizes, rng), relevant, rng))
    return {metric: float(values.mean()) for metric, values in scores.items()}


def simulate(sizes: Integers, relevant: int, draws: int) -> tuple[float, Floats, Floats]:
    """Simulate comparisons.

    Returns:
        The share of draws in which any metric is better or worse, and by metric the share of
        p-values below 0.05 and the share of intervals that contain the true mean.
    """
    rng = np.random.default_rng(6)
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    names = {str(row): str(cluster) for row, cluster in enumerate(clusters)}
    means = find_true_means(relevant)
    decided = 0
    significant = np.zeros(len(METRICS))
    coverage = np.zeros(len(METRICS))
    for _ in range(draws):
        difficulty = draw_difficulty(sizes, rng)
        a = score_queries(draw_ranks(difficulty, relevant, rng))
        b = score_queries(draw_ranks(difficulty, relevant, rng))
        changes = compare_judged(sum_scores(a, names), sum_scores(b, names))
        decided += any(changes[metric].state in DECIDED for metric in JUDGED_METRICS)
        significant += [read_p_value(changes[metric]) < 0.05 for metric in JUDGED_METRICS]
        for column, name in enumerate(METRICS):
            estimate = estimate_mean(a[name], clusters)
            assert estimate is not None
            assert estimate.interval is not None
            start, end = estimate.interval
            coverage[column] += start <= means[name] <= end
    return decided / draws, significant / draws, coverage / draws


def sum_scores(scores: dict[str, Floats], clusters: dict[str, str]) -> JudgedScores:
    """Sum the scores of queries by cluster."""
    rows = {name: scores[name].tolist() for name in METRICS}
    return JudgedScores.from_queries(rows, clusters, "document", "data")


def read_p_value(change: ChangeRow) -> float:
    """Return the p-value of a change."""
    assert isinstance(change.estimate, Difference)
    assert change.estimate.p_value is not None
    return change.estimate.p_value


def main() -> None:
    """Print a row per setting and number of relevant documents."""
    draws = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(f"{'clusters':24}relevant  p < 0.05      any of five  coverage of a mean")
    for name, sizes in SETTINGS.items():
        for relevant in RELEVANT:
            decided, significant, coverage = simulate(sizes, relevant, draws)
            print(
                f"{name:24}{relevant:8}  {significant.min():.3f}, {significant.max():.3f}  "
                f"{decided:11.3f}  {coverage.min():.3f}, {coverage.max():.3f}"
            )


if __name__ == "__main__":
    main()
