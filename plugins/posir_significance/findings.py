"""Findings: what is known of a group of questions, as codes and numbers. Words for them are in
`messages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from posir_tasks.values.estimates import Difference, Estimate
from posir_tasks.values.judgments import DOCUMENT, METRICS
from posir_tasks.values.read_part import UNKNOWN, ReadPart
from posir_tasks.values.scores import ALL

#: Level of an interval that is read alone.
LEVEL = 0.95
#: Fewest documents with evidence at both ends, and fewest documents of a change.
MIN_DOCUMENTS = 10


class Quantity(StrEnum):
    """The quantity that a finding estimates."""

    NDCG_AT_10 = "ndcg_at_10"
    UNREAD_SHARE = "unread_share"
    """Share of the questions whose evidence is truncated, wholly or in part."""
    TRUNCATION_LOSS = "truncation_loss"
    """nDCG@10 of evidence that is read minus that of the same evidence where it is truncated."""
    START_MINUS_END = "start_minus_end"
    """First minus last third of documents as the data lie: different questions, a description."""
    POSITION_EFFECT = "position_effect"
    """First minus last third of the document, the same evidence moved; truncation included."""
    POSITION_EFFECT_IN_WINDOW = "position_effect_in_window"
    """The same within the model's window, on which the state rests."""
    MIDDLE_MINUS_ENDS = "middle_minus_ends"
    """Middle third of the window minus the mean of the other two, the same evidence moved."""
    CONTROLLED_PSI = "controlled_psi"
    """1 - lowest / highest level of the thirds of the document, the same evidence moved."""
    PSI_AS_PUBLISHED = "psi_as_published"
    PSI_BY_CHANCE = "psi_by_chance"


class State(StrEnum):
    """The verdict on the position effect within the window."""

    FAVORS_START = "favors_start"
    FAVORS_END = "favors_end"
    NO_BIAS = "no_bias"
    """None above the margin."""
    INCONCLUSIVE = "inconclusive"
    NOT_TESTED = "not_tested"


class ChangeState(StrEnum):
    """The verdict on a change of a metric from system A to system B."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    """Within the margin."""
    INCONCLUSIVE = "inconclusive"
    NOT_TESTED = "not_tested"


class Reason(StrEnum):
    """The reason why a state is inconclusive or not tested, or why there is no bias."""

    WINDOW_UNKNOWN = "window_unknown"
    NOT_STORED = "not_stored"
    """The result has no ranks of rotated versions."""
    PARTLY_STORED = "partly_stored"
    """Some subsets have none."""
    FEW_DOCUMENTS = "few_documents"
    WIDE_INTERVAL = "wide_interval"
    NO_ROOM = "no_room"
    """Nearly all evidence is found, or nearly none: no difference of the margin is possible."""
    ORDER_BLIND = "order_blind"
    """Word order plays no part in the scores."""
    DIRECTION_UNKNOWN = "direction_unknown"
    """An effect changes, but which system is nearer to 0 is open."""
    WINDOW_DIFFERS = "window_differs"
    """The windows of the systems or of the subsets differ, so that their excerpts do."""
    SCORES_DIFFER = "scores_differ"
    """The embedder does not give the scores of the run."""
    NO_TEXTS = "no_texts"
    """The system has ranks alone."""
    ONE_UNIT = "one_unit"
    """No document can be divided."""
    SEVERAL_POSITIONS = "several_positions"
    """Each question has several places of evidence."""
    OTHER_DATA = "other_data"
    """The systems were not tested on the same versions."""


class LimitReason(StrEnum):
    """The reason for the verdict on a limit."""

    BEYOND = "beyond"
    WITHIN = "within"
    NOT_WHOLLY_WITHIN = "not_wholly_within"
    OPEN = "open"
    """The interval contains the limit."""
    FEW_DOCUMENTS = "few_documents"
    NOT_TESTED = "not_tested"
    UNKNOWN = "unknown"
    """The model has no such score."""
    NO_QUESTIONS = "no_questions"


class Prediction(StrEnum):
    """The verdict on a correlation over models: what one measure shows of another."""

    PREDICTS = "predicts"
    OPPOSITE = "predicts_opposite"
    INCONCLUSIVE = "inconclusive"


class NeededUnit(StrEnum):
    """The unit in which the data that a state needs are counted."""

    QUESTIONS = "questions"
    DOCUMENTS = "documents"


@dataclass(frozen=True)
class Needed:
    """The number of questions or documents that a state needs."""

    number: int
    unit: NeededUnit


@dataclass(frozen=True)
class Finding:
    """One fact: an estimate with its interval and, for a verdict, the state that follows from them
    and the margin.
    """

    quantity: Quantity
    estimate: Estimate | None = None
    """The value with its interval at `level`; None where it is undefined or not tested."""
    level: float = LEVEL
    state: State | None = None
    """Given for the position effect within the window alone."""
    reason: Reason | None = None
    needed: Needed | None = None
    """About as much data would decide, to two digits."""
    margin: float | None = None
    """Smallest effect that matters, in nDCG@10, in (0, 1)."""

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval excludes 0."""
        interval = self.estimate.interval if self.estimate else None
        return interval is not None and not interval[0] <= 0 <= interval[1]

    def to_json(self) -> dict[str, Any]:
        """Return value, interval and verdict as plain JSON, by the names of result files."""
        name = self.quantity.value
        interval = self.estimate.interval if self.estimate else None
        values: dict[str, Any] = {name: self.estimate and self.estimate.value}
        if self.quantity not in PLAIN:
            values[f"{name}_interval"] = list(interval) if interval else None
        return values


