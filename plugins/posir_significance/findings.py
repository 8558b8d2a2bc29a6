"""Findings on a group of questions as codes and numbers; `messages` turns them into sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from posir_tasks.values.estimates import Difference, Estimate
from posir_tasks.values.judgments import DOCUMENT, METRICS
from posir_tasks.values.read_part import UNKNOWN, ReadPart
from posir_tasks.values.scores import ALL

#: Level of a single interval.
LEVEL = 0.95
#: Minimum number of documents with evidence at both ends, also for the verdict on a change.
MIN_DOCUMENTS = 10


class Quantity(StrEnum):
    """The estimated quantity of a finding."""

    NDCG_AT_10 = "ndcg_at_10"
    UNREAD_SHARE = "unread_share"
    """Share of the questions with truncated evidence."""
    TRUNCATION_LOSS = "truncation_loss"
    """nDCG@10 with evidence within the window minus nDCG@10 with the same evidence truncated."""
    START_MINUS_END = "start_minus_end"
    """First minus last third of documents over different questions; descriptive only."""
    POSITION_EFFECT = "position_effect"
    """First minus last third of the document with moved evidence, truncation included."""
    POSITION_EFFECT_IN_WINDOW = "position_effect_in_window"
    """First minus last third of the window with moved evidence; determines the state."""
    MIDDLE_MINUS_ENDS = "middle_minus_ends"
    """Middle third of the window minus the mean of its ends, with moved evidence."""
    CONTROLLED_PSI = "controlled_psi"
    """1 - lowest / highest level of the thirds of the document, with moved evidence."""
    PSI_AS_PUBLISHED = "psi_as_published"
    PSI_BY_CHANCE = "psi_by_chance"


class State(StrEnum):
    """The verdict on the position effect within the window."""

    FAVORS_START = "favors_start"
    FAVORS_END = "favors_end"
    NO_BIAS = "no_bias"
    """No bias above the margin."""
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
    """The reason for a state without a favored end."""

    WINDOW_UNKNOWN = "window_unknown"
    NOT_STORED = "not_stored"
    """The result has no ranks of rotated versions."""
    PARTLY_STORED = "partly_stored"
    """Some subsets have no ranks of rotated versions."""
    FEW_DOCUMENTS = "few_documents"
    WIDE_INTERVAL = "wide_interval"
    NO_ROOM = "no_room"
    """The mean is so near to 0 or 1 that no difference of the margin is possible."""
    ORDER_BLIND = "order_blind"
    """Scores do not depend on word order."""
    DIRECTION_UNKNOWN = "direction_unknown"
    """An effect changes, but either system may be nearer to 0."""
    WINDOW_DIFFERS = "window_differs"
    """The windows, and therefore the excerpts, of systems or subsets differ."""
    SCORES_DIFFER = "scores_differ"
    """The embedder does not reproduce the scores of the run."""
    NO_TEXTS = "no_texts"
    """The system returns ranks and cannot score new texts."""
    ONE_UNIT = "one_unit"
    """No document can be rotated, since none has two sentences."""
    SEVERAL_POSITIONS = "several_positions"
    """Each question has several evidence spans."""
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
    """The verdict on a correlation of two measures over models."""

    PREDICTS = "predicts"
    OPPOSITE = "predicts_opposite"
    INCONCLUSIVE = "inconclusive"


class DataUnit(StrEnum):
    """What `RequiredData.number` counts."""

    QUESTIONS = "questions"
    DOCUMENTS = "documents"


@dataclass(frozen=True)
class RequiredData:
    """The number of questions or documents needed for a verdict."""

    number: int
    unit: DataUnit


@dataclass(frozen=True)
class Finding:
    """An estimate with its interval and, for a verdict, its state."""

    quantity: Quantity
    estimate: Estimate | None = None
    """The value with its interval at `level`; None if undefined or not tested."""
    level: float = LEVEL
    state: State | None = None
    """Only for the position effect within the window."""
    reason: Reason | None = None
    needed: RequiredData | None = None
    """Approximate amount of data needed for a verdict."""
    margin: float | None = None
    """Minimum relevant effect, in nDCG@10, in (0, 1)."""

    @property
    def excludes_zero(self) -> bool:
        """True if there is an interval and it excludes 0."""
        interval = self.estimate.interval if self.estimate else None
        return interval is not None and not interval[0] <= 0 <= interval[1]

    def to_json(self) -> dict[str, Any]:
        """Return value and interval as plain JSON, with the keys of result files."""
        name = self.quantity.value
        interval = self.estimate.interval if self.estimate else None
        values: dict[str, Any] = {name: self.estimate and self.estimate.value}
        if self.quantity not in WITHOUT_INTERVAL:
            values[f"{name}_interval"] = list(interval) if interval else None
        return values


#: Quantities without an interval.
WITHOUT_INTERVAL = frozenset({Quantity.UNREAD_SHARE, Quantity.PSI_AS_PUBLISHED})


class LazyFindings(Mapping[Quantity, Finding]):
    """Findings by quantity; some estimates are computed on first access."""

    def __init__(
        self,
        findings: Iterable[Finding],
        estimates: Mapping[Quantity, Callable[[], Estimate | None]],
    ) -> None:
        self._findings = {finding.quantity: finding for finding in findings}
        self._estimates = dict(estimates)

    def __reduce__(self) -> tuple[type, tuple[dict[Quantity, Finding]]]:
        """Pickle as a dictionary."""
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
    """A model's findings on one group of questions."""

    findings: Mapping[Quantity, Finding]
    """A finding for each quantity."""
    read: ReadPart
    """The window."""
    questions: int
    documents: int
    """Number of independent units: documents, articles or clusters of documents."""
    unit_name: str = DOCUMENT
    """Name of the unit that `documents` counts."""
    tested_questions: int = 0
    """Questions in test R, or in test W if there is no test R."""
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
        """The reason for the verdict."""
        return self.verdict.reason

    @property
    def margin(self) -> float:
        """The margin of the verdict."""
        assert self.verdict.margin is not None
        return self.verdict.margin

    def get_value(self, quantity: Quantity) -> float | None:
        """Return the estimated value of a quantity, or None."""
        estimate = self.findings[quantity].estimate
        return estimate.value if estimate else None

    def to_json(self) -> dict[str, Any]:
        """Return the findings as plain JSON, with an interval after each uncertain value."""
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
        for unit in DataUnit:
            needed = verdict.needed if verdict.needed and verdict.needed.unit is unit else None
            values[f"{unit.value}_needed"] = needed and needed.number
        for finding in self.findings.values():
            values |= finding.to_json()
        return values


