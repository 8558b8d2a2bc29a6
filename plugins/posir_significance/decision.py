"""The decision on a model's position bias, and on the change from one system to another: states that follow from intervals.

Nothing but a printed interval and a margin leads to a state: a p-value above 0.05 is no evidence of absence. No part of a
difference is assigned to a cause. docs/statistics.md has the rule and its measured error rates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from math import ceil
from typing import Any

import numpy as np
from scipy.special import ndtri

from posir_significance.analysis import Analysis, GroupAnalysis, analyze
from posir_significance.intervals import LEVEL, add_errors, estimate_difference, student_difference, subtract_means
from posir_significance.observations import Floats, Integers, subtract_observations
from posir_significance.position_effect import FEWEST_DOCUMENTS, fewest_documents
from posir_significance.regression import Contrast, PositionContrasts
from posir_tasks.errors import UsageError
from posir_tasks.judgments import DOCUMENT, METRICS, JudgedScores
from posir_tasks.read_part import ReadKind, ReadPart
from posir_tasks.scores import Difference, Estimate, Interval, ResultValues

#: Standard errors that fit into a margin if equivalence is shown with 80 % power: quantiles 97.5 % and 90 % of the normal
#: distribution; of a change, whose intervals are simultaneous over three metrics.
CHANGE_ERRORS = 2.39
ERRORS_IN_MARGIN, ERRORS_IN_CHANGE = 1.96 + 1.28, CHANGE_ERRORS + 1.28
#: Level of each interval of a change: of three metrics together 95 %.
CHANGE_LEVEL = 1 - (1 - LEVEL) / 3
#: The same of the metrics of judged queries.
JUDGED_LEVEL = 1 - (1 - LEVEL) / len(METRICS)
#: Quantile of the normal distribution for a power of 0.8.
POWER_ERRORS = 0.8416
#: Quantiles by which a posterior distribution of PSI enters a difference.
QUANTILES: Floats = (np.arange(250) + 0.5) / 250


class State(StrEnum):
    """The state of a decision on bias within what a model reads."""

    BIASED_TO_START = "biased_to_start"
    BIASED_TO_END = "biased_to_end"
    NO_BIAS = "no_bias"
    """None larger than the margin."""
    CANNOT_BE_SAID = "cannot_be_said"


class ChangeState(StrEnum):
    """The state of a change of a metric from system A to system B."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    """Within the margin."""
    CANNOT_BE_SAID = "cannot_be_said"


class Reason(StrEnum):
    """The reason why something cannot be said."""

    WINDOW_UNKNOWN = "window_unknown"
    NOT_STORED = "not_stored"
    """Evidence lies beyond the window, but the result does not store which."""
    NOT_COMPARED = "not_compared"
    """No document (or length) has questions in both thirds."""
    FEW_DOCUMENTS = "few_documents"
    WIDE_INTERVAL = "wide_interval"
    OTHER_SIDE = "other_side"
    """Start to end differs, but which system is nearer to 0 is open."""


@dataclass(frozen=True)
class Margins:
    """The smallest differences that matter, as fractions; larger than 0."""

    ndcg_at_10: float = 0.02
    start_to_end: float = 0.05
    """Also of the bias within what is read."""
    psi: float = 0.10
    mrr_at_10: float = 0.02
    recall_at_10: float = 0.02
    recall_at_100: float = 0.02
    map_at_100: float = 0.02

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Margins:
        """Read margins in points: `5` is that of start to end, `ndcg_at_10=2` and `psi=10` are those of other scores.

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
            if (key or "start_to_end") not in values or not 0 < points < 100:
                raise UsageError(
                    f"No margin: '{text}'. Write points between 0 and 100, such as 5 for start to end, or KEY=POINTS, where "
                    f"KEY is {', '.join(values)}."
                )
            values[key or "start_to_end"] = points / 100
        return cls(**values)


