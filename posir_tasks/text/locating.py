"""The place of a piece in the text that it was taken from, however a splitter or an index has
rewritten it.

Splitters return parts of the text as they are, with other white space (a cleaner before the
splitter), or decoded tokens: lower case, without accents, with blanks around punctuation. Each way
is tried on what the ways before it do not find.
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

#: Before the first piece of a text.
START = Span(-1, 0)
#: Least similarity of letters and digits, of 100, at which a piece counts as found.
SIMILAR = 90
#: Largest product of the longer and the squared shorter length of two texts that are aligned: about
#: a second.
MAX_ALIGNED = 2 * 10**12
#: Quotes, each of which is written in several ways.
QUOTES = str.maketrans({**dict.fromkeys("‘’‚`´", "'"), **dict.fromkeys("“”„«»", '"')})


@dataclass(frozen=True)
class Spelling:
    """A text in another spelling, and the place in the text that each of its characters is of."""

    text: str
    places: Sequence[int]

    @classmethod
    def build(cls, text: str, spell: Callable[[str], str]) -> Spelling:
        """Spell each character of a text, which may be none or several."""
        spelled = [spell(character) for character in text]
        places = [place for place, letters in enumerate(spelled) for _ in letters]
        return cls("".join(spelled), places)

    def find(self, piece: str, previous: Span) -> Span | None:
        """Return the place in the text of a piece in this spelling, sought from the previous place
        in the text on.
        """
        if previous == START:
            before = previous
        else:
            before = Span(*(bisect_left(self.places, place) for place in previous))
        span = _find_next(self.text, piece, before) if piece else None
        return self.restore(span) if span else None

    def restore(self, span: Span) -> Span:
        """Return the place in the text of a span of this spelling, which is not empty."""
        return Span(self.places[span.start], self.places[span.end - 1] + 1)


class TextLocator:
    """Finds pieces of one text; its spellings are made when the first piece needs them."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _bare(self) -> Spelling:
        return Spelling.build(self.text, drop_space)

    @cached_property
    def _folded(self) -> Spelling:
        return Spelling.build(self.text, _fold)

    def locate(self, piece: str, start: int | None = None, previous: Span = START) -> Span | None:
        """Return where a piece is; None if it is not in the text.

        In this order: at its stated start; as it is, sought where the previous piece ends, from
        there on, then anywhere; without white space; by its letters and digits alone, decomposed
        and without case; by their similarity.
        """
        if start is not None and start >= 0 and self.text.startswith(piece, start):
            return Span(start, start + len(piece))
        found = _find_next(self.text, piece, previous)
        found = found or self._bare.find("".join(map(drop_space, piece)), previous)
        if found is not None:
            return found
        folded = "".join(map(_fold, piece))
        found = self._folded.find(folded, previous)
        alignment = None if found else align(folded, self._folded.text, SIMILAR)
        if alignment and alignment.score > SIMILAR:
            return self._folded.restore(Span(alignment.dest_start, alignment.dest_end))
        return found


def locate_chunks(text: str, chunks: Iterable[str]) -> list[Span | None]:
    """Return where each chunk is in a text, in the order of the text; None for a chunk that is not
    in it.

    A chunk is sought where the one before it ends; then from there on, overlap allowed, as long as
    it adds to the one before; then anywhere.
    """
    locator = TextLocator(text)
    spans = list[Span | None]()
    previous = START
    for chunk in chunks:
        span = locator.locate(chunk, previous=previous)
        spans.append(span)
        previous = span or previous
    return spans


def locate_once(piece: str, text: str) -> Span:
    """Return the only place of a piece, exactly, or else with white space, hyphens and quotes
    folded; raise UnlocatedError if it is not there, or several times.
    """
    count = text.count(piece)
    if count == 1:
        start = text.index(piece)
        return Span(start, start + len(piece))
    folded = "".join(map(_fold_breaks, piece))
    if not count and folded:
        spelling = Spelling.build(text, _fold_breaks)
        count = spelling.text.count(folded)
        if count == 1:
            start = spelling.text.index(folded)
            return spelling.restore(Span(start, start + len(folded)))
    where = "several times" if count else "not"
    raise UnlocatedError(f"its evidence is {where} in its document")


def _fold_breaks(character: str) -> str:
    """Drop white space and hyphens, at which words are broken; make quotes alike."""
    return "" if character.isspace() or character == "-" else character.translate(QUOTES)


def drop_space(character: str) -> str:
    """Return nothing for white space, and any other character as it is."""
    return "" if character.isspace() else character


def _fold(character: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFD", character).casefold()))


def _find_next(text: str, piece: str, previous: Span) -> Span | None:
    rest = text[previous.end : previous.end + len(piece) + 1]
    for start in (previous.end, previous.end + len(rest) - len(rest.lstrip())):
        if text.startswith(piece, start):
            return Span(start, start + len(piece))
    start = text.find(piece, max(previous.start + 1, previous.end - len(piece) + 1))
    if start < 0:
        start = text.find(piece)
    return Span(start, start + len(piece)) if start >= 0 else None


def align(piece: str, text: str, cutoff: float) -> ScoreAlignment | None:
    """Return the most similar parts of two texts; None below a similarity in [0, 100], or if a
    search takes too long.
    """
    shorter, longer = sorted((len(piece), len(text)))
    if shorter == 0 or shorter * shorter * longer > MAX_ALIGNED:
        return None
    return fuzz.partial_ratio_alignment(piece, text, score_cutoff=cutoff)
