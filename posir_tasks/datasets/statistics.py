"""Additive dataset statistics in any language: text lengths, query types and positions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import groupby
from operator import attrgetter

import numpy as np
import polars as pl

from posir_tasks.base.arrays import Integers
from posir_tasks.data.data import PositionData
from posir_tasks.datasets.dataset import Subset
from posir_tasks.text.tokenizer import Tokenizer
from posir_tasks.text.words import is_unspaced_language
from posir_tasks.values.profile import PositionProfile, pool
from posir_tasks.values.schemes import AbsolutePositions, LabeledPositions, PositionScheme

#: Sentence-final question marks and interrobangs in Unicode.
QUESTION_MARKS = (
    "?\u037e\u055e\u061f\u1367\u1945\u203d\u2047\u2048\u2049"
    "\u2cfa\u2cfb\u2e2e\u2e54\ua60f\ua6f7\ufe16\ufe56\uff1f\U00011143"
)
#: A final question mark, possibly before quotation marks, brackets and white space. German texts
#: close with initial quotation marks.
QUESTION = rf"[{QUESTION_MARKS}][\p{{Pe}}\p{{Pf}}\p{{Pi}}\"'\s]*$"
#: Maximum number of words in a keyword query.
MAX_KEYWORDS = 5
#: Characters that count as one word in scripts without spaces.
CHARACTERS_PER_WORD = 2
#: Keys of length statistics.
SUMMARY_KEYS = ("mean", "sd", "min", "25", "50", "75", "max")


class QueryType(StrEnum):
    """The type of a query, according to a simple rule on its text."""

    QUESTION = "question"
    """Ends with a question mark."""
    KEYWORDS = "keywords"
    """Up to five words (ten characters in scripts without spaces) without a question mark."""
    STATEMENT = "statement"
    """Any other query."""


@dataclass(frozen=True)
class TextTotals:
    """Number of texts by length, from which all length statistics are computed. Additive."""

    texts: int
    """Number of texts."""
    lengths: Mapping[str, Counter[int] | None]
    """Unit to number of texts by length. Units: `words` (None for scripts without spaces),
    `characters` (Unicode code points), `tokens` (None if not counted).
    """

    @classmethod
    def from_texts(
        cls,
        texts: pl.Series,
        language: str,
        tokenizer: Tokenizer | None = None,
        *,
        at_blanks: bool = False,
    ) -> TextTotals:
        """Measure the lengths of texts.

        Args:
            texts: The texts.
            language: Language of the texts, such as `eng-Latn`.
            tokenizer: Counts tokens, without special tokens.
            at_blanks: Count words with `text.split(" ")`, as in Table 2 of PosQ (arXiv
                2505.13950), instead of `text.split()`.
        """
        words = texts.str.count_matches(r"\S+")
        if at_blanks:
            words = texts.str.count_matches(" ", literal=True) + 1
        tokens = tokenizer.count_all(texts.to_list()) if tokenizer else None
        lengths = {
            "words": None if is_unspaced_language(language) else Counter(words.to_list()),
            "characters": Counter(texts.str.len_chars().to_list()),
            "tokens": None if tokens is None else Counter(tokens),
        }
        return cls(len(texts), lengths)

    def __add__(self, other: TextTotals) -> TextTotals:
        lengths = {}
        for unit, counts in self.lengths.items():
            others = other.lengths[unit]
            lengths[unit] = None if counts is None or others is None else counts + others
        return TextTotals(self.texts + other.texts, lengths)


def summarize_lengths(lengths: Counter[int] | None) -> dict[str, float | None]:
    """Compute mean, population standard deviation, minimum, linearly interpolated quartiles and
    maximum, with the keys `SUMMARY_KEYS`. Values are None if there are no lengths.
    """
    if not lengths:
        return dict.fromkeys(SUMMARY_KEYS)
    distinct, counts = zip(*sorted(lengths.items()), strict=True)
    values = np.repeat(distinct, counts)
    quartiles = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    spread = (values.mean().item(), values.std().item(), distinct[0], *quartiles, distinct[-1])
    return dict(zip(SUMMARY_KEYS, spread, strict=True))


def count_types(queries: pl.Series, language: str) -> Integers:
    """Count the queries of each `QueryType`. Returns an array of shape (3,)."""
    unit = r"\S+"
    max_units = MAX_KEYWORDS
    if is_unspaced_language(language):
        unit = r"\S"
        max_units = MAX_KEYWORDS * CHARACTERS_PER_WORD
    is_question = queries.str.contains(QUESTION)
    is_short = queries.str.count_matches(unit) <= max_units
    types = (is_question, ~is_question & is_short, ~is_question & ~is_short)
    return np.array([rows.sum() for rows in types], np.int64)


#: Language or domain of pooled statistics.
ALL = "all"


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics of one language and domain, or of pooled subsets. Additive."""

    language: str
    """Query language such as `eng-Latn`, and corpus language if it differs; `all` if pooled."""
    domain: str
    documents: TextTotals
    """The corpus."""
    queries: TextTotals
    types: Integers
    """Number of queries of each `QueryType`, shape (3,)."""
    lengths: Counter[int]
    """Number of distinct relevant documents by length."""
    length_unit: str
    """`tokens` if the data contains token counts, else `characters`."""
    positions: PositionProfile
    """Queries by length and position, without ranks."""

    @classmethod
    def from_data(
        cls,
        data: PositionData,
        subset: Subset,
        scheme: PositionScheme,
        tokenizer: Tokenizer | None = None,
    ) -> Statistics:
        """Compute the statistics of a subset."""
        corpus = data.documents
        queries = data.questions["text"]
        evidence = data.evidence
        has_tokens = bool(len(evidence.tokens) or not len(evidence))
        if has_tokens:
            tokens = dict(zip(evidence.document_ids, evidence.tokens.tolist(), strict=True))
            lengths = Counter(tokens.values())
        else:
            relevant = set(evidence.document_ids)
            texts = corpus.filter(pl.col("id").is_in(relevant))["text"]
            lengths = Counter(texts.str.len_chars())
        count = partial(
            TextTotals.from_texts,
            tokenizer=tokenizer,
            at_blanks=isinstance(scheme, AbsolutePositions | LabeledPositions),
        )
        return cls(
            language=subset.language,
            domain=subset.domain,
            documents=count(corpus["text"], subset.corpus_language),
            queries=count(queries, subset.query_language),
            types=count_types(queries, subset.query_language),
            lengths=lengths,
            length_unit="tokens" if has_tokens else "characters",
            positions=PositionProfile.from_ranks(scheme, evidence),
        )

    def __add__(self, other: Statistics) -> Statistics:
        """Pool two subsets; language and domain become `all` if they differ."""
        return replace(
            self,
            language=self.language if self.language == other.language else ALL,
            domain=self.domain if self.domain == other.domain else ALL,
            documents=self.documents + other.documents,
            queries=self.queries + other.queries,
            types=self.types + other.types,
            lengths=self.lengths + other.lengths,
            positions=self.positions + other.positions,
        )

    def count_by_length(self) -> dict[str, int]:
        """Count the distinct queries in each length bucket. Empty if there is only one."""
        lengths = self.positions.axes.lengths
        if len(lengths) == 1:
            return {}
        return dict(zip(lengths, self.positions.queries_by_length.tolist(), strict=True))

    def count_positions(self) -> dict[str, list[int]]:
        """Count the queries in each position bin, for `all` lengths and each length bucket."""
        cells = self.positions.queries_by_cell
        by_length = dict(zip(self.count_by_length(), cells.tolist(), strict=False))
        return {ALL: cells.sum(axis=0).tolist(), **by_length}


def group_by_language(subsets: Iterable[Statistics]) -> list[list[Statistics]]:
    """Group subsets, which must be sorted by language, and add totals.

    A group contains the domains of a language and, if there are several, their total. For several
    languages, the last group contains each domain pooled over languages, and the grand total.
    """
    subsets = list(subsets)
    groups = [list(group) for _, group in groupby(subsets, attrgetter("language"))]
    totals = [pool(group) for group in groups]
    for group, total in zip(groups, totals, strict=True):
        if len(group) > 1:
            group.append(total)
    if len(groups) > 1:
        by_domain = defaultdict(list)
        for subset in subsets:
            by_domain[subset.domain].append(subset)
        domains = [replace(pool(same), language=ALL) for same in by_domain.values()]
        total = replace(pool(totals), domain=ALL)
        groups.append([*domains, total] if len(domains) > 1 else [total])
    return groups
