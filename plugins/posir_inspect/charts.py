"""The charts of an inspection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from posir_inspect.sections import WORDINGS, Inspection, describe_texts, name_chunks
from posir_significance.sentences import describe_state
from posir_tasks.display import charts
from posir_tasks.display.numbers import format_percent
from posir_tasks.schemes import RelativePositions
from posir_tasks.scores import flatten

WIDTH, HEIGHT = 640, 280


def draw_positions(inspection: Inspection) -> alt.VConcatChart:
    """Return nDCG@10 over the position of the sentence, a curve for each wording, and what the model does not read."""
    assert inspection.fading
    axes = RelativePositions(bins=len(inspection.fading[0].by_position)).axes
    window, positions = inspection.window.tokens.high, charts.build_positions(axes)
    bins = len(axes.positions)
    rows: list[Mapping[str, Any]] = [
        {
            "wording": WORDINGS[fading.wording],
            "position": name,
            "start": row / bins,
            "middle": (row + 0.5) / bins,
            "end": (row + 1) / bins,
            "beyond_share": fading.not_read_by_position[row] if fading.not_read_by_position else None,
            **flatten("ndcg_at_10", score),
        }
        for fading in inspection.fading
        for row, (name, score) in enumerate(zip(axes.positions, fading.by_position, strict=True))
        if score is not None
    ]
    first = charts.mark_beyond([row for row in rows if row["wording"] == WORDINGS[inspection.fading[-1].wording]], window)
    names = [WORDINGS[fading.wording] for fading in inspection.fading]
    color = alt.Color("wording:N", scale=charts.cycle_scale(names, charts.COLORS), legend=None)
    dash = alt.StrokeDash("wording:N", scale=charts.cycle_scale(names, charts.DASHES), legend=None)
    shape = alt.Shape("wording:N", scale=charts.cycle_scale(names, charts.SHAPES), legend=None)
    tooltip = [
        alt.Tooltip("wording:N"),
        *charts.number_tooltips({"ndcg_at_10": "nDCG@10", "ndcg_at_10_low": "from", "ndcg_at_10_high": "to"}),
    ]
    ends = {str(row["wording"]): float(row["ndcg_at_10"]) for row in rows}
    known = any(row.get("ndcg_at_10_low") is not None for row in rows)
    layers = [
        *charts.window_shade(charts.build_chart(first), positions),
        *charts.curve(
            charts.build_chart(rows),
            positions,
            color,
            "area" if known else None,
            line={"strokeDash": dash},
            point={"shape": shape, "tooltip": tooltip},
        ),
        *charts.name_lines(ends, positions, axes.positions),
    ]
    chart = alt.layer(*layers).properties(width=WIDTH, height=HEIGHT)
    explanation = "Lines: mean nDCG@10 of the queries whose sentence is at that position."
    explanation += (" Shaded: 95 % intervals." if known else "") + charts.explain_window(first, window)
    seen = " ".join(
        charts.describe_scores(f"Queries in {name}", [row["ndcg_at_10"] for row in rows if row["wording"] == name])
        for name in names
    )
    title = describe_state(inspection.fading[-1].decision).removesuffix(".")
    return charts.add_frame(chart, title, inspection.model, explanation, _cite(inspection), seen)


def draw_chunks(inspection: Inspection) -> alt.VConcatChart:
    """Return nDCG@10 of every chunk size, with its number of vectors."""
    chunks = inspection.chunks
    assert chunks
    rows = [
        {"chunk": f"{name_chunks(row)} · {row.vectors:,} vectors", **flatten("ndcg_at_10", row.ndcg_at_10)}
        for row in chunks.rows
    ]
    labels = alt.Axis(labelExpr="split(datum.label, ' · ')", labelAngle=0, grid=False)
    base = charts.build_chart(rows).encode(
        x=alt.X("chunk:O", title="Chunks", sort=[str(row["chunk"]) for row in rows], axis=labels)
    )
    color = alt.ColorValue(charts.COLORS[0])
    score = charts.ndcg_axis("ndcg_at_10")
    points = base.mark_point(size=50, opacity=1, filled=True).encode(
        y=score, color=color, tooltip=[alt.Tooltip("chunk:N"), *charts.number_tooltips({"ndcg_at_10": "nDCG@10"})]
    )
    chart = alt.layer(charts.interval_rule(base, "ndcg_at_10", "y", color), points).properties(width=WIDTH, height=HEIGHT)
    explanation = "Points: queries in their rarest words, texts by their best chunk. Vertical bars: 95 % intervals."
    scores = (f"{name_chunks(row)}: {format_percent(row.ndcg_at_10.value)}" for row in chunks.rows)
    seen = f"nDCG@10 of {', '.join(scores)}."
    title = chunks.sentences[0].partition(":")[0].rstrip(".")
    return charts.add_frame(chart, title, inspection.model, explanation, _cite(inspection), seen)


def _cite(inspection: Inspection) -> str:
    return f"Source: {describe_texts(inspection)}. Revision of the model: {inspection.revision or 'unknown'}."
