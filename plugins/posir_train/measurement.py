"""Measure a model on a dataset, with the same search and rotations as in `mteb run`."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from mteb.models.sentence_transformer_wrapper import SentenceTransformerEncoderWrapper
from mteb.timing import TimingStack
from mteb.types import PromptType

from posir_tasks.base.errors import ScoreError
from posir_tasks.data.data import PositionData
from posir_tasks.data.repository import LOCAL
from posir_tasks.data.task_metadata import build_metadata
from posir_tasks.datasets.dataset import Dataset, Subset
from posir_tasks.models.dispatch import search_and_rank
from posir_tasks.models.embeddings.context import EncodingContext
from posir_tasks.models.embeddings.encoding import normalize_vectors
from posir_tasks.models.references import to_file_name
from posir_tasks.models.request import SearchRequest
from posir_tasks.search.input_window import find_read_evidence
from posir_tasks.search.rotations import RotationTest
from posir_tasks.search.scoring import K_VALUES, select_documents, select_texts
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.profile import pool
from posir_tasks.values.result_schema import SPLIT
from posir_tasks.values.rotation_ranks import read_sample_size
from posir_tasks.values.scores import ResultValues

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

#: Number of documents sampled to measure cosine similarity.
COSINE_SAMPLE = 100


@dataclass(frozen=True, eq=False)
class Measurement:
    """The measured values of a model on a dataset."""

    values: ResultValues
    unrelated_cosine: float
    """Mean cosine similarity of documents from different articles; NaN if there is one article."""

    def to_json(self) -> dict[str, Any]:
        """Convert to JSON values."""
        return {**self.values.to_json(), "unrelated_cosine": self.unrelated_cosine}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Measurement:
        """Build a measurement from the output of `to_json`."""
        return cls(ResultValues.from_json(data), data["unrelated_cosine"])


def measure_model(
    model: SentenceTransformer, dataset: Dataset, batch_size: int = 32
) -> Measurement:
    """Search every subset as in `mteb run`, and compute the cosines of sampled documents.

    Raises:
        ScoreError: The model returns NaN.
    """
    encoder = wrap_model(model)
    sample_size = math.ceil(COSINE_SAMPLE / len(dataset.subsets))
    values = []
    vectors = []
    articles = []
    for subset in dataset.subsets:
        data = subset.read()
        request = build_request(dataset, subset, data, batch_size)
        values.append(rank_subset(encoder, dataset, subset, data, request, read_sample_size()))
        corpus_size = len(data.corpus)
        rows = random.Random(0).sample(range(corpus_size), min(sample_size, corpus_size))
        documents = data.corpus.select(rows)
        evidence = data.evidence
        titles = evidence.clusters or evidence.document_ids
        titles_by_document = dict(zip(evidence.document_ids, titles, strict=True))
        articles += [titles_by_document.get(name) or name for name in documents["id"]]
        embeddings = request.context.encode(encoder, documents, PromptType.document)
        vectors.append(normalize_vectors(np.asarray(embeddings, np.float32)))
    matrix = np.concatenate(vectors)
    names = np.array(articles)
    cosines = (matrix @ matrix.T)[names[:, None] != names]
    return Measurement(pool(values), float(cosines.mean()) if len(cosines) else math.nan)


def rank_subset(
    model: SentenceTransformerEncoderWrapper,
    dataset: Dataset,
    subset: Subset,
    data: PositionData,
    request: SearchRequest,
    sample_size: int,
) -> ResultValues:
    """Search a subset, and rotated versions of a sample of its documents.

    Raises:
        ScoreError: The model returns NaN.
    """
    try:
        results, ranking = search_and_rank(model, request)
    except ScoreError as error:
        raise ScoreError(
            "The model returns NaN, so documents cannot be ranked. Lower learning_rate."
        ) from error
    documents = select_documents(data.corpus, data.evidence.document_ids)
    find_read = partial(find_read_evidence, model, request)
    evidence = find_read(data.queries, data.evidence, documents)
    name = f"{subset.language}-{subset.domain}"
    ranks = DocumentRanks.from_ranks(
        dataset.scheme, data.evidence, ranking.ranks, evidence, name, select_texts(documents)
    )
    original_ranks = dict(zip(request.positives, ranking.ranks.tolist(), strict=True))
    test = RotationTest(model, request, results, original_ranks, sample_size, len(dataset.subsets))
    rotations = test.rank(dataset.scheme, data.evidence, documents, ranks, find_read, evidence.read)
    return ResultValues(ranks, evidence.read, rotations=rotations)


def wrap_model(model: SentenceTransformer) -> SentenceTransformerEncoderWrapper:
    """Wrap a model for mteb without mteb's warnings."""
    # Hide warnings about prompts and about mteb's own arguments.
    with warnings.catch_warnings(action="ignore"):
        return SentenceTransformerEncoderWrapper(model)


def build_request(
    dataset: Dataset, subset: Subset, data: PositionData, batch_size: int
) -> SearchRequest:
    """Build the request to search a subset's questions in its corpus."""
    metadata = build_metadata(
        to_file_name(dataset.name),
        dataset=dataset.location,
        revision=LOCAL,
        languages={subset.domain: sorted({subset.query_language, subset.corpus_language})},
    )
    options = {"batch_size": batch_size, "show_progress_bar": False}
    return SearchRequest(
        corpus=data.corpus,
        queries=data.queries,
        positives=data.evidence.map_positives(),
        top_ranked=None,
        top_k=max(K_VALUES),
        context=EncodingContext(metadata, SPLIT, subset.domain, options),
        timer=TimingStack(),
    )
