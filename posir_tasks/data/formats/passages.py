"""Passages with their questions, and problems: what every reader of a format yields; and the
options that it takes.
"""

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
    """Texts of which the questions of data can be asked; the value says why it is not the whole
    corpus.
    """

    CORPUS = ""
    """Each stands alone: any document may answer it."""
    WITHIN = (
        "its questions are about one document and do not name it ('this contract'), so that other "
        "documents answer them, too"
    )
    NAMED = (
        "its questions name their document, so that a search of the corpus finds its beginning, "
        "wherever the evidence is"
    )


#: Share of questions with a text that is asked of several documents from which data counts as of
#: one document each. In PolicyQA, whose questions are about 'the website', it is 0.97; in sets
#: whose questions stand alone it is below 0.01.
WITHIN_SHARE = 0.5
#: Share from which it is mentioned.
MENTIONED_SHARE = 0.01
#: Texts of which questions are asked, as a user says it: all of the corpus, or the question's own
#: document.
Scope: TypeAlias = Literal["corpus", "document"]
#: Reason of a question that is not used, after a number.
UNUSABLE = "questions without a usable answer"


class Cause(StrEnum):
    """Why a question is not used."""

    NO_POSITION = (
        "states neither the text of its answer nor both start and end (fields answers, answer, "
        "start, end)"
    )
    MALFORMED = "has a malformed field"
    ELSEWHERE = "its answer is not where its file says"
    AMBIGUOUS = "its answer occurs several times, or not at all"
    OUTSIDE = "its span is not within its document"
    DUPLICATE = "is an exact duplicate"
    PLACE_UNKNOWN = "has several places of evidence, of which one is not known"
    BLANK_DOCUMENT = "its relevant document has no text"
    NO_DOCUMENT = "its relevant document is not in the corpus"
    NO_TEXT = "its text is not in the data"
    UNANSWERABLE = "has no answer"
    NOT_RELEVANT = "has no relevant document in the judgments"
    UNLOCATED = "its evidence is not once in its document"
    DISAGREEMENT = "fewer than 2 of its annotators give an answer"
    REVISED = (
        "is about another revision or copy of its page, and its evidence is not once in the one "
        "that is kept"
    )
    OTHER_SPLIT = "its evidence is in the other --split"
    SHORT = "has its evidence in an article of fewer than 4 passages and 512 tokens"
    NO_PASSAGE = "has a relevant passage that is not in the corpus"
    NOT_TEXT = "has no paragraph as evidence, or a figure or table alone"
    EXCLUDING = "leaves documents out of its own search, which a corpus for all queries cannot"


#: Causes by which the rules of the data leave questions out.
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
    """A question cannot be used; the text says why, by default in the words of the cause."""

    def __init__(self, cause: Cause, text: str = "") -> None:
        super().__init__(text or cause.value)
        self.cause = cause


@dataclass(frozen=True)
class StatedAnswer:
    """The answer that a file states: its text, its half-open span in code points, or both."""

    text: str | None = None
    start: int | None = None
    end: int | None = None
    is_located: bool = field(default=False, kw_only=True)
    """Whether the reader itself found the span, or its format says how spans count: without a text,
    it needs no check.
    """

    @classmethod
    def from_span(cls, span: tuple[int, int]) -> StatedAnswer:
        """Return the answer at a span that needs no check."""
        return cls(None, *span, is_located=True)


@dataclass(frozen=True)
class PassageQuestion:
    """A question as its file states it."""

    file: str
    name: str
    """Name of the question in messages: its id, or its place in the file."""
    text: str
    answer: StatedAnswer | None
    """None if the file says which document is relevant, and not where in it the evidence is."""
    id: str | None = None
    """The id of its query; None to derive one from the content."""
    query: str | None = None
    """The id of its query, if the evidence may have several places: each is yielded by itself, with
    an id of its own, and the file and name of its query. If one is skipped, the query is left out;
    those that overlap are one.
    """
    grade: float = 1
    """Relevance of its document to the query, above 0; the highest of the places in it counts."""
    others: tuple[StatedAnswer, ...] = ()
    """Other answers that the file lists, each as good; the first of all that is in the document
    counts.
    """


