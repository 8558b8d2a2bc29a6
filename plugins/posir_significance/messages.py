"""The words for findings and changes. Every sentence about a result is made here, from numbers and
names alone.

Each template belongs to a state, a reason, a step or a quantity. Numbers are points of nDCG@10
unless they say otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from posir_significance.advice import (
    Advice,
    NextStep,
    advise,
    find_larger_task,
)
from posir_significance.findings import (
    LEVEL,
    MIN_DOCUMENTS,
    ChangeRow,
    ChangeState,
    Finding,
    GroupFindings,
    LimitReason,
    Metric,
    Prediction,
    Quantity,
    Reason,
    State,
)
from posir_tasks.base.wording import NO_BREAK, pluralize
from posir_tasks.display import numbers, strip
from posir_tasks.display.labels import Label, Tone
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.place_ranks import MAX_PLACES
from posir_tasks.values.read_part import CountedWith, ReadKind

#: States in a few words, for a cell or a title, with their color. {margin} is `5 points`.
STATES = {
    State.FAVORS_START: ("favors the start", Tone.BAD),
    State.FAVORS_END: ("favors the end", Tone.BAD),
    State.NO_BIAS: ("no bias above {margin}", Tone.GOOD),
    State.INCONCLUSIVE: ("inconclusive", Tone.OPEN),
    State.NOT_TESTED: ("not tested", Tone.OPEN),
}
ORDER_BLIND_CELL = Label("none: word order plays no part", Tone.GOOD)
CHANGE_STATES = {
    ChangeState.BETTER: ("better", Tone.GOOD),
    ChangeState.WORSE: ("worse", Tone.BAD),
    ChangeState.EQUIVALENT: ("equivalent within {margin}", Tone.GOOD),
    ChangeState.INCONCLUSIVE: ("inconclusive", Tone.OPEN),
    ChangeState.NOT_TESTED: ("not tested", Tone.OPEN),
}
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
    Reason.WINDOW_UNKNOWN: "The window is unknown: `posir window MODEL`.",
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
    NextStep.MEASURE_WINDOW: "measure the window",
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
#: Changes in a sentence. {b} and {a} are names of systems, {metric} of the metric.
CHANGES = {
    ChangeState.BETTER: "{b} is better than {a} in {metric}: {points}.",
    ChangeState.WORSE: "{b} is worse than {a} in {metric}: {points}.",
    ChangeState.EQUIVALENT: "{a} and {b} are equivalent within {margin} in {metric}: {points}.",
    ChangeState.INCONCLUSIVE: "{metric} of {b} and {a}: inconclusive, {points}.",
    ChangeState.NOT_TESTED: "{metric} of {b} and {a}: not tested.",
}
#: Why a change is inconclusive; nothing is to be said of a wide interval.
OPEN_CHANGES = {
    Reason.FEW_DOCUMENTS: "There are too few documents.",
    Reason.DIRECTION_UNKNOWN: "Which of the two is nearer to 0 is open.",
}


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
    steps = [_capitalize(_describe_step(advice, task)) for advice in advise(findings)]
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


def _capitalize(text: str) -> str:
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


def name_change(state: ChangeState, margin: float) -> Label:
    """Name the state of a change in a few words: `better`, `equivalent within 2 points`."""
    words, tone = CHANGE_STATES[state]
    return Label(words.format(margin=format_margin(margin)), tone)


def label_change(change: ChangeRow) -> Label:
    """Name the state of a change in a few words: `better`, `equivalent within 2 points`; empty for
    a description.
    """
    return name_change(change.state, change.margin) if change.state else Label("")


def format_change(change: ChangeRow, separator: str = ": ") -> Label:
    """Format the state of a change with its interval, for a cell: `worse: -3.1 [-5.0, -1.2]`."""
    difference = format_difference(change)
    label = label_change(change)
    return Label(f"{label}{separator}{difference}", label.tone) if difference else label


def format_difference(change: ChangeRow) -> str:
    """Format the difference of a metric with its interval; empty where it is undefined."""
    if change.estimate is None or change.estimate.interval is None:
        return ""
    return numbers.format_estimate(change.estimate, numbers.format_points)


def describe_change(change: ChangeRow, a: str = "", b: str = "") -> str:
    """Describe a change in a sentence, with other names for the two systems if given; then why it
    is not decided, and the questions or documents that would decide.
    """
    assert change.state is not None
    text = CHANGES[change.state].format(
        a=a or change.subject.baseline,
        b=b or change.subject.model,
        metric=change.metric,
        margin=format_margin(change.margin),
        points=format_difference(change) or "no interval",
    )
    # Metrics begin these sentences; nDCG@10 is never capitalized.
    sentences = [text if change.metric is Metric.NDCG_AT_10 else _capitalize(text)]
    if change.reason:
        sentences.append((UNTESTED | OPEN_CHANGES).get(change.reason, ""))
    sentences.append(_describe_needed_change(change))
    return " ".join(filter(None, sentences))


def _describe_needed_change(change: ChangeRow) -> str:
    if change.needed is None:
        return ""
    return f"About {change.needed.number:,} {change.needed.unit} are needed to decide."


def describe_ndcg_change(change: ChangeRow) -> str:
    """Describe the change in nDCG@10 as a title: `B scores 31.7 points lower than A [24.9,
    38.4]`.
    """
    a = change.subject.baseline
    b = change.subject.model
    if change.state in (ChangeState.BETTER, ChangeState.WORSE) and change.estimate:
        higher = "higher" if change.estimate.value > 0 else "lower"
        size = numbers.format_percent(abs(change.estimate.value))
        return f"{b} scores {size} points {higher} than {a}{_format_ends(change.estimate)}"
    if change.state is ChangeState.EQUIVALENT:
        return f"{b} and {a} are {label_change(change)} of nDCG@10"
    return f"nDCG@10 of {b} and {a}: inconclusive"


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
    ends = f"{_format_ends(finding.estimate)}{_name_level(finding.level)}"
    return {"size": numbers.format_percent(abs(finding.estimate.value)), "ends": ends}


def _format_ends(estimate: Estimate) -> str:
    """Return an interval after a space, on the side of its value: ` [4.0, 12.2]`; with signs turned
    if the value is negative.
    """
    if estimate.interval is None:
        return ""
    sign = 1 if estimate.value >= 0 else -1
    low, high = sorted(sign * end for end in estimate.interval)
    return f" [{numbers.format_percent(low)}, {numbers.format_percent(high)}]"


def name_planned_state(state: State | ChangeState, margin: float) -> str:
    """Return a state of a model or of a change in a few words."""
    if isinstance(state, State):
        return name_state(state, margin)
    return name_change(state, margin)


#: What is shown where nothing is known of the effect of position.
NOT_KNOWN = "The effect of position is not known."
#: Title of a curve without findings.
CURVE_TITLE = "nDCG@10 by position of the evidence"


def title_curve(findings: GroupFindings | None) -> str:
    """Return a finding as the title of a chart; without one, the subject of the chart."""
    return _capitalize(phrase_finding(findings)) if findings else CURVE_TITLE


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
    return f"Bias within the window: {_list_counts(counts)}."


def _list_counts(counts: Counter[Label]) -> str:
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


# posir_score: retrieved chunks.

#: Where evidence is that the first chunks lack, by the key of the loss, after a number.
LOSSES = {
    "not_retrieved": "in a document that is not retrieved",
    "other_chunk": "in another chunk of a retrieved document",
    "not_returned": "in a retrieved document, but in no returned chunk",
    "not_located": "in a chunk that is not located",
    "cut": "cut off by the border of a retrieved chunk",
    "not_read": "beyond what the embedder reads",
}
EVIDENCE_RECALL = "The first {chunks} {recall}% of the evidence; documents score nDCG@10 {ndcg}."
LOST_EVIDENCE = "The other {share}%: {parts}{unknown}."
UNREAD_UNKNOWN = "; what of it is beyond what the embedder reads is unknown"
CHUNK_LENGTHS = "{chunks}, of {median} in the median, at most {longest:,}{estimated}{longer}."


def describe_evidence_recall(k: int, recall: Estimate, ndcg_at_10: float) -> str:
    """Describe the share of the evidence in the first k chunks, next to the documents' nDCG@10."""
    return EVIDENCE_RECALL.format(
        chunks="chunk has" if k == 1 else f"{k} chunks have",
        recall=numbers.format_estimate(recall, numbers.format_percent),
        ndcg=numbers.format_percent(ndcg_at_10),
    )


