"""Stage 4, Verify: is the span where the answer is, and is it needed?

Rules of PosQ (arXiv 2505.13950, appendix A.2), Built-in or Learned (arXiv 2605.26578, section 3.1.3, appendix B) and PosIR
(arXiv 2601.08363, section 2.3, appendix C.3). Cheap checks come first; a question that fails one is not checked further.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from posir_build.cluster import Reranker
from posir_build.locate import remove_span, split_thirds
from posir_build.records import Discarded, Document, Question, QuestionVerdict, StageResult, by_id, seeded_order
from posir_build.settings import VerifySettings
from posir_tasks.interventions import find_part
from posir_tasks.language_models.asking import BuiltValues, LanguageModel, Reply
from posir_tasks.language_models.chat_client import AnswerT, ModelAnswer, PromptTemplate, load_prompt
from posir_tasks.models.rerankers import compute_margin
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span, find_third

Scores = NDArray[np.float64]


class Relevance(ModelAnswer):
    """The relevance of a text to a question."""

    relevance: Literal[0, 1, 2, 3, 4]


class Answerability(ModelAnswer):
    """Whether a text answers a question."""

    reasoning: str
    answer: Literal["yes", "no"]


RELEVANCE = load_prompt("relevance", Relevance)
ANSWERABLE = load_prompt("answerable", Answerability)


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
        """Check the questions, and discard those that fail; PosirError if a model cannot be used."""
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
                    discarded.append(Discarded(reason, question.id, question=question.with_verdict(verdict)))
                else:
                    kept.append(question.with_verdict(verdict))
            counts[f"{name}: passed"] = len(kept)
        result = StageResult(tuple(self.documents), tuple(kept), tuple(discarded), (), counts)
        return self.audit(result) if self.settings.audit else result

    @cached_property
    def _texts(self) -> dict[str, str]:
        return {name: document.text for name, document in by_id(self.documents).items()}

    def _span_views(self, question: Question) -> Views:
        """Return the document, and the document without the span."""
        text = self._texts[question.document]
        return text, remove_span(text, question.evidence)

    def _segment_views(self, question: Question) -> Views:
        """Return the third with the evidence, and the other two."""
        text = self._texts[question.document]
        parts = split_thirds(text, find_sentences(text, self.language))
        target = find_part(parts, question.evidence)
        ordered: list[Span] = [parts[target], *(part for row, part in enumerate(parts) if row != target)]
        return tuple(part.of(text) for part in ordered)

    def check_by_rerankers(self, questions: Sequence[Question]) -> list[CheckOutcome]:
        """Apply the rule of PosQ, Built-in or Learned or PosIR to the scores of all rerankers."""
        rule = self.settings.rerank_rule
        build_views = self._span_views if rule == "span" else self._segment_views
        pairs = [(question.text, view) for question in questions for view in build_views(question)]
        scores = np.stack([reranker.score(pairs) for reranker in self.rerankers])
        judge = ", ".join(reranker.name for reranker in self.rerankers)
        outcomes = []
        # Of each question, shape (rerankers, views).
        for own in scores.reshape(len(self.rerankers), len(questions), -1).swapaxes(0, 1):
            values: dict[str, object] = {}
            match rule:
                case "segments":
                    reason = "" if ranks_target_first(own, 0) else "a reranker prefers another segment"
                case "margin":
                    values["margin"] = margin = compute_margin(own, 0)
                    reason = "" if margin >= self.settings.margin else "the margin of the segment is too small"
                case "span":
                    reason = "" if needs_span(own[:, 0], own[:, 1]) else "a reranker does not need the span"
            values["scores"] = own.tolist()
            outcomes.append((QuestionVerdict(f"rerankers: {rule}", not reason, judge, values), reason))
        return outcomes

    def check_by_relevance(self, questions: Sequence[Question]) -> list[CheckOutcome]:
        """Grade each text by the language model, 0 to 4, and apply the rule of PosQ or PosIR."""
        rule = self.settings.relevance
        build_views = self._span_views if rule == "span" else self._segment_views
        outcomes = []
        for graded in self._ask_about(RELEVANCE, questions, build_views, "Grade relevance"):
            grades = [reply.answer.relevance for reply in graded if reply.answer is not None]
            if len(grades) < len(graded):
                reason = f"unusable answer: {next(reply.problem for reply in graded if reply.answer is None)}"
            elif is_relevant(grades[0], grades[1:], self.settings.level, self.settings.gap):
                reason = ""
            else:
                enough = grades[0] >= self.settings.level
                reason = "as relevant without the evidence" if enough else "the text is not relevant enough"
            judge = f"{graded[0].model} {graded[0].prompt}"
            outcomes.append((QuestionVerdict(f"relevance: {rule}", not reason, judge, {"grades": grades}), reason))
        return outcomes

    def check_without_span(self, questions: Sequence[Question]) -> list[CheckOutcome]:
        """Ask whether the document answers the question without the span; it must not."""
        replies = self._ask_about(ANSWERABLE, questions, lambda question: self._span_views(question)[1:], "Leave the span out")
        outcomes = []
        for (reply,) in replies:
            answer = reply.answer and reply.answer.answer
            reason = "answered without the span" if answer == "yes" else ""
            reason = reason if answer else f"unusable answer: {reply.problem}"
            verdict = QuestionVerdict("leave-span-out", not reason, f"{reply.model} {reply.prompt}", {"answerable": answer})
            outcomes.append((verdict, reason))
        return outcomes

    def audit(self, result: StageResult) -> StageResult:
        """Ask of each third by itself whether it has the answer (Built-in or Learned, appendix B.3); nothing is discarded."""
        chosen = choose_audited(result, self.settings, self.seed)
        replies = self._ask_about(ANSWERABLE, chosen, self._segment_views, "Audit") if chosen else []
        audited: dict[str, Question] = {}
        for question, answered in zip(chosen, replies, strict=True):
            answerable = [None if reply.answer is None else reply.answer.answer == "yes" for reply in answered]
            judge = f"{answered[0].model} {answered[0].prompt}"
            audited[question.id] = question.with_verdict(QuestionVerdict(AUDIT_CHECK, True, judge, {"answerable": answerable}))
        kept = tuple(audited.get(question.id, question) for question in result.questions)
        discarded = tuple(replace(row, question=audited.get(row.item, row.question)) for row in result.discarded)
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
        values = BuiltValues(pairs, lambda pair: {"question": pair[0].text, "text": build_views(pair[0])[pair[1]]})
        replies = self.model.ask(prompt, values, description)
        return [replies[start : start + views] for start in range(0, len(replies), views)]


def ranks_target_first(scores: Scores, target: int) -> bool:
    """Return whether every reranker, scores of shape (rerankers, segments), puts a segment first (PosQ, appendix A.2)."""
    return bool((scores[:, [target]] > np.delete(scores, target, axis=1)).all())


def needs_span(with_span: Scores, without_span: Scores) -> bool:
    """Return whether every reranker, shape (rerankers,), prefers the document to that without the span (PosIR, section 2.3)."""
    return bool((with_span > without_span).all())


def is_relevant(target: int, others: Sequence[int], level: int, gap: int) -> bool:
    """Return whether the text with the evidence is relevant, and more so than every text without.

    PosQ, appendix A.2: L(t) >= 3 and L(t) >= L(u) + 1 for both other segments u. PosIR, section 2.3, compares the document with
    the document without the span; its thresholds are lost. Grades are 0 to 4, of texts with and without evidence.
    """
    return target >= level and all(target >= other + gap for other in others)


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
    for verdict in question.verdicts:
        if verdict.check in MARGIN_CHECKS:
            return compute_margin(np.array(verdict.values["scores"], np.float64), 0)
    return None


def choose_audited(verified: StageResult, settings: VerifySettings, seed: int) -> list[Question]:
    """Return the questions that the audit reads: those that are kept, and of each range of margins the discarded ones, too."""
    groups: defaultdict[int | None, list[Question]] = defaultdict(list)
    kept = {question.id for question in verified.questions}
    for question in list_checked(verified):
        margin = find_margin(question)
        if margin is not None:
            groups[_find_range(margin, settings.margins)].append(question)
        elif question.id in kept:
            groups[None].append(question)
    drawn = [sorted(group, key=lambda row: seeded_order(seed, AUDIT_CHECK, row.id)) for group in groups.values()]
    return [question for group in drawn for question in group[: settings.audit_sample]]


def summarize_audit(questions: Sequence[Question]) -> dict[str, float]:
    """Return TargetYes, DistractorNo and Exclusive of audited questions, in [0, 1] (Built-in or Learned, appendix B.3).

    TargetYes is the share of questions that the segment with the evidence answers, DistractorNo the mean share of the other two
    that do not, Exclusive the share of questions that only the first answers. Empty if no question was audited completely.
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


