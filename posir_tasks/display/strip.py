"""The position chart: scores from the start to the end of a document, and the truncated share.

Pages, notebooks, cards and the leaderboard show it as a self-contained SVG, terminals as a line of
text.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, count, pairwise
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from posir_tasks.base.errors import PosirError
from posir_tasks.base.files import write_atomically
from posir_tasks.base.wording import shorten_names
from posir_tasks.display.numbers import draw_sparkline, format_percent
from posir_tasks.values.estimates import Estimate

#: Widths of an image in pixels, on a page and on a phone, where the words are above the chart.
WIDE, NARROW = 760, 350
#: Size of a card in pixels: the format of link previews.
CARD_SIZE = 1200, 630
#: Pixels: height of the chart, height of the labels above and below it, height of a line of words,
#: width of the vertical axis.
HEIGHT, LABEL, LINE, AXIS = 72, 18, 18, 48
#: Width of the chart as a share of a wide image, pixels between chart and words, and pixels per
#: letter.
CHART_SHARE, GAP, LETTER = 0.58, 20, 7.1
#: Number of bold letters that are as wide as one regular letter.
BOLD = 0.87
#: PNG pixels per SVG pixel.
SCALE = 2
#: Pixels between hatching lines, and gap between hatching and bars as a share of the chart.
HATCH, HATCH_GAP = 7, 0.014
#: Short labels for a narrow axis.
SHORT_LABELS = {"end of the window": "window ends", "start of the window": "window begins"}
#: Width of a text chart in characters.
CHARACTERS = 12
UNREAD, MARK = "░", "┊"
#: SVG attributes of each kind of mark, and its CSS in dark mode: Okabe & Ito 2008 (Color Universal
#: Design) and grays.
KINDS = {
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
DARK = "".join(f".strip .{kind}{{{dark}}}" for kind, (_, dark) in KINDS.items())
STYLE = f"<style>@media screen and (prefers-color-scheme:dark){{{DARK}}}</style>"
FONT = 'font-family="system-ui,Segoe UI,Roboto,DejaVu Sans,Verdana,sans-serif" font-size="13"'

FigureFormat: TypeAlias = Literal["svg", "pdf", "png"]


@dataclass(frozen=True)
class FigureStyle:
    """Format and style of chart files. Width and font apply only to bare charts."""

    format: FigureFormat = "svg"
    bare: bool = False
    """If true, without title, explanation and source, which belong in a paper's caption."""
    width: float | None = None
    """Width of a bare chart in inches; by default a column of a paper."""
    font_size: float | None = None
    """Size of all text in points; by default the size of a caption."""
    font: str | None = None
    """Font name, or several names separated by commas, in order of preference."""

    def __post_init__(self) -> None:
        if not self.bare and (self.width or self.font_size or self.font):
            raise PosirError("Width and font apply only to bare charts. Add --bare.")


@dataclass(frozen=True)
class Scale:
    """The vertical axis of a position chart, from 0 to 1."""

    name: str
    format: Callable[[float | None], str]
    whole: str
    """The total of the truncated share, such as `the evidence`."""
    caption: str
    """A clause that explains the heights."""


NDCG = Scale(
    "nDCG@10",
    partial(format_percent, spec=".0f"),
    "the evidence",
    "documents to their end: how well evidence at each position is found (nDCG@10, 0 to 100)",
)


