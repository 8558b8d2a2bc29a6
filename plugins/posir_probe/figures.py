"""Curves of probes over position: models overlaid, each with its interval, published curves in gray behind them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from posir_probe.inter_domain_similarity import DomainSum, compare_domains, strip_language
from posir_probe.probe import AveragedProbe, ModelProbe, ScatterProbe, SpreadProbe, Summary, TextProbe
from posir_probe.results import ProbeResult
from posir_probe.subset_validity import LARGEST, ValidityRow
from posir_published.probes import PublishedCurve, read_published_curves
from posir_tasks.display.charts.figures import Figure
from posir_tasks.display.charts.theme import COLORS, NULL, add_frame, cycle_scale
from posir_tasks.estimates import Estimate
from posir_tasks.scores import flatten

#: Between the name of a panel and that of a position.
SEPARATOR = " · "
WIDTH, HEIGHT, PANELS_PER_ROW = 300, 190, 3
#: Positions above which the axis is continuous.
MOST_NAMES = 20
#: Most models whose intervals are drawn over each other.
MOST_INTERVALS = 4


def build_figures(results: Sequence[ProbeResult], probes: Mapping[str, TextProbe | ModelProbe]) -> list[Figure]:
    """Return a figure for each probe and dataset, with all models."""
    groups: dict[tuple[str, str], list[ProbeResult]] = {}
    for result in results:
        groups.setdefault((result.probe, result.data), []).append(result)
    return [Figure(probe, data, None, _frame(probe, data, group, probes.get(probe))) for (probe, data), group in groups.items()]


def _frame(name: str, data: str, results: Sequence[ProbeResult], probe: TextProbe | ModelProbe | None) -> alt.VConcatChart:
    chart = alt.vconcat(_draw(name, results, probe))
    explanation = " ".join([*_describe(probe), _explain(results, probe)])
    return add_frame(chart, probe.title if probe else name, data, explanation, _cite(results))


def _describe(probe: TextProbe | ModelProbe | None) -> list[str]:
    return [f"{probe.name}; {probe.source}."] if probe else []


def _explain(results: Sequence[ProbeResult], probe: TextProbe | ModelProbe | None) -> str:
    models = {result.model for result in results}
    known = any(estimate and estimate.interval for result in results for estimate in result.sums.estimates())
    sentences = ["Shaded: 95 % intervals by bootstrap over documents."] if known and len(models) <= MOST_INTERVALS else []
    if isinstance(probe, SpreadProbe) and probe.shows_spread:
        sentences.append("Lighter: one standard deviation over pairs.")
    if read_published_curves(results[0].probe):
        sentences.append("Gray: published curves of other models on other data.")
    return " ".join(sentences)


def _cite(results: Sequence[ProbeResult]) -> str:
    data = {f"{result.data} ({result.sums.documents:,} documents)" for result in results}
    return f"Source: {', '.join(sorted(data))}."


def _draw(name: str, results: Sequence[ProbeResult], probe: TextProbe | ModelProbe | None) -> alt.FacetChart | alt.LayerChart:
    """Return the curves of one probe on one dataset, a panel for each series."""
    if isinstance(probe, ScatterProbe):
        return _draw_scatter(results, probe)
    spread = isinstance(probe, SpreadProbe) and probe.shows_spread
    rows = [row for result in results for row in _model_rows(result, probe)]
    published = [row for curve in read_published_curves(name) for row in _published_rows(curve)]
    names = list(dict.fromkeys(split_position(position)[1] for result in results for position in result.sums.positions))
    models = list(dict.fromkeys(row["model"] for row in rows))
    layers = [
        _line(names, published=True).mark_line(color=NULL, strokeWidth=1).encode(detail="model:N", tooltip=_tooltips()),
        *(_spread_layers(names, models) if spread else []),
        *_model_layers(names, models),
    ]
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    chart = alt.layer(*layers, data=alt.InlineData(values=[*rows, *published])).properties(width=WIDTH, height=HEIGHT)
    if panels == [""]:
        return chart
    return chart.facet(facet=alt.Facet("panel:N", title=None, sort=panels), columns=PANELS_PER_ROW)


def _draw_scatter(results: Sequence[ProbeResult], probe: ScatterProbe) -> alt.FacetChart:
    """Return the number of points in each cell of a plane, a panel for each series and model."""
    width, height = probe.cell_size
    models = dict.fromkeys(result.model for result in results)
    rows = [
        {
            "panel": panel if len(models) == 1 else f"{result.model}{SEPARATOR}{panel}",
            "x": x - width / 2, "x2": x + width / 2, "y": y - height / 2, "y2": y + height / 2, "points": points,
        }
        for result in results
        for (panel, x, y), points in zip(probe.cells, result.sums.sums[:, 0].tolist(), strict=True)
        if points
    ]  # fmt: skip
    scale = alt.Scale(type="log", scheme="greys")
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    chart: alt.FacetChart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_rect()
        .encode(
            x=alt.X("x:Q", title="Position", scale=alt.Scale(domain=[0, 1])),
            x2="x2:Q",
            y=alt.Y("y:Q", title="Weight", scale=alt.Scale(domain=[-1, 1])),
            y2="y2:Q",
            color=alt.Color("points:Q", title="Sentences", scale=scale),
            tooltip=["x:Q", "y:Q", "points:Q"],
        )
        .properties(width=WIDTH, height=HEIGHT)
        .facet(facet=alt.Facet("panel:N", title=None, sort=panels), columns=PANELS_PER_ROW)
    )
    return chart


def _spread_layers(names: Sequence[str], models: Sequence[str]) -> list[alt.Chart]:
    """Return the bands of one standard deviation to either side of the published values and of the models'."""
    color = alt.Color("model:N", title=None, scale=cycle_scale(models, COLORS))
    low = alt.Y("sd_low:Q", title=None)
    return [
        _line(names, published=True).mark_area(opacity=0.1, color=NULL).encode(y=low, y2="sd_high:Q", detail="model:N"),
        _line(names, published=False).mark_area(opacity=0.1).encode(y=low, y2="sd_high:Q", color=color),
    ]


