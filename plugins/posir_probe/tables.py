"""The values that probes of a model measured: the verdict in sentences, tables, records and figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from posir_probe.probe import Probe, includes_zero
from posir_probe.probing import all_probes
from posir_probe.results import ProbeResult, read_probe_results
from posir_probe.segments import SegmentSimilarity
from posir_published.probes import read_published_curves
from posir_report.summary import short_labels
from posir_significance.position_effect import FEWEST_DOCUMENTS
from posir_significance.sentences import describe_few
from posir_tasks.display.numbers import FORMATS, MISSING, format_estimate, format_interval, format_number, format_p_value
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.strip import Scale, Strip
from posir_tasks.display.tables import NARROW, DisplaySection, Table, build_columns, total_width
from posir_tasks.display.wording import pluralize
from posir_tasks.scores import Estimate, Unit
from posir_tasks.sources.formats.passages import SkippedText, describe_skipped

if TYPE_CHECKING:
    from rich.console import Console

    from posir_tasks.display.figures import Figure

#: The verdict by the end of a text that weighs more.
ANSWERS = {
    "start": "Yes: the start of a text weighs more than its end",
    "end": "No: the end of a text weighs more than its start",
}
#: Column of differences; larger is in favor of the start.
DIFFERENCE = "Start minus end"
#: Most positions that the terminal shows one by one; CSV and JSON have all.
MAX_ROWS = 45
#: Most probes whose values a terminal shows without being asked.
MOST_SECTIONS = 3
INTERVAL, WEIGHS_MORE, PUBLISHED = "95 % interval", "Weighs more", "Published models"
#: Headings of a page, in order.
GROUPS = ("", "Texts and their parts", "Questions and search", "Other measurements")
#: How differences are printed: all have a sign.
SIGNED: dict[Unit, Any] = {
    **FORMATS,
    Unit.INDEX: partial(format_number, spec="+.3f"),
    Unit.NUMBER: partial(format_number, spec="+.2f"),
}

#: The height of a part in the picture of a text.
COSINES = Scale(
    "similarity to the whole text (cosine)",
    partial(format_number, spec=".2g"),
    "a median document",
    "a text to its end, part by part",
    "{} is what any two parts share",
)


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
                left_out=max(0, result.drawn - sums.documents),
                complete=all(subset.done >= subset.sampled for subset in result.subsets.values()),
                source=probe.source,
            )
            for kind, name, estimate, known in named
        ]
    return rows


def build_differences(
    rows: Iterable[IndexRow], probes: Mapping[str, Probe], name: Callable[[Probe], str] = attrgetter("title")
) -> Table:
    """Return a table with the differences of start and end of embeddings that have an interval; those of search are apart.

    First come those of texts that are read as a whole. Beside each is the range of published ones.
    """
    groups: dict[str, list[tuple[str, ...]]] = {"Within what it reads": [], "Whole texts, read or not": []}
    others, beyond = [], 0
    for row in (row for row in rows if row.kind == "summary" and row.name == probes[row.probe].stated):
        probe = probes[row.probe]
        favored, form = _find_favored(row.value, probe), SIGNED[probe.first_summary.unit]
        if probe.compares_ends and not probe.predicts_retrieval and row.value and row.value.interval:
            published = _list_published(probe)
            known = " to ".join(map(form, (published[0], published[-1]))) if published else ""
            cells = (name(probe), format_estimate(row.value, form), known, favored)
            groups["Within what it reads" if probe.in_window else "Whole texts, read or not"].append(cells)
            beyond += bool(published) and row.value.interval[0] > published[-1]
        elif favored:
            others.append(favored)
    measured = [cells for group in groups.values() for cells in group]
    lines = [line for title, group in groups.items() for line in ((title, "", "", ""), *group)] if all(groups.values()) else []
    table = _build_table(("What is compared", DIFFERENCE, PUBLISHED, WEIGHS_MORE), lines or measured, (DIFFERENCE,))
    more = f"; in {beyond} of {len(measured)} comparisons the start weighs more here than in any of them" * bool(beyond)
    note = f"{PUBLISHED}: the range of other models, on other data{more}."
    table = replace(table, notes=(note,) * (PUBLISHED in table.headings))
    same = [end for end in ANSWERS if measured and all(cells[-1] == end for cells in measured)]
    if not same:
        return table
    also = f", and in {others.count(same[0])} of {pluralize(len(others), 'other')}" if others else ""
    title = f"The {same[0]} weighs more{f' in all {len(measured)} main comparisons{also}' if measured[1:] else ''}"
    return replace(table, columns=table.columns[:-1], rows=tuple(row[:-1] for row in table.rows), title=title)


def _list_published(probe: Probe) -> list[float]:
    """Return the first summary of published models, on other data, in ascending order."""
    curves = [np.array(curve.values) for curve in read_published_curves(probe.name) if curve.positions == probe.positions]
    return sorted(float(probe.first_summary(curve)) for curve in curves)


def _find_favored(estimate: Estimate | None, probe: Probe) -> str:
    """Return the end of a text that an estimate is in favor of; empty if it compares none or has no interval."""
    if not probe.preference_sign or estimate is None or estimate.interval is None:
        return ""
    if includes_zero(estimate.interval):
        return "cannot be said"
    return "start" if probe.preference_sign * estimate.value > 0 else "end"


def _describe_result(result: ProbeResult, probe: Probe) -> str:
    """Return the finding of a probe, then its title, or the title, then why there is none."""
    finding, known = probe.find(result.sums), result.sums.documents
    if known < FEWEST_DOCUMENTS:
        enough = math.ceil(FEWEST_DOCUMENTS * result.drawn / known) if known else 0
        few = f"{probe.title}: {describe_few(FEWEST_DOCUMENTS, known, 'document')}"
        return f"{few}{f'; `--documents {enough}` may do' if enough else ''}"
    if finding or not probe.preference_sign:
        return f"{finding} · {probe.title}" if finding else probe.title
    return f"{probe.title}: which end weighs more cannot be said"


def _list_notes(result: ProbeResult, probe: Probe) -> tuple[str, ...]:
    """Return the method of a probe's values in detail, and what they do not have."""
    skipped, omitted = result.sums.describe_skipped(), result.drawn - result.sums.documents
    left_out = f"Documents left out: {omitted:,} of {result.drawn:,}." if omitted > 0 else ""
    return tuple(filter(None, (*probe.notes[1:], skipped and f"Skipped: {skipped}.", left_out)))


