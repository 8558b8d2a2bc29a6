"""The sections that only a page or LaTeX has, and the answer that `mteb run` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from posir_report import tables
from posir_report.columns import ANSWER, added_columns, choose_columns, default_columns
from posir_report.summary import (
    MAX_SENTENCES,
    ReportRow,
    TaskSummary,
    build_rows,
    list_overall,
    model_labels,
    order_value,
    partial_suffix,
    short_labels,
    summarize,
    task_and_scheme,
)
from posir_significance import messages
from posir_tasks.display.tables import (
    DisplaySection,
    Medium,
    Table,
    build_columns,
)
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


def build_page_sections(
    overall: Sequence[ReportRow], summaries: Sequence[TaskSummary], counts: Sequence[str]
) -> Iterator[DisplaySection]:
    """Yield the sections of a page: size of the data, summary, each task by length with its
    figures, and sources.

    `counts` are counts of states if there are many results.
    """
    is_one_task = len({row.task for row in overall}) == 1
    lead = []
    if is_one_task:
        documents = overall[0].get("documents", int) or 0
        queries = max(row.queries or 0 for row in overall)
        lead.append(messages.describe_questions(overall[0].task, queries, documents))
        lead += _describe_ranking(overall)
    yield DisplaySection(sentences=(*lead, *counts), only=Medium.PAGE)
    if not is_one_task or len(overall) > MAX_SENTENCES:
        table = replace(tables.summary_table(overall), notes=tuple(tables.place_notes(summaries)))
        yield DisplaySection(tables=(table,), only=Medium.PAGE)
    ordered = sorted(summaries, key=lambda summary: (summary.task, -_find_score(summary)))
    for task, group in groupby(ordered, key=lambda summary: summary.task):
        of_task = list(group)
        title = f"{task} {messages.BY_LENGTH}"
        yield DisplaySection(title, tables=(_build_task_table(of_task),), only=Medium.PAGE)
        for summary, name in zip(of_task, short_labels(of_task), strict=True):
            label = model_labels(of_task)[of_task.index(summary)]
            for kind, title in FIGURES.items():
                if summary.profile.queries:
                    draw = partial(_draw, kind, summary, label)
                    named = title.format(model=name)
                    yield DisplaySection(named, draw=draw, folded=True, only=Medium.PAGE)
    yield _build_sources(ordered)


def _find_score(summary: TaskSummary) -> float:
    return order_value(build_rows(summary)[0])


def _draw(kind: str, summary: TaskSummary, label: str) -> Sequence[Figure]:
    # Altair takes a second to import.
    from posir_report.charts import draw_figure

    return [draw_figure(kind, summary, label)]


def _describe_ranking(overall: Sequence[ReportRow]) -> Iterator[str]:
    """Name the model of a task that finds evidence best, and the worst, if there are several."""
    if len({row.model for row in overall}) > 1:
        labels = short_labels(overall)
        best = (labels[0], overall[0].ndcg_at_10)
        worst = (labels[-1], overall[-1].ndcg_at_10)
        yield messages.describe_ranking(best, worst, len(overall))


def _build_task_table(summaries: Sequence[TaskSummary]) -> Table:
    """Build the table of a task: below the name of each model a line for each length."""
    columns = [column for column in default_columns() if column.key != "queries"]
    listed = []
    for label, summary in zip(short_labels(summaries), summaries, strict=True):
        name = label + partial_suffix(len(summary.subsets), len(summary.missing))
        rows = build_rows(summary)
        table = tables.build_table(rows, columns, {"Length": [_name_length(row) for row in rows]})
        listed.append((name, *("" for _ in columns)))
        listed += table.rows
    shown = tuple(
        replace(column, drawn=column.heading == messages.POSITION_EFFECT)
        for column in table.columns
    )
    notes = tables.level_note(row for summary in summaries for row in build_rows(summary))
    built = Table(shown, tuple(listed), notes=(notes,) if notes else ())
    return built.without_empty_columns()


def _name_length(row: ReportRow) -> str:
    queries = messages.format_queries(row.queries or 0)
    return f"{row.length_title or row.length}, {queries}"


def _build_sources(summaries: Sequence[TaskSummary]) -> DisplaySection:
    """Build the table of models, data and revisions, with notes on truncation and documents."""
    headings = ("Model", "Revision", "Task", "Data revision", "Queries", "Subsets")
    rows = []
    for summary in summaries:
        present = len(summary.subsets)
        subsets = f"{present} of {present + len(summary.missing)}" if summary.missing else present
        cells = (summary.model, summary.revision, summary.task, summary.data_revision)
        rows.append((*cells, f"{summary.profile.queries:,}", str(subsets)))
    labels = short_labels(summaries)
    notes = [
        *tables.truncation_notes(labels, summaries),
        *tables.document_notes(labels, summaries),
    ]
    table = Table(build_columns(headings, ["Queries"]), tuple(rows), notes=tuple(notes))
    title = "Models, data and revisions"
    return DisplaySection(title, tables=(table,), folded=True, only=Medium.PAGE)


def describe_saved(file: Path) -> Iterator[str]:
    """Yield the answer of a result: a line of model, picture, task and nDCG@10, then the
    finding.
    """
    saved = summarize([result for result in read_results(file.parent) if result.task == file.stem])
    for row in list_overall(row for summary in saved for row in build_rows(summary)):
        if row.findings:
            finding = messages.describe_group(row.findings)
            score = messages.describe_ndcg(row.ndcg_at_10)
            yield f"{row.model}  {row.sketch} · {row.task}, {score}\n{finding}"


def build_latex_tables(summaries: Iterable[TaskSummary]) -> Iterator[Table]:
    """Yield a table for each task and scheme, a line for each model and length."""
    added = added_columns()
    keys = [*ANSWER, "psi_as_published", "psi_by_chance", *(column.key for column in added)]
    columns = choose_columns(keys)
    for (task, _), group in groupby(sorted(summaries, key=task_and_scheme), key=task_and_scheme):
        of_task = list(group)
        rows = [row for summary in of_task for row in build_rows(summary) if row.queries]
        table = tables.length_table(rows, columns)
        revisions = ", ".join(sorted({summary.data_revision for summary in of_task}))
        notes = [
            LATEX_NOTE,
            *table.notes,
            *tables.truncation_notes(model_labels(of_task), of_task),
        ]
        if added:
            notes.append(tables.build_legend(added))
        # The task is in the caption.
        yield replace(
            table.without_columns(["Task"]),
            title=f"{task}, data revision {revisions}: by length of the relevant document.",
            notes=tuple(notes),
        )
