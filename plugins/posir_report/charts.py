"""The four figures of a report: each function returns the one chart that page and picture show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import altair as alt

from posir_report.cells import FEW, Cell
from posir_report.labels import model_labels, partial_suffix, shorten_middle
from posir_report.summary import TaskSummary, build_bin_rows, build_rows
from posir_report.theme import COLOURS, DASHES, FAINT, INK, NOISE, SHAPES, chart_of, framed, of_each
from posir_tasks.axes import Axes
from posir_tasks.cells import CellCounts

#: Most models whose intervals are drawn over each other.
LEGIBLE = 4
SCORE = "nDCG@10 (x 100)"
#: Scores are printed x 100, as the papers print them.
PERCENT = alt.Axis(labelExpr="round(datum.value * 100)", tickCount=5, tickMinStep=0.01)
HOLLOW = f"Hollow: fewer than {FEW} queries."
#: What is drawn of a model in the figure of PSI against nDCG@10, and room around it in tenths.
NDCG_SHOWN = ("ndcg_at_10", "ndcg_at_10_low", "ndcg_at_10_high")
PSI_SHOWN = ("psi", "psi_high", "psi_null_p95")
ROOM = 0.2
#: Scores from here on are dark in the heat map, where text must be white.
DARK = 0.72


def curves(summary: TaskSummary, cells: Sequence[Cell]) -> alt.VConcatChart:
    """Return nDCG@10 over position, a panel for each length bucket, with intervals and noise bands.

    Args:
        summary: The model and task.
        cells: Its cells, from `cells_of`.
    """
    panels = length_titles(summary.profile.cell_counts())
    base = chart_of([{**asdict(cell), "panel": panels[cell.length]} for cell in cells])
    place = place_of(summary.profile.axes)
    noise = base.mark_rect(color=NOISE).encode(**extent_of(summary.profile.axes), y=score_of("null_low"), y2="null_high:Q")
    interval = base.mark_rule(color=COLOURS[0], opacity=0.5, strokeWidth=2.5).encode(x=place, y=score_of("low"), y2="high:Q")
    line = base.mark_line(color=COLOURS[0], strokeWidth=1.5).encode(x=place, y=score_of("ndcg_at_10"))
    points = base.mark_point(color=COLOURS[0], size=32, opacity=1).encode(
        x=place,
        y=score_of("ndcg_at_10"),
        fill=alt.when("datum.few").then(alt.value("white")).otherwise(alt.value(COLOURS[0])),
        tooltip=cell_tooltip(),
    )
    width, height = (370, 190) if len(panels) > 1 else (720, 300)
    chart = (
        alt.layer(noise, interval, line, points)
        .properties(width=width, height=height)
        .facet(facet=panel_of(panels.values()), columns=2)
        .resolve_axis(x="independent", y="independent")
    )
    reading = f"Line: mean nDCG@10 of the queries whose evidence lies there. {HOLLOW}"
    if any(cell.low is not None for cell in cells):
        reading += (
            " Upright bar: 95 % interval. Grey: where 95 of 100 means would lie if position had no effect; of 20 positions one "
            "lies outside by chance."
        )
    return framed(chart, "nDCG@10 by position of the evidence", run_of(summary), reading, source_of([summary]))


def heat_map(summary: TaskSummary, cells: Sequence[Cell]) -> alt.VConcatChart:
    """Return nDCG@10 of every cell, length buckets down and positions across, with its number of queries.

    Args:
        summary: The model and task.
        cells: Its cells, from `cells_of`.
    """
    rows, positions = length_titles(summary.profile.cell_counts()), summary.profile.positions
    base = chart_of([{**asdict(cell), "row": rows[cell.length]} for cell in cells]).encode(
        x=alt.X(
            "position:O",
            sort=list(positions),
            title=summary.profile.axes.position_title,
            axis=alt.Axis(labelAngle=-45 if len(positions) > 6 else 0, grid=False),
        ),
        y=alt.Y(
            "row:O",
            sort=list(rows.values()),
            title=None,
            axis=alt.Axis(labelExpr="split(datum.label, ' · ')", labelLimit=240, labelOffset=-6, grid=False),
        ),
    )
    colour = alt.Color(
        "ndcg_at_10:Q",
        title=SCORE,
        scale=alt.Scale(domain=[0, 1], scheme="blues"),
        legend=alt.Legend(labelExpr="round(datum.value * 100)", orient="bottom", gradientLength=220),
    )
    ink = alt.when(f"datum.ndcg_at_10 >= {DARK}").then(alt.value("white")).otherwise(alt.value(INK))
    scored = base.transform_filter("datum.queries > 0")
    chart = alt.layer(
        scored.transform_filter("!datum.few")
        .mark_rect(width={"band": 0.97}, height={"band": 0.97})
        .encode(color=colour, tooltip=cell_tooltip()),
        scored.transform_filter("datum.few")
        .mark_rect(width={"band": 0.74}, height={"band": 0.74})
        .encode(color=colour, tooltip=cell_tooltip()),
        scored.mark_text(fontSize=11, dy=-5)
        .encode(text="percent:N", color=ink)
        .transform_calculate(percent="round(datum.ndcg_at_10 * 100)"),
        scored.mark_text(fontSize=8, dy=8).encode(text=alt.Text("queries:Q", format=","), color=ink),
        base.transform_filter("datum.queries == 0").mark_text(text="–", color=FAINT),
    ).properties(width=alt.Step(35 if len(positions) > 6 else 100), height=alt.Step(48))
    reading = (
        "Darker: higher. In each cell nDCG@10 x 100 and below it, small, the number of queries. Small square: fewer than "
        f"{FEW} queries, the score is uncertain. Dash: no queries."
    )
    shown = f"nDCG@10 and queries by {'length of the document and ' if len(rows) > 1 else ''}position of the evidence"
    return framed(chart, shown, run_of(summary), reading, source_of([summary]))


def models_over_position(summaries: Sequence[TaskSummary]) -> alt.VConcatChart:
    """Return nDCG@10 over position, all lengths together, of the models of one task laid over each other.

    Args:
        summaries: Of one task and one scheme.
    """
    profile, task = summaries[0].profile, summaries[0].task
    labels = [f"{name} · {one.profile.queries:,} queries" for name, one in zip(model_labels(summaries), summaries, strict=True)]
    values = [
        {**asdict(row), "label": label, "middle": (index + 0.5) / len(profile.positions), "few": row.queries < FEW}
        for label, one in zip(labels, summaries, strict=True)
        for index, row in enumerate(build_bin_rows(one))
    ]
    base = chart_of(values).encode(x=place_of(profile.axes))
    hue = of_each(labels, COLOURS)
    known = any(value["ndcg_at_10_low"] is not None for value in values)
    legible = known and len(summaries) <= LEGIBLE
    interval = base.mark_area(opacity=0.16).encode(
        y=score_of("ndcg_at_10_low"), y2="ndcg_at_10_high:Q", color=colour_of(labels)
    )
    layers = [
        *((interval,) if legible else ()),
        base.mark_line(strokeWidth=1.8).encode(
            y=score_of("ndcg_at_10"),
            color=colour_of(labels),
            strokeDash=alt.StrokeDash("label:N", scale=of_each(labels, DASHES), legend=None),
        ),
        base.mark_point(size=44, opacity=1, strokeWidth=1.8).encode(
            y=score_of("ndcg_at_10"),
            color=colour_of(labels),
            shape=shape_of(labels),
            fill=alt.when("datum.few").then(alt.value("white")).otherwise("label:N", legend=None, scale=hue),
            tooltip=[
                alt.Tooltip("model:N", title="Model"),
                alt.Tooltip("position:N", title="Position"),
                alt.Tooltip("queries:Q", title="Queries", format=","),
                *score_tooltip("ndcg_at_10", "nDCG@10"),
            ],
        ),
    ]
    chart = alt.layer(*layers).properties(width=740, height=340)
    reading = f"All lengths together. Line: mean of the queries whose evidence lies there. {HOLLOW}"
    if known:
        reading += " Shaded: 95 % interval." if legible else " Intervals are in each model's own figure."
    return framed(chart, "Models compared: nDCG@10 by position of the evidence", task, reading, source_of(summaries))


def psi_against_ndcg(summaries: Sequence[TaskSummary]) -> alt.VConcatChart:
    """Return PSI against nDCG@10, a panel for each task and a point for each model, with intervals and noise floor.

    Args:
        summaries: Those whose PSI is defined.
    """
    names = model_labels(summaries)
    labels, panels = list(dict.fromkeys(names)), task_titles(summaries)
    values = [
        {**asdict(build_rows(one)[0]), "label": name, "panel": panels[one.task]}
        for name, one in zip(names, summaries, strict=True)
    ]
    base = chart_of(values).encode(
        x=alt.X("ndcg_at_10:Q", title=SCORE, scale=tenths(values, NDCG_SHOWN), axis=PERCENT),
        y=alt.Y("psi:Q", title="PSI", scale=tenths(values, PSI_SHOWN, start=0)),
        color=colour_of(labels),
    )
    width = 370 if len(panels) > 1 else 760
    points = base.mark_point(size=70, opacity=1, filled=True, stroke="white", strokeWidth=0.6).encode(
        shape=shape_of(labels),
        tooltip=[
            alt.Tooltip("model:N", title="Model"),
            alt.Tooltip("task:N", title="Task"),
            alt.Tooltip("queries:Q", title="Queries", format=","),
            *score_tooltip("ndcg_at_10", "nDCG@10"),
            *score_tooltip("psi", "PSI"),
            alt.Tooltip("psi_null_mean:Q", title="PSI of noise, on average", format=".3f"),
            alt.Tooltip("psi_null_p95:Q", title="PSI of noise, 95th percentile", format=".3f"),
            alt.Tooltip("p_value:Q", title="p", format=".3f"),
        ],
    )
    chart = (
        alt.layer(
            base.mark_bar(width=11, stroke="white", strokeWidth=1).encode(
                y="psi_null_mean:Q", y2="psi_null_p95:Q", color=alt.value(NOISE)
            ),
            base.mark_rule(strokeWidth=1.3).encode(x="ndcg_at_10_low:Q", x2="ndcg_at_10_high:Q"),
            base.mark_rule(strokeWidth=1.3).encode(y="psi_low:Q", y2="psi_high:Q"),
            points,
        )
        .properties(width=width, height=300)
        .facet(facet=panel_of(panels.values()), columns=2)
        .resolve_axis(x="independent", y="independent")
    )
    reading = "Right is better retrieval; down depends less on where the evidence lies."
    if any(value["psi_null_mean"] is not None for value in values):
        reading += (
            " Grey: the PSI that chance alone shows, from its average to its 95th percentile; a point no higher cannot be told "
            "from noise. Thin lines: 95 % intervals of the true values. An observed PSI is a range and mostly lies above the "
            "true one, so its interval may end below the point."
        )
    return framed(chart, "Position sensitivity (PSI) against retrieval quality (nDCG@10)", "", reading, source_of(summaries))


def tenths(values: Iterable[Mapping[str, Any]], fields: Sequence[str], *, start: float | None = None) -> alt.Scale:
    """Return an axis from a tenth to a tenth of [0, 1] that holds all that is shown with some room.

    Args:
        values: Rows of the figure.
        fields: What of them is shown.
        start: Where the axis starts; None: where the values do.
    """
    shown: list[float] = [one[field] for one in values for field in fields if one[field] is not None]
    low = math.floor(max(0.0, min(shown) * 10 - ROOM)) / 10 if start is None else start
    return alt.Scale(domain=[low, min(10, math.ceil(max(shown) * 10 + ROOM)) / 10])


def run_of(summary: TaskSummary) -> str:
    """Return model and task as a title has them."""
    return f"{shorten_middle(summary.model)} on {summary.task}{partial_suffix(len(summary.subsets), len(summary.missing))}"


def source_of(summaries: Sequence[TaskSummary]) -> str:
    """Return where the numbers of a figure come from: tasks and models, each with its revision."""
    tasks = dict.fromkeys(f"{one.task}, data revision {one.data_revision}" for one in summaries)
    models = dict.fromkeys(f"{shorten_middle(one.model)}, revision {one.revision[:12]}" for one in summaries)
    queries = f"{summaries[0].profile.queries:,} queries; " if len(summaries) == 1 else ""
    return f"Source: {queries}{'; '.join(tasks)}; {'; '.join(models)}."


def length_titles(counts: CellCounts) -> dict[str, str]:
    """Return the title of each length bucket with the number of distinct queries, by the title alone."""
    return {
        title: f"{title} · {queries:,} queries" for title, queries in zip(counts.axes.length_titles, counts.totals, strict=True)
    }


def task_titles(summaries: Sequence[TaskSummary]) -> dict[str, str]:
    """Return for each task its title, with the least and the most queries that a model has of it."""
    titles = {}
    for task in sorted({one.task for one in summaries}):
        queries = sorted({one.profile.queries for one in summaries if one.task == task})
        titles[task] = f"{task} · {' to '.join(f'{number:,}' for number in dict.fromkeys((queries[0], queries[-1])))} queries"
    return titles


def place_of(axes: Axes) -> alt.X:
    """Return the axis of positions: of a document's length where bins are equal shares of it, else one place a bin."""
    title = axes.position_title
    if axes.equal_bins:
        return alt.X(
            "middle:Q", title=title, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5, format=".1f", labelFlush=False)
        )
    return alt.X("position:O", title=title, sort=list(axes.positions), axis=alt.Axis(labelAngle=0))


