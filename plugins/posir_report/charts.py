"""The charts of a report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import altair as alt

from posir_report.summary import TaskSummary, format_partial_suffix
from posir_significance.cells import MIN_CELL_QUERIES, ProfileCell, compute_truncated_share
from posir_significance.messages.verdicts import title_curve
from posir_tasks.base.records import Fields
from posir_tasks.base.wording import shorten_middle
from posir_tasks.display import charts
from posir_tasks.values.profile import PositionProfile

#: Name of the rows of a chart.
ROWS = "rows"
#: Maximum number of cached charts without rows: compiling one takes as long as showing ten.
MAX_COMPILED = 64
#: Colors of the minimum and maximum score in the heat map; black text is legible on both.
PALE = "#f7fbff"
BLUE = "#6baed6"
#: Relative cell size in the heat map; the key is True for cells with few queries.
CELL_SIZES = {False: 0.97, True: 0.74}
CURVE_EXPLANATION = (
    f"Points: mean nDCG@10 with its 95% interval; hollow: fewer than {MIN_CELL_QUERIES} queries. "
    "Gray: 95% of the means if position has no effect."
)
MERGED_NOTE = " Bins with few queries are merged into fifths of a document."
HEAT_MAP_EXPLANATION = (
    "In each cell nDCG@10 x 100, and below it the number of queries. Small cells: fewer than "
    f"{MIN_CELL_QUERIES} queries; dash: none."
)


def draw_curves(summary: TaskSummary, cells: Sequence[ProfileCell]) -> charts.FramedChart:
    """Draw nDCG@10 over position with intervals, null bands and the model's window, in a panel per
    length bucket.
    """
    titles = build_length_titles(summary.profile)
    panels = defaultdict[str, list[float | None]](list)
    rows = []
    for cell in cells:
        panel = titles[cell.length]
        truncated_share = compute_truncated_share(summary.values, cell)
        rows.append({**cell.to_record(), "panel": panel, "beyond_share": truncated_share})
        panels[panel].append(cell.ndcg_at_10.value if cell.ndcg_at_10 else None)
    window = summary.values.read.tokens
    values = charts.label_window_end(rows, window)
    marks = _compile_curves(charts.build_positions(summary.profile.axes), tuple(panels))
    merged_note = (
        "" if {cell.position for cell in cells} <= {*summary.profile.positions} else MERGED_NOTE
    )
    explanation = f"{CURVE_EXPLANATION}{merged_note}{charts.explain_window(values, window)}"
    alt_texts = [
        charts.describe_scores(f"{panel}: nDCG@10", scores) for panel, scores in panels.items()
    ]
    return _add_frame(marks, values, summary, explanation, " ".join(alt_texts))


@lru_cache(maxsize=MAX_COMPILED)
def _compile_curves(positions: charts.PositionAxis, panels: tuple[str, ...]) -> charts.Marks:
    """Compile curves for `ROWS`. They are equal for all models of a task."""
    base = alt.Chart(alt.NamedData(ROWS))
    color = charts.COLORS[0]
    fill = alt.when("datum.few").then(alt.value("white")).otherwise(alt.value(color))
    point = {"fill": fill, "tooltip": [charts.LENGTH, *charts.build_cell_tooltips()]}
    layers = [
        *charts.build_window_line(base, positions),
        charts.build_null_band(base, positions),
        *charts.build_curve_layers(base, positions, alt.ColorValue(color), "rule", point=point),
    ]
    size = (370, 190) if len(panels) > 1 else (720, 300)
    return charts.compile_marks(charts.build_panels(layers, panels, *size))


def draw_heat_map(summary: TaskSummary, cells: Sequence[ProfileCell]) -> charts.FramedChart:
    """Draw nDCG@10 and the query count of every cell: lengths as rows, positions as columns."""
    titles = build_length_titles(summary.profile)
    values = []
    for cell in cells:
        margin = (cell.end - cell.start) * (1 - CELL_SIZES[cell.few]) / 2
        ends = {"start": cell.start + margin, "end": cell.end - margin}
        values.append({**cell.to_record(), **ends, "row": titles[cell.length]})
    positions = charts.build_positions(summary.profile.axes)
    marks = _compile_heat_map(positions, tuple(titles.values()))
    length_count = len({cell.length for cell in cells})
    alt_text = f"A table of {length_count} lengths by position of the evidence."
    return _add_frame(marks, values, summary, HEAT_MAP_EXPLANATION, alt_text)


@lru_cache(maxsize=MAX_COMPILED)
def _compile_heat_map(positions: charts.PositionAxis, lengths: tuple[str, ...]) -> charts.Marks:
    """Compile a heat map for `ROWS`. It is equal for all models of a task."""
    row_axis = alt.Axis(
        labelExpr="split(datum.label, ' · ')", labelLimit=240, labelOffset=-6, grid=False
    )
    base = alt.Chart(alt.NamedData(ROWS)).encode(
        x=positions.axis, y=alt.Y("row:O", sort=list(lengths), title=None, axis=row_axis)
    )
    color = charts.encode_heat(alt.Scale(domain=[0, 1], range=[PALE, BLUE]))
    filled = base.transform_filter("datum.queries > 0")
    tooltip = [charts.LENGTH, *charts.build_cell_tooltips()]
    squares = [
        filled.transform_filter(f"datum.few == {str(few).lower()}")
        .mark_rect(
            height={"band": band},
            width=alt.Undefined if positions.equal_bins else {"band": band},
        )
        .encode(**positions.extent, color=color, tooltip=tooltip)
        for few, band in CELL_SIZES.items()
    ]
    ink = alt.value("black")
    layers = [
        *squares,
        filled.mark_text(fontSize=12, fontWeight="bold", dy=-6, style=charts.NUMBER)
        .encode(text="percent:N", color=ink)
        .transform_calculate(percent="round(datum.ndcg_at_10 * 100)"),
        filled.mark_text(fontSize=12, dy=9, style=charts.NUMBER).encode(
            text="queries:Q", color=ink
        ),
        base.transform_filter("datum.queries == 0").mark_text(text="–", color=charts.FAINT),
    ]
    width = 700 if positions.equal_bins else alt.Step(100)
    return charts.compile_marks(alt.layer(*layers, width=width, height=alt.Step(48)))


#: Functions that draw a model's figures on a task.
DRAW = {"curves": draw_curves, "heat-map": draw_heat_map}


def _add_frame(
    marks: charts.Marks,
    rows: Sequence[Fields],
    summary: TaskSummary,
    explanation: str,
    alt_text: str,
) -> charts.FramedChart:
    model = shorten_middle(summary.model)
    partial = format_partial_suffix(len(summary.subsets), len(summary.missing))
    source = (
        f"Source: {summary.profile.queries:,} queries; {summary.task}, data revision "
        f"{summary.data_revision}; {model}, revision {summary.revision[:12]}."
    )
    findings = summary.findings if summary.profile.queries else None
    title = title_curve(findings)
    subject = f"{model} on {summary.task}{partial}"
    marks = replace(marks, datasets={ROWS: rows})
    return charts.add_frame(marks, title, subject, explanation, source, alt_text)


def build_length_titles(profile: PositionProfile) -> dict[str, str]:
    """Map the title of each length bucket to a title with its number of distinct queries."""
    titles = zip(profile.axes.length_titles, profile.queries_by_length, strict=True)
    return {title: f"{title} · {queries:,} queries" for title, queries in titles}
