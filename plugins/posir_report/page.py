"""The report as a single page that needs no network: tables, figures and how to read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from posir_report import tables
from posir_report.cells import FEW
from posir_report.summary import (
    ReportRow,
    TaskSummary,
    build_bin_rows,
    build_place_row,
    build_rows,
    model_labels,
    partial_suffix,
    short_labels,
    task_and_scheme,
)
from posir_significance.sentences import build_strip, label_state
from posir_tasks.display import numbers
from posir_tasks.display.strip import Strip
from posir_tasks.display.tables import Column, Table, to_latex
from posir_tasks.scores import ScoreInfo, Unit

if TYPE_CHECKING:
    from posir_tasks.display.figures import Figure


def render_report(summaries: Sequence[TaskSummary], figures: Sequence[Figure]) -> str:
    """Return the page as HTML; whatever comes from results is escaped."""
    # The charts' library is not needed for LaTeX.
    from posir_tasks.display.figures import render_page

    ordered = sorted(summaries, key=lambda summary: summary.task)
    scored = list(zip(ordered, map(build_rows, ordered), strict=True))
    rows = [row for _, of_summary in scored for row in of_summary]
    places = [row for summary in ordered if (row := build_place_row(summary))]
    return render_page(
        __package__,
        "report.html",
        summary=tables.summary_table([*rows, *places], tables.known_columns()),
        places=list(tables.place_notes(ordered)),
        compared=[figure for figure in figures if figure.model is None],
        tasks=[_task_section(task, list(group), figures) for task, group in groupby(scored, key=lambda row: row[0].task)],
        added=tables.added_columns(),
        findings=list(tables.describe_findings([*rows, *places])),
        strips=build_strips([*rows, *places]),
        levels=tables.level_note(rows),
        few=FEW,
        sources=ordered,
    )


def build_strips(rows: Iterable[ReportRow]) -> list[Strip]:
    """Return the picture of each model and task over all lengths, best nDCG@10 of a task first."""
    overall = [row for row in tables.list_overall(rows) if row.decision]
    several = len({row.task for row in overall}) > 1
    names = (f"{label}, {row.task}" if several else label for label, row in zip(short_labels(overall), overall, strict=True))
    return [build_strip(row.decision, name) for row, name in zip(overall, names, strict=True) if row.decision]


def _task_section(
    task: str, scored: Sequence[tuple[TaskSummary, list[ReportRow]]], figures: Sequence[Figure]
) -> dict[str, Any]:
    summaries = [summary for summary, _ in scored]
    labels, models = model_labels(summaries), []
    for label, (summary, rows) in zip(labels, scored, strict=True):
        (table,) = tables.length_table(rows, tables.default_columns()).parts()
        own = [figure for figure in figures if (figure.task, figure.model) == (task, label)]
        name = label + partial_suffix(len(summary.subsets), len(summary.missing))
        models.append({"name": name, "table": table, "figures": own})
    notes = [*tables.not_read_notes(labels, summaries), *tables.document_notes(labels, summaries)]
    return {"name": task, "models": models, "notes": notes}


#: Characters of a model's name; a longer one is shortened in the middle, so that the table fits a page.
NAME_WIDTH = 44
NOTE = (
    "In brackets 95 % intervals. Start to end: nDCG@10 (x 100) of the first third of the document minus the last; bias: the "
    "same within what the model reads, over evidence that it reads, and its state, which follows from that interval. Below PSI "
    "as published, its estimate and what chance alone gives: mean and central 90 %."
)


def render_latex(summaries: Iterable[TaskSummary]) -> str:
    """Return a table for each task and scheme, for the packages booktabs and adjustbox."""
    ordered = sorted(summaries, key=task_and_scheme)
    scored = ((summary, build_rows(summary)) for summary in ordered)
    rendered = [
        _render_task(*zip(*group, strict=True)) for _, group in groupby(scored, key=lambda row: task_and_scheme(row[0]))
    ]
    return "\n\n".join(["% In the preamble: \\usepackage{booktabs,adjustbox}", *rendered])


def _render_task(summaries: Sequence[TaskSummary], rows: Sequence[list[ReportRow]]) -> str:
    task, profile = summaries[0].task, summaries[0].profile
    by_length = len(profile.lengths) > 1
    lengths = ["All", *profile.lengths] if by_length else ["All"]
    scores = lengths if by_length else [*profile.positions, "All"]
    revisions = ", ".join(sorted({summary.data_revision for summary in summaries}))
    by = "length of the relevant document" if by_length else "position of the evidence"
    labels = model_labels(summaries, NAME_WIDTH)
    added = tables.added_columns()
    table = Table(
        (
            Column("Model"),
            *(Column(name, group="nDCG@10") for name in scores),
            *map(Column, ("Start to end", "Not read", "Bias")),
            *(Column(name, group="PSI") for name in lengths),
            *(Column(column.title) for column in added),
        ),
        tuple(_build_row(*labeled, by_length, added) for labeled in zip(labels, summaries, rows, strict=True)),
        title=f"{task}, data revision {revisions}: nDCG@10 (x 100) by {by}, below it the number of queries; and PSI.",
        notes=(NOTE, *tables.not_read_notes(labels, summaries), *([tables.build_legend(added)] if added else [])),
    )
    return to_latex(table, label=f"tab:{re.sub(r'[^a-z0-9]+', '-', task.lower()).strip('-')}")


def _build_row(
    label: str, summary: TaskSummary, rows: Sequence[ReportRow], by_length: bool, added: Sequence[ScoreInfo]
) -> tuple[str, ...]:
    """Return the cells of a model, each of two or three lines: score, interval if there is any, queries or null."""
    scored: list[ReportRow] = [*rows] if by_length else [*build_bin_rows(summary), rows[0]]
    name = label + partial_suffix(len(summary.subsets), len(summary.missing))
    legend = (name, "95 % interval; estimated PSI", "queries; PSI by chance")
    cells = [legend, *map(_ndcg_lines, scored), *_answer_lines(rows[0]), *map(_psi_lines, rows)]
    cells += [(tables.format_cell(rows[0], column), "", "") for column in added]
    intervals = any(interval for _, interval, _ in cells[1:])
    return tuple("\n".join(cell if intervals else (cell[0], cell[2])) for cell in cells)


def _ndcg_lines(row: ReportRow) -> tuple[str, str, str]:
    ndcg = row.ndcg_at_10
    interval = numbers.format_interval(ndcg, numbers.format_percent)
    return numbers.format_percent(ndcg.value if ndcg else None), interval, numbers.format_count(row.queries)


def _answer_lines(row: ReportRow) -> list[tuple[str, str, str]]:
    decision = row.decision
    if decision is None:
        return [(numbers.MISSING, "", "")] * 3
    lines = [
        (contrast, decision.interval(contrast))
        for contrast in (decision.start_to_end, decision.not_read_difference, decision.bias_within_read)
    ]
    start_to_end, not_read, bias = (
        (
            numbers.format_points(contrast.value if contrast else None),
            f"[{', '.join(map(numbers.format_points, ends))}]" if ends else "",
        )
        for contrast, ends in lines
    )
    share = f"{numbers.format_percent(decision.not_read)} %" if decision.not_read is not None else numbers.MISSING
    return [
        (*start_to_end, ""),
        (share, " ".join(filter(None, not_read)) if decision.not_read else "", ""),
        (*bias, label_state(decision)),
    ]


def _psi_lines(row: ReportRow) -> tuple[str, str, str]:
    estimate = numbers.format_score(Unit.INDEX, row.psi) if row.psi else ""
    return numbers.format_psi(row.psi_as_published), estimate, numbers.format_score(Unit.INDEX, row.scores.get("psi_chance"))
