"""The words for findings and changes. Every sentence about a result is made here, from numbers and
names alone.

Each template belongs to a state, a reason, a step or a quantity. Numbers are points of nDCG@10
unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from posir_significance.advice import (
    Advice,
    NextStep,
    advise,
    find_larger_task,
)
from posir_significance.decision import Change, MetricChange
from posir_significance.findings import (
    LEVEL,
    ChangeState,
    Finding,
    GroupFindings,
    Needed,
    Quantity,
    Reason,
    State,
)
from posir_tasks.base.wording import pluralize
from posir_tasks.display import numbers
from posir_tasks.display.labels import Label, Tone
from posir_tasks.values.place_ranks import MOST_PLACES as MAX_PLACES
from posir_tasks.values.read_part import CountedWith, ReadKind, ReadPart
from posir_tasks.values.scores import Estimate, Interval

#: States in a few words, for a cell or a title. {margin} is `5 points`.
STATES = {
    State.FAVORS_START: "favors the start",
    State.FAVORS_END: "favors the end",
    State.NO_BIAS: "no bias above {margin}",
    State.INCONCLUSIVE: "inconclusive",
    State.NOT_TESTED: "not tested",
}
TONES = {
    State.FAVORS_START: Tone.BAD,
    State.FAVORS_END: Tone.BAD,
    State.NO_BIAS: Tone.GOOD,
    ChangeState.BETTER: Tone.GOOD,
    ChangeState.WORSE: Tone.BAD,
    ChangeState.EQUIVALENT: Tone.GOOD,
}
ORDER_BLIND_CELL = Label("none: word order plays no part", Tone.GOOD)
CHANGE_STATES = {
    ChangeState.BETTER: "better",
    ChangeState.WORSE: "worse",
    ChangeState.EQUIVALENT: "equivalent within {margin}",
    ChangeState.INCONCLUSIVE: "inconclusive",
    ChangeState.NOT_TESTED: "not tested",
}
#: The verdict in a sentence, by state and reason.
VERDICTS: dict[tuple[State, Reason | None], str] = {
    (State.FAVORS_START, None): (
        "Favors the start (primacy bias): the same evidence scores {size} points higher in the "
        "first third of the {place} than "
        "in the last {ends}."
    ),
    (State.FAVORS_END, None): (
        "Favors the end (recency bias): the same evidence scores {size} points lower in the first "
        "third of the {place} than in "
        "the last {ends}."
    ),
    (State.NO_BIAS, None): "Within the {place}: no bias above {margin}{small}, {points}.",
    (
        State.NO_BIAS,
        Reason.ORDER_BLIND,
    ): "No position bias: word order plays no part in its scores.",
    (State.INCONCLUSIVE, Reason.WIDE_INTERVAL): "Inconclusive: {bounds}. {needed}",
    (
        State.INCONCLUSIVE,
        Reason.FEW_DOCUMENTS,
    ): "Inconclusive: {found} with evidence at both ends {be} too few. {needed}",
    (
        State.INCONCLUSIVE,
        Reason.NO_ROOM,
    ): "Inconclusive: {nearly} evidence is found, wherever it is (nDCG@10 {mean}).",
    (
        State.NOT_TESTED,
        Reason.WINDOW_UNKNOWN,
    ): "Not tested within the window, which is unknown: `posir window MODEL`.",
    (
        State.NOT_TESTED,
        Reason.WINDOW_DIFFERS,
    ): "Not tested within the window: the subsets were read with different windows.",
    (
        State.NOT_TESTED,
        Reason.NOT_STORED,
    ): "Not tested: the result has no rotated versions. Run the model again.",
    (
        State.NOT_TESTED,
        Reason.PARTLY_STORED,
    ): "Not tested: some subsets have no rotated versions. Run the model again.",
    (State.NOT_TESTED, Reason.NO_TEXTS): (
        "Not tested: a run file has ranks only. `posir score RUN --embedder MODEL` tests it."
    ),
    (State.NOT_TESTED, Reason.SCORES_DIFFER): (
        "Not tested: the embedder does not give the scores of the run. Name the model that made "
        "it with --embedder."
    ),
    (State.NOT_TESTED, Reason.ONE_UNIT): "Not tested: no document has two sentences.",
    (
        State.NOT_TESTED,
        Reason.SEVERAL_POSITIONS,
    ): "Not tested: each question has several places of evidence.",
}
#: What is needed, by unit.
NEEDED = {
    "questions": "About {number} such questions are needed to decide; {tested} of the {all} "
    "questions were "
    "tested.",
    "documents": "At least {number} are needed.",
}
#: Next steps in a sentence.
STEPS = {
    NextStep.CHUNK: "search in chunks that fit the window",
    NextStep.TRAIN: "train on evidence at all positions (`posir train`)",
    NextStep.MORE_QUESTIONS: "test on about {number} questions",
    NextStep.MORE_DOCUMENTS: "test on at least {number} documents",
    NextStep.MEASURE_WINDOW: "measure the window",
    NextStep.RUN_AGAIN: "run the model again, so that rotated versions are stored",
    NextStep.GIVE_EMBEDDER: "name the model behind the run with `--embedder`",
    NextStep.NONE: "nothing to do",
}
TRUNCATED = "The same evidence scores {size} points {lower} where it is truncated {ends}."
TRUNCATION_OPEN = "Whether truncated evidence scores lower is inconclusive: {points}."
OBSERVED = (
    "Observed: evidence at the start scores {size} points {higher} {ends}. These are different "
    "questions; their difficulty is "
    "part of it."
)
OBSERVED_ALONE = (
    "Observed: evidence at the start scores {size} points {higher}. These are different "
    "questions; their difficulty is part of "
    "it."
)
MIDDLE = "The middle third of the {place} scores {size} points {higher} than its ends {ends}."
#: Changes in a sentence. {b} and {a} are names of systems, {metric} of the metric.
CHANGES: dict[tuple[ChangeState, Reason | None], str] = {
    (ChangeState.BETTER, None): "{b} is better than {a} in {metric}: {points}.",
    (ChangeState.WORSE, None): "{b} is worse than {a} in {metric}: {points}.",
    (
        ChangeState.EQUIVALENT,
        None,
    ): "{a} and {b} are equivalent within {margin} in {metric}: {points}.",
    (
        ChangeState.INCONCLUSIVE,
        Reason.WIDE_INTERVAL,
    ): "{metric} of {b} and {a}: inconclusive, {points}.{needed}",
    (
        ChangeState.INCONCLUSIVE,
        Reason.FEW_DOCUMENTS,
    ): "{metric} of {b} and {a}: inconclusive, too few documents.{needed}",
    (ChangeState.INCONCLUSIVE, Reason.DIRECTION_UNKNOWN): (
        "{metric} of {b} and {a}: inconclusive. It changes by {points}, but which of the two is "
        "nearer to 0 is open."
    ),
    (ChangeState.NOT_TESTED, Reason.WINDOW_DIFFERS): (
        "{metric} of {b} and {a}: not tested, since their windows differ. nDCG@10 and the effect "
        "in whole documents compare "
        "them."
    ),
    (
        ChangeState.NOT_TESTED,
        Reason.OTHER_DATA,
    ): "{metric} of {b} and {a}: not tested on the same versions.",
    (
        ChangeState.NOT_TESTED,
        Reason.WINDOW_UNKNOWN,
    ): "{metric} of {b} and {a}: not tested, since a window is unknown.",
    (
        ChangeState.NOT_TESTED,
        Reason.NOT_STORED,
    ): "{metric} of {b} and {a}: not tested, since a result has no rotated versions.",
    (ChangeState.NOT_TESTED, Reason.PARTLY_STORED): (
        "{metric} of {b} and {a}: not tested, since some subsets have no rotated versions."
    ),
    (
        ChangeState.NOT_TESTED,
        Reason.NO_TEXTS,
    ): "{metric} of {b} and {a}: not tested, since a run file has ranks only.",
    (ChangeState.NOT_TESTED, Reason.SCORES_DIFFER): (
        "{metric} of {b} and {a}: not tested, since an embedder does not give the scores of its "
        "run."
    ),
    (
        ChangeState.NOT_TESTED,
        Reason.ONE_UNIT,
    ): "{metric} of {b} and {a}: not tested, since no document has two sentences.",
    (ChangeState.NOT_TESTED, Reason.SEVERAL_POSITIONS): (
        "{metric} of {b} and {a}: not tested, since each question has several places of evidence."
    ),
}
#: How a change of a position effect that is shown is told.
MORE_BIASED = "{b} favors the {end} by {size} points more than {a} {ends}, on the same versions."
#: What a metric of a change is called in a sentence.
METRICS = {
    "ndcg_at_10": "nDCG@10",
    "position_effect": "position effect",
    "position_effect_in_window": "position effect within the window",
    "mrr_at_10": "MRR@10",
    "recall_at_10": "Recall@10",
    "recall_at_100": "Recall@100",
    "map_at_100": "MAP@100",
    "recall": "recall",
    "iou": "IoU",
}
WINDOW, DOCUMENT = "window", "document"


def name_state(state: State, margin: float, reason: Reason | None = None) -> Label:
    """Return a state in a few words, for a cell of a table or a title: `no bias above 5 points`."""
    if reason is Reason.ORDER_BLIND:
        return ORDER_BLIND_CELL
    return Label(STATES[state].format(margin=format_margin(margin)), TONES.get(state, Tone.OPEN))


def label_state(findings: GroupFindings) -> Label:
    """Return the state of the verdict in a few words."""
    return name_state(findings.state, findings.margin, findings.reason)


def describe_group(findings: GroupFindings) -> str:
    """Return what is truncated, the verdict and, where the middle differs from the ends, that, as
    sentences.
    """
    parts = (describe_truncation(findings), describe_verdict(findings), describe_middle(findings))
    return " ".join(part for part in parts if part)


def describe_verdict(findings: GroupFindings) -> str:
    """Return the verdict as a sentence, with the interval that it follows from."""
    verdict = findings.verdict
    assert verdict.state is not None
    template = VERDICTS[verdict.state, verdict.reason]
    reads_all = findings.read.kind is ReadKind.ALL
    values = {"place": DOCUMENT if reads_all else WINDOW, "margin": format_margin(findings.margin)}
    if verdict.estimate is not None:
        values |= _size(verdict) | {
            "points": format_finding(verdict),
            "bounds": _bound(verdict.estimate.interval),
            "small": _name_small_bias(verdict),
        }
    values |= _describe_missing(findings)
    return template.format(**values)


def _describe_missing(findings: GroupFindings) -> dict[str, str]:
    """Return what a verdict lacks, for its template."""
    needed = findings.verdict.needed
    mean = findings.value(Quantity.NDCG_AT_10) or 0.0
    return {
        "needed": _describe_needed(findings, needed)
        if needed
        else "More questions are needed to decide.",
        "found": pluralize(findings.tested_documents, "document"),
        "be": "is" if findings.tested_documents == 1 else "are",
        "nearly": "nearly all" if mean > 0.5 else "nearly no",
        "mean": numbers.format_percent(mean, ".0f"),
    }


def _describe_needed(findings: GroupFindings, needed: Needed) -> str:
    return NEEDED[needed.unit.value].format(
        number=f"{needed.number:,}",
        tested=f"{findings.tested_questions:,}",
        all=f"{findings.questions:,}",
    )


def _name_small_bias(verdict: Finding) -> str:
    """Return that there is a bias below the margin, if the interval excludes 0."""
    if not verdict.excludes_zero or verdict.estimate is None:
        return ""
    return f" (a small one to the {'start' if verdict.estimate.value > 0 else 'end'})"


def _bound(interval: Interval | None) -> str:
    """Return how large an effect is at most toward either end; each bound is one-sided at 97.5%."""
    low, high = interval or (-1.0, 1.0)
    start, end = (numbers.format_percent(max(bound, 0.0)) for bound in (high, -low))
    return f"at most {start} points toward the start, at most {end} toward the end"


def describe_truncation(findings: GroupFindings) -> str:
    """Return the window, and how much lower truncated evidence scores; empty if all is read or the
    window is unknown.
    """
    if findings.read.kind is not ReadKind.PART:
        return ""
    share = findings.value(Quantity.UNREAD_SHARE)
    reads = f"Reads {findings.read.phrase}."
    if share == 0:
        return f"{reads} No evidence is truncated."
    loss = findings[Quantity.TRUNCATION_LOSS]
    if loss.estimate is None:
        return (
            reads
            if share is None
            else f"{reads} {format_evidence_share(share)} of the evidence is truncated."
        )
    if not loss.excludes_zero:
        return f"{reads} {TRUNCATION_OPEN.format(points=format_finding(loss))}"
    lower = "lower" if loss.estimate.value > 0 else "higher"
    return f"{reads} {TRUNCATED.format(lower=lower, **_size(loss))}"


def describe_middle(findings: GroupFindings) -> str:
    """Return that the middle of the window differs from its ends; empty unless an interval at 99%
    excludes 0.
    """
    middle = findings[Quantity.MIDDLE_MINUS_ENDS]
    if (
        middle.estimate is None
        or not middle.excludes_zero
        or findings.state in (State.FAVORS_START, State.FAVORS_END)
    ):
        return ""
    place = DOCUMENT if findings.read.kind is ReadKind.ALL else WINDOW
    higher = "higher" if middle.estimate.value > 0 else "lower"
    return MIDDLE.format(place=place, higher=higher, **_size(middle))


def describe_observed(findings: GroupFindings) -> str:
    """Return the difference between early and late evidence as the data lie, a description; empty
    if it is undefined.
    """
    observed = findings[Quantity.START_MINUS_END]
    if observed.estimate is None:
        return ""
    higher = "higher" if observed.estimate.value > 0 else "lower"
    template = OBSERVED if observed.estimate.interval else OBSERVED_ALONE
    return template.format(higher=higher, **_size(observed))


def describe_advice(findings: GroupFindings, task: str = "") -> str:
    """Return the next steps as a sentence; a larger task is named if it has as many questions as
    are needed.
    """
    steps = [_describe_step(advice, task) for advice in advise(findings)]
    text = ", or ".join(steps)
    return f"Next: {text}." if advise(findings)[0].step is not NextStep.NONE else "Nothing to do."


def _describe_step(advice: Advice, task: str) -> str:
    text = STEPS[advice.step].format(number=f"{advice.number or 0:,}")
    larger = find_larger_task(task, advice.number or 0) if advice.number and task else ""
    return f"{text} ({larger})" if larger else text


def describe_sample(findings: GroupFindings, task: str, versions: int = 2) -> str:
    """Return the size of the data and of the test: `PosIR-Mini · 720 queries on 72 documents, each
    rotated twice`.
    """
    size = (
        f"{task} · {pluralize(findings.questions, 'query', 'queries')} on "
        f"{pluralize(findings.documents, 'document')}"
    )
    if not findings.tested_documents:
        return size
    times = "twice" if versions == 2 else f"{versions} times"
    if findings.tested_documents == findings.documents:
        return f"{size}, each rotated {times}"
    return f"{size}, {findings.tested_documents:,} of them rotated {times}"


def describe_models(rows: Sequence[tuple[str, GroupFindings]]) -> Iterator[str]:
    """Yield a title about at most two models, in parts of which each second one is a name.

    First a model that truncates evidence, or has a verdict; a model whose scores ignore word order
    comes last.
    """
    ranked = sorted(
        rows,
        key=lambda row: (
            not row[1].value(Quantity.UNREAD_SHARE),
            row[1].reason is Reason.ORDER_BLIND,
        ),
    )
    described = ranked[: 1 if len(rows) < 3 else 2]
    yield ""
    for name, findings in described[:-1]:
        yield name
        yield f" {phrase_finding(findings)}; "
    for name, findings in described[-1:]:
        yield name
        yield f" {phrase_finding(findings)}"


def phrase_finding(findings: GroupFindings) -> str:
    """Return what is found of a model as a predicate: `truncates 59% of the evidence; within its
    window inconclusive`.
    """
    share = findings.value(Quantity.UNREAD_SHARE)
    state = STATES[findings.state].format(margin=format_margin(findings.margin))
    if findings.reason is Reason.ORDER_BLIND:
        return "has no position bias: word order plays no part in its scores"
    if share:
        truncated = f"truncates {format_evidence_share(share)} of the evidence"
        return f"{truncated}; within its window {_phrase_state(findings.state, state)}"
    return {
        State.NO_BIAS: f"shows {state}",
        State.INCONCLUSIVE: "may or may not have a position bias: inconclusive",
        State.NOT_TESTED: "was not tested for position bias",
    }.get(findings.state, state)


def _phrase_state(state: State, label: str) -> str:
    if state in (State.FAVORS_START, State.FAVORS_END):
        return f"it {label}"
    return f"bias {label}" if state is State.INCONCLUSIVE else label


def iterate_answer(findings: GroupFindings, task: str = "") -> Iterator[tuple[str, str]]:
    """Yield the answer in five parts, a title and a sentence each."""
    yield "How well", f"nDCG@10 {format_score_in_percent(findings[Quantity.NDCG_AT_10].estimate)}."
    effect = findings[Quantity.POSITION_EFFECT]
    yield "Position effect", f"{format_finding(effect)}." if effect.estimate else "Not tested."
    yield "Truncated", describe_truncation(findings) or _describe_reading(findings.read)
    verdict = (describe_verdict(findings), describe_middle(findings))
    yield "Bias within the window", " ".join(part for part in verdict if part)
    steps = " ".join(f"{_capitalize(_describe_step(advice, task))}." for advice in advise(findings))
    yield "Next", steps


def _capitalize(text: str) -> str:
    return text[0].upper() + text[1:]


def _describe_reading(read: ReadPart) -> str:
    return "Reads all of a text." if read.kind is ReadKind.ALL else "The window is unknown."


def list_facts(findings: GroupFindings) -> Iterator[tuple[str, str]]:
    """Yield what a picture rests on: a name with its definition in parentheses, and a value."""
    yield (
        "nDCG@10 (100: always ranked first)",
        format_score_in_percent(findings[Quantity.NDCG_AT_10].estimate),
    )
    effect = findings[Quantity.POSITION_EFFECT]
    yield (
        "Position effect (same evidence, first minus last third of the document)",
        format_finding(effect),
    )
    share = findings.value(Quantity.UNREAD_SHARE)
    if share:
        yield "Truncated", f"{format_evidence_share(share)} of the evidence"
        yield (
            "Truncation loss (same evidence, read minus truncated)",
            format_finding(findings[Quantity.TRUNCATION_LOSS]),
        )
    elif findings.read.kind is ReadKind.UNKNOWN:
        yield "Truncated", "unknown"
    label = label_state(findings)
    within = f"{format_finding(findings.verdict)}\n" if findings.verdict.estimate else ""
    yield "Bias within the window", Label(f"{within}{label}", label.tone)
    yield "Next", describe_advice(findings)


def label_change(change: MetricChange) -> Label:
    """Return the state of a change in a few words: `better`, `equivalent within 2 points`."""
    words = CHANGE_STATES[change.state].format(margin=format_margin(change.margin))
    return Label(words, TONES.get(change.state, Tone.OPEN))


def format_change(change: MetricChange, separator: str = ": ") -> Label:
    """Return the state of a change with its interval, for a cell: `worse: -3.1 [-5.0, -1.2]`."""
    label = label_change(change)
    points = format_difference(change)
    return Label(f"{label}{separator}{points}", label.tone) if points else label


def format_difference(change: MetricChange) -> str:
    """Return the difference of a metric with its interval; empty where it is undefined."""
    if change.difference is None or change.difference.interval is None:
        return ""
    return numbers.format_estimate(change.difference, numbers.format_points)


def describe_change(key: str, change: MetricChange, a: str, b: str) -> str:
    """Return the change of the metric with a key from system `a` to system `b` as a sentence."""
    metric = METRICS[key]
    needed = (
        f" About {change.needed.number:,} {change.needed.unit.value} are needed to decide."
        if change.needed
        else ""
    )
    values = {
        "a": a,
        "b": b,
        "metric": metric,
        "points": format_difference(change),
        "needed": needed,
    }
    reason = (
        change.reason
        if change.state in (ChangeState.INCONCLUSIVE, ChangeState.NOT_TESTED)
        else None
    )
    text = CHANGES[change.state, reason].format(margin=format_margin(change.margin), **values)
    return _capitalize(text) if reason else text


def describe_ndcg_change(change: Change, a: str, b: str) -> str:
    """Return the change in nDCG@10 as a title: `B scores 31.7 points lower than A [24.9, 38.4]`."""
    metric = change.ndcg_at_10
    if metric.state in (ChangeState.BETTER, ChangeState.WORSE) and metric.difference:
        higher = "higher" if metric.difference.value > 0 else "lower"
        return f"{b} scores {_absolute(metric.difference, f'points {higher} than {a}')}"
    if metric.state is ChangeState.EQUIVALENT:
        return f"{b} and {a} are {label_change(metric)} of nDCG@10"
    return f"nDCG@10 of {b} and {a}: inconclusive"


def describe_effect_change(change: Change, a: str, b: str) -> str:
    """Return how a better or worse position effect changes: `B favors the start by 6.7 points more
    than A [4.2, 9.1], ...`.
    """
    metric = change.position_effect
    if metric.state not in (ChangeState.BETTER, ChangeState.WORSE) or not metric.difference:
        return ""
    end = "start" if metric.difference.value > 0 else "end"
    size = numbers.format_percent(abs(metric.difference.value))
    return MORE_BIASED.format(a=a, b=b, end=end, size=size, ends=_format_ends(metric.difference))


def _absolute(estimate: Estimate, words: str) -> str:
    return (
        f"{numbers.format_percent(abs(estimate.value))} {words} {_format_ends(estimate)}".rstrip()
    )


def describe_questions(task: str, queries: int, documents: int) -> str:
    """Return the size of the data of a task, and what is known of it."""
    size = f"{pluralize(queries, 'question')} about {pluralize(documents, 'document')}"
    return f"{task}: {size}, each with the exact position of its answer."


def format_margin(margin: float) -> str:
    """Return a margin in words: `5 points`."""
    return f"{margin * 100:g} point{'' if margin == 0.01 else 's'}"


def format_level(level: float) -> str:
    """Return the level of an interval: `98.75%`."""
    return f"{level * 100:.4g}%"


def format_evidence_share(share: float) -> str:
    """Return a share of the evidence: `59%`, or `0.4%` below one percent."""
    return f"{numbers.format_percent(share, '.0f' if share >= 0.01 else '.1g')}%"


def format_score_in_percent(estimate: Estimate | None) -> str:
    """Return a score in percent with its interval: `58.3 [55.1, 61.4]`."""
    return numbers.format_estimate(estimate, numbers.format_percent)


def format_finding(finding: Finding, *, with_level: bool = True) -> str:
    """Return an effect in points with its interval, and its level unless that is 95%: `+4.2 [+1.0,
    +7.4]`.
    """
    if finding.estimate is None:
        return numbers.MISSING
    if finding.estimate.interval == (0.0, 0.0):
        return numbers.format_points(0.0)
    text = numbers.format_estimate(finding.estimate, numbers.format_points)
    return f"{text}{_name_level(finding.level)}" if with_level else text


def _name_level(level: float) -> str:
    return "" if level == LEVEL else f" ({format_level(level)} interval)"


def _size(finding: Finding) -> dict[str, str]:
    """Return the size of an effect and the ends of its interval without signs, for a template."""
    assert finding.estimate is not None
    ends = f"{_format_ends(finding.estimate)}{_name_level(finding.level)}"
    return {"size": numbers.format_percent(abs(finding.estimate.value)), "ends": ends}


def _format_ends(estimate: Estimate) -> str:
    """Return an interval on the side of its value: `[4.0, 12.2]`; with signs turned if the value is
    negative.
    """
    if estimate.interval is None:
        return ""
    sign = 1 if estimate.value >= 0 else -1
    low, high = sorted(sign * end for end in estimate.interval)
    return f"[{numbers.format_percent(low)}, {numbers.format_percent(high)}]"


#: How a plan is told.
PLAN = "{truth}, '{state}' has a probability of {power:g} on {questions} about {documents}."
BELOW_MARGIN = (
    "An effect of {size} points is below the margin of {margin}: with many questions the state is "
    "'{state}'."
)


def name_planned_state(state: State | ChangeState, margin: float) -> str:
    """Return a state of a model or of a change in a few words."""
    names = STATES if isinstance(state, State) else CHANGE_STATES
    return names[state].format(margin=format_margin(margin))  # type: ignore[index]


def describe_plan(
    state: State | ChangeState,
    effect: float | None,
    questions: int | None,
    documents: int | None,
    power: float,
    margin: float,
) -> str:
    """Return how many questions and documents lead to a state, in a sentence."""
    name = name_planned_state(state, margin)
    if questions is None or documents is None:
        size = numbers.format_percent(effect)
        return BELOW_MARGIN.format(
            size=size, margin=format_margin(margin), state=name_state(State.NO_BIAS, margin)
        )
    truth = (
        f"With a position effect of {numbers.format_percent(effect)} points"
        if effect
        else "Without an effect"
    )
    return PLAN.format(
        truth=truth,
        state=name,
        power=power,
        questions=pluralize(questions, "question"),
        documents=pluralize(documents, "document"),
    )


#: What is shown where nothing is known of the effect of position.
NOT_KNOWN = "The effect of position is not known."
#: Title of a curve without findings.
CURVE_TITLE = "nDCG@10 by position of the evidence"


def title_curve(findings: GroupFindings | None) -> str:
    """Return a finding as the title of a chart; without one, the subject of the chart."""
    return _capitalize(phrase_finding(findings)) if findings else CURVE_TITLE


def title_lengths(first: Estimate, last: Estimate) -> str:
    """Return nDCG@10 of the shortest and of the longest documents as a title."""
    scores = (numbers.format_percent(estimate.value) for estimate in (first, last))
    return "nDCG@10 is {} in the shortest documents, {} in the longest".format(*scores)


def describe_ranking(
    best: tuple[str, Estimate | None], worst: tuple[str, Estimate | None], models: int
) -> str:
    """Return which of several models finds evidence best and which worst, given names and
    nDCG@10.
    """
    scores = [
        numbers.format_percent(estimate.value if estimate else None)
        for _, estimate in (best, worst)
    ]
    if models > 2:
        return f"{best[0]} finds it best (nDCG@10 {scores[0]}), {worst[0]} worst ({scores[1]})."
    return f"{best[0]} finds it better (nDCG@10 {scores[0]}) than {worst[0]} ({scores[1]})."


def count_truncating(truncating: int, models: int) -> str:
    """Return how many models truncate evidence, as a title."""
    if not truncating:
        return f"None of {models} models truncates evidence"
    return (
        f"{truncating} of {models} models {'truncates' if truncating == 1 else 'truncate'} evidence"
    )


def count_truncation(shares: Sequence[float], results: int) -> str:
    """Return how many results have truncated evidence, given the shares above 0, sorted."""
    if not shares:
        return f"No evidence is truncated in {pluralize(results, 'result')}."
    ends = " to ".join(dict.fromkeys(map(format_evidence_share, (shares[0], shares[-1]))))
    return f"{len(shares):,} of {results:,} truncate {ends} of the evidence."


def count_states(counts: Mapping[Any, int]) -> str:
    """Return how many results have each state."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return f"Bias within the window: {', '.join(f'{count:,} {state}' for state, count in ordered)}."


