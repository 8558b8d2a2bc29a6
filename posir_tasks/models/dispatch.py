"""Search with any mteb model; return mteb's results or the ranks of the relevant documents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
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

from posir_tasks.base.private_names import BM25_TOKENIZER
from posir_tasks.models.bm25 import adapt_to_script, search_bm25
from posir_tasks.models.embeddings.cached_encoder import add_cache
from posir_tasks.models.embeddings.context import EncodingContext
from posir_tasks.models.nearest import Nearest
from posir_tasks.models.request import SearchRequest
from posir_tasks.values.ranks import (
    Hits,
    HitsByQuery,
    RankedQueries,
    Results,
    SearchResults,
    rank_hits,
    rank_results,
)

if TYPE_CHECKING:
    from mteb.models import ModelMeta

#: Number of documents to encode at a time; the same as in mteb's `SearchEncoderWrapper`.
CORPUS_CHUNK_SIZE = 50_000
#: Number of similarities to compute at a time: 128 MiB in float32.
MAX_SIMILARITIES = 2**25
#: Number of queries and documents to compare at a time. Their similarities take 8 MiB: they stay in
#: the processor's cache until the highest are selected, and the C library reuses their memory.
#: Clearing new memory would take as long as multiplying.
TILE_QUERIES, TILE_DOCUMENTS = 1_024, 2_048


def search_dense(
    model: EncoderProtocol,
    corpus: Dataset,
    queries: Dataset,
    context: EncodingContext,
    *,
    top_k: int,
    timer: TimingStack,
) -> Hits:
    """Find the `top_k` most similar documents of each query. Both datasets have `id` and `text`."""
    labels = {"split": context.hf_split, "subset": context.hf_subset}
    with timer("Encoding queries", **labels):
        query_embeddings = context.encode(model, queries, PromptType.query)
    batches = [*split_rows(query_embeddings, TILE_QUERIES)]
    nearest = [Nearest(batch.shape[0], top_k) for batch in batches]
    with timer("Searching corpus", **labels):
        for start in range(0, len(corpus), CORPUS_CHUNK_SIZE):
            block = corpus.select(range(start, min(start + CORPUS_CHUNK_SIZE, len(corpus))))
            documents = context.encode(model, block, PromptType.document)
            for part in split_rows(documents, TILE_DOCUMENTS):
                for batch, best in zip(batches, nearest, strict=True):
                    best.add(torch.as_tensor(model.similarity(batch, part)), start)
                start += part.shape[0]
    scores, rows = zip(*(best.sort() for best in nearest), strict=True)
    return Hits(torch.cat(rows).numpy(), torch.cat(scores).numpy(), corpus["id"][:])


def split_queries(queries: Array, document_count: int) -> Iterator[Array]:
    """Yield query batches with at most `MAX_SIMILARITIES` similarities. Sparse queries form one."""
    return split_rows(queries, max(1, MAX_SIMILARITIES // document_count))


def split_rows(embeddings: Array, size: int) -> Iterator[Array]:
    """Yield batches of at most `size` embeddings. Sparse embeddings form one."""
    if isinstance(embeddings, torch.Tensor) and embeddings.layout != torch.strided:
        size = embeddings.shape[0]
    for start in range(0, embeddings.shape[0], size):
        is_whole = size >= embeddings.shape[0]
        yield embeddings if is_whole else embeddings[start : start + size]


def is_reranker(model: MTEBModels) -> bool:
    """Return True if the model can only rerank the results of a first stage."""
    return isinstance(model, CrossEncoderProtocol) and not isinstance(
        model, EncoderProtocol | SearchProtocol
    )


def search_with_mteb(model: MTEBModels, request: SearchRequest) -> SearchResults:
    """Search or rerank with mteb's own classes; return scores by query and document id."""
    context = request.context
    if isinstance(model, SearchProtocol):
        search = model
    elif isinstance(model, EncoderProtocol):
        search = SearchEncoderWrapper(model)
    else:
        search = SearchCrossEncoderWrapper(model)
    phase = {"split": context.hf_split, "subset": context.hf_subset}
    arguments = context.search_arguments
    with request.timer("Encoding corpus", **phase):
        search.index(request.corpus, **arguments)
    with request.timer("Encoding queries and documents", **phase):
        results: SearchResults = search.search(
            request.queries, top_k=request.top_k, top_ranked=request.top_ranked, **arguments
        )
    return drop_omitted(results)


