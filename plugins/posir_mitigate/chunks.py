"""Methods on the text: a document is divided before it is encoded or pooled, or encoded in both
orders of its sentences.

Maximum of chunks: each is a vector in the index, as in passage retrieval. Mean of chunks: one
vector per document (the mean of DICE, arXiv 2606.18781, whose presets of size and overlap are 128
and 32, 256 and 64, 512 and 128, or 1,024 and 0: strides of 96, 192, 384 and 1,024). Tokens of a
model whose tokenizer is not here, such as one behind an endpoint, are estimated: one for every four
bytes.

Late chunks (Guenther et al. 2024, arXiv 2409.04701): the document is encoded as one text, and its
token states are pooled chunk by chunk. The first special token and a prompt join the first chunk,
the last special token the last one. The document scores what its best chunk scores. Long late
chunking encodes windows: of each later one, the first `overlap` states are dropped.

Context chunks: a server gets the chunks of one document in one request, and returns a vector for
each, in context.

Both orders: the mean of a document's embedding and that of the document with its sentences in
reverse order, so that what is at the start of one text is at the end of the other. Ours: no paper
on embeddings with this method is known.
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
from posir_tasks.base.progress import progress
from posir_tasks.models.embeddings.cached_encoder import WrappedEncoder, with_cache
from posir_tasks.models.embeddings.context import TASK_ARGUMENTS, EncodingContext
from posir_tasks.models.embeddings.encoding import ModelEncoder, Vectors, encode_distinct
from posir_tasks.models.endpoint_models import EndpointEncoder
from posir_tasks.models.prompts import find_document_prompt
from posir_tasks.search.chunked import Chunker, DocumentVectors, MaximumSearch
from posir_tasks.text.chunks import Chunking, ChunkUnit
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.tokenizer import find_tokenizer
from posir_tasks.values.read_part import KnownBy, ReadPart

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels
    from mteb.types import Array, BatchedInput
    from torch.utils.data import DataLoader

#: Returns the vectors of n documents, shape (n, dimensions).
DocumentEmbedder: TypeAlias = Callable[[ModelEncoder, Sequence[str]], Vectors]


class DocumentEncoder(WrappedEncoder):
    """One of mteb's encoders: queries as by the plain model, documents by a function."""

    #: The plain embeddings are cached, under the plain model's name; the documents' vectors are
    #: computed from them.
    caches_itself = True
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
        """Return the embeddings of the texts; only documents differ from the plain model's."""
        if prompt_type is not PromptType.document:
            cached = with_cache(self.base)
            assert isinstance(cached, EncoderProtocol)
            return cached.encode(inputs, prompt_type=prompt_type, **arguments)
        rest = {name: value for name, value in arguments.items() if name not in TASK_ARGUMENTS}
        context = EncodingContext.from_arguments(**arguments, encode_kwargs=rest)
        return self._embed_documents(
            ModelEncoder(self.base, context), [text for batch in inputs for text in batch["text"]]
        )


#: Units of a chunk; 0 for the default.
Size: TypeAlias = Annotated[int, Field(ge=0)]
#: Sentences of a chunk by default.
SENTENCES = 4


class DividingMethod(Mitigation):
    """Base of methods that divide documents into overlapping chunks."""

    DEFAULT_TOKENS: ClassVar[int] = 64
    size: Size
    stride: Size
    """Units from the start of a chunk to that of the next; 0 for half the size."""
    unit: ChunkUnit

    def resolve_defaults(self) -> Mapping[str, int]:
        """Return size and stride."""
        return {"size": self.chunking.size, "stride": self.chunking.step}

    @property
    def chunking(self) -> Chunking:
        """Size and overlap of the chunks."""
        default = self.DEFAULT_TOKENS if self.unit is ChunkUnit.TOKENS else SENTENCES
        return Chunking(self.size or default, self.stride, self.unit)


class Combination(StrEnum):
    """The rule by which the chunks of a document make its score."""

    MAX = "max"
    MEAN = "mean"


