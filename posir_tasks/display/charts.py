"""Build the parts of Altair charts: axes, layers, tooltips and panels.

The rows of a curve are cells with `position`, `start`, `middle`, `end`, `ndcg_at_10`, its interval
`ndcg_at_10_low` and `ndcg_at_10_high`, and its null band `null_low` and `null_high`. The rows of
other charts are models with the fields of `posir_report.summary.ReportRow`. Scores are in [0, 1].
nDCG@10 is shown x 100, as in the papers.
"""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import cycle, islice
from types import MappingProxyType
from typing import Any, Literal

import altair as alt
import vl_convert

from posir_tasks.base.records import Fields, Record
from posir_tasks.display.numbers import format_percent
from posir_tasks.values.schemes import Axes

#: Version of Vega-Lite, without patch number.
VEGA_LITE = ".".join(alt.SCHEMA_VERSION.split(".")[:2])
#: Colors of Okabe & Ito 2008 (Color Universal Design), dark ones first, without yellow, which is
#: too pale on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
#: Line patterns: lengths of strokes and gaps. The first is solid.
DASHES = ([1, 0], [7, 3], [2, 2], [7, 3, 2, 3], [12, 3], [4, 4])
#: Style name of numbers in cells, which narrow figures omit.
NUMBER = "number"
#: Style of the line at the end of a model's window.
WINDOW_END: Record = {"strokeDash": [4, 3], "strokeWidth": 1.3}
#: Colors of the null band, secondary text and text.
NULL, FAINT, INK = "#d4d4d4", "#666666", "#1a1a1a"
#: Characters per line of a title and of other text, for a chart of about 800 pixels.
TITLE_WIDTH, TEXT_WIDTH = 84, 138
LayeredChart = alt.LayerChart | alt.FacetChart
#: Encodings that distinguish lines and points.
LabelEncodings = tuple[alt.Color, alt.Shape, alt.StrokeDash]
CHART_CONFIG = alt.Config(
    font="DejaVu Sans, Verdana, sans-serif",
    padding=12,
    background="white",
    locale={
        "number": {
            "decimal": ".",
            "thousands": ",",
            "grouping": [3],
            "currency": ["$", ""],
            "minus": "-",
        }
    },
    view=alt.ViewConfig(continuousWidth=300, continuousHeight=300, stroke="#bbbbbb"),
    axis=alt.AxisConfig(
        labelFontSize=12,
        titleFontSize=12,
        titleFontWeight="normal",
        labelColor=INK,
        gridColor="#eeeeee",
    ),
    header=alt.HeaderConfig(
        labelFontSize=12,
        labelFontWeight="bold",
        labelAnchor="start",
        labelColor=INK,
        labelPadding=6,
    ),
    title=alt.TitleConfig(
        fontSize=15, subtitleFontSize=12, subtitleColor=FAINT, subtitlePadding=6, color=INK
    ),
    legend=alt.LegendConfig(
        labelFontSize=12, titleFontSize=12, labelLimit=640, titleFontWeight="normal", symbolSize=90
    ),
)


def _wrap(text: str, width: int = TEXT_WIDTH) -> list[str]:
    return textwrap.wrap(text, width, break_on_hyphens=False)


@dataclass(frozen=True, eq=False)
class Marks:
    """The marks and axes of a chart as Vega-Lite JSON."""

    specification: Fields = field(repr=False)
    datasets: Mapping[str, Sequence[Fields]] = field(repr=False)
    """Rows by name of the dataset."""


@dataclass(frozen=True, eq=False)
class FramedChart:
    """A chart with texts around it, which notebooks display as an SVG image."""

    specification: Fields = field(repr=False)
    """Vega-Lite JSON. It shares parts with other charts, so do not change it."""

    @property
    def texts(self) -> Fields:
        """The `title`, `subject`, `explanation` and `source`."""
        texts: Fields = self.specification["usermeta"]
        return texts

    def to_dict(self) -> Record:
        """Copy the Vega-Lite JSON, which `altair.Chart.from_dict` reads."""
        return deepcopy(dict(self.specification))

    def _repr_mimebundle_(self, *_: Any, **__: Any) -> dict[str, str]:
        return {"image/svg+xml": render_svg(self)}


