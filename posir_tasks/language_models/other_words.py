"""Write questions that share no words with the sentence that answers them.

Lexical search cannot find the sentence. A question is written by a language model and checked for
shared words, or composed of words from the user's texts that an embedding model considers close to
the sentence. The method with an embedding model is our own:

- The vocabulary consists of words of at least three letters that occur in at least two texts and at
  most a fifth of the texts.
- Words that share a stem with any word of the sentence's text are excluded. Two words share a stem
  if their first four letters are equal, or their first three letters if both have three to five
  letters (`find_stems`).
- `QUESTION_WORDS` words are added one by one, each to maximize the cosine between the sum of their
  unit vectors and the sentence's vector (orthogonal matching pursuit without the projection).

These questions favor the embedding model that wrote them, and short texts, whose vectors are close
to sentence vectors. For scripts without spaces, only a language model can write questions.
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
    normalize_vectors,
)
from posir_tasks.text.languages import detect_other_language
from posir_tasks.text.words import find_terms, is_unspaced

#: Minimum and maximum words per sentence, to exclude headings, lists and tables.
MIN_WORDS = 5
MAX_WORDS = 80
#: Number of words in a question by an embedding model.
QUESTION_WORDS = 8
#: Letters per stem, and letters per stem of words with at most `MAX_SHORT_WORD` letters.
STEM_LETTERS = 4
SHORT_STEM_LETTERS = 3
MAX_SHORT_WORD = 5
#: Words are common if they occur in more than this share of the texts, and in more than two texts.
COMMON_SHARE = 0.2
#: Minimum number of texts that contain a word of the vocabulary.
MIN_TEXTS = 2
#: Maximum size of the vocabulary.
MAX_VOCABULARY = 5_000
#: Separator within terms such as `well-known`.
TERM_SEPARATOR = re.compile(r"['’\-]")
#: Maximum number of requests per question.
ATTEMPTS = 2


@dataclass(frozen=True)
class WritingRequest:
    """A request for a question about a sentence."""

    sentence: str
    excluded_texts: tuple[str, ...]
    """Texts whose words the question must not contain, such as the sentence's text."""
    language: str
    """Language code."""


def normalize(sentence: str) -> str:
    """Convert to lower case and collapse white space."""
    return " ".join(sentence.casefold().split())


def find_word_stems(word: str) -> frozenset[str]:
    """Return the stems of a lowercase word: the first four letters and, for words of three to five
    letters, the first three letters.
    """
    stems = set()
    if len(word) < SHORT_STEM_LETTERS:
        stems.add(word)
    elif len(word) <= MAX_SHORT_WORD:
        # The asterisk marks short words, so that `the` does not match `theory`.
        stems.add(f"{word[:SHORT_STEM_LETTERS]}*")
    if len(word) >= STEM_LETTERS:
        stems.add(word[:STEM_LETTERS])
    return frozenset(stems)


def find_stems(*texts: str) -> frozenset[str]:
    """Return the stems of all words in texts, including the parts of hyphenated words."""
    words: set[str] = set()
    for term in find_terms("\n".join(texts)):
        words.add(term)
        words.update(TERM_SEPARATOR.split(term))
    words.discard("")
    return frozenset().union(*map(find_word_stems, words))


def count_texts_by_word(texts: Iterable[str]) -> Counter[str]:
    """Count the texts that contain each word."""
    return Counter(word for text in texts for word in set(find_terms(text)))


def find_common_words(texts: Sequence[str]) -> frozenset[str]:
    """Return the words that occur in more than a fifth of the texts and in more than two texts."""
    limit = max(MIN_TEXTS, COMMON_SHARE * len(texts))
    return frozenset(word for word, count in count_texts_by_word(texts).items() if count > limit)


def build_vocabulary(texts: Sequence[str]) -> list[str]:
    """Return the words to write questions with, most frequent first: words that occur in at least
    two texts and are not common.
    """
    counts = count_texts_by_word(texts)
    candidates = counts.keys() - find_common_words(texts)
    vocabulary = [
        word
        for word in sorted(candidates)
        if counts[word] >= MIN_TEXTS
        and len(word) >= SHORT_STEM_LETTERS
        and word.isalpha()
        and not is_unspaced(word)
    ]
    return sorted(vocabulary, key=counts.__getitem__, reverse=True)[:MAX_VOCABULARY]


