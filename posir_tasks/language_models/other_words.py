"""Questions about a sentence in other words: none of its words, and none of its text's, is in them.

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
from functools import cached_property

import numpy as np
from mteb.types import PromptType

from posir_tasks.base.arrays import Integers
from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import cache_folder
from posir_tasks.base.progress import track
from posir_tasks.base.settings_file import load_settings
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.language_models.call_log import CallLog
from posir_tasks.language_models.chat_client import ModelAnswer, UnusableAnswerError, load_prompt
from posir_tasks.language_models.settings import LanguageModelSettings
from posir_tasks.models.embeddings.encoding import Encoder, Vectors, unit_vectors
from posir_tasks.text.words import find_terms, is_unspaced

#: Words of a sentence that is asked about: fewer are headings, more are lists or tables.
MIN_WORDS, MAX_WORDS = 5, 80
#: Words of a question that an embedder writes.
WORDS = 8
#: Letters of a word that are its stem, and those of a word of at most `SHORT` letters.
STEM, SHORT_STEM, SHORT = 4, 3, 5
#: Words that more texts have, and more than `FEW_TEXTS`, are common.
COMMON_SHARE, FEW_TEXTS = 0.2, 2
#: Most words of the vocabulary.
MAX_VOCABULARY = 5_000
#: Sentences that are embedded between two steps of the progress bar.
BATCH = 256
#: Between the parts of a term such as `well-known`.
JOINT = re.compile(r"['’\-]")
#: Times that a question is asked for until it is in other words.
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
    """Return a sentence without differences in case and white space."""
    return " ".join(sentence.casefold().split())


def find_word_stems(word: str) -> frozenset[str]:
    """Return the stems of a word in lower case: its first four letters and, of three to five
    letters, its first three.
    """
    if len(word) < SHORT_STEM:
        return frozenset((word,))
    stems = {word[:STEM]} if len(word) >= STEM else set()
    # Marked as a stem of a short word: `the` is not a stem of `theory`.
    return frozenset(stems | {f"{word[:SHORT_STEM]}*"} if len(word) <= SHORT else stems)


def find_stems(*texts: str) -> frozenset[str]:
    """Return the stems of all words of texts, and of the parts of words with a hyphen."""
    words = {
        part
        for text in texts
        for term in set(find_terms(text))
        for part in (term, *JOINT.split(term))
        if part
    }
    return frozenset(stem for word in words for stem in find_word_stems(word))


def count_texts(texts: Iterable[str]) -> Counter[str]:
    """Return the number of texts that have each word."""
    return Counter(word for text in texts for word in set(find_terms(text)))


def find_common_words(texts: Sequence[str]) -> frozenset[str]:
    """Return the words that more than a fifth of the texts have, and more than two."""
    most = max(FEW_TEXTS, COMMON_SHARE * len(texts))
    return frozenset(word for word, count in count_texts(texts).items() if count > most)


def build_vocabulary(texts: Sequence[str]) -> list[str]:
    """Return the words that questions are made of: neither common nor in a single text, those in
    the most texts first.
    """
    common = find_common_words(texts)
    counts = count_texts(texts)
    suitable = [
        word
        for word, count in counts.items()
        if count >= FEW_TEXTS
        and word not in common
        and len(word) >= SHORT_STEM
        and word.isalpha()
        and not is_unspaced(word)
    ]
    return sorted(suitable, key=lambda word: (-counts[word], word))[:MAX_VOCABULARY]


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

    def embed(self, sentences: Sequence[str]) -> Vectors:
        """Return the unit vectors of sentences, shape (n, dimensions), each encoded once."""
        distinct = {sentence: row for row, sentence in enumerate(dict.fromkeys(sentences))}
        names, batches = list(distinct), []
        with track("Embedding sentences", len(names)) as advance:
            for start in range(0, len(names), BATCH):
                batches.append(self.encoder(names[start : start + BATCH], PromptType.document))
                advance(len(batches[-1]))
        rows = [distinct[sentence] for sentence in sentences]
        return unit_vectors(np.concatenate(batches)[rows])

    def write(self, requests: Sequence[WritingRequest]) -> list[str | None]:
        """Return the question about each sentence; None if fewer than `words` words of the
        vocabulary can be used.
        """
        if not requests or len(self.vocabulary) < self.words:
            return [None] * len(requests)
        own = list(map(find_word_stems, self.vocabulary))
        #: The rows of the words that share no stem with any word of the avoided texts.
        rows: dict[tuple[str, ...], Integers] = {}
        questions: list[str | None] = []
        for request, target in zip(
            requests, self.embed([request.sentence for request in requests]), strict=True
        ):
            if request.avoided not in rows:
                stems = find_stems(*request.avoided)
                rows[request.avoided] = np.array(
                    [row for row, word in enumerate(own) if stems.isdisjoint(word)], np.int64
                )
            allowed = rows[request.avoided]
            if len(allowed) < self.words or is_unspaced(request.sentence):
                questions.append(None)
                continue
            chosen = choose_nearest(target, self._vectors[allowed], self.words)
            questions.append(" ".join(self.vocabulary[row] for row in allowed[chosen].tolist()))
        return questions


def choose_nearest(target: Vectors, vectors: Vectors, number: int) -> list[int]:
    """Return the rows of unit vectors, shape (n, dimensions), added one by one so that their sum is
    nearest to a target.
    """
    alone, overlap = vectors @ target, np.zeros(len(vectors))
    projection, squared = 0.0, 0.0
    chosen: list[int] = []
    for _ in range(number):
        cosines = (projection + alone) / np.sqrt(
            np.maximum(squared + 2 * overlap + 1, np.finfo(np.float32).tiny)
        )
        cosines[chosen] = -np.inf
        row = int(cosines.argmax())
        chosen.append(row)
        projection += float(alone[row])
        squared += float(2 * overlap[row]) + 1
        overlap += vectors @ vectors[row]
    return chosen


class OtherWordsQuestion(ModelAnswer):
    """A question that a sentence answers, in other words than the sentence's (ours)."""

    question: str


