"""A cheap check that documents of two languages that share an id are translations of each other.

Ids pair the queries of one language with the corpus of another. If they are wrong, as are numbers
in the order of two files of which one lacks a document, every cross-lingual score is wrong and
nothing else shows it.
"""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import polars as pl

#: Largest number of documents whose texts are compared: at even distances in the order of the
#: queries.
MAX_COMPARED = 250
#: Fewer texts that can be compared decide nothing.
MIN_COMPARED = 6
#: As many consecutive mismatches are a warning. Of XQuAD's translations into six languages, none
#: has more than one.
LONG_RUN = 6
#: Fewer lengths, or lengths that vary less (standard deviation of their logarithms), decide
#: nothing.
MIN_LENGTHS = 30
MIN_SPREAD = 0.2
#: Correlation of the logarithms of lengths that translations exceed. XQuAD's have 0.93 (Chinese) to
#: 0.99.
MIN_CORRELATION = 0.5
#: Standard errors of a correlation, after Fisher's transformation, by which it must fall short.
CERTAINTY = 3.1

_LATIN = "A-Za-z\u00c0-\u024f\u1e00-\u1eff"
#: Numbers, and words of three or more letters A to Z: what translations share, in particular names.
SHARED_TOKEN = re.compile(rf"\d+|(?<![{_LATIN}])[A-Za-z]{{3,}}(?![{_LATIN}])")

ADVICE = (
    "A cross-lingual task needs the same id for a document in both languages: import both again "
    "from files whose questions have the same ids (`posir import`), or name the documents "
    "(`document` in JSON Lines, `_id` in BEIR folders)"
)


@dataclass(frozen=True)
class PairAgreement:
    """Agreement of documents with the same id, over the relevant documents of one language."""

    matches: tuple[tuple[str, bool], ...]
    """Document id, and whether no other document shares more; those that share nothing with any are
    left out.
    """
    length_correlation: float | None
    """Correlation of the logarithms of lengths in characters; None if too few or too similar."""
    lengths: int
    """Number of lengths that are compared."""

    @property
    def is_mispaired(self) -> bool:
        """Whether documents with one id are certainly not translations of each other."""
        if len(self.matches) >= MIN_COMPARED:
            return 2 * self._matched < len(self.matches)
        if self.length_correlation is None:
            return False
        margin = CERTAINTY / math.sqrt(self.lengths - 3)
        return math.atanh(self.length_correlation) + margin < math.atanh(MIN_CORRELATION)

    @property
    def mismatched_run(self) -> list[str]:
        """Ids of the longest run of consecutive documents that share more with another."""
        longest = list[str]()
        for is_match, run in groupby(self.matches, lambda match: match[1]):
            names = [name for name, _ in run]
            if not is_match and len(names) > len(longest):
                longest = names
        return longest

    @property
    def _matched(self) -> int:
        return sum(is_match for _, is_match in self.matches)

    def __str__(self) -> str:
        parts = []
        if self.matches:
            parts.append(
                f"for {self._matched:,} of {len(self.matches):,} documents, the one of the same id "
                "is that which shares most numbers and names"
            )
        if self.length_correlation is not None:
            parts.append(
                f"lengths correlate by {self.length_correlation:.2f}, those of translations by "
                "more than 0.9"
            )
        return "; ".join(parts)


def compare_documents(pairs: pl.DataFrame) -> PairAgreement:
    """Compare documents of two languages that share an id.

    Args:
        pairs: A row for each id: `id`, `text` and `characters` of the document, and `other_text` in
            the other language. `text` may be null.
    """
    lengths = pairs["other_text"].str.len_chars().to_numpy()
    correlation = correlate_lengths(pairs["characters"].to_numpy(), lengths)
    distance = max(1, -(-len(pairs) // MAX_COMPARED))
    sample = pairs.drop_nulls("text").gather_every(distance)
    matches = match_texts(sample["text"].to_list(), sample["other_text"].to_list())
    compared = zip(sample["id"], matches, strict=True)
    found = tuple((name, is_match) for name, is_match in compared if is_match is not None)
    return PairAgreement(found, correlation, len(pairs))


def correlate_lengths(lengths: np.ndarray, others: np.ndarray) -> float | None:
    """Return the correlation of the logarithms of lengths, None if they are too few or vary too
    little.
    """
    logarithms = np.log([lengths, others])
    if len(lengths) < MIN_LENGTHS or logarithms.std(axis=1).min() < MIN_SPREAD:
        return None
    return float(np.corrcoef(logarithms)[0, 1].clip(-0.9999, 0.9999))


def match_texts(texts: Sequence[str], others: Sequence[str]) -> list[bool | None]:
    """Return for each text whether the one at its place shares most with it, of all others; None if
    none shares anything.

    Shared tokens count by how rare they are in both languages; those in more than a tenth of the
    texts do not.
    """
    limit = max(2, len(texts) // 10)
    sides = [[find_tokens(text) for text in texts], [find_tokens(text) for text in others]]
    places: list[dict[str, list[int]]] = []
    for side in sides:
        found = defaultdict(list)
        for place, tokens in enumerate(side):
            for token in tokens:
                found[token].append(place)
        places.append({token: rows for token, rows in found.items() if len(rows) <= limit})
    matches: list[bool | None] = []
    for place, tokens in enumerate(sides[0]):
        shared: dict[int, float] = defaultdict(float)
        for token in tokens & places[0].keys() & places[1].keys():
            rows = places[1][token]
            weight = 1 / (len(places[0][token]) * len(rows))
            for other in rows:
                shared[other] += weight
        best = max(shared.values(), default=0.0)
        matches.append(shared[place] >= best - 1e-9 if best else None)
    return matches


def find_tokens(text: str) -> set[str]:
    """Return the numbers and Latin words of a text; numbers in any script's digits, words without
    case.
    """
    tokens = SHARED_TOKEN.findall(text)
    return {str(int(token)) if token.isdecimal() else token.casefold() for token in tokens}
