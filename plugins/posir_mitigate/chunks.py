"""Mitigations that split documents into chunks or encode them in two orders.

- Chunks, maximum: the index contains a vector per chunk, as in passage retrieval.
- Chunks, mean: one vector per document, as in DICE (arXiv 2606.18781). DICE's presets (size,
  overlap) are (128, 32), (256, 64), (512, 128) and (1024, 0), or strides of 96, 192, 384 and 1,024.
- Late chunks (Guenther et al. 2024, arXiv 2409.04701): the document is encoded as one text, and its
  token embeddings are pooled by chunk. The first chunk includes the prompt and the first special
  token, and the last chunk includes the last special token. The score of a document is the score of
  its best chunk. Long late chunking encodes overlapping windows, and drops the first `overlap`
  token embeddings of each window except the first.
- Context chunks: a server receives all chunks of a document in one request, and returns a
  contextual embedding per chunk.
- Both orders: the document is encoded twice, the second time with its sentences in reverse order,
  and the two embeddings are averaged, so that each sentence is near the start once. We know of no
  paper that does this for embeddings.

If no tokenizer is available, as for most endpoints, a token is assumed to have four bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

import numpy as np
import torch
from mteb.models import EncoderProtocol
from mteb.models.instruct_wrapper import InstructSentenceTransformerModel
from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper
from mteb.types import PromptType
from pydantic import Field

from posir_mitigate.method import Mitigation
from posir_tasks.base.batches import split_batches
from posir_tasks.base.progress import track_items
from posir_tasks.models.embeddings.cached_encoder import WrappedEncoder, add_cache
from posir_tasks.models.embeddings.context import TASK_ARGUMENTS, EncodingContext
from posir_tasks.models.embeddings.encoding import ModelEncoder, Vectors, encode_distinct
from posir_tasks.models.endpoint_models import EndpointEncoder
from posir_tasks.models.prompts import find_document_prompt
from posir_tasks.search.chunked import Chunker, DocumentVectors, MaximumSearch
from posir_tasks.text.chunks import Chunking, ChunkUnit
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.tokenizer import find_tokenizer
from posir_tasks.values.read_part import ReadPart, WindowSource

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels
    from mteb.types import Array, BatchedInput
    from torch.utils.data import DataLoader

#: Returns the embeddings of n documents, shape (n, dimensions).
DocumentEmbedder: TypeAlias = Callable[[ModelEncoder, Sequence[str]], Vectors]


class DocumentEncoder(WrappedEncoder):
    """An encoder that embeds queries with its base model, and documents with a function."""

    #: The base model's embeddings are cached; document vectors are computed from them.
    skips_cache = True
    read_part: ReadPart | None = None

    def __init__(self, base: EncoderProtocol, embed_documents: DocumentEmbedder) -> None:
        super().__init__(base)
        self._embed_documents = embed_documents

    def encode(
        self,
        inputs: DataLoader[BatchedInput],
        *,
        prompt_type: PromptType | None = None,
        **arguments: Any,
    ) -> Array:
        """Return the embeddings of n texts, shape (n, dimensions)."""
        if prompt_type is not PromptType.document:
            cached_encoder = add_cache(self.base)
            assert isinstance(cached_encoder, EncoderProtocol)
            return cached_encoder.encode(inputs, prompt_type=prompt_type, **arguments)
        encode_kwargs = {
            name: value for name, value in arguments.items() if name not in TASK_ARGUMENTS
        }
        context = EncodingContext.from_arguments(**arguments, encode_kwargs=encode_kwargs)
        texts = [text for batch in inputs for text in batch["text"]]
        return self._embed_documents(ModelEncoder(self.base, context), texts)


#: Number of tokens or sentences; 0 for the default.
Size: TypeAlias = Annotated[int, Field(ge=0)]
#: Default number of sentences per chunk.
DEFAULT_SENTENCES = 4


class ChunkingMethod(Mitigation):
    """Base class of methods that split documents into chunks."""

    DEFAULT_TOKENS: ClassVar[int] = 64
    size: Size
    stride: Size
    """Distance between the starts of consecutive chunks; 0 for half the size."""
    unit: ChunkUnit

    def resolve_defaults(self) -> Mapping[str, int]:
        """Return the size and stride, whose defaults depend on the unit."""
        return {"size": self.chunking.size, "stride": self.chunking.step}

    @property
    def chunking(self) -> Chunking:
        """Size, stride and unit of the chunks, with defaults resolved."""
        default = self.DEFAULT_TOKENS if self.unit is ChunkUnit.TOKENS else DEFAULT_SENTENCES
        return Chunking(self.size or default, self.stride, self.unit)


class Combination(StrEnum):
    """How the chunks of a document are combined."""

    MAX = "max"
    MEAN = "mean"


@dataclass(frozen=True)
class Chunks(ChunkingMethod):
    """Encode the chunks of each document instead of the whole document."""

    NAME: ClassVar[str] = "chunks"
    DEPLOYMENT: ClassVar[str] = (
        "index each chunk with the id of its document (posir inspect --snippet), or, for mean, the "
        "mean of the chunk vectors; works with any server for the model"
    )
    UNLIMITED: ClassVar[bool] = True
    DEFAULT_TOKENS: ClassVar[int] = 128

    size: Size = 0
    stride: Size = 0
    combination: Combination = Combination.MAX
    unit: ChunkUnit = ChunkUnit.TOKENS

    def wrap(self, base: MTEBModels) -> MTEBModels:
        """Return a model that encodes chunks.

        Raises:
            PosirError: The model is not an encoder, or the chunks exceed its window.
        """
        encoder = self.require_encoder(base)
        tokenizer = find_tokenizer(encoder)
        if self.unit is ChunkUnit.TOKENS and tokenizer and not tokenizer.returns_offsets:
            raise self.make_error(
                encoder,
                "no fast tokenizer to count tokens. Split by sentence instead: "
                f"{self.NAME}(sentences).",
            )
        chunker = Chunker.from_model(encoder, self.chunking)
        chunker.check_room(encoder)
        model: MaximumSearch | DocumentEncoder
        if self.combination is Combination.MAX:
            model = MaximumSearch(encoder, chunker.vectorize)
        else:
            model = DocumentEncoder(
                encoder, lambda inner, texts: chunker.vectorize(inner, texts).average()
            )
        model.read_part = chunker.find_read_part(encoder)
        return model


@dataclass(frozen=True)
class ContextChunks(ChunkingMethod):
    """Send all chunks of a document to a server that embeds each chunk in context."""

    NAME: ClassVar[str] = "context_chunks"
    DEPLOYMENT: ClassVar[str] = (
        "send all chunks of a document in one request, and index each vector with the document's id"
    )
    UNLIMITED: ClassVar[bool] = True

    size: Size = 0
    stride: Size = 0
    """Distance between the starts of consecutive chunks. 0 means the size: no overlap, since the
    server joins the chunks.
    """
    unit: ChunkUnit = ChunkUnit.TOKENS

    @property
    def chunking(self) -> Chunking:
        """Size, stride and unit of the chunks, with defaults resolved."""
        chunking = super().chunking
        return replace(chunking, stride=self.stride or chunking.size)

    def wrap(self, base: MTEBModels) -> MTEBModels:
        """Return a model that encodes chunks in context.

        Raises:
            PosirError: The model is not behind an endpoint with contextual chunk embeddings.
        """
        if not isinstance(base, EndpointEncoder) or base.kind.in_context is None:
            raise self.make_error(
                base,
                "needs a server and model with contextual chunk embeddings, such as "
                "voyage-context-3. Use chunks instead.",
            )
        return MaximumSearch(base, Chunker.from_model(base, self.chunking).vectorize_in_context)


@dataclass(frozen=True)
class BothOrders(Mitigation):
    """Average the embeddings of a document in original and reverse order."""

    NAME: ClassVar[str] = "both_orders"
    DEPLOYMENT: ClassVar[str] = (
        "index the mean of the vectors of a document and of its sentences in reverse order; works "
        "with any server for the model"
    )
    #: Each end of a long document is read in one of the orders.
    UNLIMITED: ClassVar[bool] = True

    sentences: Annotated[int, Field(gt=0)] = 1
    """Number of consecutive sentences that keep their order."""

    def wrap(self, base: MTEBModels) -> MTEBModels:
        """Return a model that averages both orders. Raise PosirError unless it is an encoder."""
        return DocumentEncoder(self.require_encoder(base), self.average)

    def reverse(self, text: str, language: str) -> str:
        """Reverse the order of groups of `self.sentences` sentences."""
        chunking = Chunking(self.sentences, self.sentences, ChunkUnit.SENTENCES)
        return " ".join(reversed(chunking.split_text(text, find_sentences(text, language))))

    def average(self, encoder: ModelEncoder, texts: Sequence[str]) -> Vectors:
        """Average the embeddings of n texts in both orders, shape (n, dimensions)."""
        all_texts = [
            *texts,
            *(self.reverse(text, encoder.context.corpus_language) for text in texts),
        ]
        vectors = encode_distinct(encoder, all_texts).select(all_texts)
        average: Vectors = vectors.reshape(2, len(texts), -1).mean(axis=0, dtype=np.float32)
        return average


@dataclass(frozen=True)
class LateChunks(ChunkingMethod):
    """Pool the token embeddings of each document by chunk."""

    NAME: ClassVar[str] = "late_chunks"
    DEPLOYMENT: ClassVar[str] = (
        "needs token embeddings, so it works only in Python (posir.open_model) or with a server "
        "that supports late chunking"
    )

    size: Size = 0
    stride: Size = 0
    unit: ChunkUnit = ChunkUnit.TOKENS

    def wrap(self, base: MTEBModels) -> MTEBModels:
        """Return a model that pools token embeddings by chunk.

        Raises:
            PosirError: The model has no mean pooling, no fast tokenizer or no known window.
        """
        encoder = self.require_encoder(base)
        overlap = getattr(self, "overlap", None)
        loaded_model: Any = getattr(base, "model", None)
        wrappers = (SentenceTransformerEncoderWrapper, InstructSentenceTransformerModel)
        modules = list(loaded_model) if isinstance(base, wrappers) else []
        if [type(module).__name__ for module in modules[:2]] != ["Transformer", "Pooling"]:
            raise self.make_error(
                base,
                "needs a local sentence-transformers model with a transformer and a pooling layer.",
            )
        vectorizer = LateVectorizer(loaded_model, self.chunking, overlap)
        pooling = modules[1]
        is_fast = getattr(vectorizer.loaded.tokenizer, "is_fast", False)
        if not (
            pooling.pooling_mode == "mean"
            and pooling.include_prompt
            and is_fast
            and vectorizer.loaded.max_seq_length
        ):
            raise self.make_error(
                base,
                "needs mean pooling with the prompt, a fast tokenizer and a known window. This "
                f"model uses {pooling.pooling_mode} pooling. Use chunks instead.",
            )
        if overlap is not None and overlap >= vectorizer.window:
            raise self.make_error(
                base,
                "the overlap must be smaller than the model's window. Use at most "
                f"{vectorizer.window - 1}.",
            )
        search = MaximumSearch(encoder, vectorizer)
        search.read_part = None if overlap is None else ReadPart.all(WindowSource.CHUNKS)
        return search


@dataclass(frozen=True)
class LongLateChunks(LateChunks):
    """Encode long documents in overlapping windows, and pool their token embeddings by chunk."""

    NAME: ClassVar[str] = "long_late_chunks"
    UNLIMITED: ClassVar[bool] = True

    overlap: Size = 64
    """Number of tokens that each window repeats from the previous window, only as context."""


#: Token ids of a text, including prompt and special tokens, and the token range of each chunk.
TokenizedText: TypeAlias = tuple[list[int], list[tuple[int, int]]]


@dataclass(frozen=True)
class LateVectorizer:
    """Encodes documents and pools the token embeddings of their chunks."""

    loaded: Any
    """The sentence-transformers model: a transformer, a pooling layer, perhaps other modules."""
    chunking: Chunking
    overlap: int | None = None
    """Window overlap in tokens. None means a single window, which truncates long texts."""

    @property
    def window(self) -> int:
        """Window size in tokens."""
        return int(self.loaded.max_seq_length)

    def __call__(self, encoder: ModelEncoder, texts: Sequence[str]) -> DocumentVectors:
        """Embed the chunks of the documents."""
        context = encoder.context
        prompt = find_document_prompt(encoder.model, context.task_metadata) or ""
        tokenized_texts = [self.tokenize(text, prompt, context.corpus_language) for text in texts]
        longest_first = sorted(range(len(texts)), key=lambda row: -len(tokenized_texts[row][0]))
        batch_size = int(context.encode_kwargs.get("batch_size", 32))
        vectors: dict[int, Vectors] = {}
        for rows in track_items(split_batches(longest_first, batch_size), "Encoding documents"):
            chunk_vectors = self._pool([tokenized_texts[row] for row in rows], batch_size)
            vectors |= zip(rows, chunk_vectors, strict=True)
        vectors_by_text = [vectors[row] for row in range(len(texts))]
        return DocumentVectors(np.concatenate(vectors_by_text), list(map(len, vectors_by_text)))

    def tokenize(self, text: str, prompt: str, language: str) -> TokenizedText:
        """Tokenize a text and find its chunks. If `overlap` is None, truncate it to the window."""
        encoding = self.loaded.tokenizer(
            prompt + text,
            return_offsets_mapping=True,
            verbose=False,
            truncation=self.overlap is None,
            max_length=self.window if self.overlap is None else None,
        )
        ids = encoding["input_ids"]
        # Exclude special tokens, which have no characters, and the prompt.
        tokens = [
            (index, start)
            for index, (start, end) in enumerate(encoding["offset_mapping"])
            if end > max(start, len(prompt))
        ]
        unit_starts = list(range(len(tokens)))
        if self.chunking.unit is ChunkUnit.SENTENCES:
            starts = [span.start + len(prompt) for span in find_sentences(text, language)]
            indices = np.searchsorted([start for _, start in tokens], starts).tolist()
            unit_starts = [index for index in dict.fromkeys([0, *indices]) if index < len(tokens)]
        edges = [0, *(tokens[start][0] for start in unit_starts[1:]), len(ids)]
        groups = self.chunking.group(len(edges) - 1)
        return ids, [(edges[first], edges[end]) for first, end in groups]

    def split(self, token_count: int) -> list[tuple[int, int, int]]:
        """Split a text into windows.

        Returns:
            For each window, the index of its first token, its first token after the overlap, and
            its end.
        """
        windows = [(0, 0, min(self.window, token_count))]
        while windows[-1][2] < token_count:
            previous_end = windows[-1][2]
            first = previous_end - (self.overlap or 0)
            windows.append((first, previous_end, min(first + self.window, token_count)))
        return windows

    @torch.inference_mode()
    def _pool(self, texts: Sequence[TokenizedText], batch_size: int) -> Iterator[Vectors]:
        """Yield the chunk vectors of each text, shape (chunks, dimensions)."""
        windows = [(ids, *window) for ids, _ in texts for window in self.split(len(ids))]
        states = []
        for batch in split_batches(windows, batch_size):
            batch_states = self._encode([ids[first:end] for ids, first, _, end in batch])
            for window_states, (_, first, new, _) in zip(batch_states, batch, strict=True):
                states.append(window_states[new - first :])
        state_iterator = iter(states)
        for ids, chunks in texts:
            document_states = torch.cat(list(islice(state_iterator, len(self.split(len(ids))))))
            means = torch.stack(
                [document_states[start:end].float().mean(dim=0) for start, end in chunks]
            )
            features = {"sentence_embedding": means.to(document_states.dtype)}
            for module in list(self.loaded)[2:]:
                features = module(features)
            yield features["sentence_embedding"].float().cpu().numpy()

    def _encode(self, inputs: Sequence[list[int]]) -> list[torch.Tensor]:
        """Return the token embeddings of each input, shape (tokens, dimensions)."""
        self.loaded.eval()
        features = self.loaded.tokenizer.pad({"input_ids": list(inputs)}, return_tensors="pt")
        features = {name: tensor.to(self.loaded.device) for name, tensor in features.items()}
        # Copy the mask, since the transformer may remove it from the features.
        masks = features["attention_mask"].bool()
        states = self.loaded[0](features)["token_embeddings"]
        return [rows[mask] for rows, mask in zip(states, masks, strict=True)]
