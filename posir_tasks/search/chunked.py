"""Documents by the embeddings of their chunks."""

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
    not_dense,
)
from posir_tasks.models.endpoint_models import EndpointEncoder
from posir_tasks.models.prompts import find_prompt
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import load_model
from posir_tasks.text.chunks import Chunking, ChunkUnit
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.tokenizer import EstimatedTokenizer, Tokenizer, find_tokenizer
from posir_tasks.values.ranks import SearchResults
from posir_tasks.values.read_part import KnownBy, ReadPart

if TYPE_CHECKING:
    from datasets import Dataset

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
        """Return the maximum similarity of each query to each document's vectors, shape (queries,
        n).
        """
        starts = np.cumsum([0, *self.counts[:-1]])
        vectors = torch.from_numpy(self.vectors)
        batches = []
        for batch in split_queries(queries, len(self.vectors)):
            similarities = torch.as_tensor(model.similarity(torch.as_tensor(batch), vectors))
            scores = similarities.float().cpu().numpy()
            batches.append(np.maximum.reduceat(scores, starts, axis=1))
        return np.concatenate(batches)

    def split(self) -> list[Vectors]:
        """Return the vectors of each document, shape (its vectors, dimensions) each."""
        edges = accumulate(self.counts, initial=0)
        return [self.vectors[start:end] for start, end in pairwise(edges)]

    def average(self) -> Vectors:
        """Return the mean of the vectors of each document, shape (n, dimensions)."""
        return np.stack([vectors.mean(axis=0, dtype=np.float32) for vectors in self.split()])


#: Returns the vectors of documents.
Vectorizer: TypeAlias = Callable[[ModelEncoder, Sequence[str]], DocumentVectors]


class MaximumSearch(MultiVectorSearchEncoderWrapper):
    """One of mteb's search models: queries as by the plain model, documents by their most similar
    vector.

    mteb gives its timer to subclasses of this class only.
    """

    scores_depend_on_corpus = False
    read_part: ReadPart | None = None
    """The part of a document that is read; None if its model says it."""

    def __init__(
        self, base: EncoderProtocol, vectorize: Vectorizer, memory: EmbeddingMemory | None = None
    ) -> None:
        self.mteb_model_meta = base.mteb_model_meta
        self.document_vectors = 0
        """Vectors of the documents that were last searched."""
        self._base = base
        self._vectorize = vectorize
        self._memory = memory
        self._corpus: Dataset | None = None

    @property
    def base(self) -> EncoderProtocol:
        """The plain model, by which queries are encoded."""
        return self._base

    def encode_documents(self, encoder: ModelEncoder, texts: Sequence[str]) -> DocumentVectors:
        """Return the vectors of documents by an encoder of the plain model, for an index."""
        return self._vectorize(encoder, texts)

    def index(self, corpus: Dataset, **_: Any) -> None:
        """Remember the corpus, which is encoded block by block when it is searched."""
        self._corpus = corpus

    def search(
        self,
        queries: Dataset,
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **task: Any,
    ) -> SearchResults:
        """Return the scores of each query's `top_k` documents, by query id and document id; of
        `top_ranked` if given.
        """
        assert self._corpus is not None
        context = EncodingContext.from_arguments(**task)
        timer = task.get("timer") or TimingStack()
        labels = {"split": context.hf_split, "subset": context.hf_subset}
        encoder = ModelEncoder(self._base, context, self._memory)
        with timer("Encoding queries", **labels):
            query_vectors = encoder(context.read_texts(queries, PromptType.query), PromptType.query)
        best: SearchResults = {query: {} for query in queries["id"][:]}
        self.document_vectors = 0
        with timer("Searching corpus", **labels):
            for start in range(0, len(self._corpus), BLOCK_SIZE):
                block = self._corpus.select(
                    range(start, min(start + BLOCK_SIZE, len(self._corpus)))
                )
                documents = self._vectorize(encoder, context.read_texts(block, PromptType.document))
                self.document_vectors += len(documents.vectors)
                _keep_best(
                    best,
                    block["id"][:],
                    documents.score(self._base, query_vectors),
                    top_k,
                    top_ranked,
                )
        self._corpus = None
        return best


def _keep_best(
    best: SearchResults,
    documents: Sequence[str],
    scores: Vectors,
    top_k: int,
    candidates: Mapping[str, Sequence[str]] | None,
) -> None:
    """Add documents with their scores, shape (queries, documents), to the best ones of each query
    so far.
    """
    rows = {document: row for row, document in enumerate(documents)}
    for query, values in zip(best, scores, strict=True):
        chosen = np.arange(len(values))
        if candidates is not None:
            present = [rows[name] for name in candidates.get(query, ()) if name in rows]
            chosen = np.array(present, np.int64)
        if len(chosen) > top_k:
            chosen = chosen[np.argpartition(-values[chosen], top_k)[:top_k]]
        merged = dict(best[query])
        for row in chosen.tolist():
            merged[documents[row]] = float(values[row])
        ordered = sorted(merged.items(), key=lambda item: -item[1])
        best[query] = dict(ordered[:top_k])


