"""Reader of folders of Chroma's chunking evaluation: `questions.csv` and `corpora/`.

The format: Smith & Troynikov 2024, Evaluating Chunking Strategies for Retrieval, and their package `chunking_evaluation`, which
names the file `questions_df.csv`. Columns: `question`; `references`, a JSON list of `content`, `start_index` and `end_index`;
`corpus_id`, the name of a file in `corpora/` without its suffix.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from posir_tasks.csv_files import read_csv_rows
from posir_tasks.files import find_files
from posir_tasks.sources.formats.options import ReadOptions
from posir_tasks.sources.formats.passages import Passage, PassageQuestion, SkippedQuestion, SkippedText
from posir_tasks.sources.formats.records import StrictRecord, error_context, validate
from posir_tasks.sources.formats.texts import read_text_file
from posir_tasks.sources.judgments import Judgments
from posir_tasks.sources.spans import StatedAnswer

CORPORA = "corpora"
QUESTIONS = ("questions.csv", "questions_df.csv")
COLUMNS = ("question", "references", "corpus_id")
EXPECTED = f"a table with the columns {', '.join(COLUMNS)}, as Chroma's chunking evaluation has it"
SEVERAL_REFERENCES = "has several excerpts as evidence"


class ReferenceRecord(StrictRecord):
    """An excerpt that answers a question."""

    expected: ClassVar = EXPECTED

    content: str
    start_index: int
    end_index: int


class ReferenceList(StrictRecord):
    """The excerpts of a question."""

    expected: ClassVar = EXPECTED

    references: list[ReferenceRecord]


def find_questions(folder: Path) -> Path | None:
    """Return the file with the questions of a folder; None if it has none."""
    return next((folder / name for name in QUESTIONS if (folder / name).is_file()), None)


def is_chunking_folder(folder: Path) -> bool:
    """Return whether a folder has questions and corpora as the chunking evaluation has them."""
    return find_questions(folder) is not None and (folder / CORPORA).is_dir()


def read_chunking(folder: Path, options: ReadOptions) -> Iterator[Passage | SkippedQuestion | SkippedText]:
    """Yield the corpora of a folder, each with its questions: one for each excerpt that answers it.

    Raises:
        DataError: A file cannot be read, or the questions are not as expected.
    """
    file = find_questions(folder)
    assert file is not None
    asked: dict[str, list[PassageQuestion]] = defaultdict(list)
    for number, row in enumerate(read_csv_rows(file, COLUMNS, EXPECTED), start=2):
        asked[row["corpus_id"]] += _read_questions(file, number, row)
    for passage in read_chunking_texts(folder, options):
        if isinstance(passage, SkippedText):
            yield passage
        else:
            yield replace(passage, questions=asked.pop(passage.id or "", ()))
    for corpus, questions in asked.items():
        for name in dict.fromkeys(question.name for question in questions):
            yield SkippedQuestion(str(file), name, f"its corpus {corpus!r} is not in {CORPORA}/")


def _read_questions(file: Path, number: int, row: Mapping[str, str]) -> Iterator[PassageQuestion]:
    """Yield the question of a row for each of its excerpts."""
    name = f"line {number}"
    with error_context(file, f"question {number - 1}", EXPECTED):
        references = validate(ReferenceList, {"references": json.loads(row["references"])}).references
    ambiguity = SEVERAL_REFERENCES if len(references) > 1 else ""
    for place, reference in enumerate(references, start=1):
        answer = StatedAnswer(reference.content, reference.start_index, reference.end_index)
        identifier = f"q{number - 1}" if place == 1 else f"q{number - 1}#{place}"
        yield PassageQuestion(str(file), name, row["question"], answer, identifier, ambiguity)


def read_chunking_texts(folder: Path, options: ReadOptions) -> Iterator[Passage | SkippedText]:
    """Yield the corpora of a folder."""
    for file in find_files(folder / CORPORA, ""):
        for passage in read_text_file(file, f"{CORPORA}/{file.name}", options):
            yield passage if isinstance(passage, SkippedText) else replace(passage, id=file.stem)


def read_chunking_judgments(folder: Path, options: ReadOptions) -> Judgments:  # noqa: ARG001
    """Return each question with its corpus as the only relevant document."""
    file = find_questions(folder)
    assert file is not None
    rows = {f"q{number}": row for number, row in enumerate(read_csv_rows(file, COLUMNS, EXPECTED), start=1)}
    return Judgments(
        {name: row["question"] for name, row in rows.items()}, {name: {row["corpus_id"]: 1} for name, row in rows.items()}
    )
