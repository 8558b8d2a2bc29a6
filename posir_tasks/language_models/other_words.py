"""Questions about a sentence in other words: they share no word with the sentence or its text.

Verbatim questions and rare words are found by words alone. Here an embedder chooses words of the
user's own texts that are near the meaning of a sentence, or a language model asks about it, and the
words in common are checked. The definition is ours:

- The vocabulary is the words of three letters or more that at least two texts and at most a fifth
  of them have.
- Of these, words that share a stem with any word of the sentence's text are left out. Two words
  share a stem if their first four letters are equal, or, of words of three to five letters, the
  first three: `find_stems`.
- Of the rest, `WORDS` words are chosen one by one, so that the sum of their unit vectors, each word
  embedded alone, has the largest cosine with the vector of the sentence (orthogonal matching
  pursuit without its projection).

The questions are near their sentence in the space of the embedder that chose them, so they favor
this embedder, and they favor whatever is short, as its vector is near the vector of a sentence.
Words of a script without spaces are not known here: only a language model asks in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from mteb.types import PromptType

from posir_tasks.base.arrays import Integers
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import cache_folder
from posir_tasks.base.progress import track
from posir_tasks.base.settings_file import load_settings
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.language_models.call_log import CallLog
from posir_tasks.language_models.chat_client import (
    MAX_QUESTION_CHARACTERS,
    REFUSAL,
    AnswerFault,
    ModelAnswer,
    UnusableAnswerError,
    load_prompt,
)
from posir_tasks.language_models.settings import LanguageModelSettings
from posir_tasks.models.embeddings.encoding import (
    Encoder,
    Vectors,
    encode_distinct,
    unit_vectors,
)
from posir_tasks.text.languages import detect_other_language
from posir_tasks.text.words import find_terms, is_unspaced

#: Minimum and maximum number of words of a sentence to ask about: fewer are headings, more are
#: lists or tables.
MIN_WORDS = 5
MAX_WORDS = 80
#: Words of a question that an embedder writes.
WORDS = 8
#: Letters of a stem, and those of a stem of a word of at most `SHORT` letters.
STEM = 4
SHORT_STEM = 3
SHORT = 5
#: A word is common if more than `FEW_TEXTS` texts and more than this share of them have it.
COMMON_SHARE = 0.2
FEW_TEXTS = 2
#: Maximum number of words of the vocabulary.
MAX_VOCABULARY = 5_000
#: Between the parts of a term such as `well-known`.
JOINT = re.compile(r"['’\-]")
#: Attempts to get a question in other words.
ATTEMPTS = 2


@dataclass(frozen=True)
class WritingRequest:
    """A sentence that a question is to be about."""

    sentence: str
    avoided: tuple[str, ...]
    """Texts with which the question shares no word, such as the sentence's own."""
    language: str
    """Its code."""


def normalize(sentence: str) -> str:
    """Spell a sentence without differences in case and white space."""
    return " ".join(sentence.casefold().split())


def find_word_stems(word: str) -> frozenset[str]:
    """Find the stems of a word in lower case: its first four letters and, for a word of three to
    five letters, its first three.
    """
    stems = set()
    if len(word) < SHORT_STEM:
        stems.add(word)
    elif len(word) <= SHORT:
        # Marked as a stem of a short word: `the` is not a stem of `theory`.
        stems.add(f"{word[:SHORT_STEM]}*")
    if len(word) >= STEM:
        stems.add(word[:STEM])
    return frozenset(stems)


def find_stems(*texts: str) -> frozenset[str]:
    """Find the stems of all words of texts, and of the parts of words with a hyphen."""
    words: set[str] = set()
    for term in find_terms("\n".join(texts)):
        words.add(term)
        words.update(JOINT.split(term))
    words.discard("")
    return frozenset().union(*map(find_word_stems, words))


def count_texts(texts: Iterable[str]) -> Counter[str]:
    """Count the texts that have each word."""
    return Counter(word for text in texts for word in set(find_terms(text)))


def find_common_words(texts: Sequence[str]) -> frozenset[str]:
    """Find the words that more than a fifth of the texts have, and more than two."""
    limit = max(FEW_TEXTS, COMMON_SHARE * len(texts))
    return frozenset(word for word, count in count_texts(texts).items() if count > limit)


def build_vocabulary(texts: Sequence[str]) -> list[str]:
    """List the words for questions: neither common nor in a single text, those in the most texts
    first.
    """
    counts = count_texts(texts)
    candidates = counts.keys() - find_common_words(texts)
    suitable = [
        word
        for word in sorted(candidates)
        if counts[word] >= FEW_TEXTS
        and len(word) >= SHORT_STEM
        and word.isalpha()
        and not is_unspaced(word)
    ]
    return sorted(suitable, key=counts.__getitem__, reverse=True)[:MAX_VOCABULARY]


