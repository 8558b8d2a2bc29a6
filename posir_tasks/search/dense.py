"""Exact dense search with mteb's encoding and similarity, in bounded memory, with arrays instead of a dictionary per query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from datasets import Dataset
from mteb.models import EncoderProtocol
from mteb.timing import TimingStack
from mteb.types import Array, PromptType

from posir_tasks.host.private_names import CREATE_DATALOADER
from posir_tasks.ranks import Hits

#: Documents encoded at a time, as in mteb's `SearchEncoderWrapper`.
CORPUS_CHUNK_SIZE = 50_000
#: Similarities computed at a time: 128 MiB in single precision.
MAX_SIMILARITIES = 2**25

#: Returns the embeddings of the column `text`, shape (n, dimensions), of queries or documents.
Embedder: TypeAlias = Callable[[Dataset, PromptType], Array]


@dataclass(frozen=True)
class ModelEmbedder:
    """Encodes texts with a model, given the task as mteb passes it."""

    model: EncoderProtocol
    encode_kwargs: dict[str, Any]
    num_proc: int | None
    task_arguments: dict[str, Any]
    """`task_metadata`, `hf_split` and `hf_subset`."""

    def __call__(self, texts: Dataset, prompt_type: PromptType) -> Array:
        """Encode the texts as mteb's own search does."""
        loader = CREATE_DATALOADER.resolve()(
            texts,
            task_metadata=self.task_arguments["task_metadata"],
            prompt_type=prompt_type,
            num_proc=self.num_proc,
            batch_size=self.encode_kwargs.get("batch_size", 32),
        )
        return self.model.encode(loader, prompt_type=prompt_type, **self.task_arguments, **self.encode_kwargs)


def search_dense(
    model: EncoderProtocol, embed: Embedder, corpus: Dataset, queries: Dataset, *, top_k: int, timer: TimingStack, **labels: Any
) -> Hits:
    """Find the documents whose embeddings are most similar to each query's.

    Args:
        model: Computes the similarity of embeddings.
        embed: Computes the embeddings.
        corpus: Columns `id` and `text`.
        queries: Columns `id` and `text`.
        top_k: Documents per query.
        timer: Records the time of encoding and searching.
        labels: `split` and `subset`, for the timer.
    """
    with timer("Encoding queries", **labels):
        query_embeddings = embed(queries, PromptType.query)
    scores, rows = torch.empty((len(queries), 0)), torch.empty((len(queries), 0), dtype=torch.int64)
    with timer("Searching corpus", **labels):
        for start in range(0, len(corpus), CORPUS_CHUNK_SIZE):
            documents = embed(corpus.select(range(start, min(start + CORPUS_CHUNK_SIZE, len(corpus)))), PromptType.document)
            chunk_scores, chunk_rows = find_nearest(model, query_embeddings, documents, top_k)
            scores, rows = torch.cat([scores, chunk_scores], dim=1), torch.cat([rows, chunk_rows + start], dim=1)
            scores, order = scores.topk(min(top_k, scores.shape[1]), dim=1)
            rows = rows.gather(1, order)
    return Hits(rows.numpy(), scores.numpy(), corpus["id"][:])


def find_nearest(model: EncoderProtocol, queries: Array, documents: Array, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scores and rows of each query's nearest documents, shape (queries, at most `top_k`), in single precision."""
    found = []
    for batch in split_queries(queries, documents.shape[0]):
        similarities = torch.as_tensor(model.similarity(batch, documents))
        found.append(similarities.topk(min(top_k, similarities.shape[1]), dim=1))
    return torch.cat([top.values.float().cpu() for top in found]), torch.cat([top.indices.cpu() for top in found])


def split_queries(queries: Array, documents: int) -> Iterator[Array]:
    """Yield batches of queries with at most `MAX_SIMILARITIES` to all documents; sparse queries are not split."""
    size = max(1, MAX_SIMILARITIES // documents)
    if isinstance(queries, torch.Tensor) and queries.layout != torch.strided:
        size = queries.shape[0]
    for start in range(0, queries.shape[0], size):
        yield queries if size >= queries.shape[0] else queries[start : start + size]
