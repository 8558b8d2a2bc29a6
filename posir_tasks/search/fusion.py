"""Hybrid search: several models search, and their rankings are fused by reciprocal rank.

Cormack, Clarke and Buettcher 2009 (Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods, SIGIR
2009): a document scores the sum over the rankings of 1 / (60 + rank); a ranking that lacks it adds nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mteb.timing import TimingStack

from posir_tasks.embeddings.cached_encoder import with_cache
from posir_tasks.embeddings.context import EncodingContext
from posir_tasks.ranks import Hits
from posir_tasks.search.bm25 import fit_to_script
from posir_tasks.search.dispatch import SearchRequest, order_hits, search_hits

if TYPE_CHECKING:
    from datasets import Dataset
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

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
