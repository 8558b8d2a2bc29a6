"""Scores of retrieved chunks: how much evidence they contain, and why the rest is missing.

Evidence recall at k is the share of a question's evidence in its first k chunks. IoU and
precision are defined in `posir_score.evidence_spans`. A chunk is located by its text or, if it has
none, by its offsets. A chunk longer than the embedder's window is truncated, including any evidence
at its end. Evidence outside all returned chunks may or may not be read. Retrieval determines which
evidence is returned, so comparing read with unread evidence would introduce selection bias. If more
than 1% of the evidence spans are outside the returned chunks, the comparison is skipped.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from posir_score.evidence_spans import (
    NOT_RETURNED,
    EvidenceData,
    EvidenceSpan,
    LocatedChunk,
    PositionRecall,
    build_position_recalls,
    build_table,
    estimate_score,
    find_chunk_third,
    find_covered,
    format_evidence_estimate,
    has_uncovered_words,
    score_retrieved,
)
from posir_significance.messages.chunks import (
    LOSS_LOCATIONS,
    describe_chunk_lengths,
    describe_evidence_recall,
    describe_lost_evidence,
)
from posir_tasks.base.arrays import Booleans
from posir_tasks.base.wording import pluralize, sanitize
from posir_tasks.display.numbers import format_count
from posir_tasks.display.tables import Table
from posir_tasks.text.locating import START, TextLocator
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import EstimatedTokenizer, Tokenizer
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.evidence import Evidence, ReadEvidence, Unread
from posir_tasks.values.read_part import UNKNOWN, CountedWith, Part, ReadKind, ReadPart

if TYPE_CHECKING:
    from posir_score.alignment import AlignedRun

#: Maximum share of the evidence spans outside all returned chunks.
MAX_UNCOVERED_SHARE = 0.01
#: Cut-offs k of the scores.
DEPTHS = (1, 3, 5, 10, 20)
#: Maximum cut-off for recall by position and for losses.
MAX_MAIN_DEPTH = 10
#: Chunk number at the end of a chunk id.
TRAILING_NUMBER = re.compile(r"\d{1,9}$")
#: Id shared by all documents without evidence.
OTHER_DOCUMENTS = ""
#: Subset and id of a question.
QueryKey = tuple[str, str]


class Loss(StrEnum):
    """Reason why evidence is missing from the first k chunks. If several apply, the last counts."""

    NOT_RETRIEVED = "not_retrieved"
    OTHER_CHUNK = "other_chunk"
    NOT_RETURNED = "not_returned"
    NOT_LOCATED = "not_located"
    CUT = "cut"
    NOT_READ = "not_read"


class ChunkKey(NamedTuple):
    """A chunk as returned by the system. Chunks returned for several questions have one key."""

    document: str
    """Document id, or `OTHER_DOCUMENTS` if the document has no evidence."""
    text: str | None
    start: int | None
    end: int | None
    number: int | None
    """Number at the end of the chunk id."""

    @property
    def is_locatable(self) -> bool:
        """True if the chunk has a text or offsets."""
        return bool(self.text) or self.start is not None

    @property
    def length(self) -> int:
        """Length in characters."""
        if self.text:
            return len(self.text)
        return max((self.end or 0) - (self.start or 0), 0)

    def describe(self, document_length: int) -> str:
        """Describe the chunk by its first words, or by its offsets if it has no text."""
        if self.text:
            return f"{sanitize(self.text, 60)} ({pluralize(len(self.text), 'character')})"
        return f"characters {self.start or 0:,} to {self.end or 0:,} of {document_length:,}"

    def locate(self, locator: TextLocator, previous: Span) -> Span | None:
        """Find the span in the document, preferably after the previous chunk; None if not found."""
        if self.text:
            return locator.locate(self.text, self.start, previous)
        if self.start is None or self.end is None:
            return None
        is_within = 0 <= self.start < self.end <= len(locator.text)
        return Span(self.start, self.end) if is_within else None


@dataclass(frozen=True, eq=False)
class RetrievedChunks:
    """The chunks returned for each question with evidence."""

    data: EvidenceData
    by_query: Mapping[QueryKey, Sequence[ChunkKey]]
    """Chunks of each question, best first."""
    spans: Mapping[ChunkKey, Span | None]
    """Span of each distinct chunk in its document, or None if the chunk was not found."""
    texts: Mapping[str, Mapping[Span, str]]
    """Texts of the distinct chunks, by document id and span."""
    other_texts: frozenset[str]
    """Texts of chunks from documents without evidence."""
    unlocated_chunks: Sequence[str]
    """Descriptions of distinct chunks that were not found in their document."""

    @classmethod
    def locate(cls, data: EvidenceData, run: AlignedRun) -> RetrievedChunks | None:
        """Locate a run's chunks. Return None if no query has an evidence span, or no chunk has a
        text or offsets.
        """
        if not data.ids:
            return None
        by_query = {}
        for subset, query in data.ids:
            chunks = []
            for hit in run.hits[subset].get(query, ()):
                document = f"{subset}/{hit.document}"
                document = document if document in data.documents else OTHER_DOCUMENTS
                number_match = TRAILING_NUMBER.search(hit.chunk.removeprefix(hit.document))
                number = int(number_match[0]) if number_match else None
                chunks.append(ChunkKey(document, hit.text, hit.start, hit.end, number))
            by_query[subset, query] = chunks
        spans = _locate_chunks({key for keys in by_query.values() for key in keys}, data.documents)
        texts: dict[str, dict[Span, str]] = defaultdict(dict)
        unlocated_chunks: dict[ChunkKey, None] = {}
        for key, span in spans.items():
            if span is not None:
                texts[key.document][span] = key.text or span.slice(data.documents[key.document])
            elif key.is_locatable:
                unlocated_chunks[key._replace(number=None)] = None
        other_texts = frozenset(
            key.text for key in unlocated_chunks if key.text and key.document == OTHER_DOCUMENTS
        )
        descriptions = []
        for key in unlocated_chunks:
            if key.document != OTHER_DOCUMENTS:
                _, _, name = key.document.partition("/")
                description = key.describe(len(data.documents[key.document]))
                descriptions.append(f"{sanitize(name)}: {description}")
        if not (texts or other_texts or descriptions):
            return None
        return cls(data, by_query, spans, texts, other_texts, descriptions)

    def list_spans(self, document: str) -> list[Span]:
        """List the spans of a document's chunks."""
        return [*self.texts.get(document, ())]

    def find_third(self, evidence: EvidenceSpan) -> str:
        """Return the third of a chunk that contains the evidence, or `SPLIT` or `NOT_RETURNED`."""
        spans = self.list_spans(evidence.document)
        is_returned = find_covered(evidence.span, spans).any()
        return find_chunk_third(evidence.span, spans) if is_returned else NOT_RETURNED

    def warn_about_texts(self) -> Iterator[str]:
        """Yield warnings if hits contain the query or a preview instead of the chunk."""
        query_hits = 0
        hits = []
        for key, (text, _) in zip(self.data.ids, self.data.questions, strict=True):
            for hit in self.by_query[key]:
                if (hit.text or "").strip() == text.strip():
                    query_hits += 1
                if hit.document != OTHER_DOCUMENTS:
                    hits.append(hit)
        if query_hits:
            yield (
                f"{pluralize(query_hits, 'hit contains', 'hits contain')} the text of the query. "
                "Return the text of the chunk."
            )
        # Chunks must be returned for at least two questions on average.
        distinct = set(hits)
        is_repeated = 2 * len(distinct) <= len(hits)
        if is_repeated and len(distinct) == len({hit.document for hit in hits}):
            yield (
                "Every document is returned with the same text for all queries. If this text is a "
                "preview, return the chunk that matches the query."
            )


