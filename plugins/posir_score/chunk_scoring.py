"""Scores of text splitters: the evidence in the retrieved chunks, overall and by position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from mteb.types import PromptType

from posir_score.evidence_spans import (
    EvidenceData,
    LocatedChunk,
    PositionRecall,
    build_position_recalls,
    build_table,
    compute_precision_omega,
    estimate_score,
    find_chunk_third,
    find_covered,
    format_evidence_estimate,
    group_spans,
    score_retrieved,
)
from posir_significance.changes import compare_gains
from posir_significance.findings import ChangeRow, ChangeSubject, Metric
from posir_significance.messages.comparisons import describe_change
from posir_significance.observations import Floats
from posir_tasks.base.arrays import Integers
from posir_tasks.base.progress import track
from posir_tasks.base.wording import pluralize
from posir_tasks.display.labels import Title
from posir_tasks.display.numbers import format_count, format_percent
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import DisplaySection
from posir_tasks.models.dispatch import split_queries
from posir_tasks.models.embeddings.encoding import EmbeddingMemory, ModelEncoder
from posir_tasks.text.chunks import ChunkedText, TextSplitter
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import Tokenizer
from posir_tasks.values.estimates import Estimate

#: Maximum number of documents that get a row each.
MAX_DOCUMENTS = 20
#: Titles of the scores, in table order.
SCORE_TITLES = {
    "iou": "IoU",
    "recall": "Recall",
    "precision": "Precision",
    "precision_omega": "Precision Omega",
}
ALL_DOCUMENTS = "all"
#: Fields of the JSON output.
JSON_FIELDS = (
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
#: Fields that are None in the rows of single documents.
TOTAL_ONLY_FIELDS = ("for_new_documents", "in_place")
LEGEND = (
    "Scores x 100 as in the chunking evaluation of Smith & Troynikov 2024, whose code counts "
    "characters and locates a chunk at the first match of its text. Intervals: 95%, for new "
    "questions about these documents; in rows with (new documents), for new documents. Changes: "
    "98.33%, for new documents. Documents from the same article count as one. Split across chunks: "
    "no chunk contains the whole evidence span."
)


@dataclass(frozen=True)
class ChunkerRow:
    """Mean scores of a splitter in [0, 1] for one or all documents, with 95% intervals for new
    questions.
    """

    chunker: str
    document: str
    """A document id, or `all`."""
    questions: int
    chunks: int
    tokens: int
    """Number of tokens in all chunks, including truncated tokens."""
    iou: Estimate
    recall: Estimate
    precision: Estimate
    precision_omega: Estimate
    for_new_documents: dict[str, Estimate] | None = None
    """The means with intervals for new documents; None in rows of single documents."""
    in_place: dict[str, float] | None = None
    """The means with each chunk at its actual position, not at the first match of its text; None in
    rows of single documents.
    """


@dataclass(frozen=True, repr=False, kw_only=True)
class ScoredChunkers(Result):
    """Scores of text splitters."""

    model: str
    documents: int
    questions: int
    skipped: int
    retrieve: int
    within: bool
    """If true, only the question's own document is searched."""
    places: Sequence[PositionRecall]
    changes: Sequence[ChangeRow]
    """Changes in recall and IoU from the best splitter to every other splitter."""
    remarks: tuple[str, ...]
    """Sentences about chunks that are not found in their text or repeat a passage."""

    def records(self) -> list[dict[str, Any]]:
        """Return the rows by splitter: all documents first, then single documents."""
        names = [item.name for item in fields(ChunkerRow) if item.name not in TOTAL_ONLY_FIELDS]
        return [{name: getattr(row, name) for name in names} for row in self.rows]


