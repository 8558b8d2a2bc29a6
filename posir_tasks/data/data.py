"""Data of a subset: documents, questions, evidence, judgments and content digests."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.data.formats.passages import RepeatedTexts, SkippedItem
from posir_tasks.data.grades import JudgedPair
from posir_tasks.text.spans import Span
from posir_tasks.text.words import estimate_tokens
from posir_tasks.values.evidence import Evidence, Place
from posir_tasks.values.judgments import DOCUMENT, TOPIC

if TYPE_CHECKING:
    from datasets import Dataset

#: Size of content digests in bytes (16 hexadecimal digits).
CONTENT_BYTES = 8
NO_PLACES: Mapping[str, Place] = {}
NO_COLUMNS: Mapping[str, Any] = {}
#: Number of rows to hash at once.
BATCH_ROWS = 10_000


def find_rows(ids: Iterable[str], names: Container[str]) -> list[int]:
    """Return the indices of ids in `names`."""
    return [row for row, name in enumerate(ids) if name in names]


@dataclass(frozen=True)
class Judgments:
    """The judged queries of a dataset, with or without evidence positions."""

    queries: Mapping[str, str]
    """Query id to text. Judged queries without a text are missing."""
    grades: Mapping[str, Mapping[str, float]]
    """Query id to document id to grade, which is the gain. Above 0 means relevant."""
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Additional query fields: field name to query id to value."""
    contradictions: tuple[JudgedPair, ...] = ()
    """Query-document pairs with several grades, of which the highest is used."""
    left_out: tuple[str, ...] = ()
    """Judged queries that the dataset owner does not score, and that `grades` omits."""
    candidates: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Query id to the documents to rerank; empty to rank the whole corpus."""

    def list_relevant(self) -> dict[str, list[str]]:
        """List the relevant documents of each judged query."""
        return {
            query: [name for name, grade in grades.items() if grade > 0]
            for query, grades in self.grades.items()
        }

    def digest(self) -> str:
        """Compute an order-independent digest of texts and grades."""
        return digest(
            json.dumps([self.queries, self.grades], sort_keys=True), size=CONTENT_BYTES
        ).hex()

    @classmethod
    def from_positions(cls, data: PositionData) -> Judgments:
        """Build judgments from the relevant documents of each query."""
        texts = {}
        grades = dict[str, dict[str, float]]()
        for name, text, document in data.iterate_queries():
            place = data.places.get(name, Place(name))
            texts[place.query] = text
            grades.setdefault(place.query, {})[document] = place.grade
        return cls(texts, grades)


def cluster_queries(judgments: Judgments, by: str) -> dict[str, str]:
    """Assign a cluster to each judged query. Returns a mapping from query id to cluster.

    For `document`, the cluster is the document with the query's highest grade or, among several,
    the one that most queries share. With many relevant documents per query, connected components
    would merge all queries.

    Args:
        judgments: The judged queries.
        by: `document`, `topic`, or a query column.

    Raises:
        PosirError: `by` is not a query column, or a query has no value in this column.
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
    best_documents = {}
    for query, grades in judgments.grades.items():
        highest = max(grades.values(), default=0)
        best_documents[query] = [name for name, grade in grades.items() if grade == highest > 0]
    query_counts = Counter(name for names in best_documents.values() for name in names)
    return {
        query: max(names, key=lambda name: (query_counts[name], name), default=query)
        for query, names in best_documents.items()
    }


@dataclass(frozen=True)
class ScoringRules:
    """Scoring rules of the dataset owner: the attributes of an mteb task, or defaults."""

    split: str = ""
    """Scored split; empty if the data has a single unnamed split."""
    ignore_identical_ids: bool = False
    """If true, drop the document with the query's id, since the corpus contains the queries."""
    skip_first_result: bool = False
    """If true, drop the first result, which is the query itself."""
    main_score: str = "ndcg_at_10"
    """The score that ranks results."""
    k_values: tuple[int, ...] = ()
    """Score cutoffs."""


