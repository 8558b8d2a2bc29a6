"""Control embedders with known probe results: weighted means of fixed word vectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from mteb.types import PromptType

from posir_tasks.base.arrays import Floats
from posir_tasks.base.digests import digest
from posir_tasks.models.embeddings.encoding import Vectors

DIMENSIONS = 256
#: Punctuation has no vector, so that splitting sentences does not change their words.
WORD = re.compile(r"\w+")


@lru_cache(maxsize=100_000)
def word_vector(word: str) -> Floats:
    """Return the random vector of a word, shape (DIMENSIONS,), seeded with the word."""
    return np.random.default_rng(int.from_bytes(digest(word))).standard_normal(DIMENSIONS)


@dataclass(frozen=True)
class WordMean:
    """An embedder that averages word vectors with weights."""

    weights: Callable[[int], Floats]
    """Maps the number of words n to their weights, shape (n,)."""

    def __call__(
        self,
        texts: Sequence[str],
        prompt_type: PromptType = PromptType.document,  # noqa: ARG002
    ) -> Vectors:
        """Embed n texts, shape (n, DIMENSIONS); a text without words has a zero vector."""
        vectors = np.zeros((len(texts), DIMENSIONS))
        for row, words in enumerate(map(WORD.findall, texts)):
            if words:
                word_vectors = np.array([word_vector(word) for word in words])
                vectors[row] = self.weights(len(words)) @ word_vectors / len(words)
        return vectors.astype(np.float32)


#: The mean of all words.
order_blind = WordMean(np.ones)
