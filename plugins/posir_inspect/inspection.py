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
    WITHOUT_MODEL,
    PseudoQuestionTask,
    QuestionSet,
    Wording,
    ask_questions,
    build_question_task,
    cut_excerpts,
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
from posir_inspect.snippets import UNCOUNTED, SnippetKind, require_tokenizer, write_snippet
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
from posir_tasks.models.references import portable_name
from posir_tasks.models.run_settings import with_settings
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
#: Number of texts that is usually enough for a verdict: the first step of a search, doubled by each
#: later step, and the minimum for comparing chunks.
MIN_TEXTS = 50
#: Maximum number of tokens to encode within a budget, relative to the tokens of the texts.
MAX_PASSES = 6.0
#: Share of the budget for searching whole texts; the rest is for chunks.
WHOLE_SHARE = 0.5
#: Minimum number of texts in a search.
MIN_SEARCHED = 2
#: Excerpt lengths in tokens, tried in this order if chunks of whole texts exceed the budget.
EXCERPTS = (2048, 1024, 512)
#: A prose sentence of at most 140 characters, without code, Markdown or table syntax.
PROSE = re.compile(r"(?![a-z])\w[^|{}<>=#_*`\[\]\\\":;.]{40,138}[.!?\u3002\uff01\uff1f]")