@dataclass(frozen=True)
class EmbedderWriter:
    """Writes questions with an embedding model, from words whose sum is closest to the sentence."""

    name: str
    encoder: Encoder
    vocabulary: Sequence[str]
    words: int = QUESTION_WORDS

    @cached_property
    def _vectors(self) -> Vectors:
        """Unit vectors of the vocabulary, shape (words, dimensions)."""
        return normalize_vectors(self.encoder(self.vocabulary, PromptType.document))

    def describe_answers(self) -> str:
        """Return an empty string: there are no answers of a language model."""
        return ""

    def write(self, requests: Sequence[WritingRequest]) -> list[str | None]:
        """Write a question about each sentence, or None if there are not enough allowed words."""
        if not requests or len(self.vocabulary) < self.words:
            return [None] * len(requests)
        find_allowed = cache(self._find_allowed)
        questions: list[str | None] = []
        sentences = [request.sentence for request in requests]
        with track("Embedding sentences"):
            targets = normalize_vectors(encode_distinct(self.encoder, sentences).select(sentences))
        for request, target in zip(requests, targets, strict=True):
            allowed_words = find_allowed(request.excluded_texts)
            if len(allowed_words) < self.words or is_unspaced(request.sentence):
                questions.append(None)
                continue
            rows = allowed_words[choose_nearest(target, self._vectors[allowed_words], self.words)]
            questions.append(" ".join(self.vocabulary[row] for row in rows))
        return questions

    def _find_allowed(self, excluded_texts: tuple[str, ...]) -> Integers:
        stems = find_stems(*excluded_texts)
        return np.flatnonzero([stems.isdisjoint(find_word_stems(word)) for word in self.vocabulary])


def choose_nearest(target: Vectors, vectors: Vectors, count: int) -> list[int]:
    """Choose rows of unit vectors, shape (n, dimensions), greedily to maximize the cosine between
    their sum and a target.
    """
    products = vectors @ target
    total = np.zeros_like(target)
    rows: list[int] = []
    for _ in range(count):
        # Lengths of the sums with one more unit vector; vectors can cancel out.
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
    """Writes questions with a language model."""

    model: LanguageModel
    common: frozenset[str]
    """Words that a question may share with the sentence."""

    @property
    def name(self) -> str:
        """Name of the language model."""
        return self.model.name

    def describe_answers(self) -> str:
        """Summarize the model's answers so far."""
        return self.model.describe_answers()

    def write(self, requests: Sequence[WritingRequest]) -> list[str | None]:
        """Write a question about each sentence, or None if all answers are unusable, for example
        because they share content words with the sentence, or if two sentences get the same
        question.
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
            shared_words = find_shared_words(question, request.sentence, self.common)
            if shared_words:
                raise UnusableAnswerError(
                    "question repeats words of the sentence", ", ".join(shared_words)
                )
            other_language = detect_other_language(question, request.language)
            # Names and technical terms in the sentence may look like another language.
            sentence_language = detect_other_language(request.sentence, request.language)
            if other_language not in (None, sentence_language):
                raise UnusableAnswerError("another language")

        replies = self.model.ask(
            OTHER_WORDS, requests, build, "Writing questions in other words", check
        )
        questions = [reply.answer.question.strip() if reply.answer else "" for _, reply in replies]
        # A question about several sentences is not specific to any of them.
        counts = Counter(map(normalize, questions))
        return [text if text and counts[normalize(text)] == 1 else None for text in questions]


def find_shared_words(question: str, sentence: str, common: frozenset[str]) -> list[str]:
    """Return the content words of a question that share a stem with a content word of a sentence,
    in alphabetical order.
    """
    stems = find_stems(" ".join(_find_content_words(sentence, common)))
    words = _find_content_words(question, common)
    return sorted(word for word in words if not stems.isdisjoint(find_stems(word)))


def _find_content_words(text: str, common: frozenset[str]) -> set[str]:
    words = set(find_terms(text)) - common
    return {word for word in words if len(word) >= SHORT_STEM_LETTERS or not word.isalpha()}


QuestionWriter = EmbedderWriter | LanguageModelWriter


def open_writer(reference: str, texts: Sequence[str]) -> LanguageModelWriter:
    """Create a writer for a language model, `MODEL` or `MODEL@ADDRESS`, with the default settings
    of `llm` in `posir build`.

    Answers are cached in posir's cache folder. Questions and sentences may share words that are
    common in the texts.

    Raises:
        PosirError: The reference is malformed.
    """
    name, _, address = reference.partition("@http")
    values: dict[str, Any] = {"model": name, "attempts": ATTEMPTS}
    if address:
        values["endpoints"] = [f"http{address}"]
    try:
        settings = load_settings(LanguageModelSettings, None, values)
    except PosirError as error:
        raise PosirError(
            f"--llm {reference}: {error}. Write MODEL, or MODEL@ADDRESS such as "
            "name@http://localhost:8000/v1."
        ) from None
    model = LanguageModel(settings, CallLog(get_cache_folder() / "other-words" / "calls.sqlite"))
    return LanguageModelWriter(model, find_common_words(texts))
