"""Plot nDCG@10 by position for models trained with `posir train` and their base model, as in
docs/train.md.

Usage: python benchmarks/train_curves.py PICTURE.png NAME=FOLDER ...
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import altair as alt

from posir_tasks.display.charts import (
    COLORS,
    FramedChart,
    add_frame,
    build_chart,
    compile_marks,
    cycle_scale,
    render_svg,
)
from posir_tasks.display.position_charts import render_png
from posir_train.settings import Position

BASE = "untrained"
TITLE, SUBJECT = "nDCG@10 by position of the evidence", "all-MiniLM-L6-v2 on windows of COVID-QA"
EXPLANATION = (
    "Held-out documents with evidence in each third of a window. Vertical bars: 95% intervals for "
    "new documents."
)


def read_rows(name: str, report: dict[str, Any], side: str) -> Iterator[dict[str, Any]]:
    """Yield rows with nDCG@10 at each position `before` or `after` training."""
    changes = {
        change["score"]: change for change in report["changes"] if not change["forgetting_check"]
    }
    for position in Position:
        change = changes[f"nDCG@10, {position.title}"]
        values = (change[side], *change[f"{side}_interval"])
        percentages = {
            key: 100 * value for key, value in zip(("value", "low", "high"), values, strict=True)
        }
        yield {"model": name, "position": position.title, **percentages}


def draw(rows: list[dict[str, Any]], source: str) -> FramedChart:
    """Draw the chart."""
    models = list(dict.fromkeys(row["model"] for row in rows))
    color = alt.Color(
        "model:N",
        title=None,
        scale=cycle_scale(models, COLORS),
        legend=alt.Legend(orient="bottom", direction="horizontal"),
    )
    base = build_chart(rows).encode(
        x=alt.X(
            "position:O",
            title=None,
            sort=[position.title for position in Position],
            axis=alt.Axis(labelAngle=0),
        ),
        xOffset=alt.XOffset("model:N", sort=models),
        color=color,
    )
    dots = base.mark_point(filled=True, size=70).encode(
        y=alt.Y("value:Q", title="nDCG@10 x 100", scale=alt.Scale(zero=True))
    )
    bars = base.mark_rule(strokeWidth=1.5).encode(y="low:Q", y2="high:Q")
    lines = base.mark_line(strokeWidth=1.8, opacity=0.5).encode(y="value:Q")
    chart = alt.layer(lines, bars, dots).properties(width=560, height=280)
    return add_frame(compile_marks(chart), TITLE, SUBJECT, EXPLANATION, source)


if __name__ == "__main__":
    picture, *runs = sys.argv[1:]
    runs_by_name = [run.split("=", 1) for run in runs]
    reports = {
        name: json.loads((Path(folder) / "training" / "report.json").read_text())
        for name, folder in runs_by_name
    }
    rows = [*read_rows(BASE, next(iter(reports.values())), "before")]
    for name, report in reports.items():
        rows += read_rows(name, report, "after")
    chart = draw(rows, f"Source: {next(iter(reports.values()))['notes'][-1]}")
    Path(picture).write_bytes(render_png(render_svg(chart), 2))
