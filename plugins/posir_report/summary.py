"""From results to rows: a task's subsets are pooled by adding their profiles, and the plugins score the sum."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from posir_tasks.cells import pool
from posir_tasks.errors import PosirError
from posir_tasks.plugin_api.manager import plugin_scores
from posir_tasks.profile import PositionProfile
from posir_tasks.results import SubsetResult
from posir_tasks.window_coverage import pool_coverages

#: Folder below a revision in which mteb keeps runs of a model with other settings, each in a folder of its own.
EXPERIMENTS = "experiments"


@dataclass(frozen=True)
class TaskSummary:
    """One model on one task, all its subsets pooled."""

    model: str
    """Full name, and the settings of the run in brackets where they are not the model's own."""
    revision: str
    task: str
    subsets: tuple[str, ...]
    missing: tuple[str, ...]
    """Subsets of the whole task that no result has."""
    data_revision: str
    """Of the dataset; several where the subsets were run on several."""
    profile: PositionProfile
    scores: Mapping[str, Any]
    """What the plugins say of the pooled profile."""


@dataclass(frozen=True)
class Row:
    """One line of a report: a model on a task, at all lengths or in one length bucket. None where undefined or unknown."""

    model: str
    task: str
    length: str
    """`all`, or the length bucket."""
    queries: int | None
    ndcg_at_10: float | None
    ndcg_at_10_low: float | None
    ndcg_at_10_high: float | None
    psi: float | None
    psi_low: float | None
    psi_high: float | None
    psi_null_mean: float | None
    psi_null_p95: float | None
    p_value: float | None
    direction: str | None
    subsets: int
    missing_subsets: int


def summarise(results: Iterable[SubsetResult]) -> list[TaskSummary]:
    """Pool the subsets of each model and task, ordered by model, revision and task.

    Raises:
        PosirError: A subset would count twice.
    """
    ordered = sorted(results, key=_run_of)
    return [_summary(model, revision, task, list(group)) for (model, revision, task), group in groupby(ordered, key=_run_of)]


def _run_of(result: SubsetResult) -> tuple[str, str, str]:
    """Return model, revision and task; a run with other settings is another model."""
    folder = result.file.parent
    settings = f" ({folder.name})" if folder.parent.name == EXPERIMENTS else ""
    return result.model + settings, result.revision, result.task


def _summary(model: str, revision: str, task: str, results: list[SubsetResult]) -> TaskSummary:
    subsets = tuple(result.subset for result in results)
    twice = [subset for subset, times in Counter(subsets).items() if times > 1]
    if twice:
        files = sorted({str(result.file) for result in results if result.subset in twice})
        raise PosirError(
            f"{model} on {task}: the subset '{twice[0]}' has several results, which would count twice: {', '.join(files)}. "
            "Report one of the folders at a time, or remove one of the results."
        )
    missing = {name for result in results for name in result.run.get("missing_subsets", ())} - set(subsets)
    profile = pool(result.profile for result in results)
    return TaskSummary(
        model,
        revision,
        task,
        subsets,
        tuple(sorted(missing)),
        ", ".join(sorted({str(result.run.get("data_revision", "unknown")) for result in results})),
        profile,
        plugin_scores(profile, pool_coverages(result.coverage for result in results)),
    )


def build_rows(summary: TaskSummary) -> list[Row]:
    """Return the row of all lengths, then one per length bucket."""
    lengths = summary.profile.lengths if len(summary.profile.lengths) > 1 else ()
    return [_row(summary, "all", None), *(_row(summary, name, index) for index, name in enumerate(lengths))]


def _row(summary: TaskSummary, length: str, index: int | None) -> Row:
    scores, key = summary.scores, length.lower()
    trust = scores.get("psi_significance", {}).get(key, {})
    direction = scores.get("position_direction", {}).get(key, {})
    whole = index is None
    profile = summary.profile if index is None else summary.profile.of_length(index)
    return Row(
        model=summary.model,
        task=summary.task,
        length=length,
        queries=profile.queries,
        ndcg_at_10=profile.score() if whole and profile.queries else scores.get(f"ndcg_at_10_{key}"),
        ndcg_at_10_low=_end(trust.get("ndcg_at_10_interval"), 0),
        ndcg_at_10_high=_end(trust.get("ndcg_at_10_interval"), 1),
        psi=scores.get("psi" if whole else f"psi_{key}"),
        psi_low=_end(trust.get("psi_interval"), 0),
        psi_high=_end(trust.get("psi_interval"), 1),
        psi_null_mean=trust.get("psi_null_mean"),
        psi_null_p95=trust.get("psi_null_p95"),
        p_value=trust.get("p_value"),
        direction=direction.get("verdict"),
        subsets=len(summary.subsets),
        missing_subsets=len(summary.missing),
    )


def _end(interval: list[float] | None, which: int) -> float | None:
    return None if interval is None else interval[which]


@dataclass(frozen=True)
class BinRow:
    """One line of the table of position bins."""

    model: str
    task: str
    position: str
    queries: int
    ndcg_at_10: float | None
    ndcg_at_10_low: float | None
    ndcg_at_10_high: float | None


def build_bin_rows(summary: TaskSummary) -> list[BinRow]:
    """Return one row per position bin, over all lengths."""
    profile = summary.profile
    intervals = summary.scores.get("position_intervals") or [None] * len(profile.positions)
    bins = zip(profile.positions, profile.counts.sum(axis=(0, 2)), profile.by_position(), intervals, strict=True)
    return [
        BinRow(
            summary.model,
            summary.task,
            position,
            int(queries),
            None if math.isnan(score) else float(score),
            _end(interval, 0),
            _end(interval, 1),
        )
        for position, queries, score, interval in bins
    ]
