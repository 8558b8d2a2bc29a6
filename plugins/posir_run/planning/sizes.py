"""How many texts a subset has and how long they are: counted where the data is at hand, otherwise as published."""

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
from posir_tasks.tokens import BYTES_A_TOKEN

if TYPE_CHECKING:
    from posir_tasks.tasks.base import PositionTask

#: Upper bounds of all length buckets but the last, in tokens: PosIR's own.
BOUNDS = RelativePositions().token_bounds
BUCKETS = RelativePositions().lengths

#: PosIR's published size (Zeng et al. 2026, arXiv 2601.08363): of all its languages, and of English alone.
PUBLISHED_LANGUAGES, PUBLISHED_DOCUMENTS, PUBLISHED_QUERIES, PUBLISHED_TOKENS = 10, 17_329_673, 421_708, 22_800_000_000
ENGLISH_DOCUMENTS, ENGLISH_QUERIES, ENGLISH_TOKENS_A_DOCUMENT = 1_719_701, 42_015, 922


@dataclass(frozen=True)
class Lengths:
    """Texts by length bucket; what adds."""

    texts: tuple[int, ...]
    """Number of texts in each bucket."""
    tokens: tuple[int, ...]
    """Their tokens together: one for every four bytes of UTF-8 where the texts are at hand."""

    def __add__(self, other: Lengths) -> Lengths:
        return Lengths(
            tuple(map(sum, zip(self.texts, other.texts, strict=True))),
            tuple(map(sum, zip(self.tokens, other.tokens, strict=True))),
        )

    @classmethod
    def none(cls) -> Lengths:
        """Return no texts."""
        return cls((0,) * len(BUCKETS), (0,) * len(BUCKETS))

    @classmethod
    def alike(cls, texts: int, tokens: int) -> Lengths:
        """Return texts that are all as long as the mean."""
        bucket = sum(tokens > bound * texts for bound in BOUNDS)
        return cls(
            tuple(texts if place == bucket else 0 for place in range(len(BUCKETS))),
            tuple(tokens if place == bucket else 0 for place in range(len(BUCKETS))),
        )


@dataclass(frozen=True)
class SubsetSize:
    """What there is to encode for one subset of a task."""

    task: str
    corpus: str
    """Name of the documents, equal for tasks that share them."""
    documents: Lengths
    queries: int
    counted: bool
    """Whether it was counted in the data; otherwise it is the published average."""


@dataclass(frozen=True)
class Texts:
    """A subset's texts, not read yet: frames with the column `text`."""

    documents: pl.LazyFrame
    queries: pl.LazyFrame


def sizes_of(subsets: Iterable[tuple[PositionTask, str]]) -> list[SubsetSize]:
    """Return the sizes of subsets of tasks; documents that several share are counted once.

    Raises:
        DataError: The data cannot be read, and its size was not published by domain.
    """
    corpora: dict[str, Lengths] = {}
    sizes = []
    for task, subset in subsets:
        corpus, texts = corpus_name(task, subset), texts_at_hand(task, subset)
        if texts is None:
            assert isinstance(task, PosirTask)
            documents = published_documents(task.corpus_language, subset)
            queries = published_queries(task.language, subset)
        else:
            documents = corpora.get(corpus) or lengths_of(texts.documents)
            queries = texts.queries.select(pl.len()).collect().item()
        corpora[corpus] = documents
        sizes.append(SubsetSize(task.metadata.name, corpus, documents, queries, counted=texts is not None))
    return sizes


def texts_at_hand(task: PositionTask, subset: str) -> Texts | None:
    """Return the texts of a subset; None where they would have to be downloaded domain by domain.

    Raises:
        DataError: They cannot be read.
    """
    if isinstance(task, PosirTask):
        repository = open_repository(REPO_ID, REVISION)
        corpus = file_at_hand(repository, f"{task.corpus_language.code}/{subset}/corpus.parquet")
        queries = file_at_hand(repository, f"{task.language.code}/{subset}/queries.parquet")
        return Texts(pl.scan_parquet(corpus), pl.scan_parquet(queries)) if corpus and queries else None
    data = task.read_subset(subset)
    return Texts(*(pl.LazyFrame({"text": texts["text"][:]}) for texts in (data.corpus, data.queries)))


def file_at_hand(repository: Repository, path: str) -> Path | None:
    """Return a file of a folder, or of the Hub if its cache has it.

    Raises:
        DataError: The folder lacks it.
    """
    if not isinstance(repository, HubRepository):
        return repository.fetch(path)
    from huggingface_hub import try_to_load_from_cache

    kept = try_to_load_from_cache(repository.repo_id, path, repo_type="dataset", revision=repository.requested)
    return Path(kept) if isinstance(kept, str) else None


def tokens() -> pl.Expr:
    """Return the length of a text by the rule of `posir_tasks.tokens`."""
    return -(-pl.col("text").str.len_bytes().cast(pl.Int64) // BYTES_A_TOKEN)


def bucket() -> pl.Expr:
    """Return the index of a text's length bucket."""
    return pl.sum_horizontal(tokens() > bound for bound in BOUNDS)


def lengths_of(texts: pl.LazyFrame) -> Lengths:
    """Count texts without holding them all."""
    counted = texts.select(bucket().alias("bucket"), tokens().alias("tokens")).group_by("bucket")
    rows = counted.agg(pl.len(), pl.col("tokens").sum()).collect(engine="streaming").rows_by_key("bucket", unique=True)
    found = [rows.get(place, (0, 0)) for place in range(len(BUCKETS))]
    return Lengths(tuple(count for count, _ in found), tuple(total for _, total in found))


def published_documents(language: Language, domain: str) -> Lengths:
    """Return the published mean size of a corpus: of the English ones, or of those of the nine other languages."""
    if language == PIVOT:
        documents, all_tokens = ENGLISH_DOCUMENTS, ENGLISH_DOCUMENTS * ENGLISH_TOKENS_A_DOCUMENT
    else:
        documents = (PUBLISHED_DOCUMENTS - ENGLISH_DOCUMENTS) // (PUBLISHED_LANGUAGES - 1)
        all_tokens = (PUBLISHED_TOKENS - ENGLISH_DOCUMENTS * ENGLISH_TOKENS_A_DOCUMENT) // (PUBLISHED_LANGUAGES - 1)
    return Lengths.alike(share(documents, domain), share(all_tokens, domain))


def published_queries(language: Language, domain: str) -> int:
    """Return the published mean number of queries: of the English ones, or of those of the nine other languages."""
    others = (PUBLISHED_QUERIES - ENGLISH_QUERIES) // (PUBLISHED_LANGUAGES - 1)
    return share(ENGLISH_QUERIES if language == PIVOT else others, domain)


def share(total: int, domain: str) -> int:
    """Return a domain's part of a number, as equal as whole numbers can be that add to it."""
    place = DOMAINS.index(domain)
    return total * (place + 1) // len(DOMAINS) - total * place // len(DOMAINS)
