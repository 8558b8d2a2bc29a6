"""The picture of nDCG@10 over the position of the evidence that TensorBoard shows."""

from __future__ import annotations

import io

import altair as alt
import numpy as np
from numpy.typing import NDArray

from posir_report.cells import is_sparse, pool_lengths
from posir_tasks.display.charts.layers import build_positions, curve, null_band, with_percentages
from posir_tasks.display.charts.theme import COLORS, NULL, build_chart
from posir_tasks.document_ranks import DocumentRanks

#: Size of the chart in pixels.
WIDTH, HEIGHT = 480, 240


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
