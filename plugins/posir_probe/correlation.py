"""Rank correlations over models: probes with position bias, and model properties with scores.

Probes are correlated with the position effect (the controlled test), with start minus end (in the
observed data) and with the published PSI.

Variants of one model (the same weights with another window, or mitigated) are not independent, so
they form a family. In a simulation of 12 families with 3 variants each, whose values correlate .7
within families (`benchmarks/correlate_coverage.py`), the interval for independent models covered
the true correlation in 82 to 86% of 300 runs, the jackknife over families in 94 to 95%.

For model properties, PosIR (Zeng et al. 2026, arXiv 2601.08363) reports no clear relation of PSI to
size, dimension, attention and pooling (Section 4.2, without numbers), and Spearman's rho of nDCG@10
with the MMTEB retrieval score by document length (Table 2).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kruskal, rankdata, spearmanr, t

from posir_probe.model_means import read_main_scores
from posir_probe.probe import Probe
from posir_probe.results import ProbeResult
from posir_published.probes import Architecture, Kind, short_name
from posir_published.rows import published_rows, published_tasks, read_mmteb_scores
from posir_report.summary import TaskSummary, build_rows
from posir_significance.correction import correct_p_values
from posir_significance.findings import Prediction
from posir_significance.messages.probes import describe_predictions, label_needed, label_prediction
from posir_tasks.base.arrays import Floats
from posir_tasks.base.errors import DataError, PosirError, summarize_error
from posir_tasks.base.records import Fields
from posir_tasks.base.untrusted import read_csv_rows, read_json
from posir_tasks.base.wording import drop_organization
from posir_tasks.display.numbers import (
    format_estimate,
    format_number,
    format_p_value,
)
from posir_tasks.display.tables import Role, Table, build_columns
from posir_tasks.values.estimates import Estimate, Interval
from posir_tasks.values.means import ALPHA
from posir_tasks.values.scores import ALL

if TYPE_CHECKING:
    from posir_tasks.results import SubsetResult

#: Names of the scores to correlate with.
POSITION_EFFECT = "position effect"
START_MINUS_END = "start minus end"
PSI = "PSI as published"
NDCG = "nDCG@10"
#: The scores that measure position bias.
BIAS = (POSITION_EFFECT, START_MINUS_END, PSI)
#: Keys of the scores, by name.
SCORE_KEYS = {
    POSITION_EFFECT: "position_effect",
    START_MINUS_END: "start_minus_end",
    PSI: "psi_as_published",
    NDCG: "ndcg_at_10",
}
FAMILY_FILE = "a file with the columns model,family"
SCORE_FILE = "a CSV file with the columns model,score"
#: Minimum number of models for a correlation, and of independent models for its interval.
MIN_MODELS, MIN_FOR_INTERVAL = 3, 5
#: Standard normal quantiles for a two-sided 95% interval and for a power of 80%.
Z, Z_POWER = 1.959964, 0.841621
PERMUTATIONS, SEED = 9_999, 1
#: Maximum number that `count_needed` returns.
MAX_NEEDED = 10_000
#: A larger correlation counts as complete agreement, where Fisher's z is infinite.
COMPLETE = 1 - 1e-12
#: Name of the benchmark whose scores the PosIR paper publishes.
MMTEB = Path("MMTEB")
#: Numeric model properties, with their fields in mteb's metadata.
NUMBERS = {"parameters": "n_parameters", "dimension": "embed_dim"}
#: Model and revision.
ModelKey: TypeAlias = tuple[str, str]
#: Task, length and name of a score.
ScoreKey: TypeAlias = tuple[str, str, str]
#: Values by `short_name` of the model.
ByModel: TypeAlias = dict[str, float]
NOTES = (
    "Spearman: over models, of a probe's first summary. Against the position effect and start "
    "minus end, positive values of the summary favor the start; against PSI, which has no sign, "
    "it is the distance from no preference. 95% intervals: for new models; if some are variants "
    "of one (a family), for new families. p: permutation of families, Holm-corrected for the "
    "probes of a task and score. Needed: number of independent models for an interval that "
    "excludes 0 in 80% of cases, if this were the true correlation.",
)
DETAILS = (
    "Variants of a model (MODEL+METHOD, and those listed with --families) are not independent. "
    "With families, the interval is a jackknife over families on Fisher's z with Student's t; "
    "otherwise it is that of Bonett & Wright (2000). A probe predicts a score if p < 0.05 and the "
    "interval excludes 0; otherwise the result is inconclusive.",
    "A probe on the data of a task is correlated with that task only; a probe on other data is "
    "correlated with every task. Probes with the same value for all models, such as those that "
    "depend only on the data, are omitted. The models in a folder are not a random sample: the "
    "results may not hold for other kinds of models.",
)
MODEL_NOTE = (
    "Value: Spearman's rho over models, or epsilon squared, the share of the variance of ranks "
    "between kinds. p is two-sided; 5% of unrelated pairs have p < 0.05. p corrected: by Holm's "
    "method for the lengths and factors of a task and score. The models are not a random sample, "
    "and versions of one model are not independent. PSI: as published, including the part due to "
    "chance."
)


@dataclass(frozen=True)
class ProbeCorrelation:
    """Spearman's rho of a probe's summary and a retrieval score over models."""

    probe: str
    data: str
    summary: str
    task: str
    score: str
    models: int
    families: int
    """Number of independent groups of models; the number of models if none are variants."""
    rho: Estimate | None
    """None with fewer than three models or a constant value."""
    p_value: float | None
    """Two-sided, Holm-corrected for the probes of a task and score."""
    needed: int | None
    """Number of independent models for an interval that excludes 0, with a power of 80% at this
    correlation; None if over 10,000 or unknown.
    """
    verdict: Prediction = Prediction.INCONCLUSIVE


def correlate_probes(
    results: Iterable[ProbeResult],
    summaries: Iterable[TaskSummary],
    probes: Mapping[str, Probe],
    families: Mapping[str, str] | None = None,
) -> list[ProbeCorrelation]:
    """Correlate the first summary of each probe with the bias scores of each task.

    Each correlation is over the models that have both values. Probe results on the data of a task
    are correlated with that task only. `families` is as in `find_family`.
    """
    scores = collect_scores(summaries, BIAS)
    tasks = {task for task, _, _ in scores}
    values_by_probe = defaultdict[tuple[str, str], dict[ModelKey, float]](dict)
    for result in results:
        probe = probes.get(result.probe)
        estimate = probe and result.sums.estimate(probe.first_summary)
        if estimate and result.experiment is None:
            key = (result.model, result.revision)
            values_by_probe[result.probe, result.data][key] = estimate.value
    rows: list[ProbeCorrelation] = []
    for (name, data), values in values_by_probe.items():
        for (task, length, score), by_model in scores.items():
            if length != ALL or data in tasks - {task}:
                continue
            models = sorted(values.keys() & by_model.keys())
            x = np.array([orient(values[model], probes[name], score) for model in models])
            if len(models) >= MIN_MODELS and np.ptp(x) == 0:
                continue
            labels = [find_family(model, families or {}) for model, _ in models]
            y = np.array([by_model[model] for model in models])
            rho, p_value = estimate_rho(x, y, labels)
            row = ProbeCorrelation(
                probe=name,
                data=data,
                summary=next(iter(probes[name].summaries)),
                task=task,
                score=score,
                models=len(models),
                families=len(set(labels)),
                rho=rho,
                p_value=p_value,
                needed=count_needed(rho.value) if rho else None,
            )
            rows.append(row)
    groups = [(row.task, row.score) for row in rows]
    p_values = correct_p_values([row.p_value for row in rows], groups)
    corrected_rows = []
    for row, p_value in zip(rows, p_values, strict=True):
        verdict = judge(row.rho, row.families, p_value)
        corrected_rows.append(replace(row, p_value=p_value, verdict=verdict))
    return sorted(corrected_rows, key=lambda row: (row.task, row.score))


def collect_scores(
    summaries: Iterable[TaskSummary], names: Iterable[str]
) -> dict[ScoreKey, dict[ModelKey, float]]:
    """Collect scores by task, length and name, then by model.

    For a length bucket, nDCG@10 is averaged as in the papers.
    """
    scores = defaultdict[ScoreKey, dict[ModelKey, float]](dict)
    for summary in summaries:
        for row in build_rows(summary):
            for name in names:
                estimate = row.get_estimate(SCORE_KEYS[name])
                if name == NDCG and row.length != ALL:
                    estimate = row.ndcg_at_10_as_published
                if estimate is not None:
                    key = (summary.model, summary.revision)
                    scores[summary.task, row.length, name][key] = estimate.value
    return scores


def orient(value: float, probe: Probe, score: str) -> float:
    """Orient a summary so that a positive correlation is expected.

    The result is the preference for the start. For PSI, which has no sign, it is the size of the
    preference. Summaries of probes without a preferred direction are unchanged.
    """
    if not probe.preference_sign:
        return value
    return abs(value) if score == PSI else probe.preference_sign * value


def read_families(file: Path) -> dict[str, str]:
    """Read families by model from a CSV file with the columns `model` and `family`.

    Raises:
        DataError: The file cannot be read or lacks a column.
    """
    rows = read_csv_rows(file, ("model", "family"), FAMILY_FILE)
    return {row["model"]: row["family"] for row in rows}


def find_family(model: str, families: Mapping[str, str]) -> str:
    """Find the family of a model, with or without its mitigation and its organization.

    A model without an entry belongs to the family of its base model.
    """
    base = model.split("+")[0]
    names = (model, drop_organization(model), base, drop_organization(base))
    return next((families[name] for name in names if name in families), base)


def judge(rho: Estimate | None, independent: int, p_value: float | None) -> Prediction:
    """Return the verdict on a correlation over `independent` models or families."""
    if rho is None or independent < MIN_FOR_INTERVAL:
        return Prediction.INCONCLUSIVE
    low, high = rho.interval or (rho.value, rho.value)
    if low <= 0 <= high or p_value is None or p_value >= ALPHA:
        return Prediction.INCONCLUSIVE
    return Prediction.PREDICTS if rho.value > 0 else Prediction.OPPOSITE


def describe_correlations(rows: Sequence[ProbeCorrelation]) -> list[str]:
    """For each score, describe the probes that predict it on all or on some tasks."""
    sentences = []
    for score in dict.fromkeys(row.score for row in rows):
        tasks = dict.fromkeys(row.task for row in rows if row.score == score)
        verdicts: dict[str, Counter[Prediction]] = defaultdict(Counter)
        for row in rows:
            if row.score == score:
                verdicts[row.probe][row.verdict] += 1
        sentences.append(describe_predictions(score, list(tasks), verdicts))
    return sentences


def build_table(rows: Sequence[ProbeCorrelation]) -> Table:
    """Build a table with a row per probe, task and score."""
    names = ("Task", "Retrieval score", "Probe", "Data", "Summary")
    numbers = ("Models", "Families", "Spearman", "p", "Needed")
    columns = build_columns((*names, *numbers, "Verdict"), numbers, roles={"Task": Role.NAME})
    cells = [
        (
            row.task,
            row.score,
            row.probe,
            row.data,
            row.summary,
            str(row.models),
            str(row.families),
            format_estimate(row.rho, format_rho),
            format_p_value(row.p_value),
            label_needed(row.needed, MAX_NEEDED) if row.rho else format_rho(None),
            label_prediction(row.verdict),
        )
        for row in rows
    ]
    return Table(columns, tuple(cells), split_by="{Task} · {Retrieval score}", keys=1)


def format_rho(rho: float | None) -> str:
    """Format a correlation: `0.62`."""
    return format_number(rho, ".2f")


def estimate_rho(
    x: Floats, y: Floats, families: Sequence[str] | None = None
) -> tuple[Estimate | None, float | None]:
    """Estimate Spearman's rho over n models with its 95% interval and two-sided p-value.

    Args:
        x: Values of one variable, shape (n,).
        y: Values of the other, shape (n,).
        families: Family of each model, to permute and resample whole families. By default, models
            are independent.

    Returns:
        The correlation and the p-value, or None for both with fewer than three models or a constant
        variable.
    """
    if _is_undefined(x, y):
        return None, None
    result = spearmanr(x, y)
    rho = float(result.statistic)
    interval = find_interval(rho, len(x))
    if families is None:
        return Estimate(rho, interval), float(result.pvalue)
    labels = np.unique(families, return_inverse=True)[1]
    if len(set(families)) < len(families):
        interval = jackknife_interval(x, y, labels)
    return Estimate(rho, interval), permutation_p_value(x, y, labels)


def _is_undefined(x: Floats, y: Floats) -> bool:
    return len(x) < MIN_MODELS or np.ptp(x) == 0 or np.ptp(y) == 0


def find_interval(rho: float, models: int) -> Interval | None:
    """Compute the 95% interval of Spearman's rho over independent models.

    Fisher's z with variance (1 + rho^2 / 2) / (n - 3) (Bonett & Wright 2000, Psychometrika 65,
    23-28). None with fewer than five models or complete agreement.
    """
    if models < MIN_FOR_INTERVAL or abs(rho) > COMPLETE:
        return None
    return _widen(rho, Z * math.sqrt((1 + rho**2 / 2) / (models - 3)))


def _widen(rho: float, half: float) -> Interval:
    """Return the interval around a correlation, given its half width in Fisher's z."""
    z = math.atanh(rho)
    return math.tanh(z - half), math.tanh(z + half)


