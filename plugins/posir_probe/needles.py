"""Needles: a sentence of each document, a question about it in other words, and sentences that are nearly its meaning.

The writer is an embedder, named with `--question-writer` (`posir_inspect.other_words`): near-misses are the sentences of the
other documents whose vectors have the largest cosine with that of the needle, and the question has no word of the needle, of
its document or of the near-misses. With `--llm`, a language model asks instead.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from posir_inspect.asked_language_model import open_writer
from posir_inspect.other_words import EmbedderWriter, WritingRequest, build_vocabulary
from posir_inspect.pseudo_questions import MAX_WORDS, MIN_WORDS, normalize
from posir_probe.probe import Needle, ProbeData
from posir_tasks.embeddings.encoding import ModelEncoder, Vectors
from posir_tasks.text.language_detection import detect_language
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.words import find_terms

#: Near-misses of a needle: one that is put in its place, and one for each other place.
NEAR_MISSES = 5
#: Fewest other sentences of a document.
FEWEST_SENTENCES = 4
#: Needles whose cosines with all sentences are in memory at a time.
BLOCK = 64
SEED = 14


@dataclass(frozen=True)
class NeedleWriter:
    """Draws needles, and has questions about them written."""

    encoder: ModelEncoder
    """Chooses near-misses, and the words of questions unless a language model asks."""
    llm: str | None = None
    """A language model, `MODEL` or `MODEL@ADDRESS`."""

    @property
    def name(self) -> str:
        """The models by which results of other writers are told apart."""
        return " and ".join(filter(None, (str(self.encoder.model.mteb_model_meta.name), self.llm)))

    def write(self, data: ProbeData) -> ProbeData:
        """Return data with a needle in each document that has a suitable sentence and question."""
        texts = list(data.documents.values())
        embedder = EmbedderWriter(self.name, self.encoder, build_vocabulary([*texts, *data.distractors.values()]))
        drawn = [(name, needle) for name, text in data.documents.items() if (needle := draw_needle(name, text))]
        if not drawn:
            return data
        near = find_near_misses(embedder, texts, [needle for _, needle in drawn])
        requests = [
            WritingRequest(needle.sentence, (data.documents[name], *misses), needle.language)
            for (name, needle), misses in zip(drawn, near, strict=True)
        ]
        questions = (open_writer(self.llm, texts) if self.llm else embedder).write(requests)
        needles = tuple(
            Needle(name, question, needle.sentence, needle.rest, misses)
            for (name, needle), question, misses in zip(drawn, questions, near, strict=True)
            if question and len(misses) == NEAR_MISSES
        )
        return replace(data, needles=needles)


@dataclass(frozen=True)
class DrawnNeedle:
    """A sentence of a document."""

    sentence: str
    rest: tuple[str, ...]
    """The document's other sentences."""
    language: str


def draw_needle(name: str, text: str) -> DrawnNeedle | None:
    """Return a random sentence of 5 to 80 words, with a seed; None if there is none, or fewer than four other sentences."""
    language = detect_language(text)[0] if text.strip() else ""
    sentences = [span.of(text) for span in find_sentences(text, language)] if language else []
    suitable = [row for row, sentence in enumerate(sentences) if is_suitable(sentence)]
    if len(sentences) <= FEWEST_SENTENCES or not suitable:
        return None
    row = random.Random(f"{SEED} {name}").choice(suitable)
    return DrawnNeedle(sentences[row], (*sentences[:row], *sentences[row + 1 :]), language)


def is_suitable(sentence: str) -> bool:
    """Return whether a sentence has the words of a needle or a near-miss."""
    return MIN_WORDS <= len(find_terms(sentence)) <= MAX_WORDS


def find_near_misses(embedder: EmbedderWriter, texts: Sequence[str], needles: Sequence[DrawnNeedle]) -> list[tuple[str, ...]]:
    """Return the sentences that are the most similar to each needle and in no document with it, the most similar first.

    Args:
        embedder: Embeds the sentences.
        texts: All documents.
        needles: Of some of them.
    """
    pool: dict[str, str] = {}
    for text in texts:
        for span in find_sentences(text, detect_language(text)[0]) if text.strip() else ():
            if is_suitable(span.of(text)):
                pool.setdefault(normalize(span.of(text)), span.of(text))
    sentences = list(pool.values())
    if not sentences:
        return [()] * len(needles)
    vectors = embedder.embed(sentences)
    targets = embedder.embed([needle.sentence for needle in needles])
    near = []
    for needle, order in zip(needles, order_by_cosine(targets, vectors), strict=True):
        own = {normalize(sentence) for sentence in (needle.sentence, *needle.rest)}
        others = (sentences[row] for row in order if normalize(sentences[row]) not in own)
        near.append(tuple(sentence for sentence, _ in zip(others, range(NEAR_MISSES), strict=False)))
    return near


def order_by_cosine(targets: Vectors, vectors: Vectors) -> Iterator[list[int]]:
    """Yield the rows of unit vectors, shape (n, dimensions), for each target, those with the largest cosine first."""
    for start in range(0, len(targets), BLOCK):
        for cosines in targets[start : start + BLOCK] @ vectors.T:
            yield np.argsort(-cosines, kind="stable").tolist()
