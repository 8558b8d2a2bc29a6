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
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from posir_score.excerpts import (
    NOT_RETURNED,
    NOWHERE,
    ChunkPlaces,
    Excerpt,
    ExcerptData,
    PlaceRow,
    build_place_rows,
    count_shared,
    estimate_score,
    find_chunk_part,
    lacks_words,
    merge,
    score_retrieved,
    subtract,
)
from posir_tasks.base.arrays import Integers
from posir_tasks.base.wording import pluralize, sanitized
from posir_tasks.display.numbers import format_count, format_estimate, format_percent
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.text.locating import START, TextLocator
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import EstimatedTokenizer, Tokenizer
from posir_tasks.values.evidence import Evidence, ReadEvidence, Unread
from posir_tasks.values.read_part import UNKNOWN, CountedWith, Part, ReadKind, ReadPart
from posir_tasks.values.scores import Estimate

if TYPE_CHECKING:
    from posir_score.alignment import AlignedRun

#: Largest share of the excerpts, in no returned chunk, at which the others stand for all.
MOST_UNKNOWN = 0.01
#: Numbers of chunks that recall is computed at, and the one that positions and losses are of.
DEPTHS, HEADLINE = (1, 3, 5, 10, 20), 10
SHARE = "Share of all evidence"
DEPTH_HEADINGS = ("First chunks", "Evidence recall", "IoU", "Precision")
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


#: The words for each, after a number.
LOSSES = {
    Loss.NOT_RETRIEVED: "in a document that is not retrieved",
    Loss.OTHER_CHUNK: "in another chunk of a retrieved document",
    Loss.NOT_RETURNED: "in a retrieved document, but in no returned chunk",
    Loss.NOT_LOCATED: "in a chunk that is not located",
    Loss.CUT: "cut off by the border of a retrieved chunk",
    Loss.NOT_READ: "beyond what the embedder reads",
}


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
    def number(self) -> int | None:
        """The number at the end of its id."""
        digits = NUMBER.search(self.id)
        return int(digits[0]) if digits else None

    @property
    def length(self) -> int:
        """Its characters."""
        return len(self.text) if self.text else len(range(self.start or 0, self.end or 0))

    def describe(self, characters: int) -> str:
        """Return the beginning of its text, or else its place in a document of so many characters,
        for a message.
        """
        if self.text:
            return f"{sanitized(self.text, 60)} ({pluralize(len(self.text), 'character')})"
        return f"characters {self.start or 0:,} to {self.end or 0:,} of {characters:,}"

    def locate(self, locator: TextLocator, previous: Span) -> Span | None:
        """Return its place in its document, behind the previous chunk if it is there; None if it is
        not in the document.
        """
        if self.text:
            return locator.locate(self.text, self.start, previous)
        if (
            self.start is None
            or self.end is None
            or not 0 <= self.start < self.end <= len(locator.text)
        ):
            return None
        return Span(self.start, self.end)