def jackknife_interval(x: Floats, y: Floats, families: NDArray[np.intp]) -> Interval | None:
    """Compute the 95% interval of Spearman's rho for new families.

    Fisher's z with the delete-one-cluster jackknife over families and Student's t with one degree
    of freedom fewer than families (Cameron & Miller 2015, Journal of Human Resources 50, 317-372).
    All arguments have the shape (n,). None with fewer than five families or complete agreement.
    """
    samples = [families != family for family in np.unique(families)]
    count = len(samples)
    if count < MIN_FOR_INTERVAL or any(_is_undefined(x[rows], y[rows]) for rows in samples):
        return None
    rho = float(spearmanr(x, y).statistic)
    replicates = [float(spearmanr(x[rows], y[rows]).statistic) for rows in samples]
    if max(map(abs, [rho, *replicates])) > COMPLETE:
        return None
    error = math.sqrt((count - 1) * np.var(np.arctanh(replicates)))
    return _widen(rho, t.ppf(0.975, count - 1) * error)


def permutation_p_value(x: Floats, y: Floats, families: NDArray[np.intp]) -> float:
    """Compute the two-sided p-value of no correlation, (hits + 1) / (permutations + 1).

    Families of `y` are permuted as blocks, and their models within them. This is exact for
    independent models and for families of equal size (Winkler et al. 2015, NeuroImage 123, 253-268,
    whole-block exchangeability).
    """
    order = np.argsort(families, kind="stable")
    x_ranks, y_ranks = (rankdata(values[order]) - (len(x) + 1) / 2 for values in (x, y))
    orders = permute_families(tuple(families[order].tolist()))
    sums = np.abs(y_ranks[orders] @ x_ranks)
    hits = np.count_nonzero(sums >= abs(x_ranks @ y_ranks) - 1e-9)
    return (hits + 1) / (PERMUTATIONS + 1)


