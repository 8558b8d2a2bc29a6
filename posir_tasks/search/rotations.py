"""Search for rotated versions of a sample of documents, each among the unchanged other documents of
its question.

The versions are scored as the model scores documents; the other documents keep the scores of the
ordinary search. The sample depends on the texts alone, so that it is the same for every model, and
a smaller one is part of a larger one.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from datasets import Dataset
from mteb.models import EncoderProtocol, MultiVectorSearchEncoderWrapper, SearchProtocol
from mteb.models.model_implementations.bm25 import BM25Search
from mteb.types import PromptType

from posir_tasks.base.arrays import Integers
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import ScoreError
from posir_tasks.models.dispatch import HybridSearch, fuse_rankings, is_reranker, search_results
from posir_tasks.models.embeddings.cached_encoder import CachedEncoder
from posir_tasks.models.embeddings.distinct import DistinctEmbeddings
from posir_tasks.models.request import SearchRequest
from posir_tasks.search.input_window import find_counter
from posir_tasks.text.rotations import (
    ESTIMATED_ROOM,
    SPARE_TOKENS,
    VERSIONS,
    Version,
    choose_excerpt,
    count_units,
    find_units,
    hash_text,
    locate_in_tokens,
    rotate_text,
)
from posir_tasks.text.spans import Span
from posir_tasks.text.tokenizer import EstimatedTokenizer, ModelTokenizer, Tokenizer
from posir_tasks.values.document_ranks import DocumentRanks, DocumentSet, order_queries
from posir_tasks.values.evidence import POSITIONS, TWELFTHS, Evidence
from posir_tasks.values.profile import rank_columns
from posir_tasks.values.ranks import Results
from posir_tasks.values.read_part import Part, ReadKind, ReadPart
from posir_tasks.values.rotation_ranks import (
    IN_WHOLE,
    IN_WINDOW,
    VERSION_BITS,
    LeftOut,
    RotationRanks,
    RotationSet,
    Untested,
    Window,
    build_untested,
    code_unread,
)

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

    from posir_tasks.search.scoring import ReadFinder, Rows
    from posir_tasks.values.schemes import PositionScheme

logger = logging.getLogger(__name__)

#: Hits of a run from which nDCG@10 of a moved document is exact.
MIN_HITS = 11
#: Relative difference of two scores that count as equal, and the share of questions whose scores
#: must be.
SCORE_TOLERANCE, REPRODUCED_SHARE = 1e-3, 0.95
#: Between the id of a document and the number of its version; no id has it.
MARK = "\0"
#: A question and a version, by their ids.
Pair: TypeAlias = tuple[str, str]


def is_order_blind(model: object) -> bool:
    """Tell whether the order of words plays no part in the scores of a model: BM25, or a class that
    says so.
    """
    return isinstance(model, BM25Search) or getattr(model, "order_blind", False) is True


def can_score_versions(model: object) -> bool:
    """Tell whether a model scores a document independently of the rest of the corpus."""
    if isinstance(model, HybridSearch):
        return all(is_order_blind(part) or can_score_versions(part) for part in model.models)
    if isinstance(model, MultiVectorSearchEncoderWrapper):
        return True
    if isinstance(model, SearchProtocol):
        return getattr(model, "scores_depend_on_corpus", True) is False
    return isinstance(model, EncoderProtocol) or is_reranker(model)  # type: ignore[arg-type]


@dataclass(frozen=True)
class SampledDocument:
    """A document of the sample, and the rows of its questions in the evidence."""

    name: str
    place: int
    """Its place in the sample of its length, from 1."""
    rows: Sequence[int]


def sample_documents(
    groups: Sequence[Sequence[int]], evidence: Evidence, lengths: Integers, rows: Rows, quota: int
) -> list[int]:
    """Return 1 + the place of each document in the sample of its length, 0 if it is not sampled;
    shape (D,).

    `groups` are the rows of the questions of each document, `lengths` the length bucket of each
    question.
    """
    by_length: dict[int, list[tuple[int, str, int]]] = defaultdict(list)
    for number, group in enumerate(groups):
        name = evidence.document_ids[group[0]]
        by_length[int(lengths[group[0]])].append((hash_text(str(rows[name]["text"])), name, number))
    places = [0] * len(groups)
    for documents in by_length.values():
        for place, (_, _, number) in enumerate(sorted(documents)[:quota], start=1):
            places[number] = place
    return places


def find_spans(evidence: Evidence, rows: Sequence[int]) -> list[Span]:
    """Return the spans of the evidence of some questions; none if it is labeled, or of a text in
    another language.
    """
    if not len(evidence.starts):
        return []
    starts = evidence.starts[rows].tolist()
    ends = (evidence.ends if len(evidence.ends) else evidence.starts + 1)[rows].tolist()
    return [Span(start, end) for start, end in zip(starts, ends, strict=True)]


def digest_versions(texts: Iterable[str]) -> str:
    """Return the digest of the versions of a sample, document by document."""
    return digest(*texts).hex()


@dataclass(frozen=True)
class RotatedDocument:
    """The versions of a document, and those of its excerpt."""

    name: str
    row: Mapping[str, Any]
    whole: Sequence[Version]
    excerpt: Sequence[Version] = ()
    """Versions of test R; empty if there are none."""

    @property
    def is_read_whole(self) -> bool:
        """Whether the excerpt is the document."""
        return self.excerpt is self.whole

    def name_version(self, version: Version) -> str:
        """Return the id of a version."""
        kind = "w" if version in self.whole else "r"
        return f"{self.name}{MARK}{kind}{version.number}"

    def build_row(self, version: Version) -> dict[str, Any]:
        """Return a version as a row of a corpus."""
        return {**self.row, "id": self.name_version(version), "text": version.text}


@dataclass(frozen=True)
class ExcerptReader:
    """The tokenizer and the room that decide which excerpts a model reads whole."""

    tokenizer: Tokenizer
    room: int
    """Tokens that a title and a text may have."""
    is_estimated: bool
    queries: Mapping[str, str] = field(default_factory=dict)
    """Texts of the questions that a cross-encoder reads with a document, by id; empty for other
    models.
    """

    @classmethod
    def of_model(cls, model: MTEBModels, request: SearchRequest, read: ReadPart) -> ExcerptReader:
        """Return the reader of a model that reads a part of a text."""
        reading = model.base if isinstance(model, CachedEncoder) else model
        tokenizer, before = find_counter(reading, request.context.task_metadata)
        tokens = read.tokens or 0
        queries: dict[str, str] = {}
        if is_reranker(model):
            queries = dict(zip(request.queries["id"][:], request.queries["text"][:], strict=True))
            before += _count_pair_tokens(tokenizer)
        if tokenizer is None:
            return cls(EstimatedTokenizer(), int(ESTIMATED_ROOM * tokens), True, queries)
        return cls(tokenizer, tokens - before - SPARE_TOKENS, False, queries)

    def find_room(self, title: str, questions: Iterable[str]) -> int:
        """Return the tokens that the text of a document may have, given its title and the ids of
        its tested questions.
        """
        asked = [self.queries[name] for name in questions if name in self.queries]
        longest = max(self.tokenizer.count_all(asked), default=0) if asked else 0
        return self.room - longest - (self.tokenizer.count(title) if title else 0)


def _count_pair_tokens(tokenizer: ModelTokenizer | None) -> int:
    """Return how many more special tokens a pair of texts has than a text."""
    if tokenizer is None:
        return 0
    return int(tokenizer.tokenizer.num_special_tokens_to_add(pair=True)) - tokenizer.special_tokens


@dataclass(frozen=True, eq=False)
class RotationTest:
    """The test of a model on rotated versions of documents of one subset."""

    model: MTEBModels
    """The model as it was searched."""
    request: SearchRequest
    results: Results
    """The ordinary search."""
    ordinary_ranks: Mapping[str, int]
    """Rank of each question's document in it, from 1; 0 if it was not found."""
    sample_size: int
    """Documents of each length, over all subsets of the task."""
    subsets: int
    """Subsets that the data of the task has."""
    language: str = ""
    """Code of the documents' language; empty for that of the task."""
    is_run: bool = False
    """Whether the results are those of a run, whose scores the model must reproduce."""

    def rank(
        self,
        scheme: PositionScheme,
        evidence: Evidence,
        documents: Rows,
        ranks: DocumentRanks,
        find_read: ReadFinder,
        read: ReadPart,
    ) -> RotationRanks | None:
        """Rank the rotated versions.

        Args:
            scheme: Assigns documents to lengths.
            evidence: Of the questions with one place of evidence.
            documents: Rows of the relevant documents by id.
            ranks: The ordinary ranks of these questions.
            find_read: Finds evidence in what is read of documents.
            read: The part of a document that is read.

        Returns:
            The ranks; None if none were asked for.
        """
        if not self.sample_size:
            return None
        untested = self._find_reason(evidence)
        if untested is not None:
            return build_untested(ranks, untested, self.sample_size, self.subsets)
        groups = order_queries(scheme, evidence)
        quota = math.ceil(self.sample_size / self.subsets)
        places = sample_documents(
            groups, evidence, scheme.length_buckets(evidence), documents, quota
        )
        sampled = [
            SampledDocument(evidence.document_ids[group[0]], place, group)
            for group, place in zip(groups, places, strict=True)
            if place
        ]
        logger.info("Rotating %d documents", len(sampled))
        subset = SubsetRotation(self, evidence, documents, sampled, find_read, read)
        return (
            RotationRanks((subset.build(ranks.sets[0], places),))
            if ranks.sets
            else RotationRanks(())
        )

    def _find_reason(self, evidence: Evidence) -> Untested | None:
        """Return why nothing can be tested; None if it can."""
        if is_order_blind(self.model):
            return Untested.ORDER_BLIND
        if isinstance(self.model, HybridSearch) and all(map(is_order_blind, self.model.models)):
            return Untested.ORDER_BLIND
        if not can_score_versions(self.model):
            return Untested.NO_TEXTS
        return None if len(evidence) else Untested.SEVERAL_POSITIONS


