"""Offsets that count otherwise are recognized by the texts of answers, for a whole file, and become
code points.
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

#: Texts before each answer whose lengths differ in all ways of counting.
TEXTS = [
    f"\ufeff {'😀' * number} Bei Köln 👍  steht\r\nseit {1870 + number} die Brücke №{number}. 🎉"
    for number in range(1, 9)
]
ANSWERS = [str(1870 + number) for number in range(1, 9)]
#: Offset of a code point of a text, by how it is counted.
COUNT = {
    "code points": lambda _, place: place,
    "UTF-16": lambda text, place: len(text[:place].encode("utf-16-le")) // 2,
    "bytes": lambda text, place: len(text[:place].encode()),
    "from 1": lambda _, place: place + 1,
    "line ends of one": lambda text, place: len(text[:place].replace("\r\n", "\n")),
    "runs of white space": lambda text, place: len(re.sub(r"\s+", " ", text[:place])),
    "after white space": lambda text, place: len(text[:place].lstrip(" \ufeff")),
}


def state(
    way: str, text: str, answer: str, *, has_text: bool = True, end_shift: int = 0
) -> dict[str, Any]:
    start = text.index(answer)
    span = (COUNT[way](text, start), COUNT[way](text, start + len(answer)) - end_shift)
    return dict(zip(("start", "end"), span, strict=True)) | ({"answer": answer} if has_text else {})


def write_lines(folder: Path, rows: list[dict[str, Any]]) -> Path:
    file = folder / "questions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def write_squad(folder: Path, way: str) -> Path:
    paragraphs = [
        {"context": text, "qas": [{"id": answer, "question": f"Wann {answer}?", "answers": [
            {"text": answer, "answer_start": state(way, text, answer)["start"]}]}]}
        for text, answer in zip(TEXTS, ANSWERS, strict=True)
    ]  # fmt: skip
    file = folder / "squad.json"
    file.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return file


def write_beir(folder: Path, way: str) -> Path:
    spans = [state(way, text, answer) for text, answer in zip(TEXTS, ANSWERS, strict=True)]
    names = range(len(TEXTS))
    corpus = [{"_id": f"d{name}", "text": TEXTS[name]} for name in names]
    queries = [
        {"_id": f"q{name}", "text": f"Wann {name}?", "answer": ANSWERS[name]} for name in names
    ]
    qrels = [
        (f"q{name}", f"d{name}", 1, spans[name]["start"], spans[name]["end"]) for name in names
    ]
    return write_beir_folder(folder / "beir", corpus, queries, qrels, ("start", "end"))


def write_own(folder: Path, way: str) -> Path:
    rows = zip(TEXTS, ANSWERS, strict=True)
    return write_lines(
        folder,
        [{"context": text, "question": f"Wann {a}?"} | state(way, text, a) for text, a in rows],
    )


def read_answers(path: Path, **options: Any) -> list[str]:
    data = open_data(path, language="deu-Latn", **options).subsets[0].read()
    texts = dict(zip(data.corpus["id"], data.corpus["text"], strict=True))
    return [span.slice(texts[document]) for _, _, document, span in data.list_questions() if span]


@pytest.mark.parametrize("way", COUNT)
@pytest.mark.parametrize("write", [write_squad, write_own, write_beir])
def test_answers_are_where_the_file_says_however_it_counts(tmp_path: Path, way: str, write: Any):
    path = write(tmp_path, way)
    assert read_answers(path) == ANSWERS
    data = open_data(path).subsets[0].read()
    assert (len(data.warnings), len(data.skipped)) == (int(way != "code points"), 0)
    if way in ("UTF-16", "bytes"):
        assert read_answers(path, repair=False) == []


@pytest.mark.parametrize("way", ["code points", "UTF-16", "bytes"])
def test_ends_that_include_the_last_unit_are_recognized(tmp_path: Path, way: str):
    rows = [
        {"context": text, "question": f"Wann {a}?"} | state(way, text, a, end_shift=1)
        for text, a in zip(TEXTS, ANSWERS, strict=True)
    ]
    assert read_answers(write_lines(tmp_path, rows)) == ANSWERS


@given(
    st.lists(
        st.tuples(st.text("aé😀 \n", max_size=6), st.text("xyß👍", min_size=1, max_size=4)),
        min_size=3,
        max_size=8,
    )
)
def test_every_counting_is_inverted(parts: list[tuple[str, str]]):
    rows = [
        (f"{before}{answer} z", Span(len(before), len(before) + len(answer)))
        for before, answer in parts
    ]
    for convention in CONVENTIONS[:3]:
        encodings = {"Unicode code points": ("utf-32-le", 4), "UTF-16 code units": ("utf-16-le", 2)}
        encoding, size = encodings.get(convention.title, ("utf-8", 1))
        stated = [
            (
                Answer(
                    span.slice(text),
                    *(len(text[:place].encode(encoding)) // size for place in span),
                ),
                text,
            )
            for text, span in rows
        ]
        converted = [convention.convert(answer, text) for answer, text in stated]
        assert [(answer.start, answer.end) for answer in converted] == [
            tuple(span) for _, span in rows
        ]
        assert recognize_convention(stated)[1] == len(rows)


def test_a_file_decides_and_not_a_question():
    """One answer in twenty that is exact by another counting changes nothing; nor do few shifted
    ones.
    """
    right = [(Answer("b", 3), "😀aab")] * 19
    wrong = [(Answer("b", 4), "😀aab")]
    assert recognize_convention(right + wrong)[0].title == "Unicode code points"
    assert recognize_convention([(Answer("b", 4), "aaab")] * 2)[0].title == "Unicode code points"
    assert (
        recognize_convention([(Answer("b", 4), "aaab")] * 3)[0].title
        == "Unicode code points from 1"
    )
    assert recognize_convention(wrong)[0].title == "UTF-16 code units"


def test_spans_without_texts_are_said_to_be_unchecked(tmp_path: Path):
    rows = [
        {"context": text, "question": f"Wann {a}?"}
        | state("code points", text, a, has_text=number > 1)
        for number, (text, a) in enumerate(zip(TEXTS, ANSWERS, strict=True))
    ]
    path = write_lines(tmp_path, rows)
    (warning,) = open_data(path).subsets[0].read().warnings
    assert warning.startswith("2 of 8 spans")
    # The others of the file decide how they count.
    wide = [
        {"context": text, "question": f"Wann {a}?"} | state("bytes", text, a, has_text=number > 1)
        for number, (text, a) in enumerate(zip(TEXTS, ANSWERS, strict=True))
    ]
    assert read_answers(write_lines(tmp_path, wide)) == ANSWERS


def test_data_in_the_layout_has_nothing_to_check():
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
