"""The verdict on a model by its probes: which part of a text weighs more, in sentences, pictures, and what to do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from posir_probe.bias_learning import MEAN
from posir_probe.probe import SEPARATOR, Probe, includes_zero
from posir_probe.results import ProbeResult
from posir_published.probes import read_published_curves
from posir_significance.decision import DEFAULT_MARGINS, ERRORS_IN_MARGIN, need_documents
from posir_significance.position_effect import FEWEST_DOCUMENTS
from posir_significance.sentences import describe_few, format_margin
from posir_tasks.display.numbers import FORMATS, format_estimate, format_number
from posir_tasks.display.strip import format_share
from posir_tasks.display.wording import pluralize
from posir_tasks.models.command_reference import CommandReference
from posir_tasks.scores import Estimate, Unit
from posir_tasks.tasks.catalog import find_task, name_larger_task

#: The verdict by the end of a text that weighs more.
ANSWERS = {
    "start": "Yes: the start of a text weighs more than its end",
    "end": "No: the end of a text weighs more than its start",
}
#: Differences are larger in favor of the start.
DIFFERENCE = "Start minus end"
UNDECIDED, MIXED = "cannot be said", "mixed"
#: Measures of what is read, in sentences.
NAMES = {"permutation": "joined texts", "gradient_saliency": "gradients"}
#: Probes of search, of whole documents and of what is read.
WHOLE, INSIDE = "mirror_reversal", "window_reversal"
SEARCHES = (WHOLE, INSIDE)
#: How differences are printed: all have a sign.
SIGNED: dict[Unit, Any] = {
    **FORMATS,
    Unit.INDEX: partial(format_number, spec="+.3f"),
    Unit.NUMBER: partial(format_number, spec="+.2f"),
}
#: Published models that are trained on evidence at one place, by the end of their names.
TRAINED = {
    "trained on begin": "trained on the start",
    "trained on middle": "trained on the middle",
    "trained on uniform": "trained on all places",
    "trained on end": "trained on the end",
}
#: Differences of search that are smaller do not matter, as in every verdict.
MARGIN = DEFAULT_MARGINS.start_to_end
#: Documents that are advised, at most.
MOST_ADVISED = 1_000


def find_leads(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> list[tuple[ProbeResult, Probe]]:
    """Return what carries the verdict: the first result that compares start and end, and the first within the window.

    Those with an interval come first, then search. Where nothing compares start and end, it is the first result.
    """
    known = [(result, probes[result.probe]) for result in results]
    ranks = {name: rank for rank, name in enumerate([INSIDE, *NAMES])}
    known.sort(key=lambda of: (of[1].in_window, of[0].sums.documents < FEWEST_DOCUMENTS, ranks.get(of[1].name, len(ranks))))
    contrasts = [pair for pair in known if pair[1].compares_ends]
    inside = [pair for pair in contrasts[1:] if pair[1].in_window]
    return [*contrasts[:1], *inside[:1]] or known[:1]


def find_favored(result: ProbeResult, probe: Probe) -> tuple[Estimate | None, str]:
    """Return what a finding states, and which end of a text it favors; that is empty if it compares none or has no interval."""
    estimate = result.sums.estimate(probe.summaries[probe.stated]) if probe.preference_sign else None
    return estimate, _find_side(estimate, probe)


def _find_side(estimate: Estimate | None, probe: Probe) -> str:
    """Return which end of a text a difference favors, that this cannot be said, or nothing without an interval."""
    if estimate is None or estimate.interval is None:
        return ""
    if includes_zero(estimate.interval):
        return UNDECIDED
    return "start" if probe.preference_sign * estimate.value > 0 else "end"


def list_published(probe: Probe) -> list[tuple[float, str]]:
    """Return what the finding states of published models, in ascending order; a mean over sizes stands for each size."""
    stated = probe.summaries[probe.stated]
    curves = [dict(zip(curve.positions, curve.values, strict=True)) for curve in read_published_curves(probe.name)]
    places = [(name, f"{MEAN}{SEPARATOR}{name.rpartition(SEPARATOR)[2]}") for name in probe.positions]
    known = [[curve.get(name, curve.get(mean, math.nan)) for name, mean in places] for curve in curves]
    named = [
        (float(stated(np.array(values))), of.model) for values, of in zip(known, read_published_curves(probe.name), strict=True)
    ]
    return sorted(pair for pair in named if math.isfinite(pair[0]))


def describe_published(probe: Probe) -> tuple[str, int]:
    """Return the range of published values, empty without any, and how many there are."""
    published, form = [value for value, _ in list_published(probe)], SIGNED[probe.summaries[probe.stated].unit]
    return " to ".join(dict.fromkeys(map(form, published[:1] + published[-1:]))), len(published)


def describe_model(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> str:
    """Return the verdict on a model: which end of a text weighs more, also within its window, or that this cannot be said."""
    leads = find_leads(results, probes)
    result, probe = leads[0]
    if result.sums.documents < FEWEST_DOCUMENTS:
        return f"Cannot be said: {describe_few(FEWEST_DOCUMENTS, result.sums.documents, probe.counted)}."
    if not probe.compares_ends:
        return f"{probe.find(result.sums) or f'{probe.title}: whether there is a difference cannot be said'}."
    favored, *inside = (find_favored(*lead)[1] for lead in leads)
    read = f"the {result.window:,} tokens that it reads" if result.window else "what it reads"
    answer = ANSWERS.get(favored, "No sign of it: whether the start or the end of a text weighs more cannot be said")
    if favored == "start" and result.share_read and not probe.in_window:
        answer = f"Yes: it reads only the first {result.window:,} tokens of a text"
        read = "these"
    searched, states = describe_search(results, probes), list_states(results, probes, leads[-1])
    if probe.in_window:
        answer += f", within {read}"
    elif inside and states and (inside[0] != favored or (favored in ANSWERS and result.share_read)):
        said = join_clauses(states)
        searched.append(f"{said[0].upper()}{said[1:]}" if searched else f"Within {read}, {said}")
    return ". ".join([answer, *(searched if searched[1:] or not probe.predicts_retrieval else ())]) + "."


def describe_search(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> list[str]:
    """Return how search depends on the place of the evidence, in whole documents and in what is read, a sentence each."""
    sentences = []
    for result, estimate, side in find_searches(results, probes):
        number = f"start minus end is {format_estimate(estimate, SIGNED[Unit.POINTS])} points"
        said = state_search(estimate, side)
        said = f"search {said}: {number}" if said else f"whether search favors either end cannot be said: {number}"
        if result.probe == WHOLE and _may_be_truncation(result, estimate, side):
            said += f". {_describe_unread(result)}"
        sentences.append(f"In {name_texts(result)}, {said}")
    return sentences


def summarize_rest(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> str:
    """Return what the title of a page leaves open: sizes in search, what may be truncation, and the embedding; or nothing."""
    sentences, clauses, lead = [], [], find_leads(results, probes)[-1]
    for result, estimate, side in find_searches(results, probes):
        (low, high), form = sorted(estimate.interval or (math.nan, math.nan)), SIGNED[Unit.POINTS]
        possible = "" if state_search(estimate, side) else f", where {form(low)} to {form(high)} are possible"
        clauses.append(f"{form(estimate.value)} in {name_texts(result)}{possible}")
        if result.probe == WHOLE and _may_be_truncation(result, estimate, side):
            sentences.append(_describe_unread(result))
    if clauses:
        sentences.insert(0, f"Start minus end is {' and '.join(clauses).replace(' in ', ' points of nDCG@10 in ', 1)}")
    if lead[1].name not in SEARCHES or find_measured(results, NAMES):
        said = join_clauses(list_states(results, probes, lead))
        sentences.append(f"The embedding alone: {said}" if clauses else f"{said[0].upper()}{said[1:]}")
    return f"{'. '.join(sentences)}." if sentences else ""


def _may_be_truncation(result: ProbeResult, estimate: Estimate, side: str) -> bool:
    return bool(side == "start" and result.share_read) and not is_small(estimate)


def _describe_unread(result: ProbeResult) -> str:
    return (
        f"The model never reads {format_share(1 - result.tokens_read)} of all tokens, "
        "which can make such a difference by itself"
    )


def title_search(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> str:
    """Return which end search favors, in whole documents and, if it is known, in what is read, for a title; empty without."""
    known = [(state_search(estimate, side), name_texts(of)) for of, estimate, side in find_searches(results, probes)]
    if not known:
        return ""
    (first, texts), *others = known
    said = f"{first or 'may favor either end'} in {texts}"
    for state, texts in others:
        said += f", also in {texts}" if state == first != "" else f"; in {texts}, it {state}" if state else ""
    return said


def state_search(estimate: Estimate, side: str) -> str:
    """Return which end search favors, or that none matters, as a predicate; empty if that cannot be said."""
    if is_small(estimate):
        return f"has no bias larger than {format_margin(MARGIN)}"
    return f"favors the {side}" if side in ANSWERS else ""


def list_states(results: Iterable[ProbeResult], probes: Mapping[str, Probe], lead: tuple[ProbeResult, Probe]) -> list[str]:
    """Return which end the measures of what is read favor, a clause for those that agree; of search see `describe_search`."""
    measured = [(result, probes[result.probe]) for result in find_measured(results, NAMES)]
    named: dict[str, list[str]] = {}
    for pair in measured if lead[1].name in (INSIDE, *NAMES) else [lead]:
        named.setdefault(find_state(*pair), []).append(NAMES.get(pair[1].name, pair[1].title.lower()))
    return [_describe_state(names, state) for state, names in named.items()]


def join_clauses(clauses: Sequence[str]) -> str:
    """Return what is stated as one sentence; a second clause is no agreement."""
    *others, last = clauses
    return f"{', '.join(others)}{', and' if others[1:] else ', but'} {last}" if others else last


def find_state(result: ProbeResult, probe: Probe) -> str:
    """Return which end all differences of a measure favor, that this cannot be said, or that they are mixed."""
    sides = set(_find_sides(result, probe).values())
    return (sides.pop() or UNDECIDED) if len(sides) == 1 else MIXED


def _describe_state(names: Sequence[str], state: str) -> str:
    *others, last = names
    subject = f"{', '.join(others)} and {last}" if others else last
    said = {MIXED: "are mixed", UNDECIDED: "show no clear difference between start and end"}
    return f"{subject} {said.get(state, f'favor the {state}')}"


def agrees_inside(results: Iterable[ProbeResult], probes: Mapping[str, Probe], favored: str) -> bool:
    """Return whether all measures of what is read favor one end."""
    measured = find_measured(results, (INSIDE, *NAMES))
    return all(find_state(result, probes[result.probe]) == favored for result in measured)


def _find_sides(result: ProbeResult, probe: Probe) -> dict[str, str]:
    """Return which end each difference of a picture favors, by the name of the summary: the first, and that of thirds."""
    names = [name for name in (probe.stated, "thirds") if name in probe.summaries]
    return {name: _find_side(result.sums.estimate(probe.summaries[name]), probe) for name in names}


def describe_thirds(result: ProbeResult, probe: Probe) -> str:
    """Return what the thirds of what is read add to its tenths, a clause; empty without both."""
    favored, *thirds = _find_sides(result, probe).values()
    if not thirds or favored not in ANSWERS:
        return ""
    more, less = ("first", "last") if thirds[0] == "start" else ("last", "first")
    if thirds[0] not in ANSWERS:
        return "; of thirds this cannot be said"
    return f", {'and' if thirds[0] == favored else 'but'} the {more} third more than the {less}"


def describe_measure(result: ProbeResult, probe: Probe) -> str:
    """Return what a measure of what is read found, as the heading of its picture."""
    state, (first, *_, last) = find_state(result, probe), result.sums.values.tolist()
    if probe.joined > 1 and state in ANSWERS:
        more, less = (("first", first), ("last", last))[:: 1 if state == "start" else -1]
        return f"Joined texts: the whole is closer to its {more[0]} part ({more[1]:.2f}) than to its {less[0]} ({less[1]:.2f})"
    thirds = describe_thirds(result, probe)
    if state == MIXED and thirds:
        tenths = ("first", "last") if find_favored(result, probe)[1] == "start" else ("last", "first")
        return f"Gradients: the {tenths[0]} tenth weighs more than the {tenths[1]}{thirds}"
    said = _describe_state([NAMES[probe.name]], state).removesuffix(" between start and end")
    return f"{said[0].upper()}{said[1:]}"


def list_outer_differences(result: ProbeResult, probe: Probe) -> list[tuple[str, str]]:
    """Return the differences of a picture by their names, below a heading."""
    summaries = [probe.summaries[name] for name in _find_sides(result, probe)]
    shown = [format_estimate(result.sums.estimate(summary), SIGNED[summary.unit]) for summary in summaries]
    names = ("Outer tenths", "Outer thirds") if shown[1:] else ("This model",)
    return [(DIFFERENCE, ""), *zip(names, shown, strict=True)]


def list_others(probe: Probe) -> list[tuple[str, str]]:
    """Return published differences by model or training, in words; empty if none compare."""
    published = list_published(probe) if probe.compares_models else []
    trained = {said: [value for value, model in published if model.endswith(name)] for name, said in TRAINED.items()}
    groups = [(f"{len(values)} models {said}", values) for said, values in trained.items() if values]
    name = published[0][1] if len(published) == 1 else f"{len(published)} published models"
    groups = groups or [(name, [value for value, _ in published])] * bool(published)
    form = SIGNED[probe.summaries[probe.stated].unit]
    return [(name, " to ".join(dict.fromkeys((form(values[0]), form(values[-1]))))) for name, values in groups]


def list_facts(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> list[tuple[str, str]]:
    """Return what the verdict is of and what is not known, by their names, then what to do; nothing on the data alone."""
    leads = find_leads(results, probes)
    result, probe = leads[0]
    if probe.is_of_data:
        return []
    length = f", median {result.median_tokens:,} tokens" if result.median_tokens else ""
    if result.share_read:
        length += f", {count_whole(result).removesuffix(' documents')} read whole"
    drawn = f"drawn at random ({'; '.join(dict.fromkeys(subset.selection for subset in result.subsets.values()))})"
    size = ": a small sample" * (result.sums.documents < 5 * FEWEST_DOCUMENTS)
    task = find_task(result.data)
    made = " (invented texts)" * bool(task and task.metadata.sample_creation == "created")
    known = f" of {result.available:,}" * (result.available > result.sums.documents)
    facts = [("Documents", f"{result.sums.documents:,}{known} documents of {result.data}{made}{size}, {drawn}{length}.")]
    favored, sides = find_favored(*leads[0])[1], list(filter(None, (find_favored(of, probes[of.probe])[1] for of in results)))
    if favored in ANSWERS and not result.share_read and sides[1:]:
        facts.insert(0, ("How sure", f"{sides.count(favored)} of {len(sides)} comparisons of the same documents agree."))
    measured = [(of, probes[of.probe]) for of in find_measured(results, NAMES)] if result.share_read else []
    if measured:
        said = ". ".join(f"{describe_measure(*pair)}. {_join(list_outer_differences(*pair))}" for pair in measured)
        facts.insert(0, ("In what it reads", f"{said}.\nA model blind to order has 0."))
    if result.window and result.median_tokens:
        share = f"The first {result.window:,} tokens: {100 * result.tokens_read:.0f} % of all tokens."
        facts.insert(0, ("Reads", share if result.share_read else f"All of a median document: up to {result.window:,} tokens."))
    if not all(known.predicts_retrieval for _, known in leads):
        facts.append(("In search", _list_search(results, probes)))
    steps = [step for step, _ in list_steps(leads)]
    return [*facts, *(("What to do", "\n".join(steps)) for _ in steps[:1])]


def _list_search(results: Iterable[ProbeResult], probes: Mapping[str, Probe]) -> str:
    """Return the differences of search, and the published ones."""
    searched = find_searches(results, probes)
    rows = [(name_texts(result), format_estimate(estimate, SIGNED[Unit.POINTS])) for result, estimate, _ in searched]
    others = list_others(probes[WHOLE]) if searched and searched[0][0].probe == WHOLE else []
    none = "Not measured: `posir inspect` measures it."
    return f"{_join([('nDCG@10, evidence near the start minus near the end', ''), *rows, *others])}." if rows else none


def _join(rows: Iterable[tuple[str, str]]) -> str:
    (heading, _), *named = rows
    return f"{heading}: {'; '.join(f'{name[0].lower()}{name[1:]} {value}' for name, value in named)}"


def list_steps(leads: Sequence[tuple[ProbeResult, Probe]], reference: CommandReference | None = None) -> list[tuple[str, str]]:
    """Return what to do, each step with its command, which is empty if it cannot run.

    Without a reference, model and data are named as in the result.
    """
    steps, result = [], leads[0][0]
    reference = reference or CommandReference.from_run(result.model, result.data, {})
    favored, *inside = (find_favored(*lead)[1] for lead in leads)
    if result.share_read:
        step = f"Search in chunks of fewer than {result.window:,} tokens: all of a document is read then; "
        step += "compare several sizes on your own texts."
        steps.append((step, _write(reference, "inspect", reference.data)))
    few = result.sums.documents < 5 * FEWEST_DOCUMENTS
    if any(_is_open(*lead) for lead in leads) or (few and inside and leads[-1][1].joined == 1):
        steps.append(_advise_more(leads, reference, few=few))
    elif "start" in (inside or [favored] * (not result.share_read)):
        step = "use smaller chunks or another model, or train on all positions."
        step = f"If that shows a bias in what is read: {step}" if steps else f"{step[0].upper()}{step[1:]}"
        steps.append((step, "posir train --help"))
    return steps


def _write(reference: CommandReference, *words: str) -> str:
    """Return a command of posir about a model; empty if no command can load it, or one of the words is empty."""
    name, *rest = words
    return reference.write("posir", name, reference.model, *rest) if reference.model and all(rest) else ""


def _advise_more(leads: Sequence[tuple[ProbeResult, Probe]], reference: CommandReference, *, few: bool) -> tuple[str, str]:
    """Return the advice to measure more documents of the same data, or of a larger task, with its command; few are under 50."""
    result, known = leads[0][0], leads[0][0].available
    needed = 0 if few else _count_needed(leads)
    reason = "intervals become narrower"
    if few:
        reason = f"{result.sums.documents} are few, and joined texts need about 30"
    elif needed:
        reason = f"it takes about {needed:,} documents to tell a bias of {format_margin(MARGIN)} in search from none"
    wanted, larger = needed or max(50, 2 * result.drawn), name_larger_task(result.data)
    if 0 < known < wanted and larger:
        reason += f", and {result.data} has {known:,}. The command downloads {larger}"
        return f"Measure a larger task: {reason}.", _write(reference, "probe", larger)
    if 0 < known <= result.drawn:
        return f"Measure other texts, too: all {known:,} documents of {result.data} are measured.", ""
    # The option counts documents of each domain.
    documents = math.ceil(min(wanted, known or wanted) / len(result.subsets))
    return f"Measure more documents: {reason}.", _write(reference, "probe", reference.data, "--documents", str(documents))


def is_small(estimate: Estimate) -> bool:
    """Return whether a difference of search is within the margin of every verdict."""
    return max(map(abs, estimate.interval or (math.inf,))) < MARGIN


def _is_open(result: ProbeResult, probe: Probe) -> bool:
    """Return whether a probe finds no difference, and not that there is none."""
    estimate = find_favored(result, probe)[0]
    is_settled = estimate is not None and probe.predicts_retrieval and is_small(estimate)
    return probe.find(result.sums) is None and not is_settled


def _count_needed(leads: Iterable[tuple[ProbeResult, Probe]]) -> int:
    """Return how many documents would settle the first open difference of search; 0 if none is open, or too many."""
    for result, probe in leads:
        estimate = find_favored(result, probe)[0]
        if probe.predicts_retrieval and estimate and estimate.interval and _is_open(result, probe):
            error = (estimate.interval[1] - estimate.interval[0]) / 2 / 1.96
            needed = need_documents(ERRORS_IN_MARGIN * error, MARGIN, result.drawn) or 0
            return needed if needed <= MOST_ADVISED else 0
    return 0


def find_measured(results: Iterable[ProbeResult], names: Iterable[str]) -> list[ProbeResult]:
    """Return the results of probes that have enough documents and a picture, in the order of the names."""
    known = {result.probe: result for result in results if result.sums.documents >= FEWEST_DOCUMENTS}
    return [known[name] for name in names if name in known and np.min(known[name].sums.values) >= 0]


def find_searches(results: Iterable[ProbeResult], probes: Mapping[str, Probe]) -> list[tuple[ProbeResult, Estimate, str]]:
    """Return the results of search, each with its difference, which has an interval, and the end that it favors."""
    known = [(result, *find_favored(result, probes[result.probe])) for result in find_measured(results, SEARCHES)]
    return [(result, estimate, side) for result, estimate, side in known if estimate and side]


def name_texts(result: ProbeResult) -> str:
    """Return the texts that a probe of search takes."""
    return "whole documents" if result.probe == WHOLE else f"the first {result.window:,} tokens"


def count_whole(result: ProbeResult) -> str:
    """Return how many documents are read whole: `8 of 50 documents`."""
    whole = sum(length <= (result.window or length) for length in result.lengths)
    return f"{whole:,} of {pluralize(len(result.lengths), 'document')}"
