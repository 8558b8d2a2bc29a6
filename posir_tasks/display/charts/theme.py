"""The theme of all charts: colors, line patterns and shapes readable in grayscale; title above, source below."""

import textwrap
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from typing import Any

import altair as alt

#: Okabe & Ito 2008 (Color Universal Design), dark ones first; their yellow is too pale for a line on white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
DASHES = ([1, 0], [6, 3], [2, 2], [9, 3, 2, 3], [12, 4])
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
#: The same colors for text, as dark as its contrast with white demands (at least 4.5 to 1).
TEXT_COLORS = ("#005f96", "#a34700", "#00704f", "#97477a", "#000000", "#825900", "#1f6f9e")
#: The null band, evidence beyond a model's window, and text.
NULL, BEYOND, FAINT, INK = "#d4d4d4", "#faeccb", "#666666", "#1a1a1a"
#: Characters per line of a title, and of the text above and below a chart; a chart is about 800 pixels wide.
TITLE_WIDTH, TEXT_WIDTH = 84, 138


def _wrap(text: str, width: int = TEXT_WIDTH) -> list[str]:
    """Return the lines of a text; a percent sign stays with its number."""
    return textwrap.wrap(text.replace(" %", "\u00a0%"), width, break_on_hyphens=False)


def build_chart(rows: Sequence[Mapping[str, Any]]) -> alt.Chart:
    """Return a chart of rows without marks; any number of rows, since Altair limits only data frames (to 5,000)."""
    return alt.Chart(alt.InlineData(values=[dict(row) for row in rows]))


def add_frame(
    chart: alt.LayerChart | alt.FacetChart | alt.VConcatChart,
    title: str,
    subject: str,
    explanation: str,
    source: str,
    seen: str = "",
) -> alt.VConcatChart:
    """Return a chart with a title of two lines and an explanation of its marks above, and its source below.

    A page, where text wraps by itself, takes the four texts from `usermeta` and draws the chart without them.

    Args:
        chart: Its marks and axes.
        title: The finding.
        subject: What it is of.
        explanation: What the marks are.
        source: Data and revisions.
        seen: The numbers in a sentence, for readers who do not see the marks.
    """
    lines = [*_wrap(title, TITLE_WIDTH), *_wrap(subject, TITLE_WIDTH)]
    headed = alt.vconcat(chart).properties(title=alt.TitleParams(lines, subtitle=_wrap(explanation), anchor="start", offset=14))
    cited = alt.vconcat(headed).properties(
        title=alt.TitleParams(
            _wrap(source), orient="bottom", anchor="start", offset=12, fontSize=10, fontWeight="normal", color=FAINT
        )
    )
    framed: alt.VConcatChart = (
        cited.configure(font="DejaVu Sans, Verdana, sans-serif", padding=12, background="white")
        .configure_view(stroke="#bbbbbb")
        .configure_axis(labelFontSize=11, titleFontSize=11, titleFontWeight="normal", labelColor=INK, gridColor="#eeeeee")
        .configure_header(labelFontSize=12, labelFontWeight="bold", labelAnchor="start", labelColor=INK, labelPadding=6)
        .configure_title(fontSize=15, subtitleFontSize=11, subtitleColor=FAINT, subtitlePadding=6, color=INK)
        .configure_legend(labelFontSize=11, titleFontSize=11, labelLimit=640, titleFontWeight="normal", symbolSize=90)
    )
    framed.usermeta = {"title": title, "subject": subject, "explanation": explanation, "source": source}
    framed.description = " ".join(filter(None, (f"{title}.", subject and f"{subject}.", seen, explanation)))
    return framed


def cycle_scale(labels: Sequence[str], values: Sequence[str] | Sequence[list[int]]) -> alt.Scale:
    """Return a scale that gives each label a value, starting over after the last value.

    There are 7 colors, 5 line patterns and 6 shapes, so their combination repeats only after 210 labels.
    """
    return alt.Scale(domain=list(labels), range=list(islice(cycle(values), len(labels))))
