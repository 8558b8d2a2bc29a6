"""Query counts by length and position, unpublished for PosIR: from statistics of the data or results on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from posir_leaderboard.board.comparable import select_comparable
from posir_leaderboard.board.published import widest_interval
from posir_leaderboard.board.records import BoardRecord
from posir_published.rows import published_tasks
from posir_report.summary import ReportRow
from posir_tasks.errors import PosirError
from posir_tasks.estimates import Estimate

#: All lengths together.
ALL = "all"


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
            statistics = StatisticsFile.model_validate_json(file.read_bytes())
        except (OSError, ValidationError) as error:
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


def _count_row(row: ReportRow, counts: QueryCounts) -> ReportRow:
    filled = [count for count in counts.bins.get(row.length, ()) if count]
    key = "ndcg_at_10" if row.length == ALL else "ndcg_at_10_as_published"
    score = row.estimate(key)
    if score is None or not filled:
        return row
    queries = counts.queries[row.length]
    interval = widest_interval(score.value, queries if row.length == ALL else len(filled) * min(filled))
    return row.with_scores(queries=queries).with_scores(**{key: Estimate(score.value, interval)})
