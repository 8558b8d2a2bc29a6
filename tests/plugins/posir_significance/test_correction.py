"""Correction of p-values: Holm's method and families."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from posir_significance.analysis import GroupAnalysis
from posir_significance.correction import correct_p_values, holm
from posir_significance.observations import Observations
from posir_significance.position_effect import Stratum


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_agrees_with_its_definition(p_values):
    plain = []
    for value in p_values:
        # The largest of the corrected values up to this one, by the step-down procedure.
        order = sorted(p_values)
        place = max(k for k, other in enumerate(order) if other == value)
        plain.append(min(1.0, max(order[k] * (len(order) - k) for k in range(place + 1))))
    np.testing.assert_allclose(holm(p_values), plain)


def test_families_are_corrected_by_themselves_and_what_is_no_test_takes_no_share():
    assert correct_p_values([0.01, 0.04, None, 0.04], ["a", "a", "a", "b"]) == [0.02, 0.04, None, 0.04]


def observe(gains, positions, documents):
    documents, queries = np.asarray(documents, np.int64), np.arange(len(gains))
    zeros = np.zeros(len(gains), np.int64)
    return Observations(
        np.asarray(gains, float), zeros, zeros, documents, documents, queries, np.asarray(positions, np.int64), 4
    )


def test_documents_whose_gains_or_positions_are_all_equal_say_nothing_of_position():
    gains, positions, documents = [1, 0, 1, 1, 0.5, 0.5, 0.5, 0, 1], [0, 1, 0, 3, 2, 1, 1, 1, 1], [0, 0, 1, 1, 2, 2, 3, 4, 4]
    group = GroupAnalysis(observe(gains, positions, documents))
    assert (group.effect.stratum, group.informative) == (Stratum.DOCUMENT, 1)
    alone = GroupAnalysis(observe(gains, positions, range(9)))
    assert (alone.effect.stratum, alone.informative) == (Stratum.LENGTH, 9)
    assert GroupAnalysis(observe([], [], [])).informative == 0
