"""Position bias and probes against properties of models: size, dimension, attention, pooling, positional encoding, benchmarks.

PosIR (Zeng et al. 2026, arXiv 2601.08363) sees no clear relation of PSI to the former (Section 4.2, without numbers), and gives
Spearman's rho of nDCG@10 with the MMTEB retrieval score by length of the document (Table 2). Tables 2 and 3 of Bias Learning
(OpenReview 4GD7a9Bo9A) are means of probes over two models of each positional encoding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from scipy.stats import kruskal

from posir_probe.correlation import PSI, START_TO_END, estimate_rho, format_rho, judge
from posir_probe.probe import Probe
from posir_probe.results import Compute, ProbeResult, ProbeSums, at, estimate_index
from posir_published.probes import Architecture, Kind, read_published_curves, short_name
from posir_published.rows import published_rows, published_tasks
from posir_published.scores import read_mmteb_scores
from posir_report.summary import TaskSummary, build_rows
from posir_tasks.display.numbers import format_estimate, format_number, format_p_value
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.display.wording import pluralize
from posir_tasks.errors import DataError, PosirError, summarize_error
from posir_tasks.gate import read_csv_rows, read_json
from posir_tasks.scores import ALL, Estimate

if TYPE_CHECKING:
    from posir_tasks.results import SubsetResult

NDCG = "nDCG@10"
#: Name of the benchmark whose scores are published beside PosIR's.
MMTEB = Path("MMTEB")
SCORE_FILE = "a CSV file with the columns model,score"
#: Task, length and name of a score.
ScoreKey: TypeAlias = tuple[str, str, str]
#: Values by `short_name` of the model.
ByModel: TypeAlias = dict[str, float]
SIZE, DIMENSION = "parameters", "dimension"
#: Beginning of the names of published curves that are means over models of a positional encoding.
PUBLISHED_GROUP = "models with "
#: Name of the data that they are on.
PUBLISHED_DATA = "the paper's data"
UNKNOWN = "unknown"
#: Sums of a model's results on each dataset, by the model's name.
SumsByModel = dict[str, list[ProbeSums]]


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
    """Spearman's rho in [-1, 1], with an interval if there are models enough; or epsilon squared in [0, 1], without one: the
    share of the ranks' variance that is between kinds."""
    p_value: float | None
    """Two-sided, not corrected."""
    verdict: str


def own_scores(summaries: Iterable[TaskSummary], names: Sequence[str]) -> dict[ScoreKey, ByModel]:
    """Return the named scores of own results: over all lengths, and in each length bucket as the papers average it."""
    scores: dict[ScoreKey, ByModel] = {}
    for summary in summaries:
        for row in build_rows(summary):
            ndcg = row.ndcg_at_10 if row.length == ALL else row.ndcg_at_10_as_published
            for name, score in ((NDCG, ndcg), (PSI, row.psi), (START_TO_END, row.start_to_end)):
                if name in names and score is not None:
                    scores.setdefault((summary.task, row.length, name), {})[short_name(summary.model)] = score.value
    return scores


def published_scores(names: Sequence[str]) -> dict[ScoreKey, ByModel]:
    """Return the named scores of the papers; their PSI is the observed one."""
    scores: dict[ScoreKey, ByModel] = {}
    for row in (row for task in published_tasks() for row in published_rows(task)):
        for name, value in ((NDCG, row.ndcg_at_10), (PSI, row.psi_as_published)):
            if name in names:
                scores.setdefault((row.task, row.length, name), {})[short_name(row.model)] = value
    return scores


def join_scores(own: Mapping[ScoreKey, ByModel], published: Mapping[ScoreKey, ByModel]) -> dict[ScoreKey, ByModel]:
    """Return both; one's own value stands for a model that has both."""
    return {key: {**published.get(key, {}), **own.get(key, {})} for key in dict.fromkeys([*own, *published])}


def read_model_metas(results: Path | None) -> dict[str, Mapping[str, Any]]:
    """Return the metadata of mteb's registered models and of those with results in a folder, by `short_name`."""
    from mteb.models.model_implementations import MODEL_REGISTRY

    metas: dict[str, Mapping[str, Any]] = {short_name(name): meta.to_dict() for name, meta in MODEL_REGISTRY.items()}
    for file in sorted(results.rglob("model_meta.json")) if results else ():
        try:
            meta = read_json(file)
            metas[short_name(str(meta["name"]))] = meta
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise PosirError(f"{file}: not the metadata of a model ({summarize_error(error)}).") from error
    return metas


def correlate_architecture(
    scores: Mapping[ScoreKey, ByModel], metas: Mapping[str, Mapping[str, Any]], architectures: Mapping[str, Architecture]
) -> list[ModelCorrelation]:
    """Correlate scores with parameters and dimension, and compare them between kinds of architecture."""
    numbers = {SIZE: "n_parameters", DIMENSION: "embed_dim"}
    values = {
        factor: {name: value for name, meta in metas.items() if (value := _number(meta.get(field)))}
        for factor, field in numbers.items()
    }
    rows = []
    for key, by_model in scores.items():
        rows += [_correlate(key, factor, by_model, known) for factor, known in values.items()]
        rows += [_compare_kinds(key, kind, by_model, architectures) for kind in Kind]
    return rows


