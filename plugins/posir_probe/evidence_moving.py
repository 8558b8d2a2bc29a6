"""The similarity of a question and its document by where in the document the evidence is.

'Built-in or learned?' (arXiv 2605.26578v1, section 6, Table 5; appendix F, Table 13), after Coelho
et al. 2024 (arXiv 2404.04163, section 4.2): the evidence is cut out of its document and inserted
into the rest at I_i = (i - 1)(l_d - l_p) / 9, i = 1..10. The papers leave unit, rounding and
separators open; here characters, the nearest word border, and one space.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mteb.types import PromptType

from posir_probe.data import ProbeData, ProbeQuestion, select_with_evidence
from posir_probe.mirror_reversal import search
from posir_probe.probe import (
    ENDS,
    SCORE,
    Form,
    Probe,
    ProbePlan,
    Summary,
    plan_cosines,
    summarize_ends,
    value_range,
)
from posir_probe.results import ProbeSums, at, average, subtract
from posir_tasks.models.embeddings.encoding import Embeddings
from posir_tasks.text.interventions import move_evidence
from posir_tasks.values.scores import Unit

#: Places of the evidence.
PLACES = 10
SHARES = [place / (PLACES - 1) for place in range(PLACES)]


def move_to_places(data: ProbeData, questions: Sequence[ProbeQuestion]) -> list[list[str]]:
    """Write the documents of each question, with its evidence at each place."""
    moved = []
    for question in questions:
        text = data.documents[question.document]
        moved.append([move_evidence(text, question.span, share) for share in SHARES])
    return moved


class EvidenceMoving(Probe):
    """Cosine of a question and its document, with the evidence moved to each of several places."""

    name = "evidence_moving"
    title = "Evidence moved in its document"
    source = "arXiv 2605.26578v1, section 6 and appendix F"
    notes = (
        "The evidence of each question is moved to ten places of its document. Where it is "
        "truncated, the cosine is that of the question and the rest of the document, and not 0.",
    )
    headline = ENDS
    preference_sign = 1
    needs_questions = True
    value_title = "Cosine of question and document"
    place_title = "Place of the evidence in its document"
    form = Form.PLACES
    shows_window = True

    positions = tuple(str(place + 1) for place in range(PLACES))
    place_names = {name: f"place {name} of {PLACES}" for name in positions}
    place_shares = dict(zip(positions, SHARES, strict=True))
    #: As in Table 13.
    summaries = {
        **summarize_ends(
            "Similarity, evidence first minus last", "Evidence first", "Evidence last"
        ),
        "range_x1000": Summary(
            "Highest minus lowest cosine, x 1,000",
            lambda values: 1000 * value_range(values),
            Unit.NUMBER,
        ),
        "peak": Summary(
            "Place (1 to 10) with the highest cosine",
            lambda values: values.argmax(axis=-1) + 1.0,
            Unit.COUNT,
        ),
        "lowest": Summary(
            "Place (1 to 10) with the lowest cosine",
            lambda values: values.argmin(axis=-1) + 1.0,
            Unit.COUNT,
        ),
    }

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode every question, and its document with the evidence at every place."""
        questions, skipped = select_with_evidence(data)
        return plan_cosines(
            self.positions,
            [question.document for question in questions],
            [question.text for question in questions],
            move_to_places(data, questions),
            skipped,
            PromptType.query,
        )


class EvidenceMovingRetrieval(EvidenceMoving):
    """nDCG@10 with the evidence of a question's own document moved to each of several places, in
    the unchanged corpus.

    Coelho et al. 2024 (arXiv 2404.04163, section 4.2): an unchanged run, and one for each place.
    """

    name = "evidence_moving_retrieval"
    title = "Retrieval, evidence moved"
    source = "arXiv 2404.04163, section 4.2"
    notes = ("All documents of the data are searched, sampled or not.",)
    is_variant = True
    measures_search = True
    needs_all = True
    value_title = SCORE
    unit = Unit.PERCENT

    positions = ("unchanged", *EvidenceMoving.positions)
    summaries = {
        "start_minus_end": Summary(
            "nDCG@10, first minus last", subtract(at(1), at(-1)), Unit.POINTS
        ),
        "first": Summary("Evidence first", at(1), Unit.PERCENT),
        "last": Summary("Evidence last", at(-1), Unit.PERCENT),
        "range": Summary(
            "Range over the places", lambda values: value_range(values[..., 1:]), Unit.POINTS
        ),
        "mean": Summary("Mean over the places", average(slice(1, None)), Unit.PERCENT),
        "unchanged": Summary("Unchanged documents", at(0), Unit.PERCENT),
    }

    def plan(self, data: ProbeData) -> ProbePlan:
        """Search the corpus once for each place; only a question's own document is changed."""
        questions, skipped = select_with_evidence(data)
        searched = {**data.documents, **data.distractors}
        moved = [text for texts in move_to_places(data, questions) for text in texts]

        def summarize(embeddings: Embeddings) -> ProbeSums:
            unchanged = search(embeddings, questions, searched)
            scores = search(embeddings, questions, searched, moved)
            names = [question.document for question in questions]
            values = np.concatenate([unchanged, scores], axis=1)
            return ProbeSums.from_means(self.positions, names, values, skipped)

        queries = [question.text for question in questions]
        return ProbePlan(summarize, [*searched.values(), *moved], queries)
