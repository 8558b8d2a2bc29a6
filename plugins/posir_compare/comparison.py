"""Comparisons of pairs as rows: each length and metric of a pair is one row."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

from posir_significance.advice import build_commands
from posir_significance.analysis import GroupAnalysis, analyze, analyze_places
from posir_significance.decision import (
    CHANGE_LEVEL,
    DEFAULT_MARGINS,
    Change,
    Margins,
    MetricChange,
    compare_groups,
    compare_judged,
    decide,
    level_of_lengths,
)
from posir_significance.findings import GroupFindings, Quantity
from posir_significance.intervals import LEVEL, estimate_judged
from posir_significance.messages import METRICS as METRIC_NAMES
from posir_significance.messages import describe_advice, describe_change
from posir_significance.strips import build_strip
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import progress
from posir_tasks.base.wording import drop_organizations
from posir_tasks.data.repository import combine_revisions
from posir_tasks.display.numbers import format_percent, format_points
from posir_tasks.display.strip import Strip
from posir_tasks.models.command_reference import CommandReference
from posir_tasks.models.references import bare_name
from posir_tasks.results import JudgedResult, StoredResult, SubsetResult, unify_names
from posir_tasks.values.judgments import METRICS, JudgedScores
from posir_tasks.values.place_ranks import PLACES
from posir_tasks.values.profile import pool
from posir_tasks.values.read_part import UNKNOWN, ReadPart
from posir_tasks.values.scores import ALL, Difference, Estimate, ResultValues

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelRun:
    """A model's results in one folder of mteb's: one model, one revision, one setting."""

    label: str
    """The model's full name, with the folder if several runs have the same name."""
    results: tuple[StoredResult, ...]

    def by_subset(self, task: str) -> dict[str, SubsetResult]:
        """Return the results by position on a task by subset."""
        return {
            result.subset: result
            for result in self.results
            if result.task == task and isinstance(result, SubsetResult)
        }

    def find_read(self, task: str) -> ReadPart:
        """Return what the model reads, over the subsets of a task."""
        parts = [result.values.read for result in self.by_subset(task).values()]
        return pool(parts) if parts else UNKNOWN

    def find_reference(self, task: str) -> CommandReference:
        """Return the names of the model and a task in commands."""
        return next(result.reference for result in self.results if result.task == task)

    def judged(self, task: str) -> dict[str, JudgedResult]:
        """Return the results on all judged queries of a task by subset."""
        return {
            result.subset: result
            for result in self.results
            if result.task == task and isinstance(result, JudgedResult)
        }


@dataclass(frozen=True)
class Pair:
    """Two runs with results on the same task: `b` is compared with the baseline `a`."""

    a: ModelRun
    b: ModelRun
    task: str


def collect_runs(sources: Sequence[Sequence[StoredResult]]) -> list[ModelRun]:
    """Return the runs that results are of, ordered by source, then by model name."""
    runs: dict[Path, tuple[StoredResult, ...]] = {}
    named = iter(unify_names([result for source in sources for result in source]))
    for source in sources:
        ordered = sorted(
            islice(named, len(source)), key=lambda result: (result.model, str(result.file.parent))
        )
        for parent, results in groupby(ordered, key=lambda result: result.file.parent):
            # A folder that is given twice, or is inside another one, is read once.
            runs.setdefault(parent.resolve(), tuple(results))
    names = [results[0].model for results in runs.values()]
    return [
        ModelRun(name if names.count(name) == 1 else f"{name} ({results[0].file.parent})", results)
        for name, results in zip(names, runs.values(), strict=True)
    ]


def find_by_name(runs: Sequence[ModelRun], name: str) -> list[ModelRun]:
    """Return the runs of a model by its full name, or the part after the slash."""
    wanted = name.casefold()
    named = [
        run
        for run in runs
        if wanted in (model := run.results[0].model.casefold(), model.partition("/")[2])
    ]
    models = {run.results[0].model for run in named}
    if not named:
        known = sorted({run.results[0].model for run in runs})
        parts = {
            part.casefold(): model
            for model in known
            for part in (model, *bare_name(model).split("-"), bare_name(model))
        }
        near = [
            f" Did you mean {bare_name(parts[part])}?"
            for part in get_close_matches(wanted, parts, 1)
        ]
        raise PosirError(
            f"There are no results of a model '{name}'.{''.join(near)} Use one of these names: "
            f"{', '.join(known)}."
        )
    if len(models) > 1:
        raise PosirError(f"'{name}' matches {' and '.join(sorted(models))}. Give the full name.")
    return named


