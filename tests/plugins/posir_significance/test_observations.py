"""Test observations from ranks by document against those from a profile."""

import numpy as np

from posir_significance.observations import Observations
from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.profile import NDCG_AT_10
from posir_tasks.values.schemes import AbsolutePositions


def test_a_query_on_a_shared_boundary_has_two_memberships():
    starts = np.array([100, 50, 9_999, 250])
    evidence = Evidence(["a", "b", "c", "d"], ["x", "x", "y", "z"], starts, starts + 1)
    ranks = DocumentRanks.from_ranks(AbsolutePositions(), evidence, np.array([1, 2, 3, 0]))
    result = Observations.from_ranks(ranks)
    layout = result.layout
    assert sorted(result.gains.tolist()) == sorted([1.0, NDCG_AT_10[1], 0.5, 0.0])
    placed = sorted(
        zip(result.gains[layout.query].round(3).tolist(), layout.position.tolist(), strict=True)
    )
    assert placed == [(0.0, 2), (0.631, 0), (1.0, 0), (1.0, 1)]
    assert len(set(layout.clusters.tolist())) == 3
    chosen = result.select(result.gains == 1).layout
    assert (chosen.position.tolist(), chosen.query.tolist()) == ([0, 1], [0, 0])


def test_ranks_and_profile_give_the_same_bins():
    rng = np.random.default_rng(3)
    starts = rng.integers(0, 600, 80)
    evidence = Evidence(
        [f"q{row}" for row in range(80)], [f"d{row // 4}" for row in range(80)], starts, starts + 5
    )
    ranks = DocumentRanks.from_ranks(AbsolutePositions(), evidence, rng.integers(0, 15, 80))
    bins = Observations.from_ranks(ranks)
    layout = bins.layout
    gains = np.bincount(layout.position, bins.gains[layout.query])
    np.testing.assert_allclose(gains, (ranks.profile.counts @ NDCG_AT_10).sum(axis=0))
    assert layout.bin_counts.tolist() == ranks.profile.counts.sum(axis=(0, 2)).tolist()
    assert len(set(layout.clusters.tolist())) == 20
