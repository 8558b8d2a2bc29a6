"""Retrieved chunks, with their texts or spans: what they have of the evidence, and where the
evidence is that they lack.

Evidence recall at k is the share of a question's excerpts that its first k chunks have; IoU and
precision are those of `posir_score.excerpts`, as for text splitters. A chunk counts where it is: at
its stated place, or where its text is found. A chunk that is longer than the embedder's window is
read in part: evidence in the rest is not read, whatever is retrieved. Of evidence in no returned
chunk it is unknown whether it is read, and what is retrieved decides which evidence that is: of
more than 1% of the excerpts, nothing is said of evidence that is read or not, since such a
difference would be one of selection.
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

from posir_score.excerpts import (
    NOT_RETURNED,
    NOWHERE,
    ChunkPlaces,
    Excerpt,
    ExcerptData,
    PlaceRow,
    Range,
    build_place_rows,
    build_table,
    estimate_score,
    find_chunk_part,
    find_evidence,
    format_evidence_estimate,
    merge,
    score_retrieved,
)
from posir_significance.messages.chunks import (
    LOSSES,
    describe_chunk_lengths,
    describe_evidence_recall,
    describe_lost_evidence,
)
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

#: Largest share of the excerpts, in no returned chunk, at which the others stand for all.
MAX_UNKNOWN = 0.01
#: Numbers of chunks that recall is computed at.
DEPTHS = (1, 3, 5, 10, 20)
#: The one that positions and losses are of.
HEADLINE = 10
#: The number of a chunk in its document, at the end of its id.
NUMBER = re.compile(r"\d{1,9}$")
#: A question by the names of its subset and itself.
QueryKey = tuple[str, str]


class Loss(StrEnum):
    """The place of evidence that the first chunks lack: of several that are true, the last one."""

    NOT_RETRIEVED = "not_retrieved"
    OTHER_CHUNK = "other_chunk"
    NOT_RETURNED = "not_returned"
    NOT_LOCATED = "not_located"
    CUT = "cut"
    NOT_READ = "not_read"


class ChunkKey(NamedTuple):
    """A chunk as a system states it; a chunk that is returned for several questions is the same."""

    document: int
    """Number of its document among those with evidence, or `NOWHERE`."""
    text: str | None
    start: int | None
    end: int | None
    id: str
    """The end of its id, after that of its document."""

    @property
    def is_stated(self) -> bool:
        """Whether its text or its place is known."""
        return bool(self.text) or self.start is not None

    @property
    def number(self) -> int | None:
        """The number at the end of its id."""
        digits = NUMBER.search(self.id)
        return int(digits[0]) if digits else None

    @property
    def length(self) -> int:
        """Its characters."""
        return len(self.text) if self.text else len(range(self.start or 0, self.end or 0))

    def describe(self, characters: int) -> str:
        """Name the chunk in a message by the beginning of its text, or by its place in a document
        of that many characters.
        """
        if self.text:
            return f"{sanitize(self.text, 60)} ({pluralize(len(self.text), 'character')})"
        return f"characters {self.start or 0:,} to {self.end or 0:,} of {characters:,}"

    def locate(self, locator: TextLocator, previous: Span) -> Span | None:
        """Locate the chunk in its document, after the previous chunk if possible."""
        if self.text:
            return locator.locate(self.text, self.start, previous)
        if self.start is None or self.end is None:
            return None
        is_within = 0 <= self.start < self.end <= len(locator.text)
        return Span(self.start, self.end) if is_within else None


@dataclass(frozen=True, eq=False)
class RetrievedChunks:
    """The chunks that a system returned for the questions with evidence."""

    data: ExcerptData
    by_query: Mapping[QueryKey, Sequence[ChunkKey]]
    """Best first."""
    spans: Mapping[ChunkKey, Span | None]
    """Place of each distinct chunk in its document; None if it is not located."""
    texts: Mapping[int, Mapping[Span, str]]
    """Text of each distinct chunk by its place, by number of its document; only of documents with
    evidence.
    """
    other_texts: frozenset[str]
    """Texts of the chunks of documents without evidence. Those that are not in their document say
    nothing of what is read.
    """
    not_located: tuple[str, ...]
    """Document and beginning or stated place of distinct chunks that are not in their document."""

    @classmethod
    def locate(cls, data: ExcerptData, run: AlignedRun) -> RetrievedChunks | None:
        """Locate the chunks of a run in their documents; None if the places of evidence or of
        chunks are unknown.
        """
        if not data.ids:
            return None
        numbers = {name: number for number, name in enumerate(data.documents)}
        by_query: dict[QueryKey, list[ChunkKey]] = {}
        for subset, query in data.ids:
            chunks = by_query[subset, query] = []
            for hit in run.hits[subset].get(query, ()):
                owner = numbers.get(f"{subset}/{hit.document}", NOWHERE)
                name = hit.chunk.removeprefix(hit.document)
                chunks.append(ChunkKey(owner, hit.text, hit.start, hit.end, name))
        names = [*data.documents]
        bodies = [*data.documents.values()]
        spans = _locate_chunks({key for keys in by_query.values() for key in keys}, bodies)
        texts: dict[int, dict[Span, str]] = defaultdict(dict)
        lost: dict[ChunkKey, None] = {}
        for key, span in spans.items():
            if span is not None:
                texts[key.document][span] = key.text or span.of(bodies[key.document])
            elif key.is_stated:
                lost[key._replace(id="")] = None
        others = frozenset(key.text for key in lost if key.text and key.document == NOWHERE)
        not_located = []
        for key in lost:
            if key.document != NOWHERE:
                _, _, name = names[key.document].partition("/")
                described = key.describe(len(bodies[key.document]))
                not_located.append(f"{sanitize(name)}: {described}")
        if not (texts or others or not_located):
            return None
        return cls(data, by_query, spans, texts, others, tuple(not_located))

    def place(self, hits: Sequence[ChunkKey]) -> ChunkPlaces:
        """Place retrieved chunks in their documents."""
        return ChunkPlaces.build(
            [hit.document for hit in hits],
            [self.spans[hit] for hit in hits],
            [hit.length for hit in hits],
        )

    def list_spans(self, document: int) -> list[Span]:
        """List the places of a document's chunks."""
        return [*self.texts.get(document, ())]

    def find_part(self, excerpt: Excerpt) -> str:
        """Find the third of a chunk that contains an excerpt, unless it is divided or in no
        returned chunk.
        """
        spans = self.list_spans(excerpt.document)
        is_returned = find_evidence(excerpt.span, spans).inside
        return find_chunk_part(excerpt.span, spans) if is_returned else NOT_RETURNED

    def find_suspects(self) -> Iterator[str]:
        """Yield a sentence on texts that may be no chunks: those of queries, and previews."""
        queries = 0
        hits: list[ChunkKey] = []
        for key, (text, _) in zip(self.data.ids, self.data.questions, strict=True):
            for hit in self.by_query[key]:
                queries += (hit.text or "").strip() == text.strip()
                hits += [hit] if hit.document != NOWHERE else []
        if queries:
            yield (
                f"{pluralize(queries, 'hit has', 'hits have')} the text of the query: return that "
                "of the chunk."
            )
        # Each was returned for several questions.
        distinct = set(hits)
        is_repeated = 2 * len(distinct) <= len(hits)
        if is_repeated and len(distinct) == len({hit.document for hit in hits}):
            yield (
                "Every document comes back with the same chunk for all queries: if that is a "
                "preview, return what was found."
            )


