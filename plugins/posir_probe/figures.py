"""Figures of probes: models overlaid, each with its interval, labeled directly, published values in gray behind them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import altair as alt
import numpy as np

from posir_probe.probe import CONTROL, SEPARATOR, Form, Probe
from posir_probe.results import FEWEST_DOCUMENTS, ProbeResult
from posir_published.probes import PublishedCurve, read_published_curves
from posir_report.summary import short_labels
from posir_tasks.display.charts import COLORS, FAINT, INK, NULL, PERCENT, add_frame, cycle_scale
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
#: Pixels between two labels, and the share of an axis that a label covers at most.
LABEL, LABELED = 13, 0.25
PUBLISHED = "other models, as published"
#: Kinds of rows.
MODEL_ROW, CONTROL_ROW, PUBLISHED_ROW, LABEL_ROW, WINDOW_ROW, NAME_ROW = (
    "model", "control", "published", "label", "window", "name",
)  # fmt: skip
#: Where the text of a label begins, which is its alignment, and to which side it is moved.
SIDES: tuple[tuple[Literal["left", "right"], int], ...] = (("left", 1), ("right", -1))
#: A row of a chart's data.
Row = dict[str, Any]


def build_figures(results: Sequence[ProbeResult], probes: Mapping[str, Probe]) -> list[Figure]:
    """Return a figure for each probe and dataset, with all models; the title is the finding of the first."""
    groups: dict[tuple[str, str], list[ProbeResult]] = {}
    for result in results:
        groups.setdefault((result.probe, result.data), []).append(result)
    return [
        Figure(name, data, None, _frame(group, probes.get(name) or Probe.unknown(name)))
        for (name, data), group in groups.items()
    ]


def _frame(results: Sequence[ProbeResult], probe: Probe) -> alt.VConcatChart:
    first = results[0]
    shown = results[:1] if probe.is_of_data else results
    labels = short_labels(shown)
    finding = probe.find(first.sums) or probe.title
    title = f"{labels[0]}: {finding}" if len(shown) > 1 else finding
    subject = first.data if probe.is_of_data else f"{', '.join(labels)}; {first.data}"
    explanation = " ".join([*_describe_axes(probe), *_explain(shown, probe)])
    framed = add_frame(alt.vconcat(_draw(shown, labels, probe)), title, subject, explanation, _cite(first, probe))
    # The figure as a whole has an alternative text, and a mark without rows would be an image without one.
    described: alt.VConcatChart = framed.configure_mark(aria=False)
    return described


def _describe_axes(probe: Probe) -> Iterator[str]:
    value = probe.value_title or probe.title
    vertical = (value, probe.place_title) if probe.form is not Form.CATEGORIES else (probe.place_title, value)
    for direction, axis in zip(("Vertical", "Horizontal"), vertical, strict=True):
        if axis:
            # A name such as Pearson's keeps its capital.
            yield f"{direction}: {axis if axis[1:2].isupper() or axis.startswith('Pearson') else axis[0].lower() + axis[1:]}."


def _explain(results: Sequence[ProbeResult], probe: Probe) -> Iterator[str]:
    known = any(estimate and estimate.interval for result in results for estimate in result.sums.estimates())
    if probe.form is Form.CELLS:
        yield "Darker: more sentences."
        return
    if not known:
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


def _cite(result: ProbeResult, probe: Probe) -> str:
    data = f"Source: {result.data}, {pluralize(result.sums.documents, 'document')}."
    return f"{data} Method: {probe.source}." if probe.source else data


def _draw(results: Sequence[ProbeResult], labels: Sequence[str], probe: Probe) -> alt.FacetChart | alt.LayerChart:
    """Return the values of one probe on one dataset, a panel for each series."""
    if probe.form is Form.CELLS:
        return _draw_scatter(results, labels, probe)
    measured = list(zip(labels, results, strict=True))
    return draw_curves(measured, read_published_curves(results[0].probe), probe)


def _draw_scatter(results: Sequence[ProbeResult], labels: Sequence[str], probe: Probe) -> alt.FacetChart:
    """Return the number of points in each cell of a plane, a panel for each series and model."""
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
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    legend = alt.Legend(orient="top", gradientLength=200)
    chart: alt.FacetChart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_rect()
        .encode(
            x=alt.X("x:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5)),
            x2="x2:Q",
            y=alt.Y("y:Q", title=None, scale=alt.Scale(domain=[-1, 1]), axis=alt.Axis(tickCount=5)),
            y2="y2:Q",
            color=alt.Color("points:Q", title="Sentences", scale=alt.Scale(type="log", scheme="greys"), legend=legend),
            tooltip=["x:Q", "y:Q", "points:Q"],
        )
        .properties(width=WIDTH, height=HEIGHT)
        .facet(facet=alt.Facet("panel:N", title=None, sort=panels), columns=PANELS_PER_ROW)
    )
    return chart


def draw_curves(
    measured: Sequence[tuple[str, ProbeResult]], published: Sequence[PublishedCurve], probe: Probe
) -> alt.FacetChart | alt.LayerChart:
    """Return the values of all models, given with their labels, a panel for each series."""
    rows = [row for label, result in measured for row in _model_rows(label, result, probe)]
    keys = _name_lines(rows, several=len(measured) > 1)
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    rows += [row for curve in published for row in _published_rows(curve, probe) if row["panel"] in panels]
    _set_colors(rows, keys)
    color = _color_lines(keys)
    if probe.form is Form.CATEGORIES:
        order = dict.fromkeys(probe.split(name)[2] for name in measured[0][1].sums.positions)
        layers, height = _draw_categories(rows, keys, list(order), probe, color)
    else:
        if probe.shows_window:
            rows += [row for label, result in measured for row in _window_rows(label, result, several=len(measured) > 1)]
        layers, height = _draw_lines(rows, keys, probe, color, bands=len(measured) <= MOST_INTERVALS), HEIGHT
    width = WIDTH if len(panels) > 1 else WIDE
    chart = alt.layer(*layers, data=alt.InlineData(values=rows)).properties(width=width, height=height)
    if len(panels) == 1:
        return chart
    facets = chart.facet(facet=alt.Facet("panel:N", title=None, sort=panels), columns=PANELS_PER_ROW)
    return facets if probe.same_scale else facets.resolve_scale(x="independent")


def _model_rows(label: str, result: ProbeResult, probe: Probe) -> Iterator[Row]:
    sums = result.sums
    named = [
        *((name, sums.estimate(average)) for name, average in probe.averages.items()),
        *zip(sums.positions, sums.estimates(), strict=True),
    ]
    unknown = np.full(len(sums.positions), np.nan)
    deviations = [math.nan] * len(probe.averages) + sums.details.get("sd", unknown).tolist()
    for order, ((name, estimate), deviation) in enumerate(zip(named, deviations, strict=True)):
        if estimate is not None:
            panel, line, position = probe.split(name)
            sd = deviation if math.isfinite(deviation) else 0.0
            yield {
                "model": label, "line": line, "panel": panel, "position": position, "order": order,
                "kind": CONTROL_ROW if line == CONTROL else MODEL_ROW,
                "x": probe.place_shares.get(name.rpartition(SEPARATOR)[2]),
                **flatten("value", estimate),
                "sd_low": estimate.value - sd, "sd_high": estimate.value + sd,
            }  # fmt: skip


def _published_rows(curve: PublishedCurve, probe: Probe) -> Iterator[Row]:
    deviations = curve.deviations or (0.0,) * len(curve.values)
    for order, (name, value, sd) in enumerate(zip(curve.positions, curve.values, deviations, strict=True)):
        panel, line, position = probe.split(name)
        yield {
            "model": curve.model, "line": line, "panel": panel, "position": position, "order": order,
            "kind": PUBLISHED_ROW, "key": PUBLISHED, "x": probe.place_shares.get(name.rpartition(SEPARATOR)[2]), "value": value,
            "sd_low": value - sd, "sd_high": value + sd,
        }  # fmt: skip


def _name_lines(rows: Sequence[Row], *, several: bool) -> list[str]:
    """Set the name of each row's line, and return the names, that of the control last."""
    for row in rows:
        named = f"{row['model']}: {row['line']}" if several else row["line"]
        row["key"] = CONTROL if row["line"] == CONTROL else named if row["line"] else row["model"]
    return sorted(dict.fromkeys(row["key"] for row in rows), key=lambda key: key == CONTROL)


