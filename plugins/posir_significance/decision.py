"""Verdicts: the findings on a group of questions.

A state follows from one interval and a margin, never from a p-value: a p-value above 0.05 is no
evidence of absence. No part of a difference is assigned to a cause. docs/statistics.md has the rule
and its measured error rates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import ceil

from scipy.special import ndtri

from posir_significance.analysis import (
    Analysis,
    GroupAnalysis,
    analyze,
    analyze_places,
    load_group,
)
from posir_significance.controlled import ControlledTest
from posir_significance.findings import (
    MIN_DOCUMENTS,
    ComputedFindings,
    Finding,
    GroupFindings,
    Needed,
    NeededUnit,
    Quantity,
    Reason,
    State,
)
from posir_tasks.base.errors import UsageError
from posir_tasks.values.estimates import Difference, Estimate
from posir_tasks.values.means import LEVEL
from posir_tasks.values.read_part import ReadKind
from posir_tasks.values.scores import ResultValues

#: Quantile of the normal distribution for a power of 0.9: so likely a bias of the margin is found
#: where equivalence has 0.8.
POWER_ERRORS = 1.2816
#: Level of the interval of the middle third against the ends, a second statement beside the
#: verdict.
MIDDLE_LEVEL = 0.99
#: An effect of nothing.
ZERO = Estimate(0.0, (0.0, 0.0))


@dataclass(frozen=True)
class Margins:
    """The smallest differences that matter, as fractions above 0."""

    ndcg_at_10: float = 0.02
    position_effect: float = 0.05
    """Also of the effect within the window."""
    mrr_at_10: float = 0.02
    recall_at_10: float = 0.02
    recall_at_100: float = 0.02
    map_at_100: float = 0.02

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Margins:
        """Read margins in points: `5` is that of the position effect, `ndcg_at_10=2` that of
        another score.

        Raises:
            PosirError: A text names no such score, or is no number between 0 and 100.
        """
        values = asdict(cls())
        for text in texts:
            key, _, number = text.rpartition("=")
            try:
                points = float(number)
            except ValueError:
                points = 0.0
            if (key or "position_effect") not in values or not 0 < points < 100:
                raise UsageError(
                    f"Invalid margin '{text}'. Write points between 0 and 100, such as 5 for the "
                    f"position effect, or KEY=POINTS, where KEY is {', '.join(values)}."
                )
            values[key or "position_effect"] = points / 100
        return cls(**values)


DEFAULT_MARGINS = Margins()


def decide(
    group: GroupAnalysis,
    margin: float = DEFAULT_MARGINS.position_effect,
    level: float = LEVEL,
    load_group: Callable[[], GroupAnalysis] | None = None,
) -> GroupFindings:
    """Return the findings on a group of questions.

    Args:
        group: Its analysis.
        margin: Smallest effect that matters, in nDCG@10, in (0, 1).
        level: Level of the intervals of effects: above 0.95 for rows that are read together.
        load_group: Analyzes the group again for what few readers want, so that findings on many
            results do not keep the analyses; by default `group` is kept.
    """
    load = load_group or (lambda: group)
    whole = group.whole
    within = group.within
    tested = within or whole
    mean = group.ndcg
    unread = group.observations.unread_share
    effect = estimate_at(whole.effect if whole else None, level)
    psi = whole.psi if whole else None
    if group.not_tested is Reason.ORDER_BLIND:
        effect = ZERO
        psi = ZERO
    loss = estimate_at(whole.truncation_loss if whole else None, level)
    middle_level = max(level, MIDDLE_LEVEL)
    middle = estimate_at(within.middle_minus_ends if within else None, middle_level)
    findings = (
        Finding(Quantity.NDCG_AT_10, mean and Estimate(mean.value, mean.interval)),
        Finding(Quantity.UNREAD_SHARE, None if unread is None else Estimate(unread)),
        Finding(Quantity.START_MINUS_END, group.start_minus_end),
        Finding(Quantity.PSI_AS_PUBLISHED),
        Finding(Quantity.PSI_BY_CHANCE),
        Finding(Quantity.TRUNCATION_LOSS, loss, level),
        Finding(Quantity.POSITION_EFFECT, effect, level),
        Finding(Quantity.MIDDLE_MINUS_ENDS, middle, middle_level),
        Finding(Quantity.CONTROLLED_PSI, psi),
        decide_verdict(group, margin, level),
    )
    # A thousand draws.
    drawn = {
        Quantity.PSI_AS_PUBLISHED: lambda: load().published_psi[0],
        Quantity.PSI_BY_CHANCE: lambda: load().published_psi[1],
    }
    return GroupFindings(
        findings=ComputedFindings(findings, drawn),
        read=group.observations.read,
        questions=group.queries,
        documents=group.documents,
        counted=group.counted,
        tested_questions=tested.question_count if tested else 0,
        tested_documents=tested.document_count if tested else 0,
    )


def estimate_at(contrast: Difference | None, level: float) -> Estimate | None:
    """Return the value of a contrast with its interval at a level; None if it is undefined."""
    if contrast is None or contrast.interval_at is None:
        return None
    return Estimate(contrast.value, contrast.interval_at(level))


def decide_verdict(group: GroupAnalysis, margin: float, level: float = LEVEL) -> Finding:
    """Return the position effect within the window, with the state that follows from its
    interval.
    """
    finding = Finding(
        Quantity.POSITION_EFFECT_IN_WINDOW, None, level, State.NOT_TESTED, margin=margin
    )
    if group.not_tested is Reason.ORDER_BLIND:
        return replace(finding, estimate=ZERO, state=State.NO_BIAS, reason=Reason.ORDER_BLIND)
    test = group.within
    if test is None:
        return replace(finding, reason=explain_untested(group))
    estimate = estimate_at(test.effect, level)
    finding = replace(finding, estimate=estimate, state=State.INCONCLUSIVE)
    if test.effect is None or estimate is None or test.documents_at_ends < MIN_DOCUMENTS:
        # More documents like these would not have evidence at both ends either.
        needed = need_documents(test) if test.documents_at_ends else None
        return replace(finding, reason=Reason.FEW_DOCUMENTS, needed=needed)
    if test.room_for_effect <= margin:
        return replace(finding, reason=Reason.NO_ROOM)
    state = decide_state(estimate, margin)
    if state is not State.INCONCLUSIVE:
        return replace(finding, state=state)
    number = need_number(test.effect.standard_error, margin, level, test.question_count)
    needed = Needed(number, NeededUnit.QUESTIONS) if number else None
    return replace(finding, reason=Reason.WIDE_INTERVAL, needed=needed)


def decide_state(estimate: Estimate, margin: float) -> State:
    """Return the state that follows from an interval and a margin."""
    if estimate.interval is None:
        return State.INCONCLUSIVE
    low, high = estimate.interval
    if -margin < low and high < margin:
        return State.NO_BIAS
    if low > 0:
        return State.FAVORS_START
    return State.FAVORS_END if high < 0 else State.INCONCLUSIVE


def explain_untested(group: GroupAnalysis) -> Reason:
    """Return the reason for which there is no test within the window."""
    if group.has_places:
        return Reason.SEVERAL_POSITIONS
    if group.not_tested is not None:
        return group.not_tested
    is_unknown = group.observations.read.kind is ReadKind.UNKNOWN
    return Reason.WINDOW_UNKNOWN if is_unknown else Reason.WINDOW_DIFFERS


def need_documents(test: ControlledTest) -> Needed:
    """Estimate how many documents are needed for enough of them with evidence at both ends."""
    times = MIN_DOCUMENTS / max(test.documents_at_ends, 1)
    return Needed(max(ceil(times * test.document_count), MIN_DOCUMENTS), NeededUnit.DOCUMENTS)


def need_number(error: float, margin: float, level: float, number: int) -> int | None:
    """Return about how many questions or documents would decide, to two digits; None if not more
    than there are.

    With so many, equivalence is found with a probability of 0.80 if there is no effect, and an
    effect of the margin with 0.90.

    Args:
        error: Standard error.
        margin: Smallest effect that matters.
        level: Level of the interval.
        number: What there is.
    """
    errors = float(ndtri((1 + level) / 2)) + POWER_ERRORS
    times = (errors * error / margin) ** 2
    return int(float(f"{times * number:.2g}")) if times > 1 else None


def decide_result(
    values: ResultValues, margin: float = DEFAULT_MARGINS.position_effect
) -> tuple[GroupFindings, ...]:
    """Return the findings on all questions of a result, then on each length bucket if there are
    several.

    Those on all questions are the headline, at 95%. The k lengths with an estimate are a family:
    their intervals hold at the same time, each at 1 - 0.05 / k.
    """
    lengths = len(values.ranks.axes.lengths)
    indices = range(1 + lengths if lengths > 1 else 1)
    return tuple(decide_group(values, index, margin) for index in indices)


def decide_group(
    values: ResultValues, index: int, margin: float = DEFAULT_MARGINS.position_effect
) -> GroupFindings:
    """Return the findings on all questions of a result (index 0), or on a length bucket (from 1),
    as `decide_result` does.
    """
    decided = values.computed.setdefault("findings", {})
    if (margin, index) not in decided:
        level = level_of_lengths(analyze(values)) if index else LEVEL
        load = partial(load_group, values, index)
        decided[margin, index] = decide(load(), margin, level, load)
    findings: GroupFindings = decided[margin, index]
    return findings


def decide_places(
    values: ResultValues, margin: float = DEFAULT_MARGINS.position_effect
) -> GroupFindings | None:
    """Return the findings on the queries with several places of evidence, each place at 1/n; None
    if there are none.
    """
    places = analyze_places(values)
    return decide(places, margin) if places else None


def level_of_lengths(analysis: Analysis) -> float:
    """Return the level of each interval of the lengths, which are a family."""
    rows = sum(
        group.whole is not None and group.whole.effect is not None for group in analysis.lengths
    )
    return 1 - (1 - LEVEL) / max(rows, 1)
