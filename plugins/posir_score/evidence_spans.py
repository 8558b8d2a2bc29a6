"""Evidence spans, and scores of retrieved chunks by their character overlap with the spans.

Source: Smith & Troynikov 2024, Evaluating Chunking Strategies for Retrieval (Chroma technical
report), and its code. The report calls evidence spans excerpts and counts tokens; its code, which
this module follows, counts characters. Let C be the characters that are both in a question's
evidence and in the retrieved chunks, E the characters of the evidence, and R the characters of the
retrieved chunks, each chunk counted in full. Then recall is |C| / |E|, precision is |C| / |R|, and
IoU is |C| / (|R| + |E| - |C|). Precision Omega is the precision of retrieving exactly the chunks
that overlap or touch the evidence. It counts each character once, including evidence outside all
chunks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from posir_significance.intervals import estimate_difference
from posir_significance.observations import Floats
from posir_tasks.base.arrays import Integers
from posir_tasks.base.errors import DataError
from posir_tasks.data.copies import digest_words, find_copies, move_span
from posir_tasks.data.data import PositionData, build_text_frame
from posir_tasks.data.formats.passages import Passage, PassageQuestion, SkippedText, Use
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
DIVIDED = "split across chunks"
NOT_RETURNED = "in no returned chunk"
#: Document number of a chunk that is not located.
NOWHERE = -1
#: Units that a position is relative to, as shown after `first third`.
POSITION_UNITS = {"document": "of the document", "chunk": "of a chunk"}


@dataclass(frozen=True)
class PositionRecall:
    """Evidence recall at one position, such as the first third of the documents or the chunks."""

    name: str
    """Name of the splitter or the run."""
    place: str
    """Unit of the position: `document` or `chunk`."""
    part: str
    """One of `THIRDS`, `DIVIDED` or `NOT_RETURNED`."""
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
    """A span that answers a question, with its document number."""

    document: int
    span: Span

    @property
    def length(self) -> int:
        """Length in characters."""
        return self.span.end - self.span.start


class Coverage(NamedTuple):
    """An evidence span, divided into the spans inside chunks and the spans outside all chunks."""

    inside: list[Span]
    outside: list[Span]

    @property
    def covered(self) -> int:
        """Number of characters inside chunks."""
        return count_characters(self.inside)

    @property
    def missing(self) -> int:
        """Number of characters outside all chunks."""
        return count_characters(self.outside)

    def lacks_words(self, text: str) -> bool:
        """Return True if a letter or digit is outside all chunks. Splitters may drop spaces."""
        return any(character.isalnum() for span in self.outside for character in span.of(text))


def divide_span(span: Span, chunks: Iterable[Sequence[int]]) -> Coverage:
    """Divide a span into the parts inside and outside the given chunks of the same document."""
    inside: list[Span] = []
    outside: list[Span] = []
    position = span.start
    for chunk in merge_spans(chunks):
        start = max(span.start, chunk.start)
        end = min(span.end, chunk.end)
        if start >= end:
            continue
        inside.append(Span(start, end))
        if position < start:
            outside.append(Span(position, start))
        position = end
    if position < span.end:
        outside.append(Span(position, span.end))
    return Coverage(inside, outside)


def count_characters(spans: Iterable[Span]) -> int:
    """Count the characters in spans that do not overlap."""
    return sum(span.end - span.start for span in spans)


def merge_spans(spans: Iterable[Sequence[int]]) -> list[Span]:
    """Sort spans, and merge spans that overlap or touch."""
    union: list[Span] = []
    for start, end in sorted(map(tuple, spans)):
        if union and start <= union[-1].end:
            union[-1] = Span(union[-1].start, max(union[-1].end, end))
        else:
            union.append(Span(start, end))
    return union


@dataclass(frozen=True, eq=False)
class ChunkSpans:
    """Documents, spans and lengths of n chunks."""

    documents: Integers
    """Document number of each chunk, shape (n,); `NOWHERE` if the chunk is not located."""
    spans: Integers
    """Start and end of each chunk, shape (n, 2)."""
    lengths: Integers
    """Length of each chunk in characters, shape (n,)."""

    @classmethod
    def build(
        cls, documents: Iterable[int], spans: Sequence[Span | None], lengths: Sequence[int]
    ) -> ChunkSpans:
        """Build the arrays. A chunk without a span gets the document number `NOWHERE`."""
        pairs = zip(documents, spans, strict=True)
        owners = [NOWHERE if span is None else document for document, span in pairs]
        array = np.array([span or (0, 0) for span in spans], np.int64).reshape(-1, 2)
        return cls(np.array(owners, np.int64), array, np.array(lengths, np.int64))

    def select(self, rows: Integers) -> ChunkSpans:
        """Select chunks by row."""
        return ChunkSpans(self.documents[rows], self.spans[rows], self.lengths[rows])

    def list_spans(self, document: int) -> list[list[int]]:
        """List the spans of a document's chunks."""
        spans: list[list[int]] = self.spans[self.documents == document].tolist()
        return spans


