"""Inspection of a running index: recall of sentences from its documents, by position.

The questions come from the `questions` module. One extra query per document, its opening words
verbatim, tests whether the document is indexed at all. Recall at k is the share of questions whose
document is in the top k hits or, for chunks, whose whole sentence is in the top k hits. Documents
that their opening words do not retrieve are excluded, so that a missing document is not mistaken
for a lost ending. Confidence intervals treat each document as a cluster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np

from posir_inspect.indexed_texts import (
    MAX_LISTED_DOCUMENTS,
    OPENING,
    IndexedTexts,
    IndexOptions,
    IndexQuestion,
    plan_questions,
    read_index,
)
from posir_inspect.questions import Wording
from posir_inspect.sections import ADVICE_HEADING
from posir_score.alignment import AlignmentRules, describe_fixed_k
from posir_score.collecting import CollectionSettings, Journal, QueryAnswers
from posir_score.document_names import DocumentNames
from posir_score.evidence_spans import THIRDS, has_uncovered_words
from posir_score.orders import sort_hits
from posir_score.retrieved_chunks import ChunkKey
from posir_score.retriever_objects import add_embedder, name_retriever, open_retriever
from posir_significance.changes import decide_change
from posir_significance.decision import DEFAULT_MARGINS
from posir_significance.findings import ChangeRow, ChangeSubject, Metric
from posir_significance.messages.texts import (
    RECALL_TITLE,
    advise_index,
    describe_recall_change,
    describe_tail_recall,
    format_percentage,
)
from posir_significance.regression import Regression
from posir_tasks.base.arrays import Booleans
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.display.labels import join_steps
from posir_tasks.display.numbers import format_count, format_estimate, format_percent
from posir_tasks.display.position_charts import NDCG, Fact, PositionChart
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import DisplaySection, Medium, Table, build_columns
from posir_tasks.language_models.other_words import QuestionWriter
from posir_tasks.models.references import to_file_name
from posir_tasks.text.locating import START, TextLocator
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.evidence import TWELFTHS
from posir_tasks.values.means import LEVEL, estimate_mean
from posir_tasks.values.read_part import ReadPart

if TYPE_CHECKING:
    pass

#: Margin for differences in recall.
MARGIN = DEFAULT_MARGINS.position_effect
RECALL_SCALE = replace(
    NDCG,
    name="recall",
    whole="the sentences",
    contents="sentences",
    caption="documents to their end: the share of sentences there that are found",
)
WITHIN_WINDOW = "part within the window"
TRUNCATED = "truncated part"
DOCUMENT = "document"
CHUNK = "chunk"
NO_ANSWER = ("question has no answer", "questions have no answer")
EXPLANATION = (
    "The questions are generated, not written by people. Each question is a sentence from one "
    "document, reduced to its rarest words or paraphrased, and the task is to retrieve that "
    "document (inverse cloze task, Lee et al. 2019, arXiv 1906.00300), or chunks with the whole "
    "sentence. People phrase questions differently, so recall is higher than on real questions: "
    "compare positions.",
    "Thirds are compared within documents. They contain different sentences, so the comparison "
    "describes the index but does not test for position bias. Intervals are at 95%, for new "
    "documents.",
)


@dataclass(frozen=True, eq=False)
class JudgedAnswers:
    """The answers of an index to n questions, in the planned order."""

    questions: Sequence[IndexQuestion]
    success: Mapping[str, Booleans]
    """Success of each question, shape (n,). `document`: the document is in the top k hits; `chunk`:
    the whole sentence is in their texts. `chunk` is missing if no hit has a text or offsets.
    """
    has_chunks: bool
    """True if any hit is a chunk."""
    problems: tuple[str, ...]
    """Warnings about unusable hits and misplaced chunks, each with a count and an example."""

    @property
    def successful_questions(self) -> list[IndexQuestion]:
        """The questions that retrieved their document."""
        return list(compress(self.questions, self.success[DOCUMENT]))


def judge_answers(
    texts: IndexedTexts,
    planned_questions: Sequence[IndexQuestion],
    journal: Journal,
    rules: AlignmentRules,
    settings: CollectionSettings,
) -> JudgedAnswers:
    """Check whether each answered question retrieved its document and its sentence."""
    questions = [question for question in planned_questions if question.key in journal.answers]
    found_document = []
    found_sentence = []
    has_locatable_chunks = False
    has_chunks = False
    unknown_hits = []
    misplaced_chunks = []
    hit_counts: set[int] = set()
    for question in questions:
        answer = journal.answers[question.key].hits
        hit_counts.add(len(answer))
        # Scores may be distances, where lower is better.
        hits = rules.resolve_hits(sort_hits(answer, None)[: settings.k], texts.ids)
        text = texts.questions.documents[question.document]
        locator = TextLocator(text)
        spans = []
        for hit in hits:
            has_chunks |= bool(hit.chunk)
            if hit.document not in texts.ids:
                unknown_hits.append((question.id, hit.document))
            chunk = ChunkKey(hit.document, hit.text, hit.start, hit.end, None)
            if hit.document != question.document or not chunk.is_locatable:
                continue
            has_locatable_chunks = True
            # The indexed text may be slightly longer, for example by a trailing space.
            end = chunk.end and min(chunk.end, len(text))
            span = chunk._replace(end=end).locate(locator, START)
            if span is None:
                misplaced_chunks.append((question.id, chunk.describe(len(text))))
            else:
                spans.append(span)
        found_document.append(any(hit.document == question.document for hit in hits))
        found_sentence.append(not has_uncovered_words(question.sentence, spans, text))
    success = {DOCUMENT: np.array(found_document, np.bool_)}
    if has_locatable_chunks:
        success[CHUNK] = np.array(found_sentence, np.bool_)
    problems = []
    if len(hit_counts) == 1 and 1 < max(hit_counts) < min(settings.k, len(texts.ids)):
        problems.append(describe_fixed_k(max(hit_counts), settings.k))
    if rules.document_names and rules.document_names.matches:
        problems.append(rules.document_names.describe())
    unknown = (f"hit is no document of {texts.name}", f"hits are not documents of {texts.name}")
    misplaced = (
        "retrieved chunk is not in its document",
        "retrieved chunks are not in their document",
    )
    problems += _warn_about_cases(unknown, unknown_hits)
    problems += _warn_about_cases(misplaced, misplaced_chunks)
    return JudgedAnswers(questions, success, has_chunks or has_locatable_chunks, tuple(problems))


def _warn_about_cases(problem: tuple[str, str], cases: Sequence[tuple[str, str]]) -> list[str]:
    """Describe the cases of a problem, given in singular and plural."""
    if not cases:
        return []
    question, reason = cases[0]
    example = f"{sanitize(question)}: {sanitize(reason, 200)}"
    return [f"{pluralize(len(cases), *problem)}, for example in question {example}."]


@dataclass(frozen=True)
class RecallRow:
    """Recall at k for sentences from one part of the documents, in one wording."""

    wording: str
    unit: str
    """`document` or `chunk`."""
    part: str
    """A third of the documents, or the part within or beyond the embedder's window."""
    questions: int
    documents: int
    recall: Estimate | None
    """Recall in [0, 1], or None if there are no questions."""


