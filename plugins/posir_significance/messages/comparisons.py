"""Sentences about comparisons and training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from posir_significance.findings import (
    EFFECTS,
    LEVEL,
    MIN_DOCUMENTS,
    ChangeRow,
    ChangeState,
    GroupFindings,
    LimitReason,
    Metric,
    Reason,
    State,
)
from posir_significance.messages.verdicts import (
    UNTESTED,
    capitalize,
    describe_few,
    describe_truncation,
    format_difference,
    format_ends,
    format_margin,
    list_counts,
    name_state,
)
from posir_tasks.base.wording import pluralize
from posir_tasks.display import numbers
from posir_tasks.display.labels import Label, Tone
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.read_part import ReadKind

CHANGE_STATES = {
    ChangeState.BETTER: ("better", Tone.GOOD),
    ChangeState.WORSE: ("worse", Tone.BAD),
    ChangeState.EQUIVALENT: ("equivalent within {margin}", Tone.GOOD),
    ChangeState.INCONCLUSIVE: ("inconclusive", Tone.OPEN),
    ChangeState.NOT_TESTED: ("not tested", Tone.OPEN),
}
#: Titles for a better and a worse model {b} than the baseline {a}.
CHANGE_TITLES = {
    ChangeState.BETTER: "{b} is better than {a} in {metric}: {points}",
    ChangeState.WORSE: "{b} is worse than {a} in {metric}: {points}",
}
#: Sentences about changes.
CHANGE_SENTENCES = {
    **{state: f"{title}." for state, title in CHANGE_TITLES.items()},
    ChangeState.EQUIVALENT: "{a} and {b} are equivalent within {margin} in {metric}: {points}.",
    ChangeState.INCONCLUSIVE: "{metric} of {b} and {a}: inconclusive, {points}.",
    ChangeState.NOT_TESTED: "{metric} of {b} and {a}: not tested.",
}
#: Reasons for an inconclusive change, except for a wide interval, which the sentence shows.
INCONCLUSIVE_CHANGES = {
    Reason.FEW_DOCUMENTS: "There are too few documents.",
    Reason.DIRECTION_UNKNOWN: "Either of the two may be nearer to 0.",
}


def name_change(state: ChangeState, margin: float) -> Label:
    """Label a state: `better`, `equivalent within 2 points`."""
    words, tone = CHANGE_STATES[state]
    return Label(words.format(margin=format_margin(margin)), tone)


def label_change(change: ChangeRow) -> Label:
    """Label the state of a change; empty for a description."""
    return name_change(change.state, change.margin) if change.state else Label("")


def format_change(change: ChangeRow) -> Label:
    """Format the state of a change with its interval: `worse: -3.1 [-5.0, -1.2]`."""
    difference = format_difference(change)
    label = label_change(change)
    return Label(f"{label}: {difference}", label.tone) if difference else label


def describe_change(change: ChangeRow, a: str = "", b: str = "") -> str:
    """Describe a change between `a` and `b`, by default the subject's systems.

    If it is not decided, the reason and the amount of data needed are added.
    """
    assert change.state is not None
    sentence = CHANGE_SENTENCES[change.state]
    # A sentence may begin with the metric. Names of models keep their case.
    metric = capitalize(change.metric) if sentence.startswith("{metric}") else change.metric
    text = sentence.format(
        a=a or change.subject.baseline,
        b=b or change.subject.model,
        metric=metric,
        margin=format_margin(change.margin),
        points=format_difference(change) or "no interval",
    )
    sentences = [text]
    if change.reason:
        sentences.append((UNTESTED | INCONCLUSIVE_CHANGES).get(change.reason, ""))
    sentences.append(describe_needed_change(change))
    return " ".join(filter(None, sentences))


def describe_needed_change(change: ChangeRow) -> str:
    """Describe how much data is needed to decide a change; empty if unknown."""
    if change.needed is None:
        return ""
    return f"About {change.needed.number:,} {change.needed.unit} are needed to decide."


def title_changes(changes: Sequence[ChangeRow]) -> str:
    """Write a title for one model's changes over all lengths, from the decided metrics."""
    by_metric = {change.metric: change for change in changes}
    first, *effects = (by_metric[metric] for metric in select_title_metrics(changes))
    title = _title_change(first)
    for change in effects:
        title += f"; {label_change(change)} in {change.metric}: {format_difference(change)}"
    return title


def select_title_metrics(changes: Sequence[ChangeRow]) -> list[Metric]:
    """Select the metrics for a title.

    These are the first score that is better or worse, and the position effect within the window if
    it is. The effect in whole documents is selected if no other metric is better or worse. If none
    is, nDCG@10 is selected, and the effect within the window if it is equivalent.
    """
    within = Metric.POSITION_EFFECT_IN_WINDOW
    states = {(change.metric, change.state) for change in changes}
    decided = [
        metric for metric in Metric if any((metric, state) in states for state in CHANGE_TITLES)
    ]
    scores = [metric for metric in decided if metric not in EFFECTS][:1]
    if not decided:
        scores = [changes[0].metric]
        decided = [within] if (within, ChangeState.EQUIVALENT) in states else []
    effects = [within] if within in decided else []
    return [*scores, *effects] or decided


