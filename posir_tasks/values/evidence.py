"""Evidence, a qrel with positions: a query's relevant document and the position of its answer.

A query with several places of evidence, in one document or several, has a row for each place.
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

#: FineWeb-PosQ's names of the thirds of a document, in order.
POSITIONS = ("beginning", "middle", "end")
#: Number of equal parts of the window for stored positions of evidence; four are a third.
TWELFTHS = 12


class Unread(IntEnum):
    """Codes for truncated evidence, instead of a twelfth of the window."""

    CUT = 12
    """The evidence is partly truncated."""
    BEYOND = 13
    """The evidence is completely truncated."""


@dataclass(frozen=True)
class Place:
    """Query and document grade of one evidence row, for queries with several places."""

    query: str
    grade: float = 1


def read_third(label: str) -> int | None:
    """Parse a label with a single third, from 0; None for other labels."""
    thirds = [third for third, name in enumerate(POSITIONS) if name in label]
    return thirds[0] if len(thirds) == 1 else None


@dataclass(frozen=True)
class Evidence:
    """The evidence of n queries as aligned, read-only columns.

    Columns missing from the data have length 0.
    """

    query_ids: list[str]
    """Unique query ids, length n."""
    document_ids: list[str]
    """Ids of the relevant documents, length n."""
    starts: Integers = field(default_factory=empty_integers)
    """First character of the evidence in its document, in Unicode code points from 0; shape (n,).
    """
    ends: Integers = field(default_factory=empty_integers)
    """One past the last character of the evidence, shape (n,)."""
    characters: Integers = field(default_factory=empty_integers)
    """Length of the relevant document in characters, shape (n,)."""
    tokens: Integers = field(default_factory=empty_integers)
    """Length of the relevant document in the data's tokens, shape (n,)."""
    labels: tuple[str, ...] = ()
    """Position labels such as "beginning", possibly with several positions; length n."""
    clusters: tuple[str, ...] = ()
    """Title of the relevant document's article, "" if unknown; length n."""

    def __len__(self) -> int:
        return len(self.query_ids)

    def select(self, rows: list[int]) -> Evidence:
        """Return the evidence of the selected queries, in this order."""

        def take(column: Any) -> Any:
            if isinstance(column, np.ndarray):
                return column[rows] if len(column) else column
            return type(column)(column[row] for row in rows if column)

        return Evidence(**{name: take(column) for name, column in vars(self).items()})

    def complete(self, texts: Mapping[str, str]) -> Evidence:
        """Add missing document lengths, given texts by id; tokens are estimated."""

        def measure(count: Callable[[str], int]) -> Integers:
            counts = {name: count(texts[name]) for name in dict.fromkeys(self.document_ids)}
            return np.array([counts[name] for name in self.document_ids], np.int64)

        characters = self.characters if len(self.characters) else measure(len)
        tokens = self.tokens if len(self.tokens) else measure(estimate_tokens)
        return replace(self, characters=characters, tokens=tokens)

    def twelfths(self) -> Integers:
        """Return the twelfth of the document with the middle of the evidence, 0 to 11, shape (n,).

        A labeled third maps to its second twelfth. A label with several thirds maps to the middle
        third, which start minus end ignores. Shape (0,) if positions or document lengths are
        unknown.
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
        """Estimate the twelfth of the window with the middle of the evidence.

        Character positions are scaled to the data's token counts. With R tokens in the window and
        the middle of the evidence t tokens into it, the twelfth is that of t / R.

        Returns:
            0 to 11, or an `Unread` code, shape (n,); shape (0,) if unknown.
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
        has_spans = len(self.characters) and len(self.starts)
        if not has_spans or read.part in (Part.SAMPLES, Part.CHUNKS):
            return empty_integers()
        characters = np.maximum(self.characters, 1)
        starts = self.starts / characters * lengths
        ends = self.ends / characters * lengths if len(self.ends) else starts
        head = limit - read.tokens_at_end
        tail = lengths - read.tokens_at_end
        return np.where(is_whole, whole, locate_in_window(starts, ends, head, tail, limit))

    def positives(self) -> dict[str, str]:
        """Map each query id to the id of its relevant document."""
        return dict(zip(self.query_ids, self.document_ids, strict=True))


@dataclass(frozen=True, eq=False)
class ReadEvidence:
    """The evidence of n queries relative to the window."""

    read: ReadPart
    twelfths: Integers
    """Twelfth of the window with the middle of the evidence, 0 to 11, or an `Unread` code; shape
    (n,), or (0,) if unknown.
    """
    counted_with: CountedWith | None = None
    """How tokens were counted; None if no count was necessary."""

    @classmethod
    def estimate(cls, read: ReadPart, evidence: Evidence, languages: Iterable[str]) -> ReadEvidence:
        """Estimate positions within the window from the token counts in the data.

        `languages` are the language codes of the texts.
        """
        twelfths = evidence.estimate_twelfths(read)
        is_counted = read.kind is ReadKind.PART and len(twelfths)
        return cls(read, twelfths, CountedWith.from_languages(languages) if is_counted else None)


def locate_in_window(
    starts: Floats, ends: Floats, head: int | Integers, tail: int | Integers, read: int | Integers
) -> Integers:
    """Return the twelfth of the window with the middle of each span, or an `Unread` code.

    Args:
        starts: First token of each span, shape (n,); may be fractional.
        ends: One past the last token, shape (n,).
        head: Number of tokens in the window at the start of the document.
        tail: First token in the window at the end of the document, or the document's length.
        read: Number of tokens in the window.
    """
    in_tail = starts >= tail
    is_read = (ends <= head) | in_tail
    middle = (starts + ends) / 2 - np.where(in_tail, tail - head, 0)
    shares = np.floor(TWELFTHS * middle / np.maximum(read, 1))
    twelfths = shares.astype(np.int64).clip(0, TWELFTHS - 1)
    is_beyond = (starts >= head) & (ends <= tail)
    return np.select([is_read, is_beyond], [twelfths, Unread.BEYOND], Unread.CUT)
