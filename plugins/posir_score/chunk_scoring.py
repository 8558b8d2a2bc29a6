"""Text splitters scored by what a model retrieves of the excerpts that answer questions, and by
where these are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from mteb.types import PromptType

from posir_score.excerpts import (
    NOWHERE,
    ChunkPlaces,
    ExcerptData,
    PlaceRow,
    build_place_rows,
    count_shared,
    estimate_score,
    find_chunk_part,
    merge,
    score_division,
    score_retrieved,
)
from posir_significance.changes import Metric, compare_gains
from posir_significance.messages import describe_change
from posir_significance.observations import Floats
from posir_tasks.base.arrays import Integers
from posir_tasks.base.progress import track
from posir_tasks.base.wording import pluralize
from posir_tasks.display.numbers import format_count, format_estimate, format_percent
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.tables import DisplaySection, Table, build_columns
from posir_tasks.models.dispatch import split_queries
from posir_tasks.models.embeddings.encoding import EmbeddingMemory, ModelEncoder
from posir_tasks.text.chunks import DividedText, TextSplitter
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import Tokenizer
from posir_tasks.values.scores import Estimate

#: Most documents that have rows of their own.
MAX_DOCUMENTS = 20
#: The scores, in the order in which they are shown, and their titles.
SCORES = {
    "iou": "IoU",
    "recall": "Recall",
    "precision": "Precision",
    "precision_omega": "Precision Omega",
}
ALL_DOCUMENTS = "all"


@dataclass(frozen=True)
class ChunkerRow:
    """Mean scores of a splitter over the questions of a document, or of all, with 95% intervals for
    new questions.
    """

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
    """The same means with intervals that hold for new documents; None unless this is the row of
    all.
    """
    in_place: dict[str, float] | None = None
    """The same means if a chunk that repeats an earlier passage counts where it is; None unless
    this is the row of all.
    """


@dataclass(frozen=True, repr=False)
class ScoredChunkers(Presentable):
    """Text splitters by what a model retrieves of the excerpts that answer questions."""

    model: str
    data: str
    documents: int
    questions: int
    skipped: int
    retrieve: int
    within: bool
    """Whether the chunks of a question's own document alone are searched."""
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
        counts = (
            f"{pluralize(self.questions, 'question')} on {pluralize(self.documents, 'document')}"
        )
        skipped = f", {pluralize(self.skipped, 'further question')} skipped" if self.skipped else ""
        overall = [row for row in self.rows if row.document == ALL_DOCUMENTS]
        means, in_place, by_document = [], [], []
        for row in overall:
            means.append(
                (
                    row.chunker,
                    format_count(row.chunks),
                    format_count(row.tokens),
                    *_format_scores(vars(row)),
                )
            )
            in_place.append((row.chunker, *map(format_percent, (row.in_place or {}).values())))
            new = (
                row.chunker,
                "(new documents)",
                format_count(row.questions),
                *_format_scores(row.for_new_documents or {}),
            )
            own = [
                other for other in self.rows if other.chunker == row.chunker and other is not row
            ]
            named = (
                (part.document, format_count(part.questions), *_format_scores(vars(part)))
                for part in own
            )
            by_document += [new, *((row.chunker, *cells) for cells in named)]
        places = (
            (
                row.name,
                row.title,
                format_count(row.excerpts),
                format_estimate(row.recall, format_percent),
            )
            for row in self.places
        )
        titles = SCORES.values()
        repeated = DisplaySection(
            "If chunks count where they are",
            self.notes,
            (_build_table(1, ["Chunker", *titles], in_place),),
        )
        searched = " of the question's document" if self.within else ""
        title = (
            f"{self.title} · {counts}{skipped}, {pluralize(self.retrieve, 'chunk')}{searched} "
            "retrieved"
        )
        return (
            DisplaySection(
                title,
                self.changes,
                (_build_table(1, ["Chunker", "Chunks", "Tokens", *titles], means),),
            ),
            *([repeated] if self.notes else []),
            DisplaySection(
                "By document",
                tables=(
                    _build_table(2, ["Chunker", "Document", "Questions", *titles], by_document),
                ),
            ),
            DisplaySection(
                "Recall by the position of the evidence",
                tables=(
                    _build_table(2, ["Chunker", "Excerpts in the", "Excerpts", "Recall"], places),
                ),
            ),
        )

    def records(self) -> Sequence[Any]:
        """Return a row for each splitter and document, and for each splitter over all."""
        names = [
            item.name
            for item in fields(ChunkerRow)
            if item.name not in ("for_new_documents", "in_place")
        ]
        return [{name: getattr(row, name) for name in names} for row in self.rows]

    def document(self) -> dict[str, Any]:
        """Return everything."""
        return vars(self)

    def legend(self) -> Sequence[str]:
        """Return what the numbers are."""
        return (
            "Scores x 100 of the chunking evaluation of Smith & Troynikov 2024, by characters as "
            "in its code, in which a chunk "
            "is where its text first is. Intervals: 95%, for new questions about these documents; "
            "in the line of new "
            "documents for new documents. Changes: 98.33%, for new documents (articles, where "
            "known). Divided: no chunk has "
            "all of the excerpt.",
        )