@dataclass(frozen=True)
class EmbedderWriter:
    """Writes questions of the words whose joint vector is nearest to that of the sentence."""

    name: str
    encoder: Encoder
    vocabulary: Sequence[str]
    words: int = WORDS

    @cached_property
    def _vectors(self) -> Vectors:
        """Unit vectors of the vocabulary, shape (words, dimensions)."""
        return unit_vectors(self.encoder(self.vocabulary, PromptType.document))

    def describe_answers(self) -> str:
        """Describe nothing: it asks no language model."""
        return ""

    def embed(self, sentences: Sequence[str]) -> Vectors:
        """Embed sentences as unit vectors, shape (n, dimensions), each encoded once."""
        with track("Embedding sentences"):
            return unit_vectors(encode_distinct(self.encoder, sentences).select(sentences))

    def write(self, requests: Sequence[WritingRequest]) -> list[str | None]:
        """Write a question about each sentence; None if fewer than `words` words of the vocabulary
        can be used.
        """
        if not requests or len(self.vocabulary) < self.words:
            return [None] * len(requests)
        find_allowed = cache(self._find_allowed)
        questions: list[str | None] = []
        targets = self.embed([request.sentence for request in requests])
        for request, target in zip(requests, targets, strict=True):
            allowed = find_allowed(request.avoided)
            if len(allowed) < self.words or is_unspaced(request.sentence):
                questions.append(None)
                continue
            rows = allowed[choose_nearest(target, self._vectors[allowed], self.words)]
            questions.append(" ".join(self.vocabulary[row] for row in rows))
        return questions

    def _find_allowed(self, avoided: tuple[str, ...]) -> Integers:
        """Find the rows of the words that share no stem with any word of texts."""
        stems = find_stems(*avoided)
        is_allowed = [stems.isdisjoint(find_word_stems(word)) for word in self.vocabulary]
        return np.flatnonzero(is_allowed)


def choose_nearest(target: Vectors, vectors: Vectors, number: int) -> list[int]:
    """Choose rows of unit vectors, shape (n, dimensions), one by one, so that their sum is nearest
    to a target.
    """
    cosines = vectors @ target
    # Of the sum of the chosen vectors: its products with the others and the target, and its square.
    overlap = np.zeros(len(vectors))
    projection = 0.0
    squared = 0.0
    tiny = np.finfo(np.float32).tiny
    chosen: list[int] = []
    for _ in range(number):
        lengths = np.sqrt(np.maximum(squared + 2 * overlap + 1, tiny))
        nearness = (projection + cosines) / lengths
        nearness[chosen] = -np.inf
        row = int(nearness.argmax())
        chosen.append(row)
        projection += float(cosines[row])
        squared += float(2 * overlap[row]) + 1
        overlap += vectors @ vectors[row]
    return chosen


class OtherWordsQuestion(ModelAnswer):
    """A question that a sentence answers, in other words than the sentence's (ours)."""

    question: str


OTHER_WORDS = load_prompt("other_words", OtherWordsQuestion)


@dataclass(frozen=True)
class LanguageModelWriter:
    """Gets a question about each sentence from a language model."""

    model: LanguageModel
    common: frozenset[str]
    """Words that question and sentence may both have."""

    @property
    def name(self) -> str:
        """The language model."""
        return self.model.name

    def describe_answers(self) -> str:
        """Describe the answers that it got so far."""
        return self.model.describe_answers()

    def write(self, requests: Sequence[WritingRequest]) -> list[str | None]:
        """Ask for a question about each sentence; None if the last answer is none in the language
        of the sentence and without its content words, or is also that about another sentence.
        """

        def build(request: WritingRequest) -> dict[str, str]:
            return {"sentence": request.sentence, "language": request.language}

        def check(request: WritingRequest, answer: OtherWordsQuestion) -> None:
            question = answer.question
            if not find_terms(question):
                raise UnusableAnswerError("no question")
            if REFUSAL.match(question):
                raise UnusableAnswerError(AnswerFault.REFUSED)
            if len(question) > MAX_QUESTION_CHARACTERS:
                raise UnusableAnswerError("question too long")
            shared = find_shared(question, request.sentence, self.common)
            if shared:
                raise UnusableAnswerError("words of the sentence", ", ".join(shared))
            other = detect_other_language(question, request.language)
            # Names and technical words may look like another language in the sentence, too.
            if other not in (None, detect_other_language(request.sentence, request.language)):
                raise UnusableAnswerError("another language")

        replies = self.model.ask(OTHER_WORDS, requests, build, "Asking in other words", check)
        questions = [reply.answer.question.strip() if reply.answer else "" for reply in replies]
        # A question that the model asks about several sentences is about none of them.
        counts = Counter(map(normalize, questions))
        return [text if text and counts[normalize(text)] == 1 else None for text in questions]


def find_shared(question: str, sentence: str, common: frozenset[str]) -> list[str]:
    """Find the content words of a question that share a stem with a content word of a sentence."""
    stems = find_stems(" ".join(_find_content(sentence, common)))
    words = _find_content(question, common)
    return sorted(word for word in words if not stems.isdisjoint(find_stems(word)))


def _find_content(text: str, common: frozenset[str]) -> set[str]:
    """Find the words of a text that are neither common nor very short."""
    words = set(find_terms(text)) - common
    return {word for word in words if len(word) >= SHORT_STEM or not word.isalpha()}


QuestionWriter = EmbedderWriter | LanguageModelWriter


def open_writer(reference: str, texts: Sequence[str]) -> LanguageModelWriter:
    """Open a writer that asks a language model, `MODEL` or `MODEL@ADDRESS`, with the settings of
    `llm` in `posir build`.

    Its answers are saved in posir's cache folder, and are not asked for again. Words that are
    common in the texts may be in question and sentence. PosirError is raised if the reference is
    malformed.
    """
    model, _, address = reference.partition("@http")
    values: dict[str, Any] = {"model": model, "attempts": ATTEMPTS}
    if address:
        values["endpoints"] = [f"http{address}"]
    try:
        settings = load_settings(LanguageModelSettings, None, values)
    except PosirError as error:
        raise PosirError(
            f"--llm {reference}: {error}. Write MODEL, or MODEL@ADDRESS such as "
            "name@http://localhost:8000/v1."
        ) from None
    log = CallLog(cache_folder() / "other-words" / "calls.sqlite")
    return LanguageModelWriter(LanguageModel(settings, log), find_common_words(texts))
