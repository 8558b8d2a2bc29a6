"""The items that format readers yield: passages with questions, and skipped texts."""

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


class Use(Enum):
    """The texts to search for an answer. The value explains why they are not the whole corpus."""

    CORPUS = ""
    """The questions are self-contained: search the whole corpus."""
    WITHIN = (
        "its questions are about one document that they do not name ('this contract'), so other "
        "documents answer them too"
    )
    NAMED = (
        "its questions name their document, so a corpus search matches its beginning, no matter "
        "where the evidence is"
    )


#: If at least this share of the questions recurs for several documents, each question counts as
#: being about its own document. The share is 0.97 in PolicyQA ('the website') and below 0.01 in
#: datasets with self-contained questions.
MIN_REPEATED_SHARE = 0.5
#: Minimum share of recurring questions for a warning.
MIN_WARNING_SHARE = 0.01
#: The user's choice of texts to search: the corpus, or the question's own document.
Scope: TypeAlias = Literal["corpus", "document"]
#: The reason for a skipped question; follows a number in messages.
UNUSABLE = "questions without a usable answer"


class Cause(StrEnum):
    """The reason for skipping a question."""

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


#: Causes that follow from a dataset's own rules.
EXPECTED = frozenset(
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
    """A question cannot be used. The default message is the text of the cause."""

    def __init__(self, cause: Cause, text: str = "") -> None:
        super().__init__(text or cause.value)
        self.cause = cause


@dataclass(frozen=True)
class Answer:
    """An answer in a file: its text, its half-open span in code points, or both."""

    text: str | None = None
    start: int | None = None
    end: int | None = None
    is_located: bool = field(default=False, kw_only=True)
    """If true, the span is exact and is not checked against a text."""

    @classmethod
    def from_span(cls, span: tuple[int, int]) -> Answer:
        """Return an answer with an exact span."""
        return cls(None, *span, is_located=True)


@dataclass(frozen=True)
class PassageQuestion:
    """An unchecked question in a file."""

    file: str
    name: str
    """Name of the question for messages: its id, or its location in the file."""
    text: str
    answers: tuple[Answer, ...]
    """Alternative answers: the first that occurs in the document is used. Empty if the file has
    qrels without evidence spans.
    """
    id: str | None = None
    """Id of the query. If None, an id is derived from the content."""
    query: str | None = None
    """Id of the query if it may have several evidence spans.

    The reader yields one question per span, each with its own id and with the file and name of the
    query. Overlapping spans are merged. If a span is skipped, so is the whole query.
    """
    grade: float = 1
    """Relevance of the document, above 0. If its spans have different grades, the highest counts.
    """


@dataclass(frozen=True)
class Passage:
    """A document in a file, with its questions."""

    file: str
    location: str
    """Location in the file, for messages. Empty if the file is one document."""
    text: str
    questions: Sequence[PassageQuestion] = ()
    id: str | None = None
    """Id of the document. If None, `derive_document_ids` derives an id."""
    title: str = ""
    """Title of the article, or an empty string. Spans do not include the title."""
    question_ids: Sequence[str] = ()
    """Ids of all questions about the document in the file, including skipped questions."""

    @property
    def source(self) -> str:
        """File and location, for messages."""
        return f"{self.file}: {self.location}" if self.location else self.file

    @property
    def name(self) -> str:
        """The file, followed by the document's id or location."""
        return f"{self.file}:{self.id or self.location}" if self.location else self.file


@dataclass(frozen=True)
class SkippedText:
    """A file, row, text or question that cannot be used."""

    name: str
    reason: str
    """A phrase that follows a number in messages, such as `with only one sentence`."""
    detail: str = ""
    file: str = ""
    number: int = 1
    """Number of items that this item represents."""
    cause: Cause | None = None
    """The reason for skipping a question; None for files, rows and texts."""

    def __str__(self) -> str:
        return f"{self.file}: question {self.name}: {self.detail}"


Item: TypeAlias = Passage | SkippedText
Items: TypeAlias = Iterator[Item]


def skip_question(file: str, name: str, reason: Cause | ValueError) -> SkippedText:
    """Build the item for a skipped question, from a cause or an error."""
    cause = Cause.MALFORMED
    if isinstance(reason, Cause):
        cause = reason
    elif isinstance(reason, UnusableError):
        cause = reason.cause
    elif isinstance(reason, UnlocatedError):
        cause = Cause.UNLOCATED
    return SkippedText(name, UNUSABLE, str(reason), file, cause=cause)


def list_places(
    file: str,
    query: str,
    text: str,
    answers: Iterable[Answer | None],
    first: int = 1,
    grade: float = 1,
) -> list[PassageQuestion]:
    """Build one question per evidence span of a query, numbered from `first`.

    Number 1 gets the id of the query, the others get `query#2`, `query#3` and so on.
    """
    questions = []
    for number, answer in enumerate(answers, start=first):
        name = query if number == 1 else f"{query}#{number}"
        answers_here = (answer,) if answer else ()
        questions.append(PassageQuestion(file, query, text, answers_here, name, query, grade))
    return questions


@dataclass(frozen=True)
class Claim:
    """A query's evidence in a document that has not been read yet."""

    file: str
    query: str
    text: str
    find_answers: Callable[[str], Iterable[Answer | None]]
    """Finds the evidence in the document's text; raises ValueError if the query cannot be used."""
    grade: float = 1


#: Claims by document id.
Claims: TypeAlias = dict[str, list[Claim]]


def add_claims(
    claims: Claims, file: str, query: str, text: str, answers: Iterable[tuple[str, Answer]]
) -> Iterator[SkippedText]:
    """Add a query's evidence to the claims. `answers` yields pairs of document id and answer.

    The query is yielded as skipped if there is no pair, or if `answers` raises ValueError.
    """
    try:
        pairs = [*answers]
        if not pairs:
            raise UnusableError(Cause.UNANSWERABLE)
    except ValueError as error:
        yield skip_question(file, query, error)
        return
    for document, answer in pairs:
        claim = Claim(file, query, text, partial(_list_answer, answer))
        claims.setdefault(document, []).append(claim)


def _list_answer(answer: Answer, document: str) -> list[Answer]:  # noqa: ARG001
    return [answer]


def settle_claims(documents: Iterable[Item], claims: Claims, corpus: str) -> Items:
    """Yield documents with their claimed questions, and the queries that cannot be used.

    Args:
        documents: The documents. Skipped items are passed through.
        claims: Claims by document id. Claims on documents that exist are removed.
        corpus: Name of the documents for messages.
    """
    places = Counter[str]()
    for item in documents:
        if isinstance(item, SkippedText):
            yield item
            continue
        questions = []
        for claim in claims.pop(item.id or "", ()):
            try:
                answers = [*claim.find_answers(item.text)]
            except ValueError as error:
                yield skip_question(claim.file, claim.query, error)
                continue
            first = places[claim.query] + 1
            places[claim.query] += len(answers)
            questions += list_places(
                claim.file, claim.query, claim.text, answers, first, claim.grade
            )
        yield replace(item, questions=questions)
    for document, unclaimed in claims.items():
        text = f"its relevant document {document!r} is not in {corpus}"
        for claim in unclaimed:
            yield skip_question(claim.file, claim.query, UnusableError(Cause.NO_DOCUMENT, text))


def read_text(file: str, location: str, text: str, name: str, title: str = "") -> Item:
    """Return a document with `name` as its id, or a skipped item if the text is blank."""
    if not text.strip():
        return SkippedText(name, "empty", file=file)
    return Passage(file, location, text, id=name, title=title)


@dataclass(frozen=True)
class RepeatedTexts:
    """Number of questions whose text recurs for several documents."""

    questions: int = 0
    repeated: int = 0

    @property
    def use(self) -> Use:
        """The texts to search for an answer, inferred from the share of recurring questions."""
        share = MIN_REPEATED_SHARE * self.questions
        return Use.WITHIN if self.repeated >= max(1, share) else Use.CORPUS

    @property
    def warning(self) -> str:
        """A warning, or an empty string if few questions recur."""
        if self.repeated < max(1, MIN_WARNING_SHARE * self.questions):
            return ""
        return f"{self.describe()}, but only one document counts as relevant to each."

    def describe(self) -> str:
        """Return the counts as a clause for messages."""
        verb = "has" if self.repeated == 1 else "have"
        return (
            f"{self.repeated:,} of {pluralize(self.questions, 'question')} {verb} a text that "
            "recurs for several documents"
        )


def describe_skipped(skipped: Iterable[SkippedText], examples: int = 2) -> str:
    """Describe the number of skipped items per reason with a few names; "" if there are none."""
    names: dict[str, list[str]] = defaultdict(list)
    counts = Counter[str]()
    for item in sorted(skipped, key=lambda item: item.name):
        names[item.reason].append(": ".join(filter(None, [item.name, item.detail])))
        counts[item.reason] += item.number
    phrases = []
    for reason, count in counts.most_common():
        examples_text = ", ".join(names[reason][:examples])
        more = ", ..." if len(names[reason]) > examples else ""
        phrases.append(f"{count:,} {reason} ({examples_text}{more})")
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
    """Base folder of file names in messages; by default the file's own folder."""

    def name(self, file: Path) -> str:
        """Name a file for messages."""
        return file.name if self.root is None else file.relative_to(self.root).as_posix()


def derive_document_ids(items: Iterable[Item], domain: str) -> dict[str, str]:
    """Derive an id for each text that has no id in its file.

    The id of a text is the smallest id of its questions, so that translations share it, as in
    XQuAD. If question ids are missing or repeat across texts, every id is a digest of the text.
    Digests differ between languages, so cross-lingual tasks reject such data.
    """
    document_ids = set()
    questions: dict[str, set[str]] = {}
    for item in items:
        if isinstance(item, SkippedText):
            continue
        if item.id:
            document_ids.add(item.id)
        else:
            questions.setdefault(item.text, set()).update(item.question_ids)
    names = [name for group in questions.values() for name in group]
    is_unique = len(names) == len({*names})
    ids = {}
    for text, group in questions.items():
        name = f"{domain}_{min(group)}" if group and is_unique else ""
        if not name or name in document_ids:
            name = f"{domain}_{digest(text).hex()}"
        ids[text] = name
    return ids


def name_documents(items: Items, domain: str) -> Items:
    """Yield each document once, with the id derived from its questions. Texts without questions are
    passed through.

    Only the first document is checked for questions, so that a large corpus is not loaded into
    memory.
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
        if isinstance(item, SkippedText):
            yield item
            continue
        name = item.id or derived[item.text]
        if (name, item.text) not in documents:
            documents.add((name, item.text))
            yield replace(item, id=name)
