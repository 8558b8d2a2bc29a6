"""Reader of SQuAD-format JSON, v1 and v2."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from posir_build.importing import Passage, Question, SkippedQuestion
from posir_build.records import identity, member, naming, optional
from posir_build.spans import StatedAnswer
from posir_tasks.display.progress import progress

WANTED = "SQuAD-format JSON, data > paragraphs > context and qas > id, question, answers > text, answer_start"


def squad_passages(files: list[Path]) -> Iterator[Passage | SkippedQuestion]:
    """Yield the contexts of files with their questions; contexts in several files are one document by their text.

    Raises:
        DataError: A file cannot be read or is not SQuAD-format JSON.
    """
    for file in progress(files, "Reading"):
        with naming(file, "", WANTED):
            articles = member(json.loads(file.read_text(encoding="utf-8-sig")), "data", list)
        for number, article in enumerate(articles):
            with naming(file, f"article {number}", WANTED):
                paragraphs = member(article, "paragraphs", list)
            for row, paragraph in enumerate(paragraphs):
                place = f"article {number}, paragraph {row}"
                with naming(file, place, WANTED):
                    found = list(_passage(paragraph, str(file), place))
                yield from found


def _passage(paragraph: Any, file: str, place: str) -> Iterable[Passage | SkippedQuestion]:
    asked: list[Question] = []
    for qa in member(paragraph, "qas", list):
        name, text = identity(qa, "id"), member(qa, "question", str)
        if name is None:
            raise ValueError(f"the question {text!r} lacks 'id'")
        try:
            asked.append(Question(file, name, text, _claim(qa)))
        except ValueError as why:
            yield SkippedQuestion(file, name, str(why))
    yield Passage(file, place, member(paragraph, "context", str), asked)


def _claim(qa: Any) -> StatedAnswer:
    """Return text and start of a question's first answer.

    Raises:
        ValueError: There is no answer, or it is incomplete.
    """
    answers = optional(qa, "answers", list)
    if not answers:
        raise ValueError("has no answer")
    try:
        return StatedAnswer(member(answers[0], "text", str), member(answers[0], "answer_start", int))
    except ValueError as error:
        raise ValueError(f"its answer {error}") from None