def render_svg(chart: FramedChart) -> str:
    """Render a chart as SVG."""
    svg: str = vl_convert.vegalite_to_svg(dict(chart.specification), vl_version=VEGA_LITE)
    return svg


def build_chart(rows: Sequence[Fields]) -> alt.Chart:
    """Build a chart without marks. Altair limits data frames to 5,000 rows, but not inline data."""
    return alt.Chart(alt.InlineData(values=[dict(row) for row in rows]))


def compile_marks(chart: alt.TopLevelMixin) -> Marks:
    """Compile a chart to JSON. Tests validate all charts, since validation takes a second."""
    datasets: dict[str, Sequence[Fields]] = {}
    # Only whole charts have the properties of the theme that the user has enabled.
    context = {"top_level": False, "datasets": datasets}
    return Marks(chart.to_dict(validate=False, context=context), datasets)


def add_frame(
    marks: Marks,
    title: str,
    subject: str,
    explanation: str,
    source: str,
    numbers_in_words: str = "",
    config: Fields = MappingProxyType({}),
) -> FramedChart:
    """Add title, subject and explanation above a chart, and the source below.

    HTML pages read these texts from `usermeta` and show the chart without them.

    Args:
        marks: The marks and axes.
        title: The finding.
        subject: The models and data.
        explanation: The meaning of the marks.
        source: Data and revisions.
        numbers_in_words: A sentence with the numbers, for screen readers.
        config: Vega-Lite configuration in addition to `CHART_CONFIG`.
    """
    heading = {
        "text": [*_wrap(title, TITLE_WIDTH), *_wrap(subject, TITLE_WIDTH)],
        "anchor": "start",
        "offset": 14,
        "subtitle": _wrap(explanation),
    }
    source_line = {
        "text": _wrap(source),
        "anchor": "start",
        "color": FAINT,
        "fontSize": 12,
        "fontWeight": "normal",
        "offset": 12,
        "orient": "bottom",
    }
    texts = {"title": title, "subject": subject, "explanation": explanation, "source": source}
    sentences = [f"{text}." for text in (title, subject) if text]
    return FramedChart(
        {
            "$schema": alt.SCHEMA_URL,
            "config": {**CHART_CONFIG.to_dict(), **config},
            "vconcat": [{"vconcat": [marks.specification], "title": heading}],
            "title": source_line,
            "usermeta": texts,
            "description": " ".join(filter(None, [*sentences, numbers_in_words, explanation])),
            "datasets": marks.datasets,
        }
    )


def cycle_scale(labels: Sequence[str], values: Sequence[str] | Sequence[list[int]]) -> alt.Scale:
    """Build a scale that maps labels to values, which are repeated if there are more labels."""
    return alt.Scale(domain=list(labels), range=list(islice(cycle(values), len(labels))))


def encode_labels(field: str, labels: Sequence[str], legend: alt.Legend | None) -> LabelEncodings:
    """Encode labels by color, shape and line pattern in one legend, so that they differ in
    grayscale.
    """
    options: Record = {"title": None, "legend": legend}
    return (
        alt.Color(f"{field}:N", scale=cycle_scale(labels, COLORS), **options),
        alt.Shape(f"{field}:N", scale=cycle_scale(labels, SHAPES), **options),
        alt.StrokeDash(f"{field}:N", scale=cycle_scale(labels, DASHES), **options),
    )


def build_model_legend(labels: Sequence[str]) -> alt.Legend:
    """Build a legend below the chart, where long names fit."""
    return alt.Legend(
        orient="bottom",
        columns=1 if max(map(len, labels)) > 46 else 2,
        title=None,
        symbolOpacity=1,
        symbolStrokeWidth=0,
    )


