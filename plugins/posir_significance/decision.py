"""Verdicts: the findings on a group of questions, and the change from one system to another.

A state follows from one interval and a margin, never from a p-value: a p-value above 0.05 is no
evidence of absence. No part of a difference is assigned to a cause. docs/statistics.md has the rule
and its measured error rates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from math import ceil

import numpy as np
from scipy.special import ndtri

from posir_significance.analysis import Analysis, GroupAnalysis, analyze, analyze_places
from posir_significance.controlled import MIN_DOCUMENTS, ControlledTest
from posir_significance.findings import (
    ChangeState,
    Finding,
    GroupFindings,
    Needed,
    NeededUnit,
    Quantity,
    Reason,
    State,
)
from posir_significance.intervals import LEVEL, estimate_difference, subtract_means
from posir_significance.observations import Floats, Integers, subtract_observations
from posir_significance.regression import Contrast
from posir_tasks.base.errors import UsageError
from posir_tasks.values.judgments import DOCUMENT, METRICS, JudgedScores
from posir_tasks.values.read_part import ReadKind
from posir_tasks.values.scores import Difference, Estimate, ResultValues

#: Quantile of the normal distribution for a power of 0.9: so likely a bias of the margin is found
#: where equivalence has 0.8.
POWER_ERRORS = 1.2816
#: Level of the interval of the middle third against the ends, a second statement beside the
#: verdict.
MIDDLE_LEVEL = 0.99
#: Level of each interval of a change: of three metrics together 95%.
CHANGE_LEVEL = 1 - (1 - LEVEL) / 3
#: The same of the metrics of judged queries.
JUDGED_LEVEL = 1 - (1 - LEVEL) / len(METRICS)
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
                    "position effect, or "
                    f"KEY=POINTS, where KEY is {', '.join(values)}."
                )
            values[key or "position_effect"] = points / 100
        return cls(**values)


DEFAULT_MARGINS = Margins()


def decide(
    group: GroupAnalysis, margin: float = DEFAULT_MARGINS.position_effect, level: float = LEVEL
) -> GroupFindings:
    """Return the findings on a group of questions.

    Args:
        group: Its analysis.
        margin: Smallest effect that matters, in nDCG@10, in (0, 1).
        level: Level of the intervals of effects: above 0.95 for rows that are read together.
    """
    whole, within = group.whole, group.within
    is_blind = group.not_tested is Reason.ORDER_BLIND
    tested = within or whole
    facts = [
        Finding(Quantity.NDCG_AT_10, _plain(group.ndcg)),
        Finding(Quantity.UNREAD_SHARE, _fact(group.observations.unread_share)),
        Finding(Quantity.START_MINUS_END, group.start_minus_end),
        Finding(Quantity.PSI_AS_PUBLISHED, _fact(group.psi_as_published)),
        Finding(Quantity.PSI_BY_CHANCE, group.psi_by_chance),
        _effect(Quantity.TRUNCATION_LOSS, whole.truncation_loss if whole else None, level),
        Finding(Quantity.POSITION_EFFECT, ZERO, level)
        if is_blind
        else _effect(Quantity.POSITION_EFFECT, whole.effect if whole else None, level),
        _effect(
            Quantity.MIDDLE_MINUS_ENDS,
            within.middle_minus_ends if within else None,
            max(level, MIDDLE_LEVEL),
        ),
        Finding(Quantity.CONTROLLED_PSI, ZERO if is_blind else whole.psi if whole else None),
        decide_verdict(group, margin, level),
    ]
    return GroupFindings(
        findings={finding.quantity: finding for finding in facts},
        read=group.observations.read,
        questions=group.queries,
        documents=group.documents,
        counted=group.counted,
        tested_questions=tested.question_count if tested else 0,
        tested_documents=tested.document_count if tested else 0,
    )


def _plain(estimate: Estimate | None) -> Estimate | None:
    return Estimate(estimate.value, estimate.interval) if estimate else None


def _fact(value: float | None) -> Estimate | None:
    return None if value is None else Estimate(value)


def _effect(quantity: Quantity, contrast: Contrast | None, level: float) -> Finding:
    return Finding(quantity, _at_level(contrast, level), level)


def _at_level(contrast: Difference | None, level: float) -> Estimate | None:
    if contrast is None or contrast.interval_at is None:
        return None
    return Estimate(contrast.value, contrast.interval_at(level))


def decide_verdict(group: GroupAnalysis, margin: float, level: float = LEVEL) -> Finding:
    """Return the position effect within the window, with the state that follows from its
    interval.
    """
    quantity = Quantity.POSITION_EFFECT_IN_WINDOW
    if group.not_tested is Reason.ORDER_BLIND:
        return Finding(quantity, ZERO, level, State.NO_BIAS, Reason.ORDER_BLIND, margin=margin)
    if group.within is None:
        return Finding(
            quantity, None, level, State.NOT_TESTED, _explain_untested(group), margin=margin
        )
    test = group.within
    estimate = _at_level(test.effect, level)
    undecided = Finding(quantity, estimate, level, State.INCONCLUSIVE, margin=margin)
    if test.effect is None or estimate is None or test.documents_at_ends < MIN_DOCUMENTS:
        # More documents like these would not have evidence at both ends either.
        needed = _need_documents(test) if test.documents_at_ends else None
        return replace(undecided, reason=Reason.FEW_DOCUMENTS, needed=needed)
    if test.room_for_effect <= margin:
        return replace(undecided, reason=Reason.NO_ROOM)
    state = decide_state(estimate, margin)
    if state is not State.INCONCLUSIVE:
        return replace(undecided, state=state)
    number = need_number(test.effect.standard_error, margin, level, test.question_count)
    return replace(
        undecided,
        reason=Reason.WIDE_INTERVAL,
        needed=Needed(number, NeededUnit.QUESTIONS) if number else None,
    )


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


def _explain_untested(group: GroupAnalysis) -> Reason:
    """Return why there is no test within the window."""
    if group.has_places:
        return Reason.SEVERAL_POSITIONS
    if group.not_tested is not None:
        return group.not_tested
    return (
        Reason.WINDOW_DIFFERS
        if group.observations.read.kind is not ReadKind.UNKNOWN
        else Reason.WINDOW_UNKNOWN
    )


def _need_documents(test: ControlledTest) -> Needed:
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
    by_margin = values.computed.setdefault("findings", {})
    if margin not in by_margin:
        analysis = analyze(values)
        levels = (LEVEL, *[level_of_lengths(analysis)] * len(analysis.lengths))
        groups = zip(analysis.groups, levels, strict=True)
        by_margin[margin] = tuple(decide(group, margin, level) for group, level in groups)
    findings: tuple[GroupFindings, ...] = by_margin[margin]
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


@dataclass(frozen=True)
class MetricChange:
    """The change of one metric from system A to system B, with its simultaneous interval."""

    state: ChangeState
    reason: Reason | None
    """Given if and only if it is inconclusive or not tested."""
    margin: float
    difference: Difference | None
    """B - A, with its interval at the level of the change; None if undefined."""
    needed: Needed | None = None
    """About as much data would decide."""


@dataclass(frozen=True)
class Change:
    """The change from system A to system B in three metrics; the probability of any false
    difference is at most 0.05.
    """

    documents: int
    """Independent documents (articles, where known), or what else is counted; of unpaired results
    the fewer.
    """
    ndcg_at_10: MetricChange
    position_effect: MetricChange
    """The change in whole documents. Better is nearer to 0."""
    position_effect_in_window: MetricChange
    """Better is nearer to 0."""
    level: float = CHANGE_LEVEL
    """Level of each interval."""
    judged: Mapping[str, MetricChange] = field(default_factory=dict)
    """The metrics of queries without positions, by key, in place of the three."""
    counted: str = DOCUMENT
    """The noun of `documents`."""

    def find(self, key: str) -> MetricChange:
        """Return the change of a metric by its key."""
        if key in self.judged:
            return self.judged[key]
        change: MetricChange = getattr(self, key)
        return change


def compare_groups(
    a: GroupAnalysis,
    b: GroupAnalysis,
    *,
    paired: bool,
    margins: Margins = DEFAULT_MARGINS,
    level: float = CHANGE_LEVEL,
) -> Change:
    """Return the change from system A to system B over the same group of questions.

    Args:
        a: System A.
        b: System B.
        paired: Whether both have the same questions in the same order. Position effects need that.
        margins: Smallest differences that matter.
        level: Level of each interval, above `CHANGE_LEVEL` for rows that are read together.
    """
    if paired:
        differences = subtract_observations(a.observations, b.observations)
        ndcg = estimate_difference(differences.gains, differences.clusters, differences.shares)
    else:
        ndcg = subtract_means(a.ndcg, b.ndcg) if a.ndcg and b.ndcg else None
    documents = min(a.documents, b.documents)
    whole = _Pair.of_whole(a, b) if paired else _Pair(reason=Reason.OTHER_DATA)
    within = _Pair.of_window(a, b) if paired else _Pair(reason=Reason.OTHER_DATA)
    return Change(
        documents=documents,
        ndcg_at_10=decide_change(ndcg, margins.ndcg_at_10, documents, 1, level),
        position_effect=_compare_effects(whole, margins.position_effect, level),
        position_effect_in_window=_compare_effects(within, margins.position_effect, level),
        level=level,
        counted=a.counted,
    )


@dataclass(frozen=True)
class _Pair:
    """One test of two systems on the same rows, or why there is none."""

    a: ControlledTest | None = None
    b: ControlledTest | None = None
    reason: Reason | None = None
    is_blind: bool = False
    """Whether word order plays no part in the scores of either."""

    @classmethod
    def of_whole(cls, a: GroupAnalysis, b: GroupAnalysis) -> _Pair:
        """Pair test W."""
        return cls._build(
            a, b, (a.whole, b.whole), same=a.versions == b.versions, otherwise=Reason.OTHER_DATA
        )

    @classmethod
    def of_window(cls, a: GroupAnalysis, b: GroupAnalysis) -> _Pair:
        """Pair test R."""
        same = a.window_versions == b.window_versions
        return cls._build(a, b, (a.within, b.within), same=same, otherwise=Reason.WINDOW_DIFFERS)

    @classmethod
    def _build(
        cls,
        a: GroupAnalysis,
        b: GroupAnalysis,
        tests: tuple[ControlledTest | None, ControlledTest | None],
        *,
        same: bool,
        otherwise: Reason,
    ) -> _Pair:
        first, second = tests
        blind = [group.not_tested is Reason.ORDER_BLIND for group in (a, b)]
        if all(blind):
            return cls(is_blind=True)
        # Where word order plays no part, every version has the rank of the text itself.
        if blind[0] and second is not None:
            return cls(second.without_effect(), second)
        if blind[1] and first is not None:
            return cls(first, first.without_effect())
        if first is None or second is None:
            return cls(reason=_explain_untested(a if first is None and not blind[0] else b))
        if not same or not first.has_same_rows(second):
            return cls(reason=otherwise)
        return cls(first, second)


def _compare_effects(pair: _Pair, margin: float, level: float) -> MetricChange:
    """Return the change of a position effect; better is nearer to 0."""
    if pair.is_blind:
        return MetricChange(ChangeState.EQUIVALENT, None, margin, Difference(0.0, (0.0, 0.0)))
    if pair.a is None or pair.b is None:
        return MetricChange(ChangeState.NOT_TESTED, pair.reason, margin, None)
    difference = pair.b.subtract(pair.a)
    # The mean in place of the sum has the same sign, and is a gain.
    mean = _at_level(pair.b.average(pair.a).effect, level)
    low, high = mean.interval if mean and mean.interval else (0.0, 0.0)
    # System B is nearer to 0 if and only if the difference B - A and the sum have opposite signs.
    sign = int(high < 0) - int(low > 0)
    few = difference.documents_at_ends < MIN_DOCUMENTS
    change = decide_change(
        difference.effect, margin, difference.question_count, sign, level, NeededUnit.QUESTIONS
    )
    if few and change.state is not ChangeState.NOT_TESTED:
        needed = _need_documents(difference)
        return replace(
            change, state=ChangeState.INCONCLUSIVE, reason=Reason.FEW_DOCUMENTS, needed=needed
        )
    return change


def compare_gains(
    differences: Floats, clusters: Integers, margins: Margins = DEFAULT_MARGINS
) -> Change:
    """Return the change in nDCG@10 over questions whose evidence has no position; effects of
    position are not tested.

    `differences` are B - A by question, `clusters` their documents; shape (n,).
    """
    documents = len(np.unique(clusters))
    ndcg = estimate_difference(differences, clusters)
    untested = MetricChange(
        ChangeState.NOT_TESTED, Reason.NOT_STORED, margins.position_effect, None
    )
    return Change(
        documents, decide_change(ndcg, margins.ndcg_at_10, documents, 1), untested, untested
    )


def compare_judged(a: JudgedScores, b: JudgedScores, margins: Margins = DEFAULT_MARGINS) -> Change:
    """Return the change from system A to system B over the same judged queries in the same
    clusters.

    The intervals of all metrics hold at the same time.
    """
    level, documents = JUDGED_LEVEL, len(a.sizes)
    changes = dict[str, MetricChange]()
    for metric in METRICS:
        (first, clusters), (second, _) = a.expand(metric), b.expand(metric)
        difference = estimate_difference(second - first, clusters)
        changes[metric] = decide_change(difference, getattr(margins, metric), documents, 1, level)
    untested = MetricChange(
        ChangeState.NOT_TESTED, Reason.SEVERAL_POSITIONS, margins.position_effect, None
    )
    return Change(documents, changes["ndcg_at_10"], untested, untested, level, changes, a.counted)


def decide_change(
    difference: Difference | None,
    margin: float,
    number: int,
    sign: int,
    level: float = CHANGE_LEVEL,
    unit: NeededUnit = NeededUnit.DOCUMENTS,
) -> MetricChange:
    """Return the change of a metric.

    Args:
        difference: B - A; None if undefined.
        margin: Smallest difference that matters.
        number: Documents or questions that it rests on.
        sign: 1 if B is better where the difference is positive, -1 if where it is negative, 0 if
            that is open.
        level: Level of the interval.
        unit: What `number` counts; of documents, `MIN_DOCUMENTS` are needed.
    """
    if difference is None or difference.interval_at is None:
        few = Needed(MIN_DOCUMENTS, NeededUnit.DOCUMENTS)
        return MetricChange(ChangeState.INCONCLUSIVE, Reason.FEW_DOCUMENTS, margin, difference, few)
    low, high = difference.interval_at(level)
    shown = replace(difference, interval=(low, high))
    if unit is NeededUnit.DOCUMENTS and number < MIN_DOCUMENTS:
        few = Needed(MIN_DOCUMENTS, NeededUnit.DOCUMENTS)
        return MetricChange(ChangeState.INCONCLUSIVE, Reason.FEW_DOCUMENTS, margin, shown, few)
    if -margin < low and high < margin:
        return MetricChange(ChangeState.EQUIVALENT, None, margin, shown)
    if low <= 0 <= high:
        # Half the width of the interval of a normal distribution has this many standard errors.
        error = (high - low) / 2 / float(ndtri((1 + level) / 2))
        needed = need_number(error, margin, level, number)
        reason = Reason.WIDE_INTERVAL
        return MetricChange(
            ChangeState.INCONCLUSIVE,
            reason,
            margin,
            shown,
            Needed(needed, unit) if needed else None,
        )
    if not sign:
        return MetricChange(ChangeState.INCONCLUSIVE, Reason.DIRECTION_UNKNOWN, margin, shown)
    return MetricChange(
        ChangeState.BETTER if sign * difference.value > 0 else ChangeState.WORSE,
        None,
        margin,
        shown,
    )
