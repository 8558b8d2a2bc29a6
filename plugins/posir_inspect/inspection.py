"""Inspection of a model on a user's texts: its window, nDCG@10 by position, and chunk sizes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

import mteb
import numpy as np
from mteb.models.model_meta import ScoringFunction
from mteb.types import EncodeKwargs, PromptType

from posir_data.texts import CollectedText, TextCollection
from posir_inspect import splitting
from posir_inspect.model_window import describe_model, measure_unread
from posir_inspect.questions import (
    MODEL_FREE_WORDINGS,
    PseudoQuestionTask,
    QuestionSet,
    Wording,
    build_question_task,
    cut_excerpts,
    generate_questions,
    measure_unread_baseline,
    measure_word_baseline,
)
from posir_inspect.sections import (
    Inspection,
    OtherWords,
    PositionScores,
    WorkEstimate,
    complete_inspection,
)
from posir_inspect.snippets import TOKENIZER_FREE, SnippetKind, check_tokenizer, write_snippet
from posir_inspect.window import measure_window
from posir_significance.analysis import analyze
from posir_significance.decision import decide_result
from posir_tasks.base.arrays import Integers
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import format_seconds, log_progress, track
from posir_tasks.language_models.other_words import QuestionWriter
from posir_tasks.models.command_reference import NO_REFERENCE, CommandReference
from posir_tasks.models.embeddings.context import EncodingContext
from posir_tasks.models.embeddings.encoding import EmbeddingMemory, ModelEncoder
from posir_tasks.models.endpoint_models import EndpointEncoder
from posir_tasks.models.reading_length import ReadingLength
from posir_tasks.models.references import get_portable_reference
from posir_tasks.models.run_settings import override_settings
from posir_tasks.search.chunked import DocumentVectors, MaximumSearch
from posir_tasks.text.chunks import Chunking, TextSplitter
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.tokenizer import EstimatedTokenizer, ModelTokenizer, Tokenizer, find_tokenizer
from posir_tasks.values.evidence import TWELFTHS
from posir_tasks.values.read_part import Part, ReadPart
from posir_tasks.values.result_schema import INDEX_KEY, RUN_KEY, SPLIT
from posir_tasks.values.scores import ALL, ResultValues

#: Number of texts to encode for the time estimate.
TIMED_TEXTS = 16
#: Initial number of texts in a search, usually enough for a verdict. Chunks are compared on at
#: least as many texts or excerpts, if the budget allows.
INITIAL_TEXTS = 50
#: Maximum number of tokens to encode within a budget, relative to the number in all texts.
MAX_PASSES = 6.0
#: Share of the budget for searching whole texts. The rest is for chunks.
WHOLE_TEXT_SHARE = 0.5
#: Minimum number of texts in a search.
MIN_SEARCH_TEXTS = 2
#: Excerpt lengths in tokens, tried in this order if chunks of whole texts exceed the budget.
EXCERPT_LENGTHS = (2048, 1024, 512)
#: A prose sentence of 42 to 140 characters, without code, Markdown or table syntax.
PROSE_SENTENCE = re.compile(r"(?![a-z])\w[^|{}<>=#_*`\[\]\\\":;.]{40,138}[.!?\u3002\uff01\uff1f]")


@dataclass(frozen=True)
class InspectionInput:
    """The model, the texts to inspect and the options."""

    encoder: ModelEncoder
    tokenizer: ModelTokenizer | None
    collection: TextCollection
    budget: int | None
    """Maximum number of tokens to encode; None for no limit."""
    splitters: Sequence[TextSplitter] = ()
    """Splitters to compare. If empty, chunk sizes are compared."""
    writer: QuestionWriter | None = None
    reference: CommandReference = NO_REFERENCE
    """Command arguments for the model, texts and settings."""
    snippet: SnippetKind | None = None
    """Library to write code for."""

    @property
    def texts(self) -> list[str]:
        """The texts, in random order."""
        return [text.text for text in self.collection.texts]

    @property
    def token_counter(self) -> Tokenizer:
        """The model's tokenizer or, if unknown, an estimate of four bytes per token."""
        return self.tokenizer or EstimatedTokenizer()