def choose_baseline(runs: Sequence[ModelRun], name: str | None) -> ModelRun:
    """Return the run that the others are compared with: the named one, or the first.

    The name is the full one, or the part after the slash; or the label, if several runs have that
    name.
    """
    if name is None:
        return runs[0]
    named = [run for run in runs if run.label == name] or find_by_name(runs, name)
    if len(named) > 1:
        raise PosirError(
            f"--baseline {name} matches {' and '.join(repr(run.label) for run in named)}. Give "
            "one of these."
        )
    return named[0]


def build_pairs(runs: Sequence[ModelRun], baseline: ModelRun) -> list[Pair]:
    """Return every other run with the baseline, on every task that both have results of, ordered by
    task.

    Raises:
        PosirError: There is no such pair.
    """
    tasks = sorted({result.task for result in baseline.results})
    others = [(run, {result.task for result in run.results}) for run in runs if run is not baseline]
    pairs = [Pair(baseline, run, task) for task in tasks for run, known in others if task in known]
    if not pairs:
        listed = "; ".join(
            f"{run.label}: {', '.join(sorted({r.task for r in run.results}))}" for run in runs
        )
        raise PosirError(
            "There is nothing to compare: no other model has results on a task of "
            f"{baseline.label}. Found: {listed}. Run a "
            "second model on one of these tasks with `mteb run`, choose another --baseline, or "
            "give a folder that has results."
        )
    for run in runs:
        if run is not baseline and not any(pair.b is run for pair in pairs):
            logger.warning(
                "%s is not compared: %s has no results of its tasks", run.label, baseline.label
            )
    return pairs


@dataclass(frozen=True, eq=False)
class CommonResults:
    """Two models' results on the same queries."""

    a: ResultValues
    b: ResultValues
    subsets: tuple[str, ...]
    notes: tuple[str, ...]
    """Notes on subsets that were skipped, such as those on different data, and why queries could
    not be paired.
    """

    @property
    def are_paired(self) -> bool:
        """Whether both are on the same queries in the same order."""
        return self.a.ranks.same_queries(self.b.ranks)


def find_common_results(pair: Pair) -> CommonResults:
    """Return the results of two runs on the queries of a task that both have.

    Raises:
        PosirError: They have no queries in common.
    """
    a, b = pair.a.by_subset(pair.task), pair.b.by_subset(pair.task)
    where = f"{pair.a.label} and {pair.b.label} on {pair.task}"
    both = [subset for subset in a if subset in b]
    other_data = {
        subset: parts
        for subset in both
        if (parts := a[subset].data.differing_parts(b[subset].data))
    }
    same = tuple(
        subset
        for subset in both
        if subset not in other_data and a[subset].profile.same_queries(b[subset].profile)
    )
    skipped = list(_describe_skipped(a, b, same, other_data))
    if not same:
        advice = (
            "Only results on the same queries can be compared; run both models again on the same "
            "data."
        )
        raise PosirError(f"{where}: {'; '.join(skipped)}. {advice}")
    notes = [f"{where}: {reason}." for reason in skipped]
    first, second = (pool(results[subset].values for subset in same) for results in (a, b))
    common = CommonResults(first, second, same, ())
    if not common.are_paired:
        notes.append(
            f"{where}: compared without pairing. The two results are on different queries or "
            "documents."
        )
    return replace(common, notes=tuple(notes))


def _describe_skipped(
    a: Mapping[str, SubsetResult],
    b: Mapping[str, SubsetResult],
    same: Sequence[str],
    other_data: Mapping[str, Sequence[str]],
) -> Iterator[str]:
    """Yield which subsets of two results are not compared, and why, given those on the same and on
    other data.
    """
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
        yield (
            f"skipped subsets whose data differ ({parts}): {', '.join(sorted(other_data))} in "
            f"{files}"
        )
    if different:
        yield f"skipped subsets whose queries or position bins differ: {', '.join(different)}"


