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
from posir_tasks.display.labels import Label, Term, Title, Tone, join_steps
from posir_tasks.display.position_charts import Fact
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.read_part import ReadKind

#: Short label and tone of each state. {margin} is `5 points`.
STATES = {
    State.FAVORS_START: ("favors the start", Tone.BAD),
    State.FAVORS_END: ("favors the end", Tone.BAD),
    State.NO_BIAS: ("no bias above {margin}", Tone.GOOD),
    State.INCONCLUSIVE: ("inconclusive", Tone.OPEN),
    State.NOT_TESTED: ("not tested", Tone.OPEN),
}
ORDER_BLIND_CELL = Label("none: word order plays no part", Tone.GOOD)
#: Predicates of a title about a model, without and with truncated evidence.
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
#: The verdict as a sentence, by state or reason.
VERDICTS: dict[State | Reason, str] = {
    State.FAVORS_START: (
        "Favors the start (primacy bias): the same evidence scores {size} points higher in the "
        "first third of the {text} than in the last{ends}."
    ),
    State.FAVORS_END: (
        "Favors the end (recency bias): the same evidence scores {size} points lower in the "
        "first third of the {text} than in the last{ends}."
    ),
    State.NO_BIAS: "Within the {text}: no bias above {margin}, {points}.",
    State.NOT_TESTED: "Not tested.",
    Reason.ORDER_BLIND: ORDER_BLIND,
    Reason.WIDE_INTERVAL: (
        "Inconclusive: at most {start} points toward the start, at most {end} toward the end."
    ),
    Reason.FEW_DOCUMENTS: "Inconclusive: too few of {documents} have evidence at both ends.",
    Reason.NO_ROOM: (
        "Inconclusive: nearly all or nearly no evidence is found, wherever it is (nDCG@10 {mean})."
    ),
}
NO_DOCUMENT_AT_ENDS = "Inconclusive: no document has evidence at both ends."
#: Why a model or a change was not tested.
UNTESTED = {
    Reason.WINDOW_UNKNOWN: "The window is unknown.",
    Reason.WINDOW_DIFFERS: "The windows differ.",
    Reason.NOT_STORED: "There are no rotated versions.",
    Reason.PARTLY_STORED: "Some subsets have no rotated versions.",
    Reason.NO_TEXTS: (
        "A run file has ranks only. `posir score RUN --data DATA --embedder MODEL` tests it."
    ),
    Reason.SCORES_DIFFER: "The embedder does not reproduce the scores of the run.",
    Reason.ONE_UNIT: "No document has two sentences.",
    Reason.SEVERAL_POSITIONS: "Each question has several evidence spans.",
    Reason.OTHER_DATA: "The versions of the documents differ.",
}
#: Amount of data needed for a verdict, by unit.
NEEDED_DATA = {
    "questions": "About {number} such questions are needed to decide; {tested} of the {all} "
    "questions were tested.",
    "documents": "At least {number} are needed.",
}
#: Next steps as clauses.
STEP_CLAUSES = {
    NextStep.CHUNK: "search in chunks that fit the window",
    NextStep.TRAIN: "train on evidence at all positions (`posir train`)",
    NextStep.MORE_QUESTIONS: "test on about {number} questions",
    NextStep.MORE_DOCUMENTS: "test on at least {number} documents",
    NextStep.MEASURE_WINDOW: "measure the window (`posir window`); for a hybrid, test each model",
    NextStep.RUN_AGAIN: "run the model again, so that rotated versions are stored",
    NextStep.GIVE_EMBEDDER: "name the model behind the run with `--embedder`",
    NextStep.OTHER_DATA: "test on other data",
    NextStep.NONE: "nothing to do",
}
NONE_TRUNCATED = "No evidence is truncated."
TRUNCATED_SHARE = "{share} of the evidence is truncated."
TRUNCATED = "The same evidence scores {size} points {lower} where it is truncated{ends}."
TRUNCATION_OPEN = "Whether truncated evidence scores lower is inconclusive: {points}."
OBSERVED_DIFFERENCE = (
    "Observed: evidence at the start scores {size} points {higher}{ends}. These are different "
    "questions; their difficulty is part of it."
)
MIDDLE_DIFFERENCE = (
    "The middle third of the {text} scores {size} points {higher} than its ends{ends}."
)


