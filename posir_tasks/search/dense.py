"""Exact search by embeddings: mteb's encoding and similarity, in blocks of bounded size, with arrays in place of a dictionary
per query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from datasets import Dataset
from mteb._create_dataloaders import create_dataloader
from mteb.models import EncoderProtocol
from mteb.timing import TimingStack
from mteb.types import Array, PromptType

from posir_tasks.ranks import Hits

#: Documents encoded at a time, as in mteb's `SearchEncoderWrapper`.
CHUNK = 50_000
#: Similarities held at a time: 128 MiB in single precision.
BLOCK = 2**25


class Embedder(Protocol):
    """Gives the embeddings of texts."""

    def __call__(self, texts: Dataset, prompt_type: PromptType) -> Array:
        """Return the embeddings of the column `text`, shape (n, dimensions).

        Args:
            texts: Columns `id` and `text`.
            prompt_type: Whether they are queries or documents.
        """


@dataclass(frozen=True)
class ModelEmbedder:
    """Embeddings made by a model, with what mteb tells it of the task."""

    model: EncoderProtocol
    encode_kwargs: dict[str, Any]
    num_proc: int | None
    where: dict[str, Any]
    """`task_metadata`, `hf_split` and `hf_subset`."""

    def __call__(self, texts: Dataset, prompt_type: PromptType) -> Array:
        """Encode the texts as mteb's own search does."""
        loader = create_dataloader(
            texts,
            task_metadata=self.where["task_metadata"],
            prompt_type=prompt_type,
            num_proc=self.num_proc,
            batch_size=self.encode_kwargs.get("batch_size", 32),
        )
        return self.model.encode(loader, prompt_type=prompt_type, **self.where, **self.encode_kwargs)


def dense_hits(
    model: EncoderProtocol, embed: Embedder, corpus: Dataset, queries: Dataset, *, top_k: int, timer: TimingStack, **phase: Any
) -> Hits:
    """Search a corpus by embeddings.

    Args:
        model: Says how similar two embeddings are.
        embed: Gives the embeddings.
        corpus: Columns `id` and `text`.
        queries: Columns `id` and `text`.
        top_k: Documents to keep for each query.
        timer: Is told how long encoding and searching took.
        phase: `split` and `subset`, for the timer.
    """
    with timer("Encoding queries", **phase):
        wanted = embed(queries, PromptType.query)
    scores, rows = torch.empty((len(queries), 0)), torch.empty((len(queries), 0), dtype=torch.int64)
    with timer("Searching corpus", **phase):
        for start in range(0, len(corpus), CHUNK):
            documents = embed(corpus.select(range(start, min(start + CHUNK, len(corpus)))), PromptType.document)
            near, row = nearest(model, wanted, documents, top_k)
            scores, rows = torch.cat([scores, near], dim=1), torch.cat([rows, row + start], dim=1)
            scores, order = scores.topk(min(top_k, scores.shape[1]), dim=1)
            rows = rows.gather(1, order)
    return Hits(rows.numpy(), scores.numpy(), corpus["id"][:])


def nearest(model: EncoderProtocol, queries: Array, documents: Array, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scores and rows of each query's nearest documents, shape (queries, at most `top_k`), in single precision."""
    found = [
        similarities.topk(min(top_k, similarities.shape[1]), dim=1)
        for similarities in (torch.as_tensor(model.similarity(part, documents)) for part in blocks(queries, documents.shape[0]))
    ]
    return torch.cat([best.values.float().cpu() for best in found]), torch.cat([best.indices.cpu() for best in found])


def blocks(queries: Array, documents: int) -> Iterator[Array]:
    """Yield the queries in parts whose similarities to all documents fill one block; sparse ones as a whole."""
    size = max(1, BLOCK // documents)
    if isinstance(queries, torch.Tensor) and queries.layout != torch.strided:
        size = queries.shape[0]
    for start in range(0, queries.shape[0], size):
        yield queries if size >= queries.shape[0] else queries[start : start + size]
