"""Published results and the values computed from them; `data/README.md` lists the sources.

They comprise scores, curves of nDCG@10 over position, correlations with MMTEB, and scores after
training on evidence at chosen positions.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from posir_psi.scores import compute_psi
from posir_significance.correction import correct_by_holm
from posir_tasks.text.languages import LANGUAGES
from posir_tasks.values.schemes import (
    RelativePositions,
    compute_thirds_contrast,
)
from posir_tasks.values.scores import ALL, Direction, ScoreInfo, Unit

#: Sources as the tables print them.
POSIR_SOURCE = "published, Zeng et al. 2026 (arXiv 2601.08363v1)"
POSIR_FIGURES_SOURCE = (
    "published, Zeng et al. 2026 (arXiv 2601.08363v1), read from the authors' figures"
)
#: Source of each file with PosQ's results; both versions of the paper agree on SQuAD-PosQ.
POSQ_SOURCES = {
    "posq.csv": "published, Zeng et al. 2025 (arXiv 2505.13950v5)",
    "myopic_trap.csv": "published, Benchmarking the Myopic Trap, Table 1 (arXiv 2505.13950v1)",
}
#: Source of each table of `training.csv`.
TRAINING_SOURCES = {
    "built-in-or-learned-3": "published, Yu et al. 2026, Table 3 (arXiv 2605.26578v1)",
    "built-in-or-learned-4": "published, Yu et al. 2026, Table 4 (arXiv 2605.26578v1)",
    "built-in-or-learned-11": "published, Yu et al. 2026, Table 11 (arXiv 2605.26578v1)",
    "bias-learning-4": "published, Bias Learning, Table 4 (OpenReview 4GD7a9Bo9A, "
    "arXiv 2412.15241v3)",
}
#: All lengths, and the length buckets of PosIR.
LENGTHS = (ALL, "Q1", "Q2", "Q3", "Q4")
#: Score columns in a user's table.
SCORE_COLUMNS = ("ndcg_at_10", "psi_as_published")
#: The macro averages are named like the benchmarks.
MONOLINGUAL, CROSS_LINGUAL = "PosIR", "PosIR(cross-lingual)"
#: Architectures that the authors ran on the Tiny samples (arXiv 2505.13950v5, Section 4.1).
SAMPLED_ARCHITECTURES = ("late-interaction", "reranker")
#: Minimum PSI of a notable position bias (Zeng et al. 2025, arXiv 2505.13950v5, Table 1).
THRESHOLD = 0.03
#: A bias is notable if it is on both datasets, or on both samples of them.
FIRST, SECOND = "SQuAD-PosQ", "FineWeb-PosQ"
SUFFIXES = ("", "-Tiny")
TWO_DATASETS = tuple(name + suffix for name in (FIRST, SECOND) for suffix in SUFFIXES)
DRAWS = 2000
SEED = 20260113
#: Printed rho and p-value of Spearman's test and the paper's interpretation, for each of `LENGTHS`
#: (arXiv 2601.08363v1, Table 2 and Section 3.2).
PRINTED = {
    "all": (0.62, 0.05, "moderate"),
    "Q1": (0.73, 0.01, "strongest"),
    "Q2": (0.71, 0.02, "decreases with length"),
    "Q3": (0.44, 0.2, "decreases with length"),
    "Q4": (0.39, 0.2, "no statistically significant correlation"),
}
#: The balanced training set; all others are skewed toward one position.
BALANCED = "uniform"
PSI, PSI_REDUCTION = "psi", "psi_reduction"

START_TO_END_UNWEIGHTED = ScoreInfo(
    "start_to_end_unweighted",
    "Start to end (unweighted)",
    "nDCG@10 of evidence in the first third of documents minus that in the last: unweighted means "
    "of position bins, as the papers publish no numbers of queries for them. Positive if the "
    "beginning is found better.",
    unit=Unit.POINTS,
    better=Direction.NEAR_ZERO,
    column=False,
)
NOTABLE_BIAS = ScoreInfo(
    "notable_bias",
    "Notable bias",
    f"Yes if the observed PSI is at least {THRESHOLD} on both {FIRST} and {SECOND}, as the paper "
    "marks models; missing without a result on both. It ignores chance: with few queries, PSI "
    "exceeds this without any bias.",
    unit=Unit.TEXT,
    citation="Zeng et al. 2025, arXiv 2505.13950v5",
    column=False,
)


#: Distinct queries per task, or over all tasks in an average (arXiv 2601.08363v1, 2505.13950v5).
TASK_QUERIES = {
    MONOLINGUAL: 421_708,
    "PosIR-English": 42_015,
    CROSS_LINGUAL: 337_000,
    "SQuAD-PosQ": 92_749,
    "SQuAD-PosQ-Tiny": 10_000,
    "FineWeb-PosQ": 25_775,
    "FineWeb-PosQ-Tiny": 3_000,
    # The first release (Myopic Trap, Table 2).
    "FineWeb-PosQ-Raw": 265_865,
    "FineWeb-PosQ-Raw-Tiny": 6_620,
}
#: Tasks with a rounded number of queries, or one that includes duplicates.
ROUNDED_QUERIES = (CROSS_LINGUAL, "FineWeb-PosQ-Tiny")
#: Mean over PosIR's languages: 421,708 queries in ten languages.
LANGUAGE_QUERIES = 42_170
#: Queries per position bucket; in SQuAD-PosQ a query on a boundary is in both buckets (arXiv
#: 2505.13950v5).
BUCKET_QUERIES = {
    "SQuAD-PosQ": (21_220, 16_527, 13_667, 11_514, 10_089, 20_384),
    "SQuAD-PosQ-Tiny": (2_252, 1_813, 1_444, 1_210, 1_108, 2_237),
    "FineWeb-PosQ": (8_467, 8_213, 9_095),
    # Including duplicate questions, whose number is not published.
    "FineWeb-PosQ-Tiny": (1_000, 1_000, 1_000),
    # A question with two labels is in both buckets (Myopic Trap, Table 2).
    "FineWeb-PosQ-Raw": (103_844, 199_742, 160_832),
    "FineWeb-PosQ-Raw-Tiny": (3_300, 5_098, 3_300),
}


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
    """Distinct queries of the data; None if not published, such as for length buckets."""
    queries_exact: bool
    """False if `queries` is a mean over languages or includes duplicates."""
    ndcg_at_10: float
    """Mean in [0, 1]. For Q1 to Q4 it is the unweighted mean of the position bins. For PosQ it is
    the mean of the printed buckets, weighted by queries.
    """
    psi_as_published: float
    """PSI in [0, 1]; computed from the buckets if not printed (`FineWeb-PosQ-Raw`)."""
    psi_chance_mean_at_most: float | None
    """Upper bound of the mean PSI by chance, in [0, 1]; None if the queries per bin are not
    published.
    """
    psi_chance_p95_at_most: float | None
    """Upper bound of the 95th percentile of the PSI by chance, in [0, 1]."""
    source: str
    notable_bias: bool | None = None
    """True if PSI is at least 0.03 on both datasets of PosQ; None without a result on both."""


@dataclass(frozen=True)
class PublishedBin:
    """The published score of one model in one position bin."""

    model: str
    task: str
    length: str
    """`all`, or `Q1` to `Q4` for PosIR."""
    position: str
    queries: int | None
    """None if not published, such as for PosIR."""
    queries_exact: bool
    ndcg_at_10: float
    """Mean in [0, 1]."""
    mean_error: float | None
    """Error of the mean of a digitized curve; see `PositionCurve`."""
    psi_error: float | None
    """Error of the PSI of a digitized curve."""
    source: str


@dataclass(frozen=True)
class PosqSystem:
    """One system on one dataset of PosQ (Zeng et al. 2025, arXiv 2505.13950v5) or of its earlier
    version, the Myopic Trap.
    """

    dataset: str
    task: str
    """The dataset, or its Tiny sample for late-interaction models and rerankers."""
    architecture: str
    """`sparse`, `dense`, `late-interaction` or `reranker`."""
    model: str
    buckets: Mapping[str, float]
    """nDCG@10 of each position bucket in order, in [0, 1], with four decimals."""
    psi: float
    """PSI in [0, 1] as printed, with three decimals; computed from the buckets if not printed."""
    source: str


@dataclass(frozen=True)
class PositionCurve:
    """nDCG@10 over position of one model in one length bucket of a task of PosIR, or of an average.

    The values were digitized from figures. The bucket's printed nDCG@10, which calibrated the axis,
    and its printed PSI, which was not used, give the digitization errors.
    """

    model: str
    """Name as printed, without organization."""
    task: str
    length: str
    """`Q1` to `Q4`."""
    ndcg_at_10: tuple[float, ...]
    """Mean of each bin of relative position in [0, 1], shape (20,)."""
    mean_error: float
    """Mean of these values minus the published nDCG@10; averaged over the tasks of an average."""
    psi_error: float
    """PSI of these values minus the published PSI; averaged over the tasks of an average."""
    tasks: int = 1
    """Number of averaged tasks: those whose curves could be digitized precisely."""
    source: str = POSIR_FIGURES_SOURCE

    @property
    def start_to_end_unweighted(self) -> float:
        """First third of the bins minus the last, in [-1, 1]."""
        contrast = compute_thirds_contrast(np.ones(len(self.ndcg_at_10)))
        assert contrast is not None
        return float(contrast @ self.ndcg_at_10)


Item = TypeVar("Item", PublishedRow, PositionCurve)


def read_rows(name: str) -> Iterator[dict[str, str]]:
    """Read a CSV file of this package."""
    return csv.DictReader(_read_text(name).splitlines())


def read_models() -> dict[str, dict[str, Any]]:
    """Read the model descriptions from mteb's registry, keyed by printed name in lower case."""
    return dict(json.loads(_read_text("models.json")))


