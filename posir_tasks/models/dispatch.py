"""Search with any mteb model; return mteb's results or the ranks of the relevant documents."""

from __future__ import annotations

import math
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
from torch import Tensor

from posir_tasks.base.private_names import BM25_TOKENIZER
from posir_tasks.models.bm25 import adapt_to_script, search_bm25
from posir_tasks.models.embeddings.cached_encoder import add_cache
from posir_tasks.models.embeddings.context import EncodingContext
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
    scores = torch.empty((len(queries), 0))
    rows = torch.empty((len(queries), 0), dtype=torch.int64)
    with timer("Searching corpus", **labels):
        for start in range(0, len(corpus), CORPUS_CHUNK_SIZE):
            block = corpus.select(range(start, min(start + CORPUS_CHUNK_SIZE, len(corpus))))
            documents = context.encode(model, block, PromptType.document)
            batches = []
            for batch in split_queries(query_embeddings, documents.shape[0]):
                similarities = torch.as_tensor(model.similarity(batch, documents))
                batches.append(find_nearest(similarities, top_k))
            block_scores, block_rows = map(torch.cat, zip(*batches, strict=True))
            scores = torch.cat([scores, block_scores], dim=1)
            rows = torch.cat([rows, block_rows + start], dim=1)
            scores, order = scores.topk(min(top_k, scores.shape[1]), dim=1)
            rows = rows.gather(1, order)
    return Hits(rows.numpy(), scores.numpy(), corpus["id"][:])


def find_nearest(similarities: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Find the highest values of each row and their columns, in any order.

    The `k` highest values are in the `k` groups of columns with the highest maxima. Searching only
    these groups takes half as long as `topk`.

    Returns:
        Values in single precision and columns, both of shape (rows, min(k, columns)).
    """
    rows, columns = similarities.shape
    size = max(1, math.isqrt(columns // k))
    groups = columns // size
    # A group contains every `groups`-th column. The last columns belong to no group.
    grouped_similarities = similarities[:, : size * groups].reshape(rows, size, groups)
    best_groups = _find_highest(grouped_similarities.amax(dim=1).float().cpu(), k)
    members = best_groups[:, None] + torch.arange(0, size * groups, groups)[:, None]
    last_columns = torch.arange(size * groups, columns).expand(rows, -1)
    candidates = torch.cat([members.flatten(1), last_columns], dim=1)
    values = similarities.gather(1, candidates.to(similarities.device)).float().cpu()
    best = _find_highest(values, k)
    return values.gather(1, best), candidates.gather(1, best)


def _find_highest(values: Tensor, k: int) -> Tensor:
    """Find the columns of the `k` highest values in each row, in any order; NaN counts as highest.

    For short rows, NumPy is three times as fast as PyTorch.
    """
    order = np.argpartition(values.numpy(), -min(k, values.shape[1]), axis=1)
    return torch.from_numpy(order[:, -k:])


def split_queries(queries: Array, document_count: int) -> Iterator[Array]:
    """Yield query batches with at most `MAX_SIMILARITIES` similarities. Sparse queries form one."""
    size = max(1, MAX_SIMILARITIES // document_count)
    if isinstance(queries, torch.Tensor) and queries.layout != torch.strided:
        size = queries.shape[0]
    for start in range(0, queries.shape[0], size):
        yield queries if size >= queries.shape[0] else queries[start : start + size]


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