@dataclass(frozen=True)
class Passage:
    """A document as its file states it, with its questions."""

    file: str
    place: str
    """Its place in the file, for messages; "" if the file has no other."""
    text: str
    questions: Sequence[PassageQuestion] = ()
    id: str | None = None
    """The id of its document; None to derive one: see `derive_document_ids`."""
    title: str = ""
    """Title of the article that it is part of, "" if there is none; not part of `text`, in which
    spans count.
    """
    question_ids: Sequence[str] = ()
    """Ids that the file states for its questions, skipped ones included."""

    @property
    def where(self) -> str:
        """File and place, for messages."""
        return f"{self.file}: {self.place}" if self.place else self.file

    @property
    def name(self) -> str:
        """File, and the id or the place in it."""
        return f"{self.file}:{self.id or self.place}" if self.place else self.file


@dataclass(frozen=True)
class SkippedText:
    """A file, a row, a text or a question that is not used."""

    name: str
    reason: str
    """One of a few phrases, to be read after a number: `of one sentence`."""
    detail: str = ""
    file: str = ""
    """The file that it is in."""
    number: int = 1
    """The number of such items, if they are not named one by one."""
    cause: Cause | None = None
    """Why a question is not used; None for what is not a question."""

    def __str__(self) -> str:
        return f"{self.file}: question {self.name}: {self.detail}"


#: What a reader yields.
Item: TypeAlias = Passage | SkippedText
Items: TypeAlias = Iterator[Item]


def skip_question(file: str, name: str, why: Cause | ValueError) -> SkippedText:
    """Skip a question for a cause, or for what an error says."""
    cause = Cause.MALFORMED
    if isinstance(why, Cause):
        cause = why
    elif isinstance(why, UnusableError):
        cause = why.cause
    elif isinstance(why, UnlocatedError):
        cause = Cause.UNLOCATED
    return SkippedText(name, UNUSABLE, str(why), file, cause=cause)


def list_places(
    file: str,
    query: str,
    text: str,
    answers: Iterable[StatedAnswer | None],
    first: int = 1,
    grade: float = 1,
) -> list[PassageQuestion]:
    """List a question for each place of a query's evidence, numbered from `first`; the first has
    the id of the query.
    """
    questions = []
    for number, answer in enumerate(answers, start=first):
        name = query if number == 1 else f"{query}#{number}"
        questions.append(PassageQuestion(file, query, text, answer, name, query, grade))
    return questions


@dataclass(frozen=True)
class Claim:
    """Evidence of a query in a document that is read later."""

    file: str
    query: str
    text: str
    find_answers: Callable[[str], Iterable[StatedAnswer | None]]
    """Returns the places in the text of the document; raises ValueError with the reason if the
    query cannot be used.
    """
    grade: float = 1


#: Claims by document.
Claims: TypeAlias = dict[str, list[Claim]]


def add_claims(
    claims: Claims, file: str, query: str, text: str, placed: Iterable[tuple[str, StatedAnswer]]
) -> Iterator[SkippedText]:
    """Add a query with pairs of document and answer to the claims.

    Without a pair, or if `placed` raises ValueError, yield the query and why it is not used.
    """
    try:
        pairs = [*placed]
        if not pairs:
            raise UnusableError(Cause.UNANSWERABLE)
    except ValueError as error:
        yield skip_question(file, query, error)
        return
    for document, answer in pairs:
        claim = Claim(file, query, text, partial(_list_answer, answer))
        claims.setdefault(document, []).append(claim)


def _list_answer(answer: StatedAnswer, document: str) -> list[StatedAnswer]:  # noqa: ARG001
    return [answer]


