"""Late chunking (Guenther et al. 2024, arXiv 2409.04701): the document is encoded as one text, and its token states are pooled
chunk by chunk.

The first special token and a prompt join the first chunk, the last special token the last one. The document scores what its
best chunk scores. Long late chunking encodes windows: of each later one, the first `overlap` states are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import Field

from posir_mitigate.method import DividingMethod, TransformerParts, find_parts, refuse
from posir_tasks.display.progress import progress
from posir_tasks.models.prompts import find_document_prompt
from posir_tasks.search.maximum_search import DocumentVectors, MaximumSearch
from posir_tasks.text.chunks import Chunking, ChunkUnit
from posir_tasks.text.sentences import find_sentences

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

    from posir_tasks.embeddings.encoding import ModelEncoder, Vectors


@dataclass(frozen=True)
class LateChunks(DividingMethod):
    """Pool the token states of each document chunk by chunk."""

    NAME: ClassVar[str] = "late_chunks"
    DEFAULT_SIZES: ClassVar[Mapping[ChunkUnit, int]] = {ChunkUnit.TOKENS: 64, ChunkUnit.SENTENCES: 4}

    size: Annotated[int, Field(ge=0)] = 0
    """Units of a chunk; 0 for 64 tokens or 4 sentences."""
    stride: Annotated[int, Field(ge=0)] = 0
    """Units from the start of a chunk to that of the next; 0 for half the size."""
    unit: ChunkUnit = ChunkUnit.TOKENS

    @property
    def cost(self) -> str:
        """The cost: vectors per document, and work against the plain model."""
        return f"a vector for every {self.chunking.step} {self.unit} within the window; encodes every document once"

    @property
    def changed_metadata(self) -> dict[str, Any]:
        """Nothing: the window is the plain model's."""
        return {}

    def apply(self, base: MTEBModels) -> MTEBModels:
        """Return the model that pools chunks; raise PosirError if it is not mean-pooled or has no fast tokenizer."""
        parts = find_pooled_parts(self, base)
        return MaximumSearch(parts.encoder, LateVectorizer(parts, self.chunking))


@dataclass(frozen=True)
class LongLateChunks(LateChunks):
    """Pool the token states of documents that are encoded window by window."""

    NAME: ClassVar[str] = "long_late_chunks"

    overlap: Annotated[int, Field(ge=0)] = 64
    """Tokens at the start of each later window that only serve as context."""

    @property
    def cost(self) -> str:
        """The cost: vectors per document, and work against the plain model."""
        vectors = f"a vector for every {self.chunking.step} {self.unit}"
        return f"{vectors}; encodes all of the document, and the overlaps of its windows again"

    @property
    def changed_metadata(self) -> dict[str, Any]:
        """The model reads texts of any length."""
        return {"max_tokens": None}

    def apply(self, base: MTEBModels) -> MTEBModels:
        """Return the model that pools chunks; raise PosirError as `LateChunks`, or if the overlap does not fit the window."""
        parts = find_pooled_parts(self, base)
        vectorizer = LateVectorizer(parts, self.chunking, self.overlap)
        if self.overlap >= vectorizer.window:
            raise refuse(self, base, f"the overlap is at most {vectorizer.window - 1}, less than the model's window.")
        return MaximumSearch(parts.encoder, vectorizer)


def find_pooled_parts(method: LateChunks, base: MTEBModels) -> TransformerParts:
    """Return the parts of a mean-pooled model with a fast tokenizer; raise PosirError if it is none."""
    parts = find_parts(method, base)
    if parts.pooling_mode != "mean":
        raise refuse(method, base, f"needs mean pooling, but this model pools by {parts.pooling_mode}; use chunks.")
    if not parts.pooling.include_prompt:
        raise refuse(method, base, "this model leaves its prompt out of pooling, which chunks cannot.")
    if not getattr(parts.loaded.tokenizer, "is_fast", False):
        raise refuse(method, base, "needs a fast tokenizer, which says where in the text a token is.")
    if not parts.loaded.max_seq_length:
        raise refuse(method, base, "needs a model with a known window; set its max_seq_length.")
    return parts


@dataclass(frozen=True)
class TokenizedText:
    """A text with its prompt as the model's tokens, special tokens included."""

    ids: list[int]
    chunks: list[tuple[int, int]]
    """First token of each chunk, and the one after its last."""


