"""Score the search results of one subset, for mteb's tasks and for runs of other systems.

This module does not import mteb.
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

#: Cutoffs of the scores. Like the PosQ scripts, posir retrieves 100 documents per query. mteb's
#: 1,000 would need ten times the memory for the same scores.
K_VALUES = (1, 3, 5, 10, 20, 30, 50, 100)

#: mteb's `RetrievalSplitData` plus evidence: `single` and `evidence` for queries with one evidence
#: span, `places` for queries with several.
SplitData: TypeAlias = dict[str, Any]
#: Rows by document id.
Rows: TypeAlias = Mapping[str, Mapping[str, Any]]
#: Ranks rotated versions; see `RotationTest.rank`.
RankRotations: TypeAlias = Callable[
    [PositionScheme, Evidence, Rows, DocumentRanks, "ReadFinder", ReadPart], RotationRanks | None
]
#: Locates the evidence of queries in the part of documents that the model reads.
ReadFinder: TypeAlias = Callable[["Dataset", Evidence, Rows], ReadEvidence]


def build_split(data: PositionData, top_ranked: Any = None) -> SplitData:
    """Convert data to an mteb split. Queries with one and several evidence spans are separated."""
    # Importing datasets is slow.
    from datasets import Dataset

    judgments = Judgments.from_positions(data)
    single, several = data.split_places()
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
        # `corpus` already contains the documents.
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
    """Scores by query and pytrec_eval's score name, as in mteb. They are computed on access."""

    ranks: Mapping[str, int]
    """Rank of the relevant document by query id; 0 for a miss."""
    k_values: Sequence[int]
    mteb_scores: Mapping[str, Any]
    """mteb's scores for the subset."""
    additive: ResultValues
    """Values from which posir's scores are computed."""

    def __getitem__(self, query: str) -> Mapping[str, float]:
        return compute_query_scores(self.ranks[query], self.k_values)

    def __iter__(self) -> Iterator[str]:
        return iter(self.ranks)

    def __len__(self) -> int:
        return len(self.ranks)

    def compute_plugin_scores(self) -> dict[str, Any]:
        """Compute the scores that plugins declare, in the format of results."""
        scores = score_result(self.additive)
        reserved_keys = {*self.mteb_scores, *NON_SCORE_KEYS}
        return scores.to_json(self.additive.profile.positions, reserved_keys=reserved_keys)


@dataclass(frozen=True, eq=False)
class SearchedSubset:
    """The search results of a subset."""

    name: str
    data: SplitData
    results: Results
    ranked_queries: RankedQueries
    find_read_evidence: ReadFinder
    count_tokens: Callable[[pl.DataFrame, ReadPart], TokensRead | None]
    extra_entries: Mapping[str, Any] = field(default_factory=dict)
    """Entries for the result that are not scores."""
    rotate: RankRotations = lambda *_: None
    """Ranks rotated versions of documents; by default, none."""


@dataclass(frozen=True)
class SubsetScorer:
    """Scores the search results of a task's subsets."""

    scheme: PositionScheme
    k_values: Sequence[int] = K_VALUES
    top_k: int = max(K_VALUES)
    missing_subsets: Sequence[str] = ()
    compute_task_scores: Callable[[QueryScores, SearchedSubset], dict[str, Any]] = (
        lambda scores, _: scores.compute_plugin_scores()
    )
    """Computes scores in addition to mteb's; by default, those that plugins declare."""

    def score(
        self,
        subset: SearchedSubset,
        timer: Callable[..., AbstractContextManager[Any]] = lambda *_, **__: nullcontext(),
    ) -> dict[str, Any]:
        """Build a subset's entry for the result, without the fields that mteb adds."""
        data = subset.data
        evidence = subset.data["evidence"]
        ranked_queries = subset.ranked_queries
        is_single = not len(data["places"].evidence)
        phase = {"split": SPLIT, "subset": subset.name}
        with timer("Scoring", **phase):
            # Only queries with several relevant documents need grades.
            if is_single:
                scores = compute_retrieval_scores(ranked_queries, self.k_values)
            else:
                grades = data["relevant_docs"]
                scores = {**score_rankings(subset.results, grades, self.k_values)}
            scores |= subset.extra_entries
        with timer("Counting tokens", **phase):
            documents = select_documents(data["corpus"], evidence.document_ids)
            read_evidence = subset.find_read_evidence(data["single"], evidence, documents)
            tokens_read = subset.count_tokens(to_frame(data["corpus"]), read_evidence.read)
        with timer("Scoring positions", **phase):
            ranks = DocumentRanks.from_ranks(
                self.scheme,
                evidence,
                ranked_queries.ranks,
                read_evidence,
                subset.name,
                select_texts(documents),
            )
        with timer("Rotating documents", **phase):
            rotations = subset.rotate(
                self.scheme,
                evidence,
                documents,
                ranks,
                subset.find_read_evidence,
                read_evidence.read,
            )
        with timer("Scoring positions", **phase):
            ranks_by_query = dict(
                zip(evidence.map_positives(), ranked_queries.ranks.tolist(), strict=True)
            )
            places = None if is_single else self._rank_places(subset)
            values = ResultValues(ranks, read_evidence.read, tokens_read, places, rotations)
            query_scores = QueryScores(ranks_by_query, self.k_values, scores, values)
            task_scores = round_floats(self.compute_task_scores(query_scores, subset))
            run = {
                "schema": SCHEMA,
                REVISION_KEY: data["revision"],
                DIGEST_KEY: data["digest"](),
                TOLERATED_KEY: data["tolerated"],
                "missing_subsets": list(self.missing_subsets),
                "top_k": self.top_k,
                SCORE_NAMES_KEY: sorted(task_scores),
            }
        entry: dict[str, Any] = scores | values.to_json() | {RUN_KEY: run} | task_scores
        return entry

    def _rank_places(self, subset: SearchedSubset) -> DocumentRanks:
        """For queries with several evidence spans, rank the document of each span."""
        places: PositionData = subset.data["places"]
        evidence = places.evidence
        queries = [places.places[name].query for name in evidence.query_ids]
        results = [subset.results.get(query, {}) for query in queries]
        results_by_span = dict(zip(evidence.query_ids, results, strict=True))
        documents = select_documents(subset.data["corpus"], evidence.document_ids)
        ranks = rank_results(results_by_span, evidence.map_positives()).ranks
        read_evidence = subset.find_read_evidence(places.queries, evidence, documents)
        texts = select_texts(documents)
        return rank_places(self.scheme, evidence, queries, ranks, read_evidence, subset.name, texts)
