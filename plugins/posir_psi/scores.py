"""The scores `queries` and `psi_as_published`.

Sources: Zeng et al. 2025 (arXiv 2505.13950v5) for PSI; Zeng et al. 2026 (arXiv 2601.08363v1) for
bins and length buckets.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posir_tasks.values.profile import NDCG_AT_10, average_gains
from posir_tasks.values.scores import Direction, Score, Unit


def compute_psi(scores: ArrayLike) -> NDArray[np.float64]:
    """Compute the Position Sensitivity Index, 1 - worst bucket / best bucket.

    Args:
        scores: Mean score of each bucket in [0, 1], shape (..., buckets). Empty buckets are NaN.

    Returns:
        In [0, 1], shape (...). NaN if all buckets are empty or the best bucket scores 0.
    """
    values = np.asarray(scores, np.float64)
    best = np.fmax.reduce(values, axis=-1, initial=0.0)
    worst = np.fmin.reduce(values, axis=-1, initial=np.inf)
    psi: NDArray[np.float64] = 1 - np.divide(
        worst, best, out=np.full_like(best, np.nan), where=best > 0
    )
    return psi


def replace_nan(score: float) -> float | None:
    """Replace NaN, which JSON cannot represent, with None."""
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
        "Observed 1 - worst / best position bin, inflated by chance.",
        unit=Unit.INDEX,
        better=Direction.LOWER,
        citation="Zeng et al. 2025, arXiv 2505.13950v5",
        compute=lambda group: replace_nan(
            float(compute_psi(average_gains(group.counts, NDCG_AT_10)))
        ),
    ),
)
