"""Rotated versions of a text: the same sentences from another beginning, so that evidence moves and
nothing else changes.

A text of units u_1 .. u_n has the versions u_k .. u_n u_1 .. u_(k-1), where k is the border nearest
to none, one and two thirds of its characters. The same evidence then lies in each third of the
text.
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

#: Versions of a text, the text itself included.
VERSIONS = 3
#: Longest heading, in words.
MAX_HEADING_WORDS = 12
MARKDOWN_HEADING = re.compile(r"#{1,6}\s")
#: The end of a sentence: a full stop of any script, or another mark, with closing quotes and
#: brackets behind it.
FINAL_PUNCTUATION = re.compile(r"[.!?,:;…。！？，：；．｡؟؛۔।॥։።၊။។៕][\"'”’»›)\]）」』】]*$")
#: Bytes of the digest that orders texts and chooses among excerpts.
DIGEST_BYTES = 8
#: Tokens of a window that an excerpt leaves free: a token at a seam may be divided.
SPARE_TOKENS = 2
#: Share of a window that an excerpt takes where tokens are estimated.
ESTIMATED_ROOM = 0.8


@dataclass(frozen=True)
class Version:
    """A text that begins at another character, with its beginning moved behind its end."""

    text: str
    number: int
    """0 for the text itself, 1 and 2 for the version that begins about one and two thirds into
    it.
    """
    offset: int = 0
    """First character of the part of the original that is rotated."""
    border: int = 0
    """Character of that part at which the version begins."""
    tail: int = 0
    """Characters of the version before the part that was moved behind it, the seam included."""

    def move(self, span: Span) -> Span:
        """Return where a span of the original is in the version; the version must hold all of
        it.
        """
        start = span.start - self.offset
        end = span.end - self.offset
        shift = -self.border if start >= self.border else self.tail
        return Span(start + shift, min(end + shift, len(self.text)))


def hash_text(text: str) -> int:
    """Return a number of 64 bits that depends on the text alone."""
    return int.from_bytes(blake2b(text.encode(), digest_size=DIGEST_BYTES).digest(), "big")


def find_units(text: str, language: str, evidence: Sequence[Span]) -> list[Span]:
    """Divide a text into the units that a rotation keeps whole.

    Units are sentences. White space belongs to the unit before it, a heading to the unit after it.
    A border within evidence is none.

    Args:
        text: Any text.
        language: Its code, such as `eng-Latn`.
        evidence: The spans of the evidence of all questions about the text.

    Returns:
        Adjacent spans from the first character to the last; one span if the text cannot be divided.
    """
    starts = [span.start for span in find_sentences(text, language)]
    kept = [0]
    for start, border in pairwise([0, *starts[1:]]):
        is_within = any(span.start < border < span.end for span in evidence)
        if not is_within and not _is_heading(text[start:border]):
            kept.append(border)
    return [Span(start, end) for start, end in pairwise([*kept, len(text)])]


def _is_heading(unit: str) -> bool:
    """Tell whether a unit is a line of its own that has the form of a heading."""
    line = unit.strip()
    ends_line = "\n" in unit[len(unit.rstrip()) :]
    if not ends_line or "\n" in line:
        return False
    if MARKDOWN_HEADING.match(line):
        return True
    return len(line.split()) <= MAX_HEADING_WORDS and not FINAL_PUNCTUATION.search(line)


def rotate_text(text: str, units: Sequence[Span], part: Span | None = None) -> list[Version]:
    """Return the versions of a text, or of a part of it that begins and ends with a unit.

    The first version is the text itself, or the part without white space at its end. Of two
    versions that begin at the same border there is one, so that there are one to `VERSIONS` of
    them.
    """
    rotated = text if part is None else part.of(text)
    offset = 0 if part is None else part.start
    starts = [unit.start - offset for unit in units]
    borders = [start for start in starts if 0 <= start < max(1, len(rotated))]
    versions = [Version(text if part is None else rotated.rstrip(), 0, offset)]
    # What separates the last unit from the first one behind it.
    seam = "\n" if "\n" in rotated else " "
    if rotated[-1:].isspace() or (seam == " " and is_unspaced(rotated)):
        seam = ""
    used = {0}
    for number in range(1, VERSIONS):
        share = len(rotated) * number / VERSIONS
        border = min(borders, key=lambda start: abs(start - share))
        if border not in used:
            used.add(border)
            tail = rotated[border:] + seam
            version = (tail + rotated[:border]).rstrip()
            versions.append(Version(version, number, offset, border, len(tail)))
    return versions


def choose_excerpt(
    text: str, units: Sequence[Span], sizes: Sequence[int], room: int, evidence: Sequence[Span]
) -> Span | None:
    """Choose an excerpt of whole units that fits into a window.

    Of the longest runs that fit from each unit on, those with the most evidence whole inside; of
    these, one that depends on the text alone.

    Args:
        text: The text.
        units: Its units.
        sizes: Tokens of each unit.
        room: Tokens that an excerpt may have.
        evidence: Spans of the evidence.

    Returns:
        The excerpt; None if no unit fits.
    """
    ends = np.cumsum(sizes)
    runs = list[Span]()
    for first, unit in enumerate(units):
        before = int(ends[first]) - sizes[first]
        last = bisect_left(ends, before + room + 1) - 1
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
    """Return the middle of each span as a share of a text's tokens, in [0, 1].

    `tokens` are the first and one past the last character of each token, shape (tokens, 2), at
    least one token.
    """
    begins, ends = tokens.T
    starts = np.searchsorted(ends, [span.start for span in spans], side="right")
    stops = np.searchsorted(begins, [span.end for span in spans])
    middles: list[float] = ((starts + stops) / 2 / len(tokens)).tolist()
    return middles
