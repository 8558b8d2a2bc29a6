"""A gate: limits on how far a model may differ from its baseline, each tested instead of compared.

A limit such as `ndcg_at_10 < -1` says when a change is too large. It is about the true change, of which the data give an
interval. A limit is on one side of it, so an interval of level 1 - 2a is wrong there with probability a; with m such sides in a
gate a is 0.05 / m (Bonferroni), and at most the 0.025 of the 95 % intervals of a comparison. A gate of models that are within
all limits, equal ones above all, therefore fails in at most 5 % of all cases.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from pathlib import Path
from xml.etree import ElementTree

from posir_compare.comparison import FORMATS, ComparisonRow, Metric, ModelComparison
from posir_significance.correction import name_test
from posir_significance.decision import ChangeState, Reason
from posir_significance.intervals import ALPHA, LEVEL
from posir_significance.sentences import describe_few, format_change
from posir_tasks.command.undecided import UNDECIDED
from posir_tasks.display.numbers import MISSING, format_count, format_estimate, format_number
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.display.wording import escape_controls
from posir_tasks.errors import PosirError
from posir_tasks.files import atomic_write
from posir_tasks.scores import ALL, Difference, Estimate, Interval

#: What a limit looks like.
LIMIT = re.compile(r"\s*(?P<key>\w+)\s*(?P<sign>[<>])\s*(?P<value>[-+]?(\d+\.?\d*|\.\d+))\s*")
EXAMPLE = "'ndcg_at_10 < -1' or 'start_to_end > 5'"


class GateVerdict(StrEnum):
    """The verdict of a gate, and on each of its limits."""

    PASSES = "passes"
    FAILS = "fails"
    UNDECIDED = "cannot be said"

    @property
    def exit_status(self) -> int:
        """Exit status of the command."""
        return {GateVerdict.PASSES: 0, GateVerdict.FAILS: 1, GateVerdict.UNDECIDED: UNDECIDED}[self]


@dataclass(frozen=True)
class Limit:
    """A limit on the change of a metric, model minus baseline."""

    text: str
    """The text as it was given."""
    metric: Metric
    above: bool
    """Whether changes above the value are too large; else those below."""
    value: float
    """The number in the unit of result files, where scores are in [0, 1]."""

    def is_exceeded_by(self, interval: Interval) -> bool:
        """Return whether a whole interval is beyond the limit."""
        return interval[0] > self.value if self.above else interval[1] < self.value

    def contains(self, interval: Interval) -> bool:
        """Return whether a whole interval is within the limit."""
        return interval[1] <= self.value if self.above else interval[0] >= self.value


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
    queries: int | None
    a: Estimate | None
    """The baseline's score, with its 95 % interval."""
    b: Estimate | None
    change: Difference | None
    """b - a, with the interval that was tested."""
    reason: str
    state: ChangeState | None = None
    """State of the change, by its margin and the simultaneous interval of a comparison."""
    compared: str = ""
    """The state in words, with that interval."""
    answer: str = ""
    """That state as a sentence."""


@dataclass(frozen=True)
class Gate:
    """Tested limits, and what follows from them together."""

    limits: tuple[TestedLimit, ...]
    level: float
    """Level of the intervals of all changes."""

    @property
    def verdict(self) -> GateVerdict:
        """It fails if one limit fails; otherwise it passes if nothing about any of them cannot be said."""
        verdicts = {limit.verdict for limit in self.limits}
        return next(
            verdict for verdict in (GateVerdict.FAILS, GateVerdict.UNDECIDED, GateVerdict.PASSES) if verdict in verdicts
        )


def parse_limit(text: str) -> Limit:
    """Read a limit: a metric, `<` or `>`, and a number in the unit in which its change is printed.

    Raises:
        PosirError: It is none.
    """
    match = LIMIT.fullmatch(text)
    if match is None:
        raise PosirError(f"'{text}' is no limit. Give a metric, < or >, and a number, such as {EXAMPLE}.")
    metric = next((metric for metric in Metric if metric.key == match["key"]), None)
    if metric is None:
        raise PosirError(f"'{text}': there is no metric {match['key']}. Choose from {', '.join(m.key for m in Metric)}.")
    return Limit(" ".join(text.split()), metric, match["sign"] == ">", float(match["value"]) / metric.scale)


