"""The types of a language model's answers, and how they are read from what it writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from posir_build.call_log import Completion
from posir_build.chat_client import replace_surrogates
from posir_tasks.errors import summarize_error


class ModelAnswer(BaseModel):
    """An answer in JSON. Servers are asked for exactly these fields; others in an answer are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", json_schema_extra={"additionalProperties": False})


class AskedQuestion(ModelAnswer):
    """A question with its answer."""

    question: str
    answer: str
    type: str
    """Type of question: `what`, `how`, `claim` ... (PosIR, arXiv 2601.08363); `simple`, `complicated` (PosQ, 2505.13950)."""


class AskedQuestions(ModelAnswer):
    """Questions about a document."""

    questions: list[AskedQuestion]


class Summary(ModelAnswer):
    """A summary of a document (PosQ)."""

    summary: str


class PersonaChoice(ModelAnswer):
    """A persona who would search for a document, and the way of asking (Built-in or Learned, arXiv 2605.26578)."""

    persona: int
    """Number in the list."""
    difficulty: Literal["high_school", "university", "phd"]
    query_length: Literal["short", "medium", "long"]


class PersonaQuery(ModelAnswer):
    """A search query of a persona (Built-in or Learned)."""

    query: str
    answer: str
    reasoning: str


class OtherWordsQuestion(ModelAnswer):
    """A question that a sentence answers, in other words than the sentence's (ours)."""

    question: str


class CitedEvidence(ModelAnswer):
    """A passage that answers a question."""

    first_sentence: int
    last_sentence: int
    quote: str
    """Copied from these sentences, word for word."""


class Citations(ModelAnswer):
    """All passages of a document that answer a question by themselves; none if it has none."""

    evidence: list[CitedEvidence]


class Relevance(ModelAnswer):
    """The relevance of a text to a question."""

    relevance: Literal[0, 1, 2, 3, 4]


class Answerability(ModelAnswer):
    """Whether a text answers a question."""

    reasoning: str
    answer: Literal["yes", "no"]


class TranslatedSentence(ModelAnswer):
    """A sentence in the other language."""

    number: int
    text: str


class TranslatedSentences(ModelAnswer):
    """Sentences of a document in the other language."""

    sentences: list[TranslatedSentence]


class TranslatedText(ModelAnswer):
    """A text in the other language."""

    text: str


class TranslationVerdict(ModelAnswer):
    """A judgment on a text that should be a translation (PosIR, appendix B)."""

    reasoning: str
    verdict: Literal["translation", "refusal", "other"]


Rating = Literal[1, 2, 3, 4, 5]


class TranslationRating(ModelAnswer):
    """A rating of a translation on the four scales of PosIR (arXiv 2601.08363, appendix B.1), from 1, poor, to 5, excellent."""

    reasoning: str
    fluency: Rating
    accuracy: Rating
    completeness: Rating
    style: Rating


AnswerT = TypeVar("AnswerT", bound=BaseModel)

#: Where JSON is looked for in an answer, at most.
MAX_STARTS = 50
#: Words with which models refuse, at the start of an answer.
REFUSAL = re.compile(
    r"\W*(i(['’]m| am)? (sorry|unable|not able)|i can(no|['’])t|i apologi[sz]e|as an ai|sorry\b|unfortunately|es tut mir leid|"
    r"ich kann (das|dies|nicht)|désolé|je suis désolé|lo siento|mi dispiace|desculpe|извините|к сожалению|"
    r"申し訳|すみません|抱歉|对不起|很抱歉|죄송|عذر|آسف|"
    r"(ich kann|je ne peux pas|no puedo|non posso|não posso|я не могу|nie mogę|我?(无法|不能)|لا أستطيع|لا يمكنني).{0,30}"
    r"(helfen|übersetz|aider|tradui|ayudar|traduc|aiutar|tradu[rz]|ajudar|помочь|перев|pomóc|przetłum|帮助|协助|翻译|مساعد|ترجم))",
    re.IGNORECASE,
)


class UnusableAnswerError(Exception):
    """An answer that cannot be used; the text is the reason."""


def parse_answer(completion: Completion, answer: type[AnswerT]) -> AnswerT:
    """Return the answer that a language model wrote, with or without text around its JSON.

    Raises:
        UnusableAnswerError: It refused, its answer was cut off, or there is no JSON with the fields of the answer.
    """
    problem = "the answer has no JSON"
    for value in _find_values(completion.text):
        if value is None:
            problem = "the answer's JSON is incomplete"
            continue
        try:
            return answer.model_validate(value)
        except ValidationError as error:
            if "incomplete" not in problem:
                problem = f"the answer's JSON has other fields ({summarize_error(error)})"
    if completion.finish_reason in ("refusal", "content_filter") or REFUSAL.match(completion.text):
        raise UnusableAnswerError("the model refused")
    raise UnusableAnswerError("the answer was cut off" if completion.finish_reason == "length" else problem)


def _find_values(text: str) -> Iterator[Any]:
    """Yield the JSON objects in a text, and None for each brace that begins none."""
    decoder, start = json.JSONDecoder(), text.find("{")
    for _ in range(MAX_STARTS):
        if start < 0:
            return
        try:
            value, end = decoder.raw_decode(text, start)
            yield _clean(value)
        except (ValueError, RecursionError):
            yield None
            end = start + 1
        start = text.find("{", end)


def _clean(value: Any) -> Any:
    """Replace what UTF-8 cannot represent."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return value
