"""Differences between two models, by length: in nDCG@10, in PSI, and from the start of documents to their end.

`benchmarks/compare_coverage.py` measures level and coverage; docs/compare.md has its results.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from posir_compare.pairing import CommonResults
from posir_significance.analysis import Analysis, GroupAnalysis, analyze, estimate_start_to_end, select_strata
from posir_significance.correction import count_different, count_informative
from posir_significance.effect_test import run_effect_test
from posir_significance.intervals import (
    LEVEL,
    estimate_difference,
    subtract_means,
)
from posir_significance.observations import Floats, Observations
from posir_significance.position_effect import PositionEffect, estimate_effect, refine_covariance
from posir_tasks.estimates import Difference, Interval

#: Quantiles by which a posterior distribution of PSI enters a difference.
QUANTILES: Floats = (np.arange(250) + 0.5) / 250


@dataclass(frozen=True)
class GroupDifferences:
    """The differences over a group of queries: all of them, or one length bucket. None where undefined."""

    ndcg: Difference | None
    psi: Difference | None
    """The p-value is that of the position effect: whether the two models' bins differ by more than a constant."""
    start_to_end: Difference | None
    different_documents: int
    """Documents (articles, where known) that can move the test of nDCG@10."""
    informative_documents: int
    """Those that can move the tests of the position effect."""
    documents: int
    """All documents (articles, where known); of unpaired results the fewer."""


def find_differences(common: CommonResults) -> tuple[GroupDifferences, ...]:
    """Return the differences over all queries and, with length buckets, in each bucket."""
    groups = zip(_groups(analyze(common.a)), _groups(analyze(common.b)), strict=True)
    bins = len(common.a.profile.positions)
    if common.paired is None:
        return tuple(_subtract_groups(a, b, bins) for a, b in groups)
    paired = subtract_observations(*common.paired)
    return tuple(
        _find_paired(paired if index < 0 else paired.select(paired.lengths == index), a, b)
        for index, (a, b) in enumerate(groups, start=-1)
    )


def _groups(analysis: Analysis) -> tuple[GroupAnalysis, ...]:
    return (analysis.overall, *analysis.lengths)


def subtract_observations(a: Observations, b: Observations) -> Observations:
    """Return the differences in gain, b - a, of the same queries in the same order."""
    return replace(a, gains=b.gains - a.gains)


def subtract_effects(a: PositionEffect, b: PositionEffect) -> PositionEffect:
    """Return the difference of the position effects, b - a, of independent results: covariances add.

    If the two effects do not differ, each of them may still be large: the null covariance is that of the estimates, too.

    Args:
        a: Of the B bins that have queries.
        b: Of the same bins.
    """
    return replace(
        a,
        level=b.level - a.level,
        effects=b.effects - a.effects,
        null_covariance=a.covariance + b.covariance,
        covariance=a.covariance + b.covariance,
        null_clusters=a.clusters + b.clusters,
        clusters=a.clusters + b.clusters,
        floor=a.floor + b.floor,
        connected=a.connected and b.connected,
        count=min(a.count, b.count),
        degrees=min(a.degrees, b.degrees),
    )


def _find_paired(differences: Observations, a: GroupAnalysis, b: GroupAnalysis) -> GroupDifferences:
    mean, effect = estimate_difference(differences.gains, differences.clusters), estimate_effect(differences)
    if effect and a.test and b.test and a.variances is not None and b.variances is not None:
        variances, expected = a.variances + b.variances, b.test.expected - a.test.expected
        effect = refine_covariance(differences, effect, variances, expected, [a.test.expected, b.test.expected])
        effect = replace(effect, null_covariance=effect.covariance)
    informative = count_informative(differences, select_strata(differences, effect)) if effect else 0
    different = count_different(differences.gains, differences.clusters)
    documents = different, informative, len(np.unique(differences.clusters))
    return _combine(mean, effect, a, b, differences.bins, documents)


def _subtract_groups(a: GroupAnalysis, b: GroupAnalysis, bins: int) -> GroupDifferences:
    mean = subtract_means(a.ndcg, b.ndcg) if a.ndcg and b.ndcg else None
    effect = subtract_effects(a.effect, b.effect) if a.effect and b.effect else None
    fewer = min(a.documents, b.documents)
    documents = fewer, min(a.informative, b.informative), fewer
    return _combine(mean, effect, a, b, bins, documents)


def _combine(
    ndcg: Difference | None,
    effect: PositionEffect | None,
    a: GroupAnalysis,
    b: GroupAnalysis,
    bins: int,
    documents: tuple[int, int, int],
) -> GroupDifferences:
    if effect is None:
        return GroupDifferences(ndcg, None, None, *documents)
    psi = None
    if a.psi and b.psi and a.psi_draws is not None and b.psi_draws is not None:
        p_value = run_effect_test(effect, bins).p_value
        psi = subtract_psi(a.psi_draws, b.psi_draws, (a.psi.low == 0, b.psi.low == 0), p_value)
    return GroupDifferences(ndcg, psi, estimate_start_to_end(effect, bins, limit=2.0), *documents)


def subtract_psi(a: Floats, b: Floats, may_be_zero: tuple[bool, bool], p_value: float | None) -> Difference:
    """Return median and central 95 % of the difference of two independent posterior distributions of PSI, b - a.

    Every quantile of one is subtracted from every quantile of the other, so that b - a is exactly the opposite of a - b. The
    posterior of a model without any position effect does not contain its PSI of 0. Where a model's interval starts at 0, the
    end of the difference that is far if that model has a PSI of 0 therefore takes the lower half of its draws for 0.

    Args:
        a: Draws of the true PSI of a, in [0, 1], shape (draws,).
        b: Those of b.
        may_be_zero: Whether the intervals of the PSI of a and of b start at 0.
        p_value: Of the difference of the position effects.
    """
    quantiles = [np.quantile(draws, QUANTILES) for draws in (a, b)]
    lowered = [np.where(zero & (QUANTILES < 0.5), 0.0, values) for zero, values in zip(may_be_zero, quantiles, strict=True)]
    median = np.median(np.subtract.outer(quantiles[1], quantiles[0]))
    interval_at = partial(_subtract_quantiles, (lowered[1], quantiles[0]), (quantiles[1], lowered[0]))
    return Difference(float(median), interval_at(LEVEL), p_value, interval_at)


def _subtract_quantiles(smallest: tuple[Floats, Floats], largest: tuple[Floats, Floats], level: float) -> Interval:
    """Return the ends of the central share of all differences: the low end of the smallest, the high end of the largest."""
    low, high = (np.subtract.outer(*quantiles) for quantiles in (smallest, largest))
    return float(np.quantile(low, (1 - level) / 2)), float(np.quantile(high, (1 + level) / 2))
