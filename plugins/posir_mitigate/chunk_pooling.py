"""One vector of a document from those of its chunks: the pooled variants of DICE (arXiv 2606.18781).

k = 3 and T = 1 are the constants of the paper's code, which was described to us; none of it was used. Variants by the norms of
the chunks need the vectors before a model's `Normalize`: after it all norms are 1, the choice of k chunks is arbitrary, and the
softmax is the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from posir_tasks.embeddings.encoding import Vectors

#: Chunks of the largest norm that `norm_topk_mean` averages.
TOP_CHUNKS = 3
#: T of `norm_softmax_mean`.
TEMPERATURE = 1.0
#: Difference of norms below which they are equal but for rounding, half precision included.
EQUAL_NORMS = 2e-3

#: Returns a vector, shape (dimensions,), of those of a document's chunks, shape (chunks, dimensions), at least one.
ChunkPooling: TypeAlias = Callable[[Vectors], Vectors]


def average(vectors: Vectors) -> Vectors:
    """Return the mean vector."""
    mean: Vectors = vectors.mean(axis=0, dtype=np.float32)
    return mean


def take_maximum(vectors: Vectors) -> Vectors:
    """Return the maximum of each dimension."""
    maximum: Vectors = vectors.max(axis=0)
    return maximum


def average_largest(vectors: Vectors) -> Vectors:
    """Return the mean of the `TOP_CHUNKS` vectors of the largest norm, or of all; of equal norms, the first count."""
    largest = np.argsort(-np.linalg.norm(vectors, axis=1), kind="stable")[:TOP_CHUNKS]
    return average(vectors[largest])


def average_by_norm(vectors: Vectors) -> Vectors:
    """Return the mean of the vectors weighted by the softmax of their norms over `TEMPERATURE`."""
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1) / TEMPERATURE
    weights = np.exp(norms - norms.max())
    mean: Vectors = (weights / weights.sum() @ vectors).astype(np.float32)
    return mean


def norms_are_equal(vectors: Vectors) -> bool:
    """Return whether vectors, shape (n, dimensions), all have length 1 but for rounding: the model normalizes them."""
    return bool((np.abs(np.linalg.norm(vectors, axis=1) - 1) < EQUAL_NORMS).all())
