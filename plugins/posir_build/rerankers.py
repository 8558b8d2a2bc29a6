"""Rerankers: any cross-encoder or encoder that mteb loads, with the scores of a build kept in its log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

import numpy as np
from mteb.models import CrossEncoderProtocol, EncoderProtocol
from mteb.types import PromptType
from numpy.typing import NDArray

from posir_build.call_log import CallLog
from posir_build.settings import RerankerSettings, Scale
from posir_tasks.digests import digest
from posir_tasks.display.progress import track
from posir_tasks.embeddings.cached_encoder import with_cache
from posir_tasks.embeddings.context import EncodingContext, build_texts
from posir_tasks.embeddings.encoding import DistinctEmbeddings
from posir_tasks.errors import PosirError
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import find_model, load_model
from posir_tasks.tasks.metadata import SPLIT, build_metadata

if TYPE_CHECKING:
    from mteb.models import ModelMeta
    from mteb.models.models_protocols import MTEBModels

logger = logging.getLogger(__name__)

Scores = NDArray[np.float64]
#: A question and a text.
Pair = tuple[str, str]

#: Pairs scored before their scores are saved; more if a batch would divide those of one text.
BATCH = 512


class Reranker(Protocol):
    """Scores how well texts answer questions."""

    @property
    def name(self) -> str:
        """The model, with its revision if there is one."""

    def score(self, pairs: Sequence[Pair]) -> Scores:
        """Return a finite score for each pair of question and text, shape (n,); a higher score is a better answer."""


class BatchReranker(Protocol):
    """Scores many batches of pairs."""

    @property
    def name(self) -> str:
        """The model, with its revision if there is one."""

    def score_batches(self, batches: Sequence[Sequence[Pair]]) -> Iterator[tuple[int, Scores]]:
        """Yield the index of each batch with its scores, shape (n,), in any order."""


def model_name(meta: ModelMeta) -> str:
    """Return a model's name with its revision, if there is one."""
    return f"{meta.name}@{meta.revision}" if meta.revision else str(meta.name)


def build_context(language: str) -> EncodingContext:
    """Return the task that mteb's models are told; models with instructions see a retrieval task."""
    metadata = build_metadata("posir-build", dataset="posir/build", revision="1", languages=[language])
    return EncodingContext(metadata, SPLIT, "default")


@dataclass
class ModelReranker:
    """A model that is loaded when it is first needed. An encoder scores by the similarity of its embeddings."""

    settings: RerankerSettings
    language: str
    name: str = field(init=False)
    _model: MTEBModels | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.name = model_name(find_model(ModelReference(self.settings.model, self.settings.revision)))

    def score_batches(self, batches: Sequence[Sequence[Pair]]) -> Iterator[tuple[int, Scores]]:
        """Yield the model's scores of each batch on the scale that the settings name.

        Raises:
            PosirError: The model neither reranks nor encodes, or scores are NaN or not on the scale.
        """
        if not batches:
            return
        if self._model is None:
            self._model = with_cache(load_model(ModelReference(self.settings.model, self.settings.revision)))
        score = build_scorer(self._model, [question for pairs in batches for question, _ in pairs], self.language)
        for number, pairs in enumerate(batches):
            yield number, to_scale(score(pairs), self.settings.scale, self.name)


def build_scorer(model: MTEBModels, questions: Iterable[str], language: str) -> Callable[[Sequence[Pair]], Scores]:
    """Return a function that scores pairs of these questions with a model, shape (n,).

    An encoder encodes each question once, now, and each text once per call.

    Raises:
        PosirError: The model neither reranks nor encodes.
    """
    context = build_context(language)
    if isinstance(model, EncoderProtocol):

        def encode(texts: Iterable[str], kind: PromptType) -> DistinctEmbeddings:
            return DistinctEmbeddings.encode(texts, lambda distinct: context.encode(model, build_texts(distinct), kind))

        asked = encode(questions, PromptType.query)

        def compare(pairs: Sequence[Pair]) -> Scores:
            texts = encode((text for _, text in pairs), PromptType.document)
            sides = asked.select(question for question, _ in pairs), texts.select(text for _, text in pairs)
            return np.asarray(model.similarity_pairwise(*sides), np.float64).reshape(-1)

        return compare
    if isinstance(model, CrossEncoderProtocol):

        def predict(pairs: Sequence[Pair]) -> Scores:
            queries, texts = (list(column) for column in zip(*pairs, strict=True))
            scores = model.predict(
                context.load(build_texts(queries), PromptType.query),
                context.load(build_texts(texts), PromptType.document),
                **context.task_arguments,
                **context.encode_kwargs,
            )
            return np.asarray(scores, np.float64).reshape(-1)

        return predict
    raise PosirError(f"{model.mteb_model_meta.name}: neither a cross-encoder nor an encoder. Choose another reranker.")


def to_scale(scores: Scores, scale: Scale, name: str) -> Scores:
    """Return scores in [0, 1].

    Raises:
        PosirError: A score is NaN, or outside the scale that is stated.
    """
    if np.isnan(scores).any():
        raise PosirError(f"{name}: the reranker returned NaN. Check the model, or choose another one.")
    if scale is Scale.LOGIT:
        return 1 / (1 + np.exp(-np.clip(scores, -500, 500)))
    if scores.size and (scores.min() < -1 or scores.max() > 1 + 1e-6):
        raise PosirError(
            f"{name}: scores from {scores.min():.3g} to {scores.max():.3g} are not probabilities. Write the reranker as "
            f"{{model: {name.partition('@')[0]}, scale: logit}}."
        )
    return scores


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
