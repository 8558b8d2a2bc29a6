"""Rerankers and recall, whose scores are kept in the log of a build: in this process, or as jobs of
`posir run`.
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
Texts = Sequence[Document] | Sequence[Question]
#: Ids of the documents nearest to each query, the nearest first, and their similarities, shape
#: (queries, documents).
Recalled = tuple[list[list[str]], NDArray[np.float32]]

#: Documents per job of recall. Each job encodes all questions, too.
DOCUMENTS_PER_JOB = 5_000
#: Minimum number of pairs that are scored before their scores are saved.
BATCH = 512


@dataclass(frozen=True)
class PartJob:
    """A part of a stage's work for one model."""

    model: ModelReference
    title: str
    work: Callable[[MTEBModels], Any] = field(compare=False)
    number: int
    corpus: str = ""

    def __str__(self) -> str:
        return f"{self.model.name} · {self.title} {self.number}"

    def run(self, model: MTEBModels, encode_kwargs: EncodeKwargs) -> Any:  # noqa: ARG002
        """Do the work."""
        from posir_tasks.models.embeddings.cached_encoder import with_cache

        return self.work(with_cache(model))


def run_parts(
    reference: ModelReference,
    title: str,
    parts: Sequence[Callable[[MTEBModels], Any]],
    start_engine: StartEngine,
) -> Iterator[tuple[int, Any]]:
    """Yield index and value of each part as it is done on a cluster; raise PosirError if one fails,
    or no worker can be started.
    """
    if not parts:
        return
    model = ModelReference(portable_name(find_model(reference)), reference.revision)
    jobs = [PartJob(model, title, part, number) for number, part in enumerate(parts)]
    with closing(Dispatcher(jobs, start_engine()).outcomes()) as outcomes:
        for job, outcome in outcomes:
            for warning in outcome.warnings:
                logger.warning("%s", warning)
            if outcome.failure:
                raise PosirError(
                    f"{job}: {outcome.failure} Scores so far are saved; run the same command again."
                )
            assert isinstance(job, PartJob)
            yield job.number, outcome.value


@dataclass(frozen=True)
class Recall:
    """An embedder that finds the nearest texts; a cluster searches shares of the documents."""

    model: ModelReference
    language: str
    start_engine: StartEngine | None = None
    """None for this process, where the model is loaded when it is first needed."""

    @cached_property
    def name(self) -> str:
        """Name of the embedder."""
        return str(find_model(self.model).name)

    def find(self, documents: Texts, queries: Texts, top_k: int) -> list[list[str]]:
        """Find the ids of the at most `top_k` documents nearest to each query; raise PosirError if
        the model is no encoder, or a job failed.
        """
        if self.start_engine is None:
            from posir_tasks.models.embeddings.cached_encoder import with_cache

            model = with_cache(load_model(self.model))
            return recall(documents, queries, top_k, self.language, model)[0]
        starts = range(0, len(documents), DOCUMENTS_PER_JOB)
        shares = [documents[start : start + DOCUMENTS_PER_JOB] for start in starts]
        parts = [partial(recall, share, queries, top_k, self.language) for share in shares]
        recalled = sorted(run_parts(self.model, "documents", parts, self.start_engine))
        return merge_recalled([part for _, part in recalled], top_k)


def recall(
    documents: Texts, queries: Texts, top_k: int, language: str, model: MTEBModels
) -> Recalled:
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


def merge_recalled(parts: Sequence[Recalled], top_k: int) -> list[list[str]]:
    """Find the nearest documents of each query over all parts of a corpus; ties go to the earlier
    part.
    """
    scores = np.concatenate([part for _, part in parts], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
    names = [list(chain(*lists)) for lists in zip(*(ids for ids, _ in parts), strict=True)]
    return [[row[column] for column in columns] for row, columns in zip(names, order, strict=True)]


def score_pairs(pairs: Sequence[Pair], language: str, model: MTEBModels) -> Scores:
    """Score pairs by a loaded model."""
    return build_scorer(model, [question for question, _ in pairs], language)(pairs)


@dataclass(frozen=True)
class Reranker:
    """A reranker, here or on a cluster, that scores no pair twice in a build."""

    reranker: ModelReranker
    log: CallLog
    start_engine: StartEngine | None = None

    @property
    def name(self) -> str:
        """The model, with its revision if there is one."""
        return self.reranker.name

    def score_batches(self, batches: Sequence[Sequence[Pair]]) -> Iterator[tuple[int, Scores]]:
        """Yield each batch's index and scores as they come; raise PosirError if a job failed, or
        scores are not on the scale.
        """
        reranker = self.reranker
        if self.start_engine is None:
            yield from reranker.score_batches(batches)
            return
        parts = [partial(score_pairs, batch, reranker.language) for batch in batches]
        for number, scores in run_parts(reranker.reference, "pairs", parts, self.start_engine):
            yield number, to_probabilities(scores, self.name, logits=reranker.logits)

    def score(self, pairs: Sequence[Pair]) -> Scores:
        """Score pairs, higher for a better answer, shape (n,); new scores are saved batch by
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
                scored = dict(zip(batches[number], values.tolist(), strict=True))
                self.log.add_scores(scored)
                scores |= scored
                advance(len(scored))
        return np.array([scores[key] for key in keys], np.float64)


def batch_by_text(pairs: Mapping[bytes, Pair]) -> list[list[bytes]]:
    """Divide the keys of pairs into batches of at least `BATCH` pairs, except the last; all pairs
    of a text are in one batch.

    Long texts are together, since a batch takes as long as its longest text.
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
