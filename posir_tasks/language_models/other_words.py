"""Paraphrased questions about a sentence, which share no words with the sentence or its text.

Lexical search finds verbatim questions and rare words. Here, an embedder combines words of the
user's texts that are close to the meaning of the sentence, or a language model writes a question,
which is checked for shared words. The method is our own:

- The vocabulary consists of words of at least three letters that occur in at least two texts and at
  most a fifth of the texts.
- Words that share a stem with a word of the sentence's text are excluded. Words share a stem if
  their first four letters are equal, or their first three letters for words of three to five
  letters: `find_stems`.
- `WORDS` words are added one by one to maximize the cosine of the sum of their unit vectors with
  the vector of the sentence (orthogonal matching pursuit without its projection).

These questions favor the embedder that chose them, and short texts, whose vectors are close to the
vectors of sentences. For scripts without spaces, only a language model can write questions.
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
from posir_tasks.base.files import get_cache_folder
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

#: Minimum and maximum words of a sentence. Shorter ones are headings, longer ones lists or tables.
MIN_WORDS = 5
MAX_WORDS = 80
#: Number of words in an embedder's question.
WORDS = 8
#: Number of letters of a stem, and of the stem of a word with at most `SHORT` letters.
STEM = 4
SHORT_STEM = 3
SHORT = 5
#: Words are common if they occur in more than this share of the texts and in more than `FEW_TEXTS`.
COMMON_SHARE = 0.2
FEW_TEXTS = 2
#: Maximum size of the vocabulary.
MAX_VOCABULARY = 5_000
#: Separator in terms such as `well-known`.
JOINT = re.compile(r"['’\-]")
#: Maximum number of attempts to get a valid question.
ATTEMPTS = 2


@dataclass(frozen=True)
class WritingRequest:
    """A request for a question about a sentence."""

    sentence: str
    avoided: tuple[str, ...]
    """Texts whose words the question must not use, such as the sentence's text."""
    language: str
    """Language code."""


def normalize(sentence: str) -> str:
    """Normalize case and white space."""
    return " ".join(sentence.casefold().split())


def find_word_stems(word: str) -> frozenset[str]:
    """Return the stems of a lowercase word: its first four letters and, for three to five letters,
    its first three letters.
    """
    stems = set()
    if len(word) < SHORT_STEM:
        stems.add(word)
    elif len(word) <= SHORT:
        # Marked as the stem of a short word, so that `the` does not match `theory`.
        stems.add(f"{word[:SHORT_STEM]}*")
    if len(word) >= STEM:
        stems.add(word[:STEM])
    return frozenset(stems)


def find_stems(*texts: str) -> frozenset[str]:
    """Return the stems of all words of texts, including parts of hyphenated words."""
    words: set[str] = set()
    for term in find_terms("\n".join(texts)):
        words.add(term)
        words.update(JOINT.split(term))
    words.discard("")
    return frozenset().union(*map(find_word_stems, words))


def count_texts(texts: Iterable[str]) -> Counter[str]:
    """Count the texts that contain each word."""
    return Counter(word for text in texts for word in set(find_terms(text)))


def find_common_words(texts: Sequence[str]) -> frozenset[str]:
    """Return words that occur in more than a fifth of the texts and in more than two."""
    limit = max(FEW_TEXTS, COMMON_SHARE * len(texts))
    return frozenset(word for word, count in count_texts(texts).items() if count > limit)


def build_vocabulary(texts: Sequence[str]) -> list[str]:
    """Return the words for questions, most frequent first: words that are not common but occur in
    at least two texts.
    """
    counts = count_texts(texts)
    candidates = counts.keys() - find_common_words(texts)
    vocabulary = [
        word
        for word in sorted(candidates)
        if counts[word] >= FEW_TEXTS
        and len(word) >= SHORT_STEM
        and word.isalpha()
        and not is_unspaced(word)
    ]
    return sorted(vocabulary, key=counts.__getitem__, reverse=True)[:MAX_VOCABULARY]


