"""Stage 5, False negatives: find other documents that answer a question.

An embedding model retrieves candidate documents from the whole corpus, with posir's search and
embedding cache. Then the rule of PosQ (arXiv 2505.13950, appendix A.2) removes the question, or the
rule of PosIR (arXiv 2601.08363, section 2.3) removes the document with its questions. Both rules
are applied to all questions at once, so that the result does not depend on their order, which the
PosIR paper does not specify. A question's own document is never a false negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from posir_build.cluster import CandidateRetriever, Reranker
from posir_build.records import (
    Check,
    Discarded,
    DiscardReason,
    Document,
    PromptValues,
    Question,
    QuestionVerdict,
    StageResult,
)
from posir_build.settings import FalseNegativeSettings
from posir_build.verify import RELEVANCE
from posir_tasks.base.batches import split_batches
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.models.rerankers import Scores

#: Questions per reranking batch. On a cluster, workers are restarted for each batch.
QUESTIONS_PER_BATCH = 256


@dataclass(frozen=True)
class Candidate:
    """Another document that may answer a question, with its reranker scores."""

    question: Question
    document: Document
    scores: Scores
    """Scores of the document, shape (rerankers,)."""
    positive_scores: Scores
    """Scores of the question's own document, shape (rerankers,)."""


def remove_false_negatives(
    previous: StageResult,
    settings: FalseNegativeSettings,
    retriever: CandidateRetriever,
    rerankers: Sequence[Reranker],
    panel: Sequence[LanguageModel],
) -> StageResult:
    """Find false negatives, and remove questions or documents according to `settings.rule`."""
    candidates = list(_find_candidates(previous, settings, retriever, rerankers))
    documents = previous.documents
    discarded_questions = {}
    removed_documents = []
    if settings.rule == "document":
        removals = {candidate.document.id: candidate.question.id for candidate in candidates}
        documents = tuple(document for document in documents if document.id not in removals)
        reason = DiscardReason.ANSWERS_OTHER_QUESTION
        removed_documents = [Discarded(reason, name, removals[name]) for name in sorted(removals)]
        reason = DiscardReason.DOCUMENT_ANSWERS_OTHER_QUESTION
        for question in previous.questions:
            if question.document in removals:
                discarded_questions[question.id] = question.discard(
                    reason, removals[question.document]
                )
        counts = {"documents removed": len(removals)}
    else:
        negatives = _confirm_candidates(candidates, settings, panel)
        discarded_questions = {negative.item: negative for negative in reversed(negatives)}
        counts = {"suspects": len(candidates), "confirmed": len(negatives)}
    judges = ", ".join((retriever.name, *(reranker.name for reranker in rerankers)))
    values = {"recall": settings.recall}
    outcomes = [
        discarded_questions.get(row.id)
        or row.conclude(Check.FALSE_NEGATIVES, judges, values, rule=settings.rule)
        for row in previous.questions
    ]
    return StageResult(documents, (), (), (), counts).advance([*removed_documents, *outcomes])


def _find_candidates(
    previous: StageResult,
    settings: FalseNegativeSettings,
    retriever: CandidateRetriever,
    rerankers: Sequence[Reranker],
) -> Iterator[Candidate]:
    """Yield the retrieved documents that the rerankers flag, in batches to limit memory use."""
    questions = previous.questions
    nearest = retriever.find(previous.documents, questions, settings.recall) if questions else []
    for batch in split_batches(list(zip(questions, nearest, strict=True)), QUESTIONS_PER_BATCH):
        # The question's own document comes first.
        pairs = [
            (question, previous.by_id[name])
            for question, ids in batch
            for name in dict.fromkeys((question.document, *ids))
        ]
        texts = [(question.text, document.text) for question, document in pairs]
        scores = np.stack([reranker.score(texts) for reranker in rerankers], axis=1)
        for (question, document), row_scores in zip(pairs, scores, strict=True):
            if document.id == question.document:
                positive_scores = row_scores
                continue
            # PosIR, section 2.3: any reranker scores it above the question's own document.
            is_flagged = (row_scores > positive_scores).any()
            if settings.rule == "question":
                is_flagged = has_votes(row_scores, settings.threshold, settings.votes)
            if is_flagged:
                yield Candidate(question, document, row_scores, positive_scores)


def _confirm_candidates(
    candidates: Sequence[Candidate], settings: FalseNegativeSettings, panel: Sequence[LanguageModel]
) -> list[Discarded]:
    """Discard the questions with a false negative that the panel confirms. Unusable answers do not
    count as votes.
    """

    def build(candidate: Candidate) -> PromptValues:
        return {"question": candidate.question.text, "text": candidate.document.text}

    replies = [
        judge.ask(RELEVANCE, candidates, build, f"Confirm by {judge.name}") for judge in panel
    ]
    negatives = []
    for rows in zip(*replies, strict=True):
        candidate = rows[0][0]
        panel_replies = [reply for _, reply in rows]
        grades = [reply.answer.relevance if reply.answer else -1 for reply in panel_replies]
        if not has_votes(grades, settings.level, settings.votes):
            continue
        values = {
            "document": candidate.document.id,
            "scores": candidate.scores.tolist(),
            "positive": candidate.positive_scores.tolist(),
            "grades": grades,
        }
        judges = ", ".join(reply.model for reply in panel_replies)
        verdict = QuestionVerdict(
            Check.FALSE_NEGATIVES, False, judges, values, settings.rule, panel_replies[0].prompt
        )
        question = candidate.question.add_verdict(verdict)
        negatives.append(question.discard(DiscardReason.ANSWERED_ELSEWHERE, candidate.document.id))
    return negatives


def has_votes(values: Iterable[float], threshold: float, votes: int) -> bool:
    """Return True if at least `votes` values reach the threshold, or all values if there are fewer
    (PosQ, A.2).
    """
    reached = [value >= threshold for value in values]
    return sum(reached) >= min(votes, len(reached))