def _read_text(name: str) -> str:
    return (files("posir_published") / "data" / name).read_text(encoding="utf-8")


def _name_posir_task(row: Mapping[str, str]) -> str:
    names = {language.code.split("-")[0]: language.name for language in LANGUAGES}
    pair = dict.fromkeys([names[row["query_language"]], names[row["corpus_language"]]])
    return "-".join(["PosIR", *pair])


def _name_benchmark(task: str) -> str:
    return CROSS_LINGUAL if task.count("-") > 1 else MONOLINGUAL


def _group_by_benchmark(items: Iterable[Item]) -> Mapping[tuple[str, str, str], Sequence[Item]]:
    """Group the tasks of each benchmark by model and length."""
    groups = defaultdict(list)
    for item in items:
        groups[_name_benchmark(item.task), item.model, item.length].append(item)
    return groups


@cache
def read_posq_systems() -> Sequence[PosqSystem]:
    """Read the scores of both versions of the paper: 20 systems on SQuAD-PosQ, 19 on FineWeb-PosQ
    and 12 on its first release.
    """
    systems: list[PosqSystem] = []
    for name, source in POSQ_SOURCES.items():
        final_datasets = {system.dataset for system in systems}
        groups = groupby(read_rows(name), key=itemgetter("task", "architecture", "model"))
        for (dataset, architecture, model), rows in groups:
            if dataset in final_datasets:
                continue
            buckets = {row["bucket"]: float(row["ndcg_at_10"] or row["psi"]) for row in rows}
            psi = buckets.pop("psi", None)
            if psi is None:
                psi = float(compute_psi(list(buckets.values())))
            task = f"{dataset}-Tiny" if architecture in SAMPLED_ARCHITECTURES else dataset
            systems.append(PosqSystem(dataset, task, architecture, model, buckets, psi, source))
    return systems


