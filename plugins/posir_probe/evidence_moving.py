"""Similarity of a question and its document by the position of the evidence.

From 'Built-in or learned?' (arXiv 2605.26578v1, section 6, Table 5; appendix F, Table 13), which
follows Coelho et al. 2024 (arXiv 2404.04163, section 4.2). The evidence is cut out of its document
and inserted into the remaining text at I_i = (i - 1)(l_d - l_p) / 9, i = 1..10. The papers do not
define the unit, rounding and separator. Here, the unit is characters, positions are rounded to the
nearest word boundary, and the separator is a space.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mteb.types import PromptType

from posir_probe.data import ProbeData, ProbeQuestion, select_with_evidence
from posir_probe.mirror_reversal import compute_search_ndcg
from posir_probe.probe import (
    END_SUMMARIES,
    NDCG_TITLE,
    Probe,
    ProbePlan,
    Summary,
    compute_range,
    plan_cosines,
    summarize_ends,
)
from posir_probe.results import ProbeSums, average, select, subtract
from posir_tasks.models.embeddings.encoding import Embeddings
from posir_tasks.text.interventions import move_evidence
from posir_tasks.values.scores import Unit

#: Number of evidence positions, and the relative positions.
POSITIONS = 10
SHARES = [index / (POSITIONS - 1) for index in range(POSITIONS)]


def build_versions(data: ProbeData, questions: Sequence[ProbeQuestion]) -> list[list[str]]:
    """Build each question's document with the evidence at each position."""
    versions = []
    for question in questions:
        text = data.documents[question.document]
        versions.append([move_evidence(text, question.span, share) for share in SHARES])
    return versions


class EvidenceMoving(Probe):
    """Cosine between a question and its document, with the evidence at ten positions."""

    name = "evidence_moving"
    title = "Evidence moved in its document"
    source = "arXiv 2605.26578v1, section 6 and appendix F"
    notes = (
        "Each question's evidence is moved to ten positions in its document. The cosine is not 0 "
        "if the evidence is truncated, since the question is then compared with the rest of the "
        "document.",
    )
    headline = END_SUMMARIES
    preference_sign = 1
    needs_questions = True
    value_title = "Cosine of question and document"
    position_title = "Position of the evidence in its document"
    shows_window = True

    positions = tuple(str(number) for number in range(1, POSITIONS + 1))
    position_names = {name: f"position {name} of {POSITIONS}" for name in positions}
    relative_positions = dict(zip(positions, SHARES, strict=True))
    # Range, peak and lowest are from Table 13.
    summaries = {
        **summarize_ends(
            "Similarity, evidence first minus last", "Evidence first", "Evidence last"
        ),
        "range_x1000": Summary(
            "Highest minus lowest cosine, x 1,000",
            lambda values: 1000 * compute_range(values),
            Unit.NUMBER,
        ),
        "peak": Summary(
            "Position (1 to 10) of the highest cosine",
            lambda values: values.argmax(axis=-1) + 1.0,
            Unit.COUNT,
        ),
        "lowest": Summary(
            "Position (1 to 10) of the lowest cosine",
            lambda values: values.argmin(axis=-1) + 1.0,
            Unit.COUNT,
        ),
    }

    def plan(self, data: ProbeData) -> ProbePlan:
        """Compare each question with its document, with the evidence at each position."""
        questions, skipped = select_with_evidence(data)
        return plan_cosines(
            self.positions,
            [question.document for question in questions],
            [question.text for question in questions],
            build_versions(data, questions),
            skipped,
            PromptType.query,
        )


class EvidenceMovingRetrieval(EvidenceMoving):
    """nDCG@10 with the evidence at ten positions in the relevant document; other documents stay as
    they are.

    Coelho et al. 2024 (arXiv 2404.04163, section 4.2) compare an unchanged run with a run per
    position.
    """

    name = "evidence_moving_retrieval"
    title = "Retrieval, evidence moved"
    source = "arXiv 2404.04163, section 4.2"
    notes = ("The search is over all documents of the data, not only the sample.",)
    is_variant = True
    measures_search = True
    needs_all = True
    value_title = NDCG_TITLE
    unit = Unit.PERCENT

    positions = ("unchanged", *EvidenceMoving.positions)
    summaries = {
        "start_minus_end": Summary(
            "nDCG@10, first minus last", subtract(select(1), select(-1)), Unit.POINTS
        ),
        "first": Summary("Evidence first", select(1), Unit.PERCENT),
        "last": Summary("Evidence last", select(-1), Unit.PERCENT),
        "range": Summary(
            "Range over the positions", lambda values: compute_range(values[..., 1:]), Unit.POINTS
        ),
        "mean": Summary("Mean over the positions", average(slice(1, None)), Unit.PERCENT),
    }

    def plan(self, data: ProbeData) -> ProbePlan:
        """Search the corpus once per position. Only the relevant document changes."""
        questions, skipped = select_with_evidence(data)
        corpus = data.corpus or data.documents
        versions = [text for texts in build_versions(data, questions) for text in texts]

        def summarize(embeddings: Embeddings) -> ProbeSums:
            unchanged = compute_search_ndcg(embeddings, questions, corpus)
            scores = compute_search_ndcg(embeddings, questions, corpus, versions)
            names = [question.document for question in questions]
            values = np.concatenate([unchanged, scores], axis=1)
            return ProbeSums.from_means(self.positions, names, values)

        queries = [question.text for question in questions]
        return ProbePlan(summarize, [*corpus.values(), *versions], queries, skipped)
