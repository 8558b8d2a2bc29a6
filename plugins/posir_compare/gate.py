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
from posir_significance.changes import NO_EFFECT
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
from posir_significance.messages.comparisons import describe_change, describe_limit, format_change
from posir_significance.messages.verdicts import format_level
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.files import atomic_write
from posir_tasks.base.wording import escape_controls
from posir_tasks.command.exit_status import UNDECIDED
from posir_tasks.display.labels import Label, Tone
from posir_tasks.display.numbers import MISSING, format_count, format_estimate, format_points
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.values.estimates import Difference, Estimate, Interval
from posir_tasks.values.judgments import DOCUMENT, JudgedScores
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


#: Color, exit status and JUnit element of each verdict; later ones prevail over earlier ones.
TONES = {
    GateVerdict.PASSES: Tone.GOOD,
    GateVerdict.UNDECIDED: Tone.OPEN,
    GateVerdict.FAILS: Tone.BAD,
}
STATUSES = {GateVerdict.PASSES: 0, GateVerdict.FAILS: 1, GateVerdict.UNDECIDED: UNDECIDED}
ELEMENTS = {
    GateVerdict.PASSES: "system-out",
    GateVerdict.FAILS: "failure",
    GateVerdict.UNDECIDED: "error",
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


def list_scores(group: GroupAnalysis, model: str, task: str) -> Iterator[ChangeRow]:
    """Yield the scores of a model over all questions of a task, as rows without a baseline."""
    subject = ChangeSubject(
        model=model,
        task=task,
        length=ALL,
        queries=group.queries,
        documents=group.documents,
        counted=group.counted,
        has_places=group.has_places,
    )
    yield _list_mean(Metric.NDCG_AT_10, subject, group.ndcg)
    if group.has_places:
        return
    for metric, test in zip(EFFECTS, (group.whole, group.within), strict=True):
        effect: Difference | None = test.effect if test else None
        documents = test.documents_at_ends if test and effect else MIN_DOCUMENTS
        if group.not_tested is Reason.ORDER_BLIND:
            effect = NO_EFFECT
        about = replace(subject, documents=documents, counted=DOCUMENT)
        yield _list_score(metric, about, effect)


def list_judged_scores(
    scores: JudgedScores, estimates: Mapping[str, MeanEstimate | None], model: str, task: str
) -> Iterator[ChangeRow]:
    """Yield the scores of a model over all judged queries of a task, as rows without a baseline."""
    subject = ChangeSubject(
        model=model,
        task=task,
        queries=scores.queries,
        documents=len(scores.sizes),
        counted=scores.counted,
    )
    for metric in JUDGED_METRICS:
        yield _list_mean(metric, subject, estimates[metric.key])


def _list_mean(metric: Metric, subject: ChangeSubject, mean: MeanEstimate | None) -> ChangeRow:
    if mean is None:
        return _list_score(metric, subject, None)
    interval_at = mean.interval_at if mean.interval else None
    return _list_score(metric, subject, Difference(mean.value, mean.interval, None, interval_at))


def _list_score(metric: Metric, subject: ChangeSubject, score: Difference | None) -> ChangeRow:
    is_few = subject.documents < MIN_DOCUMENTS
    reason = Reason.FEW_DOCUMENTS if is_few else None
    return ChangeRow(metric, None, estimate=score, reason=reason, subject=subject)


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
        self, row: ChangeRow, interval: Interval | None, *, strict: bool
    ) -> tuple[GateVerdict, LimitReason]:
        """Return the verdict on a row with its interval, and the reason."""
        if row.reason is Reason.FEW_DOCUMENTS:
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

    def test(self, row: ChangeRow, level: float, *, strict: bool) -> TestedLimit:
        """Test the limit on a row by its interval at a level."""
        estimate = row.estimate
        interval = estimate.interval_at(level) if estimate and estimate.interval_at else None
        verdict, reason = self.judge(row, interval, strict=strict)
        tested = Estimate(estimate.value, interval) if estimate else None
        result = self.report(verdict, describe_limit(reason, row), row.subject)
        result = replace(result, queries=row.subject.queries)
        if not row.subject.baseline:
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

    def report(self, verdict: GateVerdict, reason: str, subject: ChangeSubject) -> TestedLimit:
        """Return a verdict on the limit without numbers."""
        return TestedLimit(
            verdict,
            self.text,
            self.metric,
            subject.task,
            subject.length,
            subject.baseline,
            subject.model,
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
    command: str = "compare"
    """The command whose gate it is."""


def build_gate(
    limits: Sequence[TestedLimit],
    level: float,
    *,
    strict: bool,
    command: str,
    notes: Sequence[str] = (),
) -> Gate:
    """Build a gate from its tested limits."""
    verdict = max((limit.verdict for limit in limits), key=[*TONES].index)
    named = [limit.model for limit in limits if limit.model and limit.verdict is verdict]
    models = ", ".join(dict.fromkeys(named)) or "nothing was tested"
    baseline = next((f" against {limit.baseline}" for limit in limits if limit.baseline), "")
    phrase = "is inconclusive" if verdict is GateVerdict.UNDECIDED else verdict.value
    title = f"The gate {phrase} · {models}{baseline}"
    return Gate(
        title=title,
        rows=limits,
        tables=[_tabulate_gate(limits, title, level, command)],
        values={"verdict": verdict, "strict": strict, "level": level, "limits": limits},
        warnings=tuple(f"note: {note}" for note in notes),
        exit_status=STATUSES[verdict],
        limits=tuple(limits),
        verdict=verdict,
        level=level,
        command=command,
    )


def parse_limit(text: str) -> Limit:
    """Read a limit: a metric, `<` or `>`, and a number in the unit in which its change is
    printed.
    """
    match = LIMIT.fullmatch(text)
    keys = ", ".join(LIMITED_METRICS)
    if match is None:
        raise PosirError(
            f"Invalid limit '{text}'. Give a metric, < or >, and a number in quotes, such as "
            f"{EXAMPLE}.\nMetrics: {keys}."
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
        nothing = ChangeSubject(length="")
        refused = [limit.report(GateVerdict.UNDECIDED, reason, nothing) for limit in limits]
        gate = build_gate(refused, LEVEL, strict=strict, command=command)
    if junit:
        write_junit(gate, Path(junit))
    return gate


def check_limits(
    rows: Iterable[ChangeRow],
    limits: str | Sequence[str | Limit],
    lengths: Collection[str] = (ALL,),
    *,
    strict: bool = False,
    gaps: Mapping[tuple[str, str], str],
    notes: Sequence[str] = (),
    command: str = "compare",
) -> Gate:
    """Test limits on every change, or on every score of rows without a baseline, at the given
    lengths.

    A limit fails if the whole interval of the value is beyond it. It is inconclusive where the
    value is undefined, the documents are too few for its interval, or results are missing: `gaps`
    has the reason, by model and task.
    """
    given = [limits] if isinstance(limits, str) else limits
    parsed = [parse_limit(limit) if isinstance(limit, str) else limit for limit in given]
    if not parsed:
        raise PosirError(f"There is no limit to test. Give one, such as {EXAMPLE}.")
    rows = list(rows)
    names = sorted({length.casefold() for length in lengths})
    chosen = [row for row in rows if row.subject.length.casefold() in names]
    level = max(LEVEL, 1 - 2 * ALPHA / max(1, _count_sides(chosen, parsed)))
    tested = []
    for limit, row in product(parsed, chosen):
        if row.metric is limit.metric:
            result = limit.test(row, level, strict=strict)
            gap = gaps.get((result.model, result.task))
            # Where a model lacks results, no limit passes.
            if gap and result.verdict is GateVerdict.PASSES:
                result = replace(result, verdict=GateVerdict.UNDECIDED, reason=gap)
            tested.append(result)
    tested += _refuse_untested(rows, parsed, names, gaps)
    return build_gate(tested, level, strict=strict, command=command, notes=notes)


def _refuse_untested(
    rows: Sequence[ChangeRow],
    limits: Sequence[Limit],
    lengths: Sequence[str],
    gaps: Mapping[tuple[str, str], str],
) -> Iterator[TestedLimit]:
    """Yield each limit on a metric that a model, task and length lacks."""
    subjects: dict[tuple[str, str, str], ChangeSubject] = {}
    tested = set()
    for row in rows:
        key = (row.subject.model, row.subject.task, row.subject.length.casefold())
        subjects[key] = row.subject
        tested.add((*key, row.metric))
    baseline = rows[0].subject.baseline if rows else ""
    systems = dict.fromkeys([*((model, task) for model, task, _ in subjects), *gaps])
    for (model, task), length, limit in product(systems, lengths, limits):
        subject = subjects.get((model, task, length))
        # Effects of position are of queries with one place.
        is_absent = subject and subject.has_places and limit.metric in EFFECTS
        if not is_absent and (model, task, length, limit.metric) not in tested:
            about = ChangeSubject(baseline=baseline, model=model, task=task, length=length)
            missing = LimitReason.UNKNOWN if subject else LimitReason.NO_QUESTIONS
            reason = describe_limit(missing, ChangeRow(limit.metric, None, subject=about))
            gap = gaps.get((model, task), reason)
            yield limit.report(GateVerdict.UNDECIDED, gap, about)


def _count_sides(rows: Sequence[ChangeRow], limits: Iterable[Limit]) -> int:
    """Count the sides of values that are limited; two limits on one side share it."""
    totals = {}
    for row in rows:
        if row.subject.length == ALL:
            totals[row.subject.model, row.subject.task] = row.subject.queries
    sides = set()
    for limit, row in product(limits, rows):
        if row.metric is limit.metric and row.estimate and row.estimate.interval_at:
            subject = row.subject
            # A bucket that has all queries is tested as `all`.
            is_all = subject.queries == totals.get((subject.model, subject.task))
            length = ALL if is_all else subject.length
            sides.add((subject.model, subject.task, row.metric, length, limit.above))
    return len(sides)


def _tabulate_gate(limits: Sequence[TestedLimit], title: str, level: float, command: str) -> Table:
    """Tabulate a line for each tested limit, below the verdict."""
    is_of_scores = command == "report"
    models = {limit.model for limit in limits}
    rows = [
        {
            "Verdict": Label(limit.verdict.value, TONES[limit.verdict]),
            "Model": limit.model,
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
    interval = f"with its {format_level(level)} interval"
    note = (
        f"Change: model minus baseline, {interval}. Two equal models fail in at most 5% of all "
        "cases."
    )
    if is_of_scores:
        note = (
            f"Score: {interval}. A model whose true scores are at their limits fails in at most 5% "
            "of all cases."
        )
    table = Table(
        build_columns(rows[0], ["Queries", "Baseline score", "Score", "Change"]),
        tuple(tuple(row.values()) for row in rows),
        title=title,
        notes=(note,),
        keys=2,
    )
    shown = table.without_columns(["Model"]) if len(models) < 2 else table
    return shown.without_empty_columns()


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
    for limit in gate.limits:
        class_name = ", ".join(filter(None, (limit.task, limit.model)))
        name = ", ".join(filter(None, (limit.limit, limit.length)))
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=escape_controls(class_name),
            name=escape_controls(name),
        )
        explanation = ElementTree.SubElement(case, ELEMENTS[limit.verdict])
        if limit.verdict is not GateVerdict.PASSES:
            explanation.set("message", escape_controls(limit.reason))
        value = f"score {format_estimate(limit.b, FORMATS[limit.metric])}"
        if gate.command == "compare":
            value = f"change {format_estimate(limit.change, format_points)}"
        parts = [f"{value}: {limit.reason}", limit.answer]
        explanation.text = escape_controls(". ".join(filter(None, parts)))
    try:
        with atomic_write(file) as temporary:
            ElementTree.ElementTree(suite).write(temporary, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise PosirError(
            f"--junit {file}: cannot be written ({error.strerror}). Choose another file."
        ) from error