def describe_false_alarms(decided: int) -> str:
    """Return how many of so many results are expected to favor an end by chance."""
    by_chance = numbers.format_number(decided * (1 - LEVEL), ".1f").removesuffix(".0")
    return (
        f"If none of {decided:,} had any bias, about {by_chance} would be expected to favor an "
        "end by chance."
    )


def describe_few(needed: int | None, number: int, counted: str) -> str:
    """Return that there are too few documents, or what else is counted, and how many are needed;
    empty if there are enough.
    """
    if not needed:
        return ""
    return (
        f"{pluralize(number, f'{counted} is', f'{counted}s are')} too few, at least {needed:,} "
        "are needed"
    )


#: How recall in two parts of the documents is told; {first} and {last} are the parts.
RECALL: dict[ChangeState, str] = {
    ChangeState.BETTER: "{of} recall is higher in the {first} than in the {last}: {points}.",
    ChangeState.WORSE: "{of} recall is lower in the {first} than in the {last}: {points}.",
    ChangeState.EQUIVALENT: "{of} recall: no difference above {margin} between the {first} and "
    "the {last}, {points}.",
    ChangeState.INCONCLUSIVE: "{of} recall in the {first} and the {last}: "
    "inconclusive{points}.{needed}",
}


def describe_recall_change(of: str, parts: tuple[str, str], change: MetricChange) -> str:
    """Return how recall, of documents or of chunks, differs between two parts of the documents, as
    a sentence.
    """
    needed = (
        f" About {change.needed.number:,} {change.needed.unit.value} are needed to decide."
        if change.needed
        else ""
    )
    points = format_difference(change)
    if change.state is ChangeState.INCONCLUSIVE and points:
        points = f", {points}"
    values = {
        "of": _capitalize(of),
        "first": parts[0],
        "last": parts[1],
        "points": points,
        "needed": needed,
    }
    return RECALL[change.state].format(margin=format_margin(change.margin), **values)


