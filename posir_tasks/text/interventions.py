"""Interventions on a document that move, reverse, insert or remove text and keep the span of its
evidence true.

Each takes a text and a span, and returns both: unless text of the evidence itself is removed or
divided, the new span quotes the same evidence. A text without evidence has the span `NO_SPAN`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from posir_tasks.text.spans import Span
from posir_tasks.text.words import find_words, is_unspaced

NO_SPAN = Span(0, 0)


class SpannedText(NamedTuple):
    """A text, and the span of its evidence."""

    text: str
    span: Span

    @property
    def evidence(self) -> str:
        """The characters of the span."""
        return self.span.of(self.text)


def move_evidence(text: str, span: Span, position: float) -> SpannedText:
    """Cut the evidence, which is not empty, out of a text, and insert it at a relative position in
    [0, 1] of the rest.

    The position is moved to the nearest border between words of the rest, so that no word is
    divided. One space joins evidence and rest, in place of any white space there; none in a script
    without spaces.
    """
    evidence = span.of(text)
    space = "" if is_unspaced(text) else " "
    parts = [text[: span.start].rstrip(), text[span.end :].lstrip()]
    rest = space.join(filter(None, parts))
    at = _nearest_border(rest, position * len(rest))
    pieces = [rest[:at].rstrip(), evidence, rest[at:].lstrip()]
    start = len(pieces[0] + space) if pieces[0] else 0
    moved = space.join(filter(None, pieces))
    return SpannedText(moved, Span(start, start + len(evidence)))


def _nearest_border(text: str, index: float) -> int:
    """Return the border between words, or end of the text, that is nearest to an index; the first
    of two.
    """
    starts = [word.start for word in find_words(text)[1:]]
    borders = [0, *starts, len(text)]
    return min(borders, key=lambda border: abs(border - index))


def find_parts(text: str, parts: int = 5) -> list[Span]:
    """Return the spans of equal contiguous parts of a text: equal in words, up to one; a text with
    few words has fewer.
    """
    words = find_words(text)
    shares = [part * len(words) / parts for part in range(parts + 1)]
    cuts = sorted({*map(round, shares)})
    return [Span(words[low].start, words[high - 1].end) for low, high in pairwise(cuts)]


def find_part(pieces: Sequence[Span], span: Span) -> int:
    """Return the index of the part that holds a span's midpoint; between two parts, of the
    first.
    """
    begun = [piece for piece in pieces if piece.start <= span.middle]
    return max(0, len(begun) - 1)


def reverse_parts(text: str, span: Span, parts: int = 5) -> SpannedText:
    """Cut a text into equal contiguous parts, as `find_parts` does, and reverse their order.

    The white space between two parts stays between them, so that reversing twice gives the same
    text if the number of parts is odd. Evidence across a cut is divided: the new span is the piece
    with its midpoint.
    """
    pieces = find_parts(text, parts)
    if len(pieces) < 2:
        return SpannedText(text, span)
    reordered = text[: pieces[0].start]
    new_span = NO_SPAN
    home = pieces[find_part(pieces, span)]
    gaps = [Span(before.end, after.start).of(text) for before, after in pairwise(pieces)]
    for piece, gap in zip(reversed(pieces), [*reversed(gaps), ""], strict=True):
        if piece == home and span != NO_SPAN:
            shift = len(reordered) - piece.start
            first = min(max(span.start, piece.start), piece.end)
            new_span = Span(first + shift, max(first, min(span.end, piece.end)) + shift)
        reordered += piece.of(text) + gap
    return SpannedText(reordered + text[pieces[-1].end :], new_span)


def insert_text(text: str, span: Span, inserted: str, at: int) -> SpannedText:
    """Insert text before the character `at`, without a separator; within the evidence, at the
    nearer end of it instead.
    """
    start, end = span
    if start < at < end:
        at = start if at - start <= end - at else end
    shift = len(inserted) if at <= start and span != NO_SPAN else 0
    changed = text[:at] + inserted + text[at:]
    return SpannedText(changed, Span(start + shift, end + shift))


def remove_text(text: str, span: Span, removed: Span) -> SpannedText:
    """Remove the characters of a span; what is left of the evidence, possibly nothing, is the new
    span.
    """
    first, last = removed
    size = max(0, last - first)

    def shift(index: int) -> int:
        return index if index <= first else max(first, index - size)

    start, end = map(shift, span)
    return SpannedText(text[:first] + text[first + size :], Span(start, end))
