"""Specifications of the page's charts, written in Vega-Lite and compiled to Vega.

Builds read the compiled specifications from `static/charts.json`, since compiling takes a second.
After a change, write them again: python -m posir_leaderboard.board.charts

The page adds the colors of its theme and the rows, in the dataset `rows`. Scores are in [0, 1] and
shown x 100. The tooltip of a mark is its row, which the page formats on hover, since formatting all
tooltips in advance takes longer than drawing the chart.
"""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from posir_leaderboard.board.records import BM25, KINDS, UNKNOWN
from posir_tasks.base.records import Record
from posir_tasks.display import charts

#: The compiled specifications.
FILE = Path(__file__).with_name("static") / "charts.json"
ROWS = alt.NamedData("rows")
#: Defaults of the parameters that the page sets: colors, ends of scales, and legend entries.
PARAMETERS = {
    "halo": "white", "faint": "gray", "ink": "black", "low": 0, "high": 1,
    "bottom": 0, "top": 1, "kinds": [], "sources": [],
}  # fmt: skip
ROW = alt.value(alt.ExprRef("datum"))
INK = alt.ExprRef("ink")
FAINT = alt.ExprRef("faint")
#: On pages narrower than this, in pixels, legends have columns.
NARROW = 600
#: Indices of compared models, which differ in color and shape; the page has the legend.
SERIES = [0, 1, 2, 3]
COLOR = alt.Color("series:N", legend=None, scale=alt.Scale(domain=SERIES))
FILL = alt.Fill("series:N", legend=None, scale=alt.Scale(domain=SERIES))
SHAPE = alt.Shape(
    "series:N",
    legend=None,
    scale=alt.Scale(domain=SERIES, range=list(charts.SHAPES[: len(SERIES)])),
)
#: The scale from `low` to `high`.
RANGE = alt.Scale(domainMin=alt.ExprRef("low"), domainMax=alt.ExprRef("high"), nice=False)


def compile_specifications() -> dict[str, Record]:
    """Compile all specifications to Vega, by name."""
    layered: dict[str, charts.LayeredChart] = {
        "scatter": _draw_scatter(),
        "curve": draw_curves(equal_bins=True),
        "steps": draw_curves(equal_bins=False),
        "heat": draw_heat_map(),
        "subsets": _draw_subsets(),
    }
    fit = alt.AutoSizeParams(type="fit-x", contains="padding")
    params = [alt.param(name=name, value=value) for name, value in PARAMETERS.items()]
    compiled = {}
    for name, chart in layered.items():
        # The page labels the chart and has its numbers in a table, so marks need no description.
        silent = (
            chart.properties(width="container", autosize=fit)
            .add_params(*params)
            .configure(aria=False)
        )
        compiled[name] = vl_convert.vegalite_to_vega(
            silent.to_dict(), vl_version=".".join(alt.SCHEMA_VERSION.split(".")[:2])
        )
        # A white background would hide the page's color.
        compiled[name].pop("background", None)
    return compiled


def build_legend(entries: str, *, columns: int, **symbols: Any) -> alt.Legend:
    """Build a legend in one row, or in columns on a narrow page; invisible with a single entry.

    Args:
        entries: Name of the parameter with the entries.
        columns: Number of columns on a narrow page.
        symbols: Additional properties of the legend.
    """
    values = alt.ExprRef(entries)
    opacity = alt.ExprRef(f"length({entries}) > 1 ? 1 : 0")
    symbols |= {"symbolSize": 80, "values": values}
    symbols |= {"symbolOpacity": opacity, "labelOpacity": opacity}
    return alt.Legend(
        orient="top", columns=alt.ExprRef(f"width < {NARROW} ? {columns} : 0"), **symbols
    )


