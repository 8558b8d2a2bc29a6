"""Inspection of a model on a user's texts: how far it reads, where evidence fades, which chunk size serves them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from mteb.models import EncoderProtocol
from mteb.types import EncodeKwargs, PromptType

from posir_data.texts import TextCollection
from posir_inspect.budget import (
    EXCERPTS,
    FIRST_TEXTS,
    MAX_PASSES,
    MIN_SEARCHED,
    WHOLE_SHARE,
    Costs,
    WorkEstimate,
    cut_excerpts,
    fit,
)
from posir_inspect.chunk_sizes import WholeTextSearch, choose_sizes
from posir_inspect.divisions import ChunkCounts, Division, SplitterDivision, TokenDivision
from posir_inspect.other_words import QuestionWriter
from posir_inspect.paired_differences import compare_pairs, judge_pairs
from posir_inspect.pseudo_questions import WITHOUT_MODEL, QuestionSet, Wording, ask_questions
from posir_inspect.question_task import PseudoQuestionTask, build_question_task
from posir_inspect.shared_words import WordBaseline, measure_unread_baseline, measure_word_baseline
from posir_inspect.verdicts import (
    MIN_TEXTS,
    SMALL,
    ChunkVerdict,
    Floats,
    InspectionVerdict,
    bootstrap_means,
    judge_fading,
    judge_sizes,
    name_size,
    percentile_interval,
)
from posir_inspect.window import WindowReading, identify, measure_window
from posir_report.summary import ReportRow, TaskSummary, build_bin_rows, build_rows
from posir_significance.verdict import Verdict
from posir_tasks.display.progress import track
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.embeddings.context import EncodingContext
from posir_tasks.embeddings.encoding import EmbeddingMemory, ModelEncoder
from posir_tasks.errors import PosirError
from posir_tasks.estimates import Estimate
from posir_tasks.models.reading_length import ReadingLength
from posir_tasks.models.references import portable_name
from posir_tasks.plugin_api.scoring import score_result
from posir_tasks.profile import NDCG_AT_10, PositionProfile
from posir_tasks.result_schema import COVERAGE_KEY, PROFILE_KEY, RANKS_KEY
from posir_tasks.scores import ResultValues
from posir_tasks.search.maximum_search import MaximumSearch
from posir_tasks.sources.formats.passages import SkippedText
from posir_tasks.tasks.metadata import SPLIT
from posir_tasks.text.splitters import TextSplitter
from posir_tasks.text.tokenizer import EstimatedTokenizer, ModelTokenizer, Tokenizer
from posir_tasks.text.words import count_words
from posir_tasks.window_coverage import WindowCoverage

#: Texts whose encoding is timed.
TIMED_TEXTS = 16


@dataclass(frozen=True)
class UnreadShare:
    """The share of the texts that a model never reads."""

    share: Estimate
    """Share of all tokens, words or characters of the texts, in [0, 1]; its interval is by bootstrap over texts."""
    texts_cut: int
    """Texts that are not read to their end."""


@dataclass(frozen=True)
class Scores:
    """Scores of pseudo-questions about texts of any length, or of one length bucket; None where not defined."""

    questions: int | None
    ndcg_at_10: Estimate | None
    """Mean with its 95 % interval, which is not corrected."""
    start_to_end: Estimate | None
    """nDCG@10 of the first third of the texts minus that of the last."""
    psi: Estimate | None
    psi_as_published: float | None
    """PSI of the observed bins, to which chance adds."""
    psi_null: Estimate | None
    """PSI under the null hypothesis that position has no effect."""
    p_value: float | None
    p_corrected: float | None
    """Corrected for the lengths."""
    bias: Verdict | None
    """Verdict as in `posir report`."""

    @classmethod
    def from_row(cls, row: ReportRow) -> Scores:
        """Return the scores of a row of a report."""
        return cls(
            questions=row.queries,
            ndcg_at_10=row.ndcg_at_10,
            start_to_end=row.start_to_end,
            psi=row.psi,
            psi_as_published=row.psi_as_published,
            psi_null=row.psi_null,
            p_value=row.p_value,
            p_corrected=row.p_corrected,
            bias=row.verdict,
        )


@dataclass(frozen=True)
class Fading:
    """nDCG@10 of pseudo-questions in one wording by the position of their sentence."""

    wording: Wording
    scores: Scores
    by_length: Mapping[str, Scores]
    """Scores by the title of the length bucket."""
    by_position: tuple[Estimate | None, ...]
    """nDCG@10 in every tenth of the texts."""
    within: float | None
    """nDCG@10 of the questions about sentences that the model reads; None if there are none, or it is unknown."""
    beyond: float | None
    """nDCG@10 of the questions about sentences that it does not read."""
    questions_beyond: int | None
    beyond_baseline: WordBaseline | None
    """nDCG@10 of the latter without the model; None if there are none."""
    verdict: InspectionVerdict
    beyond_by_position: tuple[float, ...] = ()
    """Share of the sentences in every tenth of the texts that end beyond what the model reads, in [0, 1]."""
    start_to_end_within: Estimate | None = None
    """nDCG@10 of the first third minus that of the last, of the sentences that the model reads."""
    p_value_within: float | None = None
    """P-value of the effect of position on these; None if it was not tested."""


@dataclass(frozen=True)
class ChunkRow:
    """A chunk size, and how well questions in one wording find their text by its best chunk."""

    size: int | None
    """Tokens; None for whole texts and the chunks of a splitter."""
    chunker: str | None
    """Name of the splitter; None if there is none."""
    vectors: int
    counts: ChunkCounts
    ndcg_at_10: Estimate
    start_to_end: Estimate | None
    gain: Estimate
    """Against whole texts, in nDCG@10."""


@dataclass(frozen=True)
class ChunkComparison:
    """Chunk sizes compared by questions in one wording."""

    rows: tuple[ChunkRow, ...]
    verdict: ChunkVerdict
    chunked_model: str | None
    """The argument of `-m` that runs the model with the chosen size of chunks; None for whole texts."""


@dataclass(frozen=True)
class OtherWords:
    """The questions in other words, and which chunk size they advise."""

    writer: str
    """Name of the model that wrote them."""
    by_itself: bool
    """Whether this is the inspected model."""
    questions: int
    """Questions about whole texts."""
    unwritten: int
    """Sentences that have a question in their rarest words and none in other words."""
    words_alone: WordBaseline | None
    """nDCG@10 of BM25 in whole texts; None if there are no questions."""
    chunks: ChunkComparison | None = None
    """None if it is not known yet, or there are no questions."""


@dataclass(frozen=True)
class ModelInspection:
    """All that is found out."""

    model: str
    revision: str | None
    source: str
    texts: int
    texts_found: int
    languages: Mapping[str, int]
    """Texts of each language, the most frequent first."""
    median_tokens: float
    tokens_estimated: bool
    """Whether tokens are estimated, one per four bytes, because the tokenizer is unknown."""
    skipped: tuple[SkippedText, ...]
    window: WindowReading
    unread: UnreadShare
    work: WorkEstimate | None = None
    """Tokens and time of the rest; None if it is not known yet."""
    encoded_tokens: int | None = None
    """Tokens that were encoded after the reading length was known; None as long as there is more to encode."""
    fading: tuple[Fading, ...] | None = None
    """None if it is not known yet."""
    fading_texts: int = 0
    """Texts that the questions were about, among which they were searched."""
    chunks: tuple[ChunkRow, ...] = ()
    chunk_verdict: ChunkVerdict | None = None
    """None if it is not known yet, or there are no questions."""
    chunk_texts: int = 0
    """Texts in which chunk sizes were compared."""
    excerpt_tokens: int | None = None
    """Longest excerpt of these texts in tokens; None if they are whole."""
    chunked_model: str | None = None
    """The argument of `-m` that runs the model with the chosen size of chunks; None for whole texts."""
    other_words: OtherWords | None = None
    """None without a model that writes questions in other words, or if they are not written yet."""


@dataclass(frozen=True)
class Setup:
    """The texts that are inspected, and the model that reads them."""

    encoder: ModelEncoder
    tokenizer: ModelTokenizer | None
    collection: TextCollection
    budget: int | None
    """Most tokens that are encoded; None for everything."""
    splitters: tuple[TextSplitter, ...] = ()
    """Compared in place of sizes of chunks, if there are any."""
    writer: QuestionWriter | None = None
    """Writes questions in other words."""

    @property
    def model(self) -> EncoderProtocol:
        """The model."""
        return self.encoder.model

    @property
    def texts(self) -> list[str]:
        """The texts."""
        return [text.text for text in self.collection.texts]

    @property
    def counter(self) -> Tokenizer:
        """The model's tokenizer, or an estimate."""
        return self.tokenizer or EstimatedTokenizer()