DEFAULT_MARGINS = Margins()


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The decision on the position bias of a model over a group of questions, and the numbers that users meet beside it.

    None where a value is undefined or unknown. `state` follows from the interval of `bias_within_read` at `level` and `margin`.
    """

    margin: float
    """Smallest bias that matters, in nDCG@10, in (0, 1)."""
    level: float = LEVEL
    """Level of the intervals of the contrasts: above 0.95 for rows that are read together, such as those of the lengths."""
    documents: int
    """Independent documents (articles, where known), or their clusters."""
    read: ReadPart
    bias_within_read: Contrast | None
    """First minus last third of what is read, over evidence that is read."""
    not_read: float | None
    """Share of the questions whose evidence is not read, or not all of it."""
    not_read_difference: Contrast | None
    """nDCG@10 of evidence that is read minus that of evidence that is not."""
    start_to_end: Contrast | None
    """First minus last third of the document, with the document or the length held fixed."""
    start_to_end_plain: float | None
    """Mean over questions of the first third minus that of the last; nothing is held fixed."""
    ndcg_at_10: Estimate | None
    find_group: Callable[[], GroupAnalysis] = field(repr=False, compare=False)
    """Returns the analysis of the group, for what takes long: PSI, and the test of any effect."""
    counted: str = DOCUMENT
    """The noun of `documents`."""

    @cached_property
    def _said(self) -> tuple[State, Reason | None, int | None]:
        if self.read.kind is ReadKind.UNKNOWN:
            return State.CANNOT_BE_SAID, Reason.WINDOW_UNKNOWN, None
        if self.bias_within_read is None and self.start_to_end is not None and self.not_read is None:
            return State.CANNOT_BE_SAID, Reason.NOT_STORED, None
        return decide_state(self.bias_within_read, self.margin, self.documents, self.level)

    @property
    def state(self) -> State:
        """The state that follows from the interval."""
        return self._said[0]

    @property
    def reason(self) -> Reason | None:
        """The reason if it cannot be said."""
        return self._said[1]

    @property
    def documents_needed(self) -> int | None:
        """About as many would tell, to two digits; with too few documents, the fewest for any state.

        None if it is said, or if documents are not what is missing.
        """
        return self._said[2]

    @cached_property
    def p_value_within_read(self) -> float | None:
        """P-value of any effect of position over what is read; None with too few documents, or if what is read is unknown."""
        return self.find_group().p_value_within_read

    def interval(self, contrast: Contrast | None) -> Interval | None:
        """Return the interval of a contrast of this decision at its level."""
        return contrast.interval_at(self.level) if contrast and contrast.interval_at else None

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON; every value with uncertainty is followed by its interval."""
        values: dict[str, Any] = {
            "state": self.state.value,
            "reason": self.reason and self.reason.value,
            "margin": self.margin,
            "level": self.level,
            "documents": self.documents,
            "documents_needed": self.documents_needed,
            "read": self.read.to_json(),
            "not_read": self.not_read,
        }
        for name in ("bias_within_read", "not_read_difference", "start_to_end"):
            contrast: Contrast | None = getattr(self, name)
            values |= {name: contrast and contrast.value, f"{name}_interval": self.interval(contrast)}
        values["start_to_end_plain"] = self.start_to_end_plain
        group = self.find_group()
        for name, estimate in (("ndcg_at_10", self.ndcg_at_10), ("psi", group.psi)):
            values |= {name: estimate and estimate.value, f"{name}_interval": estimate and estimate.interval}
        values["psi_as_published"] = group.psi_as_published
        if group.psi_chance:
            values |= {"psi_chance": group.psi_chance.value, "psi_chance_interval": group.psi_chance.interval}
        if self.p_value_within_read is not None:
            values["p_value_within_read"] = self.p_value_within_read
        return values


@dataclass(frozen=True)
class MetricChange:
    """The change of one metric from system A to system B, with its simultaneous interval."""

    state: ChangeState
    reason: Reason | None
    """Given if and only if it cannot be said."""
    margin: float
    difference: Difference | None
    """B - A, with its interval at the level of the change; None if undefined."""
    documents_needed: int | None = None
    """See `Decision`."""

    def detectable(self, level: float) -> float | None:
        """Return the difference that such data show with a probability of 0.8, given the level; None of PSI or if undefined."""
        if self.difference is None or self.difference.interval is None or self.difference.p_value is None:
            return None
        low, high = self.difference.interval
        return (high - low) / 2 * (1 + POWER_ERRORS / float(ndtri((1 + level) / 2)))


