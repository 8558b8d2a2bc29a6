"""Do probes predict retrieval? Rank correlations of probes' summaries with retrieval over models.

The scores of retrieval are the position effect (the controlled test), start minus end (as the data
lie) and the published PSI.

Variants of one model (the same weights with another window, or mitigated) are not independent: a
family counts as one draw. Simulated with 12 families of 3 variants whose values correlate .7 within
families (`benchmarks/correlate_coverage.py`), the interval for independent models held the true
correlation in 82 to 86% of 300 draws, the jackknife over families in 94 to 95%.

The same of properties of models: PosIR (Zeng et al. 2026, arXiv 2601.08363) sees no clear relation
of PSI to size, dimension, attention and pooling (Section 4.2, without numbers), and gives
Spearman's rho of nDCG@10 with the MMTEB retrieval score by length of the document (Table 2).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kruskal, rankdata, spearmanr, t

from posir_probe.probe import Probe
from posir_probe.results import ProbeResult
from posir_published.probes import Architecture, Kind, short_name
from posir_published.rows import published_rows, published_tasks, read_mmteb_scores
from posir_report.summary import TaskSummary, build_rows
from posir_significance.correction import correct_p_values
from posir_significance.intervals import ALPHA
from posir_tasks.base.arrays import Floats
from posir_tasks.base.errors import DataError, PosirError, summarize_error
from posir_tasks.base.untrusted import read_csv_rows, read_json
from posir_tasks.base.wording import pluralize
from posir_tasks.display.numbers import format_interval, format_number, format_p_value
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.values.scores import ALL, Estimate, Interval

if TYPE_CHECKING:
    from posir_tasks.results import SubsetResult

#: Names of scores: the controlled test of whole documents, the difference in the data as they lie,
#: and the published PSI.
POSITION_EFFECT, START_MINUS_END, PSI, NDCG = (
    "position effect",
    "start minus end",
    "PSI as published",
    "nDCG@10",
)
FAMILY_FILE, SCORE_FILE = (
    "a file with the columns model,family",
    "a CSV file with the columns model,score",
)
PREDICTS, OPPOSITE = "predicts it", "predicts the opposite"
INCONCLUSIVE = "inconclusive"
#: Fewest models for a correlation, and fewest independent ones for its interval.
FEWEST, FEWEST_FOR_INTERVAL = 3, 5
#: Standard normal quantiles of a two-sided 95% interval, and of a power of 80%.
Z, Z_POWER = 1.959964, 0.841621
PERMUTATIONS, SEED = 9_999, 1
#: Most models that `count_needed` tells apart.
MANY = 10_000
#: Largest correlation that Fisher's z is taken of.
COMPLETE = 1 - 1e-12
#: Name of the benchmark whose scores are published beside PosIR's.
MMTEB = Path("MMTEB")
#: Model and revision.
ModelKey: TypeAlias = tuple[str, str]
#: Task, length and name of a score.
ScoreKey: TypeAlias = tuple[str, str, str]
#: Values by `short_name` of the model.
ByModel: TypeAlias = dict[str, float]
NOTES = (
    "Spearman: over models, of a probe's first summary. Against the position effect and start "
    "minus end, positive values of "
    "the summary favor the start; against PSI, which has no sign, it is the distance from no "
    "preference. 95% intervals: for "
    "new models; if some are variants of one (a family), for new families. p: permutation of "
    "families, Holm-corrected for the "
    "probes of a task and score. Needed: independent models for an interval without 0 in 80% of "
    "cases, if this were the true "
    "correlation.",
)
FURTHER = (
    "Variants of a model, MODEL+METHOD and what --families names, are not independent. With "
    "families the interval is a "
    "jackknife over them on Fisher's z with Student's t; without, that of Bonett & Wright (2000). "
    "A probe predicts a score if "
    "p < 0.05 and the interval is without 0; otherwise it is inconclusive.",
    "Probe and retrieval are of the same data wherever a task has the name of the probe's data; a "
    "probe on other data is "
    "correlated with every task. Probes that have the same value for all models, such as those of "
    "the data alone, are left "
    "out. The models of a folder are no random sample: what holds for them need not hold for "
    "other kinds of models.",
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
    """Groups of models that are independent of each other; as many as models if there are no
    variants.
    """
    rho: Estimate | None
    """None with fewer than three models, or if all have the same value."""
    p_value: float | None
    """Two-sided, Holm-corrected for the probes of a task and score."""
    needed: int | None
    """Independent models for an interval without 0 with a power of 80% at this correlation; None if
    over 10,000 or unknown.
    """
    verdict: str


def correlate_probes(
    results: Iterable[ProbeResult],
    summaries: Iterable[TaskSummary],
    probes: Mapping[str, Probe],
    families: Mapping[str, str] | None = None,
) -> list[ProbeCorrelation]:
    """Correlate the first summary of every probe with both retrieval scores of every task, over the
    models that have both.

    Results on the data of a task are correlated with that task only. `families` are those of
    `find_family`.
    """
    scores: dict[tuple[str, str], dict[ModelKey, float]] = {}
    for summary, length, name, score in _list_scores(summaries):
        if length == ALL and name != NDCG:
            scores.setdefault((summary.task, name), {})[summary.model, summary.revision] = score
    tasks = {task for task, _ in scores}
    measured: dict[tuple[str, str], dict[ModelKey, float]] = {}
    for result in results:
        known = probes.get(result.probe)
        if (
            known is not None
            and result.experiment is None
            and (estimate := result.sums.estimate(known.first_summary))
        ):
            measured.setdefault((result.probe, result.data), {})[result.model, result.revision] = (
                estimate.value
            )
    correlations, p_values = [], []
    for (probe, data), values in measured.items():
        name = next(iter(probes[probe].summaries))
        for (task, score_name), y in scores.items():
            x = {model: orient(value, probes[probe], score_name) for model, value in values.items()}
            models = sorted(x.keys() & y.keys())
            same = len(models) >= FEWEST and len({x[model] for model in models}) == 1
            if same or (data in tasks and data != task):
                continue
            named = [find_family(model, families or {}) for model, _ in models]
            rho, p_value = estimate_rho(
                np.array([x[m] for m in models]), np.array([y[m] for m in models]), named
            )
            correlations.append(
                ((probe, data, name, task, score_name), len(models), len(set(named)), rho)
            )
            p_values.append(p_value)
    rows = []
    adjusted = correct_p_values(p_values, [names[3:] for names, *_ in correlations])
    for (names, models_of_both, independent, rho), p_value in zip(
        correlations, adjusted, strict=True
    ):
        needed = count_needed(rho.value) if rho else None
        verdict = judge(
            rho, independent, p_value, "families" if independent < models_of_both else "models"
        )
        rows.append(
            ProbeCorrelation(*names, models_of_both, independent, rho, p_value, needed, verdict)
        )
    return sorted(rows, key=lambda row: (row.task, row.score))


def _list_scores(summaries: Iterable[TaskSummary]) -> Iterator[tuple[TaskSummary, str, str, float]]:
    """Yield length, name and value of each score; nDCG@10 of a length bucket is the mean that the
    papers print.
    """
    for summary in summaries:
        for row in build_rows(summary):
            ndcg = row.ndcg_at_10 if row.length == ALL else row.ndcg_at_10_as_published
            values = {
                NDCG: ndcg.value if ndcg else None,
                POSITION_EFFECT: row.position_effect.value if row.position_effect else None,
                START_MINUS_END: row.start_minus_end.value if row.start_minus_end else None,
                PSI: row.psi_as_published,
            }
            for name, value in values.items():
                if value is not None:
                    yield summary, row.length, name, value


def orient(value: float, probe: Probe, score: str) -> float:
    """Return a summary as it is correlated: the preference for the start, or, with PSI, the size of
    the preference.

    Probes that measure no preference are taken as they are.
    """
    if not probe.preference_sign:
        return value
    return abs(value) if score == PSI else probe.preference_sign * value


def read_families(file: Path) -> dict[str, str]:
    """Return the family of each model of a CSV file with these columns; raise DataError if it
    cannot be read or lacks one.
    """
    return {
        row["model"]: row["family"] for row in read_csv_rows(file, ("model", "family"), FAMILY_FILE)
    }


def find_family(model: str, families: Mapping[str, str]) -> str:
    """Return the family of a model, or else of the model without its method; else that model's
    name.

    Names may be without organization. In results a name states all arguments of its method, in a
    user's file perhaps a few.
    """
    base = model.split("+")[0]
    names = (model, model.split("/", 1)[-1], base, base.split("/", 1)[-1])
    return next((families[name] for name in names if name in families), base)


def judge(
    rho: Estimate | None, independent: int, p_value: float | None, units: str = "models"
) -> str:
    """Return what the correlation of a probe over so many independent models or families says."""
    if independent < FEWEST_FOR_INTERVAL:
        return f"{INCONCLUSIVE}: {independent} {units}, at least {FEWEST_FOR_INTERVAL} are needed"
    if rho is None:
        return "all models have the same value"
    if (rho.interval and rho.interval[0] <= 0 <= rho.interval[1]) or (
        p_value is not None and p_value >= ALPHA
    ):
        return (
            f"{INCONCLUSIVE}: {independent} {units}, {describe_needed(count_needed(rho.value))} "
            "are needed"
        )
    return PREDICTS if rho.value > 0 else OPPOSITE


def describe_correlations(rows: Sequence[ProbeCorrelation]) -> list[str]:
    """Return a sentence for each retrieval score: which probes predict it on all tasks, which on
    some.
    """
    findings = []
    for score in dict.fromkeys(row.score for row in rows):
        of_score = [row for row in rows if row.score == score]
        tasks = list(dict.fromkeys(row.task for row in of_score))
        total = Counter(row.probe for row in of_score)
        predicted, opposite = (
            Counter(row.probe for row in of_score if row.verdict == said)
            for said in (PREDICTS, OPPOSITE)
        )
        everywhere = [probe for probe, count in predicted.items() if count == total[probe]]
        place = f"all {len(tasks)} tasks" if len(tasks) > 1 else tasks[0]
        shown = (
            f"{len(everywhere) or 'none'} {'are' if len(everywhere) > 1 else 'is'} shown to "
            f"predict {score} on {place}"
        )
        sentences = [
            f"Of {pluralize(len(total), 'probe')}, "
            f"{shown}{': ' if everywhere else ''}{', '.join(everywhere)}."
        ]
        some = [
            f"{probe} ({count} of {total[probe]})"
            for probe, count in predicted.items()
            if count < total[probe]
        ]
        reverse = [f"{probe} ({count} of {total[probe]})" for probe, count in opposite.items()]
        inconclusive = [probe for probe in total if not predicted[probe] and not opposite[probe]]
        for title, named in (
            ("On some", some),
            ("With the opposite sign", reverse),
            ("Inconclusive", inconclusive),
        ):
            sentences += [f"{title}: {', '.join(named)}."] if named else []
        findings.append(" ".join(sentences))
    return findings


def build_table(rows: Sequence[ProbeCorrelation]) -> Table:
    """Return a table with a line per probe, task and score."""
    headings = (
        "Task",
        "Retrieval score",
        "Probe",
        "Data",
        "Summary",
        "Models",
        "Families",
        "Spearman",
        "95% interval",
    )
    columns = build_columns(
        (*headings, "p", "Needed", "Verdict"), ("Models", "Families", "Spearman", "p", "Needed")
    )
    cells = tuple(
        (
            *(
                row.task,
                row.score,
                row.probe,
                row.data,
                row.summary,
                str(row.models),
                str(row.families),
            ),
            *_format_rho(row.rho),
            format_p_value(row.p_value),
            describe_needed(row.needed).removeprefix("about ")
            if row.rho
            else format_number(None, ".2f"),
            row.verdict,
        )
        for row in rows
    )
    return Table(columns, cells, split_by="{Task} · {Retrieval score}", keys=1)


def _format_rho(rho: Estimate | None) -> tuple[str, str]:
    return format_number(rho.value if rho else None, ".2f"), format_interval(
        rho, lambda value: format_number(value, ".2f")
    )


def estimate_rho(
    x: Floats, y: Floats, families: Sequence[str] | None = None
) -> tuple[Estimate | None, float | None]:
    """Return Spearman's rho over n models with its 95% interval, and its two-sided p-value; None
    where undefined.

    With the family of each model, the p-value is by permutation of families; without, models are
    independent.
    """
    if _is_undefined(x, y):
        return None, None
    result = spearmanr(x, y)
    rho = float(result.statistic)
    if families is None:
        return Estimate(rho, find_interval(rho, len(x))), float(result.pvalue)
    labels = np.unique(np.array(families), return_inverse=True)[1]
    independent = len(set(families)) == len(families)
    interval = find_interval(rho, len(x)) if independent else jackknife_interval(x, y, labels)
    return Estimate(rho, interval), permutation_p_value(x, y, labels)


def _is_undefined(x: Floats, y: Floats) -> bool:
    return len(x) < FEWEST or len(set(x)) == 1 or len(set(y)) == 1


def find_interval(rho: float, models: int) -> Interval | None:
    """Return the 95% interval of Spearman's rho; None if there are too few models or the ranks
    agree completely.

    By Fisher's z, variance (1 + rho^2 / 2) / (n - 3) (Bonett & Wright 2000, Psychometrika 65,
    23-28).
    """
    if models < FEWEST_FOR_INTERVAL or abs(rho) > COMPLETE:
        return None
    z, half = math.atanh(rho), Z * math.sqrt((1 + rho**2 / 2) / (models - 3))
    return math.tanh(z - half), math.tanh(z + half)


def jackknife_interval(x: Floats, y: Floats, families: NDArray[np.intp]) -> Interval | None:
    """Return the 95% interval of Spearman's rho for new families; None if there are too few, or
    ranks agree completely.

    By Fisher's z, with the variance of the jackknife over families and Student's t with one degree
    of freedom fewer than families (delete-one-cluster jackknife; Cameron & Miller 2015, Journal of
    Human Resources 50, 317-372). All arguments have the shape (n,).
    """
    numbers = np.unique(families)
    kept = [families != number for number in numbers]
    if len(numbers) < FEWEST_FOR_INTERVAL or any(_is_undefined(x[rows], y[rows]) for rows in kept):
        return None
    rho, *others = (
        float(spearmanr(x[rows], y[rows]).statistic) for rows in (np.full(len(x), True), *kept)
    )
    if max(abs(rho), *map(abs, others)) > COMPLETE:
        return None
    variance = (len(numbers) - 1) * float(np.var(np.arctanh(others)))
    z, half = math.atanh(rho), float(t.ppf(0.975, len(numbers) - 1) * math.sqrt(variance))
    return math.tanh(z - half), math.tanh(z + half)


def permutation_p_value(x: Floats, y: Floats, families: NDArray[np.intp]) -> float:
    """Return the two-sided p-value of no correlation, (hits + 1) / (permutations + 1).

    The values `y` of whole families are laid against the others in random order, and in random
    order within them: exact for independent models and for families of one size (Winkler et al.
    2015, NeuroImage 123, 253-268, whole-block exchangeability).
    """
    order = np.argsort(families, kind="stable")
    x_ranks, y_ranks = (rankdata(values[order]) - (len(x) + 1) / 2 for values in (x, y))
    sums = y_ranks[permute_families(tuple(families[order].tolist()))] @ x_ranks
    hits = int((np.abs(sums) >= abs(float(x_ranks @ y_ranks)) - 1e-9).sum())
    return (hits + 1) / (PERMUTATIONS + 1)


@lru_cache(maxsize=8)
def permute_families(families: tuple[int, ...]) -> NDArray[np.intp]:
    """Return random orders of models in which those of a family stay together, shape (PERMUTATIONS,
    n).
    """
    random = np.random.default_rng(SEED)
    numbers = np.unique(np.array(families), return_inverse=True)[1]
    places = random.random((PERMUTATIONS, numbers.max() + 1)).argsort(axis=1)
    orders: NDArray[np.intp] = (
        places[:, numbers] + random.random((PERMUTATIONS, len(families)))
    ).argsort(axis=1)
    return orders


def count_needed(rho: float) -> int | None:
    """Return how many independent models would give an interval without 0 in 80% of the cases; None
    if over `MANY`.

    By the variance of `find_interval`: n = 3 + (1 + rho^2 / 2) ((z_.975 + z_.80) / atanh rho)^2
    (Bonett & Wright 2000, the sample size of an interval, here with the power added).
    """
    strength = math.atanh(min(abs(rho), 0.999))
    needed = 3 + (1 + rho**2 / 2) * ((Z + Z_POWER) / strength) ** 2 if strength else math.inf
    return max(FEWEST_FOR_INTERVAL, math.ceil(needed)) if needed < MANY else None


def describe_needed(needed: int | None) -> str:
    """Return a number of models in words."""
    return f"about {needed:,}" if needed is not None else f"over {MANY:,}"


@dataclass(frozen=True)
class ModelCorrelation:
    """The correlation of a score with a property of models."""

    task: str
    length: str
    score: str
    factor: str
    """`parameters`, `dimension`, `attention` and so on, or the name of a benchmark."""
    models: int
    groups: str
    """Models of each kind, if the factor has kinds."""
    test: str
    """`Spearman` for numbers; `Kruskal-Wallis` for kinds (Kruskal & Wallis 1952)."""
    value: Estimate | None
    """Spearman's rho in [-1, 1], with an interval if there are models enough; or epsilon squared in
    [0, 1], without one: the share of the ranks' variance that is between kinds.
    """
    p_value: float | None
    """Two-sided, not corrected."""


def read_scores(
    summaries: Iterable[TaskSummary], names: Sequence[str], *, published: bool
) -> dict[ScoreKey, ByModel]:
    """Return the named scores of own results, and of the papers for models without; the papers' PSI
    is the observed one.
    """
    scores: dict[ScoreKey, ByModel] = {}
    for row in (
        row for task in (published_tasks() if published else ()) for row in published_rows(task)
    ):
        for name, value in ((NDCG, row.ndcg_at_10), (PSI, row.psi_as_published)):
            if name in names:
                scores.setdefault((row.task, row.length, name), {})[short_name(row.model)] = value
    own: dict[ScoreKey, ByModel] = {}
    for summary, length, name, score in _list_scores(summaries):
        if name in names:
            own.setdefault((summary.task, length, name), {})[short_name(summary.model)] = score
    return {key: scores.get(key, {}) | own.get(key, {}) for key in dict.fromkeys([*own, *scores])}


def read_model_metas(results: Path | None) -> dict[str, Mapping[str, Any]]:
    """Return the metadata of mteb's registered models and of those with results in a folder, by
    `short_name`.
    """
    from mteb.models.model_implementations import MODEL_REGISTRY

    metas: dict[str, Mapping[str, Any]] = {
        short_name(name): meta.to_dict() for name, meta in MODEL_REGISTRY.items()
    }
    for file in sorted(results.rglob("model_meta.json")) if results else ():
        try:
            meta = read_json(file)
            metas[short_name(str(meta["name"]))] = meta
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise PosirError(
                f"{file}: not the metadata of a model ({summarize_error(error)})."
            ) from error
    return metas


def correlate_architecture(
    scores: Mapping[ScoreKey, ByModel],
    metas: Mapping[str, Mapping[str, Any]],
    architectures: Mapping[str, Architecture],
) -> list[ModelCorrelation]:
    """Correlate scores with parameters and dimension, and compare them between kinds of
    architecture.
    """
    values: dict[str, ByModel] = {"parameters": {}, "dimension": {}}
    for factor, field in zip(values, ("n_parameters", "embed_dim"), strict=True):
        for name, meta in metas.items():
            # Of several dimensions the largest, as mteb does.
            stated = (
                max(meta[field], default=None)
                if isinstance(meta.get(field), list | tuple)
                else meta.get(field)
            )
            if isinstance(stated, int | float) and stated:
                values[factor][name] = float(stated)
    rows = []
    for key, by_model in scores.items():
        rows += [correlate_values(key, factor, by_model, known) for factor, known in values.items()]
        for kind in Kind:
            groups: dict[str, list[float]] = {}
            for model, value in by_model.items():
                if name := getattr(architectures.get(model), kind, ""):
                    groups.setdefault(name, []).append(value)
            known = [value for group in groups.values() for value in group]
            share = p_value = None
            if len(groups) > 1 and len(known) > len(groups) and len(set(known)) > 1:
                result = kruskal(*groups.values())
                share, p_value = (
                    Estimate(float(result.statistic / (len(known) - 1))),
                    float(result.pvalue),
                )
            counts = ", ".join(f"{name} {len(group)}" for name, group in sorted(groups.items()))
            rows.append(
                ModelCorrelation(*key, kind, len(known), counts, "Kruskal-Wallis", share, p_value)
            )
    return rows


def correlate_values(
    key: ScoreKey, factor: str, scores: ByModel, values: ByModel
) -> ModelCorrelation:
    """Correlate a score with another value of the models that have both."""
    models = sorted(scores.keys() & values.keys())
    rho, p_value = estimate_rho(
        np.array([values[name] for name in models]), np.array([scores[name] for name in models])
    )
    return ModelCorrelation(*key, factor, len(models), "", "Spearman", rho, p_value)


def read_benchmark(source: Path, own: Iterable[SubsetResult] = ()) -> ByModel:
    """Return the score of each model on a benchmark, by `short_name`; raise PosirError if there are
    none.

    The source is `MMTEB` for the published scores of PosIR's models; a CSV file with the columns
    `model` and `score`; or an `--output-folder` of `mteb run`, of which the mean of the main scores
    over the tasks, splits and subsets that all its models have is taken, without the position-aware
    tasks, of which it has the results `own`.
    """
    if source == MMTEB:
        return {short_name(model): score for model, score in read_mmteb_scores().items()}
    scores: ByModel = {}
    if source.is_dir():
        scores = _average_shared(source, {result.task for result in own})
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


def _average_shared(source: Path, left_out: Set[str]) -> ByModel:
    """Return the mean main score of each model in a folder of mteb, over the tasks that all its
    models have.

    The score of a task is its mean over the splits and subsets that all models have, so that no
    model has the mean of others.
    """
    from mteb.results import TaskResult

    measured: dict[str, dict[tuple[str, str, str], float]] = {}
    for meta in sorted(source.rglob("model_meta.json")):
        model = short_name(str(read_json(meta)["name"]))
        for file in sorted(meta.parent.glob("*.json")):
            if file.name == meta.name or file.stem in left_out:
                continue
            for split, entries in TaskResult.from_disk(file).scores.items():
                for entry in entries:
                    measured.setdefault(model, {})[file.stem, split, entry["hf_subset"]] = float(
                        entry["main_score"]
                    )
    shared: dict[str, list[tuple[str, str, str]]] = {}
    for key in sorted(set.intersection(*map(set, measured.values()))) if measured else ():
        shared.setdefault(key[0], []).append(key)
    if not shared:
        return {}
    means = {
        model: [np.mean([known[key] for key in keys]) for keys in shared.values()]
        for model, known in measured.items()
    }
    return {model: float(np.mean(of_tasks)) for model, of_tasks in means.items()}


def build_model_table(rows: Sequence[ModelCorrelation]) -> Table:
    """Return a table with a line per task, length, score and factor."""
    headings = (
        "Task",
        "Score",
        "Length",
        "Factor",
        "Models",
        "Kinds",
        "Test",
        "Value",
        "95% interval",
        "p",
    )
    cells = tuple(
        (
            *(row.task, row.score, row.length, row.factor, str(row.models), row.groups, row.test),
            *_format_rho(row.value),
            format_p_value(row.p_value),
        )
        for row in rows
    )
    note = (
        "Value: Spearman's rho over models, or epsilon squared, the share of the variance of "
        "ranks between kinds. p is "
        "two-sided and not corrected: 5% of rows without any relation have p < 0.05, so no row "
        "decides anything. The models "
        "are no random sample, and versions of one model are not independent. PSI: as "
        "published, with what chance adds."
    )
    columns = build_columns(headings, ("Models", "Value", "p"))
    return Table(columns, cells, notes=(note,), split_by="{Task} · {Score}", keys=2)
