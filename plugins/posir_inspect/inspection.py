"""Inspection of a model on a user's texts: how far it reads, where evidence fades, which chunk size
serves them.
"""

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
from posir_inspect import questions as asking
from posir_inspect import splitting
from posir_inspect.model_window import describe_model, measure_unread
from posir_inspect.sections import Fading, Inspection, OtherWords, WorkEstimate
from posir_inspect.snippets import UNCOUNTED, SnippetKind, write_snippet
from posir_inspect.window import measure_window
from posir_significance.analysis import analyze
from posir_significance.decision import decide_result
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import format_seconds, note_progress, track
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

#: Texts whose encoding is timed.
TIMED_TEXTS = 16
#: Texts from which on most questions are decided: the first step of a search, which each further
#: one doubles, and the fewest in which chunks are compared.
MIN_TEXTS = 50
#: Tokens that are encoded at most within a budget, in multiples of the tokens of the texts.
MAX_PASSES = 6.0
#: Share of the budget for the search in whole texts; the rest is for chunks.
WHOLE_SHARE = 0.5
#: Fewest texts of a search, among which one can be found.
MIN_SEARCHED = 2
#: Lengths of excerpts in tokens, if chunks of enough whole texts exceed the budget.
EXCERPTS = (2048, 1024, 512)
#: Marks of Markdown in a sentence that is quoted; of a link, its words remain. Its most characters.
MARKUP, QUOTED = re.compile(r"^\s*[-+]\s+|\[([^\]]*)\]\([^)]*\)|[*`]+"), 140
#: A sentence of prose without marks of code or of a table.
PROSE = re.compile(r"(?![a-z])\w[^|{}<>=#_\[\]\\\":;.]{40,}[.!?\u3002\uff01\uff1f]")


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
    reference: CommandReference = NO_REFERENCE
    """The model, the texts and the settings as a command names them."""
    snippet: SnippetKind | None = None
    """The library that code for the advised chunks is written for."""

    @property
    def texts(self) -> list[str]:
        """The texts."""
        return [text.text for text in self.collection.texts]

    @property
    def counter(self) -> Tokenizer:
        """The model's tokenizer, or an estimate."""
        return self.tokenizer or EstimatedTokenizer()


def inspect_model(
    setup: Setup,
    output_folder: Path | None = None,
    show: Callable[[Inspection], object] = lambda _: None,
    *,
    full: bool = False,
) -> Inspection:
    """Inspect a model on texts, calling `show` at each further answer; `output_folder` gets the
    result for whole texts.
    """
    collection = setup.collection
    # Without tokenizer, the length is known in words, which are longer or shorter in other texts.
    window = measure_window(
        describe_model(setup.encoder, setup.tokenizer), () if setup.tokenizer else setup.texts
    )
    unread = measure_unread(setup.texts, window.reading, setup.tokenizer)
    if window.reading.refusal and unread.texts_cut:
        raise PosirError(
            f"{window.model}: {window.sentence} {unread.texts_cut:,} of {len(setup.texts):,} "
            "texts are "
            f"longer ({window.reading.refusal}). Let the model or its server truncate them, or "
            "divide them."
        )
    tokens = setup.counter.count_all(setup.texts)
    longest = sorted(
        zip(collection.texts, tokens, unread.by_text, strict=True), key=lambda row: -row[1]
    )
    known = Inspection(
        window.model,
        window.revision,
        source=collection.name,
        texts=len(tokens),
        texts_found=collection.total,
        languages=collection.languages,
        median_tokens=float(np.median(tokens)),
        tokens_estimated=setup.tokenizer is None,
        skipped=collection.skipped,
        window=window,
        unread=unread,
        reference=setup.reference,
        lengths=tuple((text.name, length, share) for text, length, share in longest),
        unread_example=_quote_unread(longest) if window.read_part.part is Part.FIRST else ("", ""),
        full=full,
    )
    show(known)
    run = InspectionRun(setup, asking.ask_questions(collection, tokens), window.reading)
    if not run.questions.questions:
        return replace(known, fading=())
    if setup.budget is not None and setup.budget < run.least:
        raise PosirError(
            f"A budget of {setup.budget:,} tokens is too small: at least {run.least:,} are needed "
            f"for {MIN_SEARCHED} of these "
            "texts, whole and in chunks. Raise it with --budget, or encode everything with "
            "--all-texts."
        )
    known = replace(known, work=(work := run.estimate_work()))
    note_progress(work.sentence)
    known = run.search_whole(known, output_folder)
    show(known)
    known = run.search_chunks(known)
    # Of all texts, questions and chunks, as far as the model reads them.
    encoded = [
        min(length, run.window or length)
        for length in setup.counter.count_all(run.memory.known_texts)
    ]
    advised = known.chunks.row if known.chunks and known.chunks.is_advised else None
    chunked = Chunking(advised.size) if advised and advised.size and not advised.chunker else None
    vectors = float(np.mean([len(chunked.group(length)) for length in tokens])) if chunked else None
    known = replace(known, encoded_tokens=sum(encoded), vectors_per_text=vectors)
    if chunks := known.chunks:
        model, tokenizer = setup.encoder.model, find_tokenizer(setup.encoder.model)
        distance = (
            "DOT"
            if model.mteb_model_meta.similarity_fn_name is ScoringFunction.DOT_PRODUCT
            else "COSINE"
        )
        measured = chunks, tokenizer, distance, setup.texts, sum(tokens)
        snippets = {
            kind: write_snippet(kind, *measured)
            for kind in (get_args(SnippetKind) if tokenizer else UNCOUNTED)
        }
        asked = snippets[setup.snippet] if setup.snippet else None
        known = replace(known, snippets=tuple(snippets.values()), snippet=asked)
    show(known)
    return known


