"""Comparisons of pairs as rows: each length and metric of a pair is one row."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

from posir_significance.analysis import Analysis, GroupAnalysis, analyze
from posir_significance.decision import (
    CHANGE_LEVEL,
    DEFAULT_MARGINS,
    Change,
    Margins,
    MetricChange,
    compare_groups,
    level_of_lengths,
)
from posir_significance.intervals import LEVEL
from posir_significance.observations import Observations
from posir_significance.sentences import describe_metric_change, format_level, label_change, metric_interval
from posir_tasks.cells import pool
from posir_tasks.display.numbers import (
    format_count,
    format_estimate,
    format_number,
    format_percent,
    format_points,
    format_psi,
    format_psi_difference,
)
from posir_tasks.display.progress import progress
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.display.wording import pluralize
from posir_tasks.document_ranks import DocumentRanks
from posir_tasks.errors import PosirError
from posir_tasks.read_part import UNKNOWN, ReadPart
from posir_tasks.results import SubsetResult, read_results, unify_names
from posir_tasks.scores import ALL, Difference, Estimate
from posir_tasks.sources.repository import combine_revisions

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelRun:
    """A model's results in one folder of mteb's: one model, one revision, one setting."""

    label: str
    """The model's full name, with the folder if several runs have the same name."""
    results: tuple[SubsetResult, ...]

    def by_subset(self, task: str) -> dict[str, SubsetResult]:
        """Return the results on a task by subset."""
        return {result.subset: result for result in self.results if result.task == task}


@dataclass(frozen=True)
class Pair:
    """Two runs with results on the same task: `b` is compared with the baseline `a`."""

    a: ModelRun
    b: ModelRun
    task: str


def read_model_runs(folders: Sequence[Path]) -> list[ModelRun]:
    """Read every run in the folders, ordered by folder, then by model name.

    Raises:
        PosirError: A folder does not exist or has no result.
    """
    return collect_runs([read_results(folder) for folder in folders])


def collect_runs(sources: Sequence[Sequence[SubsetResult]]) -> list[ModelRun]:
    """Return the runs that results are of, ordered by source, then by model name."""
    runs: dict[Path, tuple[SubsetResult, ...]] = {}
    named = iter(unify_names([result for source in sources for result in source]))
    for source in sources:
        ordered = sorted(islice(named, len(source)), key=lambda result: (result.model, str(result.file.parent)))
        for parent, results in groupby(ordered, key=lambda result: result.file.parent):
            # A folder that is given twice, or is inside another one, is read once.
            runs.setdefault(parent.resolve(), tuple(results))
    names = [results[0].model for results in runs.values()]
    return [
        ModelRun(name if names.count(name) == 1 else f"{name} ({results[0].file.parent})", results)
        for name, results in zip(names, runs.values(), strict=True)
    ]


def select_by_name(runs: Sequence[ModelRun], names: Sequence[str]) -> list[ModelRun]:
    """Return the runs of the named models, in the order of the names.

    Args:
        runs: The runs to select from.
        names: Full names of models, or the part after the slash.

    Raises:
        PosirError: A name matches no model, or several.
    """
    return [run for name in names for run in _find_by_name(runs, name)]


def _find_by_name(runs: Sequence[ModelRun], name: str) -> list[ModelRun]:
    wanted = name.casefold()
    named = [run for run in runs if wanted in (model := run.results[0].model.casefold(), model.partition("/")[2])]
    models = {run.results[0].model for run in named}
    if not named:
        known = ", ".join(sorted({run.results[0].model for run in runs}))
        raise PosirError(f"There are no results of a model '{name}'. Use one of these names: {known}.")
    if len(models) > 1:
        raise PosirError(f"'{name}' matches {' and '.join(sorted(models))}. Give the full name.")
    return named


def choose_baseline(runs: Sequence[ModelRun], name: str | None) -> ModelRun:
    """Return the run that the others are compared with: the named one, or the first.

    Args:
        runs: In the order of the folders or names that were given; those of one folder by name.
        name: Full name of the model, or the part after the slash; or its label, if several runs have that name.

    Raises:
        PosirError: The name matches no run, or several.
    """
    if name is None:
        return runs[0]
    named = [run for run in runs if run.label == name] or _find_by_name(runs, name)
    if len(named) > 1:
        raise PosirError(f"--baseline {name} matches {' and '.join(repr(run.label) for run in named)}. Give one of these.")
    return named[0]


