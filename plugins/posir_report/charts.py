"""The three charts of a report; page and pictures show the same ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

import altair as alt

from posir_report.cells import FEW, ProfileCell, build_cells, build_curve_cells, find_beyond
from posir_report.summary import (
    TaskSummary,
    build_rows,
    model_labels,
    partial_suffix,
    task_and_scheme,
)
from posir_report.tables import count_states, name_shortly, title_effect, title_lengths, title_sensitivity
from posir_significance.analysis import MIN_QUERIES
from posir_significance.sentences import describe_decision
from posir_tasks.display import charts
from posir_tasks.display.figures import Figure
from posir_tasks.display.numbers import format_percent, format_psi, format_score
from posir_tasks.display.progress import progress
from posir_tasks.display.wording import shorten_middle
from posir_tasks.profile import CellCounts
from posir_tasks.scores import ALL, Unit

FEW_NOTE = f" Hollow points: fewer than {FEW} queries."
#: Fields that each axis of PSI against nDCG@10 must cover, and its margin in tenths.
NDCG_FIELDS = ("ndcg_at_10", "ndcg_at_10_low", "ndcg_at_10_high")
PSI_FIELDS = ("psi_shown", "psi_high", "psi_chance_high")
MARGIN = 0.2
#: Height of a name as a share of a panel's, and the share of its width that a name may take.
LINE, HALF = 0.08, 0.5
#: What PSI against nDCG@10 shows, here and on the leaderboard.
CAPTION = "Position sensitivity (PSI) against retrieval quality (nDCG@10)"
#: Scores from here on are dark in the heat map, where text must be white.
DARK = 0.72
#: Most positions whose names are printed horizontally below a heat map.
HORIZONTAL = 6


def draw_curves(summary: TaskSummary, cells: Sequence[ProfileCell]) -> alt.VConcatChart:
    """Return nDCG@10 over position, a panel for each length bucket, with intervals, null bands and the model's window."""
    shown = {cell.length for cell in cells}
    panels = {length: title for length, title in length_titles(summary.profile.cell_counts()).items() if length in shown}
    positions, window = charts.build_positions(summary.profile.axes), summary.values.read.tokens
    values = charts.mark_beyond(
        [{**cell.columns(), "panel": panels[cell.length], "beyond_share": find_beyond(summary.values, cell)} for cell in cells],
        window,
    )
    base = charts.with_percentages(charts.build_chart(values))
    fill = _hollow_if_few(alt.value(charts.COLORS[0]))
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
    width, height = (370, 190) if len(panels) > 1 else (720, 300)
    chart = charts.facet_panels(layers, panels.values(), width, height)
    overall = build_rows(summary)[0]
    explanation = "Line: mean nDCG@10 of the queries with evidence at that position."
    if overall.start_to_end:
        change = format_score(Unit.POINTS, overall.start_to_end)
        explanation = f"From start to end, first minus last third, at all lengths: {change} points. {explanation}"
    explanation += (FEW_NOTE if any(cell.few for cell in cells) else "") + merging_note(summary, cells)
    if any(cell.ndcg_at_10 and cell.ndcg_at_10.interval for cell in cells):
        explanation += " Vertical bars: 95 % intervals."
    if any(cell.null_band for cell in cells):
        explanation += (
            " Gray: the null band, which contains 95 % of the means if position has no effect; one of 20 positions lies "
            "outside by chance."
        )
    bias = [describe_decision(overall.decision)] if overall.decision else []
    explanation = " ".join([*bias, explanation + charts.explain_window(values, window)])
    seen = " ".join(charts.describe_scores(f"{panels[length]}: nDCG@10", _list_scores(cells, length)) for length in panels)
    return charts.add_frame(chart, title_effect(overall), name_run(summary), explanation, cite([summary]), seen)


def _list_scores(cells: Sequence[ProfileCell], length: str) -> list[float | None]:
    return [cell.ndcg_at_10.value if cell.ndcg_at_10 else None for cell in cells if cell.length == length]