@dataclass(frozen=True)
class ChunkSearch:
    """The scores of whole texts, or of a division into chunks, by wording, as a position task has them."""

    division: Division | None
    """None for whole texts."""
    vectors: int
    """Chunks of all texts, each of which is a vector in an index."""
    scores: Mapping[Wording, Mapping[str, Any]]
    tasks: Mapping[Wording, PseudoQuestionTask]

    @property
    def name(self) -> str:
        """Name of the division in sentences."""
        return (self.division.chunker if self.division else None) or name_size(self.division.size if self.division else None)

    def ranks(self, wording: Wording) -> DocumentRanks:
        """Return the ranks by document."""
        scores = self.scores[wording]
        return DocumentRanks.from_json(scores[RANKS_KEY], PositionProfile.from_json(scores[PROFILE_KEY]).axes)


def inspect_model(
    setup: Setup, output_folder: Path | None = None, show: Callable[[ModelInspection], object] = lambda _: None
) -> ModelInspection:
    """Inspect a model on texts.

    Args:
        setup: Model and texts.
        output_folder: Where to save the result for whole texts, as `mteb run` does; None to save nothing.
        show: Called with what is known when there is a further answer.

    Raises:
        PosirError: The model cannot encode the texts, or refuses some of them for their length.
    """
    collection = setup.collection
    # Without tokenizer, the length is known in words, which are longer or shorter in other texts.
    window = measure_window(setup.encoder, setup.tokenizer, () if setup.tokenizer else setup.texts)
    unread = measure_unread(setup.texts, window.reading, setup.tokenizer)
    if window.reading.refusal and unread.texts_cut:
        raise PosirError(
            f"{setup.model.mteb_model_meta.name}: {window.sentence} {unread.texts_cut:,} of {len(setup.texts):,} texts are "
            f"longer ({window.reading.refusal}). Let the model or its server truncate them, or divide them."
        )
    tokens = setup.counter.count_all(setup.texts)
    known = ModelInspection(
        *identify(setup.model),
        source=collection.name,
        texts=len(tokens),
        texts_found=collection.total,
        languages=collection.languages,
        median_tokens=float(np.median(tokens)),
        tokens_estimated=setup.tokenizer is None,
        skipped=collection.skipped,
        window=window,
        unread=unread,
    )
    show(known)
    run = InspectionRun(setup, ask_questions(collection, tokens), window.reading)
    if not run.questions.questions:
        return replace(known, fading=())
    run.require_budget()
    known = replace(known, work=run.estimate_work())
    show(known)
    known = replace(known, **run.search_whole(output_folder))
    show(known)
    known = replace(known, **run.search_chunks(known.fading_texts, known.other_words), encoded_tokens=run.count_encoded())
    show(known)
    return known