# Report.

#: The picture of the answer in a line, as a column.
EXPLAINED_SKETCH = (
    "nDCG@10 at each position in the window, on an axis from 0 to 100; ░ after ┊: truncated "
    "evidence, as wide as its share. The boundary does not mark a fixed position, since documents "
    "differ in length."
)
UNKNOWN_WINDOWS = "The window of {models} is unknown; `posir window MODEL` measures it."
DESIGN_EFFECT = (
    "{task}, {model}: {queries:,} queries on {documents:,} documents; the variance of nDCG@10 is "
    "{effect:.1f} times that of independent queries (design effect)."
)
LEVELS = "Intervals of effects in the rows of lengths hold at the same time, each at {levels}."
#: The way in which tokens before the evidence were counted, if not with the model's own tokenizer.
COUNTED = {
    CountedWith.ESTIMATE: (
        "That is estimated from the token counts in the data, not counted with the model's own "
        "tokenizer."
    ),
    CountedWith.ROUGH_ESTIMATE: (
        "That is roughly estimated from the token counts in the data; for languages other than "
        "English, the model's own tokenizer may find several times as many."
    ),
}
PLACES = (
    "{model}, {task}, several places: {places} of {queries}, each with the rank of its own "
    "document and the weight 1/n of n places; {left_out:,} with more than {most} left out. In "
    "thirds of the document: {shares}% of the evidence, nDCG@10 {gains}. Share of a query's places "
    "whose document is among the first 10: {recall_10}%, 100: {recall_100}%."
)