def published_rows(task: str) -> list[PublishedRow]:
    """List the published rows of a task, by descending nDCG@10 of the model and by length.

    The names `PosIR` and `PosIR(cross-lingual)` return the macro averages over their tasks. The
    list is empty for a task without published results.
    """
    rows = [row for row in _all_rows() if row.task == task]
    overall = {row.model: row.ndcg_at_10 for row in rows if row.length == ALL}
    return sorted(rows, key=lambda row: (-overall[row.model], row.model, LENGTHS.index(row.length)))


def published_tasks() -> Sequence[str]:
    """List the tasks with published rows, averages first."""
    return [*dict.fromkeys(row.task for row in _all_rows())]


@cache
def _all_rows() -> Sequence[PublishedRow]:
    rows = []
    for line in read_rows("posir.csv"):
        key = (_name_posir_task(line), line["model"], line["length_bucket"])
        scores = (float(line["ndcg_at_10"]), float(line["psi"]))
        rows.append(_build_row(*key, *scores, POSIR_SOURCE))
    # PosIR averages over languages in the same way: the ten monolingual tasks reproduce Table 2 of
    # the paper (arXiv 2601.08363v1).
    averages = []
    for key, group in _group_by_benchmark(rows).items():
        ndcg = float(np.mean([row.ndcg_at_10 for row in group]))
        psi = float(np.mean([row.psi_as_published for row in group]))
        source = f"mean of {len(group)} tasks, {POSIR_SOURCE}"
        averages.append(_build_row(*key, ndcg, psi, source))
    systems = read_posq_systems()
    for system in systems:
        weights = BUCKET_QUERIES[system.task]
        ndcg = float(np.average(list(system.buckets.values()), weights=weights))
        row = _build_row(system.task, system.model, ALL, ndcg, system.psi, system.source)
        psi_by_task = {other.task: other.psi for other in systems if other.model == system.model}
        notable = find_notable_bias(psi_by_task)
        rows.append(replace(row, notable_bias=notable.get(system.task)))
    return (
        *sorted(averages, key=lambda row: row.task),
        # Monolingual tasks first, PosQ last.
        *sorted(rows, key=lambda row: (row.task in BUCKET_QUERIES, _name_benchmark(row.task))),
    )


