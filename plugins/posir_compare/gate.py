"""Gates test limits on changes from a baseline, or on a model's scores.

A limit such as `ndcg_at_10 < -1` bounds the true change, which is estimated with an interval. Tests
are one-sided, so an interval of level 1 - 2a errs with probability a. A gate with m tests uses
a = 0.05 / m (Bonferroni), but at most 0.025, as in the 95% intervals of a comparison. If all true
values are within their limits, for example if the models are equal, a gate fails in at most 5% of
cases.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from posir_compare.comparison import SCORE_FORMATS
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
from posir_tasks.base.files import write_atomically
from posir_tasks.base.records import Record
from posir_tasks.base.wording import escape_controls
from posir_tasks.command.exit_status import INCONCLUSIVE_STATUS
from posir_tasks.display.labels import Label, Title, Tone
from posir_tasks.display.numbers import MISSING, format_count, format_estimate, format_points
from posir_tasks.display.presentation import Result
from posir_tasks.display.tables import Role, Table, build_columns
from posir_tasks.values.estimates import Difference, Estimate, Interval
from posir_tasks.values.judgments import DOCUMENT, JudgedScores
from posir_tasks.values.means import ALPHA, LEVEL, MeanEstimate
from posir_tasks.values.scores import ALL

LIMIT_RE = re.compile(r"\s*(?P<key>\w+)\s*(?P<sign>[<>])\s*(?P<value>[-+]?(\d+(\.\d*)?|\.\d+))\s*")
EXAMPLE = "'ndcg_at_10 < -1' or 'position_effect > 5'"
#: Metrics that a limit can name, by key.
LIMITED_METRICS = {metric.key: metric for metric in (*POSITION_METRICS, *JUDGED_METRICS)}
#: Note below the table, by command.
TABLE_NOTES = {
    "compare": "Change: model minus baseline, with its {level} interval. Two equal models fail in "
    "at most 5% of all cases.",
    "report": "Score: with its {level} interval. A model whose true scores are at their limits "
    "fails in at most 5% of all cases.",
}
logger = logging.getLogger(__name__)


class GateVerdict(StrEnum):
    """The verdict on a gate or a limit."""

    PASSES = "passes"
    FAILS = "fails"
    UNDECIDED = "inconclusive"


#: Color of each verdict. The verdict on a gate is the last one in this order among its limits.
TONES = {
    GateVerdict.PASSES: Tone.GOOD,
    GateVerdict.UNDECIDED: Tone.OPEN,
    GateVerdict.FAILS: Tone.BAD,
}
EXIT_STATUSES = {
    GateVerdict.PASSES: 0,
    GateVerdict.FAILS: 1,
    GateVerdict.UNDECIDED: INCONCLUSIVE_STATUS,
}
JUNIT_ELEMENTS = {
    GateVerdict.PASSES: "system-out",
    GateVerdict.FAILS: "failure",
    GateVerdict.UNDECIDED: "error",
}


@dataclass(frozen=True)
class TestedLimit:
    """The verdict on a limit for one model, task and length; undefined values are None."""

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
    """`b - a` with the tested interval. Without a baseline, this is None and `b` has the tested
    interval.
    """
    reason: str = ""
    state: ChangeState | None = None
    """State of the change in a comparison, according to its margin and simultaneous interval."""
    compared: str = ""
    """The state and its interval as text."""
    answer: str = ""
    """The state as a sentence."""


def list_scores(group: GroupAnalysis, model: str, task: str) -> Iterator[ChangeRow]:
    """Yield a model's scores on all questions of a task, as rows without a baseline."""
    subject = ChangeSubject(
        model=model,
        task=task,
        length=ALL,
        queries=group.queries,
        documents=group.documents,
        unit_name=group.unit_name,
        has_several_spans=group.has_several_spans,
    )
    yield _build_mean_row(Metric.NDCG_AT_10, subject, group.ndcg)
    if group.has_several_spans:
        return
    for metric, test in zip(EFFECTS, (group.whole, group.within), strict=True):
        effect: Difference | None = test.effect if test else None
        documents = test.documents_at_ends if test and effect else MIN_DOCUMENTS
        if group.untested_reason is Reason.ORDER_BLIND:
            effect = NO_EFFECT
        effect_subject = replace(subject, documents=documents, unit_name=DOCUMENT)
        yield _build_row(metric, effect_subject, effect)


