"""Sentences about reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from posir_significance.findings import GroupFindings
from posir_significance.messages.verdicts import (
    NOT_KNOWN,
    describe_advice,
    describe_group,
    describe_truncation,
    format_level,
    format_queries,
)
from posir_tasks.base.wording import pluralize
from posir_tasks.display import numbers
from posir_tasks.values.place_ranks import MAX_PLACES
from posir_tasks.values.read_part import CountedWith

#: Explanation of the column with position charts as text.
EXPLAINED_SKETCH = (
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
LEVELS = "Intervals of effects by length are simultaneous, each at {levels}."
CUT_RANKINGS = (
    "{model}, {task}: no relevant document is at ranks 11 to 100. If rankings end at rank 10, "
    "Recall@100 is Recall@10."
)
#: How tokens before the evidence were counted, unless with the model's tokenizer.
COUNTED = {
    CountedWith.TOKENIZER: "",
    CountedWith.ESTIMATE: (
        " This is estimated from the token counts in the data, not counted with the model's "
        "tokenizer."
    ),
    CountedWith.ROUGH_ESTIMATE: (
        " This is roughly estimated from the token counts in the data; the model's tokenizer may "
        "find several times as many in languages other than English."
    ),
}
PLACES = (
    "{model}, {task}, several places: {places} of {queries}, each with the rank of its own "
    "document and the weight 1/n of n places; {left_out:,} with more than {most} left out. In "
    "thirds of the document: {shares}% of the evidence, nDCG@10 {gains}. Share of a query's places "
    "whose document is among the first 10: {recall_10}%, 100: {recall_100}%."
)
TRAINING = (
    "Share of the sources of {task} ({sources}) in training data, by mteb's metadata: {shares}."
)
BY_LENGTH = "By length of the document"


def describe_answer(findings: GroupFindings | None, task: str = "") -> str:
    """Describe the findings, and on a new line the next step."""
    if findings is None:
        return NOT_KNOWN
    return f"{describe_group(findings)}\n{describe_advice(findings, task)}"


def describe_counting(
    model: str, findings: GroupFindings, counted_with: CountedWith | None
) -> Iterator[str]:
    """Yield the window, the truncation and how tokens were counted, unless unknown."""
    truncation = describe_truncation(findings)
    if truncation:
        method = COUNTED[counted_with] if counted_with else ""
        yield f"{model}: {truncation}{method}"


def describe_levels(levels: Sequence[float]) -> str:
    """Describe the levels of the intervals of lengths."""
    return LEVELS.format(levels=" or ".join(map(format_level, levels)))


def describe_span_counts(model: str, task: str, places: Mapping[str, Any]) -> str:
    """Describe the queries with several places of evidence from `posir_report`'s summary."""
    shares = map(numbers.format_percent, places["shares"] or [None])
    gains = map(numbers.format_percent, places["ndcg_at_10_by_third"] or [None])
    return PLACES.format(
        model=model,
        task=task,
        places=pluralize(places["places"], "place"),
        queries=format_queries(places["queries"]),
        left_out=places["left_out"],
        most=MAX_PLACES,
        shares=" / ".join(shares),
        gains=" / ".join(gains),
        recall_10=numbers.format_percent(places["place_recall_at_10"]),
        recall_100=numbers.format_percent(places["place_recall_at_100"]),
    )


def describe_training_overlap(
    task: str, overlaps: Sequence[tuple[str, Mapping[str, Any]]]
) -> Iterator[str]:
    """Yield the share of a task's sources in training data, with the models of each share; nothing
    if the sources are unknown.
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
        yield TRAINING.format(task=task, sources=", ".join(sources), shares="; ".join(shares))


def describe_folded_lengths(lengths: Mapping[str, int]) -> str:
    """List the lengths without an estimate and their numbers of queries; may be empty."""
    items = [f"{name} ({format_queries(number)})" for name, number in lengths.items()]
    return f"Not estimated: {', '.join(items)}." if items else ""
