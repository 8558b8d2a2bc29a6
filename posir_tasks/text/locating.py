"""Locate pieces of a text, even if a splitter or an index has changed them.

Splitters return exact parts of the text, parts with normalized white space, or decoded tokens: in
lower case, without accents, with spaces around punctuation. Exact matches are tried first.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from rapidfuzz import fuzz
from rapidfuzz.distance import ScoreAlignment

from posir_tasks.text.spans import Span, UnlocatedError

#: Placeholder for the piece before the first one.
START = Span(-1, 0)
#: Minimum similarity of letters and digits, in [0, 100].
MIN_SIMILARITY = 90
#: Maximum cost of an alignment: the longer length times the square of the shorter length. The
#: maximum takes about a second.
MAX_ALIGNMENT_COST = 2 * 10**12
#: Normalizes quotation marks.
QUOTES = str.maketrans({**dict.fromkeys("‘’‚`´", "'"), **dict.fromkeys("“”„«»", '"')})


@dataclass(frozen=True)
class Spelling:
    """A normalized text, with the original index of each character."""

    text: str
    indices: Sequence[int]

    @classmethod
    def build(cls, text: str, normalize: Callable[[str], str]) -> Spelling:
        """Replace each character of a text with zero or more characters."""
        normalized = [normalize(character) for character in text]
        indices = [index for index, letters in enumerate(normalized) for _ in letters]
        return cls("".join(normalized), indices)

    def find(self, piece: str, previous: Span) -> Span | None:
        """Find a normalized piece, first after the previous span. Spans refer to the original."""
        if previous != START:
            previous = Span(*(bisect_left(self.indices, index) for index in previous))
        span = _find_next(self.text, piece, previous) if piece else None
        return self.restore(span) if span else None

    def restore(self, span: Span) -> Span:
        """Convert a nonempty span to the original text."""
        return Span(self.indices[span.start], self.indices[span.end - 1] + 1)


class TextLocator:
    """Locates pieces of a text. Normalized texts are computed on demand."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _bare(self) -> Spelling:
        return Spelling.build(self.text, drop_space)

    @cached_property
    def _folded(self) -> Spelling:
        return Spelling.build(self.text, _fold)

    def locate(self, piece: str, start: int | None = None, previous: Span = START) -> Span | None:
        """Locate a piece, or return None.

        These matches are tried in order: the exact piece at the given start, at the end of the
        previous piece, with overlap, and anywhere; the piece without white space; its letters
        and digits without case and accents; the most similar letters and digits.
        """
        if start is not None and start >= 0 and self.text.startswith(piece, start):
            return Span(start, start + len(piece))
        span = _find_next(self.text, piece, previous)
        span = span or self._bare.find("".join(map(drop_space, piece)), previous)
        if span is not None:
            return span
        folded = "".join(map(_fold, piece))
        span = self._folded.find(folded, previous)
        alignment = None if span else align(folded, self._folded.text, MIN_SIMILARITY)
        if alignment and alignment.score > MIN_SIMILARITY:
            return self._folded.restore(Span(alignment.dest_start, alignment.dest_end))
        return span


def locate_chunks(text: str, chunks: Iterable[str]) -> list[Span | None]:
    """Return the span of each chunk of a text; None for chunks that the text does not contain.

    A chunk is searched at the end of the previous chunk, then with overlap, then anywhere.
    """
    locator = TextLocator(text)
    spans = []
    previous = START
    for chunk in chunks:
        span = locator.locate(chunk, previous=previous)
        spans.append(span)
        previous = span or previous
    return spans


def locate_once(piece: str, text: str) -> Span:
    """Locate the only occurrence of a piece, exactly or with normalized white space, hyphens and
    quotes; raise UnlocatedError if it is missing or not unique.
    """
    count = text.count(piece)
    if count == 1:
        start = text.index(piece)
        return Span(start, start + len(piece))
    folded = fold_breaks(piece)
    if not count and folded:
        spelling = Spelling.build(text, _fold_breaks)
        count = spelling.text.count(folded)
        if count == 1:
            start = spelling.text.index(folded)
            return spelling.restore(Span(start, start + len(folded)))
    where = "several times" if count else "not"
    raise UnlocatedError(f"its evidence is {where} in its document")


def fold_breaks(text: str) -> str:
    """Normalize white space, hyphens and quotes for `locate_once`."""
    return "".join(map(_fold_breaks, text))


def _fold_breaks(character: str) -> str:
    """Drop white space and hyphens, which may break words, and normalize quotes."""
    return "" if character.isspace() or character == "-" else character.translate(QUOTES)


def drop_space(character: str) -> str:
    """Return "" for white space, or else the character."""
    return "" if character.isspace() else character


def _fold(character: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFD", character).casefold()))


def _find_next(text: str, piece: str, previous: Span) -> Span | None:
    """Find a piece at the end of the previous span, or else with overlap, or else anywhere."""
    following = text[previous.end : previous.end + len(piece) + 1]
    for start in (previous.end, previous.end + len(following) - len(following.lstrip())):
        if text.startswith(piece, start):
            return Span(start, start + len(piece))
    start = text.find(piece, max(previous.start + 1, previous.end - len(piece) + 1))
    if start < 0:
        start = text.find(piece)
    return Span(start, start + len(piece)) if start >= 0 else None


def align(piece: str, text: str, cutoff: float) -> ScoreAlignment | None:
    """Align the most similar parts of two texts. Return None if their similarity in [0, 100] is
    below the cutoff, or if the search would take too long.
    """
    shorter, longer = sorted((len(piece), len(text)))
    if shorter == 0 or shorter * shorter * longer > MAX_ALIGNMENT_COST:
        return None
    return fuzz.partial_ratio_alignment(piece, text, score_cutoff=cutoff)
