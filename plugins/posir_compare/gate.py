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
from typing import Any
from xml.etree import ElementTree

from posir_compare.comparison import FORMATS, ComparisonRow, Metric, ModelComparison
from posir_significance.decision import ChangeState, Reason
from posir_significance.intervals import ALPHA, LEVEL
from posir_significance.sentences import describe_few, format_change
from posir_tasks.command.undecided import UNDECIDED
from posir_tasks.display.numbers import MISSING, format_count, format_estimate, format_number
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.tables import DisplaySection, Table, build_columns
from posir_tasks.display.wording import escape_controls
from posir_tasks.errors import PosirError
from posir_tasks.files import atomic_write
from posir_tasks.scores import ALL, Difference, Estimate, Interval

LIMIT = re.compile(r"\s*(?P<key>\w+)\s*(?P<sign>[<>])\s*(?P<value>[-+]?(\d+\.?\d*|\.\d+))\s*")
EXAMPLE = "'ndcg_at_10 < -1' or 'start_to_end > 5'"
HEADINGS = ("Verdict", "Limit", "Task", "Length", "Queries", "Baseline score", "Score", "Change", "Reason", "Compared")


class GateVerdict(StrEnum):
    """The verdict of a gate, and on each of its limits."""

    PASSES = "passes"
    FAILS = "fails"
    UNDECIDED = "cannot be said"


#: Elements of JUnit XML that say why a test case did not pass.
JUNIT_ELEMENTS = {GateVerdict.FAILS: "failure", GateVerdict.UNDECIDED: "error"}


@dataclass(frozen=True)
class Limit:
    """A limit on the change of a metric, model minus baseline."""

    text: str
    metric: Metric
    above: bool
    """Whether changes above the value are too large; else those below."""
    value: float
    """The number in the unit of result files, where scores are in [0, 1]."""

    def judge(self, row: ComparisonRow, interval: Interval | None, *, strict: bool) -> tuple[GateVerdict, str]:
        """Return the verdict on a change with its interval, and the reason."""
        if row.metric_change.reason is Reason.FEW_DOCUMENTS:
            return GateVerdict.UNDECIDED, describe_few(row.metric_change, row.change)
        if interval is None:
            return GateVerdict.UNDECIDED, f"the change of {self.metric} is undefined on these questions"
        low, high = interval
        if low > self.value if self.above else high < self.value:
            return GateVerdict.FAILS, "the whole interval is beyond the limit"
        if high <= self.value if self.above else low >= self.value:
            return GateVerdict.PASSES, "the whole interval is within the limit"
        if strict:
            return GateVerdict.FAILS, "the interval is not wholly within the limit"
        return GateVerdict.PASSES, "the interval is neither beyond the limit nor within it: more documents would tell"


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
    change: Difference | None = None
    """b - a, with the interval that was tested."""
    reason: str = ""
    state: ChangeState | None = None
    """State of the change, by its margin and the simultaneous interval of a comparison."""
    compared: str = ""
    """The state in words, with that interval."""
    answer: str = ""
    """That state as a sentence."""


@dataclass(frozen=True, repr=False)
class Gate(Presentable):
    """Tested limits, and what follows from them together."""

    limits: tuple[TestedLimit, ...]
    level: float
    """Level of the intervals of all changes."""
    strict: bool = False
    """Whether a limit already fails if an interval is not wholly within it."""
    notes: tuple[str, ...] = ()
    """Sentences on results that were skipped, or could not be paired by query."""

    @property
    def verdict(self) -> GateVerdict:
        """It fails if one limit fails; otherwise it passes if nothing about any of them cannot be said."""
        verdicts = {limit.verdict for limit in self.limits}
        return next(
            verdict for verdict in (GateVerdict.FAILS, GateVerdict.UNDECIDED, GateVerdict.PASSES) if verdict in verdicts
        )

    @property
    def exit_status(self) -> int:
        """0 if it passes, 1 if it fails, 2 if that cannot be said."""
        return {GateVerdict.PASSES: 0, GateVerdict.FAILS: 1, GateVerdict.UNDECIDED: UNDECIDED}[self.verdict]

    @property
    def title(self) -> str:
        """The verdict, and the compared models."""
        models = ", ".join(dict.fromkeys(limit.model for limit in self.limits if limit.model))
        baseline = next((limit.baseline for limit in self.limits if limit.baseline), "")
        phrase = "cannot be decided" if self.verdict is GateVerdict.UNDECIDED else self.verdict.value
        return f"The gate {phrase} · {f'{models} against {baseline}' if models else 'nothing was compared'}"

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the table with a line for each tested limit."""
        return (DisplaySection(tables=(gate_table(self),)),)

    def records(self) -> tuple[TestedLimit, ...]:
        """Return the tested limits."""
        return self.limits

    def document(self) -> dict[str, Any]:
        """Return the verdict, and the tested limits."""
        return {"verdict": self.verdict, "strict": self.strict, "level": self.level, "limits": self.limits}

    def warnings(self) -> tuple[str, ...]:
        """Return the notes."""
        return tuple(f"note: {note}" for note in self.notes)


def parse_limit(text: str) -> Limit:
    """Read a limit: a metric, `<` or `>`, and a number in the unit in which its change is printed."""
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
    """
    parsed = [parse_limit(limit) if isinstance(limit, str) else limit for limit in limits]
    if not parsed:
        raise PosirError(f"There is no limit to test. Give one, such as {EXAMPLE}.")
    names = {length.casefold() for length in lengths}
    rows = [row for row in comparison.rows if row.length.casefold() in names]
    level = max(LEVEL, 1 - 2 * ALPHA / max(1, len(set(_name_sides(rows, parsed)))))
    tested = [_test(limit, row, level, strict=strict) for limit in parsed for row in rows if row.metric is limit.metric]
    # Where a model lacks results of the baseline, no limit passes.
    for place, limit in enumerate(tested):
        reason = comparison.gaps.get((limit.model, limit.task))
        if reason and limit.verdict is GateVerdict.PASSES:
            tested[place] = replace(limit, verdict=GateVerdict.UNDECIDED, reason=reason)
    compared = {(limit.model, limit.task, limit.length.casefold()) for limit in tested}
    models = dict.fromkeys([*((row.model, row.task) for row in comparison.rows), *comparison.gaps])
    for (model, task), length in product(models, sorted(names)):
        if (model, task, length) not in compared:
            reason = comparison.gaps.get((model, task), "there are no questions of this length")
            tested += [_refuse(limit, reason, task, length, comparison.rows[0].baseline, model) for limit in parsed]
    return Gate(tuple(tested), level, strict, comparison.notes)


