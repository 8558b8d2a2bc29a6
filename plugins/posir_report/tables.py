"""The tables of a report: rows of lengths and of position bins as text, and notes on truncation."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from posir_published.notable import NOTABLE_BIAS
from posir_report.columns import NUMBERS, format_cell
from posir_report.labels import full_labels, model_labels, partial_suffix
from posir_report.sparklines import RowKey, row_key
from posir_report.summary import BinRow, ReportRow, TaskSummary, build_rows
from posir_significance.effect_test import FEWEST_CLUSTERS
from posir_significance.verdict import describe_truncation
from posir_tasks.display.numbers import MISSING
from posir_tasks.display.tables import Column, Table, build_columns
from posir_tasks.display.wording import pluralize
from posir_tasks.plugin_api.scoring import declared_scores
from posir_tasks.scores import ALL, BINS_KEY, GROUPS_KEY, Score, ScoreInfo, Unit

#: Design effects from here on are worth a note.
LARGE_DESIGN_EFFECT = 1.2
#: A table without the column of curves.
NO_CURVES: Mapping[RowKey, str] = {}
#: Keys of the columns of the page's first table.
SUMMARY_KEYS = ("ndcg_at_10", "start_to_end", "psi", "p_corrected", "verdict")


def pooled_scores(summary: TaskSummary, rows: Iterable[ReportRow]) -> dict[str, Any]:
    """Return everything known of a model on a task for JSON: all pooled scores, not rounded, and the position profile.

    Args:
        summary: The model on the task.
        rows: Its rows, whose corrected p-values and verdicts the JSON has, too.
    """
    added = {
        row.length.lower(): {
            "p_corrected": row.p_corrected,
            "verdict": row.verdict,
            NOTABLE_BIAS.key: row.get(NOTABLE_BIAS.key, str),
        }
        for row in rows
    }
    scores = summary.scores.to_json(summary.profile.positions)
    return {
        "model": summary.model,
        "revision": summary.revision,
        "task": summary.task,
        "data_revision": summary.data_revision,
        "subsets": summary.subsets,
        "missing_subsets": summary.missing,
        GROUPS_KEY: {group: {**group_scores, **added[group]} for group, group_scores in scores[GROUPS_KEY].items()},
        BINS_KEY: scores[BINS_KEY],
        "position_profile": summary.profile.to_json(),
    }


def length_table(rows: Iterable[ReportRow], columns: Sequence[ScoreInfo], curves: Mapping[RowKey, str] = NO_CURVES) -> Table:
    """Return a table with a line for all lengths and for each length bucket, with the curves over position if given."""
    rows = list(rows)
    return Table(
        (*build_columns(("Model", "Task", "Length", *_curve_heading(curves))), *_build_headings(columns)),
        tuple(
            (
                label,
                row.task + partial_suffix(row.subsets, row.missing_subsets),
                row.length,
                *_curve_cell(row, curves),
                *(format_cell(row, column) for column in columns),
            )
            for label, row in zip(full_labels(rows), rows, strict=True)
        ),
        split_by="{Model} · {Task}",
    )


def overview_table(rows: Iterable[ReportRow], columns: Sequence[ScoreInfo], curves: Mapping[RowKey, str] = NO_CURVES) -> Table:
    """Return a table with a line for each task, all lengths together, of the models that have several tasks."""
    overall = sorted((row for row in rows if row.length == ALL), key=lambda row: (row.model, row.revision))
    labels = full_labels(overall)
    tasks = Counter(labels)
    return Table(
        (*build_columns(("Model", "Tasks", "Task", *_curve_heading(curves))), *_build_headings(columns)),
        tuple(
            (
                label,
                f"{tasks[label]} tasks",
                row.task,
                *_curve_cell(row, curves),
                *(format_cell(row, column) for column in columns),
            )
            for label, row in zip(labels, overall, strict=True)
            if tasks[label] > 1
        ),
        split_by="{Model} · {Tasks}",
    )


def summary_table(rows: Iterable[ReportRow], columns: Sequence[ScoreInfo], curves: Mapping[RowKey, str]) -> Table:
    """Return a table with a line for each model and task, all lengths together, best nDCG@10 of a task first."""
    overall = sorted((row for row in rows if row.length == ALL), key=lambda row: (row.task, -order_value(row)))
    chosen = [column for column in columns if column.key in SUMMARY_KEYS]
    return Table(
        (*build_columns(("Task", "Model", "Over position")), *_build_headings(chosen)),
        tuple(
            (
                row.task + partial_suffix(row.subsets, row.missing_subsets),
                label,
                *_curve_cell(row, curves),
                *(format_cell(row, column) for column in chosen),
            )
            for label, row in zip(full_labels(overall), overall, strict=True)
        ),
        keys=2,
    )


def order_value(row: ReportRow) -> float:
    """Return nDCG@10, or 0 if it is undefined."""
    return row.ndcg_at_10.value if row.ndcg_at_10 else 0.0


def bin_table(rows: Iterable[BinRow], columns: Sequence[ScoreInfo]) -> Table:
    """Return a table with a line for each position bin."""
    rows = list(rows)
    by_length = any(row.length != ALL for row in rows)
    return Table(
        (*build_columns(("Model", "Task", *(["Length"] * by_length), "Position")), *_build_headings(columns)),
        tuple(
            (label, row.task, *([row.length] * by_length), row.position, *(format_cell(row, column) for column in columns))
            for label, row in zip(full_labels(rows), rows, strict=True)
        ),
        split_by="{Model} · {Task}",
    )


def bin_columns() -> list[Score]:
    """Return the scores that are declared for position bins."""
    return [score for score in declared_scores() if score.by_position]


def _build_headings(columns: Iterable[ScoreInfo]) -> tuple[Column, ...]:
    return tuple(Column(column.title, "right" if _is_plain_number(column) else "left") for column in columns)


def _is_plain_number(column: ScoreInfo) -> bool:
    """Return whether numbers of a column have no interval and as many decimals, so that they are aligned to the right."""
    return column.unit in NUMBERS or (column.unit is Unit.PERCENT and not column.interval)


def _curve_heading(curves: Mapping[RowKey, str]) -> tuple[str, ...]:
    return ("Over position",) if curves else ()


def _curve_cell(row: ReportRow, curves: Mapping[RowKey, str]) -> tuple[str, ...]:
    return (curves.get(row_key(row), MISSING),) if curves else ()


def truncation_notes(labels: Sequence[str], summaries: Sequence[TaskSummary]) -> Iterator[str]:
    """Yield how much evidence is beyond each model's window on one task, then the models whose window is unknown."""
    scored = [(label, summary) for label, summary in zip(labels, summaries, strict=True) if "window" in summary.scores[ALL]]
    for label, summary in scored:
        if summary.scores[ALL]["window"] is not None:
            yield describe_truncation(label, summary.scores[ALL], build_rows(summary)[0].verdict)
    unknown = [label for label, summary in scored if summary.scores[ALL]["window"] is None]
    if unknown:
        yield f"The input window is unknown for {', '.join(unknown)}."


