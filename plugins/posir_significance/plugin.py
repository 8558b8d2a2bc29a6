"""The hook implementation: null distribution of PSI, intervals and direction of a profile."""

from __future__ import annotations

from typing import Any

from posir_significance.group_means import compute_group_means
from posir_significance.intervals import ndcg_intervals
from posir_significance.scores import direction_scores, significance_scores
from posir_tasks.plugin_api import hookimpl
from posir_tasks.profile import PositionProfile


@hookimpl
def posir_scores(profile: PositionProfile) -> dict[str, Any]:
    """Return `psi_significance`, `position_intervals` and `position_direction`.

    The first and the last have an entry `all` and, for profiles with length buckets, an entry for each: q1 to q4.
    """
    return {
        "psi_significance": significance_scores(profile),
        "position_intervals": ndcg_intervals(compute_group_means(profile.counts.sum(axis=0))),
        "position_direction": direction_scores(profile),
    }
