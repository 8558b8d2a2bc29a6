"""Test doubles for `posir build`: a language model and a reranker that call a function, and a
retriever that returns every document.
"""

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from posir_build.records import Document, Question, compute_question_id
from posir_build.settings import BuildSettings
from posir_tasks.language_models.asking import Reply
from posir_tasks.language_models.call_log import Completion
from posir_tasks.language_models.chat_client import UnusableAnswerError, parse_answer
from posir_tasks.text.spans import Span


@dataclass
class ScriptedModel:
    """A language model whose answers are written by a function of prompt name and values."""

    write: Callable[[str, Mapping[str, str]], str]
    name: str = "scripted"
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    """The usable answers, parsed."""

    def ask(
        self, prompt: Any, items: Any, build: Any, description: str, check: Any = None
    ) -> list[Any]:
        assert description
        replies = []
        for item in items:
            value = build(item)
            prompt.system.substitute(value)
            prompt.user.substitute(value)
            self.asked.append((prompt.name, value))
            try:
                completion = Completion(self.write(prompt.name, value), "stop", 1, 1)
                answer = parse_answer(completion, prompt.answer, is_bare=prompt.is_bare)
                if check:
                    check(item, answer)
                self.answers.append(answer)
                reply = Reply(self.name, prompt.id, answer)
            except UnusableAnswerError as error:
                reply = Reply(self.name, prompt.id, None, error.fault, error.detail)
            replies.append((item, reply))
        return replies


@dataclass
class TableReranker:
    """A reranker that scores pairs with a function."""

    function: Callable[[str, str], float]
    name: str = "table"
    scored: int = 0

    def score(self, pairs: Any) -> Any:
        self.scored += len(pairs)
        return np.array([self.function(*pair) for pair in pairs], np.float64)


class FullRetriever:
    """A retriever that returns the documents in corpus order."""

    name = "everything"

    def find(self, documents: Any, questions: Any, top_k: int) -> list[list[str]]:
        return [[document.id for document in documents][:top_k] for _ in questions]


def settings(**fields: Any) -> BuildSettings:
    required = {
        "documents": "d",
        "language": "eng-Latn",
        "domain": "d",
        "output": "o",
        "llm": {"model": "m"},
    }
    return BuildSettings.model_validate(required | fields)


def fill_sheet(
    file: Path, columns: Iterable[str], *rows: Iterable[str], delimiter: str = ","
) -> Path:
    """Fill in columns of the first rows of a sheet, and save it like a spreadsheet program."""
    with file.open(encoding="utf-8-sig", newline="") as opened:
        filled = list(csv.DictReader(opened))
    for row, cells in zip(filled, rows, strict=False):
        row.update(zip(columns, cells, strict=True))
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.DictWriter(opened, list(filled[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(filled)
    return file


def document(name: str, text: str, tokens: int = 100) -> Document:
    return Document(name, text, tokens, f"{name}.txt")


def question(
    source: Document,
    text: str,
    evidence: str | None = None,
    position: str = "beginning",
    **fields: Any,
) -> Question:
    """Build a question whose span is the first occurrence of the evidence, if given."""
    span = None
    if evidence is not None:
        start = source.text.index(evidence)
        span = Span(start, start + len(evidence))
    return Question(
        compute_question_id(source.id, text),
        source.id,
        text,
        "an answer",
        position,
        "m",
        "p",
        span=span,
        **fields,
    )