@lru_cache(maxsize=8)
def permute_families(families: tuple[int, ...]) -> NDArray[np.intp]:
    """Sample random orders of models that keep families together, shape (PERMUTATIONS, n)."""
    rng = np.random.default_rng(SEED)
    numbers = np.unique(families, return_inverse=True)[1]
    ranks = rng.random((PERMUTATIONS, numbers.max() + 1)).argsort()
    within = rng.random((PERMUTATIONS, len(families)))
    return np.argsort(ranks[:, numbers] + within)


def count_needed(rho: float) -> int | None:
    """Compute the number of independent models for an interval that excludes 0, with 80% power.

    From the variance of `find_interval`: n = 3 + (1 + rho^2 / 2) ((z_.975 + z_.80) / atanh rho)^2
    (the sample size for an interval of Bonett & Wright 2000, with the power added). None if over
    `MAX_NEEDED`.
    """
    strength = math.atanh(min(abs(rho), 0.999))
    number = 3 + (1 + rho**2 / 2) * ((Z + Z_POWER) / strength) ** 2 if strength else math.inf
    return max(MIN_FOR_INTERVAL, math.ceil(number)) if number < MAX_NEEDED else None


@dataclass(frozen=True)
class ModelCorrelation:
    """Correlation of a score with a model property."""

    task: str
    length: str
    score: str
    factor: str
    """`parameters`, `dimension`, `attention` and so on, or the name of a benchmark."""
    models: int
    groups: str
    """Number of models of each kind; empty for a numeric factor."""
    test: str
    """`Spearman` for numbers, `Kruskal-Wallis` for kinds (Kruskal & Wallis 1952)."""
    value: Estimate | None
    """Spearman's rho in [-1, 1], with an interval from five models on; or epsilon squared in
    [0, 1], the share of the variance of ranks between kinds, without an interval.
    """
    p_value: float | None
    """Two-sided, not corrected."""
    p_corrected: float | None = None
    """Holm-corrected for the lengths and factors of a task and score."""


