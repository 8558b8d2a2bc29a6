"""Retrieval by position of the evidence, exactly as `mteb run` does it, with a model of sentence-transformers."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset as Texts
from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper
from mteb.timing import TimingStack
from mteb.types import PromptType

from posir_significance.intervals import estimate_difference
from posir_significance.observations import Floats, Integers, Observations, subtract_observations
from posir_tasks.cells import pool
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.embeddings.context import EncodingContext
from posir_tasks.embeddings.encoding import Vectors, unit_vectors
from posir_tasks.errors import ScoreError
from posir_tasks.models.names import legible_name
from posir_tasks.scores import ResultValues
from posir_tasks.search.dispatch import SearchRequest, search_ranks
from posir_tasks.search.input_window import find_read_evidence, select_relevant, select_texts
from posir_tasks.sources.data import PositionData
from posir_tasks.sources.opening import Dataset, Subset
from posir_tasks.sources.repository import LOCAL
from posir_tasks.tasks.base import PositionTask
from posir_tasks.tasks.metadata import SPLIT, build_metadata
from posir_tasks.thirds import assign_thirds
from posir_train.settings import Position

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

#: Documents whose cosines with each other are measured.
COSINE_SAMPLE = 100
#: Documents that `mteb run` retrieves for each query.
TOP_K = max(PositionTask.k_values)


@dataclass(frozen=True, eq=False)
class Measurement:
    """Measurements of a model on a dataset."""

    values: ResultValues
    unrelated_cosine: float
    """Mean cosine of pairs of documents of different articles."""

    @property
    def ranks(self) -> DocumentRanks:
        """The ranks by document."""
        return self.values.ranks

    def to_json(self) -> dict[str, Any]:
        """Return the measurement as plain JSON."""
        return {**self.values.to_json(), "unrelated_cosine": self.unrelated_cosine}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """Read what `to_json` returned."""
        return cls(ResultValues.from_json(data), data["unrelated_cosine"])


def measure(model: SentenceTransformer, dataset: Dataset, batch_size: int = 32) -> Measurement:
    """Rank the documents of every corpus for its questions, as `mteb run` does: no document is left out.

    Raises:
        ScoreError: The model returns NaN.
        DataError: The data is missing or invalid.
    """
    wrapped, size = wrap_model(model), -(-COSINE_SAMPLE // len(dataset.subsets))
    parts = [_measure_subset(wrapped, dataset, subset, batch_size, size) for subset in dataset.subsets]
    return Measurement(pool(part.values for part in parts), mean_unrelated_cosine(parts))


def wrap_model(model: SentenceTransformer) -> SentenceTransformerEncoderWrapper:
    """Return a model as mteb calls it."""
    with warnings.catch_warnings(action="ignore"):  # mteb's, on prompts and on arguments that it passes itself
        return SentenceTransformerEncoderWrapper(model)


def rank_documents(model: SentenceTransformerEncoderWrapper, request: SearchRequest) -> Integers:
    """Return the rank of each query's relevant document, as `mteb run` finds it.

    Raises:
        ScoreError: The model returns NaN.
    """
    try:
        return search_ranks(model, request).ranks
    except ScoreError as error:
        raise ScoreError("The model returns NaN, so nothing can be ranked. Lower learning_rate.") from error


def name_subset(subset: Subset) -> str:
    """Return the name of a subset in ranks by document."""
    return f"{subset.language}-{subset.domain}"


@dataclass(frozen=True, eq=False)
class MeasuredSubset:
    """Measurements of a model on one subset."""

    values: ResultValues
    sample: Vectors
    """Unit vectors of some documents, shape (n, dimensions)."""
    articles: Sequence[str]
    """The article of each of these documents."""


def _measure_subset(
    model: SentenceTransformerEncoderWrapper, dataset: Dataset, subset: Subset, batch_size: int, sample_size: int
) -> MeasuredSubset:
    data = subset.read()
    request = build_request(dataset, subset, data, batch_size)
    ranked = rank_documents(model, request)
    documents = select_relevant(request)
    placed = find_read_evidence(model, request, data.evidence, documents)
    ranks = DocumentRanks.from_ranks(
        dataset.scheme, data.evidence, ranked, placed, name_subset(subset), select_texts(documents)
    )
    rows = random.Random(0).sample(range(len(data.corpus)), min(sample_size, len(data.corpus)))
    articles = dict(zip(data.evidence.document_ids, data.evidence.clusters or data.evidence.document_ids, strict=True))
    names = [data.corpus["id"][row] for row in rows]
    sample = _encode(model, data.corpus.select(rows), request)
    return MeasuredSubset(ResultValues(ranks, placed.read), sample, [articles.get(name) or name for name in names])


def build_request(dataset: Dataset, subset: Subset, data: PositionData, batch_size: int) -> SearchRequest:
    """Return the search of a subset's questions in its corpus, as mteb describes it to models."""
    languages = list(dict.fromkeys([subset.query_language, subset.corpus_language]))
    metadata = build_metadata(
        legible_name(dataset.name), dataset=dataset.location, revision=LOCAL, languages={subset.domain: languages}
    )
    return SearchRequest(
        corpus=data.corpus,
        queries=data.queries,
        positives=data.evidence.positives(),
        top_ranked=None,
        top_k=TOP_K,
        context=EncodingContext(metadata, SPLIT, subset.domain, {"batch_size": batch_size, "show_progress_bar": False}),
        timer=TimingStack(),
    )


def _encode(model: SentenceTransformerEncoderWrapper, documents: Texts, request: SearchRequest) -> Vectors:
    return unit_vectors(np.asarray(request.context.encode(model, documents, PromptType.document), np.float32))


def mean_unrelated_cosine(parts: Sequence[MeasuredSubset]) -> float:
    """Return the mean cosine of sampled documents of different articles; NaN if there are no two."""
    vectors = np.concatenate([part.sample for part in parts])
    articles = np.array([article for part in parts for article in part.articles])
    unrelated = articles[:, None] != articles[None, :]
    return float((vectors @ vectors.T)[unrelated].mean()) if unrelated.any() else float("nan")


def select_third(observations: Observations, position: Position) -> tuple[Floats, Integers]:
    """Return gains and clusters of the queries in a third of the document, as start to end counts them."""
    rows = observations.query[assign_thirds(observations.bins)[observations.position] == position]
    return observations.gains[rows], observations.clusters[rows]


def significant_loss(base: DocumentRanks, ranks: DocumentRanks) -> float | None:
    """Return the difference in nDCG@10 if it is significantly below 0, paired by query; else None."""
    paired = subtract_observations(Observations.from_ranks(base), Observations.from_ranks(ranks))
    difference = estimate_difference(paired.gains, paired.clusters)
    return difference.value if difference and difference.high is not None and difference.high < 0 else None
