"""The verdict on a model in sentences, and the tables and records of what probes measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from posir_probe.probe import Probe, includes_zero
from posir_probe.results import FEWEST_DOCUMENTS, ProbeResult
from posir_report.summary import short_labels
from posir_tasks.display.numbers import FORMATS, format_interval, format_number, format_p_value
from posir_tasks.display.tables import Table, build_columns
from posir_tasks.display.wording import pluralize
from posir_tasks.scores import Estimate, Unit

#: Verdicts by the sign of what favors the beginning of a text.
BEGINNING = "gives the beginning of a text more weight than its end"
END = "gives the end of a text more weight than its beginning"
#: Said of a probe that is not known to go along with retrieval.
NOT_RETRIEVAL = "What this says of retrieval is not known (docs/predicts.md)."
#: Most positions that the terminal shows one by one; CSV and JSON have all.
MAX_ROWS = 45
#: Series of the model itself, beside a control.
MODEL = "model"
INTERVAL = "95 % interval"
#: Column of the documents that could not be measured, and their share up to which they are not shown.
LEFT_OUT, MOST_LEFT_OUT = "Documents left out", 0.1
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
    left_out: int
    """Documents that could not be measured."""
    complete: bool
    source: str


def build_index_rows(results: Iterable[ProbeResult], probes: Mapping[str, Probe]) -> list[IndexRow]:
    """Return the summaries of every result, each followed by its values; results of unknown probes have only values."""
    rows = []
    for result in results:
        probe, sums = probes.get(result.probe), result.sums
        summaries = [(name, sums.estimate(summary)) for name, summary in probe.summaries.items()] if probe else []
        rows += [_row(result, sums.documents, probe, "summary", name, estimate) for name, estimate in summaries]
        details = {name: values.tolist() for name, values in sums.details.items()}
        for at, (name, estimate) in enumerate(zip(sums.positions, sums.estimates(), strict=True)):
            known = {key: values[at] for key, values in details.items() if math.isfinite(values[at])}
            rows.append(_row(result, sums.documents, probe, "position", name, estimate, **known))
    return rows


def _row(
    result: ProbeResult,
    documents: int,
    probe: Probe | None,
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
        left_out=max(0, result.done - documents),
        complete=result.is_complete,
        source=probe.source if probe else "",
    )


def build_overview(rows: Sequence[IndexRow], probes: Mapping[str, Probe]) -> Table:
    """Return a table with the first summary of each probe, and the name by which `--probe` takes the probe.

    Documents that a probe left out are in it if they are more than a tenth.
    """
    cells = []
    for (_, name), probe_rows in _group_rows(rows).items():
        row = next((row for row in probe_rows if row.kind == "summary"), None)
        if row is not None:
            label = probes[name].summaries[row.name]
            drawn = row.documents + row.left_out
            left_out = f"{row.left_out:,} of {drawn:,}" if row.left_out > MOST_LEFT_OUT * drawn else ""
            cells.append((label.title, *_format_estimate(row.value, label.unit), left_out, name))
    return _build_table(("Summary", "Value", INTERVAL, LEFT_OUT, "Name for --probe"), cells, ("Value", LEFT_OUT))


def build_probe_tables(rows: Sequence[IndexRow], probe: Probe) -> list[Table]:
    """Return the tables of one probe: its summaries, and its values by position if they are few."""
    summaries = [(row, probe.summaries[row.name]) for row in rows if row.kind == "summary"]
    cells = [(summary.title, *_format_estimate(row.value, summary.unit)) for row, summary in summaries]
    first = [_build_table(("Summary", "Value", INTERVAL), cells, ("Value",))] if cells else []
    positions = [row for row in rows if row.kind == "position" and row.value is not None]
    return [*first, *([_build_position_table(positions, probe)] if 0 < len(positions) <= MAX_ROWS else [])]


def _build_position_table(rows: Sequence[IndexRow], probe: Probe) -> Table:
    named = [probe.split(row.name) for row in rows]
    series = [", ".join(filter(None, (panel, line))) for panel, line, _ in named]
    keys = ("Series", "Position") if any(series) else ("Position",)
    slopes = ("Slope", "p") if any(row.slope is not None for row in rows) else ()
    cells = [
        (
            *((name or MODEL,) if len(keys) > 1 else ()),
            position,
            *_format_estimate(row.value, probe.unit),
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


def describe_probe(result: ProbeResult, probe: Probe) -> list[str]:
    """Return what must be known to read the values of a probe: its notes, and what was skipped."""
    skipped = ", ".join(f"{count:,} ({reason})" for reason, count in sorted(result.sums.skipped.items()))
    notes = [f"{probe.title}: {' '.join(probe.notes)}"] if probe.notes else []
    return [*notes, *([f"{probe.title}: skipped {skipped}."] if skipped else [])]


def _format_estimate(estimate: Estimate | None, unit: Unit) -> tuple[str, str]:
    form = FORMATS[unit]
    return form(estimate.value if estimate else None), format_interval(estimate, form)


def describe_model(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> str:
    """Return the verdict on a model: which end of a text weighs more, whether it does within its window, and how sure that is.

    Args:
        results: The model's results on one dataset, at least one; the first that has a beginning and an end leads.
        probes: All probes by name.
    """
    model, *_ = short_labels(results)
    known = [(result, probes[result.probe]) for result in results if result.probe in probes]
    contrasts = [pair for pair in known if pair[1].compares_ends]
    inside = [pair for pair in contrasts if pair[1].in_window]
    lead = next(iter([*(pair for pair in contrasts if pair not in inside), *inside]), None)
    most = max(result.sums.documents for result in results)
    if most < FEWEST_DOCUMENTS:
        return f"{model}: cannot be said, {pluralize(most, 'document')} of at least {FEWEST_DOCUMENTS}."
    if lead is None:
        finding = next((finding for result, probe in known if (finding := probe.find(result.sums))), None)
        sentences = [f"{model}: {finding or 'nothing could be measured'}."]
    else:
        sentences = [f"{model}{_judge(*lead)}: {_state(*lead)}."]
        within = inside[0] if inside and inside[0] is not lead else None
        if within:
            window = f"its {within[0].window:,} tokens" if within[0].window else "its window"
            sentences.append(f"Within {window}: {_state(*within)}.")
        sentences += _describe_window(*lead)
    shown = lead or next(iter(known), None)
    if shown and not shown[1].predicts_retrieval and not shown[1].is_of_data:
        sentences.append(NOT_RETRIEVAL)
    return " ".join(sentences)


def _judge(result: ProbeResult, probe: Probe) -> str:
    estimate = result.sums.estimate(probe.first_summary)
    if estimate is None or estimate.interval is None or includes_zero(estimate):
        return ""
    return f" {BEGINNING if estimate.value > 0 else END}"


def _state(result: ProbeResult, probe: Probe) -> str:
    finding = probe.find(result.sums) or "too few documents to say"
    return finding[0].lower() + finding[1:]


def _describe_window(result: ProbeResult, probe: Probe) -> Iterator[str]:
    """Yield how much of a text the model reads, if that is less than all and matters to the result."""
    if result.share_read and result.window and probe.shows_window:
        yield f"It reads {result.window:,} tokens, {100 * result.share_read:.0f} % of a median document."
