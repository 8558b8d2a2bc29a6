"""Folders of Chroma's chunking evaluation: corpora with questions that several excerpts answer."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from posir_score.chunk_scoring import read_excerpts
from posir_tasks.errors import DataError
from posir_tasks.sources.opening import open_data

TEXTS = {"bells": "The bell was cast in 1770. It fell in 1804. Nobody rang it.", "towers": "The tower burned down twice."}


def excerpt(corpus: str, content: str) -> dict[str, Any]:
    """Return an excerpt of a text."""
    start = TEXTS[corpus].index(content)
    return {"content": content, "start_index": start, "end_index": start + len(content)}


QUESTIONS = [
    ("When was it cast, and when did it fall?", [excerpt("bells", "1770"), excerpt("bells", "1804")], "bells"),
    ("How often did the tower burn?", [excerpt("towers", "twice")], "towers"),
]


def write_chunking_folder(folder: Path, questions: Any = QUESTIONS, name: str = "questions.csv") -> Path:
    """Write a folder as the evaluation has it."""
    (folder / "corpora").mkdir(parents=True, exist_ok=True)
    for corpus, text in TEXTS.items():
        (folder / "corpora" / f"{corpus}.md").write_text(text)
    with (folder / name).open("w", newline="") as file:
        rows = [
            (text, excerpts if isinstance(excerpts, str) else json.dumps(excerpts), corpus)
            for text, excerpts, corpus in questions
        ]
        csv.writer(file).writerows([("question", "references", "corpus_id"), *rows])
    return folder


@pytest.mark.parametrize("name", ["questions.csv", "questions_df.csv"])
def test_all_excerpts_of_a_question_are_read(tmp_path: Path, name: str):
    data = read_excerpts(open_data(write_chunking_folder(tmp_path, name=name)))
    assert data.documents == TEXTS
    (_, first), (_, second) = data.questions
    assert [excerpt.span.of(TEXTS["bells"]) for excerpt in first] == ["1770", "1804"]
    assert [excerpt.span.of(TEXTS["towers"]) for excerpt in second] == ["twice"]
    assert data.clusters.tolist() == [0, 1]
    assert data.skipped == 0


def test_position_data_has_the_questions_with_a_single_excerpt(tmp_path: Path):
    opened = open_data(write_chunking_folder(tmp_path))
    (subset,) = opened.with_questions("the test").subsets
    assert subset.read().queries["text"][:] == ["How often did the tower burn?"]
    assert subset.judgments.grades == {"q1": {"bells": 1}, "q2": {"towers": 1}}


def test_questions_without_an_excerpt_in_a_corpus_are_skipped(tmp_path: Path):
    wrong = {"content": "1805", "start_index": 38, "end_index": 42}
    questions = [*QUESTIONS, ("When?", [wrong], "bells"), ("Where?", [wrong], "absent"), ("Why?", [], "bells")]
    data = read_excerpts(open_data(write_chunking_folder(tmp_path, questions)))
    assert (len(data.questions), data.skipped) == (2, 2)


@pytest.mark.parametrize(
    ("references", "message"),
    [
        ("{", "question 1: "),
        ('[{"content": "1770"}]', "question 1: 'references[0].start_index' is missing"),
        ("3", "question 1: 'references' must be a valid list"),
    ],
)
def test_invalid_references_are_one_message(tmp_path: Path, references: str, message: str):
    with pytest.raises(DataError) as error:
        read_excerpts(open_data(write_chunking_folder(tmp_path, [("When?", references, "bells")])))
    assert message in str(error.value)
    assert "as Chroma's chunking evaluation has it" in str(error.value)
