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
from posir_significance.intervals import Z, wilson_interval
from posir_tasks.base.errors import PosirError
from posir_tasks.base.untrusted import GateError, read_json
from posir_tasks.values.result_schema import rounded
from posir_tasks.values.schemes import (
    ALL_LENGTHS,
    START_TO_END,
    RelativePositions,
    assign_thirds,
    contrast_thirds,
)
from posir_tasks.values.scores import ALL, Estimate

if TYPE_CHECKING:
    from mteb.models import ModelMeta

#: Titles of the position axes of PosQ.
POSITIONS = {
    "SQuAD-PosQ": "First character of the evidence, counted from the start of the passage",
    "FineWeb-PosQ": "Part of the passage that holds the evidence",
}
#: Why a published result has no state.
UNTESTED = (
    "Published results are not tested for bias within the window: the papers publish neither "
    "windows nor texts with "
    "their scores, so no evidence can be moved."
)
ASSUMPTIONS = (
    "Intervals of published results assume independent queries, and the largest variance that "
    "scores in [0, 1] can have. "
    "Queries on the same document are not independent, so the intervals may still be too narrow "
    "for new documents. " + UNTESTED
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
    kinds = {
        system.model: ARCHITECTURES.get(system.architecture, system.architecture)
        for system in read_posq_systems()
    }
    return [
        _build_record(name, list(rows), registered.get(name.casefold()), kinds.get(name))
        for task in published_tasks()
        if task not in (MONOLINGUAL, CROSS_LINGUAL)
        for name, rows in groupby(published_rows(task), key=lambda row: row.model)
    ]


def _build_record(
    name: str, rows: list[PublishedRow], registered: ModelMeta | None, kind: str | None
) -> BoardRecord:
    meta = registered.to_dict() if registered else {}
    described = {**meta, "model_type": [kind]} if kind else meta
    # The papers print one name in several cases.
    model = read_board_model(
        str(meta.get("name", name)).split("/")[-1], "", described, published=True
    )
    of_model = (row for row in published_bins(rows[0].task) if row.model == name)
    bins = {
        length: list(of_length)
        for length, of_length in groupby(of_model, key=lambda row: row.length)
    }
    scored = tuple(_build_row(row, bins.get(row.length, [])) for row in rows)
    return BoardRecord(
        model, rows[0].task, scored, _build_detail(bins, [row.length for row in rows], rows[0])
    )


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
    if not bins or any(bin_.queries is None for bin_ in bins):
        return row
    scores, queries = (
        np.array([bin_.ndcg_at_10 for bin_ in bins]),
        np.array([bin_.queries for bin_ in bins], float),
    )
    contrast = contrast_thirds(assign_thirds(len(bins)), queries, START_TO_END)
    if contrast is None:
        return row
    difference, error = (
        float(contrast @ scores),
        float(np.sqrt(contrast**2 @ (scores * (1 - scores) / queries))),
    )
    interval = (difference - Z * error, difference + Z * error)
    return row.with_scores(start_minus_end=Estimate(difference, interval))


def _build_detail(
    bins: Mapping[str, Sequence[PublishedBin]], lengths: Sequence[str], row: PublishedRow
) -> dict[str, Any]:
    """Return the details of a published result with its position bins by length; a length without
    any has no panel.
    """
    known = next(iter(bins.values()), ())
    notes = dict.fromkeys([row.source, *(of_length[0].source for of_length in bins.values())])
    detail = {
        **_describe_bins(bins, lengths if bins else ()),
        "positions": [bin_.position for bin_ in known],
        "curves": [],
        "subsets": None,
        "data_revision": "",
        "data": "",
        "date": None,
        "notes": [*(f"{note[:1].upper()}{note[1:]}." for note in notes), ASSUMPTIONS],
    }
    if not any(bin_.queries is None for bin_ in known):
        detail |= {
            "relative": False,
            "position_title": POSITIONS.get(row.task.removesuffix("-Tiny"), ""),
        }
    return dict(rounded(detail))


def _describe_bins(
    bins: Mapping[str, Sequence[PublishedBin]], lengths: Sequence[str]
) -> dict[str, Any]:
    """Return titles and bins of each length as the columns of a curve, with intervals where numbers
    of queries are known.
    """
    axes = RelativePositions().axes
    titles = {ALL: ALL_LENGTHS, **dict(zip(axes.lengths, axes.length_titles, strict=True))}
    panels: list[Columns | None] = []
    for of_length in (bins.get(length) for length in lengths):
        rows = [
            (
                bin_.queries,
                bin_.ndcg_at_10,
                *(wilson_interval(bin_.ndcg_at_10, bin_.queries) if bin_.queries else (None, None)),
            )
            for bin_ in of_length or ()
        ]
        panels.append(
            {name: list(column) for name, column in zip(CELL, zip(*rows, strict=True), strict=True)}
            if rows
            else None
        )
    return {
        "lengths": [titles[length] for length in lengths],
        "positions": list(axes.positions),
        "position_title": axes.position_title,
        "relative": True,
        "panels": panels,
    }


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
                "These have some: "
                f"{', '.join(published_tasks())}."
            )
        # A query of PosIR is in one bin of one length.
        total = statistics.rows[-1]
        by_length = {length: sum(bins) for length, bins in total.histogram.items()}
        counts[statistics.dataset] = QueryCounts(by_length | {ALL: total.queries}, total.histogram)
    return counts


def count_queries(results: Iterable[BoardRecord]) -> dict[str, QueryCounts]:
    """Return the counts of each task of which there is a complete result on the published data."""
    counts = {}
    for record in results:
        if record.comparable and not record.local and record.detail["panels"]:
            queries = {row.length: row.queries for row in record.rows if row.queries is not None}
            panels = zip(queries, record.detail["panels"], strict=False)
            counts[record.task] = QueryCounts(
                queries, {length: panel["queries"] for length, panel in panels}
            )
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
    filled = [count for count in counts.bins.get(row.length, ()) if count] if counts else []
    key = "ndcg_at_10" if row.length == ALL else "ndcg_at_10_as_published"
    score = row.estimate(key)
    if counts is None or score is None or not filled:
        return row
    queries = counts.queries[row.length]
    interval = wilson_interval(
        score.value, queries if row.length == ALL else len(filled) * min(filled)
    )
    return row.with_scores(queries=queries).with_scores(**{key: Estimate(score.value, interval)})
