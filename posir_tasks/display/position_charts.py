"""Position charts: scores from the start to the end of documents, and the truncated share.

Pages, notebooks, cards and the leaderboard show a self-contained SVG, terminals a line of text.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import accumulate, count, pairwise
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import write_atomically
from posir_tasks.base.wording import shorten_names
from posir_tasks.display.labels import Term
from posir_tasks.display.numbers import draw_sparkline, format_percent
from posir_tasks.values.estimates import Estimate

#: Widths of an image in pixels: on a page, with text next to the chart, and on a phone, with text
#: above the chart.
WIDE, NARROW = 760, 350
#: Size of a card in pixels, the format of link previews.
CARD_SIZE = 1200, 630
#: In pixels: height of the chart, of the labels above and below it and of a line of text, and width
#: of the vertical axis.
HEIGHT, LABEL, LINE, AXIS = 72, 18, 18, 48
#: Width of the chart relative to a wide image, pixels between chart and text, and pixels per
#: letter.
CHART_SHARE, GAP, LETTER = 0.58, 20, 7.1
#: Width of a regular letter relative to a bold letter.
BOLD = 0.87
#: PNG pixels per SVG pixel.
SCALE = 2
#: Pixels between hatching lines, and gap between hatching and bars relative to the chart.
HATCH, HATCH_GAP = 7, 0.014
#: Maximum number of parts with a label each.
MAX_PART_NAMES = 5
#: Width of a text chart in characters.
CHARACTERS = 12
UNREAD, MARK = "░", "┊"
#: SVG attributes and dark-mode CSS by kind of mark. Colors are those of Okabe & Ito 2008 (Color
#: Universal Design) and grays.
MARK_STYLES = {
    "paper": ('fill="#fff"', "fill:#191a1c"),
    "ink": ('fill="#1a1a1a"', "fill:#e8e8e4"),
    "faint": ('fill="#5c5c5c"', "fill:#a9a9a3"),
    "bars": ('fill="#d6e8f3" shape-rendering="crispEdges"', "fill:#1d4259"),
    "hatch": ('fill="none" stroke="#777" stroke-opacity="0.45"', "stroke:#9a9a95"),
    "band": ('fill="#8fc1de" shape-rendering="crispEdges"', "fill:#316a8b"),
    "grid": ('fill="none" stroke="#b4b9bd" shape-rendering="crispEdges"', "stroke:#5b6066"),
    "mean": (
        'fill="none" stroke="#005f96" stroke-width="2" shape-rendering="crispEdges"',
        "stroke:#7cc6f2",
    ),
}
DARK = "".join(f".strip .{kind}{{{dark}}}" for kind, (_, dark) in MARK_STYLES.items())
STYLE = f"<style>@media screen and (prefers-color-scheme:dark){{{DARK}}}</style>"
FONT = 'font-family="system-ui,Segoe UI,Roboto,DejaVu Sans,Verdana,sans-serif" font-size="13"'

FigureFormat: TypeAlias = Literal["svg", "pdf", "png"]


@dataclass(frozen=True)
class FigureStyle:
    """Format and style of chart files. Width and font apply only to bare charts."""

    format: FigureFormat = "svg"
    bare: bool = False
    """Whether to omit title, explanation and source, which belong in a paper's caption."""
    width: float | None = None
    """Width of a bare chart in inches. Defaults to a column of a paper."""
    font_size: float | None = None
    """Size of all text in points. Defaults to the size of a caption."""
    font: str | None = None
    """Font names in order of preference, separated by commas."""

    def __post_init__(self) -> None:
        if not self.bare and (self.width or self.font_size or self.font):
            raise PosirError("Width and font apply only to bare charts. Add --bare.")


@dataclass(frozen=True)
class Scale:
    """The vertical axis of a position chart, from 0 to 1."""

    name: str
    format: Callable[[float | None], str]
    whole: str
    """What the truncated share is a share of, such as `the evidence`."""
    contents: str
    """What has positions, such as `evidence`."""
    caption: str
    """Second part of a caption that begins with "From the start of"."""


NDCG = Scale(
    "nDCG@10",
    partial(format_percent, spec=".0f"),
    "the evidence",
    "evidence",
    "documents to their end: how well evidence at each position is found (nDCG@10, 0 to 100)",
)


class AxisLabel(NamedTuple):
    """A label below a position chart."""

    text: str
    short: str
    """Label for a narrow axis."""


