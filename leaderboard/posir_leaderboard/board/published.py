"""The published results as records, for comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from posir_leaderboard.board.records import CELL, BoardRecord, BoardRow, Columns, read_board_model
from posir_published.rows import (
    CROSS_LINGUAL,
    MONOLINGUAL,
    PublishedBin,
    PublishedRow,
    published_bins,
    published_rows,
    published_tasks,
    read_posq_systems,
)
from posir_report.published import row_from_published
from posir_tasks.base.errors import PosirError
from posir_tasks.base.untrusted import GateError, read_json
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.means import Z, wilson_interval
from posir_tasks.values.result_schema import rounded
from posir_tasks.values.schemes import (
    ALL_LENGTHS,
    START_TO_END,
    RelativePositions,
    assign_thirds,
    contrast_thirds,
)
from posir_tasks.values.scores import ALL

if TYPE_CHECKING:
    from mteb.models import ModelMeta

#: Titles of the position axes of PosQ.
POSITIONS = {
    "SQuAD-PosQ": "First character of the evidence, counted from the start of the passage",
    "FineWeb-PosQ": "Part of the passage that holds the evidence",
}
#: Ends the name of a sample of PosQ's tasks.
TINY = "-Tiny"
#: Why a published result has no state.
UNTESTED = (
    "Published results are not tested for bias within the window: the papers publish neither "
    "windows nor texts with their scores, so no evidence can be moved."
)
ASSUMPTIONS = (
    "Intervals of published results assume independent queries, and the largest variance that "
    "scores in [0, 1] can have. Queries on the same document are not independent, so the "
    "intervals may still be too narrow for new documents. " + UNTESTED
)
#: mteb's names of the architectures in the papers.
ARCHITECTURES = {"reranker": "cross-encoder"}


def published_records() -> list[BoardRecord]:
    """Return every published result of a task; averages over tasks are computed here as for
    submitted results.
    """
    from mteb.models.model_implementations import MODEL_REGISTRY

    # The papers print names without organization; no two registered names differ in organization or
    # case alone.
    registered = {name.split("/")[-1].casefold(): meta for name, meta in MODEL_REGISTRY.items()}
    kinds = {}
    for system in read_posq_systems():
        kinds[system.model] = ARCHITECTURES.get(system.architecture, system.architecture)
    records = []
    for task in published_tasks():
        if task not in (MONOLINGUAL, CROSS_LINGUAL):
            for name, rows in groupby(published_rows(task), key=lambda row: row.model):
                meta = registered.get(name.casefold())
                records.append(_build_record(name, list(rows), meta, kinds.get(name)))
    return records


def _build_record(
    name: str, rows: list[PublishedRow], registered: ModelMeta | None, kind: str | None
) -> BoardRecord:
    meta = registered.to_dict() if registered else {}
    if kind:
        meta["model_type"] = [kind]
    # The papers print one name in several cases.
    full_name = str(meta.get("name", name))
    model = read_board_model(full_name.split("/")[-1], "", meta, published=True)
    task = rows[0].task
    bins: dict[str, list[PublishedBin]] = {}
    for bin_ in published_bins(task):
        if bin_.model == name:
            bins.setdefault(bin_.length, []).append(bin_)
    scored = tuple(_build_row(row, bins.get(row.length, [])) for row in rows)
    lengths = [row.length for row in rows]
    detail = dict(rounded(_build_detail(bins, lengths, rows[0])))
    return BoardRecord(model, task, scored, detail)


def _build_row(published: PublishedRow, bins: Sequence[PublishedBin]) -> BoardRow:
    """Return a published row with the widest possible intervals, if numbers of queries are known.

    The variance of nDCG@10 over queries is not published; with a mean m in [0, 1] it is at most m
    (1 - m), that of a Bernoulli variable. So the first is Wilson's interval of a proportion, wider
    than the true one. nDCG@10(Qk) and PSI have none, because the number of queries in their bins is
    not published. Start minus end is that of the position buckets, each with the largest possible
    variance of its mean, m (1 - m) / n, for independent queries.
    """
    row = BoardRow.of_report(row_from_published(published))
    if published.queries:
        interval = wilson_interval(published.ndcg_at_10, published.queries)
        row = row.with_scores(ndcg_at_10=Estimate(published.ndcg_at_10, interval))
    counts = [bin_.queries for bin_ in bins]
    if not bins or None in counts:
        return row
    scores = np.array([bin_.ndcg_at_10 for bin_ in bins])
    queries = np.array(counts, float)
    contrast = contrast_thirds(assign_thirds(len(bins)), queries, START_TO_END)
    if contrast is None:
        return row
    difference = float(contrast @ scores)
    error = Z * float(np.sqrt(contrast**2 @ (scores * (1 - scores) / queries)))
    interval = (difference - error, difference + error)
    return row.with_scores(start_minus_end=Estimate(difference, interval))


def _build_detail(
    bins: Mapping[str, Sequence[PublishedBin]], lengths: Sequence[str], row: PublishedRow
) -> dict[str, Any]:
    """Return the details of a published result with its position bins by length; a length without
    any has no panel.
    """
    first = next(iter(bins.values()), [])
    axes = RelativePositions().axes
    titles = {ALL: ALL_LENGTHS, **dict(zip(axes.lengths, axes.length_titles, strict=True))}
    sources = dict.fromkeys([row.source, *(some[0].source for some in bins.values())])
    detail: dict[str, Any] = {
        "lengths": [titles[length] for length in lengths] if bins else [],
        "positions": [bin_.position for bin_ in first],
        "position_title": axes.position_title,
        "relative": True,
        "panels": [_build_panel(bins.get(length, [])) for length in lengths] if bins else [],
        "curves": [],
        "subsets": None,
        "data_revision": "",
        "data": "",
        "date": None,
        "notes": [*(f"{source[0].upper()}{source[1:]}." for source in sources), ASSUMPTIONS],
    }
    if title := POSITIONS.get(row.task.removesuffix(TINY)):
        detail |= {"relative": False, "position_title": title}
    return detail


def _build_panel(bins: Sequence[PublishedBin]) -> Columns | None:
    """Return position bins as the columns of a curve, with intervals where numbers of queries are
    known.
    """
    rows: list[tuple[float | None, ...]] = []
    for bin_ in bins:
        interval: tuple[float | None, float | None] = (None, None)
        if bin_.queries:
            interval = wilson_interval(bin_.ndcg_at_10, bin_.queries)
        rows.append((bin_.queries, bin_.ndcg_at_10, *interval))
    columns = zip(CELL, zip(*rows, strict=True), strict=False)
    return {name: list(column) for name, column in columns} or None


@dataclass(frozen=True)
class QueryCounts:
    """The queries of a task's data by length, `all` lengths first."""

    queries: Mapping[str, int]
    bins: Mapping[str, Sequence[int]]
    """Queries of each position bin."""


