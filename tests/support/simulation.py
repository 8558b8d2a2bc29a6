"""Simulated profiles with known true scores."""

import numpy as np

from posir_tasks.base.digests import digest
from posir_tasks.values.document_ranks import DocumentRanks, DocumentSet
from posir_tasks.values.profile import NDCG_AT_10, PositionProfile
from posir_tasks.values.schemes import Axes

#: Rank distributions of a good and of a bad retriever; mixtures of the two have any mean between
#: theirs.
GOOD = np.array([0.86, 0.05, 0.03, 0.01, 0.01, 0.01, 0.01, 0.0, 0.01, 0.0, 0.01, 0.0])
BAD = np.array([0.02, 0.03, 0.03, 0.02, 0.02, 0.02, 0.01, 0.02, 0.01, 0.02, 0.5, 0.3])


def rank_distributions(means):
    """Rank distributions (P, 12) with the given mean nDCG@10."""
    share = (np.asarray(means) - BAD @ NDCG_AT_10) / (GOOD @ NDCG_AT_10 - BAD @ NDCG_AT_10)
    return share[:, None] * GOOD + (1 - share[:, None]) * BAD


def draw_counts(means, queries, seed):
    """Counts (P, 12) of queries that fall into bins at random."""
    rng = np.random.default_rng(seed)
    bins = rng.multinomial(queries, np.full(len(means), 1 / len(means)))
    return rng.multinomial(bins, rank_distributions(means))


def build_profile(*buckets):
    """A profile with one length bucket for each (P, 12)."""
    counts = np.array(buckets, np.int64)
    lengths = tuple(f"Q{k + 1}" for k in range(len(counts)))
    return PositionProfile(
        Axes("test", lengths, tuple(map(str, range(counts.shape[1])))), counts, counts.sum(axis=1)
    )


def separate_documents(profile, subset="default"):
    """The ranks of a profile whose queries are counted once, with a document for each query."""
    assert np.array_equal(profile.counts.sum(axis=1), profile.totals)
    length, position, rank = (
        np.repeat(index, profile.counts.ravel())
        for index in np.indices(profile.counts.shape).reshape(3, -1)
    )
    keys = sorted(
        {(row, (column,)) for row, column in zip(length.tolist(), position.tolist(), strict=True)}
    )
    cells = [
        keys.index((row, (column,)))
        for row, column in zip(length.tolist(), position.tolist(), strict=True)
    ]
    name, items = digest(profile.to_json()).hex(), np.ones_like(rank)
    nothing = np.zeros(0, np.int64)
    keys_of_documents = np.zeros((len(items), 3), np.int64)
    part = DocumentSet(
        subset,
        name,
        name,
        items,
        np.array(cells, np.int64),
        rank,
        nothing,
        nothing,
        keys_of_documents,
        None,
    )
    return DocumentRanks(profile.axes, tuple(keys), (part,) if len(rank) else ())
