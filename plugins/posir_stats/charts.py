"""Histograms of evidence positions, for figures and the HTML page."""

from collections.abc import Mapping, Sequence

import altair as alt

from posir_report.charts import build_length_titles
from posir_stats.tables import DatasetStatistics, describe_spread
from posir_tasks.datasets.statistics import ALL, Statistics
from posir_tasks.display.charts import (
    COLORS,
    INK,
    POSITION,
    QUERIES,
    add_frame,
    build_chart,
    build_panels,
    build_positions,
    compile_marks,
)
from posir_tasks.display.figures import Figure
from posir_tasks.values.schemes import ALL_LENGTHS, Axes

WIDTH = 340
GAP = 90
EQUAL_BINS_NOTE = (
    "Bars: queries in each twentieth of the relevant document, by the middle of the evidence "
    "span. Dashed line: a perfectly even spread."
)
BUCKETS_NOTE = (
    "Bars: queries in each of the dataset's own position buckets; a query in several buckets "
    "counts in each."
)


def build_figures(dataset: DatasetStatistics) -> list[Figure]:
    """Plot each language, pooled over domains, and all languages if there are several."""
    figures = []
    for group in dataset.groups:
        total = group[-1]
        name = "all languages" if total.language == ALL else total.language
        source = (
            f"Source: {total.queries.texts:,} queries about {total.lengths.total():,} documents; "
            f"{dataset.source}."
        )
        counts = ", ".join(f"{count:,}" for count in total.count_positions()[ALL])
        chart = add_frame(
            compile_marks(draw_histograms(total)),
            describe_spread(total),
            f"{dataset.name}, {name}",
            EQUAL_BINS_NOTE if total.positions.axes.equal_bins else BUCKETS_NOTE,
            source,
            f"Queries from first to last bar: {counts}.",
        )
        figures.append(Figure("positions", dataset.name, name, chart))
    return figures


def draw_histograms(total: Statistics) -> alt.VConcatChart:
    """Plot queries by position, with a wide panel for all lengths and a panel for each length
    bucket with queries.
    """
    axes = total.positions.axes
    all_counts, *counts_by_length = total.count_positions().values()
    titles = build_length_titles(total.positions).values()
    buckets = {
        title: counts
        for title, counts in zip(titles, counts_by_length, strict=False)
        if any(counts)
    }
    all_lengths = {f"{ALL_LENGTHS} · {total.positions.queries:,} queries": all_counts}
    rows = [_draw_panels(axes, all_lengths, 2 * WIDTH + GAP)]
    if buckets:
        rows.append(_draw_panels(axes, buckets, WIDTH))
    return alt.vconcat(*rows, spacing=24)


def _draw_panels(axes: Axes, counts: Mapping[str, Sequence[int]], width: int) -> alt.FacetChart:
    """Plot a histogram of `width` pixels for each title, two in a row."""
    bins = len(axes.positions)
    rows = []
    for title, column in counts.items():
        for index, name in enumerate(axes.positions):
            edges = {"start": index / bins, "end": (index + 1) / bins}
            rows.append({"panel": title, "position": name, "queries": column[index], **edges})
    base = build_chart(rows)
    count_axis = alt.Axis(
        tickCount=4,
        labelExpr="datum.value % 1 ? '' : datum.label",
        format=",d",
        # A fixed label width aligns the panels.
        minExtent=40,
        labelFlush=True,
    )
    layers = [
        base.mark_bar(color=COLORS[0], stroke="white", strokeWidth=0.5).encode(
            **build_positions(axes).extent,
            y=alt.Y("queries:Q", title="Queries", axis=count_axis),
            tooltip=[POSITION, QUERIES],
        )
    ]
    if axes.equal_bins:
        even_line = base.mark_rule(color=INK, strokeDash=[5, 3])
        layers.append(even_line.encode(y=alt.Y("mean(queries):Q", axis=count_axis)))
    panels = build_panels(layers, counts, width, 140, spacing=GAP, bounds="flush")
    panels.resolve.scale = alt.ScaleResolveMap(y="independent")
    return panels
