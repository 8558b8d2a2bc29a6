"""Convert published results to board records."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
from pydantic import BaseModel, Field, NonNegativeInt, ValidationError

from posir_leaderboard.board.records import (
    BIN_COLUMNS,
    BoardRecord,
    BoardRow,
    Columns,
    read_board_model,
)
from posir_psi.scores import replace_nan
from posir_published.rows import (
    CROSS_LINGUAL,
    MONOLINGUAL,
    PublishedBin,
    PublishedRow,
    list_published_bins,
    list_published_rows,
    list_published_tasks,
    read_models,
    read_posq_systems,
)
from posir_report.published import convert_published
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.records import Record
from posir_tasks.base.untrusted import InputError, read_json
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.means import Z, compute_wilson_bounds, compute_wilson_interval
from posir_tasks.values.result_schema import round_floats
from posir_tasks.values.schemes import (
    ALL_LENGTHS,
    RelativePositions,
    compute_thirds_contrast,
)
from posir_tasks.values.scores import ALL

#: Titles of PosQ's position axes.
POSITION_TITLES = {
    "SQuAD-PosQ": "First character of the evidence, counted from the start of the passage",
    "FineWeb-PosQ": "Part of the passage that contains the evidence",
}
#: Suffix of sampled PosQ tasks.
TINY_SUFFIX = "-Tiny"
#: Explanation why published results have no verdict.
UNTESTED_NOTE = (
    "Published results are not tested for bias within the window: the papers publish neither "
    "windows nor texts with their scores, so no evidence can be moved."
)
ASSUMPTIONS = (
    "Intervals of published results assume independent queries, and the largest variance that "
    "scores in [0, 1] can have. Queries on the same document are not independent, so the "
    "intervals may still be too narrow for new documents. " + UNTESTED_NOTE
)
#: mteb's names for architectures that the papers name differently.
ARCHITECTURES = {"reranker": "cross-encoder"}
#: By length: the number of queries, and the number in each position bin.
QueryCounts = Mapping[str, tuple[int, Sequence[int]]]


def list_published_records() -> list[BoardRecord]:
    """List every published result, except for the papers' averages over tasks."""
    descriptions = read_models()
    kinds = {system.model: system.architecture for system in read_posq_systems()}
    records = []
    for task in list_published_tasks():
        if task in (MONOLINGUAL, CROSS_LINGUAL):
            continue
        bins = defaultdict[tuple[str, str], list[PublishedBin]](list)
        for bin_ in list_published_bins(task):
            bins[bin_.model, bin_.length].append(bin_)
        for name, group in groupby(list_published_rows(task), key=lambda row: row.model):
            description = descriptions.get(name.casefold(), {})
            if kind := kinds.get(name):
                description = description | {"model_type": [ARCHITECTURES.get(kind, kind)]}
            # The papers vary the case of names.
            full_name = str(description.get("name", name))
            model = read_board_model(full_name.split("/")[-1], "", description, published=True)
            rows = list(group)
            by_length = [bins[name, row.length] for row in rows]
            board_rows = tuple(map(_build_row, rows, by_length))
            records.append(BoardRecord(model, task, board_rows, _build_detail(rows, by_length)))
    return records


def _build_row(published_row: PublishedRow, bins: Sequence[PublishedBin]) -> BoardRow:
    """Build a row; if query counts are published, with the widest possible intervals.

    The papers do not publish the variance of nDCG@10. With a mean m in [0, 1] it is at most
    m (1 - m), which makes Wilson's interval of a proportion an upper bound. With n independent
    queries, the mean of a position bucket has a variance of at most m (1 - m) / n, from which the
    interval of start minus end follows. nDCG@10(Qk) and PSI have no interval, since the queries of
    their bins are not published.
    """
    row = BoardRow.from_report(convert_published(published_row))
    if published_row.queries:
        interval = compute_wilson_interval(published_row.ndcg_at_10, published_row.queries)
        row = row.with_scores(ndcg_at_10=Estimate(published_row.ndcg_at_10, interval))
    counts = [bin_.queries for bin_ in bins]
    if not bins or None in counts:
        return row
    scores = np.array([bin_.ndcg_at_10 for bin_ in bins])
    queries = np.array(counts, float)
    contrast = compute_thirds_contrast(queries)
    if contrast is None:
        return row
    difference = float(contrast @ scores)
    error = Z * float(np.sqrt(contrast**2 @ (scores * (1 - scores) / queries)))
    interval = (difference - error, difference + error)
    return row.with_scores(start_minus_end=Estimate(difference, interval))


