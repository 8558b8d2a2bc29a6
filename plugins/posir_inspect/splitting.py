"""Ways to split texts into chunks that an inspection compares, by tokens or by any splitter, and
what they cost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from posir_inspect.questions import WITHOUT_MODEL, QuestionSet, Wording
from posir_significance.analysis import GroupAnalysis, analyze
from posir_significance.changes import compare_groups
from posir_significance.findings import ChangeRow, ChangeState, ChangeSubject, Metric, Reason
from posir_significance.messages.comparisons import describe_change, label_change
from posir_significance.messages.texts import BEST_CHUNKS, CHUNK_ADVICE, CHUNK_COST, WHOLE_SERVES
from posir_significance.messages.verdicts import format_difference
from posir_tasks.base.arrays import Integers
from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import pluralize
from posir_tasks.display.numbers import MISSING, format_count, format_estimate, format_percent
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.models.embeddings.encoding import EmbeddingMemory
from posir_tasks.search.chunked import Chunker, MaximumSearch, find_room, vectorize_chunks
from posir_tasks.text.chunks import Chunking, TextSplitter
from posir_tasks.text.rotations import VERSIONS
from posir_tasks.values.means import MeanEstimate
from posir_tasks.values.rotation_ranks import read_sample_size
from posir_tasks.values.schemes import RelativePositions

if TYPE_CHECKING:
    from mteb.models import EncoderProtocol

    from posir_inspect.questions import PseudoQuestionTask
    from posir_tasks.models.embeddings.context import EncodingContext
    from posir_tasks.text.tokenizer import Tokenizer
    from posir_tasks.values.scores import ResultValues

#: Sizes of chunks in tokens, smallest first.
SIZES = (64, 128, 256, 512, 1024)


def choose_sizes(model: EncoderProtocol, context: EncodingContext, window: int | None) -> list[int]:
    """Choose the sizes of chunks that the model reads in full, largest first; the largest that fits
    is one of them.

    The prompt for documents takes room, too. The window is measured, in tokens of a text; None if
    everything is read.
    """
    limits = [limit for limit in (find_room(model, context), window) if limit]
    if not limits:
        return sorted(SIZES, reverse=True)
    largest = min(*limits, SIZES[-1])
    return sorted({largest, *(size for size in SIZES if size <= largest)}, reverse=True)


@dataclass(frozen=True)
class ChunkCounts:
    """The chunks of some texts, counted."""

    tokens: int
    """Tokens to encode, without special tokens and what is truncated."""
    cut: int = 0
    """Chunks that are longer than the model reads."""
    lost: int = 0
    """Chunks that are not in their text."""


@dataclass(frozen=True)
class TokenDivision:
    """Chunks of so many tokens."""

    size: int
    in_context: bool = False
    """Whether a server embeds them in the context of their text; they do not overlap then."""

    @property
    def chunker(self) -> str | None:
        """The name of chunks in context; None where the size is enough."""
        return f"{self.size} tokens in context" if self.in_context else None

    def estimate_tokens(self, length: int) -> int:
        """Count the tokens of the chunks of a text of that many tokens; 0 if the text is the only
        chunk.
        """
        if self.in_context:
            return length
        if length <= self.size:
            return 0
        return sum(end - start for start, end in Chunking(self.size).group(length))

    def count(self, questions: QuestionSet) -> ChunkCounts:
        """Count the tokens of the chunks of all texts."""
        return ChunkCounts(
            sum(self.estimate_tokens(length) or length for length in questions.lengths)
        )

    def build_search(self, model: EncoderProtocol, memory: EmbeddingMemory) -> MaximumSearch:
        """Build a search as `MODEL+chunks(SIZE)` or `MODEL+context_chunks(SIZE)` searches."""
        if self.in_context:
            chunker = Chunker.of_model(model, Chunking(self.size, self.size))
            return MaximumSearch(model, chunker.vectorize_in_context, memory)
        return MaximumSearch(model, Chunker.of_model(model, Chunking(self.size)).vectorize, memory)


class SplitterDivision:
    """Chunks of a splitter, which divides each text once."""

    size: None = None

    def __init__(
        self,
        splitter: TextSplitter,
        sample: QuestionSet,
        tokenizer: Tokenizer,
        window: int | None,
        *,
        refuses: bool,
    ) -> None:
        """Try a splitter on some texts; raise PosirError if it does not divide them, or the model
        refuses a chunk.
        """
        self.chunker = splitter.name
        self._tokenizer = tokenizer
        self._window = window
        self._refuses = refuses
        texts = list(sample.documents.values())
        divided = dict(zip(texts, splitter.divide_all(texts), strict=True))
        self._divide = cache(lambda text: divided.get(text) or splitter.divide(text))
        self._ratio = self.count(sample).tokens / max(sum(sample.tokens.values()), 1)

    def estimate_tokens(self, length: int) -> int:
        """Estimate the tokens of the chunks of a text of that many tokens."""
        return round(self._ratio * length)

    def count(self, questions: QuestionSet) -> ChunkCounts:
        """Count the chunks of all texts; raise PosirError if the model refuses one for its
        length.
        """
        divided = [self._divide(text) for text in questions.documents.values()]
        counts = self._tokenizer.count_all([chunk for text in divided for chunk in text.chunks])
        window = self._window or max(counts)
        cut = sum(count > window for count in counts)
        if cut and self._refuses:
            raise PosirError(
                f"{self.chunker}: {cut:,} of {len(counts):,} chunks are longer than the "
                f"{window:,} tokens that the model "
                f"accepts, up to {max(counts):,} tokens. Make them smaller."
            )
        lost = sum(span is None for text in divided for span in text.spans)
        return ChunkCounts(sum(min(count, window) for count in counts), cut, lost)

    def build_search(self, model: EncoderProtocol, memory: EmbeddingMemory) -> MaximumSearch:
        """Build a search in the chunks."""
        return MaximumSearch(
            model,
            lambda encoder, texts: vectorize_chunks(
                encoder, [self._divide(text).chunks for text in texts]
            ),
            memory,
        )


Division: TypeAlias = TokenDivision | SplitterDivision


@dataclass(frozen=True)
class Costs:
    """Tokens to encode for each text, in the order in which texts are drawn, shape (texts,) each;
    special tokens are not counted.
    """

    whole: Integers
    """The part of the text within the window."""
    searched: Integers
    """The same with its rotated versions, at most, and its questions in their rarest words and, if
    there are any, in other words. Those in other words are assumed to be as long.
    """
    chunks: Integers
    total: int
    """Tokens of everything, verbatim questions included."""

    @classmethod
    def count(
        cls,
        questions: QuestionSet,
        divisions: Sequence[Division],
        window: int | None,
        tokenizer: Tokenizer,
        wordings: int,
    ) -> Costs:
        """Count the tokens of texts, versions, questions and chunks.

        Questions are asked in one or two wordings besides verbatim.
        """
        lengths = np.array(questions.lengths, np.int64)
        whole = np.minimum(lengths, window or lengths)
        rows = {name: row for row, name in enumerate(questions.documents)}
        owners = [rows[question.document] for question in questions.questions]
        asked = {}
        for wording in WITHOUT_MODEL:
            counts = tokenizer.count_all(
                [question.wordings[wording] for question in questions.questions]
            )
            asked[wording] = np.bincount(owners, counts, len(rows)).astype(np.int64)
        chunks = [
            sum(division.estimate_tokens(length) for division in divisions)
            for length in lengths.tolist()
        ]
        searched = whole + _count_rotations(lengths, whole)
        searched += wordings * asked[Wording.RAREST_WORDS]
        total = searched.sum() + sum(chunks) + asked[Wording.VERBATIM].sum()
        return cls(whole, searched, np.array(chunks, np.int64), int(total))


def _count_rotations(lengths: Integers, read: Integers) -> Integers:
    """Count the tokens of the rotated versions of each text, at most; only a sample of the texts of
    each length bucket is rotated.
    """
    sample = read_sample_size()
    bounds = RelativePositions().token_bounds
    drawn = Counter[int]()
    tokens = np.zeros_like(lengths)
    for row, length in enumerate(lengths.tolist()):
        bucket = bisect_left(bounds, length)
        drawn[bucket] += 1
        if drawn[bucket] <= sample:
            # A text that is truncated also has an excerpt that is not, and versions of it.
            versions = VERSIONS - 1 + (VERSIONS if read[row] < length else 0)
            tokens[row] = versions * read[row]
    return tokens


def count_fitting(costs: Integers, budget: float) -> int:
    """Count how many of the first costs are together within a budget."""
    return int((np.cumsum(costs) <= budget).sum())


@dataclass(frozen=True)
class ChunkSearch:
    """A search in whole texts, or in a division into chunks, by wording."""

    division: Division | None
    """None for whole texts."""
    vectors: int
    values: Mapping[Wording, ResultValues]
    tasks: Mapping[Wording, PseudoQuestionTask]


@dataclass(frozen=True, eq=False)
class ChunkRow:
    """Whole texts or a way to split them, and how well questions in one wording find their text by
    its best chunk.
    """

    size: int | None
    """Tokens; None for whole texts and the chunks of a splitter."""
    chunker: str | None
    vectors: int
    counts: ChunkCounts
    group: GroupAnalysis
    """The analysis, over the same questions for all rows."""
    change: ChangeRow | None
    """The change of nDCG@10 from whole texts; None for these."""
    unit: str = "text"
    """What is searched whole: `text`, or `excerpt` of long ones."""
    cost: float = 1.0
    """Vectors relative to whole texts."""

    @property
    def ndcg_at_10(self) -> MeanEstimate:
        """Mean over the questions."""
        assert self.group.ndcg is not None
        return self.group.ndcg

    @property
    def name(self) -> str:
        """The searched units, in words."""
        if self.chunker:
            return self.chunker
        return f"chunks of {self.size} tokens" if self.size else f"whole {self.unit}s"

    @property
    def state(self) -> ChangeState | None:
        """The state of the change from whole texts; None for these."""
        return self.change.state if self.change else None

    def record(self) -> dict[str, object]:
        """Convert to a row of an inspection; the interval of the change is at 98.33%."""
        difference = self.change.estimate if self.change else None
        return {
            "chunk_size": self.size,
            "chunker": self.chunker,
            "vectors": self.vectors,
            "tokens": self.counts.tokens,
            "ndcg_at_10": self.ndcg_at_10,
            "change": difference if difference and difference.interval else None,
            "change_state": self.state,
        }


def compare_divisions(
    searches: Sequence[ChunkSearch],
    wording: Wording,
    questions: QuestionSet,
    window: int | None,
    unit: str,
) -> list[ChunkRow]:
    """Compare divisions into chunks with whole texts, which the first search is in, by the
    questions in one wording.
    """
    whole, *divided = searches
    tokens = sum(min(length, window or length) for length in questions.lengths)
    group = analyze(whole.values[wording]).overall
    rows = [ChunkRow(None, None, whole.vectors, ChunkCounts(tokens), group, None, unit)]
    for search in divided:
        division = search.division
        assert division is not None
        row = ChunkRow(
            division.size,
            division.chunker,
            search.vectors,
            division.count(questions),
            analyze(search.values[wording]).overall,
            change=None,
            unit=unit,
            cost=search.vectors / whole.vectors,
        )
        rows.append(replace(row, change=_compare(rows[0], row)))
    return rows


def _describe(change: ChangeRow) -> str:
    """Describe a change as a sentence, which begins with `search in`."""
    described = describe_change(change)
    return f"{described[0].upper()}{described[1:]}"


def _compare(a: ChunkRow, b: ChunkRow) -> ChangeRow:
    """Compare the nDCG@10 of two ways to split the same texts."""
    change = compare_groups(a.group, b.group, paired=True)[Metric.NDCG_AT_10]
    subject = ChangeSubject(baseline=f"search in {a.name}", model=f"search in {b.name}")
    return replace(change, subject=subject)


@dataclass(frozen=True)
class ChunkComparison:
    """Ways to split the texts, compared by questions in one wording, and the one that is
    advised.
    """

    rows: Sequence[ChunkRow]
    row: ChunkRow
    """The chosen row."""
    best: ChunkRow
    """The row with the highest nDCG@10."""
    others: tuple[ChangeRow, ...]
    """The change from the best row to the chosen row, if it is another one, and to the cheapest
    chunks that may serve with fewer vectors.
    """
    model: str

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the chosen row gains and costs, and which others may serve."""
        first = [WHOLE_SERVES.format(whole=self.row.name)]
        if self.change is not None:
            cost = CHUNK_COST.format(cost=self.row.cost)
            first = [_describe(self.change), cost]
        return (*first, *map(_describe, self.others))

    @property
    def change(self) -> ChangeRow | None:
        """Change of nDCG@10 from whole texts to the chosen row; None for these."""
        return self.row.change

    @property
    def decided(self) -> bool:
        """Whether the chosen row is whole texts, or its change from these is decided."""
        return self.row.state is not ChangeState.INCONCLUSIVE

    @property
    def is_advised(self) -> bool:
        """Whether chunks are advised."""
        return self.change is not None and self.decided

    @property
    def has_few_texts(self) -> bool:
        """Whether there are too few texts for any comparison."""
        return all(row.change.reason is Reason.FEW_DOCUMENTS for row in self.rows if row.change)

    @property
    def has_splitters(self) -> bool:
        """Whether splitters are compared, instead of sizes."""
        return any(row.chunker for row in self.rows)

    @property
    def title(self) -> str:
        """The question that it answers."""
        return f"Which {'chunker' if self.has_splitters else 'chunk size'} serves these texts"

    def advise(self, texts: str, vectors: float | None) -> str:
        """Describe the advised chunks, what they gain on some texts, and cost in all texts."""
        row = self.row
        cost = f"{row.cost:.1f} times the vectors"
        advice = CHUNK_ADVICE.format(
            chunks=row.name,
            whole=format_percent(self.rows[0].ndcg_at_10.value),
            value=format_percent(row.ndcg_at_10.value),
            texts=texts,
            cost=f"about {vectors:,.0f} vectors a text" if vectors else cost,
        )
        if self.best is not row and self.best.state is ChangeState.BETTER:
            advice += BEST_CHUNKS.format(
                chunks=self.best.name,
                value=format_percent(self.best.ndcg_at_10.value),
                times=self.best.vectors / row.vectors,
            )
        return f"{advice}."

    @property
    def chunked_model(self) -> str | None:
        """The argument of `-m` that runs the model with the chosen size of chunks; None for whole
        texts or a splitter.
        """
        if not self.row.size or not self.decided:
            return None
        method = "context_chunks" if self.row.chunker else "chunks"
        return f"{self.model}+{method}({self.row.size})"

    def describe_counts(self) -> Iterator[str]:
        """Yield how many chunks are truncated, and how many are not in their text."""
        for row in self.rows:
            chunks = f"of {pluralize(row.vectors, 'chunk')} are"
            if row.counts.cut:
                yield f"{row.chunker}: {row.counts.cut:,} {chunks} longer than the model reads."
            if row.counts.lost:
                yield f"{row.chunker}: {row.counts.lost:,} {chunks} not in their text."

    def tabulate(self) -> Table:
        """Build a table with a line for whole texts and for each way to split them."""
        vectors = f"Vectors\n{'a text' if self.row.unit == 'text' else 'an excerpt'}"
        headings = ["Chunks", vectors, "nDCG@10", "State", "Change from whole"]
        if self.has_splitters:
            headings.insert(2, "Tokens")
        rows = []
        for row in self.rows:
            name = f"{row.size:,} tokens" if row.size else row.name
            if row is self.row and self.is_advised:
                name += "\n(fewest vectors)"
            score = format_estimate(row.ndcg_at_10, format_percent)
            cells = [name, f"{row.cost:.1f}", score, "", MISSING]
            if row.change:
                cells[3] = label_change(row.change)
                cells[4] = format_difference(row.change) or MISSING
            if self.has_splitters:
                cells.insert(2, format_count(row.counts.tokens))
            rows.append(tuple(cells))
        columns = build_columns(headings, {*headings[1:]} - {"State"}, drawn=headings[-1:])
        return Table(columns, tuple(rows))

    def document(self) -> dict[str, object]:
        """Convert to JSON, without the rows."""
        return {
            "chosen": self.row.name,
            "decided": self.decided,
            "chunked_model": self.chunked_model,
            "sentences": self.sentences,
        }


def advise_chunks(rows: Sequence[ChunkRow], model: str) -> ChunkComparison:
    """Choose the fewest vectors that are better than whole texts in nDCG@10, or else of the best
    and what is equivalent to it.

    Queries in a text's own words favor small chunks, so that the best are often the smallest that
    were tried.
    """
    best = max(rows, key=lambda row: row.ndcg_at_10.value)
    changes = {row: _compare(best, row) for row in rows if row is not best}
    better = [row for row in rows if row.state is ChangeState.BETTER]
    equivalent = [row for row in changes if changes[row].state is ChangeState.EQUIVALENT]
    chosen = min(better or [best, *equivalent], key=lambda row: row.vectors)
    others = [] if chosen is best else [changes[chosen]]
    # Whether whole texts serve is told by the change of the chosen row.
    for row in sorted(rows[1:], key=lambda row: row.vectors):
        is_open = row in changes and changes[row].state is ChangeState.INCONCLUSIVE
        if is_open and row.vectors < chosen.vectors:
            others.append(changes[row])
            break
    return ChunkComparison(rows, chosen, best, tuple(others), model)
