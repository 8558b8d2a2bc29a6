"""Evidence spans, and scores of retrieved chunks by their character overlap with the spans.

Source: Smith & Troynikov 2024, Evaluating Chunking Strategies for Retrieval (Chroma technical
report), and its code. The report calls evidence spans excerpts and counts tokens. This module
follows the code, which counts characters. Let E be the characters of a question's evidence, R the
characters of the retrieved chunks (overlapping chunks are counted in full), and C the characters in
both. Then recall is |C| / |E|, precision is |C| / |R|, and IoU is |C| / (|R| + |E| - |C|).
Precision Omega is the precision of retrieving exactly the chunks that overlap or touch the
evidence. It counts each character once, including evidence outside all chunks.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from posir_significance.intervals import estimate_difference
from posir_significance.observations import Floats
from posir_tasks.base.arrays import Booleans, Integers
from posir_tasks.base.errors import DataError
from posir_tasks.data.copies import digest_words, find_copies, move_span
from posir_tasks.data.data import PositionData, build_text_frame
from posir_tasks.data.formats.passages import Passage, PassageQuestion, SearchScope, SkippedItem
from posir_tasks.data.questions import find_answer, prepare_offsets
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.display.numbers import format_estimate, format_percent
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.search.scoring import select_documents
from posir_tasks.text.spans import Span, find_third
from posir_tasks.values.document_keys import digest_documents, link_documents
from posir_tasks.values.estimates import Estimate

logger = logging.getLogger(__name__)

THIRDS = ("first third", "second third", "last third")
SPLIT = "split across chunks"
NOT_RETURNED = "in no returned chunk"
#: Phrases after `first third`, by unit of the position.
POSITION_UNITS = {"document": "of the document", "chunk": "of a chunk"}


@dataclass(frozen=True)
class PositionRecall:
    """Evidence recall at one position, such as the first third of the documents or the chunks."""

    name: str
    """Name of the splitter or the run."""
    place: str
    """What the position is relative to: `document` or `chunk`."""
    part: str
    """One of `THIRDS`, `SPLIT` or `NOT_RETURNED`."""
    spans: int
    """Number of evidence spans."""
    recall: Estimate

    @property
    def title(self) -> str:
        """The position in words: `first third of the document`."""
        if not self.part.endswith("third"):
            return self.part
        return f"{self.part} {POSITION_UNITS[self.place]}"


@dataclass(frozen=True)
class EvidenceSpan:
    """A span that answers a question."""

    document: str
    """Document id."""
    span: Span

    @property
    def length(self) -> int:
        """Length in characters."""
        return self.span.end - self.span.start


class LocatedChunk(NamedTuple):
    """A chunk of a document."""

    document: str
    """Document id."""
    span: Span | None
    """None if the chunk was not found in its document."""
    length: int
    """Length in characters."""


def find_covered(span: Span, chunks: Iterable[Sequence[int]]) -> Booleans:
    """Return a mask of the characters of a span that are in chunks, shape (characters,)."""
    covered = np.zeros(span.end - span.start, np.bool_)
    for start, end in chunks:
        covered[max(start - span.start, 0) : max(end - span.start, 0)] = True
    return covered


def has_uncovered_words(span: Span, chunks: Iterable[Sequence[int]], text: str) -> bool:
    """Return True if a letter or digit of a span is outside all chunks. Other characters do not
    count, since splitters may drop spaces.
    """
    pairs = zip(span.slice(text), find_covered(span, chunks), strict=False)
    return any(character.isalnum() and not is_covered for character, is_covered in pairs)


def group_spans(items: Iterable[EvidenceSpan | LocatedChunk]) -> Mapping[str, list[Span]]:
    """Group spans by document id."""
    by_document = defaultdict(list)
    for item in items:
        if item.span:
            by_document[item.document].append(item.span)
    return by_document


def score_retrieved(
    evidence: Sequence[EvidenceSpan], retrieved: Sequence[LocatedChunk]
) -> tuple[float, float, float]:
    """Compute IoU, recall and precision of the chunks retrieved for a question.

    Overlapping evidence spans are counted as in the report's code: their lengths are summed, but
    characters in chunks count once.
    """
    covered = 0
    missing = 0
    chunks = group_spans(retrieved)
    for document, spans in group_spans(evidence).items():
        extent = Span(0, max(span.end for span in spans))
        is_retrieved = find_covered(extent, chunks.get(document, ()))
        covered += int((find_covered(extent, spans) & is_retrieved).sum())
        missing += sum(int((~is_retrieved[slice(*span)]).sum()) for span in spans)
    length = sum(chunk.length for chunk in retrieved)
    total = sum(span.length for span in evidence)
    return covered / (length + missing), covered / total, covered / length if length else 0.0


def compute_precision_omega(
    evidence: Sequence[EvidenceSpan], chunks: Mapping[str, Sequence[Span]]
) -> float:
    """Compute precision Omega of a splitter for a question.

    Args:
        evidence: The evidence of the question.
        chunks: All chunks by document id. A chunk that ends where an evidence span starts touches
            the span.
    """
    covered = 0
    total = 0
    for document, spans in group_spans(evidence).items():
        relevant = [
            chunk
            for chunk in chunks.get(document, ())
            if any(chunk.start <= span.end and span.start <= chunk.end for span in spans)
        ]
        extent = Span(0, max(span.end for span in (*relevant, *spans)))
        is_evidence = find_covered(extent, spans)
        is_retrieved = find_covered(extent, relevant)
        covered += int((is_evidence & is_retrieved).sum())
        total += int((is_evidence | is_retrieved).sum())
    return covered / total


@dataclass(frozen=True)
class EvidenceData:
    """Questions with their evidence spans, and the documents that contain the spans."""

    name: str
    documents: dict[str, str]
    """Texts by document id."""
    questions: Sequence[tuple[str, Sequence[EvidenceSpan]]]
    """Text and evidence spans of each question. Every question has at least one span."""
    articles: Mapping[str, int]
    """Article number by document id. Documents with the same text, title or opening belong to one
    article.
    """
    skipped: int
    """Number of questions whose evidence was not found."""
    ids: Sequence[tuple[str, str]] = ()
    """Subset and id of each question; only for the queries of a run."""
    within_document: bool = False
    """If true, only the question's own document is searched."""

    @classmethod
    def from_positions(cls, name: str, subsets: Mapping[str, PositionData]) -> EvidenceData:
        """Collect the queries of a task's subsets with their evidence."""
        documents: dict[str, str] = {}
        titles: dict[str, str] = {}
        texts = {}
        evidence = defaultdict(list)
        for subset, data in subsets.items():
            ids = data.evidence.document_ids
            relevant = select_documents(data.corpus, ids)
            documents |= {f"{subset}/{document}": row["text"] for document, row in relevant.items()}
            pairs = zip(ids, data.evidence.clusters, strict=False)
            titles |= {f"{subset}/{document}": title for document, title in pairs}
            for row_id, text, document, span in data.list_questions():
                if span is None or span.start == span.end or row_id in data.unpositioned:
                    continue
                query = data.places[row_id].query if row_id in data.places else row_id
                texts[subset, query] = text
                evidence_span = EvidenceSpan(f"{subset}/{document}", span)
                evidence[subset, query].append(evidence_span)
        questions = [(texts[key], spans) for key, spans in evidence.items()]
        articles = _find_articles(documents, titles)
        return cls(name, documents, questions, articles, skipped=0, ids=[*evidence])

    @property
    def span_count(self) -> int:
        """Number of evidence spans."""
        return sum(len(evidence) for _, evidence in self.questions)

    @cached_property
    def question_documents(self) -> Sequence[str]:
        """Document id of each question's first evidence span."""
        return [evidence[0].document for _, evidence in self.questions]

    @cached_property
    def clusters(self) -> Integers:
        """Article number of each question, shape (questions,). Questions about one article are not
        independent.
        """
        return np.array([self.articles[document] for document in self.question_documents], np.int64)


