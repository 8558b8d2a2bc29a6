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
from posir_significance import messages
from posir_significance.analysis import GroupAnalysis, analyze
from posir_significance.changes import compare_groups
from posir_significance.findings import ChangeRow, ChangeState, ChangeSubject, Metric, Reason
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
CHUNKS, CHUNKERS = "Which chunk size serves these texts", "Which chunker serves these texts"


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

    @property
    def chunker(self) -> str | None:
        """None: the size is enough."""
        return None

    def estimate_tokens(self, length: int) -> int:
        """Count the tokens of the chunks of a text of that many tokens; 0 if the text is the only
        chunk.
        """
        if length <= self.size:
            return 0
        return sum(end - start for start, end in Chunking(self.size).group(length))

    def count(self, questions: QuestionSet) -> ChunkCounts:
        """Count the tokens of the chunks of all texts."""
        return ChunkCounts(
            sum(self.estimate_tokens(length) or length for length in questions.tokens.values())
        )

    def build_search(self, model: EncoderProtocol, memory: EmbeddingMemory) -> MaximumSearch:
        """Build a search as `MODEL+chunks(SIZE)` searches."""
        return MaximumSearch(model, Chunker.of_model(model, Chunking(self.size)).vectorize, memory)


@dataclass(frozen=True)
class ContextDivision(TokenDivision):
    """Chunks of so many tokens without overlap, which a server embeds in the context of their
    text.
    """

    @property
    def chunker(self) -> str:
        """The name that it is shown by."""
        return f"{self.size} tokens in context"

    def estimate_tokens(self, length: int) -> int:
        """Count the tokens of a text, each of which is in one chunk."""
        return length

    def build_search(self, model: EncoderProtocol, memory: EmbeddingMemory) -> MaximumSearch:
        """Build a search as `MODEL+context_chunks(SIZE)` searches."""
        chunker = Chunker.of_model(model, Chunking(self.size, self.size))
        return MaximumSearch(model, chunker.vectorize_in_context, memory)


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
    rotations: Integers
    """Its rotated versions, at most."""
    questions: Integers
    """Its questions in their rarest words and, if there are any, in other words. Those in other
    words are assumed to be as long.
    """
    verbatim: Integers
    chunks: Integers

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
        lengths = np.array([*questions.tokens.values()], np.int64)
        read = np.minimum(lengths, window or lengths)
        rows = {name: row for row, name in enumerate(questions.documents)}
        owners = [rows[question.document] for question in questions.questions]
        asked = {}
        for wording in WITHOUT_MODEL:
            texts = [question.wordings[wording] for question in questions.questions]
            asked[wording] = np.zeros_like(lengths)
            np.add.at(asked[wording], owners, tokenizer.count_all(texts))
        chunks = [
            sum(division.estimate_tokens(length) for division in divisions)
            for length in lengths.tolist()
        ]
        return cls(
            whole=read,
            rotations=_count_rotations(lengths, read),
            questions=asked[Wording.RAREST_WORDS] * wordings,
            verbatim=asked[Wording.VERBATIM],
            chunks=np.array(chunks, np.int64),
        )

    @property
    def total(self) -> int:
        """Tokens of everything."""
        return int((self.searched + self.verbatim + self.chunks).sum())

    @property
    def searched(self) -> Integers:
        """Tokens of each text with its versions and questions."""
        return self.whole + self.rotations + self.questions

    def count_whole(self, texts: int) -> int:
        """Count the tokens of the first texts, with their versions and questions."""
        return int(self.searched[:texts].sum())


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
    def is_better(self) -> bool:
        """Whether chunks are better than whole texts."""
        return self.change is not None and self.change.state is ChangeState.BETTER

    def record(self) -> dict[str, object]:
        """Convert to a row of an inspection; the interval of the change is at 98.33%."""
        difference = self.change and self.change.estimate
        return {
            "chunk_size": self.size,
            "chunker": self.chunker,
            "vectors": self.vectors,
            "tokens": self.counts.tokens,
            "ndcg_at_10": self.ndcg_at_10,
            "change": difference if difference and difference.interval else None,
            "change_state": self.change and self.change.state,
        }


