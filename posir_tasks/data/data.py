"""The return value of every reader, digests of its content, and judgments as an evaluation of runs
takes them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import starmap
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.data.formats.passages import RepeatedTexts, SkippedText
from posir_tasks.data.grades import Pair
from posir_tasks.text.interventions import NO_SPAN
from posir_tasks.text.spans import Span
from posir_tasks.text.words import estimate_tokens
from posir_tasks.values.evidence import Evidence, Place
from posir_tasks.values.judgments import DOCUMENT, TOPIC

if TYPE_CHECKING:
    from datasets import Dataset

#: Bytes of the digest of a dataset's content, written as 16 hexadecimal digits.
CONTENT_BYTES = 8
#: Places of queries that have one each.
NO_PLACES: Mapping[str, Place] = {}
NO_COLUMNS: Mapping[str, Any] = {}
#: Rows whose texts are joined to be hashed.
BATCH_ROWS = 10_000


def find_rows(ids: Iterable[str], names: Container[str]) -> list[int]:
    """Find the rows whose id is among the names."""
    return [row for row, name in enumerate(ids) if name in names]


@dataclass(frozen=True)
class Judgments:
    """The judged queries of data, whether or not the evidence of each has one position."""

    queries: Mapping[str, str]
    """Query id to text; a judged query may lack its text."""
    grades: Mapping[str, Mapping[str, float]]
    """Query id to document id to grade, as `read_grade` reads it: the gain of the document. A grade
    above 0 is relevant, and a document without a grade is not judged.
    """
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Further fields of the queries: name of the field to query id to value."""
    contradictions: tuple[Pair, ...] = ()
    """Pairs of query and document that the data judges several times, with different grades; the
    highest counts.
    """
    left_out: tuple[str, ...] = ()
    """Judged queries that the owner of the data does not score, which are not in `grades`."""
    candidates: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Query id to the documents that a reranker gets, which alone the owner of the data ranks;
    empty if all are ranked.
    """

    def list_relevant(self) -> dict[str, list[str]]:
        """Return the relevant documents of each judged query."""
        judged = self.grades.items()
        return {
            query: [name for name, grade in grades.items() if grade > 0] for query, grades in judged
        }

    def digest(self) -> str:
        """Return a digest of the texts and grades, equal in any order."""
        return digest(
            json.dumps([self.queries, self.grades], sort_keys=True), size=CONTENT_BYTES
        ).hex()

    @classmethod
    def from_positions(cls, data: PositionData) -> Judgments:
        """Return the judgments of the relevant documents of data."""
        texts = dict[str, str]()
        grades = dict[str, dict[str, float]]()
        for name, text, document in zip(
            data.questions["id"], data.questions["text"], data.evidence.document_ids, strict=True
        ):
            place = data.places.get(name, Place(name))
            texts[place.query] = text
            grades.setdefault(place.query, {})[document] = place.grade
        return cls(texts, grades)


def cluster_queries(judgments: Judgments, by: str) -> dict[str, str]:
    """Return the cluster of each judged query.

    Of a document: of those with the query's highest grade the one that most queries share.
    Connected components would make one cluster of queries with many relevant documents.

    Raises:
        PosirError: `by` is no column of the queries, or a query lacks it.
    """
    column = judgments.columns.get(by, {})
    if by == TOPIC and not column:
        return {query: query for query in judgments.grades}
    if by != DOCUMENT or column:
        missing = [query for query in judgments.grades if query not in column]
        if missing:
            names = ", ".join((DOCUMENT, TOPIC, *judgments.columns))
            raise PosirError(
                f"--clusters {by}: query {missing[0]} has no such field; each judged query needs "
                f"one. Choose from {names}."
            )
        return {query: column[query] for query in judgments.grades}
    best = {}
    for query, grades in judgments.grades.items():
        top = max(grades.values(), default=0)
        best[query] = [name for name, grade in grades.items() if grade == top > 0]
    shared = Counter(name for names in best.values() for name in names)
    return {
        query: max(names, key=lambda name: (shared[name], name), default=query)
        for query, names in best.items()
    }


@dataclass(frozen=True)
class ScoringRules:
    """Rules by which the owner of data scores it: attributes of a task of mteb, or the usual
    values.
    """

    split: str = ""
    """The split that is scored; empty if the data has one that nothing else names."""
    ignore_identical_ids: bool = False
    """Whether a document with the id of the query is left out of its results: each query is a
    document of the corpus.
    """
    skip_first_result: bool = False
    """Whether the best document of each query is left out, since it is the query itself."""
    main_score: str = "ndcg_at_10"
    """The score that results are ranked by."""
    k_values: tuple[int, ...] = ()
    """Cut-offs of its scores."""


@dataclass(frozen=True)
class PositionData:
    """One subset of a task: documents, questions, and the evidence of each question."""

    documents: pl.DataFrame
    """The corpus, with the columns `id` and `text`."""
    questions: pl.DataFrame
    """Columns `id` and `text`, in the order of the evidence."""
    evidence: Evidence
    revision: str
    """The revision of the data: a commit of the Hub, or `local-` and a digest."""
    tolerated: Mapping[str, int] = field(default_factory=dict)
    """Numbers of rows that break a rule and are evaluated or left out all the same, by the rule's
    key; they add.
    """
    warnings: tuple[str, ...] = ()
    """A sentence for each kind of tolerated rows, and warnings of possible mistakes."""
    skipped: tuple[SkippedText, ...] = ()
    """Texts, files, rows and questions that cannot be used."""
    moved: Sequence[str] = ()
    """Names of questions whose answer is not where the file says, and was moved to its only match
    nearby.
    """
    unverified: Sequence[str] = ()
    """Names of questions whose span is stated without the text of the answer."""
    unsuited: Mapping[str, str] = field(default_factory=dict)
    """Ids of queries that cannot be evaluated by position, and the reason: not every place of their
    evidence is known.
    """
    places: Mapping[str, Place] = field(default_factory=dict)
    """The query of each row of queries and evidence that is one of several places of it."""
    repeated: RepeatedTexts = field(default_factory=RepeatedTexts)
    """Questions that are asked of several documents, in the complete data."""

    @classmethod
    def from_questions(
        cls,
        documents: Mapping[str, str],
        questions: Mapping[str, tuple[str, str, Span]],
        *,
        revision: str = "",
        titles: Mapping[str, str] | None = None,
        tokens: Mapping[str, int] | None = None,
    ) -> PositionData:
        """Build data from texts.

        Args:
            documents: Text by id.
            questions: Text, id of the relevant document, and span of the evidence in it, by id of
                the question.
            revision: Revision of the texts.
            titles: Title of the article that a document is part of, by id of the document.
            tokens: Tokens of each relevant document by id; estimated by default.
        """
        relevant = [document for _, document, _ in questions.values()]
        lengths = tokens or {}
        if tokens is None:
            lengths = {name: max(1, estimate_tokens(documents[name])) for name in {*relevant}}
        rows = [*questions.values()]
        spans = np.array([span for _, _, span in rows], np.int64).reshape(-1, 2)
        evidence = Evidence(
            query_ids=[*questions],
            document_ids=relevant,
            starts=spans[:, 0],
            ends=spans[:, 1],
            characters=np.array([len(documents[name]) for name in relevant], np.int64),
            tokens=np.array([lengths[name] for name in relevant], np.int64),
            clusters=tuple(titles.get(name, "") for name in relevant) if titles else (),
        )
        texts = [text for text, _, _ in rows]
        return cls(
            build_texts([*documents], [*documents.values()]),
            build_texts([*questions], texts),
            evidence,
            revision,
        )

    @cached_property
    def corpus(self) -> Dataset:
        """The documents as mteb takes them."""
        from datasets import Dataset

        return Dataset.from_polars(self.documents)

    @cached_property
    def queries(self) -> Dataset:
        """The questions as mteb takes them."""
        from datasets import Dataset

        return Dataset.from_polars(self.questions)

    @property
    def has_spans(self) -> bool:
        """Whether the evidence of the queries is known by its characters."""
        return bool(len(self.evidence.starts) and len(self.evidence.ends))

    def drop_unsuited(self) -> PositionData:
        """Return the data without the queries that cannot be evaluated, which are then among what
        is skipped.
        """
        skipped = [
            SkippedText(name, "questions without a known position", reason)
            for name, reason in self.unsuited.items()
        ]
        return replace(self._drop(self.unsuited, skipped), unsuited={})

    def drop_places(self) -> PositionData:
        """Return the data without the queries that have several places of evidence, which are then
        among what is skipped.
        """
        queries = dict.fromkeys(place.query for place in self.places.values())
        skipped = [
            SkippedText(name, "questions with several places of evidence") for name in queries
        ]
        return replace(self._drop(self.places, skipped), places={})

    def _drop(self, names: Collection[str], skipped: Iterable[SkippedText]) -> PositionData:
        if not names:
            return self
        rows = [row for row, name in enumerate(self.evidence.query_ids) if name not in names]
        return replace(self.select(rows), skipped=(*self.skipped, *skipped))

    def divide_places(self) -> tuple[PositionData, PositionData]:
        """Return the data with the queries that have one place of evidence, and with a row for each
        place of the others.
        """
        single = replace(self._drop(self.places, ()), places={})
        return single, self.select(find_rows(self.evidence.query_ids, self.places))

    def select(self, rows: list[int]) -> PositionData:
        """Return the data with these queries only, and the complete corpus."""
        return replace(self, questions=self.questions[rows], evidence=self.evidence.select(rows))

    def place_spans(self) -> list[Span]:
        """Return where in its document's text the evidence of each query is; empty if the data has
        no spans.

        Where the text has another length than the data states, as a translation beside the spans of
        its original has, a place in it is the same share of the length. A span is not empty, unless
        the text is.
        """
        if not self.has_spans:
            return []
        sizes = self.documents["text"].str.len_chars()
        lengths = dict(zip(self.documents["id"], sizes, strict=True))
        evidence = self.evidence
        characters = [lengths[name] for name in evidence.document_ids]
        counted = evidence.characters.tolist() or characters
        spans = list[Span]()
        bounds = zip(evidence.starts.tolist(), evidence.ends.tolist(), strict=True)
        for span, length, size in zip(starmap(Span, bounds), counted, characters, strict=True):
            if span == NO_SPAN:
                spans.append(NO_SPAN)
                continue
            start, end = span
            if length != size:
                start, end = (round(place / (length or 1) * size) for place in span)
            start = min(max(start, 0), max(size - 1, 0))
            spans.append(Span(start, min(max(end, start + 1), size)))
        return spans

    def list_questions(self) -> Iterator[tuple[str, str, str, Span | None]]:
        """Yield id and text of each query, the id of its document, and where in it the evidence is;
        None if that is unknown.
        """
        unknown: list[Span | None] = [None] * len(self.evidence)
        spans = self.place_spans() or unknown
        ids = self.evidence.query_ids
        return zip(ids, self.questions["text"], self.evidence.document_ids, spans, strict=True)


def build_texts(ids: Sequence[str], texts: Sequence[str]) -> pl.DataFrame:
    """Build the rows of documents or questions."""
    return pl.DataFrame({"id": ids, "text": texts}, schema={"id": pl.String, "text": pl.String})


def list_texts(rows: Dataset | pl.DataFrame) -> dict[str, str]:
    """Return the texts of queries or documents by id."""
    return dict(zip(rows["id"][:], rows["text"][:], strict=True))


def digest_data(data: PositionData) -> dict[str, str]:
    """Return digests of the content of data, `corpus` and `queries`; those of the queries include
    their evidence and its places.

    They are equal for the same content from any source, with the rows in any order. The texts are
    read once, without a copy of all of them; `benchmarks/data_digest.py` measures it.
    """
    queries = digest_queries(data.questions, data.evidence, data.places)
    return {"corpus": digest_texts(data.documents), "queries": queries}


def digest_queries(
    queries: pl.DataFrame, evidence: Evidence, places: Mapping[str, Place] = NO_PLACES
) -> str:
    """Return the digest of queries with their evidence, which is in the same order."""
    columns = {name: values for name, values in vars(evidence).items() if name != "query_ids"}
    if places:
        of_rows = [places.get(name, Place("", 0)) for name in evidence.query_ids]
        grades = np.array([place.grade for place in of_rows])
        # Texts and whole numbers are hashed: of fractions, the bits of each.
        whole = grades.view(np.int64) if grades.dtype == np.float64 else grades
        columns |= {"query": [place.query for place in of_rows], "grade": whole}
    return digest_texts(queries, columns)


def digest_texts(texts: Dataset | pl.DataFrame, columns: Mapping[str, Any] = NO_COLUMNS) -> str:
    """Return a digest of the columns `id` and `text`, and others beside them, equal for the same
    rows in any order.
    """
    frame = texts if isinstance(texts, pl.DataFrame) else texts.to_polars()
    assert isinstance(frame, pl.DataFrame)
    others = [pl.Series(name, values) for name, values in columns.items() if len(values)]
    frame = frame.select(pl.col("id", "text").cast(pl.String).fill_null("")).with_columns(others)
    content = hashlib.blake2b(digest_size=CONTENT_BYTES)
    for column in frame.sort("id"):
        content.update(f"{column.name}:{len(column)}:".encode())
        is_text = column.dtype == pl.String
        # Texts after their lengths, so that no other texts give the same bytes.
        integers = (column.str.len_bytes() if is_text else column).cast(pl.Int64)
        content.update(integers.to_numpy().astype("<i8").tobytes())
        for batch in column.to_frame().iter_slices(BATCH_ROWS) if is_text else ():
            content.update("".join(batch.to_series().to_list()).encode())
    return content.hexdigest()
