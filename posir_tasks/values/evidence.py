"""Evidence, the position-aware qrel: for every query the relevant document and the position of the
answer in it.

Of a query with several places of evidence, in one document or several, each place is a row of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np

from posir_tasks.base.arrays import Floats, Integers, empty_integers
from posir_tasks.text.words import estimate_tokens
from posir_tasks.values.read_part import CountedWith, Part, ReadKind, ReadPart

#: Names of the thirds of a document, in order, as FineWeb-PosQ calls them.
POSITIONS = ("beginning", "middle", "end")
#: Number of equal parts of what a model reads by which the place of evidence in it is stored; four
#: of them are a third.
TWELFTHS = 12


class Unread(IntEnum):
    """Evidence that a model does not read whole, instead of the twelfth of what it reads."""

    CUT = 12
    """The model reads a part of the evidence."""
    BEYOND = 13
    """The model reads none of the evidence."""


@dataclass(frozen=True)
class Place:
    """The query of a row of evidence that is one of several places of it, and the grade of the
    row's document.
    """

    query: str
    grade: float = 1


def read_third(label: str) -> int | None:
    """Return the third that a label names, from 0; None if it names several, or none."""
    thirds = [third for third, name in enumerate(POSITIONS) if name in label]
    return thirds[0] if len(thirds) == 1 else None


@dataclass(frozen=True)
class Evidence:
    """The evidence of `n` queries as aligned columns.

    Columns that the data does not provide have length 0; a `PositionScheme` documents which ones it
    reads. The arrays must not be changed.
    """

    query_ids: list[str]
    """Unique query ids, length n."""
    document_ids: list[str]
    """The id of the relevant document of each query, length n."""
    starts: Integers = field(default_factory=empty_integers)
    """First character of the evidence in its document: Unicode code points from 0, shape (n,)."""
    ends: Integers = field(default_factory=empty_integers)
    """One past the last character of the evidence, shape (n,)."""
    characters: Integers = field(default_factory=empty_integers)
    """Length of the relevant document in characters, shape (n,)."""
    tokens: Integers = field(default_factory=empty_integers)
    """Length of the relevant document in tokens, as stated in the data, shape (n,)."""
    labels: tuple[str, ...] = ()
    """Position labels such as "beginning", length n; a label may name several positions."""
    clusters: tuple[str, ...] = ()
    """Title of the article that each query's relevant document is part of, "" if unknown; length
    n.
    """

    def __len__(self) -> int:
        return len(self.query_ids)

    def select(self, rows: list[int]) -> Evidence:
        """Return the evidence of these queries only, in this order."""

        def take(column: Any) -> Any:
            if isinstance(column, np.ndarray):
                return column[rows] if len(column) else column
            return type(column)(column[row] for row in rows if column)

        return Evidence(**{name: take(column) for name, column in vars(self).items()})

    def complete(self, texts: Mapping[str, str]) -> Evidence:
        """Return the evidence with lengths that the data does not state, of documents by id; tokens
        are estimated.
        """

        def measure(count: Callable[[str], int]) -> Integers:
            counts = {name: count(texts[name]) for name in dict.fromkeys(self.document_ids)}
            return np.array([counts[name] for name in self.document_ids], np.int64)

        characters = self.characters if len(self.characters) else measure(len)
        tokens = self.tokens if len(self.tokens) else measure(estimate_tokens)
        return replace(self, characters=characters, tokens=tokens)

    def twelfths(self) -> Integers:
        """Return the twelfth of its document that contains the middle of each query's evidence: 0
        to 11, shape (n,).

        Of a labeled third it is the second twelfth; a label of several thirds counts as the middle
        one, which is in no difference from start to end. Shape (0,) if the places or the documents'
        lengths are unknown.
        """
        if self.labels:
            thirds = [read_third(label) for label in self.labels]
            return 4 * np.array([1 if third is None else third for third in thirds], np.int64) + 1
        if not (len(self.starts) and len(self.characters)):
            return empty_integers()
        ends = self.ends if len(self.ends) else self.starts
        middles = TWELFTHS // 2 * (self.starts + ends)
        twelfths: Integers = middles // np.maximum(self.characters, 1)
        return twelfths.clip(0, TWELFTHS - 1)

    def estimate_twelfths(self, read: ReadPart) -> Integers:
        """Estimate which twelfth of what a model reads contains the middle of each query's
        evidence.

        A character's place in tokens is its share of the document's characters times the document's
        tokens, as the data counts them. With L tokens of the document, of which R are read, and the
        middle of the evidence t tokens after the first of them that is read, it is the twelfth of t
        / R.

        Returns:
            0 to 11, or `Unread`, of each query, shape (n,); (0,) if it is unknown.
        """
        whole = self.twelfths()
        if read.kind is ReadKind.ALL:
            return whole
        if read.kind is ReadKind.UNKNOWN or not (len(self.tokens) and len(whole)):
            return empty_integers()
        lengths = self.tokens
        limit = read.tokens or 0
        is_whole = lengths <= limit
        if is_whole.all():
            return whole
        if (
            not len(self.characters)
            or not len(self.starts)
            or read.part in (Part.SAMPLES, Part.CHUNKS)
        ):
            return empty_integers()
        characters = np.maximum(self.characters, 1)
        starts = self.starts / characters * lengths
        ends = self.ends / characters * lengths if len(self.ends) else starts
        head = limit - read.tokens_at_end
        tail = lengths - read.tokens_at_end
        return np.where(is_whole, whole, place_in_parts(starts, ends, head, tail, limit))

    def positives(self) -> dict[str, str]:
        """Map each query id to the id of its relevant document."""
        return dict(zip(self.query_ids, self.document_ids, strict=True))


@dataclass(frozen=True, eq=False)
class ReadEvidence:
    """The evidence of n queries relative to what a model reads."""

    read: ReadPart
    twelfths: Integers
    """Twelfth of what is read that contains the middle of the evidence, 0 to 11, or `Unread`; shape
    (n,), (0,) if unknown.
    """
    counted_with: CountedWith | None = None
    """The way in which tokens were counted; None if none had to be."""

    @classmethod
    def estimate(cls, read: ReadPart, evidence: Evidence, languages: Iterable[str]) -> ReadEvidence:
        """Estimate the places from the token counts in the data, whose texts are in these
        languages.
        """
        twelfths = evidence.estimate_twelfths(read)
        is_counted = read.kind is ReadKind.PART and len(twelfths)
        return cls(read, twelfths, CountedWith.from_languages(languages) if is_counted else None)


def place_in_parts(
    starts: Floats, ends: Floats, head: int | Integers, tail: int | Integers, read: int | Integers
) -> Integers:
    """Return which twelfth of what is read contains the middle of each span of tokens, which may be
    fractional, or `Unread`.

    Args:
        starts: First token of each span, shape (n,).
        ends: One past the last.
        head: Tokens from the start of the document that are read.
        tail: First token of the part at the end that is read; the document's length if none is.
        read: Number of tokens that are read.
    """
    in_tail = starts >= tail
    is_read = (ends <= head) | in_tail
    middle = (starts + ends) / 2 - np.where(in_tail, tail - head, 0)
    shares = np.floor(TWELFTHS * middle / np.maximum(read, 1))
    twelfths = shares.astype(np.int64).clip(0, TWELFTHS - 1)
    is_beyond = (starts >= head) & (ends <= tail)
    return np.select([is_read, is_beyond], [twelfths, Unread.BEYOND], Unread.CUT)
