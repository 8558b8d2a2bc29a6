"""Tests for differences between two models, against the estimates of each model."""

from dataclasses import replace

import numpy as np
import pytest

from posir_compare.pairing import find_common_results
from posir_significance.analysis import analyze
from posir_significance.changes import compare_groups
from posir_significance.findings import Metric
from posir_tasks.values.scores import ResultValues
from tests.support.comparison import only_pair, write_run
from tests.support.simulation import separate_documents


@pytest.fixture
def common(tmp_path):
    for model, seed, hit_rates in (("org/a", 1, (0.5, 0.5, 0.5)), ("org/b", 5, (0.8, 0.6, 0.4))):
        write_run(tmp_path, model, seed, hit_rates=hit_rates)
    return find_common_results(only_pair(tmp_path))


def test_paired_differences_equal_differences_of_scores(common):
    for first, second in zip(analyze(common.a).groups, analyze(common.b).groups, strict=True):
        change = compare_groups(first, second, paired=True)
        assert change[Metric.NDCG_AT_10].estimate.value == pytest.approx(
            second.ndcg.value - first.ndcg.value
        )
        for metric_change, tests in (
            (change[Metric.POSITION_EFFECT], (first.whole, second.whole)),
            (change[Metric.POSITION_EFFECT_IN_WINDOW], (first.within, second.within)),
        ):
            assert metric_change.estimate.value == pytest.approx(
                tests[1].effect.value - tests[0].effect.value
            )


def test_unpaired_intervals_combine_both_standard_errors(common):
    unpaired = replace(common, a=ResultValues(separate_documents(common.a.profile)))
    assert not unpaired.are_paired
    first, second = analyze(unpaired.a).overall, analyze(unpaired.b).overall
    low, high = compare_groups(first, second, paired=False)[
        Metric.NDCG_AT_10
    ].estimate.compute_interval(0.95)
    errors = first.ndcg.standard_error, second.ndcg.standard_error
    assert (high - low) / 2 == pytest.approx(1.97 * np.hypot(*errors), rel=0.02)
