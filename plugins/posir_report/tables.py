"""The tables of a report, formatted as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from posir_report.columns import list_added_columns, list_score_columns
from posir_report.summary import (
    ReportRow,
    TaskSummary,
    build_labels,
    format_partial_suffix,
)
from posir_significance.findings import Quantity
from posir_significance.messages.reports import (
    CUT_RANKINGS,
    DESIGN_EFFECT,
    SKETCH_EXPLANATION,
    UNKNOWN_WINDOWS,
    describe_levels,
    describe_model_truncation,
    describe_span_counts,
)
from posir_significance.messages.verdicts import format_finding, label_state
from posir_tasks.base.records import Record
from posir_tasks.display.labels import Label, Term, Title, Tone
from posir_tasks.display.numbers import MISSING, format_percent, format_score
from posir_tasks.display.tables import Column, Role, Table, build_columns
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.means import LEVEL
from posir_tasks.values.place_ranks import average_places, compute_third_shares, count_queries
from posir_tasks.values.profile import RECALL_COLUMNS, build_recall_gains
from posir_tasks.values.read_part import ReadKind
from posir_tasks.values.scores import ALL, ScoreInfo, Unit

#: The column with the text chart, on an axis from 0 to 100.
SKETCH = ScoreInfo("sketch", "Over position", SKETCH_EXPLANATION, unit=Unit.TEXT)
#: Headings that differ from the score's title.
HEADINGS = {"state": "Bias within\nthe window"}
#: Roles of columns on pages.
ROLES: dict[str, Role] = {
    Quantity.POSITION_EFFECT: Role.EFFECT,
    Quantity.UNREAD_SHARE: Role.TRUNCATED,
}
#: Heading of the column of document lengths.
LENGTH = "Length in tokens"
#: Design effects above this limit get a note.
MAX_DESIGN_EFFECT = 1.2


def format_cell(row: ReportRow, column: ScoreInfo, *, brief: bool = False) -> str:
    """Format a row's score; `brief` omits the interval of nDCG@10."""
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
    """Build a table of scores.

    Args:
        rows: The rows.
        columns: The scores.
        names: The columns before the scores, by heading.
        title: Title of the table.
        brief: If true, omit the interval of nDCG@10, and show the chart only if there is room.
    """
    cells = []
    for row, line in zip(rows, zip(*names.values(), strict=True), strict=True):
        cells.append((*line, *(format_cell(row, column, brief=brief) for column in columns)))
    score_columns = [
        Column(
            HEADINGS.get(column.key, column.title) if brief else column.title,
            "left" if column.unit is Unit.TEXT else "right",
            picture=brief and column is SKETCH,
            drawn=brief and column.key == Quantity.POSITION_EFFECT,
            role=ROLES.get(column.key, Role.PLAIN),
        )
        for column in columns
    ]
    roles = {"Model": Role.NAME, "Task": Role.NAME}
    return Table((*build_columns(names, roles=roles), *score_columns), tuple(cells), title)


def build_answer_table(
    heading: str,
    names: Sequence[str],
    rows: Sequence[ReportRow],
    title: str,
    extra_columns: Sequence[ScoreInfo] = (),
    *,
    has_sketch: bool,
) -> Table:
    """Build a table of the main scores of models, tasks or lengths, then the extra columns.

    A table by length has a column of query counts if they differ.
    """
    keys = ["ndcg_at_10", "position_effect", "unread_share", SKETCH.key, "state"]
    if not has_sketch:
        keys.remove(SKETCH.key)
    if heading == LENGTH and len({row.queries for row in rows}) > 1:
        keys.insert(0, "queries")
    column_by_key = {column.key: column for column in (*list_score_columns(), SKETCH)}
    main_columns = [column_by_key[key] for key in keys if key in column_by_key]
    columns = list(dict.fromkeys((*main_columns, *list_added_columns(), *extra_columns)))
    return build_score_table(rows, columns, {heading: names}, title, brief=True)


def build_length_table(
    rows: Iterable[ReportRow], columns: Sequence[ScoreInfo], *, curves: bool = False
) -> Table:
    """Build a table with a row over all lengths and a row per length bucket."""
    rows = list(rows)
    names = {
        "Model": build_labels(rows),
        "Task": [name_task(row) for row in rows],
        "Length": [row.length for row in rows],
    }
    table = build_score_table(rows, [SKETCH, *columns] if curves else columns, names)
    return replace(table, split_by=Title("{Model}", "{Task}"), notes=tuple(write_level_notes(rows)))


