"""Text encoders, and embeddings of distinct texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
from datasets import disable_progress_bars
from mteb.models import EncoderProtocol, SearchProtocol
from mteb.types import PromptType
from numpy.typing import NDArray
from transformers.utils.logging import disable_progress_bar

from posir_tasks.base.errors import PosirError
from posir_tasks.data.task_metadata import MINI_METADATA
from posir_tasks.models.embeddings.cache import EmbeddingFormat
from posir_tasks.models.embeddings.cached_encoder import add_cache
from posir_tasks.models.embeddings.context import EncodingContext, build_texts
from posir_tasks.models.embeddings.distinct import NO_EMBEDDINGS, DistinctEmbeddings
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import find_model, load_model
from posir_tasks.values.result_schema import SPLIT

#: Embeddings, shape (n, dimensions).
Vectors: TypeAlias = NDArray[np.float32]


class Encoder(Protocol):
    """Embeds texts."""

    def __call__(self, texts: Sequence[str], prompt_type: PromptType) -> Vectors:
        """Embed n >= 1 queries or documents, shape (n, dimensions). Vectors are not normalized."""


@dataclass(frozen=True)
class EmbeddingMemory:
    """In-memory cache of embeddings."""

    texts: frozenset[str] | None = None
    """Texts to cache; None to cache all texts."""
    _vectors: dict[tuple[PromptType, str], Vectors] = field(default_factory=dict, repr=False)

    @property
    def cached_texts(self) -> list[str]:
        """Texts with cached embeddings. A text that is both query and document occurs twice."""
        return [text for _, text in self._vectors]

    def look_up(self, texts: Sequence[str], prompt_type: PromptType, encode: Encoder) -> Vectors:
        """Return the embeddings of n texts, shape (n, dimensions). Encode missing texts."""
        vectors: dict[str, Any] = {text: self._vectors.get((prompt_type, text)) for text in texts}
        missing = [text for text, vector in vectors.items() if vector is None]
        if missing:
            vectors.update(zip(missing, encode(missing, prompt_type), strict=True))
        for text in missing:
            if self.texts is None or text in self.texts:
                self._vectors[prompt_type, text] = vectors[text]
        return np.stack([vectors[text] for text in texts])


#: Context for texts that are not from a task.
DEFAULT_CONTEXT = EncodingContext(MINI_METADATA, SPLIT, "default")


@dataclass(frozen=True)
class ModelEncoder:
    """An mteb model as an `Encoder`; embeddings are cached if `POSIR_EMBEDDINGS` is set."""

    model: EncoderProtocol
    context: EncodingContext = DEFAULT_CONTEXT
    memory: EmbeddingMemory | None = None

    @cached_property
    def _cached_model(self) -> EncoderProtocol:
        disable_progress_bars()
        model = add_cache(self.model)
        assert isinstance(model, EncoderProtocol)
        return model

    def __call__(self, texts: Sequence[str], prompt_type: PromptType) -> Vectors:
        """Embed n texts, shape (n, dimensions). Raise PosirError if the vectors are not dense."""
        if self.memory is None:
            return self._encode(texts, prompt_type)
        return self.memory.look_up(texts, prompt_type, self._encode)

    def _encode(self, texts: Sequence[str], prompt_type: PromptType) -> Vectors:
        embeddings = self.context.encode(self._cached_model, build_texts(texts), prompt_type)
        if EmbeddingFormat.detect(embeddings, len(texts)) is None:
            raise make_not_dense_error(self.model.mteb_model_meta.name)
        return np.asarray(
            embeddings.cpu().float() if hasattr(embeddings, "cpu") else embeddings, np.float32
        )


def make_not_dense_error(name: object) -> PosirError:
    """Build the error for a model without dense embeddings."""
    return PosirError(f"{name}: not a dense encoder. Give a model with one vector per text.")


def load_encoder(name: str, revision: str | None = None, *, batch_size: int = 32) -> ModelEncoder:
    """Load a model by its reference. Raise PosirError if it is not a dense encoder."""
    # transformers shows progress bars even if the output is piped.
    disable_progress_bar()  # type: ignore[no-untyped-call]
    reference = ModelReference(name, revision)
    meta = find_model(reference)
    model = load_model(reference)
    if not isinstance(model, EncoderProtocol) or isinstance(model, SearchProtocol):
        raise make_not_dense_error(meta.name)
    return ModelEncoder(
        model,
        replace(
            DEFAULT_CONTEXT, encode_kwargs={"batch_size": batch_size, "show_progress_bar": False}
        ),
    )


@dataclass(frozen=True)
class Embeddings:
    """Dense embeddings of distinct documents and queries."""

    documents: DistinctEmbeddings = NO_EMBEDDINGS
    queries: DistinctEmbeddings = NO_EMBEDDINGS

    def select(
        self, texts: Iterable[str], prompt_type: PromptType = PromptType.document
    ) -> Vectors:
        """Return the embeddings of n texts, shape (n, dimensions)."""
        side = self.documents if prompt_type is PromptType.document else self.queries
        vectors: Vectors = side.select(texts)
        return vectors

    def normalize(self) -> Embeddings:
        """Scale embeddings to unit length. Zero vectors stay zero."""
        return Embeddings(
            *(
                replace(side, embeddings=normalize_vectors(side.embeddings))
                for side in (self.documents, self.queries)
            )
        )


def encode_distinct(
    encoder: Encoder, documents: Iterable[str], queries: Iterable[str] = ()
) -> Embeddings:
    """Encode each distinct document and query once. Without texts, embeddings have 0 rows."""
    sides = [
        DistinctEmbeddings.encode(documents, lambda texts: encoder(texts, PromptType.document)),
        DistinctEmbeddings.encode(queries, lambda texts: encoder(texts, PromptType.query)),
    ]
    nonempty = next((side for side in sides if side.rows), NO_EMBEDDINGS)
    no_rows = nonempty.embeddings[:0]
    return Embeddings(*(side if side.rows else replace(side, embeddings=no_rows) for side in sides))


def normalize_vectors(vectors: NDArray[np.floating[Any]]) -> Vectors:
    """Scale vectors, shape (n, dimensions), to unit length. Zero vectors stay zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)
