"""`posir.psi`."""

from collections.abc import Iterable

import numpy as np

from posir_psi import scores as psi_scores
from posir_tasks.base.errors import PosirError


def psi(scores: Iterable[float | None]) -> float:
    """Compute the published Position Sensitivity Index, 1 - worst bucket / best bucket.

    Source: Zeng et al. 2025 (PosQ, arXiv 2505.13950). Read PSI together with the mean score: a
    model that is equally bad everywhere has a PSI of 0. Chance alone makes PSI positive. Results
    from `posir.read_results` contain the controlled PSI with its interval.

    Args:
        scores: Mean score of each position bucket in [0, 1], in any order. Empty buckets are None
            or NaN.

    Returns:
        The PSI in [0, 1]; 0 if all buckets have the same score.

    Raises:
        PosirError: A score is not a number in [0, 1], or all buckets are empty or score 0.

    Examples:
        >>> import posir
        >>> round(posir.psi([0.80, 0.60, 0.50]), 3)
        0.375
    """
    try:
        values = np.array([np.nan if score is None else score for score in scores], np.float64)
    except (TypeError, ValueError) as error:
        raise PosirError(f"The scores of position buckets must be numbers: {error}.") from error
    if values.ndim != 1 or np.any((values < 0) | (values > 1)):
        raise PosirError(
            "The scores of position buckets must be a sequence of numbers in [0, 1]: divide "
            "percentages by 100."
        )
    value = float(psi_scores.compute_psi(values))
    if np.isnan(value):
        raise PosirError(
            "PSI is undefined: every bucket is empty or scores 0. At least one must have a "
            "positive score."
        )
    return value