@dataclass(frozen=True)
class TextModel:
    """A model in an application: what `mteb run` evaluates under the same name, for an index of
    one's own.
    """

    name: str
    encoder: ModelEncoder
    """Encodes queries, and documents unless they have several vectors."""
    several: MaximumSearch | None = None
    """Encodes documents by several vectors, such as those of chunks; None if they have one."""

    @classmethod
    def load(cls, name: str, revision: str | None, batch_size: int) -> TextModel:
        """Load a model by its reference; raise PosirError if there is none, or it has no
        vectors.
        """
        disable_progress_bar()  # type: ignore[no-untyped-call]
        loaded = load_model(ModelReference(name, revision))
        several = loaded if isinstance(loaded, MaximumSearch) else None
        base = several.base if several else loaded
        if not isinstance(base, EncoderProtocol):
            raise not_dense(name)
        options: Any = {"batch_size": batch_size, "show_progress_bar": False}
        encoder = ModelEncoder(base, replace(DEFAULT_CONTEXT, encode_kwargs=options))
        return cls(str(loaded.mteb_model_meta.name), encoder, several)

    def encode(self, texts: Sequence[str], *, query: bool = False) -> list[Vectors]:
        """Return the vectors of each text, shape (1 or more, dimensions): of documents, or of
        queries.
        """
        if self.several and not query and texts:
            return self.several.encode_documents(self.encoder, texts).split()
        if texts:
            kind = PromptType.query if query else PromptType.document
            return list(self.encoder(texts, kind)[:, None])
        return []

    def search(
        self, queries: Sequence[str], documents: Sequence[str], k: int = 10
    ) -> list[list[tuple[int, float]]]:
        """Return the first `k` documents of each query, best first: row and score; a document
        scores as its best vector.
        """
        if not queries or not documents:
            return [[] for _ in queries]
        vectors = self.encode(documents)
        indexed = DocumentVectors(np.concatenate(vectors), list(map(len, vectors)))
        query_vectors = np.concatenate(self.encode(queries, query=True))
        results = []
        for scores in indexed.score(self.encoder.model, query_vectors):
            best = np.argsort(-scores, kind="stable")[:k]
            results.append([(int(row), float(scores[row])) for row in best])
        return results


@dataclass(frozen=True)
class Chunker:
    """Divides documents and encodes their chunks."""

    chunking: Chunking
    tokenizer: Tokenizer

    @classmethod
    def of_model(cls, model: EncoderProtocol, chunking: Chunking) -> Chunker:
        """Return the chunker for a model: tokens are those of its tokenizer, or estimated if that
        is not here.
        """
        return cls(chunking, find_tokenizer(model) or EstimatedTokenizer())

    def divide(self, texts: Sequence[str], language: str) -> list[list[str]]:
        """Return the chunks of each text, at least one; the language is that of the texts, such as
        `eng-Latn`.
        """
        if self.chunking.unit is ChunkUnit.SENTENCES:
            return [self.chunking.divide(text, find_sentences(text, language)) for text in texts]
        tokens = self.tokenizer.find_tokens(texts)
        return list(map(self.chunking.divide, texts, tokens))

    def find_read_part(self, model: EncoderProtocol) -> ReadPart | None:
        """Return that all of a document is read where chunks cannot exceed the model's window; None
        if that is not known.
        """
        fits = self.chunking.unit is ChunkUnit.TOKENS and find_room(model) is not None
        return ReadPart.all(KnownBy.CHUNKS) if fits else None

    def vectorize(self, encoder: ModelEncoder, texts: Sequence[str]) -> DocumentVectors:
        """Return the vectors of the documents' chunks; raise PosirError if a chunk and the prompt
        exceed the window.
        """
        self.check_room(encoder.model, encoder.context)
        return vectorize_chunks(encoder, self.divide(texts, encoder.context.corpus_language))

    def vectorize_in_context(self, encoder: ModelEncoder, texts: Sequence[str]) -> DocumentVectors:
        """Return the vectors of the documents' chunks by a server that embeds them in the context
        of their document.
        """
        assert isinstance(encoder.model, EndpointEncoder)
        prompt = find_prompt(encoder.model, encoder.context.task_metadata, PromptType.document)
        before = prompt.text or "" if prompt else ""
        divided = self.divide(texts, encoder.context.corpus_language)
        chunks = [[before + chunk for chunk in several] for several in divided]
        return DocumentVectors(encoder.model.embed_documents(chunks), list(map(len, chunks)))

    def check_room(self, model: EncoderProtocol, context: EncodingContext | None = None) -> None:
        """Raise PosirError if a chunk does not fit the model's window, with its prompt for
        documents if a task is given.
        """
        room = None if self.chunking.unit is ChunkUnit.SENTENCES else find_room(model, context)
        if room is not None and self.chunking.size > room:
            raise PosirError(
                f"{model.mteb_model_meta.name}: chunks of {self.chunking.size} tokens exceed the "
                f"model's window; the size is at most {room}."
            )


def vectorize_chunks(encoder: ModelEncoder, chunks: Sequence[Sequence[str]]) -> DocumentVectors:
    """Return the vectors of the chunks of each document, of which each has at least one."""
    joined = [chunk for several in chunks for chunk in several]
    return DocumentVectors(encode_distinct(encoder, joined).select(joined), list(map(len, chunks)))


def find_room(model: EncoderProtocol, context: EncodingContext | None = None) -> int | None:
    """Return the most tokens of a text that fit a model's window, with its prompt if a task is
    given; None if unknown.
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
