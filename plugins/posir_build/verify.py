"""Stage 4, Verify: check that the span answers the question, and that the rest of the document does
not.

The rules are from PosQ (arXiv 2505.13950, appendix A.2), Built-in or Learned (arXiv 2605.26578,
section 3.1.3, appendix B) and PosIR (arXiv 2601.08363, section 2.3, appendix C.3). Cheap checks
come first. A question is discarded at its first failed check.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any, Literal

import numpy as np

from posir_build.cluster import Reranker
from posir_build.locate import remove_span, split_thirds
from posir_build.records import (
    Check,
    DiscardReason,
    Outcomes,
    PromptValues,
    Question,
    QuestionVerdict,
    StageResult,
    shuffle,
)
from posir_build.settings import VerifySettings
from posir_tasks.base.batches import split_batches
from posir_tasks.language_models.asking import LanguageModel, Reply
from posir_tasks.language_models.chat_client import (
    AnswerT,
    ModelAnswer,
    PromptTemplate,
    load_prompt,
)
from posir_tasks.models.rerankers import compute_margin
from posir_tasks.text.interventions import find_part
from posir_tasks.text.sentences import find_sentences


class Relevance(ModelAnswer):
    """The relevance of a text to a question."""

    relevance: Literal[0, 1, 2, 3, 4]


class Answerability(ModelAnswer):
    """A judgment on whether a text answers a question."""

    reasoning: str
    answer: Literal["yes", "no"]


RELEVANCE = load_prompt("relevance", Relevance)
ANSWERABLE = load_prompt("answerable", Answerability)

#: Reason to discard a question, by `verify.rerank_rule`.
RERANK_REASONS = {
    "segments": DiscardReason.OTHER_SEGMENT,
    "margin": DiscardReason.SMALL_MARGIN,
    "span": DiscardReason.SPAN_NOT_NEEDED,
}


@dataclass(frozen=True)
class Verifier:
    """The checks of the Verify stage."""

    previous: StageResult
    settings: VerifySettings
    language: str
    model: LanguageModel
    rerankers: Sequence[Reranker]
    seed: int
    """Seed for balancing and for sampling the audit."""

    def verify(self) -> StageResult:
        """Run the enabled checks in order, and the audit if it is enabled."""
        checks = []
        if self.rerankers:
            checks.append(self._check_by_rerankers)
        if self.settings.balance:
            checks.append(self._check_balance)
        if self.settings.relevance != "none":
            checks.append(self._check_by_relevance)
        if self.settings.leave_out:
            checks.append(self._check_without_span)
        result = self.previous
        for check in checks:
            if result.questions:
                result = result.advance(check(result.questions))
        return self._audit(result) if self.settings.audit else result

    def _build_views(self, rule: str, question: Question) -> list[str]:
        """List the texts to judge, starting with the text that contains the evidence: the document
        with and without the span for the rule `span`, the three segments for other rules.
        """
        text = self.previous.by_id[question.document].text
        if rule == "span":
            return [text, remove_span(text, question.evidence)]
        segments = split_thirds(text, find_sentences(text, self.language))
        target = segments.pop(find_part(segments, question.evidence))
        return [segment.slice(text) for segment in (target, *segments)]

    def _check_by_rerankers(self, questions: Sequence[Question]) -> Outcomes:
        """Apply `settings.rerank_rule` to the rerankers' scores."""
        rule = self.settings.rerank_rule
        pairs = [
            (question.text, view)
            for question in questions
            for view in self._build_views(rule, question)
        ]
        scores = np.stack([reranker.score(pairs) for reranker in self.rerankers], axis=1)
        judge = ", ".join(reranker.name for reranker in self.rerankers)
        for question, view_scores in zip(questions, np.split(scores, len(questions)), strict=True):
            # Shape (rerankers, views).
            reranker_scores = view_scores.T
            values: dict[str, Any] = {"scores": reranker_scores.tolist()}
            if rule == "margin":
                values["margin"] = compute_margin(reranker_scores, 0)
                passed = values["margin"] >= self.settings.margin
            else:
                # PosQ, appendix A.2; PosIR, section 2.3: every reranker scores the text with the
                # evidence highest; ties fail.
                passed = bool((reranker_scores[:, :1] > reranker_scores[:, 1:]).all())
            reason = "" if passed else RERANK_REASONS[rule]
            yield question.conclude(Check.RERANKERS, judge, values, reason, rule)

    def _check_balance(self, questions: Sequence[Question]) -> Outcomes:
        """Sample as many questions from each third as the smallest nonempty third has (PosQ,
        appendix A.2).
        """
        by_third = defaultdict(list)
        for question in shuffle(questions, self.seed, "balance"):
            by_third[self.previous.find_third(question)].append(question)
        smallest = min(map(len, by_third.values()))
        sample = {row.id for group in by_third.values() for row in group[:smallest]}
        for question in questions:
            reason = "" if question.id in sample else DiscardReason.FULL_CELL
            yield question.conclude(Check.BALANCED, "posir", {"per_third": smallest}, reason)

    def _check_by_relevance(self, questions: Sequence[Question]) -> Outcomes:
        """Let the language model grade each text from 0 to 4, and compare the grades.

        PosQ (appendix A.2) requires L(t) >= 3 and L(t) >= L(u) + 1 for both other segments u. PosIR
        (section 2.3) compares the document with and without the span; the paper omits the
        thresholds.
        """
        rule = self.settings.relevance
        for question, replies in self._ask(RELEVANCE, questions, rule, "Grade relevance"):
            grades = [reply.answer.relevance for reply in replies if reply.answer]
            reason = next((reply.fault for reply in replies if reply.fault), "")
            if not reason and grades[0] < self.settings.level:
                reason = DiscardReason.IRRELEVANT
            if not reason and grades[0] < max(grades[1:]) + self.settings.gap:
                reason = DiscardReason.RELEVANT_WITHOUT_EVIDENCE
            reply = replies[0]
            values = {"grades": grades}
            yield question.conclude(
                Check.RELEVANCE, reply.model, values, reason, rule, reply.prompt
            )

    def _check_without_span(self, questions: Sequence[Question]) -> Outcomes:
        """Fail questions that the language model can answer from the document without the span."""
        title = "Leave out the span"
        for question, (reply,) in self._ask(ANSWERABLE, questions, "span", title, views=[1]):
            answer = reply.answer and reply.answer.answer
            reason = DiscardReason.ANSWERED_WITHOUT_SPAN if answer == "yes" else reply.fault
            values = {"answerable": answer}
            yield question.conclude(
                Check.LEAVE_SPAN_OUT, reply.model, values, reason, prompt=reply.prompt
            )

    def _audit(self, result: StageResult) -> StageResult:
        """Ask for each third separately whether it contains the answer (Built-in or Learned,
        appendix B.3).

        The audit covers a sample of kept and discarded questions from each margin range. It
        discards no questions.
        """
        groups = defaultdict(list)
        for question in result.list_all_questions():
            groups[find_margin_range(question, self.settings.margins)].append(question)
        if None in groups:
            # Without margins, only kept questions are audited.
            groups[None] = list(result.questions)
        sample: list[Question] = []
        for group in groups.values():
            sample += shuffle(group, self.seed, Check.AUDIT)[: self.settings.audit_sample]
        audited_questions = {}
        for question, views in self._ask(ANSWERABLE, sample, "segments", "Audit"):
            answers = [reply.answer and reply.answer.answer == "yes" for reply in views]
            values = {"answerable": answers}
            verdict = QuestionVerdict(
                Check.AUDIT, True, views[0].model, values, prompt=views[0].prompt
            )
            audited_questions[question.id] = question.add_verdict(verdict)
        discarded = [
            replace(item, question=audited_questions.get(item.item, item.question))
            for item in result.discarded
        ]
        questions = [audited_questions.get(question.id, question) for question in result.questions]
        return replace(result, questions=tuple(questions), discarded=tuple(discarded))

    def _ask(
        self,
        prompt: PromptTemplate[AnswerT],
        questions: Sequence[Question],
        rule: str,
        description: str,
        views: Sequence[int] = (),
    ) -> Iterator[tuple[Question, Sequence[Reply[AnswerT]]]]:
        """Ask about the given views of each question, by default all views of the rule. Yield each
        question with its replies.
        """
        views = views or range(2 if rule == "span" else 3)

        def build(pair: tuple[Question, int]) -> PromptValues:
            question, view = pair
            return {"question": question.text, "text": self._build_views(rule, question)[view]}

        rows = self.model.ask(prompt, list(product(questions, views)), build, description)
        replies = [reply for _, reply in rows]
        return zip(questions, split_batches(replies, len(views)), strict=True)


