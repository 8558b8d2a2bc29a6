"""The published results as the papers give them, with what follows from them; `data/README.md` has
the sources.

Rows of scores, curves of nDCG@10 over position, correlations with MMTEB, and scores after training
on evidence at chosen positions.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any

import numpy as np

from posir_psi.scores import compute_psi
from posir_significance.correction import holm
from posir_tasks.text.languages import LANGUAGES
from posir_tasks.values.schemes import (
    RelativePositions,
    contrast_thirds,
)
from posir_tasks.values.scores import ALL, Better, ScoreInfo, Unit

#: Sources, as they are shown beside the scores.
POSIR_SOURCE = "published, Zeng et al. 2026 (arXiv 2601.08363v1)"
POSIR_FIGURES_SOURCE = (
    "published, Zeng et al. 2026 (arXiv 2601.08363v1), read from the authors' figures"
)
#: Files of PosQ's paper and of its earlier version, whose numbers on SQuAD-PosQ are the same.
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
#: Columns of a table of scores that is compared with the published one.
SCORE_COLUMNS = ("ndcg_at_10", "psi_as_published")
#: Names of the macro averages, which are those of the benchmarks.
MONOLINGUAL, CROSS_LINGUAL = "PosIR", "PosIR(cross-lingual)"
#: Architectures that the authors ran on the Tiny samples (arXiv 2505.13950v5, Section 4.1).
SAMPLED_ARCHITECTURES = ("late-interaction", "reranker")
#: PSI from which the paper calls a position bias notable (Zeng et al. 2025, arXiv 2505.13950v5,
#: Table 1).
THRESHOLD = 0.03
#: The datasets that are read together, with the suffix of the same sample of both.
FIRST, SECOND = "SQuAD-PosQ", "FineWeb-PosQ"
SUFFIXES = ("", "-Tiny")
TWO_DATASETS = tuple(name + suffix for name in (FIRST, SECOND) for suffix in SUFFIXES)
DRAWS = 2000
SEED = 20260113
#: Spearman's rho and p-value as the paper prints them for each of `LENGTHS`, and how its text reads
#: them (arXiv 2601.08363v1, Table 2 and Section 3.2).
PRINTED = {
    "all": (0.62, 0.05, "moderate"),
    "Q1": (0.73, 0.01, "strongest"),
    "Q2": (0.71, 0.02, "decreases with length"),
    "Q3": (0.44, 0.2, "decreases with length"),
    "Q4": (0.39, 0.2, "no statistically significant correlation"),
}
#: The balanced training set among those of a table; the others are skewed to a position.
BALANCED = "uniform"
PSI, PSI_REDUCTION = "psi", "psi_reduction"

START_TO_END_UNWEIGHTED = ScoreInfo(
    "start_to_end_unweighted",
    "Start to end (unweighted)",
    "nDCG@10 of evidence in the first third of documents minus that in the last: unweighted means "
    "of position bins, as the "
    "papers publish no numbers of queries for them. Positive if the beginning is found better.",
    unit=Unit.POINTS,
    better=Better.NEAR_ZERO,
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


#: Distinct queries of a task; for an average over tasks, of all its tasks together (arXiv
#: 2601.08363v1, 2505.13950v5).
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
#: Tasks of which the papers give a rounded number, or one with duplicate questions.
ROUNDED_QUERIES = (CROSS_LINGUAL, "FineWeb-PosQ-Tiny")
#: Mean over the languages of PosIR: 421,708 queries in ten languages.
LANGUAGE_QUERIES = 42_170
#: Queries of each position bucket; a query on a shared boundary of SQuAD-PosQ counts in both (arXiv
#: 2505.13950v5).
BUCKET_QUERIES = {
    "SQuAD-PosQ": (21_220, 16_527, 13_667, 11_514, 10_089, 20_384),
    "SQuAD-PosQ-Tiny": (2_252, 1_813, 1_444, 1_210, 1_108, 2_237),
    "FineWeb-PosQ": (8_467, 8_213, 9_095),
    # The first 1,000 of each class before duplicate questions are removed; the number of duplicates
    # is not published.
    "FineWeb-PosQ-Tiny": (1_000, 1_000, 1_000),
    # A question with two labels counts in both (Myopic Trap, Table 2).
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
    """Distinct queries of the data; None where the papers do not give it, as for the length
    buckets.
    """
    queries_exact: bool
    """Whether that number is exact; otherwise it is a mean over languages, or includes duplicate
    questions.
    """
    ndcg_at_10: float
    """Mean in [0, 1]: of Q1 to Q4 the unweighted mean of the position bins; of PosQ, where the
    paper prints only buckets, their mean weighted by queries.
    """
    psi_as_published: float
    """PSI as published, in [0, 1]; of the published buckets where the paper prints none
    (`FineWeb-PosQ-Raw`).
    """
    psi_chance_mean_at_most: float | None
    """Upper bound of the mean PSI by chance, in [0, 1]; None where the queries of each bin are not
    published.
    """
    psi_chance_p95_at_most: float | None
    """Upper bound of the 95th percentile, in [0, 1]."""
    source: str
    notable_bias: bool | None = None
    """Whether PSI is at least 0.03 on both datasets of PosQ; None for other tasks, or without a
    result on both.
    """


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


@dataclass(frozen=True)
class PosqSystem:
    """One system on one dataset of PosQ (Zeng et al. 2025, arXiv 2505.13950v5) or of its earlier
    version, the Myopic Trap.
    """

    dataset: str
    task: str
    """The authors ran late-interaction models and rerankers on the Tiny samples."""
    architecture: str
    """`sparse`, `dense`, `late-interaction` or `reranker`."""
    model: str
    buckets: Mapping[str, float]
    """nDCG@10 of each of the B position buckets, from first to last, in [0, 1], four decimals."""
    psi: float
    """PSI as printed, in [0, 1], three decimals; of the buckets, not rounded, where the paper
    prints none.
    """
    source: str


@dataclass(frozen=True)
class PositionCurve:
    """nDCG@10 over position of one model on one task of PosIR, or on average over its tasks, in one
    length bucket.

    The authors publish it as pictures alone. The error of the reading is known from what they
    print: the bucket's nDCG@10, which calibrates the axis, and its PSI, which was not used.
    """

    model: str
    """Name as printed, without organization."""
    task: str
    length: str
    """`Q1` to `Q4`."""
    ndcg_at_10: tuple[float, ...]
    """Mean of each bin of relative position in [0, 1], shape (20,)."""
    mean_error: float
    """Mean of these values minus the published nDCG@10; for an average, the mean of those of its
    tasks.
    """
    psi_error: float
    """PSI of these values minus the published one; likewise."""
    tasks: int = 1
    """Number of tasks that it is the mean of: those whose curves could be read precisely."""
    source: str = POSIR_FIGURES_SOURCE

    @property
    def start_to_end_unweighted(self) -> float:
        """First third of the bins minus the last, in [-1, 1]."""
        contrast = contrast_thirds(np.ones(len(self.ndcg_at_10)))
        assert contrast is not None
        return float(contrast @ self.ndcg_at_10)


def read_rows(name: str) -> Iterator[dict[str, str]]:
    """Read the rows of a file of this package's data."""
    return csv.DictReader(_read_text(name).splitlines())


