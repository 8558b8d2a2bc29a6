"""Test that sample sizes match the normal approximation and lead to their states."""

import numpy as np
import pytest

import posir
from posir_significance.api import Design, compute_mean_sample, compute_sample, power
from posir_significance.decision import decide
from posir_significance.findings import ChangeState, State
from tests.support.rotations import build_group, build_test


@pytest.mark.parametrize(
    ("effect", "lengths", "errors", "size"),
    [(None, 1, 3.24, 0.05), (0.10, 1, 2.80, 0.10), (None, 4, 3.78, 0.05), (0.10, 4, 3.34, 0.10)],
)
def test_sizes_match_the_specification(effect, lengths, errors, size):
    row = compute_sample(Design(1.0, variance=0.056, lengths=lengths), effect)
    assert row.questions == pytest.approx(0.056 * (errors / size) ** 2, rel=0.02)
    assert row.state is (State.FAVORS_START if effect else State.NO_BIAS)


def test_small_effects_have_no_size_and_ten_documents_are_the_minimum():
    assert compute_sample(Design(), 0.04).questions is None
    assert compute_sample(Design(10.0), 0.9).documents == 10


def test_a_mean_difference_needs_no_positions():
    row = compute_mean_sample(Design(), 0.05)
    assert (row.effect, row.state) == (None, ChangeState.BETTER)
    assert compute_mean_sample(Design(), 0.0).state is ChangeState.EQUIVALENT


def test_the_planned_number_of_questions_leads_to_the_state():
    variance = np.mean(
        [build_test(spread=0.2, seed=seed).effect.standard_error ** 2 * 200 for seed in range(10)]
    )
    documents = compute_sample(Design(5.0, variance=float(variance)), None).documents
    states = [
        decide(build_group(build_test(documents, spread=0.2, seed=seed))).state
        for seed in range(60)
    ]
    assert np.mean([state is State.NO_BIAS for state in states]) == pytest.approx(0.8, abs=0.15)


def test_the_command_has_a_row_for_each_state():
    rows = posir.power(difference=[10, 20], ndcg_difference=5).to_polars()
    assert rows["models"].to_list() == [1, 1, 1, 2, 2, 2, 2, 2]
    assert rows["ndcg_at_10"].drop_nulls().to_list() == [0.05, 0.0]


def test_each_metric_is_planned_with_its_own_margin():
    rows = posir.power(difference=10, ndcg_difference=5).to_polars()
    assert rows["margin"].to_list() == [0.05] * 4 + [0.02] * 2
    assert set(posir.power(ndcg_difference=5, margin=3).to_polars()["margin"]) == {0.03}


@pytest.mark.parametrize(("count", "words"), [(1, "1 question"), (1.5, "1.5 questions")])
def test_the_title_counts_questions_per_document(count, words):
    (section,) = power(questions_per_document=count).sections()
    assert section.tables[0].title == f"Design · {words} per document"