def _title_change(change: ChangeRow) -> str:
    a = change.subject.baseline
    b = change.subject.model
    if change.state in CHANGE_TITLES:
        if change.metric is not Metric.NDCG_AT_10 or not change.estimate:
            points = format_difference(change)
            return CHANGE_TITLES[change.state].format(a=a, b=b, metric=change.metric, points=points)
        higher = "higher" if change.estimate.value > 0 else "lower"
        size = numbers.format_percent(abs(change.estimate.value))
        return f"{b} scores {size} points {higher} than {a}{format_ends(change.estimate)}"
    if change.state is ChangeState.EQUIVALENT:
        return f"{b} and {a} are {label_change(change)} of {change.metric}"
    return f"{change.metric} of {b} and {a}: {label_change(change)}"


def name_planned_state(state: State | ChangeState, margin: float) -> str:
    """Label the state of a model or a change."""
    if isinstance(state, State):
        return name_state(state, margin)
    return name_change(state, margin)


def group_by_state(title: str, changes: Mapping[str, ChangeRow]) -> str:
    """Group systems by the state of their change: `nDCG@10: better with a, b; worse with c.`"""
    groups = []
    for state in ChangeState:
        names = [name for name, change in changes.items() if change.state is state]
        if names:
            label = label_change(changes[names[0]])
            groups.append(f"{label} with {', '.join(names)}")
    return f"{title}: {'; '.join(groups)}."


#: Reasons for the verdict on a limit.
LIMIT_REASONS = {
    LimitReason.BEYOND: "the whole interval is beyond the limit",
    LimitReason.WITHIN: "the whole interval is within the limit",
    LimitReason.NOT_WHOLLY_WITHIN: "the interval is not entirely within the limit",
    LimitReason.OPEN: "the interval contains the limit: more documents are needed to decide",
    LimitReason.NOT_TESTED: "{metric} was not tested on these questions",
    LimitReason.UNKNOWN: "its {metric} is unknown",
    LimitReason.NO_QUESTIONS: "there are no questions of this length",
}


def describe_limit(reason: LimitReason, row: ChangeRow) -> str:
    """Describe the reason for the verdict on a limit of a change or a score."""
    if reason is LimitReason.FEW_DOCUMENTS:
        needed = row.needed.number if row.needed else MIN_DOCUMENTS
        return describe_few(needed, row.subject.documents, row.subject.unit_name)
    return LIMIT_REASONS[reason].format(metric=row.metric)


def title_models(changes: Sequence[ChangeRow], baseline: str, models: int) -> str:
    """Write a title that counts the models with each state in the decided metrics."""
    title = f"{pluralize(models, 'model')} against {baseline}"
    if not changes:
        return title
    facts = []
    for metric in select_title_metrics(changes):
        labels = Counter(label_change(change) for change in changes if change.metric is metric)
        facts.append(f"in {metric}: {list_counts(labels)}")
    return f"{title} {'; '.join(facts)}"


def count_changes(changes: Sequence[ChangeRow]) -> str:
    """Count the changes in one metric over all lengths by state."""
    pairs = pluralize(len(changes), "pair")
    states = list_counts(Counter(map(label_change, changes)))
    return f"Change in {changes[0].metric} over all lengths, {pairs}: {states}."


CHANCE_CHANGES = (
    "If none of them differed, about {alarms:g} would be expected to be called better or worse by "
    "chance."
)


def describe_chance_changes(pairs: int) -> str:
    """Describe the number of pairs expected to differ by chance."""
    return CHANCE_CHANGES.format(alarms=round(pairs * (1 - LEVEL), 1))


def describe_windows(change: ChangeRow) -> str:
    """Describe the windows of baseline and model; empty if they are the same."""
    first, second = change.subject.reads
    if first == second:
        return ""
    subject = change.subject
    return f"{subject.model} reads {second.phrase}, {subject.baseline} {first.phrase}."


COLLAPSE = (
    "The cosine of unrelated texts has risen from {a} to {b}: the embeddings are collapsing. "
    "Collapsed embeddings do not depend on position, but are useless."
)


def describe_training(change: ChangeRow) -> str:
    """Describe a change due to training."""
    return capitalize(describe_change(change, "the base model", "the trained model"))


def describe_trainings(task: str, changes: Sequence[ChangeRow]) -> str:
    """Describe the changes due to training, on held-out articles or the forgetting check `task`."""
    check = [f"Forgetting check {task}:"] if task else []
    return " ".join([*check, *map(describe_training, changes)])


def title_training(change: ChangeRow) -> str:
    """Name a metric and its task."""
    task = change.subject.task
    return f"forgetting check {task}, {change.metric}" if task else change.metric.value


def warn_of_collapse(before: Estimate, after: Estimate) -> str:
    """Write a warning that embeddings are collapsing."""
    scores = (numbers.format_number(score.value, ".2f") for score in (before, after))
    return COLLAPSE.format(**dict(zip("ab", scores, strict=True)))


def warn_of_loss(change: ChangeRow) -> str:
    """Write a warning that training made a score worse."""
    return f"{title_training(change)}: worse than the base model's."


def describe_mean_change(change: ChangeRow, mean: Estimate, seeds: int) -> str:
    """Describe the mean change over several seeds."""
    points = numbers.format_estimate(mean, numbers.format_points)
    return f"Over {seeds} seeds, {title_training(change)} changes by {points}."


def describe_model_window(label: str, findings: GroupFindings) -> str:
    """Describe the window and the truncation of a model."""
    if findings.read.kind is ReadKind.UNKNOWN:
        return f"The window of {label} is unknown; `posir window` measures it, except for a hybrid."
    sentence = describe_truncation(findings)
    return f"{label}: {sentence}" if sentence else ""