def score_retrieved(
    evidence: Sequence[EvidenceSpan], retrieved: ChunkSpans
) -> tuple[float, float, float]:
    """Compute IoU, recall and precision of the chunks retrieved for a question.

    Overlapping evidence is counted as in the report's code: the lengths of all spans are summed,
    while characters inside chunks are counted once.
    """
    covered = 0
    missing = 0
    for document, spans in _group_by_document(evidence):
        chunks = retrieved.list_spans(document)
        covered += sum(divide_span(span, chunks).covered for span in merge_spans(spans))
        missing += sum(divide_span(span, chunks).missing for span in spans)
    length = int(retrieved.lengths.sum())
    total = sum(span.length for span in evidence)
    return covered / (length + missing), covered / total, covered / length if length else 0.0


def compute_precision_omega(evidence: Sequence[EvidenceSpan], chunks: ChunkSpans) -> float:
    """Compute precision Omega of all chunks of a splitter for a question.

    A chunk that ends where an evidence span starts touches the span.
    """
    covered = 0
    total = 0
    for document, spans in _group_by_document(evidence):
        near = [
            (start, end)
            for start, end in chunks.list_spans(document)
            if any(start <= span.end and span.start <= end for span in spans)
        ]
        covered += sum(divide_span(span, near).covered for span in merge_spans(spans))
        total += count_characters(merge_spans([*near, *spans]))
    return covered / total


def _group_by_document(evidence: Iterable[EvidenceSpan]) -> Iterable[tuple[int, list[Span]]]:
    by_document: dict[int, list[Span]] = {}
    for span in evidence:
        by_document.setdefault(span.document, []).append(span.span)
    return by_document.items()


@dataclass(frozen=True)
class EvidenceData:
    """Questions with their evidence spans, and the documents that contain the spans."""

    name: str
    documents: dict[str, str]
    """Texts by document id. A document's number is its index."""
    questions: tuple[tuple[str, tuple[EvidenceSpan, ...]], ...]
    """Text and evidence spans of each question. Every question has at least one span."""
    articles: Integers
    """Article number of each document, shape (documents,). Documents from the same article share a
    text, a title or an opening.
    """
    skipped: int
    """Number of questions without evidence in their document."""
    ids: tuple[tuple[str, str], ...] = ()
    """Subset and id of each question, if the questions are queries of a task."""
    within: bool = False
    """If true, only the question's own document is searched."""

    @classmethod
    def from_positions(cls, name: str, subsets: Mapping[str, PositionData]) -> EvidenceData:
        """Collect the queries of a task's subsets with their evidence."""
        documents: dict[str, str] = {}
        titles: dict[str, str] = {}
        texts: dict[tuple[str, str], str] = {}
        evidence: dict[tuple[str, str], list[EvidenceSpan]] = {}
        for subset, data in subsets.items():
            ids = data.evidence.document_ids
            relevant = select_documents(data.corpus, ids)
            documents |= {f"{subset}/{document}": row["text"] for document, row in relevant.items()}
            pairs = zip(ids, data.evidence.clusters, strict=False)
            titles |= {f"{subset}/{document}": title for document, title in pairs}
            numbers = {document: number for number, document in enumerate(documents)}
            for row_id, text, document, span in data.list_questions():
                if span is None or span.start == span.end or row_id in data.unpositioned:
                    continue
                query = data.places[row_id].query if row_id in data.places else row_id
                texts.setdefault((subset, query), text)
                evidence_span = EvidenceSpan(numbers[f"{subset}/{document}"], span)
                evidence.setdefault((subset, query), []).append(evidence_span)
        questions = tuple((texts[key], tuple(spans)) for key, spans in evidence.items())
        articles = _find_articles(documents, titles)
        return cls(name, documents, questions, articles, skipped=0, ids=tuple(evidence))

    @cached_property
    def owners(self) -> Integers:
        """Document number of each question's first evidence span, shape (questions,)."""
        return np.array([evidence[0].document for _, evidence in self.questions], np.int64)

    @cached_property
    def clusters(self) -> Integers:
        """Article number of each question, shape (questions,). Questions about the same article are
        not independent.
        """
        return self.articles[self.owners]


