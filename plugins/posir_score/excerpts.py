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

import datasets
import numpy as np

from posir_significance.intervals import estimate_difference
from posir_significance.observations import Floats
from posir_tasks.base.arrays import Integers
from posir_tasks.base.errors import DataError
from posir_tasks.data.copies import digest_words, find_copies, move_span
from posir_tasks.data.data import PositionData
from posir_tasks.data.formats.passages import Passage, PassageQuestion, SkippedText, Use
from posir_tasks.data.questions import find_answer, prepare_offsets
from posir_tasks.datasets.dataset import Dataset
from posir_tasks.search.scoring import select_relevant
from posir_tasks.text.spans import Span, find_third
from posir_tasks.values.document_keys import digest_documents, link_documents
from posir_tasks.values.scores import Estimate

logger = logging.getLogger(__name__)

THIRDS = ("first third", "second third", "last third")
DIVIDED, NOT_RETURNED = "divided between chunks", "in no returned chunk"
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


@dataclass(frozen=True, eq=False)
class ChunkPlaces:
    """The places of n chunks."""

    documents: Integers
    """Number of each chunk's document, shape (n,); `NOWHERE` if it is not in its text."""
    spans: Integers
    """Start and end of each, shape (n, 2)."""
    lengths: Integers
    """Characters of each, shape (n,)."""

    def list_spans(self, document: int, rows: Integers | None = None) -> Integers:
        """Return the spans of the chunks of a document, shape (m, 2); of some rows alone if they
        are given.
        """
        documents, spans = (
            (self.documents, self.spans)
            if rows is None
            else (self.documents[rows], self.spans[rows])
        )
        selected: Integers = spans[documents == document]
        return selected


def score_retrieved(
    excerpts: Sequence[Excerpt], chunks: ChunkPlaces, rows: Integers
) -> tuple[float, float, float]:
    """Return IoU, recall and precision of the chunks in some rows, retrieved for a question.

    Excerpts that overlap count as their code counts them: each by itself where they are summed,
    once where they are shared.
    """
    shared, missed, total = 0, 0, sum(len(range(*excerpt.span)) for excerpt in excerpts)
    for document in {excerpt.document for excerpt in excerpts}:
        spans = [excerpt.span for excerpt in excerpts if excerpt.document == document]
        retrieved = merge(chunks.list_spans(document, rows).tolist())
        shared += sum(
            end - start
            for start, end in merge(part for span in spans for part in _intersect(span, retrieved))
        )
        missed += sum(len(range(*span)) - count_shared(span, retrieved) for span in spans)
    length = int(chunks.lengths[rows].sum())
    return shared / (length + missed), shared / total, shared / length if length else 0.0


def score_division(excerpts: Sequence[Excerpt], chunks: ChunkPlaces) -> float:
    """Return precision Omega of a division for a question; a chunk that ends where an excerpt
    begins touches it.
    """
    shared, total = 0, 0
    for document in {excerpt.document for excerpt in excerpts}:
        spans, places = (
            [excerpt.span for excerpt in excerpts if excerpt.document == document],
            chunks.list_spans(document),
        )
        touching = np.zeros(len(places), np.bool_)
        for start, end in spans:
            touching |= (places[:, 0] <= end) & (places[:, 1] >= start)
        near = merge(places[touching].tolist())
        shared += sum(
            end - start
            for start, end in merge(part for span in spans for part in _intersect(span, near))
        )
        total += sum(end - start for start, end in merge([*near, *spans]))
    return shared / total


def count_shared(span: Span, merged: Iterable[tuple[int, int]]) -> int:
    """Return how many characters of a span are in ranges, which do not overlap."""
    return sum(end - start for start, end in _intersect(span, merged))


