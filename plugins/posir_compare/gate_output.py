"""The output of a gate: its table, and JUnit XML for continuous integration."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from posir_compare.gate import Gate, GateVerdict, TestedLimit
from posir_compare.tables import FORMATS
from posir_tasks.display.numbers import MISSING, format_count, format_estimate, format_number
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.display.wording import escape_controls
from posir_tasks.errors import PosirError
from posir_tasks.files import atomic_write

HEADINGS = ("Verdict", "Limit", "Task", "Length", "Queries", "Baseline score", "Score", "Change", "Reason")
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
    return case