def _locate_chunks(keys: Iterable[ChunkKey], texts: Sequence[str]) -> dict[ChunkKey, Span | None]:
    """Locate each chunk in its document, given the texts of the documents."""
    spans: dict[ChunkKey, Span | None] = {}
    # By document, then as they are numbered or placed.
    ordered = sorted(keys, key=lambda key: (key.document, key.number or 0, key.start or 0))
    for document, group in groupby(ordered, key=lambda key: key.document):
        if document == NOWHERE:
            spans |= dict.fromkeys(group)
            continue
        locator = TextLocator(texts[document])
        previous = START
        for key in group:
            span = spans[key] = key.locate(locator, previous)
            # Chunks that are numbered follow each other.
            previous = (span or previous) if key.number is not None else START
    return spans


@dataclass(frozen=True, eq=False)
class ReadChunks:
    """The part of the chunks of a run that an embedder reads."""

    data: ExcerptData
    read: ReadPart
    tokens: tuple[int, ...]
    """Tokens of each distinct chunk in ascending order, prompt and special tokens included."""
    has_tokenizer: bool
    unread: Mapping[int, Sequence[Range]] = field(default_factory=dict)
    """Characters of each document that are in chunks, but truncated in all of them, by number of
    the document.
    """
    not_returned: int = 0
    """Excerpts that are not, or not as a whole, in returned chunks, so that it is unknown whether
    they are read.
    """

    @classmethod
    def measure(
        cls,
        chunks: RetrievedChunks,
        read: ReadPart,
        tokenizer: Tokenizer | None = None,
        added: int = 0,
    ) -> ReadChunks:
        """Measure what is read of chunks.

        Args:
            chunks: The chunks.
            read: The part of a text that the embedder reads.
            tokenizer: Its tokenizer, if it is known.
            added: Tokens of its prompt and special tokens.
        """
        counter = tokenizer or EstimatedTokenizer()
        located = [
            (document, span, text)
            for document, spans in chunks.texts.items()
            for span, text in spans.items()
        ]
        tokens = counter.find_tokens([text for _, _, text in located])
        counts = [*map(len, tokens), *counter.count_all([*chunks.other_texts])]
        lengths = tuple(sorted(count + added for count in counts))
        measured = cls(chunks.data, read, lengths, tokenizer is not None)
        limit = read.tokens
        if limit is None or read.known_by is None:
            return measured
        whole = replace(
            measured, read=ReadPart.all(read.known_by), not_returned=_count_not_returned(chunks)
        )
        if not whole.is_selection and max(lengths, default=0) <= limit:
            return whole
        if read.part is not Part.FIRST:
            return replace(measured, read=UNKNOWN)
        read_spans: dict[int, list[Range]] = defaultdict(list)
        for (document, span, text), places in zip(located, tokens, strict=True):
            is_cut = len(places) + added > limit
            last = places[max(limit - added, 1) - 1, 1] if is_cut else len(text)
            # Of a text that is not a slice of its document, a place is the same share of the
            # length.
            size = round(last / len(text) * (span.end - span.start))
            read_spans[document].append((span.start, span.start + size))
        part = ReadPart(ReadKind.PART, Part.CHUNKS, limit, known_by=read.known_by)
        unread: dict[int, list[Range]] = {}
        for document, read_parts in read_spans.items():
            unread[document] = []
            for returned in merge(chunks.list_spans(document)):
                unread[document] += find_evidence(Span(*returned), read_parts).outside
        return replace(whole, read=part, unread=unread)

    def place(self, evidence: Evidence, subset: str, languages: Iterable[str]) -> ReadEvidence:
        """Find the twelfth of its document that contains each row's evidence, or `Unread`; texts
        are in these languages.
        """
        if self.read.kind is ReadKind.UNKNOWN or self.is_selection:
            return ReadEvidence(self.read, np.zeros(0, np.int64))
        twelfths = evidence.twelfths()
        numbers = {name: number for number, name in enumerate(self.data.documents)}
        for row, name in enumerate(evidence.document_ids if len(evidence.ends) else ()):
            document = f"{subset}/{name}"
            # The length that the data states may be that of the original of a translation.
            scale = len(self.data.documents[document]) / max(int(evidence.characters[row]), 1)
            span = Span(round(evidence.starts[row] * scale), round(evidence.ends[row] * scale))
            unread = find_evidence(span, self.unread.get(numbers[document], ()))
            if unread.inside:
                twelfths[row] = Unread.CUT if unread.outside else Unread.BEYOND
        if self.read.kind is not ReadKind.PART or not len(twelfths):
            return ReadEvidence(self.read, twelfths)
        estimated = CountedWith.from_languages(languages)
        counted = CountedWith.TOKENIZER if self.has_tokenizer else estimated
        return ReadEvidence(self.read, twelfths, counted)

    @property
    def is_selection(self) -> bool:
        """Whether what is retrieved decides of too much evidence whether it is known to be read."""
        excerpts = sum(len(found) for _, found in self.data.questions)
        return self.not_returned > MAX_UNKNOWN * excerpts

    @property
    def longer(self) -> int | None:
        """Chunks that are read in part; None if it is unknown what is read."""
        if self.read.kind is ReadKind.UNKNOWN:
            return None
        return sum(count > (self.read.tokens or count) for count in self.tokens)


