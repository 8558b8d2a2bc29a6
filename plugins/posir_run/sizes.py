"""Count the documents (by length bucket), tokens and queries of each subset.

If the data is not on this machine, published averages are used instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from posir_run.jobs import name_corpus
from posir_tasks.data.checks import read_columns
from posir_tasks.data.declared import DISTRACTORS, NANO_SUFFIX
from posir_tasks.data.nano import count_domain_questions
from posir_tasks.data.repository import HubRepository, Repository
from posir_tasks.tasks.nano import NanoTask
from posir_tasks.tasks.posir import PosirTask
from posir_tasks.text.languages import DOMAINS, PIVOT, Language
from posir_tasks.text.words import BYTES_PER_TOKEN
from posir_tasks.values.schemes import RelativePositions

if TYPE_CHECKING:
    from posir_tasks.tasks.base import PositionTask

#: Upper bounds in tokens of all PosIR length buckets but the last, and the names of all buckets.
BOUNDS = RelativePositions().token_bounds
BUCKETS = RelativePositions().axes.lengths

#: Published numbers of documents, tokens and queries in PosIR (Zeng et al. 2026, arXiv 2601.08363):
#: all ten languages, English (922 tokens per document), and the mean of the nine other languages.
ALL_LANGUAGES = (17_329_673, 22_800_000_000, 421_708)
ENGLISH = (1_719_701, 1_719_701 * 922, 42_015)
OTHER_LANGUAGE = tuple(
    (total - english) // 9 for total, english in zip(ALL_LANGUAGES, ENGLISH, strict=True)
)

#: Reads the documents or queries of a subset into a frame with a `text` column.
ReadTexts = Callable[[], pl.DataFrame]
#: Length of a text in tokens, as in `estimate_tokens`.
TOKENS = -(-pl.col("text").str.len_bytes().cast(pl.Int64) // BYTES_PER_TOKEN)
#: Index of a text's length bucket.
BUCKET = pl.sum_horizontal(bound < TOKENS for bound in BOUNDS)


@dataclass(frozen=True)
class TextCounts:
    """Additive text counts per length bucket."""

    texts: tuple[int, ...]
    tokens: tuple[int, ...]
    """Total tokens per bucket. In local data, a token is four bytes of UTF-8."""

    def __add__(self, other: TextCounts) -> TextCounts:
        return TextCounts(
            tuple(map(sum, zip(self.texts, other.texts, strict=True))),
            tuple(map(sum, zip(self.tokens, other.tokens, strict=True))),
        )

    @classmethod
    def from_buckets(cls, buckets: Mapping[int, tuple[int, int]]) -> TextCounts:
        """Build counts from (texts, tokens) by bucket index. Missing buckets are empty."""
        counts = [buckets.get(index, (0, 0)) for index in range(len(BUCKETS))]
        return cls(*zip(*counts, strict=True))

    def scale(self, factor: float) -> TextCounts:
        """Multiply all counts by a factor."""
        return TextCounts(
            tuple(round(count * factor) for count in self.texts),
            tuple(round(count * factor) for count in self.tokens),
        )


def sum_counts(counts: Iterable[TextCounts]) -> TextCounts:
    """Sum counts by bucket."""
    return sum(counts, TextCounts.from_buckets({}))


@dataclass(frozen=True)
class SubsetSize:
    """Number of texts to encode for a task's subset."""

    task: str
    corpus: str
    documents: TextCounts
    queries: int
    counted: bool
    """Whether the sizes are counted in the data; if false, they are published averages."""


def measure_subsets(subsets: Iterable[tuple[PositionTask, str]]) -> list[SubsetSize]:
    """Measure subsets. A corpus that several tasks share is read once.

    Raises:
        DataError: The data cannot be read, and no sizes are published.
    """
    corpora: dict[str, TextCounts] = {}
    sizes = []
    for task, subset in subsets:
        corpus = name_corpus(task, subset)
        if isinstance(task, NanoTask):
            corpus += NANO_SUFFIX
        texts = find_local_texts(task, subset)
        is_counted = texts is not None
        if texts is None:
            assert isinstance(task, PosirTask)
            documents, _ = find_published_size(task.corpus_language, subset)
            _, queries = find_published_size(task.language, subset)
        else:
            documents = corpora.get(corpus) or measure_texts(texts[0]())
            queries = texts[1]().height
        corpora[corpus] = documents
        if isinstance(task, NanoTask) and not (is_counted and task.has_list(subset)):
            is_counted = False
            queries = count_domain_questions(subset, task.hf_subsets)
            sample_size = queries * (1 + DISTRACTORS)
            documents = documents.scale(min(1, sample_size / sum(documents.texts)))
        name = task.metadata.name
        sizes.append(SubsetSize(name, corpus, documents, queries, counted=is_counted))
    return sizes


def find_local_texts(task: PositionTask, subset: str) -> tuple[ReadTexts, ReadTexts] | None:
    """Return functions that read the documents and the queries.

    Returns None if the data would have to be downloaded.

    Raises:
        DataError: Local data is incomplete. The returned functions raise it if the data is
            unreadable.
    """
    if isinstance(task, PosirTask):
        repository = task.find_repository()
        corpus_file, _, queries_file = task.find_key(subset).files
        corpus = _find_local_file(repository, corpus_file)
        queries = _find_local_file(repository, queries_file)
        if not (corpus and queries):
            return None
        # `read_subset` would select the sample if it has no list yet. Read the full data instead.
        if not (isinstance(task, NanoTask) and task.has_list(subset)):
            read = partial(read_columns, columns={"text": pl.String})
            return partial(read, corpus), partial(read, queries)
    data = task.read_subset(subset)
    return lambda: data.documents, lambda: data.questions


def _find_local_file(repository: Repository, path: str) -> Path | None:
    """Return the path of a file in a local repository or in the Hub cache.

    Returns None if the file is not cached. Raises DataError if a local repository does not contain
    the file.
    """
    if not isinstance(repository, HubRepository):
        return repository.fetch(path)
    from huggingface_hub import try_to_load_from_cache

    file = try_to_load_from_cache(
        repository.repo_id, path, repo_type="dataset", revision=repository.requested_revision
    )
    return Path(file) if isinstance(file, str) else None


def measure_texts(texts: pl.DataFrame) -> TextCounts:
    """Count texts and tokens by length bucket."""
    counts = texts.group_by(BUCKET.alias("bucket")).agg(pl.len(), TOKENS.sum().alias("tokens"))
    return TextCounts.from_buckets(counts.rows_by_key("bucket", unique=True))


def find_published_size(language: Language, domain: str) -> tuple[TextCounts, int]:
    """Return a domain's documents and queries, estimated from the published size of a language.

    Domains are assumed to have equal sizes (rounded so that they sum to the total) and all
    documents to have the mean length. For languages other than English, the mean over the nine
    languages is used.
    """
    index = DOMAINS.index(domain)
    documents, tokens, queries = (
        total * (index + 1) // len(DOMAINS) - total * index // len(DOMAINS)
        for total in (ENGLISH if language == PIVOT else OTHER_LANGUAGE)
    )
    bucket = sum(tokens > bound * documents for bound in BOUNDS)
    return TextCounts.from_buckets({bucket: (documents, tokens)}), queries