@dataclass(frozen=True)
class LateVectorizer:
    """Encodes documents and pools their chunks."""

    parts: TransformerParts
    chunking: Chunking
    overlap: int | None = None
    """Tokens that windows have in common; None for one window, at which texts are truncated."""

    @property
    def window(self) -> int:
        """Tokens of a window."""
        return int(self.parts.loaded.max_seq_length)

    def __call__(self, encoder: ModelEncoder, texts: Sequence[str]) -> DocumentVectors:
        """Return the vectors of the documents' chunks."""
        context = encoder.context
        prompt = find_document_prompt(encoder.model, context.task_metadata) or ""
        tokenized = [self.tokenize(text, prompt, context.corpus_language) for text in texts]
        order = sorted(range(len(texts)), key=lambda number: -len(tokenized[number].ids))
        size = int(context.encode_kwargs.get("batch_size", 32))
        vectors: dict[int, Vectors] = {}
        for batch in progress(range(0, len(order), size), "Encoding documents"):
            numbers = order[batch : batch + size]
            vectors |= dict(zip(numbers, self.pool([tokenized[number] for number in numbers], size), strict=True))
        ordered = [vectors[number] for number in range(len(texts))]
        return DocumentVectors(np.concatenate(ordered), list(map(len, ordered)))

    def tokenize(self, text: str, prompt: str, language: str) -> TokenizedText:
        """Return a text's tokens and chunks; text beyond the window is cut off if there is only one."""
        limit = {"truncation": True, "max_length": self.window} if self.overlap is None else {"truncation": False}
        encoding = self.parts.loaded.tokenizer(prompt + text, return_offsets_mapping=True, verbose=False, **limit)
        ids, offsets = encoding["input_ids"], enumerate(encoding["offset_mapping"])
        # Special tokens have no characters; the prompt joins the first chunk.
        tokens = [(number, start) for number, (start, end) in offsets if end > max(start, len(prompt))]
        edges = [
            tokens[first][0] for first in self._find_unit_starts(text, len(prompt), [start for _, start in tokens], language)
        ]
        if not edges:
            return TokenizedText(ids, [(0, len(ids))])
        edges = [0, *edges[1:], len(ids)]
        chunks = [(edges[first], edges[end]) for first, end in self.chunking.group(len(edges) - 1)]
        return TokenizedText(ids, chunks)

    def _find_unit_starts(self, text: str, shift: int, starts: Sequence[int], language: str) -> list[int]:
        """Return the index of each unit's first token, given the first character of each token in prompt and text.

        Args:
            text: The text.
            shift: Characters of the prompt.
            starts: First character of each token of the text, shape (tokens,).
            language: Code of its language.
        """
        if self.chunking.unit is ChunkUnit.TOKENS:
            return list(range(len(starts)))
        places = np.searchsorted(starts, [span.start + shift for span in find_sentences(text, language)]).tolist()
        return [place for place in dict.fromkeys([0, *places]) if place < len(starts)]

    def divide(self, tokens: int) -> list[tuple[int, int, int]]:
        """Return the first token of each window, the first whose state is used, and the one after its last."""
        windows = [(0, 0, min(self.window, tokens))]
        while (used := windows[-1][2]) < tokens:
            first = used - (self.overlap or 0)
            windows.append((first, used, min(first + self.window, tokens)))
        return windows

    def pool(self, texts: Sequence[TokenizedText], batch_size: int) -> Iterator[Vectors]:
        """Yield the vectors of each text's chunks, shape (chunks, dimensions)."""
        windows = [(text.ids, *window) for text in texts for window in self.divide(len(text.ids))]
        states: list[torch.Tensor] = []
        for start in range(0, len(windows), batch_size):
            batch = windows[start : start + batch_size]
            encoded = self._encode([ids[first:end] for ids, first, _, end in batch])
            states += [window_states[used - first :] for window_states, (_, first, used, _) in zip(encoded, batch, strict=True)]
        remaining = iter(states)
        for text in texts:
            joined = torch.cat(list(islice(remaining, len(self.divide(len(text.ids))))))
            yield self._pool_chunks(joined, text.chunks)

    @torch.inference_mode()
    def _encode(self, inputs: Sequence[list[int]]) -> list[torch.Tensor]:
        """Return the token states of each input, shape (its tokens, dimensions)."""
        loaded = self.parts.loaded
        loaded.eval()
        features = loaded.tokenizer.pad({"input_ids": list(inputs)}, return_tensors="pt")
        features = {name: tensor.to(loaded.device) for name, tensor in features.items()}
        states = self.parts.transformer(features)["token_embeddings"]
        return [rows[mask.bool()] for rows, mask in zip(states, features["attention_mask"], strict=True)]

    @torch.inference_mode()
    def _pool_chunks(self, states: torch.Tensor, chunks: Sequence[tuple[int, int]]) -> Vectors:
        """Return the mean state of each chunk after the modules that follow pooling, shape (chunks, dimensions)."""
        means = torch.stack([states[start:end].float().mean(dim=0) for start, end in chunks])
        features = {"sentence_embedding": means.to(states.dtype)}
        for module in self.parts.after_pooling:
            features = module(features)
        vectors: Vectors = features["sentence_embedding"].float().cpu().numpy()
        return vectors