def score_splitters(
    encoder: ModelEncoder,
    tokenizer: Tokenizer,
    data: EvidenceData,
    splitters: Sequence[TextSplitter],
    retrieve: int,
) -> ScoredChunkers:
    """Score splitters on the `retrieve` chunks that are most similar to each question."""
    texts = [*data.documents.values()]
    chunked_documents = {splitter.name: splitter.split_texts(texts) for splitter in splitters}
    cached_encoder = ModelEncoder(encoder.model, encoder.context, EmbeddingMemory())
    rows: list[ChunkerRow] = []
    positions: list[PositionRecall] = []
    remarks: list[str] = []
    scores = {}
    with track("Scoring chunkers", len(chunked_documents)) as advance:
        for name, documents in chunked_documents.items():
            run = _retrieve_chunks(cached_encoder, data, documents, retrieve)
            scores[name] = run.score(data, run.first_match_chunks)
            chunks = [chunk for document in documents for chunk in document.chunks]
            tokens = np.array(tokenizer.count_all(chunks))
            rows += _build_score_rows(name, data, run, scores[name], tokens)
            positions += _build_position_recalls(name, data, run)
            remarks += _describe_chunks(name, run)
            advance()
    changes: list[ChangeRow] = []
    for metric in (Metric.RECALL, Metric.IOU):
        by_splitter = {name: values[metric.key] for name, values in scores.items()}
        changes += compare_splitters(metric, by_splitter, data.clusters)
    model = str(encoder.model.mteb_model_meta.name)
    result = ScoredChunkers(
        title=f"{model} on {data.name}",
        model=model,
        data=data.name,
        documents=len(data.documents),
        questions=len(data.questions),
        skipped=data.skipped,
        retrieve=retrieve,
        within=data.within_document,
        rows=rows,
        places=positions,
        changes=changes,
        remarks=tuple(remarks),
        notes=(LEGEND,),
    )
    values = {name: getattr(result, name) for name in JSON_FIELDS} | {"notes": remarks}
    return replace(result, values=values, extra_sections=tuple(_build_sections(result)))


def compare_splitters(
    metric: Metric, scores: Mapping[str, Floats], clusters: Integers
) -> Iterator[ChangeRow]:
    """Yield the change in a score from the best splitter to every other splitter."""
    best = max(scores, key=lambda name: float(scores[name].mean()))
    for name, values in scores.items():
        if name != best:
            change = compare_gains(metric, values - scores[best], clusters)
            yield replace(change, subject=ChangeSubject(baseline=best, model=name))


def _describe_chunks(name: str, run: SplitterRun) -> Iterator[str]:
    of_chunks = f"of {len(run.first_match_chunks):,} chunks"
    unlocated_chunks = sum(chunk.span is None for chunk in run.actual_chunks)
    repeated_chunks = 0
    for first, chunk in zip(run.first_match_chunks, run.actual_chunks, strict=True):
        if first.span and chunk.span:
            repeated_chunks += first.span.start < chunk.span.start
    if unlocated_chunks:
        yield f"{name}: {unlocated_chunks:,} {of_chunks} are not in their text."
    if repeated_chunks:
        count = f"{repeated_chunks:,} {of_chunks}"
        yield f"{name}: {count} repeat an earlier passage and are located there."


def _build_sections(result: ScoredChunkers) -> Iterator[DisplaySection]:
    """Yield sections of mean scores with changes, scores by document, and recall by position."""
    means = []
    in_place = []
    by_document = []
    for row in result.rows:
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
    other_questions = pluralize(result.skipped, "other question")
    skipped_note = f", {other_questions} skipped" if result.skipped else ""
    scope = " of the question's document" if result.within else ""
    title = Title(
        result.title,
        f"{pluralize(result.questions, 'question')} on "
        f"{pluralize(result.documents, 'document')}{skipped_note}, "
        f"{pluralize(result.retrieve, 'chunk')}{scope} retrieved",
    )
    sentences = tuple(describe_change(change) for change in result.changes)
    titles = SCORE_TITLES.values()
    table = build_table(1, ["Chunker", "Chunks", "Tokens", *titles], means)
    yield DisplaySection(title, sentences, (table,))
    if result.remarks:
        table = build_table(1, ["Chunker", *titles], in_place)
        yield DisplaySection("With each chunk at its actual position", result.remarks, (table,))
    table = build_table(2, ["Chunker", "Document", "Questions", *titles], by_document)
    yield DisplaySection("By document", tables=(table,))
    recalls = []
    for row in result.places:
        recall = format_evidence_estimate(row.recall)
        recalls.append((row.name, row.title, format_count(row.spans), recall))
    table = build_table(2, ["Chunker", "Evidence position", "Spans", "Recall"], recalls)
    yield DisplaySection("Recall by the position of the evidence", tables=(table,))


def _format_scores(values: Mapping[str, Any]) -> list[str]:
    return [format_evidence_estimate(values[name]) for name in SCORE_TITLES]


