"""Number and lengths of a subset's texts: counted in local data, or else the published averages."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from posir_run.jobs import corpus_name
from posir_tasks.languages import DOMAINS, PIVOT, Language
from posir_tasks.read_part import BYTES_PER_TOKEN
from posir_tasks.schemes import RelativePositions
from posir_tasks.sources.checks import read_columns
from posir_tasks.sources.mini import read_documents
from posir_tasks.sources.posir import REPO_ID, REVISION
from posir_tasks.sources.repository import HubRepository, Repository, open_repository
from posir_tasks.tasks.posir import PosirTask

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


#: Reads the documents or the queries of a subset: a frame with the column `text`.
ReadTexts = Callable[[], pl.DataFrame]
#: Largest number of texts of one kind to sample from.
SAMPLE_SIZE = 256
SEED = 42
#: Length of a text in tokens, as `estimate_tokens` estimates it, and the index of its length bucket.
TOKENS = -(-pl.col("text").str.len_bytes().cast(pl.Int64) // BYTES_PER_TOKEN)
BUCKET = pl.sum_horizontal(bound < TOKENS for bound in BOUNDS)


@dataclass(frozen=True)
class TextCounts:
    """Additive text counts per length bucket."""

    texts: tuple[int, ...]
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


def measure_subsets(subsets: Iterable[tuple[PositionTask, str]]) -> list[SubsetSize]:
    """Return the sizes of subsets; a shared corpus is read once. Raises DataError if data is unreadable and unpublished."""
    corpora: dict[str, TextCounts] = {}
    sizes = []
    for task, subset in subsets:
        corpus, texts = corpus_name(task, subset), _find_local_texts(task, subset)
        if texts is None:
            assert isinstance(task, PosirTask)
            documents, _ = published_size(task.corpus_language, subset)
            _, queries = published_size(task.language, subset)
        else:
            documents = corpora.get(corpus) or measure_texts(texts[0]())
            queries = texts[1]().height
        corpora[corpus] = documents
        sizes.append(SubsetSize(task.metadata.name, corpus, documents, queries, counted=texts is not None))
    return sizes


def _find_local_texts(task: PositionTask, subset: str) -> tuple[ReadTexts, ReadTexts] | None:
    """Return readers of documents and queries, which raise DataError if they fail; None if a download would be needed."""
    if isinstance(task, PosirTask):
        repository = open_repository(REPO_ID, REVISION)
        corpus = _find_local_file(repository, f"{task.corpus_language.code}/{subset}/corpus.parquet")
        queries = _find_local_file(repository, f"{task.language.code}/{subset}/queries.parquet")
        read = partial(read_columns, columns={"text": pl.String})
        return (partial(read, corpus), partial(read, queries)) if corpus and queries else None
    data = task.read_subset(subset)
    return data.corpus.to_polars, data.queries.to_polars


def _find_local_file(repository: Repository, path: str) -> Path | None:
    """Return a local repository's file, or that in the Hub's cache if any; raise DataError if the former lacks it."""
    if not isinstance(repository, HubRepository):
        return repository.fetch(path)
    from huggingface_hub import try_to_load_from_cache

    cached = try_to_load_from_cache(repository.repo_id, path, repo_type="dataset", revision=repository.requested)
    return Path(cached) if isinstance(cached, str) else None


def measure_texts(texts: pl.DataFrame) -> TextCounts:
    """Count texts by length."""
    lengths = texts.select(BUCKET.alias("bucket"), TOKENS.alias("tokens")).group_by("bucket")
    counted = lengths.agg(pl.len(), pl.col("tokens").sum())
    return TextCounts.from_buckets(counted.rows_by_key("bucket", unique=True))


def published_size(language: Language, domain: str) -> tuple[TextCounts, int]:
    """Return the published mean size of a domain, in English or over the nine other languages: documents and queries.

    Its share is as equal to the others' as integers that add up to the total can be; all documents have the mean length.
    """
    index, totals = DOMAINS.index(domain), ENGLISH if language == PIVOT else OTHER_LANGUAGE
    documents, tokens, queries = (total * (index + 1) // len(DOMAINS) - total * index // len(DOMAINS) for total in totals)
    return TextCounts.from_buckets({sum(tokens > bound * documents for bound in BOUNDS): (documents, tokens)}), queries


@dataclass(frozen=True)
class Samples:
    """Texts of every length that a run encodes."""

    documents: tuple[list[str], ...]
    """Documents of each length bucket; empty for buckets without documents."""
    queries: list[str]
    sampled: bool
    """Whether all documents are from the data; otherwise some are synthetic."""


def collect_samples(tasks: Sequence[PositionTask], counts: TextCounts) -> Samples:
    """Sample texts from each task's first subset; synthesize lengths that have documents but are missing from local data."""
    local = [texts for task in tasks if (texts := _find_local_texts(task, task.hf_subsets[0]))]
    sampled = sample_documents(documents for documents, _ in local)
    filled = tuple(
        (texts or synthetic_texts(tokens // count)) if count else []
        for texts, count, tokens in zip(sampled, counts.texts, counts.tokens, strict=True)
    )
    asked = [text for _, queries in local for text in queries()["text"].head(SAMPLE_SIZE)]
    asked = asked or [question for document in read_documents() for question in document.questions]
    queries = random.Random(SEED).sample(asked, min(SAMPLE_SIZE, len(asked)))
    return Samples(filled, queries, sampled=all(sampled[index] for index, texts in enumerate(filled) if texts))


def sample_documents(sources: Iterable[ReadTexts]) -> list[list[str]]:
    """Return documents by length bucket, with the same number from each source where possible."""
    pools: list[list[str]] = [[] for _ in BUCKETS]
    for read in sources:
        frame = read().select("text", BUCKET.alias("bucket"))
        for index, pool in enumerate(pools):
            in_bucket = frame.filter(pl.col("bucket") == index)["text"]
            pool.extend(in_bucket.sample(min(SAMPLE_SIZE, len(in_bucket)), seed=SEED))
    return [random.Random(SEED).sample(pool, min(SAMPLE_SIZE, len(pool))) for pool in pools]


def synthetic_texts(tokens: int) -> list[str]:
    """Return texts of one length, cut from the concatenated documents of PosIR-Mini at different starts."""
    source = "\n\n".join(document.text for document in read_documents())
    length = tokens * BYTES_PER_TOKEN
    starts = range(0, len(source), -(-len(source) // SAMPLE_SIZE))
    repeated = source * (length // len(source) + 2)
    return [repeated[start : start + length] for start in starts]
