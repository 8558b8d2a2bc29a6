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
from posir_tasks.values.scores import Unit, flatten

WIDTH, WIDE, HEIGHT, PANELS_PER_ROW = 300, 640, 190, 3
#: Height of a line of a category.
ROW = 11
#: Values at more positions have no points on their line.
MAX_POINTS = 20
#: Most models whose intervals are drawn over each other.
MAX_INTERVALS = 4
PUBLISHED = "published"
#: Gray of published values, three times as dark as paper.
PALE = "#949494"
#: Glyphs of published values in a legend: as they are drawn.
LINE, TICK = "M-1.4,-.15H1.4V.15H-1.4Z", "M-.15,-1V1H.15V-1Z"
#: Kinds of rows.
MODEL_ROW, CONTROL_ROW, PUBLISHED_ROW, WINDOW_ROW = "model", "control", "published", "window"
#: A row of a chart's data.
Row: TypeAlias = dict[str, Any]


def build_figure(results: Sequence[ProbeResult], probe: Probe) -> Figure:
    """Return the figure of a probe on a dataset, with all models; the title is the description of
    the first.
    """
    first = results[0]
    shown = results[:1] if probe.ignores_model else results
    labels = ["these data"] if probe.ignores_model else short_labels(shown)
    described = probe.describe(first.sums)
    title = f"{labels[0]} · {described}" if len(shown) > 1 else described
    subject = first.data if probe.ignores_model else f"{', '.join(labels)}; {first.data}"
    source = f"Source: {first.data}, {pluralize(first.sums.documents, probe.unit_name)}."
    source += f" Method: {probe.source}." if probe.source else ""
    draw = _draw_scatter if probe.form is Form.CELLS else _draw_curves
    framed = add_frame(
        alt.vconcat(draw(shown, labels, probe)),
        title,
        subject,
        " ".join(_explain(shown, probe)),
        source,
    )
    # The figure as a whole has an alternative text, and a mark without rows would be an image
    # without one.
    return Figure(first.probe, first.data, None, framed.configure_mark(aria=False))


def _explain(results: Sequence[ProbeResult], probe: Probe) -> Iterator[str]:
    if probe.form is Form.CELLS:
        yield "The legend names the number of sentences in a cell."
        return
    has_intervals = any(
        estimate and estimate.interval for result in results for estimate in result.sums.estimates
    )
    is_line = probe.form not in (Form.CATEGORIES, Form.BARS)
    if has_intervals and (not is_line or len(results) <= MAX_INTERVALS):
        yield (
            f"{'Inner band' * probe.shows_spread or 'Band' * is_line or 'Lines'}: 95% intervals "
            "by bootstrap over documents."
        )
    if probe.shows_spread:
        yield "Outer band: one standard deviation over pairs."
    if any(probe.split(name)[1] == CONTROL for name in results[0].sums.positions):
        yield f"An {CONTROL} on the same texts is shown next to them."
    if read_published_curves(probe.name):
        yield (
            "Gray: published values of other "
            f"{'data' if probe.ignores_model else 'models, on other data'}."
        )


def _draw_scatter(
    results: Sequence[ProbeResult], labels: Sequence[str], probe: Probe
) -> alt.FacetChart:
    width, height = probe.cell_size
    titles = {panel: probe.split(f"{panel}{SEPARATOR}")[0] for panel, _, _ in probe.cells}
    rows = [
        {
            "panel": f"{label}: {titles[panel]}" if len(results) > 1 else titles[panel],
            "x": round(x - width / 2, 6),
            "x2": round(x + width / 2, 6),
            "y": round(y - height / 2, 6),
            "y2": round(y + height / 2, 6),
            "points": points,
        }
        for label, result in zip(labels, results, strict=True)
        for (panel, x, y), points in zip(
            probe.cells, result.sums.totals[:, 0].tolist(), strict=True
        )
        if points
    ]
    axis, legend = alt.Axis(tickCount=5), alt.Legend(orient="top", gradientLength=200)
    cells = (
        build_chart(rows)
        .mark_rect()
        .encode(
            x=alt.X("x:Q", title=probe.place_title, scale=alt.Scale(domain=[0, 1]), axis=axis),
            x2="x2:Q",
            y=alt.Y("y:Q", title=probe.value_title, scale=alt.Scale(domain=[-1, 1]), axis=axis),
            y2="y2:Q",
            color=alt.Color(
                "points:Q",
                title="Sentences",
                scale=alt.Scale(type="log", scheme="greys"),
                legend=legend,
            ),
            tooltip=["x:Q", "y:Q", "points:Q"],
        )
    )
    return _facet(cells.properties(width=WIDTH, height=HEIGHT), [row["panel"] for row in rows])


def _facet(
    chart: alt.Chart | alt.LayerChart | alt.FacetChart, panels: Iterable[str]
) -> alt.FacetChart:
    names = list(dict.fromkeys(panels))
    columns = math.ceil(len(names) / math.ceil(len(names) / PANELS_PER_ROW))
    facets: alt.FacetChart = chart.facet(
        facet=alt.Facet("panel:N", title=None, sort=names), columns=columns
    )
    return facets


