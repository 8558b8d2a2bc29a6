"""Markers of missing answers are not evidence, and listed answers are tried in order."""

import json
from pathlib import Path
from typing import Any

import pytest

import posir
from posir_score.evidence_spans import read_evidence_data
from posir_tasks.base.errors import PosirError
from posir_tasks.data.formats.passages import Answer, Cause, SearchScope
from posir_tasks.data.markers import is_flagged_unanswerable, is_no_answer_marker
from posir_tasks.datasets.opening import open_data
from tests.support.datasets import write_beir_folder

TEXT = "The mill burned down in 1901. Nobody knows why it did."
QUAC = f"{TEXT} CANNOTANSWER"


def list_answers(*answers: tuple[str, int]) -> dict[str, Any]:
    return {
        "answers": {
            "text": [text for text, _ in answers],
            "answer_start": [start for _, start in answers],
        }
    }


def write_questions(folder: Path, suffix: str, rows: list[dict[str, Any]]) -> Path:
    """Write rows with context, question and other fields in a question format."""
    file = folder / f"questions{suffix}"
    if suffix == ".json":
        paragraphs = [
            {
                "context": row["context"],
                "qas": [{key: value for key, value in row.items() if key != "context"}],
            }
            for row in rows
        ]
        file.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    elif suffix == ".jsonl":
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        import polars as pl

        pl.DataFrame(rows).write_parquet(file)
    return file


def read_answers(path: Path, **options: Any) -> tuple[list[str], list[str], tuple[str, ...]]:
    """Return the evidence, the reasons for skipping questions, and the warnings."""
    data = open_data(path, language="eng-Latn", **options).subsets[0].read()
    texts = dict(zip(data.corpus["id"], data.corpus["text"], strict=True))
    answers = [
        span.slice(texts[document]) for _, _, document, span in data.list_questions() if span
    ]
    return answers, [skipped.detail for skipped in data.skipped], data.warnings


