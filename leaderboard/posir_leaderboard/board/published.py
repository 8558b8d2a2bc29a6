"""The published results as records, for comparison."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from typing import Any

from posir_leaderboard.board.models import read_model
from posir_leaderboard.board.records import Record
from posir_published import PublishedRow, published_rows, published_tasks
from posir_published.rows import CROSS_LINGUAL, MONOLINGUAL, published_bins
from posir_published.scores import read_posq_scores
from posir_report.published import row_from_published
from posir_report.summary import Row
from posir_significance.intervals import wilson_interval
from posir_tasks.results import rounded
from posir_tasks.schemes import ALL_LENGTHS

#: Titles of the position axes of PosQ.
POSITIONS = {
    "SQuAD-PosQ": "First character of the evidence, counted from the start of the passage",
    "FineWeb-PosQ": "Part of the passage that holds the evidence",
}
#: mteb's names of the architectures in the papers.
ARCHITECTURES = {"reranker": "cross-encoder"}


def published_records() -> list[Record]:
    """Return every published result of a task; averages over tasks are computed here as for submitted results."""
    registered, kinds = registered_metadata(), published_kinds()
    return [
        _record(name, list(rows), registered.get(name.casefold(), {}), kinds.get(name))
        for task in published_tasks()
        if task not in (MONOLINGUAL, CROSS_LINGUAL)
        for name, rows in groupby(published_rows(task), key=lambda row: row.model)
    ]


def registered_metadata() -> dict[str, Mapping[str, Any]]:
    """Return the metadata of mteb's registered models by their name without organisation, in lower case.

    The papers print such names; no two registered names differ in organisation or case alone.
    """
    from mteb.models.model_implementations import MODEL_REGISTRY

    return {name.split("/")[-1].casefold(): meta.to_dict() for name, meta in MODEL_REGISTRY.items()}


def published_kinds() -> dict[str, str]:
    """Return the kind of each model in the PosQ paper, by mteb's names."""
    return {score.model: ARCHITECTURES.get(score.architecture, score.architecture) for score in read_posq_scores()}


def _record(name: str, rows: list[PublishedRow], meta: Mapping[str, Any], kind: str | None) -> Record:
    described = {**meta, "model_type": [kind]} if kind else meta
    model = read_model(name, "", described, published=True)
    return Record(
        model, rows[0].task, tuple(map(add_widest_interval, rows)), published_detail(name, rows[0].task, rows[0].source)
    )


def add_widest_interval(published: PublishedRow) -> Row:
    """Return a published row with the widest possible interval of its nDCG@10, if the number of queries is known.

    The variance of nDCG@10 over queries is not published; with a mean m in [0, 1] it is at most m (1 - m), that of a Bernoulli
    variable. So this is Wilson's interval of a proportion, wider than the true one. nDCG@10(Qk) and PSI have none, because the
    number of queries in their bins is not published.
    """
    row = row_from_published(published)
    if not published.queries:
        return row
    low, high = widest_interval(published.ndcg_at_10, published.queries)
    return replace(row, ndcg_at_10_low=low, ndcg_at_10_high=high)


def widest_interval(mean: float, queries: int) -> tuple[float, float]:
    """Return the widest possible 95 % interval of a mean in [0, 1] over a number of independent queries."""
    return wilson_interval(mean, queries)


def published_detail(model: str, task: str, source: str) -> dict[str, Any]:
    """Return the details of a published result: the position buckets for PosQ, none for PosIR."""
    bins = [one for one in published_bins(task) if one.model == model]
    bounds = [widest_interval(one.ndcg_at_10, one.queries) for one in bins]
    unknown = [None] * len(bins)
    cells = {
        "queries": [one.queries for one in bins],
        "ndcg_at_10": [one.ndcg_at_10 for one in bins],
        "low": [low for low, _ in bounds],
        "high": [high for _, high in bounds],
        "null_low": unknown,
        "null_high": unknown,
    }
    return dict(
        rounded(
            {
                "lengths": [ALL_LENGTHS] if bins else [],
                "positions": [one.position for one in bins],
                "position_title": POSITIONS.get(task.removesuffix("-Tiny"), ""),
                "relative": False,
                "panels": [cells] if bins else [],
                "subsets": None,
                "data_revision": "",
                "notes": [source[:1].upper() + source[1:] + "."],
            }
        )
    )
