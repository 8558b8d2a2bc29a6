"""Rerankers and recall, whose scores are kept in the log of a build: in this process, or as jobs of `posir run`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

import numpy as np
from datasets import Dataset
from mteb.models import EncoderProtocol
from mteb.timing import TimingStack
from numpy.typing import NDArray

from posir_run.dispatch import Dispatcher, Engine
from posir_run.jobs import Failed, Job, JobOutcome
from posir_tasks.digests import digest
from posir_tasks.display.progress import track
from posir_tasks.embeddings.cached_encoder import with_cache
from posir_tasks.errors import PosirError
from posir_tasks.language_models.call_log import CallLog
from posir_tasks.models.references import ModelReference, portable_name
from posir_tasks.models.registry import find_model, load_model
from posir_tasks.models.rerankers import (
    BatchReranker,
    Pair,
    Scores,
    build_context,
    build_scorer,
    format_model_name,
    to_probabilities,
)
from posir_tasks.search.dense import search_dense

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels
    from mteb.types import EncodeKwargs

    pass


class IdentifiedText(Protocol):
    """A text with an id, such as a document or a question."""

    @property
    def id(self) -> str:
        """Unique among the texts."""

    @property
    def text(self) -> str:
        """The text."""


class Recall(Protocol):
    """Finds texts near to other texts."""

    @property
    def name(self) -> str:
        """The embedder."""

    def find(self, documents: Sequence[IdentifiedText], queries: Sequence[IdentifiedText], top_k: int) -> list[list[str]]:
        """Return the ids of the documents that are nearest to each query, at most `top_k`, the nearest first."""


@dataclass(frozen=True)
class Recalled:
    """The documents that are nearest to each query among some documents."""

    ids: list[list[str]]
    """Ids of the nearest documents of each query, the nearest first."""
    scores: NDArray[np.float32]
    """Similarities, shape (queries, documents per query)."""


@dataclass
class EmbedderRecall:
    """An embedder that mteb loads, when it is first needed."""

    model: ModelReference
    language: str
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = str(find_model(self.model).name)

    def find(self, documents: Sequence[IdentifiedText], queries: Sequence[IdentifiedText], top_k: int) -> list[list[str]]:
        """Return the ids of the nearest documents of each query.

        Raises:
            PosirError: The model is not an encoder.
        """
        return recall_with_model(with_cache(load_model(self.model)), documents, queries, top_k, self.language).ids


def recall_with_model(
    model: MTEBModels, documents: Sequence[IdentifiedText], queries: Sequence[IdentifiedText], top_k: int, language: str
) -> Recalled:
    """Search documents with a loaded model.

    Raises:
        PosirError: The model is not an encoder.
    """
    if not isinstance(model, EncoderProtocol):
        name = model.mteb_model_meta.name
        raise PosirError(f"{name}: not an embedder. Choose a model that encodes texts.")
    corpus, asked = (
        Dataset.from_dict({"id": [row.id for row in rows], "text": [row.text for row in rows]}) for rows in (documents, queries)
    )
    context = build_context(language)
    hits = search_dense(model, corpus, asked, context, top_k=min(top_k, len(documents)), timer=TimingStack())
    return Recalled([[hits.document_ids[row] for row in rows] for rows in hits.documents], hits.scores)


def merge_recalled(parts: Sequence[Recalled], top_k: int) -> list[list[str]]:
    """Return the ids of the nearest documents of each query over all parts of a corpus; ties go to the earlier part."""
    scores = np.concatenate([part.scores for part in parts], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :top_k]
    ids = [[name for part in parts for name in part.ids[row]] for row in range(len(scores))]
    return [[names[column] for column in columns] for names, columns in zip(ids, order, strict=True)]


logger = logging.getLogger(__name__)

StartEngine = Callable[[], Engine]

#: Documents per job of recall. Each job encodes all questions, too.
DOCUMENTS_PER_JOB = 5_000


@dataclass(frozen=True)
class RerankJob:
    """Pairs to be scored."""

    model: ModelReference
    number: int
    pairs: Sequence[Pair] = field(compare=False)
    language: str
    corpus: str = ""

    def __str__(self) -> str:
        return f"{self.model.name} · pairs {self.number}"

    def run(self, model: MTEBModels, encode_kwargs: EncodeKwargs) -> Scored:  # noqa: ARG002
        """Score the pairs."""
        score = build_scorer(with_cache(model), [question for question, _ in self.pairs], self.language)
        return Scored(replace(self, pairs=()), score(self.pairs))


@dataclass(frozen=True)
class Scored(JobOutcome):
    """The scores of a job, shape (pairs,)."""

    job: RerankJob
    scores: Scores


@dataclass(frozen=True)
class RecallJob:
    """Documents among which the nearest ones of each query are to be found."""

    model: ModelReference
    number: int
    documents: Sequence[IdentifiedText] = field(compare=False)
    queries: Sequence[IdentifiedText] = field(compare=False)
    top_k: int
    language: str
    corpus: str = ""

    def __str__(self) -> str:
        return f"{self.model.name} · documents {self.number}"

    def run(self, model: MTEBModels, encode_kwargs: EncodeKwargs) -> Found:  # noqa: ARG002
        """Search the documents."""
        recalled = recall_with_model(with_cache(model), self.documents, self.queries, self.top_k, self.language)
        return Found(replace(self, documents=(), queries=()), recalled)


@dataclass(frozen=True)
class Found(JobOutcome):
    """The documents that a job has found."""

    job: RecallJob
    recalled: Recalled


def run_jobs(jobs: Sequence[Job], start_engine: StartEngine) -> Iterator[JobOutcome]:
    """Yield the outcome of each job as it comes.

    Raises:
        PosirError: A job failed, or no worker can be started.
    """
    with closing(Dispatcher(jobs, start_engine()).outcomes()) as outcomes:
        for outcome in outcomes:
            for warning in outcome.warnings:
                logger.warning("%s", warning)
            if isinstance(outcome, Failed):
                raise PosirError(f"{outcome.job}: {outcome.reason} Scores so far are saved; run the same command again.")
            yield outcome


@dataclass
class ClusterReranker:
    """A reranker whose batches are jobs."""

    reference: ModelReference
    language: str
    start_engine: StartEngine
    logits: bool = False
    """The same as of a `ModelReranker`."""
    name: str = field(init=False)

    def __post_init__(self) -> None:
        meta = find_model(self.reference)
        self.name = format_model_name(meta)
        self._model = ModelReference(portable_name(meta), self.reference.revision)

    def score_batches(self, batches: Sequence[Sequence[Pair]]) -> Iterator[tuple[int, Scores]]:
        """Yield the index of each batch with its scores, in the order in which they come.

        Raises:
            PosirError: A job failed, or scores are NaN or not on the scale.
        """
        jobs = [RerankJob(self._model, number, batch, self.language) for number, batch in enumerate(batches)]
        for outcome in run_jobs(jobs, self.start_engine) if jobs else ():
            assert isinstance(outcome, Scored)
            yield outcome.job.number, to_probabilities(outcome.scores, self.name, logits=self.logits)


@dataclass
class ClusterRecall:
    """An embedder whose shares of the corpus are jobs."""

    model: ModelReference
    language: str
    start_engine: StartEngine
    name: str = field(init=False)

    def __post_init__(self) -> None:
        meta = find_model(self.model)
        self.name = str(meta.name)
        self._model = ModelReference(portable_name(meta), self.model.revision)

    def find(self, documents: Sequence[IdentifiedText], queries: Sequence[IdentifiedText], top_k: int) -> list[list[str]]:
        """Return the ids of the nearest documents of each query.

        Raises:
            PosirError: The model is not an encoder, or a job failed.
        """
        shares = [documents[start : start + DOCUMENTS_PER_JOB] for start in range(0, len(documents), DOCUMENTS_PER_JOB)]
        jobs = [RecallJob(self._model, number, share, queries, top_k, self.language) for number, share in enumerate(shares)]
        recalled: dict[int, Recalled] = {}
        for outcome in run_jobs(jobs, self.start_engine):
            assert isinstance(outcome, Found)
            recalled[outcome.job.number] = outcome.recalled
        return merge_recalled([recalled[number] for number in range(len(jobs))], top_k)


#: Pairs scored before their scores are saved; more if a batch would divide those of one text.
BATCH = 512


class Reranker(Protocol):
    """Scores how well texts answer questions."""

    @property
    def name(self) -> str:
        """The model, with its revision if there is one."""

    def score(self, pairs: Sequence[Pair]) -> Scores:
        """Return a finite score for each pair of question and text, shape (n,); a higher score is a better answer."""


@dataclass(frozen=True)
class LoggedReranker:
    """A reranker that scores no pair twice in a build."""

    reranker: BatchReranker
    log: CallLog

    @property
    def name(self) -> str:
        """The model."""
        return self.reranker.name

    def score(self, pairs: Sequence[Pair]) -> Scores:
        """Return the scores, shape (n,); new ones are saved batch by batch."""
        keys = [self._key(pair) for pair in pairs]
        known = self.log.find_scores(list(dict.fromkeys(keys)))
        missing = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in known}
        with track(f"Rerank with {self.name}", len(missing)) as advance:
            batches = split_batches(missing)
            for number, scores in self.reranker.score_batches([[missing[key] for key in batch] for batch in batches]):
                scored = dict(zip(batches[number], scores.tolist(), strict=True))
                self.log.add_scores(scored)
                known |= scored
                for _ in scored:
                    advance()
        return np.array([known[key] for key in keys], np.float64)

    def _key(self, pair: Pair) -> bytes:
        return digest(self.name, *pair, size=16)


def split_batches(pairs: Mapping[bytes, Pair]) -> list[list[bytes]]:
    """Divide the keys of pairs into batches of at least `BATCH` pairs, except the last; all pairs of a text are in one batch.

    Long texts are together, since a batch takes as long as its longest text.
    """
    batches: list[list[bytes]] = []
    for _, same_text in groupby(sorted(pairs, key=lambda key: (len(pairs[key][1]), pairs[key][1])), lambda key: pairs[key][1]):
        if not batches or len(batches[-1]) >= BATCH:
            batches.append([])
        batches[-1] += same_text
    return batches
