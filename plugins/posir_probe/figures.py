"""Probe figures: results of models with intervals, and published values in gray."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import altair as alt

from posir_probe.probe import CONTROL, SEPARATOR, Probe
from posir_probe.results import ProbeResult
from posir_published.probes import read_published_curves
from posir_report.summary import build_short_labels
from posir_tasks.base.records import Record
from posir_tasks.base.wording import pluralize
from posir_tasks.display.charts import (
    FAINT,
    PERCENT,
    LayeredChart,
    PositionAxis,
    add_frame,
    build_chart,
    build_interval_rule,
    build_model_legend,
    build_window_line,
    compile_marks,
    encode_labels,
)
from posir_tasks.display.figures import Figure
from posir_tasks.display.numbers import FORMATS, format_estimate
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.scores import Unit, flatten

PANEL_WIDTH, SINGLE_PANEL_WIDTH, PANEL_HEIGHT = 300, 640, 190
#: Height of a category's row in pixels.
ROW_HEIGHT = 11
#: Maximum number of models with intervals in one figure.
MAX_INTERVALS = 4
PUBLISHED = "published"
#: Colors of the control and published values. Their contrast with white is at least 3.
GRAYS = {CONTROL: FAINT, PUBLISHED: "#949494"}
#: Lines with more positions have no points.
MAX_POINTS = 20


def build_figure(results: Sequence[ProbeResult], probe: Probe) -> Figure:
    """Plot models' results of a probe on a dataset. The title is the first model's headline."""
    first = results[0]
    labels = build_short_labels(results)
    subject = f"{', '.join(labels)}; {first.data}"
    if probe.ignores_model:
        results = results[:1]
        labels = ["these data"]
        subject = first.data
    title = probe.describe(first.sums)
    if len(results) > 1:
        title = f"{labels[0]} · {title}"
    rows: list[Record] = []
    list_rows = _list_cells if probe.cells else _list_values
    for label, result in zip(labels, results, strict=True):
        rows += list_rows(label, result, probe)
    if probe.cells:
        explanation = "The legend shows the number of sentences per cell."
        chart: LayeredChart = _draw_cells(rows, probe)
    else:
        explanation = ""
        has_intervals = any(row.get("value_high") is not None for row in rows)
        has_intervals = has_intervals and len(results) <= MAX_INTERVALS
        if has_intervals:
            mark = "Band" if probe.is_ordered else "Lines"
            explanation = f"{mark}: 95% intervals by bootstrap over documents. "
        if probe.shows_spread:
            explanation += "Outer band: one standard deviation over pairs. "
        if published_rows := list(_list_published(rows, probe)):
            explanation += "Gray: published values of other models, on other data."
        chart = _draw_curves([*rows, *published_rows], probe, has_intervals=has_intervals)
    documents = pluralize(first.sums.documents, probe.unit_name)
    source = f"Source: {first.data}, {documents}. Method: {probe.source}."
    # The figure as a whole has alternative text. A mark without rows would be an image without it.
    config = {"mark": {"aria": False}}
    marks = compile_marks(chart)
    framed_chart = add_frame(marks, title, subject, explanation, source, config=config)
    # The section of a single result has the same title.
    return Figure(first.probe, first.data, None, framed_chart, has_own_title=len(results) > 1)


def _list_cells(label: str, result: ProbeResult, probe: Probe) -> Iterator[Record]:
    """Yield a model's non-empty cells with their counts."""
    for (name, x, y), points in zip(probe.cells, result.sums.totals[:, 0].tolist(), strict=False):
        if points:
            panel, _, _ = probe.split(name + SEPARATOR)
            yield {"x": x, "y": y, "panel": f"{label}: {panel}", "points": points}


def _list_values(label: str, result: ProbeResult, probe: Probe) -> Iterator[Record]:
    """Yield the values of a model and the control, averages first.

    The last row is the end of the model's window in a document of median length.
    """
    sums = result.sums
    estimates = {name: sums.estimate(average) for name, average in probe.averages.items()}
    estimates |= dict(zip(sums.positions, sums.estimates, strict=True))
    deviations = dict(zip(sums.positions, sums.details.get("sd", sums.values), strict=True))
    for name, estimate in estimates.items():
        if estimate is not None:
            row = _build_row(label, name, estimate, probe)
            sd = deviations.get(name, 0.0)
            yield row | {"sd_low": estimate.value - sd, "sd_high": estimate.value + sd}
    if probe.shows_window and result.share_read:
        text = f"{label}: {result.window:,} tokens"
        yield {"panel": "", "start": result.share_read, "beyond_label": text}


def _list_published(rows: Sequence[Record], probe: Probe) -> Iterator[Record]:
    """Yield the published values for the panels and positions of the measured rows."""
    measured_positions = {(row["panel"], row.get("position")) for row in rows}
    for curve in read_published_curves(probe.name):
        for name, value in zip(curve.positions, curve.values, strict=True):
            row = _build_row(curve.model, name, Estimate(value), probe)
            if (row["panel"], row["position"]) in measured_positions:
                yield row | {"kind": PUBLISHED, "key": PUBLISHED}


def _build_row(model: str, name: str, estimate: Estimate, probe: Probe) -> Record:
    panel, line, position = probe.split(name)
    return {
        "model": model,
        "panel": panel,
        "kind": "value",
        # All models have the same control.
        "key": line if line == CONTROL else ": ".join(filter(None, (model, line))),
        "middle": probe.relative_positions.get(name.rpartition(SEPARATOR)[2]),
        "position": position,
        "shown": format_estimate(estimate, FORMATS[probe.unit]),
        **flatten("value", estimate),
    }


