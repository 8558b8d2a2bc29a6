"""Ways to split texts into chunks that an inspection compares: chunks of so many tokens, and those of any splitter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
from mteb.types import PromptType

from posir_significance.analysis import GroupAnalysis, analyze
from posir_significance.decision import Change, ChangeState, MetricChange, compare_groups
from posir_significance.sentences import describe_metric_change
from posir_tasks.embeddings.encoding import EmbeddingMemory, ModelEncoder
from posir_tasks.errors import PosirError
from posir_tasks.scores import Estimate
from posir_tasks.search.chunked import Chunker, DocumentVectors, MaximumSearch, find_room, vectorize_chunks
from posir_tasks.text.chunks import Chunking, DividedText, TextSplitter

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol

    from posir_inspect.questions import PseudoQuestionTask, QuestionSet, Wording
    from posir_tasks.embeddings.context import EncodingContext
    from posir_tasks.read_part import ReadPart
    from posir_tasks.scores import ResultValues
    from posir_tasks.text.tokenizer import Tokenizer

#: Sizes of chunks in tokens, smallest first.
SIZES = (64, 128, 256, 512, 1024)


class WholeTextSearch(MaximumSearch):
    """Search in whole texts, each a vector."""

    def __init__(self, base: EncoderProtocol, read: ReadPart, memory: EmbeddingMemory) -> None:
        """Prepare a search with a model that reads a part of a text, in tokens without special ones."""
        super().__init__(base, vectorize_whole, memory)
        self.read_part = read


def vectorize_whole(encoder: ModelEncoder, texts: Sequence[str]) -> DocumentVectors:
    """Return a vector for each text."""
    return DocumentVectors(encoder(texts, PromptType.document), [1] * len(texts))


def choose_sizes(model: EncoderProtocol, context: EncodingContext, window: int | None) -> list[int]:
    """Return the sizes of chunks that the model reads in full, largest first; the largest that it does is one of them.

    Args:
        model: The model.
        context: Its prompt for documents takes room, too.
        window: Tokens of a text that it reads as was measured; None for all.
    """
    claimed = find_room(model, context)
    room = min((limit for limit in (claimed, window) if limit), default=None)
    sizes = {size for size in SIZES if room is None or size <= room}
    return sorted(sizes if room is None else sizes | {min(room, max(SIZES))}, reverse=True)


def search_chunks(model: EncoderProtocol, size: int, memory: EmbeddingMemory) -> MaximumSearch:
    """Return a search in chunks of so many tokens."""
    return MaximumSearch(model, Chunker.of_model(model, Chunking(size)).vectorize, memory)


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


def name_size(size: int | None) -> str:
    """Return a chunk size in words."""
    return "whole texts" if size is None else f"chunks of {size} tokens"


@dataclass(frozen=True)
class ChunkRow:
    """Whole texts or a way to split them, and how well questions in one wording find their text by its best chunk."""

    size: int | None
    """Tokens; None for whole texts and the chunks of a splitter."""
    chunker: str | None
    """Name of the splitter; None if there is none."""
    vectors: int
    counts: ChunkCounts
    ndcg_at_10: Estimate
    start_to_end: Estimate | None
    change: Change | None
    """The change from whole texts; None for these."""

    @property
    def gain(self) -> Estimate | None:
        """NDCG@10 minus that of whole texts, with the interval of the change; None for these, and where undefined."""
        difference = self.change.ndcg_at_10.difference if self.change else None
        if self.change is None or difference is None or difference.interval_at is None:
            return None
        return Estimate(difference.value, difference.interval_at(self.change.level))

    @property
    def name(self) -> str:
        """The searched units, in words."""
        return self.chunker or name_size(self.size)


@dataclass(frozen=True)
class ChunkSearch:
    """A search in whole texts, or in a division into chunks, by wording."""

    division: Division | None
    """None for whole texts."""
    vectors: int
    """Chunks of all texts, each of which is a vector in an index."""
    values: Mapping[Wording, ResultValues]
    tasks: Mapping[Wording, PseudoQuestionTask]

    def analyze(self, wording: Wording) -> GroupAnalysis:
        """Return the analysis of all questions in one wording."""
        return analyze(self.values[wording].ranks, self.values[wording].read).overall


def compare_divisions(
    searches: Sequence[ChunkSearch], groups: Sequence[GroupAnalysis], questions: QuestionSet, window: int | None
) -> tuple[ChunkRow, ...]:
    """Return whole texts, of which a model reads so many tokens, and divisions into chunks beside them.

    Args:
        searches: In whole texts, then in each division.
        groups: The analysis of each, over the same questions.
        questions: The questions.
        window: Tokens of a text that the model reads; None for all.
    """
    whole = ChunkCounts(sum(min(length, window or length) for length in questions.tokens.values()))
    rows = []
    for search, group in zip(searches, groups, strict=True):
        division, contrast = search.division, group.position.start_to_end
        assert group.ndcg is not None
        rows.append(
            ChunkRow(
                size=division.size if division else None,
                chunker=division.chunker if division else None,
                vectors=search.vectors,
                counts=division.count(questions) if division else whole,
                ndcg_at_10=Estimate(group.ndcg.value, group.ndcg.interval),
                start_to_end=Estimate(contrast.value, contrast.interval) if contrast else None,
                change=compare_groups(groups[0], group, paired=True) if division else None,
            )
        )
    return tuple(rows)


@dataclass(frozen=True)
class ChunkAdvice:
    """The fewest vectors of those that are equivalent to the best in nDCG@10, and the changes that say so."""

    chosen: str
    """The searched units, in words."""
    size: int | None
    """Tokens of a chunk; None for whole texts and the chunks of a splitter."""
    change: MetricChange | None
    """Change of nDCG@10 from whole texts; None for these."""
    sentences: tuple[str, ...]

    @property
    def decided(self) -> bool:
        """Whether it can be said that it is better than whole texts, or that these serve."""
        return self.change is None or self.change.state is not ChangeState.CANNOT_BE_SAID


def advise_chunks(rows: Sequence[ChunkRow], groups: Sequence[GroupAnalysis]) -> ChunkAdvice:
    """Choose the fewest vectors among the best in nDCG@10 and those that are equivalent to it.

    Args:
        rows: Whole texts, then each way to split them.
        groups: The analysis of each, over the same questions.
    """
    best = int(np.argmax([row.ndcg_at_10.value for row in rows]))
    changes = {row: compare_groups(groups[best], group, paired=True) for row, group in enumerate(groups) if row != best}
    states = {row: change.ndcg_at_10.state for row, change in changes.items()}
    chosen = min(
        (best, *(row for row, state in states.items() if state is ChangeState.EQUIVALENT)), key=lambda row: rows[row].vectors
    )
    open_rows = [
        row for row, state in states.items() if state is ChangeState.CANNOT_BE_SAID and rows[row].vectors < rows[chosen].vectors
    ]

    def describe(change: Change, a: int, b: int) -> str:
        sentence = describe_metric_change(
            "nDCG@10", change.ndcg_at_10, change, f"search in {rows[a].name}", f"search in {rows[b].name}"
        )
        return sentence[0].upper() + sentence[1:]

    def describe_all() -> Iterator[str]:
        whole = rows[chosen].change
        if whole is None:
            yield "No chunks find more than whole texts." if best == 0 else describe(changes[chosen], best, chosen)
        else:
            yield describe(whole, 0, chosen)
            if chosen != best:
                yield describe(changes[chosen], best, chosen)
            yield f"It takes {rows[chosen].vectors / rows[0].vectors:.1f} times as many vectors."
        if open_rows:
            cheapest = min(open_rows, key=lambda row: rows[row].vectors)
            if not (cheapest == 0 and whole and whole.ndcg_at_10.state is ChangeState.CANNOT_BE_SAID):
                yield describe(changes[cheapest], best, cheapest)

    row = rows[chosen]
    return ChunkAdvice(row.name, row.size, row.change.ndcg_at_10 if row.change else None, tuple(describe_all()))
