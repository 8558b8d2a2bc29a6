"""The share of each segment in the vector of the texts that join the segments in all orders, by the segment's place.

The permuted segments of arXiv 2601.16934 (its first experiment, after its code): sets of P texts are joined by spaces in all P!
orders, so that content cancels, and the cosine of a joined text and each of its segments, encoded alone, is averaged by place.
The paper's segments are whole texts of 1,000 to 2,000 tokens, at most 8,192 together. Here a text is cut to its first tokens if
the model's window would not hold P of them: otherwise its place would be measured by what is truncated. Sets are disjoint, of
the texts in the order in which they were drawn, so that each counts as one document of the bootstrap; the paper's share texts.

The paper also has a repeated-measures ANOVA, the mean of token states in place of the text's vector, and attention; not here.

`PermutedLanguages` is the second part of the experiment: the first segment in one language, the rest in another, for every
ordered pair of languages. Data needs the same documents in several languages under the same ids, as XQuAD's. The first segment
is alone in its language, so its value contains place, language and that. Two contrasts separate them. The second segment and
the last are of the same language, and only their places differ. A language's advantage compares it as the language of the first
segment with itself as the language of the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations

import numpy as np

from posir_probe.data import ProbeData, select_long_enough
from posir_probe.probe import (
    POSITIVE_IS_START,
    Probe,
    ProbePlan,
    SignedFinding,
    Summary,
    ignore_rounding,
    start_to_end,
    value_range,
)
from posir_probe.results import ProbeSums
from posir_tasks.cells import Floats
from posir_tasks.embeddings.encoding import Embeddings
from posir_tasks.errors import PosirError
from posir_tasks.interventions import find_parts
from posir_tasks.text.chunks import Chunking
from posir_tasks.text.tokenizer import Tokenizer

NOT_PARALLEL = "has no documents in several languages under the same ids. Give a folder in the PosIR layout that has."
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


class Permutation(Probe):
    """Cosine of a joined text and its segment at each place, over all orders of the segments."""

    name = "permutation"
    title = "Joined texts in all orders"
    source = "arXiv 2601.16934, permuted segments"
    notes = (
        "Texts are cut so that the segments fit the model's window together. Documents are the sets of texts that are joined. "
        "An order-blind embedder has equal values; differences below 1e-6 are rounding errors and count as 0.",
    )
    preference = POSITIVE_IS_START
    compares_ends = True
    in_window = True
    value_title = "Cosine of the joined text and the segment at this place"
    place_title = "Place of the segment"
    parts = "joined texts"
    """The unit of the segments."""

    def __init__(self, segments: int = 3) -> None:
        self.segments = segments
        self.positions = PLACES[:segments]
        self.summaries = {
            "start_to_end": Summary(f"First minus last of {self.parts}", lambda values: ignore_rounding(start_to_end(values))),
            "relative_drop": Summary("Relative drop from first to last", relative_drop),
            "gini": Summary("Gini coefficient of the places", gini),
        }
        self.finding = SignedFinding(
            f"In all orders of {segments} {self.parts}, the first is {{}} closer to the whole than the last",
            f"In all orders of {segments} {self.parts}, the last is {{}} closer to the whole than the first",
            f"whether, in all orders of {segments} {self.parts}, the first or the last is closer to the whole",
        )

    def group(self, data: ProbeData) -> tuple[list[SegmentSet], Counter[str]]:
        """Return the sets of segments that are joined, and the number of texts in none, by reason."""
        return join_texts(data, self.segments)

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode the segments, and all orders of them."""
        sets, skipped = self.group(data)
        texts = [text for segment_set in sets for text in (*segment_set.segments, *segment_set.join_all_orders())]

        def summarize(embeddings: Embeddings) -> ProbeSums:
            values = average_by_place(embeddings, sets).reshape(len(sets), self.segments)
            return ProbeSums.from_means(self.positions, [segment_set.name for segment_set in sets], values, skipped)

        return ProbePlan(summarize, texts)


class PermutationParts(Permutation):
    """The same of parts of one text: what is measured is within the window wherever the text is."""

    name = "permutation_parts"
    title = "Parts of a text in all orders"
    is_variant = True
    parts = "parts of a text"

    def group(self, data: ProbeData) -> tuple[list[SegmentSet], Counter[str]]:
        """Return the parts of each text."""
        return divide_text(data, self.segments)


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


class PermutedLanguages(Permutation):
    """Cosine of a joined text of two languages and its segment at each place, over all orders of the segments."""

    name = "permutation_languages"
    title = "Joined texts in two languages"
    source = "arXiv 2601.16934, permuted segments in two languages"
    notes = (
        "The first segment is alone in its language. Only second minus last is 0 for an order-blind embedder: both segments "
        "are of the same language. Documents are the sets of texts that are joined.",
    )
    is_variant = True
    needs_translations = True
    value_title = "Cosine of the joined text and the segment"

    def __init__(self, segments: int = 3) -> None:
        super().__init__(segments)
        self.positions = ()
        second, first = (partial(compare_places, segments=segments, place=place) for place in (1, 0))
        self.summaries = {
            "second_to_last": Summary("Second minus last, of one language", second),
            "start_to_end": Summary("First minus last, of two languages", first),
            "language_range": Summary("Range of the languages' advantages", partial(language_range, segments=segments)),
        }
        self.finding = SignedFinding(
            "Of two segments in one language, the earlier is {} closer to the joined text than the last",
            "Of two segments in one language, the last is {} closer to the joined text than the earlier",
            "whether, of two segments in one language, the earlier or the last is closer to the joined text",
        )

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