@dataclass(frozen=True)
class Chunks(DividingMethod):
    """Encode chunks of each document in place of the document."""

    NAME: ClassVar[str] = "chunks"
    DEPLOYMENT: ClassVar[str] = (
        "index each chunk with the id of its document (posir inspect --snippet), or with mean the "
        "mean of the vectors of its chunks, behind any server of the model"
    )
    UNLIMITED: ClassVar[bool] = True
    DEFAULT_TOKENS: ClassVar[int] = 128

    size: Size = 0
    stride: Size = 0
    combination: Combination = Combination.MAX
    unit: ChunkUnit = ChunkUnit.TOKENS

    def wrap(self, base: MTEBModels) -> MTEBModels:
        """Return the model that encodes chunks; PosirError: no encoder, or chunks of tokens that
        exceed its window.
        """
        encoder = self.require_encoder(base)
        tokenizer = find_tokenizer(encoder)
        if self.unit is ChunkUnit.TOKENS and tokenizer and not tokenizer.locates_tokens:
            raise self.unsupported(
                encoder,
                "no fast tokenizer to count tokens with. Divide by sentences: "
                f"{self.NAME}(sentences).",
            )
        chunker = Chunker.of_model(encoder, self.chunking)
        chunker.check_room(encoder)
        model: MaximumSearch | DocumentEncoder
        if self.combination is Combination.MAX:
            model = MaximumSearch(encoder, chunker.vectorize)
        else:

            def average(inner: ModelEncoder, texts: Sequence[str]) -> Vectors:
                return chunker.vectorize(inner, texts).average()

            model = DocumentEncoder(encoder, average)
        model.read_part = chunker.find_read_part(encoder)
        return model


@dataclass(frozen=True)
class ContextChunks(DividingMethod):
    """Let a server encode the chunks of each document together, each with the rest of its document
    as context.
    """

    NAME: ClassVar[str] = "context_chunks"
    DEPLOYMENT: ClassVar[str] = (
        "index each vector that the server returns for the chunks of a document in one request, "
        "with the document's id"
    )
    UNLIMITED: ClassVar[bool] = True

    size: Size = 0
    stride: Size = 0
    """0 for the size: the server joins the chunks, which would repeat what they have in common."""
    unit: ChunkUnit = ChunkUnit.TOKENS

    @property
    def chunking(self) -> Chunking:
        """Size and overlap of the chunks."""
        chunking = super().chunking
        return replace(chunking, stride=self.stride or chunking.size)

    def wrap(self, base: MTEBModels) -> MTEBModels:
        """Return the model that encodes chunks in context; raise PosirError if its server does not
        do so.
        """
        if not isinstance(base, EndpointEncoder) or base.kind.in_context is None:
            raise self.unsupported(
                base,
                "needs a server and model that embed chunks in context, such as voyage-context-3. "
                "Use chunks.",
            )
        return MaximumSearch(base, Chunker.of_model(base, self.chunking).vectorize_in_context)


@dataclass(frozen=True)
class BothOrders(Mitigation):
    """Average the embeddings of each document in forward and in reverse order."""

    NAME: ClassVar[str] = "both_orders"
    DEPLOYMENT: ClassVar[str] = (
        "index the mean of the vectors of a document and of its sentences in reverse, behind any "
        "server of the model"
    )
    #: Of a document beyond the window, the model reads both ends.
    UNLIMITED: ClassVar[bool] = True

    sentences: Annotated[int, Field(gt=0)] = 1
    """Sentences that stay together in their order."""

    def wrap(self, base: MTEBModels) -> MTEBModels:
        """Return the model that averages both orders; raise PosirError if the model is no
        encoder.
        """
        return DocumentEncoder(self.require_encoder(base), self.average)

    def reverse(self, text: str, language: str) -> str:
        """Put the sentences of a text, or groups of them, in reverse order."""
        chunking = Chunking(self.sentences, self.sentences, ChunkUnit.SENTENCES)
        return " ".join(reversed(chunking.divide(text, find_sentences(text, language))))

    def average(self, encoder: ModelEncoder, texts: Sequence[str]) -> Vectors:
        """Return the mean of the embeddings in both orders, shape (n, dimensions)."""
        both = [*texts, *(self.reverse(text, encoder.context.corpus_language) for text in texts)]
        vectors = encode_distinct(encoder, both).select(both)
        average: Vectors = vectors.reshape(2, len(texts), -1).mean(axis=0, dtype=np.float32)
        return average


