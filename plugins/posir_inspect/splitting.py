"""Ways to divide texts into chunks, their cost, and their comparison with whole texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pandas as pd

from posir_inspect.questions import QuestionSet, Wording
from posir_significance.analysis import GroupAnalysis, analyze
from posir_significance.changes import compare_groups
from posir_significance.findings import ChangeRow, ChangeState, ChangeSubject, Metric, Reason
from posir_significance.messages.comparisons import describe_change, label_change
from posir_significance.messages.texts import BEST_CHUNKS, CHUNK_ADVICE, CHUNK_COST, WHOLE_SERVES
from posir_significance.messages.verdicts import capitalize, format_difference
from posir_tasks.base.arrays import Integers
from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import pluralize
from posir_tasks.display.numbers import MISSING, format_count, format_estimate, format_percent
from posir_tasks.display.tables import Role, Table, build_columns
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

#: Chunk sizes in tokens, smallest first.
SIZES = (64, 128, 256, 512, 1024)


def choose_sizes(model: EncoderProtocol, context: EncodingContext, window: int | None) -> list[int]:
    """Choose chunk sizes that fit the window with the document prompt, the largest first.

    Args:
        model: The model; its own limit counts.
        context: The task and its prompt.
        window: Measured window in tokens, without prompt and special tokens; None if the model
            reads whole texts.
    """
    limits = [limit for limit in (find_room(model, context), window) if limit]
    largest = min([*limits, SIZES[-1]])
    return sorted({largest, *(size for size in SIZES if size < largest)}, reverse=True)


@dataclass(frozen=True)
class ChunkCounts:
    """Counts of tokens and of problematic chunks."""

    tokens: int
    """Number of tokens to encode, without special and truncated tokens."""
    too_long: int = 0
    """Number of chunks that exceed the window."""
    unlocated: int = 0
    """Number of chunks that are not substrings of their text."""


@dataclass(frozen=True)
class TokenDivision:
    """Chunks of a fixed number of tokens."""

    size: int
    in_context: bool = False
    """If true, a server embeds the chunks in the context of their text, and they do not overlap."""

    @property
    def chunker(self) -> str | None:
        """The name of chunks in context; None for plain chunks, which are named by size."""
        return f"{self.size} tokens in context" if self.in_context else None

    def estimate_tokens(self, length: int) -> int:
        """Return the number of tokens in all chunks of a text with `length` tokens.

        A text that is a single chunk counts as 0, since it has already been encoded.
        """
        if self.in_context:
            return length
        if length <= self.size:
            return 0
        return sum(end - start for start, end in Chunking(self.size).group(length))

    def count(self, questions: QuestionSet) -> ChunkCounts:
        """Count the tokens in the chunks of all texts."""
        return ChunkCounts(
            sum(self.estimate_tokens(length) or length for length in questions.lengths)
        )

    def build_search(self, model: EncoderProtocol, memory: EmbeddingMemory) -> MaximumSearch:
        """Build the search of `MODEL+chunks(SIZE)` or `MODEL+context_chunks(SIZE)`."""
        if self.in_context:
            chunker = Chunker.from_model(model, Chunking(self.size, self.size))
            return MaximumSearch(model, chunker.vectorize_in_context, memory)
        return MaximumSearch(
            model, Chunker.from_model(model, Chunking(self.size)).vectorize, memory
        )


class SplitterDivision:
    """Chunks from a splitter, which is called once per text."""

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
        """Try a splitter on a sample.

        Raises:
            PosirError: The splitter fails on a text, or returns a chunk that the model refuses.
        """
        self.chunker = splitter.name
        self._tokenizer = tokenizer
        self._window = window
        self._refuses = refuses
        texts = list(sample.documents.values())
        divided_texts = dict(zip(texts, splitter.divide_all(texts), strict=True))
        self._divide = cache(lambda text: divided_texts.get(text) or splitter.divide(text))
        self._ratio = self.count(sample).tokens / max(sum(sample.lengths), 1)

    def estimate_tokens(self, length: int) -> int:
        """Estimate the number of tokens in all chunks of a text with `length` tokens."""
        return round(self._ratio * length)

    def count(self, questions: QuestionSet) -> ChunkCounts:
        """Count the tokens and the problematic chunks of all texts.

        Raises:
            PosirError: The model refuses a chunk because of its length.
        """
        divided_texts = [self._divide(text) for text in questions.documents.values()]
        counts = self._tokenizer.count_all(
            [chunk for text in divided_texts for chunk in text.chunks]
        )
        window = self._window or max(counts)
        too_long = sum(count > window for count in counts)
        if too_long and self._refuses:
            raise PosirError(
                f"{self.chunker}: {too_long:,} of {len(counts):,} chunks are longer than the "
                f"{window:,} tokens that the model accepts; the longest has {max(counts):,}. Use "
                "smaller chunks."
            )
        unlocated = sum(span is None for text in divided_texts for span in text.spans)
        return ChunkCounts(sum(min(count, window) for count in counts), too_long, unlocated)

    def build_search(self, model: EncoderProtocol, memory: EmbeddingMemory) -> MaximumSearch:
        """Build a search that scores each text by its best chunk."""
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
    """Number of tokens to encode per text, without special tokens; arrays have shape (texts,)."""

    whole: Integers
    """Tokens of the text within the window."""
    whole_search: Integers
    """Upper bound for a search in whole texts: `whole`, rotated versions and questions.

    Paraphrases are assumed to be as long as questions reduced to their rarest words.
    """
    chunks: Integers
    """Tokens in the chunks of all divisions."""
    total: int
    """Sum over all texts, including verbatim questions."""

    @classmethod
    def count(
        cls,
        questions: QuestionSet,
        divisions: Sequence[Division],
        window: int | None,
        tokenizer: Tokenizer,
        wordings: int,
    ) -> Costs:
        """Count the tokens in texts, versions, questions and chunks.

        `wordings` is the number of wordings other than verbatim, 1 or 2.
        """
        lengths = np.array(questions.lengths, np.int64)
        whole = np.minimum(lengths, window or lengths)
        rows = {name: row for row, name in enumerate(questions.documents)}
        owners = [rows[question.document] for question in questions.questions]
        rarest, verbatim = (
            tokenizer.count_all([question.wordings[wording] for question in questions.questions])
            for wording in (Wording.RAREST_WORDS, Wording.VERBATIM)
        )
        question_tokens = np.bincount(owners, rarest, len(rows)).astype(np.int64)
        whole_search = whole + _count_rotations(lengths, whole) + wordings * question_tokens
        chunks = [
            sum(division.estimate_tokens(length) for division in divisions)
            for length in lengths.tolist()
        ]
        total = int(whole_search.sum()) + sum(chunks) + sum(verbatim)
        return cls(whole, whole_search, np.array(chunks, np.int64), total)


def _count_rotations(lengths: Integers, whole: Integers) -> Integers:
    """Return an upper bound for the tokens in each text's rotated versions, shape (texts,).

    Only a sample of the texts in each length bucket is rotated.
    """
    buckets = np.searchsorted(RelativePositions().token_bounds, lengths)
    is_sampled = pd.Series(buckets).groupby(buckets).cumcount() < read_sample_size()
    # A truncated text also has an excerpt within the window, with its own versions.
    versions = VERSIONS - 1 + VERSIONS * (whole < lengths)
    return np.where(is_sampled, versions * whole, 0)


def count_fitting(costs: Integers, budget: float) -> int:
    """Count the leading costs whose sum is within the budget."""
    return int((np.cumsum(costs) <= budget).sum())


@dataclass(frozen=True)
class ChunkSearch:
    """Results of a search in whole texts or in chunks, by wording."""

    division: Division | None
    """None for whole texts."""
    vectors: int
    values: Mapping[Wording, ResultValues]
    tasks: Mapping[Wording, PseudoQuestionTask]


@dataclass(frozen=True, eq=False)
class ChunkRow:
    """Results for whole texts or one division into chunks, on questions in one wording."""

    size: int | None
    """Chunk size in tokens; None for whole texts and splitters."""
    chunker: str | None
    """Name of the splitter, or of chunks in context; None for whole texts and plain sizes."""
    vectors: int
    counts: ChunkCounts
    group: GroupAnalysis
    """Analysis of the questions, which are the same for all rows."""
    change: ChangeRow | None
    """Change in nDCG@10 from whole texts; None for whole texts."""
    unit: str = "text"
    """Noun for a whole text: `text` or `excerpt`."""
    cost: float = 1.0
    """Number of vectors relative to whole texts."""

    @property
    def ndcg_at_10(self) -> MeanEstimate:
        """Mean nDCG@10 over the questions."""
        assert self.group.ndcg is not None
        return self.group.ndcg

    @property
    def name(self) -> str:
        """A name for the chunks, such as `chunks of 128 tokens`."""
        if self.chunker:
            return self.chunker
        return f"chunks of {self.size} tokens" if self.size else f"whole {self.unit}s"

    @property
    def state(self) -> ChangeState | None:
        """State of the change from whole texts; None for whole texts."""
        return self.change.state if self.change else None

    def record(self) -> dict[str, object]:
        """Convert to columns of an inspection. The interval of the change is at 98.33%."""
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
    """Compare divisions into chunks with whole texts, on questions in one wording.

    Args:
        searches: Results, starting with whole texts.
        wording: The wording of the questions.
        questions: The questions and their texts.
        window: Number of tokens of a text that the model reads; None for all.
        unit: Noun for a whole text, `text` or `excerpt`.
    """
    tokens = sum(min(length, window or length) for length in questions.lengths)
    rows: list[ChunkRow] = []
    for search in searches:
        division = search.division
        row = ChunkRow(
            division.size if division else None,
            division.chunker if division else None,
            search.vectors,
            division.count(questions) if division else ChunkCounts(tokens),
            analyze(search.values[wording]).overall,
            change=None,
            unit=unit,
            cost=search.vectors / searches[0].vectors,
        )
        rows.append(replace(row, change=_compare(rows[0], row)) if rows else row)
    return rows


def _describe(change: ChangeRow) -> str:
    """Describe a change in a sentence, which begins with `Search in`."""
    return capitalize(describe_change(change))


def _compare(a: ChunkRow, b: ChunkRow) -> ChangeRow:
    change = compare_groups(a.group, b.group, paired=True)[Metric.NDCG_AT_10]
    subject = ChangeSubject(baseline=f"search in {a.name}", model=f"search in {b.name}")
    return replace(change, subject=subject)


@dataclass(frozen=True)
class ChunkComparison:
    """A comparison of divisions on questions in one wording, and the chosen division."""

    rows: Sequence[ChunkRow]
    row: ChunkRow
    """The chosen row."""
    best: ChunkRow
    """The row with the highest nDCG@10."""
    other_changes: tuple[ChangeRow, ...]
    """Changes from the best row to the chosen row, if they differ, and to the cheapest chunks whose
    comparison with the best row is inconclusive, if they need fewer vectors than the chosen row.
    """
    model: str

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences about the gain and cost of the chosen row, and about its alternatives."""
        sentences = [WHOLE_SERVES.format(whole=self.row.name)]
        if self.row.change:
            sentences = [_describe(self.row.change), CHUNK_COST.format(cost=self.row.cost)]
        return (*sentences, *map(_describe, self.other_changes))

    @property
    def is_decided(self) -> bool:
        """True if whole texts are chosen, or the change from them is not inconclusive."""
        return self.row.state is not ChangeState.INCONCLUSIVE

    @property
    def is_advised(self) -> bool:
        """True if chunks are recommended."""
        return self.row.change is not None and self.is_decided

    @property
    def has_few_texts(self) -> bool:
        """True if there are too few texts for every comparison."""
        return all(row.change.reason is Reason.FEW_DOCUMENTS for row in self.rows if row.change)

    @property
    def has_splitters(self) -> bool:
        """True if splitters are compared instead of sizes."""
        return any(row.chunker for row in self.rows)

    @property
    def title(self) -> str:
        """The title of the section."""
        return f"Which {'chunker' if self.has_splitters else 'chunk size'} serves these texts"

    def advise(self, texts: str, vectors: float | None) -> str:
        """Describe the recommended chunks with their gain and cost.

        Args:
            texts: The sample on which the gain was measured, in words.
            vectors: Mean number of chunks per text over all texts; None to state the cost relative
                to whole texts.
        """
        row = self.row
        cost = f"{row.cost:.1f} times the vectors"
        advice = CHUNK_ADVICE.format(
            chunks=row.name,
            whole=format_percent(self.rows[0].ndcg_at_10.value),
            value=format_percent(row.ndcg_at_10.value),
            texts=texts,
            cost=f"about {vectors:,.0f} vectors per text" if vectors else cost,
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
        """The `-m` argument for the model with the chosen chunk size; None for whole texts and
        splitters.
        """
        if not self.row.size or not self.is_decided:
            return None
        return f"{self.model}+{'context_chunks' if self.row.chunker else 'chunks'}({self.row.size})"

    def describe_counts(self) -> Iterator[str]:
        """Yield sentences about chunks that exceed the window or are not in their text."""
        for row in self.rows:
            counts = {
                "longer than the window": row.counts.too_long,
                "not in their text": row.counts.unlocated,
            }
            for problem, chunk_count in counts.items():
                if chunk_count:
                    chunks = pluralize(row.vectors, "chunk")
                    yield f"{row.chunker}: {chunk_count:,} of {chunks} are {problem}."

    def tabulate(self) -> Table:
        """Build a table with a row for whole texts and for each division."""
        vectors = f"Vectors\n{'per text' if self.row.unit == 'text' else 'per excerpt'}"
        headings = ["Chunks", vectors, "nDCG@10", "State", "Change from whole"]
        if self.has_splitters:
            headings.insert(2, "Tokens")
        rows: list[tuple[str, ...]] = []
        recommended: int | None = None
        for row in self.rows:
            name = f"{row.size:,} tokens" if row.size else row.name
            if row is self.row and self.is_advised:
                recommended = len(rows)
                name += "\n(fewest vectors)"
            score = format_estimate(row.ndcg_at_10, format_percent)
            cells = [name, f"{row.cost:.1f}", score, "", MISSING]
            if row.change:
                cells[3] = label_change(row.change)
                cells[4] = format_difference(row.change) or MISSING
            if self.has_splitters:
                cells.insert(2, format_count(row.counts.tokens))
            rows.append(tuple(cells))
        roles = {
            vectors: Role.COST,
            "nDCG@10": Role.SCORE,
            "State": Role.STATE,
            headings[-1]: Role.CHANGE,
        }
        right = {*headings[1:]} - {"State"}
        columns = build_columns(headings, right, drawn=headings[-1:], roles=roles)
        return Table(columns, tuple(rows), recommended=recommended)

    def document(self) -> dict[str, object]:
        """Convert to JSON, without the rows."""
        return {
            "chosen": self.row.name,
            "decided": self.is_decided,
            "chunked_model": self.chunked_model,
            "sentences": self.sentences,
        }


def advise_chunks(rows: Sequence[ChunkRow], model: str) -> ChunkComparison:
    """Choose the cheapest row that beats whole texts, else the cheapest row equivalent to the best.

    The highest nDCG@10 is not the criterion: queries in a text's own words favor small chunks, so
    the smallest size often scores highest.
    """
    best = max(rows, key=lambda row: row.ndcg_at_10.value)
    changes = {row: _compare(best, row) for row in rows if row is not best}
    better = [row for row in rows if row.state is ChangeState.BETTER]
    equivalent = [row for row in changes if changes[row].state is ChangeState.EQUIVALENT]
    chosen = min(better or [best, *equivalent], key=lambda row: row.vectors)
    other_changes = [] if chosen is best else [changes[chosen]]
    # The change of the chosen row already compares it with whole texts, the first row.
    for row in sorted(rows[1:], key=lambda row: row.vectors):
        is_open = row in changes and changes[row].state is ChangeState.INCONCLUSIVE
        if is_open and row.vectors < chosen.vectors:
            other_changes.append(changes[row])
            break
    return ChunkComparison(rows, chosen, best, tuple(other_changes), model)
