"""Do probes predict retrieval? Rank correlations of probes' summaries with PSI and start-to-end nDCG@10 over models.

Variants of one model (the same weights with another window, or mitigated) are not independent: a family counts as one draw.
Simulated with 12 families of 3 variants whose values correlate .7 within families (`benchmarks/correlate_coverage.py`), the
interval for independent models held the true correlation in 82 to 86 % of 300 draws, the jackknife over families in 94 to 95 %.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, spearmanr, t

from posir_probe.probe import Probe
from posir_probe.results import ProbeResult
from posir_report.summary import TaskSummary, build_rows
from posir_significance.correction import correct_p_values
from posir_significance.intervals import ALPHA
from posir_tasks.cells import Floats
from posir_tasks.display.numbers import format_interval, format_number, format_p_value
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.display.wording import pluralize
from posir_tasks.gate import read_csv_rows
from posir_tasks.scores import Estimate, Interval

PSI, START_TO_END = "PSI", "start-to-end nDCG@10"
FAMILY_FILE = "a file with the columns model,family"
PREDICTS, OPPOSITE = "predicts it", "predicts the opposite"
#: Fewest models for a correlation, and fewest independent ones for its interval.
FEWEST, FEWEST_FOR_INTERVAL = 3, 5
#: Standard normal quantiles of a two-sided 95 % interval, and of a power of 80 %.
Z, Z_POWER = 1.959964, 0.841621
PERMUTATIONS, SEED = 9_999, 1
#: Most models that `count_needed` tells apart.
MANY = 10_000
#: Largest correlation that Fisher's z is taken of.
COMPLETE = 1 - 1e-12
#: Model and revision.
ModelKey = tuple[str, str]
NOTES = (
    "Spearman: over models, of a probe's first summary. Against start to end, positive values of the summary favor the start; "
    "against PSI, which has no sign, it is the distance from no preference. 95 % intervals: for new models; if some are "
    "variants of one (a family), for new families. p: permutation of families, Holm-corrected for the probes of a task and "
    "score. Needed: independent models for an interval without 0 in 80 % of cases, if this were the true correlation.",
)
FURTHER = (
    "Variants of a model, MODEL+METHOD and what --families names, are not independent. With families the interval is a "
    "jackknife over them on Fisher's z with Student's t; without, that of Bonett & Wright (2000). A probe predicts a score if "
    "p < 0.05 and the interval is without 0; otherwise it cannot be said.",
    "Probe and retrieval are of the same data wherever a task has the name of the probe's data; a probe on other data is "
    "correlated with every task. Probes that have the same value for all models, such as those of the data alone, are left "
    "out. The models of a folder are no random sample: what holds for them need not hold for other kinds of models.",
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
    """Groups of models that are independent of each other; as many as models if there are no variants."""
    rho: Estimate | None
    """None with fewer than three models, or if all have the same value."""
    p_value: float | None
    """Two-sided, Holm-corrected for the probes of a task and score."""
    needed: int | None
    """Independent models for an interval without 0 with a power of 80 % at this correlation; None if over 10,000 or unknown."""
    verdict: str


def correlate_probes(
    results: Iterable[ProbeResult],
    summaries: Iterable[TaskSummary],
    probes: Mapping[str, Probe],
    families: Mapping[str, str] | None = None,
) -> list[ProbeCorrelation]:
    """Correlate the first summary of every probe with both retrieval scores of every task, over the models that have both.

    Args:
        results: Results of probes; those on the data of a task are correlated with that task only.
        summaries: Results of retrieval.
        probes: The known probes by name.
        families: Family by name of the model, with or without organization; of others it is the name without a method.
    """
    scores = read_scores(summaries)
    tasks = {task for task, _ in scores}
    rows, p_values = [], []
    for (probe, data, name), values in read_summaries(results, probes).items():
        for (task, score), y in scores.items():
            x = {model: orient(value, probes[probe], score) for model, value in values.items()}
            models = sorted(x.keys() & y.keys())
            same = len(models) >= FEWEST and len({x[model] for model in models}) == 1
            if same or (data in tasks and data != task):
                continue
            named = [find_family(model, families or {}) for model, _ in models]
            rho, p_value = estimate_family_rho(np.array([x[m] for m in models]), np.array([y[m] for m in models]), named)
            needed = count_needed(rho.value) if rho else None
            rows.append(ProbeCorrelation(probe, data, name, task, score, len(models), len(set(named)), rho, None, needed, ""))
            p_values.append(p_value)
    adjusted = correct_p_values(p_values, [(row.task, row.score) for row in rows])
    corrected = [replace(row, p_value=p_value) for row, p_value in zip(rows, adjusted, strict=True)]
    return sorted((replace(row, verdict=judge_row(row)) for row in corrected), key=lambda row: (row.task, row.score))


def read_summaries(
    results: Iterable[ProbeResult], probes: Mapping[str, Probe]
) -> dict[tuple[str, str, str], dict[ModelKey, float]]:
    """Return the first summary of each probe on each dataset by model, with the name of the summary."""
    summaries: dict[tuple[str, str, str], dict[ModelKey, float]] = {}
    for result in results:
        probe = probes.get(result.probe)
        if probe is None or result.experiment is not None:
            continue
        name, summary = next(iter(probe.summaries.items()))
        estimate = result.sums.estimate(summary)
        if estimate is not None:
            summaries.setdefault((result.probe, result.data, name), {})[result.model, result.revision] = estimate.value
    return summaries


def read_scores(summaries: Iterable[TaskSummary]) -> dict[tuple[str, str], dict[ModelKey, float]]:
    """Return the estimates of PSI and start-to-end nDCG@10 of each task by model and revision."""
    scores: dict[tuple[str, str], dict[ModelKey, float]] = {}
    for summary in summaries:
        model = summary.model, summary.revision
        row = build_rows(summary)[0]
        for name, score in ((PSI, row.psi), (START_TO_END, row.start_to_end)):
            if score is not None:
                scores.setdefault((summary.task, name), {})[model] = score.value
    return scores


def orient(value: float, probe: Probe, score: str) -> float:
    """Return a summary as it is correlated: the preference for the start, or, with PSI, the size of the preference.

    Probes that measure no preference are taken as they are.
    """
    if probe.preference is None:
        return value
    preference = probe.preference.orient(value)
    return abs(preference) if score == PSI else preference


def read_families(file: Path) -> dict[str, str]:
    """Return the family of each model of a CSV file with the columns `model` and `family`.

    Raises:
        DataError: The file cannot be read, or lacks a column.
    """
    return {row["model"]: row["family"] for row in read_csv_rows(file, ("model", "family"), FAMILY_FILE)}


def find_family(model: str, families: Mapping[str, str]) -> str:
    """Return the family of a model, or else of the model without its method; else that model's name.

    Names may be without organization. In results a name states all arguments of its method, in a user's file perhaps a few.
    """
    base = model.split("+")[0]
    names = (model, model.split("/", 1)[-1], base, base.split("/", 1)[-1])
    return next((families[name] for name in names if name in families), base)


def judge_row(row: ProbeCorrelation) -> str:
    """Return what a correlation says."""
    units = "families" if row.families < row.models else "models"
    return judge(row.rho, row.families, row.p_value, units)


def judge(rho: Estimate | None, independent: int, p_value: float | None = None, units: str = "models") -> str:
    """Return what a correlation over so many independent models or families says; without a p-value, its interval decides."""
    if independent < FEWEST_FOR_INTERVAL:
        return f"cannot be said: {independent} {units}, at least {FEWEST_FOR_INTERVAL} are needed"
    if rho is None:
        return "all models have the same value"
    if (rho.interval and rho.interval[0] <= 0 <= rho.interval[1]) or (p_value is not None and p_value >= ALPHA):
        return f"cannot be said: {independent} {units}, {describe_needed(count_needed(rho.value))} are needed"
    return PREDICTS if rho.value > 0 else OPPOSITE


def describe_findings(rows: Sequence[ProbeCorrelation]) -> list[str]:
    """Return a sentence for each retrieval score: which probes predict it on all tasks, which on some."""
    return [_describe(score, [row for row in rows if row.score == score]) for score in dict.fromkeys(row.score for row in rows)]


def _describe(score: str, rows: Sequence[ProbeCorrelation]) -> str:
    tasks = len({row.task for row in rows})
    total = Counter(row.probe for row in rows)
    predicted = Counter(row.probe for row in rows if row.verdict == PREDICTS)
    opposite = Counter(row.probe for row in rows if row.verdict == OPPOSITE)
    everywhere = [probe for probe, count in predicted.items() if count == total[probe]]
    some = {probe: count for probe, count in predicted.items() if count < total[probe]}
    place = f"all {tasks} tasks" if tasks > 1 else rows[0].task
    count = str(len(everywhere)) if everywhere else "none"
    verb = "are" if len(everywhere) > 1 else "is"
    named = f": {', '.join(everywhere)}" if everywhere else ""
    sentences = [f"Of {pluralize(len(total), 'probe')}, {count} {verb} shown to predict {score} on {place}{named}."]
    if some:
        sentences.append(f"On some: {_list_shares(some, total)}.")
    if opposite:
        sentences.append(f"With the opposite sign: {_list_shares(opposite, total)}.")
    undecided = [probe for probe in total if not predicted[probe] and not opposite[probe]]
    if undecided:
        sentences.append(f"Cannot be said: {', '.join(undecided)}.")
    return " ".join(sentences)


def _list_shares(counts: Mapping[str, int], total: Mapping[str, int]) -> str:
    return ", ".join(f"{probe} ({count} of {total[probe]})" for probe, count in counts.items())


def build_table(rows: Sequence[ProbeCorrelation]) -> Table:
    """Return a table with a line per probe, task and score."""
    headings = ("Task", "Retrieval score", "Probe", "Data", "Summary", "Models", "Families", "Spearman", "95 % interval")
    columns = build_columns((*headings, "p", "Needed", "Verdict"), ("Models", "Families", "Spearman", "p", "Needed"))
    cells = tuple(
        (
            *(row.task, row.score, row.probe, row.data, row.summary, str(row.models), str(row.families)),
            *format_rho(row.rho),
            format_p_value(row.p_value),
            describe_needed(row.needed).removeprefix("about ") if row.rho else format_number(None, ".2f"),
            row.verdict,
        )
        for row in rows
    )
    return Table(columns, cells, split_by="{Task} · {Retrieval score}", keys=1)


def format_rho(rho: Estimate | None) -> tuple[str, str]:
    """Return a correlation and its interval as two cells of a table."""
    return format_number(rho.value if rho else None, ".2f"), format_interval(rho, lambda value: format_number(value, ".2f"))


def estimate_rho(x: Floats, y: Floats) -> tuple[Estimate | None, float | None]:
    """Return Spearman's rho over independent models with its 95 % interval, and its two-sided p-value; None where undefined.

    Args:
        x: A value of each model, shape (n,).
        y: Another of each, shape (n,).
    """
    if is_undefined(x, y):
        return None, None
    result = spearmanr(x, y)
    rho = float(result.statistic)
    return Estimate(rho, find_interval(rho, len(x))), float(result.pvalue)


def estimate_family_rho(x: Floats, y: Floats, families: Sequence[str]) -> tuple[Estimate | None, float | None]:
    """Return Spearman's rho over models with its 95 % interval, and its two-sided p-value by permutation of families.

    Args:
        x: A value of each model, shape (n,).
        y: Another of each, shape (n,).
        families: The family of each model; all different if the models are independent.
    """
    if is_undefined(x, y):
        return None, None
    labels = np.unique(np.array(families), return_inverse=True)[1]
    rho = float(spearmanr(x, y).statistic)
    independent = len(set(families)) == len(families)
    interval = find_interval(rho, len(x)) if independent else jackknife_interval(x, y, labels)
    return Estimate(rho, interval), permutation_p_value(x, y, labels)


def is_undefined(x: Floats, y: Floats) -> bool:
    """Return whether there are too few models for a correlation, or all have the same value."""
    return len(x) < FEWEST or len(set(x)) == 1 or len(set(y)) == 1


def find_interval(rho: float, models: int) -> Interval | None:
    """Return the 95 % interval of Spearman's rho; None if there are too few models or the ranks agree completely.

    By Fisher's z, variance (1 + rho^2 / 2) / (n - 3) (Bonett & Wright 2000, Psychometrika 65, 23-28).
    """
    if models < FEWEST_FOR_INTERVAL or abs(rho) > COMPLETE:
        return None
    z, half = math.atanh(rho), Z * math.sqrt((1 + rho**2 / 2) / (models - 3))
    return math.tanh(z - half), math.tanh(z + half)


def jackknife_interval(x: Floats, y: Floats, families: NDArray[np.intp]) -> Interval | None:
    """Return the 95 % interval of Spearman's rho for new families; None if there are too few, or ranks agree completely.

    By Fisher's z, with the variance of the jackknife over families and Student's t with one degree of freedom fewer than
    families (delete-one-cluster jackknife; Cameron & Miller 2015, Journal of Human Resources 50, 317-372).

    Args:
        x: A value of each model, shape (n,).
        y: Another of each, shape (n,).
        families: The number of each model's family, shape (n,).
    """
    numbers = np.unique(families)
    rho = float(spearmanr(x, y).statistic)
    kept = [families != number for number in numbers]
    if len(numbers) < FEWEST_FOR_INTERVAL or any(is_undefined(x[rows], y[rows]) for rows in kept):
        return None
    others = np.array([float(spearmanr(x[rows], y[rows]).statistic) for rows in kept])
    if max(abs(rho), *np.abs(others)) > COMPLETE:
        return None
    z_values = np.arctanh(others)
    variance = (len(numbers) - 1) / len(numbers) * ((z_values - z_values.mean()) ** 2).sum()
    z, half = math.atanh(rho), float(t.ppf(0.975, len(numbers) - 1) * math.sqrt(variance))
    return math.tanh(z - half), math.tanh(z + half)


def permutation_p_value(x: Floats, y: Floats, families: NDArray[np.intp]) -> float:
    """Return the two-sided p-value of no correlation, (hits + 1) / (permutations + 1).

    The values `y` of whole families are laid against the others in random order, and in random order within them: exact for
    independent models and for families of one size (Winkler et al. 2015, NeuroImage 123, 253-268, whole-block exchangeability).
    """
    order = np.argsort(families, kind="stable")
    x_ranks, y_ranks = (rankdata(values[order]) - (len(x) + 1) / 2 for values in (x, y))
    sums = y_ranks[permute_families(tuple(families[order].tolist()))] @ x_ranks
    hits = int((np.abs(sums) >= abs(float(x_ranks @ y_ranks)) - 1e-9).sum())
    return (hits + 1) / (PERMUTATIONS + 1)


@lru_cache(maxsize=8)
def permute_families(families: tuple[int, ...]) -> NDArray[np.intp]:
    """Return random orders of models in which those of a family stay together, shape (PERMUTATIONS, n)."""
    random = np.random.default_rng(SEED)
    numbers = np.unique(np.array(families), return_inverse=True)[1]
    places = random.random((PERMUTATIONS, numbers.max() + 1)).argsort(axis=1)
    orders: NDArray[np.intp] = (places[:, numbers] + random.random((PERMUTATIONS, len(families)))).argsort(axis=1)
    return orders


def count_needed(rho: float) -> int | None:
    """Return how many independent models would give an interval without 0 in 80 % of the cases; None if over `MANY`.

    By the variance of `find_interval`: n = 3 + (1 + rho^2 / 2) ((z_.975 + z_.80) / atanh rho)^2 (Bonett & Wright 2000, the
    sample size of an interval, here with the power added).

    Args:
        rho: The true correlation, in [-1, 1].
    """
    strength = math.atanh(min(abs(rho), 0.999))
    needed = 3 + (1 + rho**2 / 2) * ((Z + Z_POWER) / strength) ** 2 if strength else math.inf
    return max(FEWEST_FOR_INTERVAL, math.ceil(needed)) if needed < MANY else None


def describe_needed(needed: int | None) -> str:
    """Return a number of models in words."""
    return f"about {needed:,}" if needed is not None else f"over {MANY:,}"
