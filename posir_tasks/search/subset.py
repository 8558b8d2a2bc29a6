"""Search one subset of a task with any model, including the first stage of a reranker.

This module imports torch, so task classes only import it for an evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from datasets import Dataset
from mteb.models.model_implementations.bm25 import BM25Search

from posir_tasks.models.bm25 import adapt_to_script
from posir_tasks.models.dispatch import is_reranker, search_and_rank, search_with_mteb
from posir_tasks.models.embeddings.cached_encoder import add_cache
from posir_tasks.models.loaded_model import read_example
from posir_tasks.models.request import SearchRequest
from posir_tasks.models.run_settings import find_first_stage
from posir_tasks.search.first_stage import load_first_stage
from posir_tasks.search.input_window import count_corpus, find_read_evidence
from posir_tasks.search.rotations import RotationTest
from posir_tasks.search.scoring import SearchedSubset, SplitData, select_documents
from posir_tasks.values.ranks import RankedQueries, Results, rank_results
from posir_tasks.values.result_schema import INDEX_KEY, PROTOCOL_KEY, SEARCH_KEY
from posir_tasks.values.rotation_ranks import read_sample_size
from posir_tasks.values.schemes import PositionScheme

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

#: Saves the predictions of a subset.
SavePredictions: TypeAlias = Callable[[Results], None]


def search_subset(
    model: MTEBModels,
    data: SplitData,
    request: SearchRequest,
    scheme: PositionScheme,
    *,
    first_stage_model: Mapping[str, str] | None = None,
    save: SavePredictions | None = None,
) -> tuple[SearchedSubset, dict[str, Any]]:
    """Search the queries of a subset.

    Args:
        model: Any mteb model. If a reranker has no candidates, its first stage is searched.
        data: The subset, as returned by `build_split`.
        request: The subset's texts, and a reranker's candidates.
        scheme: Assigns documents to length buckets.
        first_stage_model: Name and revision of the model that retrieved the candidates.
        save: Saves the predictions; None to discard them.

    Returns:
        The searched subset, and the search's record for the result.
    """
    context = request.context
    if request.top_ranked is None and is_reranker(model):
        first_stage = find_first_stage(model.mteb_model_meta, context.task_metadata.name)
        top_ranked, first_stage_model = load_first_stage(request, first_stage)
        request = replace(request, top_ranked=top_ranked)
    protocol = _describe_protocol(model, request)
    adapted_model = adapt_to_script(add_cache(model), context.corpus_language)
    results, ranked_queries = _search(adapted_model, request, save)
    extra_entries = {"previous_results_model_meta": first_stage_model} if first_stage_model else {}
    ordinary_ranks = dict(zip(request.positives, ranked_queries.ranks.tolist(), strict=True))
    subsets = len(context.task_metadata.hf_subsets)
    rotation = RotationTest(
        adapted_model, request, results, ordinary_ranks, read_sample_size(), subsets
    )
    subset_search = SearchedSubset(
        name=context.hf_subset,
        data=data,
        results=results,
        ranked_queries=ranked_queries,
        find_read_evidence=partial(find_read_evidence, model, request),
        count_tokens=partial(count_corpus, model, context.task_metadata, context.hf_subset, scheme),
        extra_entries=extra_entries,
        rotate=rotation.rank,
    )
    # Create the record now: the search for rotated versions overwrites the model's attributes.
    record = _record_search(model, adapted_model, request)
    if protocol:
        record[PROTOCOL_KEY] = protocol
    return subset_search, record


def _search(
    model: MTEBModels, request: SearchRequest, save: SavePredictions | None
) -> tuple[Results, RankedQueries]:
    if save is None:
        return search_and_rank(model, request)
    results = search_with_mteb(model, request)
    save(results)
    return results, rank_results(results, request.positives)


def _record_search(
    model: MTEBModels, adapted_model: MTEBModels, request: SearchRequest
) -> dict[str, Any]:
    record: dict[str, Any] = {}
    if isinstance(adapted_model, BM25Search) and adapted_model is not model:
        record["bm25_tokens"] = "character trigrams"
    # Some models count the document vectors in their last search, or describe the search.
    if (vectors := getattr(model, "document_vectors", None)) is not None:
        record[INDEX_KEY] = {"documents": len(request.corpus), "vectors": vectors}
    if (search_record := getattr(model, "search_record", None)) is not None:
        record[SEARCH_KEY] = dict(search_record)
    return record


def _describe_protocol(model: MTEBModels, request: SearchRequest) -> dict[str, Any] | None:
    """Describe a model's protocol, including one tokenized query and document."""
    record: dict[str, Any] | None = getattr(model, "posir_protocol", None)
    if record is None:
        return None
    documents = select_documents(request.corpus, request.positives.values())
    query, name = min(request.positives.items(), key=lambda pair: len(documents[pair[1]]["text"]))
    queries = request.queries.select([request.queries["id"][:].index(query)])
    example = read_example(model, queries, Dataset.from_list([documents[name]]), request.context)
    return {
        **record,
        "loaded": {**record["loaded"], **example},
        "example": {"query": query, "document": name},
    }
