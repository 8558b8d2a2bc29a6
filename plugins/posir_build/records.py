"""Records that the stages exchange: documents, questions with verdicts, and discarded items with
reasons.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol, TypeAlias, TypeVar

from posir_tasks.text.spans import Span, find_third

#: Name of the call log in a work folder.
LOG_FILE = "calls.sqlite"
#: Values of a prompt's placeholders.
PromptValues = dict[str, str]


class Identified(Protocol):
    """An item with an id."""

    @property
    def id(self) -> str:
        """Id of the item."""


ItemT = TypeVar("ItemT", bound=Identified)


class Check(StrEnum):
    """A check of a question."""

    LOCATED = "located"
    LABELED_SPAN = "labeled span"
    RERANKERS = "rerankers"
    BALANCED = "balanced"
    RELEVANCE = "relevance"
    LEAVE_SPAN_OUT = "leave-span-out"
    AUDIT = "audit"
    FALSE_NEGATIVES = "false negatives"
    SPLIT = "split"
    TRANSLATED = "translated"


class DiscardReason(StrEnum):
    """A reason to discard an item."""

    OTHER_LANGUAGE = "another language"
    NEAR_DUPLICATE = "near-duplicate"
    OTHER_LENGTH = "length outside the buckets"

    BLANK_QUESTION = "blank question"
    BLANK_ANSWER = "blank answer"
    LONG_QUESTION = "question too long"
    NAMES_POSITION = "names a position"
    NAMES_DOCUMENT = "refers to its document"
    COPIED = "copied from its document"
    EXTRA_QUESTION = "more questions than asked for"
    REPEATED = "repeats another question"
    NO_SUCH_PERSONA = "there is no such persona"

    NO_EVIDENCE = "no evidence"
    SEVERAL_PASSAGES = "several passages"
    LONG_EVIDENCE = "the evidence covers most of the document"
    OTHER_PASSAGE = "another passage instead"
    ADDITIONAL_PASSAGE = "another passage as well"
    NO_QUOTE = "no quote"
    QUOTE_OF_NO_SENTENCE = "the quote cites sentences that do not exist"
    QUOTE_OF_OTHER_SENTENCE = "the quote is not in the cited sentences"
    QUOTE_NOT_FOUND = "the quote is not in the text"
    QUOTE_AMBIGUOUS = "the quote resembles several passages"
    QUOTE_REPEATED = "the quote occurs several times"
    CHANGED_NUMBER = "the quote changes a number"
    CHANGED_NEGATION = "the quote changes a negation"

    OTHER_SEGMENT = "a reranker prefers another segment"
    SMALL_MARGIN = "the margin of the segment is too small"
    SPAN_NOT_NEEDED = "a reranker scores the document as high without the span"
    IRRELEVANT = "the text is not relevant enough"
    RELEVANT_WITHOUT = "as relevant without the evidence"
    ANSWERED_WITHOUT = "answered without the span"

    ANSWERED_ELSEWHERE = "another document answers it"
    ANSWERS_OTHER = "answers a question about another document"
    DOCUMENT_ANSWERS_OTHER = "its document answers another question"

    INCOMPLETE_LENGTH = "its length bucket has no questions at some position"
    FULL_CELL = "its cell is full"

    SENTENCES_CHANGED = "sentences are missing or added"
    BLANK_SENTENCE = "a sentence is blank"
    UNTRANSLATED = "not translated"
    REFUSAL = "refusal"
    LENGTH_OUTLIER = "length outlier"
    DOCUMENT_DISCARDED = "its document was discarded"


@dataclass(frozen=True)
class Document:
    """A document of the corpus."""

    id: str
    text: str
    tokens: int
    """Length in tokens; a translation has the length of its original."""
    source: str
    """Source file and row."""


@dataclass(frozen=True)
class QuestionVerdict:
    """The outcome of one check of a question."""

    check: Check
    passed: bool
    judge: str
    """Name of the model, or names separated by commas."""
    values: dict[str, Any]
    """Scores, grades or answers."""
    rule: str = ""
    """The rule in the settings; empty if the check has only one."""
    prompt: str = ""
    """Name and version of the prompt of a language model."""


@dataclass(frozen=True)
class Question:
    """A question about a document, with its evidence and verdicts so far."""

    id: str
    document: str
    text: str
    answer: str
    position: str
    """The requested position, one of `POSITIONS`; `span` gives the actual position."""
    model: str
    """Name of the generating model, as reported by its server."""
    prompt: str
    """Name and version of the generating prompt."""
    details: dict[str, str] = field(default_factory=dict)
    """Details of the request, such as a persona."""
    span: Span | None = None
    """Evidence span; None before the Locate stage."""
    quote: str = ""
    verdicts: tuple[QuestionVerdict, ...] = ()

    def with_verdict(self, verdict: QuestionVerdict) -> Question:
        """Return a copy with one more verdict."""
        return replace(self, verdicts=(*self.verdicts, verdict))

    def conclude(
        self,
        check: Check,
        judge: str,
        values: dict[str, Any],
        reason: str = "",
        rule: str = "",
        prompt: str = "",
    ) -> Question | Discarded:
        """Add the verdict of a check, and discard the question if there is a reason."""
        verdict = QuestionVerdict(check, not reason, judge, values, rule, prompt)
        question = self.with_verdict(verdict)
        return question.discard(reason) if reason else question

    def discard(self, reason: str, detail: str = "") -> Discarded:
        """Build the record for the discarded question."""
        return Discarded(reason, self.id, detail, self)

    @property
    def evidence(self) -> Span:
        """The evidence span, for the stages after Locate."""
        assert self.span is not None
        return self.span


@dataclass(frozen=True)
class Discarded:
    """A document, answer or question that a stage discards."""

    reason: str
    """A `DiscardReason`, an `AnswerFault`, or the reason why a file reader skipped the text."""
    item: str
    """Id of the question, or of the document if there is no question."""
    detail: str = ""
    question: Question | None = None


#: The kept questions and the discarded items of a stage or check.
Outcomes: TypeAlias = Iterable[Question | Discarded]


@dataclass(frozen=True)
class StageResult:
    """The documents and questions after a stage, and the items that the stage discards."""

    documents: tuple[Document, ...]
    questions: tuple[Question, ...] = ()
    discarded: tuple[Discarded, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes for the user, such as about a length bucket with too few documents."""
    counts: dict[str, int] = field(default_factory=dict)
    """Counts for the report, such as documents read."""

    @cached_property
    def by_id(self) -> dict[str, Document]:
        """The documents by id."""
        return {document.id: document for document in self.documents}

    def find_third(self, question: Question) -> int:
        """Return the third (0, 1 or 2) of its document that contains a question's evidence."""
        return find_third(question.evidence, len(self.by_id[question.document].text))

    def advance(self, outcomes: Outcomes) -> StageResult:
        """Replace the questions by the outcomes of a check; items that it discards are added to
        earlier ones.
        """
        rows = list(outcomes)
        questions = tuple(row for row in rows if isinstance(row, Question))
        discarded = [row for row in rows if isinstance(row, Discarded)]
        return replace(self, questions=questions, discarded=(*self.discarded, *discarded))

    def reasons(self) -> dict[str, int]:
        """Count discarded items by reason, most frequent first."""
        return count_reasons(self.discarded)

    def checked_questions(self) -> list[Question]:
        """List all questions of the stage, kept or discarded."""
        discarded = [item.question for item in self.discarded if item.question is not None]
        return [*self.questions, *discarded]


def count_reasons(discarded: Iterable[Discarded]) -> dict[str, int]:
    """Count items by reason, most frequent first."""
    return dict(Counter(str(item.reason) for item in discarded).most_common())


def question_id(document: str, text: str) -> str:
    """Compute a question's id, 32 hexadecimal digits."""
    return hashlib.blake2b(f"{document}\0{text}".encode(), digest_size=16).hexdigest()


def shuffle(items: Iterable[ItemT], seed: int, *names: str) -> list[ItemT]:
    """Order items randomly; the order of two items does not depend on other items."""
    return sorted(items, key=lambda item: seeded_order(seed, *names, item.id))


def seeded_order(seed: int, *names: str) -> bytes:
    """Compute a sort key for a random order that depends only on the seed and the item's names."""
    return hashlib.sha256("\0".join((str(seed), *names)).encode("utf-8", "replace")).digest()