@dataclass(frozen=True)
class MarginPool:
    """The questions that reach a margin; a row of table 6 of arXiv 2605.26578."""

    at_least: float | None
    """Minimum margin; None for all questions with a margin."""
    positions: tuple[int, ...]
    """Number of questions by the third of their evidence."""
    share: float
    """Share of the questions with a margin, in [0, 1]."""


@dataclass(frozen=True)
class MarginRange:
    """The audited questions with a margin in [low, high), or all kept questions if both limits are
    None; a row of table 7 of arXiv 2605.26578.
    """

    low: float | None
    high: float | None
    audited: int
    """Number of questions with usable answers about all three segments."""
    rates: Mapping[str, float]
    """Rates from `summarize_audit`."""


def find_margin(question: Question) -> float | None:
    """Return the reranking margin of a question, or None if rerankers did not compare segments."""
    for verdict in question.verdicts:
        if verdict.check is Check.RERANKERS and verdict.rule in ("segments", "margin"):
            return compute_margin(np.array(verdict.values["scores"], np.float64), 0)
    return None


def find_margin_range(question: Question, margins: Sequence[float]) -> int | None:
    """Count the thresholds that a question's margin reaches. Return None without a margin."""
    margin = find_margin(question)
    return None if margin is None else bisect_right(margins, margin)


