"""Interventions on a document, which move its evidence or reverse the order of its parts; and the
parts of a text. A text without evidence has the span `NO_SPAN`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from posir_tasks.text.spans import Span
from posir_tasks.text.words import find_words, is_unspaced

NO_SPAN = Span(0, 0)


def move_evidence(text: str, span: Span, position: float) -> str:
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
    starts = [word.start for word in find_words(rest)[1:]]
    borders = [0, *starts, len(rest)]
    # The first of two that are as near.
    at = min(borders, key=lambda border: abs(border - position * len(rest)))
    pieces = [rest[:at].rstrip(), evidence, rest[at:].lstrip()]
    return space.join(filter(None, pieces))


def find_parts(text: str, parts: int) -> list[Span]:
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


def reverse_parts(text: str, parts: int) -> str:
    """Cut a text into equal contiguous parts, as `find_parts` does, and reverse their order.

    The white space between two parts stays between them, so that reversing twice gives the same
    text if the number of parts is odd.
    """
    pieces = find_parts(text, parts)
    if len(pieces) < 2:
        return text
    gaps = [Span(before.end, after.start).of(text) for before, after in pairwise(pieces)]
    reordered = text[: pieces[0].start]
    for piece, gap in zip(reversed(pieces), [*reversed(gaps), ""], strict=True):
        reordered += piece.of(text) + gap
    return reordered + text[pieces[-1].end :]