def check(
    comparison: ModelComparison, limits: Sequence[Limit | str], lengths: Collection[str] = (ALL,), *, strict: bool = False
) -> Gate:
    """Test limits on every comparison of a model with the baseline, at the given lengths.

    A limit fails if the whole interval of the change is beyond it. It cannot be said to pass where the change is undefined,
    the documents are too few for its interval, or a model lacks results of the baseline.

    Args:
        comparison: With rows of these lengths.
        limits: At least one.
        lengths: `all` or names of length buckets.
        strict: Whether a limit already fails if the interval is not wholly within it.

    Raises:
        PosirError: A limit is none.
    """
    parsed = [parse_limit(limit) if isinstance(limit, str) else limit for limit in limits]
    if not parsed:
        raise PosirError(f"There is no limit to test. Give one, such as {EXAMPLE}.")
    names = {length.casefold() for length in lengths}
    rows = [row for row in comparison.rows if row.length.casefold() in names]
    level = max(LEVEL, 1 - 2 * ALPHA / max(1, len(set(_name_sides(rows, parsed)))))
    tested = [_test(limit, row, level, strict=strict) for limit in parsed for row in rows if row.metric is limit.metric]
    return Gate((*_apply_gaps(comparison, tested), *_list_missing(comparison, tested, parsed, names)), level)


def refuse(limits: Iterable[Limit], reason: str) -> Gate:
    """Return a gate about which nothing can be said, since there is no comparison."""
    return Gate(tuple(_undecided(limit, "", "", "", "", reason) for limit in limits), LEVEL)


def _name_sides(rows: Iterable[ComparisonRow], limits: Iterable[Limit]) -> Iterator[tuple[str | bool, ...]]:
    """Yield the sides of changes that are limited; two limits on one side share it."""
    totals = {(row.model, row.task): row.queries for row in rows if row.length == ALL}
    for limit, row in product(limits, rows):
        if row.metric is limit.metric and row.difference and row.difference.interval:
            length = name_test(row.length, row.queries, totals.get((row.model, row.task)))
            yield row.model, row.task, row.metric, length, limit.above


def _test(limit: Limit, row: ComparisonRow, level: float, *, strict: bool) -> TestedLimit:
    difference = row.difference
    interval = difference.interval_at(level) if difference and difference.interval_at else None
    verdict, reason = _judge(limit, row, interval, strict=strict)
    change = replace(difference, interval=interval) if difference else None
    return TestedLimit(
        verdict,
        limit.text,
        limit.metric,
        row.task,
        row.length,
        row.baseline,
        row.model,
        queries=row.queries,
        a=row.a,
        b=row.b,
        change=change,
        reason=reason,
        state=row.metric_change.state,
        compared=format_change(row.metric_change, row.change),
        answer=row.describe(),
    )


def _judge(limit: Limit, row: ComparisonRow, interval: Interval | None, *, strict: bool) -> tuple[GateVerdict, str]:
    if row.metric_change.reason is Reason.FEW_DOCUMENTS:
        return GateVerdict.UNDECIDED, describe_few(row.metric_change, row.change)
    if interval is None:
        return GateVerdict.UNDECIDED, f"the change of {limit.metric} is undefined on these questions"
    if limit.is_exceeded_by(interval):
        return GateVerdict.FAILS, "the whole interval is beyond the limit"
    if limit.contains(interval):
        return GateVerdict.PASSES, "the whole interval is within the limit"
    if strict:
        return GateVerdict.FAILS, "the interval is not wholly within the limit"
    return GateVerdict.PASSES, "the interval is neither beyond the limit nor within it: more documents would tell"


def _apply_gaps(comparison: ModelComparison, tested: Iterable[TestedLimit]) -> Iterator[TestedLimit]:
    """Yield tested limits; where a model lacks results of the baseline, none passes."""
    gaps = {(gap.model, gap.task): gap.reason for gap in comparison.gaps}
    for limit in tested:
        reason = gaps.get((limit.model, limit.task))
        passes = limit.verdict is GateVerdict.PASSES
        yield replace(limit, verdict=GateVerdict.UNDECIDED, reason=reason) if reason and passes else limit