def find_common_judged(pair: Pair) -> tuple[JudgedScores, JudgedScores, int, tuple[str, ...]]:
    """Return the metrics of two runs on all judged queries of a task, pooled over the subsets that
    both have with the same judgments, the number of these, and notes on others; raise PosirError if
    there are none.
    """
    a, b = pair.a.judged(pair.task), pair.b.judged(pair.task)
    both = [subset for subset in a if subset in b]
    same = [
        subset
        for subset in both
        if a[subset].values.digests == b[subset].values.digests
        and not a[subset].data.differing_parts(b[subset].data)
    ]
    where = f"{pair.a.label} and {pair.b.label} on {pair.task}, judged queries"
    if not same:
        raise PosirError(
            f"{where}: "
            f"{'corpus, judgments or clusters differ' if both else 'they have no subset in common'}. "  # noqa: E501
            "Score both runs "
            "on the same data, with the same --clusters."
        )
    left_out = sorted((a.keys() | b.keys()) - {*same})
    notes = (
        (
            f"{where}: skipped subsets that only one has, or whose data differ: "
            f"{', '.join(left_out)}.",
        )
        if left_out
        else ()
    )
    first, second = (pool(results[subset].values for subset in same) for results in (a, b))
    return first, second, len(same), notes


class Metric(StrEnum):
    """The score that is compared."""

    NDCG = METRICS["ndcg_at_10"]
    POSITION_EFFECT = METRIC_NAMES["position_effect"]
    IN_WINDOW = METRIC_NAMES["position_effect_in_window"]
    MRR = METRICS["mrr_at_10"]
    RECALL_AT_10 = METRICS["recall_at_10"]
    RECALL_AT_100 = METRICS["recall_at_100"]
    MAP = METRICS["map_at_100"]

    @property
    def key(self) -> str:
        """Key of the score in result files, `ndcg_at_10` for example."""
        return next(key for key, name in METRIC_NAMES.items() if name == self.value)

    @property
    def heading(self) -> str:
        """Heading of its changes, with what is best if that is not the highest."""
        return HEADINGS.get(self, self.value)


#: Headings of the changes of metrics of which the highest is not the best.
HEADINGS = {
    Metric.POSITION_EFFECT: "Position effect (best: 0)",
    Metric.IN_WINDOW: "Effect within the window (best: 0)",
}
#: The metrics of all judged queries, whose evidence may have no position.
JUDGED_METRICS = tuple(metric for metric in Metric if metric.key in METRICS)


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
    method: str
    """`paired by query` if the two ranks of each query are known, else `unpaired`."""
    a: Estimate | None
    b: Estimate | None
    change: Change
    """The change of all metrics over these queries. Intervals of the metrics hold at the same time,
    and of all lengths.
    """
    reads: tuple[ReadPart, ReadPart]
    """The part of a text that the baseline and the model read."""
    length_title: str = ""
    """The length bucket with its bounds, without colon and unit: `Q2 513 to 1,024`."""

    @property
    def metric_change(self) -> MetricChange:
        """The change of the metric."""
        return self.change.find(self.metric.key)

    @property
    def difference(self) -> Difference | None:
        """b - a, with its interval at the level of the change."""
        return self.metric_change.difference

    def describe(self) -> str:
        """Return the change as a sentence."""
        return describe_change(self.metric.key, self.metric_change, self.baseline, self.model)

    def columns(self) -> dict[str, Any]:
        """Return the row as the columns of CSV and JSON."""
        change = self.metric_change
        names = (
            "baseline",
            "model",
            "task",
            "subsets",
            "length",
            "queries",
            "documents",
            "metric",
            "method",
            "a",
            "b",
        )
        return {
            **{name: getattr(self, name) for name in names},
            "difference": self.difference
            and Estimate(self.difference.value, self.difference.interval),
            "level": self.change.level,
            "state": change.state,
            "reason": change.reason,
            "margin": change.margin,
            "needed": change.needed and change.needed.number,
            "needed_unit": change.needed and change.needed.unit,
            "answer": self.describe(),
            "baseline_reads": self.reads[0].phrase,
            "model_reads": self.reads[1].phrase,
        }


