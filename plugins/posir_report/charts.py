"""The charts of a report; page and pictures show the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import altair as alt

from posir_report.cells import FEW, ProfileCell, build_curve_cells, find_beyond
from posir_report.summary import TaskSummary, build_rows, partial_suffix
from posir_significance import messages
from posir_tasks.base.wording import shorten_middle
from posir_tasks.display import charts
from posir_tasks.display.figures import Figure
from posir_tasks.values.profile import PositionProfile

#: Colors of the lowest and the highest score in the heat map, on which text is legible.
PALE, BLUE = "#f7fbff", "#6baed6"
#: Share of its place that a cell takes, by whether it has few queries.
BANDS = {False: 0.97, True: 0.74}


def draw_curves(summary: TaskSummary, cells: Sequence[ProfileCell]) -> alt.VConcatChart:
    """Return nDCG@10 over position, a panel for each length bucket, with intervals, null bands and
    the model's window.
    """
    shown = {cell.length for cell in cells}
    panels = {
        length: title for length, title in length_titles(summary.profile).items() if length in shown
    }
    positions, window = charts.build_positions(summary.profile.axes), summary.values.read.tokens
    values = charts.mark_beyond(
        [
            {
                **cell.columns(),
                "panel": panels[cell.length],
                "beyond_share": find_beyond(summary.values, cell),
            }
            for cell in cells
        ],
        window,
    )
    base = charts.build_chart(values)
    fill = alt.when("datum.few").then(alt.value("white")).otherwise(alt.value(charts.COLORS[0]))
    layers = [
        *charts.mark_window(base, positions),
        charts.null_band(base, charts.NULL, positions),
        *charts.curve(
            base,
            positions,
            alt.ColorValue(charts.COLORS[0]),
            "rule",
            point={"fill": fill, "tooltip": [charts.LENGTH, *charts.cell_tooltips()]},
        ),
    ]
    chart = charts.facet_panels(
        layers, panels.values(), *((370, 190) if len(panels) > 1 else (720, 300))
    )
    interval = (
        " with its 95% interval"
        if any(cell.ndcg_at_10 and cell.ndcg_at_10.interval for cell in cells)
        else ""
    )
    explanation = f"Points: mean nDCG@10{interval}."
    if {cell.position for cell in cells} - set(summary.profile.positions):
        counts = {cell.queries for cell in cells}
        explanation += (
            " Five parts of a "
            f"document{f', {counts.pop():,} questions each' if len(counts) == 1 else ''}."
        )
    explanation += (
        f" Hollow points: fewer than {FEW} queries." if any(cell.few for cell in cells) else ""
    )
    explanation += (
        " Gray: what chance alone gives, 95% of the means."
        if any(cell.null_band for cell in cells)
        else ""
    )
    explanation += charts.explain_window(values, window)
    scores = [(cell.length, cell.ndcg_at_10.value if cell.ndcg_at_10 else None) for cell in cells]
    listed = {length: [score for of, score in scores if of == length] for length in panels}
    seen = " ".join(
        charts.describe_scores(f"{panels[length]}: nDCG@10", of_length)
        for length, of_length in listed.items()
    )
    return charts.add_frame(
        chart,
        messages.title_curve(build_rows(summary)[0].findings),
        name_run(summary),
        explanation,
        cite([summary]),
        seen,
    )


def draw_heat_map(summary: TaskSummary, cells: Sequence[ProfileCell]) -> alt.VConcatChart:
    """Return nDCG@10 and number of queries of every cell, length buckets down and positions
    across.
    """
    rows, axes = length_titles(summary.profile), summary.profile.axes
    positions = charts.build_positions(axes)
    values, counts = [], sorted({cell.queries for cell in cells if cell.queries})
    for cell in cells:
        margin = (cell.end - cell.start) * (1 - BANDS[cell.few]) / 2
        ends = {"start": cell.start + margin, "end": cell.end - margin}
        values.append({**cell.columns(), **ends, "row": rows[cell.length]})
    base = charts.build_chart(values).encode(
        x=positions.axis,
        y=alt.Y(
            "row:O",
            sort=list(rows.values()),
            title=None,
            axis=alt.Axis(
                labelExpr="split(datum.label, ' · ')", labelLimit=240, labelOffset=-6, grid=False
            ),
        ),
    )
    # Cells, smaller for few queries, with score and number of queries; a dash for no queries.
    scale, ink = alt.Scale(domain=[0, 1], range=[PALE, BLUE]), alt.value("black")
    color, scored = charts.heat_color(scale), base.transform_filter("datum.queries > 0")
    squares = [
        scored.transform_filter(f"datum.few == {str(few).lower()}")
        .mark_rect(
            height={"band": band}, width=alt.Undefined if axes.equal_bins else {"band": band}
        )
        .encode(**positions.extent, color=color, tooltip=[charts.LENGTH, *charts.cell_tooltips()])
        for few, band in BANDS.items()
    ]
    layers = [
        *squares,
        scored.mark_text(
            fontSize=12, fontWeight="bold", dy=-6 if counts[1:] else 1, style=charts.NUMBER
        )
        .encode(text="percent:N", color=ink)
        .transform_calculate(percent="round(datum.ndcg_at_10 * 100)"),
        *(
            scored.mark_text(fontSize=12, dy=9, style=charts.NUMBER).encode(
                text="queries:Q", color=ink
            )
            for _ in counts[1:2]
        ),
        base.transform_filter("datum.queries == 0").mark_text(text="–", color=charts.FAINT),
    ]
    chart = alt.layer(*layers, width=700 if axes.equal_bins else alt.Step(100), height=alt.Step(48))
    explanation = f"nDCG@10 x 100 of {counts[0]:,} queries in each cell." if counts else ""
    if counts[1:]:
        explanation = "In each cell nDCG@10 x 100, and below it the number of queries."
    explanation += (
        f" Small cells: fewer than {FEW} queries." if any(cell.few for cell in cells) else ""
    )
    explanation += " Dash: no queries." if min(cell.queries for cell in cells) == 0 else ""
    seen = f"A table of {len({cell.length for cell in cells})} lengths by position of the evidence."
    return charts.add_frame(
        chart,
        _title_lengths(summary),
        name_run(summary),
        explanation,
        cite([summary]),
        seen,
    )


def _title_lengths(summary: TaskSummary) -> str:
    """Name nDCG@10 of the shortest and the longest documents, or the finding without lengths."""
    overall, *lengths = build_rows(summary)
    scores = [row.ndcg_at_10 for row in lengths if row.ndcg_at_10]
    if len(scores) > 1:
        return messages.title_lengths(scores[0], scores[-1])
    return messages.title_curve(overall.findings)


def name_run(summary: TaskSummary) -> str:
    """Return model and task for a title."""
    return (
        f"{shorten_middle(summary.model)} on "
        f"{summary.task}{partial_suffix(len(summary.subsets), len(summary.missing))}"
    )


def cite(summaries: Sequence[TaskSummary]) -> str:
    """Return the source of a chart: tasks and models, each with its revision."""
    tasks = dict.fromkeys(
        f"{summary.task}, data revision {summary.data_revision}" for summary in summaries
    )
    models = dict.fromkeys(
        f"{shorten_middle(summary.model)}, revision {summary.revision[:12]}"
        for summary in summaries
    )
    queries = f"{summaries[0].profile.queries:,} queries; " if len(summaries) == 1 else ""
    return f"Source: {queries}{'; '.join(tasks)}; {'; '.join(models)}."


def length_titles(profile: PositionProfile) -> dict[str, str]:
    """Return the title of each length bucket with the number of distinct queries, by the title
    alone.
    """
    titles = zip(profile.axes.length_titles, profile.queries_by_length, strict=True)
    return {title: f"{title} · {queries:,} queries" for title, queries in titles}


def legend_of_models(labels: Sequence[str]) -> alt.Legend:
    """Return a legend below the chart, where long names have room."""
    return alt.Legend(
        orient="bottom",
        columns=1 if max(map(len, labels)) > 46 else 2,
        title=None,
        symbolOpacity=1,
        symbolStrokeWidth=0,
    )


#: The kinds of figures of a model on a task.
DRAW = {"curves": draw_curves, "heat-map": draw_heat_map}


def draw_figure(kind: str, summary: TaskSummary, label: str) -> Figure:
    """Draw a figure of a kind of `DRAW` of a model on a task."""
    cells = build_curve_cells(summary)
    # Where all have few queries, none is marked.
    if all(cell.few for cell in cells):
        cells = [replace(cell, few=False) for cell in cells]
    return Figure(kind, summary.task, label, DRAW[kind](summary, cells))
