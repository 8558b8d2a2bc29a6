"""Stage 5, False negatives: documents that answer a question although they are not its own.

Recall is by an embedder over the whole corpus, with posir's own search and embedding cache. Then the rule of PosQ (arXiv
2505.13950, appendix A.2: remove the question) or of PosIR (arXiv 2601.08363, section 2.3: remove the document, and the
questions about it). For both, the verdicts of all questions count at once, so the result does not depend on their order;
PosIR leaves this open. The question's own document is never a false negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from posir_build import rules
from posir_build.cluster import Reranker
from posir_build.records import Discarded, Document, Question, QuestionVerdict, StageResult, by_id
from posir_build.settings import FalseNegativeSettings, RemovalRule
from posir_build.verify import RELEVANCE
from posir_tasks.language_models.asking import BuiltValues, LanguageModel

if TYPE_CHECKING:
    from posir_build.cluster import Recall

Scores = NDArray[np.float64]

#: Questions whose recalled documents are reranked at a time: on a cluster, workers start anew for each such number.
BATCH = 256
#: In place of the grade in an answer that cannot be used.
NO_VOTE = -1


@dataclass(frozen=True)
class Candidate:
    """A question and another document that was recalled for it."""

    question: Question
    document: Document
    scores: Scores
    """Shape (rerankers,)."""
    positive: Scores
    """Scores of the question's own document."""


@dataclass(frozen=True)
class FalseNegative:
    """A document that answers another document's question, and how that was judged."""

    question: Question
    document: Document
    verdict: QuestionVerdict


def remove_false_negatives(
    documents: Sequence[Document],
    questions: Sequence[Question],
    settings: FalseNegativeSettings,
    recall: Recall,
    rerankers: Sequence[Reranker],
    panel: Sequence[LanguageModel],
) -> StageResult:
    """Find false negatives, and remove them by the rule of the settings.

    Raises:
        PosirError: A model cannot be used.
    """
    judge = ", ".join(reranker.name for reranker in rerankers)
    searched = QuestionVerdict(
        f"false negatives: {settings.rule}", True, f"{recall.name}, {judge}", {"recall": settings.recall}
    )
    is_kept = _is_above_positive if settings.rule is RemovalRule.DOCUMENT else partial(_is_suspect, settings)
    candidates = list(_find_candidates(documents, questions, settings.recall, recall, rerankers, is_kept))
    if settings.rule is RemovalRule.DOCUMENT:
        negatives = [
            FalseNegative(candidate.question, candidate.document, _verdict(candidate, judge)) for candidate in candidates
        ]
        return _remove_documents(documents, questions, negatives, searched)
    negatives = _confirm(candidates, settings, panel)
    counts = {"suspects": len(candidates), "confirmed": len(negatives)}
    return _remove_questions(documents, questions, negatives, counts, searched)


def _is_suspect(settings: FalseNegativeSettings, candidate: Candidate) -> bool:
    return rules.is_suspect(candidate.scores, settings.threshold, settings.votes)


def _is_above_positive(candidate: Candidate) -> bool:
    return rules.scores_above_positive(candidate.scores, candidate.positive)


def _find_candidates(
    documents: Sequence[Document],
    questions: Sequence[Question],
    top_k: int,
    recall: Recall,
    rerankers: Sequence[Reranker],
    is_kept: Callable[[Candidate], bool],
) -> Iterator[Candidate]:
    """Yield the recalled documents that rerankers find to answer a question; a few questions are in memory at a time."""
    known = by_id(documents)
    recalled = recall.find(documents, questions, top_k) if questions else []
    for start in range(0, len(questions), BATCH):
        batch = list(zip(questions, recalled, strict=True))[start : start + BATCH]
        pairs = [(question, known[name]) for question, names in batch for name in names if name != question.document]
        own = [(question.text, known[question.document].text) for question, _ in batch]
        texts = [(question.text, document.text) for question, document in pairs]
        scores = np.stack([reranker.score([*own, *texts]) for reranker in rerankers], axis=1)
        positives = {question.id: row for (question, _), row in zip(batch, scores[: len(batch)], strict=True)}
        for (question, document), row in zip(pairs, scores[len(batch) :], strict=True):
            candidate = Candidate(question, document, row, positives[question.id])
            if is_kept(candidate):
                yield candidate


def _verdict(candidate: Candidate, judge: str) -> QuestionVerdict:
    values = {"document": candidate.document.id, "scores": candidate.scores.tolist(), "positive": candidate.positive.tolist()}
    return QuestionVerdict("false negative", False, judge, values)


def _confirm(
    suspects: Sequence[Candidate], settings: FalseNegativeSettings, panel: Sequence[LanguageModel]
) -> list[FalseNegative]:
    """Return the suspects that the panel confirms; an answer that cannot be used counts as no vote."""
    values = BuiltValues(suspects, lambda suspect: {"question": suspect.question.text, "text": suspect.document.text})
    replies = [judge.ask(RELEVANCE, values, f"Confirm by {judge.name}") for judge in panel]
    negatives = []
    for suspect, graded in zip(suspects, zip(*replies, strict=True), strict=True):
        grades = [reply.answer.relevance if reply.answer else NO_VOTE for reply in graded]
        if rules.is_confirmed(grades, settings.level, settings.votes):
            verdict = _verdict(suspect, ", ".join(f"{reply.model} {reply.prompt}" for reply in graded))
            negatives.append(
                FalseNegative(suspect.question, suspect.document, replace(verdict, values=verdict.values | {"grades": grades}))
            )
    return negatives


def _remove_questions(
    documents: Sequence[Document],
    questions: Sequence[Question],
    negatives: Sequence[FalseNegative],
    counts: dict[str, int],
    searched: QuestionVerdict,
) -> StageResult:
    verdicts: dict[str, QuestionVerdict] = {}
    for negative in negatives:
        verdicts.setdefault(negative.question.id, negative.verdict)
    discarded = [
        Discarded(
            "another document answers it",
            question.id,
            verdicts[question.id].values["document"],
            question.with_verdict(verdicts[question.id]),
        )
        for question in questions
        if question.id in verdicts
    ]
    kept = tuple(question.with_verdict(searched) for question in questions if question.id not in verdicts)
    return StageResult(tuple(documents), kept, tuple(discarded), (), counts)


def _remove_documents(
    documents: Sequence[Document], questions: Sequence[Question], negatives: Sequence[FalseNegative], searched: QuestionVerdict
) -> StageResult:
    removed = {negative.document.id: negative for negative in negatives}
    discarded = [
        Discarded("answers a question about another document", name, removed[name].question.id) for name in sorted(removed)
    ]
    discarded += [
        Discarded("its document answers another question", question.id, removed[question.document].question.id, question)
        for question in questions
        if question.document in removed
    ]
    return StageResult(
        tuple(document for document in documents if document.id not in removed),
        tuple(question.with_verdict(searched) for question in questions if question.document not in removed),
        tuple(discarded),
        (),
        {"documents removed": len(removed)},
    )
