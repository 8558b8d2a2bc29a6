"""Read published results and compute values from them. `data/README.md` lists the sources.

The results are scores, curves of nDCG@10 over position, correlations with MMTEB, and scores of
models trained on evidence at chosen positions.
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

#: Sources as shown in tables.
POSIR_SOURCE = "published, Zeng et al. 2026 (arXiv 2601.08363v1)"
POSIR_FIGURES_SOURCE = (
    "published, Zeng et al. 2026 (arXiv 2601.08363v1), read from the authors' figures"
)
#: Source of each file with results of PosQ. Both versions of the paper agree on SQuAD-PosQ.
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
#: Score columns of a user's table.
SCORE_COLUMNS = ("ndcg_at_10", "psi_as_published")
#: Names of the macro averages, which are also the names of the benchmarks.
MONOLINGUAL, CROSS_LINGUAL = "PosIR", "PosIR(cross-lingual)"
#: Architectures that the authors evaluated on the Tiny samples (arXiv 2505.13950v5, Section 4.1).
SAMPLED_ARCHITECTURES = ("late-interaction", "reranker")
#: Minimum PSI of a notable position bias, on both full datasets or on both samples (Zeng et al.
#: 2025, arXiv 2505.13950v5, Table 1).
NOTABLE_PSI = 0.03
SQUAD, FINEWEB = "SQuAD-PosQ", "FineWeb-PosQ"
SAMPLE_SUFFIXES = ("", "-Tiny")
NOTABLE_BIAS_TASKS = tuple(name + suffix for name in (SQUAD, FINEWEB) for suffix in SAMPLE_SUFFIXES)
SIMULATIONS = 2000
SEED = 20260113
#: Spearman's rho, p-value and interpretation as printed, by length (arXiv 2601.08363v1, Table 2 and
#: Section 3.2).
PRINTED_CORRELATIONS = {
    "all": (0.62, 0.05, "moderate"),
    "Q1": (0.73, 0.01, "strongest"),
    "Q2": (0.71, 0.02, "decreases with length"),
    "Q3": (0.44, 0.2, "decreases with length"),
    "Q4": (0.39, 0.2, "no statistically significant correlation"),
}
#: The balanced training set. All other training sets are skewed toward one position.
BALANCED_TRAINING = "uniform"
PSI, PSI_REDUCTION = "psi", "psi_reduction"

START_TO_END_UNWEIGHTED = ScoreInfo(
    "start_to_end_unweighted",
    "Start minus end (unweighted)",
    "nDCG@10 for evidence in the first third of documents minus the last third. Position bins are "
    "not weighted, since the papers do not publish their numbers of queries. Positive values favor "
    "the start.",
    unit=Unit.POINTS,
    better=Direction.NEAR_ZERO,
    column=False,
)
NOTABLE_BIAS = ScoreInfo(
    "notable_bias",
    "Notable bias",
    f"Yes if the observed PSI is at least {NOTABLE_PSI} on both {SQUAD} and {FINEWEB}, as marked "
    "in the paper; missing without results on both. Chance is ignored: with few queries, PSI "
    "exceeds this threshold without any bias.",
    unit=Unit.TEXT,
    citation="Zeng et al. 2025, arXiv 2505.13950v5",
    column=False,
)


#: Number of distinct queries per task or, for averages, over all tasks (arXiv 2601.08363v1,
#: 2505.13950v5).
TASK_QUERIES = {
    MONOLINGUAL: 421_708,
    "PosIR-English": 42_015,
    CROSS_LINGUAL: 337_000,
    "SQuAD-PosQ": 92_749,
    "SQuAD-PosQ-Tiny": 10_000,
    "FineWeb-PosQ": 25_775,
    "FineWeb-PosQ-Tiny": 3_000,
    # First release (Myopic Trap, Table 2).
    "FineWeb-PosQ-Raw": 265_865,
    "FineWeb-PosQ-Raw-Tiny": 6_620,
}
#: Tasks whose number of queries is rounded or includes duplicates.
ROUNDED_QUERIES = (CROSS_LINGUAL, "FineWeb-PosQ-Tiny")
#: Mean number of queries per language of PosIR: 421,708 queries in ten languages.
LANGUAGE_QUERIES = 42_170
#: Number of queries per position bucket (arXiv 2505.13950v5). In SQuAD-PosQ, queries at a boundary
#: are in both buckets.
BUCKET_QUERIES = {
    "SQuAD-PosQ": (21_220, 16_527, 13_667, 11_514, 10_089, 20_384),
    "SQuAD-PosQ-Tiny": (2_252, 1_813, 1_444, 1_210, 1_108, 2_237),
    "FineWeb-PosQ": (8_467, 8_213, 9_095),
    # Includes an unpublished number of duplicate questions.
    "FineWeb-PosQ-Tiny": (1_000, 1_000, 1_000),
    # Questions with two labels are in both buckets (Myopic Trap, Table 2).
    "FineWeb-PosQ-Raw": (103_844, 199_742, 160_832),
    "FineWeb-PosQ-Raw-Tiny": (3_300, 5_098, 3_300),
}


@dataclass(frozen=True)
class PublishedRow:
    """A model's published scores on one task, at all lengths or in one length bucket."""

    model: str
    """Printed name, without organization."""
    task: str
    """Task, or benchmark for an average over its tasks."""
    length: str
    """`all`, or `Q1` to `Q4`; PosQ has only `all`."""
    queries: int | None
    """Number of distinct queries in the dataset; None if not published, as for length buckets."""
    queries_exact: bool
    """False if `queries` is a mean over languages or includes duplicates."""
    ndcg_at_10: float
    """Mean in [0, 1]: for Q1 to Q4, the unweighted mean of the position bins; for PosQ, the mean of
    the printed buckets, weighted by queries.
    """
    psi_as_published: float
    """PSI in [0, 1]; computed from the buckets if not printed (`FineWeb-PosQ-Raw`)."""
    psi_chance_mean_at_most: float | None
    """Upper bound of the mean PSI by chance, in [0, 1]; None if the numbers of queries per bin are
    not published.
    """
    psi_chance_p95_at_most: float | None
    """Upper bound of the 95th percentile of the PSI by chance, in [0, 1]."""
    source: str
    notable_bias: bool | None = None
    """True if PSI is at least 0.03 on both datasets of PosQ; None without results on both."""


