"""Chunks: a document is divided before it is encoded, and scores by its best chunk, or has the mean of their vectors.

Maximum: each chunk is a vector in the index, as in passage retrieval. Mean: one vector per document (DICE, arXiv 2606.18781).
Chunks are slices of the text, not decoded tokens. By default they overlap by half: consecutive chunks divide evidence at their
edges, which is a position effect of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from mteb.types import PromptType
from pydantic import Field

from posir_mitigate.division import DividingMethod, TokenFinder, Unit, UnitFinder, divide_text, find_sentences
from posir_mitigate.document_encoder import DocumentEncoder
from posir_mitigate.maximum_search import DocumentVectors, MaximumSearch
from posir_mitigate.method import refuse, require_encoder
from posir_tasks.models.prompts import find_prompt

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol
    from mteb.models.models_protocols import MTEBModels

    from posir_mitigate.encoding import EncodingContext, Vectors


class Combination(StrEnum):
    """How the chunks of a document make its score."""

    MAX = "max"
    MEAN = "mean"


@dataclass(frozen=True)
class Chunks(DividingMethod):
    """Encode chunks of each document in place of the document."""

    NAME: ClassVar[str] = "chunks"
    DEFAULT_SIZES: ClassVar[Mapping[Unit, int]] = {Unit.TOKENS: 128, Unit.SENTENCES: 4}

    size: Annotated[int, Field(ge=0)] = 0
    """Units of a chunk; 0 for 128 tokens or 4 sentences."""
    stride: Annotated[int, Field(ge=0)] = 0
    """Units from the start of a chunk to that of the next; 0 for half the size."""
    combination: Combination = Combination.MAX
    unit: Unit = Unit.TOKENS

    @property
    def cost(self) -> str:
        """What it costs: vectors per document, and work against the plain model."""
        vectors = f"a vector for every {self.step} {self.unit}" if self.combination is Combination.MAX else "one vector"
        return f"{vectors}; encodes every token {self.units / self.step:.3g} times, also those beyond the model's window"

    @property
    def changed_metadata(self) -> dict[str, Any]:
        """The model reads texts of any length."""
        return {"max_tokens": None}

    def apply(self, base: MTEBModels) -> MTEBModels:
        """Return the model that encodes chunks.

        Raises:
            PosirError: The model is no encoder; or chunks are to be counted in tokens and there is no fast tokenizer here, or
                a chunk does not fit its window.
        """
        encoder = require_encoder(self, base)
        chunker = Chunker(self, self._unit_finder(encoder))
        if self.combination is Combination.MAX:
            return MaximumSearch(encoder, chunker.vectorize)
        return DocumentEncoder(encoder, chunker.average)

    def _unit_finder(self, encoder: EncoderProtocol) -> UnitFinder:
        if self.unit is Unit.SENTENCES:
            return find_sentences
        loaded: Any = getattr(encoder, "model", None)
        tokenizer: Any = getattr(loaded, "tokenizer", None)
        if not getattr(tokenizer, "is_fast", False):
            raise refuse(self, encoder, f"no fast tokenizer to count tokens with. Divide by sentences: {self.NAME}(sentences).")
        self.check_room(encoder, 0)
        return TokenFinder(tokenizer)

    def check_room(self, encoder: EncoderProtocol, prompt: int) -> None:
        """Raise PosirError if a chunk does not fit the model's window with a prompt of some tokens."""
        loaded: Any = getattr(encoder, "model", None)
        window = getattr(loaded, "max_seq_length", None)
        if self.unit is Unit.SENTENCES or not window:
            return
        room = window - loaded.tokenizer.num_special_tokens_to_add() - prompt
        if self.units > room:
            raise refuse(self, encoder, f"chunks of {self.units} tokens exceed the model's window; the size is at most {room}.")


@dataclass(frozen=True)
class Chunker:
    """Divides documents and encodes their chunks."""

    method: Chunks
    find_units: UnitFinder

    def divide(self, texts: Sequence[str]) -> list[list[str]]:
        """Return the chunks of each text, at least one."""
        method = self.method
        found = zip(texts, self.find_units(texts), strict=True)
        return [divide_text(text, units, method.units, method.step) for text, units in found]

    def vectorize(self, model: EncoderProtocol, texts: Sequence[str], context: EncodingContext) -> DocumentVectors:
        """Return the vectors of the documents' chunks; raise PosirError if a chunk and the prompt exceed the window."""
        prompt = find_prompt(model, context.task_metadata, PromptType.document)
        if prompt is not None and prompt.text and self.method.unit is Unit.TOKENS:
            self.method.check_room(model, len(self.find_units([prompt.text])[0]))
        chunks = self.divide(texts)
        vectors = context.encode_documents(model, [chunk for several in chunks for chunk in several])
        return DocumentVectors(vectors, list(map(len, chunks)))

    def average(self, model: EncoderProtocol, texts: Sequence[str], context: EncodingContext) -> Vectors:
        """Return the mean vector of each document's chunks, shape (n, dimensions)."""
        found = self.vectorize(model, texts, context)
        bounds = pairwise(accumulate(found.counts, initial=0))
        return np.stack([found.vectors[start:end].mean(axis=0, dtype=np.float32) for start, end in bounds])
