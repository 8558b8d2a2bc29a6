"""Text splitters scored by what a model retrieves of the excerpts that answer questions, and by
where these are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
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
    build_table,
    estimate_score,
    find_chunk_part,
    find_evidence,
    format_evidence_estimate,
    score_division,
    score_retrieved,
)
from posir_significance.changes import compare_gains
from posir_significance.findings import ChangeRow, ChangeSubject, Metric
from posir_significance.messages.comparisons import describe_change
from posir_significance.observations import Floats
from posir_tasks.base.arrays import Integers
from posir_tasks.base.progress import track
from posir_tasks.base.wording import pluralize
from posir_tasks.display.numbers import format_count, format_percent
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import DisplaySection
from posir_tasks.models.dispatch import split_queries
from posir_tasks.models.embeddings.encoding import EmbeddingMemory, ModelEncoder
from posir_tasks.text.chunks import DividedText, TextSplitter
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import Tokenizer
from posir_tasks.values.estimates import Estimate

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
#: Fields of the result in JSON.
CONTENT = (
    "model",
    "data",
    "documents",
    "questions",
    "skipped",
    "retrieve",
    "within",
    "rows",
    "places",
    "changes",
)
#: Fields that only the row of all documents has.
OF_ALL = ("for_new_documents", "in_place")
LEGEND = (
    "Scores x 100 of the chunking evaluation of Smith & Troynikov 2024, by characters as in its "
    "code, in which a chunk is where its text first is. Intervals: 95%, for new questions about "
    "these documents; in the line of new documents for new documents. Changes: 98.33%, for new "
    "documents (articles, where known). Divided: no chunk has all of the excerpt."
)


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


@dataclass(frozen=True, repr=False, kw_only=True)
class ScoredChunkers(Result):
    """Text splitters by what a model retrieves of the excerpts that answer questions."""

    model: str
    documents: int
    questions: int
    skipped: int
    retrieve: int
    within: bool
    """Whether only the chunks of a question's own document are searched."""
    places: tuple[PlaceRow, ...]
    changes: tuple[ChangeRow, ...]
    """For recall and IoU, how each splitter changes the score of the best one."""
    remarks: tuple[str, ...]
    """Sentences on chunks that are not in their text, or repeat a passage."""

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each splitter over all documents, and by document."""
        names = [item.name for item in fields(ChunkerRow) if item.name not in OF_ALL]
        return [{name: getattr(row, name) for name in names} for row in self.rows]


def score_splitters(
    encoder: ModelEncoder,
    tokenizer: Tokenizer,
    data: ExcerptData,
    splitters: Sequence[TextSplitter],
    retrieve: int,
) -> ScoredChunkers:
    """Score splitters by the most similar chunks that a model retrieves for each question."""
    texts = [*data.documents.values()]
    divisions = {splitter.name: splitter.divide_all(texts) for splitter in splitters}
    remembering = ModelEncoder(encoder.model, encoder.context, EmbeddingMemory())
    rows: list[ChunkerRow] = []
    places: list[PlaceRow] = []
    remarks: list[str] = []
    scores: dict[str, dict[str, Floats]] = {}
    with track("Scoring chunkers", len(divisions)) as advance:
        for name, divided in divisions.items():
            run = _retrieve_chunks(remembering, data, divided, retrieve)
            scores[name] = run.score(data, run.first)
            chunks = [chunk for text in divided for chunk in text.chunks]
            tokens = np.array(tokenizer.count_all(chunks))
            rows += _build_score_rows(name, data, run, scores[name], tokens)
            places += _build_place_rows(name, data, run)
            remarks += _describe_chunks(name, run)
            advance()
    changes: list[ChangeRow] = []
    for metric in (Metric.RECALL, Metric.IOU):
        by_splitter = {name: values[metric.key] for name, values in scores.items()}
        changes += compare_splitters(metric, by_splitter, data.clusters)
    model = str(encoder.model.mteb_model_meta.name)
    scored = ScoredChunkers(
        title=f"{model} on {data.name}",
        model=model,
        data=data.name,
        documents=len(data.documents),
        questions=len(data.questions),
        skipped=data.skipped,
        retrieve=retrieve,
        within=data.within,
        rows=tuple(rows),
        places=tuple(places),
        changes=tuple(changes),
        remarks=tuple(remarks),
        notes=(LEGEND,),
    )
    values = {name: getattr(scored, name) for name in CONTENT} | {"notes": remarks}
    return replace(scored, values=values, parts=tuple(_build_sections(scored)))


def compare_splitters(
    metric: Metric, scores: Mapping[str, Floats], clusters: Integers
) -> Iterator[ChangeRow]:
    """Yield the change of a score from the best splitter to each other one, over the same
    questions.
    """
    best = max(scores, key=lambda name: float(scores[name].mean()))
    for name, values in scores.items():
        if name != best:
            change = compare_gains(metric, values - scores[best], clusters)
            yield replace(change, subject=ChangeSubject(baseline=best, model=name))


def _describe_chunks(name: str, run: ChunkRun) -> Iterator[str]:
    chunks = f"of {len(run.first.documents):,} chunks"
    lost = int((run.in_place.documents == NOWHERE).sum())
    repeated = int((run.first.spans[:, 0] < run.in_place.spans[:, 0]).sum())
    if lost:
        yield f"{name}: {lost:,} {chunks} are not in their text."
    if repeated:
        yield f"{name}: {repeated:,} {chunks} repeat an earlier passage and count there."


def _build_sections(scored: ScoredChunkers) -> Iterator[DisplaySection]:
    """Yield changes and mean scores, those by document, and recall by position."""
    means: list[tuple[str, ...]] = []
    in_place: list[tuple[str, ...]] = []
    by_document: list[tuple[str, ...]] = []
    for row in scored.rows:
        name = row.chunker
        questions = format_count(row.questions)
        scores = _format_scores(vars(row))
        if row.document != ALL_DOCUMENTS:
            by_document.append((name, row.document, questions, *scores))
            continue
        means.append((name, format_count(row.chunks), format_count(row.tokens), *scores))
        in_place.append((name, *map(format_percent, row.in_place.values())))
        scores = _format_scores(row.for_new_documents)
        by_document.append((name, "(new documents)", questions, *scores))
    further = pluralize(scored.skipped, "further question")
    skipped = f", {further} skipped" if scored.skipped else ""
    searched = " of the question's document" if scored.within else ""
    title = (
        f"{scored.title} · {pluralize(scored.questions, 'question')} on "
        f"{pluralize(scored.documents, 'document')}{skipped}, "
        f"{pluralize(scored.retrieve, 'chunk')}{searched} retrieved"
    )
    sentences = tuple(describe_change(change) for change in scored.changes)
    titles = SCORES.values()
    table = build_table(1, ["Chunker", "Chunks", "Tokens", *titles], means)
    yield DisplaySection(title, sentences, (table,))
    if scored.remarks:
        table = build_table(1, ["Chunker", *titles], in_place)
        yield DisplaySection("If chunks count where they are", scored.remarks, (table,))
    table = build_table(2, ["Chunker", "Document", "Questions", *titles], by_document)
    yield DisplaySection("By document", tables=(table,))
    places = []
    for place in scored.places:
        recall = format_evidence_estimate(place.recall)
        places.append((place.name, place.title, format_count(place.excerpts), recall))
    table = build_table(2, ["Chunker", "Excerpts in the", "Excerpts", "Recall"], places)
    yield DisplaySection("Recall by the position of the evidence", tables=(table,))


def _format_scores(values: Mapping[str, Any]) -> list[str]:
    return [format_evidence_estimate(values[name]) for name in SCORES]


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
        """Score each question with chunks in these places."""
        scores = []
        for (_, excerpts), rows in zip(data.questions, self.retrieved, strict=True):
            division = score_division(excerpts, chunks)
            scores.append((*score_retrieved(excerpts, chunks, rows), division))
        return dict(zip(SCORES, np.array(scores, np.float64).T, strict=True))


def _retrieve_chunks(
    encoder: ModelEncoder, data: ExcerptData, divided: Sequence[DividedText], retrieve: int
) -> ChunkRun:
    """Encode the chunks of each document and retrieve some for each question; of equal ones those
    that come first.
    """
    chunks = [chunk for text in divided for chunk in text.chunks]
    vectors = torch.from_numpy(encoder(chunks, PromptType.document))
    queries = encoder([text for text, _ in data.questions], PromptType.query)
    owners = np.repeat(np.arange(len(divided)), [len(text.chunks) for text in divided])
    best: list[Integers] = []
    for batch in split_queries(queries, len(chunks)):
        similarity = encoder.model.similarity(torch.as_tensor(batch), vectors)
        for scores in np.asarray(torch.as_tensor(similarity).float().cpu()):
            searched = np.arange(len(chunks))
            if data.within:
                searched = np.flatnonzero(owners == data.owners[len(best)])
            order = np.argsort(-scores[searched], kind="stable")
            best.append(searched[order[:retrieve]])
    in_place = [span for text in divided for span in text.spans]
    first = []
    for text, document in zip(divided, data.documents.values(), strict=True):
        for chunk, span in zip(text.chunks, text.spans, strict=True):
            # Where its text first is as it is; else where it was located.
            start = document.find(chunk)
            first.append(Span(start, start + len(chunk)) if start >= 0 else span)
    return ChunkRun(_place(owners, first, chunks), _place(owners, in_place, chunks), best)


def _place(owners: Integers, spans: Sequence[Span | None], chunks: Sequence[str]) -> ChunkPlaces:
    lengths = []
    for span, chunk in zip(spans, chunks, strict=True):
        lengths.append(span.end - span.start if span else len(chunk))
    return ChunkPlaces.build(owners, spans, lengths)


def _build_score_rows(
    name: str, data: ExcerptData, run: ChunkRun, scores: Mapping[str, Floats], tokens: Integers
) -> Iterator[ChunkerRow]:
    """Yield the mean scores over all questions, then over those of each document if these are
    few.
    """
    in_place = run.score(data, run.in_place)
    yield replace(
        _build_score_row(name, ALL_DOCUMENTS, scores, tokens),
        for_new_documents={
            score: estimate_score(values, data.clusters) for score, values in scores.items()
        },
        in_place={score: float(values.mean()) for score, values in in_place.items()},
    )
    is_named = 1 < len(data.documents) <= MAX_DOCUMENTS
    for number, document in enumerate(data.documents if is_named else ()):
        asked = data.owners == number
        if asked.any():
            selected = {score: values[asked] for score, values in scores.items()}
            yield _build_score_row(
                name, document, selected, tokens[run.in_place.documents == number]
            )


def _build_score_row(
    name: str, document: str, scores: Mapping[str, Floats], tokens: Integers
) -> ChunkerRow:
    questions = len(scores["iou"])
    estimates: dict[str, Any] = {
        score: estimate_score(values, np.arange(questions)) for score, values in scores.items()
    }
    return ChunkerRow(
        name, document, questions, chunks=len(tokens), tokens=int(tokens.sum()), **estimates
    )


def _build_place_rows(name: str, data: ExcerptData, run: ChunkRun) -> Iterator[PlaceRow]:
    recalls: list[float] = []
    parts: list[str] = []
    for (_, excerpts), rows in zip(data.questions, run.retrieved, strict=True):
        for excerpt in excerpts:
            retrieved = run.first.list_spans(excerpt.document, rows)
            recalls.append(find_evidence(excerpt.span, retrieved).shared / excerpt.length)
            chunks = run.in_place.list_spans(excerpt.document)
            parts.append(find_chunk_part(excerpt.span, chunks))
    return build_place_rows(name, data, recalls, parts)
