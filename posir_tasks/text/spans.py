"""Positions in a text."""

from __future__ import annotations

from typing import NamedTuple

#: The characters that `str.strip` removes.
WHITESPACE = "".join(filter(str.isspace, map(chr, range(0x3001))))


class UnlocatedError(ValueError):
    """Evidence is not in its document, or not once."""


class Span(NamedTuple):
    """A half-open range of a text's characters, Unicode code points from 0."""

    start: int
    end: int
    """One past the last character."""

    @property
    def middle(self) -> float:
        """Its midpoint, in characters."""
        return (self.start + self.end) / 2

    def of(self, text: str) -> str:
        """Return the characters of a text in this range."""
        return text[self.start : self.end]

    def stripped(self, text: str) -> Span:
        """Return the range without the white space at both ends of what it holds of a text."""
        content = self.of(text)
        start = self.start + len(content) - len(content.lstrip())
        return Span(start, start + len(content.strip()))


def find_third(span: Span, characters: int) -> int:
    """Return the third, 0 to 2, of a text of that many characters that holds the midpoint of a
    span.
    """
    return min(2, int(span.middle * 3 / characters))


def to_characters(content: bytes, start: int, end: int) -> Span:
    """Return the characters of a span of bytes of UTF-8; raise UnlocatedError if it is outside,
    empty or divides a character.
    """
    if not 0 <= start < end <= len(content):
        raise UnlocatedError("its span of bytes is not within its document")
    try:
        first = len(content[:start].decode())
        return Span(first, first + len(content[start:end].decode()))
    except UnicodeDecodeError:
        raise UnlocatedError("its span of bytes divides a character") from None
