"""Offset conventions are recognized per file by the answer texts, and offsets are converted to code
points.
"""

import json
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.data.formats.passages import Answer
from posir_tasks.data.offsets import CONVENTIONS, recognize_convention
from posir_tasks.datasets.opening import open_data
from posir_tasks.text.spans import Span
from tests.support.datasets import write_beir_folder

#: Texts whose offsets differ between all units.
TEXTS = [
    f"\ufeff {'😀' * number} Bei Köln 👍  steht\r\nseit {1870 + number} die Brücke №{number}. 🎉"
    for number in range(1, 9)
]
ANSWERS = [str(1870 + number) for number in range(1, 9)]
#: Converts an offset in code points to another unit.
CONVERSIONS = {
    "code points": lambda _, offset: offset,
    "UTF-16": lambda text, offset: len(text[:offset].encode("utf-16-le")) // 2,
    "bytes": lambda text, offset: len(text[:offset].encode()),
    "from 1": lambda _, offset: offset + 1,
    "line ends of one": lambda text, offset: len(text[:offset].replace("\r\n", "\n")),
    "runs of white space": lambda text, offset: len(re.sub(r"\s+", " ", text[:offset])),
    "after white space": lambda text, offset: len(text[:offset].lstrip(" \ufeff")),
}


def build_fields(
    unit: str, text: str, answer: str, *, has_text: bool = True, end_shift: int = 0
) -> dict[str, Any]:
    start = text.index(answer)
    span = (
        CONVERSIONS[unit](text, start),
        CONVERSIONS[unit](text, start + len(answer)) - end_shift,
    )
    return dict(zip(("start", "end"), span, strict=True)) | ({"answer": answer} if has_text else {})


def write_lines(folder: Path, rows: list[dict[str, Any]]) -> Path:
    file = folder / "questions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def write_squad(folder: Path, unit: str) -> Path:
    paragraphs = [
        {"context": text, "qas": [{"id": answer, "question": f"Wann {answer}?", "answers": [
            {"text": answer, "answer_start": build_fields(unit, text, answer)["start"]}]}]}
        for text, answer in zip(TEXTS, ANSWERS, strict=True)
    ]  # fmt: skip
    file = folder / "squad.json"
    file.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return file


def write_beir(folder: Path, unit: str) -> Path:
    spans = [build_fields(unit, text, answer) for text, answer in zip(TEXTS, ANSWERS, strict=True)]
    names = range(len(TEXTS))
    corpus = [{"_id": f"d{name}", "text": TEXTS[name]} for name in names]
    queries = [
        {"_id": f"q{name}", "text": f"Wann {name}?", "answer": ANSWERS[name]} for name in names
    ]
    qrels = [
        (f"q{name}", f"d{name}", 1, spans[name]["start"], spans[name]["end"]) for name in names
    ]
    return write_beir_folder(folder / "beir", corpus, queries, qrels, ("start", "end"))


def write_json_lines(folder: Path, unit: str) -> Path:
    rows = zip(TEXTS, ANSWERS, strict=True)
    return write_lines(
        folder,
        [
            {"context": text, "question": f"Wann {answer}?"} | build_fields(unit, text, answer)
            for text, answer in rows
        ],
    )


def read_answers(path: Path, **options: Any) -> list[str]:
    data = open_data(path, language="deu-Latn", **options).subsets[0].read()
    texts = dict(zip(data.corpus["id"], data.corpus["text"], strict=True))
    return [span.slice(texts[document]) for _, _, document, span in data.list_questions() if span]


@pytest.mark.parametrize("unit", CONVERSIONS)
@pytest.mark.parametrize("write", [write_squad, write_json_lines, write_beir])
def test_answers_are_located_in_all_offset_units(tmp_path: Path, unit: str, write: Any):
    path = write(tmp_path, unit)
    assert read_answers(path) == ANSWERS
    data = open_data(path).subsets[0].read()
    assert (len(data.warnings), len(data.skipped)) == (int(unit != "code points"), 0)
    if unit in ("UTF-16", "bytes"):
        assert read_answers(path, repair=False) == []


@pytest.mark.parametrize("unit", ["code points", "UTF-16", "bytes"])
def test_inclusive_ends_are_recognized(tmp_path: Path, unit: str):
    rows = [
        {"context": text, "question": f"Wann {answer}?"}
        | build_fields(unit, text, answer, end_shift=1)
        for text, answer in zip(TEXTS, ANSWERS, strict=True)
    ]
    assert read_answers(write_lines(tmp_path, rows)) == ANSWERS


@given(
    st.lists(
        st.tuples(st.text("aé😀 \n", max_size=6), st.text("xyß👍", min_size=1, max_size=4)),
        min_size=3,
        max_size=8,
    )
)
def test_conversions_are_inverted(pairs: list[tuple[str, str]]):
    rows = [
        (f"{before}{answer} z", Span(len(before), len(before) + len(answer)))
        for before, answer in pairs
    ]
    for convention in CONVENTIONS[:3]:
        encodings = {"Unicode code points": ("utf-32-le", 4), "UTF-16 code units": ("utf-16-le", 2)}
        encoding, size = encodings.get(convention.title, ("utf-8", 1))
        answers = [
            (
                Answer(
                    span.slice(text),
                    *(len(text[:offset].encode(encoding)) // size for offset in span),
                ),
                text,
            )
            for text, span in rows
        ]
        converted = [convention.convert(answer, text) for answer, text in answers]
        assert [(answer.start, answer.end) for answer in converted] == [
            tuple(span) for _, span in rows
        ]
        assert recognize_convention(answers)[1] == len(rows)


def test_conventions_are_recognized_per_file():
    """One answer of twenty in another unit, or few shifted answers, are ignored."""
    right = [(Answer("b", 3), "😀aab")] * 19
    wrong = [(Answer("b", 4), "😀aab")]
    assert recognize_convention(right + wrong)[0].title == "Unicode code points"
    assert recognize_convention([(Answer("b", 4), "aaab")] * 2)[0].title == "Unicode code points"
    assert (
        recognize_convention([(Answer("b", 4), "aaab")] * 3)[0].title
        == "Unicode code points from 1"
    )
    assert recognize_convention(wrong)[0].title == "UTF-16 code units"


def test_spans_without_answer_texts_cause_a_warning(tmp_path: Path):
    rows = [
        {"context": text, "question": f"Wann {answer}?"}
        | build_fields("code points", text, answer, has_text=number > 1)
        for number, (text, answer) in enumerate(zip(TEXTS, ANSWERS, strict=True))
    ]
    path = write_lines(tmp_path, rows)
    (warning,) = open_data(path).subsets[0].read().warnings
    assert warning.startswith("2 of 8 spans")
    # The other answers of the file determine the unit.
    byte_rows = [
        {"context": text, "question": f"Wann {answer}?"}
        | build_fields("bytes", text, answer, has_text=number > 1)
        for number, (text, answer) in enumerate(zip(TEXTS, ANSWERS, strict=True))
    ]
    assert read_answers(write_lines(tmp_path, byte_rows)) == ANSWERS


def test_spans_in_the_posir_layout_are_exact():
    items = chain.from_iterable(
        subset.read_passages() for subset in open_data("PosIR-Mini").subsets
    )
    answers = [
        answer
        for item in items
        if hasattr(item, "questions")
        for question in item.questions
        for answer in question.answers
    ]
    assert len(answers) == 720
    assert all(answer.is_located for answer in answers)
