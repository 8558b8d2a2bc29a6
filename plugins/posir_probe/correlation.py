"""Rank correlations over models: probes with position bias, and model properties with scores.

Probes are correlated with the position effect (the controlled test), start minus end (the observed
data) and PSI as published.

Variants of a model (the same weights with another window or a mitigation) are not independent, so
they form a family. `benchmarks/correlate_coverage.py` simulates 12 families with 3 variants each,
whose values correlate at .7 within families. Of 300 runs, the interval for independent models
covered the true correlation in 82 to 86%, and the jackknife over families in 94 to 95%.

PosIR (Zeng et al. 2026, arXiv 2601.08363) reports no clear relation between PSI and size,
dimension, attention and pooling (Section 4.2, without numbers). Its Table 2 contains Spearman's rho
of nDCG@10 with the MMTEB retrieval score by document length.
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
from posir_published.probes import Architecture, ArchitectureProperty, normalize_model_name
from posir_published.rows import list_published_rows, list_published_tasks, read_mmteb_scores
from posir_report.summary import TaskSummary, build_rows
from posir_significance.correction import correct_p_values
from posir_significance.findings import Prediction
from posir_significance.messages.probes import describe_predictions, label_needed, label_prediction
from posir_tasks.base.arrays import Floats
from posir_tasks.base.errors import DataError, PosirError, summarize_error
from posir_tasks.base.records import Fields
from posir_tasks.base.untrusted import read_csv_rows, read_json
from posir_tasks.base.wording import drop_organization
from posir_tasks.display.labels import Term, Title
from posir_tasks.display.numbers import format_estimate, format_number, format_p_value
from posir_tasks.display.tables import Role, Table, build_columns
from posir_tasks.values.estimates import Estimate, Interval
from posir_tasks.values.means import ALPHA
from posir_tasks.values.scores import ALL

if TYPE_CHECKING:
    from posir_tasks.results import SubsetResult

#: Score names.
POSITION_EFFECT = "position effect"
START_MINUS_END = "start minus end"
PSI = "PSI as published"
NDCG = "nDCG@10"
#: The scores that measure position bias.
BIAS_SCORES = (POSITION_EFFECT, START_MINUS_END, PSI)
#: Score keys by name.
SCORE_KEYS = {
    POSITION_EFFECT: "position_effect",
    START_MINUS_END: "start_minus_end",
    PSI: "psi_as_published",
    NDCG: "ndcg_at_10",
}
FAMILY_FILE = "a file with the columns model,family"
SCORE_FILE = "a CSV file with the columns model,score"
#: Minimum number of models for a correlation, and of independent models for an interval.
MIN_MODELS, MIN_FOR_INTERVAL = 3, 5
#: Standard normal quantiles for a two-sided 95% interval and for a power of 80%.
Z, Z_POWER = 1.959964, 0.841621
PERMUTATIONS, SEED = 9_999, 1
#: Maximum number that `count_needed` returns.
MAX_NEEDED = 10_000
#: Larger correlations count as complete agreement, for which Fisher's z is infinite.
MAX_RHO = 1 - 1e-12
#: Name of the benchmark whose scores the PosIR paper publishes.
MMTEB = Path("MMTEB")
#: Numeric model properties and their fields in mteb's metadata.
NUMERIC_FACTORS = {"parameters": "n_parameters", "dimension": "embed_dim"}
#: Model and revision.
ModelKey: TypeAlias = tuple[str, str]
#: Task, length bucket and score name.
ScoreKey: TypeAlias = tuple[str, str, str]
#: Values by the model's `normalize_model_name`.
ValuesByModel: TypeAlias = dict[str, float]
NOTES = (
    Term(
        "Spearman",
        "correlation over models between a probe's first summary and a retrieval score. For the "
        "position effect and start minus end, positive summaries favor the start. For PSI, which "
        "has no sign, the summary's distance from no preference is used. 95% intervals: for new "
        "models, or for new families if some models are variants of one model (a family). p: "
        "permutation of families, Holm-corrected over the probes of a task and score. Needed: "
        "number of independent models for an interval that excludes 0 in 80% of cases, if this "
        "were the true correlation.",
    ),
)
DETAILS = (
    "Variants of a model (MODEL+METHOD, or listed with --families) are not independent. With "
    "families, the interval is a jackknife over families on Fisher's z with Student's t; otherwise "
    "it follows Bonett & Wright (2000). A probe predicts a score if p < 0.05 and the interval "
    "excludes 0; otherwise the result is inconclusive.",
    "A probe on a task's data is correlated only with that task, and a probe on other data with "
    "every task. Probes with the same value for all models, such as probes of the data, are "
    "omitted. The models in a folder are not a random sample, so the results may not generalize to "
    "other kinds of models.",
)
MODEL_NOTE = (
    "Value: Spearman's rho over models, or epsilon squared, the share of rank variance between "
    "kinds. p is two-sided; 5% of unrelated pairs have p < 0.05. p corrected: by Holm's method, "
    "over the lengths and factors of a task and score. The models are not a random sample, and "
    "versions of a model are not independent. PSI: as published, including the part due to chance."
)


@dataclass(frozen=True)
class ProbeCorrelation:
    """Spearman's rho over models between a probe's first summary and a retrieval score."""

    probe: str
    data: str
    summary: str
    task: str
    score: str
    models: int
    families: int
    """Number of independent groups of models. Equals `models` if none are variants."""
    rho: Estimate | None
    """None if there are fewer than three models, or if all have the same value."""
    p_value: float | None
    """Two-sided p-value, Holm-corrected over the probes of a task and score."""
    needed: int | None
    """Number of independent models for an interval that excludes 0 with 80% power, if `rho` is the
    true correlation. None if over 10,000 or if `rho` is None.
    """
    verdict: Prediction = Prediction.INCONCLUSIVE


def correlate_probes(
    results: Iterable[ProbeResult],
    summaries: Iterable[TaskSummary],
    probes: Mapping[str, Probe],
    families: Mapping[str, str] | None = None,
) -> list[ProbeCorrelation]:
    """Correlate the first summary of each probe with the bias scores of each task.

    Each correlation is over the models that have both values. Probe results on a task's data are
    correlated only with that task. `families` maps models to families, as in `find_family`.
    """
    scores = collect_scores(summaries, BIAS_SCORES)
    tasks = {task for task, _, _ in scores}
    probe_values = defaultdict[tuple[str, str], dict[ModelKey, float]](dict)
    for result in results:
        probe = probes.get(result.probe)
        estimate = probe and result.sums.estimate(probe.first_summary)
        if estimate and result.experiment is None:
            key = (result.model, result.revision)
            probe_values[result.probe, result.data][key] = estimate.value
    rows: list[ProbeCorrelation] = []
    for (name, data), values in probe_values.items():
        for (task, length, score), scores_by_model in scores.items():
            if length != ALL or data in tasks - {task}:
                continue
            models = sorted(values.keys() & scores_by_model.keys())
            x = np.array([orient(values[model], probes[name], score) for model in models])
            if len(models) >= MIN_MODELS and np.ptp(x) == 0:
                continue
            model_families = [find_family(model, families or {}) for model, _ in models]
            y = np.array([scores_by_model[model] for model in models])
            rho, p_value = estimate_rho(x, y, model_families)
            row = ProbeCorrelation(
                probe=name,
                data=data,
                summary=next(iter(probes[name].summaries)),
                task=task,
                score=score,
                models=len(models),
                families=len(set(model_families)),
                rho=rho,
                p_value=p_value,
                needed=count_needed(rho.value) if rho else None,
            )
            rows.append(row)
    groups = [(row.task, row.score) for row in rows]
    p_values = correct_p_values([row.p_value for row in rows], groups)
    corrected_rows = []
    for row, p_value in zip(rows, p_values, strict=True):
        verdict = decide_prediction(row.rho, row.families, p_value)
        corrected_rows.append(replace(row, p_value=p_value, verdict=verdict))
    return sorted(corrected_rows, key=lambda row: (row.task, row.score))


def collect_scores(
    summaries: Iterable[TaskSummary], names: Iterable[str]
) -> dict[ScoreKey, dict[ModelKey, float]]:
    """Collect scores by task, length and name, then by model.

    nDCG@10 of a length bucket is averaged as in the papers.
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
    """Orient a summary so that a positive correlation with a score is expected.

    Returns the preference for the start or, for PSI, which has no sign, the size of the preference.
    If the probe measures no preference, the value is returned unchanged.
    """
    if not probe.preference_sign:
        return value
    return abs(value) if score == PSI else probe.preference_sign * value


