"""Reranking, with scores cached in the build's log, and candidate retrieval with an embedding
model: in this process, or as `posir run` jobs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posir_build.records import Document, Question
from posir_run.jobs import Dispatcher, Engine
from posir_tasks.base.batches import split_batches
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track
from posir_tasks.language_models.call_log import CallLog
from posir_tasks.models.references import ModelReference, portable_name
from posir_tasks.models.registry import find_model, load_model
from posir_tasks.models.rerankers import (
    ModelReranker,
    Pair,
    Scores,
    build_scorer,
    to_probabilities,
)

if TYPE_CHECKING:
    from datasets import Dataset
    from mteb.models.models_protocols import MTEBModels
    from mteb.types import EncodeKwargs

logger = logging.getLogger(__name__)

StartEngine = Callable[[], Engine]
Texts = Sequence[Document | Question]
#: Document ids per query, nearest first, and their similarities, shape (queries, documents).
NearestDocuments = tuple[list[list[str]], NDArray[np.float32]]

#: Documents per retrieval job. Each job also encodes all questions.
DOCUMENTS_PER_JOB = 5_000
#: Minimum number of pairs per saved batch of scores.
BATCH = 512


@dataclass(frozen=True)
class ModelCallJob:
    """A function call with a loaded model, as a `posir run` job."""

    model: ModelReference
    title: str
    work: Callable[[MTEBModels], Any] = field(compare=False)
    number: int
    corpus: str = ""

    def __str__(self) -> str:
        return f"{self.model.name} · {self.title} {self.number}"

    def run(self, model: MTEBModels, encode_kwargs: EncodeKwargs) -> Any:  # noqa: ARG002
        """Call the function with the model and its embedding cache."""
        from posir_tasks.models.embeddings.cached_encoder import with_cache

        return self.work(with_cache(model))


def run_on_cluster(
    reference: ModelReference,
    title: str,
    calls: Sequence[Callable[[MTEBModels], Any]],
    start_engine: StartEngine,
) -> Iterator[tuple[int, Any]]:
    """Run calls as jobs; yield the index and value of each call as it completes. Raise PosirError
    if a job fails or no worker can be started.
    """
    if not calls:
        return
    model = ModelReference(portable_name(find_model(reference)), reference.revision)
    jobs = [ModelCallJob(model, title, call, number) for number, call in enumerate(calls)]
    with closing(Dispatcher(jobs, start_engine()).run()) as outcomes:
        for job, outcome in outcomes:
            for warning in outcome.warnings:
                logger.warning("%s", warning)
            if outcome.failure:
                raise PosirError(
                    f"{job}: {outcome.failure} Scores so far are saved; run the same command again."
                )
            assert isinstance(job, ModelCallJob)
            yield job.number, outcome.value


@dataclass(frozen=True)
class CandidateRetriever:
    """Nearest-neighbor search with an embedding model; on a cluster, each job searches a shard of
    the documents.
    """

    model: ModelReference
    language: str
    start_engine: StartEngine | None = None
    """Function that starts a cluster; None to load the model in this process."""

    @cached_property
    def name(self) -> str:
        """Name of the embedding model."""
        return str(find_model(self.model).name)

    def find(self, documents: Texts, queries: Texts, top_k: int) -> list[list[str]]:
        """Find the ids of the `top_k` nearest documents for each query, nearest first; raise
        PosirError if the model is not an encoder or a job fails.
        """
        if self.start_engine is None:
            from posir_tasks.models.embeddings.cached_encoder import with_cache

            model = with_cache(load_model(self.model))
            return retrieve(documents, queries, top_k, self.language, model)[0]
        shards = split_batches(documents, DOCUMENTS_PER_JOB)
        calls = [partial(retrieve, shard, queries, top_k, self.language) for shard in shards]
        results = sorted(run_on_cluster(self.model, "documents", calls, self.start_engine))
        return merge_shards([shard for _, shard in results], top_k)


def retrieve(
    documents: Texts, queries: Texts, top_k: int, language: str, model: MTEBModels
) -> NearestDocuments:
    """Search documents with a loaded model; raise PosirError if it is not an encoder."""
    from mteb.models import EncoderProtocol
    from mteb.timing import TimingStack

    from posir_tasks.models.dispatch import search_dense
    from posir_tasks.models.embeddings.context import build_context

    if not isinstance(model, EncoderProtocol):
        raise PosirError(
            f"{model.mteb_model_meta.name}: not an embedder. Choose a model that encodes texts."
        )
    hits = search_dense(
        model,
        _build_dataset(documents),
        _build_dataset(queries),
        build_context(language),
        top_k=min(top_k, len(documents)),
        timer=TimingStack(),
    )
    return [[hits.document_ids[row] for row in rows] for rows in hits.documents], hits.scores


def _build_dataset(rows: Texts) -> Dataset:
    from datasets import Dataset

    return Dataset.from_dict({"id": [row.id for row in rows], "text": [row.text for row in rows]})


def merge_shards(shards: Sequence[NearestDocuments], top_k: int) -> list[list[str]]:
    """Merge the nearest documents of each query over all shards; ties go to the earlier shard."""
    scores = np.concatenate([scores for _, scores in shards], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
    names = [list(chain(*lists)) for lists in zip(*(ids for ids, _ in shards), strict=True)]
    return [[row[column] for column in columns] for row, columns in zip(names, order, strict=True)]


def score_pairs(pairs: Sequence[Pair], language: str, model: MTEBModels) -> Scores:
    """Score pairs with a loaded model."""
    return build_scorer(model, [question for question, _ in pairs], language)(pairs)


@dataclass(frozen=True)
class Reranker:
    """A reranker, in this process or on a cluster, that caches scores in the build's log."""

    reranker: ModelReranker
    log: CallLog
    start_engine: StartEngine | None = None

    @property
    def name(self) -> str:
        """The model's name, with the revision if set."""
        return self.reranker.name

    def score_batches(self, batches: Sequence[Sequence[Pair]]) -> Iterator[tuple[int, Scores]]:
        """Yield each batch's index and scores as it completes; raise PosirError if a job fails or a
        score is out of range.
        """
        reranker = self.reranker
        if self.start_engine is None:
            yield from reranker.score_batches(batches)
            return
        calls = [partial(score_pairs, batch, reranker.language) for batch in batches]
        for number, scores in run_on_cluster(reranker.reference, "pairs", calls, self.start_engine):
            yield number, to_probabilities(scores, self.name, logits=reranker.logits)

    def score(self, pairs: Sequence[Pair]) -> Scores:
        """Score pairs, shape (n,); a better answer scores higher. New scores are saved after each
        batch.
        """
        keys = [digest(self.name, *pair, size=16) for pair in pairs]
        by_key = dict(zip(keys, pairs, strict=True))
        scores = self.log.find_scores(list(by_key))
        missing = {key: pair for key, pair in by_key.items() if key not in scores}
        batches = batch_by_text(missing)
        texts = [[missing[key] for key in batch] for batch in batches]
        with track(f"Rerank with {self.name}", len(missing)) as advance:
            for number, values in self.score_batches(texts):
                batch_scores = dict(zip(batches[number], values.tolist(), strict=True))
                self.log.add_scores(batch_scores)
                scores |= batch_scores
                advance(len(batch_scores))
        return np.array([scores[key] for key in keys], np.float64)


def batch_by_text(pairs: Mapping[bytes, Pair]) -> list[list[bytes]]:
    """Group the keys of pairs into batches of at least `BATCH` pairs (fewer in the last batch);
    all pairs with the same text are in one batch.

    Texts are sorted by length, since a batch takes as long as its longest text.
    """

    def find_text(key: bytes) -> tuple[int, str]:
        text = pairs[key][1]
        return len(text), text

    batches: list[list[bytes]] = []
    for _, keys in groupby(sorted(pairs, key=find_text), find_text):
        if not batches or len(batches[-1]) >= BATCH:
            batches.append([])
        batches[-1] += keys
    return batches
