"""How every figure looks: title above, source below, colours and shapes that do without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Any

import altair as alt

#: Okabe & Ito 2008 (Color Universal Design), dark ones first; their yellow is too pale for a line on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
DASHES = ([1, 0], [6, 3], [2, 2], [9, 3, 2, 3], [12, 4])
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
NOISE, FAINT, INK = "#d4d4d4", "#666666", "#1a1a1a"
#: Characters on a line of a title, and of the text above and below a figure; a figure is some 800 pixels wide.
TITLE_WIDTH, TEXT_WIDTH = 84, 138


def wrapped(text: str, width: int = TEXT_WIDTH) -> list[str]:
    """Return text as lines; a percent sign stays with its number."""
    return textwrap.wrap(text.replace(" %", "\u00a0%"), width, break_on_hyphens=False)


def chart_of(rows: Sequence[Mapping[str, Any]]) -> alt.Chart:
    """Return an empty chart of rows, of which there may be any number: Altair refuses a data frame of over 5,000."""
    return alt.Chart(alt.InlineData(values=[dict(row) for row in rows]))


def framed(
    figure: alt.LayerChart | alt.FacetChart | alt.VConcatChart, shown: str, of: str, reading: str, source: str
) -> alt.VConcatChart:
    """Return a figure with its title and how to read it above, and its source below.

    Args:
        figure: The chart.
        shown: What is shown, the title's first line.
        of: Of which model or task.
        reading: How it is read, one sentence for each kind of mark.
        source: Task, models and their revisions.
    """
    headed = alt.vconcat(figure).properties(
        title=alt.TitleParams(
            [*wrapped(shown, TITLE_WIDTH), *wrapped(of, TITLE_WIDTH)], subtitle=wrapped(reading), anchor="start", offset=14
        )
    )
    footed = alt.vconcat(headed).properties(
        title=alt.TitleParams(
            wrapped(source),
            orient="bottom",
            anchor="start",
            offset=12,
            fontSize=10,
            fontWeight="normal",
            color=FAINT,
        )
    )
    finished: alt.VConcatChart = (
        footed.configure(font="DejaVu Sans, Verdana, sans-serif", padding=12, background="white")
        .configure_view(stroke="#bbbbbb")
        .configure_axis(labelFontSize=11, titleFontSize=11, titleFontWeight="normal", labelColor=INK, gridColor="#eeeeee")
        .configure_header(labelFontSize=12, labelFontWeight="bold", labelAnchor="start", labelColor=INK, labelPadding=6)
        .configure_title(fontSize=15, subtitleFontSize=11, subtitleColor=FAINT, subtitlePadding=6, color=INK)
        .configure_legend(labelFontSize=11, titleFontSize=11, labelLimit=640, titleFontWeight="normal", symbolSize=90)
    )
    return finished


def of_each(labels: Sequence[str], values: Sequence[str] | Sequence[list[int]]) -> alt.Scale:
    """Return a scale that gives each label one value, from the first again after the last.

    Colours, dashes and shapes are of 7, 5 and 6 kinds, so that their combination repeats only after 210 labels.
    """
    return alt.Scale(domain=list(labels), range=list(islice(cycle(values), len(labels))))
