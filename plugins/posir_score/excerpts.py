"""Excerpts that answer questions, and the scores of retrieved chunks by the characters that they
share with them.

Source: Smith & Troynikov 2024, Evaluating Chunking Strategies for Retrieval (Chroma technical
report), and its code. The report counts tokens; the code, which is followed, counts characters. Let
C be the characters that a question's excerpts share with the retrieved chunks, E those of its
excerpts and R those of the retrieved chunks, each chunk counted in full. Then recall is |C| / |E|,
precision is |C| / |R|, and IoU is |C| / (|R| + |E| - |C|). Precision Omega is the precision if just
the chunks that share or touch an excerpt were retrieved, each character counted once, and parts of
excerpts that no chunk has, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

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
from posir_tasks.search.scoring import select_relevant
from posir_tasks.text.spans import Span, find_third
from posir_tasks.values.document_keys import digest_documents, link_documents
from posir_tasks.values.estimates import Estimate

logger = logging.getLogger(__name__)

THIRDS = ("first third", "second third", "last third")
DIVIDED = "divided between chunks"
NOT_RETURNED = "in no returned chunk"
#: First character of a range, and one past its last.
Range: TypeAlias = tuple[int, int]
#: Document of a chunk that is in none.
NOWHERE = -1
#: Texts in which an excerpt has a position: its document, and the chunk that has the most of it.
PLACES = {"document": "of the document", "chunk": "of a chunk"}


@dataclass(frozen=True)
class PlaceRow:
    """The recall of the excerpts in a third of their document, or of the chunk that has the most of
    them.
    """

    name: str
    """That of the splitter or the run."""
    place: str
    """`document` or `chunk`."""
    part: str
    excerpts: int
    recall: Estimate

    @property
    def title(self) -> str:
        """The part in words: `first third of the document`."""
        return f"{self.part} {PLACES[self.place]}" if self.part.endswith("third") else self.part


@dataclass(frozen=True)
class Excerpt:
    """A span of a document that answers a question."""

    document: int
    span: Span

    @property
    def length(self) -> int:
        """Its characters."""
        return self.span.end - self.span.start


class FoundEvidence(NamedTuple):
    """An excerpt, divided into what is in chunks and what is in none."""

    inside: list[Range]
    outside: list[Range]

    @property
    def shared(self) -> int:
        """Characters in chunks."""
        return count_characters(self.inside)

    @property
    def lost(self) -> int:
        """Characters in no chunk."""
        return count_characters(self.outside)

    def lacks_words(self, text: str) -> bool:
        """Tell whether letters or digits are in no chunk; a splitter may drop what is between
        words.
        """
        return any(
            character.isalnum() for start, end in self.outside for character in text[start:end]
        )


def find_evidence(span: Span, chunks: Iterable[Sequence[int]]) -> FoundEvidence:
    """Find which parts of a span are in chunks of its document, given their spans."""
    inside = []
    outside = []
    place = span.start
    for start, end in merge(chunks):
        first = max(span.start, start)
        last = min(span.end, end)
        if first >= last:
            continue
        inside.append((first, last))
        if place < first:
            outside.append((place, first))
        place = last
    if place < span.end:
        outside.append((place, span.end))
    return FoundEvidence(inside, outside)


def count_characters(ranges: Iterable[Range]) -> int:
    """Count the characters of ranges."""
    return sum(end - start for start, end in ranges)


def merge(ranges: Iterable[Sequence[int]]) -> list[Range]:
    """Merge ranges that overlap or touch, and sort them."""
    merged: list[Range] = []
    for start, end in sorted(map(tuple, ranges)):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


@dataclass(frozen=True, eq=False)
class ChunkPlaces:
    """The places of n chunks."""

    documents: Integers
    """Number of each chunk's document, shape (n,); `NOWHERE` if it is not in its text."""
    spans: Integers
    """Start and end of each, shape (n, 2)."""
    lengths: Integers
    """Characters of each, shape (n,)."""

    @classmethod
    def build(
        cls, documents: Iterable[int], spans: Sequence[Span | None], lengths: Sequence[int]
    ) -> ChunkPlaces:
        """Build the places of chunks, of which those without a span are in no document."""
        located = zip(documents, spans, strict=True)
        owners = [NOWHERE if span is None else document for document, span in located]
        places = np.array([span or (0, 0) for span in spans], np.int64).reshape(-1, 2)
        return cls(np.array(owners, np.int64), places, np.array(lengths, np.int64))

    def list_spans(self, document: int, rows: Integers | None = None) -> list[list[int]]:
        """List the spans of the chunks of a document, in certain rows if they are given."""
        chosen = np.arange(len(self.documents)) if rows is None else rows
        spans: list[list[int]] = self.spans[chosen][self.documents[chosen] == document].tolist()
        return spans


