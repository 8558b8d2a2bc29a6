"""The location of a dataset's evidence in its documents.

'Built-in or learned?' (arXiv 2605.26578, section 5, Fig. 9): start of the evidence / length of the document, with lines at one
and two thirds. PosIR (arXiv 2601.08363, section 3.1, Fig. 2): its middle / length, in 20 bins. Both in characters here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from posir_probe.probe import NO_END, ProbeData, ProbePlan, ProbeQuestion, Summary, select_with_evidence
from posir_probe.sums import ProbeSums
from posir_probe.view import Form, ProbeView, SummaryLabel, state_value
from posir_tasks.embeddings.encoding import Embeddings
from posir_tasks.scores import Unit

BINS = 20


@dataclass(frozen=True)
class EvidenceLocation:
    """Share of the questions with their evidence in each twentieth of its document."""

    midpoint: bool = True
    """Whether the middle of the evidence counts, as in PosIR, or its start."""

    needs_questions: ClassVar[bool] = True
    notes: ClassVar[tuple[str, ...]] = ("A property of the data; the model does not matter.",)
    positions: ClassVar[tuple[str, ...]] = tuple(f"{bin_ / BINS:.2f}-{(bin_ + 1) / BINS:.2f}" for bin_ in range(BINS))

    @property
    def name(self) -> str:
        """`evidence_location`, or `evidence_location_start`."""
        return "evidence_location" if self.midpoint else "evidence_location_start"

    @property
    def title(self) -> str:
        """Title of what is measured."""
        return "Where the evidence is" if self.midpoint else "Where the evidence starts"

    @property
    def view(self) -> ProbeView:
        """The first and the last quarter."""
        first, last = (self.summaries[f"{name}_quarter"] for name in ("first", "last"))
        verb = "is" if self.midpoint else "starts"
        sentence = f"{{}} % of the evidence {verb} in the first quarter of its document, {{}} % in the last"
        return ProbeView(
            state_value(sentence, first, last, unit=Unit.PERCENT),
            value="Questions (%)",
            place=f"{'Middle' if self.midpoint else 'Start'} of the evidence, as a share of the document",
            form=Form.BARS,
            unit=Unit.PERCENT,
            summaries={
                "mean": SummaryLabel("Mean place of the evidence"),
                "first_quarter": SummaryLabel("Evidence in the first quarter (%)", Unit.PERCENT),
                "last_quarter": SummaryLabel("Evidence in the last quarter (%)", Unit.PERCENT),
            },
            shares={name: (bin_ + 0.5) / BINS for bin_, name in enumerate(self.positions)},
            of_data=True,
        )

    @property
    def source(self) -> str:
        """The paper with this position."""
        return "arXiv 2601.08363, section 3.1" if self.midpoint else "arXiv 2605.26578, section 5"

    @property
    def summaries(self) -> Mapping[str, Summary]:
        """Mean position by the bins' middles, and the shares of the first and the last quarter."""
        middles = (np.arange(BINS) + 0.5) / BINS
        return {
            "mean": lambda values: values @ middles,
            "first_quarter": lambda values: values[..., :5].sum(axis=-1),
            "last_quarter": lambda values: values[..., 15:].sum(axis=-1),
        }

    def plan(self, data: ProbeData) -> ProbePlan:
        """Encode nothing."""
        located, skipped = self._locate(data)
        questions = [question for question, _ in located]

        def summarize(_: Embeddings) -> ProbeSums:
            lengths = np.array([len(data.documents[question.document]) for question in questions], np.float64)
            places = np.array([place for _, place in located], np.float64) / lengths
            rows = np.minimum((places * BINS).astype(np.int64), BINS - 1)
            names = [question.document for question in questions]
            return ProbeSums.from_columns("share", self.positions, names, rows, np.ones((len(rows), 1)), skipped)

        return ProbePlan(summarize)

    def _locate(self, data: ProbeData) -> tuple[list[tuple[ProbeQuestion, float]], Counter[str]]:
        """Return the character of each question's evidence, and how many have none, by reason."""
        questions, skipped = select_with_evidence(data)
        if self.midpoint:
            return [(question, sum(question.span) / 2) for question in questions], skipped
        begun = [(question, float(question.start)) for question in data.questions if question.start is not None]
        del skipped[NO_END]
        return [*((question, float(question.span[0])) for question in questions), *begun], skipped