def _set_colors(rows: Sequence[Row], keys: Sequence[str]) -> None:
    """Set the color of each row: one for each line, gray for controls and published values."""
    colors = dict(zip(keys, _list_colors(keys), strict=True))
    for row in rows:
        row["ink"] = colors.get(row["key"], NULL)


def _list_colors(keys: Sequence[str]) -> list[str]:
    colors = cycle_scale(keys, COLORS).to_dict()["range"]
    return [FAINT if key == CONTROL else color for key, color in zip(keys, colors, strict=True)]


def _color_lines(keys: Sequence[str]) -> alt.Color:
    """Return the color of each row, with a legend where there are too many lines for labels of their own."""
    if len(keys) <= MOST_LABELS:
        return alt.Color("ink:N", scale=None, legend=None)
    scale = alt.Scale(domain=list(keys), range=_list_colors(keys))
    return alt.Color("key:N", title=None, scale=scale, legend=alt.Legend(orient="top", columns=1, symbolOpacity=1))


def _only(chart: alt.Chart, kind: str, condition: str = "true") -> alt.Chart:
    """Return a chart of the rows of one kind."""
    filtered: alt.Chart = chart.transform_filter(f"datum.kind === '{kind}' && {condition}")
    return filtered


def _count(rows: Sequence[Row], kind: str) -> int:
    """Return the number of rows of a kind."""
    return sum(row["kind"] == kind for row in rows)


