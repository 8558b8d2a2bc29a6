"""Questions in other words by a language model: it asks about a sentence, and the words in common are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from posir_build.answers import OtherWordsQuestion, UnusableAnswerError
from posir_build.call_log import CallLog
from posir_build.language_model import BuiltValues, LanguageModel, LoggedLanguageModel
from posir_build.prompts import load_prompt
from posir_build.settings import LanguageModelSettings
from posir_inspect.other_words import SHORT_STEM, WritingRequest, find_common_words, find_stems
from posir_tasks.errors import PosirError
from posir_tasks.files import cache_folder
from posir_tasks.settings_file import load_settings
from posir_tasks.text.words import find_terms

OTHER_WORDS = load_prompt("other_words", OtherWordsQuestion)
#: Times that a question is asked for until it is in other words.
ATTEMPTS = 2


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
        """Return the question about each sentence; None if its second answer, too, shares a content word with the sentence."""
        values = BuiltValues(requests, lambda request: {"sentence": request.sentence, "language": request.language})

        def check(number: int, answer: OtherWordsQuestion) -> None:
            if shared := find_shared(answer.question, requests[number].sentence, self.common):
                raise UnusableAnswerError(f"words of the sentence: {', '.join(shared)}")
            if not find_terms(answer.question):
                raise UnusableAnswerError("no question")

        replies = self.model.ask(OTHER_WORDS, values, "Asking in other words", check)
        return [reply.answer.question.strip() if reply.answer else None for reply in replies]


def find_shared(question: str, sentence: str, common: frozenset[str]) -> list[str]:
    """Return the content words of a question that share a stem with one of a sentence, sorted.

    Words that are common in the texts, and words of letters alone of fewer than three, are no content words.
    """
    content = [
        {word for word in find_terms(text) if word not in common and (len(word) >= SHORT_STEM or not word.isalpha())}
        for text in (question, sentence)
    ]
    stems = find_stems(" ".join(content[1]))
    return sorted(word for word in content[0] if not stems.isdisjoint(find_stems(word)))


def open_language_model(reference: str) -> LanguageModel:
    """Return a language model, `MODEL` or `MODEL@ADDRESS`, with the settings of `llm` in `posir build`.

    Its answers are saved in posir's cache folder, and are not asked for again.

    Raises:
        PosirError: The reference is no model, or no address.
    """
    model, _, address = reference.partition("@http")
    values: dict[str, object] = {"model": model, "attempts": ATTEMPTS}
    if address:
        values["endpoints"] = [f"http{address}"]
    try:
        settings = load_settings(LanguageModelSettings, None, values)
    except PosirError as error:
        raise PosirError(
            f"--llm {reference}: {error}. Write MODEL, or MODEL@ADDRESS such as name@http://localhost:8000/v1."
        ) from None
    return LoggedLanguageModel(settings, CallLog(cache_folder() / "other-words" / "calls.sqlite"))


def open_writer(reference: str, texts: Sequence[str]) -> LanguageModelWriter:
    """Return a writer that asks a language model; words that are common in the texts may be in question and sentence."""
    return LanguageModelWriter(open_language_model(reference), find_common_words(texts))