@dataclass(frozen=True)
class EmbedderWriter:
    """Writes questions from words whose summed vector is closest to the sentence."""

    name: str
    encoder: Encoder
    vocabulary: Sequence[str]
    words: int = WORDS

    @cached_property
    def _vectors(self) -> Vectors:
        """Unit vectors of the vocabulary, shape (words, dimensions)."""
        return unit_vectors(self.encoder(self.vocabulary, PromptType.document))

    def describe_answers(self) -> str:
        """Return an empty string, since no language model is used."""
        return ""

    def write(self, requests: Sequence[WritingRequest]) -> list[str | None]:
        """Write a question about each sentence, or None if fewer than `words` words are allowed."""
        if not requests or len(self.vocabulary) < self.words:
            return [None] * len(requests)
        find_allowed = cache(self._find_allowed)
        questions: list[str | None] = []
        sentences = [request.sentence for request in requests]
        with track("Embedding sentences"):
            targets = unit_vectors(encode_distinct(self.encoder, sentences).select(sentences))
        for request, target in zip(requests, targets, strict=True):
            allowed = find_allowed(request.avoided)
            if len(allowed) < self.words or is_unspaced(request.sentence):
                questions.append(None)
                continue
            rows = allowed[choose_nearest(target, self._vectors[allowed], self.words)]
            questions.append(" ".join(self.vocabulary[row] for row in rows))
        return questions

    def _find_allowed(self, avoided: tuple[str, ...]) -> Integers:
        stems = find_stems(*avoided)
        is_allowed = [stems.isdisjoint(find_word_stems(word)) for word in self.vocabulary]
        return np.flatnonzero(is_allowed)


def choose_nearest(target: Vectors, vectors: Vectors, count: int) -> list[int]:
    """Choose rows of unit vectors, shape (n, dimensions), greedily so that their sum is closest
    to a target.
    """
    products = vectors @ target
    total = np.zeros_like(target)
    rows: list[int] = []
    for _ in range(count):
        # Length of each sum with one more unit vector; vectors may cancel out.
        squares = total @ total + 2 * (vectors @ total) + 1
        lengths = np.sqrt(np.maximum(squares, np.finfo(np.float32).tiny))
        cosines = (total @ target + products) / lengths
        cosines[rows] = -np.inf
        row = int(cosines.argmax())
        rows.append(row)
        total = total + vectors[row]
    return rows


class OtherWordsQuestion(ModelAnswer):
    """A paraphrased question that a sentence answers (our own prompt)."""

    question: str


OTHER_WORDS = load_prompt("other_words", OtherWordsQuestion)


@dataclass(frozen=True)
class LanguageModelWriter:
    """Requests a question about each sentence from a language model."""

    model: LanguageModel
    common: frozenset[str]
    """Words that question and sentence may share."""

    @property
    def name(self) -> str:
        """Name of the language model."""
        return self.model.name

    def describe_answers(self) -> str:
        """Summarize the model's answers so far."""
        return self.model.describe_answers()

    def write(self, requests: Sequence[WritingRequest]) -> list[str | None]:
        """Request a question about each sentence.

        A question is None if all answers are in another language or share content words with the
        sentence, or if the model asks the same about another sentence.
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
                raise UnusableAnswerError(
                    "question repeats words of the sentence", ", ".join(shared)
                )
            other = detect_other_language(question, request.language)
            # Names and technical terms in the sentence may look like another language.
            if other not in (None, detect_other_language(request.sentence, request.language)):
                raise UnusableAnswerError("another language")

        replies = self.model.ask(
            OTHER_WORDS, requests, build, "Writing questions in other words", check
        )
        questions = [reply.answer.question.strip() if reply.answer else "" for _, reply in replies]
        # A question about several sentences is not specific to any of them.
        counts = Counter(map(normalize, questions))
        return [text if text and counts[normalize(text)] == 1 else None for text in questions]


def find_shared(question: str, sentence: str, common: frozenset[str]) -> list[str]:
    """Return the content words of a question that share a stem with a content word of a
    sentence.
    """
    stems = find_stems(" ".join(_find_content(sentence, common)))
    words = _find_content(question, common)
    return sorted(word for word in words if not stems.isdisjoint(find_stems(word)))


def _find_content(text: str, common: frozenset[str]) -> set[str]:
    words = set(find_terms(text)) - common
    return {word for word in words if len(word) >= SHORT_STEM or not word.isalpha()}


QuestionWriter = EmbedderWriter | LanguageModelWriter


def open_writer(reference: str, texts: Sequence[str]) -> LanguageModelWriter:
    """Create a writer with a language model, `MODEL` or `MODEL@ADDRESS`, and the default settings
    of `llm` in `posir build`.

    Answers are cached in posir's cache folder. Question and sentence may share common words of the
    texts.

    Raises:
        PosirError: The reference is malformed.
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
    log = CallLog(get_cache_folder() / "other-words" / "calls.sqlite")
    return LanguageModelWriter(LanguageModel(settings, log), find_common_words(texts))
