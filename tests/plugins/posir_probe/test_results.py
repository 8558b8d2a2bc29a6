"""Sums of probes: they add, survive JSON, and their bootstrap agrees with what theory says."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_probe.probe import compute_range, subtract_end
from posir_probe.results import REPLICATES, ProbeSums, sample_weights
from posir_tasks.base.errors import NewerSchemaError, ProfileError


def sums_of(values, names=None):
    values = np.asarray(values, np.float64)
    names = names or [f"d{row}" for row in range(len(values))]
    return ProbeSums.from_means([f"p{column}" for column in range(values.shape[1])], names, values)


def assert_same(first, other):
    for name in ("statistic", "positions", "documents", "skipped"):
        assert getattr(first, name) == getattr(other, name)
    np.testing.assert_allclose(first.totals, other.totals, atol=1e-9)
    np.testing.assert_allclose(first.replicates, other.replicates, rtol=1e-5, atol=1e-4)


VALUES = st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=1, max_size=12)


@given(VALUES, st.integers(0, 12))
def test_parts_add_to_the_same_sums(values, cut):
    names = [f"d{row}" for row in range(len(values))]
    cut = min(cut, len(values) - 1)
    if cut:
        parts = sums_of(values[:cut], names[:cut]) + sums_of(values[cut:], names[cut:])
        assert_same(parts, sums_of(values, names))


@given(VALUES)
def test_json_gives_the_same_sums(values):
    sums = sums_of(values)
    assert_same(ProbeSums.from_json(json.loads(json.dumps(sums.to_json()))), sums)


def test_means_ignore_nan_and_what_is_skipped_is_counted():
    sums = ProbeSums.from_means(["a", "b"], ["x", "y"], np.array([[1, np.nan], [3, np.nan]]))
    sums = replace(sums, skipped={"no evidence span": 2})
    assert sums.values[0] == 2
    assert np.isnan(sums.values[1])
    assert sums.estimates[1] is None
    assert (sums + sums).skipped == {"no evidence span": 4}


def test_the_interval_of_a_mean_is_that_of_its_standard_error():
    values = np.random.default_rng(2).normal(5, 2, (2_000, 1))
    estimate = sums_of(values).estimate(lambda result: result[..., 0])
    error = values.std() / np.sqrt(2_000)
    assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * error, rel=0.2)
    assert estimate.low < values.mean() < estimate.high


def test_questions_about_one_document_are_drawn_together():
    values = np.repeat(np.random.default_rng(3).standard_normal((60, 1)), 10, axis=0)
    names = [f"d{row // 10}" for row in range(600)]
    clustered = sums_of(values, names)
    independent = sums_of(values)
    width = [value.high - value.low for value in (clustered.estimates[0], independent.estimates[0])]
    assert clustered.documents == 60
    assert width[0] > 2 * width[1]


def test_counts_of_a_document_follow_from_its_id_and_are_poisson():
    np.testing.assert_array_equal(sample_weights("a"), sample_weights("a"))
    drawn = np.concatenate([sample_weights(str(number)) for number in range(200)])
    assert (len(drawn), round(drawn.mean(), 1), round(drawn.var(), 1)) == (
        200 * REPLICATES,
        1.0,
        1.0,
    )


def test_few_documents_have_no_interval():
    estimates = [sums_of([[1, 2]] * documents).estimate(subtract_end) for documents in (9, 10)]
    assert [estimate.interval for estimate in estimates] == [None, (-1, -1)]
    assert [estimate.value for estimate in estimates] == [-1, -1]


def test_indices_work_on_many_replicates_at_once():
    values = np.random.default_rng(4).random((7, 5))
    np.testing.assert_allclose(compute_range(values), [row.max() - row.min() for row in values])


def test_other_positions_do_not_add():
    with pytest.raises(ProfileError, match="different positions"):
        sums_of([[1, 2]]) + sums_of([[1]])


@pytest.mark.parametrize(
    "change",
    [
        {"totals": [[1]]},
        {"replicates": "AAAA"},
        {"statistic": "median"},
        {"positions": ["one"]},
        {"skipped": 3},
    ],
)
def test_damaged_json_is_refused(change):
    with pytest.raises(ProfileError, match="damaged"):
        ProbeSums.from_json(sums_of([[1, 2]]).to_json() | change)
    with pytest.raises(NewerSchemaError):
        ProbeSums.from_json(sums_of([[1, 2]]).to_json() | {"schema": 99})