def summarize_audit(answers: Sequence[Sequence[bool]]) -> dict[str, float]:
    """Compute the rates TargetYes, DistractorNo and Exclusive, in [0, 1] (Built-in or Learned,
    appendix B.3).

    Each question has answers about its three segments, starting with the segment that contains the
    evidence. TargetYes is the share of questions that this segment answers. DistractorNo is the
    share of other segments that do not answer their question. Exclusive is the share of questions
    that only the first segment answers. Without questions, the result is empty.
    """
    if not answers:
        return {}
    target, *distractors = np.array(answers, np.float64).T
    return {
        "TargetYes": float(target.mean()),
        "DistractorNo": float(1 - np.mean(distractors)),
        "Exclusive": float((target > np.max(distractors, axis=0)).mean()),
    }


def count_pools(result: StageResult, margins: Sequence[float]) -> list[MarginPool]:
    """Count the questions with a margin, in total and at each threshold. The list is empty if no
    question has a margin.
    """
    rows = []
    for question in result.list_all_questions():
        margin = find_margin(question)
        if margin is not None:
            rows.append((margin, result.find_third(question)))
    pools = []
    for threshold in (None, *margins) if rows else ():
        thirds = [third for margin, third in rows if threshold is None or margin >= threshold]
        positions = tuple(map(thirds.count, range(3)))
        pools.append(MarginPool(threshold, positions, len(thirds) / len(rows)))
    return pools


def summarize_audit_ranges(result: StageResult, margins: Sequence[float]) -> list[MarginRange]:
    """Summarize the audit for the kept questions, then by margin range. The list is empty without
    an audit.
    """
    answers = _list_answers(result.questions)
    ranges = [MarginRange(None, None, len(answers), summarize_audit(answers))]
    all_questions = result.list_all_questions()
    for index, (low, high) in enumerate(pairwise((None, *margins, None))):
        group = [
            question for question in all_questions if find_margin_range(question, margins) == index
        ]
        answers = _list_answers(group)
        ranges.append(MarginRange(low, high, len(answers), summarize_audit(answers)))
    return ranges if any(row.audited for row in ranges) else []


def _list_answers(questions: Sequence[Question]) -> list[list[bool]]:
    """List the answers about the three segments of each question; skip incomplete answers."""
    answers = [
        verdict.values["answerable"]
        for question in questions
        for verdict in question.verdicts
        if verdict.check is Check.AUDIT
    ]
    return [row for row in answers if None not in row]