def _locate_chunks(
    keys: Iterable[ChunkKey], texts: Mapping[str, str]
) -> dict[ChunkKey, Span | None]:
    spans: dict[ChunkKey, Span | None] = {}
    sorted_keys = sorted(keys, key=lambda key: (key.document, key.number or 0, key.start or 0))
    for document, group in groupby(sorted_keys, key=lambda key: key.document):
        if document == OTHER_DOCUMENTS:
            spans |= dict.fromkeys(group)
            continue
        locator = TextLocator(texts[document])
        previous = START
        for key in group:
            span = key.locate(locator, previous)
            spans[key] = span
            # Numbered chunks follow one another in the document.
            if key.number is None:
                previous = START
            elif span:
                previous = span
    return spans


@dataclass(frozen=True, eq=False)
class ReadChunks:
    """The part of a run's chunks that fits the embedder's window."""

    chunks: RetrievedChunks
    read: ReadPart
    tokens: Sequence[int]
    """Token counts of the distinct chunks, ascending, including prompt and special tokens."""
    has_tokenizer: bool
    read_spans: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    """Spans within the window, by document id."""
    truncated_spans: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    """Spans beyond the window, by document id."""
    uncovered_spans: int = 0
    """Number of evidence spans not fully covered by returned chunks. Whether the embedder reads
    them is unknown.
    """

    @classmethod
    def measure(
        cls,
        chunks: RetrievedChunks,
        read: ReadPart,
        tokenizer: Tokenizer | None = None,
        extra_tokens: int = 0,
    ) -> ReadChunks:
        """Truncate chunks to the embedder's window.

        Args:
            chunks: The chunks.
            read: The part of a text that the embedder reads.
            tokenizer: The embedder's tokenizer; None if unknown.
            extra_tokens: Number of prompt and special tokens per chunk.
        """
        counter = tokenizer or EstimatedTokenizer()
        located_chunks = [
            (document, span, text)
            for document, spans in chunks.texts.items()
            for span, text in spans.items()
        ]
        tokens = counter.find_tokens([text for _, _, text in located_chunks])
        counts = [*map(len, tokens), *counter.count_all([*chunks.other_texts])]
        lengths = sorted(count + extra_tokens for count in counts)
        read_chunks = cls(chunks, read, lengths, tokenizer is not None)
        limit = read.tokens
        if limit is None or read.known_by is None:
            return read_chunks
        uncovered_spans = sum(
            has_uncovered_words(
                span.span, chunks.list_spans(span.document), chunks.data.documents[span.document]
            )
            for _, evidence in chunks.data.questions
            for span in evidence
        )
        untruncated = replace(
            read_chunks, read=ReadPart.all(read.known_by), uncovered_spans=uncovered_spans
        )
        if not untruncated.may_have_selection_bias and max(lengths, default=0) <= limit:
            return untruncated
        if read.part is not Part.FIRST:
            return replace(read_chunks, read=UNKNOWN)
        read_spans = defaultdict(list)
        truncated_spans = defaultdict(list)
        for (document, span, text), offsets in zip(located_chunks, tokens, strict=True):
            end = span.end
            if len(offsets) + extra_tokens > limit:
                text_tokens = max(limit - extra_tokens, 1)
                # The text may differ in length from its span in the document.
                share = offsets[text_tokens - 1, 1] / len(text)
                end = span.start + round(share * (span.end - span.start))
                truncated_spans[document].append(Span(end, span.end))
            read_spans[document].append(Span(span.start, end))
        part = ReadPart(ReadKind.PART, Part.CHUNKS, limit, known_by=read.known_by)
        return replace(
            untruncated, read=part, read_spans=read_spans, truncated_spans=truncated_spans
        )

    def find_unread(self, document: str, span: Span) -> Booleans:
        """Return a mask of the characters that are truncated in every chunk that contains them,
        shape (characters,).
        """
        is_truncated = find_covered(span, self.truncated_spans.get(document, ()))
        return is_truncated & ~find_covered(span, self.read_spans.get(document, ()))

    def locate(self, evidence: Evidence, subset: str, languages: Iterable[str]) -> ReadEvidence:
        """Find the twelfth of the document that contains each row's evidence, or `Unread`.

        Args:
            evidence: The evidence of a subset's queries.
            subset: Name of the subset.
            languages: Language codes of the subset's texts.
        """
        if self.read.kind is ReadKind.UNKNOWN or self.may_have_selection_bias:
            return ReadEvidence(self.read, np.zeros(0, np.int64))
        twelfths = evidence.compute_twelfths()
        located_ids = evidence.document_ids if len(evidence.ends) else []
        for row, name in enumerate(located_ids):
            document = f"{subset}/{name}"
            # Spans and length of a translation may refer to the original text.
            scale = len(self.chunks.data.documents[document]) / max(
                int(evidence.characters[row]), 1
            )
            span = Span(round(evidence.starts[row] * scale), round(evidence.ends[row] * scale))
            is_unread = self.find_unread(document, span)
            if is_unread.any():
                twelfths[row] = Unread.BEYOND if is_unread.all() else Unread.CUT
        if self.read.kind is not ReadKind.PART or not len(twelfths):
            return ReadEvidence(self.read, twelfths)
        estimated = CountedWith.from_languages(languages)
        counted_with = CountedWith.TOKENIZER if self.has_tokenizer else estimated
        return ReadEvidence(self.read, twelfths, counted_with)

    @property
    def may_have_selection_bias(self) -> bool:
        """True if too many evidence spans are outside the returned chunks."""
        return self.uncovered_spans > MAX_UNCOVERED_SHARE * self.chunks.data.span_count

    @property
    def truncated_chunks(self) -> int | None:
        """Number of truncated chunks; None if the window is unknown."""
        if self.read.kind is ReadKind.UNKNOWN:
            return None
        return sum(count > (self.read.tokens or count) for count in self.tokens)


