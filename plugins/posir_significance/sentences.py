"""The words for a decision and for a change: every surface takes its sentences, cells and titles from here, and adds none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from posir_significance.analysis import SHAPE_ALPHA, estimate_parts
from posir_significance.decision import Change, ChangeState, Decision, MetricChange, Reason, State
from posir_significance.intervals import LEVEL, MeanEstimate, estimate_mean
from posir_significance.position_effect import fewest_documents
from posir_significance.regression import Contrast
from posir_tasks.display import numbers
from posir_tasks.display.strip import Strip, format_share
from posir_tasks.display.wording import pluralize
from posir_tasks.evidence import TWELFTHS
from posir_tasks.models.command_reference import CommandReference
from posir_tasks.read_part import KnownBy, Part, ReadKind, ReadPart
from posir_tasks.scores import Difference, Interval
from posir_tasks.sources.declared import BUILTIN, format_size
from posir_tasks.tasks.catalog import name_larger_task

#: Words of the advice that a command follows from.
WINDOW, MITIGATE, LARGER = "posir window MODEL", "posir mitigate", "larger task"
#: An interval that excludes nothing, and is no result.
EVERYTHING = "[-100.0, +100.0]"
UNKNOWN_WINDOW = "the window is unknown; `posir window MODEL` tells it"


def label_state(decision: Decision) -> str:
    """Return the state in a few words, for a cell of a table or a title: `biased to the start`."""
    return name_state(decision.state, decision.margin)


def label_cell(reason: Reason | None, state: str) -> str:
    """Return a state for a cell, or why there is none although an interval stands beside it."""
    return "too few texts" if reason is Reason.FEW_DOCUMENTS else state


def name_state(state: State, margin: float) -> str:
    """Return a state in a few words, at a margin in (0, 1)."""
    match state:
        case State.NO_BIAS:
            return f"no bias larger than {format_margin(margin)}"
        case State.CANNOT_BE_SAID:
            return "cannot be said"
        case _:
            return f"biased to the {'start' if state is State.BIASED_TO_START else 'end'}"


def describe_decision(decision: Decision) -> str:
    """Return what is not read, the state within what is read and, where it matters in another way, the shape, as sentences."""
    return " ".join(part for part in (describe_not_read(decision), describe_state(decision), describe_shape(decision)) if part)


def _place_unread(read: ReadPart) -> str:
    return "beyond" if read.part in (Part.FIRST, Part.CHUNKS) else "outside"


def describe_not_read(decision: Decision) -> str:
    """Return how much evidence is not read and how much lower it scores; empty where all is read or the window is unknown."""
    read, share = decision.read, decision.not_read
    if read.kind is not ReadKind.PART:
        return ""
    if not share:
        return f"It reads {read.phrase}{', and all of the evidence lies in them' if share == 0 else ''}."
    place = _place_unread(read)
    unread = f"It reads {read.phrase}; {numbers.format_percent(share)} % of the evidence lies {place}"
    difference, interval = decision.not_read_difference, decision.interval(decision.not_read_difference)
    if difference is None or interval is None:
        return f"{unread}."
    if interval[0] > 0 or interval[1] < 0:
        words = "lower" if difference.value > 0 else "higher"
        return f"{unread} and scores {_describe_gap(difference, interval, decision.level, words)}."
    return (
        f"{unread}; that evidence {place} is found less often is not shown: difference "
        f"{_format_points(difference, interval, decision.level)}."
    )


def describe_state(decision: Decision) -> str:
    """Return the state within what is read as a sentence, with the interval that it follows from."""
    unread = decision.read.kind is ReadKind.PART and bool(decision.not_read)
    estimated = " (tokens are estimated; `--embedder` counts them)" if decision.read.known_by is KnownBy.GIVEN else ""
    within = f"within what it reads{estimated}" if unread else ""
    if decision.state is State.CANNOT_BE_SAID:
        return _describe_open(decision, within)
    bias, interval = decision.bias_within_read, decision.interval(decision.bias_within_read)
    if bias is None or interval is None:
        raise ValueError("a state other than 'cannot be said' follows from an interval")
    points = _format_points(bias, interval, decision.level)
    if decision.state is State.NO_BIAS:
        small = "" if interval[0] <= 0 <= interval[1] else "; there is a small one"
        if unread:
            return (
                f"{within.capitalize()} there is no bias larger than {format_margin(decision.margin)}: {points}"
                f"{small}. What a longer window would show is not known."
            )
        return f"No bias larger than {format_margin(decision.margin)}: start to end {points}{small}."
    to_start = decision.state is State.BIASED_TO_START
    if unread:
        lost = decision.interval(decision.not_read_difference)
        too = ", too" if to_start and lost and lost[0] > 0 else ""
        return f"{within.capitalize()} it is {label_state(decision)}{too}: {points}."
    worse, better = ("last", "first") if to_start else ("first", "last")
    gap = _describe_gap(bias, interval, decision.level, f"lower than in the {better}")
    return f"{label_state(decision).capitalize()}: evidence in the {worse} third of documents scores {gap}."


def _describe_open(decision: Decision, within: str) -> str:
    lost = decision.interval(decision.not_read_difference)
    question = f"Whether it is {'also ' if lost and lost[0] > 0 else ''}biased{f' {within}' if within else ''}"
    # Where all is read, that is start to end, which is said already.
    bias = decision.bias_within_read if within else None
    interval = decision.interval(bias)
    points = _format_points(bias, interval, decision.level) if bias and interval else ""
    match decision.reason:
        case Reason.WINDOW_UNKNOWN:
            reason = UNKNOWN_WINDOW
        case Reason.NOT_STORED if decision.read.part is Part.CHUNKS:
            reason = "the system's chunks are unknown, or those of more than 1 % of the evidence"
        case Reason.NOT_STORED:
            reason = "the result does not store which evidence is read; run the model again"
        case Reason.FEW_DOCUMENTS if few := decision.bias_within_read:
            reason = (
                f"only {pluralize(few.documents, 'document')} can be compared on one side, and "
                f"{fewest_documents(few.held_fixed)} are needed"
            )
        case Reason.NOT_COMPARED:
            reason = "no document has evidence in its first and its last third that could be compared"
        case _:
            return f"{question} cannot be said{f': {points}' if points else ''}."
    return f"{question} cannot be said: {reason}.{f' {points}.' if points else ''}"


def describe_shape(decision: Decision) -> str:
    """Return in a sentence that position matters in another way than from start to end; empty where that is not shown."""
    if decision.state in (State.BIASED_TO_START, State.BIASED_TO_END):
        return ""
    p_value = decision.p_value_within_read
    if p_value is None or p_value >= SHAPE_ALPHA:
        return ""
    opening = f"Position matters in another way (p {numbers.format_p_value(p_value)})"
    middle = decision.find_group().position.middle_to_ends_within_read
    interval = decision.interval(middle)
    if middle and interval and not interval[0] <= 0 <= interval[1]:
        words = f"{'lower' if middle.value < 0 else 'higher'} than the ends"
        return f"{opening}: the middle scores {_describe_gap(middle, interval, decision.level, words)}."
    bias = decision.interval(decision.bias_within_read)
    # A small bias is an effect of position, and said already.
    return "" if bias and not bias[0] <= 0 <= bias[1] else f"{opening}: no simple shape."


def describe_start_to_end(decision: Decision) -> str:
    """Return what is lost from the start of documents to their end, whatever the cause: `Start to end +4.2 [+1.0, +7.4].`"""
    interval = decision.interval(decision.start_to_end)
    if decision.start_to_end is None or interval is None:
        return "Start to end is undefined: first and last third of documents cannot be compared."
    return f"Start to end {_format_points(decision.start_to_end, interval, decision.level)}."


def advise(decision: Decision, more: str = f"evaluate on a {LARGER}") -> str:
    """Return what to do, a sentence that follows from the state alone; `more` is how there are more documents."""
    if decision.reason is Reason.WINDOW_UNKNOWN:
        return "Find what the model reads first: `posir window MODEL`; of a run, `--embedder` or `--window` of `posir score`."
    if decision.reason is Reason.NOT_STORED:
        more = (
            "Return chunks with whole texts or offsets, ask for more (`--k`), or give `--window none` if all of each is read."
        )
        again = "Run the model again: the result does not store which evidence it reads."
        return more if decision.read.part is Part.CHUNKS else again
    lost = decision.interval(decision.not_read_difference)
    # Below the margin there is hardly a difference to be seen.
    finds_nothing = decision.ndcg_at_10 is not None and decision.ndcg_at_10.value < decision.margin
    steps = []
    if lost and lost[0] > 0:
        steps.append("search in chunks that fit what it reads (`posir mitigate` compares sizes)")
    match decision.state:
        case State.NO_BIAS | State.CANNOT_BE_SAID if not steps and finds_nothing:
            return (
                "Nearly nothing is found, at any position: check that the ids of documents are those of the data, and that "
                "language and prompts are those of the model."
            )
        case State.NO_BIAS if not steps and describe_shape(decision):
            return "Look at the curve over all positions (`--figures`): what position costs is not from start to end."
        case State.NO_BIAS if not steps and lost and max(map(abs, lost)) >= decision.margin:
            return "Evaluate on more documents to tell whether evidence beyond what it reads is found less often."
        case State.NO_BIAS if not steps:
            return "Nothing to do: from start to end, position costs no more than the margin."
        case State.BIASED_TO_START | State.BIASED_TO_END:
            chunks = [] if steps else ["search in chunks (`posir mitigate`)"]
            steps = [*steps, *chunks, "train on evidence at all positions (`posir train`)"]
        case State.CANNOT_BE_SAID:
            how = "at least" if decision.reason is Reason.FEW_DOCUMENTS else "about"
            number = f" of {how} {decision.documents_needed:,} {decision.counted}s" if decision.documents_needed else ""
            within = " within what it reads" if decision.not_read else ""
            steps.append(f"{more}{number}, to tell whether it is biased{within}")
            return " ".join(f"{step[0].upper()}{step[1:]}." for step in steps)
    text = ", or ".join(steps)
    return f"{text[0].upper()}{text[1:]}."


def name_command(decision: Decision, reference: CommandReference) -> str:
    """Return the commands that do what is to do, a line each: a comparison of mitigations, a run on a larger task.

    There is none for a model that no command can load.
    """
    if not reference.model:
        return ""
    larger = name_larger_task(reference.data)
    questions = next((format_size(task.questions) for task in BUILTIN if task.name == larger), "")
    size = f"# {larger}: {questions} questions on at most as many documents\n" if questions else ""
    run = reference.write("mteb", "run", "-t", larger, "-m", reference.model)
    commands = {
        WINDOW: reference.write("posir", "window", reference.model),
        MITIGATE: reference.write("posir", "mitigate", reference.model, reference.data) if reference.data else "",
        LARGER: f"{size}{run}" if larger else "posir tasks",
    }
    return "\n".join(command for words, command in commands.items() if command and words in advise(decision))


def label_change(change: MetricChange) -> str:
    """Return the state of a change in a few words: `better`, `equivalent within 2 points`, `cannot be said`."""
    if change.state is ChangeState.EQUIVALENT:
        return f"equivalent within {format_margin(change.margin)}"
    open_side = "differs; which is better: " if change.reason is Reason.OTHER_SIDE else ""
    return f"{open_side}{change.state.value.replace('_', ' ')}"


def format_change(metric: MetricChange, change: Change) -> str:
    """Return the state of a change with its interval, for a cell of a table: `worse: -3.1 [-5.0, -1.2]`."""
    return ": ".join(filter(None, (label_change(metric), format_difference(metric, change))))


def format_difference(metric: MetricChange, change: Change) -> str:
    """Return the difference of a metric with its interval; empty where it is undefined."""
    number = numbers.format_psi_difference if metric is change.psi else numbers.format_points
    if metric.difference is None or metric.difference.interval is None:
        return ""
    return f"{number(metric.difference.value)} [{', '.join(map(number, metric.difference.interval))}]"


def describe_metric_change(name: str, metric: MetricChange, change: Change, a: str, b: str) -> str:
    """Return the change of one metric as a sentence."""
    points = format_difference(metric, change)
    match metric.state:
        case ChangeState.BETTER | ChangeState.WORSE:
            return f"{b} is {metric.state.value} than {a} in {name}: {points}."
        case ChangeState.EQUIVALENT:
            return f"{a} and {b} are {label_change(metric)} in {name}: {points}."
    question = f"Whether {b} is better than {a} in {name} cannot be said"
    match metric.reason:
        case Reason.OTHER_SIDE:
            return f"{question}: it changes by {points}, and which of the two is nearer to 0 is open."
        case Reason.FEW_DOCUMENTS:
            few = describe_few(metric.documents_needed, change.documents, change.counted)
            return f"{question}: {few}.{f' It changes by {points}.' if EVERYTHING not in points else ''}"
        case Reason.NOT_COMPARED:
            return f"{question}: there is nothing to compare."
    return f"{question}: {points}. {_describe_needed(change.documents, metric.documents_needed, change.counted)}"


def describe_ndcg_change(change: Change, a: str, b: str) -> str:
    """Return the change in nDCG@10 as a title: `B finds evidence 31.7 points less well than A [24.9, 38.4]`."""
    metric = change.ndcg_at_10
    match metric.state:
        case ChangeState.BETTER | ChangeState.WORSE:
            return f"{b} finds evidence {_size_change(metric, f'better than {a}', f'less well than {a}')}"
        case ChangeState.EQUIVALENT:
            return f"{b} and {a} are {label_change(metric)} of nDCG@10"
    return f"{b} cannot be told from {a} in nDCG@10"


def describe_loss(change: Change) -> str:
    """Return how a better or worse model changes from start to end: `loses 25.9 points more from start to end [15.6, 36.3]`."""
    metric = change.start_to_end
    if metric.state not in (ChangeState.BETTER, ChangeState.WORSE) or not metric.difference:
        return ""
    verb = "loses" if (metric.state is ChangeState.WORSE) == (metric.difference.value > 0) else "gains"
    return f"{verb} {_size_change(metric, 'less from start to end', 'more from start to end')}"


def _size_change(metric: MetricChange, better: str, worse: str) -> str:
    """Return a change that excludes 0 without its sign."""
    difference, words = metric.difference, better if metric.state is ChangeState.BETTER else worse
    return _describe_gap(difference, difference.interval, LEVEL, words) if difference and difference.interval else words


def describe_questions(task: str, queries: int, documents: int) -> str:
    """Return the size of the data of a task, and what is known of it."""
    size = f"{pluralize(queries, 'question')} on {pluralize(documents, 'document')}"
    return f"{task}: {size}, in each of which the place of the answer, the evidence, is known."


def describe_few(needed: int | None, number: int, counted: str) -> str:
    """Return that there are too few documents, or what else is counted, and how many are needed; empty if there are enough."""
    return f"{pluralize(number, f'{counted} is', f'{counted}s are')} too few, at least {needed:,} are needed" if needed else ""


def format_margin(margin: float) -> str:
    """Return a margin in words: `5 points`; of PSI, too, whose points are hundredths."""
    return f"{margin * 100:g} point{'' if margin == 0.01 else 's'}"


def format_level(level: float) -> str:
    """Return the level of an interval: `98.75 %`."""
    return f"{level * 100:.4g} %"


def format_contrast(decision: Decision, contrast: Contrast | None) -> str:
    """Return a contrast of a decision in points with its interval, for a cell: `+4.2 [+1.0, +7.4]`."""
    interval = decision.interval(contrast)
    return _format_points(contrast, interval, LEVEL) if contrast and interval else numbers.MISSING


def _format_points(contrast: Contrast, interval: Interval, level: float) -> str:
    ends = ", ".join(map(numbers.format_points, interval))
    return f"{numbers.format_points(contrast.value)} [{ends}]{_name_level(level)}"


def _name_level(level: float) -> str:
    return "" if level == LEVEL else f" ({format_level(level)} interval)"


def _describe_gap(contrast: Contrast | Difference, interval: Interval, level: float, words: str) -> str:
    """Return a difference whose interval excludes 0 without its sign: `8.1 points lower than in the first [4.0, 12.2]`."""
    low, high = (numbers.format_percent(end) for end in sorted(map(abs, interval)))
    return f"{numbers.format_percent(abs(contrast.value))} points {words} [{low}, {high}]{_name_level(level)}"


def _describe_needed(number: int, needed: int | None, counted: str) -> str:
    times = needed / max(number, 1) if needed else 0.0
    if times < 1.05:
        return f"More {counted}s would tell."
    factor = numbers.format_number(times, ".1f" if times < 9.95 else ",.0f").removesuffix(".0")
    return f"About {factor} times as many {counted}s would tell."


def iterate_answer(decision: Decision) -> Iterator[tuple[str, str]]:
    """Yield the answer in five parts, a title and a sentence each: how well, start to end, not read, the state, what to do."""
    ndcg = decision.ndcg_at_10
    ends = f" [{', '.join(map(numbers.format_percent, ndcg.interval))}]" if ndcg and ndcg.interval else ""
    yield "How well", f"nDCG@10 {numbers.format_percent(ndcg.value if ndcg else None)}{ends}."
    yield "Start to end", describe_start_to_end(decision)
    least = f"It reads {decision.read.phrase}, and documents are longer: how much is read of them is unknown."
    unknown = "What it reads of a text is unknown." if decision.read.least_tokens is None else least
    whole = "It reads all of a text." if decision.read.kind is ReadKind.ALL else unknown
    yield "Not read", describe_not_read(decision) or whole
    yield "Bias", " ".join(filter(None, (describe_state(decision), describe_shape(decision))))
    yield "What to do", advise(decision)


def list_facts(decision: Decision) -> Iterator[tuple[str, str]]:
    """Yield what the finding rests on, a name with its definition in parentheses and a value each, then what to do."""
    read, share = decision.read, decision.not_read
    yield "nDCG@10 (100: always ranked first)", numbers.format_estimate(decision.ndcg_at_10, numbers.format_percent)
    # Where all is read, the bias is start to end.
    state = [] if share else [f"{'bias: ' * (decision.state is State.CANNOT_BE_SAID)}{label_state(decision)}"]
    ends = format_contrast(decision, decision.start_to_end)
    yield "Start to end (first minus last third, points)", "\n".join([ends, *state])
    if read.kind is not ReadKind.PART:
        yield "Not read", "unknown" if read.kind is ReadKind.UNKNOWN else "nothing"
    else:
        yield "Not read", f"{numbers.format_percent(share)} % of the evidence"
        gap = decision.not_read_difference
        yield f"Read minus not read ({f'in the same {gap.held_fixed}' if gap else 'points'})", format_contrast(decision, gap)
    if share:
        bias = format_contrast(decision, decision.bias_within_read).removeprefix(numbers.MISSING)
        yield "Bias in what it reads", "\n".join(filter(None, (bias, label_state(decision))))
    if shape := describe_shape(decision):
        yield "Shape", shape
    yield "What to do", advise(decision)


def describe_finding(decision: Decision) -> str:
    """Return what is known, for someone who sees it first: what is not read, and the state if there is one."""
    lost, interval = decision.not_read_difference, decision.interval(decision.not_read_difference)
    is_open = decision.state is State.CANNOT_BE_SAID
    if decision.not_read:
        share, place = f"{format_share(decision.not_read)} of the evidence", _place_unread(decision.read)
        reads, ends = f"it reads {decision.read.phrase}; {share} lies {place}", "" if is_open else _phrase_state(decision)
        if lost and interval and not interval[0] <= 0 <= interval[1]:
            means = (score.value if score else None for score in _score_unread_and_read(decision))
            scores = " against ".join(numbers.format_percent(mean, ".0f") for mean in means)
            points = f"{numbers.format_percent(abs(lost.value))} points {'less' if lost.value > 0 else 'more'}"
            gap = f"within the same {lost.held_fixed} {points}"
            reads = f"it reads {decision.read.phrase}; the {share} {place} scores nDCG@10 {scores}, {gap}"
    else:
        kinds = {ReadKind.UNKNOWN: "what it reads is not known", ReadKind.ALL: "reads to the end"}
        reads, ends = kinds.get(decision.read.kind, ""), _describe_ends(decision)
    known = [clause for clause in (reads, ends) if clause]
    sentences = ["; ".join(known)] if is_open else known
    return " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences)


def _score_unread_and_read(decision: Decision) -> list[MeanEstimate | None]:
    """Return mean nDCG@10 of evidence that is not read, and of that which is."""
    observations = decision.find_group().observations
    parts = (observations.select(observations.twelfths >= TWELFTHS), observations.select_read())
    return [estimate_mean(part.gains, part.clusters, part.shares) for part in parts]


def _describe_ends(decision: Decision) -> str:
    """Return the state where all is read, or else that start and end differ, which is known where the state is not."""
    ends, interval = decision.start_to_end, decision.interval(decision.start_to_end)
    if not ends or not interval or decision.reason is Reason.FEW_DOCUMENTS or decision.state is State.NO_BIAS:
        return _phrase_state(decision)
    if interval[0] <= 0 <= interval[1]:
        more, is_small = format_margin(decision.margin), max(map(abs, interval)) <= decision.margin
        open_ = f"a difference of more than {more} between start and end is neither shown nor excluded"
        return f"start and end differ by at most {more}" if is_small else open_
    lower = (
        f"the {'end' if ends.value > 0 else 'start'} of documents scores {numbers.format_percent(abs(ends.value))} points lower"
    )
    return lower if decision.state is State.CANNOT_BE_SAID else f"{_phrase_state(decision)}: {lower}"


def _phrase_state(decision: Decision) -> str:
    """Return the state with what it is about: `whether it is biased within what it reads cannot be said`."""
    within = " within what it reads" if decision.not_read else ""
    if decision.state is State.CANNOT_BE_SAID:
        return f"whether it is biased{within} {label_state(decision)}"
    return f"{label_state(decision)}{within}"


def phrase_reading(shares: Sequence[tuple[str, float | None]]) -> Iterator[str]:
    """Yield which models do not read to the end, by the shares not read, and which do: parts, each second one a name."""
    said, whole = "", [name for name, share in shares if share == 0]
    for name, share in shares:
        if share:
            yield from (f"{said} and " if said else "", name)
            said = f" {'' if said else 'does not read '}{format_share(share)}"
    said += " of the evidence" if said else ""
    for place, name in enumerate(whole):
        yield from (" and " if place else f"{said}; " if said else "", name)
    yield f" read{'' if whole[1:] else 's'} to the end" if whole else said


def build_strip(decision: Decision, name: str) -> Strip:
    """Return the picture of a decision: what is found at each place, what is not read, and the finding in words."""
    read, unread = decision.read, decision.not_read or 0.0
    parts, finding = tuple(estimate_parts(decision.find_group().observations)), describe_finding(decision)
    heads = {Part.LAST: 0.0, Part.ENDS: (read.tokens_at_start or 0) / (read.tokens or 1)}
    return Strip(
        name,
        (
            *([f"It reads {read.phrase}"] if read.kind is ReadKind.PART and not unread else []),
            f"Start to end {format_contrast(decision, decision.start_to_end)}",
            finding.removesuffix("."),
        ),
        parts,
        unread,
        _score_unread_and_read(decision)[0] if unread else None,
        round(len(parts) * heads[read.part]) if read.part in heads else None,
        finding,
        partial(list_facts, decision),
    )
