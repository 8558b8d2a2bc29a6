"""The findings of a report in sentences: one for each model and task, or the verdicts counted where there are many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from posir_report.labels import full_labels
from posir_report.summary import ReportRow
from posir_report.tables import order_value
from posir_significance.verdict import Verdict
from posir_tasks.display.numbers import format_estimate, format_p_value, format_percent, format_points
from posir_tasks.display.wording import pluralize
from posir_tasks.scores import ALL

#: Most results with a sentence each.
MOST_SENTENCES = 6
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
            return f"{pluralize(row.get('documents', int) or 0, 'document')} are too few to test the effect of position"
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
