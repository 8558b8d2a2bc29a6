"""Charts of rated translations, as PosIR (arXiv 2601.08363) has them in figures 7 to 9."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from posir_build.translation_ratings import (
    ALL,
    OVERALL,
    RATINGS,
    SCALES,
    ScaleAgreement,
    ScaleScore,
)
from posir_tasks.display.charts import (
    INK,
    NUMBER,
    add_frame,
    build_chart,
    interval_rule,
    tell_apart,
)
from posir_tasks.display.figures import Figure
from posir_tasks.values.scores import flatten

WIDTH = 240
HEIGHT = 150
CELL = 48
PANELS_PER_ROW = 3
Panels = alt.LayerChart | alt.FacetChart
#: The ratings on an axis.
DOMAIN = alt.Scale(domain=[RATINGS[0], RATINGS[-1]])


def build_rating_figures(
    scores: Sequence[ScaleScore], agreement: Sequence[ScaleAgreement]
) -> list[Figure]:
    """Draw the overall ratings by system and language, those of each system by scale, and the pairs
    of ratings of each.
    """
    rated = max(sum(score.counts.values()) for score in scores)
    source = f"Source: up to {rated:,} ratings of a system; scales of arXiv 2601.08363."

    def frame(kind: str, system: str | None, chart: Panels, title: str, explanation: str) -> Figure:
        subject = system or "all systems"
        framed = add_frame(alt.vconcat(chart), title, subject, explanation, source)
        return Figure(f"ratings-{kind}", None, system, framed)

    overall = _draw_overall(scores)
    colors = "Colors: the judge's mean over the four scales."
    figures = [frame("overall", None, overall, "Overall rating", colors)]
    for system in dict.fromkeys(score.system for score in scores):
        chart = _draw_scales([score for score in scores if score.system == system])
        marks = (
            "Points: mean ratings from 1, poor, to 5, excellent. Lines: 95% intervals for new "
            "documents."
        )
        figures.append(frame("scales", system, chart, "Ratings by scale", marks))
    for row in agreement:
        if row.is_pooled:
            title = "Ratings by people and the judge"
            pairs = "Pairs of ratings of a translation on a scale."
            figures.append(frame("pairs", row.system, _draw_pairs(row), title, pairs))
    return figures


def _draw_overall(scores: Sequence[ScaleScore]) -> Panels:
    rows = [
        {"system": score.system, "language": score.language, "value": score.mean.value}
        for score in scores
        if score.rater == "judge" and score.scale == OVERALL and score.language != ALL
    ]
    color = alt.Color("value:Q", title="Mean rating", scale=alt.Scale(scheme="viridis"))
    x = alt.X("language:N", title=None)
    return _draw_cells(rows, x, alt.Y("system:N", title=None), color, ".2f")


def _draw_cells(
    rows: Sequence[Mapping[str, Any]], x: alt.X, y: alt.Y, color: alt.Color, spec: str
) -> Panels:
    """Draw a cell for each row with its value as color and as text."""
    base = build_chart(rows).encode(x=x, y=y)
    text = base.encode(text=alt.Text("value:Q", format=spec))
    outline = text.mark_text(
        color=INK, stroke="white", strokeWidth=2.5, strokeOpacity=0.7, style=NUMBER
    )
    cells = base.mark_rect().encode(color=color)
    layers = alt.layer(cells, outline, text.mark_text(color=INK, style=NUMBER))
    panels: Panels = layers.properties(width=alt.Step(CELL), height=alt.Step(CELL * 0.7))
    return panels


def _draw_scales(scores: Sequence[ScaleScore]) -> alt.FacetChart:
    titles = {**SCALES, OVERALL: "Overall"}
    rows = [
        {
            "rater": row.rater,
            "language": row.language,
            "scale": titles[row.scale],
            **flatten("value", row.mean),
        }
        for row in scores
    ]
    raters = list(dict.fromkeys(score.rater for score in scores))
    color, shape, _ = tell_apart("rater", raters, alt.Legend(orient="bottom"))
    base = build_chart(rows).encode(
        x=alt.X("scale:N", title=None, sort=list(titles.values())),
        xOffset=alt.XOffset("rater:N", sort=raters),
    )
    y = alt.Y("value:Q", title="Rating", scale=DOMAIN)
    points = base.mark_point(filled=True, size=50).encode(color=color, shape=shape, y=y)
    intervals = interval_rule(base, "value", "y", color)
    layers = alt.layer(intervals, points, width=WIDTH, height=HEIGHT)
    language = alt.Facet("language:N", title=None)
    chart: alt.FacetChart = layers.facet(facet=language, columns=PANELS_PER_ROW)
    return chart


def _draw_pairs(agreement: ScaleAgreement) -> Panels:
    rows = [
        {"people": person, "judge": judge, "value": pairs}
        for person, counts in zip(RATINGS, agreement.confusion, strict=True)
        for judge, pairs in zip(RATINGS, counts, strict=True)
    ]
    color = alt.Color("value:Q", title="Pairs", scale=alt.Scale(scheme="blues"))
    y = alt.Y("people:O", title="Rating by a person", sort="descending")
    return _draw_cells(rows, alt.X("judge:O", title="Rating by the judge"), y, color, ",d")
