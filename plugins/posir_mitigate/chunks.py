"""Chunks: a document is divided before it is encoded, and scores by its best chunk, or has one vector made of theirs.

Maximum: each chunk is a vector in the index, as in passage retrieval. One vector per document: the variants of DICE (arXiv
2606.18781), whose presets of size and overlap are 128 and 32, 256 and 64, 512 and 128, or 1,024 and 0: strides of 96, 192, 384
and 1,024.
Tokens of a model whose tokenizer is not here, such as one behind an endpoint, are estimated: one for every four bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from posir_mitigate.chunk_pooling import (
    ChunkPooling,
    average,
    average_by_norm,
    average_largest,
    norms_are_equal,
    take_maximum,
)
from posir_mitigate.document_encoder import DocumentEncoder
from posir_mitigate.landmark_mean import average_landmarks
from posir_mitigate.method import DividingMethod, refuse, require_encoder
from posir_mitigate.transformer import find_parts, without_normalization
from posir_tasks.embeddings.encoding import unit_vectors
from posir_tasks.models.landmarks import LandmarkSettings, LandmarkTransformer
from posir_tasks.search.chunked import Chunker
from posir_tasks.search.maximum_search import MaximumSearch
from posir_tasks.text.chunks import Chunking, ChunkUnit
from posir_tasks.text.tokenizer import find_tokenizer

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol
    from mteb.models.models_protocols import MTEBModels

    from posir_tasks.embeddings.encoding import ModelEncoder, Vectors


class Combination(StrEnum):
    """The rule by which the chunks of a document make its score."""

    MAX = "max"
    """The score of the best chunk."""
    MEAN = "mean"
    """The mean of the vectors that the model returns."""
    RAW_MEAN = "raw_mean"
    """The mean of the vectors before they are normalized, as in the code of DICE; so are the next three."""
    ELEMENTWISE_MAX = "elementwise_max"
    """The maximum of each dimension."""
    NORM_TOPK_MEAN = "norm_topk_mean"
    """The mean of the three vectors of the largest norm."""
    NORM_SOFTMAX_MEAN = "norm_softmax_mean"
    """The mean weighted by the softmax of the norms."""
    LMK_MEAN = "lmk_mean"
    """The mean of the states of a separator after each chunk, of the document in one pass."""


#: The combinations of vectors before they are normalized.
POOLINGS: Mapping[Combination, ChunkPooling] = {
    Combination.RAW_MEAN: average,
    Combination.ELEMENTWISE_MAX: take_maximum,
    Combination.NORM_TOPK_MEAN: average_largest,
    Combination.NORM_SOFTMAX_MEAN: average_by_norm,
}
#: Those that need norms that differ.
BY_NORM = frozenset({Combination.NORM_TOPK_MEAN, Combination.NORM_SOFTMAX_MEAN})


@dataclass(frozen=True)
class Chunks(DividingMethod):
    """Encode chunks of each document in place of the document."""

    NAME: ClassVar[str] = "chunks"
    DEFAULT_SIZES: ClassVar[Mapping[ChunkUnit, int]] = {ChunkUnit.TOKENS: 128, ChunkUnit.SENTENCES: 4}

    size: Annotated[int, Field(ge=0)] = 0
    """Units of a chunk; 0 for 128 tokens or 4 sentences."""
    stride: Annotated[int, Field(ge=0)] = 0
    """Units from the start of a chunk to that of the next; 0 for half the size; for `lmk_mean`, the size."""
    combination: Combination = Combination.MAX
    unit: ChunkUnit = ChunkUnit.TOKENS

    @property
    def chunking(self) -> Chunking:
        """Size and overlap of the chunks."""
        chunking = super().chunking
        once = self.combination is Combination.LMK_MEAN and not self.stride
        return replace(chunking, stride=chunking.size) if once else chunking

    @property
    def cost(self) -> str:
        """The cost: vectors per document, and work against the plain model."""
        size, step = self.chunking.size, self.chunking.step
        if self.combination is Combination.LMK_MEAN:
            return f"one vector; encodes each document once, with a token more for every {step}, within the window"
        vectors = f"a vector for every {step} {self.unit}" if self.combination is Combination.MAX else "one vector"
        return f"{vectors}; encodes every token {size / step:.3g} times, also those beyond the model's window"

    @property
    def changed_metadata(self) -> dict[str, Any]:
        """The model reads texts of any length, but for `lmk_mean`."""
        return {} if self.combination is Combination.LMK_MEAN else {"max_tokens": None}

    def apply(self, base: MTEBModels) -> MTEBModels:
        """Return the model that encodes chunks.

        Raises:
            PosirError: The model is no encoder; chunks are counted in tokens and exceed its window; its tokenizer does
                not say where tokens are; or, for `lmk_mean`, it has no transformer and pooling here.
        """
        encoder = require_encoder(self, base)
        tokenizer = find_tokenizer(encoder)
        if self.unit is ChunkUnit.TOKENS and tokenizer and not tokenizer.locates_tokens:
            raise refuse(self, encoder, f"no fast tokenizer to count tokens with. Divide by sentences: {self.NAME}(sentences).")
        chunker = Chunker.of_model(encoder, self.chunking)
        chunker.check_room(encoder)
        if self.combination is Combination.MAX:
            return MaximumSearch(encoder, chunker.vectorize)
        if self.combination is Combination.LMK_MEAN:
            return self._average_landmarks(base)
        if self.combination is Combination.MEAN:
            return DocumentEncoder(encoder, partial(chunker.pool, combine=average))
        return DocumentEncoder(encoder, partial(self._pool, chunker, without_normalization(encoder)))

    def _pool(self, chunker: Chunker, raw: EncoderProtocol | None, encoder: ModelEncoder, texts: Sequence[str]) -> Vectors:
        """Return the documents' vectors, of unit length if those of the model are; shape (n, dimensions).

        Args:
            chunker: Divides the documents.
            raw: The model without normalization; None if the model has none that can be left out.
            encoder: The model.
            texts: The documents.
        """
        vectors = chunker.vectorize(encoder if raw is None else replace(encoder, model=raw), texts)
        if self.combination in BY_NORM and len(vectors.vectors) > len(texts) and norms_are_equal(vectors.vectors):
            raise refuse(
                self,
                encoder.model,
                "all vectors of this model have length 1, and what it has before cannot be had, so norms say nothing. Use "
                f"{Combination.MEAN} or {Combination.ELEMENTWISE_MAX}.",
            )
        pooled = vectors.pool(POOLINGS[self.combination])
        return pooled if raw is None else unit_vectors(pooled)

    def _average_landmarks(self, base: MTEBModels) -> MTEBModels:
        parts = find_parts(self, base)
        if self.unit is not ChunkUnit.TOKENS:
            raise refuse(self, base, f"{self.combination} counts tokens: write {self.NAME}(128,{self.combination}).")
        if isinstance(parts.transformer, LandmarkTransformer):
            raise refuse(self, base, "the model pools landmarks already.")
        return average_landmarks(parts, LandmarkSettings(self.chunking.size, stride=self.chunking.step, whole=True), str(self))
