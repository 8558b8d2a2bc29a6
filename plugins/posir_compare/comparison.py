"""From pairs to rows: each length and metric of a pair is one comparison, and p-values are corrected for their number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from posir_compare.differences import (
    Estimate,
    ndcg_difference_interval,
    possible_interval,
    possible_p_value,
    psi_differences,
)
from posir_compare.model_runs import Pair
from posir_compare.pairing import Match, match
from posir_compare.permutation import correlation, exchange_p_value, exchanged_differences, match_correlation
from posir_significance.group_means import Floats
from posir_significance.intervals import Interval
from posir_significance.scores import significance_scores
from posir_tasks.display.progress import progress
from posir_tasks.errors import PosirError
from posir_tasks.profile import PositionProfile

#: Draws are at least this many, and this many for each comparison: so that the smallest p-value there can be, which is
#: 2 / (draws + 1), stays below 0.05 when it is corrected.
DRAWS, DRAWS_PER_COMPARISON = 2000, 80


class Metric(StrEnum):
    """What is compared; p-values are corrected within each."""

    NDCG = "nDCG@10"
    PSI = "PSI"


class Method(StrEnum):
    """How."""

    PAIRED = "paired by query"
    UNPAIRED = "unpaired"


@dataclass(frozen=True)
class Row:
    """One comparison, b with a. None where undefined."""

    model_a: str
    model_b: str
    task: str
    subsets: int
    length: str
    """`all`, or the length bucket."""
    queries: int
    metric: Metric
    method: Method
    a: float | None
    a_low: float | None
    a_high: float | None
    a_noise_mean: float | None
    """For PSI: what it shows under no position effect, on average and in 95 of 100 cases."""
    a_noise_p95: float | None
    b: float | None
    b_low: float | None
    b_high: float | None
    b_noise_mean: float | None
    b_noise_p95: float | None
    difference: float | None
    """b - a, as observed."""
    difference_low: float | None
    difference_high: float | None
    p_value: float | None
    p_corrected: float | None
    """By Holm's method, for all comparisons of the same metric."""


@dataclass(frozen=True)
class Comparison:
    """All rows, and what there is to say of them."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...]


def compare(pairs: Sequence[Pair], ranks: Path | None) -> Comparison:
    """Compare pairs in nDCG@10 and PSI, over all lengths and in each length bucket.

    A pair without a query in common is left out and noted.

    Args:
        pairs: Of contestants on a task.
        ranks: The folder of kept ranks; None to compare profiles alone.

    Raises:
        PosirError: No pair has a query in common.
    """
    matches: list[tuple[Pair, Match]] = []
    notes: list[str] = []
    for pair in pairs:
        try:
            matches.append((pair, match(pair, ranks)))
            notes.extend(matches[-1][1].notes)
        except PosirError as error:
            notes.append(str(error))
    if not matches:
        raise PosirError("There is nothing to compare. " + " ".join(notes))
    draws = max(DRAWS, DRAWS_PER_COMPARISON * sum(len(_lengths(one)) for _, one in matches))
    rows = [row for pair, one in progress(matches, "Comparing") for row in rows_of(pair, one, draws)]
    return Comparison(tuple(corrected(rows)), tuple(notes))


def rows_of(pair: Pair, matched: Match, draws: int) -> list[Row]:
    """Return the rows of one pair, not yet corrected: for all lengths and for each, nDCG@10 and PSI."""
    scores = [own_scores(profile) for profile in (matched.a, matched.b)]
    exchanged = exchanged_differences(matched, draws)
    rows = []
    for name, length in _lengths(matched).items():
        a, b = (one[name.lower()] for one in scores)
        for metric, tested in (
            (Metric.NDCG, _ndcg(a, b, matched, length, exchanged[name])),
            (Metric.PSI, _psi(a, b, matched, length, draws)),
        ):
            rows.append(_row(pair, matched, name, metric, a, b, tested))
    return rows


@cache
def own_scores(profile: PositionProfile) -> Mapping[str, Mapping[str, Any]]:
    """Return a model's own scores by length, with interval and noise floor; the same in all its pairs."""
    return significance_scores(profile)


