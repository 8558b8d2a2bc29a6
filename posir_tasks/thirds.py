"""The thirds of a document, and differences between them: start to end, and the middle against the ends."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Weights of the thirds in a contrast.
START_TO_END, MIDDLE_TO_ENDS = (1.0, 0.0, -1.0), (-0.5, 1.0, -0.5)


def bin_midpoints(bins: int) -> Floats:
    """Return the midpoints of equal bins of [0, 1], shape (P,)."""
    return (np.arange(bins) + 0.5) / bins


def assign_thirds(bins: int) -> NDArray[np.int64]:
    """Return the third of the document that contains each bin's midpoint: 0, 1 or 2, shape (P,).

    Two bins are a first and a last third.
    """
    middle = bin_midpoints(bins)
    thirds: NDArray[np.int64] = (middle > 1 / 3).astype(np.int64) + (middle > 2 / 3)
    return thirds


def contrast_thirds(third: NDArray[np.int64], bin_weights: Floats, weights: tuple[float, float, float]) -> Floats | None:
    """Return the contrast over bins whose product with their scores is the weighted sum of the thirds' scores, shape (B,).

    Args:
        third: Third of each bin, shape (B,).
        bin_weights: What each bin counts in its third, such as its number of queries, shape (B,).
        weights: Of the first, the middle and the last third.

    Returns:
        None if a third with a weight has no bins.
    """
    shares = [np.where(third == index, bin_weights, 0.0) for index in range(3)]
    if any(weight and not share.any() for weight, share in zip(weights, shares, strict=True)):
        return None
    parts = [weight * share / share.sum() for weight, share in zip(weights, shares, strict=True) if weight]
    contrast: Floats = np.sum(parts, axis=0)
    return contrast
