"""Histograms of evidence positions, the same for pictures and page."""

from collections.abc import Mapping, Sequence

import altair as alt

from posir_report.charts import length_titles
from posir_stats.tables import DatasetStatistics, describe_spread
from posir_tasks.datasets.statistics import ALL, Statistics, group_by_language
from posir_tasks.display.charts import (
    COLORS,
    INK,
    POSITION,
    QUERIES,
    add_frame,
    build_chart,
    build_positions,
    facet_panels,
)
from posir_tasks.display.figures import Figure
from posir_tasks.values.schemes import ALL_LENGTHS, Axes

WIDTH, HEIGHT, GAP = 340, 140, 90
#: Pixels for the numbers beside a panel, the same for all, so that panels are aligned.
LABELS = 40
SPREAD = (
    "Bars: queries in each twentieth of the relevant document, by the middle of the evidence "
    "span. Dashed: where all bars would end if the evidence were spread evenly."
)
BUCKETS = (
    "Bars: queries in each of the dataset's own position buckets; a query in several is counted "
    "in each of them."
)
WHOLE_NUMBERS = "datum.value % 1 ? '' : datum.label"


def build_figures(dataset: DatasetStatistics) -> list[Figure]:
    """Return a figure of the pooled domains of each language, and one of all languages if there are
    several.
    """
    figures = []
    for total in (group[-1] for group in group_by_language(dataset.subsets)):
        name = "all languages" if total.language == ALL else total.language
        explanation = SPREAD if total.positions.axes.equal_bins else BUCKETS
        source = (
            f"Source: {total.queries.texts:,} queries about {total.lengths.texts:,} documents; "
            f"{dataset.source}."
        )
        seen = (
            "Queries from first to last bar: "
            f"{', '.join(f'{count:,}' for count in total.histogram()[ALL])}."
        )
        subject, chart = f"{dataset.name}, {name}", draw_histograms(total)
        framed = add_frame(chart, describe_spread(total), subject, explanation, source, seen)
        figures.append(Figure("positions", dataset.name, name, framed))
    return figures


def draw_histograms(total: Statistics) -> alt.VConcatChart:
    """Return queries by position: all lengths in a wide panel, below it a panel for each length
    bucket that has queries.
    """
    axes, counts = total.positions.axes, total.histogram()
    titles = dict(
        zip(total.queries_by_length(), length_titles(total.positions).values(), strict=False)
    )
    buckets = {title: counts[name] for name, title in titles.items() if any(counts[name])}
    rows = [
        _draw_panels(
            axes,
            {f"{ALL_LENGTHS} · {total.positions.queries:,} queries": counts[ALL]},
            2 * WIDTH + GAP,
        )
    ]
    if buckets:
        rows.append(_draw_panels(axes, buckets, WIDTH))
    return alt.vconcat(*rows, spacing=24)


def _draw_panels(axes: Axes, counts: Mapping[str, Sequence[int]], width: int) -> alt.FacetChart:
    """Return histograms of queries per position bin, by title, two in a row, each `width` pixels
    wide.
    """
    bins = len(axes.positions)
    base = build_chart(
        [
            {
                "panel": title,
                "position": name,
                "start": index / bins,
                "end": (index + 1) / bins,
                "queries": queries,
            }
            for title, column in counts.items()
            for index, (name, queries) in enumerate(zip(axes.positions, column, strict=True))
        ]
    )
    count_axis = alt.Axis(
        tickCount=4, labelExpr=WHOLE_NUMBERS, format=",d", minExtent=LABELS, labelFlush=True
    )
    layers = [
        base.mark_bar(color=COLORS[0], stroke="white", strokeWidth=0.5).encode(
            **build_positions(axes).extent,
            y=alt.Y("queries:Q", title="Queries", axis=count_axis),
            tooltip=[POSITION, QUERIES],
        )
    ]
    if axes.equal_bins:
        even = base.mark_rule(color=INK, strokeDash=[5, 3])
        layers.append(even.encode(y=alt.Y("mean(queries):Q", axis=count_axis)))
    panels = facet_panels(layers, counts, width, HEIGHT, spacing=GAP, bounds="flush")
    panels.resolve.scale = alt.ScaleResolveMap(y="independent")
    return panels
