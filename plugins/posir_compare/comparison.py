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
from posir_tasks.values.profile import pool
from posir_tasks.values.scores import ALL

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
    rows: list[ChangeRow] = []
    judged: list[ChangeRow] = []
    common: list[tuple[Pair, CommonResults]] = []
    notes: list[str] = []
    gaps: dict[tuple[str, str], str] = {}
    for pair in progress(pairs, "Comparing"):
        key = (pair.b.label, pair.task)
        try:
            if pair.a.judged(pair.task) or pair.b.judged(pair.task):
                judged += _compare_judged_pair(pair, margins, notes, gaps)
            subsets = pair.a.by_subset(pair.task)
            if subsets or pair.b.by_subset(pair.task):
                results = find_common_results(pair)
                common.append((pair, results))
                rows += compare_pair(pair, results, lengths, margins)
                notes += results.notes
                if missing := sorted(subsets.keys() - {*results.subsets}):
                    skipped = " ".join(results.notes)
                    gaps[key] = f"not compared: {', '.join(missing)}. {skipped}"
        except PosirError as error:
            notes.append(str(error))
            gaps[key] = str(error)
    _note_missing_tasks(pairs, notes, gaps)
    rows += judged
    if not rows:
        raise PosirError("There is nothing to compare. " + " ".join(notes))
    available = {row.subject.length.casefold(): row.subject.length for row in rows}
    for name in lengths:
        if name.casefold() not in available:
            raise PosirError(
                f"--lengths {name}: no queries of such a length. Choose from "
                f"{', '.join(available.values())}."
            )
    chosen = {name.casefold() for name in lengths} or {*available}
    rows = [row for row in rows if row.subject.length.casefold() in chosen]
    return ModelComparison(tuple(rows), tuple(notes), gaps, tuple(common))


def _note_missing_tasks(
    pairs: Sequence[Pair], notes: list[str], gaps: dict[tuple[str, str], str]
) -> None:
    """Add a note for each run that lacks tasks of the other one, and a gap for each task of the
    baseline that a model lacks.
    """
    for pair in {pair.b.label: pair for pair in pairs}.values():
        for run, other in ((pair.b, pair.a), (pair.a, pair.b)):
            missing = sorted(other.tasks - run.tasks)
            if missing:
                reason = f"{run.label} has no results of it"
                notes.append(f"Not compared, since {reason}: {', '.join(missing)}.")
                if run is pair.b:
                    gaps |= {(run.label, task): f"{reason}." for task in missing}


def _compare_judged_pair(
    pair: Pair, margins: Margins, notes: list[str], gaps: dict[tuple[str, str], str]
) -> list[ChangeRow]:
    """Return a row for each metric of all judged queries, pooled over the subsets that both runs
    have; add a note on the others.
    """
    first = pair.a.judged(pair.task)
    second = pair.b.judged(pair.task)
    same = find_common_judged(pair)
    left_out = sorted((first.keys() | second.keys()) - {*same})
    if left_out:
        note = (
            f"{pair}, judged queries: skipped subsets that only one has, or whose corpus, "
            f"judgments or clusters differ: {', '.join(left_out)}."
        )
        if not same:
            raise PosirError(f"{note} Score both runs on the same data with the same --clusters.")
        notes.append(note)
        gaps[pair.b.label, pair.task] = note
    a = pool(first[subset].values for subset in same)
    b = pool(second[subset].values for subset in same)
    subject = ChangeSubject(
        baseline=pair.a.label,
        model=pair.b.label,
        task=pair.task,
        subsets=len(same),
        queries=a.queries,
        documents=len(a.sizes),
        counted=a.counted,
        method=f"judged queries, paired by {a.clusters}",
        is_judged=True,
    )
    rows = []
    for metric, change in compare_judged(a, b, margins).items():
        first_mean = estimate_judged(a, metric.key)
        second_mean = estimate_judged(b, metric.key)
        rows.append(replace(change, a=first_mean, b=second_mean, subject=subject))
    return rows


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
    titles = dict(zip(axes.lengths, axes.length_titles, strict=True))
    names = (ALL, *(axes.lengths if first.lengths else ()))
    groups = {
        name: (a, b)
        for name, a, b in zip(names, first.groups, second.groups, strict=True)
        if a.queries
    }
    chosen = {name.casefold() for name in lengths}
    compared = sum(not chosen or name.casefold() in chosen for name in groups if name != ALL)
    of_all = (CHANGE_LEVEL, LEVEL, LEVEL)
    length_level = 1 - (1 - CHANGE_LEVEL) / max(compared, 1)
    of_length = (length_level, level_of_lengths(first), level_of_lengths(second))
    subject = ChangeSubject(
        baseline=pair.a.label,
        model=pair.b.label,
        task=pair.task,
        subsets=len(common.subsets),
        reads=(pair.a.find_read(pair.task), pair.b.find_read(pair.task)),
        method="paired by query" if common.are_paired else "unpaired",
    )
    rows = list[ChangeRow]()
    for name, (a, b) in groups.items():
        # "Q2: 513 to 1,024 tokens" is shown without colon and unit.
        title = titles.get(name, name).replace(":", "").removesuffix(" tokens")
        named = replace(subject, length=name, length_title=title)
        levels = of_all if name == ALL else of_length
        rows += _compare_group(named, a, b, common.are_paired, margins, levels)
    a_places = analyze_places(common.a)
    b_places = analyze_places(common.b)
    if a_places and b_places and common.a.places and common.b.places:
        are_paired = common.a.places.same_queries(common.b.places)
        method = "paired by query" if are_paired else "unpaired"
        named = replace(subject, task=f"{pair.task}{PLACES}", length_title=ALL, method=method)
        changes = _compare_group(named, a_places, b_places, are_paired, margins, of_all)
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
    )
    changes = compare_groups(a, b, paired=are_paired, margins=margins, level=levels[0])
    first = decide(a, level=levels[1])
    second = decide(b, level=levels[2])
    rows = []
    for metric in POSITION_METRICS:
        quantity = Quantity(metric.key)
        first_score = first[quantity].estimate
        second_score = second[quantity].estimate
        rows.append(replace(changes[metric], a=first_score, b=second_score, subject=subject))
    return rows
