"""The types of a language model's answers."""

from __future__ import annotations

from typing import Literal

from posir_tasks.language_models.prompt import ModelAnswer


class AskedQuestion(ModelAnswer):
    """A question with its answer."""

    question: str
    answer: str
    type: str
    """Type of question: `what`, `how`, `claim` ... (PosIR, arXiv 2601.08363); `simple`, `complicated` (PosQ, 2505.13950)."""


class AskedQuestions(ModelAnswer):
    """Questions about a document."""

    questions: list[AskedQuestion]


class DocumentSummary(ModelAnswer):
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
