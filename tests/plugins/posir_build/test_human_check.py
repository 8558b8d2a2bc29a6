"""The sheet for a human check: stratified sample, marked spans, and agreement."""

import csv
from dataclasses import replace

import pytest
from scipy.stats import binomtest

from posir_build.balance import CELLS
from posir_build.dataset_files import (
    JUDGMENTS,
    count_agreement,
    read_judgments,
    sample_questions,
    write_sheet,
)
from posir_build.records import StageResult
from posir_tasks.base.errors import DataError
from tests.support.construction import document, fill_sheet, question

TEXT = document(
    "d", "First the bell. Then, in the middle, the boat. At last the barn is sold to Ada."
)
QUESTIONS = [
    question(TEXT, f"=What {row}?", "the bell" if row < 18 else "the barn") for row in range(20)
]
RESULT = StageResult((TEXT,), tuple(QUESTIONS))


def test_the_sample_has_every_cell(tmp_path):
    sample = sample_questions(RESULT, 4, seed=1, scheme=CELLS["posir"])
    assert sorted(question.evidence.start > 40 for question in sample) == [False, False, True, True]
    assert sample == sample_questions(
        replace(RESULT, questions=tuple(QUESTIONS[::-1])), 4, seed=1, scheme=CELLS["posir"]
    )
    write_sheet(tmp_path / "sheet.csv", RESULT, sample)
    rows = list(csv.DictReader((tmp_path / "sheet.csv").open(encoding="utf-8-sig")))
    assert len(rows) == 4
    assert rows[0]["question"].startswith("'=What")
    assert any("First 【the bell】. Then" in row["document"] for row in rows)


def test_judgments_are_read_back_with_an_interval(tmp_path):
    for name, rows, delimiter in (
        ("a.csv", [("yes", "Y", "1"), ("yes", "no", ""), ("", "", "")], ","),
        ("b.csv", [("yes", "yes", "ja"), ("no", "no", "nein")], ";"),
    ):
        write_sheet(
            tmp_path / name, RESULT, sample_questions(RESULT, 3, seed=1, scheme=CELLS["posir"])
        )
        fill_sheet(tmp_path / name, JUDGMENTS, *rows, delimiter=delimiter)
    agreement = count_agreement([read_judgments(tmp_path / name) for name in ("a.csv", "b.csv")])
    assert [(row["yes"], row["judged"]) for row in agreement] == [
        (3, 4),
        (2, 4),
        (2, 3),
        (2, 3),
        (4, 5),
    ]
    # Wilson interval for 3 of 4 judgments of two questions, computed by hand.
    assert agreement[0]["rate"].interval == pytest.approx((0.1979, 0.9733), abs=1e-4)
    assert count_agreement([{}])[0]["rate"] is None


def test_agreeing_judgments_do_not_narrow_the_interval():
    sheet = {str(row): dict.fromkeys(JUDGMENTS, row % 4 != 0) for row in range(40)}
    first = count_agreement([sheet])
    second = count_agreement([sheet, sheet])
    assert first[0]["rate"].interval == pytest.approx(
        tuple(binomtest(30, 40).proportion_ci(0.95, "wilson"))
    )
    assert [row["rate"] for row in second[:4]] == [row["rate"] for row in first]
    assert [row["judged"] for row in second] == [80, 80, 80, 80, 120]
    # The three judgments of a question are dependent, too.
    assert second[4]["rate"].interval == pytest.approx(
        tuple(binomtest(40, 40).proportion_ci(0.95, "wilson"))
    )


def test_invalid_sheets_are_rejected(tmp_path):
    sheet = tmp_path / "a.csv"
    write_sheet(sheet, RESULT, QUESTIONS[:1])
    fill_sheet(sheet, JUDGMENTS, ("maybe", "", ""))
    with pytest.raises(DataError, match="row 2: field 'question_ok': 'maybe'"):
        read_judgments(sheet)
    sheet.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="no column id, question_ok"):
        read_judgments(sheet)
    with pytest.raises(DataError, match="no such file"):
        read_judgments(tmp_path / "missing.csv")