class InspectionRun:
    """The searches of an inspection; together they encode each distinct text once."""

    def __init__(self, setup: Setup, questions: QuestionSet, reading: ReadingLength) -> None:
        self.setup, self.questions, self.window = setup, questions, find_window(reading)
        self.memory = EmbeddingMemory()
        self.options = cast("EncodeKwargs", setup.encoder.context.encode_kwargs)
        self.splitters = [self._try_splitter(splitter, reading) for splitter in setup.splitters]
        self.divisions = self._choose_divisions(max(questions.tokens.values()))
        self.costs = self._count_costs(questions, self.divisions)
        self.least_chunks = self._find_excerpts(EXCERPTS[-1], MIN_SEARCHED)[1]
        limit = max(int(MAX_PASSES * sum(questions.tokens.values())), self.least)
        self.budget = self.costs.total if setup.budget is None else min(setup.budget, limit)
        self.wordings = list(WITHOUT_MODEL) if setup.budget is None else [Wording.RAREST_WORDS]

    def _count_costs(self, questions: QuestionSet, divisions: Sequence[Division]) -> Costs:
        in_other_words = self.setup.writer is not None
        return Costs.count(questions, divisions, self.window, self.setup.counter, in_other_words=in_other_words)

    def _choose_divisions(self, longest: int) -> Sequence[Division]:
        """Return the splitters, or else the sizes of chunks that divide a text of so many tokens."""
        sizes = choose_sizes(self.setup.model, self.setup.encoder.context)
        return self.splitters or [TokenDivision(size) for size in sizes if size < longest]

    def _try_splitter(self, splitter: TextSplitter, reading: ReadingLength) -> SplitterDivision:
        first = self.questions.first(FIRST_TEXTS)
        sample = {first.documents[name]: tokens for name, tokens in first.tokens.items()}
        return SplitterDivision.from_sample(splitter, sample, self.setup.counter, self.window, refuses=bool(reading.refusal))

    @property
    def least(self) -> int:
        """Fewest tokens to encode: a search in two whole texts, and in the chunks of short excerpts of them."""
        return min(self.costs.count_whole(MIN_SEARCHED) + sum(self.least_chunks), self.costs.total)

    @property
    def most_texts(self) -> int:
        """Most texts that are searched as a whole; what is left of the budget is enough for some chunks."""
        if self.setup.budget is None:
            return len(self.questions.documents)
        return self.costs.fit_whole(min(WHOLE_SHARE * self.budget, self.budget - sum(self.least_chunks)))

    def require_budget(self) -> None:
        """Raise PosirError if the budget is less than the least work."""
        if self.setup.budget is not None and self.setup.budget < self.least:
            raise PosirError(
                f"A budget of {self.setup.budget:,} tokens is too small: at least {self.least:,} are needed for {MIN_SEARCHED} "
                "of these texts, whole and in chunks. Raise it with --budget, or encode everything with --all."
            )

    def count_encoded(self) -> int:
        """Return the tokens of all texts, questions and chunks that were encoded, as far as the model reads them."""
        lengths = self.setup.counter.count_all(self.memory.known_texts)
        return sum(min(length, self.window or length) for length in lengths)

    def estimate_work(self) -> WorkEstimate:
        """Estimate the time from that of the first texts, whose embeddings are needed anyway."""
        texts = list(self.questions.documents.values())[: min(TIMED_TEXTS, self.most_texts)]
        task = self._build_task(self.questions.first(1), Wording.RAREST_WORDS)
        encoder = ModelEncoder(self.setup.model, self._context(task), self.memory)
        started = time.perf_counter()
        encoder(texts, PromptType.document)
        speed = sum(self.costs.whole[: len(texts)]) / max(time.perf_counter() - started, 1e-6)
        planned = min(self.budget, self.costs.total)
        return WorkEstimate(planned, planned / speed, self.costs.total, self.costs.total / speed)

    def search_whole(self, output_folder: Path | None) -> dict[str, Any]:
        """Search in whole texts, more and more of them until the interval is narrow or the budget is used."""
        most = self.most_texts
        texts = most if self.setup.budget is None else min(FIRST_TEXTS, most)
        model = WholeTextSearch(self.setup.model, self.window, self.memory)
        with track("Searching whole texts") as advance:
            while True:
                search = self._search(None, model, self.questions.first(texts), self.wordings)
                advance()
                if texts == most or is_narrow(search):
                    break
                texts = min(2 * texts, most)
        searches = dict.fromkeys(self.wordings, search)
        other_words = None
        if self.setup.writer:
            other_words, written = self._ask_in_other_words(self.setup.writer, model, texts)
            searches |= {Wording.OTHER_WORDS: written} if written else {}
        if output_folder is not None:
            tasks = [search.tasks[wording] for wording, search in searches.items()]
            save_results(model, tasks, self.options, output_folder)
        # Questions in their rarest words last: verdicts are by them.
        order = [wording for wording in (Wording.VERBATIM, Wording.OTHER_WORDS, Wording.RAREST_WORDS) if wording in searches]
        fading = tuple(summarize_fading(searches[wording], wording, texts, self.window) for wording in order)
        return {"fading": fading, "fading_texts": texts, "other_words": other_words}

    def _ask_in_other_words(
        self, writer: QuestionWriter, model: WholeTextSearch, texts: int
    ) -> tuple[OtherWords, ChunkSearch | None]:
        """Search with questions in other words about the first texts; None if there are none."""
        questions = self.questions.first(texts).write_in_other_words(writer)
        asked = len(questions.asked_in(Wording.OTHER_WORDS))
        search = self._search(None, model, questions, [Wording.OTHER_WORDS]) if asked else None
        baseline = measure_word_baseline(search.tasks[Wording.OTHER_WORDS]) if search else None
        by_itself = writer.name == self.setup.model.mteb_model_meta.name
        return OtherWords(writer.name, by_itself, asked, len(questions.questions) - asked, baseline), search

    def search_chunks(self, texts: int, other_words: OtherWords | None = None) -> dict[str, Any]:
        """Search in whole texts and chunks of the same texts, or of excerpts of them if the texts are too long."""
        questions, divisions, excerpt = self.questions.first(texts), self.divisions, None
        if self.setup.budget is not None:
            left = self.budget - self.costs.count_whole(texts)
            fitting = fit(self.costs.chunks[:texts], left)
            if fitting >= min(texts, MIN_TEXTS):
                questions = questions.first(fitting)
            else:
                questions, excerpt = self._cut(texts, left)
                divisions = self._choose_divisions(min(excerpt, max(questions.tokens.values())))
        wordings = [Wording.RAREST_WORDS]
        if self.setup.writer and other_words and other_words.questions:
            questions = questions.write_in_other_words(self.setup.writer)
            wordings += [Wording.OTHER_WORDS] if questions.asked_in(Wording.OTHER_WORDS) else []
        whole = WholeTextSearch(self.setup.model, self.window, self.memory)
        searches = []
        with track("Searching chunks", 1 + len(divisions)) as advance:
            for division in (None, *divisions):
                model = division.build_search(self.setup.model, self.memory) if division else whole
                searches.append(self._search(division, model, questions, wordings))
                advance()
        rarest, *others = (self._compare(searches, questions, wording) for wording in wordings)
        return {
            "chunks": rarest.rows,
            "chunk_verdict": rarest.verdict,
            "chunk_texts": len(questions.documents),
            "excerpt_tokens": excerpt,
            "chunked_model": rarest.chunked_model,
            "other_words": replace(other_words, chunks=others[0]) if other_words and others else other_words,
        }

    def _compare(self, searches: Sequence[ChunkSearch], questions: QuestionSet, wording: Wording) -> ChunkComparison:
        """Compare whole texts and chunks by the questions in one wording."""
        rows = compare_divisions(searches, questions, self.window, wording)
        judge = judge_splitters if self.splitters else judge_token_sizes
        verdict = judge(searches, len(questions.documents), wording)
        name = f"{portable_name(self.setup.model.mteb_model_meta)}+chunks({verdict.size})" if verdict.size else None
        return ChunkComparison(rows, verdict, name)

    def _cut(self, texts: int, budget: float) -> tuple[QuestionSet, int]:
        """Return excerpts of enough texts to compare, as long as the budget allows, with their own questions and length."""
        wanted = min(texts, MIN_TEXTS)
        for length in EXCERPTS:
            questions, costs = self._find_excerpts(length, wanted)
            fitting = fit(costs, budget)
            if fitting == wanted:
                break
        if fitting < MIN_SEARCHED:
            # The questions about excerpts of fewer texts may be shorter; a budget that is not refused is enough for them.
            return self._find_excerpts(length, MIN_SEARCHED)[0], length
        return questions.first(fitting), length

    def _find_excerpts(self, length: int, texts: int) -> tuple[QuestionSet, list[int]]:
        """Return excerpts of the first texts with their questions, and the tokens to encode for each."""
        collection = cut_excerpts(self.setup.collection, self.setup.counter, length, texts)
        questions = ask_questions(collection, self.setup.counter.count_all([text.text for text in collection.texts]))
        divisions = self._choose_divisions(min(length, max(questions.tokens.values())))
        costs = self._count_costs(questions, divisions)
        return questions, list(map(sum, zip(costs.whole, costs.questions, costs.chunks, strict=True)))

    def _search(
        self, division: Division | None, model: MaximumSearch, questions: QuestionSet, wordings: Sequence[Wording]
    ) -> ChunkSearch:
        tasks = {wording: self._build_task(questions, wording) for wording in wordings}
        scores = {wording: evaluate(task, model, self.options) for wording, task in tasks.items()}
        return ChunkSearch(division, model.document_vectors, scores, tasks)

    def _build_task(self, questions: QuestionSet, wording: Wording) -> PseudoQuestionTask:
        return build_question_task(self.setup.collection.name, self.setup.collection.language, questions, wording)

    def _context(self, task: PseudoQuestionTask) -> EncodingContext:
        return EncodingContext(task.metadata, SPLIT, "default", self.options)


