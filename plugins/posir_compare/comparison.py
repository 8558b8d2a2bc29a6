"""Comparisons of pairs as rows: each length and metric of a pair is one row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from posir_compare.pairing import CommonResults, Pair, find_common_judged, find_common_results
from posir_significance.analysis import GroupAnalysis, analyze, analyze_places
from posir_significance.changes import compare_groups, compare_judged
from posir_significance.decision import DEFAULT_MARGINS, Margins, decide, level_of_lengths
from posir_significance.findings import (
    CHANGE_LEVEL,
    EFFECTS,
    POSITION_METRICS,
    ChangeRow,
    ChangeSubject,
    Metric,
    Quantity,
)
from posir_significance.intervals import estimate_judged
from posir_significance.messages import describe_change
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import progress
from posir_tasks.display.numbers import format_percent, format_points
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.means import LEVEL
from posir_tasks.values.place_ranks import PLACES
from posir_tasks.values.scores import ALL

#: Headings of the changes of metrics of which the highest is not the best.
HEADINGS = {
    Metric.POSITION_EFFECT: "Position effect (best: 0)",
    Metric.POSITION_EFFECT_IN_WINDOW: "Effect within the window (best: 0)",
}
#: How a score is printed.
FORMATS = dict.fromkeys(Metric, format_percent) | dict.fromkeys(EFFECTS, format_points)


def list_columns(row: ChangeRow) -> dict[str, Any]:
    """Return a row as the columns of CSV and JSON."""
    subject = row.subject
    return {
        "baseline": subject.baseline,
        "model": subject.model,
        "task": subject.task,
        "subsets": subject.subsets,
        "length": subject.length,
        "queries": subject.queries,
        "documents": subject.documents,
        "metric": row.metric,
        "method": subject.method,
        "a": row.a,
        "b": row.b,
        "difference": row.estimate and Estimate(row.estimate.value, row.estimate.interval),
        "level": row.level,
        "state": row.state,
        "reason": row.reason,
        "margin": row.margin,
        "needed": row.needed and row.needed.number,
        "needed_unit": row.needed and row.needed.unit,
        "answer": describe_change(row),
        "baseline_reads": subject.reads[0].phrase,
        "model_reads": subject.reads[1].phrase,
    }


@dataclass(frozen=True)
class ModelComparison:
    """All rows, and notes on what was skipped or not paired."""

    rows: tuple[ChangeRow, ...]
    notes: tuple[str, ...]
    """Sentences on pairs and subsets that were skipped, or could not be paired by query."""
    gaps: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Reasons why a model was not compared with the baseline, or not with all of its results, by
    model and task.
    """
    common: tuple[tuple[Pair, CommonResults], ...] = field(default=(), repr=False, compare=False)
    """The pairs with common queries, and their results on these."""


def compare_pairs(
    pairs: Sequence[Pair], lengths: Collection[str] = (), margins: Margins = DEFAULT_MARGINS
) -> ModelComparison:
    """Compare pairs in nDCG@10 and in the effect of position, over all lengths and in each length
    bucket with queries.

    All pairs have the same baseline; one without common queries is skipped with a note. `lengths`
    are `all` or names of length buckets; empty for every one.

    Raises:
        PosirError: No pair has common queries, or there is no such length.
    """
    common_results: list[tuple[Pair, CommonResults]] = []
    judged: list[ChangeRow] = []
    notes: list[str] = []
    gaps = _find_missing_tasks(pairs)
    for pair in pairs:
        try:
            if pair.a.judged(pair.task) or pair.b.judged(pair.task):
                judged_rows, judged_notes = _compare_judged_pair(pair, margins)
                judged += judged_rows
                notes += judged_notes
                if judged_notes:
                    gaps[pair.b.label, pair.task] = " ".join(judged_notes)
            if not (pair.a.by_subset(pair.task) or pair.b.by_subset(pair.task)):
                continue
            common = find_common_results(pair)
        except PosirError as error:
            notes.append(str(error))
            gaps[pair.b.label, pair.task] = str(error)
            continue
        common_results.append((pair, common))
        notes += common.notes
        if missing := sorted(pair.a.by_subset(pair.task).keys() - {*common.subsets}):
            reason = f"not compared: {', '.join(missing)}. {' '.join(common.notes)}"
            gaps[pair.b.label, pair.task] = reason
    notes += _list_missing_tasks(pairs)
    if not common_results and not judged:
        raise PosirError("There is nothing to compare. " + " ".join(notes))
    rows = [
        row
        for pair, common in progress(common_results, "Comparing")
        for row in compare_pair(pair, common, lengths, margins)
    ]
    chosen = _choose_lengths([*rows, *judged], lengths)
    return ModelComparison(chosen, tuple(notes), gaps, tuple(common_results))


def _choose_lengths(rows: Sequence[ChangeRow], lengths: Collection[str]) -> tuple[ChangeRow, ...]:
    """Return the rows of the given lengths, of all if none is given."""
    available = {row.subject.length.casefold(): row.subject.length for row in rows}
    for name in lengths:
        if name.casefold() not in available:
            raise PosirError(
                f"--lengths {name}: no queries of such a length. Choose from "
                f"{', '.join(available.values())}."
            )
    chosen = {name.casefold() for name in lengths} or available.keys()
    return tuple(row for row in rows if row.subject.length.casefold() in chosen)