def list_judged_scores(
    scores: JudgedScores, estimates: Mapping[str, MeanEstimate | None], model: str, task: str
) -> Iterator[ChangeRow]:
    """Yield a model's scores on all judged queries of a task, as rows without a baseline."""
    subject = ChangeSubject(
        model=model,
        task=task,
        queries=scores.queries,
        documents=len(scores.sizes),
        unit_name=scores.unit_name,
    )
    for metric in JUDGED_METRICS:
        yield _build_mean_row(metric, subject, estimates[metric.key])


def _build_mean_row(metric: Metric, subject: ChangeSubject, mean: MeanEstimate | None) -> ChangeRow:
    if mean is None:
        return _build_row(metric, subject, None)
    compute_interval = mean.compute_interval if mean.interval else None
    return _build_row(
        metric, subject, Difference(mean.value, mean.interval, None, compute_interval)
    )


def _build_row(metric: Metric, subject: ChangeSubject, score: Difference | None) -> ChangeRow:
    reason = Reason.FEW_DOCUMENTS if subject.documents < MIN_DOCUMENTS else None
    return ChangeRow(metric, None, estimate=score, reason=reason, subject=subject)


@dataclass(frozen=True)
class Limit:
    """A limit on a score, or on its change (model minus baseline)."""

    text: str
    metric: Metric
    above: bool
    """If true, an upper limit; else a lower limit."""
    value: float
    """The limit on the scale of result files, where scores are in [0, 1]."""

    def judge(
        self, row: ChangeRow, interval: Interval | None, *, strict: bool
    ) -> tuple[GateVerdict, LimitReason]:
        """Compare an interval with the limit. Return the verdict and the reason."""
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
        """Test the limit on a row, with an interval of the given level."""
        estimate = row.estimate
        interval = (
            estimate.compute_interval(level) if estimate and estimate.compute_interval else None
        )
        verdict, reason = self.judge(row, interval, strict=strict)
        score = Estimate(estimate.value, interval) if estimate else None
        subject = row.subject
        fields: Record = {"queries": subject.queries, "b": score}
        if subject.baseline:
            fields |= {"a": row.a, "b": row.b, "change": score, "state": row.state}
            fields |= {"compared": format_change(row), "answer": describe_change(row)}
        return self.build_result(verdict, describe_limit(reason, row), subject, **fields)

    def build_result(
        self, verdict: GateVerdict, reason: str, subject: ChangeSubject, **fields: Any
    ) -> TestedLimit:
        """Build the result of a test. `fields` are other fields of `TestedLimit`."""
        return TestedLimit(
            verdict,
            self.text,
            self.metric,
            subject.task,
            subject.length,
            subject.baseline,
            subject.model,
            reason=reason,
            **fields,
        )


@dataclass(frozen=True, repr=False, kw_only=True)
class Gate(Result):
    """Tested limits and the verdict on all of them."""

    limits: tuple[TestedLimit, ...]
    verdict: GateVerdict
    """Fails if any limit fails, else inconclusive if any limit is, else passes."""
    level: float
    """Level of all intervals."""
    command: str = "compare"
    """The command that ran the gate."""


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
    names = [limit.model for limit in limits if limit.model and limit.verdict is verdict]
    models = ", ".join(dict.fromkeys(names)) or "nothing was tested"
    baseline = next((f" against {limit.baseline}" for limit in limits if limit.baseline), "")
    phrase = "is inconclusive" if verdict is GateVerdict.UNDECIDED else verdict.value
    title = Title(f"The gate {phrase}", f"{models}{baseline}")
    return Gate(
        title=title,
        rows=limits,
        tables=[_tabulate_gate(limits, title, level, command)],
        values={"verdict": verdict, "strict": strict, "level": level, "limits": limits},
        warnings=tuple(f"note: {note}" for note in notes),
        exit_status=EXIT_STATUSES[verdict],
        limits=tuple(limits),
        verdict=verdict,
        level=level,
        command=command,
    )


