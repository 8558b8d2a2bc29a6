"""LaTeX tables laid out as in the papers: a row per model; nDCG@10 and PSI by length (PosIR), or by position bucket (PosQ).

Scores that further packages declare follow as columns.
"""

import re
from collections.abc import Iterable, Sequence
from itertools import groupby

from posir_report.columns import added_columns, build_legend, format_cell
from posir_report.labels import model_labels, partial_suffix
from posir_report.summary import ReportRow, ScoredRow, TaskSummary, build_bin_rows, build_rows
from posir_significance.intervals import ALPHA
from posir_tasks.display.numbers import format_count, format_interval, format_percent, format_psi, format_score
from posir_tasks.display.tables import Column, Table, to_latex
from posir_tasks.scores import ScoreInfo, Unit

#: Characters of a model's name; a longer one is shortened in the middle, so that the table fits a page.
NAME_WIDTH = 44
NULL_NOTE = (
    "In brackets 95 % intervals; below PSI, as published, its estimate and what it shows under the null, if position has no "
    "effect: mean and central 90 %. "
    f"*: significant, p < {ALPHA} corrected for the lengths of a model and task (Holm); intervals are not corrected."
)


def render_latex(summaries: Iterable[TaskSummary]) -> str:
    """Return a table for each task and scheme, for the packages booktabs and adjustbox."""
    ordered = sorted(summaries, key=_task_and_scheme)
    scored = ((summary, build_rows(summary)) for summary in ordered)
    tables = [_render_task(*zip(*group, strict=True)) for _, group in groupby(scored, key=lambda row: _task_and_scheme(row[0]))]
    return "\n\n".join(["% In the preamble: \\usepackage{booktabs,adjustbox}", *tables])


def _task_and_scheme(summary: TaskSummary) -> tuple[str, str]:
    return summary.task, summary.profile.axes.scheme


def _render_task(summaries: Sequence[TaskSummary], rows: Sequence[list[ReportRow]]) -> str:
    task, profile = summaries[0].task, summaries[0].profile
    by_length = len(profile.lengths) > 1
    lengths = ["All", *profile.lengths] if by_length else ["All"]
    scores = lengths if by_length else [*profile.positions, "All"]
    revisions = ", ".join(sorted({summary.data_revision for summary in summaries}))
    by = "length of the relevant document" if by_length else "position of the evidence"
    labels = model_labels(summaries, NAME_WIDTH)
    added = added_columns()
    table = Table(
        (
            Column("Model"),
            *(Column(name, group="nDCG@10") for name in scores),
            *(Column(name, group="PSI") for name in lengths),
            *(Column(column.title) for column in added),
        ),
        tuple(_build_row(*labeled, by_length, added) for labeled in zip(labels, summaries, rows, strict=True)),
        title=f"{task}, data revision {revisions}: nDCG@10 (x 100) by {by}, below it the number of queries; and PSI.",
        notes=(NULL_NOTE, *([build_legend(added)] if added else [])),
    )
    return to_latex(table, label=f"tab:{re.sub(r'[^a-z0-9]+', '-', task.lower()).strip('-')}")


def _build_row(
    label: str, summary: TaskSummary, rows: Sequence[ReportRow], by_length: bool, added: Sequence[ScoreInfo]
) -> tuple[str, ...]:
    """Return the cells of a model, each of two or three lines: score, interval if there is any, queries or null."""
    scored: list[ScoredRow] = [*rows] if by_length else [*build_bin_rows(summary), rows[0]]
    name = label + partial_suffix(len(summary.subsets), len(summary.missing))
    legend = (name, "95 % interval; estimated PSI", "queries; PSI under the null")
    cells = [legend, *map(_ndcg_lines, scored), *map(_psi_lines, rows)]
    cells += [(format_cell(rows[0], column), "", "") for column in added]
    intervals = any(interval for _, interval, _ in cells[1:])
    return tuple("\n".join(cell if intervals else (cell[0], cell[2])) for cell in cells)


def _ndcg_lines(row: ScoredRow) -> tuple[str, str, str]:
    ndcg = row.ndcg_at_10
    interval = format_interval(ndcg, format_percent)
    return format_percent(ndcg.value if ndcg else None), interval, format_count(row.queries)


def _psi_lines(row: ReportRow) -> tuple[str, str, str]:
    star = "*" if row.verdict and row.verdict.significant else ""
    estimate = format_score(Unit.INDEX, row.psi) if row.psi else ""
    return format_psi(row.psi_as_published) + star, estimate, format_score(Unit.INDEX, row.psi_null)