#: Heading of position effects, and what follows a task above a table of its lengths.
POSITION_EFFECT, BY_LENGTH = "Position effect", "by length of the document"


def count_queries(queries: int) -> str:
    """Format a number of queries with its noun."""
    return pluralize(queries, "query", "queries")


def describe_ndcg(estimate: Estimate | None) -> str:
    """Format nDCG@10 without its interval: `nDCG@10 58.3`."""
    return f"nDCG@10 {numbers.format_percent(estimate.value if estimate else None)}"


def describe_answer(findings: GroupFindings | None, task: str = "") -> str:
    """Describe the findings, and on a line of its own the next step."""
    if findings is None:
        return NOT_KNOWN
    return f"{describe_group(findings)}\n{describe_advice(findings, task)}"


def describe_counting(
    model: str, findings: GroupFindings, counted_with: CountedWith | None
) -> Iterator[str]:
    """Yield the window, what is truncated and how that was counted, if anything is known."""
    truncation = describe_truncation(findings)
    if truncation:
        counted = COUNTED.get(counted_with, "") if counted_with else ""
        yield f"{model}: {truncation} {counted}".rstrip()


def describe_levels(levels: Sequence[float]) -> str:
    """Say at which levels the intervals of lengths hold; empty without levels."""
    if not levels:
        return ""
    return LEVELS.format(levels=" or ".join(format_level(level) for level in levels))


