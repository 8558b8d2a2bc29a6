"""The papers' rules of acceptance, on scores and grades. Where a paper states no rule for ties, a tie is a failure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]


def ranks_target_first(scores: Scores, target: int) -> bool:
    """Return whether every reranker scores the target segment above every other (PosQ, arXiv 2505.13950, appendix A.2).

    Args:
        scores: Shape (rerankers, segments).
        target: Index of the segment that has the evidence.
    """
    return bool((scores[:, [target]] > np.delete(scores, target, axis=1)).all())


def needs_span(with_span: Scores, without_span: Scores) -> bool:
    """Return whether every reranker scores the document above the one without the span (PosIR, section 2.3).

    Both scores have the shape (rerankers,).
    """
    return bool((with_span > without_span).all())


def is_relevant(target: int, others: Sequence[int], level: int, gap: int) -> bool:
    """Return whether the text with the evidence is relevant, and more so than every text without.

    PosQ, appendix A.2: L(t) >= 3 and L(t) >= L(u) + 1 for both other segments u. PosIR, section 2.3, compares the document with
    the document without the span; its thresholds are lost.

    Args:
        target: Grade of the text with the evidence, 0 to 4.
        others: Grades of the texts without.
        level: Least grade of the target.
        gap: Least difference from each other grade.
    """
    return target >= level and all(target >= other + gap for other in others)


def is_suspect(scores: Scores, threshold: float, votes: int) -> bool:
    """Return whether enough rerankers score a document, shape (rerankers,), at or above the threshold (PosQ, appendix A.2).

    If there are fewer rerankers than votes, all of them must.
    """
    return int((scores >= threshold).sum()) >= min(votes, scores.size)


def is_confirmed(grades: Sequence[int], level: int, votes: int) -> bool:
    """Return whether enough judges grade a document at or above the level (PosQ, appendix A.2).

    If there are fewer judges than votes, all of them must.
    """
    return sum(grade >= level for grade in grades) >= min(votes, len(grades))


def scores_above_positive(scores: Scores, positive: Scores) -> bool:
    """Return whether any reranker scores a document above the question's own (PosIR, section 2.3); shapes (rerankers,)."""
    return bool((scores > positive).any())