@dataclass(frozen=True)
class LateChunks(DividingMethod):
    """Pool the token states of each document chunk by chunk."""

    NAME: ClassVar[str] = "late_chunks"
    DEPLOYMENT: ClassVar[str] = (
        "needs token states, so only in Python (posir.open_model) or by a server that has late "
        "chunking itself"
    )

    size: Size = 0
    stride: Size = 0
    unit: ChunkUnit = ChunkUnit.TOKENS

    def wrap(self, base: MTEBModels) -> MTEBModels:
        """Return the model that pools chunks; PosirError: it lacks mean pooling, a fast tokenizer,
        or a window.
        """
        encoder = self.require_encoder(base)
        overlap = getattr(self, "overlap", None)
        loaded = getattr(base, "model", None)
        wrappers = (SentenceTransformerEncoderWrapper, InstructSentenceTransformerModel)
        modules = list(loaded) if isinstance(base, wrappers) and loaded is not None else []
        if [type(module).__name__ for module in modules[:2]] != ["Transformer", "Pooling"]:
            raise self.unsupported(
                base,
                "works inside models of sentence-transformers that are loaded here, with a "
                "transformer and pooling.",
            )
        vectorizer = LateVectorizer(loaded, self.chunking, overlap)
        pooling = modules[1]
        is_fast = getattr(vectorizer.loaded.tokenizer, "is_fast", False)
        if not (
            pooling.pooling_mode == "mean"
            and pooling.include_prompt
            and is_fast
            and vectorizer.loaded.max_seq_length
        ):
            raise self.unsupported(
                base,
                "needs mean pooling with the prompt, a fast tokenizer and a known window. This "
                f"model pools by {pooling.pooling_mode}; use chunks.",
            )
        if overlap is not None and overlap >= vectorizer.window:
            raise self.unsupported(
                base,
                f"the overlap is at most {vectorizer.window - 1}, less than the model's window.",
            )
        search = MaximumSearch(encoder, vectorizer)
        search.read_part = None if overlap is None else ReadPart.all(KnownBy.CHUNKS)
        return search


@dataclass(frozen=True)
class LongLateChunks(LateChunks):
    """Pool the token states of documents that are encoded window by window."""

    NAME: ClassVar[str] = "long_late_chunks"
    UNLIMITED: ClassVar[bool] = True

    overlap: Size = 64
    """Tokens at the start of each later window that only serve as context."""


#: The tokens of a text, prompt and special ones included, and of each chunk the first and the one
#: after its last.
TokenizedText: TypeAlias = tuple[list[int], list[tuple[int, int]]]