def _find_articles(documents: Mapping[str, str], titles: Mapping[str, str]) -> Mapping[str, int]:
    if not documents:
        return {}
    articles = link_documents(digest_documents([*documents], titles, documents).T)
    return dict(zip(documents, articles.tolist(), strict=True))


def read_evidence_data(
    opened: Dataset, *, repair: bool = True, merge_copies: bool = False
) -> EvidenceData:
    """Read questions with all their evidence spans.

    Args:
        opened: The data.
        repair: Move an answer that is not at its offset to its only match nearby.
        merge_copies: Merge documents with the same text.

    Raises:
        DataError: No question has an evidence span.
    """
    documents: dict[str, str] = {}
    titles: dict[str, str] = {}
    evidence: dict[tuple[str, str, str], list[EvidenceSpan]] = {}
    skipped_questions = set()
    originals: dict[bytes, str] = {}
    generated_ids: dict[str, str] = {}
    passages = (item for subset in opened.subsets for item in subset.read_passages())
    items, notes = prepare_offsets(passages, repair=repair)
    for note in notes:
        logger.warning("%s: %s", opened.name, note)
    for item in items:
        if isinstance(item, SkippedItem) and item.file:
            skipped_questions.add((item.file, item.name))
        if not isinstance(item, Passage):
            continue
        # Rows without ids are one document if their texts are equal.
        name = item.id or generated_ids.setdefault(item.text, f"{item.name}#{len(documents)}")
        if merge_copies:
            name = originals.setdefault(digest_words(item.text), name)
        text = documents.setdefault(name, item.text)
        titles[name] = titles.get(name) or item.title
        for question in item.questions:
            span = _locate(question, item.text, text, repair=repair)
            spans = evidence.setdefault((question.file, question.name, question.text), [])
            # Copies of a document may repeat a span.
            if span is not None and not (merge_copies and EvidenceSpan(name, span) in spans):
                spans.append(EvidenceSpan(name, span))
    questions = [(text, spans) for (_, _, text), spans in evidence.items() if spans]
    if not questions:
        raise DataError(f"{opened.location} ({opened.kind}): no question has an evidence span.")
    if opened.has_inferred_scope:
        logger.warning(
            "%s: %s; each question searches only its own document (--scope).",
            opened.name,
            opened.repeated.describe(),
        )
    data = EvidenceData(
        opened.name,
        documents,
        questions,
        _find_articles(documents, titles),
        skipped=len(skipped_questions) + len(evidence) - len(questions),
        within_document=opened.search_scope is not SearchScope.CORPUS,
    )
    _warn_about_copies(data)
    return data