def correct_rows(rows: Sequence[ModelCorrelation]) -> list[ModelCorrelation]:
    """Correct the p-values for the lengths and factors of each task and score."""
    groups = [(row.task, row.score) for row in rows]
    p_values = correct_p_values([row.p_value for row in rows], groups)
    return [replace(row, p_corrected=p_value) for row, p_value in zip(rows, p_values, strict=True)]


def read_scores(
    summaries: Iterable[TaskSummary], names: Sequence[str], *, published: bool
) -> dict[ScoreKey, ByModel]:
    """Collect scores by model from summaries; with `published`, also from the papers.

    A model's own result takes precedence over its published scores.
    """
    scores: dict[ScoreKey, ByModel] = {}
    for key, values in collect_scores(summaries, names).items():
        scores[key] = {short_name(model): value for (model, _), value in values.items()}
    for task in published_tasks() if published else ():
        for row in published_rows(task):
            for name, value in ((NDCG, row.ndcg_at_10), (PSI, row.psi_as_published)):
                if name in names:
                    by_model = scores.setdefault((task, row.length, name), {})
                    by_model.setdefault(short_name(row.model), value)
    return scores


def read_model_metas(results: Path | None) -> dict[str, Fields]:
    """Read the metadata of mteb's registered models and of the models in a results folder.

    Models are keyed by `short_name`.

    Raises:
        PosirError: A `model_meta.json` is damaged.
    """
    from mteb.models.model_implementations import MODEL_REGISTRY

    metas: dict[str, Fields] = {
        short_name(name): meta.to_dict() for name, meta in MODEL_REGISTRY.items()
    }
    for file in sorted(results.rglob("model_meta.json")) if results else ():
        try:
            meta = read_json(file)
            metas[short_name(meta["name"])] = meta
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise PosirError(
                f"{file}: not the metadata of a model ({summarize_error(error)})."
            ) from error
    return metas


