"""Stage 4, Verify: is the span where the answer is, and is it needed?

Rules of PosQ (arXiv 2505.13950, appendix A.2), Built-in or Learned (arXiv 2605.26578, section
3.1.3, appendix B) and PosIR (arXiv 2601.08363, section 2.3, appendix C.3). Cheap checks come first;
a question that fails one is not checked further.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Literal

import numpy as np

from posir_build.cluster import Reranker
from posir_build.locate import remove_span, split_thirds
from posir_build.records import (
    Discarded,
    Document,
    Question,
    QuestionVerdict,
    StageResult,
    by_id,
    seeded_order,
)
from posir_build.settings import VerifySettings
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
    "segments": "a reranker prefers another segment",
    "margin": "the margin of the segment is too small",
    "span": "a reranker does not need the span",
}
#: A text that may be judged: the text with the evidence comes first.
Views = tuple[str, ...]
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
        """Check the questions, and discard those that fail; PosirError if a model cannot be
        used.
        """
        kept, discarded, counts = list(questions), list[Discarded](), dict[str, int]()
        checks = {
            "rerankers": self.check_by_rerankers if self.rerankers else None,
            "relevance": self.check_by_relevance if self.settings.relevance != "none" else None,
            "leave-span-out": self.check_without_span if self.settings.leave_out else None,
        }
        for name, check in checks.items():
            if check is None:
                continue
            checked, outcomes = kept, check(kept) if kept else []
            counts[f"{name}: checked"] = len(checked)
            kept = []
            for question, (verdict, reason) in zip(checked, outcomes, strict=True):
                if reason:
                    discarded.append(
                        Discarded(reason, question.id, question=question.with_verdict(verdict))
                    )
                else:
                    kept.append(question.with_verdict(verdict))
            counts[f"{name}: passed"] = len(kept)
        result = StageResult(tuple(self.documents), tuple(kept), tuple(discarded), (), counts)
        return self.audit(result) if self.settings.audit else result

    @cached_property
    def _texts(self) -> dict[str, str]:
        return {document.id: document.text for document in self.documents}

    def _build_views(self, rule: str, question: Question) -> Views:
        """Return the document, and it without the span; or of segments, the third with the
        evidence, and the other two.
        """
        text = self._texts[question.document]
        if rule == "span":
            return text, remove_span(text, question.evidence)
        parts = split_thirds(text, find_sentences(text, self.language))
        target = find_part(parts, question.evidence)
        return tuple(
            part.of(text) for part in (parts[target], *parts[:target], *parts[target + 1 :])
        )

    def check_by_rerankers(self, questions: Sequence[Question]) -> list[CheckOutcome]:
        """Apply the rule of PosQ, Built-in or Learned or PosIR to the scores of all rerankers."""
        rule = self.settings.rerank_rule
        pairs = [
            (question.text, view)
            for question in questions
            for view in self._build_views(rule, question)
        ]
        scores = np.stack([reranker.score(pairs) for reranker in self.rerankers])
        judge = ", ".join(reranker.name for reranker in self.rerankers)
        outcomes = []
        # Of each question, shape (rerankers, views).
        for own in scores.reshape(len(self.rerankers), len(questions), -1).swapaxes(0, 1):
            values: dict[str, object] = {"scores": own.tolist()}
            # PosQ, appendix A.2; PosIR, section 2.3: every reranker puts the text with the evidence
            # first, and a tie fails.
            passed = bool((own[:, :1] > own[:, 1:]).all())
            if rule == "margin":
                margin = compute_margin(own, 0)
                passed, values = margin >= self.settings.margin, {"margin": margin, **values}
            verdict = QuestionVerdict(f"rerankers: {rule}", passed, judge, values)
            outcomes.append((verdict, "" if passed else RERANK_REASONS[rule]))
        return outcomes

    def check_by_relevance(self, questions: Sequence[Question]) -> list[CheckOutcome]:
        """Grade each text by the language model, 0 to 4, and apply the rule of PosQ or PosIR.

        PosQ, appendix A.2: L(t) >= 3 and L(t) >= L(u) + 1 for both other segments u. PosIR, section
        2.3, compares the document with the document without the span; its thresholds are lost.
        """
        rule, outcomes = self.settings.relevance, []
        for graded in self._ask_about(
            RELEVANCE, questions, partial(self._build_views, rule), "Grade relevance"
        ):
            grades = [reply.answer.relevance for reply in graded if reply.answer is not None]
            if len(grades) < len(graded):
                reason = (
                    "unusable answer: "
                    f"{next(reply.problem for reply in graded if reply.answer is None)}"
                )
            elif grades[0] < self.settings.level:
                reason = "the text is not relevant enough"
            else:
                needed = all(grades[0] >= other + self.settings.gap for other in grades[1:])
                reason = "" if needed else "as relevant without the evidence"
            judge = f"{graded[0].model} {graded[0].prompt}"
            outcomes.append(
                (
                    QuestionVerdict(f"relevance: {rule}", not reason, judge, {"grades": grades}),
                    reason,
                )
            )
        return outcomes

    def check_without_span(self, questions: Sequence[Question]) -> list[CheckOutcome]:
        """Ask whether the document answers the question without the span; it must not."""
        outcomes = []
        asked = self._ask_about(
            ANSWERABLE,
            questions,
            lambda row: self._build_views("span", row)[1:],
            "Leave the span out",
        )
        for (reply,) in asked:
            answer = reply.answer and reply.answer.answer
            reason = "answered without the span" if answer == "yes" else ""
            reason = reason if answer else f"unusable answer: {reply.problem}"
            verdict = QuestionVerdict(
                "leave-span-out",
                not reason,
                f"{reply.model} {reply.prompt}",
                {"answerable": answer},
            )
            outcomes.append((verdict, reason))
        return outcomes

    def audit(self, result: StageResult) -> StageResult:
        """Ask of each third by itself whether it has the answer (Built-in or Learned, appendix
        B.3); nothing is discarded.
        """
        # Those that are kept, and of each range of margins the discarded ones, too.
        groups, whole = (
            _group_by_range(list_checked(result), self.settings.margins),
            {row.id for row in result.questions},
        )
        groups[None] = [question for question in groups[None] if question.id in whole]
        drawn = [
            sorted(group, key=lambda row: seeded_order(self.seed, AUDIT_CHECK, row.id))
            for group in groups.values()
        ]
        chosen = [question for group in drawn for question in group[: self.settings.audit_sample]]
        replies = (
            self._ask_about(ANSWERABLE, chosen, partial(self._build_views, "segments"), "Audit")
            if chosen
            else []
        )
        audited: dict[str, Question] = {}
        for question, answered in zip(chosen, replies, strict=True):
            answerable = [
                None if reply.answer is None else reply.answer.answer == "yes" for reply in answered
            ]
            judge = f"{answered[0].model} {answered[0].prompt}"
            audited[question.id] = question.with_verdict(
                QuestionVerdict(AUDIT_CHECK, True, judge, {"answerable": answerable})
            )
        kept = tuple(audited.get(question.id, question) for question in result.questions)
        discarded = tuple(
            replace(row, question=audited.get(row.item, row.question)) for row in result.discarded
        )
        return replace(result, questions=kept, discarded=discarded)

    def _ask_about(
        self,
        prompt: PromptTemplate[AnswerT],
        questions: Sequence[Question],
        build_views: Callable[[Question], Views],
        description: str,
    ) -> list[list[Reply[AnswerT]]]:
        """Return the replies about each view of each question."""
        views = len(build_views(questions[0]))
        pairs = [(question, view) for question in questions for view in range(views)]

        def build(pair: tuple[Question, int]) -> dict[str, str]:
            return {"question": pair[0].text, "text": build_views(pair[0])[pair[1]]}

        replies = self.model.ask(prompt, pairs, build, description)
        return [replies[start : start + views] for start in range(0, len(replies), views)]


AUDIT_CHECK = "audit"
#: Checks whose scores are of the thirds, that with the evidence first.
MARGIN_CHECKS = {f"rerankers: {rule}" for rule in ("segments", "margin")}


@dataclass(frozen=True)
class MarginPool:
    """The questions with at least some margin, or all with None; a row of table 6."""

    at_least: float | None
    positions: tuple[int, int, int]
    """Number of questions by the third with their evidence."""
    share: float
    """Share of all questions with a margin, in [0, 1]."""


@dataclass(frozen=True)
class MarginRange:
    """The audited questions with a margin in [low, high), None for no limit; a row of table 7."""

    low: float | None
    high: float | None
    audited: int
    """Questions that were audited completely."""
    rates: Mapping[str, float]
    """Rates as `summarize_audit` returns them."""


def find_margin(question: Question) -> float | None:
    """Return the margin of a question's segment; None if no rerankers compared segments."""
    scores = next(
        (
            verdict.values["scores"]
            for verdict in question.verdicts
            if verdict.check in MARGIN_CHECKS
        ),
        None,
    )
    return None if scores is None else compute_margin(np.array(scores, np.float64), 0)