def score_retrieved(
    excerpts: Sequence[Excerpt], chunks: ChunkPlaces, rows: Integers
) -> tuple[float, float, float]:
    """Compute IoU, recall and precision of the chunks in certain rows, retrieved for a question.

    Excerpts that overlap count as the code of the evaluation counts them: each by itself where they
    are summed, once where they are shared.
    """
    shared = 0
    missed = 0
    for document, spans in _group(excerpts):
        retrieved = chunks.list_spans(document, rows)
        shared += sum(find_evidence(span, retrieved).shared for span in _merge_spans(spans))
        missed += sum(find_evidence(span, retrieved).lost for span in spans)
    length = int(chunks.lengths[rows].sum())
    total = sum(excerpt.length for excerpt in excerpts)
    return shared / (length + missed), shared / total, shared / length if length else 0.0


def score_division(excerpts: Sequence[Excerpt], chunks: ChunkPlaces) -> float:
    """Compute precision Omega of a division for a question.

    A chunk that ends where an excerpt begins touches it.
    """
    shared = 0
    total = 0
    for document, spans in _group(excerpts):
        near = [
            (start, end)
            for start, end in chunks.list_spans(document)
            if any(start <= span.end and span.start <= end for span in spans)
        ]
        shared += sum(find_evidence(span, near).shared for span in _merge_spans(spans))
        total += count_characters(merge([*near, *spans]))
    return shared / total


def _group(excerpts: Iterable[Excerpt]) -> Iterable[tuple[int, list[Span]]]:
    by_document: dict[int, list[Span]] = {}
    for excerpt in excerpts:
        by_document.setdefault(excerpt.document, []).append(excerpt.span)
    return by_document.items()


def _merge_spans(spans: Iterable[Span]) -> list[Span]:
    return [Span(start, end) for start, end in merge(spans)]


@dataclass(frozen=True)
class ExcerptData:
    """Documents, and questions that excerpts of them answer."""

    name: str
    documents: dict[str, str]
    questions: tuple[tuple[str, tuple[Excerpt, ...]], ...]
    """Each with the excerpts that answer it, at least one."""
    articles: Integers
    """Number of each document's article: documents that share a text, a title or an opening, shape
    (documents,).
    """
    skipped: int
    """Questions without an excerpt that is in its document."""
    ids: tuple[tuple[str, str], ...] = ()
    """Subset and id of each question, if they are those of queries of a task."""
    within: bool = False
    """Whether each question is asked only of its own document."""

    @classmethod
    def from_positions(cls, name: str, parts: Mapping[str, PositionData]) -> ExcerptData:
        """Collect the queries of a task with their excerpts, and the documents of these, given its
        subsets by name.
        """
        documents: dict[str, str] = {}
        titles: dict[str, str] = {}
        texts: dict[tuple[str, str], str] = {}
        excerpts: dict[tuple[str, str], list[Excerpt]] = {}
        for subset, data in parts.items():
            relevant = select_relevant(data.corpus, data.evidence.document_ids)
            documents |= {f"{subset}/{name}": row["text"] for name, row in relevant.items()}
            stated = zip(data.evidence.document_ids, data.evidence.clusters, strict=False)
            titles |= {f"{subset}/{document}": title for document, title in stated}
            numbers = {document: number for number, document in enumerate(documents)}
            for query, text, document, span in data.list_questions():
                if span is None or span.start == span.end or query in data.unsuited:
                    continue
                owner = data.places[query].query if query in data.places else query
                texts.setdefault((subset, owner), text)
                excerpt = Excerpt(numbers[f"{subset}/{document}"], span)
                excerpts.setdefault((subset, owner), []).append(excerpt)
        questions = tuple((texts[key], tuple(found)) for key, found in excerpts.items())
        articles = _find_articles(documents, titles)
        return cls(name, documents, questions, articles, skipped=0, ids=tuple(excerpts))

    @property
    def owners(self) -> Integers:
        """Number of the document of each question's first excerpt."""
        return np.array([excerpts[0].document for _, excerpts in self.questions], np.int64)

    @property
    def clusters(self) -> Integers:
        """Number of the article of each question's first excerpt: its questions are not
        independent.
        """
        return self.articles[self.owners]


def _find_articles(documents: Mapping[str, str], titles: Mapping[str, str]) -> Integers:
    if not documents:
        return np.zeros(0, np.int64)
    return link_documents(digest_documents([*documents], titles, documents).T)


