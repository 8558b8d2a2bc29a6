"""The sections that only a page or LaTeX has, and the answer that `mteb run` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from posir_report import tables
from posir_report.columns import ANSWER, added_columns, choose_columns
from posir_report.summary import (
    ReportRow,
    TaskSummary,
    build_rows,
    full_labels,
    list_overall,
    summarize,
)
from posir_significance import messages
from posir_tasks.display.numbers import format_percent
from posir_tasks.display.tables import DisplaySection, Medium, Table
from posir_tasks.results import read_results

if TYPE_CHECKING:
    from posir_tasks.display.figures import Figure

LATEX_NOTE = (
    "In brackets 95% intervals. Position effect: nDCG@10 (x 100) with the evidence in the first "
    "third of its document minus the same evidence in the last, moved by rotating the document; "
    "within the window: the same in excerpts that are read whole, from whose interval the state "
    "follows. PSI by chance: mean and central 90%."
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
    for row in list_overall(row for summary in saved for row in build_rows(summary)):
        if row.findings:
            finding = messages.describe_group(row.findings)
            score = format_percent(row.ndcg_at_10.value if row.ndcg_at_10 else None)
            yield f"{row.model}  {row.sketch} · {row.task}, nDCG@10 {score}\n{finding}"


def build_latex_tables(
    summaries: Sequence[TaskSummary], rows: Sequence[ReportRow]
) -> Iterator[Table]:
    """Yield a table for each task, a line for each model and length."""
    added = added_columns()
    keys = [*ANSWER, "psi_as_published", "psi_by_chance", *(column.key for column in added)]
    columns = choose_columns(keys)
    for task in sorted({summary.task for summary in summaries}):
        of_task = [summary for summary in summaries if summary.task == task]
        table = tables.length_table(
            [row for row in rows if row.task == task and row.queries], columns
        )
        revisions = ", ".join(sorted({summary.data_revision for summary in of_task}))
        notes = [
            LATEX_NOTE,
            *table.notes,
            *tables.truncation_notes(full_labels(of_task), of_task),
        ]
        if added:
            notes.append(tables.build_legend(added))
        # The task is in the caption.
        yield replace(
            table.without_columns(["Task"]),
            title=f"{task}, data revision {revisions}: by length of the relevant document.",
            notes=tuple(notes),
        )