@dataclass(frozen=True)
class PositionChart:
    """The position chart of one system: scores from the start to the end of a document."""

    name: str
    words: tuple[str, ...]
    """Lines on the window and the position effect; the last line is the finding."""
    ndcg_by_part: tuple[Estimate | None, ...]
    """nDCG@10 in equal parts of the window (of the document, if the window is unknown), from start
    to end; None for a part without evidence.
    """
    truncated: float = 0.0
    """Share of the questions whose evidence is truncated, wholly or in part; 0 if the window is
    unknown.
    """
    ndcg_truncated: Estimate | None = None
    """nDCG@10 of truncated evidence, or None."""
    before: int | None = None
    """Number of window parts before the truncated part; None for all."""
    finding: str = ""
    """The finding in one or two sentences, for the card of a page."""
    facts: Callable[[], Iterable[tuple[str, str]]] = field(default=tuple, compare=False)
    """Computes the names and values behind the finding, then the next step. The first line of a
    value is the value itself; other lines explain it.
    """
    scale: Scale = NDCG
    code: str = ""
    """Command for the next step, for the card of a page."""
    codes: tuple[tuple[str, str, str, bool], ...] = ()
    """Code for the next step in several libraries, for the card of a page: name, sentence, code,
    and True if expanded.
    """
    border: str = ""
    """The end of the window, for the axis of a page."""
    places: tuple[str, ...] = ()
    """Names of the parts."""
    counted: str = ""
    """Number of truncated questions, shown instead of their share: `351 of 394 sentences`."""

    @property
    def read_before(self) -> int:
        """Number of parts of the window before the truncated part."""
        return len(self.ndcg_by_part) if self.before is None else self.before

    @property
    def edges(self) -> list[float]:
        """Edges of all parts in [0, 1], including the truncated part: one more than there are
        parts.
        """
        part_count = len(self.ndcg_by_part)
        widths = [(1 - self.truncated) / part_count] * part_count
        if self.truncated:
            widths.insert(self.read_before, self.truncated)
        return list(accumulate(widths, initial=0.0))

    @property
    def scores(self) -> list[tuple[Estimate | None, bool]]:
        """nDCG@10 of each part between the edges, and False for the truncated part."""
        parts: list[tuple[Estimate | None, bool]] = [(part, True) for part in self.ndcg_by_part]
        if self.truncated:
            parts.insert(self.read_before, (self.ndcg_truncated, False))
        return parts

    @property
    def axis(self) -> tuple[float, float, str, str]:
        """Positions in [0, 1] and texts of the two axis labels, at the ends of the window if it is
        contiguous.
        """
        if not self.truncated or self.before not in (None, 0):
            return 0, 1, "start of documents", "end"
        if self.before == 0:
            return self.truncated, 1, "start of the window", "end"
        return 0, 1 - self.truncated, "start", "end of the window"

    @property
    def share(self) -> str:
        """Truncated share, such as `59% of the evidence truncated`; empty without truncation."""
        if not self.truncated:
            return ""
        if self.counted:
            return f"truncated: {self.counted}"
        return f"{format_share(self.truncated)} of {self.scale.whole} truncated"

    @property
    def ndcg_read(self) -> float | None:
        """Mean over the parts that are read, or None if a part has no evidence."""
        values = [part.value for part in self.ndcg_by_part if part]
        if len(values) < len(self.ndcg_by_part):
            return None
        return sum(values) / len(values)

    @property
    def description(self) -> str:
        """The chart in words, for screen readers."""
        scores = [self.scale.format(part.value if part else None) for part in self.ndcg_by_part]
        heights = ", ".join(scores)
        if self.places:
            heights = "; ".join(map(" ".join, zip(self.places, scores, strict=True)))
        if self.truncated:
            heights += f"; {self.share}"
        if self.truncated and self.ndcg_truncated:
            heights += f", {self.scale.name} {self.scale.format(self.ndcg_truncated.value)}"
        sentences = [f"{self.name}: {self.scale.name} from start to end {heights}", *self.words]
        return f"{'. '.join(sentences)}."


#: Position charts to draw below each other.
PositionCharts: TypeAlias = Sequence[PositionChart]


def format_share(share: float) -> str:
    """Format a share above 0: `59%`, `under 1%`."""
    return f"{format_percent(share, '.0f')}%" if share > 0.005 else "under 1%"


def sketch_chart(strip: PositionChart) -> str:
    """Draw a position chart as text: `▆▅▄┊░░`, with `┊` at the end of the window and `·` for parts
    without evidence.
    """
    parts = len(strip.ndcg_by_part)
    marks = 1 if strip.before in (None, 0) else 2
    columns = CHARACTERS
    unread = 0
    if strip.truncated:
        share = round(CHARACTERS * strip.truncated)
        unread = min(max(share, 1), CHARACTERS - marks - 1)
        columns = CHARACTERS - unread - marks
    values = [part.value if part else math.nan for part in strip.ndcg_by_part]
    # A column shows the mean of the parts that it overlaps, weighted by the overlap.
    cells = np.ma.masked_invalid(values).repeat(columns).reshape(columns, parts)
    line = draw_sparkline(cells.mean(axis=1).filled(math.nan).tolist())
    if not unread:
        return line
    before = round(columns * strip.read_before / parts)
    # A mark separates the truncated part from each neighbor.
    return MARK.join(filter(None, (line[:before], UNREAD * unread, line[before:])))


def sketch_charts(strips: PositionCharts, width: int = 1000) -> list[str]:
    """Draw a line for each position chart: name, chart and the finding or, if the finding does not
    fit, the truncated share.
    """
    sketches = [f"  {sketch_chart(strip):{CHARACTERS}}  " for strip in strips]
    rows = list(zip(sketches, strips, strict=True))
    ends = [f"{sketch}{strip.share}".rstrip() for sketch, strip in rows]
    room = width - max(map(len, ends), default=0)
    names = shorten_names([strip.name for strip in strips], room)
    longest = max(map(len, names), default=0)
    findings = [f"{sketch}{strip.words[-1]}" for sketch, strip in rows]
    if longest + max(map(len, findings), default=0) <= width:
        ends = findings
    return [f"{name:{longest}}{end}" for name, end in zip(names, ends, strict=True)]


