"""Differences of two models: agreement with the models' own estimates, and level and coverage in simulations."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_compare.comparison import Metric
from posir_compare.differences import find_differences, subtract_effects, subtract_observations, subtract_psi
from posir_compare.pairing import find_common_results
from posir_significance.analysis import analyze
from posir_significance.position_effect import estimate_effect
from tests.support.comparison import only_pair, write_run
from tests.support.simulation import separate_documents

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def simulation(monkeypatch):
    """The benchmark of `posir compare`, of which the simulations below are a part."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import compare_coverage

    return compare_coverage


@pytest.fixture
def common(tmp_path):
    for model, seed in (("org/a", 1), ("org/b", 5)):
        write_run(tmp_path, model, seed)
    return find_common_results(only_pair(tmp_path))


def test_paired_differences_are_those_of_the_models_scores(common):
    a, b = analyze(common.a), analyze(common.b)
    differences = find_differences(common)
    assert len(differences) == 5
    for difference, first, second in zip(differences, (a.overall, *a.lengths), (b.overall, *b.lengths), strict=True):
        assert difference.ndcg.value == pytest.approx(second.ndcg.value - first.ndcg.value)
        assert difference.start_to_end.value == pytest.approx(second.start_to_end.value - first.start_to_end.value)


def test_the_effect_on_differences_is_the_difference_of_the_effects(common):
    paired = estimate_effect(subtract_observations(*common.paired))
    a, b = (estimate_effect(observations) for observations in common.paired)
    unpaired = subtract_effects(a, b)
    np.testing.assert_allclose(paired.effects, unpaired.effects, atol=1e-9)
    np.testing.assert_allclose(unpaired.covariance, a.covariance + b.covariance)


def test_unpaired_intervals_are_wider_than_those_of_the_models(common):
    unpaired = replace(common, a=separate_documents(common.a.profile))
    assert unpaired.paired is None
    a, b = analyze(unpaired.a).overall.ndcg, analyze(unpaired.b).overall.ndcg
    ndcg = find_differences(unpaired)[0].ndcg
    low, high = ndcg.interval
    assert (high - low) / 2 == pytest.approx(1.97 * np.hypot(a.standard_error, b.standard_error), rel=0.02)


def test_models_that_never_find_anything_have_no_psi_and_no_difference(common):
    silent = [replace(observations, gains=0 * observations.gains) for observations in common.paired]
    difference = estimate_effect(subtract_observations(*silent))
    np.testing.assert_array_equal(difference.effects, 0)
    assert (np.diag(difference.covariance) > 0).all()


DRAWS = st.lists(st.floats(0, 1), min_size=2, max_size=30).map(np.array)


@given(DRAWS, DRAWS, st.booleans(), st.booleans())
def test_difference_of_psi_is_antisymmetric_and_within_its_interval(a, b, zero_a, zero_b):
    first, other = subtract_psi(a, b, (zero_a, zero_b), 0.3), subtract_psi(b, a, (zero_b, zero_a), 0.3)
    assert first.interval[0] <= first.value <= first.interval[1]
    assert (other.value, *other.interval) == pytest.approx((-first.value, -first.interval[1], -first.interval[0]), abs=1e-12)
    plain = subtract_psi(a, b, (False, False), 0.3)
    assert first.value == plain.value
    assert first.interval[0] <= plain.interval[0]
    assert first.interval[1] >= plain.interval[1]


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("structure", ["harder later", "COVID-QA"])
@pytest.mark.slow
def test_equal_models_differ_in_one_of_twenty(simulation, structure, paired):
    result = simulation.simulate("equal, flat", structure, 0.2, 2000, paired, 200)
    # Four standard errors of 200 draws.
    assert all(rejected <= 0.11 and holds >= 0.89 for rejected, holds in result.values()), result


@pytest.mark.slow
def test_a_small_difference_in_position_effect_is_found(simulation):
    # The facts of an independent simulation: .83 at 2,000 independent questions.
    result = simulation.simulate("linear .1 and .4", "random", 0.2, 2000, True, 40)
    assert result[Metric.PSI][0] >= 0.9
    assert result[Metric.START_TO_END][0] >= 0.9
    assert all(holds >= 0.8 for _, holds in result.values()), result


def test_simulated_results_are_compared(simulation):
    for paired in (True, False):
        result = simulation.simulate("step and dip", "JaQuAD", 0.2, 500, paired, 2)
        assert set(result) == set(Metric)
