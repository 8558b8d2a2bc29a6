"""Where an answer stands in its document: what a file says of it, checked, and repaired only where that is no guess."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

#: How far a repair may move a span, in characters. Data that is off by trimmed white space, a byte-order mark or a stray title
#: line is off by a few. Were the right place of every answer lost, another one this near would be taken for it in 0.08 % of
#: JaQuAD's questions and at most 0.34 % of an XQuAD language's (Chinese); within 32 characters it would be 6 %.
NEAR = 5


@dataclass(frozen=True)
class StatedAnswer:
    """What a file says of where an answer stands: its text, its half-open span in code points, or both."""

    text: str | None = None
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class Span:
    """A half-open range of a document's characters, Unicode code points from 0."""

    start: int
    end: int


def stated_span(claim: StatedAnswer, document: str) -> Span:
    """Return the span that a claim states, if the document bears it out.

    A text without a start is a span where it stands exactly once in the document.

    Raises:
        ValueError: The claim is incomplete, or does not fit the document.
    """
    if claim.text is not None and not claim.text.strip():
        raise ValueError("its answer is blank")
    if claim.start is None:
        return _only_place(claim, document)
    if claim.text is None:
        return _within(claim, document)
    end = claim.start + len(claim.text)
    if claim.end not in (None, end):
        raise ValueError(f"its span {claim.start} to {claim.end} is not as long as its answer {shortened(claim.text)}")
    if claim.start < 0 or document[claim.start : end] != claim.text:
        raise ValueError(_misplaced(claim.text, claim.start, document))
    return Span(claim.start, end)


def _only_place(claim: StatedAnswer, document: str) -> Span:
    if claim.text is None or claim.end is not None:
        raise ValueError("says where its answer stands neither by a text nor by start and end")
    places = places_of(claim.text, document)
    if len(places) != 1:
        times = f"{len(places)} times" if places else "nowhere"
        raise ValueError(f"its answer {shortened(claim.text)} stands {times} in its document; give its start")
    return Span(places[0], places[0] + len(claim.text))


def _within(claim: StatedAnswer, document: str) -> Span:
    if claim.start is None or claim.end is None:
        raise ValueError("says where its answer starts and neither its end nor its text")
    if not 0 <= claim.start < claim.end <= len(document):
        raise ValueError(f"its span {claim.start} to {claim.end} is not within its document of {len(document)} characters")
    if not document[claim.start : claim.end].strip():
        raise ValueError(f"its span {claim.start} to {claim.end} is blank")
    return Span(claim.start, claim.end)


def repaired_span(answer: str, start: int, document: str) -> Span:
    """Return the one place near a stated start where an answer stands.

    Where its text stands nowhere near, it is looked for without the white space at its ends, which changes nothing that can be
    read. Nothing else about it is changed: no case, no punctuation, no Unicode form.

    Args:
        answer: Not blank.
        start: What the file states.
        document: The text it is of.

    Raises:
        ValueError: It stands nowhere near, or in several places, of which none is better.
    """
    bare = answer.strip()
    for text, place in ((answer, start), (bare, start + answer.index(bare))):
        places = places_of(text, document, max(0, place - NEAR), place + NEAR)
        if len(places) > 1:
            raise ValueError(f"its answer {shortened(text)} stands {len(places)} times near character {place}")
        if places:
            return Span(places[0], places[0] + len(text))
    raise ValueError(_misplaced(answer, start, document))


def places_of(text: str, document: str, first: int = 0, last: int | None = None) -> list[int]:
    """Return every start of a text in a document, overlapping ones too, from `first` to `last`, both included."""
    # `find` counts a negative end from the back.
    end = len(document) if last is None else max(0, last + len(text))
    places, found = [], document.find(text, first, end)
    while found >= 0:
        places.append(found)
        found = document.find(text, found + 1, end)
    return places


def _misplaced(text: str, start: int, document: str) -> str:
    places = places_of(text, document)
    near = [place for place in places if abs(place - start) <= NEAR]
    if len(near) == 1:
        elsewhere = f"; it is at {near[0]}, and --repair moves it there"
    elif places:
        elsewhere = f"; the nearest such text is at {min(places, key=lambda place: abs(place - start))}"
    elif unicodedata.normalize("NFC", text) in unicodedata.normalize("NFC", document):
        elsewhere = "; its document has it in another Unicode form (NFC, NFD): bring both into one"
    else:
        elsewhere = " nor elsewhere in its document"
    return f"its answer {shortened(text)} does not stand at character {start}{elsewhere}"


def shortened(text: str) -> str:
    """Return a text for a message, of at most 30 characters and printable."""
    return repr(text if len(text) <= 30 else text[:29] + "…")