def read_excerpts(opened: Dataset, *, repair: bool = True, is_merged: bool = False) -> ExcerptData:
    """Read questions with all their excerpts.

    `repair` moves an answer to its only match nearby; `is_merged` makes documents with the same
    text one.
    """
    documents: dict[str, str] = {}
    titles: dict[str, str] = {}
    numbers: dict[str, int] = {}
    excerpts: dict[tuple[str, str, str], list[Excerpt]] = {}
    skipped: set[tuple[str, str]] = set()
    originals: dict[bytes, str] = {}
    unnamed: dict[str, str] = {}
    passages = (item for part in opened.subsets for item in part.read_passages())
    items, notes = prepare_offsets(passages, repair=repair)
    for note in notes:
        logger.warning("%s: %s", opened.name, note)
    for item in items:
        if isinstance(item, SkippedText) and item.file:
            skipped.add((item.file, item.name))
        if not isinstance(item, Passage):
            continue
        # Rows without ids that state one text are about one document.
        name = item.id or unnamed.setdefault(item.text, f"{item.name}#{len(documents)}")
        if is_merged:
            name = originals.setdefault(digest_words(item.text), name)
        number = numbers.setdefault(name, len(documents))
        text = documents.setdefault(name, item.text)
        titles[name] = titles.get(name) or item.title
        for question in item.questions:
            span = _locate(question, item.text, text, repair=repair)
            found = excerpts.setdefault((question.file, question.name, question.text), [])
            # The same place may be stated of several copies.
            if span is not None and not (is_merged and Excerpt(number, span) in found):
                found.append(Excerpt(number, span))
    questions = tuple((text, tuple(found)) for (_, _, text), found in excerpts.items() if found)
    if not questions:
        raise DataError(
            f"{opened.location} ({opened.kind}): has no questions with the span of their evidence."
        )
    if opened.is_recognized and opened.repeated:
        repeated = opened.repeated.describe()
        logger.warning(
            "%s: %s; each is asked of its own document (--scope).", opened.name, repeated
        )
    data = ExcerptData(
        opened.name,
        documents,
        questions,
        _find_articles(documents, titles),
        skipped=len(skipped) + len(excerpts) - len(questions),
        within=opened.use is not Use.CORPUS,
    )
    _warn_of_copies(data)
    return data


def _locate(question: PassageQuestion, text: str, original: str, *, repair: bool) -> Span | None:
    """Locate the answer of a question about a text in the document that the text is a copy of."""
    if question.answer is None:
        return None
    try:
        span = find_answer(question, text, repair=repair).span
    except ValueError:
        return None
    return span if text == original else move_span(span, text, original)


def _warn_of_copies(data: ExcerptData) -> None:
    names = [*data.documents]
    corpus = build_text_frame(names, [*data.documents.values()])
    relevant = {names[excerpt.document] for _, found in data.questions for excerpt in found}
    copies = find_copies(corpus, relevant)
    if copies:
        logger.warning("%s: %s", data.name, copies.describe())


def find_chunk_part(span: Span, chunks: Iterable[Sequence[int]]) -> str:
    """Find the third of a chunk that contains an excerpt, given the spans of chunks."""
    whole = [(start, end) for start, end in chunks if start <= span.start and span.end <= end]
    if not whole:
        return DIVIDED
    # Of chunks that overlap, the one in which it is nearest to the middle.
    start, end = min(whole, key=lambda chunk: abs(sum(chunk) / 2 - span.middle))
    return THIRDS[find_third(Span(span.start - start, span.end - start), end - start)]


def build_place_rows(
    name: str, data: ExcerptData, recalls: Sequence[float], parts: Sequence[str]
) -> Iterator[PlaceRow]:
    """Yield the mean recall by part of document and chunk, with intervals for new questions.

    Args:
        name: The splitter or the run.
        data: The questions with their excerpts.
        recalls: Recall of each excerpt, in the order of the questions.
        parts: The part of a chunk that contains each.
    """
    texts = [*data.documents.values()]
    questions = []
    thirds = []
    for number, (_, excerpts) in enumerate(data.questions):
        for excerpt in excerpts:
            questions.append(number)
            thirds.append(THIRDS[find_third(excerpt.span, len(texts[excerpt.document]))])
    values = np.array(recalls)
    for place, excerpt_parts in zip(PLACES, (thirds, parts), strict=True):
        for part in (*THIRDS, DIVIDED, NOT_RETURNED):
            chosen = np.array(excerpt_parts) == part
            if chosen.any():
                recall = estimate_score(values[chosen], np.array(questions)[chosen])
                yield PlaceRow(name, place, part, int(chosen.sum()), recall)


def estimate_score(values: Floats, clusters: Integers) -> Estimate:
    """Estimate the mean of scores in [0, 1] with a t interval, if there are several clusters."""
    estimate = estimate_difference(values, clusters)
    interval = (max(estimate.low or 0.0, 0.0), estimate.high or 0.0) if estimate else None
    return Estimate(float(values.mean()), interval)


def build_table(texts: int, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Build a table whose first columns are texts, and the others numbers."""
    return Table(build_columns(headings, headings[texts:]), tuple(map(tuple, rows)))


def format_evidence_estimate(share: Estimate) -> str:
    """Format a share in percent, with its interval."""
    return format_estimate(share, format_percent)