def summarize_recall(
    judgments: JudgedAnswers, twelfths: Mapping[str, int]
) -> tuple[tuple[RecallRow, ...], tuple[ChangeRow, ...]]:
    """Compute recall by position and its differences within documents.

    Args:
        judgments: The judged answers. Documents that their opening words do not retrieve are
            excluded.
        twelfths: Result of `IndexedTexts.locate_in_window`.

    Returns:
        Recall by wording, unit and part, and the differences between parts; the baseline of a
        difference is the later part.
    """
    recall_rows = []
    changes = []
    indexed_documents = {
        question.document for question in judgments.successful_questions if question.is_opening
    }
    rows_by_wording = defaultdict[str, list[int]](list)
    for row, question in enumerate(judgments.questions):
        if not question.is_opening and question.document in indexed_documents:
            rows_by_wording[question.subset].append(row)
    for wording, rows in rows_by_wording.items():
        questions = [judgments.questions[row] for row in rows]
        names, documents = np.unique(
            [question.document for question in questions], return_inverse=True
        )
        thirds = np.array([question.third for question in questions])
        masks = {part: thirds == third for third, part in enumerate(THIRDS)}
        pairs = [(THIRDS[0], THIRDS[-1])]
        if twelfths:
            positions = np.array([twelfths[question.id] for question in questions])
            masks |= {WITHIN_WINDOW: positions < TWELFTHS, TRUNCATED: positions >= TWELFTHS}
            pairs.append((WITHIN_WINDOW, TRUNCATED))
        for unit, success in judgments.success.items():
            gains = success[rows].astype(np.float64)
            for part, mask in masks.items():
                clusters = documents[mask]
                recall = estimate_mean(gains[mask], clusters)
                counts = (len(clusters), len(np.unique(clusters)))
                recall_rows.append(RecallRow(wording, unit, part, *counts, recall))
            for first, last in pairs:
                columns = np.stack([masks[first], masks[last]], axis=1).astype(np.float64)
                # Documents are fixed effects, so recall is compared within documents.
                regression = Regression.fit(gains, columns, documents, documents)
                difference = regression.contrast(np.array([1.0, -1.0])) if regression else None
                subject = ChangeSubject(
                    baseline=last,
                    model=first,
                    task=f"{unit}, {Wording(wording).label}",
                    queries=len(questions),
                    documents=len(names),
                )
                change = decide_change(Metric.RECALL, difference, MARGIN, len(names), level=LEVEL)
                changes.append(replace(change, subject=subject))
    return tuple(recall_rows), tuple(changes)