def _has_intervals(rows: Sequence[Row]) -> bool:
    return any(row.get("value_low") is not None for row in rows)


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
        rows += _label_lines(placed, domain, names)
    base = alt.Chart().encode(x=_place_axis(probe, names), color=color, detail="model:N")
    scale, axis = alt.Scale(domain=list(domain), nice=False), _value_axis(probe.unit)
    y, low, deviation = (alt.Y(f"{field}:Q", title=None, scale=scale, axis=axis) for field in ("value", "value_low", "sd_low"))
    lines = base.encode(y=y, tooltip=_tooltips(probe.unit))
    band = base.transform_filter("isValid(datum.value_low)").encode(y=low, y2="value_high:Q")
    if probe.form is Form.BARS:
        bars = _only(lines, MODEL_ROW).mark_bar(size=9, opacity=0.75)
        return [bars, *([band.mark_rule().encode(color=alt.value(INK))] if _has_intervals(rows) else [])]
    published = _only(lines, PUBLISHED_ROW).mark_line(strokeWidth=1)
    layers = [published] if _count(rows, PUBLISHED_ROW) else []
    if probe.shows_spread:
        layers.append(base.transform_filter("isValid(datum.sd_low)").mark_area(opacity=0.1).encode(y=deviation, y2="sd_high:Q"))
    layers += [band.mark_area(opacity=0.16)] if bands and _has_intervals(rows) else []
    points = len(names) <= MOST_POINTS
    return [*layers, *_draw_measured(lines, rows, points=points), *_label_layers(base, y), *_window_layers(base, rows)]


def _draw_measured(lines: alt.Chart, rows: Sequence[Row], *, points: bool) -> list[alt.Chart]:
    """Return the lines of models, their second one dashed, and of controls."""
    point = {"size": 34} if points else False
    first, *others = dict.fromkeys(row["line"] for row in rows if row["kind"] == MODEL_ROW)
    layers = [_only(lines, MODEL_ROW, f"datum.line === '{first}'").mark_line(strokeWidth=1.8, point=point)]
    if others:
        dashed = _only(lines, MODEL_ROW, f"datum.line !== '{first}'")
        layers.append(dashed.mark_line(strokeWidth=1.8, point=point, strokeDash=[7, 3]))
    if _count(rows, CONTROL_ROW):
        layers.append(_only(lines, CONTROL_ROW).mark_line(strokeWidth=1.8, point=point, strokeDash=[3, 3]))
    return layers