@dataclass(frozen=True)
class DepthScores:
    """Mean scores of the first k chunks in [0, 1], with 95% intervals for new documents."""

    k: int
    evidence_recall: Estimate
    iou: Estimate
    precision: Estimate


@dataclass(frozen=True)
class EvidenceScores:
    """How much evidence a run's chunks contain, and why the rest is missing."""

    questions: int
    k: int
    """Cut-off for `by_position` and `lost`."""
    depths: Sequence[DepthScores]
    by_position: Sequence[PositionRecall]
    lost: Mapping[str, Estimate]
    """Share of the evidence missing from the first k chunks, by `Loss`. The shares add up to
    1 - recall. `not_read` is omitted if the embedder's window is unknown.
    """
    chunks: int
    """Number of distinct located chunks."""
    median_tokens: float
    longest_tokens: int
    tokens_estimated: bool
    """True if the tokenizer is unknown."""
    longer_than_read: int | None
    """Number of chunks that exceed the embedder's window; None if the window is unknown."""
    not_located: Sequence[str]
    """Descriptions of distinct chunks that were not found in their document."""
    spans: int
    """Number of evidence spans."""
    not_returned: int
    """Number of evidence spans not fully covered by returned chunks."""
    suspects: Sequence[str]
    """Warnings about texts that may not be chunks."""

    def to_json(self) -> dict[str, Estimate]:
        """Convert the scores to a flat row."""
        row = {}
        for scores in self.depths:
            row[f"evidence_recall_at_{scores.k}"] = scores.evidence_recall
            row[f"iou_at_{scores.k}"] = scores.iou
            row[f"precision_at_{scores.k}"] = scores.precision
        return row | {f"lost_{name}_at_{self.k}": share for name, share in self.lost.items()}

    def describe(self, ndcg_at_10: float) -> tuple[str, ...]:
        """Describe evidence recall in comparison with nDCG@10, and the missing evidence."""
        recall = next(row.evidence_recall for row in self.depths if row.k == self.k)
        lost = {name: share.value for name, share in self.lost.items() if share.value}
        sentence = describe_evidence_recall(self.k, recall, ndcg_at_10)
        if not lost:
            return (sentence,)
        is_known = Loss.NOT_READ in self.lost
        return sentence, describe_lost_evidence(lost, recall.value, is_known=is_known)

    def build_tables(self) -> Iterator[Table]:
        """Yield tables of scores by cut-off, recall by position, and missing evidence."""
        depths = []
        for row in self.depths:
            scores = map(format_evidence_estimate, (row.evidence_recall, row.iou, row.precision))
            depths.append((str(row.k), *scores))
        yield build_table(0, ("Top chunks", "Evidence recall", "IoU", "Precision"), depths)
        positions = [
            (row.title, format_count(row.spans), format_evidence_estimate(row.recall))
            for row in self.by_position
        ]
        yield build_table(1, ("Evidence in the", "Spans", f"Recall@{self.k}"), positions)
        losses = [
            (LOSS_LOCATIONS[loss], format_evidence_estimate(share))
            for loss, share in self.lost.items()
            if share.value or loss not in (Loss.NOT_LOCATED, Loss.NOT_RETURNED)
        ]
        headings = (f"Evidence missing from the top {self.k}", "Share of all evidence")
        yield build_table(1, headings, losses)

    def describe_chunks(self) -> Iterator[str]:
        """Yield sentences about chunk lengths, truncation and unlocated chunks."""
        if self.chunks:
            yield describe_chunk_lengths(
                self.chunks,
                self.median_tokens,
                self.longest_tokens,
                is_estimated=self.tokens_estimated,
                longer=self.longer_than_read or 0,
            )
        if self.not_returned:
            is_one = self.not_returned == 1
            share = f"{self.not_returned:,} of {pluralize(self.spans, 'evidence span')}"
            yield (
                f"{share} {'is' if is_one else 'are'} not fully covered by returned chunks, so it "
                f"is unknown whether the embedder reads {'it' if is_one else 'them'}."
            )
        if self.not_located:
            chunks = pluralize(
                len(self.not_located),
                "chunk was not found in its document and counts as a chunk without evidence",
                "chunks were not found in their documents and count as chunks without evidence",
            )
            yield f"{chunks}, for example {self.not_located[0]}."
        yield from self.suspects


