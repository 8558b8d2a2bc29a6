"""Sentences about the verdict on a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from posir_significance.advice import Advice, NextStep, advise, find_larger_task
from posir_significance.findings import (
    LEVEL,
    ChangeRow,
    Finding,
    GroupFindings,
    Quantity,
    Reason,
    State,
)
from posir_tasks.base.wording import pluralize
from posir_tasks.display import numbers
from posir_tasks.display.labels import Label, Tone
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.read_part import ReadKind

#: States in a few words, for a cell or a title, with their color. {margin} is `5 points`.
STATES = {
    State.FAVORS_START: ("favors the start", Tone.BAD),
    State.FAVORS_END: ("favors the end", Tone.BAD),
    State.NO_BIAS: ("no bias above {margin}", Tone.GOOD),
    State.INCONCLUSIVE: ("inconclusive", Tone.OPEN),
    State.NOT_TESTED: ("not tested", Tone.OPEN),
}
ORDER_BLIND_CELL = Label("none: word order plays no part", Tone.GOOD)
#: A model as the predicate of a title, whether or not it truncates evidence.
PREDICATES = {
    State.FAVORS_START: "favors the start",
    State.FAVORS_END: "favors the end",
    State.NO_BIAS: "shows no bias above {margin}",
    State.INCONCLUSIVE: "may or may not have a position bias: inconclusive",
    State.NOT_TESTED: "was not tested for position bias",
}
TRUNCATING_PREDICATES = {
    State.FAVORS_START: (
        "truncates {share} of the evidence; within its window it favors the start"
    ),
    State.FAVORS_END: "truncates {share} of the evidence; within its window it favors the end",
    State.NO_BIAS: "truncates {share} of the evidence; within its window no bias above {margin}",
    State.INCONCLUSIVE: "truncates {share} of the evidence; within its window bias inconclusive",
    State.NOT_TESTED: "truncates {share} of the evidence; within its window not tested",
}
ORDER_BLIND = "No position bias: word order plays no part in its scores."
#: The verdict in a sentence, by state, and by reason where it is inconclusive.
VERDICTS: dict[State | Reason, str] = {
    State.FAVORS_START: (
        "Favors the start (primacy bias): the same evidence scores {size} points higher in the "
        "first third of the {place} than in the last{ends}."
    ),
    State.FAVORS_END: (
        "Favors the end (recency bias): the same evidence scores {size} points lower in the "
        "first third of the {place} than in the last{ends}."
    ),
    State.NO_BIAS: "Within the {place}: no bias above {margin}, {points}.",
    State.NOT_TESTED: "Not tested.",
    Reason.ORDER_BLIND: ORDER_BLIND,
    Reason.WIDE_INTERVAL: (
        "Inconclusive: at most {start} points toward the start, at most {end} toward the end."
    ),
    Reason.FEW_DOCUMENTS: "Inconclusive: too few of {found} have evidence at both ends.",
    Reason.NO_ROOM: (
        "Inconclusive: nearly all or nearly no evidence is found, wherever it is (nDCG@10 {mean})."
    ),
}
#: Why nothing was tested, of a model or of a change.
UNTESTED = {
    Reason.WINDOW_UNKNOWN: "The window is unknown.",
    Reason.WINDOW_DIFFERS: "The windows differ.",
    Reason.NOT_STORED: "There are no rotated versions.",
    Reason.PARTLY_STORED: "Some subsets have no rotated versions.",
    Reason.NO_TEXTS: "A run file has ranks only. `posir score RUN --embedder MODEL` tests it.",
    Reason.SCORES_DIFFER: "The embedder does not give the scores of the run.",
    Reason.ONE_UNIT: "No document has two sentences.",
    Reason.SEVERAL_POSITIONS: "Each question has several places of evidence.",
    Reason.OTHER_DATA: "The versions of the documents differ.",
}
#: What is needed, by unit.
NEEDED = {
    "questions": "About {number} such questions are needed to decide; {tested} of the {all} "
    "questions were tested.",
    "documents": "At least {number} are needed.",
}
#: Next steps in a sentence.
STEPS = {
    NextStep.CHUNK: "search in chunks that fit the window",
    NextStep.TRAIN: "train on evidence at all positions (`posir train`)",
    NextStep.MORE_QUESTIONS: "test on about {number} questions",
    NextStep.MORE_DOCUMENTS: "test on at least {number} documents",
    NextStep.MEASURE_WINDOW: "measure the window (`posir window`); of a hybrid, test each model",
    NextStep.RUN_AGAIN: "run the model again, so that rotated versions are stored",
    NextStep.GIVE_EMBEDDER: "name the model behind the run with `--embedder`",
    NextStep.NONE: "nothing to do",
}
NONE_TRUNCATED = "No evidence is truncated."
TRUNCATED_SHARE = "{share} of the evidence is truncated."
TRUNCATED = "The same evidence scores {size} points {lower} where it is truncated{ends}."
TRUNCATION_OPEN = "Whether truncated evidence scores lower is inconclusive: {points}."
OBSERVED = (
    "Observed: evidence at the start scores {size} points {higher}{ends}. These are different "
    "questions; their difficulty is part of it."
)
MIDDLE = "The middle third of the {place} scores {size} points {higher} than its ends{ends}."


def name_state(state: State, margin: float, reason: Reason | None = None) -> Label:
    """Return a state in a few words, for a cell of a table or a title: `no bias above 5 points`."""
    if reason is Reason.ORDER_BLIND:
        return ORDER_BLIND_CELL
    words, tone = STATES[state]
    return Label(words.format(margin=format_margin(margin)), tone)


def label_state(findings: GroupFindings) -> Label:
    """Return the state of the verdict in a few words."""
    return name_state(findings.state, findings.margin, findings.reason)


def describe_group(findings: GroupFindings) -> str:
    """Describe the truncation, the verdict and, if the middle differs from the ends, the middle."""
    parts = (describe_truncation(findings), describe_verdict(findings), describe_middle(findings))
    return " ".join(part for part in parts if part)


def _name_place(findings: GroupFindings) -> str:
    return "document" if findings.read.kind is ReadKind.ALL else "window"


def describe_verdict(findings: GroupFindings) -> str:
    """Return the verdict as a sentence, with the interval that it follows from; then the reason if
    it was not tested, and the questions or documents that would decide.
    """
    verdict = findings.verdict
    reason = findings.reason
    key: State | Reason = findings.state
    if reason and reason in VERDICTS:
        key = reason
    interval = verdict.estimate.interval if verdict.estimate else None
    low, high = interval or (-1.0, 1.0)
    mean = findings.value(Quantity.NDCG_AT_10)
    sentences = [
        VERDICTS[key].format(
            place=_name_place(findings),
            margin=format_margin(findings.margin),
            points=format_finding(verdict),
            start=numbers.format_percent(max(high, 0.0)),
            end=numbers.format_percent(max(-low, 0.0)),
            found=pluralize(findings.tested_documents, "document"),
            mean=numbers.format_percent(mean, ".0f"),
            **_size(verdict),
        )
    ]
    if findings.state is State.NOT_TESTED and reason:
        sentences.append(UNTESTED[reason])
    if verdict.needed:
        needed = NEEDED[verdict.needed.unit].format(
            number=f"{verdict.needed.number:,}",
            tested=f"{findings.tested_questions:,}",
            all=f"{findings.questions:,}",
        )
        sentences.append(needed)
    return " ".join(sentences)


def describe_truncation(findings: GroupFindings) -> str:
    """Return the window, and how much lower truncated evidence scores; empty if all is read or the
    window is unknown.
    """
    if findings.read.kind is not ReadKind.PART:
        return ""
    share = findings.value(Quantity.UNREAD_SHARE)
    loss = findings[Quantity.TRUNCATION_LOSS]
    lower = "lower" if loss.estimate and loss.estimate.value > 0 else "higher"
    if share == 0:
        truncated = NONE_TRUNCATED
    elif loss.estimate is None:
        truncated = "" if share is None else TRUNCATED_SHARE
    else:
        truncated = TRUNCATED if loss.excludes_zero else TRUNCATION_OPEN
    text = truncated.format(
        share=format_evidence_share(share or 0.0),
        points=format_finding(loss),
        lower=lower,
        **_size(loss),
    )
    return f"Reads {findings.read.phrase}. {text}".rstrip()


def describe_middle(findings: GroupFindings) -> str:
    """Describe the middle of the window against its ends; empty unless an interval at 99% excludes
    0.
    """
    middle = findings[Quantity.MIDDLE_MINUS_ENDS]
    is_biased = findings.state in (State.FAVORS_START, State.FAVORS_END)
    if is_biased or middle.estimate is None or not middle.excludes_zero:
        return ""
    higher = "higher" if middle.estimate.value > 0 else "lower"
    return MIDDLE.format(place=_name_place(findings), higher=higher, **_size(middle))


def describe_observed(findings: GroupFindings) -> str:
    """Return the difference between early and late evidence as the data lie, a description; empty
    if it is undefined.
    """
    observed = findings[Quantity.START_MINUS_END]
    if observed.estimate is None:
        return ""
    higher = "higher" if observed.estimate.value > 0 else "lower"
    return OBSERVED.format(higher=higher, **_size(observed))


def describe_advice(findings: GroupFindings, task: str = "") -> str:
    """Return the next steps as a sentence; a larger task is named if it has as many questions as
    are needed.
    """
    steps = advise(findings)
    if steps[0].step is NextStep.NONE:
        return "Nothing to do."
    return f"Next: {', or '.join(_describe_step(advice, task) for advice in steps)}."


def describe_steps(findings: GroupFindings, task: str = "") -> str:
    """Return the next steps as a sentence each."""
    steps = [capitalize(_describe_step(advice, task)) for advice in advise(findings)]
    return f"{'. '.join(steps)}."


def _describe_step(advice: Advice, task: str) -> str:
    text = STEPS[advice.step].format(number=f"{advice.number or 0:,}")
    larger = find_larger_task(task, advice.number) if advice.number and task else ""
    return f"{text} ({larger})" if larger else text


def describe_sample(findings: GroupFindings, task: str) -> str:
    """Return the size of the data and of the test: `PosIR-Mini · 720 queries on 72 documents, each
    rotated twice`.
    """
    size = f"{task} · {format_queries(findings.questions)} on "
    size += pluralize(findings.documents, "document")
    if not findings.tested_documents:
        return size
    if findings.tested_documents == findings.documents:
        return f"{size}, each rotated twice"
    return f"{size}, {findings.tested_documents:,} of them rotated twice"


def format_queries(queries: int | None) -> str:
    """Format a number of queries with its noun."""
    return pluralize(queries or 0, "query", "queries")


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
    for number, (name, findings) in enumerate(described, 1):
        yield name
        end = "; " if number < len(described) else ""
        yield f" {phrase_finding(findings)}{end}"


def phrase_finding(findings: GroupFindings) -> str:
    """Describe a model by a predicate: `truncates 59% of the evidence; within its window
    inconclusive`.
    """
    if findings.reason is Reason.ORDER_BLIND:
        return "has no position bias: word order plays no part in its scores"
    share = findings.value(Quantity.UNREAD_SHARE) or 0.0
    template = (TRUNCATING_PREDICATES if share else PREDICATES)[findings.state]
    margin = format_margin(findings.margin)
    return template.format(share=format_evidence_share(share), margin=margin)


def iterate_answer(findings: GroupFindings, task: str = "") -> Iterator[tuple[str, str]]:
    """Yield the answer in five parts, a title and a sentence each."""
    yield "How well", f"nDCG@10 {format_score_in_percent(findings[Quantity.NDCG_AT_10].estimate)}."
    effect = findings[Quantity.POSITION_EFFECT]
    yield "Position effect", f"{format_finding(effect)}." if effect.estimate else "Not tested."
    is_known = findings.read.kind is not ReadKind.UNKNOWN
    reading = "Reads all of a text." if is_known else "The window is unknown."
    yield "Truncated", describe_truncation(findings) or reading
    verdict = f"{describe_verdict(findings)} {describe_middle(findings)}"
    yield "Bias within the window", verdict.rstrip()
    yield "Next", describe_steps(findings, task)


def capitalize(text: str) -> str:
    """Begin a sentence; the other letters stay as they are."""
    return text[0].upper() + text[1:]


def list_facts(findings: GroupFindings) -> Iterator[tuple[str, str]]:
    """Yield what a picture rests on: a name with its definition in parentheses, and a value."""
    ndcg = format_score_in_percent(findings[Quantity.NDCG_AT_10].estimate)
    yield "nDCG@10 (100: always ranked first)", ndcg
    yield from list_effects(findings)
    yield "Next", describe_steps(findings)


def list_effects(findings: GroupFindings) -> Iterator[tuple[str, str]]:
    """Yield the effects of position and truncation: a name with its definition in parentheses, and
    a value.
    """
    effect = format_finding(findings[Quantity.POSITION_EFFECT])
    yield "Position effect (same evidence, first minus last third of the document)", effect
    share = findings.value(Quantity.UNREAD_SHARE)
    if share:
        yield "Truncated", f"{format_evidence_share(share)} of the evidence"
        loss = format_finding(findings[Quantity.TRUNCATION_LOSS])
        yield "Truncation loss (same evidence, read minus truncated)", loss
    elif findings.read.kind is ReadKind.UNKNOWN:
        yield "Truncated", "unknown"
    label = label_state(findings)
    within = f"{format_finding(findings.verdict)}\n" if findings.verdict.estimate else ""
    yield "Bias within the window", Label(f"{within}{label}", label.tone)


def format_difference(change: ChangeRow) -> str:
    """Format the difference of a metric with its interval; empty where it is undefined."""
    if change.estimate is None or change.estimate.interval is None:
        return ""
    return numbers.format_estimate(change.estimate, numbers.format_points)


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
    if finding.estimate and finding.estimate.interval == (0.0, 0.0):
        return numbers.format_points(0.0)
    text = numbers.format_estimate(finding.estimate, numbers.format_points)
    return f"{text}{_name_level(finding.level)}" if with_level and finding.estimate else text


def _name_level(level: float) -> str:
    return "" if level == LEVEL else f" ({format_level(level)} interval)"


def _size(finding: Finding) -> dict[str, str]:
    """Return the size of an effect and, after a space, the ends of its interval without signs, for
    a template.
    """
    if finding.estimate is None:
        return {}
    ends = f"{format_ends(finding.estimate)}{_name_level(finding.level)}"
    return {"size": numbers.format_percent(abs(finding.estimate.value)), "ends": ends}


def format_ends(estimate: Estimate) -> str:
    """Return an interval after a space, on the side of its value: ` [4.0, 12.2]`; with signs turned
    if the value is negative.
    """
    if estimate.interval is None:
        return ""
    sign = 1 if estimate.value >= 0 else -1
    low, high = sorted(sign * end for end in estimate.interval)
    return f" [{numbers.format_percent(low)}, {numbers.format_percent(high)}]"


#: What is shown where nothing is known of the effect of position.
NOT_KNOWN = "The effect of position is not known."
#: Title of a curve without findings.
CURVE_TITLE = "nDCG@10 by position of the evidence"


def title_curve(findings: GroupFindings | None) -> str:
    """Return a finding as the title of a chart; without one, the subject of the chart."""
    return capitalize(phrase_finding(findings)) if findings else CURVE_TITLE


def count_truncating(truncating: int, models: int) -> str:
    """Count the models that truncate evidence, as a title."""
    if not truncating:
        return f"None of {models} models truncates evidence"
    return (
        f"{truncating} of {models} models {'truncates' if truncating == 1 else 'truncate'} evidence"
    )


def count_truncation(shares: Sequence[float], results: int) -> str:
    """Count the results with truncated evidence, given the shares above 0, sorted."""
    if not shares:
        return f"No evidence is truncated in {pluralize(results, 'result')}."
    ends = " to ".join(dict.fromkeys(map(format_evidence_share, (shares[0], shares[-1]))))
    return f"{len(shares):,} of {results:,} truncate {ends} of the evidence."


def count_states(counts: Counter[Label]) -> str:
    """Count the results with each state."""
    return f"Bias within the window: {list_counts(counts)}."


def list_counts(counts: Counter[Label]) -> str:
    """List states with their numbers, the most frequent first: `2 better, 1 inconclusive`."""
    return ", ".join(f"{count:,} {state}" for state, count in counts.most_common())


FALSE_ALARMS = (
    "If none of {number} had any bias, about {alarms:g} would be expected to favor an end by "
    "chance."
)


def describe_false_alarms(decided: int) -> str:
    """Describe the number of results that are expected to favor an end by chance."""
    alarms = round(decided * (1 - LEVEL), 1)
    return FALSE_ALARMS.format(number=f"{decided:,}", alarms=alarms)


def describe_few(needed: int | None, number: int, counted: str) -> str:
    """Describe that there are too few documents, or what else is counted; empty if there are
    enough.
    """
    if not needed:
        return ""
    return (
        f"{pluralize(number, f'{counted} is', f'{counted}s are')} too few, at least {needed:,} "
        "are needed"
    )