@dataclass(frozen=True, eq=False)
class SubsetRotation:
    """The rotation of the sampled documents of a subset."""

    test: RotationTest
    evidence: Evidence
    documents: Rows
    sampled: Sequence[SampledDocument]
    find_read: ReadFinder
    read: ReadPart
    left_out: Counter[str] = field(default_factory=Counter)

    @cached_property
    def window(self) -> Window:
        """The text that test R rotates."""
        if self.read.kind is ReadKind.ALL:
            return Window.WHOLE
        if self.read.kind is ReadKind.UNKNOWN or self.read.part is Part.CHUNKS:
            return Window.UNKNOWN
        return Window.EXCERPT

    @property
    def corpus_size(self) -> int:
        """Number of documents."""
        return len(self.test.request.corpus)

    @cached_property
    def reader(self) -> ExcerptReader | None:
        """The reader that decides on excerpts; None if nothing is excerpted."""
        if self.window is not Window.EXCERPT:
            return None
        return ExcerptReader.of_model(self.test.model, self.test.request, self.read)

    @cached_property
    def questions(self) -> dict[str, str]:
        """Texts of the questions by id."""
        queries = self.test.request.queries
        return dict(zip(queries["id"][:], queries["text"][:], strict=True))

    @cached_property
    def labels(self) -> list[int | None] | None:
        """Third of each question's evidence, None if a label names several; None if the evidence
        has spans.
        """
        if not self.evidence.labels:
            return None
        named = [
            [third for third, name in enumerate(POSITIONS) if name in label]
            for label in self.evidence.labels
        ]
        return [thirds[0] if len(thirds) == 1 else None for thirds in named]

    def build(self, owner: DocumentSet, places: Sequence[int]) -> RotationSet:
        """Rotate, score and rank; return the set that belongs to the ranks of the same
        documents.
        """
        rotated = [self._rotate(document) for document in self.sampled]
        tested = [
            self._select_questions(document, rows)
            for document, rows in zip(self.sampled, rotated, strict=True)
        ]
        base = RotationSet(
            owner.subset, owner.documents, owner.queries, self.test.sample_size, self.test.subsets,
            window=self.window, room=self.reader.room if self.reader else 0,
        )  # fmt: skip
        untested = self._find_reason(rotated, tested)
        if untested is not None:
            return replace(
                base, untested=untested, window=Window.UNKNOWN, room=0, left_out=dict(self.left_out)
            )
        columns = _Columns(self, rotated, tested, self._score(rotated, tested))
        whole = columns.collect(window=False)
        excerpts = (
            columns.collect(window=True) if self.window is Window.EXCERPT else whole.nothing()
        )
        return replace(
            base,
            sample=np.array(places, np.int64),
            versions=np.array([_code_versions(document) for document in rotated], np.int64),
            tested=np.array([bits for rows in tested for bits in rows], np.int64),
            twelfths=whole.twelfths,
            ranks=whole.ranks,
            unread=whole.unread,
            window_twelfths=excerpts.twelfths,
            window_ranks=excerpts.ranks,
            digest=digest_versions(
                version.text for document in rotated for version in document.whole
            ),
            window_digest=self._digest_window(rotated),
            left_out={name: count for name, count in sorted(self.left_out.items()) if count},
        )

    def _find_reason(
        self, rotated: Sequence[RotatedDocument], tested: Sequence[Sequence[int]]
    ) -> Untested | None:
        """Return why no version is ranked; None if versions are."""
        if not any(any(rows) for rows in tested):
            return Untested.ONE_UNIT if self.left_out else Untested.SEVERAL_POSITIONS
        if self.test.is_run and not self._reproduces_run(rotated, tested):
            return Untested.SCORES_DIFFER
        return None

    def _reproduces_run(
        self, rotated: Sequence[RotatedDocument], tested: Sequence[Sequence[int]]
    ) -> bool:
        """Tell whether the model gives the unmoved documents the scores that the run has for
        them.
        """
        owners = dict[str, str]()
        rows = dict[str, dict[str, Any]]()
        for document, rotations, bits in zip(self.sampled, rotated, tested, strict=True):
            for row, bit in zip(document.rows, bits, strict=True):
                question = self.evidence.query_ids[row]
                if bit and document.name in self.test.results.get(question, {}):
                    owners[question] = document.name
                    rows[document.name] = {**rotations.row, "id": document.name}
        if not owners:
            return False
        pairs = {question: [name] for question, name in owners.items()}
        ranker = VersionRanker(
            self.test, Dataset.from_list(list(rows.values())), pairs, owners, self.documents
        )
        stated = [self.test.results[question][name] for question, name in owners.items()]
        scores = ranker.score(self.test.model)
        computed = [scores[question, name] for question, name in owners.items()]
        close = np.isclose(computed, stated, rtol=SCORE_TOLERANCE, atol=0.0)
        return bool(close.mean() >= REPRODUCED_SHARE)

    def _digest_window(self, rotated: Sequence[RotatedDocument]) -> str:
        if self.window is Window.UNKNOWN:
            return ""
        chosen = "whole" if self.window is Window.WHOLE else "excerpt"
        return digest_versions(
            version.text for document in rotated for version in getattr(document, chosen)
        )

    def _rotate(self, document: SampledDocument) -> RotatedDocument:
        row = self.documents[document.name]
        text = str(row["text"])
        spans = find_spans(self.evidence, document.rows)
        units = find_units(
            text, self.test.language or self.test.request.context.corpus_language, spans
        )
        whole = rotate_text(text, units)
        if len(whole) < 2:
            self.left_out[LeftOut.DOCUMENTS_OF_ONE_UNIT] += 1
        rotated = RotatedDocument(document.name, row, whole)
        if self.reader is None:
            return replace(rotated, excerpt=whole) if self.window is Window.WHOLE else rotated
        asked = [self.evidence.query_ids[question] for question in document.rows]
        room = self.reader.find_room(str(row.get("title") or ""), asked)
        sizes = count_units(text, units, self.reader.tokenizer)
        if sum(sizes) <= room:
            return replace(rotated, excerpt=whole)
        part = choose_excerpt(text, units, sizes, room, spans) if spans else None
        excerpt = rotate_text(text, units, part) if part else []
        if len(excerpt) < 2:
            self.left_out[LeftOut.DOCUMENTS_WITHOUT_EXCERPT] += 1
            return rotated
        return replace(rotated, excerpt=excerpt)

    def _select_questions(self, document: SampledDocument, rotated: RotatedDocument) -> list[int]:
        """Return the tests of each question about a document, as bits."""
        spans = find_spans(self.evidence, document.rows)
        bits = list[int]()
        for number, row in enumerate(document.rows):
            name = self.evidence.query_ids[row]
            span = spans[number] if spans else None
            if not self._has_position(row, rotated, span):
                self.left_out[LeftOut.QUESTIONS_WITHOUT_SPAN] += 1
                bits.append(0)
            elif self._is_missed(name, document.name):
                self.left_out[LeftOut.QUESTIONS_MISSED_BY_FIRST_STAGE] += 1
                bits.append(0)
            elif self.test.is_run and len(self.test.results.get(name, {})) < min(
                MIN_HITS, self.corpus_size
            ):
                self.left_out[LeftOut.QUESTIONS_WITH_FEW_HITS] += 1
                bits.append(0)
            else:
                whole = IN_WHOLE if len(rotated.whole) > 1 else 0
                window = (
                    IN_WINDOW if len(rotated.excerpt) > 1 and self._is_inside(rotated, span) else 0
                )
                bits.append(whole | window)
        return bits

    def _has_position(self, row: int, rotated: RotatedDocument, span: Span | None) -> bool:
        if self.labels is not None:
            return self.labels[row] is not None
        if span is None:
            return False
        characters = self.evidence.characters
        text = str(rotated.row["text"])
        same_text = not len(characters) or int(characters[row]) == len(text)
        return same_text and 0 <= span.start < span.end <= len(text)

    def _is_missed(self, question: str, document: str) -> bool:
        """Tell whether a question's document is not among the candidates of a reranker."""
        top_ranked = self.test.request.top_ranked
        return top_ranked is not None and document not in top_ranked.get(question, ())

    def _is_inside(self, rotated: RotatedDocument, span: Span | None) -> bool:
        if rotated.is_read_whole:
            return True
        first = rotated.excerpt[0]
        inside = (
            span is not None
            and first.offset <= span.start
            and span.end <= first.offset + len(first.text)
        )
        self.left_out[LeftOut.QUESTIONS_OUTSIDE_EXCERPT] += not inside
        return inside

    def _score(
        self, rotated: Sequence[RotatedDocument], tested: Sequence[Sequence[int]]
    ) -> dict[Pair, int]:
        """Return the rank of each tested question's document by question and version, but of the
        unmoved document.
        """
        rows = dict[str, dict[str, Any]]()
        pairs = dict[str, list[str]]()
        owners = dict[str, str]()
        for document, rotations, bits in zip(self.sampled, rotated, tested, strict=True):
            for row, bit in zip(document.rows, bits, strict=True):
                question = self.evidence.query_ids[row]
                versions = list(rotations.whole[1:]) if bit & IN_WHOLE else []
                if bit & IN_WINDOW and not rotations.is_read_whole:
                    versions += rotations.excerpt
                if versions:
                    pairs[question] = [rotations.name_version(version) for version in versions]
                    owners[question] = document.name
                    rows |= {
                        rotations.name_version(version): rotations.build_row(version)
                        for version in versions
                    }
        if not pairs:
            return {}
        ranker = VersionRanker(
            self.test, Dataset.from_list(list(rows.values())), pairs, owners, self.documents
        )
        ranks = ranker.rank(self.test.model)
        self.left_out[LeftOut.COPIES] += ranker.count_copies()
        return ranks