def count_pools(questions: Sequence[Question], documents: Sequence[Document], margins: Sequence[float]) -> list[MarginPool]:
    """Return the pool of all questions with a margin, and the pool at each threshold; none if no question has a margin."""
    known = by_id(documents)
    scored = [
        (margin, find_third(question.evidence, len(known[question.document].text)))
        for question in questions
        if (margin := find_margin(question)) is not None
    ]
    pools = []
    for threshold in (None, *margins) if scored else ():
        counts = Counter(third for margin, third in scored if threshold is None or margin >= threshold)
        pools.append(MarginPool(threshold, (counts[0], counts[1], counts[2]), counts.total() / len(scored)))
    return pools


def audit_ranges(questions: Sequence[Question], margins: Sequence[float]) -> list[MarginRange]:
    """Return the rates of the audit in each range of margins; none if no audited question has a margin."""
    groups: defaultdict[int, list[Question]] = defaultdict(list)
    for question in questions:
        margin = find_margin(question)
        if margin is not None:
            groups[_find_range(margin, margins)].append(question)
    ranges = [
        MarginRange(low, high, len(_list_complete(groups[row])), summarize_audit(groups[row]))
        for row, (low, high) in enumerate(pairwise((None, *margins, None)))
    ]
    return ranges if any(row.audited for row in ranges) else []


def list_checked(verified: StageResult) -> list[Question]:
    """Return every question that Verify checked, kept or discarded."""
    return [*verified.questions, *(row.question for row in verified.discarded if row.question is not None)]


def _find_range(margin: float, margins: Sequence[float]) -> int:
    """Return the number of thresholds that a margin reaches."""
    return sum(margin >= threshold for threshold in margins)


def _list_complete(questions: Sequence[Question]) -> list[list[bool]]:
    """Return the answers about the three segments of each question that has them all."""
    answers = [
        verdict.values["answerable"] for question in questions for verdict in question.verdicts if verdict.check == AUDIT_CHECK
    ]
    return [row for row in answers if None not in row]