def _compare_judged_pair(pair: Pair, margins: Margins) -> tuple[list[ChangeRow], tuple[str, ...]]:
    """Return a row for each metric of all judged queries, and notes."""
    common = find_common_judged(pair)
    a = common.a
    subject = ChangeSubject(
        baseline=pair.a.label,
        model=pair.b.label,
        task=pair.task,
        subsets=common.subsets,
        queries=a.queries,
        documents=len(a.sizes),
        counted=a.counted,
        method=f"judged queries, paired by {a.clusters}",
        is_judged=True,
    )
    changes = compare_judged(a, common.b, margins)
    rows = [
        replace(
            change,
            a=estimate_judged(a, metric.key),
            b=estimate_judged(common.b, metric.key),
            subject=subject,
        )
        for metric, change in changes.items()
    ]
    return rows, common.notes


def _find_missing_tasks(pairs: Sequence[Pair]) -> dict[tuple[str, str], str]:
    """Find the tasks of the baseline without results of a model, by model and task."""
    compared = {(pair.b.label, pair.task) for pair in pairs}
    return {
        (pair.b.label, task): f"{pair.b.label} has no results of it."
        for pair in pairs
        for task in sorted(pair.a.tasks)
        if (pair.b.label, task) not in compared
    }


def _list_missing_tasks(pairs: Sequence[Pair]) -> list[str]:
    """Return sentences on the tasks that only one of two runs has."""
    notes = []
    for pair in {pair.b.label: pair for pair in pairs}.values():
        for run, other in ((pair.b, pair.a), (pair.a, pair.b)):
            if missing := sorted(other.tasks - run.tasks):
                names = ", ".join(missing)
                notes.append(f"Not compared, since {run.label} has no results of it: {names}.")
    return notes


def compare_pair(
    pair: Pair,
    common: CommonResults,
    lengths: Collection[str] = (),
    margins: Margins = DEFAULT_MARGINS,
) -> list[ChangeRow]:
    """Return the rows of one pair: every metric, for all lengths and for each with queries.

    The intervals of the three metrics over all lengths hold at the same time, and so do those of
    all length buckets in `lengths`, which are every one if it is empty.
    """
    first = analyze(common.a)
    second = analyze(common.b)
    axes = common.a.profile.axes
    names = (ALL, *axes.lengths) if len(axes.lengths) > 1 else (ALL,)
    titles = dict(zip(axes.lengths, axes.length_titles, strict=True))
    groups = [
        (name, a, b)
        for name, a, b in zip(names, first.groups, second.groups, strict=True)
        if a.queries
    ]
    chosen = {name.casefold() for name in lengths} or {name.casefold() for name in names}
    compared = sum(name.casefold() in chosen for name, *_ in groups if name != ALL)
    of_all = (CHANGE_LEVEL, LEVEL, LEVEL)
    length_level = 1 - (1 - CHANGE_LEVEL) / max(compared, 1)
    of_length = (length_level, level_of_lengths(first), level_of_lengths(second))
    subject = ChangeSubject(
        baseline=pair.a.label,
        model=pair.b.label,
        task=pair.task,
        subsets=len(common.subsets),
        reads=(pair.a.find_read(pair.task), pair.b.find_read(pair.task)),
    )
    rows = list[ChangeRow]()
    for name, a, b in groups:
        # "Q2: 513 to 1,024 tokens" is shown without colon and unit.
        title = titles.get(name, name).replace(":", "").removesuffix(" tokens")
        named = replace(subject, length=name, length_title=title)
        rows += _compare_group(
            named, a, b, common.are_paired, margins, of_all if name == ALL else of_length
        )
    first_places = analyze_places(common.a)
    second_places = analyze_places(common.b)
    if first_places and second_places and common.a.places and common.b.places:
        are_paired = common.a.places.same_queries(common.b.places)
        named = replace(subject, task=f"{pair.task}{PLACES}", length_title=ALL)
        changes = _compare_group(named, first_places, second_places, are_paired, margins, of_all)
        # Effects of position are of queries with one place.
        rows += [change for change in changes if change.metric is Metric.NDCG_AT_10]
    return rows


def _compare_group(
    subject: ChangeSubject,
    a: GroupAnalysis,
    b: GroupAnalysis,
    are_paired: bool,
    margins: Margins,
    levels: tuple[float, float, float],
) -> list[ChangeRow]:
    """Return the rows of one group of questions, given the levels of the change and of the scores
    of a and b.
    """
    subject = replace(
        subject,
        queries=a.queries,
        documents=min(a.documents, b.documents),
        counted=a.counted,
        has_places=a.has_places,
        method="paired by query" if are_paired else "unpaired",
    )
    changes = compare_groups(a, b, paired=are_paired, margins=margins, level=levels[0])
    first = decide(a, level=levels[1])
    second = decide(b, level=levels[2])
    return [
        replace(
            changes[metric],
            a=first[Quantity(metric.key)].estimate,
            b=second[Quantity(metric.key)].estimate,
            subject=subject,
        )
        for metric in POSITION_METRICS
    ]