@dataclass(frozen=True, repr=False, kw_only=True)
class IndexInspection(Result):
    """The recall of a running index by position. Each row is a `RecallRow`."""

    retriever: str
    source: str
    k: int
    answered: int
    planned: int
    """Number of planned questions, at most `max_requests`."""
    possible: int
    """Total number of questions about the texts."""
    documents: int
    """Number of documents queried by their opening words."""
    returned: Estimate | None
    """Share of these documents that at least one of their questions retrieved."""
    not_in_index: tuple[str, ...]
    """Documents that none of their questions retrieved."""
    read: ReadPart
    """The embedder's window."""
    changes: tuple[ChangeRow, ...]
    """Differences in recall between parts of the documents."""
    problems: tuple[str, ...]
    """Warnings about questions and hits, each with a count and an example."""
    skipped: str
    """A note about skipped texts; may be empty."""
    reading: str = ""
    """A note about the retriever calls and the hit format."""
    unfinished: str = ""
    """File with the answers so far; empty if all questions have an answer."""
    written: tuple[str, ...] = ()
    """Folders with the questions."""


def _build_sections(inspection: IndexInspection) -> Iterator[DisplaySection]:
    documents = pluralize(inspection.documents, "document")
    summary = (
        f"{inspection.retriever} answered {inspection.answered:,} of "
        f"{pluralize(inspection.planned, 'question')} about {documents} of {inspection.source}, "
        f"with at most {pluralize(inspection.k, 'hit')} each."
    )
    if inspection.possible > inspection.planned:
        summary += f" {inspection.possible:,} questions are possible (limit: --max-requests)."
    sentences = [summary, inspection.reading]
    if inspection.unfinished:
        sentences.append(f"Run the same command again to continue from {inspection.unfinished}.")
    yield DisplaySection(sentences=tuple(filter(None, sentences)))
    returned_count = inspection.documents - len(inspection.not_in_index)
    share = format_percentage(inspection.returned)
    sentences = [f"{returned_count:,} of {documents} came back, {share}."]
    if inspection.not_in_index:
        names = ", ".join(map(sanitize, inspection.not_in_index[:MAX_LISTED_DOCUMENTS]))
        others = len(inspection.not_in_index) - MAX_LISTED_DOCUMENTS
        more = f" and {others:,} more" if others > 0 else ""
        sentences.append(f"Missing, since no question retrieves them: {names}{more}.")
    yield DisplaySection("Which documents are in the index", (*sentences, inspection.skipped))
    changes = defaultdict[str, list[str]](list)
    for change in inspection.changes:
        changes[change.subject.model].append(describe_recall_change(change))
    recall = [
        describe_tail_recall(f"{row.unit}, {Wording(row.wording).label}", row.recall, row.questions)
        for row in inspection.rows
        if row.part == THIRDS[-1]
    ]
    charts = _build_charts(inspection)
    if charts:
        yield DisplaySection(
            sentences=(charts[0].finding,), position_charts=charts, only=Medium.TEXT
        )
        yield DisplaySection(position_charts=charts, only=Medium.PAGE)
    tables = (_build_table(inspection),) if recall else ()
    if not recall:
        recall = ["Not measured: no question is about a sentence of a retrieved document."]
    # The finding above already shows the first change.
    recall += changes[THIRDS[0]][1:]
    yield DisplaySection("Are document endings found?", tuple(recall), tables)
    if changes[WITHIN_WINDOW]:
        window = f"The embedder reads {inspection.read.phrase} of each indexed text."
        yield DisplaySection("What the embedder truncates", (window, *changes[WITHIN_WINDOW]))
    if inspection.problems:
        yield DisplaySection("Problems with questions and hits", inspection.problems)
    advice = join_steps(advise_index(next(iter(inspection.changes), None)))
    # On a page, the chart already contains the advice.
    yield DisplaySection(ADVICE_HEADING, (advice,), only=Medium.TEXT if charts else None)


def _build_charts(inspection: IndexInspection) -> tuple[PositionChart, ...]:
    """Build the chart of recall by third for the first wording and unit, if there are questions."""
    if not inspection.changes:
        return ()
    change = inspection.changes[0]
    finding = describe_recall_change(change)
    # The first rows cover the first wording and unit.
    rows = inspection.rows[: len(THIRDS)]
    indexed_count = inspection.documents - len(inspection.not_in_index)
    facts = (
        Fact("Documents in the index", f"{indexed_count:,} of {inspection.documents:,}"),
        Fact("Sentences tested", f"{sum(row.questions for row in rows):,}"),
    )
    chart = PositionChart(
        inspection.retriever,
        (f"first {pluralize(inspection.k, 'hit')}", finding),
        tuple(row.recall for row in rows),
        finding=finding,
        facts=lambda: facts,
        steps=advise_index(change),
        steps_title=ADVICE_HEADING,
        scale=RECALL_SCALE,
        part_names=THIRDS,
        is_in_title=True,
    )
    return (chart,)


