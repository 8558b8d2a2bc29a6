"""Search with any mteb model: to mteb's results, or directly to the ranks of the relevant documents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import polars as pl
import torch
from datasets import Dataset
from mteb.models import (
    CrossEncoderProtocol,
    EncoderProtocol,
    SearchCrossEncoderWrapper,
    SearchEncoderWrapper,
    SearchProtocol,
)
from mteb.models.model_implementations.bm25 import BM25Search
from mteb.models.models_protocols import MTEBModels
from mteb.timing import TimingStack
from mteb.types import Array, PromptType
from torch import nn

from posir_tasks.embeddings.cached_encoder import with_cache
from posir_tasks.embeddings.context import EncodingContext
from posir_tasks.host.private_names import BM25_TOKENIZER
from posir_tasks.ranks import Hits, HitsByQuery, RankedQueries, Results, rank_hits, rank_results
from posir_tasks.read_part import UNKNOWN, KnownBy, Part, ReadKind, ReadPart
from posir_tasks.search.bm25 import fit_to_script, search_bm25

if TYPE_CHECKING:
    from datasets import Dataset
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

#: Documents encoded at a time, as in mteb's `SearchEncoderWrapper`.
CORPUS_CHUNK_SIZE = 50_000
#: Similarities computed at a time: 128 MiB in single precision.
MAX_SIMILARITIES = 2**25


def search_dense(
    model: EncoderProtocol, corpus: Dataset, queries: Dataset, context: EncodingContext, *, top_k: int, timer: TimingStack
) -> Hits:
    """Find the documents whose embeddings are most similar to each query's.

    Args:
        model: Any encoder.
        corpus: Columns `id` and `text`.
        queries: Columns `id` and `text`.
        context: The task.
        top_k: Documents per query.
        timer: Records the time of encoding and searching.
    """
    labels = {"split": context.hf_split, "subset": context.hf_subset}
    with timer("Encoding queries", **labels):
        query_embeddings = context.encode(model, queries, PromptType.query)
    scores, rows = torch.empty((len(queries), 0)), torch.empty((len(queries), 0), dtype=torch.int64)
    with timer("Searching corpus", **labels):
        for start in range(0, len(corpus), CORPUS_CHUNK_SIZE):
            block = corpus.select(range(start, min(start + CORPUS_CHUNK_SIZE, len(corpus))))
            documents = context.encode(model, block, PromptType.document)
            chunk_scores, chunk_rows = find_nearest(model, query_embeddings, documents, top_k)
            scores, rows = torch.cat([scores, chunk_scores], dim=1), torch.cat([rows, chunk_rows + start], dim=1)
            scores, order = scores.topk(min(top_k, scores.shape[1]), dim=1)
            rows = rows.gather(1, order)
    return Hits(rows.numpy(), scores.numpy(), corpus["id"][:])


def find_nearest(model: EncoderProtocol, queries: Array, documents: Array, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scores and rows of each query's nearest documents, shape (queries, at most `top_k`), in single precision."""
    nearest = []
    for batch in split_queries(queries, documents.shape[0]):
        similarities = torch.as_tensor(model.similarity(batch, documents))
        nearest.append(similarities.topk(min(top_k, similarities.shape[1]), dim=1))
    return torch.cat([top.values.float().cpu() for top in nearest]), torch.cat([top.indices.cpu() for top in nearest])