def _list_missing(
    comparison: ModelComparison, tested: Iterable[TestedLimit], limits: Sequence[Limit], lengths: Iterable[str]
) -> Iterator[TestedLimit]:
    """Yield the limits that could not be tested, since there is nothing to compare."""
    gaps = {(gap.model, gap.task): gap.reason for gap in comparison.gaps}
    baseline = comparison.rows[0].baseline
    compared = {(limit.model, limit.task, limit.length.casefold()) for limit in tested}
    models = dict.fromkeys([*((row.model, row.task) for row in comparison.rows), *gaps])
    for (model, task), length in product(models, sorted(lengths)):
        if (model, task, length) not in compared:
            reason = gaps.get((model, task), "there are no questions of this length")
            yield from (_undecided(limit, task, length, baseline, model, reason) for limit in limits)


def _undecided(limit: Limit, task: str, length: str, baseline: str, model: str, reason: str) -> TestedLimit:
    return TestedLimit(
        GateVerdict.UNDECIDED,
        limit.text,
        limit.metric,
        task,
        length,
        baseline,
        model,
        queries=None,
        a=None,
        b=None,
        change=None,
        reason=reason,
    )


HEADINGS = ("Verdict", "Limit", "Task", "Length", "Queries", "Baseline score", "Score", "Change", "Reason", "Compared")
#: Elements of JUnit XML that say why a test case did not pass.
JUNIT_ELEMENTS = {GateVerdict.FAILS: "failure", GateVerdict.UNDECIDED: "error"}


def gate_table(gate: Gate) -> Table:
    """Return a table with a line for each tested limit, and the verdict above it."""
    models = dict.fromkeys(limit.model for limit in gate.limits if limit.model)
    baseline = next((limit.baseline for limit in gate.limits if limit.baseline), "")
    compared = f"{', '.join(models)} against {baseline}" if models else "nothing was compared"
    level = format_number(100 * gate.level, ".4g")
    headings = (*HEADINGS[:1], "Model", *HEADINGS[1:]) if len(models) > 1 else HEADINGS
    return Table(
        build_columns(headings, ["Queries"]),
        tuple(_cells(limit, with_model=len(models) > 1) for limit in gate.limits),
        title=f"The gate {_phrase(gate.verdict)} · {compared}",
        notes=(
            f"Change: model minus baseline, with its {level} % interval. Two equal models fail in at most 5 % of all cases.",
        ),
        keys=2,
    )


def _phrase(verdict: GateVerdict) -> str:
    return "cannot be decided" if verdict is GateVerdict.UNDECIDED else verdict.value


def _cells(limit: TestedLimit, *, with_model: bool) -> tuple[str, ...]:
    score, difference = FORMATS[limit.metric]
    return (
        limit.verdict.value,
        *([limit.model] if with_model else []),
        limit.limit,
        limit.task or MISSING,
        limit.length or MISSING,
        format_count(limit.queries),
        format_estimate(limit.a, score),
        format_estimate(limit.b, score),
        format_estimate(limit.change, difference),
        limit.reason,
        limit.compared or MISSING,
    )


def write_junit(gate: Gate, file: Path) -> None:
    """Write a gate as JUnit XML: a test case for each tested limit; what cannot be said is an error.

    Raises:
        PosirError: The file cannot be written.
    """
    count = {verdict: sum(limit.verdict is verdict for limit in gate.limits) for verdict in GateVerdict}
    suite = ElementTree.Element(
        "testsuite",
        name="posir compare",
        tests=str(len(gate.limits)),
        failures=str(count[GateVerdict.FAILS]),
        errors=str(count[GateVerdict.UNDECIDED]),
    )
    suite.extend(map(_test_case, gate.limits))
    try:
        with atomic_write(file) as temporary:
            ElementTree.ElementTree(suite).write(temporary, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise PosirError(f"{file}: cannot be written ({error.strerror}). Choose another --junit.") from error


def _test_case(limit: TestedLimit) -> ElementTree.Element:
    class_name, name = (
        escape_controls(", ".join(filter(None, parts))) for parts in ((limit.task, limit.model), (limit.limit, limit.length))
    )
    case = ElementTree.Element("testcase", classname=class_name, name=name)
    reason, element = escape_controls(limit.reason), JUNIT_ELEMENTS.get(limit.verdict)
    attributes = {"message": reason} if element else {}
    explanation = ElementTree.SubElement(case, element or "system-out", attributes)
    explanation.text = f"change {format_estimate(limit.change, FORMATS[limit.metric][1])}: {reason}"
    if limit.answer:
        explanation.text += f". {escape_controls(limit.answer)}"
    return case