def correlate_architecture(
    scores: Mapping[ScoreKey, ByModel],
    metas: Mapping[str, Fields],
    architectures: Mapping[str, Architecture],
) -> list[ModelCorrelation]:
    """Correlate scores with model size and dimension, and compare kinds of architecture."""
    factors = {factor: _read_numbers(metas, field) for factor, field in NUMBERS.items()}
    rows = []
    for key, by_model in scores.items():
        for factor, numbers in factors.items():
            rows.append(correlate_values(key, factor, by_model, numbers))
        for kind in Kind:
            groups = defaultdict[str, list[float]](list)
            for model, value in by_model.items():
                if name := getattr(architectures.get(model), kind, ""):
                    groups[name].append(value)
            rows.append(_compare_kinds(key, kind, groups))
    return rows


def _read_numbers(metas: Mapping[str, Fields], field: str) -> ByModel:
    """Read a numeric field by model, taking the largest number of a list, as mteb does."""
    values: ByModel = {}
    for name, meta in metas.items():
        numbers = np.ravel(meta.get(field) or 0)
        if np.issubdtype(numbers.dtype, np.number) and numbers.max():
            values[name] = float(numbers.max())
    return values


def _compare_kinds(
    key: ScoreKey, kind: Kind, groups: Mapping[str, Sequence[float]]
) -> ModelCorrelation:
    """Test whether a score differs between kinds of models."""
    values = [value for group in groups.values() for value in group]
    model_count = len(values)
    counts = ", ".join(f"{name} {len(group)}" for name, group in sorted(groups.items()))
    row = ModelCorrelation(*key, kind, model_count, counts, "Kruskal-Wallis", None, None)
    if not 2 <= len(groups) < model_count or np.ptp(values) == 0:
        return row
    result = kruskal(*groups.values())
    share = Estimate(float(result.statistic) / (model_count - 1))
    return replace(row, value=share, p_value=float(result.pvalue))


