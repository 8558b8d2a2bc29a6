"""One pass over the texts of several probes: each distinct text is encoded once, through the
embedding cache if it is set.
"""

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
from posir_tasks.models.embeddings.cached_encoder import with_cache
from posir_tasks.models.embeddings.context import EncodingContext, build_texts
from posir_tasks.models.embeddings.distinct import NO_EMBEDDINGS, DistinctEmbeddings
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import find_model, load_model
from posir_tasks.values.result_schema import SPLIT

#: Embeddings, shape (n, dimensions).
Vectors: TypeAlias = NDArray[np.float32]


class Encoder(Protocol):
    """Embeds texts. Anything with this signature can be probed."""

    def __call__(self, texts: Sequence[str], prompt_type: PromptType) -> Vectors:
        """Return the embeddings of n texts, at least one, as queries or documents; shape (n,
        dimensions), of any length.
        """


@dataclass(frozen=True)
class EmbeddingMemory:
    """Embeddings of a model that are needed again, so that each text is encoded once."""

    texts: frozenset[str] | None = None
    """The texts to remember; None for all."""
    _known: dict[tuple[PromptType, str], Vectors] = field(default_factory=dict, repr=False)

    @property
    def known_texts(self) -> list[str]:
        """The texts whose embeddings are remembered, those that are both question and document
        twice.
        """
        return [text for _, text in self._known]

    def complete(self, texts: Sequence[str], prompt_type: PromptType, encode: Encoder) -> Vectors:
        """Return the embeddings of n texts, shape (n, dimensions); those that are not known are
        encoded.
        """
        missing = [text for text in dict.fromkeys(texts) if (prompt_type, text) not in self._known]
        encoded = dict(zip(missing, encode(missing, prompt_type) if missing else [], strict=True))
        for text in missing if self.texts is None else self.texts.intersection(missing):
            self._known[prompt_type, text] = encoded[text]
        return np.stack(
            [encoded[text] if text in encoded else self._known[prompt_type, text] for text in texts]
        )


#: The task that a model is given where there is none.
DEFAULT_CONTEXT = EncodingContext(MINI_METADATA, SPLIT, "default")


@dataclass(frozen=True)
class ModelEncoder:
    """A model of mteb as an `Encoder`; embeddings are cached if `POSIR_EMBEDDINGS` is set."""

    model: EncoderProtocol
    context: EncodingContext = DEFAULT_CONTEXT
    memory: EmbeddingMemory | None = None

    @cached_property
    def _cached_model(self) -> EncoderProtocol:
        disable_progress_bars()
        cached = with_cache(self.model)
        assert isinstance(cached, EncoderProtocol)
        return cached

    def __call__(self, texts: Sequence[str], prompt_type: PromptType) -> Vectors:
        """Return the embeddings of n texts, shape (n, dimensions); PosirError if they are no dense
        vectors.
        """
        if self.memory is None:
            return self._encode(texts, prompt_type)
        return self.memory.complete(texts, prompt_type, self._encode)

    def _encode(self, texts: Sequence[str], prompt_type: PromptType) -> Vectors:
        embeddings = self.context.encode(self._cached_model, build_texts(texts), prompt_type)
        if EmbeddingFormat.detect(embeddings, len(texts)) is None:
            raise not_dense(self.model.mteb_model_meta.name)
        return np.asarray(
            embeddings.cpu().float() if hasattr(embeddings, "cpu") else embeddings, np.float32
        )


def not_dense(name: object) -> PosirError:
    """Return the error for a model that has no embeddings to compare."""
    return PosirError(f"{name}: not a dense encoder. Give a model with one vector per text.")


def load_encoder(name: str, revision: str | None = None, *, batch_size: int = 32) -> ModelEncoder:
    """Load any model by its reference, to encode `batch_size` texts at a time; raise PosirError if
    it is no dense encoder.
    """
    # The bar of transformers is shown even if the output is piped.
    disable_progress_bar()  # type: ignore[no-untyped-call]
    reference = ModelReference(name, revision)
    meta = find_model(reference)
    model = load_model(reference)
    if not isinstance(model, EncoderProtocol) or isinstance(model, SearchProtocol):
        raise not_dense(meta.name)
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
        selected: Vectors = side.select(texts)
        return selected

    def normalize(self) -> Embeddings:
        """Return the embeddings scaled to unit length; a zero vector stays zero."""
        return Embeddings(
            *(
                replace(side, embeddings=unit_vectors(side.embeddings))
                for side in (self.documents, self.queries)
            )
        )


def encode_distinct(
    encoder: Encoder, documents: Iterable[str], queries: Iterable[str] = ()
) -> Embeddings:
    """Encode each distinct text once, documents and queries separately; where there are none, there
    are 0 rows.
    """
    encoded = [
        DistinctEmbeddings.encode(documents, lambda texts: encoder(texts, PromptType.document)),
        DistinctEmbeddings.encode(queries, lambda texts: encoder(texts, PromptType.query)),
    ]
    known = next((side for side in encoded if side.rows), NO_EMBEDDINGS)
    return Embeddings(
        *(side if side.rows else replace(side, embeddings=known.embeddings[:0]) for side in encoded)
    )


def unit_vectors(vectors: NDArray[np.floating[Any]]) -> Vectors:
    """Return vectors, shape (n, dimensions), scaled to unit length; a zero vector stays zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths == 0, 1, lengths)).astype(np.float32)
