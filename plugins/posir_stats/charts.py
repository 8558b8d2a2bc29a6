"""The histogram of evidence positions as a figure: one Altair specification for pictures and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt
import numpy as np
import polars as pl

from posir_report.charts import length_titles, panel_of
from posir_report.figure_export import Figure
from posir_report.theme import COLOURS, INK, framed
from posir_stats.statistics import ALL, Statistics, group_by_language
from posir_stats.tables import DatasetStatistics
from posir_tasks.axes import Axes
from posir_tasks.schemes import ALL_LENGTHS

WIDTH, HEIGHT, GAP = 340, 140, 90
#: Room for the numbers beside a panel; the same for all, so that panels stand below one another.
LABELS = 40
SPREAD = (
    "Bars: queries in each twentieth of the relevant document, by the middle of the evidence's span. Dashed: where all bars "
    "would end if the evidence were spread evenly."
)
BUCKETS = "Bars: queries in each of the dataset's own buckets; a query that lies in several is counted in each."


def build_figures(described: DatasetStatistics) -> list[Figure]:
    """Return a figure for each language, and one for all together where there are several."""
    return [
        Figure("positions", described.name, name, entitled(described, histograms(total), f"{described.name}, {name}", total))
        for name, total in totals_of(described).items()
    ]


def combine_charts(described: DatasetStatistics) -> alt.VConcatChart:
    """Return the same histograms as one chart, the languages below one another."""
    totals = totals_of(described)
    parts = [
        histograms(total).properties(title=alt.TitleParams(name, anchor="start", fontSize=14, offset=10))
        for name, total in totals.items()
    ]
    return entitled(described, alt.vconcat(*parts, spacing=40), described.name, list(totals.values())[-1])


def totals_of(described: DatasetStatistics) -> dict[str, Statistics]:
    """Return what each figure shows: a language's domains pooled, at the end all languages where there are several."""
    totals = [group[-1] for group in group_by_language(described.subsets)]
    return {"all languages" if total.language == ALL else total.language: total for total in totals}


def entitled(described: DatasetStatistics, chart: alt.VConcatChart, what: str, total: Statistics) -> alt.VConcatChart:
    """Return a chart with title, explanation and source."""
    return framed(
        chart,
        "Where the evidence stands",
        what,
        SPREAD if total.positions.axes.equal_bins else BUCKETS,
        f"Source: {total.queries.texts:,} queries about {len(total.lengths):,} documents; {described.source}.",
    )


def histograms(total: Statistics) -> alt.VConcatChart:
    """Return queries by position: all lengths in a wide panel, below it a panel for each length bucket that has queries."""
    axes, counts = total.positions.axes, total.histogram()
    whole = f"{ALL_LENGTHS} · {total.positions.queries:,} queries"
    titles = dict(zip(total.queries_by_length(), length_titles(total.positions).values(), strict=False))
    buckets = {title: counts[name] for name, title in titles.items() if any(counts[name])}
    rows = [panels(axes, {whole: counts[ALL]}, 2 * WIDTH + GAP)]
    if buckets:
        rows.append(panels(axes, buckets, WIDTH))
    return alt.vconcat(*rows, spacing=24)


def panels(axes: Axes, counts: Mapping[str, Sequence[int]], width: int) -> alt.FacetChart:
    """Return histograms, two in a row.

    Args:
        axes: Names the positions.
        counts: Title of each, and its queries of each position bin.
        width: Of each, in pixels.
    """
    edges = np.linspace(0, 1, len(axes.positions) + 1)
    place = {"position": axes.positions, "start": edges[:-1], "end": edges[1:]}
    frame = pl.concat([pl.DataFrame({"panel": title, **place, "queries": column}) for title, column in counts.items()])
    base = alt.Chart(frame)
    whole_numbers = "datum.value % 1 ? '' : datum.label"
    count_axis = alt.Axis(tickCount=4, labelExpr=whole_numbers, format=",d", minExtent=LABELS, labelFlush=True)
    bars = base.mark_bar(color=COLOURS[0], stroke="white", strokeWidth=0.5).encode(
        y=alt.Y("queries:Q", title="Queries", axis=count_axis),
        tooltip=[alt.Tooltip("position:N", title="Position"), alt.Tooltip("queries:Q", title="Queries", format=",d")],
    )
    name = axes.position_title
    if axes.equal_bins:
        x = alt.X("start:Q", bin="binned", title=name, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5, format=".1f"))
        even = base.mark_rule(color=INK, strokeDash=[5, 3]).encode(y=alt.Y("mean(queries):Q", axis=count_axis))
        layers = [bars.encode(x=x, x2="end:Q"), even]
    else:
        layers = [bars.encode(x=alt.X("position:O", title=name, sort=list(axes.positions), axis=alt.Axis(labelAngle=0)))]
    faceted: alt.FacetChart = (
        alt.layer(*layers)
        .properties(width=width, height=HEIGHT)
        .facet(facet=panel_of(counts), columns=2, spacing=GAP, bounds="flush")
        .resolve_scale(y="independent")
        .resolve_axis(x="independent")
    )
    return faceted
