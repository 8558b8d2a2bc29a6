"""Compare pairs of runs, with a row for each length and metric."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from posir_compare.pairing import CommonResults, Pair, find_common_results
from posir_significance.analysis import GroupAnalysis, analyze, analyze_spans
from posir_significance.changes import compare_groups, compare_judged
from posir_significance.decision import DEFAULT_MARGINS, Margins, compute_length_level, decide
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
from posir_significance.messages.comparisons import describe_change
from posir_tasks.base.errors import PosirError
from posir_tasks.base.progress import track_items
from posir_tasks.base.records import Record
from posir_tasks.display.numbers import format_percent, format_points
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.means import LEVEL
from posir_tasks.values.place_ranks import SEVERAL_SPANS
from posir_tasks.values.profile import pool
from posir_tasks.values.scores import ALL

#: Formats of scores by metric.
SCORE_FORMATS = dict.fromkeys(Metric, format_percent) | dict.fromkeys(EFFECTS, format_points)


def to_record(row: ChangeRow) -> Record:
    """Return the columns of a row for CSV and JSON."""
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


#: Reasons for missing or incomplete comparisons, by model and task.
Gaps = dict[tuple[str, str], str]


@dataclass(frozen=True)
class ModelComparison:
    """The rows of all pairs, and notes."""

    rows: Sequence[ChangeRow]
    notes: Sequence[str]
    """Sentences about skipped pairs and subsets, and about unpaired results."""
    gaps: Gaps = field(default_factory=dict)
    common: Sequence[tuple[Pair, CommonResults]] = ()
    """Pairs with common queries and their results on them."""


def compare_pairs(
    pairs: Sequence[Pair], lengths: Collection[str] = (), margins: Margins = DEFAULT_MARGINS
) -> ModelComparison:
    """Compare pairs with the same baseline in nDCG@10 and position effects, by length.

    Pairs without common queries are skipped with a note.

    Args:
        pairs: The pairs.
        lengths: `all` or names of length buckets; by default all lengths with queries.
        margins: Minimum relevant differences.

    Raises:
        PosirError: No pair has common queries, or a length does not exist.
    """
    rows: list[ChangeRow] = []
    judged_rows: list[ChangeRow] = []
    common = []
    notes: list[str] = []
    gaps = Gaps()
    for pair in track_items(pairs, "Comparing"):
        key = (pair.b.label, pair.task)
        try:
            if pair.a.get_judged_results(pair.task) or pair.b.get_judged_results(pair.task):
                judged_rows += _compare_judged_pair(pair, margins, notes, gaps)
            subsets = pair.a.get_position_results(pair.task)
            if subsets or pair.b.get_position_results(pair.task):
                results = find_common_results(pair)
                common.append((pair, results))
                rows += compare_pair(pair, results, lengths, margins)
                notes += results.notes
                if missing := sorted(subsets.keys() - {*results.subsets}):
                    gaps[key] = f"not compared: {', '.join(missing)}. {' '.join(results.notes)}"
        except PosirError as error:
            notes.append(str(error))
            gaps[key] = str(error)
    _note_missing_tasks(pairs, notes, gaps)
    rows += judged_rows
    if not rows:
        raise PosirError("There is nothing to compare. " + " ".join(notes))
    return ModelComparison(_select_lengths(rows, lengths), notes, gaps, common)


def _select_lengths(rows: Sequence[ChangeRow], lengths: Collection[str]) -> list[ChangeRow]:
    """Select rows by length, by default all rows; raise PosirError for a length without rows."""
    available = {row.subject.length.casefold(): row.subject.length for row in rows}
    names = {name.casefold(): name for name in lengths}
    for key in names.keys() - available:
        raise PosirError(
            f"--lengths {names[key]}: no queries of this length. Choose from "
            f"{', '.join(available.values())}."
        )
    return [row for row in rows if not names or row.subject.length.casefold() in names]


def _note_missing_tasks(pairs: Sequence[Pair], notes: list[str], gaps: Gaps) -> None:
    """Add a note for each run that lacks tasks of the other run, and a gap for each task that a
    model lacks.
    """
    for pair in {pair.b.label: pair for pair in pairs}.values():
        for run, other in ((pair.b, pair.a), (pair.a, pair.b)):
            missing = sorted(other.tasks - run.tasks)
            if missing:
                tasks = ", ".join(missing)
                notes.append(f"Not compared, since {run.label} has no results: {tasks}.")
                if run is pair.b:
                    reason = f"{run.label} has no results on this task."
                    gaps |= {(run.label, task): reason for task in missing}


def _compare_judged_pair(
    pair: Pair, margins: Margins, notes: list[str], gaps: Gaps
) -> list[ChangeRow]:
    """Compare a pair on all judged queries of common subsets, with a row per metric. Add a note
    about other subsets.
    """
    first = pair.a.get_judged_results(pair.task)
    second = pair.b.get_judged_results(pair.task)
    common_subsets = [
        subset
        for subset in sorted(first.keys() & second.keys())
        if first[subset].values.digests == second[subset].values.digests
        and not first[subset].data.find_differences(second[subset].data)
    ]
    if skipped_subsets := sorted((first.keys() | second.keys()).difference(common_subsets)):
        note = (
            f"{pair}, judged queries: skipped subsets that only one of them has, or whose corpus, "
            f"judgments or clusters differ: {', '.join(skipped_subsets)}."
        )
        if not common_subsets:
            raise PosirError(f"{note} Score both runs on the same data with the same --clusters.")
        notes.append(note)
        gaps[pair.b.label, pair.task] = note
    a = pool(first[subset].values for subset in common_subsets)
    b = pool(second[subset].values for subset in common_subsets)
    subject = ChangeSubject(
        baseline=pair.a.label,
        model=pair.b.label,
        task=pair.task,
        subsets=len(common_subsets),
        queries=a.queries,
        documents=len(a.sizes),
        unit_name=a.unit_name,
        method=f"judged queries, paired by {a.clusters}",
        is_judged=True,
    )
    return [
        replace(
            change,
            a=estimate_judged(a, metric.key),
            b=estimate_judged(b, metric.key),
            subject=subject,
        )
        for metric, change in compare_judged(a, b, margins).items()
    ]


def compare_pair(
    pair: Pair,
    common: CommonResults,
    lengths: Collection[str] = (),
    margins: Margins = DEFAULT_MARGINS,
) -> list[ChangeRow]:
    """Compare a pair in every metric, over all lengths and in each length bucket with queries.

    The intervals of the three metrics over all lengths are simultaneous. So are the intervals of
    the length buckets in `lengths` (by default all buckets).
    """
    first = analyze(common.a)
    second = analyze(common.b)
    axes = common.a.profile.axes
    titles = dict(zip(axes.lengths, axes.length_titles, strict=True))
    # Data with a single length bucket has no groups by length.
    groups = {
        name: (a, b)
        for name, a, b in zip((ALL, *axes.lengths), first.groups, second.groups, strict=False)
        if a.queries
    }
    selected_lengths = {name.casefold() for name in lengths or groups} - {ALL}
    count = sum(name.casefold() in selected_lengths for name in groups)
    total_levels = (CHANGE_LEVEL, LEVEL, LEVEL)
    change_level = 1 - (1 - CHANGE_LEVEL) / max(count, 1)
    length_levels = (change_level, compute_length_level(first), compute_length_level(second))
    subject = ChangeSubject(
        baseline=pair.a.label,
        model=pair.b.label,
        task=pair.task,
        subsets=len(common.subsets),
        reads=(pair.a.find_read_part(pair.task), pair.b.find_read_part(pair.task)),
        method="paired by query" if common.are_paired else "unpaired",
    )
    rows = list[ChangeRow]()
    for name, (a, b) in groups.items():
        # "Q2: 513 to 1,024 tokens" becomes "Q2 513 to 1,024".
        title = titles.get(name, name).replace(":", "").removesuffix(" tokens")
        length_subject = replace(subject, length=name, length_title=title)
        levels = total_levels if name == ALL else length_levels
        rows += _compare_group(length_subject, a, b, common.are_paired, margins, levels)
    a_places = analyze_spans(common.a)
    b_places = analyze_spans(common.b)
    if a_places and b_places and common.a.places and common.b.places:
        are_paired = common.a.places.has_same_queries(common.b.places)
        method = "paired by query" if are_paired else "unpaired"
        task = f"{pair.task}{SEVERAL_SPANS}"
        places_subject = replace(subject, task=task, length_title=ALL, method=method)
        changes = _compare_group(
            places_subject, a_places, b_places, are_paired, margins, total_levels
        )
        # Position effects exist only for queries with one evidence span.
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
    """Compare a group of questions. `levels` are the interval levels of the change, a and b."""
    subject = replace(
        subject,
        queries=a.queries,
        documents=min(a.documents, b.documents),
        unit_name=a.unit_name,
        has_several_spans=a.has_several_spans,
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