@dataclass(frozen=True, eq=False)
class RetrievedChunks:
    """The chunks that a system returned for the questions with evidence."""

    data: ExcerptData
    by_query: Mapping[QueryKey, Sequence[ChunkKey]]
    """Best first."""
    spans: Mapping[ChunkKey, Span | None]
    """Place of each distinct chunk in its document; None if it is not located."""
    texts: Mapping[int, Mapping[Span, str]]
    """Text of each distinct chunk by its place, by number of its document; of documents with
    evidence alone.
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
        keys: dict[QueryKey, list[ChunkKey]] = {}
        for subset, query in data.ids:
            hits = run.hits[subset].get(query, ())
            owners = (numbers.get(f"{subset}/{hit.document}", NOWHERE) for hit in hits)
            ids = (hit.chunk.removeprefix(hit.document) for hit in hits)
            listed = zip(owners, hits, ids, strict=True)
            keys[subset, query] = [
                ChunkKey(owner, hit.text, hit.start, hit.end, name) for owner, hit, name in listed
            ]
        names, bodies = [*data.documents], [*data.documents.values()]
        spans = _locate_chunks({key for listed in keys.values() for key in listed}, bodies)
        texts: dict[int, dict[Span, str]] = defaultdict(dict)
        for key, span in spans.items():
            if span is not None:
                texts[key.document][span] = key.text or span.of(bodies[key.document])
        stated = (
            key
            for key, span in spans.items()
            if span is None and (key.text or key.start is not None)
        )
        lost = dict.fromkeys(key._replace(id="") for key in stated)
        others = frozenset(key.text for key in lost if key.text and key.document == NOWHERE)
        not_located = tuple(
            f"{sanitized(names[key.document].partition('/')[2])}: "
            f"{key.describe(len(bodies[key.document]))}"
            for key in lost
            if key.document != NOWHERE
        )
        return (
            cls(data, keys, spans, texts, others, not_located)
            if texts or others or not_located
            else None
        )

    def place(self, hits: Sequence[ChunkKey]) -> ChunkPlaces:
        """Return the places of retrieved chunks."""
        spans = [self.spans[hit] for hit in hits]
        owners = [
            NOWHERE if span is None else hit.document for hit, span in zip(hits, spans, strict=True)
        ]
        places = np.array([span or (0, 0) for span in spans], np.int64).reshape(-1, 2)
        return ChunkPlaces(
            np.array(owners, np.int64), places, np.array([hit.length for hit in hits], np.int64)
        )

    def find_suspects(self) -> Iterator[str]:
        """Yield what texts of chunks are or may be in place of these, a sentence each: those of
        queries, previews.
        """
        asked = zip(self.data.ids, self.data.questions, strict=True)
        pairs = [(hit, text) for key, (text, _) in asked for hit in self.by_query[key]]
        if queries := sum((hit.text or "").strip() == text.strip() for hit, text in pairs):
            yield (
                f"{pluralize(queries, 'hit has', 'hits have')} the text of the query: return that "
                "of the chunk."
            )
        hits = [hit for hit, _ in pairs if hit.document != NOWHERE]
        # Each was returned for several questions.
        if 2 * len(set(hits)) <= len(hits) and len(set(hits)) == len(
            {hit.document for hit in hits}
        ):
            yield (
                "Every document comes back with the same chunk for all queries: if that is a "
                "preview, return what was found."
            )

    def list_spans(self, document: int) -> Integers:
        """Return the places of a document's chunks, shape (n, 2)."""
        return np.array([*self.texts.get(document, ())], np.int64).reshape(-1, 2)


