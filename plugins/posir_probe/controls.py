"""A control embedder with known probe results: the mean of fixed word vectors."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
def make_word_vector(word: str) -> Floats:
    """Sample a word's vector, shape (DIMENSIONS,), with the word as seed."""
    return np.random.default_rng(int.from_bytes(digest(word))).standard_normal(DIMENSIONS)


def order_blind(
    texts: Sequence[str],
    prompt_type: PromptType = PromptType.document,  # noqa: ARG001
) -> Vectors:
    """Embed n texts as the means of their word vectors, shape (n, DIMENSIONS).

    Texts without words have a zero vector.
    """
    vectors = np.zeros((len(texts), DIMENSIONS), np.float32)
    for row, words in enumerate(map(WORD.findall, texts)):
        if words:
            vectors[row] = np.mean([make_word_vector(word) for word in words], axis=0)
    return vectors