def _lengths(matched: Match) -> dict[str, int | None]:
    """Return `all` and the names of the length buckets, with their index."""
    names = matched.a.lengths if len(matched.a.lengths) > 1 else ()
    return {"all": None, **{name: index for index, name in enumerate(names)}}


@dataclass(frozen=True)
class Tested:
    """What is said of a difference."""

    interval: Interval
    p_value: float


def _ndcg(a: Mapping[str, Any], b: Mapping[str, Any], matched: Match, length: int | None, exchanged: Floats) -> Tested | None:
    if a["ndcg_at_10"] is None or b["ndcg_at_10"] is None:
        return None
    if length is None and matched.joint:
        # nDCG@10 of all queries varies with which positions they ask for, too.
        together = correlation(matched.joint.totals.sum(axis=0, keepdims=True))
    else:
        together = match_correlation(matched.joint, length)
    first, second = (Estimate(one["ndcg_at_10"], *one["ndcg_at_10_interval"]) for one in (a, b))
    return Tested(
        ndcg_difference_interval(first, second, together), exchange_p_value(b["ndcg_at_10"] - a["ndcg_at_10"], exchanged)
    )


def _psi(a: Mapping[str, Any], b: Mapping[str, Any], matched: Match, length: int | None, draws: int) -> Tested | None:
    if a["p_value"] is None or b["p_value"] is None:
        return None
    first, second = (one.counts.sum(axis=0) if length is None else one.counts[length] for one in (matched.a, matched.b))
    differences = psi_differences(first, second, (a["p_value"], b["p_value"]), match_correlation(matched.joint, length), draws)
    return Tested(possible_interval(differences), possible_p_value(differences))


def _row(
    pair: Pair, matched: Match, length: str, metric: Metric, a: Mapping[str, Any], b: Mapping[str, Any], tested: Tested | None
) -> Row:
    key = "ndcg_at_10" if metric is Metric.NDCG else "psi"
    (a_low, a_high), (b_low, b_high) = (one[f"{key}_interval"] or (None, None) for one in (a, b))
    noise = ((None, None) if metric is Metric.NDCG else (one["psi_null_mean"], one["psi_null_p95"]) for one in (a, b))
    (a_mean, a_p95), (b_mean, b_p95) = noise
    low, high = tested.interval if tested else (None, None)
    return Row(
        model_a=pair.a.label,
        model_b=pair.b.label,
        task=pair.task,
        subsets=len(matched.subsets),
        length=length,
        queries=a["queries"],
        metric=metric,
        method=Method.PAIRED if matched.joint else Method.UNPAIRED,
        a=a[key],
        a_low=a_low,
        a_high=a_high,
        a_noise_mean=a_mean,
        a_noise_p95=a_p95,
        b=b[key],
        b_low=b_low,
        b_high=b_high,
        b_noise_mean=b_mean,
        b_noise_p95=b_p95,
        difference=None if a[key] is None or b[key] is None else b[key] - a[key],
        difference_low=low,
        difference_high=high,
        p_value=tested.p_value if tested else None,
        p_corrected=None,
    )


def corrected(rows: Sequence[Row]) -> list[Row]:
    """Return rows with p-values corrected for the number of comparisons of the same metric."""
    result = list(rows)
    for metric in Metric:
        places = [place for place, row in enumerate(rows) if row.metric is metric and row.p_value is not None]
        p_values = holm(np.array([rows[place].p_value for place in places], np.float64))
        for place, p_value in zip(places, p_values.tolist(), strict=True):
            result[place] = replace(rows[place], p_corrected=p_value)
    return result


def holm(p_values: Floats) -> Floats:
    """Return p-values corrected by Holm's method (1979, Scandinavian Journal of Statistics 6, 65-70).

    It keeps the probability of any false claim among all of them below the level, whatever their dependence; and they
    depend, since the length buckets are parts of the whole and pairs share models. The Benjamini-Hochberg method, which
    SciPy has, keeps the share of false claims low instead: fit for a search, not for a table whose lines are read singly.

    Args:
        p_values: Shape (n,).

    Returns:
        Shape (n,), each at least as large as given and at most 1.
    """
    order = np.argsort(p_values)
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p_values[order] * factors))
    return adjusted