def select_tasks(runs: Sequence[ModelRun], tasks: Sequence[str]) -> list[ModelRun]:
    """Return runs with their results of the named tasks alone; all results if no task is named.

    Raises:
        PosirError: No run has results of a task.
    """
    known = sorted({result.task for run in runs for result in run.results})
    unknown = [task for task in tasks if task not in known]
    if unknown:
        raise PosirError(f"--task {unknown[0]}: there are no results of such a task. Choose from {', '.join(known)}.")
    return [replace(run, results=tuple(result for result in run.results if not tasks or result.task in tasks)) for run in runs]


def build_pairs(runs: Sequence[ModelRun], baseline: ModelRun) -> list[Pair]:
    """Return every other run with the baseline, on every task that both have results of, ordered by task.

    Raises:
        PosirError: There is no such pair.
    """
    tasks = sorted({result.task for result in baseline.results})
    pairs = [Pair(baseline, run, task) for task in tasks for run in runs if run is not baseline and run.by_subset(task)]
    if not pairs:
        listed = "; ".join(f"{run.label}: {', '.join(sorted({r.task for r in run.results}))}" for run in runs)
        raise PosirError(
            f"There is nothing to compare: no other model has results on a task of {baseline.label}. Found: {listed}. Run a "
            "second model on one of these tasks with `mteb run`, choose another --baseline, or give a folder that has results."
        )
    for run in runs:
        if run is not baseline and not any(pair.b is run for pair in pairs):
            logger.warning("%s is not compared: %s has no results of its tasks", run.label, baseline.label)
    return pairs


@dataclass(frozen=True, eq=False)
class CommonResults:
    """Two models' results on the same queries."""

    a: DocumentRanks
    """Ranks of the first model over all subsets."""
    b: DocumentRanks
    subsets: tuple[str, ...]
    notes: tuple[str, ...]
    """Notes on subsets that were skipped, such as those on different data, and why queries could not be paired."""

    @cached_property
    def paired(self) -> tuple[Observations, Observations] | None:
        """The gains of both models on the same queries in the same order; None if the queries cannot be paired."""
        if not self.a.same_queries(self.b):
            return None
        return Observations.from_ranks(self.a), Observations.from_ranks(self.b)


def find_common_results(pair: Pair) -> CommonResults:
    """Return the results of two runs on the queries of a task that both have.

    Args:
        pair: Two runs on a task.

    Raises:
        PosirError: They have no queries in common.
    """
    a, b = pair.a.by_subset(pair.task), pair.b.by_subset(pair.task)
    where = f"{pair.a.label} and {pair.b.label} on {pair.task}"
    both = [subset for subset in a if subset in b]
    other_data = {subset: parts for subset in both if (parts := a[subset].data.differing_parts(b[subset].data))}
    same = tuple(
        subset
        for subset in both
        if subset not in other_data and a[subset].profile.cell_counts() == b[subset].profile.cell_counts()
    )
    skipped = list(_describe_skipped(a, b, same, other_data))
    if not same:
        advice = "Only results on the same queries can be compared; run both models again on the same data."
        raise PosirError(f"{where}: {'; '.join(skipped)}. {advice}")
    notes = [f"{where}: {reason}." for reason in skipped]
    first, second = (pool(results[subset].ranks for subset in same) for results in (a, b))
    common = CommonResults(first, second, same, ())
    if common.paired is None:
        notes.append(f"{where}: compared without pairing. The two results are on different queries or documents.")
    return CommonResults(common.a, common.b, same, tuple(notes))