def read_models() -> dict[str, dict[str, Any]]:
    """Read how mteb's registry describes models of the papers, by their printed name in lower
    case.
    """
    models: dict[str, dict[str, Any]] = json.loads(_read_text("models.json"))
    return models


def _read_text(name: str) -> str:
    return (files("posir_published") / "data" / name).read_text(encoding="utf-8")


def _name_posir_task(row: Mapping[str, str]) -> str:
    names = {language.code.split("-")[0]: language.name for language in LANGUAGES}
    pair = dict.fromkeys([names[row["query_language"]], names[row["corpus_language"]]])
    return "-".join(["PosIR", *pair])


def _name_benchmark(task: str) -> str:
    return CROSS_LINGUAL if task.count("-") > 1 else MONOLINGUAL


@cache
def read_posq_systems() -> tuple[PosqSystem, ...]:
    """Read the scores of both versions of the paper: 20 systems on SQuAD-PosQ, 19 on FineWeb-PosQ,
    12 on its first form.
    """
    systems: list[PosqSystem] = []
    for name, source in POSQ_SOURCES.items():
        earlier = {system.dataset for system in systems}
        groups: dict[tuple[str, str, str], dict[str, float]] = {}
        for row in read_rows(name):
            value = float(row["ndcg_at_10"] or row["psi"])
            key = (row["task"], row["architecture"], row["model"])
            groups.setdefault(key, {})[row["bucket"]] = value
        for (dataset, architecture, model), buckets in groups.items():
            if dataset in earlier:
                continue
            psi = buckets.pop("psi", None)
            if psi is None:
                psi = float(compute_psi(list(buckets.values())))
            task = f"{dataset}-Tiny" if architecture in SAMPLED_ARCHITECTURES else dataset
            systems.append(PosqSystem(dataset, task, architecture, model, buckets, psi, source))
    return tuple(systems)