@dataclass(frozen=True)
class Fact:
    """A fact that supports the finding of a position chart: a value, a state or both."""

    name: str
    value: str = ""
    definition: str = ""
    """Definition of the name, in a few words."""
    state: str = ""
    """A `Label`."""

    def __str__(self) -> str:
        definition = f" ({self.definition})" if self.definition else ""
        return f"{self.name}{definition}: {', '.join(filter(None, (self.value, self.state)))}"


@dataclass(frozen=True)
class PositionChart:
    """The position chart of one system: scores from the start to the end of documents."""

    name: str
    words: tuple[str, ...]
    """Lines about the window and the position effect. The last line is the finding."""
    ndcg_by_part: tuple[Estimate | None, ...]
    """nDCG@10 in equal parts of the window (of the document if the window is unknown), from start
    to end. None for parts without evidence.
    """
    truncated: float = 0.0
    """Share of questions with truncated or partly truncated evidence, in [0, 1]; 0 if the window is
    unknown.
    """
    ndcg_truncated: Estimate | None = None
    """nDCG@10 of truncated evidence."""
    before: int | None = None
    """Number of window parts before the truncated part. Defaults to all."""
    finding: str = ""
    """The finding in one or two sentences, for the card of the model on a page."""
    facts: Callable[[], Iterable[Fact]] = field(default=tuple, compare=False)
    """Computes the facts that support the finding."""
    steps: tuple[str, ...] = ()
    """Next steps without a final period. A step with a reason is a `Term`."""
    steps_title: str = "Next"
    commands: tuple[str, ...] = ()
    """Commands for the next steps. A command with a comment is a `ShellCommand`."""
    scale: Scale = NDCG
    code_snippets: tuple[tuple[str, str, str, bool], ...] = ()
    """Code for the next step in several libraries: name, sentence, code, and whether it is
    expanded.
    """
    window_end: str = ""
    """Axis label at the end of the window, for pages."""
    part_names: tuple[str, ...] = ()
    is_in_title: bool = False
    """Whether the title of the page names the system."""
    truncated_label: str = ""
    """Text shown instead of the truncated share, such as `351 of 394 sentences`."""

    @property
    def read_before(self) -> int:
        """Number of parts of the window before the truncated part."""
        return len(self.ndcg_by_part) if self.before is None else self.before

    @property
    def edges(self) -> list[float]:
        """Edges of all parts in [0, 1], including the truncated part."""
        part_count = len(self.ndcg_by_part)
        widths = [(1 - self.truncated) / part_count] * part_count
        if self.truncated:
            widths.insert(self.read_before, self.truncated)
        return list(accumulate(widths, initial=0.0))

    @property
    def scores(self) -> list[tuple[Estimate | None, bool]]:
        """nDCG@10 of each part, including the truncated part, and whether the part is read."""
        parts: list[tuple[Estimate | None, bool]] = [(part, True) for part in self.ndcg_by_part]
        if self.truncated:
            parts.insert(self.read_before, (self.ndcg_truncated, False))
        return parts

    @property
    def axis(self) -> tuple[float, float]:
        """Positions in [0, 1] of the two axis labels. They mark the ends of the window if it is
        contiguous, else the ends of documents.
        """
        if not self.truncated or self.before not in (None, 0):
            return 0, 1
        return (self.truncated, 1) if self.before == 0 else (0, 1 - self.truncated)

    @property
    def axis_labels(self) -> tuple[AxisLabel, AxisLabel]:
        """Labels at the positions of `axis`."""
        end = AxisLabel("end", "end")
        if self.axis == (0, 1):
            return AxisLabel("start of documents", "start of documents"), end
        if self.before == 0:
            return AxisLabel("start of the window", "window begins"), end
        return AxisLabel("start", "start"), AxisLabel("end of the window", "window ends")

    @property
    def page_labels(self) -> Sequence[AxisLabel]:
        """Labels on a page: the names of the parts (if there are many, of the first and the last),
        else those of the axis. `window_end` replaces the second.
        """
        names = self.part_names
        if len(names) > MAX_PART_NAMES:
            names = (names[0], names[-1])
        labels = [AxisLabel(name, name) for name in names]
        return labels or (self.axis_labels[:1] if self.window_end else self.axis_labels)

    @property
    def share(self) -> str:
        """Truncated share, such as `59% of the evidence truncated`, or "" without truncation."""
        if not self.truncated:
            return ""
        if self.truncated_label:
            return f"truncated: {self.truncated_label}"
        return f"{format_share(self.truncated)} of {self.scale.whole} truncated"

    @property
    def ndcg_read(self) -> float | None:
        """Mean nDCG@10 of the window parts, or None if a part has no evidence."""
        values = [part.value for part in self.ndcg_by_part if part]
        if len(values) < len(self.ndcg_by_part):
            return None
        return sum(values) / len(values)

    @property
    def description(self) -> str:
        """Description for screen readers."""
        scores = [self.scale.format(part.value if part else None) for part in self.ndcg_by_part]
        heights = ", ".join(scores)
        if self.part_names:
            heights = "; ".join(map(" ".join, zip(self.part_names, scores, strict=True)))
        if self.truncated:
            heights += f"; {self.share}"
        if self.truncated and self.ndcg_truncated:
            heights += f", {self.scale.name} {self.scale.format(self.ndcg_truncated.value)}"
        sentences = [f"{self.name}: {self.scale.name} from start to end {heights}", *self.words]
        return f"{'. '.join(sentences)}."