def inspect_model(
    request: InspectionInput,
    output_folder: Path | None = None,
    show: Callable[[Inspection], object] = lambda _: None,
    *,
    full: bool = False,
) -> Inspection:
    """Inspect a model on texts.

    Args:
        request: The model, the texts and the options.
        output_folder: Folder for the results on whole texts, as in `mteb run`.
        show: Called with the partial inspection after each stage.
        full: Also show observed differences and the published PSI.

    Raises:
        PosirError: The budget is too small, or some texts are longer than the model accepts.
    """
    collection = request.collection
    model = request.encoder.model
    tokenizer = find_tokenizer(model)
    if request.snippet:
        check_tokenizer(request.snippet, str(model.mteb_model_meta.name), tokenizer)
    tokens = request.token_counter.count_all(request.texts)
    inspection = _measure_model(request, tokens, full=full)
    show(complete_inspection(inspection))
    questions = generate_questions(collection, tokens)
    if not questions.questions:
        return complete_inspection(replace(inspection, fading=()))
    run = InspectionRun(request, questions, inspection.window.reading)
    if request.budget is not None and request.budget < run.min_tokens:
        raise PosirError(
            f"A budget of {request.budget:,} tokens is too small: at least {run.min_tokens:,} are "
            f"needed to search {MIN_SEARCH_TEXTS} of these texts, whole and in chunks. Give a "
            "larger --budget, or encode everything with --all-texts."
        )
    work = run.estimate_work()
    log_progress(
        f"Up to about {format_seconds(work.seconds)} left: {work.tokens:,} tokens to encode "
        f"(--budget). All {work.all_tokens:,} tokens would take {format_seconds(work.all_seconds)} "
        "(--all-texts)."
    )
    inspection = run.search_whole_texts(replace(inspection, work=work), output_folder)
    show(complete_inspection(inspection))
    inspection = run.search_chunks(inspection)
    counts = request.token_counter.count_all(run.memory.cached_texts)
    # Truncated tokens are not encoded.
    encoded_tokens = sum(min(count, run.window or count) for count in counts)
    chunks = inspection.chunks
    assert chunks is not None
    vectors_per_text = None
    if chunks.is_recommended and chunks.selection.size and not chunks.selection.chunker:
        chunking = Chunking(chunks.selection.size)
        vectors_per_text = float(np.mean([len(chunking.group(length)) for length in tokens]))
    is_dot = model.mteb_model_meta.similarity_fn_name is ScoringFunction.DOT_PRODUCT
    distance = "DOT" if is_dot else "COSINE"
    kinds: Sequence[SnippetKind] = get_args(SnippetKind) if tokenizer else TOKENIZER_FREE
    snippets = tuple(
        write_snippet(kind, chunks, tokenizer, distance, request.texts, sum(tokens))
        for kind in kinds
    )
    inspection = replace(
        inspection,
        encoded_tokens=encoded_tokens,
        vectors_per_text=vectors_per_text,
        snippets=snippets,
        snippet=next((item for item in snippets if item.kind == request.snippet), None),
    )
    inspection = complete_inspection(inspection)
    show(inspection)
    return inspection


def _measure_model(request: InspectionInput, tokens: Sequence[int], *, full: bool) -> Inspection:
    collection = request.collection
    # Without a tokenizer, measure the window in words on these texts, since word lengths differ.
    texts = () if request.tokenizer else request.texts
    window = measure_window(describe_model(request.encoder, request.tokenizer), texts)
    unread = measure_unread(request.texts, window.reading, request.tokenizer)
    if window.reading.refusal and unread.texts_cut:
        raise PosirError(
            f"{window.model}: {window.sentence} {unread.texts_cut:,} of {len(tokens):,} texts are "
            f"longer ({window.reading.refusal}). Enable truncation in the model or its server, or "
            "split the texts."
        )
    rows = zip(collection.texts, tokens, unread.by_text, strict=True)
    longest_first = sorted(rows, key=lambda row: -row[1])
    reads_start = window.read_part.part is Part.FIRST
    return Inspection(
        model=window.model,
        revision=window.revision,
        source=collection.name,
        texts=len(tokens),
        texts_found=collection.total,
        languages=collection.languages,
        median_tokens=float(np.median(tokens)),
        tokens_estimated=request.tokenizer is None,
        skipped=collection.skipped,
        window=window,
        unread=unread,
        reference=request.reference,
        lengths=tuple((text.name, length, share) for text, length, share in longest_first),
        unread_example=_quote_unread(longest_first) if reads_start else ("", ""),
        full=full,
    )


