"""A gate: limits on how far a model may differ from its baseline, or on its scores, each tested
instead of compared.

A limit such as `ndcg_at_10 < -1` says when a change is too large. It is about the true change, of
which the data give an interval. A limit is on one side of it, so an interval of level 1 - 2a is
wrong there with probability a; with m such sides in a gate a is 0.05 / m (Bonferroni), and at most
the 0.025 of the 95% intervals of a comparison. A gate of models that are within all limits, equal
ones above all, therefore fails in at most 5% of all cases. Scores without a baseline are tested
alike.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

from posir_compare.comparison import FORMATS
from posir_significance.analysis import GroupAnalysis
from posir_significance.controlled import ControlledTest
from posir_significance.findings import (
    EFFECTS,
    JUDGED_METRICS,
    MIN_DOCUMENTS,
    POSITION_METRICS,
    ChangeRow,
    ChangeState,
    ChangeSubject,
    LimitReason,
    Metric,
    Reason,
)
from posir_significance.messages import describe_change, describe_limit, format_change
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.files import atomic_write
from posir_tasks.base.wording import drop_organizations, escape_controls
from posir_tasks.command.exit_status import UNDECIDED
from posir_tasks.display.labels import Label, Tone
from posir_tasks.display.numbers import (
    MISSING,
    format_count,
    format_estimate,
    format_number,
    format_points,
)
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.values.estimates import Difference, Estimate, Interval
from posir_tasks.values.judgments import JudgedScores
from posir_tasks.values.means import ALPHA, LEVEL, MeanEstimate
from posir_tasks.values.scores import ALL

LIMIT = re.compile(r"\s*(?P<key>\w+)\s*(?P<sign>[<>])\s*(?P<value>[-+]?(\d+(\.\d*)?|\.\d+))\s*")
EXAMPLE = "'ndcg_at_10 < -1' or 'position_effect > 5'"
#: The metrics that limits are on, by key.
LIMITED_METRICS = {metric.key: metric for metric in (*POSITION_METRICS, *JUDGED_METRICS)}
logger = logging.getLogger(__name__)


class GateVerdict(StrEnum):
    """The verdict of a gate, and on each of its limits."""

    PASSES = "passes"
    FAILS = "fails"
    UNDECIDED = "inconclusive"


VERDICT_TONES = {
    GateVerdict.PASSES: Tone.GOOD,
    GateVerdict.FAILS: Tone.BAD,
    GateVerdict.UNDECIDED: Tone.OPEN,
}


@dataclass(frozen=True)
class TestedLimit:
    """The verdict on a limit for one model, task and length. None where undefined."""

    verdict: GateVerdict
    limit: str
    metric: Metric
    task: str
    length: str
    """`all`, or the length bucket."""
    baseline: str
    model: str
    queries: int | None = None
    a: Estimate | None = None
    b: Estimate | None = None
    change: Estimate | None = None
    """b - a, with the interval that was tested; None without a baseline, where it is that of b."""
    reason: str = ""
    state: ChangeState | None = None
    """State of the change, by its margin and the simultaneous interval of a comparison."""
    compared: str = ""
    """The state in words, with that interval."""
    answer: str = ""
    """That state as a sentence."""


@dataclass(frozen=True)
class LimitedValue:
    """A value that is limited: the change of a metric, model minus baseline, or the score of a
    model.
    """

    metric: Metric
    subject: ChangeSubject
    """The systems and questions; a score has no baseline."""
    value: Estimate | None
    """None where undefined."""
    interval_at: Callable[[float], Interval] | None
    """Returns the interval of a level; None where there is none."""
    few_documents: int | None = None
    """Documents that are too few for an interval; None if there are enough."""
    change: ChangeRow | None = None

    @property
    def system(self) -> tuple[str, str]:
        """Model and task."""
        return self.subject.model, self.subject.task

    @classmethod
    def of_change(cls, row: ChangeRow) -> LimitedValue:
        """Limit the change of a metric from the baseline."""
        difference = row.estimate
        has_interval = difference is not None and difference.interval is not None
        return cls(
            row.metric,
            row.subject,
            difference,
            difference.interval_at if difference and has_interval else None,
            row.subject.documents if row.reason is Reason.FEW_DOCUMENTS else None,
            row,
        )

    @classmethod
    def of_means(
        cls,
        scores: JudgedScores,
        estimates: Mapping[str, MeanEstimate | None],
        model: str,
        task: str,
    ) -> Iterator[LimitedValue]:
        """Yield each metric of a model over all judged queries of a task."""
        subject = ChangeSubject(
            model=model, task=task, queries=scores.queries, counted=scores.counted
        )
        few = _count_few(len(scores.sizes))
        for metric in JUDGED_METRICS:
            mean = estimates[metric.key]
            yield cls(metric, subject, mean, _find_interval(mean), few)

    @classmethod
    def of_scores(
        cls, group: GroupAnalysis, model: str, task: str, length: str
    ) -> Iterator[LimitedValue]:
        """Yield each metric of a model over a group of questions."""
        subject = ChangeSubject(
            model=model,
            task=task,
            length=length,
            queries=group.queries,
            counted=group.counted,
            has_places=group.has_places,
        )
        interval_at = _find_interval(group.ndcg)
        few = _count_few(group.documents)
        yield cls(Metric.NDCG_AT_10, subject, group.ndcg, interval_at, few)
        if group.has_places:
            return
        subject = replace(subject, counted="document")
        for metric, test in zip(EFFECTS, (group.whole, group.within), strict=True):
            if group.not_tested is Reason.ORDER_BLIND:
                none = Difference(0.0, (0.0, 0.0), interval_at=lambda _: (0.0, 0.0))
                yield cls(metric, subject, none, none.interval_at)
            else:
                yield cls._of_test(metric, subject, test)

    @classmethod
    def _of_test(
        cls, metric: Metric, subject: ChangeSubject, test: ControlledTest | None
    ) -> LimitedValue:
        if test is None or test.effect is None:
            return cls(metric, subject, None, None)
        few = _count_few(test.documents_at_ends)
        return cls(metric, subject, test.effect, test.effect.interval_at, few)


def _find_interval(mean: MeanEstimate | None) -> Callable[[float], Interval] | None:
    return mean.interval_at if mean and mean.interval else None


def _count_few(documents: int) -> int | None:
    return documents if documents < MIN_DOCUMENTS else None


@dataclass(frozen=True)
class Limit:
    """A limit on the change of a metric, model minus baseline, or on the score of a model."""

    text: str
    metric: Metric
    above: bool
    """Whether values above it are too large; else those below are too small."""
    value: float
    """The number in the unit of result files, where scores are in [0, 1]."""

    def judge(
        self, limited: LimitedValue, interval: Interval | None, *, strict: bool
    ) -> tuple[GateVerdict, LimitReason]:
        """Return the verdict on a value with its interval, and the reason."""
        if limited.few_documents is not None:
            return GateVerdict.UNDECIDED, LimitReason.FEW_DOCUMENTS
        if interval is None:
            return GateVerdict.UNDECIDED, LimitReason.NOT_TESTED
        low, high = interval
        if low > self.value if self.above else high < self.value:
            return GateVerdict.FAILS, LimitReason.BEYOND
        if high <= self.value if self.above else low >= self.value:
            return GateVerdict.PASSES, LimitReason.WITHIN
        if strict:
            return GateVerdict.FAILS, LimitReason.NOT_WHOLLY_WITHIN
        return GateVerdict.PASSES, LimitReason.OPEN

    def test(self, limited: LimitedValue, level: float, *, strict: bool) -> TestedLimit:
        """Test the limit on a value by its interval at a level."""
        interval = limited.interval_at(level) if limited.interval_at else None
        verdict, reason = self.judge(limited, interval, strict=strict)
        tested = Estimate(limited.value.value, interval) if limited.value else None
        subject = limited.subject
        row = limited.change
        needed = row.needed if row else None
        result = TestedLimit(
            verdict,
            self.text,
            self.metric,
            subject.task,
            subject.length,
            subject.baseline,
            subject.model,
            subject.queries,
            reason=describe_limit(reason, self.metric, subject, limited.few_documents, needed),
        )
        if row is None:
            return replace(result, b=tested)
        return replace(
            result,
            a=row.a,
            b=row.b,
            change=tested,
            state=row.state,
            compared=format_change(row),
            answer=describe_change(row),
        )

    def refuse(self, reason: str, subject: ChangeSubject | None = None) -> TestedLimit:
        """Return the limit as inconclusive, since there is nothing to test."""
        about = subject or ChangeSubject(length="")
        return TestedLimit(
            GateVerdict.UNDECIDED,
            self.text,
            self.metric,
            about.task,
            about.length,
            about.baseline,
            about.model,
            reason=reason,
        )


@dataclass(frozen=True, repr=False, kw_only=True)
class Gate(Result):
    """Tested limits, and what follows from them together."""

    limits: tuple[TestedLimit, ...]
    verdict: GateVerdict
    """It fails if one limit fails; otherwise it passes if none of them is inconclusive."""
    level: float
    """Level of the intervals of all changes."""
    strict: bool = False
    """Whether a limit already fails if an interval is not wholly within it."""
    command: str = "compare"
    """The command whose gate it is."""


#: Exit status by verdict.
STATUSES = {GateVerdict.PASSES: 0, GateVerdict.FAILS: 1, GateVerdict.UNDECIDED: UNDECIDED}


def build_gate(
    limits: Sequence[TestedLimit],
    level: float,
    *,
    strict: bool,
    command: str,
    notes: Sequence[str] = (),
) -> Gate:
    """Build a gate from its tested limits."""
    order = (GateVerdict.PASSES, GateVerdict.UNDECIDED, GateVerdict.FAILS)
    verdict = max((limit.verdict for limit in limits), key=order.index)
    title = _title_gate(limits, verdict)
    values = {"verdict": verdict, "strict": strict, "level": level, "limits": tuple(limits)}
    return Gate(
        title=title,
        rows=tuple(limits),
        tables=[_tabulate_gate(limits, title, level, command)],
        values=values,
        warnings=tuple(f"note: {note}" for note in notes),
        exit_status=STATUSES[verdict],
        limits=tuple(limits),
        verdict=verdict,
        level=level,
        strict=strict,
        command=command,
    )


def _title_gate(limits: Sequence[TestedLimit], verdict: GateVerdict) -> str:
    """Title a gate by its verdict and the models that have it."""
    named = [limit.model for limit in limits if limit.model and limit.verdict is verdict]
    models = ", ".join(dict.fromkeys(named)) or "nothing was tested"
    baseline = next((limit.baseline for limit in limits if limit.baseline), "")
    phrase = "is inconclusive" if verdict is GateVerdict.UNDECIDED else verdict.value
    return f"The gate {phrase} · {models}{f' against {baseline}' if baseline else ''}"


def parse_limit(text: str) -> Limit:
    """Read a limit: a metric, `<` or `>`, and a number in the unit in which its change is
    printed.
    """
    match = LIMIT.fullmatch(text)
    keys = ", ".join(LIMITED_METRICS)
    if match is None:
        quoted = "" if set(text) & {"<", ">"} else " In quotes, as a shell reads < and > as files."
        raise PosirError(
            f"Invalid limit '{text}'. Give a metric, < or >, and a number, such as "
            f"{EXAMPLE}.{quoted}\nMetrics: {keys}."
        )
    if match["key"] not in LIMITED_METRICS:
        raise PosirError(f"'{text}': there is no metric {match['key']}. Choose from {keys}.")
    metric = LIMITED_METRICS[match["key"]]
    return Limit(" ".join(text.split()), metric, match["sign"] == ">", float(match["value"]) / 100)


def parse_limits(texts: Iterable[str], *, strict: bool, junit: object) -> list[Limit]:
    """Parse limits. Raise PosirError if one is malformed, or if limit options are given without a
    limit.
    """
    limits = [parse_limit(text) for text in texts]
    if not limits and (strict or junit):
        raise PosirError("--strict and --junit are options of a gate: give --fail-if, too.")
    return limits


def run_gate(
    test: Callable[[], Gate],
    limits: Sequence[Limit],
    command: str,
    junit: str | Path | None,
    *,
    strict: bool,
) -> Gate:
    """Return a gate of limits, or an inconclusive one with the error that it raised; and write
    JUnit XML.
    """
    try:
        gate = test()
    except Exception as error:
        reason = str(error)
        if not isinstance(error, PosirError):
            logger.exception("an unexpected error, which is no verdict")
            reason = summarize_error(error)
        refused = [limit.refuse(reason) for limit in limits]
        gate = build_gate(refused, LEVEL, strict=strict, command=command)
    if junit:
        write_junit(gate, Path(junit))
    return gate


def check_limits(
    values: Iterable[LimitedValue],
    limits: Sequence[Limit | str],
    lengths: Collection[str] = (ALL,),
    *,
    strict: bool = False,
    gaps: Mapping[tuple[str, str], str] | None = None,
    notes: Sequence[str] = (),
    command: str = "compare",
) -> Gate:
    """Test limits on every value at the given lengths.

    A limit fails if the whole interval of the value is beyond it. It is inconclusive where the
    value is undefined, the documents are too few for its interval, or results are missing: `gaps`
    has the reason, by model and task.
    """
    parsed = [parse_limit(limit) if isinstance(limit, str) else limit for limit in limits]
    if not parsed:
        raise PosirError(f"There is no limit to test. Give one, such as {EXAMPLE}.")
    values = list(values)
    gaps = gaps or {}
    names = {length.casefold() for length in lengths}
    chosen = [value for value in values if value.subject.length.casefold() in names]
    sides = len(set(_name_sides(chosen, parsed)))
    level = max(LEVEL, 1 - 2 * ALPHA / max(1, sides))
    tested = []
    for limit, value in product(parsed, chosen):
        if value.metric is limit.metric:
            result = limit.test(value, level, strict=strict)
            gap = gaps.get(value.system)
            # Where a model lacks results, no limit passes.
            if gap and result.verdict is GateVerdict.PASSES:
                result = replace(result, verdict=GateVerdict.UNDECIDED, reason=gap)
            tested.append(result)
    tested += _refuse_untested(values, parsed, sorted(names), gaps)
    return build_gate(tested, level, strict=strict, command=command, notes=notes)


def _refuse_untested(
    values: Sequence[LimitedValue],
    limits: Sequence[Limit],
    lengths: Sequence[str],
    gaps: Mapping[tuple[str, str], str],
) -> Iterator[TestedLimit]:
    """Yield each limit that no value of a model, task and length has."""
    metrics: dict[tuple[str, str, str], set[Metric]] = {}
    for value in values:
        key = (*value.system, value.subject.length.casefold())
        metrics.setdefault(key, set()).add(value.metric)
        if value.subject.has_places:
            # Effects of position are of queries with one place.
            metrics[key].update(EFFECTS)
    baseline = next((value.subject.baseline for value in values), "")
    systems = dict.fromkeys([*(value.system for value in values), *gaps])
    for (model, task), length in product(systems, lengths):
        tested = metrics.get((model, task, length))
        subject = ChangeSubject(baseline=baseline, model=model, task=task, length=length)
        reason = LimitReason.NO_QUESTIONS if tested is None else LimitReason.UNKNOWN
        for limit in limits:
            if limit.metric not in (tested or ()):
                words = describe_limit(reason, limit.metric, subject)
                yield limit.refuse(gaps.get((model, task), words), subject)


def _name_sides(
    values: Sequence[LimitedValue], limits: Iterable[Limit]
) -> Iterator[tuple[str | bool, ...]]:
    """Yield the sides of values that are limited; two limits on one side share it."""
    totals = {
        value.system: value.subject.queries for value in values if value.subject.length == ALL
    }
    for limit, value in product(limits, values):
        subject = value.subject
        if value.metric is limit.metric and value.interval_at:
            # A bucket that has all queries is tested as `all`.
            length = ALL if subject.queries == totals.get(value.system) else subject.length
            yield *value.system, value.metric, length, limit.above


def _tabulate_gate(limits: Sequence[TestedLimit], title: str, level: float, command: str) -> Table:
    """Tabulate a line for each tested limit, below the verdict."""
    is_of_scores = command == "report"
    models = list(dict.fromkeys(limit.model for limit in limits))
    names = dict(zip(models, drop_organizations(models), strict=True))
    rows = [
        {
            "Verdict": Label(limit.verdict.value, VERDICT_TONES[limit.verdict]),
            "Model": names[limit.model] if is_of_scores else limit.model,
            "Limit": limit.limit,
            "Task": limit.task or MISSING,
            "Length": limit.length or MISSING,
            "Queries": format_count(limit.queries),
            "Baseline score": format_estimate(limit.a, FORMATS[limit.metric]),
            "Score": format_estimate(limit.b, FORMATS[limit.metric]),
            "Change": format_estimate(limit.change, format_points),
            "Reason": limit.reason,
            "Compared": limit.compared or MISSING,
        }
        for limit in limits
    ]
    omitted = ["Baseline score", "Change", "Compared"] if is_of_scores else []
    if len([model for model in models if model]) < 2:
        omitted.append("Model")
    percent = format_number(100 * level, ".4g")
    note = (
        f"Change: model minus baseline, with its {percent}% interval. Two equal models fail in at "
        "most 5% of all cases."
    )
    if is_of_scores:
        note = (
            f"Score: with its {percent}% interval. A model whose true scores are at their limits "
            "fails in at most 5% of all cases."
        )
    headings = [heading for heading in rows[0] if heading not in omitted]
    return Table(
        build_columns(headings, ["Queries", "Baseline score", "Score", "Change"]),
        tuple(tuple(row[heading] for heading in headings) for row in rows),
        title=title,
        notes=(note,),
        keys=2,
    )


def write_junit(gate: Gate, file: Path) -> None:
    """Write a gate as JUnit XML: a test case for each tested limit; an inconclusive one is an
    error.
    """
    verdicts = [limit.verdict for limit in gate.limits]
    suite = ElementTree.Element(
        "testsuite",
        name=f"posir {gate.command}",
        tests=str(len(verdicts)),
        failures=str(verdicts.count(GateVerdict.FAILS)),
        errors=str(verdicts.count(GateVerdict.UNDECIDED)),
    )
    tags = {GateVerdict.FAILS: "failure", GateVerdict.UNDECIDED: "error"}
    for limit in gate.limits:
        class_name = ", ".join(filter(None, (limit.task, limit.model)))
        name = ", ".join(filter(None, (limit.limit, limit.length)))
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=escape_controls(class_name),
            name=escape_controls(name),
        )
        reason = escape_controls(limit.reason)
        tag = tags.get(limit.verdict)
        if tag:
            explanation = ElementTree.SubElement(case, tag, {"message": reason})
        else:
            explanation = ElementTree.SubElement(case, "system-out")
        if gate.command == "report":
            value = f"score {format_estimate(limit.b, FORMATS[limit.metric])}"
        else:
            value = f"change {format_estimate(limit.change, format_points)}"
        answer = f". {escape_controls(limit.answer)}" if limit.answer else ""
        explanation.text = f"{value}: {reason}{answer}"
    try:
        with atomic_write(file) as temporary:
            ElementTree.ElementTree(suite).write(temporary, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise PosirError(
            f"--junit {file}: cannot be written ({error.strerror}). Choose another file."
        ) from error