def _build_row(
    task: str, model: str, length: str, ndcg_at_10: float, psi: float, source: str
) -> PublishedRow:
    queries = None
    is_exact = False
    if length == ALL:
        # The queries of length buckets are not published.
        queries, is_exact = find_query_count(task)
    bounds: tuple[float | None, float | None] = (None, None)
    if task in BUCKET_QUERIES:
        bounds = bound_null_psi(ndcg_at_10, BUCKET_QUERIES[task])
    return PublishedRow(model, task, length, queries, is_exact, ndcg_at_10, psi, *bounds, source)


def find_query_count(task: str) -> tuple[int | None, bool]:
    """Return the published number of queries of a task or benchmark, or None; and True if it is
    exact.
    """
    if task in TASK_QUERIES:
        return TASK_QUERIES[task], task not in ROUNDED_QUERIES
    if task.startswith("PosIR-") and not task.endswith("-Nano"):
        return LANGUAGE_QUERIES, False
    return None, False


def bound_null_psi(score: float, queries: Sequence[int]) -> tuple[float, float]:
    """Bound mean and 95th percentile of PSI from above if position has no effect.

    The variance of the score over queries is not published. For a given mean in [0, 1] it is
    largest if every query scores 0 or 1, so such buckets are simulated with binomial distributions.
    Scores of 0 and 1 dominate all others of the same mean in convex order (Shaked & Shanthikumar
    2007, Stochastic Orders, 3.A), and best minus worst bucket is a convex function, so its mean is
    an upper bound. The bounds of PSI and of the percentile hold to normal approximation. A
    published PSI above the bound exceeds chance; below it, the result is inconclusive.

    Args:
        score: Mean score in (0, 1].
        queries: Queries of each bucket, above 0.
    """
    rng = np.random.default_rng(SEED)
    null = compute_psi(rng.binomial(queries, score, (DRAWS, len(queries))) / np.asarray(queries))
    return float(null.mean()), float(np.quantile(null, 0.95))


def find_notable_bias(observed: Mapping[str, float]) -> dict[str, bool]:
    """Return whether the bias is notable on each task of a pair, given a model's PSI by task; omit
    tasks without a result on their counterpart.
    """
    notable: dict[str, bool] = {}
    for suffix in SUFFIXES:
        pair = (FIRST + suffix, SECOND + suffix)
        if observed.keys() >= set(pair):
            is_notable = min(observed[name] for name in pair) >= THRESHOLD
            notable |= dict.fromkeys(pair, is_notable)
    return notable


def describe_notable(notable: bool | None) -> str | None:
    """Return `yes`, `no` or None for a table cell."""
    return {None: None, True: "yes", False: "no"}[notable]


@cache
def published_bins(task: str) -> Sequence[PublishedBin]:
    """List the published position bins of a task in the order of `published_rows`.

    PosQ has bins over all lengths. PosIR has bins by length if the curve in the authors' figures
    could be digitized precisely.
    """
    systems = {system.model: system for system in read_posq_systems() if system.task == task}
    bins = []
    for row in published_rows(task):
        key = (row.model, task, row.length)
        if system := systems.get(row.model):
            buckets = zip(system.buckets.items(), BUCKET_QUERIES[task], strict=True)
            for (position, mean), queries in buckets:
                counts = (queries, row.queries_exact)
                bins.append(PublishedBin(*key, position, *counts, mean, None, None, row.source))
        elif curve := find_curve(task, row.model, row.length):
            prefix = f"mean of {curve.tasks} tasks, " if curve.tasks > 1 else ""
            errors = (curve.mean_error, curve.psi_error, f"{prefix}{curve.source}")
            positions = RelativePositions().axes.positions
            for position, mean in zip(positions, curve.ndcg_at_10, strict=True):
                bins.append(PublishedBin(*key, position, None, False, mean, *errors))
    return bins


@cache
def read_curves() -> dict[tuple[str, str, str], PositionCurve]:
    """Read the published curves of PosIR by task, model and length, averages over tasks first.

    506 of the 720 curves (10 models x 18 language pairs x 4 length buckets) could be digitized.
    """
    curves = []
    for row in read_rows("posir_curves.csv"):
        key = (row["model"], _name_posir_task(row), row["length_bucket"])
        bins = tuple(float(row[f"bin_{number}"]) for number in range(1, 21))
        # Adding 0.0 turns -0.0 into 0.0.
        errors = (float(row["ndcg_at_10_mean_error"]) + 0.0, float(row["psi_error"]) + 0.0)
        curves.append(PositionCurve(*key, bins, *errors))
    averages = []
    for (task, model, length), group in _group_by_benchmark(curves).items():
        means = np.mean(
            [[*curve.ndcg_at_10, curve.mean_error, curve.psi_error] for curve in group], 0
        )
        *bins_mean, mean_error, psi_error = means.tolist()
        averages.append(
            PositionCurve(model, task, length, tuple(bins_mean), mean_error, psi_error, len(group))
        )
    return {(curve.task, curve.model, curve.length): curve for curve in (*averages, *curves)}