def subtract(span: Span, merged: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of a span that are in none of some ranges, which are in order and do not
    overlap.
    """
    inside = _intersect(span, merged)
    starts, ends = (
        [span.start, *(end for _, end in inside)],
        [*(start for start, _ in inside), span.end],
    )
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


def lacks_words(span: Span, text: str, ranges: Iterable[Sequence[int]]) -> bool:
    """Return whether letters or digits of a span of a text are in none of some ranges: between may
    be what a splitter drops.
    """
    return any(
        character.isalnum()
        for part in subtract(span, merge(ranges))
        for character in text[slice(*part)]
    )


def _intersect(span: Span, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    parts = [(max(span.start, start), min(span.end, end)) for start, end in ranges]
    return [(start, end) for start, end in parts if start < end]


def merge(ranges: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
    """Return ranges that overlap or touch as one, in order."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(map(tuple, ranges)):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


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
    """Whether each question is asked of its own document alone."""

    @classmethod
    def from_positions(cls, name: str, parts: Mapping[str, PositionData]) -> ExcerptData:
        """Return the queries of a task with their excerpts, and the documents that these are of,
        given its subsets by name.
        """
        documents: dict[str, str] = {}
        titles: dict[str, str] = {}
        questions: dict[tuple[str, str], tuple[str, list[Excerpt]]] = {}
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
                excerpt = Excerpt(numbers[f"{subset}/{document}"], span)
                questions.setdefault((subset, owner), (text, []))[1].append(excerpt)
        articles = (
            link_documents(digest_documents([*documents], titles, documents).T)
            if documents
            else np.zeros(0, np.int64)
        )
        asked = tuple((text, tuple(excerpts)) for text, excerpts in questions.values())
        return cls(name, documents, asked, articles, 0, tuple(questions))

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
    items, notes = prepare_offsets(
        (item for part in opened.subsets for item in part.read_passages()), repair=repair
    )
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
            places = excerpts.setdefault((question.file, question.name, question.text), [])
            if span is not None:
                excerpt = Excerpt(number, span)
                # The same place may be stated of several copies.
                places += [] if is_merged and excerpt in places else [excerpt]
    questions = [(text, tuple(places)) for (_, _, text), places in excerpts.items() if places]
    if not questions:
        raise DataError(
            f"{opened.location} ({opened.kind}): has no questions with the span of their evidence."
        )
    if opened.is_recognized and opened.repeated:
        logger.warning(
            "%s: %s; each is asked of its own document (--scope).",
            opened.name,
            opened.repeated.describe(),
        )
    _warn_of_copies(opened, documents, questions)
    articles = link_documents(digest_documents([*documents], titles, documents).T)
    left_out = len(skipped) + len(excerpts) - len(questions)
    return ExcerptData(
        opened.name,
        documents,
        tuple(questions),
        articles,
        left_out,
        within=opened.use is not Use.CORPUS,
    )


def _locate(question: PassageQuestion, text: str, original: str, *, repair: bool) -> Span | None:
    """Return the answer of a question about a text, in the document that it is a copy of; None if
    the text lacks it.
    """
    if question.answer is None:
        return None
    try:
        span = find_answer(question, text, repair=repair).span
    except ValueError:
        return None
    return span if text == original else move_span(span, text, original)


def _warn_of_copies(
    opened: Dataset,
    documents: Mapping[str, str],
    questions: Iterable[tuple[str, Sequence[Excerpt]]],
) -> None:
    names = [*documents]
    corpus = datasets.Dataset.from_dict({"id": names, "text": [*documents.values()]})
    if copies := find_copies(
        corpus, {names[excerpt.document] for _, excerpts in questions for excerpt in excerpts}
    ):
        logger.warning("%s: %s", opened.name, copies.describe())


def find_chunk_part(span: Span, chunks: Integers) -> str:
    """Return the third of a chunk in which an excerpt is, or that no chunk has all of it; `chunks`
    are spans, shape (n, 2).
    """
    whole = chunks[(chunks[:, 0] <= span.start) & (chunks[:, 1] >= span.end)]
    if not len(whole):
        return DIVIDED
    # Of chunks that overlap, the one in which it is nearest to the middle.
    start, end = min(whole.tolist(), key=lambda chunk: abs(sum(chunk) / 2 - span.middle))
    return THIRDS[find_third(Span(span.start - start, span.end - start), end - start)]


def build_place_rows(
    name: str, data: ExcerptData, recalls: Sequence[float], parts: Sequence[str]
) -> Iterator[PlaceRow]:
    """Yield the mean recall by part of document and chunk, with intervals for new questions.

    The recall of each excerpt and the part of a chunk that it is in are in the order of the
    questions.
    """
    excerpts = [
        (number, excerpt) for number, (_, listed) in enumerate(data.questions) for excerpt in listed
    ]
    texts, values = [*data.documents.values()], np.array(recalls)
    questions = np.array([number for number, _ in excerpts])
    thirds = [
        THIRDS[find_third(excerpt.span, len(texts[excerpt.document]))] for _, excerpt in excerpts
    ]
    for place, own in zip(PLACES, (thirds, parts), strict=True):
        for part in (*THIRDS, DIVIDED, NOT_RETURNED):
            if (chosen := np.array(own) == part).any():
                _, clusters = np.unique(questions[chosen], return_inverse=True)
                yield PlaceRow(
                    name, place, part, int(chosen.sum()), estimate_score(values[chosen], clusters)
                )


def estimate_score(values: Floats, clusters: Integers) -> Estimate:
    """Return the mean of scores in [0, 1] with a t interval, without one if there is a single
    cluster.
    """
    estimate = estimate_difference(values, clusters)
    mean = float(values.mean())
    return Estimate(
        mean, (max(estimate.low or 0.0, 0.0), estimate.high or 0.0) if estimate else None
    )
