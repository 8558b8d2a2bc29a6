"""The permutation null against a plain shuffle and simulations."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from posir_leaderboard.board.build import score_file
from posir_report.cells import build_cells
from posir_report.summary import summarise
from posir_significance import permutation_null as module
from posir_significance.permutation_null import null_psi, permutation_null, permute_gains, summarize_null
from posir_tasks.plugin_api.manager import plugin_scores
from posir_tasks.profile import NDCG_AT_10, RANKS
from posir_tasks.results import read_results
from tests.support.results import write_result
from tests.support.simulation import build_profile, draw_counts, psi_p_value


def shuffled_psi(counts, draws, seed):
    """PSI of the pooled bins after shuffling each length bucket's per-query gains: nothing but NumPy."""
    rng = np.random.default_rng(seed)
    lengths, bins, _ = counts.shape
    found = []
    for _ in range(draws):
        sums, queries = np.zeros(bins), np.zeros(bins)
        for bucket in range(lengths):
            position = np.repeat(np.arange(bins), counts[bucket].sum(axis=1))
            gains = rng.permutation(np.repeat(NDCG_AT_10, counts[bucket].sum(axis=0)))
            sums += np.bincount(position, gains, bins)
            queries += np.bincount(position, minlength=bins)
        means = (sums / queries)[queries > 0]
        found.append(1 - means.min() / means.max())
    return np.array(found)


@pytest.mark.parametrize("queries", [300, 3000])
def test_null_distribution_agrees_with_a_plain_shuffle_of_gains_per_query(queries):
    # Length and position are correlated here, so a shuffle over all lengths would give a different null distribution.
    short = np.append(draw_counts(np.full(4, 0.8), queries, 1), draw_counts(np.full(4, 0.8), queries // 5, 2), axis=0)
    long = np.append(draw_counts(np.full(4, 0.3), queries // 5, 3), draw_counts(np.full(4, 0.3), queries, 4), axis=0)
    counts = np.stack([short, long])
    ours = null_psi(permute_gains(counts).sum(axis=1), counts.sum(axis=(0, 2)))
    plain = shuffled_psi(counts, 2000, 5)
    assert abs(ours.mean() - plain.mean()) < 4 * plain.std() * np.sqrt(2 / 2000)
    low, high = np.quantile(plain, [0.93, 0.97])
    assert low < np.quantile(ours, 0.95) < high


def test_permutation_preserves_empty_bins_and_the_gains_of_a_length_bucket():
    counts = np.stack([draw_counts(np.linspace(0.8, 0.3, 6), 200, seed) for seed in (1, 2, 3)])
    counts[0, 2] = 0
    counts[1] = 0
    permuted = permute_gains(counts, 50)
    assert (permuted[:, 0, 2] == 0).all()
    assert (permuted[:, 1] == 0).all()
    np.testing.assert_allclose(permuted.sum(axis=2), np.tile((counts @ NDCG_AT_10).sum(axis=1), (50, 1)))


def test_one_bin_or_one_rank_leaves_nothing_to_permute():
    one_rank, one_bin = np.zeros((2, 3, len(RANKS)), np.int64)
    one_rank[:, 2] = [900, 40, 3]
    one_bin[1, :3] = [900, 40, 3]
    permuted = permute_gains(np.stack([one_rank, one_bin]), 5)
    np.testing.assert_allclose(permuted, np.tile(np.stack([one_rank, one_bin]) @ NDCG_AT_10, (5, 1, 1)))


def test_summary_by_hand():
    summary = summarize_null(0.3, np.array([0.1, 0.2, 0.3 - 1e-12, 0.4]))
    assert summary.p_value == 3 / 5
    assert summary.mean == pytest.approx(0.25)
    assert summary.corrected == pytest.approx(0.05 / 0.75)
    assert summarize_null(1.0, np.ones(4)).corrected is None


@pytest.mark.parametrize("queries", [500, *(pytest.param(more, marks=pytest.mark.slow) for more in (2000, 42_000))])
@pytest.mark.parametrize("mean", [0.5, 0.85])
def test_no_effect_is_called_significant_in_one_of_twenty(queries, mean):
    found = [psi_p_value(draw_counts(np.full(20, mean), queries, seed), draws=400, seed=seed) < 0.05 for seed in range(700)]
    assert 0.03 <= np.mean(found) <= 0.07


@settings(deadline=None, max_examples=20)
@given(st.permutations(range(6)))
def test_null_does_not_depend_on_the_order_of_bins(order):
    counts = draw_counts([0.7, 0.6, 0.6, 0.5, 0.4, 0.2], 240, 3)
    one, other = (null_psi(permute_gains(c[None], 500)[:, 0], c.sum(axis=1)) for c in (counts, counts[list(order)]))
    assert abs(one.mean() - other.mean()) < 5 * one.std() * np.sqrt(2 / 500)


def test_one_profile_is_permuted_once_on_the_way_from_result_to_leaderboard(tmp_path, monkeypatch):
    computed = []
    monkeypatch.setattr(module, "permute_gains", lambda counts: computed.append(counts) or permute_gains(counts, 50))
    permutation_null.cache_clear()
    file = write_result(tmp_path, {"sports": build_profile(*(draw_counts(np.linspace(0.8, 0.4, 20), 300, k) for k in (1, 2)))})
    (result,) = read_results(tmp_path)
    scores = plugin_scores(result.profile)
    (summary,) = summarise([result])
    cells = build_cells(summary)
    record = score_file(file)
    permutation_null.cache_clear()
    assert summary.scores == scores
    assert record.rows[0].psi_null_p95 == scores["psi_significance"]["all"]["psi_null_p95"]
    assert all(cell.null_low < cell.null_high for cell in cells)
    assert len(computed) == 1
