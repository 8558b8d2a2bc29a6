"""Test published differences in nDCG@10 and PSI between models, for which only means and counts are
published.

Usage: python benchmarks/published_differences.py

For each task, all pairs of models are tested without pairing questions, with Holm's correction over
the pairs. Assumptions: the variance of a question's nDCG@10 is 0.8 of a Bernoulli trial's (0.74 to
0.83 in simulated ranks); design effects are 1 (independent questions), 2 (JaQuAD) and 8 (COVID-QA);
models are not correlated over questions, which is conservative for nDCG@10. An average over PosIR's
languages has as many questions as one language, since questions are translations. For PSI, PosIR's
bins have equal numbers of questions; the best and the worst bin are centered on the mean and give
the published PSI.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
from scipy.special import ndtr

from posir_published.rows import (
    BUCKET_QUERIES,
    PublishedRow,
    list_published_rows,
    list_published_tasks,
)
from posir_significance.api import DISPERSION
from posir_significance.correction import correct_by_holm
from posir_tasks.values.means import ALPHA

LANGUAGE, BINS = 42_000, 20
DESIGN_EFFECTS = (1, 2, 8)


def compute_ndcg_variance(row: PublishedRow) -> float:
    """Compute the variance of nDCG@10 with independent questions."""
    queries = LANGUAGE if row.task.startswith("PosIR") else sum(BUCKET_QUERIES[row.task])
    return DISPERSION * row.ndcg_at_10 * (1 - row.ndcg_at_10) / queries


def compute_psi_variance(row: PublishedRow) -> float:
    """Compute the variance of 1 - a / b (delta method) for the worst bin a and the best bin b,
    which are centered on the mean.
    """
    buckets = BUCKET_QUERIES.get(row.task, (LANGUAGE // BINS,))
    ratio, queries = 1 - row.psi_as_published, float(np.mean(buckets))
    best = min(2 * row.ndcg_at_10 / (1 + ratio), 0.99)
    worst = best * ratio
    a, b = (DISPERSION * score * (1 - score) / queries for score in (worst, best))
    return a / best**2 + b * worst**2 / best**4


def find_ties(
    rows: Sequence[PublishedRow],
    score: Callable[[PublishedRow], float],
    variance: Callable[[PublishedRow], float],
    effect: int,
) -> list[str]:
    """Find the pairs of models without a significant difference, given a design effect."""
    pairs = list(combinations(rows, 2))
    z = [abs(score(a) - score(b)) / (effect * (variance(a) + variance(b))) ** 0.5 for a, b in pairs]
    corrected = correct_by_holm([float(2 * ndtr(-value)) for value in z])
    return [
        f"{a.model} = {b.model}"
        for (a, b), p_value in zip(pairs, corrected, strict=True)
        if p_value >= ALPHA
    ]


def main() -> None:
    """Print the number of pairs without a significant difference, and name them for averages."""
    print(
        "| task | pairs | "
        f"{' | '.join(f'{name}, deff {effect}' for name in ('nDCG@10', 'PSI') for effect in DESIGN_EFFECTS)} "  # noqa: E501
        "|"
    )
    print(f"|{' --- |' * (2 + 2 * len(DESIGN_EFFECTS))}")
    for task in list_published_tasks():
        rows = [row for row in list_published_rows(task) if row.length == "all"]
        ties = [
            find_ties(rows, lambda row: row.ndcg_at_10, compute_ndcg_variance, effect)
            for effect in DESIGN_EFFECTS
        ]
        ties += [
            find_ties(rows, lambda row: row.psi_as_published, compute_psi_variance, effect)
            for effect in DESIGN_EFFECTS
        ]
        print(
            f"| {task} | {len(rows) * (len(rows) - 1) // 2} | "
            f"{' | '.join(str(len(tie)) for tie in ties)} |"
        )
        if task in ("PosIR", "SQuAD-PosQ", "FineWeb-PosQ"):
            print(f"  nDCG@10, deff 2: {'; '.join(ties[1])}\n  PSI, deff 2: {'; '.join(ties[4])}")


if __name__ == "__main__":
    main()
