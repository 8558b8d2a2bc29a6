"""Charts of translation ratings, like figures 7 to 9 of PosIR (arXiv 2601.08363v1)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
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
    build_interval_rule,
    compile_marks,
    encode_labels,
)
from posir_tasks.display.figures import Figure
from posir_tasks.values.scores import flatten

CELL = 48
Panels = alt.LayerChart | alt.FacetChart


def build_rating_figures(
    scores: Sequence[ScaleScore], agreement: Sequence[ScaleAgreement]
) -> list[Figure]:
    """Plot overall ratings by system and language and, for each system, ratings by scale and pairs
    of ratings.
    """
    max_ratings = max(sum(score.counts.values()) for score in scores)
    source = f"Source: up to {max_ratings:,} ratings per system; scales of arXiv 2601.08363v1."

    def build_figure(
        kind: str, system: str | None, chart: Panels, title: str, explanation: str
    ) -> Figure:
        subject = system or "all systems"
        framed = add_frame(compile_marks(chart), title, subject, explanation, source)
        return Figure(f"ratings-{kind}", None, system, framed)

    means = [
        {"x": score.language, "y": score.system, "value": score.mean.value}
        for score in scores
        if score.rater == "judge" and score.scale == OVERALL and score.language != ALL
    ]
    overall = _plot_cells(
        means, "language", "system", "Mean rating", alt.Scale(scheme="viridis"), ".2f"
    )
    colors = "Colors: the judge's mean over the four scales."
    marks = (
        "Points: mean ratings from 1, poor, to 5, excellent. Lines: 95% intervals for new "
        "documents."
    )
    figures = [build_figure("overall", None, overall, "Overall rating", colors)]
    for system in dict.fromkeys(score.system for score in scores):
        chart = _plot_scales([score for score in scores if score.system == system])
        figures.append(build_figure("scales", system, chart, "Ratings by scale", marks))
    for row in agreement:
        if row.language == row.scale == ALL:
            pairs = [
                {"x": judge, "y": person, "value": row.confusion[person - 1][judge - 1]}
                for person, judge in product(RATINGS, RATINGS)
            ]
            chart = _plot_cells(pairs, "judge", "person", "Pairs", alt.Scale(scheme="blues"), ",d")
            title = "Ratings by people and the judge"
            explanation = "Pairs: a person's and the judge's rating of a translation on a scale."
            figures.append(build_figure("pairs", row.system, chart, title, explanation))
    return figures


def _plot_cells(
    rows: Sequence[dict[str, Any]], x: str, y: str, title: str, scale: alt.Scale, spec: str
) -> Panels:
    """Plot a heat map that shows its values as text."""
    color = alt.Color("value:Q", title=title, scale=scale)
    base = build_chart(rows).encode(
        x=alt.X("x:O", title=x.capitalize()),
        y=alt.Y("y:O", title=y.capitalize(), sort="descending"),
        text=alt.Text("value:Q", format=spec),
    )
    outline = base.mark_text(stroke="white", strokeWidth=2.5, strokeOpacity=0.7, style=NUMBER)
    cells = base.mark_rect().encode(color=color)
    layers = alt.layer(cells, outline, base.mark_text(color=INK, style=NUMBER))
    panels: Panels = layers.properties(width=alt.Step(CELL), height=alt.Step(CELL * 0.7))
    return panels


def _plot_scales(scores: Sequence[ScaleScore]) -> Panels:
    rows = [
        {
            "rater": row.rater,
            "language": row.language,
            "scale": row.scale,
            **flatten("value", row.mean),
        }
        for row in scores
    ]
    raters = list(dict.fromkeys(score.rater for score in scores))
    color, shape, _ = encode_labels("rater", raters, alt.Legend(orient="bottom"))
    base = build_chart(rows).encode(
        x=alt.X("scale:N", title=None, sort=[*SCALES, OVERALL]),
        xOffset=alt.XOffset("rater:N", sort=raters),
    )
    domain = alt.Scale(domain=[RATINGS[0], RATINGS[-1]])
    y = alt.Y("value:Q", title="Rating", scale=domain)
    points = base.mark_point(filled=True, size=50).encode(color=color, shape=shape, y=y)
    layers = alt.layer(build_interval_rule(base, "value", "y", color), points)
    panels: Panels = layers.properties(width=240, height=150).facet("language:N", columns=3)
    return panels
