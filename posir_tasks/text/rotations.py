"""Text rotations, which move the evidence and keep sentences intact.

A text with units u_1 .. u_n has the versions u_k .. u_n u_1 .. u_(k-1), where u_k is the unit that
begins closest to 0, 1/3 or 2/3 of the characters. The evidence is in a different third of each
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
#: Digest size in bytes. The digest sorts texts and selects excerpts.
DIGEST_BYTES = 8
#: Tokens that an excerpt leaves unused in the window, since tokens may split at the seam.
SPARE_TOKENS = 2
#: Share of the window that an excerpt may fill if its tokens are estimated.
ESTIMATED_ROOM = 0.8


@dataclass(frozen=True)
class Version:
    """A rotation of a text or of a part of it."""

    text: str
    number: int
    """0 for the original; 1 and 2 for versions that begin about one third and two thirds into it.
    """
    offset: int = 0
    """Offset of the rotated part in the original, in characters."""
    border: int = 0
    """Offset of the version's first character in the rotated part."""
    tail: int = 0
    """Number of characters before the moved beginning, including the seam."""

    def move(self, span: Span) -> Span:
        """Convert a span from the original to this version, which must contain the whole span."""
        start = span.start - self.offset
        end = span.end - self.offset
        shift = -self.border if start >= self.border else self.tail
        return Span(start + shift, min(end + shift, len(self.text)))


def hash_text(text: str) -> int:
    """Hash a text to 64 bits, reproducibly."""
    return int.from_bytes(blake2b(text.encode(), digest_size=DIGEST_BYTES).digest(), "big")


def find_units(text: str, language: str, evidence: Sequence[Span]) -> list[Span]:
    """Split a text into units that a rotation keeps intact.

    Units are sentences with trailing white space. A heading belongs to the unit that follows, and
    no border lies within evidence.

    Args:
        text: Any text.
        language: The language code, such as `eng-Latn`.
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
    """Build the versions of a text, or of a part that begins and ends with a unit.

    The first version is the original, or the part without trailing white space. Versions with the
    same border are built once, so the list contains 1 to `VERSIONS` versions.
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

    The candidates are the longest runs that start at each unit. A hash of the text selects one of
    the candidates that contain the most evidence spans.

    Args:
        text: The text.
        units: The units of the text.
        sizes: Tokens per unit.
        room: Maximum number of tokens in the excerpt.
        evidence: Evidence spans.

    Returns:
        The excerpt; None if no unit fits.
    """
    ends = np.cumsum(sizes)
    # For each unit, the index after the last unit of its run.
    stops = np.searchsorted(ends, ends - sizes + room, side="right").tolist()
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
    """Count the tokens that begin in each unit of a text."""
    (tokens,) = tokenizer.find_tokens([text])
    bounds = np.searchsorted(tokens[:, 0], [*(unit.start for unit in units), len(text)])
    counts: list[int] = np.diff(bounds).tolist()
    return counts


def locate_in_tokens(spans: Sequence[Span], tokens: Integers) -> list[float]:
    """Return the midpoint of each span as a fraction of the text's tokens, in [0, 1].

    `tokens` contains the half-open character span of each token, shape (tokens, 2), and is not
    empty.
    """
    begins, ends = tokens.T
    starts = np.searchsorted(ends, [span.start for span in spans], side="right")
    stops = np.searchsorted(begins, [span.end for span in spans])
    middles: list[float] = ((starts + stops) / 2 / len(tokens)).tolist()
    return middles
