"""The hook implementation: intervals, the test of the position effect and its direction."""

from __future__ import annotations

from typing import Any

from posir_significance.analysis import analyse
from posir_significance.scores import direction_scores, significance_scores
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.plugin_api import hookimpl
from posir_tasks.profile import PositionProfile


@hookimpl
def posir_scores(profile: PositionProfile, ranks: DocumentRanks | None) -> dict[str, Any]:
    """Return `psi_significance`, `position_intervals` and `position_direction`.

    The first and the last have an entry `all` and, for profiles with length buckets, one for each: q1 to q4.
    """
    return {
        "psi_significance": significance_scores(profile, ranks),
        "position_intervals": [one.interval if one else None for one in analyse(profile, ranks).overall.bins],
        "position_direction": direction_scores(profile, ranks),
    }
