"""Questions of any format with the ids, documents and spans that they are evaluated by."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
    derive_document_ids,
)
from posir_tasks.sources.spans import REPAIR_DISTANCE, StatedAnswer, find_span
from posir_tasks.text.spans import Span

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
