"""Correction of p-values: Holm's method, families, and rows that take no share."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_significance.correction import (
    Hypothesis,
    can_be_significant,
    correct_p_values,
    count_different,
    count_informative,
    holm,
)
from posir_significance.intervals import estimate_difference
from posir_significance.observations import Observations


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_agrees_with_its_definition(p_values):
    plain = []
    for value in p_values:
        # The largest of the corrected values up to this one, by the step-down procedure.
        order = sorted(p_values)
        place = max(k for k, other in enumerate(order) if other == value)
        plain.append(min(1.0, max(order[k] * (len(order) - k) for k in range(place + 1))))
    np.testing.assert_allclose(holm(p_values), plain)


def test_families_are_corrected_by_themselves_and_a_test_of_the_same_name_counts_once():
    tests = [
        Hypothesis(0.01, family="a", name="all"),
        Hypothesis(0.01, family="a", name="all"),
        Hypothesis(0.04, family="a", name="Q1"),
        Hypothesis(None, family="a", name="Q2"),
        Hypothesis(0.04, family="b"),
    ]
    assert correct_p_values(tests) == [0.02, 0.02, 0.04, None, 0.04]


def test_tests_of_too_few_documents_take_no_share():
    """Empty and tiny rows once turned a p-value of 0.023 into 0.068."""
    tests = [Hypothesis(0.0227, 40), Hypothesis(0.5, 2), Hypothesis(0.9, 5), Hypothesis(None, 0)]
    assert correct_p_values(tests) == [0.0227, None, None, None]


def test_six_documents_are_the_fewest_whose_signs_can_be_significant():
    """By all sign flips of documents that agree completely: two of 2^n have the largest absolute sum."""
    for documents in range(1, 10):
        signs = np.array(np.meshgrid(*[[-1, 1]] * documents)).reshape(documents, -1)
        p_value = (np.abs(signs.sum(axis=0)) == documents).mean()
        assert can_be_significant(documents) == (p_value < 0.05)


def observe(gains, positions, documents):
    documents, queries = np.asarray(documents), np.arange(len(gains))
    zeros = np.zeros(len(gains), np.int64)
    return Observations(np.asarray(gains, float), zeros, zeros, documents, documents, queries, np.asarray(positions), 4)


def test_documents_whose_gains_or_positions_are_all_equal_say_nothing_of_position():
    result = observe([1, 0, 1, 1, 0, 1, 0.5], [0, 1, 0, 3, 2, 2, 1], [0, 0, 1, 1, 2, 2, 3])
    assert count_informative(result, result.documents) == 1
    assert count_informative(result, result.lengths) == 4
    assert count_informative(observe([], [], []), np.zeros(0, np.int64)) == 0


def test_documents_on_which_two_models_agree_cannot_move_their_difference():
    differences, clusters = np.array([0.0, 0.0, 1.0, -1.0]), np.array([0, 1, 2, 2])
    assert count_different(differences, clusters) == 1
    assert estimate_difference(differences, clusters).p_value == pytest.approx(1)
