"""The curves of several results in one chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from posir_significance.cells import pool_curve_cells
from posir_tasks.base.wording import shorten_names
from posir_tasks.display import charts
from posir_tasks.display.figures import Figure
from posir_tasks.values.scores import ResultValues

#: Maximum length of a model name in the legend.
MAX_LEGEND_NAME = 32
OVERLAY_TITLE = "nDCG@10 by position of the evidence"
OVERLAY_EXPLANATION = (
    "All lengths together; shaded: 95% intervals. Positions have different questions, so this "
    "describes the data and does not test the models."
)


def draw_models(task: str, results: Mapping[str, ResultValues]) -> Sequence[Figure]:
    """Draw the curves of all models on a task in one chart, given results by name."""
    names = ", ".join(results)
    queries = max(values.profile.queries for values in results.values())
    chart = charts.add_frame(
        charts.compile_marks(draw_overlay(results)),
        OVERLAY_TITLE,
        f"{names} on {task}",
        OVERLAY_EXPLANATION,
        f"Source: {queries:,} queries of {task}.",
    )
    return [Figure("models", task, None, chart)]


def draw_overlay(results: Mapping[str, ResultValues]) -> charts.LayeredChart:
    """Draw nDCG@10 by position with 95% intervals, a line for each result by name."""
    names = shorten_names(list(results), MAX_LEGEND_NAME)
    values = list(results.values())
    rows = [
        {**cell.to_record(), "series": name}
        for name, cells in zip(names, pool_curve_cells(values), strict=True)
        for cell in cells
    ]
    color, shape, dash = charts.encode_labels("series", names, charts.build_model_legend(names))
    tooltip = [alt.Tooltip("series:N", title="Result"), *charts.build_cell_tooltips()]
    layers = charts.build_curve_layers(
        charts.build_chart(rows),
        charts.build_positions(values[0].profile.axes),
        color,
        "area",
        line={"strokeDash": dash},
        point={"shape": shape, "tooltip": tooltip},
    )
    return alt.layer(*layers, width=640, height=300)
