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
from typing import Any
from xml.etree import ElementTree

from posir_compare.comparison import FORMATS, JUDGED_METRICS, ComparisonRow, Metric
from posir_significance.analysis import GroupAnalysis
from posir_significance.controlled import MIN_DOCUMENTS, ControlledTest
from posir_significance.findings import ChangeState, Reason
from posir_significance.intervals import ALPHA, LEVEL, MeanEstimate
from posir_significance.messages import describe_few, format_change
from posir_tasks.base.errors import PosirError, summarize_error
from posir_tasks.base.files import atomic_write
from posir_tasks.base.wording import drop_organizations, escape_controls
from posir_tasks.command.undecided import UNDECIDED
from posir_tasks.display.labels import Label, Tone
from posir_tasks.display.numbers import MISSING, format_count, format_estimate, format_number
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.tables import DisplaySection, Table, build_columns
from posir_tasks.values.judgments import JudgedScores
from posir_tasks.values.place_ranks import PLACES
from posir_tasks.values.scores import ALL, Estimate, Interval

LIMIT = re.compile(r"\s*(?P<key>\w+)\s*(?P<sign>[<>])\s*(?P<value>[-+]?(\d+(\.\d*)?|\.\d+))\s*")
EXAMPLE = "'ndcg_at_10 < -1' or 'position_effect > 5'"
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

    subject: TestedLimit
    """Metric, system and questions that it is of, without a limit."""
    value: Estimate | None
    """None where undefined."""
    interval_at: Callable[[float], Interval] | None
    """Returns the interval of a level; None where there is none."""
    few: str = ""
    """There are too few documents for an interval, in words; empty if there are enough."""

    @classmethod
    def of_change(cls, row: ComparisonRow) -> LimitedValue:
        """Return the change of a metric from the baseline."""
        change, difference = row.metric_change, row.difference
        subject = TestedLimit(
            *(
                GateVerdict.UNDECIDED,
                "",
                row.metric,
                row.task,
                row.length,
                row.baseline,
                row.model,
                row.queries,
                row.a,
                row.b,
            ),
            state=change.state,
            compared=format_change(change),
            answer=row.describe(),
        )
        needed = (
            change.needed.number
            if change.needed and change.reason is Reason.FEW_DOCUMENTS
            else None
        )
        few = describe_few(needed, row.change.documents, row.change.counted)
        return cls(
            subject,
            difference,
            difference.interval_at if difference and difference.interval else None,
            few,
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
        clusters = len(scores.sizes)
        few = describe_few(
            MIN_DOCUMENTS if clusters < MIN_DOCUMENTS else None, clusters, scores.counted
        )
        for metric in JUDGED_METRICS:
            mean = estimates[metric.key]
            subject = TestedLimit(
                GateVerdict.UNDECIDED, "", metric, task, ALL, "", model, scores.queries
            )
            yield cls(subject, mean, mean.interval_at if mean and mean.interval else None, few)

    @classmethod
    def of_scores(
        cls, group: GroupAnalysis, model: str, task: str, length: str
    ) -> Iterator[LimitedValue]:
        """Yield each metric of a model over a group of questions."""
        few = describe_few(
            MIN_DOCUMENTS if group.documents < MIN_DOCUMENTS else None,
            group.documents,
            group.counted,
        )
        find = group.ndcg.interval_at if group.ndcg and group.ndcg.interval else None
        yield cls(
            _build_subject(Metric.NDCG, model, task, length, group.queries), group.ndcg, find, few
        )
        if group.has_places:
            return
        for metric, test in (
            (Metric.POSITION_EFFECT, group.whole),
            (Metric.IN_WINDOW, group.within),
        ):
            subject = _build_subject(metric, model, task, length, group.queries)
            if group.not_tested is Reason.ORDER_BLIND:
                yield cls(subject, Estimate(0.0, (0.0, 0.0)), _find_zero)
            else:
                yield cls(subject, *_limit_effect(test))

    @property
    def system(self) -> tuple[str, str]:
        """Model and task."""
        return self.subject.model, self.subject.task


#: Metrics that a test of rotated versions gives.
EFFECTS = (Metric.POSITION_EFFECT, Metric.IN_WINDOW)


def _build_subject(metric: Metric, model: str, task: str, length: str, queries: int) -> TestedLimit:
    return TestedLimit(GateVerdict.UNDECIDED, "", metric, task, length, "", model, queries)


def _find_zero(_: float) -> Interval:
    return 0.0, 0.0


def _limit_effect(
    test: ControlledTest | None,
) -> tuple[Estimate | None, Callable[[float], Interval] | None, str]:
    """Return a position effect, its interval by level, and why there are too few documents, if
    there are.
    """
    if test is None or test.effect is None:
        return None, None, ""
    is_few = test.documents_at_ends < MIN_DOCUMENTS
    few = describe_few(MIN_DOCUMENTS if is_few else None, test.documents_at_ends, "document")
    return test.effect, test.effect.interval_at, few


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
    ) -> tuple[GateVerdict, str]:
        """Return the verdict on a value with its interval, and the reason."""
        if limited.few:
            return GateVerdict.UNDECIDED, limited.few
        if interval is None:
            subject = (
                f"the change of {self.metric}" if limited.subject.baseline else str(self.metric)
            )
            return GateVerdict.UNDECIDED, f"{subject} was not tested on these questions"
        low, high = interval
        if low > self.value if self.above else high < self.value:
            return GateVerdict.FAILS, "the whole interval is beyond the limit"
        if high <= self.value if self.above else low >= self.value:
            return GateVerdict.PASSES, "the whole interval is within the limit"
        if strict:
            return GateVerdict.FAILS, "the interval is not wholly within the limit"
        return (
            GateVerdict.PASSES,
            "the interval contains the limit: more documents are needed to decide",
        )


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
    command: str = "compare"
    """The command whose gate it is."""

    @property
    def verdict(self) -> GateVerdict:
        """It fails if one limit fails; otherwise it passes if none of them is inconclusive."""
        order = (GateVerdict.PASSES, GateVerdict.UNDECIDED, GateVerdict.FAILS)
        return max((limit.verdict for limit in self.limits), key=order.index)

    @property
    def exit_status(self) -> int:
        """0 if it passes, 1 if it fails, 2 if it is inconclusive."""
        return {GateVerdict.PASSES: 0, GateVerdict.FAILS: 1, GateVerdict.UNDECIDED: UNDECIDED}[
            self.verdict
        ]

    @property
    def title(self) -> str:
        """The verdict, and the models that have it."""
        models = ", ".join(
            dict.fromkeys(
                limit.model
                for limit in self.limits
                if limit.model and limit.verdict is self.verdict
            )
        )
        baseline = next((limit.baseline for limit in self.limits if limit.baseline), "")
        phrase = "is inconclusive" if self.verdict is GateVerdict.UNDECIDED else self.verdict.value
        return (
            f"The gate {phrase} · "
            f"{f'{models} against {baseline}' if baseline else models or 'nothing was tested'}"
        )

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the table with a line for each tested limit."""
        return (DisplaySection(tables=(gate_table(self),)),)

    def records(self) -> tuple[TestedLimit, ...]:
        """Return the tested limits."""
        return self.limits

    def document(self) -> dict[str, Any]:
        """Return the verdict, and the tested limits."""
        return {
            "verdict": self.verdict,
            "strict": self.strict,
            "level": self.level,
            "limits": self.limits,
        }

    def warnings(self) -> tuple[str, ...]:
        """Return the notes."""
        return tuple(f"note: {note}" for note in self.notes)


def parse_limit(text: str) -> Limit:
    """Read a limit: a metric, `<` or `>`, and a number in the unit in which its change is
    printed.
    """
    match = LIMIT.fullmatch(text)
    if match is None:
        quoted = "" if set(text) & {"<", ">"} else " In quotes, as a shell reads < and > as files."
        keys = ", ".join(metric.key for metric in Metric)
        raise PosirError(
            f"Invalid limit '{text}'. Give a metric, < or >, and a number, such as "
            f"{EXAMPLE}.{quoted}\nMetrics: {keys}."
        )
    metric = next((metric for metric in Metric if metric.key == match["key"]), None)
    if metric is None:
        raise PosirError(
            f"'{text}': there is no metric {match['key']}. Choose from "
            f"{', '.join(m.key for m in Metric)}."
        )
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
    except PosirError as error:
        gate = refuse(limits, str(error), strict=strict)
    except Exception as error:
        logger.exception("an unexpected error, which is no verdict")
        gate = refuse(limits, summarize_error(error), strict=strict)
    gate = replace(gate, command=command)
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
    notes: tuple[str, ...] = (),
) -> Gate:
    """Test limits on every value at the given lengths.

    A limit fails if the whole interval of the value is beyond it. It is inconclusive where the
    value is undefined, the documents are too few for its interval, or results are missing: `gaps`
    has the reason, by model and task.
    """
    parsed = [parse_limit(limit) if isinstance(limit, str) else limit for limit in limits]
    if not parsed:
        raise PosirError(f"There is no limit to test. Give one, such as {EXAMPLE}.")
    values, names, gaps = list(values), {length.casefold() for length in lengths}, gaps or {}
    chosen = [value for value in values if value.subject.length.casefold() in names]
    level = max(LEVEL, 1 - 2 * ALPHA / max(1, len(set(_name_sides(chosen, parsed)))))
    tested = [
        _test(limit, value, level, strict=strict)
        for limit, value in product(parsed, chosen)
        if value.subject.metric is limit.metric
    ]
    # Where a model lacks results, no limit passes.
    for place, limit in enumerate(tested):
        reason = gaps.get((limit.model, limit.task))
        if reason and limit.verdict is GateVerdict.PASSES:
            tested[place] = replace(limit, verdict=GateVerdict.UNDECIDED, reason=reason)
    known = {(limit.metric, limit.model, limit.task, limit.length.casefold()) for limit in tested}
    of_lengths = {(*value.system, value.subject.length.casefold()) for value in chosen}
    models = dict.fromkeys([*(value.system for value in values), *gaps])
    baseline = next((value.subject.baseline for value in values), "")
    for (model, task), length in product(models, sorted(names)):
        for limited in (
            limit for limit in parsed if (limit.metric, model, task, length) not in known
        ):
            if limited.metric in EFFECTS and task.endswith(PLACES):
                continue
            is_measured = (model, task, length) in of_lengths
            why = (
                f"{limited.metric} is not known of it"
                if is_measured
                else "there are no questions of this length"
            )
            tested.append(
                _refuse(limited, gaps.get((model, task), why), task, length, baseline, model)
            )
    return Gate(tuple(tested), level, strict, notes)


def refuse(limits: Iterable[Limit], reason: str, *, strict: bool = False) -> Gate:
    """Return an inconclusive gate, since there is nothing to test."""
    return Gate(tuple(_refuse(limit, reason) for limit in limits), LEVEL, strict)


def _refuse(
    limit: Limit, reason: str, task: str = "", length: str = "", baseline: str = "", model: str = ""
) -> TestedLimit:
    return TestedLimit(
        GateVerdict.UNDECIDED,
        limit.text,
        limit.metric,
        task,
        length,
        baseline,
        model,
        reason=reason,
    )


def _name_sides(
    values: Iterable[LimitedValue], limits: Iterable[Limit]
) -> Iterator[tuple[str | bool, ...]]:
    """Yield the sides of values that are limited; two limits on one side share it."""
    values = list(values)
    totals = {
        value.system: value.subject.queries for value in values if value.subject.length == ALL
    }
    for limit, value in product(limits, values):
        subject = value.subject
        if subject.metric is limit.metric and value.interval_at:
            # A bucket that has all queries is tested as `all`.
            length = ALL if subject.queries == totals.get(value.system) else subject.length
            yield *value.system, subject.metric, length, limit.above


def _test(limit: Limit, limited: LimitedValue, level: float, *, strict: bool) -> TestedLimit:
    interval = limited.interval_at(level) if limited.interval_at else None
    verdict, reason = limit.judge(limited, interval, strict=strict)
    tested = Estimate(limited.value.value, interval) if limited.value else None
    value: dict[str, Any] = {"change" if limited.subject.baseline else "b": tested}
    return replace(limited.subject, verdict=verdict, limit=limit.text, reason=reason, **value)


def gate_table(gate: Gate) -> Table:
    """Return a table with a line for each tested limit, and the verdict above it."""
    with_model = len({limit.model for limit in gate.limits if limit.model}) > 1
    of_scores, level = gate.command == "report", format_number(100 * gate.level, ".4g")
    left_out = ([] if with_model else ["Model"]) + (
        ["Baseline score", "Change", "Compared"] if of_scores else []
    )
    models = list(dict.fromkeys(limit.model for limit in gate.limits))
    names = dict(zip(models, drop_organizations(models), strict=True))
    rows = [
        {
            "Verdict": Label(limit.verdict.value, VERDICT_TONES[limit.verdict]),
            "Model": names[limit.model] if of_scores else limit.model,
            "Limit": limit.limit,
            "Task": limit.task or MISSING,
            "Length": limit.length or MISSING,
            "Queries": format_count(limit.queries),
            "Baseline score": format_estimate(limit.a, FORMATS[limit.metric][0]),
            "Score": format_estimate(limit.b, FORMATS[limit.metric][0]),
            "Change": format_estimate(limit.change, FORMATS[limit.metric][1]),
            "Reason": limit.reason,
            "Compared": limit.compared or MISSING,
        }
        for limit in gate.limits
    ]
    reasons = dict.fromkeys((limit.verdict.value, limit.reason) for limit in gate.limits)
    notes = []
    if of_scores and len(reasons) == len(dict(reasons)):
        # What all rows share stands below them.
        shared = [
            name for name in ("Task", "Length", "Queries") if len({row[name] for row in rows}) == 1
        ]
        said = [f"{name}: {rows[0][name]}." for name in shared]
        notes = [
            " ".join(
                [*said, *(f"{verdict.capitalize()}: {reason}." for verdict, reason in reasons)]
            )
        ]
        left_out += [*shared, "Reason"]
    headings = [heading for heading in rows[0] if heading not in left_out]
    scores = (
        f"Score: with its {level}% interval. A model whose true scores are at their limits fails "
        "in at most 5% of all cases."
    )
    changes = (
        f"Change: model minus baseline, with its {level}% interval. Two equal models fail in at "
        "most 5% of all cases."
    )
    return Table(
        build_columns(headings, ["Queries", "Baseline score", "Score", "Change"]),
        tuple(tuple(row[heading] for heading in headings) for row in rows),
        title=gate.title,
        notes=(*notes, scores if of_scores else changes),
        keys=2,
    )


def write_junit(gate: Gate, file: Path) -> None:
    """Write a gate as JUnit XML: a test case for each tested limit; an inconclusive one is an
    error.
    """
    count = {
        verdict: sum(limit.verdict is verdict for limit in gate.limits) for verdict in GateVerdict
    }
    failures, errors = str(count[GateVerdict.FAILS]), str(count[GateVerdict.UNDECIDED])
    suite = ElementTree.Element(
        "testsuite",
        name=f"posir {gate.command}",
        tests=str(len(gate.limits)),
        failures=failures,
        errors=errors,
    )
    for limit in gate.limits:
        parts = ((limit.task, limit.model), (limit.limit, limit.length))
        class_name, name = (escape_controls(", ".join(filter(None, part))) for part in parts)
        case = ElementTree.SubElement(suite, "testcase", classname=class_name, name=name)
        reason = escape_controls(limit.reason)
        element = {GateVerdict.FAILS: "failure", GateVerdict.UNDECIDED: "error"}.get(limit.verdict)
        explanation = ElementTree.SubElement(
            case, element or "system-out", {"message": reason} if element else {}
        )
        word, value, format_ = (
            ("score", limit.b, 0) if gate.command == "report" else ("change", limit.change, 1)
        )
        explanation.text = (
            f"{word} {format_estimate(value, FORMATS[limit.metric][format_])}: {reason}"
        )
        if limit.answer:
            explanation.text += f". {escape_controls(limit.answer)}"
    try:
        with atomic_write(file) as temporary:
            ElementTree.ElementTree(suite).write(temporary, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise PosirError(
            f"--junit {file}: cannot be written ({error.strerror}). Choose another file."
        ) from error
