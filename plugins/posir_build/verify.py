"""Stage 4, Verify: is the span where the answer is, and is it needed?

Rules of PosQ (arXiv 2505.13950, appendix A.2), Built-in or Learned (arXiv 2605.26578, section
3.1.3, appendix B) and PosIR (arXiv 2601.08363, section 2.3, appendix C.3). Cheap checks come first;
a question that fails one is not checked further.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from typing import Any, Literal

import numpy as np

from posir_build.cluster import Reranker
from posir_build.locate import remove_span, split_thirds
from posir_build.records import (
    Check,
    DiscardReason,
    Document,
    PromptValues,
    Question,
    QuestionVerdict,
    StageResult,
    by_id,
    seeded_order,
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
from posir_tasks.text.spans import find_third


class Relevance(ModelAnswer):
    """The relevance of a text to a question."""

    relevance: Literal[0, 1, 2, 3, 4]


class Answerability(ModelAnswer):
    """Whether a text answers a question."""

    reasoning: str
    answer: Literal["yes", "no"]


RELEVANCE = load_prompt("relevance", Relevance)
ANSWERABLE = load_prompt("answerable", Answerability)

#: Why a question is discarded by the rule of rerankers.
RERANK_REASONS = {
    "segments": DiscardReason.OTHER_SEGMENT,
    "margin": DiscardReason.SMALL_MARGIN,
    "span": DiscardReason.SPAN_NOT_NEEDED,
}
#: The verdict on a question, and the reason why it is discarded; empty if it passed.
CheckOutcome = tuple[QuestionVerdict, str]


@dataclass(frozen=True)
class Verifier:
    """The checks of a build."""

    documents: Sequence[Document]
    settings: VerifySettings
    language: str
    model: LanguageModel
    rerankers: Sequence[Reranker]
    seed: int
    """Any integer; the questions that are audited depend on it."""

    def verify(self, questions: Sequence[Question]) -> StageResult:
        """Check the questions, and discard those that fail; a failed question is not checked
        further.
        """
        checks = []
        if self.rerankers:
            checks.append(self._check_by_rerankers)
        if self.settings.balance:
            checks.append(self._check_balance)
        if self.settings.relevance != "none":
            checks.append(self._check_by_relevance)
        if self.settings.leave_out:
            checks.append(self._check_without_span)
        kept = list(questions)
        discarded = []
        for check in checks:
            entered = kept
            kept = []
            for question, (verdict, reason) in zip(entered, check(entered), strict=True):
                judged = question.with_verdict(verdict)
                if reason:
                    discarded.append(judged.discard(reason))
                else:
                    kept.append(judged)
        result = StageResult(tuple(self.documents), tuple(kept), tuple(discarded))
        return self._audit(result) if self.settings.audit else result

    @cached_property
    def _texts(self) -> dict[str, str]:
        return {document.id: document.text for document in self.documents}

    def _build_views(self, rule: str, question: Question) -> list[str]:
        """List the texts to judge, that with the evidence first: the document, and the document
        without the span; or, for segments, the third with the evidence, and the other two.
        """
        text = self._texts[question.document]
        if rule == "span":
            return [text, remove_span(text, question.evidence)]
        parts = split_thirds(text, find_sentences(text, self.language))
        target = parts.pop(find_part(parts, question.evidence))
        return [part.of(text) for part in (target, *parts)]

    def _check_by_rerankers(self, questions: Sequence[Question]) -> Iterator[CheckOutcome]:
        """Apply the rule of PosQ, Built-in or Learned or PosIR to the scores of all rerankers."""
        if not questions:
            return
        rule = self.settings.rerank_rule
        pairs = [
            (question.text, view)
            for question in questions
            for view in self._build_views(rule, question)
        ]
        scores = np.stack([reranker.score(pairs) for reranker in self.rerankers], axis=1)
        judge = ", ".join(reranker.name for reranker in self.rerankers)
        # The scores of a question have the shape (rerankers, views).
        for group in np.split(scores, len(questions)):
            rows = group.T
            values: dict[str, Any] = {"scores": rows.tolist()}
            if rule == "margin":
                values["margin"] = compute_margin(rows, 0)
                passed = values["margin"] >= self.settings.margin
            else:
                # PosQ, appendix A.2; PosIR, section 2.3: every reranker puts the text with the
                # evidence first, and a tie fails.
                passed = bool((rows[:, :1] > rows[:, 1:]).all())
            verdict = QuestionVerdict(Check.RERANKERS, passed, judge, values, rule)
            yield verdict, "" if passed else RERANK_REASONS[rule]

    def _check_balance(self, questions: Sequence[Question]) -> Iterator[CheckOutcome]:
        """Draw as many questions of each third as the smallest of those with questions has (PosQ,
        appendix A.2).
        """
        by_third: dict[int, list[str]] = {}
        for question in questions:
            third = find_third(question.evidence, len(self._texts[question.document]))
            by_third.setdefault(third, []).append(question.id)
        smallest = min(map(len, by_third.values()), default=0)
        drawn: set[str] = set()
        for names in by_third.values():
            names.sort(key=lambda name: seeded_order(self.seed, "balance", name))
            drawn.update(names[:smallest])
        for question in questions:
            kept = question.id in drawn
            verdict = QuestionVerdict(Check.BALANCED, kept, "posir", {"per_third": smallest})
            yield verdict, "" if kept else DiscardReason.FULL_CELL

    def _check_by_relevance(self, questions: Sequence[Question]) -> Iterator[CheckOutcome]:
        """Grade each text by the language model, 0 to 4, and apply the rule of PosQ or PosIR.

        PosQ, appendix A.2: L(t) >= 3 and L(t) >= L(u) + 1 for both other segments u. PosIR, section
        2.3, compares the document with the document without the span; its thresholds are lost.
        """
        rule = self.settings.relevance
        for replies in self._ask(RELEVANCE, questions, rule, "Grade relevance"):
            grades = [reply.answer.relevance for reply in replies if reply.answer]
            reason = next((reply.fault for reply in replies if reply.fault), "")
            if not reason and grades[0] < self.settings.level:
                reason = DiscardReason.IRRELEVANT
            if not reason and grades[0] < max(grades[1:]) + self.settings.gap:
                reason = DiscardReason.RELEVANT_WITHOUT
            yield _judge(Check.RELEVANCE, replies[0], {"grades": grades}, reason, rule)

    def _check_without_span(self, questions: Sequence[Question]) -> Iterator[CheckOutcome]:
        """Ask whether the document answers the question without the span; it must not."""

        def build(question: Question) -> PromptValues:
            return {"question": question.text, "text": self._build_views("span", question)[1]}

        for reply in self.model.ask(ANSWERABLE, questions, build, "Leave the span out"):
            answer = reply.answer and reply.answer.answer
            reason = DiscardReason.ANSWERED_WITHOUT if answer == "yes" else reply.fault
            yield _judge(Check.LEAVE_SPAN_OUT, reply, {"answerable": answer}, reason)

    def _audit(self, result: StageResult) -> StageResult:
        """Ask of each third by itself whether it has the answer (Built-in or Learned, appendix
        B.3); nothing is discarded.

        Questions that were kept are audited and, in each range of margins, the discarded ones.
        """
        kept = {question.id for question in result.questions}
        groups: defaultdict[int | None, list[Question]] = defaultdict(list)
        for question in result.checked_questions():
            number = find_range(question, self.settings.margins)
            if number is not None or question.id in kept:
                groups[number].append(question)
        drawn: list[Question] = []
        for group in groups.values():
            group.sort(key=lambda row: seeded_order(self.seed, Check.AUDIT, row.id))
            drawn += group[: self.settings.audit_sample]
        replies = self._ask(ANSWERABLE, drawn, "segments", "Audit")
        audited = {}
        for question, views in zip(drawn, replies, strict=True):
            answers = [reply.answer and reply.answer.answer == "yes" for reply in views]
            verdict, _ = _judge(Check.AUDIT, views[0], {"answerable": answers})
            audited[question.id] = question.with_verdict(verdict)
        discarded = [
            replace(item, question=audited.get(item.item, item.question))
            for item in result.discarded
        ]
        questions = [audited.get(question.id, question) for question in result.questions]
        return replace(result, questions=tuple(questions), discarded=tuple(discarded))

    def _ask(
        self,
        prompt: PromptTemplate[AnswerT],
        questions: Sequence[Question],
        rule: str,
        description: str,
    ) -> list[list[Reply[AnswerT]]]:
        """Ask about each view of each question."""
        views = 2 if rule == "span" else 3
        pairs = list(product(questions, range(views)))

        def build(pair: tuple[Question, int]) -> PromptValues:
            question, view = pair
            return {"question": question.text, "text": self._build_views(rule, question)[view]}

        replies = self.model.ask(prompt, pairs, build, description)
        return [[*batch] for batch in split_batches(replies, views)]


def _judge(
    check: Check, reply: Reply[Any], values: dict[str, Any], reason: str = "", rule: str = ""
) -> CheckOutcome:
    """Build the verdict of a language model."""
    return QuestionVerdict(check, not reason, reply.model, values, rule, reply.prompt), reason


@dataclass(frozen=True)
class MarginPool:
    """The questions with at least some margin, or all with None; a row of table 6."""

    at_least: float | None
    positions: tuple[int, ...]
    """Number of questions by the third with their evidence."""
    share: float
    """Share of all questions with a margin, in [0, 1]."""


@dataclass(frozen=True)
class MarginRange:
    """The audited questions with a margin in [low, high), None for no limit, a row of table 7; or
    those that were kept, without limits.
    """

    low: float | None
    high: float | None
    audited: int
    """Questions that were audited completely."""
    rates: Mapping[str, float]
    """Rates as `summarize_audit` returns them."""


def find_margin(question: Question) -> float | None:
    """Find the margin of a question's segment; None if no rerankers compared segments."""
    for verdict in question.verdicts:
        if verdict.check is Check.RERANKERS and verdict.rule in ("segments", "margin"):
            return compute_margin(np.array(verdict.values["scores"], np.float64), 0)
    return None


