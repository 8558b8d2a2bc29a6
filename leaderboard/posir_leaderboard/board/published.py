"""The published results as records, for comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from posir_leaderboard.board.comparable import select_comparable
from posir_leaderboard.board.curves import NO_CURVES, Curves
from posir_leaderboard.board.models import read_board_model
from posir_leaderboard.board.records import BoardRecord, BoardRow, Columns
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
from posir_tasks.errors import PosirError
from posir_tasks.gate import GateError, read_json
from posir_tasks.results import rounded
from posir_tasks.schemes import ALL_LENGTHS, START_TO_END, RelativePositions, assign_thirds, contrast_thirds
from posir_tasks.scores import ALL, Estimate

#: Titles of the position axes of PosQ.
POSITIONS = {
    "SQuAD-PosQ": "First character of the evidence, counted from the start of the passage",
    "FineWeb-PosQ": "Part of the passage that holds the evidence",
}
#: Note on every published result.
ASSUMPTIONS = (
    "Intervals of published results assume independent queries, and the largest variance that scores in [0, 1] can have. "
    "Queries on the same document are not independent, so the intervals may still be too narrow for new documents. That is why "
    "no state of the bias follows from them; what these models read of a document is not published, either."
)
#: mteb's names of the architectures in the papers.
ARCHITECTURES = {"reranker": "cross-encoder"}


def published_records() -> list[BoardRecord]:
    """Return every published result of a task; averages over tasks are computed here as for submitted results."""
    registered, kinds = registered_metadata(), published_kinds()
    return [
        _record(name, list(rows), registered.get(name.casefold(), {}), kinds.get(name))
        for task in published_tasks()
        if task not in (MONOLINGUAL, CROSS_LINGUAL)
        for name, rows in groupby(published_rows(task), key=lambda row: row.model)
    ]


def registered_metadata() -> dict[str, Mapping[str, Any]]:
    """Return the metadata of mteb's registered models by their name without organization, in lower case.

    The papers print such names; no two registered names differ in organization or case alone.
    """
    from mteb.models.model_implementations import MODEL_REGISTRY

    return {name.split("/")[-1].casefold(): meta.to_dict() for name, meta in MODEL_REGISTRY.items()}


def published_kinds() -> dict[str, str]:
    """Return the kind of each model in the PosQ paper, by mteb's names."""
    return {system.model: ARCHITECTURES.get(system.architecture, system.architecture) for system in read_posq_systems()}


def _record(name: str, rows: list[PublishedRow], meta: Mapping[str, Any], kind: str | None) -> BoardRecord:
    described = {**meta, "model_type": [kind]} if kind else meta
    # The papers print one name in several cases.
    model = read_board_model(str(meta.get("name", name)).split("/")[-1], "", described, published=True)
    bins = bins_by_length(rows[0].task, name)
    scored = tuple(add_position_effect(add_widest_interval(row), bins.get(row.length, [])) for row in rows)
    return BoardRecord(model, rows[0].task, scored, published_detail(bins, [row.length for row in rows], rows[0]))


def bins_by_length(task: str, model: str) -> dict[str, list[PublishedBin]]:
    """Return the published position bins of a model on a task or benchmark by length; those that are not known are missing."""
    bins = (row for row in published_bins(task) if row.model == model)
    return {length: list(of_length) for length, of_length in groupby(bins, key=lambda row: row.length)}


def add_widest_interval(published: PublishedRow) -> BoardRow:
    """Return a published row with the widest possible interval of its nDCG@10, if the number of queries is known.

    The variance of nDCG@10 over queries is not published; with a mean m in [0, 1] it is at most m (1 - m), that of a Bernoulli
    variable. So this is Wilson's interval of a proportion, wider than the true one. nDCG@10(Qk) and PSI have none, because the
    number of queries in their bins is not published.
    """
    row = BoardRow.of_report(row_from_published(published))
    if not published.queries:
        return row
    return row.with_scores(ndcg_at_10=Estimate(published.ndcg_at_10, widest_interval(published.ndcg_at_10, published.queries)))


def widest_interval(mean: float, queries: int) -> tuple[float, float]:
    """Return the widest possible 95 % interval of a mean in [0, 1] over a number of independent queries."""
    return wilson_interval(mean, queries)


def add_position_effect(row: BoardRow, bins: Sequence[PublishedBin]) -> BoardRow:
    """Return a published row with start to end and its interval, from its position buckets.

    As for the interval of nDCG@10, each bucket has the largest possible variance of its mean, m (1 - m) / n, for independent
    queries.
    """
    if not bins or any(bin_.queries is None for bin_ in bins):
        return row
    scores, queries = np.array([bin_.ndcg_at_10 for bin_ in bins]), np.array([bin_.queries for bin_ in bins], float)
    contrast = contrast_thirds(assign_thirds(len(bins)), queries, START_TO_END)
    if contrast is None:
        return row
    difference, error = float(contrast @ scores), float(np.sqrt(contrast**2 @ (scores * (1 - scores) / queries)))
    interval = (difference - Z * error, difference + Z * error)
    return row.with_scores(start_to_end=Estimate(difference, interval), held_fixed="nothing")