def build_bin_table(rows: Iterable[ReportRow], columns: Sequence[ScoreInfo]) -> Table:
    """Build a table with a row for each position bin."""
    rows = list(rows)
    names = {
        "Model": build_labels(rows),
        "Task": [row.task for row in rows],
        "Length": [row.length for row in rows],
        "Position": [row.position or "" for row in rows],
    }
    if all(row.length == ALL for row in rows):
        del names["Length"]
    return replace(build_score_table(rows, columns, names), split_by=Title("{Model}", "{Task}"))


def name_task(row: ReportRow) -> str:
    """Name the task of a row, with the number of subsets if some are missing."""
    return row.task + format_partial_suffix(row.subsets, row.missing_subsets)


def build_legend(columns: Iterable[ScoreInfo]) -> list[Term]:
    """Explain each column."""
    terms = []
    for column in columns:
        text = column.description
        # Lower case after a colon, except for acronyms.
        if not text[1:2].isupper():
            text = text[:1].lower() + text[1:]
        terms.append(Term(column.title, text))
    return terms


def describe_spans(summary: TaskSummary) -> Record | None:
    """Summarize the queries with several evidence spans; None if there are none.

    Each of a query's n spans has weight 1/n.
    """
    places = summary.values.places
    if places is None:
        return None
    columns = places.columns
    weights = columns.shares
    shares = compute_third_shares(places).tolist()
    means: list[float | None] = []
    for third in range(3 if shares else 0):
        mask = columns.thirds == third
        mean = np.average(columns.gains[mask], weights=weights[mask]) if mask.any() else None
        means.append(mean)
    recall = {}
    for depth in (10, 100):
        mean = average_places(places, build_recall_gains(depth)) if len(weights) else None
        recall[f"place_recall_at_{depth}"] = mean
    return {
        "queries": count_queries(places),
        "places": len(weights),
        "left_out": places.left_out,
        **recall,
        "shares": shares or None,
        "ndcg_at_10_by_third": means or None,
        **(summary.span_findings.to_json() if summary.span_findings else {}),
    }


def write_span_notes(summaries: Sequence[TaskSummary]) -> Iterator[str]:
    """Describe the queries with several evidence spans of each model and task."""
    for label, summary in zip(build_labels(summaries), summaries, strict=True):
        if places := describe_spans(summary):
            yield describe_span_counts(label, summary.task, places)


def write_truncation_notes(
    labels: Sequence[str], summaries: Sequence[TaskSummary]
) -> Iterator[str]:
    """Describe the window and truncation of each model, then list models with unknown windows."""
    unknown = []
    for label, summary in zip(labels, summaries, strict=True):
        if summary.values.read.kind is ReadKind.UNKNOWN:
            unknown.append(label)
        elif summary.profile.queries:
            yield from describe_model_truncation(
                label, summary.findings, summary.values.ranks.counted_with
            )
    if unknown:
        yield UNKNOWN_WINDOWS.format(models=", ".join(unknown))


def write_level_notes(rows: Iterable[ReportRow]) -> Iterator[str]:
    """Yield a note on the confidence levels of length rows if they are not 95%."""
    levels = {row.findings.verdict.level for row in rows if row.findings} - {LEVEL}
    if levels:
        yield describe_levels(sorted(levels))


def write_document_notes(labels: Sequence[str], summaries: Sequence[TaskSummary]) -> Iterator[str]:
    """Describe large design effects: similar questions about one document widen intervals."""
    for label, summary in zip(labels, summaries, strict=True):
        scores = summary.scores[ALL]
        effect = scores.get("design_effect")
        if isinstance(effect, float) and effect > MAX_DESIGN_EFFECT:
            yield DESIGN_EFFECT.format(
                task=summary.task,
                model=label,
                queries=scores.get("queries"),
                documents=scores.get("documents"),
                effect=effect,
            )


def write_cut_ranking_notes(
    labels: Sequence[str], summaries: Sequence[TaskSummary]
) -> Iterator[str]:
    """Describe rankings that seem to end at rank 10: no relevant document has rank 11 to 100."""
    for label, summary in zip(labels, summaries, strict=True):
        counts = summary.profile.counts.sum(axis=(0, 1))
        is_cut = not counts[RECALL_COLUMNS[10] : RECALL_COLUMNS[100]].any()
        if is_cut and counts[RECALL_COLUMNS[100] :].any():
            yield CUT_RANKINGS.format(model=label, task=summary.task)
