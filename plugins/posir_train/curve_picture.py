"""nDCG@10 over the position of the evidence: before and after training, and the picture that TensorBoard shows."""

from __future__ import annotations

import io

import altair as alt
import numpy as np
from numpy.typing import NDArray

from posir_report.cells import is_sparse, pool_lengths
from posir_report.charts import compare_curves
from posir_report.summary import TaskSummary
from posir_tasks.display.charts.figures import Figure
from posir_tasks.display.charts.layers import build_positions, curve, null_band, with_percentages
from posir_tasks.display.charts.theme import COLORS, NULL, add_frame, build_chart
from posir_tasks.document_ranks import DocumentRanks

#: Size of the chart in pixels.
WIDTH, HEIGHT = 480, 240


def draw_before_after(measured: tuple[TaskSummary, TaskSummary], title: str, subject: str) -> Figure:
    """Return nDCG@10 over position on held-out articles before and after training.

    Args:
        measured: The base model and the trained one.
        title: The finding.
        subject: What was trained.
    """
    chart, explanation, seen = compare_curves(measured, ("before", "after"))
    source = f"Source: {measured[0].profile.queries:,} queries about held-out articles."
    return Figure("before-after", None, None, add_frame(chart, title, subject, explanation, source, seen))


def draw_picture(ranks: DocumentRanks) -> NDArray[np.uint8]:
    """Return a picture of nDCG@10 over position at all lengths, shape (height, width, 3)."""
    from PIL import Image

    profile = ranks.profile
    cells = pool_lengths(ranks, merged=is_sparse(profile.axes, profile.counts.sum(axis=(0, 2))))
    positions = build_positions(profile.axes)
    base = with_percentages(build_chart([cell.columns() for cell in cells]))
    layers = [null_band(base, NULL, positions), *curve(base, positions, alt.ColorValue(COLORS[0]), "rule")]
    picture = io.BytesIO()
    alt.layer(*layers).properties(width=WIDTH, height=HEIGHT, background="white").save(picture, format="png")
    return np.asarray(Image.open(picture).convert("RGB"))
