"""Probe sums are additive, survive JSON, and have bootstrap intervals that agree with theory."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_probe.probe import compute_range, compute_start_minus_end
from posir_probe.results import REPLICATES, ProbeSums, sample_weights
from posir_tasks.base.errors import NewerSchemaError, ProfileError


def build_sums(values, names=None):
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
def test_sums_over_parts_are_additive(values, cut):
    names = [f"d{row}" for row in range(len(values))]
    cut = min(cut, len(values) - 1)
    if cut:
        parts = build_sums(values[:cut], names[:cut]) + build_sums(values[cut:], names[cut:])
        assert_same(parts, build_sums(values, names))


@given(VALUES)
def test_sums_survive_json(values):
    sums = build_sums(values)
    assert_same(ProbeSums.from_json(json.loads(json.dumps(sums.to_json()))), sums)


def test_means_ignore_nan_and_skipped_texts_are_counted():
    sums = ProbeSums.from_means(["a", "b"], ["x", "y"], np.array([[1, np.nan], [3, np.nan]]))
    sums = replace(sums, skipped={"no evidence span": 2})
    assert sums.values[0] == 2
    assert np.isnan(sums.values[1])
    assert sums.estimates[1] is None
    assert (sums + sums).skipped == {"no evidence span": 4}


def test_intervals_of_means_match_the_standard_error():
    values = np.random.default_rng(2).normal(5, 2, (2_000, 1))
    estimate = build_sums(values).estimate(lambda result: result[..., 0])
    error = values.std() / np.sqrt(2_000)
    assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * error, rel=0.2)
    assert estimate.low < values.mean() < estimate.high


def test_questions_about_a_document_are_resampled_together():
    values = np.repeat(np.random.default_rng(3).standard_normal((60, 1)), 10, axis=0)
    names = [f"d{row // 10}" for row in range(600)]
    clustered = build_sums(values, names)
    independent = build_sums(values)
    widths = [
        value.high - value.low for value in (clustered.estimates[0], independent.estimates[0])
    ]
    assert clustered.documents == 60
    assert widths[0] > 2 * widths[1]


def test_bootstrap_weights_depend_on_the_id_and_are_poisson():
    np.testing.assert_array_equal(sample_weights("a"), sample_weights("a"))
    weights = np.concatenate([sample_weights(str(number)) for number in range(200)])
    assert (len(weights), round(weights.mean(), 1), round(weights.var(), 1)) == (
        200 * REPLICATES,
        1.0,
        1.0,
    )


def test_few_documents_have_no_interval():
    estimates = [
        build_sums([[1, 2]] * documents).estimate(compute_start_minus_end) for documents in (9, 10)
    ]
    assert [estimate.interval for estimate in estimates] == [None, (-1, -1)]
    assert [estimate.value for estimate in estimates] == [-1, -1]


def test_summaries_are_vectorized_over_replicates():
    values = np.random.default_rng(4).random((7, 5))
    np.testing.assert_allclose(compute_range(values), [row.max() - row.min() for row in values])


def test_sums_with_other_positions_cannot_be_added():
    with pytest.raises(ProfileError, match="different positions"):
        build_sums([[1, 2]]) + build_sums([[1]])


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
def test_damaged_json_is_rejected(change):
    with pytest.raises(ProfileError, match="damaged"):
        ProbeSums.from_json(build_sums([[1, 2]]).to_json() | change)
    with pytest.raises(NewerSchemaError):
        ProbeSums.from_json(build_sums([[1, 2]]).to_json() | {"schema": 99})
