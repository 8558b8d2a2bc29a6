"""Reader of JSON Lines: one question per line, with its document."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from posir_build.passages import Passage, Question, SkippedQuestion
from posir_build.readers.records import Id, Record, Text, read_records, validate
from posir_build.spans import StatedAnswer


class Line(Record, extra="allow"):
    """A document, and perhaps a question; its answer is checked later, since an invalid one excludes this question only."""

    expected: ClassVar = (
        "one JSON object per line with 'context', 'question' and 'start' with 'end', 'answer' with 'start', or 'answer' alone; "
        "'id' and 'document' may name question and document"
    )

    context: Text
    question: Text | None = None
    title: Text | None = None
    document: Id | None = None
    id: Id | None = None


class SquadAnswers(Record):
    """Answers as `datasets` writes a row of SQuAD, of which the first counts."""

    text: list[Text]
    answer_start: list[int]


class LineAnswer(Record):
    """Every documented way to state an answer."""

    answer: Text | None = None
    start: int | None = None
    end: int | None = None
    answers: SquadAnswers | None = None


def read_json_lines(file: Path) -> Iterator[Passage | SkippedQuestion]:
    """Yield each line's document, with its question if it has one; raise DataError if the file is not as expected."""
    for place, line in read_records(file, Line):
        name, questions = line.id or place, []
        try:
            answer = _read_answer(line)
            if line.question is not None:
                questions.append(Question(str(file), name, line.question, answer, line.id))
            elif answer != StatedAnswer():
                raise ValueError("has an answer but no 'question'")
        except ValueError as error:
            yield SkippedQuestion(str(file), name, str(error))
        yield Passage(str(file), place, line.context, questions, line.document, line.title or "")


def _read_answer(line: Line) -> StatedAnswer:
    """Return the answer that a line states; raise ValueError if a type is wrong or `answers` is empty."""
    stated = validate(LineAnswer, line.model_extra)
    if stated.answers is None:
        return StatedAnswer(stated.answer, stated.start, stated.end)
    if not stated.answers.text or not stated.answers.answer_start:
        raise ValueError("has no answer")
    return StatedAnswer(stated.answers.text[0], stated.answers.answer_start[0])
