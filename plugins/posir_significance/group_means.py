"""Means of the groups of a result, estimated together, since a call takes longer than its
arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from posir_significance.observations import Observations
from posir_significance.published_psi import PublishedPsi, estimate_psi
from posir_tasks.values.evidence import TWELFTHS
from posir_tasks.values.means import MeanEstimate, estimate_jointly

#: Minimum number of queries per bin in a chart; at 30, a mean's 95% interval is up to 0.36 wide.
MIN_QUERIES = 30

Means = Sequence[MeanEstimate | None]


@dataclass(frozen=True, eq=False)
class GroupMeans:
    """Mean nDCG@10 of G groups of queries, each list of length G; None without queries."""

    groups: tuple[Observations, ...]

    @cached_property
    def overall(self) -> Means:
        """The mean over the queries of each group."""
        return _estimate_queries(self.groups)

    @cached_property
    def of_bins(self) -> Means:
        """The unweighted mean of the non-empty bins of each group."""
        designs = [group.layout.mean_of_bins_design for group in self.groups]
        gains = [group.gains[group.layout.query] for group in self.groups]
        return [means[0] for means in estimate_jointly(gains, designs)]

    @cached_property
    def truncated(self) -> Means:
        """The mean over the queries of each group with truncated evidence."""
        rows = [
            group.select(group.twelfths >= TWELFTHS) for group in self.groups if group.has_window
        ]
        means = iter(_estimate_queries(rows))
        return [next(means) if group.has_window else None for group in self.groups]

    @cached_property
    def by_bin(self) -> Sequence[Means]:
        """The mean of each position bin."""
        designs = [group.layout.bin_design for group in self.groups]
        gains = [group.gains[group.layout.query] for group in self.groups]
        return estimate_jointly(gains, designs)

    @cached_property
    def published_psi(self) -> Sequence[PublishedPsi]:
        """PSI as published, and PSI by chance, of each group."""
        return estimate_psi(self.groups)

    @cached_property
    def by_part(self) -> Sequence[Means]:
        """The mean in equal parts of the window, or of the document if the window is unknown."""
        return GroupMeans(tuple(map(split_parts, self.groups))).by_bin


def _estimate_queries(groups: Sequence[Observations]) -> Means:
    designs = [group.layout.mean_design for group in groups]
    return [means[0] for means in estimate_jointly([group.gains for group in groups], designs)]


def split_parts(observations: Observations) -> Observations:
    """Replace the bins by equal parts of the window, or of the document if the window is unknown.

    The number of parts (12, 6, 4 or 3 for the window) is the largest with `MIN_QUERIES` queries in
    each part, and at least three.
    """
    if observations.has_window:
        observations = observations.select(observations.twelfths < TWELFTHS)
        layout = observations.layout.replace_bins(observations.twelfths, TWELFTHS)
        observations = replace(observations, layout=layout)
    layout = observations.layout
    merged = layout
    for size in range(1, max(layout.bins // 3, 1) + 1):
        if layout.bins % size == 0:
            merged = layout.merge_bins(size)
            if merged.bin_counts.min() >= MIN_QUERIES:
                break
    return replace(observations, layout=merged)
