"""Correction of p-values: Holm's method and families."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from posir_significance.correction import correct_by_holm, correct_p_values


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_agrees_with_its_definition(p_values):
    plain = []
    for value in p_values:
        # The largest of the corrected values up to this one, by the step-down procedure.
        order = sorted(p_values)
        place = max(k for k, other in enumerate(order) if other == value)
        plain.append(min(1.0, max(order[k] * (len(order) - k) for k in range(place + 1))))
    np.testing.assert_allclose(correct_by_holm(p_values), plain)


def test_families_are_corrected_apart_and_none_takes_no_share():
    assert correct_p_values([0.01, 0.04, None, 0.04], ["a", "a", "a", "b"]) == [
        0.02,
        0.04,
        None,
        0.04,
    ]
