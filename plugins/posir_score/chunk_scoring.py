"""Text splitters scored by what a model retrieves of the excerpts that answer questions, and by where these are.

Source: Smith & Troynikov 2024, Evaluating Chunking Strategies for Retrieval (Chroma technical report), and its code. The
report counts tokens; the code, which is followed, counts characters. Let C be the characters that a question's excerpts share
with the retrieved chunks, E those of its excerpts and R those of the retrieved chunks, each chunk counted in full. Then recall
is |C| / |E|, precision is |C| / |R|, and IoU is |C| / (|R| + |E| - |C|). Precision Omega is the precision if just the chunks
that share or touch an excerpt were retrieved, each character counted once, and parts of excerpts that no chunk has, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from mteb.types import PromptType

from posir_significance.decision import compare_gains
from posir_significance.intervals import estimate_difference
from posir_significance.observations import Floats
from posir_significance.sentences import describe_metric_change
from posir_tasks.display.numbers import format_count, format_estimate, format_percent
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.progress import track
from posir_tasks.display.tables import DisplaySection, Table, build_columns
from posir_tasks.display.wording import pluralize
from posir_tasks.document_keys import digest_documents, link_documents
from posir_tasks.embeddings.encoding import EmbeddingMemory, ModelEncoder
from posir_tasks.errors import DataError
from posir_tasks.evidence import Integers
from posir_tasks.scores import Estimate
from posir_tasks.search.dispatch import split_queries
from posir_tasks.sources.formats.passages import Passage, SkippedText
from posir_tasks.sources.opening import Dataset
from posir_tasks.sources.questions import find_span
from posir_tasks.text.chunks import DividedText, TextSplitter
from posir_tasks.text.spans import Span, find_third
from posir_tasks.text.tokenizer import Tokenizer

THIRDS = ("first third", "second third", "last third")
DIVIDED = "divided between chunks"
#: Most documents that have rows of their own.
MAX_DOCUMENTS = 20
#: Document of a chunk that is in none.
NOWHERE = -1


#: The scores, in the order in which they are shown, and their titles.
SCORES = {"iou": "IoU", "recall": "Recall", "precision": "Precision", "precision_omega": "Precision Omega"}
#: Texts in which an excerpt has a position: its document, and the chunk that has the most of it.
PLACES = {"document": "of the document", "chunk": "of a chunk"}
ALL_DOCUMENTS = "all"


@dataclass(frozen=True)
class ChunkerRow:
    """Mean scores of a splitter over the questions of a document, or of all, with 95 % intervals for new questions."""

    chunker: str
    document: str
    """`all`, or its id."""
    questions: int
    chunks: int
    tokens: int
    """Tokens to encode; those of a chunk beyond the model's window count too."""
    iou: Estimate
    recall: Estimate
    precision: Estimate
    precision_omega: Estimate
    for_new_documents: dict[str, Estimate] | None = None
    """The same means with intervals that hold for new documents; None unless this is the row of all."""
    in_place: dict[str, float] | None = None
    """The same means if a chunk that repeats an earlier passage counts where it is; None unless this is the row of all."""


@dataclass(frozen=True)
class PlaceRow:
    """The recall of the excerpts in a third of their document, or of the chunk that has the most of them."""

    chunker: str
    place: str
    """`document` or `chunk`."""
    part: str
    excerpts: int
    recall: Estimate