@dataclass(frozen=True)
class PublishedBin:
    """A model's published score in one position bin."""

    model: str
    task: str
    length: str
    """`all`, or `Q1` to `Q4` for PosIR."""
    position: str
    queries: int | None
    """Number of queries; None if not published, as for PosIR."""
    queries_exact: bool
    ndcg_at_10: float
    """Mean in [0, 1]."""
    mean_error: float | None
    """Error in the mean of a digitized curve; see `PositionCurve`."""
    psi_error: float | None
    """Error in the PSI of a digitized curve."""
    source: str


@dataclass(frozen=True)
class PosqSystem:
    """A system's scores on one dataset of PosQ (Zeng et al. 2025, arXiv 2505.13950v5) or of its
    first version, the Myopic Trap.
    """

    dataset: str
    task: str
    """Dataset, or its Tiny sample for late-interaction models and rerankers."""
    architecture: str
    """`sparse`, `dense`, `late-interaction` or `reranker`."""
    model: str
    buckets: Mapping[str, float]
    """nDCG@10 by position bucket, in order, in [0, 1] with four decimals."""
    psi: float
    """Printed PSI in [0, 1] with three decimals, or the PSI of the buckets if none is printed."""
    source: str


@dataclass(frozen=True)
class PositionCurve:
    """A model's nDCG@10 over position in one length bucket of a PosIR task, or averaged over tasks.

    The values were digitized from figures. Digitization errors are computed from the bucket's
    printed nDCG@10, which was used to calibrate the axis, and printed PSI, which was not used.
    """

    model: str
    """Printed name, without organization."""
    task: str
    length: str
    """`Q1` to `Q4`."""
    ndcg_at_10: tuple[float, ...]
    """Mean per bin of relative position, in [0, 1], shape (20,)."""
    mean_error: float
    """Mean of the values minus the printed nDCG@10, averaged over tasks."""
    psi_error: float
    """PSI of the values minus the printed PSI, averaged over tasks."""
    tasks: int = 1
    """Number of averaged tasks, which are the tasks with precisely digitized curves."""
    source: str = POSIR_FIGURES_SOURCE

    @property
    def start_to_end_unweighted(self) -> float:
        """Mean of the first third of the bins minus mean of the last third, in [-1, 1]."""
        contrast = compute_thirds_contrast(np.ones(len(self.ndcg_at_10)))
        assert contrast is not None
        return float(contrast @ self.ndcg_at_10)


Item = TypeVar("Item", PublishedRow, PositionCurve)


def read_rows(name: str) -> Iterator[dict[str, str]]:
    """Read a CSV file in this package's `data` folder."""
    return csv.DictReader(_read_text(name).splitlines())


