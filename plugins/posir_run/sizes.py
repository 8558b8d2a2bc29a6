"""Number and lengths of a subset's texts: counted in local data, or else the published averages."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from posir_run.jobs import corpus_name
from posir_tasks.languages import DOMAINS, PIVOT, Language
from posir_tasks.schemes import RelativePositions
from posir_tasks.sources.mini import read_documents
from posir_tasks.sources.posir import REPO_ID, REVISION
from posir_tasks.sources.repository import HubRepository, Repository, open_repository
from posir_tasks.table_files import scan_parquet
from posir_tasks.tasks.posir import PosirTask
from posir_tasks.tokens import BYTES_PER_TOKEN

if TYPE_CHECKING:
    from posir_tasks.tasks.base import PositionTask

#: PosIR's length buckets, and the upper bounds of all but the last, in tokens.
BOUNDS = RelativePositions().token_bounds
BUCKETS = RelativePositions().axes.lengths

#: Documents, their tokens, and queries of PosIR as published (Zeng et al. 2026, arXiv 2601.08363): of all ten languages,
#: of English (922 tokens per document), and the mean of the nine others.
ALL_LANGUAGES = (17_329_673, 22_800_000_000, 421_708)
ENGLISH = (1_719_701, 1_719_701 * 922, 42_015)
OTHER_LANGUAGE = tuple((total - english) // 9 for total, english in zip(ALL_LANGUAGES, ENGLISH, strict=True))


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
    def from_buckets(cls, buckets: Mapping[int, tuple[int, int]]) -> TextCounts:
        """Return counts from the numbers of texts and tokens by bucket index; the other buckets are empty."""
        texts, tokens = zip(*(buckets.get(index, (0, 0)) for index in range(len(BUCKETS))), strict=True)
        return cls(texts, tokens)

    @classmethod
    def all_mean_length(cls, texts: int, tokens: int) -> TextCounts:
        """Return counts under the assumption that every text has the mean length."""
        return cls.from_buckets({sum(tokens > bound * texts for bound in BOUNDS): (texts, tokens)})


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
    """Return the sizes of subsets; a shared corpus is read once. Raises DataError if data is unreadable and unpublished."""
    corpora: dict[str, TextCounts] = {}
    sizes = []
    for task, subset in subsets:
        corpus, texts = corpus_name(task, subset), find_local_texts(task, subset)
        if texts is None:
            assert isinstance(task, PosirTask)
            documents = published_documents(task.corpus_language, subset)
            queries = published_queries(task.language, subset)
        else:
            documents = corpora.get(corpus) or measure_texts(texts.documents)
            queries = texts.queries.select(pl.len()).collect().item()
        corpora[corpus] = documents
        sizes.append(SubsetSize(task.metadata.name, corpus, documents, queries, counted=texts is not None))
    return sizes


def find_local_texts(task: PositionTask, subset: str) -> Texts | None:
    """Return the texts of a subset, None if they would have to be downloaded; raise DataError if they cannot be read."""
    if isinstance(task, PosirTask):
        repository = open_repository(REPO_ID, REVISION)
        corpus = find_local_file(repository, f"{task.corpus_language.code}/{subset}/corpus.parquet")
        queries = find_local_file(repository, f"{task.language.code}/{subset}/queries.parquet")
        return Texts(scan_parquet(corpus), scan_parquet(queries)) if corpus and queries else None
    data = task.read_subset(subset)
    return Texts(*(pl.LazyFrame({"text": texts["text"][:]}) for texts in (data.corpus, data.queries)))


def find_local_file(repository: Repository, path: str) -> Path | None:
    """Return a local repository's file, or that in the Hub's cache if any; raise DataError if the former lacks it."""
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


def measure_texts(texts: pl.LazyFrame) -> TextCounts:
    """Count texts by length, without holding all of them in memory."""
    lengths = texts.select(bucket_expression().alias("bucket"), token_expression().alias("tokens")).group_by("bucket")
    counted = lengths.agg(pl.len(), pl.col("tokens").sum()).collect(engine="streaming")
    return TextCounts.from_buckets(counted.rows_by_key("bucket", unique=True))


def published_documents(language: Language, domain: str) -> TextCounts:
    """Return the published mean size of a domain's corpus, in English or over the nine other languages."""
    documents, tokens, _ = published_shares(language, domain)
    return TextCounts.all_mean_length(documents, tokens)


def published_queries(language: Language, domain: str) -> int:
    """Return the published mean number of a domain's queries, in English or over the nine other languages."""
    return published_shares(language, domain)[2]


def published_shares(language: Language, domain: str) -> list[int]:
    """Return a domain's documents, tokens and queries: shares as equal as integers that add up to the total can be."""
    index = DOMAINS.index(domain)
    totals = ENGLISH if language == PIVOT else OTHER_LANGUAGE
    return [total * (index + 1) // len(DOMAINS) - total * index // len(DOMAINS) for total in totals]


#: Largest number of texts of one kind to sample from.
SAMPLE_SIZE = 256
SEED = 42


@dataclass(frozen=True)
class Samples:
    """Texts of every length that a run encodes."""

    documents: tuple[list[str], ...]
    """Documents of each length bucket; empty for buckets without documents."""
    queries: list[str]
    sampled: bool
    """Whether all documents are from the data; otherwise some are synthetic."""


def collect_samples(tasks: Sequence[PositionTask], counts: TextCounts) -> Samples:
    """Sample texts from each task's first subset; synthesize lengths that have documents but are missing from local data.

    Raises:
        DataError: The data cannot be read.
    """
    local = [texts for task in tasks if (texts := find_local_texts(task, task.hf_subsets[0]))]
    sampled = sample_documents(local)
    filled = tuple(
        (texts or synthetic_texts(tokens // count)) if count else []
        for texts, count, tokens in zip(sampled, counts.texts, counts.tokens, strict=True)
    )
    return Samples(filled, sample_queries(local), sampled=all(sampled[index] for index, texts in enumerate(filled) if texts))


def sample_documents(sources: Sequence[Texts]) -> list[list[str]]:
    """Return documents by length bucket, with the same number from each source where possible."""
    pools: list[list[str]] = [[] for _ in BUCKETS]
    for texts in sources:
        frame = texts.documents.select("text", bucket_expression().alias("bucket")).collect()
        for index, pool in enumerate(pools):
            in_bucket = frame.filter(pl.col("bucket") == index)["text"]
            pool.extend(in_bucket.sample(min(SAMPLE_SIZE, len(in_bucket)), seed=SEED))
    return [random.Random(SEED).sample(pool, min(SAMPLE_SIZE, len(pool))) for pool in pools]


def sample_queries(sources: Sequence[Texts]) -> list[str]:
    """Return queries from all sources, or those of PosIR-Mini if there is no source."""
    pool = [text for texts in sources for text in texts.queries.select("text").head(SAMPLE_SIZE).collect()["text"]]
    pool = pool or [question for document in read_documents() for question in document.questions]
    return random.Random(SEED).sample(pool, min(SAMPLE_SIZE, len(pool)))


def synthetic_texts(tokens: int) -> list[str]:
    """Return texts of one length, cut from the concatenated documents of PosIR-Mini at different starts."""
    source = "\n\n".join(document.text for document in read_documents())
    length = tokens * BYTES_PER_TOKEN
    starts = range(0, len(source), -(-len(source) // SAMPLE_SIZE))
    repeated = source * (length // len(source) + 2)
    return [repeated[start : start + length] for start in starts]