def settle_claims(documents: Iterable[Item], claims: Claims, corpus: str) -> Items:
    """Yield documents with the questions that are claimed of them, and what is left out; `corpus`
    names where the documents are.
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
    for document, lost in claims.items():
        text = f"its relevant document {document!r} is not in {corpus}"
        for claim in lost:
            yield skip_question(claim.file, claim.query, UnusableError(Cause.NO_DOCUMENT, text))


def read_text(file: str, place: str, text: str, name: str, title: str = "") -> Item:
    """Return a document under its id, or as skipped if it has no text."""
    if not text.strip():
        return SkippedText(name, "empty", file=file)
    return Passage(file, place, text, id=name, title=title)


@dataclass(frozen=True)
class RepeatedTexts:
    """Counts of the questions whose text is asked of several documents."""

    questions: int = 0
    repeated: int = 0

    @property
    def use(self) -> Use:
        """Texts of which the questions can be asked, judging by their texts."""
        share = WITHIN_SHARE * self.questions
        return Use.WITHIN if self.repeated >= max(1, share) else Use.CORPUS

    @property
    def warning(self) -> str:
        """A sentence if a reader should know; else empty."""
        if self.repeated < max(1, MENTIONED_SHARE * self.questions):
            return ""
        return f"{self.describe()}, of which one counts as relevant to each."

    def describe(self) -> str:
        """Return the counts."""
        verb = "has" if self.repeated == 1 else "have"
        return (
            f"{self.repeated:,} of {pluralize(self.questions, 'question')} {verb} a text that is "
            "asked of several documents"
        )


def describe_skipped(skipped: Iterable[SkippedText], examples: int = 2) -> str:
    """Return a sentence with the number of skipped texts by reason and a few names; empty if there
    are none.
    """
    names: dict[str, list[str]] = defaultdict(list)
    counts = Counter[str]()
    for item in sorted(skipped, key=lambda item: item.name):
        names[item.reason].append(": ".join(filter(None, [item.name, item.detail])))
        counts[item.reason] += item.number
    parts = []
    for reason, count in counts.most_common():
        listed = ", ".join(names[reason][:examples])
        more = ", ..." if len(names[reason]) > examples else ""
        parts.append(f"{count:,} {reason} ({listed}{more})")
    return f"Skipped: {'; '.join(parts)}." if parts else ""


@dataclass(frozen=True)
class ReadOptions:
    """Choices that a reader cannot make by itself, as `open_data` explains them."""

    column: str | None = None
    id_column: str | None = None
    split: str | None = None
    revision: str | None = None
    language: str | None = None
    repair: bool = True
    root: Path | None = None
    """Folder in which files have their names; by default that of each file."""

    def name(self, file: Path) -> str:
        """Return the name of a file for messages."""
        return file.name if self.root is None else file.relative_to(self.root).as_posix()


def derive_document_ids(passages: Iterable[Passage], domain: str) -> dict[str, str]:
    """Return an id for each text whose file states none.

    It is the smallest id of its questions, which translations share, as those of XQuAD do. If a
    question lacks an id, or one id is that of questions about different texts, ids cannot identify
    documents: all are digests of the texts, which no other language has, so that cross-lingual
    tasks refuse the data.
    """
    stated = set[str]()
    questions: dict[str, set[str]] = {}
    for passage in passages:
        if passage.id:
            stated.add(passage.id)
        else:
            questions.setdefault(passage.text, set()).update(passage.question_ids)
    names = [name for group in questions.values() for name in group]
    is_unique = len(names) == len({*names})
    ids = {}
    for text, group in questions.items():
        derived = f"{domain}_{min(group)}" if group and is_unique else ""
        if not derived or derived in stated:
            derived = f"{domain}_{digest(text).hex()}"
        ids[text] = derived
    return ids


def name_documents(items: Items, domain: str) -> Items:
    """Yield documents under the ids by which their questions name them, each once; texts without
    questions as they are.

    Whether there are questions follows from the first document, so that a large corpus of texts is
    not held in memory.
    """
    first = list[Item]()
    is_named = True
    for item in items:
        first.append(item)
        if isinstance(item, Passage):
            is_named = bool(item.id) or not (item.questions or item.question_ids)
            break
    if is_named:
        yield from chain(first, items)
        return
    read = [*first, *items]
    derived = derive_document_ids([item for item in read if isinstance(item, Passage)], domain)
    seen = set[tuple[str, str]]()
    for item in read:
        if isinstance(item, SkippedText):
            yield item
            continue
        name = item.id or derived[item.text]
        if (name, item.text) not in seen:
            seen.add((name, item.text))
            yield replace(item, id=name)