def is_narrow(search: ChunkSearch) -> bool:
    """Return whether the difference from start to end is known to `SMALL` either way.

    The width alone decides when to stop, so that intervals keep their coverage although they are looked at several times
    (Chow & Robbins 1965, Annals of Mathematical Statistics 36, on fixed-width intervals).
    """
    row = build_rows(read_summary(search.scores[Wording.RAREST_WORDS], Wording.RAREST_WORDS))[0].start_to_end
    return row is not None and row.interval is not None and row.interval[1] - row.interval[0] <= 2 * SMALL


def measure_unread(texts: Sequence[str], reading: ReadingLength, tokenizer: ModelTokenizer | None) -> UnreadShare:
    """Return the share of the texts beyond the reading length, in its unit."""
    counters: dict[str, Callable[[str], int]] = {"words": count_words, "characters": len}
    count = tokenizer.count if tokenizer and reading.unit == "tokens" else counters[reading.unit]
    lengths = np.array([count(text.strip()) for text in texts], np.float64)
    unread = np.zeros(len(texts)) if reading.complete else np.maximum(0.0, lengths - reading.bounds.high)
    draws = bootstrap_means([unread, lengths], np.arange(len(texts)))
    interval = percentile_interval(draws[:, 0] / draws[:, 1])
    return UnreadShare(Estimate(float(unread.sum() / lengths.sum()), interval), int((unread > 0).sum()))