@dataclass(frozen=True)
class Change:
    """The change from system A to system B in three metrics; the probability of any false difference is at most 0.05."""

    documents: int
    """Independent documents (articles, where known), or what else is counted; of unpaired results the fewer."""
    ndcg_at_10: MetricChange
    start_to_end: MetricChange
    """Better is nearer to 0."""
    psi: MetricChange
    """Better is lower."""
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


def decide(group: GroupAnalysis, margin: float = DEFAULT_MARGINS.start_to_end, level: float = LEVEL) -> Decision:
    """Return the decision on a group of questions.

    `margin` is in nDCG@10, in (0, 1); `level` is above 0.95 for rows that are read together.
    """
    position = group.position
    return Decision(
        margin=margin,
        level=level,
        documents=group.documents,
        read=group.observations.read,
        bias_within_read=position.bias_within_read,
        not_read=position.not_read,
        not_read_difference=position.not_read_difference,
        start_to_end=position.start_to_end,
        start_to_end_plain=position.start_to_end_plain,
        ndcg_at_10=group.ndcg,
        find_group=lambda: group,
        counted=group.counted,
    )


def decide_result(values: ResultValues) -> tuple[Decision, ...]:
    """Return the decision on all questions of a result, then on each length bucket if there are several, at the usual margin.

    That on all questions is the headline, at 95 %. The k lengths with an estimate are a family: their intervals hold at the
    same time, each at 1 - 0.05 / k.
    """
    if "decisions" not in values.computed:
        analysis = analyze(values.ranks, values.read)
        levels = (LEVEL, *[level_of_lengths(analysis)] * len(analysis.lengths))
        # Analyses take much memory: they are found again, or computed again, for what is asked for later.
        values.computed["decisions"] = tuple(
            replace(decide(group, level=level), find_group=partial(_find_group, values, place))
            for place, (group, level) in enumerate(zip(analysis.groups, levels, strict=True))
        )
    decisions: tuple[Decision, ...] = values.computed["decisions"]
    return decisions


def decide_places(values: ResultValues, margin: float = DEFAULT_MARGINS.start_to_end) -> Decision | None:
    """Return the decision on the queries with several places of evidence, each place at 1/n; None if there are none."""
    places = values.places
    return decide(analyze(places.ranks, values.read).overall, margin) if places and places.queries else None


def _find_group(values: ResultValues, place: int) -> GroupAnalysis:
    return analyze(values.ranks, values.read).groups[place]


def level_of_lengths(analysis: Analysis) -> float:
    """Return the level of each interval of the lengths, which are a family."""
    rows = sum(group.position.start_to_end is not None for group in analysis.lengths)
    return 1 - (1 - LEVEL) / max(rows, 1)


def decide_state(
    bias: Contrast | None, margin: float, documents: int, level: float = LEVEL
) -> tuple[State, Reason | None, int | None]:
    """Return the state that follows from the interval of a bias, the reason if it cannot be said, and the documents needed.

    `bias` is None if thirds are not compared; `margin` is in nDCG@10, in (0, 1).
    """
    if bias is None or bias.interval_at is None:
        return State.CANNOT_BE_SAID, Reason.NOT_COMPARED, None
    low, high = bias.interval_at(level)
    if few := require_documents(bias, documents):
        return State.CANNOT_BE_SAID, Reason.FEW_DOCUMENTS, few
    if -margin < low and high < margin:
        return State.NO_BIAS, None, None
    if low > 0 or high < 0:
        return State.BIASED_TO_START if low > 0 else State.BIASED_TO_END, None, None
    return (
        State.CANNOT_BE_SAID,
        Reason.WIDE_INTERVAL,
        need_documents(ERRORS_IN_MARGIN * bias.standard_error, margin, documents),
    )


