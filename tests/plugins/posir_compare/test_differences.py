"""Differences of two models: agreement with the models' own estimates, and level and coverage in simulations."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_compare.comparison import Metric, find_common_results
from posir_significance.analysis import analyze
from posir_significance.decision import compare_groups, subtract_psi
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
    for first, second in zip(analyze(common.a).groups, analyze(common.b).groups, strict=True):
        change = compare_groups(first, second, paired=True)
        assert change.ndcg_at_10.difference.value == pytest.approx(second.ndcg.value - first.ndcg.value)
        assert change.start_to_end.difference.value == pytest.approx(
            second.position.start_to_end.value - first.position.start_to_end.value
        )


def test_unpaired_intervals_are_wider_than_those_of_the_models(common):
    unpaired = replace(common, a=separate_documents(common.a.profile))
    assert not unpaired.are_paired
    first, second = analyze(unpaired.a).overall, analyze(unpaired.b).overall
    low, high = compare_groups(first, second, paired=False).ndcg_at_10.difference.interval_at(0.95)
    errors = first.ndcg.standard_error, second.ndcg.standard_error
    assert (high - low) / 2 == pytest.approx(1.97 * np.hypot(*errors), rel=0.02)


DRAWS = st.lists(st.floats(0, 1), min_size=2, max_size=30).map(np.array)


@given(DRAWS, DRAWS, st.booleans(), st.booleans())
def test_difference_of_psi_is_antisymmetric_and_within_its_interval(a, b, zero_a, zero_b):
    first, other = subtract_psi(a, b, (zero_a, zero_b)), subtract_psi(b, a, (zero_b, zero_a))
    assert first.interval[0] <= first.value <= first.interval[1]
    assert (other.value, *other.interval) == pytest.approx((-first.value, -first.interval[1], -first.interval[0]), abs=1e-12)
    plain = subtract_psi(a, b, (False, False))
    assert first.value == plain.value
    assert first.interval[0] <= plain.interval[0]
    assert first.interval[1] >= plain.interval[1]


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("structure", ["harder later", "COVID-QA"])
@pytest.mark.slow
def test_equal_models_differ_in_one_of_twenty(simulation, structure, paired):
    result = simulation.simulate("equal, flat", structure, 0.2, 2000, paired, 200)
    # Four standard errors of 200 draws.
    assert all(rejected <= 0.06 and holds >= 0.89 for rejected, holds in result.values()), result


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
        assert set(result) == {Metric.NDCG, Metric.START_TO_END, Metric.PSI}