def parse_limit(text: str) -> Limit:
    """Parse a limit: a metric, `<` or `>`, and a number in points."""
    match = LIMIT_RE.fullmatch(text)
    keys = ", ".join(LIMITED_METRICS)
    if match is None:
        raise PosirError(
            f"Invalid limit '{text}'. Give a metric, < or >, and a number in quotes, such as "
            f"{EXAMPLE}.\nMetrics: {keys}."
        )
    if match["key"] not in LIMITED_METRICS:
        raise PosirError(f"'{text}': unknown metric {match['key']}. Choose from {keys}.")
    metric = LIMITED_METRICS[match["key"]]
    return Limit(" ".join(text.split()), metric, match["sign"] == ">", float(match["value"]) / 100)


def parse_limits(texts: Iterable[str], *, strict: bool, junit: object) -> list[Limit]:
    """Parse limits. Raise PosirError if one is malformed, or if limit options are given without a
    limit.
    """
    limits = [parse_limit(text) for text in texts]
    if not limits and (strict or junit):
        raise PosirError("--strict and --junit need a limit. Add --fail-if.")
    return limits


def run_gate(
    test: Callable[[], Gate],
    limits: Sequence[Limit],
    command: str,
    junit: str | Path | None,
    *,
    strict: bool,
) -> Gate:
    """Run a gate and write JUnit XML. An error makes the gate inconclusive and is reported as the
    reason.
    """
    try:
        gate = test()
    except Exception as error:
        reason = str(error)
        if not isinstance(error, PosirError):
            logger.exception("an unexpected error made the gate inconclusive")
            reason = summarize_error(error)
        subject = ChangeSubject(length="")
        verdicts = [limit.build_result(GateVerdict.UNDECIDED, reason, subject) for limit in limits]
        gate = build_gate(verdicts, LEVEL, strict=strict, command=command)
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
    """Test limits on the change in each row with the given lengths, or on the score if the row has
    no baseline.

    A limit fails if the whole interval is beyond it. It is inconclusive if the value is undefined,
    there are too few documents, or results are missing. `gaps` contains the reasons for missing
    results by model and task.
    """
    items = [limits] if isinstance(limits, str) else limits
    parsed_limits = [parse_limit(item) if isinstance(item, str) else item for item in items]
    if not parsed_limits:
        raise PosirError(f"There is no limit to test. Give one, such as {EXAMPLE}.")
    names = sorted({length.casefold() for length in lengths})
    by_subject = defaultdict[tuple[str, str, str], list[ChangeRow]](list)
    baseline = ""
    for row in rows:
        subject = row.subject
        by_subject[subject.model, subject.task, subject.length.casefold()].append(row)
        baseline = subject.baseline
    model_tasks = dict.fromkeys([*(key[:2] for key in by_subject), *gaps])
    tested_rows = [row for key, group in by_subject.items() if key[2] in names for row in group]
    level = max(LEVEL, 1 - 2 * ALPHA / max(1, _count_tests(tested_rows, parsed_limits)))
    results = []
    for limit, (model, task), length in product(parsed_limits, model_tasks, names):
        group = by_subject[model, task, length]
        gap = gaps.get((model, task))
        metric_rows = [row for row in group if row.metric is limit.metric]
        for row in metric_rows:
            result = limit.test(row, level, strict=strict)
            # A limit cannot pass if results are missing.
            if gap and result.verdict is GateVerdict.PASSES:
                result = replace(result, verdict=GateVerdict.UNDECIDED, reason=gap)
            results.append(result)
        # Position effects exist only for queries with one evidence span.
        is_undefined = limit.metric in EFFECTS and any(
            row.subject.has_several_spans for row in group
        )
        if not metric_rows and not is_undefined:
            subject = ChangeSubject(baseline=baseline, model=model, task=task, length=length)
            code = LimitReason.UNKNOWN if group else LimitReason.NO_QUESTIONS
            reason = describe_limit(code, ChangeRow(limit.metric, None, subject=subject))
            results.append(limit.build_result(GateVerdict.UNDECIDED, gap or reason, subject))
    return build_gate(results, level, strict=strict, command=command, notes=notes)


