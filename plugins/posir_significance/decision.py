"""Findings and verdicts on a group of questions.

An interval and a margin determine the state; a p-value above 0.05 is not evidence of absence. No
difference is attributed to a cause. docs/statistics.md describes the rule and its measured error
rates.
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
    analyze_spans,
    load_group,
)
from posir_significance.controlled import ControlledTest
from posir_significance.findings import (
    MIN_DOCUMENTS,
    DataUnit,
    Finding,
    GroupFindings,
    LazyFindings,
    Quantity,
    Reason,
    RequiredData,
    State,
)
from posir_tasks.base.errors import UsageError
from posir_tasks.values.estimates import Difference, Estimate
from posir_tasks.values.means import LEVEL
from posir_tasks.values.read_part import ReadKind
from posir_tasks.values.scores import ResultValues

#: Normal quantile that gives a power of 0.9 to detect a bias as large as the margin, and of 0.8 to
#: show equivalence.
POWER_QUANTILE = 1.2816
#: Interval level for the middle third minus the ends.
MIDDLE_LEVEL = 0.99
#: The effect of a model that ignores word order.
ZERO = Estimate(0.0, (0.0, 0.0))


@dataclass(frozen=True)
class Margins:
    """Minimum relevant differences, as fractions above 0."""

    ndcg_at_10: float = 0.02
    position_effect: float = 0.05
    """Also applies to the effect within the window."""
    mrr_at_10: float = 0.02
    recall_at_10: float = 0.02
    recall_at_100: float = 0.02
    map_at_100: float = 0.02

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Margins:
        """Parse margins in points: `5` for the position effect, `ndcg_at_10=2` for another score.

        Raises:
            PosirError: A score is unknown, or a number is not between 0 and 100.
        """
        margins = asdict(cls())
        for text in texts:
            key, _, number = text.rpartition("=")
            key = key or "position_effect"
            try:
                points = float(number)
            except ValueError:
                points = 0.0
            if key not in margins or not 0 < points < 100:
                raise UsageError(
                    f"Invalid margin '{text}'. Write points between 0 and 100, such as 5 for the "
                    f"position effect, or KEY=POINTS, where KEY is {', '.join(margins)}."
                )
            margins[key] = points / 100
        return cls(**margins)


DEFAULT_MARGINS = Margins()


def decide(
    group: GroupAnalysis,
    margin: float = DEFAULT_MARGINS.position_effect,
    level: float = LEVEL,
    load_group: Callable[[], GroupAnalysis] | None = None,
) -> GroupFindings:
    """Compute the findings on a group of questions.

    Args:
        group: The analysis of the group.
        margin: Minimum relevant effect, in nDCG@10, in (0, 1).
        level: Level of the intervals of effects, above 0.95 for a family of rows.
        load_group: Loads the analysis again when a lazy estimate is read, so that the findings do
            not keep it in memory. By default, they keep `group`.
    """
    load = load_group or (lambda: group)
    whole = group.whole
    within = group.within
    test = within or whole
    mean = group.ndcg
    unread = group.observations.unread_share
    effect = estimate_at(whole.effect if whole else None, level)
    psi = whole.psi if whole else None
    if group.untested_reason is Reason.ORDER_BLIND:
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
    # Slow: both draw a thousand samples.
    lazy_estimates = {
        Quantity.PSI_AS_PUBLISHED: lambda: load().published_psi.observed,
        Quantity.PSI_BY_CHANCE: lambda: load().published_psi.by_chance,
    }
    return GroupFindings(
        findings=LazyFindings(findings, lazy_estimates),
        read=group.observations.read,
        questions=group.queries,
        documents=group.documents,
        unit_name=group.unit_name,
        tested_questions=test.question_count if test else 0,
        tested_documents=test.document_count if test else 0,
    )


def estimate_at(contrast: Difference | None, level: float) -> Estimate | None:
    """Return a contrast with its interval at a level, or None if it is undefined."""
    if contrast is None or contrast.compute_interval is None:
        return None
    return Estimate(contrast.value, contrast.compute_interval(level))


def decide_verdict(group: GroupAnalysis, margin: float, level: float = LEVEL) -> Finding:
    """Decide the verdict on the position effect within the window."""
    finding = Finding(
        Quantity.POSITION_EFFECT_IN_WINDOW, None, level, State.NOT_TESTED, margin=margin
    )
    if group.untested_reason is Reason.ORDER_BLIND:
        return replace(finding, estimate=ZERO, state=State.NO_BIAS, reason=Reason.ORDER_BLIND)
    test = group.within
    if test is None:
        return replace(finding, reason=explain_untested(group))
    estimate = estimate_at(test.effect, level)
    finding = replace(finding, estimate=estimate, state=State.INCONCLUSIVE)
    if test.effect is None or estimate is None or test.documents_at_ends < MIN_DOCUMENTS:
        # If no document has evidence at both ends, more documents do not help.
        needed = estimate_needed_documents(test) if test.documents_at_ends else None
        return replace(finding, reason=Reason.FEW_DOCUMENTS, needed=needed)
    if test.max_effect <= margin:
        return replace(finding, reason=Reason.NO_ROOM)
    state = decide_state(estimate, margin)
    if state is not State.INCONCLUSIVE:
        return replace(finding, state=state)
    number = estimate_needed_number(test.effect.standard_error, margin, level, test.question_count)
    needed = RequiredData(number, DataUnit.QUESTIONS) if number else None
    return replace(finding, reason=Reason.WIDE_INTERVAL, needed=needed)


def decide_state(estimate: Estimate, margin: float) -> State:
    """Determine the state from an interval and a margin."""
    if estimate.interval is None:
        return State.INCONCLUSIVE
    low, high = estimate.interval
    if -margin < low and high < margin:
        return State.NO_BIAS
    if low > 0:
        return State.FAVORS_START
    return State.FAVORS_END if high < 0 else State.INCONCLUSIVE


def explain_untested(group: GroupAnalysis) -> Reason:
    """Explain why there is no test within the window."""
    if group.has_several_spans:
        return Reason.SEVERAL_POSITIONS
    if group.untested_reason is not None:
        return group.untested_reason
    is_unknown = group.observations.read.kind is ReadKind.UNKNOWN
    return Reason.WINDOW_UNKNOWN if is_unknown else Reason.WINDOW_DIFFERS


def estimate_needed_documents(test: ControlledTest) -> RequiredData:
    """Estimate the number of documents of which `MIN_DOCUMENTS` have evidence at both ends."""
    factor = MIN_DOCUMENTS / max(test.documents_at_ends, 1)
    return RequiredData(max(ceil(factor * test.document_count), MIN_DOCUMENTS), DataUnit.DOCUMENTS)


def estimate_needed_number(
    error: float, margin: float, level: float, sample_size: int
) -> int | None:
    """Estimate the number of questions or documents needed for a verdict, rounded to two digits, or
    None if there are enough.

    The estimate gives a power of 0.80 to show equivalence if there is no effect, and of 0.90 to
    detect an effect as large as the margin.

    Args:
        error: Standard error.
        margin: Minimum relevant effect.
        level: Level of the interval.
        sample_size: Current number of questions or documents.
    """
    quantile = float(ndtri((1 + level) / 2)) + POWER_QUANTILE
    factor = (quantile * error / margin) ** 2
    return int(float(f"{factor * sample_size:.2g}")) if factor > 1 else None


def decide_result(
    values: ResultValues, margin: float = DEFAULT_MARGINS.position_effect
) -> tuple[GroupFindings, ...]:
    """Compute the findings on all questions of a result, then on each of several length buckets.

    Over all questions, intervals are at 95%. The intervals of the k lengths with an estimate are
    simultaneous, each at 1 - 0.05 / k.
    """
    lengths = len(values.ranks.axes.lengths)
    indices = range(1 + lengths if lengths > 1 else 1)
    return tuple(decide_group(values, index, margin) for index in indices)


def decide_group(
    values: ResultValues, index: int, margin: float = DEFAULT_MARGINS.position_effect
) -> GroupFindings:
    """Compute the findings on all questions (index 0) or on a length bucket (from 1); cached."""
    cache = values.cache.setdefault("findings", {})
    if (margin, index) not in cache:
        level = compute_length_level(analyze(values)) if index else LEVEL
        load = partial(load_group, values, index)
        cache[margin, index] = decide(load(), margin, level, load)
    findings: GroupFindings = cache[margin, index]
    return findings


def decide_spans(
    values: ResultValues, margin: float = DEFAULT_MARGINS.position_effect
) -> GroupFindings | None:
    """Compute the findings on queries with several evidence spans; None if there are none.

    Each of a query's n spans has weight 1/n.
    """
    places = analyze_spans(values)
    return decide(places, margin) if places else None


def compute_length_level(analysis: Analysis) -> float:
    """Compute the level of each length's interval that makes all of them simultaneous at 95%."""
    tests = [group.whole for group in analysis.lengths]
    rows = sum(test is not None and test.effect is not None for test in tests)
    return 1 - (1 - LEVEL) / max(rows, 1)
