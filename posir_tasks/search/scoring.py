"""Scores of search results on one subset, for mteb's tasks and for runs of any system.

Importing this module does not import mteb.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl

from posir_tasks.data.data import (
    Judgments,
    PositionData,
    build_text_frame,
    digest_queries,
    digest_texts,
    find_rows,
    to_frame,
)
from posir_tasks.plugin_api import score_result
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.evidence import Evidence, Place, ReadEvidence
from posir_tasks.values.place_ranks import rank_places
from posir_tasks.values.ranks import (
    RankedQueries,
    Results,
    compute_query_scores,
    compute_retrieval_scores,
    rank_results,
    score_rankings,
)
from posir_tasks.values.read_part import ReadPart
from posir_tasks.values.result_schema import (
    DIGEST_KEY,
    NON_SCORE_KEYS,
    REVISION_KEY,
    RUN_KEY,
    SCHEMA,
    SCORE_NAMES_KEY,
    SPLIT,
    TOLERATED_KEY,
    round_floats,
)
from posir_tasks.values.rotation_ranks import RotationRanks
from posir_tasks.values.schemes import PositionScheme
from posir_tasks.values.scores import ResultValues
from posir_tasks.values.tokens_read import TokensRead

if TYPE_CHECKING:
    from datasets import Dataset

#: Cut-offs of the scores. The PosQ scripts retrieve 100 documents per query. mteb's 1,000 would
#: take ten times the memory for the same scores.
K_VALUES = (1, 3, 5, 10, 20, 30, 50, 100)

#: mteb's `RetrievalSplitData`, extended by evidence: `single` and `evidence` for queries with one
#: evidence span, `places` for queries with several.
SplitData: TypeAlias = dict[str, Any]
#: Rows by document id.
Rows: TypeAlias = Mapping[str, Mapping[str, Any]]
#: Ranks rotated versions; see `RotationTest.rank`.
Rotate: TypeAlias = Callable[
    [PositionScheme, Evidence, Rows, DocumentRanks, "ReadFinder", ReadPart], RotationRanks | None
]
#: Locates the evidence of queries in the part of documents that the model reads.
ReadFinder: TypeAlias = Callable[["Dataset", Evidence, Rows], ReadEvidence]


def divide_split(data: PositionData, top_ranked: Any = None) -> SplitData:
    """Convert data to an mteb split, with separate queries for one and several evidence spans."""
    # A slow import.
    from datasets import Dataset

    judgments = Judgments.from_positions(data)
    single, several = data.divide_places()
    questions = data.questions
    if data.places:
        questions = build_text_frame([*judgments.queries], [*judgments.queries.values()])
    corpus = Dataset.from_polars(data.documents)
    return {
        "corpus": corpus,
        "queries": Dataset.from_polars(questions),
        "relevant_docs": judgments.grades,
        "top_ranked": top_ranked,
        "evidence": single.evidence,
        "single": single.queries,
        # Keeps a single copy of the corpus in memory.
        "places": replace(several, documents=data.documents.clear()),
        "digest": partial(_digest_split, corpus, data.questions, data.evidence, data.places),
        "revision": data.revision,
        "tolerated": dict(data.tolerated),
    }


def _digest_split(
    corpus: Dataset, questions: pl.DataFrame, evidence: Evidence, places: Mapping[str, Place]
) -> dict[str, str]:
    queries = digest_queries(questions, evidence, places)
    return {"corpus": digest_texts(corpus), "queries": queries}


def select_documents(corpus: Dataset, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the rows of documents by id."""
    rows = find_rows(corpus["id"][:], {*names})
    return {row["id"]: row for row in corpus.select(rows)}


def select_texts(documents: Rows) -> dict[str, str]:
    """Return the texts of documents by id."""
    return {name: str(row["text"]) for name, row in documents.items()}


@dataclass(frozen=True, eq=False)
class QueryScores(Mapping[str, Mapping[str, float]]):
    """The scores of each query by pytrec_eval's names, as in mteb. They are computed on access."""

    ranks: Mapping[str, int]
    """Rank of the relevant document by query id; 0 for a miss."""
    k_values: Sequence[int]
    mteb_scores: Mapping[str, Any]
    """mteb's own scores for the subset."""
    additive: ResultValues
    """Additive values for posir's scores."""

    def __getitem__(self, query: str) -> Mapping[str, float]:
        return compute_query_scores(self.ranks[query], self.k_values)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ranks)

    def __len__(self) -> int:
        return len(self.ranks)

    def compute_declared(self) -> dict[str, Any]:
        """Compute the scores that plugins declare, in the result format."""
        scores = score_result(self.additive)
        reserved = {*self.mteb_scores, *NON_SCORE_KEYS}
        return scores.to_json(self.additive.profile.positions, reserved_keys=reserved)