#: Position charts, drawn below each other.
PositionCharts: TypeAlias = Sequence[PositionChart]


def format_share(share: float) -> str:
    """Format a share above 0: `59%`, `under 1%`."""
    return f"{format_percent(share, '.0f')}%" if share > 0.005 else "under 1%"


def sketch_chart(chart: PositionChart) -> str:
    """Draw a position chart as text, such as `▆▅▄┊░░`. `┊` marks the end of the window, `·` a part
    without evidence.
    """
    parts = len(chart.ndcg_by_part)
    marks = 1 if chart.before in (None, 0) else 2
    columns = CHARACTERS
    unread = 0
    if chart.truncated:
        share = round(CHARACTERS * chart.truncated)
        unread = min(max(share, 1), CHARACTERS - marks - 1)
        columns = CHARACTERS - unread - marks
    values = [part.value if part else math.nan for part in chart.ndcg_by_part]
    # Each column is the mean of the parts that it overlaps, weighted by the overlap.
    cells = np.ma.masked_invalid(values).repeat(columns).reshape(columns, parts)
    line = draw_sparkline(cells.mean(axis=1).filled(math.nan).tolist())
    if not unread:
        return line
    before = round(columns * chart.read_before / parts)
    # A mark separates the truncated part from each neighbor.
    return MARK.join(filter(None, (line[:before], UNREAD * unread, line[before:])))


def sketch_charts(charts: PositionCharts, width: int = 1000) -> list[str]:
    """Draw each position chart as a line with name, chart and finding. If a finding does not fit,
    all lines contain the truncated share instead.
    """
    sketches = [f"  {sketch_chart(chart):{CHARACTERS}}  " for chart in charts]
    rows = list(zip(sketches, charts, strict=True))
    ends = [f"{sketch}{chart.share}".rstrip() for sketch, chart in rows]
    room = width - max(map(len, ends), default=0)
    names = shorten_names([chart.name for chart in charts], room)
    longest = max(map(len, names), default=0)
    findings = [f"{sketch}{chart.words[-1]}" for sketch, chart in rows]
    if longest + max(map(len, findings), default=0) <= width:
        ends = findings
    return [f"{name:{longest}}{end}" for name, end in zip(names, ends, strict=True)]


def explain_sketches(charts: PositionCharts) -> Term:
    """Explain the lines of `sketch_charts`."""
    unread = f"; {UNREAD}: truncated" if any(chart.truncated for chart in charts) else ""
    height = f"bar height: {charts[0].scale.name}{unread}"
    return Term("Bars", f"from start to end of a document; {height}.")


def draw_glyph(chart: PositionChart, width: int = 120, height: int = 36) -> str:
    """Draw only the marks of a chart as SVG, for a table row."""
    marks = "".join(_draw_marks(chart, 0, 2, width, height - 3))
    return (
        f'<svg class="strip" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" preserveAspectRatio="none" role="img" '
        f'aria-label="{html.escape(chart.description)}">{marks}</svg>'
    )


def draw_position_charts(
    charts: PositionCharts, *, width: int = WIDE, source: str = "", explained: bool = True
) -> str:
    """Draw position charts as SVG, below each other on one axis.

    Args:
        charts: One chart per system.
        width: Width of the image in pixels.
        source: Data and date, to show below the charts.
        explained: Whether to add text to each chart and explain the marks.
    """
    content, height = _draw_rows(charts, width, "", source, explained=explained)
    return _wrap_svg(content, charts, (width, height), (width, height))