def published_rows(task: str) -> list[PublishedRow]:
    """List the published rows of a task: models by descending nDCG@10, each with `all` and its
    length buckets.

    `PosIR` and `PosIR(cross-lingual)` are the macro averages over their tasks. Empty if nothing is
    published on the task.
    """
    rows = [row for row in _all_rows() if row.task == task]
    overall = {row.model: row.ndcg_at_10 for row in rows if row.length == ALL}
    return sorted(rows, key=lambda row: (-overall[row.model], row.model, LENGTHS.index(row.length)))


def published_tasks() -> tuple[str, ...]:
    """List the tasks with published rows, averages first."""
    return tuple(dict.fromkeys(row.task for row in _all_rows()))


@cache
def _all_rows() -> tuple[PublishedRow, ...]:
    rows = []
    groups: dict[tuple[str, str, str], list[PublishedRow]] = {}
    for line in read_rows("posir.csv"):
        task = _name_posir_task(line)
        model = line["model"]
        length = line["length_bucket"]
        ndcg = float(line["ndcg_at_10"])
        row = _build_row(model, task, length, ndcg, float(line["psi"]), POSIR_SOURCE)
        rows.append(row)
        groups.setdefault((_name_benchmark(task), model, length), []).append(row)
    # This is how PosIR averages over languages (arXiv 2601.08363v1); over the ten monolingual tasks
    # it gives the paper's Table 2.
    averages = []
    for (name, model, length), group in groups.items():
        ndcg = float(np.mean([row.ndcg_at_10 for row in group]))
        psi = float(np.mean([row.psi_as_published for row in group]))
        source = f"mean of {len(group)} tasks, {POSIR_SOURCE}"
        averages.append(_build_row(model, name, length, ndcg, psi, source))
    systems = read_posq_systems()
    psi_by_model: dict[str, dict[str, float]] = {}
    for system in systems:
        psi_by_model.setdefault(system.model, {})[system.task] = system.psi
    for system in systems:
        weights = BUCKET_QUERIES[system.task]
        ndcg = float(np.average(list(system.buckets.values()), weights=weights))
        row = _build_row(system.model, system.task, ALL, ndcg, system.psi, system.source)
        notable = find_notable_bias(psi_by_model[system.model])
        rows.append(replace(row, notable_bias=notable.get(system.task)))
    return (
        *sorted(averages, key=lambda row: row.task),
        # Tasks of one language first; those of PosQ stay last.
        *sorted(rows, key=lambda row: (row.task in BUCKET_QUERIES, _name_benchmark(row.task))),
    )


def _build_row(
    model: str, task: str, length: str, ndcg_at_10: float, psi: float, source: str
) -> PublishedRow:
    queries = None
    is_exact = False
    if length == ALL:
        # The papers do not give the queries of length buckets.
        queries, is_exact = find_query_count(task)
    bounds: tuple[float | None, float | None] = (None, None)
    if task in BUCKET_QUERIES:
        bounds = bound_null_psi(ndcg_at_10, BUCKET_QUERIES[task])
    return PublishedRow(model, task, length, queries, is_exact, ndcg_at_10, psi, *bounds, source)