@dataclass(frozen=True, repr=False)
class ScoredChunkers(Presentable):
    """Text splitters by what a model retrieves of the excerpts that answer questions."""

    model: str
    data: str
    documents: int
    questions: int
    skipped: int
    retrieve: int
    rows: tuple[ChunkerRow, ...]
    places: tuple[PlaceRow, ...]
    changes: tuple[str, ...]
    """For recall and IoU, how each splitter changes the score of the best one, as sentences."""
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """Model and data."""
        return f"{self.model} on {self.data}"

    def sections(self) -> Sequence[DisplaySection]:
        """Return the changes and the mean scores, those by document, and recall by position."""
        counts = f"{pluralize(self.questions, 'question')} on {pluralize(self.documents, 'document')}"
        skipped = f", {pluralize(self.skipped, 'further question')} skipped" if self.skipped else ""
        overall = [row for row in self.rows if row.document == ALL_DOCUMENTS]
        means, in_place, by_document = [], [], []
        for row in overall:
            means.append((row.chunker, format_count(row.chunks), format_count(row.tokens), *_format_scores(vars(row))))
            in_place.append((row.chunker, *map(format_percent, (row.in_place or {}).values())))
            new = (row.chunker, "(new documents)", format_count(row.questions), *_format_scores(row.for_new_documents or {}))
            own = [other for other in self.rows if other.chunker == row.chunker and other is not row]
            named = ((part.document, format_count(part.questions), *_format_scores(vars(part))) for part in own)
            by_document += [new, *((row.chunker, *cells) for cells in named)]
        places = (
            (
                row.chunker,
                f"{row.part} {PLACES[row.place]}" if row.part.endswith("third") else row.part,
                format_count(row.excerpts),
                format_estimate(row.recall, format_percent),
            )
            for row in self.places
        )
        titles = SCORES.values()
        repeated = DisplaySection(
            "If chunks count where they are", self.notes, (_build_table(1, ["Chunker", *titles], in_place),)
        )
        title = f"{self.title} · {counts}{skipped}, {pluralize(self.retrieve, 'chunk')} retrieved"
        return (
            DisplaySection(title, self.changes, (_build_table(1, ["Chunker", "Chunks", "Tokens", *titles], means),)),
            *([repeated] if self.notes else []),
            DisplaySection(
                "By document", tables=(_build_table(2, ["Chunker", "Document", "Questions", *titles], by_document),)
            ),
            DisplaySection(
                "Recall by the position of the evidence",
                tables=(_build_table(2, ["Chunker", "Excerpts in the", "Excerpts", "Recall"], places),),
            ),
        )

    def records(self) -> Sequence[Any]:
        """Return a row for each splitter and document, and for each splitter over all."""
        names = [item.name for item in fields(ChunkerRow) if item.name not in ("for_new_documents", "in_place")]
        return [{name: getattr(row, name) for name in names} for row in self.rows]

    def document(self) -> dict[str, Any]:
        """Return everything."""
        return vars(self)

    def legend(self) -> Sequence[str]:
        """Return what the numbers are."""
        return (
            "Scores x 100 of the chunking evaluation of Smith & Troynikov 2024, by characters as in its code, in which a chunk "
            "is where its text first is. Intervals: 95 %, for new questions about these documents; in the line of new "
            "documents for new documents. Changes: 98.33 %, for new documents (articles, where known). Divided: no chunk has "
            "all of the excerpt.",
        )


def _build_table(texts: int, headings: Sequence[str], rows: Iterable[tuple[str, ...]]) -> Table:
    return Table(build_columns(headings, headings[texts:]), tuple(rows))


def _format_scores(values: dict[str, Any]) -> list[str]:
    return [format_estimate(values[name], format_percent) for name in SCORES if name in values]


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
        """Return the spans of the chunks of a document, shape (m, 2); of some rows alone if they are given."""
        documents, spans = (self.documents, self.spans) if rows is None else (self.documents[rows], self.spans[rows])
        selected: Integers = spans[documents == document]
        return selected


def score_retrieved(excerpts: Sequence[Excerpt], chunks: ChunkPlaces, rows: Integers) -> tuple[float, float, float]:
    """Return IoU, recall and precision of the chunks in some rows, retrieved for a question.

    Excerpts that overlap count as their code counts them: each by itself where they are summed, once where they are shared.
    """
    shared, missed, total = 0, 0, sum(len(range(*excerpt.span)) for excerpt in excerpts)
    for document in {excerpt.document for excerpt in excerpts}:
        spans = [excerpt.span for excerpt in excerpts if excerpt.document == document]
        retrieved = _merge(chunks.list_spans(document, rows).tolist())
        shared += sum(end - start for start, end in _merge(part for span in spans for part in _intersect(span, retrieved)))
        missed += sum(len(range(*span)) - _count_shared(span, retrieved) for span in spans)
    length = int(chunks.lengths[rows].sum())
    return shared / (length + missed), shared / total, shared / length if length else 0.0