def compare_divisions(
    searches: Sequence[ChunkSearch],
    wording: Wording,
    questions: QuestionSet,
    window: int | None,
    unit: str,
) -> tuple[ChunkRow, ...]:
    """Compare divisions into chunks with whole texts, which the first search is in, by the
    questions in one wording.
    """
    whole, *divided = searches
    tokens = sum(min(length, window or length) for length in questions.tokens.values())
    group = analyze(whole.values[wording]).overall
    rows = [ChunkRow(None, None, whole.vectors, ChunkCounts(tokens), group, None, unit)]
    for search in divided:
        assert search.division is not None
        row = ChunkRow(
            search.division.size,
            search.division.chunker,
            search.vectors,
            search.division.count(questions),
            analyze(search.values[wording]).overall,
            change=None,
            unit=unit,
            cost=search.vectors / whole.vectors,
        )
        rows.append(replace(row, change=_compare(rows[0], row)))
    return tuple(rows)


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

    rows: tuple[ChunkRow, ...]
    row: ChunkRow
    """The chosen row."""
    from_best: tuple[ChangeRow, ...]
    """The change from the best row to the chosen row, if it is another one."""
    doubts: tuple[ChangeRow, ...]
    """The change from the best row to the cheapest one that may serve with fewer vectors."""
    model: str

    @property
    def sentences(self) -> tuple[str, ...]:
        """What the chosen row gains and costs, and which others may serve."""
        changes = [messages.describe_change(row) for row in (*self.from_best, *self.doubts)]
        if self.change is not None:
            cost = messages.CHUNK_COST.format(cost=self.row.cost)
            return (messages.describe_change(self.change), cost, *changes)
        whole = messages.WHOLE_SERVES.format(whole=self.row.name)
        return tuple(changes if self.from_best else [whole, *changes])

    @property
    def change(self) -> ChangeRow | None:
        """Change of nDCG@10 from whole texts to the chosen row; None for these."""
        return self.row.change

    @property
    def decided(self) -> bool:
        """Whether the chosen row is whole texts, or its change from these is decided."""
        return self.change is None or self.change.state is not ChangeState.INCONCLUSIVE

    @property
    def is_advised(self) -> bool:
        """Whether chunks are advised."""
        return self.change is not None and self.decided

    @property
    def has_few_texts(self) -> bool:
        """Whether there are too few texts for any comparison."""
        return all(row.change.reason is Reason.FEW_DOCUMENTS for row in self.rows if row.change)

    @property
    def title(self) -> str:
        """The question that it answers."""
        return CHUNKERS if any(row.chunker for row in self.rows) else CHUNKS

    @property
    def best(self) -> ChunkRow | None:
        """The row with the highest nDCG@10, if it is not the chosen one and better than whole
        texts.
        """
        best = _find_best(self.rows)
        return best if best is not self.row and best.is_better else None

    def advise(self, texts: str, vectors: float | None) -> str:
        """Describe the advised chunks, what they gain on some texts, and cost in all texts."""
        best = self.best
        return messages.describe_chunk_advice(
            self.row.name,
            texts,
            (self.rows[0].ndcg_at_10.value, self.row.ndcg_at_10.value),
            vectors=vectors,
            cost=self.row.cost,
            is_better=self.row.is_better,
            best=(best.name, best.ndcg_at_10.value, best.vectors / self.row.vectors)
            if best
            else None,
        )

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
            chunks = f"of {pluralize(row.vectors, 'chunk')}"
            if row.counts.cut:
                yield f"{row.chunker}: {row.counts.cut:,} {chunks} are longer than the model reads."
            if row.counts.lost:
                yield (
                    f"{row.chunker}: {row.counts.lost:,} {chunks} are not in their text, and are "
                    "encoded as they are."
                )

    def tabulate(self) -> Table:
        """Build a table with a line for whole texts and for each way to split them."""
        vectors = "Vectors\na text" if self.row.unit == "text" else "Vectors\nan excerpt"
        has_tokens = self.title == CHUNKERS
        tokens = ["Tokens"] if has_tokens else []
        headings = ["Chunks", vectors, *tokens, "nDCG@10", "State", "Change from whole"]
        rows = []
        for row in self.rows:
            name = f"{row.size:,} tokens" if row.size else row.name
            advised = "\n(fewest vectors)" if row is self.row and self.is_advised else ""
            state = messages.label_change(row.change) if row.change else ""
            change = messages.format_difference(row.change) if row.change else ""
            rows.append(
                (
                    name + advised,
                    f"{row.cost:.1f}",
                    *([format_count(row.counts.tokens)] if has_tokens else []),
                    format_estimate(row.ndcg_at_10, format_percent),
                    state,
                    change or MISSING,
                )
            )
        columns = build_columns(headings, {*headings[1:]} - {"State"}, drawn=headings[-1:])
        notes = (messages.note_chunk_choice(is_better=self.row.is_better),)
        return Table(columns, tuple(rows), notes=notes if self.is_advised else ())

    def document(self) -> dict[str, object]:
        """Convert to JSON, without the rows."""
        return {
            "chosen": self.row.name,
            "decided": self.decided,
            "chunked_model": self.chunked_model,
            "sentences": self.sentences,
        }


def _find_best(rows: Sequence[ChunkRow]) -> ChunkRow:
    return max(rows, key=lambda row: row.ndcg_at_10.value)


def advise_chunks(rows: Sequence[ChunkRow], model: str) -> ChunkComparison:
    """Choose the fewest vectors that are better than whole texts in nDCG@10, or else of the best
    and what is equivalent to it.

    Queries in a text's own words favor small chunks, so that the best are often the smallest that
    were tried.
    """
    best = _find_best(rows)
    changes = {row: _compare(best, row) for row in rows if row is not best}
    better = [row for row in rows if row.is_better]
    equivalent = [row for row in changes if changes[row].state is ChangeState.EQUIVALENT]
    chosen = min(better or [best, *equivalent], key=lambda row: row.vectors)
    cheaper = [
        row
        for row, change in changes.items()
        if change.state is ChangeState.INCONCLUSIVE and row.vectors < chosen.vectors
    ]
    cheapest = min(cheaper, key=lambda row: row.vectors, default=None)
    is_inconclusive = chosen.change and chosen.change.state is ChangeState.INCONCLUSIVE
    # Whether whole texts serve is then told by the change of the chosen row.
    is_told = cheapest is rows[0] and is_inconclusive
    return ChunkComparison(
        rows=tuple(rows),
        row=chosen,
        from_best=() if chosen is best else (changes[chosen],),
        doubts=(changes[cheapest],) if cheapest and not is_told else (),
        model=model,
    )
