"""Charts of rated translations, as PosIR (arXiv 2601.08363) has them in figures 7 to 9."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from posir_build.translation_ratings import (
    ALL_LANGUAGES,
    OVERALL,
    RATINGS,
    SCALES,
    ScaleAgreement,
    ScaleScore,
    select_pooled,
)
from posir_tasks.display.charts import INK, NUMBER, add_frame, build_chart, tell_apart
from posir_tasks.display.figures import Figure
from posir_tasks.values.scores import flatten

WIDTH, HEIGHT, CELL, PANELS_PER_ROW = 240, 150, 48, 3
Panels = alt.LayerChart | alt.FacetChart
#: Ratings that axes and colors show.
SHOWN = alt.Scale(domain=[RATINGS[0], RATINGS[-1]])


def build_rating_figures(
    scores: Sequence[ScaleScore], agreement: Sequence[ScaleAgreement]
) -> list[Figure]:
    """Return the overall ratings by system and language, those of each system by scale, and the
    pairs of ratings of each.
    """
    rows = [
        {"system": score.system, "language": score.language, "value": score.mean.value}
        for score in scores
        if score.rater == "judge" and score.scale == OVERALL and score.language != ALL_LANGUAGES
    ]
    color = alt.Color("value:Q", title="Mean rating", scale=alt.Scale(scheme="viridis"))
    overall = _draw_cells(
        rows, alt.X("language:N", title=None), alt.Y("system:N", title=None), color, ".2f"
    )
    figures = [
        _frame("overall", None, overall, "Colors: the judge's mean over the four scales.", scores)
    ]
    for system in dict.fromkeys(score.system for score in scores):
        own = [score for score in scores if score.system == system]
        text = (
            "Points: mean ratings from 1, poor, to 5, excellent. Lines: 95% intervals for new "
            "documents."
        )
        figures.append(_frame("scales", system, _draw_scales(own), text, scores))
    text = "Pairs of ratings of a translation on a scale."
    return figures + [
        _frame("pairs", row.system, _draw_pairs(row), text, scores)
        for row in select_pooled(agreement)
    ]


def _frame(
    kind: str, system: str | None, chart: Panels, explanation: str, scores: Sequence[ScaleScore]
) -> Figure:
    rated = max(sum(score.counts.values()) for score in scores)
    titles = {
        "overall": "Overall rating",
        "scales": "Ratings by scale",
        "pairs": "Ratings by people and the judge",
    }
    source = f"Source: up to {rated:,} ratings of a system; scales of arXiv 2601.08363."
    framed = add_frame(
        alt.vconcat(chart), titles[kind], system or "all systems", explanation, source
    )
    return Figure(f"ratings-{kind}", None, system, framed)


def _draw_cells(
    rows: Sequence[Mapping[str, Any]], x: alt.X, y: alt.Y, color: alt.Color, form: str
) -> Panels:
    """Return a cell for each row with its value as color and as text."""
    base = build_chart(rows).encode(x=x, y=y)
    text = base.encode(text=alt.Text("value:Q", format=form))
    outlined = text.mark_text(
        color=INK, stroke="white", strokeWidth=2.5, strokeOpacity=0.7, style=NUMBER
    )
    layers = alt.layer(
        base.mark_rect().encode(color=color), outlined, text.mark_text(color=INK, style=NUMBER)
    )
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
        color=color,
    )
    intervals = base.mark_rule().encode(
        y=alt.Y("value_low:Q", title="Rating", scale=SHOWN), y2="value_high:Q"
    )
    layers = alt.layer(
        intervals,
        base.mark_point(filled=True, size=50).encode(
            shape=shape, y=alt.Y("value:Q", title="Rating", scale=SHOWN)
        ),
    )
    chart: alt.FacetChart = layers.properties(width=WIDTH, height=HEIGHT).facet(
        facet=alt.Facet("language:N", title=None), columns=PANELS_PER_ROW
    )
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
