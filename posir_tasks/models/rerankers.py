"""Score question-text pairs with any cross-encoder or encoder in mteb."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from posir_tasks.base.arrays import Floats
from posir_tasks.base.errors import PosirError
from posir_tasks.models.references import ModelReference
from posir_tasks.models.registry import find_model, load_model

if TYPE_CHECKING:
    from mteb.models.models_protocols import MTEBModels
    from mteb.types import PromptType

    from posir_tasks.models.embeddings.distinct import DistinctEmbeddings

Scores = Floats
#: A question and a text.
Pair = tuple[str, str]
#: Number of decimals of a margin.
DECIMALS = 12


@dataclass
class ModelReranker:
    """A lazily loaded reranker. An encoder's score is the similarity of the embeddings."""

    reference: ModelReference
    language: str
    logits: bool = False
    """If true, scores are logits; otherwise they must be probabilities or cosines."""
    name: str = field(init=False)
    """The model as `NAME` or `NAME@REVISION`."""

    def __post_init__(self) -> None:
        meta = find_model(self.reference)
        self.name = f"{meta.name}@{meta.revision}" if meta.revision else str(meta.name)

    @cached_property
    def _model(self) -> MTEBModels:
        from posir_tasks.models.embeddings.cached_encoder import add_cache

        return add_cache(load_model(self.reference))

    def score_batches(self, batches: Sequence[Sequence[Pair]]) -> Iterator[tuple[int, Scores]]:
        """Yield the index of each batch and its scores: probabilities, or cosines of an encoder.

        Raises:
            PosirError: The model is neither a cross-encoder nor an encoder, or scores are NaN or
                outside their scale.
        """
        if not batches:
            return
        score = build_scorer(
            self._model, [question for pairs in batches for question, _ in pairs], self.language
        )
        for index, pairs in enumerate(batches):
            yield index, to_probabilities(score(pairs), self.name, logits=self.logits)


def build_scorer(
    model: MTEBModels, questions: Iterable[str], language: str
) -> Callable[[Sequence[Pair]], Scores]:
    """Build a function that scores pairs of these questions and any texts, shape (n,).

    Raises:
        PosirError: The model is neither a cross-encoder nor an encoder.
    """
    # Importing mteb takes seconds, and margins do not need it.
    from mteb.models import CrossEncoderProtocol, EncoderProtocol
    from mteb.types import PromptType

    from posir_tasks.models.embeddings.context import build_context, build_texts
    from posir_tasks.models.embeddings.distinct import DistinctEmbeddings

    context = build_context(language)
    if isinstance(model, EncoderProtocol):

        def encode(texts: Iterable[str], kind: PromptType) -> DistinctEmbeddings:
            return DistinctEmbeddings.encode(
                texts, lambda distinct: context.encode(model, build_texts(distinct), kind)
            )

        question_embeddings = encode(questions, PromptType.query)

        def score(queries: list[str], texts: list[str]) -> Any:
            embeddings = encode(texts, PromptType.document)
            return model.similarity_pairwise(
                question_embeddings.select(queries), embeddings.select(texts)
            )

    elif isinstance(model, CrossEncoderProtocol):

        def score(queries: list[str], texts: list[str]) -> Any:
            return model.predict(
                context.load(build_texts(queries), PromptType.query),
                context.load(build_texts(texts), PromptType.document),
                **context.task_arguments,
                **context.encode_kwargs,
            )

    else:
        raise PosirError(
            f"{model.mteb_model_meta.name}: neither a cross-encoder nor an encoder. Choose another "
            "reranker."
        )

    def score_pairs(pairs: Sequence[Pair]) -> Scores:
        queries, texts = map(list, zip(*pairs, strict=True))
        return np.asarray(score(queries, texts), np.float64).reshape(-1)

    return score_pairs


def to_probabilities(scores: Scores, name: str, *, logits: bool) -> Scores:
    """Convert logits to probabilities; return other scores unchanged. Raise PosirError if a score
    is NaN or, unless `logits` is true, outside [-1, 1].
    """
    if np.isnan(scores).any():
        raise PosirError(
            f"{name}: the reranker returned NaN. Check the model, or choose another one."
        )
    if logits:
        return 1 / (1 + np.exp(-np.clip(scores, -500, 500)))
    if scores.size and (scores.min() < -1 or scores.max() > 1 + 1e-6):
        raise PosirError(
            f"{name}: scores from {scores.min():.3g} to {scores.max():.3g} are not probabilities. "
            "Write the reranker as "
            f"{{model: {name.partition('@')[0]}, scale: logit}}."
        )
    return scores


def compute_margin(scores: Scores, target: int) -> float:
    """Return the margin of the target segment (Built-in or Learned, arXiv 2605.26578, section
    3.1.3).

    m = min over rerankers of [score of the target - highest score of another segment], rounded to
    remove floating-point errors. `scores` has shape (rerankers, segments); `target` is an index.
    """
    best_others = np.delete(scores, target, axis=1).max(axis=1)
    return round(float((scores[:, target] - best_others).min()), DECIMALS)