def describe_lost_evidence(lost: Mapping[str, float], recall: float, *, is_known: bool) -> str:
    """Describe where the rest of the evidence is, given its share by loss, and whether it is known
    what the embedder reads.
    """
    ordered = sorted(((share, loss) for loss, share in lost.items()), reverse=True)
    parts = [f"{numbers.format_percent(share)} {LOSSES[loss]}" for share, loss in ordered]
    return LOST_EVIDENCE.format(
        share=numbers.format_percent(1 - recall),
        parts=", ".join(parts),
        unknown="" if is_known else UNREAD_UNKNOWN,
    )


def describe_chunk_lengths(
    chunks: int, median: float, longest: int, *, is_estimated: bool, longer: int
) -> str:
    """Describe how long chunks are in tokens, and how many are longer than the window."""
    return CHUNK_LENGTHS.format(
        chunks=pluralize(chunks, "distinct chunk"),
        median=pluralize(round(median), "token"),
        longest=longest,
        estimated=", estimated" if is_estimated else "",
        longer=f"; {pluralize(longer, 'is', 'are')} read in part" if longer else "",
    )


# posir_inspect: texts, chunks, and a running index.

#: The window of a model, by how it compares with the claim.
WINDOWS = {
    "all": "It reads {length} of a text{about}, as many as were tried.",
    "all_claimed": (
        "It reads {length} of a text{about}, as many as were tried; {claimant} claims {claimed} "
        "tokens."
    ),
    "no_claim": "It reads {length} of a text{about}, and {rest}; it claims no length.",
    "less": (
        "It reads only {length} of a text{about}, and {rest}, although {claimant} claims {claimed} "
        "tokens."
    ),
    "more": (
        "It reads {length} of a text{about}, more than the {claimed} tokens that {claimant} "
        "claims, and {rest}."
    ),
    "as_claimed": "It reads {length} of a text{about}, as it claims, and {rest}.",
}
REFUSES = "refuses longer texts"
IGNORES = "ignores the rest without an error"
ABOUT_ENGLISH = (
    "That is about the {part} {characters:,} characters, or {words:,.0f} words, of English."
)
NOT_READ = "The rest does not change its {output}."
REQUIREMENT = "{verb} enough: {required:,} tokens are required."
READS_ALL_TEXTS = "{model} reads {texts} to the end"
NEVER_READS = "{model} never reads {share} of the words of {texts}"
UNREAD_WORDS = "{number:,} of {texts:,} texts are longer: {share} of all words are never read."
WORD_BASELINE = "BM25 finds their texts with nDCG@10 {shared}, a random order with {chance}."
SAME_ADVICE = "The advice is that of questions in their rarest words."
OTHER_ADVICE = "The advice differs: questions in their rarest words have {chunks}."
MORE_TEXTS = "Add texts: {number:,} are too few to measure a bias or the best chunks."
FITTING_CHUNKS = "Search in chunks of {size} tokens: it reads no more. "
SENTENCE_SCORES = "How well: nDCG@10 {score} over {sentences}. {observed}"
TRUNCATED_SCORES = (
    "Truncated sentences: {score}; BM25 on {read} has {shared}, a random order {chance}."
)