FORMATS = [".json", ".jsonl", ".parquet"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_quac_markers_are_not_evidence(tmp_path: Path, suffix: str):
    rows = [
        {"context": QUAC, "question": "When?", **list_answers(("in 1901", 21))},
        {"context": QUAC, "question": "Why?", **list_answers(("CANNOTANSWER", len(TEXT) + 1))},
        # Half of the annotators give no answer; in the next row, a minority.
        {
            "context": QUAC,
            "question": "Who?",
            **list_answers(("The mill", 0), ("CANNOTANSWER", len(TEXT) + 1)),
        },
        {
            "context": QUAC,
            "question": "What?",
            **list_answers(("CANNOTANSWER", 55), ("The mill", 0), ("burned", 9)),
        },
    ]
    answers, skipped, _ = read_answers(write_questions(tmp_path, suffix, rows))
    assert (answers, skipped) == (["in 1901", "The mill"], [Cause.UNANSWERABLE] * 2)


#: Answer, start, document, and True for a marker.
MARKERS: list[tuple[str, int | None, str, bool]] = [
    ("CANNOTANSWER", 55, QUAC, True),
    ("CANNOTANSWER", None, TEXT, True),
    ("NO_ANSWER", 0, TEXT, True),
    ("[NO_ANSWER]", 3, TEXT, True),
    ("<no_answer>", -1, TEXT, True),
    ("", 0, TEXT, True),
    (" ", -1, TEXT, True),
    ("unknown", -1, TEXT, True),
    ("Unanswerable", None, TEXT, True),
    ("No Answer Present.", None, TEXT, True),
    ("unknown", 55, f"{TEXT} unknown", True),
    ("[CLS]", 0, f"[CLS] {TEXT}", True),
    ("<s>", 0, f"<s> {TEXT}", True),
    ("unknown", 12, "Its age is unknown to us.", False),
    ("unknown", 11, "Its age is unknown", False),
    ("unknown", 8, "Author: unknown", False),
    ("Unanswerable", 0, "Unanswerable questions are in SQuAD 2.0.", False),
    ("[CLS]", 10, "BERT puts [CLS] before a text.", False),
    ("none", 4, "Of these none is left.", False),
    ("N/A", 9, "Chlorine N/A, Iron 3.", False),
    ("in 1901", 21, TEXT, False),
]


@pytest.mark.parametrize(("text", "start", "document", "expected"), MARKERS)
def test_markers_are_distinguished_from_words(
    text: str, start: int | None, document: str, expected: bool
):
    assert is_no_answer_marker(Answer(text, start), document) == expected


@pytest.mark.parametrize(
    "flag",
    [
        {"is_impossible": True},
        {"is_impossible": 1},
        {"is_impossible": "true"},
        {"unanswerable": True},
        {"answerable": False},
        {"has_answer": 0},
        {"isAnswerAbsent": 1.0},
        {"is_answerable": "False"},
    ],
)
@pytest.mark.parametrize("suffix", FORMATS)
def test_flagged_questions_are_unanswerable(tmp_path: Path, flag: dict[str, Any], suffix: str):
    answerable = {
        name: not value if isinstance(value, bool) else None for name, value in flag.items()
    }
    rows = [
        {"context": TEXT, "question": f"{number}?", **list_answers(("in 1901", 21)), **row}
        for number, row in enumerate((flag, answerable))
    ]
    answers, skipped, _ = read_answers(write_questions(tmp_path, suffix, rows))
    assert (answers, skipped) == (["in 1901"], [Cause.UNANSWERABLE])
    assert (
        is_flagged_unanswerable(flag),
        is_flagged_unanswerable(answerable),
        is_flagged_unanswerable({}),
    ) == (
        True,
        False,
        False,
    )


def test_markers_and_flags_in_beir_queries(tmp_path: Path):
    queries = [
        {"_id": "a", "text": "When?", "answer": "in 1901"},
        {"_id": "b", "text": "Why?", "answer": "CANNOTANSWER"},
        {"_id": "c", "text": "Who?", "answer": "The mill", "metadata": {"is_impossible": True}},
    ]
    folder = write_beir_folder(
        tmp_path / "b", [{"_id": "d", "text": QUAC}], queries, [(name, "d", 1) for name in "abc"]
    )
    assert read_answers(folder)[:2] == (["in 1901"], [Cause.UNANSWERABLE] * 2)


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_first_answer_in_the_document_is_used(tmp_path: Path, suffix: str):
    rows = [
        {
            "context": TEXT,
            "question": "1?",
            **list_answers(("1902", 24), ("burned", 9), ("mill", 4)),
        },
        {"context": TEXT, "question": "2?", **list_answers(("mill", 4), ("burned", 9))},
        {"context": TEXT, "question": "3?", **list_answers(("1902", 24), ("1903", 24))},
        {"context": TEXT, "question": "blank?", **list_answers(("", 0), ("burned", 9))},
        {"context": TEXT, "question": "word?", **list_answers(("unknown", 24), ("burned", 9))},
        # The first answer is moved by one character.
        {"context": TEXT, "question": "4?", **list_answers(("mill", 5), ("burned", 9))},
    ]
    answers, skipped, warnings = read_answers(path := write_questions(tmp_path, suffix, rows))
    assert (answers, len(skipped)) == (["burned", "mill", "burned", "burned", "mill"], 1)
    assert "1902" in skipped[0]
    assert [warning[:15] for warning in warnings] == ["Answers to 1 of", "1 question of 5"]
    assert read_answers(path, repair=False)[0] == ["burned", "mill", "burned", "burned", "burned"]


def test_an_invalid_answer_does_not_affect_other_answers(tmp_path: Path):
    rows = [
        {
            "context": TEXT,
            "question": "1?",
            "answers": [{"text": "1901"}, {"text": "mill", "answer_start": 4}],
        },
        {"context": TEXT, "question": "2?", "answers": [[4, "mill"], [9, "burned"]]},
        {"context": TEXT, "question": "3?", "answers": [{"text": "1901"}]},
    ]
    answers, skipped, _ = read_answers(write_questions(tmp_path, ".jsonl", rows))
    assert (answers, len(skipped)) == (["mill", "mill"], 1)


#: Documents that differ in a name, like policies.
POLICIES = [
    f"The {name} site keeps data for {years} years."
    for years, name in enumerate(("red", "blue", "green"), start=2)
]


def build_rows(questions: list[str]) -> list[dict[str, Any]]:
    """Build a row for each question and document, with the years as the answer."""
    return [
        {
            "context": text,
            "question": question.format(text[4:9]),
            **list_answers((f"{years} years", text.index(f"{years} y"))),
        }
        for years, text in enumerate(POLICIES, start=2)
        for question in questions
    ]


@pytest.mark.parametrize("suffix", FORMATS)
def test_repeated_questions_are_about_their_own_document(tmp_path: Path, suffix: str):
    path = write_questions(tmp_path, suffix, build_rows(["How long?", "how  long?", "What of {}?"]))
    opened = open_data(path)
    assert (opened.search_scope, opened.repeated) == (
        SearchScope.DOCUMENT,
        type(opened.repeated)(9, 6),
    )
    options: dict[str, Any] = {
        "language": "eng-Latn",
        "domain": "policies",
        "output": tmp_path / "out",
    }
    for function in (
        lambda: posir.import_data(path, **options),
        lambda: posir.stats(path),
        opened.require_corpus,
    ):
        with pytest.raises(PosirError, match=r"6 of 9 questions .*--scope corpus"):
            function()
    assert not (tmp_path / "out").exists()
    posir.import_data(path, scope="corpus", **options)
    assert open_data(path, scope="corpus").search_scope is SearchScope.CORPUS
    assert posir.stats(path, scope="corpus").exit_status == 0
    assert (
        open_data(
            write_questions(tmp_path, suffix, build_rows(["What of {}?"])), scope="document"
        ).search_scope
        is SearchScope.DOCUMENT
    )
    assert open_data(tmp_path / "out", scope="document").search_scope is SearchScope.DOCUMENT


def test_chunks_for_repeated_questions_are_scored_in_their_document(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    path = write_questions(tmp_path, ".jsonl", build_rows(["How long?", "What of {}?"]))
    assert (
        read_evidence_data(open_data(path)).within_document,
        read_evidence_data(open_data(path, scope="corpus")).within_document,
    ) == (True, False)
    assert [record.getMessage()[:29] for record in caplog.records] == [
        "questions: 3 of 6 questions h"
    ]


def test_few_repeated_questions_cause_a_warning(tmp_path: Path):
    path = write_questions(
        tmp_path, ".jsonl", build_rows(["How long?", "What of {}?", "Why does {} keep it?"])
    )
    assert open_data(path).search_scope is SearchScope.CORPUS
    assert any(
        warning.startswith("3 of 9 questions have a text") for warning in read_answers(path)[2]
    )
    assert (
        open_data(
            write_questions(tmp_path, ".jsonl", build_rows(["What of {}?"]))
        ).repeated.repeated
        == 0
    )


def test_copies_and_multi_document_queries_are_not_repeated_questions(tmp_path: Path):
    corpus = [
        {"_id": f"d{number}", "text": text}
        for number, text in enumerate((POLICIES[0], POLICIES[1], POLICIES[0]))
    ]
    queries = [{"_id": "all", "text": "Who keeps data?", "answer": "keeps data"}]
    queries += [
        {"_id": f"copy{number}", "text": "How long?", "answer": "2 years"} for number in (0, 2)
    ]
    qrels = [("all", "d0", 1), ("all", "d1", 1), ("copy0", "d0", 1), ("copy2", "d2", 1)]
    opened = open_data(write_beir_folder(tmp_path / "beir", corpus, queries, qrels))
    assert opened.repeated == type(opened.repeated)(3, 0)
    without_spans = [{"_id": "all", "text": "Who keeps data?"}]
    opened = open_data(write_beir_folder(tmp_path / "unplaced", corpus, without_spans, qrels[:2]))
    assert (opened.repeated.repeated, opened.search_scope) == (0, SearchScope.CORPUS)
