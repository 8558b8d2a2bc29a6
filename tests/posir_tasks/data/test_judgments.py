"""Grades and audits of judgments do not depend on the format or the order of rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import posir
from posir_tasks.base.errors import DataError
from posir_tasks.data.data import Judgments, PositionData, digest_queries
from posir_tasks.data.formats.passages import Cause, skip_question
from posir_tasks.data.grades import MAX_GRADE, collect_grades, read_grade
from posir_tasks.data.judgment_audit import JudgmentAudit, SuspiciousItems
from posir_tasks.data.posir import read_domain
from posir_tasks.data.repository import LocalRepository
from posir_tasks.text.spans import Span
from posir_tasks.values.evidence import Place
from tests.support.datasets import posir_tables, write_beir_folder, write_domain


@pytest.mark.parametrize(
    "value",
    ["1", "1.0", "1e0", "+1", " 1 ", "01", "10e-1", 1, 1.0, True, np.int32(1), np.float32(1)],
)
def test_whole_numbers_become_integers(value):
    grade = read_grade(value)
    assert (grade, type(grade)) == (1, int)


@given(st.decimals(-1000, 1000, allow_nan=False, places=4))
def test_fractions_are_preserved(value: Decimal):
    assert read_grade(str(value)) == float(value)
    assert read_grade(float(value)) == float(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "nan",
        "NaN",
        "inf",
        "-Infinity",
        "1_0",
        "1,5",
        "0x1",
        "yes",
        "1e400",
        "1e16",
        "١",
        "--1",
        "1 2",
        ".",
        "1e",
    ],
)
def test_other_strings_are_rejected(value):
    with pytest.raises(ValueError, match="must be a number"):
        read_grade(value)


@pytest.mark.parametrize(
    "value", [None, float("nan"), float("-inf"), MAX_GRADE + 2, [1], 1 + 0j, Fraction(10**30)]
)
def test_other_values_are_rejected(value):
    with pytest.raises(ValueError, match="must be a number"):
        read_grade(value)


JUDGED_ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.sampled_from([-1, 0, 0.5, 1, 2])),
    max_size=8,
)


@given(JUDGED_ROWS, st.randoms())
def test_grades_do_not_depend_on_row_order(rows, random):
    shuffled = [*rows]
    random.shuffle(shuffled)
    grades, others = collect_grades(rows), collect_grades(shuffled)
    assert (grades.by_query, grades.contradictions) == (others.by_query, others.contradictions)
    value = {
        (query, document): [grade for *pair, grade in rows if pair == [query, document]]
        for query, document, _ in rows
    }
    assert grades.by_query == {
        query: {
            document: max(values) for (other, document), values in value.items() if other == query
        }
        for query, _ in value
    }
    assert set(grades.contradictions) == {
        pair for pair, values in value.items() if len({*values}) > 1
    }


def write_qrels(folder: Path, rows: list[tuple[str, str, object]], kind: str) -> Path:
    """Write qrels in BEIR or TREC format, and return the path for `--data`."""
    if kind == "beir":
        corpus = [{"_id": f"d{row}", "text": f"Text {row}."} for row in range(3)]
        queries = [{"_id": f"q{row}", "text": f"Question {row}?"} for row in range(2)]
        return write_beir_folder(folder / "beir", corpus, queries, rows)
    (file := folder / "judged.qrels").write_text(
        "".join(f"{query} 0 {name} {grade}\n" for query, name, grade in rows)
    )
    return file


@pytest.mark.parametrize("kind", ["beir", "trec"])
def test_beir_and_trec_have_the_same_grades(tmp_path, kind):
    rows = [
        ("q0", "d0", "0.50"),
        ("q0", "d1", "1e0"),
        ("q0", "d2", "-2"),
        ("q1", "d0", "0"),
        ("q1", "d0", "1"),
        ("q1", "d0", "1"),
    ]
    (subset,) = posir.open_data(write_qrels(tmp_path, rows, kind), language="eng-Latn").subsets
    assert subset.judgments.grades == {"q0": {"d0": 0.5, "d1": 1, "d2": -2}, "q1": {"d0": 1}}
    assert subset.judgments.contradictions == (("q1", "d0"),)
    reordered = Judgments(
        subset.judgments.queries, {"q1": {"d0": 1}, "q0": {"d1": 1, "d0": 0.5, "d2": -2}}
    )
    assert subset.judgments.digest() == reordered.digest()


GRADES = st.sampled_from(
    [
        "0",
        "1",
        "2",
        "-1",
        "1.0",
        "0.5",
        ".5",
        "5e-1",
        "+2",
        "1e1",
        "nan",
        "1e99",
        "1_0",
        "one",
        "0x1",
    ]
)


@given(
    st.lists(
        st.tuples(st.sampled_from(["q0", "q1"]), st.sampled_from(["d0", "d1", "zz"]), GRADES),
        min_size=1,
        max_size=6,
    ),
    st.sampled_from(["beir", "trec"]),
)
def test_grades_of_random_qrels_match_pandas(rows, kind):
    with TemporaryDirectory() as folder:
        # Qrels files are recognized by their first lines.
        padding = [("q0", f"x{row}", "1") for row in range(20)]
        file = write_qrels(Path(folder), [*padding, *rows], kind)
        frame = pd.DataFrame([*padding, *rows], columns=["query", "document", "grade"])
        frame["grade"] = pd.to_numeric(
            frame["grade"].mask(frame["grade"].str.contains("[_xa]")), errors="coerce"
        )
        try:
            (subset,) = posir.open_data(file, language="eng-Latn").subsets
            grades = subset.judgments.grades
        except DataError:
            assert frame["grade"].isna().any() or frame["grade"].max() > MAX_GRADE
            return
    assert frame["grade"].notna().all()
    expected = frame.groupby(["query", "document"])["grade"].agg(["max", "nunique"])
    assert {
        (query, name): grade
        for query, query_grades in grades.items()
        for name, grade in query_grades.items()
    } == dict(expected["max"])
    assert {*subset.judgments.contradictions} == {*expected.index[expected["nunique"] > 1]}


@pytest.mark.parametrize("value", ["nan", "1e300", "0,9"])
@pytest.mark.parametrize("kind", ["beir", "trec"])
def test_errors_name_the_location_of_a_malformed_grade(tmp_path, kind, value):
    rows = [*(("q0", f"d{row}", 1) for row in range(25)), ("q1", "d1", value)]
    location = (
        "test.tsv: field 'score': .*first: 25"
        if kind == "beir"
        else "judged.qrels: (line 26|query q1, document d1: grade)"
    )
    with pytest.raises(DataError, match=location):
        posir.open_data(write_qrels(tmp_path, rows, kind), language="eng-Latn").subsets[0].judgments  # noqa: B018


def test_digests_distinguish_fractional_grades():
    data = PositionData.from_questions(
        {"d": "Some text."}, {"a": ("Q?", "d", Span(0, 4)), "b": ("Q?", "d", Span(5, 9))}
    )
    digests = [
        digest_queries(
            data.questions, data.evidence, {"a": Place("q", grade), "b": Place("q", grade)}
        )
        for grade in (1, 2, 0.5, 0.9)
    ]
    # The digest of whole grades must not change.
    assert digests[0] == "b45f1a409dcfc395"
    assert len(set(digests)) == 4


JUDGED = Judgments(
    {"one": "?", "two": "?", "three": "?"},
    {
        "one": {"d0": 1, "gone": 2, "away": 0},
        "two": {"gone": 0.5},
        "three": {"d0": 0, "d1": -1},
        "untold": {"d1": 1},
    },
    contradictions=(("one", "d0"),),
    left_out=("empty",),
)


def test_suspicious_items_are_counted_with_an_example():
    audit = JudgmentAudit.from_judgments(JUDGED, {"d0", "d1"})
    assert audit.totals == {"queries": 4, "relevant": 4}
    assert audit.items == {
        "missing_documents": SuspiciousItems(2, "gone of query one"),
        "unanswerable": SuspiciousItems(1, "two"),
        "contradictions": SuspiciousItems(1, "d0 of query one"),
        "without_relevant": SuspiciousItems(1, "three"),
        "without_text": SuspiciousItems(1, "untold"),
        "left_out": SuspiciousItems(1, "empty"),
        "fractional": SuspiciousItems(1, "gone of query two"),
        "sentinels": SuspiciousItems(1, "d1 of query three"),
        "repeated_questions": SuspiciousItems(2, "two"),
    }
    assert len([*audit.describe()]) == 9
    assert [*JudgmentAudit(Counter(queries=3, relevant=3)).describe()] == []
    # Qrels without texts cannot lack documents or queries.
    qrels_audit = JudgmentAudit.from_judgments(JUDGED, None)
    counts = [qrels_audit.items[kind].count for kind in ("missing_documents", "without_text")]
    assert (counts, qrels_audit.items["contradictions"].count) == ([0, 0], 1)


def test_copies_and_queries_that_equal_documents_are_counted():
    texts = {"d0": "A mill.", "d1": "A  mill.", "d2": "Who\nburned it?", "d3": ""}
    questions = {"q0": ("Who burned it?", "d0", Span(0, 1)), "q1": ("When?", "d2", Span(0, 3))}
    skipped = [skip_question("f", f"lost{number}", Cause.AMBIGUOUS) for number in range(2)]
    data = replace(PositionData.from_questions(texts, questions), skipped=(*skipped,))
    judgments = Judgments.from_positions(data)
    audit = JudgmentAudit.from_judgments(judgments, {*texts}).add_data(data, judgments)
    assert audit.items["self_hits"] == SuspiciousItems(1, "q0")
    assert audit.items["copies"] == SuspiciousItems(1, "d0")
    total = audit + audit
    assert total.list_rows()[-2:] == [
        {
            "finding": "Relevant documents with the text of another document",
            "count": 2,
            "of": 4,
            "first": "d0",
        },
        {
            "finding": f"Question left out: {Cause.AMBIGUOUS}",
            "count": 4,
            "of": 8,
            "first": "lost0",
        },
    ]
    assert total.has_findings
    assert not JudgmentAudit(Counter(queries=1, relevant=1)).has_findings


def test_audits_are_additive():
    audit = JudgmentAudit.from_judgments(JUDGED, {"d0", "d1"})
    totals = Counter(queries=1, relevant=2)
    total = JudgmentAudit(totals, {"without_text": SuspiciousItems(3, "x")}) + audit
    assert total.totals == {"queries": 5, "relevant": 6}
    assert total.items["without_text"] == SuspiciousItems(4, "x")
    assert total.items["missing_documents"] == audit.items["missing_documents"]


def test_examples_cannot_control_the_terminal():
    items = {"without_relevant": SuspiciousItems(1, "q\x1b[31m")}
    audit = JudgmentAudit(Counter(queries=1), items)
    assert "\x1b" not in "".join(audit.describe())


@pytest.mark.parametrize("is_last", [False, True])
def test_contradictions_in_the_posir_layout_are_counted(tmp_path, is_last):
    tables = posir_tables()
    judged = tables["qrels"]
    zero = judged.head(1).with_columns(score=pl.lit(0, judged["score"].dtype))
    rows = [judged, zero] if is_last else [zero, judged]
    write_domain(tmp_path, tables | {"qrels": pl.concat(rows)})
    data = read_domain(LocalRepository(tmp_path), "eng-Latn", "eng-Latn", "sports")
    assert (len(data.evidence), data.tolerated) == (4, {"judgments_with_several_grades": 1})
    checked = posir.validate(tmp_path)
    assert checked.exit_status == 0
    assert ["several times" in warning for warning in checked.values["warnings"]] == [True]
