"""Test that models with the same queries share a layout, and that its columns are right."""

import numpy as np
import pandas as pd
import pytest

from posir_tasks.values.document_ranks import DocumentRanks
from posir_tasks.values.evidence import Evidence
from posir_tasks.values.layouts import QueryLayout
from posir_tasks.values.means import estimate_mean, estimate_means
from posir_tasks.values.schemes import AbsolutePositions


def sample_ranks(seed, names="d"):
    """Ranks of 80 queries about 20 documents."""
    starts = np.random.default_rng(0).integers(0, 600, 80)
    documents = [f"{names}{row // 4}" for row in range(80)]
    evidence = Evidence([f"q{row}" for row in range(80)], documents, starts, starts + 5)
    ranks = np.random.default_rng(seed).integers(0, 15, 80)
    return DocumentRanks.from_ranks(AbsolutePositions(), evidence, ranks)


def test_only_models_with_the_same_queries_share_a_layout():
    first = sample_ranks(1)
    second = sample_ranks(2)
    assert first.layout is second.layout
    assert first.columns.clusters is second.columns.clusters
    assert not np.array_equal(first.columns.ranks, second.columns.ranks)
    others = [sample_ranks(1, "x"), first + sample_ranks(1, "x")]
    assert len({first.layout, *(other.layout for other in others)}) == 3


def test_shared_arrays_are_read_only():
    ranks = sample_ranks(1)
    layout = ranks.layout
    selection = layout.select(layout.lengths >= 0)
    for shared in (ranks.columns.clusters, ranks.columns.cells, layout.position, selection.query):
        with pytest.raises(ValueError, match="read-only"):
            shared[:] = 0
    # The ranks of a result are its own.
    ranks.columns.ranks[:] = 0


def sample_layout():
    """A layout of 60 queries, every third of which is in two of twelve bins."""
    rng = np.random.default_rng(3)
    first = rng.integers(0, 11, 60)
    rows = [(row, first[row] + step) for row in range(60) for step in range(1 + (row % 3 == 0))]
    query, position = np.array(rows).T
    lengths = rng.integers(0, 2, 60)
    return QueryLayout(lengths, rng.integers(0, 15, 60), query, position, 12)


def test_selections_and_merged_bins_equal_those_of_pandas():
    layout = sample_layout()
    frame = pd.DataFrame({"query": layout.query, "bin": layout.position})
    mask = layout.lengths == 1
    selection = layout.select(mask)
    assert layout.select(mask.copy()) is selection
    numbers = np.flatnonzero(mask)
    expected = frame[mask[layout.query]]
    assert numbers[selection.query].tolist() == expected["query"].tolist()
    assert selection.position.tolist() == expected["bin"].tolist()
    assert selection.clusters.tolist() == layout.clusters[mask].tolist()
    merged = layout.merge_bins(4)
    pairs = frame.assign(bin=frame.bin // 4).drop_duplicates().sort_values(["query", "bin"])
    assert merged.query.tolist() == pairs["query"].tolist()
    assert merged.position.tolist() == pairs["bin"].tolist()
    replaced = layout.replace_bins(np.arange(60) % 5, 5)
    assert replaced.bin_counts.tolist() == [12] * 5


def test_designs_estimate_the_same_means_as_each_group_alone():
    layout = sample_layout()
    gains = np.random.default_rng(4).random(60)
    assert estimate_means(gains, layout.mean_design) == [estimate_mean(gains, layout.clusters)]
    by_bin = estimate_means(gains[layout.query], layout.bin_design)
    for index, mean in enumerate(by_bin):
        rows = layout.query[layout.position == index]
        if not len(rows):
            assert mean is None
            continue
        alone = estimate_mean(gains[rows], layout.clusters[rows])
        assert mean.value == pytest.approx(alone.value)
        assert mean.interval == pytest.approx(alone.interval)
