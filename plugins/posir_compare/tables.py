"""The table of a comparison."""

from __future__ import annotations

from collections.abc import Iterable

from posir_compare.comparison import Metric, Row
from posir_tasks.display.numbers import format_count, format_estimate, format_p_value, format_percent, format_psi
from posir_tasks.display.tables import Table, build_columns

RUN = ("Model A", "Model B", "Task", "Method")
SCORES = ("Length", "Metric", "Queries", "A", "B", "B - A", "p", "p corrected")
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
    value = format_psi if row.metric is Metric.PSI else format_percent
    signed = "+.3f" if row.metric is Metric.PSI else "+.1f"

    def difference(number: float | None) -> str:
        return value(number, signed)

    score = difference if row.metric is Metric.START_TO_END else value
    return (
        row.length,
        row.metric.value,
        format_count(row.queries),
        format_estimate(row.a, row.a_low, row.a_high, score),
        format_estimate(row.b, row.b_low, row.b_high, score),
        format_estimate(row.difference, row.difference_low, row.difference_high, difference),
        format_p_value(row.p_value),
        format_p_value(row.p_corrected),
    )
