"""The report as a single page that needs no network: tables, figures and how to read them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from posir_report.cells import FEW
from posir_report.colder import EndPreference, preference_table
from posir_report.columns import added_columns, default_columns, known_columns
from posir_report.findings import describe_findings
from posir_report.labels import model_labels, partial_suffix
from posir_report.sparklines import sparklines
from posir_report.summary import ReportRow, TaskSummary, build_rows
from posir_report.tables import document_notes, length_table, summary_table, truncation_notes
from posir_significance.intervals import ALPHA
from posir_tasks.display.charts.figures import Figure
from posir_tasks.display.page import render_page
from posir_tasks.display.tables import Table


@dataclass(frozen=True)
class ModelSection:
    """One model's rows in the table of a task."""

    name: str
    table: Table
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class TaskSection:
    """The section of a task."""

    name: str
    models: tuple[ModelSection, ...]
    notes: tuple[str, ...]
    """Notes on the assumptions of the intervals."""


def render_report(
    summaries: Sequence[TaskSummary], figures: Sequence[Figure], preferences: Sequence[EndPreference] = ()
) -> str:
    """Return the page as HTML; whatever comes from results is escaped."""
    ordered = sorted(summaries, key=lambda summary: summary.task)
    scored = list(zip(ordered, map(build_rows, ordered), strict=True))
    rows = [row for _, of_summary in scored for row in of_summary]
    return render_page(
        __package__,
        "report.html",
        summary=summary_table(rows, known_columns(), sparklines(summaries)),
        compared=[(figure, _notes(figure, ordered)) for figure in figures if figure.model is None],
        tasks=[_task_section(task, list(group), figures) for task, group in groupby(scored, key=lambda row: row[0].task)],
        pairs=preference_table(preferences) if preferences else None,
        added=added_columns(),
        findings=list(describe_findings(rows)),
        models=len({summary.model for summary in summaries}),
        level=ALPHA,
        few=FEW,
        sources=ordered,
    )


def _notes(figure: Figure, summaries: Sequence[TaskSummary]) -> list[str]:
    """Return the notes on truncation below a figure that compares the models of a task."""
    of_task = [summary for summary in summaries if summary.task == figure.task]
    return list(truncation_notes(model_labels(of_task), of_task))


def _task_section(task: str, scored: Sequence[tuple[TaskSummary, list[ReportRow]]], figures: Sequence[Figure]) -> TaskSection:
    summaries = [summary for summary, _ in scored]
    of_task = [figure for figure in figures if figure.task == task]
    labels = model_labels(summaries)
    models = [
        _model_section(label, summary, rows, [figure for figure in of_task if figure.model == label])
        for label, (summary, rows) in zip(labels, scored, strict=True)
    ]
    return TaskSection(task, tuple(models), tuple(document_notes(labels, summaries)))


def _model_section(label: str, summary: TaskSummary, rows: Iterable[ReportRow], figures: Iterable[Figure]) -> ModelSection:
    (table,) = length_table(rows, default_columns()).parts()
    return ModelSection(label + partial_suffix(len(summary.subsets), len(summary.missing)), table, tuple(figures))