def published_curves(task: str) -> list[PositionCurve]:
    """List the published curves of PosIR or one of its tasks, by model and length."""
    curves = [curve for curve in read_curves().values() if curve.task == task]
    return sorted(curves, key=lambda curve: (curve.model.casefold(), LENGTHS.index(curve.length)))


def find_curve(task: str, model: str, length: str) -> PositionCurve | None:
    """Return a published curve, or None if it could not be digitized precisely."""
    return read_curves().get((task, model, length))


@dataclass(frozen=True)
class MMTEBCorrelation:
    """Rank correlation between PosIR's nDCG@10 and the MMTEB retrieval score over models."""

    length: str
    """`all`, or `Q1` to `Q4`."""
    models: int
    rho: float
    """Spearman's rho in [-1, 1]."""
    p_value: float
    """Two-sided p-value in [0, 1], not corrected for the number of lengths."""
    p_corrected: float
    """P-value with Holm's correction for the five lengths."""
    printed_rho: float
    printed_p_value: float
    """The paper's p-value, truncated to one digit."""
    printed_reading: str
    """The paper's interpretation."""
    source: str


def read_mmteb_scores() -> dict[str, float]:
    """Read the MMTEB retrieval scores (x 100) of PosIR's 10 models (Zeng et al. 2026, arXiv
    2601.08363v1).
    """
    return {row["model"]: float(row["mmteb_retrieval"]) for row in read_rows("mmteb.csv")}


def correlate_with_mmteb() -> list[MMTEBCorrelation]:
    """Correlate MMTEB with PosIR's macro average over the ten monolingual tasks at each length."""
    # Slow to import.
    from scipy.stats import spearmanr

    mmteb = read_mmteb_scores()
    posir = {(row.length, row.model): row.ndcg_at_10 for row in published_rows(MONOLINGUAL)}
    fitted = [
        spearmanr([posir[length, model] for model in mmteb], list(mmteb.values()))
        for length in PRINTED
    ]
    corrected = correct_by_holm([float(fit.pvalue) for fit in fitted])
    rows = []
    for (length, printed), fit, p_corrected in zip(PRINTED.items(), fitted, corrected, strict=True):
        values = (float(fit.statistic), float(fit.pvalue), p_corrected)
        rows.append(MMTEBCorrelation(length, len(mmteb), *values, *printed, POSIR_SOURCE))
    return rows


@dataclass(frozen=True)
class TrainingScore:
    """One measure of a model after training."""

    data: str
    """A task, or the paper's datasets."""
    model: str
    """The base model as printed, or a mean over models."""
    training: str
    """Position of the evidence in the training set (`begin`, `middle`, `end`, `uniform`), `none` or
    `PADS`.
    """
    measure: str
    """`ndcg_at_10`, `psi`, `psi_reduction`, or a cosine such as `cosine_beginning`."""
    value: float
    """Score in [0, 1]."""
    source: str


@cache
def read_training_scores() -> Sequence[TrainingScore]:
    """Read the published measures in the order of the papers' tables."""
    scores = []
    for row in read_rows("training.csv"):
        source = TRAINING_SOURCES[row.pop("table")]
        value = float(row.pop("value"))
        scores.append(TrainingScore(**row, value=value, source=source))
    return scores


def psi_reductions(scores: Iterable[TrainingScore]) -> Iterator[TrainingScore]:
    """Yield the reduction of PSI by balanced training: 1 - PSI (uniform) / worst skewed PSI.

    The paper (arXiv 2605.26578v1, Section 5) reports 57 to 87% on SQuAD-PosQ.
    """
    psi_scores = (score for score in scores if score.measure == PSI)
    for _, group in groupby(psi_scores, key=lambda score: (score.source, score.data, score.model)):
        values = {score.training: score for score in group}
        balanced = values.pop(BALANCED)
        reduction = 1 - balanced.value / max(score.value for score in values.values())
        source = f"computed from {balanced.source}"
        yield replace(balanced, measure=PSI_REDUCTION, value=reduction, source=source)
