"""Verdicts, against SciPy's bootstrap and constructed cases."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import bootstrap

from posir_inspect.verdicts import (
    MIN_TEXTS,
    Finding,
    bootstrap_means,
    count_needed,
    judge_fading,
    judge_sizes,
    percentile_interval,
    round_up,
)
from posir_report.summary import ReportRow, judge_rows
from posir_significance.analysis import analyze_group
from posir_significance.direction import Direction
from posir_significance.observations import Observations
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.estimates import Estimate
from posir_tasks.evidence import Evidence
from posir_tasks.schemes import RelativePositions


def build_report_rows(difference: float, half: float, p_value: float, **scores: Any) -> list[ReportRow]:
    estimate = Estimate(difference, (difference - half, difference + half))
    row = ReportRow(model="", task="", scores={"queries": 500, "start_to_end": estimate, "p_value": p_value})
    direction = Direction.PRIMACY if difference > half else Direction.RECENCY if -difference > half else Direction.UNCLEAR
    return judge_rows([row.with_scores(**scores)], [direction])


@pytest.mark.parametrize(
    ("difference", "half", "p_value", "texts", "finding"),
    [
        (0.3, 0.1, 0.001, 500, Finding.LOWER),
        (-0.3, 0.1, 0.001, 500, Finding.HIGHER),
        (0.01, 0.03, 0.001, 500, Finding.UNEVEN),
        (0.01, 0.03, 0.4, 500, Finding.NONE),
        (0.02, 0.1, 0.4, 100, Finding.UNKNOWN),
        (0.3, 0.1, 0.06, 100, Finding.UNKNOWN),
        (0.3, 0.1, 0.001, 10, Finding.UNKNOWN),
    ],
)
def test_a_difference_is_judged_as_in_a_report(difference, half, p_value, texts: int, finding: Finding):
    verdict = judge_fading(build_report_rows(difference, half, p_value), texts, 10)
    assert verdict.finding is finding
    assert (verdict.texts_needed is not None) == (finding is Finding.UNKNOWN)
    assert verdict.texts_needed is None or f"about {verdict.texts_needed:,}" in verdict.sentence


def test_evidence_that_is_not_read_is_truncated():
    rows = build_report_rows(
        0.3, 0.1, 0.001, ends_beyond_window=0.5, p_value_within_window=0.6, start_to_end_within_window=0.01
    )
    assert judge_fading(rows, 500, 10).sentence.startswith("Evidence fades: it is not read (truncation)")


def test_an_interval_without_0_that_is_not_significant_is_said_to_be_uncorrected():
    verdict = judge_fading(build_report_rows(0.3, 0.1, 0.06), 100, 10)
    assert "not significant (interval without 0 before correction)" in verdict.sentence


def test_without_questions_about_both_ends_there_is_no_verdict():
    assert judge_fading([ReportRow(model="", task="", scores={"queries": 500})], 500, 10).finding is Finding.UNKNOWN


def test_the_texts_needed_are_those_of_the_difference_that_was_measured():
    """Twelve texts with a difference of 30 points once asked for 1,700, while 50 of the same were enough."""
    assert judge_fading(build_report_rows(0.3, 0.35, 0.1), 12, 10).texts_needed == MIN_TEXTS
    assert judge_fading(build_report_rows(0.1, 0.12, 0.1), 100, 10).texts_needed == pytest.approx(390, abs=10)
    small = judge_fading(build_report_rows(0.01, 0.12, 0.8), 100, 10)
    assert "would show a difference of 5 points" in small.sentence
    assert small.texts_needed == pytest.approx(4 * 390, rel=0.03)


def draw_row(texts: int, rng: np.random.Generator) -> list[ReportRow]:
    """Return the row of a question on each tenth of some texts whose log odds fall by 1; they vary by 1 between texts."""
    tenths, documents = np.tile(np.arange(10), texts), np.repeat(np.arange(texts), 10)
    odds = 0.4 + rng.normal(0, 1, texts)[documents] - (tenths / 9 - 0.5)
    ranks = np.where(rng.random(len(odds)) < 1 / (1 + np.exp(-odds)), rng.integers(1, 4, len(odds)), 0)
    evidence = Evidence(
        [f"q{row}" for row in range(len(odds))],
        [f"d{row}" for row in documents],
        tenths * 100 + 50,
        tenths * 100 + 51,
        np.full(len(odds), 1000),
        np.full(len(odds), 250),
    )
    result = DocumentRanks.from_ranks(RelativePositions(bins=10), evidence, ranks)
    group = analyze_group(Observations.from_ranks(result))
    scores = {
        "queries": len(odds),
        "start_to_end": group.start_to_end,
        "p_value": group.test.p_value,
        "informative_documents": group.informative,
    }
    return judge_rows([ReportRow(model="", task="", scores=scores)], [Direction.PRIMACY])


@pytest.mark.slow
def test_as_many_texts_as_few_of_them_ask_for_have_about_80_percent_power(monkeypatch):
    """Simulated: the median of what 30 texts ask for is within a factor of 1.5 of the right number."""
    monkeypatch.setattr("posir_inspect.verdicts.MIN_TEXTS", 1)
    rng = np.random.default_rng(7)
    needed = int(np.median([count_needed(draw_row(30, rng), 30, 10) for _ in range(100)]))
    powers = [
        np.mean([draw_row(int(needed * factor), rng)[0].p_corrected < 0.05 for _ in range(100)]) for factor in (1 / 1.5, 1.5)
    ]
    assert powers[0] < 0.8 < powers[1]


def test_the_interval_of_a_mean_is_that_of_scipy():
    gains = np.random.default_rng(1).random(200)
    low, high = percentile_interval(bootstrap_means([gains], np.arange(200))[:, 0])
    expected = bootstrap((gains,), np.mean, method="percentile", rng=np.random.default_rng(2)).confidence_interval
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.005)


def test_queries_of_one_document_are_drawn_together():
    gains, documents = np.repeat([0.0, 1.0] * 10, 50), np.repeat(np.arange(20), 50)
    assert bootstrap_means([gains], documents).std() == pytest.approx((0.25 / 20) ** 0.5, rel=0.1)


def judge(means: list[float], spread: float, vectors: list[int]):
    rng = np.random.default_rng(0)
    draws = np.array(means) + spread * rng.standard_normal((2000, len(means)))
    sizes = [None, 512, 128][: len(means)]
    return judge_sizes(np.array(means), draws, dict(zip(sizes, vectors, strict=True)), 200)


def test_the_fewest_vectors_within_two_points_of_the_best_are_chosen():
    assert judge([0.5, 0.79, 0.8], 0.001, [200, 400, 1600]).size == 512
    assert judge([0.79, 0.8, 0.8], 0.001, [200, 400, 1600]).size is None
    clear = judge([0.5, 0.6, 0.8], 0.001, [200, 400, 1600])
    assert (clear.size, clear.finding, clear.texts_needed) == (128, Finding.HIGHER, None)
    assert "+30.0 points" in clear.sentence
    assert "with 8.0 times as many vectors" in clear.sentence


def test_doubt_about_a_size_names_how_many_texts_would_do():
    doubtful = judge([0.5, 0.785, 0.8], 0.02, [200, 400, 1600])
    assert doubtful.finding is Finding.UNKNOWN
    assert doubtful.texts_needed > 200
    assert "whether chunks of 512 tokens would do" in doubtful.sentence


def test_numbers_of_texts_are_rounded_up_to_two_digits():
    assert [round_up(number) for number in (7.2, 99.5, 101, 1234, 10**9)] == [8, 100, 110, 1300, 1_000_000]