def advise_more_texts(texts: int, size: int) -> str:
    """Advise more texts, and chunks of the size that the model reads if it is above 0."""
    chunks = FITTING_CHUNKS.format(size=size) if size else ""
    return chunks + MORE_TEXTS.format(number=texts)


def describe_sentence_scores(findings: GroupFindings) -> str:
    """Describe how well all sentences are found, and the difference as the data lie."""
    return SENTENCE_SCORES.format(
        score=format_score_in_percent(findings[Quantity.NDCG_AT_10].estimate),
        sentences=pluralize(findings.questions, "sentence"),
        observed=describe_observed(findings),
    ).rstrip()


CHUNK_COST = "It takes {cost:.1f} times as many vectors."
WHOLE_SERVES = "No chunks find more than {whole}."
CHUNK_ADVICE = "Search in {chunks}: nDCG@10 changes from {whole} to {value} on {texts}, with {cost}"
BEST_CHUNKS = "; {chunks} reach {value}, with {times:.2g} times the vectors"

#: How recall in two parts of the documents differs; {recall} is `Recall (document, rarest words)`.
RECALL: dict[ChangeState, str] = {
    ChangeState.BETTER: "{recall} is higher in the {first} than in the {last}: {points}.",
    ChangeState.WORSE: "{recall} is lower in the {first} than in the {last}: {points}.",
    ChangeState.EQUIVALENT: (
        "{recall}: no difference above {margin} between the {first} and the {last}, {points}."
    ),
    ChangeState.INCONCLUSIVE: "{recall} in the {first} and the {last}: {points}.{needed}",
}
TAIL_RECALL = "Tail {recall}: {share} of {sentences} in the last third."