def _place_axis(probe: Probe, names: Sequence[str]) -> alt.X:
    """Return the axis of places: of a text from 0 to 1, or of named ones."""
    if probe.form is Form.STEPS:
        axis = alt.Axis(labelAngle=0, labelLimit=90, labelOverlap=True)
        return alt.X("position:O", title=None, scale=alt.Scale(domain=list(names)), axis=axis)
    axis = alt.Axis(tickCount=5, format=".1f", grid=False)
    return alt.X("x:Q", title=None, scale=alt.Scale(domain=[0, 1], nice=False), axis=axis)


def _label_lines(rows: Sequence[Row], domain: tuple[float, float], names: Sequence[str]) -> list[Row]:
    """Return a row for the label of each line of each panel that has several, where the lines are furthest apart."""
    labels: list[Row] = []
    for panel in dict.fromkeys(row["panel"] for row in rows):
        lines: dict[str, list[Row]] = {}
        for row in (row for row in rows if row["panel"] == panel):
            lines.setdefault(row["key"], []).append(row)
        if len(lines) > 1:
            labels += _label_panel(list(lines.values()), domain, names)
    return labels


def _label_panel(lines: Sequence[Sequence[Row]], domain: tuple[float, float], names: Sequence[str]) -> list[Row]:
    """Return a row for the label of each line at the first or the last place; that of published ones is at their top."""
    known = {row["position"] for line in lines for row in line}
    ends = [name for name in names if name in known]

    def find_points(near: Sequence[str]) -> list[Row]:
        """Return the highest row of each line near an end, above which its label is, as a row of that end."""
        tops = [max((row for row in line if row["position"] in near), key=_value, default=None) for line in lines]
        at = next(row for line in lines for row in line if row["position"] == near[0])
        return sorted((top | {name: at[name] for name in ("position", "x")} for top in tops if top), key=_value)

    def measure_gap(points: Sequence[Row]) -> float:
        return min((_value(high) - _value(low) for low, high in pairwise(points)), default=0.0)

    near = math.ceil(len(ends) * LABELED)
    first, last = find_points(ends[:near]), find_points(ends[::-1][:near])
    side, points = ("left", first) if measure_gap(first) >= measure_gap(last) else ("right", last)
    heights = spread_labels([_value(point) for point in points], domain)
    return [
        {name: point[name] for name in ("panel", "position", "x", "order", "key", "model", "line")}
        | {"kind": LABEL_ROW, "value": height, "side": side, "ink": _label_color(point)}
        for point, height in zip(points, heights, strict=True)
    ]


def _label_color(row: Row) -> str:
    return FAINT if row["kind"] == PUBLISHED_ROW else str(row["ink"])


def _value(row: Row) -> float:
    return float(row["value"])


def spread_labels(values: Sequence[float], domain: tuple[float, float]) -> list[float]:
    """Return the heights of labels above ascending values, so that none covers another and all are inside the axis."""
    pixel = (domain[1] - domain[0]) / HEIGHT
    heights: list[float] = []
    for value in values:
        heights.append(max(value + 9 * pixel, heights[-1] + LABEL * pixel) if heights else value + 9 * pixel)
    top = domain[1] - 5 * pixel
    for at in range(len(heights) - 1, -1, -1):
        heights[at] = min(heights[at], top)
        top = heights[at] - LABEL * pixel
    return heights


def _label_layers(base: alt.Chart, y: alt.Y) -> list[alt.Chart]:
    """Return the labels of lines, each on a white outline, so that it is readable across lines."""
    layers = []
    for side, shift in SIDES:
        chosen = _only(base, LABEL_ROW, f"datum.side === '{side}'").encode(y=y, text="key:N")
        outline = chosen.mark_text(
            align=side, baseline="middle", fontSize=11, dx=3 * shift, stroke="white", strokeWidth=3, strokeJoin="round"
        )
        layers.append(outline.encode(color=alt.value("white")))
        layers.append(chosen.mark_text(align=side, baseline="middle", fontSize=11, dx=3 * shift))
    return layers


