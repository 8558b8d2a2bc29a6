"""Lazy statistical analysis of a result, shared by scores, charts and the board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate

import numpy as np
from scipy.special import stdtrit

from posir_significance.controlled import THIRDS, ControlledTest
from posir_significance.findings import Reason
from posir_significance.group_means import GroupMeans, Means
from posir_significance.observations import Floats, Observations
from posir_significance.published_psi import PublishedPsi
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.judgments import CLUSTER, DOCUMENT
from posir_tasks.values.means import LEVEL, MeanEstimate
from posir_tasks.values.rotation_ranks import Window
from posir_tasks.values.scores import ResultValues

#: Maximum number of cached analyses.
MAX_CACHED_ANALYSES = 256
#: Key of `BatchMeans` in the cache of a batch.
BATCH_MEANS = "means"
#: Replaces zero counts in divisions.
TINY = 1e-12


@dataclass(frozen=True, eq=False)
class GroupAnalysis:
    """Lazy statistics over the queries of a result or a length bucket; None if undefined."""

    observations: Observations
    """The queries."""
    untested_reason: Reason | None = None
    """Why there are no rotated versions, or None if there are."""
    whole: ControlledTest | None = None
    """Test W, or None if there are no rotated versions."""
    within: ControlledTest | None = None
    """Test R, or None if there are no rotated versions or no window that all subsets share."""
    versions: tuple[object, ...] = ()
    """Digests of questions and versions in test W. Models with equal digests are paired by row."""
    window_versions: tuple[object, ...] = ()
    """Digests of questions and versions in test R."""
    means: GroupMeans | None = None
    """The means of all groups of the result; None if the group is the only one."""
    index: int = 0
    """Index of the group in `means`."""

    @property
    def queries(self) -> int:
        """Number of queries."""
        return round(float(self.observations.layout.row_weights.sum()))

    @property
    def has_several_spans(self) -> bool:
        """True if each query has several evidence spans, so that PSI is undefined."""
        return bool(len(self.observations.layout.weights))

    @property
    def unit_name(self) -> str:
        """Name of the independent units: documents, or clusters of documents that share a query
        with several evidence spans.
        """
        return CLUSTER if self.has_several_spans else DOCUMENT

    @cached_property
    def documents(self) -> int:
        """Number of independent units: documents, articles or clusters of documents."""
        return int(self.observations.layout.cluster_numbers.max(initial=-1)) + 1

    @property
    def ndcg(self) -> MeanEstimate | None:
        """Mean nDCG@10 over queries."""
        return self._all_means.overall[self.index]

    @property
    def ndcg_as_published(self) -> MeanEstimate | None:
        """Unweighted mean of the non-empty bins, which papers report for length buckets."""
        return self._all_means.of_bins[self.index]

    @property
    def ndcg_truncated(self) -> MeanEstimate | None:
        """Mean nDCG@10 over queries with truncated evidence."""
        return self._all_means.truncated[self.index]

    @property
    def ndcg_by_bin(self) -> Means:
        """Mean nDCG@10 of each position bin."""
        return self._all_means.by_bin[self.index]

    @property
    def ndcg_by_part(self) -> Means:
        """Mean nDCG@10 in equal parts of the window or, if it is unknown, of the document."""
        return self._all_means.by_part[self.index]

    @cached_property
    def _all_means(self) -> GroupMeans:
        return self.means or GroupMeans((self.observations,))

    @cached_property
    def start_minus_end(self) -> Estimate | None:
        """Mean of queries in the first third of documents minus the mean in the last third."""
        return estimate_start_minus_end(self.observations)

    @property
    def published_psi(self) -> PublishedPsi:
        """PSI as published, and PSI by chance for these queries."""
        return self._all_means.published_psi[self.index]


@dataclass(frozen=True, eq=False)
class BatchMeans:
    """The means of the groups of several results: of all queries, and of several length buckets."""

    results: tuple[ResultValues, ...]

    @cached_property
    def overall(self) -> GroupMeans:
        """The means over all queries of each result."""
        groups = [Observations.from_ranks(values.ranks, values.read) for values in self.results]
        return GroupMeans(tuple(groups))

    @cached_property
    def lengths(self) -> GroupMeans:
        """The means of the length buckets of each result with several."""
        groups: list[Observations] = []
        for first, last, group in zip(
            self.firsts, self.firsts[1:], self.overall.groups, strict=False
        ):
            lengths = group.layout.lengths
            groups += [group.select(lengths == length) for length in range(last - first)]
        return GroupMeans(tuple(groups))

    @cached_property
    def firsts(self) -> Sequence[int]:
        """Index in `lengths` of each result's first bucket, and the number of buckets."""
        counts = [len(values.ranks.axes.lengths) for values in self.results]
        return list(accumulate((count if count > 1 else 0 for count in counts), initial=0))