def _locate(question: PassageQuestion, text: str, original: str, *, repair: bool) -> Span | None:
    """Locate a question's answer in its text, and map the span to `original` if texts differ."""
    if not question.answers:
        return None
    try:
        span = find_answer(question, text, repair=repair).span
    except ValueError:
        return None
    return span if text == original else move_span(span, text, original)


def _warn_about_copies(data: EvidenceData) -> None:
    corpus = build_text_frame([*data.documents], [*data.documents.values()])
    relevant = {span.document for _, evidence in data.questions for span in evidence}
    copies = find_copies(corpus, relevant)
    if copies:
        logger.warning("%s: %s", data.name, copies.describe())


def find_chunk_third(span: Span, chunks: Iterable[Sequence[int]]) -> str:
    """Return the third of a chunk that contains the whole span, or `SPLIT`."""
    matches = [(start, end) for start, end in chunks if start <= span.start and span.end <= end]
    if not matches:
        return SPLIT
    # If chunks overlap, use the chunk whose middle is closest to the middle of the span.
    start, end = min(matches, key=lambda chunk: abs(sum(chunk) / 2 - span.middle))
    return THIRDS[find_third(Span(span.start - start, span.end - start), end - start)]


def build_position_recalls(
    name: str, data: EvidenceData, recalls: Sequence[float], chunk_thirds: Sequence[str]
) -> Iterator[PositionRecall]:
    """Yield mean recall by third of the document and chunk, with intervals for new questions.

    Args:
        name: Name of the splitter or the run.
        data: The questions with their evidence.
        recalls: Recall of each evidence span, in the order of the questions.
        chunk_thirds: The third of a chunk that contains each span, `SPLIT` or `NOT_RETURNED`.
    """
    question_numbers = []
    thirds = []
    for number, (_, evidence) in enumerate(data.questions):
        for span in evidence:
            question_numbers.append(number)
            thirds.append(THIRDS[find_third(span.span, len(data.documents[span.document]))])
    values = np.array(recalls)
    questions = np.array(question_numbers)
    for unit, positions in zip(POSITION_UNITS, (thirds, chunk_thirds), strict=True):
        for position in (*THIRDS, SPLIT, NOT_RETURNED):
            rows = np.array(positions) == position
            if rows.any():
                recall = estimate_score(values[rows], questions[rows])
                yield PositionRecall(name, unit, position, int(rows.sum()), recall)


def estimate_score(values: Floats, clusters: Integers) -> Estimate:
    """Estimate the mean of scores in [0, 1], with a t interval if there are several clusters."""
    estimate = estimate_difference(values, clusters)
    interval = (max(estimate.low or 0.0, 0.0), estimate.high or 0.0) if estimate else None
    return Estimate(float(values.mean()), interval)


def build_table(text_columns: int, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Build a table whose first `text_columns` columns are text. The other columns are numbers."""
    return Table(build_columns(headings, headings[text_columns:]), tuple(map(tuple, rows)))


def format_evidence_estimate(share: Estimate) -> str:
    """Format a share and its interval in percent."""
    return format_estimate(share, format_percent)
