"""The share of each segment in the vector of the texts that join the segments in all orders, by the segment's place.

The permuted segments of arXiv 2601.16934 (its first experiment, after its code): sets of P texts are joined by spaces in all P!
orders, so that content cancels, and the cosine of a joined text and each of its segments, encoded alone, is averaged by place.
The paper's segments are whole texts of 1,000 to 2,000 tokens, at most 8,192 together. Here a text is cut to its first tokens if
the model's window would not hold P of them: otherwise its place would be measured by what is truncated. Sets are disjoint, of
the texts in the order in which they were drawn, so that each counts as one document of the bootstrap; the paper's share texts.

The paper also has a repeated-measures ANOVA, the mean of token states in place of the text's vector, and attention; not here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import ClassVar, TypeAlias

import numpy as np

from posir_probe.probe import (
    POSITIVE_IS_START,
    Preference,
    ProbeData,
    ProbePlan,
    Summary,
    ignore_rounding,
    select_long_enough,
    start_to_end,
)
from posir_probe.sums import ProbeSums
from posir_probe.view import ProbeView, SummaryLabel, compare_sides
from posir_tasks.cells import Floats
from posir_tasks.embeddings.encoding import Embeddings
from posir_tasks.interventions import find_parts
from posir_tasks.text.chunks import Chunking
from posir_tasks.text.tokenizer import Tokenizer

#: Names of places; the paper has three to six segments.
PLACES = ("first", "second", "third", "fourth", "fifth", "sixth")
#: Most tokens of a joined text (section on data).
MOST_TOKENS = 8_192


@dataclass(frozen=True)
class SegmentSet:
    """Segments that are joined in all orders."""

    name: str
    """Id by which the bootstrap draws it."""
    segments: tuple[str, ...]

    def join_all_orders(self) -> list[str]:
        """Return the segments joined by spaces in all orders, those of `itertools.permutations`."""
        return [" ".join(order) for order in permutations(self.segments)]


#: Makes sets of a number of segments, and counts the texts in none, by reason.
Grouping: TypeAlias = Callable[[ProbeData, int], tuple[list[SegmentSet], Counter[str]]]


def cut_to_tokens(tokenizer: Tokenizer, texts: Sequence[str], tokens: int) -> list[str]:
    """Return the first tokens of each text, at least one."""
    chunking = Chunking(max(1, tokens), max(1, tokens))
    return [chunking.divide(text, spans)[0].strip() for text, spans in zip(texts, tokenizer.find_tokens(texts), strict=True)]


def count_room(data: ProbeData) -> int:
    """Return the most tokens of a joined text."""
    return min(MOST_TOKENS, data.room or MOST_TOKENS)


def join_texts(data: ProbeData, size: int) -> tuple[list[SegmentSet], Counter[str]]:
    """Return disjoint sets of consecutive texts, cut so that a set fits the model's window."""
    chosen, skipped = select_long_enough(data)
    # A cut within a word may make one more token of it.
    cut = cut_to_tokens(data.tokenizer, [text for _, text in chosen], count_room(data) // size - 1)
    used = len(chosen) // size * size
    skipped["left over from sets"] += len(chosen) - used
    names = [name for name, _ in chosen]
    sets = [SegmentSet("\n".join(names[at : at + size]), tuple(cut[at : at + size])) for at in range(0, used, size)]
    return sets, +skipped


def divide_text(data: ProbeData, size: int) -> tuple[list[SegmentSet], Counter[str]]:
    """Return the parts of each text, equal in words, cut so that they fit the model's window."""
    chosen, skipped = select_long_enough(data)
    cut = cut_to_tokens(data.tokenizer, [text for _, text in chosen], count_room(data) - size)
    parts = [
        (name, tuple(span.of(text) for span in find_parts(text, size))) for (name, _), text in zip(chosen, cut, strict=True)
    ]
    skipped["fewer words within the window than segments"] += sum(len(segments) < size for _, segments in parts)
    return [SegmentSet(name, segments) for name, segments in parts if len(segments) == size], +skipped


def average_by_place(embeddings: Embeddings, sets: Sequence[SegmentSet]) -> Floats:
    """Return the mean cosine of joined texts and their segment at each place over all orders, shape (sets, P)."""
    means = []
    for segment_set in sets:
        joined = embeddings.select(segment_set.join_all_orders()).astype(np.float64)
        alone = embeddings.select(segment_set.segments).astype(np.float64)
        orders = np.array(list(permutations(range(len(alone)))))
        means.append(np.einsum("od,opd->p", joined, alone[orders]) / len(orders))
    return np.array(means, np.float64)


def gini(values: Floats) -> Floats:
    """Return the Gini coefficient of P means, sum_ij |m_i - m_j| / (2 P^2 mean m); NaN unless all are positive."""
    differences = ignore_rounding(values[..., :, None] - values[..., None, :])
    total = np.abs(differences).sum(axis=(-2, -1))
    with np.errstate(invalid="ignore", divide="ignore"):
        coefficients: Floats = total / (2 * values.shape[-1] ** 2 * values.mean(axis=-1))
    return np.where((values > 0).all(axis=-1), coefficients, np.nan)


def relative_drop(values: Floats) -> Floats:
    """Return 1 - m_last / m_first; NaN unless both are positive."""
    with np.errstate(invalid="ignore", divide="ignore"):
        drops: Floats = ignore_rounding(start_to_end(values)) / values[..., 0]
    return np.where((values[..., 0] > 0) & (values[..., -1] > 0), drops, np.nan)


@dataclass(frozen=True)
class Permutation:
    """Cosine of a joined text and its segment at each place, over all orders of the segments."""

    name: str = "permutation"
    segments: int = 3
    group: Grouping = join_texts

    title: str = "Joined texts in all orders"
    source: ClassVar[str] = "arXiv 2601.16934, permuted segments"
    preference: ClassVar[Preference] = POSITIVE_IS_START
    notes: ClassVar[tuple[str, ...]] = (
        "Texts are cut so that the segments fit the model's window together. Documents are the sets of texts that are joined. "
        "An order-blind embedder has equal values; differences below 1e-6 are rounding errors and count as 0.",
    )

    @property
    def view(self) -> ProbeView:
        """The first place against the last."""
        parts = "parts of a text" if self.group is divide_text else "joined texts"
        find = compare_sides(
            self.summaries["start_to_end"],
            f"In all orders of {self.segments} {parts}, the first is {{}} closer to the whole than the last",
            f"In all orders of {self.segments} {parts}, the last is {{}} closer to the whole than the first",
            f"In all orders of {self.segments} {parts}, first and last are not shown to differ",
        )
        return ProbeView(
            find,
            value="Cosine of the joined text and the segment at this place",
            place="Place of the segment",
            summaries={
                "start_to_end": SummaryLabel(f"First minus last of {parts}"),
                "relative_drop": SummaryLabel("Relative drop from first to last"),
                "gini": SummaryLabel("Gini coefficient of the places"),
            },
            contrast="start_to_end",
            in_window=True,
        )

    @property
    def positions(self) -> tuple[str, ...]:
        """Names of the places."""
        return PLACES[: self.segments]

    @property
    def summaries(self) -> Mapping[str, Summary]:
        """First minus last, the relative drop, and the Gini coefficient, which has no sign and is biased upwards."""
        return {
            "start_to_end": lambda values: ignore_rounding(start_to_end(values)),
            "relative_drop": relative_drop,
            "gini": gini,
        }

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode the segments, and all orders of them."""
        sets, skipped = self.group(data, self.segments)
        texts = [text for segment_set in sets for text in (*segment_set.segments, *segment_set.join_all_orders())]

        def summarize(embeddings: Embeddings) -> ProbeSums:
            values = average_by_place(embeddings, sets).reshape(len(sets), self.segments)
            return ProbeSums.from_means(self.positions, [segment_set.name for segment_set in sets], values, skipped)

        return ProbePlan(summarize, texts)


#: Segments are parts of one text: what is measured is within the window wherever the text is.
PARTS = Permutation("permutation_parts", group=divide_text, title="Parts of a text in all orders")