def _model_layers(names: Sequence[str], models: Sequence[str]) -> list[alt.Chart]:
    legend = alt.Legend(orient="top", columns=1, symbolOpacity=1)
    color = alt.Color("model:N", title=None, scale=cycle_scale(models, COLORS), legend=legend)
    base = _line(names, published=False)
    low = alt.Y("value_low:Q", title=None)
    band = base.mark_area(opacity=0.16).encode(y=low, y2="value_high:Q", color=color)
    return [
        *([band] if len(models) <= MOST_INTERVALS else []),
        base.mark_line(strokeWidth=1.8, point=len(names) <= MOST_NAMES).encode(color=color, tooltip=_tooltips()),
    ]


def _line(names: Sequence[str], *, published: bool) -> alt.Chart:
    """Return a chart of the published rows or of the others, with its axes, without marks.

    What the values are is said above the chart: beside the axis there is no room for it.
    """
    axis = (
        alt.X("order:Q", title="Position", axis=alt.Axis(tickCount=5))
        if len(names) > MOST_NAMES
        else alt.X("position:O", title=None, sort=list(names), axis=alt.Axis(labelAngle=0, labelLimit=90, labelOverlap=True))
    )
    chart: alt.Chart = (
        alt.Chart().transform_filter(alt.datum.published == published).encode(x=axis, y=alt.Y("value:Q", title=None))
    )
    return chart


def _tooltips() -> list[alt.Tooltip]:
    fields = {"value": "Value", "value_low": "95 % interval, from", "value_high": "95 % interval, to"}
    numbers = [alt.Tooltip(f"{field}:Q", title=title, format=".4f") for field, title in fields.items()]
    return [alt.Tooltip("model:N", title="Model"), alt.Tooltip("position:N", title="Position"), *numbers]


def _model_rows(result: ProbeResult, probe: TextProbe | ModelProbe | None) -> Iterable[dict[str, Any]]:
    sums = result.sums
    averages: Mapping[str, Summary] = probe.averages if isinstance(probe, AveragedProbe) else {}
    named = [
        *((name, sums.estimate(average)) for name, average in averages.items()),
        *zip(sums.positions, sums.estimates(), strict=True),
    ]
    spread = sums.details.get("sd", np.full(len(sums.positions), np.nan))
    deviations = [math.nan] * len(averages) + spread.tolist()
    for order, (name, estimate) in enumerate(named):
        if estimate is not None:
            panel, position = split_position(name)
            sd = deviations[order] if math.isfinite(deviations[order]) else 0.0
            yield {
                "model": result.model,
                "panel": panel,
                "position": position,
                "order": order,
                **flatten("value", estimate),
                "sd_low": estimate.value - sd,
                "sd_high": estimate.value + sd,
                "published": False,
            }


def _published_rows(curve: PublishedCurve) -> Iterable[dict[str, Any]]:
    deviations = curve.deviations or (0.0,) * len(curve.values)
    for order, (name, value, sd) in enumerate(zip(curve.positions, curve.values, deviations, strict=True)):
        panel, position = split_position(name)
        yield {
            "model": curve.model,
            "panel": panel,
            "position": position,
            "order": order,
            "value": value,
            "sd_low": value - sd,
            "sd_high": value + sd,
            "published": True,
        }


