"""Change documents: move the evidence, or reverse the order of parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from posir_tasks.text.spans import Span
from posir_tasks.text.words import find_words, is_unspaced

#: Span of a question without evidence.
NO_SPAN = Span(0, 0)


def move_evidence(text: str, span: Span, position: float) -> str:
    """Move non-empty evidence to a relative position in [0, 1] of the remaining text.

    The evidence is inserted at the nearest word boundary. A space on each side replaces the
    previous white space, except in scripts without spaces.
    """
    evidence = span.slice(text)
    space = "" if is_unspaced(text) else " "
    parts = [text[: span.start].rstrip(), text[span.end :].lstrip()]
    remainder = space.join(filter(None, parts))
    starts = [word.start for word in find_words(remainder)[1:]]
    target = position * len(remainder)
    # The first border wins a tie.
    border = min([0, *starts, len(remainder)], key=lambda border: abs(border - target))
    pieces = [remainder[:border].rstrip(), evidence, remainder[border:].lstrip()]
    return space.join(filter(None, pieces))


def find_parts(text: str, parts: int) -> list[Span]:
    """Split a text into up to `parts` parts whose word counts differ by at most one."""
    words = find_words(text)
    shares = [part * len(words) / parts for part in range(parts + 1)]
    cuts = sorted({*map(round, shares)})
    return [Span(words[low].start, words[high - 1].end) for low, high in pairwise(cuts)]


def find_part(pieces: Sequence[Span], span: Span) -> int:
    """Return the index of the last part that starts at or before a span's midpoint."""
    return max(0, sum(piece.start <= span.middle for piece in pieces) - 1)


def reverse_parts(text: str, parts: int) -> str:
    """Reverse the order of the parts of `find_parts`.

    White space between two parts stays between them, so reversing an odd number of parts twice
    restores the text.
    """
    borders = [border for piece in find_parts(text, parts) for border in piece]
    if not borders:
        return text
    # Parts alternate with the white space between them.
    pieces = [text[start:end] for start, end in pairwise(borders)]
    return text[: borders[0]] + "".join(reversed(pieces)) + text[borders[-1] :]
