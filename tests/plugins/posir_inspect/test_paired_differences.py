"""Pairs of systems: which wins, which tie, and when it cannot be said."""

import numpy as np
import pytest
from scipy import stats

from posir_inspect.paired_differences import compare_pairs, judge_pairs
from posir_inspect.verdicts import Finding, InspectionVerdict

RNG = np.random.default_rng(3)
TEXTS = np.arange(400)
BASE = RNG.uniform(0.3, 0.7, 400)


def judge(texts: int = 400, **gains: float) -> InspectionVerdict:
    """Judge systems that are this much better than a common score, with a little noise."""
    scores = {name: (BASE + gain + RNG.normal(0, 0.03, 400))[:texts] for name, gain in gains.items()}
    return judge_pairs(scores, compare_pairs(scores, TEXTS[:texts]), texts, "nDCG@10", "texts")


def test_the_difference_and_its_p_value_are_those_of_a_paired_t_test():
    scores = {"a": BASE, "b": BASE + RNG.normal(0.01, 0.1, 400)}
    (pair,) = compare_pairs(scores, TEXTS)
    expected = stats.ttest_rel(scores["a"], scores["b"])
    assert pair.difference.value == pytest.approx(expected.statistic * stats.sem(scores["a"] - scores["b"]))
    assert pair.difference.p_value == pytest.approx(expected.pvalue, abs=0.005)
    assert pair.seen_from("b").value == -pair.difference.value
    assert pair.seen_from("b").high == -pair.difference.low


def test_a_clear_best_wins():
    verdict = judge(small=0.1, large=0.0, whole=-0.1)
    assert verdict.finding is Finding.HIGHER
    assert verdict.sentence.startswith("small wins: nDCG@10 ")
    assert "It is better than large (+" in verdict.sentence


def test_equal_ones_tie_and_the_others_are_beaten():
    verdict = judge(small=0.1, large=0.1, whole=-0.1)
    assert verdict.finding is Finding.NONE
    assert "has the highest nDCG@10" in verdict.sentence
    assert "It ties with " in verdict.sentence
    assert "differ by at most 2 points" in verdict.sentence
    assert "It is better than whole (+" in verdict.sentence


def test_what_cannot_be_said_names_a_number_of_texts():
    noise = RNG.normal(0, 0.4, 60)
    scores = {"small": np.clip(0.5 + noise, 0, 1), "large": np.clip(0.5 - noise, 0, 1)}
    verdict = judge_pairs(scores, compare_pairs(scores, np.arange(60)), 60, "nDCG@10", "texts")
    assert verdict.finding is Finding.UNKNOWN
    assert verdict.texts_needed > 60
    assert "Not enough texts to say whether it is better than" in verdict.sentence


def test_few_texts_are_not_enough():
    assert judge(49, small=0.1, large=0).sentence == "Not enough texts to say: 49 texts; at least 50 would be needed."
    assert judge(1, small=0.1, large=0).finding is Finding.UNKNOWN


def test_no_false_wins_among_equal_systems():
    wins = 0
    for _ in range(200):
        scores = {name: RNG.uniform(0, 1, 80) for name in "abcd"}
        wins += any(pair.significant for pair in compare_pairs(scores, np.arange(80)))
    assert wins <= 0.09 * 200
