"""Averages over the tasks of a benchmark, with what can be said of their uncertainty."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from posir_leaderboard.board.records import Line
from posir_report.summary import Row
from posir_tasks.display.numbers import MISSING

#: Fields of a row that are averaged.
AVERAGED = (
    "ndcg_at_10",
    "ndcg_at_10_low",
    "ndcg_at_10_high",
    "psi",
    "psi_low",
    "psi_high",
    "psi_null_mean",
    "psi_null_p95",
)
NO_BIAS = "not significant"


def average(lines: Sequence[Line], name: str) -> Line:
    """Return the unweighted mean over tasks of nDCG@10 and of PSI, as the papers average over languages.

    Ends of intervals are averaged too. That is the interval of the mean where the errors of all tasks go together, and wider
    than it otherwise, since the standard deviation of a mean is at most the mean of the standard deviations. Tasks are not
    independent: most languages of PosIR are translations of the same queries. The noise floor's mean is that of the average
    PSI; its 95th percentile likewise that where the noise of all tasks goes together. A value that a task lacks, the average
    lacks.

    Args:
        lines: One model on every task of the benchmark, at one length.
        name: Of the benchmark.
    """
    rows = [line.row for line in lines]
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
        **means,
    )
    return Line(row, bias_among([line.bias for line in lines]))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(values) if len(known) == len(values) else None


def bias_among(biases: Sequence[str]) -> str:
    """Say in how many of a model's tasks a bias is told from noise, and of what kind: `primacy in 9 of 10`."""
    if MISSING in biases:
        return MISSING
    found = Counter(one for one in biases if one != NO_BIAS)
    if not found:
        return f"{NO_BIAS} in {len(biases)} of {len(biases)}"
    return ", ".join(f"{kind} in {times}" for kind, times in found.most_common()) + f" of {len(biases)}"
