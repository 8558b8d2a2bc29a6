"""Stage 4, Verify: is the span where the answer is, and is it needed?

Rules of PosQ (arXiv 2505.13950, appendix A.2), Built-in or Learned (arXiv 2605.26578, section 3.1.3, appendix B) and PosIR
(arXiv 2601.08363, section 2.3, appendix C.3). Cheap checks come first; a question that fails one is not checked further.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from posir_build import answers, rules
from posir_build.audit import AUDIT_CHECK, choose_audited
from posir_build.cluster import Reranker
from posir_build.matching import remove_span, split_thirds
from posir_build.records import Discarded, Document, Question, QuestionVerdict, StageResult, by_id
from posir_build.settings import RelevanceRule, RerankRule, VerifySettings
from posir_tasks.interventions import find_part
from posir_tasks.language_models.asking import BuiltValues, LanguageModel, Reply
from posir_tasks.language_models.prompt import AnswerT, PromptTemplate, load_prompt
from posir_tasks.models.rerankers import compute_margin
from posir_tasks.text.sentences import find_sentences
from posir_tasks.text.spans import Span

RELEVANCE = load_prompt("relevance", answers.Relevance)
ANSWERABLE = load_prompt("answerable", answers.Answerability)


@dataclass(frozen=True)
class CheckOutcome:
    """The outcome of a check of one question."""

    verdict: QuestionVerdict
    reason: str = ""
    """The reason why it is discarded; empty if it passed."""


#: A text that may be judged: the text with the evidence comes first.
Views = tuple[str, ...]
Check = Callable[[Sequence[Question]], list[CheckOutcome]]


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
        """Check the questions, and discard those that fail.

        Raises:
            PosirError: A model cannot be used.
        """
        kept, discarded = list(questions), list[Discarded]()
        counts: dict[str, int] = {}
        for name, check in self._checks().items():
            outcomes = check(kept) if kept else []
            checked = [question.with_verdict(outcome.verdict) for question, outcome in zip(kept, outcomes, strict=True)]
            counts[f"{name}: checked"] = len(kept)
            kept = []
            for question, outcome in zip(checked, outcomes, strict=True):
                if outcome.reason:
                    discarded.append(Discarded(outcome.reason, question.id, question=question))
                else:
                    kept.append(question)
            counts[f"{name}: passed"] = len(kept)
        result = StageResult(tuple(self.documents), tuple(kept), tuple(discarded), (), counts)
        return self.audit(result) if self.settings.audit else result

    def _checks(self) -> dict[str, Check]:
        checks: dict[str, Check] = {}
        if self.rerankers:
            checks["rerankers"] = self.check_by_rerankers
        if self.settings.relevance is not RelevanceRule.NONE:
            checks["relevance"] = self.check_by_relevance
        if self.settings.leave_out:
            checks["leave-span-out"] = self.check_without_span
        return checks

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
        build_views = self._span_views if rule is RerankRule.SPAN else self._segment_views
        pairs = [(question.text, view) for question in questions for view in build_views(question)]
        views = len(pairs) // len(questions)
        scores = np.stack([reranker.score(pairs) for reranker in self.rerankers]).reshape(len(self.rerankers), -1, views)
        judge = ", ".join(reranker.name for reranker in self.rerankers)
        outcomes = []
        for row in range(len(questions)):
            own = scores[:, row]
            reason, values = self._apply_rerank_rule(own)
            values["scores"] = own.tolist()
            outcomes.append(CheckOutcome(QuestionVerdict(f"rerankers: {rule}", not reason, judge, values), reason))
        return outcomes

    def _apply_rerank_rule(self, scores: rules.Scores) -> tuple[str, dict[str, object]]:
        """Return why scores of shape (rerankers, views) fail, or an empty text; and what is worth recording."""
        match self.settings.rerank_rule:
            case RerankRule.SEGMENTS:
                passed = rules.ranks_target_first(scores, 0)
                return "" if passed else "a reranker prefers another segment", {}
            case RerankRule.MARGIN:
                margin = compute_margin(scores, 0)
                return "" if margin >= self.settings.margin else "the margin of the segment is too small", {"margin": margin}
            case RerankRule.SPAN:
                passed = rules.needs_span(scores[:, 0], scores[:, 1])
                return "" if passed else "a reranker does not need the span", {}

    def check_by_relevance(self, questions: Sequence[Question]) -> list[CheckOutcome]:
        """Grade each text by the language model, 0 to 4, and apply the rule of PosQ or PosIR."""
        rule = self.settings.relevance
        build_views = self._span_views if rule is RelevanceRule.SPAN else self._segment_views
        replies = self._ask_about(RELEVANCE, questions, build_views, "Grade relevance")
        outcomes = []
        for graded in replies:
            judge = f"{graded[0].model} {graded[0].prompt}"
            problem = next((reply.problem for reply in graded if reply.answer is None), "")
            grades = [reply.answer.relevance for reply in graded if reply.answer is not None]
            reason = f"unusable answer: {problem}" if problem else ""
            if not reason and not rules.is_relevant(grades[0], grades[1:], self.settings.level, self.settings.gap):
                enough = grades[0] >= self.settings.level
                reason = "as relevant without the evidence" if enough else "the text is not relevant enough"
            outcomes.append(CheckOutcome(QuestionVerdict(f"relevance: {rule}", not reason, judge, {"grades": grades}), reason))
        return outcomes

    def check_without_span(self, questions: Sequence[Question]) -> list[CheckOutcome]:
        """Ask whether the document answers the question without the span; it must not."""
        replies = self._ask_about(ANSWERABLE, questions, lambda question: self._span_views(question)[1:], "Leave the span out")
        outcomes = []
        for (reply,) in replies:
            reason = "answered without the span" if reply.answer and reply.answer.answer == "yes" else ""
            if reply.answer is None:
                reason = f"unusable answer: {reply.problem}"
            values = {"answerable": reply.answer and reply.answer.answer}
            outcomes.append(
                CheckOutcome(QuestionVerdict("leave-span-out", not reason, f"{reply.model} {reply.prompt}", values), reason)
            )
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
        return replace(
            result,
            questions=tuple(audited.get(question.id, question) for question in result.questions),
            discarded=tuple(
                row if row.question is None else replace(row, question=audited.get(row.question.id, row.question))
                for row in result.discarded
            ),
        )

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