def extent_of(axes: Axes) -> dict[str, alt.X | str]:
    """Return the encoding of a mark that is as wide as its bin."""
    place = place_of(axes)
    return {"x": alt.X("start:Q", title=axes.position_title), "x2": "end:Q"} if axes.equal_bins else {"x": place}


def score_of(field: str) -> alt.Y:
    """Return the axis of nDCG@10, whole from 0 to 1, printed x 100."""
    return alt.Y(f"{field}:Q", title=SCORE, scale=alt.Scale(domain=[0, 1]), axis=PERCENT)


def panel_of(titles: Iterable[str]) -> alt.Facet:
    """Return one panel for each title."""
    return alt.Facet("panel:N", title=None, sort=list(titles))


def colour_of(labels: Sequence[str]) -> alt.Color:
    """Return one colour a model, and the legend, below the figure so that long names have room."""
    legend = alt.Legend(
        orient="bottom", columns=1 if max(map(len, labels)) > 46 else 2, title=None, symbolOpacity=1, symbolStrokeWidth=0
    )
    return alt.Color("label:N", scale=of_each(labels, COLOURS), legend=legend)


def shape_of(labels: Sequence[str]) -> alt.Shape:
    """Return one shape a model."""
    return alt.Shape("label:N", scale=of_each(labels, SHAPES), title=None)


def cell_tooltip() -> list[alt.Tooltip]:
    """Return what a cell says of itself."""
    return [
        alt.Tooltip("length:N", title="Length"),
        alt.Tooltip("position:N", title="Position"),
        alt.Tooltip("queries:Q", title="Queries", format=","),
        alt.Tooltip("ndcg_at_10:Q", title="nDCG@10", format=".3f"),
        alt.Tooltip("low:Q", title="95 % interval, from", format=".3f"),
        alt.Tooltip("high:Q", title="95 % interval, to", format=".3f"),
        alt.Tooltip("null_low:Q", title="No effect, from", format=".3f"),
        alt.Tooltip("null_high:Q", title="No effect, to", format=".3f"),
    ]


def score_tooltip(field: str, title: str) -> list[alt.Tooltip]:
    """Return a score and its interval, as a point says them."""
    ends = {field: title, f"{field}_low": f"{title}, 95 % interval from", f"{field}_high": f"{title}, 95 % interval to"}
    return [alt.Tooltip(f"{name}:Q", title=words, format=".3f") for name, words in ends.items()]