def _count_not_returned(chunks: RetrievedChunks) -> int:
    texts = [*chunks.data.documents.values()]
    number = 0
    for _, excerpts in chunks.data.questions:
        for excerpt in excerpts:
            found = find_evidence(excerpt.span, chunks.list_spans(excerpt.document))
            number += found.lacks_words(texts[excerpt.document])
    return number


@dataclass(frozen=True)
class DepthScores:
    """Mean scores of the first k chunks over all questions, in [0, 1], with 95% intervals for new
    documents.
    """

    k: int
    evidence_recall: Estimate
    iou: Estimate
    precision: Estimate


@dataclass(frozen=True)
class EvidenceScores:
    """The share of the evidence that the chunks of a run have, and where the rest is."""

    questions: int
    k: int
    """Chunks that positions and losses are of."""
    depths: tuple[DepthScores, ...]
    by_position: tuple[PlaceRow, ...]
    lost: Mapping[str, Estimate]
    """Share of the evidence that the first k chunks lack, by `Loss`; they add up to 1 less the
    recall.

    Without `not_read` if it is unknown what the embedder reads.
    """
    chunks: int
    """Distinct chunks that were returned, those that are not located left out."""
    median_tokens: float
    longest_tokens: int
    tokens_estimated: bool
    """Whether the tokenizer is unknown."""
    longer_than_read: int | None
    """Chunks that are longer than what the embedder reads; None if that is unknown."""
    not_located: tuple[str, ...]
    """Document and beginning or stated place of distinct chunks that are not in their document."""
    excerpts: int
    not_returned: int
    """Excerpts of which it is unknown whether the embedder reads them, as they are in no returned
    chunk.
    """
    suspects: tuple[str, ...] = ()
    """Sentences on texts that may be no chunks."""

    def to_json(self) -> dict[str, Estimate]:
        """Convert the scores to a row."""
        row = {}
        for scores in self.depths:
            row[f"evidence_recall_at_{scores.k}"] = scores.evidence_recall
            row[f"iou_at_{scores.k}"] = scores.iou
            row[f"precision_at_{scores.k}"] = scores.precision
        return row | {f"lost_{name}_at_{self.k}": share for name, share in self.lost.items()}

    def describe(self, ndcg_at_10: float) -> tuple[str, ...]:
        """Describe how much of the evidence is in the first chunks, and where the rest is, next to
        the documents' nDCG@10.
        """
        recall = next(row.evidence_recall for row in self.depths if row.k == self.k)
        lost = {name: share.value for name, share in self.lost.items() if share.value}
        found = describe_evidence_recall(self.k, recall, ndcg_at_10)
        if not lost:
            return (found,)
        is_known = Loss.NOT_READ in self.lost
        return found, describe_lost_evidence(lost, recall.value, is_known=is_known)

    def build_tables(self) -> Iterator[Table]:
        """Yield the scores by number of chunks, recall by position, and where the evidence is that
        is lost.
        """
        depths = []
        for row in self.depths:
            scores = map(format_evidence_estimate, (row.evidence_recall, row.iou, row.precision))
            depths.append((str(row.k), *scores))
        yield build_table(0, ("First chunks", "Evidence recall", "IoU", "Precision"), depths)
        places = [
            (row.title, format_count(row.excerpts), format_evidence_estimate(row.recall))
            for row in self.by_position
        ]
        yield build_table(1, ("Evidence in the", "Excerpts", f"Recall@{self.k}"), places)
        rare = (Loss.NOT_LOCATED, Loss.NOT_RETURNED)
        lost = [
            (LOSSES[loss], format_evidence_estimate(share))
            for loss, share in self.lost.items()
            if share.value or loss not in rare
        ]
        headings = (f"Evidence that the first {self.k} lack", "Share of all evidence")
        yield build_table(1, headings, lost)

    def describe_chunks(self) -> Iterator[str]:
        """Yield how long the chunks are, how many are read in part, and which are not in their
        document.
        """
        if self.chunks:
            yield describe_chunk_lengths(
                self.chunks,
                self.median_tokens,
                self.longest_tokens,
                is_estimated=self.tokens_estimated,
                longer=self.longer_than_read or 0,
            )
        if self.not_returned:
            number = f"{self.not_returned:,} of {pluralize(self.excerpts, 'excerpt')}"
            yield (
                f"{number} are in no returned chunk, or not whole: whether the embedder reads "
                "them is not known."
            )
        if self.not_located:
            chunks = pluralize(len(self.not_located), "chunk is", "chunks are")
            yield (
                f"{chunks} not in the document, and count as retrieved without evidence; first "
                f"{self.not_located[0]}."
            )
        yield from self.suspects