def read_models() -> dict[str, dict[str, Any]]:
    """Read mteb's descriptions of the published models, keyed by printed name in lower case."""
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
    """Group the items of all tasks by benchmark, model and length."""
    groups = defaultdict(list)
    for item in items:
        groups[_name_benchmark(item.task), item.model, item.length].append(item)
    return groups


@cache
def read_posq_systems() -> Sequence[PosqSystem]:
    """Read the scores from both versions of the paper: 20 systems on SQuAD-PosQ, 19 on FineWeb-PosQ
    and 12 on the first release of FineWeb-PosQ.
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


def list_published_rows(task: str) -> list[PublishedRow]:
    """List the published rows of a task, sorted by descending nDCG@10 of the model, then by length.

    `PosIR` and `PosIR(cross-lingual)` select the macro averages over their tasks. The list is empty
    for tasks without published results.
    """
    rows = [row for row in _build_all_rows() if row.task == task]
    overall = {row.model: row.ndcg_at_10 for row in rows if row.length == ALL}
    return sorted(rows, key=lambda row: (-overall[row.model], row.model, LENGTHS.index(row.length)))


def list_published_tasks() -> Sequence[str]:
    """List the tasks with published rows, starting with the averages."""
    return [*dict.fromkeys(row.task for row in _build_all_rows())]


@cache
def _build_all_rows() -> Sequence[PublishedRow]:
    rows = []
    for line in read_rows("posir.csv"):
        key = (_name_posir_task(line), line["model"], line["length_bucket"])
        scores = (float(line["ndcg_at_10"]), float(line["psi"]))
        rows.append(_build_row(*key, *scores, POSIR_SOURCE))
    # The paper averages in the same way: the ten monolingual tasks reproduce its Table 2 (arXiv
    # 2601.08363v1).
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
        notable_by_task = find_notable_bias(psi_by_task)
        rows.append(replace(row, notable_bias=notable_by_task.get(system.task)))
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
        # The numbers of queries in length buckets are not published.
        queries, is_exact = find_query_count(task)
    bounds: tuple[float | None, float | None] = (None, None)
    if task in BUCKET_QUERIES:
        bounds = bound_null_psi(ndcg_at_10, BUCKET_QUERIES[task])
    return PublishedRow(model, task, length, queries, is_exact, ndcg_at_10, psi, *bounds, source)


def find_query_count(task: str) -> tuple[int | None, bool]:
    """Return the published number of queries of a task or benchmark, or None, and whether it is
    exact.
    """
    if task in TASK_QUERIES:
        return TASK_QUERIES[task], task not in ROUNDED_QUERIES
    if task.startswith("PosIR-") and not task.endswith("-Nano"):
        return LANGUAGE_QUERIES, False
    return None, False


def bound_null_psi(score: float, queries: Sequence[int]) -> tuple[float, float]:
    """Compute upper bounds of the mean and 95th percentile of PSI if position has no effect.

    The variance of scores over queries is not published. For a given mean it is largest if every
    query scores 0 or 1, which is simulated with binomial distributions. Scores of 0 and 1 dominate
    other scores with the same mean in convex order (Shaked & Shanthikumar 2007, Stochastic Orders,
    3.A), and best minus worst bucket is a convex function of the scores, so its simulated mean is
    an upper bound. The bounds of PSI and its percentile are normal approximations. A published PSI
    above the bound exceeds chance; a PSI below it is inconclusive.

    Args:
        score: Mean score in (0, 1].
        queries: Number of queries per bucket, greater than 0.
    """
    rng = np.random.default_rng(SEED)
    null_psi = compute_psi(
        rng.binomial(queries, score, (SIMULATIONS, len(queries))) / np.asarray(queries)
    )
    return float(null_psi.mean()), float(np.quantile(null_psi, 0.95))


def find_notable_bias(observed: Mapping[str, float]) -> dict[str, bool]:
    """Return whether a model's bias is notable, by task, given its PSI by task. Tasks without a
    result on the other dataset are omitted.
    """
    notable_by_task: dict[str, bool] = {}
    for suffix in SAMPLE_SUFFIXES:
        pair = (SQUAD + suffix, FINEWEB + suffix)
        if observed.keys() >= set(pair):
            is_notable = min(observed[name] for name in pair) >= NOTABLE_PSI
            notable_by_task |= dict.fromkeys(pair, is_notable)
    return notable_by_task


def format_notable(notable: bool | None) -> str | None:
    """Format a notable bias as `yes`, `no` or None."""
    return {None: None, True: "yes", False: "no"}[notable]


@cache
def list_published_bins(task: str) -> Sequence[PublishedBin]:
    """List the published position bins of a task in the order of `list_published_rows`: bins over
    all lengths for PosQ, and the bins of all precisely digitized curves for PosIR.
    """
    systems = {system.model: system for system in read_posq_systems() if system.task == task}
    bins = []
    for row in list_published_rows(task):
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
    """Read PosIR's digitized curves, keyed by task, model and length, starting with averages.

    506 of 720 curves (10 models x 18 language pairs x 4 length buckets) are precise enough.
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


