"""The published results as records, for comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

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
    read_models,
    read_posq_systems,
)
from posir_report.published import row_from_published
from posir_tasks.base.errors import PosirError
from posir_tasks.base.untrusted import GateError, read_json
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.means import Z, wilson_interval
from posir_tasks.values.result_schema import round_floats
from posir_tasks.values.schemes import (
    ALL_LENGTHS,
    RelativePositions,
    contrast_thirds,
)
from posir_tasks.values.scores import ALL

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
#: The queries of a task's data by length: their number, and those of each position bin.
QueryCounts = Mapping[str, tuple[int, Sequence[int]]]


def published_records() -> list[BoardRecord]:
    """Return every published result of a task; averages over tasks are computed here as for
    submitted results.
    """
    registered = read_models()
    kinds = {system.model: system.architecture for system in read_posq_systems()}
    records = []
    for task in published_tasks():
        bins: dict[tuple[str, str], list[PublishedBin]] = {}
        for bin_ in published_bins(task):
            bins.setdefault((bin_.model, bin_.length), []).append(bin_)
        if task in (MONOLINGUAL, CROSS_LINGUAL):
            continue
        for name, group in groupby(published_rows(task), key=lambda row: row.model):
            described = registered.get(name.casefold(), {})
            if kind := kinds.get(name):
                described = described | {"model_type": [ARCHITECTURES.get(kind, kind)]}
            # The papers print one name in several cases.
            full_name = str(described.get("name", name))
            model = read_board_model(full_name.split("/")[-1], "", described, published=True)
            rows = list(group)
            by_length = [bins.get((name, row.length), []) for row in rows]
            scored = tuple(map(_build_row, rows, by_length))
            records.append(BoardRecord(model, task, scored, _build_detail(rows, by_length)))
    return records


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
    contrast = contrast_thirds(queries)
    if contrast is None:
        return row
    difference = float(contrast @ scores)
    error = Z * float(np.sqrt(contrast**2 @ (scores * (1 - scores) / queries)))
    interval = (difference - error, difference + error)
    return row.with_scores(start_minus_end=Estimate(difference, interval))


def _build_detail(
    rows: Sequence[PublishedRow], bins: Sequence[Sequence[PublishedBin]]
) -> dict[str, Any]:
    """Return the details of a published result, given its rows and the position bins of each; a
    length without any has no panel.
    """
    axes = RelativePositions().axes
    task = rows[0].task.removesuffix(TINY)
    first = next(filter(None, bins), [])
    sources = dict.fromkeys([rows[0].source, *(some[0].source for some in bins if some)])
    titles = {ALL: ALL_LENGTHS, **dict(zip(axes.lengths, axes.length_titles, strict=True))}
    detail: dict[str, Any] = {
        "lengths": [titles[row.length] for row in rows] if first else [],
        "positions": [bin_.position for bin_ in first],
        "position_title": POSITIONS.get(task, axes.position_title),
        "relative": task not in POSITIONS,
        "panels": list(map(_build_panel, bins)) if first else [],
        "curves": [],
        "subsets": None,
        "data_revision": "",
        "data": "",
        "date": None,
        "notes": [*(f"{source[0].upper()}{source[1:]}." for source in sources), ASSUMPTIONS],
    }
    return dict(round_floats(detail))


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
    counts: dict[str, QueryCounts] = {}
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
        of_task = {length: (sum(bins), bins) for length, bins in total.histogram.items()}
        of_task[ALL] = (total.queries, total.histogram.get(ALL, []))
        counts[statistics.dataset] = of_task
    return counts


def collect_query_counts(results: Iterable[BoardRecord]) -> dict[str, QueryCounts]:
    """Return the counts of each task of which there is a complete result on the published data."""
    counts: dict[str, QueryCounts] = {}
    for record in results:
        if record.comparable and not record.local and record.detail["panels"]:
            counts[record.task] = {
                row.length: (row.queries, panel["queries"])
                for row in record.rows
                if row.queries is not None and (panel := record.find_detail("panels", row.length))
            }
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
    records = []
    for record in published:
        of_task = counts.get(record.task, {})
        rows = []
        for row in record.rows:
            queries, bins = of_task.get(row.length, (0, ()))
            filled = [count for count in bins if count]
            key = "ndcg_at_10" if row.length == ALL else "ndcg_at_10_as_published"
            score = row.estimate(key)
            if score and filled:
                number = queries if row.length == ALL else len(filled) * min(filled)
                interval = wilson_interval(score.value, number)
                row = row.with_scores(queries=queries, **{key: Estimate(score.value, interval)})
            rows.append(row)
        records.append(replace(record, rows=tuple(rows)))
    return records