def explain_sketches(strips: PositionCharts) -> str:
    """Explain the lines of `sketch_charts`."""
    unread = f"; {UNREAD}: truncated" if any(strip.truncated for strip in strips) else ""
    return f"Bars: from start to end of a document; bar height: {strips[0].scale.name}{unread}."


def draw_glyph(strip: PositionChart, width: int = 120, height: int = 36) -> str:
    """Draw only the marks, as an SVG for a table row."""
    marks = "".join(_draw_marks(strip, 0, 2, width, height - 3))
    return (
        f'<svg class="strip" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" preserveAspectRatio="none" role="img" '
        f'aria-label="{html.escape(strip.description)}">{marks}</svg>'
    )


def draw_position_charts(
    strips: PositionCharts, *, width: int = WIDE, source: str = "", explained: bool = True
) -> str:
    """Draw position charts below each other on one axis as SVG.

    Args:
        strips: A chart for each system.
        width: Width of the image in pixels.
        source: Data and date, below the charts.
        explained: If true, words next to each chart and an explanation of the marks below.
    """
    content, height = _draw_rows(strips, width, "", source, explained=explained)
    return _wrap_svg(content, strips, (width, height), (width, height))


def draw_card(strips: PositionCharts, heading: str, source: str) -> str:
    """Draw position charts on a card of 1,200 x 630 pixels, as large as they fit."""
    ratio = CARD_SIZE[1] / CARD_SIZE[0]
    for width in count(WIDE, 20):
        content, height = _draw_rows(strips, width, heading, source)
        margin = width * ratio - height
        if margin >= 0:
            break
    centered = f'<g transform="translate(0 {margin / 2:.1f})">{content}</g>'
    return _wrap_svg(centered, strips, (width, round(width * ratio, 1)), CARD_SIZE)


@dataclass(frozen=True, repr=False)
class Picture:
    """An SVG image that a notebook shows without scripts."""

    svg: str

    def _repr_html_(self) -> str:
        return self.svg

    def save(self, file: str | Path) -> None:
        """Write the image as `.svg` or `.png`; raise PosirError for another suffix."""
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
    strips: PositionCharts,
    view: tuple[float, float],
    size: tuple[float, float],
) -> str:
    label = html.escape(" ".join(strip.description for strip in strips))
    return (
        f'<svg class="strip" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {view[0]:g} '
        f'{view[1]:g}" width="{size[0]:g}" '
        f'height="{size[1]:g}" {FONT} role="img" aria-label="{label}">{STYLE}'
        f'<rect class="paper" {KINDS["paper"][0]} width="100%" height="100%"/>{content}</svg>'
    )


def _draw_rows(
    strips: PositionCharts,
    width: int,
    heading: str,
    source: str,
    *,
    explained: bool = True,
) -> tuple[str, float]:
    """Draw heading, charts, explanation and source, and return the SVG and its height."""
    is_wide = width >= WIDE
    chart_width = round(width * CHART_SHARE) if is_wide else width - AXIS - 12
    left = AXIS + chart_width + GAP if is_wide else 12
    letters = int((width - left - 12) / LETTER)
    parts = []
    top = 12.0
    if heading:
        parts.append(_write(12, top + 14, heading, "ink", style='font-size="16" font-weight="600"'))
        top += 28
    for strip in strips:
        y = top + (LABEL if is_wide else 0)
        for line in textwrap.wrap(strip.name, int(letters * BOLD)):
            parts.append(_write(left, y + 12, line, "ink", style='font-weight="600"'))
            y += LINE
        for words in strip.words if explained else ():
            for line in textwrap.wrap(words, letters):
                parts.append(_write(left, y + 12, line, "ink"))
                y += LINE
        # The words are next to a chart in a wide image, and above it in a narrow one.
        chart_top = top if is_wide else y
        parts += _draw_labeled(strip, chart_top, chart_width)
        top = max(y, chart_top + HEIGHT + 2 * LABEL) + 14
    notes = ""
    if explained and strips:
        scale = strips[0].scale
        notes = f"From the start of {scale.caption}. Band: 95% interval."
        if any(strip.truncated for strip in strips):
            notes += (
                f" Hatched: the truncated share of {scale.whole}, not a position in each document."
            )
    for text in (notes, source):
        for line in textwrap.wrap(text, int((width - 24) / 6.6)):
            parts.append(_write(12, top + 10, line, "faint", style='font-size="12"'))
            top += 15
    return "".join(parts), top + 8