def build_probe_tables(rows: Sequence[IndexRow], probe: Probe) -> list[Table]:
    """Return the tables of one probe: its summaries below its name, and its values by position if they are few."""
    summaries = [(row, probe.summaries[row.name]) for row in rows if row.kind == "summary"]
    cells = [(summary.title, *_format_estimate(row.value, summary.unit)) for row, summary in summaries]
    tables = [_build_table(("Summary", "Value", INTERVAL), cells, ("Value",))] if cells else []
    positions = [row for row in rows if row.kind == "position" and row.value is not None]
    if 0 < len(positions) <= MAX_ROWS:
        named = [probe.split(row.name) for row in positions]
        series = [", ".join(filter(None, (panel, line))) for panel, line, _ in named]
        values = [
            (
                *((name or "model") if any(series) else "", position, *_format_estimate(row.value, probe.unit)),
                *(format_number(row.slope, ".3f"), format_p_value(row.p_value)),
            )
            for row, name, (_, _, position) in zip(positions, series, named, strict=True)
        ]
        table = _build_table(("Series", "Position", "Value", INTERVAL, "Slope", "p"), values, ("Value", "Slope", "p"))
        is_wide = total_width(table.column_widths()) > NARROW
        tables.append(replace(table, split_by="{Series}" if is_wide and any(series) else ""))
    return tables


def _build_table(headings: Sequence[str], rows: Sequence[tuple[str, ...]], right: Sequence[str]) -> Table:
    filled = [at for at, name in enumerate(headings) if name == "Value" or any(row[at] not in ("", MISSING) for row in rows)]
    cells = tuple(tuple(row[at] for at in filled) for row in rows)
    return Table(build_columns([headings[at] for at in filled], right, drawn=[DIFFERENCE]), cells)


def _format_estimate(estimate: Estimate | None, unit: Unit, forms: Mapping[Unit, Any] = FORMATS) -> tuple[str, str]:
    form = forms[unit]
    few = "too few texts" if estimate and not estimate.interval else ""
    return form(estimate.value if estimate else None), format_interval(estimate, form) or few


