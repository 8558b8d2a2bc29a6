"""Count the read and truncated tokens of a corpus in a tokenized sample of documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BaseModel, Field

from posir_tasks.base.arrays import Floats, Integers
from posir_tasks.text.words import BYTES_PER_TOKEN
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.profile import MAX_COUNT, format_counts, validate_json
from posir_tasks.values.read_part import UNKNOWN, Part, ReadKind, ReadPart, TokenCountMethod
from posir_tasks.values.result_schema import READ_KEY, SCHEMA, TOKENS_READ_KEY

if TYPE_CHECKING:
    import polars as pl

    from posir_tasks.text.tokenizer import Tokenizer
    from posir_tasks.values.schemes import PositionScheme

#: Maximum number of documents to tokenize.
SAMPLE = 2_000


@dataclass(frozen=True, eq=False)
class TokensRead:
    """Additive counts of read and truncated tokens in a corpus, by length bucket."""

    read: Integers
    """Read tokens, shape (L,)."""
    not_read: Integers
    """Truncated tokens, shape (L,)."""
    counted_with: TokenCountMethod
    variance: int = 0
    """Variance of the number of truncated tokens between samples of documents, or 0 if all
    documents were counted.
    """

    @property
    def share(self) -> tuple[float, float]:
        """Share of truncated tokens, in [0, 1], and half the width of its 95% interval."""
        truncated_tokens = self.not_read.sum()
        total = max(int(self.read.sum() + truncated_tokens), 1)
        margin = 1.96 * self.variance**0.5 / total
        return float(truncated_tokens / total), float(margin)

    def __add__(self, other: TokensRead) -> TokensRead:
        method = max(self.counted_with, other.counted_with, key=list(TokenCountMethod).index)
        return TokensRead(
            self.read + other.read,
            self.not_read + other.not_read,
            method,
            self.variance + other.variance,
        )


class _TokensReadFields(BaseModel):
    """The stored fields of `TokensRead`."""

    read: str
    not_read: str
    counted_with: TokenCountMethod
    variance: Annotated[int, Field(strict=True, ge=0)]


@dataclass(frozen=True)
class CorpusRead:
    """The window of a retriever and its token counts on a corpus; additive for one model."""

    read: ReadPart = UNKNOWN
    tokens: TokensRead | None = None
    """None if the window or the document lengths are unknown."""

    def __add__(self, other: CorpusRead) -> CorpusRead:
        tokens = self.tokens + other.tokens if self.tokens and other.tokens else None
        return CorpusRead(self.read + other.read, tokens)

    def to_json(self) -> dict[str, Any]:
        """Return the fields of a result file."""
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
        """Read the output of `to_json`.

        Raises:
            ProfileError: A field is damaged.
            NewerSchemaError: A newer version of posir wrote it.
        """
        read = ReadPart.from_json(data.get(READ_KEY, {}))
        fields = data.get(TOKENS_READ_KEY)
        if fields is None:
            return cls(read)
        with validate_json(fields, SCHEMA, field=TOKENS_READ_KEY):
            counts = _TokensReadFields.model_validate(fields)
            columns = np.array([counts.read.split(), counts.not_read.split()], np.int64)
            if columns.min(initial=0) < 0 or columns.max(initial=0) > MAX_COUNT:
                raise ValueError(f"a count is not between 0 and {MAX_COUNT:,}")
            read_tokens, truncated_tokens = columns
            tokens = TokensRead(read_tokens, truncated_tokens, counts.counted_with, counts.variance)
            return cls(read, tokens)


def resolve_window(
    read: ReadPart,
    corpus: pl.DataFrame,
    languages: Iterable[str],
    tokenizer: Tokenizer | None = None,
) -> ReadPart:
    """Return a window of whole texts if the longest document fits into a known minimum.

    Without a tokenizer, the tokens of English texts are estimated. Other texts count one token per
    byte, an upper bound.
    """
    min_tokens = read.least_tokens
    if min_tokens is None:
        return read
    columns = [corpus[name] for name in ("title", "text") if name in corpus.columns]
    texts = (" ".join(filter(None, parts)).strip() for parts in zip(*columns, strict=True))
    sizes = {text: len(text.encode("utf-8", "surrogatepass")) for text in texts}
    if tokenizer is not None:
        # A text has no more tokens than bytes, so shorter texts fit.
        long = [text for text, size in sizes.items() if size > min_tokens]
        return read.resolve(max(tokenizer.count_all(long)) if long else min_tokens)
    is_english = TokenCountMethod.from_languages(languages) is TokenCountMethod.ESTIMATE
    longest = max(sizes.values(), default=0)
    return read.resolve(-(-longest // BYTES_PER_TOKEN) if is_english else longest)


def count_tokens_read(
    scheme: PositionScheme,
    languages: Iterable[str],
    tokenizer: Tokenizer | None,
    added_tokens: int,
    corpus: pl.DataFrame,
    read: ReadPart,
) -> TokensRead | None:
    """Count the read and truncated tokens of a corpus; None for an unknown window and for chunks.

    Args:
        scheme: Assigns documents to length buckets by estimated tokens, equal for all models.
        languages: Language codes of the documents.
        tokenizer: The model's tokenizer. Tokens are estimated without a tokenizer, or if nothing is
            truncated.
        added_tokens: Number of special and prompt tokens that the model reads with every document.
        corpus: Columns `id`, `text` and optionally `title`, which is prepended to the text.
        read: The window.
    """
    import polars as pl

    if read.kind is ReadKind.UNKNOWN or read.part is Part.CHUNKS:
        return None
    names = [name for name in ("title", "text") if name in corpus.columns]
    frame = corpus.select(pl.col(names).cast(pl.String).fill_null(""))
    bytes_per_row = pl.sum_horizontal(pl.all().str.len_bytes().cast(pl.Int64))
    sizes = frame.select(bytes_per_row).to_series().to_numpy()
    tokens = -(-sizes // BYTES_PER_TOKEN)
    limit = read.tokens
    method = TokenCountMethod.from_languages(languages)
    weights: Floats | float = 1.0
    lengths = scheme.length_buckets(Evidence(corpus["id"].to_list(), [], tokens=tokens))
    rows = np.arange(len(sizes))
    if tokenizer is not None and limit is not None and sizes.any():
        rows, weights = _sample_documents(sizes)
        joint_text = pl.concat_str(pl.all(), separator=" ").str.strip_chars()
        texts = frame[rows].select(joint_text).to_series().to_list()
        tokens = np.array(tokenizer.count_all(texts))
        limit = max(limit - added_tokens, 0)
        method = TokenCountMethod.TOKENIZER
    totals = weights * tokens
    read_tokens = totals if limit is None else weights * np.minimum(tokens, limit)
    bins = len(scheme.axes.lengths)
    buckets = lengths[rows]
    read_counts = np.rint(np.bincount(buckets, read_tokens, bins)).astype(int)
    counts = np.rint(np.bincount(buckets, totals, bins)).astype(int)
    variance = 0.0
    if len(rows) < np.count_nonzero(sizes):
        # Successive differences of a systematic sample of a sorted list (Wolter 2007, section 8.2).
        errors = np.diff(read_tokens - read_tokens.sum() / totals.sum() * totals)
        variance = len(rows) / (len(rows) - 1) / 2 * float(errors @ errors)
    return TokensRead(read_counts, counts - read_counts, method, round(variance))


def _sample_documents(sizes: Integers) -> tuple[Integers, Floats | float]:
    """Sample non-empty documents. Return rows, sorted by size, and their weights.

    The sample is systematic with probabilities proportional to size, since long documents contain
    most of the tokens. A weight is the number of documents that a row stands for. All rows of small
    corpora are returned, with weight 1.
    """
    rows = np.flatnonzero(sizes)
    if len(rows) <= SAMPLE:
        return rows, 1.0
    order = np.argsort(sizes, kind="stable")
    ends = np.cumsum(sizes[order])
    points = (np.arange(SAMPLE) + 0.5) / SAMPLE
    hits = np.searchsorted(ends, points * ends[-1], side="right")
    indices, counts = np.unique(hits, return_counts=True)
    sample = order[indices]
    return sample, counts * ends[-1] / SAMPLE / sizes[sample]
