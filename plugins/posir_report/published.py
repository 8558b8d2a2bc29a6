"""Published results as rows of a report."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from posir_published import rows as data
from posir_report.summary import ReportRow, Run, get_ndcg
from posir_tasks.base.errors import PosirError
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.scores import ALL, ScoreValue


def merge_published(rows: Sequence[ReportRow]) -> list[ReportRow]:
    """Merge rows with the published rows for the same tasks and lengths, sorted by task and
    descending nDCG@10.

    Published rows have no intervals. Their PSI by chance, if available, is an upper bound.

    Raises:
        PosirError: No task has published results.
    """
    tasks = list(dict.fromkeys(row.task for row in rows))
    published_rows = []
    for task in tasks:
        lengths = {row.length for row in rows if row.task == task}
        for published_row in data.list_published_rows(task):
            if published_row.length in lengths:
                row = convert_published(published_row)
                published_rows.append(replace(row, model=f"{row.model} (published)"))
    if not published_rows:
        raise PosirError(
            f"There are no published results for {', '.join(tasks)}. `posir published` lists all "
            "published results."
        )
    runs = defaultdict[Run, list[ReportRow]](list)
    for row in (*rows, *published_rows):
        runs[row.model, row.revision, row.task].append(row)
    sorted_runs = sorted(
        runs.values(), key=lambda run: (tasks.index(run[0].task), -get_ndcg(run[0]))
    )
    return [row for run in sorted_runs for row in run]


def convert_published(published_row: data.PublishedRow) -> ReportRow:
    """Convert a published row to a report row.

    In a length bucket, the published nDCG@10 is the unweighted mean of the bins.
    """
    ndcg_key = "ndcg_at_10" if published_row.length == ALL else "ndcg_at_10_as_published"
    curve = data.find_curve(published_row.task, published_row.model, published_row.length)
    mean = published_row.psi_chance_mean_at_most
    p95 = published_row.psi_chance_p95_at_most
    scores: dict[str, ScoreValue] = {
        "queries": published_row.queries,
        ndcg_key: Estimate(published_row.ndcg_at_10),
        "psi_as_published": published_row.psi_as_published,
        "psi_by_chance": None if mean is None or p95 is None else Estimate(mean, (0.0, p95)),
        data.START_TO_END_UNWEIGHTED.key: curve.start_to_end_unweighted if curve else None,
        data.NOTABLE_BIAS.key: data.format_notable(published_row.notable_bias),
    }
    return ReportRow(
        model=published_row.model,
        task=published_row.task,
        length=published_row.length,
        scores=scores,
        published_curve=curve.ndcg_at_10 if curve else (),
    )