@dataclass(frozen=True, eq=False)
class Analysis:
    """The analysis of a result."""

    values: ResultValues
    means: BatchMeans
    """The means of the result, and possibly of other results."""
    index: int
    """Index of the result in `means`."""

    @cached_property
    def overall(self) -> GroupAnalysis:
        """The analysis of all queries."""
        return self._analyze_group(self.means.overall, self.index)

    @cached_property
    def lengths(self) -> tuple[GroupAnalysis, ...]:
        """The analysis of each length bucket; empty if there is only one."""
        first, last = self.means.firsts[self.index : self.index + 2]
        return tuple(
            self._analyze_group(self.means.lengths, index, index - first)
            for index in range(first, last)
        )

    @property
    def groups(self) -> tuple[GroupAnalysis, ...]:
        """All queries, then each length bucket."""
        return (self.overall, *self.lengths)

    def _analyze_group(
        self, means: GroupMeans, index: int, length: int | None = None
    ) -> GroupAnalysis:
        """Analyze a group of `means`: all queries, or a length bucket."""
        values = self.values
        analysis = GroupAnalysis(means.groups[index], means=means, index=index)
        rotations = values.rotations
        if rotations is None:
            return replace(analysis, untested_reason=Reason.NOT_STORED)
        if not rotations.covers(values.ranks) or rotations.is_partly_tested:
            return replace(analysis, untested_reason=Reason.PARTLY_STORED)
        if rotations.untested is not None:
            return replace(analysis, untested_reason=Reason(rotations.untested.value))
        analysis = replace(
            analysis,
            whole=ControlledTest.from_ranks(values.ranks, rotations, window=False, length=length),
            versions=rotations.list_digests(window=False),
        )
        if rotations.window is Window.UNKNOWN:
            return analysis
        within = ControlledTest.from_ranks(values.ranks, rotations, window=True, length=length)
        versions = rotations.list_digests(window=True)
        return replace(analysis, within=within, window_versions=versions)


@lru_cache(maxsize=MAX_CACHED_ANALYSES)
def analyze(values: ResultValues) -> Analysis:
    """Analyze a result lazily; cached."""
    batch = values.batch
    means = BatchMeans(batch.results)
    if len(batch.results) > 1:
        means = batch.cache.setdefault(BATCH_MEANS, means)
    return Analysis(values, means, batch.indices[id(values)])


def load_group(values: ResultValues, index: int) -> GroupAnalysis:
    """Analyze all queries of a result (index 0), or a length bucket (from 1)."""
    analysis = analyze(values)
    return analysis.lengths[index - 1] if index else analysis.overall


def analyze_spans(values: ResultValues) -> GroupAnalysis | None:
    """Analyze the queries with several evidence spans, or return None if there are none.

    Each of a query's n spans has weight 1/n.
    """
    places = values.places
    if places is None or not len(places.columns.ranks):
        return None
    return GroupAnalysis(Observations.from_ranks(places, values.read))


def estimate_start_minus_end(observations: Observations) -> Estimate | None:
    """Estimate the mean gain in the first third of documents minus the mean in the last third.

    SE^2 = C / (C - 1) sum u_c^2 over C clusters, with a t quantile of C - 1 degrees of freedom. u_c
    sums the deviations of gains from the mean of their third, divided by the number of queries in
    that third, with a negative sign in the last third. A query in several thirds counts partly in
    each.
    """
    shares = observations.layout.third_weights
    totals = shares.sum(axis=0)
    if not totals[0] or not totals[-1]:
        return None
    totals = np.maximum(totals, TINY)
    means = shares.T @ observations.gains / totals
    deviations = (observations.gains[:, None] - means) * shares / totals
    clusters = observations.layout.cluster_numbers
    sums = np.bincount(clusters, deviations[:, 0] - deviations[:, -1])
    value = float(means[0] - means[-1])
    count = len(sums)
    if count < 2:
        return Estimate(value)
    error = float(np.sqrt(count / (count - 1) * (sums @ sums)))
    half = float(stdtrit(count - 1, (1 + LEVEL) / 2)) * error
    return Estimate(value, (max(value - half, -1.0), min(value + half, 1.0)))


def average_thirds(observations: Observations) -> Floats:
    """Average the gains in each third of documents, shape (3,); NaN without queries."""
    shares = observations.layout.third_weights
    totals = shares.sum(axis=0)
    sums = shares.T @ observations.gains
    means: Floats = np.divide(sums, totals, out=np.full(THIRDS, np.nan), where=totals > 0)
    return means
