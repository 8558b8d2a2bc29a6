"""Scores of a profile that say how far its nDCG@10 and PSI can be trusted, as plain JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from posir_psi.scores import bucket_mean, none_if_nan, psi
from posir_significance.direction import FIRST_MINUS_LAST, MIDDLE_MINUS_ENDS, contrast, trend, verdict
from posir_significance.group_means import Floats, Integers, sample
from posir_significance.intervals import Interval, bucket_interval, ndcg_intervals, psi_interval
from posir_significance.permutation_null import NullSummary, null_psi, null_summary, permuted_gains
from posir_tasks.profile import PositionProfile


def significance_scores(profile: PositionProfile) -> dict[str, dict[str, Any]]:
    """Return nDCG@10 and PSI with intervals and null distribution: `all` and, with length buckets, one entry for each."""
    permuted = permuted_gains(profile.counts)
    scores = {"all": _overall(profile, permuted)}
    if len(profile.lengths) > 1:
        for index, name in enumerate(profile.lengths):
            scores[name.lower()] = {**of_bucket(profile, index), **psi_scores(profile.counts[index], permuted[:, index])}
    return scores


def overall_scores(profile: PositionProfile) -> dict[str, Any]:
    """Return the entry `all` of `significance_scores`."""
    return _overall(profile, permuted_gains(profile.counts))


def direction_scores(profile: PositionProfile) -> dict[str, dict[str, Any]]:
    """Return the direction of the position effect: `all` and, with length buckets, one entry for each."""
    scores = {"all": direction(profile.counts)}
    if len(profile.lengths) > 1:
        scores |= {name.lower(): direction(bucket[None]) for name, bucket in zip(profile.lengths, profile.counts, strict=True)}
    return scores


def _overall(profile: PositionProfile, permuted: Floats) -> dict[str, Any]:
    """Return the fields of all lengths together: distinct queries, their mean nDCG@10, and the PSI of the pooled bins.

    Args:
        profile: With L length buckets and P position bins.
        permuted: Sums of nDCG@10 of each bin under no position effect, shape (draws, L, P).
    """
    (interval,) = ndcg_intervals(sample(profile.totals.sum(axis=0, keepdims=True)))
    mean = scored(profile.queries, profile.score(), interval)
    return {**mean, **psi_scores(profile.counts.sum(axis=0), permuted.sum(axis=1))}


def of_bucket(profile: PositionProfile, index: int) -> dict[str, Any]:
    """Return the number of distinct queries of a length bucket and its nDCG@10(Qk) with its interval.

    nDCG@10(Qk) is the unweighted mean of the bins, as in the scores `ndcg_at_10_qk`, so that the two agree.
    """
    mean = bucket_mean(profile.by_cell()[index])
    return scored(int(profile.totals[index].sum()), mean, bucket_interval(sample(profile.counts[index])))


def scored(queries: int, mean: float, interval: Interval | None) -> dict[str, Any]:
    """Return the fields of a mean nDCG@10."""
    return {"queries": queries, "ndcg_at_10": none_if_nan(mean), "ndcg_at_10_interval": as_list(interval)}


def psi_scores(counts: Integers, permuted: Floats) -> dict[str, Any]:
    """Return the fields of a PSI; the tests of it are None where fewer than two bins have queries or no query has a gain.

    Args:
        counts: Queries per position bin and rank column, shape (P, 12).
        permuted: Sums of nDCG@10 of each bin under no position effect, shape (draws, P).
    """
    queries = counts.sum(axis=1)
    observed = float(psi(sample(counts).means[queries > 0]))
    floor = null_summary(observed, null_psi(permuted, queries)) if (queries > 0).sum() > 1 else None
    interval = psi_interval(counts, floor.p_value) if floor else None
    return {"psi": none_if_nan(observed), "psi_interval": as_list(interval), **floor_scores(floor)}


def floor_scores(floor: NullSummary | None) -> dict[str, float | None]:
    """Return the fields of a noise floor, all None where there is none."""
    return {
        "psi_null_mean": floor.mean if floor else None,
        "psi_null_p95": floor.p95 if floor else None,
        "p_value": floor.p_value if floor else None,
        "psi_corrected": floor.corrected if floor else None,
    }


def direction(counts: Integers) -> dict[str, Any]:
    """Return the fields of a direction.

    Args:
        counts: Queries per length bucket, position bin and rank column, shape (L, P, 12).
    """
    ends, middle = contrast(counts, FIRST_MINUS_LAST), contrast(counts, MIDDLE_MINUS_ENDS)
    return {
        "verdict": verdict(ends, middle),
        "first_minus_last": ends.difference if ends else None,
        "first_minus_last_interval": as_list(ends.interval if ends else None),
        "middle_minus_ends": middle.difference if middle else None,
        "middle_minus_ends_interval": as_list(middle.interval if middle else None),
        **asdict(trend(counts.sum(axis=0))),
    }


def as_list(interval: Interval | None) -> list[float] | None:
    """Return an interval as JSON has it."""
    return list(interval) if interval else None
