"""Precision and recall of the stages of `posir build` against human questions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from posir_build.records import Question, StageResult
from tests.support.human_answers import Truth


@dataclass(frozen=True)
class StageAccuracy:
    """Accuracy of a stage in keeping correct questions and discarding others."""

    stage: str
    entered: int
    """Number of questions before the stage."""
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
    """Return True if a person asked this about the document and, for a question with a span, if the
    answer is in the same third.
    """
    if question.span is not None:
        return truth.is_right(
            question.text, question.document, question.span.start, question.span.end
        )
    candidates = truth.by_question.get(question.text, [])
    return any(
        document.id == question.document and human.text == question.text
        for document, human in candidates
    )


def measure_stages(truth: Truth, results: Mapping[str, StageResult]) -> Iterator[StageAccuracy]:
    """Yield the accuracy of each stage with questions, and of all stages together. Repeated
    questions count once.

    Before Locate, a question is correct if a person asked it about the document; after it, its
    span must be correct as well. A wrong span therefore lowers the recall of Locate.
    """
    ask_result = results["ask"]
    faulty = [discard.question for discard in ask_result.discarded if discard.question is not None]
    initial = before = {
        value.id: is_right(truth, value) for value in (*faulty, *ask_result.questions)
    }
    for stage in list(results)[1:]:
        kept = {question.id: is_right(truth, question) for question in results[stage].questions}
        yield StageAccuracy(stage, len(before), sum(before.values()), len(kept), sum(kept.values()))
        before = kept
    yield StageAccuracy(
        "all", len(initial), sum(initial.values()), len(before), sum(before.values())
    )