def draw_card(charts: PositionCharts, heading: str, source: str) -> str:
    """Draw position charts as SVG on a card of 1,200 x 630 pixels, as large as possible."""
    ratio = CARD_SIZE[1] / CARD_SIZE[0]
    for width in count(WIDE, 20):
        content, height = _draw_rows(charts, width, heading, source)
        margin = width * ratio - height
        if margin >= 0:
            break
    centered = f'<g transform="translate(0 {margin / 2:.1f})">{content}</g>'
    return _wrap_svg(centered, charts, (width, round(width * ratio, 1)), CARD_SIZE)


@dataclass(frozen=True, repr=False)
class Picture:
    """An SVG image that notebooks display."""

    svg: str

    def _repr_html_(self) -> str:
        return self.svg

    def save(self, file: str | Path) -> None:
        """Write the image as `.svg` or `.png`. Raise PosirError for other suffixes."""
        suffix = Path(file).suffix.lower()
        if suffix not in (".svg", ".png"):
            raise PosirError(f"Cannot write {file}: the suffix must be .svg or .png.")
        content = self.svg.encode() if suffix == ".svg" else render_png(self.svg, SCALE)
        with write_atomically(Path(file)) as temporary:
            temporary.write_bytes(content)


def render_png(svg: str, scale: float = 1) -> bytes:
    """Render an SVG image as PNG."""
    import vl_convert  # slow to import

    png: bytes = vl_convert.svg_to_png(svg, scale=scale)
    return png


def _wrap_svg(
    content: str,
    charts: PositionCharts,
    view: tuple[float, float],
    size: tuple[float, float],
) -> str:
    label = html.escape(" ".join(chart.description for chart in charts))
    return (
        f'<svg class="strip" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {view[0]:g} '
        f'{view[1]:g}" width="{size[0]:g}" '
        f'height="{size[1]:g}" {FONT} role="img" aria-label="{label}">{STYLE}'
        f'<rect class="paper" {MARK_STYLES["paper"][0]} width="100%" height="100%"/>{content}</svg>'
    )


def _draw_rows(
    charts: PositionCharts,
    width: int,
    heading: str,
    source: str,
    *,
    explained: bool = True,
) -> tuple[str, float]:
    """Draw heading, charts, explanation and source. Return the SVG content and its height."""
    is_wide = width >= WIDE
    chart_width = round(width * CHART_SHARE) if is_wide else width - AXIS - 12
    left = AXIS + chart_width + GAP if is_wide else 12
    letters = int((width - left - 12) / LETTER)
    parts = []
    top = 12.0
    if heading:
        parts.append(
            _draw_text(12, top + 14, heading, "ink", style='font-size="16" font-weight="600"')
        )
        top += 28
    for chart in charts:
        y = top + (LABEL if is_wide else 0)
        for line in textwrap.wrap(chart.name, int(letters * BOLD)):
            parts.append(_draw_text(left, y + 12, line, "ink", style='font-weight="600"'))
            y += LINE
        for words in chart.words if explained else ():
            for line in textwrap.wrap(words, letters):
                parts.append(_draw_text(left, y + 12, line, "ink"))
                y += LINE
        # The text is next to the chart in wide images, and above it in narrow ones.
        chart_top = top if is_wide else y
        parts += _draw_labeled_chart(chart, chart_top, chart_width)
        top = max(y, chart_top + HEIGHT + 2 * LABEL) + 14
    notes = ""
    if explained and charts:
        scale = charts[0].scale
        notes = f"From the start of {scale.caption}. Band: 95% interval."
        if any(chart.truncated for chart in charts):
            notes += (
                f" Hatched: the truncated share of {scale.whole}, not a position in each document."
            )
    for text in (notes, source):
        for line in textwrap.wrap(text, int((width - 24) / 6.6)):
            parts.append(_draw_text(12, top + 10, line, "faint", style='font-size="12"'))
            top += 15
    return "".join(parts), top + 8


