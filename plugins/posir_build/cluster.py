"""Rerankers and recall, whose scores are kept in the log of a build: in this process, or as jobs of
`posir run`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset
from mteb.models import EncoderProtocol
from mteb.timing import TimingStack
from numpy.typing import NDArray

from posir_build.records import Document, Question
from posir_run.jobs import Dispatcher, Engine
from posir_tasks.base.digests import digest
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track
from posir_tasks.language_models.call_log import CallLog
from posir_tasks.models.dispatch import search_dense
from posir_tasks.models.embeddings.cached_encoder import with_cache
from posir_tasks.models.references import ModelReference, portable_name
from posir_tasks.models.registry import find_model, load_model
from posir_tasks.models.rerankers import (
    ModelReranker,
    Pair,
    Scores,
    build_context,
    build_scorer,
    to_probabilities,
)

if TYPE_CHECKING:
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
#: Pairs scored before their scores are saved; more if a batch would divide those of one text.
BATCH = 512


@dataclass(frozen=True)
class PartJob:
    """A part of a stage's work for one model."""

    model: ModelReference
    number: int
    unit: str
    work: Callable[[MTEBModels], Any] = field(compare=False)
    corpus: str = ""

    def __str__(self) -> str:
        return f"{self.model.name} · {self.unit} {self.number}"

    def run(self, model: MTEBModels, encode_kwargs: EncodeKwargs) -> Any:  # noqa: ARG002
        """Do the work."""
        return self.work(with_cache(model))


def run_parts(
    reference: ModelReference,
    unit: str,
    parts: Sequence[Callable[[MTEBModels], Any]],
    start_engine: StartEngine,
) -> Iterator[tuple[int, Any]]:
    """Yield index and value of each part as it is done on a cluster; PosirError if one fails, or no
    worker can be started.
    """
    if not parts:
        return
    model = ModelReference(portable_name(find_model(reference)), reference.revision)
    jobs = [PartJob(model, number, unit, part) for number, part in enumerate(parts)]
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


@dataclass
class Recall:
    """An embedder that finds the nearest texts; a cluster searches shares of the documents."""

    model: ModelReference
    language: str
    start_engine: StartEngine | None = None
    """None for this process, where the model is loaded when it is first needed."""

    def __post_init__(self) -> None:
        self.name = str(find_model(self.model).name)

    def find(self, documents: Texts, queries: Texts, top_k: int) -> list[list[str]]:
        """Return the ids of the at most `top_k` documents nearest to each query; PosirError if no
        encoder, or a job failed.
        """
        if self.start_engine is None:
            return recall(
                documents, queries, top_k, self.language, with_cache(load_model(self.model))
            )[0]
        shares = [
            documents[start : start + DOCUMENTS_PER_JOB]
            for start in range(0, len(documents), DOCUMENTS_PER_JOB)
        ]
        parts = [partial(recall, share, queries, top_k, self.language) for share in shares]
        recalled = dict(run_parts(self.model, "documents", parts, self.start_engine))
        return merge_recalled([recalled[number] for number in range(len(parts))], top_k)


def recall(
    documents: Texts, queries: Texts, top_k: int, language: str, model: MTEBModels
) -> Recalled:
    """Search documents with a loaded model; raise PosirError if it is not an encoder."""
    if not isinstance(model, EncoderProtocol):
        raise PosirError(
            f"{model.mteb_model_meta.name}: not an embedder. Choose a model that encodes texts."
        )
    corpus, asked = (
        Dataset.from_dict({"id": [row.id for row in rows], "text": [row.text for row in rows]})
        for rows in (documents, queries)
    )
    top_k = min(top_k, len(documents))
    hits = search_dense(
        model, corpus, asked, build_context(language), top_k=top_k, timer=TimingStack()
    )
    return [[hits.document_ids[row] for row in rows] for rows in hits.documents], hits.scores


def merge_recalled(parts: Sequence[Recalled], top_k: int) -> list[list[str]]:
    """Return the ids of the nearest documents of each query over all parts of a corpus; ties go to
    the earlier part.
    """
    scores = np.concatenate([part for _, part in parts], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
    names = [[name for ids, _ in parts for name in ids[row]] for row in range(len(scores))]
    return [[own[column] for column in columns] for own, columns in zip(names, order, strict=True)]


def score_pairs(pairs: Sequence[Pair], language: str, model: MTEBModels) -> Scores:
    """Return the scores of pairs by a loaded model."""
    return build_scorer(model, [question for question, _ in pairs], language)(pairs)


class Reranker:
    """A reranker, here or on a cluster, that scores no pair twice in a build; its name has the
    revision, if there is one.
    """

    def __init__(
        self, reranker: ModelReranker, log: CallLog, start_engine: StartEngine | None = None
    ) -> None:
        self.name, self._reranker, self._log, self._start_engine = (
            reranker.name,
            reranker,
            log,
            start_engine,
        )

    def score_batches(self, batches: Sequence[Sequence[Pair]]) -> Iterator[tuple[int, Scores]]:
        """Yield each batch's index and scores as they come; PosirError if a job failed, or scores
        are not on the scale.
        """
        reranker = self._reranker
        if self._start_engine is None:
            yield from reranker.score_batches(batches)
            return
        parts = [partial(score_pairs, batch, reranker.language) for batch in batches]
        for number, scores in run_parts(reranker.reference, "pairs", parts, self._start_engine):
            yield number, to_probabilities(scores, self.name, logits=reranker.logits)

    def score(self, pairs: Sequence[Pair]) -> Scores:
        """Return a finite score for each pair, shape (n,), higher for a better answer; new ones are
        saved batch by batch.
        """
        keys = [digest(self.name, *pair, size=16) for pair in pairs]
        known = self._log.find_scores(list(dict.fromkeys(keys)))
        missing = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in known}
        with track(f"Rerank with {self.name}", len(missing)) as advance:
            batches = split_batches(missing)
            for number, scores in self.score_batches(
                [[missing[key] for key in batch] for batch in batches]
            ):
                scored = dict(zip(batches[number], scores.tolist(), strict=True))
                self._log.add_scores(scored)
                known |= scored
                advance(len(scored))
        return np.array([known[key] for key in keys], np.float64)


def split_batches(pairs: Mapping[bytes, Pair]) -> list[list[bytes]]:
    """Divide the keys of pairs into batches of at least `BATCH` pairs, except the last; all pairs
    of a text are in one batch.

    Long texts are together, since a batch takes as long as its longest text.
    """
    batches: list[list[bytes]] = []
    for _, same_text in groupby(
        sorted(pairs, key=lambda key: (len(pairs[key][1]), pairs[key][1])),
        lambda key: pairs[key][1],
    ):
        if not batches or len(batches[-1]) >= BATCH:
            batches.append([])
        batches[-1] += same_text
    return batches