def _split_panels(chart: LayeredChart | alt.Chart, rows: Sequence[Record]) -> alt.FacetChart:
    """Split a chart into panels, at most three per row."""
    panels = list(dict.fromkeys(row["panel"] for row in rows if row["panel"]))
    facet = alt.Facet("panel:N", title=None, sort=panels)
    facets: alt.FacetChart = chart.facet(facet=facet, columns=2 if len(panels) == 4 else 3)
    return facets


def _draw_cells(rows: Sequence[Record], probe: Probe) -> alt.FacetChart:
    """Plot the number of points in each cell of a two-dimensional histogram, by panel."""
    x_bins = alt.Bin(extent=[0, 1], step=0.1)
    y_bins = alt.Bin(extent=[-1, 1], step=0.1)
    # More labels would overlap.
    axis = alt.Axis(values=[-1, -0.5, 0, 0.5, 1])
    gradient = alt.Legend(orient="bottom", gradientLength=200)
    scale = alt.Scale(type="log", scheme="greys")
    cells = build_chart(rows).encode(
        x=alt.X("x:Q", title=probe.position_title, bin=x_bins, axis=axis),
        y=alt.Y("y:Q", title=probe.value_title, bin=y_bins, axis=axis),
        color=alt.Color("points:Q", title="Sentences", scale=scale, legend=gradient),
        tooltip="points:Q",
    )
    return _split_panels(cells.mark_rect().properties(width=PANEL_WIDTH, height=PANEL_HEIGHT), rows)


def _draw_curves(rows: Sequence[Record], probe: Probe, *, has_intervals: bool) -> LayeredChart:
    """Plot lines over positions or, for unordered positions, points by category."""
    # Models come before the control and published values.
    names = dict.fromkeys(row["key"] for row in rows if "key" in row)
    keys = sorted(names, key=lambda name: name in GRAYS)
    legend = build_model_legend(keys) if len(keys) > 1 else None
    color, shape, dash = encode_labels("key", keys, legend)
    shades = zip(keys, color["scale"]["range"], strict=True)
    color["scale"]["range"] = [GRAYS.get(key, shade) for key, shade in shades]
    title = probe.value_title or probe.title
    axis = PERCENT if probe.unit is Unit.PERCENT else alt.Axis(tickCount=5)
    positions = list(dict.fromkeys(row["position"] for row in rows if "position" in row))
    base = alt.Chart().encode(color=color, detail=["model:N", "key:N"])
    layers = []
    if not probe.is_ordered:
        category = alt.Y(
            "position:N", title=None, sort=positions, axis=alt.Axis(labelLimit=PANEL_WIDTH)
        )
        base = base.encode(y=category, yOffset=alt.YOffset("key:N", sort=keys))
        values = base.encode(x=alt.X("value:Q", title=title, axis=axis))
        layers.append(alt.Chart().mark_rule(color=FAINT).encode(x=alt.datum(0)))
    else:
        axes = PositionAxis(probe.position_title, positions, bool(probe.relative_positions))
        base = base.encode(x=axes.axis)
        values = base.encode(y=alt.Y("value:Q", title=title, axis=axis))
    values = values.encode(tooltip=["model:N", "position:N", "shown:N"])
    # Omit layers without rows, which would have axes without an extent.
    if PUBLISHED in keys:
        gray = values.transform_filter(f"datum.kind == '{PUBLISHED}'")
        tick = gray.mark_tick(thickness=1.5, size=ROW_HEIGHT)
        layers.append(gray.mark_line(strokeWidth=0.8) if probe.is_ordered else tick)
    if probe.shows_spread:
        spread = base.transform_filter("isValid(datum.sd_high)").mark_area(opacity=0.1)
        layers.append(spread.encode(y="sd_low:Q", y2="sd_high:Q"))
    if has_intervals:
        estimates = base.transform_filter("isValid(datum.value_high)")
        band = estimates.mark_area(opacity=0.16).encode(y="value_low:Q", y2="value_high:Q")
        rule = build_interval_rule(estimates, "value", "x", color)
        layers.append(band if probe.is_ordered else rule)
    model_values = values.transform_filter("datum.kind == 'value'")
    has_points = not probe.is_ordered or len(probe.positions) <= MAX_POINTS
    if has_points:
        model_values = model_values.encode(shape=shape)
    line = model_values.mark_line(strokeWidth=1.8, point=has_points).encode(strokeDash=dash)
    points = model_values.mark_point(filled=True, opacity=1, size=60)
    layers.append(line if probe.is_ordered else points)
    if any("beyond_label" in row for row in rows):
        layers += build_window_line(alt.Chart(), PositionAxis(None, None, equal_bins=True))
    chart = alt.layer(
        *layers,
        data=alt.InlineData(values=rows),
        height=PANEL_HEIGHT if probe.is_ordered else alt.Step(ROW_HEIGHT),
    )
    if len({row["panel"] for row in rows} - {""}) < 2:
        return chart.properties(width=SINGLE_PANEL_WIDTH)
    facets = _split_panels(chart.properties(width=PANEL_WIDTH), rows)
    return facets if probe.same_scale else facets.resolve_scale(x="independent")
