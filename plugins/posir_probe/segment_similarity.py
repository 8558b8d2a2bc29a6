"""The share of each segment of a text in the text's embedding: the cosine of both.

Three segments: Zeng et al. 2025 (arXiv 2505.13950, A.4, Table 4), cut as in the authors' code at characters `int(.333 n)` and
`int(.666 n)`. Ten segments: 'Built-in or learned?' (arXiv 2605.26578, section 6, Fig. 3), which does not state the unit of its
'equal length'; here characters. Every segment is embedded alone, so a model that reads only a beginning does not give 0 for
later segments, but the similarity of any two texts.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from posir_probe.data import ProbeData, select_long_enough
from posir_probe.probe import (
    POSITIVE_IS_START,
    Form,
    Probe,
    ProbePlan,
    SignedFinding,
    Summary,
    start_to_end,
    value_range,
)
from posir_probe.results import ProbeSums
from posir_tasks.display.wording import ordinal
from posir_tasks.embeddings.encoding import Embeddings

#: Where the code of Zeng et al. 2025 cuts, as shares of the characters.
THIRDS = (0.0, 0.333, 0.666, 1.0)


def cut_segments(text: str, segments: int) -> list[str]:
    """Return the contiguous segments of a text, equal in characters up to one."""
    shares = THIRDS if segments == 3 else [part / segments for part in range(segments + 1)]
    cuts = [int(share * len(text)) for share in shares]
    return [text[low:high] for low, high in pairwise(cuts)]


class SegmentSimilarity(Probe):
    """Cosine of a text and each of its segments."""

    notes = (
        "A segment is embedded alone: past a model's window the similarity is that of any two texts, not 0. Models with "
        "last-token pooling peak in the last segment; the range without it is shown beside the range.",
    )
    preference = POSITIVE_IS_START
    compares_ends = True
    shows_window = True
    value_title = "Cosine of the text and the part"
    form = Form.PLACES

    def __init__(self, segments: int = 10) -> None:
        part = {3: "third", 10: "tenth"}.get(segments, f"1/{segments} part")
        self.segments = segments
        self.name = f"segment_similarity_{segments}"
        self.title = f"Whole text and its {part}s"
        self.source = "arXiv 2505.13950, A.4" if segments == 3 else "arXiv 2605.26578, section 6"
        self.positions = ("begin", "middle", "end") if segments == 3 else tuple(str(at + 1) for at in range(segments))
        self.summaries = {
            "start_to_end": Summary(f"First minus last {part} of a text", start_to_end),
            "range": Summary(f"Range over the {part}s", value_range),
            "range_without_last": Summary(f"Range without the last {part}", lambda values: value_range(values[..., :-1])),
        }
        self.finding = SignedFinding(
            f"The first {part} of a text is {{}} closer to the whole text than the last",
            f"The last {part} of a text is {{}} closer to the whole text than the first",
            f"whether the first or the last {part} of a text is closer to the whole text",
        )
        self.place_title = f"Middle of the {part}, as a share of the text"
        self.place_names = {
            name: f"{'last' if place == segments else ordinal(place)} {part}" for place, name in enumerate(self.positions, 1)
        }
        self.place_shares = {name: (place + 0.5) / segments for place, name in enumerate(self.positions)}

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
