"""Rotations of a text, which move evidence and keep sentences.

A text with units u_1 .. u_n has the versions u_k .. u_n u_1 .. u_(k-1), where k is the border
nearest to zero, one and two thirds of the characters. The evidence is in a different third in each
version.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

import numpy as np

from posir_tasks.base.arrays import Integers
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import Tokenizer
from posir_tasks.text.words import is_unspaced

#: Number of versions of a text, including the original.
VERSIONS = 3
#: Maximum length of a heading in words.
MAX_HEADING_WORDS = 12
MARKDOWN_HEADING = re.compile(r"#{1,6}\s")
#: Punctuation of any script at the end of a sentence, with closing quotes and brackets.
FINAL_PUNCTUATION = re.compile(r"[.!?,:;…。！？，：；．｡؟؛۔।॥։።၊။។៕][\"'”’»›)\]）」』】]*$")
#: Bytes of the digest that sorts texts and selects excerpts.
DIGEST_BYTES = 8
#: Tokens of a window that an excerpt leaves free, since tokens may split at the seam.
SPARE_TOKENS = 2
#: Share of a window for an excerpt with estimated tokens.
ESTIMATED_ROOM = 0.8


@dataclass(frozen=True)
class Version:
    """A rotation of a text or of a part of it."""

    text: str
    number: int
    """0 for the original, 1 and 2 for a beginning after about one and two thirds."""
    offset: int = 0
    """First character of the rotated part in the original."""
    border: int = 0
    """First character of the version in the rotated part."""
    tail: int = 0
    """Number of characters before the moved beginning, including the seam."""

    def move(self, span: Span) -> Span:
        """Convert a span of the original, which the version contains completely."""
        start = span.start - self.offset
        end = span.end - self.offset
        shift = -self.border if start >= self.border else self.tail
        return Span(start + shift, min(end + shift, len(self.text)))


def hash_text(text: str) -> int:
    """Hash a text to 64 bits, reproducibly."""
    return int.from_bytes(blake2b(text.encode(), digest_size=DIGEST_BYTES).digest(), "big")


def find_units(text: str, language: str, evidence: Sequence[Span]) -> list[Span]:
    """Divide a text into units that rotation keeps together.

    Units are sentences with trailing white space. Headings belong to the next unit, and borders are
    never within evidence.

    Args:
        text: Any text.
        language: The language code, such as `eng-Latn`.
        evidence: Spans of the evidence of all questions about the text.

    Returns:
        Adjacent spans that cover the text; a single span if it cannot be divided.
    """
    starts = [span.start for span in find_sentences(text, language)]
    borders = [0]
    for start, border in pairwise([0, *starts[1:]]):
        is_within = any(span.start < border < span.end for span in evidence)
        if not is_within and not _is_heading(text[start:border]):
            borders.append(border)
    return [Span(start, end) for start, end in pairwise([*borders, len(text)])]


def _is_heading(unit: str) -> bool:
    """Return True if a unit is a line that looks like a heading."""
    line = unit.strip()
    ends_line = "\n" in unit[len(unit.rstrip()) :]
    if not ends_line or "\n" in line:
        return False
    if MARKDOWN_HEADING.match(line):
        return True
    return len(line.split()) <= MAX_HEADING_WORDS and not FINAL_PUNCTUATION.search(line)


def rotate_text(text: str, units: Sequence[Span], part: Span | None = None) -> list[Version]:
    """Build the versions of a text, or of a part that begins and ends with a unit.

    The first version is the original, or the part without trailing white space. Versions with the
    same border are built once, so there are one to `VERSIONS`.
    """
    content = text if part is None else part.of(text)
    offset = 0 if part is None else part.start
    starts = [unit.start - offset for unit in units]
    borders = [start for start in starts if 0 <= start < max(1, len(content))]
    versions = [Version(text if part is None else content.rstrip(), 0, offset)]
    # The separator between the last unit and the moved first unit.
    seam = "\n" if "\n" in content else " "
    if content[-1:].isspace() or (seam == " " and is_unspaced(content)):
        seam = ""
    for number in range(1, VERSIONS):
        target = len(content) * number / VERSIONS
        border = min(borders, key=lambda start: abs(start - target))
        if border not in {version.border for version in versions}:
            tail = content[border:] + seam
            version = (tail + content[:border]).rstrip()
            versions.append(Version(version, number, offset, border, len(tail)))
    return versions


def choose_excerpt(
    text: str, units: Sequence[Span], sizes: Sequence[int], room: int, evidence: Sequence[Span]
) -> Span | None:
    """Select an excerpt of whole units that fits into a window.

    Candidates are the longest runs from each unit. Of those with the most complete evidence, the
    text's hash selects one.

    Args:
        text: The text.
        units: The units of the text.
        sizes: Number of tokens per unit.
        room: Maximum number of tokens of the excerpt.
        evidence: Spans of the evidence.

    Returns:
        The excerpt; None if no unit fits.
    """
    ends = np.cumsum(sizes)
    runs = list[Span]()
    for first, unit in enumerate(units):
        start = int(ends[first]) - sizes[first]
        last = bisect_left(ends, start + room + 1) - 1
        if last >= first:
            runs.append(Span(unit.start, units[last].end))
    if not runs:
        return None
    counts = [
        sum(run.start <= span.start and span.end <= run.end for span in evidence) for run in runs
    ]
    best = [run for run, count in zip(runs, counts, strict=True) if count == max(counts)]
    return best[hash_text(text) % len(best)]


def count_units(text: str, units: Sequence[Span], tokenizer: Tokenizer) -> list[int]:
    """Count the tokens that begin in each unit of a text."""
    (tokens,) = tokenizer.find_tokens([text])
    starts: Integers = tokens[:, 0]
    bounds = np.searchsorted(starts, [unit.start for unit in units] + [len(text)])
    counts: list[int] = np.diff(bounds).tolist()
    return counts


def locate_in_tokens(spans: Sequence[Span], tokens: Integers) -> list[float]:
    """Return the middle of each span as a share of the tokens of a text, in [0, 1].

    `tokens` has the first and one past the last character of each token, shape (tokens, 2), with at
    least one token.
    """
    begins, ends = tokens.T
    starts = np.searchsorted(ends, [span.start for span in spans], side="right")
    stops = np.searchsorted(begins, [span.end for span in spans])
    middles: list[float] = ((starts + stops) / 2 / len(tokens)).tolist()
    return middles
