"""The tokens of a corpus that a retriever reads and does not read: counted by its tokenizer, of
many documents a sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BaseModel, Field

from posir_tasks.base.arrays import Floats, Integers
from posir_tasks.text.words import BYTES_PER_TOKEN
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.profile import MAX_COUNT, format_counts, reading_json
from posir_tasks.values.read_part import UNKNOWN, CountedWith, Part, ReadKind, ReadPart
from posir_tasks.values.result_schema import READ_KEY, SCHEMA, TOKENS_READ_KEY

if TYPE_CHECKING:
    from datasets import Dataset

    from posir_tasks.text.tokenizer import Tokenizer
    from posir_tasks.values.schemes import PositionScheme

#: Most documents of a corpus that are tokenized: a sample of a larger one.
SAMPLE = 2_000


@dataclass(frozen=True, eq=False)
class TokensRead:
    """The tokens of a corpus that are read, and those that are not, by length bucket of the
    document. Sums add.
    """

    read: Integers
    """Shape (L,)."""
    not_read: Integers
    """Shape (L,)."""
    counted_with: CountedWith
    variance: int = 0
    """Variance of the number of tokens not read over samples of documents; 0 without sampling."""

    @property
    def share(self) -> tuple[float, float]:
        """Share of the tokens that is not read, and half the width of its 95% interval over
        samples.
        """
        truncated = self.not_read.sum()
        total = max(int(self.read.sum() + truncated), 1)
        margin = 1.96 * self.variance**0.5 / total
        return float(truncated / total), float(margin)

    def __add__(self, other: TokensRead) -> TokensRead:
        way = max(self.counted_with, other.counted_with, key=list(CountedWith).index)
        return TokensRead(
            self.read + other.read,
            self.not_read + other.not_read,
            way,
            self.variance + other.variance,
        )


class _Stored(BaseModel):
    """The fields of `TokensRead` in a result."""

    read: str
    not_read: str
    counted_with: CountedWith
    variance: Annotated[int, Field(strict=True, ge=0)]


@dataclass(frozen=True)
class CorpusRead:
    """The part of a text that a retriever reads, and the tokens of the corpus in it. Those of one
    model add.
    """

    read: ReadPart = UNKNOWN
    tokens: TokensRead | None = None
    """None if the part is unknown, or the lengths of the documents are."""

    def __add__(self, other: CorpusRead) -> CorpusRead:
        tokens = self.tokens + other.tokens if self.tokens and other.tokens else None
        return CorpusRead(self.read + other.read, tokens)

    def to_json(self) -> dict[str, Any]:
        """Return the fields of a result that hold both."""
        if self.tokens is None:
            return {READ_KEY: self.read.to_json()}
        columns = {name: format_counts(getattr(self.tokens, name)) for name in ("read", "not_read")}
        counts = {
            "schema": SCHEMA,
            **columns,
            "counted_with": self.tokens.counted_with.value,
            "variance": self.tokens.variance,
        }
        return {READ_KEY: self.read.to_json(), TOKENS_READ_KEY: counts}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CorpusRead:
        """Read what `to_json` returned; raise ProfileError if it is damaged, NewerSchemaError if
        newer.
        """
        read = ReadPart.from_json(data.get(READ_KEY, {}))
        stored = data.get(TOKENS_READ_KEY)
        if stored is None:
            return cls(read)
        with reading_json(stored, SCHEMA, field=TOKENS_READ_KEY):
            counts = _Stored.model_validate(stored)
            columns = np.array([counts.read.split(), counts.not_read.split()], np.int64)
            if columns.min(initial=0) < 0 or columns.max(initial=0) > MAX_COUNT:
                raise ValueError(f"a count is not between 0 and {MAX_COUNT:,}")
            read_tokens, truncated = columns
            tokens = TokensRead(read_tokens, truncated, counts.counted_with, counts.variance)
            return cls(read, tokens)


def settle_read_part(
    read: ReadPart, corpus: Dataset, languages: Iterable[str], tokenizer: Tokenizer | None = None
) -> ReadPart:
    """Return that all is read of a corpus, if at least so many tokens are read as its longest
    document has; else `read`.

    Without a tokenizer, English texts have the tokens of the usual estimate, and others at most one
    for each byte.
    """
    min_tokens = read.least_tokens
    if min_tokens is None:
        return read
    names = [name for name in ("title", "text") if name in corpus.column_names]
    texts = (" ".join(filter(None, row.values())).strip() for row in corpus.select_columns(names))
    sizes = {text: len(text.encode("utf-8", "surrogatepass")) for text in texts}
    if tokenizer is not None:
        # No other text can have more tokens.
        long = [text for text, size in sizes.items() if size > min_tokens]
        return read.settle(max(tokenizer.count_all(long)) if long else min_tokens)
    is_english = CountedWith.from_languages(languages) is CountedWith.ESTIMATE
    longest = max(sizes.values(), default=0)
    return read.settle(-(-longest // BYTES_PER_TOKEN) if is_english else longest)


def count_tokens_read(
    scheme: PositionScheme,
    languages: Iterable[str],
    tokenizer: Tokenizer | None,
    further: int,
    corpus: Dataset,
    read: ReadPart,
) -> TokensRead | None:
    """Count the tokens of documents of which a part is read; None if the part is unknown, or one of
    chunks.

    Args:
        scheme: Assigns documents to length buckets, by their estimated tokens: to the same for all
            models.
        languages: Codes of the languages of the documents.
        tokenizer: Counts tokens; without it, or where all is read, they are estimated.
        further: Tokens that are read with every document, such as special tokens and those of a
            prompt.
        corpus: Has the columns `id` and `text`, and may have `title`, which models get before the
            text.
        read: The part of a document that is read.
    """
    import polars as pl

    if read.kind is ReadKind.UNKNOWN or read.part is Part.CHUNKS:
        return None
    names = [name for name in ("title", "text") if name in corpus.column_names]
    texts_of_rows = pl.col(names).cast(pl.String).fill_null("")
    frame = corpus.select_columns(names).to_polars().select(texts_of_rows)
    lengths_of_rows = pl.sum_horizontal(pl.all().str.len_bytes().cast(pl.Int64))
    sizes = frame.select(lengths_of_rows).to_series().to_numpy()
    tokens = -(-sizes // BYTES_PER_TOKEN)
    limit = read.tokens
    way = CountedWith.from_languages(languages)
    weights: Floats | float = 1.0
    lengths = scheme.length_buckets(Evidence(corpus["id"][:], [], tokens=tokens))
    rows = np.arange(len(sizes))
    if tokenizer is not None and limit is not None and sizes.any():
        rows, weights = _sample_documents(sizes)
        joined = pl.concat_str(pl.all(), separator=" ").str.strip_chars()
        texts = frame[rows].select(joined).to_series().to_list()
        tokens = np.array(tokenizer.count_all(texts))
        limit = max(limit - further, 0)
        way = CountedWith.TOKENIZER
    kept = weights * (tokens if limit is None else np.minimum(tokens, limit))
    every = weights * tokens
    bins = len(scheme.axes.lengths)
    buckets = lengths[rows]
    kept_of_bins = np.rint(np.bincount(buckets, kept, bins)).astype(int)
    all_of_bins = np.rint(np.bincount(buckets, every, bins)).astype(int)
    variance = 0.0
    if len(rows) < np.count_nonzero(sizes):
        # Of a systematic sample of a sorted list, by successive differences (Wolter 2007, section
        # 8.2).
        errors = np.diff(kept - kept.sum() / every.sum() * every)
        variance = len(rows) / (len(rows) - 1) / 2 * float(errors @ errors)
    return TokensRead(kept_of_bins, all_of_bins - kept_of_bins, way, round(variance))


def _sample_documents(sizes: Integers) -> tuple[Integers, Floats | float]:
    """Return rows of documents, by size if they are a sample, and how many documents each stands
    for; empty ones are left out.

    The sample is systematic, with probabilities in proportion to the size: long documents have most
    of the tokens.
    """
    rows = np.flatnonzero(sizes)
    if len(rows) <= SAMPLE:
        return rows, 1.0
    order = np.argsort(sizes, kind="stable")
    ends = np.cumsum(sizes[order])
    points = (np.arange(SAMPLE) + 0.5) / SAMPLE
    places, times = np.unique(
        np.searchsorted(ends, points * ends[-1], side="right"), return_counts=True
    )
    return order[places], times * ends[-1] / SAMPLE / sizes[order[places]]
