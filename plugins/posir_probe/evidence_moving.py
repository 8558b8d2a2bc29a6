"""The similarity of a question and its document by where in the document the evidence is.

'Built-in or learned?' (arXiv 2605.26578, section 6, Table 5; appendix F, Table 13), after Coelho et al. 2024 (arXiv
2404.04163, section 4.2): the evidence is cut out of its document and inserted into the rest at I_i = (i - 1)(l_d - l_p) / 9,
i = 1..10. The papers leave unit, rounding and separators open; here characters, the nearest word border, and one space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from mteb.types import PromptType

from posir_probe.mirror_reversal import ndcg, rank_relevant
from posir_probe.probe import (
    POSITIVE_IS_START,
    Preference,
    ProbeData,
    ProbePlan,
    ProbeQuestion,
    Summary,
    select_with_evidence,
    start_to_end,
    value_range,
)
from posir_probe.sums import ProbeSums
from posir_probe.view import SCORE, Form, ProbeView, SummaryLabel, compare_sides
from posir_tasks.cells import Floats
from posir_tasks.embeddings.encoding import Embeddings, Encoder, encode_distinct
from posir_tasks.interventions import move_evidence
from posir_tasks.scores import Unit

#: Title of the axis of places.
PLACE = "Place of the evidence, from the start of its document to the end"


def peak(values: Floats) -> Floats:
    """Return the place, from 1, of the largest value."""
    place: Floats = values.argmax(axis=-1) + 1.0
    return place


def lowest(values: Floats) -> Floats:
    """Return the place, from 1, of the smallest value."""
    place: Floats = values.argmin(axis=-1) + 1.0
    return place


def share_places(places: int) -> dict[str, float]:
    """Return where the evidence is inserted, as a share of the rest of the document, by the name of the place."""
    return {str(place + 1): place / (places - 1) for place in range(places)}


def move_to_places(data: ProbeData, questions: Sequence[ProbeQuestion], places: int) -> list[str]:
    """Return the document of each question with its evidence at each place, question by question."""
    return [
        move_evidence(data.documents[question.document], question.span, place / (places - 1)).text
        for question in questions
        for place in range(places)
    ]


@dataclass(frozen=True)
class EvidenceMoving:
    """Cosine of a question and its document, with the evidence moved to each of several places."""

    places: int = 10

    name: ClassVar[str] = "evidence_moving"
    needs_questions: ClassVar[bool] = True
    title: ClassVar[str] = "Evidence moved through its document"
    source: ClassVar[str] = "arXiv 2605.26578, section 6 and appendix F"
    preference: ClassVar[Preference] = POSITIVE_IS_START
    notes: ClassVar[tuple[str, ...]] = (
        "Past a model's window all places are equal: the similarity to the rest of the document, not 0.",
    )

    @property
    def view(self) -> ProbeView:
        """The first place against the last."""
        find = compare_sides(
            start_to_end,
            "Moving the evidence from start to end takes {} off the similarity of question and document",
            "Moving the evidence from start to end adds {} to the similarity of question and document",
            "Moving the evidence from start to end is not shown to change the similarity of question and document",
        )
        return ProbeView(
            find,
            value="Cosine of the question and its document",
            place=PLACE,
            form=Form.PLACES,
            summaries={
                "start_to_end": SummaryLabel("Similarity, evidence first minus last"),
                "range_x1000": SummaryLabel("Range over the places, x 1,000", Unit.NUMBER),
                "peak": SummaryLabel(f"Place of the highest value, of {self.places}", Unit.NUMBER),
                "lowest": SummaryLabel(f"Place of the lowest value, of {self.places}", Unit.NUMBER),
            },
            names={name: f"place {name} of {self.places}" for name in self.positions},
            shares=share_places(self.places),
            contrast="start_to_end",
            shows_window=True,
        )

    @property
    def positions(self) -> tuple[str, ...]:
        """Names of the places."""
        return tuple(str(place + 1) for place in range(self.places))

    @property
    def summaries(self) -> Mapping[str, Summary]:
        """Start to end, range x 1000 as in Table 13, and the places of the largest and the smallest value."""
        return {
            "start_to_end": start_to_end,
            "range_x1000": lambda values: 1000 * value_range(values),
            "peak": peak,
            "lowest": lowest,
        }

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode every question, and its document with the evidence at every place."""
        questions, skipped = select_with_evidence(data)
        moved = move_to_places(data, questions, self.places)

        def summarize(embeddings: Embeddings) -> ProbeSums:
            asked = embeddings.select((question.text for question in questions), PromptType.query)
            documents = embeddings.select(moved)
            cosines = np.einsum("nd,nkd->nk", asked, documents.reshape(len(questions), self.places, documents.shape[-1]))
            names = [question.document for question in questions]
            return ProbeSums.from_means(self.positions, names, cosines.astype(np.float64), skipped)

        return ProbePlan(summarize, moved, [question.text for question in questions])


