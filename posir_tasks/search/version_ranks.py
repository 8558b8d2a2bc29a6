"""Rank document versions among the other hits for their questions.

The model scores the versions. Other documents keep their scores from the original search.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from datasets import Dataset
from mteb.models import EncoderProtocol, MultiVectorSearchEncoderWrapper, SearchProtocol
from mteb.models.model_implementations.bm25 import BM25Search
from mteb.types import PromptType

from posir_tasks.base.errors import ScoreError
from posir_tasks.data.data import list_texts
from posir_tasks.models.dispatch import HybridSearch, fuse_rankings, is_reranker, search_with_mteb
from posir_tasks.models.embeddings.distinct import DistinctEmbeddings
from posir_tasks.models.request import SearchRequest
from posir_tasks.text.rotations import VERSIONS
from posir_tasks.values.ranks import Results

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

    from posir_tasks.search.scoring import Rows

#: A question id and a version id.
Pair: TypeAlias = tuple[str, str]


def is_order_blind(model: object) -> bool:
    """Return True if word order does not affect a model's scores, as in BM25."""
    return isinstance(model, BM25Search) or getattr(model, "order_blind", False) is True


def can_score_versions(model: object) -> bool:
    """Return True if a document's score does not depend on other documents."""
    if isinstance(model, HybridSearch):
        return all(is_order_blind(member) or can_score_versions(member) for member in model.models)
    if isinstance(model, MultiVectorSearchEncoderWrapper):
        return True
    if isinstance(model, SearchProtocol):
        return getattr(model, "scores_depend_on_corpus", True) is False
    return isinstance(model, EncoderProtocol) or is_reranker(model)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class VersionRanker:
    """Ranks document versions among the other hits for their questions."""

    request: SearchRequest
    """The original search."""
    results: Results
    """Results of the original search."""
    versions: Dataset
    """The versions as a corpus."""
    pairs: Mapping[str, Sequence[str]]
    """Ids of the versions to rank, by query id."""
    document_ids: Mapping[str, str]
    """Document ids by query id."""
    documents: Rows

    @cached_property
    def copies(self) -> dict[str, set[str]]:
        """Ids of hits with the same text as the question's document, by question id."""
        hits = set[str]()
        for question in self.document_ids:
            hits.update(self.results.get(question, {}))
        texts = _read_texts(self.request.corpus, hits)
        copies = {}
        for question, document_id in self.document_ids.items():
            text = str(self.documents[document_id]["text"])
            names = set(self.results.get(question, {})) - {document_id}
            copies[question] = {name for name in names if texts.get(name) == text}
        return copies

    def count_copies(self) -> int:
        """Count the hits that are copies of their question's document."""
        return sum(map(len, self.copies.values()))

    def rank(self, model: MTEBModels) -> dict[Pair, int]:
        """Return the rank of each pair, from 1; 0 if the version is not among the hits."""
        if isinstance(model, HybridSearch):
            return self._rank_hybrid(model)
        scores = self.score(model)
        return {pair: self._rank_among_hits(*pair, score) for pair, score in scores.items()}

    def score(self, model: MTEBModels) -> dict[Pair, float]:
        """Return the score of each pair. Raise ScoreError for NaN."""
        scores = self._score(model)
        nan_count = sum(map(math.isnan, scores.values()))
        if nan_count:
            raise ScoreError(
                f"The model returned NaN scores for {nan_count} of {len(scores)} rotated versions. "
                "NaN cannot be ranked. Common causes: overflow in half precision (try another "
                "dtype), a damaged checkpoint. `POSIR_ROTATED=0` scores without rotated versions."
            )
        return scores

    def _score(self, model: MTEBModels) -> dict[Pair, float]:
        if isinstance(model, EncoderProtocol) and not isinstance(model, SearchProtocol):
            return self._score_embeddings(model)
        request = replace(
            self.request,
            corpus=self.versions,
            queries=self._select_queries(),
            top_ranked={question: list(names) for question, names in self.pairs.items()},
            top_k=2 * VERSIONS,
        )
        results = search_with_mteb(model, request)
        return {
            (question, name): results[question][name]
            for question, names in self.pairs.items()
            for name in names
        }

    def _select_queries(self) -> Dataset:
        queries = self.request.queries
        rows = [row for row, name in enumerate(queries["id"][:]) if name in self.pairs]
        return queries.select(rows)

    def _score_embeddings(self, model: EncoderProtocol) -> dict[Pair, float]:
        """Score pairs by embedding similarity, grouping the questions for the same versions."""
        context = self.request.context
        queries = self._select_queries()
        embeddings = context.encode(model, queries, PromptType.query)
        query_embeddings = DistinctEmbeddings(_index_names(queries["id"][:]), embeddings)
        embeddings = context.encode(model, self.versions, PromptType.document)
        versions = DistinctEmbeddings(_index_names(self.versions["id"][:]), embeddings)
        questions_by_versions: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for question, names in self.pairs.items():
            questions_by_versions[tuple(names)].append(question)
        scores = dict[Pair, float]()
        for names, questions in questions_by_versions.items():
            similarities = model.similarity(
                query_embeddings.select(questions), versions.select(names)
            )
            block = torch.as_tensor(similarities).float().cpu()
            for question, row in zip(questions, block.tolist(), strict=True):
                scores |= {(question, name): score for name, score in zip(names, row, strict=True)}
        return scores

    def _rank_among_hits(self, question: str, _version: str, score: float) -> int:
        """Return the rank of a version among the hits for a question; 0 if it is not a hit."""
        document_id = self.document_ids[question]
        excluded_ids = self.copies[question] | {document_id}
        hits = {
            name: value
            for name, value in self.results.get(question, {}).items()
            if name not in excluded_ids
        }
        rank = 1 + _count_above(hits, document_id, score)
        is_last = rank == len(hits) + 1
        return 0 if is_last and self._has_more(question, len(hits) + len(excluded_ids)) else rank

    def _has_more(self, question: str, hits: int) -> bool:
        """Return True if more than `hits` documents can be ranked for a question."""
        top_ranked = self.request.top_ranked
        size = len(self.request.corpus) if top_ranked is None else len(top_ranked[question])
        return size > hits

    def _rank_hybrid(self, model: HybridSearch) -> dict[Pair, int]:
        """Replace the document with its version in each model's ranking, then fuse the rankings."""
        rankings_by_pair: dict[Pair, list[list[str]]] = defaultdict(list)
        for member, results in model.last_results:
            scores = {} if is_order_blind(member) else self.score(member)
            for question, names in self.pairs.items():
                for name in names:
                    ranking = self._replace_document(
                        question, results.get(question, {}), scores.get((question, name))
                    )
                    rankings_by_pair[question, name].append(ranking)
        top_k = self.request.top_k
        ranks = {}
        for pair, rankings in rankings_by_pair.items():
            fused_scores = fuse_rankings(ranking[:top_k] for ranking in rankings)
            document_id = self.document_ids[pair[0]]
            other_scores = {
                name: score for name, score in fused_scores.items() if name != document_id
            }
            rank = 0
            if document_id in fused_scores:
                rank = 1 + _count_above(other_scores, document_id, fused_scores[document_id])
            ranks[pair] = rank if rank <= top_k else 0
        return ranks

    def _replace_document(
        self, question: str, ranking: Mapping[str, float], score: float | None
    ) -> list[str]:
        """Assign the version's score to the document, and return the document ids, best first."""
        copies = self.copies[question]
        scores = {name: value for name, value in ranking.items() if name not in copies}
        if score is not None:
            scores[self.document_ids[question]] = score
        return sorted(scores, key=lambda name: (np.float32(scores[name]), name), reverse=True)


def _index_names(names: Sequence[str]) -> dict[str, int]:
    return {name: row for row, name in enumerate(names)}


def _count_above(scores: Mapping[str, float], document_id: str, score: float) -> int:
    """Count the documents that rank above `document_id`, by score in single precision, then id."""
    single = np.float32(score)
    values = np.fromiter(scores.values(), np.float64, len(scores)).astype(np.float32)
    names = np.array(list(scores), np.object_)
    ties = sum(str(name) > document_id for name in names[values == single])
    return int((values > single).sum()) + ties


def _read_texts(corpus: Dataset, names: set[str]) -> dict[str, str]:
    """Return the texts of documents by id."""
    rows = [row for row, name in enumerate(corpus["id"][:]) if name in names]
    return list_texts(corpus.select(rows))