def read_families(file: Path) -> dict[str, str]:
    """Read families by model from a CSV file with the columns `model` and `family`.

    Raises:
        DataError: The file cannot be read, or a column is missing.
    """
    rows = read_csv_rows(file, ("model", "family"), FAMILY_FILE)
    return {row["model"]: row["family"] for row in rows}


def find_family(model: str, families: Mapping[str, str]) -> str:
    """Find a model's family, by default the name of the base model."""
    base = model.split("+")[0]
    names = (model, drop_organization(model), base, drop_organization(base))
    return next((families[name] for name in names if name in families), base)


def decide_prediction(rho: Estimate | None, families: int, p_value: float | None) -> Prediction:
    """Decide whether a probe predicts a score, from their correlation over families."""
    if rho is None or families < MIN_FOR_INTERVAL:
        return Prediction.INCONCLUSIVE
    low, high = rho.interval or (rho.value, rho.value)
    if low <= 0 <= high or p_value is None or p_value >= ALPHA:
        return Prediction.INCONCLUSIVE
    return Prediction.PREDICTS if rho.value > 0 else Prediction.OPPOSITE


def describe_correlations(rows: Sequence[ProbeCorrelation]) -> list[str]:
    """Describe which probes predict each score, on all tasks or on some."""
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
    return Table(columns, tuple(cells), split_by=Title("{Task}", "{Retrieval score}"), keys=1)


