"""Scores of a profile that say how far its nDCG@10 and PSI can be trusted, as JSON; intervals are pairs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from posir_psi.scores import bucket_mean, none_if_nan, psi
from posir_significance.direction import FIRST_MINUS_LAST, MIDDLE_MINUS_ENDS, classify_direction, estimate_contrast, fit_trend
from posir_significance.group_means import Integers, compute_group_means
from posir_significance.intervals import Interval, bucket_interval, ndcg_intervals, psi_interval
from posir_significance.permutation_null import NullDistribution, permutation_null, summarize_null
from posir_tasks.profile import PositionProfile


def significance_scores(profile: PositionProfile) -> dict[str, dict[str, Any]]:
    """Return nDCG@10 and PSI with their intervals and the test of PSI: `all` and, with length buckets, an entry for each."""
    scores = {"all": overall_scores(profile)}
    if len(profile.lengths) > 1:
        scores |= {name.lower(): _bucket_scores(profile, index) for index, name in enumerate(profile.lengths)}
    return scores


def overall_scores(profile: PositionProfile) -> dict[str, Any]:
    """Return the entry `all` of `significance_scores`: the mean over distinct queries, and the PSI of the pooled bins."""
    (interval,) = ndcg_intervals(compute_group_means(profile.totals.sum(axis=0, keepdims=True)))
    return {
        **_ndcg_scores(profile.queries, profile.score(), interval),
        **_psi_scores(profile.counts.sum(axis=0), permutation_null(profile).overall),
    }


def _bucket_scores(profile: PositionProfile, index: int) -> dict[str, Any]:
    """Return the entry of a length bucket; its nDCG@10 is the unweighted mean of the bins, as in `ndcg_at_10_qk`."""
    counts, mean = profile.counts[index], bucket_mean(profile.by_cell()[index])
    return {
        **_ndcg_scores(int(profile.totals[index].sum()), mean, bucket_interval(compute_group_means(counts))),
        **_psi_scores(counts, permutation_null(profile).lengths[index]),
    }


def _ndcg_scores(queries: int, mean: float, interval: Interval | None) -> dict[str, Any]:
    return {"queries": queries, "ndcg_at_10": none_if_nan(mean), "ndcg_at_10_interval": interval}


def _psi_scores(counts: Integers, null: NullDistribution) -> dict[str, Any]:
    """Return the fields of a PSI; those of its test are None where fewer than two bins have queries or no query has a gain.

    Args:
        counts: Queries per position bin and rank column, shape (P, 12).
        null: The null distribution of the same bins.
    """
    filled = counts.sum(axis=1) > 0
    observed = float(psi(compute_group_means(counts).means[filled]))
    summary = summarize_null(observed, null.psi) if filled.sum() > 1 else None
    return {
        "psi": none_if_nan(observed),
        "psi_interval": psi_interval(counts, summary.p_value) if summary else None,
        "psi_null_mean": summary.mean if summary else None,
        "psi_null_p95": summary.p95 if summary else None,
        "p_value": summary.p_value if summary else None,
        "psi_corrected": summary.corrected if summary else None,
    }


def direction_scores(profile: PositionProfile) -> dict[str, dict[str, Any]]:
    """Return the direction of the position effect: `all` and, with length buckets, an entry for each."""
    scores = {"all": _direction(profile.counts)}
    if len(profile.lengths) > 1:
        scores |= {name.lower(): _direction(bucket[None]) for name, bucket in zip(profile.lengths, profile.counts, strict=True)}
    return scores


def _direction(counts: Integers) -> dict[str, Any]:
    ends, middle = estimate_contrast(counts, FIRST_MINUS_LAST), estimate_contrast(counts, MIDDLE_MINUS_ENDS)
    return {
        "verdict": classify_direction(ends, middle),
        "first_minus_last": ends.difference if ends else None,
        "first_minus_last_interval": ends.interval if ends else None,
        "middle_minus_ends": middle.difference if middle else None,
        "middle_minus_ends_interval": middle.interval if middle else None,
        **asdict(fit_trend(counts.sum(axis=0))),
    }