def _window_rows(label: str, result: ProbeResult, *, several: bool) -> Iterator[Row]:
    """Yield the row that marks where a model's window ends in a median document."""
    share, tokens = result.share_read, result.window
    if share is not None and tokens is not None:
        text = f"{label} reads {tokens:,} tokens" if several else f"the model reads {tokens:,} tokens, to here"
        shared = {"panel": "", "model": label, "line": "", "key": "", "order": 0}
        yield shared | {"kind": WINDOW_ROW, "x": share, "text": text}


def _window_layers(base: alt.Chart, rows: Sequence[Row]) -> list[alt.Chart]:
    """Return the marks of windows, if there are any."""
    windows = [row["x"] for row in rows if row["kind"] == WINDOW_ROW]
    if not windows:
        return []
    marks = _only(base, WINDOW_ROW).encode(color=alt.value(FAINT))
    side, shift = SIDES[0] if max(windows) < 0.5 else SIDES[1]
    text = marks.mark_text(align=side, baseline="bottom", fontSize=11, dx=4 * shift)
    return [marks.mark_rule(strokeDash=[2, 3]), text.encode(y=alt.value(HEIGHT - 4), text="text:N")]


def _draw_categories(
    rows: list[Row], keys: Sequence[str], order: Sequence[str], probe: Probe, color: alt.Color
) -> tuple[list[alt.Chart], int]:
    """Return the layers of dots with intervals, a block for each category in order, and their height."""
    present = {row["position"] for row in rows}
    names = [name for name in order if name in present]
    lanes = [*keys, *([PUBLISHED] if _count(rows, PUBLISHED_ROW) else [])]
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
    layers = {
        PUBLISHED_ROW: _only(dots, PUBLISHED_ROW).mark_tick(thickness=1.5, size=ROW),
        CONTROL_ROW: _only(dots, CONTROL_ROW).mark_point(shape="square", filled=True, opacity=1, size=50),
        MODEL_ROW: _only(dots, MODEL_ROW).mark_point(filled=True, opacity=1, size=60),
    }
    drawn = [
        *([zero] if domain[0] < 0 else []),
        *([intervals.mark_rule(strokeWidth=2, opacity=0.7)] if _has_intervals(rows) else []),
        *(layer for kind, layer in layers.items() if _count(rows, kind)),
        *(_label_layers_of_dots(base.encode(x=x)) if labels else []),
        heading.encode(x=alt.value(4), text="key:N", color=alt.value(INK)),
    ]
    return drawn, height


def _label_dots(rows: Sequence[Row], domain: tuple[float, float]) -> list[Row]:
    """Return a row for the label of each line beside its first dot in each panel that has several lines."""
    first: dict[tuple[str, str], Row] = {}
    for row in rows:
        known = first.setdefault((row["panel"], row["key"]), row)
        if known["position"] == row["position"] and _value(row) > _value(known):
            first[row["panel"], row["key"]] = row
    labels = []
    for (panel, key), row in first.items():
        if sum(of_panel == panel for of_panel, _ in first) > 1:
            side = "left" if _value(row) <= sum(domain) / 2 else "right"
            end = row.get("value_high" if side == "left" else "value_low")
            shared = {"panel": panel, "key": key, "y": row["y"], "ink": _label_color(row)}
            labels.append(shared | {"kind": LABEL_ROW, "value": row["value"] if end is None else end, "side": side})
    return labels


def _label_layers_of_dots(base: alt.Chart) -> list[alt.Chart]:
    """Return the labels of dots, beside them toward the middle of the axis."""
    return [
        _only(base, LABEL_ROW, f"datum.side === '{side}'")
        .mark_text(align=side, baseline="middle", fontSize=11, dx=8 * shift)
        .encode(text="key:N")
        for side, shift in SIDES
    ]


def _tooltips(unit: Unit) -> list[alt.Tooltip]:
    form = ".1%" if unit is Unit.PERCENT else ".4f"
    fields = {"value": "Value", "value_low": "95 % interval, from", "value_high": "95 % interval, to"}
    numbers = [alt.Tooltip(f"{field}:Q", title=title, format=form) for field, title in fields.items()]
    return [alt.Tooltip("key:N", title="Of"), alt.Tooltip("position:N", title="Position"), *numbers]
