"""Records that the stages pass on: documents, questions with their verdicts, and what was discarded
and why.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from posir_tasks.text.spans import Span

#: The log of calls in a work folder.
LOG_FILE = "calls.sqlite"


@dataclass(frozen=True)
class Document:
    """A document of the corpus."""

    id: str
    text: str
    tokens: int
    """Its length; of a translation, that of the original."""
    source: str
    """File and row."""


@dataclass(frozen=True)
class QuestionVerdict:
    """The outcome of one check of a question."""

    check: str
    passed: bool
    judge: str
    """Model, and prompt if it is a language model."""
    values: dict[str, Any]
    """Scores, grades or answers."""


@dataclass(frozen=True)
class Question:
    """A question about a document, on its way through the stages."""

    id: str
    document: str
    text: str
    answer: str
    position: str
    """The position that was asked for, one of `POSITIONS`; where the evidence is follows from
    `span`.
    """
    model: str
    """The name that the server gives it."""
    prompt: str
    """Name and version of the prompt that it was asked for with."""
    details: dict[str, str] = field(default_factory=dict)
    """Further details of how it was asked for, such as a persona."""
    span: Span | None = None
    """Its evidence; None before it is located."""
    quote: str = ""
    verdicts: tuple[QuestionVerdict, ...] = ()

    def with_verdict(self, verdict: QuestionVerdict) -> Question:
        """Return the question with one more verdict."""
        return replace(self, verdicts=(*self.verdicts, verdict))

    @property
    def evidence(self) -> Span:
        """Its span, which every stage after Locate relies on."""
        assert self.span is not None
        return self.span


@dataclass(frozen=True)
class Discarded:
    """A document, answer or question that a stage does not pass on."""

    reason: str
    """One of a stage's fixed reasons."""
    item: str
    """Id of a question, or else of a document."""
    detail: str = ""
    question: Question | None = None


@dataclass(frozen=True)
class StageResult:
    """The documents and questions that a stage passes on, and those that it discards."""

    documents: tuple[Document, ...]
    questions: tuple[Question, ...]
    discarded: tuple[Discarded, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes for the user, such as on a length bucket that is short."""
    counts: dict[str, int] = field(default_factory=dict)
    """Numbers for the report, such as documents read."""

    def reasons(self) -> dict[str, int]:
        """Return the number of discarded items by reason, the most frequent first."""
        return dict(Counter(discard.reason for discard in self.discarded).most_common())


def question_id(document: str, text: str) -> str:
    """Return the id of a question: 32 hexadecimal digits."""
    return hashlib.blake2b(f"{document}\0{text}".encode(), digest_size=16).hexdigest()


def by_id(documents: Iterable[Document]) -> dict[str, Document]:
    """Return documents by id."""
    return {document.id: document for document in documents}


def seeded_order(seed: int, *names: str) -> bytes:
    """Return a sort key that is random for a seed, and the same whatever else is sorted."""
    return hashlib.sha256("\0".join((str(seed), *names)).encode("utf-8", "replace")).digest()