def find_range(question: Question, margins: Sequence[float]) -> int | None:
    """Count the thresholds that a question's margin reaches; None without a margin."""
    margin = find_margin(question)
    return None if margin is None else bisect_right(margins, margin)


def summarize_audit(answers: Sequence[Sequence[bool]]) -> dict[str, float]:
    """Compute TargetYes, DistractorNo and Exclusive of the answers about the three segments of
    each question, the segment with the evidence first; in [0, 1] (Built-in or Learned, appendix
    B.3).

    TargetYes is the share of questions that the segment with the evidence answers, DistractorNo the
    mean share of the other two that do not, Exclusive the share of questions that only the first
    answers. Empty without questions.
    """
    if not answers:
        return {}
    target, *others = np.array(answers, np.float64).T
    return {
        "TargetYes": float(target.mean()),
        "DistractorNo": float(1 - np.mean(others)),
        "Exclusive": float((target > np.max(others, axis=0)).mean()),
    }


def count_pools(verified: StageResult, margins: Sequence[float]) -> list[MarginPool]:
    """Count the questions with a margin, and those at each threshold; none without a margin."""
    documents = by_id(verified.documents)
    scored = []
    for question in verified.checked_questions():
        margin = find_margin(question)
        if margin is not None:
            length = len(documents[question.document].text)
            scored.append((margin, find_third(question.evidence, length)))
    pools = []
    for threshold in (None, *margins) if scored else ():
        thirds = [third for margin, third in scored if threshold is None or margin >= threshold]
        positions = tuple(map(thirds.count, range(3)))
        pools.append(MarginPool(threshold, positions, len(thirds) / len(scored)))
    return pools


def audit_ranges(verified: StageResult, margins: Sequence[float]) -> list[MarginRange]:
    """Rate the audit of the questions that were kept, and in each range of margins those of all;
    empty without an audit, and without margins only the first.
    """
    answers = _list_answers(verified.questions)
    ranges = [MarginRange(None, None, len(answers), summarize_audit(answers))]
    checked = verified.checked_questions()
    for number, (low, high) in enumerate(pairwise((None, *margins, None))):
        group = [question for question in checked if find_range(question, margins) == number]
        answers = _list_answers(group)
        ranges.append(MarginRange(low, high, len(answers), summarize_audit(answers)))
    return ranges if any(row.audited for row in ranges) else []


def _list_answers(questions: Sequence[Question]) -> list[list[bool]]:
    """List the answers about the three segments of each question that has them all."""
    answers = [
        verdict.values["answerable"]
        for question in questions
        for verdict in question.verdicts
        if verdict.check is Check.AUDIT
    ]
    return [row for row in answers if None not in row]
