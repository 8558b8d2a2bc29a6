"""Whether an embedding distinguishes a needle from a near-miss, by the needle's place, without and with further near-misses.

Ours. The needle is a sentence of a document, the question is about it in other words, and near-misses are the most similar
sentences of other documents (`posir_probe.needles`). The needle is put before the sentence round(r n), counted from 0, of the
document's n other sentences, at the relative places r = 0, 1/4, 1/2, 3/4, 1. The value is the cosine of the question and
this document, minus that of the question and the same document with the most similar near-miss in the needle's place. With
distractors, four other near-misses are at the four other places, in the same order, in both.

Both documents are of the same sentences at every place, so the value of an order-blind embedder does not depend on the place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import numpy as np
from mteb.types import PromptType

from posir_probe.controlled_pairs import count_wins, keep_difference
from posir_probe.probe import (
    POSITIVE_IS_START,
    Needle,
    Preference,
    ProbeData,
    ProbePlan,
    Summary,
    ignore_rounding,
    start_to_end,
)
from posir_probe.sums import ProbeSums
from posir_probe.view import Form, ProbeView, SummaryLabel, compare_sides
from posir_tasks.cells import Floats
from posir_tasks.embeddings.encoding import Embeddings
from posir_tasks.scores import Unit

SERIES = ("without distractors", "with distractors")
#: Relative places of the needle.
PLACES = (0.0, 0.25, 0.5, 0.75, 1.0)
NO_NEEDLE = "no sentence, among five or more, with five near-misses and a question in other words"


def place_sentences(rest: Sequence[str], placed: Mapping[int, str]) -> str:
    """Return sentences joined by spaces, with others put between them.

    Args:
        rest: The n sentences of a document.
        placed: Sentences by index of their place in `PLACES`: before the sentence round(place x n).
    """
    sentences: list[str] = []
    at = {place: round(PLACES[place] * len(rest)) for place in placed}
    for row in range(len(rest) + 1):
        sentences += [placed[place] for place in sorted(placed) if at[place] == row]
        sentences += rest[row : row + 1]
    return " ".join(sentences)


def build_documents(needle: Needle) -> list[str]:
    """Return documents with the needle, each followed by that with the near-miss in its place, by series and place."""
    foil, *competitors = needle.near_misses
    documents = []
    for with_distractors, place in product((False, True), range(len(PLACES))):
        others = [other for other in range(len(PLACES)) if other != place] if with_distractors else []
        distractors = dict(zip(others, competitors, strict=False))
        documents += [place_sentences(needle.rest, {**distractors, place: sentence}) for sentence in (needle.sentence, foil)]
    return documents


def build_view(positive: str, negative: str, value: str, unit: Unit, difference: Unit) -> ProbeView:
    """Return the view of values by the needle's place, without and with distractors."""
    find = compare_sides(
        lambda values: start_to_end(values[..., len(PLACES) :]),
        positive,
        negative,
        "A needle among near-misses is not shown to depend on being first or last",
        difference,
    )
    return ProbeView(
        find,
        value=value,
        place="Place of the needle, from the start of its document to the end",
        form=Form.PLACES,
        unit=unit,
        summaries={
            "start_to_end": SummaryLabel("Needle first minus last, distractors", difference),
            "start_to_end_without": SummaryLabel("Needle first minus last, no distractors", difference),
            "mean": SummaryLabel("Mean over places, distractors", unit),
            "mean_without": SummaryLabel("Mean over places, no distractors", unit),
            "cost_of_distractors": SummaryLabel("Mean without minus with distractors", difference),
        },
        series={"with distractors": ("", "among other near-misses"), "without distractors": ("", "alone")},
        shares={f"{100 * place:.0f} %": place for place in PLACES},
        contrast="start_to_end",
        shows_window=True,
    )


DIFFERENCES = build_view(
    "A needle among near-misses stands out by {} more at the start of its document than at the end",
    "A needle among near-misses stands out by {} more at the end of its document than at the start",
    "Cosine of the question and the document with its needle, minus that with a near-miss in its place",
    Unit.INDEX,
    Unit.INDEX,
)
SHARES = build_view(
    "A needle among near-misses wins {} points more often at the start of its document than at the end",
    "A needle among near-misses wins {} points more often at the end of its document than at the start",
    "Documents that score higher with the needle than with a near-miss in its place (%)",
    Unit.PERCENT,
    Unit.POINTS,
)


@dataclass(frozen=True)
class NeedleDistractors:
    """Score of the document with the needle minus that of the document with a near-miss in its place."""

    name: str = "needle_distractors"
    title: str = "Needle against near-miss"
    convert: Callable[[Floats], Floats] = keep_difference
    """Maps differences of scores to what is summed."""
    view: ProbeView = DIFFERENCES

    needs_needles: ClassVar[bool] = True
    source: ClassVar[str] = "ours"
    preference: ClassVar[Preference] = POSITIVE_IS_START
    notes: ClassVar[tuple[str, ...]] = (
        "Ours. The question has no word of needle, document and near-misses, so words in common lead nowhere. An order-blind "
        "embedder has the same value at all places. The embedder that wrote the questions is favored: compare models by "
        "questions of another. Past the window, differences are 0.",
    )
    positions: ClassVar[tuple[str, ...]] = tuple(f"{series} · {100 * place:.0f} %" for series, place in product(SERIES, PLACES))

    @property
    def summaries(self) -> Mapping[str, Summary]:
        """Start to end and mean over places with distractors, then without, and what distractors cost."""
        places = len(PLACES)
        return {
            "start_to_end": lambda values: start_to_end(values[..., places:]),
            "start_to_end_without": lambda values: start_to_end(values[..., :places]),
            "mean": lambda values: values[..., places:].mean(axis=-1),
            "mean_without": lambda values: values[..., :places].mean(axis=-1),
            "cost_of_distractors": lambda values: values[..., :places].mean(axis=-1) - values[..., places:].mean(axis=-1),
        }

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode the questions, and the documents with needle or near-miss at every place."""
        built = [build_documents(needle) for needle in data.needles]
        texts = [text for documents in built for text in documents]
        names, queries = [needle.document for needle in data.needles], [needle.question for needle in data.needles]
        skipped = {NO_NEEDLE: missing} if (missing := len(data.documents) - len(names)) else {}

        def summarize(embeddings: Embeddings) -> ProbeSums:
            asked = embeddings.select(queries, PromptType.query).astype(np.float64)
            documents = embeddings.select(texts).astype(np.float64).reshape(len(names), len(self.positions), 2, -1)
            differences = np.einsum("nd,npd->np", asked, documents[:, :, 0] - documents[:, :, 1])
            return ProbeSums.from_means(self.positions, names, self.convert(ignore_rounding(differences)), skipped)

        return ProbePlan(summarize, texts, queries)


WINS = NeedleDistractors(
    "needle_distractors_wins",
    "Needle wins against near-miss",
    count_wins,
    SHARES,
)
