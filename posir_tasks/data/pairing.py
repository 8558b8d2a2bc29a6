"""Check cheaply that documents with the same id in two languages are translations.

Cross-lingual retrieval pairs the queries of one language with the corpus of another by id. Wrong
ids silently invalidate all scores, for example line numbers if a document is missing in one file.
"""

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import polars as pl

#: Maximum number of documents to compare, at equal distances in query order.
MAX_COMPARED = 250
#: Minimum number of comparable texts for a decision.
MIN_COMPARED = 6
#: Number of consecutive mismatches that triggers a warning. XQuAD's translations into six languages
#: have at most one.
LONG_RUN = 6
#: Minimum number of lengths, and minimum standard deviation of log lengths, for a decision.
MIN_LENGTHS = 30
MIN_SPREAD = 0.2
#: Minimum correlation of log lengths of translations. XQuAD has 0.93 (Chinese) to 0.99.
MIN_CORRELATION = 0.5
#: Required distance below `MIN_CORRELATION` in standard errors, after Fisher's transformation.
CERTAINTY = 3.1

_LATIN = "A-Za-z\u00c0-\u024f\u1e00-\u1eff"
#: Tokens that translations share: numbers, and words of three or more ASCII letters (names).
SHARED_TOKEN = re.compile(rf"\d+|(?<![{_LATIN}])[A-Za-z]{{3,}}(?![{_LATIN}])")

ADVICE = (
    "A cross-lingual task needs the same document ids in both languages: import both again "
    "from files whose questions have the same ids (`posir import`), or name the documents "
    "(`document` in JSON Lines, `_id` in BEIR folders)"
)


@dataclass(frozen=True)
class PairAgreement:
    """Agreement of relevant documents with the same id in two languages."""

    matches: tuple[tuple[str, bool], ...]
    """Document id, and True if no other document shares more tokens than the one with the same id.
    Documents without shared tokens are omitted.
    """
    length_correlation: float | None
    """Correlation of log lengths in characters; None for too few or too similar lengths."""
    lengths: int
    """Number of compared lengths."""

    @property
    def is_mispaired(self) -> bool:
        """True if the documents are certainly not translations."""
        if len(self.matches) >= MIN_COMPARED:
            return 2 * self._matched < len(self.matches)
        if self.length_correlation is None:
            return False
        margin = CERTAINTY / math.sqrt(self.lengths - 3)
        return math.atanh(self.length_correlation) + margin < math.atanh(MIN_CORRELATION)

    @property
    def mismatched_run(self) -> list[str]:
        """Ids of the longest run of mismatches."""
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
        clauses = []
        if self.matches:
            clauses.append(
                f"for {self._matched:,} of {len(self.matches):,} documents, the document with the "
                "same id shares the most numbers and names"
            )
        if self.length_correlation is not None:
            clauses.append(
                f"the lengths have a correlation of {self.length_correlation:.2f}; translations "
                "have more than 0.9"
            )
        return "; ".join(clauses)


def compare_documents(pairs: pl.DataFrame) -> PairAgreement:
    """Compare documents with the same id in two languages.

    Args:
        pairs: A row per id: `id`, `text` and `characters` of the document, and `other_text` in
            the other language. `text` may be null.
    """
    lengths = pairs["other_text"].str.len_chars().to_numpy()
    correlation = correlate_lengths(pairs["characters"].to_numpy(), lengths)
    distance = max(1, -(-len(pairs) // MAX_COMPARED))
    sample = pairs.drop_nulls("text").gather_every(distance)
    matches = match_texts(sample["text"].to_list(), sample["other_text"].to_list())
    rows = zip(sample["id"], matches, strict=True)
    clear_matches = tuple((name, is_match) for name, is_match in rows if is_match is not None)
    return PairAgreement(clear_matches, correlation, len(pairs))


def correlate_lengths(lengths: np.ndarray, others: np.ndarray) -> float | None:
    """Return the correlation of log lengths; None for too few or too similar lengths."""
    logarithms = np.log([lengths, others])
    if len(lengths) < MIN_LENGTHS or logarithms.std(axis=1).min() < MIN_SPREAD:
        return None
    return float(np.corrcoef(logarithms)[0, 1].clip(-0.9999, 0.9999))


def match_texts(texts: Sequence[str], others: Sequence[str]) -> list[bool | None]:
    """Match each text with all texts in the other language by shared tokens.

    Tokens are weighted by their rarity in both languages. Tokens in more than a tenth of the texts
    are ignored.

    Returns:
        For each text, True if the text with the same index is the best match, and None if no text
        shares a token.
    """
    limit = max(2, len(texts) // 10)
    tokens_by_row = [find_tokens(text) for text in texts]
    index = _index_rows(tokens_by_row, limit)
    other_index = _index_rows([find_tokens(text) for text in others], limit)
    matches = []
    for row, tokens in enumerate(tokens_by_row):
        scores: dict[int, float] = defaultdict(float)
        for token in tokens & index.keys() & other_index.keys():
            rows = other_index[token]
            weight = 1 / (len(index[token]) * len(rows))
            for other in rows:
                scores[other] += weight
        best = max(scores.values(), default=0.0)
        matches.append(scores[row] >= best - 1e-9 if best else None)
    return matches


def _index_rows(tokens_by_row: Sequence[set[str]], limit: int) -> dict[str, list[int]]:
    """Map each token to the rows that contain it. Tokens in more than `limit` rows are ignored."""
    index = defaultdict(list)
    for row, tokens in enumerate(tokens_by_row):
        for token in tokens:
            index[token].append(row)
    return {token: rows for token, rows in index.items() if len(rows) <= limit}


def find_tokens(text: str) -> set[str]:
    """Return the numbers in any script and the case-folded ASCII words in a text."""
    tokens = SHARED_TOKEN.findall(text)
    return {str(int(token)) if token.isdecimal() else token.casefold() for token in tokens}