def _build_detail(rows: Sequence[PublishedRow], bins: Sequence[Sequence[PublishedBin]]) -> Record:
    axes = RelativePositions().axes
    task = rows[0].task.removesuffix(TINY_SUFFIX)
    first = next(filter(None, bins), [])
    sources = dict.fromkeys([rows[0].source, *(row[0].source for row in bins if row)])
    titles = {ALL: ALL_LENGTHS, **dict(zip(axes.lengths, axes.length_titles, strict=True))}
    detail: Record = {
        "lengths": [titles[row.length] for row in rows] if first else [],
        "positions": [bin_.position for bin_ in first],
        "position_title": POSITION_TITLES.get(task, axes.position_title),
        "relative": task not in POSITION_TITLES,
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
    if not bins:
        return None
    queries = [bin_.queries for bin_ in bins]
    scores = [bin_.ndcg_at_10 for bin_ in bins]
    sizes = np.array([number or math.nan for number in queries])
    bounds = compute_wilson_bounds(np.array(scores), sizes, Z)
    lows, highs = ([replace_nan(bound) for bound in column] for column in bounds)
    return dict(zip(BIN_COLUMNS, (queries, scores, lows, highs), strict=True))


class StatisticsRow(BaseModel):
    """A row of `posir stats TASK --format json`."""

    queries: NonNegativeInt
    histogram: dict[str, list[NonNegativeInt]]


class StatisticsFile(BaseModel):
    """The output of `posir stats TASK --format json`. The last row is the total."""

    dataset: str
    rows: list[StatisticsRow] = Field(min_length=1)


def read_statistics(files: Iterable[Path]) -> dict[str, QueryCounts]:
    """Read the query counts of tasks from outputs of `posir stats TASK --format json`."""
    counts: dict[str, QueryCounts] = {}
    for file in files:
        try:
            statistics = StatisticsFile.model_validate(read_json(file))
        except (InputError, ValidationError) as error:
            problem = error.problem if isinstance(error, InputError) else summarize_error(error)
            raise PosirError(
                f"Cannot read the statistics of a task from {file}: {problem}. Give the output of "
                "`posir stats TASK --format json`."
            ) from error
        if statistics.dataset not in list_published_tasks():
            raise PosirError(
                f"{file} contains the statistics of {statistics.dataset}, which has no published "
                f"results. Tasks with published results: {', '.join(list_published_tasks())}."
            )
        total = statistics.rows[-1]
        # Each query of PosIR is in a single bin, so bins add up.
        by_length = {length: (sum(bins), bins) for length, bins in total.histogram.items()}
        by_length[ALL] = (total.queries, total.histogram.get(ALL, []))
        counts[statistics.dataset] = by_length
    return counts


def collect_query_counts(results: Iterable[BoardRecord]) -> dict[str, QueryCounts]:
    """Collect the query counts of tasks from complete results on the published data."""
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
    records: Iterable[BoardRecord], counts: Mapping[str, QueryCounts]
) -> list[BoardRecord]:
    """Add query counts, which the papers omit, and the resulting intervals to published records.

    With at least n queries in each of P bins, the unweighted mean m of the bins has a variance of
    at most m (1 - m) / (P n).
    """
    updated_records = []
    for record in records:
        by_length = counts.get(record.task, {})
        rows = []
        for row in record.rows:
            queries, bins = by_length.get(row.length, (0, ()))
            nonempty_bins = [count for count in bins if count]
            if row.score and nonempty_bins:
                key = "ndcg_at_10" if row.length == ALL else "ndcg_at_10_as_published"
                mean = row.score.value
                sample_size = (
                    queries if row.length == ALL else len(nonempty_bins) * min(nonempty_bins)
                )
                interval = compute_wilson_interval(mean, sample_size)
                row = row.with_scores(queries=queries, **{key: Estimate(mean, interval)})
            rows.append(row)
        updated_records.append(replace(record, rows=tuple(rows)))
    return updated_records
