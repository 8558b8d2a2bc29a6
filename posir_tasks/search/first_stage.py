"""First stage of a reranker: the top 100 documents of BM25 or any other model, cached.

The authors of PosQ rerank the top 100 of BM25 on SQuAD-PosQ and of NV-Embed-v2 on FineWeb-PosQ
(Zeng et al. 2025, arXiv 2505.13950, evaluation scripts).
"""

from __future__ import annotations

import logging
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from mteb.models.get_model_meta import get_model_meta
from polars._typing import PolarsDataType

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import DataError, PosirError
from posir_tasks.base.files import get_cache_folder, write_atomically
from posir_tasks.data.checks import read_columns
from posir_tasks.data.data import digest_texts
from posir_tasks.models.bm25 import adapt_to_script
from posir_tasks.models.dispatch import order_documents, search
from posir_tasks.models.embeddings.cached_encoder import add_cache
from posir_tasks.models.references import (
    BM25_BASELINE,
    CROSS_ENCODER,
    MISSING_REVISIONS,
    ModelReference,
)
from posir_tasks.models.registry import find_model, load_model
from posir_tasks.models.request import SearchRequest
from posir_tasks.models.run_settings import FIRST_STAGE_VARIABLE, ignore_run_settings
from posir_tasks.text.words import UNSPACED_ALPHABETS

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

logger = logging.getLogger(__name__)

#: Columns of a cache file.
CANDIDATES: dict[str, PolarsDataType] = {"query": pl.String, "documents": pl.List(pl.String)}


def load_first_stage(
    request: SearchRequest, reference: str = BM25_BASELINE
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Search with the first-stage model, or read the results from the cache.

    Returns:
        The document ids of each query, best first, by query id; and the model's name and revision
        as in mteb's results.

    Raises:
        PosirError: The model does not exist, or is a reranker.
    """
    with ignore_run_settings():
        meta = (
            get_model_meta(reference)
            if reference == BM25_BASELINE
            else find_model(ModelReference(reference))
        )
    if CROSS_ENCODER in meta.model_type:
        raise PosirError(
            f"{FIRST_STAGE_VARIABLE}: {meta.name} is a reranker and cannot search. Give BM25 or an "
            "embedding model."
        )
    settings = [str(meta.name), str(meta.revision), version("mteb"), str(request.top_k)]
    if meta.experiment_name:
        settings.append(meta.experiment_name)
    task = request.context.task_metadata
    subset = request.context.hf_subset
    if meta.name == BM25_BASELINE:
        settings += [version("bm25s"), *task.hf_subsets_to_langscripts[subset]]
        if request.context.corpus_language[4:] in UNSPACED_ALPHABETS:
            settings.append("trigrams")
    else:
        # The model's prompt depends on the task.
        settings += [task.name, subset]
    key = digest(*settings, digest_texts(request.corpus), digest_texts(request.queries)).hex()
    file = get_cache_folder() / "first-stage" / f"{key}.parquet"
    # Without a revision, the weights may have changed since the search.
    has_revision = meta.revision not in MISSING_REVISIONS
    top_ranked = _read_candidates(file) if has_revision else None
    if top_ranked is None:
        logger.info(
            "Searching the first stage for reranking: the top %d of %s", request.top_k, meta.name
        )
        model = adapt_to_script(
            add_cache(_load_model(reference, meta.experiment_name)),
            request.context.corpus_language,
        )
        top_ranked = order_documents(search(model, request))
        if has_revision:
            columns = {"query": list(top_ranked), "documents": list(top_ranked.values())}
            with write_atomically(file) as part:
                pl.DataFrame(columns, schema=CANDIDATES).write_parquet(part)
    return top_ranked, {"model_name": str(meta.name), "revision": str(meta.revision)}


@lru_cache(maxsize=1)
def _load_model(reference: str, protocol: str | None) -> MTEBModels:  # noqa: ARG001 (the key of the cache)
    """Load the first-stage model and keep it in memory for the next subset."""
    with ignore_run_settings():
        return load_model(ModelReference(reference))


def _read_candidates(file: Path) -> dict[str, list[str]] | None:
    """Read the cached candidates of each query. Return None if the file is missing or corrupt."""
    if not file.exists():
        return None
    try:
        candidates = read_columns(file, CANDIDATES)
    except DataError as error:
        logger.warning("%s; the first stage runs again and replaces the file", error)
        return None
    return dict(zip(candidates["query"].to_list(), candidates["documents"].to_list(), strict=True))