@dataclass(frozen=True)
class LateVectorizer:
    """Encodes documents and pools their chunks."""

    loaded: Any
    """The model of sentence-transformers: a transformer, pooling, and what follows it."""
    chunking: Chunking
    overlap: int | None = None
    """Tokens that windows have in common; None for one window, at which texts are truncated."""

    @property
    def window(self) -> int:
        """Tokens of a window."""
        return int(self.loaded.max_seq_length)

    def __call__(self, encoder: ModelEncoder, texts: Sequence[str]) -> DocumentVectors:
        """Return the vectors of the documents' chunks."""
        context = encoder.context
        prompt = find_document_prompt(encoder.model, context.task_metadata) or ""
        tokenized = [self.tokenize(text, prompt, context.corpus_language) for text in texts]
        order = sorted(range(len(texts)), key=lambda number: -len(tokenized[number][0]))
        size = int(context.encode_kwargs.get("batch_size", 32))
        vectors: dict[int, Vectors] = {}
        for first in progress(range(0, len(order), size), "Encoding documents"):
            batch = order[first : first + size]
            pooled = self._pool([tokenized[number] for number in batch], size)
            vectors |= zip(batch, pooled, strict=True)
        ordered = [vectors[number] for number in range(len(texts))]
        return DocumentVectors(np.concatenate(ordered), list(map(len, ordered)))

    def tokenize(self, text: str, prompt: str, language: str) -> TokenizedText:
        """Tokenize a text and find its chunks; text beyond the window is cut off if there is only
        one.
        """
        encoding = self.loaded.tokenizer(
            prompt + text,
            return_offsets_mapping=True,
            verbose=False,
            truncation=self.overlap is None,
            max_length=self.window if self.overlap is None else None,
        )
        ids = encoding["input_ids"]
        # Special tokens have no characters; the prompt joins the first chunk.
        tokens = [
            (number, start)
            for number, (start, end) in enumerate(encoding["offset_mapping"])
            if end > max(start, len(prompt))
        ]
        firsts = list(range(len(tokens)))
        if self.chunking.unit is ChunkUnit.SENTENCES:
            starts = [span.start + len(prompt) for span in find_sentences(text, language)]
            indices = np.searchsorted([start for _, start in tokens], starts).tolist()
            firsts = [index for index in dict.fromkeys([0, *indices]) if index < len(tokens)]
        edges = [0, *(tokens[first][0] for first in firsts[1:]), len(ids)]
        groups = self.chunking.group(len(edges) - 1)
        return ids, [(edges[first], edges[end]) for first, end in groups]

    def divide(self, tokens: int) -> list[tuple[int, int, int]]:
        """Return the first token of each window, the first whose state is used, and the one after
        its last.
        """
        windows = [(0, 0, min(self.window, tokens))]
        while windows[-1][2] < tokens:
            used = windows[-1][2]
            first = used - (self.overlap or 0)
            windows.append((first, used, min(first + self.window, tokens)))
        return windows

    @torch.inference_mode()
    def _pool(self, texts: Sequence[TokenizedText], batch_size: int) -> Iterator[Vectors]:
        """Yield the vectors of each text's chunks after the modules that follow pooling, shape
        (chunks, dimensions).
        """
        windows = [(ids, *window) for ids, _ in texts for window in self.divide(len(ids))]
        states: list[torch.Tensor] = []
        for number in range(0, len(windows), batch_size):
            batch = windows[number : number + batch_size]
            encoded = self._encode([ids[first:end] for ids, first, _, end in batch])
            for window_states, (_, first, used, _) in zip(encoded, batch, strict=True):
                states.append(window_states[used - first :])
        remaining = iter(states)
        for ids, chunks in texts:
            joined = torch.cat(list(islice(remaining, len(self.divide(len(ids))))))
            means = torch.stack([joined[start:end].float().mean(dim=0) for start, end in chunks])
            features = {"sentence_embedding": means.to(joined.dtype)}
            for module in list(self.loaded)[2:]:
                features = module(features)
            yield features["sentence_embedding"].float().cpu().numpy()

    def _encode(self, inputs: Sequence[list[int]]) -> list[torch.Tensor]:
        """Return the token states of each input, shape (its tokens, dimensions)."""
        self.loaded.eval()
        features = self.loaded.tokenizer.pad({"input_ids": list(inputs)}, return_tensors="pt")
        features = {name: tensor.to(self.loaded.device) for name, tensor in features.items()}
        # Modules may remove the mask.
        masks = features["attention_mask"].bool()
        states = self.loaded[0](features)["token_embeddings"]
        return [rows[mask] for rows, mask in zip(states, masks, strict=True)]