def _format_page_title(name: str, rows: Sequence[RecallRow]) -> str:
    """Add recall in the first and last third to the name, if both are known."""
    estimates = [row.recall for row in rows[: len(THIRDS) : 2] if row.recall]
    if len(estimates) < 2:
        return name
    first, last = (f"{estimate.value:.0%}" for estimate in estimates)
    return RECALL_TITLE.format(name=name, first=first, last=last)


def _build_table(inspection: IndexInspection) -> Table:
    cells = defaultdict[tuple[str, str, str], list[str]](list)
    for row in inspection.rows:
        key = (Wording(row.wording).label, row.part, format_count(row.questions))
        cells[key].append(format_estimate(row.recall, format_percent))
    recall_headings = dict.fromkeys(
        f"{row.unit.capitalize()} in top {inspection.k}" for row in inspection.rows
    )
    headings = ("Wording", "Sentences in the", "Asked", *recall_headings)
    rows = tuple((*key, *recall_cells) for key, recall_cells in cells.items())
    return Table(build_columns(headings, headings[2:]), rows, keys=2)


def inspect_index(
    search: Any,
    dataset: Dataset,
    open_writer: Callable[[Sequence[str]], QuestionWriter | None],
    settings: CollectionSettings,
    options: IndexOptions,
) -> IndexInspection:
    """Inspect an index with questions about its texts.

    Answers are saved in a journal, so that a later call can resume. The journal is removed once all
    questions have an answer.

    Raises:
        PosirError: No question has an answer, or none of the first hits is one of the documents.
    """
    search = open_retriever(search, has_embedder=options.embedder is not None)
    name = name_retriever(search)
    search = add_embedder(search, options.embedder, options.window)
    rules = AlignmentRules(
        requires_all=False, separator=options.separator, document_names=DocumentNames()
    )
    texts = read_index(dataset, options, open_writer)
    all_questions = plan_questions(texts.questions, texts.wordings)
    planned_questions = all_questions[: options.max_requests]
    folders = texts.write_questions(options.folder, planned_questions) if options.folder else ()
    queries = (part for question in all_questions for part in (*question.key, question.text))
    key = digest(*queries, settings.k, settings.document_field).hex()
    file = settings.folder / f"{to_file_name(name)}-{key}.unfinished.jsonl"
    corpora = dict.fromkeys((OPENING, *texts.wordings), texts.ids)
    with closing(Journal(file)) as journal:
        answers = QueryAnswers(journal, settings, rules, corpora)
        answers.ask(search, name, planned_questions)
        if answers.problem or not answers.has_corpus_documents:
            answers.check(name, len(planned_questions))
        if not journal.answers:
            raise PosirError(
                f"{name}: no answer within {settings.max_time or 0:g} seconds (--max-time)."
            )
        judgments = judge_answers(texts, planned_questions, journal, rules, settings)
        is_finished = len(judgments.questions) == len(planned_questions)
        if is_finished:
            journal.remove()
    documents = [question.document for question in judgments.questions if question.is_opening]
    retrieved_ids = {question.document for question in judgments.successful_questions}
    is_retrieved = np.array([document in retrieved_ids for document in documents], np.float64)
    rows, changes = summarize_recall(
        judgments, {} if judgments.has_chunks else texts.locate_in_window()
    )
    reasons = [(query.id, reason) for query, reason in answers.failure_reasons.items()]
    inspection = IndexInspection(
        title=name,
        page_title=_format_page_title(name, rows),
        retriever=name,
        source=texts.name,
        k=settings.k,
        answered=len(judgments.questions),
        planned=len(planned_questions),
        possible=len(all_questions),
        documents=len(documents),
        returned=estimate_mean(is_retrieved, np.arange(len(documents))),
        not_in_index=tuple(document for document in documents if document not in retrieved_ids),
        read=texts.window,
        rows=rows,
        changes=changes,
        problems=(*_warn_about_cases(NO_ANSWER, reasons), *judgments.problems),
        skipped=texts.skip_note,
        reading=answers.retriever_description,
        unfinished="" if is_finished else str(journal.file),
        written=folders,
        details=EXPLANATION,
        footer=tuple(f"Questions with spans: {folder}" for folder in folders),
    )
    return replace(
        inspection,
        values={"rows": rows, **inspection.list_own_fields(), "read": texts.window.to_json()},
        extra_sections=tuple(_build_sections(inspection)),
    )