def _number(value: Any) -> float | None:
    """Return a number of mteb's metadata; of several dimensions the largest, as mteb does."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return float(max(value)) if value else None
    return float(value) if isinstance(value, int | float) else None


def correlate_benchmark(scores: Mapping[ScoreKey, ByModel], name: str, benchmark: ByModel) -> list[ModelCorrelation]:
    """Correlate scores with those of another benchmark."""
    return [_correlate(key, name, by_model, benchmark) for key, by_model in scores.items()]


def _correlate(key: ScoreKey, factor: str, scores: ByModel, values: ByModel) -> ModelCorrelation:
    models = sorted(scores.keys() & values.keys())
    rho, p_value = estimate_rho(np.array([values[name] for name in models]), np.array([scores[name] for name in models]))
    return ModelCorrelation(*key, factor, len(models), "", "Spearman", rho, p_value, judge(rho, len(models)))


def _compare_kinds(key: ScoreKey, kind: Kind, scores: ByModel, architectures: Mapping[str, Architecture]) -> ModelCorrelation:
    groups: dict[str, list[float]] = {}
    for model, value in scores.items():
        if model in architectures and (name := getattr(architectures[model], kind)):
            groups.setdefault(name, []).append(value)
    values = [value for group in groups.values() for value in group]
    share = p_value = None
    if len(groups) > 1 and len(values) > len(groups) and len(set(values)) > 1:
        result = kruskal(*groups.values())
        share, p_value = Estimate(float(result.statistic / (len(values) - 1))), float(result.pvalue)
    counts = ", ".join(f"{name} {count}" for name, count in sorted(Counter({k: len(v) for k, v in groups.items()}).items()))
    verdict = "undefined" if p_value is None else "differs between kinds" if p_value < 0.05 else "cannot be said"
    return ModelCorrelation(*key, kind, len(values), counts, "Kruskal-Wallis", share, p_value, verdict)


def read_benchmark(source: Path, own: Iterable[SubsetResult] = ()) -> ByModel:
    """Return the score of each model on a benchmark, by `short_name`.

    Args:
        source: `MMTEB` for the published scores of PosIR's models; a CSV file with the columns `model` and `score`; or an
            `--output-folder` of `mteb run`, of which the mean of the main scores over the tasks that all its models have is
            taken, position-aware tasks left out.
        own: Results on position-aware tasks in that folder.

    Raises:
        PosirError: The file or folder has no scores.
    """
    if source == MMTEB:
        return {short_name(model): score for model, score in read_mmteb_scores().items()}
    scores = _read_folder(source, {result.task for result in own}) if source.is_dir() else _read_file(source)
    if not scores:
        raise PosirError(f"{source}: no scores of a benchmark. Give MMTEB, {SCORE_FILE}, or results of `mteb run`.")
    return scores


def _read_file(file: Path) -> ByModel:
    scores = {}
    for number, row in enumerate(read_csv_rows(file, ("model", "score"), SCORE_FILE), 2):
        try:
            scores[short_name(row["model"])] = float(row["score"])
        except ValueError as error:
            raise DataError(f"{file}: row {number}: field 'score': {row['score']!r} is not a number.") from error
    return scores


def _read_folder(folder: Path, left_out: set[str]) -> ByModel:
    from mteb.results import TaskResult

    by_model: dict[str, ByModel] = {}
    for meta in sorted(folder.rglob("model_meta.json")):
        name = short_name(str(read_json(meta)["name"]))
        for file in sorted(meta.parent.glob("*.json")):
            if file.name != meta.name and file.stem not in left_out:
                by_model.setdefault(name, {})[file.stem] = float(TaskResult.from_disk(file).get_score())
    shared = set.intersection(*map(set, by_model.values())) if by_model else set()
    return {name: float(np.mean([tasks[task] for task in sorted(shared)])) for name, tasks in by_model.items() if shared}


def build_correlation_table(rows: Sequence[ModelCorrelation]) -> Table:
    """Return a table with a line per task, length, score and factor."""
    columns = build_columns(
        ("Task", "Score", "Length", "Factor", "Models", "Kinds", "Test", "Value", "95 % interval", "p", "Verdict"),
        ("Models", "Value", "p"),
    )
    cells = tuple(
        (
            row.task,
            row.score,
            row.length,
            row.factor,
            str(row.models),
            row.groups,
            row.test,
            *format_rho(row.value),
            format_p_value(row.p_value),
            row.verdict,
        )
        for row in rows
    )
    note = (
        "Value: Spearman's rho over models, or epsilon squared, the share of the variance of ranks between kinds. p is "
        "two-sided and not corrected: with many rows some are small by chance. The models are no random sample, and versions "
        "of one model are not independent. PSI: the estimate of one's own results, the observed value of published ones."
    )
    return Table(columns, cells, notes=(note,), split_by="{Task} · {Score}", keys=2)


@dataclass(frozen=True)
class GroupRow:
    """The value of a probe at one position, of a model or of the mean over a group of models."""

    probe: str
    data: str
    group: str
    """`APE`, `RoPE`, `causal` and so on; `unknown` for models that are not in the table of architectures."""
    model: str
    """Its name; empty for the mean over the models of the group."""
    models: int
    position: str
    value: Estimate
    """Its 95 % interval is by bootstrap over documents, with the models held fixed; published values have none."""
    source: str


def group_results(
    results: Iterable[ProbeResult],
    probes: Mapping[str, Probe],
    architectures: Mapping[str, Architecture],
    kind: Kind,
) -> list[GroupRow]:
    """Return the values of every probe and dataset: of each model, and the unweighted mean over each group of models.

    If models have results on several datasets, their mean over the datasets follows, of the models that have all of them.
    """
    by_probe: dict[str, dict[str, SumsByModel]] = {}
    for result in results:
        if result.experiment is None:
            by_probe.setdefault(result.probe, {}).setdefault(result.data, {})[result.model] = [result.sums]
    rows: list[GroupRow] = []
    for probe, by_data in by_probe.items():
        for data, by_model in _with_mean(by_data).items():
            rows += _group(probe, data, by_model, probes.get(probe), architectures, kind)
    return rows


def _with_mean(by_data: Mapping[str, SumsByModel]) -> dict[str, SumsByModel]:
    """Return sums by dataset, followed by all datasets together if there are several and models have all."""
    shared = set.intersection(*map(set, by_data.values()))
    if len(by_data) < 2 or not shared:
        return dict(by_data)
    together = {model: [sums for models in by_data.values() for sums in models[model]] for model in sorted(shared)}
    return {**by_data, f"mean of {pluralize(len(by_data), 'dataset')}": together}


def _group(
    probe: str,
    data: str,
    by_model: SumsByModel,
    known: Probe | None,
    architectures: Mapping[str, Architecture],
    kind: Kind,
) -> Iterator[GroupRow]:
    groups: dict[str, list[str]] = {}
    for model in sorted(by_model):
        architecture = architectures.get(short_name(model))
        groups.setdefault((getattr(architecture, kind) if architecture else "") or UNKNOWN, []).append(model)
    source = known.source if known else ""
    for group, models in sorted(groups.items()):
        means = [(model, [model]) for model in models] + [("", models)] * (group != UNKNOWN)
        for name, members in means:
            sums = [sums_of_model for model in members for sums_of_model in by_model[model]]
            for position, index in name_values(sums[0], known):
                estimate = estimate_index(sums, index)
                if estimate is not None:
                    yield GroupRow(probe, data, group, name, len(members), position, estimate, source)


def name_values(sums: ProbeSums, probe: Probe | None) -> list[tuple[str, Compute]]:
    """Return what is shown of a probe by the name of its position: averages over conditions if it has any, else every value."""
    if probe and probe.averages:
        return list(probe.averages.items())
    return [(name, at(place)) for place, name in enumerate(sums.positions)]


def published_groups(probes: Iterable[str]) -> list[GroupRow]:
    """Return the published means over models of each positional encoding; the papers give two models of each."""
    rows = []
    for curve in (curve for probe in probes for curve in read_published_curves(probe)):
        if curve.model.startswith(PUBLISHED_GROUP):
            group = curve.model.removeprefix(PUBLISHED_GROUP)
            for position, value in zip(curve.positions, curve.values, strict=True):
                rows.append(GroupRow(curve.probe, PUBLISHED_DATA, group, "", 2, position, Estimate(value), curve.source))
    return rows


def build_group_tables(rows: Sequence[GroupRow]) -> list[Table]:
    """Return a table for each probe and dataset: a line per model and group, a column per position."""
    blocks: dict[tuple[str, str], dict[tuple[str, str, int], dict[str, Estimate]]] = {}
    for row in rows:
        lines = blocks.setdefault((row.probe, row.data), {})
        lines.setdefault((row.group, row.model, row.models), {})[row.position] = row.value
    return [_build_group_table(f"{probe} · {data}", lines) for (probe, data), lines in blocks.items()]


def _build_group_table(title: str, lines: Mapping[tuple[str, str, int], Mapping[str, Estimate]]) -> Table:
    positions = list(dict.fromkeys(position for values in lines.values() for position in values))
    cells = tuple(
        (group, model or f"mean of {pluralize(models, 'model')}", *(_format(values.get(position)) for position in positions))
        for (group, model, models), values in lines.items()
    )
    return Table(build_columns(("Group", "Model", *positions)), cells, title=title)


def _format(estimate: Estimate | None) -> str:
    return format_estimate(estimate, lambda value: format_number(value, ".3f"))
