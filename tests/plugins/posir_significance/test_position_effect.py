"""The position effect: against ordinary least squares and enumerated permutations."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from posir_significance.observations import Observations
from posir_significance.position_effect import Stratum, estimate_effect, pseudoinverse


def build(rows, bins):
    """Observations of (document, length, bin, gain) rows."""
    document, length, position, gain = (np.array(column) for column in zip(*rows, strict=True))
    return Observations(gain.astype(float), length, document, document, np.arange(len(rows)), position, bins)


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
    easier = Observations(
        shared.gains + shared.documents * 0.1,
        shared.lengths,
        shared.documents,
        shared.clusters,
        shared.query,
        shared.position,
        5,
    )
    assert estimate_effect(easier).effects == pytest.approx(estimate_effect(shared).effects)


def test_the_null_covariance_is_that_of_permutations_within_documents():
    rows = [(0, 0, 0, 1.0), (0, 0, 1, 0.2), (0, 0, 2, 0.5), (1, 0, 0, 0.0), (1, 0, 1, 0.9), (1, 0, 2, 0.3)]
    observations = build(rows, 3)
    drawn = [
        estimate_effect(replace(observations, gains=np.array([*first, *second]))).effects
        for first in permutations(observations.gains[:3])
        for second in permutations(observations.gains[3:])
    ]
    level = (observations.gains.sum() + 0.5) / 7
    pseudo = level * (1 - level) / 4 * (np.eye(3) - 1 / 3) / 2
    assert estimate_effect(observations).null_covariance == pytest.approx(np.cov(np.array(drawn).T, bias=True) + pseudo)


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
    columns = build(rows, 3) if rows else Observations(*(np.zeros(0, int) for _ in range(6)), 3)
    assert estimate_effect(columns) is None


def test_equal_gains_have_a_covariance_above_zero():
    effect = estimate_effect(build([(row // 3, 0, row % 3, 1.0) for row in range(30)], 3))
    assert np.diag(effect.covariance).min() > 0
    assert effect.effects == pytest.approx(0)


def test_pseudoinverse():
    matrix = np.diag([4.0, 2.0, 0.0])
    inverse, rank = pseudoinverse(matrix)
    assert rank == 2
    assert inverse == pytest.approx(np.linalg.pinv(matrix))