def format_rho(rho: float | None) -> str:
    """Format a correlation, such as `0.62`."""
    return format_number(rho, ".2f")


def estimate_rho(
    x: Floats, y: Floats, families: Sequence[str] | None = None
) -> tuple[Estimate | None, float | None]:
    """Estimate Spearman's rho over n models, with a 95% interval and a two-sided p-value.

    Args:
        x: Values of one variable, shape (n,).
        y: Values of the other variable, shape (n,).
        families: Family of each model, to permute and resample whole families. By default, models
            are assumed to be independent.

    Returns:
        The correlation and the p-value. Both are None if there are fewer than three models, or if a
        variable is constant.
    """
    if _is_undefined(x, y):
        return None, None
    result = spearmanr(x, y)
    rho = float(result.statistic)
    interval = compute_interval(rho, len(x))
    if families is None:
        return Estimate(rho, interval), float(result.pvalue)
    family_indices = np.unique(families, return_inverse=True)[1]
    if len(set(families)) < len(families):
        interval = compute_jackknife_interval(x, y, family_indices)
    return Estimate(rho, interval), compute_permutation_p_value(x, y, family_indices)


def _is_undefined(x: Floats, y: Floats) -> bool:
    return len(x) < MIN_MODELS or np.ptp(x) == 0 or np.ptp(y) == 0


def compute_interval(rho: float, models: int) -> Interval | None:
    """Compute the 95% interval of Spearman's rho over independent models.

    Fisher's z has the variance (1 + rho^2 / 2) / (n - 3) (Bonett & Wright 2000, Psychometrika 65,
    23-28). Returns None if there are fewer than five models, or for complete agreement.
    """
    if models < MIN_FOR_INTERVAL or abs(rho) > MAX_RHO:
        return None
    return _build_interval(rho, Z * math.sqrt((1 + rho**2 / 2) / (models - 3)))


def _build_interval(rho: float, half_width: float) -> Interval:
    """Compute an interval around a correlation from its half width in Fisher's z."""
    z = math.atanh(rho)
    return math.tanh(z - half_width), math.tanh(z + half_width)


def compute_jackknife_interval(x: Floats, y: Floats, families: NDArray[np.intp]) -> Interval | None:
    """Compute the 95% interval of Spearman's rho for new families.

    The standard error of Fisher's z is from a delete-one-cluster jackknife over G families, with
    Student's t on G - 1 degrees of freedom (Cameron & Miller 2015, Journal of Human Resources 50,
    317-372). All arguments have shape (n,). Returns None if there are fewer than five families, or
    for complete agreement.
    """
    masks = [families != family for family in np.unique(families)]
    count = len(masks)
    if count < MIN_FOR_INTERVAL or any(_is_undefined(x[mask], y[mask]) for mask in masks):
        return None
    rho = float(spearmanr(x, y).statistic)
    replicates = [float(spearmanr(x[mask], y[mask]).statistic) for mask in masks]
    if max(map(abs, [rho, *replicates])) > MAX_RHO:
        return None
    error = math.sqrt((count - 1) * np.var(np.arctanh(replicates)))
    return _build_interval(rho, t.ppf(0.975, count - 1) * error)