def split_queries(queries: Array, documents: int) -> Iterator[Array]:
    """Yield batches of queries with at most `MAX_SIMILARITIES` to all documents; sparse queries are not split."""
    size = max(1, MAX_SIMILARITIES // documents)
    if isinstance(queries, torch.Tensor) and queries.layout != torch.strided:
        size = queries.shape[0]
    for start in range(0, queries.shape[0], size):
        yield queries if size >= queries.shape[0] else queries[start : start + size]


#: Limits from here on mean that there is none: transformers writes 10^30.
NO_LIMIT = 2**31


@dataclass(frozen=True)
class SearchRequest:
    """Queries, corpus and settings of a search."""

    corpus: Dataset
    """Columns `id` and `text`."""
    queries: Dataset
    """Columns `id` and `text`."""
    positives: Mapping[str, str]
    """Maps each query id to the id of its relevant document, in the order of the queries."""
    top_ranked: Mapping[str, list[str]] | None
    """Documents to rerank for each query; None to search the whole corpus."""
    top_k: int
    context: EncodingContext
    timer: TimingStack


@runtime_checkable
class MultiVectorSearch(Protocol):
    """A search model with several vectors per document that counts them."""

    document_vectors: int
    """Vectors of the documents that were last searched."""


@runtime_checkable
class RecordedSearch(Protocol):
    """A search model with numbers about its last search that belong in the result."""

    search_record: Mapping[str, int | str]
    """Counts by name, of which those of subsets add, and what identifies the search."""


@runtime_checkable
class StatesReadPart(Protocol):
    """A model that knows which part of a text it reads."""

    @property
    def read_part(self) -> ReadPart:
        """The part."""


@runtime_checkable
class EmbedsWith(Protocol):
    """The run of a system whose documents a loaded model has embedded."""

    embedder: MTEBModels | None
    """The model; None if it is unknown."""


def is_reranker(model: MTEBModels) -> bool:
    """Return whether the model can only rerank the documents of a first stage."""
    return isinstance(model, CrossEncoderProtocol) and not isinstance(model, EncoderProtocol | SearchProtocol)


def find_read_part(model: MTEBModels) -> ReadPart:
    """Return which part of a text the model reads, according to its class, its loaded settings or else its metadata."""
    if isinstance(model, StatesReadPart):
        return model.read_part
    if isinstance(model, BM25Search):
        return ReadPart.all(KnownBy.CLASS)
    loaded = getattr(model, "model", None)
    first_module = loaded[0] if isinstance(loaded, nn.Sequential) and len(loaded) else None
    limits = (
        (getattr(first_module, "document_length", None), KnownBy.CLASS),
        (getattr(loaded, "max_seq_length", None), KnownBy.CLASS),
        (model.mteb_model_meta.max_tokens if model.mteb_model_meta else None, KnownBy.CLAIMED),
    )
    from_end = getattr(getattr(loaded, "tokenizer", None), "truncation_side", "right") == "left"
    part = Part.LAST if from_end else Part.FIRST
    known = (
        ReadPart(ReadKind.PART, part, int(limit), known_by=known_by) for limit, known_by in limits if limit and limit < NO_LIMIT
    )
    return next(known, UNKNOWN)


def find_window(model: MTEBModels) -> int | None:
    """Return the number of tokens of a text that the model reads; None if it reads all, or that is unknown."""
    return find_read_part(model).tokens


def as_search(model: MTEBModels) -> SearchProtocol:
    """Wrap any mteb model in the search interface, as `AbsTaskRetrieval` does.

    Raises:
        TypeError: The object is not an mteb model.
    """
    if isinstance(model, SearchProtocol):
        return model
    if isinstance(model, EncoderProtocol):
        return SearchEncoderWrapper(model)
    if isinstance(model, CrossEncoderProtocol):
        return SearchCrossEncoderWrapper(model)
    raise TypeError(f"{type(model).__name__} is none of mteb's search models, encoders and cross-encoders.")


def search_results(model: MTEBModels, request: SearchRequest) -> dict[str, dict[str, float]]:
    """Index the corpus and search, or rerank the candidates, as mteb does; return a score by query id and document id."""
    context, search = request.context, as_search(model)
    phase = {"split": context.hf_split, "subset": context.hf_subset}
    shared = {**context.task_arguments, "encode_kwargs": context.encode_kwargs, "num_proc": context.num_proc}
    with request.timer("Encoding corpus", **phase):
        search.index(request.corpus, **shared)
    with request.timer("Encoding queries and documents", **phase):
        results: dict[str, dict[str, float]] = search.search(
            request.queries, top_k=request.top_k, top_ranked=request.top_ranked, **shared
        )
    return results


def search_ranks(model: MTEBModels, request: SearchRequest) -> RankedQueries:
    """Search and rank the relevant documents, in the most memory-efficient way for this model.

    Raises:
        ScoreError: The model returned NaN.
    """
    return search_and_rank(model, request)[1]


def search_and_rank(model: MTEBModels, request: SearchRequest) -> tuple[Results, RankedQueries]:
    """Search as `search_ranks` does; return the results, too.

    Raises:
        ScoreError: The model returned NaN.
    """
    hits = search_hits(model, request)
    if not isinstance(hits, Hits):
        return hits, rank_results(hits, request.positives)
    rows = {query: row for row, query in enumerate(request.positives)}
    return HitsByQuery(hits, rows), rank_hits(hits, request.positives)


def search_hits(model: MTEBModels, request: SearchRequest) -> Hits | dict[str, dict[str, float]]:
    """Search; return the best documents as arrays, or as mteb's evaluator does where there is no faster way for this model."""
    if request.top_ranked is None and isinstance(model, BM25Search) and not BM25_TOKENIZER.is_missing():
        return _bm25_hits(model, request)
    if request.top_ranked is None and isinstance(model, EncoderProtocol) and not isinstance(model, SearchProtocol):
        return _dense_hits(model, request)
    return search_results(model, request)


def _bm25_hits(model: BM25Search, request: SearchRequest) -> Hits:
    with request.timer("Searching corpus", split=request.context.hf_split, subset=request.context.hf_subset):
        return search_bm25(
            model,
            request.corpus,
            request.queries,
            top_k=request.top_k,
            num_proc=request.context.num_proc,
            encode_kwargs=request.context.encode_kwargs,
            **request.context.task_arguments,
        )


def _dense_hits(model: EncoderProtocol, request: SearchRequest) -> Hits:
    return search_dense(model, request.corpus, request.queries, request.context, top_k=request.top_k, timer=request.timer)


def order_hits(hits: Hits | dict[str, dict[str, float]], request: SearchRequest) -> dict[str, list[str]]:
    """Return each query's document ids, best first, in pytrec_eval's order."""
    if isinstance(hits, Hits):
        return dict(zip(request.queries["id"][:], sort_candidates(hits).to_list(), strict=True))
    # By score, then by id, both descending, as pytrec_eval orders them.
    return {query: sorted(scores, key=lambda name: (scores[name], name), reverse=True) for query, scores in hits.items()}


def sort_candidates(hits: Hits) -> pl.Series:
    """Return each query's document ids in pytrec_eval's order: by score, then by id, both descending."""
    ids = np.array(hits.document_ids)
    order = np.lexsort((ids.argsort().argsort()[hits.documents], hits.scores), axis=1)[:, ::-1]
    rows = np.take_along_axis(hits.documents, order, axis=1)
    return pl.Series(hits.document_ids).gather(rows.ravel()).reshape(rows.shape).arr.to_list()


#: The constant of the paper, which weakens the difference between the first ranks.
RANK_CONSTANT = 60


def fuse_rankings(rankings: Iterable[Sequence[str]]) -> dict[str, float]:
    """Return the reciprocal rank score of each document in any of several rankings of one query, each best first."""
    scores: defaultdict[str, float] = defaultdict(float)
    for ranking in rankings:
        for rank, document in enumerate(ranking, start=1):
            scores[document] += 1 / (RANK_CONSTANT + rank)
    return dict(scores)


class HybridSearch:
    """One of mteb's search models: the fused rankings of others, of each as many documents as are wanted."""

    mteb_model_meta: ModelMeta

    def __init__(self, models: Sequence[MTEBModels]) -> None:
        self.models = models
        self._corpus: Dataset | None = None

    def index(self, corpus: Dataset, **_: Any) -> None:
        """Remember the corpus, which each model indexes when it is searched."""
        self._corpus = corpus

    def search(
        self,
        queries: Dataset,
        *,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        top_k: int,
        encode_kwargs: Mapping[str, Any],
        top_ranked: Mapping[str, list[str]] | None = None,
        num_proc: int | None = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        """Return the fused scores of each query's `top_k` documents, by query id and document id."""
        assert self._corpus is not None
        context = EncodingContext(task_metadata, hf_split, hf_subset, encode_kwargs, num_proc)
        request = SearchRequest(self._corpus, queries, {}, top_ranked, top_k, context, TimingStack())
        rankings = [self._search(model, request) for model in self.models]
        self._corpus = None
        fused = {query: fuse_rankings(ranking.get(query, ()) for ranking in rankings) for query in queries["id"]}
        return {
            query: dict(sorted(scores.items(), key=lambda item: (item[1], item[0]), reverse=True)[:top_k])
            for query, scores in fused.items()
        }

    def _search(self, model: MTEBModels, request: SearchRequest) -> Mapping[str, Sequence[str]]:
        hits: Hits | dict[str, dict[str, float]] = search_hits(
            fit_to_script(with_cache(model), request.context.corpus_language), request
        )
        return order_hits(hits, request)
