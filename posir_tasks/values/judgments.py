"""Metrics of queries with plain judgments, without positions of evidence: sums over the queries of
each cluster, which add.

Queries about one document succeed and fail together, so a mean varies as clusters of queries do.
Its interval, and the paired difference of two systems on the same queries, follow from the sums and
numbers of queries alone.
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

#: mteb's names of the metrics that are stored, and how they are printed.
METRICS = {
    "ndcg_at_10": "nDCG@10",
    "mrr_at_10": "MRR@10",
    "recall_at_10": "Recall@10",
    "recall_at_100": "Recall@100",
    "map_at_100": "MAP@100",
}
#: Sums are stored in millionths, as mteb rounds scores, so that they add exactly.
UNIT = 10**6
#: What queries are clustered by, apart from a column of theirs: the document, or nothing, since
#: each query is a topic.
DOCUMENT = "document"
TOPIC = "topic"
#: What clusters are called that are neither.
CLUSTER = "cluster"


@dataclass(frozen=True, eq=False)
class JudgedScores:
    """Sums of each metric over the queries of each cluster. Those of subsets add."""

    clusters: str
    """The key of the clusters: `document`, `topic`, or a column of theirs."""
    digests: tuple[str, ...]
    """Digest of the queries of each subset with their grades and clusters."""
    sizes: Integers
    """Queries of each cluster, shape (clusters,)."""
    sums: Integers
    """Sums in millionths, shape (metrics, clusters)."""

    @classmethod
    def from_queries(
        cls, scores: Mapping[str, Sequence[float]], clusters: Mapping[str, str], by: str, data: str
    ) -> JudgedScores:
        """Sum the scores in [0, 1] by metric of the judged queries, in their order.

        Args:
            scores: The scores of the queries by metric.
            clusters: The cluster of each query, in the order of the scores.
            by: The key of the clusters.
            data: Digest of the queries and their grades.
        """
        names = [*clusters.values()]
        _, rows, sizes = np.unique(names, return_inverse=True, return_counts=True)
        sums = []
        for name in METRICS:
            millionths = np.rint(np.array(scores[name]) * UNIT)
            sums.append(np.bincount(rows, millionths, len(sizes)))
        pairs = sorted(clusters.items())
        key = digest(data, *(part for pair in pairs for part in pair)).hex()
        return cls(by, (key,), sizes, np.stack(sums).astype(np.int64))

    def __add__(self, other: JudgedScores) -> JudgedScores:
        by = ", ".join(dict.fromkeys((self.clusters, other.clusters)))
        sizes = np.concatenate([self.sizes, other.sizes])
        sums = np.concatenate([self.sums, other.sums], axis=1)
        return JudgedScores(by, self.digests + other.digests, sizes, sums)

    @property
    def counted(self) -> str:
        """The noun of its clusters."""
        return self.clusters if self.clusters in (DOCUMENT, TOPIC) else CLUSTER

    @property
    def queries(self) -> int:
        """Number of judged queries."""
        return int(self.sizes.sum())

    def expand(self, metric: str) -> tuple[Floats, Integers]:
        """Return a metric and the cluster of each query, shape (queries,), with the mean of its
        cluster instead of its own.

        The mean, its variance between clusters, and its degrees of freedom are those of the
        queries' own scores.
        """
        row = list(METRICS).index(metric)
        means = self.sums[row] / self.sizes / UNIT
        clusters = np.arange(len(self.sizes))
        return np.repeat(means, self.sizes), np.repeat(clusters, self.sizes)

    def to_json(self) -> dict[str, Any]:
        """Return the value of a subset as plain JSON."""
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
        """Read what `to_json` returned; raise ProfileError if it is damaged, NewerSchemaError if
        newer.
        """
        with reading_json(data, SCHEMA, field=JUDGMENTS_KEY):
            sizes = np.array(data["queries"].split(), np.int64)
            sums = np.array([data["sums"][name].split() for name in METRICS], np.int64)
            if not len(sizes) or sums.shape[1:] != sizes.shape or sizes.min() < 1:
                raise ValueError(
                    "each cluster needs a number of queries above 0, and a sum of each metric"
                )
            if sums.min() < 0 or np.any(sums > sizes * UNIT):
                raise ValueError("a sum is outside 0 to its number of queries")
            return cls(str(data["clusters"]), (str(data["digest"]),), sizes, sums)