@dataclass(frozen=True, eq=False)
class SearchedSubset:
    """The search results of a subset."""

    name: str
    data: SplitData
    results: Results
    ranked: RankedQueries
    find_read: ReadFinder
    count_tokens: Callable[[pl.DataFrame, ReadPart], TokensRead | None]
    extra_entries: Mapping[str, Any] = field(default_factory=dict)
    """Entries of the result that are not scores."""
    rotate: Rotate = lambda *_: None
    """Ranks rotated versions of the documents."""


@dataclass(frozen=True)
class SubsetScorer:
    """Scores the search results of a task's subsets."""

    scheme: PositionScheme
    k_values: Sequence[int] = K_VALUES
    top_k: int = max(K_VALUES)
    missing_subsets: Sequence[str] = ()
    compute_specific: Callable[[QueryScores, SearchedSubset], dict[str, Any]] = lambda scores, _: (
        scores.compute_declared()
    )
    """Computes scores in addition to mteb's own."""

    def score(
        self,
        searched: SearchedSubset,
        timer: Callable[..., AbstractContextManager[Any]] = lambda *_, **__: nullcontext(),
    ) -> dict[str, Any]:
        """Build a subset's entry in the result, without the fields that mteb adds."""
        data = searched.data
        evidence = searched.data["evidence"]
        ranked = searched.ranked
        is_single = not len(data["places"].evidence)
        phase = {"split": SPLIT, "subset": searched.name}
        with timer("Scoring", **phase):
            # Only queries with several relevant documents need grades.
            if is_single:
                scores = compute_retrieval_scores(ranked, self.k_values)
            else:
                grades = data["relevant_docs"]
                scores = {**score_rankings(searched.results, grades, self.k_values)}
            scores |= searched.extra_entries
        with timer("Counting tokens", **phase):
            documents = select_documents(data["corpus"], evidence.document_ids)
            read_evidence = searched.find_read(data["single"], evidence, documents)
            tokens_read = searched.count_tokens(to_frame(data["corpus"]), read_evidence.read)
        with timer("Scoring positions", **phase):
            ranks = DocumentRanks.from_ranks(
                self.scheme,
                evidence,
                ranked.ranks,
                read_evidence,
                searched.name,
                select_texts(documents),
            )
        with timer("Rotating documents", **phase):
            rotations = searched.rotate(
                self.scheme, evidence, documents, ranks, searched.find_read, read_evidence.read
            )
        with timer("Scoring positions", **phase):
            by_query = dict(zip(evidence.map_positives(), ranked.ranks.tolist(), strict=True))
            places = None if is_single else self._rank_places(searched)
            values = ResultValues(ranks, read_evidence.read, tokens_read, places, rotations)
            by_query_scores = QueryScores(by_query, self.k_values, scores, values)
            declared = round_floats(self.compute_specific(by_query_scores, searched))
            run = {
                "schema": SCHEMA,
                REVISION_KEY: data["revision"],
                DIGEST_KEY: data["digest"](),
                TOLERATED_KEY: data["tolerated"],
                "missing_subsets": list(self.missing_subsets),
                "top_k": self.top_k,
                SCORE_NAMES_KEY: sorted(declared),
            }
        entry: dict[str, Any] = scores | values.to_json() | {RUN_KEY: run} | declared
        return entry

    def _rank_places(self, searched: SearchedSubset) -> DocumentRanks:
        """Rank the document of each evidence span of queries with several spans."""
        places: PositionData = searched.data["places"]
        evidence = places.evidence
        queries = [places.places[name].query for name in evidence.query_ids]
        results = [searched.results.get(query, {}) for query in queries]
        by_span = dict(zip(evidence.query_ids, results, strict=True))
        documents = select_documents(searched.data["corpus"], evidence.document_ids)
        ranks = rank_results(by_span, evidence.map_positives()).ranks
        read_evidence = searched.find_read(places.queries, evidence, documents)
        texts = select_texts(documents)
        return rank_places(
            self.scheme, evidence, queries, ranks, read_evidence, searched.name, texts
        )
