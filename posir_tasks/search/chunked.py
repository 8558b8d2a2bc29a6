"""Search with several vectors per document, such as the embeddings of its chunks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from mteb.models import EncoderProtocol
from mteb.models.sentence_transformer_wrapper import MultiVectorSearchEncoderWrapper
from mteb.timing import TimingStack
from mteb.types import PromptType
from transformers.utils.logging import disable_progress_bar

from posir_tasks.base.errors import PosirError
from posir_tasks.models.dispatch import split_queries
from posir_tasks.models.embeddings.context import EncodingContext
from posir_tasks.models.embeddings.encoding import (
    DEFAULT_CONTEXT,
    EmbeddingMemory,
    ModelEncoder,
    Vectors,
    encode_distinct,
    make_not_dense_error,
)
from posir_tasks.models.endpoint_models import EndpointEncoder
from posir_tasks.models.prompts import find_prompt
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import load_model
from posir_tasks.text.chunks import Chunking, ChunkUnit
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.tokenizer import EstimatedTokenizer, Tokenizer, find_tokenizer
from posir_tasks.values.ranks import SearchResults
from posir_tasks.values.read_part import ReadPart, WindowSource

if TYPE_CHECKING:
    from datasets import Dataset

#: Number of documents to encode and score at a time.
BLOCK_SIZE = 10_000


@dataclass(frozen=True)
class DocumentVectors:
    """The vectors of n documents, at least one per document."""

    vectors: Vectors
    """Shape (all vectors, dimensions), document by document."""
    counts: Sequence[int]
    """Number of vectors of each document, shape (n,)."""

    def score(self, model: EncoderProtocol, queries: Vectors) -> Vectors:
        """Return the maximum similarity for each query and document, shape (queries, n)."""
        starts = np.cumsum([0, *self.counts[:-1]])
        vectors = torch.from_numpy(self.vectors)
        batches = []
        for batch in split_queries(queries, len(self.vectors)):
            similarities = torch.as_tensor(model.similarity(torch.as_tensor(batch), vectors))
            scores = similarities.float().cpu().numpy()
            batches.append(np.maximum.reduceat(scores, starts, axis=1))
        return np.concatenate(batches)

    def split(self) -> list[Vectors]:
        """Return one array per document, shape (vectors, dimensions)."""
        edges = accumulate(self.counts, initial=0)
        return [self.vectors[start:end] for start, end in pairwise(edges)]

    def average(self) -> Vectors:
        """Return the mean vector of each document, shape (n, dimensions)."""
        return np.stack([vectors.mean(axis=0, dtype=np.float32) for vectors in self.split()])


#: Computes the vectors of documents.
Vectorizer: TypeAlias = Callable[[ModelEncoder, Sequence[str]], DocumentVectors]


class MaximumSearch(MultiVectorSearchEncoderWrapper):
    """An mteb search model with several vectors per document. The most similar vector determines
    the score.

    mteb passes its timer only to subclasses of the base class.
    """

    scores_depend_on_corpus = False
    read_part: ReadPart | None = None
    """The part of a document that is read. If None, it is the part that the base model reads."""

    def __init__(
        self, base: EncoderProtocol, vectorize: Vectorizer, memory: EmbeddingMemory | None = None
    ) -> None:
        self.mteb_model_meta = base.mteb_model_meta
        self.document_vectors = 0
        """Number of document vectors in the last search."""
        self._base = base
        self._vectorize = vectorize
        self._memory = memory
        self._corpus: Dataset | None = None

    @property
    def base(self) -> EncoderProtocol:
        """The base model, which encodes queries."""
        return self._base

    def encode_documents(self, encoder: ModelEncoder, texts: Sequence[str]) -> DocumentVectors:
        """Compute the vectors of documents. `encoder` must wrap the base model."""
        return self._vectorize(encoder, texts)

    def index(self, corpus: Dataset, **_: Any) -> None:
        """Store the corpus. The search encodes it in blocks."""
        self._corpus = corpus

    def search(
        self,
        queries: Dataset,
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **task_arguments: Any,
    ) -> SearchResults:
        """Return the scores of each query's `top_k` documents, by query id and document id.

        With `top_ranked`, only the listed documents are scored.
        """
        assert self._corpus is not None
        context = EncodingContext.from_arguments(**task_arguments)
        timer = task_arguments.get("timer") or TimingStack()
        labels = {"split": context.hf_split, "subset": context.hf_subset}
        encoder = ModelEncoder(self._base, context, self._memory)
        with timer("Encoding queries", **labels):
            query_vectors = encoder(context.read_texts(queries, PromptType.query), PromptType.query)
        best: SearchResults = {query: {} for query in queries["id"][:]}
        self.document_vectors = 0
        with timer("Searching corpus", **labels):
            for start in range(0, len(self._corpus), BLOCK_SIZE):
                rows = range(start, min(start + BLOCK_SIZE, len(self._corpus)))
                block = self._corpus.select(rows)
                documents = self._vectorize(encoder, context.read_texts(block, PromptType.document))
                self.document_vectors += len(documents.vectors)
                scores = documents.score(self._base, query_vectors)
                _update_best(best, block["id"][:], scores, top_k, top_ranked)
        self._corpus = None
        return best


def _update_best(
    best: SearchResults,
    documents: Sequence[str],
    scores: Vectors,
    top_k: int,
    candidates: Mapping[str, Sequence[str]] | None,
) -> None:
    """Update the best documents of each query with `scores`, shape (queries, documents)."""
    rows = {document: row for row, document in enumerate(documents)}
    for query, values in zip(best, scores, strict=True):
        best_rows = np.arange(len(values))
        if candidates is not None:
            query_rows = [rows[name] for name in candidates.get(query, ()) if name in rows]
            best_rows = np.array(query_rows, np.int64)
        if len(best_rows) > top_k:
            best_rows = best_rows[np.argpartition(-values[best_rows], top_k)[:top_k]]
        best_scores = dict(best[query])
        for row in best_rows.tolist():
            best_scores[documents[row]] = float(values[row])
        ranking = sorted(best_scores.items(), key=lambda item: -item[1])
        best[query] = dict(ranking[:top_k])


@dataclass(frozen=True)
class TextModel:
    """A model for an application's index. `mteb run` evaluates the same model by its name."""

    name: str
    encoder: ModelEncoder
    """Encodes queries and, unless `multi_vector` is set, documents."""
    multi_vector: MaximumSearch | None = None
    """Encodes documents as several vectors; None if each document has one vector."""

    @classmethod
    def load(cls, name: str, revision: str | None, batch_size: int) -> TextModel:
        """Load a model by its reference.

        Raises:
            PosirError: The model does not exist, or is not a dense encoder.
        """
        disable_progress_bar()  # type: ignore[no-untyped-call]
        model = load_model(ModelReference(name, revision))
        multi_vector = model if isinstance(model, MaximumSearch) else None
        base = multi_vector.base if multi_vector else model
        if not isinstance(base, EncoderProtocol):
            raise make_not_dense_error(name)
        options: Any = {"batch_size": batch_size, "show_progress_bar": False}
        encoder = ModelEncoder(base, replace(DEFAULT_CONTEXT, encode_kwargs=options))
        return cls(str(model.mteb_model_meta.name), encoder, multi_vector)

    def encode(self, texts: Sequence[str], *, query: bool = False) -> list[Vectors]:
        """Return one array per document or query, shape (vectors, dimensions)."""
        if not texts:
            return []
        if self.multi_vector and not query:
            return self.multi_vector.encode_documents(self.encoder, texts).split()
        prompt_type = PromptType.query if query else PromptType.document
        return list(self.encoder(texts, prompt_type)[:, None])

    def search(
        self, queries: Sequence[str], documents: Sequence[str], k: int = 10
    ) -> list[list[tuple[int, float]]]:
        """Return the index and score of the top `k` documents for each query, best first.

        The score of a document is the score of its best vector.
        """
        if not queries or not documents:
            return [[] for _ in queries]
        vectors = self.encode(documents)
        index = DocumentVectors(np.concatenate(vectors), list(map(len, vectors)))
        query_vectors = np.concatenate(self.encode(queries, query=True))
        results = []
        for scores in index.score(self.encoder.model, query_vectors):
            best = np.argsort(-scores, kind="stable")[:k]
            results.append([(int(row), float(scores[row])) for row in best])
        return results