def find_query_count(task: str) -> tuple[int | None, bool]:
    """Find the number of queries of a task or benchmark in its paper, None if it has none, and
    whether it is exact.
    """
    if task in TASK_QUERIES:
        return TASK_QUERIES[task], task not in ROUNDED_QUERIES
    if task.startswith("PosIR-") and not task.endswith("-Nano"):
        return LANGUAGE_QUERIES, False
    return None, False


def bound_null_psi(score: float, queries: Sequence[int]) -> tuple[float, float]:
    """Bound mean and 95th percentile of PSI if position has no effect.

    The variance of the score over queries is not published. For a given mean in [0, 1] it is
    largest if every query scores 0 or 1, so buckets of such queries are simulated with binomial
    distributions. Scores of 0 and 1 dominate all others of the same mean in convex order (Shaked &
    Shanthikumar 2007, Stochastic Orders, 3.A), and best minus worst bucket is a convex function, so
    its mean is an upper bound; the bounds of PSI and of the percentile hold to normal
    approximation. A published PSI above the bound is more than chance gives; of one below it that
    cannot be said. The mean score is in (0, 1], each bucket has queries.
    """
    rng = np.random.default_rng(SEED)
    null = compute_psi(rng.binomial(queries, score, (DRAWS, len(queries))) / np.asarray(queries))
    return float(null.mean()), float(np.quantile(null, 0.95))


def find_notable_bias(observed: Mapping[str, float]) -> dict[str, bool]:
    """Decide whether the bias of a model is notable, by task of the pairs that it has results on,
    given its PSI by task.
    """
    notable: dict[str, bool] = {}
    for suffix in SUFFIXES:
        pair = (FIRST + suffix, SECOND + suffix)
        if observed.keys() >= set(pair):
            is_notable = min(observed[name] for name in pair) >= THRESHOLD
            notable |= dict.fromkeys(pair, is_notable)
    return notable


def describe_notable(notable: bool | None) -> str | None:
    """Return the mark as a cell of a table: `yes`, `no`, or None where it is undefined."""
    return {None: None, True: "yes", False: "no"}[notable]


@cache
def published_bins(task: str) -> tuple[PublishedBin, ...]:
    """List the published position bins of a task, models and lengths in the order of
    `published_rows`.

    PosQ has them at all lengths; PosIR by length, of the curves that could be read precisely from
    the authors' figures.
    """
    systems = {system.model: system for system in read_posq_systems() if system.task == task}
    bins: list[PublishedBin] = []
    for row in published_rows(task):
        place = (row.model, task, row.length)
        if system := systems.get(row.model):
            buckets = zip(system.buckets.items(), BUCKET_QUERIES[task], strict=True)
            for (position, mean), queries in buckets:
                counts = (queries, row.queries_exact)
                bins.append(PublishedBin(*place, position, *counts, mean, None, None, row.source))
        elif curve := find_curve(task, row.model, row.length):
            prefix = f"mean of {curve.tasks} tasks, " if curve.tasks > 1 else ""
            errors = (curve.mean_error, curve.psi_error, f"{prefix}{curve.source}")
            positions = RelativePositions().axes.positions
            for position, mean in zip(positions, curve.ndcg_at_10, strict=True):
                bins.append(PublishedBin(*place, position, None, False, mean, *errors))
    return tuple(bins)


@cache
def read_curves() -> dict[tuple[str, str, str], PositionCurve]:
    """Read every published curve of PosIR by task, model and length.

    Of the averages over tasks, then of the tasks: 506 of 10 models x 18 language pairs x 4 length
    buckets are known.
    """
    curves: list[PositionCurve] = []
    groups: dict[tuple[str, str, str], list[PositionCurve]] = {}
    for row in read_rows("posir_curves.csv"):
        task = _name_posir_task(row)
        model = row["model"]
        length = row["length_bucket"]
        bins = tuple(float(row[f"bin_{number}"]) for number in range(1, 21))
        # Without a negative zero.
        errors = (float(row["ndcg_at_10_mean_error"]) + 0.0, float(row["psi_error"]) + 0.0)
        curve = PositionCurve(model, task, length, bins, *errors)
        curves.append(curve)
        groups.setdefault((_name_benchmark(task), model, length), []).append(curve)
    averages = []
    for (task, model, length), group in groups.items():
        means = np.mean(
            [[*curve.ndcg_at_10, curve.mean_error, curve.psi_error] for curve in group], 0
        )
        *bins_mean, mean_error, psi_error = means.tolist()
        averages.append(
            PositionCurve(model, task, length, tuple(bins_mean), mean_error, psi_error, len(group))
        )
    return {(curve.task, curve.model, curve.length): curve for curve in (*averages, *curves)}


