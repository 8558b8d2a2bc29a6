"""Ranks of versions of documents among the unchanged other documents of their questions.

The versions are scored as the model scores documents; the other documents keep the scores of the
ordinary search.
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
from posir_tasks.models.dispatch import HybridSearch, fuse_rankings, is_reranker, search_results
from posir_tasks.models.embeddings.distinct import DistinctEmbeddings
from posir_tasks.models.request import SearchRequest
from posir_tasks.text.rotations import VERSIONS
from posir_tasks.values.ranks import Results

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels

    from posir_tasks.search.scoring import Rows

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


@dataclass(frozen=True, eq=False)
class VersionRanker:
    """Ranks versions of documents among the other documents of their questions."""

    request: SearchRequest
    """The ordinary search."""
    results: Results
    """The results of the ordinary search."""
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
        hits = set[str]()
        for question in self.owners:
            hits.update(self.results.get(question, {}))
        texts = _read_texts(self.request.corpus, hits)
        copies = {}
        for question, owner in self.owners.items():
            text = str(self.documents[owner]["text"])
            names = set(self.results.get(question, {})) - {owner}
            copies[question] = {name for name in names if texts.get(name) == text}
        return copies

    def count_copies(self) -> int:
        """Count the hits that are copies of a question's document."""
        return sum(map(len, self.copies.values()))

    def rank(self, model: MTEBModels) -> dict[Pair, int]:
        """Return the rank of each pair from 1; 0 if the version is not among the first."""
        if isinstance(model, HybridSearch):
            return self._rank_hybrid(model)
        scores = self.score(model)
        return {pair: self._rank_among(*pair, score) for pair, score in scores.items()}

    def score(self, model: MTEBModels) -> dict[Pair, float]:
        """Return the score of each pair; raise ScoreError if one is NaN, as the ordinary search
        does.
        """
        scores = self._score(model)
        number = sum(map(math.isnan, scores.values()))
        if number:
            raise ScoreError(
                f"The model returned NaN scores for {number} of {len(scores)} rotated versions. "
                "NaN cannot be ranked. Common causes: overflow in half precision (try another "
                "dtype), a damaged checkpoint. `POSIR_ROTATED=0` scores without rotated versions."
            )
        return scores

    def _score(self, model: MTEBModels) -> dict[Pair, float]:
        if isinstance(model, EncoderProtocol) and not isinstance(model, SearchProtocol):
            return self._score_embeddings(model)
        narrowed = replace(
            self.request,
            corpus=self.versions,
            queries=self._select_queries(),
            top_ranked={question: list(names) for question, names in self.pairs.items()},
            top_k=2 * VERSIONS,
        )
        results = search_results(model, narrowed)
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
        """Score by the similarity of embeddings, document by document."""
        context = self.request.context
        queries = self._select_queries()
        embeddings = context.encode(model, queries, PromptType.query)
        query_embeddings = DistinctEmbeddings(_number(queries["id"][:]), embeddings)
        embeddings = context.encode(model, self.versions, PromptType.document)
        versions = DistinctEmbeddings(_number(self.versions["id"][:]), embeddings)
        together: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for question, names in self.pairs.items():
            together[tuple(names)].append(question)
        scores = dict[Pair, float]()
        for names, questions in together.items():
            similarities = model.similarity(
                query_embeddings.select(questions), versions.select(names)
            )
            block = torch.as_tensor(similarities).float().cpu()
            for question, row in zip(questions, block.tolist(), strict=True):
                scores |= {(question, name): score for name, score in zip(names, row, strict=True)}
        return scores

    def _rank_among(self, question: str, _version: str, score: float) -> int:
        """Return the rank of a version with a score among the other results of its question; 0 if
        it is not among them.
        """
        owner = self.owners[question]
        left_out = self.copies[question] | {owner}
        others = {
            name: other
            for name, other in self.results.get(question, {}).items()
            if name not in left_out
        }
        rank = 1 + _count_above(others, owner, score)
        is_last = rank == len(others) + 1
        return 0 if is_last and self._has_more(question, len(others) + len(left_out)) else rank

    def _has_more(self, question: str, known: int) -> bool:
        """Tell whether there are documents that are not among the results of a question."""
        top_ranked = self.request.top_ranked
        size = len(self.request.corpus) if top_ranked is None else len(top_ranked[question])
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
        top_k = self.request.top_k
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
    scores = np.fromiter(others.values(), np.float64, len(others))
    values = scores.astype(np.float32)
    names = np.array(list(others), np.object_)
    tied = sum(str(name) > owner for name in names[values == single])
    return int((values > single).sum()) + tied


def _read_texts(corpus: Dataset, names: set[str]) -> dict[str, str]:
    """Return the texts of documents of a corpus by id."""
    rows = [row for row, name in enumerate(corpus["id"][:]) if name in names]
    return list_texts(corpus.select(rows))
