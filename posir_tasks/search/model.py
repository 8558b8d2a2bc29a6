"""Any model of mteb, searched: to its results, or straight to the ranks of the relevant documents."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from datasets import Dataset
from mteb._evaluators import RetrievalEvaluator
from mteb.abstasks.task_metadata import TaskMetadata
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
from mteb.types import EncodeKwargs

from posir_tasks.ranks import Hits, RankedQueries, rank_hits, rank_results
from posir_tasks.search.bm25 import bm25_hits
from posir_tasks.search.dense import ModelEmbedder, dense_hits


@dataclass(frozen=True)
class SearchRequest:
    """What is searched for, where and how."""

    corpus: Dataset
    """Columns `id` and `text`."""
    queries: Dataset
    """Columns `id` and `text`."""
    positives: Mapping[str, str]
    """Query id to the id of its relevant document, in the order of the queries."""
    top_ranked: Mapping[str, list[str]] | None
    """Documents to rerank for each query; None to search the whole corpus."""
    top_k: int
    task_metadata: TaskMetadata
    hf_split: str
    hf_subset: str
    encode_kwargs: EncodeKwargs
    num_proc: int | None
    timer: TimingStack


def is_reranker(model: MTEBModels) -> bool:
    """Whether the model only reorders documents that something else found."""
    return isinstance(model, CrossEncoderProtocol) and not isinstance(model, EncoderProtocol | SearchProtocol)


def window_of(model: MTEBModels) -> int | None:
    """Return how many tokens of a text the model reads, as it or else its registered metadata tells; None if unknown."""
    loaded = getattr(getattr(model, "model", None), "max_seq_length", None)
    registered = model.mteb_model_meta.max_tokens if model.mteb_model_meta else None
    window = loaded or registered
    return int(window) if window and math.isfinite(window) else None


def as_search(model: MTEBModels) -> SearchProtocol:
    """Give any model of mteb the search interface, as `AbsTaskRetrieval` does.

    Raises:
        TypeError: It is no model of mteb.
    """
    if isinstance(model, SearchProtocol):
        return model
    if isinstance(model, EncoderProtocol):
        return SearchEncoderWrapper(model)
    if isinstance(model, CrossEncoderProtocol):
        return SearchCrossEncoderWrapper(model)
    raise TypeError(f"{type(model).__name__} is neither a search model, an encoder nor a cross-encoder of mteb.")


def search_results(model: MTEBModels, request: SearchRequest) -> dict[str, dict[str, float]]:
    """Search by mteb's own evaluator; return query id to document id to score."""
    evaluator = RetrievalEvaluator(
        corpus=request.corpus,
        queries=request.queries,
        task_metadata=request.task_metadata,
        hf_split=request.hf_split,
        hf_subset=request.hf_subset,
        top_k=request.top_k,
        top_ranked=request.top_ranked,
        timer=request.timer,
    )
    found: dict[str, dict[str, float]] = evaluator(
        as_search(model), encode_kwargs=request.encode_kwargs, num_proc=request.num_proc
    )
    return found


def search_ranks(model: MTEBModels, request: SearchRequest) -> RankedQueries:
    """Search and rank the relevant documents, by the way that takes the least memory for this model.

    Raises:
        ScoreError: The model returned NaN.
    """
    if request.top_ranked is None and isinstance(model, EncoderProtocol) and not isinstance(model, SearchProtocol):
        return rank_hits(embedding_hits(model, request), request.positives)
    if request.top_ranked is not None or not isinstance(model, BM25Search):
        return rank_results(search_results(model, request), request.positives)
    with request.timer("Searching corpus", split=request.hf_split, subset=request.hf_subset):
        hits = bm25_hits(
            model,
            request.corpus,
            request.queries,
            top_k=request.top_k,
            num_proc=request.num_proc,
            task_metadata=request.task_metadata,
            hf_split=request.hf_split,
            hf_subset=request.hf_subset,
            encode_kwargs=request.encode_kwargs,
        )
    return rank_hits(hits, request.positives)


def embedding_hits(model: EncoderProtocol, request: SearchRequest) -> Hits:
    """Search by embeddings, those of the corpus chunk by chunk."""
    where = {"task_metadata": request.task_metadata, "hf_split": request.hf_split, "hf_subset": request.hf_subset}
    return dense_hits(
        model,
        ModelEmbedder(model, dict(request.encode_kwargs), request.num_proc, where),
        request.corpus,
        request.queries,
        top_k=request.top_k,
        timer=request.timer,
        split=request.hf_split,
        subset=request.hf_subset,
    )