def score_chunks(name: str, chunks: RetrievedChunks, read: ReadChunks) -> EvidenceScores:
    """Score the chunks of a run, given its name."""
    data = chunks.data
    most = max(map(len, chunks.by_query.values()))
    depths = [depth for depth in DEPTHS if depth <= most] or [1]
    headline = max(depth for depth in depths if depth <= HEADLINE)
    scores: list[list[tuple[float, float, float]]] = []
    losses: list[list[float]] = []
    recalls: list[float] = []
    parts: list[str] = []
    for key, (_, excerpts) in zip(data.ids, data.questions, strict=True):
        hits = chunks.by_query[key]
        places = chunks.place(hits)
        rows = np.arange(len(hits))
        scores.append([score_retrieved(excerpts, places, rows[:depth]) for depth in depths])
        lost = Counter[Loss]()
        for excerpt in excerpts:
            missing = find_losses(excerpt, hits[:headline], chunks, read)
            lost.update(missing)
            recalls.append(1 - sum(missing.values()) / excerpt.length)
            parts.append(chunks.find_part(excerpt))
        total = sum(excerpt.length for excerpt in excerpts)
        losses.append([lost[loss] / total for loss in Loss])
    shares = dict(zip(Loss, np.array(losses).T, strict=True))
    if read.read.kind is ReadKind.UNKNOWN:
        del shares[Loss.NOT_READ]
    depth_scores = []
    for depth, columns in zip(depths, np.array(scores).transpose(1, 2, 0), strict=True):
        iou, recall, precision = (estimate_score(values, data.clusters) for values in columns)
        depth_scores.append(DepthScores(depth, recall, iou, precision))
    return EvidenceScores(
        questions=len(data.questions),
        k=headline,
        depths=tuple(depth_scores),
        by_position=tuple(build_place_rows(name, data, recalls, parts)),
        lost={loss: estimate_score(values, data.clusters) for loss, values in shares.items()},
        chunks=len(read.tokens),
        median_tokens=statistics.median(read.tokens or (0,)),
        longest_tokens=max(read.tokens, default=0),
        tokens_estimated=not read.has_tokenizer,
        longer_than_read=read.longer,
        not_located=chunks.not_located,
        excerpts=len(recalls),
        not_returned=read.not_returned,
        suspects=tuple(chunks.find_suspects()) if NOT_RETURNED in parts else (),
    )


def find_losses(
    excerpt: Excerpt, hits: Iterable[ChunkKey], chunks: RetrievedChunks, read: ReadChunks
) -> dict[Loss, int]:
    """Count the characters of an excerpt that retrieved chunks lack, by where they are."""
    spans = [chunks.spans[hit] for hit in hits if hit.document == excerpt.document]
    found = find_evidence(excerpt.span, [span for span in spans if span])
    beyond = read.unread.get(excerpt.document, ())
    unread = sum(find_evidence(Span(*part), beyond).shared for part in found.outside)
    if found.inside:
        rest = Loss.CUT
    elif None in spans:
        rest = Loss.NOT_LOCATED
    elif not spans:
        rest = Loss.NOT_RETRIEVED
    elif chunks.find_part(excerpt) == NOT_RETURNED:
        rest = Loss.NOT_RETURNED
    else:
        rest = Loss.OTHER_CHUNK
    return {Loss.NOT_READ: unread, rest: found.lost - unread}
