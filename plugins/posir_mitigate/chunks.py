"""Methods on the text: a document is divided before it is encoded, or encoded in both orders of its sentences.

Maximum of chunks: each is a vector in the index, as in passage retrieval. Mean of chunks: one vector per document (the mean
of DICE, arXiv 2606.18781, whose presets of size and overlap are 128 and 32, 256 and 64, 512 and 128, or 1,024 and 0: strides of
96, 192, 384 and 1,024). Tokens of a model whose tokenizer is not here, such as one behind an endpoint, are estimated: one for
every four bytes.

Both orders: the mean of a document's embedding and that of the document with its sentences in reverse order, so that what is at
the start of one text is at the end of the other. Ours: no paper on embeddings with this method is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

import numpy as np
from mteb.models import EncoderProtocol
from mteb.types import PromptType
from pydantic import Field

from posir_mitigate.method import DividingMethod, format_method, refuse, require_encoder
from posir_tasks.embeddings.cached_encoder import WrappedEncoder, with_cache
from posir_tasks.embeddings.context import EncodingContext
from posir_tasks.embeddings.encoding import ModelEncoder, Vectors, encode_distinct
from posir_tasks.search.chunked import Chunker
from posir_tasks.search.maximum_search import MaximumSearch
from posir_tasks.text.chunks import Chunking, ChunkUnit
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.tokenizer import find_tokenizer

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models.models_protocols import MTEBModels
    from mteb.types import Array, BatchedInput
    from torch.utils.data import DataLoader

#: Returns the vectors of n documents, shape (n, dimensions).
DocumentEmbedder: TypeAlias = Callable[[ModelEncoder, Sequence[str]], Vectors]


class DocumentEncoder(WrappedEncoder):
    """One of mteb's encoders: queries as by the plain model, documents by a function."""

    #: The plain embeddings are cached, under the plain model's name; the documents' vectors are computed from them.
    caches_itself = True

    def __init__(self, base: EncoderProtocol, embed_documents: DocumentEmbedder) -> None:
        super().__init__(base)
        self._embed_documents = embed_documents

    def encode(
        self,
        inputs: DataLoader[BatchedInput],
        *,
        task_metadata: TaskMetadata,
        hf_split: str,
        hf_subset: str,
        prompt_type: PromptType | None = None,
        **kwargs: Any,
    ) -> Array:
        """Return the embeddings of the texts; only documents differ from the plain model's."""
        context = EncodingContext(task_metadata, hf_split, hf_subset, kwargs)
        if prompt_type is not PromptType.document:
            cached = with_cache(self.base)
            assert isinstance(cached, EncoderProtocol)
            return cached.encode(inputs, prompt_type=prompt_type, **context.task_arguments, **kwargs)
        return self._embed_documents(ModelEncoder(self.base, context), [text for batch in inputs for text in batch["text"]])


class Combination(StrEnum):
    """The rule by which the chunks of a document make its score."""

    MAX = "max"
    """The score of the best chunk."""
    MEAN = "mean"
    """The mean of the vectors that the model returns."""


@dataclass(frozen=True)
class Chunks(DividingMethod):
    """Encode chunks of each document in place of the document."""

    NAME: ClassVar[str] = "chunks"
    DEFAULT_SIZES: ClassVar[Mapping[ChunkUnit, int]] = {ChunkUnit.TOKENS: 128, ChunkUnit.SENTENCES: 4}

    size: Annotated[int, Field(ge=0)] = 0
    """Units of a chunk; 0 for 128 tokens or 4 sentences."""
    stride: Annotated[int, Field(ge=0)] = 0
    """Units from the start of a chunk to that of the next; 0 for half the size."""
    combination: Combination = Combination.MAX
    unit: ChunkUnit = ChunkUnit.TOKENS

    @property
    def cost(self) -> str:
        """The cost: vectors per document, and work against the plain model."""
        size, step = self.chunking.size, self.chunking.step
        vectors = f"a vector for every {step} {self.unit}" if self.combination is Combination.MAX else "one vector"
        return f"{vectors}; encodes every token {size / step:.3g} times, also those beyond the model's window"

    @property
    def changed_metadata(self) -> dict[str, Any]:
        """The model reads texts of any length."""
        return {"max_tokens": None}

    def apply(self, base: MTEBModels) -> MTEBModels:
        """Return the model that encodes chunks.

        Raises:
            PosirError: The model is no encoder; or chunks are counted in tokens and exceed its window, or its tokenizer does
                not say where tokens are.
        """
        encoder = require_encoder(self, base)
        tokenizer = find_tokenizer(encoder)
        if self.unit is ChunkUnit.TOKENS and tokenizer and not tokenizer.locates_tokens:
            raise refuse(self, encoder, f"no fast tokenizer to count tokens with. Divide by sentences: {self.NAME}(sentences).")
        chunker = Chunker.of_model(encoder, self.chunking)
        chunker.check_room(encoder)
        if self.combination is Combination.MAX:
            return MaximumSearch(encoder, chunker.vectorize)
        return DocumentEncoder(encoder, partial(chunker.pool, combine=average))


def average(vectors: Vectors) -> Vectors:
    """Return the mean of vectors, shape (dimensions,)."""
    mean: Vectors = vectors.mean(axis=0, dtype=np.float32)
    return mean


@dataclass(frozen=True)
class BothOrders:
    """Average the embeddings of each document in forward and in reverse order."""

    NAME: ClassVar[str] = "both_orders"

    sentences: Annotated[int, Field(gt=0)] = 1
    """Sentences that stay together in their order."""

    def __str__(self) -> str:
        return format_method(self)

    @property
    def cost(self) -> str:
        """The cost: vectors per document, and work against the plain model."""
        return "one vector; encodes every document twice"

    @property
    def changed_metadata(self) -> dict[str, Any]:
        """The metadata without the window: of a document beyond it, the model reads both ends."""
        return {"max_tokens": None}

    def apply(self, base: MTEBModels) -> MTEBModels:
        """Return the model that averages both orders; raise PosirError if the model is no encoder."""
        return DocumentEncoder(require_encoder(self, base), self.average)

    def reverse(self, text: str, language: str) -> str:
        """Return a text with its sentences, or groups of them, in reverse order; a text of one as it is."""
        chunking = Chunking(self.sentences, self.sentences, ChunkUnit.SENTENCES)
        return " ".join(reversed(chunking.divide(text, find_sentences(text, language))))

    def average(self, encoder: ModelEncoder, texts: Sequence[str]) -> Vectors:
        """Return the mean of the embeddings in both orders, shape (n, dimensions)."""
        both = [*texts, *(self.reverse(text, encoder.context.corpus_language) for text in texts)]
        vectors = encode_distinct(encoder, both).select(both)
        average: Vectors = vectors.reshape(2, len(texts), -1).mean(axis=0, dtype=np.float32)
        return average
