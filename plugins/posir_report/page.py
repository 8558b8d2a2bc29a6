"""Figures for pages, LaTeX tables, and the findings that `mteb run` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from posir_report.columns import list_added_columns
from posir_report.summary import (
    ReportRow,
    TaskSummary,
    build_length_row,
    build_short_labels,
    list_overall,
    summarize,
)
from posir_report.tables import build_legend, format_cell
from posir_significance.cells import build_curve_cells
from posir_significance.messages.verdicts import describe_group
from posir_tasks.display.labels import Title
from posir_tasks.display.latex import mark_best, stack_estimates, stack_interval
from posir_tasks.display.numbers import format_percent, format_points
from posir_tasks.display.tables import Column, DisplaySection, Medium, Table
from posir_tasks.results import read_results

if TYPE_CHECKING:
    from posir_tasks.display.figures import Figure

LATEX_NOTE = (
    "Brackets: 95% intervals; bold: the highest score. Columns by length: nDCG@10 for relevant "
    "documents of this length. Position effect: nDCG@10 with the evidence in the first third of "
    "its document minus the same evidence in the last, moved by rotating the document; within the "
    "window: the same in texts that the model reads whole. Truncated: share of the evidence."
)
#: Titles of a model's figures on a task, by key in `charts.DRAW`.
FIGURES = {"curves": "Figures of {}", "heat-map": "{} by length and position"}
#: Heading, key and format of scores over all lengths.
LATEX_SCORES = (
    ("Position effect", "position_effect", format_points),
    ("Effect within the window", "position_effect_in_window", format_points),
    ("Truncated (%)", "unread_share", format_percent),
)


def build_figure_sections(summary: TaskSummary, name: str) -> Iterator[DisplaySection]:
    """Yield a folded section for each of a model's figures on a task."""
    for figure, title in FIGURES.items() if summary.profile.queries else ():
        draw = partial(_draw, figure, summary, name)
        yield DisplaySection(title.format(name), draw=draw, folded=True, only=Medium.PAGE)


def _draw(figure: str, summary: TaskSummary, label: str) -> Sequence[Figure]:
    # Importing Altair takes a second.
    from posir_report.charts import DRAW
    from posir_tasks.display.figures import Figure

    chart = DRAW[figure](summary, build_curve_cells(summary.values))
    return [Figure(figure, summary.task, label, chart)]


def describe_result_file(file: Path) -> Iterator[str]:
    """Yield a summary for each model in a result file: model, text chart, task and nDCG@10, then
    the findings.
    """
    results = [result for result in read_results(file.parent) if result.task == file.stem]
    for row in list_overall(build_length_row(summary, 0) for summary in summarize(results)):
        if row.findings:
            score = format_percent(row.ndcg_at_10.value if row.ndcg_at_10 else None)
            title = Title(f"{row.model}  {row.sketch}", f"{row.task}, nDCG@10 {score}")
            yield f"{title}\n{describe_group(row.findings)}"


def build_latex_tables(
    summaries: Sequence[TaskSummary], rows: Sequence[ReportRow]
) -> Iterator[Table]:
    """Yield a table for each task: nDCG@10 of each model by length, with intervals below values."""
    revisions: dict[str, set[str]] = {}
    for summary in summaries:
        revisions.setdefault(summary.task, set()).add(summary.data_revision)
    for task, task_revisions in sorted(revisions.items()):
        task_rows = [row for row in rows if row.task == task and row.queries]
        if task_rows:
            data = f"{task}, data revision {', '.join(sorted(task_revisions))}"
            yield replace(
                _tabulate_models(task_rows),
                title=f"nDCG@10 (x 100) and position effect on {data}.",
                notes=(LATEX_NOTE, *build_legend(list_added_columns())),
            )


def _tabulate_models(rows: Sequence[ReportRow]) -> Table:
    overall_rows = list_overall(rows)
    by_length = {(row.model, row.revision, row.length): row for row in rows}
    columns = [Column("Model")]
    cells: list[Sequence[str]] = [build_short_labels(overall_rows)]
    for length in dict.fromkeys(row.length for row in rows):
        columns.append(Column(length, group="nDCG@10"))
        buckets = [by_length.get((row.model, row.revision, length)) for row in overall_rows]
        scores = [bucket.ndcg_at_10 if bucket else None for bucket in buckets]
        cells.append(mark_best(scores, stack_estimates(scores, format_percent)))
    for heading, key, format_value in LATEX_SCORES:
        estimates = [row.get_estimate(key) for row in overall_rows]
        if any(estimates):
            columns.append(Column(heading))
            cells.append(stack_estimates(estimates, format_value))
    for score in list_added_columns():
        columns.append(Column(score.title))
        cells.append([stack_interval(format_cell(row, score)) for row in overall_rows])
    return Table(tuple(columns), tuple(zip(*cells, strict=True)))
