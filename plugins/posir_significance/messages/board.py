"""Sentences about the leaderboard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from posir_significance.findings import ChangeState, Quantity, State
from posir_significance.messages.comparisons import name_change
from posir_significance.messages.verdicts import name_state
from posir_tasks.base.wording import NO_BREAK, pluralize
from posir_tasks.display import numbers
from posir_tasks.values.estimates import Estimate

#: Templates for the page's heading; a script of the page fills them for filtered rows.
HEADINGS = {
    "unranked": "No result here is ranked: all are partial, or on data that are not pinned.",
    "no_match": "No model passes these filters.",
    "models": "Of {models}, ",
    "filtered": "Of {models} with these filters, ",
    "best": "{best} finds evidence best {where}: nDCG@10 {score}",
    "highest": "{best} scores highest {where}: nDCG@10 {score}",
    "tied": "{best} and {tied} cannot be told apart {where}: nDCG@10 {lowest} to {score}",
    "others": "{number} others",
    "ahead": "{best} is {points} points ahead of {second}{interval}. ",
    "start_higher": "Evidence at the start scores {points} points higher than at the end with "
    "{model}. ",
    "start_lower": "Evidence at the start scores {points} points lower than at the end with "
    "{model}. ",
}
#: Reasons why a result is not ranked; {} is the pinned revision or the paper.
UNRANKED_REASONS = {
    "not_pinned": "data not pinned",
    "other_content": "not the content of revision {}",
    "papers_data": "the papers' data",
    "protocol": "protocol {}",
    "other_mean": "mean over positions",
}
#: Phrases for the shortest bucket, the longest bucket, and buckets between them.
LENGTH_PHRASES = ("in short {documents}", "in long {documents}", "in {documents} of {length}")
SEVERAL_SPANS = (
    "{queries} with several evidence spans are scored separately. Each of n spans has the rank of "
    "its document and the weight 1/n: nDCG@10 is {score}, start minus end {difference}{left_out}."
)
NO_PAIRED_INTERVAL = " (no interval: other queries or few documents)"


def describe_best(
    names: Sequence[str], lowest: Estimate, best: Estimate, where: str, *, paired: bool
) -> str:
    """Describe the best model, or the models tied for the best score.

    `names` lists the best model, then the models tied with it. `paired` is true if the runner-up
    has the same queries.
    """
    values = {"best": names[0], "where": where, "score": numbers.format_percent(best.value)}
    if not names[1:]:
        return HEADINGS["best" if paired else "highest"].format(**values)
    tied = names[1] if len(names) == 2 else HEADINGS["others"].format(number=len(names) - 1)
    return HEADINGS["tied"].format(**values, tied=tied, lowest=numbers.format_percent(lowest.value))


def describe_lead(
    best: str,
    second: str,
    lead: Estimate,
    state: ChangeState | None,
    *,
    published: bool,
    margin: float = 0.0,
) -> str:
    """Describe the lead of the best model over the second; `state` is None if not paired."""
    interval = "" if published or state else NO_PAIRED_INTERVAL
    if state and lead.interval:
        low, high = (numbers.format_points(min(max(end, -1), 1)) for end in lead.interval)
        interval = f" [{low},{NO_BREAK}{high}]"
    if state is ChangeState.EQUIVALENT:
        interval += f" ({name_change(state, margin)})"
    points = numbers.format_percent(lead.value)
    return HEADINGS["ahead"].format(best=best, second=second, points=points, interval=interval)


def describe_ends(rows: Sequence[tuple[str, Estimate]]) -> str:
    """Describe the largest start minus end in each direction, if its interval excludes 0."""
    significant = [
        (estimate.value, name) for name, estimate in rows if not _includes_zero(estimate)
    ]
    highest, first = max(significant, default=(0.0, ""))
    lowest, last = min(significant, default=(0.0, ""))
    text = ""
    if highest > 0:
        points = numbers.format_percent(highest)
        text += HEADINGS["start_higher"].format(points=points, model=first)
    if lowest < 0:
        points = numbers.format_percent(-lowest)
        text += HEADINGS["start_lower"].format(points=points, model=last)
    return text


def _includes_zero(estimate: Estimate) -> bool:
    return estimate.interval is not None and estimate.interval[0] <= 0 <= estimate.interval[1]


def count_task_states(states: Sequence[State], margin: float) -> str:
    """Count the tasks behind an average by state; a single task gets its state without a count."""
    labels = Counter(name_state(state, margin) for state in states).most_common()
    if len(states) == 1 or {*states} == {State.NOT_TESTED}:
        return labels[0][0]
    counts = ", ".join(f"{label} in {number}" for label, number in labels)
    return f"{counts} of {len(states)}"


def describe_several_spans(places: Mapping[str, Any]) -> str:
    """Describe the scores of queries with several evidence spans."""
    left_out = places["left_out"]
    return SEVERAL_SPANS.format(
        queries=pluralize(places["queries"], "query", "queries"),
        score=numbers.format_percent(places["ndcg_at_10"]),
        difference=numbers.format_points(places["start_minus_end"]),
        left_out=f"; {left_out:,} more have too many spans" if left_out else "",
    )


#: Lines below a model in the board's chart, by quantity.
CAPTIONS = {
    Quantity.NDCG_AT_10: ("nDCG@10 {}", numbers.format_percent),
    Quantity.POSITION_EFFECT: ("Position effect {}", numbers.format_points),
    Quantity.START_MINUS_END: ("Start minus end {}", numbers.format_points),
}


def caption_model(estimates: Mapping[Quantity, Estimate | None], state: str) -> list[str]:
    """Build a model's caption: a line per estimate, then one for the state unless it is empty."""
    lines = []
    for quantity, (template, format_value) in CAPTIONS.items():
        if estimate := estimates.get(quantity):
            lines.append(template.format(numbers.format_estimate(estimate, format_value)))
    return [*lines, f"Bias within the window: {state}"] if state else lines
