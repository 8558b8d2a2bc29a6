"""Questions of any format with ids, documents and spans; a span is repaired only where that is no guess."""

import logging
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from reprlib import repr as short_repr
from typing import Any

import numpy as np
from datasets import Dataset

from posir_tasks.digests import digest
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import DataError
from posir_tasks.evidence import Evidence
from posir_tasks.interventions import NO_SPAN
from posir_tasks.sources.checks import MAX_EXAMPLES
from posir_tasks.sources.data import PositionData
from posir_tasks.sources.formats.passages import (
    NO_ANSWER,
    Passage,
    PassageQuestion,
    SkippedQuestion,
    SkippedText,
    StatedAnswer,
    derive_document_ids,
)
from posir_tasks.text.spans import Span

#: How far a repair may move a span, in characters. Data that is off by trimmed white space, a byte-order mark or a stray title
#: line is off by a few. If the correct start of every answer were lost, another match this near would be mistaken for it in
#: 0.08 % of JaQuAD's questions and at most 0.34 % of an XQuAD language's (Chinese); within 32 characters it would be 6 %.
REPAIR_DISTANCE = 5
OTHER_FORM = "; its document has it in another Unicode form (NFC, NFD): normalize both to the same form"
NON_JOINER = "\u200c"
#: Characters that texts of one language use for each other: Arabic for Persian letters and digits, cedillas for commas below.
SAME_LETTERS = str.maketrans("\u064a\u0649\u0643şţŞŢ٠١٢٣٤٥٦٧٨٩", "\u06cc\u06cc\u06a9șțȘȚ۰۱۲۳۴۵۶۷۸۹")


def find_span(answer: StatedAnswer, document: str, *, repair: bool) -> tuple[Span, bool]:
    """Return the span of an answer, and whether it was moved to its only match nearby, if that is asked for.

    Raises:
        ValueError: The document does not confirm the answer, and it is not or cannot be moved.
    """
    try:
        return resolve_span(answer, document), False
    except ValueError:
        if not repair or answer.start is None or not (answer.text and answer.text.strip()):
            raise
    return repair_span(answer.text, answer.start, document), True


def resolve_span(answer: StatedAnswer, document: str) -> Span:
    """Return the span of a stated answer, if the document confirms it.

    A text without a start has a span if it occurs exactly once in the document.

    Raises:
        ValueError: The stated answer is incomplete, or does not match the document.
    """
    if answer.text is not None and not answer.text.strip():
        raise ValueError("its answer is blank")
    if answer.start is None:
        return _only_occurrence(answer, document)
    if answer.text is None:
        return _within_document(answer.start, answer.end, document)
    end = answer.start + len(answer.text)
    if answer.end not in (None, end):
        raise ValueError(f"its span {answer.start} to {answer.end} is not as long as its answer {short_repr(answer.text)}")
    if answer.start < 0 or document[answer.start : end] != answer.text:
        raise ValueError(_describe_mismatch(answer.text, answer.start, document))
    return Span(answer.start, end)


def _only_occurrence(answer: StatedAnswer, document: str) -> Span:
    if answer.text is None or answer.end is not None:
        raise ValueError("states neither the text of its answer nor both start and end")
    starts = find_occurrences(answer.text, document)
    if len(starts) != 1:
        name = f"its answer {short_repr(answer.text)}"
        if starts:
            raise ValueError(f"{name} occurs {len(starts)} times in its document; state its start")
        if _differs_in_form(answer.text, document):
            raise ValueError(f"{name} does not occur in its document{OTHER_FORM}")
        raise ValueError(f"{name} does not occur in its document; state its start")
    return Span(starts[0], starts[0] + len(answer.text))


def _within_document(start: int, end: int | None, document: str) -> Span:
    if end is None:
        raise ValueError("states the start of its answer but neither its end nor its text")
    if not 0 <= start < end <= len(document):
        raise ValueError(f"its span {start} to {end} is not within its document of {len(document)} characters")
    if not document[start:end].strip():
        raise ValueError(f"its span {start} to {end} is blank")
    return Span(start, end)


def repair_span(answer: str, start: int, document: str) -> Span:
    """Return the only match of an answer within `REPAIR_DISTANCE` characters of its stated start.

    If the text as it is has no match, the text without leading and trailing white space is tried, then its spelling in the
    document: letters of `SAME_LETTERS`, the kind of white space and invisible characters, such as the zero-width non-joiner of
    Persian, may differ. Nothing else may: no case, no punctuation, no Unicode form.

    Args:
        answer: Not blank.
        start: The start that the file states.
        document: The text of the answer's document.

    Raises:
        ValueError: There is no match near the start, or there are several.
    """
    bare = answer.strip()
    for text, stated in ((answer, start), (bare, start + answer.index(bare))):
        starts = find_occurrences(text, document, max(0, stated - REPAIR_DISTANCE), stated + REPAIR_DISTANCE)
        if len(starts) > 1:
            raise ValueError(f"its answer {short_repr(text)} occurs {len(starts)} times near character {stated}")
        if starts:
            return Span(starts[0], starts[0] + len(text))
    spelled = find_spellings(answer, start, document)
    if len(spelled) != 1:
        raise ValueError(_describe_mismatch(answer, start, document))
    return spelled[0]


