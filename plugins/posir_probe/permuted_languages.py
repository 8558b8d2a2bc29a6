"""Segments of two languages in all orders: the first in one language, the rest in the other.

The second part of the first experiment of arXiv 2601.16934, for every ordered pair of languages: see
`posir_probe.permutation`. Data needs the same documents in several languages under the same ids, as XQuAD's.

The first segment is alone in its language, so its value contains place, language and that. Two contrasts separate them. The
second segment and the last are of the same language, and only their places differ. A language's advantage compares it as the
language of the first segment with itself as that of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import ClassVar

import numpy as np

from posir_probe.permutation import PLACES, count_room, cut_to_tokens
from posir_probe.probe import (
    POSITIVE_IS_START,
    Preference,
    ProbeData,
    ProbePlan,
    Summary,
    ignore_rounding,
    select_long_enough,
    value_range,
)
from posir_probe.sums import ProbeSums
from posir_probe.view import ProbeView, SummaryLabel, compare_sides
from posir_tasks.cells import Floats
from posir_tasks.embeddings.encoding import Embeddings
from posir_tasks.errors import PosirError

NOT_PARALLEL = "has no documents in several languages under the same ids. Give a folder in the PosIR layout that has."


def split_by_pair(values: Floats, segments: int) -> Floats:
    """Return values, shape (..., pairs * P), by ordered pair of languages, shape (..., pairs, P)."""
    return values.reshape(*values.shape[:-1], -1, segments)


def compare_places(values: Floats, segments: int, place: int) -> Floats:
    """Return a place minus the last one, averaged over all ordered pairs of languages."""
    by_pair = split_by_pair(values, segments)
    difference: Floats = ignore_rounding((by_pair[..., place] - by_pair[..., -1]).mean(axis=-1))
    return difference


def find_advantages(values: Floats, segments: int) -> Floats:
    """Return the advantage of each of n languages, shape (..., n), in alphabetical order.

    Half the mean, over the other languages, of first minus rest with this language first and the other in the rest, minus the
    same with the two exchanged. What the first place is worth, in whatever language, cancels.
    """
    by_pair = split_by_pair(values, segments)
    gaps = by_pair[..., 0] - by_pair[..., 1:].mean(axis=-1)
    # n languages have n (n - 1) ordered pairs.
    languages = round((1 + np.sqrt(1 + 4 * gaps.shape[-1])) / 2)
    advantages = np.zeros((*gaps.shape[:-1], languages))
    for pair, (first, rest) in enumerate(permutations(range(languages), 2)):
        advantages[..., first] += gaps[..., pair] / (2 * (languages - 1))
        advantages[..., rest] -= gaps[..., pair] / (2 * (languages - 1))
    return advantages


def language_range(values: Floats, segments: int) -> Floats:
    """Return the largest advantage of a language minus the smallest; like every range it is biased upwards."""
    return value_range(find_advantages(values, segments))


@dataclass(frozen=True)
class PermutedLanguages:
    """Cosine of a joined text of two languages and its segment at each place, over all orders of the segments."""

    segments: int = 3

    name: ClassVar[str] = "permutation_languages"
    needs_translations: ClassVar[bool] = True
    title: ClassVar[str] = "Joined texts in two languages"
    source: ClassVar[str] = "arXiv 2601.16934, permuted segments in two languages"
    preference: ClassVar[Preference] = POSITIVE_IS_START
    notes: ClassVar[tuple[str, ...]] = (
        "The first segment is alone in its language. Only second minus last is 0 for an order-blind embedder: both segments "
        "are of the same language. Documents are the sets of texts that are joined.",
    )

    @property
    def view(self) -> ProbeView:
        """The second place against the last, which are of one language."""
        find = compare_sides(
            self.summaries["second_to_last"],
            "Of two segments in one language, the earlier is {} closer to the joined text than the last",
            "Of two segments in one language, the last is {} closer to the joined text than the earlier",
            "Two segments in one language are not shown to differ by their place in the joined text",
        )
        return ProbeView(
            find,
            value="Cosine of the joined text and the segment",
            place="Place of the segment",
            summaries={
                "second_to_last": SummaryLabel("Second minus last, of one language"),
                "start_to_end": SummaryLabel("First minus last, of two languages"),
                "language_range": SummaryLabel("Range of the languages' advantages"),
            },
            contrast="second_to_last",
            in_window=True,
        )

    @property
    def summaries(self) -> Mapping[str, Summary]:
        """Second minus last and first minus last over all pairs, and the range of the languages' advantages."""
        return {
            "second_to_last": partial(compare_places, segments=self.segments, place=1),
            "start_to_end": partial(compare_places, segments=self.segments, place=0),
            "language_range": partial(language_range, segments=self.segments),
        }

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode the segments in every language, and all orders of them in every ordered pair of languages.

        Raises:
            PosirError: The data is of one language.
        """
        if len(data.translations) < 2:
            raise PosirError(f"The data {NOT_PARALLEL}")
        chosen, skipped = select_long_enough(data)
        names = [name for name, _ in chosen]
        used = len(names) // self.segments * self.segments
        skipped["left over from sets"] += len(names) - used
        sets = [tuple(names[at : at + self.segments]) for at in range(0, used, self.segments)]
        room = count_room(data) // self.segments - 1
        texts = {
            language: dict(zip(names, cut_to_tokens(data.tokenizer, [known[name] for name in names], room), strict=True))
            for language, known in data.translations.items()
        }
        pairs = list(permutations(texts, 2))
        orders = [
            [texts[first][order[0]], *(texts[rest][name] for name in order[1:])]
            for members in sets
            for first, rest in pairs
            for order in permutations(members)
        ]
        joined = [" ".join(order) for order in orders]
        positions = [f"first {first}, rest {rest} · {place}" for first, rest in pairs for place in PLACES[: self.segments]]

        def summarize(embeddings: Embeddings) -> ProbeSums:
            drawn = ["\n".join(members) for members in sets]
            if not sets:
                return ProbeSums.from_means(positions, drawn, np.empty((0, len(positions))), +skipped)
            whole = embeddings.select(joined).astype(np.float64)
            alone = embeddings.select(segment for order in orders for segment in order).astype(np.float64)
            cosines = np.einsum("od,opd->op", whole, alone.reshape(len(orders), self.segments, whole.shape[-1]))
            values = cosines.reshape(len(sets), len(pairs), -1, self.segments).mean(axis=2)
            return ProbeSums.from_means(positions, drawn, values.reshape(len(sets), len(positions)), +skipped)

        return ProbePlan(summarize, [*joined, *(segment for order in orders for segment in order)])