def describe_recall_change(change: ChangeRow) -> str:
    """Describe how recall differs between two parts of the documents: the baseline is the later
    part.
    """
    points = format_difference(change)
    if change.state is ChangeState.INCONCLUSIVE:
        points = f"inconclusive, {points}" if points else "inconclusive"
    assert change.state is not None
    return RECALL[change.state].format(
        recall=f"Recall ({change.subject.task})",
        first=change.subject.model,
        last=change.subject.baseline,
        margin=format_margin(change.margin),
        points=points,
        needed=_describe_needed_change(change),
    )


def describe_tail_recall(task: str, recall: Estimate | None, questions: int) -> str:
    """Describe the recall of sentences in the last third of documents."""
    return TAIL_RECALL.format(
        recall=f"recall ({task})",
        share=format_share(recall),
        sentences=pluralize(questions, "sentence"),
    )


def format_share(share: Estimate | None) -> str:
    """Format a share with its interval: `27.0% [19.4, 36.1]`."""
    if share is None:
        return numbers.MISSING
    interval = numbers.format_interval(share, numbers.format_percent)
    return f"{numbers.format_percent(share.value)}% {interval}".rstrip()


# Comparisons, trainings and mitigations.


def group_by_state(title: str, changes: Mapping[str, ChangeRow]) -> str:
    """Name systems by the state of their change: `nDCG@10: better with a, b; worse with c.`"""
    parts = []
    for state in ChangeState:
        names = [name for name, change in changes.items() if change.state is state]
        if names:
            label = label_change(changes[names[0]])
            parts.append(f"{label} with {', '.join(names)}")
    return f"{title}: {'; '.join(parts)}."


#: Why a limit has its verdict.
LIMIT_REASONS = {
    LimitReason.BEYOND: "the whole interval is beyond the limit",
    LimitReason.WITHIN: "the whole interval is within the limit",
    LimitReason.NOT_WHOLLY_WITHIN: "the interval is not wholly within the limit",
    LimitReason.OPEN: "the interval contains the limit: more documents are needed to decide",
    LimitReason.NOT_TESTED: "{metric} was not tested on these questions",
    LimitReason.UNKNOWN: "{metric} is not known of it",
    LimitReason.NO_QUESTIONS: "there are no questions of this length",
}


def describe_limit(reason: LimitReason, row: ChangeRow) -> str:
    """Describe the reason for the verdict on a limit of a change or a score."""
    if reason is LimitReason.FEW_DOCUMENTS:
        needed = row.needed.number if row.needed else MIN_DOCUMENTS
        return describe_few(needed, row.subject.documents, row.subject.counted)
    return LIMIT_REASONS[reason].format(metric=row.metric)


def title_models(changes: Sequence[ChangeRow], baseline: str, models: int) -> str:
    """Title the changes of models in one metric; without changes, their number."""
    title = f"{pluralize(models, 'model')} against {baseline}"
    if not changes:
        return title
    return f"{title} in {changes[0].metric}: {_list_counts(Counter(map(label_change, changes)))}"