def find_window(reading: ReadingLength) -> int | None:
    """Return the tokens of a text that the model reads; None if it reads every text to its end."""
    return None if reading.complete else (reading.tokens or reading.estimated_tokens).high


def evaluate(task: PseudoQuestionTask, model: MaximumSearch, options: EncodeKwargs) -> Mapping[str, Any]:
    """Return the scores of a search, as in a result file."""
    task.load_data()
    (scores,) = task.evaluate(model, SPLIT, encode_kwargs=options).values()
    return scores


def save_results(model: MaximumSearch, tasks: Sequence[PseudoQuestionTask], options: EncodeKwargs, folder: Path) -> None:
    """Evaluate tasks on whole texts and save the results as `mteb run` does, for `posir report`."""
    import mteb

    cache = mteb.ResultCache(folder)
    mteb.evaluate(model, tasks, cache=cache, overwrite_strategy="always", encode_kwargs=options, show_progress_bar=False)


def summarize_fading(search: ChunkSearch, wording: Wording, texts: int, window: int | None) -> Fading:
    """Return what the search of whole texts, of which a model reads so many tokens, says of one wording."""
    summary = read_summary(search.scores[wording], wording)
    profile, rows = summary.profile, build_rows(summary)
    within, beyond, questions_beyond = _split_by_window(rows[0], profile)
    return Fading(
        wording=wording,
        scores=Scores.from_row(rows[0]),
        by_length={
            title: Scores.from_row(row) for title, row in zip(profile.axes.length_titles, rows[1:], strict=False) if row.queries
        },
        by_position=tuple(row.ndcg_at_10 for row in build_bin_rows(summary)),
        within=within,
        beyond=beyond,
        questions_beyond=questions_beyond,
        beyond_baseline=measure_unread_baseline(search.tasks[wording], window) if window else None,
        verdict=judge_fading(rows, texts, len(profile.positions)),
        beyond_by_position=_share_beyond(summary.values),
        start_to_end_within=rows[0].start_to_end_within_window,
        p_value_within=rows[0].p_value_within_window,
    )


