"""Tables and records of results of probes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from posir_probe.probe import ModelProbe, TextProbe
from posir_probe.results import ProbeResult
from posir_probe.view import ProbeView, find_view, label_summary
from posir_tasks.display.numbers import FORMATS, format_interval, format_number, format_p_value
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.estimates import Estimate
from posir_tasks.scores import Unit

#: Most positions that the terminal shows one by one; CSV and JSON have all.
MAX_ROWS = 45
#: Series of the model itself, beside a control.
MODEL = "model"
INTERVAL = "95 % interval"
INTERVALS = "Intervals: 95 %, percentiles of a bootstrap over documents. The interval of a range does not correct its bias."
MORE = "--html draws the values at every position."


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


def build_overview(rows: Sequence[IndexRow], probes: Mapping[str, TextProbe | ModelProbe]) -> Table:
    """Return a table with the first summary of each probe, and the name by which `--probe` takes the probe."""
    cells = []
    for (_, name), probe_rows in _group_rows(rows).items():
        row = next((row for row in probe_rows if row.kind == "summary"), None)
        if row is not None:
            label = label_summary(probes.get(name), row.name)
            cells.append((label.title, *_format_estimate(row.value, label.unit), name))
    return _build_table(("Summary", "Value", INTERVAL, "Name for --probe"), cells, ("Value",))


def build_probe_tables(rows: Sequence[IndexRow], probe: TextProbe | ModelProbe | None) -> list[Table]:
    """Return the tables of one probe: its summaries, and its values by position if they are few."""
    view = find_view(probe)
    summaries = [row for row in rows if row.kind == "summary"]
    labels = [label_summary(probe, row.name) for row in summaries]
    cells = [(label.title, *_format_estimate(row.value, label.unit)) for row, label in zip(summaries, labels, strict=True)]
    first = [_build_table(("Summary", "Value", INTERVAL), cells, ("Value",))] if cells else []
    positions = [row for row in rows if row.kind == "position" and row.value is not None]
    return [*first, *([_build_position_table(positions, view)] if 0 < len(positions) <= MAX_ROWS else [])]


def _build_position_table(rows: Sequence[IndexRow], view: ProbeView) -> Table:
    named = [view.split(row.name) for row in rows]
    series = [", ".join(filter(None, (panel, line))) for panel, line, _ in named]
    keys = ("Series", "Position") if any(series) else ("Position",)
    slopes = ("Slope", "p") if any(row.slope is not None for row in rows) else ()
    cells = [
        (
            *((name or MODEL,) if len(keys) > 1 else ()),
            position,
            *_format_estimate(row.value, view.unit),
            *((format_number(row.slope, ".3f"), format_p_value(row.p_value)) if slopes else ()),
        )
        for row, name, (_, _, position) in zip(rows, series, named, strict=True)
    ]
    return _build_table((*keys, "Value", INTERVAL, *slopes), cells, ("Value", *slopes), len(keys))


def _build_table(headings: Sequence[str], rows: Sequence[tuple[str, ...]], right: Sequence[str], keys: int = 1) -> Table:
    """Return a table without the columns that no row fills."""
    filled = [at for at, _ in enumerate(headings) if any(row[at] for row in rows)]
    cells = tuple(tuple(row[at] for at in filled) for row in rows)
    return Table(build_columns([headings[at] for at in filled], right), cells, keys=keys)


def _group_rows(rows: Iterable[IndexRow]) -> dict[tuple[str, str], list[IndexRow]]:
    """Return rows by data and probe."""
    groups: dict[tuple[str, str], list[IndexRow]] = {}
    for row in rows:
        groups.setdefault((row.data, row.probe), []).append(row)
    return groups


def describe_probe(result: ProbeResult, probe: TextProbe | ModelProbe | None) -> list[str]:
    """Return what must be known to read the values of a probe: its notes, and what was skipped."""
    title = probe.title if probe else result.probe
    skipped = ", ".join(f"{count:,} ({reason})" for reason, count in sorted(result.sums.skipped.items()))
    notes = [f"{title}: {' '.join(probe.notes)}"] if probe and probe.notes else []
    return [*notes, *([f"{title}: skipped {skipped}."] if skipped else [])]


def _format_estimate(estimate: Estimate | None, unit: Unit) -> tuple[str, str]:
    form = FORMATS[unit]
    return form(estimate.value if estimate else None), format_interval(estimate, form)
