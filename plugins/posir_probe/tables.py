"""The result of `posir probe`: start-minus-end differences, values by position, and figures."""

from __future__ import annotations

import math
import shlex
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from posir_probe.bias_learning import MEAN_SERIES
from posir_probe.probe import SEPARATOR, UNIT_NAMES, Probe, build_probe_rows
from posir_probe.probing import collect_probes
from posir_probe.results import ProbeResult, ProbeSums, read_probe_results
from posir_published.probes import read_published_curves
from posir_report.summary import build_short_labels
from posir_significance.findings import MIN_DOCUMENTS
from posir_significance.messages.probes import (
    PROBE_ALONE,
    PROBE_DATA,
    PROBE_DIFFERENCE,
    PROBE_INTERVALS,
    PROBE_LEFT_OUT,
    PROBE_PAGE,
    PROBE_PUBLISHED,
    PROBE_SKIPPED,
    PROBE_TERMS,
    describe_no_verdict,
    describe_probe_sample,
    describe_truncated_tokens,
    explain_no_interval,
    title_difference,
)
from posir_significance.messages.verdicts import describe_few
from posir_tasks.base.wording import pluralize
from posir_tasks.data.formats.passages import SkippedItem, describe_skipped
from posir_tasks.display.labels import Term, Title
from posir_tasks.display.numbers import FORMATS, MISSING, format_estimate
from posir_tasks.display.presentation import LazySequence, Result
from posir_tasks.display.tables import DisplaySection, Medium, Role, Table, build_columns
from posir_tasks.models.command_reference import NO_REFERENCE, CommandReference
from posir_tasks.tasks.catalog import find_task
from posir_tasks.values.estimates import Estimate

if TYPE_CHECKING:
    from posir_tasks.display.figures import Figure

#: Maximum number of positions in a table. CSV and JSON contain all positions.
MAX_ROWS = 45
#: With more probes, values are printed only with `--explain`.
MAX_SECTIONS = 3
COMPARED_HEADING = "What is compared"
DIFFERENCE_HEADING = "Difference"
#: Column roles by heading.
ROLES = {COMPARED_HEADING: Role.NAME, DIFFERENCE_HEADING: Role.DIFFERENCE}
#: Headings for groups of differences, in order.
HEADINGS = (SEARCH_HEADING, WITHIN_WINDOW, WHOLE_TEXTS, OTHER_MEASUREMENTS) = (
    "Search",
    "Embeddings, within the window",
    "Embeddings, whole texts",
    "Other measurements",
)


@dataclass(frozen=True, repr=False, kw_only=True)
class ProbeMeasurements(Result):
    """A model's probe results."""

    results: Sequence[ProbeResult]
    """One result per probe."""


def write_commands(reference: CommandReference, output: Path) -> list[str]:
    """Write commands that give a verdict on the same model and data; none for Python objects."""
    model = reference.model
    data = reference.data
    if not model or not data:
        return []
    if find_task(data) is None:
        return [reference.format("posir", "inspect", model, data)]
    run = reference.format("posir", "run", "-t", data, "-m", model, "--output", str(output))
    return [run, shlex.join(["posir", "report", str(output)])]


def choose_main_result(results: Iterable[ProbeResult], probes: Mapping[str, Probe]) -> ProbeResult:
    """Choose the result for the top of the page.

    Results with enough documents for an interval are preferred, then search results, then
    comparisons of start and end.
    """

    def rank(result: ProbeResult) -> tuple[bool, bool, bool]:
        group = choose_group(probes[result.probe])
        return (
            result.sums.documents < MIN_DOCUMENTS,
            group != SEARCH_HEADING,
            group == OTHER_MEASUREMENTS,
        )

    return min(results, key=rank)


def describe_result(result: ProbeResult, probe: Probe) -> str:
    """Describe a result by its headline. If it has no interval, add the reason."""
    documents = result.sums.documents
    min_documents = MIN_DOCUMENTS if documents < MIN_DOCUMENTS else None
    note = describe_few(min_documents, documents, probe.unit_name)
    return explain_no_interval(probe.describe(result.sums), note)


def describe_texts(result: ProbeResult) -> str:
    """Describe the measured documents, their selection and their truncated share."""
    subsets = result.subsets.values()
    lengths = result.lengths
    sample = describe_probe_sample(
        result.sums.documents,
        sum(subset.available for subset in subsets),
        result.data,
        "; ".join(dict.fromkeys(subset.selection for subset in subsets)),
        int(statistics.median(lengths or [0])),
    )
    window = result.window or max(lengths, default=0)
    truncated_tokens = sum(max(0, length - window) for length in lengths)
    if not truncated_tokens:
        return sample
    fitting_documents = sum(length <= window for length in lengths)
    share = truncated_tokens / sum(lengths)
    return f"{sample} {describe_truncated_tokens(share, window, fitting_documents, len(lengths))}"