class InspectionRun:
    """The searches of an inspection. Each distinct text is encoded once."""

    def __init__(
        self, request: InspectionInput, questions: QuestionSet, reading: ReadingLength
    ) -> None:
        self.request = request
        self.questions = questions
        # Text lengths exclude special tokens, and so does this window.
        read_part = reading.to_read_part()
        self.model = request.encoder.model
        self.window = read_part.tokens
        self.memory = EmbeddingMemory()
        self.whole_search = MaximumSearch(self.model, _embed_whole_texts, self.memory)
        self.whole_search.read_part = read_part
        self.encode_options = cast("EncodeKwargs", request.encoder.context.encode_kwargs)
        sample = questions.select_first(INITIAL_TEXTS)
        self.splitters = [
            splitting.SplitterStrategy(
                splitter,
                sample,
                request.token_counter,
                self.window,
                rejects_long=bool(reading.refusal),
            )
            for splitter in request.splitters
        ]
        self.strategies = self._choose_strategies(max(questions.lengths))
        self.costs = self._count_costs(questions, self.strategies)
        _, excerpt_costs = self._generate_excerpt_questions(EXCERPT_LENGTHS[-1], MIN_SEARCH_TEXTS)
        self.min_chunk_tokens = int(excerpt_costs.sum())
        self.wordings = [Wording.RAREST_WORDS]
        self.budget = self.costs.total
        if request.budget is None:
            self.wordings = list(MODEL_FREE_WORDINGS)
        else:
            limit = max(int(MAX_PASSES * sum(questions.lengths)), self.min_tokens)
            self.budget = min(request.budget, limit)

    def _count_costs(
        self, questions: QuestionSet, strategies: Sequence[splitting.ChunkStrategy]
    ) -> splitting.EncodingCosts:
        wordings = 2 if self.request.writer else 1
        return splitting.EncodingCosts.count(
            questions, strategies, self.window, self.request.token_counter, wordings
        )

    def _choose_strategies(self, max_length: int) -> Sequence[splitting.ChunkStrategy]:
        """Choose chunk sizes below the length of the longest text, or the given splitters."""
        if self.splitters:
            return self.splitters
        sizes = splitting.choose_sizes(self.model, self.request.encoder.context, self.window)
        sizes = [size for size in sizes if size < max_length]
        strategies = [splitting.FixedSizeStrategy(size) for size in sizes]
        # For contextual chunks, the server encodes the whole document at once.
        fits_window = self.window is None or max_length <= self.window
        if fits_window and isinstance(self.model, EndpointEncoder) and self.model.kind.in_context:
            strategies += [splitting.FixedSizeStrategy(size, in_context=True) for size in sizes]
        return strategies

    @property
    def min_tokens(self) -> int:
        """Minimum number of tokens to encode, for two whole texts and the chunks of two short
        excerpts.
        """
        return min(
            int(self.costs.search_tokens[:MIN_SEARCH_TEXTS].sum()) + self.min_chunk_tokens,
            self.costs.total,
        )

    @property
    def max_texts(self) -> int:
        """Maximum number of whole texts to search, which leaves part of the budget for chunks."""
        if self.request.budget is None:
            return len(self.questions.documents)
        budget = min(WHOLE_TEXT_SHARE * self.budget, self.budget - self.min_chunk_tokens)
        return max(MIN_SEARCH_TEXTS, splitting.count_affordable(self.costs.search_tokens, budget))

    def estimate_work(self) -> WorkEstimate:
        """Estimate the run time by encoding the first texts. Their embeddings are reused."""
        text_count = min(TIMED_TEXTS, self.max_texts)
        texts = list(self.questions.documents.values())[:text_count]
        task = self._build_task(self.questions.select_first(1), Wording.RAREST_WORDS)
        context = EncodingContext(task.metadata, SPLIT, "default", self.encode_options)
        encoder = ModelEncoder(self.model, context, self.memory)
        start = time.perf_counter()
        encoder(texts, PromptType.document)
        seconds = max(time.perf_counter() - start, 1e-6)
        speed = int(self.costs.text_tokens[:text_count].sum()) / seconds
        total = self.costs.total
        tokens = min(self.budget, total)
        return WorkEstimate(tokens, tokens / speed, total, total / speed)

    def search_whole_texts(self, inspection: Inspection, output_folder: Path | None) -> Inspection:
        """Search whole texts and add the scores. Double the number of texts until the interval is
        narrow or `max_texts` is reached.
        """
        max_texts = self.max_texts
        texts = max_texts if self.request.budget is None else min(INITIAL_TEXTS, max_texts)
        with track("Searching whole texts") as advance:
            while True:
                search = self._search(None, self.questions.select_first(texts), self.wordings)
                advance()
                if texts == max_texts or _has_narrow_interval(search):
                    break
                texts = min(2 * texts, max_texts)
        searches = dict.fromkeys(self.wordings, search)
        other_words = None
        writer = self.request.writer
        if writer:
            questions = self.questions.select_first(texts).write_in_other_words(writer)
            wording = Wording.OTHER_WORDS
            count = len(questions.select_wording(wording))
            baseline = None
            if count:
                searches[wording] = self._search(None, questions, [wording])
                baseline = measure_word_baseline(searches[wording].tasks[wording])
            other_words = OtherWords(
                writer.name,
                writer_is_model=writer.name == self.model.mteb_model_meta.name,
                questions=count,
                unwritten=len(questions.questions) - count,
                words_alone=baseline,
                answers=writer.describe_answers(),
            )
        if output_folder is not None:
            # Save the results as `mteb run` does, for `posir report`.
            mteb.evaluate(
                self.whole_search,
                [search.tasks[wording] for wording, search in searches.items()],
                cache=mteb.ResultCache(output_folder),
                overwrite_strategy="always",
                encode_kwargs=self.encode_options,
                show_progress_bar=False,
            )
        # The last wording determines the verdict.
        order = (Wording.VERBATIM, Wording.OTHER_WORDS, Wording.RAREST_WORDS)
        read = inspection.window.read_part
        scores = tuple(
            _summarize_positions(searches[wording], wording, read)
            for wording in order
            if wording in searches
        )
        return replace(inspection, fading=scores, fading_texts=texts, other_words=other_words)

    def search_chunks(self, inspection: Inspection) -> Inspection:
        """Compare chunks with whole texts, and add the comparison. If whole texts exceed the
        budget, excerpts are used instead.
        """
        texts = inspection.fading_texts
        other_words = inspection.other_words
        questions = self.questions.select_first(texts)
        strategies = self.strategies
        excerpt_tokens = None
        if self.request.budget is not None:
            budget = self.budget - int(self.costs.search_tokens[:texts].sum())
            fitting_texts = splitting.count_affordable(self.costs.chunk_tokens[:texts], budget)
            questions = questions.select_first(fitting_texts)
            if fitting_texts < min(texts, INITIAL_TEXTS):
                questions, excerpt_tokens = self._cut_excerpts(texts, budget)
                strategies = self._choose_strategies(min(excerpt_tokens, max(questions.lengths)))
        wordings = [Wording.RAREST_WORDS]
        if self.request.writer and other_words and other_words.questions:
            questions = questions.write_in_other_words(self.request.writer)
            if questions.select_wording(Wording.OTHER_WORDS):
                wordings.append(Wording.OTHER_WORDS)
        searches = []
        # Chunks are compared by nDCG@10, so rotated versions are not needed.
        with (
            track("Searching chunks", 1 + len(strategies)) as advance,
            override_settings(rotated=0),
        ):
            for strategy in (None, *strategies):
                searches.append(self._search(strategy, questions, wordings))
                advance()
        name = get_portable_reference(self.model.mteb_model_meta)
        unit = "excerpt" if excerpt_tokens else "text"
        comparisons = []
        for wording in wordings:
            rows = splitting.compare_strategies(searches, wording, questions, self.window, unit)
            comparisons.append(splitting.select_chunks(rows, name))
        if other_words and len(comparisons) > 1:
            other_words = replace(other_words, chunks=comparisons[1])
        return replace(
            inspection,
            chunks=comparisons[0],
            chunk_texts=len(questions.documents),
            excerpt_tokens=excerpt_tokens,
            other_words=other_words,
        )

    def _cut_excerpts(self, texts: int, budget: float) -> tuple[QuestionSet, int]:
        """Generate questions about the longest excerpts that fit the budget. Return the questions
        and the maximum excerpt length in tokens.
        """
        max_excerpts = min(texts, INITIAL_TEXTS)
        for length in EXCERPT_LENGTHS:
            questions, costs = self._generate_excerpt_questions(length, max_excerpts)
            fitting_excerpts = splitting.count_affordable(costs, budget)
            if fitting_excerpts == max_excerpts:
                break
        if fitting_excerpts < MIN_SEARCH_TEXTS:
            # With fewer excerpts, the questions may be shorter. `inspect_model` has already checked
            # that the budget covers them.
            questions, _ = self._generate_excerpt_questions(length, MIN_SEARCH_TEXTS)
            return questions, length
        return questions.select_first(fitting_excerpts), length

    def _generate_excerpt_questions(self, length: int, texts: int) -> tuple[QuestionSet, Integers]:
        """Generate questions about excerpts of the first texts. Return the questions and the number
        of tokens to encode per excerpt, shape (texts,).
        """
        counter = self.request.token_counter
        collection = cut_excerpts(self.request.collection, counter, length, texts)
        tokens = counter.count_all([text.text for text in collection.texts])
        questions = generate_questions(collection, tokens)
        strategies = self._choose_strategies(min(length, max(tokens)))
        with override_settings(rotated=0):
            costs = self._count_costs(questions, strategies)
        return questions, costs.search_tokens + costs.chunk_tokens

    def _search(
        self,
        strategy: splitting.ChunkStrategy | None,
        questions: QuestionSet,
        wordings: Sequence[Wording],
    ) -> splitting.ChunkSearch:
        model = strategy.build_search(self.model, self.memory) if strategy else self.whole_search
        tasks = {wording: self._build_task(questions, wording) for wording in wordings}
        scores = {
            wording: evaluate(task, model, self.encode_options) for wording, task in tasks.items()
        }
        values = {wording: ResultValues.from_json(result) for wording, result in scores.items()}
        # `model.document_vectors` would include the vectors of rotated versions.
        vectors = scores[wordings[0]][RUN_KEY][INDEX_KEY]["vectors"]
        return splitting.ChunkSearch(strategy, vectors, values, tasks)

    def _build_task(self, questions: QuestionSet, wording: Wording) -> PseudoQuestionTask:
        collection = self.request.collection
        return build_question_task(collection.name, collection.language, questions, wording)