def name_state(state: State, margin: float, reason: Reason | None = None) -> Label:
    """Label a state: `no bias above 5 points`."""
    if reason is Reason.ORDER_BLIND:
        return ORDER_BLIND_CELL
    words, tone = STATES[state]
    return Label(words.format(margin=format_margin(margin)), tone)


def label_state(findings: GroupFindings) -> Label:
    """Label the state of the verdict."""
    return name_state(findings.state, findings.margin, findings.reason)


def describe_group(findings: GroupFindings) -> str:
    """Describe the truncation, the verdict and, if it differs from the ends, the middle."""
    parts = (describe_truncation(findings), describe_verdict(findings), describe_middle(findings))
    return " ".join(filter(None, parts))


def _name_text(findings: GroupFindings) -> str:
    return "document" if findings.read.kind is ReadKind.ALL else "window"


def describe_verdict(findings: GroupFindings) -> str:
    """Describe the verdict with its interval; if it is open, add the reason and the data needed."""
    verdict = findings.verdict
    reason = findings.reason
    template = VERDICTS[reason if reason in VERDICTS else findings.state]
    if reason is Reason.FEW_DOCUMENTS and verdict.needed is None:
        template = NO_DOCUMENT_AT_ENDS
    interval = verdict.estimate.interval if verdict.estimate else None
    low, high = interval or (-1.0, 1.0)
    mean = findings.get_value(Quantity.NDCG_AT_10)
    sentences = [
        template.format(
            text=_name_text(findings),
            margin=format_margin(findings.margin),
            points=format_finding(verdict),
            start=numbers.format_percent(max(high, 0.0)),
            end=numbers.format_percent(max(-low, 0.0)),
            documents=pluralize(findings.tested_documents, "document"),
            mean=numbers.format_percent(mean, ".0f"),
            **_format_size(verdict),
        )
    ]
    if findings.state is State.NOT_TESTED and reason:
        sentences.append(UNTESTED[reason])
    if verdict.needed:
        needed = NEEDED_DATA[verdict.needed.unit].format(
            number=f"{verdict.needed.number:,}",
            tested=f"{findings.tested_questions:,}",
            all=f"{findings.questions:,}",
        )
        sentences.append(needed)
    return " ".join(sentences)


def describe_truncation(findings: GroupFindings) -> str:
    """Describe the window and the loss of truncated evidence; empty if nothing is truncated or the
    window is unknown.
    """
    if findings.read.kind is not ReadKind.PART:
        return ""
    share = findings.get_value(Quantity.UNREAD_SHARE)
    loss = findings[Quantity.TRUNCATION_LOSS]
    lower = "lower" if loss.estimate and loss.estimate.value > 0 else "higher"
    if share == 0:
        template = NONE_TRUNCATED
    elif loss.estimate is None:
        template = "" if share is None else TRUNCATED_SHARE
    else:
        template = TRUNCATED if loss.excludes_zero else TRUNCATION_OPEN
    text = template.format(
        share=format_evidence_share(share or 0.0),
        points=format_finding(loss),
        lower=lower,
        **_format_size(loss),
    )
    return f"Reads {findings.read.phrase}. {text}".rstrip()


def describe_middle(findings: GroupFindings) -> str:
    """Compare the middle of the window with its ends; empty unless the 99% interval excludes 0."""
    middle = findings[Quantity.MIDDLE_MINUS_ENDS]
    is_biased = findings.state in (State.FAVORS_START, State.FAVORS_END)
    if is_biased or middle.estimate is None or not middle.excludes_zero:
        return ""
    higher = "higher" if middle.estimate.value > 0 else "lower"
    return MIDDLE_DIFFERENCE.format(
        text=_name_text(findings), higher=higher, **_format_size(middle)
    )


def describe_observed(findings: GroupFindings) -> str:
    """Describe the observed start minus end; empty if it is undefined."""
    observed = findings[Quantity.START_MINUS_END]
    if observed.estimate is None:
        return ""
    higher = "higher" if observed.estimate.value > 0 else "lower"
    return OBSERVED_DIFFERENCE.format(higher=higher, **_format_size(observed))


def describe_advice(findings: GroupFindings, task: str = "") -> str:
    """Describe the next steps as alternatives, without a final period. Name a task that has enough
    questions if known.
    """
    steps = advise(findings)
    if steps[0].step is NextStep.NONE:
        return "Nothing to do"
    return Term("Next", ", or ".join(_describe_step(advice, task) for advice in steps))


def list_steps(findings: GroupFindings, task: str = "") -> tuple[str, ...]:
    """List the next steps, without a final period."""
    return tuple(capitalize(_describe_step(advice, task)) for advice in advise(findings))