def correlate_values(
    key: ScoreKey, factor: str, scores: ByModel, values: ByModel
) -> ModelCorrelation:
    """Correlate a score with another value, over the models that have both."""
    models = sorted(scores.keys() & values.keys())
    x = np.array([values[name] for name in models])
    y = np.array([scores[name] for name in models])
    return ModelCorrelation(*key, factor, len(models), "", "Spearman", *estimate_rho(x, y))


def read_benchmark(source: Path, results: Iterable[SubsetResult] = ()) -> ByModel:
    """Read the score of each model on a benchmark, by `short_name`.

    Args:
        source: `MMTEB` for the published scores of PosIR's models, a CSV file with the columns
            `model` and `score`, or an `--output-folder` of `mteb run`. In a folder, the score is
            the mean of the main scores over the tasks, splits and subsets that all models share.
        results: Results in the folder whose tasks are excluded, such as position-aware tasks.

    Raises:
        PosirError: There are no scores, or one is not a number.
    """
    if source == MMTEB:
        return {short_name(model): score for model, score in read_mmteb_scores().items()}
    scores: ByModel = {}
    if source.is_dir():
        scores = _average_shared(source, {result.task for result in results})
    else:
        for number, row in enumerate(read_csv_rows(source, ("model", "score"), SCORE_FILE), 2):
            try:
                scores[short_name(row["model"])] = float(row["score"])
            except ValueError as error:
                raise DataError(
                    f"{source}: row {number}: field 'score': {row['score']!r} is not a number."
                ) from error
    if not scores:
        raise PosirError(
            f"{source}: no scores of a benchmark. Give MMTEB, {SCORE_FILE}, or results of `mteb "
            "run`."
        )
    return scores


def _average_shared(source: Path, excluded_tasks: set[str]) -> ByModel:
    """Average the main scores of each model in a folder of mteb results.

    Only splits and subsets that every model has results on are included, averaged by task first, so
    that all means are over the same data.
    """
    frame = read_main_scores(source)
    if frame is None:
        return {}
    frame = frame[~frame["task_name"].isin(excluded_tasks)]
    counts = frame.groupby(["task_name", "split", "subset"])["model_name"].transform("size")
    shared_rows = frame[counts == frame["model_name"].nunique()]
    by_task = shared_rows.groupby(["model_name", "task_name"])["score"].mean()
    means = by_task.groupby("model_name").mean()
    return {short_name(model): score for model, score in means.to_dict().items()}


def build_model_table(rows: Sequence[ModelCorrelation]) -> Table:
    """Build a table with a row per task, length, score and factor."""
    numbers = ("Models", "Value", "p", "p corrected")
    headings = ("Task", "Score", "Length", "Factor", "Models", "Kinds", "Test", *numbers[1:])
    cells = [
        (
            row.task,
            row.score,
            row.length,
            row.factor,
            str(row.models),
            row.groups,
            row.test,
            format_estimate(row.value, format_rho),
            format_p_value(row.p_value),
            format_p_value(row.p_corrected),
        )
        for row in rows
    ]
    columns = build_columns(headings, numbers, roles={"Task": Role.NAME})
    return Table(columns, tuple(cells), notes=(MODEL_NOTE,), split_by="{Task} · {Score}", keys=2)
