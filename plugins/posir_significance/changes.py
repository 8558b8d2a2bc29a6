"""Changes: what the verdicts are on the differences between two systems on the same questions.

A state follows from one interval and a margin, never from a p-value. docs/statistics.md has the
rule.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from posir_significance.analysis import GroupAnalysis
from posir_significance.decision import (
    DEFAULT_MARGINS,
    Margins,
    estimate_at,
    explain_untested,
    need_documents,
    need_number,
)
from posir_significance.findings import (
    CHANGE_LEVEL,
    EFFECTS,
    JUDGED_LEVEL,
    JUDGED_METRICS,
    MIN_DOCUMENTS,
    ChangeRow,
    Changes,
    ChangeState,
    Metric,
    Needed,
    NeededUnit,
    Reason,
)
from posir_significance.intervals import estimate_difference, subtract_means
from posir_significance.observations import Floats, Integers, subtract_observations
from posir_tasks.values.estimates import Difference
from posir_tasks.values.judgments import JudgedScores

#: The effect of position on scores in which word order plays no part, at any level.
NO_EFFECT = Difference(0.0, (0.0, 0.0), interval_at=lambda _: (0.0, 0.0))


def decide_change(
    metric: Metric,
    difference: Difference | None,
    margin: float,
    number: int,
    sign: int = 1,
    level: float = CHANGE_LEVEL,
    unit: NeededUnit = NeededUnit.DOCUMENTS,
) -> ChangeRow:
    """Decide whether a metric is better, worse or equivalent.

    Args:
        metric: The metric.
        difference: b - a; None if undefined.
        margin: Smallest difference that matters.
        number: Documents or questions that the difference rests on.
        sign: 1 if b is better where the difference is positive, -1 if where it is negative, 0 if
            that is open.
        level: Level of the interval.
        unit: What `number` counts; of documents, `MIN_DOCUMENTS` are needed.
    """
    row = ChangeRow(metric, ChangeState.INCONCLUSIVE, margin, difference, level=level)
    few = Needed(MIN_DOCUMENTS, NeededUnit.DOCUMENTS)
    if difference is None or difference.interval_at is None:
        return replace(row, reason=Reason.FEW_DOCUMENTS, needed=few)
    low, high = difference.interval_at(level)
    row = replace(row, estimate=replace(difference, interval=(low, high)))
    if unit is NeededUnit.DOCUMENTS and number < MIN_DOCUMENTS:
        return replace(row, reason=Reason.FEW_DOCUMENTS, needed=few)
    if -margin < low and high < margin:
        return replace(row, state=ChangeState.EQUIVALENT)
    if low <= 0 <= high:
        # Half the width of the interval of a normal distribution has this many standard errors.
        error = (high - low) / 2 / float(ndtri((1 + level) / 2))
        required = need_number(error, margin, level, number)
        needed = Needed(required, unit) if required else None
        return replace(row, reason=Reason.WIDE_INTERVAL, needed=needed)
    if not sign:
        return replace(row, reason=Reason.DIRECTION_UNKNOWN)
    is_better = sign * difference.value > 0
    return replace(row, state=ChangeState.BETTER if is_better else ChangeState.WORSE)


def compare_groups(
    a: GroupAnalysis,
    b: GroupAnalysis,
    *,
    paired: bool,
    margins: Margins = DEFAULT_MARGINS,
    level: float = CHANGE_LEVEL,
) -> Changes:
    """Compare system b with system a in nDCG@10 and in position effects, over the same group of
    questions.

    The probability of any false difference is at most 0.05.

    Args:
        a: System a.
        b: System b.
        paired: Whether both have the same questions in the same order. Position effects need that.
        margins: Smallest differences that matter.
        level: Level of each interval, above `CHANGE_LEVEL` for rows that are read together.
    """
    difference = None
    if paired:
        gains = subtract_observations(a.observations, b.observations)
        difference = estimate_difference(gains.gains, gains.clusters, gains.shares)
    elif a.ndcg and b.ndcg:
        difference = subtract_means(a.ndcg, b.ndcg)
    documents = min(a.documents, b.documents)
    ndcg = Metric.NDCG_AT_10
    changes = {ndcg: decide_change(ndcg, difference, margins.ndcg_at_10, documents, level=level)}
    for metric in EFFECTS:
        row = ChangeRow(metric, ChangeState.NOT_TESTED, margins.position_effect, level=level)
        other_data = replace(row, reason=Reason.OTHER_DATA)
        changes[metric] = _compare_effects(row, a, b) if paired else other_data
    return changes


def compare_gains(metric: Metric, differences: Floats, clusters: Integers) -> ChangeRow:
    """Compare a metric over questions whose evidence has no position.

    Args:
        metric: The metric; its margin is the usual one of nDCG@10.
        differences: b - a by question, shape (n,).
        clusters: The documents of the questions, shape (n,).
    """
    difference = estimate_difference(differences, clusters)
    margin = DEFAULT_MARGINS.ndcg_at_10
    return decide_change(metric, difference, margin, len(np.unique(clusters)))


def compare_judged(a: JudgedScores, b: JudgedScores, margins: Margins = DEFAULT_MARGINS) -> Changes:
    """Compare two systems over the same judged queries in the same clusters.

    The intervals of all metrics hold at the same time.
    """
    changes = Changes()
    for metric in JUDGED_METRICS:
        first, clusters = a.expand(metric.key)
        second, _ = b.expand(metric.key)
        difference = estimate_difference(second - first, clusters)
        margin = getattr(margins, metric.key)
        changes[metric] = decide_change(
            metric, difference, margin, len(a.sizes), level=JUDGED_LEVEL
        )
    return changes


def _compare_effects(row: ChangeRow, a: GroupAnalysis, b: GroupAnalysis) -> ChangeRow:
    """Complete a row of a position effect that is not tested yet; better is nearer to 0."""
    first = a.whole
    second = b.whole
    same_versions = a.versions == b.versions
    otherwise = Reason.OTHER_DATA
    if row.metric is Metric.POSITION_EFFECT_IN_WINDOW:
        first = a.within
        second = b.within
        same_versions = a.window_versions == b.window_versions
        otherwise = Reason.WINDOW_DIFFERS
    blind_a = a.not_tested is Reason.ORDER_BLIND
    blind_b = b.not_tested is Reason.ORDER_BLIND
    if blind_a and blind_b:
        return replace(row, state=ChangeState.EQUIVALENT, estimate=NO_EFFECT)
    # Where word order plays no part, every version has the rank of the text itself.
    if blind_a and second:
        first = second.without_effect()
    elif blind_b and first:
        second = first.without_effect()
    elif first is None or second is None:
        return replace(row, reason=explain_untested(b if blind_a or first else a))
    elif not same_versions or not first.has_same_rows(second):
        return replace(row, reason=otherwise)
    assert first is not None
    assert second is not None
    difference = second.subtract(first)
    # The mean has the sign of the sum, and is a gain.
    mean = estimate_at(second.average(first).effect, row.level)
    low, high = mean.interval if mean and mean.interval else (0.0, 0.0)
    # System b is nearer to 0 if and only if the difference b - a and the sum have opposite signs.
    sign = int(high < 0) - int(low > 0)
    number = difference.question_count
    unit = NeededUnit.QUESTIONS
    change = decide_change(row.metric, difference.effect, row.margin, number, sign, row.level, unit)
    if difference.documents_at_ends >= MIN_DOCUMENTS:
        return change
    needed = need_documents(difference)
    few = Reason.FEW_DOCUMENTS
    return replace(change, state=ChangeState.INCONCLUSIVE, reason=few, needed=needed)