def _share_beyond(values: ResultValues) -> tuple[float, ...]:
    """Return the share of the evidence of each position bin that ends beyond the window; 0 where there is none."""
    total = values.profile.counts.sum(axis=(0, 2))
    within = values.coverage.within_window.counts.sum(axis=(0, 2)) if values.coverage else total
    return tuple((1 - within / np.maximum(total, 1)).clip(0, 1).tolist()) if total.any() else ()


def read_summary(scores: Mapping[str, Any], task: str) -> TaskSummary:
    """Return what a report of an evaluation shows."""
    axes = PositionProfile.from_json(scores[PROFILE_KEY]).axes
    ranks = DocumentRanks.from_json(scores[RANKS_KEY], axes)
    values = ResultValues(ranks, WindowCoverage.from_json(scores[COVERAGE_KEY]))
    return TaskSummary("", "", task, (), (), "", values, score_result(values))


def _split_by_window(row: ReportRow, profile: PositionProfile) -> tuple[float | None, float | None, int | None]:
    """Return nDCG@10 of the questions within and beyond the reading length, and the number of the latter."""
    queries, score = row.get("queries_within_window", int), row.estimate("ndcg_at_10_within_window")
    if queries is None:
        return None, None, None
    beyond = profile.queries - queries
    gain = profile.score() * profile.queries - (score.value if score else 0.0) * queries
    return score.value if score else None, gain / beyond if beyond else None, beyond


