"""Test the controlled test against least squares with fixed effects, and by simulation."""

import numpy as np
import pytest

from posir_significance.controlled import ControlledTest, _compute_row_weights
from tests.support.rotations import build_test


def fit_least_squares(test):
    """Fit the coefficients of first and last third by least squares, with a column per question."""
    questions = test.questions[:, None] == np.unique(test.questions)
    columns = np.column_stack(
        [test.thirds == 0, test.versions > 0, test.thirds == 2, questions]
    ).astype(float)
    roots = np.sqrt(test.weights)[:, None]
    first, _, last = np.linalg.lstsq(columns * roots, test.gains * roots[:, 0], rcond=None)[0][:3]
    return first, last


def test_effect_equals_least_squares_with_fixed_effects():
    test = build_test(effect=0.2, moved=0.1)
    first, last = fit_least_squares(test)
    assert test.effect.value == pytest.approx(first - last)
    assert test.middle_minus_ends.value == pytest.approx(-(first + last) / 2)
    assert test.levels[0] - test.levels[2] == pytest.approx(test.effect.value)
    assert np.bincount(test.thirds) / len(test.thirds) @ test.levels == pytest.approx(
        test.gains.mean()
    )


def test_rotation_cost_is_not_an_effect():
    effects = [
        build_test(effect=0.0, moved=0.3, spread=0.05, seed=seed).effect for seed in range(20)
    ]
    assert abs(np.mean([effect.value for effect in effects])) < 0.01


@pytest.mark.parametrize("effect", [-0.1, 0.0, 0.1])
def test_intervals_contain_the_true_effect(effect):
    tests = [build_test(effect=effect, spread=0.1, seed=seed) for seed in range(60)]
    held = [test.effect.interval[0] <= effect <= test.effect.interval[1] for test in tests]
    assert np.mean(held) > 0.85


def test_truncation_loss_is_estimated_within_questions():
    test = build_test(effect=0.0, unread=2, spread=0.05)
    assert test.truncation_loss.value == pytest.approx(0.38, abs=0.05)
    assert build_test().truncation_loss is None


def test_differences_need_the_same_rows():
    first = build_test(effect=0.1)
    second = build_test(effect=0.3, seed=0)
    difference = second.subtract(first)
    assert difference.effect.value == pytest.approx(second.effect.value - first.effect.value)
    assert first.has_same_rows(second)
    assert not first.has_same_rows(build_test(documents=39))
    assert first.remove_effect().effect.value == 0


def test_controlled_psi_follows_from_the_levels():
    test = build_test(effect=0.3, spread=0.05)
    psi = test.psi
    assert psi.value == pytest.approx(1 - test.levels.min() / test.levels.max())
    assert psi.interval[0] < 0.4 < psi.interval[1] < 1
    assert build_test(effect=0.0).psi.interval[0] == 0


def test_weights_are_questions_per_tested_question_of_a_cell():
    cells = np.array([0] * 8 + [1] * 2)
    tested = np.array([0, 0, 0, 1, 1, 1, 8, 8, 8])
    weights = _compute_row_weights(tested, cells)
    assert weights.mean() == pytest.approx(1)
    assert weights[0] / weights[-1] == pytest.approx((8 / 2) / (2 / 1))


def test_no_effect_without_rows():
    nothing = np.zeros(0)
    test = ControlledTest(
        *[nothing.astype(np.int64)] * 3,
        nothing.astype(bool),
        *[nothing.astype(np.int64)] * 2,
        nothing,
    )
    assert (test.effect, test.psi, test.truncation_loss, test.question_count) == (
        None,
        None,
        None,
        0,
    )