def _describe_step(advice: Advice, task: str) -> str:
    text = STEP_CLAUSES[advice.step].format(number=f"{advice.number or 0:,}")
    larger = find_larger_task(task, advice.number) if advice.number and task else ""
    return f"{text} ({larger})" if larger else text


def title_sample(findings: GroupFindings, task: str) -> Title:
    """Write a title about the data and the test: `PosIR-Mini · 720 queries on 72 documents, each
    rotated twice`.
    """
    documents = pluralize(findings.documents, "document")
    size = f"{format_queries(findings.questions)} on {documents}"
    if findings.tested_documents == findings.documents:
        size += ", each rotated twice"
    elif findings.tested_documents:
        size += f", {findings.tested_documents:,} of them rotated twice"
    return Title(task, size)


def format_queries(queries: int | None) -> str:
    """Format a number of queries: `720 queries`."""
    return pluralize(queries or 0, "query", "queries")


def describe_models(rows: Sequence[tuple[str, GroupFindings]]) -> Iterator[str]:
    """Yield the parts of a title about one or two models; every second part is a name.

    Models that truncate evidence come first, models that ignore word order last.
    """

    def rank(row: tuple[str, GroupFindings]) -> tuple[bool, bool]:
        _, findings = row
        is_order_blind = findings.reason is Reason.ORDER_BLIND
        return not findings.get_value(Quantity.UNREAD_SHARE), is_order_blind

    selected = sorted(rows, key=rank)[: 1 if len(rows) < 3 else 2]
    yield ""
    for number, (name, findings) in enumerate(selected, 1):
        yield name
        end = "; " if number < len(selected) else ""
        yield f" {write_predicate(findings)}{end}"


def write_predicate(findings: GroupFindings) -> str:
    """Write a predicate for the model: `truncates 59% of the evidence; within its window
    inconclusive`.
    """
    if findings.reason is Reason.ORDER_BLIND:
        return "has no position bias: word order plays no part in its scores"
    share = findings.get_value(Quantity.UNREAD_SHARE) or 0.0
    template = (TRUNCATING_PREDICATES if share else PREDICATES)[findings.state]
    margin = format_margin(findings.margin)
    return template.format(share=format_evidence_share(share), margin=margin)


def iterate_answer(findings: GroupFindings, task: str = "") -> Iterator[tuple[str, str]]:
    """Yield the title and the sentences of each of the five sections of an answer."""
    yield "How well", f"nDCG@10 {format_score_in_percent(findings[Quantity.NDCG_AT_10].estimate)}."
    effect = findings[Quantity.POSITION_EFFECT]
    yield "Position effect", f"{format_finding(effect)}." if effect.estimate else "Not tested."
    is_known = findings.read.kind is not ReadKind.UNKNOWN
    reading = "Reads whole texts." if is_known else "The window is unknown."
    yield "Truncated", describe_truncation(findings) or reading
    verdict = f"{describe_verdict(findings)} {describe_middle(findings)}"
    yield "Bias within the window", verdict.rstrip()
    yield "Next", join_steps(list_steps(findings, task))


def capitalize(text: str) -> str:
    """Capitalize the first letter, unless the first word contains a capital, such as nDCG@10."""
    first_word = text.partition(" ")[0]
    return text[0].upper() + text[1:] if first_word.islower() else text


def list_facts(findings: GroupFindings) -> Iterator[Fact]:
    """Yield the scores below a chart."""
    ndcg = format_score_in_percent(findings[Quantity.NDCG_AT_10].estimate)
    yield Fact("nDCG@10", ndcg, "100: always ranked first")
    yield from list_effects(findings)


def list_effects(findings: GroupFindings) -> Iterator[Fact]:
    """Yield the effects of position and truncation, and the state."""
    effect = format_finding(findings[Quantity.POSITION_EFFECT])
    yield Fact("Position effect", effect, "same evidence, first minus last third of the document")
    share = findings.get_value(Quantity.UNREAD_SHARE)
    if share:
        yield Fact("Truncated", f"{format_evidence_share(share)} of the evidence")
        loss = format_finding(findings[Quantity.TRUNCATION_LOSS])
        yield Fact("Truncation loss", loss, "same evidence, read minus truncated")
    elif findings.read.kind is ReadKind.UNKNOWN:
        yield Fact("Truncated", "unknown")
    within = format_finding(findings.verdict) if findings.verdict.estimate else ""
    yield Fact("Bias within the window", within, state=label_state(findings))