@dataclass(frozen=True)
class PositionData:
    """One subset of a task: documents, questions and their evidence."""

    documents: pl.DataFrame
    """Corpus with the columns `id` and `text`."""
    questions: pl.DataFrame
    """Questions with the columns `id` and `text`, in the order of the evidence."""
    evidence: Evidence
    revision: str
    """A Hub commit, or `local-` and a digest."""
    tolerated: Mapping[str, int] = field(default_factory=dict)
    """Rule key to the number of rows that violate the rule without stopping a task."""
    warnings: tuple[str, ...] = ()
    """Sentences about tolerated rows and possible mistakes."""
    skipped: tuple[SkippedItem, ...] = ()
    """Files, rows, texts and questions that cannot be used."""
    moved: Sequence[str] = ()
    """Names of questions with a repaired span."""
    unverified: Sequence[str] = ()
    """Names of questions with a span but without an answer text to verify it."""
    unpositioned: Mapping[str, str] = field(default_factory=dict)
    """Question id to the reason for a missing position."""
    places: Mapping[str, Place] = field(default_factory=dict)
    """Question id to query and grade, for queries with several evidence spans."""
    repeated: RepeatedTexts = field(default_factory=RepeatedTexts)
    """Number of questions that are repeated for several documents, in the complete subset."""

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
            documents: Document id to text.
            questions: Question id to text, id of the relevant document, and evidence span.
            revision: Revision of the texts.
            titles: Document id to the title of its article.
            tokens: Relevant document id to token count; by default, counts are estimated.
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
            build_text_frame([*documents], [*documents.values()]),
            build_text_frame([*questions], texts),
            evidence,
            revision,
        )

    @cached_property
    def corpus(self) -> Dataset:
        """The documents as mteb expects them."""
        from datasets import Dataset

        return Dataset.from_polars(self.documents)

    @cached_property
    def queries(self) -> Dataset:
        """The questions as mteb expects them."""
        from datasets import Dataset

        return Dataset.from_polars(self.questions)

    @property
    def has_spans(self) -> bool:
        """True if the evidence has character spans."""
        return bool(len(self.evidence.starts) and len(self.evidence.ends))

    def drop_unpositioned(self) -> PositionData:
        """Turn questions without a position into skipped items."""
        skipped = [
            SkippedItem(name, "questions without a known position", reason)
            for name, reason in self.unpositioned.items()
        ]
        return replace(self._drop(self.unpositioned, skipped), unpositioned={})

    def drop_places(self) -> PositionData:
        """Turn queries with several evidence spans into skipped items."""
        queries = dict.fromkeys(place.query for place in self.places.values())
        skipped = [
            SkippedItem(name, "questions with several places of evidence") for name in queries
        ]
        return replace(self._drop(self.places, skipped), places={})

    def _drop(self, names: Collection[str], skipped: Iterable[SkippedItem]) -> PositionData:
        if not names:
            return self
        rows = [row for row, name in enumerate(self.evidence.query_ids) if name not in names]
        return replace(self.select(rows), skipped=(*self.skipped, *skipped))

    def split_places(self) -> tuple[PositionData, PositionData]:
        """Split the data into queries with one span and with several spans (a row per span)."""
        single = replace(self._drop(self.places, ()), places={})
        return single, self.select(find_rows(self.evidence.query_ids, self.places))

    def select(self, rows: list[int]) -> PositionData:
        """Select questions by row index, with the complete corpus."""
        return replace(self, questions=self.questions[rows], evidence=self.evidence.select(rows))

    def locate_spans(self) -> list[Span]:
        """Return the evidence span of each question in its document, or an empty list for data
        without spans.

        If the text length differs from the declared length, as in translations, spans are scaled.
        Spans in nonempty texts have at least one character.
        """
        if not self.has_spans:
            return []
        evidence = self.evidence
        lengths = dict(self.documents.select("id", pl.col("text").str.len_chars()).iter_rows())
        sizes = np.array([lengths[name] for name in evidence.document_ids], np.int64)
        declared = evidence.characters if len(evidence.characters) else sizes
        bounds = np.stack([evidence.starts, evidence.ends])
        starts, ends = np.rint(bounds / np.maximum(declared, 1) * sizes).astype(np.int64)
        starts = np.clip(starts, 0, np.maximum(sizes - 1, 0))
        ends = np.clip(ends, starts + 1, sizes)
        # Questions without a position have empty spans.
        spans = np.where(bounds.any(axis=0), [starts, ends], 0).T
        return [Span(start, end) for start, end in spans.tolist()]

    def iterate_queries(self) -> Iterator[tuple[str, str, str]]:
        """Yield question id, question text and document id."""
        evidence = self.evidence
        return zip(evidence.query_ids, self.questions["text"], evidence.document_ids, strict=True)

    def list_questions(self) -> Iterator[tuple[str, str, str, Span | None]]:
        """Yield question id, question text, document id, and evidence span or None."""
        no_spans: list[Span | None] = [None] * len(self.evidence)
        spans = self.locate_spans() or no_spans
        ids = self.evidence.query_ids
        return zip(ids, self.questions["text"], self.evidence.document_ids, spans, strict=True)


