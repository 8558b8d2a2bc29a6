"""The items that format readers yield: passages with questions, and skipped items."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal, TypeAlias

from posir_tasks.base.digests import digest
from posir_tasks.base.wording import pluralize
from posir_tasks.text.spans import UnlocatedError


class SearchScope(Enum):
    """The texts to search for an answer. The value is the reason not to search the whole corpus."""

    CORPUS = ""
    """The whole corpus, for self-contained questions."""
    DOCUMENT = (
        "its questions are about one document that they do not name ('this contract'), so other "
        "documents answer them too"
    )
    NAMED_DOCUMENT = (
        "its questions name their document, so a corpus search matches its beginning, no matter "
        "where the evidence is"
    )


#: Minimum share of repeated questions to search each question's own document only. The share is
#: 0.97 in PolicyQA ('the website') and below 0.01 in datasets with self-contained questions.
MIN_REPEATED_SHARE = 0.5
#: Minimum share of repeated questions for a warning.
MIN_WARNING_SHARE = 0.01
#: Values of `--scope`: search the corpus, or the question's own document.
Scope: TypeAlias = Literal["corpus", "document"]
#: Reason for skipping questions; follows a number in messages.
UNUSABLE = "questions without a usable answer"


class Cause(StrEnum):
    """Why a question is skipped."""

    NO_POSITION = (
        "has neither an answer text nor both start and end (fields answers, answer, start, end)"
    )
    MALFORMED = "has a malformed field"
    ELSEWHERE = "its answer is not where its file says"
    AMBIGUOUS = "its answer occurs several times, or not at all"
    OUTSIDE = "its span is not within its document"
    DUPLICATE = "is an exact duplicate"
    PLACE_UNKNOWN = "has several places of evidence, one of which is unknown"
    BLANK_DOCUMENT = "its relevant document has no text"
    NO_DOCUMENT = "its relevant document is not in the corpus"
    NO_TEXT = "its text is not in the data"
    UNANSWERABLE = "has no answer"
    NOT_RELEVANT = "has no relevant document in the judgments"
    UNLOCATED = "its evidence does not occur exactly once in its document"
    DISAGREEMENT = "fewer than 2 of its annotators gave an answer"
    REVISED = (
        "is about another revision or copy of its page, and its evidence does not occur exactly "
        "once in the revision that is kept"
    )
    OTHER_SPLIT = "its evidence belongs to the other --split"
    SHORT = "its evidence is in an article of fewer than 4 passages and 512 tokens"
    NO_PASSAGE = "has a relevant passage that is not in the corpus"
    NOT_TEXT = "has no evidence paragraph, or only a figure or table"
    EXCLUDING = "excludes documents from its search, but all queries share one corpus"


#: Causes that follow from the rules of a dataset, not from errors in its files.
EXPECTED_CAUSES = frozenset(
    {
        Cause.UNANSWERABLE,
        Cause.NOT_RELEVANT,
        Cause.UNLOCATED,
        Cause.DISAGREEMENT,
        Cause.REVISED,
        Cause.OTHER_SPLIT,
        Cause.SHORT,
        Cause.NO_PASSAGE,
        Cause.NOT_TEXT,
        Cause.EXCLUDING,
    }
)


class UnusableError(ValueError):
    """A question cannot be used. The message defaults to the value of the cause."""

    def __init__(self, cause: Cause, text: str = "") -> None:
        super().__init__(text or cause.value)
        self.cause = cause


@dataclass(frozen=True)
class Answer:
    """An answer from a file: text, half-open span in code points, or both."""

    text: str | None = None
    start: int | None = None
    end: int | None = None
    is_located: bool = field(default=False, kw_only=True)
    """If true, trust the span without comparing it with a text."""

    @classmethod
    def from_span(cls, span: tuple[int, int]) -> Answer:
        """Build an answer with an exact span."""
        return cls(None, *span, is_located=True)


@dataclass(frozen=True)
class PassageQuestion:
    """A question as read from a file, before validation."""

    file: str
    name: str
    """Id, or location in the file, for messages."""
    text: str
    answers: tuple[Answer, ...]
    """Alternative answers. The first one found in the document is used. Empty for qrels without
    evidence spans.
    """
    id: str | None = None
    """Query id. If None, derived from the content."""
    query: str | None = None
    """Id of the query if it may have several evidence spans.

    Readers yield a question per span, each with a unique id and with the query's file and name.
    Overlapping spans are merged. If one span is skipped, the whole query is.
    """
    grade: float = 1
    """Relevance of the document, above 0. The highest grade of its spans is used."""


@dataclass(frozen=True)
class Passage:
    """A document from a file, with its questions."""

    file: str
    location: str
    """Location in the file, for messages. Empty if the file is one document."""
    text: str
    questions: Sequence[PassageQuestion] = ()
    id: str | None = None
    """Document id. If None, derived by `derive_document_ids`."""
    title: str = ""
    """Article title, or an empty string. Not part of `text`."""
    question_ids: Sequence[str] = ()
    """Ids of all questions in the file about this document, including skipped questions."""

    @property
    def source(self) -> str:
        """File and location, for messages."""
        return f"{self.file}: {self.location}" if self.location else self.file

    @property
    def name(self) -> str:
        """File and id, or file and location."""
        return f"{self.file}:{self.id or self.location}" if self.location else self.file


@dataclass(frozen=True)
class SkippedItem:
    """A file, row, text or question that cannot be used."""

    name: str
    reason: str
    """Follows a number in messages, such as `with only one sentence`."""
    detail: str = ""
    file: str = ""
    number: int = 1
    """Number of skipped items."""
    cause: Cause | None = None
    """Cause for a question; None for files, rows and texts."""

    def __str__(self) -> str:
        return f"{self.file}: question {self.name}: {self.detail}"


Item: TypeAlias = Passage | SkippedItem
Items: TypeAlias = Iterator[Item]


def skip_question(file: str, name: str, reason: Cause | ValueError) -> SkippedItem:
    """Build a skipped question from a cause or an error."""
    cause = Cause.MALFORMED
    if isinstance(reason, Cause):
        cause = reason
    elif isinstance(reason, UnusableError):
        cause = reason.cause
    elif isinstance(reason, UnlocatedError):
        cause = Cause.UNLOCATED
    return SkippedItem(name, UNUSABLE, str(reason), file, cause=cause)


def build_span_questions(
    file: str,
    query: str,
    text: str,
    answers: Iterable[Answer | None],
    first: int = 1,
    grade: float = 1,
) -> list[PassageQuestion]:
    """Build a question for each evidence span of a query, numbered from `first`.

    Number 1 keeps the query id; the others are called `query#2`, `query#3` and so on.
    """
    questions = []
    for number, answer in enumerate(answers, start=first):
        name = query if number == 1 else f"{query}#{number}"
        span_answers = (answer,) if answer else ()
        questions.append(PassageQuestion(file, query, text, span_answers, name, query, grade))
    return questions


@dataclass(frozen=True)
class DeferredQuery:
    """A query about a document that has not been read yet."""

    file: str
    query: str
    text: str
    find_answers: Callable[[str], Iterable[Answer | None]]
    """Locates the evidence in the document; raises ValueError if the query cannot be used."""
    grade: float = 1


#: Deferred queries by document id.
DeferredQueries: TypeAlias = dict[str, list[DeferredQuery]]


def add_deferred(
    deferred: DeferredQueries,
    file: str,
    query: str,
    text: str,
    answers: Iterable[tuple[str, Answer]],
) -> Iterator[SkippedItem]:
    """Add a query to the deferred queries of its documents. `answers` yields pairs of document id
    and answer.

    If there is no pair or `answers` raises ValueError, the query is yielded as skipped.
    """
    try:
        pairs = [*answers]
        if not pairs:
            raise UnusableError(Cause.UNANSWERABLE)
    except ValueError as error:
        yield skip_question(file, query, error)
        return
    for document, answer in pairs:
        deferred_query = DeferredQuery(file, query, text, partial(_list_answer, answer))
        deferred.setdefault(document, []).append(deferred_query)


def _list_answer(answer: Answer, document: str) -> list[Answer]:  # noqa: ARG001
    return [answer]


def attach_queries(documents: Iterable[Item], deferred: DeferredQueries, corpus: str) -> Items:
    """Yield documents with their deferred queries as questions, then the skipped queries.

    Args:
        documents: The documents. Skipped items are passed through.
        deferred: Queries by document id. Queries of existing documents are removed.
        corpus: Name of the corpus for messages.
    """
    span_counts = Counter[str]()
    for item in documents:
        if isinstance(item, SkippedItem):
            yield item
            continue
        questions = []
        for entry in deferred.pop(item.id or "", ()):
            try:
                answers = [*entry.find_answers(item.text)]
            except ValueError as error:
                yield skip_question(entry.file, entry.query, error)
                continue
            first = span_counts[entry.query] + 1
            span_counts[entry.query] += len(answers)
            questions += build_span_questions(
                entry.file, entry.query, entry.text, answers, first, entry.grade
            )
        yield replace(item, questions=questions)
    for document, unmatched in deferred.items():
        text = f"its relevant document {document!r} is not in {corpus}"
        for entry in unmatched:
            yield skip_question(entry.file, entry.query, UnusableError(Cause.NO_DOCUMENT, text))


def read_text(file: str, location: str, text: str, name: str, title: str = "") -> Item:
    """Build a document with the id `name`, or a skipped item if the text is blank."""
    if not text.strip():
        return SkippedItem(name, "empty", file=file)
    return Passage(file, location, text, id=name, title=title)


@dataclass(frozen=True)
class RepeatedTexts:
    """Number of questions that are repeated for several documents."""

    questions: int = 0
    """Number of all questions."""
    repeated: int = 0

    @property
    def search_scope(self) -> SearchScope:
        """The texts to search, inferred from the share of repeated questions."""
        threshold = max(1, MIN_REPEATED_SHARE * self.questions)
        return SearchScope.DOCUMENT if self.repeated >= threshold else SearchScope.CORPUS

    @property
    def warning(self) -> str:
        """A warning, or an empty string if few questions are repeated."""
        if self.repeated < max(1, MIN_WARNING_SHARE * self.questions):
            return ""
        return f"{self.describe()}, but only one document counts as relevant to each."

    def describe(self) -> str:
        """Describe the counts in a clause without a period."""
        verb = "has" if self.repeated == 1 else "have"
        return (
            f"{self.repeated:,} of {pluralize(self.questions, 'question')} {verb} a text that "
            "recurs for several documents"
        )


def describe_skipped(skipped: Iterable[SkippedItem], examples: int = 2) -> str:
    """Count the skipped items by reason, with a few example names; "" if there are none."""
    names_by_reason: dict[str, list[str]] = defaultdict(list)
    counts = Counter[str]()
    for item in sorted(skipped, key=lambda item: item.name):
        names_by_reason[item.reason].append(": ".join(filter(None, [item.name, item.detail])))
        counts[item.reason] += item.number
    phrases = []
    for reason, count in counts.most_common():
        listed = ", ".join(names_by_reason[reason][:examples])
        more = ", ..." if len(names_by_reason[reason]) > examples else ""
        phrases.append(f"{count:,} {reason} ({listed}{more})")
    return f"Skipped: {'; '.join(phrases)}." if phrases else ""


@dataclass(frozen=True)
class ReadOptions:
    """Reader options; see `open_data`."""

    column: str | None = None
    id_column: str | None = None
    split: str | None = None
    revision: str | None = None
    language: str | None = None
    repair: bool = True
    root: Path | None = None
    """Folder that file names in messages are relative to; by default the file's own folder."""

    def name(self, file: Path) -> str:
        """Return the name of a file for messages."""
        return file.name if self.root is None else file.relative_to(self.root).as_posix()


