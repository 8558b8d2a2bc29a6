"""Test the correction of p-values by Holm's method in families."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from posir_significance.correction import correct_by_holm, correct_p_values


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_matches_its_definition(p_values):
    plain = []
    for value in p_values:
        # The step-down procedure takes the maximum of the corrected values so far.
        order = sorted(p_values)
        place = max(k for k, other in enumerate(order) if other == value)
        plain.append(min(1.0, max(order[k] * (len(order) - k) for k in range(place + 1))))
    np.testing.assert_allclose(correct_by_holm(p_values), plain)


def test_families_are_corrected_separately_and_ignore_none():
    assert correct_p_values([0.01, 0.04, None, 0.04], ["a", "a", "a", "b"]) == [
        0.02,
        0.04,
        None,
        0.04,
    ]
