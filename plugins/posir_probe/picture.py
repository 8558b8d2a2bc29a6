"""The picture of a text from its start to its end, by what a probe found at each place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from posir_probe.probe import Probe
from posir_probe.results import ProbeResult
from posir_probe.segments import SegmentSimilarity
from posir_report.summary import short_labels
from posir_significance.position_effect import FEWEST_DOCUMENTS
from posir_tasks.display.numbers import format_number
from posir_tasks.display.strip import Scale, Strip
from posir_tasks.scores import Estimate

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
        name="similarity of three joined texts to the one in each place",
        whole="all tokens",
        unread="",
        unit="cosine; {} on different subjects, cut to fit and joined in every order",
    ),
    "gradient_saliency": replace(
        COSINES,
        name="effect of each tenth of what it reads on the similarity to a question",
        whole="all tokens",
        unread="",
        unit="gradient of tokens, 1 = their 99th percentile; questions about the middle of {}, read or not",
    ),
}


def rank_drawn(result: ProbeResult) -> int:
    """Return the place of a probe among those that a picture may show."""
    return [*DRAWN, result.probe].index(result.probe)


def draw_text(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> Strip | None:
    """Return the picture of a text from its start to its end: of what is read, or else cosines of parts; None without any."""
    known = [result for result in results if result.sums.documents >= FEWEST_DOCUMENTS and min(result.sums.values) >= 0]
    inside = sorted((result for result in known if result.probe in DRAWN), key=rank_drawn)
    drawn = inside[:1] or [result for result in known if isinstance(probes[result.probe], SegmentSimilarity)]
    if not drawn:
        return None
    result, scale = drawn[-1], DRAWN.get(drawn[-1].probe, COSINES)
    parts, read = len(result.sums.positions), 1.0
    if result.share_read:
        read = result.tokens_read if inside else result.share_read
    span, count = (read, min(10, parts)) if inside else (1.0, max(1, round(10 * read)))
    ends = np.linspace(0, span, parts + 1)

    def average(low: float, high: float) -> Estimate | None:
        overlap = np.clip(np.minimum(ends[1:], high) - np.maximum(ends[:-1], low), 0, None)
        return result.sums.estimate(lambda values: values @ (overlap / overlap.sum()))

    shown = [average(*place) for place in pairwise(np.linspace(0, read, count + 1).tolist())]
    rest = average(read, 1) if read < 1 and not inside else None
    highest = max((part.interval or (0.0, part.value))[1] for part in shown if part)
    scale = replace(scale, top=0.5 if inside and highest <= 0.5 else 1.0)
    scale = replace(scale, unit=scale.unit.format(probes[result.probe].count(result.sums.documents)))
    less = shown[-1].value - shown[0].value if shown[0] and shown[-1] else 0.0
    first, last, any_two = (scale.format(part.value if part else None) for part in (shown[0], shown[-1], rest))
    return Strip(
        short_labels(results)[0],
        (f"from {first} to {last}{f'; no trace: {any_two}' if rest else ''}",),
        tuple(shown),
        1 - read,
        rest,
        scale=scale,
        border=f"{result.window:,} tokens" if result.share_read else "",
        compared=(0, count - 1) if inside and count > 3 else (),
        places=("first place", "second place", f"third place ({less:+.2f})") if probes[result.probe].joined > 1 else (),
    )
