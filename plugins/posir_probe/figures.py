"""Figures of probes: models overlaid, each with its interval, published values in gray behind
them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import altair as alt
import numpy as np

from posir_probe.probe import CONTROL, SEPARATOR, Form, Probe
from posir_probe.results import ProbeResult
from posir_published.probes import read_published_curves
from posir_report.charts import legend_of_models
from posir_report.summary import short_labels
from posir_tasks.base.wording import pluralize
from posir_tasks.display.charts import (
    FAINT,
    INK,
    PERCENT,
    WINDOW_END,
    Looks,
    add_frame,
    build_chart,
    tell_apart,
)
from posir_tasks.display.figures import Figure
from posir_tasks.display.numbers import FORMATS, format_interval
from posir_tasks.values.estimates import Estimate
from posir_tasks.values.scores import Unit, flatten

WIDTH, WIDE, HEIGHT, PANELS_PER_ROW = 300, 640, 190, 3
#: Height of a line of a category.
ROW = 11
#: Values at more positions have no points on their line.
MAX_POINTS = 20
#: Maximum number of models whose intervals are drawn over each other.
MAX_INTERVALS = 4
PUBLISHED = "published"
#: Gray of published values, three times as dark as paper.
PALE = "#949494"
#: Glyphs of published values in a legend: as they are drawn.
LINE, TICK = "M-1.4,-.15H1.4V.15H-1.4Z", "M-.15,-1V1H.15V-1Z"
#: Kinds of rows.
MODEL_ROW, CONTROL_ROW, PUBLISHED_ROW, WINDOW_ROW = "model", "control", "published", "window"
#: Fields of a row that tooltips show, with their titles.
TOOLTIPS = {
    "model": "Model",
    "line": "Texts",
    "position": "Position",
    "shown": "Value",
    "interval": "95% interval",
}
#: A row of a chart's data.
Row: TypeAlias = dict[str, Any]


def build_figure(results: Sequence[ProbeResult], probe: Probe) -> Figure:
    """Draw a probe on a dataset, with all models; the title is the description of the first."""
    first = results[0]
    if probe.ignores_model:
        results = results[:1]
    labels = ["these data"] if probe.ignores_model else short_labels(results)
    described = probe.describe(first.sums)
    title = f"{labels[0]} · {described}" if len(results) > 1 else described
    subject = first.data if probe.ignores_model else f"{', '.join(labels)}; {first.data}"
    documents = pluralize(first.sums.documents, probe.unit_name)
    method = f" Method: {probe.source}." if probe.source else ""
    draw = _draw_scatter if probe.form is Form.CELLS else _draw_curves
    framed = add_frame(
        alt.vconcat(draw(results, labels, probe)),
        title,
        subject,
        " ".join(_explain(results, probe)),
        f"Source: {first.data}, {documents}.{method}",
    )
    # The figure as a whole has an alternative text, and a mark without rows would be an image
    # without one.
    return Figure(first.probe, first.data, None, framed.configure_mark(aria=False))


def _explain(results: Sequence[ProbeResult], probe: Probe) -> Iterator[str]:
    if probe.form is Form.CELLS:
        yield "The legend names the number of sentences in a cell."
        return
    estimates = [estimate for result in results for estimate in result.sums.estimates]
    is_line = probe.form in (Form.PLACES, Form.STEPS)
    if any(estimate and estimate.interval for estimate in estimates):
        band = "Inner band" if probe.shows_spread else "Band" if is_line else "Lines"
        if not is_line or len(results) <= MAX_INTERVALS:
            yield f"{band}: 95% intervals by bootstrap over documents."
    if probe.shows_spread:
        yield "Outer band: one standard deviation over pairs."
    if any(probe.split(name)[1] == CONTROL for name in results[0].sums.positions):
        yield f"An {CONTROL} on the same texts is shown next to them."
    if read_published_curves(probe.name):
        other = "data" if probe.ignores_model else "models, on other data"
        yield f"Gray: published values of other {other}."


def _draw_scatter(
    results: Sequence[ProbeResult], labels: Sequence[str], probe: Probe
) -> alt.FacetChart:
    width, height = probe.cell_size
    rows = []
    for label, result in zip(labels, results, strict=True):
        counts = result.sums.totals[:, 0].tolist()
        for (name, x, y), points in zip(probe.cells, counts, strict=True):
            if points:
                panel = probe.split(f"{name}{SEPARATOR}")[0]
                cell = {"x": x - width / 2, "x2": x + width / 2}
                cell |= {"y": y - height / 2, "y2": y + height / 2}
                row: Row = {key: round(value, 6) for key, value in cell.items()}
                row["panel"] = f"{label}: {panel}" if len(results) > 1 else panel
                rows.append(row | {"points": points})
    axis = alt.Axis(tickCount=5)
    color = alt.Color(
        "points:Q",
        title="Sentences",
        scale=alt.Scale(type="log", scheme="greys"),
        legend=alt.Legend(orient="top", gradientLength=200),
    )
    cells = build_chart(rows).encode(
        x=alt.X("x:Q", title=probe.place_title, scale=alt.Scale(domain=[0, 1]), axis=axis),
        x2="x2:Q",
        y=alt.Y("y:Q", title=probe.value_title, scale=alt.Scale(domain=[-1, 1]), axis=axis),
        y2="y2:Q",
        color=color,
        tooltip=["x:Q", "y:Q", "points:Q"],
    )
    return _facet(cells.mark_rect().properties(width=WIDTH, height=HEIGHT), rows)


def _facet(
    chart: alt.Chart | alt.LayerChart | alt.FacetChart, rows: Iterable[Row]
) -> alt.FacetChart:
    names = list(dict.fromkeys(row["panel"] for row in rows if row["panel"]))
    columns = math.ceil(len(names) / math.ceil(len(names) / PANELS_PER_ROW))
    facet = alt.Facet("panel:N", title=None, sort=names)
    facets: alt.FacetChart = chart.facet(facet=facet, columns=columns)
    return facets


def _draw_curves(
    results: Sequence[ProbeResult], labels: Sequence[str], probe: Probe
) -> alt.FacetChart | alt.LayerChart:
    is_list = probe.form is Form.CATEGORIES
    rows: list[Row] = []
    for label, result in zip(labels, results, strict=True):
        rows += _list_rows(label, result, probe)
    for row in rows if len(results) > 1 else ():
        if row["line"] and row["kind"] == MODEL_ROW:
            row["key"] = f"{row['model']}: {row['line']}"
    rows += _list_published(rows, probe)
    # The control is last, but for published values.
    last = (CONTROL, PUBLISHED)
    names = dict.fromkeys(row["key"] for row in rows)
    keys = [
        *(name for name in names if name not in last),
        *(name for name in last if name in names),
    ]
    legend = legend_of_models(keys) if len(keys) > 1 else None
    color, shape, dash = tell_apart("key", keys, legend)
    _repaint(color["scale"], keys, {CONTROL: FAINT, PUBLISHED: PALE})
    _repaint(shape["scale"], keys, {PUBLISHED: TICK if is_list else LINE})
    panels = dict.fromkeys(row["panel"] for row in rows)
    if is_list:
        layers = _draw_categories(rows, results[0].sums.positions, probe, (keys, color, shape))
    else:
        layers = _draw_lines(rows, probe, (color, shape, dash), bands=len(results) <= MAX_INTERVALS)
        if probe.shows_window:
            rows += _mark_windows(labels, results)
    chart = alt.layer(
        *layers,
        data=alt.InlineData(values=rows),
        width=WIDTH if len(panels) > 1 else WIDE,
        height=alt.Step(ROW) if is_list else HEIGHT,
    )
    if len(panels) == 1:
        return chart
    facets = _facet(chart, rows)
    return facets if probe.same_scale else facets.resolve_scale(x="independent")


def _repaint(scale: Any, keys: Sequence[str], looks: Mapping[str, str]) -> None:
    """Give some keys of a scale looks of their own."""
    scale["range"] = [
        looks.get(key, cycled) for key, cycled in zip(keys, scale["range"], strict=True)
    ]


def _list_rows(label: str, result: ProbeResult, probe: Probe) -> Iterator[Row]:
    """List the values of a model and of the control on the same texts, averages first."""
    sums = result.sums
    estimates = {name: sums.estimate(average) for name, average in probe.averages.items()}
    deviations = [0.0] * len(estimates)
    unknown = np.zeros(len(sums.positions))
    deviations += np.nan_to_num(sums.details.get("sd", unknown)).tolist()
    estimates |= dict(zip(sums.positions, sums.estimates, strict=True))
    for order, (name, estimate) in enumerate(estimates.items()):
        if estimate is not None:
            row = _build_row(label, name, estimate, probe)
            interval = format_interval(estimate, FORMATS[probe.unit]) or "too few texts"
            sd = deviations[order]
            row |= {"order": order, "interval": interval}
            yield row | {"sd_low": estimate.value - sd, "sd_high": estimate.value + sd}


def _list_published(measured: Sequence[Row], probe: Probe) -> Iterator[Row]:
    """List the published values of the panels that are drawn, and of the categories."""
    panels = {row["panel"] for row in measured}
    positions = {row["position"] for row in measured}
    for curve in read_published_curves(probe.name):
        for order, (name, value) in enumerate(zip(curve.positions, curve.values, strict=True)):
            row = _build_row(curve.model, name, Estimate(value), probe)
            row |= {"kind": PUBLISHED_ROW, "key": PUBLISHED, "order": order}
            is_drawn = probe.form is not Form.CATEGORIES or row["position"] in positions
            if row["panel"] in panels and is_drawn:
                yield row | {"interval": "not published", "sd_low": value, "sd_high": value}


def _build_row(model: str, name: str, estimate: Estimate, probe: Probe) -> Row:
    panel, line, position = probe.split(name)
    share = probe.place_shares.get(name.rpartition(SEPARATOR)[2])
    is_number = share is not None and position.isdigit()
    return {
        "model": model,
        "line": line,
        "panel": panel,
        "kind": CONTROL_ROW if line == CONTROL else MODEL_ROW,
        "key": line or model,
        "x": share,
        "position": f"{100 * (share or 0):.0f}%" if is_number else position,
        "shown": FORMATS[probe.unit](estimate.value),
        **flatten("value", estimate),
    }


def _only(chart: alt.Chart, *kinds: str) -> alt.Chart:
    filtered: alt.Chart = chart.transform_filter(alt.FieldOneOfPredicate("kind", kinds))
    return filtered


def _encode_values(channel: Any, probe: Probe) -> tuple[Any, ...]:
    """Encode values, and the lower ends of intervals and spreads."""
    axis = alt.Axis(tickCount=5 if probe.same_scale else 3)
    shared: dict[str, Any] = {
        "title": probe.value_title or probe.title,
        "scale": alt.Scale(zero=True),
        "axis": PERCENT if probe.unit is Unit.PERCENT else axis,
    }
    return tuple(channel(f"{field}:Q", **shared) for field in ("value", "value_low", "sd_low"))


def _encode_places(rows: Sequence[Row], probe: Probe) -> alt.X:
    """Encode places: named steps, or shares of a text."""
    if probe.form is Form.STEPS:
        ordered = sorted(rows, key=lambda row: float(row["order"]))
        names = list(dict.fromkeys(row["position"] for row in ordered))
        axis = alt.Axis(labelAngle=0, labelLimit=90, labelOverlap=True)
        scale = alt.Scale(domain=names)
        return alt.X("position:O", title=probe.place_title, scale=scale, axis=axis)
    axis = alt.Axis(tickCount=5, format=".1f", grid=False)
    scale = alt.Scale(domain=[0, 1], nice=False)
    return alt.X("x:Q", title=probe.place_title, scale=scale, axis=axis)


def _draw_lines(rows: Sequence[Row], probe: Probe, looks: Looks, *, bands: bool) -> list[alt.Chart]:
    """Draw the layers of lines over places, and of where a model's window ends."""
    color, shape, dash = looks
    base = alt.Chart().encode(
        x=_encode_places(rows, probe), color=color, detail=["model:N", "line:N"]
    )
    y, low, deviation = _encode_values(alt.Y, probe)
    lines = base.encode(y=y, tooltip=_list_tooltips(rows))
    band = base.transform_filter("isValid(datum.value_low)").encode(y=low, y2="value_high:Q")
    has_intervals = any(row.get("value_low") is not None for row in rows)
    if probe.form is Form.BARS:
        layers = [_only(lines, MODEL_ROW).mark_bar(size=9, opacity=0.75)]
        if has_intervals:
            layers.append(band.mark_rule().encode(color=alt.value(INK)))
        return layers
    layers = []
    # A thin line is found by its points, which do not show.
    hidden = {"opacity": 0, "size": 80}
    if any(row["kind"] == PUBLISHED_ROW for row in rows):
        layers.append(_only(lines, PUBLISHED_ROW).mark_line(strokeWidth=0.8, point=hidden))
    if probe.shows_spread:
        spread = base.transform_filter("isValid(datum.sd_low)").mark_area(opacity=0.1)
        layers.append(spread.encode(y=deviation, y2="sd_high:Q"))
    if bands and has_intervals:
        layers.append(band.mark_area(opacity=0.16))
    positions = {row["position"] for row in rows}
    point = {"size": 34} if len(positions) <= MAX_POINTS else hidden
    own = _only(lines, MODEL_ROW, CONTROL_ROW).mark_line(strokeWidth=1.8, point=point)
    layers.append(own.encode(strokeDash=dash, shape=shape))
    if probe.shows_window:
        marks = _only(base, WINDOW_ROW)
        layers.append(marks.mark_rule(**WINDOW_END).encode(color=alt.value(FAINT)))
        text = marks.mark_text(
            align=alt.ExprRef("datum.side"),
            baseline="bottom",
            fontSize=12,
            dx=alt.ExprRef("datum.dx"),
        )
        place = alt.value(HEIGHT - 4)
        layers.append(text.encode(y=place, text="text:N", color=alt.value(INK)))
    return layers