class InspectionRun:
    """The searches of an inspection; together they encode each distinct text once."""

    def __init__(self, setup: Setup, questions: asking.QuestionSet, reading: ReadingLength) -> None:
        # Tokens of texts are counted without special ones.
        self.setup, self.questions, self.read = setup, questions, reading.read_part()
        self.model, self.window = setup.encoder.model, self.read.tokens
        self.memory = EmbeddingMemory()
        self.whole = MaximumSearch(
            self.model,
            lambda encoder, texts: DocumentVectors(
                encoder(texts, PromptType.document), [1] * len(texts)
            ),
            self.memory,
        )
        self.whole.read_part = self.read
        self.options = cast("EncodeKwargs", setup.encoder.context.encode_kwargs)
        sample, refuses = questions.first(MIN_TEXTS), bool(reading.refusal)
        self.splitters = [
            splitting.SplitterDivision(
                splitter, sample, setup.counter, self.window, refuses=refuses
            )
            for splitter in setup.splitters
        ]
        self.divisions = self._choose_divisions(max(questions.tokens.values()))
        self.costs = self._count_costs(questions, self.divisions)
        self.least_chunks = self._find_excerpts(EXCERPTS[-1], MIN_SEARCHED)[1]
        limit = max(int(MAX_PASSES * sum(questions.tokens.values())), self.least)
        self.budget = self.costs.total if setup.budget is None else min(setup.budget, limit)
        self.wordings = (
            list(asking.WITHOUT_MODEL) if setup.budget is None else [asking.Wording.RAREST_WORDS]
        )

    def _count_costs(
        self, questions: asking.QuestionSet, divisions: Sequence[splitting.Division]
    ) -> splitting.Costs:
        wordings = 1 + (self.setup.writer is not None)
        return splitting.Costs.count(
            questions, divisions, self.window, self.setup.counter, wordings
        )

    def _choose_divisions(self, longest: int) -> Sequence[splitting.Division]:
        sizes = splitting.choose_sizes(self.model, self.setup.encoder.context, self.window)
        kinds = [splitting.TokenDivision]
        # A server reads all chunks of a document together.
        fits = longest <= (self.window or longest)
        if fits and isinstance(self.model, EndpointEncoder) and self.model.kind.in_context:
            kinds.append(splitting.ContextDivision)
        return self.splitters or [kind(size) for kind in kinds for size in sizes if size < longest]

    @property
    def least(self) -> int:
        """Fewest tokens to encode: a search in two whole texts, and in the chunks of short excerpts
        of them.
        """
        return min(self.costs.count_whole(MIN_SEARCHED) + sum(self.least_chunks), self.costs.total)

    @property
    def most_texts(self) -> int:
        """Most texts that are searched as a whole; what is left of the budget is enough for some
        chunks.
        """
        if self.setup.budget is None:
            return len(self.questions.documents)
        fitting = splitting.count_fitting(
            self.costs.searched,
            min(WHOLE_SHARE * self.budget, self.budget - sum(self.least_chunks)),
        )
        return max(MIN_SEARCHED, fitting)

    def estimate_work(self) -> WorkEstimate:
        """Estimate the time from that of the first texts, whose embeddings are needed anyway."""
        texts = list(self.questions.documents.values())[: min(TIMED_TEXTS, self.most_texts)]
        task = self._build_task(self.questions.first(1), asking.Wording.RAREST_WORDS)
        context = EncodingContext(task.metadata, SPLIT, "default", self.options)
        encoder = ModelEncoder(self.model, context, self.memory)
        started = time.perf_counter()
        encoder(texts, PromptType.document)
        speed = sum(self.costs.whole[: len(texts)]) / max(time.perf_counter() - started, 1e-6)
        planned = min(self.budget, self.costs.total)
        return WorkEstimate(planned, planned / speed, self.costs.total, self.costs.total / speed)

    def search_whole(self, known: Inspection, output_folder: Path | None) -> Inspection:
        """Add the search in whole texts, more and more of them until the interval is narrow or the
        budget is used.
        """
        most = self.most_texts
        texts = most if self.setup.budget is None else min(MIN_TEXTS, most)
        planned = f" (rest: up to {format_seconds(known.work.seconds)})" if known.work else ""
        with track(f"Searching whole texts{planned}") as advance:
            while True:
                search = self._search(None, self.questions.first(texts), self.wordings)
                advance()
                if texts == most or _is_narrow(search):
                    break
                texts = min(2 * texts, most)
        searches = dict.fromkeys(self.wordings, search)
        other_words = None
        if writer := self.setup.writer:
            wording = asking.Wording.OTHER_WORDS
            questions = self.questions.first(texts).write_in_other_words(writer)
            asked, baseline = len(questions.asked_in(wording)), None
            if asked:
                searches[wording] = self._search(None, questions, [wording])
                baseline = asking.measure_word_baseline(searches[wording].tasks[wording])
            by_itself, unwritten = (
                writer.name == self.model.mteb_model_meta.name,
                len(questions.questions) - asked,
            )
            other_words = OtherWords(writer.name, by_itself, asked, unwritten, baseline)
        if output_folder is not None:
            tasks = [search.tasks[wording] for wording, search in searches.items()]
            # As `mteb run` does, for `posir report`.
            mteb.evaluate(
                self.whole,
                tasks,
                cache=mteb.ResultCache(output_folder),
                overwrite_strategy="always",
                encode_kwargs=self.options,
                show_progress_bar=False,
            )
        # Questions in their rarest words last: verdicts are by them.
        order = (asking.Wording.VERBATIM, asking.Wording.OTHER_WORDS, asking.Wording.RAREST_WORDS)
        read = known.window.read_part
        fading = tuple(
            _summarize_fading(searches[wording], wording, read)
            for wording in order
            if wording in searches
        )
        return replace(known, fading=fading, fading_texts=texts, other_words=other_words)

    def search_chunks(self, known: Inspection) -> Inspection:
        """Add the search in whole texts and chunks of the same texts, or of excerpts of them if the
        texts are too long.
        """
        texts, other_words = known.fading_texts, known.other_words
        questions, divisions, excerpt = self.questions.first(texts), self.divisions, None
        if self.setup.budget is not None:
            left = self.budget - self.costs.count_whole(texts)
            fitting = splitting.count_fitting(self.costs.chunks[:texts], left)
            if fitting >= min(texts, MIN_TEXTS):
                questions = questions.first(fitting)
            else:
                questions, excerpt = self._cut(texts, left)
                divisions = self._choose_divisions(min(excerpt, max(questions.tokens.values())))
        wordings = [asking.Wording.RAREST_WORDS]
        if self.setup.writer and other_words and other_words.questions:
            questions = questions.write_in_other_words(self.setup.writer)
            wordings += (
                [asking.Wording.OTHER_WORDS]
                if questions.asked_in(asking.Wording.OTHER_WORDS)
                else []
            )
        searches = []
        # Chunks are compared in nDCG@10 alone.
        with track("Searching chunks", 1 + len(divisions)) as advance, with_settings(rotated=0):
            for division in (None, *divisions):
                searches.append(self._search(division, questions, wordings))
                advance()
        named = portable_name(self.model.mteb_model_meta)
        whole = "whole excerpts" if excerpt else "whole texts"
        rarest, *others = (
            splitting.advise_chunks(
                splitting.compare_divisions(searches, wording, questions, self.window, whole), named
            )
            for wording in wordings
        )
        return replace(
            known,
            chunks=rarest,
            chunk_texts=len(questions.documents),
            excerpt_tokens=excerpt,
            other_words=replace(other_words, chunks=others[0])
            if other_words and others
            else other_words,
        )

    def _cut(self, texts: int, budget: float) -> tuple[asking.QuestionSet, int]:
        """Return excerpts of enough texts to compare, as long as the budget allows, with their own
        questions and length.
        """
        wanted = min(texts, MIN_TEXTS)
        for length in EXCERPTS:
            questions, costs = self._find_excerpts(length, wanted)
            fitting = splitting.count_fitting(costs, budget)
            if fitting == wanted:
                break
        if fitting < MIN_SEARCHED:
            # The questions about excerpts of fewer texts may be shorter; a budget that is not
            # refused is enough for them.
            return self._find_excerpts(length, MIN_SEARCHED)[0], length
        return questions.first(fitting), length

    def _find_excerpts(self, length: int, texts: int) -> tuple[asking.QuestionSet, list[int]]:
        """Return excerpts of the first texts with their questions, and the tokens to encode for
        each.
        """
        collection = asking.cut_excerpts(self.setup.collection, self.setup.counter, length, texts)
        questions = asking.ask_questions(
            collection, self.setup.counter.count_all([text.text for text in collection.texts])
        )
        divisions = self._choose_divisions(min(length, max(questions.tokens.values())))
        costs = self._count_costs(questions, divisions)
        return questions, list(
            map(sum, zip(costs.whole, costs.questions, costs.chunks, strict=True))
        )

    def _search(
        self,
        division: splitting.Division | None,
        questions: asking.QuestionSet,
        wordings: Sequence[asking.Wording],
    ) -> splitting.ChunkSearch:
        model = division.build_search(self.model, self.memory) if division else self.whole
        tasks = {wording: self._build_task(questions, wording) for wording in wordings}
        scores = {wording: evaluate(task, model, self.options) for wording, task in tasks.items()}
        values = {wording: ResultValues.from_json(result) for wording, result in scores.items()}
        # The model also counts the vectors of rotated versions.
        vectors = scores[wordings[0]][RUN_KEY][INDEX_KEY]["vectors"]
        return splitting.ChunkSearch(division, vectors, values, tasks)

    def _build_task(
        self, questions: asking.QuestionSet, wording: asking.Wording
    ) -> asking.PseudoQuestionTask:
        return asking.build_question_task(
            self.setup.collection.name, self.setup.collection.language, questions, wording
        )


