"""Counts and moments per cell: additive values against NumPy and pandas."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_tasks.cells import CellCounts, CellMoments, pool
from posir_tasks.errors import NewerSchemaError, ProfileError
from posir_tasks.evidence import Evidence
from posir_tasks.profile import PositionProfile
from posir_tasks.schemes import AbsolutePositions, RelativePositions

#: Start, end and characters of the evidence, tokens of the document, and a value. Halves add without rounding.
QUERY = st.tuples(
    st.integers(0, 99), st.integers(100, 200), st.just(200), st.integers(1, 2_000), st.integers(-50, 50).map(lambda n: n / 2)
)
RELATIVE = RelativePositions()
QUERIES = st.lists(QUERY, max_size=12)


def evidence_of(queries):
    starts, ends, characters, tokens, values = np.array(queries, np.float64).reshape(-1, 5).T
    names = [f"q{k}" for k in range(len(queries))]
    columns = [column.astype(np.int64) for column in (starts, ends, characters, tokens)]
    return Evidence(names, ["d"] * len(queries), *columns), values


def counts_of(queries, scheme=RELATIVE):
    return CellCounts.from_evidence(scheme, evidence_of(queries)[0])


def moments_of(queries, scheme=RELATIVE):
    return CellMoments.from_values(scheme, *evidence_of(queries))


BUILDERS = pytest.mark.parametrize("build", [counts_of, moments_of])


@BUILDERS
@given(one=QUERIES, two=QUERIES, three=QUERIES)
def test_addition_is_associative_and_commutative_and_equals_computing_at_once(build, one, two, three):
    a, b, c = map(build, (one, two, three))
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert pool([a, b, c]) == build(one + two + three)


@BUILDERS
@given(queries=QUERIES)
def test_json_gives_the_same_value(build, queries):
    value = build(queries)
    read = type(value).from_json(json.loads(json.dumps(value.to_json())))
    assert read == value
    assert read.axes.to_json() == value.axes.to_json()


@BUILDERS
def test_values_of_other_schemes_do_not_add(build):
    with pytest.raises(ProfileError, match=r"relative-20x.*absolute-"):
        build([]) + build([], AbsolutePositions())
    with pytest.raises(TypeError):
        build([]) + 1


@given(QUERIES)
def test_counts_are_those_of_a_profile_and_of_each_query_once(queries):
    counts, (evidence, _) = counts_of(queries, AbsolutePositions()), evidence_of(queries)
    assert counts == PositionProfile.from_ranks(AbsolutePositions(), evidence, np.ones(len(queries), np.int64)).cell_counts()
    assert counts.queries == len(queries)


@given(st.lists(QUERY, min_size=1, max_size=40))
def test_moments_are_those_of_pandas(queries):
    scheme, (evidence, values) = RelativePositions(), evidence_of(queries)
    cells = scheme.cells(evidence)
    frame = pd.DataFrame({"cell": cells.length * scheme.bins + cells.position, "value": values})
    of_cells = frame.groupby("cell").value.agg(["size", "sum", "var"]).reindex(range(4 * scheme.bins))
    moments = moments_of(queries)
    np.testing.assert_array_equal(moments.n.ravel(), of_cells["size"].fillna(0))
    np.testing.assert_array_equal(moments.sum.ravel(), of_cells["sum"].fillna(0))
    with np.errstate(invalid="ignore", divide="ignore"):
        variances = (moments.sum_of_squares - moments.sum**2 / moments.n) / (moments.n - 1)
    np.testing.assert_allclose(np.where(moments.n > 1, variances, np.nan).ravel(), of_cells["var"], atol=1e-9)


@BUILDERS
@pytest.mark.parametrize(
    "damage", [{"axes": None}, {"schema": "1"}, {"counts": [[1]], "n": [[1]]}, {"totals": 1, "sum": "x"}], ids=str
)
def test_damage_is_refused(build, damage):
    value = build([])
    with pytest.raises(ProfileError):
        type(value).from_json(value.to_json() | damage)


@BUILDERS
def test_a_newer_schema_is_refused(build):
    value = build([])
    with pytest.raises(NewerSchemaError, match=r"schema 2; .* reads up to 1\. .*pip install -U posir"):
        type(value).from_json(value.to_json() | {"schema": 2})
