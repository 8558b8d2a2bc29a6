"""Evidence: the relevant document of each query and the position of the answer in it.

A query with several evidence spans, in one or more documents, has one row per span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np

from posir_tasks.base.arrays import Floats, Integers, make_empty_column
from posir_tasks.text.words import estimate_tokens
from posir_tasks.values.read_part import Part, ReadKind, ReadPart, TokenCountMethod

#: FineWeb-PosQ's labels for the thirds of a document, in order.
POSITIONS = ("beginning", "middle", "end")
#: Number of equal parts of the window in which positions are stored. Four parts are a third.
TWELFTHS = 12


class Unread(IntEnum):
    """Codes that replace the twelfth of truncated evidence."""

    CUT = 12
    """The evidence is partly truncated."""
    BEYOND = 13
    """The evidence is completely truncated."""


@dataclass(frozen=True)
class Place:
    """Query and document grade of an evidence row if queries have several spans."""

    query: str
    grade: float = 1


def parse_third(label: str) -> int | None:
    """Return the third that a label names, 0 to 2, or None unless it names exactly one."""
    thirds = [third for third, name in enumerate(POSITIONS) if name in label]
    return thirds[0] if len(thirds) == 1 else None


@dataclass(frozen=True)
class Evidence:
    """The evidence of n queries as aligned, read-only columns.

    Columns that the data does not contain have length 0.
    """

    query_ids: list[str]
    """Unique query ids, length n."""
    document_ids: list[str]
    """Ids of the relevant documents, length n."""
    starts: Integers = field(default_factory=make_empty_column)
    """First character of the evidence in its document, in Unicode code points from 0; shape (n,).
    """
    ends: Integers = field(default_factory=make_empty_column)
    """One past the last character of the evidence, shape (n,)."""
    characters: Integers = field(default_factory=make_empty_column)
    """Length of the relevant document in characters, shape (n,)."""
    tokens: Integers = field(default_factory=make_empty_column)
    """Length of the relevant document in the data's tokens, shape (n,)."""
    labels: tuple[str, ...] = ()
    """Position labels such as "beginning", which may name several positions; length n."""
    clusters: tuple[str, ...] = ()
    """Title of the relevant document's article, "" if unknown; length n."""

    def __len__(self) -> int:
        return len(self.query_ids)

    def select(self, rows: list[int]) -> Evidence:
        """Return the given rows in the given order."""

        def take(column: Any) -> Any:
            if isinstance(column, np.ndarray):
                return column[rows] if len(column) else column
            return type(column)(column[row] for row in rows if column)

        return Evidence(**{name: take(column) for name, column in vars(self).items()})

    def add_lengths(self, texts: Mapping[str, str]) -> Evidence:
        """Add missing document lengths, computed from texts by id. Token counts are estimated."""

        def measure(count: Callable[[str], int]) -> Integers:
            counts = {name: count(texts[name]) for name in dict.fromkeys(self.document_ids)}
            return np.array([counts[name] for name in self.document_ids], np.int64)

        characters = self.characters if len(self.characters) else measure(len)
        tokens = self.tokens if len(self.tokens) else measure(estimate_tokens)
        return replace(self, characters=characters, tokens=tokens)

    def compute_twelfths(self) -> Integers:
        """Compute the twelfth of the document that contains the middle of the evidence.

        A labeled third maps to its second twelfth. A label with several thirds maps to the middle
        third, which start minus end ignores.

        Returns:
            0 to 11, shape (n,); shape (0,) if positions or document lengths are unknown.
        """
        if self.labels:
            thirds = [parse_third(label) for label in self.labels]
            return 4 * np.array([1 if third is None else third for third in thirds], np.int64) + 1
        if not (len(self.starts) and len(self.characters)):
            return make_empty_column()
        ends = self.ends if len(self.ends) else self.starts
        middles = TWELFTHS // 2 * (self.starts + ends)
        twelfths: Integers = middles // np.maximum(self.characters, 1)
        return twelfths.clip(0, TWELFTHS - 1)

    def estimate_twelfths(self, read: ReadPart) -> Integers:
        """Estimate the twelfth of the window that contains the middle of the evidence.

        Character positions are scaled to token positions with the token counts in the data.

        Returns:
            0 to 11, or an `Unread` code, shape (n,); shape (0,) if unknown.
        """
        whole = self.compute_twelfths()
        if read.kind is ReadKind.ALL:
            return whole
        if read.kind is ReadKind.UNKNOWN or not (len(self.tokens) and len(whole)):
            return make_empty_column()
        lengths = self.tokens
        limit = read.tokens or 0
        is_whole = lengths <= limit
        if is_whole.all():
            return whole
        has_spans = len(self.characters) and len(self.starts)
        if not has_spans or read.part in (Part.SAMPLES, Part.CHUNKS):
            return make_empty_column()
        characters = np.maximum(self.characters, 1)
        starts = self.starts / characters * lengths
        ends = self.ends / characters * lengths if len(self.ends) else starts
        head = limit - read.tokens_at_end
        tail = lengths - read.tokens_at_end
        return np.where(is_whole, whole, locate_in_window(starts, ends, head, tail, limit))

    def map_positives(self) -> dict[str, str]:
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
    counted_with: TokenCountMethod | None = None
    """How tokens were counted, or None if counts were not needed."""

    @classmethod
    def estimate(cls, read: ReadPart, evidence: Evidence, languages: Iterable[str]) -> ReadEvidence:
        """Estimate positions within the window from the token counts in the data.

        `languages` are the language codes of the texts.
        """
        twelfths = evidence.estimate_twelfths(read)
        is_counted = read.kind is ReadKind.PART and len(twelfths)
        return cls(
            read, twelfths, TokenCountMethod.from_languages(languages) if is_counted else None
        )


def locate_in_window(
    starts: Floats, ends: Floats, head: int | Integers, tail: int | Integers, read: int | Integers
) -> Integers:
    """Return the twelfth of the window that contains the middle of each span, or an `Unread` code.

    Args:
        starts: First token of each span, shape (n,); may be fractional.
        ends: One past the last token, shape (n,).
        head: Number of tokens in the window at the start of the document.
        tail: First token at the end of the document that is in the window again, or the document's
            length.
        read: Number of tokens in the window.
    """
    in_tail = starts >= tail
    is_read = (ends <= head) | in_tail
    middle = (starts + ends) / 2 - np.where(in_tail, tail - head, 0)
    shares = np.floor(TWELFTHS * middle / np.maximum(read, 1))
    twelfths = shares.astype(np.int64).clip(0, TWELFTHS - 1)
    is_beyond = (starts >= head) & (ends <= tail)
    return np.select([is_read, is_beyond], [twelfths, Unread.BEYOND], Unread.CUT)
