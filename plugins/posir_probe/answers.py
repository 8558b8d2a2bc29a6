"""The rows that the page of a model's probes begins with: what each says, and its picture from start to end."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from posir_probe.probe import Probe
from posir_probe.results import ProbeResult
from posir_probe.segments import SegmentSimilarity
from posir_probe.verdict import (
    INSIDE,
    MARGIN,
    NAMES,
    WHOLE,
    count_whole,
    describe_measure,
    find_measured,
    find_searches,
    find_state,
    is_small,
    list_others,
    name_texts,
    state_search,
)
from posir_report.summary import short_labels
from posir_tasks.display.numbers import format_number
from posir_tasks.display.strip import EndScores, ReadShare, Scale, Strip, format_share
from posir_tasks.display.wording import ordinal, pluralize
from posir_tasks.scores import Estimate

#: The texts and the method of each probe, for the first rows of a page.
NOTES = {
    WHOLE: "{}",
    INSIDE: "{} on the tokens that are read; the rest is cut off",
    "permutation": "{} in all orders: cosine of each with the whole",
    "gradient_saliency": "{}: effect of a token on the similarity to a question; special tokens may lift the ends",
}
#: The height of a part in the picture of a text: how much is in it, or how much it moves the similarity.
COSINES = Scale(
    "similarity of each part to the whole text",
    partial(format_number, spec=".2f"),
    "a median document",
    "a text to its end, part by part",
    "{}: no trace",
    "cosine",
)
#: The probes of what is read that a picture of a text may show, the first that is measured: it changes the order alone.
DRAWN = {
    "permutation": replace(
        COSINES,
        name="similarity of joined texts to the one in each place",
        whole="all tokens",
        unread="",
        even="mean of the parts, level for a model blind to order",
    ),
    "gradient_saliency": replace(
        COSINES,
        name="effect of each tenth of what it reads on the similarity to a question",
        whole="all tokens",
        unread="",
        unit="gradient",
        even="mean of the parts, level for a model blind to order",
    ),
}
#: Parts of what is read in a picture, at most.
MOST_PARTS = 10


@dataclass(frozen=True)
class AnswerRow:
    """A row that a page begins with: what a probe of search, or of what is read, says."""

    probe: str
    """Its name; empty for how much is read."""
    said: str
    note: str
    """The questions or documents that it is measured on."""
    chip: str
    """The end that is favored, or the share that is read."""
    picture: EndScores | ReadShare | Strip


def list_answers(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> list[AnswerRow]:
    """Return the rows that a page begins with: how much is read, search, and the embedding of what is read; or none."""
    searched = [_answer_search(probes[of[0].probe], *of) for of in find_searches(results, probes)]
    measured = [_answer_inside(result, probes[result.probe]) for result in find_measured(results, NAMES)]
    answers = [*searched, *measured]
    result = results[0]
    if answers and result.window and result.median_tokens:
        share, whole = format_share(result.tokens_read), count_whole(result)
        said = f"It reads only the first {result.window:,} tokens"
        if not result.share_read:
            said = f"It reads up to {result.window:,} tokens: all of a median document"
        answers.insert(0, AnswerRow("", said, f"{whole} are read whole", share, ReadShare(result.tokens_read)))
    return answers


def _answer_search(probe: Probe, result: ProbeResult, estimate: Estimate, side: str) -> AnswerRow:
    # Of the middle, reversal moves none.
    count = pluralize(int(result.sums.sums[[0, -2], 0].sum()), "question")
    front, moved_front, *_, end, moved_end = result.sums.values.tolist()
    scores = EndScores((front + moved_end) / 2, (moved_front + end) / 2, MARGIN)
    state = state_search(estimate, side)
    said = f"In {name_texts(result)}, {f'search {state}' if state else 'no end is clearly favored'}"
    side = "neither" if is_small(estimate) else side
    return AnswerRow(result.probe, said, _describe_sample(probe, count), side, scores)


def _answer_inside(result: ProbeResult, probe: Probe) -> AnswerRow:
    # The picture has the numbers.
    said = re.sub(r" \([\d.]+\)", "", describe_measure(result, probe))
    note = _describe_sample(probe, probe.count(result.sums.documents))
    return AnswerRow(result.probe, said, note, find_state(result, probe), _draw_inside(result, probe))


def _describe_sample(probe: Probe, count: str) -> str:
    """Return the sample and method of a probe, and published values of other models; of trained ones two, which tell most."""
    others = list_others(probe)
    trained = {name.partition(" trained on ")[2]: known for name, known in others}
    if trained.keys() >= {"all places", "the start"}:
        others = [(f"models trained on {place}", trained[place]) for place in ("all places", "the start")]
    published = ", ".join(map(" ".join, others))
    return NOTES[probe.name].format(count) + f". Published: {published}" * bool(others)


def draw_text(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> Strip | None:
    """Return the picture of a text from its start to its end: of what is read, or else cosines of parts; None without any."""
    drawn = find_measured(results, DRAWN)
    if not drawn:
        known = find_measured(results, [of.probe for of in results if isinstance(probes[of.probe], SegmentSimilarity)])
        return _draw_parts(known[-1]) if known else None
    result, profile = drawn[0], _draw_inside(drawn[0], probes[drawn[0].probe])
    ends = profile.ndcg_by_part[0], profile.ndcg_by_part[-1]
    first, last = (profile.scale.format(part.value if part else None) for part in ends)
    return replace(
        profile,
        name=short_labels(results)[0],
        words=(f"from {first} to {last}",),
        not_read=1 - result.tokens_read if result.share_read else 0.0,
        border=f"{result.window:,} tokens" if result.share_read else "",
    )


def _average(result: ProbeResult, low: float, high: float) -> Estimate | None:
    """Return the mean between two places of a text, in [0, 1], of which a probe has equal parts."""
    ends = np.linspace(0, 1, len(result.sums.positions) + 1)
    overlap = np.clip(np.minimum(ends[1:], high) - np.maximum(ends[:-1], low), 0, None)
    return result.sums.estimate(lambda values: values @ (overlap / overlap.sum()))


def _choose_top(parts: Iterable[Estimate | None]) -> float:
    """Return the top of a picture: the next fifth above all intervals, with room for a number."""
    highest = max((part.interval or (0.0, part.value))[1] for part in parts if part)
    return min(1.0, math.ceil(5.5 * highest) / 5) or 1.0


def _draw_inside(result: ProbeResult, probe: Probe) -> Strip:
    """Return the picture of a measure of what is read."""
    count = min(MOST_PARTS, len(result.sums.positions))
    shown = tuple(_average(result, *place) for place in pairwise(np.linspace(0, 1, count + 1).tolist()))
    return Strip(
        "What it reads",
        (),
        shown,
        scale=replace(DRAWN[result.probe], top=_choose_top(shown)),
        places=tuple(f"{name} {'place' if probe.joined > 1 else 'tenth'}" for name in (*map(ordinal, range(1, count)), "last")),
    )


def _draw_parts(result: ProbeResult) -> Strip:
    """Return the picture of the parts of whole texts, of which some may be past what is read."""
    read = result.share_read or 1.0
    edges = np.linspace(0, read, max(1, round(MOST_PARTS * read)) + 1).tolist()
    shown = [_average(result, *place) for place in pairwise(edges)]
    rest = _average(result, read, 1) if read < 1 else None
    first, last, any_two = (COSINES.format(part.value if part else None) for part in (shown[0], shown[-1], rest))
    return Strip(
        short_labels([result])[0],
        (f"from {first} to {last}{f'; no trace: {any_two}' if rest else ''}",),
        tuple(shown),
        1 - read,
        rest,
        scale=COSINES,
        border=f"{result.window:,} tokens" if result.share_read else "",
    )
