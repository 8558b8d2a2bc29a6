"""Character spans in a text."""

from __future__ import annotations

from typing import NamedTuple

#: The characters that `str.strip` removes.
WHITESPACE = "".join(filter(str.isspace, map(chr, range(0x3001))))


class UnlocatedError(ValueError):
    """Evidence is missing from its document, or occurs several times."""


class Span(NamedTuple):
    """A half-open range of characters (Unicode code points from 0)."""

    start: int
    end: int
    """One past the last character."""

    @property
    def middle(self) -> float:
        """Midpoint in characters."""
        return (self.start + self.end) / 2

    def slice(self, text: str) -> str:
        """Return the part of a text in the span."""
        return text[self.start : self.end]

    def overlaps(self, other: Span) -> bool:
        """Return True if the spans share a character."""
        return self.start < other.end and other.start < self.end

    def strip(self, text: str) -> Span:
        """Return the span without surrounding white space."""
        content = self.slice(text)
        start = self.start + len(content) - len(content.lstrip())
        return Span(start, start + len(content.strip()))


def find_third(span: Span, characters: int) -> int:
    """Return the third of a text (0, 1 or 2) that contains the midpoint of a span."""
    return min(2, int(span.middle * 3 / characters))


def to_characters(content: bytes, start: int, end: int) -> Span:
    """Convert a span of UTF-8 bytes to characters; raise UnlocatedError if it is invalid."""
    if not 0 <= start < end <= len(content):
        raise UnlocatedError("its byte span is not within its document")
    try:
        first = len(content[:start].decode())
        return Span(first, first + len(content[start:end].decode()))
    except UnicodeDecodeError:
        raise UnlocatedError("its byte span splits a character") from None
