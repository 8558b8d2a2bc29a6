"""Ways to split texts into chunks that an inspection compares, of so many tokens or of any
splitter, and what they cost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from posir_inspect.questions import WITHOUT_MODEL, QuestionSet, Wording
from posir_significance.analysis import GroupAnalysis, analyze
from posir_significance.changes import ChangeRow, Metric, compare_groups
from posir_significance.findings import ChangeState, Reason
from posir_significance.intervals import MeanEstimate
from posir_significance.messages import describe_change, format_difference, label_change
from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import pluralize
from posir_tasks.display.numbers import MISSING, format_count, format_estimate, format_percent
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.models.embeddings.encoding import EmbeddingMemory
from posir_tasks.search.chunked import Chunker, MaximumSearch, find_room, vectorize_chunks
from posir_tasks.text.chunks import Chunking, TextSplitter
from posir_tasks.text.rotations import VERSIONS
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
    """Return the sizes of chunks that the model reads in full, largest first; the largest that it
    does is one of them.

    The prompt for documents takes room, too. The window is what was measured, in tokens of a text;
    None for all.
    """
    room = min((limit for limit in (find_room(model, context), window) if limit), default=None)
    sizes = {size for size in SIZES if room is None or size <= room}
    return sorted(sizes if room is None else sizes | {min(room, max(SIZES))}, reverse=True)


@dataclass(frozen=True)
class ChunkCounts:
    """The chunks of some texts, counted."""

    tokens: int
    """Tokens to encode, at most as many of a chunk as the model reads; special tokens are not
    counted.
    """
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
        """Return the tokens of the chunks of a text of so many tokens; none if it has one, which is
        the text itself.
        """
        return (
            sum(end - start for start, end in Chunking(self.size).group(length))
            if length > self.size
            else 0
        )

    def count(self, questions: QuestionSet) -> ChunkCounts:
        """Count the tokens of the chunks of all texts."""
        return ChunkCounts(
            sum(self.estimate_tokens(length) or length for length in questions.tokens.values())
        )

    def build_search(self, model: EncoderProtocol, memory: EmbeddingMemory) -> MaximumSearch:
        """Return a search as `MODEL+chunks(SIZE)` searches."""
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
        """Return the tokens of a text, each of which is in one chunk."""
        return length

    def build_search(self, model: EncoderProtocol, memory: EmbeddingMemory) -> MaximumSearch:
        """Return a search as `MODEL+context_chunks(SIZE)` searches."""
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
        self._tokenizer, self._window, self._refuses = tokenizer, window, refuses
        self.chunker = splitter.name
        texts = list(sample.documents.values())
        known = dict(zip(texts, splitter.divide_all(texts), strict=True))
        self._divide = cache(lambda text: known.get(text) or splitter.divide(text))
        self._ratio = self.count(sample).tokens / max(sum(sample.tokens.values()), 1)

    def estimate_tokens(self, length: int) -> int:
        """Return about how many tokens the chunks of a text of so many tokens have."""
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
        """Return a search in the chunks."""
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
    """Tokens to encode for each text, in the order in which texts are drawn; special tokens are not
    counted.
    """

    whole: tuple[int, ...]
    """The text as far as the model reads it."""
    rotations: tuple[int, ...]
    """Its rotated versions, at most."""
    questions: tuple[int, ...]
    """Its questions in their rarest words and, if there are any, in other words, of which as many
    tokens are assumed.
    """
    verbatim: tuple[int, ...]
    chunks: tuple[int, ...]

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
        lengths = list(questions.tokens.values())
        rows = {name: row for row, name in enumerate(questions.documents)}
        asked = {wording: [0] * len(lengths) for wording in WITHOUT_MODEL}
        for wording, counts in asked.items():
            texts = [question.wordings[wording] for question in questions.questions]
            for question, tokens in zip(
                questions.questions, tokenizer.count_all(texts), strict=True
            ):
                counts[rows[question.document]] += tokens
        return cls(
            tuple(min(length, window or length) for length in lengths),
            tuple(_count_rotations(lengths, window, read_sample_size())),
            tuple(tokens * wordings for tokens in asked[Wording.RAREST_WORDS]),
            tuple(asked[Wording.VERBATIM]),
            tuple(
                sum(division.estimate_tokens(length) for division in divisions)
                for length in lengths
            ),
        )

    @property
    def total(self) -> int:
        """Tokens of everything."""
        return sum(
            map(sum, (self.whole, self.rotations, self.questions, self.verbatim, self.chunks))
        )

    def count_whole(self, texts: int) -> int:
        """Return the tokens of the first texts, of their versions and questions."""
        return sum(self.searched[:texts])

    @property
    def searched(self) -> list[int]:
        """Tokens of each text with its versions and questions."""
        return list(map(sum, zip(self.whole, self.rotations, self.questions, strict=True)))


def _count_rotations(lengths: Iterable[int], window: int | None, sample: int) -> Iterator[int]:
    """Yield the tokens of the rotated versions of each text, at most: of so many texts of each
    length bucket.
    """
    bounds = RelativePositions().token_bounds
    drawn = Counter[int]()
    for length in lengths:
        bucket = bisect_left(bounds, length)
        drawn[bucket] += 1
        read = min(length, window or length)
        # A text that is truncated also has an excerpt that is not, and versions of it.
        versions = VERSIONS - 1 + (VERSIONS if read < length else 0)
        yield versions * read if drawn[bucket] <= sample else 0


def count_fitting(costs: Sequence[int], budget: float) -> int:
    """Return how many of the first costs are together within a budget."""
    return sum(total <= budget for total in accumulate(costs))


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
    """The change from whole texts; None for these."""
    whole: str = "whole texts"
    """Name of what is searched without chunks: `whole texts`, or `whole excerpts` of long ones."""
    cost: float = 1.0
    """Vectors in multiples of those of whole texts."""

    @property
    def ndcg_at_10(self) -> MeanEstimate:
        """Mean over the questions."""
        assert self.group.ndcg is not None
        return self.group.ndcg

    @property
    def name(self) -> str:
        """The searched units, in words."""
        return self.chunker or (
            self.whole if self.size is None else f"chunks of {self.size} tokens"
        )

    def record(self) -> dict[str, object]:
        """Return its values by the names of the columns of an inspection; the change is at
        98.33%.
        """
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

    def describe_change(self) -> tuple[str, str]:
        """Return the state of the change from whole texts and the change, for cells."""
        if self.change is None:
            return "", MISSING
        return label_change(self.change), format_difference(self.change) or MISSING


def compare_divisions(
    searches: Sequence[ChunkSearch],
    wording: Wording,
    questions: QuestionSet,
    window: int | None,
    whole_name: str,
) -> tuple[ChunkRow, ...]:
    """Return whole texts, in which the first search is, and divisions into chunks, by the questions
    in one wording.
    """
    groups = [analyze(search.values[wording]).overall for search in searches]
    whole = ChunkCounts(sum(min(length, window or length) for length in questions.tokens.values()))
    rows = [ChunkRow(None, None, searches[0].vectors, whole, groups[0], None, whole_name)]
    for search, group in zip(searches[1:], groups[1:], strict=True):
        change = compare_groups(groups[0], group, paired=True)[Metric.NDCG_AT_10]
        if division := search.division:
            counts = division.count(questions)
            known = (
                division.size,
                division.chunker,
                search.vectors,
                counts,
                group,
                change,
                whole_name,
            )
            rows.append(ChunkRow(*known, search.vectors / rows[0].vectors))
    return tuple(rows)


@dataclass(frozen=True)
class ChunkComparison:
    """Ways to split the texts, compared by questions in one wording, and the one that is
    advised.
    """

    rows: tuple[ChunkRow, ...]
    row: ChunkRow
    answer: tuple[str, ...]
    """Sentences on what the chosen one gains and costs, also against the best, or that whole texts
    serve.
    """
    doubts: tuple[str, ...]
    """Sentences on others that may serve with fewer vectors."""
    model: str

    @property
    def sentences(self) -> tuple[str, ...]:
        """All sentences."""
        return (*self.answer, *self.doubts)

    @property
    def change(self) -> ChangeRow | None:
        """Change of nDCG@10 from whole texts to the chosen row; None for these."""
        return self.row.change

    @property
    def decided(self) -> bool:
        """Whether it can be said that it is better than whole texts, or that these serve."""
        return self.change is None or self.change.state is not ChangeState.INCONCLUSIVE

    @property
    def is_advised(self) -> bool:
        """Whether chunks are advised, which the answer is on."""
        return self.change is not None and self.decided

    @property
    def has_few_texts(self) -> bool:
        """Whether there are too few texts for any comparison."""
        return all(row.change.reason is Reason.FEW_DOCUMENTS for row in self.rows if row.change)

    @property
    def title(self) -> str:
        """The question that it answers."""
        return CHUNKERS if any(row.chunker for row in self.rows) else CHUNKS

    def advise(self, texts: str, vectors: float | None) -> str:
        """Return what to do, where chunks are advised, and below it what they cost in all texts,
        and reach on some.
        """
        cost = (
            f"about {vectors:,.0f} vectors a text"
            if vectors
            else f"{self.row.cost:.1f} times the vectors"
        )
        whole, value = (format_percent(of.ndcg_at_10.value) for of in (self.rows[0], self.row))
        rises = "rises" if self.change and self.change.state is ChangeState.BETTER else "changes"
        advice = (
            f"Search in {self.row.name}: nDCG@10 {rises} from {whole} to {value} on {texts}, with "
            f"{cost}"
        )
        if best := self.best:
            reached = format_percent(best.ndcg_at_10.value)
            advice += f"; {best.name} reach {reached}, with {self.count_times(best)}"
        return f"{advice}."

    @property
    def best(self) -> ChunkRow | None:
        """The row with the highest nDCG@10, if that is another one than the chosen, and better than
        whole texts, too.
        """
        best = max(self.rows, key=lambda row: row.ndcg_at_10.value)
        return (
            best
            if best is not self.row and best.change and best.change.state is ChangeState.BETTER
            else None
        )

    def count_times(self, row: ChunkRow) -> str:
        """Return how many vectors a row takes, in multiples of those of the chosen: `3.8 times the
        vectors`.
        """
        return f"{f'{row.vectors / self.row.vectors:.1f}'.removesuffix('.0')} times the vectors"

    @property
    def chunked_model(self) -> str | None:
        """The argument of `-m` that runs the model with the chosen size of chunks; None for whole
        texts or a splitter.
        """
        method = "context_chunks" if self.row.chunker else "chunks"
        return f"{self.model}+{method}({self.row.size})" if self.row.size and self.decided else None

    def describe_counts(self) -> Iterator[str]:
        """Yield which chunks are not read to their end, and which are not in their text."""
        kinds = {
            "cut": "are longer than the model reads",
            "lost": "are not in their text, and are encoded as they are",
        }
        for name, words in kinds.items():
            for row in self.rows:
                if count := getattr(row.counts, name):
                    yield f"{row.chunker}: {count:,} of {pluralize(row.vectors, 'chunk')} {words}."

    def tabulate(self) -> Table:
        """Return a line for whole texts and for each way to split them, and why one is advised."""
        has_tokens, rows = self.title == CHUNKERS, list[tuple[str, ...]]()
        for row in self.rows:
            name = f"{row.size:,} tokens" if row.size else row.name
            state, change = row.describe_change()
            tokens = [format_count(row.counts.tokens)] * has_tokens
            score = format_estimate(row.ndcg_at_10, format_percent)
            advised = "\n(fewest vectors)" * (row is self.row and self.is_advised)
            rows.append((name + advised, f"{row.cost:.1f}", *tokens, score, state, change))
        vectors = f"Vectors\na{'n excerpt' if self.rows[0].name.endswith('excerpts') else ' text'}"
        headings = (
            "Chunks",
            vectors,
            *["Tokens"] * has_tokens,
            "nDCG@10",
            "State",
            "Change from whole",
        )
        is_better = self.change and self.change.state is ChangeState.BETTER
        why = (
            "the fewest vectors of those that are better than whole"
            if is_better
            else "as good, for fewer vectors"
        )
        columns = build_columns(headings, {*headings[1:]} - {"State"}, drawn=headings[-1:])
        more = ""
        if best := self.best:
            added = format_percent(best.ndcg_at_10.value - self.row.ndcg_at_10.value)
            more = (
                f" {best.name[0].upper()}{best.name[1:]} add {added} points for "
                f"{self.count_times(best)}."
            )
        note = (
            f"Advised: {why}.{more} Chunks overlap by half; queries in a text's own words favor "
            "small ones."
        )
        return Table(columns, tuple(rows), notes=(note,) * self.is_advised)

    def document(self) -> dict[str, object]:
        """Return its answer, without the rows."""
        chosen = {"chosen": self.row.name, "decided": self.decided}
        return chosen | {"chunked_model": self.chunked_model, "sentences": self.sentences}


def advise_chunks(rows: Sequence[ChunkRow], model: str) -> ChunkComparison:
    """Choose the fewest vectors that are better than whole texts in nDCG@10, or else of the best
    and what is equivalent to it.

    Queries in a text's own words favor small chunks, so that the best are often the smallest that
    were tried.
    """
    best = max(rows, key=lambda row: row.ndcg_at_10.value)
    changes = {
        row: compare_groups(best.group, row.group, paired=True)[Metric.NDCG_AT_10]
        for row in rows
        if row is not best
    }
    states = {row: change.state for row, change in changes.items()}
    better = [row for row in rows if row.change and row.change.state is ChangeState.BETTER]
    equivalent = (row for row, state in states.items() if state is ChangeState.EQUIVALENT)
    chosen = min(better or (best, *equivalent), key=lambda row: row.vectors)
    fewer = [
        row
        for row, state in states.items()
        if state is ChangeState.INCONCLUSIVE and row.vectors < chosen.vectors
    ]

    def describe(change: ChangeRow, a: ChunkRow, b: ChunkRow) -> str:
        names = f"search in {a.name}", f"search in {b.name}"
        sentence = describe_change(change, *names)
        return sentence[0].upper() + sentence[1:]

    whole = chosen.change
    answer = [] if chosen is best else [describe(changes[chosen], best, chosen)]
    if whole:
        answer = [
            describe(whole, rows[0], chosen),
            f"It takes {chosen.cost:.1f} times as many vectors.",
            *answer,
        ]
    cheapest = min(fewer, key=lambda row: row.vectors, default=None)
    said = cheapest is rows[0] and whole and whole.state is ChangeState.INCONCLUSIVE
    doubts = (describe(changes[cheapest], best, cheapest),) if cheapest and not said else ()
    none = f"No chunks find more than {rows[0].name}."
    return ChunkComparison(tuple(rows), chosen, tuple(answer or [none]), doubts, model)