def find_leads(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> list[tuple[ProbeResult, Probe]]:
    """Return what carries the verdict: the first result that compares start and end, and the first within the window.

    Those with an interval come first. Where nothing compares start and end, it is the first result.
    """
    known = [(result, probes[result.probe]) for result in results]
    known.sort(key=lambda pair: (pair[1].in_window, pair[0].sums.documents < FEWEST_DOCUMENTS))
    contrasts = [pair for pair in known if pair[1].compares_ends]
    inside = [pair for pair in contrasts[1:] if pair[1].in_window]
    return [*contrasts[:1], *inside[:1]] or known[:1]


def describe_model(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> str:
    """Return the verdict on a model: which end of a text weighs more, also within its window, or that this cannot be said."""
    leads = find_leads(results, probes)
    result, probe = leads[0]
    if result.sums.documents < FEWEST_DOCUMENTS:
        return f"Cannot be said: {describe_few(FEWEST_DOCUMENTS, result.sums.documents, 'document')}."
    if not probe.compares_ends:
        return f"{probe.find(result.sums) or f'{probe.title}: whether there is a difference cannot be said'}."
    favored, *inside = (_find_favored(known.sums.estimate(which.first_summary), which) for known, which in leads)
    within = f"within the {result.window:,} tokens that it reads" if result.window else "within what it reads"
    answer = ANSWERS.get(favored, "No sign of it: whether the start or the end of a text weighs more cannot be said")
    if probe.in_window:
        answer += f", {within}"
    elif favored in inside:
        answer += f", also {within}" if favored in ANSWERS else ""
    elif inside:
        answer += f"; {f'the {inside[0]} weighs more' if inside[0] in ANSWERS else 'that cannot be said'} {within}"
    return f"{answer}."


def list_facts(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> list[tuple[str, str]]:
    """Return what the verdict is of and what is not known, by their names, then what to do; nothing on the data alone."""
    leads = find_leads(results, probes)
    result, probe = leads[0]
    if probe.is_of_data:
        return []
    length = f", median {result.median_tokens:,} tokens" if result.median_tokens else ""
    drawn = f"drawn at random ({'; '.join(dict.fromkeys(subset.selection for subset in result.subsets.values()))})"
    size = "a small sample " * (result.sums.documents < 5 * FEWEST_DOCUMENTS)
    facts = [("Documents", f"{result.sums.documents:,} of {result.data}, {size}{drawn}{length}.")]
    advice = ["Measure more documents (`--documents`)."] if any(known.find(of.sums) is None for of, known in leads) else []
    if result.share_read:
        facts.append(("It reads", f"{result.window:,} tokens, {100 * result.share_read:.0f} % of a median document."))
        advice.append("Search in chunks that are read as a whole: `posir inspect` compares their sizes.")
    if not all(known.predicts_retrieval for _, known in leads):
        searched = [_describe_result(of, probes[of.probe]) for of in results if probes[of.probe].predicts_retrieval]
        facts.append(("In search", f"{searched[0].split(' · ')[0] if searched else 'Not measured: `posir inspect` does'}."))
    return [*facts, *(("What to do", " ".join(advice)) for _ in advice[:1])]


def draw_text(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> Strip | None:
    """Return the picture of a text from its start to its end, in the finest parts that were measured; None without one."""
    measured = [result for result in results if isinstance(probes[result.probe], SegmentSimilarity)]
    drawn = [result for result in measured if result.sums.documents >= FEWEST_DOCUMENTS and min(result.sums.values) >= 0]
    if not drawn:
        return None
    result = drawn[-1]
    parts, read = len(result.sums.positions), result.share_read or 1.0
    ends = np.arange(parts + 1) / parts

    def average(low: float, high: float) -> Estimate | None:
        overlap = np.clip(np.minimum(ends[1:], high) - np.maximum(ends[:-1], low), 0, None)
        return result.sums.estimate(lambda values: values @ (overlap / overlap.sum()))

    return Strip(
        short_labels(results)[0],
        ("cosine of each part with the whole text",),
        tuple(average(low, high) for low, high in pairwise(np.linspace(0, read, max(1, round(parts * read)) + 1).tolist())),
        1 - read,
        average(read, 1) if read < 1 else None,
        finding=describe_model(results, probes),
        facts=partial(list_facts, results, probes),
        scale=COSINES,
        code=f"posir inspect {result.model} {result.data}" if result.share_read else "",
    )


@dataclass(frozen=True, repr=False)
class ProbeMeasurements(Presentable):
    """The values that probes of a model measured."""

    results: tuple[ProbeResult, ...]
    """One for each probe."""
    folder: Path
    """Folder of results, in which other models' results on the same data are drawn beside these."""
    skipped: tuple[SkippedText, ...] = ()
    """Texts and questions that cannot be used."""
    options: str = ""
    """Options that the sample was drawn and the model run with, as a command has them."""

    @property
    def title(self) -> str:
        """Subject in a few words."""
        model, probes = short_labels(self.results)[0], all_probes()
        if find_leads(self.results, probes)[0][1].compares_ends:
            return f"Does {model} weigh the start of a text more than its end?"
        documents = pluralize(max(result.sums.documents for result in self.results), "document")
        return f"Probes of {model} on {documents} of {self.results[0].data}"

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the verdict with its picture, what to do, and the differences; then each probe, folded."""
        return self._build_sections(attrgetter("title"))

    def _build_sections(self, name: Callable[[Probe], str]) -> tuple[DisplaySection, ...]:
        probes, rows = all_probes(), self.records()
        leads, strip = find_leads(self.results, probes), draw_text(self.results, probes)
        shown = leads[:1] if leads[0][0].sums.documents >= FEWEST_DOCUMENTS and not strip else []
        facts = tuple(f"{name}: {fact}" for name, fact in list_facts(self.results, probes))
        verdict, differences = describe_model(self.results, probes), build_differences(rows, probes, name)
        sections = [
            DisplaySection(self.title, (verdict,), strips=(strip,) if strip else ()),
            DisplaySection(sentences=facts, draw=partial(self._draw, shown)),
            *[DisplaySection(differences.title, tables=(replace(differences, title=""),))] * bool(differences.rows),
        ]
        for result in self.results:
            probe = probes[result.probe]
            favored = _find_favored(result.sums.estimate(probe.summaries[probe.stated]), probe)
            tables = build_probe_tables(build_index_rows([result], probes), probe)
            tables[-1:] = [replace(table, notes=_list_notes(result, probe)) for table in tables[-1:]]
            is_drawn = result.sums.documents >= FEWEST_DOCUMENTS and (result, probe) not in shown
            sections.append(
                DisplaySection(
                    *(_describe_result(result, probe), probe.notes[:1], tuple(tables)),
                    draw=partial(self._draw, [(result, probe)]) if is_drawn else None,
                    code=f"posir probe {result.model} {result.data} --probe {probe.name} {self.options}"
                    * bool(self.results[1:]),
                    folded=True,
                    group=GROUPS[1 + probe.needs_questions if favored else -1],
                    chip=favored.replace("cannot be said", "no sign"),
                )
            )
        return tuple(sorted(sections, key=lambda section: GROUPS.index(section.group)))

    def page_sections(self) -> tuple[DisplaySection, ...]:
        """Return what follows the question and the card with its answer, or without a card the answer, too.

        There is room to say what is compared.
        """
        verdict, facts, *others = self._build_sections(lambda probe: " · ".join(filter(None, (probe.title, probe.meaning))))
        answer = () if verdict.strips else (replace(verdict, title=""), facts)
        return (*answer, *others)

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
        """Return how to read the intervals."""
        return ["Intervals: 95 %, by bootstrap over documents."]

    def closing(self) -> list[str]:
        """Return where all values are."""
        return ["--html draws the values at every position."] if len(self.results) > MOST_SECTIONS else []

    def explanation(self) -> list[str]:
        """Return what must be known to read all values."""
        return [
            "The interval of a range does not correct its bias. There is none of fewer than ten documents, or of a group of "
            "so few that some samples of the bootstrap have none of it.",
            "Start minus end: plus favors the start. Cosine: 1 is the same, 0 unrelated. Blue: this model, gray: published.",
        ]

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
