"""The values that probes of a model measured: tables, records and figures, and the page of them."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from posir_probe.bias_learning import MEAN
from posir_probe.probe import SEPARATOR, UNITS, IndexRow, Probe, build_index_rows
from posir_probe.probing import all_probes
from posir_probe.results import ProbeResult, read_probe_results
from posir_published.probes import read_published_curves
from posir_report.summary import short_labels
from posir_significance.controlled import MIN_DOCUMENTS
from posir_significance.messages import describe_few
from posir_tasks.base.wording import PAPER, pluralize
from posir_tasks.data.formats.passages import SkippedText, describe_skipped
from posir_tasks.display.numbers import FORMATS, MISSING, format_estimate
from posir_tasks.display.presentation import Presentable
from posir_tasks.display.strip import format_share
from posir_tasks.display.tables import DisplaySection, Table, build_columns
from posir_tasks.models.command_reference import NO_REFERENCE, CommandReference
from posir_tasks.tasks.catalog import find_task
from posir_tasks.values.scores import Estimate

if TYPE_CHECKING:
    from rich.console import Console

    from posir_tasks.display.figures import Figure

#: Most positions that the terminal shows one by one; CSV and JSON have all.
MAX_ROWS = 45
#: Most probes whose values a terminal shows without being asked.
MAX_SECTIONS = 3
DIFFERENCE, PUBLISHED = "Difference", "Published values"
SEARCH, WITHIN, WHOLE, OTHER = (
    "Search",
    "Embeddings, within the window",
    "Embeddings, whole texts",
    "Other measurements",
)
#: Headings of differences, in order.
GROUPS = (SEARCH, WITHIN, WHOLE, OTHER)
NO_VERDICT = "Probes are measures without a verdict on position bias."


def write_commands(reference: CommandReference, output: Path) -> str:
    """Return the commands that give a verdict on the same model and data, a line each; empty for
    objects in Python.
    """
    model, data = reference.model, reference.data
    if not model or not data:
        return ""
    if find_task(data) is None:
        return reference.write("posir", "inspect", model, data)
    run = reference.write("posir", "run", "-t", data, "-m", model, "--output", str(output))
    return f"{run}\n{shlex.join(['posir', 'report', str(output)])}"


def choose_lead(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> ProbeResult:
    """Return the result that a page begins with: of those with an interval a search, else a
    comparison of start and end.
    """

    def rank(result: ProbeResult) -> tuple[bool, bool, bool]:
        probe = probes[result.probe]
        return (
            result.sums.documents < MIN_DOCUMENTS,
            not probe.measures_search,
            probe.preference_sign <= 0,
        )

    return min(results, key=rank)


def describe_result(result: ProbeResult, probe: Probe) -> str:
    """Return the stated values of a result, and why they have no interval."""
    few = (
        describe_few(MIN_DOCUMENTS, result.sums.documents, probe.unit_name)
        if result.sums.documents < MIN_DOCUMENTS
        else ""
    )
    return f"{probe.describe(result.sums)}{f' (no interval: {few})' if few else ''}"


def describe_sample(result: ProbeResult) -> str:
    """Return the documents that are measured, how they were drawn, and how much of them is
    truncated.
    """
    selections = "; ".join(dict.fromkeys(subset.selection for subset in result.subsets.values()))
    of_all = f" of {result.available:,}" if result.available > result.sums.documents else ""
    median = f", median {result.median_tokens:,} tokens" if result.median_tokens else ""
    drawn = (
        f"{result.sums.documents:,}{of_all} documents of {result.data}, drawn at random "
        f"({selections}){median}."
    )
    if result.tokens_read == 1:
        return drawn
    whole = sum(length <= (result.window or length) for length in result.lengths)
    share = (
        f"{format_share(1 - result.tokens_read)} of the tokens are truncated: the window is "
        f"{result.window:,} tokens"
    )
    return f"{drawn} {share}, and {whole:,} of {pluralize(len(result.lengths), 'document')} fit."


def list_published(probe: Probe) -> list[float]:
    """Return the first stated summary of published models, in ascending order; a mean over sizes
    stands for each size.
    """
    stated = probe.headline_summaries[0]
    curves = [
        dict(zip(curve.positions, curve.values, strict=True))
        for curve in read_published_curves(probe.name)
    ]
    means = [f"{MEAN}{SEPARATOR}{name.rpartition(SEPARATOR)[2]}" for name in probe.positions]
    names = list(zip(probe.positions, means, strict=True))
    values = [
        float(
            stated(np.array([curve.get(name, curve.get(mean, math.nan)) for name, mean in names]))
        )
        for curve in curves
    ]
    return sorted(value for value in values if math.isfinite(value))


def describe_published(probe: Probe) -> str:
    """Return the range of published values and how many there are; empty without any."""
    published = list_published(probe)
    if not published:
        return ""
    form = probe.find_format(probe.headline_summaries[0])
    return (
        f"{' to '.join(dict.fromkeys(map(form, published[:1] + published[-1:])))} "
        f"({len(published)})"
    )


def find_difference(result: ProbeResult, probe: Probe) -> Estimate | None:
    """Return the first stated summary if it is a difference of start and end with an interval,
    above 0 for the start.
    """
    estimate = (
        result.sums.estimate(probe.headline_summaries[0]) if probe.preference_sign > 0 else None
    )
    return estimate if estimate and estimate.interval else None


def build_differences(results: Iterable[ProbeResult], probes: Mapping[str, Probe]) -> Table:
    """Return a table with the differences of start and end that have an interval, and the range of
    published values.
    """
    groups: dict[str, list[tuple[str, ...]]] = {group: [] for group in GROUPS}
    for result in results:
        probe = probes[result.probe]
        if estimate := find_difference(result, probe):
            form = probe.find_format(probe.headline_summaries[0])
            groups[_choose_group(probe)].append(
                (probe.title, format_estimate(estimate, form), describe_published(probe))
            )
    lines = [line for title, group in groups.items() for line in ((title, "", ""), *group) if group]
    table = _build_table(("What is compared", DIFFERENCE, PUBLISHED), lines, (DIFFERENCE,))
    notes = ["Difference: above 0 if the start of a text counts more than its end."]
    if PUBLISHED in table.headings:
        notes.append(f"{PUBLISHED}: the range over (so many) other models, on other data.")
    return replace(table, notes=tuple(notes))


def _choose_group(probe: Probe) -> str:
    if probe.measures_search:
        return SEARCH
    if probe.preference_sign <= 0:
        return OTHER
    return WITHIN if probe.in_window else WHOLE


def _draw_difference(result: ProbeResult, probe: Probe) -> tuple[float, ...]:
    """Return a difference, the ends of its interval, and the published values; none without an
    interval.
    """
    estimate = find_difference(result, probe)
    return (estimate.value, *(estimate.interval or ()), *list_published(probe)) if estimate else ()


def _title_result(result: ProbeResult, probe: Probe) -> str:
    """Return the heading of a result's values: a difference is drawn next to it, and other values
    are in the heading.
    """
    if find_difference(result, probe) is None:
        return describe_result(result, probe)
    published = describe_published(probe)
    return (
        f"{probe.title} · "
        f"{probe.headline_summaries[0].title}{f'; published: {published}' if published else ''}"
    )


def build_probe_tables(rows: Sequence[IndexRow], probe: Probe) -> list[Table]:
    """Return the tables of one probe: summaries that are no single value, and a matrix of its
    values if they are few.
    """
    placed = [row for row in rows if row.kind == "position" and row.value is not None]
    single = [row.value for row in rows if row.kind == "position"] * bool(placed)
    chosen = [
        (probe.summaries[row.name], row.value)
        for row in rows
        if row.kind == "summary" and row.value not in single
    ]
    chosen.sort(key=lambda pair: pair[0] is not probe.headline_summaries[0])
    cells = [
        (summary.title, format_estimate(value, probe.find_format(summary)))
        for summary, value in chosen
    ]
    tables = [Table(build_columns(("Summary", "Value"), ("Value",)), tuple(cells))] if cells else []
    if 0 < len(placed) <= MAX_ROWS:
        values = [
            (*probe.split(row.name), format_estimate(row.value, FORMATS[probe.unit]))
            for row in placed
        ]
        frame = pl.DataFrame(values, ["Series", "Line", "Position", "value"], orient="row")
        distinct = {name: frame[name].n_unique() for name in frame.columns[:3]}
        fewest = min("Position", "Series", key=distinct.__getitem__)
        across = "Line" if distinct["Line"] > 1 or distinct[fewest] > 3 else fewest
        matrix = frame.pivot(across, values="value").fill_null(MISSING)
        matrix = matrix.rename({"": "model" if distinct["Line"] > 1 else "Value"}, strict=False)
        table = _build_table(matrix.columns, matrix.rows(), matrix.columns[2:])
        tables.append(
            replace(
                table, split_by="{Series}" if across == "Line" and distinct["Series"] > 1 else ""
            )
        )
    return tables


def _build_table(
    headings: Sequence[str], rows: Sequence[tuple[str, ...]], right: Sequence[str]
) -> Table:
    filled = [
        at for at in range(len(headings)) if any(row[at] not in ("", MISSING) for row in rows)
    ]
    cells = tuple(tuple(row[at] for at in filled) for row in rows)
    return Table(build_columns([headings[at] for at in filled], right, drawn=[DIFFERENCE]), cells)


@dataclass(frozen=True, repr=False)
class ProbeMeasurements(Presentable):
    """The values that probes of a model measured."""

    results: tuple[ProbeResult, ...]
    """One for each probe."""
    folder: Path
    """Folder of results, in which other models' results on the same data are drawn beside these."""
    skipped: tuple[SkippedText, ...] = ()
    """Texts and questions that cannot be used."""
    reference: CommandReference = NO_REFERENCE

    @property
    def title(self) -> str:
        """Subject in a few words."""
        documents = pluralize(max(result.sums.documents for result in self.results), "document")
        return f"Probes of {short_labels(self.results)[0]} on {documents} of {self.results[0].data}"

    @property
    def lead(self) -> ProbeResult:
        """The result that the page begins with."""
        return choose_lead(self.results, all_probes())

    @property
    def page_title(self) -> str:
        """Heading of the page: what is measured, with its first number."""
        measure = all_probes()[self.lead.probe].describe(self.lead.sums).partition("; ")[0]
        return f"{short_labels(self.results)[0]} · {measure}"

    def sections(self) -> tuple[DisplaySection, ...]:
        """Return the first measure, the sample and where a verdict is, then the differences; then
        each probe, folded.
        """
        probes, lead = all_probes(), self.lead
        has_figure = lead.sums.documents >= MIN_DOCUMENTS
        sentences = [f"{describe_result(lead, probes[lead.probe])}.", describe_sample(lead)]
        commands = write_commands(self.reference, self.folder)
        where = (
            "These commands give one:"
            if commands
            else "`posir run` with `posir report`, or `posir inspect`, give one."
        )
        verdict = f"{NO_VERDICT} {where}"
        differences = build_differences(self.results, probes)
        ordered = sorted(
            self.results, key=lambda result: GROUPS.index(_choose_group(probes[result.probe]))
        )
        return (
            DisplaySection(self.title, tuple(sentences)),
            DisplaySection(sentences=(verdict,), code=commands),
            DisplaySection(draw=partial(self._draw, lead) if has_figure else None),
            *[DisplaySection(tables=(differences,))] * bool(differences.rows),
            *(
                self._show_values(result, probes[result.probe], drawn=has_figure and result is lead)
                for result in ordered
            ),
        )

    def _show_values(self, result: ProbeResult, probe: Probe, *, drawn: bool) -> DisplaySection:
        """Return the values of a probe; with its figure unless that is drawn before."""
        tables = build_probe_tables(build_index_rows([result], {probe.name: probe}), probe)
        notes = (*probe.notes[1:], *self._describe_left_out(result, probe))
        tables[-1:] = [replace(table, notes=notes) for table in tables[-1:]]
        has_figure = result.sums.documents >= MIN_DOCUMENTS and not drawn
        return DisplaySection(
            _title_result(result, probe),
            probe.notes[:1],
            tuple(tables),
            draw=partial(self._draw, result) if has_figure else None,
            folded=True,
            group=_choose_group(probe),
            drawn=_draw_difference(result, probe),
            unit=UNITS.get(
                probe.headline_summaries[0].unit,
                "cosine" if "osine" in probe.value_title else "gradient",
            ),
        )

    def _describe_left_out(self, result: ProbeResult, probe: Probe) -> list[str]:
        """Return which texts and documents are not measured, and how to measure one probe of
        many.
        """
        skipped, omitted = (
            result.sums.describe_skipped(),
            result.drawn - result.sums.documents * probe.joined,
        )
        notes = [f"Skipped: {skipped}."] if skipped else []
        # Documents that were skipped are counted by reason.
        if omitted > 0 and omitted != sum(result.sums.skipped.values()):
            notes.append(f"Documents left out: {omitted:,} of {result.drawn:,}.")
        if len(self.results) > MAX_SECTIONS:
            notes.append(f"To measure only this: `--probe {probe.name}`.")
        return notes

    def page_sections(self) -> tuple[DisplaySection, ...]:
        """Return what follows the title; each difference is drawn with its values, and not in a
        table.
        """
        first, *others = self.sections()
        shown = (section for section in others if section.group or not section.tables)
        return (replace(first, title=""), *shown)

    def describe_data(self) -> str:
        """Return the model, the data and the methods, with their revisions and papers."""
        first, probes = self.results[0], all_probes()
        revisions = ", ".join(
            dict.fromkeys(subset.data_revision[:12] for subset in first.subsets.values())
        )
        papers = dict.fromkeys(
            paper for of in self.results for paper in PAPER.findall(probes[of.probe].source)
        )
        return (
            f"Model: {first.model}, revision {first.revision[:12]}. Data: {first.data}, revision "
            f"{revisions}. "
            f"Methods: {', '.join(map(' '.join, papers))}."
        )

    def print_on(self, console: Console, *, explain: bool = False) -> None:
        """Print the first measure and the differences; of many probes, the values of each only if
        asked to explain.
        """
        for section in self.sections():
            is_empty = not section.tables and not section.sentences
            if not is_empty and (
                explain or not section.folded or len(self.results) <= MAX_SECTIONS
            ):
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
        return [
            "Intervals: 95%, by bootstrap over documents; they are too narrow where documents are "
            "few."
        ]

    def closing(self) -> list[str]:
        """Return where all values are."""
        return (
            ["--html draws the values at every position."]
            if len(self.results) > MAX_SECTIONS
            else []
        )

    def explanation(self) -> list[str]:
        """Return what must be known to read all values."""
        return [
            "nDCG@10: 100 if the right document is always ranked first, 0 if it is never among "
            "the first ten.",
            "Difference: above 0 if the start of a text counts more than its end. Of Pearson's r "
            "of position and weight of "
            "sentences, the sign is the other way around.",
            "Mirror reversal: the order of five parts of a text is reversed, so that its evidence "
            "is near the other end. "
            "Questions on the middle part are left out. For a model blind to order the difference "
            "is 0. It includes what "
            "truncation costs.",
            "Joined texts: they are on different subjects and cut to fit the window, and do not "
            "read like one natural text. "
            "Only their order changes.",
            "Gradient: how much the similarity to a question changes with a token; 1 is the 99th "
            "percentile in a document. It "
            "depends on the words, too.",
            "Embeddings: these probes do not measure search. An embedding that leans to the start "
            "may still find what is near "
            "the end.",
            "Cosine: of the embeddings of two texts, 1 if they point the same way. Those of "
            "unrelated texts are seldom "
            "at 0: compare cosines with each other.",
            *[
                f"{task.metadata.name}: {task.metadata.description}"
                for task in [find_task(self.results[0].data)]
                if task
            ],
            "No interval: there are fewer than ten documents, or no value in some bootstrap "
            "samples.",
            "Range: the highest minus the lowest value. Chance alone makes it larger than 0.",
        ]

    def warnings(self) -> list[str]:
        """Return the texts and questions that cannot be used, in a line."""
        return list(filter(None, [describe_skipped(self.skipped)]))

    def _draw(self, shown: ProbeResult) -> list[Figure]:
        """Return the figure of a result, in which other models' results on the same data are drawn
        after it.
        """
        from posir_probe.figures import build_figure

        others = [
            result
            for result in self._others
            if (result.data, result.probe) == (shown.data, shown.probe)
        ]
        distinct = {
            (result.model, result.revision, result.experiment): result
            for result in (shown, *others)
        }
        return [build_figure([shown, *list(distinct.values())[1:]], all_probes()[shown.probe])]

    @cached_property
    def _others(self) -> list[ProbeResult]:
        return list(read_probe_results(self.folder))