@dataclass(frozen=True)
class InspectionInput:
    """The texts to inspect, the model and the options."""

    encoder: ModelEncoder
    tokenizer: ModelTokenizer | None
    collection: TextCollection
    budget: int | None
    """Maximum number of tokens to encode; None for no limit."""
    splitters: Sequence[TextSplitter] = ()
    """Splitters to compare. If empty, chunk sizes are compared."""
    writer: QuestionWriter | None = None
    reference: CommandReference = NO_REFERENCE
    """The model, texts and settings as used in commands."""
    snippet: SnippetKind | None = None
    """The library to write code for."""

    @property
    def texts(self) -> list[str]:
        """The texts, in random order."""
        return [text.text for text in self.collection.texts]

    @property
    def counter(self) -> Tokenizer:
        """The model's tokenizer, or an estimate of four bytes per token."""
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
        request: The model and the texts.
        output_folder: Folder for the result on whole texts, as in `mteb run`.
        show: Called with the incomplete inspection after each stage.
        full: Also show observed differences and the published PSI.

    Raises:
        PosirError: The budget is too small, or the model refuses some texts because of their
            length.
    """
    collection = request.collection
    model = request.encoder.model
    tokenizer = find_tokenizer(model)
    if request.snippet:
        require_tokenizer(request.snippet, str(model.mteb_model_meta.name), tokenizer)
    tokens = request.counter.count_all(request.texts)
    inspection = _measure_reading(request, tokens, full=full)
    show(complete_inspection(inspection))
    questions = ask_questions(collection, tokens)
    if not questions.questions:
        return complete_inspection(replace(inspection, fading=()))
    run = InspectionRun(request, questions, inspection.window.reading)
    if request.budget is not None and request.budget < run.min_tokens:
        raise PosirError(
            f"A budget of {request.budget:,} tokens is too small: at least {run.min_tokens:,} are "
            f"needed for {MIN_SEARCHED} of these texts, whole and in chunks. Give a larger "
            "--budget, or encode everything with --all-texts."
        )
    work = run.estimate_work()
    log_progress(
        f"The rest takes at most about {format_seconds(work.seconds)}: {work.tokens:,} tokens to "
        f"encode (--budget); all {work.all_tokens:,} would take {format_seconds(work.all_seconds)} "
        "(--all-texts)."
    )
    inspection = run.search_whole(replace(inspection, work=work), output_folder)
    show(complete_inspection(inspection))
    inspection = run.search_chunks(inspection)
    # All distinct texts, questions and chunks, truncated to the window.
    counts = request.counter.count_all(run.memory.remembered_texts)
    encoded_tokens = sum(min(count, run.window or count) for count in counts)
    chunks = inspection.chunks
    assert chunks is not None
    vectors_per_text = None
    if chunks.is_advised and chunks.row.size and not chunks.row.chunker:
        chunking = Chunking(chunks.row.size)
        vectors_per_text = float(np.mean([len(chunking.group(length)) for length in tokens]))
    is_dot = model.mteb_model_meta.similarity_fn_name is ScoringFunction.DOT_PRODUCT
    distance = "DOT" if is_dot else "COSINE"
    kinds: Sequence[SnippetKind] = get_args(SnippetKind) if tokenizer else UNCOUNTED
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


def _measure_reading(request: InspectionInput, tokens: Sequence[int], *, full: bool) -> Inspection:
    collection = request.collection
    # Without a tokenizer, the window is measured in words of these texts, since words differ in
    # length.
    texts = () if request.tokenizer else request.texts
    window = measure_window(describe_model(request.encoder, request.tokenizer), texts)
    unread = measure_unread(request.texts, window.reading, request.tokenizer)
    if window.reading.refusal and unread.texts_cut:
        raise PosirError(
            f"{window.model}: {window.sentence} {unread.texts_cut:,} of {len(tokens):,} texts are "
            f"longer ({window.reading.refusal}). Let the model or its server truncate them, or "
            "divide them."
        )
    rows = zip(collection.texts, tokens, unread.by_text, strict=True)
    longest = sorted(rows, key=lambda row: -row[1])
    reads_first = window.read_part.part is Part.FIRST
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
        lengths=tuple((text.name, length, share) for text, length, share in longest),
        unread_example=_quote_unread(longest) if reads_first else ("", ""),
        full=full,
    )


class InspectionRun:
    """The searches of an inspection. Each distinct text is encoded only once."""

    def __init__(
        self, request: InspectionInput, questions: QuestionSet, reading: ReadingLength
    ) -> None:
        self.request = request
        self.questions = questions
        # Text lengths exclude special tokens, so the window here does as well.
        self.read = reading.read_part()
        self.model = request.encoder.model
        self.window = self.read.tokens
        self.memory = EmbeddingMemory()
        self.whole = MaximumSearch(self.model, _vectorize_whole, self.memory)
        self.whole.read_part = self.read
        self.options = cast("EncodeKwargs", request.encoder.context.encode_kwargs)
        sample = questions.first(MIN_TEXTS)
        self.splitters = [
            splitting.SplitterDivision(
                splitter, sample, request.counter, self.window, refuses=bool(reading.refusal)
            )
            for splitter in request.splitters
        ]
        self.divisions = self._choose_divisions(max(questions.lengths))
        self.costs = self._count_costs(questions, self.divisions)
        _, costs = self._find_excerpts(EXCERPTS[-1], MIN_SEARCHED)
        self.min_chunk_tokens = int(costs.sum())
        self.wordings = [Wording.RAREST_WORDS]
        self.budget = self.costs.total
        if request.budget is None:
            self.wordings = list(WITHOUT_MODEL)
        else:
            limit = max(int(MAX_PASSES * sum(questions.lengths)), self.min_tokens)
            self.budget = min(request.budget, limit)

    def _count_costs(
        self, questions: QuestionSet, divisions: Sequence[splitting.Division]
    ) -> splitting.Costs:
        wordings = 2 if self.request.writer else 1
        return splitting.Costs.count(
            questions, divisions, self.window, self.request.counter, wordings
        )

    def _choose_divisions(self, longest: int) -> Sequence[splitting.Division]:
        if self.splitters:
            return self.splitters
        sizes = splitting.choose_sizes(self.model, self.request.encoder.context, self.window)
        sizes = [size for size in sizes if size < longest]
        divisions = [splitting.TokenDivision(size) for size in sizes]
        # The server encodes all chunks of a document together to give them context.
        fits = self.window is None or longest <= self.window
        if fits and isinstance(self.model, EndpointEncoder) and self.model.kind.in_context:
            divisions += [splitting.TokenDivision(size, in_context=True) for size in sizes]
        return divisions

    @property
    def min_tokens(self) -> int:
        """Minimum number of tokens to encode: for two whole texts, and for two short excerpts with
        their chunks.
        """
        return min(
            int(self.costs.whole_search[:MIN_SEARCHED].sum()) + self.min_chunk_tokens,
            self.costs.total,
        )

    @property
    def max_texts(self) -> int:
        """Maximum number of whole texts to search; the rest of the budget is for chunks."""
        if self.request.budget is None:
            return len(self.questions.documents)
        budget = min(WHOLE_SHARE * self.budget, self.budget - self.min_chunk_tokens)
        return max(MIN_SEARCHED, splitting.count_fitting(self.costs.whole_search, budget))

    def estimate_work(self) -> WorkEstimate:
        """Estimate the run time by encoding the first texts, which is needed anyway."""
        text_count = min(TIMED_TEXTS, self.max_texts)
        texts = list(self.questions.documents.values())[:text_count]
        task = self._build_task(self.questions.first(1), Wording.RAREST_WORDS)
        context = EncodingContext(task.metadata, SPLIT, "default", self.options)
        encoder = ModelEncoder(self.model, context, self.memory)
        start = time.perf_counter()
        encoder(texts, PromptType.document)
        seconds = max(time.perf_counter() - start, 1e-6)
        speed = int(self.costs.whole[:text_count].sum()) / seconds
        total = self.costs.total
        tokens = min(self.budget, total)
        return WorkEstimate(tokens, tokens / speed, total, total / speed)

    def search_whole(self, inspection: Inspection, output_folder: Path | None) -> Inspection:
        """Search whole texts and add the scores. Their number doubles until the interval is narrow
        or the budget is used up.
        """
        max_texts = self.max_texts
        texts = max_texts if self.request.budget is None else min(MIN_TEXTS, max_texts)
        with track("Searching whole texts") as advance:
            while True:
                search = self._search(None, self.questions.first(texts), self.wordings)
                advance()
                if texts == max_texts or _is_narrow(search):
                    break
                texts = min(2 * texts, max_texts)
        searches = dict.fromkeys(self.wordings, search)
        other_words = None
        writer = self.request.writer
        if writer:
            questions = self.questions.first(texts).write_in_other_words(writer)
            wording = Wording.OTHER_WORDS
            count = len(questions.with_wording(wording))
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
            # Saved as `mteb run` does, for `posir report`.
            mteb.evaluate(
                self.whole,
                [search.tasks[wording] for wording, search in searches.items()],
                cache=mteb.ResultCache(output_folder),
                overwrite_strategy="always",
                encode_kwargs=self.options,
                show_progress_bar=False,
            )
        # The last scores determine the verdict.
        order = (Wording.VERBATIM, Wording.OTHER_WORDS, Wording.RAREST_WORDS)
        read = inspection.window.read_part
        scores = tuple(
            _summarize_positions(searches[wording], wording, read)
            for wording in order
            if wording in searches
        )
        return replace(inspection, fading=scores, fading_texts=texts, other_words=other_words)

    def search_chunks(self, inspection: Inspection) -> Inspection:
        """Compare chunks with whole texts, and add the comparison.

        Excerpts replace texts that are too long for the budget.
        """
        texts = inspection.fading_texts
        other_words = inspection.other_words
        questions = self.questions.first(texts)
        divisions = self.divisions
        excerpt_tokens = None
        if self.request.budget is not None:
            budget = self.budget - int(self.costs.whole_search[:texts].sum())
            fitting_texts = splitting.count_fitting(self.costs.chunks[:texts], budget)
            questions = questions.first(fitting_texts)
            if fitting_texts < min(texts, MIN_TEXTS):
                questions, excerpt_tokens = self._cut(texts, budget)
                divisions = self._choose_divisions(min(excerpt_tokens, max(questions.lengths)))
        wordings = [Wording.RAREST_WORDS]
        if self.request.writer and other_words and other_words.questions:
            questions = questions.write_in_other_words(self.request.writer)
            if questions.with_wording(Wording.OTHER_WORDS):
                wordings.append(Wording.OTHER_WORDS)
        searches = []
        # Rotated versions are not needed: chunks are compared by nDCG@10.
        with track("Searching chunks", 1 + len(divisions)) as advance, with_settings(rotated=0):
            for division in (None, *divisions):
                searches.append(self._search(division, questions, wordings))
                advance()
        name = portable_name(self.model.mteb_model_meta)
        unit = "excerpt" if excerpt_tokens else "text"
        comparisons = []
        for wording in wordings:
            rows = splitting.compare_divisions(searches, wording, questions, self.window, unit)
            comparisons.append(splitting.advise_chunks(rows, name))
        if other_words and len(comparisons) > 1:
            other_words = replace(other_words, chunks=comparisons[1])
        return replace(
            inspection,
            chunks=comparisons[0],
            chunk_texts=len(questions.documents),
            excerpt_tokens=excerpt_tokens,
            other_words=other_words,
        )

    def _cut(self, texts: int, budget: float) -> tuple[QuestionSet, int]:
        """Generate questions about the longest excerpts that fit the budget. Also return the
        maximum length of these excerpts.
        """
        max_excerpts = min(texts, MIN_TEXTS)
        for length in EXCERPTS:
            questions, costs = self._find_excerpts(length, max_excerpts)
            fitting_excerpts = splitting.count_fitting(costs, budget)
            if fitting_excerpts == max_excerpts:
                break
        if fitting_excerpts < MIN_SEARCHED:
            # Questions about fewer excerpts may be shorter. `inspect_model` has already checked
            # that the budget covers them.
            questions, _ = self._find_excerpts(length, MIN_SEARCHED)
            return questions, length
        return questions.first(fitting_excerpts), length

    def _find_excerpts(self, length: int, texts: int) -> tuple[QuestionSet, Integers]:
        """Generate questions about excerpts of the first texts. Also return the number of tokens to
        encode for each excerpt.
        """
        collection = cut_excerpts(self.request.collection, self.request.counter, length, texts)
        tokens = self.request.counter.count_all([text.text for text in collection.texts])
        questions = ask_questions(collection, tokens)
        divisions = self._choose_divisions(min(length, max(tokens)))
        with with_settings(rotated=0):
            costs = self._count_costs(questions, divisions)
        return questions, costs.whole_search + costs.chunks

    def _search(
        self,
        division: splitting.Division | None,
        questions: QuestionSet,
        wordings: Sequence[Wording],
    ) -> splitting.ChunkSearch:
        model = division.build_search(self.model, self.memory) if division else self.whole
        tasks = {wording: self._build_task(questions, wording) for wording in wordings}
        scores = {wording: evaluate(task, model, self.options) for wording, task in tasks.items()}
        values = {wording: ResultValues.from_json(result) for wording, result in scores.items()}
        # The model's own count includes the vectors of rotated versions.
        vectors = scores[wordings[0]][RUN_KEY][INDEX_KEY]["vectors"]
        return splitting.ChunkSearch(division, vectors, values, tasks)

    def _build_task(self, questions: QuestionSet, wording: Wording) -> PseudoQuestionTask:
        collection = self.request.collection
        return build_question_task(collection.name, collection.language, questions, wording)


def _vectorize_whole(encoder: ModelEncoder, texts: Sequence[str]) -> DocumentVectors:
    return DocumentVectors(encoder(texts, PromptType.document), [1] * len(texts))


def _quote_unread(texts: Sequence[tuple[CollectedText, int, float]]) -> tuple[str, str]:
    """Return a prose sentence from the middle of an unread part, and the name of its text.

    Both are empty if no such sentence exists.
    """
    for text, _, share in texts:
        middle = len(text.text) * (1 - share / 2)
        read = len(text.text) * (1 - share)
        sentences = find_sentences(text.text, text.language)
        for span in sorted(sentences, key=lambda span: abs(middle - span.middle)):
            sentence = " ".join(span.of(text.text).split())
            if span.start > read and PROSE.fullmatch(sentence):
                return sentence, text.name
    return "", ""


def _is_narrow(search: splitting.ChunkSearch) -> bool:
    """Return True if the interval of the effect within the window is at most two margins wide.

    Only the width decides when to stop, so that intervals keep their coverage under repeated looks
    (Chow & Robbins 1965, Annals of Mathematical Statistics 36, on fixed-width intervals).
    """
    findings, *_ = decide_result(search.values[Wording.RAREST_WORDS])
    effect = findings.verdict.estimate
    if effect is None or effect.interval is None:
        return False
    return bool(np.ptp(effect.interval) <= 2 * findings.margin)


def evaluate(
    task: PseudoQuestionTask, model: MaximumSearch, options: EncodeKwargs
) -> Mapping[str, Any]:
    """Return the scores of a search, as stored in a result file."""
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
    unread = observations.twelfths >= TWELFTHS
    return PositionScores(
        wording=wording,
        ndcg_at_10_not_read=float(observations.gains[unread].mean()) if unread.any() else None,
        not_read_without_model=measure_unread_baseline(search.tasks[wording], values.read),
        groups={ALL: overall} | groups,
        group=group,
    )