def compare_divisions(
    searches: Sequence[ChunkSearch], questions: QuestionSet, window: int | None, wording: Wording
) -> tuple[ChunkRow, ...]:
    """Compare whole texts, of which a model reads so many tokens, with divisions into chunks.

    Questions are paired; documents are drawn by bootstrap.
    """
    draws, means = _draw_means(searches, wording)
    whole = ChunkCounts(sum(min(length, window or length) for length in questions.tokens.values()))
    rows = []
    for number, search in enumerate(searches):
        overall = build_rows(read_summary(search.scores[wording], wording))[0].start_to_end
        division = search.division
        rows.append(
            ChunkRow(
                size=division.size if division else None,
                chunker=division.chunker if division else None,
                vectors=search.vectors,
                counts=division.count(questions) if division else whole,
                ndcg_at_10=Estimate(float(means[number]), percentile_interval(draws[:, number])),
                start_to_end=overall,
                gain=Estimate(float(means[number] - means[0]), percentile_interval(draws[:, number] - draws[:, 0])),
            )
        )
    return tuple(rows)


def judge_token_sizes(searches: Sequence[ChunkSearch], texts: int, wording: Wording) -> ChunkVerdict:
    """Choose a size of chunks."""
    draws, means = _draw_means(searches, wording)
    vectors = {search.division.size if search.division else None: search.vectors for search in searches}
    return judge_sizes(means, draws, vectors, texts)


def judge_splitters(searches: Sequence[ChunkSearch], texts: int, wording: Wording) -> ChunkVerdict:
    """Say which splitter is best, or whether whole texts are."""
    gains = dict(zip((search.name for search in searches), _list_gains(searches, wording), strict=True))
    pairs = compare_pairs(gains, searches[0].ranks(wording).columns.documents)
    verdict = judge_pairs(gains, pairs, texts, "nDCG@10", "texts")
    return ChunkVerdict(verdict.finding, verdict.sentence, verdict.texts_needed)


def _draw_means(searches: Sequence[ChunkSearch], wording: Wording) -> tuple[Floats, Floats]:
    """Return nDCG@10 of each search in bootstrap samples of documents, shape (draws, S), and in all, shape (S,)."""
    gains = _list_gains(searches, wording)
    documents = searches[0].ranks(wording).columns.documents
    return bootstrap_means(gains, documents), np.array([gain.mean() for gain in gains])


def _list_gains(searches: Sequence[ChunkSearch], wording: Wording) -> list[Floats]:
    return [NDCG_AT_10[search.ranks(wording).columns.ranks] for search in searches]
