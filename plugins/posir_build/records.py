"""Records passed between stages: documents, questions with verdicts, and discarded items with
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


class HasId(Protocol):
    """An item with an `id`."""

    @property
    def id(self) -> str:
        """The id."""


ItemT = TypeVar("ItemT", bound=HasId)


class Check(StrEnum):
    """A check that questions go through."""

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
    UNKNOWN_PERSONA = "there is no such persona"

    NO_EVIDENCE = "no evidence"
    SEVERAL_PASSAGES = "several passages"
    LONG_EVIDENCE = "the evidence covers most of the document"
    OTHER_PASSAGE = "another passage instead"
    ADDITIONAL_PASSAGE = "another passage as well"
    NO_QUOTE = "no quote"
    MISSING_SENTENCES = "the quote cites sentences that do not exist"
    OTHER_SENTENCES = "the quote is not in the cited sentences"
    QUOTE_NOT_FOUND = "the quote is not in the text"
    QUOTE_AMBIGUOUS = "the quote resembles several passages"
    QUOTE_REPEATED = "the quote occurs several times"
    CHANGED_NUMBER = "the quote changes a number"
    CHANGED_NEGATION = "the quote changes a negation"

    OTHER_SEGMENT = "a reranker prefers another segment"
    SMALL_MARGIN = "the margin of the segment is too small"
    SPAN_NOT_NEEDED = "a reranker scores the document as high without the span"
    IRRELEVANT = "the text is not relevant enough"
    RELEVANT_WITHOUT_EVIDENCE = "as relevant without the evidence"
    ANSWERED_WITHOUT_SPAN = "answered without the span"

    ANSWERED_ELSEWHERE = "another document answers it"
    ANSWERS_OTHER_QUESTION = "answers a question about another document"
    DOCUMENT_ANSWERS_OTHER_QUESTION = "its document answers another question"

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
    """Length in tokens; for a translation, the length of its original."""
    source: str
    """Source file and row."""


@dataclass(frozen=True)
class QuestionVerdict:
    """The outcome of one check of a question."""

    check: Check
    passed: bool
    judge: str
    """Names of the models, separated by commas, or `posir`."""
    values: dict[str, Any]
    """Scores, grades or answers."""
    rule: str = ""
    """Rule from the settings; empty for checks with a single rule."""
    prompt: str = ""
    """Name and version of the prompt; empty without a language model."""


@dataclass(frozen=True)
class Question:
    """A question about a document, with its evidence and verdicts so far."""

    id: str
    document: str
    text: str
    answer: str
    position: str
    """Requested position, one of `POSITIONS`. The actual position follows from `span`."""
    model: str
    """Name of the model that generated the question, as reported by its server."""
    prompt: str
    """Name and version of the prompt for the question."""
    details: dict[str, str] = field(default_factory=dict)
    """Details of the request, such as a persona."""
    span: Span | None = None
    """Evidence span; None before the Locate stage."""
    quote: str = ""
    verdicts: tuple[QuestionVerdict, ...] = ()

    def add_verdict(self, verdict: QuestionVerdict) -> Question:
        """Return a copy with the verdict appended."""
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
        """Add the verdict of a check; discard the question if a reason is given."""
        verdict = QuestionVerdict(check, not reason, judge, values, rule, prompt)
        question = self.add_verdict(verdict)
        return question.discard(reason) if reason else question

    def discard(self, reason: str, detail: str = "") -> Discarded:
        """Create the record of the discarded question."""
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
    """A `DiscardReason`, an `AnswerFault`, or a file reader's reason to skip the text."""
    item: str
    """Id of the question, or of the document if there is no question."""
    detail: str = ""
    question: Question | None = None


#: Kept questions and discarded items of a stage or check.
Outcomes: TypeAlias = Iterable[Question | Discarded]


@dataclass(frozen=True)
class StageResult:
    """The documents and questions that remain after a stage, and the items it discarded."""

    documents: tuple[Document, ...]
    questions: tuple[Question, ...] = ()
    discarded: tuple[Discarded, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes for the user, for example about a length bucket with too few documents."""
    counts: dict[str, int] = field(default_factory=dict)
    """Counts for the report, such as `documents read`."""

    @cached_property
    def by_id(self) -> dict[str, Document]:
        """The documents by id."""
        return {document.id: document for document in self.documents}

    def find_third(self, question: Question) -> int:
        """Return the third (0, 1 or 2) of the document that contains the evidence."""
        return find_third(question.evidence, len(self.by_id[question.document].text))

    def advance(self, outcomes: Outcomes) -> StageResult:
        """Apply the outcomes of a check: replace the questions, and append the discarded items."""
        items = list(outcomes)
        questions = tuple(item for item in items if isinstance(item, Question))
        discarded = [item for item in items if isinstance(item, Discarded)]
        return replace(self, questions=questions, discarded=(*self.discarded, *discarded))

    def count_reasons(self) -> dict[str, int]:
        """Count discarded items by reason, most frequent first."""
        return count_reasons(self.discarded)

    def list_all_questions(self) -> list[Question]:
        """List the kept and the discarded questions of the stage."""
        discarded = [item.question for item in self.discarded if item.question is not None]
        return [*self.questions, *discarded]


def count_reasons(discarded: Iterable[Discarded]) -> dict[str, int]:
    """Count items by reason, most frequent first."""
    return dict(Counter(str(item.reason) for item in discarded).most_common())


def compute_question_id(document: str, text: str) -> str:
    """Hash a document id and a question to the question's id, 32 hexadecimal digits."""
    return hashlib.blake2b(f"{document}\0{text}".encode(), digest_size=16).hexdigest()


def shuffle(items: Iterable[ItemT], seed: int, *names: str) -> list[ItemT]:
    """Shuffle items by a hash of seed, names and id, so that the order of two items does not
    depend on the other items.
    """
    return sorted(items, key=lambda item: compute_sort_key(seed, *names, item.id))


def compute_sort_key(seed: int, *names: str) -> bytes:
    """Hash a seed and names to a sort key for a random order."""
    return hashlib.sha256("\0".join((str(seed), *names)).encode("utf-8", "replace")).digest()
