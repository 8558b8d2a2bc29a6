"""Encoders that read a known part of a text, for probes of unknown models."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from mteb.models import ModelMeta

from posir_probe.controls import DIMENSIONS as WORD_DIMENSIONS
from posir_probe.controls import WORD, make_word_vector
from posir_probe.data import ProbeData, ProbeQuestion
from posir_tasks.text.spans import Span

DIMENSIONS = 512
#: Words that `first_words` reads.
WINDOW = 128


@dataclass(frozen=True)
class WordMean:
    """An embedder that averages word vectors with weights."""

    weights: Callable[[int], Any]
    """Maps the number of words n to their weights, shape (n,)."""

    def __call__(self, texts: Sequence[str], prompt_type: Any = None) -> Any:  # noqa: ARG002
        vectors = np.zeros((len(texts), WORD_DIMENSIONS))
        for row, words in enumerate(map(WORD.findall, texts)):
            if words:
                word_vectors = np.array([make_word_vector(word) for word in words])
                vectors[row] = self.weights(len(words)) @ word_vectors / len(words)
        return vectors.astype(np.float32)


first_words = WordMean(lambda words: (np.arange(words) < WINDOW).astype(np.float64))
#: Weights that fall exponentially from the first word to the last: to exp(-3).
decaying = WordMean(lambda words: np.exp(-3.0 * np.arange(words) / words))


class FirstWords:
    """Counts a text's first words, or characters, by hash; one of mteb's encoders, and an `Encoder`
    of the probes.
    """

    def __init__(
        self, words: int | None = None, characters: int | None = None, noise: float = 0.0
    ) -> None:
        self.words, self.characters, self.noise = words, characters, noise
        self.encoded: list[str] = []
        self.mteb_model_meta = ModelMeta.create_empty({"name": "test/first-words", "revision": "1"})
        self.rng = np.random.default_rng(0)

    def __call__(self, texts: Sequence[str], prompt_type: Any = None) -> Any:  # noqa: ARG002
        self.encoded += texts
        vectors = np.zeros((len(texts), DIMENSIONS), np.float32)
        for row, text in enumerate(texts):
            for word in text[: self.characters].casefold().split()[: self.words]:
                vectors[row, zlib.crc32(word.strip(".,").encode()) % DIMENSIONS] += 1
        return vectors * (1 + self.noise * self.rng.standard_normal(vectors.shape)).astype(
            np.float32
        )

    def encode(self, inputs: Any, *, prompt_type: Any = None, **_: Any) -> Any:
        return self([text for batch in inputs for text in batch["text"]], prompt_type)

    def similarity(self, first: Any, other: Any) -> Any:
        return (
            torch.nn.functional.normalize(torch.as_tensor(first))
            @ torch.nn.functional.normalize(torch.as_tensor(other)).T
        )

    def similarity_pairwise(self, first: Any, other: Any) -> Any:
        return torch.cosine_similarity(torch.as_tensor(first), torch.as_tensor(other))


def keep_last(number: int) -> Callable[[list[str]], list[str]]:
    """Return a function that keeps the last words of a text."""
    return lambda words: words[-number:]


def keep_ends(first: int, last: int) -> Callable[[list[str]], list[str]]:
    """Return a function that keeps the first and the last words of a text."""
    return lambda words: words if len(words) <= first + last else words[:first] + words[-last:]


def keep_samples(number: int, size: int) -> Callable[[list[str]], list[str]]:
    """Return a function that keeps so many pieces of a text at equal distances."""

    def keep(words: list[str]) -> list[str]:
        starts = np.linspace(0, len(words) - size, number).astype(int)
        return (
            words
            if len(words) <= number * size
            else [word for start in starts for word in words[start : start + size]]
        )

    return keep


class KeepsPart(FirstWords):
    """Reads the words of a text that a function keeps."""

    def __init__(self, keep: Callable[[list[str]], list[str]], noise: float = 0.0) -> None:
        super().__init__(noise=noise)
        self.keep, self.requests = keep, 0

    def __call__(self, texts: Sequence[str], prompt_type: Any = None) -> Any:
        self.requests += 1
        return super().__call__([" ".join(self.keep(text.split())) for text in texts], prompt_type)


class RefusesLong(FirstWords):
    """Raises an error for texts of more than so many words."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def __call__(self, texts: Sequence[str], prompt_type: Any = None) -> Any:
        if max(len(text.split()) for text in texts) > self.most:
            raise ValueError(f"at most {self.most} words")
        return super().__call__(texts, prompt_type)


def invent_texts(number: int, sentences: int, seed: int = 0) -> list[str]:
    """Return texts of distinct sentences of 12 invented words each."""
    rng = np.random.default_rng(seed)
    syllables = [
        "ba",
        "do",
        "fe",
        "gi",
        "ku",
        "la",
        "me",
        "no",
        "pi",
        "ru",
        "sa",
        "to",
        "vu",
        "wi",
        "zo",
    ]
    words = np.array(["".join(rng.choice(syllables, rng.integers(1, 6))) for _ in range(2000)])
    return [
        " ".join(" ".join(rng.choice(words, 12)).capitalize() + "." for _ in range(sentences))
        for _ in range(number)
    ]


def invent_questions(number: int) -> ProbeData:
    """Return texts of eight sentences with a question about one, whose words other sentences
    share.
    """
    documents, questions = {}, []
    for row, text in enumerate(invent_texts(number, 8)):
        sentences = text.rstrip(".").split(". ")
        evidence = sentences[row % 8] + "."
        asked = " ".join(evidence.split()[2:5])
        sentences[(row + 3) % 8] += f" {asked.rstrip('.')}"
        joined = ". ".join(sentences) + "."
        span = Span(joined.index(evidence), joined.index(evidence) + len(evidence))
        documents[f"d{row}"] = joined
        questions.append(
            ProbeQuestion(f"{asked} {sentences[(row + 5) % 8].split()[4]}", f"d{row}", span)
        )
    return ProbeData(documents, tuple(questions))
