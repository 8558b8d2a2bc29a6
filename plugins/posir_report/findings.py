"""The findings of a report in sentences: one for each model and task, or the verdicts counted where there are many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from posir_report.labels import full_labels, shorten_middle
from posir_report.recall import RECALL, build_recall_rows
from posir_report.summary import BinRow, ReportRow, TaskSummary
from posir_report.tables import order_value
from posir_significance.effect_test import FEWEST_CLUSTERS
from posir_significance.verdict import Verdict
from posir_tasks.display.numbers import format_estimate, format_p_value, format_percent, format_points
from posir_tasks.display.wording import pluralize
from posir_tasks.scores import ALL

#: Most results with a sentence each.
MOST_SENTENCES = 6
#: Most models that the title of a chart names, and most characters of such a name.
MOST_NAMED, NAME_WIDTH = 3, 32
#: Depth of the recall that a sentence names.
DEPTH = 10
#: The words of verdicts with a direction, which the difference from start to end follows.
DIRECTIONS = {
    Verdict.PRIMACY: "evidence at the start is found better than at the end",
    Verdict.RECENCY: "evidence at the end is found better than at the start",
    Verdict.MIDDLE_DIP: "evidence in the middle is found worse than at both ends",
    Verdict.MIDDLE_PEAK: "evidence in the middle is found better than at both ends",
    Verdict.UNCLEAR: "position matters, in no clear direction",
    Verdict.NOT_SIGNIFICANT: "no significant effect of position",
}


def describe_findings(rows: Iterable[ReportRow]) -> Iterator[str]:
    """Yield a sentence for each model and task over all lengths, best nDCG@10 first; counts of verdicts if there are many."""
    overall = sorted((row for row in rows if row.length == ALL), key=lambda row: (row.task, -order_value(row)))
    if len(overall) > MOST_SENTENCES:
        counts = Counter(row.verdict.value if row.verdict else "not tested" for row in overall)
        verdicts = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.most_common())
        yield f"Effect of position over all lengths, {pluralize(len(overall), 'result')}: {verdicts}."
        return
    several = len({row.task for row in overall}) > 1
    for label, row in zip(full_labels(overall), overall, strict=True):
        name = f"{label}, {row.task}" if several else label
        yield f"{name}: nDCG@10 {format_estimate(row.ndcg_at_10, format_percent)}; {describe_effect(row)}."


def describe_effect(row: ReportRow) -> str:
    """Return the effect of position in a clause."""
    start_to_end = f"start to end {format_estimate(row.start_to_end, format_points)}"
    match row.verdict:
        case None:
            return "the effect of position was not tested"
        case Verdict.TOO_FEW:
            documents = pluralize(number := row.get("documents", int) or 0, "document")
            if number < FEWEST_CLUSTERS:
                return f"{documents} are too few to test the effect of position"
            return f"too few of {documents} have queries that score differently to test the effect of position"
        case Verdict.TRUNCATION:
            return f"{start_to_end} is truncation, not bias: {_describe_window(row)}"
        case verdict:
            return f"{DIRECTIONS[verdict]}: {start_to_end} (p {format_p_value(row.p_corrected)})"


def _describe_window(row: ReportRow) -> str:
    window = pluralize(row.get("window", int) or 0, "token")
    tested = "" if row.p_value_within_window is None else f" (p {format_p_value(row.p_value_within_window)})"
    return (
        f"it reads {window}, {format_percent(row.beyond_window)} % of the evidence ends beyond them, and within them position "
        f"has no significant effect{tested}"
    )


def title_effect(row: ReportRow) -> str:
    """Return the effect of position on nDCG@10 as the title of a chart; without a test, what the chart shows."""
    change = format_percent(abs(row.start_to_end.value)) if row.start_to_end else None
    declines = row.start_to_end is not None and row.start_to_end.value > 0
    match row.verdict:
        case None:
            return "nDCG@10 by position of the evidence"
        case Verdict.TOO_FEW:
            return "nDCG@10 by position of the evidence: too few documents for a test"
        case Verdict.NOT_SIGNIFICANT:
            return f"No significant effect of position on nDCG@10 (p {format_p_value(row.p_corrected)})"
        case Verdict.TRUNCATION if declines:
            return f"nDCG@10 falls by {change} points from start to end: truncation, not bias"
        case Verdict.TRUNCATION:
            return "The effect of position on nDCG@10 is truncation, not bias"
        case Verdict.PRIMACY | Verdict.RECENCY:
            return f"nDCG@10 {'falls' if declines else 'rises'} by {change} points from start to end ({row.verdict})"
        case verdict:
            return f"{DIRECTIONS[verdict][:1].upper()}{DIRECTIONS[verdict][1:]}"


def title_models(labels: Sequence[str], rows: Sequence[ReportRow]) -> str:
    """Return the effects of position on several models as the title of a chart; their number if there are many."""
    if all(row.verdict is None for row in rows):
        return "nDCG@10 of the models by position of the evidence"
    if len(rows) > MOST_NAMED:
        significant = sum(row.verdict is not None and row.verdict.significant for row in rows)
        return f"Position has a significant effect on nDCG@10 of {significant} of {len(rows)} models"
    clauses = (f"{name_shortly(label)} {_describe_shortly(row)}" for label, row in zip(labels, rows, strict=True))
    return f"Effect of position on nDCG@10: {'; '.join(clauses)}"


def _describe_shortly(row: ReportRow) -> str:
    if row.verdict is None:
        return "not tested"
    if row.verdict.significant and row.start_to_end:
        place = "end" if row.start_to_end.value > 0 else "start"
        return f"{format_percent(abs(row.start_to_end.value))} points less at the {place} ({row.verdict})"
    return str(row.verdict)


def title_sensitivity(labels: Sequence[str], rows: Sequence[ReportRow]) -> str:
    """Return what PSI against nDCG@10 shows as the title of a chart: the best model if there is one task, and the tests."""
    tested = [row for row in rows if row.verdict is not None]
    significant = sum(row.verdict is not None and row.verdict.significant for row in tested)
    tests = f"position matters significantly in {significant} of {len(tested)} results" if tested else "position was not tested"
    if len({row.task for row in rows}) > 1:
        return f"{tests[:1].upper()}{tests[1:]}"
    label, best = max(zip(labels, rows, strict=True), key=lambda pair: order_value(pair[1]))
    score = format_percent(best.ndcg_at_10.value if best.ndcg_at_10 else None)
    return f"{name_shortly(label)} has the highest nDCG@10, {score}; {tests}"


def title_lengths(rows: Sequence[ReportRow]) -> str:
    """Return nDCG@10 of the shortest and the longest documents as the title of a chart, or the effect of position.

    Args:
        rows: Of a model on a task: all lengths first.
    """
    scored = [row for row in rows[1:] if row.ndcg_at_10]
    if scored[1:] == []:
        return title_effect(rows[0])
    first, last = (format_estimate(row.ndcg_at_10, format_percent) for row in (scored[0], scored[-1]))
    return f"nDCG@10 is {first} in the shortest documents ({scored[0].length}), {last} in the longest ({scored[-1].length})"


def name_shortly(label: str) -> str:
    """Return the name of a model without its organization, shortened."""
    return shorten_middle(label.rpartition("/")[2], NAME_WIDTH)


def describe_recall(summaries: Iterable[TaskSummary]) -> Iterator[str]:
    """Yield Recall@10 of each model and task, and of its first and last position bin; none if there are many."""
    summaries = list(summaries)
    if len(summaries) > MOST_SENTENCES:
        return
    several = len({summary.task for summary in summaries}) > 1
    for label, summary in zip(full_labels(summaries), summaries, strict=True):
        overall, *bins = build_recall_rows(summary)
        known = [row for row in bins if row.scores[RECALL[DEPTH].key] is not None]
        name = f"{label}, {summary.task}" if several else label
        first, last = (f"{_format_recall(row)} at {row.position}" for row in (known[0], known[-1]))
        yield f"{name}: Recall@{DEPTH} {_format_recall(overall)}; {first}, {last}."


def _format_recall(row: BinRow) -> str:
    value = row.scores[RECALL[DEPTH].key]
    return format_percent(value if isinstance(value, float) else None)