@dataclass(frozen=True)
class Chunker:
    """Splits documents into chunks and encodes them."""

    chunking: Chunking
    tokenizer: Tokenizer

    @classmethod
    def from_model(cls, model: EncoderProtocol, chunking: Chunking) -> Chunker:
        """Build the chunker for a model. If its tokenizer is unknown, tokens are estimated."""
        return cls(chunking, find_tokenizer(model) or EstimatedTokenizer())

    def split(self, texts: Sequence[str], language: str) -> list[list[str]]:
        """Return at least one chunk per text. `language` is a code such as `eng-Latn`."""
        if self.chunking.unit is ChunkUnit.SENTENCES:
            return [
                self.chunking.split_text(text, find_sentences(text, language)) for text in texts
            ]
        tokens = self.tokenizer.find_tokens(texts)
        return list(map(self.chunking.split_text, texts, tokens))

    def find_read_part(self, model: EncoderProtocol) -> ReadPart | None:
        """Return `ReadPart.all` if chunks always fit into the model's window, else None."""
        fits = self.chunking.unit is ChunkUnit.TOKENS and find_room(model) is not None
        return ReadPart.all(WindowSource.CHUNKS) if fits else None

    def vectorize(self, encoder: ModelEncoder, texts: Sequence[str]) -> DocumentVectors:
        """Encode the chunks of documents. Raise PosirError if chunks do not fit into the window."""
        self.check_room(encoder.model, encoder.context)
        return vectorize_chunks(encoder, self.split(texts, encoder.context.corpus_language))

    def vectorize_in_context(self, encoder: ModelEncoder, texts: Sequence[str]) -> DocumentVectors:
        """Encode chunks with an endpoint that embeds each one in the context of its document."""
        assert isinstance(encoder.model, EndpointEncoder)
        prompt = find_prompt(encoder.model, encoder.context.task_metadata, PromptType.document)
        prefix = prompt.text or "" if prompt else ""
        documents = self.split(texts, encoder.context.corpus_language)
        chunks = [[prefix + chunk for chunk in document] for document in documents]
        return DocumentVectors(encoder.model.embed_documents(chunks), list(map(len, chunks)))

    def check_room(self, model: EncoderProtocol, context: EncodingContext | None = None) -> None:
        """Raise PosirError if a chunk and the context's prompt do not fit into the window."""
        room = None if self.chunking.unit is ChunkUnit.SENTENCES else find_room(model, context)
        if room is not None and self.chunking.size > room:
            raise PosirError(
                f"{model.mteb_model_meta.name}: chunks of {self.chunking.size} tokens exceed the "
                f"model's window; the size is at most {room}."
            )


def vectorize_chunks(encoder: ModelEncoder, chunks: Sequence[Sequence[str]]) -> DocumentVectors:
    """Encode the chunks of each document, at least one per document."""
    texts = [chunk for document in chunks for chunk in document]
    return DocumentVectors(encode_distinct(encoder, texts).select(texts), list(map(len, chunks)))


def find_room(model: EncoderProtocol, context: EncodingContext | None = None) -> int | None:
    """Return how many tokens of text fit into a model's window after special tokens and the
    context's prompt; None if unknown.
    """
    tokenizer = find_tokenizer(model)
    window = getattr(getattr(model, "model", None), "max_seq_length", None)
    if tokenizer is None or not window:
        return None
    prompt = find_prompt(model, context.task_metadata, PromptType.document) if context else None
    room = int(window) - tokenizer.special_tokens
    if prompt and prompt.text:
        room -= tokenizer.count(prompt.text)
    return room