def derive_document_ids(items: Iterable[Item], domain: str) -> dict[str, str]:
    """Derive ids for texts without an id. Returns a mapping from text to id.

    The id is the smallest id of the text's questions, which translations share, as in XQuAD. If
    question ids are missing or repeat across texts, all ids are digests of the texts. Digests
    differ between languages, so cross-lingual tasks reject the data.
    """
    document_ids = set()
    questions: dict[str, set[str]] = {}
    for item in items:
        if isinstance(item, SkippedItem):
            continue
        if item.id:
            document_ids.add(item.id)
        else:
            questions.setdefault(item.text, set()).update(item.question_ids)
    question_ids = [name for names in questions.values() for name in names]
    is_unique = len(question_ids) == len({*question_ids})
    ids = {}
    for text, names in questions.items():
        name = f"{domain}_{min(names)}" if names and is_unique else ""
        if not name or name in document_ids:
            name = f"{domain}_{digest(text).hex()}"
        ids[text] = name
    return ids


def name_documents(items: Items, domain: str) -> Items:
    """Yield each document once, with an id derived from its questions.

    If the first document has an id or no questions, the items are streamed unchanged, since a large
    corpus may not fit into memory.
    """
    head = []
    is_named = True
    for item in items:
        head.append(item)
        if isinstance(item, Passage):
            is_named = bool(item.id) or not (item.questions or item.question_ids)
            break
    if is_named:
        yield from chain(head, items)
        return
    complete = [*head, *items]
    derived = derive_document_ids(complete, domain)
    documents = set()
    for item in complete:
        if isinstance(item, SkippedItem):
            yield item
            continue
        name = item.id or derived[item.text]
        if (name, item.text) not in documents:
            documents.add((name, item.text))
            yield replace(item, id=name)
