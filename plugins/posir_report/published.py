"""Published results as rows of a report."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from posir_published import rows as data
from posir_report.cells import build_cells
from posir_report.summary import ReportRow, TaskSummary, build_bin_rows, order_value
from posir_tasks.base.errors import PosirError
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.scores import ALL, GroupScores, ScoreValue


def merge_published(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """Return rows together with the published rows of the same tasks and lengths, by descending
    nDCG@10 within each task.

    A published row is marked as such. It has no interval and no p-value, as the papers give none;
    its PSI by chance is the bound that `posir published` shows, if there is one.

    Raises:
        PosirError: Nothing is published on any of the tasks.
    """
    tasks = list(dict.fromkeys(row.task for row in rows))
    lengths = {task: {row.length for row in rows if row.task == task} for task in tasks}
    published = [
        replace(row_from_published(row), model=f"{row.model} (published)")
        for task in tasks
        for row in data.published_rows(task)
        if row.length in lengths[task]
    ]
    if not published:
        raise PosirError(
            f"There are no published results for {', '.join(tasks)}. `posir published` lists all "
            "published results."
        )
    groups = [
        list(group)
        for _, group in groupby(
            [*rows, *published], key=lambda row: (row.task, row.model, row.revision)
        )
    ]
    groups.sort(key=lambda group: (tasks.index(group[0].task), -order_value(group[0])))
    return [row for group in groups for row in group]


def merge_published_bins(summaries: Sequence[TaskSummary]) -> list[ReportRow]:
    """Return the position bins of results at the lengths at which bins are published, with the
    published ones after them.

    Raises:
        PosirError: No position bins are published on any of the tasks.
    """
    rows: list[ReportRow] = []
    for task in dict.fromkeys(summary.task for summary in summaries):
        published = data.published_bins(task)
        lengths = {row.length for row in published}
        own = [
            row for summary in summaries if summary.task == task for row in _build_own_bins(summary)
        ]
        rows += [row for row in own if row.length in lengths]
        rows += [
            ReportRow(
                model=f"{row.model} (published)",
                task=row.task,
                length=row.length,
                position=row.position,
                scores={"queries": row.queries, "ndcg_at_10": Estimate(row.ndcg_at_10)},
            )
            for row in published
        ]
    if not rows:
        tasks = ", ".join(dict.fromkeys(summary.task for summary in summaries))
        raise PosirError(
            f"No position bins are published on {tasks}. `posir published --bins` lists all that "
            "are."
        )
    return rows


def _build_own_bins(summary: TaskSummary) -> list[ReportRow]:
    axes = summary.profile.axes
    rows, names = build_bin_rows(summary), dict(zip(axes.length_titles, axes.lengths, strict=True))
    for cell in build_cells(summary) if len(axes.lengths) > 1 else ():
        scores: GroupScores = {"queries": cell.queries, "ndcg_at_10": cell.ndcg_at_10}
        rows.append(
            replace(rows[0], length=names[cell.length], position=cell.position, scores=scores)
        )
    return rows


def row_from_published(published: data.PublishedRow) -> ReportRow:
    """Return a published row as a row of a report; what the papers do not give is missing.

    In a length bucket the papers give the unweighted mean of the bins, which is not the mean over
    queries.
    """
    average = "ndcg_at_10" if published.length == ALL else "ndcg_at_10_as_published"
    curve = data.find_curve(published.task, published.model, published.length)
    mean, p95 = published.psi_chance_mean_at_most, published.psi_chance_p95_at_most
    scores: dict[str, ScoreValue] = {
        "queries": published.queries,
        average: Estimate(published.ndcg_at_10),
        "psi_as_published": published.psi_as_published,
        "psi_by_chance": None if mean is None or p95 is None else Estimate(mean, (0.0, p95)),
        data.START_TO_END_UNWEIGHTED.key: curve.start_to_end_unweighted if curve else None,
        data.NOTABLE_BIAS.key: data.describe_notable(published.notable_bias),
    }
    drawn = tuple(curve.ndcg_at_10) if curve else ()
    return ReportRow(
        model=published.model,
        task=published.task,
        length=published.length,
        scores=scores,
        published_curve=drawn,
    )