def _mark_windows(labels: Sequence[str], results: Sequence[ProbeResult]) -> Iterator[Row]:
    """Yield a row where each model's window ends in a median document."""
    is_late = max(result.share_read or 0.0 for result in results) > 0.5
    beside = {"side": "right", "dx": -4} if is_late else {"side": "left", "dx": 4}
    for label, result in zip(labels, results, strict=True):
        if result.share_read is not None:
            name = f"{label}: " if len(results) > 1 else ""
            text = f"{name}{'reads' if is_late else 'beyond'} {result.window:,} tokens"
            row = {"panel": "", "model": label, "kind": WINDOW_ROW, "x": result.share_read}
            yield row | {"text": text, **beside}


def _draw_categories(
    rows: Sequence[Row],
    positions: Sequence[str],
    probe: Probe,
    looks: tuple[Sequence[str], alt.Color, alt.Shape],
) -> list[alt.Chart]:
    """Draw the layers of dots below each other; a layer without rows would have an axis without an
    extent.
    """
    keys, color, shape = looks
    x, low, _ = _encode_values(alt.X, probe)
    names = list(dict.fromkeys(probe.split(name)[2] for name in positions))
    y = alt.Y("position:N", title=None, sort=names, axis=alt.Axis(labelLimit=WIDTH))
    base = alt.Chart().encode(y=y, yOffset=alt.YOffset("key:N", sort=list(keys)), color=color)
    dots = base.encode(x=x, tooltip=_list_tooltips(rows))
    layers = [alt.Chart().mark_rule(color=FAINT).encode(x=alt.datum(0))]
    if any(row.get("value_low") is not None for row in rows):
        intervals = base.transform_filter("isValid(datum.value_low)")
        rules = intervals.mark_rule(strokeWidth=2, opacity=0.7)
        layers.append(rules.encode(x=low, x2="value_high:Q"))
    if PUBLISHED in keys:
        layers.append(_only(dots, PUBLISHED_ROW).mark_tick(thickness=1.5, size=ROW))
    points = _only(dots, MODEL_ROW, CONTROL_ROW).mark_point(filled=True, opacity=1, size=60)
    return [*layers, points.encode(shape=shape)]


def _list_tooltips(rows: Sequence[Row]) -> list[alt.Tooltip]:
    """List the fields of a tooltip, of those that some row has."""
    filled = [name for name in TOOLTIPS if any(row[name] for row in rows)]
    return [alt.Tooltip(f"{name}:N", title=TOOLTIPS[name]) for name in filled]