def _draw_labeled_chart(chart: PositionChart, top: float, width: int) -> Iterator[str]:
    """Yield a chart with axis labels and, above it, the truncated share."""
    bottom = top + LABEL + HEIGHT
    rotation = f'transform="translate(11 {_format(bottom - HEIGHT / 2)}) rotate(-90)"'
    if len(chart.scale.name) * LETTER < HEIGHT:
        yield _draw_text(0, 0, chart.scale.name, "faint", "middle", rotation)
    yield from _draw_marks(chart, AXIS, top + LABEL, width, HEIGHT)
    for height, y in ((1, top + LABEL + 8), (0.5, bottom - HEIGHT / 2 + 4), (0, bottom)):
        yield _draw_text(AXIS - 6, y, chart.scale.format(height), "faint", "end")
    low, high = chart.axis
    labels = chart.axis_labels
    fits = width * (high - low) > len(" ".join(label.text for label in labels)) * LETTER
    for label, position, anchor in zip(labels, chart.axis, ("start", "end"), strict=True):
        text = label.text if fits else label.short
        yield _draw_text(AXIS + width * position, bottom + 14, text, "faint", anchor)
    if not chart.truncated:
        return
    start, end = chart.edges[chart.read_before : chart.read_before + 2]
    anchor, x = ("end", end) if start else ("start", 0.0)
    fits = width * (end - start) > len(chart.share) * LETTER
    if fits or 0 < start < end < 1 - 1e-9:
        anchor, x = ("middle", (start + end) / 2)
    yield _draw_text(AXIS + width * x, top + LABEL - 5, chart.share, "ink", anchor)


def _draw_marks(
    chart: PositionChart, left: float, top: float, width: float, height: float
) -> Iterator[str]:
    """Yield the paths of grid, bars, intervals and hatching."""
    paths = dict.fromkeys(("bars", "hatch", "band", "grid", "mean"), "")
    bottom = top + height
    for (score, is_read), (start, end) in zip(chart.scores, pairwise(chart.edges), strict=True):
        x = left + width * start
        right = left + width * end
        if not is_read:
            # A gap separates the truncated part from the window.
            x += width * HATCH_GAP * (start > 0)
            right = max(x, right - width * HATCH_GAP * (end < 1 - 1e-9))
            paths["hatch"] += "".join(_draw_hatching(x, bottom, right - x, height))
        for share in (0, 0.5, 1):
            # Lines overlap by a pixel to avoid gaps.
            paths["grid"] += _draw_line(x, top + height * share, right - x + is_read)
        edges = () if is_read else (x, right)
        for edge in edges:
            paths["grid"] += f"M{_format(edge)} {_format(top)}v{_format(height)}"
        if score is None:
            continue
        y = bottom - height * score.value
        if is_read:
            # Bars share their edges to avoid gaps.
            paths["bars"] += _draw_box(x, right, bottom, y)
        if score.interval:
            low, high = score.interval
            paths["band"] += _draw_box(x, right, bottom - height * low, bottom - height * high)
        paths["mean"] += _draw_line(x, y, right - x)
    for kind, path in paths.items():
        if path:
            yield f'<path class="{kind}" {MARK_STYLES[kind][0]} d="{path}"/>'


def _draw_line(x: float, y: float, length: float) -> str:
    return f"M{_format(x)} {_format(y)}h{_format(length)}"


def _draw_box(left: float, right: float, low: float, high: float) -> str:
    x = _format(left)
    return f"M{x} {_format(low)}H{_format(right)}V{_format(high)}H{x}z"


def _draw_hatching(x: float, bottom: float, width: float, height: float) -> Iterator[str]:
    """Yield diagonal lines within a rectangle. (An SVG pattern needs an id, unique on the page.)"""
    for offset in np.arange(-height, width, HATCH).tolist():
        first = max(offset, 0.0)
        last = min(offset + height, width)
        if last > first:
            begin = f"{_format(x + first)} {_format(bottom - first + offset)}"
            yield f"M{begin}L{_format(x + last)} {_format(bottom - last + offset)}"


def _draw_text(x: float, y: float, text: str, kind: str, anchor: str = "", style: str = "") -> str:
    """Draw a text. With an anchor, as for axis labels, it is smaller."""
    if anchor:
        style += f' font-size="12" text-anchor="{anchor}"'
    return (
        f'<text class="{kind}" {MARK_STYLES[kind][0]} x="{_format(x)}" y="{_format(y)}" '
        f"{style}>{html.escape(text)}</text>"
    )


# Charts of a task have the same edges.
@lru_cache(maxsize=4096)
def _format(value: float) -> str:
    # Adding zero removes the sign of -0.0, which is equal to 0.0.
    return f"{value + 0.0:.1f}".removesuffix(".0")