def drop_omitted(results: Results) -> SearchResults:
    """Drop results with a score of minus infinity, which marks texts without an embedding."""
    return {
        query: {name: score for name, score in scores.items() if score != -np.inf}
        for query, scores in results.items()
    }


def search_and_rank(model: MTEBModels, request: SearchRequest) -> tuple[Results, RankedQueries]:
    """Search, and rank each query's relevant document, with as little memory as the model allows.

    Raises:
        ScoreError: The model returned NaN.
    """
    results = search(model, request)
    # Queries with several evidence spans are not in `positives`.
    if isinstance(results, HitsByQuery) and len(results) == len(request.positives):
        return results, rank_hits(results.hits, request.positives)
    return results, rank_results(results, request.positives)


def search(model: MTEBModels, request: SearchRequest) -> Results:
    """Search with arrays if the model allows it, otherwise with mteb's own classes; return scores
    by query and document id.
    """
    context = request.context
    if request.top_ranked is not None:
        return search_with_mteb(model, request)
    if isinstance(model, BM25Search) and not BM25_TOKENIZER.is_missing():
        with request.timer("Searching corpus", split=context.hf_split, subset=context.hf_subset):
            hits = search_bm25(
                model,
                request.corpus,
                request.queries,
                top_k=request.top_k,
                **context.search_arguments,
            )
    elif isinstance(model, EncoderProtocol) and not isinstance(model, SearchProtocol):
        hits = search_dense(
            model,
            request.corpus,
            request.queries,
            context,
            top_k=request.top_k,
            timer=request.timer,
        )
    else:
        return search_with_mteb(model, request)
    results = HitsByQuery(hits, {query: row for row, query in enumerate(request.queries["id"][:])})
    return drop_omitted(results) if np.isneginf(hits.scores).any() else results


def order_documents(results: Results) -> dict[str, list[str]]:
    """Return each query's document ids, best first. As in pytrec_eval, higher ids win ties."""
    return {
        query: sorted(scores, key=lambda name: (scores[name], name), reverse=True)
        for query, scores in results.items()
    }


#: Constant of reciprocal rank fusion (Cormack et al. 2009), which dampens the first ranks.
RANK_CONSTANT = 60


def fuse_rankings(rankings: Iterable[Sequence[str]]) -> dict[str, float]:
    """Return the reciprocal rank fusion scores by document. Each ranking is sorted, best first."""
    scores: defaultdict[str, float] = defaultdict(float)
    for ranking in rankings:
        for rank, document in enumerate(ranking, start=1):
            scores[document] += 1 / (RANK_CONSTANT + rank)
    return dict(scores)


class HybridSearch:
    """mteb search model that fuses the rankings of several models."""

    mteb_model_meta: ModelMeta

    def __init__(self, models: Sequence[MTEBModels]) -> None:
        self.models = models
        self.last_results: list[tuple[MTEBModels, Results]] = []
        """Models with their results from the last search, including one more document per query
        than the fusion uses.
        """
        self._corpus: Dataset | None = None

    def index(self, corpus: Dataset, **_: Any) -> None:
        """Store the corpus, which each model indexes at search time."""
        self._corpus = corpus

    def search(
        self,
        queries: Dataset,
        *,
        top_k: int,
        top_ranked: Mapping[str, list[str]] | None = None,
        **task_arguments: Any,
    ) -> SearchResults:
        """Return the fused scores of the `top_k` documents by query id and document id."""
        assert self._corpus is not None
        context = EncodingContext.from_arguments(**task_arguments)
        request = SearchRequest(
            self._corpus, queries, {}, top_ranked, top_k + 1, context, TimingStack()
        )
        rankings = []
        self.last_results = []
        for model in self.models:
            searcher = adapt_to_script(add_cache(model), context.corpus_language)
            results = search(searcher, request)
            rankings.append(order_documents(results))
            self.last_results.append((searcher, results))
        self._corpus = None
        fused_results = {
            query: fuse_rankings(ranking.get(query, ())[:top_k] for ranking in rankings)
            for query in queries["id"]
        }
        best_documents = order_documents(fused_results)
        return {
            query: {name: scores[name] for name in best_documents[query][:top_k]}
            for query, scores in fused_results.items()
        }