#: Quantities without an interval.
PLAIN = frozenset({Quantity.UNREAD_SHARE, Quantity.PSI_AS_PUBLISHED})


class ComputedFindings(Mapping[Quantity, Finding]):
    """Findings by quantity, of which the estimates of some are computed when they are read."""

    def __init__(
        self,
        findings: Iterable[Finding],
        estimates: Mapping[Quantity, Callable[[], Estimate | None]],
    ) -> None:
        self._findings = {finding.quantity: finding for finding in findings}
        self._estimates = dict(estimates)

    def __reduce__(self) -> tuple[type, tuple[dict[Quantity, Finding]]]:
        """Become a dictionary in another process."""
        return dict, (dict(self),)

    def __getitem__(self, quantity: Quantity) -> Finding:
        estimate = self._estimates.pop(quantity, None)
        if estimate:
            finding = self._findings[quantity]
            self._findings[quantity] = replace(finding, estimate=estimate())
        return self._findings[quantity]

    def __iter__(self) -> Iterator[Quantity]:
        return iter(self._findings)

    def __len__(self) -> int:
        return len(self._findings)


@dataclass(frozen=True, kw_only=True)
class GroupFindings:
    """The findings on one group of questions of a model."""

    findings: Mapping[Quantity, Finding]
    """One for each quantity."""
    read: ReadPart
    """The part of a document that the model reads."""
    questions: int
    documents: int
    """Independent documents (articles, where known), or their clusters."""
    counted: str = DOCUMENT
    """The noun of `documents`."""
    tested_questions: int = 0
    """Questions of test R, or of test W where there is no R."""
    tested_documents: int = 0

    def __getitem__(self, quantity: Quantity) -> Finding:
        return self.findings[quantity]

    @property
    def verdict(self) -> Finding:
        """The position effect within the window, with the state."""
        return self.findings[Quantity.POSITION_EFFECT_IN_WINDOW]

    @property
    def state(self) -> State:
        """The state of the verdict."""
        assert self.verdict.state is not None
        return self.verdict.state

    @property
    def reason(self) -> Reason | None:
        """The reason of the verdict."""
        return self.verdict.reason

    @property
    def margin(self) -> float:
        """The margin of the verdict."""
        assert self.verdict.margin is not None
        return self.verdict.margin

    def value(self, quantity: Quantity) -> float | None:
        """Return the value of a quantity; None if it is undefined."""
        estimate = self.findings[quantity].estimate
        return estimate.value if estimate else None

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain JSON; every value with uncertainty is followed by its
        interval.
        """
        verdict = self.verdict
        values: dict[str, Any] = {
            "state": self.state.value,
            "reason": verdict.reason and verdict.reason.value,
            "margin": verdict.margin,
            "level": verdict.level,
            "questions": self.questions,
            "documents": self.documents,
            "tested_questions": self.tested_questions,
            "tested_documents": self.tested_documents,
            "read": self.read.to_json(),
        }
        for unit in NeededUnit:
            needed = verdict.needed if verdict.needed and verdict.needed.unit is unit else None
            values[f"{unit.value}_needed"] = needed and needed.number
        for finding in self.findings.values():
            values |= finding.to_json()
        return values


#: Level of each interval of a change: of three metrics together 95%.
CHANGE_LEVEL = 1 - (1 - LEVEL) / 3
#: The same of the metrics of judged queries.
JUDGED_LEVEL = 1 - (1 - LEVEL) / len(METRICS)


class Metric(StrEnum):
    """A score that is compared."""

    NDCG_AT_10 = "nDCG@10"
    POSITION_EFFECT = "position effect"
    POSITION_EFFECT_IN_WINDOW = "position effect within the window"
    MRR_AT_10 = "MRR@10"
    RECALL_AT_10 = "Recall@10"
    RECALL_AT_100 = "Recall@100"
    MAP_AT_100 = "MAP@100"
    RECALL = "recall"
    IOU = "IoU"
    NDCG_AT_10_BEGIN = "nDCG@10, begin"
    NDCG_AT_10_MIDDLE = "nDCG@10, middle"
    NDCG_AT_10_END = "nDCG@10, end"
    UNRELATED_COSINE = "cosine of unrelated texts"
    """Mean cosine of documents of different articles; near 1, all texts are alike."""

    @property
    def key(self) -> str:
        """Key of the score in result files, `ndcg_at_10` for example."""
        return self.name.lower()


#: Effects of position, of which the best is 0.
EFFECTS = (Metric.POSITION_EFFECT, Metric.POSITION_EFFECT_IN_WINDOW)
#: The metrics of queries whose evidence has one position.
POSITION_METRICS = (Metric.NDCG_AT_10, *EFFECTS)
#: The metrics of all judged queries, whose evidence may have no position.
JUDGED_METRICS = tuple(metric for metric in Metric if metric.key in METRICS)


@dataclass(frozen=True, kw_only=True)
class ChangeSubject:
    """Two systems, and the questions that both answered."""

    baseline: str = ""
    model: str = ""
    task: str = ""
    subsets: int = 1
    length: str = ALL
    """`all`, or the length bucket."""
    length_title: str = ""
    """The length bucket with its bounds, without colon and unit: `Q2 513 to 1,024`."""
    queries: int = 0
    documents: int = 0
    """Independent documents (articles, where known), or what else is counted; of unpaired results
    the fewer.
    """
    counted: str = DOCUMENT
    """The noun of `documents`."""
    method: str = ""
    """The pairing of the ranks of the two systems, in words."""
    has_places: bool = False
    """Whether each question has several places of evidence."""
    is_judged: bool = False
    """Whether these are all judged queries, whose evidence may have no position."""
    reads: tuple[ReadPart, ReadPart] = (UNKNOWN, UNKNOWN)
    """The part of a text that the baseline and the model read."""


@dataclass(frozen=True)
class ChangeRow:
    """The change of one metric from a baseline (a) to a model (b) on the same questions."""

    metric: Metric
    state: ChangeState | None
    """None for a description: the cosine, and scores of different questions."""
    margin: float = 0.0
    """Smallest difference that matters, in the unit of the metric; 0 for a description."""
    estimate: Difference | None = None
    """b - a, with its interval at `level`; None if undefined."""
    reason: Reason | None = None
    """Given if and only if the state is inconclusive or not tested."""
    needed: Needed | None = None
    """About as much data would decide."""
    level: float = CHANGE_LEVEL
    """Level of the interval. The intervals of all metrics hold at the same time, and of all
    lengths.
    """
    a: Estimate | None = None
    """The score of the baseline, with the interval that a report prints."""
    b: Estimate | None = None
    subject: ChangeSubject = field(default_factory=ChangeSubject)


#: The changes of several metrics on the same questions.
Changes = dict[Metric, ChangeRow]