SCORE = "nDCG@10 (x 100)"
PERCENT = alt.Axis(labelExpr="round(datum.value * 100)", tickCount=5, tickMinStep=0.01)
UNIT = alt.Scale(domain=[0, 1])
SHARES: Record = {"tickCount": 5, "format": ".1f", "labelFlush": False, "zindex": 0}
MODEL = alt.Tooltip("model:N", title="Model")
LENGTH = alt.Tooltip("length:N", title="Length")
POSITION = alt.Tooltip("position:N", title="Position")
QUERIES = alt.Tooltip("queries:Q", title="Queries", format=",")

#: Minimum share of the evidence beyond the window at positions that are labeled as beyond it.
MIN_BEYOND_SHARE = 0.5

Color = alt.Color | alt.ColorValue


@dataclass(frozen=True)
class PositionAxis:
    """The horizontal axis of position bins: continuous for equal bins, else one step per bin."""

    title: str | None
    names: Sequence[str] | None
    """Names of the bins in order. If None, bins are in the order of the rows."""
    equal_bins: bool

    @property
    def axis(self) -> alt.X:
        """Encoding of marks in the middle of a bin."""
        if self.equal_bins:
            return alt.X(
                "middle:Q", title=self.title, scale=UNIT, axis=alt.Axis(**SHARES, grid=True)
            )
        return alt.X(
            "position:O",
            title=self.title,
            sort=list(self.names) if self.names else None,
            axis=alt.Axis(labelAngle=0),
        )

    @property
    def extent(self) -> dict[str, alt.X | str]:
        """Encodings of marks that fill a bin."""
        if self.equal_bins:
            start = alt.X(
                "start:Q", bin="binned", title=self.title, scale=UNIT, axis=alt.Axis(**SHARES)
            )
            return {"x": start, "x2": "end:Q"}
        return {"x": self.axis}


def build_positions(axes: Axes) -> PositionAxis:
    """Build the horizontal axis of position bins."""
    return PositionAxis(
        "position (0: start, 1: end)" if axes.equal_bins else axes.position_title,
        axes.positions,
        axes.equal_bins,
    )


def build_ndcg_axis(field: str, scale: alt.Scale) -> alt.Y:
    """Build the vertical axis of nDCG@10 x 100."""
    return alt.Y(f"{field}:Q", title=SCORE, scale=scale, axis=PERCENT)


def build_null_band(base: alt.Chart, positions: PositionAxis) -> alt.Chart:
    """Build the 95% band of bin means under the null hypothesis of no position effect."""
    band: alt.Chart = base.mark_rect(color=NULL).encode(
        **positions.extent, y=build_ndcg_axis("null_low", UNIT), y2="null_high:Q"
    )
    return band


def build_curve_layers(
    base: alt.Chart,
    positions: PositionAxis,
    color: Color,
    interval: Literal["area", "rule"],
    *,
    point: Fields,
    scale: alt.Scale = UNIT,
    line: Fields | None = None,
) -> list[alt.Chart]:
    """Build the layers of an nDCG@10 curve: intervals, line and points.

    `line` and `point` are additional encodings of the line and the points.
    """
    base = base.encode(x=positions.axis)
    intervals = base.mark_area(opacity=0.16)
    if interval == "rule":
        intervals = base.mark_rule(opacity=0.55, strokeWidth=2.2)
    low = build_ndcg_axis("ndcg_at_10_low", scale)
    base = base.encode(y=build_ndcg_axis("ndcg_at_10", scale), color=color)
    return [
        intervals.encode(y=low, y2="ndcg_at_10_high:Q", color=color),
        base.mark_line(strokeWidth=1.8).encode(**(line or {})),
        base.mark_point(size=34, opacity=1, strokeWidth=1.8).encode(**point),
    ]