def _quote_unread(texts: Sequence[tuple[CollectedText, int, float]]) -> tuple[str, str]:
    """Return a sentence of prose that is never read, in the middle of that part, and its text;
    empty if there is none.
    """
    for text, _, share in texts:
        middle, read = (len(text.text) * (1 - part) for part in (share / 2, share))
        for span in sorted(
            find_sentences(text.text, text.language), key=lambda span: abs(middle - span.middle)
        ):
            quoted = " ".join(MARKUP.sub(r"\1", span.of(text.text)).split())
            # Not in a block of code.
            is_prose = PROSE.fullmatch(quoted) and text.text[: span.start].count("```") % 2 == 0
            if is_prose and len(quoted) <= QUOTED and span.start > read:
                return quoted, text.name
    return "", ""


def _is_narrow(search: splitting.ChunkSearch) -> bool:
    """Return whether the effect within the window is known to its margin either way.

    The width alone decides when to stop, so that intervals keep their coverage although they are
    looked at several times (Chow & Robbins 1965, Annals of Mathematical Statistics 36, on
    fixed-width intervals).
    """
    findings = decide_result(search.values[asking.Wording.RAREST_WORDS])[0]
    effect = findings.verdict.estimate
    return (
        effect is not None
        and effect.interval is not None
        and np.ptp(effect.interval) <= 2 * findings.margin
    )


def evaluate(
    task: asking.PseudoQuestionTask, model: MaximumSearch, options: EncodeKwargs
) -> Mapping[str, Any]:
    """Return the scores of a search, as in a result file."""
    task.load_data()
    (scores,) = task.evaluate(model, SPLIT, encode_kwargs=options).values()
    return scores


def _summarize_fading(
    search: splitting.ChunkSearch, wording: asking.Wording, read: ReadPart
) -> Fading:
    values = search.values[wording]
    group = analyze(values).overall
    findings = [replace(group_findings, read=read) for group_findings in decide_result(values)]
    profile = values.profile
    titles = profile.axes.length_titles if len(findings) > 1 else ()
    by_length = zip(titles, findings[1:], strict=True)
    lengths = {title: of_length for title, of_length in by_length if of_length.questions}
    observations = group.observations
    unread = observations.twelfths >= TWELFTHS
    return Fading(
        wording=wording,
        ndcg_at_10_not_read=float(observations.gains[unread].mean()) if unread.any() else None,
        not_read_without_model=asking.measure_unread_baseline(search.tasks[wording], values.read),
        groups={ALL: findings[0], **lengths},
        group=group,
    )