def _build_table(texts: int, headings: Sequence[str], rows: Iterable[tuple[str, ...]]) -> Table:
    return Table(build_columns(headings, headings[texts:]), tuple(rows))


def _format_scores(values: dict[str, Any]) -> list[str]:
    return [format_estimate(values[name], format_percent) for name in SCORES if name in values]


def score_splitters(
    encoder: ModelEncoder,
    tokenizer: Tokenizer,
    data: ExcerptData,
    splitters: Sequence[TextSplitter],
    retrieve: int,
) -> ScoredChunkers:
    """Score splitters by the chunks that a model retrieves: for each question some of all
    documents, the most similar.
    """
    divisions = [
        (splitter.name, splitter.divide_all(data.documents.values())) for splitter in splitters
    ]
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
            notes += (
                [f"{name}: {repeated:,} {of} repeat an earlier passage and count there."]
                if repeated
                else []
            )
            advance()
    changes = [
        sentence
        for metric in ((Metric.RECALL, Metric.IOU) if len(divisions) > 1 else ())
        for sentence in describe_changes(
            metric, {name: values[metric.key] for name, values in scores.items()}, data.clusters
        )
    ]
    return ScoredChunkers(
        model=str(encoder.model.mteb_model_meta.name),
        data=data.name,
        documents=len(data.documents),
        questions=len(data.questions),
        skipped=data.skipped,
        retrieve=retrieve,
        within=data.within,
        rows=tuple(rows),
        places=tuple(places),
        changes=tuple(changes),
        notes=tuple(notes),
    )


def describe_changes(
    metric: Metric, scores: dict[str, Floats], clusters: Integers
) -> Iterator[str]:
    """Yield the change of a score from the best splitter to each other one, over the same
    questions, as sentences.
    """
    best = max(scores, key=lambda name: float(scores[name].mean()))
    for name in scores:
        if name != best:
            change = compare_gains(metric, scores[name] - scores[best], clusters)
            yield describe_change(change, best, name)


@dataclass(frozen=True, eq=False)
class ChunkRun:
    """The chunks of a splitter, and those that are retrieved for each question."""

    first: ChunkPlaces
    """Each where its text first is in its document, as in the code of the chunking evaluation."""
    in_place: ChunkPlaces
    """Each where the splitter took it from."""
    retrieved: Sequence[Integers]
    """Rows of the chunks that are retrieved for each question, best first, shape (retrieve,), or
    fewer in a short document.
    """

    def score(self, data: ExcerptData, chunks: ChunkPlaces) -> dict[str, Floats]:
        """Return the scores of each question if chunks are in these places."""
        rows = [
            (*score_retrieved(excerpts, chunks, rows), score_division(excerpts, chunks))
            for (_, excerpts), rows in zip(data.questions, self.retrieved, strict=True)
        ]
        return dict(zip(SCORES, np.array(rows, np.float64).T, strict=True))


