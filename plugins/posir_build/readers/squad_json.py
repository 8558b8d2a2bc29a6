"""Reader of SQuAD-format JSON, v1 and v2."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BeforeValidator

from posir_build.passages import Passage, Question, SkippedQuestion
from posir_build.readers.records import Id, Record, Text, error_context, validate
from posir_build.spans import StatedAnswer
from posir_tasks.display.progress import progress


class Answer(Record):
    """Text and first character of an answer."""

    text: Text
    answer_start: int


class Answers(Record):
    """The first of a question's answers."""

    answers: Annotated[list[Answer] | None, BeforeValidator(lambda value: value[:1] if type(value) is list else value)] = None


class SquadQuestion(Record, extra="allow"):
    """A question; its answers are checked later, since an invalid one excludes this question only."""

    id: Id
    question: Text


class Paragraph(Record):
    """A context with its questions."""

    context: Text
    qas: list[SquadQuestion]


class Article(Record):
    """The paragraphs of an article."""

    title: Text | None = None
    paragraphs: list[Paragraph]


class SquadFile(Record):
    """A complete file."""

    expected: ClassVar = "SQuAD-format JSON, data > paragraphs > context and qas > id, question, answers > text, answer_start"

    data: list[Article]


def read_squad_json(files: list[Path]) -> Iterator[Passage | SkippedQuestion]:
    """Yield contexts with their questions, equal ones as one document; raise DataError if a file is not SQuAD-format."""
    for file in progress(files, "Reading"):
        with error_context(file, "", SquadFile.expected):
            articles = validate(SquadFile, json.loads(file.read_text(encoding="utf-8-sig"))).data
        for number, article in enumerate(articles):
            for row, paragraph in enumerate(article.paragraphs):
                yield from _read_paragraph(paragraph, str(file), f"data[{number}].paragraphs[{row}]", article.title or "")


def _read_paragraph(paragraph: Paragraph, file: str, place: str, title: str) -> Iterator[Passage | SkippedQuestion]:
    questions = []
    for qa in paragraph.qas:
        try:
            questions.append(Question(file, qa.id, qa.question, _read_answer(qa)))
        except ValueError as error:
            yield SkippedQuestion(file, qa.id, str(error))
    yield Passage(file, place, paragraph.context, questions, title=title)


def _read_answer(question: SquadQuestion) -> StatedAnswer:
    """Return text and start of a question's first answer; raise ValueError if it is missing or incomplete."""
    answers = validate(Answers, question.model_extra).answers
    if not answers:
        raise ValueError("has no answer")
    return StatedAnswer(answers[0].text, answers[0].answer_start)
