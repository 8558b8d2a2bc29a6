"""The values that probes of a model measured: the verdict in sentences, tables, records and figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_probe.probe import Probe, includes_zero
from posir_probe.probing import all_probes
from posir_probe.results import ProbeResult, read_probe_results
from posir_report.summary import short_labels
from posir_significance.position_effect import FEWEST_DOCUMENTS
from posir_tasks.display.numbers import FORMATS, format_interval, format_number, format_p_value
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.tables import DisplaySection, Table, build_columns
from posir_tasks.display.wording import pluralize
from posir_tasks.scores import Estimate, Unit
from posir_tasks.sources.formats.passages import SkippedText, describe_skipped

if TYPE_CHECKING:
    from rich.console import Console

    from posir_tasks.display.figures import Figure

#: Said of a probe that is not known to go along with retrieval.
NOT_RETRIEVAL = "What this says of retrieval is not known (docs/predicts.md)."
#: Most positions that the terminal shows one by one; CSV and JSON have all.
MAX_ROWS = 45
#: Most probes whose values a terminal shows without being asked.
MOST_SECTIONS = 3
INTERVAL = "95 % interval"
#: Column of the documents that could not be measured, and their share up to which they are not shown.
LEFT_OUT, MOST_LEFT_OUT = "Documents left out", 0.1


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
        details = {name: values.tolist() for name, values in sums.details.items()}
        named: list[tuple[str, str, Estimate | None, dict[str, float]]] = [
            ("summary", name, sums.estimate(summary), {}) for name, summary in (probe.summaries if probe else {}).items()
        ]
        for place, (name, estimate) in enumerate(zip(sums.positions, sums.estimates, strict=True)):
            known = {key: values[place] for key, values in details.items() if math.isfinite(values[place])}
            named.append(("position", name, estimate, known))
        rows += [
            IndexRow(
                *(result.model, result.revision, result.data, result.probe, kind, name, estimate),
                sd=known.get("sd"),
                slope=known.get("slope"),
                p_value=known.get("p_value"),
                documents=sums.documents,
                left_out=max(0, sum(subset.done for subset in result.subsets.values()) - sums.documents),
                complete=all(subset.done >= subset.sampled for subset in result.subsets.values()),
                source=probe.source if probe else "",
            )
            for kind, name, estimate, known in named
        ]
    return rows


def build_overview(rows: Sequence[IndexRow], probes: Mapping[str, Probe]) -> Table:
    """Return a table with the first summary of each probe, and the name by which `--probe` takes the probe.

    Documents that a probe left out are in it if they are more than a tenth.
    """
    first: dict[tuple[str, str], IndexRow] = {}
    for row in rows:
        if row.kind == "summary":
            first.setdefault((row.data, row.probe), row)
    cells = []
    for row in first.values():
        label, drawn = probes[row.probe].summaries[row.name], row.documents + row.left_out
        left_out = f"{row.left_out:,} of {drawn:,}" if row.left_out > MOST_LEFT_OUT * drawn else ""
        cells.append((label.title, *_format_estimate(row.value, label.unit), left_out, row.probe))
    return _build_table(("Summary", "Value", INTERVAL, LEFT_OUT, "Name for --probe"), cells, ("Value", LEFT_OUT))


def build_probe_tables(rows: Sequence[IndexRow], probe: Probe) -> list[Table]:
    """Return the tables of one probe: its summaries, and its values by position if they are few."""
    summaries = [(row, probe.summaries[row.name]) for row in rows if row.kind == "summary"]
    cells = [(summary.title, *_format_estimate(row.value, summary.unit)) for row, summary in summaries]
    tables = [_build_table(("Summary", "Value", INTERVAL), cells, ("Value",))] if cells else []
    positions = [row for row in rows if row.kind == "position" and row.value is not None]
    if 0 < len(positions) <= MAX_ROWS:
        named = [probe.split(row.name) for row in positions]
        series = [", ".join(filter(None, (panel, line))) for panel, line, _ in named]
        keys = ("Series", "Position") if any(series) else ("Position",)
        slopes = ("Slope", "p") if any(row.slope is not None for row in positions) else ()
        values = [
            (
                *((name or "model",) if len(keys) > 1 else ()),
                *(position, *_format_estimate(row.value, probe.unit)),
                *((format_number(row.slope, ".3f"), format_p_value(row.p_value)) if slopes else ()),
            )
            for row, name, (_, _, position) in zip(positions, series, named, strict=True)
        ]
        tables.append(_build_table((*keys, "Value", INTERVAL, *slopes), values, ("Value", *slopes), len(keys)))
    return tables


def _build_table(headings: Sequence[str], rows: Sequence[tuple[str, ...]], right: Sequence[str], keys: int = 1) -> Table:
    filled = [at for at, _ in enumerate(headings) if any(row[at] for row in rows)]
    cells = tuple(tuple(row[at] for at in filled) for row in rows)
    return Table(build_columns([headings[at] for at in filled], right), cells, keys=keys)


def _format_estimate(estimate: Estimate | None, unit: Unit) -> tuple[str, str]:
    form = FORMATS[unit]
    return form(estimate.value if estimate else None), format_interval(estimate, form)


def describe_model(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> str:
    """Return the verdict on a model: which end of a text weighs more, whether it does within its window, and how sure that is.

    Of its results on a dataset, the first that has a beginning and an end leads.
    """
    model, *_ = short_labels(results)
    most = max(result.sums.documents for result in results)
    if most < FEWEST_DOCUMENTS:
        return f"{model}: cannot be said, {pluralize(most, 'document')} of at least {FEWEST_DOCUMENTS}."
    known = [(result, probes[result.probe]) for result in results if result.probe in probes]
    contrasts = [pair for pair in known if pair[1].compares_ends]
    inside = [pair for pair in contrasts if pair[1].in_window]
    lead = next(iter([*(pair for pair in contrasts if pair not in inside), *inside]), None)
    if lead is None:
        finding = next((finding for result, probe in known if (finding := probe.find(result.sums))), None)
        sentences = [f"{model}: {finding or 'nothing could be measured'}."]
    else:
        result, probe = lead
        estimate, verb = result.sums.estimate(probe.first_summary), ""
        if estimate and estimate.interval and not includes_zero(estimate.interval):
            first, second = ("beginning", "end") if estimate.value > 0 else ("end", "beginning")
            verb = f" gives the {first} of a text more weight than its {second}"
        sentences = [f"{model}{verb}: {_state(*lead)}."]
        if inside and inside[0] is not lead:
            window = inside[0][0].window
            sentences.append(f"Within {f'its {window:,} tokens' if window else 'its window'}: {_state(*inside[0])}.")
        if result.share_read and result.window and probe.shows_window:
            sentences.append(f"It reads {result.window:,} tokens, {100 * result.share_read:.0f} % of a median document.")
    shown = lead or next(iter(known), None)
    if shown and not shown[1].predicts_retrieval and not shown[1].is_of_data:
        sentences.append(NOT_RETRIEVAL)
    return " ".join(sentences)


def _state(result: ProbeResult, probe: Probe) -> str:
    finding = probe.find(result.sums) or "too few documents to say"
    return finding[0].lower() + finding[1:]


@dataclass(frozen=True, repr=False)
class ProbeMeasurements(Presentable):
    """The values that probes of a model measured."""

    results: tuple[ProbeResult, ...]
    """One for each probe."""
    folder: Path
    """Folder of results, in which other models' results on the same data are drawn beside these."""
    skipped: tuple[SkippedText, ...] = ()
    """Texts and questions that cannot be used."""

    @property
    def title(self) -> str:
        """Subject in a few words."""
        return f"Probes of {short_labels(self.results)[0]} on {self.results[0].data}"

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the verdict with the first summary of each probe; then each probe with its figure, summaries and values."""
        probes = all_probes()
        verdict = DisplaySection(
            sentences=(describe_model(self.results, probes),), tables=(build_overview(self.records(), probes),)
        )
        sections = [verdict]
        for result in self.results:
            if (probe := probes.get(result.probe)) is None:
                # Its plugin is not installed.
                probe = Probe()
                probe.name = probe.title = result.probe
            tables = tuple(build_probe_tables(build_index_rows([result], {probe.name: probe}), probe))
            sections.append(DisplaySection(title=probe.title, tables=tables, draw=partial(self._draw, result, probe)))
        return tuple(sections)

    def print_on(self, console: Console, *, explain: bool = False) -> None:
        """Print the verdict and the overview; of many probes, the values of each only if asked to explain."""
        verdict, *probes = self.sections()
        verdict.print_on(console)
        for section in probes if explain or len(probes) <= MOST_SECTIONS else ():
            section.print_on(console)
        self.print_legend(console, explain=explain)

    def records(self) -> list[IndexRow]:
        """Return a row for each summary and each position of every probe."""
        return build_index_rows(self.results, all_probes())

    def document(self) -> dict[str, Any]:
        """Return the rows, and the additive values that they are computed from."""
        return {"rows": self.records(), "results": [result.to_json() for result in self.results]}

    def legend(self) -> list[str]:
        """Return how to read the intervals, and where all values are."""
        intervals = (
            "Intervals: 95 %, percentiles of a bootstrap over documents. The interval of a range does not correct its bias."
        )
        return [intervals, *(["--html draws the values at every position."] if len(self.results) > MOST_SECTIONS else [])]

    def explanation(self) -> list[str]:
        """Return what must be known to read the values of each probe: its notes, and what was skipped."""
        probes, notes = all_probes(), []
        for result in self.results:
            if probe := probes.get(result.probe):
                skipped = result.sums.describe_skipped()
                notes += [f"{probe.title}: {' '.join(probe.notes)}"] if probe.notes else []
                notes += [f"{probe.title}: skipped {skipped}."] if skipped else []
        return notes

    def warnings(self) -> list[str]:
        """Return the texts and questions that cannot be used, in a line."""
        return list(filter(None, [describe_skipped(self.skipped)]))

    def _draw(self, shown: ProbeResult, probe: Probe) -> Sequence[Figure]:
        """Return the figure of a probe, in which other models' results on the same data are drawn after this one's."""
        from posir_probe.figures import build_figure

        others = [result for result in self._others if (result.data, result.probe) == (shown.data, shown.probe)]
        distinct = {(result.model, result.revision, result.experiment): result for result in (shown, *others)}
        return [build_figure([shown, *list(distinct.values())[1:]], probe)]

    @cached_property
    def _others(self) -> list[ProbeResult]:
        return list(read_probe_results(self.folder))
