"""The share of each segment of a text in the text's embedding, by the segment's place: of one text,
and of texts in all orders.

`SegmentSimilarity` is the cosine of a text and each of its segments. Three segments: Zeng et al.
2025 (arXiv 2505.13950, A.4, Table 4), cut as in the authors' code at characters `int(.333 n)` and
`int(.666 n)`. Ten segments: 'Built-in or learned?' (arXiv 2605.26578, section 6, Fig. 3), which
does not state the unit of its 'equal length'; here characters. Every segment is embedded alone, so
a model that reads only a beginning does not give 0 for later segments, but the similarity of any
two texts.

`Permutation` is the first experiment of arXiv 2601.16934, permuted segments, after its code: sets
of P texts are joined by spaces in all P! orders, so that content cancels, and the cosine of a
joined text and each of its segments, encoded alone, is averaged by place. The paper's segments are
whole texts of 1,000 to 2,000 tokens, at most 8,192 together. Here a text is cut to its first tokens
if the model's window would not hold P of them: otherwise its place would be measured by what is
truncated. Sets are disjoint, of the texts in the order in which they were drawn, so that each
counts as one document of the bootstrap; the paper's share texts. The paper's
repeated-measures ANOVA, the mean of token states instead of the text's vector, and attention are
left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise, permutations
from math import factorial
from typing import Literal

import numpy as np

from posir_probe.data import ProbeData, select_long_enough
from posir_probe.probe import (
    ENDS,
    Form,
    Probe,
    ProbePlan,
    Summary,
    ignore_rounding,
    plan_cosines,
    start_minus_end,
    summarize_ends,
    value_range,
)
from posir_probe.results import ProbeSums
from posir_tasks.base.arrays import Floats
from posir_tasks.base.wording import ordinal
from posir_tasks.models.embeddings.encoding import Embeddings
from posir_tasks.text.interventions import find_parts
from posir_tasks.text.tokenizer import Tokenizer

#: Where the code of Zeng et al. 2025 cuts, as shares of the characters.
THIRDS = (0.0, 0.333, 0.666, 1.0)
#: Maximum number of tokens of a joined text (section on data).
MAX_TOKENS = 8_192
#: Segments that are joined in all orders.
SEGMENTS = 3


class SegmentSimilarity(Probe):
    """Cosine of a text and each of its contiguous segments, equal in characters up to one."""

    notes = (
        "A text and each of its parts are embedded alone, and their cosine is taken. A higher "
        "cosine means that more of the part is in the embedding of the text. It isn't 0 for a "
        "truncated part, as any two parts of a text are similar.",
        "Models with last-token pooling usually have their highest value in the last part.",
    )
    headline = ENDS
    preference_sign = 1
    shows_window = True
    value_title = "Cosine of text and part"
    form = Form.PLACES

    def __init__(self, segments: Literal[3, 10]) -> None:
        part = "third" if segments == 3 else "tenth"
        places = range(1, segments + 1)
        self.source = "arXiv 2605.26578, section 6"
        self.positions = tuple(map(str, places))
        self.cuts = np.linspace(0, 1, segments + 1).tolist()
        if segments == 3:
            self.source = "arXiv 2505.13950, A.4"
            self.positions = ("begin", "middle", "end")
            self.cuts = THIRDS
        self.name = f"segment_similarity_{segments}"
        self.title = f"Whole text and its {part}s"
        self.summaries = {
            **summarize_ends(f"First minus last {part} of a text", f"First {part}", f"Last {part}"),
            "range": Summary(f"Range over the {part}s", value_range),
            "range_without_last": Summary(
                f"Range without the last {part}", lambda values: value_range(values[..., :-1])
            ),
        }
        self.place_title = f"Middle of the {part}, as a share of the text"
        self.place_names = {}
        self.place_shares = {}
        for name, place in zip(self.positions, places, strict=True):
            self.place_names[name] = f"{ordinal(place) if place < segments else 'last'} {part}"
            self.place_shares[name] = (place - 0.5) / segments

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode every text and its segments."""
        chosen, skipped = select_long_enough(data)
        texts = list(chosen.values())
        segments = []
        for text in texts:
            edges = [int(share * len(text)) for share in self.cuts]
            segments.append([text[low:high] for low, high in pairwise(edges)])
        return plan_cosines(self.positions, list(chosen), texts, segments, skipped)