def _draw_scatter() -> charts.LayeredChart:
    """Draw start minus end against nDCG@10, a point per model.

    The page sets the area of each point, marks the models with intervals, and puts names next to
    points or, if `led`, at the end of a line.
    """
    points_axis = alt.Axis(
        labelExpr="(datum.value > 0 ? '+' : '') + round(datum.value * 100)",
        tickMinStep=0.01,
        tickCount=8,
    )
    base = alt.Chart(ROWS).encode(
        x=alt.X("score:Q", title=charts.SCORE, scale=RANGE, axis=charts.PERCENT),
        y=alt.Y(
            "effect:Q",
            title=[
                "nDCG@10 at the start minus at the end",
                "← end scores higher · start scores higher →",
            ],
            scale=alt.Scale(
                domainMin=alt.ExprRef("bottom"), domainMax=alt.ExprRef("top"), nice=False
            ),
            axis=points_axis,
        ),
    )
    marked_points = base.transform_filter("datum.marked")
    kinds = alt.Scale(domain=[*KINDS.values(), BM25, UNKNOWN])
    color = alt.Color("kind:N", title=None, scale=kinds, legend=build_legend("kinds", columns=2))
    shape = alt.Shape(
        "source:N",
        title=None,
        scale=alt.Scale(domain=["evaluated with posir", "published"], range=["circle", "diamond"]),
        legend=build_legend("sources", columns=1, symbolFillColor=INK),
    )
    points = base.mark_point(
        filled=True, opacity=0.9, strokeWidth=0.8, stroke=alt.ExprRef("halo"), cursor="pointer"
    ).encode(color=color, shape=shape, size=alt.Size("area:Q", scale=None), tooltip=ROW)
    zero = (
        alt.Chart(ROWS)
        .transform_aggregate(rows="count()")
        .mark_rule(color=FAINT)
        .encode(y=alt.datum(0))
    )
    named_points = base.transform_filter("datum.name")
    leaders = named_points.transform_filter("datum.led").mark_rule(strokeWidth=0.7, color=FAINT)
    names = named_points.mark_text(align=alt.ExprRef("datum.name_align"), color=INK)
    name_position = {"x": "name_score:Q", "y": "name_effect:Q"}
    return alt.layer(
        zero,
        leaders.encode(x2=name_position["x"], y2=name_position["y"]),
        charts.build_interval_rule(marked_points, "score", "x", color),
        charts.build_interval_rule(marked_points, "effect", "y", color),
        points,
        names.encode(**name_position, text="name:N"),
    ).properties(height=440)


def draw_curves(*, equal_bins: bool) -> charts.LayeredChart:
    """Draw nDCG@10 over position, a line per model, with 95% intervals."""
    title = "Position of the evidence, from start to end" if equal_bins else None
    base = alt.Chart(ROWS)
    positions = charts.PositionAxis(title, None, equal_bins)
    marks = {"fill": FILL, "shape": SHAPE, "tooltip": ROW}
    lines = charts.build_curve_layers(
        base, positions, COLOR, "area" if equal_bins else "rule", scale=RANGE, point=marks
    )
    ends = (
        base.transform_filter("datum.name")
        .mark_text(align="left", dx=9)
        .encode(
            x=positions.axis, y=charts.build_ndcg_axis("name_at", RANGE), text="name:N", color=COLOR
        )
    )
    return alt.layer(*lines, ends).properties(height=320)


def draw_heat_map() -> charts.LayeredChart:
    """Draw nDCG@10 by position, a row per language or other choice; hatched: no result."""
    # By default, hatched rows would come last, since they are in a separate layer.
    base = alt.Chart(ROWS).encode(
        y=alt.Y(
            "choice:N",
            sort=alt.EncodingSortField("row", op="min"),
            title=None,
            axis=alt.Axis(labelLimit=150, domain=False),
        )
    )
    missing = (
        base.transform_filter("datum.missing")
        .mark_point(shape="M-1,1L1,-1", size=160, strokeWidth=1, opacity=0.6, color=FAINT)
        .encode(x="middle:Q", tooltip=ROW)
    )
    cells = (
        base.transform_filter("!datum.missing")
        .mark_rect()
        .encode(
            **charts.PositionAxis(None, None, equal_bins=True).extent,
            color=charts.encode_heat(RANGE),
            tooltip=ROW,
        )
    )
    return alt.layer(cells, missing).properties(height=alt.Step(22))


def _draw_subsets() -> charts.LayeredChart:
    base = alt.Chart(ROWS).encode(
        y=alt.Y(
            "subset:N",
            sort=None,
            title=None,
            axis=alt.Axis(labelLimit=170, domain=False, ticks=False),
        ),
        yOffset=alt.YOffset("series:N", sort=None),
    )
    score = alt.X("ndcg_at_10:Q", title=charts.SCORE, scale=RANGE, axis=charts.PERCENT)
    points = base.mark_point(filled=True, size=36, opacity=1)
    return alt.layer(
        charts.build_interval_rule(base, "ndcg_at_10", "x", COLOR),
        points.encode(x=score, color=COLOR, shape=SHAPE, tooltip=ROW),
    ).properties(height=alt.Step(20, **{"for": "position"}))


def find_compiler_versions() -> Record:
    """Return the versions of the packages that compile the specifications."""
    return {package: version(package) for package in ("altair", "vl-convert-python")}


def write_specifications() -> None:
    """Write the compiled specifications and the versions of the compilers to `FILE`."""
    content = {"versions": find_compiler_versions(), "charts": compile_specifications()}
    FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_specifications()
