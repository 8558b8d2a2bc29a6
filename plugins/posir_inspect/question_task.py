"""Pseudo-questions as an ordinary position task, so that every score, interval and report of one follows."""

from __future__ import annotations

from typing import Any, ClassVar

from posir_inspect.pseudo_questions import PARTS, QuestionSet, Wording
from posir_tasks.digests import digest
from posir_tasks.language_codes import suggest_codes
from posir_tasks.languages import PIVOT
from posir_tasks.models.names import legible_name
from posir_tasks.schemes import RelativePositions
from posir_tasks.sources.data import PositionData
from posir_tasks.sources.repository import LOCAL
from posir_tasks.tasks.base import PositionTask
from posir_tasks.tasks.metadata import build_metadata


class PseudoQuestionTask(PositionTask):
    """Pseudo-questions about the texts of a user."""

    scheme = RelativePositions(bins=PARTS)
    data: ClassVar[PositionData]

    def read_subset(self, subset: str) -> PositionData:  # noqa: ARG002
        """Return the questions."""
        return self.data


def build_question_task(source: str, language: str, questions: QuestionSet, wording: Wording) -> PseudoQuestionTask:
    """Return the task of the questions in one wording, named after the source of the texts; the language is as in `en`."""
    name = f"Inspect-{legible_name(source)}-{wording}"
    asked = [content for question in questions.asked_in(wording) for content in (question.id, question.wordings[wording])]
    metadata = build_metadata(
        name,
        dataset=source,
        revision=f"{LOCAL}-{digest(*questions.documents.values(), *asked).hex()}",
        languages=[next(iter(suggest_codes(language)), PIVOT.code)],
        description="Pseudo-questions: sentences of texts, to be found by position (Lee et al. 2019, arXiv 1906.00300).",
    )
    attributes: dict[str, Any] = {"metadata": metadata, "data": questions.build_data(wording), "__module__": __name__}
    task: PseudoQuestionTask = type(name, (PseudoQuestionTask,), attributes)()
    return task