def list_published(probe: Probe) -> list[float]:
    """List the headline values of published models in ascending order.

    If a paper publishes only means over sizes, the mean is used for every size.
    """
    headline_values = []
    for curve in read_published_curves(probe.name):
        by_name = dict(zip(curve.positions, curve.values, strict=True))
        values = []
        for name in probe.positions:
            mean = f"{MEAN_SERIES}{SEPARATOR}{name.rpartition(SEPARATOR)[2]}"
            values.append(by_name.get(name, by_name.get(mean, math.nan)))
        headline_values.append(float(probe.main_summary(np.array(values))))
    return sorted(value for value in headline_values if math.isfinite(value))


def format_published(probe: Probe) -> str:
    """Format the range and the number of published values. Empty if there are none."""
    values = list_published(probe)
    if not values:
        return ""
    format_value = probe.find_format(probe.main_summary)
    ends = dict.fromkeys([format_value(values[0]), format_value(values[-1])])
    return f"{' to '.join(ends)} ({len(values)})"


def find_difference(result: ProbeResult, probe: Probe) -> Estimate | None:
    """Return the headline value if it is a start-minus-end difference with an interval."""
    estimate = result.sums.estimate(probe.main_summary)
    return estimate if probe.preference_sign > 0 and estimate and estimate.interval else None


def choose_group(probe: Probe) -> str:
    """Choose a probe's heading from `HEADINGS`."""
    if probe.preference_sign <= 0:
        return OTHER_MEASUREMENTS
    if probe.measures_search:
        return SEARCH_HEADING
    return WITHIN_WINDOW if probe.in_window else WHOLE_TEXTS


