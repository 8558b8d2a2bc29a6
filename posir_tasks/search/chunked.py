"""Documents by the embeddings of their chunks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mteb.models import EncoderProtocol
from mteb.types import PromptType

from posir_tasks.embeddings.context import EncodingContext
from posir_tasks.embeddings.encoding import ModelEncoder, Vectors, encode_distinct
from posir_tasks.errors import PosirError
from posir_tasks.models.prompts import find_prompt
from posir_tasks.search.maximum_search import DocumentVectors
from posir_tasks.text.chunks import Chunking, ChunkUnit
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.tokenizer import EstimatedTokenizer, Tokenizer, find_tokenizer


@dataclass(frozen=True)
class Chunker:
    """Divides documents and encodes their chunks."""

    chunking: Chunking
    tokenizer: Tokenizer
    """Finds the tokens that chunks are counted in."""

    @classmethod
    def of_model(cls, model: EncoderProtocol, chunking: Chunking) -> Chunker:
        """Return the chunker for a model: tokens are those of its tokenizer, or estimated if that is not here."""
        return cls(chunking, find_tokenizer(model) or EstimatedTokenizer())

    def divide(self, texts: Sequence[str], language: str) -> list[list[str]]:
        """Return the chunks of each text, at least one; the language is that of the texts, such as `eng-Latn`."""
        if self.chunking.unit is ChunkUnit.SENTENCES:
            return [self.chunking.divide(text, find_sentences(text, language)) for text in texts]
        tokens = self.tokenizer.find_tokens(texts)
        return [self.chunking.divide(text, spans) for text, spans in zip(texts, tokens, strict=True)]

    def vectorize(self, encoder: ModelEncoder, texts: Sequence[str]) -> DocumentVectors:
        """Return the vectors of the documents' chunks; raise PosirError if a chunk and the prompt exceed the window."""
        self.check_room(encoder.model, encoder.context)
        return vectorize_chunks(encoder, self.divide(texts, encoder.context.corpus_language))

    def pool(self, encoder: ModelEncoder, texts: Sequence[str], combine: Callable[[Vectors], Vectors]) -> Vectors:
        """Return the vectors that a function makes of those of each document's chunks, shape (n, dimensions)."""
        return self.vectorize(encoder, texts).pool(combine)

    def check_room(self, model: EncoderProtocol, context: EncodingContext | None = None) -> None:
        """Raise PosirError if a chunk does not fit the model's window, with its prompt for documents if a task is given."""
        room = None if self.chunking.unit is ChunkUnit.SENTENCES else find_room(model, context)
        if room is not None and self.chunking.size > room:
            raise PosirError(
                f"{model.mteb_model_meta.name}: chunks of {self.chunking.size} tokens exceed the model's window; the size is "
                f"at most {room}."
            )


def vectorize_chunks(encoder: ModelEncoder, chunks: Sequence[Sequence[str]]) -> DocumentVectors:
    """Return the vectors of the chunks of each document, of which each has at least one."""
    joined = [chunk for several in chunks for chunk in several]
    return DocumentVectors(encode_distinct(encoder, joined).select(joined), list(map(len, chunks)))


def find_room(model: EncoderProtocol, context: EncodingContext | None = None) -> int | None:
    """Return the most tokens of a text that fit a model's window, with its prompt if a task is given; None if unknown."""
    tokenizer, window = find_tokenizer(model), getattr(getattr(model, "model", None), "max_seq_length", None)
    if tokenizer is None or not window:
        return None
    prompt = find_prompt(model, context.task_metadata, PromptType.document) if context else None
    return int(window) - tokenizer.special_tokens - (tokenizer.count(prompt.text) if prompt and prompt.text else 0)
