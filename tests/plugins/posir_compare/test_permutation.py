"""Permutation tests of nDCG@10 against SciPy, plain implementations and simulations without a difference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import permutation_test

from posir_compare.comparison import compare_pair
from posir_compare.pairing import find_common_results
from posir_compare.permutation import (
    paired_permutation,
    permutation_p_value,
    permute_differences,
    pooled_correlation,
    unpaired_permutation,
)
from posir_tasks.evidence import Evidence
from posir_tasks.profile import NDCG_AT_10, rank_columns
from posir_tasks.schemes import AbsolutePositions
from tests.support.comparison import build_common_results, draw_joint_counts, draw_ranks, expand_gains, only_pair, write_run


def mean_difference(a, b, axis):
    return np.mean(b, axis=axis) - np.mean(a, axis=axis)


def ndcg_p_value(joint, paired, draws):
    a, b = expand_gains(joint)
    permuted = permute_differences(build_common_results(joint, paired=paired), draws)["all"]
    return permutation_p_value(b.mean() - a.mean(), permuted), permuted


@pytest.mark.parametrize(("seed", "gap"), [(1, 0.06), (2, 0.1), (3, 0.03)])
@pytest.mark.parametrize("paired", [True, False])
def test_p_value_agrees_with_scipy(paired, seed, gap):
    joint = draw_joint_counts([0.6], [0.6 + gap], 150, seed, correlation=0.5)
    kind = "samples" if paired else "independent"
    theirs = permutation_test(
        expand_gains(joint), mean_difference, permutation_type=kind, vectorized=True, n_resamples=20_000, rng=seed
    )
    p_value, permuted = ndcg_p_value(joint, paired, 20_000)
    error = np.sqrt(theirs.pvalue * (1 - theirs.pvalue) / 20_000)
    assert abs(p_value - theirs.pvalue) < 5 * np.sqrt(2) * error
    assert permuted.std() == pytest.approx(theirs.null_distribution.std(), rel=0.04)
    assert abs(permuted.mean()) < 5 * permuted.std() / np.sqrt(20_000)


def test_unpaired_ranks_are_permuted_within_cells():
    joint = draw_joint_counts([0.9, 0.3], [0.8, 0.4], 60, 4)
    a, b = joint.sum(axis=2), joint.sum(axis=1)
    rng = np.random.default_rng(5)

    def plain():
        sums = []
        for cell_a, cell_b in zip(a, b, strict=True):
            pooled = rng.permutation(np.repeat(NDCG_AT_10, cell_a + cell_b))
            sums.append(pooled[cell_a.sum() :].sum() - pooled[: cell_a.sum()].sum())
        return sums

    theirs, ours = np.array([plain() for _ in range(5000)]), unpaired_permutation(a, b, 5000, np.random.default_rng(6))
    np.testing.assert_allclose(ours.std(axis=0), theirs.std(axis=0), rtol=0.06)
    assert (np.abs(ours.mean(axis=0)) < 5 * ours.std(axis=0) / np.sqrt(5000)).all()


@settings(deadline=None, max_examples=30)
@given(arrays(np.int64, (2, 12, 12), elements=st.sampled_from([0, 0, 0, 0, 1, 3])))
def test_paired_sums_are_at_most_the_sum_of_absolute_differences(joint):
    steps = (joint * np.abs(NDCG_AT_10[:, None] - NDCG_AT_10)).sum(axis=(1, 2))
    assert (np.abs(paired_permutation(joint, 40, np.random.default_rng(1))) <= steps + 1e-9).all()


def test_a_length_bucket_is_tested_by_the_unweighted_mean_of_its_bins():
    joint = draw_joint_counts([0.8, 0.5, 0.4], [0.8, 0.5, 0.4], 90, 1, correlation=0.4)
    joint[1] = 0
    queries = joint.sum(axis=(1, 2))[[0, 2]]
    permuted = permute_differences(build_common_results(joint, joint, paired=True), 8000)["Q2"]
    squares = (joint * (NDCG_AT_10[:, None] - NDCG_AT_10) ** 2).sum(axis=(1, 2))[[0, 2]]
    assert permuted.std() == pytest.approx(np.sqrt((squares / queries**2).sum()) / 2, rel=0.04)


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("queries", [300, pytest.param(3000, marks=pytest.mark.slow)])
def test_no_difference_is_called_significant_in_one_of_twenty(queries, paired):
    means, correlation = np.linspace(0.8, 0.4, 5), 0.6 if paired else 0.0
    joints = (draw_joint_counts(means, means, queries, seed, correlation) for seed in range(600))
    found = [ndcg_p_value(joint, paired, 500)[0] < 0.05 for joint in joints]
    assert 0.03 <= np.mean(found) <= 0.07


def test_pairing_finds_a_difference_that_independent_samples_do_not():
    joint = draw_joint_counts([0.6, 0.5], [0.66, 0.56], 400, 8, correlation=0.9)
    assert ndcg_p_value(joint, True, 2000)[0] < 0.01 < ndcg_p_value(joint, False, 2000)[0]


def test_correlation_is_that_of_deviations_from_the_bin_means():
    joint = draw_joint_counts([0.9, 0.2], [0.8, 0.3], 500, 1, correlation=0.5)
    deviations = np.concatenate([[one - one.mean() for one in expand_gains(cell[None])] for cell in joint], axis=1)
    assert pooled_correlation(joint) == pytest.approx(
        (deviations[0] * deviations[1]).sum() / np.sqrt(np.prod((deviations**2).sum(axis=1)))
    )
    assert pooled_correlation(np.zeros((2, 12, 12), np.int64)) == 0


def test_queries_on_a_shared_boundary_are_permuted_once_for_all_and_in_both_buckets(tmp_path):
    starts = np.array([100] * 40 + [50] * 30 + [9000] * 10)
    evidence = Evidence([f"q{k}" for k in range(80)], ["d"] * 80, starts, starts + 1)
    for model, seed in (("org/a", 1), ("org/b", 5)):
        write_run(tmp_path / "out", model, seed, {"default": evidence}, tmp_path / "ranks", AbsolutePositions())
    for folder in (None, tmp_path / "ranks"):
        found = find_common_results(only_pair(tmp_path / "out"), folder)
        gains = [np.append(NDCG_AT_10, 0)[rank_columns(draw_ranks(80, seed))] for seed in (1, 5)]
        permuted = permute_differences(found, 8000)["all"]
        spread = (
            np.sqrt(((gains[1] - gains[0]) ** 2).sum()) / 80
            if folder
            else np.concatenate(gains).std() * np.sqrt(2 * 160 / 159 / 80)
        )
        assert permuted.std() == pytest.approx(spread, rel=0.04)
        (row, _) = compare_pair(only_pair(tmp_path / "out"), found, 500)
        assert row.difference == pytest.approx(gains[1].mean() - gains[0].mean())
        assert row.queries == 80