def describe_places(model: str, task: str, places: Mapping[str, Any]) -> str:
    """Describe the queries with several places of evidence, as `posir_report` summarizes them."""
    shares, gains = places["shares"] or [None], places["ndcg_at_10_by_third"] or [None]
    return PLACES.format(
        model=model,
        task=task,
        places=pluralize(places["places"], "place"),
        queries=pluralize(places["queries"], "query", "queries"),
        left_out=places["left_out"],
        most=MAX_PLACES,
        shares=" / ".join(numbers.format_percent(share) for share in shares),
        gains=" / ".join(numbers.format_percent(gain) for gain in gains),
        recall_10=numbers.format_percent(places["place_recall_at_10"]),
        recall_100=numbers.format_percent(places["place_recall_at_100"]),
    )


def title_lengths_table(task: str, sizes: Collection[str]) -> str:
    """Name a table of lengths, with the number of queries if that is the same in all."""
    each = f" · {next(iter(sizes))} each" if len(sizes) == 1 else ""
    start = f"{task}, {BY_LENGTH}" if task else _capitalize(BY_LENGTH)
    return f"{start}{each}"


def describe_folded_lengths(lengths: Mapping[str, int]) -> str:
    """Name lengths without an estimate, with their queries; empty if there are none."""
    if not lengths:
        return ""
    named = [
        f"{name} ({pluralize(number, 'query', 'queries')})" for name, number in lengths.items()
    ]
    return f"Not estimated: {', '.join(named)}."
