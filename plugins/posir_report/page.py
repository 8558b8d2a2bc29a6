"""The report as a single page that needs no network: tables, figures and how to read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_report import tables
from posir_report.cells import FEW
from posir_report.summary import (
    MOST_SENTENCES,
    ReportRow,
    TaskSummary,
    build_place_row,
    build_rows,
    list_overall,
    model_labels,
    order_value,
    partial_suffix,
    short_labels,
    summarize,
    task_and_scheme,
)
from posir_significance.advice import build_commands
from posir_significance.findings import Quantity
from posir_significance.messages import (
    ALL_IS_READ,
    describe_group,
    format_margin,
    label_state,
    name_common_state,
)
from posir_tasks.display.numbers import format_percent
from posir_tasks.display.strip import Strip
from posir_tasks.display.tables import to_latex
from posir_tasks.results import read_results

if TYPE_CHECKING:
    from posir_tasks.display.figures import Figure


def render_report(summaries: Sequence[TaskSummary], figures: Sequence[Figure]) -> str:
    """Return the page as HTML; whatever comes from results is escaped."""
    # The charts' library is not needed for LaTeX.
    from posir_tasks.display.figures import render_page

    scored = [(summary, build_rows(summary)) for summary in summaries]
    scored.sort(key=lambda given: (given[0].task, -order_value(given[1][0])))
    ordered = [summary for summary, _ in scored]
    rows = [row for _, of_summary in scored for row in of_summary]
    places = [row for summary in ordered if (row := build_place_row(summary))]
    overall = list_overall([*rows, *places])
    many = len(overall) > MOST_SENTENCES
    several = len({row.task for row in overall}) > 1
    counts = list(tables.describe_findings(overall)) if many else []
    return render_page(
        __package__,
        "report.html",
        title=tables.title_models(overall),
        lead=" ".join(
            filter(
                None, [tables.describe_data(overall), tables.describe_ranking(overall), *counts[:1]]
            )
        ),
        summary=tables.summary_table(overall, tables.known_columns()) if several or many else None,
        notes=[*counts[1:], *tables.place_notes(ordered)],
        tasks=[
            _task_section(task, list(group), figures)
            for task, group in groupby(scored, key=lambda row: row[0].task)
        ],
        added=tables.added_columns(),
        strips=build_strips([*rows, *places]),
        kind="report",
        data=", ".join(dict.fromkeys(summary.task for summary in ordered)),
        margin=format_margin(ordered[0].margins.position_effect),
        few=FEW,
        sources=ordered,
    )


def build_strips(rows: Iterable[ReportRow]) -> list[Strip]:
    """Return the picture of each model and task over all lengths, best nDCG@10 of a task first."""
    overall = [row for row in list_overall(rows) if row.findings]
    several = len({row.task for row in overall}) > 1
    strips = list[Strip]()
    for label, row in zip(short_labels(overall), overall, strict=True):
        strip = row.build_strip(f"{label}, {row.task}" if several else label)
        if strip and row.findings:
            strips.append(
                replace(strip, code="\n".join(build_commands(row.findings, row.reference)))
            )
    return strips


def describe_saved(file: Path) -> Iterator[str]:
    """Yield the answer of a result: a line of model, picture, task and nDCG@10, then the
    finding.
    """
    saved = summarize([result for result in read_results(file.parent) if result.task == file.stem])
    for row in list_overall(row for summary in saved for row in build_rows(summary)):
        if row.findings:
            score = format_percent(row.ndcg_at_10.value if row.ndcg_at_10 else None)
            yield (
                f"{row.model}  {row.sketch} · {row.task}, nDCG@10 "
                f"{score}\n{describe_group(row.findings)}"
            )


def _task_section(
    task: str, scored: Sequence[tuple[TaskSummary, list[ReportRow]]], figures: Sequence[Figure]
) -> dict[str, Any]:
    summaries = [summary for summary, _ in scored]
    names, lines, models, queries = short_labels(summaries), [], [], dict[str, str]()
    table = tables.length_table(
        [row for _, rows in scored for row in rows], tables.default_columns()
    )
    # Model and task stand above the rows.
    columns = tuple(
        replace(column, drawn=column.heading == "Position effect") for column in table.columns[2:]
    )
    cells = (line[2:] for line in table.rows)
    for label, name, (summary, rows) in zip(model_labels(summaries), names, scored, strict=True):
        models.append(
            {
                "name": name,
                "figures": [
                    figure for figure in figures if (figure.task, figure.model) == (task, label)
                ],
            }
        )
        axes, (said, shared) = summary.profile.axes, _find_shared(rows)
        titles = dict(
            zip(
                axes.lengths,
                (title.replace(": ", ", ", 1) for title in axes.length_titles),
                strict=True,
            )
        )
        lines.append(
            (
                name + partial_suffix(len(summary.subsets), len(summary.missing)) + said,
                *("" for _ in columns[1:]),
            )
        )
        for first, *rest in islice(cells, len(rows)):
            # Questions that were counted above are not counted again.
            shown = shared | ({"Queries": ""} if queries.get(first) == rest[0] else {})
            queries.setdefault(first, rest[0])
            own = (
                shown.get(column.heading, cell)
                for cell, column in zip(rest, columns[1:], strict=True)
            )
            lines.append((titles.get(first, first), *own))
    notes = [*tables.truncation_notes(names, summaries), *tables.document_notes(names, summaries)]
    table = replace(table, columns=columns, rows=tuple(lines)).without_empty_columns()
    return {"name": task, "table": table, "models": models, "notes": notes}


def _find_shared(rows: Sequence[ReportRow]) -> tuple[str, dict[str, str]]:
    """Return what is said once of all rows of a model, and the cells of columns that say that, or
    what another one says.
    """
    findings = [row.findings for row in rows if row.findings]
    states = set(map(label_state, findings))
    common = list[str]()
    shared = dict[str, str]()
    if findings and all(result.value(Quantity.UNREAD_SHARE) == 0 for result in findings):
        common.append(ALL_IS_READ)
        shared = {"Truncated": "", "Effect within the window": ""}
    if len(states) == 1 and rows[1:]:
        common.append(name_common_state(states.pop()))
        shared["Bias within the window"] = ""
    return " · ".join(["", "; ".join(common)] if common else []), shared


NOTE = (
    "In brackets 95% intervals. Position effect: nDCG@10 (x 100) with the evidence in the first "
    "third of its document minus "
    "the same evidence in the last, moved by rotating the document; within the window: the same "
    "in excerpts that are read "
    "whole, from whose interval the state follows. PSI by chance: mean and central 90%."
)


def render_latex(summaries: Iterable[TaskSummary]) -> str:
    """Return a table for each task and scheme, a line for each model and length, for the packages
    booktabs and adjustbox.
    """
    rendered = (
        _render_task(list(group))
        for _, group in groupby(sorted(summaries, key=task_and_scheme), key=task_and_scheme)
    )
    return "\n\n".join(["% In the preamble: \\usepackage{booktabs,adjustbox}", *rendered])


def _render_task(summaries: Sequence[TaskSummary]) -> str:
    task, added = summaries[0].task, tables.added_columns()
    keys = [*tables.ANSWER, "psi_as_published", "psi_by_chance", *(column.key for column in added)]
    rows = [row for summary in summaries for row in build_rows(summary) if row.queries]
    table = tables.length_table(rows, tables.choose_columns(keys))
    notes = (
        *tables.truncation_notes(model_labels(summaries), summaries),
        *([tables.build_legend(added)] if added else []),
    )
    revisions = ", ".join(sorted({summary.data_revision for summary in summaries}))
    # The task is in the caption.
    table = replace(
        table,
        columns=(table.columns[0], *table.columns[2:]),
        rows=tuple((cells[0], *cells[2:]) for cells in table.rows),
        title=f"{task}, data revision {revisions}: by length of the relevant document.",
        notes=(NOTE, *table.notes, *notes),
    )
    return to_latex(table, label=f"tab:{re.sub(r'[^a-z0-9]+', '-', task.lower()).strip('-')}")