def build_text_frame(ids: Sequence[str], texts: Sequence[str]) -> pl.DataFrame:
    """Build a data frame of documents or questions."""
    return pl.DataFrame({"id": ids, "text": texts}, schema={"id": pl.String, "text": pl.String})


def list_texts(rows: Dataset | pl.DataFrame) -> dict[str, str]:
    """Map ids of queries or documents to texts."""
    return dict(zip(rows["id"][:], rows["text"][:], strict=True))


def to_frame(texts: Dataset | pl.DataFrame) -> pl.DataFrame:
    """Return queries or documents as a data frame."""
    frame = texts if isinstance(texts, pl.DataFrame) else texts.to_polars()
    assert isinstance(frame, pl.DataFrame)
    return frame


def digest_data(data: PositionData) -> dict[str, str]:
    """Compute the content digests `corpus` and `queries`, which includes the evidence.

    Digests do not depend on the source of the data or the order of rows. Texts are hashed in
    batches; `benchmarks/data_digest.py` measures time and memory.
    """
    queries = digest_queries(data.questions, data.evidence, data.places)
    return {"corpus": digest_texts(data.documents), "queries": queries}


def digest_queries(
    queries: pl.DataFrame, evidence: Evidence, places: Mapping[str, Place] = NO_PLACES
) -> str:
    """Compute a digest of queries and their evidence, which must be in the same order."""
    columns = {name: values for name, values in vars(evidence).items() if name != "query_ids"}
    if places:
        row_places = [places.get(name, Place("", 0)) for name in evidence.query_ids]
        grades = np.array([place.grade for place in row_places])
        # Only strings and integers can be hashed, so floats are hashed by their bits.
        whole = grades.view(np.int64) if grades.dtype == np.float64 else grades
        columns |= {"query": [place.query for place in row_places], "grade": whole}
    return digest_texts(queries, columns)


def digest_texts(texts: Dataset | pl.DataFrame, columns: Mapping[str, Any] = NO_COLUMNS) -> str:
    """Compute a digest of `id`, `text` and additional columns, regardless of row order."""
    additional = [pl.Series(name, values) for name, values in columns.items() if len(values)]
    hashed = pl.col("id", "text").cast(pl.String).fill_null("")
    frame = to_frame(texts).select(hashed).with_columns(additional)
    content = hashlib.blake2b(digest_size=CONTENT_BYTES)
    for column in frame.sort("id"):
        content.update(f"{column.name}:{len(column)}:".encode())
        is_text = column.dtype == pl.String
        # With the lengths first, different texts cannot produce the same bytes.
        integers = (column.str.len_bytes() if is_text else column).cast(pl.Int64)
        content.update(integers.to_numpy().astype("<i8").tobytes())
        for batch in column.to_frame().iter_slices(BATCH_ROWS) if is_text else ():
            content.update("".join(batch.to_series().to_list()).encode())
    return content.hexdigest()
