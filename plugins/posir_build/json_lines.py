"""Reader of JSON Lines: one question a line, with its document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from posir_build.importing import Passage, Question, SkippedQuestion
from posir_build.records import Record, as_kind, identity, json_lines, member, naming, optional
from posir_build.spans import StatedAnswer

WANTED = (
    "a JSON object a line with 'context', 'question' and 'start' with 'end', 'answer' with 'start', or 'answer' alone; 'id' "
    "and 'document' may name question and document"
)


def json_lines_passages(file: Path) -> Iterator[Passage | SkippedQuestion]:
    """Yield the document of each line with its question; a line without a question is a document that nobody asks about.

    Raises:
        DataError: The file cannot be read, or a line is not what is wanted.
    """
    for place, record in json_lines(file, WANTED):
        with naming(file, place, WANTED):
            text, question = member(record, "context", str), optional(record, "question", str)
            title, document, query = optional(record, "title", str), identity(record, "document"), identity(record, "id")
        asked = []
        try:
            claim = claim_of(record)
            if question is not None:
                asked.append(Question(str(file), query or place, question, claim, query))
            elif claim != StatedAnswer():
                raise ValueError("has an answer and no 'question'")
        except ValueError as why:
            yield SkippedQuestion(str(file), query or place, str(why))
        yield Passage(str(file), place, text, asked, document, title or "")


def claim_of(record: Record) -> StatedAnswer:
    """Return what a record says of its answer.

    Raises:
        ValueError: A field is of another kind.
    """
    start, end = optional(record, "start", int), optional(record, "end", int)
    answers = optional(record, "answers", dict)
    if answers is None:
        return StatedAnswer(optional(record, "answer", str), start, end)
    # As `datasets` writes a row of SQuAD.
    texts, starts = member(answers, "text", list), member(answers, "answer_start", list)
    if not texts or not starts:
        raise ValueError("has no answer")
    return StatedAnswer(as_kind(texts[0], str), as_kind(starts[0], int))