@dataclass(frozen=True)
class EvidenceMovingRetrieval:
    """nDCG@10 with the evidence of a question's own document moved to each of several places, in the unchanged corpus.

    Coelho et al. 2024 (arXiv 2404.04163, section 4.2): an unchanged run, and one for each place.
    """

    places: int = 10

    name: ClassVar[str] = "evidence_moving_retrieval"
    needs_questions: ClassVar[bool] = True
    title: ClassVar[str] = "Retrieval with the evidence moved"
    source: ClassVar[str] = "arXiv 2404.04163, section 4.2"
    preference: ClassVar[Preference] = POSITIVE_IS_START
    notes: ClassVar[tuple[str, ...]] = ("All documents of the data are searched, sampled or not.",)

    @property
    def view(self) -> ProbeView:
        """The first place against the last."""
        find = compare_sides(
            self.summaries["start_to_end"],
            "Moving the evidence from start to end costs {} points of nDCG@10",
            "Moving the evidence from start to end gains {} points of nDCG@10",
            "Moving the evidence from start to end is not shown to change nDCG@10",
            Unit.POINTS,
        )
        return ProbeView(
            find,
            value=SCORE,
            place=PLACE,
            form=Form.PLACES,
            unit=Unit.PERCENT,
            summaries={
                "start_to_end": SummaryLabel("nDCG@10, evidence first minus last", Unit.POINTS),
                "range": SummaryLabel("Range over the places", Unit.POINTS),
                "mean": SummaryLabel("Mean over the places", Unit.PERCENT),
                "unchanged": SummaryLabel("Unchanged documents", Unit.PERCENT),
            },
            names={name: f"place {name} of {self.places}" for name in self.positions[1:]},
            shares=share_places(self.places),
            contrast="start_to_end",
            shows_window=True,
        )

    @property
    def positions(self) -> tuple[str, ...]:
        """The unchanged run, and the places."""
        return ("unchanged", *(str(place + 1) for place in range(self.places)))

    @property
    def summaries(self) -> Mapping[str, Summary]:
        """Start to end, range, and the mean over places and the unchanged run."""
        return {
            "start_to_end": lambda values: start_to_end(values[..., 1:]),
            "range": lambda values: value_range(values[..., 1:]),
            "mean": lambda values: values[..., 1:].mean(axis=-1),
            "unchanged": lambda values: values[..., 0],
        }

    def measure(self, encoder: Encoder, data: ProbeData) -> ProbeSums:
        """Search the corpus once for each place; only a question's own document is changed."""
        questions, skipped = select_with_evidence(data)
        searched = {**data.documents, **data.distractors}
        moved = move_to_places(data, questions, self.places)
        embeddings = encode_distinct(
            encoder, [*searched.values(), *moved], [question.text for question in questions]
        ).normalize()
        asked = embeddings.select((question.text for question in questions), PromptType.query)
        corpus = embeddings.select(searched.values())
        rows = {name: row for row, name in enumerate(searched)}
        relevant = np.array([rows[question.document] for question in questions], np.int64)
        versions = embeddings.select(moved).reshape(len(questions), self.places, corpus.shape[-1])
        names = list(searched)
        unchanged = rank_relevant(asked, corpus, relevant, names)
        ranks = np.concatenate([unchanged, rank_relevant(asked, corpus, relevant, names, versions)], axis=1)
        return ProbeSums.from_means(self.positions, [question.document for question in questions], ndcg(ranks), skipped)
