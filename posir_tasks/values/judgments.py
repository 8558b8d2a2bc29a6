"""Additive sums of the metrics of judged queries by cluster, without evidence positions.

Queries about the same document tend to succeed or fail together, so the variance of a mean is
computed between clusters. Sums and sizes are enough for intervals of means and paired differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posir_tasks.base.arrays import Floats, Integers
from posir_tasks.base.digests import digest
from posir_tasks.values.profile import format_counts, validate_json
from posir_tasks.values.result_schema import JUDGMENTS_KEY, SCHEMA

#: Titles of stored metrics by mteb's metric name.
METRICS = {
    "ndcg_at_10": "nDCG@10",
    "mrr_at_10": "MRR@10",
    "recall_at_10": "Recall@10",
    "recall_at_100": "Recall@100",
    "map_at_100": "MAP@100",
}
#: Sums are stored in millionths, the precision of mteb's scores, to make addition exact.
UNIT = 10**6
#: Cluster key for queries grouped by document.
DOCUMENT = "document"
#: Cluster key if each query is its own cluster.
TOPIC = "topic"
#: Unit name for other cluster keys, which are columns of the queries.
CLUSTER = "cluster"


@dataclass(frozen=True, eq=False)
class JudgedScores:
    """Sum of each metric by cluster of queries; additive over subsets."""

    clusters: str
    """The cluster key: `document`, `topic`, or a column of the queries."""
    digests: tuple[str, ...]
    """Digest of queries, grades and clusters, one per subset."""
    sizes: Integers
    """Number of queries per cluster, shape (clusters,)."""
    sums: Integers
    """Sums in millionths, shape (metrics, clusters)."""

    @classmethod
    def from_queries(
        cls, scores: Mapping[str, Sequence[float]], clusters: Mapping[str, str], by: str, data: str
    ) -> JudgedScores:
        """Sum scores by metric and cluster.

        Args:
            scores: Scores of n queries in [0, 1], by metric.
            clusters: Cluster by query id, in the order of the scores.
            by: Cluster key.
            data: Digest of queries and grades.
        """
        names = [*clusters.values()]
        _, rows, sizes = np.unique(names, return_inverse=True, return_counts=True)
        sums = []
        for name in METRICS:
            millionths = np.rint(np.array(scores[name]) * UNIT)
            sums.append(np.bincount(rows, millionths, len(sizes)))
        pairs = sorted(clusters.items())
        key = digest(data, *(text for pair in pairs for text in pair)).hex()
        return cls(by, (key,), sizes, np.stack(sums).astype(np.int64))

    def __add__(self, other: JudgedScores) -> JudgedScores:
        by = ", ".join(dict.fromkeys((self.clusters, other.clusters)))
        sizes = np.concatenate([self.sizes, other.sizes])
        sums = np.concatenate([self.sums, other.sums], axis=1)
        return JudgedScores(by, self.digests + other.digests, sizes, sums)

    @property
    def unit_name(self) -> str:
        """What a cluster is called: `document`, `topic` or `cluster`."""
        return self.clusters if self.clusters in (DOCUMENT, TOPIC) else CLUSTER

    @property
    def queries(self) -> int:
        """Number of judged queries."""
        return int(self.sizes.sum())

    def expand(self, metric: str) -> tuple[Floats, Integers]:
        """Return the cluster mean of a metric and the cluster of each query, shape (n,) each.

        Cluster means preserve the overall mean, its variance between clusters and its degrees of
        freedom.
        """
        row = list(METRICS).index(metric)
        means = self.sums[row] / self.sizes / UNIT
        clusters = np.arange(len(self.sizes))
        return np.repeat(means, self.sizes), np.repeat(clusters, self.sizes)

    def to_json(self) -> dict[str, Any]:
        """Return the scores of one subset as plain JSON."""
        sums = {name: format_counts(row) for name, row in zip(METRICS, self.sums, strict=True)}
        (key,) = self.digests
        return {
            "schema": SCHEMA,
            "clusters": self.clusters,
            "digest": key,
            "queries": format_counts(self.sizes),
            "sums": sums,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JudgedScores:
        """Read the output of `to_json`.

        Raises:
            ProfileError: The JSON is damaged.
            NewerSchemaError: A newer version of posir wrote it.
        """
        with validate_json(data, SCHEMA, field=JUDGMENTS_KEY):
            sizes = np.array(data["queries"].split(), np.int64)
            sums = np.array([data["sums"][name].split() for name in METRICS], np.int64)
            if not len(sizes) or sums.shape[1:] != sizes.shape or sizes.min() < 1:
                raise ValueError(
                    "each cluster needs a positive number of queries and a sum of each metric"
                )
            if sums.min() < 0 or np.any(sums > sizes * UNIT):
                raise ValueError("a sum is not between 0 and the number of queries")
            return cls(str(data["clusters"]), (str(data["digest"]),), sizes, sums)
