"""Weights of a text's segments in its embedding, by position.

`SegmentSimilarity` is the cosine of a text with each of its segments. The version with three
segments is from Zeng et al. 2025 (arXiv 2505.13950v5, A.4, Table 4). As in the authors' code, texts
are split at characters `int(.333 n)` and `int(.666 n)`. The version with ten segments is from
'Built-in or learned?' (arXiv 2605.26578v1, section 6, Fig. 3), which does not define the unit of
'equal length'; here it is characters. Segments are embedded separately, so the value of a
truncated segment is not 0, but the similarity of two unrelated texts.

`Permutation` is the first experiment of arXiv 2601.16934, permuted segments, as in its code. Sets
of P texts are joined with spaces in all P! orders, so that effects of content cancel out. The
cosines of the joined text with its segments are averaged by position. The paper's segments are
whole texts of 1,000 to 2,000 tokens, with at most 8,192 tokens together. Here, texts are truncated
so that P of them fit the model's window; otherwise the probe would measure truncation. The paper's
sets share texts. Here, sets are disjoint, so that each set is a unit of the bootstrap, and keep the
order of the sample. The repeated-measures ANOVA, the mean of token states, and attention are not
reproduced.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise, permutations
from math import factorial
from typing import Literal

import numpy as np

from posir_probe.data import ProbeData, select_long_enough, truncate_texts
from posir_probe.probe import (
    END_SUMMARIES,
    Probe,
    ProbePlan,
    Summary,
    compute_range,
    compute_start_minus_end,
    ignore_rounding,
    plan_cosines,
    summarize_ends,
)
from posir_probe.results import ProbeSums
from posir_tasks.base.arrays import Floats
from posir_tasks.base.batches import split_batches
from posir_tasks.base.wording import format_ordinal
from posir_tasks.models.embeddings.encoding import Embeddings
from posir_tasks.text.interventions import find_parts

#: Segment edges in the code of Zeng et al. 2025, as shares of the characters.
THIRD_EDGES = (0.0, 0.333, 0.666, 1.0)
#: Maximum number of tokens in a joined text, from the paper.
MAX_TOKENS = 8_192
#: Number of segments in a joined text.
SEGMENTS = 3


class SegmentSimilarity(Probe):
    """Cosine of a text with each of its contiguous segments of equal length."""

    notes = (
        "A text and each of its parts are embedded separately. A higher cosine means that the part "
        "has more weight in the embedding of the text. The cosine is not 0 for a truncated part, "
        "since parts of a text are similar.",
        "For models with last-token pooling, the last part usually has the highest value.",
    )
    headline = END_SUMMARIES
    preference_sign = 1
    shows_window = True
    value_title = "Cosine of text and part"

    def __init__(self, segments: Literal[3, 10]) -> None:
        part = "third" if segments == 3 else "tenth"
        numbers = range(1, segments + 1)
        self.source = "arXiv 2605.26578v1, section 6"
        self.positions = tuple(map(str, numbers))
        self.edges = np.linspace(0, 1, segments + 1).tolist()
        if segments == 3:
            self.source = "arXiv 2505.13950v5, A.4"
            self.positions = ("begin", "middle", "end")
            self.edges = THIRD_EDGES
        self.name = f"segment_similarity_{segments}"
        self.title = f"Whole text and its {part}s"
        self.summaries = {
            **summarize_ends(f"First minus last {part} of a text", f"First {part}", f"Last {part}"),
            "range": Summary(f"Range over the {part}s", compute_range),
            "range_without_last": Summary(
                f"Range without the last {part}", lambda values: compute_range(values[..., :-1])
            ),
        }
        self.position_title = f"Midpoint of the {part}, as a share of the text"
        self.position_names = {}
        self.relative_positions = {}
        for name, number in zip(self.positions, numbers, strict=True):
            self.position_names[name] = (
                f"{format_ordinal(number) if number < segments else 'last'} {part}"
            )
            self.relative_positions[name] = (number - 0.5) / segments

    def plan(self, data: ProbeData) -> ProbePlan:
        """Compare each text with its segments."""
        documents, skipped = select_long_enough(data)
        texts = list(documents.values())
        segments = []
        for text in texts:
            edges = [int(share * len(text)) for share in self.edges]
            segments.append([text[low:high] for low, high in pairwise(edges)])
        return plan_cosines(self.positions, list(documents), texts, segments, skipped)


@np.errstate(invalid="ignore", divide="ignore")
def compute_gini(values: Floats) -> Floats:
    """Compute the Gini coefficient of P means, sum_ij |m_i - m_j| / (2 P^2 mean m).

    Reduces shape (..., P) to (...). NaN unless all means are positive.
    """
    differences = ignore_rounding(values[..., :, None] - values[..., None, :])
    total = np.abs(differences).sum(axis=(-2, -1))
    scale = 2 * values.shape[-1] ** 2 * values.mean(axis=-1)
    return np.where((values > 0).all(axis=-1), total / scale, np.nan)


@np.errstate(invalid="ignore", divide="ignore")
def compute_relative_drop(values: Floats) -> Floats:
    """Compute 1 - m_last / m_first. NaN unless both are positive."""
    drops = compute_start_minus_end(values) / values[..., 0]
    return np.where((values[..., [0, -1]] > 0).all(axis=-1), drops, np.nan)


class Permutation(Probe):
    """Cosine of a joined text with its segment at each position, averaged over all orders."""

    name = "permutation"
    title = "Joined texts in all orders"
    set_size = SEGMENTS
    source = "arXiv 2601.16934, permuted segments"
    notes = (
        "Texts are joined in all orders, and each joined text is compared with its segments. Equal "
        "values mean that the position in the text does not matter.",
        "Texts are truncated so that joined texts fit the model's window. Joined texts about "
        "different subjects are not natural. Differences below 1e-6 are rounding errors and count "
        "as 0.",
    )
    headline = END_SUMMARIES
    preference_sign = 1
    in_window = True
    value_title = "Cosine of joined text and segment"
    position_title = "Position of the segment"

    positions = tuple(format_ordinal(number) for number in range(1, SEGMENTS + 1))
    summaries = {
        **summarize_ends("Segments, first minus last", "First position", "Last position"),
        "relative_drop": Summary("Relative drop from first to last", compute_relative_drop),
        "gini": Summary("Gini coefficient of the positions", compute_gini),
    }

    missing_set = "left over from sets"
    """Reason why a text is not in a set."""

    def build_sets(self, texts: Mapping[str, str]) -> dict[str, list[str]]:
        """Group consecutive texts into sets, by set id."""
        sets = {}
        for names in split_batches(list(texts), SEGMENTS):
            if len(names) == SEGMENTS:
                sets["\n".join(names)] = [texts[name] for name in names]
        return sets

    def plan(self, data: ProbeData) -> ProbePlan:
        """Compare joined texts in all orders with their segments."""
        documents, skipped = select_long_enough(data)
        room = min(MAX_TOKENS, data.room or MAX_TOKENS)
        # Truncation within a word may add a token.
        tokens = max(1, room // self.set_size - SEGMENTS // self.set_size)
        truncated = truncate_texts(data.tokenizer, list(documents.values()), tokens)
        sets = self.build_sets(dict(zip(documents, map(str.strip, truncated), strict=True)))
        skipped[self.missing_set] += len(documents) - len(sets) * self.set_size
        orders = [order for segments in sets.values() for order in permutations(segments)]
        joined_texts = [" ".join(order) for order in orders]
        segments = [segment for order in orders for segment in order]

        def summarize(embeddings: Embeddings) -> ProbeSums:
            joined = embeddings.select(joined_texts).astype(float)
            by_order = embeddings.select(segments).astype(float)
            by_order = by_order.reshape(len(orders), SEGMENTS, joined.shape[-1])
            cosines = np.einsum("od,opd->op", joined, by_order)
            by_set = cosines.reshape(len(sets), factorial(SEGMENTS), SEGMENTS)
            return ProbeSums.from_means(self.positions, list(sets), by_set.mean(axis=1))

        return ProbePlan(summarize, [*segments, *joined_texts], skipped=skipped)


class PermutationParts(Permutation):
    """Permutation of the parts of a text, which is truncated to the window."""

    name = "permutation_parts"
    title = "Parts of a text in all orders"
    set_size = 1
    is_variant = True
    missing_set = "fewer words within the window than segments"

    def build_sets(self, texts: Mapping[str, str]) -> dict[str, list[str]]:
        """Split each text into segments with equal numbers of words."""
        sets = {}
        for name, text in texts.items():
            parts = find_parts(text, SEGMENTS)
            if len(parts) == SEGMENTS:
                sets[name] = [span.slice(text) for span in parts]
        return sets