def count_changes(changes: Sequence[ChangeRow]) -> str:
    """Count the changes over all lengths in one metric with each state."""
    pairs = pluralize(len(changes), "pair")
    states = _list_counts(Counter(map(label_change, changes)))
    return f"Change in {changes[0].metric} over all lengths, {pairs}: {states}."


CHANCE_CHANGES = (
    "If none of them differed, about {alarms:g} would be expected to be called better or worse by "
    "chance."
)


def describe_chance_changes(pairs: int) -> str:
    """Describe the number of pairs that are expected to differ by chance."""
    return CHANCE_CHANGES.format(alarms=round(pairs * (1 - LEVEL), 1))


def describe_windows(change: ChangeRow) -> str:
    """Return the parts of a text that baseline and model read; empty if they are the same."""
    first, second = change.subject.reads
    if first == second:
        return ""
    subject = change.subject
    return f"{subject.model} reads {second.phrase}, {subject.baseline} {first.phrase}."


COLLAPSE = (
    "The cosine of unrelated texts has risen from {a} to {b}: the embeddings are collapsing. "
    "Embeddings that are all alike do not depend on position, which is no cure."
)


def describe_training(change: ChangeRow) -> str:
    """Describe a change by training in a sentence."""
    text = describe_change(change, "the base model", "the trained model")
    # A sentence without a reason begins with a model.
    return text if change.reason else _capitalize(text)


def describe_trainings(task: str, changes: Sequence[ChangeRow]) -> str:
    """Describe the changes by training on held-out articles, or on the data of a forgetting
    check.
    """
    check = [f"Forgetting check {task}:"] if task else []
    return " ".join([*check, *map(describe_training, changes)])


def title_training(change: ChangeRow) -> str:
    """Name a score and its data."""
    task = change.subject.task
    return f"forgetting check {task}, {change.metric}" if task else change.metric.value


def warn_of_collapse(before: Estimate, after: Estimate) -> str:
    """Warn of embeddings that are all alike."""
    scores = (numbers.format_number(score.value, ".2f") for score in (before, after))
    return COLLAPSE.format(**dict(zip("ab", scores, strict=True)))


def warn_of_loss(change: ChangeRow) -> str:
    """Warn of a score that is worse after training."""
    return f"{title_training(change)}: worse than the base model's."


def describe_mean_change(change: ChangeRow, mean: Estimate, seeds: int) -> str:
    """Describe the mean change over several seeds."""
    points = numbers.format_estimate(mean, numbers.format_points)
    return f"Over {seeds} seeds, {title_training(change)} changes by {points}."


def describe_model_window(label: str, findings: GroupFindings) -> str:
    """Describe the window of a model and what is truncated."""
    if findings.read.kind is ReadKind.UNKNOWN:
        return f"The window of {label} is unknown; `posir window MODEL` measures it."
    sentence = describe_truncation(findings)
    return f"{label}: {sentence}" if sentence else ""


# The leaderboard.

