"""Stage 5, False negatives: documents that answer a question although they are not its own.

Recall is by an embedder over the whole corpus, with posir's own search and embedding cache. Then
the rule of PosQ (arXiv 2505.13950, appendix A.2: remove the question) or of PosIR (arXiv
2601.08363, section 2.3: remove the document, and the questions about it). For both, the verdicts of
all questions count at once, so the result does not depend on their order; PosIR leaves this open.
The question's own document is never a false negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from posir_build.cluster import Recall, Reranker
from posir_build.records import Discarded, Document, Question, QuestionVerdict, StageResult, by_id
from posir_build.settings import FalseNegativeSettings
from posir_build.verify import RELEVANCE
from posir_tasks.language_models.asking import LanguageModel
from posir_tasks.models.rerankers import Scores

#: Questions whose recalled documents are reranked at a time: on a cluster, workers start anew for
#: each such number.
BATCH = 256


#: A question, another document that was recalled for it, and the scores of this and of its own,
#: both of shape (rerankers,).
Candidate = tuple[Question, Document, Scores, Scores]


def remove_false_negatives(
    before: StageResult,
    settings: FalseNegativeSettings,
    recall: Recall,
    rerankers: Sequence[Reranker],
    panel: Sequence[LanguageModel],
) -> StageResult:
    """Find false negatives, and remove them by the rule of the settings; PosirError if a model
    cannot be used.
    """
    judges = ", ".join((recall.name, *(reranker.name for reranker in rerankers)))
    searched = QuestionVerdict(
        f"false negatives: {settings.rule}", True, judges, {"recall": settings.recall}
    )
    candidates = list(_find_candidates(before, settings, recall, rerankers))
    kept, discarded = list[Question](), list[Discarded]()
    if settings.rule == "document":
        removed = {document.id: question.id for question, document, *_ in candidates}
        discarded += [
            Discarded("answers a question about another document", name, removed[name])
            for name in sorted(removed)
        ]
        for question in before.questions:
            if about := removed.get(question.document):
                discarded.append(
                    Discarded("its document answers another question", question.id, about, question)
                )
            else:
                kept.append(question.with_verdict(searched))
        documents = tuple(document for document in before.documents if document.id not in removed)
        return StageResult(
            documents, tuple(kept), tuple(discarded), (), {"documents removed": len(removed)}
        )
    negatives = _confirm(candidates, settings, panel)
    verdicts = dict(reversed(negatives))
    for question in before.questions:
        if verdict := verdicts.get(question.id):
            answered = verdict.values["document"]
            discarded.append(
                Discarded(
                    "another document answers it",
                    question.id,
                    answered,
                    question.with_verdict(verdict),
                )
            )
        else:
            kept.append(question.with_verdict(searched))
    counts = {"suspects": len(candidates), "confirmed": len(negatives)}
    return StageResult(before.documents, tuple(kept), tuple(discarded), (), counts)


def _find_candidates(
    before: StageResult,
    settings: FalseNegativeSettings,
    recall: Recall,
    rerankers: Sequence[Reranker],
) -> Iterator[Candidate]:
    """Yield the recalled documents that rerankers find to answer a question; a few questions are in
    memory at a time.
    """
    questions, known = before.questions, by_id(before.documents)
    recalled = recall.find(before.documents, questions, settings.recall) if questions else []
    for start in range(0, len(questions), BATCH):
        batch = list(zip(questions, recalled, strict=True))[start : start + BATCH]
        pairs = [
            (question, known[name])
            for question, names in batch
            for name in names
            if name != question.document
        ]
        own = [(question.text, known[question.document].text) for question, _ in batch]
        texts = [(question.text, document.text) for question, document in pairs]
        scores = np.stack([reranker.score([*own, *texts]) for reranker in rerankers], axis=1)
        positives = {
            question.id: row for (question, _), row in zip(batch, scores[: len(batch)], strict=True)
        }
        for (question, document), row in zip(pairs, scores[len(batch) :], strict=True):
            positive = positives[question.id]
            # PosIR, section 2.3: any reranker scores it above the question's own.
            if (
                has_votes(row, settings.threshold, settings.votes)
                if settings.rule == "question"
                else (row > positive).any()
            ):
                yield question, document, row, positive


def _confirm(
    suspects: Sequence[Candidate], settings: FalseNegativeSettings, panel: Sequence[LanguageModel]
) -> list[tuple[str, QuestionVerdict]]:
    """Return the ids of questions and verdicts of what the panel confirms; an answer that cannot be
    used counts as no vote.
    """

    def build(suspect: Candidate) -> dict[str, str]:
        return {"question": suspect[0].text, "text": suspect[1].text}

    replies = [judge.ask(RELEVANCE, suspects, build, f"Confirm by {judge.name}") for judge in panel]
    negatives = []
    for (question, document, own, positive), graded in zip(
        suspects, zip(*replies, strict=True), strict=True
    ):
        grades = [reply.answer.relevance if reply.answer else -1 for reply in graded]
        if has_votes(grades, settings.level, settings.votes):
            scores = {"scores": own.tolist(), "positive": positive.tolist()}
            verdict = {"document": document.id, **scores, "grades": grades}
            judges = ", ".join(f"{reply.model} {reply.prompt}" for reply in graded)
            negatives.append(
                (question.id, QuestionVerdict("false negative", False, judges, verdict))
            )
    return negatives


def has_votes(values: Iterable[float], threshold: float, votes: int) -> bool:
    """Return whether enough rerankers or judges are at or above a threshold; of fewer than the
    votes, all (PosQ, A.2).
    """
    given = [value >= threshold for value in values]
    return sum(given) >= min(votes, len(given))