def _draw_curves(
    results: Sequence[ProbeResult], labels: Sequence[str], probe: Probe
) -> alt.FacetChart | alt.LayerChart:
    rows = [
        row
        for label, result in zip(labels, results, strict=True)
        for row in _model_rows(label, result, probe)
    ]
    for row in rows:
        named = f"{row['model']}: {row['line']}" if len(results) > 1 else row["line"]
        row["key"] = CONTROL if row["line"] == CONTROL else named if row["line"] else row["model"]
    # The control is last.
    keys = sorted(dict.fromkeys(row["key"] for row in rows), key=lambda key: key == CONTROL)
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    measured, is_listed = {row["position"] for row in rows}, probe.form is Form.CATEGORIES
    for curve in read_published_curves(results[0].probe):
        for order, (name, value) in enumerate(zip(curve.positions, curve.values, strict=True)):
            row = _build_row(
                curve.model, name, order, {"value": value, "interval": "not published"}, 0.0, probe
            )
            row |= {"kind": PUBLISHED_ROW, "key": PUBLISHED}
            rows += (
                [row]
                if row["panel"] in panels and (row["position"] in measured or not is_listed)
                else []
            )
    named = list(dict.fromkeys([*keys, *(row["key"] for row in rows)]))
    color, shape, dash = tell_apart(
        "key", named, legend_of_models(named) if len(named) > 1 else None
    )
    # Gray for controls and published values.
    glyph = TICK if probe.form is Form.CATEGORIES else LINE
    for scale, own in (
        (color["scale"], {CONTROL: FAINT, PUBLISHED: PALE}),
        (shape["scale"], {PUBLISHED: glyph}),
    ):
        scale["range"] = [
            own.get(key, cycled) for key, cycled in zip(named, scale["range"], strict=True)
        ]
    width, height = (
        WIDTH if len(panels) > 1 else WIDE,
        alt.Step(ROW) if probe.form is Form.CATEGORIES else HEIGHT,
    )
    if probe.form is Form.CATEGORIES:
        places = dict.fromkeys(probe.split(name)[2] for name in results[0].sums.positions)
        layers = _draw_categories(rows, list(places), probe, (named, color, shape))
    else:
        layers = _draw_lines(rows, probe, (color, shape, dash), bands=len(results) <= MAX_INTERVALS)
        if probe.shows_window:
            rows += _mark_windows(labels, results)
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
            row = _build_row(
                label,
                name,
                order,
                flatten("value", estimate),
                sd if math.isfinite(sd) else 0.0,
                probe,
            )
            interval = format_interval(estimate, FORMATS[probe.unit]) or "too few texts"
            yield row | {
                "kind": CONTROL_ROW if row["line"] == CONTROL else MODEL_ROW,
                "interval": interval,
            }


def _build_row(
    model: str, name: str, order: int, values: Mapping[str, Any], sd: float, probe: Probe
) -> Row:
    panel, line, position = probe.split(name)
    share = probe.place_shares.get(name.rpartition(SEPARATOR)[2])
    return {
        "model": model, "line": line, "panel": panel, "order": order, "x": share,
        "position": f"{100 * share:.0f}%" if share is not None and position.isdigit() else position,
        **values, "shown": FORMATS[probe.unit](values["value"]),
        "sd_low": values["value"] - sd, "sd_high": values["value"] + sd,
    }  # fmt: skip


def _only(chart: alt.Chart, *kinds: str) -> alt.Chart:
    filtered: alt.Chart = chart.transform_filter(alt.FieldOneOfPredicate("kind", kinds))
    return filtered


def _encode_values(channel: Any, probe: Probe) -> tuple[Any, ...]:
    """Return the encodings of values, and of the lower ends of intervals and spreads."""
    axis = (
        PERCENT if probe.unit is Unit.PERCENT else alt.Axis(tickCount=5 if probe.same_scale else 3)
    )
    shared: dict[str, Any] = {
        "title": probe.value_title or probe.title,
        "scale": alt.Scale(zero=True),
        "axis": axis,
    }
    return tuple(channel(f"{field}:Q", **shared) for field in ("value", "value_low", "sd_low"))


