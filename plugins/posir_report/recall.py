"""Recall by position of the evidence, as far as a position profile has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from posir_report.summary import MOST_SENTENCES, ReportRow, TaskSummary, build_row, full_labels
from posir_significance.observations import Floats
from posir_tasks.display.numbers import format_percent
from posir_tasks.values.profile import RANKS, mean_gain
from posir_tasks.values.scores import ALL, Better, ScoreInfo, Unit

#: Depths that follow from a position profile, of those that the authors' code prints (5, 10, 20,
#: 50, 100), and the number of its rank columns within each.
DEPTHS = {5: 5, 10: 10, 100: 11}
QUERIES = ScoreInfo(
    "queries",
    "Queries",
    "Number of queries; one on a shared boundary counts in both bins.",
    unit=Unit.COUNT,
)
RECALL = {
    depth: ScoreInfo(
        f"recall_at_{depth}",
        f"Recall@{depth}",
        f"Share of queries whose relevant document is among the first {depth}.",
        unit=Unit.PERCENT,
        better=Better.HIGHER,
        citation="code of Zeng et al. 2026, arXiv 2601.08363",
        column=False,
    )
    for depth in DEPTHS
}
#: The columns of the table.
RECALL_COLUMNS = (QUERIES, *RECALL.values())


def recall_gain(depth: int) -> Floats:
    """Return the gain of each rank column, shape (ranks,): 1 within one of the `DEPTHS`, else 0."""
    gain: Floats = (np.arange(len(RANKS)) < DEPTHS[depth]).astype(np.float64)
    return gain


def build_recall_rows(summary: TaskSummary) -> Iterator[ReportRow]:
    """Yield the recall of all queries, then that of each position bin, over all lengths; None for
    an empty bin.
    """
    profile = summary.profile
    named = [
        (ALL, profile.totals.sum(axis=0)),
        *zip(profile.positions, profile.counts.sum(axis=0), strict=True),
    ]
    for position, counts in named:
        queries = int(counts.sum())
        means = {
            info.key: float(mean_gain(counts, recall_gain(depth))) if queries else None
            for depth, info in RECALL.items()
        }
        yield build_row(summary, position=position, scores={QUERIES.key: queries, **means})


def describe_cut_rankings(summaries: Iterable[TaskSummary]) -> Iterator[str]:
    """Yield a note for each result whose rankings seem to end after ten documents: no relevant one
    is at ranks 11 to 100.
    """
    for summary in summaries:
        at_rank = summary.profile.counts.sum(axis=(0, 1))
        if not at_rank[DEPTHS[10] : DEPTHS[100]].any() and at_rank[DEPTHS[100] :].any():
            yield (
                f"{summary.model} on {summary.task}: no relevant document is at ranks 11 to 100; "
                "if the ranking has ten "
                "documents, its Recall@100 is its Recall@10."
            )


def describe_recall(summaries: Iterable[TaskSummary]) -> Iterator[str]:
    """Yield Recall@10 of each model and task, and of its first and last position bin; none if there
    are many.
    """
    summaries = list(summaries)
    if len(summaries) > MOST_SENTENCES:
        return
    several = len({summary.task for summary in summaries}) > 1
    for label, summary in zip(full_labels(summaries), summaries, strict=True):
        overall, *bins = build_recall_rows(summary)
        known = [row for row in bins if row.scores[RECALL[10].key] is not None]
        name = f"{label}, {summary.task}" if several else label
        whole, first, last = (
            format_percent(row.get(RECALL[10].key, float)) for row in (overall, known[0], known[-1])
        )
        yield (
            f"{name}: Recall@10 {whole}; {first} at {known[0].position}, {last} at "
            f"{known[-1].position}."
        )