def format_difference(change: ChangeRow) -> str:
    """Format a change with its interval; empty if it is undefined."""
    if change.estimate is None or change.estimate.interval is None:
        return ""
    return numbers.format_estimate(change.estimate, numbers.format_points)


def format_margin(margin: float) -> str:
    """Format a margin: `5 points`."""
    return f"{margin * 100:g} point{'' if margin == 0.01 else 's'}"


def format_level(level: float) -> str:
    """Format the level of an interval: `98.75%`."""
    return f"{level * 100:.4g}%"


def format_evidence_share(share: float) -> str:
    """Format a share of the evidence: `59%`, or `0.4%` below one percent."""
    return f"{numbers.format_percent(share, '.0f' if share >= 0.01 else '.1g')}%"


def format_score_in_percent(estimate: Estimate | None) -> str:
    """Format a score in percent with its interval: `58.3 [55.1, 61.4]`."""
    return numbers.format_estimate(estimate, numbers.format_percent)


def format_finding(finding: Finding, *, with_level: bool = True) -> str:
    """Format an effect in points: `+4.2 [+1.0, +7.4]`, with the level unless it is 95%."""
    if finding.estimate and finding.estimate.interval == (0.0, 0.0):
        return numbers.format_points(0.0)
    note = _name_level(finding.level) if with_level else ""
    return numbers.format_estimate(finding.estimate, numbers.format_points, note)


def _name_level(level: float) -> str:
    return "" if level == LEVEL else f" ({format_level(level)} interval)"


def _format_size(finding: Finding) -> dict[str, str]:
    if finding.estimate is None:
        return {}
    ends = f"{format_ends(finding.estimate)}{_name_level(finding.level)}"
    return {"size": numbers.format_percent(abs(finding.estimate.value)), "ends": ends}


def format_ends(estimate: Estimate) -> str:
    """Format the interval of the absolute value, after a space: ` [4.0, 12.2]`."""
    if estimate.interval is None:
        return ""
    sign = 1 if estimate.value >= 0 else -1
    low, high = sorted(sign * end for end in estimate.interval)
    return f" [{numbers.format_percent(low)}, {numbers.format_percent(high)}]"


#: Answer if there are no findings.
UNKNOWN_EFFECT = "The effect of position is not known."
#: Title of a curve without findings.
CURVE_TITLE = "nDCG@10 by position of the evidence"


def title_curve(findings: GroupFindings | None) -> str:
    """Write the title of a chart: the finding or, if there is none, the subject."""
    return capitalize(write_predicate(findings)) if findings else CURVE_TITLE


def count_truncating(truncating: int, models: int) -> str:
    """Write a title that counts the models that truncate evidence."""
    if not truncating:
        return f"None of {models} models truncates evidence"
    verb = "truncates" if truncating == 1 else "truncate"
    return f"{truncating} of {models} models {verb} evidence"


def count_truncation(shares: Sequence[float], results: int) -> str:
    """Count the results with truncated evidence, given the sorted shares above 0."""
    if not shares:
        return f"No evidence is truncated in {pluralize(results, 'result')}."
    ends = " to ".join(dict.fromkeys(map(format_evidence_share, (shares[0], shares[-1]))))
    return f"{len(shares):,} of {results:,} truncate {ends} of the evidence."


def count_states(counts: Counter[Label]) -> str:
    """Count the results by state."""
    return f"Bias within the window: {list_counts(counts)}."


def list_counts(counts: Counter[Label]) -> str:
    """List states with their counts, most frequent first: `2 better, 1 inconclusive`."""
    return ", ".join(f"{count:,} {state}" for state, count in counts.most_common())


FALSE_ALARMS = (
    "If none of {number} had any bias, about {alarms:g} would be expected to favor an end by "
    "chance."
)


def describe_false_alarms(decided: int) -> str:
    """Describe how many results are expected to favor an end by chance."""
    alarms = round(decided * (1 - LEVEL), 1)
    return FALSE_ALARMS.format(number=f"{decided:,}", alarms=alarms)


def describe_few(needed: int | None, number: int, unit_name: str) -> str:
    """Describe that there are too few documents or other units; empty if there are enough."""
    if not needed:
        return ""
    return (
        f"{pluralize(number, f'{unit_name} is', f'{unit_name}s are')} too few, at least {needed:,} "
        "are needed"
    )