def find_spellings(answer: str, start: int, document: str) -> list[Span]:
    """Return every span within `REPAIR_DISTANCE` of a start that differs from an answer in its spelling alone."""
    first = max(0, start - REPAIR_DISTANCE)
    # A document may have an invisible character after every letter.
    part = document[first : max(0, start + REPAIR_DISTANCE) + 2 * len(answer)]
    spans = set()
    for joiner in ("", " "):
        letters, bare = _spell(part, joiner), "".join(letter for _, letter in _spell(answer, joiner))
        for place in find_occurrences(bare, "".join(letter for _, letter in letters)) if bare else ():
            spans.add(Span(first + letters[place][0], first + letters[place + len(bare) - 1][0] + 1))
    return [span for span in spans if abs(span.start - start) <= REPAIR_DISTANCE]


def _spell(text: str, joiner: str) -> list[tuple[int, str]]:
    """Return position and letter of each visible character; those of `SAME_LETTERS`, and all white space, are one letter.

    A `joiner` stands for the zero-width non-joiner, for which Persian texts have a space or nothing, too.
    """
    spelled = []
    for position, character in enumerate(text):
        letter = " " if character.isspace() else joiner if character == NON_JOINER else character.translate(SAME_LETTERS)
        if letter and unicodedata.category(letter) != "Cf":
            spelled.append((position, letter))
    return spelled


def find_occurrences(text: str, document: str, first: int = 0, last: int | None = None) -> list[int]:
    """Return every start of a text in a document from `first` to `last`, both included; occurrences may overlap."""
    # `find` counts a negative end from the back.
    end = len(document) if last is None else max(0, last + len(text))
    starts, start = [], document.find(text, first, end)
    while start >= 0:
        starts.append(start)
        start = document.find(text, start + 1, end)
    return starts


def _differs_in_form(text: str, document: str) -> bool:
    """Return whether a text that does not occur in a document does so in another Unicode form."""
    return unicodedata.normalize("NFC", text) in unicodedata.normalize("NFC", document)


def _describe_mismatch(text: str, start: int, document: str) -> str:
    starts = find_occurrences(text, document)
    near = [nearby for nearby in starts if abs(nearby - start) <= REPAIR_DISTANCE]
    if len(near) == 1:
        elsewhere = f"; it is at {near[0]}, and --repair moves it there"
    elif len(find_spellings(text, start, document)) == 1:
        elsewhere = "; its document spells it otherwise (letters, spaces, invisible characters), which --repair accepts"
    elif starts:
        elsewhere = f"; the nearest match is at {min(starts, key=lambda candidate: abs(candidate - start))}"
    elif _differs_in_form(text, document):
        elsewhere = OTHER_FORM
    else:
        elsewhere = " or anywhere else in its document"
    return f"its answer {short_repr(text)} is not at character {start}{elsewhere}"


logger = logging.getLogger(__name__)

#: Reason of a skipped question, after a number.
UNUSABLE = "questions without a usable answer"


@dataclass(frozen=True)
class RepairedSpan:
    """A question whose span was repaired."""

    file: str
    question: str
    answer: StatedAnswer
    """The answer as the file states it."""
    span: Span


@dataclass
class ImportedData:
    """Documents and queries that were read from files, and what was skipped or repaired."""

    documents: dict[str, str] = field(default_factory=dict)
    """Document id to text."""
    queries: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Query id to a row of `queries.parquet`, with the relevant document's id as `corpus-id`."""
    unsuited: dict[str, SkippedQuestion] = field(default_factory=dict)
    """Ids of queries that cannot be evaluated by one position, and why: there is no span, `NO_SPAN`, or there are several."""
    skipped: list[SkippedQuestion] = field(default_factory=list)
    """Questions that were skipped, in the order of the files."""
    skipped_texts: list[SkippedText] = field(default_factory=list)
    repaired: list[RepairedSpan] = field(default_factory=list)
    titles: dict[str, str] = field(default_factory=dict)
    """Document id to the title of the article that it is part of."""


def collect_questions(
    passages: Iterable[Passage | SkippedQuestion | SkippedText], domain: str, *, repair: bool
) -> ImportedData:
    """Give every passage and question an id, and every question its span.

    Raises:
        DataError: A passage is blank, or two different ones share an id.
    """
    imported = ImportedData()
    passages = _separate_repeated_ids(list(passages))
    derived = derive_document_ids([passage for passage in passages if isinstance(passage, Passage)], domain)
    for passage in passages:
        if isinstance(passage, SkippedQuestion):
            imported.skipped.append(passage)
        elif isinstance(passage, SkippedText):
            imported.skipped_texts.append(passage)
        else:
            _add_passage(imported, passage, passage.id or derived[passage.text], repair=repair)
    return imported


