"""Tables and records of results of probes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from posir_probe.probe import ModelProbe, TextProbe
from posir_probe.results import ProbeResult
from posir_tasks.display.numbers import format_count, format_interval, format_number, format_p_value
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.estimates import Estimate

#: Most positions that the terminal shows one by one; CSV and JSON have all.
MAX_ROWS = 45
INTERVALS = "Intervals: percentiles of a bootstrap over documents. The interval of a range does not correct its bias."


@dataclass(frozen=True)
class IndexRow:
    """A summary of a probe's values, or the value at one position."""

    model: str
    revision: str
    data: str
    probe: str
    kind: str
    """`summary` or `position`."""
    name: str
    """Name of the summary or the position."""
    value: Estimate | None
    """Its 95 % interval is by bootstrap over documents; None where undefined."""
    sd: float | None
    """Standard deviation of the values at a position."""
    slope: float | None
    p_value: float | None
    """Pearson's r at a position: the slope of its line, and the p-value of both, with the points as independent."""
    documents: int
    complete: bool
    source: str


def build_rows(results: Iterable[ProbeResult], probes: Mapping[str, TextProbe | ModelProbe]) -> list[IndexRow]:
    """Return the summaries of every result, each followed by its values; results of unknown probes have only values."""
    rows = []
    for result in results:
        probe, sums = probes.get(result.probe), result.sums
        summaries = [(name, sums.estimate(compute)) for name, compute in probe.summaries.items()] if probe else []
        rows += [_row(result, sums.documents, probe, "summary", name, estimate) for name, estimate in summaries]
        details = {name: values.tolist() for name, values in sums.details.items()}
        for at, (name, estimate) in enumerate(zip(sums.positions, sums.estimates(), strict=True)):
            known = {key: values[at] for key, values in details.items() if math.isfinite(values[at])}
            rows.append(_row(result, sums.documents, probe, "position", name, estimate, **known))
    return rows


def _row(
    result: ProbeResult,
    documents: int,
    probe: TextProbe | ModelProbe | None,
    kind: str,
    name: str,
    estimate: Estimate | None,
    **details: float,
) -> IndexRow:
    return IndexRow(
        model=result.model,
        revision=result.revision,
        data=result.data,
        probe=result.probe,
        kind=kind,
        name=name,
        value=estimate,
        sd=details.get("sd"),
        slope=details.get("slope"),
        p_value=details.get("p_value"),
        documents=documents,
        complete=result.is_complete,
        source=probe.source if probe else "",
    )


def build_tables(rows: Sequence[IndexRow]) -> list[Table]:
    """Return a table of summaries, and one of values by position for each probe with few positions."""
    summaries = [row for row in rows if row.kind == "summary"]
    columns = build_columns(
        ("Model", "Data", "Probe", "Summary", "Value", "95 % interval", "Documents"), ("Value", "Documents")
    )
    cells = tuple(
        (row.model, row.data, row.probe, row.name, *_format_estimate(row.value), format_count(row.documents))
        for row in summaries
    )
    overview = Table(columns, cells, split_by="{Model} · {Data}", keys=2)
    return [overview, *_position_tables(rows)]


def _position_tables(rows: Sequence[IndexRow]) -> Iterable[Table]:
    by_probe: dict[tuple[str, str, str], list[IndexRow]] = {}
    for row in rows:
        if row.kind == "position" and row.value is not None:
            by_probe.setdefault((row.model, row.data, row.probe), []).append(row)
    for (_, data, probe), probe_rows in by_probe.items():
        if len(probe_rows) <= MAX_ROWS:
            line = ("Slope", "p") if any(row.slope is not None for row in probe_rows) else ()
            cells = tuple(
                (row.name, *_format_estimate(row.value), _format(row.slope), format_p_value(row.p_value))[: 3 + len(line)]
                for row in probe_rows
            )
            columns = build_columns(("Position", "Value", "95 % interval", *line), ("Value", *line))
            yield Table(columns, cells, title=f"{probe} · {data}, {probe_rows[0].model}; {probe_rows[0].source}")


def describe_probes(results: Iterable[ProbeResult], probes: Mapping[str, TextProbe | ModelProbe]) -> list[str]:
    """Return what must be known to read the values: notes of the probes, and what was skipped."""
    results = list(results)
    names = dict.fromkeys(result.probe for result in results)
    notes = [f"{name}: {note}" for name in names if name in probes for note in probes[name].notes]
    skipped = [
        f"{result.probe}, {result.data}: skipped {', '.join(f'{count:,} ({reason})' for reason, count in reasons)}."
        for result in results
        if (reasons := sorted(result.sums.skipped.items()))
    ]
    return [*dict.fromkeys(notes), *skipped]


def _format(value: float | None) -> str:
    return format_number(value, ".3f")


def _format_estimate(estimate: Estimate | None) -> tuple[str, str]:
    return _format(estimate.value if estimate else None), format_interval(estimate, _format)
