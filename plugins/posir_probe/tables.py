"""The values that probes of a model measured: the verdict in sentences, tables, records and figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from posir_probe.probe import COSINE, POINTS, SHARES, Probe, includes_zero
from posir_probe.probing import all_probes
from posir_probe.results import ProbeResult, read_probe_results
from posir_report.summary import short_labels
from posir_significance.position_effect import FEWEST_DOCUMENTS
from posir_tasks.display.numbers import FORMATS, format_interval, format_number, format_p_value
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.tables import NARROW, DisplaySection, Table, build_columns, total_width
from posir_tasks.display.wording import pluralize
from posir_tasks.scores import Estimate, Unit
from posir_tasks.sources.formats.passages import SkippedText, describe_skipped

if TYPE_CHECKING:
    from rich.console import Console

    from posir_tasks.display.figures import Figure

#: Said of a probe that is not known to go along with retrieval.
NOT_RETRIEVAL = "What this says of retrieval is not known (docs/predicts.md): posir inspect and mteb run measure it."
#: Most positions that the terminal shows one by one; CSV and JSON have all.
MAX_ROWS = 45
#: Most probes whose values a terminal shows without being asked.
MOST_SECTIONS = 3
INTERVAL = "95 % interval"
#: Column shown where there is room; a page and `--explain` have the names above the probes.
NAME = "Name for --probe"
#: Share of documents that could not be measured up to which they are not shown.
MOST_LEFT_OUT = 0.1


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
    """Return the summaries of every result, each followed by its values."""
    rows = []
    for result in results:
        probe, sums = probes[result.probe], result.sums
        details = {name: values.tolist() for name, values in sums.details.items()}
        named: list[tuple[str, str, Estimate | None, dict[str, float]]] = [
            ("summary", name, sums.estimate(summary), {}) for name, summary in probe.summaries.items()
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
                source=probe.source,
            )
            for kind, name, estimate, known in named
        ]
    return rows


def build_overview(rows: Sequence[IndexRow], probes: Mapping[str, Probe]) -> Table:
    """Return a table with the summary that each probe's finding states, those of a scale together, retrieval first.

    Below it are the documents that a probe left out, if they are more than a tenth.
    """
    by_scale: dict[str, list[tuple[str, ...]]] = {POINTS: [], COSINE: []}
    left_out = []
    for row in rows:
        if row.kind == "summary" and row.name == probes[row.probe].stated:
            probe, drawn = probes[row.probe], row.documents + row.left_out
            summary = probe.summaries[row.name]
            line = (summary.title, *_format_estimate(row.value, summary.unit), _find_favored(row.value, probe), row.probe)
            by_scale.setdefault(probe.scale, []).append(line)
            left_out += [f"{row.probe} {row.left_out:,} of {drawn:,}"] if row.left_out > MOST_LEFT_OUT * drawn else []
    # Percentages are last: they favor no end of a text.
    scales = sorted(by_scale.items(), key=lambda item: item[0] == SHARES)
    cells = [line for scale, lines in scales if lines for line in ((scale, "", "", "", ""), *lines)]
    table = _build_table(("Summary", "Value", INTERVAL, "Favors", NAME), cells, ("Value",))
    return replace(table, notes=(f"Documents left out: {', '.join(left_out)}.",) if left_out else ())


def _find_favored(estimate: Estimate | None, probe: Probe) -> str:
    """Return the end of a text that an estimate is in favor of; empty if it compares none or has no interval."""
    if not probe.preference_sign or estimate is None or estimate.interval is None:
        return ""
    if includes_zero(estimate.interval):
        return "cannot be said"
    return "start" if probe.preference_sign * estimate.value > 0 else "end"


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
        table = _build_table((*keys, "Value", INTERVAL, *slopes), values, ("Value", *slopes))
        is_wide = total_width(table.column_widths()) > NARROW
        tables.append(replace(table, split_by="{Series}" if is_wide and len(keys) > 1 else ""))
    return tables


def _build_table(headings: Sequence[str], rows: Sequence[tuple[str, ...]], right: Sequence[str]) -> Table:
    filled = [at for at, _ in enumerate(headings) if any(row[at] for row in rows)]
    cells = tuple(tuple(row[at] for at in filled) for row in rows)
    return Table(build_columns([headings[at] for at in filled], right, (NAME,)), cells)


def _format_estimate(estimate: Estimate | None, unit: Unit) -> tuple[str, str]:
    form = FORMATS[unit]
    return form(estimate.value if estimate else None), format_interval(estimate, form)


def find_leads(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> list[tuple[ProbeResult, Probe]]:
    """Return what carries the verdict: the first result that compares start and end, and the first within the window.

    Those with an interval come first. Where nothing compares start and end, it is the first result.
    """
    known = [(result, probes[result.probe]) for result in results]
    known.sort(key=lambda pair: (pair[1].in_window, pair[1].find(pair[0].sums) is None))
    contrasts = [pair for pair in known if pair[1].compares_ends]
    inside = [pair for pair in contrasts[1:] if pair[1].in_window]
    return [*contrasts[:1], *inside[:1]] or known[:1]


def describe_model(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> str:
    """Return the verdict on a model: which end of a text weighs more, also within its window, and how sure that is."""
    model, *_ = short_labels(results)
    most = max(result.sums.documents for result in results)
    if most < FEWEST_DOCUMENTS:
        return f"{model}: cannot be said, {pluralize(most, 'document')} of at least {FEWEST_DOCUMENTS}."
    (result, probe), *inside = find_leads(results, probes)
    favored = _find_favored(result.sums.estimate(probe.first_summary), probe) if probe.compares_ends else ""
    other = {"start": "end", "end": "start"}.get(favored)
    verb = f" gives the {favored} of a text more weight than its {other}" if other else ""
    sentences = [f"{model}{verb}: {_state(result, probe)}."]
    for within, which in inside:
        place = f"its {within.window:,} tokens" if within.window else "its window"
        sentences.append(f"Within {place}: {_state(within, which)}.")
    if result.share_read and result.window and probe.shows_window:
        sentences.append(f"It reads {result.window:,} tokens, {100 * result.share_read:.0f} % of a median document.")
    return " ".join(sentences)


def advise_next(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> tuple[str, ...]:
    """Return what to do after the verdict; nothing for properties of the data."""
    leads = [pair for pair in find_leads(results, probes) if not pair[1].is_of_data]
    estimates = [result.sums.estimate(probe.first_summary) for result, probe in leads]
    advice = []
    if any(estimate is None or not estimate.interval or includes_zero(estimate.interval) for estimate in estimates):
        advice.append("Measure more documents (--documents).")
    if any(result.share_read for result, _ in leads):
        advice.append("Search in chunks that are read as a whole: posir inspect compares their sizes.")
    if not all(probe.predicts_retrieval for _, probe in leads):
        advice.append(NOT_RETRIEVAL)
    return ("What to do:", *advice) if advice else ()


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
        documents = pluralize(max(result.sums.documents for result in self.results), "document")
        return f"Probes of {short_labels(self.results)[0]} on {documents} of {self.results[0].data}"

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the verdict, what to do, the figures of the verdict, and the table of summaries; then each probe, folded."""
        probes = all_probes()
        leads = find_leads(self.results, probes)
        sections = [
            DisplaySection(sentences=(describe_model(self.results, probes),)),
            DisplaySection(sentences=advise_next(self.results, probes), draw=partial(self._draw, leads)),
            DisplaySection(tables=(build_overview(self.records(), probes),)),
        ]
        for result in self.results:
            probe = probes[result.probe]
            tables = tuple(build_probe_tables(build_index_rows([result], probes), probe))
            draw = None if (result, probe) in leads else partial(self._draw, [(result, probe)])
            sections.append(DisplaySection(f"{probe.title} · {probe.name}", tables=tables, draw=draw, folded=True))
        return tuple(sections)

    def print_on(self, console: Console, *, explain: bool = False) -> None:
        """Print the verdict and the overview; of many probes, the values of each only if asked to explain."""
        for section in self.sections():
            if explain or not section.folded or len(self.results) <= MOST_SECTIONS:
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
        said = ["Intervals: 95 %, by bootstrap over documents. The interval of a range does not correct its bias."]
        return [*said, *(["--html draws the values at every position."] if len(self.results) > MOST_SECTIONS else [])]

    def explanation(self) -> list[str]:
        """Return what must be known to read the values of each probe: its notes, and what was skipped."""
        probes, notes = all_probes(), []
        for result in self.results:
            probe, skipped = probes[result.probe], result.sums.describe_skipped()
            notes += [f"{probe.title}: {' '.join(probe.notes)}"] if probe.notes else []
            notes += [f"{probe.title}: skipped {skipped}."] if skipped else []
        return notes

    def warnings(self) -> list[str]:
        """Return the texts and questions that cannot be used, in a line."""
        return list(filter(None, [describe_skipped(self.skipped)]))

    def _draw(self, pairs: Iterable[tuple[ProbeResult, Probe]]) -> list[Figure]:
        """Return the figures of results, in which other models' results on the same data are drawn after these."""
        from posir_probe.figures import build_figure

        figures = []
        for shown, probe in pairs:
            others = [result for result in self._others if (result.data, result.probe) == (shown.data, shown.probe)]
            distinct = {(result.model, result.revision, result.experiment): result for result in (shown, *others)}
            figures.append(build_figure([shown, *list(distinct.values())[1:]], probe))
        return figures

    @cached_property
    def _others(self) -> list[ProbeResult]:
        return list(read_probe_results(self.folder))