def published_detail(bins: Mapping[str, Sequence[PublishedBin]], lengths: Sequence[str], row: PublishedRow) -> dict[str, Any]:
    """Return the details of a published result with its position bins by length; a length without any has no panel."""
    axes = RelativePositions().axes
    titles = {ALL: ALL_LENGTHS, **dict(zip(axes.lengths, axes.length_titles, strict=True))}
    known = next(iter(bins.values()), ())
    relative = any(bin_.queries is None for bin_ in known)
    notes = [row.source, *dict.fromkeys(of_length[0].source for of_length in bins.values())]
    return dict(
        rounded(
            {
                "lengths": [titles[length] for length in lengths] if bins else [],
                "positions": [bin_.position for bin_ in known],
                "position_title": axes.position_title if relative else POSITIONS.get(row.task.removesuffix("-Tiny"), ""),
                "relative": relative,
                "panels": [bin_columns(bins[length]) if length in bins else None for length in lengths] if bins else [],
                "curves": [],
                "subsets": None,
                "data_revision": "",
                "data": "",
                "date": None,
                "notes": [*(f"{note[:1].upper()}{note[1:]}." for note in dict.fromkeys(notes)), ASSUMPTIONS],
            }
        )
    )


def bin_columns(bins: Sequence[PublishedBin]) -> Columns:
    """Return published bins as the columns of a curve; they have intervals where their numbers of queries are known."""
    bounds = [widest_interval(bin_.ndcg_at_10, bin_.queries) if bin_.queries else (None, None) for bin_ in bins]
    unknown = [None] * len(bins)
    return {
        "queries": [bin_.queries for bin_ in bins],
        "ndcg_at_10": [bin_.ndcg_at_10 for bin_ in bins],
        "ndcg_at_10_low": [low for low, _ in bounds],
        "ndcg_at_10_high": [high for _, high in bounds],
        "null_low": unknown,
        "null_high": unknown,
    }


def average_published(name: str, model: str, lengths: Sequence[str]) -> Curves:
    """Return the published curves of a model on a benchmark: means over the tasks whose curves are known."""
    bins = bins_by_length(name, model)
    if not bins:
        return NO_CURVES
    axes = RelativePositions().axes
    titles = {ALL: ALL_LENGTHS, **dict(zip(axes.lengths, axes.length_titles, strict=True))}
    detail = {
        "lengths": [titles[length] for length in lengths],
        "positions": list(axes.positions),
        "position_title": axes.position_title,
        "relative": True,
    }
    panels = {length: bin_columns(of_length) for length, of_length in bins.items() if length in lengths}
    return Curves(dict(rounded(panels)), {}, detail)


@dataclass(frozen=True)
class QueryCounts:
    """The queries of a task's data by length, `all` lengths first."""

    queries: Mapping[str, int]
    bins: Mapping[str, Sequence[int]]
    """Queries of each position bin."""

    @classmethod
    def of_result(cls, record: BoardRecord) -> QueryCounts:
        """Return the counts of the data that a result is on."""
        queries = {row.length: row.queries for row in record.rows if row.queries is not None}
        panels = zip(queries, record.detail["panels"], strict=False)
        return cls(queries, {length: panel["queries"] for length, panel in panels})


class StatisticsRow(BaseModel):
    """The fields that are read of a row of `posir stats TASK --format json`."""

    queries: NonNegativeInt
    histogram: dict[str, list[NonNegativeInt]]


class StatisticsFile(BaseModel):
    """The fields that are read of its output; the last row is the total."""

    dataset: str
    rows: list[StatisticsRow] = Field(min_length=1)

    def counts(self) -> QueryCounts:
        """Return the counts of the total; a query of PosIR is in one bin of one length."""
        total = self.rows[-1]
        by_length = {length: sum(bins) for length, bins in total.histogram.items()}
        return QueryCounts(by_length | {ALL: total.queries}, total.histogram)


def read_statistics(files: Iterable[Path]) -> dict[str, QueryCounts]:
    """Return the counts of each task whose statistics are in a file, the output of `posir stats TASK --format json`.

    Raises:
        PosirError: A file is something else, or of a task without published results.
    """
    counts = {}
    for file in files:
        try:
            statistics = StatisticsFile.model_validate(read_json(file))
        except (GateError, ValidationError) as error:
            hint = "Give the output of `posir stats TASK --format json`."
            raise PosirError(f"{file}: no statistics of a task ({type(error).__name__}). {hint}") from error
        if statistics.dataset not in published_tasks():
            raise PosirError(
                f"{file}: statistics of {statistics.dataset}, a name without published results. These have some: "
                f"{', '.join(published_tasks())}."
            )
        counts[statistics.dataset] = statistics.counts()
    return counts


def count_queries(results: Iterable[BoardRecord]) -> dict[str, QueryCounts]:
    """Return the counts of each task of which there is a complete result on the published data."""
    complete = (record for record in select_comparable(results) if not record.local and record.detail["panels"])
    return {record.task: QueryCounts.of_result(record) for record in complete}


def add_query_counts(published: Iterable[BoardRecord], counts: Mapping[str, QueryCounts]) -> list[BoardRecord]:
    """Return published records with the query counts of their task's data, and with the intervals that follow from them.

    The papers do not give the counts of length buckets and position bins. With at least n queries in each of P bins, the
    unweighted mean m of the bins has a variance of at most m (1 - m) / (P n).
    """
    return [_with_counts(record, counts[record.task]) if record.task in counts else record for record in published]


def _with_counts(record: BoardRecord, counts: QueryCounts) -> BoardRecord:
    return replace(record, rows=tuple(_count_row(row, counts) for row in record.rows))


def _count_row(row: BoardRow, counts: QueryCounts) -> BoardRow:
    filled = [count for count in counts.bins.get(row.length, ()) if count]
    key = "ndcg_at_10" if row.length == ALL else "ndcg_at_10_as_published"
    score = row.estimate(key)
    if score is None or not filled:
        return row
    queries = counts.queries[row.length]
    interval = widest_interval(score.value, queries if row.length == ALL else len(filled) * min(filled))
    return row.with_scores(queries=queries).with_scores(**{key: Estimate(score.value, interval)})