def require_documents(contrast: Contrast, documents: int) -> int | None:
    """Return how many documents there must be for either side to have enough for any state; None if both sides have."""
    fewest = fewest_documents(contrast.held_fixed)
    return None if contrast.documents >= fewest else ceil(fewest * documents / max(contrast.documents, 1))


def need_documents(width: float, margin: float, documents: int) -> int | None:
    """Return about how many documents would tell, to two digits; None if not more than there are.

    With so many, 'no bias' is said with a probability of 0.80 if there is none, and a bias as large as the margin is found with
    a probability of 0.90. `width` is in the standard errors that must fit into the margin.
    """
    times = (width / margin) ** 2
    return int(float(f"{times * documents:.2g}")) if times > 1 else None


def compare_groups(
    a: GroupAnalysis, b: GroupAnalysis, *, paired: bool, margins: Margins = DEFAULT_MARGINS, level: float = CHANGE_LEVEL
) -> Change:
    """Return the change from system A to system B over the same group of questions.

    `paired`: both have the same questions in the same order. `level` is above `CHANGE_LEVEL` for rows that are read together.
    """
    if paired:
        first, second = a.observations, b.observations
        differences = subtract_observations(first, second)
        ndcg = estimate_difference(differences.gains, differences.clusters, differences.shares)
        thirds = PositionContrasts(differences, limit=2.0).start_to_end
        # The mean instead of the sum has the same sign, and is a gain.
        sums = PositionContrasts(replace(first, gains=(second.gains + first.gains) / 2)).start_to_end
    else:
        ndcg = subtract_means(a.ndcg, b.ndcg) if a.ndcg and b.ndcg else None
        thirds = add_contrasts(a.position.start_to_end, b.position.start_to_end, -1)
        sums = add_contrasts(a.position.start_to_end, b.position.start_to_end, 1)
    documents = min(a.documents, b.documents)
    psi = None
    if a.psi and b.psi and a.psi_draws is not None and b.psi_draws is not None:
        psi = subtract_psi(a.psi_draws, b.psi_draws, (a.psi.low == 0, b.psi.low == 0))
    few = require_documents(thirds, documents) if thirds else None
    low, high = sums.interval_at(level) if sums and sums.interval_at else (0.0, 0.0)
    # The system nearer to 0 is B if and only if the difference of start to end, B - A, and the sum have opposite signs.
    sign = int(high < 0) - int(low > 0)
    return Change(
        documents=documents,
        ndcg_at_10=decide_change(ndcg, margins.ndcg_at_10, documents, 1, level),
        start_to_end=decide_change(thirds, margins.start_to_end, documents, sign, level, few=few),
        psi=decide_change(psi, margins.psi, documents, -1, level, few=few),
        level=level,
        counted=a.counted,
    )


def compare_gains(differences: Floats, clusters: Integers, margins: Margins = DEFAULT_MARGINS) -> Change:
    """Return the change in nDCG@10 over questions whose evidence has no position; start to end and PSI cannot be said.

    `differences` are B - A by question, `clusters` their documents; shape (n,).
    """
    documents = len(np.unique(clusters))
    ndcg = estimate_difference(differences, clusters)
    return Change(
        documents=documents,
        ndcg_at_10=decide_change(ndcg, margins.ndcg_at_10, documents, 1),
        start_to_end=decide_change(None, margins.start_to_end, documents, 0),
        psi=decide_change(None, margins.psi, documents, 0),
    )


def compare_judged(a: JudgedScores, b: JudgedScores, margins: Margins = DEFAULT_MARGINS) -> Change:
    """Return the change from system A to system B over the same judged queries in the same clusters.

    The intervals of all metrics hold at the same time.
    """
    level, documents = JUDGED_LEVEL, len(a.sizes)
    changes = dict[str, MetricChange]()
    for metric in METRICS:
        (first, clusters), (second, _) = a.expand(metric), b.expand(metric)
        difference = estimate_difference(second - first, clusters)
        changes[metric] = decide_change(difference, getattr(margins, metric), documents, 1, level)
    none = decide_change(None, margins.start_to_end, documents, 0), decide_change(None, margins.psi, documents, 0)
    return Change(documents, changes["ndcg_at_10"], *none, level, changes, a.counted)


