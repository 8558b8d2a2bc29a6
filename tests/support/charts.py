"""Check charts, which are not validated when they are drawn."""

from collections.abc import Iterable

import altair as alt

from posir_tasks.display.figures import Figure


def check_figures(figures: Iterable[Figure]) -> None:
    """Raise jsonschema's ValidationError unless every chart is valid Vega-Lite."""
    for figure in figures:
        alt.VConcatChart.validate(figure.chart.to_dict())