def score_chunks(name: str, read_chunks: ReadChunks) -> EvidenceScores:
    """Score the chunks of the run `name`."""
    chunks = read_chunks.chunks
    data = chunks.data
    max_hits = max(map(len, chunks.by_query.values()))
    depths = [depth for depth in DEPTHS if depth <= max_hits] or [1]
    main_depth = max(depth for depth in depths if depth <= MAX_MAIN_DEPTH)
    scores = []
    losses = []
    recalls = []
    thirds = []
    for key, (_, evidence) in zip(data.ids, data.questions, strict=True):
        hits = chunks.by_query[key]
        located_chunks = [LocatedChunk(hit.document, chunks.spans[hit], hit.length) for hit in hits]
        scores.append([score_retrieved(evidence, located_chunks[:depth]) for depth in depths])
        question_losses = Counter[Loss]()
        for span in evidence:
            missing = count_losses(span, hits[:main_depth], read_chunks)
            question_losses.update(missing)
            recalls.append(1 - missing.total() / span.length)
            thirds.append(chunks.find_third(span))
        total = sum(span.length for span in evidence)
        losses.append([question_losses[loss] / total for loss in Loss])
    shares = dict(zip(Loss, np.array(losses).T, strict=True))
    if read_chunks.read.kind is ReadKind.UNKNOWN:
        del shares[Loss.NOT_READ]
    depth_scores = []
    for depth, columns in zip(depths, np.array(scores).transpose(1, 2, 0), strict=True):
        iou, recall, precision = (estimate_score(values, data.clusters) for values in columns)
        depth_scores.append(DepthScores(depth, recall, iou, precision))
    return EvidenceScores(
        questions=len(data.questions),
        k=main_depth,
        depths=depth_scores,
        by_position=[*build_position_recalls(name, data, recalls, thirds)],
        lost={loss: estimate_score(values, data.clusters) for loss, values in shares.items()},
        chunks=len(read_chunks.tokens),
        median_tokens=statistics.median(read_chunks.tokens or (0,)),
        longest_tokens=max(read_chunks.tokens, default=0),
        tokens_estimated=not read_chunks.has_tokenizer,
        longer_than_read=read_chunks.truncated_chunks,
        not_located=chunks.unlocated_chunks,
        spans=len(recalls),
        not_returned=read_chunks.uncovered_spans,
        suspects=[*chunks.warn_about_texts()] if NOT_RETURNED in thirds else (),
    )


def count_losses(
    evidence: EvidenceSpan, hits: Iterable[ChunkKey], read_chunks: ReadChunks
) -> Counter[Loss]:
    """Count the characters of an evidence span that are missing from the hits, by reason."""
    chunks = read_chunks.chunks
    spans = [chunks.spans[hit] for hit in hits if hit.document == evidence.document]
    is_missing = ~find_covered(evidence.span, [span for span in spans if span])
    is_unread = read_chunks.find_unread(evidence.document, evidence.span)
    unread = int((is_missing & is_unread).sum())
    if not is_missing.all():
        loss = Loss.CUT
    elif None in spans:
        loss = Loss.NOT_LOCATED
    elif not spans:
        loss = Loss.NOT_RETRIEVED
    elif chunks.find_third(evidence) == NOT_RETURNED:
        loss = Loss.NOT_RETURNED
    else:
        loss = Loss.OTHER_CHUNK
    return Counter({Loss.NOT_READ: unread, loss: int(is_missing.sum()) - unread})