def _count_tests(rows: Sequence[ChangeRow], limits: Iterable[Limit]) -> int:
    """Count the one-sided tests. Two limits on the same side of a value count as one test."""
    totals = {
        (row.subject.model, row.subject.task): row.subject.queries
        for row in rows
        if row.subject.length == ALL
    }
    tests = set()
    for limit, row in product(limits, rows):
        if row.metric is limit.metric and row.estimate and row.estimate.compute_interval:
            subject = row.subject
            # A bucket with all queries is the same test as `all`.
            is_all = subject.queries == totals.get((subject.model, subject.task))
            length = ALL if is_all else subject.length
            tests.add((subject.model, subject.task, row.metric, length, limit.above))
    return len(tests)


def _tabulate_gate(limits: Sequence[TestedLimit], title: str, level: float, command: str) -> Table:
    rows = [
        {
            "Verdict": Label(limit.verdict.value, TONES[limit.verdict]),
            "Model": limit.model,
            "Limit": limit.limit,
            "Task": limit.task or MISSING,
            "Length": limit.length or MISSING,
            "Queries": format_count(limit.queries),
            "Baseline score": format_estimate(limit.a, SCORE_FORMATS[limit.metric]),
            "Score": format_estimate(limit.b, SCORE_FORMATS[limit.metric]),
            "Change": format_estimate(limit.change, format_points),
            "Reason": limit.reason,
            "Compared": limit.compared or MISSING,
        }
        for limit in limits
    ]
    note = TABLE_NOTES[command].format(level=format_level(level))
    table = Table(
        build_columns(
            rows[0],
            ["Queries", "Baseline score", "Score", "Change"],
            roles={"Model": Role.NAME, "Task": Role.NAME},
        ),
        tuple(tuple(row.values()) for row in rows),
        title=title,
        notes=(note,),
        keys=2,
    )
    if len({limit.model for limit in limits}) < 2:
        table = table.drop_columns(["Model"])
    return table.drop_empty_columns()


def write_junit(gate: Gate, file: Path) -> None:
    """Write a gate as JUnit XML. Limits are test cases; inconclusive limits are errors."""
    verdicts = [limit.verdict for limit in gate.limits]
    suite = ElementTree.Element(
        "testsuite",
        name=f"posir {gate.command}",
        tests=str(len(verdicts)),
        failures=str(verdicts.count(GateVerdict.FAILS)),
        errors=str(verdicts.count(GateVerdict.UNDECIDED)),
    )
    for limit in gate.limits:
        case = ElementTree.SubElement(suite, "testcase")
        class_name = ", ".join(filter(None, (limit.task, limit.model)))
        case.set("classname", escape_controls(class_name))
        name = ", ".join(filter(None, (limit.limit, limit.length)))
        case.set("name", escape_controls(name))
        explanation = ElementTree.SubElement(case, JUNIT_ELEMENTS[limit.verdict])
        if limit.verdict is not GateVerdict.PASSES:
            explanation.set("message", escape_controls(limit.reason))
        value = f"score {format_estimate(limit.b, SCORE_FORMATS[limit.metric])}"
        if gate.command == "compare":
            value = f"change {format_estimate(limit.change, format_points)}"
        sentences = [f"{value}: {limit.reason}", limit.answer]
        explanation.text = escape_controls(". ".join(filter(None, sentences)))
    with write_atomically(file) as temporary:
        ElementTree.ElementTree(suite).write(temporary, encoding="utf-8", xml_declaration=True)