def list_published_curves(task: str) -> list[PositionCurve]:
    """List the digitized curves of a PosIR task or average, sorted by model and length."""
    curves = [curve for curve in read_curves().values() if curve.task == task]
    return sorted(curves, key=lambda curve: (curve.model.casefold(), LENGTHS.index(curve.length)))


def find_curve(task: str, model: str, length: str) -> PositionCurve | None:
    """Return a digitized curve, or None if it is not precise enough."""
    return read_curves().get((task, model, length))


@dataclass(frozen=True)
class MMTEBCorrelation:
    """Rank correlation over models between PosIR's nDCG@10 and the MMTEB retrieval score."""

    length: str
    """`all`, or `Q1` to `Q4`."""
    models: int
    rho: float
    """Spearman's rho in [-1, 1]."""
    p_value: float
    """Two-sided p-value in [0, 1], not corrected for the number of lengths."""
    p_corrected: float
    """P-value after Holm's correction for the five lengths."""
    printed_rho: float
    printed_p_value: float
    """P-value in the paper, truncated to one digit."""
    printed_reading: str
    """Interpretation in the paper."""
    source: str


def read_mmteb_scores() -> dict[str, float]:
    """Read the MMTEB retrieval scores, x 100, of the 10 models in PosIR (Zeng et al. 2026, arXiv
    2601.08363v1).
    """
    return {row["model"]: float(row["mmteb_retrieval"]) for row in read_rows("mmteb.csv")}


def correlate_with_mmteb() -> list[MMTEBCorrelation]:
    """Correlate MMTEB with PosIR's macro average over the ten monolingual tasks, by length."""
    # Slow to import.
    from scipy.stats import spearmanr

    mmteb = read_mmteb_scores()
    posir = {(row.length, row.model): row.ndcg_at_10 for row in list_published_rows(MONOLINGUAL)}
    correlations = [
        spearmanr([posir[length, model] for model in mmteb], list(mmteb.values()))
        for length in PRINTED_CORRELATIONS
    ]
    corrected_p_values = correct_by_holm([float(result.pvalue) for result in correlations])
    rows = []
    for (length, printed_values), result, p_corrected in zip(
        PRINTED_CORRELATIONS.items(), correlations, corrected_p_values, strict=True
    ):
        values = (float(result.statistic), float(result.pvalue), p_corrected)
        rows.append(MMTEBCorrelation(length, len(mmteb), *values, *printed_values, POSIR_SOURCE))
    return rows


@dataclass(frozen=True)
class TrainingScore:
    """A published measure of a trained model."""

    data: str
    """Task, or the paper's description of its datasets."""
    model: str
    """Printed name of the base model, or a mean over models."""
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
    """Read the published measures of trained models, in the order of the papers' tables."""
    scores = []
    for row in read_rows("training.csv"):
        source = TRAINING_SOURCES[row.pop("table")]
        value = float(row.pop("value"))
        scores.append(TrainingScore(**row, value=value, source=source))
    return scores


def compute_psi_reductions(scores: Iterable[TrainingScore]) -> Iterator[TrainingScore]:
    """Yield the reduction of PSI by balanced training, 1 - balanced PSI / worst skewed PSI.

    The paper reports 57 to 87% on SQuAD-PosQ (arXiv 2605.26578v1, Section 5).
    """
    psi_scores = (score for score in scores if score.measure == PSI)
    for _, group in groupby(psi_scores, key=lambda score: (score.source, score.data, score.model)):
        scores_by_training = {score.training: score for score in group}
        balanced = scores_by_training.pop(BALANCED_TRAINING)
        worst = max(score.value for score in scores_by_training.values())
        reduction = 1 - balanced.value / worst
        source = f"computed from {balanced.source}"
        yield replace(balanced, measure=PSI_REDUCTION, value=reduction, source=source)
