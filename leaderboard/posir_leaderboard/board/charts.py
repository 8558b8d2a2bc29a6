"""Chart specifications of Vega-Lite, made once when the site is built; the page puts data into them.

Each takes its rows from the named dataset `rows` and its colours from the page's theme. Scores are in [0, 1], printed x 100.
"""

from __future__ import annotations

from typing import Any

import altair as alt

from posir_leaderboard.board.models import BM25, KINDS, UNKNOWN
from posir_report.charts import PERCENT, SCORE, cell_tooltip, score_tooltip
from posir_report.theme import SHAPES

#: Layers, as Altair types them.
Layered = alt.LayerChart | alt.FacetChart

ROWS = alt.NamedData("rows")
MODEL = alt.Tooltip("model:N", title="Model")
SCORES = (
    alt.Tooltip("queries:Q", title="Queries", format=","),
    *score_tooltip("ndcg_at_10", "nDCG@10"),
    *score_tooltip("psi", "PSI"),
    alt.Tooltip("psi_null_mean:Q", title="PSI under the null, mean", format=".3f"),
    alt.Tooltip("psi_null_p95:Q", title="PSI under the null, 95th percentile", format=".3f"),
)
#: Set by the page: the colours of the null band and around a point, and the ends of the scale of scores.
NULL_BAND, HALO = alt.param(name="null_band", value="lightgrey"), alt.param(name="halo", value="white")
LOW, HIGH = alt.param(name="low", value=0), alt.param(name="high", value=1)
#: Pixels below which legends have columns.
NARROW = 600
#: Places of models that are laid over each other.
PLACES = [0, 1, 2, 3]
#: The scale between them.
SHOWN = alt.Scale(domainMin=alt.ExprRef("low"), domainMax=alt.ExprRef("high"), nice=False)


def specifications() -> dict[str, dict[str, Any]]:
    """Return every specification by name."""
    charts: dict[str, Layered] = {
        "scatter": scatter(),
        "curve": curve(relative=True),
        "steps": curve(relative=False),
        "heat": heat_map(),
        "subsets_ndcg": subsets("ndcg_at_10"),
        "subsets_psi": subsets("psi"),
    }
    fit = alt.AutoSizeParams(type="fit-x", contains="padding")
    set_by_page = (NULL_BAND, HALO, LOW, HIGH)
    return {
        name: chart.properties(width="container", autosize=fit).add_params(*set_by_page).to_dict()
        for name, chart in charts.items()
    }


def hue() -> alt.Color:
    """Return one colour a model by its place among the models; the page has the legend."""
    return alt.Color("place:N", legend=None, scale=alt.Scale(domain=PLACES))


def form() -> alt.Shape:
    """Return one shape a model, for those who see no colours."""
    return alt.Shape("place:N", legend=None, scale=alt.Scale(domain=PLACES, range=list(SHAPES[: len(PLACES)])))


def score_of(field: str) -> alt.Y:
    """Return the axis of nDCG@10 over positions: from 0, since PSI is a share of the best position's score."""
    return alt.Y(f"{field}:Q", title=SCORE, scale=SHOWN, axis=PERCENT)


def legend(*, columns: int) -> alt.Legend:
    """Return a legend in one row, or in columns where the page is narrow."""
    return alt.Legend(orient="top", columns=alt.ExprRef(f"width < {NARROW} ? {columns} : 0"))


def scatter() -> Layered:
    """Return PSI against nDCG@10, one point per model, with intervals and null ranges of marked models."""
    base = alt.Chart(ROWS).encode(
        x=alt.X("ndcg_at_10:Q", title=SCORE, scale=alt.Scale(zero=False, padding=12), axis=PERCENT),
        y=alt.Y("psi:Q", title="PSI", scale=alt.Scale(domainMin=0)),
    )
    marked = base.transform_filter("datum.marked")
    kinds = alt.Color("kind:N", title=None, scale=alt.Scale(domain=[*KINDS.values(), BM25, UNKNOWN]), legend=legend(columns=2))
    points = base.mark_point(
        filled=True, opacity=0.9, size=64, strokeWidth=0.8, stroke=alt.ExprRef("halo"), cursor="pointer"
    ).encode(
        color=kinds,
        shape=alt.Shape(
            "source:N",
            title=None,
            scale=alt.Scale(domain=["submitted", "published"], range=["circle", "diamond"]),
            legend=legend(columns=1),
        ),
        tooltip=[MODEL, alt.Tooltip("kind:N", title="Kind"), *SCORES],
    )
    right = "scale('x', datum.ndcg_at_10) > width / 2"
    names = base.transform_filter("datum.name").mark_text(
        align=alt.ExprRef(f"{right} ? 'right' : 'left'"),
        dx=alt.ExprRef(f"{right} ? -8 : 8"),
        dy=-8,
        limit=alt.ExprRef("width / 2"),
    )
    return alt.layer(
        marked.mark_bar(width=9, color=alt.ExprRef("null_band")).encode(y="psi_null_mean:Q", y2="psi_null_p95:Q"),
        marked.mark_rule(strokeWidth=1.2, opacity=0.65).encode(x="ndcg_at_10_low:Q", x2="ndcg_at_10_high:Q", color=kinds),
        marked.mark_rule(strokeWidth=1.2, opacity=0.65).encode(y="psi_low:Q", y2="psi_high:Q", color=kinds),
        points,
        names.encode(text="name:N"),
    ).properties(height=440)


