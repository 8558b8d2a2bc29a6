"""The one verdict on a row, and its words."""

from dataclasses import dataclass, replace

import pytest

from posir_significance.direction import Direction
from posir_significance.verdict import (
    Verdict,
    describe_difference,
    describe_verdict,
    is_significant,
    judge,
)
from posir_tasks.estimates import Difference, Estimate

PSI, START_TO_END, WITHIN = Estimate(0.2), Estimate(0.2, (0.1, 0.3)), Estimate(0.02)


@dataclass(frozen=True)
class FakeRow:
    p_value: float | None = 0.001
    p_corrected: float | None = 0.002
    psi: Estimate | None = PSI
    start_to_end: Estimate | None = START_TO_END
    beyond_window: float | None = 0.4
    p_value_within_window: float | None = 0.5
    start_to_end_within_window: Estimate | None = WITHIN


ROW = FakeRow()


@pytest.mark.parametrize(
    ("changes", "direction", "verdict"),
    [
        ({}, Direction.PRIMACY, Verdict.TRUNCATION),
        ({}, Direction.UNCLEAR, Verdict.TRUNCATION),
        ({"p_value_within_window": None, "start_to_end_within_window": None}, Direction.PRIMACY, Verdict.TRUNCATION),
        ({}, Direction.RECENCY, Verdict.RECENCY),
        ({}, Direction.MIDDLE_DIP, Verdict.MIDDLE_DIP),
        ({"p_value_within_window": 0.01}, Direction.PRIMACY, Verdict.PRIMACY),
        ({"start_to_end_within_window": Estimate(0.15)}, Direction.PRIMACY, Verdict.PRIMACY),
        ({"start_to_end": Estimate(-0.02), "start_to_end_within_window": Estimate(-0.03)}, Direction.UNCLEAR, Verdict.UNCLEAR),
        ({"beyond_window": 0.0}, Direction.PRIMACY, Verdict.PRIMACY),
        ({"beyond_window": None}, Direction.UNCLEAR, Verdict.UNCLEAR),
        ({"p_corrected": 0.05}, Direction.PRIMACY, Verdict.NOT_SIGNIFICANT),
        ({"p_corrected": None}, Direction.PRIMACY, Verdict.TOO_FEW),
        ({"p_value": None, "p_corrected": None, "psi": None}, Direction.PRIMACY, None),
        ({"p_value": None, "p_corrected": None}, Direction.PRIMACY, Verdict.TOO_FEW),
    ],
)
def test_verdicts(changes, direction, verdict):
    row = replace(ROW, **changes)
    assert judge(row, direction, row) is verdict


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"p_value": 0.017, "p_corrected": 0.085}, "not significant (p 0.017 before correction)"),
        ({"p_value": 0.08, "p_corrected": 0.4}, "not significant (interval without 0 before correction)"),
        ({"p_value": 0.08, "p_corrected": 0.4, "start_to_end": Estimate(0.2, (-0.01, 0.3))}, "not significant"),
        ({"p_value": None, "p_corrected": None, "psi": None}, "–"),
        ({"p_corrected": None}, "too few documents"),
    ],
)
def test_p_and_interval_never_contradict_the_verdict_without_being_called_uncorrected(changes, words):
    row = replace(ROW, **changes)
    assert describe_verdict(row, judge(row, Direction.PRIMACY, row)) == words


@pytest.mark.parametrize(
    ("difference", "p_corrected", "words"),
    [
        (None, None, ""),
        (Difference(0.1), None, ""),
        (Difference(0.1, (0.05, 0.15), 0.001), 0.004, "significant"),
        (Difference(0.1, (0.01, 0.19), 0.03), 0.09, "not significant (p 0.030 before correction)"),
        (Difference(0.1, (0.01, 0.19), 0.2), 0.2, "not significant (interval without 0 before correction)"),
        (Difference(0.1, (-0.01, 0.21), 0.2), 0.2, "not significant"),
        (Difference(0.1, (-0.01, 0.21), 0.001), 0.004, "the effect of position differs, PSI not clearly"),
        (Difference(0.1, (0.05, 0.15), 0.001), None, "too few documents"),
    ],
)
def test_p_and_interval_of_a_difference_never_contradict_its_words(difference, p_corrected, words):
    assert describe_difference(difference, p_corrected) == words
    assert is_significant(difference, p_corrected) == (words == "significant")
