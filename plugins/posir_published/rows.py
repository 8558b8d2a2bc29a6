"""The published scores as rows of a report, the curves of nDCG@10 over position, and what follows from both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from posir_psi.scores import psi
from posir_published.scores import (
    BUCKET_QUERIES,
    LENGTHS,
    POSIR_FIGURES_SOURCE,
    POSIR_SOURCE,
    PosirBins,
    PosqScore,
    find_query_count,
    read_mmteb_scores,
    read_myopic_trap_scores,
    read_posir_bins,
    read_posir_scores,
    read_posq_scores,
)
from posir_tasks.schemes import START_TO_END, RelativePositions, assign_thirds, contrast_thirds
from posir_tasks.scores import Better, ScoreInfo, Unit

#: Names of the macro averages, which are those of the benchmarks.
MONOLINGUAL, CROSS_LINGUAL = "PosIR", "PosIR(cross-lingual)"

START_TO_END_UNWEIGHTED = ScoreInfo(
    "start_to_end_unweighted",
    "Start to end (unweighted)",
    "nDCG@10 of evidence in the first third of documents minus that in the last: unweighted means of position bins, as the "
    "papers publish no numbers of queries for them. Positive if the beginning is found better.",
    unit=Unit.POINTS,
    better=Better.NEAR_ZERO,
    column=False,
)
#: PSI from which the paper calls a position bias notable (Zeng et al. 2025, arXiv 2505.13950, Table 1).
THRESHOLD = 0.03
#: The datasets that are read together, with the suffix of the same sample of both.
FIRST, SECOND = "SQuAD-PosQ", "FineWeb-PosQ"
SUFFIXES = ("", "-Tiny")

NOTABLE_BIAS = ScoreInfo(
    "notable_bias",
    "Notable bias",
    f"Yes if the observed PSI is at least {THRESHOLD} on both {FIRST} and {SECOND}, as the paper marks models; missing "
    "without a result on both. It ignores chance: with few queries, PSI exceeds this without any bias.",
    unit=Unit.TEXT,
    citation="Zeng et al. 2025, arXiv 2505.13950",
    column=False,
)
DRAWS = 2000
SEED = 20260113
#: Spearman's rho and p-value as the paper prints them for each of `LENGTHS` (arXiv 2601.08363).
PRINTED = {"all": (0.62, 0.05), "Q1": (0.73, 0.01), "Q2": (0.71, 0.02), "Q3": (0.44, 0.2), "Q4": (0.39, 0.2)}


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
    psi_chance_mean_at_most: float | None
    """Upper bound of the mean PSI by chance, in [0, 1]; None where the queries of each bin are not published."""
    psi_chance_p95_at_most: float | None
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
    ndcg, observed = np.mean([(row.ndcg_at_10, row.psi_as_published) for row in rows], axis=0).tolist()
    source = f"mean of {len(rows)} tasks, {rows[0].source}"
    return _row(rows[0].model, name, rows[0].length, ndcg, observed, source)


def _posir_rows(*, cross_lingual: bool) -> Iterator[PublishedRow]:
    for score in read_posir_scores():
        if (score.query_language != score.corpus_language) is cross_lingual:
            yield _row(score.model, score.task, score.length, score.ndcg_at_10, score.psi, POSIR_SOURCE)


def _posq_row(score: PosqScore) -> PublishedRow:
    mean = float(np.average(score.ndcg_at_10, weights=BUCKET_QUERIES[score.task]))
    return _row(score.model, score.task, "all", mean, score.psi, score.source)


def _row(model: str, task: str, length: str, ndcg_at_10: float, observed: float, source: str) -> PublishedRow:
    queries = find_query_count(task, length)
    bound = bound_null_psi(ndcg_at_10, BUCKET_QUERIES[task]) if task in BUCKET_QUERIES else None
    return PublishedRow(
        model=model,
        task=task,
        length=length,
        queries=queries.number if queries else None,
        queries_exact=queries is not None and queries.exact,
        ndcg_at_10=ndcg_at_10,
        psi_as_published=observed,
        psi_chance_mean_at_most=bound.mean if bound else None,
        psi_chance_p95_at_most=bound.p95 if bound else None,
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


@dataclass(frozen=True)
class PositionCurve:
    """nDCG@10 over position of one model on one task of PosIR, or on average over its tasks, in one length bucket."""

    model: str
    """Name as printed, without organization."""
    task: str
    length: str
    """`Q1` to `Q4`."""
    positions: tuple[str, ...]
    ndcg_at_10: tuple[float, ...]
    """Mean of each bin in [0, 1], shape (20,)."""
    mean_error: float
    """Mean of these values minus the published nDCG@10; for an average, the mean of those of its tasks."""
    psi_error: float
    """PSI of these values minus the published one; likewise."""
    tasks: int
    """Number of tasks that it is the mean of: those whose curves could be read precisely."""
    source: str = POSIR_FIGURES_SOURCE

    @property
    def thirds(self) -> tuple[float, float, float]:
        """Means of the bins in the first, the middle and the last third of documents, each in [0, 1]."""
        return self._weigh((1.0, 0.0, 0.0)), self._weigh((0.0, 1.0, 0.0)), self._weigh((0.0, 0.0, 1.0))

    @property
    def start_to_end_unweighted(self) -> float:
        """First third minus the last, in [-1, 1]."""
        return self._weigh(START_TO_END)

    def _weigh(self, weights: tuple[float, float, float]) -> float:
        bins = len(self.ndcg_at_10)
        contrast = contrast_thirds(assign_thirds(bins), np.ones(bins), weights)
        assert contrast is not None
        return float(contrast @ self.ndcg_at_10)


@cache
def read_curves() -> tuple[PositionCurve, ...]:
    """Return every published curve of PosIR: of the averages over tasks, then of the tasks."""
    bins = read_posir_bins()
    monolingual = [row for row in bins if row.query_language == row.corpus_language]
    cross_lingual = [row for row in bins if row.query_language != row.corpus_language]
    return (
        *_average(monolingual, MONOLINGUAL),
        *_average(cross_lingual, CROSS_LINGUAL),
        *(_build_curve(row.task, [row]) for row in bins),
    )


def published_curves(task: str) -> list[PositionCurve]:
    """Return the published curves of a task or benchmark by model and length; empty except for PosIR."""
    curves = [curve for curve in read_curves() if curve.task == task]
    return sorted(curves, key=lambda curve: (curve.model.casefold(), LENGTHS.index(curve.length)))


def find_curve(task: str, model: str, length: str) -> PositionCurve | None:
    """Return the published curve of a model on a task at a length; None if none could be read precisely."""
    return _curves_by_key().get((task, model, length))


@cache
def _curves_by_key() -> dict[tuple[str, str, str], PositionCurve]:
    return {(curve.task, curve.model, curve.length): curve for curve in read_curves()}


def _average(rows: Iterable[PosirBins], name: str) -> list[PositionCurve]:
    """Return the unweighted mean of the curves of each model and length over the tasks that have one."""
    groups: dict[tuple[str, str], list[PosirBins]] = {}
    for row in rows:
        groups.setdefault((row.model, row.length), []).append(row)
    return [_build_curve(name, group) for group in groups.values()]


def _build_curve(task: str, rows: list[PosirBins]) -> PositionCurve:
    return PositionCurve(
        model=rows[0].model,
        task=task,
        length=rows[0].length,
        positions=RelativePositions().axes.positions,
        ndcg_at_10=tuple(np.mean([row.ndcg_at_10 for row in rows], axis=0).tolist()),
        mean_error=float(np.mean([row.mean_error for row in rows])),
        psi_error=float(np.mean([row.psi_error for row in rows])),
        tasks=len(rows),
    )


def find_notable_bias(observed: Mapping[str, float]) -> dict[str, bool]:
    """Return whether the bias of a model is notable, by task of the pairs that it has results on.

    Args:
        observed: Its PSI by task.
    """
    pairs = [(FIRST + suffix, SECOND + suffix) for suffix in SUFFIXES]
    complete = [pair for pair in pairs if observed.keys() >= set(pair)]
    return {task: min(observed[name] for name in pair) >= THRESHOLD for pair in complete for task in pair}


def describe_notable(notable: bool | None) -> str | None:
    """Return the mark as a cell of a table: `yes`, `no`, or None where it is undefined."""
    return None if notable is None else ("yes" if notable else "no")


@dataclass(frozen=True)
class NullBound:
    """Upper bounds of PSI if position has no effect."""

    mean: float
    """Bound of the mean PSI, in [0, 1]."""
    p95: float
    """Bound of the 95th percentile of PSI, in [0, 1]."""


def bound_null_psi(score: float, queries: Sequence[int]) -> NullBound:
    """Return upper bounds of PSI by chance for a given mean score and numbers of queries.

    The variance of the score over queries is not published. For a given mean in [0, 1] it is largest if every query scores 0
    or 1, so buckets of such queries are simulated with binomial distributions. Scores of 0 and 1 dominate all others of the
    same mean in convex order (Shaked & Shanthikumar 2007, Stochastic Orders, 3.A), and best minus worst bucket is a convex
    function, so its mean is an upper bound; the bounds of PSI and of the percentile hold to normal approximation. A published
    PSI above the bound is more than chance gives; of one below it that cannot be said.

    Args:
        score: Mean score over all queries, in (0, 1].
        queries: Queries of each bucket, all above 0, shape (B,).
    """
    rng = np.random.default_rng(SEED)
    null = psi(rng.binomial(queries, score, (DRAWS, len(queries))) / np.asarray(queries))
    return NullBound(float(null.mean()), float(np.quantile(null, 0.95)))


@dataclass(frozen=True)
class MMTEBCorrelation:
    """Rank correlation over models of PosIR's nDCG@10 with the MMTEB retrieval score."""

    length: str
    """`all`, or `Q1` to `Q4`."""
    models: int
    rho: float
    """Spearman's, in [-1, 1]."""
    p_value: float
    """Two-sided, for no correlation, not corrected for the number of lengths; in [0, 1]."""
    printed_rho: float
    printed_p_value: float
    """P-value as the paper prints it: truncated, not rounded, to one digit."""
    source: str


def correlate_with_mmteb() -> list[MMTEBCorrelation]:
    """Return the correlation for each of `LENGTHS`, from the macro average over the ten monolingual tasks."""
    return [_correlate(length) for length in LENGTHS]


def _correlate(length: str) -> MMTEBCorrelation:
    # It takes longer to import than all other views of `posir published`.
    from scipy.stats import spearmanr

    posir = {row.model: row.ndcg_at_10 for row in published_rows(MONOLINGUAL) if row.length == length}
    mmteb = read_mmteb_scores()
    result = spearmanr([posir[model] for model in mmteb], list(mmteb.values()))
    return MMTEBCorrelation(length, len(mmteb), float(result.statistic), float(result.pvalue), *PRINTED[length], POSIR_SOURCE)
