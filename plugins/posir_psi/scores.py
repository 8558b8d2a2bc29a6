"""PSI as a function of scores, and the declared scores: the number of queries, and PSI as papers
print it.

Sources: PSI, Zeng et al. 2025 (arXiv 2505.13950v5); bins and length buckets, Zeng et al. 2026
(arXiv 2601.08363v1).
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posir_tasks.values.profile import NDCG_AT_10, mean_gain
from posir_tasks.values.scores import Better, Score, Unit


def compute_psi(scores: ArrayLike) -> NDArray[np.float64]:
    """Return the Position Sensitivity Index, 1 - worst bucket / best bucket.

    Read it next to the mean score: a model that is equally bad everywhere has PSI 0.

    Args:
        scores: Mean score of each bucket in [0, 1], NaN for an empty bucket, shape (..., buckets).

    Returns:
        In [0, 1], shape (...). NaN where all buckets are empty or the best of them scores 0.
    """
    values = np.asarray(scores, np.float64)
    best = np.max(values, axis=-1, initial=0.0, where=~np.isnan(values))
    worst = np.min(values, axis=-1, initial=np.inf, where=~np.isnan(values))
    defined = best > 0
    result: NDArray[np.float64] = np.where(
        defined, 1 - np.where(defined, worst, 0.0) / np.where(defined, best, 1.0), np.nan
    )
    return result


def none_if_nan(score: float) -> float | None:
    """Return a score, or None where it is undefined: JSON has no NaN, and 'not scored' is not 0."""
    return None if math.isnan(score) else float(score)


SCORES = (
    Score(
        "queries",
        "Queries",
        "Number of queries.",
        unit=Unit.COUNT,
        compute=lambda group: group.queries,
        by_position=True,
    ),
    Score(
        "psi_as_published",
        "PSI (as published)",
        "The observed 1 - worst / best position bin, to which chance adds.",
        unit=Unit.INDEX,
        better=Better.LOWER,
        citation="Zeng et al. 2025, arXiv 2505.13950v5",
        compute=lambda group: none_if_nan(float(compute_psi(mean_gain(group.counts, NDCG_AT_10)))),
    ),
)
