"""The share of each segment of a text in the text's embedding: the cosine of both.

Three segments: Zeng et al. 2025 (arXiv 2505.13950, A.4, Table 4), cut as in the authors' code at characters `int(.333 n)` and
`int(.666 n)`. Ten segments: 'Built-in or learned?' (arXiv 2605.26578, section 6, Fig. 3), which does not state the unit of its
'equal length'; here characters. Every segment is embedded alone, so a model that reads only a beginning does not give 0 for
later segments, but the similarity of any two texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np

from posir_probe.probe import (
    POSITIVE_IS_START,
    Preference,
    ProbeData,
    ProbePlan,
    Summary,
    select_long_enough,
    start_to_end,
    value_range,
)
from posir_probe.sums import ProbeSums
from posir_probe.view import Form, ProbeView, SummaryLabel, compare_sides
from posir_tasks.display.wording import ordinal
from posir_tasks.embeddings.encoding import Embeddings

#: Where the code of Zeng et al. 2025 cuts, as shares of the characters.
THIRDS = (0.0, 0.333, 0.666, 1.0)


def cut_segments(text: str, segments: int) -> list[str]:
    """Return the contiguous segments of a text, equal in characters up to one."""
    shares = THIRDS if segments == 3 else [part / segments for part in range(segments + 1)]
    cuts = [int(share * len(text)) for share in shares]
    return [text[low:high] for low, high in pairwise(cuts)]


@dataclass(frozen=True)
class SegmentSimilarity:
    """Cosine of a text and each of its segments."""

    segments: int = 10

    preference: ClassVar[Preference] = POSITIVE_IS_START

    @property
    def name(self) -> str:
        """`segment_similarity_3` or `segment_similarity_10`."""
        return f"segment_similarity_{self.segments}"

    @property
    def title(self) -> str:
        """Title of what is measured."""
        return f"Whole text and its {self._parts}s"

    @property
    def _parts(self) -> str:
        return {3: "third", 10: "tenth"}.get(self.segments, f"1/{self.segments} part")

    @property
    def view(self) -> ProbeView:
        """The first part against the last."""
        find = compare_sides(
            start_to_end,
            f"The first {self._parts} of a text is {{}} closer to the whole text than the last",
            f"The last {self._parts} of a text is {{}} closer to the whole text than the first",
            f"First and last {self._parts} of a text are not shown to differ in how close they are to the whole",
        )
        return ProbeView(
            find,
            value="Cosine of the text and the part",
            place=f"Middle of the {self._parts}, as a share of the text",
            form=Form.PLACES,
            summaries={
                "start_to_end": SummaryLabel(f"First minus last {self._parts} of a text"),
                "range": SummaryLabel(f"Range over the {self._parts}s"),
                "range_without_last": SummaryLabel(f"Range without the last {self._parts}"),
            },
            names={
                name: f"{'last' if place == self.segments else ordinal(place)} {self._parts}"
                for place, name in enumerate(self.positions, 1)
            },
            shares={name: (place + 0.5) / self.segments for place, name in enumerate(self.positions)},
            contrast="start_to_end",
            shows_window=True,
        )

    @property
    def source(self) -> str:
        """The paper with this number of segments."""
        return "arXiv 2505.13950, A.4" if self.segments == 3 else "arXiv 2605.26578, section 6"

    @property
    def notes(self) -> tuple[str, ...]:
        """The meaning of a floor and of a last peak."""
        return (
            "A segment is embedded alone: past a model's window the similarity is that of any two texts, not 0. Models with "
            "last-token pooling peak in the last segment; the range without it is shown beside the range.",
        )

    @property
    def positions(self) -> tuple[str, ...]:
        """Names of the segments."""
        return ("begin", "middle", "end") if self.segments == 3 else tuple(str(k + 1) for k in range(self.segments))

    @property
    def summaries(self) -> Mapping[str, Summary]:
        """Start to end, range, and range without the last segment."""
        return {
            "start_to_end": start_to_end,
            "range": value_range,
            "range_without_last": lambda values: value_range(values[..., :-1]),
        }

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode every text and its segments."""
        chosen, skipped = select_long_enough(data)
        parts = [cut_segments(text, self.segments) for _, text in chosen]

        def summarize(embeddings: Embeddings) -> ProbeSums:
            texts = embeddings.select(text for _, text in chosen)
            flat = embeddings.select(part for segments in parts for part in segments)
            cosines = np.einsum("nd,nkd->nk", texts, flat.reshape(len(chosen), self.segments, flat.shape[-1]))
            return ProbeSums.from_means(self.positions, [name for name, _ in chosen], cosines.astype(np.float64), skipped)

        return ProbePlan(summarize, [*(text for _, text in chosen), *(part for segments in parts for part in segments)])