#: Level of each interval of a change, for a family of three metrics at 95%.
CHANGE_LEVEL = 1 - (1 - LEVEL) / 3
#: Level of each interval of a change in the metrics of judged queries.
JUDGED_LEVEL = 1 - (1 - LEVEL) / len(METRICS)


class Metric(StrEnum):
    """A compared score."""

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
    """Mean cosine of documents from different articles. Near 1, embeddings have collapsed."""

    @property
    def key(self) -> str:
        """Key of the score in result files, such as `ndcg_at_10`."""
        return self.name.lower()


#: Position effects; the best value is 0.
EFFECTS = (Metric.POSITION_EFFECT, Metric.POSITION_EFFECT_IN_WINDOW)
#: Metrics of queries with one evidence span.
POSITION_METRICS = (Metric.NDCG_AT_10, *EFFECTS)
#: Metrics of all judged queries, with and without positions.
JUDGED_METRICS = tuple(metric for metric in Metric if metric.key in METRICS)


@dataclass(frozen=True, kw_only=True)
class ChangeSubject:
    """Two systems and their common questions."""

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
    """Number of independent units, such as articles; for unpaired results, the smaller of the two
    numbers.
    """
    unit_name: str = DOCUMENT
    """Name of the unit that `documents` counts."""
    method: str = ""
    """Description of the pairing of the systems."""
    has_several_spans: bool = False
    """True if each question has several evidence spans."""
    is_judged: bool = False
    """True for all judged queries, with and without positions."""
    reads: tuple[ReadPart, ReadPart] = (UNKNOWN, UNKNOWN)
    """The windows of the baseline and the model."""


@dataclass(frozen=True)
class ChangeRow:
    """The change of one metric from a baseline (a) to a model (b) on the same questions."""

    metric: Metric
    state: ChangeState | None
    """None for descriptions: the cosine, and scores of different questions."""
    margin: float = 0.0
    """Minimum relevant difference, on the scale of the metric; 0 for a description."""
    estimate: Difference | None = None
    """b - a with its interval at `level`; None if undefined."""
    reason: Reason | None = None
    """Only for the states inconclusive and not tested."""
    needed: RequiredData | None = None
    """Approximate amount of data needed for a verdict."""
    level: float = CHANGE_LEVEL
    """Level of the interval, simultaneous over metrics and lengths."""
    a: Estimate | None = None
    """The baseline's score with the same interval as in a report."""
    b: Estimate | None = None
    subject: ChangeSubject = field(default_factory=ChangeSubject)


#: The changes of several metrics on the same questions.
Changes = dict[Metric, ChangeRow]