def _draw_labeled(strip: PositionChart, top: float, width: int) -> Iterator[str]:
    """Yield a chart with axis labels, and the truncated share above it."""
    bottom = top + LABEL + HEIGHT
    rotation = f'transform="translate(11 {_number(bottom - HEIGHT / 2)}) rotate(-90)"'
    if len(strip.scale.name) * LETTER < HEIGHT:
        yield _write(0, 0, strip.scale.name, "faint", "middle", rotation)
    yield from _draw_marks(strip, AXIS, top + LABEL, width, HEIGHT)
    for height, y in ((1, top + LABEL + 8), (0.5, bottom - HEIGHT / 2 + 4), (0, bottom)):
        yield _write(AXIS - 6, y, strip.scale.format(height), "faint", "end")
    low, high, *names = strip.axis
    fits = width * (high - low) > len(" ".join(names)) * LETTER
    for name, position, anchor in zip(names, (low, high), ("start", "end"), strict=True):
        label = name if fits else SHORT_LABELS.get(name, name)
        yield _write(AXIS + width * position, bottom + 14, label, "faint", anchor)
    if not strip.truncated:
        return
    start, end = strip.edges[strip.read_before : strip.read_before + 2]
    anchor, x = ("end", end) if start else ("start", 0.0)
    fits = width * (end - start) > len(strip.share) * LETTER
    if fits or 0 < start < end < 1 - 1e-9:
        anchor, x = ("middle", (start + end) / 2)
    yield _write(AXIS + width * x, top + LABEL - 5, strip.share, "ink", anchor)


def _draw_marks(
    strip: PositionChart, left: float, top: float, width: float, height: float
) -> Iterator[str]:
    """Yield the paths of grid, bars, intervals and hatching."""
    paths = dict.fromkeys(("bars", "hatch", "band", "grid", "mean"), "")
    bottom = top + height
    for (score, is_read), (start, end) in zip(strip.scores, pairwise(strip.edges), strict=True):
        x = left + width * start
        right = left + width * end
        if not is_read:
            # A gap shows that the truncated part does not continue the window.
            x += width * HATCH_GAP * (start > 0)
            right = max(x, right - width * HATCH_GAP * (end < 1 - 1e-9))
            paths["hatch"] += "".join(_hatch(x, bottom, right - x, height))
        for share in (0, 0.5, 1):
            # Lines of neighbors overlap by a pixel, or a gap would show.
            paths["grid"] += _line(x, top + height * share, right - x + is_read)
        edges = () if is_read else (x, right)
        for edge in edges:
            paths["grid"] += f"M{_number(edge)} {_number(top)}v{_number(height)}"
        if score is None:
            continue
        y = bottom - height * score.value
        if is_read:
            # Neighbors share an edge, or the background would show between them.
            paths["bars"] += _box(x, right, bottom, y)
        if score.interval:
            low, high = score.interval
            paths["band"] += _box(x, right, bottom - height * low, bottom - height * high)
        paths["mean"] += _line(x, y, right - x)
    for kind, path in paths.items():
        if path:
            yield f'<path class="{kind}" {KINDS[kind][0]} d="{path}"/>'


def _line(x: float, y: float, length: float) -> str:
    return f"M{_number(x)} {_number(y)}h{_number(length)}"


def _box(left: float, right: float, low: float, high: float) -> str:
    x = _number(left)
    return f"M{x} {_number(low)}H{_number(right)}V{_number(high)}H{x}z"


def _hatch(x: float, bottom: float, width: float, height: float) -> Iterator[str]:
    """Yield diagonal lines within a rectangle. An SVG pattern would need an id that is unique on
    the page.
    """
    for offset in np.arange(-height, width, HATCH).tolist():
        first = max(offset, 0.0)
        last = min(offset + height, width)
        if last > first:
            begin = f"{_number(x + first)} {_number(bottom - first + offset)}"
            yield f"M{begin}L{_number(x + last)} {_number(bottom - last + offset)}"


def _write(x: float, y: float, text: str, kind: str, anchor: str = "", style: str = "") -> str:
    """Write a text; labels of axes have an anchor and are smaller."""
    if anchor:
        style += f' font-size="12" text-anchor="{anchor}"'
    return (
        f'<text class="{kind}" {KINDS[kind][0]} x="{_number(x)}" y="{_number(y)}" '
        f"{style}>{html.escape(text)}</text>"
    )


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