def build_difference_table(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> Table:
    """Build a table of differences with intervals and of published ranges, by heading."""
    by_group: dict[str, list[tuple[str, ...]]] = {group: [(group, "", "")] for group in HEADINGS}
    for result in results:
        probe = probes[result.probe]
        estimate = find_difference(result, probe)
        if estimate is not None:
            difference = format_estimate(estimate, probe.find_format(probe.main_summary))
            row = (probe.title, difference, format_published(probe))
            by_group[choose_group(probe)].append(row)
    return _build_table(
        (COMPARED_HEADING, DIFFERENCE_HEADING, "Published values"),
        [row for rows in by_group.values() if len(rows) > 1 for row in rows],
        (DIFFERENCE_HEADING,),
        notes=(PROBE_DIFFERENCE, PROBE_PUBLISHED),
    )


def build_probe_tables(sums: ProbeSums, probe: Probe) -> list[Table]:
    """Build a probe's tables: summaries (the headline first) and a matrix of values.

    Omits summaries that equal the value at a position, and matrices of over `MAX_ROWS` values.
    """
    cells = []
    for summary in dict.fromkeys([probe.main_summary, *probe.summaries.values()]):
        estimate = sums.estimate(summary)
        if estimate is None or estimate not in sums.estimates:
            cells.append((summary.title, format_estimate(estimate, probe.find_format(summary))))
    tables = [_build_table(("Summary", "Value"), cells, ("Value",))] if cells else []
    format_value = FORMATS[probe.unit]
    values = [
        (*probe.split(name), format_estimate(estimate, format_value))
        for name, estimate in zip(sums.positions, sums.estimates, strict=True)
        if estimate
    ]
    if 0 < len(values) <= MAX_ROWS:
        tables.append(_build_matrix(values))
    return tables


def _build_matrix(cells: Sequence[tuple[str, ...]]) -> Table:
    """Pivot cells (series, line, position, value) into a matrix."""
    series, lines, positions = (len(set(names)) for names in list(zip(*cells, strict=True))[:3])
    pivot = 2 if positions <= series else 0
    if lines > 1 or min(positions, series) > 3:
        pivot = 1
    rows = defaultdict[tuple[str, ...], dict[str, str]](dict)
    for *names, value in cells:
        column = names.pop(pivot)
        rows[tuple(names)][column] = value
    columns = dict.fromkeys(cell[pivot] for cell in cells)
    headings = ["Series", "Line", "Position"]
    del headings[pivot]
    headings += [column or ("model" if lines > 1 else "Value") for column in columns]
    matrix = [
        (*names, *(row.get(column, MISSING) for column in columns)) for names, row in rows.items()
    ]
    split_by = "{Series}" if pivot == 1 and series > 1 else ""
    return _build_table(headings, matrix, headings[2:], split_by=split_by)


def _build_table(
    headings: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    right_aligned: Sequence[str],
    *,
    split_by: str = "",
    notes: tuple[str, ...] = (),
) -> Table:
    columns = build_columns(headings, right_aligned, drawn=[DIFFERENCE_HEADING], roles=ROLES)
    table = Table(columns, tuple(rows), keys=0, split_by=split_by, notes=notes)
    return replace(table.drop_empty_columns(), keys=1)


def build_measurements(
    results: Sequence[ProbeResult],
    folder: Path,
    skipped: Iterable[SkippedItem] = (),
    reference: CommandReference = NO_REFERENCE,
) -> ProbeMeasurements:
    """Build the result of a probe run.

    Args:
        results: One result per probe.
        folder: Results folder. Figures also show other models with results on the same data.
        skipped: Unusable texts and questions.
        reference: Model and data as specified by the user, for commands.
    """
    probes = collect_probes()
    main_result = choose_main_result(results, probes)
    label = build_short_labels(results)[0]
    documents = max(result.sums.documents for result in results)
    title = f"Probes of {label} on {pluralize(documents, 'document')} of {main_result.data}"
    rows = build_probe_rows(results, probes)
    draw = partial(draw_result, stored=LazySequence(lambda: read_probe_results(folder)))
    main_probe = probes[main_result.probe]
    introduction = (f"{describe_result(main_result, main_probe)}.", describe_texts(main_result))
    commands = write_commands(reference, folder)
    differences = build_difference_table(results, probes)
    sections = [
        DisplaySection(title, introduction, only=Medium.TEXT),
        DisplaySection(sentences=introduction, only=Medium.PAGE),
        DisplaySection(
            sentences=(describe_no_verdict(has_commands=bool(commands)),),
            commands=tuple(commands),
        ),
    ]
    if main_result.sums.documents >= MIN_DOCUMENTS:
        sections.append(DisplaySection(draw=partial(draw, main_result), only=Medium.PAGE))
    if differences.rows:
        sections.append(DisplaySection(tables=(differences,), only=Medium.TEXT))
    is_long = len(results) > MAX_SECTIONS
    for result in results:
        section = build_section(result, probes[result.probe], is_long=is_long)
        # The figure of `main_result` is already at the top.
        if result is not main_result and result.sums.documents >= MIN_DOCUMENTS:
            section = replace(section, draw=partial(draw, result))
        sections.append(section)
    sections.sort(key=lambda section: ("", *HEADINGS).index(section.group))
    revisions = dict.fromkeys(subset.data_revision[:12] for subset in main_result.subsets.values())
    methods = dict.fromkeys(probes[result.probe].source for result in results)
    task = find_task(main_result.data)
    descriptions = [Term(task.metadata.name, task.metadata.description)] if task else []
    warning = describe_skipped(skipped)
    # Values without an interval are not used as a headline.
    page_title = title
    if main_result.sums.documents >= MIN_DOCUMENTS:
        page_title = Title(label, main_probe.describe(main_result.sums, max_summaries=1))
    return ProbeMeasurements(
        title=title,
        page_title=page_title,
        rows=rows,
        values=lambda: {"rows": rows, "results": [result.to_json() for result in results]},
        extra_sections=sections,
        notes=[PROBE_INTERVALS],
        details=[*PROBE_TERMS, *descriptions],
        footer=[PROBE_PAGE] if is_long else [],
        warnings=[warning] if warning else [],
        data=PROBE_DATA.format(
            main_result.model,
            main_result.revision[:12],
            main_result.data,
            ", ".join(revisions),
            "; ".join(methods),
        ),
        results=results,
    )


def build_section(result: ProbeResult, probe: Probe, *, is_long: bool) -> DisplaySection:
    """Build a probe's section. Its title is the difference, or the headline if there is none.

    If `is_long`, terminals show the section only with `--explain`.
    """
    sums = result.sums
    notes = list(probe.notes[1:])
    if sums.skipped:
        notes.append(PROBE_SKIPPED.format(skipped=sums.describe_skipped()))
    omitted_documents = result.sample_size - sums.documents * probe.set_size
    # Skipped documents are reported in a separate note.
    if omitted_documents > 0 and omitted_documents != sum(sums.skipped.values()):
        notes.append(PROBE_LEFT_OUT.format(omitted=omitted_documents, drawn=result.sample_size))
    if is_long:
        notes.append(PROBE_ALONE.format(probe=probe.name))
    tables = build_probe_tables(sums, probe)
    if tables:
        tables[-1] = replace(tables[-1], notes=tuple(notes))
    summary = probe.main_summary
    section = DisplaySection(
        describe_result(result, probe),
        probe.notes[:1],
        tuple(tables),
        folded=True,
        detailed=is_long,
        group=choose_group(probe),
        unit=summary.unit,
        scale=UNIT_NAMES.get(summary.unit, probe.scale_name),
    )
    difference = find_difference(result, probe)
    if difference is None or difference.interval is None:
        return section
    title = title_difference(probe.title, summary.title, format_published(probe))
    marks = (difference.value, *difference.interval, *list_published(probe))
    return replace(section, title=title, drawn=marks)


def draw_result(result: ProbeResult, stored: Iterable[ProbeResult]) -> list[Figure]:
    """Plot a result together with the stored results of other models on the same data."""
    # Importing Altair takes a second.
    from posir_probe.figures import build_figure

    get_measure = attrgetter("data", "probe")
    get_model = attrgetter("model", "revision", "experiment")
    other_models = [
        other
        for other in stored
        if get_measure(other) == get_measure(result) and get_model(other) != get_model(result)
    ]
    return [build_figure([result, *other_models], collect_probes()[result.probe])]