def split_position(name: str) -> tuple[str, str]:
    """Return the panel, empty if there is only one, and the place on the axis that the name of a position stands for."""
    panel, _, position = name.rpartition(SEPARATOR)
    return panel, position


def draw_domains(sums: Mapping[str, Mapping[str, DomainSum]], model: str) -> Figure:
    """Return a heat map of the similarities of domains; of two datasets, one below and one above the diagonal.

    Args:
        sums: Of each domain, by dataset: one, or two with at least two domains in common, which are shown.
        model: Name of the model.
    """
    above = len(sums) > 1
    renamed = [{strip_language(name) if above else name: part for name, part in domains.items()} for domains in sums.values()]
    names = [name for name in renamed[0] if name in renamed[-1]]
    values = [compare_domains({name: domains[name] for name in names}) for domains in renamed]
    matrix = np.where(np.tri(len(names), dtype=bool), values[0], values[-1])
    rows = [
        {"first": name, "second": other, "similarity": float(matrix[row, column])}
        for row, name in enumerate(names)
        for column, other in enumerate(names)
    ]
    chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_rect()
        .encode(
            x=alt.X("second:N", sort=names, title=None, axis=alt.Axis(labelAngle=-90)),
            y=alt.Y("first:N", sort=names, title=None),
            color=alt.Color("similarity:Q", title="Cosine", scale=alt.Scale(scheme="viridis")),
            tooltip=["first:N", "second:N", alt.Tooltip("similarity:Q", format=".4f")],
        )
        .properties(width=alt.Step(18), height=alt.Step(18))
    )
    data = " and ".join(sums)
    triangles = f" {' below the diagonal, '.join(sums)} above it." if above else ""
    explanation = f"Cosine of the domains' mean embeddings (arXiv 2601.08363, A.2).{triangles}"
    counts = ", ".join(
        f"{name}: {sum(part.documents for part in domains.values()):,} documents" for name, domains in sums.items()
    )
    return Figure(
        "inter_domain_similarity",
        data,
        model,
        add_frame(alt.vconcat(chart), "Similarity of domains", model, explanation, f"Source: {counts}."),
    )


def draw_samples(rows: Sequence[ValidityRow]) -> list[Figure]:
    """Return a figure for each model and sample: nDCG@10 of each position bucket in the complete data and in the sample."""
    groups: dict[tuple[str, str, str], list[ValidityRow]] = {}
    for row in rows:
        if row.position != LARGEST:
            groups.setdefault((row.model, row.complete, row.sample), []).append(row)
    return [
        Figure("subset-validity", sample, model, _draw_sample(model, [complete, sample], buckets))
        for (model, complete, sample), buckets in groups.items()
    ]


def _draw_sample(model: str, data: Sequence[str], buckets: Sequence[ValidityRow]) -> alt.VConcatChart:
    scores = [
        {"position": row.position, "data": name, **flatten("ndcg_at_10", score)}
        for row in buckets
        for name, score in ((row.complete, row.ndcg_at_10_of_complete), (row.sample, _sample_estimate(row)))
    ]
    x = alt.X("position:N", title="Position", sort=[row.position for row in buckets], axis=alt.Axis(labelAngle=0))
    offset, color = alt.XOffset("data:N", sort=list(data)), alt.Color("data:N", title=None, scale=cycle_scale(data, COLORS))
    base = alt.Chart(alt.InlineData(values=scores)).encode(x=x, xOffset=offset)
    tooltips = [alt.Tooltip("data:N", title="Data"), alt.Tooltip("ndcg_at_10:Q", title="nDCG@10", format=".4f")]
    y = alt.Y("ndcg_at_10:Q", title="nDCG@10")
    bars = base.mark_bar().encode(y=y, color=color, tooltip=tooltips)
    intervals = (
        base.transform_filter("isValid(datum.ndcg_at_10_low)").mark_rule().encode(y="ndcg_at_10_low:Q", y2="ndcg_at_10_high:Q")
    )
    chart = alt.vconcat(alt.layer(bars, intervals).properties(width=WIDTH * 2, height=HEIGHT))
    explanation = "As Fig. 3 of arXiv 2505.13950. Lines: 95 % intervals by bootstrap over the queries of the sample."
    return add_frame(chart, "Sample and complete data", model, explanation, f"Source: {' and '.join(data)}.")


def _sample_estimate(row: ValidityRow) -> Estimate | None:
    """Return the sample's nDCG@10; its interval is that of the difference moved to it."""
    sample, complete, interval = row.ndcg_at_10_of_sample, row.ndcg_at_10_of_complete, row.difference.interval
    if sample is None or complete is None:
        return None
    return Estimate(sample, (complete + interval[0], complete + interval[1]) if interval else None)