def _group_by_range(
    questions: Sequence[Question], margins: Sequence[float]
) -> defaultdict[int | None, list[Question]]:
    """Return questions by the number of thresholds that their margin reaches; None for those
    without a margin.
    """
    groups: defaultdict[int | None, list[Question]] = defaultdict(list)
    for question in questions:
        margin = find_margin(question)
        groups[None if margin is None else bisect_right(margins, margin)].append(question)
    return groups


def summarize_audit(questions: Sequence[Question]) -> dict[str, float]:
    """Return TargetYes, DistractorNo and Exclusive of audited questions, in [0, 1] (Built-in or
    Learned, appendix B.3).

    TargetYes is the share of questions that the segment with the evidence answers, DistractorNo the
    mean share of the other two that do not, Exclusive the share of questions that only the first
    answers. Empty if no question was audited completely.
    """
    complete = np.array(_list_complete(questions), np.float64)
    if not complete.size:
        return {}
    target, others = complete[:, 0], complete[:, 1:]
    return {
        "TargetYes": float(target.mean()),
        "DistractorNo": float((1 - others).mean()),
        "Exclusive": float((target * (1 - others).prod(axis=1)).mean()),
    }


def count_pools(
    questions: Sequence[Question], documents: Sequence[Document], margins: Sequence[float]
) -> list[MarginPool]:
    """Return the pool of all questions with a margin, and the pool at each threshold; none if no
    question has a margin.
    """
    known = by_id(documents)
    scored = [
        (margin, find_third(question.evidence, len(known[question.document].text)))
        for question in questions
        if (margin := find_margin(question)) is not None
    ]
    pools = []
    for threshold in (None, *margins) if scored else ():
        counts = Counter(
            third for margin, third in scored if threshold is None or margin >= threshold
        )
        pools.append(
            MarginPool(threshold, (counts[0], counts[1], counts[2]), counts.total() / len(scored))
        )
    return pools


def audit_ranges(questions: Sequence[Question], margins: Sequence[float]) -> list[MarginRange]:
    """Return the rates of the audit in each range of margins; none if no audited question has a
    margin.
    """
    groups = _group_by_range(questions, margins)
    ranges = [
        MarginRange(low, high, len(_list_complete(groups[row])), summarize_audit(groups[row]))
        for row, (low, high) in enumerate(pairwise((None, *margins, None)))
    ]
    return ranges if any(row.audited for row in ranges) else []


def list_checked(verified: StageResult) -> list[Question]:
    """Return every question that Verify checked, kept or discarded."""
    return [
        *verified.questions,
        *(row.question for row in verified.discarded if row.question is not None),
    ]


def _list_complete(questions: Sequence[Question]) -> list[list[bool]]:
    """Return the answers about the three segments of each question that has them all."""
    answers = [
        verdict.values["answerable"]
        for question in questions
        for verdict in question.verdicts
        if verdict.check == AUDIT_CHECK
    ]
    return [row for row in answers if None not in row]