def _find_articles(documents: Mapping[str, str], titles: Mapping[str, str]) -> Integers:
    if not documents:
        return np.zeros(0, np.int64)
    return link_documents(digest_documents([*documents], titles, documents).T)


def read_evidence_data(
    opened: Dataset, *, repair: bool = True, is_merged: bool = False
) -> EvidenceData:
    """Read questions with all their evidence spans.

    Args:
        opened: The data.
        repair: Move an answer that is not at its offset to its only match nearby.
        is_merged: Merge documents with the same text.

    Raises:
        DataError: No question has an evidence span.
    """
    documents: dict[str, str] = {}
    titles: dict[str, str] = {}
    numbers: dict[str, int] = {}
    evidence: dict[tuple[str, str, str], list[EvidenceSpan]] = {}
    skipped_questions: set[tuple[str, str]] = set()
    originals: dict[bytes, str] = {}
    generated_ids: dict[str, str] = {}
    passages = (item for subset in opened.subsets for item in subset.read_passages())
    items, notes = prepare_offsets(passages, repair=repair)
    for note in notes:
        logger.warning("%s: %s", opened.name, note)
    for item in items:
        if isinstance(item, SkippedText) and item.file:
            skipped_questions.add((item.file, item.name))
        if not isinstance(item, Passage):
            continue
        # Rows without ids belong to the same document if their texts are equal.
        name = item.id or generated_ids.setdefault(item.text, f"{item.name}#{len(documents)}")
        if is_merged:
            name = originals.setdefault(digest_words(item.text), name)
        number = numbers.setdefault(name, len(documents))
        text = documents.setdefault(name, item.text)
        titles[name] = titles.get(name) or item.title
        for question in item.questions:
            span = _locate(question, item.text, text, repair=repair)
            spans = evidence.setdefault((question.file, question.name, question.text), [])
            # Copies of a document may repeat a span.
            if span is not None and not (is_merged and EvidenceSpan(number, span) in spans):
                spans.append(EvidenceSpan(number, span))
    questions = tuple((text, tuple(spans)) for (_, _, text), spans in evidence.items() if spans)
    if not questions:
        raise DataError(f"{opened.location} ({opened.kind}): no question has an evidence span.")
    if opened.is_recognized:
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
        within=opened.use is not Use.CORPUS,
    )
    _warn_about_copies(data)
    return data


def _locate(question: PassageQuestion, text: str, original: str, *, repair: bool) -> Span | None:
    """Locate a question's answer in its text. If the text is a copy, map the span to `original`."""
    if question.answer is None:
        return None
    try:
        span = find_answer(question, text, repair=repair).span
    except ValueError:
        return None
    return span if text == original else move_span(span, text, original)


def _warn_about_copies(data: EvidenceData) -> None:
    names = [*data.documents]
    corpus = build_text_frame(names, [*data.documents.values()])
    relevant = {names[span.document] for _, evidence in data.questions for span in evidence}
    copies = find_copies(corpus, relevant)
    if copies:
        logger.warning("%s: %s", data.name, copies.describe())


def find_chunk_third(span: Span, chunks: Iterable[Sequence[int]]) -> str:
    """Find the third of a chunk that contains a span; `DIVIDED` if no chunk contains all of it."""
    whole = [(start, end) for start, end in chunks if start <= span.start and span.end <= end]
    if not whole:
        return DIVIDED
    # If chunks overlap, take the chunk whose middle is nearest.
    start, end = min(whole, key=lambda chunk: abs(sum(chunk) / 2 - span.middle))
    return THIRDS[find_third(Span(span.start - start, span.end - start), end - start)]


def build_position_recalls(
    name: str, data: EvidenceData, recalls: Sequence[float], chunk_thirds: Sequence[str]
) -> Iterator[PositionRecall]:
    """Yield mean recall by third of the document and the chunk, with intervals for new questions.

    Args:
        name: Name of the splitter or the run.
        data: The questions with their evidence.
        recalls: Recall of each evidence span, in the order of the questions.
        chunk_thirds: The third of a chunk that contains each span, `DIVIDED` or `NOT_RETURNED`.
    """
    texts = [*data.documents.values()]
    question_numbers = []
    thirds = []
    for number, (_, evidence) in enumerate(data.questions):
        for span in evidence:
            question_numbers.append(number)
            thirds.append(THIRDS[find_third(span.span, len(texts[span.document]))])
    values = np.array(recalls)
    questions = np.array(question_numbers)
    for unit, positions in zip(POSITION_UNITS, (thirds, chunk_thirds), strict=True):
        for position in (*THIRDS, DIVIDED, NOT_RETURNED):
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