@dataclass(frozen=True, eq=False)
class SplitterRun:
    """The chunks of a splitter, and the chunks retrieved for each question."""

    first_match_chunks: Sequence[LocatedChunk]
    """Each chunk at the first match of its text, as in the code of Smith & Troynikov."""
    actual_chunks: Sequence[LocatedChunk]
    """Each chunk at the position that the splitter took it from."""
    retrieved: Sequence[Sequence[int]]
    """Indices of the chunks retrieved for each question, best first."""

    def score(self, data: EvidenceData, chunks: Sequence[LocatedChunk]) -> dict[str, Floats]:
        """Compute the scores of each question, shape (questions,)."""
        scores = []
        spans = group_spans(chunks)
        for (_, evidence), rows in zip(data.questions, self.retrieved, strict=True):
            retrieval_scores = score_retrieved(evidence, [chunks[row] for row in rows])
            scores.append((*retrieval_scores, compute_precision_omega(evidence, spans)))
        return dict(zip(SCORE_TITLES, np.array(scores, np.float64).T, strict=True))


def _retrieve_chunks(
    encoder: ModelEncoder, data: EvidenceData, documents: Sequence[ChunkedText], retrieve: int
) -> SplitterRun:
    """Encode all chunks, and retrieve the most similar chunks for each question; ties are broken by
    index.
    """
    chunks = [chunk for document in documents for chunk in document.chunks]
    vectors = torch.from_numpy(encoder(chunks, PromptType.document))
    queries = encoder([text for text, _ in data.questions], PromptType.query)
    first_match_chunks = []
    actual_chunks = []
    for (name, text), document in zip(data.documents.items(), documents, strict=True):
        for chunk, span in zip(document.chunks, document.spans, strict=True):
            length = span.end - span.start if span else len(chunk)
            actual_chunks.append(LocatedChunk(name, span, length))
            start = text.find(chunk)
            if start >= 0:
                span = Span(start, start + len(chunk))
                length = len(chunk)
            first_match_chunks.append(LocatedChunk(name, span, length))
    chunk_documents = np.array([chunk.document for chunk in actual_chunks])
    best: list[list[int]] = []
    for batch in split_queries(queries, len(chunks)):
        similarity = encoder.model.similarity(torch.as_tensor(batch), vectors)
        for scores in np.asarray(torch.as_tensor(similarity).float().cpu()):
            candidates = np.arange(len(chunks))
            if data.within_document:
                candidates = np.flatnonzero(chunk_documents == data.question_documents[len(best)])
            order = np.argsort(-scores[candidates], kind="stable")
            best.append(candidates[order[:retrieve]].tolist())
    return SplitterRun(first_match_chunks, actual_chunks, best)


def _build_score_rows(
    name: str, data: EvidenceData, run: SplitterRun, scores: Mapping[str, Floats], tokens: Integers
) -> Iterator[ChunkerRow]:
    """Yield the mean scores of all documents, then of single documents if there are few."""
    in_place = run.score(data, run.actual_chunks)
    yield replace(
        _build_score_row(name, ALL_DOCUMENTS, scores, tokens),
        for_new_documents={
            score: estimate_score(values, data.clusters) for score, values in scores.items()
        },
        in_place={score: float(values.mean()) for score, values in in_place.items()},
    )
    if not 1 < len(data.documents) <= MAX_DOCUMENTS:
        return
    question_documents = np.array(data.question_documents)
    for document in data.documents:
        question_mask = question_documents == document
        if question_mask.any():
            document_scores = {score: values[question_mask] for score, values in scores.items()}
            chunk_mask = [
                chunk.span is not None and chunk.document == document for chunk in run.actual_chunks
            ]
            document_tokens = tokens[chunk_mask]
            yield _build_score_row(name, document, document_scores, document_tokens)


def _build_score_row(
    name: str, document: str, scores: Mapping[str, Floats], tokens: Integers
) -> ChunkerRow:
    question_count = len(scores["iou"])
    estimates: dict[str, Any] = {
        score: estimate_score(values, np.arange(question_count)) for score, values in scores.items()
    }
    return ChunkerRow(
        name, document, question_count, chunks=len(tokens), tokens=int(tokens.sum()), **estimates
    )


def _build_position_recalls(
    name: str, data: EvidenceData, run: SplitterRun
) -> Iterator[PositionRecall]:
    recalls = []
    thirds = []
    spans = group_spans(run.actual_chunks)
    for (_, evidence), rows in zip(data.questions, run.retrieved, strict=True):
        retrieved_spans = group_spans(run.first_match_chunks[row] for row in rows)
        for span in evidence:
            is_covered = find_covered(span.span, retrieved_spans.get(span.document, ()))
            recalls.append(float(is_covered.mean()))
            thirds.append(find_chunk_third(span.span, spans.get(span.document, ())))
    return build_position_recalls(name, data, recalls, thirds)
