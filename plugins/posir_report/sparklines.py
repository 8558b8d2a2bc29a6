"""Curves of nDCG@10 over position as a line of text, for the terminal."""

from collections.abc import Iterable, Mapping

from posir_report.cells import EQUAL_BINS, MERGED_BINS, is_sparse
from posir_report.summary import ReportRow, TaskSummary
from posir_tasks.display.sparklines import draw_sparkline
from posir_tasks.profile import NDCG_AT_10, PositionProfile, mean_gain

#: Model, revision, task and length of a row.
RowKey = tuple[str, str, str, str]


def row_key(row: ReportRow) -> RowKey:
    """Return what identifies a row of a report."""
    return row.model, row.revision, row.task, row.length


def sparklines(summaries: Iterable[TaskSummary]) -> Mapping[RowKey, str]:
    """Return the curve of every row of a report, from the start of documents to their end."""
    cells = {}
    for summary in summaries:
        lengths = summary.profile.lengths if len(summary.profile.lengths) > 1 else ()
        profiles = {"all": summary.profile} | {name: summary.profile.of_length(index) for index, name in enumerate(lengths)}
        for length, profile in profiles.items():
            cells[summary.model, summary.revision, summary.task, length] = draw_profile(profile)
    return cells


def draw_profile(profile: PositionProfile) -> str:
    """Return nDCG@10 over position on an axis from 0 to 1; twenty equal bins are merged into five if one has few queries."""
    counts = profile.counts.sum(axis=0)
    if is_sparse(profile.axes, counts.sum(axis=1)):
        counts = counts.reshape(MERGED_BINS, EQUAL_BINS // MERGED_BINS, -1).sum(axis=1)
    return draw_sparkline(mean_gain(counts, NDCG_AT_10))