def compute_permutation_p_value(x: Floats, y: Floats, families: NDArray[np.intp]) -> float:
    """Compute the two-sided p-value for no correlation, (hits + 1) / (permutations + 1).

    Families of `y` are permuted as blocks, and models are permuted within families. The test is
    exact for independent models and for families of equal size (Winkler et al. 2015, NeuroImage
    123, 253-268, whole-block exchangeability).
    """
    order = np.argsort(families, kind="stable")
    x_ranks, y_ranks = (rankdata(values[order]) - (len(x) + 1) / 2 for values in (x, y))
    orders = permute_families(tuple(families[order].tolist()))
    sums = np.abs(y_ranks[orders] @ x_ranks)
    hits = np.count_nonzero(sums >= abs(x_ranks @ y_ranks) - 1e-9)
    return (hits + 1) / (PERMUTATIONS + 1)


@lru_cache(maxsize=8)
def permute_families(families: tuple[int, ...]) -> NDArray[np.intp]:
    """Sample random orders of models in which families stay together, shape (PERMUTATIONS, n)."""
    rng = np.random.default_rng(SEED)
    indices = np.unique(families, return_inverse=True)[1]
    family_ranks = rng.random((PERMUTATIONS, indices.max() + 1)).argsort()
    fractions = rng.random((PERMUTATIONS, len(families)))
    return np.argsort(family_ranks[:, indices] + fractions)


def count_needed(rho: float) -> int | None:
    """Compute the number of independent models for an interval that excludes 0, with 80% power.

    n = 3 + (1 + rho^2 / 2) ((z_.975 + z_.80) / atanh rho)^2, with the variance of
    `compute_interval` (sample size of Bonett & Wright 2000, plus the power). Returns None if n
    exceeds `MAX_NEEDED`.
    """
    z = math.atanh(min(abs(rho), 0.999))
    models = 3 + (1 + rho**2 / 2) * ((Z + Z_POWER) / z) ** 2 if z else math.inf
    return max(MIN_FOR_INTERVAL, math.ceil(models)) if models < MAX_NEEDED else None


@dataclass(frozen=True)
class ModelCorrelation:
    """Correlation of a score with a model property."""

    task: str
    length: str
    score: str
    factor: str
    """A model property, such as `parameters` or `attention`, or the name of a benchmark."""
    models: int
    groups: str
    """Number of models of each kind; empty for numeric factors."""
    test: str
    """`Spearman` for numeric factors, `Kruskal-Wallis` (1952) for kinds."""
    value: Estimate | None
    """Spearman's rho in [-1, 1], with an interval if there are at least five models; or epsilon
    squared in [0, 1], the share of rank variance between kinds, without an interval.
    """
    p_value: float | None
    """Two-sided p-value, not corrected."""
    p_corrected: float | None = None
    """The p-value Holm-corrected over the lengths and factors of a task and score."""


def correct_rows(rows: Sequence[ModelCorrelation]) -> list[ModelCorrelation]:
    """Correct the p-values over the lengths and factors of each task and score."""
    groups = [(row.task, row.score) for row in rows]
    p_values = correct_p_values([row.p_value for row in rows], groups)
    return [replace(row, p_corrected=p_value) for row, p_value in zip(rows, p_values, strict=True)]


def read_scores(
    summaries: Iterable[TaskSummary], names: Sequence[str], *, published: bool
) -> dict[ScoreKey, ValuesByModel]:
    """Collect scores by model from summaries and, with `published`, from the papers.

    A model's score from a summary takes precedence over its published score.
    """
    scores: dict[ScoreKey, ValuesByModel] = {}
    for key, values in collect_scores(summaries, names).items():
        scores[key] = {normalize_model_name(model): value for (model, _), value in values.items()}
    for task in list_published_tasks() if published else ():
        for row in list_published_rows(task):
            for name, value in ((NDCG, row.ndcg_at_10), (PSI, row.psi_as_published)):
                if name in names:
                    published_scores = scores.setdefault((task, row.length, name), {})
                    published_scores.setdefault(normalize_model_name(row.model), value)
    return scores


def read_model_metas(results: Path | None) -> dict[str, Fields]:
    """Read the metadata of mteb's registered models and of the models in a results folder.

    Returns the metadata by `normalize_model_name`.

    Raises:
        PosirError: A `model_meta.json` is damaged.
    """
    from mteb.models.model_implementations import MODEL_REGISTRY

    metas: dict[str, Fields] = {
        normalize_model_name(name): meta.to_dict() for name, meta in MODEL_REGISTRY.items()
    }
    for file in sorted(results.rglob("model_meta.json")) if results else ():
        try:
            meta = read_json(file)
            metas[normalize_model_name(meta["name"])] = meta
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise PosirError(f"{file}: not model metadata ({summarize_error(error)}).") from error
    return metas