def _code_versions(document: RotatedDocument) -> int:
    whole: int = sum(1 << version.number for version in document.whole)
    excerpt: int = sum(1 << version.number for version in document.excerpt)
    return int(whole + VERSION_BITS * excerpt)


@dataclass(frozen=True)
class _CollectedRows:
    twelfths: Integers
    ranks: Integers
    unread: Integers

    def nothing(self) -> _CollectedRows:
        empty = np.zeros(0, np.int64)
        return _CollectedRows(empty, empty, empty)


@dataclass(frozen=True, eq=False)
class _Columns:
    """Collects the rows of a test, question by question."""

    subset: SubsetRotation
    rotated: Sequence[RotatedDocument]
    tested: Sequence[Sequence[int]]
    ranks: Mapping[Pair, int]

    def collect(self, *, window: bool) -> _CollectedRows:
        """Return the rows of test R, or of test W."""
        evidence = self.subset.evidence
        bit = IN_WINDOW if window else IN_WHOLE
        questions = list[int]()
        versions = list[tuple[RotatedDocument, Version]]()
        for document, rotated, bits in zip(
            self.subset.sampled, self.rotated, self.tested, strict=True
        ):
            chosen = rotated.excerpt if window else rotated.whole
            for row, tests in zip(document.rows, bits, strict=True):
                if tests & bit:
                    questions += [row] * len(chosen)
                    versions += [(rotated, version) for version in chosen]
        ranks = [
            self._find_rank(evidence.query_ids[row], *version)
            for row, version in zip(questions, versions, strict=True)
        ]
        spans = self._move_spans(questions, versions)
        twelfths = self._find_twelfths(questions, versions, spans, window=window)
        unread = np.zeros(0, np.int64) if window else self._find_unread(questions, versions, spans)
        return _CollectedRows(twelfths, rank_columns(np.array(ranks, np.int64)), unread)

    def _find_rank(self, question: str, rotated: RotatedDocument, version: Version) -> int:
        """Return the rank of a version; the document as it is has its ordinary rank."""
        if version is rotated.whole[0]:
            return self.subset.test.ordinary_ranks[question]
        return self.ranks[question, rotated.name_version(version)]

    def _move_spans(
        self, questions: Sequence[int], versions: Sequence[tuple[RotatedDocument, Version]]
    ) -> list[Span]:
        if self.subset.labels is not None:
            return []
        starts = self.subset.evidence.starts.tolist()
        ends = (
            self.subset.evidence.ends
            if len(self.subset.evidence.ends)
            else self.subset.evidence.starts + 1
        ).tolist()
        return [
            version.move(Span(starts[row], ends[row]))
            for row, (_, version) in zip(questions, versions, strict=True)
        ]

    def _find_twelfths(
        self,
        questions: Sequence[int],
        versions: Sequence[tuple[RotatedDocument, Version]],
        spans: Sequence[Span],
        *,
        window: bool,
    ) -> Integers:
        labels = self.subset.labels
        if labels is not None:
            thirds = [
                ((labels[row] or 0) - version.number) % 3
                for row, (_, version) in zip(questions, versions, strict=True)
            ]
            return 4 * np.array(thirds, np.int64) + 1
        if window and self.subset.reader is not None:
            middles = self._find_token_middles(versions, spans)
        else:
            middles = [
                span.middle / len(version.text)
                for span, (_, version) in zip(spans, versions, strict=True)
            ]
        return (
            np.floor(TWELFTHS * np.array(middles, np.float64))
            .astype(np.int64)
            .clip(0, TWELFTHS - 1)
        )

    def _find_token_middles(
        self, versions: Sequence[tuple[RotatedDocument, Version]], spans: Sequence[Span]
    ) -> list[float]:
        assert self.subset.reader is not None
        texts = list(dict.fromkeys(version.text for _, version in versions))
        tokens = dict(zip(texts, self.subset.reader.tokenizer.find_tokens(texts), strict=True))
        middles = list[float]()
        for (_, version), span in zip(versions, spans, strict=True):
            middles += locate_in_tokens([span], tokens[version.text])
        return middles

    def _find_unread(
        self,
        questions: Sequence[int],
        versions: Sequence[tuple[RotatedDocument, Version]],
        spans: Sequence[Span],
    ) -> Integers:
        """Return whether the evidence is read in each version; (0,) if that is unknown."""
        subset = self.subset
        if subset.read.kind is ReadKind.ALL or not spans:
            return np.zeros(0, np.int64)
        rows = {
            rotated.name_version(version): rotated.build_row(version)
            for rotated, version in versions
        }
        # A rotated document has as many tokens as the data states for the document.
        tokens = subset.evidence.tokens
        moved = Evidence(
            query_ids=[str(number) for number in range(len(questions))],
            document_ids=[rotated.name_version(version) for rotated, version in versions],
            starts=np.array([span.start for span in spans], np.int64),
            ends=np.array([span.end for span in spans], np.int64),
            tokens=tokens[questions] if len(tokens) else tokens,
        )
        texts = [subset.questions[subset.evidence.query_ids[row]] for row in questions]
        queries = Dataset.from_dict({"id": moved.query_ids, "text": texts})
        placed = subset.find_read(queries, moved, rows)
        return code_unread(placed.twelfths) if len(placed.twelfths) else np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class VersionRanker:
    """Ranks versions of documents among the other documents of their questions."""

    test: RotationTest
    versions: Dataset
    """The versions, as a corpus."""
    pairs: Mapping[str, Sequence[str]]
    """Ids of the versions to rank for each question."""
    owners: Mapping[str, str]
    """Id of each question's document."""
    documents: Rows

    @cached_property
    def copies(self) -> dict[str, set[str]]:
        """Ids of documents with the text of a question's document, among its results, by
        question.
        """
        hits = {
            question: set(self.test.results.get(question, {})) - {name}
            for question, name in self.owners.items()
        }
        texts = _read_texts(self.test.request.corpus, set().union(*hits.values()))
        copies = {}
        for question, names in hits.items():
            text = str(self.documents[self.owners[question]]["text"])
            copies[question] = {name for name in names if texts.get(name) == text}
        return copies

    def count_copies(self) -> int:
        """Return how many hits are copies of a question's document."""
        return sum(map(len, self.copies.values()))

    def rank(self, model: MTEBModels) -> dict[Pair, int]:
        """Return the rank of each pair from 1; 0 if the version is not among the first."""
        if isinstance(model, HybridSearch):
            return self._rank_hybrid(model)
        scores = self.score(model)
        return {
            pair: self._rank_among(pair, score, self.test.results) for pair, score in scores.items()
        }

    def score(self, model: MTEBModels) -> dict[Pair, float]:
        """Return the score of each pair; raise ScoreError if one is NaN, as the ordinary search
        does.
        """
        scores = self._score(model)
        number = sum(map(math.isnan, scores.values()))
        if number:
            raise ScoreError(
                f"The model returned NaN scores for {number} of {len(scores)} rotated versions. "
                "NaN cannot be ranked. Common "
                "causes: overflow in half precision (try another dtype), a damaged checkpoint. "
                "`POSIR_ROTATED=0` scores "
                "without rotated versions."
            )
        return scores

    def _score(self, model: MTEBModels) -> dict[Pair, float]:
        if isinstance(model, EncoderProtocol) and not isinstance(model, SearchProtocol):
            return self._score_embeddings(model)
        request = self.test.request
        queries = self._select_queries()
        candidates = {question: list(names) for question, names in self.pairs.items()}
        narrowed = replace(
            request,
            corpus=self.versions,
            queries=queries,
            top_ranked=candidates,
            top_k=2 * VERSIONS,
        )
        results = search_results(model, narrowed)
        return {
            (question, name): results[question][name]
            for question, names in self.pairs.items()
            for name in names
        }

    def _select_queries(self) -> Dataset:
        queries = self.test.request.queries
        rows = [row for row, name in enumerate(queries["id"][:]) if name in self.pairs]
        return queries.select(rows)

    def _score_embeddings(self, model: EncoderProtocol) -> dict[Pair, float]:
        """Score by the similarity of embeddings, document by document."""
        context = self.test.request.context
        queries = self._select_queries()
        asked = DistinctEmbeddings(
            _number(queries["id"][:]), context.encode(model, queries, PromptType.query)
        )
        versions = DistinctEmbeddings(
            _number(self.versions["id"][:]),
            context.encode(model, self.versions, PromptType.document),
        )
        together: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for question, names in self.pairs.items():
            together[tuple(names)].append(question)
        scores = dict[Pair, float]()
        for names, questions in together.items():
            block = (
                torch.as_tensor(model.similarity(asked.select(questions), versions.select(names)))
                .float()
                .cpu()
            )
            for question, row in zip(questions, block.tolist(), strict=True):
                scores |= {(question, name): score for name, score in zip(names, row, strict=True)}
        return scores

    def _rank_among(self, pair: Pair, score: float, results: Results) -> int:
        """Return the rank of a version with a score among the other results of its question; 0 if
        it is not among them.
        """
        question = pair[0]
        owner = self.owners[question]
        left_out = self.copies[question] | {owner}
        others = {
            name: other for name, other in results.get(question, {}).items() if name not in left_out
        }
        rank = 1 + _count_above(others, owner, score)
        is_last = rank == len(others) + 1
        return 0 if is_last and self._has_more(question, len(others) + len(left_out)) else rank

    def _has_more(self, question: str, known: int) -> bool:
        """Tell whether there are documents that are not among the results of a question."""
        top_ranked = self.test.request.top_ranked
        size = len(self.test.request.corpus) if top_ranked is None else len(top_ranked[question])
        return size > known

    def _rank_hybrid(self, model: HybridSearch) -> dict[Pair, int]:
        """Move the document in the ranking of each part and fuse these again, as the ordinary
        search does.
        """
        moved: dict[Pair, list[list[str]]] = defaultdict(list)
        for part, rankings in model.searched:
            scores = {} if is_order_blind(part) else self.score(part)
            for question, names in self.pairs.items():
                for name in names:
                    ranking = rankings.get(question, {})
                    moved[question, name].append(
                        self._move(question, ranking, scores.get((question, name)))
                    )
        top_k = self.test.request.top_k
        ranks = {}
        for pair, lists in moved.items():
            fused = fuse_rankings(ranking[:top_k] for ranking in lists)
            owner = self.owners[pair[0]]
            others = {name: score for name, score in fused.items() if name != owner}
            rank = 1 + _count_above(others, owner, fused[owner]) if owner in fused else 0
            ranks[pair] = rank if rank <= top_k else 0
        return ranks

    def _move(self, question: str, ranking: Mapping[str, float], score: float | None) -> list[str]:
        """Return the ids of a part's documents, best first, with the version in place of its
        document.
        """
        owner = self.owners[question]
        others = {
            name: value for name, value in ranking.items() if name not in self.copies[question]
        }
        if score is not None:
            others = {**others, owner: score}
        return sorted(others, key=lambda name: (np.float32(others[name]), name), reverse=True)


def _number(names: Sequence[str]) -> dict[str, int]:
    return {name: row for row, name in enumerate(names)}


def _count_above(others: Mapping[str, float], owner: str, score: float) -> int:
    """Count the documents that precede one with a score: a higher one in single precision, or an
    equal one and a later id.
    """
    single = np.float32(score)
    values = np.fromiter(others.values(), np.float64, len(others)).astype(np.float32)
    tied = sum(
        name > owner
        for name, value in zip(others, values.tolist(), strict=True)
        if np.float32(value) == single
    )
    return int((values > single).sum()) + tied


def _read_texts(corpus: Dataset, names: set[str]) -> dict[str, str]:
    """Return the texts of documents of a corpus by id."""
    rows = [row for row, name in enumerate(corpus["id"][:]) if name in names]
    chosen = corpus.select(rows)
    return dict(zip(chosen["id"][:], chosen["text"][:], strict=True))
