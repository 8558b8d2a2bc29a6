"""Rotate a sample of documents, and rank each version among the other, unchanged documents.

The sample depends only on the texts, so all models get the same sample. A larger sample contains
every smaller one.
"""

from __future__ import annotations

import logging
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from datasets import Dataset

from posir_tasks.base.arrays import Integers, make_empty_column
from posir_tasks.base.digests import digest
from posir_tasks.models.dispatch import HybridSearch, is_reranker
from posir_tasks.models.embeddings.cached_encoder import CachedEncoder
from posir_tasks.models.request import SearchRequest
from posir_tasks.search.input_window import find_token_counter
from posir_tasks.search.version_ranks import (
    Pair,
    VersionRanker,
    can_score_versions,
    is_order_blind,
)
from posir_tasks.text.rotations import (
    ESTIMATED_ROOM,
    SPARE_TOKENS,
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
from posir_tasks.values.document_ranks import DocumentRanks, DocumentSet
from posir_tasks.values.evidence import TWELFTHS, Evidence, parse_third
from posir_tasks.values.profile import map_ranks_to_columns
from posir_tasks.values.query_order import order_queries
from posir_tasks.values.ranks import Results
from posir_tasks.values.read_part import Part, ReadKind, ReadPart
from posir_tasks.values.rotation_ranks import (
    IN_WHOLE,
    IN_WINDOW,
    VERSION_COMBINATIONS,
    ExclusionReason,
    RotationRanks,
    RotationSet,
    UntestedReason,
    Window,
    build_untested,
    encode_unread,
)

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

    from posir_tasks.search.scoring import ReadFinder, Rows
    from posir_tasks.values.schemes import PositionScheme

logger = logging.getLogger(__name__)

#: Minimum number of hits in a run for an exact nDCG@10 of a rotated document.
MIN_HITS = 11
#: A model reproduces a run if this share of its scores is within the relative tolerance.
SCORE_TOLERANCE = 1e-3
REPRODUCED_SHARE = 0.95
#: Separates document id and version. Document ids do not contain it.
VERSION_SEPARATOR = "\0"


def sample_documents(
    groups: Sequence[Sequence[int]], evidence: Evidence, lengths: Integers, rows: Rows, quota: int
) -> list[int]:
    """Sample documents from each length bucket.

    Args:
        groups: Rows of each document's questions.
        evidence: The evidence of the questions.
        lengths: The length bucket of each question.
        rows: Rows of the documents by id.
        quota: Maximum number of documents per length bucket.

    Returns:
        The number of each document within its bucket's sample, from 1; 0 if it is not in the
        sample.
    """
    documents_by_length: dict[int, list[tuple[int, str, int]]] = defaultdict(list)
    for index, group in enumerate(groups):
        name = evidence.document_ids[group[0]]
        key = hash_text(str(rows[name]["text"]))
        documents_by_length[int(lengths[group[0]])].append((key, name, index))
    numbers = [0] * len(groups)
    for documents in documents_by_length.values():
        for number, (_, _, index) in enumerate(sorted(documents)[:quota], start=1):
            numbers[index] = number
    return numbers


def find_spans(evidence: Evidence, rows: Sequence[int]) -> list[Span]:
    """Return the evidence spans of questions, or an empty list if evidence is labeled by third."""
    if not len(evidence.starts):
        return []
    starts = evidence.starts[rows].tolist()
    ends = (evidence.ends if len(evidence.ends) else evidence.starts + 1)[rows].tolist()
    return list(map(Span, starts, ends))


@dataclass(frozen=True)
class RotatedDocument:
    """A sampled document, with its questions and versions."""

    name: str
    row: Mapping[str, Any]
    questions: Sequence[int]
    """Rows of its questions in the evidence."""
    whole_versions: Sequence[Version]
    """Versions of the whole document, for test W."""
    excerpt_versions: Sequence[Version] = ()
    """Versions of the excerpt, for test R."""
    tests: Sequence[int] = ()
    """The tests of each question, as a bit mask."""

    @property
    def is_read_whole(self) -> bool:
        """True if the excerpt is the whole document."""
        return self.excerpt_versions is self.whole_versions

    def name_version(self, version: Version) -> str:
        """Return the id of a version."""
        kind = "w" if version in self.whole_versions else "r"
        return f"{self.name}{VERSION_SEPARATOR}{kind}{version.number}"

    def build_rows(self, versions: Iterable[Version]) -> dict[str, dict[str, Any]]:
        """Build corpus rows from versions, by id."""
        texts = {self.name_version(version): version.text for version in versions}
        return {name: {**self.row, "id": name, "text": text} for name, text in texts.items()}

    @property
    def version_bits(self) -> int:
        """Version numbers in both tests, as a bit mask."""
        whole_bits = sum(1 << version.number for version in self.whole_versions)
        excerpt_bits = sum(1 << version.number for version in self.excerpt_versions)
        return int(whole_bits + VERSION_COMBINATIONS * excerpt_bits)


class VersionRow(NamedTuple):
    """A question paired with a version of its document."""

    question: int
    """Row of the question in the evidence."""
    document: RotatedDocument
    version: Version


def list_rows(documents: Iterable[RotatedDocument], *, window: bool) -> list[VersionRow]:
    """List the rows of test R if `window` is true, else of test W, question by question."""
    bit = IN_WINDOW if window else IN_WHOLE
    rows = []
    for document in documents:
        versions = document.excerpt_versions if window else document.whole_versions
        for question, tests in zip(document.questions, document.tests, strict=True):
            if tests & bit:
                rows += [VersionRow(question, document, version) for version in versions]
    return rows


@dataclass(frozen=True)
class ExcerptReader:
    """Finds the room for excerpts in the context window."""

    tokenizer: Tokenizer
    room: int
    """Maximum number of tokens in title and text together."""
    queries: Mapping[str, str] = field(default_factory=dict)
    """Query texts by id if the model is a cross-encoder, which reads both query and document."""

    @classmethod
    def from_model(
        cls, model: MTEBModels, request: SearchRequest, read_part: ReadPart
    ) -> ExcerptReader:
        """Build the reader for a model that truncates texts."""
        base = model.base if isinstance(model, CachedEncoder) else model
        tokenizer, added_tokens = find_token_counter(base, request.context.task_metadata)
        tokens = read_part.tokens or 0
        queries: dict[str, str] = {}
        if is_reranker(model):
            queries = request.query_texts
            added_tokens += _count_pair_tokens(tokenizer)
        if tokenizer is None:
            return cls(EstimatedTokenizer(), int(ESTIMATED_ROOM * tokens), queries)
        return cls(tokenizer, tokens - added_tokens - SPARE_TOKENS, queries)

    def find_room(self, title: str, questions: Iterable[str]) -> int:
        """Return the maximum number of tokens for a text, given its title and question ids."""
        texts = [self.queries[name] for name in questions if name in self.queries]
        longest = max(self.tokenizer.count_all(texts)) if texts else 0
        return self.room - longest - (self.tokenizer.count(title) if title else 0)


def _count_pair_tokens(tokenizer: ModelTokenizer | None) -> int:
    """Count the special tokens that a pair of texts has in addition to those of a single text."""
    if tokenizer is None:
        return 0
    return int(tokenizer.tokenizer.num_special_tokens_to_add(pair=True)) - tokenizer.special_tokens


@dataclass(frozen=True, eq=False)
class RotationTest:
    """The test of a model on the rotated documents of one subset."""

    model: MTEBModels
    """The model in the original search."""
    request: SearchRequest
    results: Results
    """Results of the original search."""
    ordinary_ranks: Mapping[str, int]
    """Rank of each query's document in `results`, from 1, by query id; 0 for a miss."""
    sample_size: int
    """Number of documents per length bucket, in all subsets of the task together."""
    subsets: int
    """Number of the task's subsets."""
    language: str = ""
    """Language code of the documents; empty for the task's language."""
    is_run: bool = False
    """If true, `results` are from a run file, and the model must reproduce their scores."""

    def rank(
        self,
        scheme: PositionScheme,
        evidence: Evidence,
        documents: Rows,
        ranks: DocumentRanks,
        find_read_evidence: ReadFinder,
        read_part: ReadPart,
    ) -> RotationRanks | None:
        """Rank the rotated versions.

        Args:
            scheme: Assigns documents to length buckets.
            evidence: The evidence of questions with a single span.
            documents: Rows of the relevant documents by id.
            ranks: Ranks for these questions in the original search.
            find_read_evidence: Locates evidence in the part of documents that the model reads.
            read_part: The part of a document that the model reads.

        Returns:
            The ranks, or None if the sample size is 0.
        """
        if not self.sample_size:
            return None
        reason = self._find_reason(evidence)
        if reason is not None:
            return build_untested(ranks, reason, self.sample_size, self.subsets)
        groups = order_queries(scheme, evidence)
        quota = math.ceil(self.sample_size / self.subsets)
        lengths = scheme.length_buckets(evidence)
        numbers = sample_documents(groups, evidence, lengths, documents, quota)
        logger.info("Rotating %d documents", np.count_nonzero(numbers))
        if not ranks.sets:
            return RotationRanks(())
        subset = SubsetRotation(self, evidence, documents, find_read_evidence, read_part)
        sample = [group for group, number in zip(groups, numbers, strict=True) if number]
        return RotationRanks((subset.build(ranks.sets[0], sample, numbers),))

    def _find_reason(self, evidence: Evidence) -> UntestedReason | None:
        """Return the reason why no document can be tested, or None."""
        models = self.model.models if isinstance(self.model, HybridSearch) else [self.model]
        if all(map(is_order_blind, models)):
            return UntestedReason.ORDER_BLIND
        if not can_score_versions(self.model):
            return UntestedReason.NO_TEXTS
        return None if len(evidence) else UntestedReason.SEVERAL_POSITIONS


@dataclass(frozen=True, eq=False)
class SubsetRotation:
    """Rotates and ranks the sampled documents of a subset."""

    test: RotationTest
    evidence: Evidence
    documents: Rows
    find_read_evidence: ReadFinder
    read_part: ReadPart
    left_out: Counter[str] = field(default_factory=Counter)

    @cached_property
    def window(self) -> Window:
        """What test R rotates: whole documents or excerpts."""
        if self.read_part.kind is ReadKind.ALL:
            return Window.WHOLE
        if self.read_part.kind is ReadKind.UNKNOWN or self.read_part.part is Part.CHUNKS:
            return Window.UNKNOWN
        return Window.EXCERPT

    @cached_property
    def reader(self) -> ExcerptReader | None:
        """The reader for excerpts; None if test R does not rotate excerpts."""
        if self.window is not Window.EXCERPT:
            return None
        return ExcerptReader.from_model(self.test.model, self.test.request, self.read_part)

    @cached_property
    def thirds(self) -> list[int | None]:
        """The labeled third for each question, or None if the label covers several thirds. The list
        is empty if the evidence has spans.
        """
        return [parse_third(label) for label in self.evidence.labels]

    @cached_property
    def spans(self) -> list[Span]:
        """The evidence span for each question; empty if evidence is labeled by third."""
        return find_spans(self.evidence, range(len(self.evidence)))

    def build(
        self, document_set: DocumentSet, sample: Iterable[Sequence[int]], numbers: Sequence[int]
    ) -> RotationSet:
        """Rotate and rank the sample.

        Args:
            document_set: The original ranks of the subset.
            sample: The questions for each sampled document.
            numbers: The number of each document within its bucket's sample, or 0.
        """
        documents = [self._rotate(questions) for questions in sample]
        documents = [
            replace(document, tests=self._select_tests(document)) for document in documents
        ]
        base = RotationSet(
            document_set.subset,
            document_set.documents,
            document_set.queries,
            self.test.sample_size,
            self.test.subsets,
        )
        reason = self._find_reason(documents)
        if reason is not None:
            return replace(base, untested=reason, left_out=dict(self.left_out))
        ranks = self._rank(documents)
        whole_rows = list_rows(documents, window=False)
        excerpt_rows = list_rows(documents, window=True) if self.reader else []
        texts = [version.text for document in documents for version in document.whole_versions]
        window_texts = [
            version.text for document in documents for version in document.excerpt_versions
        ]
        return replace(
            base,
            sample=np.array(numbers, np.int64),
            versions=np.array([document.version_bits for document in documents], np.int64),
            tested=np.array([bits for document in documents for bits in document.tests], np.int64),
            twelfths=self._find_twelfths(whole_rows, in_tokens=False),
            ranks=self._list_ranks(whole_rows, ranks),
            unread=self._find_unread(whole_rows),
            window_twelfths=self._find_twelfths(excerpt_rows, in_tokens=True),
            window_ranks=self._list_ranks(excerpt_rows, ranks),
            window=self.window,
            room=self.reader.room if self.reader else 0,
            digest=digest_versions(texts),
            window_digest="" if self.window is Window.UNKNOWN else digest_versions(window_texts),
            left_out={name: count for name, count in sorted(self.left_out.items()) if count},
        )

    def _find_reason(self, documents: Sequence[RotatedDocument]) -> UntestedReason | None:
        """Return the reason why no version can be ranked, or None."""
        if not any(any(document.tests) for document in documents):
            return UntestedReason.ONE_UNIT if self.left_out else UntestedReason.SEVERAL_POSITIONS
        if self.test.is_run and not self._reproduces_run(documents):
            return UntestedReason.SCORES_DIFFER
        return None

    def _list_tests(
        self, documents: Iterable[RotatedDocument]
    ) -> Iterator[tuple[str, RotatedDocument, int]]:
        """Yield the id, the document and the tests of each tested question."""
        for document in documents:
            for row, tests in zip(document.questions, document.tests, strict=True):
                if tests:
                    yield self.evidence.query_ids[row], document, tests

    def _build_ranker(
        self,
        candidates: Mapping[str, Mapping[str, Mapping[str, Any]]],
        document_ids: Mapping[str, str],
    ) -> VersionRanker:
        """Build a ranker for versions by query and version id. Document ids are by query id."""
        rows = {name: row for versions in candidates.values() for name, row in versions.items()}
        return VersionRanker(
            self.test.request,
            self.test.results,
            Dataset.from_list(list(rows.values())),
            {question: list(versions) for question, versions in candidates.items()},
            document_ids,
            self.documents,
        )

    def _reproduces_run(self, documents: Sequence[RotatedDocument]) -> bool:
        """Return True if the model reproduces the run's scores for the original documents."""
        results = self.test.results
        document_ids = dict[str, str]()
        candidates = dict[str, dict[str, dict[str, Any]]]()
        for question, document, _ in self._list_tests(documents):
            if document.name in results.get(question, {}):
                document_ids[question] = document.name
                candidates[question] = {document.name: {**document.row, "id": document.name}}
        if not document_ids:
            return False
        scores = self._build_ranker(candidates, document_ids).score(self.test.model)
        run_scores = [results[question][name] for question, name in document_ids.items()]
        model_scores = [scores[pair] for pair in document_ids.items()]
        are_close = np.isclose(model_scores, run_scores, rtol=SCORE_TOLERANCE, atol=0.0)
        return bool(are_close.mean() >= REPRODUCED_SHARE)

    def _rotate(self, questions: Sequence[int]) -> RotatedDocument:
        """Rotate the document of `questions` and, for test R, its excerpt."""
        name = self.evidence.document_ids[questions[0]]
        row = self.documents[name]
        text = str(row["text"])
        spans = [self.spans[question] for question in questions] if self.spans else []
        language = self.test.language or self.test.request.context.corpus_language
        units = find_units(text, language, spans)
        whole_versions = rotate_text(text, units)
        if len(whole_versions) < 2:
            self.left_out[ExclusionReason.DOCUMENTS_OF_ONE_UNIT] += 1
        document = RotatedDocument(name, row, questions, whole_versions)
        if self.reader is None:
            return (
                replace(document, excerpt_versions=whole_versions)
                if self.window is Window.WHOLE
                else document
            )
        names = [self.evidence.query_ids[question] for question in questions]
        room = self.reader.find_room(str(row.get("title") or ""), names)
        sizes = count_units(text, units, self.reader.tokenizer)
        if sum(sizes) <= room:
            return replace(document, excerpt_versions=whole_versions)
        excerpt_span = choose_excerpt(text, units, sizes, room, spans) if spans else None
        excerpt_versions = rotate_text(text, units, excerpt_span) if excerpt_span else []
        if len(excerpt_versions) < 2:
            self.left_out[ExclusionReason.DOCUMENTS_WITHOUT_EXCERPT] += 1
            return document
        return replace(document, excerpt_versions=excerpt_versions)

    def _select_tests(self, document: RotatedDocument) -> list[int]:
        """Return the tests for each question, as bit masks."""
        masks = []
        for question in document.questions:
            reason = self._find_exclusion(document, question)
            if reason is not None:
                self.left_out[reason] += 1
                masks.append(0)
                continue
            mask = IN_WHOLE if len(document.whole_versions) > 1 else 0
            if len(document.excerpt_versions) > 1 and self._is_inside_excerpt(document, question):
                mask |= IN_WINDOW
            masks.append(mask)
        return masks

    def _find_exclusion(self, document: RotatedDocument, question: int) -> ExclusionReason | None:
        """Return the reason why a question is not tested, or None."""
        if not self._has_position(document, question):
            return ExclusionReason.QUESTIONS_WITHOUT_SPAN
        name = self.evidence.query_ids[question]
        request = self.test.request
        if request.top_ranked is not None and document.name not in request.top_ranked.get(name, ()):
            return ExclusionReason.QUESTIONS_MISSED_BY_FIRST_STAGE
        hits = len(self.test.results.get(name, {}))
        if self.test.is_run and hits < min(MIN_HITS, len(request.corpus)):
            return ExclusionReason.QUESTIONS_WITH_FEW_HITS
        return None

    def _has_position(self, document: RotatedDocument, question: int) -> bool:
        if self.thirds:
            return self.thirds[question] is not None
        if not self.spans:
            return False
        span = self.spans[question]
        characters = self.evidence.characters
        text = str(document.row["text"])
        same_text = not len(characters) or int(characters[question]) == len(text)
        return same_text and 0 <= span.start < span.end <= len(text)

    def _is_inside_excerpt(self, document: RotatedDocument, question: int) -> bool:
        """Return True if a question's evidence is inside the excerpt. Count it if it is not."""
        if document.is_read_whole:
            return True
        first = document.excerpt_versions[0]
        inside = False
        if self.spans:
            span = self.spans[question]
            end = first.offset + len(first.text)
            inside = first.offset <= span.start and span.end <= end
        self.left_out[ExclusionReason.QUESTIONS_OUTSIDE_EXCERPT] += not inside
        return inside

    def _rank(self, documents: Sequence[RotatedDocument]) -> dict[Pair, int]:
        """Rank the versions for each tested question, except the original document."""
        document_ids = dict[str, str]()
        candidates = dict[str, dict[str, dict[str, Any]]]()
        for question, document, tests in self._list_tests(documents):
            versions = list(document.whole_versions[1:]) if tests & IN_WHOLE else []
            if tests & IN_WINDOW and not document.is_read_whole:
                versions += document.excerpt_versions
            if versions:
                document_ids[question] = document.name
                candidates[question] = document.build_rows(versions)
        if not document_ids:
            return {}
        ranker = self._build_ranker(candidates, document_ids)
        ranks = ranker.rank(self.test.model)
        self.left_out[ExclusionReason.COPIES] += ranker.count_copies()
        return ranks

    def _list_ranks(self, rows: Sequence[VersionRow], ranks: Mapping[Pair, int]) -> Integers:
        """Return the rank column for each row. The original document keeps its original rank."""
        row_ranks = []
        for question, document, version in rows:
            name = self.evidence.query_ids[question]
            if version is document.whole_versions[0]:
                row_ranks.append(self.test.ordinary_ranks[name])
            else:
                row_ranks.append(ranks[name, document.name_version(version)])
        return map_ranks_to_columns(np.array(row_ranks, np.int64))

    def _locate_spans(self, rows: Sequence[VersionRow]) -> list[Span]:
        return [row.version.move(self.spans[row.question]) for row in rows]

    def _find_twelfths(self, rows: Sequence[VersionRow], *, in_tokens: bool) -> Integers:
        """Return the twelfth that contains the middle of the evidence, shape (rows,)."""
        if self.thirds:
            thirds = [((self.thirds[row.question] or 0) - row.version.number) % 3 for row in rows]
            return 4 * np.array(thirds, np.int64) + 1
        spans = self._locate_spans(rows)
        middles = list[float]()
        if in_tokens and self.reader is not None:
            texts = list(dict.fromkeys(row.version.text for row in rows))
            tokens = dict(zip(texts, self.reader.tokenizer.find_tokens(texts), strict=True))
            for row, span in zip(rows, spans, strict=True):
                middles += locate_in_tokens([span], tokens[row.version.text])
        else:
            for row, span in zip(rows, spans, strict=True):
                middles.append(span.middle / len(row.version.text))
        shares = np.floor(TWELFTHS * np.array(middles, np.float64))
        return shares.astype(np.int64).clip(0, TWELFTHS - 1)

    def _find_unread(self, rows: Sequence[VersionRow]) -> Integers:
        """Return the codes of unread evidence, shape (rows,); shape (0,) if unknown."""
        if self.read_part.kind is ReadKind.ALL or self.thirds or not rows:
            return make_empty_column()
        spans = self._locate_spans(rows)
        questions = [row.question for row in rows]
        # Rotation does not change the number of tokens.
        tokens = self.evidence.tokens
        moved_evidence = Evidence(
            query_ids=[str(number) for number in range(len(rows))],
            document_ids=[row.document.name_version(row.version) for row in rows],
            starts=np.array([span.start for span in spans], np.int64),
            ends=np.array([span.end for span in spans], np.int64),
            tokens=tokens[questions] if len(tokens) else tokens,
        )
        documents = dict[str, dict[str, Any]]()
        for row in rows:
            documents |= row.document.build_rows([row.version])
        texts = self.test.request.query_texts
        names = [self.evidence.query_ids[question] for question in questions]
        query_texts = [texts[name] for name in names]
        queries = Dataset.from_dict({"id": moved_evidence.query_ids, "text": query_texts})
        twelfths = self.find_read_evidence(queries, moved_evidence, documents).twelfths
        return encode_unread(twelfths) if len(twelfths) else make_empty_column()


def digest_versions(texts: Iterable[str]) -> str:
    """Return the digest of the versions' texts, which must be in sample order."""
    return digest(*texts).hex()
