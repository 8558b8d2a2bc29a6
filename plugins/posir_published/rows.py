"""The published scores as rows of a report: one per model, task and length."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from posir_published.curves import CROSS_LINGUAL, MONOLINGUAL, PositionCurve, find_curve
from posir_published.notable import find_notable_bias
from posir_published.null_bound import bound_null_psi
from posir_published.queries import BUCKET_QUERIES, find_query_count
from posir_published.scores import (
    LENGTHS,
    POSIR_SOURCE,
    PosqScore,
    read_myopic_trap_scores,
    read_posir_scores,
    read_posq_scores,
)


@dataclass(frozen=True)
class PublishedRow:
    """Published scores of one model on one task, at all lengths or in one length bucket."""

    model: str
    """Name as printed, without organization."""
    task: str
    """The task, or the benchmark for an average over its tasks."""
    length: str
    """`all`, or `Q1` to `Q4`; PosQ has only `all`."""
    queries: int | None
    """Distinct queries of the data; None where the papers do not give it, as for the length buckets."""
    queries_exact: bool
    """Whether that number is exact; otherwise it is a mean over languages, or includes duplicate questions."""
    ndcg_at_10: float
    """Mean in [0, 1]. For PosQ, where the paper prints only buckets, their mean weighted by queries."""
    psi_as_published: float
    """PSI as published, in [0, 1]; of the published buckets where the paper prints none (`FineWeb-PosQ-Raw`)."""
    psi_null_mean_at_most: float | None
    """Upper bound of the mean PSI under the null, in [0, 1]; None where the queries of each bin are not published."""
    psi_null_p95_at_most: float | None
    """Upper bound of the 95th percentile, in [0, 1]."""
    source: str
    notable_bias: bool | None = None
    """Whether PSI is at least 0.03 on both datasets of PosQ; None for other tasks, or without a result on both."""


@dataclass(frozen=True)
class PublishedBin:
    """The published score of one model in one position bin."""

    model: str
    task: str
    length: str
    """`all`, or `Q1` to `Q4` for PosIR."""
    position: str
    queries: int | None
    """None where the paper does not give it, as for PosIR."""
    queries_exact: bool
    ndcg_at_10: float
    """Mean in [0, 1]."""
    mean_error: float | None
    """Error of the curve's mean, where it was read from a figure; see `PositionCurve`."""
    psi_error: float | None
    """Error of the curve's PSI, likewise."""
    source: str


def published_rows(task: str) -> list[PublishedRow]:
    """Return the published rows of a task: models by descending nDCG@10, each with `all` and its length buckets.

    `PosIR` and `PosIR(cross-lingual)` are the macro averages over their tasks. Empty if nothing is published on the task.
    """
    rows = [row for row in _all_rows() if row.task == task]
    overall = {row.model: row.ndcg_at_10 for row in rows if row.length == "all"}
    return sorted(rows, key=lambda row: (-overall[row.model], row.model, LENGTHS.index(row.length)))


def published_tasks() -> tuple[str, ...]:
    """Return the tasks with published rows, averages first."""
    return tuple(dict.fromkeys(row.task for row in _all_rows()))


def published_bins(task: str) -> list[PublishedBin]:
    """Return the published position bins of a task, models and lengths in the order of `published_rows`.

    PosQ has them at all lengths; PosIR by length, of the curves that could be read precisely from the authors' figures.
    """
    scores = {score.model: score for score in _posq_scores() if score.task == task}
    bins: list[PublishedBin] = []
    for row in published_rows(task):
        if row.model in scores:
            bins += _posq_bins(scores[row.model])
        elif curve := find_curve(task, row.model, row.length):
            bins += _curve_bins(curve)
    return bins


@cache
def _all_rows() -> tuple[PublishedRow, ...]:
    monolingual = list(_posir_rows(cross_lingual=False))
    cross_lingual = list(_posir_rows(cross_lingual=True))
    return (
        *macro_average(monolingual, MONOLINGUAL),
        *macro_average(cross_lingual, CROSS_LINGUAL),
        *monolingual,
        *cross_lingual,
        *_mark_notable(list(map(_posq_row, _posq_scores()))),
    )


def _mark_notable(rows: list[PublishedRow]) -> Iterator[PublishedRow]:
    for row in rows:
        of_model = {other.task: other.psi_as_published for other in rows if other.model == row.model}
        yield replace(row, notable_bias=find_notable_bias(of_model).get(row.task))


def _posq_scores() -> tuple[PosqScore, ...]:
    """Return the scores of both versions of the paper; on SQuAD-PosQ those of the earlier one are the same and left out."""
    known = {score.dataset for score in read_posq_scores()}
    return (*read_posq_scores(), *(score for score in read_myopic_trap_scores() if score.dataset not in known))


def macro_average(rows: Iterable[PublishedRow], name: str) -> list[PublishedRow]:
    """Return the unweighted mean over tasks of nDCG@10 and of PSI, for each model and length, as rows of a task `name`.

    This is how PosIR averages over languages (arXiv 2601.08363); over the ten monolingual tasks it gives the paper's Table 2.
    """
    groups: dict[tuple[str, str], list[PublishedRow]] = {}
    for row in rows:
        groups.setdefault((row.model, row.length), []).append(row)
    return [_mean(group, name) for group in groups.values()]


def _mean(rows: list[PublishedRow], name: str) -> PublishedRow:
    ndcg, psi = np.mean([(row.ndcg_at_10, row.psi_as_published) for row in rows], axis=0).tolist()
    source = f"mean of {len(rows)} tasks, {rows[0].source}"
    return _row(rows[0].model, name, rows[0].length, ndcg, psi, source)


def _posir_rows(*, cross_lingual: bool) -> Iterator[PublishedRow]:
    for score in read_posir_scores():
        if (score.query_language != score.corpus_language) is cross_lingual:
            yield _row(score.model, score.task, score.length, score.ndcg_at_10, score.psi, POSIR_SOURCE)


def _posq_row(score: PosqScore) -> PublishedRow:
    mean = float(np.average(score.ndcg_at_10, weights=BUCKET_QUERIES[score.task]))
    return _row(score.model, score.task, "all", mean, score.psi, score.source)


def _row(model: str, task: str, length: str, ndcg_at_10: float, psi: float, source: str) -> PublishedRow:
    queries = find_query_count(task, length)
    bound = bound_null_psi(ndcg_at_10, BUCKET_QUERIES[task]) if task in BUCKET_QUERIES else None
    return PublishedRow(
        model=model,
        task=task,
        length=length,
        queries=queries.number if queries else None,
        queries_exact=queries is not None and queries.exact,
        ndcg_at_10=ndcg_at_10,
        psi_as_published=psi,
        psi_null_mean_at_most=bound.mean if bound else None,
        psi_null_p95_at_most=bound.p95 if bound else None,
        source=source,
    )


def _posq_bins(score: PosqScore) -> Iterator[PublishedBin]:
    queries = find_query_count(score.task, "all")
    exact = queries is not None and queries.exact
    for position, number, mean in zip(score.buckets, BUCKET_QUERIES[score.task], score.ndcg_at_10, strict=True):
        yield PublishedBin(score.model, score.task, "all", position, number, exact, mean, None, None, score.source)


def _curve_bins(curve: PositionCurve) -> Iterator[PublishedBin]:
    errors = (curve.mean_error, curve.psi_error)
    source = f"mean of {curve.tasks} tasks, {curve.source}" if curve.tasks > 1 else curve.source
    for position, mean in zip(curve.positions, curve.ndcg_at_10, strict=True):
        yield PublishedBin(curve.model, curve.task, curve.length, position, None, False, mean, *errors, source)
