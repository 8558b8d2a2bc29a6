"""Precision and recall of the stages of `posir build` against what people wrote."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from posir_build.records import Question, StageResult
from tests.support.human_answers import Truth


@dataclass(frozen=True)
class StageAccuracy:
    """How well a stage tells right questions from wrong ones."""

    stage: str
    entered: int
    """Questions that the stage was given."""
    right_entered: int
    kept: int
    right_kept: int

    @property
    def precision(self) -> float:
        return self.right_kept / self.kept

    @property
    def recall(self) -> float:
        return self.right_kept / self.right_entered

    @property
    def precision_before(self) -> float:
        return self.right_entered / self.entered


def is_right(truth: Truth, question: Question) -> bool:
    """Return whether a person asked this about the document; with a span, the same third has the
    answer, too.
    """
    if question.span is not None:
        return truth.is_right(
            question.text, question.document, question.span.start, question.span.end
        )
    asked = truth.by_question.get(question.text, [])
    return any(
        about.id == question.document and human.text == question.text for about, human in asked
    )


def measure_stages(truth: Truth, results: Mapping[str, StageResult]) -> Iterator[StageAccuracy]:
    """Yield the accuracy of each stage that has questions, and of all of them together; a repeated
    question counts once.

    What is right before Locate is a question that a person asked about the document; after it, the
    span counts, too. So a span that Locate gets wrong is one right question less that it keeps.
    """
    asked = results["ask"]
    faulty = [discard.question for discard in asked.discarded if discard.question is not None]
    first = before = {value.id: is_right(truth, value) for value in (*faulty, *asked.questions)}
    for stage in list(results)[1:]:
        kept = {question.id: is_right(truth, question) for question in results[stage].questions}
        yield StageAccuracy(stage, len(before), sum(before.values()), len(kept), sum(kept.values()))
        before = kept
    yield StageAccuracy("all", len(first), sum(first.values()), len(before), sum(before.values()))