def correlate_architecture(
    scores: Mapping[ScoreKey, ValuesByModel],
    metas: Mapping[str, Fields],
    architectures: Mapping[str, Architecture],
) -> list[ModelCorrelation]:
    """Correlate scores with numeric model properties, and compare kinds of architecture."""
    factors = {factor: _read_numbers(metas, field) for factor, field in NUMERIC_FACTORS.items()}
    rows = []
    for key, scores_by_model in scores.items():
        for factor, numbers in factors.items():
            rows.append(correlate_values(key, factor, scores_by_model, numbers))
        for kind in ArchitectureProperty:
            groups = defaultdict[str, list[float]](list)
            for model, value in scores_by_model.items():
                if name := getattr(architectures.get(model), kind, ""):
                    groups[name].append(value)
            rows.append(_compare_kinds(key, kind, groups))
    return rows


def _read_numbers(metas: Mapping[str, Fields], field: str) -> ValuesByModel:
    """Read a numeric field of each model. If it is a list, use its maximum, as mteb does."""
    values: ValuesByModel = {}
    for name, meta in metas.items():
        numbers = np.ravel(meta.get(field) or 0)
        if np.issubdtype(numbers.dtype, np.number) and numbers.max():
            values[name] = float(numbers.max())
    return values


def _compare_kinds(
    key: ScoreKey, kind: ArchitectureProperty, groups: Mapping[str, Sequence[float]]
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
    key: ScoreKey, factor: str, scores: ValuesByModel, values: ValuesByModel
) -> ModelCorrelation:
    """Correlate a score with another value over the models that have both."""
    models = sorted(scores.keys() & values.keys())
    x = np.array([values[name] for name in models])
    y = np.array([scores[name] for name in models])
    return ModelCorrelation(*key, factor, len(models), "", "Spearman", *estimate_rho(x, y))


def read_benchmark(source: Path, results: Iterable[SubsetResult] = ()) -> ValuesByModel:
    """Read each model's score on a benchmark, by `normalize_model_name`.

    Args:
        source: `MMTEB` for the published scores of PosIR's models, a CSV file with the columns
            `model` and `score`, or an `--output-folder` of `mteb run`. For a folder, a model's
            score is its mean main score over the tasks, splits and subsets that all models share.
        results: Results of tasks to exclude from the folder, such as position-aware tasks.

    Raises:
        PosirError: There are no scores, or a score is not a number.
    """
    if source == MMTEB:
        return {normalize_model_name(model): score for model, score in read_mmteb_scores().items()}
    scores: ValuesByModel = {}
    if source.is_dir():
        scores = _average_shared(source, {result.task for result in results})
    else:
        for number, row in enumerate(read_csv_rows(source, ("model", "score"), SCORE_FILE), 2):
            try:
                scores[normalize_model_name(row["model"])] = float(row["score"])
            except ValueError as error:
                raise DataError(
                    f"{source}: row {number}: field 'score': {row['score']!r} is not a number."
                ) from error
    if not scores:
        raise PosirError(
            f"{source}: no benchmark scores. Give MMTEB, {SCORE_FILE}, or results of `mteb run`."
        )
    return scores


def _average_shared(source: Path, excluded_tasks: set[str]) -> ValuesByModel:
    """Average each model's main scores in a folder of mteb results.

    Only splits and subsets with results of every model are included, so that all means are over the
    same data. Scores are averaged within tasks first.
    """
    frame = read_main_scores(source)
    if frame is None:
        return {}
    frame = frame[~frame["task_name"].isin(excluded_tasks)]
    counts = frame.groupby(["task_name", "split", "subset"])["model_name"].transform("size")
    shared_rows = frame[counts == frame["model_name"].nunique()]
    by_task = shared_rows.groupby(["model_name", "task_name"])["score"].mean()
    means = by_task.groupby("model_name").mean()
    return {normalize_model_name(model): score for model, score in means.to_dict().items()}


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
    return Table(
        columns, tuple(cells), notes=(MODEL_NOTE,), split_by=Title("{Task}", "{Score}"), keys=2
    )
