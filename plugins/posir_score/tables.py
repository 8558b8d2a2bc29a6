"""Tables of scored runs."""

from __future__ import annotations

from collections.abc import Sequence

from posir_report.columns import default_columns
from posir_report.sparklines import sparklines
from posir_report.summary import ReportRow, build_rows, mark_notable_bias, summarize
from posir_report.tables import summary_table
from posir_score.evaluation import RunScores
from posir_tasks.display.numbers import format_percent
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.results import SubsetResult

HEADINGS = ("Run", "Task", "Queries", "With position", "nDCG@10", "MRR@10", "Recall@100")
LEGEND = (
    "nDCG@10, MRR@10 and Recall@100 x 100 over all judged queries, as trec_eval computes them. Position scores are of the "
    "queries whose evidence has one position; `posir report` shows all of them, by length."
)


def build_table(runs: Sequence[RunScores]) -> Table:
    """Return a table with a line for each run, and a sentence on everything that did not fit the data."""
    rows = tuple(
        (
            run.model,
            run.task,
            f"{run.counts.queries:,}",
            f"{run.counts.with_position:,}",
            *(format_percent(score) for score in (run.ndcg_at_10, run.mrr_at_10, run.recall_at_100)),
        )
        for run in runs
    )
    notes = tuple(f"{run.model}: {' '.join(sentences)}" for run in runs if (sentences := list(run.counts.describe())))
    return Table(build_columns(HEADINGS, HEADINGS[2:]), rows, notes=notes)


def build_position_table(results: Sequence[SubsetResult]) -> Table:
    """Return the summary of `posir report`."""
    return summary_table(build_position_rows(results), default_columns(), sparklines(summarize(results)))


def build_position_rows(results: Sequence[SubsetResult]) -> list[ReportRow]:
    """Return the rows of `posir report`."""
    return mark_notable_bias(row for summary in summarize(results) for row in build_rows(summary))