def _separate_repeated_ids(
    passages: Sequence[Passage | SkippedQuestion | SkippedText],
) -> list[Passage | SkippedQuestion | SkippedText]:
    """Return passages whose questions keep an id only if no other question has it: files of two languages may share ids."""
    contents: dict[str, set[tuple[str, str, StatedAnswer | None]]] = defaultdict(set)
    for passage in (item for item in passages if isinstance(item, Passage)):
        for question in passage.questions:
            if question.id:
                contents[question.id].add((passage.id or passage.text, question.text, question.answer))
    repeated = {name for name, known in contents.items() if len(known) > 1}
    if not repeated:
        return list(passages)
    first = ", ".join(sorted(repeated)[:MAX_EXAMPLES])
    logger.warning(
        "%s of several questions (first %s): the ids of these questions are derived from their content",
        pluralize(len(repeated), "id is that", "ids are those"),
        first,
    )
    return [
        replace(
            passage,
            questions=[replace(item, id=None) if item.id in repeated else item for item in passage.questions],
        )
        if isinstance(passage, Passage)
        else passage
        for passage in passages
    ]


def _add_passage(imported: ImportedData, passage: Passage, document: str, *, repair: bool) -> None:
    if not passage.text.strip():
        raise DataError(f"{passage.where}: the text is empty; every document must have content.")
    if imported.documents.setdefault(document, passage.text) != passage.text:
        raise DataError(f"{passage.where}: another document has the id {document!r} too; ids must be unique.")
    if passage.title.strip():
        # A text that several articles have is part of the first.
        imported.titles.setdefault(document, passage.title.strip())
    for question in passage.questions:
        try:
            _add_question(imported, question, document, repair=repair)
        except ValueError as error:
            imported.skipped.append(SkippedQuestion(question.file, question.name, str(error)))


def _add_question(imported: ImportedData, question: PassageQuestion, document: str, *, repair: bool) -> None:
    """Add a question about a document.

    Raises:
        ValueError: The question is to be skipped; the text says why.
        DataError: Another question has its id.
    """
    if not question.text.strip():
        raise ValueError("its text is empty")
    text = imported.documents[document]
    span, is_repaired = Span(*NO_SPAN), False
    if question.answer is not None:
        span, is_repaired = find_span(question.answer, text, repair=repair)
    query: dict[str, Any] = {
        "_id": question.id or digest(document, question.name, question.text, *span, size=16).hex(),
        "text": question.text,
        "pos_char_span": [span.start, span.end],
        "pos_char_length": len(text),
        "corpus-id": document,
    }
    if imported.queries.setdefault(query["_id"], query) is not query:
        if imported.queries[query["_id"]] == query:
            raise ValueError("is an exact duplicate")
        raise DataError(f"{question.file}: question {question.name}: another question has the id too; ids must be unique.")
    if question.ambiguity or question.answer is None:
        imported.unsuited[query["_id"]] = SkippedQuestion(question.file, question.name, question.ambiguity or NO_ANSWER)
    if is_repaired:
        assert question.answer is not None
        imported.repaired.append(RepairedSpan(question.file, question.name, question.answer, span))


def to_position_data(imported: ImportedData, revision: str, count_tokens: Callable[[str], int]) -> PositionData:
    """Return questions with their documents as every command takes them.

    Args:
        imported: Questions and documents.
        revision: Revision of the files.
        count_tokens: Returns the length of a document in tokens.
    """
    queries = list(imported.queries.values())
    tokens: Mapping[str, int] = {
        document: max(1, count_tokens(imported.documents[document]))
        for document in dict.fromkeys(query["corpus-id"] for query in queries)
    }
    moved = len(imported.repaired)
    spans = np.array([query["pos_char_span"] for query in queries], np.int64).reshape(-1, 2)
    documents = [query["corpus-id"] for query in queries]
    return PositionData(
        corpus=Dataset.from_dict({"id": list(imported.documents), "text": list(imported.documents.values())}),
        queries=Dataset.from_dict({"id": list(imported.queries), "text": [query["text"] for query in queries]}),
        evidence=Evidence(
            query_ids=list(imported.queries),
            document_ids=documents,
            starts=spans[:, 0],
            ends=spans[:, 1],
            characters=np.array([query["pos_char_length"] for query in queries], np.int64),
            tokens=np.array([tokens[document] for document in documents], np.int64),
            clusters=tuple(imported.titles.get(document, "") for document in documents) if imported.titles else (),
        ),
        revision=revision,
        warnings=(
            (
                f"Answers to {moved:,} of {pluralize(len(queries), 'question')} are not where the file says: moved to the only "
                f"match within {REPAIR_DISTANCE} characters.",
            )
            if moved
            else ()
        ),
        skipped=(
            *imported.skipped_texts,
            *(SkippedText(skipped.question, UNUSABLE, skipped.reason) for skipped in imported.skipped),
        ),
        unsuited={name: skipped.reason for name, skipped in imported.unsuited.items()},
    )
