"""The table of a comparison."""

from __future__ import annotations

from collections.abc import Iterable

from posir_compare.comparison import Metric, Row
from posir_tasks.display.numbers import format_count, format_estimate, format_p_value, format_percent, format_psi
from posir_tasks.display.tables import Table, build_columns

RUN = ("Model A", "Model B", "Task", "Method")
SCORES = ("Length", "Metric", "Queries", "A", "B", "PSI under the null (A, B)", "B - A", "p", "p corrected")
#: Headings of columns of numbers.
NUMBERS = ("Queries", "p", "p corrected")


def comparison_table(rows: Iterable[Row]) -> Table:
    """Return a table with a line for each comparison; a terminal shows a table for each pair and task."""
    return Table(
        build_columns((*RUN, *SCORES), NUMBERS),
        tuple((row.model_a, row.model_b, row.task, row.method.value, *_cells(row)) for row in rows),
        split_by="{Task} · {Method}\nA: {Model A}\nB: {Model B}",
        keys=2,
    )


def _cells(row: Row) -> tuple[str, ...]:
    """Return the text below each heading of `SCORES`: nDCG@10 x 100 and PSI as the papers print them."""
    value = format_percent if row.metric is Metric.NDCG else format_psi
    spec = "+.1f" if row.metric is Metric.NDCG else "+.3f"
    return (
        row.length,
        row.metric.value,
        format_count(row.queries),
        format_estimate(row.a, row.a_low, row.a_high, value),
        format_estimate(row.b, row.b_low, row.b_high, value),
        "" if row.metric is Metric.NDCG else f"{format_psi(row.a_psi_null_mean)}, {format_psi(row.b_psi_null_mean)}",
        format_estimate(row.difference, row.difference_low, row.difference_high, lambda number: value(number, spec)),
        format_p_value(row.p_value),
        format_p_value(row.p_corrected),
    )
