"""Scores of retrieved chunks against the excerpts that answer a question, by the characters that they share.

Source: Smith & Troynikov 2024, Evaluating Chunking Strategies for Retrieval (Chroma technical report), and its code. The
report counts tokens; the code, which is followed, counts characters. Let C be the characters that a question's excerpts share
with the retrieved chunks, E those of its excerpts and R those of the retrieved chunks, each chunk counted in full. Then recall
is |C| / |E|, precision is |C| / |R|, and IoU is |C| / (|R| + |E| - |C|). Precision Omega is the precision if just the chunks
that share or touch an excerpt were retrieved, each character counted once, and parts of excerpts that no chunk has, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from posir_tasks.evidence import Integers
from posir_tasks.text.spans import Span

#: Document of a chunk that is in none.
NOWHERE = -1


@dataclass(frozen=True)
class Excerpt:
    """A span of a document that answers a question."""

    document: int
    span: Span


@dataclass(frozen=True, eq=False)
class ChunkPlaces:
    """The places of n chunks."""

    documents: Integers
    """Number of each chunk's document, shape (n,); `NOWHERE` if it is not in its text."""
    spans: Integers
    """Start and end of each, shape (n, 2)."""
    lengths: Integers
    """Characters of each, shape (n,)."""

    def list_spans(self, document: int, rows: Integers | None = None) -> Integers:
        """Return the spans of the chunks of a document, shape (m, 2); of some rows alone if they are given."""
        documents, spans = (self.documents, self.spans) if rows is None else (self.documents[rows], self.spans[rows])
        selected: Integers = spans[documents == document]
        return selected


@dataclass(frozen=True)
class RetrievalScores:
    """Scores of the chunks that are retrieved for a question, in [0, 1]."""

    iou: float
    recall: float
    precision: float


def score_retrieved(excerpts: Sequence[Excerpt], chunks: ChunkPlaces, rows: Integers) -> RetrievalScores:
    """Score the chunks in some rows, retrieved for a question.

    Excerpts that overlap count as their code counts them: each by itself where they are summed, once where they are shared.
    """
    shared, missed, total = 0, 0, sum(len(range(*excerpt.span)) for excerpt in excerpts)
    for document in {excerpt.document for excerpt in excerpts}:
        spans = [excerpt.span for excerpt in excerpts if excerpt.document == document]
        retrieved = merge(map(tuple, chunks.list_spans(document, rows).tolist()))
        shared += sum(end - start for start, end in merge(part for span in spans for part in intersect(span, retrieved)))
        missed += sum(len(range(*span)) - count_shared(span, retrieved) for span in spans)
    length = int(chunks.lengths[rows].sum())
    return RetrievalScores(shared / (length + missed), shared / total, shared / length if length else 0.0)


def score_division(excerpts: Sequence[Excerpt], chunks: ChunkPlaces) -> float:
    """Return precision Omega of a division for a question; a chunk that ends where an excerpt begins touches it."""
    shared, total = 0, 0
    for document in {excerpt.document for excerpt in excerpts}:
        spans, places = [excerpt.span for excerpt in excerpts if excerpt.document == document], chunks.list_spans(document)
        touching = np.zeros(len(places), np.bool_)
        for start, end in spans:
            touching |= (places[:, 0] <= end) & (places[:, 1] >= start)
        near = merge(map(tuple, places[touching].tolist()))
        shared += sum(end - start for start, end in merge(part for span in spans for part in intersect(span, near)))
        total += sum(end - start for start, end in merge([*near, *spans]))
    return shared / total


def count_shared(span: Span, merged: Iterable[tuple[int, int]]) -> int:
    """Return the characters of a span that are in disjoint ranges."""
    return sum(end - start for start, end in intersect(span, merged))


def intersect(span: Span, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of ranges that are in a span."""
    parts = [(max(span.start, start), min(span.end, end)) for start, end in ranges]
    return [(start, end) for start, end in parts if start < end]


def merge(ranges: Iterable[tuple[int, ...]]) -> list[tuple[int, int]]:
    """Return the union of ranges as disjoint ranges, in order."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged
