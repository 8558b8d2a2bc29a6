"""Questions by the margin of their segment, and what an audit says of them (Built-in or Learned, arXiv 2605.26578, B.2, B.3).

Rerankers that compare the thirds of a document give a question a margin, whatever they accept. Pools are cumulative (table 6),
ranges of margins are disjoint (table 7), and both count questions that a check discarded, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from posir_build.records import Document, Question, StageResult, by_id, seeded_order
from posir_build.settings import RerankRule, VerifySettings
from posir_tasks.models.rerankers import compute_margin
from posir_tasks.text.spans import find_third

AUDIT_CHECK = "audit"
#: Checks whose scores are of the thirds, that with the evidence first.
MARGIN_CHECKS = {f"rerankers: {rule}" for rule in (RerankRule.SEGMENTS, RerankRule.MARGIN)}


@dataclass(frozen=True)
class MarginPool:
    """The questions with at least some margin; a row of table 6."""

    at_least: float | None
    """None for all."""
    positions: tuple[int, int, int]
    """Number of questions by the third with their evidence."""
    share: float
    """Share of all questions with a margin, in [0, 1]."""

    @property
    def questions(self) -> int:
        """Number of questions."""
        return sum(self.positions)


@dataclass(frozen=True)
class MarginRange:
    """The audited questions with a margin in [low, high); a row of table 7."""

    low: float | None
    """None for the range below all thresholds."""
    high: float | None
    """None for the range above all thresholds."""
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
    """Return the questions that the audit reads: those that are kept, and of each range of margins the discarded ones, too.

    Args:
        verified: What the checks kept and discarded.
        settings: Thresholds of the ranges, and the number of questions of each.
        seed: Any integer.
    """
    groups: defaultdict[int | None, list[Question]] = defaultdict(list)
    kept = {question.id for question in verified.questions}
    for question in list_checked(verified):
        margin = find_margin(question)
        if margin is not None:
            groups[_find_range(margin, settings.margins)].append(question)
        elif question.id in kept:
            groups[None].append(question)
    return [
        question
        for group in groups.values()
        for question in sorted(group, key=lambda question: seeded_order(seed, AUDIT_CHECK, question.id))[
            : settings.audit_sample
        ]
    ]


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
    edges = (None, *margins, None)
    ranges = [
        MarginRange(edges[row], edges[row + 1], len(_list_complete(groups[row])), summarize_audit(groups[row]))
        for row in range(len(edges) - 1)
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
