"""Stage 5, False negatives: documents that answer a question although they are not its own.

Recall is by an embedder over the whole corpus, with posir's own search and embedding cache. Then
the rule of PosQ (arXiv 2505.13950, appendix A.2: remove the question) or of PosIR (arXiv
2601.08363, section 2.3: remove the document, and the questions about it). For both, the verdicts of
all questions count at once, so the result does not depend on their order; PosIR leaves this open.
The question's own document is never a false negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from posir_build.cluster import Recall, Reranker
from posir_build.records import (
    Check,
    Discarded,
    DiscardReason,
    Document,
    PromptValues,
    Question,
    QuestionVerdict,
    StageResult,
    by_id,
)
from posir_build.settings import FalseNegativeSettings
from posir_build.verify import RELEVANCE
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.models.rerankers import Scores

#: Questions whose recalled documents are reranked at a time: on a cluster, workers start anew for
#: each such number.
BATCH = 256


@dataclass(frozen=True)
class Candidate:
    """Another document that rerankers find to answer a question."""

    question: Question
    document: Document
    scores: Scores
    """Scores of the document, shape (rerankers,)."""
    positive: Scores
    """Scores of the question's own document."""


def remove_false_negatives(
    before: StageResult,
    settings: FalseNegativeSettings,
    recall: Recall,
    rerankers: Sequence[Reranker],
    panel: Sequence[LanguageModel],
) -> StageResult:
    """Find false negatives, and remove them by the rule of the settings."""
    candidates = list(_find_candidates(before, settings, recall, rerankers))
    documents = before.documents
    discarded: list[Discarded] = []
    failed = {}
    if settings.rule == "document":
        removed = {candidate.document.id: candidate.question.id for candidate in candidates}
        documents = tuple(document for document in documents if document.id not in removed)
        reason = DiscardReason.ANSWERS_OTHER
        discarded += [Discarded(reason, name, removed[name]) for name in sorted(removed)]
        for question in before.questions:
            if question.document in removed:
                failed[question.id] = question.discard(
                    DiscardReason.DOCUMENT_ANSWERS_OTHER, removed[question.document]
                )
        counts = {"documents removed": len(removed)}
    else:
        negatives = _confirm(candidates, settings, panel)
        for negative in negatives:
            failed.setdefault(negative.item, negative)
        counts = {"suspects": len(candidates), "confirmed": len(negatives)}
    judges = ", ".join((recall.name, *(reranker.name for reranker in rerankers)))
    values = {"recall": settings.recall}
    searched = QuestionVerdict(Check.FALSE_NEGATIVES, True, judges, values, settings.rule)
    kept = [row.with_verdict(searched) for row in before.questions if row.id not in failed]
    discarded += [failed[row.id] for row in before.questions if row.id in failed]
    return StageResult(documents, tuple(kept), tuple(discarded), (), counts)


def _find_candidates(
    before: StageResult,
    settings: FalseNegativeSettings,
    recall: Recall,
    rerankers: Sequence[Reranker],
) -> Iterator[Candidate]:
    """Yield the recalled documents that rerankers find to answer a question; a few questions are in
    memory at a time.
    """
    documents = by_id(before.documents)
    questions = before.questions
    recalled = recall.find(before.documents, questions, settings.recall) if questions else []
    for start in range(0, len(questions), BATCH):
        pairs = []
        for row in range(start, min(start + BATCH, len(questions))):
            # The question's own document comes first.
            names = dict.fromkeys((questions[row].document, *recalled[row]))
            pairs += [(questions[row], documents[name]) for name in names]
        texts = [(question.text, document.text) for question, document in pairs]
        scores = np.stack([reranker.score(texts) for reranker in rerankers], axis=1)
        for (question, document), row_scores in zip(pairs, scores, strict=True):
            if document.id == question.document:
                positive = row_scores
                continue
            candidate = Candidate(question, document, row_scores, positive)
            if is_suspect(candidate, settings):
                yield candidate


def is_suspect(candidate: Candidate, settings: FalseNegativeSettings) -> bool:
    """Return whether rerankers suspect a document, by the rule of the settings."""
    if settings.rule == "question":
        return has_votes(candidate.scores, settings.threshold, settings.votes)
    # PosIR, section 2.3: any reranker scores it above the question's own.
    return bool((candidate.scores > candidate.positive).any())


def _confirm(
    candidates: Sequence[Candidate], settings: FalseNegativeSettings, panel: Sequence[LanguageModel]
) -> list[Discarded]:
    """List the questions that have a false negative by the panel; an answer that cannot be used
    counts as no vote.
    """

    def build(candidate: Candidate) -> PromptValues:
        return {"question": candidate.question.text, "text": candidate.document.text}

    replies = [
        judge.ask(RELEVANCE, candidates, build, f"Confirm by {judge.name}") for judge in panel
    ]
    negatives = []
    for candidate, *graded in zip(candidates, *replies, strict=True):
        grades = [reply.answer.relevance if reply.answer else -1 for reply in graded]
        if not has_votes(grades, settings.level, settings.votes):
            continue
        values = {
            "document": candidate.document.id,
            "scores": candidate.scores.tolist(),
            "positive": candidate.positive.tolist(),
            "grades": grades,
        }
        judges = ", ".join(reply.model for reply in graded)
        verdict = QuestionVerdict(
            Check.FALSE_NEGATIVES, False, judges, values, settings.rule, graded[0].prompt
        )
        question = candidate.question.with_verdict(verdict)
        reason = DiscardReason.ANSWERED_ELSEWHERE
        negatives.append(question.discard(reason, candidate.document.id))
    return negatives


def has_votes(values: Iterable[float], threshold: float, votes: int) -> bool:
    """Return whether enough rerankers or judges are at or above a threshold; of fewer than the
    votes, all (PosQ, A.2).
    """
    reached = [value >= threshold for value in values]
    return sum(reached) >= min(votes, len(reached))