def _describe_skipped(
    a: Mapping[str, SubsetResult], b: Mapping[str, SubsetResult], same: Sequence[str], other_data: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield which subsets of two results are not compared, and why, given those on the same and on other data."""
    both, only_one = a.keys() & b.keys(), sorted(a.keys() ^ b.keys())
    different = sorted(both - {*same} - other_data.keys())
    if not both:
        yield "they have no subset in common"
    elif only_one:
        yield f"skipped subsets that only one of them has: {', '.join(only_one)}"
    if other_data:
        files = " and ".join(
            f"{results[min(other_data)].file} (data revision "
            f"{combine_revisions(results[subset].data.revision for subset in other_data)})"
            for results in (a, b)
        )
        parts = " and ".join(dict.fromkeys(chain.from_iterable(other_data.values())))
        yield f"skipped subsets whose data differ ({parts}): {', '.join(sorted(other_data))} in {files}"
    if different:
        yield f"skipped subsets whose queries or position bins differ: {', '.join(different)}"


class Metric(StrEnum):
    """The score that is compared."""

    NDCG = "nDCG@10"
    START_TO_END = "start to end"
    PSI = "PSI"

    @property
    def key(self) -> str:
        """Key of the score in result files, `ndcg_at_10` for example."""
        return METRIC_KEYS[self]

    @property
    def scale(self) -> int:
        """The factor by which its differences are multiplied when they are printed."""
        return 1 if self is Metric.PSI else 100


METRIC_KEYS = {Metric.NDCG: "ndcg_at_10", Metric.START_TO_END: "start_to_end", Metric.PSI: "psi"}


class ComparisonMethod(StrEnum):
    """Whether the two ranks of each query are known."""

    PAIRED = "paired by query"
    UNPAIRED = "unpaired"


@dataclass(frozen=True)
class ComparisonRow:
    """One comparison of a model, b, with the baseline, a. None where undefined."""

    baseline: str
    model: str
    task: str
    subsets: int
    length: str
    """`all`, or the length bucket."""
    queries: int
    documents: int
    """Documents (articles, where known)."""
    metric: Metric
    method: ComparisonMethod
    a: Estimate | None
    b: Estimate | None
    change: Change
    """The change of all metrics over these queries. Intervals of the metrics hold at the same time, and of all lengths."""
    reads: tuple[ReadPart, ReadPart]
    """The part of a text that the baseline and the model read."""

    @property
    def metric_change(self) -> MetricChange:
        """The change of the metric."""
        change: MetricChange = getattr(self.change, self.metric.key)
        return change

    @property
    def difference(self) -> Difference | None:
        """b - a, with its interval at the level of the change."""
        difference = self.metric_change.difference
        return replace(difference, interval=metric_interval(self.metric_change, self.change)) if difference else None

    def describe(self) -> str:
        """Return the change as a sentence."""
        return describe_metric_change(self.metric.value, self.metric_change, self.change, self.baseline, self.model)

    def columns(self) -> dict[str, Any]:
        """Return the row as the columns of CSV and JSON."""
        change = self.metric_change
        names = ("baseline", "model", "task", "subsets", "length", "queries", "documents", "metric", "method", "a", "b")
        return {
            **{name: getattr(self, name) for name in names},
            "difference": self.difference and Estimate(self.difference.value, self.difference.interval),
            "level": self.change.level,
            "state": change.state,
            "reason": change.reason,
            "margin": change.margin,
            "documents_needed": change.documents_needed,
            "answer": self.describe(),
            "baseline_reads": self.reads[0].phrase,
            "model_reads": self.reads[1].phrase,
        }


@dataclass(frozen=True)
class Gap:
    """Results of the baseline that a model was not compared with, or not with all of them."""

    model: str
    task: str
    reason: str


@dataclass(frozen=True)
class ModelComparison:
    """All rows, and notes on what was skipped or not paired."""

    rows: tuple[ComparisonRow, ...]
    notes: tuple[str, ...]
    gaps: tuple[Gap, ...] = ()


def compare_pairs(pairs: Sequence[Pair], lengths: Collection[str] = (), margins: Margins = DEFAULT_MARGINS) -> ModelComparison:
    """Compare pairs in nDCG@10 and in the effect of position, over all lengths and in each length bucket with queries.

    A pair without common queries is skipped with a note.

    Args:
        pairs: Pairs with the same baseline.
        lengths: Which lengths to compare, `all` or names of length buckets; empty for every one.
        margins: The smallest differences that matter.

    Raises:
        PosirError: No pair has common queries, or there is no such length.
    """
    common_results: list[tuple[Pair, CommonResults]] = []
    notes: list[str] = []
    gaps: list[Gap] = list(_find_missing_tasks(pairs))
    for pair in pairs:
        try:
            common = find_common_results(pair)
        except PosirError as error:
            notes.append(str(error))
            gaps.append(Gap(pair.b.label, pair.task, str(error)))
            continue
        common_results.append((pair, common))
        notes.extend(common.notes)
        if missing := sorted(pair.a.by_subset(pair.task).keys() - set(common.subsets)):
            gaps.append(Gap(pair.b.label, pair.task, f"not compared: {', '.join(missing)}. {' '.join(common.notes)}"))
    notes.extend(_describe_missing_tasks(pairs))
    if not common_results:
        raise PosirError("There is nothing to compare. " + " ".join(notes))
    rows = [
        row
        for pair, common in progress(common_results, "Comparing")
        for row in compare_pair(pair, common, lengths, margins)
        if row.queries
    ]
    return ModelComparison(tuple(select_lengths(rows, lengths)), tuple(notes), tuple(gaps))


def _find_missing_tasks(pairs: Sequence[Pair]) -> Iterator[Gap]:
    """Yield the tasks of the baseline that models have no results of."""
    compared = {(pair.b.label, pair.task) for pair in pairs}
    tasks = sorted({result.task for pair in pairs for result in pair.a.results})
    for model in dict.fromkeys(pair.b.label for pair in pairs):
        yield from (Gap(model, task, f"{model} has no results of it.") for task in tasks if (model, task) not in compared)


def _describe_missing_tasks(pairs: Sequence[Pair]) -> Iterator[str]:
    """Yield a sentence for each model that lacks tasks of the baseline, or has tasks that the baseline lacks."""
    for model in dict.fromkeys(pair.b.label for pair in pairs):
        pair = next(pair for pair in pairs if pair.b.label == model)
        tasks = [{result.task for result in run.results} for run in (pair.a, pair.b)]
        for run, lacking in ((pair.b, tasks[0] - tasks[1]), (pair.a, tasks[1] - tasks[0])):
            if lacking:
                yield f"Not compared, since {run.label} has no results of it: {', '.join(sorted(lacking))}."


def select_lengths(rows: Sequence[ComparisonRow], lengths: Collection[str]) -> list[ComparisonRow]:
    """Return the rows of the named lengths, whatever their case; every row if none is named.

    Raises:
        PosirError: No row has a length of that name.
    """
    known = {row.length.casefold(): row.length for row in rows}
    unknown = [name for name in lengths if name.casefold() not in known]
    if unknown:
        raise PosirError(f"--lengths {unknown[0]}: no queries of such a length. Choose from {', '.join(known.values())}.")
    chosen = {name.casefold() for name in lengths}
    return [row for row in rows if not chosen or row.length.casefold() in chosen]


def compare_pair(
    pair: Pair, common: CommonResults, lengths: Collection[str] = (), margins: Margins = DEFAULT_MARGINS
) -> list[ComparisonRow]:
    """Return the rows of one pair: every metric, for all lengths and for each.

    The intervals of the three metrics over all lengths hold at the same time, and so do those of all compared length buckets.

    Args:
        pair: Two runs on a task.
        common: Their results on the same queries.
        lengths: Lengths that are compared; empty for every one.
        margins: The smallest differences that matter.
    """
    paired = common.paired is not None
    method = ComparisonMethod.PAIRED if paired else ComparisonMethod.UNPAIRED
    first, other = analyze(common.a), analyze(common.b)
    groups = list(zip(_length_names(common), first.groups, other.groups, strict=True))
    chosen = {name.casefold() for name in lengths}
    buckets = sum(bool(a.queries) for name, a, _ in groups if name != ALL and (not chosen or name.casefold() in chosen))
    rows = []
    for name, a, b in groups:
        level = CHANGE_LEVEL if name == ALL else 1 - (1 - CHANGE_LEVEL) / max(buckets, 1)
        change = compare_groups(a, b, paired=paired, margins=margins, level=level)
        by_metric = {
            Metric.NDCG: (a.ndcg, b.ndcg),
            Metric.START_TO_END: (_start_to_end(name, a, first), _start_to_end(name, b, other)),
            Metric.PSI: (a.psi, b.psi),
        }
        rows += [
            ComparisonRow(
                baseline=pair.a.label,
                model=pair.b.label,
                task=pair.task,
                subsets=len(common.subsets),
                length=name,
                queries=a.queries,
                documents=change.documents,
                metric=metric,
                method=method,
                a=of_baseline,
                b=of_model,
                change=change,
                reads=(_read_part(pair.a, pair.task), _read_part(pair.b, pair.task)),
            )
            for metric, (of_baseline, of_model) in by_metric.items()
        ]
    return rows


def _start_to_end(length: str, group: GroupAnalysis, analysis: Analysis) -> Estimate | None:
    """Return start to end with the interval that a report prints."""
    contrast, level = group.position.start_to_end, LEVEL if length == ALL else level_of_lengths(analysis)
    return Estimate(contrast.value, contrast.interval_at(level)) if contrast and contrast.interval_at else contrast


def _read_part(run: ModelRun, task: str) -> ReadPart:
    reads = [result.values.read for result in run.by_subset(task).values()]
    return pool(reads) if reads else UNKNOWN


def _length_names(common: CommonResults) -> tuple[str, ...]:
    """Return `all` and the names of the length buckets if there are several."""
    names = common.a.profile.lengths
    return ("all", *names) if len(names) > 1 else ("all",)


RUN = ("Task", "Method", "Baseline", "Model", "Metric", "Length")
#: Most comparisons of two models on a task with a sentence each.
MOST_SENTENCES = 6
SCORES = ("Queries", "Baseline score", "Score", "Difference", "Change")
#: How a score and its difference are printed.
FORMATS = {
    Metric.NDCG: (format_percent, format_points),
    Metric.START_TO_END: (format_points, format_points),
    Metric.PSI: (format_psi, format_psi_difference),
}
#: Headings of columns of numbers.
NUMBERS = ("Queries",)


def comparison_table(rows: Iterable[ComparisonRow]) -> Table:
    """Return a table with a line for each comparison; a terminal shows a table for each task, method and model."""
    rows, metrics = list(rows), list(Metric)
    models = list(dict.fromkeys(row.model for row in rows))
    lengths = list(dict.fromkeys(row.length for row in rows))
    ordered = sorted(
        rows,
        key=lambda row: (
            row.task,
            row.method,
            models.index(row.model),
            metrics.index(row.metric),
            lengths.index(row.length),
        ),
    )
    return Table(
        build_columns((*RUN, *SCORES), NUMBERS),
        tuple(
            (row.task, row.method.value, row.baseline, row.model, row.metric.value, row.length, *_cells(row)) for row in ordered
        ),
        split_by="{Task} · {Method}\n{Model} against {Baseline}",
        keys=2,
    )


def describe_differences(rows: Iterable[ComparisonRow]) -> Iterator[str]:
    """Yield the changes over all lengths of each model and task, and what the two read; counts of states if there are many."""
    pairs: dict[tuple[str, str, str], list[ComparisonRow]] = {}
    for row in rows:
        if row.length == ALL:
            pairs.setdefault((row.task, row.model, row.baseline), []).append(row)
    if len(pairs) > MOST_SENTENCES:
        for metric in Metric:
            counts = Counter(label_change(row.metric_change) for pair in pairs.values() for row in pair if row.metric is metric)
            states = ", ".join(f"{count:,} {state}" for state, count in counts.most_common())
            yield f"Change in {metric.value} over all lengths, {pluralize(len(pairs), 'pair')}: {states}."
        by_chance = format_number(len(pairs) * (1 - LEVEL), ".1f").removesuffix(".0")
        yield f"If none of them differed, about {by_chance} would be expected to be called better or worse by chance."
        return
    for (task, model, baseline), pair in pairs.items():
        first, second = pair[0].reads
        reads = f" {baseline} reads {first.phrase}, {model} {second.phrase}." if first != second else ""
        yield f"{task}: {' '.join(row.describe() for row in pair)}{reads}"


def describe_levels(rows: Iterable[ComparisonRow]) -> str:
    """Return the levels of the intervals of differences, and what holds at the same time."""
    levels = {row.length == ALL: format_level(row.change.level) for row in rows}
    overall = f"of the three metrics over all lengths each at {levels[True]}" if True in levels else ""
    lengths = f"in the rows of lengths each at {levels[False]}" if False in levels else ""
    return f"Intervals of differences hold at the same time: {', '.join(filter(None, (overall, lengths)))}."


def _cells(row: ComparisonRow) -> tuple[str, ...]:
    """Return the text below each heading of `SCORES`: nDCG@10 x 100 and PSI as the papers print them."""
    score, difference = FORMATS[row.metric]
    return (
        format_count(row.queries),
        format_estimate(row.a, score),
        format_estimate(row.b, score),
        format_estimate(row.difference, difference),
        label_change(row.metric_change),
    )
