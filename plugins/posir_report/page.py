"""The sections that only a page or LaTeX has, and the answer that `mteb run` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from posir_report.columns import added_columns
from posir_report.summary import (
    ReportRow,
    TaskSummary,
    build_length_row,
    list_overall,
    short_labels,
    summarize,
)
from posir_report.tables import format_cell
from posir_significance.messages.verdicts import describe_group
from posir_tasks.display.latex import mark_best, stack_estimates
from posir_tasks.display.numbers import format_percent, format_points
from posir_tasks.display.tables import Column, DisplaySection, Medium, Table
from posir_tasks.results import read_results

if TYPE_CHECKING:
    from posir_tasks.display.figures import Figure

LATEX_NOTE = (
    "In brackets 95% intervals; bold: the highest. Lengths are those of the relevant document. "
    "Position effect: nDCG@10 with the evidence in the first third of its document minus the same "
    "evidence in the last, moved by rotating the document; within the window: the same in texts "
    "that the model reads whole. Truncated: share of the evidence."
)
#: Scores over all lengths, by heading and key.
LATEX_SCORES = (
    ("Position effect", "position_effect", format_points),
    ("Effect within the window", "position_effect_in_window", format_points),
    ("Truncated (%)", "unread_share", format_percent),
)
#: Titles of the figures of a model, by their kind.
FIGURES = {"curves": "Figures of {model}", "heat-map": "{model} by length and position"}


def build_figure_sections(summary: TaskSummary, name: str) -> Iterator[DisplaySection]:
    """Yield a folded section for each figure of a model on a task that has queries."""
    if summary.profile.queries:
        for kind, title in FIGURES.items():
            draw = partial(_draw, kind, summary, name)
            yield DisplaySection(title.format(model=name), draw=draw, folded=True, only=Medium.PAGE)


def _draw(kind: str, summary: TaskSummary, label: str) -> Sequence[Figure]:
    # Altair takes a second to import.
    from posir_report.charts import draw_figure

    return [draw_figure(kind, summary, label)]


def describe_saved(file: Path) -> Iterator[str]:
    """Yield the answer of a result: a line of model, picture, task and nDCG@10, then the
    finding.
    """
    saved = summarize([result for result in read_results(file.parent) if result.task == file.stem])
    for row in list_overall(build_length_row(summary, 0) for summary in saved):
        if row.findings:
            finding = describe_group(row.findings)
            score = format_percent(row.ndcg_at_10.value if row.ndcg_at_10 else None)
            yield f"{row.model}  {row.sketch} · {row.task}, nDCG@10 {score}\n{finding}"


def build_latex_tables(
    summaries: Sequence[TaskSummary], rows: Sequence[ReportRow]
) -> Iterator[Table]:
    """Yield a table for each task as papers have it: a row for each model, the best first, and
    nDCG@10 by length; intervals stand below the values.
    """
    for task in sorted({summary.task for summary in summaries}):
        of_task = [summary for summary in summaries if summary.task == task]
        revisions = ", ".join(sorted({summary.data_revision for summary in of_task}))
        counted = [row for row in rows if row.task == task and row.queries]
        if counted:
            title = f"nDCG@10 (x 100) and position effect on {task}, data revision {revisions}."
            yield replace(_tabulate_models(counted), title=title, notes=(LATEX_NOTE,))


def _tabulate_models(rows: Sequence[ReportRow]) -> Table:
    models = list_overall(rows)
    by_length = {(row.model, row.revision, row.length): row for row in rows}
    columns = [Column("Model")]
    cells: list[Sequence[str]] = [short_labels(models)]
    for length in dict.fromkeys(row.length for row in rows):
        columns.append(Column(length, group="nDCG@10"))
        buckets = [by_length.get((row.model, row.revision, length)) for row in models]
        scores = [bucket.ndcg_at_10 if bucket else None for bucket in buckets]
        cells.append(mark_best(scores, stack_estimates(scores, format_percent)))
    for heading, key, form in LATEX_SCORES:
        estimates = [row.estimate(key) for row in models]
        if any(estimates):
            columns.append(Column(heading))
            cells.append(stack_estimates(estimates, form))
    for added in added_columns():
        columns.append(Column(added.title))
        cells.append([format_cell(row, added) for row in models])
    return Table(tuple(columns), tuple(zip(*cells, strict=True)))
