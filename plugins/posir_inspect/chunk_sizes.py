"""Searches in whole texts and in chunks of several sizes, as `MODEL+chunks(SIZE)` searches them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

from mteb.types import PromptType

from posir_tasks.embeddings.encoding import EmbeddingMemory, ModelEncoder
from posir_tasks.search.chunked import Chunker, find_room
from posir_tasks.search.maximum_search import DocumentVectors, MaximumSearch
from posir_tasks.text.chunks import Chunking

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mteb.models import EncoderProtocol

    from posir_tasks.embeddings.context import EncodingContext

#: Sizes of chunks in tokens, smallest first.
SIZES = (64, 128, 256, 512, 1024)


class WholeTextSearch(MaximumSearch):
    """Search in whole texts, each a vector."""

    def __init__(self, base: EncoderProtocol, window: int | None, memory: EmbeddingMemory) -> None:
        """Prepare a search; `window` is how many tokens of a text the model reads, None if it is unknown or unlimited."""
        super().__init__(base, vectorize_whole, memory)
        # Where `find_window` looks.
        self.model = SimpleNamespace(max_seq_length=window)


def vectorize_whole(encoder: ModelEncoder, texts: Sequence[str]) -> DocumentVectors:
    """Return a vector for each text."""
    return DocumentVectors(encoder(texts, PromptType.document), [1] * len(texts))


def choose_sizes(model: EncoderProtocol, context: EncodingContext) -> list[int]:
    """Return the sizes of chunks that the model reads in full, largest first; the largest that it does is one of them."""
    room = find_room(model, context)
    sizes = {size for size in SIZES if room is None or size <= room}
    return sorted(sizes if room is None else sizes | {min(room, max(SIZES))}, reverse=True)


def search_chunks(model: EncoderProtocol, size: int, memory: EmbeddingMemory) -> MaximumSearch:
    """Return a search in chunks of so many tokens."""
    return MaximumSearch(model, Chunker.of_model(model, Chunking(size)).vectorize, memory)
