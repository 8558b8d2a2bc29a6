"""Metrics of judged queries, without evidence positions, as additive sums by cluster.

Queries about the same document succeed and fail together, so clusters determine the variance of a
mean. Cluster sums and sizes are enough to compute intervals for means and paired differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from posir_tasks.base.arrays import Floats, Integers
from posir_tasks.base.digests import digest
from posir_tasks.values.profile import format_counts, reading_json
from posir_tasks.values.result_schema import JUDGMENTS_KEY, SCHEMA

#: Titles of the stored metrics by mteb's name.
METRICS = {
    "ndcg_at_10": "nDCG@10",
    "mrr_at_10": "MRR@10",
    "recall_at_10": "Recall@10",
    "recall_at_100": "Recall@100",
    "map_at_100": "MAP@100",
}
#: Sums are stored in millionths, the precision of mteb's scores, so that addition is exact.
UNIT = 10**6
#: Cluster keys other than query columns: by document, or each query as a topic.
DOCUMENT = "document"
TOPIC = "topic"
#: Name of the unit for all other cluster keys.
CLUSTER = "cluster"


@dataclass(frozen=True, eq=False)
class JudgedScores:
    """Sums of each metric by cluster of queries; additive over subsets."""

    clusters: str
    """The cluster key: `document`, `topic`, or a column of the queries."""
    digests: tuple[str, ...]
    """Digest of queries, grades and clusters by subset."""
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
            scores: Scores of the queries in [0, 1], by metric.
            clusters: The cluster of each query, in the order of the scores.
            by: The cluster key.
            data: Digest of the queries and their grades.
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
        """Name of the unit that is counted: `document`, `topic` or `cluster`."""
        return self.clusters if self.clusters in (DOCUMENT, TOPIC) else CLUSTER

    @property
    def queries(self) -> int:
        """Number of judged queries."""
        return int(self.sizes.sum())

    def expand(self, metric: str) -> tuple[Floats, Integers]:
        """Return the metric and the cluster of each query, shape (queries,) each.

        The metric is the mean of the cluster, which preserves the overall mean, its variance
        between clusters and its degrees of freedom.
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
        with reading_json(data, SCHEMA, field=JUDGMENTS_KEY):
            sizes = np.array(data["queries"].split(), np.int64)
            sums = np.array([data["sums"][name].split() for name in METRICS], np.int64)
            if not len(sizes) or sums.shape[1:] != sizes.shape or sizes.min() < 1:
                raise ValueError(
                    "each cluster needs a number of queries above 0, and a sum of each metric"
                )
            if sums.min() < 0 or np.any(sums > sizes * UNIT):
                raise ValueError("a sum is not between 0 and the number of queries")
            return cls(str(data["clusters"]), (str(data["digest"]),), sizes, sums)