def published_curves(task: str) -> list[PositionCurve]:
    """List the published curves of a task or benchmark by model and length; empty except for
    PosIR.
    """
    curves = [curve for curve in read_curves().values() if curve.task == task]
    return sorted(curves, key=lambda curve: (curve.model.casefold(), LENGTHS.index(curve.length)))


def find_curve(task: str, model: str, length: str) -> PositionCurve | None:
    """Find the published curve of a model on a task at a length; None if none could be read
    precisely.
    """
    return read_curves().get((task, model, length))


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
    p_corrected: float
    """Holm-corrected for the five lengths."""
    printed_rho: float
    printed_p_value: float
    """P-value as the paper prints it: truncated, not rounded, to one digit."""
    printed_reading: str
    """What the paper's text says of it."""
    source: str


def read_mmteb_scores() -> dict[str, float]:
    """Read the MMTEB retrieval scores (x 100) of the 10 models of PosIR (Zeng et al. 2026, arXiv
    2601.08363v1).
    """
    return {row["model"]: float(row["mmteb_retrieval"]) for row in read_rows("mmteb.csv")}


def correlate_with_mmteb() -> list[MMTEBCorrelation]:
    """Correlate both for each of `LENGTHS`, with the macro average over the ten monolingual
    tasks.
    """
    # It takes longer to import than all other views of `posir published`.
    from scipy.stats import spearmanr

    mmteb = read_mmteb_scores()
    posir = {(row.length, row.model): row.ndcg_at_10 for row in published_rows(MONOLINGUAL)}
    fitted = [
        spearmanr([posir[length, model] for model in mmteb], list(mmteb.values()))
        for length in PRINTED
    ]
    corrected = holm([float(fit.pvalue) for fit in fitted])
    rows = []
    for (length, printed), fit, p_corrected in zip(PRINTED.items(), fitted, corrected, strict=True):
        values = (float(fit.statistic), float(fit.pvalue), p_corrected)
        rows.append(MMTEBCorrelation(length, len(mmteb), *values, *printed, POSIR_SOURCE))
    return rows


@dataclass(frozen=True)
class TrainingScore:
    """One measure of a model after training."""

    data: str
    """A task, or the datasets of the paper."""
    model: str
    """The base model, as printed; or a mean over models."""
    training: str
    """Position of the evidence in the training set: `begin`, `middle`, `end`, `uniform`; or `none`
    and `PADS`.
    """
    measure: str
    """`ndcg_at_10`, `psi`, `cosine_beginning` and so on, or `psi_reduction`."""
    value: float
    """Score in [0, 1]."""
    source: str


@cache
def read_training_scores() -> tuple[TrainingScore, ...]:
    """Read the published measures, in the order of the papers' tables."""
    scores = []
    for row in read_rows("training.csv"):
        source = TRAINING_SOURCES[row.pop("table")]
        value = float(row.pop("value"))
        scores.append(TrainingScore(**row, value=value, source=source))
    return tuple(scores)


def psi_reductions(scores: Iterable[TrainingScore]) -> Iterator[TrainingScore]:
    """Yield by how much balanced training lowers PSI for each data and model: 1 - PSI (uniform) /
    worst skewed PSI.

    arXiv 2605.26578v1, Section 5, which gives 57 to 87% on SQuAD-PosQ.
    """
    of_psi = (score for score in scores if score.measure == PSI)
    for _, group in groupby(of_psi, key=lambda score: (score.source, score.data, score.model)):
        values = {score.training: score for score in group}
        balanced = values.pop(BALANCED)
        reduction = 1 - balanced.value / max(score.value for score in values.values())
        source = f"computed from {balanced.source}"
        yield replace(balanced, measure=PSI_REDUCTION, value=reduction, source=source)