def truncation_notes_by_task(summaries: Sequence[TaskSummary]) -> Iterator[str]:
    """Yield the notes on truncation of every task, after the task's name."""
    for task in dict.fromkeys(summary.task for summary in summaries):
        of_task = [summary for summary in summaries if summary.task == task]
        yield from (f"{task}: {note}" for note in truncation_notes(model_labels(of_task), of_task))


def document_notes(labels: Sequence[str], summaries: Sequence[TaskSummary]) -> Iterator[str]:
    """Yield what the position effect was estimated within, and where intervals assume independent questions."""
    overall = [(label, summary, build_rows(summary)[0]) for label, summary in zip(labels, summaries, strict=True)]
    fixed = ((summary.task, row.get("held_fixed", str)) for _, summary, row in overall)
    for task, held_fixed in dict.fromkeys(pair for pair in fixed if pair[1]):
        yield f"{task}: start to end, PSI and p are estimated with the {held_fixed} held fixed."
    for label, summary, row in overall:
        if row.p_value is None and row.psi is not None:
            documents = pluralize(row.get("documents", int) or 0, "document")
            yield (
                f"{summary.task}, {label}: {documents} cannot show an effect of position; at least {FEWEST_CLUSTERS} are "
                "needed for a test, and `posir power` says how many show an effect of a given size."
            )
        effect = row.get("design_effect", float)
        if effect is not None and effect > LARGE_DESIGN_EFFECT:
            yield (
                f"{summary.task}, {label}: {row.queries:,} queries on {row.get('documents', int):,} documents; the variance of "
                f"nDCG@10 is {effect:.1f} times that of independent queries (design effect)."
            )