def decide_change(
    difference: Difference | None, margin: float, documents: int, sign: int, level: float = CHANGE_LEVEL, few: int | None = None
) -> MetricChange:
    """Return the change of a metric.

    `sign` is 1 if B is better where the difference, B - A, is positive, -1 if where it is negative, 0 if that is open. `few`
    is the fewest documents for any state, if there are fewer on either side; `FEWEST_DOCUMENTS` are needed in any case.
    """
    if difference is None or difference.interval_at is None:
        return MetricChange(ChangeState.CANNOT_BE_SAID, Reason.NOT_COMPARED, margin, difference)
    low, high = difference.interval_at(level)
    difference = replace(difference, interval=(low, high))
    # Of a normal distribution, half the width of the interval is 2.39 standard errors.
    error = difference.standard_error if isinstance(difference, Contrast) else (high - low) / 2 / CHANGE_ERRORS
    needed = need_documents(ERRORS_IN_CHANGE * error, margin, documents)
    if few := few or (FEWEST_DOCUMENTS if documents < FEWEST_DOCUMENTS else None):
        return MetricChange(ChangeState.CANNOT_BE_SAID, Reason.FEW_DOCUMENTS, margin, difference, few)
    if -margin < low and high < margin:
        return MetricChange(ChangeState.EQUIVALENT, None, margin, difference)
    if low <= 0 <= high:
        return MetricChange(ChangeState.CANNOT_BE_SAID, Reason.WIDE_INTERVAL, margin, difference, needed)
    if not sign:
        return MetricChange(ChangeState.CANNOT_BE_SAID, Reason.OTHER_SIDE, margin, difference)
    return MetricChange(ChangeState.BETTER if sign * difference.value > 0 else ChangeState.WORSE, None, margin, difference)


def add_contrasts(a: Contrast | None, b: Contrast | None, sign: int) -> Contrast | None:
    """Return b + sign * a of independent results; None if one is undefined."""
    if a is None or b is None:
        return None
    error, degrees = add_errors(a.standard_error, a.degrees, b.standard_error, b.degrees)
    fewer = min(a, b, key=lambda contrast: contrast.documents)
    difference = student_difference(b.value + sign * a.value, error, degrees, limit=2.0)
    return replace(fewer, **vars(difference), standard_error=error, degrees=degrees)


def subtract_psi(a: Floats, b: Floats, may_be_zero: tuple[bool, bool]) -> Difference:
    """Return median and central 95 % of the difference of two independent posterior distributions of PSI, b - a.

    Every quantile of one is subtracted from every quantile of the other, so that b - a is exactly the opposite of a - b. The
    posterior of a model without any position effect does not contain its PSI of 0. Where a model's interval starts at 0, the
    end of the difference that is far if that model has a PSI of 0 therefore takes the lower half of its draws for 0. `a` and
    `b` are draws in [0, 1], shape (draws,); `may_be_zero` says whether their intervals start at 0.
    """
    quantiles = [np.quantile(draws, QUANTILES) for draws in (a, b)]
    lowered = [np.where(zero & (QUANTILES < 0.5), 0.0, values) for zero, values in zip(may_be_zero, quantiles, strict=True)]
    median = np.median(np.subtract.outer(quantiles[1], quantiles[0]))
    interval_at = partial(_subtract_quantiles, (lowered[1], quantiles[0]), (quantiles[1], lowered[0]))
    return Difference(float(median), interval_at(LEVEL), None, interval_at)


def _subtract_quantiles(smallest: tuple[Floats, Floats], largest: tuple[Floats, Floats], level: float) -> Interval:
    """Return the ends of the central share of all differences: the low end of the smallest, the high end of the largest."""
    low, high = (np.subtract.outer(*quantiles) for quantiles in (smallest, largest))
    return float(np.quantile(low, (1 - level) / 2)), float(np.quantile(high, (1 + level) / 2))
