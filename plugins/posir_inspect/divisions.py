"""Divisions of texts into chunks that an inspection compares: chunks of so many tokens, and those of any splitter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from posir_inspect.chunk_sizes import search_chunks
from posir_tasks.errors import PosirError
from posir_tasks.search.chunked import vectorize_chunks
from posir_tasks.search.maximum_search import DocumentVectors, MaximumSearch
from posir_tasks.text.chunks import Chunking
from posir_tasks.text.splitters import DividedText, TextSplitter

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol

    from posir_inspect.pseudo_questions import QuestionSet
    from posir_tasks.embeddings.encoding import EmbeddingMemory, ModelEncoder
    from posir_tasks.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class ChunkCounts:
    """The chunks of some texts, counted."""

    tokens: int
    """Tokens to encode, at most as many of a chunk as the model reads; special tokens are not counted."""
    cut: int = 0
    """Chunks that are longer than the model reads."""
    lost: int = 0
    """Chunks that are not in their text."""


class Division(Protocol):
    """A way to divide texts into chunks."""

    @property
    def size(self) -> int | None:
        """Tokens of a chunk; None if they are not of one size."""

    @property
    def chunker(self) -> str | None:
        """Name of the splitter; None if there is none."""

    def estimate_tokens(self, length: int) -> int:
        """Return about how many tokens the chunks of a text of so many tokens have; none if it is encoded anyway."""

    def count(self, questions: QuestionSet) -> ChunkCounts:
        """Count the chunks of texts."""

    def build_search(self, model: EncoderProtocol, memory: EmbeddingMemory) -> MaximumSearch:
        """Return a search in the chunks."""


@dataclass(frozen=True)
class TokenDivision:
    """Chunks of so many tokens."""

    size: int
    chunker: None = None

    def estimate_tokens(self, length: int) -> int:
        """Return the tokens of the chunks of a text of so many tokens."""
        return count_chunk_tokens(length, self.size)

    def count(self, questions: QuestionSet) -> ChunkCounts:
        """Count the tokens of the chunks."""
        return ChunkCounts(sum(count_chunk_tokens(length, self.size) or length for length in questions.tokens.values()))

    def build_search(self, model: EncoderProtocol, memory: EmbeddingMemory) -> MaximumSearch:
        """Return a search as `MODEL+chunks(SIZE)` searches."""
        return search_chunks(model, self.size, memory)


@dataclass(frozen=True)
class SplitterDivision:
    """Chunks of a splitter, which divides each text once."""

    splitter: TextSplitter
    tokenizer: Tokenizer
    window: int | None
    """Tokens of a text that the model reads; None if it reads every text to its end."""
    refuses: bool
    """Whether the model refuses longer texts."""
    ratio: float
    """Tokens of the chunks for each token of a text."""
    _known: dict[str, DividedText] = field(default_factory=dict, repr=False)
    size: None = None

    @classmethod
    def from_sample(
        cls, splitter: TextSplitter, sample: Mapping[str, int], tokenizer: Tokenizer, window: int | None, *, refuses: bool
    ) -> SplitterDivision:
        """Return the division of a splitter, tried on texts with their lengths in tokens.

        Raises:
            PosirError: The splitter does not divide them, or the model refuses a chunk for its length.
        """
        divided = dict(zip(sample, splitter.divide_all(sample), strict=True))
        division = cls(splitter, tokenizer, window, refuses, 1.0, divided)
        tokens = division.count_texts(sample).tokens
        return cls(splitter, tokenizer, window, refuses, tokens / max(sum(sample.values()), 1), divided)

    @property
    def chunker(self) -> str:
        """Name of the splitter."""
        return self.splitter.name

    def estimate_tokens(self, length: int) -> int:
        """Return about how many tokens the chunks of a text of so many tokens have."""
        return round(self.ratio * length)

    def count(self, questions: QuestionSet) -> ChunkCounts:
        """Count the chunks of texts; raise PosirError if the model refuses one for its length."""
        return self.count_texts(questions.documents.values())

    def count_texts(self, texts: Iterable[str]) -> ChunkCounts:
        """Count the chunks of texts; raise PosirError if the model refuses one for its length."""
        divided = [self.divide(text) for text in texts]
        counts = self.tokenizer.count_all([chunk for text in divided for chunk in text.chunks])
        window = self.window or max(counts)
        cut = sum(count > window for count in counts)
        if cut and self.refuses:
            raise PosirError(
                f"{self.chunker}: {cut:,} of {len(counts):,} chunks are longer than the {window:,} tokens that the model "
                f"accepts, up to {max(counts):,} tokens. Make them smaller."
            )
        lost = sum(span is None for text in divided for span in text.spans)
        return ChunkCounts(sum(min(count, window) for count in counts), cut, lost)

    def divide(self, text: str) -> DividedText:
        """Return the chunks of a text."""
        if text not in self._known:
            self._known[text] = self.splitter.divide(text)
        return self._known[text]

    def vectorize(self, encoder: ModelEncoder, texts: Sequence[str]) -> DocumentVectors:
        """Return the vectors of the chunks of each text."""
        return vectorize_chunks(encoder, [self.divide(text).chunks for text in texts])

    def build_search(self, model: EncoderProtocol, memory: EmbeddingMemory) -> MaximumSearch:
        """Return a search in the chunks."""
        return MaximumSearch(model, self.vectorize, memory)


def count_chunk_tokens(length: int, size: int) -> int:
    """Return the tokens of a text's chunks; none if it has one chunk, which is the text itself."""
    return sum(end - start for start, end in Chunking(size).group(length)) if length > size else 0
