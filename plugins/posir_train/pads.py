"""PADS, position-aware data sampling (Bias Learning, OpenReview 4GD7a9Bo9A, section 5).

A sample of a text of n tokens is n/2 of them from a random start in its first half. Two samples of one text are a positive
pair, samples of two texts a negative one. The paper's loss is 1 - cos for the first and max(0, cos - margin) for the second.
The published code labels negatives 0, where torch's CosineEmbeddingLoss expects -1: their loss is then exactly 0, only
positives are trained on, and all texts become alike. Both are here, under names of their own.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from datasets import Dataset
from torch import Tensor

from posir_tasks.errors import PosirError
from posir_tasks.text.tokenizer import Tokenizer, TokenSpans
from posir_train.settings import Objective

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def build_pairs(texts: Sequence[str], tokenizer: Tokenizer, objective: Objective, seed: int) -> Dataset:
    """Return a positive and a negative pair for each text, as columns `first`, `second` and `label`.

    Negatives are the second samples of the next text, as in the published code.

    Raises:
        PosirError: There are fewer than two texts.
    """
    if len(texts) < 2:
        raise PosirError(f"objective {objective.value}: needs at least two different texts.")
    rng = random.Random(seed)
    samples = [
        [_sample(text, tokens, rng) for _ in range(2)] for text, tokens in zip(texts, tokenizer.find_tokens(texts), strict=True)
    ]
    positives = [(first, second, 1) for first, second in samples]
    negatives = [
        (first, other, objective.negative_label)
        for (first, _), (_, other) in zip(samples, [*samples[1:], samples[0]], strict=True)
    ]
    columns = zip(*[*positives, *negatives], strict=True)
    return Dataset.from_dict(dict(zip(("first", "second", "label"), map(list, columns), strict=True)))


def _sample(text: str, tokens: TokenSpans, rng: random.Random) -> str:
    count = len(tokens)
    if count < 2:
        return text
    start = int(count * rng.uniform(0, 0.5))
    return text[int(tokens[start][0]) : int(tokens[start + count // 2 - 1][1])]


class PadsLoss(torch.nn.Module):
    """torch's CosineEmbeddingLoss of the embeddings of two columns."""

    def __init__(self, model: SentenceTransformer, margin: float = 0.0) -> None:
        super().__init__()
        self.model = model
        self.loss = torch.nn.CosineEmbeddingLoss(margin=margin)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the mean loss of a batch of pairs with labels 1, -1 or 0."""
        first, second = (self.model(features)["sentence_embedding"] for features in sentence_features)
        loss: Tensor = self.loss(first, second, labels.to(first.dtype))
        return loss
