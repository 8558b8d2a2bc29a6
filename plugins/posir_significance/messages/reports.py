"""Sentences about reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from posir_significance.findings import GroupFindings
from posir_significance.messages.verdicts import (
    UNKNOWN_EFFECT,
    describe_advice,
    describe_group,
    describe_truncation,
    format_level,
    format_queries,
)
from posir_tasks.display import numbers
from posir_tasks.values.place_ranks import MAX_PLACES
from posir_tasks.values.read_part import TokenCountMethod

#: Explanation of the column with text charts.
SKETCH_EXPLANATION = (
    "nDCG@10 at each position in the window, on an axis from 0 to 100; ░ after ┊: truncated "
    "evidence, as wide as its share. The boundary does not mark a fixed position, since documents "
    "differ in length."
)
UNKNOWN_WINDOWS = (
    "The window of {models} is unknown; `posir window` measures it, except for a hybrid."
)
DESIGN_EFFECT = (
    "{task}, {model}: {queries:,} queries on {documents:,} documents; the variance of nDCG@10 is "
    "{effect:.1f} times that of independent queries (design effect)."
)
SIMULTANEOUS_LEVELS = "Intervals of effects by length are simultaneous, each at {levels}."
CUT_RANKINGS = (
    "{model}, {task}: no relevant document is at ranks 11 to 100. If rankings end at rank 10, "
    "Recall@100 is Recall@10."
)
#: Notes on how tokens were counted, unless with the model's tokenizer.
COUNTING_NOTES = {
    TokenCountMethod.TOKENIZER: "",
    TokenCountMethod.ESTIMATE: (
        " This is estimated from the token counts in the data, not counted with the model's "
        "tokenizer."
    ),
    TokenCountMethod.ROUGH_ESTIMATE: (
        " This is roughly estimated from the token counts in the data; the model's tokenizer may "
        "find several times as many in languages other than English."
    ),
}
SPAN_COUNTS = (
    "{model}, {task}: {queries} with several evidence spans ({spans} in total). Each of a query's "
    "n spans has the rank of its document and weight 1/n; {left_out} with more than {max_spans} "
    "spans are excluded. In thirds of the document: {shares}% of the evidence, nDCG@10 "
    "{gains}. Mean share of a query's spans whose document is retrieved: {recall_10}% in the top "
    "10, {recall_100}% in the top 100."
)
TRAINING_OVERLAP = (
    "Share of {task}'s sources ({sources}) that are in a model's training data, according to "
    "mteb's metadata: {shares}."
)
BY_LENGTH = "By length of the document"


def describe_findings_and_advice(findings: GroupFindings | None, task: str = "") -> str:
    """Describe the findings and, on a new line, the next step."""
    if findings is None:
        return UNKNOWN_EFFECT
    return f"{describe_group(findings)}\n{describe_advice(findings, task)}."


def describe_model_truncation(
    model: str, findings: GroupFindings, counted_with: TokenCountMethod | None
) -> Iterator[str]:
    """Yield a sentence on the window, the truncation and the token count; nothing if unknown."""
    truncation = describe_truncation(findings)
    if truncation:
        method = COUNTING_NOTES[counted_with] if counted_with else ""
        yield f"{model}: {truncation}{method}"


def describe_levels(levels: Sequence[float]) -> str:
    """Describe the levels of the intervals by length."""
    return SIMULTANEOUS_LEVELS.format(levels=" or ".join(map(format_level, levels)))


def describe_span_counts(model: str, task: str, span_summary: Mapping[str, Any]) -> str:
    """Describe the scores of queries with several evidence spans, from `describe_spans`."""
    shares = map(numbers.format_percent, span_summary["shares"] or [None])
    gains = map(numbers.format_percent, span_summary["ndcg_at_10_by_third"] or [None])
    return SPAN_COUNTS.format(
        model=model,
        task=task,
        queries=format_queries(span_summary["queries"]),
        spans=f"{span_summary['places']:,}",
        left_out=format_queries(span_summary["left_out"]),
        max_spans=MAX_PLACES,
        shares=" / ".join(shares),
        gains=" / ".join(gains),
        recall_10=numbers.format_percent(span_summary["place_recall_at_10"]),
        recall_100=numbers.format_percent(span_summary["place_recall_at_100"]),
    )


def describe_training_overlap(
    task: str, overlaps: Sequence[tuple[str, Mapping[str, Any]]]
) -> Iterator[str]:
    """Yield a sentence on the share of a task's sources in each model's training data.

    Yield nothing if the sources are unknown.
    """
    sources = overlaps[0][1]["sources"]
    models: dict[float | None, list[str]] = {}
    for model, overlap in overlaps:
        models.setdefault(overlap["share"], []).append(model)
    shares = []
    for share, names in models.items():
        percent = "unknown" if share is None else f"{share:.0%}"
        shares.append(f"{percent} for {', '.join(names)}")
    if sources:
        yield TRAINING_OVERLAP.format(
            task=task, sources=", ".join(sources), shares="; ".join(shares)
        )


def describe_unestimated_lengths(lengths: Mapping[str, int]) -> str:
    """List the lengths that have no estimate, with their query counts. Empty if there are none."""
    items = [f"{name} ({format_queries(number)})" for name, number in lengths.items()]
    return f"Not estimated: {', '.join(items)}." if items else ""