def _retrieve_chunks(
    encoder: ModelEncoder, data: ExcerptData, divided: Sequence[DividedText], retrieve: int
) -> ChunkRun:
    """Encode the chunks of each document and retrieve some for each question; of equal ones those
    that come first.
    """
    chunks = [chunk for text in divided for chunk in text.chunks]
    vectors = encoder(chunks, PromptType.document)
    queries = encoder([text for text, _ in data.questions], PromptType.query)
    owners = np.repeat(np.arange(len(divided)), [len(text.chunks) for text in divided])
    best: list[Integers] = []
    for batch in split_queries(queries, len(chunks)):
        similarity = torch.as_tensor(
            encoder.model.similarity(torch.as_tensor(batch), torch.from_numpy(vectors))
        )
        for row in np.asarray(similarity.float().cpu()):
            searched = (
                np.flatnonzero(owners == data.owners[len(best)])
                if data.within
                else np.arange(len(chunks))
            )
            best.append(searched[np.argsort(-row[searched], kind="stable")[:retrieve]])
    texts = list(data.documents.values())
    in_place = [span for text in divided for span in text.spans]
    first = []
    for owner, chunk, span in zip(owners, chunks, in_place, strict=True):
        # Where its text first is as it is; else where it was located.
        start = texts[owner].find(chunk)
        first.append(Span(start, start + len(chunk)) if start >= 0 else span)
    places = []
    for spans in (first, in_place):
        # A chunk without a span is in no document.
        known, located = (
            np.array([span or (0, 0) for span in spans], np.int64),
            np.array([span is not None for span in spans]),
        )
        sizes = np.where(located, known[:, 1] - known[:, 0], [len(chunk) for chunk in chunks])
        places.append(ChunkPlaces(np.where(located, owners, NOWHERE), known, sizes))
    return ChunkRun(places[0], places[1], best)


def _build_score_rows(
    name: str, data: ExcerptData, run: ChunkRun, scores: dict[str, Floats], tokens: Sequence[int]
) -> Iterator[ChunkerRow]:
    """Yield the mean scores over all questions, then over those of each document if these are
    few.
    """
    clusters, documents, owners, counts = (
        data.clusters,
        data.owners,
        run.in_place.documents,
        np.array(tokens),
    )
    everything = np.ones(len(clusters), np.bool_)
    groups = [(ALL_DOCUMENTS, everything, np.ones(len(owners), np.bool_))]
    if 1 < len(data.documents) <= MAX_DOCUMENTS:
        groups += [
            (document, documents == row, owners == row)
            for row, document in enumerate(data.documents)
        ]
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
                **{
                    score: estimate_score(scores[score][selected], np.arange(number))
                    for score in SCORES
                },
                for_new_documents={
                    score: estimate_score(scores[score], clusters) for score in SCORES
                }
                if whole
                else None,
                in_place={
                    score: float(run.score(data, run.in_place)[score].mean()) for score in SCORES
                }
                if whole
                else None,
            )


def _build_place_rows(name: str, data: ExcerptData, run: ChunkRun) -> Iterator[PlaceRow]:
    recalls, parts = list[float](), list[str]()
    for (_, excerpts), rows in zip(data.questions, run.retrieved, strict=True):
        for document, span in ((excerpt.document, excerpt.span) for excerpt in excerpts):
            recalls.append(
                count_shared(span, merge(run.first.list_spans(document, rows).tolist()))
                / len(range(*span))
            )
            parts.append(find_chunk_part(span, run.in_place.list_spans(document)))
    return build_place_rows(name, data, recalls, parts)
