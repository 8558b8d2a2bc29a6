"""Figures of probes: models overlaid, each with its interval, labeled directly, published values in gray behind them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, TypeAlias

import altair as alt
import numpy as np

from posir_probe.probe import CONTROL, SEPARATOR, Form, Probe
from posir_probe.results import ProbeResult
from posir_published.probes import read_published_curves
from posir_report.summary import short_labels
from posir_significance.position_effect import FEWEST_DOCUMENTS
from posir_tasks.display.charts import (
    COLORS,
    FAINT,
    INK,
    NULL,
    PERCENT,
    add_frame,
    build_chart,
    cycle_scale,
    spread_heights,
)
from posir_tasks.display.figures import Figure
from posir_tasks.display.wording import pluralize
from posir_tasks.scores import Unit, flatten

WIDTH, WIDE, HEIGHT, PANELS_PER_ROW = 300, 640, 190, 3
#: Height of a line of a category, and of its name.
ROW, NAME = 15, 17
#: Values at more positions have no points on their line.
MOST_POINTS = 20
#: Most models whose intervals are drawn over each other, and most lines with labels of their own.
MOST_INTERVALS, MOST_LABELS = 4, 6
#: Share of an axis that a label covers at most.
LABELED = 0.25
PUBLISHED = "other models, as published"
#: Kinds of rows.
MODEL_ROW, CONTROL_ROW, PUBLISHED_ROW, LABEL_ROW, WINDOW_ROW, NAME_ROW = (
    "model", "control", "published", "label", "window", "name",
)  # fmt: skip
#: Where the text of a label begins.
SIDE = alt.ExprRef("datum.side")
#: A row of a chart's data, and its height.
Row: TypeAlias = dict[str, Any]
VALUE = itemgetter("value")


def build_figure(results: Sequence[ProbeResult], probe: Probe) -> Figure:
    """Return the figure of a probe on a dataset, with all models; the title is the finding of the first."""
    first = results[0]
    shown = results[:1] if probe.is_of_data else results
    labels = short_labels(shown)
    finding = probe.find(first.sums) or probe.title
    title = f"{labels[0]}: {finding}" if len(shown) > 1 else finding
    subject = first.data if probe.is_of_data else f"{', '.join(labels)}; {first.data}"
    source = f"Source: {first.data}, {pluralize(first.sums.documents, 'document')}."
    source += f" Method: {probe.source}." if probe.source else ""
    draw = _draw_scatter if probe.form is Form.CELLS else _draw_curves
    framed = add_frame(alt.vconcat(draw(shown, labels, probe)), title, subject, " ".join(_explain(shown, probe)), source)
    # The figure as a whole has an alternative text, and a mark without rows would be an image without one.
    return Figure(first.probe, first.data, None, framed.configure_mark(aria=False))


def _explain(results: Sequence[ProbeResult], probe: Probe) -> Iterator[str]:
    axes = (probe.value_title or probe.title, probe.place_title)
    for direction, axis in zip(
        ("Vertical", "Horizontal"), axes if probe.form is not Form.CATEGORIES else axes[::-1], strict=True
    ):
        if axis:
            # A name such as Pearson's keeps its capital.
            yield f"{direction}: {axis if axis[1:2].isupper() or axis.startswith('Pearson') else axis[0].lower() + axis[1:]}."
    if probe.form is Form.CELLS:
        yield "Darker: more sentences."
        return
    if not any(estimate and estimate.interval for result in results for estimate in result.sums.estimates):
        yield f"No intervals: fewer than {FEWEST_DOCUMENTS} documents."
    elif probe.form in (Form.CATEGORIES, Form.BARS):
        yield "Lines: 95 % intervals by bootstrap over documents."
    elif len(results) <= MOST_INTERVALS:
        yield "Shaded: 95 % intervals by bootstrap over documents."
    if probe.shows_spread:
        yield "Lighter: one standard deviation over pairs."
    if any(probe.split(name)[1] == CONTROL for name in results[0].sums.positions):
        yield f"Dark gray, square: an {CONTROL} on the same texts."
    if read_published_curves(results[0].probe):
        yield "Light gray: published values of other models on other data."


def _draw_scatter(results: Sequence[ProbeResult], labels: Sequence[str], probe: Probe) -> alt.FacetChart:
    width, height = probe.cell_size
    titles = {panel: probe.split(f"{panel}{SEPARATOR}")[0] for panel, _, _ in probe.cells}
    rows = [
        {
            "panel": f"{label}: {titles[panel]}" if len(results) > 1 else titles[panel],
            "x": x - width / 2, "x2": x + width / 2, "y": y - height / 2, "y2": y + height / 2, "points": points,
        }
        for label, result in zip(labels, results, strict=True)
        for (panel, x, y), points in zip(probe.cells, result.sums.sums[:, 0].tolist(), strict=True)
        if points
    ]  # fmt: skip
    axis, legend = alt.Axis(tickCount=5), alt.Legend(orient="top", gradientLength=200)
    cells = build_chart(rows).mark_rect().encode(
        x=alt.X("x:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=axis),
        x2="x2:Q",
        y=alt.Y("y:Q", title=None, scale=alt.Scale(domain=[-1, 1]), axis=axis),
        y2="y2:Q",
        color=alt.Color("points:Q", title="Sentences", scale=alt.Scale(type="log", scheme="greys"), legend=legend),
        tooltip=["x:Q", "y:Q", "points:Q"],
    )  # fmt: skip
    return _facet(cells.properties(width=WIDTH, height=HEIGHT), [row["panel"] for row in rows])


def _facet(chart: alt.Chart | alt.LayerChart | alt.FacetChart, panels: Iterable[str]) -> alt.FacetChart:
    facet = alt.Facet("panel:N", title=None, sort=list(dict.fromkeys(panels)))
    facets: alt.FacetChart = chart.facet(facet=facet, columns=PANELS_PER_ROW)
    return facets


def _draw_curves(results: Sequence[ProbeResult], labels: Sequence[str], probe: Probe) -> alt.FacetChart | alt.LayerChart:
    rows = [row for label, result in zip(labels, results, strict=True) for row in _model_rows(label, result, probe)]
    for row in rows:
        named = f"{row['model']}: {row['line']}" if len(results) > 1 else row["line"]
        row["key"] = CONTROL if row["line"] == CONTROL else named if row["line"] else row["model"]
        # The first line of each model is solid, its others and the control are dashed.
        row["dash"] = [3, 3] if row["line"] == CONTROL else [1, 0] if row["line"] == rows[0]["line"] else [7, 3]
    # The control is last.
    keys = sorted(dict.fromkeys(row["key"] for row in rows), key=lambda key: key == CONTROL)
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    for curve in read_published_curves(results[0].probe):
        deviations = curve.deviations or (0.0,) * len(curve.values)
        for order, (name, value, sd) in enumerate(zip(curve.positions, curve.values, deviations, strict=True)):
            row = _build_row(curve.model, name, order, {"value": value}, sd, probe) | {"kind": PUBLISHED_ROW, "key": PUBLISHED}
            rows += [row] if row["panel"] in panels else []
    # One color for each line, gray for controls and published values.
    cycled = cycle_scale(keys, COLORS).to_dict()["range"]
    colors = [FAINT if key == CONTROL else color for key, color in zip(keys, cycled, strict=True)]
    for row in rows:
        row["ink"] = dict(zip(keys, colors, strict=True)).get(row["key"], NULL)
        row["label_ink"] = FAINT if row["kind"] == PUBLISHED_ROW else row["ink"]
    color = alt.Color("ink:N", scale=None, legend=None)
    if len(keys) > MOST_LABELS:
        legend = alt.Legend(orient="top", columns=1, symbolOpacity=1)
        color = alt.Color("key:N", title=None, scale=alt.Scale(domain=keys, range=colors), legend=legend)
    if probe.form is Form.CATEGORIES:
        order_of_names = list(dict.fromkeys(probe.split(name)[2] for name in results[0].sums.positions))
        layers, height = _draw_categories(rows, keys, order_of_names, probe, color)
    else:
        if probe.shows_window:
            rows += _mark_windows(labels, results)
        layers, height = _draw_lines(rows, keys, probe, color, bands=len(results) <= MOST_INTERVALS), HEIGHT
    width = WIDTH if len(panels) > 1 else WIDE
    chart = alt.layer(*layers, data=alt.InlineData(values=rows), width=width, height=height)
    if len(panels) == 1:
        return chart
    facets = _facet(chart, panels)
    return facets if probe.same_scale else facets.resolve_scale(x="independent")


def _model_rows(label: str, result: ProbeResult, probe: Probe) -> Iterator[Row]:
    sums = result.sums
    averages = [(name, sums.estimate(average)) for name, average in probe.averages.items()]
    unknown = np.full(len(sums.positions), np.nan)
    deviations = [math.nan] * len(averages) + sums.details.get("sd", unknown).tolist()
    named = [*averages, *zip(sums.positions, sums.estimates, strict=True)]
    for order, ((name, estimate), sd) in enumerate(zip(named, deviations, strict=True)):
        if estimate is not None:
            row = _build_row(label, name, order, flatten("value", estimate), sd if math.isfinite(sd) else 0.0, probe)
            yield row | {"kind": CONTROL_ROW if row["line"] == CONTROL else MODEL_ROW}


def _build_row(model: str, name: str, order: int, values: Mapping[str, Any], sd: float, probe: Probe) -> Row:
    panel, line, position = probe.split(name)
    return {
        "model": model, "line": line, "panel": panel, "position": position, "order": order,
        "x": probe.place_shares.get(name.rpartition(SEPARATOR)[2]),
        **values, "sd_low": values["value"] - sd, "sd_high": values["value"] + sd,
    }  # fmt: skip


def _only(chart: alt.Chart, *kinds: str) -> alt.Chart:
    filtered: alt.Chart = chart.transform_filter(alt.FieldOneOfPredicate("kind", kinds))
    return filtered


def find_domain(rows: Sequence[Row], fields: Sequence[str]) -> tuple[float, float]:
    """Return the ends of an axis that holds 0 and all values of fields, rounded outward."""
    values = [row[field] for row in rows for field in fields if row.get(field) is not None]
    low, high = min(0.0, *values), max(0.0, *values)
    step = 10 ** math.floor(math.log10(high - low or 1)) / 2
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def _value_axis(unit: Unit) -> alt.Axis:
    return PERCENT if unit is Unit.PERCENT else alt.Axis(tickCount=5)


def _draw_lines(rows: list[Row], keys: Sequence[str], probe: Probe, color: alt.Color, *, bands: bool) -> list[alt.Chart]:
    """Return the layers of lines over places; the rows of their labels are added to `rows`."""
    domain = find_domain(rows, ["value", "value_low", "value_high", *(["sd_low", "sd_high"] if probe.shows_spread else [])])
    placed = [row for row in rows if row["kind"] != WINDOW_ROW]
    names = list(dict.fromkeys(row["position"] for row in sorted(placed, key=lambda row: float(row["order"]))))
    if len(keys) <= MOST_LABELS and probe.form is not Form.BARS:
        for panel in dict.fromkeys(row["panel"] for row in placed):
            rows += _label_panel([row for row in placed if row["panel"] == panel], domain, names)
    x = alt.X(
        "x:Q", title=None, scale=alt.Scale(domain=[0, 1], nice=False), axis=alt.Axis(tickCount=5, format=".1f", grid=False)
    )
    if probe.form is Form.STEPS:
        axis = alt.Axis(labelAngle=0, labelLimit=90, labelOverlap=True)
        x = alt.X("position:O", title=None, scale=alt.Scale(domain=names), axis=axis)
    base = alt.Chart().encode(x=x, color=color, detail="model:N")
    scale, axis = alt.Scale(domain=list(domain), nice=False), _value_axis(probe.unit)
    y, low, deviation = (alt.Y(f"{field}:Q", title=None, scale=scale, axis=axis) for field in ("value", "value_low", "sd_low"))
    lines = base.encode(y=y, tooltip=_tooltips(probe.unit))
    band = base.transform_filter("isValid(datum.value_low)").encode(y=low, y2="value_high:Q")
    if probe.form is Form.BARS:
        return [_only(lines, MODEL_ROW).mark_bar(size=9, opacity=0.75), band.mark_rule().encode(color=alt.value(INK))]
    layers = [_only(lines, PUBLISHED_ROW).mark_line(strokeWidth=1)]
    if probe.shows_spread:
        layers.append(base.transform_filter("isValid(datum.sd_low)").mark_area(opacity=0.1).encode(y=deviation, y2="sd_high:Q"))
    layers += [band.mark_area(opacity=0.16)] if bands and any(row.get("value_low") is not None for row in rows) else []
    point: Any = {"size": 34} if len(names) <= MOST_POINTS else False
    own = _only(lines, MODEL_ROW, CONTROL_ROW).mark_line(strokeWidth=1.8, point=point)
    layers.append(own.encode(strokeDash=alt.StrokeDash("dash:N", scale=None)))
    layers += _label_layers(base.encode(y=y), 3)
    if probe.shows_window:
        marks = _only(base, WINDOW_ROW).encode(color=alt.value(FAINT))
        text = marks.mark_text(align=SIDE, baseline="bottom", fontSize=11, dx=_shift(4))
        layers += [marks.mark_rule(strokeDash=[2, 3]), text.encode(y=alt.value(HEIGHT - 4), text="text:N")]
    return layers


def _label_panel(rows: Sequence[Row], domain: tuple[float, float], names: Sequence[str]) -> list[Row]:
    """Return a row for the label of each line of a panel that has several, at the end where the lines are furthest apart.

    The label of published values is at their top.
    """
    lines: dict[str, list[Row]] = {}
    for row in rows:
        lines.setdefault(row["key"], []).append(row)
    if len(lines) < 2:
        return []
    ends = [name for name in names if name in {row["position"] for row in rows}]
    near = math.ceil(len(ends) * LABELED)

    def find_points(near: Sequence[str]) -> list[Row]:
        """Return the highest row of each line near an end, above which its label is, as a row of that end."""
        tops = [max((row for row in line if row["position"] in near), key=VALUE, default=None) for line in lines.values()]
        end = next(row for row in rows if row["position"] == near[0])
        return sorted((top | {name: end[name] for name in ("position", "x")} for top in tops if top), key=VALUE)

    sides = [("left", find_points(ends[:near])), ("right", find_points(ends[::-1][:near]))]
    gaps = [min((high["value"] - low["value"] for low, high in pairwise(points)), default=0.0) for _, points in sides]
    side, points = sides[0] if gaps[0] >= gaps[1] else sides[1]
    heights = spread_labels([point["value"] for point in points], domain)
    return [
        {name: point[name] for name in ("panel", "position", "x", "order", "key", "model", "line")}
        | {"kind": LABEL_ROW, "value": height, "side": side, "ink": point["label_ink"]}
        for point, height in zip(points, heights, strict=True)
    ]


def spread_labels(values: Sequence[float], domain: tuple[float, float]) -> list[float]:
    """Return the heights of labels above ascending values, so that none covers another and all are inside the axis."""
    low, extent = domain[0], domain[1] - domain[0]
    return [low + extent * height for height in spread_heights([(value - low) / extent for value in values])]


def _shift(pixels: int) -> alt.ExprRef:
    return alt.ExprRef(f"datum.side === 'left' ? {pixels} : {-pixels}")


def _label_layers(base: alt.Chart, shift: int) -> list[alt.Chart]:
    """Return labels, moved by some pixels to their side, and their outlines in white: they are readable across lines."""
    labels = _only(base, LABEL_ROW).encode(text="key:N")
    style: dict[str, Any] = {"align": SIDE, "baseline": "middle", "fontSize": 11, "dx": _shift(shift)}
    outline = labels.mark_text(**style, stroke="white", strokeWidth=3, strokeJoin="round")
    return [outline.encode(color=alt.value("white")), labels.mark_text(**style)]


def _mark_windows(labels: Sequence[str], results: Sequence[ProbeResult]) -> Iterator[Row]:
    """Yield a row where each model's window ends in a median document."""
    side = "right" if max((result.share_read or 0.0 for result in results), default=0.0) >= 0.5 else "left"
    for label, result in zip(labels, results, strict=True):
        if result.share_read is not None:
            who, end = (label, "") if len(results) > 1 else ("the model", ", to here")
            shared = {"panel": "", "model": label, "line": "", "key": "", "order": 0, "kind": WINDOW_ROW, "side": side}
            yield shared | {"x": result.share_read, "text": f"{who} reads {result.window:,} tokens{end}"}


