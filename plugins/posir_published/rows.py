"""The published figures as rows that can stand beside a user's own: one per model, task and length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from posir_published.noise import null_bound
from posir_published.queries import BUCKET_QUERIES, queries_of
from posir_published.scores import LENGTHS, POSIR_SOURCE, POSQ_SOURCE, PosqFigure, posir_figures, posq_figures

#: Names of the macro averages: those of our benchmarks.
MONOLINGUAL, CROSS_LINGUAL = "PosIR", "PosIR(cross-lingual)"


@dataclass(frozen=True)
class PublishedRow:
    """What a paper says of one model on one task, at all lengths or in one length bucket."""

    model: str
    """As printed, without organisation."""
    task: str
    """Our name of the task; of the benchmark for an average over its tasks."""
    length: str
    """`all`, or `Q1` to `Q4`; PosQ has `all` alone."""
    queries: int | None
    """Distinct queries of the data; None where the papers do not say, as for every length bucket."""
    queries_exact: bool
    """Whether that number is exact; else it is an average over languages, or before repeated questions were left out."""
    ndcg_at_10: float
    """In [0, 1]. For PosQ, of which the paper prints buckets alone, their mean weighted by queries."""
    psi: float
    """As published, in [0, 1]."""
    psi_null_mean_at_most: float | None
    """Bound of the mean PSI under no position effect, in [0, 1]; None where queries per bin are not published."""
    psi_null_p95_at_most: float | None
    """Bound of its 95th percentile, in [0, 1]."""
    source: str


@dataclass(frozen=True)
class PublishedBin:
    """What a paper says of one model in one position bucket."""

    model: str
    task: str
    position: str
    queries: int
    queries_exact: bool
    ndcg_at_10: float
    """In [0, 1]."""
    source: str


def published_rows(task: str) -> list[PublishedRow]:
    """Return the published rows of a task: models by descending nDCG@10, each with `all` and its length buckets.

    Args:
        task: Our name of a task, or `PosIR` or `PosIR(cross-lingual)` for the macro average over its tasks.

    Returns:
        Empty where nothing is published of the task.
    """
    rows = [row for row in _all_rows() if row.task == task]
    overall = {row.model: row.ndcg_at_10 for row in rows if row.length == "all"}
    return sorted(rows, key=lambda row: (-overall[row.model], row.model, LENGTHS.index(row.length)))


def published_tasks() -> tuple[str, ...]:
    """Return the names that `published_rows` knows, averages first."""
    return tuple(dict.fromkeys(row.task for row in _all_rows()))


def published_bins(task: str) -> list[PublishedBin]:
    """Return the published position buckets of a task, models in the order of `published_rows`; empty but for PosQ."""
    figures = {figure.model: figure for figure in posq_figures() if figure.task == task}
    return [bin_ for row in published_rows(task) if row.model in figures for bin_ in _bins(figures[row.model])]


@cache
def _all_rows() -> tuple[PublishedRow, ...]:
    monolingual = list(_posir_rows(cross_lingual=False))
    cross_lingual = list(_posir_rows(cross_lingual=True))
    return (
        *macro_average(monolingual, MONOLINGUAL),
        *macro_average(cross_lingual, CROSS_LINGUAL),
        *monolingual,
        *cross_lingual,
        *map(_posq_row, posq_figures()),
    )


def macro_average(rows: Iterable[PublishedRow], name: str) -> list[PublishedRow]:
    """Return the unweighted mean over tasks of nDCG@10 and of PSI, for each model and length.

    The average across languages of PosIR (arXiv 2601.08363); over the ten monolingual tasks it is the paper's Table 2.

    Args:
        rows: Every model on the same tasks, at the same lengths.
        name: The task that the averages are said to be of.
    """
    groups: dict[tuple[str, str], list[PublishedRow]] = {}
    for row in rows:
        groups.setdefault((row.model, row.length), []).append(row)
    return [_mean(group, name) for group in groups.values()]


def _mean(rows: list[PublishedRow], name: str) -> PublishedRow:
    ndcg, psi = np.mean([(row.ndcg_at_10, row.psi) for row in rows], axis=0).tolist()
    source = f"mean of {len(rows)} tasks, {rows[0].source}"
    return _row(rows[0].model, name, rows[0].length, ndcg, psi, source)


def _posir_rows(*, cross_lingual: bool) -> Iterator[PublishedRow]:
    for figure in posir_figures():
        if (figure.query_language != figure.corpus_language) is cross_lingual:
            yield _row(figure.model, figure.task, figure.length, figure.ndcg_at_10, figure.psi, POSIR_SOURCE)


def _posq_row(figure: PosqFigure) -> PublishedRow:
    mean = float(np.average(figure.ndcg_at_10, weights=BUCKET_QUERIES[figure.task]))
    return _row(figure.model, figure.task, "all", mean, figure.psi, POSQ_SOURCE)


def _row(model: str, task: str, length: str, ndcg_at_10: float, psi: float, source: str) -> PublishedRow:
    queries = queries_of(task, length)
    bound = null_bound(ndcg_at_10, BUCKET_QUERIES[task]) if task in BUCKET_QUERIES else None
    return PublishedRow(
        model=model,
        task=task,
        length=length,
        queries=queries.number if queries else None,
        queries_exact=queries is not None and queries.exact,
        ndcg_at_10=ndcg_at_10,
        psi=psi,
        psi_null_mean_at_most=bound.mean if bound else None,
        psi_null_p95_at_most=bound.p95 if bound else None,
        source=source,
    )


def _bins(figure: PosqFigure) -> Iterator[PublishedBin]:
    queries = queries_of(figure.task, "all")
    for position, number, score in zip(figure.buckets, BUCKET_QUERIES[figure.task], figure.ndcg_at_10, strict=True):
        yield PublishedBin(
            figure.model, figure.task, position, number, queries is not None and queries.exact, score, POSQ_SOURCE
        )