def curve(*, relative: bool) -> Layered:
    """Return nDCG@10 over position, a line a model, with 95 % intervals and, if given, the null band.

    Args:
        relative: Whether positions are equal shares of a document.
    """
    place = (
        alt.X("middle:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5, format=".1f"))
        if relative
        else alt.X("position:O", title=None, sort=None, axis=alt.Axis(labelAngle=0))
    )
    base = alt.Chart(ROWS).encode(x=place)
    extent = {"x": alt.X("start:Q", title=None), "x2": "end:Q"} if relative else {}
    uncertain = base.mark_area(opacity=0.16) if relative else base.mark_rule(strokeWidth=2, opacity=0.6)
    return alt.layer(
        base.mark_rect(color=alt.ExprRef("null_band")).encode(**extent, y=score_of("null_low"), y2="null_high:Q"),
        uncertain.encode(y=score_of("low"), y2="high:Q", color=hue()),
        base.mark_line(strokeWidth=1.8).encode(y=score_of("ndcg_at_10"), color=hue()),
        base.mark_point(filled=True, size=34, opacity=1).encode(
            y=score_of("ndcg_at_10"),
            color=hue(),
            shape=form(),
            tooltip=[MODEL, *cell_tooltip()],
        ),
    ).properties(height=200)


def heat_map() -> Layered:
    """Return nDCG@10 of every language, or other choice of a group, and position."""
    base = alt.Chart(ROWS).encode(y=alt.Y("choice:N", sort=None, title=None, axis=alt.Axis(labelLimit=150, domain=False)))
    return alt.layer(
        base.mark_rect().encode(
            x=alt.X(
                "start:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5, format=".1f", grid=False)
            ),
            x2="end:Q",
            color=alt.Color(
                "ndcg_at_10:Q",
                title=SCORE,
                scale=SHOWN,
                legend=alt.Legend(labelExpr="round(datum.value * 100)", orient="bottom", gradientLength=180),
            ),
            tooltip=[MODEL, alt.Tooltip("choice:N", title="Data"), *cell_tooltip()[1:]],
        )
    ).properties(height=alt.Step(22))


def subsets(field: str) -> Layered:
    """Return a score of every subset, one point per model, with its interval; for PSI with its null range.

    Args:
        field: `ndcg_at_10` or `psi`.
    """
    percent = field == "ndcg_at_10"
    base = alt.Chart(ROWS).encode(
        y=alt.Y("subset:N", sort=None, title=None, axis=alt.Axis(labelLimit=170, domain=False, ticks=False)),
        yOffset=alt.YOffset("place:N", sort=None),
    )
    score = alt.X(f"{field}:Q", title=SCORE if percent else "PSI", scale=SHOWN, axis=PERCENT if percent else alt.Axis())
    null = base.mark_rule(strokeWidth=5, color=alt.ExprRef("null_band")).encode(x="psi_null_mean:Q", x2="psi_null_p95:Q")
    return alt.layer(
        *([] if percent else [null]),
        base.mark_rule(strokeWidth=1.4, opacity=0.7).encode(x=f"{field}_low:Q", x2=f"{field}_high:Q", color=hue()),
        base.mark_point(filled=True, size=36, opacity=1).encode(
            x=score,
            color=hue(),
            shape=form(),
            tooltip=[MODEL, alt.Tooltip("subset:N", title="Domain"), *SCORES],
        ),
    ).properties(height=alt.Step(20, **{"for": "position"}))
