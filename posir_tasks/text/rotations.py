"""Rotate texts to move the evidence without splitting sentences.

A text with units u_1 .. u_n has the versions u_k .. u_n u_1 .. u_(k-1), where u_k is the unit that
starts closest to 0, 1/3 or 2/3 of the characters. The evidence is in a different third of each
version.
"""

from __future__ import annotations

import re
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

#: Versions per text, including the original.
VERSIONS = 3
#: Maximum length of a heading in words.
MAX_HEADING_WORDS = 12
MARKDOWN_HEADING = re.compile(r"#{1,6}\s")
#: Sentence-final punctuation in any script, with closing quotes and brackets.
FINAL_PUNCTUATION = re.compile(r"[.!?,:;…。！？，：；．｡؟؛۔।॥։።၊။។៕][\"'”’»›)\]）」』】]*$")
#: Size in bytes of the digest that sorts texts and selects excerpts.
DIGEST_BYTES = 8
#: Number of tokens to leave unused in the window, since the seam may split tokens.
SPARE_TOKENS = 2
#: Maximum share of the window to fill if tokens are estimated.
ESTIMATED_ROOM = 0.8


@dataclass(frozen=True)
class Version:
    """A rotation of a text or of a part of it."""

    text: str
    number: int
    """0 for the original; 1 and 2 for versions that start about one and two thirds into it.
    """
    offset: int = 0
    """Offset of the rotated part in the original, in characters."""
    border: int = 0
    """Offset in the rotated part at which the version starts."""
    tail: int = 0
    """Number of characters before the moved beginning, including the seam."""

    def move(self, span: Span) -> Span:
        """Convert a span in the original to this version, which must contain it completely."""
        start = span.start - self.offset
        end = span.end - self.offset
        shift = -self.border if start >= self.border else self.tail
        return Span(start + shift, min(end + shift, len(self.text)))


def hash_text(text: str) -> int:
    """Compute a reproducible 64-bit hash of a text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=DIGEST_BYTES).digest(), "big")


def find_units(text: str, language: str, evidence: Sequence[Span]) -> list[Span]:
    """Split a text into units that rotations do not split.

    Units are sentences with trailing white space. A heading belongs to the next unit, and evidence
    is never split.

    Args:
        text: Any text.
        language: Language code such as `eng-Latn`.
        evidence: Evidence spans of all questions about the text.

    Returns:
        Adjacent spans that cover the text; a single span if it cannot be split.
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
    if "\n" not in unit[len(unit.rstrip()) :] or "\n" in line:
        return False
    if MARKDOWN_HEADING.match(line):
        return True
    return len(line.split()) <= MAX_HEADING_WORDS and not FINAL_PUNCTUATION.search(line)


def rotate_text(text: str, units: Sequence[Span], part: Span | None = None) -> list[Version]:
    """Build the versions of a text, or of a part that starts and ends with a unit.

    The first version is the original, or the part without trailing white space. Versions with equal
    borders are built once, so there are 1 to `VERSIONS` versions.
    """
    content = text if part is None else part.slice(text)
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
    text: str,
    units: Sequence[Span],
    sizes: Sequence[int],
    max_tokens: int,
    evidence: Sequence[Span],
) -> Span | None:
    """Select an excerpt of whole units that fits into a window.

    A candidate is the longest run of units from each start. Of the candidates with the most
    evidence spans, a hash of the text selects one.

    Args:
        text: The text.
        units: The units of the text.
        sizes: Tokens per unit.
        max_tokens: Maximum number of tokens in the excerpt.
        evidence: Evidence spans.

    Returns:
        The excerpt, or None if no unit fits.
    """
    ends = np.cumsum(sizes)
    # Index after the last unit of each run.
    stops = np.searchsorted(ends, ends - sizes + max_tokens, side="right").tolist()
    runs = [
        Span(unit.start, units[stop - 1].end)
        for first, (unit, stop) in enumerate(zip(units, stops, strict=True))
        if stop > first
    ]
    counts = [
        sum(run.start <= span.start and span.end <= run.end for span in evidence) for run in runs
    ]
    best = [run for run, count in zip(runs, counts, strict=True) if count == max(counts)]
    return best[hash_text(text) % len(best)] if best else None


def count_units(text: str, units: Sequence[Span], tokenizer: Tokenizer) -> list[int]:
    """Count the tokens that start in each unit of a text."""
    (tokens,) = tokenizer.find_tokens([text])
    bounds = np.searchsorted(tokens[:, 0], [*(unit.start for unit in units), len(text)])
    counts: list[int] = np.diff(bounds).tolist()
    return counts


def locate_in_tokens(spans: Sequence[Span], tokens: Integers) -> list[float]:
    """Return the midpoint of each span in tokens, as a share of the text's tokens in [0, 1].

    `tokens` contains the half-open character spans of the tokens, shape (tokens, 2). It must not be
    empty.
    """
    begins, ends = tokens.T
    starts = np.searchsorted(ends, [span.start for span in spans], side="right")
    stops = np.searchsorted(begins, [span.end for span in spans])
    middles: list[float] = ((starts + stops) / 2 / len(tokens)).tolist()
    return middles