OTHER_WORDS = load_prompt("other_words", OtherWordsQuestion)


@dataclass(frozen=True)
class LanguageModelWriter:
    """Asks a language model for a question about each sentence."""

    model: LanguageModel
    common: frozenset[str]
    """Words that question and sentence may both have."""

    @property
    def name(self) -> str:
        """The language model."""
        return self.model.name

    def write(self, requests: Sequence[WritingRequest]) -> list[str | None]:
        """Return the question about each sentence; None if its second answer, too, shares a content
        word with the sentence.
        """

        def check(request: WritingRequest, answer: OtherWordsQuestion) -> None:
            if shared := find_shared(answer.question, request.sentence, self.common):
                raise UnusableAnswerError("words of the sentence", ", ".join(shared))
            if not find_terms(answer.question):
                raise UnusableAnswerError("no question")

        replies = self.model.ask(
            OTHER_WORDS,
            requests,
            lambda request: {"sentence": request.sentence, "language": request.language},
            "Asking in other words",
            check,
        )
        return [reply.answer.question.strip() if reply.answer else None for reply in replies]


def find_shared(question: str, sentence: str, common: frozenset[str]) -> list[str]:
    """Return the content words of a question, neither common nor very short, that share a stem with
    a sentence, sorted.
    """
    content = [
        {
            word
            for word in find_terms(text)
            if word not in common and (len(word) >= SHORT_STEM or not word.isalpha())
        }
        for text in (question, sentence)
    ]
    stems = find_stems(" ".join(content[1]))
    return sorted(word for word in content[0] if not stems.isdisjoint(find_stems(word)))


QuestionWriter = EmbedderWriter | LanguageModelWriter


def open_writer(reference: str, texts: Sequence[str]) -> LanguageModelWriter:
    """Return a writer that asks a language model, `MODEL` or `MODEL@ADDRESS`, with the settings of
    `llm` in `posir build`.

    Its answers are saved in posir's cache folder, and are not asked for again. Words that are
    common in the texts may be in question and sentence. PosirError is raised if the reference is
    none.
    """
    model, _, address = reference.partition("@http")
    endpoints = {"endpoints": [f"http{address}"]} if address else {}
    try:
        settings = load_settings(
            LanguageModelSettings, None, {"model": model, "attempts": ATTEMPTS, **endpoints}
        )
    except PosirError as error:
        raise PosirError(
            f"--llm {reference}: {error}. Write MODEL, or MODEL@ADDRESS such as "
            "name@http://localhost:8000/v1."
        ) from None
    log = CallLog(cache_folder() / "other-words" / "calls.sqlite")
    return LanguageModelWriter(LanguageModel(settings, log), find_common_words(texts))
