"""The tables of a report: rows of models, tasks, lengths and position bins as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from posir_report.columns import added_columns, known_columns
from posir_report.summary import (
    ReportRow,
    TaskSummary,
    full_labels,
    partial_suffix,
)
from posir_significance.findings import Quantity
from posir_significance.messages.reports import (
    CUT_RANKINGS,
    DESIGN_EFFECT,
    EXPLAINED_SKETCH,
    UNKNOWN_WINDOWS,
    describe_counting,
    describe_levels,
    describe_place_counts,
)
from posir_significance.messages.verdicts import format_finding, label_state
from posir_tasks.display.labels import Label, Tone
from posir_tasks.display.numbers import MISSING, format_percent, format_score
from posir_tasks.display.tables import Column, Table, build_columns
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.means import LEVEL
from posir_tasks.values.place_ranks import average_places, count_queries, share_thirds
from posir_tasks.values.profile import RECALL_COLUMNS, recall_gain
from posir_tasks.values.read_part import ReadKind
from posir_tasks.values.scores import ALL, ScoreInfo, Unit

#: The picture of the answer in a line, on an axis from 0 to 100.
SKETCH = ScoreInfo("sketch", "Over position", EXPLAINED_SKETCH, unit=Unit.TEXT)
#: Headings that are not the title of their score.
HEADINGS = {"state": "Bias within\nthe window"}
#: Heading of lengths of documents.
LENGTH = "Length in tokens"
#: Design effects from here on are worth a note.
LARGE_DESIGN_EFFECT = 1.2


def format_cell(row: ReportRow, column: ScoreInfo, *, brief: bool = False) -> str:
    """Format the score of a row in a column; `brief` leaves out the interval of nDCG@10."""
    value = row.scores.get(column.key)
    if column is SKETCH:
        return row.sketch
    if column.key == "state":
        return label_state(row.findings) if row.findings else MISSING
    if column.key == Quantity.POSITION_EFFECT and row.findings:
        return format_finding(row.findings[Quantity.POSITION_EFFECT], with_level=False)
    if column.key == Quantity.UNREAD_SHARE and isinstance(value, float):
        return Label(f"{format_percent(value)}%", Tone.BAD if value else None)
    if brief and column.key == Quantity.NDCG_AT_10 and isinstance(value, Estimate):
        return format_percent(value.value)
    return format_score(column.unit, value)


def build_score_table(
    rows: Sequence[ReportRow],
    columns: Sequence[ScoreInfo],
    names: Mapping[str, Sequence[str]],
    title: str = "",
    *,
    brief: bool = False,
) -> Table:
    """Build a table of rows in columns, after the columns of their names by heading.

    A brief one has nDCG@10 without its interval, and the picture only if there is room.
    """
    cells = []
    for row, line in zip(rows, zip(*names.values(), strict=True), strict=True):
        cells.append((*line, *(format_cell(row, column, brief=brief) for column in columns)))
    shown = []
    for column in columns:
        heading = HEADINGS.get(column.key, column.title) if brief else column.title
        shown.append(
            Column(
                heading,
                "left" if column.unit is Unit.TEXT else "right",
                picture=brief and column is SKETCH,
                drawn=brief and column.key == Quantity.POSITION_EFFECT,
            )
        )
    return Table((*build_columns(names), *shown), tuple(cells), title)


def build_answer_table(
    heading: str,
    names: Sequence[str],
    rows: Sequence[ReportRow],
    title: str,
    chosen: Sequence[ScoreInfo] = (),
    *,
    has_sketch: bool,
) -> Table:
    """Build a table of what matters most, of models, tasks or lengths; chosen columns follow.

    Lengths have their queries if these differ.
    """
    omitted = set() if has_sketch else {SKETCH.key}
    if heading != LENGTH or len({row.queries for row in rows}) == 1:
        omitted.add("queries")
    known = {column.key: column for column in (*known_columns(), SKETCH)}
    keys = ("queries", "ndcg_at_10", "position_effect", "unread_share", SKETCH.key, "state")
    columns = [known[key] for key in keys if key in known and key not in omitted]
    columns += [column for column in (*added_columns(), *chosen) if column not in columns]
    return build_score_table(rows, columns, {heading: names}, title, brief=True)


def length_table(
    rows: Iterable[ReportRow], columns: Sequence[ScoreInfo], *, curves: bool = False
) -> Table:
    """Build a table with a line for all lengths and for each length bucket."""
    listed = list(rows)
    names = {
        "Model": full_labels(listed),
        "Task": [name_task(row) for row in listed],
        "Length": [row.length for row in listed],
    }
    table = build_score_table(listed, [SKETCH, *columns] if curves else columns, names)
    return replace(table, split_by="{Model} · {Task}", notes=tuple(level_notes(listed)))


def bin_table(rows: Iterable[ReportRow], columns: Sequence[ScoreInfo]) -> Table:
    """Build a table with a line for each position bin."""
    listed = list(rows)
    names = {
        "Model": full_labels(listed),
        "Task": [row.task for row in listed],
        "Length": [row.length for row in listed],
        "Position": [row.position or "" for row in listed],
    }
    if all(row.length == ALL for row in listed):
        del names["Length"]
    return replace(build_score_table(listed, columns, names), split_by="{Model} · {Task}")


def name_task(row: ReportRow) -> str:
    """Name the task of a row, and how many of its subsets there are if some are missing."""
    return row.task + partial_suffix(row.subsets, row.missing_subsets)


def build_legend(columns: Iterable[ScoreInfo]) -> str:
    """Explain columns, a line each."""
    lines = []
    for column in columns:
        text = column.description
        # After a colon a sentence begins with a small letter, unless with an acronym.
        if not text[1:2].isupper():
            text = text[:1].lower() + text[1:]
        lines.append(f"{column.title}: {text}")
    return "\n".join(lines)


def describe_places(summary: TaskSummary) -> dict[str, Any] | None:
    """Summarize the queries with several places of evidence, each place at 1/n; None if there are
    none.
    """
    places = summary.values.places
    if places is None:
        return None
    columns = places.columns
    weights = columns.shares
    shares = share_thirds(places).tolist()
    means: list[float | None] = []
    for third in range(3 if shares else 0):
        rows = columns.thirds == third
        mean = np.average(columns.gains[rows], weights=weights[rows]) if rows.any() else None
        means.append(mean)
    recall = {}
    for depth in (10, 100):
        mean = average_places(places, recall_gain(depth)) if len(weights) else None
        recall[f"place_recall_at_{depth}"] = mean
    return {
        "queries": count_queries(places),
        "places": len(weights),
        "left_out": places.left_out,
        **recall,
        "shares": shares or None,
        "ndcg_at_10_by_third": means or None,
        **(summary.place_findings.to_json() if summary.place_findings else {}),
    }


def place_notes(summaries: Sequence[TaskSummary]) -> Iterator[str]:
    """Describe the queries with several places of evidence of each model and task."""
    for label, summary in zip(full_labels(summaries), summaries, strict=True):
        if places := describe_places(summary):
            yield describe_place_counts(label, summary.task, places)


def truncation_notes(labels: Sequence[str], summaries: Sequence[TaskSummary]) -> Iterator[str]:
    """Describe the window of each model and what is truncated, then name the models whose window is
    unknown.
    """
    unknown = []
    for label, summary in zip(labels, summaries, strict=True):
        if summary.values.read.kind is ReadKind.UNKNOWN:
            unknown.append(label)
        elif summary.profile.queries:
            counted_with = summary.values.ranks.counted_with
            yield from describe_counting(label, summary.findings, counted_with)
    if unknown:
        yield UNKNOWN_WINDOWS.format(models=", ".join(unknown))


def level_notes(rows: Iterable[ReportRow]) -> Iterator[str]:
    """Yield at which level the intervals of length rows hold; nothing without such rows."""
    levels = {row.findings.verdict.level for row in rows if row.findings} - {LEVEL}
    if levels:
        yield describe_levels(sorted(levels))


def document_notes(labels: Sequence[str], summaries: Sequence[TaskSummary]) -> Iterator[str]:
    """Describe where questions of one document are alike, so that intervals are wider."""
    for label, summary in zip(labels, summaries, strict=True):
        scores = summary.scores[ALL]
        effect = scores.get("design_effect")
        if isinstance(effect, float) and effect > LARGE_DESIGN_EFFECT:
            yield DESIGN_EFFECT.format(
                task=summary.task,
                model=label,
                queries=scores.get("queries"),
                documents=scores.get("documents"),
                effect=effect,
            )


def cut_ranking_notes(labels: Sequence[str], summaries: Sequence[TaskSummary]) -> Iterator[str]:
    """Describe where rankings seem to end at rank 10: none of ranks 11 to 100 is relevant."""
    for label, summary in zip(labels, summaries, strict=True):
        at_rank = summary.profile.counts.sum(axis=(0, 1))
        is_cut = not at_rank[RECALL_COLUMNS[10] : RECALL_COLUMNS[100]].any()
        if is_cut and at_rank[RECALL_COLUMNS[100] :].any():
            yield CUT_RANKINGS.format(model=label, task=summary.task)