class StatisticsRow(BaseModel):
    """The fields that are read of a row of `posir stats TASK --format json`."""

    queries: NonNegativeInt
    histogram: dict[str, list[NonNegativeInt]]


class StatisticsFile(BaseModel):
    """The fields that are read of its output; the last row is the total."""

    dataset: str
    rows: list[StatisticsRow] = Field(min_length=1)


def read_statistics(files: Iterable[Path]) -> dict[str, QueryCounts]:
    """Return the counts of each task whose statistics are in a file, the output of `posir stats
    TASK --format json`.
    """
    counts = {}
    for file in files:
        try:
            statistics = StatisticsFile.model_validate(read_json(file))
        except (GateError, ValidationError) as error:
            hint = "Give the output of `posir stats TASK --format json`."
            raise PosirError(
                f"{file}: no statistics of a task ({type(error).__name__}). {hint}"
            ) from error
        if statistics.dataset not in published_tasks():
            raise PosirError(
                f"{file}: statistics of {statistics.dataset}, a name without published results. "
                f"These have some: {', '.join(published_tasks())}."
            )
        # A query of PosIR is in one bin of one length.
        total = statistics.rows[-1]
        by_length = {length: sum(bins) for length, bins in total.histogram.items()}
        counts[statistics.dataset] = QueryCounts(by_length | {ALL: total.queries}, total.histogram)
    return counts


def collect_query_counts(results: Iterable[BoardRecord]) -> dict[str, QueryCounts]:
    """Return the counts of each task of which there is a complete result on the published data."""
    counts = {}
    for record in results:
        if record.comparable and not record.local and record.detail["panels"]:
            queries = {row.length: row.queries for row in record.rows if row.queries is not None}
            bins = {}
            for length in queries:
                if panel := record.find_detail("panels", length):
                    bins[length] = panel["queries"]
            counts[record.task] = QueryCounts(queries, bins)
    return counts


def add_query_counts(
    published: Iterable[BoardRecord], counts: Mapping[str, QueryCounts]
) -> list[BoardRecord]:
    """Return published records with the query counts of their task's data, and with the intervals
    that follow from them.

    The papers do not give the counts of length buckets and position bins. With at least n queries
    in each of P bins, the unweighted mean m of the bins has a variance of at most m (1 - m) / (P
    n).
    """
    return [
        replace(record, rows=tuple(_count_row(row, counts.get(record.task)) for row in record.rows))
        for record in published
    ]


def _count_row(row: BoardRow, counts: QueryCounts | None) -> BoardRow:
    bins = counts.bins.get(row.length, ()) if counts else ()
    filled = [count for count in bins if count]
    is_mean = row.length == ALL
    key = "ndcg_at_10" if is_mean else "ndcg_at_10_as_published"
    score = row.estimate(key)
    if counts is None or score is None or not filled:
        return row
    queries = counts.queries[row.length]
    interval = wilson_interval(score.value, queries if is_mean else len(filled) * min(filled))
    return row.with_scores(queries=queries).with_scores(**{key: Estimate(score.value, interval)})
