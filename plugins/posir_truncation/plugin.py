"""The hook implementation: the share of evidence out of reach, and nDCG@10 and PSI over the rest."""

from __future__ import annotations

from typing import Any

from posir_significance.scores import overall_scores
from posir_tasks.plugin_api import hookimpl
from posir_tasks.profile import PositionProfile
from posir_tasks.window_coverage import WindowCoverage


@hookimpl
def posir_scores(profile: PositionProfile, reach: WindowCoverage | None) -> dict[str, Any]:
    """Return `reach`: `window` in tokens; `beyond`, what lies outside it; `seen`, scores over what lies within.

    `beyond` has for `all` and each length bucket the share of queries whose evidence `starts` and `ends` beyond the window,
    in [0, 1]; `seen` has nDCG@10 and PSI, each with interval and noise floor, over the queries whose evidence lies within it
    as a whole. With an unknown window, `window` is None and the others are missing.
    """
    if reach is None:
        return {"reach": {"window": None}}
    queries = profile.totals.sum(axis=1)
    beyond = {"all": shares(reach.starts_beyond.sum(), reach.ends_beyond.sum(), queries.sum())}
    if len(profile.lengths) > 1:
        for index, name in enumerate(profile.lengths):
            beyond[name.lower()] = shares(reach.starts_beyond[index], reach.ends_beyond[index], queries[index])
    return {"reach": {"window": reach.window, "beyond": beyond, "seen": overall_scores(reach.seen)}}


def shares(starts: int, ends: int, queries: int) -> dict[str, float | None]:
    """Return numbers of queries as shares; None of no queries."""
    return {"starts": float(starts / queries) if queries else None, "ends": float(ends / queries) if queries else None}