def _locate_chunks(keys: Iterable[ChunkKey], texts: Sequence[str]) -> dict[ChunkKey, Span | None]:
    """Return the place of each chunk in its document, given the texts of the documents; None if it
    is unknown.
    """
    spans: dict[ChunkKey, Span | None] = {}
    # By document, then as they are numbered or placed.
    ordered = sorted(keys, key=lambda key: (key.document, key.number or 0, key.start or 0))
    for document, group in groupby(ordered, key=lambda key: key.document):
        if document == NOWHERE:
            spans |= dict.fromkeys(group)
            continue
        locator, previous = TextLocator(texts[document]), START
        for key in group:
            spans[key] = span = key.locate(locator, previous)
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
    unread: Mapping[int, Sequence[tuple[int, int]]]
    """Characters of each document that are in chunks, but in what is read of none, by number of the
    document.
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
        """Return what is read of chunks, given what an embedder reads of a text, and its prompt and
        special tokens.
        """
        counter, has_tokenizer = tokenizer or EstimatedTokenizer(), tokenizer is not None
        located = [
            (document, span, text)
            for document, spans in chunks.texts.items()
            for span, text in spans.items()
        ]
        places = counter.find_tokens([text for _, _, text in located])
        counts = [*map(len, places), *counter.count_all([*chunks.other_texts])]
        lengths, limit = tuple(sorted(count + added for count in counts)), read.tokens
        if limit is None or read.known_by is None:
            return cls(chunks.data, read, lengths, has_tokenizer, {})
        documents, excerpts = (
            [*chunks.data.documents.values()],
            chain(*(listed for _, listed in chunks.data.questions)),
        )
        not_returned = sum(
            lacks_words(
                excerpt.span, documents[excerpt.document], chunks.texts.get(excerpt.document, ())
            )
            for excerpt in excerpts
        )
        whole = cls(
            chunks.data, ReadPart.all(read.known_by), lengths, has_tokenizer, {}, not_returned
        )
        if not whole.is_selection and max(lengths, default=0) <= limit:
            return whole
        if read.part is not Part.FIRST:
            return cls(chunks.data, UNKNOWN, lengths, has_tokenizer, {})
        known: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for (document, span, text), tokens in zip(located, places, strict=True):
            # Of a text that is not a slice of its document, a place is the same share of the
            # length.
            last = (
                tokens[max(limit - added, 1) - 1, 1] if len(tokens) + added > limit else len(text)
            )
            known[document].append(
                (span.start, span.start + round(last / len(text) * len(range(*span))))
            )
        unread = {
            document: [
                part
                for start, end in merge(chunks.texts[document])
                for part in subtract(Span(start, end), merge(spans))
            ]
            for document, spans in known.items()
        }
        part = ReadPart(ReadKind.PART, Part.CHUNKS, limit, known_by=read.known_by)
        return cls(chunks.data, part, lengths, has_tokenizer, unread, not_returned)

    def place(self, evidence: Evidence, subset: str, languages: Iterable[str]) -> ReadEvidence:
        """Return which twelfth of its document contains each row's evidence, or `Unread`; texts are
        in these languages.
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
            if unread := count_shared(span, self.unread.get(numbers[document], ())):
                twelfths[row] = Unread.BEYOND if unread == len(range(*span)) else Unread.CUT
        is_counted = self.read.kind is ReadKind.PART and len(twelfths)
        counted = (
            CountedWith.TOKENIZER if self.has_tokenizer else CountedWith.from_languages(languages)
        )
        return ReadEvidence(self.read, twelfths, counted if is_counted else None)

    @property
    def is_selection(self) -> bool:
        """Whether what is retrieved decides of too much evidence whether it is known to be read."""
        excerpts = sum(len(listed) for _, listed in self.data.questions)
        return self.not_returned > MOST_UNKNOWN * excerpts

    @property
    def longer(self) -> int | None:
        """Chunks that are read in part; None if it is unknown what is read."""
        if self.read.kind is ReadKind.UNKNOWN:
            return None
        return sum(count > (self.read.tokens or count) for count in self.tokens)


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
        """Return the scores by name, as a row."""
        depths = {
            f"{name}_at_{row.k}": value
            for row in self.depths
            for name, value in vars(row).items()
            if name != "k"
        }
        return depths | {f"lost_{name}_at_{self.k}": value for name, value in self.lost.items()}

    def describe(self, ndcg_at_10: float) -> Iterator[str]:
        """Yield how much of the evidence is in the first chunks, and where the rest is, beside the
        documents' nDCG@10.
        """
        recall = next(row.evidence_recall for row in self.depths if row.k == self.k)
        first = "The first chunk has" if self.k == 1 else f"The first {self.k} chunks have"
        yield (
            f"{first} {format_estimate(recall, format_percent)}% of the evidence; documents score "
            "nDCG@10 "
            f"{format_percent(ndcg_at_10)}."
        )
        lost = sorted(
            ((share.value, loss) for loss, share in self.lost.items() if share.value), reverse=True
        )
        if lost:
            parts = ", ".join(
                f"{format_percent(share)} {LOSSES[Loss(loss)]}" for share, loss in lost
            )
            unknown = (
                ""
                if Loss.NOT_READ in self.lost
                else "; what of it is beyond what the embedder reads is unknown"
            )
            yield f"The other {format_percent(1 - recall.value)}%: {parts}{unknown}."

    def build_tables(self) -> Iterator[Table]:
        """Yield the scores by number of chunks, recall by position, and where the evidence is that
        is lost.
        """
        depths = (
            (str(row.k), *_format(row.evidence_recall, row.iou, row.precision))
            for row in self.depths
        )
        yield Table(build_columns(DEPTH_HEADINGS, DEPTH_HEADINGS), tuple(depths))
        headings = ("Evidence in the", "Excerpts", f"Recall@{self.k}")
        places = (
            (row.title, format_count(row.excerpts), *_format(row.recall))
            for row in self.by_position
        )
        yield Table(build_columns(headings, headings[1:]), tuple(places))
        rare = (Loss.NOT_LOCATED, Loss.NOT_RETURNED)
        shown = {
            loss: share for loss, share in self.lost.items() if share.value or loss not in rare
        }
        lost = ((LOSSES[Loss(loss)], *_format(share)) for loss, share in shown.items())
        yield Table(
            build_columns((f"Evidence that the first {self.k} lack", SHARE), [SHARE]), tuple(lost)
        )

    def describe_chunks(self) -> Iterator[str]:
        """Yield how long the chunks are, how many are read in part, and which are not in their
        document.
        """
        estimated = ", estimated" if self.tokens_estimated else ""
        median = pluralize(round(self.median_tokens), "token")
        longer = (
            f"; {pluralize(self.longer_than_read, 'is', 'are')} read in part"
            if self.longer_than_read
            else ""
        )
        chunks = pluralize(self.chunks, "distinct chunk")
        if self.chunks:
            yield (
                f"{chunks}, of {median} in the median, at most "
                f"{self.longest_tokens:,}{estimated}{longer}."
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
    data, most = chunks.data, max(map(len, chunks.by_query.values()))
    depths = [depth for depth in DEPTHS if depth <= most] or [1]
    headline = max(depth for depth in depths if depth <= HEADLINE)
    scores, losses = (
        {depth: list[tuple[float, float, float]]() for depth in depths},
        list[list[float]](),
    )
    recalls, parts = list[float](), list[str]()
    for key, (_, excerpts) in zip(data.ids, data.questions, strict=True):
        hits, lost = chunks.by_query[key], dict.fromkeys(LOSSES, 0)
        for depth in depths:
            scores[depth].append(
                score_retrieved(excerpts, chunks.place(hits[:depth]), np.arange(len(hits[:depth])))
            )
        for excerpt in excerpts:
            missing = find_losses(excerpt, hits[:headline], chunks, read)
            lost |= {loss: lost[loss] + characters for loss, characters in missing.items()}
            recalls.append(1 - sum(missing.values()) / len(range(*excerpt.span)))
            parts.append(_find_part(excerpt, chunks))
        total = sum(len(range(*excerpt.span)) for excerpt in excerpts)
        losses.append([characters / total for characters in lost.values()])
    shares = dict(zip(LOSSES, np.array(losses).T, strict=True))
    if read.read.kind is ReadKind.UNKNOWN:
        del shares[Loss.NOT_READ]
    rows = {
        depth: [estimate_score(values, data.clusters) for values in np.array(scores[depth]).T]
        for depth in depths
    }
    return EvidenceScores(
        questions=len(data.questions),
        k=headline,
        depths=tuple(
            DepthScores(depth, recall, iou, precision)
            for depth, (iou, recall, precision) in rows.items()
        ),
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


def _format(*shares: Estimate) -> list[str]:
    return [format_estimate(share, format_percent) for share in shares]


def find_losses(
    excerpt: Excerpt, hits: Iterable[ChunkKey], chunks: RetrievedChunks, read: ReadChunks
) -> dict[Loss, int]:
    """Return how many characters of an excerpt retrieved chunks lack, by where they are."""
    own = [chunks.spans[hit] for hit in hits if hit.document == excerpt.document]
    missing = subtract(excerpt.span, merge(filter(None, own)))
    number = sum(end - start for start, end in missing)
    unread = sum(
        count_shared(Span(start, end), read.unread.get(excerpt.document, ()))
        for start, end in missing
    )
    if number < len(range(*excerpt.span)):
        rest = Loss.CUT
    elif None in own:
        rest = Loss.NOT_LOCATED
    elif not own:
        rest = Loss.NOT_RETRIEVED
    else:
        rest = (
            Loss.NOT_RETURNED if _find_part(excerpt, chunks) == NOT_RETURNED else Loss.OTHER_CHUNK
        )
    return {Loss.NOT_READ: unread, rest: number - unread}


def _find_part(excerpt: Excerpt, chunks: RetrievedChunks) -> str:
    """Return the third of a chunk in which an excerpt is, that it is divided, or that no chunk with
    it was returned.
    """
    spans = chunks.list_spans(excerpt.document)
    return (
        find_chunk_part(excerpt.span, spans)
        if count_shared(excerpt.span, merge(spans.tolist()))
        else NOT_RETURNED
    )