#: Templates of its heading. The page also fills them, for the rows that pass its filters.
BOARD = {
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
#: Why a result is not ranked, with the revision of the pin or the paper.
BOARD_UNRANKED = {
    "not_pinned": "data not pinned",
    "other_content": "not the content of revision {}",
    "papers_data": "the papers' data",
    "protocol": "protocol {}",
    "other_mean": "mean over positions",
}
#: Documents of the shortest and the longest bucket, and of one between them.
BOARD_LENGTHS = ("in short {documents}", "in long {documents}", "in {documents} of {length}")
SEVERAL_PLACES = (
    "{queries} with several places of evidence are in no other number here: each place with the "
    "rank of its own document and the weight 1/n, nDCG@10 is {score}, start minus end {difference}"
    "{left_out}."
)
NO_PAIRED_INTERVAL = " (no interval: other queries or few documents)"


def describe_best(
    names: Sequence[str], lowest: Estimate, best: Estimate, where: str, *, paired: bool
) -> str:
    """Return which model scores highest, or cannot be told apart from others.

    `names` has the best model, then those with ties; `paired` is whether the runner-up has the same
    queries.
    """
    values = {"best": names[0], "where": where, "score": numbers.format_percent(best.value)}
    if not names[1:]:
        return BOARD["best" if paired else "highest"].format(**values)
    tied = names[1] if len(names) == 2 else BOARD["others"].format(number=len(names) - 1)
    return BOARD["tied"].format(**values, tied=tied, lowest=numbers.format_percent(lowest.value))


def describe_lead(
    best: str,
    second: str,
    lead: Estimate,
    state: ChangeState | None,
    *,
    published: bool,
    margin: float = 0.0,
) -> str:
    """Return how far the best model is ahead of the second; `state` is None if they are not
    paired.
    """
    interval = "" if published or state else NO_PAIRED_INTERVAL
    if state and lead.interval:
        low, high = (numbers.format_points(min(max(end, -1), 1)) for end in lead.interval)
        interval = f" [{low},{NO_BREAK}{high}]"
    if state is ChangeState.EQUIVALENT:
        interval += f" ({name_change(state, margin)})"
    points = numbers.format_percent(lead.value)
    return BOARD["ahead"].format(best=best, second=second, points=points, interval=interval)


def describe_ends(rows: Sequence[tuple[str, Estimate]]) -> str:
    """Return the largest start minus end in either direction, of intervals that exclude 0."""
    clear = [(estimate.value, name) for name, estimate in rows if not _includes_zero(estimate)]
    nothing = (0.0, "")
    highest = max(clear, default=nothing)
    lowest = min(clear, default=nothing)
    text = ""
    if highest[0] > 0:
        text += BOARD["start_higher"].format(
            points=numbers.format_percent(highest[0]), model=highest[1]
        )
    if lowest[0] < 0:
        text += BOARD["start_lower"].format(
            points=numbers.format_percent(-lowest[0]), model=lowest[1]
        )
    return text


def _includes_zero(estimate: Estimate) -> bool:
    return estimate.interval is not None and estimate.interval[0] <= 0 <= estimate.interval[1]


def count_task_states(states: Sequence[State], margin: float) -> str:
    """Return in how many tasks of an average the verdict has each state; the state alone of one."""
    labels = Counter(name_state(state, margin) for state in states).most_common()
    if len(states) == 1 or {*states} == {State.NOT_TESTED}:
        return labels[0][0]
    counts = ", ".join(f"{label} in {number}" for label, number in labels)
    return f"{counts} of {len(states)}"


def describe_several_places(places: Mapping[str, Any]) -> str:
    """Describe the queries with several places of evidence."""
    left_out = places["left_out"]
    return SEVERAL_PLACES.format(
        queries=pluralize(places["queries"], "query", "queries"),
        score=numbers.format_percent(places["ndcg_at_10"]),
        difference=numbers.format_points(places["start_minus_end"]),
        left_out=f"; {left_out:,} more have too many places" if left_out else "",
    )


#: Lines below a model in the picture of the board, by quantity.
CAPTIONS = {
    Quantity.NDCG_AT_10: ("nDCG@10 {}", numbers.format_percent),
    Quantity.POSITION_EFFECT: ("Position effect {}", numbers.format_points),
    Quantity.START_MINUS_END: ("Start minus end {}", numbers.format_points),
}


def caption_model(estimates: Mapping[Quantity, Estimate | None], state: str) -> list[str]:
    """Return a line for each estimate of a model, and one for its state; empty texts are left
    out.
    """
    lines = []
    for quantity, (template, form) in CAPTIONS.items():
        if estimate := estimates.get(quantity):
            lines.append(template.format(numbers.format_estimate(estimate, form)))
    return [*lines, f"Bias within the window: {state}"] if state else lines


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
CUT_RANKINGS = (
    "{model}, {task}: no relevant document is at ranks 11 to 100. If rankings end at rank 10, "
    "Recall@100 is Recall@10."
)
#: The way in which tokens before the evidence were counted, if not with the model's own tokenizer.
COUNTED = {
    CountedWith.TOKENIZER: "",
    CountedWith.ESTIMATE: (
        " That is estimated from the token counts in the data, not counted with the model's own "
        "tokenizer."
    ),
    CountedWith.ROUGH_ESTIMATE: (
        " That is roughly estimated from the token counts in the data; for languages other than "
        "English, the model's own tokenizer may find several times as many."
    ),
}
PLACES = (
    "{model}, {task}, several places: {places} of {queries}, each with the rank of its own "
    "document and the weight 1/n of n places; {left_out:,} with more than {most} left out. In "
    "thirds of the document: {shares}% of the evidence, nDCG@10 {gains}. Share of a query's places "
    "whose document is among the first 10: {recall_10}%, 100: {recall_100}%."
)
BY_LENGTH = "By length of the document"


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
        counted = COUNTED[counted_with] if counted_with else ""
        yield f"{model}: {truncation}{counted}"


def describe_levels(levels: Sequence[float]) -> str:
    """Say at which levels the intervals of lengths hold."""
    return LEVELS.format(levels=" or ".join(map(format_level, levels)))


def describe_place_counts(model: str, task: str, places: Mapping[str, Any]) -> str:
    """Describe the queries with several places of evidence, as `posir_report` summarizes them."""
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


def describe_folded_lengths(lengths: Mapping[str, int]) -> str:
    """Name lengths without an estimate, with their queries; empty if there are none."""
    named = [f"{name} ({format_queries(number)})" for name, number in lengths.items()]
    return f"Not estimated: {', '.join(named)}." if named else ""


# Probes.


def describe_values(title: str, values: Sequence[tuple[str, str, str]]) -> str:
    """List the title, value and unit of summaries of a probe, below its title."""
    parts = [f"{_lower(name)} {value} {unit}".rstrip() for name, value, unit in values]
    return f"{title}: {'; '.join(parts)}" if parts else title


def _lower(title: str) -> str:
    """Write a title within a sentence; a first word such as `nDCG@10` or `R²` stays."""
    return title[0].lower() + title[1:] if title[1:2].islower() else title


PROBE_SAMPLE = "{documents} documents of {data}, drawn at random ({selection}){median}."
PROBE_TRUNCATED = (
    "{share} of the tokens are truncated: the window is {window:,} tokens, and {whole:,} of "
    "{documents} fit."
)
PROBE_DATA = "Model: {}, revision {}. Data: {}, revision {}. Methods: {}."
PROBE_DIFFERENCE = "Difference: above 0 if the start of a text counts more than its end."
PROBE_PUBLISHED = "Published values: the range over (so many) other models, on other data."
PROBE_SKIPPED = "Skipped: {skipped}."
PROBE_LEFT_OUT = "Documents left out: {omitted:,} of {drawn:,}."
PROBE_ALONE = "To measure only this: `--probe {probe}`."
PROBE_PAGE = "--html draws the values at every position."
PROBE_NO_VERDICT = "Probes are measures without a verdict on position bias. {where}"
PROBE_INTERVALS = (
    "Intervals: 95%, by bootstrap over documents; they are too narrow where documents are few."
)
#: Terms of probes, as `--explain` prints them.
PROBE_TERMS = (
    "nDCG@10: 100 if the right document is always ranked first, 0 if it is never among the first "
    "ten.",
    f"{PROBE_DIFFERENCE} For Pearson's r of position and weight of sentences, the sign is the "
    "other way around.",
    "Mirror reversal: the order of five parts of a text is reversed, so that its evidence is near "
    "the other end. Questions on the middle part are left out. For a model blind to order the "
    "difference is 0. It includes what truncation costs.",
    "Joined texts: they are on different subjects and cut to fit the window, and do not read like "
    "one natural text. Only their order changes.",
    "Gradient: how much the similarity to a question changes with a token; 1 is the 99th "
    "percentile in a document. It depends on the words, too.",
    "Embeddings: these probes do not measure search. A model whose embeddings lean to the start "
    "may still find evidence near the end.",
    "Cosine: of the embeddings of two texts, 1 if they point the same way. Those of unrelated "
    "texts are seldom at 0: compare cosines with each other.",
    "No interval: there are fewer than ten documents, or no value in some bootstrap samples.",
    "Range: the highest minus the lowest value. Chance alone makes it larger than 0.",
)


def explain_no_interval(values: str, few: str) -> str:
    """Add to the values of a probe why they have no interval, if they have none."""
    return f"{values} (no interval: {few})" if few else values


def title_difference(title: str, summary: str, published: str) -> str:
    """Write the heading of a difference that is drawn next to it."""
    return f"{title} · {summary}{f'; published: {published}' if published else ''}"


def describe_probe_sample(
    documents: int, available: int, data: str, selection: str, median: int | None
) -> str:
    """Describe the sample of a probe: how many of the available documents, and their length."""
    number = f"{documents:,} of {available:,}" if available > documents else f"{documents:,}"
    tokens = f", median {median:,} tokens" if median else ""
    return PROBE_SAMPLE.format(documents=number, data=data, selection=selection, median=tokens)


def describe_truncated_tokens(share: float, window: int, whole: int, documents: int) -> str:
    """Describe how much of a sample is truncated, and how many of its documents are not."""
    return PROBE_TRUNCATED.format(
        share=strip.format_share(share),
        window=window,
        whole=whole,
        documents=pluralize(documents, "document"),
    )


def describe_no_verdict(*, has_commands: bool) -> str:
    """Say where a verdict is: in the commands that follow, or in other commands."""
    other = "`posir run` with `posir report`, or `posir inspect`, give one."
    return PROBE_NO_VERDICT.format(where="These commands give one:" if has_commands else other)


PREDICTIONS = {
    Prediction.PREDICTS: "predicts it",
    Prediction.OPPOSITE: "predicts the opposite",
    Prediction.INCONCLUSIVE: "inconclusive",
}
PREDICTED = {
    Prediction.PREDICTS: "Shown to predict {score} on {tasks}: {probes}.",
    Prediction.OPPOSITE: "With the opposite sign: {probes}.",
    Prediction.INCONCLUSIVE: "Inconclusive: {probes}.",
}


def label_prediction(verdict: Prediction) -> str:
    """Label what a correlation shows, for a cell."""
    return PREDICTIONS[verdict]


def label_needed(number: int | None, most: int) -> str:
    """Label how many models are needed; None for more than `most`."""
    return f"over {most:,}" if number is None else f"{number:,}"


def describe_predictions(
    score: str, tasks: Sequence[str], verdicts: Mapping[str, Counter[Prediction]]
) -> str:
    """Say which probes predict a score, and on how many tasks if not on all, given the number of
    tasks with each verdict.
    """
    sentences = []
    for verdict, template in PREDICTED.items():
        probes = []
        for probe, counts in verdicts.items():
            if counts[verdict] == counts.total():
                probes.append(probe)
            elif counts[verdict]:
                probes.append(f"{probe} ({counts[verdict]} of {counts.total()})")
        if probes or verdict is Prediction.PREDICTS:
            named = ", ".join(probes) or "no probe"
            where = ", ".join(tasks)
            sentences.append(template.format(score=score, tasks=where, probes=named))
    return " ".join(sentences)


SAMPLE_DIFFERENCE = (
    "{model}, {sample}: the largest difference to the complete data is {points} points, by chance "
    "up to {chance}."
)


def describe_sample_difference(model: str, sample: str, difference: Estimate, chance: float) -> str:
    """Say how far a sample differs from the complete data, and what chance explains."""
    return SAMPLE_DIFFERENCE.format(
        model=model,
        sample=sample,
        points=numbers.format_estimate(difference, numbers.format_percent),
        chance=numbers.format_percent(chance),
    )


MMTEB_ORDER = (
    "MMTEB's order of models is that of PosIR less the longer documents are: Spearman {first:.2f} "
    "in {start}, {last:.2f} in {end}; over {models} models that they agree is shown {clear} (p < "
    "{level})."
)


def describe_mmteb(
    rho: Mapping[str, float], models: int, clear: Sequence[str], level: float
) -> str:
    """Say how Spearman's rho with MMTEB changes over lengths, and in which of them it is clear."""
    lengths = list(rho)
    return MMTEB_ORDER.format(
        first=rho[lengths[0]],
        last=rho[lengths[-1]],
        start=lengths[0],
        end=lengths[-1],
        models=models,
        clear=f"only in {' and '.join(clear)}" if clear else "in no length",
        level=level,
    )
