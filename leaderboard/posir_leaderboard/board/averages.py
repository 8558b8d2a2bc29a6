"""Averages over the tasks of a benchmark, with their uncertainty."""

from collections import Counter
from collections.abc import Sequence

from posir_leaderboard.board.records import ScoredRow
from posir_report.summary import Row
from posir_tasks.display.numbers import MISSING

#: Fields of a row that are averaged.
AVERAGED = ("ndcg_at_10", "ndcg_at_10_low", "ndcg_at_10_high", "psi", "psi_low", "psi_high", "psi_null_mean", "psi_null_p95")
NOT_SIGNIFICANT = "not significant"


def average_rows(scored: Sequence[ScoredRow], name: str) -> ScoredRow:
    """Return the unweighted mean over tasks of nDCG@10 and of PSI, as the papers average over languages.

    Ends of intervals are averaged too. The result is the interval of the mean if the errors of all tasks are fully correlated,
    and is too wide otherwise, since the standard deviation of a mean is at most the mean of the standard deviations. Tasks are
    not independent: most languages of PosIR are translations of the same queries. The averaged mean of PSI under the null is
    exact; the averaged 95th percentile again assumes full correlation. A value that a task lacks is None in the average.

    Args:
        scored: One model on every task of the benchmark, at one length.
        name: Name of the benchmark.
    """
    rows = [one.row for one in scored]
    means = {field: _mean([getattr(row, field) for row in rows]) for field in AVERAGED}
    queries = [row.queries for row in rows if row.queries is not None]
    row = Row(
        model=rows[0].model,
        task=name,
        length=rows[0].length,
        queries=sum(queries) if len(queries) == len(rows) else None,
        p_value=None,
        direction=None,
        subsets=len(rows),
        missing_subsets=0,
        revision=rows[0].revision,
        **means,
    )
    return ScoredRow(row, summarise_bias([one.bias for one in scored]))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(values) if len(known) == len(values) else None


def summarise_bias(biases: Sequence[str]) -> str:
    """Return in how many tasks of a model each kind of bias is significant: `primacy in 9 of 10`."""
    if MISSING in biases:
        return MISSING
    found = Counter(one for one in biases if one != NOT_SIGNIFICANT)
    if not found:
        return f"{NOT_SIGNIFICANT} in {len(biases)} of {len(biases)}"
    return ", ".join(f"{kind} in {times}" for kind, times in found.most_common()) + f" of {len(biases)}"
