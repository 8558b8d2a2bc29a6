"""Texts with offsets: numbered sentences, thirds, and a document without a span."""

from __future__ import annotations

from collections.abc import Sequence

from posir_tasks.text.spans import Span


def number_sentences(text: str, sentences: Sequence[Span]) -> str:
    """Return a text with a line for each sentence, numbered from 1, white space within it as single spaces."""
    return "\n".join(f"[{number}] {' '.join(span.of(text).split())}" for number, span in enumerate(sentences, 1))


def split_thirds(text: str, sentences: Sequence[Span]) -> tuple[Span, Span, Span]:
    """Return three parts of a text, cut between sentences as near to equal lengths in characters as possible.

    The papers (PosQ, arXiv 2505.13950; Built-in or Learned, arXiv 2605.26578) state no unit; no sentence is cut here, so
    that evidence is in one part. A text with fewer than three sentences is cut anywhere.
    """
    starts = [sentence.start for sentence in sentences[1:]]
    first, second = len(text) // 3, 2 * len(text) // 3
    if len(starts) >= 2:
        first = min(starts[:-1], key=lambda start: abs(start - first))
        second = min((start for start in starts if start > first), key=lambda start: abs(start - second))
    return Span(0, first), Span(first, second), Span(second, len(text))


def remove_span(text: str, span: Span) -> str:
    """Return a text without a span, with one space at the seam."""
    return f"{text[: span.start].rstrip()} {text[span.end :].lstrip()}".strip()