def _embed_whole_texts(encoder: ModelEncoder, texts: Sequence[str]) -> DocumentVectors:
    return DocumentVectors(encoder(texts, PromptType.document), [1] * len(texts))


def _quote_unread(texts: Sequence[tuple[CollectedText, int, float]]) -> tuple[str, str]:
    """Return a prose sentence near the middle of an unread part, and the name of its text.

    Both are empty if there is no prose sentence.
    """
    for text, _, unread_share in texts:
        middle = len(text.text) * (1 - unread_share / 2)
        unread_start = len(text.text) * (1 - unread_share)
        sentences = find_sentences(text.text, text.language)
        for span in sorted(sentences, key=lambda span: abs(middle - span.middle)):
            sentence = " ".join(span.slice(text.text).split())
            if span.start > unread_start and PROSE_SENTENCE.fullmatch(sentence):
                return sentence, text.name
    return "", ""


def _has_narrow_interval(search: splitting.ChunkSearch) -> bool:
    """Return True if the interval of the effect within the window is at most two margins wide.

    The search stops by width only, so that intervals keep their coverage under repeated looks (Chow
    & Robbins 1965, Annals of Mathematical Statistics 36, on fixed-width intervals).
    """
    findings, *_ = decide_result(search.values[Wording.RAREST_WORDS])
    effect = findings.verdict.estimate
    if effect is None or effect.interval is None:
        return False
    return bool(np.ptp(effect.interval) <= 2 * findings.margin)


def evaluate(
    task: PseudoQuestionTask, model: MaximumSearch, options: EncodeKwargs
) -> Mapping[str, Any]:
    """Run a search. Return its scores as stored in a result file."""
    task.load_data()
    (scores,) = task.evaluate(model, SPLIT, encode_kwargs=options).values()
    return scores


def _summarize_positions(
    search: splitting.ChunkSearch, wording: Wording, read: ReadPart
) -> PositionScores:
    values = search.values[wording]
    group = analyze(values).overall
    overall, *by_length = (replace(findings, read=read) for findings in decide_result(values))
    by_title = zip(values.profile.axes.length_titles, by_length, strict=False)
    groups = {title: findings for title, findings in by_title if findings.questions}
    observations = group.observations
    is_unread = observations.twelfths >= TWELFTHS
    unread_gains = observations.gains[is_unread]
    return PositionScores(
        wording=wording,
        ndcg_at_10_not_read=float(unread_gains.mean()) if len(unread_gains) else None,
        not_read_without_model=measure_unread_baseline(search.tasks[wording], values.read),
        groups={ALL: overall} | groups,
        group=group,
    )