def cut_to_tokens(tokenizer: Tokenizer, texts: Sequence[str], tokens: int) -> list[str]:
    """Cut each text to its first tokens, at least one."""
    cut = []
    for text, spans in zip(texts, tokenizer.find_tokens(texts), strict=True):
        last = min(max(1, tokens), len(spans)) - 1
        cut.append(text[: spans[last, 1]].strip())
    return cut


@np.errstate(invalid="ignore", divide="ignore")
def gini(values: Floats) -> Floats:
    """Compute the Gini coefficient of P means, sum_ij |m_i - m_j| / (2 P^2 mean m); NaN unless all
    are positive.
    """
    differences = ignore_rounding(values[..., :, None] - values[..., None, :])
    total = np.abs(differences).sum(axis=(-2, -1))
    scale = 2 * values.shape[-1] ** 2 * values.mean(axis=-1)
    return np.where((values > 0).all(axis=-1), total / scale, np.nan)


@np.errstate(invalid="ignore", divide="ignore")
def relative_drop(values: Floats) -> Floats:
    """Compute 1 - m_last / m_first; NaN unless both are positive."""
    drops = start_minus_end(values) / values[..., 0]
    return np.where((values[..., [0, -1]] > 0).all(axis=-1), drops, np.nan)


class Permutation(Probe):
    """Cosine of a joined text and its segment at each place, over all orders of the segments."""

    name = "permutation"
    title = "Joined texts in all orders"
    joined = SEGMENTS
    source = "arXiv 2601.16934, permuted segments"
    notes = (
        "Texts are joined in all orders, and compared with each of them. If the values are equal, "
        "the place in the text does not matter.",
        "Texts are cut so that they fit the model's window together. Several on different "
        "subjects are no natural text. Differences below 1e-6 are rounding errors and count as 0.",
    )
    headline = ENDS
    preference_sign = 1
    in_window = True
    value_title = "Cosine of joined text and segment"
    place_title = "Place of the segment"

    positions = tuple(ordinal(place) for place in range(1, SEGMENTS + 1))
    summaries = {
        **summarize_ends("Segments, first minus last", "First place", "Last place"),
        "relative_drop": Summary("Relative drop from first to last", relative_drop),
        "gini": Summary("Gini coefficient of the places", gini),
    }

    def group(self, data: ProbeData) -> tuple[dict[str, Sequence[str]], Counter[str]]:
        """List the segments of each set by its id, and count the texts in no set, by reason.

        Sets are consecutive texts, or parts of one text equal in words; both are cut so that a set
        fits the model's window.
        """
        chosen, skipped = select_long_enough(data)
        room = min(MAX_TOKENS, data.room or MAX_TOKENS)
        # A cut within a word may make one more token of it.
        tokens = room // self.joined - SEGMENTS // self.joined
        names = list(chosen)
        cut = cut_to_tokens(data.tokenizer, list(chosen.values()), tokens)
        sets: dict[str, Sequence[str]] = {}
        if self.joined > 1:
            left_over = len(names) % SEGMENTS
            skipped["left over from sets"] += left_over
            for start in range(0, len(names) - left_over, SEGMENTS):
                members = slice(start, start + SEGMENTS)
                sets["\n".join(names[members])] = cut[members]
            return sets, +skipped
        for name, text in zip(names, cut, strict=True):
            parts = find_parts(text, SEGMENTS)
            if len(parts) == SEGMENTS:
                sets[name] = [span.of(text) for span in parts]
        skipped["fewer words within the window than segments"] += len(names) - len(sets)
        return sets, +skipped

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode the segments, and all orders of them."""
        sets, skipped = self.group(data)
        orders = [order for parts in sets.values() for order in permutations(parts)]
        joined = [" ".join(order) for order in orders]
        segments = [segment for order in orders for segment in order]

        def summarize(embeddings: Embeddings) -> ProbeSums:
            whole = embeddings.select(joined).astype(float)
            alone = embeddings.select(segments).astype(float)
            by_order = alone.reshape(len(orders), SEGMENTS, whole.shape[-1])
            cosines = np.einsum("od,opd->op", whole, by_order)
            by_set = cosines.reshape(len(sets), factorial(SEGMENTS), SEGMENTS)
            return ProbeSums.from_means(self.positions, list(sets), by_set.mean(axis=1), skipped)

        return ProbePlan(summarize, [*segments, *joined])


class PermutationParts(Permutation):
    """The segments are parts of one text, within the window wherever the text is."""

    name = "permutation_parts"
    title = "Parts of a text in all orders"
    joined = 1
    is_variant = True
