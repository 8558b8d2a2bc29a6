"""Number and lengths of a subset's texts: counted in local data, or else the published averages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from posir_run.jobs import corpus_name
from posir_tasks.languages import DOMAINS, PIVOT, Language
from posir_tasks.schemes import RelativePositions
from posir_tasks.sources.posir import REPO_ID, REVISION
from posir_tasks.sources.repository import HubRepository, Repository, open_repository
from posir_tasks.tasks.posir import PosirTask
from posir_tasks.tokens import BYTES_PER_TOKEN

if TYPE_CHECKING:
    from posir_tasks.tasks.base import PositionTask

#: PosIR's length buckets, and the upper bounds of all but the last, in tokens.
BOUNDS = RelativePositions().token_bounds
BUCKETS = RelativePositions().lengths

#: Published sizes of PosIR (Zeng et al. 2026, arXiv 2601.08363): of all its languages together, and of English.
PUBLISHED_LANGUAGES, PUBLISHED_DOCUMENTS, PUBLISHED_QUERIES, PUBLISHED_TOKENS = 10, 17_329_673, 421_708, 22_800_000_000
ENGLISH_DOCUMENTS, ENGLISH_QUERIES, ENGLISH_TOKENS_PER_DOCUMENT = 1_719_701, 42_015, 922


@dataclass(frozen=True)
class TextCounts:
    """Additive text counts per length bucket."""

    texts: tuple[int, ...]
    """Number of texts in each bucket."""
    tokens: tuple[int, ...]
    """Total tokens in each bucket; in local data, one per four bytes of UTF-8."""

    def __add__(self, other: TextCounts) -> TextCounts:
        return TextCounts(
            tuple(map(sum, zip(self.texts, other.texts, strict=True))),
            tuple(map(sum, zip(self.tokens, other.tokens, strict=True))),
        )

    @classmethod
    def zero(cls) -> TextCounts:
        """Return the counts of no texts."""
        return cls((0,) * len(BUCKETS), (0,) * len(BUCKETS))

    @classmethod
    def all_mean_length(cls, texts: int, tokens: int) -> TextCounts:
        """Return counts under the assumption that every text has the mean length."""
        bucket = sum(tokens > bound * texts for bound in BOUNDS)
        return cls(
            tuple(texts if index == bucket else 0 for index in range(len(BUCKETS))),
            tuple(tokens if index == bucket else 0 for index in range(len(BUCKETS))),
        )


@dataclass(frozen=True)
class SubsetSize:
    """The texts to encode for one subset of a task."""

    task: str
    corpus: str
    """Name of the corpus; equal for tasks that share it."""
    documents: TextCounts
    queries: int
    counted: bool
    """Whether the texts were counted in the data; otherwise the sizes are published averages."""


@dataclass(frozen=True)
class Texts:
    """The texts of a subset, read lazily: frames with the column `text`."""

    documents: pl.LazyFrame
    queries: pl.LazyFrame


def measure_subsets(subsets: Iterable[tuple[PositionTask, str]]) -> list[SubsetSize]:
    """Return the sizes of subsets; a corpus that several of them share is read once.

    Raises:
        DataError: The data cannot be read, and its size was not published by domain.
    """
    corpora: dict[str, TextCounts] = {}
    sizes = []
    for task, subset in subsets:
        corpus, texts = corpus_name(task, subset), find_local_texts(task, subset)
        if texts is None:
            assert isinstance(task, PosirTask)
            documents = published_documents(task.corpus_language, subset)
            queries = published_queries(task.language, subset)
        else:
            documents = corpora.get(corpus) or count_texts(texts.documents)
            queries = texts.queries.select(pl.len()).collect().item()
        corpora[corpus] = documents
        sizes.append(SubsetSize(task.metadata.name, corpus, documents, queries, counted=texts is not None))
    return sizes


def find_local_texts(task: PositionTask, subset: str) -> Texts | None:
    """Return the texts of a subset, None if they would have to be downloaded domain by domain.

    Raises:
        DataError: The texts cannot be read.
    """
    if isinstance(task, PosirTask):
        repository = open_repository(REPO_ID, REVISION)
        corpus = find_local_file(repository, f"{task.corpus_language.code}/{subset}/corpus.parquet")
        queries = find_local_file(repository, f"{task.language.code}/{subset}/queries.parquet")
        return Texts(pl.scan_parquet(corpus), pl.scan_parquet(queries)) if corpus and queries else None
    data = task.read_subset(subset)
    return Texts(*(pl.LazyFrame({"text": texts["text"][:]}) for texts in (data.corpus, data.queries)))


def find_local_file(repository: Repository, path: str) -> Path | None:
    """Return a file of a local repository, or of the Hub's cache; None if it is not cached.

    Raises:
        DataError: The local repository lacks the file.
    """
    if not isinstance(repository, HubRepository):
        return repository.fetch(path)
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(repository.repo_id, path, repo_type="dataset", revision=repository.requested)
    return Path(cached) if isinstance(cached, str) else None


def token_expression() -> pl.Expr:
    """Return the length of a text in tokens, as `posir_tasks.tokens` estimates it."""
    return -(-pl.col("text").str.len_bytes().cast(pl.Int64) // BYTES_PER_TOKEN)


def bucket_expression() -> pl.Expr:
    """Return the index of a text's length bucket."""
    return pl.sum_horizontal(token_expression() > bound for bound in BOUNDS)


def count_texts(texts: pl.LazyFrame) -> TextCounts:
    """Count texts by length, without holding all of them in memory."""
    lengths = texts.select(bucket_expression().alias("bucket"), token_expression().alias("tokens")).group_by("bucket")
    rows = lengths.agg(pl.len(), pl.col("tokens").sum()).collect(engine="streaming").rows_by_key("bucket", unique=True)
    found = [rows.get(index, (0, 0)) for index in range(len(BUCKETS))]
    return TextCounts(tuple(count for count, _ in found), tuple(total for _, total in found))


def published_documents(language: Language, domain: str) -> TextCounts:
    """Return the published mean size of a domain's corpus, in English or over the nine other languages."""
    if language == PIVOT:
        documents, all_tokens = ENGLISH_DOCUMENTS, ENGLISH_DOCUMENTS * ENGLISH_TOKENS_PER_DOCUMENT
    else:
        documents = (PUBLISHED_DOCUMENTS - ENGLISH_DOCUMENTS) // (PUBLISHED_LANGUAGES - 1)
        all_tokens = (PUBLISHED_TOKENS - ENGLISH_DOCUMENTS * ENGLISH_TOKENS_PER_DOCUMENT) // (PUBLISHED_LANGUAGES - 1)
    return TextCounts.all_mean_length(domain_share(documents, domain), domain_share(all_tokens, domain))


def published_queries(language: Language, domain: str) -> int:
    """Return the published mean number of a domain's queries, in English or over the nine other languages."""
    others = (PUBLISHED_QUERIES - ENGLISH_QUERIES) // (PUBLISHED_LANGUAGES - 1)
    return domain_share(ENGLISH_QUERIES if language == PIVOT else others, domain)


def domain_share(total: int, domain: str) -> int:
    """Return a domain's share of a total, split as evenly as integers that add up to it can be."""
    index = DOMAINS.index(domain)
    return total * (index + 1) // len(DOMAINS) - total * index // len(DOMAINS)
