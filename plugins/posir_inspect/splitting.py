"""Chunking strategies: their cost, and their comparison with whole texts."""

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
from posir_tasks.display.labels import Term
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
        model: The model, whose own limit also applies.
        context: The task and its prompt.
        window: Measured window in tokens, without prompt and special tokens; None if the model
            reads whole texts.
    """
    limits = [limit for limit in (find_room(model, context), window) if limit]
    largest = min([*limits, SIZES[-1]])
    return sorted({largest, *(size for size in SIZES if size < largest)}, reverse=True)


@dataclass(frozen=True)
class ChunkCounts:
    """Number of tokens in a set of chunks, and number of problematic chunks."""

    tokens: int
    """Number of tokens to encode, excluding special and truncated tokens."""
    too_long: int = 0
    """Number of chunks that exceed the window."""
    unlocated: int = 0
    """Number of chunks that are not substrings of their text."""


@dataclass(frozen=True)
class FixedSizeStrategy:
    """Chunks of a fixed number of tokens."""

    size: int
    in_context: bool = False
    """If true, chunks do not overlap, and a server embeds them in the context of their text."""

    @property
    def chunker(self) -> str | None:
        """Name of contextual chunks; None for plain chunks, which are named by size."""
        return f"{self.size} tokens in context" if self.in_context else None

    def estimate_tokens(self, length: int) -> int:
        """Return the number of tokens to encode for a text of `length` tokens.

        A text with a single chunk counts as 0, since it is already encoded.
        """
        if self.in_context:
            return length
        if length <= self.size:
            return 0
        return sum(end - start for start, end in Chunking(self.size).group(length))

    def count_chunks(self, questions: QuestionSet) -> ChunkCounts:
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


class SplitterStrategy:
    """Chunks from a splitter. The splitter is called once per text."""

    size: None = None

    def __init__(
        self,
        splitter: TextSplitter,
        sample: QuestionSet,
        tokenizer: Tokenizer,
        window: int | None,
        *,
        rejects_long: bool,
    ) -> None:
        """Try a splitter on a sample.

        Raises:
            PosirError: The splitter fails on a text, or the model refuses long texts and a chunk
                exceeds the window.
        """
        self.chunker = splitter.name
        self._tokenizer = tokenizer
        self._window = window
        self._rejects_long = rejects_long
        texts = list(sample.documents.values())
        chunked_texts = dict(zip(texts, splitter.split_texts(texts), strict=True))
        self._split = cache(lambda text: chunked_texts.get(text) or splitter.split_text(text))
        self._ratio = self.count_chunks(sample).tokens / max(sum(sample.lengths), 1)

    def estimate_tokens(self, length: int) -> int:
        """Estimate the number of tokens in all chunks of a text of `length` tokens."""
        return round(self._ratio * length)

    def count_chunks(self, questions: QuestionSet) -> ChunkCounts:
        """Count the tokens in the chunks of all texts, and the problematic chunks.

        Raises:
            PosirError: The model refuses long texts, and a chunk exceeds the window.
        """
        chunked_texts = [self._split(text) for text in questions.documents.values()]
        counts = self._tokenizer.count_all(
            [chunk for text in chunked_texts for chunk in text.chunks]
        )
        window = self._window or max(counts)
        too_long = sum(count > window for count in counts)
        if too_long and self._rejects_long:
            raise PosirError(
                f"{self.chunker}: {too_long:,} of {len(counts):,} chunks are longer than the "
                f"{window:,} tokens that the model accepts; the longest has {max(counts):,}. Use "
                "smaller chunks."
            )
        unlocated = sum(span is None for text in chunked_texts for span in text.spans)
        return ChunkCounts(sum(min(count, window) for count in counts), too_long, unlocated)

    def build_search(self, model: EncoderProtocol, memory: EmbeddingMemory) -> MaximumSearch:
        """Build a search that scores each text by its highest-scoring chunk."""
        return MaximumSearch(
            model,
            lambda encoder, texts: vectorize_chunks(
                encoder, [self._split(text).chunks for text in texts]
            ),
            memory,
        )


ChunkStrategy: TypeAlias = FixedSizeStrategy | SplitterStrategy


@dataclass(frozen=True)
class EncodingCosts:
    """Number of tokens to encode per text, without special tokens. Arrays have shape (texts,)."""

    text_tokens: Integers
    """Number of tokens in each text that are within the window."""
    search_tokens: Integers
    """Upper bound for a search in whole texts: the text, its rotated versions and its questions.

    Paraphrases are assumed to be as long as questions reduced to their rarest words.
    """
    chunk_tokens: Integers
    """Number of tokens in the chunks of each text, over all strategies."""
    total: int
    """Number of tokens in all texts, including verbatim questions."""

    @classmethod
    def count(
        cls,
        questions: QuestionSet,
        strategies: Sequence[ChunkStrategy],
        window: int | None,
        tokenizer: Tokenizer,
        wordings: int,
    ) -> EncodingCosts:
        """Count the tokens in texts, rotated versions, questions and chunks.

        `wordings` is the number of wordings other than verbatim, 1 or 2.
        """
        lengths = np.array(questions.lengths, np.int64)
        text_tokens = np.minimum(lengths, window or lengths)
        rows = {name: row for row, name in enumerate(questions.documents)}
        question_rows = [rows[question.document] for question in questions.questions]
        keyword_tokens, verbatim_tokens = (
            tokenizer.count_all([question.wordings[wording] for question in questions.questions])
            for wording in (Wording.RAREST_WORDS, Wording.VERBATIM)
        )
        question_tokens = np.bincount(question_rows, keyword_tokens, len(rows)).astype(np.int64)
        rotated_tokens = _estimate_rotated_tokens(lengths, text_tokens)
        search_tokens = text_tokens + rotated_tokens + wordings * question_tokens
        chunk_tokens = [
            sum(strategy.estimate_tokens(length) for strategy in strategies)
            for length in lengths.tolist()
        ]
        total = int(search_tokens.sum()) + sum(chunk_tokens) + sum(verbatim_tokens)
        return cls(text_tokens, search_tokens, np.array(chunk_tokens, np.int64), total)


def _estimate_rotated_tokens(lengths: Integers, text_tokens: Integers) -> Integers:
    """Return an upper bound for the tokens in the rotated versions of each text, shape (texts,).

    Only a sample of each length bucket is rotated.
    """
    buckets = np.searchsorted(RelativePositions().token_bounds, lengths)
    is_sampled = pd.Series(buckets).groupby(buckets).cumcount() < read_sample_size()
    # A truncated text also has an excerpt that fits the window, with rotated versions.
    versions = VERSIONS - 1 + VERSIONS * (text_tokens < lengths)
    return np.where(is_sampled, versions * text_tokens, 0)


def count_affordable(costs: Integers, budget: float) -> int:
    """Return how many texts, in the given order, fit the budget together."""
    return int((np.cumsum(costs) <= budget).sum())


@dataclass(frozen=True)
class ChunkSearch:
    """Results of a search in whole texts or chunks, by wording."""

    strategy: ChunkStrategy | None
    """None for whole texts."""
    vectors: int
    values: Mapping[Wording, ResultValues]
    tasks: Mapping[Wording, PseudoQuestionTask]


@dataclass(frozen=True, eq=False)
class ChunkRow:
    """Results for whole texts or one chunking strategy, on questions in one wording."""

    size: int | None
    """Chunk size in tokens; None for whole texts and splitters."""
    chunker: str | None
    """Name of the splitter or of contextual chunks; None for whole texts and plain chunks."""
    vectors: int
    counts: ChunkCounts
    group: GroupAnalysis
    """Analysis of the scores. All rows have the same questions."""
    change: ChangeRow | None
    """nDCG@10 minus nDCG@10 of whole texts; None for whole texts."""
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
        """Name in tables and sentences, such as `chunks of 128 tokens`."""
        if self.chunker:
            return self.chunker
        return f"chunks of {self.size} tokens" if self.size else f"whole {self.unit}s"

    @property
    def state(self) -> ChangeState | None:
        """Verdict on the change from whole texts; None for whole texts."""
        return self.change.state if self.change else None

    def to_row(self) -> dict[str, object]:
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


def compare_strategies(
    searches: Sequence[ChunkSearch],
    wording: Wording,
    questions: QuestionSet,
    window: int | None,
    unit: str,
) -> list[ChunkRow]:
    """Compare chunking strategies with whole texts, on questions in one wording.

    Args:
        searches: Results. The first search is in whole texts.
        wording: The wording of the questions.
        questions: The questions and their texts.
        window: Window in tokens; None if the model reads whole texts.
        unit: Noun for a whole text, `text` or `excerpt`.
    """
    token_count = sum(min(length, window or length) for length in questions.lengths)
    rows: list[ChunkRow] = []
    for search in searches:
        strategy = search.strategy
        row = ChunkRow(
            strategy.size if strategy else None,
            strategy.chunker if strategy else None,
            search.vectors,
            strategy.count_chunks(questions) if strategy else ChunkCounts(token_count),
            analyze(search.values[wording]).overall,
            change=None,
            unit=unit,
            cost=search.vectors / searches[0].vectors,
        )
        rows.append(replace(row, change=_compare_rows(rows[0], row)) if rows else row)
    return rows


def _describe_change(change: ChangeRow) -> str:
    """Describe a change in a sentence that begins with `Search in`."""
    return capitalize(describe_change(change))


def _compare_rows(baseline: ChunkRow, row: ChunkRow) -> ChangeRow:
    change = compare_groups(baseline.group, row.group, paired=True)[Metric.NDCG_AT_10]
    subject = ChangeSubject(baseline=f"search in {baseline.name}", model=f"search in {row.name}")
    return replace(change, subject=subject)


@dataclass(frozen=True)
class ChunkComparison:
    """A comparison of chunking strategies on questions in one wording, and the selected one."""

    rows: Sequence[ChunkRow]
    selection: ChunkRow
    """The selected row: whole texts, or the chunks to use."""
    best_row: ChunkRow
    """The row with the highest nDCG@10."""
    other_changes: tuple[ChangeRow, ...]
    """Other changes to report, each relative to the best row: the change to the selected row, and
    the change to the cheapest chunks that need fewer vectors but are inconclusive.
    """
    model: str

    @property
    def sentences(self) -> tuple[str, ...]:
        """Sentences about the gain and cost of the selected row, and about alternatives."""
        sentences = [WHOLE_SERVES.format(whole=self.selection.name)]
        if self.selection.change:
            cost = CHUNK_COST.format(cost=self.selection.cost)
            sentences = [_describe_change(self.selection.change), cost]
        return (*sentences, *map(_describe_change, self.other_changes))

    @property
    def is_decided(self) -> bool:
        """True unless chunks are selected and their change from whole texts is inconclusive."""
        return self.selection.state is not ChangeState.INCONCLUSIVE

    @property
    def is_recommended(self) -> bool:
        """True if chunks are recommended instead of whole texts."""
        return self.selection.change is not None and self.is_decided

    @property
    def has_few_texts(self) -> bool:
        """True if every comparison has too few texts."""
        return all(row.change.reason is Reason.FEW_DOCUMENTS for row in self.rows if row.change)

    @property
    def has_splitters(self) -> bool:
        """True if splitters are compared instead of sizes."""
        return any(row.chunker for row in self.rows)

    @property
    def title(self) -> str:
        """Title of the section."""
        return f"Which {'chunker' if self.has_splitters else 'chunk size'} works best"

    def describe_recommendation(self, sample: str, vectors_per_text: float | None) -> str:
        """Describe the recommended chunks with their gain and cost, without a final period.

        Args:
            sample: A phrase for the sample in the comparison, such as `50 texts`.
            vectors_per_text: Mean number of chunks per text, over all texts; None to report the
                cost relative to whole texts.
        """
        row = self.selection
        cost = f"{row.cost:.1f} times the vectors"
        if vectors_per_text:
            cost = f"about {vectors_per_text:,.0f} vectors per text"
        best = ""
        if self.best_row is not row and self.best_row.state is ChangeState.BETTER:
            best = BEST_CHUNKS.format(
                chunks=self.best_row.name,
                value=format_percent(self.best_row.ndcg_at_10.value),
                times=self.best_row.vectors / row.vectors,
            )
        gain = CHUNK_ADVICE.format(
            whole=format_percent(self.rows[0].ndcg_at_10.value),
            value=format_percent(row.ndcg_at_10.value),
            texts=sample,
            cost=cost,
        )
        return Term(f"Search in {row.name}", f"{gain}{best}")

    @property
    def chunked_model(self) -> str | None:
        """The `-m` argument for the model with the selected chunk size. None if whole texts or a
        splitter are selected, or the selection is inconclusive.
        """
        size = self.selection.size
        if not size or not self.is_decided:
            return None
        return f"{self.model}+{'context_chunks' if self.selection.chunker else 'chunks'}({size})"

    def describe_counts(self) -> Iterator[str]:
        """Yield sentences about chunks that exceed the window or are not in their text."""
        for row in self.rows:
            counts_by_problem = {
                "longer than the window": row.counts.too_long,
                "not in their text": row.counts.unlocated,
            }
            for problem, chunk_count in counts_by_problem.items():
                if chunk_count:
                    chunks = pluralize(row.vectors, "chunk")
                    yield f"{row.chunker}: {chunk_count:,} of {chunks} are {problem}."

    def build_table(self) -> Table:
        """Build a table with one row for whole texts and one per strategy."""
        vectors = f"Vectors\nper {self.selection.unit}"
        headings = ["Chunks", vectors, "nDCG@10", "State", "Change from whole"]
        if self.has_splitters:
            headings.insert(2, "Tokens")
        rows: list[tuple[str, ...]] = []
        recommended: int | None = None
        for row in self.rows:
            name = f"{row.size:,} tokens" if row.size else row.name
            if row is self.selection and self.is_recommended:
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
        right_aligned = {*headings[1:]} - {"State"}
        columns = build_columns(headings, right_aligned, drawn=headings[-1:], roles=roles)
        return Table(columns, tuple(rows), recommended=recommended)

    def to_json(self) -> dict[str, object]:
        """Convert to JSON values, without the rows."""
        return {
            "chosen": self.selection.name,
            "decided": self.is_decided,
            "chunked_model": self.chunked_model,
            "sentences": self.sentences,
        }


def select_chunks(rows: Sequence[ChunkRow], model: str) -> ChunkComparison:
    """Select the cheapest row that beats whole texts or, if there is none, the cheapest row
    equivalent to the best.

    The highest nDCG@10 is not the criterion: the questions share words with their text, which
    favors small chunks.
    """
    best_row = max(rows, key=lambda row: row.ndcg_at_10.value)
    changes = {row: _compare_rows(best_row, row) for row in rows if row is not best_row}
    better_rows = [row for row in rows if row.state is ChangeState.BETTER]
    equivalent_rows = [row for row in changes if changes[row].state is ChangeState.EQUIVALENT]
    selection = min(better_rows or [best_row, *equivalent_rows], key=lambda row: row.vectors)
    other_changes = [] if selection is best_row else [changes[selection]]
    # Skip whole texts, the first row: the selected row is already compared with them.
    for row in sorted(rows[1:], key=lambda row: row.vectors):
        is_inconclusive = row in changes and changes[row].state is ChangeState.INCONCLUSIVE
        if is_inconclusive and row.vectors < selection.vectors:
            other_changes.append(changes[row])
            break
    return ChunkComparison(rows, selection, best_row, tuple(other_changes), model)
