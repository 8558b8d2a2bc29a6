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
counts as one document of the bootstrap; the paper's share texts. The paper also has a
repeated-measures ANOVA, the mean of token states in place of the text's vector, and attention; not
here.
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
    Form,
    Probe,
    ProbePlan,
    Summary,
    ignore_rounding,
    plan_cosines,
    start_minus_end,
    value_range,
)
from posir_probe.results import ProbeSums, at
from posir_tasks.base.arrays import Floats
from posir_tasks.base.wording import ordinal
from posir_tasks.models.embeddings.encoding import Embeddings
from posir_tasks.text.chunks import Chunking
from posir_tasks.text.interventions import find_parts
from posir_tasks.text.tokenizer import Tokenizer

#: Where the code of Zeng et al. 2025 cuts, as shares of the characters.
THIRDS = (0.0, 0.333, 0.666, 1.0)
#: Most tokens of a joined text (section on data).
MOST_TOKENS = 8_192


class SegmentSimilarity(Probe):
    """Cosine of a text and each of its contiguous segments, equal in characters up to one."""

    notes = (
        "A text and each of its parts are embedded alone, and their cosine is taken. A higher "
        "cosine means that more of the "
        "part is in the embedding of the text. It isn't 0 for a truncated part, as any two parts "
        "of a text are similar.",
        "Models with last-token pooling usually have their highest value in the last part.",
    )
    stated = ("start_minus_end", "first", "last")
    preference_sign = 1
    shows_window = True
    value_title = "Cosine of text and part"
    form = Form.PLACES

    def __init__(self, segments: Literal[3, 10]) -> None:
        part = {3: "third", 10: "tenth"}[segments]
        self.segments = segments
        self.name = f"segment_similarity_{segments}"
        self.title = f"Whole text and its {part}s"
        self.source = "arXiv 2505.13950, A.4" if segments == 3 else "arXiv 2605.26578, section 6"
        self.positions = (
            ("begin", "middle", "end")
            if segments == 3
            else tuple(str(part + 1) for part in range(segments))
        )
        self.summaries = {
            "start_minus_end": Summary(f"First minus last {part} of a text", start_minus_end),
            "first": Summary(f"First {part}", at(0)),
            "last": Summary(f"Last {part}", at(-1)),
            "range": Summary(f"Range over the {part}s", value_range),
            "range_without_last": Summary(
                f"Range without the last {part}", lambda values: value_range(values[..., :-1])
            ),
        }
        self.place_title = f"Middle of the {part}, as a share of the text"
        self.place_names = {
            name: f"{'last' if place == segments else ordinal(place)} {part}"
            for place, name in enumerate(self.positions, 1)
        }
        self.place_shares = {
            name: (place + 0.5) / segments for place, name in enumerate(self.positions)
        }

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode every text and its segments."""
        chosen, skipped = select_long_enough(data)
        shares = (
            THIRDS
            if self.segments == 3
            else [part / self.segments for part in range(self.segments + 1)]
        )
        parts = [
            [text[low:high] for low, high in pairwise(int(share * len(text)) for share in shares)]
            for text in chosen.values()
        ]
        return plan_cosines(self.positions, list(chosen), list(chosen.values()), parts, skipped)


def cut_to_tokens(tokenizer: Tokenizer, texts: Sequence[str], tokens: int) -> list[str]:
    """Return the first tokens of each text, at least one."""
    chunking = Chunking(max(1, tokens), max(1, tokens))
    return [
        chunking.divide(text, spans)[0].strip()
        for text, spans in zip(texts, tokenizer.find_tokens(texts), strict=True)
    ]


def gini(values: Floats) -> Floats:
    """Return the Gini coefficient of P means, sum_ij |m_i - m_j| / (2 P^2 mean m); NaN unless all
    are positive.
    """
    differences = ignore_rounding(values[..., :, None] - values[..., None, :])
    with np.errstate(invalid="ignore", divide="ignore"):
        coefficients = np.abs(differences).sum(axis=(-2, -1)) / (
            2 * values.shape[-1] ** 2 * values.mean(axis=-1)
        )
    return np.where((values > 0).all(axis=-1), coefficients, np.nan)


def relative_drop(values: Floats) -> Floats:
    """Return 1 - m_last / m_first; NaN unless both are positive."""
    with np.errstate(invalid="ignore", divide="ignore"):
        drops = ignore_rounding(start_minus_end(values)) / values[..., 0]
    return np.where((values[..., 0] > 0) & (values[..., -1] > 0), drops, np.nan)


class Permutation(Probe):
    """Cosine of a joined text and its segment at each place, over all orders of the segments."""

    name = "permutation"
    title = "Joined texts in all orders"
    source = "arXiv 2601.16934, permuted segments"
    notes = (
        "Texts are joined in all orders, and compared with each of them. If the values are equal, "
        "the place in the text "
        "does not matter.",
        "Texts are cut so that they fit the model's window together. Several on different "
        "subjects are no natural text. "
        "Differences below 1e-6 are rounding errors and count as 0.",
    )
    stated = ("start_minus_end", "first", "last")
    preference_sign = 1
    in_window = True
    value_title = "Cosine of joined text and segment"
    place_title = "Place of the segment"
    parts = "joined texts"
    """The unit of the segments."""

    def __init__(self, segments: int = 3) -> None:
        self.segments = self.joined = segments
        self.positions = tuple(ordinal(place) for place in range(1, segments + 1))
        self.summaries = {
            "start_minus_end": Summary(
                f"{self.parts.capitalize()}, first minus last",
                lambda values: ignore_rounding(start_minus_end(values)),
            ),
            "first": Summary("First place", at(0)),
            "last": Summary("Last place", at(-1)),
            "relative_drop": Summary("Relative drop from first to last", relative_drop),
            "gini": Summary("Gini coefficient of the places", gini),
        }

    def group(self, data: ProbeData) -> tuple[dict[str, Sequence[str]], Counter[str]]:
        """Return the segments of each set by its id, and the number of texts in none, by reason.

        Sets are of consecutive texts, cut so that a set fits the model's window.
        """
        chosen, skipped = select_long_enough(data)
        names = list(chosen)
        skipped["left over from sets"] += len(names) % self.segments
        # A cut within a word may make one more token of it.
        room = min(MOST_TOKENS, data.room or MOST_TOKENS) // self.segments - 1
        cut = cut_to_tokens(data.tokenizer, list(chosen.values()), room)
        starts = range(0, len(names) - self.segments + 1, self.segments)
        return {
            "\n".join(names[start : start + self.segments]): cut[start : start + self.segments]
            for start in starts
        }, +skipped

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode the segments, and all orders of them."""
        sets, skipped = self.group(data)
        orders = [order for parts in sets.values() for order in permutations(parts)]
        joined, segments = (
            [" ".join(order) for order in orders],
            [segment for order in orders for segment in order],
        )

        def summarize(embeddings: Embeddings) -> ProbeSums:
            whole = embeddings.select(joined).astype(np.float64)
            alone = (
                embeddings.select(segments)
                .astype(np.float64)
                .reshape(len(orders), self.segments, whole.shape[-1])
            )
            cosines = np.einsum("od,opd->op", whole, alone)
            means = cosines.reshape(len(sets), factorial(self.segments), self.segments).mean(axis=1)
            return ProbeSums.from_means(self.positions, list(sets), means, skipped)

        return ProbePlan(summarize, [*segments, *joined])


class PermutationParts(Permutation):
    """The same of parts of one text: what is measured is within the window wherever the text is."""

    name = "permutation_parts"
    title = "Parts of a text in all orders"
    is_variant = True
    parts = "parts of a text"

    def __init__(self, segments: int = 3) -> None:
        super().__init__(segments)
        self.joined = 1

    def group(self, data: ProbeData) -> tuple[dict[str, Sequence[str]], Counter[str]]:
        """Return the parts of each text, equal in words, cut so that they fit the model's
        window.
        """
        chosen, skipped = select_long_enough(data)
        room = min(MOST_TOKENS, data.room or MOST_TOKENS) - self.segments
        cut = cut_to_tokens(data.tokenizer, list(chosen.values()), room)
        parts = {
            name: [span.of(text) for span in find_parts(text, self.segments)]
            for name, text in zip(chosen, cut, strict=True)
        }
        sets: dict[str, Sequence[str]] = {
            name: spans for name, spans in parts.items() if len(spans) == self.segments
        }
        skipped["fewer words within the window than segments"] += len(parts) - len(sets)
        return sets, +skipped
