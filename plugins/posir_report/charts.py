"""The four charts of a report; page and pictures show the same ones."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from posir_report.cells import FEW, MIN_QUERIES, ProfileCell, pool_curve_cells
from posir_report.labels import model_labels, partial_suffix, shorten_middle
from posir_report.summary import TaskSummary, build_rows
from posir_report.tables import truncation_notes
from posir_significance.verdict import describe_verdict
from posir_tasks.cells import CellCounts
from posir_tasks.display.charts.layers import (
    LENGTH,
    MEAN_TITLES,
    MODEL,
    PERCENT,
    POSITION,
    QUERIES,
    SCORE,
    build_positions,
    cell_tooltips,
    curve,
    facet_panels,
    heat_color,
    interval_rule,
    model_tooltips,
    null_band,
    number_tooltips,
    percent_tooltips,
    psi_null_range,
    with_percentages,
)
from posir_tasks.display.charts.theme import COLORS, DASHES, FAINT, INK, NULL, SHAPES, add_frame, build_chart, cycle_scale
from posir_tasks.display.numbers import format_score
from posir_tasks.scores import Unit

#: Most models whose intervals are drawn over each other.
MAX_INTERVALS = 4
FEW_NOTE = f"Hollow points: fewer than {FEW} queries."
#: Fields that each axis of PSI against nDCG@10 must cover, and its margin in tenths.
NDCG_FIELDS = ("ndcg_at_10", "ndcg_at_10_low", "ndcg_at_10_high")
PSI_FIELDS = ("psi_shown", "psi_high", "psi_null_high")
MARGIN = 0.2
#: Scores from here on are dark in the heat map, where text must be white.
DARK = 0.72
#: Most positions whose names are printed horizontally below a heat map.
HORIZONTAL = 6


def draw_curves(summary: TaskSummary, cells: Sequence[ProfileCell]) -> alt.VConcatChart:
    """Return nDCG@10 over position, a panel for each length bucket, with intervals and null bands."""
    shown = {cell.length for cell in cells}
    panels = {length: title for length, title in length_titles(summary.profile.cell_counts()).items() if length in shown}
    positions = build_positions(summary.profile.axes)
    base = with_percentages(build_chart([{**cell.columns(), "panel": panels[cell.length]} for cell in cells]))
    layers = [
        null_band(base, NULL, positions),
        *curve(
            base,
            positions,
            alt.ColorValue(COLORS[0]),
            "rule",
            point={"fill": _hollow_if_few(alt.value(COLORS[0])), "tooltip": [LENGTH, *cell_tooltips()]},
        ),
    ]
    width, height = (370, 190) if len(panels) > 1 else (720, 300)
    overall = build_rows(summary)[0]
    explanation = f"Line: mean nDCG@10 of the queries with evidence at that position. {FEW_NOTE}"
    if overall.start_to_end:
        change = format_score(Unit.POINTS, overall.start_to_end)
        explanation = f"From start to end, first minus last third, at all lengths: {change} points. {explanation}"
    explanation += merging_note(summary, cells)
    if any(cell.ndcg_at_10 and cell.ndcg_at_10.interval for cell in cells):
        explanation += (
            " Vertical bars: 95 % intervals. Gray: the null band, which contains 95 % of the means if position has no effect; "
            "one of 20 positions lies outside by chance."
        )
    bias = f"Position bias: {describe_verdict(overall, overall.verdict)}."
    explanation = " ".join([bias, explanation, *truncation_notes([shorten_middle(summary.model)], [summary])])
    chart = facet_panels(layers, panels.values(), width, height)
    return add_frame(chart, "nDCG@10 by position of the evidence", name_run(summary), explanation, cite([summary]))


def draw_heat_map(summary: TaskSummary, cells: Sequence[ProfileCell]) -> alt.VConcatChart:
    """Return nDCG@10 and number of queries of every cell, length buckets down and positions across."""
    rows, axes = length_titles(summary.profile.cell_counts()), summary.profile.axes
    narrow = len(axes.positions) > HORIZONTAL
    base = with_percentages(build_chart([{**cell.columns(), "row": rows[cell.length]} for cell in cells])).encode(
        x=alt.X(
            "position:O",
            sort=list(axes.positions),
            title=axes.position_title,
            axis=alt.Axis(labelAngle=-45 if narrow else 0, grid=False),
        ),
        y=alt.Y(
            "row:O",
            sort=list(rows.values()),
            title=None,
            axis=alt.Axis(labelExpr="split(datum.label, ' · ')", labelLimit=240, labelOffset=-6, grid=False),
        ),
    )
    chart = alt.layer(*_heat_layers(base)).properties(width=alt.Step(35 if narrow else 100), height=alt.Step(48))
    explanation = (
        "Darker is higher. Each cell has nDCG@10 x 100 and below it the number of queries. Small squares: fewer than "
        f"{FEW} queries, so the score is uncertain. Dash: no queries."
    )
    title = f"nDCG@10 and queries by {'length of the document and ' if len(rows) > 1 else ''}position of the evidence"
    return add_frame(chart, title, name_run(summary), explanation, cite([summary]))


def _heat_layers(base: alt.Chart) -> list[alt.Chart]:
    """Return squares, smaller for few queries, with score and number of queries; a dash for no queries."""
    ink = alt.when(f"datum.ndcg_at_10 >= {DARK}").then(alt.value("white")).otherwise(alt.value(INK))
    color, scored = heat_color(alt.Scale(domain=[0, 1], scheme="blues")), base.transform_filter("datum.queries > 0")
    squares = [
        scored.transform_filter(condition)
        .mark_rect(width={"band": band}, height={"band": band})
        .encode(color=color, tooltip=[LENGTH, *cell_tooltips()])
        for condition, band in (("!datum.few", 0.97), ("datum.few", 0.74))
    ]
    return [
        *squares,
        scored.mark_text(fontSize=12, fontWeight="bold", dy=-6)
        .encode(text="percent:N", color=ink)
        .transform_calculate(percent="round(datum.ndcg_at_10 * 100)"),
        scored.mark_text(fontSize=11, dy=9).encode(text=alt.Text("queries:Q", format=","), color=ink),
        base.transform_filter("datum.queries == 0").mark_text(text="–", color=FAINT),
    ]


def draw_models(summaries: Sequence[TaskSummary]) -> alt.VConcatChart:
    """Return nDCG@10 over position, all lengths together, of the models on one task in one scheme."""
    axes, task = summaries[0].profile.axes, summaries[0].task
    labels = [
        f"{name} · {summary.profile.queries:,} queries"
        for name, summary in zip(model_labels(summaries), summaries, strict=True)
    ]
    curves = pool_curve_cells(summaries)
    values = [
        {**cell.columns(), "label": label, "model": summary.model}
        for label, summary, cells in zip(labels, summaries, curves, strict=True)
        for cell in cells
    ]
    known = any(value.get("ndcg_at_10_low") is not None for value in values)
    legible = known and len(summaries) <= MAX_INTERVALS
    fill = _hollow_if_few({"field": "label", "type": "nominal", "scale": cycle_scale(labels, COLORS), "legend": None})
    scores = percent_tooltips(MEAN_TITLES)
    layers = curve(
        with_percentages(build_chart(values)),
        build_positions(axes),
        color_by_model(labels),
        "area" if legible else None,
        line={"strokeDash": alt.StrokeDash("label:N", scale=cycle_scale(labels, DASHES), legend=None)},
        point={"shape": shape_by_model(labels), "fill": fill, "tooltip": [MODEL, POSITION, QUERIES, *scores]},
    )
    explanation = f"All lengths together. Lines: mean of the queries with evidence at that position. {FEW_NOTE}"
    explanation += merging_note(summaries[0], curves[0])
    if known:
        explanation += " Shaded: 95 % intervals." if legible else " Intervals are in the chart of each model."
    chart = alt.layer(*layers).properties(width=740, height=340)
    return add_frame(chart, "Models compared: nDCG@10 by position of the evidence", task, explanation, cite(summaries))


def draw_psi_against_ndcg(summaries: Sequence[TaskSummary]) -> alt.VConcatChart:
    """Return PSI, which must be defined, against nDCG@10: a panel per task, a point per model, intervals and null."""
    names = model_labels(summaries)
    labels, panels = list(dict.fromkeys(names)), task_titles(summaries)
    values = [
        {**row.columns(), "psi_shown": row.best_psi, "label": name, "panel": panels[summary.task]}
        for name, summary in zip(names, summaries, strict=True)
        for row in build_rows(summary)[:1]
    ]
    base = with_percentages(build_chart(values)).encode(
        x=alt.X("ndcg_at_10:Q", title=SCORE, scale=cover_tenths(values, NDCG_FIELDS), axis=PERCENT),
        y=alt.Y("psi_shown:Q", title="PSI", scale=cover_tenths(values, PSI_FIELDS, start=0)),
    )
    color, task = color_by_model(labels), alt.Tooltip("task:N", title="Task")
    layers = [
        psi_null_range(base, NULL),
        interval_rule(base, "ndcg_at_10", "x", color),
        interval_rule(base, "psi", "y", color),
        base.mark_point(size=70, opacity=1, filled=True, stroke="white", strokeWidth=0.6).encode(
            color=color,
            shape=shape_by_model(labels),
            tooltip=[
                MODEL,
                task,
                *model_tooltips(),
                *number_tooltips({"p_corrected": "p"}),
                alt.Tooltip("verdict:N", title="Position bias"),
            ],
        ),
    ]
    explanation = "Further right: better retrieval. Further down: less dependent on the position of the evidence."
    if any(value.get("psi_null") is not None for value in values):
        explanation += (
            " Points: estimates of the true PSI; thin lines: 95 % intervals. Gray: what the observed PSI shows if position has "
            "no effect, its central 90 %."
        )
    chart = facet_panels(layers, panels.values(), 370 if len(panels) > 1 else 760, 300)
    title = "Position sensitivity (PSI) against retrieval quality (nDCG@10)"
    return add_frame(chart, title, "", explanation, cite(summaries))


def _hollow_if_few(fill: Any) -> Any:
    """Return the fill of points: white for few queries, otherwise as given."""
    return alt.when("datum.few").then(alt.value("white")).otherwise(fill)


def cover_tenths(values: Iterable[Mapping[str, Any]], fields: Sequence[str], *, start: float | None = None) -> alt.Scale:
    """Return a scale between tenths within [0, 1] that covers fields of all values with a margin; it may have a fixed start."""
    shown: list[float] = [number for row in values for field in fields if (number := row.get(field)) is not None]
    low = math.floor(max(0.0, min(shown) * 10 - MARGIN)) / 10 if start is None else start
    return alt.Scale(domain=[low, min(10, math.ceil(max(shown) * 10 + MARGIN)) / 10])


def merging_note(summary: TaskSummary, cells: Sequence[ProfileCell]) -> str:
    """Return a sentence that follows others if bins are merged in some of the cells."""
    merged = {cell.position for cell in cells} - set(summary.profile.positions)
    return f" Fifths of the document where one of twenty bins has fewer than {MIN_QUERIES} queries." if merged else ""


def name_run(summary: TaskSummary) -> str:
    """Return model and task for a title."""
    return f"{shorten_middle(summary.model)} on {summary.task}{partial_suffix(len(summary.subsets), len(summary.missing))}"


def cite(summaries: Sequence[TaskSummary]) -> str:
    """Return the source of a chart: tasks and models, each with its revision."""
    tasks = dict.fromkeys(f"{summary.task}, data revision {summary.data_revision}" for summary in summaries)
    models = dict.fromkeys(f"{shorten_middle(summary.model)}, revision {summary.revision[:12]}" for summary in summaries)
    queries = f"{summaries[0].profile.queries:,} queries; " if len(summaries) == 1 else ""
    return f"Source: {queries}{'; '.join(tasks)}; {'; '.join(models)}."


def length_titles(counts: CellCounts) -> dict[str, str]:
    """Return the title of each length bucket with the number of distinct queries, by the title alone."""
    titles = zip(counts.axes.length_titles, counts.totals, strict=True)
    return {title: f"{title} · {queries:,} queries" for title, queries in titles}


def task_titles(summaries: Sequence[TaskSummary]) -> dict[str, str]:
    """Return the title of each task, with the number of queries, or the least and the most of its models, by its name."""
    titles = {}
    for task in sorted({summary.task for summary in summaries}):
        queries = sorted({summary.profile.queries for summary in summaries if summary.task == task})
        titles[task] = f"{task} · {' to '.join(f'{number:,}' for number in dict.fromkeys((queries[0], queries[-1])))} queries"
    return titles


def color_by_model(labels: Sequence[str]) -> alt.Color:
    """Return a color for each model, with the legend below the chart, where long names have room."""
    legend = alt.Legend(
        orient="bottom", columns=1 if max(map(len, labels)) > 46 else 2, title=None, symbolOpacity=1, symbolStrokeWidth=0
    )
    return alt.Color("label:N", scale=cycle_scale(labels, COLORS), legend=legend)


def shape_by_model(labels: Sequence[str]) -> alt.Shape:
    """Return a shape for each model."""
    return alt.Shape("label:N", scale=cycle_scale(labels, SHAPES), title=None)
