"""Statistics of a subset of a dataset, with amounts of text and types of queries for any language.
Those of subsets add.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import groupby

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from posir_tasks.base.arrays import Integers
from posir_tasks.data.data import PositionData
from posir_tasks.datasets.dataset import Subset
from posir_tasks.text.tokenizer import Tokenizer
from posir_tasks.text.words import lacks_spaces
from posir_tasks.values.profile import PositionProfile, pool
from posir_tasks.values.schemes import AbsolutePositions, LabeledPositions, PositionScheme

#: Unicode's question marks and interrobangs that end a sentence, of every script.
QUESTION_MARKS = (
    "?\u037e\u055e\u061f\u1367\u1945\u203d\u2047\u2048\u2049"
    "\u2cfa\u2cfb\u2e2e\u2e54\ua60f\ua6f7\ufe16\ufe56\uff1f\U00011143"
)
#: A question mark, and after it nothing but quotation marks, closing brackets and white space.
#: Initial quotation marks count, too: German closes with them.
QUESTION = rf"[{QUESTION_MARKS}][\p{{Pe}}\p{{Pf}}\p{{Pi}}\"'\s]*$"
#: A query of at most this many words, and without a question mark, is keywords.
KEYWORDS = 5
#: Characters counted as one word in scripts without spaces.
CHARACTERS_PER_WORD = 2
#: Statistics of lengths by name; those of no texts are None.
SUMMARY = ("mean", "sd", "min", "25", "50", "75", "max")


class QueryType(StrEnum):
    """Type of a query by its form alone: a rule of posir, not the types of any paper."""

    QUESTION = "question"
    """Ends in a question mark."""
    KEYWORDS = "keywords"
    """Does not end in a question mark, and has at most five words (ten characters in a script
    without spaces).
    """
    STATEMENT = "statement"
    """Everything else."""


@dataclass(frozen=True)
class LengthCounts:
    """Texts counted by their length. Counts add, and all statistics of lengths follow from them."""

    lengths: tuple[int, ...]
    """The distinct lengths, in ascending order."""
    counts: tuple[int, ...]
    """Texts of each length."""

    @classmethod
    def from_lengths(cls, lengths: ArrayLike) -> LengthCounts:
        """Count the lengths of n texts, shape (n,)."""
        distinct, counts = np.unique(np.asarray(lengths, np.int64), return_counts=True)
        return cls(tuple(distinct.tolist()), tuple(counts.tolist()))

    def __add__(self, other: LengthCounts) -> LengthCounts:
        return self.from_lengths(
            np.repeat(self.lengths + other.lengths, self.counts + other.counts)
        )

    @property
    def texts(self) -> int:
        """Number of texts."""
        return sum(self.counts)

    @cached_property
    def summary(self) -> dict[str, float | None]:
        """Mean, standard deviation (divided by n), minimum, quartiles (interpolated linearly) and
        maximum, by `SUMMARY`.
        """
        if not self.lengths:
            return dict.fromkeys(SUMMARY)
        lengths = np.repeat(self.lengths, self.counts)
        spread = (
            self.lengths[0],
            *np.quantile(lengths, (0.25, 0.5, 0.75)).tolist(),
            self.lengths[-1],
        )
        return dict(
            zip(SUMMARY, (float(lengths.mean()), float(lengths.std()), *spread), strict=True)
        )


@dataclass(frozen=True)
class TextTotals:
    """Lengths of texts. Totals add."""

    characters: LengthCounts
    """Unicode code points of each text."""
    words: LengthCounts | None
    """Runs of characters without white space, or what is between blanks; None if some text is in a
    script without spaces.
    """
    tokens: LengthCounts | None = None
    """None without a tokenizer."""

    @classmethod
    def from_texts(
        cls,
        texts: pl.Series,
        language: str,
        tokenizer: Tokenizer | None = None,
        *,
        at_blanks: bool = False,
    ) -> TextTotals:
        """Measure the texts of one language, such as `eng-Latn`; tokens without special tokens.

        Words are runs without white space, or `text.split(" ")`, as in Table 2 of PosQ (arXiv
        2505.13950).
        """
        spaced = not lacks_spaces(language)
        if at_blanks:
            words = texts.str.count_matches(" ", literal=True) + 1
        else:
            words = texts.str.count_matches(r"\S+")
        return cls(
            LengthCounts.from_lengths(texts.str.len_chars().to_numpy()),
            LengthCounts.from_lengths(words.to_numpy()) if spaced else None,
            LengthCounts.from_lengths(tokenizer.count_all(texts.to_list())) if tokenizer else None,
        )

    def __add__(self, other: TextTotals) -> TextTotals:
        words = None if self.words is None or other.words is None else self.words + other.words
        tokens = None if self.tokens is None or other.tokens is None else self.tokens + other.tokens
        return TextTotals(self.characters + other.characters, words, tokens)

    @property
    def texts(self) -> int:
        """Number of texts."""
        return self.characters.texts

    @property
    def units(self) -> dict[str, LengthCounts | None]:
        """The lengths by the name of their unit."""
        return {"words": self.words, "characters": self.characters, "tokens": self.tokens}


def count_types(queries: pl.Series, language: str) -> Integers:
    """Return the number of queries of each `QueryType`, shape (3,)."""
    unit = r"\S+"
    most = KEYWORDS
    if lacks_spaces(language):
        unit = r"\S"
        most = KEYWORDS * CHARACTERS_PER_WORD
    short = queries.str.count_matches(unit) <= most
    question = queries.str.contains(QUESTION)
    return np.array(
        [question.sum(), (~question & short).sum(), (~question & ~short).sum()], np.int64
    )


#: Schemes of the datasets of PosQ, whose authors count words at blanks.
POSQ_SCHEMES = (AbsolutePositions, LabeledPositions)
#: Language or domain of pooled statistics.
ALL = "all"


@dataclass(frozen=True, eq=False)
class Statistics:
    """Statistics of one language and domain of a dataset, or of several pooled."""

    language: str
    """Language of the queries, such as `eng-Latn`, then that of the corpus if it differs; `all` if
    several are pooled.
    """
    domain: str
    documents: TextTotals
    """The corpus."""
    queries: TextTotals
    types: Integers
    """Queries of each `QueryType`, shape (3,)."""
    lengths: LengthCounts
    """Lengths of the distinct relevant documents."""
    length_unit: str
    """`tokens` if the data states them, else `characters`."""
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
        """Compute the statistics of one subset, with tokens of its texts if a tokenizer is
        given.
        """
        corpus = data.corpus.to_polars()
        queries = data.queries.to_polars()["text"]
        evidence = data.evidence
        documents = pl.Series("id", evidence.document_ids, pl.String)
        has_tokens = bool(len(evidence.tokens) or not len(evidence))
        at_blanks = isinstance(scheme, POSQ_SCHEMES)
        if has_tokens:
            lengths = pl.DataFrame({"id": documents, "length": evidence.tokens}).unique("id")[
                "length"
            ]
        else:
            lengths = corpus.filter(pl.col("id").is_in(documents.implode()))["text"].str.len_chars()
        return cls(
            language=subset.language,
            domain=subset.domain,
            documents=TextTotals.from_texts(
                corpus["text"], subset.corpus_language, tokenizer, at_blanks=at_blanks
            ),
            queries=TextTotals.from_texts(
                queries, subset.query_language, tokenizer, at_blanks=at_blanks
            ),
            types=count_types(queries, subset.query_language),
            lengths=LengthCounts.from_lengths(lengths.to_numpy()),
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

    def queries_by_length(self) -> dict[str, int]:
        """Return the number of distinct queries of each length bucket; empty if there is only one
        bucket.
        """
        lengths = self.positions.axes.lengths
        if len(lengths) > 1:
            return dict(zip(lengths, self.positions.queries_by_length.tolist(), strict=True))
        return {}

    def histogram(self) -> dict[str, list[int]]:
        """Return the queries of each position bin, for `all` lengths and for each length bucket."""
        cells = self.positions.queries_by_cell
        by_length = {
            name: cells[index].tolist() for index, name in enumerate(self.queries_by_length())
        }
        return {ALL: cells.sum(axis=0).tolist(), **by_length}


def group_by_language(subsets: Iterable[Statistics]) -> list[list[Statistics]]:
    """Group statistics, ordered by language: its domains and their total, then the total of all; no
    total of one.
    """
    groups = [list(group) for _, group in groupby(subsets, key=lambda subset: subset.language)]
    totals = [pool(group) for group in groups]
    shown = [
        [*group, total] if len(group) > 1 else group
        for group, total in zip(groups, totals, strict=True)
    ]
    return [*shown, [replace(pool(totals), domain=ALL)]] if len(groups) > 1 else shown