@dataclass(frozen=True)
class ModelComparison:
    """All rows, and notes on what was skipped or not paired."""

    rows: tuple[ComparisonRow, ...]
    notes: tuple[str, ...]
    """Sentences on pairs and subsets that were skipped, or could not be paired by query."""
    gaps: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Reasons why a model was not compared with the baseline, or not with all of its results, by
    model and task.
    """
    common: tuple[tuple[Pair, CommonResults], ...] = field(default=(), repr=False, compare=False)
    """The pairs with common queries, and their results on these."""

    def draw_common(self) -> Iterator[Strip]:
        """Yield the picture of the answer of the baseline and of each model, on the queries that
        they have in common.
        """
        several, drawn = len({pair.task for pair, _ in self.common}) > 1, set()
        labels = [run.label for pair, _ in self.common for run in (pair.a, pair.b)]
        short = dict(zip(labels, drop_organizations(labels), strict=True))
        for pair, common in self.common:
            for run, values in ((pair.a, common.a), (pair.b, common.b)):
                name = f"{short[run.label]}, {pair.task}" if several else short[run.label]
                if name in drawn:
                    continue
                drawn.add(name)
                group = analyze(values).overall
                findings = decide(group)
                commands = build_commands(findings, run.find_reference(pair.task))
                # The next step for the baseline is for a report on it.
                facts = partial(_list_advice, findings, pair.task) if run is pair.b else tuple
                strip = build_strip(findings, group, name)
                yield replace(strip, facts=facts, code="\n".join(commands))


def _list_advice(findings: GroupFindings, task: str) -> tuple[tuple[str, str], ...]:
    return (("Next", describe_advice(findings, task)),)


def compare_pairs(
    pairs: Sequence[Pair], lengths: Collection[str] = (), margins: Margins = DEFAULT_MARGINS
) -> ModelComparison:
    """Compare pairs in nDCG@10 and in the effect of position, over all lengths and in each length
    bucket with queries.

    All pairs have the same baseline; one without common queries is skipped with a note. `lengths`
    are `all` or names of length buckets; empty for every one.
    """
    common_results: list[tuple[Pair, CommonResults]] = []
    judged: list[ComparisonRow] = []
    notes: list[str] = []
    gaps, missing_tasks = _find_missing_tasks(pairs)
    for pair in pairs:
        try:
            if pair.a.judged(pair.task) or pair.b.judged(pair.task):
                rows_of_pair, of_pair = _compare_judged_pair(pair, margins)
                judged += rows_of_pair
                notes += of_pair
                if of_pair:
                    gaps[pair.b.label, pair.task] = " ".join(of_pair)
            if not (pair.a.by_subset(pair.task) or pair.b.by_subset(pair.task)):
                continue
            common = find_common_results(pair)
        except PosirError as error:
            notes.append(str(error))
            gaps[pair.b.label, pair.task] = str(error)
            continue
        common_results.append((pair, common))
        notes.extend(common.notes)
        if missing := sorted(pair.a.by_subset(pair.task).keys() - set(common.subsets)):
            gaps[pair.b.label, pair.task] = (
                f"not compared: {', '.join(missing)}. {' '.join(common.notes)}"
            )
    notes += missing_tasks
    if not common_results and not judged:
        raise PosirError("There is nothing to compare. " + " ".join(notes))
    rows = [
        row
        for pair, common in progress(common_results, "Comparing")
        for row in compare_pair(pair, common, lengths, margins)
        if row.queries
    ] + judged
    known = {row.length.casefold(): row.length for row in rows}
    chosen = {name.casefold() for name in lengths} or known
    if unknown := [name for name in lengths if name.casefold() not in known]:
        raise PosirError(
            f"--lengths {unknown[0]}: no queries of such a length. Choose from "
            f"{', '.join(known.values())}."
        )
    shown = tuple(row for row in rows if row.length.casefold() in chosen)
    return ModelComparison(shown, tuple(notes), gaps, tuple(common_results))


def _compare_judged_pair(
    pair: Pair, margins: Margins
) -> tuple[list[ComparisonRow], tuple[str, ...]]:
    """Return a row for each metric of all judged queries, and notes; raise PosirError if the runs
    have none in common.
    """
    a, b, subsets, notes = find_common_judged(pair)
    change = compare_judged(a, b, margins)
    rows = [
        ComparisonRow(
            baseline=pair.a.label,
            model=pair.b.label,
            task=pair.task,
            subsets=subsets,
            length=ALL,
            queries=a.queries,
            documents=change.documents,
            metric=metric,
            method=f"judged queries, paired by {a.clusters}",
            a=estimate_judged(a, metric.key),
            b=estimate_judged(b, metric.key),
            change=change,
            reads=(UNKNOWN, UNKNOWN),
        )
        for metric in JUDGED_METRICS
    ]
    return rows, notes


def _find_missing_tasks(pairs: Sequence[Pair]) -> tuple[dict[tuple[str, str], str], list[str]]:
    """Return why models lack tasks of the baseline, by model and task, and sentences on the tasks
    that only one of two has.
    """
    compared = {(pair.b.label, pair.task) for pair in pairs}
    gaps: dict[tuple[str, str], str] = {}
    notes = []
    for label, pair in {pair.b.label: pair for pair in pairs}.items():
        of_baseline, of_model = (
            {result.task for result in run.results} for run in (pair.a, pair.b)
        )
        gaps |= {
            (label, task): f"{label} has no results of it."
            for task in sorted(of_baseline)
            if (label, task) not in compared
        }
        for run, lacking in ((pair.b, of_baseline - of_model), (pair.a, of_model - of_baseline)):
            if lacking:
                notes.append(
                    f"Not compared, since {run.label} has no results of it: "
                    f"{', '.join(sorted(lacking))}."
                )
    return gaps, notes


def compare_pair(
    pair: Pair,
    common: CommonResults,
    lengths: Collection[str] = (),
    margins: Margins = DEFAULT_MARGINS,
) -> list[ComparisonRow]:
    """Return the rows of one pair: every metric, for all lengths and for each.

    The intervals of the three metrics over all lengths hold at the same time, and so do those of
    all length buckets in `lengths`, which are every one if it is empty.
    """
    paired = common.are_paired
    first, other = analyze(common.a), analyze(common.b)
    reads = pair.a.find_read(pair.task), pair.b.find_read(pair.task)
    axes = common.a.profile.axes
    names = (ALL, *axes.lengths) if len(axes.lengths) > 1 else (ALL,)
    titles = dict(zip(axes.lengths, axes.length_titles, strict=True))
    groups = [
        (pair.task, *group, paired) for group in zip(names, first.groups, other.groups, strict=True)
    ]
    chosen = {name.casefold() for name in lengths}
    compared = sum(
        bool(a.queries)
        for _, name, a, *_ in groups
        if name != ALL and (not chosen or name.casefold() in chosen)
    )
    places = analyze_places(common.a), analyze_places(common.b)
    if places[0] and places[1] and common.a.places and common.b.places:
        same = common.a.places.same_queries(common.b.places)
        groups.append((f"{pair.task}{PLACES}", ALL, places[0], places[1], same))
    rows = []
    for task, name, a, b, is_paired in groups:
        level = CHANGE_LEVEL if name == ALL else 1 - (1 - CHANGE_LEVEL) / max(compared, 1)
        change = compare_groups(a, b, paired=is_paired, margins=margins, level=level)
        # With the interval that a report prints.
        printed = [
            LEVEL if name == ALL else level_of_lengths(analysis) for analysis in (first, other)
        ]
        scores = [_list_scores(group, shown) for group, shown in zip((a, b), printed, strict=True)]
        rows += [
            ComparisonRow(
                baseline=pair.a.label,
                model=pair.b.label,
                task=task,
                subsets=len(common.subsets),
                length=name,
                queries=a.queries,
                documents=change.documents,
                metric=metric,
                method="paired by query" if is_paired else "unpaired",
                a=scores[0][metric],
                b=scores[1][metric],
                change=change,
                reads=reads,
                length_title=titles.get(name, name).replace(":", "").removesuffix(" tokens"),
            )
            for metric in POSITION_METRICS
            # Effects of position are of queries with one place.
            if not a.has_places or metric is Metric.NDCG
        ]
    return rows


#: The metrics of queries whose evidence has one position.
POSITION_METRICS = (Metric.NDCG, Metric.POSITION_EFFECT, Metric.IN_WINDOW)


def _list_scores(group: GroupAnalysis, level: float) -> dict[Metric, Estimate | None]:
    """Return the scores of a system that are compared."""
    findings = decide(group, level=level)
    return {metric: findings[Quantity(metric.key)].estimate for metric in POSITION_METRICS}


#: How a score and its difference are printed.
FORMATS = {
    **dict.fromkeys((Metric.POSITION_EFFECT, Metric.IN_WINDOW), (format_points, format_points)),
    **dict.fromkeys(JUDGED_METRICS, (format_percent, format_points)),
}