def score_division(excerpts: Sequence[Excerpt], chunks: ChunkPlaces) -> float:
    """Return precision Omega of a division for a question; a chunk that ends where an excerpt begins touches it."""
    shared, total = 0, 0
    for document in {excerpt.document for excerpt in excerpts}:
        spans, places = [excerpt.span for excerpt in excerpts if excerpt.document == document], chunks.list_spans(document)
        touching = np.zeros(len(places), np.bool_)
        for start, end in spans:
            touching |= (places[:, 0] <= end) & (places[:, 1] >= start)
        near = _merge(places[touching].tolist())
        shared += sum(end - start for start, end in _merge(part for span in spans for part in _intersect(span, near)))
        total += sum(end - start for start, end in _merge([*near, *spans]))
    return shared / total


def _count_shared(span: Span, merged: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in _intersect(span, merged))


def _intersect(span: Span, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    parts = [(max(span.start, start), min(span.end, end)) for start, end in ranges]
    return [(start, end) for start, end in parts if start < end]


def _merge(ranges: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
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
    """Number of each document's article: documents that share a text, a title or an opening, shape (documents,)."""
    skipped: int
    """Questions without an excerpt that is in its document."""

    @property
    def owners(self) -> Integers:
        """Number of the document of each question's first excerpt."""
        return np.array([excerpts[0].document for _, excerpts in self.questions], np.int64)

    @property
    def clusters(self) -> Integers:
        """Number of the article of each question's first excerpt: its questions are not independent."""
        return self.articles[self.owners]


def read_excerpts(opened: Dataset, *, repair: bool = True) -> ExcerptData:
    """Read questions with all their excerpts; `repair` moves an answer to its only match nearby."""
    documents: dict[str, str] = {}
    titles: dict[str, str] = {}
    excerpts: dict[tuple[str, str, str], list[Excerpt]] = {}
    skipped: set[tuple[str, str]] = set()
    for item in (item for subset in opened.subsets for item in subset.read_passages()):
        if isinstance(item, SkippedText) and item.file:
            skipped.add((item.file, item.name))
        if not isinstance(item, Passage):
            continue
        number = len(documents)
        name = item.id or f"{item.name}#{number}"
        documents[name], titles[name] = item.text, item.title
        for question in item.questions:
            try:
                span = find_span(question.answer, item.text, repair=repair)[0] if question.answer else None
            except ValueError:
                span = None
            places = excerpts.setdefault((question.file, question.name, question.text), [])
            if span is not None:
                places.append(Excerpt(number, span))
    questions = [(text, tuple(places)) for (_, _, text), places in excerpts.items() if places]
    if not questions:
        raise DataError(f"{opened.location} ({opened.kind}): has no questions with the span of their evidence.")
    articles = link_documents(digest_documents([*documents], titles, documents).T)
    return ExcerptData(opened.name, documents, tuple(questions), articles, len(skipped) + len(excerpts) - len(questions))


def score_splitters(
    encoder: ModelEncoder, tokenizer: Tokenizer, data: ExcerptData, splitters: Sequence[TextSplitter], retrieve: int
) -> ScoredChunkers:
    """Score splitters by the chunks that a model retrieves: for each question some of all documents, the most similar."""
    divisions = [(splitter.name, splitter.divide_all(data.documents.values())) for splitter in splitters]
    remembering = ModelEncoder(encoder.model, encoder.context, EmbeddingMemory())
    rows: list[ChunkerRow] = []
    places: list[PlaceRow] = []
    notes: list[str] = []
    scores: dict[str, dict[str, Floats]] = {}
    with track("Scoring chunkers", len(divisions)) as advance:
        for name, divided in divisions:
            run = _retrieve_chunks(remembering, data, divided, retrieve)
            scores[name] = run.score(data, run.first)
            tokens = tokenizer.count_all([chunk for text in divided for chunk in text.chunks])
            rows += _build_score_rows(name, data, run, scores[name], tokens)
            places += _build_place_rows(name, data, run)
            lost = int((run.in_place.documents == NOWHERE).sum())
            repeated = int((run.first.spans[:, 0] < run.in_place.spans[:, 0]).sum())
            of = f"of {len(run.first.documents):,} chunks"
            notes += [f"{name}: {lost:,} {of} are not in their text."] if lost else []
            notes += [f"{name}: {repeated:,} {of} repeat an earlier passage and count there."] if repeated else []
            advance()
    changes = [
        sentence
        for title, score in ((("recall", "recall"), ("IoU", "iou")) if len(divisions) > 1 else ())
        for sentence in describe_changes(title, {name: values[score] for name, values in scores.items()}, data.clusters)
    ]
    return ScoredChunkers(
        model=str(encoder.model.mteb_model_meta.name),
        data=data.name,
        documents=len(data.documents),
        questions=len(data.questions),
        skipped=data.skipped,
        retrieve=retrieve,
        rows=tuple(rows),
        places=tuple(places),
        changes=tuple(changes),
        notes=tuple(notes),
    )


def describe_changes(title: str, scores: dict[str, Floats], clusters: Integers) -> Iterator[str]:
    """Yield the change of a score from the best splitter to each other one, over the same questions, as sentences."""
    best = max(scores, key=lambda name: float(scores[name].mean()))
    for name in scores:
        if name != best:
            change = compare_gains(scores[name] - scores[best], clusters)
            yield describe_metric_change(title, change.ndcg_at_10, change, best, name)


@dataclass(frozen=True, eq=False)
class ChunkRun:
    """The chunks of a splitter, and those that are retrieved for each question."""

    first: ChunkPlaces
    """Each where its text first is in its document, as in the code of the chunking evaluation."""
    in_place: ChunkPlaces
    """Each where the splitter took it from."""
    retrieved: Integers
    """Rows of the chunks that are retrieved, best first, shape (questions, retrieve)."""

    def score(self, data: ExcerptData, chunks: ChunkPlaces) -> dict[str, Floats]:
        """Return the scores of each question if chunks are in these places."""
        rows = [
            (*score_retrieved(excerpts, chunks, rows), score_division(excerpts, chunks))
            for (_, excerpts), rows in zip(data.questions, self.retrieved, strict=True)
        ]
        return dict(zip(SCORES, np.array(rows, np.float64).T, strict=True))


def _retrieve_chunks(encoder: ModelEncoder, data: ExcerptData, divided: Sequence[DividedText], retrieve: int) -> ChunkRun:
    """Encode the chunks of each document and retrieve some for each question; of equal ones those that come first."""
    chunks = [chunk for text in divided for chunk in text.chunks]
    vectors = encoder(chunks, PromptType.document)
    queries = encoder([text for text, _ in data.questions], PromptType.query)
    best = [
        np.argsort(-np.asarray(similarity.float().cpu()), axis=1, kind="stable")[:, :retrieve]
        for batch in split_queries(queries, len(chunks))
        for similarity in [torch.as_tensor(encoder.model.similarity(torch.as_tensor(batch), torch.from_numpy(vectors)))]
    ]
    texts = list(data.documents.values())
    in_place = [span for text in divided for span in text.spans]
    owners = np.repeat(np.arange(len(divided)), [len(text.chunks) for text in divided])
    first = []
    for owner, chunk, span in zip(owners, chunks, in_place, strict=True):
        # Where its text first is as it is; else where it was located.
        start = texts[owner].find(chunk)
        first.append(Span(start, start + len(chunk)) if start >= 0 else span)
    places = []
    for spans in (first, in_place):
        # A chunk without a span is in no document.
        known, located = np.array([span or (0, 0) for span in spans], np.int64), np.array([span is not None for span in spans])
        sizes = np.where(located, known[:, 1] - known[:, 0], [len(chunk) for chunk in chunks])
        places.append(ChunkPlaces(np.where(located, owners, NOWHERE), known, sizes))
    return ChunkRun(places[0], places[1], np.concatenate(best))


def _build_score_rows(
    name: str, data: ExcerptData, run: ChunkRun, scores: dict[str, Floats], tokens: Sequence[int]
) -> Iterator[ChunkerRow]:
    """Yield the mean scores over all questions, then over those of each document if these are few."""
    clusters, documents, owners, counts = data.clusters, data.owners, run.in_place.documents, np.array(tokens)
    everything = np.ones(len(clusters), np.bool_)
    groups = [(ALL_DOCUMENTS, everything, np.ones(len(owners), np.bool_))]
    if 1 < len(data.documents) <= MAX_DOCUMENTS:
        groups += [(document, documents == row, owners == row) for row, document in enumerate(data.documents)]
    for document, selected, chunks in groups:
        number = int(selected.sum())
        if number:
            whole = document == ALL_DOCUMENTS
            yield ChunkerRow(
                chunker=name,
                document=document,
                questions=number,
                chunks=int(chunks.sum()),
                tokens=int(counts[chunks].sum()),
                **{score: _estimate_score(scores[score][selected], np.arange(number)) for score in SCORES},
                for_new_documents={score: _estimate_score(scores[score], clusters) for score in SCORES} if whole else None,
                in_place={score: float(run.score(data, run.in_place)[score].mean()) for score in SCORES} if whole else None,
            )


def _build_place_rows(name: str, data: ExcerptData, run: ChunkRun) -> Iterator[PlaceRow]:
    texts = list(data.documents.values())
    recalls, parts, owners = [], [], []
    for number, ((_, excerpts), rows) in enumerate(zip(data.questions, run.retrieved, strict=True)):
        for excerpt in excerpts:
            document, span = excerpt.document, excerpt.span
            retrieved = _merge(run.first.list_spans(document, rows).tolist())
            recalls.append(_count_shared(span, retrieved) / (span.end - span.start))
            owners.append(number)
            third = THIRDS[find_third(span, len(texts[document]))]
            parts.append({"document": third, "chunk": find_chunk_part(span, run.in_place.list_spans(document))})
    for place in PLACES:
        for part in (*THIRDS, DIVIDED):
            selected = np.array([excerpt_parts[place] == part for excerpt_parts in parts])
            if selected.any():
                _, clusters = np.unique(np.array(owners)[selected], return_inverse=True)
                yield PlaceRow(name, place, part, int(selected.sum()), _estimate_score(np.array(recalls)[selected], clusters))


def find_chunk_part(span: Span, chunks: Integers) -> str:
    """Return the third of a chunk in which an excerpt is, or that no chunk has all of it; `chunks` are spans, shape (n, 2)."""
    whole = chunks[(chunks[:, 0] <= span.start) & (chunks[:, 1] >= span.end)]
    if not len(whole):
        return DIVIDED
    # Of chunks that overlap, the one in which it is nearest to the middle.
    start, end = min(whole.tolist(), key=lambda chunk: abs(sum(chunk) / 2 - span.middle))
    return THIRDS[find_third(Span(span.start - start, span.end - start), end - start)]


def _estimate_score(values: Floats, clusters: Integers) -> Estimate:
    """Return the mean of scores in [0, 1] with a t interval, without one if there is a single cluster."""
    estimate = estimate_difference(values, clusters)
    mean = float(values.mean())
    return Estimate(mean, (max(estimate.low or 0.0, 0.0), estimate.high or 0.0) if estimate else None)
