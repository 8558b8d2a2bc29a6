"""Search with several vectors per document: a document scores what its most similar vector scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from mteb.models import EncoderProtocol
from mteb.models.sentence_transformer_wrapper import MultiVectorSearchEncoderWrapper
from mteb.timing import TimingStack
from mteb.types import PromptType

from posir_tasks.embeddings.context import EncodingContext
from posir_tasks.embeddings.encoding import EmbeddingMemory, ModelEncoder, Vectors
from posir_tasks.evidence import Integers
from posir_tasks.search.dense import split_queries

if TYPE_CHECKING:
    from datasets import Dataset
    from mteb.abstasks.task_metadata import TaskMetadata

#: Documents whose vectors are in memory at a time.
BLOCK_SIZE = 10_000


@dataclass(frozen=True)
class DocumentVectors:
    """Vectors of n documents, at least one each."""

    vectors: Vectors
    """Shape (all vectors, dimensions), document by document."""
    counts: Sequence[int]
    """Vectors of each document, shape (n,)."""

    def score(self, model: EncoderProtocol, queries: Vectors) -> Vectors:
        """Return the maximum similarity of each query to each document's vectors, shape (queries, n)."""
        starts = np.cumsum([0, *self.counts[:-1]])
        batches = [
            np.maximum.reduceat(
                torch.as_tensor(model.similarity(torch.as_tensor(batch), torch.from_numpy(self.vectors))).float().cpu().numpy(),
                starts,
                axis=1,
            )
            for batch in split_queries(queries, len(self.vectors))
        ]
        return np.concatenate(batches)

    def pool(self, combine: Callable[[Vectors], Vectors]) -> Vectors:
        """Return the vector that a function makes of those of each document, shape (n, dimensions)."""
        bounds = pairwise(accumulate(self.counts, initial=0))
        return np.stack([combine(self.vectors[start:end]) for start, end in bounds])


#: Returns the vectors of documents.
Vectorizer: TypeAlias = Callable[[ModelEncoder, Sequence[str]], DocumentVectors]


class MaximumSearch(MultiVectorSearchEncoderWrapper):
    """One of mteb's search models: queries as by the plain model, documents by their most similar vector.

    mteb gives its timer to subclasses of this class only.
    """

    def __init__(self, base: EncoderProtocol, vectorize: Vectorizer, memory: EmbeddingMemory | None = None) -> None:
        self.mteb_model_meta = base.mteb_model_meta
        self.document_vectors = 0
        """Vectors of the documents that were last searched."""
        self._base = base
        self._vectorize = vectorize
        self._memory = memory
        self._corpus: Dataset | None = None

    def index(self, corpus: Dataset, **_: Any) -> None:
        """Remember the corpus, which is encoded block by block when it is searched."""
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
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        num_proc: int | None = None,
        timer: TimingStack | None = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        """Return the scores of each query's `top_k` documents, by query id and document id; of `top_ranked` if given."""
        assert self._corpus is not None
        timer, labels = timer or TimingStack(), {"split": hf_split, "subset": hf_subset}
        context = EncodingContext(task_metadata, hf_split, hf_subset, encode_kwargs, num_proc)
        encoder = ModelEncoder(self._base, context, self._memory)
        with timer("Encoding queries", **labels):
            query_vectors = encoder(context.read_texts(queries, PromptType.query), PromptType.query)
        best = _Best(queries["id"][:], top_k, top_ranked)
        self.document_vectors = 0
        with timer("Searching corpus", **labels):
            for start in range(0, len(self._corpus), BLOCK_SIZE):
                block = self._corpus.select(range(start, min(start + BLOCK_SIZE, len(self._corpus))))
                documents = self._vectorize(encoder, context.read_texts(block, PromptType.document))
                self.document_vectors += len(documents.vectors)
                best.add(block["id"][:], documents.score(self._base, query_vectors))
        self._corpus = None
        return best.results


class _Best:
    """The best documents of each query so far."""

    def __init__(self, queries: Sequence[str], top_k: int, candidates: Mapping[str, Sequence[str]] | None) -> None:
        self._top_k = top_k
        self._candidates = candidates
        self.results: dict[str, dict[str, float]] = {query: {} for query in queries}

    def add(self, documents: Sequence[str], scores: Vectors) -> None:
        """Add documents with their scores, shape (queries, documents)."""
        rows = {document: row for row, document in enumerate(documents)}
        for query, values in zip(self.results, scores, strict=True):
            candidates = None if self._candidates is None else self._candidates.get(query, ())
            chosen = self._highest(values, None if candidates is None else [rows[name] for name in candidates if name in rows])
            merged = self.results[query] | {documents[row]: float(values[row]) for row in chosen.tolist()}
            self.results[query] = dict(sorted(merged.items(), key=lambda item: -item[1])[: self._top_k])

    def _highest(self, values: Vectors, allowed: Sequence[int] | None) -> Integers:
        rows = np.arange(len(values)) if allowed is None else np.array(allowed, np.int64)
        if len(rows) <= self._top_k:
            return rows
        highest: Integers = rows[np.argpartition(-values[rows], self._top_k)[: self._top_k]]
        return highest
