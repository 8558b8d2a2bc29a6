"""Curves of probes over position: models overlaid, each with its interval, published curves in gray behind them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import altair as alt
import numpy as np

from posir_probe.curves import MOST_INTERVALS, PANELS_PER_ROW, MeasuredCurve, draw_curves
from posir_probe.inter_domain_similarity import DomainSum, compare_domains, strip_language
from posir_probe.probe import AveragedProbe, ModelProbe, ScatterProbe, SpreadProbe, Summary, TextProbe
from posir_probe.results import ProbeResult
from posir_probe.subset_validity import LARGEST, ValidityRow
from posir_probe.sums import FEWEST_DOCUMENTS
from posir_probe.view import CONTROL, SEPARATOR, Form, ProbeView, find_view
from posir_published.probes import read_published_curves
from posir_report.labels import short_labels
from posir_tasks.display.charts.figures import Figure
from posir_tasks.display.charts.theme import COLORS, add_frame, cycle_scale
from posir_tasks.display.wording import pluralize
from posir_tasks.estimates import Estimate
from posir_tasks.scores import flatten

WIDTH, HEIGHT = 300, 190


def build_figures(results: Sequence[ProbeResult], probes: Mapping[str, TextProbe | ModelProbe]) -> list[Figure]:
    """Return a figure for each probe and dataset, with all models; the title is the finding of the first."""
    groups: dict[tuple[str, str], list[ProbeResult]] = {}
    for result in results:
        groups.setdefault((result.probe, result.data), []).append(result)
    return [Figure(probe, data, None, _frame(group, probes.get(probe))) for (probe, data), group in groups.items()]


def _frame(results: Sequence[ProbeResult], probe: TextProbe | ModelProbe | None) -> alt.VConcatChart:
    view, first = find_view(probe), results[0]
    shown = results[:1] if view.of_data else results
    labels = short_labels(shown)
    finding = view.find(first.sums) or (probe.title if probe else first.probe)
    title = f"{labels[0]}: {finding}" if len(shown) > 1 else finding
    subject = first.data if view.of_data else f"{', '.join(labels)}; {first.data}"
    explanation = " ".join([*_describe_axes(view, probe), *_explain(shown, view, probe)])
    framed = add_frame(alt.vconcat(_draw(shown, labels, view, probe)), title, subject, explanation, _cite(first, probe))
    # The figure as a whole has an alternative text, and a mark without rows would be an image without one.
    described: alt.VConcatChart = framed.configure_mark(aria=False)
    return described


def _describe_axes(view: ProbeView, probe: TextProbe | ModelProbe | None) -> Iterator[str]:
    value = view.value or (probe.title if probe else "")
    vertical = (value, view.place) if view.form is not Form.CATEGORIES else (view.place, value)
    for direction, axis in zip(("Vertical", "Horizontal"), vertical, strict=True):
        if axis:
            # A name such as Pearson's keeps its capital.
            yield f"{direction}: {axis if axis[1:2].isupper() or axis.startswith('Pearson') else axis[0].lower() + axis[1:]}."


def _explain(results: Sequence[ProbeResult], view: ProbeView, probe: TextProbe | ModelProbe | None) -> Iterator[str]:
    known = any(estimate and estimate.interval for result in results for estimate in result.sums.estimates())
    if isinstance(probe, ScatterProbe):
        yield "Darker: more sentences."
        return
    if not known:
        yield f"No intervals: fewer than {FEWEST_DOCUMENTS} documents."
    elif view.form is Form.CATEGORIES or view.form is Form.BARS:
        yield "Lines: 95 % intervals by bootstrap over documents."
    elif len(results) <= MOST_INTERVALS:
        yield "Shaded: 95 % intervals by bootstrap over documents."
    if isinstance(probe, SpreadProbe) and probe.shows_spread:
        yield "Lighter: one standard deviation over pairs."
    if any(view.split(name)[1] == CONTROL for name in results[0].sums.positions):
        yield f"Dark gray, square: an {CONTROL} on the same texts."
    if read_published_curves(results[0].probe):
        yield "Light gray: published values of other models on other data."


def _cite(result: ProbeResult, probe: TextProbe | ModelProbe | None) -> str:
    data = f"Source: {result.data}, {pluralize(result.sums.documents, 'document')}."
    return f"{data} Method: {probe.source}." if probe else data


def _draw(
    results: Sequence[ProbeResult], labels: Sequence[str], view: ProbeView, probe: TextProbe | ModelProbe | None
) -> alt.FacetChart | alt.LayerChart:
    """Return the values of one probe on one dataset, a panel for each series."""
    if isinstance(probe, ScatterProbe):
        return _draw_scatter(results, labels, view, probe)
    averages: Mapping[str, Summary] = probe.averages if isinstance(probe, AveragedProbe) else {}
    measured = [
        MeasuredCurve(label, result, averages, result.share_read if view.shows_window else None)
        for label, result in zip(labels, results, strict=True)
    ]
    return draw_curves(measured, read_published_curves(results[0].probe), view, spread=isinstance(probe, SpreadProbe))


def _draw_scatter(
    results: Sequence[ProbeResult], labels: Sequence[str], view: ProbeView, probe: ScatterProbe
) -> alt.FacetChart:
    """Return the number of points in each cell of a plane, a panel for each series and model."""
    width, height = probe.cell_size
    titles = {panel: view.split(f"{panel}{SEPARATOR}")[0] for panel, _, _ in probe.cells}
    rows = [
        {
            "panel": f"{label}: {titles[panel]}" if len(results) > 1 else titles[panel],
            "x": x - width / 2, "x2": x + width / 2, "y": y - height / 2, "y2": y + height / 2, "points": points,
        }
        for label, result in zip(labels, results, strict=True)
        for (panel, x, y), points in zip(probe.cells, result.sums.sums[:, 0].tolist(), strict=True)
        if points
    ]  # fmt: skip
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    legend = alt.Legend(orient="top", gradientLength=200)
    chart: alt.FacetChart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_rect()
        .encode(
            x=alt.X("x:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(tickCount=5)),
            x2="x2:Q",
            y=alt.Y("y:Q", title=None, scale=alt.Scale(domain=[-1, 1]), axis=alt.Axis(tickCount=5)),
            y2="y2:Q",
            color=alt.Color("points:Q", title="Sentences", scale=alt.Scale(type="log", scheme="greys"), legend=legend),
            tooltip=["x:Q", "y:Q", "points:Q"],
        )
        .properties(width=WIDTH, height=HEIGHT)
        .facet(facet=alt.Facet("panel:N", title=None, sort=panels), columns=PANELS_PER_ROW)
    )
    return chart


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