def draw_heat_map(summary: TaskSummary, cells: Sequence[ProfileCell]) -> alt.VConcatChart:
    """Return nDCG@10 and number of queries of every cell, length buckets down and positions across."""
    rows, axes = length_titles(summary.profile.cell_counts()), summary.profile.axes
    narrow = len(axes.positions) > HORIZONTAL
    base = charts.with_percentages(charts.build_chart([{**cell.columns(), "row": rows[cell.length]} for cell in cells])).encode(
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
    # Squares, smaller for few queries, with score and number of queries; a dash for no queries.
    ink = alt.when(f"datum.ndcg_at_10 >= {DARK}").then(alt.value("white")).otherwise(alt.value(charts.INK))
    color, scored = charts.heat_color(alt.Scale(domain=[0, 1], scheme="blues")), base.transform_filter("datum.queries > 0")
    squares = [
        scored.transform_filter(condition)
        .mark_rect(width={"band": band}, height={"band": band})
        .encode(color=color, tooltip=[charts.LENGTH, *charts.cell_tooltips()])
        for condition, band in (("!datum.few", 0.97), ("datum.few", 0.74))
    ]
    layers = [
        *squares,
        scored.mark_text(fontSize=12, fontWeight="bold", dy=-6)
        .encode(text="percent:N", color=ink)
        .transform_calculate(percent="round(datum.ndcg_at_10 * 100)"),
        scored.mark_text(fontSize=11, dy=9).encode(text=alt.Text("queries:Q", format=","), color=ink),
        base.transform_filter("datum.queries == 0").mark_text(text="–", color=charts.FAINT),
    ]
    chart = alt.layer(*layers, width=alt.Step(35 if narrow else 100), height=alt.Step(48))
    explanation = (
        "Darker is higher. Each cell has nDCG@10 x 100 and below it the number of queries. Small squares: fewer than "
        f"{FEW} queries, so the score is uncertain. Dash: no queries."
    )
    seen = f"A table of {len(rows)} lengths by {len(axes.positions)} positions of the evidence."
    return charts.add_frame(chart, title_lengths(build_rows(summary)), name_run(summary), explanation, cite([summary]), seen)


def draw_psi_against_ndcg(summaries: Sequence[TaskSummary]) -> alt.VConcatChart:
    """Return PSI, which must be defined, against nDCG@10: a panel per task, a point per model.

    A point is the estimate of the true PSI with its interval; where there is none, the observed PSI with PSI by chance.
    """
    names = model_labels(summaries)
    labels, panels = list(dict.fromkeys(names)), task_titles(summaries)
    rows = [build_rows(summary)[0] for summary in summaries]
    values = [
        {
            **row.columns(),
            "bias": count_states([row])[2:],
            "psi_shown": row.best_psi,
            "label": name,
            "short": name_shortly(name),
            "panel": panels[row.task],
        }
        # Chance adds to the observed PSI only, so an estimate has nothing to do with its null distribution.
        | ({"psi_chance": None, "psi_chance_low": None, "psi_chance_high": None} if row.psi else {})
        for name, row in zip(names, rows, strict=True)
    ]
    x_scale, y_scale = cover_tenths(values, NDCG_FIELDS), cover_tenths(values, PSI_FIELDS, start=0)
    center = sum(x_scale.to_dict()["domain"]) / 2
    named = can_name_points(values, x_scale, y_scale)
    points = [{**value, "in_right_half": value["ndcg_at_10"] > center} for value in values]
    base = charts.with_percentages(charts.build_chart(points)).encode(
        x=alt.X("ndcg_at_10:Q", title=charts.SCORE, scale=x_scale, axis=charts.PERCENT),
        y=alt.Y("psi_shown:Q", title="PSI", scale=y_scale),
    )
    layers = _draw_points(base, labels, x_scale, y_scale, named=named)
    if any(value.get("psi_chance_high") is not None for value in values):
        layers.insert(0, charts.psi_chance_range(base.transform_filter("isValid(datum.psi_chance_high)"), charts.NULL))
    chart = charts.facet_panels(layers, panels.values(), 370 if len(panels) > 1 else 760, 300)
    seen = " ".join(
        f"{row.task}, {name}: nDCG@10 {format_percent(row.ndcg_at_10.value if row.ndcg_at_10 else None)}, PSI "
        f"{format_psi(row.best_psi)}."
        for name, row in zip(names, rows, strict=True)
    )
    return charts.add_frame(chart, title_sensitivity(names, rows), CAPTION, explain_points(values), cite(summaries), seen)


def _draw_points(
    base: alt.Chart, labels: Sequence[str], x_scale: alt.Scale, y_scale: alt.Scale, *, named: bool
) -> list[alt.Chart]:
    """Return intervals and points of models, with their names beside them or in a legend."""
    legend = None if named else legend_of_models(labels)
    color = alt.Color("label:N", scale=charts.cycle_scale(labels, charts.COLORS), legend=legend)
    tooltips = [
        charts.MODEL,
        alt.Tooltip("task:N", title="Task"),
        *charts.model_tooltips(),
        alt.Tooltip("bias:N", title="Bias"),
    ]
    points = base.mark_point(size=70, opacity=1, filled=True, stroke="white", strokeWidth=0.6).encode(
        color=color,
        shape=alt.Shape("label:N", scale=charts.cycle_scale(labels, charts.SHAPES), legend=legend),
        tooltip=tooltips,
    )
    sides: list[tuple[str, Literal["left", "right"], int]] = [
        ("datum.in_right_half", "right", -8),
        ("!datum.in_right_half", "left", 8),
    ]
    texts = [
        base.transform_filter(side).mark_text(align=align, dx=dx, dy=-9, fontSize=11, color=charts.INK).encode(text="short:N")
        for side, align, dx in sides
    ]
    intervals = [
        charts.interval_rule(base, "ndcg_at_10", "x", color, x_scale),
        charts.interval_rule(base, "psi", "y", color, y_scale),
    ]
    return [*intervals, points, *(texts if named else [])]


def explain_points(values: Sequence[Mapping[str, Any]]) -> str:
    """Return what the points of PSI against nDCG@10 are, as the leaderboard does."""
    estimated = any(value.get("psi") is not None for value in values)
    observed = any(value.get("psi") is None for value in values)
    intervals = any(value.get(f"{name}_low") is not None for value in values for name in ("ndcg_at_10", "psi"))
    null = any(value.get("psi_chance_high") is not None for value in values)
    return " ".join(
        [
            "Further right: better retrieval. Further down: less dependent on the position of the evidence.",
            *(["Points: estimates of the true PSI."] if estimated else []),
            *([f"{'Other points' if estimated else 'Points'}: observed PSI, which chance increases."] if observed else []),
            *(["Lines: 95 % intervals."] if intervals else []),
            *(["Gray: what the observed PSI shows if position has no effect, its central 90 %."] if null else []),
        ]
    )


def can_name_points(values: Sequence[Mapping[str, Any]], x_scale: alt.Scale, y_scale: alt.Scale) -> bool:
    """Return whether few enough models have points so far from each other that their names do not overlap."""
    if len({value["label"] for value in values}) > charts.MAX_LABELS:
        return False
    (_, high), (left, right) = y_scale.to_dict()["domain"], x_scale.to_dict()["domain"]
    return all(
        abs(value["psi_shown"] - other["psi_shown"]) > LINE * high
        or abs(value["ndcg_at_10"] - other["ndcg_at_10"]) > HALF * (right - left)
        for place, value in enumerate(values)
        for other in values[:place]
        if value["panel"] == other["panel"]
    )


def _hollow_if_few(fill: Any) -> Any:
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


def legend_of_models(labels: Sequence[str]) -> alt.Legend:
    """Return a legend below the chart, where long names have room."""
    return alt.Legend(
        orient="bottom", columns=1 if max(map(len, labels)) > 46 else 2, title=None, symbolOpacity=1, symbolStrokeWidth=0
    )


def build_figures(summaries: Sequence[TaskSummary]) -> list[Figure]:
    """Return the figures of a report: those of each model on each task, then all tasks together."""
    with_queries = sorted((summary for summary in summaries if summary.profile.queries), key=task_and_scheme)
    groups = [list(group) for _, group in groupby(with_queries, key=task_and_scheme)]
    figures = [figure for group in progress(groups, "Drawing") for figure in _build_task_figures(group)]
    scored = [[summary for summary in group if summary.scores[ALL].get("psi_as_published") is not None] for group in groups]
    # The point of one model would be alone.
    compared = [summary for group in scored if len(group) > 1 for summary in group]
    return [*figures, Figure("psi-against-ndcg", None, None, draw_psi_against_ndcg(compared))] if compared else figures


def _build_task_figures(summaries: list[TaskSummary]) -> Iterator[Figure]:
    for summary, name in zip(summaries, model_labels(summaries), strict=True):
        yield Figure("curves", summary.task, name, draw_curves(summary, build_curve_cells(summary)))
        yield Figure("heat-map", summary.task, name, draw_heat_map(summary, build_cells(summary)))
