"""From pairs to rows: each length and metric of a pair is one comparison; p-values are corrected for their number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from posir_compare.differences import (
    Estimate,
    draw_psi_differences,
    ndcg_difference_interval,
    posterior_interval,
    posterior_p_value,
)
from posir_compare.model_runs import Pair
from posir_compare.pairing import CommonResults, find_common_results
from posir_compare.permutation import bin_correlation, permutation_p_value, permute_differences, pooled_correlation
from posir_significance.group_means import Floats
from posir_significance.intervals import Interval
from posir_significance.scores import significance_scores
from posir_tasks.display.progress import progress
from posir_tasks.errors import PosirError

#: Minimal number of draws, in total and per comparison: the smallest possible p-value is 2 / (draws + 1), which must stay
#: below 0.05 after correction.
DRAWS, DRAWS_PER_COMPARISON = 2000, 80

Scores = Mapping[str, Any]


class Metric(StrEnum):
    """What is compared; p-values are corrected separately for each metric."""

    NDCG = "nDCG@10"
    PSI = "PSI"


class Method(StrEnum):
    """Whether the two ranks of each query are known."""

    PAIRED = "paired by query"
    UNPAIRED = "unpaired"


@dataclass(frozen=True)
class Row:
    """One comparison of b with a. None where undefined."""

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
    a_psi_null_mean: float | None
    """For PSI: the mean and the 95th percentile of its null distribution, which is PSI if position has no effect."""
    a_psi_null_p95: float | None
    b: float | None
    b_low: float | None
    b_high: float | None
    b_psi_null_mean: float | None
    b_psi_null_p95: float | None
    difference: float | None
    """b - a, as observed."""
    difference_low: float | None
    difference_high: float | None
    p_value: float | None
    p_corrected: float | None
    """Holm-corrected for all comparisons of the same metric."""


@dataclass(frozen=True)
class Comparison:
    """All rows, and notes on what was skipped or not paired."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class TestResult:
    """The 95 % interval of a difference, and the p-value of no difference."""

    interval: Interval
    p_value: float


#: A model's scores by length, which are the same in all its pairs.
_model_scores = cache(significance_scores)


def compare(pairs: Sequence[Pair], ranks: Path | None) -> Comparison:
    """Compare pairs in nDCG@10 and PSI, over all lengths and in each length bucket.

    A pair without common queries is skipped with a note.

    Args:
        pairs: Pairs of runs on a task.
        ranks: The folder of per-query ranks; None to compare profiles alone.

    Raises:
        PosirError: No pair has common queries.
    """
    found: list[tuple[Pair, CommonResults]] = []
    notes: list[str] = []
    for pair in pairs:
        try:
            found.append((pair, find_common_results(pair, ranks)))
            notes.extend(found[-1][1].notes)
        except PosirError as error:
            notes.append(str(error))
    if not found:
        raise PosirError("There is nothing to compare. " + " ".join(notes))
    draws = max(DRAWS, DRAWS_PER_COMPARISON * sum(len(_lengths(common)) for _, common in found))
    rows = [row for pair, common in progress(found, "Comparing") for row in compare_pair(pair, common, draws)]
    return Comparison(tuple(correct_p_values(rows)), tuple(notes))


def compare_pair(pair: Pair, common: CommonResults, draws: int) -> list[Row]:
    """Return the rows of one pair, with uncorrected p-values: nDCG@10 and PSI, for all lengths and for each."""
    scores_a, scores_b = _model_scores(common.a), _model_scores(common.b)
    null = permute_differences(common, draws)
    rows = []
    for name, length in _lengths(common).items():
        a, b = scores_a[name.lower()], scores_b[name.lower()]
        rows.append(_row(pair, common, name, Metric.NDCG, a, b, _test_ndcg(a, b, common, length, null[name])))
        rows.append(_row(pair, common, name, Metric.PSI, a, b, _test_psi(a, b, common, length, draws)))
    return rows


def _lengths(common: CommonResults) -> dict[str, int | None]:
    """Return `all` and the names of the length buckets, with their index."""
    names = common.a.lengths if len(common.a.lengths) > 1 else ()
    return {"all": None, **{name: index for index, name in enumerate(names)}}


def _test_ndcg(a: Scores, b: Scores, common: CommonResults, length: int | None, null: Floats) -> TestResult | None:
    if a["ndcg_at_10"] is None or b["ndcg_at_10"] is None:
        return None
    if length is None and common.joint:
        # The overall mean also varies with which positions its queries ask for, so all of them are one group.
        correlation = pooled_correlation(common.joint.totals.sum(axis=0, keepdims=True))
    else:
        correlation = bin_correlation(common.joint, length)
    first, second = (Estimate(one["ndcg_at_10"], *one["ndcg_at_10_interval"]) for one in (a, b))
    return TestResult(
        ndcg_difference_interval(first, second, correlation), permutation_p_value(second.value - first.value, null)
    )


def _test_psi(a: Scores, b: Scores, common: CommonResults, length: int | None, draws: int) -> TestResult | None:
    if a["p_value"] is None or b["p_value"] is None:
        return None
    first, second = (one.counts.sum(axis=0) if length is None else one.counts[length] for one in (common.a, common.b))
    correlation = bin_correlation(common.joint, length)
    differences = draw_psi_differences(first, second, (a["p_value"], b["p_value"]), correlation, draws)
    return TestResult(posterior_interval(differences), posterior_p_value(differences))


def _row(
    pair: Pair, common: CommonResults, length: str, metric: Metric, a: Scores, b: Scores, tested: TestResult | None
) -> Row:
    key = "ndcg_at_10" if metric is Metric.NDCG else "psi"
    low, high = tested.interval if tested else (None, None)
    return Row(
        model_a=pair.a.label,
        model_b=pair.b.label,
        task=pair.task,
        subsets=len(common.subsets),
        length=length,
        queries=a["queries"],
        metric=metric,
        method=Method.PAIRED if common.joint else Method.UNPAIRED,
        **_model_fields("a", key, a),
        **_model_fields("b", key, b),
        difference=None if a[key] is None or b[key] is None else b[key] - a[key],
        difference_low=low,
        difference_high=high,
        p_value=tested.p_value if tested else None,
        p_corrected=None,
    )


def _model_fields(model: str, key: str, scores: Scores) -> dict[str, float | None]:
    """Return the fields of a row on model `a` or `b`."""
    low, high = scores[f"{key}_interval"] or (None, None)
    null = {f"{model}_{name}": scores[name] if key == "psi" else None for name in ("psi_null_mean", "psi_null_p95")}
    return {model: scores[key], f"{model}_low": low, f"{model}_high": high, **null}


def correct_p_values(rows: Sequence[Row]) -> list[Row]:
    """Return rows with p-values corrected for the number of comparisons of the same metric."""
    result = list(rows)
    for metric in Metric:
        places = [place for place, row in enumerate(rows) if row.metric is metric and row.p_value is not None]
        p_values = holm(np.array([rows[place].p_value for place in places], np.float64))
        for place, p_value in zip(places, p_values.tolist(), strict=True):
            result[place] = replace(rows[place], p_corrected=p_value)
    return result


def holm(p_values: Floats) -> Floats:
    """Return Holm-corrected p-values (Holm 1979, Scandinavian Journal of Statistics 6, 65-70).

    The correction controls the family-wise error rate under any dependence. The comparisons are dependent: length buckets are
    parts of `all`, and pairs share models. The method of Benjamini and Hochberg, which SciPy has, controls the false discovery
    rate instead, which suits screening but not a table whose rows are read one by one.

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