def refuse(limits: Iterable[Limit], reason: str, *, strict: bool = False) -> Gate:
    """Return a gate about which nothing can be said, since there is no comparison."""
    return Gate(tuple(_refuse(limit, reason) for limit in limits), LEVEL, strict)


def _refuse(limit: Limit, reason: str, task: str = "", length: str = "", baseline: str = "", model: str = "") -> TestedLimit:
    return TestedLimit(GateVerdict.UNDECIDED, limit.text, limit.metric, task, length, baseline, model, reason=reason)


def _name_sides(rows: Iterable[ComparisonRow], limits: Iterable[Limit]) -> Iterator[tuple[str | bool, ...]]:
    """Yield the sides of changes that are limited; two limits on one side share it."""
    totals = {(row.model, row.task): row.queries for row in rows if row.length == ALL}
    for limit, row in product(limits, rows):
        if row.metric is limit.metric and row.difference and row.difference.interval:
            # A bucket that has all queries is tested as `all`.
            length = ALL if row.queries == totals.get((row.model, row.task)) else row.length
            yield row.model, row.task, row.metric, length, limit.above


def _test(limit: Limit, row: ComparisonRow, level: float, *, strict: bool) -> TestedLimit:
    difference = row.difference
    interval = difference.interval_at(level) if difference and difference.interval_at else None
    verdict, reason = limit.judge(row, interval, strict=strict)
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
        change=replace(difference, interval=interval) if difference else None,
        reason=reason,
        state=row.metric_change.state,
        compared=format_change(row.metric_change, row.change),
        answer=row.describe(),
    )


def gate_table(gate: Gate) -> Table:
    """Return a table with a line for each tested limit, and the verdict above it."""
    with_model = len({limit.model for limit in gate.limits if limit.model}) > 1
    rows = (
        (
            limit.verdict.value,
            *([limit.model] if with_model else []),
            limit.limit,
            limit.task or MISSING,
            limit.length or MISSING,
            format_count(limit.queries),
            format_estimate(limit.a, FORMATS[limit.metric][0]),
            format_estimate(limit.b, FORMATS[limit.metric][0]),
            format_estimate(limit.change, FORMATS[limit.metric][1]),
            limit.reason,
            limit.compared or MISSING,
        )
        for limit in gate.limits
    )
    level = format_number(100 * gate.level, ".4g")
    return Table(
        build_columns((*HEADINGS[:1], "Model", *HEADINGS[1:]) if with_model else HEADINGS, ["Queries"]),
        tuple(rows),
        title=gate.title,
        notes=(
            f"Change: model minus baseline, with its {level} % interval. Two equal models fail in at most 5 % of all cases.",
        ),
        keys=2,
    )


def write_junit(gate: Gate, file: Path) -> None:
    """Write a gate as JUnit XML: a test case for each tested limit; what cannot be said is an error."""
    count = {verdict: sum(limit.verdict is verdict for limit in gate.limits) for verdict in GateVerdict}
    failures, errors = str(count[GateVerdict.FAILS]), str(count[GateVerdict.UNDECIDED])
    suite = ElementTree.Element(
        "testsuite", name="posir compare", tests=str(len(gate.limits)), failures=failures, errors=errors
    )
    for limit in gate.limits:
        parts = ((limit.task, limit.model), (limit.limit, limit.length))
        class_name, name = (escape_controls(", ".join(filter(None, part))) for part in parts)
        case = ElementTree.SubElement(suite, "testcase", classname=class_name, name=name)
        reason, element = escape_controls(limit.reason), JUNIT_ELEMENTS.get(limit.verdict)
        explanation = ElementTree.SubElement(case, element or "system-out", {"message": reason} if element else {})
        explanation.text = f"change {format_estimate(limit.change, FORMATS[limit.metric][1])}: {reason}"
        if limit.answer:
            explanation.text += f". {escape_controls(limit.answer)}"
    try:
        with atomic_write(file) as temporary:
            ElementTree.ElementTree(suite).write(temporary, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise PosirError(f"--junit {file}: cannot be written ({error.strerror}). Choose another file.") from error