def label_window_end(rows: Iterable[Fields], window: int | None) -> list[Record]:
    """Add `beyond_label` to the first row of each panel with most evidence beyond the window.

    Args:
        rows: Sorted cells with `beyond_share` in [0, 1] or None, and `panel` if there are several.
        window: Window of the model in tokens, or None if unknown.
    """
    labeled_panels: set[Any] = set()
    marked_rows = []
    for row in rows:
        panel = row.get("panel")
        label = None
        if (
            window
            and (row.get("beyond_share") or 0.0) > MIN_BEYOND_SHARE
            and panel not in labeled_panels
        ):
            label = f"beyond {window:,} tokens"
            labeled_panels.add(panel)
        marked_rows.append({**row, "beyond_label": label})
    return marked_rows


def build_window_line(base: alt.Chart, positions: PositionAxis) -> list[alt.Chart]:
    """Build a dashed line with its text at the rows that `label_window_end` has labeled."""
    x = alt.X("start:Q") if positions.equal_bins else alt.X("position:O", bandPosition=0)
    labeled_rows = base.transform_filter("isValid(datum.beyond_label)").encode(x=x)
    rule = labeled_rows.mark_rule(**WINDOW_END, color=FAINT)
    text = labeled_rows.mark_text(
        align=alt.ExprRef("datum.start <= 0.5 ? 'left' : 'right'"),
        dx=alt.ExprRef("datum.start <= 0.5 ? 4 : -4"),
        color=INK,
        fontSize=12,
    )
    return [
        rule.encode(y=alt.value(0), y2=alt.value("height")),
        text.encode(y=alt.value(10), text="beyond_label:N"),
    ]


def explain_window(rows: Iterable[Fields], window: int | None) -> str:
    """Explain the line at the end of the window in a sentence, or return "" without a line."""
    if not any(row.get("beyond_label") for row in rows):
        return ""
    return (
        f" Dashes: from here on, most of the evidence is beyond the {window:,} tokens that the "
        "model reads."
    )


def describe_scores(name: str, scores: Iterable[float | None]) -> str:
    """Describe a curve for screen readers: `nDCG@10 from start to end: 62, 39, 27.`"""
    numbers = ", ".join(format_percent(score, ".0f") for score in scores)
    return f"{name} from start to end: {numbers}."


def encode_heat(scale: alt.Scale) -> alt.Color:
    """Encode the nDCG@10 of a heat map by color, with a legend below the chart."""
    legend = alt.Legend(
        # More labels would overlap in the large text of a bare chart.
        tickCount=3,
        labelExpr="round(datum.value * 100)",
        orient="bottom",
        gradientLength=200,
    )
    return alt.Color("ndcg_at_10:Q", title=SCORE, scale=scale, legend=legend)


def build_interval_rule(
    base: alt.Chart, field: str, channel: Literal["x", "y"], color: Color
) -> alt.Chart:
    """Build the 95% intervals of a score as thin lines in the direction of a channel."""
    ends = {channel: f"{field}_low:Q", f"{channel}2": f"{field}_high:Q"}
    rule: alt.Chart = base.mark_rule(strokeWidth=1.3, opacity=0.75).encode(**ends, color=color)
    return rule


def build_panels(
    layers: Iterable[alt.Chart], titles: Iterable[str], width: int, height: int, **facet: Any
) -> alt.FacetChart:
    """Split layers by the field `panel` into panels with their own axes, two per row."""
    panels: alt.FacetChart = (
        alt.layer(*layers, width=width, height=height)
        .facet(facet=alt.Facet("panel:N", title=None, sort=list(titles)), columns=2, **facet)
        .resolve_axis(x="independent", y="independent")
    )
    return panels


def build_cell_tooltips() -> list[alt.Tooltip]:
    """Build the tooltips of a cell: position, queries, nDCG@10, its interval and null band."""
    titles = {
        "ndcg_at_10": "nDCG@10",
        "ndcg_at_10_low": "95% interval, from",
        "ndcg_at_10_high": "95% interval, to",
        "null_low": "By chance, from",
        "null_high": "By chance, to",
    }
    tooltips = [POSITION, QUERIES]
    for name, title in titles.items():
        tooltips.append(alt.Tooltip(f"{name}:Q", title=title, format=".1%"))
    return tooltips
