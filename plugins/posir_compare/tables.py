"""The table of a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from posir_compare.comparison import ComparisonRow, Metric
from posir_tasks.display.numbers import (
    MISSING,
    format_count,
    format_estimate,
    format_p_value,
    format_percent,
    format_points,
    format_psi,
    format_psi_difference,
)
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.scores import ALL

RUN = ("Task", "Method", "Baseline", "Model", "Metric", "Length")
#: Most comparisons of two models on a task with a sentence each.
MOST_SENTENCES = 6
SCORES = ("Queries", "Baseline score", "Score", "Difference", "p before correction", "p", "Verdict")
#: How a score and its difference are printed.
FORMATS = {
    Metric.NDCG: (format_percent, format_points),
    Metric.START_TO_END: (format_points, format_points),
    Metric.PSI: (format_psi, format_psi_difference),
}
#: Headings of columns of numbers.
NUMBERS = ("Queries", "p before correction", "p")


def comparison_table(rows: Iterable[ComparisonRow]) -> Table:
    """Return a table with a line for each comparison; a terminal shows a table for each task, method and model."""
    rows, metrics = list(rows), list(Metric)
    models = list(dict.fromkeys(row.model for row in rows))
    lengths = list(dict.fromkeys(row.length for row in rows))
    ordered = sorted(
        rows,
        key=lambda row: (
            row.task,
            row.method,
            models.index(row.model),
            metrics.index(row.metric),
            lengths.index(row.length),
        ),
    )
    return Table(
        build_columns((*RUN, *SCORES), NUMBERS),
        tuple(
            (row.task, row.method.value, row.baseline, row.model, row.metric.value, row.length, *_cells(row)) for row in ordered
        ),
        split_by="{Task} · {Method}\n{Model} against {Baseline}",
        keys=2,
    )


def describe_differences(rows: Iterable[ComparisonRow]) -> Iterator[str]:
    """Yield a sentence for each model and task: its differences over all lengths; counts of verdicts if there are many."""
    pairs: dict[tuple[str, str, str], list[ComparisonRow]] = {}
    for row in rows:
        if row.length == ALL:
            pairs.setdefault((row.task, row.model, row.baseline), []).append(row)
    if len(pairs) > MOST_SENTENCES:
        for metric in Metric:
            counts = Counter(row.verdict or "not tested" for pair in pairs.values() for row in pair if row.metric is metric)
            verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.most_common())
            yield f"Differences in {metric.value} over all lengths: {verdicts}."
        return
    for (task, model, baseline), pair in pairs.items():
        changes = (f"{row.metric.value} {_describe_difference(row)}" for row in pair if row.difference)
        yield f"{model} against {baseline} on {task}: {'; '.join(changes)}."


def _describe_difference(row: ComparisonRow) -> str:
    verdict = f", {row.verdict}" if row.verdict else ""
    return f"{format_estimate(row.difference, FORMATS[row.metric][1])}{verdict}"


def _cells(row: ComparisonRow) -> tuple[str, ...]:
    """Return the text below each heading of `SCORES`: nDCG@10 x 100 and PSI as the papers print them."""
    score, difference = FORMATS[row.metric]
    return (
        format_count(row.queries),
        format_estimate(row.a, score),
        format_estimate(row.b, score),
        format_estimate(row.difference, difference),
        format_p_value(row.p_value),
        format_p_value(row.p_corrected),
        row.verdict or MISSING,
    )