def _draw_categories(
    rows: list[Row], keys: Sequence[str], order: Sequence[str], probe: Probe, color: alt.Color
) -> tuple[list[alt.Chart], int]:
    present = {row["position"] for row in rows}
    names = [name for name in order if name in present]
    lanes = [*keys, *dict.fromkeys(row["key"] for row in rows if row["kind"] == PUBLISHED_ROW)]
    block = NAME + ROW * len(lanes)
    for row in rows:
        row["y"] = names.index(row["position"]) * block + NAME + ROW * (lanes.index(row["key"]) + 0.5)
    domain = find_domain(rows, ("value", "value_low", "value_high"))
    labels = _label_dots(rows, domain) if len(keys) <= MOST_LABELS else []
    headed = dict.fromkeys((row["panel"], row["position"]) for row in rows)
    headings = [
        {"kind": NAME_ROW, "panel": panel, "y": names.index(name) * block + NAME, "key": name} for panel, name in headed
    ]
    rows += [*labels, *headings]
    scale = alt.Scale(domain=list(domain), nice=False) if probe.same_scale else alt.Scale(zero=True)
    x, low = (alt.X(f"{field}:Q", title=None, scale=scale, axis=_value_axis(probe.unit)) for field in ("value", "value_low"))
    height = len(names) * block + ROW // 2
    y = alt.Y("y:Q", title=None, axis=None, scale=alt.Scale(domain=[height, 0], nice=False))
    base = alt.Chart().encode(y=y, color=color)
    dots = base.encode(x=x, tooltip=_tooltips(probe.unit))
    intervals = base.transform_filter("isValid(datum.value_low)").encode(x=low, x2="value_high:Q")
    heading = _only(base, NAME_ROW).mark_text(align="left", baseline="bottom", fontSize=11, fontWeight="bold")
    ends = {"y": alt.value(0), "y2": alt.value(height)}
    zero = _only(base, NAME_ROW).mark_rule().encode(x=alt.datum(0), color=alt.value(FAINT), **ends)
    drawn = [
        *([zero] if domain[0] < 0 else []),
        intervals.mark_rule(strokeWidth=2, opacity=0.7),
        _only(dots, PUBLISHED_ROW).mark_tick(thickness=1.5, size=ROW),
        _only(dots, CONTROL_ROW).mark_point(shape="square", filled=True, opacity=1, size=50),
        _only(dots, MODEL_ROW).mark_point(filled=True, opacity=1, size=60),
        *_label_layers(base.encode(x=x), 8),
        heading.encode(x=alt.value(4), text="key:N", color=alt.value(INK)),
    ]
    return drawn, height


