"""The rows of a comparison, and their Holm-corrected p-values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posir_compare.comparison import Metric, compare, compare_pair, correct_p_values, holm
from posir_compare.differences import draw_psi_differences
from posir_compare.model_runs import build_pairs, read_model_runs
from tests.support.comparison import FLAT, PAIR, SLOPE, STEP, build_common_results, draw_joint_counts, write_run


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_agrees_with_its_definition(p_values):
    plain = []
    for one in p_values:
        # The largest of the corrected values up to this one, by the step-down procedure.
        order = sorted(p_values)
        place = max(k for k, other in enumerate(order) if other == one)
        plain.append(min(1.0, max(order[k] * (len(order) - k) for k in range(place + 1))))
    np.testing.assert_allclose(holm(np.array(p_values)), plain)


def test_each_metric_is_corrected_separately():
    empty = np.zeros((20, 12, 12), np.int64)
    rows = compare_pair(PAIR, build_common_results(draw_joint_counts(FLAT, SLOPE, 400, 1), empty, paired=False), 200)
    fixed = correct_p_values(rows)
    for metric in Metric:
        given_, found = zip(*((row.p_value, row.p_corrected) for row in fixed if row.metric is metric), strict=True)
        assert given_[2] is found[2] is None
        np.testing.assert_allclose(found[:2], holm(np.array(given_[:2])))


def test_a_model_does_not_differ_from_itself():
    joint = np.einsum("pa,ab->pab", draw_joint_counts(SLOPE, SLOPE, 900, 1).sum(axis=2), np.eye(12, dtype=np.int64))
    ndcg, psi_ = compare_pair(PAIR, build_common_results(joint, paired=True), 500)
    for row in (ndcg, psi_):
        assert (row.difference, row.p_value) == (0, 1)
        assert (row.difference_low, row.difference_high) == pytest.approx((0, 0), abs=2e-3)


def test_pairing_narrows_the_intervals():
    joint = draw_joint_counts(SLOPE, SLOPE - 0.05, 4000, 3, correlation=0.8)
    for paired, unpaired in zip(
        *(compare_pair(PAIR, build_common_results(joint, paired=one), 1000) for one in (True, False)), strict=True
    ):
        assert paired.difference == unpaired.difference
        width = paired.difference_high - paired.difference_low
        assert width < 0.85 * (unpaired.difference_high - unpaired.difference_low)


def test_same_input_same_numbers():
    common = build_common_results(draw_joint_counts(SLOPE, STEP, 500, 1), draw_joint_counts(STEP, SLOPE, 300, 2), paired=True)
    assert compare_pair(PAIR, common, 300) == compare_pair(PAIR, common, 300)
    counts = common.a.counts[0], common.b.counts[0]
    np.testing.assert_array_equal(*(draw_psi_differences(*counts, (0.3, 0.2), 0.4, 100) for _ in range(2)))


def test_two_folders_and_one_folder_give_the_same(tmp_path):
    for model, seed in (("org/a", 1), ("org/b", 5)):
        write_run(tmp_path / "both", model, seed)
        write_run(tmp_path / model[-1], model, seed)
    one, two = (compare(build_pairs(read_model_runs(f)), None) for f in ([tmp_path / "both"], [tmp_path / "a", tmp_path / "b"]))
    assert one == two
    assert [row.length for row in one.rows if row.metric is Metric.PSI] == ["all", "Q1", "Q2", "Q3", "Q4"]
    assert {row.method for row in one.rows} == {"unpaired"}
    turned = compare(build_pairs(read_model_runs([tmp_path / "b", tmp_path / "a"])), None)
    assert [row.difference for row in turned.rows] == pytest.approx([-row.difference for row in one.rows])
