"""Verdicts on the differences between two systems on the same questions.

An interval and a margin determine the state. docs/statistics.md describes the rule.
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
    estimate_needed_documents,
    estimate_needed_number,
    explain_untested,
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
    DataUnit,
    Metric,
    Reason,
    RequiredData,
)
from posir_significance.intervals import estimate_difference, subtract_means
from posir_significance.observations import Floats, Integers
from posir_tasks.values.estimates import Difference
from posir_tasks.values.judgments import JudgedScores

#: The position effect of scores that do not depend on word order.
NO_EFFECT = Difference(0.0, (0.0, 0.0), compute_interval=lambda _: (0.0, 0.0))


def decide_change(
    metric: Metric,
    difference: Difference | None,
    margin: float,
    sample_size: int,
    sign: int = 1,
    level: float = CHANGE_LEVEL,
    unit: DataUnit = DataUnit.DOCUMENTS,
) -> ChangeRow:
    """Decide whether a metric is better, worse or equivalent.

    Args:
        metric: The metric.
        difference: b - a; None if undefined.
        margin: Minimum relevant difference.
        sample_size: Number of documents or questions.
        sign: 1 if a positive difference is better, -1 if a negative difference is, 0 if unknown.
        level: Level of the interval.
        unit: The unit of `sample_size`; at least `MIN_DOCUMENTS` documents are needed.
    """
    row = ChangeRow(metric, ChangeState.INCONCLUSIVE, margin, difference, level=level)
    min_documents = RequiredData(MIN_DOCUMENTS, DataUnit.DOCUMENTS)
    if difference is None or difference.compute_interval is None:
        return replace(row, reason=Reason.FEW_DOCUMENTS, needed=min_documents)
    low, high = difference.compute_interval(level)
    row = replace(row, estimate=replace(difference, interval=(low, high)))
    if unit is DataUnit.DOCUMENTS and sample_size < MIN_DOCUMENTS:
        return replace(row, reason=Reason.FEW_DOCUMENTS, needed=min_documents)
    if -margin < low and high < margin:
        return replace(row, state=ChangeState.EQUIVALENT)
    if low <= 0 <= high:
        error = (high - low) / 2 / float(ndtri((1 + level) / 2))
        required = estimate_needed_number(error, margin, level, sample_size)
        needed = RequiredData(required, unit) if required else None
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
    """Compare system b with system a in nDCG@10 and position effects, over the same questions.

    The probability of any false difference is at most 0.05.

    Args:
        a: System a.
        b: System b.
        paired: True for the same questions in the same order, which position effects need.
        margins: Minimum relevant differences.
        level: Level of each interval, above `CHANGE_LEVEL` for a family of rows.
    """
    difference = None
    if paired:
        first = a.observations
        gains = b.observations.gains - first.gains
        difference = estimate_difference(gains, first.layout.clusters, first.layout.shares)
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
    """Compare a metric over questions without evidence positions.

    Args:
        metric: The metric, with the default margin of nDCG@10.
        differences: b - a by question, shape (n,).
        clusters: Document numbers of the questions, shape (n,).
    """
    difference = estimate_difference(differences, clusters)
    margin = DEFAULT_MARGINS.ndcg_at_10
    return decide_change(metric, difference, margin, len(np.unique(clusters)))


def compare_judged(a: JudgedScores, b: JudgedScores, margins: Margins = DEFAULT_MARGINS) -> Changes:
    """Compare two systems on the same judged queries and clusters, with simultaneous intervals."""
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
    """Fill in a row for a position effect. An effect nearer to 0 is better."""
    first = a.whole
    second = b.whole
    has_same_versions = a.versions == b.versions
    mismatch = Reason.OTHER_DATA
    if row.metric is Metric.POSITION_EFFECT_IN_WINDOW:
        first = a.within
        second = b.within
        has_same_versions = a.window_versions == b.window_versions
        mismatch = Reason.WINDOW_DIFFERS
    blind_a = a.untested_reason is Reason.ORDER_BLIND
    blind_b = b.untested_reason is Reason.ORDER_BLIND
    if blind_a and blind_b:
        return replace(row, state=ChangeState.EQUIVALENT, estimate=NO_EFFECT)
    # A model that ignores word order gives all versions the same rank.
    if blind_a and second:
        first = second.remove_effect()
    elif blind_b and first:
        second = first.remove_effect()
    elif first is None or second is None:
        return replace(row, reason=explain_untested(b if blind_a or first else a))
    elif not has_same_versions or not first.has_same_rows(second):
        return replace(row, reason=mismatch)
    assert first is not None
    assert second is not None
    difference = second.subtract(first)
    mean = estimate_at(second.average(first).effect, row.level)
    low, high = mean.interval if mean and mean.interval else (0.0, 0.0)
    # System b is nearer to 0 if the difference b - a and the mean have opposite signs.
    sign = int(high < 0) - int(low > 0)
    sample_size = difference.question_count
    unit = DataUnit.QUESTIONS
    change = decide_change(
        row.metric, difference.effect, row.margin, sample_size, sign, row.level, unit
    )
    if difference.documents_at_ends >= MIN_DOCUMENTS:
        return change
    return replace(
        change,
        state=ChangeState.INCONCLUSIVE,
        reason=Reason.FEW_DOCUMENTS,
        needed=estimate_needed_documents(difference),
    )