def _label_dots(rows: Sequence[Row], domain: tuple[float, float]) -> list[Row]:
    """Return a row for the label of each line beside its first dot in each panel that has several lines."""
    first: dict[tuple[str, str], Row] = {}
    for row in rows:
        known = first.setdefault((row["panel"], row["key"]), row)
        if known["position"] == row["position"] and row["value"] > known["value"]:
            first[row["panel"], row["key"]] = row
    labels = []
    for (panel, key), row in first.items():
        if sum(of_panel == panel for of_panel, _ in first) > 1:
            side = "left" if row["value"] <= sum(domain) / 2 else "right"
            end = row.get("value_high" if side == "left" else "value_low")
            shared = {"panel": panel, "key": key, "y": row["y"], "ink": row["label_ink"]}
            labels.append(shared | {"kind": LABEL_ROW, "value": row["value"] if end is None else end, "side": side})
    return labels


def _tooltips(unit: Unit) -> list[alt.Tooltip]:
    form = ".1%" if unit is Unit.PERCENT else ".4f"
    fields = {"value": "Value", "value_low": "95 % interval, from", "value_high": "95 % interval, to"}
    numbers = [alt.Tooltip(f"{field}:Q", title=title, format=form) for field, title in fields.items()]
    return [alt.Tooltip("key:N", title="Of"), alt.Tooltip("position:N", title="Position"), *numbers]
