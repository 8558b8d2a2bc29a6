"""Counts per cell: additive values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.cells import CellCounts, pool
from posir_tasks.errors import ProfileError
from posir_tasks.evidence import Evidence
from posir_tasks.profile import PositionProfile
from posir_tasks.schemes import AbsolutePositions, RelativePositions

#: Start, end and characters of the evidence, tokens of the document.
QUERY = st.tuples(st.integers(0, 99), st.integers(100, 200), st.just(200), st.integers(1, 2_000))
RELATIVE = RelativePositions()
QUERIES = st.lists(QUERY, max_size=12)


def evidence_of(queries):
    names = [f"q{k}" for k in range(len(queries))]
    return Evidence(names, ["d"] * len(queries), *np.array(queries, np.int64).reshape(-1, 4).T)


def counts_of(queries, scheme=RELATIVE):
    return CellCounts.from_evidence(scheme, evidence_of(queries))


@given(first=QUERIES, second=QUERIES, third=QUERIES)
def test_addition_is_associative_and_commutative_and_equals_computing_at_once(first, second, third):
    a, b, c = map(counts_of, (first, second, third))
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert pool([a, b, c]) == counts_of(first + second + third)


def test_values_of_other_schemes_do_not_add():
    with pytest.raises(ProfileError, match=r"relative-20x.*absolute-"):
        counts_of([]) + counts_of([], AbsolutePositions())
    with pytest.raises(TypeError):
        counts_of([]) + 1


@given(QUERIES)
def test_counts_are_those_of_a_profile_and_of_each_query_once(queries):
    counts, evidence = counts_of(queries, AbsolutePositions()), evidence_of(queries)
    assert counts == PositionProfile.from_ranks(AbsolutePositions(), evidence, np.ones(len(queries), np.int64)).cell_counts()
    assert counts.queries == len(queries)
