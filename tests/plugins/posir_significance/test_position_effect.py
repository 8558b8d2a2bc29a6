"""The position effect: against ordinary least squares and enumerated permutations."""

from dataclasses import replace

import numpy as np
import pytest

from posir_significance.observations import Observations
from posir_significance.position_effect import Stratum, _list_rows, _within, estimate_effect


def build(rows, bins):
    document, length, position, gain = (np.array(column) for column in zip(*rows, strict=True))
    return Observations(
        gain.astype(float), np.zeros_like(length), length, document, document, np.arange(len(rows)), position, bins
    )


@pytest.fixture
def shared():
    rng = np.random.default_rng(5)
    return build([(row // 4, 0, int(rng.integers(5)), float(rng.random())) for row in range(200)], 5)


def test_effects_are_those_of_a_regression_with_a_dummy_for_every_document(shared):
    effect = estimate_effect(shared)
    design = np.hstack([np.eye(5)[shared.position], np.eye(50)[shared.documents]])
    fitted = np.linalg.lstsq(design, shared.gains, rcond=None)[0][:5]
    assert effect.stratum is Stratum.DOCUMENT
    assert effect.effects == pytest.approx(fitted - effect.weights @ fitted)
    assert effect.weights @ effect.effects == pytest.approx(0)
    assert effect.level == pytest.approx(shared.gains.mean())


def test_a_document_that_is_harder_throughout_changes_no_effect(shared):
    easier = replace(shared, gains=shared.gains + shared.documents * 0.1)
    assert estimate_effect(easier).effects == pytest.approx(estimate_effect(shared).effects)


def test_the_null_covariance_of_independent_gains_is_near_that_of_permutations_within_documents():
    rng = np.random.default_rng(9)
    observations = build([(row // 4, 0, int(rng.integers(5)), float(rng.random())) for row in range(2_000)], 5)
    strata = observations.documents
    order = np.argsort(strata, kind="stable")
    drawn = [
        estimate_effect(replace(observations, gains=rng.permuted(observations.gains[order].reshape(-1, 4), axis=1).ravel()))
        for _ in range(300)
    ]
    permuted = np.cov(np.array([effect.effects for effect in drawn]).T)
    null_covariance = estimate_effect(observations).null_covariance
    assert null_covariance == pytest.approx(permuted, abs=0.3 * np.diag(permuted).mean())


def test_two_questions_on_a_place_that_succeed_or_fail_together_widen_the_covariance():
    rng = np.random.default_rng(10)
    places = rng.random((300, 3)) < 0.5
    rows = [(row, 0, place, float(places[row, place])) for row in range(300) for place in range(3) for _ in range(2)]
    alone = [(row, 0, place, float(rng.random() < 0.5)) for row in range(300) for place in range(3) for _ in range(2)]
    near, apart = (estimate_effect(build(given, 3)).null_covariance for given in (rows, alone))
    assert np.diag(near) == pytest.approx(2 * np.diag(apart), rel=0.25)


def test_a_domain_that_is_harder_and_has_other_positions_is_no_effect_of_position():
    """With one question a document, only subset and length can be held fixed."""
    rng = np.random.default_rng(11)
    subset = np.arange(4_000) % 2
    position = np.where(subset == 1, rng.integers(4, size=4_000), rng.binomial(3, 0.2, 4_000))
    gains = (rng.random(4_000) < np.where(subset == 1, 0.7, 0.9)).astype(float)
    number = np.arange(4_000)
    pooled = Observations(gains, subset, np.zeros_like(number), number, number, number, position, 4)
    merged = replace(pooled, subsets=np.zeros_like(subset))
    effect, confounded = estimate_effect(pooled), estimate_effect(merged)
    assert (effect.stratum, confounded.stratum) == (Stratum.SUBSET_AND_LENGTH, Stratum.LENGTH)
    error = np.sqrt(np.diag(effect.null_covariance))
    assert (np.abs(effect.effects) < 3 * error).all()
    assert np.abs(confounded.effects).max() > 4 * error.max()


def test_single_questions_are_compared_within_a_length_bucket():
    rng = np.random.default_rng(6)
    rows = [(row, row % 2, int(rng.integers(4)), float(rng.random())) for row in range(300)]
    effect = estimate_effect(build(rows, 4))
    design = np.hstack([np.eye(4)[[row[2] for row in rows]], np.eye(2)[[row[1] for row in rows]]])
    fitted = np.linalg.lstsq(design, [row[3] for row in rows], rcond=None)[0][:4]
    assert effect.stratum is Stratum.LENGTH
    assert effect.effects == pytest.approx(fitted - effect.weights @ fitted)


def test_shared_documents_widen_the_covariance_where_lengths_are_held_fixed():
    rng = np.random.default_rng(7)
    rows = [(row // 2 if row < 90 else row, 0, row % 2 if row >= 90 else 0, float((row // 2) % 2)) for row in range(200)]
    rows += [(1000 + row, 0, int(rng.integers(2)), float(rng.random() < 0.5)) for row in range(200)]
    apart = [(number, *row[1:]) for number, row in enumerate(rows)]
    together, alone = estimate_effect(build(rows, 2)), estimate_effect(build(apart, 2))
    assert together.stratum is alone.stratum is Stratum.LENGTH
    assert together.effects == pytest.approx(alone.effects)
    assert together.null_covariance[0, 0] > 1.1 * alone.null_covariance[0, 0]


@pytest.mark.parametrize("rows", [[], [(0, 0, 1, 0.5)], [(0, 0, 1, 0.5), (1, 0, 1, 1.0)], [(0, 0, 0, 1.0), (1, 1, 1, 0.0)]])
def test_without_two_comparable_bins_there_is_no_effect(rows):
    columns = build(rows, 3) if rows else Observations(*(np.zeros(0, int) for _ in range(7)), 3)
    assert estimate_effect(columns) is None


def test_equal_gains_have_a_covariance_above_zero():
    effect = estimate_effect(build([(row // 3, 0, row % 3, 1.0) for row in range(30)], 3))
    assert np.diag(effect.covariance).min() > 0
    assert effect.effects == pytest.approx(0)


@pytest.mark.parametrize("nested", [True, False])
def test_what_a_document_adds_is_the_derivative_of_the_sums_by_its_weight(nested):
    """Strata across documents too: each document moves the means that the others are compared with."""
    rng = np.random.default_rng(8)
    rows = _list_rows(
        build([(row // 5, row % 3, int(rng.integers(4)), float(rng.random())) for row in range(60)], 4), np.arange(4)
    )
    strata = rows.documents if nested else rows.lengths

    def sums(weights):
        weight, total = weights[rows.clusters], np.zeros(4)
        for stratum in np.unique(strata):
            inside = strata == stratum
            mean = np.average(rows.gains[inside], weights=weight[inside])
            np.add.at(total, rows.bins[inside], weight[inside] * (rows.gains[inside] - mean))
        return total

    steps = 1e-6 * np.eye(12)
    expected = [(sums(1 + step) - sums(1 - step)) / 2e-6 for step in steps]
    assert _within(rows, strata).contributions(rows.gains) == pytest.approx(np.array(expected), abs=1e-7)