def _draw_lines(rows: Sequence[Row], probe: Probe, looks: Looks, *, bands: bool) -> list[alt.Chart]:
    """Return the layers of lines over places, and of where a model's window ends."""
    color, shape, dash = looks
    names = list(
        dict.fromkeys(row["position"] for row in sorted(rows, key=lambda row: float(row["order"])))
    )
    x = alt.X(
        "x:Q",
        title=probe.place_title,
        scale=alt.Scale(domain=[0, 1], nice=False),
        axis=alt.Axis(tickCount=5, format=".1f", grid=False),
    )
    if probe.form is Form.STEPS:
        axis = alt.Axis(labelAngle=0, labelLimit=90, labelOverlap=True)
        x = alt.X("position:O", title=probe.place_title, scale=alt.Scale(domain=names), axis=axis)
    base = alt.Chart().encode(x=x, color=color, detail=["model:N", "line:N"])
    y, low, deviation = _encode_values(alt.Y, probe)
    lines = base.encode(y=y, tooltip=_tooltips(rows))
    band = base.transform_filter("isValid(datum.value_low)").encode(y=low, y2="value_high:Q")
    has_intervals = any(row.get("value_low") is not None for row in rows)
    if probe.form is Form.BARS:
        bars = _only(lines, MODEL_ROW).mark_bar(size=9, opacity=0.75)
        return [bars, *[band.mark_rule().encode(color=alt.value(INK))] * has_intervals]
    # A thin line is found by its points, which do not show.
    published = _only(lines, PUBLISHED_ROW).mark_line(
        strokeWidth=0.8, point={"opacity": 0, "size": 80}
    )
    layers = [published] * any(row["kind"] == PUBLISHED_ROW for row in rows)
    if probe.shows_spread:
        layers.append(
            base.transform_filter("isValid(datum.sd_low)")
            .mark_area(opacity=0.1)
            .encode(y=deviation, y2="sd_high:Q")
        )
    layers += [band.mark_area(opacity=0.16)] * (bands and has_intervals)
    point = {"size": 34} if len(names) <= MAX_POINTS else {"opacity": 0, "size": 80}
    own = _only(lines, MODEL_ROW, CONTROL_ROW).mark_line(strokeWidth=1.8, point=point)
    layers.append(own.encode(strokeDash=dash, shape=shape))
    if probe.shows_window:
        marks = _only(base, WINDOW_ROW)
        text = marks.mark_text(
            align=alt.ExprRef("datum.side"),
            baseline="bottom",
            fontSize=12,
            dx=alt.ExprRef("datum.dx"),
        )
        rule = marks.mark_rule(**WINDOW_END).encode(color=alt.value(FAINT))
        layers += [rule, text.encode(y=alt.value(HEIGHT - 4), text="text:N", color=alt.value(INK))]
    return layers


def _mark_windows(labels: Sequence[str], results: Sequence[ProbeResult]) -> Iterator[Row]:
    """Yield a row where each model's window ends in a median document."""
    share = max(result.share_read or 0.0 for result in results)
    beside = {"side": "right", "dx": -4} if share > 0.5 else {"side": "left", "dx": 4}
    for label, result in zip(labels, results, strict=True):
        if result.share_read is not None:
            text = (
                f"{f'{label}: ' if len(results) > 1 else ''}{'reads' if share > 0.5 else 'beyond'} "
                f"{result.window:,} tokens"
            )
            yield {
                "panel": "",
                "model": label,
                "kind": WINDOW_ROW,
                "x": result.share_read,
                "text": text,
                **beside,
            }


def _draw_categories(
    rows: Sequence[Row],
    names: Sequence[str],
    probe: Probe,
    looks: tuple[Sequence[str], alt.Color, alt.Shape],
) -> list[alt.Chart]:
    """Return the layers of dots below each other; a layer without rows would have an axis without
    an extent.
    """
    keys, color, shape = looks
    x, low, _ = _encode_values(alt.X, probe)
    y = alt.Y("position:N", title=None, sort=list(names), axis=alt.Axis(labelLimit=WIDTH))
    base = alt.Chart().encode(y=y, yOffset=alt.YOffset("key:N", sort=list(keys)), color=color)
    dots = base.encode(x=x, tooltip=_tooltips(rows))
    intervals = base.transform_filter("isValid(datum.value_low)").encode(x=low, x2="value_high:Q")
    kinds, has_intervals = (
        {row["kind"] for row in rows},
        any(row.get("value_low") is not None for row in rows),
    )
    points = (
        _only(dots, MODEL_ROW, CONTROL_ROW)
        .mark_point(filled=True, opacity=1, size=60)
        .encode(shape=shape)
    )
    return [
        alt.Chart().mark_rule(color=FAINT).encode(x=alt.datum(0)),
        *[intervals.mark_rule(strokeWidth=2, opacity=0.7)] * has_intervals,
        *[_only(dots, PUBLISHED_ROW).mark_tick(thickness=1.5, size=ROW)] * (PUBLISHED_ROW in kinds),
        points,
    ]


def _tooltips(rows: Sequence[Row]) -> list[alt.Tooltip]:
    """Return the fields of a tooltip, of those that some row has."""
    named = {"model": "Model", "line": "Texts", "position": "Position", "interval": "95% interval"}
    fields = [
        alt.Tooltip(f"{name}:N", title=title)
        for name, title in named.items()
        if any(row[name] for row in rows)
    ]
    return [*fields[:-1], alt.Tooltip("shown:N", title="Value"), fields[-1]]
